"""Covariances of group effects: their coordinates θ, the factor M with Σ = MMᵀ, its derivatives, and the prior of θ.

For a term with r columns θ = (log τ₁, …, log τᵣ, c₁₀, c₂₀, c₂₁, …), and with pᵢⱼ = tanh cᵢⱼ the canonical partial
correlations

    Lᵢⱼ = pᵢⱼ ∏_{k<j} √(1 − pᵢₖ²) for j < i,      Lᵢᵢ = ∏_{k<i} √(1 − pᵢₖ²),      Ω = LLᵀ,      M = diag(τ) L.

What everything else needs of the derivatives is E = M⁻¹ ∂M/∂θ, which does not depend on τ:

    E = L⁻¹ eₐeₐᵀ L  for log τₐ,        E = L⁻¹ ∂L/∂cᵢⱼ  for cᵢⱼ,
    ∂Lᵢₗ/∂cᵢⱼ = (1 − pᵢⱼ²) ∏_{k<j} √(1 − pᵢₖ²) at l = j,   −pᵢⱼ Lᵢₗ for l > j.

The prior |Ω|^{η−1} of the correlations (Lewandowski, Kurowicka & Joe 2009) makes the pᵢⱼ independent, with density
∝ (1 − p²)^{b−1}, b = η + (r − 2 − j)/2, so that with dp = (1 − p²) dc

    −log p(c) = −Σ bⱼ log(1 − tanh² cᵢⱼ),        ∂/∂cᵢⱼ = 2 bⱼ tanh cᵢⱼ.

All of this holds for the effects of the columns z − m, with a centre m and m₀ = 0 for the intercept: where m is far
from 0, as for years, the intercept of a level is its slope extrapolated over m, and no weak prior could make the two
about independent there. Results are reported for the columns z themselves: from zᵀu = (z − m)ᵀu′

    u₀ = u′₀ − Σ_{j>0} mⱼu′ⱼ,  uⱼ = u′ⱼ,  or  u = Au′,        Σ = AMMᵀAᵀ,        |A| = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.priors.terms import Heavy, Prior, settle

_WHOLE = 1 - 1e-15  # the largest partial correlation that has a coordinate
_FURTHEST = 50.0  # |c| beyond which a correlation is ±1 to rounding


@dataclass(frozen=True, eq=False)
class Covariance:
    """The covariance of one term, with its prior: r scales, then r(r − 1)/2 correlations. centre: m, None for 0."""

    width: int
    heavy: Heavy
    lkj: float
    centre: Array | None = None

    @staticmethod
    def of(priors: Sequence[Prior], lkj: float, centre: Array | None = None) -> Covariance:
        """The covariance with these priors of the standard deviations, one for each column."""
        heavy = settle(list(priors), len(priors), positive=True).heavy
        assert heavy is not None  # as priors of positive numbers have a ψ
        return Covariance(len(priors), heavy, float(lkj), centre)

    @property
    def dim(self) -> int:
        """The number of coordinates θ."""
        return self.width * (self.width + 1) // 2

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(i, j), j < i, in the order of the correlations."""
        return [(i, j) for i in range(self.width) for j in range(i)]

    def correlation_factor(self, theta: Array) -> Array:
        """L of many θ: (states, dim) → (states, r, r)."""
        if self.width == 1:
            return np.ones((len(theta), 1, 1))
        c = theta[:, self.width :]
        L = np.zeros((len(theta), self.width, self.width))
        left = np.ones((len(theta), self.width))  # ∏ √(1 − p²) of each row so far
        for p, rest, (i, j) in zip(np.tanh(c).T, _sech(c).T, self.pairs, strict=True):
            L[:, i, j] = p * left[:, i]
            left[:, i] *= rest
        places = np.arange(self.width)
        L[:, places, places] = left
        return L

    def factor(self, theta: Array) -> Array:
        """M: (states, dim) → (states, r, r)."""
        M: Array = np.exp(theta[:, : self.width, None]) * self.correlation_factor(theta)
        return M

    def derivatives(self, theta: Array) -> Array:
        """E of every coordinate: (states, dim) → (dim, states, r, r)."""
        r, L = self.width, self.correlation_factor(theta)
        if r == 1:
            return L[None]
        inverse = np.linalg.inv(L)
        E = np.empty((self.dim, len(theta), r, r))
        for a in range(r):
            E[a] = inverse[:, :, a, None] * L[:, a, None, :]
        p_of, rest = np.tanh(theta[:, r:]).T, _sech(theta[:, r:]).T
        for place, (p, root, (i, j)) in enumerate(zip(p_of, rest, self.pairs, strict=True), r):
            change = np.zeros((len(theta), r))
            earlier = np.prod([rest[self.pairs.index((i, k))] for k in range(j)], axis=0)
            change[:, j] = root**2 * earlier
            change[:, j + 1 : i + 1] = -p[:, None] * L[:, i, j + 1 : i + 1]
            E[place] = inverse[:, :, i, None] * change[:, None, :]
        return E

    def prior(self, theta: Array) -> tuple[Array, Array]:
        """−log p(θ) up to a constant, and its gradient: (states, dim) → (states,), (states, dim)."""
        scales, c = theta[:, : self.width], theta[:, self.width :]
        value, slope = self.heavy.value(scales), self.heavy.slope(scales)
        if self.width == 1:
            return value, slope
        value = value + (2 * self.correlation_shapes * (np.logaddexp(c, -c) - np.log(2.0))).sum(axis=1)
        return value, np.concatenate([slope, 2 * self.correlation_shapes * np.tanh(c)], axis=1)

    def prior_curvature(self, theta: Array) -> Array:
        """The diagonal of its Hessian at one θ."""
        bend = 2 * self.correlation_shapes / np.cosh(theta[self.width :]) ** 2
        return np.concatenate([self.heavy.curvature(theta[: self.width]), bend])

    @cached_property
    def correlation_shapes(self) -> Array:
        """b of every correlation."""
        return np.array([self.lkj + (self.width - 2 - j) / 2 for _, j in self.pairs])

    def coordinates(self, covariance: Array) -> Array:
        """θ of one Σ."""
        tau = np.sqrt(np.diag(covariance))
        L = np.linalg.cholesky(covariance / np.outer(tau, tau))
        left, partial = np.ones(self.width), []
        for i, j in self.pairs:
            p = float(np.clip(L[i, j] / left[i], -0.999, 0.999))
            partial.append(np.arctanh(p))
            left[i] *= np.sqrt(1 - p * p)
        return np.concatenate([np.log(tau), partial])

    def from_sds_and_correlations(self, moments: Array) -> Array:
        """θ from standard deviations and correlations, the inverse of `sds_and_correlations`."""
        moments = self.centred_sds_and_correlations(moments)
        L, left = semidefinite_root(self._correlations(moments)), np.ones((len(moments), self.width))
        out = np.empty_like(moments)
        out[:, : self.width] = np.log(moments[:, : self.width])
        for place, (i, j) in enumerate(self.pairs, self.width):
            p = np.clip(L[:, i, j] / np.maximum(left[:, i], 1e-300), -_WHOLE, _WHOLE)
            out[:, place] = np.arctanh(p)
            left[:, i] *= np.sqrt((1 - p) * (1 + p))
        return out

    def log_prior(self, moments: Array) -> Array:
        """The log prior of standard deviations and correlations at the centre, up to a constant, (states, dim); the
        first correlation has the log prior of all correlations together.
        """
        moments = self.centred_sds_and_correlations(moments)
        out, phi = np.zeros(moments.shape), np.log(moments[:, : self.width])
        out[:, : self.width] = -self.heavy.values(phi) - phi  # ψ is of log τ, whose density is τ times that of τ
        if self.width > 1 and self.lkj != 1:
            out[:, self.width] = (self.lkj - 1) * np.linalg.slogdet(self._correlations(moments))[1]
        return out

    def _correlations(self, moments: Array) -> Array:
        """Ω: (states, r, r)."""
        omega = np.broadcast_to(np.eye(self.width), (len(moments), self.width, self.width)).copy()
        for place, (i, j) in enumerate(self.pairs, self.width):
            omega[:, i, j] = omega[:, j, i] = moments[:, place]
        return omega

    def sds_and_correlations(self, theta: Array) -> Array:
        """Standard deviations, then correlations, of the effects u: (states, dim) → (states, dim)."""
        L, scales = self.correlation_factor(theta), np.exp(theta[:, : self.width])
        return (
            self._concatenate_sds(scales, L)
            if self.centre is None
            else self._shift_first(scales[:, :, None] * L, -self.centre)
        )

    def centred_sds_and_correlations(self, moments: Array) -> Array:
        """Standard deviations and correlations of the effects u′, which have the prior, from those of u."""
        if self.centre is None:
            return moments
        root = moments[:, : self.width, None] * semidefinite_root(self._correlations(moments))
        return self._shift_first(root, self.centre)

    def _shift_first(self, root: Array, by: Array) -> Array:
        """Standard deviations and correlations of effects with the root (states, r, r) of their covariance, after
        adding `by` times the others to the first.
        """
        root = root.copy()
        root[:, 0] += np.einsum("a,sab->sb", by, root)
        scales = np.maximum(np.sqrt((root * root).sum(axis=2)), 1e-300)
        return self._concatenate_sds(scales, root / scales[:, :, None])

    def _concatenate_sds(self, scales: Array, L: Array) -> Array:
        """Scales, then the correlations LLᵀ; the rows of L have length 1."""
        omega = np.clip(L @ L.transpose(0, 2, 1), -1.0, 1.0)
        correlations = np.array([omega[:, i, j] for i, j in self.pairs]).reshape(-1, len(L)).T
        return np.concatenate([scales, correlations], axis=1)


def semidefinite_root(matrices: Array) -> Array:
    """Lower triangles L with LLᵀ the matrices (…, r, r), which may be singular to rounding: pivots below 0 are 0."""
    L = np.zeros(matrices.shape)
    for j in range(matrices.shape[-1]):
        rest = matrices[..., j:, j] - np.einsum("...ik,...k->...i", L[..., j:, :j], L[..., j, :j])
        pivot = np.sqrt(np.maximum(rest[..., 0], 0.0))
        L[..., j:, j] = np.where(pivot[..., None] > 0, rest / np.where(pivot > 0, pivot, 1.0)[..., None], 0.0)
        L[..., j, j] = pivot
    return L


def _sech(c: Array) -> Array:
    """√(1 − tanh²c) = 1/cosh c, which stays above 0 however far out a state is."""
    rest: Array = 1 / np.cosh(np.clip(c, -_FURTHEST, _FURTHEST))
    return rest
