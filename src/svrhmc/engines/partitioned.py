"""The grid on rows in partitions: rows of a stretch of steps are fetched, and the definition runs on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.engines.base import EVERY, Chains, Engine, Extension, Keep, Report, Setup, State, quiet
from svrhmc.engines.reference import Reference
from svrhmc.gradients import Recipe
from svrhmc.targets.forms import rows_of

_STRETCH, _MOST_PICKS = 1024, 1 << 21  # steps that rows are fetched for, and picks of all chains, at most


class Partitioned(Engine):
    """Runs samplers whose rows are drawn by importance; full gradients, and those of snapshots, are passes."""

    name = "partitions"

    def supports(self, form: Any, recipe: Recipe) -> str | None:
        """Rows in partitions, in whitened variables."""
        rows = rows_of(form)
        if rows is None or rows.rows.in_memory:
            return "it is for rows in partitions"
        if rows.whitening is None:
            return "rows in partitions are sampled in whitened variables: svrhmc.whitened(target)"
        if recipe.remembers or recipe.snapshot_rows:
            return "no table of all rows is kept where rows are in partitions"
        if not (recipe.full or recipe.weighted):
            return "rows in partitions are drawn by importance: give importance=True"
        return None

    def chains(self, setup: Setup, state: State) -> Chains:
        """Chains that fetch their rows."""
        return PartitionedChains(setup, state)

    def estimates(self, setup: Setup, states: Array, step: int) -> Array:
        """From rows fetched for all states together."""
        return Reference().estimates(_on_window(setup, step, step + 1), states, step)


class PartitionedChains(Chains):
    """Chains of NumPy arrays, on windows of rows."""

    engine = "partitions"

    def __init__(self, setup: Setup, state: State) -> None:
        self.setup, self.state = setup, state

    def extend(self, count: int, keep: Keep = EVERY, report: Report = quiet) -> Extension:
        """Stretch by stretch."""
        end, parts = self.state.step + count, []
        batch = max(1, self.setup.recipe.batch) * len(self.setup.chains)
        stretch = max(1, min(_STRETCH, _MOST_PICKS // batch))
        while (step := self.state.step) < end:
            until = min(end, (step // stretch + 1) * stretch)
            inner = Reference().chains(_on_window(self.setup, step, until), self.state)
            parts.append(inner.extend(until - step, keep, report))
            self.state = inner.state
        return Extension(
            np.concatenate([part.draws for part in parts], axis=1),
            np.concatenate([part.spent for part in parts]),
            sum(part.evaluations for part in parts),
        )


def _on_window(setup: Setup, first: int, end: int) -> Setup:
    """The same with a target that holds the rows of some steps."""
    recipe, space = setup.recipe, setup.target
    if recipe.full:
        return setup
    stream = Stream(setup.seed, setup.chains)
    places = [space.places(*stream.words(step, Purpose.BATCH, recipe.batch)) for step in range(first, end)]  # type: ignore[attr-defined]
    window, at = space.gather(np.stack(places))  # type: ignore[attr-defined]
    return replace(setup, target=window.for_steps(first, setup.chains, at))
