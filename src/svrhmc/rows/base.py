"""Rows of data behind one accessor, dense or sparse.

Everything a generalised linear model asks of its n × d matrix A is here; nothing else in the library looks at how
the rows are stored. States come as (chains, d), and no result depends on how many chains are asked for at once: the
sums run in a fixed order, without BLAS, and in float64 whatever the rows are stored in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from svrhmc.core.arrays import Array, Indices, Reals, Selection, Values, contract, cores, digest
from svrhmc.core.deadline import budget_check, checking_budget, indivisible_work
from svrhmc.core.recording import compute_once
from svrhmc.families.base import Loss
from svrhmc.rows.csr import CsrMatrix, Matrix

if TYPE_CHECKING:
    from svrhmc.kernels.rows import DenseRows as CompiledDense


Total = TypeVar("Total", bound="RowSums")
Norms = Callable[[Reals], Array]  # of some dense rows: (rows, dim) → (rows,)

_BLOCK_ELEMENTS = 1 << 20
_LARGE = 1 << 19  # entries of X from which passes are shared by threads
_COMPILED = 1 << 23  # entries from which those of a search are worth seconds of compilation


class Labels(NamedTuple):
    """The label, offset and weight of every row; None where they are alike for all: no offset, a weight of 1."""

    y: Array
    offset: Array | None = None
    weights: Array | None = None

    def chosen(self, rows: Selection) -> Labels:
        """The labels of some rows."""
        offset, weights = (None if part is None else part[rows] for part in self[1:])
        return Labels(self.y[rows], offset, weights)


class Some(NamedTuple):
    """A few rows, with labels in the loss's form."""

    X: Matrix
    y: Array
    offset: Array | None
    weights: Array | None


class RowSums(Protocol):
    """Sums over rows: a named tuple of arrays, to which those of other rows can be added."""

    def __iter__(self) -> Iterator[Values | float]: ...

    def __add__(self, other: Self, /) -> Self: ...


class LinearMap(Protocol):
    """x = x̂ + Wz, the variables z of chains, as far as rows ask for them; `svrhmc.whitening.maps` has the kinds."""

    def norms(self, rows: Reals) -> Array:
        """|Wᵀa| of some rows."""

    def images(self, rows: Array) -> Array:
        """aᵀW of some rows."""

    def block_norms(self, blocks: int, width: int) -> Norms | None:
        """√Σ_c |W_cᵀa|² over the blocks W_c of W's rows, where there is a way in one pass."""


class Rows(ABC):
    """An n × dim matrix A with rows aᵢ."""

    storage: ClassVar[str]  # how the entries lie in memory, for those who must know: "dense" or "sparse"
    in_memory: ClassVar[bool] = True  # else rows are read anew for each pass over them
    passes: float = 0.0  # made over rows that are read anew for each
    pass_seconds: float = 0.0  # what the quickest of them took
    names: tuple[str, ...] = ()  # of the columns, where they have some
    watch: Callable[[float], None] | None = None  # called with the number of rows read other than for gradients
    n: int
    dim: int
    dtype: np.dtype[np.floating]

    def recalled(self, function: Callable[..., Total], *arguments: Array) -> Total | None:
        """The result of `reduce` with this function at these arguments, where it is among the last ones; else None."""
        return None

    def few(self) -> Some:
        """Some rows, with their labels, where all of them are not in memory."""
        raise NotImplementedError

    def reduce(
        self,
        function: Callable[..., Total],
        form: object,
        *arguments: Array,
        zero: Total,
        task: str,
        counted: bool = False,
    ) -> Total:
        """function(form, *arguments), a sum over the rows of a form, added over all blocks of rows in their order; an
        array is one block. zero: such a sum of no rows. task: what is done, for whoever waits for it. counted: whether
        whoever asks counts the components that are read.
        """
        shapes = [np.shape(part) for part in zero]
        make: Callable[..., Total] = type(zero)
        return make(*compute_once(lambda: tuple(function(form, *arguments)), *shapes, depends_on=arguments))

    @property
    def compiled(self) -> Any:
        """The entries as compiled code reads them (`svrhmc.kernels.rows`); None where it cannot."""
        return None

    @abstractmethod
    def predict(self, x: Array) -> Array:
        """All aᵢᵀx: (chains, dim) → (chains, n)."""

    @abstractmethod
    def predict_at(self, x: Array, indices: Indices) -> Array:
        """The chosen aᵢᵀx: (chains, dim), (chains, batch) → (chains, batch)."""

    @abstractmethod
    def taken(self, indices: Indices) -> Array:
        """Some rows as a matrix, in float64."""

    def jacobians(self, indices: Indices) -> Array:
        """∂tᵢ/∂x of some rows: (rows, predictors, dim)."""
        return self.taken(indices)[:, None, :]

    @abstractmethod
    def combine(self, weights: Array) -> Array:
        """Σᵢ wᵢaᵢ over all rows: (chains, n) → (chains, dim)."""

    @abstractmethod
    def combine_at(self, weights: Array, indices: Indices) -> Array:
        """Σ_b w_b a_{i_b} over the chosen rows: (chains, batch) → (chains, dim)."""

    def slopes_combined(self, loss: Loss, x: Array, labels: Labels) -> Array | None:
        """Σᵢ wᵢℓ′aᵢ in one pass over the rows, where there is a way; else None."""
        return None

    def one_pass(self, loss: Loss) -> bool:
        """Whether `slopes_combined` has a way, so that full gradients need no other compiled code."""
        return False

    @property
    def columns(self) -> int:
        """Columns of the matrix: as many as x has coordinates, unless a row has several linear predictors."""
        return self.dim

    @property
    def seen_once(self) -> Rows:
        """The n × columns matrix itself, whatever the number of linear predictors."""
        return self

    def column_values(self, columns: Indices) -> Array:
        """Some columns of the matrix, (n, len(columns)), in float64."""
        units = np.zeros((len(columns), self.dim))
        units[np.arange(len(columns)), columns] = 1.0
        return np.ascontiguousarray(self.predict(units).T)

    def stored_weights(self, weights: Array) -> Array:
        """Of each column, Σᵢ wᵢ over the rows whose entry is stored: all of them where rows are dense."""
        return np.full(self.dim, weights.sum())

    def columns_of(self, coordinates: Indices) -> Indices:
        """The columns that some coordinates of x multiply."""
        return coordinates

    @property
    @abstractmethod
    def entries(self) -> float:
        """Stored entries of a row, on average."""

    @property
    def stored(self) -> float:
        """Stored entries of a row that are read once for all its linear predictors."""
        return self.entries

    @abstractmethod
    def digest(self) -> str:
        """A name for the contents."""

    @abstractmethod
    def gram(self, weights: Array, precise: bool = False) -> Array:
        """Aᵀ diag(w) A, dense: (dim, dim); summed in float64 throughout where it is to be precise."""

    def grams(self, weights: Sequence[Array], precise: bool = False) -> Array:
        """`gram` for each of some weights of either sign: (count, dim, dim)."""
        return np.array([self._signed(np.ascontiguousarray(w), precise) for w in weights])

    def _signed(self, weights: Array, precise: bool) -> Array:
        """Aᵀ diag(w) A where w may have both signs: that of its positive part less that of its negative part."""
        parts = [self.gram(np.maximum(sign * weights, 0.0), precise) for sign in (1.0, -1.0)]
        return parts[0] - parts[1]

    def combined_and_gram(self, slopes: Array, weights: Array) -> tuple[Array, Array]:
        """`combine` and a precise `gram`, of one number a row each."""
        return self.combine(slopes[None])[0], self.gram(weights, precise=True)

    def sparse_gram(self, weights: Array, diagonal: Array, most: float, full: int) -> CsrMatrix | Array | None:
        """G = Aᵀ diag(w) A + diag(diagonal) as a scipy CSR matrix, where rows are sparse and no more than `most`
        products are summed; else None. With up to `full` columns and more products than entries, its lower triangle as
        an array.
        """
        return None

    @abstractmethod
    def squares(self, weights: Array) -> Array:
        """Σᵢ wᵢaᵢⱼ²: the diagonal of `gram`, without the rest."""

    @abstractmethod
    def squared_norms(self) -> Array:
        """|aᵢ|² of every row."""

    def warm(self, loss: Loss, labels: Labels) -> None:
        """Load what passes over the rows need, so that it is not timed with them."""
        return

    @abstractmethod
    def choose(self, indices: Indices) -> Rows:
        """Some of the rows, as rows."""

    @abstractmethod
    def lengths(self, norms: Norms) -> Array:
        """A norm of every row, given for some dense rows at once."""

    def image_squares(self, factor: Array) -> Array:
        """|Fᵀaᵢ|² of every row in float64, F being zero above its diagonal."""
        from svrhmc.kernels import columns

        def squares(some: Reals) -> Array:
            out, transposed = np.empty(len(some)), np.ascontiguousarray(factor.T)
            columns.squares(np.asarray(some, np.float64).T.copy(), transposed, out)
            return out

        return self.lengths(squares)

    def whitened_lengths(self, whitening: LinearMap) -> Array:
        """|Wᵀaᵢ| of every row."""
        return self.lengths(whitening.norms)


class DenseRows(Rows):
    """Rows of a C-ordered array of float32 or float64, kept as they are; many of them are gone through by compiled
    code.
    """

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
        if (passes := self._compiled()) is not None:
            return np.array([passes.predict(self, state) for state in np.ascontiguousarray(x)])
        return np.concatenate([contract("nd,cd->cn", block, x) for _, block in self._blocks()], axis=1)

    def predict_at(self, x: Array, indices: Indices) -> Array:
        return contract("cbd,cd->cb", self._gather(indices), x)

    def taken(self, indices: Indices) -> Array:
        return self._gather(indices)

    def column_values(self, columns: Indices) -> Array:
        return np.asarray(self.X[:, columns], np.float64)

    def combine(self, weights: Array) -> Array:
        """Block by block of rows, in their order."""
        if (passes := self._compiled()) is not None:
            return np.array([passes.combine(self, state) for state in np.ascontiguousarray(weights)])
        total = np.zeros((len(weights), self.dim))
        for begin, block in self._blocks():
            total += contract("cn,nd->cd", weights[:, begin : begin + len(block)], block)
        return total

    def combine_at(self, weights: Array, indices: Indices) -> Array:
        return contract("cb,cbd->cd", weights, self._gather(indices))

    def slopes_combined(self, loss: Loss, x: Array, labels: Labels) -> Array | None:
        """At many states in one pass each, where rows are many and the loss is compiled; else None."""
        passes = self._compiled()
        if passes is None or not self.one_pass(loss):
            return None
        return np.asarray(passes.RowsPass(self, loss, labels)(x, valued=False)[1], np.float64)

    def one_pass(self, loss: Loss) -> bool:
        """Where the loss is compiled, and rows are so many that passes are."""
        return loss.kernel is not None and self._compiled() is not None

    def gram(self, weights: Array, precise: bool = False) -> Array:
        """One pass over the rows."""
        if (passes := self._passes()) is not None and not (precise and self.dtype == np.float32):
            return np.asarray(passes.grams(self.X, [weights])[0], np.float64)
        total = np.zeros((self.dim, self.dim))
        with indivisible_work(self.n * self.dim**2):
            for begin, block in self._blocks():
                total += (block * weights[begin : begin + len(block), None]).T @ block
        return total

    def grams(self, weights: Sequence[Array], precise: bool = False) -> Array:
        """One pass over the rows for all of them, where rows are many."""
        if (passes := self._passes()) is not None and not (precise and self.dtype == np.float32):
            return np.asarray(passes.grams(self.X, weights), np.float64)
        return super().grams(weights, precise)

    def squares(self, weights: Array) -> Array:
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
        size = max(1, _BLOCK_ELEMENTS // max(1, self.dim))
        begins, look = range(0, self.n, size), budget_check()

        def block_norms(begin: int) -> Array:
            look(0.0)
            return norms(self.X[begin : begin + size])

        with ThreadPoolExecutor(min(cores(), len(begins))) as pool:
            return np.concatenate(list(pool.map(block_norms, begins)))

    def warm(self, loss: Loss, labels: Labels) -> None:
        """Compile, or load, the passes for rows like these."""
        if (passes := self._compiled()) is not None:
            one = self.choose(np.arange(1))
            passes.predict(one, np.zeros(self.dim))
            passes.combine(one, np.ones(1))
            if self.one_pass(loss):
                state = np.zeros((1, loss.windows(self.dim)[-1].coefficients.stop))
                passes.RowsPass(one, loss, labels.chosen(slice(1)))(state, valued=False)

    def _compiled(self) -> ModuleType | None:
        """Compiled passes, for rows so many that they pay."""
        return self._passes() if self.X.size >= _COMPILED else None

    def _passes(self) -> ModuleType | None:
        """Passes on threads, loaded only for rows so many that they pay."""
        if self.X.size < _LARGE:
            return None
        from svrhmc.rows import passes

        return passes

    def _gather(self, indices: Indices) -> Array:
        return self.X[indices].astype(np.float64, copy=False)

    def _blocks(self) -> Iterator[tuple[int, Array]]:
        """Blocks of rows in float64; of float32 rows all in one place, so that each is gone when the next one comes."""
        size = max(1, _BLOCK_ELEMENTS // max(1, self.dim))
        room = None if self.dtype == np.float64 else np.empty((min(size, self.n), self.dim))
        for begin in checking_budget(range(0, self.n, size)):
            block = self.X[begin : begin + size]
            if room is not None:
                room[: len(block)] = block
                block = room[: len(block)]
            yield begin, np.asarray(block, np.float64)
