"""JAX's devices: which were requested, how much memory they have, and how arrays are sharded over several."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from svrhmc.core.errors import requirement
from svrhmc.core.machine import free_memory

AXIS = "devices"


def select_devices(devices: object) -> list[jax.Device] | None:
    """The devices that were requested, or an error that says which there are."""
    available = jax.local_devices()
    allowed = "None, 'all', the name of a kind ('cpu', 'gpu') or a list of JAX's devices"
    if devices is None:
        return None
    if isinstance(devices, str):
        if devices == "all":
            return list(available)
        try:
            return list(jax.local_devices(backend=devices))
        except RuntimeError:
            advice = f"there is no such device here; JAX has: {', '.join(map(str, available))}"
            raise requirement("devices", allowed, repr(devices), advice) from None
    if isinstance(devices, Sequence) and len(devices) and all(isinstance(device, jax.Device) for device in devices):
        return list(devices)
    raise requirement("devices", allowed, repr(devices))


def device_mesh(devices: Sequence[jax.Device]) -> Mesh:
    """A mesh of the devices with one axis."""
    return Mesh(np.array(devices), (AXIS,))


def sharding(mesh: Mesh, cut: bool) -> NamedSharding:
    """The sharding of arrays whose first axis is cut over the devices, or of which each device has a copy."""
    axes = (AXIS,) if cut else ()
    return NamedSharding(mesh, PartitionSpec(*axes))


def free_bytes(device: jax.Device) -> float:
    """How many bytes are free on a device."""
    if device.platform == "cpu":
        return free_memory()
    stats = device.memory_stats() or {}
    return float(stats["bytes_limit"] - stats["bytes_in_use"]) if "bytes_limit" in stats else float("inf")


def free_bytes_each(devices: Sequence[jax.Device] | None) -> float:
    """How many bytes each of some devices (None: the default one) may use. Those of a CPU share one memory."""
    return min(
        free_bytes(device) / (len(devices) if devices and device.platform == "cpu" else 1)
        for device in devices or jax.local_devices()[:1]
    )


def require_device_memory(name: str, needed: float, remedy: str, devices: Sequence[jax.Device] | None = None) -> None:
    """Refuse arrays that do not fit into the memory of each device (None: the default one)."""
    free = free_bytes_each(devices)
    if needed > free:
        allowed = f"such that it fits into the memory of a device, of which {max(free, 0.0) / 1e9:.3g} GB are free"
        raise requirement(name, allowed, f"{needed / 1e9:.3g} GB", remedy)
