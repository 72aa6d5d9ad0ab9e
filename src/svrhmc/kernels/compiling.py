"""How compiled functions are compiled, and what they ask of LLVM: hints on memory, vectors, bits and polynomials."""

from __future__ import annotations

import gc
import operator
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import njit, typeof, types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.core.typed_passes import AnnotateTypes, DumpParforDiagnostics, IRLegalization, NopythonRewrites
from numba.core.untyped_passes import (
    FindLiterallyCalls,
    InlineClosureLikes,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    RewriteDynamicRaises,
    WithLifting,
)
from numba.extending import intrinsic

from svrhmc import families
from svrhmc.core import randomness
from svrhmc.core.code_cache import keep_in_files, source_digest


class EntryLibrary(JITCodeLibrary):
    """The code of a function that Python calls, or compiled code by its address, with all that was linked into it:
    optimised once. numba's rounds before that are for counts of references, of which there are none here.
    """

    def _optimize_functions(self, ll_module):
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self):
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)


class LinkedLibrary(EntryLibrary):
    """The code of a function that only other compiled functions call: it is linked into theirs, and optimised there. So
    it is neither optimised by itself nor made into machine code, which would be most of the time it takes.
    """

    @property
    def codegen(self):
        """Nothing runs from here."""
        return _Unplaced()

    def _optimize_final_module(self):
        return

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name):
        """None: 0."""
        self._ensure_finalized()
        return 0


class _Unplaced:
    """Stands for what puts code where it runs: of code without a place no environment is set."""

    def set_env(self, name, environment):
        """Leave the environment alone, as code without a place has none."""


# Passes of numba for what is in none of these functions: closures, `with`, errors, literals that choose a type,
# expressions of whole arrays, and counts of references, for which it notes where each variable is used last.
_UNNEEDED = {
    AnnotateTypes,
    DumpParforDiagnostics,
    FindLiterallyCalls,
    IRLegalization,
    InlineClosureLikes,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    NopythonRewrites,
    RewriteDynamicRaises,
    WithLifting,
}


class QuickFlags(Flags):
    """numba's flags, compared by those that are set. numba's own compare forty options by their names, and do so for
    every call that is given a type: that was a twelfth of the time.
    """

    def __hash__(self):
        return hash(tuple(self._values))

    def __eq__(self, other):
        return self._values == other._values if isinstance(other, Flags) else NotImplemented


class Entry(Compiler):
    """What compiles functions into a library of this kind, by those of numba's passes that they need."""

    kind = EntryLibrary

    def define_pipelines(self):
        """numba's own, with fewer passes."""
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [entry for entry in pipeline.passes if entry[0] not in _UNNEEDED]
            pipeline.finalize()
        return pipelines

    def __init__(self, typingctx, targetctx, library, *others):
        if library is None:
            library = self.kind(targetctx.codegen(), self.kind.__name__)
            library.enable_object_caching()
        super().__init__(typingctx, targetctx, library, *others)

    def compile_extra(self, func):
        """With Python's search for cycles put off: it finds little here, and takes a fourteenth of the time."""
        self.state.flags = QuickFlags(self.state.flags)
        searching = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(func)
        finally:
            if searching:
                gc.enable()


class Linked(Entry):
    """The same for functions that only others call."""

    kind = LinkedLibrary


# No nnan or ninf: a diverged chain must stay visible as such.
FAST = {"reassoc", "contract", "nsz", "arcp"}
# Without its runtime numba cannot allocate, nor count references, in these functions; and only engines call them.
# A function that does not say `fastmath` is compiled with what the first of its callers says.
_HIDDEN = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
PLAIN = {**_HIDDEN, "pipeline_class": Linked, "forceinline": False}
QUICK = {**PLAIN, "fastmath": FAST}
STRICT = {**PLAIN, "fastmath": False}
INLINE = {**PLAIN, "inline": "always"}  # no function of its own to compile
BOUND = {**_HIDDEN, "pipeline_class": Entry}  # for `Bound`
ENTRY = {"error_model": "numpy", "_nrt": False, "nogil": True, "no_cfunc_wrapper": True, "pipeline_class": Entry}
_TEXTS = [*Path(__file__).parent.glob("*.py"), *Path(families.__file__).parent.glob("*.py"), Path(randomness.__file__)]
_STAMP = source_digest(_TEXTS)  # None where nothing can be written


def kept(dispatcher):
    """A function that Python calls, which is compiled once on a machine."""
    return dispatcher if _STAMP is None else keep_in_files(dispatcher, _STAMP)


class Bound:
    """A compiled function (with BOUND) of a pointer to a value, two numbers and whether values are wanted, and the
    value in memory: compiled code and Python call it by two addresses, whatever the type of the value is.

    What calls it is so compiled once for all types, and the function for each of them once for all that call it.
    """

    def __init__(self, function: Dispatcher, value: tuple[object, ...]) -> None:
        kind = typeof(value)
        signature = (types.CPointer(kind), *_BOUND_ARGUMENTS)
        if signature not in function.overloads:
            function.compile(signature)
        code, context = function.overloads[signature], cpu_target.target_context
        self.address = code.library.get_pointer_to_function(code.fndesc.llvm_func_name)
        self._size = context.get_abi_sizeof(context.get_data_type(kind))
        self._bind(value)

    def like(self, value: tuple[object, ...]) -> Bound:
        """The same function of another value of that type, which need not be found again: it takes a millisecond."""
        other = Bound.__new__(Bound)
        other.address, other._size = self.address, self._size
        other._bind(value)
        return other

    def _bind(self, value: tuple[object, ...]) -> None:
        self._value = value  # whose arrays the memory points to
        self._memory = np.zeros(self._size, np.uint8)
        self.data = self._memory.ctypes.data
        _write(value, self.data)

    def __call__(self, first: int, last: int, valued: bool) -> None:
        """Call the function on the blocks from first to last."""
        _call(self.address, self.data, first, last, valued)


_BOUND_ARGUMENTS = (types.intp, types.intp, types.boolean)


@intrinsic
def call_bound(context, address, data, first, last, valued):
    """Call what is `Bound` by its addresses."""
    given = (types.voidptr, *_BOUND_ARGUMENTS)

    def generate(context, builder, signature, arguments):
        kind = context.call_conv.get_function_type(types.none, given)
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        pointer = builder.inttoptr(arguments[1], ir.IntType(8).as_pointer())
        context.call_conv.call_function(builder, function, types.none, given, [pointer, *arguments[2:]])
        return context.get_dummy_value()

    return types.none(types.intp, types.intp, *_BOUND_ARGUMENTS), generate


@intrinsic
def _store(context, value, address):
    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        pointer = builder.inttoptr(arguments[1], context.get_data_type(kind).as_pointer())
        context.pack_value(builder, kind, arguments[0], pointer)
        return context.get_dummy_value()

    return types.none(value, types.intp), generate


@kept
@njit(**ENTRY)
def _call(address, data, first, last, valued):
    call_bound(address, data, first, last, valued)


@kept
@njit(**ENTRY)
def _write(value, address):
    _store(value, address)


def _cast(source, target):
    @intrinsic
    def bits(context, value):
        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], context.get_value_type(target))

        return target(source), generate

    return bits


bits_of_float64 = _cast(types.float64, types.int64)
float64_of_bits = _cast(types.int64, types.float64)
bits_of_float32 = _cast(types.float32, types.int32)
float32_of_bits = _cast(types.int32, types.float32)


def _extreme(comparison):
    """`min` or `max` of two numbers: numba's own are functions that are compiled for each pair of types."""

    @intrinsic
    def of_two(context, first, second):
        kind = context.unify_types(first, second)

        def generate(context, builder, signature, arguments):
            a, b = (context.cast(builder, *pair, kind) for pair in zip(arguments, signature.args, strict=True))
            better = context.get_function(comparison, types.boolean(kind, kind))
            return builder.select(better(builder, (b, a)), b, a)

        return kind(first, second), generate

    return of_two


smaller, larger = _extreme(operator.lt), _extreme(operator.gt)


@intrinsic
def polynomial(context, coefficients, x):
    """Σₖ coefficients[k]·xᵏ, even and odd powers apart, so that two chains of operations run at once."""

    def generate(context, builder, signature, arguments):
        powers, x = [builder.extract_value(arguments[0], k) for k in range(len(coefficients))], arguments[1]
        y = builder.fmul(x, x)
        halves = []
        for half in (powers[::2], powers[1::2]):
            total = half[-1]
            for power in half[-2::-1]:
                total = builder.fadd(power, builder.fmul(y, total))
            halves.append(total)
        return builder.fadd(halves[0], builder.fmul(x, halves[1]))

    return x(coefficients, x), generate


@intrinsic
def prefetch(context, array, offset):
    """Ask for the cache line that holds element `offset` of a flat array."""

    def generate(context, builder, signature, arguments):
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(view.data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), *[ir.IntType(32)] * 3])
        function = builder.module.declare_intrinsic("llvm.prefetch", [ir.IntType(8).as_pointer()], kind)
        builder.call(function, [pointer, *(ir.Constant(ir.IntType(32), k) for k in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def peek(context, array, offset):
    """Element `offset` of a flat array, with no thought of negative offsets, so that sums of indices vectorise."""

    def generate(context, builder, signature, arguments):
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.load(builder.gep(view.data, [arguments[1]]))

    return array.dtype(array, types.intp), generate


@intrinsic
def copy(context, source, out):
    """out = source, two arrays of one length that share no memory: less to compile than a loop, where it is rare."""
    if source.layout != "C" or out.layout != "C":
        return None

    def generate(context, builder, signature, arguments):
        there = context.make_array(source)(context, builder, arguments[0])
        here = context.make_array(out)(context, builder, arguments[1])
        if source.dtype == out.dtype:
            cgutils.raw_memcpy(builder, here.data, there.data, here.nitems, here.itemsize)
        else:
            with cgutils.for_range(builder, here.nitems) as loop:
                value = builder.load(builder.gep(there.data, [loop.index]))
                builder.store(
                    context.cast(builder, value, source.dtype, out.dtype), builder.gep(here.data, [loop.index])
                )
        return context.get_dummy_value()

    return types.none(source, out), generate


@intrinsic
def wide_vectors(context):
    """Let LLVM use the widest vectors in the calling function, which is kept apart from its callers for that."""

    def generate(context, builder, signature, arguments):
        attributes = builder.function.attributes
        attributes.add("noinline")
        set.add(attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def one_copy(context):
    """Let LLVM call the calling function wherever it is used, and not copy it into each of these places."""

    def generate(context, builder, signature, arguments):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def unshared(context):
    """Tell LLVM that what the calling function writes through one argument is read through no other."""

    def generate(context, builder, signature, arguments):
        for argument in builder.function.args:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        return context.get_dummy_value()

    return types.void(), generate
