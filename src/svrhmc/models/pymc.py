"""The door for PyMC: the graph of a model's log density, cut to one row and translated to JAX.

PyMC gives a term for every variable and potential: log p of the free ones with the Jacobians by which they are
unconstrained, and of the observed ones entry by entry. The observed values and whatever else has as many rows (arrays
in the graph, `pm.Data`) become inputs with a single row, and sizes that PyMC wrote into the graph become 1. A term with
rows in it is a sum over them; any other is the prior's. Both are compared with the density as PyMC computes it.

A model that is no such sum (a Gaussian process, a time series, an effect of each row) is one component: a single "row",
with the terms of all observed variables whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import first_line, requirement
from svrhmc.core.jax import Tree, load_jax, scope
from svrhmc.models.description import (
    LONG,
    LibraryDensity,
    ModelDescription,
    NotByRowsError,
    Params,
    Parts,
    Row,
    find_start,
    import_package,
    log_likelihoods_by_value,
    require_sum,
    sum_of_parts,
)  # fmt: skip

if TYPE_CHECKING:
    import jax
    import pymc

Graph = Any  # a variable of PyTensor, whose classes have no types


def describe_pymc(model: pymc.Model, observed: str | None = None) -> ModelDescription:
    """Take a PyMC model apart. observed: the variable whose rows are meant, where observed ones have unlike lengths."""
    pymc = import_package("pymc", "from_pymc")
    if not isinstance(model, pymc.Model):
        raise requirement("model", "a pymc.Model", repr(model))
    free = _log_density_terms(model, model.free_RVs)
    observed_terms = _log_density_terms(model, [*model.observed_RVs, *model.potentials])
    _require_sampled(model, [*free.values(), *observed_terms.values()])
    try:
        return _describe_by_rows(model, free, observed_terms, observed)
    except NotByRowsError as error:
        if observed is not None:  # the user asked for rows
            raise
        return _describe_as_one(model, free, observed_terms, error)


def _describe_by_rows(
    model: pymc.Model, free: Mapping[str, Graph], observed_terms: Mapping[str, Graph], observed: str | None
) -> ModelDescription:
    """The model as a sum over the rows of its observed variables."""
    _require_no_imputed(model)
    rows = _Rows.of(_count_rows(model, observed), observed_terms.values())
    inside = {name: term for name, term in observed_terms.items() if rows.has_rows(term)}
    outside = [term.sum() for name, term in {**free, **observed_terms}.items() if name not in inside]
    quantities = _quantities(model, rows)
    library_density = _library_density(model, inside)
    names = [value.name for value in model.value_vars]
    init = find_start(_start(model), library_density)
    translate, jnp = _translator(), load_jax().numpy
    with scope(), _explain_cut_errors(rows.count, init):
        row_terms = translate([*model.value_vars, *rows.inputs], [term.sum() for term in rows.cut(inside.values())])
        log_prior, constrain = _prior_and_constrain(model, translate, outside, quantities)
        data = dict(zip(rows.names, rows.arrays, strict=True))

        def parts(params: Params, row: Row) -> Parts:
            values = [params[name] for name in names]
            one = [jnp.asarray(row[name], _widen_dtype(data[name].dtype))[None] for name in data]
            return dict(zip(inside, row_terms(*values, *one), strict=True))

        load_jax().eval_shape(parts, init, {name: array[0] for name, array in data.items()})
    with scope():
        require_sum(parts, log_prior, data, init, library_density)
    return ModelDescription(
        sum_of_parts(parts),
        log_prior,
        data,
        init,
        constrain,
        tuple(quantities),
        **_labels(model),
        observed=tuple(inside),
    )


def _describe_as_one(
    model: pymc.Model, free: Mapping[str, Graph], observed_terms: Mapping[str, Graph], error: NotByRowsError
) -> ModelDescription:
    """The model as one component: all data stay in its graph, and its only row is an empty place."""
    library_density, translate = _library_density(model, observed_terms), _translator()
    init, quantities = find_start(_start(model), library_density), _quantities(model, None)
    names = [value.name for value in model.value_vars]
    data = {"all data": np.zeros(1)}
    with scope(), _explain_translation_errors():
        whole = translate(model.value_vars, [term.sum() for term in observed_terms.values()])
        observed = tuple(variable.name for variable in model.observed_RVs)
        by_variable = translate(model.value_vars, [observed_terms[name] for name in observed])
        log_prior, every = _prior_and_constrain(model, translate, [term.sum() for term in free.values()], quantities)

        def parts(params: Params, row: Row) -> Parts:
            return dict(zip(observed_terms, whole(*(params[name] for name in names)), strict=True))

        def terms(params: Params, rows: Row) -> jax.Array:
            return log_likelihoods_by_value(
                dict(zip(observed, by_variable(*(params[name] for name in names)), strict=True))
            )

        load_jax().eval_shape(parts, init, data)
        shapes = load_jax().eval_shape(every, init)
    derived = {variable.name for variable in model.deterministics}
    long = [name for name, shape in shapes.items() if name in derived and np.prod(shape.shape) > LONG]
    reported = {name: graph for name, graph in quantities.items() if name not in long}
    with scope():
        _, constrain = _prior_and_constrain(model, translate, [], reported)
        try:
            require_sum(parts, log_prior, data, init, library_density)
        except NotByRowsError as unlike:
            why = "PyMC's translation of it to JAX computes something else"
            raise requirement("model", "one whose density is the same in PyMC and in JAX", "two", why) from unlike
    return ModelDescription(
        sum_of_parts(parts),
        log_prior,
        data,
        init,
        constrain,
        tuple(reported),
        True,
        error.note(long),
        **_labels(model),
        observed=observed,
        terms=terms if observed else None,
    )


def _prior_and_constrain(
    model: pymc.Model,
    translate: Callable[[Sequence[Graph], Sequence[Graph]], Callable[..., Tree]],
    outside: Sequence[Graph],
    quantities: Mapping[str, Graph],
) -> tuple[Callable[[Params], Tree], Callable[[Params], dict[str, Tree]]]:
    """The log prior, which is the sum of the terms outside of rows, and the way back to the model's own quantities."""
    names = [value.name for value in model.value_vars]
    rest, back = translate(model.value_vars, outside), translate(model.value_vars, list(quantities.values()))

    def log_prior(params: Params) -> Tree:
        return sum(rest(*(params[name] for name in names)), start=0.0)

    def constrain(params: Params) -> dict[str, Tree]:
        return dict(zip(quantities, back(*(params[name] for name in names)), strict=True))

    return log_prior, constrain


def _labels(model: pymc.Model) -> dict[str, Any]:
    """The names of axes of the model's quantities, and their coordinates, as far as it has some."""
    dims = {name: tuple(axis or "" for axis in axes) for name, axes in model.named_vars_to_dims.items()}
    return {"dims": dims, "coords": {name: list(values) for name, values in model.coords.items() if values is not None}}


def _log_density_terms(model: pymc.Model, variables: Sequence[Graph]) -> dict[str, Graph]:
    """The log density of some variables, entry by entry."""
    log_densities = model.logp(vars=list(variables), sum=False) if variables else []
    return {variable.name: term for variable, term in zip(variables, log_densities, strict=True)}


def _require_sampled(model: pymc.Model, terms: Sequence[Graph]) -> None:
    """Refuse discrete parameters, batches, and models without data."""
    from pymc.variational.minibatch_rv import MinibatchRandomVariable
    from pytensor.graph.traversal import graph_inputs
    from pytensor.tensor.random.type import RandomType

    if model.discrete_value_vars:
        listed = ", ".join(repr(value.name) for value in model.discrete_value_vars)
        why = "sum it out, for instance by pymc.Mixture"
        raise requirement("model", "a density of continuous parameters", f"the discrete {listed}", why)
    if not model.observed_RVs and not model.potentials:
        raise requirement("model", "given data", "no observed variable", "give observed= to a variable")
    if not model.free_RVs:
        raise requirement("model", "one with parameters", "none")
    scaled = [rv.name for rv in model.observed_RVs if isinstance(rv.owner.op, MinibatchRandomVariable)]
    if scaled or any(isinstance(source.type, RandomType) for source in graph_inputs(terms)):
        raise requirement(
            "model",
            "given all of its rows, each counted once",
            f"total_size for {', '.join(map(repr, scaled))}" if scaled else "random batches, as of pymc.Minibatch",
            "leave it out: batches are drawn by the sampler",
        )


def _require_no_imputed(model: pymc.Model) -> None:
    """Refuse missing values that PyMC makes parameters of, each of a single row."""
    free = {rv.name for rv in model.free_RVs}
    imputed = {rv.name.removesuffix("_observed") + "_unobserved" for rv in model.observed_RVs} & free  # PyMC's names
    if imputed:
        listed = ", ".join(map(repr, sorted(imputed)))
        why = "each would be a parameter of a single row; leave such rows out, or fill them in"
        raise NotByRowsError(f"missing values are parameters ({listed})", "without missing values", listed, why)


def _count_rows(model: pymc.Model, observed: str | None) -> int:
    """How many rows there are: the length of the observed variables."""
    shapes = {variable.name: np.shape(_value(model.rvs_to_values[variable])) for variable in model.observed_RVs}
    lengths = {name: shape[0] for name, shape in shapes.items() if shape}
    if not lengths:
        why = "give observed= to a variable with rows"
        raise NotByRowsError("it has no observed array", "a sum over rows", "no observed array", why)
    if observed is None and len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} of length {length}" for name, length in lengths.items())
        raise requirement("observed", "named where lengths are unlike", f"none, and there are {listed}")
    if observed is not None and observed not in lengths:
        raise requirement("observed", f"one of {', '.join(map(repr, lengths))}", repr(observed))
    return int(lengths[observed or next(iter(lengths))])


@dataclass(frozen=True)
class _Rows:
    """The arrays with rows in some graphs, and inputs with one row in their places."""

    count: int
    names: tuple[str, ...]
    arrays: tuple[Tree, ...]
    inputs: tuple[Graph, ...]
    replaced: Mapping[Graph, Graph]

    @classmethod
    def of(cls, count: int, graphs: Iterable[Graph]) -> _Rows:
        from pytensor.graph.traversal import graph_inputs
        from pytensor.tensor import shape_padleft, tensor

        arrays: dict[str, Tree] = {}
        inputs: dict[str, Graph] = {}
        replaced: dict[Graph, Graph] = {}
        for source in graph_inputs(list(graphs)):
            axis = _row_axis(source, count)
            if axis is None:
                continue
            value = _value(source)
            value = value.reshape(value.shape[axis:])
            same = (
                name for name, array in arrays.items() if array.dtype == value.dtype and np.array_equal(array, value)
            )
            name = next(same, None)
            if name is None:
                name = source.name or "rows"
                name = name if name not in arrays else f"{name} {len(arrays)}"
                arrays[name] = value
                inputs[name] = tensor(f"row{len(inputs)}", dtype=_widen_dtype(value.dtype), shape=(1, *value.shape[1:]))
            replaced[source] = shape_padleft(inputs[name], axis)
        return cls(count, tuple(arrays), tuple(arrays.values()), tuple(inputs.values()), replaced)

    def has_rows(self, graph: Graph) -> bool:
        """Whether it has rows."""
        from pytensor.graph.traversal import graph_inputs

        return any(_row_axis(source, self.count) is not None for source in graph_inputs([graph]))

    def cut(self, graphs: Iterable[Graph]) -> list[Graph]:
        """The same for one row."""
        terms = list(graphs)
        return _rebuild_graphs(terms, {**self.replaced, **self._sizes(terms)})

    def _sizes(self, graphs: Sequence[Graph]) -> dict[Graph, Graph]:
        """Numbers of rows that were written into the graphs as the size of something, and 1 in their places."""
        from pytensor.graph.traversal import ancestors, graph_inputs
        from pytensor.tensor import constant
        from pytensor.tensor.basic import Alloc
        from pytensor.tensor.shape import Reshape, SpecifyShape

        ones = {}
        for node in {variable.owner for variable in ancestors(graphs) if variable.owner is not None}:
            sizes = node.inputs[1:] if isinstance(node.op, Alloc | Reshape | SpecifyShape) else ()
            for size in sizes:
                inputs = list(graph_inputs([size]))
                if all(map(_is_known, inputs)) and not any(source in self.replaced for source in inputs):
                    value = np.array(_value(size))
                    place = _first_long(value.flat, self.count)
                    if place is not None:
                        value.flat[place] = 1
                        ones[size] = constant(value, dtype=size.type.dtype)
        return ones


def _rebuild_graphs(graphs: Sequence[Graph], replaced: Mapping[Graph, Graph]) -> list[Graph]:
    """Graphs with some variables replaced, and with float64 for numbers in float32.

    Every node is made anew, since the shapes of its results may be others. PyTensor has 2.5 in float32 and rounds what
    follows from such numbers alone; that is kept. But in JAX its arrays of numbers have a weak type, and such a float64
    with a float32 would give float32.
    """
    from pytensor.graph.basic import Constant
    from pytensor.graph.traversal import toposort
    from pytensor.tensor import constant

    rebuilt, fixed = dict(replaced), set[Graph]()

    def is_fixed(variable: Graph) -> bool:
        return variable in fixed or (isinstance(variable, Constant) and variable not in replaced)

    for node in toposort(list(graphs)):
        if all(map(is_fixed, node.inputs)):
            fixed.update(set(node.outputs) - replaced.keys())
            continue
        for variable in node.inputs:
            if is_fixed(variable) and getattr(variable.type, "dtype", "") == "float32":
                rebuilt[variable] = constant(_value(variable), dtype="float64")
        inputs = [rebuilt.get(variable, variable) for variable in node.inputs]
        if inputs != node.inputs or _is_erfcx(node):
            outputs = [_erfcx(*inputs)] if _is_erfcx(node) else node.op.make_node(*inputs).outputs
            for old, new in zip(node.outputs, outputs, strict=True):
                rebuilt.setdefault(old, new)
    return [rebuilt.get(graph, graph) for graph in graphs]


def _widen_dtype(dtype: npt.DTypeLike) -> str:
    return "float64" if dtype == np.float32 else str(dtype)


def _is_erfcx(node: Graph) -> bool:
    from pytensor.scalar.math import Erfcx

    return isinstance(getattr(node.op, "scalar_op", None), Erfcx)


def _erfcx(x: Graph) -> Graph:
    """exp(x²) erfc(x), which JAX does not have, by what it has. Beyond 25 by the asymptotic series, to 1e-13.

    Below −26 it overflows, and is taken at −26: a finite number where it is computed but not used.
    """
    import pytensor.tensor as pt

    near, far = pt.clip(x, -26.0, 25.0), pt.maximum(x, 25.0)
    q = 0.5 / far**2
    series = 1 - q * (1 - 3 * q * (1 - 5 * q * (1 - 7 * q * (1 - 9 * q))))
    return pt.switch(x < 25, pt.exp(near**2) * pt.erfc(near), series / (far * np.sqrt(np.pi)))


def _is_known(source: Graph) -> bool:
    """Whether it has a value: numbers in the graph, or data."""
    from pytensor.compile import SharedVariable
    from pytensor.graph.basic import Constant

    return isinstance(source, Constant | SharedVariable)


def _row_axis(source: Graph, count: int) -> int | None:
    """The axis of an array along which it has so many rows: the first, or the first after some of length 1."""
    from pytensor.tensor.type import TensorType

    if not (_is_known(source) and isinstance(source.type, TensorType)):
        return None
    return _first_long(np.shape(_value(source)), count)


def _first_long(lengths: Iterable[int], count: int) -> int | None:
    """Where `count` stands among lengths, if there is nothing but 1 before it."""
    for place, length in enumerate(lengths):
        if length == count:
            return place
        if length != 1:
            return None
    return None


def _value(graph: Graph) -> Tree:
    """What a graph of known numbers comes to."""
    from pymc.pytensorf import constant_fold
    from pytensor.compile import SharedVariable
    from pytensor.graph.basic import Constant
    from pytensor.graph.replace import clone_replace
    from pytensor.graph.traversal import graph_inputs
    from pytensor.tensor import constant

    if isinstance(graph, Constant):
        return graph.data
    if isinstance(graph, SharedVariable):
        return graph.get_value(borrow=True)
    shared = {
        source: constant(source.get_value()) for source in graph_inputs([graph]) if isinstance(source, SharedVariable)
    }
    return constant_fold(clone_replace([graph], shared))[0]


def _quantities(model: pymc.Model, rows: _Rows | None) -> dict[str, Graph]:
    """The parameters as the model has them, and what is derived from them without rows; without any rows, all."""
    variables = [*model.free_RVs, *model.deterministics]
    pairs = zip(variables, model.replace_rvs_by_values(variables), strict=True)
    return {variable.name: graph for variable, graph in pairs if rows is None or not rows.has_rows(graph)}


def _start(model: pymc.Model) -> Params:
    """Where PyMC would start; called once, so that nothing is compiled."""
    from pytensor import config

    with config.change_flags(mode="FAST_COMPILE"):
        point = model.initial_point(random_seed=0)
    return {value.name: point[value.name] for value in model.value_vars}


def _library_density(model: pymc.Model, inside: Mapping[str, Graph]) -> LibraryDensity:
    """The density as PyMC computes it with all rows: of the terms with rows, and the whole.

    It is called a few times only, so that nothing is compiled.
    """
    outputs = [*(term.sum() for term in inside.values()), model.logp()]
    function = model.compile_fn(outputs, inputs=model.value_vars, mode="FAST_COMPILE", on_unused_input="ignore")

    def own(params: Params) -> tuple[Parts, jax.Array]:
        *sums, whole = function(params)
        return dict(zip(inside, sums, strict=True)), whole

    return own


def _translator() -> Callable[[Sequence[Graph], Sequence[Graph]], Callable[..., Tree]]:
    """PyMC's translation of graphs to JAX; what loading it changes for JAX as a whole is put back."""
    jax = load_jax()
    flags, precise = os.environ.get("XLA_FLAGS"), jax.config.jax_enable_x64
    try:
        from pymc.sampling.jax import get_jaxified_graph
    finally:
        jax.config.update("jax_enable_x64", precise)
        if flags is None:
            os.environ.pop("XLA_FLAGS", None)
        else:
            os.environ["XLA_FLAGS"] = flags
    return lambda inputs, outputs: get_jaxified_graph(list(inputs), _rebuild_graphs(outputs, {}))


@contextmanager
def _explain_cut_errors(count: int, init: Params) -> Iterator[None]:
    """Where graphs are cut to one row and translated; says why that cannot be."""
    try:
        yield
    except (TypeError, ValueError, IndexError, NotImplementedError) as error:
        own = [name for name, value in init.items() if np.ndim(value) and len(value) == count]
        reason = f"every row has a {own[0]!r} of its own" if own else "it cannot be cut to a single row"
        raise NotByRowsError(reason, "one that can be cut to a single row", first_line(error), _advice(own)) from error


@contextmanager
def _explain_translation_errors() -> Iterator[None]:
    """Where whole graphs are translated; says why that cannot be."""
    try:
        yield
    except (TypeError, ValueError, IndexError, NotImplementedError) as error:
        why = "write it with operations that PyMC's translation to JAX knows"
        raise requirement("model", "one that PyMC can translate to JAX", first_line(error), why) from error


def _advice(own: Sequence[str]) -> str:
    if own:
        return f"{', '.join(map(repr, own))} has as many entries as there are rows; parameters must be shared by rows"
    return "something in it takes all rows together, or is not known to PyMC's translation to JAX"
