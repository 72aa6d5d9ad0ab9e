"""The variables in which mixed models are sampled: effects and the scales of effects become nearly independent normals.

Let θ̂ be a centre of the covariances' coordinates, ŵ and Ĥ = L̂L̂ᵀ the mode and the Hessian of w given θ̂, and for each
level of a term D the curvature of its rows at ŵ, P = Σ(θ)⁻¹ = M⁻ᵀM⁻¹, and

    C = chol((D + P)⁻¹) = M K,        K = chol((I + MᵀDM)⁻¹),        h = (D + P̂) û.

The effects of a level given θ, if its rows alone were there, would be N(C Cᵀ h, C Cᵀ) (to second order around ŵ). So
with z = (z_w, s) ~ N(0, I) about, y = L̂⁻ᵀ z_w and e = Ĉ⁻¹ y in the blocks of the levels,

    u = C(θ) b,   b = C(θ)ᵀ h + e,        β = β̂ + y,        θ = g(A s),
    log |∂(w, θ)/∂z| = Σ_levels log |C(θ)| + Σ log g′ + constant.

As τ → 0 this is the non-centred parametrisation, where a level has many rows the centred one, level by level. L̂ is
found once: another θ takes O(dim). The prior of the effects is Σ (½|K b|² + log |M|), as M⁻¹u = K b, and log |M| goes
with the determinant, log |C| = log |M| + log |K|: nothing grows as τ → 0.

Derivatives. With E = M⁻¹ ∂M (`svrhmc.priors.covariance`) and Φ(S) the lower triangle of S with half its diagonal,

    ∂C = C Φ,   ∂K = K Φ − E K,        Φ = Φ(Kᵀ(E + Eᵀ)K),        ∂ log |K| = tr(KᵀEK) − tr E,

so that with a = Cᵀ∇ᵤF + KᵀK b, the gradient by b,

    ∂f/∂θ = Σ_levels [aᵀ(Φ b + ΦᵀCᵀh) − (Kb)ᵀE(Kb) + tr E − tr(KᵀEK)] + ∂ prior.

Gaussian rows have D and h in proportion to 1/σ². With log σ among the coordinates of w, C and h are those of its σ:
∂D = −2D by log σ, so that there ∂C = C Φ, ∂K = K Φ with Φ = Φ(2(I − KᵀK)), ∂h = −2h, and

    ∂f/∂ log σ = Σ_levels [aᵀ(Φ b + ΦᵀCᵀh − 2Cᵀh) − tr Φ] + ….

g bends each log scale, where the data allow a scale near 0: there the density of log τ falls like e^{log τ} only, and
the map from a normal number with that left tail is −s²/2 far out. With v = knee − t and h(v) = ½(v + √(v² + 1)),

    g(t) = c + b t − κ H(v),   g′ = b + κ h(v),   g″ = −κ h′(v),      H′ = h,   κ = 0 where nothing is bent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, cores
from svrhmc.core.errors import requirement
from svrhmc.density.mixed import MixedModel, Term
from svrhmc.whitening.elimination import eliminate
from svrhmc.whitening.maps import LowRankWhitening, Whitening, dense_whitening
from svrhmc.whitening.sparse import SparseWhitening

_KNEES, _BENDS = (-1.0, -0.5, 0.0, 0.5, 1.0), (0.15, 0.3, 0.6, 1.0)  # that are tried
_GAINED, _LEAST_SLOPE = 2.0, 0.02  # of a log likelihood, for which g is bent; of a slope
_FIELDS = ("centre", "slope", "knee", "bend")
_LEVELS = np.array([0.01, 0.03, 0.07, 0.15, 0.3, 0.5, 0.7, 0.85, 0.93, 0.97, 0.99])  # of quantiles that g follows
_NEWTON, _ROUNDS = 60, 60  # steps of a search given θ; rounds of a search for θ
_NEAR, _ROUGHLY = 1e-8, 1e-3  # of a decrement: w is at its mode, or near enough for its density
_MUCH = 1 << 16  # numbers of states from which threads share them
_SETTLED = 0.02  # in log τ, where a pilot run begins


@dataclass(frozen=True, eq=False)
class Bend:
    """g of every coordinate of θ; arrays of that length."""

    centre: Array
    slope: Array
    knee: Array
    bend: Array

    @staticmethod
    def straight(centre: Array, slope: Array) -> Bend:
        """g(t) = c + b t."""
        return Bend(centre, slope, np.zeros_like(centre), np.zeros_like(centre))

    def __call__(self, t: Array) -> tuple[Array, Array, Array]:
        """g, g′ and g″ at (…, dim)."""
        if not self.bend.any():
            return self.centre + self.slope * t, np.broadcast_to(self.slope, t.shape), np.zeros(t.shape)
        v = self.knee - t
        root = np.sqrt(v * v + 1)
        H = 0.25 * (v * v + v * root + np.arcsinh(v))
        first = self.slope + self.bend * 0.5 * (v + root)
        return self.centre + self.slope * t - self.bend * H, first, -self.bend * 0.5 * (1 + v / root)

    def into(self, theta: Array) -> Array:
        """t with g(t) = θ, by Newton's method, as g is concave and rises."""
        t = (theta - self.centre) / np.maximum(self.slope, _LEAST_SLOPE)
        for _ in range(100):
            value, first, _ = self(t)
            step = (value - theta) / first
            t = t - step
            if np.abs(step).max(initial=0.0) < 1e-12 * (1 + np.abs(t).max(initial=0.0)):
                break
        return t

    @staticmethod
    def of_draws(draws: Array, scales: Sequence[int]) -> Bend:
        """g that follows the quantiles of draws (count, dim); those of `scales` alone may be bent."""
        from scipy.special import ndtri

        t, quantiles = ndtri(_LEVELS), np.quantile(draws, _LEVELS, axis=0)
        bends = [Bend.straight(*(np.array([part]) for part in np.polyfit(t, q, 1)[::-1])) for q in quantiles.T]
        for j in scales:
            own = draws[:, [j]]
            best = bends[j].log_likelihood(own)
            for knee in _KNEES:
                for bend in _BENDS:
                    tried = Bend._fitted(t, quantiles[:, j], knee, bend)
                    if tried is not None and (gained := tried.log_likelihood(own)) > best + _GAINED:
                        best, bends[j] = gained, tried
        return Bend(*(np.concatenate([getattr(one, name) for one in bends]) for name in _FIELDS))

    @staticmethod
    def _fitted(t: Array, quantiles: Array, knee: float, bend: float) -> Bend | None:
        """c and b by least squares, given the rest; None where g would not rise."""
        flat = Bend(np.zeros(1), np.zeros(1), np.array([knee]), np.array([bend]))
        slope, centre = np.polyfit(t, quantiles - flat(t[:, None])[0][:, 0], 1)
        return replace(flat, centre=np.array([centre]), slope=np.array([slope])) if slope > _LEAST_SLOPE else None

    def log_likelihood(self, draws: Array) -> float:
        """Of draws (count, dim) as g of standard normal numbers."""
        t = self.into(draws)
        return float((-0.5 * t * t - np.log(self(t)[1])).sum())


class _Level(NamedTuple):
    """What a term keeps of every level at the centre: D, Ĉ⁻¹ (r, r, levels) and h (r, levels)."""

    D: Array
    inverse: Array
    h: Array


class _At(NamedTuple):
    """A term at some states: K and C (r, r, states, levels), Cᵀh, b and Kb (r, states, levels)."""

    K: Array
    C: Array
    Ch: Array
    b: Array
    Kb: Array


class _Begun(NamedTuple):
    """Some states on the way to f: w, θ, g′, g″, and every term at them."""

    x: Array
    theta: Array
    first: Array
    second: Array
    places: list[_At]


class GroupVariables:
    """f and ∇f of a mixed model in z, a `svrhmc.engines.Density`.

    bend: g. mixing: A, which makes the coordinates of s independent. w: ŵ, at θ̂ = g(0).
    """

    def __init__(self, model: MixedModel, bend: Bend, mixing: Array, w: Array) -> None:
        self.model, self.bend, self.mixing, self.w = model, bend, mixing, w
        self.n, self.dim = model.n, model.dim
        self.theta = bend(np.zeros(model.theta_dim))[0]
        curvature = model.curvature(w)
        self.whitening, blocks = _factor(model, curvature.hessian, self.theta, w), curvature.blocks
        self._levels = [self._level(term, D) for term, D in zip(model.terms, blocks, strict=True)]

    def _level(self, term: Term, D: Array) -> _Level:
        M = term.covariance.factor(self.theta[None, term.theta])
        C = _times(M, _inverse_root(M, D))[:, :, 0]
        inverse = _inverse_triangle(C)
        v = np.einsum("abl,bl->al", inverse, term.blocks(self.w))
        return _Level(D, inverse, np.einsum("bal,bl->al", inverse, v))

    def _at(self, term: Term, level: _Level, theta: Array, y: Array) -> _At:
        M = term.covariance.factor(theta[:, term.theta])
        ratio = self._ratio(y)
        K = _inverse_root(M, level.D, ratio)
        C = _times(M, K)
        r = range(term.width)
        blocks = term.blocks(y)
        e = [sum(level.inverse[a, b] * blocks[b] for b in range(a + 1)) for a in r]
        Ch = ratio * np.array([sum(C[b, a] * level.h[b] for b in range(a, term.width)) for a in r])
        b = Ch + np.array(e)
        Kb = np.array([sum(K[i, j] * b[j] for j in range(i + 1)) for i in r])
        return _At(K, C, Ch, b, Kb)

    def _ratio(self, y: Array) -> Any:
        """σ̂²/σ² of states, (states, 1), where log σ is the last coordinate of w; else 1."""
        return np.exp(-2 * y[:, -1:]) if self.model.loss.mixture else 1.0

    def out_joint(self, z: Array) -> tuple[Array, Array]:
        """w and θ of states (states, dim)."""
        begun = self._begin(z)
        return begun.x, begun.theta

    def _linear(self, z: Array) -> tuple[Array, Array, Array, Array]:
        """y, θ, g′ and g″."""
        inner = self.model.inner_dim
        y = self.whitening.displace(np.ascontiguousarray(z[:, :inner]))
        return (y, *self.bend(z[:, inner:] @ self.mixing.T))

    def out(self, state: Array, first: int = 0) -> Array:
        """(w, θ) of z, of states or draws."""
        x, theta = self.out_joint(state.reshape(-1, self.dim))
        return np.concatenate([x, theta], axis=1).reshape(state.shape)

    def into(self, x: Array, theta: Array) -> Array:
        """z of (w, θ), (states, …)."""
        y = x - self.w
        for term, level in zip(self.model.terms, self._levels, strict=True):
            M = term.covariance.factor(theta[:, term.theta])
            ratio = self._ratio(x - self.w)
            C = _times(M, _inverse_root(M, level.D, ratio))
            v = _product(_inverse_triangle(C), term.blocks(x))
            r = range(term.width)
            e = v - ratio * np.array([sum(C[b, a] * level.h[b] for b in range(a, term.width)) for a in r])
            term.put(_product(_inverse_triangle(level.inverse), e), y)
        z = self.whitening.into(self.whitening.centre + y)
        s = np.linalg.solve(self.mixing, self.bend.into(theta).T).T
        return np.concatenate([z, s], axis=1)

    @np.errstate(all="ignore")
    def energies(self, z: Array) -> tuple[Array, Array]:
        """f and ∇f at states (states, dim); threads share the states where there are many effects. Where a state is so
        far out that its effects or scales overflow, f is ∞, and no proposal ends there; NaN at others is the model's.
        """
        begun = self._shared(self._begin, z)
        x = np.concatenate([part.x for part in begun]) if len(begun) > 1 else begun[0].x
        f, G = self.model.energies_given(x)
        ends = np.cumsum([0, *(len(part.x) for part in begun)])
        parts = [(part, f[low:high], G[low:high]) for part, low, high in zip(begun, ends[:-1], ends[1:], strict=True)]
        ended = self._shared(lambda of: self._end(*of), parts)
        values, gradients = zip(*ended, strict=True)
        if len(ended) == 1:
            return values[0], gradients[0]
        return np.concatenate(values), np.concatenate(gradients)

    def _shared(self, work: Callable[[Any], Any], given: Any) -> list[Any]:
        """Work on states, or on parts of them, by threads where it is much; no digit of a state depends on others."""
        if isinstance(given, np.ndarray):
            parts = min(cores(), len(given)) if given.size > _MUCH else 1
            given = np.array_split(given, parts)
        if len(given) == 1:
            return [work(given[0])]
        return list(self._pool.map(work, given))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(cores())

    @np.errstate(all="ignore")
    def _begin(self, z: Array) -> _Begun:
        y, theta, first, second = self._linear(z)
        x, places = self.w + y, []
        for term, level in zip(self.model.terms, self._levels, strict=True):
            at = self._at(term, level, theta, y)
            term.put(_product(at.C, at.b), x)
            places.append(at)
        return _Begun(x, theta, first, second, places)

    @np.errstate(all="ignore")
    def _end(self, begun: _Begun, f: Array, G: Array) -> tuple[Array, Array]:
        """f and ∇f from those of the rows, whose gradient is overwritten."""
        inner, theta, first = self.model.inner_dim, begun.theta, begun.first
        by_theta = np.empty_like(theta)
        for term, level, at in zip(self.model.terms, self._levels, begun.places, strict=True):
            value, slope = term.covariance.prior(theta[:, term.theta])
            f = f + value + self._add(term, level, at, theta, G, by_theta)
            by_theta[:, term.theta] += slope
        f = f - np.log(first).sum(axis=1)
        gradient = np.empty((len(f), self.dim))
        gradient[:, :inner] = self.whitening.pull(G)
        gradient[:, inner:] = (by_theta * first - begun.second / first) @ self.mixing
        lost = ~(np.isfinite(f) & np.isfinite(gradient).all(axis=1))
        if lost.any():
            undefined = np.isnan(f) | np.isnan(gradient).any(axis=1)
            overflow = np.isposinf(f) | ~np.isfinite(begun.x).all(axis=1) | ~np.isfinite(theta).all(axis=1)
            f[lost], gradient[lost] = np.where(undefined & ~overflow, np.nan, np.inf)[lost], 0.0
        return f, gradient

    def _add(self, term: Term, level: _Level, at: _At, theta: Array, G: Array, by_theta: Array) -> Array:
        """½|Kb|² − log |K|; makes of ∇ᵤF in G the gradient by y, and adds the one by θ, and by log σ."""
        r, E = term.width, term.covariance.derivatives(theta[:, term.theta])
        Gu = term.blocks(G)
        a = np.array(
            [sum(at.C[i, j] * Gu[i] + at.K[i, j] * at.Kb[i] for i in range(j, r)) for j in range(r)]
        )  # (r, states, levels)
        value: Array = 0.5 * np.einsum("asl,asl->s", at.Kb, at.Kb)
        for i in range(r):
            with np.errstate(divide="ignore"):  # f is ∞ where a scale is thrown out so far that K is rounded to 0
                value = value - np.log(at.K[i, i]).sum(axis=1)
        for place, e in zip(range(term.theta.start, term.theta.stop), E, strict=True):
            by_theta[:, place] = _by_coordinate(at, a, e, term.count)
        if self.model.loss.mixture:
            G[:, -1] += _by_noise(at, a)
        term.put(np.array([sum(level.inverse[i, j] * a[i] for i in range(j, r)) for j in range(r)]), G)
        return value


def _by_coordinate(at: _At, a: Array, e: Array, count: int) -> Array:
    """Σ_levels [aᵀ(Φ b + ΦᵀCᵀh) − (Kb)ᵀE(Kb) + tr E − tr(KᵀEK)] for one E, (states, r, r)."""
    r, K = len(a), at.K
    both = e + e.transpose(0, 2, 1)
    total: Array = count * np.einsum("saa->s", e)
    for i in range(r):
        for j in range(i + 1):
            S = np.zeros(K.shape[2:])  # entry (i, j) of Kᵀ(E + Eᵀ)K
            for p in range(i, r):
                for q in range(j, r):
                    if r == 1 or both[:, p, q].any():
                        S += both[:, p, q, None] * (K[p, i] * K[q, j])
            if i == j:
                S *= 0.5
                total -= S.sum(axis=1)  # the trace of Φ is that of KᵀEK
            total += np.einsum("sl,sl->s", S, a[i] * at.b[j] + a[j] * at.Ch[i])
    for p in range(r):
        for q in range(r):
            if r == 1 or e[:, p, q].any():
                total -= e[:, p, q] * np.einsum("sl,sl->s", at.Kb[p], at.Kb[q])
    return total


def _by_noise(at: _At, a: Array) -> Array:
    """Σ_levels [aᵀ(Φ b + ΦᵀCᵀh − 2Cᵀh) − tr Φ] for log σ, Φ = Φ(2(I − KᵀK))."""
    r, K = len(a), at.K
    total = np.zeros(K.shape[2])
    for i in range(r):
        for j in range(i + 1):
            square = sum(K[p, i] * K[p, j] for p in range(i, r))  # entry (i, j) of KᵀK
            Phi = 1 - square if i == j else -2 * square
            total += np.einsum("sl,sl->s", Phi, a[i] * at.b[j] + a[j] * at.Ch[i])
            if i == j:
                total -= Phi.sum(axis=1)
        total -= 2 * np.einsum("sl,sl->s", a[i], at.Ch[i])
    return total


def _inverse_root(M: Array, D: Array, ratio: Any = 1.0) -> Array:
    """K = chol((I + MᵀDM)⁻¹): M (states, r, r), D (r, r, levels), times a ratio → (r, r, states, levels).

    With I + MᵀDM = VVᵀ for an upper triangle V, K = V⁻ᵀ.
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
    return _inverse_triangle(Vt)


def _inverse_triangle(L: Array) -> Array:
    """L⁻¹ of lower triangles (r, r, …)."""
    r, out = len(L), np.zeros_like(L)
    for i in range(r):
        out[i, i] = 1 / L[i, i]
        for j in range(i):
            out[i, j] = -sum(L[i, k] * out[k, j] for k in range(j, i)) * out[i, i]
    return out


def _times(M: Array, K: Array) -> Array:
    """M K of lower triangles: (states, r, r), (r, r, states, levels)."""
    r, out = len(K), np.zeros_like(K)
    for i in range(r):
        for j in range(i + 1):
            out[i, j] = sum(M[:, i, k, None] * K[k, j] for k in range(j, i + 1))
    return out


def _product(L: Array, b: Array) -> Array:
    """L b of lower triangles (r, r, …) and vectors (r, …)."""
    return np.array([sum(L[i, j] * b[j] for j in range(i + 1)) for i in range(len(b))])


def _factor(model: MixedModel, hessian: Any, theta: Array, w: Array) -> Whitening:
    """W with WWᵀ = H⁻¹, H the Hessian of w given θ; without what a loss bends down, if need be; else diagonal."""
    for H in (hessian, None):
        made = _whitening(w, model.with_prior(model.curvature(w, convex=True).hessian if H is None else H, theta))
        if made is not None:
            return made
    raise requirement("the model", "one whose coefficients the rows and the prior determine", repr(model))


def _whitening(w: Array, H: Any) -> Whitening | None:
    if isinstance(H, np.ndarray):
        try:
            return dense_whitening(w, H)
        except ValueError:
            return None
    factor = eliminate(H)
    if not isinstance(factor, str):
        return SparseWhitening(w, *factor.arrays())
    diagonal = H.diagonal()
    if not (diagonal > 0).all():
        return None
    return LowRankWhitening(w, diagonal**-0.5, np.zeros((len(w), 0)), np.zeros(0), why=factor)


# A first centre


def mode_given(model: MixedModel, theta: Array, w: Array, most: int = _NEWTON, near: float = _NEAR) -> Array:
    """argmin over w given θ, by Newton's method from a start, with steps halved until f falls.

    near: |L⁻¹∇f|² at which it ends, L being the factor of the Hessian there, or of the one before it.
    """
    f, gradient = model.conditional_energy(w, theta)
    how: Whitening | None = None
    for _ in range(most):
        if how is not None and float((how.pull(gradient) ** 2).sum()) < near:
            break
        how = _factor(model, model.curvature(w).hessian, theta, w)
        scaled = how.pull(gradient)
        decrement, step = float(scaled @ scaled), how.displace(scaled)
        if decrement < near:
            break
        share = 1.0
        while True:
            new = w - share * step
            with np.errstate(over="ignore", invalid="ignore"):
                lower, slope = model.conditional_energy(new, theta)
            if lower <= f - 1e-4 * share * decrement or share < 1e-6:
                break
            share /= 2
        if not lower < f:
            break
        w, f, gradient = new, lower, slope
    return w


def first_centre(model: MixedModel, start: Array) -> tuple[Array, Array, Array]:
    """θ, w and rough standard deviations of θ, by maximising the marginal density of θ in Laplace's approximation.

    With V the covariances of the effects given θ, its derivative by log τ is, but for how the curvature of the rows
    changes with w, −q + Σ(u² + V)/τ² − ψ′(log τ): so Σ(u² + V) and the prior say the next log τ, and the steps of
    this iteration are lengthened by the ratio of the last two.
    """
    theta, w = start, np.zeros(model.inner_dim)
    guess = model.conditional.loss.shared_start(model.conditional.y)
    w[model.effects.stop :] = guess
    last: Array | None = None
    for round_ in range(_ROUNDS):
        w = mode_given(model, theta, w, 3 if round_ else _NEWTON)
        new = _next_theta(model, theta, w)
        step = new - theta
        longer = np.ones_like(step)
        if last is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                longer = 1 / (1 - np.clip(np.nan_to_num(step / last), 0.0, 0.8))
        theta = theta + np.clip(longer * step, -1.5, 1.5)
        if np.abs(step).max() < _SETTLED:
            break
        last = step
    w = mode_given(model, theta, w)
    return theta, w, _rough_sds(model, theta, w)


def _next_theta(model: MixedModel, theta: Array, w: Array) -> Array:
    curvature = model.curvature(w)
    variances = None
    if isinstance(curvature.hessian, np.ndarray):
        variances = _factor(model, curvature.hessian, theta, w).variances
    new = np.empty_like(theta)
    for term, D in zip(model.terms, curvature.blocks, strict=True):
        M = term.covariance.factor(theta[None, term.theta])
        C = _times(M, _inverse_root(M, D))[:, :, 0]
        V = np.einsum("acl,bcl->abl", C, C)
        if variances is not None:  # with what is not known of the coefficients too
            wider = np.sqrt(np.maximum(term.blocks(variances) / np.einsum("aal->al", V), 1.0))
            V = V * wider[:, None] * wider[None]
        u = term.blocks(w)
        S = (u[:, None] * u[None] + V).sum(axis=2)
        own = term.covariance.coordinates(S / term.count)
        own[term.width :] *= term.count / (term.count + 4.0)  # few levels say little of a correlation
        for a in range(term.width):
            own[a] = _scale(term, a, float(S[a, a]), own)
        new[term.theta] = own
    return new


def _scale(term: Term, a: int, square: float, own: Array) -> float:
    """The root φ of q − S e^{−2φ} + ψ′(φ), which rises."""
    from scipy.optimize import brentq

    def slope(phi: float) -> float:
        at = own.copy()
        at[a] = phi
        return float(term.count - square * np.exp(-2 * phi) + term.covariance.prior(at[None])[1][0, a])

    middle = 0.5 * np.log(square / term.count)
    return float(brentq(slope, middle - 30, middle + 30))


def _rough_sds(model: MixedModel, theta: Array, w: Array) -> Array:
    """From the information Σ 2ω² about log τ that levels with the share ω = 1 − K² of their own have, and the prior."""
    sds = np.empty_like(theta)
    for term, D in zip(model.terms, model.curvature(w).blocks, strict=True):
        tau = np.exp(theta[term.theta][: term.width])
        d = np.einsum("aal->al", D)
        share = tau[:, None] ** 2 * d / (1 + tau[:, None] ** 2 * d)
        information = np.concatenate(
            [2 * (share**2).sum(axis=1), [(share[i] * share[j]).sum() for i, j in term.covariance.pairs]]
        )
        prior = np.maximum(term.covariance.prior_curvature(theta[term.theta]), 0.1)
        sds[term.theta] = np.minimum((information + prior) ** -0.5, 1.0)
    return sds


def log_marginal(model: MixedModel, theta: Array, w: Array) -> tuple[float, Array]:
    """log p(θ | y) in Laplace's approximation, −f(ŵ(θ), θ) − ½ log |H(θ)|, up to a constant, and ŵ(θ), searched from
    w; nan where H has no factor.
    """
    w = mode_given(model, theta, w, near=_ROUGHLY)
    joint = np.concatenate([w, theta])[None, :]
    how = _factor(model, model.curvature(w).hessian, theta, w)
    volume = how.log_volume
    return float("nan") if volume is None else volume - float(model.potentials(joint)[0]), w
