"""The effects of one term, level by level, given its covariances and the coordinates outside it.

For each level let D be the curvature of its rows at a centre ŵ with effects û, P = Σ(θ)⁻¹ = M⁻ᵀM⁻¹, y the distance of
the outer coordinates (coefficients, shared parameters) from the centre, and G the derivative by y of the gradient by
the effects. With

    C = chol((D + P)⁻¹) = M K,        K = chol((I + MᵀDM)⁻¹),        h = (D + P̂) û − G y

the effects given θ and y would be N(C Cᵀ h, C Cᵀ) to second order around ŵ if there were only the rows of their level.
The map from e, which is then about N(0, I), is

    u = C b,        b = Cᵀh + e,        log |∂u/∂e| = log |C| = log |M| + log |K|.

The prior of the effects is ½|K b|² + log |M|, as M⁻¹u = K b, and log |M| goes with the determinant: what a level adds
to f is ½|K b|² − log |K|, where nothing grows as τ → 0.

Derivatives. With E = M⁻¹ ∂M (`svrhmc.priors.covariance`) and Φ(S) the lower triangle of S with half its diagonal,

    ∂C = C Φ,   ∂K = K Φ − E K,        Φ = Φ(Kᵀ(E + Eᵀ)K),        ∂ log |K| = tr(KᵀEK) − tr E,

so that with a = Cᵀ∇ᵤF + KᵀK b, the gradient by b and by e,

    ∂f/∂θ = Σ_levels [aᵀ(Φ b + ΦᵀCᵀh) − (Kb)ᵀE(Kb) + tr E − tr(KᵀEK)],        ∂f/∂y = −Σ_levels GᵀC a.

For Gaussian rows D and h are proportional to 1/σ². With log σ among the outer coordinates both are scaled by the ratio
ρ = σ̂²/σ²: by log σ ∂D = −2D, so that ∂C = C Φ and ∂K = K Φ with Φ = Φ(2(I − KᵀK)), ∂h = −2h, and

    ∂f/∂ log σ = Σ_levels [aᵀ(Φ b + ΦᵀCᵀh − 2Cᵀh) − tr Φ].

For a level with one effect all of these are numbers, K² = 1/(1 + τ²D) and Φ = K². It has formulas of its own
(`SingleEffects`), which are compiled where there are many levels (`svrhmc.kernels.levels`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from svrhmc.core.arrays import Array, contract
from svrhmc.density.mixed import MANY, Term


class EffectGradients(NamedTuple):
    """What a term adds to f, with its derivatives by θ, by y and, for Gaussian rows, by log σ: (states, …)."""

    value: Array
    by_theta: Array
    by_outer: Array
    by_noise: Array | None


class Effects(Protocol):
    """The effects of a term at some states."""

    def backpropagate(self, gradient: Array) -> EffectGradients:
        """Replace ∇ᵤF in `gradient`, (states, effects), by the gradient by e; returns what the term adds to f."""


class LevelMap(Protocol):
    """The map from e to the effects of a term."""

    def out(self, theta: Array, e: Array, y: Array, ratio: Array | None, u: Array) -> Effects:
        """Write the effects to u: θ (states, dim of θ), e and u (states, effects), y (states, outer)."""

    def into(self, theta: Array, u: Array, y: Array, ratio: Array | None) -> Array:
        """e of u."""


class Centre(NamedTuple):
    """Quantities of a term at θ = θ̂: Ĉ and its inverse (r, r, levels), (D + P̂) û (r, levels)."""

    C: Array
    inverse: Array
    h: Array


def make_centre(term: Term, D: Array, theta: Array, w: Array) -> Centre:
    """The centre of a term; theta: its own coordinates θ̂. w: all effects and coefficients."""
    M = term.covariance.factor(theta[None])
    C = factor_product(M, inverse_root(M, D))[:, :, 0]
    inverse = inverse_triangle(C)
    v = np.einsum("abl,bl->al", inverse, term.blocks(w))
    return Centre(C, inverse, np.einsum("bal,bl->al", inverse, v))


def make_level_map(term: Term, D: Array, h: Array, G: Array) -> LevelMap:
    """The map of a term with r effects a level: D (r, r, levels), h (r, levels), G (r, outer, levels)."""
    if term.width > 1:
        return BlockEffects(term, D, h, G)
    return SingleEffects(term, *(np.ascontiguousarray(part[0]) for part in (D[0], h, G)))


class SingleEffects:
    """LevelMap with one effect: D and h (levels), G (outer, levels)."""

    def __init__(self, term: Term, D: Array, h: Array, G: Array) -> None:
        self.D, self.h, self.G = D, h, G
        self.compiled = term.count >= MANY

    def out(self, theta: Array, e: Array, y: Array, ratio: Array | None, u: Array) -> Any:
        """The effects, by compiled code where there are many levels."""
        if self.compiled:
            return _CompiledEffectsAt(self, theta, e, y, ratio, u)
        return _SingleEffectsAt(self, theta, e, y, ratio, u)

    def into(self, theta: Array, u: Array, y: Array, ratio: Array | None) -> Array:
        """C⁻¹u − Cᵀh."""
        tau, rho = np.exp(theta), np.ones((len(u), 1)) if ratio is None else ratio
        C = tau / np.sqrt(1 + rho * tau * tau * self.D)
        e: Array = u / C - rho * C * (self.h - contract("so,ol->sl", y, self.G))
        return e


class _SingleEffectsAt:
    """The effects at some states, with K, C, Cᵀh and b, (states, levels)."""

    def __init__(self, of: SingleEffects, theta: Array, e: Array, y: Array, ratio: Array | None, u: Array) -> None:
        self.of, self.ratio = of, ratio
        tau = np.exp(theta)
        square = tau * tau if ratio is None else ratio * tau * tau
        self.V = 1 + square * of.D
        self.K = 1 / np.sqrt(self.V)
        self.C = tau * self.K
        self.Ch = self.C * (of.h - contract("so,ol->sl", y, of.G))
        if ratio is not None:
            self.Ch *= ratio
        self.b = self.Ch + e
        np.multiply(self.C, self.b, out=u)

    def backpropagate(self, gradient: Array) -> EffectGradients:
        K, C, b = self.K, self.C, self.b
        Kb = K * b
        squares = Kb * Kb
        a = C * gradient + K * Kb
        gradient[:] = a
        Phi = K * K
        product = a * (b + self.Ch)
        value = 0.5 * (squares + np.log(self.V)).sum(axis=1)
        by_theta = (Phi * (product - 1) - squares + 1).sum(axis=1)[:, None]
        a *= C
        if self.ratio is None:
            return EffectGradients(value, by_theta, -contract("sl,ol->so", a, self.of.G), None)
        by_noise = ((1 - Phi) * (product - 1) - 2 * gradient * self.Ch).sum(axis=1)
        return EffectGradients(value, by_theta, -self.ratio * contract("sl,ol->so", a, self.of.G), by_noise)


class _CompiledEffectsAt:
    """The same by compiled code, in one pass for the effects and one for the gradient."""

    def __init__(self, of: SingleEffects, theta: Array, e: Array, y: Array, ratio: Array | None, u: Array) -> None:
        from svrhmc.kernels.levels import effects_out

        self.of, self.tau, self.y, self.e = of, np.exp(theta[:, 0]), y, e
        self.ratio = np.ones(len(e)) if ratio is None else ratio[:, 0]
        self.noisy = ratio is not None
        for c in range(len(e)):
            effects_out(e[c], y[c], float(self.tau[c]), float(self.ratio[c]), of.D, of.h, of.G, u[c])

    def backpropagate(self, gradient: Array) -> EffectGradients:
        from svrhmc.kernels.levels import BLOCK, effects_back

        of, sums, by_outer = self.of, np.empty((len(gradient), 3)), np.empty(self.y.shape)
        room = np.empty((2, BLOCK))
        for c in range(len(gradient)):
            effects_back(
                self.e[c], self.y[c], float(self.tau[c]), float(self.ratio[c]), of.D, of.h, of.G, gradient[c], sums[c],
                by_outer[c], room,
            )  # fmt: skip
        return EffectGradients(sums[:, 0], sums[:, 1:2], by_outer, sums[:, 2] if self.noisy else None)


class BlockEffects:
    """LevelMap with several effects: D (r, r, levels), h (r, levels), G (r, outer, levels)."""

    def __init__(self, term: Term, D: Array, h: Array, G: Array) -> None:
        self.term, self.D, self.h, self.G = term, D, h, G

    def out(self, theta: Array, e: Array, y: Array, ratio: Array | None, u: Array) -> Any:
        """The effects, with what `backpropagate` needs."""
        return _BlockEffectsAt(self, theta, e, y, ratio, u)

    def at(self, theta: Array, y: Array, ratio: Array | None) -> tuple[Array, Array, Array]:
        """K and C (r, r, states, levels), and Cᵀh (r, states, levels)."""
        M, rho = self.term.covariance.factor(theta), 1.0 if ratio is None else ratio
        K = inverse_root(M, self.D, rho)
        C = factor_product(M, K)
        h = rho * (self.h[:, None] - np.array([contract("so,ol->sl", y, G) for G in self.G]))
        return K, C, transposed_product(C, h)

    def into(self, theta: Array, u: Array, y: Array, ratio: Array | None) -> Array:
        """C⁻¹u − Cᵀh."""
        _, C, Ch = self.at(theta, y, ratio)
        return _flat(product(inverse_triangle(C), _blocks(u, self.term.width)) - Ch)


class _BlockEffectsAt:
    """The effects at some states, with K and C (r, r, states, levels), and Cᵀh, b and Kb (r, states, levels)."""

    def __init__(self, of: BlockEffects, theta: Array, e: Array, y: Array, ratio: Array | None, u: Array) -> None:
        self.of, self.theta, self.ratio = of, theta, ratio
        self.K, self.C, self.Ch = of.at(theta, y, ratio)
        self.b = self.Ch + _blocks(e, of.term.width)
        self.Kb = product(self.K, self.b)
        u[:] = _flat(product(self.C, self.b))

    def backpropagate(self, gradient: Array) -> EffectGradients:
        term = self.of.term
        a = transposed_product(self.C, _blocks(gradient, term.width)) + transposed_product(self.K, self.Kb)
        value: Array = 0.5 * np.einsum("asl,asl->s", self.Kb, self.Kb)
        for i in range(term.width):
            value = value - np.log(self.K[i, i]).sum(axis=1)
        E = term.covariance.derivatives(self.theta)
        by_theta = np.stack([self._by_coordinate(a, e) for e in E], axis=1)
        by_noise = None if self.ratio is None else self._by_noise(a)
        pulled = product(self.C, a)  # (r, states, levels)
        parts = [contract("sl,ol->so", part, G) for part, G in zip(pulled, self.of.G, strict=True)]
        by_outer = -np.sum(parts, axis=0)
        gradient[:] = _flat(a)
        return EffectGradients(value, by_theta, by_outer if self.ratio is None else self.ratio * by_outer, by_noise)

    def _by_coordinate(self, a: Array, e: Array) -> Array:
        """Σ_levels [aᵀ(Φ b + ΦᵀCᵀh) − (Kb)ᵀE(Kb) + tr E − tr(KᵀEK)] for one E, (states, r, r)."""
        r, K = len(a), self.K
        symmetric = e + e.transpose(0, 2, 1)
        total: Array = self.of.term.count * np.einsum("saa->s", e)
        for i in range(r):
            for j in range(i + 1):
                S = np.zeros(K.shape[2:])  # entry (i, j) of Kᵀ(E + Eᵀ)K
                for p in range(i, r):
                    for q in range(j, r):
                        if symmetric[:, p, q].any():
                            S += symmetric[:, p, q, None] * (K[p, i] * K[q, j])
                if i == j:
                    S *= 0.5
                    total -= S.sum(axis=1)  # the trace of Φ is that of KᵀEK
                total += np.einsum("sl,sl->s", S, a[i] * self.b[j] + a[j] * self.Ch[i])
        for p in range(r):
            for q in range(r):
                if e[:, p, q].any():
                    total -= e[:, p, q] * np.einsum("sl,sl->s", self.Kb[p], self.Kb[q])
        return total

    def _by_noise(self, a: Array) -> Array:
        """Σ_levels [aᵀ(Φ b + ΦᵀCᵀh − 2Cᵀh) − tr Φ] for log σ, Φ = Φ(2(I − KᵀK))."""
        r, K = len(a), self.K
        total = np.zeros(K.shape[2])
        for i in range(r):
            for j in range(i + 1):
                square = sum(K[p, i] * K[p, j] for p in range(i, r))  # entry (i, j) of KᵀK
                Phi = 1 - square if i == j else -2 * square
                total += np.einsum("sl,sl->s", Phi, a[i] * self.b[j] + a[j] * self.Ch[i])
                if i == j:
                    total -= Phi.sum(axis=1)
            total -= 2 * np.einsum("sl,sl->s", a[i], self.Ch[i])
        return total


def _blocks(flat: Array, r: int) -> Array:
    """(states, levels · r) → (r, states, levels)."""
    return np.moveaxis(flat.reshape(len(flat), -1, r), 2, 0)


def _flat(blocks: Array) -> Array:
    """(r, states, levels) → (states, levels · r)."""
    return np.moveaxis(blocks, 0, 2).reshape(blocks.shape[1], -1)


# Lower triangles (r, r, …), of every level


def inverse_root(M: Array, D: Array, ratio: Array | float = 1.0) -> Array:
    """K = chol((I + ratio·MᵀDM)⁻¹): M (states, r, r), D (r, r, levels) → (r, r, states, levels).

    With I + ratio·MᵀDM = VVᵀ for an upper triangle V, K = V⁻ᵀ.
    """
    r = len(D)
    B = np.empty((r, r, len(M), D.shape[2]))
    for i in range(r):
        for j in range(i + 1):
            S = np.zeros(B.shape[2:])
            for p in range(i, r):
                for q in range(j, r):
                    S += (ratio * (M[:, p, i] * M[:, q, j])[:, None]) * D[p, q]
            B[i, j] = B[j, i] = S + (i == j)
    Vt = np.zeros_like(B)  # the transpose of V, a lower triangle
    for j in range(r - 1, -1, -1):
        Vt[j, j] = np.sqrt(B[j, j] - sum(Vt[k, j] ** 2 for k in range(j + 1, r)))
        for i in range(j):
            Vt[j, i] = (B[i, j] - sum(Vt[k, i] * Vt[k, j] for k in range(j + 1, r))) / Vt[j, j]
    return inverse_triangle(Vt)


def inverse_triangle(L: Array) -> Array:
    """L⁻¹."""
    r, out = len(L), np.zeros_like(L)
    for i in range(r):
        out[i, i] = 1 / L[i, i]
        for j in range(i):
            out[i, j] = -sum(L[i, k] * out[k, j] for k in range(j, i)) * out[i, i]
    return out


def factor_product(M: Array, K: Array) -> Array:
    """M K: (states, r, r), (r, r, states, levels)."""
    r, out = len(K), np.zeros_like(K)
    for i in range(r):
        for j in range(i + 1):
            out[i, j] = sum(M[:, i, k, None] * K[k, j] for k in range(j, i + 1))
    return out


def product(L: Array, b: Array) -> Array:
    """L b: (r, r, …), (r, …)."""
    return np.array([sum(L[i, j] * b[j] for j in range(i + 1)) for i in range(len(b))])


def transposed_product(L: Array, b: Array) -> Array:
    """Lᵀ b."""
    r = len(b)
    return np.array([sum(L[i, j] * b[i] for i in range(j, r)) for j in range(r)])
