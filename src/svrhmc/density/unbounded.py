"""Densities without an upper bound, whose search for a mode never ends, though their posterior is proper: funnels.

In a hierarchy θⱼ ~ N(μ, τ²), j = 1 … k, with unknown τ, the density of (log τ, μ, θ) grows like τ^{−k} where τ → 0 and
all θⱼ = μ. There is no mode. But the volume in which it is so large shrinks like τᵏ, and what is left of both is the
marginal law of log τ, which is proper by the prior of τ.

Let a search have ended at x, H = ∇²f(x), and let S = diag(s) have the spread of the prior. At a minimum no coordinate
has a Newton step ∇ⱼf/|Hⱼⱼ| as long as sⱼ. Let δ be −sⱼ sign(∇ⱼf) in those that do, and 0 in the others. Where f(x + tδ)
falls by ½t or more, up to t = 4, it falls without end, as far as can be told. A search that rounding ended on its way
down has other coordinates far from their minimum as well, along which f falls at first and rises then: where f does not
fall along δ, δ is made of those alone along each of which it does. With B an orthonormal basis of the directions across
S⁻¹δ, the mass across the way is

    log m(x) = −f(x) − ½ log det BᵀSHSB + const,

by the Gaussian law there. Where m falls along δ, the way leads into a funnel, with less and less of the posterior in
it; where it does not, the posterior is improper.
"""

from __future__ import annotations

import numpy as np

from svrhmc.core.arrays import Array, Mask
from svrhmc.density.base import FiniteSum

_TIMES = (0.5, 1.0, 2.0, 4.0)  # t, along the way
_LEAST = 0.5  # by which f falls for each δ
_LESS = 0.01  # that log m falls along δ, more than rounding does
_ROUNDING = 1e-10  # of the largest eigenvalue
_NAMED = 3  # coordinates that a sentence names


def describe_funnel(target: FiniteSum, x: Array, spread: Array) -> str:
    """Why the posterior has no mode, in words, if a search that ended at x went down a funnel; else empty."""
    states = np.asarray(x, np.float64)[None]
    f, slope = target.energies(states)
    H = target.hessian(x)
    if not (np.isfinite(f).all() and np.isfinite(slope).all() and np.isfinite(H).all()):
        return ""
    endless: Mask = np.abs(slope[0]) > np.abs(np.diag(H)) * spread
    if not endless.any():
        return ""
    direction = np.where(endless, -np.sign(slope[0]) * spread, 0.0)
    falls = _falls_along(target, states, f[0], direction)
    if not _is_endless(falls):
        alone = np.diag(direction)[endless]
        endless[endless] = [_is_endless(_falls_along(target, states, f[0], one)) for one in alone]
        direction = np.where(endless, direction, 0.0)
        falls = _falls_along(target, states, f[0], direction)
        if not endless.any() or not _is_endless(falls):
            return ""
    H_further, least = target.hessian(x + direction), falls[_TIMES.index(1.0)] + _LESS
    if not np.isfinite(H_further).all() or not _log_volume_decrease(H, H_further, direction, spread) > least:
        return ""
    coordinates = np.flatnonzero(endless)[:_NAMED]
    names = target.names or tuple(f"coordinate {j}" for j in range(len(x)))
    named = " and ".join(f"{names[j]} {'falls' if direction[j] < 0 else 'grows'}" for j in coordinates)
    return (
        f"the start of the search alone, because the density has no upper bound: it rises without end as {named}, in a "
        "funnel that holds less and less of the posterior. Where effects are drawn around a mean with an unknown "
        "scale, theta ~ Normal(mu, tau), standardised effects are sampled faster: z ~ Normal(0, 1), theta = mu + tau z"
    )


def _falls_along(target: FiniteSum, states: Array, f: float, direction: Array) -> list[float]:
    """By how much f falls from its value at a state, (1, dim), to each place along the way."""
    return [float(f - target.potentials(states + t * direction)[0]) for t in _TIMES]


def _is_endless(falls: list[float]) -> bool:
    return all(fall >= _LEAST * t for fall, t in zip(falls, _TIMES, strict=True))


def _log_volume_decrease(first_hessian: Array, second_hessian: Array, direction: Array, spread: Array) -> float:
    """By how much −½ log det BᵀSHSB falls from one Hessian to another, by their large eigenvalues; the small ones, of
    directions that do not narrow, are rounding.
    """
    unit = direction / spread
    basis = np.linalg.svd(unit[None] / np.linalg.norm(unit))[2][1:].T
    first, last = (
        np.linalg.eigvalsh(basis.T @ (H * spread * spread[:, None]) @ basis) for H in (first_hessian, second_hessian)
    )
    large = (first > _ROUNDING * first.max()) & (last > _ROUNDING * last.max())
    return 0.5 * float(np.log(last[large] / first[large]).sum())
