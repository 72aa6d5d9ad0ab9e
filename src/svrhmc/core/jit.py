"""`jax.jit` without a deadlock in batches of linear algebra.

On a CPU a program runs in a pool of threads, and so do its calls of LAPACK: each divides its batch of matrices into
tasks, gives these to the same pool and waits until they are done. If as many calls wait at the same time as the pool
has threads, no thread is left for a task, and the program never ends. A batch below 2·10⁵ operations is not divided.
So `program` cuts every larger batch, wherever it came from (a vmap over states, rows or chains, or the user's own),
into pieces below that, one after another. (FFTs are divided in the same way, whatever their size.) Programs on other
devices than CPUs are left as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import ParamSpec, TypeVar, cast

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

_DIVIDED = 200_000  # operations of a batch from which on jaxlib divides it among threads
_MOST_PER_ENTRY = 32  # times rows · columns · the longer of them: operations of a matrix, at most, by jaxlib's count
_LINEAR_ALGEBRA = frozenset(
    getattr(jax.lax.linalg, name) for name in dir(jax.lax.linalg) if name.endswith("_p")
)  # primitives, most of which call LAPACK
_INLINED = "call_jaxpr"  # the parameter with a function that has a custom derivative, which is not needed here

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Outputs = jax.Array | Sequence[jax.Array]  # of an equation: one or several, as its primitive has them
Parameter = object  # of an equation: a number, a function, or tuples of these


def program(
    function: Callable[Arguments, Result], static_argnames: str | Iterable[str] = ()
) -> Callable[Arguments, Result]:
    """`jax.jit` of a function, in which no batch of linear algebra is divided among threads."""
    static_names = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames)
    signature = inspect.signature(function)

    @wraps(function)
    def run_in_pieces(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        bound = signature.bind(*args, **kwargs).arguments
        static = {name: bound.pop(name) for name in static_names & bound.keys()}

        def traced(dynamic: dict[str, object]) -> Result:
            arguments = inspect.BoundArguments(signature, {**static, **dynamic})
            return function(*arguments.args, **arguments.kwargs)

        jaxpr, shapes = jax.make_jaxpr(traced, return_shape=True)(dict(bound))
        results = _run(jaxpr, *jax.tree.leaves(dict(bound)))
        return cast(Result, jax.tree.unflatten(jax.tree.structure(shapes), results))

    return cast(Callable[Arguments, Result], jax.jit(run_in_pieces, static_argnames=tuple(static_names)))


def _run(closed: ClosedJaxpr, *args: jax.Array) -> list[jax.Array]:
    """The results of a traced function, with its batches cut; evaluated as it is if there is nothing to cut."""
    if jax.default_backend() != "cpu" or not _has_batches(closed.jaxpr):
        return list(jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *args))
    values: dict[Var, jax.Array] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(closed.jaxpr.invars, args, strict=True))

    def value(variable: Var | Literal) -> jax.Array:
        return variable.val if isinstance(variable, Literal) else values[variable]

    for equation in closed.jaxpr.eqns:
        results = _evaluate(equation, [value(variable) for variable in equation.invars])
        outputs = cast(Sequence[jax.Array], results if equation.primitive.multiple_results else [results])
        values.update(zip(equation.outvars, outputs, strict=True))
    return [value(variable) for variable in closed.jaxpr.outvars]


def _evaluate(equation: JaxprEqn, operands: list[jax.Array]) -> Outputs:
    """The outputs of one equation of a traced function, with its batch cut, and those of the functions that it calls,
    such as the body of a loop.
    """
    primitive, params = equation.primitive, equation.params
    batch = _batch_shape(equation)
    if batch:
        size = _piece_size(equation, len(batch))
        return _call_in_pieces(partial(primitive.bind, **params), operands, batch, size)
    inlined = params.get(_INLINED)
    if isinstance(inlined, ClosedJaxpr):
        return _run(inlined, *operands)
    if any(map(_has_batches, _inner_functions(params))):
        params = {name: _cut_batches(param) for name, param in params.items()}
    with equation.ctx.manager:
        return primitive.bind(*operands, **params)


def _batch_shape(equation: JaxprEqn) -> tuple[int, ...]:
    """The shape of the batch of a call, the leading axes of all its operands; empty if there is none."""
    if equation.primitive in _LINEAR_ALGEBRA:
        inner = 2
    elif equation.primitive is jax.lax.fft_p:
        inner = len(equation.params["fft_lengths"])
    else:
        return ()
    widest = max((variable.aval.shape for variable in equation.invars), key=len)  # type: ignore[attr-defined]
    return tuple(widest[: len(widest) - inner])


def _piece_size(equation: JaxprEqn, axes: int) -> int:
    """How many matrices of a batch, which has so many axes, are given to one call."""
    if equation.primitive is jax.lax.fft_p:
        return 1
    shape = [size for variable in equation.invars for size in variable.aval.shape[axes:]]  # type: ignore[attr-defined]
    longest = max(shape, default=1)
    return max(1, int((_DIVIDED - 1) // max(1, _MOST_PER_ENTRY * longest**3)))


def _call_in_pieces(
    call: Callable[..., Outputs], operands: list[jax.Array], batch: tuple[int, ...], size: int
) -> Outputs:
    """The outputs of a call, made on `size` matrices of the batch at a time."""
    count = int(np.prod(batch))
    if count <= size:
        return call(*operands)
    flat = [array.reshape(count, *array.shape[len(batch) :]) for array in operands]
    if size == 1:
        results = jax.lax.map(lambda matrices: call(*matrices), flat)
    else:
        whole = count // size * size
        groups = [array[:whole].reshape(-1, size, *array.shape[1:]) for array in flat]
        results = jax.lax.map(lambda group: call(*group), groups)
        results = jax.tree.map(lambda leaf: leaf.reshape(whole, *leaf.shape[2:]), results)
        if whole < count:
            rest = call(*(array[whole:] for array in flat))
            results = jax.tree.map(lambda first, last: jax.numpy.concatenate([first, last]), results, rest)
    return jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[1:]), results)


def _inner_functions(params: Mapping[str, Parameter] | Sequence[Parameter]) -> Iterator[Jaxpr]:
    """The functions among the parameters of an equation."""
    for param in params.values() if isinstance(params, dict) else params:
        if isinstance(param, ClosedJaxpr):
            yield param.jaxpr
        elif isinstance(param, tuple | list):
            yield from _inner_functions(param)


def _has_batches(function: Jaxpr) -> bool:
    """Whether it has a batch that may have to be cut."""
    return any(
        _batch_shape(equation) or any(map(_has_batches, _inner_functions(equation.params)))
        for equation in function.eqns
    )


def _cut_batches(param: Parameter) -> Parameter:
    """A parameter of an equation, with the batches in its functions cut."""
    if isinstance(param, ClosedJaxpr) and _has_batches(param.jaxpr):
        shapes = [jax.ShapeDtypeStruct(variable.aval.shape, variable.aval.dtype) for variable in param.jaxpr.invars]
        return jax.make_jaxpr(partial(_run, param))(*shapes)
    if isinstance(param, tuple | list) and any(map(_has_batches, _inner_functions(param))):
        parts = [_cut_batches(item) for item in param]
        kind: Callable[..., Parameter] = type(param)
        return kind(*parts) if hasattr(param, "_fields") else kind(parts)
    return param
