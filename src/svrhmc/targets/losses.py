"""Scalar losses ℓ(t, y) of a linear predictor t = o + aᵀx: minus the log-likelihood of one row, up to a constant.

A loss is complete: it says which labels it takes, its value, slope and curvature in t, the mean of y, how a y is drawn,
and what is known of its derivatives everywhere (None where nothing is). The functions take arrays and numbers alike.
This is the definition; a loss that is also compiled names its form there in `kernel`.

A label is one number for each row. A row that stands for several observations (successes of some trials, or a row of an
aggregated table) has a weight besides, wᵢℓ(tᵢ, yᵢ), which belongs to the form and not to the loss: no loss knows of
offsets and weights. Other families are in `families.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, digest
from svrhmc.core.errors import positive, real_array, requirement
from svrhmc.core.parts import part
from svrhmc.targets.faces import Faces, sides
from svrhmc.targets.labels import two_texts


class Observed(NamedTuple):
    """Labels in the form that a loss uses, and how many observations each stands for (None: one)."""

    y: Array
    counts: Array | None


class Coded(NamedTuple):
    """The loss for some labels, the labels in numbers, and what 0, 1, … stand for where they were something else."""

    loss: Loss
    y: npt.ArrayLike
    classes: npt.NDArray[Any] | None = None


class Loss(ABC):
    """Minus the log-likelihood of one row as a function of its linear predictor.

    −log p(y | t) = value(t, y) + constant(y).
    """

    name: ClassVar[str] = ""  # of the family, as users write it
    identity_link: ClassVar[bool] = False  # whether the mean of y is the predictor itself
    ratio: ClassVar[str] = ""  # what e to the power of a coefficient is, where that has a name
    shared_names: ClassVar[tuple[str, ...]] = ()  # of the parameters that all rows share
    quadratic: ClassVar[bool] = False  # whether the curvature is constant, so that the posterior is Gaussian
    convex: ClassVar[bool] = False  # whether the curvature is known to be 0 or more for all t and y
    convex_given_shared: ClassVar[bool] = False  # the same in the predictors, at any value of the shared parameters
    wide: ClassVar[bool] = False  # whether t, slopes and curvatures have axes of their own (`shared.py`)
    shared: ClassVar[int] = 0  # parameters that all rows share
    shared_prior: ClassVar[tuple[float, float]] = (0.25, 0.0)  # precision and mean of each of them
    tried: ClassVar[bool] = False  # whether a row's weight is how many trials its label stands for
    mixture: ClassVar[bool] = False  # whether coefficients are Gaussian given the shared parameter (`laws.py`)
    spread: ClassVar[bool] = False  # whether the shared parameter is a spread, which the residuals of labels tell
    without_residuals: ClassVar[str] = "drop columns"  # what helps where some coefficients fit every label exactly
    overdispersed: ClassVar[str] = ""  # what to try where y varies more than the family has it
    far_off: ClassVar[str] = ""  # what to try where some y are further off than the family has them
    outcome: ClassVar[str] = "numbers"  # what y is: events (0 and 1, or shares), counts, classes or numbers
    kernel: ClassVar[str | None] = None  # the name of its compiled form, in `svrhmc.kernels.losses`

    @property
    def numbers(self) -> tuple[float, ...]:
        """The fields of the compiled form; by default a factor of 1."""
        return (1.0,)

    @property
    def nanoseconds(self) -> float:
        """What value and slope of a row take beyond those of the logistic loss, as `benchmarks/costs.py` measures."""
        return 0.0

    @property
    def blocks(self) -> int:
        """The number of predictors that have coefficients of their own."""
        return 1

    @property
    def known_noise(self) -> float | None:
        """The standard deviation of y about its predictor, where it is given beforehand; None where it is not."""
        return None

    def shared_start(self, y: Array) -> Array:
        """Values of the shared parameters at which the search for the mode starts."""
        return np.zeros(self.shared)

    @property
    def curvature_bound(self) -> float | None:
        """sup ∂²ℓ/∂t² over all t and y."""
        return None

    @property
    def third_bound(self) -> float | None:
        """sup |∂³ℓ/∂t³| over all t and y."""
        return None

    def third_within(self, low: Array, high: Array) -> Array | None:
        """Bounds on |∂³ℓ/∂t³| over low ≤ t ≤ high and all y, finite or ∞; here the one that holds everywhere."""
        return None if self.third_bound is None else np.full(np.shape(low), self.third_bound)

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Check n labels, and return them in the form that the loss uses."""
        return np.asarray(real_array("y", y, (n,)), np.float64)

    def observed(self, y: npt.ArrayLike, n: int, trials: npt.ArrayLike | None = None) -> Observed:
        """The labels, and how many observations each stands for; trials are an error unless the family has them."""
        if trials is not None:
            raise requirement("trials", f"None for {self}", "an array", "only a binomial label is a number of trials")
        return Observed(self.labels(y, n), None)

    def coded(self, y: npt.ArrayLike) -> Coded:
        """The loss for these labels, where it depends on them, and the labels in numbers, where they are not."""
        return Coded(self, y)

    def with_noise(self, noise_variance: float) -> Loss:
        """The loss with this variance of the noise, for families that have noise which may be known."""
        why = "only the family 'gaussian' has noise whose variance may be known"
        raise requirement("noise_variance", f"None for {self}", noise_variance, why)

    def faces(self, y: Array) -> Faces | None:
        """The directions in which ℓ stays bounded, for each label (`faces.py`); None where that is not known."""
        return None

    def unsettled(self, weight: float, free: int, exact: bool) -> str | None:
        """Why a shared parameter whose prior is flat has no posterior, in words; None where it has one.

        Rows of this weight in all, so many coefficients whose prior is flat too, and whether some coefficients fit all
        labels without a residual.
        """
        return None

    def start(self, y: Array) -> Array | None:
        """For each label, the predictor that would fit it best, where the search for the mode starts; None for 0."""
        return None

    def overall(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """What is typical of the labels, for weak priors that follow the data: the predictor (less offsets) whose mean
        is that of all rows, and the size of a large effect on a predictor; 0 and 1 where a loss does not say.
        """
        return 0.0, 1.0

    @abstractmethod
    def value(self, t: Array, y: Array) -> Array:
        """ℓ(t, y)."""

    @abstractmethod
    def slope(self, t: Array, y: Array) -> Array:
        """∂ℓ/∂t."""

    @abstractmethod
    def curvature(self, t: Array, y: Array) -> Array:
        """∂²ℓ/∂t²."""

    @abstractmethod
    def mean(self, t: Array) -> Array:
        """E y at t: the inverse link."""

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """The part of −log p(y | t) that does not depend on t; 0 unless a loss says otherwise."""
        return np.zeros(np.shape(y))

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """The quantile of y at t for a probability u; with u uniform on (0, 1) this draws a new y."""
        raise requirement("loss", "one that says how a y is drawn", f"{self}")

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array] | None:
        """P(Y < y) and P(Y ≤ y) at t, by which the fit of a model is checked; None where a loss does not say."""
        return None

    def seen(self, y: Array, trials: Array | None = None) -> Array:
        """Labels as a user knows them, and as `draw` gives new ones."""
        return y

    def identity(self, label: Array) -> str:
        """A name that changes if the loss does: that of its class, with a digest of some of its values."""
        t = np.linspace(-3.0, 3.0, 13)
        return f"{type(self).__name__} {digest(self.value(t, label), self.slope(t, label))}"

    def third_size(self, curvature: Array) -> Array:
        """A rough size of |∂³ℓ/∂t³| near a point with this curvature, 0 or more. It decides how often a row is drawn,
        and need not be a bound.
        """
        return np.abs(curvature)


@part
@dataclass(frozen=True)
class LogisticLoss(Loss):
    """ℓ(t, y) = log(1 + e^{−yt}) with y ∈ {−1, +1}; the slope −y/(1 + e^{yt}) has no cancellation."""

    name = "bernoulli"
    ratio = "odds ratio"
    outcome = "events"
    convex = True
    kernel = "logistic"

    @property
    def curvature_bound(self) -> float:
        """p(1 − p) ≤ 1/4."""
        return 0.25

    @property
    def third_bound(self) -> float:
        """p(1 − p)|1 − 2p| ≤ 1/(6√3)."""
        return 1 / (6 * math.sqrt(3))

    def coded(self, y: npt.ArrayLike) -> Coded:
        """Two texts are classes too: 1 is the one that comes last in their order."""
        return Coded(self, *two_texts(y))

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """{0, 1} or {−1, 1}, as signs."""
        labels = super().labels(y, n)
        found = np.unique(labels)
        if not (np.isin(found, (0, 1)).all() or np.isin(found, (-1, 1)).all()):
            shown = ", ".join(f"{value:g}" for value in found[:4]) + (", …" if len(found) > 4 else "")
            why = "say which label is 1, as with y == label; for more than two classes use 'categorical'"
            raise requirement("y", "labels in {0, 1} or {-1, 1}", f"the values {shown}", why)
        return np.where(labels > 0, 1.0, -1.0)

    def overall(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log odds of all rows, with half a label more of each kind."""
        return log_odds(weights @ (y > 0), weights.sum()) - float(np.average(offset, weights=weights)), 1.0

    def faces(self, y: Array) -> Faces:
        """log(1 + e^{−yt}) grows only against the label."""
        return sides(y < 0, y > 0)

    def value(self, t: Array, y: Array) -> Array:
        """log(1 + e^{−yt})."""
        return np.logaddexp(0.0, -y * t)

    def slope(self, t: Array, y: Array) -> Array:
        """−y/(1 + e^{yt}); e^{yt} = ∞ rightly gives 0."""
        with np.errstate(over="ignore"):
            return -y / (1.0 + np.exp(y * t))

    def curvature(self, t: Array, y: Array) -> Array:
        """1/((1 + e^{t})(1 + e^{−t})), the same for both labels."""
        with np.errstate(over="ignore"):
            return 1.0 / ((1.0 + np.exp(t)) * (1.0 + np.exp(-t)))

    def mean(self, t: Array) -> Array:
        """P(y = 1) = 1/(1 + e^{−t})."""
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + np.exp(-t))

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """1 where u is above P(y = 0), else 0."""
        return np.asarray(u >= self.mean(-t), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Of 0 and 1."""
        return two_values(self.mean(-t), np.greater(y, 0))

    def seen(self, y: Array, trials: Array | None = None) -> Array:
        """0 and 1 for the signs."""
        return np.asarray(y > 0, np.float64)

    def third_size(self, curvature: Array) -> Array:
        """|ℓ‴| = ℓ″|1 − 2p| is at most ℓ″, but a row may move to where ℓ″ is larger: 0.02 at least."""
        return np.maximum(curvature, 0.02)


@part
@dataclass(frozen=True)
class SquaredLoss(Loss):
    """ℓ(t, y) = (t − y)²/(2σ²)."""

    name = "gaussian"
    identity_link = True
    far_off = "family='student-t', which such rows pull less"
    quadratic = True
    convex = True
    kernel = "squared"
    noise_variance: float = 1.0

    def __post_init__(self) -> None:
        positive("noise_variance", self.noise_variance)

    @property
    def numbers(self) -> tuple[float, ...]:
        """1/σ²."""
        return (1.0 / self.noise_variance,)

    @property
    def known_noise(self) -> float:
        """σ."""
        return math.sqrt(self.noise_variance)

    @property
    def curvature_bound(self) -> float:
        """1/σ², which is also the curvature."""
        return 1.0 / self.noise_variance

    @property
    def third_bound(self) -> float:
        """There is no third derivative."""
        return 0.0

    def overall(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The mean and the standard deviation of y."""
        return mean_and_sd(y - offset, weights)

    def faces(self, y: Array) -> Faces:
        """A square grows both ways."""
        return sides(np.ones(np.shape(y), bool), True)

    def value(self, t: Array, y: Array) -> Array:
        """(t − y)²/(2σ²)."""
        return (t - y) ** 2 / (2 * self.noise_variance)

    def slope(self, t: Array, y: Array) -> Array:
        """(t − y)/σ²."""
        return (t - y) / self.noise_variance

    def curvature(self, t: Array, y: Array) -> Array:
        """1/σ²."""
        return np.full(np.shape(t), 1.0 / self.noise_variance)

    def mean(self, t: Array) -> Array:
        """t."""
        return t

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """½ log 2πσ²."""
        return np.full(np.shape(y), 0.5 * math.log(2 * math.pi * self.noise_variance))

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """t + σΦ⁻¹(u)."""
        from scipy.special import ndtri

        return np.asarray(t + math.sqrt(self.noise_variance) * ndtri(u), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Φ((y − t)/σ)."""
        from scipy.special import ndtr

        p = np.asarray(ndtr((y - t) / math.sqrt(self.noise_variance)), np.float64)
        return p, p


def two_values(none: Array, event: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
    """P(Y < y) and P(Y ≤ y) of 0 and 1, from P(Y = 0)."""
    return np.where(event, none, 0.0), np.where(event, 1.0, none)


def mean_and_sd(y: Array, weights: Array) -> tuple[float, float]:
    """Of weighted numbers; the standard deviation of equal ones is taken as their size, or 1."""
    mean = float(np.average(y, weights=weights))
    sd = math.sqrt(float(np.average((y - mean) ** 2, weights=weights)))
    return mean, sd if sd > 1e-12 * abs(mean) else abs(mean) or 1.0


def log_odds(events: Any, total: Any) -> float:
    """log p/(1 − p) of a share, with half an event more of each kind."""
    return math.log((float(events) + 0.5) / (float(total - events) + 0.5))


def log_rate(y: Array, weights: Array, offset: Array) -> float:
    """log Σ wy / Σ we^{offset}, with half an event more: the rate of all rows together."""
    high = float(offset.max())
    total = float(weights @ y)
    return math.log(total if total else 0.5) - math.log(float(weights @ np.exp(offset - high))) - high
