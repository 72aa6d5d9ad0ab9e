"""Chains of the grid, a scheme and a recipe, in JAX: what they carry, and which programs make their steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.devices import require_device_memory, sharding
from svrhmc.core.errors import DivergenceError, requirement
from svrhmc.core.jax import Tree
from svrhmc.core.randomness import Stream
from svrhmc.dynamics import Scheme
from svrhmc.engines.base import EVERY, STEPS_PER_KEY, Keep, Setup, State
from svrhmc.engines.jax import gpu, loop
from svrhmc.engines.jax.chains import FinalState, JaxKernel, in_jax_scope, nanoseconds_of_row, steps_per_call
from svrhmc.engines.jax.loop import ChainArrays, Inputs, Program, refreshed_memory
from svrhmc.engines.jax.maps import Arrays
from svrhmc.engines.jax.operations import Operations
from svrhmc.engines.jax.placement import Spread, place_form
from svrhmc.engines.jax.scheme import Kept, Noise
from svrhmc.gradients import NEVER, AtMode, Memory


@dataclass(frozen=True, eq=False)
class Layout:
    """A sampler on a target, on the devices.

    numbers: which of the chains each place is for; there may be more places than chains, for as many on each device.
    """

    setup: Setup
    spread: Spread
    operations: Operations
    arrays: Arrays
    numbers: Indices

    @staticmethod
    def of(setup: Setup) -> Layout:
        """With what the recipe needs besides the target."""
        chains = len(setup.chains)
        spread, operations, arrays = place_form(setup.form, setup.devices, 0 if setup.sampler.recipe.full else chains)
        extra = spread.replicate(_recipe_arrays(setup))
        return Layout(setup, spread, operations, {**arrays, **extra}, spread.numbers(chains))

    @lru_cache(maxsize=2)  # noqa: B019 - a layout lives as long as its chains
    def _keys(self, high: int) -> tuple[jax.Array, jax.Array]:
        keys: tuple[jax.Array, jax.Array] = self.put(Stream(self.setup.seed, self.setup.chains).keys(high))
        return keys

    def put(self, of_chains: Tree) -> Tree:
        """Arrays of the chains, on the devices.

        Where rows are cut, all devices have all chains; but where no step passes over all rows, and chains come out
        even, each goes on alone with some chains after it was given their rows.
        """
        mesh, recipe = self.spread.mesh, self.setup.sampler.recipe
        if mesh is None:
            return jax.tree.map(jnp.asarray, of_chains)
        arrays = jax.tree.map(lambda array: np.asarray(array)[self.numbers], of_chains)
        is_even = len(self.numbers) % mesh.size == 0
        by_device = self.spread.chains or (is_even and not recipe.full and recipe.reference != "snapshot")
        return jax.device_put(arrays, sharding(mesh, by_device))

    def keys(self, step: int) -> tuple[jax.Array, jax.Array]:
        """Of the chains, for the steps from this one on."""
        return self._keys(step // STEPS_PER_KEY)


def _recipe_arrays(setup: Setup) -> Arrays:
    """What a recipe needs besides the target: how rows are drawn by weight, and what is evaluated at the mode."""
    recipe, target = setup.sampler.recipe, setup.target
    arrays: Arrays = {}
    if recipe.weighted:
        arrays |= dict(zip(("threshold", "alias", "probabilities"), target.row_table, strict=True))
    if recipe.reference == "mode":
        at = AtMode(recipe, target)
        arrays |= {"mode": at.point, "mode anchor": at.anchor}
        if at.parts is not None:
            arrays["mode parts"] = at.parts[0].reshape(recipe.n, -1)
        if recipe.order == 2:
            arrays["mode hessian"] = at.expansion.hessian
            curvatures = getattr(at.expansion, "curvatures", None)
            arrays |= {} if curvatures is None else {"mode curvatures": curvatures}
    return arrays


class GridKernel(JaxKernel):
    """A scheme and a recipe."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self._layout = setup, Layout.of(setup)
        if setup.sampler.recipe.remembers and setup.sampler.recipe.carries:
            self._require_room_for_table(self._layout.spread)
        self._noise, self._scheme = Noise.of(setup.sampler.scheme), _scheme_arrays(setup.sampler.scheme)

    def until(self, place: ChainArrays, step: int, limit: int, end: int, keep: Keep) -> int:
        """To where the memory is renewed, or after whole periods of it."""
        recipe, until = self.setup.sampler.recipe, min(limit, step + self._capacity_and_records(keep)[0])
        if recipe.carries and not recipe.due(step):
            return min(until, -(-step // recipe.period) * recipe.period)
        if self._refreshes(place, step) and until - step > recipe.period:
            return until - ((until - step) % recipe.period if until < end else 0)
        return until

    def advance(self, place: ChainArrays, step: int, end: int, keep: Keep) -> tuple[ChainArrays, tuple[Array]]:
        """By a program with a renewal of the memory, or without."""
        refresh, count = self._refreshes(place, step), len(keep.within(step, end))
        after, draws = self._advance(place, step, end - step, keep, refresh)
        after.x.block_until_ready()
        self._require_finite(place, after, step, end - step, refresh)
        states = draws if _is_accelerator() else np.asarray(draws)  # JAX compiles a slice for each number that is kept
        return after, (np.asarray(states[:count]).transpose(1, 0, 2)[: len(self.setup.chains)],)

    def _refreshes(self, place: ChainArrays, step: int) -> bool:
        recipe = self.setup.sampler.recipe
        return bool(recipe.due(step) or (recipe.carries and not place.memory))

    def final_state(self, place: ChainArrays, state: State) -> FinalState:
        """Of the chains themselves: there may be more places."""
        x, v = (np.array(array)[: len(state.x)] for array in (place.x, place.v))
        return FinalState(x, v, self._memory_arrays(place))

    def empty_memory(self, state: State) -> Memory:
        """By the shapes of what a first step would remember."""
        layout, recipe = self._layout, self.setup.sampler.recipe
        if not recipe.carries:
            return {}
        start = layout.operations, recipe, layout.arrays, layout.keys(0), jnp.asarray(0)
        shapes = jax.eval_shape(lambda x: self._stored_memory(refreshed_memory(*start, x)), layout.put(state.x))
        return {name: np.empty((0, *shape.shape[1:]), shape.dtype) for name, shape in shapes.items()}

    def _require_room_for_table(self, spread: Spread) -> None:
        target, devices = self.setup.target, None if spread.mesh is None else list(spread.mesh.devices.flat)
        chains = len(self._layout.numbers) / (len(devices) if devices and spread.chains else 1)
        table = 8.0 * chains * self.setup.sampler.recipe.n * (1 if target.scalar_parts else target.row_size)
        remedy = "run fewer chains, or take another gradient, such as SVRG"
        require_device_memory("the table of gradients", table, remedy, devices)

    def compile(self, state: State) -> None:
        """Programs with and without a renewal of the memory, where the recipe has both."""
        place = self.begin(state)
        recipe, step = self.setup.sampler.recipe, state.step
        if not recipe.carries or recipe.due(step):
            after, _ = self._advance(place, step, 0 if not recipe.carries else 1, EVERY, recipe.due(step))
            place = after
        if recipe.carries and recipe.period > 1:
            self._advance(place, step + 1, 0, EVERY, False)

    def _capacity_and_records(self, keep: Keep) -> tuple[int, int]:
        """Steps of a program, and draws kept of them."""
        chains, dim = len(self.setup.chains), self.setup.target.dim
        numbers = loop.random_numbers_of_step(chains, dim, self._noise, self.setup.sampler.recipe)
        if self._fetches:
            numbers += int(chains * self.setup.sampler.recipe.batch * self._layout.operations.place.numbers)
        resides = gpu.supports_steps(self._layout.operations, self.setup.sampler.recipe, self._layout.arrays)
        ahead = numbers < loop.MANY_NUMBERS or self._fetches or resides
        work = chains * (
            self.setup.sampler.recipe.rows_of_estimate * nanoseconds_of_row(self.setup.target) + 10.0 * dim
        )
        capacity = steps_per_call(numbers if ahead else 0, -(-chains * dim // keep.thin), work)
        return capacity, min(capacity, capacity // keep.thin + 1)

    def _advance(
        self, place: ChainArrays, step: int, count: int, keep: Keep, refresh: bool
    ) -> tuple[ChainArrays, jax.Array]:
        layout, thin, (capacity, records) = self._layout, min(keep.thin, NEVER), self._capacity_and_records(keep)
        program = Program(
            layout.operations, self.setup.sampler.recipe, self._noise, capacity, records, refresh,
            count == capacity and _is_accelerator(), not _is_accelerator(),
        )  # fmt: skip
        inputs = Inputs(
            layout.arrays, self._scheme, layout.keys(step), place, step, count, Kept(keep.first, thin),
            self._fetch_batches(step, count, capacity),
        )  # fmt: skip
        result: tuple[ChainArrays, jax.Array] = loop.advance(program, layout.spread, inputs)
        return result

    @property
    def _fetches(self) -> bool:
        """Whether batches are read before the steps that need them."""
        place = self._layout.operations.place
        return place is not None and place.fetches and not self.setup.sampler.recipe.full

    def _fetch_batches(self, step: int, count: int, capacity: int) -> Tree:
        """The data of the batches of some steps, in room for as many as a program makes; None where they are there."""
        if not self._fetches:
            return None
        layout = self._layout
        rows = np.array(loop.draw_batches(self.setup.sampler.recipe, layout.arrays, layout.keys(step), step, capacity))
        rows[count:] = 0
        return layout.operations.place.fetch(rows)

    def begin(self, state: State) -> ChainArrays:
        """A table that was not kept is made again."""
        memory = dict(state.memory)
        if "table" in memory:
            memory["table"] = memory["table"].reshape(*memory["table"].shape[:2], -1)
        x, v, memory = self._layout.put((state.x, state.v, memory))
        place = ChainArrays(x, v, memory)
        if memory and self.setup.sampler.recipe.remembers and "table" not in memory:
            table = loop.recompute_table(self._layout.operations, self._layout.arrays, place.memory["snapshot"])
            return place._replace(memory={**place.memory, "table": table})
        return place

    def _memory_arrays(self, place: ChainArrays) -> Memory:
        mine = slice(len(self.setup.chains))
        return {name: np.array(array)[mine] for name, array in self._stored_memory(place.memory).items()}

    def _stored_memory(self, memory: Mapping[str, Tree]) -> dict[str, Tree]:
        """What a `State` has of it: the mᵢ only where they are few enough."""
        others = {name: array for name, array in memory.items() if name != "table"}
        if len(others) == len(memory) or not self.setup.sampler.recipe.keeps_table(len(self.setup.chains)):
            return others
        return others | {"table": self._layout.operations.state_table(memory["table"])}

    def _require_finite(self, place: ChainArrays, after: ChainArrays, step: int, count: int, refresh: bool) -> None:
        """An error that names the first chain and step whose numbers are not finite: found by halving the piece."""
        if _all_finite(after):
            return
        good, bad = 0, count
        while bad - good > 1:
            middle = (good + bad) // 2
            piece_end, _ = self._advance(place, step, middle, EVERY, refresh)
            good, bad = (middle, bad) if _all_finite(piece_end) else (good, middle)
        before, _ = self._advance(place, step, good, EVERY, refresh) if good else (place, None)
        piece_end, _ = self._advance(place, step, bad, EVERY, refresh)
        wrong = ~(np.isfinite(piece_end.x).all(axis=1) & np.isfinite(piece_end.v).all(axis=1))
        chain, size = int(self.setup.chains[int(np.argmax(wrong))]), self.setup.sampler.step_size
        if float(np.abs(np.asarray(before.x)[wrong]).max()) < 1e30:
            g, _ = loop.first_estimate(
                self._layout.operations, self.setup.sampler.recipe, self._layout.arrays,
                self._layout.keys(step + good), jnp.uint32((step + good) % STEPS_PER_KEY), before.x,
            )  # fmt: skip
            if not np.isfinite(np.asarray(g)[wrong]).all():
                location = f"chain {chain}, step {step + bad}, at a finite state"
                raise requirement("the gradient", "finite", "nan or inf", location)
        raise DivergenceError(chain, step + bad, size, size / 4)


def _is_accelerator() -> bool:
    return jax.default_backend() != "cpu"


def _all_finite(place: ChainArrays) -> bool:
    return bool(jnp.isfinite(place.x).all() & jnp.isfinite(place.v).all())


def _scheme_arrays(scheme: Scheme) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(part) for part in scheme.numbers())


@in_jax_scope
def estimates_at(setup: Setup, states: Array, step: int) -> Array:
    """The recipe's estimate of ∇f at each state."""
    layout = Layout.of(setup)
    g, _ = loop.first_estimate(
        layout.operations, setup.sampler.recipe, layout.arrays, layout.keys(step), jnp.uint32(step % STEPS_PER_KEY),
        layout.put(states),
    )  # fmt: skip
    return np.array(g)[: len(states)]
