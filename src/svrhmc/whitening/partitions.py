"""Rows in partitions in whitened variables: single rows are fetched before they are used.

    f(x̂ + W z) = bᵀz + ½|z|² + Σᵢ ρᵢ(aᵢᵀW z) + constant

as in `targets.py`, with b and W from passes over all rows. The rows that a run needs are known before it begins, as the
random stream does not depend on the state. So they are fetched together (`gather`), and a `Window` of them is a target
like any other, for estimates from single rows.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import DataError, requirement
from svrhmc.core.randomness import Stream
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.rows.csr import Matrix
from svrhmc.rows.forms import RowsForm
from svrhmc.rows.partitions import Gathered, PartitionRows, Places, RowWeights, image_root, join_gathered
from svrhmc.rows.predictors import rows_for_loss
from svrhmc.rows.sparse import make_rows
from svrhmc.whitening.maps import Whitening
from svrhmc.whitening.targets import Region, Whitened, WhitenedRows

_BITS = 60  # of the sum of all weights, approximately
_SPARE = 6  # of these bits, for weights that are larger than expected
_BEYOND = 1e-9  # P(|z| > R) for z ~ N(0, I), where bounds hold only in a ball
_MOST = 1 << 62
_KEPT_ENTRIES = 1 << 26  # of rows that are kept for later calls


class WhitenedPartitions(Whitened):
    """A generalised linear model of rows in partitions, in the variables z = W⁻¹(x − x̂)."""

    target: GeneralisedLinear
    rows: PartitionRows
    rows_form: RowsForm
    modal_first = True
    unbounded = GeneralisedLinear.unbounded

    def __init__(self, target: GeneralisedLinear, whitening: Whitening) -> None:
        super().__init__(target, whitening)
        if whitening.kind != "dense":
            raise requirement("how", "a dense whitening where rows are in partitions", f"a {whitening.kind} one")
        self.identity_hessian = True
        self.rows_form, self.rows = target.form(), cast(PartitionRows, target.rows)
        gradient = target.row_derivatives(whitening.centre).gradient + target.prior_gradient(whitening.centre)
        self.force = -whitening.pull(gradient)
        self._windows: list[tuple[Places, Window]] = []
        self._expected: list[Places] = []
        self._by_radius: dict[float, WhitenedPartitions] = {}

    def prepare(self) -> None:
        """Compute the weights of the rows; an error where all of them are 0."""
        if self.total == 0:
            raise DataError(
                "every row of the partitions has zeros in all columns, or a weight of 0, so that they say nothing of "
                "the coefficients. Choose other columns, or sample rows in memory, whose posterior is then the prior."
            )

    @property
    def at_hand(self) -> int:
        return 0

    def form(self) -> RowsForm:
        """The target's, with the map."""
        return replace(self.rows_form, whitening=self.whitening)

    def curvature_range(self, bound: bool) -> tuple[float, float] | None:
        """1 at the mode."""
        return None if bound else (1.0, 1.0)

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """Only of rows in a `Window`."""
        return self.target.parts(x, indices)

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """Only of rows in a `Window`."""
        return self.target.parts(parts, indices)

    def prior_gradient(self, x: Array) -> Array:
        """Only of a `Window`, which has it as `WhitenedRows` has."""
        return self.target.parts(x, None)

    # Rows by weight.

    def with_radius(self, radius: float | None) -> WhitenedPartitions:
        """The target with bounds on |ℓ‴| that hold where |z| ≤ radius, and so with other weights; None for its own."""
        if radius is None or radius == self.radius or self.target.loss.third_bound == 0:
            return self
        if radius not in self._by_radius:
            other = self._by_radius[radius] = WhitenedPartitions(self.target, self.whitening)
            other.radius = radius
        return self._by_radius[radius]

    @cached_property
    def radius(self) -> float:
        """R: ∞ where |ℓ‴| is bounded everywhere, otherwise so large that hardly a draw of N(0, I) is beyond it."""
        loss = self.target.loss
        if loss.third_bound is not None or not self.bounded:
            return math.inf
        from scipy.special import gammainccinv

        return math.sqrt(2 * float(gammainccinv(self.dim / 2, _BEYOND)))

    @cached_property
    def bounded(self) -> bool:
        """Whether weights are bounds on third derivatives, as subsampled Metropolis needs."""
        loss = self.target.loss
        return loss.third_within(np.zeros(1), np.zeros(1)) is not None

    @cached_property
    def _weight_table(self) -> tuple[RowWeights, tuple[int, ...], float]:
        """What weights are computed from, the sums Q before each partition, and Σ |Cᵢ|²|ãᵢ|⁴/qᵢ.

        S depends on n and dim alone, unless weights would overflow.
        """
        loss, whitening = self.target.loss, self.whitening
        typical = (4 * self.dim / self.n) ** 1.5
        power = _BITS - _SPARE - math.ceil(math.log2(self.n)) - math.floor(math.log2(typical))
        third = (1.0 if math.isfinite(self.radius) else loss.third_bound) if self.bounded else None
        floor = 0.0 if self.bounded and loss.third_bound != 0 else 0.1 * typical
        root, shared = image_root(whitening.arrays()["factor"], loss, self.target.rows.columns)
        while True:
            lengths = RowWeights(whitening.centre, root, shared, 2.0**power, third, self.radius, floor)
            by_partition = self.rows.sum_weights(lengths)
            if by_partition is not None and sum(measured.total for measured in by_partition) < _MOST:
                break
            power -= _SPARE
        ends = [0]
        for measured in by_partition:
            ends.append(ends[-1] + measured.total)
        return lengths, tuple(ends), sum(measured.noise for measured in by_partition)

    @property
    def lengths(self) -> RowWeights:
        """What the weights of rows are computed from."""
        return self._weight_table[0]

    @property
    def total(self) -> int:
        """Q."""
        return self._weight_table[1][-1]

    @property
    def curvature_noise(self) -> float:
        """V₁ = Σᵢ |WᵀHᵢW|²_F/(Pᵢ dim), of rows drawn by weight."""
        return self._weight_table[2] * self.total / self.dim

    def third_sums(self, radius: float | None) -> tuple[float, float, float]:
        """R, a factor of the bounds, and Q/S, which contains the other factors."""
        other = self.with_radius(radius)
        third = 1.0 if math.isfinite(other.radius) else self.target.loss.third_bound
        assert third is not None
        return other.radius, third, other.third_total

    @property
    def third_total(self) -> float:
        """Q/S; 0 where third derivatives are 0."""
        return 0.0 if self.target.loss.third_bound == 0 else self.total / self.lengths.scale

    def spaced(self, count: int) -> tuple[WhitenedRows, Indices, Array]:
        """The rows at evenly spaced places in 0 … Q − 1, in a window, and their weights 1/(count·Pᵢ)."""
        window, at = self.gather(self.even_places(count))
        return window, at, 1 / (count * window.probabilities[at])

    def even_places(self, count: int) -> Places:
        """`count` evenly spaced places in 0 … Q − 1."""
        step = self.total // count
        return np.arange(count, dtype=np.uint64) * np.uint64(step) + np.uint64(step // 2)

    def places(self, w0: npt.NDArray[np.uint32], w1: npt.NDArray[np.uint32]) -> Places:
        """The places ⌊(w₀2³² + w₁)Q/2⁶⁴⌋ for words of the random stream."""
        return scale_words(w0, w1, self.total)

    def expect(self, places: Places) -> None:
        """Note places whose rows shall be fetched together with the next ones."""
        self._expected.append(places.ravel())

    def gather(self, places: Places) -> tuple[Window, Indices]:
        """A window that holds the rows of these places, and the index in it of the row of each place."""
        unique = np.unique(places)
        for held_places, window in self._windows:
            if np.isin(unique, held_places, assume_unique=True).all():
                return window, window.at[np.searchsorted(held_places, places)]
        unique = np.unique(np.concatenate([unique, *self._expected]))
        self._expected = []
        while self._windows and sum(window.size for _, window in self._windows) > _KEPT_ENTRIES // 2:
            self._windows.pop(0)
        window = self._fetch(unique)
        if window.size <= _KEPT_ENTRIES // 2:
            self._windows.append((unique, window))
        return window, window.at[np.searchsorted(unique, places)]

    def empty_window(self) -> Window:
        """A window of one row of zeros, for which code is compiled in advance."""
        reader = self.rows.partitions.reader
        X: Matrix = np.zeros((1, self.target.rows.columns), reader.dtype)
        if reader.storage == "sparse":
            from scipy.sparse import csr_matrix

            X = csr_matrix(X)
        offset, weights = (np.zeros(1) if given else None for given in (reader.has_offset, reader.has_weights))
        zero = np.zeros(1, np.int64)
        return Window(self, Gathered(zero, X, np.ones(1), offset, weights, np.ones(1, np.uint64), zero))

    def _fetch(self, places: Places) -> Window:
        ends = np.array(self._weight_table[1], np.uint64)
        cuts = np.searchsorted(places, ends, "left")
        by_partition = [places[low:high] - end for low, high, end in zip(cuts[:-1], cuts[1:], ends[:-1], strict=True)]
        parts = [part for part in self.rows.gather(self.lengths, by_partition) if part is not None]
        return Window(self, join_gathered(parts))


class Window(WhitenedRows):
    """Fetched rows of a target in partitions, in the place of all rows; n is the number of all rows.

    at: for each requested place the index of its row. Draws by weight have probabilities qᵢ/Q.
    """

    _first: int
    _drawn: Indices
    _place: dict[int, int]

    def __init__(self, parent: WhitenedPartitions, rows: Gathered) -> None:
        target, whitening = parent.target, parent.whitening
        held_rows = rows_for_loss(make_rows(rows.X), target.loss)
        held = GeneralisedLinear(
            held_rows, rows.y, target.loss, target.prior_precision, target.prior_mean, rows.offset, rows.weights,
            target.heavy,
        )  # fmt: skip
        super().__init__(held, whitening, parent.force)
        self._parent, self.at, self.held, self.n = parent, rows.row_of_place, held_rows.n, parent.n
        self.probabilities = rows.q.astype(np.float64) / float(parent.total)

    @property
    def at_hand(self) -> int:
        return self.held

    def for_steps(self, first: int, chains: Indices, at: Indices) -> Window:
        """The window with the rows at (steps, chains, batch) that the chains draw at steps from `first` on."""
        other = copy(self)
        other._first, other._drawn, other._place = first, at, {int(chain): k for k, chain in enumerate(chains)}
        return other

    def drawn(self, stream: Stream, step: int, count: int) -> Indices:
        """The rows given to `for_steps`, for the chains of the stream."""
        places = [self._place[int(chain)] for chain in stream.chains]
        rows: Indices = self._drawn[step - self._first][places]
        return rows

    def drawn_with(self, indices: Indices) -> Array:
        """qᵢ/Q."""
        chances: Array = self.probabilities[indices]
        return chances

    def region(self, all_rows: Region) -> Region:
        """The region in which bounds on ℓ‴ hold, with the bounds of these rows."""
        if math.isinf(all_rows.radius):
            return all_rows
        lengths = self.whitening.norms(self.target.rows.dense_matrix(np.arange(self.held)))
        reach = (1 + 1e-3) * all_rows.radius * lengths
        bounds = self.target.loss.third_within(self.predictors - reach, self.predictors + reach)
        return replace(all_rows, shares=bounds)

    @property
    def size(self) -> int:
        """The number of entries of its rows."""
        return self.held * self.target.rows.columns

    def gradients(self, x: Array) -> Array:
        """Of all rows, by passes."""
        return self._parent.gradients(x)

    def potentials(self, x: Array) -> Array:
        """Of all rows, by passes."""
        return self._parent.potentials(x)


def scale_words(w0: npt.NDArray[np.uint32], w1: npt.NDArray[np.uint32], total: int) -> Places:
    """⌊(w₀2³² + w₁)·total/2⁶⁴⌋ for 32-bit words and total < 2⁶², exactly."""
    shift, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b = w0.astype(np.uint64), w1.astype(np.uint64)
    high, rest = np.uint64(total >> 32), np.uint64(total & 0xFFFFFFFF)
    first, second = a * rest, b * high
    middle = (first & low) + (second & low) + ((b * rest) >> shift)
    return np.asarray(a * high + (first >> shift) + (second >> shift) + (middle >> shift), np.uint64)
