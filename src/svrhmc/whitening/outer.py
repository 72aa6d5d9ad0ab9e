"""Outer coordinates of mixed models: coefficients and shared parameters whose spread depends on the scales of effects.

The coefficient of a column that hardly varies within levels, such as an intercept, is known only up to the spread of
the effects: its variance given θ grows with Σ(θ). With Ĥ the Hessian of (effects, outer coordinates) at θ̂, S its
Schur complement of the outer ones and Ŝ⁻¹ = RRᵀ, the estimate that is best at θ̂ weighs the effects by

    m = Ŝ⁻¹Γᵀ P̂,        Γ = Ĥᵤᵤ⁻¹Ĥᵤₒ,        so that at another θ its error has the covariance
    V(θ) = Ŝ⁻¹ + Σ_terms Σ_levels m (Σ(θ) − Σ̂) mᵀ.

V is linear in the covariances. The least covariance at θ is another one, but as the weights are optimal at θ̂, V differs
from it only to second order in θ − θ̂. In the coordinates of R, V = R T Rᵀ,

    T(θ) = T₀ + Σ_terms Σ_ab Σ(θ)_ab T_ab,      T_ab = Σ_levels t_a t_bᵀ,   t = RᵀΓᵀP̂,     T(θ̂) = I,

and the map from z, which is about N(0, I), is

    y = R Q(θ) z,        Q = chol T,        log |∂y/∂z| = log |Q(θ)| + constant.

Derivatives. ∂Q = Q Φ(N) with N = Q⁻¹ ∂T Q⁻ᵀ and Φ the lower triangle with half its diagonal. With v = QᵀRᵀ∇_y F, the
gradient by z,

    ∂f = vᵀΦ(N)z − ½ tr N = tr(T̄ᵀ ∂T),        T̄ = Q⁻ᵀ(Φ(vzᵀ) − ½ I)Q⁻¹,

and for Σ = MMᵀ with E = M⁻¹ ∂M (`svrhmc.priors.covariance`) ∂Σ = M(E + Eᵀ)Mᵀ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, contract
from svrhmc.density.mixed import Term

_LEAST = 1e-8  # the least eigenvalue of T₀; rounding could make it negative


class OuterAt(NamedTuple):
    """z and y (states, outer), and Q (states, outer, outer), at some states."""

    z: Array
    y: Array
    Q: Array


class Outer:
    """The map from z and θ to y. R: Ŝ⁻¹ = RRᵀ. weights: t of every term, (r, levels, outer)."""

    def __init__(self, R: Array, terms: Sequence[Term], weights: Sequence[Array], theta: Array) -> None:
        self.R, self.terms, self.dim = R, terms, len(R)
        self.T = [np.einsum("alo,blp->abop", t, t) for t in weights]
        rest = np.eye(self.dim) - self._spread(theta[None])[0]
        values, vectors = np.linalg.eigh(rest)
        self.T0 = (vectors * np.maximum(values, _LEAST)) @ vectors.T
        self._half = 0.5 * np.eye(self.dim)
        self._lower = np.tril(np.ones((self.dim, self.dim))) - self._half

    def _spread(self, theta: Array) -> Array:
        """Σ_terms Σ_ab Σ_ab T_ab: (states, dim of θ) → (states, outer, outer)."""
        total = np.zeros((len(theta), self.dim, self.dim))
        for term, T in zip(self.terms, self.T, strict=True):
            if term.width == 1:
                total += np.exp(2 * theta[:, term.theta])[..., None] * T[0, 0]
            else:
                M = term.covariance.factor(theta[:, term.theta])
                total += contract("sab,abop->sop", M @ M.transpose(0, 2, 1), T)
        return total

    def root(self, theta: Array) -> Array:
        """Q; NaN where a state is so far out that T is not positive definite."""
        T = self.T0 + self._spread(theta)
        try:
            return np.asarray(np.linalg.cholesky(T))
        except np.linalg.LinAlgError:
            return np.stack([_root(matrix) for matrix in T])

    def out(self, z: Array, theta: Array) -> OuterAt:
        """y of z."""
        Q = self.root(theta)
        return OuterAt(z, contract("sj,ij->si", contract("sij,sj->si", Q, z), self.R), Q)

    def into(self, y: Array, theta: Array) -> Array:
        """z of y."""
        q = np.linalg.solve(self.R, y.T).T
        return np.asarray(np.linalg.solve(self.root(theta), q[..., None])[..., 0])

    def backpropagate(self, at: OuterAt, theta: Array, by_y: Array, by_theta: Array) -> tuple[Array, Array]:
        """−log |Q| and the gradient by z, from the gradient by y; the part by θ is added to `by_theta`."""
        Q = at.Q
        v = contract("sij,si->sj", Q, contract("sj,ji->si", by_y, self.R))
        F = v[:, :, None] * at.z[:, None, :] * self._lower - self._half
        inverse = np.linalg.inv(Q)
        by_T = inverse.transpose(0, 2, 1) @ F @ inverse
        for term, T in zip(self.terms, self.T, strict=True):
            by_sigma = contract("sop,abop->sab", by_T, T)
            own = theta[:, term.theta]
            if term.width == 1:
                by_theta[:, term.theta] += 2 * np.exp(2 * own) * by_sigma[:, 0]
                continue
            M, E = term.covariance.factor(own), term.covariance.derivatives(own)
            changed = M @ (E + E.transpose(0, 1, 3, 2)) @ M.transpose(0, 2, 1)
            by_theta[:, term.theta] += contract("sab,ksab->sk", by_sigma, changed)
        return -np.log(np.einsum("sii->si", Q)).sum(axis=1), v


def _root(T: Array) -> Array:
    try:
        return np.asarray(np.linalg.cholesky(T))
    except np.linalg.LinAlgError:
        return np.full(T.shape, np.nan)
