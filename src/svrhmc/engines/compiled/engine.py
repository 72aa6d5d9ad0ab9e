"""What is compiled, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from svrhmc.engines.base import Chains, Engine, Reasons, Setup, State
from svrhmc.engines.compiled.arrays import FRAMES, STORED
from svrhmc.engines.compiled.chains import CompiledChains, CompiledKernel
from svrhmc.engines.compiled.gathered import subsampled_kernel
from svrhmc.engines.compiled.grid import GridKernel
from svrhmc.engines.compiled.split import SplitKernel
from svrhmc.targets.forms import QuadraticForm, RowsForm

_KERNELS: dict[str, Callable[[Setup], CompiledKernel]] = {
    "grid": GridKernel,
    "split": SplitKernel,
    "subsampled": subsampled_kernel,
}


class Compiled(Engine):
    """Rows and quadratics, compiled by Numba."""

    name = "numba"

    def supports(self, sampler: Any, density: Any) -> str | None:
        """Forms that have arrays, with losses, storages and maps that are compiled."""
        reasons: dict[str, Reasons] = {
            "grid": {"rows": self._of_rows, "quadratic": _of_quadratics},
            "split": {"rows": self._of_whitened_rows},
            "subsampled": {"rows": _of_thinned_rows},
        }
        return self.lacks(sampler, density, reasons)

    def _of_rows(self, sampler: Any, form: RowsForm) -> str | None:
        return self.lacks_rows(form, STORED, FRAMES) or self.lacks_order(sampler, form)

    def _of_whitened_rows(self, sampler: Any, form: RowsForm) -> str | None:
        return _without_map(form) or self.lacks_rows(form, STORED, FRAMES)

    def chains(self, setup: Setup, state: State) -> Chains:
        """Compiled chains."""
        return CompiledChains(setup, state, _KERNELS[setup.sampler.kind](setup))


def _without_map(form: RowsForm) -> str | None:
    return "its chains run in whitened variables" if form.whitening is None else None


def _of_thinned_rows(sampler: Any, form: RowsForm) -> str | None:
    return _without_map(form)


def _of_quadratics(sampler: Any, form: QuadraticForm) -> str | None:
    recipe = sampler.recipe
    if recipe.remembers:
        return "what is remembered of the components of a quadratic has no compiled form"
    if recipe.order == 2 or recipe.weighted:
        return "second order, and rows drawn by weight, are for models with a linear predictor"
    return None
