"""What stationarity says of a chain's own moments: a measure of bias without the noise of the draws.

In whitened variables write ∇f(z) = z + r(z), with r small where π is nearly N(0, I). In any one direction, with
y = (z, v), a scheme makes y* = P y + Lp ξ and then, with r̂ the estimate of r at y*,

    y′ = A y* − k r̂ + Lq ξ′,            A = Q − k e₁ᵀ,      M = A P,

and E[r̂ | y*, memory] = r(z*) for every gradient that is unbiased. In its stationary law a chain has E y′ = E y and
E y′y′ᵀ = E yyᵀ (with snapshots, on average over an epoch), so that exactly

    E y = −(I − M)⁻¹ k E r(z*),
    S − M S Mᵀ = A Lp Lpᵀ Aᵀ + Lq Lqᵀ − A h kᵀ − k hᵀ Aᵀ + q k kᵀ,      S = E yyᵀ,  h = E y* r(z*),  q = E r̂².

Both are linear in averages of terms of the size of r:

    E z = −c₁ E r(z*),            E z² = s₀ + s_z E z*r(z*) + s_v E v*r(z*) + s_q E r̂².

Stein's identities, E ∇f = 0 and E z ∇f = 1 under π, then measure the bias of a mean, in standard deviations, and that
of a standard deviation, relative, to first order by

    E[r(z) − c₁ r(z*)],           ½ E[s₀ + s_z z*r(z*) + s_v v*r(z*) + s_q r̂² + z r(z) − 1],

whose terms vary as little as r does: the spread of z itself, which is all the noise of Stein's own averages where r is
small, has dropped out. Where the recorded state is the one at the kick, z = z*, the first is blind (c₁ = 1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.scheme import Scheme


class Balance(NamedTuple):
    """The five constants of a scheme."""

    c1: float
    s0: float
    sz: float
    sv: float
    sq: float

    def mean_terms(self, r: Array, r_kick: Array) -> Array:
        """r(z) − c₁ r(z*): their mean is the bias of the mean, in standard deviations."""
        terms: Array = r - self.c1 * r_kick
        return terms

    def sd_terms(
        self, z: Array, r: Array, z_kick: Array, v_kick: Array, r_kick: Array, estimate_square: Array
    ) -> Array:
        """½(E z² as the balance has it + z r(z) − 1), term by term: their mean is the relative bias of the sd."""
        second = self.s0 + self.sz * z_kick * r_kick + self.sv * v_kick * r_kick + self.sq * estimate_square
        terms: Array = (second + z * r - 1) / 2
        return terms


def balance(scheme: Scheme) -> Balance:
    """From the sixteen numbers of a scheme, by one solve for the means and one for the second moments.

    >>> from svrhmc.dynamics import Anchored
    >>> from svrhmc.targets import synthetic
    >>> found = balance(Anchored(1.0).scheme(synthetic(4, 2)))
    >>> round(found.c1, 12), round(found.s0, 12)
    (1.0, 1.0)
    """
    P, Q = scheme.before.matrix(), scheme.after.matrix()
    k, first, second = np.array(scheme.kick), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    A = Q - np.outer(k, first)
    M = A @ P
    before, after = scheme.before_noise.covariance(), scheme.after_noise.covariance()

    def crossed(h: Array) -> Array:
        return -np.outer(A @ h, k) - np.outer(k, A @ h)

    sides = (A @ before @ A.T + after, crossed(first), crossed(second), np.outer(k, k))
    solved = np.linalg.solve(np.eye(4) - np.kron(M, M), np.stack([side.ravel() for side in sides], axis=1))
    c1 = np.linalg.solve(np.eye(2) - M, k)[0]
    return Balance(float(c1), *(float(value) for value in solved[0]))
