"""What an estimator is given: weights of rows, and why something cannot be read as numbers, in words of our own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from numbers import Real
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import require_unmasked, requirement

_REMEDIES = {
    "X": (
        "make numbers of categories first (sklearn.preprocessing.OneHotEncoder in a pipeline), or give the table to "
        "svrhmc.fit, which takes them as they are"
    ),
    "y": "for classes use BayesianLogisticRegression",
}
_DATES = "make a number of it first, such as days since the first one"


@contextmanager
def read_as_numbers(**given: Any) -> Iterator[None]:
    """Where an error comes from a text or a date among what was given (by name), say where that stands.

    Other errors stay as they are. Rows with inf and -inf in them are refused without a warning of their sum besides,
    and masks, which scikit-learn ignores, at once.
    """
    for name, values in given.items():
        require_unmasked(name, values)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except (TypeError, ValueError):
        for name, values in given.items():
            if (found := _unread(name, values)) is not None:
                raise found from None
        raise


def weighted(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Array | None]:
    """Rows, labels and weights without rows of weight 0; no weights where all are 1."""
    from sklearn.utils import check_array, check_consistent_length

    if sample_weight is None:
        return X, y, None
    if isinstance(sample_weight, Real):
        sample_weight = np.full(X.shape[0], sample_weight)
    with read_as_numbers(sample_weight=sample_weight):
        weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weights.ndim != 1:
        raise requirement("sample_weight", "one number for each row", f"shape {weights.shape}")
    check_consistent_length(X, weights)
    if (weights < 0).any():
        raise requirement("sample_weight", "numbers not below 0", f"{weights.min():g}")
    if not weights.any():
        raise requirement("sample_weight", "positive for some row", "zero for all of them")
    kept = weights > 0
    if not kept.all():
        X, y, weights = X[kept], y[kept], weights[kept]
    return X, y, None if (weights == 1).all() else weights


def _unread(name: str, values: Any) -> ValueError | None:
    """The first text or date among rows, a column or a list; None where there is none, and of sparse rows."""
    if values is None or hasattr(values, "format"):
        return None
    try:
        array = np.asarray(values, object)
    except ValueError:  # lists of unequal lengths
        return None
    columns = getattr(values, "columns", None)
    for place, each in np.ndenumerate(array):
        if (kind := _kind(each)) is not None:
            row, *others = place
            of = "".join(f" of column {j if columns is None else columns[j]!r}" for j in others)
            remedy = _DATES if kind == "date" else _REMEDIES.get(name, "")
            return requirement(name, "numbers", f"the {kind} {str(each)!r:.40} in row {row}{of}", remedy)
    return None


def _kind(value: Any) -> str | None:
    """What it is, where it is no number and stands for none."""
    if isinstance(value, date | np.datetime64):
        return "date"
    if not isinstance(value, str):
        return None
    try:
        float(value)
    except ValueError:
        return "text"
    return None
