"""A change of variables x = x̂ + W z, with x̂ the mode and WWᵀ ≈ H⁻¹, in which a posterior looks like N(0, I).

    f(x̂ + W z) = ½ zᵀ(WᵀHW) z + (what is not quadratic),        WᵀHW ≈ I.

Three kinds of W:

    dense       W = L⁻ᵀ with H = LLᵀ: WᵀHW = I exactly; dim² numbers, and as many operations a step,
    diagonal    W = D^{−½}, D = diag H: dim of them,
    low rank    W = D^{−½}(I + V diag(λ^{−½} − 1) Vᵀ), with the k eigenvalues λ of D^{−½}HD^{−½} that lie farthest from 1
                (in |log λ|) and their eigenvectors V: these directions are put right too; 2k·dim operations a step.

The map is applied at each step to the state and to the gradient; the rows stay as they are, in the user's coordinates and
their own precision. A transformed copy would save dim² operations a step where the batch is below dim rows, and would
cost a second X: more than the sampling itself wherever X is large, and impossible for a memory map.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc.arrays import Array, contract
from svrhmc.errors import one_of, whole
from svrhmc.targets.glm import DENSE_DIM, GeneralisedLinear

KINDS = ("dense", "diagonal", "low rank")
_RANK = 20


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
        return contract("...e,de->...d", z, self.factor)

    def pull(self, gradient: Array) -> Array:
        """Fᵀ g."""
        return contract("...d,de->...e", gradient, self.factor)

    def into(self, x: Array) -> Array:
        """F⁻¹(x − centre), by a triangular solve."""
        from scipy.linalg import solve_triangular

        away = np.atleast_2d(x - self.centre)
        return np.asarray(solve_triangular(self.factor, away.T).T, np.float64).reshape(np.shape(x))

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

    @property
    def variances(self) -> Array:
        """s²(1 + Σ_k V²((1 + c)² − 1))."""
        more = contract("dk,k->d", self.basis**2, (1 + self.gain) ** 2 - 1)
        return self.scale**2 * (1 + more)

    def _spread(self, z: Array, gain: Array) -> Array:
        along = contract("...d,dk->...k", z, self.basis) * gain
        return z + contract("...k,dk->...d", along, self.basis)


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
        return dense_whitening(target.mode(), target.hessian(target.mode()))
    mode = target.mode()
    curvature = target.row_curvatures(mode)
    scale = (target.rows.squares(curvature) + target.prior_precision) ** -0.5
    if kind == "diagonal":
        return LowRankWhitening(mode, scale, np.zeros((target.dim, 0)), np.zeros(0))
    count = whole("rank", _RANK if rank is None else rank, 1, target.dim - 1)
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
