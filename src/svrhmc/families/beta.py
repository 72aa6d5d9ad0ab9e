"""Shares 0 < y < 1 of mean μ = 1/(1 + e^{−η}) and variance μ(1 − μ)/(1 + φ); the label is the log odds z of y.

    t = (η, log φ),     a = μφ, b = (1 − μ)φ,     E(α) = α − α log α + log Γ(α),

    ℓ = E(a) + E(b) − E(φ) + a(sp(−z) − sp(−η)) + b(sp(z) − sp(η)),     sp(v) = log(1 + eᵛ),

which is log B(a, b) − a log y − b log(1 − y). ℓ is not convex, not even in η, and has no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import real_array, requirement
from svrhmc.core.serialise import part
from svrhmc.families.base import Formulas, Loss, Parameter, SharedFamily, family, spread_improper_reason
from svrhmc.families.labels import first_place
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones


@family
def beta() -> Loss:
    """Shares between 0 and 1 with log odds t of their mean and variance μ(1 − μ)/(1 + φ), log φ last in x.

    >>> float(beta().mean(np.array([0.0, 1.0])))
    0.5
    """
    return BetaLoss()


class Beta(NamedTuple):
    """log B(a, b) − a log y − b log(1 − y), with the label log y/(1 − y)."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With δ(α) = ψ(α) − log α, c = φμ(1 − μ) and S = δ(a) − δ(b) + η − z: slopes cS and
        a(δ(a) + sp(−z) − sp(−η)) + b(δ(b) + sp(z) − sp(η)) − φδ(φ); curvatures c(1 − 2μ)S + c²(ψ′(a) + ψ′(b)),
        cS + c(aψ′(a) − bψ′(b)) and the second slope + a²ψ′(a) + b²ψ′(b) − φ²ψ′(φ).
        """
        exp, soft, gamma_excess = op.exp, op.soft, op.gamma_excess

        @op.function
        def energy(eta: Value, tau: Value, z: Value, excess: Value, rate: Value) -> Value:
            phi, below, by_y, by_rest = exp(tau), soft(-eta)[0], soft(-z)[0], soft(z)[0]
            above, mean, rest = soft(eta)
            a, b = mean * phi, rest * phi
            excess_a, rate_a = gamma_excess(a, tau - below)
            excess_b, rate_b = gamma_excess(b, tau - above)
            value = excess_a + excess_b - excess + a * (by_y - below) + b * (by_rest - above)
            own = a * (rate_a + by_y - below) + b * (rate_b + by_rest - above) - phi * rate
            return value, a * rest * (rate_a - rate_b + (eta - z)), own

        def value(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
            return energy(eta, tau, y, *gamma_excess(op.exp(tau), tau))[0]

        def slope(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
            return energy(eta, tau, y, *gamma_excess(op.exp(tau), tau))[1:]

        def curvature(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
            by_eta, by_tau = slope(loss, eta, tau, y)
            phi, mean, rest = op.exp(tau), op.sigmoid(eta), op.sigmoid(-eta)
            a, b = mean * phi, rest * phi
            curved_a, curved_b = a * op.trigamma(a), b * op.trigamma(b)  # αψ′(α), at least 1
            return (
                by_eta * (rest - mean) + a * rest * (rest * curved_a + mean * curved_b),
                by_eta + a * rest * (curved_a - curved_b),
                by_tau + a * curved_a + b * curved_b - phi**2 * op.trigamma(phi),
            )

        def energies(loss: Fields, count: Value, t: Value, y: Value, s: Value, valued: Value) -> None:
            """What is of φ alone is found once, as φ is the same for all rows."""
            excess = rate = 0.0
            for i in range(count):
                if i == 0 or t[1, i] != t[1, i - 1]:
                    excess, rate = gamma_excess(exp(t[1, i]), t[1, i])
                t[2, i], s[0, i], s[1, i] = energy(t[0, i], t[1, i], y[i], excess, rate)

        return Formulas(slope, curvature, value, energies=energies, arguments=2)


@part
@dataclass(frozen=True)
class BetaLoss(SharedFamily):
    """Shares of mean μ = 1/(1 + e^{−η}) and concentration φ, t = (η, log φ); the label is log y/(1 − y)."""

    inverse_link = "logistic"
    name = "beta"
    aliases = ("betareg",)
    mistaken = ("betar", "beta-regression", "beta-family", "beta-mean", "beta-proportion")
    ratio = "odds ratio"
    modelled = "the log odds of the mean of {response}"
    shared_names = ("log concentration",)
    parameters = (Parameter("concentration", ("phi", "kappa")),)
    label_on_link = True
    spread = True
    nanoseconds = 150.0
    kernel = Beta

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Log odds of shares that are neither 0 nor 1."""
        array = np.asarray(real_array("y", y, (n,)), np.float64)
        why = "it has no density at 0 and 1: fit whether y is 0 or 1 by 'bernoulli' and the other rows by 'beta', or "
        why += "give counts of trials to 'binomial' or 'beta-binomial'; percentages have to be divided by 100"
        if (wrong := (array <= 0) | (array >= 1)).any():
            raise requirement("y", "shares above 0 and below 1 for the beta family", first_place(array, wrong), why)
        return np.asarray(np.log(array) - np.log1p(-array), np.float64)

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The mean of the log odds."""
        return float(np.average(y - offset, weights=weights)), 1.0

    def shared_start(self, y: Array) -> Array:
        """log of φ = m(1 − m)/v − 1, with the mean and variance of all shares."""
        share = NUMPY.sigmoid(y)
        mean, variance = float(share.mean()), max(float(share.var()), 1e-12)
        return np.array([math.log(max(mean * (1 - mean) / variance - 1.0, 0.1))])

    def recession_cones(self, y: Array) -> RecessionCones:
        """At a given φ a mean far from y costs more and more, both ways."""
        return one_predictor_cones(np.ones(np.shape(y), bool), True)

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """p(y) ~ φ as φ → 0, which is integrable by log φ; where all residuals are 0, f falls for ever as φ → ∞."""
        return spread_improper_reason(weight, 0, exact)

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """The variance of log y/(1 − y): ψ′(a) + ψ′(b)."""
        phi = np.exp(shared[:, 0])
        return NUMPY.trigamma(mean * phi) + NUMPY.trigamma((1 - mean) * phi)

    def variance(self, t: Array) -> Array:
        """μ(1 − μ)/(1 + φ)."""
        mean = self.mean(t)
        return mean * (1 - mean) / (1 + np.exp(t[..., 1]))

    def mean(self, t: Array) -> Array:
        """μ."""
        return np.asarray(NUMPY.sigmoid(t[..., 0]), np.float64)

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """log y(1 − y)."""
        return np.asarray(-NUMPY.softplus(y) - NUMPY.softplus(-y), np.float64)

    def original_labels(self, y: Array, trials: Array | None = None) -> Array:
        """y itself."""
        return np.asarray(NUMPY.sigmoid(y), np.float64)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        from scipy.special import betaincinv

        phi = np.exp(t[..., 1])
        return np.asarray(betaincinv(NUMPY.sigmoid(t[..., 0]) * phi, NUMPY.sigmoid(-t[..., 0]) * phi, u), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        from scipy.special import betainc

        phi = np.exp(t[..., 1])
        p = np.asarray(
            betainc(NUMPY.sigmoid(t[..., 0]) * phi, NUMPY.sigmoid(-t[..., 0]) * phi, self.original_labels(y)),
            np.float64,
        )
        return p, p
