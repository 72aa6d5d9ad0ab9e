"""The coupling of the effects of several terms: ε = L⁻ᵀz with LLᵀ = H, the Hessian of effects scaled level by level.

The levels of one term share no rows, and they are scaled so that its block of H is the identity. So a single term needs
nothing here, and of several terms the largest is eliminated before a small H is factorised,

    H = ⎡I   B⎤        L = ⎡I   0⎤
        ⎣Bᵀ  F⎦,           ⎣Bᵀ  N⎦,   NNᵀ = F − BᵀB,        ε₂ = N⁻ᵀz₂,   ε₁ = z₁ − B ε₂.

A large H is factorised by `svrhmc.density.elimination`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from svrhmc.core.arrays import Array, contract
from svrhmc.rows.csr import MatrixLike
from svrhmc.whitening.maps import Whitening, dense_whitening

_ROUNDING = 1e-9  # of the identity


class Inner(Protocol):
    """ε = L⁻ᵀz of states (states, dim)."""

    def displace(self, z: Array) -> Array:
        """L⁻ᵀz."""

    def pull(self, gradient: Array) -> Array:
        """L⁻¹g."""

    def into(self, x: Array) -> Array:
        """Lᵀε."""


class IdentityInner:
    """H = I."""

    def displace(self, z: Array) -> Array:
        """z."""
        return z

    pull = into = displace


class BorderedInner:
    """H is the identity on a slice of coordinates, which are eliminated first."""

    def __init__(self, first: slice, H: Array) -> None:
        self._first, self._rest = first, np.r_[0 : first.start, first.stop : len(H)]
        self._B = np.ascontiguousarray(H[first][:, self._rest])
        F = H[np.ix_(self._rest, self._rest)] - self._B.T @ self._B
        self._own = dense_whitening(np.zeros(len(F)), 0.5 * (F + F.T))

    def displace(self, z: Array) -> Array:
        """L⁻ᵀz."""
        out = np.empty_like(z)
        rest = self._own.displace(z[:, self._rest])
        out[:, self._rest] = rest
        out[:, self._first] = z[:, self._first] - contract("sr,ar->sa", rest, self._B)
        return out

    def pull(self, gradient: Array) -> Array:
        """L⁻¹g."""
        out = gradient.copy()
        out[:, self._rest] = self._own.pull(
            gradient[:, self._rest] - contract("sa,ar->sr", gradient[:, self._first], self._B)
        )
        return out

    def into(self, x: Array) -> Array:
        """Lᵀε."""
        out, rest = x.copy(), x[:, self._rest]
        out[:, self._first] += contract("sr,ar->sa", rest, self._B)
        out[:, self._rest] = self._own.into(rest)
        return out


def inner_map(
    H: MatrixLike, largest: slice, general: Callable[[Array, MatrixLike], Whitening | None]
) -> tuple[Inner, bool] | None:
    """The map for a dense or CSR matrix H, and whether LLᵀ = H to rounding; None where H is not positive definite.

    The block of the largest term is the identity unless rows have negative curvature. general: makes the whitening of
    any other H, given its centre.
    """
    if isinstance(H, np.ndarray):
        if _is_identity(H):
            return IdentityInner(), True
        if _is_identity(H[largest, largest]):
            try:
                return BorderedInner(largest, H), True
            except ValueError:
                return None
    elif abs(H - _eye(H.shape[0])).max() < _ROUNDING:
        return IdentityInner(), True
    whitening = general(np.zeros(H.shape[0]), H)
    return None if whitening is None else (whitening, whitening.identity_hessian)


def _is_identity(H: Array) -> bool:
    return bool(np.abs(H - np.eye(len(H))).max(initial=0.0) < _ROUNDING)


def _eye(size: int) -> MatrixLike:
    from scipy.sparse import identity

    return identity(size, format="csr")
