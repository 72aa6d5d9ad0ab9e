"""A change of variables x = x̂ + W z, with x̂ the mode and WWᵀ ≈ H⁻¹, in which a posterior looks like N(0, I).

    f(x̂ + W z) = ½ zᵀ(WᵀHW) z + (what is not quadratic),        WᵀHW ≈ I.

Four kinds of W:

    dense       W = L⁻ᵀ with H = LLᵀ: WᵀHW = I exactly; dim² numbers, and as many operations a step,
    diagonal    W = D^{−½}, D = diag H: dim of them,
    low rank    W = D^{−½}(I + V diag(λ^{−½} − 1) Vᵀ), with the k eigenvalues λ of D^{−½}HD^{−½} that lie farthest
    from 1
                (in |log λ|) and their eigenvectors V: these directions are put right too; 2k·dim operations a step,
    sparse      W = P L⁻ᵀ with H = P L Lᵀ Pᵀ and a sparse L (`sparse.py`): as exact as dense, for as many operations as
                L has entries.

The map is applied at each step to the state and to the gradient; the rows stay as they are, in the user's coordinates
and their own precision. A transformed copy would save dim² operations a step where the batch is below dim rows, and
would cost a second X: more than the sampling itself wherever X is large, and impossible for a memory map.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Reals, contract, digest
from svrhmc.core.deadline import INVERSE, indivisible_work
from svrhmc.core.errors import finite, nonnegative, real_array, require_finite, requirement

_BLOCK = 64
_SINGLE_THREADED = _BLOCK**3  # multiplications for which BLAS uses one thread


class Map(ABC):
    """x = T(z): the variables z in which chains run. States are (states, dim), draws (chains, draws, dim).

    A density π(x) is π(T(z))|det T′(z)| in z, so that f(z) = f(T(z)) − log |det T′(z)| there.
    """

    @abstractmethod
    def out(self, z: Array, first: int = 0) -> Array:
        """T(z); of draws, `first` is the number of the first one."""

    @abstractmethod
    def into(self, x: Array) -> Array:
        """z with T(z) = x."""

    @abstractmethod
    def pulled(self, z: Array, gradient: Array) -> Array:
        """T′(z)ᵀ g: a gradient in x becomes one in z."""

    @abstractmethod
    def log_determinant(self, z: Array) -> tuple[Array, Array] | None:
        """log |det T′(z)| of each state and its gradient; None where it is the same everywhere."""

    def identity(self) -> str:
        """What a run that goes on must find unchanged: here its printed form, which should show its numbers."""
        return repr(self)


class Whitening(Map):
    """x = centre + W z, row by row of (…, dim) arrays; no digit depends on how many rows there are.

    Draws (chain, draw, dim) may be mapped piece by piece: `first` is the number of the first of them.
    """

    kind: ClassVar[str]  # which arrays W is made of: "dense", "low rank" or "sparse"
    identity_hessian: ClassVar[bool] = False  # whether WᵀHW = I, to rounding
    row_lengths: ClassVar[bool] = True  # whether |Wᵀaᵢ| of every row costs no more than a few gradients
    centre: Array
    why: str  # this kind was made, where another would have been better

    @property
    def for_sparse_rows(self) -> bool:
        """Whether it was made of a sparse Hessian: then chains go through the rows two by two."""
        return False

    @property
    def operations(self) -> float:
        """Multiplications of one map beyond those of a diagonal one, for what a step is expected to cost."""
        return 0.0

    @property
    def leftover(self) -> float:
        """|WᵀHW − I|²_F, the sum of squares of what the map leaves of correlations, where it is known; else 0."""
        return 0.0

    @property
    def least_curvature(self) -> float:
        """The least eigenvalue of WᵀHW where it is known to be below 1; else 1."""
        return 1.0

    @property
    def log_volume(self) -> float | None:
        """log |det W|, where it is known."""
        return None

    @abstractmethod
    def displace(self, z: Array, first: int = 0) -> Array:
        """W z."""

    @abstractmethod
    def pull(self, gradient: Array) -> Array:
        """Wᵀ g: a gradient in x becomes one in z."""

    def pulled(self, z: Array, gradient: Array) -> Array:
        return self.pull(gradient)

    def log_determinant(self, z: Array) -> None:
        return

    @abstractmethod
    def into(self, x: Array) -> Array:
        """z = W⁻¹(x − centre)."""

    def out(self, z: Array, first: int = 0) -> Array:
        """x = centre + W z."""
        return self.centre + self.displace(z, first)

    @abstractmethod
    def norms(self, rows: Reals) -> Array:
        """|Wᵀaᵢ| of some rows, by BLAS in their own precision: a size, which no digit of a draw rests on."""

    def images(self, rows: Array) -> Array:
        """Wᵀaᵢ of some rows: for sizes, which no digit of a draw rests on."""
        return self.pull(rows)

    def block_norms(self, blocks: int, width: int) -> Callable[[Reals], Array] | None:
        """√Σ_c |W_cᵀaᵢ|² of some rows, W_c being rows c·width to (c + 1)·width of W; None where it has no short way."""
        return None

    @property
    @abstractmethod
    def variances(self) -> Array:
        """The diagonal of WWᵀ: variances of x where z has unit covariance."""

    def least_square(self, weights: Array) -> float:
        """A lower bound on λ_min(Wᵀ diag(weights) W), for weights not below 0."""
        return 0.0

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """All that the map is made of, by name."""

    @abstractmethod
    def require_sound(self) -> None:
        """Refuse arrays whose types, shapes or numbers are not those of a map: compiled code does not look at them."""

    def said(self) -> dict[str, object]:
        """What else is known of it, as plain data."""
        return {"why": self.why}

    def identity(self) -> str:
        """A digest of its arrays."""
        return digest(*self.arrays().values())


@dataclass(frozen=True, eq=False)
class DenseWhitening(Whitening):
    """W = factor, dim × dim."""

    kind = "dense"
    identity_hessian = True
    centre: Array
    factor: Array
    why: str = ""

    @property
    def operations(self) -> float:
        return float(len(self.centre) ** 2)

    @property
    def log_volume(self) -> float:
        """From the diagonal of a triangle."""
        return float(np.log(np.abs(np.diag(self.factor))).sum())

    def displace(self, z: Array, first: int = 0) -> Array:
        """F z."""
        return _multiply_rows(z, self.factor.T, first)

    def pull(self, gradient: Array) -> Array:
        """Fᵀ g."""
        return _multiply_rows(gradient, self.factor)

    def into(self, x: Array) -> Array:
        """F⁻¹(x − centre), by a triangular solve."""
        from scipy.linalg import solve_triangular

        away = (x - self.centre).reshape(-1, len(self.centre))
        return np.asarray(solve_triangular(self.factor, away.T).T, np.float64).reshape(np.shape(x))

    def norms(self, rows: Reals) -> Array:
        return product_norms(rows, self.factor)

    def images(self, rows: Array) -> Array:
        return np.asarray(rows @ self.factor, np.float64)

    def block_norms(self, blocks: int, width: int) -> Callable[[Reals], Array]:
        """|R aᵢ|, R the triangular factor of all W_cᵀ, one below the other: RᵀR = Σ_c W_cW_cᵀ."""
        stacked = self.factor[: blocks * width].reshape(blocks, width, -1).swapaxes(1, 2)
        root: Array = np.ascontiguousarray(np.transpose(np.linalg.qr(stacked.reshape(-1, width), mode="r")))
        return lambda rows: product_norms(rows, root)

    @property
    def variances(self) -> Array:
        """Σₑ F²."""
        return contract("de,de->d", self.factor, self.factor)

    def arrays(self) -> dict[str, Array]:
        return {"centre": self.centre, "factor": self.factor}

    def require_sound(self) -> None:
        """A triangle with no 0 on its diagonal."""
        dim = len(self.centre)
        require_arrays(self, {"centre": (dim,), "factor": (dim, dim)})
        if not (np.diag(self.factor) != 0).all():
            raise requirement("factor", "without a 0 on its diagonal", "one with some")


@dataclass(frozen=True, eq=False)
class LowRankWhitening(Whitening):
    """W = diag(scale)(I + V diag(gain) Vᵀ) with orthonormal columns V; diagonal where V has none."""

    kind = "low rank"
    centre: Array
    scale: Array
    basis: Array
    gain: Array
    left: float = 0.0
    why: str = ""
    least: float = 1.0  # eigenvalue of WᵀHW, as far as it is known

    @property
    def leftover(self) -> float:
        """As it was found with the map."""
        return self.left

    @property
    def least_curvature(self) -> float:
        return self.least

    @property
    def for_sparse_rows(self) -> bool:
        return self.left > 0

    @property
    def operations(self) -> float:
        """Of V and Vᵀ."""
        return float(2 * self.basis.size)

    def displace(self, z: Array, first: int = 0) -> Array:
        """s∘(z + V(c∘Vᵀz))."""
        return self.scale * self._apply_low_rank(z, self.gain, first)

    def pull(self, gradient: Array) -> Array:
        """(I + V diag(c) Vᵀ)(s∘g)."""
        return self._apply_low_rank(self.scale * gradient, self.gain)

    def into(self, x: Array) -> Array:
        """(I + V diag(1/(1+c) − 1) Vᵀ)((x − centre)/s)."""
        return self._apply_low_rank((x - self.centre) / self.scale, -self.gain / (1 + self.gain))

    def norms(self, rows: Reals) -> Array:
        """|W^T a|² = |y|² + Σ_k ((1 + c)² − 1)(Vᵀy)²ₖ with y = s∘a."""
        scaled = rows * self.scale.astype(rows.dtype)
        along = scaled @ self.basis.astype(rows.dtype)
        more = (along.astype(np.float64) ** 2) @ ((1 + self.gain) ** 2 - 1)
        return np.asarray(np.sqrt(np.maximum(dense_row_lengths(scaled) ** 2 + more, 0.0)), np.float64)

    @property
    def variances(self) -> Array:
        """s²(1 + Σ_k V²((1 + c)² − 1))."""
        more = contract("dk,k->d", self.basis**2, (1 + self.gain) ** 2 - 1)
        return self.scale**2 * (1 + more)

    def least_square(self, weights: Array) -> float:
        """Known where W is diagonal."""
        return 0.0 if self.gain.size else float((self.scale**2 * weights).min())

    def arrays(self) -> dict[str, Array]:
        """Centre, scale, basis and gain."""
        return {"centre": self.centre, "scale": self.scale, "basis": self.basis, "gain": self.gain}

    def require_sound(self) -> None:
        """Scales above 0, and as many gains as directions, none of which takes a direction away."""
        dim, rank = len(self.centre), len(self.gain)
        require_arrays(self, {"centre": (dim,), "scale": (dim,), "basis": (dim, rank), "gain": (rank,)})
        if not (self.scale > 0).all() or not (self.gain > -1).all():
            raise requirement("whitening", "of scales above 0 and gains above -1", "others")
        nonnegative("left", self.left)
        finite("least", self.least)

    def said(self) -> dict[str, object]:
        return {"left": self.left, "why": self.why, "least": self.least}

    def _apply_low_rank(self, z: Array, gain: Array, first: int = 0) -> Array:
        if not gain.size:
            return z
        return z + _multiply_rows(_multiply_rows(z, self.basis, first) * gain, self.basis.T, first)


def _multiply_rows(rows: Array, matrix: Array, first: int = 0) -> Array:
    """Each row times the matrix; draws of a chain by BLAS, in blocks of 64 × 64 × 64.

    A draw has its place in a block from its number, `first` being that of the first one: BLAS may round a row
    differently in another place or among other numbers of rows, but not beside other rows. Blocks of this size are
    small enough for BLAS to use one thread, so that their number changes no digit either.
    """
    if rows.ndim < 3:
        return contract("...d,de->...e", rows, matrix)
    inner, outer = matrix.shape
    out = np.empty((*rows.shape[:2], outer))
    for chain, result in zip(rows, out, strict=True):
        for begin in range(-(first % _BLOCK), len(chain), _BLOCK):
            low, high = max(begin, 0), min(begin + _BLOCK, len(chain))
            block = np.zeros((_BLOCK, inner))
            block[low - begin : high - begin] = chain[low:high]
            total = np.zeros((_BLOCK, outer))
            for k in range(0, inner, _BLOCK):
                part = np.ascontiguousarray(block[:, k : k + _BLOCK])
                for j in range(0, outer, _BLOCK):
                    total[:, j : j + _BLOCK] += part @ matrix[k : k + _BLOCK, j : j + _BLOCK]
            result[low:high] = total[low - begin : high - begin]
    return out


def product_norms(rows: Reals, matrix: Array) -> Array:
    """|Mᵀaᵢ| of some dense rows: where M is small, so few at a time that BLAS uses one thread, and waits for none."""
    given, size = matrix.astype(rows.dtype), _SINGLE_THREADED // matrix.size
    size = size if size >= _BLOCK else max(1, len(rows))
    some = [dense_row_lengths(rows[low : low + size] @ given) for low in range(0, len(rows), size)]
    return np.concatenate(some) if some else np.zeros(0)


def require_arrays(whitening: Whitening, shapes: dict[str, tuple[int, ...]], kind: npt.DTypeLike = np.float64) -> None:
    """Refuse arrays of a map that are not finite, of this type and of these shapes."""
    for name, shape in shapes.items():
        array = getattr(whitening, name)
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.shape != shape:
            given = f"{array.dtype} of {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise requirement(f"{name} of a {whitening.kind} whitening", f"{np.dtype(kind)} of {shape}", given)
        require_finite(name, array)


def dense_row_lengths(rows: Reals) -> Array:
    """|aᵢ| of some dense rows."""
    return np.asarray(np.sqrt(np.einsum("nd,nd->n", rows, rows)), np.float64)


def dense_whitening(centre: Array, hessian: Array) -> DenseWhitening:
    """W = L⁻ᵀ with H = LLᵀ."""
    from scipy.linalg import cholesky, solve_triangular

    H = real_array("hessian", hessian, (len(centre), len(centre)))
    if not np.allclose(H, H.T, rtol=1e-6, atol=1e-9 * np.abs(H).max()):
        raise requirement("hessian", "symmetric", "a matrix that is not")
    with indivisible_work(INVERSE * len(hessian) ** 3):
        try:
            upper = cholesky(hessian)  # H = UᵀU, so that L⁻ᵀ = U⁻¹
        except np.linalg.LinAlgError:
            raise requirement("hessian", "positive definite", "a matrix that is not") from None
        factor: Array = np.triu(solve_triangular(upper, np.eye(len(hessian))))
    return DenseWhitening(centre, np.ascontiguousarray(factor))


def require_map(how: object, dim: int) -> Map:
    """Raise an error unless this is a map of `dim` coordinates: a whitening, or one that goes there and back."""
    if not isinstance(how, Map) or isinstance(how, Whitening):
        return require_whitening(how, dim)
    z = 0.1 * np.cos(np.arange(2 * dim)).reshape(2, dim)
    x = how.out(z)
    if np.shape(x) != z.shape or not np.allclose(how.into(x), z, atol=1e-8):
        raise requirement("the map", f"one of {dim} coordinates with into(out(z)) = z", repr(how))
    return how


def require_whitening(whitening: object, dim: int) -> Whitening:
    """Raise an error unless this is a whitening of `dim` coordinates."""
    if not isinstance(whitening, Whitening):
        allowed = "None, one of 'dense', 'diagonal', 'low rank', 'sparse', or a Whitening"
        raise requirement("whitening", allowed, repr(whitening))
    if whitening.centre.shape != (dim,):
        raise requirement("whitening", f"one of {dim} coordinates", len(whitening.centre))
    whitening.require_sound()
    return whitening
