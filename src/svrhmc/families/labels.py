"""Checks of labels that are counts or classes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Values
from svrhmc.core.errors import real_array, require_unmasked, requirement
from svrhmc.families.primitives import Value

_FEW = 50  # levels that a category may have in few rows
_ZERO = "fit y > 0 by 'bernoulli', and the rows with y > 0 apart"
_MOST = 2.0**53  # from here on float64 cannot represent every count


def counts(name: str, value: npt.ArrayLike, shape: tuple[int | str, ...]) -> Array:
    """Whole numbers from 0 to below 2⁵³, as floats; others are refused, and the first of them is named."""
    array = np.asarray(real_array(name, value, shape), np.float64)
    for wrong, what, why in (
        (array < 0, "a negative count", "for numbers of either sign use 'gaussian' or 'student-t'"),
        (array != np.floor(array), "not a whole number", "for measurements use 'gaussian' or 'gamma'"),
    ):
        if wrong.any():
            raise requirement(name, "counts: whole numbers not below 0", f"{first_place(array, wrong)}, {what}", why)
    if (array >= _MOST).any():
        raise requirement(
            name, "counts below 2⁵³", first_place(array, array >= _MOST), "float64 cannot tell larger ones apart"
        )
    return array


def logarithms_of_positive(y: npt.ArrayLike, n: int, family: str) -> Array:
    """log y of n positive numbers; others are refused, and the first of them is named."""
    array = np.asarray(real_array("y", y, (n,)), np.float64)
    if (wrong := array <= 0).any():
        row = int(np.argmax(wrong))
        why = _ZERO if array[row] == 0 else "for numbers of either sign use 'gaussian' or 'student-t'"
        raise requirement("y", f"positive numbers for the {family} family", f"{array[row]:g} at row {row}", why)
    return np.asarray(np.log(array), np.float64)


def first_place(array: Values, wrong: Values) -> str:
    """The first wrong value and its row, in words."""
    row = int(np.argmax(wrong))
    return f"{array.flat[row]:.17g} at row {row}"


def classes_of(y: npt.ArrayLike) -> tuple[Array, Values]:
    """Labels of any kind (texts, whole numbers, truth values) as 0, 1, …, and the classes these stand for, in order.

    >>> classes_of(["dog", "cat", "dog"])
    (array([1., 0., 1.]), array(['cat', 'dog'], dtype='<U3'))
    >>> classes_of([3, 7, 3.0])[1]
    array([3, 7])
    """
    array = _labels(y)
    if array.dtype.kind == "f":
        whole = array == np.floor(array)
        if not whole.all():
            raise requirement("y", "labels of classes", f"{first_place(array, ~whole)}, not a whole number")
        array = array.astype(np.int64) if (np.abs(array) < _MOST).all() else array
    classes = sorted_labels(array)
    codes = np.searchsorted(classes, array)
    require_shared_classes(len(classes), len(array))
    return codes.reshape(array.shape).astype(np.float64), classes


def require_shared_classes(classes: int, rows: int) -> None:
    """Refuse labels that name rows rather than classes of rows."""
    if identifies_rows(classes, rows):
        why = "each would have coefficients of its own; for numbers use 'gaussian'"
        raise requirement("y", "labels of classes that rows share", f"{classes:,} in {rows:,} rows", why)


def sorted_labels(array: Values) -> Values:
    """The different labels, sorted; labels that cannot be sorted are refused."""
    try:
        return np.unique(array)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in array})
        raise requirement("y", "labels of one kind, which have an order", " and ".join(kinds)) from None


def class_labels(y: Value) -> tuple[Values, list[object]]:
    """One label for each row, none of them missing, and the categories in order where the labels are an ordered
    category of a data frame; otherwise [].
    """
    kind: Value = getattr(y, "cat", y)  # of a pandas series, or a pandas.Categorical
    ordered = bool(getattr(kind, "ordered", False)) and hasattr(kind, "categories")
    return _labels(y), list(kind.categories) if ordered else []


def class_numbers(y: npt.ArrayLike, n: int, count: int, why: str) -> Array:
    """n classes 0 … count − 1, each of which must occur."""
    array = counts("y", y, (n,))
    if (array >= count).any():
        raise requirement("y", f"classes from 0 to {count - 1}", f"{first_place(array, array >= count)}")
    unseen = np.setdiff1d(np.arange(count), array)
    if len(unseen):
        raise requirement("y", "labels in which every class is seen", f"none of class {int(unseen[0])}", why)
    return array


def identifies_rows(levels: int, rows: int) -> bool:
    """Whether a category has so many levels that it identifies rows rather than groups of rows."""
    return levels > max(_FEW, rows // 2)


def two_texts(y: npt.ArrayLike) -> tuple[npt.ArrayLike, Values | None]:
    """Labels that are two texts as 0 and 1, and the texts; numbers are returned unchanged.

    >>> two_texts(["no", "yes", "no"])
    (array([0., 1., 0.]), array(['no', 'yes'], dtype='<U3'))
    """
    require_unmasked("y", y)
    array = np.asarray(y)
    if array.dtype.kind not in "US" and not (array.dtype.kind == "O" and any(isinstance(v, str) for v in array.flat)):
        return y, None
    codes, classes = classes_of(array)
    if len(classes) != 2:
        why = "for more use 'categorical'" if len(classes) > 2 else ""
        raise requirement(
            "y", "labels of two classes", f"{len(classes)}: " + ", ".join(map(repr, classes[:4].tolist())), why
        )
    return codes, classes


def _labels(y: npt.ArrayLike) -> Values:
    """One label for each row, none of them missing."""
    require_unmasked("y", y)
    array = np.asarray(y)
    if array.ndim != 1 or not len(array):
        raise requirement("y", "one label for each row", f"shape {array.shape}")
    if array.dtype.kind not in "biufUSO":
        raise requirement("y", "labels: texts, whole numbers or truth values", f"dtype {array.dtype}")
    if array.dtype.kind in "fO":
        absent = ~np.isfinite(array) if array.dtype.kind == "f" else [_missing(value) for value in array]
        for row in np.flatnonzero(absent)[:1]:
            raise requirement("y", "a label in every row", f"{array[row]} at row {row}", "leave such rows out")
    return array


def _missing(value: object) -> bool:
    """None, NaN, and pandas' NA, which equals nothing."""
    try:
        return value is None or not bool(value == value) or value in (np.inf, -np.inf)
    except TypeError:
        return True
