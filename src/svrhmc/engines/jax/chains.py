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
from svrhmc.engines.base import EVERY, STEPS_PER_KEY, Chains, Extension, Keep, Pace, Report, Setup, State, no_report
from svrhmc.gradients import Memory

Given = ParamSpec("Given")
Result = TypeVar("Result")

_MOST_STEPS = 4096
_LEAST_STEPS, _PIECE = 16, 1e8  # nanoseconds
# Random numbers made at once, numbers of states kept at once, and how many cores it is like
_DEVICES = {"cpu": (1 << 19, 1 << 22, 1.0), "gpu": (1 << 25, 1 << 25, 300.0)}


def in_jax_scope(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, called inside `core.jax.scope`, without the notice that Pallas will leave Triton one day."""

    @scoped
    @wraps(function)
    def inside(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The Pallas Triton backend is deprecated", DeprecationWarning)
            return function(*args, **kwargs)

    return inside


class FinalState(NamedTuple):
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
    def until(self, place: Tree, step: int, limit: int, end: int, keep: Keep) -> int:
        """Up to which step, at most `limit`, one call of a program goes, on the way to the end."""

    @abstractmethod
    def advance(self, place: Tree, step: int, end: int, keep: Keep) -> tuple[Tree, tuple[Array, ...]]:
        """One such call: where the chains are then, and what is kept, (chains, kept, dim): draws, and ∇f where it is
        known. An error where a chain leaves the finite numbers.
        """

    @abstractmethod
    def final_state(self, place: Tree, state: State) -> FinalState:
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

    @in_jax_scope
    def __init__(self, setup: Setup, state: State, kernel: Callable[[Setup], JaxKernel]) -> None:
        self.setup, self.state, self.kernel, self._pace = setup, state, kernel(setup), Pace()

    @in_jax_scope
    def compile(self) -> None:
        """What the kernel needs."""
        self.kernel.compile(self.state)

    @in_jax_scope
    def empty_memory(self) -> Memory:
        return self.kernel.empty_memory(self.state)

    @in_jax_scope
    def extend(self, count: int, keep: Keep = EVERY, report: Report = no_report) -> Extension:
        """Piece by piece; the state moves when all are made."""
        state, kernel, step, end = self.state, self.kernel, self.state.step, self.state.step + count
        (chains, dim), kept = state.x.shape, keep.within(step, end)
        outputs = [np.empty((chains, len(kept), dim)) for _ in range(1 + kernel.gradients)]
        place, count_kept = kernel.begin(state), 0
        while step < end:
            check_budget()
            limit = min(end, step + self._pace.steps, (step // STEPS_PER_KEY + 1) * STEPS_PER_KEY)
            until = kernel.until(place, step, limit, end, keep)
            began = time.perf_counter()
            place, arrays = kernel.advance(place, step, until, keep)
            self._pace.learn(until - step, time.perf_counter() - began)
            for output, new in zip(outputs, arrays, strict=True):
                output[:, count_kept : count_kept + new.shape[1]] = new
            report((until - step) * chains)
            step, count_kept = until, count_kept + arrays[0].shape[1]
        x, v, memory, accepted = kernel.final_state(place, state)
        spent = self.setup.sampler.spent(state, np.r_[state.step, kept, end], self.setup.target.n)
        self.state = State(x, v, memory, end, float(spent[-1]))
        gradients = outputs[1] if kernel.gradients else None
        return Extension(outputs[0], spent[1:-1], round((spent[-1] - spent[0]) * chains), gradients, accepted)


def steps_per_call(random_numbers: int, kept_numbers: int, nanoseconds: float) -> int:
    """A power of 2, for steps that need so many random numbers before the first of them, of which so many numbers are
    kept, and that take so long on a core: it does not depend on the clock, as another program may round otherwise.
    """
    random_capacity, kept_capacity, speed = _DEVICES.get(jax.default_backend(), _DEVICES["gpu"])
    limit = min(_MOST_STEPS, random_capacity // max(1, random_numbers), kept_capacity // max(1, kept_numbers))
    limit = max(1, min(limit, max(_LEAST_STEPS, round(_PIECE * speed / nanoseconds))))
    return 1 << (int(limit).bit_length() - 1)


def nanoseconds_of_row(target: FiniteSum) -> float:
    """Nanoseconds of a row on a core, roughly."""
    return target.row_nanoseconds or 5.0 + 0.5 * target.row_entries
