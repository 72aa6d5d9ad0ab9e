"""Programs that JAX compiles, none of which waits for itself.

On a CPU a program runs in a pool of threads, and so do its calls of LAPACK: each cuts its batch of matrices into
shares, gives these to the same pool and waits until they are done. Where as many calls wait side by side as the pool
has threads, no thread is left to do a share, and the program never ends. A batch below 2·10⁵ operations is not shared
out. So `program` cuts every larger batch, wherever it came from (a vmap over states, rows or chains, or the user's
own), into pieces below that, one after another. (FFTs are shared out in the same way, whatever their size.) What is
cut over several devices is left as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import ParamSpec, TypeVar, cast

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

_SHARED = 200_000  # operations of a batch from which on jaxlib shares it out
_DEAREST = 32  # times rows · columns · the longer of them: operations of a matrix, at most, by jaxlib's count
_LINEAR_ALGEBRA = frozenset(
    getattr(jax.lax.linalg, name) for name in dir(jax.lax.linalg) if name.endswith("_p")
)  # primitives, most of which call LAPACK
_INLINED = "call_jaxpr"  # the parameter that holds a function with derivatives of its own, which are of no use here

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Outputs = jax.Array | Sequence[jax.Array]  # of a step, one or several as its primitive has them
Parameter = object  # of a step: a number, a function, or tuples of these


def program(
    function: Callable[Arguments, Result], static_argnames: str | Iterable[str] = ()
) -> Callable[Arguments, Result]:
    """`jax.jit` of a function, with no batch of linear algebra that is shared out."""
    fixed = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames)
    signature = inspect.signature(function)

    @wraps(function)
    def cut(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        bound = signature.bind(*args, **kwargs).arguments
        static = {name: bound.pop(name) for name in fixed & bound.keys()}

        def traced(dynamic: dict[str, object]) -> Result:
            arguments = inspect.BoundArguments(signature, {**static, **dynamic})
            return function(*arguments.args, **arguments.kwargs)

        jaxpr, shapes = jax.make_jaxpr(traced, return_shape=True)(dict(bound))
        results = _run(jaxpr, *jax.tree.leaves(dict(bound)))
        return cast(Result, jax.tree.unflatten(jax.tree.structure(shapes), results))

    return cast(Callable[Arguments, Result], jax.jit(cut, static_argnames=tuple(fixed)))


def _run(closed: ClosedJaxpr, *args: jax.Array) -> list[jax.Array]:
    """What a traced function gives, with its batches cut; as it stands where there is nothing to cut."""
    if jax.default_backend() != "cpu" or not _calls(closed.jaxpr):
        return list(jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *args))
    values: dict[Var, jax.Array] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(closed.jaxpr.invars, args, strict=True))

    def value(variable: Var | Literal) -> jax.Array:
        return variable.val if isinstance(variable, Literal) else values[variable]

    for equation in closed.jaxpr.eqns:
        results = _solved(equation, [value(variable) for variable in equation.invars])
        several = equation.primitive.multiple_results
        outputs = cast(Sequence[jax.Array], results if several else [results])
        values.update(zip(equation.outvars, outputs, strict=True))
    return [value(variable) for variable in closed.jaxpr.outvars]


def _solved(equation: JaxprEqn, operands: list[jax.Array]) -> Outputs:
    """One step of a traced function, its batch cut; in the functions within it too, such as the body of a loop."""
    primitive, params = equation.primitive, equation.params
    batch = _batch(equation)
    if batch:
        return _in_pieces(partial(primitive.bind, **params), operands, batch, _piece(equation, len(batch)))
    inlined = params.get(_INLINED)
    if isinstance(inlined, ClosedJaxpr):
        return _run(inlined, *operands)
    if any(map(_calls, _functions(params))):
        params = {name: _rewritten(param) for name, param in params.items()}
    with equation.ctx.manager:
        return primitive.bind(*operands, **params)


def _batch(equation: JaxprEqn) -> tuple[int, ...]:
    """The batch of a call, which is the leading axes of all its operands; empty where there is none."""
    if equation.primitive in _LINEAR_ALGEBRA:
        inner = 2
    elif equation.primitive is jax.lax.fft_p:
        inner = len(equation.params["fft_lengths"])
    else:
        return ()
    widest = max((variable.aval.shape for variable in equation.invars), key=len)  # type: ignore[attr-defined]
    return tuple(widest[: len(widest) - inner])


def _piece(equation: JaxprEqn, axes: int) -> int:
    """How many of a batch are done in one call."""
    if equation.primitive is jax.lax.fft_p:
        return 1
    shape = [size for variable in equation.invars for size in variable.aval.shape[axes:]]  # type: ignore[attr-defined]
    longest = max(shape, default=1)
    return max(1, int((_SHARED - 1) // max(1, _DEAREST * longest**3)))


def _in_pieces(call: Callable[..., Outputs], operands: list[jax.Array], batch: tuple[int, ...], piece: int) -> Outputs:
    """A call on so many of a batch at a time."""
    count = int(np.prod(batch))
    if count <= piece:
        return call(*operands)
    flat = [array.reshape(count, *array.shape[len(batch) :]) for array in operands]
    if piece == 1:
        results = jax.lax.map(lambda one: call(*one), flat)
    else:
        whole = count // piece * piece
        groups = [array[:whole].reshape(-1, piece, *array.shape[1:]) for array in flat]
        results = jax.lax.map(lambda some: call(*some), groups)
        results = jax.tree.map(lambda leaf: leaf.reshape(whole, *leaf.shape[2:]), results)
        if whole < count:
            rest = call(*(array[whole:] for array in flat))
            results = jax.tree.map(lambda first, last: jax.numpy.concatenate([first, last]), results, rest)
    return jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[1:]), results)


def _functions(params: Mapping[str, Parameter] | Sequence[Parameter]) -> Iterator[Jaxpr]:
    """The functions among the parameters of a step."""
    for param in params.values() if isinstance(params, dict) else params:
        if isinstance(param, ClosedJaxpr):
            yield param.jaxpr
        elif isinstance(param, tuple | list):
            yield from _functions(param)


def _calls(function: Jaxpr) -> bool:
    """Whether there is a batch in it that may have to be cut."""
    return any(_batch(equation) or any(map(_calls, _functions(equation.params))) for equation in function.eqns)


def _rewritten(param: Parameter) -> Parameter:
    """A parameter of a step, the functions in which have their batches cut."""
    if isinstance(param, ClosedJaxpr) and _calls(param.jaxpr):
        shapes = [jax.ShapeDtypeStruct(variable.aval.shape, variable.aval.dtype) for variable in param.jaxpr.invars]
        return jax.make_jaxpr(partial(_run, param))(*shapes)
    if isinstance(param, tuple | list) and any(map(_calls, _functions(param))):
        parts = [_rewritten(item) for item in param]
        kind: Callable[..., Parameter] = type(param)
        return kind(*parts) if hasattr(param, "_fields") else kind(parts)
    return param
