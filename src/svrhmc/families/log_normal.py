"""Positive y whose logarithm is normal, log y ~ N(η, σ²): the Gaussian family for log y, said of y itself.

    t = (η, log σ),     the label is log y,     ℓ = log σ + ½((log y − η)/σ)²,     E y = e^{η + σ²/2}.

Coefficients are Gaussian given σ, as those of "gaussian" are, so that the law of the posterior is known
(`closed_forms.py`); e^η is the median of y, and e^β the ratio of medians as well as of means.

Times that may be right-censored have labels as in `times.py`, +time or −time, with −log Φ(−z) for a censored one: then
no law is known, and priors are those of times. Where every label is an event it is the family without censoring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import boolean
from svrhmc.core.serialise import part
from svrhmc.families.base import Coded, Formulas, Loss, family
from svrhmc.families.bounds import Bounded
from svrhmc.families.gaussian import GaussianLoss
from svrhmc.families.labels import logarithms_of_positive
from svrhmc.families.laws import NORMAL, accelerated
from svrhmc.families.primitives import Primitives
from svrhmc.families.times import ScaledTimes


@family
def log_normal(censored: bool = False) -> Loss:
    """Positive y with log y ~ N(t, σ²), log σ the last coordinate of x.

    censored: whether labels are times that may be right-censored, −time for such (`svrhmc.families.censored`).

    >>> float(log_normal().mean(np.array([0.0, -20.0])).round(9))  # e^{σ²/2} is 1 where σ is small
    1.0
    """
    return CensoredLogNormalLoss() if boolean("censored", censored) else LogNormalLoss()


@part
@dataclass(frozen=True)
class LogNormalLoss(GaussianLoss):
    """log y ~ N(η, σ²), t = (η, log σ); the label is log y."""

    inverse_link = ""
    name = "log-normal"
    aliases = ("lognormal",)
    mistaken = ("log-gaussian", "galton")
    identity_link = False
    label_on_link = True
    ratio = "ratio of means"
    modelled = "the mean of log {response}"
    multiplied = "the mean of {response}"
    far_off = "family='gamma', or family=svrhmc.targets.families.student_t() for np.log of the response"
    without_residuals = "give log σ a normal prior, or drop columns"

    @property
    def scaled_by(self) -> str:
        return "log y"

    def with_noise(self, noise_variance: float) -> Loss:
        """Refused, as by every family but 'gaussian'."""
        return Loss.with_noise(self, noise_variance)

    def with_censoring(self) -> Loss:
        return CensoredLogNormalLoss()

    def with_bounds(self) -> Loss:
        return BoundedLogNormalLoss()

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Logarithms of positive numbers."""
        return logarithms_of_positive(y, n, self.name)

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """½ log 2π + log y."""
        return super().constant(y) + y

    def original_labels(self, y: Array, trials: Array | None = None) -> Array:
        """y itself."""
        return np.exp(y)

    def variance(self, t: Array) -> Array:
        """(e^{σ²} − 1)(E y)²."""
        return self.mean(t) ** 2 * np.expm1(np.exp(2 * t[..., 1]))

    def mean(self, t: Array) -> Array:
        """e^{η + σ²/2}."""
        return np.asarray(np.exp(t[..., 0] + 0.5 * np.exp(2 * t[..., 1])), np.float64)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """e^{η + σΦ⁻¹(u)}."""
        return np.exp(super().draw(t, u))

    def survival(self, t: Array, time: Array) -> Array:
        """Φ(−z)."""
        return CensoredLogNormalLoss().survival(t, time)


class CensoredLogNormal(NamedTuple):
    """log σ + ½z², or −log Φ(−z)."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """Those of the normal law."""
        return accelerated(op, NORMAL)


@part
@dataclass(frozen=True)
class CensoredLogNormalLoss(ScaledTimes):
    """log T = η + σε, ε ~ N(0, 1); labels are +time or −time."""

    name = "log-normal"
    law = NORMAL
    far_off = "family='log-logistic', which has heavier tails"
    nanoseconds = 45.0
    kernel = CensoredLogNormal

    def with_bounds(self) -> Loss:
        return BoundedLogNormalLoss()

    def coded(self, y: npt.ArrayLike) -> Coded:
        """Without censored times it is the family whose law is known."""
        array = np.asarray(y)
        if array.dtype.kind in "iuf" and array.size and (array > 0).all():
            return Coded(LogNormalLoss(), y)
        return super().coded(y)


@part
@dataclass(frozen=True)
class BoundedLogNormalLoss(Bounded, CensoredLogNormalLoss):  # type: ignore[override]  # convex by what is truncated
    """The same within bounds."""

    law = NORMAL
    without_bounds = CensoredLogNormalLoss()
