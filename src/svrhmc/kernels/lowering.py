"""How functions become LLVM's text: as numba does it, with less of it where these functions need less.

Nothing in them counts references, so that variables are not read before they are written nor cleared where they are
last used. An index is not negative, but where it is a constant; and most loops go up by one. LLVM would find all that
out, which takes longer than to write it so.
"""

from __future__ import annotations

from functools import cache

from numba.core import cgutils, ir, types
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import as_dtype

_RANGES = {types.range_state32_type: types.range_iter32_type, types.range_state64_type: types.range_iter64_type}


class LeanLower(Lower):
    """numba's lowering of a function, with entries and views of contiguous arrays, and loops, in fewer words."""

    def __init__(self, *arguments, **options):
        self._unit_ranges: set[str] = set()  # variables that hold a range with a step of one
        super().__init__(*arguments, **options)

    def storevar(self, value, name, argidx=None):
        """Store a value; what was there needs no care."""
        self._alloca_var(name, self.typeof(name))
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))

    def alloca_lltype(self, name, lltype, datamodel=None):
        """Room for a variable; numba asks for its size too, for which LLVM reads a module."""
        return cgutils.alloca_once(self.builder, lltype, name=name)

    def delvar(self, name):
        """Forget nothing: there is nothing to free."""
        if name not in self._blk_local_varmap:
            self._singly_assigned_vars.discard(name)

    def lower_assign(self, ty, inst):
        """Note ranges whose step is one."""
        call = inst.value
        if isinstance(call, ir.Expr) and call.op == "call" and ty in _RANGES and len(call.args) < 3 and not call.vararg:
            self._unit_ranges.add(inst.target.name)
        return super().lower_assign(ty, inst)

    def lower_expr(self, resty, expr):
        """A loop over a range whose step is one."""
        if expr.op == "getiter" and expr.value.name in self._unit_ranges:
            return self._count_up(self.typeof(expr.value.name), self.loadvar(expr.value.name))
        return super().lower_expr(resty, expr)

    def _count_up(self, kind, value):
        builder = self.builder
        start, stop, step = (builder.extract_value(value, k) for k in range(3))
        difference, zero = builder.sub(stop, start), start.type(0)
        count = builder.select(builder.icmp_signed(">", difference, zero), difference, zero)
        loop = cgutils.create_struct_proxy(_RANGES[kind])(self.context, builder)
        loop.iter, loop.count = (cgutils.alloca_once(builder, start.type) for _ in range(2))
        builder.store(start, loop.iter)
        builder.store(count, loop.count)
        loop.stop, loop.step = stop, step
        return loop._getvalue()

    def lower_getitem(self, resty, expr, value, index, signature):
        """An entry, a row, or some entries of a contiguous array."""
        kind, places = self.typeof(value.name), _places(self.typeof(index.name))
        if not (isinstance(kind, types.Array) and kind.layout == "C" and kind.aligned and places):
            return super().lower_getitem(resty, expr, value, index, signature)
        array = self.context.make_array(kind)(self.context, self.builder, self.loadvar(value.name))
        indices = self._indices(index, places)
        if places == ["slice"]:
            return self._some(kind, array, indices[0])
        if "slice" in places or len(places) > kind.ndim:
            return super().lower_getitem(resty, expr, value, index, signature)
        pointer, shape = self._entry(kind, array, indices)
        if len(places) == kind.ndim:
            loaded = self.context.unpack_value(self.builder, kind.dtype, pointer)
            return self.context.cast(self.builder, loaded, kind.dtype, resty)
        return self._view(resty, pointer, shape)

    def lower_setitem(self, target_var, index_var, value_var, signature):
        """Write an entry of a contiguous array."""
        kind, places = self.typeof(target_var.name), _places(self.typeof(index_var.name))
        plain = isinstance(kind, types.Array) and kind.layout == "C" and kind.aligned and kind.mutable
        if not plain or "slice" in places or len(places) != kind.ndim:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        value = self.context.cast(self.builder, self.loadvar(value_var.name), self.typeof(value_var.name), kind.dtype)
        array = self.context.make_array(kind)(self.context, self.builder, self.loadvar(target_var.name))
        pointer, _ = self._entry(kind, array, self._indices(index_var, places))
        self.context.pack_value(self.builder, kind.dtype, value, pointer)
        return None

    def _indices(self, index, places):
        kind, value = self.typeof(index.name), self.loadvar(index.name)
        if not isinstance(kind, types.BaseTuple):
            return [value if places == ["slice"] else self._intp(value, kind)]
        parts = cgutils.unpack_tuple(self.builder, value)
        return [
            self._intp(part, of) if isinstance(of, types.Integer) else part
            for part, of in zip(parts, kind, strict=True)
        ]

    def _intp(self, value, kind):
        return self.context.cast(self.builder, value, kind, types.uintp if not kind.signed else types.intp)

    def _entry(self, kind, array, indices):
        """Where an entry is, or a row begins; and the shape of what is there."""
        builder = self.builder
        shape = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
        place = indices[0]
        for index, length in zip(indices[1:], shape[1:], strict=False):
            place = builder.add(builder.mul(place, length), index)
        for length in shape[len(indices) :]:
            place = builder.mul(place, length)
        return builder.gep(array.data, [place]), shape[len(indices) :]

    def _some(self, kind, array, value):
        builder = self.builder
        span = self.context.make_helper(builder, types.slice2_type, value)
        shape = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
        stop = builder.select(builder.icmp_signed("<", span.stop, shape[0]), span.stop, shape[0])
        length = builder.sub(stop, span.start)
        length = builder.select(builder.icmp_signed(">", length, length.type(0)), length, length.type(0))
        pointer, _ = self._entry(kind, array, [span.start])
        return self._view(kind, pointer, [length, *shape[1:]])

    def _view(self, kind, pointer, shape):
        size = self.context.get_constant(types.intp, entry_size(kind.dtype))
        strides = [size]
        for length in shape[:0:-1]:
            strides.insert(0, self.builder.mul(strides[0], length))
        array = self.context.make_array(kind)(self.context, self.builder)
        populate_array(array, pointer, shape, strides, size, None)
        return array._getvalue()


@cache
def entry_size(kind):
    """Bytes of an entry of an array; LLVM would read a module for each answer."""
    return as_dtype(kind).itemsize


def _places(kind):
    """What an index is made of; nothing where it is something else."""
    parts = list(kind) if isinstance(kind, types.BaseTuple) else [kind]
    names = {types.slice2_type: "slice"} | {part: "index" for part in parts if isinstance(part, types.Integer)}
    return [names[part] for part in parts] if all(part in names for part in parts) else []


@register_pass(mutates_CFG=True, analysis_only=False)
class LeanLowering(BaseNativeLowering):
    """numba's pass, with that."""

    _name = "lean_lowering"

    @property
    def lowering_class(self):
        """The class that writes the text of a function."""
        return LeanLower
