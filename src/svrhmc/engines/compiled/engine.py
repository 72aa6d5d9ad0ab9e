"""What is compiled, and what is not."""

from __future__ import annotations

from typing import Any

from svrhmc.core.arrays import Array
from svrhmc.engines.base import Chains, Engine, Reasons, Setup, State
from svrhmc.engines.compiled.chains import CompiledChains, estimates_at
from svrhmc.engines.compiled.models import FRAMES, STORED
from svrhmc.gradients import Recipe
from svrhmc.kernels.known import KERNELS
from svrhmc.targets.forms import QuadraticForm, RowsForm, rows_of


class Compiled(Engine):
    """Rows and quadratics, compiled by Numba."""

    name = "numba"

    def supports(self, form: Any, recipe: Recipe) -> str | None:
        """Forms that have arrays, with losses, storages and maps that are compiled."""
        reasons: Reasons = {"rows": self._of_rows, "blocks": self._of_rows, "quadratic": _of_quadratics}
        return self.lacks(form, recipe, reasons)

    def _of_rows(self, form: RowsForm, recipe: Recipe) -> str | None:
        return self.lacks_rows(form, recipe, KERNELS, STORED, FRAMES)

    def chains(self, setup: Setup, state: State) -> Chains:
        """Compiled chains."""
        return CompiledChains(setup, state)

    def estimates(self, setup: Setup, states: Array, step: int) -> Array:
        """By a loop that makes no step; full ones over many rows by the passes that found the mode."""
        form = rows_of(setup.form)
        if setup.recipe.full and form is not None and form.rows.one_pass(form.loss):
            return setup.target.gradients(states)
        return estimates_at(setup, states, step)


def _of_quadratics(form: QuadraticForm, recipe: Recipe) -> str | None:
    if recipe.remembers:
        return "what is remembered of the components of a quadratic has no compiled form"
    if recipe.order == 2 or recipe.weighted:
        return "second order, and rows drawn by weight, are for models with a linear predictor"
    return None
