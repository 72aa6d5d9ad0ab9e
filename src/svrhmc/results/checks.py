"""How a model fails to fit the rows it was fitted to, in sentences, with what to try instead.

Let θ be a draw of the posterior, with the effects of groups. If the model is right, prior included, θ has given y the
same law as the parameters that made y. So (θ, y) has the joint law of (θ, y′) with a new y′ of the model at θ, and a
statistic T(y, θ) that compares rows with their law at θ has the law of T(y′, θ), a sum over independent rows, whatever
the prior is and however much it shrinks (Gelman, Meng & Stern, Statistica Sinica 6, 1996): its p-value p(θ) is uniform.
Under a flat prior this holds for any fixed parameters too where y is Gaussian: y − Xθ is then N(0, σ²I). The p-values
of several draws depend on each other, but in any case P(e·(p₁⋯p_K)^{1/K} ≤ α) ≤ α (Vovk & Wang, Biometrika 107, 2020).
Further draws are looked at only where the first one gives a small p-value.

(Rows must not be sorted by what the other rows say of them. As leaving out a row with a large y makes its prediction
small, this sorts rows by their own y wherever predictions hardly differ.)

At θ let F be the law of a row's y. With a = P(Y < y), b = P(Y ≤ y) and z = Φ⁻¹, the quantile residual of y is r = z(u),
u uniform on (a, b): a standard normal number if the model is right, whatever the family (Dunn & Smyth, Journal of
Computational and Graphical Statistics 5, 1996). No random u is needed, only means over u,

    r̄ = E r = (φ(z(a)) − φ(z(b)))/(b − a),       q = E r² = 1 + (z(a)φ(z(a)) − z(b)φ(z(b)))/(b − a),

which are r and r² where y is continuous. Under the model E r̄ = 0 and E q = 1. A row of weight w stands for w rows.
Classes are checked as events: each class beside all others, or each threshold y ≤ k of ordered ones.

    calibration  with η the predictor of the mean of y at θ: rows in G ≤ 10 groups by η, S_g = Σ wr̄/√V_g, and Σ S_g² is
                 compared with χ². r̄ is about the law at the line a + bη that fits best, which takes 2 of the G degrees
                 of freedom (Hosmer & Lemeshow, Communications in Statistics A 9, 1980): a prior that is too wide or too
                 narrow changes b (Copas, JRSS B 45, 1983), which is no misfit of the form. V_g is Σ w(r̄ − r̄_g)²
                 with the mean r̄_g of the group, or Σ w in it times the mean of these squares over all groups, if that
                 is larger: so the variance of no group is underestimated where events are rare
    pattern      the same along a column x in place of η, and about η + a + bx: an effect that a prior holds back is no
                 curve. Where dispersion is too large (y − μ)/√μ replaces r̄. All columns of three values or more are
                 examined, up to 10⁷ numbers (50,000 rows × 200 columns); beyond that only those whose squares correlate
                 most with the residuals of 5,000 rows, while p is still corrected for all columns
    dispersion   Σ w(q − 1)/√Σ w(q − 1)², where y is a count and the family has no free dispersion
    zeros        Σ w(1{y = 0} − p₀)/√Σ wp₀(1 − p₀) with p₀ = P(Y = 0)
    thresholds   of ordered classes and a column x, centred: U_k = Σ w(1{y ≤ k} − P_k)x with P_k = P(Y ≤ k), which have
                 the covariances V_kl = Σ wP_k(1 − P_l)x², k ≤ l. A shift of all thresholds by the same δ changes U_k by
                 δV_kk. What is left of UᵀV⁻¹U about the best δ is compared with χ²: it is large where x shifts some
                 thresholds more than others

Two checks are about single rows, beside their law given the other rows (`left_out`), which is the law of y with what is
not known of the predictor:

    outlier      W = Σ w times the least of 2 min(P(Y ≤ y), P(Y ≥ y)); for events at a + bη as below
    tails        the number of |r| > 3, compared with a Poisson law of mean 0.0027 W

and one is about the prior: with η the predictor of an event given the other rows, probabilities are much too sure where
a + bη with some b in [0, ½] is better by 0.1 in the mean log likelihood of an observation. (b < 0 is not asked for, as
where predictions hardly differ rows are sorted by y.)

Each check reports a misfit in at most two of a thousand fits of a right model (an outlier in one), so all together in
less than one of a hundred. A misfit too small to matter is not reported, however many rows show it. At most 50,000 rows
are checked, spread evenly.

For the report (`compare_with_rows`) the model is fitted once more, to four fifths of the rows (its mode alone, which
takes a few passes), and its means μ are compared with the y of the others. Where there are too few rows for that, the
fitted rows themselves are compared, and the report says so: the fit then looks better than it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, cast

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
_ERROR_RATE, _ERROR_RATE_OF_ROWS = 2e-3, 1e-3  # of each check for a model that is right: at draws, and of single rows
_MOST_ROWS, _FEWEST_OBSERVATIONS = 50_000, 30  # rows that are checked, and observations below which nothing is checked
_MOST_GROUPS, _FEWEST_IN_GROUP = 10, 30  # most groups of a pattern, and fewest observations in each
_MOST_VALUES = 10_000_000  # rows times columns that are sorted to look for patterns: about two seconds
_SCREENING_ROWS = 5000  # rows by which columns are chosen where there are too many numbers
_BLOCK = 64  # columns that are read at a time
_SMALLEST_MEAN = 0.05  # standard deviations: the smallest mean residual of a group that is reported
_SMALLEST_SHARE = 0.1  # the smallest excess that is reported, as a share of a variance or of the number of zeros
_SMALLEST_LOG_ODDS = 0.1  # the smallest difference between a probability and a share that is reported
# |r| beyond which a row is in the tails, and the probability of that
_TAIL, _TAIL_PROBABILITY = 3.0, 0.0026997960632601866
_FEWEST_WHOLE = 10  # expected numbers of rows from here on are written without decimals
_LEAST_ZERO_VARIANCE = 10.0  # of the number of zeros, or of rows below a threshold, for them to be checked
_FEWEST_HELD_OUT, _HELD_OUT_SHARE = 200, 5  # fewest rows for a second fit, which holds out one row in 5
# most rows that are compared, and most numbers in the rows of the second fit
_MOST_COMPARED, _MOST_NUMBERS = 20_000, 20_000_000
_NEW_Y = 20  # new y of each row in the comparison after a second fit
_MOST_PREDICTORS, _FEWEST_DRAWS = (
    1 << 22,
    64,
)  # most predictors times draws, and fewest draws, for laws of left-out rows
_MOST_CHECKED_DRAWS, _FEWEST_CHECKED_DRAWS = 16, 4  # draws at which rows are compared with their laws
_SUSPICIOUS = 0.1  # a p-value of the first draw, times the number of tests, below which further draws are looked at
_MOST_CANDIDATES = 5  # columns for which further draws are looked at
_LINE_COEFFICIENTS = 2  # coefficients of a line
_DECISIVE_LEVERAGE = 0.8  # above this leverage a row decides its own fit, and the others do not show whether it fits
_LARGEST_SURE_SLOPE = 0.5  # up to this b predictions are far too sure
_LEAST_GAIN, _LEAST_TOTAL_GAIN = 0.1, 10.0  # of the log likelihood by that b: of one observation, and of all
_MANY_COEFFICIENTS = 0.02  # coefficients that the data decide for each observation: from here on they are many
_KNOWN_LEFT_OUT = 0.2  # and up to here the laws of rows given the others are well known, so that less is told
_LARGEST_TOLD_SLOPE, _LEAST_TOLD_GAIN = 0.67, 8.0  # by its b, and by what b gains: by chance in one of 15,000 data sets
_NEWTON_STEPS, _HALVINGS = 20, 12  # most steps to a line, and most halvings of a step


def find_misfits(
    form: RowsForm,
    mean: Array,
    names: tuple[str, ...],
    first: int,
    advice: Advice,
    effects: int = 0,
    classes: tuple[str, ...] = (),
    draws: Callable[[int], Array] | None = None,
    contradicted: bool = False,
    numbers: Indices | None = None,
) -> tuple[tuple[str, ...], int]:
    """Misfits in sentences, and how many rows were checked: 0 where the model cannot be checked (too few rows, weights
    that are not whole numbers, a family without a distribution function).

    mean: the posterior mean in the variables of the form. names: of its columns, of which those before `first` are
    intercepts. advice: the words for what to try. effects: how many columns, the last ones, belong to groups and
    smooths and have no names. classes: the names of the classes of y; (): they have numbers. draws: a function that
    gives at most so many draws of the posterior, in the variables of the form; None: the mean alone is used.
    contradicted: whether a prior or a noise is known to contradict the data, which is then what to change first.
    numbers: those that the rows have in the table that was fitted; None: they are counted among themselves.
    """
    chosen = even_rows(form.rows.n, _MOST_ROWS, 0)
    sample = form.choose(chosen)
    weights = np.ones(sample.rows.n) if sample.weights is None or sample.loss.weights_are_trials else sample.weights
    if weights.sum() < _FEWEST_OBSERVATIONS or (weights != np.round(weights)).any():
        return (), 0
    with np.errstate(all="ignore"):
        numbers_per_draw = sample.rows.n * max(1, sum(sample.loss.predictor_shape))
        some = draws and draws(max(_FEWEST_DRAWS, _MOST_PREDICTORS // numbers_per_draw))
        left_out = leave_out_rows(sample, mean, some)
        count = min(max(_MOST_PREDICTORS // numbers_per_draw, _FEWEST_CHECKED_DRAWS), _MOST_CHECKED_DRAWS)
        x = mean[None] if some is None else some[even_rows(len(some), count, 0)]
        predictors = sample.predictors(x)
        columns = _Columns(sample, weights, names, first, sample.rows.columns - effects, advice, classes)
        if sample.loss.outcome == "classes":
            misfits = _misfits_of_classes(sample, predictors, left_out, weights, columns, advice)
        else:
            outcome = _Outcome(sample, predictors, weights)
            if not np.isfinite(outcome.first_residual).all():
                return (), 0
            row_numbers = _RowNumbers(chosen, ", of the rows that were fitted")
            if numbers is not None and len(numbers) == form.rows.n:  # else rows of weight 0 are none of the form's
                row_numbers = _RowNumbers(numbers[chosen], "")
            misfits = _misfits_of_law(outcome, left_out, row_numbers, columns, advice)
    return tuple(advice.named(misfit.sentence(contradicted)) for misfit in misfits if misfit), sample.rows.n


class _RowNumbers(NamedTuple):
    """The number of each row that is checked, from 0 on. among: of which rows it is, in words; "": of the table's."""

    numbers: Indices
    among: str


@dataclass(frozen=True)
class _Misfit:
    """What was seen, as a sentence without its full stop, and what to try; "" where nothing is known to help."""

    seen: str
    remedy: str = ""

    def sentence(self, contradicted: bool) -> str:
        """Both together. contradicted: whether what contradicts the data is to be changed first."""
        if contradicted:
            return f"{self.seen}. The prior or the noise that contradicts the data may be why: change that first."
        return f"{self.seen}. Try: {self.remedy}." if self.remedy else f"{self.seen}."


@dataclass(frozen=True, eq=False)
class _Outcome:
    """An outcome of rows beside its law at some draws: the y of a family that has a distribution function, or the event
    that y is of some classes.

    form: the rows with that outcome. predictors: at each draw. weights: how many observations each row stands for.
    too_narrow: whether the law has too small a variance. said: of which classes it is, in words.
    """

    form: RowsForm
    predictors: Array
    weights: Array
    too_narrow: bool = False
    said: str = ""

    @cached_property
    def trials(self) -> Array | None:
        """How many trials each row has; None without trials."""
        return self.form.loss.trials_of(self.form.y, self.form.weights)

    @cached_property
    def first_residual(self) -> Array:
        """The residuals at the first draw."""
        return self.residual(self.predictors[0])

    @cached_property
    def shares(self) -> Array:
        """Observed y on the scale of the mean: with trials, the share of successes."""
        return _observed_means(self.form.loss, self.form.y, self.trials)

    def moments(self, draw: int) -> tuple[Array, Array]:
        """r̄ and q at a draw."""
        law = self.form.loss.cumulative(self.predictors[draw], self.form.y, self.trials)
        return _moments_between(*law)[2:] if law is not None else (np.full(self.form.rows.n, np.nan),) * 2

    def residual(self, t: Array) -> Array:
        """r̄ about the law at the predictors t. Where the law is too narrow, (y − μ)/√μ, scaled to the mean square 1:
        its mean is 0 wherever μ is right, whatever the variance of y. (E r̄ is then not 0, and depends on μ.)
        """
        if self.too_narrow:
            mean = self.form.loss.mean(t)
            difference = (self.shares - mean) / np.sqrt(np.maximum(mean, 1e-300))
            return np.asarray(difference / np.sqrt(np.average(difference**2, weights=self.weights)), np.float64)
        law = self.form.loss.cumulative(t, self.form.y, self.trials)
        return np.full(self.form.rows.n, np.nan) if law is None else _moments_between(*law)[2]

    def bend(self, column: Array | None = None, tests: int = 1) -> _Pattern | None:
        """The clear pattern of residuals along x about the line a + bx that fits best; None where none is clear, or it
        is too small to matter. x is a column, or without one η at each draw. tests: how many patterns are looked for.
        """
        patterns = dict[int, _Pattern]()

        def p_value(draw: int) -> float:
            t = self.predictors[draw]
            x = self.form.loss.predictor(t) if column is None else column
            residual = self.residual(_on_line(self.form, t, x)[0])
            pattern = _find_pattern(x, residual, self.weights, _LINE_COEFFICIENTS)
            if pattern is None:
                return 1.0
            patterns[draw] = pattern
            return pattern.p

        p = _p_over_draws(p_value, len(self.predictors), tests)
        clear = p < _ERROR_RATE and 0 in patterns and patterns[0].largest_mean >= _SMALLEST_MEAN
        return replace(patterns[0], p=p) if clear else None

    def bend_along_predictor(self, tests: int = 1) -> _Pattern | None:
        """The clear pattern along the predictor of the mean; None where there is none."""
        eta = self.form.loss.predictor(self.predictors[0])
        without_line = _find_pattern(eta, self.first_residual, self.weights)
        suspicious = without_line is not None and without_line.p * tests < _SUSPICIOUS
        return self.bend(tests=tests) if suspicious else None

    def furthest_probability(self, groups: list[Indices]) -> tuple[float, float] | None:
        """The probability and the observed share of the group in which they are furthest apart, in standard errors;
        None where they hardly differ in any.
        """
        probability = np.mean([self.form.loss.mean(t) for t in self.predictors], axis=0)
        counts = self.weights if self.trials is None else self.trials
        furthest, pair = 0.0, None
        for rows in groups:
            w, m = counts[rows], probability[rows]
            model, share = (float(np.average(v, weights=w)) for v in (m, self.shares[rows]))
            z = abs(share - model) * float(w.sum()) / float(np.sqrt(max(w @ (m * (1 - m)), 1e-300)))
            if z > furthest and abs(_log_odds(share) - _log_odds(model)) > _SMALLEST_LOG_ODDS:
                furthest, pair = z, (model, share)
        return pair


def _p_over_draws(p_value: Callable[[int], float], draws: int, tests: int = 1) -> float:
    """A p-value from those of several draws, for the smallest of some tests: e times their geometric mean; 1 where the
    first one is large.
    """
    first = p_value(0)
    if not first * tests < _SUSPICIOUS:
        return 1.0
    if draws == 1:
        return first * tests
    others = [p_value(draw) for draw in range(1, draws)]
    logs = [math.log(max(p, 1e-300)) for p in (first, *others) if not math.isnan(p)]
    return min(1.0, tests * math.exp(1 + sum(logs) / len(logs)))


def _log_odds(p: float) -> float:
    p = min(max(p, 1e-12), 1 - 1e-12)
    return math.log(p / (1 - p))


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


def _misfits_of_law(
    outcome: _Outcome, left_out: LeftOut, row_numbers: _RowNumbers, columns: _Columns, advice: Advice
) -> list[_Misfit | None]:
    """Misfits of a family with a distribution function: zeros, dispersion, outliers, and patterns of residuals along
    fitted values and along columns.
    """
    loss, dispersion, misfits = outcome.form.loss, None, list[_Misfit | None]()
    if loss.outcome == "counts":
        misfits.append(_zeros(outcome))
    if loss.outcome == "counts" or (outcome.trials is not None and bool((outcome.trials > 1).any())):
        dispersion = _dispersion(outcome)
        misfits.append(dispersion)
    if dispersion:
        outcome = _Outcome(outcome.form, outcome.predictors, outcome.weights, too_narrow=True)
    if loss.outcome == "events":
        law, sure = _too_sure(outcome, left_out.mean(loss.mean), left_out, advice)
        misfits.append(
            sure or _outliers(outcome, left_out, loss.cumulative(law, outcome.form.y, outcome.trials), row_numbers)
        )
    else:
        misfits.append(_outliers(outcome, left_out, None, row_numbers))
    if (pattern := outcome.bend_along_predictor()) is not None:
        if loss.outcome == "events":
            misfits.append(_calibration(outcome, pattern, f"{advice.curves}, or {advice.link}"))
        else:
            seen = f"Pattern: along the fitted values residuals go {pattern.course_in_words}"
            misfits.append(_Misfit(f"{seen}: the mean of y has another form", advice.curves))
    return [*misfits, columns.clearest_pattern([outcome])]


def _link_of_mean(loss: Loss, mean: Array) -> Array | None:
    """The predictor whose mean is this; None for an unknown link, or a mean at an end of its range."""
    from scipy.special import logit

    links: dict[str, Callable[[Array], Array]] = {"identity": np.asarray, "logistic": logit, "exp": np.log}
    if loss.inverse_link not in links:
        return None
    t = np.asarray(links[loss.inverse_link](mean), np.float64)
    return t if np.isfinite(t).all() else None


def _on_line(form: RowsForm, t: Array, x: Array) -> tuple[Array, Array]:
    """The predictors t + a + bx that fit the rows best, by Newton's method from a = b = 0, and (a, b). Predictors of
    other parameters stay as in t.
    """
    loss = form.loss
    centre, scale = float(x.mean()), float(x.std()) or 1.0
    X = np.column_stack([np.ones(len(x)), (x - centre) / scale])

    def predictors_on(line: Array) -> Array:
        predictors = t.copy()
        loss.predictor(predictors)[...] += X @ line
        return predictors

    line, predictors = np.zeros(2), t
    value = form.values(t).sum()
    for _ in range(_NEWTON_STEPS):
        slope, curvature = form.slopes(predictors), form.curvatures(predictors)
        slope, curvature = (slope[..., 0], curvature[..., 0, 0]) if loss.predictor_shape else (slope, curvature)
        hessian = (X * np.maximum(curvature, 0.0)[:, None]).T @ X
        if not np.isfinite(hessian).all():
            break
        step = np.linalg.lstsq(hessian, X.T @ slope, rcond=None)[0]
        shorter_steps = [line - step / 2**k for k in range(_HALVINGS)]
        improved = next(
            ((x, v) for x in shorter_steps if (v := form.values(predictors_on(x)).sum()) < value - 1e-9 * abs(value)),
            None,
        )
        if improved is None:
            break
        (line, value), predictors = improved, predictors_on(improved[0])
    return predictors, np.array([line[0] - line[1] * centre / scale, line[1] / scale])


def _zeros(outcome: _Outcome) -> _Misfit | None:
    from scipy.special import ndtr

    loss, w, zero = outcome.form.loss, outcome.weights, np.zeros(outcome.form.rows.n)
    count, total = float(w @ (outcome.form.y == 0)), float(w.sum())
    expectations = dict[int, float]()

    def p_value(draw: int) -> float:
        p = np.exp(-loss.value(outcome.predictors[draw], zero) - loss.constant(zero))
        expectations[draw], variance = float(w @ p), float(w @ (p * (1 - p)))
        z = abs(count - expectations[draw]) / math.sqrt(max(variance, 1e-300))
        return 2 * float(ndtr(-z)) if variance >= _LEAST_ZERO_VARIANCE else 1.0

    if _p_over_draws(p_value, len(outcome.predictors)) >= _ERROR_RATE:
        return None
    expected = float(np.mean(list(expectations.values())))
    if abs(count - expected) < _SMALLEST_SHARE * min(expected, total - expected):
        return None
    observed = f"Zeros: {count:,.0f} of {total:,.0f} are 0, where the model expects {expected:,.0f}"
    if count < expected:
        return _Misfit(
            f"{observed}: fewer zeros than it expects. See whether rows with 0 are missing from the table and whether "
            "an exposure or an offset is wrong; counts that vary less than the family allows have few zeros too"
        )
    remedy = f"{loss.overdispersed}; " if loss.overdispersed else ""
    return _Misfit(observed, f"{remedy}{loss.other_zeros}, which has a probability of its own for zeros")


def _dispersion(outcome: _Outcome) -> _Misfit | None:
    from scipy.special import ndtr

    w, ratios = outcome.weights, dict[int, float]()

    def p_value(draw: int) -> float:
        square = outcome.moments(draw)[1]
        ratios[draw] = float(np.average(square, weights=w))
        return float(ndtr(-(w @ (square - 1)) / max(float(np.sqrt(w @ (square - 1) ** 2)), 1e-300)))

    if _p_over_draws(p_value, len(outcome.predictors)) >= _ERROR_RATE:
        return None
    ratio = float(np.mean(list(ratios.values())))
    if ratio < 1 + _SMALLEST_SHARE:
        return None
    return _Misfit(f"Dispersion: y varies {ratio:.2g} times as much as the model says", outcome.form.loss.overdispersed)


def _outliers(
    outcome: _Outcome, left_out: LeftOut, law: tuple[Array, Array] | None, row_numbers: _RowNumbers
) -> _Misfit | None:
    """A single row that is far off, and tails that are too heavy; rows that decide their own fit are left out. law:
    P(Y < y) and P(Y ≤ y) of each row; None: given the other rows.
    """
    from scipy.special import pdtr

    form, w, total = outcome.form, outcome.weights, float(outcome.weights.sum())

    def ends_at(t: Array) -> Array:
        return np.stack(cast(tuple[Array, Array], form.loss.cumulative(t, form.y, outcome.trials)), axis=1)

    below, at_most, residual, _ = _moments_between(*(left_out.mean(ends_at).T if law is None else law))
    is_known = (left_out.leverage < _DECISIVE_LEVERAGE) & np.isfinite(residual)
    chance = np.where(is_known, 2 * np.minimum(at_most, 1 - below), 1.0)
    least = int(np.argmin(chance))
    outlier = float(chance[least]) * total < _ERROR_RATE_OF_ROWS
    beyond = float(w @ (is_known & (np.abs(residual) > _TAIL))) if form.loss.outcome == "numbers" else 0.0
    tails = beyond > 0 and 1 - pdtr(beyond - 1, _TAIL_PROBABILITY * total) < _ERROR_RATE_OF_ROWS
    if not (outlier or tails):
        return None
    r = abs(float(residual[least]))
    distance = (
        f"row {row_numbers.numbers[least]:,} is {'more than 8' if r > 8 else f'{r:.2g}'} standard deviations from what "
        f"the model says (counted from 0{row_numbers.among})"
    )
    if tails:
        expected = (
            f"{_TAIL_PROBABILITY * total:,.0f}"
            if _TAIL_PROBABILITY * total >= _FEWEST_WHOLE
            else f"{_TAIL_PROBABILITY * total:.2g}"
        )
        distance = f"{beyond:,.0f} rows are beyond 3 standard deviations, where {expected} are expected; {distance}"
    return _Misfit(f"Outliers: {distance}. Look at it", form.loss.far_off)


def _calibration(outcome: _Outcome, pattern: _Pattern, remedy: str) -> _Misfit | None:
    """The group of rows where the observed share is furthest from the probability, in a sentence."""
    if (pair := outcome.furthest_probability(pattern.rows)) is None:
        return None
    model, share = pair
    return _Misfit(
        f"Calibration: {outcome.said}where the model says {model:.2g}, a share of {share:.2g} is seen", remedy
    )


def _too_sure(outcome: _Outcome, mean: Array, left_out: LeftOut, advice: Advice) -> tuple[Array, _Misfit | None]:
    """Predictors a + bη with the best b in [0, 1], η being that of the mean of y given the other rows, and a misfit
    where b is small and much better than 1.
    """
    form = outcome.form
    eta = _link_of_mean(form.loss, np.clip(mean, 1e-15, 1 - 1e-15))
    eta = left_out.mean(form.loss.predictor) if eta is None else eta
    given_others, without_column = outcome.predictors.mean(axis=0), np.zeros(len(eta))
    form.loss.predictor(given_others)[...] = eta
    t, (_, b) = _on_line(form, given_others, eta)
    if not -1 <= b <= 0:
        b = max(min(b, 0.0), -1.0)
        t = given_others.copy()
        form.loss.predictor(t)[...] *= 1 + b
        t, _ = _on_line(form, t, without_column)
    gain = float((form.values(given_others) - form.values(t)).sum())
    total = float((outcome.weights if outcome.trials is None else outcome.trials).sum())
    coefficients = float(left_out.leverage.sum()) / total
    many = coefficients > _MANY_COEFFICIENTS
    far_too_sure = 1 + b < _LARGEST_SURE_SLOPE and gain > max(_LEAST_TOTAL_GAIN, _LEAST_GAIN * total)
    well_known = many and coefficients < _KNOWN_LEFT_OUT
    if not (far_too_sure or (well_known and 1 + b < _LARGEST_TOLD_SLOPE and gain > _LEAST_TOLD_GAIN)):
        return t, None
    unseen = _Outcome(form, given_others[None], outcome.weights, said=outcome.said)
    order, group = groups_of_equal_weight(eta, outcome.weights, _group_count(outcome.weights))
    pair = unseen.furthest_probability(np.split(order, np.flatnonzero(np.diff(group)) + 1))
    if pair is None:
        return t, None
    return t, _Misfit(
        f"Calibration: {outcome.said}where the model says {pair[0]:.2g} of rows that it has not seen, a share of "
        f"{pair[1]:.2g} is seen: its probabilities are much too sure",
        advice.narrower if many else "a wider prior, or one elsewhere: few coefficients are so sure by the data alone",
    )


def _observed_means(loss: Loss, y: Array, trials: Array | None) -> Array:
    """Observed y on the scale of the mean: with trials, the share of successes."""
    seen = loss.original_labels(y, trials)
    return seen if trials is None else np.asarray(seen / np.maximum(trials, 1.0), np.float64)


def _misfits_of_classes(
    sample: RowsForm, predictors: Array, left_out: LeftOut, weights: Array, columns: _Columns, advice: Advice
) -> list[_Misfit | None]:
    """Misfits of a family with classes: the class whose probabilities are furthest from what was observed, thresholds
    that shift unequally, and patterns of residuals along columns.
    """
    ordered = sample.loss.ordered
    events = _events_of_classes(sample, predictors, weights, columns)
    misfits, unseen = list[_Misfit | None](), left_out.mean(sample.loss.mean)
    unseen = np.cumsum(unseen, axis=1) if ordered else unseen
    for k, event in enumerate(events):
        _, sure = _too_sure(event, unseen[:, k], left_out, advice)
        if sure:
            misfits.append(sure)
            break
    bends = [(bend, event) for event in events if (bend := event.bend_along_predictor(len(events))) is not None]
    if bends:
        pattern, event = min(bends, key=lambda item: item[0].p)
        misfits.append(_calibration(event, pattern, advice.curves))
    if ordered:
        misfits.append(columns.unequal_threshold_shifts(predictors))
    return [*misfits, columns.clearest_pattern(events)]


def _events_of_classes(sample: RowsForm, predictors: Array, weights: Array, columns: _Columns) -> list[_Outcome]:
    """For each class the event that y is of it; of ordered classes, for each but the last, that y is at most it."""
    from scipy.special import logit

    yes_no, ordered = bernoulli(), sample.loss.ordered
    p = np.stack([sample.loss.mean(t) for t in predictors])
    p = np.cumsum(p, axis=-1)[..., :-1] if ordered else p
    ones, no_prior = DenseRows(np.ones((sample.rows.n, 1))), np.zeros(1)
    outcomes = []
    for k in range(p.shape[-1]):
        seen = sample.y <= k if ordered else sample.y == k
        form = RowsForm(ones, yes_no.labels(seen, len(seen)), yes_no, no_prior, no_prior, weights=weights)
        said = f"of class {columns.class_name(k)}{' or lower' if ordered else ''}, "
        outcomes.append(_Outcome(form, logit(np.clip(p[..., k], 1e-300, 1 - 1e-16)), weights, said=said))
    return outcomes


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

    def clearest_pattern(self, outcomes: list[_Outcome]) -> _Misfit | None:
        """The column along which residuals have the clearest pattern; None where none is clear."""
        curved_columns = self._curved_columns()
        residuals = [outcome.first_residual for outcome in outcomes]
        candidates = self._screen_columns(curved_columns, residuals)
        tests = len(curved_columns) * len(residuals)
        suspicious = [
            (pattern.p, j, k)
            for j, values in self._values_of(candidates)
            for k, pattern in enumerate(_find_patterns(values, residuals, self.weights))
            if pattern.p * tests < _SUSPICIOUS
        ]
        clear = []
        for _, j, k in sorted(suspicious)[:_MOST_CANDIDATES]:
            if (pattern := outcomes[k].bend(self._column(j), tests)) is not None:
                clear.append((pattern.p, j, pattern.course_in_words))
        if not clear:
            return None
        _, j, course = min(clear)
        name = self._name(j)
        return _Misfit(
            f"Pattern: along {name} residuals go {course}: its effect is not the straight line of the model",
            self.advice.of_column(name),
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

    def unequal_threshold_shifts(self, predictors: Array) -> _Misfit | None:
        """The column that shifts some thresholds more than others; None where no column clearly does. predictors: at
        each draw.
        """
        count = self.end - self.first
        if not count:
            return None
        p = self._threshold_shifts(predictors[0]).p
        if not (len(p) and p.min() * count < _SUSPICIOUS):
            return None
        j = int(np.argmin(p))
        values = self._column(self.first + j)
        shifts = list[_ThresholdShifts]()

        def p_value(draw: int) -> float:
            shifts.append(self._threshold_shifts(_on_line(self.sample, predictors[draw], values)[0]))
            return float(shifts[-1].p[j])

        if _p_over_draws(p_value, len(predictors), count) >= _ERROR_RATE:
            return None
        k = int(np.argmax(np.abs(shifts[0].z[j])))
        w, threshold = self.weights, int(shifts[0].thresholds[k])
        upper = values > np.average(values, weights=w)
        pairs = (self.sample.y <= threshold, shifts[0].at_most[:, k])
        seen, model = (float(np.average(v[upper], weights=w[upper])) for v in pairs)
        if abs(_log_odds(seen) - _log_odds(model)) < _SMALLEST_LOG_ODDS:
            return None
        return _Misfit(
            f"Thresholds: {self._name(self.first + j)} does not shift all of them alike, as the model has it (with the "
            f"logit, proportional odds): where it is above its mean a share of {seen:.2g} is of class "
            f"{self.class_name(threshold)} or lower, and the model says {model:.2g}",
            "family='categorical', or one 'bernoulli' for each threshold",
        )

    def _threshold_shifts(self, t: Array) -> _ThresholdShifts:
        """How all columns shift the thresholds, about the same shift of all, at predictors t."""
        from scipy.special import chdtrc

        w, rows = self.weights, self._rows
        at_most = np.cumsum(self.sample.loss.mean(t), axis=1)[:, :-1]
        thresholds = np.flatnonzero(w @ (at_most * (1 - at_most)) >= _LEAST_ZERO_VARIANCE)
        at_most = at_most[:, thresholds]
        count = len(thresholds)
        difference = (self.sample.y[:, None] <= thresholds) - at_most
        mean = rows.combine(w[None])[0, self._coefficient_columns] / w.sum()

        def centred(values: Array) -> Array:
            """Σ wv(x − m)² for each column x with mean m, v being `values`."""
            second = rows.gram_diagonal(w * values)[self._coefficient_columns]
            first = rows.combine((w * values)[None])[0, self._coefficient_columns]
            return np.asarray(np.maximum(second - 2 * mean * first + mean**2 * (w @ values), 0.0))

        sums = rows.combine((w[:, None] * difference).T)[:, self._coefficient_columns].T
        shift = sums - np.outer(mean, w @ difference)
        covariance = np.empty((len(mean), count, count))
        for k in range(count):
            for m in range(k, count):
                covariance[:, k, m] = covariance[:, m, k] = centred(at_most[:, k] * (1 - at_most[:, m]))
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        p, z = np.ones(len(mean)), np.zeros(shift.shape)
        if count > 1:
            inverse = np.linalg.pinv(covariance, rcond=1e-10, hermitian=True)
            weighted = (inverse @ variance[..., None])[..., 0]
            common = (weighted * shift).sum(axis=1) / np.maximum((weighted * variance).sum(axis=1), 1e-300)
            shift = shift - common[:, None] * variance
            p = chdtrc(count - 1, np.einsum("jk,jkm,jm->j", shift, inverse, shift))
            z = shift / np.sqrt(np.maximum(variance, 1e-300))
        return _ThresholdShifts(np.where(np.isfinite(p), p, 1.0), z, thresholds, at_most)

    @property
    def _rows(self) -> Rows:
        return self.sample.rows.design_matrix

    @property
    def _coefficient_columns(self) -> slice:
        """Columns of named coefficients: without the intercept and without the columns of groups."""
        return slice(self.first, self.end)

    def _column(self, j: int) -> Array:
        return np.asarray(self._rows.column_values(np.array([j]))[:, 0], np.float64)

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


@dataclass(frozen=True, eq=False)
class _ThresholdShifts:
    """How columns shift thresholds, about the same shift of all: the p-value of each column, and U_k in standard
    deviations for each column and threshold. at_most: P(Y ≤ k) of each row.
    """

    p: Array
    z: Array
    thresholds: Indices
    at_most: Array


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
    def course_in_words(self) -> str:
        """The mean residuals of up to five groups from the first to the last, in words."""
        shown = self.means[np.unique(np.linspace(0, len(self.means) - 1, 5).round().astype(int))]
        return ", ".join(f"{mean:+.2f}" for mean in shown) + " (in standard deviations)"


def _find_pattern(x: Array, residual: Array, weights: Array, fitted: int = 0) -> _Pattern | None:
    """The pattern of a residual in groups by x; None where there are too few groups."""
    return next(_find_patterns(x, [residual], weights, fitted), None)


def _find_patterns(x: Array, residuals: list[Array], weights: Array, fitted: int = 0) -> Iterator[_Pattern]:
    """The pattern of each of some residuals in groups by x; none where there are too few groups. fitted: how many
    coefficients along x were fitted to the same rows, which takes as many degrees of freedom.
    """
    count = _group_count(weights)
    if count < 2:
        return
    order, group = groups_of_equal_weight(x, weights, count)
    for residual in residuals:
        if (pattern := _score_groups(order, group, residual, weights, fitted)) is not None:
            yield pattern


def _group_count(weights: Array) -> int:
    return int(min(_MOST_GROUPS, float(weights.sum()) // _FEWEST_IN_GROUP))


def _score_groups(order: Indices, group: Indices, residual: Array, weights: Array, fitted: int) -> _Pattern | None:
    """The pattern in groups of rows. order: of the rows. group: of each row in that order."""
    from scipy.special import chdtrc

    ends = np.flatnonzero(np.diff(group)) + 1
    count = len(ends) + 1
    if count < max(2, fitted + 1):
        return None
    begins, r, w = np.append(0, ends), residual[order], weights[order]
    sums, sizes, squares = (np.add.reduceat(values, begins) for values in (w * r, w, w * r * r))
    within = np.maximum(squares - sums**2 / sizes, 0.0)
    variance = np.maximum(within, sizes * within.sum() / max(float(sizes.sum()) - count, 1.0))
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
