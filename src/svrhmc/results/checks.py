"""How a model fails to fit the rows it was fitted to, in sentences, with what to try instead.

At the posterior mean a row has the law F of its y. With a = P(Y < y), b = P(Y ≤ y) and z = Φ⁻¹, the quantile residual
of y is r = z(u), u uniform on (a, b): a standard normal number if the model is right, whatever the family (Dunn &
Smyth, Journal of Computational and Graphical Statistics 5, 1996). No random u is needed, only means over it,

    r̄ = E r = (φ(z(a)) − φ(z(b)))/(b − a),       q = E r² = 1 + (z(a)φ(z(a)) − z(b)φ(z(b)))/(b − a),

which are r and r² where y is a number. Under the model E r̄ = 0 and E q = 1; w counts the rows that a row stands for.

    pattern      rows in G ≤ 10 groups by fitted values, or by a column: S_g = Σ wr̄/√V_g, and Σ S_g² is compared with χ²
                 of G degrees of freedom. V_g is Σ wr̄² in the group, or what the mean of r̄² over all rows would make of
                 it, if that is more: so no group has less than its variance where events are rare.
    dispersion   Σ w(q − 1)/√Σ w(q − 1)², where y counts and the family has no spread of its own to adapt
    zeros        Σ w(1{y = 0} − p₀)/√Σ wp₀(1 − p₀) with p₀ = P(Y = 0)
    outlier      W times the least of 2 min(P(Y ≤ y), P(Y ≥ y))
    tails        how many |r| > 3 there are, beside a Poisson law of 0.0027 W

Each of these says something in at most one of a thousand fits of a right model, so all together in less than one of a
hundred: coefficients that were fitted to the same rows make residuals smaller, and tests more cautious. What is too
small to matter is not said, however many rows show it. Checked are at most 50,000 rows, spread evenly.

How well a model fits: what it says of rows that it was not fitted to, where there are enough of them.

The model is fitted once more to four fifths of the rows (its mode, which takes a few passes), and its means μ are
compared with what was seen in the others. Where rows are few, the rows that were fitted are looked at, and the report
says so: the fit then looks better than it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.results.advice import Advice
from svrhmc.results.predict import Predictions, even_rows
from svrhmc.targets.forms import RowsForm, rows_of

LOOKED_FOR = "zeros, dispersion, calibration, outliers, patterns of residuals"
_CHANCE = 1e-3  # of each check, to say something about a model that is right
_ROWS, _FEWEST = 50_000, 30  # rows that are looked at, and observations below which none are
_GROUPS, _IN_GROUP = 10, 30  # groups of a pattern at most, and observations of each at least
_COLUMNS = 20  # that are looked at for a pattern
_MATTERS = 0.05  # of a standard deviation: the mean residual of a group from which it is said
_MORE = 0.1  # of a variance, or of the number of zeros: the same
_FAR, _BEYOND = 3.0, 0.0026997960632601866  # |r| of a tail, and how probable it is
_ZEROS = 10.0  # least variance of the number of zeros
_FEWEST_HELD_OUT, _SHARE = 200, 5  # rows from which on, and the part of them that, is held out
_MOST_HELD, _MOST_NUMBERS = 20_000, 20_000_000  # rows looked at, and numbers in the rows of the second fit
_COPIES = 20  # new y of each row


@dataclass(frozen=True, eq=False)
class Fitted:
    """Of each row: all its predictors and the first of them, how many observations it stands for, a, b, r̄ and q."""

    predictors: Array
    t: Array
    weights: Array
    below: Array
    at_most: Array
    residual: Array
    square: Array

    @property
    def total(self) -> float:
        """Observations in all."""
        return float(self.weights.sum())


def misfits(
    form: RowsForm, mean: Array, names: tuple[str, ...], first: int, advice: Advice
) -> tuple[tuple[str, ...], int]:
    """Sentences, and how many rows they are about: 0 where the model cannot be checked (too few rows, weights that do
    not count rows, a family that does not say its law).

    mean: the posterior's, in the variables of the form. names: of its columns, of which those before `first` are ones.
    advice: what is to be tried, in the words of the door.
    """
    some = form.chosen(even_rows(form.rows.n, _ROWS, 0))
    weights = np.ones(some.rows.n) if some.weights is None or some.loss.tried else some.weights
    if weights.sum() < _FEWEST or (weights != np.round(weights)).any():
        return (), 0
    with np.errstate(all="ignore"):
        t = some.predictors(mean[None])[0]
        if some.loss.outcome == "classes":
            said = _classes(some, t, weights, names, first, advice)
        else:
            found = _fitted(some, t, weights)
            if found is None:
                return (), 0
            said = [*_by_law(some, found), *_patterns(some, found, names, first, advice)]
    return tuple(map(advice.named, filter(None, said))), some.rows.n


def _fitted(some: RowsForm, t: Array, weights: Array) -> Fitted | None:
    from scipy.special import ndtri

    law = some.loss.cumulative(t, some.y, some.weights if some.loss.tried else None)
    if law is None:
        return None
    a, b = (np.clip(each, 0.0, 1.0) for each in law)
    low, high = ndtri(a), ndtri(b)
    at_a, at_b = _density(low), _density(high)
    width = np.maximum(b - a, 1e-300)
    jumps = b > a
    r = np.where(jumps, (at_a - at_b) / width, ndtri(np.clip(b, 1e-300, 1 - 1e-16)))
    edges = np.where(np.isfinite(low), low, 0.0) * at_a - np.where(np.isfinite(high), high, 0.0) * at_b
    q = np.where(jumps, 1 + edges / width, r**2)
    if not (np.isfinite(r).all() and np.isfinite(q).all()):
        return None
    return Fitted(t, some.loss.predictor(t), weights, a, b, r, q)


def _density(z: Array) -> Array:
    return np.asarray(np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi), np.float64)


def _by_law(some: RowsForm, found: Fitted) -> list[str]:
    """What single rows, and their spread, say."""
    loss, said = some.loss, []
    if loss.outcome == "counts":
        said.append(_zeros(some, found))
    several = loss.outcome == "counts" or (some.weights is not None and loss.tried and bool((some.weights > 1).any()))
    said.append(_dispersion(some, found) if several else "")
    said.append(_far(some, found))
    return said


def _zeros(some: RowsForm, found: Fitted) -> str:
    loss, zero = some.loss, np.zeros(some.rows.n)
    p = np.exp(-loss.value(found.predictors, zero) - loss.constant(zero))
    w = found.weights
    seen, expected, variance = float(w @ (some.y == 0)), float(w @ p), float(w @ (p * (1 - p)))
    if variance < _ZEROS or abs(seen - expected) < _deviations(_CHANCE) * np.sqrt(variance):
        return ""
    if abs(seen - expected) < _MORE * min(expected, found.total - expected):
        return ""
    many = seen > expected
    advice = f"{loss.overdispersed}; " if many and loss.overdispersed else ""
    apart = "a zero-inflated or hurdle family is not available: fit y > 0 by 'bernoulli', and the rows with y > 0 apart"
    counted = f"{seen:,.0f} of {found.total:,.0f} are 0, where the model expects {expected:,.0f}"
    return f"Zeros: {counted}. Try: {advice}{apart}."


def _dispersion(some: RowsForm, found: Fitted) -> str:
    w, away = found.weights, found.square - 1
    z = float(w @ away) / max(float(np.sqrt(w @ away**2)), 1e-300)
    ratio = float(w @ found.square) / found.total
    if z < _deviations(2 * _CHANCE) or ratio < 1 + _MORE:
        return ""
    advice = some.loss.overdispersed
    return f"Dispersion: y varies {ratio:.2g} times as much as the model says." + (f" Try: {advice}." if advice else "")


def _far(some: RowsForm, found: Fitted) -> str:
    """Outliers, and tails that are too heavy."""
    from scipy.special import pdtr

    w, total = found.weights, found.total
    chance = 2 * np.minimum(found.at_most, 1 - found.below)
    least = int(np.argmin(chance))
    outlier = float(chance[least]) * total < _CHANCE
    beyond = float(w @ (np.abs(found.residual) > _FAR)) if some.loss.outcome == "numbers" else 0.0
    tails = beyond > 0 and 1 - pdtr(beyond - 1, _BEYOND * total) < _CHANCE
    if not (outlier or tails):
        return ""
    r, advice = abs(float(found.residual[least])), some.loss.far_off
    where = f"row {least:,}" if some.rows.n < _ROWS else "one"
    said = f"{where} is {'more than 8' if r > 8 else f'{r:.2g}'} standard deviations from what the model says"
    if tails:
        said = f"{beyond:,.0f} rows are beyond 3 standard deviations, where {_BEYOND * total:,.2g} are expected; {said}"
    return f"Outliers: {said}. Look at it" + (f"; or try: {advice}." if advice else ".")


def _patterns(some: RowsForm, found: Fitted, names: tuple[str, ...], first: int, advice: Advice) -> list[str]:
    """Residuals against fitted values, and against columns of numbers."""
    grouped = _groups(found.t, found.residual, found.weights)
    said = []
    if grouped is not None and grouped.p < _CHANCE and grouped.largest > _MATTERS:
        events = some.loss.outcome == "events"
        said.append(_calibration(some, found, grouped, advice) if events else _trend(grouped, advice))
    return [*said, _along_columns(some, [found.residual], found.weights, names, first, advice)]


def _along_columns(
    some: RowsForm, residuals: list[Array], weights: Array, names: tuple[str, ...], first: int, advice: Advice
) -> str:
    """The column of numbers along which some of the residuals have the clearest pattern."""
    width = min(some.rows.columns - first, _COLUMNS)
    X = some.rows.taken(np.arange(some.rows.n))[:, first : first + width]
    columns = [j for j in range(width) if _varied(X[:, j])]
    found = [(j, grouped) for j in columns for r in residuals if (grouped := _groups(X[:, j], r, weights)) is not None]
    if not found:
        return ""
    j, worst = min(found, key=lambda each: each[1].p)
    if worst.p * len(found) >= _CHANCE or worst.largest < _MATTERS:
        return ""
    name = names[j + first].rpartition(": ")[2]
    return (
        f"Pattern: along {name} residuals go {worst.course}: its effect is not the straight line of the model. "
        f"Try: {advice.of_column(name)}."
    )


def _varied(column: Array) -> bool:
    """Whether it has more than two values: a column of two has no curve."""
    away = column[column != column[0]]
    return bool(len(away) and (away != away[0]).any())


def _trend(grouped: _Groups, advice: Advice) -> str:
    return (
        f"Pattern: along the fitted values residuals go {grouped.course}: the mean of y has another form. "
        f"Try: {advice.curves}."
    )


def _calibration(some: RowsForm, found: Fitted, grouped: _Groups, advice: Advice) -> str:
    """Where the share that was seen is furthest from the probability."""
    rows = grouped.rows[int(np.argmax(np.abs(grouped.scores)))]
    w = found.weights[rows] if not some.loss.tried else some.weights[rows]  # type: ignore[index]
    said = float(np.average(some.loss.mean(found.t[rows]), weights=w))
    seen = float(np.average(np.maximum(some.y[rows], 0.0), weights=w))
    return (
        f"Calibration: where the model says {said:.2g}, a share of {seen:.2g} is seen. Try: {advice.curves}, or "
        f"{advice.link}."
    )


def _classes(some: RowsForm, t: Array, weights: Array, names: tuple[str, ...], first: int, advice: Advice) -> list[str]:
    """The class whose probabilities are furthest from what is seen, and residuals of all classes along columns."""
    mean = some.loss.mean(t)
    away = [(some.y == k) - mean[:, k] for k in range(mean.shape[1])]
    residuals = [each / np.sqrt(np.mean(each**2)) for each in away]
    found = [(k, g) for k, r in enumerate(residuals) if (g := _groups(mean[:, k], r, weights)) is not None]
    said = []
    if found:
        k, worst = min(found, key=lambda each: each[1].p)
        if worst.p * len(found) < _CHANCE and worst.largest > _MATTERS:
            rows = worst.rows[int(np.argmax(np.abs(worst.scores)))]
            model, seen = (float(np.average(each[rows], weights=weights[rows])) for each in (mean[:, k], some.y == k))
            said.append(
                f"Calibration: of class {k}, where the model says {model:.2g}, a share of {seen:.2g} is seen. Try: "
                f"{advice.curves}."
            )
    return [*said, _along_columns(some, residuals, weights, names, first, advice)]


@dataclass(frozen=True, eq=False)
class _Groups:
    """Rows of each group, S_g, their mean residuals, and how probable so large a Σ S_g² is."""

    rows: list[Any]
    scores: Array
    means: Array
    p: float

    @property
    def largest(self) -> float:
        """The largest |mean residual| of a group, in standard deviations."""
        return float(np.abs(self.means).max())

    @property
    def course(self) -> str:
        """From group to group, in standard deviations."""
        shown = self.means[np.unique(np.linspace(0, len(self.means) - 1, 5).round().astype(int))]
        return ", ".join(f"{each:+.2f}" for each in shown) + " (in standard deviations)"


def _groups(x: Array, residual: Array, weights: Array) -> _Groups | None:
    """Groups of about equal weight by x, in which equal x stay together; None where there are not two."""
    from scipy.special import chdtrc

    order = np.argsort(x, kind="stable")
    x, r, w = x[order], residual[order], weights[order]
    total = float(w.sum())
    count = int(min(_GROUPS, total // _IN_GROUP))
    if count < 2:
        return None
    group = np.minimum((np.cumsum(w) - w / 2) / total * count, count - 1).astype(int)
    group = group[np.searchsorted(x, x, "left")]
    _, group = np.unique(group, return_inverse=True)
    count = int(group[-1]) + 1
    if count < 2:
        return None
    sums, sizes, squares = (np.bincount(group, each, count) for each in (w * r, w, w * r * r))
    variance = np.maximum(squares, sizes * squares.sum() / total)
    scores = sums / np.sqrt(np.maximum(variance, 1e-300))
    rows = [order[group == k] for k in range(count)]
    return _Groups(rows, scores, sums / sizes, float(chdtrc(count, (scores**2).sum())))


def _deviations(chance: float) -> float:
    """z beyond which a standard normal number lies, on both sides together, with this chance."""
    from scipy.special import ndtri

    return float(-ndtri(chance / 2))


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


def check(posterior: Any, seed: int = 0) -> Check | None:
    """None where the rows that were fitted are not at hand, as with a posterior from a file."""
    target: Any = None if posterior._target is None else posterior._target.shown()
    form = None if target is None else rows_of(target.form())
    if form is None or form.removed is not None:
        return None
    n, order = form.rows.n, np.random.default_rng(seed).permutation(form.rows.n)
    held = np.sort(order[: min(n // _SHARE, _MOST_HELD)])
    if n >= _FEWEST_HELD_OUT and form.heavy is None:
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
