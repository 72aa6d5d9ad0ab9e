"""The definition on rows that are not in memory: those of a stretch of steps are fetched, and it runs on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.engines.base import EVERY, Chains, Extension, Keep, Report, Setup, State, quiet
from svrhmc.engines.reference import Reference, ReferenceChains
from svrhmc.gradients import Recipe
from svrhmc.targets.forms import rows_of

_STRETCH, _MOST_PICKS = 1024, 1 << 18  # steps that rows are fetched for, and picks of all chains, at most


class Everywhere(Reference):
    """Runs every sampler on every target; on rows in partitions those whose rows are drawn by importance. There full
    gradients, and those of snapshots, are passes.
    """

    def supports(self, form: Any, recipe: Recipe) -> str | None:
        """On rows in partitions, what needs no table of them."""
        rows = rows_of(form)
        if rows is None or rows.rows.in_memory:
            return super().supports(form, recipe)
        if rows.whitening is None:
            return "rows in partitions are sampled in whitened variables: svrhmc.whitening.whitened(target)"
        if recipe.reference == "table" or recipe.snapshot_rows:
            return "no table of all rows is kept where rows are in partitions"
        if not (recipe.full or recipe.weighted):
            return "rows in partitions are drawn by importance: give importance=True"
        return None

    def chains(self, setup: Setup, state: State) -> Chains:
        """Chains that fetch their rows, where those are elsewhere."""
        return FetchingChains(setup, state) if _is_elsewhere(setup) else super().chains(setup, state)

    def estimates(self, setup: Setup, states: Array, step: int) -> Array:
        """From rows fetched for all states together, where those are elsewhere."""
        return super().estimates(_on_window(setup, step, step + 1) if _is_elsewhere(setup) else setup, states, step)


class FetchingChains(Chains):
    """Chains of NumPy arrays, on windows of rows."""

    engine = Everywhere.name

    def __init__(self, setup: Setup, state: State) -> None:
        self.setup, self.state = setup, state
        picks = max(1, setup.recipe.batch) * len(setup.chains)
        self._stretch = max(1, min(_STRETCH, _MOST_PICKS // picks))
        self._known: tuple[int, Setup] | None = None

    def extend(self, count: int, keep: Keep = EVERY, report: Report = quiet) -> Extension:
        """Stretch by stretch."""
        end, parts = self.state.step + count, []
        while (step := self.state.step) < end:
            first = step // self._stretch * self._stretch
            if self._known is None or self._known[0] != first:
                self._known = None  # the rows of before go before others come
                self._known = first, _on_window(self.setup, first, first + self._stretch)
            until = min(end, first + self._stretch)
            inner = ReferenceChains(self._known[1], self.state)
            parts.append(inner.extend(until - step, keep, report))
            self.state = inner.state
        return Extension(
            np.concatenate([part.draws for part in parts], axis=1),
            np.concatenate([part.spent for part in parts]),
            sum(part.evaluations for part in parts),
        )


def _is_elsewhere(setup: Setup) -> bool:
    """Whether rows must be fetched; full gradients are passes in any case."""
    return setup.target.at_hand < setup.target.n and not setup.recipe.full


def _on_window(setup: Setup, first: int, end: int) -> Setup:
    """The same with a target that holds the rows of some steps."""
    stream, space = Stream(setup.seed, setup.chains), setup.target
    words = (stream.words(step, Purpose.BATCH, setup.recipe.batch) for step in range(first, end))
    window, at = space.gather(np.stack([space.places(*each) for each in words]))  # type: ignore[attr-defined]
    return replace(setup, target=window.for_steps(first, setup.chains, at))
