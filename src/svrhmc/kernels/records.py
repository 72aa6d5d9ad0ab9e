"""Records as compiled code reads them: words in memory, behind one pointer, whatever a record holds.

numba passes a named tuple to a function field by field, an array as seven numbers: a model and the room of a loop are
some hundred numbers, which each function that takes them unpacks and packs again. A `Reference` is one pointer. A field
is read where it is asked for, from words of eight bytes: an array is the address of its entries and its shape, a number
is one word, None is none, and a record within a record lies in its place. Nothing writes to these words while compiled
code runs, and LLVM is told so.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from llvmlite import ir
from numba import typeof, types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.errors import TypingError
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, lower_getattr_generic, register_model
from numba.np.arrayobj import populate_array

from svrhmc.kernels.lowering import entry_size

WORD = 8  # bytes
_INTEGERS = types.intp, types.intp, types.intp
_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, *3 * [ctypes.c_void_p], *3 * [ctypes.c_int64])


class Reference(types.Type):
    """A pointer to a record, which is a named tuple of this type."""

    def __init__(self, record: types.BaseNamedTuple) -> None:
        self.record, self.instance_class, self.types = record, record.instance_class, record.types
        digest = hashlib.sha256(repr(record.key).encode()).hexdigest()[:16]
        super().__init__(f"Reference({record.instance_class.__name__} {digest})")

    @property
    def key(self) -> types.BaseNamedTuple:
        """What tells two of these apart."""
        return self.record


register_model(Reference)(models.OpaqueModel)
reference_to = lru_cache(maxsize=None)(Reference)


def record_type(kind: types.Type | None) -> types.BaseNamedTuple | None:
    """The type of a record, of which the type of a value may be a reference; None where it is no record's."""
    kind = kind.record if isinstance(kind, Reference) else kind
    return kind if isinstance(kind, types.BaseNamedTuple) else None


def field_type(kind: types.Type, name: str) -> types.Type | None:
    """The type of a record's field; None where it has no such field."""
    record = record_type(kind)
    return record.types[record.fields.index(name)] if record is not None and name in record.fields else None


def _word_count(kind: types.Type) -> int:
    if isinstance(kind, types.NoneType):
        return 0
    if isinstance(kind, types.BaseNamedTuple):
        return sum(map(_word_count, kind.types))
    return 1 + kind.ndim if isinstance(kind, types.Array) else 1


@infer_getattr
class _Fields(AttributeTemplate):
    """The types of a record's fields."""

    key = Reference

    def generic_resolve(self, reference, name):
        """That of a record within it is a reference too."""
        kind = field_type(reference, name)
        return reference_to(kind) if isinstance(kind, types.BaseNamedTuple) else kind


@lower_getattr_generic(Reference)
def _read_field(context, builder, reference, value, name):
    record = reference.record
    index = record.fields.index(name)
    kind, first = record.types[index], sum(map(_word_count, record.types[:index]))
    pointer = builder.gep(value, [ir.Constant(ir.IntType(64), WORD * first)], inbounds=True)
    if isinstance(kind, types.BaseNamedTuple):
        return pointer
    if isinstance(kind, types.NoneType):
        return context.get_dummy_value()
    if isinstance(kind, types.Array):
        return _read_array(context, builder, kind, pointer)
    number = context.get_value_type(kind)
    if isinstance(number, ir.IntType):
        word = _load(builder, pointer, 0, ir.IntType(64))
        return word if number.width == word.type.width else builder.trunc(word, number)
    return _load(builder, pointer, 0, number)


def _read_array(context, builder, kind, pointer):
    if kind.layout != "C":
        raise TypingError(f"an array of a record must be contiguous, with its last axis innermost; got {kind}")
    entry = context.get_data_type(kind.dtype)
    size = context.get_constant(types.intp, entry_size(kind.dtype))
    data = _load(builder, pointer, 0, entry.as_pointer())
    shape = [_load(builder, pointer, 1 + axis, ir.IntType(64)) for axis in range(kind.ndim)]
    strides = [size]
    for length in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], length))
    array = context.make_array(kind)(context, builder)
    populate_array(array, data, shape, strides, size, None)
    return array._getvalue()


def _load(builder, pointer, word, kind):
    place = builder.gep(pointer, [ir.Constant(ir.IntType(64), WORD * word)], inbounds=True)
    loaded = builder.load(builder.bitcast(place, kind.as_pointer()))
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return loaded


def _pack(value: object, words: list[int], marks: list[object]) -> None:
    """Add the words of a value, and marks that tell its type from all others."""
    if isinstance(value, np.ndarray):
        words.append(value.__array_interface__["data"][0])
        words.extend(value.shape)
        marks.append((value.dtype, value.ndim, value.flags.writeable, value.flags.c_contiguous))
        return
    marks.append(type(value))
    if isinstance(value, tuple):
        for part in value:
            _pack(part, words, marks)
    elif isinstance(value, np.float32):
        words.append(int(value.view(np.int32)))
    elif isinstance(value, float):
        words.append(struct.unpack("<q", struct.pack("<d", value))[0])
    elif value is not None:
        words.append(int(value))


class Bound:
    """A compiled function (with BOUND) of a reference to a record and three numbers, and the record in memory: compiled
    code (`call_bound`) and Python call it by two addresses, whatever the types in the record are.

    What calls it is so compiled once for all types, and the function for each of them once for all that call it; and
    nothing is compiled that takes Python's objects apart.
    """

    def __init__(self, function: object, record: tuple[object, ...]) -> None:
        words: list[int] = []
        marks: list[object] = [function]
        _pack(record, words, marks)
        self._record, self.words = record, np.array([*words, 0, 0], np.int64)  # two for what a call gives back
        self.data = self.words.__array_interface__["data"][0]
        types_of = tuple(marks)
        if types_of not in _addresses:
            _addresses[types_of] = _address(function, record)
        self.address = _addresses[types_of]
        self._call: Callable[..., int] = _CALL(self.address)
        self._back = self.data + WORD * len(words)

    def __call__(self, *numbers: int) -> None:
        """Call the function; other threads run meanwhile."""
        self._call(self._back, self._back + WORD, self.data, *numbers)


_addresses: dict[tuple[object, ...], int] = {}  # of functions, by types


def _address(function, record) -> int:
    signature = (reference_to(typeof(record)), *_INTEGERS)
    if signature not in function.overloads:
        function.compile(signature)
    code = function.overloads[signature]
    return code.library.get_pointer_to_function(code.fndesc.llvm_func_name)


@intrinsic
def call_bound(context, address, data, first, second, third):
    """Call what is `Bound` by its addresses."""

    def generate(context, builder, signature, arguments):
        call_address(context, builder, arguments[0], builder.inttoptr(arguments[1], cgutils.voidptr_t), arguments[2:])
        return context.get_dummy_value()

    return types.none(types.intp, types.intp, *_INTEGERS), generate


def call_address(context, builder, address, record, numbers):
    """Generate a call of a function that is `Bound`, with a pointer to its record."""
    given = (types.voidptr, *_INTEGERS)
    kind = context.call_conv.get_function_type(types.none, given)
    function, pointer = builder.inttoptr(address, kind.as_pointer()), builder.bitcast(record, cgutils.voidptr_t)
    context.call_conv.call_function(builder, function, types.none, given, [pointer, *numbers])
