"""The variables in which regressions with a learnt scale are sampled: nearly independent normals.

At φ₀ and the mode w₀ of w given φ₀, with H the Hessian of all but the prior that is learnt, P₀ = H + e^{−2φ₀}D = CCᵀ
and C⁻¹DC⁻ᵀ = Q diag(d) Qᵀ. In the columns of U = C⁻ᵀQ both are diagonal, and given another φ, were the rows Gaussian,

    w ~ N(w₀ + Ua(φ), U diag(s(φ))⁻¹ Uᵀ),    s = h + e^{−2φ}d,    h = 1 − e^{−2φ₀}d ≥ 0,
    a = −(δc + g)/s,    δ = e^{−2φ} − e^{−2φ₀},    c = UᵀDw₀,    g = Uᵀ∇f(w₀ | φ₀).

So with z = (ε, t) ~ N(0, I) about,

    φ = G(t),    w = w₀ + U(a(φ) + ε/√s(φ)),    log |∂(w, φ)/∂z| = −½ Σ log s(φ) + log G′(t) + constant,

and no other φ takes a factorisation. G follows the density of φ with w integrated out so, −log of which is

    L(φ) = qφ + ½e^{−2φ}w₀ᵀDw₀ − ½ Σ s a² + ½ Σ log s − log p(φ),

but for what the rows are not Gaussian. Where they are far from it (as classes that can be told apart are), a short run
says where the mean of (w, φ) is, and the Hessian that is averaged over its draws takes the place of H. Nothing in this
decides what is right: the sampler leaves the posterior invariant in whatever variables.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.density.learnt import LearntScaleModel
from svrhmc.whitening.groups import Bend

_ROUNDS, _NEAR, _NEARLY = 40, 1e-6, 1e-3  # of a search for φ₀ and w₀; a step of φ, and a decrement, where it ends
_LEAST = 1e-9  # of h, where the rows bend down
_LONGEST, _GRID = 2.0, 4001  # a step of φ; points of L
_REACH = 12.0  # of a grid of φ about φ₀
_HESSIANS = 12  # draws over which a Hessian is averaged
_QUANTILES = 2001  # numbers that stand for the law of φ


class DiagonalBasis(NamedTuple):
    """What is known at (w₀, φ₀): U, U⁻¹, d, h, c and g, w₀ᵀDw₀ and φ₀."""

    w: Array
    phi: float
    U: Array
    inverse: Array
    d: Array
    h: Array
    c: Array
    g: Array
    square: float

    @staticmethod
    def at(model: LearntScaleModel, w: Array, phi: float, hessian: Array | None = None) -> DiagonalBasis:
        """From the Hessian at w; or from one that is given, averaged over draws of which w is the mean: g is 0 then."""
        from scipy.linalg import cholesky, eigh, solve_triangular

        precision, D = np.exp(-2 * phi), model.metric
        P = (model.conditional.hessian(w) if hessian is None else hessian) + precision * D
        try:
            C = cholesky(P, lower=True, check_finite=False)
        except np.linalg.LinAlgError:  # where a loss bends down
            values, vectors = eigh(P, check_finite=False)
            if not (values > 0).any():
                raise requirement("the model", "one whose coefficients the rows determine", repr(model)) from None
            values = np.maximum(np.abs(values), _LEAST * values.max())
            C = cholesky((vectors * values) @ vectors.T, lower=True, check_finite=False)
        half = solve_triangular(C, D, lower=True, check_finite=False)
        d, Q = eigh(solve_triangular(C, half.T, lower=True, check_finite=False), check_finite=False)
        d = np.maximum(d, 0.0)
        U = solve_triangular(C, Q, lower=True, trans=1, check_finite=False)
        pulled = model.metric_product(w[None])[0]
        g = np.zeros(len(w))
        if hessian is None:
            g = U.T @ (model.conditional.energies(w[None])[1][0] + precision * pulled)
        h = np.maximum(1 - precision * d, _LEAST)
        return DiagonalBasis(w, phi, U, Q.T @ C.T, d, h, U.T @ pulled, g, float(w @ pulled))

    def away(self, phi: Array) -> tuple[Array, Array, Array]:
        """s, a and da/dφ at each φ, (states, dim of w)."""
        precision = np.exp(-2 * phi)[:, None]
        s = self.h + precision * self.d
        a = -((precision - np.exp(-2 * self.phi)) * self.c + self.g) / s
        return s, a, 2 * precision * (self.c + a * self.d) / s

    def energy(self, model: LearntScaleModel, phi: Array) -> Array:
        """L."""
        s, a, _ = self.away(phi)
        square = np.exp(-2 * phi) * self.square
        return np.asarray(0.5 * (square + (np.log(s) - s * a * a).sum(axis=1)) - model.log_prior(phi)[0])


class LearntScaleVariables:
    """f and ∇f in z, a `svrhmc.engines.Density`."""

    def __init__(self, model: LearntScaleModel, known: DiagonalBasis, bend: Bend) -> None:
        self.model, self.known, self.bend = model, known, bend
        self.n, self.dim = model.n, model.dim

    @staticmethod
    def of(model: LearntScaleModel) -> LearntScaleVariables:
        """Where the density of φ is largest, with G by its quantiles."""
        known = centre(model)
        phi = known.phi + np.linspace(-_REACH, _REACH, _GRID)
        density = np.exp(-(energy := known.energy(model, phi)) + energy.min())
        below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
        places = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        quantiles = np.interp(places, below / below[-1], phi)
        return LearntScaleVariables(model, known, Bend.of_draws(quantiles[:, None], [0]))

    def following(self, x: Array) -> LearntScaleVariables:
        """Others by draws (draws, dim) of (w, φ): their mean, the Hessian averaged over some of them, and G by their φ.

        Of all normal laws q the one nearest to a density e^{−f} by KL(q‖e^{−f}) has the precision E∇²f and E∇f = 0.
        """
        some = x[np.linspace(0, len(x) - 1, _HESSIANS).astype(np.int64)]
        hessian = np.mean([self.model.conditional.hessian(w) for w in some[:, :-1]], axis=0)
        mean = x.mean(axis=0)
        known = DiagonalBasis.at(self.model, mean[:-1], float(mean[-1]), hessian)
        return LearntScaleVariables(self.model, known, Bend.of_draws(x[:, -1:], [0]))

    def into(self, x: Array) -> Array:
        """z of (w, φ), (states, dim)."""
        s, a, _ = self.known.away(x[:, -1])
        e = np.sqrt(s) * ((x[:, :-1] - self.known.w) @ self.known.inverse.T - a)
        return np.concatenate([e, self.bend.into(x[:, -1:])], axis=1)

    def out(self, state: Array, first: int = 0) -> Array:
        """(w, φ) of z, of states or draws."""
        z = state.reshape(-1, self.dim)
        phi = self.bend(z[:, -1:])[0][:, 0]
        s, a, _ = self.known.away(phi)
        w = self.known.w + (a + z[:, :-1] / np.sqrt(s)) @ self.known.U.T
        return np.concatenate([w, phi[:, None]], axis=1).reshape(state.shape)

    @np.errstate(all="ignore")
    def energies(self, z: Array) -> tuple[Array, Array]:
        """f and ∇f at states (states, dim); ∞ where a state is so far out that it overflows."""
        known = self.known
        phi, first, second = (part[:, 0] for part in self.bend(z[:, -1:]))
        s, a, turn = known.away(phi)
        root = np.sqrt(s)
        w = known.w + (a + z[:, :-1] / root) @ known.U.T
        f, slope = self.model.energies(np.concatenate([w, phi[:, None]], axis=1))
        by_w = slope[:, :-1] @ known.U
        narrower = np.exp(-2 * phi)[:, None] * known.d / s  # −½ d log s/dφ
        by_phi = slope[:, -1] + (by_w * (turn + narrower * z[:, :-1] / root)).sum(axis=1) - narrower.sum(axis=1)
        by_t = by_phi * first - second / first
        f = f + 0.5 * np.log(s).sum(axis=1) - np.log(first)
        gradient = np.concatenate([by_w / root, by_t[:, None]], axis=1)
        lost = ~(np.isfinite(f) & np.isfinite(gradient).all(axis=1))
        f[lost], gradient[lost] = np.inf, 0.0
        return f, gradient

    def effective(self, phi: Array) -> Array:
        """How many of the coefficients that are shrunk are decided by the rows: q − Σ e^{−2φ}d/s."""
        s = self.known.away(phi)[0]
        return np.asarray(len(self.model.shrunk) - (np.exp(-2 * phi)[:, None] * self.known.d / s).sum(axis=1))

    def shrinkage_factors(self, phi: float) -> Array:
        """Of each coefficient that is shrunk, how much of its precision is the prior's: e^{−2φ}(DP⁻¹)ⱼⱼ."""
        s = self.known.away(np.array([phi]))[0][0]
        D, U, places = self.model.metric, self.known.U, self.model.shrunk
        return np.asarray(np.exp(-2 * phi) * ((D[places] @ U) * U[places] / s).sum(axis=1))


def centre(model: LearntScaleModel) -> DiagonalBasis:
    """Where L is smallest and w at its mode given φ, found in turns: φ by L, as it is about (w₀, φ₀), then w₀ + Ua(φ),
    with steps halved until f of w given φ falls.
    """
    from scipy.optimize import minimize_scalar

    w = np.zeros(model.reported_dim)
    if model.loss.shared:
        w[-model.loss.shared :] = model.loss.shared_start(model.conditional.y)
    phi = float(np.log(model.prior.scale))
    for _ in range(_ROUNDS):
        known = DiagonalBasis.at(model, w, phi)
        found = minimize_scalar(
            lambda at, known=known: float(known.energy(model, np.array([at]))[0]),
            bounds=(phi - _LONGEST, phi + _LONGEST), method="bounded", options={"xatol": _NEAR},
        )  # fmt: skip
        new = float(found.x)
        s, a, _ = known.away(np.array([new]))
        step, share = known.U @ a[0], 1.0
        before = model.potentials(np.append(w, new)[None])[0]
        while share > _NEAR and not model.potentials(np.append(w + share * step, new)[None])[0] <= before:
            share /= 2
        w = w + share * step if share > _NEAR else w
        decrement, moved, phi = float((s[0] * a[0] ** 2).sum()), abs(new - phi), new
        if moved < _NEARLY and decrement < _NEARLY:
            break
    return DiagonalBasis.at(model, w, phi)
