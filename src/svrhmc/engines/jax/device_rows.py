"""Rows of a generalised linear model on JAX's devices: sums over them are programs there, all else stays on the host.

`on_devices` makes the same target of rows that lie elsewhere, as those in partitions do: the search for the mode, exact
chains and the verdict ask it for sums over all rows and for nothing else. A device multiplies rows in their own
precision and adds in float64, as the host does, so that the draws are those of the host to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import cast

import jax
import numpy as np

from svrhmc.core.arrays import Array, digest
from svrhmc.core.deadline import check_budget
from svrhmc.core.devices import select_devices
from svrhmc.core.errors import requirement
from svrhmc.core.jax import scoped
from svrhmc.core.jit import program
from svrhmc.density.base import FiniteSum
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.engines.jax.maps import Arrays
from svrhmc.engines.jax.placement import PlacedForm, place_form
from svrhmc.engines.jax.rows import RowOperations
from svrhmc.families.base import Loss
from svrhmc.rows.base import LabelledRows, Labels, Total
from svrhmc.rows.by_passes import RowsByPasses
from svrhmc.rows.forms import RowsForm, functions_of, rows_of

_SAMPLED, _LEAST = 1 << 20, 20  # entries of the rows from which the mode is first searched for; rows for each column
_ON_HOST = "give devices=None to sample it on the host"


@partial(program, static_argnames=("operations",))
def _energies(operations: RowOperations, arrays: Arrays, states: jax.Array) -> Collection[jax.Array]:
    return operations.row_energies(arrays, states)


@partial(program, static_argnames=("operations",))
def _derivatives(operations: RowOperations, arrays: Arrays, x: jax.Array) -> Collection[jax.Array]:
    return operations.row_derivatives(arrays, x)


@partial(program, static_argnames=("operations",))
def _squares(operations: RowOperations, arrays: Arrays, beta: jax.Array) -> Collection[jax.Array]:
    return operations.row_squares(arrays, beta)


_PROGRAMS: dict[Callable[..., object], Callable[..., Collection[jax.Array]]] = {
    RowsForm.energies: _energies,
    RowsForm.derivatives: _derivatives,
    RowsForm.squares: _squares,
}


class DeviceRows(RowsByPasses):
    """The rows of a form in memory, copied to the devices when they are first needed."""

    storage = "dense"
    single = False
    where = "on a device"

    def __init__(self, form: RowsForm, devices: object) -> None:
        self.host, self.devices = form, devices
        self.n, self.dim, self.dtype, self.names = form.rows.n, form.rows.dim, form.rows.dtype, form.rows.names

    def __repr__(self) -> str:
        return f"{self.n} rows on devices"

    @property
    def columns(self) -> int:
        return self.host.rows.columns

    @property
    def entries(self) -> float:
        return self.host.rows.entries

    @property
    def entries_read_once(self) -> float:
        return self.host.rows.entries_read_once

    def digest(self) -> str:
        """Of the rows and their labels, wherever they are."""
        labels = (values for values in (self.host.y, self.host.offset, self.host.weights) if values is not None)
        return f"{self.host.rows.digest()} {digest(*labels)}"

    def sample_rows(self) -> LabelledRows:
        """Rows at even distances."""
        count = min(self.n, max(_SAMPLED // self.columns, _LEAST * self.dim))
        chosen = np.linspace(0, self.n - 1, count).astype(np.int64)
        some, rows = self.host.choose(chosen), self.host.rows.design_matrix.choose(chosen)
        return LabelledRows(rows.dense_matrix(np.arange(count)).astype(self.dtype), some.y, some.offset, some.weights)

    @scoped
    def sum_over_rows(
        self, function: Callable[..., Total], form: object, arguments: tuple[Array, ...], zero: Total, task: str
    ) -> Total:
        """By the program for this function."""
        check_budget()
        with self.timed():
            return super().sum_over_rows(partial(self._sums, function), form, arguments, zero, task)  # type: ignore[arg-type]

    def _sums(self, function: Callable[..., object], form: object, argument: Array) -> tuple[Array, ...]:
        """At one state, or at several, filled up to a power of two, so that few programs are compiled."""
        placed, several = self.place(), argument.ndim > 1
        sums = _PROGRAMS[function](placed.operations, placed.arrays, filled_up(argument) if several else argument)
        parts = [np.asarray(part, np.float64) for part in sums]
        return tuple(part[: len(argument)] for part in parts) if several else tuple(parts)

    @scoped
    def warm(self, loss: Loss, labels: Labels) -> None:
        """By a pass of each kind that a search for a mode makes."""
        placed, zero = self.place(), np.zeros(self.dim)
        for function, argument in ((RowsForm.derivatives, zero), (RowsForm.energies, zero[None])):
            jax.block_until_ready(_PROGRAMS[function](placed.operations, placed.arrays, argument))

    def place(self) -> PlacedForm:
        """The rows on the devices, copied there once."""
        return place_form(self.host, self.devices)


def filled_up(states: Array) -> Array:
    """States, (states, dim), with copies of the last one up to a power of two of them."""
    count = 1 << (len(states) - 1).bit_length()
    return np.concatenate([states, np.repeat(states[-1:], count - len(states), axis=0)])


def on_devices(target: FiniteSum, devices: object) -> GeneralisedLinear:
    """The same target with its rows on these devices; an error if it is not one of dense rows in memory."""
    select_devices(devices)
    form = rows_of(target.form())
    if functions_of(target.form()) is not None:
        why = "its rows are where targets.model(…, devices=…) put them"
        raise requirement("devices", "None for a model of JAX functions", repr(devices), why)
    if form is None or target.searched_by != "mode":
        why = f"they are for generalised linear models without effects of groups, or priors with scales; {_ON_HOST}"
        raise requirement("devices", f"None for {target!r}", repr(devices), why)
    if not form.rows.in_memory:
        raise requirement("devices", "None for rows in partitions", repr(devices), "their workers read and add them")
    if form.rows.storage != "dense" or form.loss.kernel is None:
        kind = f"{form.rows.storage} rows" if form.rows.storage != "dense" else f"the loss {form.loss}"
        raise requirement("devices", f"None for {kind}", repr(devices), _ON_HOST)
    return cast(GeneralisedLinear, target).with_rows(DeviceRows(form, devices))
