"""Long work that a kill does not lose: its results so far are recorded, and given again when the work is begun anew.

Work that depends on its arguments alone is written as usual, with its long parts inside `once` or `recorded`:

    value, slope = once(lambda: target.energies(x), (1,), (1, dim))
    hessian = recorded(lambda: target.hessian(x), (dim, dim))

The shapes are those of the arrays that the function gives (`Whole` where they hold whole numbers). Where no recording
binds the call this is just the function. Where one does (`Journal.recording`), the arrays are kept, and written to the
disk every few seconds. After a kill the same work runs from its beginning, and `once` gives what it gave before, bit
for bit, without calling the function: what lies between two of them is done again, and should be short.

A loop with many or large intermediate results is written with `repeat`, which keeps its state after each round in place
of all that the rounds before it kept:

    x, gradient = repeat(lambda number, state: (*newton_step(*state), is_small(state)), (x, gradient), most=100)

Both can be nested in each other: what was kept inside is dropped as soon as what it led to is known. In other threads
nothing is recorded.
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


class Whole(tuple[int, ...]):
    """The shape of an array of whole numbers."""


class Entry(NamedTuple):
    """Arrays that one call gave, how many others it was inside of, and a checksum of what it depends on."""

    depth: int
    arrays: Arrays
    key: int = 0


class Recording:
    """The results of one piece of work in their order: those known from before, then those that are added.

    save: writes all of them; it is called after each new one where `due()`.
    """

    def __init__(
        self, entries: Sequence[Entry], due: Callable[[], bool], save: Callable[[Sequence[Entry]], None]
    ) -> None:
        self._entries, self._due, self._save, self._saved = list(entries), due, save, True
        self._place = self._depth = 0  # the entry that is asked for next, and the calls that are under way

    @contextmanager
    def binding(self) -> Iterator[None]:
        """Within this, `once` and `repeat` of this thread use this recording."""
        before = _binding.set(self)
        try:
            yield
        finally:
            _binding.reset(before)

    def once(self, compute: Callable[[], Results], shapes: Sequence[Shape], depends_on: Dependence) -> Results:
        """As the function of the module does. Of what fails, that it did so is kept, and it is tried again."""
        key, place = _key(depends_on), self._place
        arrays = self._earlier(shapes, key)
        if arrays == _FAILED:
            before = _binding.set(None)
            try:
                return compute()
            finally:
                _binding.reset(before)
        if arrays is not None:
            return cast(Results, tuple(array.copy() for array in arrays))
        try:
            with self._inside():
                results = compute()
        except Exception:
            self._keep(place, _FAILED, key, new=False)
            raise
        self._keep(place, tuple(np.array(result) for result in results), key)
        return results

    def repeat(
        self, advance: Advance, state: Sequence[Numbers], most: int, depends_on: Dependence
    ) -> tuple[Array, ...]:
        """As the function of the module does; the first array of an entry is (rounds made, whether that was all)."""
        shapes = [np.shape(array) for array in state]
        key, place = _key(depends_on), self._place
        arrays = self._earlier([(2,), *shapes], key)
        if arrays is None:
            arrays = (np.zeros(2), *(np.array(array) for array in state))
            self._keep(place, arrays, key, new=False)
        number, done = _counted(arrays[0], most)
        now = cast(tuple[Array, ...], tuple(array.copy() for array in arrays[1:]))
        while number < most and not done:
            with self._inside():
                *following, last = advance(number, now)
            now, done = cast(tuple[Array, ...], tuple(following)), bool(last)
            number += 1
            self._keep(place, (np.array([number, float(done)]), *(np.array(array) for array in now)), key)
        return now

    @contextmanager
    def _inside(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _earlier(self, shapes: Sequence[Shape], key: int = 0) -> Arrays | None:
        """What the next call gave before; None where it did not come to its end, or was another call."""
        if self._place >= len(self._entries) or self._entries[self._place].depth > self._depth:
            return None
        depth, arrays, before = self._entries[self._place]
        if before != key or any(array.dtype.kind == "f" and np.isnan(array).any() for array in arrays):
            del self._entries[self._place :]  # of other work, or numbers that nothing rests on: computed anew
            return None
        if depth < self._depth or not (arrays == _FAILED or _fit(arrays, shapes)):
            raise unusable()
        self._place += 1
        return arrays

    def _keep(self, place: int, arrays: Arrays, key: int = 0, new: bool = True) -> None:
        """In place of all that was kept inside."""
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


def _key(depends_on: Dependence) -> int:
    """A checksum of some arrays, or of one."""
    key = 0
    for array in depends_on if isinstance(depends_on, tuple) else (depends_on,):
        key = crc32(np.ascontiguousarray(array).data, key)
    return key


def unusable() -> CheckpointError:
    """The error where what was recorded cannot be what this work gave."""
    return CheckpointError(
        "the checkpoint has a record of unfinished work that does not fit this call: choose another folder, or remove "
        "this one."
    )


def _fit(arrays: Arrays, shapes: Sequence[Shape]) -> bool:
    """Whether these are arrays of such shapes and kinds of numbers."""
    return len(arrays) == len(shapes) and all(
        array.ndim == len(shape)
        and array.dtype.kind in ("iu" if isinstance(shape, Whole) else "f")
        and all(wanted in (ANY, size) for size, wanted in zip(array.shape, shape, strict=True))
        for array, shape in zip(arrays, shapes, strict=True)
    )


def _counted(rounds: Values, most: int) -> tuple[int, bool]:
    """The rounds of a `repeat` that were made, and whether that was all."""
    number, done = rounds.astype(np.float64).tolist()
    if not (number.is_integer() and 0 <= number <= most and done in (0.0, 1.0)):
        raise unusable()
    return int(number), bool(done)


_binding: ContextVar[Recording | None] = ContextVar("recording", default=None)
Advance = Callable[[int, tuple[Array, ...]], Sequence[object]]


def once(compute: Callable[[], Results], *shapes: Shape, depends_on: Dependence = ()) -> Results:
    """The arrays of these shapes that a function gives; those of before a kill, where they were recorded.

    depends_on: arrays, where after a kill others may come here, as where something is remembered in memory: then it is
    computed anew.
    """
    recording = _binding.get()
    return compute() if recording is None else recording.once(compute, shapes, depends_on)


def recorded(compute: Callable[[], Result], shape: Shape, depends_on: Dependence = ()) -> Result:
    """The same for one array."""
    return once(lambda: (compute(),), shape, depends_on=depends_on)[0]


def repeat(advance: Advance, state: Sequence[Numbers], most: int, depends_on: Dependence = ()) -> tuple[Array, ...]:
    """state ← advance(number, state), at most so many times: `advance` gives the next state, and after it whether that
    is the last. The state is arrays whose shapes do not change. `depends_on` is that of `once`.
    """
    recording = _binding.get()
    if recording is not None:
        return recording.repeat(advance, state, most, depends_on)
    now = cast(tuple[Array, ...], tuple(state))
    for number in range(most):
        *following, done = advance(number, now)
        now = cast(tuple[Array, ...], tuple(following))
        if done:
            break
    return now


class Ordered(Generic[Result]):
    """Results that come one after another, as from a pool. `parts(k)` gives those from number k on; it is called once,
    for the first that is not recorded.
    """

    def __init__(self, parts: Callable[[int], Iterable[Result]]) -> None:
        self._parts = parts
        self._rest: Iterator[Result] | None = None

    def take(self, number: int) -> Result:
        """The result of this number, which is the next one."""
        if self._rest is None:
            self._rest = iter(self._parts(number))
        return next(self._rest)
