"""Chains of `svrhmc.exact.SplitHMC` in JAX: a leapfrog of all chains is one pass over the rows, which they share."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from svrhmc.core.deadline import look
from svrhmc.core.errors import UndefinedDensityError
from svrhmc.core.jaxed import scoped
from svrhmc.core.pool import program
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.engines.base import EVERY, NEAR, THROWN, Chains, Extension, Keep, Report, Setup, State, quiet
from svrhmc.engines.jax import words
from svrhmc.engines.jax.chains import row_work, steps_at_once
from svrhmc.engines.jax.operations import Operations
from svrhmc.engines.jax.rows import Arrays
from svrhmc.engines.jax.spread import placed
from svrhmc.engines.pace import HIGH, Pace
from svrhmc.gradients import Memory

_KICKS = 64  # leapfrogs for which there is room: a step of another length is not compiled anew


class Place(NamedTuple):
    """z with f and ∇f there, proposals accepted so far, and the draw on the way to which f was not a number, or 0."""

    z: Any
    f: Any
    gradient: Any
    accepted: Any
    lost: Any


@partial(program, static_argnames=("operations",))
def energies(operations: Operations, arrays: Arrays, z: Any) -> tuple[Any, Any]:
    """f and ∇f at some states."""
    return operations.energies(arrays, z)


@partial(program, static_argnames=("operations", "capacity"))
def advance(
    operations: Operations,
    capacity: int,
    arrays: Arrays,
    kicks: tuple[Any, Any, Any],
    leapfrogs: Any,
    sizes: tuple[Any, Any, Any],
    keys: tuple[Any, Any],
    place: Place,
    begin: Any,
    count: Any,
) -> tuple[Place, Any, Any]:
    """`count` draws from step `begin` on, each with its ∇f: (capacity, chains, dim), the rest means nothing; of so many
    leapfrogs, the first kicks of those given.
    """
    chains, dim = place.z.shape
    steps = (begin + jnp.arange(capacity)).astype(jnp.uint32)
    velocity = words.normals(keys, steps, dim, Purpose.NOISE, Purpose.NOISE_FINE)
    coins = words.uniforms(keys, steps, 2, Purpose.ACCEPT)
    step_size, jitter, halvings = sizes

    def leapfrog(k: Any, carried: Any) -> Any:
        q, v, energy, force, angle, total, lost = carried
        turn, first, last = (part[k % leapfrogs] for part in kicks)
        v = v - first * angle * (force - q)
        held = energy + 0.5 * (v * v).sum(axis=1) <= total + THROWN
        cosine, sine = jnp.cos(turn * angle), jnp.sin(turn * angle)
        q, v = cosine * q + sine * v, cosine * v - sine * q
        energy, force = operations.energies(arrays, q)
        lost = lost | (held & jnp.isnan(energy) & ((q * q).sum(axis=1) <= NEAR * dim))
        return q, v - last * angle * (force - q), energy, force, angle, total, lost

    def step(i: Any, carried: Any) -> Any:
        (z, f, gradient, accepted, lost), draws, slopes = carried
        v = velocity[i]
        draw = begin + i + 1
        pieces = jnp.minimum(draw & -draw, 1 << halvings)  # as `SplitHMC.leapfrogs_of` has it
        angle = (step_size * (1 + jitter * (2 * coins[i, :, 1] - 1)) / pieces)[:, None]
        before = f + 0.5 * (v * v).sum(axis=1)
        begun = (z, v, f, gradient, angle, before, jnp.isnan(f))
        q, v, energy, force, _, _, nowhere = jax.lax.fori_loop(0, leapfrogs * pieces, leapfrog, begun)
        better = jnp.log(coins[i, :, 0]) < before - (energy + 0.5 * (v * v).sum(axis=1))
        z, gradient = (jnp.where(better[:, None], a, b) for a, b in ((q, z), (force, gradient)))
        lost = jnp.where((lost == 0) & nowhere, draw, lost)
        place = Place(z, jnp.where(better, energy, f), gradient, accepted + better, lost)
        return place, draws.at[i].set(z), slopes.at[i].set(gradient)

    room = jnp.zeros((capacity, chains, dim))
    found: tuple[Place, Any, Any] = jax.lax.fori_loop(0, count, step, (place, room, room))
    return found


class SplitOnJax(Chains):
    """The same draws as those of compiled chains, to rounding; f and ∇f at z are the memory of a chain."""

    engine = "jax"

    @scoped
    def __init__(self, setup: Setup, state: State) -> None:
        self.space, self.sampler, self.stream = setup.target, setup.sampler, Stream(setup.seed, setup.chains)
        self.state, self._pace = state, Pace()
        space, sampler, chains = self.space, self.sampler, setup.chains
        _, self._operations, self._arrays = placed(setup.form)
        work = len(chains) * sampler.leapfrogs * space.n * row_work(space)
        room = -sampler.leapfrogs % _KICKS
        self._kicks = tuple(jnp.asarray(np.pad(part, (0, room))) for part in sampler.kicks())
        self._capacity = steps_at_once(len(chains) * space.dim, len(chains) * space.dim, work)

    @scoped
    def compile(self) -> None:
        """By making no draw."""
        self._advance(self._placed(), 0, 0)

    def empty_memory(self) -> Memory:
        """f and ∇f at z."""
        return {"f": np.empty(0), "gradient": np.empty((0, self.space.dim))}

    @scoped
    def extend(self, count: int, keep: Keep = EVERY, report: Report = quiet) -> Extension:
        """Piece by piece; the state moves when all are made."""
        state, (chains, dim) = self.state, self.state.x.shape
        step, end = state.step, state.step + count
        kept = keep.within(step, end)
        draws, gradients = (np.empty((chains, len(kept), dim)) for _ in range(2))
        place, made = self._placed(), 0
        base = state.spent + (0 if state.memory else self.space.n)  # f and ∇f at the start are known from then on
        while step < end:
            look()
            until = min(end, step + min(self._pace.steps, self._capacity), (step // HIGH + 1) * HIGH)
            began = time.perf_counter()
            place, *found = self._advance(place, step, until - step)
            self._require_defined(place)
            self._pace.learn(until - step, time.perf_counter() - began)
            these = keep.within(step, until) - step - 1
            for room, new in zip((draws, gradients), found, strict=True):
                room[:, made : made + len(these)] = np.asarray(new)[these].transpose(1, 0, 2)
            report((until - step) * chains)
            step, made = until, made + len(these)
        spent = base + float(self.space.n) * np.cumsum(self.sampler.leapfrogs_of(state.step + 1 + np.arange(count)))
        memory = {"f": np.array(place.f), "gradient": np.array(place.gradient)}
        self.state = State(np.array(place.z), state.v, memory, end, float(spent[-1]))
        costs, evaluations = spent[kept - state.step - 1], round((spent[-1] - state.spent) * chains)
        return Extension(draws, costs, evaluations, gradients, np.array(place.accepted))

    def _placed(self) -> Place:
        state, none = self.state, jnp.zeros(len(self.state.x), jnp.int64)
        z = jnp.asarray(state.x)
        if state.memory:
            return Place(z, jnp.asarray(state.memory["f"]), jnp.asarray(state.memory["gradient"]), none, none)
        f, gradient = energies(self._operations, self._arrays, z)
        return Place(z, f, gradient, none, none)

    def _require_defined(self, place: Place) -> None:
        """Refuse a target whose f is not a number at a state that a chain came to."""
        lost = np.asarray(place.lost)
        if lost.any():
            chain = int(np.argmin(np.where(lost > 0, lost, np.iinfo(lost.dtype).max)))
            raise UndefinedDensityError(int(self.stream.chains[chain]), int(lost[chain]))

    def _advance(self, place: Place, step: int, count: int) -> tuple[Place, Any, Any]:
        sampler = self.sampler
        first, second = self.stream.keys(step // HIGH)
        sizes = (sampler.step_size, sampler.jitter, sampler.halvings)
        found: tuple[Place, Any, Any] = advance(
            self._operations, self._capacity, self._arrays, self._kicks, sampler.leapfrogs, sizes,
            (jnp.asarray(first), jnp.asarray(second)), place, step, count,
        )  # fmt: skip
        return found
