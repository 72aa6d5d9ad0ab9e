"""Where the rows of a model are: on a device, cut over several, or on the host, from where blocks and batches are read.

Every place gives the same sums: those of blocks of rows, added in their order. On several devices the rows are cut into
sections, whose number does not depend on how many devices there are; each sums its own, and the sums of all sections
are gathered and added in order. So full gradients, and the chains made of them, do not depend on the devices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, PartitionSpec

from svrhmc.core.arrays import Integers, Values
from svrhmc.core.devices import AXIS, device_mesh, free_bytes_each, require_device_memory, select_devices, sharding
from svrhmc.core.errors import requirement
from svrhmc.core.jax import Tree

_BLOCK_NUMBERS = {"cpu": 1 << 21}  # of the rows of a block; on other devices
_BLOCK_ELSEWHERE = 1 << 26
_LEAST_BLOCK, _MOST_BLOCK = 512, {"cpu": 1 << 13}  # rows: what is found of them at many states stays in a CPU's cache
_WIDE, _GROUP = ("gpu", "tpu"), 2048  # devices that add up many groups of rows at once, and the rows of one
_SECTIONS = 32
_USED = 0.8  # of a device's free memory that rows may take: chains need some too

Rows = Tree  # of arrays, the first axes of which are those of row numbers
RowFunction = Callable[..., Tree]  # of some rows, and of what else it is given


@dataclass(frozen=True, eq=False)
class RowPlace(ABC):
    """Rows of some data: how many, what one looks like (a pytree of shapes), and how many are looked at together."""

    n: int
    row: Tree = field(compare=False)  # arrays of other shapes make other programs by themselves
    block: int

    @abstractmethod
    def take(self, data: Tree, rows: Tree) -> Rows:
        """Some rows, by an array of their numbers."""

    @abstractmethod
    def sum_over_rows(self, data: Tree, function: RowFunction, *given: Tree) -> Tree:
        """What is found of every block of rows, added up in their order. What a program found before has to be given,
        and not be known to the function by itself: other devices would not have it.
        """

    def map_rows(self, data: Tree, function: RowFunction, *given: Tree) -> Tree:
        """What is found of every row, the numbers of which are the second axis: (chains, n, …)."""
        return function(self.take(data, jnp.arange(self.n)), *given)

    @property
    def numbers(self) -> float:
        """How many numbers a row has."""
        return float(sum(np.prod(leaf.shape) for leaf in jax.tree.leaves(self.row)))

    fetches: ClassVar[bool] = False  # whether `fetch` should read batches before a program on the device needs them

    @property
    def mesh(self) -> Mesh | None:
        """The devices, where they were chosen."""
        return None

    def copy_to_devices(self, data: Tree) -> tuple[RowPlace, Tree]:
        """All rows on each of these."""
        raise NotImplementedError

    def host_arrays(self, data: Tree) -> list[Values]:
        """All rows, as arrays of the host."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(data)]


@dataclass(frozen=True)
class OnDevice(RowPlace):
    """Rows in the memory of one device, or of each by itself: data is a pytree of arrays."""

    def take(self, data: Tree, rows: Tree) -> Rows:
        return jax.tree.map(lambda leaf: leaf[rows], data)

    def sum_over_rows(self, data: Tree, function: RowFunction, *given: Tree) -> Tree:
        return _sum_resident_blocks(data, self.n, self.block, function, given)

    def map_rows(self, data: Tree, function: RowFunction, *given: Tree) -> Tree:
        return function(data, *given)


@dataclass(frozen=True)
class OnDevices(RowPlace):
    """Sections of equal size, cut over the devices of a mesh, and the few rows that are left, on all of them.

    data: a pair of pytrees, arrays (sections, size, …), with copies of the last one where devices have more room than
    there are sections, and (left, …).
    """

    devices: Mesh
    sections: int
    size: int

    @property
    def mesh(self) -> Mesh:
        return self.devices

    def take(self, data: Tree, rows: Tree) -> Rows:
        """Each device gives those that it has."""
        edge = self.sections * self.size

        def of_leaf(leaf: Tree, left: Tree) -> Tree:
            early = self._map_sections(self._own_rows, leaf, rows)
            if not len(left):
                return early
            late = _add_axes(rows >= edge, left.ndim - 1)
            return jnp.where(late, left[jnp.clip(rows - edge, 0, len(left) - 1)], early)

        return jax.tree.map(of_leaf, *data)

    def _own_rows(self, mine: Tree, rows: Tree) -> Tree:
        flat = mine.reshape(-1, *mine.shape[2:])
        away = rows - jax.lax.axis_index(AXIS) * len(flat)
        here = _add_axes((away >= 0) & (away < len(flat)), flat.ndim - 1)
        own = jnp.where(here, flat[jnp.clip(away, 0, len(flat) - 1)], jnp.zeros((), flat.dtype))
        if own.dtype == bool:
            return jax.lax.psum(own.astype(jnp.int32), AXIS) > 0
        return jax.lax.psum(own, AXIS)

    def sum_over_rows(self, data: Tree, function: RowFunction, *given: Tree) -> Tree:
        """Section by section, and what is left."""
        every = self._section_results(
            data, lambda section, *more: _sum_resident_blocks(section, self.size, self.block, function, more), given
        )
        total = jax.tree.map(lambda leaf: leaf[0], every)
        total = jax.lax.fori_loop(
            1, self.sections, lambda k, sofar: jax.tree.map(lambda s, leaf: s + leaf[k], sofar, every), total
        )
        return jax.tree.map(jnp.add, total, function(data[1], *given)) if self._rest_count else total

    def map_rows(self, data: Tree, function: RowFunction, *given: Tree) -> Tree:
        """Section by section, and what is left."""

        def joined(every: Tree) -> Tree:
            chains, _, *rest = every.shape[1:]
            return jnp.moveaxis(every[: self.sections], 0, 1).reshape(chains, -1, *rest)

        sections = jax.tree.map(joined, self._section_results(data, function, given))
        if not self._rest_count:
            return sections
        return jax.tree.map(lambda one, last: jnp.concatenate([one, last], axis=1), sections, function(data[1], *given))

    @property
    def _rest_count(self) -> int:
        return self.n - self.sections * self.size

    def _section_results(self, data: Tree, function: RowFunction, given: tuple[jax.Array, ...]) -> Tree:
        """What is found of each section, on all devices."""

        def mine(own_sections: Tree, *more: Tree) -> Tree:
            own = jax.lax.map(lambda section: function(section, *more), own_sections)
            return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, AXIS, tiled=True), own)

        return self._map_sections(mine, data[0], *given)

    def copy_to_devices(self, data: Tree) -> tuple[OnDevice, Tree]:
        """All rows on each of the devices."""

        def whole(cut: Tree, left: Tree) -> Tree:
            return jnp.concatenate([cut[: self.sections].reshape(-1, *left.shape[1:]), left])

        copy = jax.jit(lambda parts: jax.tree.map(whole, *parts), out_shardings=sharding(self.mesh, False))
        return OnDevice(self.n, self.row, self.block), copy(data)

    def _map_sections(self, function: RowFunction, cut: Tree, *given: Tree) -> Tree:
        """What a function of a device's own sections gives, which is the same for all."""
        specs = PartitionSpec(AXIS), *(PartitionSpec() for _ in given)
        mapped = jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False)
        return mapped(cut, *given)

    def host_arrays(self, data: Tree) -> list[Values]:
        pairs = zip(*(jax.tree.leaves(part) for part in data), strict=True)
        return [
            np.concatenate([np.asarray(cut)[: self.sections].reshape(-1, *left.shape[1:]), np.asarray(left)])
            for cut, left in pairs
        ]


@dataclass(frozen=True, eq=False)
class OnHost(RowPlace):
    """Rows that stay where they are, such as in memory maps: blocks and batches are copied to the device when they are
    needed. data is empty, or the rows of one batch that were fetched beforehand.
    """

    fetches = True
    leaves: Tree

    def take(self, data: Tree, rows: Tree) -> Rows:
        """Those fetched, or asked for now."""
        if jax.tree.leaves(data):
            return data
        return self._request_rows(self.fetch, rows.shape, rows)

    def fetch(self, rows: Tree) -> Rows:
        """From the host, in the order of their numbers, which a disk likes best."""
        sorted_rows, places = np.unique(np.asarray(rows).ravel(), return_inverse=True)

        def of_leaf(leaf: Tree, one: Tree) -> Values:
            return np.asarray(leaf[sorted_rows], one.dtype)[places].reshape(*np.shape(rows), *one.shape)

        return jax.tree.map(of_leaf, self.leaves, self.row)

    def sum_over_rows(self, data: Tree, function: RowFunction, *given: Tree) -> Tree:
        """Block by block, each read when it is its turn."""

        def block(number: jax.Array | int, size: int) -> Tree:
            def read(which: Integers) -> Rows:
                first = int(which) * self.block
                rows = slice(first, first + size)
                return jax.tree.map(lambda leaf, one: np.asarray(leaf[rows], one.dtype), self.leaves, self.row)

            return function(self._request_rows(read, (size,), number), *given)

        return _sum_by_blocks(self.n, self.block, block)

    def _request_rows(self, read: Callable[[Integers], Rows], shape: tuple[int, ...], numbers: jax.Array | int) -> Rows:
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

        def words(asked: Tree) -> list[Values]:
            leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(read(np.asarray(asked)))]
            return [
                leaf.view(np.uint32).reshape(like.shape) if two else leaf
                for leaf, like, two in zip(leaves, shapes, twice, strict=True)
            ]

        given = jax.pure_callback(words, shapes, jnp.asarray(numbers).astype(jnp.uint32))
        rows = [
            jax.lax.bitcast_convert_type(leaf, one.dtype) if two else leaf
            for leaf, one, two in zip(given, flat, twice, strict=True)
        ]
        return jax.tree.unflatten(tree, rows)

    def host_arrays(self, data: Tree) -> list[Values]:
        return jax.tree.leaves(self.leaves)


def place_rows(data: Tree, n: int, dtype: npt.DTypeLike, devices: object) -> tuple[RowPlace, Tree]:
    """Where rows will be, and the arrays there. Floating-point numbers finer than `dtype` are rounded to it."""
    leaves = jax.tree.map(lambda leaf: leaf if hasattr(leaf, "dtype") else np.asarray(leaf), data)
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], _device_dtype(leaf.dtype, dtype)), leaves)
    every = jax.tree.leaves(leaves)
    entries = sum(leaf.size for leaf in every) / n
    selected = select_devices(devices)
    mapped = any(isinstance(leaf, np.memmap) for leaf in every)
    platform = jax.default_backend() if selected is None else selected[0].platform
    largest = min(n, _MOST_BLOCK.get(platform, n))
    block = int(max(_LEAST_BLOCK, min(largest, _BLOCK_NUMBERS.get(platform, _BLOCK_ELSEWHERE) // max(entries, 1.0))))
    block = max(1, block // _GROUP) * _GROUP if platform in _WIDE and block > _GROUP else block
    needed = float(sum(n * np.prod(shape.shape) * shape.dtype.itemsize for shape in jax.tree.leaves(row)))
    if selected is None:
        available = _USED * free_bytes_each(None)
        if mapped or (needed > available and all(isinstance(leaf, np.ndarray) for leaf in every)):
            return OnHost(n, row, block, leaves), ()
        return OnDevice(n, row, block), jax.tree.map(lambda leaf, shape: jnp.asarray(leaf, shape.dtype), leaves, row)
    if mapped:
        why = "a memory map is read from where it is, by one device; give arrays to cut them over several"
        raise requirement("devices", "None for data in a memory map", repr(devices), why)
    require_device_memory("data", needed / len(selected), "give more devices, or none, to read from the host", selected)
    return cut_over_devices(device_mesh(selected), n, row, block, leaves)


def cut_over_devices(mesh: Mesh, n: int, row: Tree, block: int, leaves: Tree) -> tuple[OnDevices, Tree]:
    """Sections and the rest, on the devices; each reads only what is its own."""
    sections = min(_SECTIONS, n)
    devices = OnDevices(n, row, block, mesh, sections, n // sections)
    length, edge = -(-sections // mesh.size) * mesh.size, sections * devices.size

    def cut(leaf: Tree, one: Tree) -> Tree:
        array = np.asarray(leaf)[:edge].reshape(sections, devices.size, *one.shape)

        def mine(index: Tree) -> Tree:
            own = np.arange(length)[index[0]]
            missing = own[-1] + 1 - sections  # at the end: those copy the last section
            which = slice(own[0], own[-1] + 1) if missing <= 0 else np.minimum(own, sections - 1)
            return np.asarray(array[which], one.dtype)

        return jax.make_array_from_callback((length, devices.size, *one.shape), sharding(mesh, True), mine)

    def rest(leaf: Tree, one: Tree) -> Tree:
        return jax.device_put(np.asarray(leaf[edge:], one.dtype), sharding(mesh, False))

    return devices, (jax.tree.map(cut, leaves, row), jax.tree.map(rest, leaves, row))


def _device_dtype(own: np.dtype[np.generic], dtype: npt.DTypeLike) -> np.dtype[np.generic]:
    """The type in which numbers lie on the device: that of the model for float64, else their own."""
    return np.dtype(dtype) if own == np.float64 else np.dtype(own)


def _add_axes(flags: jax.Array, axes: int) -> Tree:
    return flags.reshape(*flags.shape, *(1,) * axes)


def _slice_rows(rows: Rows, first: jax.Array | int, size: int) -> Rows:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), rows)


def sum_by_groups(function: RowFunction) -> RowFunction:
    """The same of some rows; on devices that do much at once, of groups of them side by side, and then added."""

    def in_groups(rows: Rows, *given: Tree) -> Tree:
        size = len(jax.tree.leaves(rows)[0])
        whole = size // _GROUP * _GROUP
        if jax.default_backend() not in _WIDE or whole <= _GROUP:
            return function(rows, *given)
        groups = jax.tree.map(lambda leaf: leaf[:whole].reshape(-1, _GROUP, *leaf.shape[1:]), rows)
        total = jax.tree.map(lambda sums: sums.sum(axis=0), jax.vmap(lambda group: function(group, *given))(groups))
        return (
            jax.tree.map(jnp.add, total, function(_slice_rows(rows, whole, size - whole), *given))
            if whole < size
            else total
        )

    return in_groups


def _sum_resident_blocks(rows: Rows, n: int, block: int, function: RowFunction, given: tuple[jax.Array, ...]) -> Tree:
    """What is found of rows that are at hand, block by block."""
    if block >= n:
        return function(rows, *given)
    return _sum_by_blocks(n, block, lambda k, size: function(_slice_rows(rows, k * block, size), *given))


def _sum_by_blocks(n: int, block: int, of_block: Callable[[jax.Array | int, int], Tree]) -> Tree:
    """What a function of a block's number and size gives, added up in the order of the blocks."""
    full, left = divmod(n, block)
    if full == 0:
        return of_block(0, n)
    if full == 1:
        total = of_block(0, block)
    else:  # from 0, so that the function is compiled once
        shapes = jax.eval_shape(lambda: of_block(0, block))
        nothing = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)
        total = jax.lax.fori_loop(0, full, lambda k, sofar: jax.tree.map(jnp.add, sofar, of_block(k, block)), nothing)
    return jax.tree.map(jnp.add, total, of_block(full, left)) if left else total
