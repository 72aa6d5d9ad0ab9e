"""Chains that JAX runs, of every sampler, in pieces of about a tenth of a second."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import ClassVar, NamedTuple, ParamSpec, TypeVar

import jax
import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import check_budget
from svrhmc.core.jax import Tree, scoped
from svrhmc.density.base import FiniteSum
from svrhmc.engines.base import EVERY, HIGH, Chains, Extension, Keep, Pace, Report, Setup, State, quiet
from svrhmc.gradients import Memory

Given = ParamSpec("Given")
Result = TypeVar("Result")

_MOST_STEPS = 4096
_LEAST_STEPS, _PIECE = 16, 1e8  # nanoseconds
# Random numbers made at once, numbers of states kept at once, and how many cores it is like
_DEVICES = {"cpu": (1 << 19, 1 << 22, 1.0), "gpu": (1 << 25, 1 << 25, 300.0)}


def running(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, called inside `core.jax.scope`, without the notice that Pallas will leave Triton one day."""

    @scoped
    @wraps(function)
    def inside(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The Pallas Triton backend is deprecated", DeprecationWarning)
            return function(*args, **kwargs)

    return inside


class Reached(NamedTuple):
    """What chains come to: x, v and memory as in a `State`, and the proposals that each accepted, if there are any."""

    x: Array
    v: Array
    memory: Memory
    accepted: Indices | None = None


class JaxKernel(ABC):
    """A sampler on a target, on the devices. Where chains are there is a value of its own, on the devices."""

    gradients: ClassVar[bool] = False  # whether draws come with ∇f

    @abstractmethod
    def begin(self, state: State) -> Tree:
        """Chains in a state, on the devices."""

    @abstractmethod
    def until(self, place: Tree, step: int, wanted: int, end: int, keep: Keep) -> int:
        """Up to which step, at most `wanted`, one call of a program goes, on the way to the end."""

    @abstractmethod
    def advance(self, place: Tree, step: int, end: int, keep: Keep) -> tuple[Tree, tuple[Array, ...]]:
        """One such call: where the chains are then, and what is kept, (chains, kept, dim): draws, and ∇f where it is
        known. An error where a chain leaves the finite numbers.
        """

    @abstractmethod
    def reached(self, place: Tree, state: State) -> Reached:
        """From the devices; state: that of the beginning."""

    @abstractmethod
    def compile(self, state: State) -> None:
        """Programs for chains in a state."""

    @abstractmethod
    def empty_memory(self, state: State) -> Memory:
        """Arrays of the right sizes, for the memory of a state, as `Chains.empty_memory` has them."""


class JaxChains(Chains):
    """All chains together, step by step. (Another number of chains is another program, in which sums may be made in
    another order: then a chain is the same to rounding. Cuts change no bit.)
    """

    engine = "jax"

    @running
    def __init__(self, setup: Setup, state: State, kernel: Callable[[Setup], JaxKernel]) -> None:
        self.setup, self.state, self.kernel, self._pace = setup, state, kernel(setup), Pace()

    @running
    def compile(self) -> None:
        """What the kernel needs."""
        self.kernel.compile(self.state)

    @running
    def empty_memory(self) -> Memory:
        return self.kernel.empty_memory(self.state)

    @running
    def extend(self, count: int, keep: Keep = EVERY, report: Report = quiet) -> Extension:
        """Piece by piece; the state moves when all are made."""
        state, kernel, step, end = self.state, self.kernel, self.state.step, self.state.step + count
        (chains, dim), kept = state.x.shape, keep.within(step, end)
        rooms = [np.empty((chains, len(kept), dim)) for _ in range(1 + kernel.gradients)]
        place, drawn = kernel.begin(state), 0
        while step < end:
            check_budget()
            wanted = min(end, step + self._pace.steps, (step // HIGH + 1) * HIGH)
            until = kernel.until(place, step, wanted, end, keep)
            began = time.perf_counter()
            place, arrays = kernel.advance(place, step, until, keep)
            self._pace.learn(until - step, time.perf_counter() - began)
            for room, new in zip(rooms, arrays, strict=True):
                room[:, drawn : drawn + new.shape[1]] = new
            report((until - step) * chains)
            step, drawn = until, drawn + arrays[0].shape[1]
        x, v, memory, accepted = kernel.reached(place, state)
        spent = self.setup.sampler.spent(state, np.r_[state.step, kept, end], self.setup.target.n)
        self.state = State(x, v, memory, end, float(spent[-1]))
        gradients = rooms[1] if kernel.gradients else None
        return Extension(rooms[0], spent[1:-1], round((spent[-1] - spent[0]) * chains), gradients, accepted)


def steps_at_once(random_numbers: int, kept_numbers: int, nanoseconds: float) -> int:
    """A power of 2, for steps that need so many random numbers before the first of them, of which so many numbers are
    kept, and that take so long on a core: it does not depend on the clock, as another program may round otherwise.
    """
    room, store, speed = _DEVICES.get(jax.default_backend(), _DEVICES["gpu"])
    most = min(_MOST_STEPS, room // max(1, random_numbers), store // max(1, kept_numbers))
    most = max(1, min(most, max(_LEAST_STEPS, round(_PIECE * speed / nanoseconds))))
    return 1 << (int(most).bit_length() - 1)


def row_work(target: FiniteSum) -> float:
    """Nanoseconds of a row on a core, roughly."""
    return target.row_nanoseconds or 5.0 + 0.5 * target.row_entries
