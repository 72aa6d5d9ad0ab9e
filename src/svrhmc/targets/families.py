"""Families by name: which losses there are beside the logistic and the squared one, and how a user asks for one.

    "bernoulli"   y ∈ {0, 1},            P(y = 1) = 1/(1 + e⁻ᵗ)     (`bernoulli("probit")`: Φ(t))
    "binomial"    y successes of trials,  the same for each trial
    "poisson"     y = 0, 1, 2, …,         E y = eᵗ
    "gaussian"    y real,                 y ~ N(t, σ²), σ unknown    (`gaussian(noise_variance)`: known)

and "student-t", "negative-binomial", "gamma", "categorical".

A family is a `Loss`; a user names it, or makes it here.

Every formula keeps its digits far out: nothing overflows for |t| up to 700, and no difference of nearly equal numbers
stands where another form has none.
"""

# How a family goes through targets and kernels: a row has k linear predictors and q shared parameters, m = k + q
# numbers t in all (`blocks.py`), and per-row data y, offset, weight, which belong to the form (`forms.py`). Where m =
# 1, predictors, slopes and curvatures are plain numbers, and compiled code is what it was before there were others
# (`kernels/losses.py`); where m > 1 they have one and two axes more, and compiled code takes another path, chosen by
# the type of the loss (`kernels/wide.py`). No other code asks for a family.

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import nearest, one_of, require_unmasked, requirement
from svrhmc.core.parts import part
from svrhmc.targets.categorical import CategoricalLoss
from svrhmc.targets.faces import Faces, sides
from svrhmc.targets.labels import counts, first, two_texts
from svrhmc.targets.losses import Coded, LogisticLoss, Loss, Observed, SquaredLoss, log_odds, log_rate, two_values
from svrhmc.targets.shared import GammaLoss, GaussianLoss, NegativeBinomialLoss, StudentLoss

_TAIL, _TERMS = 4.0, 40  # from where on, and with how many terms, a continued fraction gives all digits


@part
@dataclass(frozen=True)
class BinomialLoss(Loss):
    """y successes of m trials: mℓ(t, ȳ) with ȳ = y/m and ℓ(t, ȳ) = ȳ log(1 + e⁻ᵗ) + (1 − ȳ) log(1 + eᵗ).

    So the label is the share of successes, and the trials are a weight: a row counts as m observations.
    """

    name = "binomial"
    ratio = "odds ratio"
    outcome = "events"
    tried = True
    overdispersed = (
        "a column for what differs between rows, as the trials of one row are more alike than those of others (there "
        "is no beta-binomial family)"
    )
    convex = True
    kernel = "binomial"

    @property
    def curvature_bound(self) -> float:
        """p(1 − p) ≤ 1/4, of one trial."""
        return 0.25

    @property
    def third_bound(self) -> float:
        """p(1 − p)|1 − 2p| ≤ 1/(6√3), of one trial."""
        return 1 / (6 * math.sqrt(3))

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Successes of one trial: 0 or 1."""
        return self.observed(y, n).y

    def observed(self, y: npt.ArrayLike, n: int, trials: npt.ArrayLike | None = None) -> Observed:
        """Shares of successes, and trials (None: one each); a row of no trials says nothing."""
        successes = counts("y", y, (n,))
        if trials is None:
            why = "say how many trials there were: trials=…"
            if (successes > 1).any():
                raise requirement("y", "0 or 1 where trials is None", first(successes, successes > 1), why)
            return Observed(successes, None)
        require_unmasked("trials", trials)
        given = np.asarray(trials)
        m = np.array(np.broadcast_to(counts("trials", np.atleast_1d(given), ("n",) if not given.ndim else (n,)), n))
        if (few := m < successes).any():
            row = int(np.argmax(few))
            why = "y is the number of successes, not their share, and trials counts failures too"
            given_there = f"{m[row]:g} for y = {successes[row]:g} at row {row}"
            raise requirement("trials", "at least the successes y", given_there, why)
        return Observed(successes / np.maximum(m, 1.0), m)

    def overall(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log odds of all trials."""
        return log_odds(weights @ y, weights.sum()) - float(np.average(offset, weights=weights)), 1.0

    def faces(self, y: Array) -> Faces:
        """It grows upwards where there was a failure, downwards where there was a success."""
        return sides(y < 1, y > 0)

    def value(self, t: Array, y: Array) -> Array:
        """ȳ log(1 + e⁻ᵗ) + (1 − ȳ) log(1 + eᵗ): two terms not below 0."""
        return y * np.logaddexp(0.0, -t) + (1.0 - y) * np.logaddexp(0.0, t)

    def slope(self, t: Array, y: Array) -> Array:
        """(1 − ȳ)p − ȳ(1 − p)."""
        return (1.0 - y) * _LOGISTIC.mean(t) - y * _LOGISTIC.mean(-t)

    def curvature(self, t: Array, y: Array) -> Array:
        """p(1 − p)."""
        return _LOGISTIC.curvature(t, y)

    def mean(self, t: Array) -> Array:
        """P(success) = 1/(1 + e⁻ᵗ)."""
        return _LOGISTIC.mean(t)

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """−log (m choose mȳ)."""
        from scipy.special import gammaln

        m = np.ones(np.shape(y)) if trials is None else trials
        return np.asarray(gammaln(m * y + 1) + gammaln(m - m * y + 1) - gammaln(m + 1), np.float64)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """Successes, by inversion."""
        from scipy.stats import binom

        return np.asarray(binom.ppf(u, 1 if trials is None else trials, self.mean(t)), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Of the number of successes."""
        from scipy.special import bdtr

        m = np.ones(np.shape(y)) if trials is None else trials
        k, p, whole = np.round(m * y), self.mean(t), np.round(m).astype(np.int64)
        return np.where(k > 0, bdtr(np.maximum(k - 1, 0), whole, p), 0.0), np.asarray(bdtr(k, whole, p), np.float64)

    def seen(self, y: Array, trials: Array | None = None) -> Array:
        """Successes, mȳ."""
        return y if trials is None else np.asarray(np.round(y * trials), np.float64)

    def third_size(self, curvature: Array) -> Array:
        """As for one trial of the logistic loss."""
        return _LOGISTIC.third_size(curvature)


@part
@dataclass(frozen=True)
class ProbitLoss(Loss):
    """ℓ(t, y) = −log Φ(yt) with y ∈ {−1, +1}.

    With s = yt, λ = φ(s)/Φ(s) = √(2/π)/erfcx(−s/√2) and e = s + λ: ℓ′ = −yλ, ℓ″ = λe, ℓ‴ = yλ(1 − e(e + λ)). Below
    s = −4, e is the continued fraction 1/(x + 2/(x + 3/(x + …))), x = −s, and λ = x + e: there s + λ would cancel.
    """

    name = "bernoulli"
    outcome = "events"
    convex = True
    kernel = "probit"
    nanoseconds = 11.0

    @property
    def curvature_bound(self) -> float:
        """λe rises from 0 to 1 as s falls."""
        return 1.0

    @property
    def third_bound(self) -> float:
        """|ℓ‴| is largest at s = 1.00237, where it is 0.2957188."""
        return 0.295719

    def coded(self, y: npt.ArrayLike) -> Coded:
        """Two texts are classes too: 1 is the one that comes last in their order."""
        return Coded(self, *two_texts(y))

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """{0, 1} or {−1, 1}, as signs."""
        return _LOGISTIC.labels(y, n)

    def overall(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """Φ⁻¹ of the share of all rows."""
        from scipy.special import ndtri

        share = (weights @ (y > 0) + 0.5) / (weights.sum() + 1.0)
        return float(ndtri(share)) - float(np.average(offset, weights=weights)), 1.0

    def faces(self, y: Array) -> Faces:
        """−log Φ(yt) grows only against the label."""
        return sides(y < 0, y > 0)

    def value(self, t: Array, y: Array) -> Array:
        """−log Φ(yt)."""
        from scipy.special import log_ndtr

        return np.asarray(-log_ndtr(y * t), np.float64)

    def slope(self, t: Array, y: Array) -> Array:
        """−yλ."""
        return -y * _mills(y * t)[0]

    def curvature(self, t: Array, y: Array) -> Array:
        """λ(s + λ)."""
        hazard, sum_ = _mills(y * t)
        return hazard * sum_

    def mean(self, t: Array) -> Array:
        """Φ(t)."""
        from scipy.special import ndtr

        return np.asarray(ndtr(t), np.float64)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """1 where u is above P(y = 0), else 0."""
        return np.asarray(u >= self.mean(-t), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Of 0 and 1."""
        return two_values(self.mean(-t), np.greater(y, 0))

    def seen(self, y: Array, trials: Array | None = None) -> Array:
        """0 and 1 for the signs."""
        return _LOGISTIC.seen(y)

    def third_size(self, curvature: Array) -> Array:
        """A row may move to where it is larger: 0.02 at least."""
        return np.minimum(np.maximum(curvature, 0.02), self.third_bound)


def _mills(s: Array) -> tuple[Array, Array]:
    """λ = φ(s)/Φ(s), and s + λ."""
    from scipy.special import erfcx

    s = np.asarray(s, np.float64)
    hazard = math.sqrt(2 / math.pi) / erfcx(np.minimum(-s / math.sqrt(2), 1e8))
    x = np.maximum(-s, _TAIL)
    rest = np.zeros_like(x)
    for k in range(_TERMS, 1, -1):
        rest = k / (x + rest)
    rest = 1 / (x + rest)
    far = s < -_TAIL
    return np.where(far, x + rest, hazard), np.where(far, rest, s + hazard)


@part
@dataclass(frozen=True)
class PoissonLoss(Loss):
    """ℓ(t, y) = eᵗ − yt: counts y whose mean is eᵗ. The curvature eᵗ has no bound, but has one up to any t."""

    name = "poisson"
    ratio = "ratio of means"
    overdispersed = "family='negative-binomial', whose variance is larger than its mean"
    outcome = "counts"
    convex = True
    kernel = "poisson"

    def third_within(self, low: Array, high: Array) -> Array:
        """eᵗ rises: its largest value is the last one."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(high), np.float64)

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Counts."""
        return counts("y", y, (n,))

    def start(self, y: Array) -> Array:
        """log(y + ½)."""
        return np.asarray(np.log(y + 0.5), np.float64)

    def overall(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log of the rate of all rows together."""
        return log_rate(y, weights, offset), 1.0

    def faces(self, y: Array) -> Faces:
        """eᵗ − yt grows upwards always, and downwards where there was an event."""
        return sides(True, y > 0)

    def value(self, t: Array, y: Array) -> Array:
        """eᵗ − yt."""
        return np.exp(t) - y * t

    def slope(self, t: Array, y: Array) -> Array:
        """eᵗ − y."""
        return np.exp(t) - y

    def curvature(self, t: Array, y: Array) -> Array:
        """eᵗ."""
        return np.exp(t) * np.ones(np.shape(y))

    def mean(self, t: Array) -> Array:
        """eᵗ."""
        return np.exp(t)

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """log y!."""
        from scipy.special import gammaln

        return np.asarray(gammaln(y + 1), np.float64)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """By inversion."""
        from scipy.stats import poisson as law

        return np.asarray(law.ppf(u, np.exp(t)), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Of counts."""
        from scipy.special import pdtr

        rate = np.exp(t)
        return np.where(y > 0, pdtr(np.maximum(y - 1, 0), rate), 0.0), np.asarray(pdtr(y, rate), np.float64)


_LOGISTIC = LogisticLoss()


def bernoulli(link: str = "logit") -> Loss:
    """Labels {0, 1} or {−1, 1}, with P(y = 1) = 1/(1 + e⁻ᵗ) or ("probit") Φ(t).

    >>> float(bernoulli("probit").mean(np.array(0.0)))
    0.5
    """
    return {"logit": LogisticLoss, "probit": ProbitLoss}[one_of("link", link, ("logit", "probit"))]()


def binomial() -> Loss:
    """Successes y of some trials, each with P(success) = 1/(1 + e⁻ᵗ).

    >>> from svrhmc.targets import glm
    >>> glm([[1.0]], [3], "binomial", trials=10).mode().round(3)  # 3 of 10
    array([-0.583])
    """
    return BinomialLoss()


def poisson() -> Loss:
    """Counts with E y = eᵗ; an exposure enters as offset = log exposure.

    >>> float(poisson().mean(np.array(0.0)))
    1.0
    """
    return PoissonLoss()


def gaussian(noise_variance: float | None = None) -> Loss:
    """Real y ~ N(t, σ²), with σ² = noise_variance, or (None) log σ the last coordinate of x.

    >>> gaussian(4.0), gaussian()
    (SquaredLoss(noise_variance=4.0), GaussianLoss())
    """
    return GaussianLoss() if noise_variance is None else SquaredLoss(noise_variance)


def student_t(df: float = 4.0) -> Loss:
    """Real y = t + scale·(Student's t with df degrees of freedom), log scale the last coordinate of x.

    >>> student_t(7.0)
    StudentLoss(df=7.0)
    """
    return StudentLoss(df)


def negative_binomial() -> Loss:
    """Counts with E y = eᵗ and variance μ + μ²/φ, log φ the last coordinate of x.

    >>> from svrhmc.targets import glm
    >>> glm([[1.0], [1.0], [1.0]], [0, 9, 1], negative_binomial()).dim
    2
    """
    return NegativeBinomialLoss()


def gamma() -> Loss:
    """Positive y with E y = eᵗ and variance μ²/α, log α the last coordinate of x.

    >>> float(gamma().mean(np.array([0.0, 1.0])))
    1.0
    """
    return GammaLoss()


def categorical(classes: int | None = None) -> Loss:
    """Classes by softmax, the first of them as the baseline: 0 … K − 1, or (None) those that y has, in their order.

    >>> categorical(3).mean(np.array([0.0, 0.0])).round(3)
    array([0.333, 0.333, 0.333])
    """
    return CategoricalLoss(classes)


FAMILIES: dict[str, Callable[[], Loss]] = {
    "bernoulli": bernoulli,
    "binomial": binomial,
    "poisson": poisson,
    "gaussian": gaussian,
    "student-t": student_t,
    "negative-binomial": negative_binomial,
    "gamma": gamma,
    "categorical": categorical,
}
_ALSO = {
    "normal": "gaussian", "linear": "gaussian", "logistic": "bernoulli", "logit": "bernoulli", "binary": "bernoulli",
    "negbin": "negative-binomial", "multinomial": "categorical", "softmax": "categorical",
}  # fmt: skip

_INSTEAD = {
    "zero|zip|zinb|hurdle|inflated": "there is no zero-inflated or hurdle family: try 'negative-binomial', or fit "
    "y > 0 by 'bernoulli' and the rows with y > 0 apart",
    "beta-binomial|betabinomial": "there is none for trials that vary more than 'binomial' has it",
    "beta": "there is none for shares: take 'gaussian' for their log odds, or 'binomial' with trials=… where they are "
    "counts of trials",
    "ordinal|ordered|cumulative": "there is none for ordered classes: 'categorical' takes them without their order",
    "surv|weibull|cox|hazard": "there is none for censored times: 'gamma' takes times that all ended",
    "tweedie|inverse-gaussian|lognormal|log-normal": "take 'gamma', or 'gaussian' for the logarithm of y",
    "quasi": "take 'negative-binomial' for counts that vary more than 'poisson' has it",
    "laplace|cauchy|robust|huber": "take 'student-t', which rows that are far off pull less",
}  # by parts of names that other programs have


def _instead(name: str) -> str:
    """What to do without a family that there is not, or which one was probably meant."""
    if name in _ALSO:
        return f"did you mean {_ALSO[name]!r}?"
    for parts, advice in _INSTEAD.items():
        if any(part in name for part in parts.split("|")):
            return advice
    return nearest(name, FAMILIES)


def family_of(family: object) -> Loss:
    """The loss that a name stands for, or the one given; other names are refused with what to take instead."""
    if isinstance(family, str) and family.lower() in FAMILIES:
        return FAMILIES[family.lower()]()
    if hasattr(family, "curvature") and hasattr(family, "observed") and not isinstance(family, type):
        return family  # type: ignore[return-value]
    name = family.lower().replace("_", "-") if isinstance(family, str) else ""
    allowed = "one of " + ", ".join(map(repr, FAMILIES)) + ", or a family of svrhmc.targets.families"
    raise requirement("family", allowed, repr(family), _instead(name))
