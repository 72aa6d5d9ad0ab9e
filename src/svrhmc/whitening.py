"""A change of variables x = x̂ + W z, with x̂ the mode and WWᵀ ≈ H⁻¹, in which a posterior looks like N(0, I).

    f(x̂ + W z) = ½ zᵀ(WᵀHW) z + (what is not quadratic),        WᵀHW ≈ I.

Three kinds of W:

    dense       W = L⁻ᵀ with H = LLᵀ: WᵀHW = I exactly; dim² numbers, and as many operations a step,
    diagonal    W = D^{−½}, D = diag H: dim of them,
    low rank    W = D^{−½}(I + V diag(λ^{−½} − 1) Vᵀ), with the k eigenvalues λ of D^{−½}HD^{−½} that lie farthest
    from 1
                (in |log λ|) and their eigenvectors V: these directions are put right too; 2k·dim operations a step.

The map is applied at each step to the state and to the gradient; the rows stay as they are, in the user's coordinates
and their own precision. A transformed copy would save dim² operations a step where the batch is below dim rows, and
would cost a second X: more than the sampling itself wherever X is large, and impossible for a memory map.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices, contract
from svrhmc.core.errors import one_of, requirement, whole
from svrhmc.targets.base import Expansion, FiniteSum, Moments
from svrhmc.targets.glm import DENSE_DIM, GeneralisedLinear, mixed

KINDS = ("dense", "diagonal", "low rank")
_RANK = 20
_BLOCK = 64


class Whitening(ABC):
    """x = centre + W z, row by row of (…, dim) arrays; no digit depends on how many rows there are."""

    centre: Array

    @abstractmethod
    def displace(self, z: Array) -> Array:
        """W z."""

    @abstractmethod
    def pull(self, gradient: Array) -> Array:
        """Wᵀ g: a gradient in x becomes one in z."""

    @abstractmethod
    def into(self, x: Array) -> Array:
        """z = W⁻¹(x − centre)."""

    def out(self, z: Array) -> Array:
        """x = centre + W z."""
        return self.centre + self.displace(z)

    @abstractmethod
    def norms(self, rows: Any) -> Array:
        """|Wᵀaᵢ| of some rows, by BLAS in their own precision: a size, which no digit of a draw rests on."""

    @property
    @abstractmethod
    def variances(self) -> Array:
        """The diagonal of WWᵀ: variances of x where z has unit covariance."""


@dataclass(frozen=True, eq=False)
class DenseWhitening(Whitening):
    """W = factor, dim × dim."""

    centre: Array
    factor: Array

    def displace(self, z: Array) -> Array:
        """F z."""
        return _rows_times(z, self.factor.T)

    def pull(self, gradient: Array) -> Array:
        """Fᵀ g."""
        return _rows_times(gradient, self.factor)

    def into(self, x: Array) -> Array:
        """F⁻¹(x − centre), by a triangular solve."""
        from scipy.linalg import solve_triangular

        away = (x - self.centre).reshape(-1, len(self.centre))
        return np.asarray(solve_triangular(self.factor, away.T).T, np.float64).reshape(np.shape(x))

    def norms(self, rows: Any) -> Array:
        """One product."""
        return _lengths(rows @ self.factor.astype(rows.dtype))

    @property
    def variances(self) -> Array:
        """Σₑ F²."""
        return contract("de,de->d", self.factor, self.factor)


@dataclass(frozen=True, eq=False)
class LowRankWhitening(Whitening):
    """W = diag(scale)(I + V diag(gain) Vᵀ) with orthonormal columns V; diagonal where V has none."""

    centre: Array
    scale: Array
    basis: Array
    gain: Array

    def displace(self, z: Array) -> Array:
        """s∘(z + V(c∘Vᵀz))."""
        return self.scale * self._spread(z, self.gain)

    def pull(self, gradient: Array) -> Array:
        """(I + V diag(c) Vᵀ)(s∘g)."""
        return self._spread(self.scale * gradient, self.gain)

    def into(self, x: Array) -> Array:
        """(I + V diag(1/(1+c) − 1) Vᵀ)((x − centre)/s)."""
        return self._spread((x - self.centre) / self.scale, -self.gain / (1 + self.gain))

    def norms(self, rows: Any) -> Array:
        """|W^T a|² = |y|² + Σ_k ((1 + c)² − 1)(Vᵀy)²ₖ with y = s∘a."""
        scaled = rows * self.scale.astype(rows.dtype)
        along = scaled @ self.basis.astype(rows.dtype)
        more = (along.astype(np.float64) ** 2) @ ((1 + self.gain) ** 2 - 1)
        return np.asarray(np.sqrt(np.maximum(_lengths(scaled) ** 2 + more, 0.0)), np.float64)

    @property
    def variances(self) -> Array:
        """s²(1 + Σ_k V²((1 + c)² − 1))."""
        more = contract("dk,k->d", self.basis**2, (1 + self.gain) ** 2 - 1)
        return self.scale**2 * (1 + more)

    def _spread(self, z: Array, gain: Array) -> Array:
        if not gain.size:
            return z
        return z + _rows_times(_rows_times(z, self.basis) * gain, self.basis.T)


def _rows_times(rows: Array, matrix: Array) -> Array:
    """Each row times the matrix; many draws of a chain by BLAS, always 64 at a time, so that no company changes a
    digit.
    """
    if rows.ndim < 3 or rows.shape[1] < _BLOCK:
        return contract("...d,de->...e", rows, matrix)
    out = np.empty((*rows.shape[:2], matrix.shape[1]))
    for chain, result in zip(rows, out, strict=True):
        for begin in range(0, len(chain), _BLOCK):
            block = chain[begin : begin + _BLOCK]
            padded = np.concatenate([block, np.zeros((_BLOCK - len(block), block.shape[1]))])
            result[begin : begin + _BLOCK] = (padded @ matrix)[: len(block)]
    return out


def _lengths(rows: Any) -> Array:
    return np.asarray(np.sqrt(np.einsum("nd,nd->n", rows, rows)), np.float64)


def whitening(target: GeneralisedLinear, kind: str | None = None, rank: int | None = None) -> Whitening:
    """The whitening of a target at its mode; `kind` None is dense up to 2000 columns and diagonal beyond.

    >>> from svrhmc import targets
    >>> target = targets.logistic([[1.0, 0.5], [1.0, -2.0], [1.0, 1.5]], [1, 0, 1])
    >>> W = whitening(target).displace(np.eye(2)).T
    >>> (W.T @ target.hessian(target.mode()) @ W).round(12)
    array([[ 1., -0.],
           [-0.,  1.]])
    """
    if kind is None:
        kind = "dense" if target.dim <= DENSE_DIM else "diagonal"
    one_of("kind", kind, KINDS)
    if kind == "dense":
        return dense_whitening(target.mode(), target.modal_hessian)
    mode = target.mode()
    curvature = target.row_curvatures(mode)
    scale = (target.rows.squares(curvature) + target.prior_precision) ** -0.5
    if kind == "diagonal":
        return LowRankWhitening(mode, scale, np.zeros((target.dim, 0)), np.zeros(0))
    count = whole("rank", min(_RANK, target.dim - 1) if rank is None else rank, 1, target.dim - 1)
    values, vectors = _extremes(target, curvature, scale, count)
    return LowRankWhitening(mode, scale, vectors, values**-0.5 - 1)


def dense_whitening(centre: Array, hessian: Array) -> DenseWhitening:
    """W = L⁻ᵀ with H = LLᵀ."""
    from scipy.linalg import cholesky, solve_triangular

    upper = cholesky(hessian)  # H = UᵀU, so that L⁻ᵀ = U⁻¹
    factor: Array = np.triu(solve_triangular(upper, np.eye(len(hessian))))
    return DenseWhitening(centre, np.ascontiguousarray(factor))


def _extremes(target: GeneralisedLinear, curvature: Array, scale: Array, rank: int) -> tuple[Array, Array]:
    """The `rank` eigenpairs of D^{−½}HD^{−½} farthest from 1 in |log λ|, of the `rank` largest and smallest."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    def product(z: Array) -> Array:
        return scale * target.curved_product(curvature, scale * z.ravel())

    operator: Any = LinearOperator((target.dim, target.dim), matvec=product, dtype=np.float64)
    start = np.ones(target.dim)  # fixed, so that the answer is the same every time
    if 2 * rank >= target.dim - 1:
        whole_matrix = np.array([product(row) for row in np.eye(target.dim)])
        values, vectors = np.linalg.eigh((whole_matrix + whole_matrix.T) / 2)
    else:
        pairs = [eigsh(operator, k=rank, which=which, v0=start, tol=1e-3) for which in ("LA", "SA")]
        values, vectors = (np.concatenate(both, axis=-1) for both in zip(*pairs, strict=True))
    chosen = np.argsort(-np.abs(np.log(values)))[:rank]
    basis, _ = np.linalg.qr(vectors[:, chosen])
    projected = basis.T @ np.array([product(column) for column in basis.T]).T
    values, turn = np.linalg.eigh((projected + projected.T) / 2)
    return values, np.ascontiguousarray(basis @ turn)


def whitened(target: FiniteSum, how: Whitening | str | None = None) -> FiniteSum:
    """The target in whitened variables: any sampler runs on it, and its traces are in the user's coordinates.

    how: a `Whitening`, or the kind of one to make at the mode (None: dense up to 2000 columns, diagonal beyond).

    >>> from svrhmc import Sampler, dynamics, gradients, targets
    >>> target = targets.logistic([[1.0, 0.5], [1.0, -2.0], [1.0, 1.5]], [1, 0, 1])
    >>> sampler = Sampler(dynamics.BAOAB(1.0, 1.0, 1.0), gradients.Full())
    >>> sampler.run(whitened(target), steps=2000, thin=10).draws.shape
    (4, 200, 2)
    """
    if isinstance(target, GeneralisedLinear):
        return WhitenedRows(target, how if isinstance(how, Whitening) else whitening(target, how))
    if isinstance(how, Whitening):
        return WhitenedComponents(target, how)
    raise requirement("how", f"a Whitening for {target!r}", repr(how), "its curvature is not known")


class Whitened(FiniteSum):
    """What targets in other variables share: f(x̂ + W z) and its gradient."""

    def __init__(self, target: FiniteSum, how: Whitening) -> None:
        self.target, self.whitening = target, how
        self.n, self.dim, self.row_size = target.n, target.dim, target.row_size
        self.scalar_parts = target.scalar_parts

    def __repr__(self) -> str:
        return f"whitened({self.target!r})"

    def into(self, x: Array) -> Array:
        """z of x."""
        return self.whitening.into(x)

    def out(self, state: Array) -> Array:
        """x of z."""
        return self.whitening.out(state)

    @property
    def closed_form(self) -> Moments | None:
        """The Gaussian in z where it is one in x."""
        law = self.target.closed_form
        if law is None:
            return None
        covariance = self.whitening.into(
            self.whitening.into(law.covariance + self.whitening.centre).T + self.whitening.centre
        )
        return Moments(self.whitening.into(law.mean), covariance)

    def mode(self) -> Array:
        """z of the mode."""
        state: Array = self.into(self.target.mode())
        return state

    def potentials(self, x: Array) -> Array:
        """f(x̂ + W z)."""
        return self.target.potentials(self.out(x))

    def gradients(self, x: Array) -> Array:
        """Wᵀ∇f(x̂ + W z)."""
        return self.whitening.pull(self.target.gradients(self.out(x)))

    def _with_quadratic(self, strength: float, centre: Array) -> FiniteSum:
        raise requirement("target", "one in its own coordinates: regularise it first, then whiten it", repr(self))


class WhitenedComponents(Whitened):
    """Any components, with the chain rule."""

    @property
    def smoothness(self) -> float:
        """Not known in these coordinates."""
        raise requirement("inverse_mass", "given", "None", "the smoothness in whitened variables is not known")

    @property
    def component_smoothness(self) -> float:
        """Not known in these coordinates."""
        return self.smoothness

    @property
    def convexity(self) -> float:
        """Nothing is known."""
        return 0.0

    def curvature_range(self, bound: bool) -> tuple[float, float] | None:
        """Not known."""
        return None

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """Those of the target."""
        return self.target.parts(self.out(x), indices)

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """Those of the target, pulled back."""
        return self.whitening.pull(self.target.assemble(parts, indices))

    def prior_gradient(self, x: Array) -> Array:
        """That of the target, pulled back."""
        return self.whitening.pull(self.target.prior_gradient(self.out(x)))


class WhitenedRows(Whitened):
    """A generalised linear model in the variables z = W⁻¹(x − x̂), each component freed of its first orders at x̂.

        f(x̂ + W z) = bᵀz + ½ zᵀM z + Σᵢ ρᵢ(aᵢᵀW z) + constant,          b = Wᵀ∇f(x̂),  t̂ᵢ = aᵢᵀx̂,

        dense W:   M = I,       ρᵢ(u) = ℓ(t̂ᵢ + u) − ℓ(t̂ᵢ) − ℓ′(t̂ᵢ)u − ½ℓ″(t̂ᵢ)u²,
        else:      M = WᵀΛW,    ρᵢ(u) = ℓ(t̂ᵢ + u) − ℓ(t̂ᵢ) − ℓ′(t̂ᵢ)u.

    The part before the sum is never subsampled. So `Minibatch` here is `ControlVariate` in the user's coordinates: of
    order 2 for a dense W, of order 1 for the others.
    """

    target: GeneralisedLinear

    def __init__(self, target: GeneralisedLinear, how: Whitening) -> None:
        super().__init__(target, how)
        self.exact = isinstance(how, DenseWhitening)  # M = I
        kind = target.rows.dtype
        self.predictors: Array = target.rows.predict(how.centre[None, :])[0].astype(kind).astype(np.float64)
        self.slopes: Array = target.loss.slope(self.predictors, target.y)
        self.curvatures: Array = target.loss.curvature(self.predictors, target.y)
        self.force = -how.pull(target.gradient(how.centre))

    @cached_property
    def smoothness(self) -> float:
        """λ_max(Wᵀ(c AᵀA + Λ)W), c the loss's largest curvature: a bound."""
        return self._largest(np.full(self.n, self.target.loss.curvature_bound))

    @cached_property
    def component_smoothness(self) -> float:
        """max_i n c |Wᵀaᵢ|² + λ_max(M)."""
        largest = float(self.row_norms.max()) ** 2
        within = 1.0 if self.exact else self._largest(np.zeros(self.n))
        return self.n * self.target.loss.curvature_bound * largest + within

    @property
    def convexity(self) -> float:
        """What the prior alone guarantees, where W is diagonal; else nothing is known."""
        how = self.whitening
        if isinstance(how, LowRankWhitening) and not how.gain.size:
            return float((how.scale**2 * self.target.prior_precision).min())
        return 0.0

    def curvature_range(self, bound: bool) -> tuple[float, float] | None:
        """Bounds, or those at the mode: 1 for a dense W."""
        if bound:
            return self.convexity, self.smoothness
        return (1.0, 1.0) if self.exact else (self.convexity, self._largest(self.curvatures))

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """nρᵢ′: one number a row."""
        at, target = self.whitening.displace(x), self.target
        u = target.rows.predict(at) if indices is None else target.rows.predict_at(at, indices)
        chosen = slice(None) if indices is None else indices
        rest = target.loss.slope(self.predictors[chosen] + u, target.y[chosen]) - self.slopes[chosen]
        return self.n * (rest - self.curvatures[chosen] * u if self.exact else rest)

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """(1/B) Σ_b part_b Wᵀa_{i_b}."""
        return self.whitening.pull(self.target.assemble(parts, indices))

    def prior_gradient(self, x: Array) -> Array:
        """b + M z."""
        if self.exact:
            return x - self.force
        return self.whitening.pull(self.whitening.displace(x) * self.target.prior_precision) - self.force

    def expansion(self, x: Array) -> Expansion:
        """None is left at the mode where W is dense."""
        if not self.exact or x.any():
            return super().expansion(x)
        return _NoExpansion(np.zeros((self.dim, self.dim)))

    def laplace(self) -> Moments:
        """N(0, I) for a dense W."""
        return Moments(np.zeros(self.dim), np.eye(self.dim)) if self.exact else super().laplace()

    def importance(self) -> Array:
        """max(ℓ″, 0.02)|Wᵀaᵢ|³, the size of a third-order term, mixed with a tenth of even weights."""
        return mixed(np.maximum(self.curvatures, 0.02) * self.row_norms**3)

    @cached_property
    def row_norms(self) -> Array:
        """|Wᵀaᵢ| of every row."""
        return self.target.row_lengths(self.whitening)

    def _largest(self, curvature: Array) -> float:
        from scipy.sparse.linalg import LinearOperator, eigsh

        def product(z: Array) -> Array:
            return self.whitening.pull(self.target.curved_product(curvature, self.whitening.displace(z.ravel())))

        if self.dim <= 3:
            return float(np.linalg.eigvalsh(np.array([product(row) for row in np.eye(self.dim)]))[-1])
        operator: Any = LinearOperator((self.dim, self.dim), matvec=product, dtype=np.float64)
        return float(eigsh(operator, k=1, which="LA", v0=np.ones(self.dim), return_eigenvectors=False)[0])


@dataclass(frozen=True, eq=False)
class _NoExpansion(Expansion):
    """All second derivatives are 0."""

    hessian: Array

    def parts(self, away: Array, indices: Indices) -> Array:
        """0 for each."""
        return np.zeros(indices.shape)
