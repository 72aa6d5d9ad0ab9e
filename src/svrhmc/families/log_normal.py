"""Positive y whose logarithm is normal, log y ~ N(η, σ²): the Gaussian family for log y, said of y itself.

    t = (η, log σ),     the label is log y,     ℓ = log σ + ½((log y − η)/σ)²,     E y = e^{η + σ²/2}.

Coefficients are Gaussian given σ, as those of "gaussian" are, so that the law of the posterior is known
(`closed_forms.py`); e^η is the median of y, and e^β the ratio of medians as well as of means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.serialise import part
from svrhmc.families.base import Loss, family
from svrhmc.families.gaussian import GaussianLoss
from svrhmc.families.labels import logarithms


@family
def log_normal() -> Loss:
    """Positive y with log y ~ N(t, σ²), log σ the last coordinate of x.

    >>> float(log_normal().mean(np.array([0.0, -20.0])).round(9))  # e^{σ²/2} is 1 where σ is small
    1.0
    """
    return LogNormalLoss()


@part
@dataclass(frozen=True)
class LogNormalLoss(GaussianLoss):
    """log y ~ N(η, σ²), t = (η, log σ); the label is log y."""

    name = "log-normal"
    aliases = ("lognormal",)
    mistaken = ("log-gaussian", "galton")
    identity_link = False
    label_on_link = True
    ratio = "ratio of means"
    modelled = "the mean of log {response}"
    far_off = "family='gamma', or family=svrhmc.targets.families.student_t() for np.log of the response"
    without_residuals = "give log σ a normal prior, or drop columns"

    @property
    def scaled_by(self) -> str:
        return "log y"

    def with_noise(self, noise_variance: float) -> Loss:
        """Refused, as by every family but 'gaussian'."""
        return Loss.with_noise(self, noise_variance)

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Logarithms of positive numbers."""
        return logarithms(y, n, self.name)

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """½ log 2π + log y."""
        return super().constant(y) + y

    def seen(self, y: Array, trials: Array | None = None) -> Array:
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
