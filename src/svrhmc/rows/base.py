"""Rows of data behind one interface, dense or sparse.

Everything that a generalised linear model needs of its n × d matrix A is here; nothing else in the library looks at how
the rows are stored. States have the shape (chains, d), and no result depends on how many chains are evaluated at once:
sums run in a fixed order, without BLAS, and in float64 whatever the precision of the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from svrhmc.core.arrays import Array, Indices, Reals, Selection, Values, contract, digest, map_blocks
from svrhmc.core.deadline import budget_check, checking_budget, indivisible_work
from svrhmc.core.recording import compute_once
from svrhmc.families.base import Loss
from svrhmc.rows.csr import CsrMatrix, Matrix

if TYPE_CHECKING:
    from svrhmc.kernels.rows import DenseRows as CompiledDense


Total = TypeVar("Total", bound="RowSums")
Norms = Callable[[Reals], Array]  # a norm of each of some dense rows: (rows, dim) → (rows,)

_BLOCK_ELEMENTS = 1 << 20
_THREADED = 1 << 19  # entries of X from which threads share the passes
_COMPILED = 1 << 23  # entries from which passes are worth seconds of compilation


class Labels(NamedTuple):
    """The labels, offsets and weights of all rows; None stands for offsets that are all 0 or weights that are all 1."""

    y: Array
    offset: Array | None = None
    weights: Array | None = None

    def choose(self, rows: Selection) -> Labels:
        """The labels of the chosen rows."""
        offset, weights = (None if part is None else part[rows] for part in self[1:])
        return Labels(self.y[rows], offset, weights)


class LabelledRows(NamedTuple):
    """A few rows with their labels, in the form that the loss uses."""

    X: Matrix
    y: Array
    offset: Array | None
    weights: Array | None


class RowSums(Protocol):
    """Sums over rows: a named tuple of arrays, to which the sums over other rows can be added."""

    def __iter__(self) -> Iterator[Values | float]: ...

    def __add__(self, other: Self, /) -> Self: ...


class LinearMap(Protocol):
    """What rows need of a map x = x̂ + Wz to the variables z of chains; `svrhmc.whitening.maps` has the kinds."""

    def norms(self, rows: Reals) -> Array:
        """|Wᵀa| of each row a."""

    def images(self, rows: Array) -> Array:
        """aᵀW of each row a."""

    def block_norms(self, blocks: int, width: int) -> Norms | None:
        """√Σ_c |W_cᵀa|² over blocks W_c of the rows of W, in one pass; None where the map cannot."""


class Rows(ABC):
    """An n × dim matrix A with rows aᵢ."""

    storage: ClassVar[str]  # how entries lie in memory, for engines: "dense" or "sparse"
    in_memory: ClassVar[bool] = True  # otherwise rows are read again for each pass over them
    single: ClassVar[bool] = True  # whether single rows can be had, at once or by a pass
    where: ClassVar[str] = "in memory"  # the rows are, in words
    passes: float = 0.0  # the number of passes so far, where each one reads the rows
    pass_seconds: float = 0.0  # the time of the quickest of these
    names: tuple[str, ...] = ()  # of the columns, if they have names
    watch: Callable[[float], None] | None = None  # called with the number of rows read for anything but gradients
    n: int
    dim: int
    dtype: np.dtype[np.floating]

    def recall(self, function: Callable[..., Total], *arguments: Array) -> Total | None:
        """The result of `reduce` with this function at these arguments if it is among the last ones, otherwise None."""
        return None

    def sample_rows(self) -> LabelledRows:
        """Some rows with their labels, where not all rows are in memory."""
        raise NotImplementedError

    def remember(
        self, function: Callable[..., Total], arguments: tuple[Array, ...], total: Total, counted: bool
    ) -> None:
        """Keep the result of `reduce` for `recall`; rows in memory are added up again."""
        return

    def reduce(
        self,
        function: Callable[..., Total],
        form: object,
        *arguments: Array,
        zero: Total,
        task: str,
        counted: bool = False,
    ) -> Total:
        """function(form, *arguments), a sum over the rows of a form, added up over all blocks of rows in their order;
        rows in memory are one block. It is recalled if it is among the last results that were remembered.

        zero: the sum over no rows. task: a name for the pass, shown as progress. counted: whether the caller counts the
        components that are read.
        """
        total = self.recall(function, *arguments)
        if total is None:
            total = self.sum_over_rows(function, form, arguments, zero, task)
            self.remember(function, arguments, total, counted)
        return total

    def sum_over_rows(
        self, function: Callable[..., Total], form: object, arguments: tuple[Array, ...], zero: Total, task: str
    ) -> Total:
        """The sum of `reduce`, by one pass."""
        shapes = [np.shape(part) for part in zero]
        make: Callable[..., Total] = type(zero)
        return make(*compute_once(lambda: tuple(function(form, *arguments)), *shapes, depends_on=arguments))

    @property
    def compiled(self) -> Any:
        """The entries as compiled code reads them (`svrhmc.kernels.rows`); None where it cannot read them."""
        return None

    @abstractmethod
    def predict(self, x: Array) -> Array:
        """All aᵢᵀx: (chains, dim) → (chains, n)."""

    @abstractmethod
    def predict_at(self, x: Array, indices: Indices) -> Array:
        """aᵢᵀx of the chosen rows: (chains, dim), (chains, batch) → (chains, batch)."""

    @abstractmethod
    def dense_matrix(self, indices: Indices) -> Array:
        """The chosen rows as a dense float64 matrix."""

    def jacobians(self, indices: Indices) -> Array:
        """∂tᵢ/∂x of the chosen rows: (rows, predictors, dim)."""
        return self.dense_matrix(indices)[:, None, :]

    @abstractmethod
    def combine(self, weights: Array) -> Array:
        """Σᵢ wᵢaᵢ over all rows: (chains, n) → (chains, dim)."""

    @abstractmethod
    def combine_at(self, weights: Array, indices: Indices) -> Array:
        """Σ_b w_b a_{i_b} over the chosen rows: (chains, batch) → (chains, dim)."""

    def combine_slopes(self, loss: Loss, x: Array, labels: Labels) -> Array | None:
        """Σᵢ wᵢℓ′aᵢ in one pass over the rows; None where there is no compiled pass."""
        return None

    def can_combine_slopes(self, loss: Loss) -> bool:
        """Whether `combine_slopes` gives a result, so that full gradients need no other compiled code."""
        return False

    @property
    def columns(self) -> int:
        """The number of columns of the matrix: the dimension of x, unless a row has several linear predictors."""
        return self.dim

    @property
    def design_matrix(self) -> Rows:
        """The n × columns matrix itself, whatever the number of linear predictors."""
        return self

    def column_values(self, columns: Indices) -> Array:
        """The chosen columns of the matrix, (n, len(columns)), in float64."""
        units = np.zeros((len(columns), self.dim))
        units[np.arange(len(columns)), columns] = 1.0
        return np.ascontiguousarray(self.predict(units).T)

    def stored_weights(self, weights: Array) -> Array:
        """For each column Σᵢ wᵢ over the rows whose entry in it is stored; dense rows store all entries."""
        return np.full(self.dim, weights.sum())

    def columns_of(self, coordinates: Indices) -> Indices:
        """The columns that the given coordinates of x multiply."""
        return coordinates

    @property
    @abstractmethod
    def entries(self) -> float:
        """The number of stored entries of a row, on average."""

    @property
    def entries_read_once(self) -> float:
        """The number of stored entries of a row when each is counted once for all its linear predictors."""
        return self.entries

    @abstractmethod
    def digest(self) -> str:
        """A digest of the contents."""

    @abstractmethod
    def gram(self, weights: Array, precise: bool = False) -> Array:
        """Aᵀ diag(w) A as a dense matrix, (dim, dim). precise: sum in float64 throughout."""

    def grams(self, weights: Sequence[Array], precise: bool = False) -> Array:
        """`gram` for several weights, which may have either sign: (count, dim, dim)."""
        return np.array([self._signed_gram(np.ascontiguousarray(w), precise) for w in weights])

    def _signed_gram(self, weights: Array, precise: bool) -> Array:
        """Aᵀ diag(w) A for w of both signs: the Gram matrix of its positive part minus that of its negative part."""
        parts = [self.gram(np.maximum(sign * weights, 0.0), precise) for sign in (1.0, -1.0)]
        return parts[0] - parts[1]

    def combine_and_gram(self, slopes: Array, weights: Array) -> tuple[Array, Array]:
        """`combine` of the slopes and a precise `gram` of the weights, (n,) each."""
        return self.combine(slopes[None])[0], self.gram(weights, precise=True)

    def sparse_gram(self, weights: Array, diagonal: Array, most: float, full: int) -> CsrMatrix | Array | None:
        """G = Aᵀ diag(w) A + diag(diagonal) as a scipy CSR matrix where rows are sparse and at most `most` products are
        summed, otherwise None. With at most `full` columns, and more products than entries of G, the lower triangle of
        G as an array.
        """
        return None

    @abstractmethod
    def gram_diagonal(self, weights: Array) -> Array:
        """Σᵢ wᵢaᵢⱼ²: the diagonal of `gram`, without the rest."""

    @abstractmethod
    def squared_norms(self) -> Array:
        """|aᵢ|² of every row."""

    def warm(self, loss: Loss, labels: Labels) -> None:
        """Compile or load what passes over the rows need, so that their timing does not include it."""
        return

    @abstractmethod
    def choose(self, indices: Indices) -> Rows:
        """The chosen rows, stored in the same way."""

    @abstractmethod
    def lengths(self, norms: Norms) -> Array:
        """A norm of every row, by a function of blocks of dense rows."""

    def image_squares(self, factor: Array) -> Array:
        """|Fᵀaᵢ|² of every row in float64, for F that is zero above its diagonal."""
        from svrhmc.kernels import columns

        def squares(block: Reals) -> Array:
            out, transposed = np.empty(len(block)), np.ascontiguousarray(factor.T)
            columns.squares(np.asarray(block, np.float64).T.copy(), transposed, out)
            return out

        return self.lengths(squares)

    def whitened_lengths(self, whitening: LinearMap) -> Array:
        """|Wᵀaᵢ| of every row."""
        return self.lengths(whitening.norms)


class DenseRows(Rows):
    """Rows of a C-ordered array of float32 or float64, which is not copied; passes over many rows are compiled."""

    storage = "dense"

    def __init__(self, X: Reals) -> None:
        self.X = np.ascontiguousarray(X)
        self.n, self.dim = X.shape
        self.dtype = X.dtype

    @cached_property
    def compiled(self) -> CompiledDense:
        from svrhmc.kernels.rows import dense_rows

        return dense_rows(self.X)

    def predict(self, x: Array) -> Array:
        """Block by block of rows."""
        if (passes := self._compiled_passes()) is not None:
            return np.array([passes.predict(self, state) for state in np.ascontiguousarray(x)])
        return np.concatenate([contract("nd,cd->cn", block, x) for _, block in self._blocks()], axis=1)

    def predict_at(self, x: Array, indices: Indices) -> Array:
        return contract("cbd,cd->cb", self._gather(indices), x)

    def dense_matrix(self, indices: Indices) -> Array:
        return self._gather(indices)

    def column_values(self, columns: Indices) -> Array:
        return np.asarray(self.X[:, columns], np.float64)

    def combine(self, weights: Array) -> Array:
        """Block by block of rows, in their order."""
        if (passes := self._compiled_passes()) is not None:
            return np.array([passes.combine(self, state) for state in np.ascontiguousarray(weights)])
        total = np.zeros((len(weights), self.dim))
        for begin, block in self._blocks():
            total += contract("cn,nd->cd", weights[:, begin : begin + len(block)], block)
        return total

    def combine_at(self, weights: Array, indices: Indices) -> Array:
        return contract("cb,cbd->cd", weights, self._gather(indices))

    def combine_slopes(self, loss: Loss, x: Array, labels: Labels) -> Array | None:
        """One compiled pass for each state, where rows are many and the loss is compiled; otherwise None."""
        passes = self._compiled_passes()
        if passes is None or not self.can_combine_slopes(loss):
            return None
        return np.asarray(passes.RowsPass(self, loss, labels)(x, valued=False)[1], np.float64)

    def can_combine_slopes(self, loss: Loss) -> bool:
        """True where the loss is compiled, and rows are so many that passes are."""
        return loss.kernel is not None and self._compiled_passes() is not None

    def gram(self, weights: Array, precise: bool = False) -> Array:
        """One pass over the rows."""
        if (passes := self._threaded_passes()) is not None and not (precise and self.dtype == np.float32):
            return np.asarray(passes.grams(self.X, [weights])[0], np.float64)
        total = np.zeros((self.dim, self.dim))
        with indivisible_work(self.n * self.dim**2):
            for begin, block in self._blocks():
                total += (block * weights[begin : begin + len(block), None]).T @ block
        return total

    def grams(self, weights: Sequence[Array], precise: bool = False) -> Array:
        """One pass over the rows for all weights, where rows are many."""
        if (passes := self._threaded_passes()) is not None and not (precise and self.dtype == np.float32):
            return np.asarray(passes.grams(self.X, weights), np.float64)
        return super().grams(weights, precise)

    def gram_diagonal(self, weights: Array) -> Array:
        """One pass over the rows."""
        total = np.zeros(self.dim)
        for begin, block in self._blocks():
            total += contract("n,nd,nd->d", weights[begin : begin + len(block)], block, block)
        return total

    def squared_norms(self) -> Array:
        """One pass over the rows."""
        return np.concatenate([contract("nd,nd->n", block, block) for _, block in self._blocks()])

    @property
    def entries(self) -> float:
        return float(self.dim)

    def digest(self) -> str:
        return digest(self.X)

    def choose(self, indices: Indices) -> DenseRows:
        return DenseRows(self.X[indices])

    def lengths(self, norms: Norms) -> Array:
        """Block by block, on all cores."""
        look = budget_check()

        def block_norms(block: slice) -> Array:
            look(0.0)
            return norms(self.X[block])

        return np.concatenate(map_blocks(block_norms, self.n, max(1, _BLOCK_ELEMENTS // max(1, self.dim))))

    def warm(self, loss: Loss, labels: Labels) -> None:
        """Compile, or load, the passes for rows like these."""
        if (passes := self._compiled_passes()) is not None:
            single_row = self.choose(np.arange(1))
            passes.predict(single_row, np.zeros(self.dim))
            passes.combine(single_row, np.ones(1))
            if self.can_combine_slopes(loss):
                state = np.zeros((1, loss.windows(self.dim)[-1].coefficients.stop))
                passes.RowsPass(single_row, loss, labels.choose(slice(1)))(state, valued=False)

    def _compiled_passes(self) -> ModuleType | None:
        """The module of compiled passes where rows are so many that compiling pays off; otherwise None."""
        return self._threaded_passes() if self.X.size >= _COMPILED else None

    def _threaded_passes(self) -> ModuleType | None:
        """The module of passes on threads where rows are so many that threads pay off; otherwise None."""
        if self.X.size < _THREADED:
            return None
        from svrhmc.rows import passes

        return passes

    def _gather(self, indices: Indices) -> Array:
        return self.X[indices].astype(np.float64, copy=False)

    def _blocks(self) -> Iterator[tuple[int, Array]]:
        """The first row number and the float64 entries of each block. Blocks of float32 rows share one buffer, so that
        each is overwritten by the next one.
        """
        size = max(1, _BLOCK_ELEMENTS // max(1, self.dim))
        buffer = None if self.dtype == np.float64 else np.empty((min(size, self.n), self.dim))
        for begin in checking_budget(range(0, self.n, size)):
            block = self.X[begin : begin + size]
            if buffer is not None:
                buffer[: len(block)] = block
                block = buffer[: len(block)]
            yield begin, np.asarray(block, np.float64)
