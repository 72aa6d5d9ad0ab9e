"""The whitening of a Hessian that is known by its products only, where dim² numbers are too many.

    W = diag(s)(I + V diag(|θ|^{−½} − 1)Vᵀ),      s = diag(H)^{−½},   (θ, v) the pairs of T = diag(s) H diag(s)
                                                                      that stand out (`krylov.py`)

A product H u is a derivative of the gradient along u, and costs about two gradients; nothing here takes more than some
times dim numbers. What has to be found is s and V, each of which is in the way of the other:

**The diagonal.** For signs ω, independent and even, ωᵢ(Hω)ᵢ has the mean Hᵢᵢ and the variance Σ_{j≠i} Hᵢⱼ² (Bekas,
Kokiopoulou & Saad 2007). In units in which one coordinate is a thousand times another, this noise is that of the
stiffest coordinate that i hangs on. So the signs are drawn in the variables of the scale s known so far,

    qᵢ = ωᵢ(H(s∘ω))ᵢ/sᵢ,      E qᵢ = Hᵢᵢ,      Var qᵢ = Σ_{j≠i} (Hᵢⱼ sⱼ/sᵢ)²,

block after block, each with a better s; the means of the blocks are weighed by their precision. Where an estimate is
below its own standard error, that error is taken for it: a diagonal that is too large slows one coordinate down, and
one that is far too small makes every step short.

**What stands out.** A direction of T with θ = 100 adds 100²vᵢ² to the variance of qᵢ, and its own share to Hᵢᵢ: it
hides the scale of all others. Once V is known its part is taken out of the same products, with no others,

    G = S⁻¹V diag(θ − 1)VᵀS⁻¹,   S = diag(s),        sᵢ^{−2} ← (H − G)ᵢᵢ = E ωᵢ((H − G)(s∘ω))ᵢ/sᵢ,

which has no noise, and leaves s as it is, exactly where T is the identity but for V (as in factor analysis: H is a
diagonal and what stands out). With the better s the same directions of x, and the products with them, are those of
another T; from there the search goes on along the residuals of the pairs that are least sure.

**Why not by draws.** Draws x with their scores α = −∇f(x) give the Gaussian whose scores are nearest to them, in the
sense of E|α + Σ⁻¹(x − μ)|²_Σ (the Fisher divergence; Seyboldt, Carlson & Carpenter, arXiv 2603.18845). Up to constants
it is tr(ΣC_α) + tr(Σ⁻¹C_x), least where ΣC_αΣ = C_x: Σ is the geometric mean of C_x and C_α⁻¹, and on a diagonal
√(Var xᵢ/Var αᵢ). Where f is a quadratic function a draw with its score is one product, α = −H(x − μ), with a random
direction: what a Krylov space has after its first block, and all later ones go farther. For twenty directions with θ
from 0.01 to 100 in 1500 dimensions, Σ from 100 independent draws leaves |WᵀHW − I|²_F = 2600 (eigenvalues from 0.03 to
31), from 400 draws 480, and the 112 products here leave 0.7 (from 0.86 to 1.17); for a logistic regression with 1500
correlated columns it is 15,000, 5500 and 930. And draws need a chain that has found its way before it is whitened.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import check_budget
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.models.model import TOGETHER
from svrhmc.whitening.krylov import Krylov, outstanding_pairs
from svrhmc.whitening.maps import LowRankWhitening

_PROBED, _ROUNDS = 3, 10  # blocks for the diagonal, and of the Krylov space
_REFINED = (0.4, 0.7)  # of these blocks, after which the diagonal is refined
_DISTINCT = 3.0  # eigenvalues that a Ritz value stands for, below which it is one
_WORK = 1 << 29  # multiplications of a product of a Krylov space with itself
_FLAT = 1e-30  # of the largest curvature of a coordinate: the least that one is taken for
_START, _CHECK = 1 << 10, 1 << 11  # numbers of random blocks

Products = Callable[[Array], Array]  # of H with some columns


@dataclass(frozen=True, eq=False)
class _StandingOut:
    """G = S⁻¹V diag(c)VᵀS⁻¹: what stands out of H."""

    scale: Array
    basis: Array
    excess: Array

    def products(self, u: Array) -> Array:
        """G u."""
        return (self.basis * self.excess) @ (self.basis.T @ (u / self.scale[:, None])) / self.scale[:, None]


class _Diagonal:
    """Estimates of diag H from products with random signs."""

    def __init__(self, products: Products, dim: int) -> None:
        self._products, self._dim = products, dim
        self._probes: list[tuple[Array, Array, Array]] = []  # s, ω and H(s∘ω)

    def probe(self, scale: Array) -> None:
        """Multiply one block more of random signs."""
        signs = _signs(len(self._probes), self._dim)
        self._probes.append((scale, signs, self._products(scale[:, None] * signs)))

    def without(self, removed: _StandingOut) -> Array:
        """diag(H − G), G being what stands out."""
        total, precision = np.zeros(self._dim), np.zeros(self._dim)
        for scale, signs, image in self._probes:
            estimates = signs * (image - removed.products(scale[:, None] * signs)) / scale[:, None]
            mean = estimates.mean(axis=1)
            variance = estimates.var(axis=1) / (TOGETHER - 1) + 1e-12 * mean**2 + 1e-300
            total, precision = total + mean / variance, precision + 1 / variance
        sizes = np.maximum(np.abs(total / precision), precision**-0.5)
        return np.asarray(np.maximum(sizes, max(_FLAT * float(sizes.max()), 1e-300)), np.float64)


def whiten_by_products(target: Any, rank: int) -> LowRankWhitening:
    """A whitening at the mode of a target with `hessian_products`, with at most so many directions beside the
    diagonal.
    """
    mode = target.mode()

    def products(u: Array) -> Array:
        target.mode_passes += u.shape[1]
        check_budget(target.mode_passes)
        room = np.zeros((TOGETHER, len(mode)))
        room[: u.shape[1]] = u.T
        return np.asarray(target.hessian_products(mode, room)[: u.shape[1]].T, np.float64)

    return _whitened(mode, products, rank)


def _whitened(mode: Array, products: Products, rank: int) -> LowRankWhitening:
    dim = len(mode)
    rounds = min(_ROUNDS, math.isqrt(_WORK // dim) // TOGETHER, dim // TOGETHER) if rank else 0
    diagonal, removed = _Diagonal(products, dim), _StandingOut(np.ones(dim), np.zeros((dim, 0)), np.zeros(0))
    scale = removed.scale
    for _ in range(_PROBED):
        diagonal.probe(scale)
        scale = diagonal.without(removed) ** -0.5
    space = Krylov(dim)
    start = Stream(_START, np.arange(TOGETHER)).normals(0, dim, Purpose.DATA, Purpose.DATA_FINE).T
    for number in range(rounds):
        if number and number in [math.floor(share * rounds) for share in _REFINED]:
            before, removed = scale, _outstanding(space, scale)
            scale = diagonal.without(removed) ** -0.5
            space.rescale(before / scale)
            start = space.largest_residuals(TOGETHER)
        start = space.grow(partial(_scaled, products, scale), start)
    whitening = _chosen(mode, scale, space, rank)
    signs = _signs(_CHECK, dim)
    away = whitening.pull(products(whitening.displace(signs.T).T).T) - signs.T
    return replace(whitening, left=float(f"{(away**2).sum(axis=1).mean():.3g}"))


def _scaled(products: Products, scale: Array, u: Array) -> Array:
    """T u."""
    return scale[:, None] * products(scale[:, None] * u)


def _outstanding(space: Krylov, scale: Array) -> _StandingOut:
    pairs = space.pairs()
    _, worth = outstanding_pairs(pairs)
    return _StandingOut(scale, space.basis @ pairs.rotation[:, worth], pairs.values[worth] - 1)


def _chosen(mode: Array, scale: Array, space: Krylov, rank: int) -> LowRankWhitening:
    """Pairs that stand out alone, those farthest from 1 first; and the least of the others."""
    pairs = space.pairs()
    _, worth = outstanding_pairs(pairs)
    sizes = np.abs(pairs.values)
    chosen = worth[space.multiplicities()[worth] < _DISTINCT]
    chosen = chosen[np.argsort(-np.abs(np.log(sizes[chosen])), kind="stable")][:rank]
    least = float(f"{np.delete(sizes, chosen).min(initial=1.0):.3g}")
    return LowRankWhitening(
        mode, scale, space.basis @ pairs.rotation[:, chosen], sizes[chosen] ** -0.5 - 1, least=least
    )


def _signs(number: int, dim: int) -> Array:
    normals = Stream(number, np.arange(TOGETHER)).normals(0, dim, Purpose.DATA, Purpose.DATA_FINE)
    return np.where(normals > 0, 1.0, -1.0).T
