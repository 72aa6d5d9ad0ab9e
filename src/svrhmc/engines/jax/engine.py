"""What JAX runs, and what it does not; JAX itself is loaded with the first chains."""

from __future__ import annotations

from typing import Any

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.core.jax import INSTALL, is_installed
from svrhmc.engines.base import Chains, Engine, Reasons, Setup, State
from svrhmc.priors.terms import HALF_POWER, HALF_STUDENT, LAPLACE, STUDENT
from svrhmc.rows.forms import FunctionsForm, QuadraticForm, RowsForm

_MAPS = ("dense", "low rank", "sparse")
_STORED = ("dense", "sparse")
_PRIORS = (STUDENT, LAPLACE, HALF_STUDENT, HALF_POWER)


class OnJax(Engine):
    """Functions, rows and quadratics, on whatever device JAX has."""

    name = "jax"
    has_devices = True
    block = 64

    def supports(self, sampler: Any, density: object) -> str | None:
        """Forms that have arrays or JAX functions; exact chains on functions."""
        if not is_installed():
            return f"JAX is not installed; {INSTALL}"
        reasons: dict[str, Reasons] = {
            "grid": {
                "rows": self._of_rows, "quadratic": _without_predictor, "functions": _without_predictor,
            },
            "split": {"functions": lambda sampler, form: None},
        }  # fmt: skip
        return self.lacks(sampler, density, reasons)

    def _of_rows(self, sampler: object, form: RowsForm) -> str | None:
        return self.lacks_rows(form, _STORED, _MAPS) or _lacks_prior(form) or self.lacks_order(sampler, form)

    def check(self, setup: Setup) -> None:
        """Devices that are not there, and those of a model, which has its own."""
        if setup.devices is None:
            return
        if setup.form.kind == "functions":
            why = "its rows are where targets.model(…, devices=…) put them"
            raise requirement("devices", "None for a model", repr(setup.devices), why)
        from svrhmc.core.devices import select_devices

        select_devices(setup.devices)

    def chains(self, setup: Setup, state: State) -> Chains:
        """Chains on the device."""
        from svrhmc.engines.jax.chains import JaxChains, JaxKernel
        from svrhmc.engines.jax.grid import GridKernel
        from svrhmc.engines.jax.split import SplitKernel

        kernels: dict[str, type[JaxKernel]] = {"grid": GridKernel, "split": SplitKernel}
        return JaxChains(setup, state, kernels[setup.sampler.kind])

    def estimates(self, setup: Setup, states: Array, step: int) -> Array:
        """By one program for all states."""
        from svrhmc.engines.jax.grid import estimates_at

        return estimates_at(setup, states, step)


def _lacks_prior(form: RowsForm) -> str | None:
    unknown = set() if form.heavy is None else set(form.heavy.kinds.tolist()) - set(_PRIORS)
    return f"it does not have priors of kind {min(unknown)}" if unknown else None


def _without_predictor(sampler: Any, form: QuadraticForm | FunctionsForm) -> str | None:
    recipe = sampler.recipe
    if recipe.order == 2 or recipe.weighted:
        return "second order, and rows drawn by weight, are for models with a linear predictor"
    return None
