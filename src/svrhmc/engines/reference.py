"""The definition of every sampler, in plain NumPy: a scheme, a recipe, a loop.

z ← P z + Lp ξ ;      g = ∇f̂(x) ;      z ← Q z − k g + Lq ξ′
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import DivergenceError, requirement
from svrhmc.core.randomness import Stream
from svrhmc.engines.base import EVERY, Chains, Engine, Extension, Keep, Report, Setup, State, quiet
from svrhmc.gradients import Estimator, Memory, Recipe
from svrhmc.gradients.estimator import AtMode
from svrhmc.scheme import move

# Chains are run in blocks whose arrays of (chains, n) or (chains, batch, dim) stay this small.
_BLOCK_ELEMENTS = 1 << 22


class Reference(Engine):
    """Runs every sampler on every target that has its components at hand."""

    name = "reference"

    def supports(self, form: Any, recipe: Recipe) -> str | None:
        """Whatever a target's own methods can do."""
        return None

    def chains(self, setup: Setup, state: State) -> Chains:
        """Chains of NumPy arrays."""
        return ReferenceChains(setup, state)

    def estimates(self, setup: Setup, states: Array, step: int) -> Array:
        """The estimator's."""
        at_mode = AtMode(setup.recipe, setup.target)
        out = np.empty_like(states)
        for block in _blocks(setup, len(states)):
            stream = Stream(setup.seed, setup.chains[block])
            out[block] = Estimator(setup.recipe, setup.target, stream, at_mode=at_mode)(states[block], step)
        return out


class ReferenceChains(Chains):
    """Chains in blocks, each made from the start to the end of a call."""

    engine = "reference"

    def __init__(self, setup: Setup, state: State) -> None:
        self.setup, self.state = setup, state
        self._at_mode = AtMode(setup.recipe, setup.target)

    def empty_memory(self) -> Memory:
        """By the gradient, and by the parts of a single chain where they are kept."""
        recipe, target, x = self.setup.recipe, self.setup.target, self.state.x[:1]
        memory = {"snapshot": x[:0]} if recipe.carries and recipe.reference != "table" else {}
        memory |= {"table": target.parts(x, None)[:0]} if recipe.keeps_table(len(self.setup.chains)) else {}
        return memory | ({"anchor": x[:0]} if recipe.carries else {})

    def extend(self, count: int, keep: Keep = EVERY, report: Report = quiet) -> Extension:
        """`count` more steps of each chain."""
        setup, state = self.setup, self.state
        chains, dim = state.x.shape
        end = state.step + count
        kept = keep.within(state.step, end)
        draws, x, v = np.empty((chains, len(kept), dim)), state.x.copy(), state.v.copy()
        memories = [
            self._extend_block(block, x[block], v[block], end, kept, draws[block], report)
            for block in _blocks(setup, chains)
        ]
        memory = {name: np.concatenate([each[name] for each in memories]) for name in memories[0]}
        spent = setup.recipe.evaluations(np.array([state.step, end]))
        self.state = State(x, v, memory, end, float(spent[1]))
        return Extension(draws, setup.recipe.evaluations(kept).astype(float), int(spent[1] - spent[0]) * chains)

    def _extend_block(
        self, block: slice, x: Array, v: Array, end: int, kept: Indices, draws: Array, report: Report
    ) -> Memory:
        setup, scheme, state = self.setup, self.setup.scheme, self.state
        stream = Stream(setup.seed, setup.chains[block])
        memory = {name: array[block].copy() for name, array in state.memory.items()}
        estimate = Estimator(setup.recipe, setup.target, stream, memory, self._at_mode)
        chains, dim = x.shape
        slot = 0
        for step in range(state.step, end):
            normals = iter(stream.normals(step, scheme.normals * dim).reshape(chains, -1, dim).transpose(1, 0, 2))
            with np.errstate(over="ignore", invalid="ignore"):  # a diverging chain is an error below, not a warning
                at, velocity = move(scheme.before, scheme.before_noise, x, v, normals)
                g = estimate(at, step)
                self._require_gradient(block, step, at, g)
                at, velocity = move(scheme.after, scheme.after_noise, at, velocity, normals)
                x[:], v[:] = at - scheme.kick.x * g, velocity - scheme.kick.v * g
            self._require_finite(block, step, x, v)
            if slot < len(kept) and kept[slot] == step + 1:
                draws[:, slot] = x
                slot += 1
            report(chains)
        carried = estimate.memory
        if not setup.recipe.keeps_table(len(setup.chains)):
            carried.pop("table", None)
        return carried

    def _require_gradient(self, block: slice, step: int, x: Array, g: Array) -> None:
        """A gradient that is not finite at an ordinary state is the target's fault, not the step size's."""
        bad = ~np.isfinite(g).all(axis=1) & (np.abs(x).max(axis=1) < 1e30)
        if bad.any():
            where = f"chain {self._name(block, bad)}, step {step + 1}, at a finite state"
            raise requirement("the gradient", "finite", "nan or inf", where)

    def _require_finite(self, block: slice, step: int, x: Array, v: Array) -> None:
        bad = ~(np.isfinite(x).all(axis=1) & np.isfinite(v).all(axis=1))
        if bad.any():
            size = self.setup.step_size
            raise DivergenceError(self._name(block, bad), step + 1, size, size / 4)

    def _name(self, block: slice, bad: Any) -> int:
        return int(self.setup.chains[block][int(np.argmax(bad))])


def _blocks(setup: Setup, chains: int) -> list[slice]:
    """Chains that are run together."""
    per_chain = setup.target.at_hand + setup.target.dim + setup.target.row_size * setup.recipe.rows_at_once
    size = max(1, _BLOCK_ELEMENTS // per_chain)
    return [slice(begin, min(begin + size, chains)) for begin in range(0, chains, size)]
