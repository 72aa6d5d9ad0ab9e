"""How a model fails to fit the rows it was fitted to, in sentences, with what to try instead.

Given the other rows a row has the law F of its y, which `left_out` finds from the posterior given all of them, with
what is not known of its predictor. (At the posterior mean given all rows residuals would depend on the prior: it draws
fitted values inward, and residuals go up along them; where it leaves the coefficients to the data, each row draws its
own fitted value outward.) With a = P(Y < y), b = P(Y ≤ y) and z = Φ⁻¹, the quantile residual of y is r = z(u), u
uniform on (a, b): a standard normal number if the model is right, whatever the family (Dunn & Smyth, Journal of
Computational and Graphical Statistics 5, 1996). No random u is needed, only means over it,

    r̄ = E r = (φ(z(a)) − φ(z(b)))/(b − a),       q = E r² = 1 + (z(a)φ(z(a)) − z(b)φ(z(b)))/(b − a),

which are r and r² where y is a number. Under the model E r̄ = 0 and E q = 1; w counts the rows that a row stands for.

    calibration  with η the predictor of the mean of y given the other rows: rows in G ≤ 10 groups by η, residuals as
                 below about the law at a + bη, of the a and b that fit best, and χ² of G − 2 degrees of freedom (Hosmer
                 & Lemeshow, Communications in Statistics A 9, 1980). b is 1 if the prior is right too, below 1 where it
                 is too wide (Copas, JRSS B 45, 1983) and above where it is too narrow: neither bends the line
    pattern      rows in G ≤ 10 groups by a column: S_g = Σ wr̄/√V_g, and Σ S_g² is compared with χ²
                 of G degrees of freedom. V_g is Σ wr̄² in the group, or what the mean of r̄² over all rows would make of
                 it, if that is more: so no group has less than its variance where events are rare. Where dispersion is
                 too large (y − μ)/√μ stands for r̄. Looked at are all columns of three values or more, up to 10⁷
                 numbers (50,000 rows × 200 columns); of more, those whose squares correlate most with the residuals
                 of 5,000 rows, and p counts the others, too
    dispersion   Σ w(q − 1)/√Σ w(q − 1)², where y counts and the family has no spread of its own to adapt
    zeros        Σ w(1{y = 0} − p₀)/√Σ wp₀(1 − p₀) with p₀ = P(Y = 0)
    outlier      W times the least of 2 min(P(Y ≤ y), P(Y ≥ y)); of events by the law at a + bη, unless b < ½
    tails        how many |r| > 3 there are, beside a Poisson law of 0.0027 W
    thresholds   of ordered classes, for each threshold k and column x, centred: with p = P(Y ≤ k),
                 Σ w(1{y ≤ k} − p)x/√Σ wp(1 − p)x². The fit of one coefficient for all k balances them; one is far from
                 0 where x shifts some thresholds more than others

Each of these says something in at most one of a thousand fits of a right model, so all together in less than one of a
hundred. What is too small to matter is not said, however many rows show it. Checked are at most 50,000 rows, spread
evenly.

For the report, what the model says of rows that it was not fitted to is compared with what was seen there, where there
are enough of them (`check`). The model is fitted once more to four fifths of the rows (its mode, which takes a few
passes), and its means μ are compared with what was seen in the others. Where rows are few, the rows that were fitted
are looked at, and the report says so: the fit then looks better than it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.density.base import FiniteSum
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.families import bernoulli
from svrhmc.families.base import Loss
from svrhmc.results.advice import Advice
from svrhmc.results.base import PosteriorData, even_rows
from svrhmc.results.left_out import LeftOut, left_out
from svrhmc.results.predict import Predictions
from svrhmc.rows.base import DenseRows, Rows
from svrhmc.rows.forms import RowsForm

LOOKED_FOR = "zeros, dispersion, calibration, outliers, patterns of residuals"
_CHANCE = 1e-3  # of each check, to say something about a model that is right
_ROWS, _FEWEST = 50_000, 30  # rows that are looked at, and observations below which none are
_GROUPS, _IN_GROUP = 10, 30  # groups of a pattern at most, and observations of each at least
_VALUES = 10_000_000  # rows times columns that are sorted to look for patterns: about two seconds
_SCREENED = 5000  # rows by which columns are chosen where there are more
_BLOCK = 64  # columns at a time
_MATTERS = 0.05  # of a standard deviation: the mean residual of a group from which it is said
_MORE = 0.1  # of a variance, or of the number of zeros: the same
_FAR, _BEYOND = 3.0, 0.0026997960632601866  # |r| of a tail, and how probable it is
_MANY = 10  # rows from which on their number is said without decimals
_ZEROS = 10.0  # least variance of the number of zeros
_FEWEST_HELD_OUT, _SHARE = 200, 5  # rows from which on, and the part of them that, is held out
_MOST_HELD, _MOST_NUMBERS = 20_000, 20_000_000  # rows looked at, and numbers in the rows of the second fit
_COPIES = 20  # new y of each row
_NUMBERS, _FEWEST_DRAWS = 1 << 22, 64  # of predictors under draws, and draws at least
_STRAIGHT = 2  # coefficients of a line along fitted values
_TOLD = 0.8  # leverage from which on the others do not tell where a row should be
_TOO_SURE = 0.5  # slope of that line below which predictions are too sure by far
_NEWTON, _HALVED = 20, 12  # steps to it, and how often one is halved


def misfits(
    form: RowsForm,
    mean: Array,
    names: tuple[str, ...],
    first: int,
    advice: Advice,
    effects: int = 0,
    classes: tuple[str, ...] = (),
    draws: Callable[[int], Array] | None = None,
) -> tuple[tuple[str, ...], int]:
    """Sentences, and how many rows they are about: 0 where the model cannot be checked (too few rows, weights that do
    not count rows, a family that does not say its law).

    mean: the posterior's, in the variables of the form. names: of its columns, of which those before `first` are ones.
    advice: what is to be tried, in the words of the door. effects: how many columns, the last ones, are those of groups
    and smooths, which have no names. classes: the names of those of y; (): they have numbers. draws: gives at most so
    many of the posterior, in the variables of the form; None: it has no width.
    """
    some = form.choose(even_rows(form.rows.n, _ROWS, 0))
    weights = np.ones(some.rows.n) if some.weights is None or some.loss.weights_are_trials else some.weights
    if weights.sum() < _FEWEST or (weights != np.round(weights)).any():
        return (), 0
    with np.errstate(all="ignore"):
        size = some.rows.n * max(1, sum(some.loss.predictor_shape))
        unseen = left_out(some, mean, draws and draws(max(_FEWEST_DRAWS, _NUMBERS // size)))
        columns = _Columns(some, weights, names, first, some.rows.columns - effects, advice, classes)
        if some.loss.outcome == "classes":
            sentences = _of_classes(some, unseen, weights, columns, advice)
        else:
            residuals = _residuals(some, unseen, weights)
            if residuals is None:
                return (), 0
            sentences = _of_law(some, residuals, columns, advice)
    return tuple(map(advice.named, filter(None, sentences))), some.rows.n


@dataclass(frozen=True, eq=False)
class _Residuals:
    """Of each row given the others: its predictors, how many observations it stands for, a, b, r̄ and q."""

    unseen: LeftOut
    weights: Array
    below: Array
    at_most: Array
    mean: Array
    square: Array

    @property
    def total(self) -> float:
        """The number of observations, with their weights."""
        return float(self.weights.sum())


def _residuals(some: RowsForm, unseen: LeftOut, weights: Array) -> _Residuals | None:
    """None where the family does not say its law, or it is beyond float64."""
    trials = some.loss.trials_of(some.y, some.weights)
    if some.loss.cumulative(unseen.fitted[:1], some.y[:1], None if trials is None else trials[:1]) is None:
        return None

    def ends_at(t: Array) -> Array:
        return np.stack(cast(tuple[Array, Array], some.loss.cumulative(t, some.y, trials)), axis=1)

    a, b = unseen.mean(ends_at).T
    a, b, mean, square = _of_ends(a, b)
    if not (np.isfinite(mean).all() and np.isfinite(square).all()):
        return None
    return _Residuals(unseen, weights, a, b, mean, square)


def _of_ends(below: Array, at_most: Array) -> tuple[Array, Array, Array, Array]:
    """a, b, r̄ and q from P(Y < y) and P(Y ≤ y)."""
    from scipy.special import ndtri

    a, b = (np.clip(probability, 0.0, 1.0) for probability in (below, at_most))
    low, high = ndtri(a), ndtri(b)
    at_a, at_b = (np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) for z in (low, high))
    width = np.maximum(b - a, 1e-300)
    jumps = b > a
    r = np.where(jumps, (at_a - at_b) / width, ndtri(np.clip(b, 1e-300, 1 - 1e-16)))
    edges = np.where(np.isfinite(low), low, 0.0) * at_a - np.where(np.isfinite(high), high, 0.0) * at_b
    return a, b, r, np.where(jumps, 1 + edges / width, r**2)


def _of_law(some: RowsForm, residuals: _Residuals, columns: _Columns, advice: Advice) -> list[str]:
    """What single rows say, their spread, and residuals against fitted values and against columns of numbers."""
    loss, sentences, dispersion = some.loss, [], ""
    if loss.outcome == "counts":
        sentences.append(_zeros(some, residuals))
    trials = loss.trials_of(some.y, some.weights)
    if loss.outcome == "counts" or (trials is not None and bool((trials > 1).any())):
        dispersion = _dispersion(some, residuals)
        sentences.append(dispersion)
    mean = residuals.unseen.mean(loss.mean)
    about_mean = _about_mean(some, mean, residuals, trials) if dispersion else residuals.mean
    pattern, line, straight = _along_fitted(some, mean, residuals, trials, bool(dispersion))
    too_sure = loss.outcome == "events" and line < _TOO_SURE
    judged = straight if loss.outcome == "events" and not too_sure else residuals
    sentences.append(_outliers(some, judged, advice.narrower if too_sure else loss.far_off))
    if pattern is not None and pattern.p < _CHANCE and pattern.largest > _MATTERS:
        if loss.outcome == "events":
            sentences.append(_calibration(some, mean, residuals, pattern, advice, too_sure))
        else:
            sentences.append(
                f"Pattern: along the fitted values residuals go {pattern.course}: the mean of y has another form. "
                f"Try: {advice.curves}."
            )
    return [*sentences, columns.clearest([about_mean])]


def _about_mean(some: RowsForm, mean: Array, residuals: _Residuals, trials: Array | None) -> Array:
    """(y − μ)/√μ, with a mean square of 1: 0 on average wherever μ is right, however y varies about it. Of a law that
    is too narrow E r̄ is not 0, and depends on μ.
    """
    away = (_shares(some.loss, some.y, trials) - mean) / np.sqrt(np.maximum(mean, 1e-300))
    return np.asarray(away / np.sqrt(np.average(away**2, weights=residuals.weights)), np.float64)


def _along_fitted(
    some: RowsForm, mean: Array, residuals: _Residuals, trials: Array | None, too_narrow: bool
) -> tuple[_Pattern | None, float, _Residuals]:
    """Residuals about the straight line a + bη in place of the predictor, η being that of the mean given the others:
    their pattern, b, and what they are.
    """
    loss = some.loss
    eta = _on_link(loss, mean)
    eta = residuals.unseen.mean(loss.predictor) if eta is None else eta
    t, line = _straightened(some, residuals.unseen.fitted, eta)
    law = loss.cumulative(t, some.y, trials)
    assert law is not None  # as there are residuals
    straight = _Residuals(residuals.unseen, residuals.weights, *_of_ends(*law))
    residual = _about_mean(some, loss.mean(t), residuals, trials) if too_narrow else straight.mean
    return _bent(eta, residuals.unseen.fitted, residual, residuals.weights), line, straight


def _on_link(loss: Loss, mean: Array) -> Array | None:
    """The predictor of a mean; None where a family does not say it, or the mean is at an end of its range."""
    from scipy.special import logit

    links: dict[str, Callable[[Array], Array]] = {"identity": np.asarray, "logistic": logit, "exp": np.log}
    if loss.inverse_link not in links:
        return None
    t = np.asarray(links[loss.inverse_link](mean), np.float64)
    return t if np.isfinite(t).all() else None


def _straightened(some: RowsForm, t: Array, eta: Array) -> tuple[Array, float]:
    """Predictors a + bη that fit the rows best, by Newton's method from a = 0 and b = 1, and b; other predictors are
    those of t.
    """
    loss = some.loss
    X = np.column_stack([np.ones(len(eta)), eta])

    def at(line: Array) -> Array:
        moved = t.copy()
        loss.predictor(moved)[...] = X @ line
        return moved

    line, moved = np.array([0.0, 1.0]), at(np.array([0.0, 1.0]))
    value = some.values(moved).sum()
    for _ in range(_NEWTON):
        slope, curvature = some.slopes(moved), some.curvatures(moved)
        slope, curvature = (slope[..., 0], curvature[..., 0, 0]) if loss.predictor_shape else (slope, curvature)
        hessian = (X * np.maximum(curvature, 0.0)[:, None]).T @ X
        if not np.isfinite(hessian).all():
            break
        step = np.linalg.lstsq(hessian, X.T @ slope, rcond=None)[0]
        shorter = [line - step / 2**k for k in range(_HALVED)]
        better = next(((x, v) for x in shorter if (v := some.values(at(x)).sum()) < value - 1e-9 * abs(value)), None)
        if better is None:
            break
        (line, value), moved = better, at(better[0])
    return moved, float(line[1])


def _zeros(some: RowsForm, residuals: _Residuals) -> str:
    loss, zero, w = some.loss, np.zeros(some.rows.n), residuals.weights
    p = residuals.unseen.mean(lambda t: np.exp(-loss.value(t, zero) - loss.constant(zero)))
    count, expected, variance = float(w @ (some.y == 0)), float(w @ p), float(w @ (p * (1 - p)))
    if variance < _ZEROS or abs(count - expected) < _deviations(_CHANCE) * np.sqrt(variance):
        return ""
    if abs(count - expected) < _MORE * min(expected, residuals.total - expected):
        return ""
    remedy = f"{loss.overdispersed}; " if count > expected and loss.overdispersed else ""
    apart = f"{loss.other_zeros}, which has a probability of its own for zeros"
    counted = f"{count:,.0f} of {residuals.total:,.0f} are 0, where the model expects {expected:,.0f}"
    return f"Zeros: {counted}. Try: {remedy}{apart}."


def _dispersion(some: RowsForm, residuals: _Residuals) -> str:
    w, away = residuals.weights, residuals.square - 1
    z = float(w @ away) / max(float(np.sqrt(w @ away**2)), 1e-300)
    ratio = float(w @ residuals.square) / residuals.total
    if z < _deviations(2 * _CHANCE) or ratio < 1 + _MORE:
        return ""
    remedy = some.loss.overdispersed
    return f"Dispersion: y varies {ratio:.2g} times as much as the model says." + (f" Try: {remedy}." if remedy else "")


def _outliers(some: RowsForm, residuals: _Residuals, remedy: str) -> str:
    """Single rows far off, and tails that are too heavy; of rows that decide their own fit nothing is known."""
    from scipy.special import pdtr

    w, total = residuals.weights, residuals.total
    told = residuals.unseen.leverage < _TOLD
    chance = np.where(told, 2 * np.minimum(residuals.at_most, 1 - residuals.below), 1.0)
    least = int(np.argmin(chance))
    outlier = float(chance[least]) * total < _CHANCE
    beyond = float(w @ (told & (np.abs(residuals.mean) > _FAR))) if some.loss.outcome == "numbers" else 0.0
    tails = beyond > 0 and 1 - pdtr(beyond - 1, _BEYOND * total) < _CHANCE
    if not (outlier or tails):
        return ""
    r = abs(float(residuals.mean[least]))
    where = f"row {least:,}" if some.rows.n < _ROWS else "one"
    far = f"{where} is {'more than 8' if r > 8 else f'{r:.2g}'} standard deviations from what the model says"
    if tails:
        expected = f"{_BEYOND * total:,.0f}" if _BEYOND * total >= _MANY else f"{_BEYOND * total:.2g}"
        far = f"{beyond:,.0f} rows are beyond 3 standard deviations, where {expected} are expected; {far}"
    return f"Outliers: {far}. Look at it" + (f"; or try: {remedy}." if remedy else ".")


def _calibration(
    some: RowsForm, mean: Array, residuals: _Residuals, pattern: _Pattern, advice: Advice, too_sure: bool
) -> str:
    """Where the share that was seen is furthest from the probability."""
    remedy = advice.narrower if too_sure else f"{advice.curves}, or {advice.link}"
    rows = pattern.worst
    trials = some.loss.trials_of(some.y, some.weights)
    w = residuals.weights[rows] if trials is None else trials[rows]
    model = float(np.average(mean[rows], weights=w))
    share = float(np.average(_shares(some.loss, some.y, trials)[rows], weights=w))
    return (
        f"Calibration: where the model says {model:.2g} of rows that it has not seen, a share of {share:.2g} is seen. "
        f"Try: {remedy}."
    )


def _shares(loss: Loss, y: Array, trials: Array | None) -> Array:
    """Labels on the scale of the mean: successes of one trial."""
    seen = loss.original_labels(y, trials)
    return seen if trials is None else np.asarray(seen / np.maximum(trials, 1.0), np.float64)


def _of_classes(some: RowsForm, unseen: LeftOut, weights: Array, columns: _Columns, advice: Advice) -> list[str]:
    """The class whose probabilities are furthest from what is seen, and residuals of all classes along columns."""
    mean = unseen.mean(some.loss.mean)
    away = [(some.y == k) - mean[:, k] for k in range(mean.shape[1])]
    residuals = [difference / np.sqrt(np.mean(difference**2)) for difference in away]
    along = [(k, *_of_class(mean[:, k], unseen.fitted, some.y == k, weights)) for k in range(len(away))]
    patterns = [(k, pattern, line) for k, pattern, line in along if pattern is not None]
    sentences = []
    if patterns:
        k, worst, line = min(patterns, key=lambda one: one[1].p)
        if worst.p * len(patterns) < _CHANCE and worst.largest > _MATTERS:
            rows = worst.worst
            model, share = (float(np.average(v[rows], weights=weights[rows])) for v in (mean[:, k], some.y == k))
            sentences.append(
                f"Calibration: of class {columns.class_name(k)}, where the model says {model:.2g} of rows that it has "
                f"not seen, a share of {share:.2g} is seen. "
                f"Try: {advice.narrower if line < _TOO_SURE else advice.curves}."
            )
    if some.loss.ordered:
        sentences.append(columns.unequal_shifts(np.cumsum(mean, axis=1)[:, :-1]))
    return [*sentences, columns.clearest(residuals)]


def _of_class(mean: Array, fitted: Array, seen: npt.NDArray[np.bool_], weights: Array) -> tuple[_Pattern | None, float]:
    """Of one class beside all others, about a straight line on the scale of its log odds, as for two classes; and the
    slope of that line.
    """
    yes_no = bernoulli()
    eta = np.asarray(np.log(np.maximum(mean, 1e-300)) - np.log(np.maximum(1 - mean, 1e-16)), np.float64)
    ones, none = DenseRows(np.ones((len(eta), 1))), np.zeros(1)
    form = RowsForm(ones, yes_no.labels(seen, len(eta)), yes_no, none, none, weights=weights)
    t, line = _straightened(form, np.zeros(len(eta)), eta)
    away = seen - yes_no.mean(t)
    return _bent(eta, fitted, away / np.sqrt(np.mean(away**2)), weights), line


@dataclass(frozen=True, eq=False)
class _Columns:
    """The columns of some rows, along which residuals may have a pattern."""

    some: RowsForm
    weights: Array
    names: tuple[str, ...]
    first: int
    end: int
    advice: Advice
    classes: tuple[str, ...] = ()

    def clearest(self, residuals: list[Array]) -> str:
        """The column along which some of the residuals have the clearest pattern; "" where none is clear."""
        bending = self._bending()
        looked_at = self._most_promising(bending, residuals)
        patterns = [
            (j, pattern)
            for j, values in self._blocks(looked_at)
            for pattern in _patterns(values, residuals, self.weights)
        ]
        if not patterns:
            return ""
        j, worst = min(patterns, key=lambda pair: pair[1].p)
        if worst.p * len(bending) * len(residuals) >= _CHANCE or worst.largest < _MATTERS:
            return ""
        name = self._name(j)
        return (
            f"Pattern: along {name} residuals go {worst.course}: its effect is not the straight line of the model. "
            f"Try: {self.advice.of_column(name)}."
        )

    def _bending(self) -> Indices:
        """The columns along which a pattern can be seen: with three values at least, and not almost all in one of
        them, as entries that are not stored are.
        """
        least = float(self.weights.sum()) / (2 * _GROUPS)
        filled = self._rows.stored_weights(self.weights)[self._own] >= least
        columns = self.first + np.flatnonzero(filled)
        return np.array([j for j, values in self._blocks(columns) if _has_three_values(values)], int)

    def _most_promising(self, columns: Indices, residuals: list[Array]) -> Indices:
        """As many of them as there is time for: those whose squares correlate most with residuals of a few rows."""
        most = max(1, _VALUES // (self.some.rows.n * len(residuals)))
        if len(columns) <= most:
            return columns
        rows = even_rows(self.some.rows.n, _SCREENED, 0)
        some = replace(self, some=self.some.choose(rows), weights=self.weights[rows])
        bends = [_bend(values, [r[rows] for r in residuals], some.weights) for _, values in some._blocks(columns)]
        return np.sort(columns[np.argsort(-np.array(bends), kind="stable")[:most]])

    def unequal_shifts(self, at_most: Array) -> str:
        """The column that shifts one of the thresholds otherwise than all of them; at_most: P(Y ≤ k) of rows and k."""
        w, y, rows = self.weights, self.some.y, self._rows
        away = (y[:, None] <= np.arange(at_most.shape[1])) - at_most
        spread = at_most * (1 - at_most)

        def centred(values: Array) -> Array:
            """Σ wv(x − m)² of each column."""
            second, first = rows.gram_diagonal(w * values)[self._own], rows.combine((w * values)[None])[0, self._own]
            return np.asarray(np.maximum(second - 2 * mean * first + mean**2 * (w @ values), 0.0))

        mean = rows.combine(w[None])[0, self._own] / w.sum()
        moved = rows.combine((w[:, None] * away).T)[:, self._own].T - np.outer(mean, w @ away)
        variance = np.stack([centred(values) for values in spread.T], axis=1)
        sizes = np.outer(np.sqrt(centred(np.ones(len(w)))), np.sqrt(w @ spread))
        z, correlation = (np.abs(moved) / np.maximum(scale, 1e-300) for scale in (np.sqrt(variance), sizes))
        if not z.size or z.max() < _deviations(_CHANCE / z.size):
            return ""
        j, k = (int(place) for place in np.unravel_index(np.argmax(z), z.shape))
        if correlation[j, k] < _MATTERS:
            return ""
        column = self.first + j
        upper = rows.column_values(np.array([column]))[:, 0] > mean[j]
        seen, model = (float(np.average(v[upper], weights=w[upper])) for v in (y <= k, at_most[:, k]))
        return (
            f"Thresholds: {self._name(column)} does not shift all of them alike, as the model has it (with the logit, "
            f"proportional odds): where it is above its mean a share of {seen:.2g} is of class "
            f"{self.class_name(k)} or lower, and the model says {model:.2g}. "
            f"Try: family='categorical', or one 'bernoulli' for each threshold."
        )

    @property
    def _rows(self) -> Rows:
        return self.some.rows.design_matrix

    @property
    def _own(self) -> slice:
        """Of coefficients of their own: without the intercept and the columns of groups, which may be many."""
        return slice(self.first, self.end)

    def _blocks(self, columns: Indices) -> Iterator[tuple[int, Array]]:
        """Each of these columns by its number, and its values."""
        for begin in range(0, len(columns), _BLOCK):
            some = columns[begin : begin + _BLOCK]
            yield from zip(some.tolist(), self._rows.column_values(some).T, strict=True)

    def class_name(self, k: int) -> str:
        """A class as the table has it, or its number."""
        return repr(self.classes[k]) if self.classes else str(k)

    def _name(self, j: int) -> str:
        return self.names[j].rpartition(": ")[2]


def _has_three_values(column: Array) -> bool:
    """A column of two has no curve."""
    return bool(((column != column.min()) & (column != column.max())).any())


def _bend(x: Array, residuals: list[Array], weights: Array) -> float:
    """The largest correlation of the square of a column with residuals."""
    z = x - np.average(x, weights=weights)
    square = z**2 - np.average(z**2, weights=weights)
    square -= z * float(weights @ (square * z)) / max(float(weights @ z**2), 1e-300)  # what a slope takes up
    size = float(weights @ square**2)
    return max(abs(float((weights * r) @ square)) for r in residuals) / np.sqrt(size) if size > 0 else 0.0


@dataclass(frozen=True, eq=False)
class _Pattern:
    """Rows of each group, S_g, their mean residuals, and how probable so large a Σ S_g² is."""

    rows: list[Indices]
    scores: Array
    means: Array
    p: float

    @property
    def largest(self) -> float:
        """The largest |mean residual| of a group, in standard deviations."""
        return float(np.abs(self.means).max())

    @property
    def worst(self) -> Indices:
        """The rows of the group that is furthest off."""
        return self.rows[int(np.argmax(np.abs(self.scores)))]

    @property
    def course(self) -> str:
        """From group to group, in standard deviations."""
        shown = self.means[np.unique(np.linspace(0, len(self.means) - 1, 5).round().astype(int))]
        return ", ".join(f"{mean:+.2f}" for mean in shown) + " (in standard deviations)"


def _pattern(x: Array, residual: Array, weights: Array) -> _Pattern | None:
    """In groups by x; None where there are not two."""
    return next(_patterns(x, [residual], weights), None)


def _patterns(x: Array, residuals: list[Array], weights: Array) -> Iterator[_Pattern]:
    """Of each of some residuals, in groups by x; none where there are not two."""
    count = _group_count(weights)
    if count < 2:
        return
    order, group = equal_groups(x, weights, count)
    for residual in residuals:
        if (pattern := _scored(order, group, residual, weights)) is not None:
            yield pattern


def _bent(eta: Array, fitted: Array, residual: Array, weights: Array) -> _Pattern | None:
    """In groups by η of each row given the others, about a line that was fitted.

    Of rows whose columns are the same, and so are the `fitted` predictors given all rows, those with a large y have a
    small η: a border between two groups among them would sort them by y. So it is moved to the widest gap around, and
    rows that fill half a group have their mean η.
    """
    count = _group_count(weights)
    if count <= _STRAIGHT:
        return None
    _, alike = np.unique(np.round(fitted.reshape(len(eta), -1), 9), axis=0, return_inverse=True)
    sizes = np.bincount(alike, weights)
    means = np.bincount(alike, weights * eta) / sizes
    eta = np.where(sizes[alike] > weights.sum() / (2 * count), means[alike], eta)
    order = np.argsort(eta, kind="stable")
    gaps, half = np.diff(eta[order], prepend=-np.inf), float(weights.sum()) / (4 * count)
    upto = np.cumsum(weights[order])
    begins = [0]
    for k in range(1, count):
        middle = 4 * k * half
        low, high = np.searchsorted(upto, [middle - half, middle + half])
        begins.append(int(low) + int(np.argmax(gaps[low : high + 1])))
    group = np.searchsorted(np.unique(begins), np.arange(len(eta)), "right") - 1
    first = np.searchsorted(eta[order], eta[order], "left")  # equal ones stay together
    return _scored(order, group[first], residual, weights, _STRAIGHT)


def _group_count(weights: Array) -> int:
    return int(min(_GROUPS, float(weights.sum()) // _IN_GROUP))


def _scored(order: Indices, group: Indices, residual: Array, weights: Array, fitted: int = 0) -> _Pattern | None:
    """Of the groups of rows in an order; fitted: coefficients along it that were fitted to these rows."""
    from scipy.special import chdtrc

    ends = np.flatnonzero(np.diff(group)) + 1
    count = len(ends) + 1
    if count < max(2, fitted + 1):
        return None
    begins, r, w = np.append(0, ends), residual[order], weights[order]
    sums, sizes, squares = (np.add.reduceat(values, begins) for values in (w * r, w, w * r * r))
    variance = np.maximum(squares, sizes * squares.sum() / float(weights.sum()))
    scores = sums / np.sqrt(np.maximum(variance, 1e-300))
    rows = np.split(order, ends)
    return _Pattern(rows, scores, sums / sizes, float(chdtrc(count - fitted, (scores**2).sum())))


def equal_groups(x: Array, weights: Array, count: int) -> tuple[Indices, Indices]:
    """The order of x, and the group of each in that order: groups of about equal weight, in which equal x stay
    together.
    """
    order = np.argsort(x, kind="stable")
    x, w = x[order], weights[order]
    group = np.minimum((np.cumsum(w) - w / 2) / float(w.sum()) * count, count - 1).astype(int)
    return order, group[np.searchsorted(x, x, "left")]


def _deviations(chance: float) -> float:
    """z beyond which a standard normal number lies, on both sides together, with this chance."""
    from scipy.special import ndtri

    return float(-ndtri(chance / 2))


@dataclass(frozen=True, eq=False)
class Check:
    """Means μ of some rows (for classes with one more axis), what was seen there on the same scale, how much each row
    counts, and new y of the model (draws, rows). outcome: events, counts, classes or numbers. censored: which of what
    was seen are right-censored times; None where none can be. bounds: (lower, upper, lb, ub) of what was seen, where
    labels have them.
    """

    outcome: str
    fitted: Array
    seen: Array
    weights: Array
    new: Array
    said: str
    censored: npt.NDArray[np.bool_] | None = None
    bounds: Array | None = None


def check(posterior: PosteriorData, seed: int = 0) -> Check | None:
    """None where the rows that were fitted are not at hand, as with a posterior from a file."""
    form = posterior.form
    if form is None or form.removed is not None:
        return None
    target = cast(GeneralisedLinear, cast(FiniteSum, posterior._target).shown())  # whose rows these are
    n, order = form.rows.n, np.random.default_rng(seed).permutation(form.rows.n)
    held = np.sort(order[: min(n // _SHARE, _MOST_HELD)])
    grouped = posterior.group_effects is not None  # whose effects have no prior without their scales
    if n >= _FEWEST_HELD_OUT and form.heavy is None and not grouped:
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
    why = "" if grouped else ", as there are too few to leave some out"
    said = f"Compared with {len(some):,} of the rows that were fitted{why}: a fit looks better there than at new rows."
    return _compared(target, some, posterior.inner(100), said, seed)


def _compared(target: GeneralisedLinear, rows: Indices, x: Array, said: str, seed: int) -> Check:
    form, loss = target.share(rows, target.prior_precision).form(), target.loss
    trials = loss.trials_of(form.y, form.weights)
    means, new = [], []
    for block in Predictions(form, x, seed, trials).blocks():
        means.append(block.mean.mean(axis=0))
        new.append(block.new)
    fitted, weights = np.concatenate(means), np.ones(form.rows.n) if form.weights is None else form.weights
    if trials is not None:
        fitted = fitted / np.maximum(trials, 1.0)
    seen = _shares(loss, form.y, trials)
    if loss.outcome == "classes":
        seen = np.asarray(seen[:, None] == np.arange(fitted.shape[1]), np.float64)
    return Check(
        loss.outcome,
        fitted,
        seen,
        weights,
        np.concatenate(new, axis=1),
        said,
        loss.censored(form.y),
        loss.bounds(form.y),
    )
