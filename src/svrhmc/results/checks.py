"""How a model fails to fit the rows it was fitted to, in sentences, with what to try instead.

Let F be the law of a row's y given the other rows, which `left_out` finds from the posterior given all of them, with
the uncertainty of the row's predictor. (Residuals at the posterior mean given all rows would depend on the prior: a
narrow prior shrinks fitted values, so that residuals increase along them; under a wide one each row pulls its own
fitted value towards itself.) With a = P(Y < y), b = P(Y ≤ y) and z = Φ⁻¹, the quantile residual of y is r = z(u), u
uniform on (a, b): a standard normal number if the model is right, whatever the family (Dunn & Smyth, Journal of
Computational and Graphical Statistics 5, 1996). No random u is needed, only means over u,

    r̄ = E r = (φ(z(a)) − φ(z(b)))/(b − a),       q = E r² = 1 + (z(a)φ(z(a)) − z(b)φ(z(b)))/(b − a),

which are r and r² where y is continuous. Under the model E r̄ = 0 and E q = 1. A row of weight w stands for w rows.

    calibration  with η the predictor of the mean of y given the other rows: rows in G ≤ 10 groups by η, residuals as
                 below about the law at a + bη, with the a and b that fit best, and χ² with G − 2 degrees of freedom
                 (Hosmer & Lemeshow, Communications in Statistics A 9, 1980). b is 1 if the prior is right too, below 1
                 where it is too wide (Copas, JRSS B 45, 1983) and above where it is too narrow: neither bends the line
    pattern      rows in G ≤ 10 groups by a column: S_g = Σ wr̄/√V_g, and Σ S_g² is compared with χ²
                 with G degrees of freedom. V_g is Σ wr̄² in the group, or Σ w in it times the mean of r̄² over all
                 rows, if that is larger: so the variance of no group is underestimated where events are rare. Where
                 dispersion is too large (y − μ)/√μ replaces r̄. All columns of three values or more are examined, up to
                 10⁷ numbers (50,000 rows × 200 columns); beyond that only those whose squares correlate most with the
                 residuals of 5,000 rows, while p is still corrected for all columns
    dispersion   Σ w(q − 1)/√Σ w(q − 1)², where y is a count and the family has no free dispersion
    zeros        Σ w(1{y = 0} − p₀)/√Σ wp₀(1 − p₀) with p₀ = P(Y = 0)
    outlier      W = Σ w times the least of 2 min(P(Y ≤ y), P(Y ≥ y)); for events by the law at a + bη, unless b < ½
    tails        the number of |r| > 3, compared with a Poisson law of mean 0.0027 W
    thresholds   of ordered classes, for each threshold k and column x, centred: with p = P(Y ≤ k),
                 Σ w(1{y ≤ k} − p)x/√Σ wp(1 − p)x². The fit of one coefficient for all k balances them; one is far from
                 0 where x shifts some thresholds more than others

Each check reports a misfit in at most one of a thousand fits of a right model, so all together in less than one of a
hundred. A misfit too small to matter is not reported, however many rows show it. At most 50,000 rows are checked,
spread evenly.

For the report (`compare_with_rows`) the model is fitted once more, to four fifths of the rows (its mode alone, which
takes a few passes), and its means μ are compared with the y of the others. Where there are too few rows for that, the
fitted rows themselves are compared, and the report says so: the fit then looks better than it is.
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
from svrhmc.results.left_out import LeftOut, leave_out_rows
from svrhmc.results.predict import Predictions
from svrhmc.rows.base import DenseRows, Rows
from svrhmc.rows.forms import RowsForm

MISFITS_LOOKED_FOR = "zeros, dispersion, calibration, outliers, patterns of residuals"
_ERROR_RATE = 1e-3  # of each check, for a model that is right
_MOST_ROWS, _FEWEST_OBSERVATIONS = 50_000, 30  # rows that are checked, and observations below which nothing is checked
_MOST_GROUPS, _FEWEST_IN_GROUP = 10, 30  # most groups of a pattern, and fewest observations in each
_MOST_VALUES = 10_000_000  # rows times columns that are sorted to look for patterns: about two seconds
_SCREENING_ROWS = 5000  # rows by which columns are chosen where there are too many numbers
_BLOCK = 64  # columns that are read at a time
_SMALLEST_MEAN = 0.05  # standard deviations: the smallest mean residual of a group that is reported
_SMALLEST_SHARE = 0.1  # the smallest excess that is reported, as a share of a variance or of the number of zeros
# |r| beyond which a row is in the tails, and the probability of that
_TAIL, _TAIL_PROBABILITY = 3.0, 0.0026997960632601866
_FEWEST_WHOLE = 10  # expected numbers of rows from here on are written without decimals
_LEAST_ZERO_VARIANCE = 10.0  # of the number of zeros, for them to be checked
_FEWEST_HELD_OUT, _HELD_OUT_SHARE = 200, 5  # fewest rows for a second fit, which holds out one row in 5
# most rows that are compared, and most numbers in the rows of the second fit
_MOST_COMPARED, _MOST_NUMBERS = 20_000, 20_000_000
_NEW_Y = 20  # new y of each row in the comparison after a second fit
_MOST_PREDICTORS, _FEWEST_DRAWS = 1 << 22, 64  # most predictors times draws, and fewest draws
_LINE_COEFFICIENTS = 2  # coefficients of the line a + bη
_DECISIVE_LEVERAGE = 0.8  # above this leverage a row decides its own fit, and the others do not show whether it fits
_LEAST_SLOPE = 0.5  # below this b predictions are far too sure
_NEWTON_STEPS, _HALVINGS = 20, 12  # most steps to that line, and most halvings of a step


def find_misfits(
    form: RowsForm,
    mean: Array,
    names: tuple[str, ...],
    first: int,
    advice: Advice,
    effects: int = 0,
    classes: tuple[str, ...] = (),
    draws: Callable[[int], Array] | None = None,
) -> tuple[tuple[str, ...], int]:
    """Misfits in sentences, and how many rows were checked: 0 where the model cannot be checked (too few rows, weights
    that are not whole numbers, a family without a distribution function).

    mean: the posterior mean in the variables of the form. names: of its columns, of which those before `first` are
    intercepts. advice: the words for what to try. effects: how many columns, the last ones, belong to groups and
    smooths and have no names. classes: the names of the classes of y; (): they have numbers. draws: a function that
    gives at most so many draws of the posterior, in the variables of the form; None: the mean alone is used.
    """
    sample = form.choose(even_rows(form.rows.n, _MOST_ROWS, 0))
    weights = np.ones(sample.rows.n) if sample.weights is None or sample.loss.weights_are_trials else sample.weights
    if weights.sum() < _FEWEST_OBSERVATIONS or (weights != np.round(weights)).any():
        return (), 0
    with np.errstate(all="ignore"):
        numbers_per_draw = sample.rows.n * max(1, sum(sample.loss.predictor_shape))
        left_out = leave_out_rows(
            sample, mean, draws and draws(max(_FEWEST_DRAWS, _MOST_PREDICTORS // numbers_per_draw))
        )
        columns = _Columns(sample, weights, names, first, sample.rows.columns - effects, advice, classes)
        if sample.loss.outcome == "classes":
            sentences = _misfits_of_classes(sample, left_out, weights, columns, advice)
        else:
            residuals = _residuals(sample, left_out, weights)
            if residuals is None:
                return (), 0
            sentences = _misfits_of_law(sample, residuals, columns, advice)
    return tuple(map(advice.named, filter(None, sentences))), sample.rows.n


@dataclass(frozen=True, eq=False)
class _Residuals:
    """Residuals of each row given the others. left_out: the law of its predictors. weights: how many observations it
    stands for. below, at_most: a and b. mean, square: r̄ and q.
    """

    left_out: LeftOut
    weights: Array
    below: Array
    at_most: Array
    mean: Array
    square: Array

    @property
    def total(self) -> float:
        """The number of observations, with their weights."""
        return float(self.weights.sum())


def _residuals(sample: RowsForm, left_out: LeftOut, weights: Array) -> _Residuals | None:
    """The residuals of all rows; None where the family has no distribution function, or one of them is not finite."""
    trials = sample.loss.trials_of(sample.y, sample.weights)
    if sample.loss.cumulative(left_out.fitted[:1], sample.y[:1], None if trials is None else trials[:1]) is None:
        return None

    def ends_at(t: Array) -> Array:
        return np.stack(cast(tuple[Array, Array], sample.loss.cumulative(t, sample.y, trials)), axis=1)

    a, b = left_out.mean(ends_at).T
    a, b, mean, square = _moments_between(a, b)
    if not (np.isfinite(mean).all() and np.isfinite(square).all()):
        return None
    return _Residuals(left_out, weights, a, b, mean, square)


def _moments_between(below: Array, at_most: Array) -> tuple[Array, Array, Array, Array]:
    """a, b, r̄ and q, from P(Y < y) and P(Y ≤ y) with rounding errors."""
    from scipy.special import ndtri

    a, b = (np.clip(probability, 0.0, 1.0) for probability in (below, at_most))
    low, high = ndtri(a), ndtri(b)
    at_a, at_b = (np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) for z in (low, high))
    width = np.maximum(b - a, 1e-300)
    jumps = b > a
    r = np.where(jumps, (at_a - at_b) / width, ndtri(np.clip(b, 1e-300, 1 - 1e-16)))
    edges = np.where(np.isfinite(low), low, 0.0) * at_a - np.where(np.isfinite(high), high, 0.0) * at_b
    return a, b, r, np.where(jumps, 1 + edges / width, r**2)


def _misfits_of_law(sample: RowsForm, residuals: _Residuals, columns: _Columns, advice: Advice) -> list[str]:
    """Misfits of a family with a distribution function: zeros, dispersion, outliers, and patterns of residuals along
    fitted values and along columns.
    """
    loss, sentences, dispersion = sample.loss, [], ""
    if loss.outcome == "counts":
        sentences.append(_zeros(sample, residuals))
    trials = loss.trials_of(sample.y, sample.weights)
    if loss.outcome == "counts" or (trials is not None and bool((trials > 1).any())):
        dispersion = _dispersion(sample, residuals)
        sentences.append(dispersion)
    mean = residuals.left_out.mean(loss.mean)
    about_mean = _pearson_residuals(sample, mean, residuals, trials) if dispersion else residuals.mean
    pattern, line, straight = _residuals_along_predictor(sample, mean, residuals, trials, bool(dispersion))
    too_sure = loss.outcome == "events" and line < _LEAST_SLOPE
    outlier_residuals = straight if loss.outcome == "events" and not too_sure else residuals
    sentences.append(_outliers(sample, outlier_residuals, advice.narrower if too_sure else loss.far_off))
    if pattern is not None and pattern.p < _ERROR_RATE and pattern.largest_mean > _SMALLEST_MEAN:
        if loss.outcome == "events":
            sentences.append(_calibration(sample, mean, residuals, pattern, advice, too_sure))
        else:
            sentences.append(
                f"Pattern: along the fitted values residuals go {pattern.course_in_words}: the mean of y has another "
                f"form. Try: {advice.curves}."
            )
    return [*sentences, columns.clearest_pattern([about_mean])]


def _pearson_residuals(sample: RowsForm, mean: Array, residuals: _Residuals, trials: Array | None) -> Array:
    """(y − μ)/√μ, scaled to the mean square 1: its mean is 0 wherever μ is right, whatever the variance of y. (Where
    the variance of the law is too small E r̄ is not 0, and depends on μ.)
    """
    difference = (_observed_means(sample.loss, sample.y, trials) - mean) / np.sqrt(np.maximum(mean, 1e-300))
    return np.asarray(difference / np.sqrt(np.average(difference**2, weights=residuals.weights)), np.float64)


def _residuals_along_predictor(
    sample: RowsForm, mean: Array, residuals: _Residuals, trials: Array | None, too_narrow: bool
) -> tuple[_Pattern | None, float, _Residuals]:
    """Residuals about the law at a + bη, η being the predictor of the mean given the other rows: their pattern along η,
    b, and the residuals. too_narrow: whether the law has too small a variance, so that Pearson residuals are used.
    """
    loss = sample.loss
    eta = _link_of_mean(loss, mean)
    eta = residuals.left_out.mean(loss.predictor) if eta is None else eta
    t, line = _recalibrated(sample, residuals.left_out.fitted, eta)
    law = loss.cumulative(t, sample.y, trials)
    assert law is not None  # as there are residuals
    straight = _Residuals(residuals.left_out, residuals.weights, *_moments_between(*law))
    residual = _pearson_residuals(sample, loss.mean(t), residuals, trials) if too_narrow else straight.mean
    return _pattern_along_predictor(eta, residuals.left_out.fitted, residual, residuals.weights), line, straight


def _link_of_mean(loss: Loss, mean: Array) -> Array | None:
    """The predictor whose mean is this; None for an unknown link, or a mean at an end of its range."""
    from scipy.special import logit

    links: dict[str, Callable[[Array], Array]] = {"identity": np.asarray, "logistic": logit, "exp": np.log}
    if loss.inverse_link not in links:
        return None
    t = np.asarray(links[loss.inverse_link](mean), np.float64)
    return t if np.isfinite(t).all() else None


def _recalibrated(sample: RowsForm, t: Array, eta: Array) -> tuple[Array, float]:
    """The predictors a + bη that fit the rows best, by Newton's method from a = 0 and b = 1, and b. Predictors of other
    parameters stay as in t.
    """
    loss = sample.loss
    X = np.column_stack([np.ones(len(eta)), eta])

    def predictors_on(line: Array) -> Array:
        predictors = t.copy()
        loss.predictor(predictors)[...] = X @ line
        return predictors

    line, predictors = np.array([0.0, 1.0]), predictors_on(np.array([0.0, 1.0]))
    value = sample.values(predictors).sum()
    for _ in range(_NEWTON_STEPS):
        slope, curvature = sample.slopes(predictors), sample.curvatures(predictors)
        slope, curvature = (slope[..., 0], curvature[..., 0, 0]) if loss.predictor_shape else (slope, curvature)
        hessian = (X * np.maximum(curvature, 0.0)[:, None]).T @ X
        if not np.isfinite(hessian).all():
            break
        step = np.linalg.lstsq(hessian, X.T @ slope, rcond=None)[0]
        shorter_steps = [line - step / 2**k for k in range(_HALVINGS)]
        improved = next(
            ((x, v) for x in shorter_steps if (v := sample.values(predictors_on(x)).sum()) < value - 1e-9 * abs(value)),
            None,
        )
        if improved is None:
            break
        (line, value), predictors = improved, predictors_on(improved[0])
    return predictors, float(line[1])


def _zeros(sample: RowsForm, residuals: _Residuals) -> str:
    loss, zero, w = sample.loss, np.zeros(sample.rows.n), residuals.weights
    p = residuals.left_out.mean(lambda t: np.exp(-loss.value(t, zero) - loss.constant(zero)))
    count, expected, variance = float(w @ (sample.y == 0)), float(w @ p), float(w @ (p * (1 - p)))
    if variance < _LEAST_ZERO_VARIANCE or abs(count - expected) < _normal_quantile(_ERROR_RATE) * np.sqrt(variance):
        return ""
    if abs(count - expected) < _SMALLEST_SHARE * min(expected, residuals.total - expected):
        return ""
    remedy = f"{loss.overdispersed}; " if count > expected and loss.overdispersed else ""
    zero_family = f"{loss.other_zeros}, which has a probability of its own for zeros"
    observed = f"{count:,.0f} of {residuals.total:,.0f} are 0, where the model expects {expected:,.0f}"
    return f"Zeros: {observed}. Try: {remedy}{zero_family}."


def _dispersion(sample: RowsForm, residuals: _Residuals) -> str:
    w, excess = residuals.weights, residuals.square - 1
    z = float(w @ excess) / max(float(np.sqrt(w @ excess**2)), 1e-300)
    ratio = float(w @ residuals.square) / residuals.total
    if z < _normal_quantile(2 * _ERROR_RATE) or ratio < 1 + _SMALLEST_SHARE:
        return ""
    remedy = sample.loss.overdispersed
    return f"Dispersion: y varies {ratio:.2g} times as much as the model says." + (f" Try: {remedy}." if remedy else "")


def _outliers(sample: RowsForm, residuals: _Residuals, remedy: str) -> str:
    """A single row that is far off, and tails that are too heavy; rows that decide their own fit are left out."""
    from scipy.special import pdtr

    w, total = residuals.weights, residuals.total
    is_known = residuals.left_out.leverage < _DECISIVE_LEVERAGE
    chance = np.where(is_known, 2 * np.minimum(residuals.at_most, 1 - residuals.below), 1.0)
    least = int(np.argmin(chance))
    outlier = float(chance[least]) * total < _ERROR_RATE
    beyond = float(w @ (is_known & (np.abs(residuals.mean) > _TAIL))) if sample.loss.outcome == "numbers" else 0.0
    tails = beyond > 0 and 1 - pdtr(beyond - 1, _TAIL_PROBABILITY * total) < _ERROR_RATE
    if not (outlier or tails):
        return ""
    r = abs(float(residuals.mean[least]))
    which_row = f"row {least:,}" if sample.rows.n < _MOST_ROWS else "one"
    distance = f"{which_row} is {'more than 8' if r > 8 else f'{r:.2g}'} standard deviations from what the model says"
    if tails:
        expected = (
            f"{_TAIL_PROBABILITY * total:,.0f}"
            if _TAIL_PROBABILITY * total >= _FEWEST_WHOLE
            else f"{_TAIL_PROBABILITY * total:.2g}"
        )
        distance = f"{beyond:,.0f} rows are beyond 3 standard deviations, where {expected} are expected; {distance}"
    return f"Outliers: {distance}. Look at it" + (f"; or try: {remedy}." if remedy else ".")


def _calibration(
    sample: RowsForm, mean: Array, residuals: _Residuals, pattern: _Pattern, advice: Advice, too_sure: bool
) -> str:
    """The group of rows where the observed share is furthest from the probability, in a sentence."""
    remedy = advice.narrower if too_sure else f"{advice.curves}, or {advice.link}"
    rows = pattern.worst_rows
    trials = sample.loss.trials_of(sample.y, sample.weights)
    w = residuals.weights[rows] if trials is None else trials[rows]
    model = float(np.average(mean[rows], weights=w))
    share = float(np.average(_observed_means(sample.loss, sample.y, trials)[rows], weights=w))
    return (
        f"Calibration: where the model says {model:.2g} of rows that it has not seen, a share of {share:.2g} is seen. "
        f"Try: {remedy}."
    )


def _observed_means(loss: Loss, y: Array, trials: Array | None) -> Array:
    """Observed y on the scale of the mean: with trials, the share of successes."""
    seen = loss.original_labels(y, trials)
    return seen if trials is None else np.asarray(seen / np.maximum(trials, 1.0), np.float64)


def _misfits_of_classes(
    sample: RowsForm, left_out: LeftOut, weights: Array, columns: _Columns, advice: Advice
) -> list[str]:
    """Misfits of a family with classes: the class whose probabilities are furthest from what was observed, thresholds
    that shift unequally, and patterns of residuals along columns.
    """
    mean = left_out.mean(sample.loss.mean)
    differences = [(sample.y == k) - mean[:, k] for k in range(mean.shape[1])]
    residuals = [difference / np.sqrt(np.mean(difference**2)) for difference in differences]
    calibrations = [
        (k, *_calibration_of_class(mean[:, k], left_out.fitted, sample.y == k, weights))
        for k in range(len(differences))
    ]
    patterns = [(k, pattern, line) for k, pattern, line in calibrations if pattern is not None]
    sentences = []
    if patterns:
        k, pattern, line = min(patterns, key=lambda item: item[1].p)
        if pattern.p * len(patterns) < _ERROR_RATE and pattern.largest_mean > _SMALLEST_MEAN:
            rows = pattern.worst_rows
            model, share = (float(np.average(v[rows], weights=weights[rows])) for v in (mean[:, k], sample.y == k))
            sentences.append(
                f"Calibration: of class {columns.class_name(k)}, where the model says {model:.2g} of rows that it has "
                f"not seen, a share of {share:.2g} is seen. "
                f"Try: {advice.narrower if line < _LEAST_SLOPE else advice.curves}."
            )
    if sample.loss.ordered:
        sentences.append(columns.unequal_threshold_shifts(np.cumsum(mean, axis=1)[:, :-1]))
    return [*sentences, columns.clearest_pattern(residuals)]


def _calibration_of_class(
    mean: Array, fitted: Array, seen: npt.NDArray[np.bool_], weights: Array
) -> tuple[_Pattern | None, float]:
    """The pattern of the residuals of one class against all others along its log odds, about the line that fits best as
    for two classes; and the slope of that line.
    """
    yes_no = bernoulli()
    eta = np.asarray(np.log(np.maximum(mean, 1e-300)) - np.log(np.maximum(1 - mean, 1e-16)), np.float64)
    ones, no_prior = DenseRows(np.ones((len(eta), 1))), np.zeros(1)
    form = RowsForm(ones, yes_no.labels(seen, len(eta)), yes_no, no_prior, no_prior, weights=weights)
    t, line = _recalibrated(form, np.zeros(len(eta)), eta)
    difference = seen - yes_no.mean(t)
    return _pattern_along_predictor(eta, fitted, difference / np.sqrt(np.mean(difference**2)), weights), line


@dataclass(frozen=True, eq=False)
class _Columns:
    """The columns of some rows, along which residuals may have a pattern: those from `first` up to `end`."""

    sample: RowsForm
    weights: Array
    names: tuple[str, ...]
    first: int
    end: int
    advice: Advice
    classes: tuple[str, ...] = ()

    def clearest_pattern(self, residuals: list[Array]) -> str:
        """A sentence on the column along which residuals have the clearest pattern; "" where none is clear."""
        curved_columns = self._curved_columns()
        candidates = self._screen_columns(curved_columns, residuals)
        patterns = [
            (j, pattern)
            for j, values in self._values_of(candidates)
            for pattern in _find_patterns(values, residuals, self.weights)
        ]
        if not patterns:
            return ""
        j, clearest = min(patterns, key=lambda pair: pair[1].p)
        if clearest.p * len(curved_columns) * len(residuals) >= _ERROR_RATE or clearest.largest_mean < _SMALLEST_MEAN:
            return ""
        name = self._name(j)
        return (
            f"Pattern: along {name} residuals go {clearest.course_in_words}: its effect is not the straight line of "
            f"the model. Try: {self.advice.of_column(name)}."
        )

    def _curved_columns(self) -> Indices:
        """The columns along which a pattern can be seen: those with at least three values, and without a single value
        in almost all rows (as in sparse columns).
        """
        least = float(self.weights.sum()) / (2 * _MOST_GROUPS)
        filled = self._rows.stored_weights(self.weights)[self._coefficient_columns] >= least
        columns = self.first + np.flatnonzero(filled)
        return np.array([j for j, values in self._values_of(columns) if _has_three_values(values)], int)

    def _screen_columns(self, columns: Indices, residuals: list[Array]) -> Indices:
        """As many of the columns as there is time for: those whose squares correlate most with residuals of some
        rows.
        """
        most = max(1, _MOST_VALUES // (self.sample.rows.n * len(residuals)))
        if len(columns) <= most:
            return columns
        rows = even_rows(self.sample.rows.n, _SCREENING_ROWS, 0)
        screening = replace(self, sample=self.sample.choose(rows), weights=self.weights[rows])
        bends = [
            _square_correlation(values, [r[rows] for r in residuals], screening.weights)
            for _, values in screening._values_of(columns)
        ]
        return np.sort(columns[np.argsort(-np.array(bends), kind="stable")[:most]])

    def unequal_threshold_shifts(self, at_most: Array) -> str:
        """A sentence on the column that shifts one threshold most differently from the others, or "". at_most:
        P(Y ≤ k), (rows, k).
        """
        w, y, rows = self.weights, self.sample.y, self._rows
        difference = (y[:, None] <= np.arange(at_most.shape[1])) - at_most
        spread = at_most * (1 - at_most)

        def centred(values: Array) -> Array:
            """Σ wv(x − m)² for each column x with mean m, v being `values`."""
            second, first = (
                rows.gram_diagonal(w * values)[self._coefficient_columns],
                rows.combine((w * values)[None])[0, self._coefficient_columns],
            )
            return np.asarray(np.maximum(second - 2 * mean * first + mean**2 * (w @ values), 0.0))

        mean = rows.combine(w[None])[0, self._coefficient_columns] / w.sum()
        shift = rows.combine((w[:, None] * difference).T)[:, self._coefficient_columns].T - np.outer(
            mean, w @ difference
        )
        variance = np.stack([centred(values) for values in spread.T], axis=1)
        sizes = np.outer(np.sqrt(centred(np.ones(len(w)))), np.sqrt(w @ spread))
        z, correlation = (np.abs(shift) / np.maximum(scale, 1e-300) for scale in (np.sqrt(variance), sizes))
        if not z.size or z.max() < _normal_quantile(_ERROR_RATE / z.size):
            return ""
        j, k = (int(place) for place in np.unravel_index(np.argmax(z), z.shape))
        if correlation[j, k] < _SMALLEST_MEAN:
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
        return self.sample.rows.design_matrix

    @property
    def _coefficient_columns(self) -> slice:
        """Columns of named coefficients: without the intercept and without the columns of groups."""
        return slice(self.first, self.end)

    def _values_of(self, columns: Indices) -> Iterator[tuple[int, Array]]:
        """The number and the values of each of these columns."""
        for begin in range(0, len(columns), _BLOCK):
            numbers = columns[begin : begin + _BLOCK]
            yield from zip(numbers.tolist(), self._rows.column_values(numbers).T, strict=True)

    def class_name(self, k: int) -> str:
        """The name of a class in quotes, or its number."""
        return repr(self.classes[k]) if self.classes else str(k)

    def _name(self, j: int) -> str:
        return self.names[j].rpartition(": ")[2]


def _has_three_values(column: Array) -> bool:
    """Whether a column has three values at least: along two there is no curve."""
    return bool(((column != column.min()) & (column != column.max())).any())


def _square_correlation(x: Array, residuals: list[Array], weights: Array) -> float:
    """The largest correlation of residuals with the square of a column, from which the linear part is removed."""
    z = x - np.average(x, weights=weights)
    square = z**2 - np.average(z**2, weights=weights)
    square -= z * float(weights @ (square * z)) / max(float(weights @ z**2), 1e-300)  # the linear part
    size = float(weights @ square**2)
    return max(abs(float((weights * r) @ square)) for r in residuals) / np.sqrt(size) if size > 0 else 0.0


@dataclass(frozen=True, eq=False)
class _Pattern:
    """Groups of rows: the rows of each, the scores S_g, the mean residuals, and the p-value of Σ S_g²."""

    rows: list[Indices]
    scores: Array
    means: Array
    p: float

    @property
    def largest_mean(self) -> float:
        """The largest |mean residual| of a group, in standard deviations."""
        return float(np.abs(self.means).max())

    @property
    def worst_rows(self) -> Indices:
        """The rows of the group with the largest |S_g|."""
        return self.rows[int(np.argmax(np.abs(self.scores)))]

    @property
    def course_in_words(self) -> str:
        """The mean residuals of up to five groups from the first to the last, in words."""
        shown = self.means[np.unique(np.linspace(0, len(self.means) - 1, 5).round().astype(int))]
        return ", ".join(f"{mean:+.2f}" for mean in shown) + " (in standard deviations)"


def _find_pattern(x: Array, residual: Array, weights: Array) -> _Pattern | None:
    """The pattern of a residual in groups by x; None where there is only one group."""
    return next(_find_patterns(x, [residual], weights), None)


def _find_patterns(x: Array, residuals: list[Array], weights: Array) -> Iterator[_Pattern]:
    """The pattern of each of some residuals in groups by x; none where there is only one group."""
    count = _group_count(weights)
    if count < 2:
        return
    order, group = groups_of_equal_weight(x, weights, count)
    for residual in residuals:
        if (pattern := _score_groups(order, group, residual, weights)) is not None:
            yield pattern


def _pattern_along_predictor(eta: Array, fitted: Array, residual: Array, weights: Array) -> _Pattern | None:
    """The pattern in groups by η of each row given the others, about the line a + bη.

    Among rows with equal columns, and so with equal `fitted` predictors given all rows, those with a large y have a
    small η: a border between two groups among them would sort them by y. So each border is moved to the widest gap
    nearby, and equal rows that fill half a group get their mean η.
    """
    count = _group_count(weights)
    if count <= _LINE_COEFFICIENTS:
        return None
    _, identical = np.unique(np.round(fitted.reshape(len(eta), -1), 9), axis=0, return_inverse=True)
    weights_of_identical = np.bincount(identical, weights)
    mean_eta = np.bincount(identical, weights * eta) / weights_of_identical
    eta = np.where(weights_of_identical[identical] > weights.sum() / (2 * count), mean_eta[identical], eta)
    order = np.argsort(eta, kind="stable")
    gaps, half = np.diff(eta[order], prepend=-np.inf), float(weights.sum()) / (4 * count)
    cumulative_weight = np.cumsum(weights[order])
    begins = [0]
    for k in range(1, count):
        middle = 4 * k * half
        low, high = np.searchsorted(cumulative_weight, [middle - half, middle + half])
        begins.append(int(low) + int(np.argmax(gaps[low : high + 1])))
    group = np.searchsorted(np.unique(begins), np.arange(len(eta)), "right") - 1
    first = np.searchsorted(eta[order], eta[order], "left")  # equal ones stay together
    return _score_groups(order, group[first], residual, weights, _LINE_COEFFICIENTS)


def _group_count(weights: Array) -> int:
    return int(min(_MOST_GROUPS, float(weights.sum()) // _FEWEST_IN_GROUP))


def _score_groups(order: Indices, group: Indices, residual: Array, weights: Array, fitted: int = 0) -> _Pattern | None:
    """The pattern in groups of rows. order: of the rows. group: of each row in that order. fitted: how many
    coefficients along the groups were fitted to the same rows, which takes as many degrees of freedom.
    """
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


def groups_of_equal_weight(x: Array, weights: Array, count: int) -> tuple[Indices, Indices]:
    """The order of x, and the number of the group of each x in that order: groups of about equal weight, in which equal
    x stay together.
    """
    order = np.argsort(x, kind="stable")
    x, w = x[order], weights[order]
    group = np.minimum((np.cumsum(w) - w / 2) / float(w.sum()) * count, count - 1).astype(int)
    return order, group[np.searchsorted(x, x, "left")]


def _normal_quantile(chance: float) -> float:
    """z such that |Z| > z has the probability `chance` for a standard normal Z."""
    from scipy.special import ndtri

    return float(-ndtri(chance / 2))


@dataclass(frozen=True, eq=False)
class Check:
    """Fitted means and observations of some rows.

    outcome: "events", "counts", "classes" or "numbers". fitted: the means μ; for classes with one more axis. seen: the
    observed y on the same scale. weights: of the rows. new: new y of the model (draws, rows). said: which rows these
    are, in words. censored: which observations are right-censored times; None where none can be. bounds: (lower, upper,
    lb, ub) of each observation, where labels have them.
    """

    outcome: str
    fitted: Array
    seen: Array
    weights: Array
    new: Array
    said: str
    censored: npt.NDArray[np.bool_] | None = None
    bounds: Array | None = None


def compare_with_rows(posterior: PosteriorData, seed: int = 0) -> Check | None:
    """Fitted means beside the observations of some rows, held out where possible; None where the rows are not in
    memory, as with a posterior from a file.
    """
    form = posterior.form
    if form is None or form.removed is not None:
        return None
    target = cast(GeneralisedLinear, cast(FiniteSum, posterior._target).shown())  # whose rows these are
    n, order = form.rows.n, np.random.default_rng(seed).permutation(form.rows.n)
    held_out = np.sort(order[: min(n // _HELD_OUT_SHARE, _MOST_COMPARED)])
    has_groups = posterior.group_effects is not None  # whose effects have no prior without their scales
    if n >= _FEWEST_HELD_OUT and form.heavy is None and not has_groups:
        train = np.sort(order[n // _HELD_OUT_SHARE :][: max(1000, _MOST_NUMBERS // max(1, target.dim))])
        try:
            mode = target.share(train, target.prior_precision).minimum().first
        except (ValueError, RuntimeError):
            mode = None
        if mode is not None:
            said = (
                f"The model was fitted once more, to {len(train):,} of the rows (its point fit), and compared with "
                f"{len(held_out):,} others that it had not seen."
            )
            return _compare_rows(target, held_out, np.tile(mode, (_NEW_Y, 1)), said, seed)
    compared = np.sort(order[: min(n, _MOST_COMPARED)])
    why = "" if has_groups else ", as there are too few to leave some out"
    said = (
        f"Compared with {len(compared):,} of the rows that were fitted{why}: a fit looks better there than at new rows."
    )
    return _compare_rows(target, compared, posterior.inner(100), said, seed)


def _compare_rows(target: GeneralisedLinear, rows: Indices, x: Array, said: str, seed: int) -> Check:
    form, loss = target.share(rows, target.prior_precision).form(), target.loss
    trials = loss.trials_of(form.y, form.weights)
    means, new = [], []
    for block in Predictions(form, x, seed, trials).blocks():
        means.append(block.mean.mean(axis=0))
        new.append(block.new)
    fitted, weights = np.concatenate(means), np.ones(form.rows.n) if form.weights is None else form.weights
    if trials is not None:
        fitted = fitted / np.maximum(trials, 1.0)
    seen = _observed_means(loss, form.y, trials)
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
