"""What an estimate asks of a target, in JAX: the gradients of its components, of batches of them and of all.

Each form has its `Operations` and the arrays that they work on: `rows.py` has those of rows with linear predictors, and
here are those of quadratics and of a user's functions. Operations are plain data that can be hashed, so that programs
are compiled once for all targets alike; whatever is large is in the arrays: what rows have under "data", wherever that
is (`models/placement.py`), and what all share under names of its own; what a target does not have is not there.

States come as (chains, dim), batches of rows as (chains, batch), parts of components as (chains, batch, numbers of a
part); all sums are in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy.typing as npt
from jax.sharding import Mesh

from svrhmc.core.devices import sharding
from svrhmc.core.jax import Tree
from svrhmc.engines.jax.maps import Arrays, Map
from svrhmc.models.functions import Functions, copy_to_devices
from svrhmc.models.placement import RowPlace
from svrhmc.rows.forms import FunctionsForm, QuadraticForm

EXACT = jax.lax.Precision.HIGHEST


class Batch(NamedTuple):
    """Some rows of every chain: their numbers, (chains, batch), and their data."""

    rows: jax.Array
    data: Tree


class Source(NamedTuple):
    """Operations of a form, and the arrays that they work on: those that all rows share, and those that rows have, on
    the host or (a model's) where they are already.
    """

    operations: Operations
    shared: Arrays
    data: Tree


class Operations(ABC):
    """A component's gradient is what all share, `prior`, and a part of its own, as in `density/base.py`."""

    place: Any = None  # where rows of data are (`models/placement.py`); None where they are never cut over devices

    def copy_to_devices(self, mesh: Mesh, data: Tree) -> tuple[Operations, Tree]:
        """The same with the data of all rows on each device."""
        return self, jax.device_put(data, sharding(mesh, False))

    def cut_over_devices(self, mesh: Mesh, data: Tree) -> tuple[Operations, Tree]:
        """The same with rows of its own on each device."""
        raise NotImplementedError

    @property
    def dtype(self) -> npt.DTypeLike:
        """In which rows are evaluated: float32 or float64. Normals are of the same; states are always float64."""
        return jnp.float64

    @property
    def plain(self) -> bool:
        """Whether rows are such that the kernels for GPUs (`gpu.py`) can add them up."""
        return False

    def state_table(self, table: jax.Array) -> jax.Array:
        """Parts of all components in the shape in which a `State` has them."""
        return table

    def batch(self, arrays: Arrays, rows: jax.Array) -> Batch:
        """Rows of the chains, by their numbers, from where they are."""
        return Batch(rows, self.place.take(arrays["data"], rows))

    @abstractmethod
    def parts(self, arrays: Arrays, x: jax.Array, batch: Batch) -> jax.Array:
        """Parts of some components."""

    @abstractmethod
    def all_parts(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        """Parts of all components."""

    @abstractmethod
    def assemble(self, arrays: Arrays, parts: jax.Array, batch: Batch) -> jax.Array:
        """The mean of the gradients that parts of some components stand for."""

    @abstractmethod
    def full_gradient(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        """∇f without the shared part: the same of all components."""

    @abstractmethod
    def prior(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        """The gradient that every component shares."""

    def parts_and_gradient(self, arrays: Arrays, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Parts of all components, and ∇f without the shared part, which they add up to."""
        return self.all_parts(arrays, x), self.full_gradient(arrays, x)

    def batch_gradient(self, arrays: Arrays, x: jax.Array, batch: Batch, weights: jax.Array | None = None) -> jax.Array:
        """The mean over a batch of gradients without the shared one, each with a weight where there are weights."""
        return self.assemble(arrays, apply_weights(self.parts(arrays, x, batch), weights), batch)

    def gradient_difference(
        self, arrays: Arrays, x: jax.Array, point: jax.Array, batch: Batch, weights: jax.Array | None = None
    ) -> jax.Array:
        """The mean over a batch of what gradients at x have more than those at another point."""
        difference = self.parts(arrays, x, batch) - self.parts(arrays, point, batch)
        return self.assemble(arrays, apply_weights(difference, weights), batch)

    def hessian_parts(self, arrays: Arrays, direction: jax.Array, batch: Batch) -> jax.Array:
        """Parts of Hᵢ·direction at the mode, for rows with a linear predictor."""
        raise NotImplementedError

    def energies(self, arrays: Arrays, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """f, up to a constant, and ∇f by one pass."""
        raise NotImplementedError


def apply_weights(parts: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Parts times the weights of their rows, where there are weights."""
    return parts if weights is None else parts * weights[:, :, None]


@dataclass(frozen=True)
class QuadraticOperations(Operations):
    """Sᵢx − Sᵢaᵢ."""

    shared: bool

    @staticmethod
    def of(form: QuadraticForm) -> Source:
        """Of a form; a precision that all components share is not among their data."""
        shared = {"mean precision": form.mean_precision, "mean force": form.mean_force}
        data = {"forces": form.forces}
        (shared if form.shared else data)["precision"] = form.precision
        return Source(QuadraticOperations(form.shared), shared, data)

    def batch(self, arrays: Arrays, rows: jax.Array) -> Batch:
        return Batch(rows, {name: array[rows] for name, array in arrays["data"].items()})

    def parts(self, arrays: Arrays, x: jax.Array, batch: Batch) -> jax.Array:
        return self._gradients(arrays, x, batch.data, "cbde,ce->cbd")

    def all_parts(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        """Gradients of all components."""
        return self._gradients(arrays, x, arrays["data"], "nde,ce->cnd")

    def _gradients(self, arrays: Arrays, x: jax.Array, data: Arrays, axes: str) -> jax.Array:
        if self.shared:
            return (x @ arrays["precision"])[:, None, :] - data["forces"]
        return jnp.einsum(axes, data["precision"], x, precision=EXACT) - data["forces"]

    def assemble(self, arrays: Arrays, parts: jax.Array, batch: Batch) -> jax.Array:
        return parts.mean(axis=1)

    def prior(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        """Zero: components share nothing."""
        return jnp.zeros_like(x)

    def full_gradient(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        """S̄x less the mean force."""
        return x @ arrays["mean precision"] - arrays["mean force"]


@dataclass(frozen=True)
class FunctionOperations(Operations):
    """A user's log likelihood and log prior (`models/functions.py`), in the variables of a map."""

    functions: Functions
    map: Map

    @staticmethod
    def of(form: FunctionsForm) -> Source:
        """The operations on a form of functions, with the arrays that they need."""
        variables, arrays = Map.of(form.whitening)
        return Source(FunctionOperations(form.functions, variables), arrays, form.data)

    @property
    def place(self) -> RowPlace:
        """Where the model's data are."""
        return self.functions.place

    def copy_to_devices(self, mesh: Mesh, data: Tree) -> tuple[Operations, Tree]:
        """From the devices that have them."""
        functions, copies = copy_to_devices(self.functions, data)
        return replace(self, functions=functions), copies

    def cut_over_devices(self, mesh: Mesh, data: Tree) -> tuple[Operations, Tree]:
        """As they are: a model's rows were cut when it was made."""
        return self, data

    @property
    def dtype(self) -> npt.DTypeLike:
        """That of the user's params."""
        return self.functions.dtype

    def parts(self, arrays: Arrays, x: jax.Array, batch: Batch) -> jax.Array:
        """Gradients of −n log likelihood, in the user's variables."""
        return -self.functions.n * self.functions.gradients_by_row(self.map.out(arrays, x), batch.data)

    def all_parts(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        return -self.functions.n * self.functions.row_gradients(arrays["data"], self.map.out(arrays, x))

    def assemble(self, arrays: Arrays, parts: jax.Array, batch: Batch) -> jax.Array:
        return self.map.pull(arrays, parts.mean(axis=1))

    def prior(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        """That of −log prior."""
        return -self.map.pull(arrays, self.functions.prior_gradient(self.map.out(arrays, x)))

    def batch_gradient(self, arrays: Arrays, x: jax.Array, batch: Batch, weights: jax.Array | None = None) -> jax.Array:
        """One gradient of the sum over the batch."""
        total = self.functions.batch_gradient(self.map.out(arrays, x), batch.data)
        return self.map.pull(arrays, total * (-self.functions.n / batch.rows.shape[1]))

    def gradient_difference(
        self, arrays: Arrays, x: jax.Array, point: jax.Array, batch: Batch, weights: jax.Array | None = None
    ) -> jax.Array:
        """The difference of two means."""
        return self.batch_gradient(arrays, x, batch) - self.batch_gradient(arrays, point, batch)

    def energies(self, arrays: Arrays, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Block by block of rows."""
        value, gradient = self.functions.energies(arrays["data"], self.map.out(arrays, x))
        return value, self.map.pull(arrays, gradient)

    def full_gradient(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        """Block by block of rows."""
        return -self.map.pull(arrays, self.functions.full_gradient(arrays["data"], self.map.out(arrays, x)))
