"""Where chains and rows are: the operations and arrays of a form, on one device or on several.

With D devices, C chains and n rows, of which a step uses B, work can be shared out in two ways:

- Each device has *rows* of its own, n/D of them, and all chains. A pass over all rows reads n/D of them on each device;
  only sums, one of each section and chain, go from device to device. But the rows of a batch lie anywhere: they are
  fetched from the devices that have them, CB rows a step, and then there is nothing left to share.
- Each device has *chains* of its own, C/D of them, and copies of all rows. A batch step reads CB/D rows on each device,
  and nothing goes anywhere. A pass over all rows reads n of them on each device, however few its chains are.

So chains are cut where steps use batches (also where they pass over all rows now and then, as SVRG does: the operations
of such a pass are Cn/D either way), there are as many chains as devices or more, and the copies fit; else rows. In what
has no rows to pass over, such as a quadratic, chains are cut always.

Sums over all rows are those of sections whose number does not depend on the devices, added in their order
(`models.placement.OnDevices`), and rows that are fetched are what they were: so draws with rows cut are the same on any
number of devices, to the last bit where the compiler makes the same code of a section. Chains in other company are the
same to rounding, as replicate on JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from svrhmc.core.arrays import Indices
from svrhmc.core.devices import device_mesh, free_bytes_each, require_device_memory, select_devices, sharding
from svrhmc.core.jax import Tree
from svrhmc.engines.jax.maps import Arrays
from svrhmc.engines.jax.operations import FunctionOperations, Operations, QuadraticOperations, Source
from svrhmc.engines.jax.rows import RowOperations
from svrhmc.rows.forms import Form

_USED = 0.8  # of a device's free memory that copies of the rows may take: chains need some too
_REMEDY = "give float32 rows, more devices, or engine='numba'"


class Spread(NamedTuple):
    """mesh: the devices that work together; None for JAX's default one alone.
    chains: whether each has chains of its own, and copies of all rows; else each has rows of its own, and all chains.
    """

    mesh: Mesh | None = None
    chains: bool = False

    def numbers(self, chains: int) -> Indices:
        """Which chain is where: as many on each device, the last one again where they do not come out even."""
        devices = self.mesh.size if self.mesh is not None and self.chains else 1
        return np.minimum(np.arange(-(-chains // devices) * devices), chains - 1)

    def replicate(self, arrays: Tree) -> Tree:
        """Arrays on all devices."""
        if self.mesh is None:
            return jax.tree.map(jnp.asarray, arrays)
        return jax.device_put(arrays, sharding(self.mesh, False))


class PlacedForm(NamedTuple):
    """Operations of a form, with all arrays on the devices."""

    spread: Spread
    operations: Operations
    arrays: Arrays


_FORMS: dict[str, Callable[[Tree], Source]] = {
    "rows": RowOperations.of,
    "quadratic": QuadraticOperations.of,
    "functions": FunctionOperations.of,
}
_PLACED: WeakKeyDictionary[Form, dict[Hashable, PlacedForm]] = WeakKeyDictionary()


def place_form(form: Form, devices: object = None, chains: int = 0) -> PlacedForm:
    """Operations and arrays of a form, made once for it.

    devices: as `Sampler.run` takes them; those of a model are its own.
    chains: how many make steps with batches, 0 where every step passes over all rows.
    """
    selected = select_devices(devices)
    mesh = getattr(form, "mesh", None if selected is None else device_mesh(selected))
    key = mesh, mesh is not None and chains >= mesh.size
    by_layout = _PLACED.setdefault(form, {})
    if key not in by_layout:
        by_layout[key] = _place_on_devices(_FORMS[form.kind](form), *key)
    return by_layout[key]


def _place_on_devices(source: Source, mesh: Mesh | None, batches: bool) -> PlacedForm:
    operations, shared, data = source
    new = [leaf for leaf in jax.tree.leaves(data) if not isinstance(leaf, jax.Array)]
    if mesh is None:
        require_device_memory("the arrays of the target", _bytes(shared) + _bytes(new), _REMEDY)
        return PlacedForm(Spread(), operations, jax.tree.map(jnp.asarray, {**shared, "data": data}))
    devices, copies = list(mesh.devices.flat), _bytes(shared) + _bytes(data)
    worth = batches and (mesh.size > 1 or bool(new))  # else the one device has all rows of a model already
    spread = Spread(mesh, operations.place is None or (worth and copies <= _USED * free_bytes_each(devices)))
    needed = copies if spread.chains else _bytes(shared) + _bytes(new) / mesh.size
    require_device_memory("the arrays of the target", needed, _REMEDY, devices)
    operations, data = (operations.copy_to_devices if spread.chains else operations.cut_over_devices)(mesh, data)
    return PlacedForm(spread, operations, {**spread.replicate(shared), "data": data})


def _bytes(arrays: Tree) -> float:
    return float(sum(leaf.nbytes for leaf in jax.tree.leaves(arrays)))
