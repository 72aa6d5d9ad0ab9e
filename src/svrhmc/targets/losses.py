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
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, digest
from svrhmc.core.errors import positive, real_array, requirement
from svrhmc.core.parts import part


class Observed(NamedTuple):
    """Labels as a loss takes them, and how many observations each stands for (None: one)."""

    y: Array
    counts: Array | None


class Loss(ABC):
    """Minus the log-likelihood of one row as a function of its linear predictor.

    −log p(y | t) = value(t, y) + constant(y).
    """

    quadratic: ClassVar[bool] = False  # whether the curvature is constant, so that the posterior is Gaussian
    convex: ClassVar[bool] = True
    wide: ClassVar[bool] = False  # whether t, slopes and curvatures have axes of their own (`shared.py`)
    shared: ClassVar[int] = 0  # parameters that all rows share
    shared_prior: ClassVar[tuple[float, float]] = (0.25, 0.0)  # precision and mean of each of them
    tried: ClassVar[bool] = False  # whether a row's weight is how many trials its label stands for
    mixture: ClassVar[bool] = False  # whether coefficients are Gaussian given the shared parameter (`laws.py`)
    kernel: ClassVar[str | None] = None  # the name of its compiled form, in `svrhmc.kernels.losses`

    @property
    def numbers(self) -> tuple[float, ...]:
        """The fields of the compiled form: here the scale that it is multiplied by."""
        return (1.0,)

    @property
    def nanoseconds(self) -> float:
        """What value and slope of a row take beyond those of the logistic loss, as `benchmarks/costs.py` measures."""
        return 0.0

    @property
    def blocks(self) -> int:
        """Predictors that have coefficients."""
        return 1

    def shared_start(self, y: Array) -> Array:
        """Shared parameters from which the mode is looked for."""
        return np.zeros(self.shared)

    @property
    def curvature_bound(self) -> float | None:
        """sup ∂²ℓ/∂t² over all t and y."""
        return None

    @property
    def third_bound(self) -> float | None:
        """sup |∂³ℓ/∂t³| over all t and y."""
        return None

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """n labels as the loss takes them; refuses others."""
        return np.asarray(real_array("y", y, (n,)), np.float64)

    def observed(self, y: npt.ArrayLike, n: int, trials: npt.ArrayLike | None = None) -> Observed:
        """Labels, and how many observations each stands for; refuses trials where a label is not one of them."""
        if trials is not None:
            raise requirement("trials", f"None for {self}", "an array", "only a binomial label is a number of trials")
        return Observed(self.labels(y, n), None)

    def settled(self, y: npt.ArrayLike) -> Loss:
        """The loss for these labels, where it depends on them."""
        return self

    def start(self, y: Array) -> Array | None:
        """The predictor that each label alone would have, from which the mode is looked for; None: 0 for all."""
        return None

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
        """What −log p(y | t) has besides `value`; 0 where a loss of one's own does not say it."""
        return np.zeros(np.shape(y))

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """The y that a number u, uniform on (0, 1), stands for: the quantile of the law at t."""
        raise requirement("loss", "one that says how a y is drawn", f"{self}")

    def identity(self, label: Array) -> str:
        """A name for the loss: that of its class, and a digest of its values at some points for one label."""
        t = np.linspace(-3.0, 3.0, 13)
        return f"{type(self).__name__} {digest(self.value(t, label), self.slope(t, label))}"

    def third_size(self, curvature: Array) -> Array:
        """The size of |∂³ℓ/∂t³| near a point with this curvature; a weight for drawing rows, not a bound."""
        return curvature


@part
@dataclass(frozen=True)
class LogisticLoss(Loss):
    """ℓ(t, y) = log(1 + e^{−yt}) with y ∈ {−1, +1}; the slope −y/(1 + e^{yt}) has no cancellation."""

    kernel = "logistic"

    @property
    def curvature_bound(self) -> float:
        """p(1 − p) ≤ 1/4."""
        return 0.25

    @property
    def third_bound(self) -> float:
        """p(1 − p)|1 − 2p| ≤ 1/(6√3)."""
        return 1 / (6 * math.sqrt(3))

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """{0, 1} or {−1, 1}, as signs."""
        labels = super().labels(y, n)
        found = np.unique(labels)
        if not (np.isin(found, (0, 1)).all() or np.isin(found, (-1, 1)).all()):
            shown = ", ".join(f"{value:g}" for value in found[:4]) + (", …" if len(found) > 4 else "")
            raise requirement("y", "labels in {0, 1} or {-1, 1}", f"the values {shown}")
        return np.where(labels > 0, 1.0, -1.0)

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

    def third_size(self, curvature: Array) -> Array:
        """|ℓ‴| = ℓ″|1 − 2p| is at most ℓ″, but a row may move to where ℓ″ is larger: 0.02 at least."""
        return np.maximum(curvature, 0.02)


@part
@dataclass(frozen=True)
class SquaredLoss(Loss):
    """ℓ(t, y) = (t − y)²/(2σ²)."""

    quadratic = True
    kernel = "squared"
    noise_variance: float = 1.0

    def __post_init__(self) -> None:
        positive("noise_variance", self.noise_variance)

    @property
    def numbers(self) -> tuple[float, ...]:
        """1/σ²."""
        return (1.0 / self.noise_variance,)

    @property
    def curvature_bound(self) -> float:
        """1/σ², which is also the curvature."""
        return 1.0 / self.noise_variance

    @property
    def third_bound(self) -> float:
        """There is no third derivative."""
        return 0.0

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
