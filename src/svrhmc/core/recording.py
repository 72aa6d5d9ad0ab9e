"""Long work that a kill does not lose: results are recorded, and returned again when the same work is started anew.

Work that depends on its arguments alone is written as usual, with its long parts inside `compute_once` (several arrays)
or `compute_array_once` (one):

    value, slope = compute_once(lambda: target.energies(x), (1,), (1, dim))
    hessian = compute_array_once(lambda: target.hessian(x), (dim, dim))

The shapes are those of the arrays that the function returns (`IntegerShape` for arrays of integers). Without a
recording the function is simply called. With one (`Journal.recording`), the arrays are kept, and written to the disk
every few seconds. After a kill the same work runs from its beginning, and `compute_once` returns what it returned
before, bit for bit, without calling the function. What lies between two such calls is done again, and should be short.

A loop with many or large intermediate results is written with `iterate_recorded`, which keeps the state after each
round in place of the state before it:

    x, gradient = iterate_recorded(
        lambda number, state: (*newton_step(*state), is_small(state)), (x, gradient), most=100
    )

Both can be nested: results recorded inside a call are dropped as soon as the result of that call is known. In other
threads nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, NamedTuple, TypeVar, cast
from zlib import crc32

import numpy as np

from svrhmc.core.arrays import Array, Values
from svrhmc.core.errors import CheckpointError

Arrays = tuple[Values, ...]
Numbers = Values | float
Dependence = Numbers | tuple[Numbers, ...]  # what a result depends on: an array, or several
Result = TypeVar("Result")
Results = TypeVar("Results", bound=Sequence[object])
Shape = tuple[int, ...]
ANY = -1  # in a shape: a length that is not known beforehand
_FAILED: Arrays = ()


class IntegerShape(tuple[int, ...]):
    """The shape of an array of integers."""


class Entry(NamedTuple):
    """The arrays that one call returned, how many calls it was nested in, and a checksum of what it depends on."""

    depth: int
    arrays: Arrays
    key: int = 0


class Recording:
    """The results of one piece of work in their order: first those recorded earlier, then new ones.

    save: writes all of them; it is called after each new one if `due()` is true.
    """

    def __init__(
        self, entries: Sequence[Entry], due: Callable[[], bool], save: Callable[[Sequence[Entry]], None]
    ) -> None:
        self._entries, self._due, self._save, self._saved = list(entries), due, save, True
        self._place = self._depth = 0  # the next entry, and the number of calls under way

    @contextmanager
    def binding(self) -> Iterator[None]:
        """Within this, `compute_once` and `iterate_recorded` use this recording in this thread."""
        before = _binding.set(self)
        try:
            yield
        finally:
            _binding.reset(before)

    def compute_once(self, compute: Callable[[], Results], shapes: Sequence[Shape], depends_on: Dependence) -> Results:
        """As the function of this module. A failure is recorded as such, and the work is then tried again."""
        key, place = _checksum(depends_on), self._place
        arrays = self._next_recorded(shapes, key)
        if arrays == _FAILED:
            before = _binding.set(None)
            try:
                return compute()
            finally:
                _binding.reset(before)
        if arrays is not None:
            return cast(Results, tuple(array.copy() for array in arrays))
        try:
            with self._nested():
                results = compute()
        except Exception:
            self._record(place, _FAILED, key, new=False)
            raise
        self._record(place, tuple(np.array(result) for result in results), key)
        return results

    def iterate_recorded(
        self, advance: Advance, state: Sequence[Numbers], most: int, depends_on: Dependence
    ) -> tuple[Array, ...]:
        """As the function of this module; the first array of an entry is (rounds made, whether the last is made)."""
        shapes = [np.shape(array) for array in state]
        key, place = _checksum(depends_on), self._place
        arrays = self._next_recorded([(2,), *shapes], key)
        if arrays is None:
            arrays = (np.zeros(2), *(np.array(array) for array in state))
            self._record(place, arrays, key, new=False)
        number, done = _read_rounds(arrays[0], most)
        current = cast(tuple[Array, ...], tuple(array.copy() for array in arrays[1:]))
        while number < most and not done:
            with self._nested():
                *following, last = advance(number, current)
            current, done = cast(tuple[Array, ...], tuple(following)), bool(last)
            number += 1
            self._record(place, (np.array([number, float(done)]), *(np.array(array) for array in current)), key)
        return current

    @contextmanager
    def _nested(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _next_recorded(self, shapes: Sequence[Shape], key: int = 0) -> Arrays | None:
        """What the next call returned before; None if it did not end, or was another call."""
        if self._place >= len(self._entries) or self._entries[self._place].depth > self._depth:
            return None
        depth, arrays, recorded_key = self._entries[self._place]
        if recorded_key != key or any(array.dtype.kind == "f" and np.isnan(array).any() for array in arrays):
            del self._entries[self._place :]  # results of other work, or NaN: computed anew
            return None
        if depth < self._depth or not (arrays == _FAILED or _have_shapes(arrays, shapes)):
            raise unusable_record_error()
        self._place += 1
        return arrays

    def _record(self, place: int, arrays: Arrays, key: int = 0, new: bool = True) -> None:
        """Add an entry, in place of all that were recorded inside its call."""
        del self._entries[place:]
        self._entries.append(Entry(self._depth, arrays, key))
        self._place = place + 1
        self._saved = self._saved and not new
        if self._due():
            self.flush()

    def flush(self) -> None:
        """Write what was not written yet."""
        if not self._saved:
            self._save(self._entries)
            self._saved = True


def _checksum(depends_on: Dependence) -> int:
    """A checksum of one array, or of several."""
    checksum = 0
    for array in depends_on if isinstance(depends_on, tuple) else (depends_on,):
        checksum = crc32(np.ascontiguousarray(array).data, checksum)
    return checksum


def unusable_record_error() -> CheckpointError:
    """The error if a record cannot be a result of this work."""
    return CheckpointError(
        "the checkpoint has a record of unfinished work that does not fit this call: choose another folder, or remove "
        "this one."
    )


def _have_shapes(arrays: Arrays, shapes: Sequence[Shape]) -> bool:
    """Whether arrays have these shapes and their kinds of numbers."""
    return len(arrays) == len(shapes) and all(
        array.ndim == len(shape)
        and array.dtype.kind in ("iu" if isinstance(shape, IntegerShape) else "f")
        and all(expected in (ANY, size) for size, expected in zip(array.shape, shape, strict=True))
        for array, shape in zip(arrays, shapes, strict=True)
    )


def _read_rounds(rounds: Values, most: int) -> tuple[int, bool]:
    """How many rounds of `iterate_recorded` were made, and whether the last one was."""
    number, done = rounds.astype(np.float64).tolist()
    if not (number.is_integer() and 0 <= number <= most and done in (0.0, 1.0)):
        raise unusable_record_error()
    return int(number), bool(done)


_binding: ContextVar[Recording | None] = ContextVar("recording", default=None)
Advance = Callable[[int, tuple[Array, ...]], Sequence[object]]


def compute_once(compute: Callable[[], Results], *shapes: Shape, depends_on: Dependence = ()) -> Results:
    """The arrays of these shapes that a function returns; those from before a kill, if they were recorded.

    depends_on: arrays that may differ after a kill, for instance because something is remembered in memory alone; if
    they do, the results are computed anew.
    """
    recording = _binding.get()
    return compute() if recording is None else recording.compute_once(compute, shapes, depends_on)


def compute_array_once(compute: Callable[[], Result], shape: Shape, depends_on: Dependence = ()) -> Result:
    """As `compute_once`, for one array."""
    return compute_once(lambda: (compute(),), shape, depends_on=depends_on)[0]


def iterate_recorded(
    advance: Advance, state: Sequence[Numbers], most: int, depends_on: Dependence = ()
) -> tuple[Array, ...]:
    """state ← advance(number, state), at most `most` times. `advance` returns the arrays of the next state, and then
    whether that is the last. The shapes of the arrays do not change. `depends_on` is that of `compute_once`.
    """
    recording = _binding.get()
    if recording is not None:
        return recording.iterate_recorded(advance, state, most, depends_on)
    current = cast(tuple[Array, ...], tuple(state))
    for number in range(most):
        *following, done = advance(number, current)
        current = cast(tuple[Array, ...], tuple(following))
        if done:
            break
    return current


class OrderedResults(Generic[Result]):
    """Results that come one after another, as from a pool of workers. `parts(k)` yields those from number k on; it is
    called once, for the first result that is not recorded.
    """

    def __init__(self, parts: Callable[[int], Iterable[Result]]) -> None:
        self._parts = parts
        self._rest: Iterator[Result] | None = None

    def take(self, number: int) -> Result:
        """The result of this number, which is the next one."""
        if self._rest is None:
            self._rest = iter(self._parts(number))
        return next(self._rest)
