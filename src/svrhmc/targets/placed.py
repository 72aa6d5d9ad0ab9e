"""Where the rows of a model are: on a device, cut over several, or on the host, from where blocks and batches are read.

Every place gives the same sums: those of blocks of rows, added in their order. On several devices the rows are cut into
sections, whose number does not depend on how many devices there are; each sums its own, and the sums of all sections
are gathered and added in order. So full gradients, and the chains made of them, do not depend on the devices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from svrhmc.core.errors import requirement
from svrhmc.core.memory import free_memory

_BLOCK_NUMBERS = {"cpu": 1 << 21}  # of the rows of a block; on other devices
_BLOCK_ELSEWHERE = 1 << 26
_LEAST_BLOCK, _MOST_BLOCK = 512, {"cpu": 1 << 13}  # rows: what is found of them at many states stays in a CPU's cache
_WIDE, _GROUP = ("gpu", "tpu"), 2048  # devices that add up many groups of rows at once, and the rows of one
_SECTIONS = 32
_AXIS = "rows"
_USED = 0.8  # of a device's free memory that rows may take: chains need some too

Rows = Any  # a pytree of arrays, the first axes of which are those of row numbers
Of = Callable[[Rows], Any]


@dataclass(frozen=True, eq=False)
class Place(ABC):
    """Rows of some data: how many, what one looks like (a pytree of shapes), and how many are looked at together."""

    n: int
    row: Any
    block: int

    @abstractmethod
    def taken(self, data: Any, rows: Any) -> Rows:
        """Some rows, by an array of their numbers."""

    @abstractmethod
    def summed(self, data: Any, of: Of) -> Any:
        """What is found of every block of rows, added up in their order."""

    @property
    def numbers(self) -> float:
        """Of a row."""
        return float(sum(np.prod(leaf.shape) for leaf in jax.tree.leaves(self.row)))

    fetches: ClassVar[bool] = False  # whether `fetch` should read batches before a program on the device needs them

    @property
    def mesh(self) -> Mesh | None:
        """The devices, where they were chosen."""
        return None

    def host(self, data: Any) -> list[Any]:
        """All rows, as arrays of the host."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(data)]


@dataclass(frozen=True, eq=False)
class OnDevice(Place):
    """Rows in the memory of one device: data is a pytree of arrays."""

    def taken(self, data: Any, rows: Any) -> Rows:
        """By index."""
        return jax.tree.map(lambda leaf: leaf[rows], data)

    def summed(self, data: Any, of: Of) -> Any:
        """Block by block."""
        return _blocks_of(data, self.n, self.block, of)


@dataclass(frozen=True, eq=False)
class OnDevices(Place):
    """Sections of equal size, cut over the devices of a mesh, and the few rows that are left, on all of them.

    data: a pair of pytrees, arrays (sections, size, …), with copies of the last one where devices have more room than
    there are sections, and (left, …).
    """

    devices: Mesh
    sections: int
    size: int

    @property
    def mesh(self) -> Mesh:
        """All of them."""
        return self.devices

    def sharding(self, cut: bool) -> NamedSharding:
        """Of arrays whose first axis is cut over the devices, or that all have."""
        return NamedSharding(self.mesh, PartitionSpec(_AXIS) if cut else PartitionSpec())

    def taken(self, data: Any, rows: Any) -> Rows:
        """Each device gives those that it has."""
        edge = self.sections * self.size

        def of_leaf(leaf: Any, left: Any) -> Any:
            found = self._everywhere(lambda mine: self._mine(mine, rows))(leaf)
            if not len(left):
                return found
            late = _wide(rows >= edge, left.ndim - 1)
            return jnp.where(late, left[jnp.clip(rows - edge, 0, len(left) - 1)], found)

        return jax.tree.map(of_leaf, *data)

    def _mine(self, mine: Any, rows: Any) -> Any:
        flat = mine.reshape(-1, *mine.shape[2:])
        away = rows - jax.lax.axis_index(_AXIS) * len(flat)
        here = _wide((away >= 0) & (away < len(flat)), flat.ndim - 1)
        found = jnp.where(here, flat[jnp.clip(away, 0, len(flat) - 1)], jnp.zeros((), flat.dtype))
        if found.dtype == bool:
            return jax.lax.psum(found.astype(jnp.int32), _AXIS) > 0
        return jax.lax.psum(found, _AXIS)

    def summed(self, data: Any, of: Of) -> Any:
        """Section by section, and what is left."""
        sections, left = data

        def one(section: Rows) -> Any:
            return _blocks_of(section, self.size, self.block, of)

        def mine(some: Any) -> Any:
            found = jax.lax.map(one, some)
            return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, _AXIS, tiled=True), found)

        every = self._everywhere(mine)(sections)
        total = jax.tree.map(lambda leaf: leaf[0], every)
        total = jax.lax.fori_loop(
            1, self.sections, lambda k, sofar: jax.tree.map(lambda s, leaf: s + leaf[k], sofar, every), total
        )
        return jax.tree.map(jnp.add, total, of(left)) if self.n > self.sections * self.size else total

    def _everywhere(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function of a device's own sections whose result all devices have."""
        split = PartitionSpec(_AXIS)
        return jax.shard_map(function, mesh=self.mesh, in_specs=split, out_specs=PartitionSpec(), check_vma=False)

    def host(self, data: Any) -> list[Any]:
        """Without the copies."""
        pairs = zip(*(jax.tree.leaves(part) for part in data), strict=True)
        return [
            np.concatenate([np.asarray(cut)[: self.sections].reshape(-1, *left.shape[1:]), np.asarray(left)])
            for cut, left in pairs
        ]


@dataclass(frozen=True, eq=False)
class OnHost(Place):
    """Rows that stay where they are, such as in memory maps: blocks and batches are copied to the device when they are
    needed. data is empty, or the rows of one batch that were fetched beforehand.
    """

    fetches = True
    leaves: Any

    def taken(self, data: Any, rows: Any) -> Rows:
        """Those fetched, or asked for now."""
        if jax.tree.leaves(data):
            return data
        return self._asked(self.fetch, rows.shape, rows)

    def fetch(self, rows: Any) -> Rows:
        """From the host, in the order of their numbers, which a disk likes best."""
        which, places = np.unique(np.asarray(rows).ravel(), return_inverse=True)

        def of_leaf(leaf: Any, one: Any) -> Any:
            return np.asarray(leaf[which], one.dtype)[places].reshape(*np.shape(rows), *one.shape)

        return jax.tree.map(of_leaf, self.leaves, self.row)

    def summed(self, data: Any, of: Of) -> Any:
        """Block by block, each read when it is its turn."""

        def block(number: Any, size: int) -> Any:
            def read(which: Any) -> Rows:
                first = int(which) * self.block
                some = slice(first, first + size)
                return jax.tree.map(lambda leaf, one: np.asarray(leaf[some], one.dtype), self.leaves, self.row)

            return grouped(of, self._asked(read, (size,), number), size)

        return _by_blocks(self.n, self.block, block)

    def _asked(self, read: Callable[[Any], Rows], shape: tuple[int, ...], numbers: Any) -> Rows:
        """What `read` gives of some numbers, as a program on the device asks for it.

        It answers in another thread, in which JAX may round what has 64 bits to 32: so all goes there and back as
        words of 32 bits.
        """
        flat, tree = jax.tree.flatten(self.row)
        twice = [one.dtype.itemsize == 8 for one in flat]
        shapes = [
            jax.ShapeDtypeStruct((*shape, *one.shape, 2), np.uint32) if two
            else jax.ShapeDtypeStruct((*shape, *one.shape), one.dtype)
            for one, two in zip(flat, twice, strict=True)
        ]  # fmt: skip

        def words(asked: Any) -> list[Any]:
            found = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(read(np.asarray(asked)))]
            return [
                leaf.view(np.uint32).reshape(like.shape) if two else leaf
                for leaf, like, two in zip(found, shapes, twice, strict=True)
            ]

        given = jax.pure_callback(words, shapes, jnp.asarray(numbers).astype(jnp.uint32))
        found = [
            jax.lax.bitcast_convert_type(leaf, one.dtype) if two else leaf
            for leaf, one, two in zip(given, flat, twice, strict=True)
        ]
        return jax.tree.unflatten(tree, found)

    def host(self, data: Any) -> list[Any]:
        """As they are."""
        return jax.tree.leaves(self.leaves)


def place(data: Any, n: int, dtype: Any, devices: Any) -> tuple[Place, Any]:
    """Where rows will be, and the arrays there. Floating-point numbers finer than `dtype` are rounded to it."""
    leaves = jax.tree.map(lambda leaf: leaf if hasattr(leaf, "dtype") else np.asarray(leaf), data)
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], _kind(leaf.dtype, dtype)), leaves)
    every = jax.tree.leaves(leaves)
    entries = sum(leaf.size for leaf in every) / n
    chosen = _devices(devices)
    mapped = any(isinstance(leaf, np.memmap) for leaf in every)
    platform = jax.default_backend() if chosen is None else chosen[0].platform
    most = min(n, _MOST_BLOCK.get(platform, n))
    block = int(max(_LEAST_BLOCK, min(most, _BLOCK_NUMBERS.get(platform, _BLOCK_ELSEWHERE) // max(entries, 1.0))))
    block = max(1, block // _GROUP) * _GROUP if platform in _WIDE and block > _GROUP else block
    needed = float(sum(n * np.prod(one.shape) * one.dtype.itemsize for one in jax.tree.leaves(row)))
    if chosen is None:
        room = _USED * room_on(jax.local_devices()[0])
        if mapped or (needed > room and all(isinstance(leaf, np.ndarray) for leaf in every)):
            return OnHost(n, row, block, leaves), ()
        return OnDevice(n, row, block), jax.tree.map(lambda leaf, one: jnp.asarray(leaf, one.dtype), leaves, row)
    if mapped:
        why = "a memory map is read from where it is, by one device; give arrays to cut them over several"
        raise requirement("devices", "None for data in a memory map", repr(devices), why)
    require_room("data", needed / len(chosen), "give more devices, or none, to read from the host", chosen)
    sections = min(_SECTIONS, n)
    found = OnDevices(n, row, block, Mesh(np.array(chosen), (_AXIS,)), sections, n // sections)
    return found, _cut_over(found, leaves)


def _cut_over(where: OnDevices, leaves: Any) -> Any:
    """Sections and the rest, on the devices; each reads only what is its own."""
    count = where.mesh.size
    length, edge = -(-where.sections // count) * count, where.sections * where.size

    def sections(leaf: Any, one: Any) -> Any:
        array = np.asarray(leaf)[:edge].reshape(where.sections, where.size, *one.shape)

        def mine(index: Any) -> Any:
            which = np.minimum(np.arange(length)[index[0]], where.sections - 1)
            return np.asarray(array[which], one.dtype)

        shape = (length, where.size, *one.shape)
        return jax.make_array_from_callback(shape, where.sharding(True), mine)

    def rest(leaf: Any, one: Any) -> Any:
        return jax.device_put(np.asarray(leaf[edge:], one.dtype), where.sharding(False))

    return jax.tree.map(sections, leaves, where.row), jax.tree.map(rest, leaves, where.row)


def _devices(devices: Any) -> list[Any] | None:
    """Those that were asked for, or an error that says which there are."""
    there = jax.local_devices()
    allowed = "None, 'all', the name of a kind ('cpu', 'gpu') or a list of JAX's devices"
    if devices is None:
        return None
    if isinstance(devices, str):
        if devices == "all":
            return list(there)
        try:
            return list(jax.local_devices(backend=devices))
        except RuntimeError:
            told = f"there is no such device here; JAX has: {', '.join(map(str, there))}"
            raise requirement("devices", allowed, repr(devices), told) from None
    if isinstance(devices, Sequence) and len(devices) and all(isinstance(one, jax.Device) for one in devices):
        return list(devices)
    raise requirement("devices", allowed, repr(devices))


def room_on(device: Any) -> float:
    """Bytes that are free on a device."""
    if device.platform == "cpu":
        return free_memory()
    stats = device.memory_stats() or {}
    return float(stats["bytes_limit"] - stats["bytes_in_use"]) if "bytes_limit" in stats else float("inf")


def require_room(name: str, needed: float, remedy: str, devices: Sequence[Any] | None = None) -> None:
    """Refuse what a device (None: the default one) has no room for, with the size that it needs."""
    there = min(room_on(device) for device in devices or jax.local_devices()[:1])
    if needed > there:
        allowed = f"such that it fits into the memory of a device, of which {max(there, 0.0) / 1e9:.3g} GB are free"
        raise requirement(name, allowed, f"{needed / 1e9:.3g} GB", remedy)


def _kind(given: Any, dtype: Any) -> Any:
    return np.dtype(dtype) if given == np.float64 else np.dtype(given)


def _wide(flags: Any, axes: int) -> Any:
    return flags.reshape(*flags.shape, *(1,) * axes)


def _cut(rows: Rows, first: Any, size: int) -> Rows:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), rows)


def grouped(of: Of, rows: Rows, size: int) -> Any:
    """What is found of some rows; on devices that do much at once, of groups of them side by side, and then added."""
    whole = size // _GROUP * _GROUP
    if jax.default_backend() not in _WIDE or whole <= _GROUP:
        return of(rows)
    groups = jax.tree.map(lambda leaf: leaf[:whole].reshape(-1, _GROUP, *leaf.shape[1:]), rows)
    total = jax.tree.map(lambda each: each.sum(axis=0), jax.vmap(of)(groups))
    return jax.tree.map(jnp.add, total, of(_cut(rows, whole, size - whole))) if whole < size else total


def _blocks_of(rows: Rows, n: int, block: int, of: Of) -> Any:
    """What is found of rows that are at hand, block by block."""
    return _by_blocks(n, block, lambda k, size: grouped(of, _cut(rows, k * block, size), size))


def _by_blocks(n: int, block: int, found: Callable[[Any, int], Any]) -> Any:
    """What is found of every block, by its number and its size, added up in their order."""
    full, left = divmod(n, block)
    if full == 0:
        return found(0, n)
    if full == 1:
        total = found(0, block)
    else:  # from 0, so that what is found of a block is compiled once
        shapes = jax.eval_shape(lambda: found(0, block))
        nothing = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)
        total = jax.lax.fori_loop(0, full, lambda k, sofar: jax.tree.map(jnp.add, sofar, found(k, block)), nothing)
    return jax.tree.map(jnp.add, total, found(full, left)) if left else total
