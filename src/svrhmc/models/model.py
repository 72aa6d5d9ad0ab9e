"""Any differentiable model: a log-likelihood of a row and a log prior, as JAX functions over pytrees.

    fᵢ(x) = −n log p(rowᵢ | params) − log p(params),      x = ravel(params),

so that f = (1/n) Σ fᵢ is minus the log posterior. JAX is loaded by the first model.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Values, digest
from svrhmc.core.deadline import check_budget, checking_budget
from svrhmc.core.errors import boolean, one_of, requirement
from svrhmc.core.jax import Tree, load_jax, scoped
from svrhmc.core.progress import compilation_stage
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.recording import compute_array_once, compute_once
from svrhmc.core.serialise import pickle_functions
from svrhmc.density.base import FiniteSum, Moments
from svrhmc.density.minima import DENSE, find_minima, find_only_minimum
from svrhmc.density.mode import Minima
from svrhmc.rows.forms import FunctionsForm

if TYPE_CHECKING:
    import jax

    from svrhmc.models.functions import Functions

_ROUNDING = {"float64": 1e-6, "float32": 1e-3}  # of a gradient, relative to its length, by what rows are summed in
TOGETHER = 8  # directions whose products with a Hessian that is not made are found together
_OPERATIONS, _BYTES = 3.0, 8.0  # in a nanosecond
_TURN = 200.0  # nanoseconds of a turn of a loop, for each of some states together
STATES = 64  # around the mode, at which f is looked at together
_INSTANT = 1e6  # nanoseconds of a pass over the rows at so many states that is made whether or not all are needed
_QUICK = 2e6  # nanoseconds of a pass over the rows that may be made at so many states to compile it
_ASIDE = 0.1  # standard deviations of the prior from init, where it is looked at once more
_LOOKED_AT = 4096  # rows, together
_STATED = 1 << 9  # draws of which parameters are found at once
_CARRIED = (
    "functions",
    "constrain",
    "data",
    "terms",
    "observations",
)  # what a pickle may not know by name, or reads in float32 by itself
_BY_ROW = "give the data row by row to svrhmc.targets.model(log_likelihood, log_prior, data, init)"
_NEW = (
    "its functions say how likely y is, and not how it is drawn; draw it from posterior.by_name(), by "
    "pm.sample_posterior_predictive(posterior.to_arviz()) for a PyMC model, or model.predict for one of Bambi"
)
_LIKELIHOODS = 1 << 21  # log-likelihoods of rows under draws, at once
_STATES = 1 << 22  # numbers of gradients of single rows, at once


@scoped
def model(
    log_likelihood: Callable[[Tree, Tree], jax.Array],
    log_prior: Callable[[Tree], jax.Array],
    data: Tree,
    init: Tree,
    *,
    batched: bool = False,
    dtype: str = "float64",
    constrain: Callable[[Tree], Tree] | None = None,
    devices: object = None,
    log_concave: bool = False,
) -> Model:
    """A target made of JAX functions of your own.

    log_likelihood: a function of (params, row) that returns log p(row | params), one number. A row is `data` with one
        entry of each array. With batched=True it is a function of (params, rows), the arrays of which have a leading
        axis, and returns one number for each row, or their sum.
    log_prior: a function of params that returns log p(params), up to a constant.
    data: any pytree of arrays with the same number of rows, such as (X, y) or {"x": X, "y": y}. They are copied to the
        device, unless one is a memory map (`np.load(…, mmap_mode="r")`) or they have no room there: then they stay
        where they are, and blocks and batches of rows are read when they are needed.
    init: any pytree of floating-point arrays: the shape of params, and where the search for the mode starts.
    dtype: of params and rows as your functions see them, "float64" or "float32" (faster on most GPUs, and half the
        memory). With float32, what they compute and its gradient within a block of rows is float32, so that
        differences between states below 1e-7 of their size are lost, and normals have 32 random bits each; states and
        the sums of blocks are float64 with either.
    constrain: a function of params that returns what is to be reported instead of them, such as exp of a log scale, as
        a dictionary of arrays; None to report params as they are. A coordinate that has the name of something else
        there is called "sampled" so.
    devices: None for JAX's default device; "all" to cut the rows over all devices of this host, "gpu" or "cpu" over all
        of that kind; or a list of devices. Each device sums its own rows; chains whose steps use batches are cut over
        the devices instead, where these have room for copies of all rows and are not more than the chains. The draws
        are the same on any number of devices, to rounding.
    log_concave: whether you know that log p(params) + Σ log p(row | params) is concave in params, so that there is one
        mode: no other is looked for, and the verdict can be "exact" in place of "local". Gradients at 64 points are
        compared, and an error says so where they refute it.

    >>> import jax.numpy as jnp
    >>> def log_likelihood(params, row):
    ...     x, y = row
    ...     return -0.5 * (y - params["slope"] * x) ** 2
    >>> def log_prior(params):
    ...     return -0.5 * params["slope"] ** 2
    >>> target = model(log_likelihood, log_prior, (np.array([1.0, 2.0]), np.array([1.0, 3.0])), {"slope": 0.0})
    >>> target.mode().round(6), target.names
    (array([1.166667]), ('slope',))
    """
    jax = load_jax()
    from jax.flatten_util import ravel_pytree

    from svrhmc.models import validation as checked
    from svrhmc.models.functions import Functions, differentiable
    from svrhmc.models.placement import place_rows

    for name, function in (("log_likelihood", log_likelihood), ("log_prior", log_prior)):
        if not callable(function):
            raise requirement(name, "a function", repr(function))
    boolean("batched", batched)
    boolean("log_concave", log_concave)
    kind = jax.numpy.dtype(one_of("dtype", dtype, ("float64", "float32")))
    params = checked.check_parameters(init, kind)
    n = checked.count_rows(data)
    where, placed = place_rows(data, n, kind, devices)
    flat, unravel = ravel_pytree(params)
    checked.require_scalar("log_prior(params)", checked.trace_shapes("log_prior", "(params)", log_prior, params))
    if batched:
        count = min(n, 3)
        few = jax.tree.map(lambda one: jax.ShapeDtypeStruct((count, *one.shape), one.dtype), where.row)
        value = checked.trace_shapes("log_likelihood", "(params, rows)", log_likelihood, params, few)
        checked.is_by_row("log_likelihood(params, rows)", value, count)
        likelihood = log_likelihood
    else:
        value = checked.trace_shapes("log_likelihood", "(params, row)", log_likelihood, params, where.row)
        checked.require_scalar("log_likelihood(params, row)", value)
        likelihood = jax.vmap(log_likelihood, in_axes=(None, 0))
    functions = differentiable(Functions(n, len(flat), likelihood, log_prior, unravel, kind, where))
    with compilation_stage(None):
        named = checked.coordinates(params, constrain)
        target = Model(functions, placed, np.array(flat, np.float64), named, where.numbers, constrain, log_concave)
        target.require_sound()
    return target


class Model(FiniteSum):
    """A log-likelihood and a log prior; made by `model`, whose example shows it.

    names: of the coordinates. `params` gives the pytree of a state. log_concave: whether its density was declared so.
    note: of a model of another library, why all of its data are one component, where they are. dims, coords, observed,
    terms, observations: its names of axes and its observed variables, as `Described` has them.
    """

    scalar_parts = False
    unbounded = "the smoothness of a model is not known; use svrhmc.sample"
    travels = False  # functions need not be known by a name
    terms: Callable[[Tree, Tree], jax.Array] | None = None
    observations: Callable[[Tree, Tree, Tree], dict[str, jax.Array]] | None = None

    def __init__(
        self,
        functions: Functions,
        data: Tree,
        start: Array,
        names: tuple[str, ...],
        entries: float,
        constrain: Callable[[Tree], Tree] | None,
        log_concave: bool = False,
    ) -> None:
        self.log_concave = log_concave
        self.functions, self.data, self.start, self.names, self.constrain = functions, data, start, names, constrain
        self.n, self.dim = functions.n, functions.dim
        self.row_size, self._entries = self.dim, entries
        self._form = FunctionsForm(functions, data)

    def __getstate__(self) -> dict[str, object]:
        """For a pickle: the functions by their names or, where no module has them by name, by value."""
        state = {name: value for name, value in self.__dict__.items() if name not in (*_CARRIED, "_form")}
        return {**state, "pickled": pickle_functions(tuple(getattr(self, name) for name in _CARRIED))}

    @scoped
    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the functions out of a pickle again."""
        functions = pickle.loads(state.pop("pickled"))
        self.__dict__.update(state, **dict(zip(_CARRIED, functions, strict=True)))
        self._form = FunctionsForm(self.functions, self.data)

    def __copy__(self) -> Model:
        copy = Model.__new__(Model)
        copy.__dict__.update(self.__dict__)
        return copy

    def __deepcopy__(self, memo: dict[int, object]) -> Model:
        return self.__copy__()  # functions and arrays of JAX are never changed

    def __repr__(self) -> str:
        return f"Model(n={self.n}, dim={self.dim}{f', note={self.note!r}' if self.note else ''})"

    @scoped
    def require_sound(self) -> None:
        """Refuse functions that are not finite at `init`, not sums over rows, or whose gradient is not their own."""
        from svrhmc.models import functions as of
        from svrhmc.models import validation as checked

        x, functions = self.start, self.functions
        prior = float(of.prior_with_curvature(functions, x)[0])
        if not np.isfinite(prior):
            raise requirement("log_prior(init)", "finite", prior)
        energies = checked.explain_derivative_errors(lambda: self.energies(x[None]))
        if not np.isfinite(energies[0]).all():
            self._require_finite_rows()
        noise = Stream(0, np.arange(1)).normals(0, self.dim, Purpose.START, Purpose.START_FINE)[0]
        alike, precise = False, functions.dtype == np.float64
        aside = x + _ASIDE * self.prior_spread() * noise  # at init a coefficient may be 0, and hide something
        for at in (x, aside) if precise else (x,):
            alike = checked.sums(partial(of.totals_of, functions, self.data, at), self.n)
        if precise and alike and checked.rows_differ(functions.place.take(self.data, checked.sample_rows(self.n))):
            why = "does it use arrays from outside in place of `row`? A density that has no rows is given with one row"
            raise requirement("log_likelihood", "a function of its row", "the same number for rows that differ", why)
        slope = np.asarray(energies[1])[0]
        if not np.isfinite(slope).all():
            which = self.names[int(np.argmax(~np.isfinite(slope)))]
            why = (
                "a derivative that is infinite or 0/0 at init; give another init, or guard the function with jnp.where"
            )
            raise requirement(f"the gradient at init, in {which},", "finite", "nan or inf", why)
        if precise:
            checked.require_correct_gradient(lambda at: self.potentials(at[None])[0], slope, x)

    def _require_finite_rows(self) -> None:
        """An error that names the first row whose log-likelihood at `init` is not finite."""
        from svrhmc.models.functions import log_likelihoods

        wrong, row, value = 0, 0, ""
        for begin in checking_budget(range(0, self.n, _LOOKED_AT)):
            rows = np.arange(begin, min(begin + _LOOKED_AT, self.n))
            values = np.asarray(log_likelihoods(self.functions, self.data, self.start, rows))
            bad = np.flatnonzero(~np.isfinite(values))
            if len(bad) and not wrong:
                row, value = int(rows[bad[0]]), f"{values[bad[0]]}"
            wrong += len(bad)
        if wrong:
            why = f"{wrong:,} of {self.n:,} rows; give another init, or correct the data"
            raise requirement(f"log_likelihood(init, row {row})", "finite", value, why)

    @scoped
    def log_prior_at(self, x: Array) -> Array | None:
        """Not of a model of another library, whose prior is one of its parameters and not of these coordinates."""
        if self.observed:
            return None
        return np.asarray(load_jax().vmap(self.functions.log_prior)(np.asarray(x, np.float64)), np.float64)

    def row_log_likelihoods(self, x: Array) -> Iterator[tuple[int, Array]]:
        """log p(row | params) of all rows under draws."""
        if self.observed_count == 1:
            why = self.note.removesuffix(".") or _BY_ROW
            raise requirement("the model", "a sum over rows, to have a log-likelihood of each", "one component", why)
        if self.terms is not None:
            return iter([(0, self._of_values(x))])
        size = max(1, _LIKELIHOODS // len(x))
        return ((begin, self._likelihoods(x, begin, size)) for begin in checking_budget(range(0, self.n, size)))

    @cached_property
    @scoped
    def observed_count(self) -> int:  # type: ignore[override]
        """Rows, or the observed values of a model that is one component."""
        return self.n if self.terms is None else int(load_jax().eval_shape(self._terms_at, self.start[None]).shape[1])

    @scoped
    def observed_values(self) -> dict[str, Values]:
        if self.observations is None:
            return {}
        rows = self.functions.place.take(self.data, np.arange(self.n))
        values = self.observations(self.functions.params(self.start), rows, None)
        return {name: np.asarray(value) for name, value in values.items()}

    @scoped
    def drawn_observations(self, x: Array, seed: int) -> dict[str, Values]:
        if self.observations is None:
            raise requirement("posterior_predictive", "False for this model", True, _NEW)
        from svrhmc.models.functions import new_observations

        keys = load_jax().random.split(load_jax().random.key(seed), len(x))
        new = new_observations(self.functions, self.observations, self.data, x, keys)
        return {name: np.asarray(value) for name, value in new.items()}

    @scoped
    def _of_values(self, x: Array) -> Array:
        return np.asarray(self._terms_at(np.asarray(x, np.float64)), np.float64)

    def _terms_at(self, x: Array) -> jax.Array:
        from svrhmc.models.functions import value_log_likelihoods

        assert self.terms is not None  # where it is asked
        terms: jax.Array = value_log_likelihoods(self.functions, self.terms, self.data, x)
        return terms

    @scoped
    def _likelihoods(self, x: Array, begin: int, size: int) -> Array:
        from svrhmc.models.functions import row_log_likelihoods

        rows = np.arange(begin, min(begin + size, self.n))
        return np.asarray(row_log_likelihoods(self.functions, self.data, np.asarray(x, np.float64), rows), np.float64)

    def params(self, x: npt.ArrayLike) -> Tree:
        """The pytree that a state stands for."""
        with_scope = scoped(self.functions.params)
        return with_scope(np.asarray(x, np.float64))

    @scoped
    def stated(self, draws: Array) -> tuple[tuple[str, ...], Array] | None:
        """What `constrain` makes of every draw."""
        if self.constrain is None:
            return None
        from svrhmc.models.functions import constrained_values
        from svrhmc.models.validation import coordinate_names, flatten_values

        constrain, flat = self.constrain, draws.reshape(-1, self.dim)
        labels = coordinate_names(
            load_jax().eval_shape(lambda state: constrain(self.functions.params(state)), self.start)
        )
        size = min(_STATED, len(flat))
        padded = np.concatenate([flat, np.repeat(flat[-1:], -len(flat) % size, axis=0)]).reshape(-1, size, self.dim)

        def quantities(some: Array) -> Array:
            return flatten_values(constrained_values(self.functions, constrain, some))

        blocks = [compute_array_once(partial(quantities, some), (size, len(labels))) for some in padded]
        return labels, np.concatenate(blocks)[: len(flat)].reshape(*draws.shape[:2], -1)

    def form(self) -> FunctionsForm:
        return self._form

    @scoped
    def identity(self) -> dict[str, object]:
        """The data, and what the functions give for a hundred rows at two points."""
        functions = self.functions
        return {**super().identity(), "data": digest(*functions.place.host_arrays(self.data))}

    @property
    def row_entries(self) -> float:
        """Numbers of a row."""
        return self._entries

    def mode(self) -> Array:
        """The heaviest of the minima, found once."""
        return self.minima.first.copy()

    def modes(self) -> Array:
        """All minima found that matter, the heaviest first."""
        return self.minima.points.copy()

    @property
    def doubt(self) -> str:  # type: ignore[override]
        """Why other modes may be there than those that were found, once they were looked for."""
        return self.minima.doubt

    def recall_mode(self, mode: Array) -> None:
        """Unless it is known already."""
        self.recall_modes(mode[None, :], "", "one that was given", None)

    def recall_modes(self, modes: Array, doubt: str, starts: str, one_mode: str | None) -> None:
        """Unless they are known already."""
        self.__dict__.setdefault("minima", Minima(np.array(modes), 0.0, starts, doubt))

    @property
    def one_mode(self) -> str | None:
        return "its density is log-concave, as was declared" if self.log_concave else None

    @property
    def mode_starts(self) -> str:
        return self.minima.starts

    @cached_property
    def minima(self) -> Minima:
        """Where f has minima, the heaviest first."""
        if self.log_concave:
            result = find_only_minimum(self, self.start, _ROUNDING[self.functions.dtype.name])
        else:
            result = find_minima(self, self.start)
        self.mode_passes = result.passes
        return result

    @cached_property
    def modal_hessian(self) -> Array:
        """∇²f at the mode."""
        return self.hessian(self.mode())

    @cached_property
    def typical_curvature(self) -> float:
        """λ_max of ∇²f at the mode: nothing bounds it elsewhere."""
        if self.dim > DENSE:
            why = f"it would be found from the Hessian at the mode, which is made of up to {DENSE:,} coordinates"
            raise requirement("inverse_mass", "given", "None", why)
        return float(np.linalg.eigvalsh(self.modal_hessian)[-1])

    @scoped
    def warm(self) -> None:
        """Compile what passes over the rows need, so that it is not timed with them."""
        from svrhmc.models.functions import COLUMNS

        self.energies(self.start[None])
        for count in (COLUMNS,) if self.dim <= DENSE else (1, TOGETHER):
            self.hessian_products(self.start, np.zeros((count, self.dim)))
        if self.n * self.row_nanoseconds < _QUICK:
            self.energies(np.repeat(self.start[None], STATES, axis=0))

    @cached_property
    @scoped
    def row_nanoseconds(self) -> float:  # type: ignore[override]
        """What f and ∇f of a row take at one state, from operations and bytes that the compiler counts, and the turns
        of loops, of which each takes its time however little it does.
        """
        from svrhmc.models.functions import operations_of_row

        operations, moved, turns = operations_of_row(self.functions)
        return float(max(operations / _OPERATIONS, moved / _BYTES, 1.0) + _TURN * turns)

    @scoped
    def hessian(self, x: Array) -> Array:
        """∇²f at one state, dense."""
        from svrhmc.models.functions import hessian

        check_budget()
        return np.asarray(hessian(self.functions, self.data, np.asarray(x, np.float64)), np.float64)

    @scoped
    def hessian_products(self, x: Array, directions: Array) -> Array:
        """∇²f(x)·d for some directions."""
        from svrhmc.models.functions import products

        at = np.asarray(x, np.float64)
        return np.array(
            compute_array_once(
                lambda: products(self.functions, self.data, at, directions), directions.shape, (at, directions)
            )
        )

    @scoped
    def prior_spread(self) -> Array:
        """A standard deviation of every coordinate under the prior, by its curvature at `init`; 1 where it is flat."""
        from svrhmc.models.functions import prior_with_curvature

        bend = np.asarray(prior_with_curvature(self.functions, self.start)[1])
        curved = np.isfinite(bend) & (bend > 0)
        return np.asarray(np.where(curved, np.where(curved, bend, 1.0) ** -0.5, 1.0), np.float64)

    @scoped
    def potentials(self, x: Array) -> Array:
        """f at each state."""
        from svrhmc.models.functions import potentials

        check_budget()

        def compute() -> Array:
            return np.concatenate([potentials(self.functions, self.data, piece) for piece in self._pieces(x)])[: len(x)]

        return np.array(compute_array_once(compute, (len(x),), x))

    @scoped
    def energies(self, x: Array) -> tuple[Array, Array]:
        """f and ∇f at each state, by one pass."""
        from svrhmc.models.functions import energies

        check_budget()

        def compute() -> tuple[Array, Array]:
            pieces = [x] if 1 < len(x) < STATES else self._pieces(x)  # chains that move are not filled up
            results = [energies(self.functions, self.data, piece) for piece in pieces]
            values, slopes = map(np.concatenate, zip(*results, strict=True))
            return values[: len(x)], slopes[: len(x)]

        return compute_once(compute, (len(x),), np.shape(x), depends_on=np.asarray(x))

    def _pieces(self, x: Array) -> list[Array]:
        """The states, in pieces of STATES where these take next to no time, the last one filled up with states again:
        one program then serves any number of states. Otherwise all of them together.
        """
        if STATES * self.n * self.row_nanoseconds > _INSTANT:
            return [x]
        count = -(-len(x) // STATES)
        return np.split(np.resize(x, (count * STATES, self.dim)), count)

    def gradients(self, x: Array) -> Array:
        """∇f at each state."""
        return self.energies(x)[1]

    @scoped
    def parts(self, x: Array, indices: Indices | None) -> Array:
        """−n∇log p of single rows."""
        from svrhmc.models.functions import parts

        rows = np.broadcast_to(np.arange(self.n), (len(x), self.n)) if indices is None else indices
        size = max(1, _STATES // (self.dim * max(1, len(x))))
        gradients = [
            np.asarray(parts(self.functions, self.data, x, rows[:, first : first + size]))
            for first in checking_budget(range(0, rows.shape[1], size))
        ]
        return np.asarray(-self.n * np.concatenate(gradients, axis=1), np.float64)

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """The mean over the batch."""
        mean: Array = parts.mean(axis=1)
        return mean

    @scoped
    def prior_gradient(self, x: Array) -> Array:
        """−∇log p(params)."""
        from svrhmc.models.functions import prior_gradient

        return -np.array(prior_gradient(self.functions, x))

    def laplace(self) -> Moments:
        """The Gaussian at the mode with the inverse Hessian there."""
        covariance = np.linalg.inv(self.modal_hessian)
        return Moments(self.mode(), (covariance + covariance.T) / 2)

    def _with_quadratic(self, strength: float, centre: Array) -> Model:
        """The same with another log prior."""
        from dataclasses import replace

        inner, jax = self.functions.prior, load_jax()
        from jax.flatten_util import ravel_pytree

        def prior(params: Tree) -> Tree:
            away = ravel_pytree(params)[0] - jax.numpy.asarray(centre)
            return inner(params) - strength / 2 * (away @ away)

        functions = replace(self.functions, prior=prior)
        model = Model(functions, self.data, self.start, self.names, self._entries, self.constrain, self.log_concave)
        model.note = self.note
        return model
