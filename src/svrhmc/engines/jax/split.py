"""Split HMC (`svrhmc.exact.SplitHMC`) in JAX: a leapfrog of all chains is one pass over the rows, which they share."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import UndefinedDensityError
from svrhmc.core.jax import Tree
from svrhmc.core.jit import program
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.engines.base import ENERGY_LIMIT, NEARBY, STEPS_PER_KEY, Keep, Setup, State
from svrhmc.engines.jax import randomness
from svrhmc.engines.jax.chains import FinalState, JaxKernel, nanoseconds_of_row, steps_per_call
from svrhmc.engines.jax.maps import Arrays
from svrhmc.engines.jax.operations import Operations
from svrhmc.engines.jax.placement import place_form
from svrhmc.gradients import Memory

_KICKS = 64  # leapfrogs for which there is room: a step of another length is not compiled anew


class SplitState(NamedTuple):
    """z with f and ∇f there, proposals accepted so far, and the draw on the way to which f was not a number, or 0."""

    z: jax.Array
    f: jax.Array
    gradient: jax.Array
    accepted: jax.Array
    lost: jax.Array


@partial(program, static_argnames=("operations",))
def energies(operations: Operations, arrays: Arrays, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """f and ∇f at some states."""
    return operations.energies(arrays, z)


@partial(program, static_argnames=("operations", "capacity"))
def advance(
    operations: Operations,
    capacity: int,
    arrays: Arrays,
    kicks: tuple[jax.Array, ...],
    leapfrogs: int,
    settings: tuple[float, float, int],
    keys: tuple[jax.Array, jax.Array],
    place: SplitState,
    begin: int,
    count: int,
) -> tuple[SplitState, jax.Array, jax.Array]:
    """`count` draws from step `begin` on, each with its ∇f: (capacity, chains, dim), the rest means nothing; of so many
    leapfrogs, the first kicks of those given.
    """
    chains, dim = place.z.shape
    steps = (begin + jnp.arange(capacity)).astype(jnp.uint32)
    velocity = randomness.normals(keys, steps, dim, Purpose.NOISE, Purpose.NOISE_FINE)
    coins = randomness.uniforms(keys, steps, 2, Purpose.ACCEPT)
    step_size, jitter, halvings = settings

    def leapfrog(k: jax.Array, carried: Tree) -> tuple[jax.Array, ...]:
        q, v, energy, force, angle, total, lost = carried
        turn, first, last = (part[k % leapfrogs] for part in kicks)
        v = v - first * angle * (force - q)
        below_limit = energy + 0.5 * (v * v).sum(axis=1) <= total + ENERGY_LIMIT
        cosine, sine = jnp.cos(turn * angle), jnp.sin(turn * angle)
        q, v = cosine * q + sine * v, cosine * v - sine * q
        energy, force = operations.energies(arrays, q)
        lost = lost | (below_limit & jnp.isnan(energy) & ((q * q).sum(axis=1) <= NEARBY * dim))
        return q, v - last * angle * (force - q), energy, force, angle, total, lost

    def step(i: jax.Array, carried: Tree) -> tuple[SplitState, jax.Array, jax.Array]:
        (z, f, gradient, accepted, lost), draws, slopes = carried
        v = velocity[i]
        draw = begin + i + 1
        pieces = jnp.minimum(draw & -draw, 1 << halvings)  # as `SplitHMC.leapfrogs_of` has it
        angle = (step_size * (1 + jitter * (2 * coins[i, :, 1] - 1)) / pieces)[:, None]
        before = f + 0.5 * (v * v).sum(axis=1)
        start = (z, v, f, gradient, angle, before, jnp.isnan(f))
        q, v, energy, force, _, _, nowhere = jax.lax.fori_loop(0, leapfrogs * pieces, leapfrog, start)
        better = jnp.log(coins[i, :, 0]) < before - (energy + 0.5 * (v * v).sum(axis=1))
        z, gradient = (jnp.where(better[:, None], a, b) for a, b in ((q, z), (force, gradient)))
        lost = jnp.where((lost == 0) & nowhere, draw, lost)
        place = SplitState(z, jnp.where(better, energy, f), gradient, accepted + better, lost)
        return place, draws.at[i].set(z), slopes.at[i].set(gradient)

    empty = jnp.zeros((capacity, chains, dim))
    result: tuple[SplitState, jax.Array, jax.Array] = jax.lax.fori_loop(0, count, step, (place, empty, empty))
    return result


class SplitKernel(JaxKernel):
    """The same draws as those of compiled chains, to rounding; f and ∇f at z are the memory of a chain."""

    gradients = True

    def __init__(self, setup: Setup) -> None:
        space, sampler, chains = setup.target, setup.sampler, len(setup.chains)
        self.space, self.sampler, self.stream = space, sampler, Stream(setup.seed, setup.chains)
        _, self._operations, self._arrays = place_form(setup.form)
        work, padding = chains * sampler.leapfrogs * space.n * nanoseconds_of_row(space), -sampler.leapfrogs % _KICKS
        self._kicks = tuple(jnp.asarray(np.pad(part, (0, padding))) for part in sampler.kicks())
        self._capacity = steps_per_call(chains * space.dim, chains * space.dim, work)

    def compile(self, state: State) -> None:
        self._advance(self.begin(state), 0, 0)

    def empty_memory(self, state: State) -> Memory:
        """f and ∇f at z."""
        return {"f": np.empty(0), "gradient": np.empty((0, self.space.dim))}

    def until(self, place: SplitState, step: int, limit: int, end: int, keep: Keep) -> int:
        """As many draws as a program has room for."""
        return min(limit, step + self._capacity)

    def advance(self, place: SplitState, step: int, end: int, keep: Keep) -> tuple[SplitState, tuple[Array, ...]]:
        """Every draw, of which some are kept."""
        place, *traced = self._advance(place, step, end - step)
        self._require_defined(place)
        kept_places = keep.within(step, end) - step - 1
        return place, tuple(np.asarray(states)[kept_places].transpose(1, 0, 2) for states in traced)

    def final_state(self, place: SplitState, state: State) -> FinalState:
        """v is not used."""
        memory = {"f": np.array(place.f), "gradient": np.array(place.gradient)}
        return FinalState(np.array(place.z), state.v, memory, np.array(place.accepted))

    def begin(self, state: State) -> SplitState:
        """f and ∇f at the start are evaluated where they are not known."""
        none, z = jnp.zeros(len(state.x), jnp.int64), jnp.asarray(state.x)
        if state.memory:
            return SplitState(z, jnp.asarray(state.memory["f"]), jnp.asarray(state.memory["gradient"]), none, none)
        f, gradient = energies(self._operations, self._arrays, z)
        return SplitState(z, f, gradient, none, none)

    def _require_defined(self, place: SplitState) -> None:
        """Refuse a target whose f is not a number at a state that a chain came to."""
        lost = np.asarray(place.lost)
        if lost.any():
            chain = int(np.argmin(np.where(lost > 0, lost, np.iinfo(lost.dtype).max)))
            raise UndefinedDensityError(int(self.stream.chains[chain]), int(lost[chain]))

    def _advance(self, place: SplitState, step: int, count: int) -> tuple[SplitState, jax.Array, jax.Array]:
        sampler = self.sampler
        first, second = self.stream.keys(step // STEPS_PER_KEY)
        settings = (sampler.step_size, sampler.jitter, sampler.halvings)
        return advance(
            self._operations, self._capacity, self._arrays, self._kicks, sampler.leapfrogs, settings,
            (jnp.asarray(first), jnp.asarray(second)), place, step, count,
        )  # fmt: skip
