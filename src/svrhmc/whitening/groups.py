"""The variables in which mixed models are sampled: effects and the scales of effects become nearly independent normals.

Let θ̂ be a centre of the coordinates of the covariances, and ŵ and Ĥ the mode and the Hessian of w given θ̂. The
coordinates of w are inner or outer ones: inner are the effects, and coefficients beyond a certain number; outer are the
other coefficients and the shared parameters. With z = (ε′, o, s) ~ N(0, I) about,

    θ = g(A s),
    y = R Q(θ) o,                           the distance of the outer coordinates from ŵ (`svrhmc.whitening.outer`),
    ε = L̂⁻ᵀ ε′,                             L̂L̂ᵀ = ĈᵀĤĈ of the inner ones: L̂ = 1 where there is one term,
    u = C(θ)(C(θ)ᵀh(y) + ε) level by level    (`svrhmc.whitening.levels`), and coefficients β̂ + ε − Γy, Γ = Ĥ⁻¹Ĥ_io,
    log |∂(w, θ)/∂z| = Σ_levels log |C(θ)| + log |Q(θ)| + Σ log g′ + constant.

For Gaussian rows and a single term the law of w given θ would be N(ŵ(θ), H(θ)⁻¹) in these variables, except that the
mean and covariance of the outer coordinates follow θ to first order only. As τ → 0 this is the non-centred
parametrisation, and for a level with many rows the centred one, level by level. L̂ is computed once; another θ takes
O(dim) operations.

g bends each log scale where the data allow a scale near 0: there the density of log τ falls only like e^{log τ}, and
the map from a normal number to that left tail is −s²/2 far out. With v = knee − t and h(v) = ½(v + √(v² + 1)),

    g(t) = c + b t − κ H(v),   g′ = b + κ h(v),   g″ = −κ h′(v),      H′ = h,   κ = 0 for a straight line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from svrhmc.core.arrays import Array, contract, cores
from svrhmc.core.errors import requirement
from svrhmc.density.elimination import eliminate
from svrhmc.density.mixed import Curvature, MixedModel, Term
from svrhmc.rows.csr import MatrixLike
from svrhmc.whitening.inner import inner_map
from svrhmc.whitening.levels import Effects, factor_product, inverse_root, make_centre, make_level_map
from svrhmc.whitening.maps import LowRankWhitening, Whitening, dense_whitening
from svrhmc.whitening.outer import Outer, OuterAt
from svrhmc.whitening.sparse import SparseWhitening

_KNEES, _BENDS = (-1.0, -0.5, 0.0, 0.5, 1.0), (0.15, 0.3, 0.6, 1.0)  # candidates
_GAIN, _LEAST_SLOPE = 2.0, 0.02  # of the log likelihood, from which g is bent; the least slope of g
_FIELDS = ("centre", "slope", "knee", "bend")
_LEVELS = np.array(
    [0.01, 0.03, 0.07, 0.15, 0.3, 0.5, 0.7, 0.85, 0.93, 0.97, 0.99]
)  # of the quantiles that g is fitted to
_NEWTON, _ROUNDS = 60, 60  # steps of a search given θ; rounds of a search for θ
_NEAR, _ROUGHLY = 1e-8, 1e-3  # Newton decrements at which w is at its mode, or near enough for its density
_OUTER = 32  # the most coefficients that are outer coordinates
_THREADED = 1 << 16  # the size of states from which threads share them
_SETTLED = 0.02  # the largest step in log τ at which the search for θ ends


@dataclass(frozen=True, eq=False)
class Bend:
    """g of every coordinate of θ; each field has a number for each coordinate."""

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

    def shifted(self, by: Array) -> Bend:
        """g(by + t)."""
        return Bend(self.centre + self.slope * by, self.slope, self.knee - by, self.bend)

    def into(self, theta: Array) -> Array:
        """t with g(t) = θ, by Newton's method, as g is concave and increasing."""
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
        """g fitted to the quantiles of draws (count, dim); only the coordinates in `scales` may be bent."""
        from scipy.special import ndtri

        t, quantiles = ndtri(_LEVELS), np.quantile(draws, _LEVELS, axis=0)
        bends = [Bend.straight(*(np.array([part]) for part in np.polyfit(t, q, 1)[::-1])) for q in quantiles.T]
        for j in scales:
            column = draws[:, [j]]
            best = bends[j].log_likelihood(column)
            for knee in _KNEES:
                for bend in _BENDS:
                    candidate = Bend._fit(t, quantiles[:, j], knee, bend)
                    if candidate is not None and (value := candidate.log_likelihood(column)) > best + _GAIN:
                        best, bends[j] = value, candidate
        return Bend(*(np.concatenate([getattr(bend, name) for bend in bends]) for name in _FIELDS))

    @staticmethod
    def _fit(t: Array, quantiles: Array, knee: float, bend: float) -> Bend | None:
        """g with c and b by least squares, given the others; None where g would not increase."""
        flat = Bend(np.zeros(1), np.zeros(1), np.array([knee]), np.array([bend]))
        slope, centre = np.polyfit(t, quantiles - flat(t[:, None])[0][:, 0], 1)
        return replace(flat, centre=np.array([centre]), slope=np.array([slope])) if slope > _LEAST_SLOPE else None

    def log_likelihood(self, draws: Array) -> float:
        """The log likelihood of draws (count, dim) as g of standard normal numbers, up to a constant."""
        t = self.into(draws)
        return float((-0.5 * t * t - np.log(self(t)[1])).sum())


class _Forward(NamedTuple):
    """What the forward pass computes for some states: w, θ, g′, g″, outer coordinates and effects of every term."""

    x: Array
    theta: Array
    first: Array
    second: Array
    outer: OuterAt
    effects: list[Effects]


class GroupVariables:
    """f and ∇f of a mixed model in z, a `svrhmc.engines.Density`.

    bend: g. mixing: A, which makes the coordinates of s uncorrelated. w: ŵ, at θ̂ = g(0).
    """

    def __init__(self, model: MixedModel, bend: Bend, mixing: Array, w: Array) -> None:
        self.model, self.bend, self.mixing, self.w = model, bend, mixing, w
        self.n, self.dim, self.randomness = model.n, model.dim, model.randomness
        self.theta = bend(np.zeros(model.theta_dim))[0]
        curvature = model.curvature(w)
        self._outside = _outer_places(model, curvature.hessian)
        self._inside = np.setdiff1d(np.arange(model.inner_dim), self._outside)
        self._fixed_count = len(self._inside) - model.effect_count  # coefficients among the inner coordinates
        self._inner_places: Any = self._inside if self._fixed_count else model.effects
        self._split_at = len(self._inside), model.inner_dim
        self._noisy = bool(model.loss.mixture)
        self._set_up_maps(curvature)

    def _set_up_maps(self, curvature: Curvature) -> None:
        """Compute L̂, Γ, R, and the maps of the terms and of the outer coordinates."""
        model, w, theta = self.model, self.w, self.theta
        centres = [
            make_centre(term, D, theta[term.theta], w) for term, D in zip(model.terms, curvature.blocks, strict=True)
        ]
        dense = isinstance(curvature.hessian, np.ndarray)
        C = _block_diagonal(self._fixed_count, [centre.C for centre in centres], dense)
        widest = _effects_of(model, max(model.terms, key=lambda term: term.count * term.width))
        largest = slice(self._fixed_count + widest.start, self._fixed_count + widest.stop)
        for convex in (False, True):
            hessian = model.curvature(w, convex=True).hessian if convex else curvature.hessian
            H = model.with_prior(hessian, theta)
            border = _dense(C.T @ _block(H, self._inside, self._outside))
            inner = inner_map(C.T @ _block(H, self._inside, self._inside) @ C, largest, _whitening)
            if inner is None:
                continue
            self._inner, whole = inner
            gamma = self._inner.displace(self._inner.pull(border.T)).T if whole else np.zeros_like(border)
            R = _inverse_factor(_dense(_block(H, self._outside, self._outside)) - border.T @ gamma)
            if R is not None:
                break
        else:
            raise requirement("the model", "one whose coefficients the rows and the prior determine", repr(model))
        self._gamma = gamma[: self._fixed_count]
        self._levels, weights = [], []
        for term, D, centre in zip(model.terms, curvature.blocks, centres, strict=True):
            own_gamma = gamma[self._fixed_count :][_effects_of(model, term)].reshape(term.count, term.width, -1)
            P = model.precision(term, theta)
            effects = np.einsum("acl,lco->alo", centre.C, own_gamma)  # Γ
            weights.append(np.einsum("clo,ca->alo", effects, P) @ R)
            G = np.einsum("cal,lco->aol", centre.inverse, own_gamma)
            if self._noisy:  # the derivative of h by σ
                G[:, -1] -= 2 * P @ term.blocks(w)
            self._levels.append(make_level_map(term, D, centre.h, G))
        self._outer = Outer(R, model.terms, weights, theta)

    def _ratio(self, y: Array) -> Array | None:
        """σ̂²/σ² of states, (states, 1), where log σ is the last coordinate of w."""
        return np.exp(-2 * y[:, -1:]) if self._noisy else None

    def out_joint(self, z: Array) -> tuple[Array, Array]:
        """w and θ of states z, (states, dim)."""
        forward = self._forward(z)
        return forward.x, forward.theta

    def displace(self, normals: Array) -> Array:
        """w − ŵ at θ̂ from standard normal numbers (states, dim of w): draws of Laplace's approximation."""
        z = np.concatenate([normals, np.zeros((len(normals), self.model.theta_dim))], axis=1)
        return self.out_joint(z)[0] - self.w

    def out(self, state: Array, first: int = 0) -> Array:
        """(w, θ) of z, of states or draws."""
        x, theta = self.out_joint(state.reshape(-1, self.dim))
        return np.concatenate([x, theta], axis=1).reshape(state.shape)

    def into(self, x: Array, theta: Array) -> Array:
        """z of (w, θ), (states, …)."""
        y = (x - self.w)[:, self._outside]
        inner = x[:, self._inside]
        inner[:, : self._fixed_count] += y @ self._gamma.T - self.w[self._inside[: self._fixed_count]]
        for term, levels in zip(self.model.terms, self._levels, strict=True):
            own = inner[:, self._fixed_count :][:, _effects_of(self.model, term)]
            own[:] = levels.into(theta[:, term.theta], own, y, self._ratio(y))
        s = np.linalg.solve(self.mixing, self.bend.into(theta).T).T
        return np.concatenate([self._inner.into(inner), self._outer.into(y, theta), s], axis=1)

    def energies(self, z: Array) -> tuple[Array, Array]:
        """f and ∇f at states (states, dim); threads share the states where there are many effects. Where effects or
        scales of a state overflow, f is ∞, so that no proposal ends there; NaN comes from the model alone.
        """
        return self._evaluate(z, True)

    @property
    def forces(self) -> Callable[[Array], Array] | None:
        """A function for ∇f alone, NaN where f is; None where it takes as long as f and ∇f together."""
        return (lambda z: self._evaluate(z, False)[1]) if self.model.gradient_is_cheaper else None

    @np.errstate(all="ignore")
    def _evaluate(self, z: Array, valued: bool) -> tuple[Array, Array]:
        forward = self._run_on_threads(self._forward, z)
        x = np.concatenate([part.x for part in forward]) if len(forward) > 1 else forward[0].x
        f, G = self.model.conditional_energies(x, valued)
        ends = np.cumsum([0, *(len(part.x) for part in forward)])
        parts = [(part, f[low:high], G[low:high]) for part, low, high in zip(forward, ends[:-1], ends[1:], strict=True)]
        values, gradients = zip(*self._run_on_threads(lambda part: self._backward(*part), parts), strict=True)
        f, gradient = (arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for arrays in (values, gradients))
        if not valued:
            gradient[np.isnan(f)] = np.nan
        return f, gradient

    def _run_on_threads(self, work: Callable[[Any], Any], parts: Any) -> list[Any]:
        """The results of `work` on states, which threads share if they are large, or on a list of parts of them. No
        digit of a state depends on the others.
        """
        if isinstance(parts, np.ndarray):
            parts = np.array_split(parts, min(cores(), len(parts))) if parts.size > _THREADED else [parts]
        if len(parts) == 1:
            return [work(parts[0])]
        return list(self._pool.map(work, parts))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(cores())

    @np.errstate(all="ignore")
    def _forward(self, z: Array) -> _Forward:
        edge, inner = self._split_at
        theta, first, second = self.bend(contract("sj,ij->si", z[:, inner:], self.mixing))
        outer = self._outer.out(z[:, edge:inner], theta)
        y, ratio = outer.y, self._ratio(outer.y)
        e = self._inner.displace(np.ascontiguousarray(z[:, :edge]))
        x = np.empty((len(z), inner))
        x[:, self._outside] = self.w[self._outside] + y
        if self._fixed_count:
            own = self._inside[: self._fixed_count]
            x[:, own] = self.w[own] + e[:, : self._fixed_count] - contract("so,io->si", y, self._gamma)
        effects = []
        for term, levels in zip(self.model.terms, self._levels, strict=True):
            own_e = e[:, self._fixed_count :][:, _effects_of(self.model, term)]
            effects.append(levels.out(theta[:, term.theta], own_e, y, ratio, x[:, term.effects]))
        return _Forward(x, theta, first, second, outer, effects)

    @np.errstate(all="ignore")
    def _backward(self, forward: _Forward, f: Array, G: Array) -> tuple[Array, Array]:
        """f and ∇f in z, from f and the gradient G of the rows in w, which is overwritten."""
        theta, first, (edge, inner) = forward.theta, forward.first, self._split_at
        by_theta, by_y = np.empty_like(theta), G[:, self._outside]
        for term, at in zip(self.model.terms, forward.effects, strict=True):
            value, slope = term.covariance.prior(theta[:, term.theta])
            derivatives = at.backpropagate(G[:, term.effects])
            f = f + value + derivatives.value
            by_theta[:, term.theta] = derivatives.by_theta + slope
            by_y += derivatives.by_outer
            if derivatives.by_noise is not None:
                by_y[:, -1] += derivatives.by_noise
        by_e = G[:, self._inner_places]
        if self._fixed_count:
            by_y -= contract("si,io->so", by_e[:, : self._fixed_count], self._gamma)
        value, by_outer = self._outer.backpropagate(forward.outer, theta, by_y, by_theta)
        f = f + value - np.log(first).sum(axis=1)
        gradient = np.empty((len(f), self.dim))
        gradient[:, :edge] = self._inner.pull(by_e)
        gradient[:, edge:inner] = by_outer
        gradient[:, inner:] = contract("si,ij->sj", by_theta * first - forward.second / first, self.mixing)
        lost = ~(np.isfinite(f) & np.isfinite(gradient).all(axis=1))
        if lost.any():
            undefined = np.isnan(f) | np.isnan(gradient).any(axis=1)
            overflow = np.isposinf(f) | ~np.isfinite(forward.x).all(axis=1) | ~np.isfinite(theta).all(axis=1)
            f[lost], gradient[lost] = np.where(undefined & ~overflow, np.nan, np.inf)[lost], 0.0
        return f, gradient


def _effects_of(model: MixedModel, term: Term) -> slice:
    """The places of the effects of a term among all effects."""
    return slice(term.effects.start - model.effects.start, term.effects.stop - model.effects.start)


def _outer_places(model: MixedModel, H: MatrixLike) -> Any:
    """The outer coordinates of w: shared parameters and coefficients; of many coefficients those of the columns that
    vary most between levels.
    """
    columns, shared = np.arange(model.columns), np.arange(model.effects.stop, model.inner_dim)
    if len(columns) > _OUTER:
        diagonal = np.maximum(H.diagonal(), 1e-300)
        across = H[: model.columns, model.effects]
        squares = across**2 if isinstance(across, np.ndarray) else across.multiply(across)
        between = np.asarray(squares @ (1 / diagonal[model.effects])).ravel() / diagonal[: model.columns]
        columns = np.sort(np.argsort(-between, kind="stable")[:_OUTER])
    return np.concatenate([columns, shared])


def _block(H: MatrixLike, rows: Any, columns: Any) -> Any:
    """The given rows and columns of H, dense or CSR as H is."""
    return H[np.ix_(rows, columns)] if isinstance(H, np.ndarray) else H[rows][:, columns].tocsr()


def _dense(H: MatrixLike) -> Array:
    return np.asarray(H if isinstance(H, np.ndarray) else H.toarray(), np.float64)


def _block_diagonal(ones: int, blocks: Sequence[Array], dense: bool) -> Any:
    """The block diagonal matrix of `ones` ones, then the blocks (r, r, levels) of every term, level by level."""
    from scipy.sparse import block_diag, bsr_matrix, csr_matrix, eye

    parts = [eye(ones)] if ones else []
    for block in blocks:
        r, count = len(block), block.shape[2]
        data = np.ascontiguousarray(block.transpose(2, 0, 1))
        parts.append(bsr_matrix((data, np.arange(count), np.arange(count + 1)), shape=(count * r, count * r)))
    total = csr_matrix(block_diag(parts, format="csr"))
    return total.toarray() if dense else total


def _inverse_factor(S: Array) -> Array | None:
    """R = L⁻ᵀ with LLᵀ = S; None where S is not positive definite."""
    try:
        return np.asarray(np.linalg.inv(np.linalg.cholesky(S)).T)
    except np.linalg.LinAlgError:
        return None


class _Root(Protocol):
    """The factor L of the Hessian of w given θ."""

    def pull(self, gradient: Array) -> Array:
        """L⁻¹g."""

    def displace(self, z: Array) -> Array:
        """L⁻ᵀz."""

    @property
    def log_volume(self) -> float | None:
        """−log |L|."""


def _root(model: MixedModel, hessian: MatrixLike, theta: Array, w: Array) -> _Root:
    """L with LLᵀ = H, the Hessian of w given θ; for a sparse H by the elimination that the model keeps."""
    for H in _hessians(model, hessian, theta, w):
        if not isinstance(H, np.ndarray) and (root := model.factors(H)) is not None:
            return root
        if not model.factors.apply:
            break
    return _factor(model, hessian, theta, w)


def _factor(model: MixedModel, hessian: MatrixLike, theta: Array, w: Array) -> Whitening:
    """W with WWᵀ = H⁻¹, H the Hessian of w given θ; if that is not positive definite without negative curvatures of
    rows.
    """
    for H in _hessians(model, hessian, theta, w):
        whitening = _whitening(w, H)
        if whitening is not None:
            return whitening
    raise requirement("the model", "one whose coefficients the rows and the prior determine", repr(model))


def _hessians(model: MixedModel, hessian: MatrixLike, theta: Array, w: Array) -> Iterator[MatrixLike]:
    yield model.with_prior(hessian, theta)
    yield model.with_prior(model.curvature(w, convex=True).hessian, theta)


def _whitening(w: Array, H: MatrixLike) -> Whitening | None:
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
    """The mode of w given θ, by Newton's method from w, with steps halved until f falls.

    most: the largest number of steps. near: |L⁻¹∇f|² at which the search ends, L being the factor of the latest
    Hessian.
    """
    f, gradient = model.conditional_energy(w, theta)
    how: _Root | None = None
    for _ in range(most):
        if how is not None and float((how.pull(gradient) ** 2).sum()) < near:
            break
        how = _root(model, model.curvature(w).hessian, theta, w)
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

    With V the covariances of the effects given θ, the derivative by log τ is −q + Σ(u² + V)/τ² − ψ′(log τ), if the
    change of the curvature of the rows with w is neglected. So Σ(u² + V) and the prior give the next log τ, and the
    steps of this iteration are lengthened by the ratio of the last two.
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
        C = factor_product(M, inverse_root(M, D))[:, :, 0]
        V = np.einsum("acl,bcl->abl", C, C)
        if variances is not None:  # which include the uncertainty of the coefficients
            wider = np.sqrt(np.maximum(term.blocks(variances) / np.einsum("aal->al", V), 1.0))
            V = V * wider[:, None] * wider[None]
        u = term.blocks(w)
        S = (u[:, None] * u[None] + V).sum(axis=2)
        coordinates = term.covariance.coordinates(S / term.count)
        coordinates[term.width :] *= term.count / (term.count + 4.0)  # few levels determine a correlation poorly
        for a in range(term.width):
            coordinates[a] = _next_log_scale(term, a, float(S[a, a]), coordinates)
        new[term.theta] = coordinates
    return new


def _next_log_scale(term: Term, a: int, square: float, coordinates: Array) -> float:
    """The root φ of the increasing function q − S e^{−2φ} + ψ′(φ), for the log scale of column a."""
    from scipy.optimize import brentq

    def slope(phi: float) -> float:
        at = coordinates.copy()
        at[a] = phi
        return float(term.count - square * np.exp(-2 * phi) + term.covariance.prior(at[None])[1][0, a])

    middle = 0.5 * np.log(square / term.count)
    return float(brentq(slope, middle - 30, middle + 30))


def _rough_sds(model: MixedModel, theta: Array, w: Array) -> Array:
    """Rough standard deviations of θ, from the prior and the information Σ 2ω² about log τ, where ω = 1 − K² is the
    share of a level's own rows in the estimate of its effect.
    """
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
    w; NaN where H has no factor.
    """
    w = mode_given(model, theta, w, near=_ROUGHLY)
    joint = np.concatenate([w, theta])[None, :]
    how = _root(model, model.curvature(w).hessian, theta, w)
    volume = how.log_volume
    return float("nan") if volume is None else volume - float(model.potentials(joint)[0]), w
