"""What is checked of a model's functions at the door, so that no error of JAX reaches a user half way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from svrhmc.core.arrays import Array, Indices, Reals
from svrhmc.core.errors import first_line, requirement
from svrhmc.core.jax import Tree
from svrhmc.core.jit import program

Result = TypeVar("Result")
_SOME = 256  # rows with which a sum over halves is compared with the whole
_SAME, _ALIKE = 1e-6, 1e-13  # relative to the size of the terms: halves and the whole; rows that do not count
_STEPS = (0.0, 0.37)  # from init, to places where params are compared with what `constrain` makes of them


def check_parameters(init: Tree, dtype: np.dtype[np.floating]) -> Tree:
    """The pytree with every leaf an array of real numbers in `dtype`."""
    leaves = jax.tree_util.tree_flatten_with_path(init)[0]
    if not leaves:
        raise requirement("init", "a pytree with at least one array of numbers", repr(init))
    for path, leaf in leaves:
        name = path_name(path) or "init"
        array = _array(f"init: {name}", leaf)
        if array.dtype.kind != "f":
            why = "gradients need floating-point numbers; write 0.0 and not 0, or convert the array with astype(float)"
            raise requirement(f"init: {name}", "floating-point numbers", f"dtype {array.dtype}", why)
        if not np.isfinite(array).all():
            raise requirement(f"init: {name}", "finite", "nan or inf")
    if not sum(np.size(leaf) for _, leaf in leaves):
        raise requirement("init", "a pytree with at least one number", "empty arrays alone")
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), init)


def count_rows(data: Tree) -> int:
    """How many rows the leaves of the data have: their common first axis."""
    leaves = jax.tree_util.tree_flatten_with_path(data)[0]
    if not leaves:
        raise requirement("data", "a pytree with at least one array of rows", repr(data))
    lengths = {}
    for path, leaf in leaves:
        name = path_name(path) or "data"
        array = _array(f"data: {name}", leaf)
        if array.ndim == 0:
            why = (
                "what all rows share belongs into the function itself, as with functools.partial; a list of numbers is "
                "given as np.array(list)"
            )
            raise requirement(f"data: {name}", "an array with one entry for each row", "a single number", why)
        lengths[name] = array.shape[0]
    if len(set(lengths.values())) > 1:
        in_words = ", ".join(f"{name} has {size:,}" for name, size in lengths.items())
        raise requirement("data", "arrays with the same number of rows", in_words)
    n = int(next(iter(lengths.values())))
    if n == 0:
        raise requirement("data", "at least one row", "none")
    return n


def path_name(path: tuple[object, ...]) -> str:
    """The place of a leaf in words: w, layers.0.bias."""
    return str(jax.tree_util.keystr(path, simple=True, separator="."))


def coordinate_names(params: Tree) -> tuple[str, ...]:
    """One for each coordinate: w[3], layers.0.bias[1, 2]."""
    labels: list[str] = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        name, shape = path_name(path) or "x", np.shape(leaf)
        places = np.ndindex(*shape) if shape else iter([()])
        labels += [f"{name}[{', '.join(map(str, place))}]" if place else name for place in places]
    return tuple(labels)


def coordinates(params: Tree, constrain: Callable[[Tree], Tree] | None) -> tuple[str, ...]:
    """Names of the coordinates: "sampled sigma" for what `constrain` makes another number of that has the same name."""
    own, changed = coordinate_names(params), set[str]()
    if constrain is None:
        return own
    quantities = trace_shapes("constrain", "(params)", constrain, params)
    if not jax.tree.leaves(quantities):
        raise requirement("constrain(params)", "a dictionary of arrays", repr(quantities))
    for step in _STEPS:
        at = jax.tree.map(lambda leaf: leaf + step, params)  # noqa: B023
        constrained = program(constrain)(at)
        stated = dict(zip(coordinate_names(constrained), _flat(constrained), strict=True))
        changed |= {name for name, x in zip(own, _flat(at), strict=True) if stated.get(name, x) != x}
    return tuple(f"sampled {name}" if name in changed else name for name in own)


def _flat(tree: Tree) -> Reals:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def flatten_values(stacked: Tree) -> Array:
    """Many pytrees, stacked in their leaves, as rows of numbers."""
    return np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(stacked)], axis=1).astype(
        float
    )


def trace_shapes(name: str, shape: str, function: Callable[..., Tree], *args: Tree) -> Tree:
    """What a user's function gives for arguments of such shapes; every error in it in one sentence."""
    try:
        return jax.eval_shape(function, *args)
    except jax.errors.TracerBoolConversionError:
        why = (
            "a Python `if`, `while` or `and` on a value that JAX traces; use jnp.where, jnp.logical_and or jax.lax.cond"
        )
        raise requirement(name, "a function that JAX can trace", "a branch on a traced value", why) from None
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        why = "use jax.numpy where it uses numpy, and no float() or int() of a traced value"
        raise requirement(name, "a function that JAX can trace", first_line(error), why) from error
    except Exception as error:
        got = f"{type(error).__name__}: {first_line(error)}"
        raise requirement(f"{name}{shape}", "a function that runs on `init` and on rows of `data`", got) from error


def require_scalar(name: str, value: Tree) -> None:
    """Refuse anything but one real number."""
    if not hasattr(value, "shape") or value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
        whole = hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.integer)
        raise requirement(name, "one real number", _in_words(value), "write 0.0 and not 0" if whole else "")


def is_by_row(name: str, value: Tree, count: int) -> bool:
    """Whether it is one number for each of so many rows; False where it is their sum; else an error."""
    if hasattr(value, "shape") and jnp.issubdtype(value.dtype, jnp.floating):
        if value.shape == (count,):
            return True
        if value.shape == ():
            return False
    raise requirement(name, "one real number for each row, or their sum", _in_words(value))


def sample_rows(n: int) -> Indices:
    """Numbers of rows with which a log-likelihood is tried, spread over all of them."""
    return np.linspace(0, n - 1, min(n, _SOME)).astype(np.int64)


def sums(totals: Callable[[Sequence[Indices]], Sequence[jax.Array]], n: int) -> bool:
    """Refuse a log-likelihood whose totals over two sets of rows do not add up to that over both; gives whether it is
    the same number, but not 0, for all rows. Where it is not finite nothing is said.
    """
    chosen = sample_rows(n)
    count = len(chosen)
    if count < 2:
        return False
    cut = count // 3 + 1  # not the middle: a scaling by n/B would show up with any cut, a mean with unequal ones too
    all_of, first, last = map(float, totals((chosen, chosen[:cut], chosen[cut:])))
    if not np.isfinite([all_of, first, last]).all():
        return False
    size = max(abs(all_of), abs(first), abs(last), 1e-300)
    if not abs(all_of - first - last) <= _SAME * size:
        why = (
            "it must be the plain sum over the rows it is given: not their mean, not scaled by n divided by the batch, "
            "and with nothing in it that depends on the other rows"
        )
        got = f"{all_of:.6g} of {count} rows, and {first:.6g} + {last:.6g} of the same rows in two parts"
        raise requirement("log_likelihood", "a sum over rows", got, why)
    return all_of != 0 and max(abs(first / cut * count - all_of), abs(last / (count - cut) * count - all_of)) < (
        _ALIKE * size
    )


def rows_differ(rows: Tree) -> bool:
    """Whether some of these rows is not like the first."""
    return any(bool((np.asarray(leaf) != np.asarray(leaf)[:1]).any()) for leaf in jax.tree.leaves(rows))


def explain_derivative_errors(compute: Callable[[], Result], often: str = "once") -> Result:
    """The result of `compute`; an error of JAX, for want of a derivative, in one sentence."""
    try:
        return compute()
    except (ValueError, TypeError, NotImplementedError) as error:
        got = f"{type(error).__name__}: {first_line(error)}"
        allowed = f"a function that JAX can differentiate{' twice' if often == 'twice' else ''}"
        why = "write the rule for its derivative in operations of JAX, not as a callback" if often == "twice" else ""
        raise requirement("log_likelihood", allowed, got, why) from error


def require_correct_gradient(value: Callable[[Array], float], slope: Array, x: Array) -> None:
    """Refuse a gradient that a difference quotient contradicts."""
    step = 1e-5 * np.maximum(1.0, np.abs(x))
    direction = step * np.where(np.arange(len(x)) % 2, 1.0, -1.0)
    ends = [float(value(x + s * direction)) for s in (1.0, -1.0)]
    half = [float(value(x + s * direction / 2)) for s in (1.0, -1.0)]
    if not np.isfinite([*ends, *half]).all():
        return
    predicted, difference = float(np.asarray(slope) @ direction), (ends[0] - ends[1]) / 2
    nearer = half[0] - half[1]
    allowed = 1e-3 * max(abs(predicted), abs(difference)) + 10 * abs(difference - nearer) + 1e-9 * max(map(abs, ends))
    if not abs(predicted - difference) <= allowed:
        why = "is a derivative stopped, or a custom rule wrong? look for stop_gradient, round, argmax and custom_jvp"
        raise requirement(
            "the gradient at init", f"{difference:.6g} along a small step, by differences", f"{predicted:.6g}", why
        )


def _array(name: str, leaf: Tree) -> Tree:
    if hasattr(leaf, "toarray"):
        raise requirement(name, "a dense array", f"a sparse matrix ({type(leaf).__name__})", "give leaf.toarray()")
    if hasattr(leaf, "columns"):
        why = "give a dictionary of its columns, {name: table[name].to_numpy() for name in table.columns}"
        raise requirement(name, "an array", f"a table ({type(leaf).__name__})", why)
    if isinstance(leaf, np.ma.MaskedArray):
        raise requirement(name, "an array without a mask", "a masked array", "say what stands in for missing values")
    try:
        array = np.asarray(leaf) if not hasattr(leaf, "dtype") else leaf
        kind = np.dtype(array.dtype)
    except Exception as error:
        raise requirement(name, "an array of numbers", repr(type(leaf))) from error
    if kind.kind not in "biuf" or kind.itemsize > 8 or not kind.isnative:
        allowed = "an array of numbers of up to 64 bits in this machine's byte order"
        raise requirement(name, allowed, f"dtype {array.dtype}")
    return array


def _in_words(value: Tree) -> str:
    if hasattr(value, "shape"):
        return f"an array of shape {tuple(value.shape)} and dtype {value.dtype}"
    return f"{type(value).__name__}"
