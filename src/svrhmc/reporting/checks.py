"""How well a model fits: what it says of rows that it was not fitted to, where there are enough of them.

The model is fitted once more to four fifths of the rows (its mode, which takes a few passes), and its means μ are
compared with what was seen in the others. Where rows are few, the rows that were fitted are looked at, and the report
says so: the fit then looks better than it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.posterior.prediction import Predictions
from svrhmc.posterior.result import Posterior
from svrhmc.targets.forms import rows_of

_FEWEST, _SHARE = 200, 5  # rows from which on, and the part of them that, is held out
_MOST_HELD, _MOST_NUMBERS = 20_000, 20_000_000  # rows looked at, and numbers in the rows of the second fit
_COPIES = 20  # new y of each row


@dataclass(frozen=True, eq=False)
class Check:
    """Means μ of some rows (for classes with one more axis), what was seen there on the same scale, how much each row
    counts, and new y of the model (draws, rows). outcome: events, counts, classes or numbers.
    """

    outcome: str
    fitted: Array
    seen: Array
    weights: Array
    new: Array
    said: str


def check(posterior: Posterior, seed: int = 0) -> Check | None:
    """None where the rows that were fitted are not at hand, as with a posterior from a file."""
    target: Any = None if posterior._target is None else posterior._target.shown()
    form = None if target is None else rows_of(target.form())
    if form is None or form.removed is not None:
        return None
    n, order = form.rows.n, np.random.default_rng(seed).permutation(form.rows.n)
    held = np.sort(order[: min(n // _SHARE, _MOST_HELD)])
    if n >= _FEWEST and form.heavy is None:
        train = np.sort(order[n // _SHARE :][: max(1000, _MOST_NUMBERS // max(1, target.dim))])
        try:
            mode = target.share(train, target.prior_precision).minimum().first
        except (ValueError, RuntimeError):
            mode = None
        if mode is not None:
            said = (
                f"The model was fitted once more, to {len(train):,} of the rows (its point fit), and compared with "
                f"{len(held):,} others that it had not seen."
            )
            return _compared(target, held, np.tile(mode, (_COPIES, 1)), said, seed)
    some = np.sort(order[: min(n, _MOST_HELD)])
    said = (
        f"Compared with {len(some):,} of the rows that were fitted, as there are too few to leave some out: a fit "
        "looks better there than at new rows."
    )
    return _compared(target, some, posterior.inner(100), said, seed)


def _compared(target: Any, rows: Any, x: Array, said: str, seed: int) -> Check:
    form, loss = target.share(rows, target.prior_precision).form(), target.loss
    trials = form.weights if loss.tried else None
    means, new = [], []
    for block in Predictions(form, x, seed, trials).blocks():
        means.append(block.mean.mean(axis=0))
        new.append(block.new)
    fitted, weights = np.concatenate(means), np.ones(form.rows.n) if form.weights is None else form.weights
    if trials is not None:
        fitted = fitted / np.maximum(trials, 1.0)
    seen = np.asarray(form.y, np.float64)
    if loss.outcome == "events":
        seen = np.maximum(seen, 0.0)  # signs are 0 and 1 on the scale of the mean, and shares are shares
    if loss.outcome == "classes":
        seen = np.asarray(seen[:, None] == np.arange(fitted.shape[1]), np.float64)
    return Check(loss.outcome, fitted, seen, weights, np.concatenate(new, axis=1), said)
