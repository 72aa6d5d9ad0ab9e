"""Rows with linear predictors in JAX: the gradient of the log likelihood, summed over some rows or over all.

    ∇ Σᵢ wᵢℓ(tᵢ, yᵢ) = Σᵢ wᵢℓ′(tᵢ, yᵢ) aᵢ ,      tᵢ = oᵢ + aᵢᵀx

It stands here once, for one chain and some rows: `Design.predict`, `RowOperations._slopes` and `Design.combine`. Chains
are an axis that `vmap` adds, of the states alone where all chains share the rows, and of the rows too where each has a
batch of its own. A row always has m linear predictors, m = 1 among them. (`gpu.py` has the sum once more, as a kernel.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.nn import sigmoid, softplus
from jax.scipy import special
from jax.sharding import Mesh

from svrhmc.core.arrays import Integers, Reals
from svrhmc.core.jax import Tree
from svrhmc.engines.jax import gpu
from svrhmc.engines.jax.maps import Arrays, Map
from svrhmc.engines.jax.operations import EXACT, Batch, Operations, Source
from svrhmc.families.base import Formulas, Record, Window
from svrhmc.families.primitives import array_primitives
from svrhmc.models.placement import OnDevice, RowPlace, cut_over_devices
from svrhmc.priors.terms import HALF_POWER, HALF_STUDENT, LAPLACE, STUDENT
from svrhmc.rows.csr import CsrMatrix
from svrhmc.rows.forms import RowsForm

_GROUP = 2048  # rows whose sum is made by itself, so that many are made at once
_FEW = 4  # states up to which a GPU multiplies rows with each by itself: products with a narrow matrix are slower
_DIFFERENCE = 1e-5  # of a predictor, relative to 1 + |t|, for second derivatives
_HALF_LOG = 0.9189385332046727  # ½ log 2π
_STIRLING, _STIRLING_TERMS = 10.0, (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_MILLS_TAIL, _MILLS_TERMS = 6.0, 24  # below −6 λ is a continued fraction, which has all digits with so many terms
_BATCHES, _ALL = (0, None, 0), (None, None, 0)  # axes of chains: of rows, of a loss's numbers and of states


def _mills(s: jax.Array) -> tuple[jax.Array, jax.Array]:
    """λ = φ(s)/Φ(s) as the exponential of a difference of logarithms, and s + λ; far out by a continued fraction, as
    the difference would have the rounding of s²/2.
    """
    near = jnp.maximum(s, -_MILLS_TAIL)
    hazard = jnp.exp(-0.5 * near * near - _HALF_LOG - special.log_ndtr(near))
    x = jnp.maximum(-s, _MILLS_TAIL)
    rest = jnp.zeros_like(x)
    for k in range(_MILLS_TERMS, 0, -1):
        rest = k / (x + rest)
    far = s < -_MILLS_TAIL
    return jnp.where(far, x + rest, hazard), jnp.where(far, rest, s + hazard)


def _log_rising(phi: jax.Array, y: jax.Array) -> jax.Array:
    """log Γ(y + φ)/Γ(φ); from φ = 10 on by Stirling's series, (φ + y − ½) log(1 + y/φ) + y log φ − y + r(φ + y) − r(φ),
    as log Γ(φ) is large there. (JAX's betaln has six digits from 8 on.)
    """
    large = jnp.maximum(phi, _STIRLING)
    grown, far = large + y, phi >= _STIRLING
    rest = _stirling_remainder(grown) - _stirling_remainder(large)
    series = (grown - 0.5) * jnp.log1p(y / large) + y * (jnp.log(large) - 1) + rest
    return jnp.where(far, series, special.gammaln(y + phi) - special.gammaln(phi))


def _stirling_remainder(z: jax.Array) -> jax.Array:
    """r(z) = log Γ(z) − (z − ½) log z + z − ½ log 2π, to 1e-16 from z = 10 on."""
    w, total = 1 / (z * z), jnp.zeros_like(z)
    for coefficient in _STIRLING_TERMS[::-1]:
        total = coefficient + w * total
    return total / z


PRIMITIVES = array_primitives(jnp, lambda: special, _log_rising)
PRIMITIVES.mills, PRIMITIVES.softplus, PRIMITIVES.sigmoid = _mills, softplus, sigmoid
PRIMITIVES.soft = lambda v: (softplus(v), sigmoid(v), sigmoid(-v))


@cache
def formulas(record: type[Record]) -> Formulas:
    """Those of a family over JAX's primitives, by the type of its record."""
    functions: Formulas = record.formulas(PRIMITIVES)
    return functions


def slopes(loss: Record, t: jax.Array, y: jax.Array) -> jax.Array:
    """∂ℓ/∂t at linear predictors t, (…, m), of the family whose record, with its numbers, is given."""
    functions = formulas(type(loss))
    slope = functions.slope(loss, *_predictors(loss, t), y)
    if functions.arguments > 1:
        return jnp.stack(slope, axis=-1)
    return slope if _has_blocks(type(loss)) else slope[..., None]


def values_and_slopes(loss: Record, t: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """ℓ and ∂ℓ/∂t at linear predictors t, (rows, m)."""
    functions = formulas(type(loss))
    if functions.both is not None:
        value, slope = functions.both(loss, t[..., 0], y)
        return value, slope[..., None]
    assert functions.value is not None  # where there are not both
    return functions.value(loss, *_predictors(loss, t), y), slopes(loss, t, y)


def _predictors(loss: Record, t: jax.Array) -> list[jax.Array]:
    """The predictors t, (…, m), as formulas take them: each by itself, or all of them on an axis."""
    count = formulas(type(loss)).arguments
    if count > 1:
        return [t[..., j] for j in range(count)]
    return [t if _has_blocks(type(loss)) else t[..., 0]]


def curvatures(loss: Record, t: jax.Array, y: jax.Array) -> jax.Array:
    """∂²ℓ/∂t², (rows, m, m), by central differences of slopes along each predictor, to 1e-10 or so: for a search for
    the mode, and a map to variables in which chains move. (Formulas of curvatures are NumPy's; derivatives of formulas
    with `where` are nan at infinite thresholds.)
    """

    def along(j: int) -> jax.Array:
        step = jnp.zeros_like(t).at[:, j].set(_DIFFERENCE * (1 + jnp.abs(t[:, j])))
        ahead, behind = slopes(loss, t + step, y), slopes(loss, t - step, y)
        return (ahead - behind) / (2 * step[:, j : j + 1])

    half = jnp.stack([along(j) for j in range(t.shape[1])], axis=-1)
    return (half + half.swapaxes(1, 2)) / 2


def _has_blocks(record: type[Record]) -> bool:
    """Whether forms and states have an axis of linear predictors for such a family."""
    return "blocks" in getattr(record, "_fields", ())


@dataclass(frozen=True)
class Design:
    """Rows aᵢ of a design matrix, dense ("X") or sparse ("columns" and "values" of as many entries in every row).

    width: the columns of the matrix. windows: those that each of the m predictors sees, with its coefficients in x; as
    if it saw all, where the coefficients of others are 0. dtype: of the matrix.
    """

    width: int
    windows: tuple[Window, ...]
    sparse: bool
    dtype: np.dtype[np.floating]

    @staticmethod
    def of(form: RowsForm) -> tuple[Design, Arrays]:
        """Of a form, with its arrays."""
        rows: Tree = form.rows.design_matrix
        sparse = rows.storage == "sparse"
        arrays = dict(zip(("columns", "values"), pad_sparse_rows(rows.X), strict=True)) if sparse else {"X": rows.X}
        return Design(rows.dim, form.loss.windows(rows.dim), sparse, rows.X.dtype), arrays

    @property
    def predictors(self) -> int:
        """m: how many predictors see a row."""
        return len(self.windows)

    @property
    def seeing(self) -> list[int]:
        """The predictors that see columns; the others are parameters that all rows share."""
        return [c for c, window in enumerate(self.windows) if not window.shared]

    @property
    def shared(self) -> list[int]:
        """The predictors that are parameters which all rows share."""
        return [c for c, window in enumerate(self.windows) if window.shared]

    def predict(self, rows: Arrays, x: jax.Array) -> jax.Array:
        """aᵢᵀx at one state: (rows, m)."""
        seeing, shared = self.seeing, self.shared
        coefficients = jnp.stack([self._padded(x[window.coefficients], window) for window in self._of(seeing)])
        if self.sparse:
            t = jnp.einsum("ie,iek->ik", rows["values"].astype(jnp.float64), coefficients.T[rows["columns"]])
        else:  # in this order, as else XLA transposes what it gives for all chains
            t = jnp.einsum("kd,id->ki", coefficients.astype(self.dtype), rows["X"], precision=EXACT).T
            t = t.astype(jnp.float64)
        own = _take_places(x, [window.place for window in self._of(shared)])
        values = jnp.concatenate([t, jnp.broadcast_to(own, (len(t), len(shared)))], axis=1)
        return _take_places(values, np.argsort(seeing + shared).tolist())

    def combine(self, rows: Arrays, slopes: jax.Array) -> jax.Array:
        """Σᵢ sᵢaᵢ: (rows, m) → (dim,)."""
        seeing, shared = self.seeing, self.shared
        by_block = _take_places(slopes, seeing).T
        if self.sparse:
            values = rows["values"].astype(jnp.float64) * by_block[:, :, None]
            columns, total = rows["columns"].ravel(), jnp.zeros((len(by_block), self.width))
            total = total.at[:, columns].add(values.reshape(len(by_block), -1))
        else:
            total = self._combine_dense(rows["X"], by_block.astype(self.dtype))
        sums = _take_places(slopes, shared).sum(axis=0)
        parts = {c: total[k, self.windows[c].columns] for k, c in enumerate(seeing)}
        parts |= {c: sums[k : k + 1] for k, c in enumerate(shared)}
        return jnp.concatenate([parts[c] for c in range(self.predictors)])

    def gram(self, rows: Arrays, curvatures: jax.Array) -> jax.Array:
        """Σᵢ Σ_{ab} Cᵢ,ab aᵢ_a aᵢ_bᵀ of dense rows, aᵢ_c being what predictor c sees: (rows, m, m) → (dim, dim)."""
        X = rows["X"]

        def block(a: int, b: int) -> jax.Array:
            of_rows, (one, other) = curvatures[:, a, b], (self.windows[a], self.windows[b])
            if one.shared and other.shared:
                return of_rows.sum()[None, None]
            if one.shared:
                return block(b, a).T
            if other.shared:
                return self._combine_dense(X, of_rows[None].astype(self.dtype))[0, one.columns][:, None]
            return self._products(X, of_rows.astype(self.dtype))[one.columns, other.columns]

        upper = {(a, b): block(a, b) for a in range(self.predictors) for b in range(a, self.predictors)}
        lines = [
            [upper[a, b] if a <= b else upper[b, a].T for b in range(self.predictors)] for a in range(self.predictors)
        ]
        full = jnp.block(lines)
        return (full + full.T) / 2

    def _products(self, X: jax.Array, weights: jax.Array) -> jax.Array:
        """Σᵢ wᵢaᵢaᵢᵀ, in groups as in `_combine_dense`."""
        whole = len(X) // _GROUP * _GROUP
        groups = weights[:whole].reshape(-1, _GROUP, 1), X[:whole].reshape(-1, _GROUP, self.width)
        total = jnp.einsum("gid,gie->gde", groups[0] * groups[1], groups[1], precision=EXACT)
        rest = X[whole:]
        last = jnp.matmul((weights[whole:, None] * rest).T, rest, precision=EXACT)
        return total.sum(axis=0, dtype=jnp.float64) + last

    def _of(self, predictors: list[int]) -> list[Window]:
        return [self.windows[c] for c in predictors]

    def _padded(self, part: jax.Array, window: Window) -> jax.Array:
        """The coefficients of a predictor as if it saw all columns."""
        return jnp.pad(part, (window.first, self.width - window.first - window.width))

    def _combine_dense(self, X: jax.Array, slopes: jax.Array) -> jax.Array:
        """Group by group of rows, whose sums are added in float64, and what is left."""
        whole = len(X) // _GROUP * _GROUP
        groups = slopes[:, :whole].reshape(len(slopes), -1, _GROUP), X[:whole].reshape(-1, _GROUP, self.width)
        total = jnp.einsum("kgi,gid->gkd", *groups, precision=EXACT).sum(axis=0, dtype=jnp.float64)
        return total + jnp.matmul(slopes[:, whole:], X[whole:], precision=EXACT)


def _take_places(array: jax.Array, places: list[int]) -> jax.Array:
    """Some places of the last axis; of a run of them, a slice."""
    run = places == list(range(places[0], places[0] + len(places))) if places else True
    low = places[0] if places else 0
    return array[..., low : low + len(places)] if run else array[..., np.array(places)]


def pad_sparse_rows(matrix: CsrMatrix) -> tuple[Integers, Reals]:
    """The columns and values of sparse rows, (n, most entries of a row); what is missing is 0 in column 0."""
    lengths = np.diff(matrix.indptr)
    shape = (len(lengths), max(1, int(lengths.max(initial=0))))
    columns, values = np.zeros(shape, np.int32), np.zeros(shape, matrix.data.dtype)
    filled = np.arange(shape[1]) < lengths[:, None]
    columns[filled], values[filled] = matrix.indices, matrix.data
    return columns, values


@dataclass(frozen=True)
class RowOperations(Operations):
    """The loss of a family at linear predictors, in the variables of a map, less what was removed at its centre.

    record: the type of the family's record. removed: the highest order that was taken out of every row's loss, 0 to 2.
    Rows have "y" and the arrays of their design; "offset" (n, m), "weights" (n,), "slopes" (n, m) and "curvatures"
    (n, m, m) where there are any.
    """

    n: int
    record: type[Record]
    sizes: tuple[int, int]  # predictors of all columns, and further ones
    design: Design
    map: Map
    removed: int
    place: RowPlace

    @staticmethod
    def of(form: RowsForm) -> Source:
        """The operations on a form of rows, with the arrays that they need."""
        removed, n = form.removed, form.rows.n
        (design, matrix), (variables, map_arrays) = Design.of(form), Map.of(form.whitening)
        m, data = design.predictors, {"y": form.y, **matrix}
        if form.weights is not None:
            data["weights"] = form.weights
        if removed is not None:  # its predictors have the offset
            data |= {"offset": removed.predictors.reshape(n, m), "slopes": removed.slopes.reshape(n, m)}
            data |= {"curvatures": removed.curvatures.reshape(n, m, m)} if removed.second_order else {}
        elif form.offset is not None:  # that of the first predictor
            data["offset"] = np.pad(form.offset[:, None], ((0, 0), (0, m - 1)))
        order = 2 if "curvatures" in data else 1 if "slopes" in data else 0
        shared = {"numbers": np.array(form.loss.numbers, np.float64), **map_arrays, **prior_arrays(form)}
        row = {name: jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for name, array in data.items()}
        place = OnDevice(n, row, n)
        sizes = form.loss.blocks, m - form.loss.blocks
        return Source(RowOperations(n, form.loss.kernel, sizes, design, variables, order, place), shared, data)

    def cut_over_devices(self, mesh: Mesh, data: Tree) -> tuple[Operations, jax.Array]:
        """In sections, each of which is summed at once."""
        place, sections = cut_over_devices(mesh, self.n, self.place.row, self.n, data)
        return replace(self, place=place), sections

    @property
    def dtype(self) -> npt.DTypeLike:
        return self.design.dtype

    @property
    def formulas(self) -> Formulas:
        """The family's formulas, over JAX's primitives."""
        return formulas(self.record)

    @property
    def plain(self) -> bool:
        """Where rows are dense, with one predictor and simple formulas, in the target's own variables."""
        own = self.map.kind is None and not self.removed and not self.design.sparse
        return own and not _has_blocks(self.record) and self.formulas.elementary

    def state_table(self, table: jax.Array) -> jax.Array:
        """Without the axis of predictors where the family has none."""
        return table if _has_blocks(self.record) else table[..., 0]

    def loss(self, numbers: jax.Array) -> Record:
        """The family's record with its numbers."""
        sizes = self.sizes if _has_blocks(self.record) else ()
        return self.record(*(numbers[k] for k in range(len(numbers))), *sizes)

    def _slopes(self, rows: Arrays, numbers: jax.Array, u: jax.Array) -> jax.Array:
        """wᵢℓ′ of some rows at one state, which u is away from the centre: (rows, m)."""
        t = away = self.design.predict(rows, u)
        if "offset" in rows:
            t = rows["offset"] + away
        slope = slopes(self.loss(numbers), t, rows["y"])
        if "weights" in rows:
            slope = slope * rows["weights"][:, None]
        if "slopes" in rows:
            slope = slope - rows["slopes"]
        if "curvatures" in rows:
            slope = slope - _curvature_products(rows["curvatures"], away)
        return slope

    def _gradient(self, rows: Arrays, numbers: jax.Array, u: jax.Array) -> jax.Array:
        """Σᵢ wᵢℓ′aᵢ over some rows at one state."""
        return self.design.combine(rows, self._slopes(rows, numbers, u))

    def row_energies(self, arrays: Arrays, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Σᵢ wᵢℓ and Σᵢ wᵢℓ′aᵢ in the target's own variables, at some states: (states,) and (states, dim)."""

        def of_state(rows: Arrays, numbers: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            t, weights = self._weighted_predictors(rows, x)
            value, slope = values_and_slopes(self.loss(numbers), t, rows["y"])
            return (weights * value).sum(), self.design.combine(rows, weights[:, None] * slope)

        def of_rows(rows: Arrays, numbers: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            if len(x) > _FEW or jax.default_backend() != "gpu":
                return jax.vmap(of_state, _ALL)(rows, numbers, x)
            values, gradients = zip(*(of_state(rows, numbers, state) for state in x), strict=True)
            return jnp.stack(values), jnp.stack(gradients)

        sums: tuple[jax.Array, jax.Array] = self.place.sum_over_rows(arrays["data"], of_rows, arrays["numbers"], x)
        return sums

    def row_derivatives(self, arrays: Arrays, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Σᵢ wᵢℓ, Σᵢ wᵢℓ′aᵢ and Σᵢ wᵢℓ″aᵢaᵢᵀ of dense rows at one state, in float64 throughout: of 10⁷ rows in float32
        a gradient is off by 10⁻⁴ standard deviations, which a search for the mode would not leave.
        """
        precise = replace(self, design=replace(self.design, dtype=np.dtype(np.float64)))

        def of_rows(rows: Arrays, numbers: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            rows = {**rows, "X": rows["X"].astype(jnp.float64)}
            (t, weights), loss = precise._weighted_predictors(rows, x), self.loss(numbers)
            value, slope = values_and_slopes(loss, t, rows["y"])
            curvature = weights[:, None, None] * curvatures(loss, t, rows["y"])
            gradient = precise.design.combine(rows, weights[:, None] * slope)
            return (weights * value).sum(), gradient, precise.design.gram(rows, curvature)

        sums: tuple[jax.Array, jax.Array, jax.Array] = self.place.sum_over_rows(
            arrays["data"], of_rows, arrays["numbers"], x
        )
        return sums

    def row_squares(self, arrays: Arrays, beta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Σ w and Σ w(a, e)(a, e)ᵀ of dense rows, e = y − o − aᵀβ, in float64 throughout."""

        def of_rows(rows: Arrays, beta: jax.Array) -> tuple[jax.Array, jax.Array]:
            X = rows["X"].astype(jnp.float64)
            weights = rows.get("weights", jnp.ones(len(X)))
            rest = rows["y"] - X @ beta - (rows["offset"][:, 0] if "offset" in rows else 0.0)
            both = jnp.concatenate([X, rest[:, None]], axis=1)
            return weights.sum(), jnp.matmul((weights[:, None] * both).T, both, precision=EXACT)

        sums: tuple[jax.Array, jax.Array] = self.place.sum_over_rows(arrays["data"], of_rows, beta)
        return sums

    def _weighted_predictors(self, rows: Arrays, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """tᵢ of some rows at one state, (rows, m), and the weights of the rows."""
        t = self.design.predict(rows, x)
        weights = rows.get("weights", jnp.ones(len(t)))
        return (t + rows["offset"] if "offset" in rows else t), weights

    def parts(self, arrays: Arrays, x: jax.Array, batch: Batch) -> jax.Array:
        """n wᵢℓ′."""
        u = self.map.displace(arrays, x)
        return self.n * jax.vmap(self._slopes, _BATCHES)(batch.data, arrays["numbers"], u)

    def all_parts(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        """Of all rows at once."""
        every, u = jax.vmap(self._slopes, _ALL), self.map.displace(arrays, x)
        return self.n * self.place.map_rows(arrays["data"], every, arrays["numbers"], u)

    def assemble(self, arrays: Arrays, parts: jax.Array, batch: Batch) -> jax.Array:
        """(1/B) Σ_b part_b Wᵀa_{i_b}."""
        return self.map.pull(arrays, jax.vmap(self.design.combine)(batch.data, parts / batch.rows.shape[1]))

    def full_gradient(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        """Σᵢ wᵢℓ′ Wᵀaᵢ."""
        u = self.map.displace(arrays, x)
        return self.map.pull(arrays, self.place.sum_over_rows(arrays["data"], self._sum, arrays["numbers"], u))

    def _sum(self, rows: Arrays, numbers: jax.Array, u: jax.Array) -> jax.Array:
        """Over some rows that all chains share; for one chain on a GPU, where rows are plain, with one read of X."""
        if not gpu.supports_gradient(self, rows, len(u)):
            return jax.vmap(self._gradient, _ALL)(rows, numbers, u)
        whole = len(rows["y"]) // gpu.TILE * gpu.TILE
        rest = {name: array[whole:] for name, array in rows.items()}
        return gpu.gradient(self, rows["X"][:whole], rows["y"][:whole], u[0]) + self._sum(rest, numbers, u)

    def parts_and_gradient(self, arrays: Arrays, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Where all rows are at hand, each slope is evaluated once."""
        if self.place.mesh is not None:
            return super().parts_and_gradient(arrays, x)
        parts = self.all_parts(arrays, x)
        total = jax.vmap(self.design.combine, (None, 0))(arrays["data"], parts / self.n)
        return parts, self.map.pull(arrays, total)

    def hessian_parts(self, arrays: Arrays, direction: jax.Array, batch: Batch) -> jax.Array:
        """n wᵢℓ″ aᵢᵀ·direction; nothing is left in variables from which the second order was taken."""
        if self.removed == 2:
            return jnp.zeros((*batch.rows.shape, self.design.predictors))
        predictors = jax.vmap(self.design.predict)(batch.data, direction)
        m = self.design.predictors
        return _curvature_products(arrays["mode curvatures"][batch.rows].reshape(*batch.rows.shape, m, m), predictors)

    def prior(self, arrays: Arrays, x: jax.Array) -> jax.Array:
        """Λ(x − p) + ψ′; in variables from which something was removed b + M z, and what is left of ψ′."""
        if not self.removed:
            at = self.map.out(arrays, x)
            gradient = (at - arrays["prior mean"]) * arrays["prior precision"] + prior_slopes(arrays, at)
            return self.map.pull(arrays, gradient)
        gaussian_part = x - arrays["force"] if self.removed == 2 else -arrays["force"]
        if self.removed == 2 and "ψ kinds" not in arrays:
            return gaussian_part
        u = self.map.displace(arrays, x)
        rest = prior_slopes(arrays, arrays["centre"] + u) - arrays.get("ψ slopes", 0.0)
        return gaussian_part + self.map.pull(arrays, u * arrays["prior precision"] + rest)


def _curvature_products(curvatures: jax.Array, u: jax.Array) -> jax.Array:
    """Cᵢuᵢ, of m × m curvatures."""
    return (curvatures * u[..., None, :]).sum(axis=-1)


def prior_arrays(form: RowsForm) -> Arrays:
    """Precision and mean of the normal prior, the force that was put back, and of each coordinate the kind of its ψ, 0
    where it has none, the numbers of ψ, and its slope at the centre of variables from which something was removed.

    Where curvatures were removed, the precision is what is left of it.
    """
    heavy, removed, dim = form.heavy, form.removed, form.rows.dim
    arrays: Arrays = {"prior precision": form.prior_precision, "prior mean": form.prior_mean}
    if removed is not None:
        centre = form.whitening.centre
        arrays["force"] = removed.force
        if removed.second_order:
            arrays["prior precision"] = form.prior_precision - form.prior_curvature(centre)
    if heavy is None:
        return arrays
    all_coordinates: Arrays = {"ψ kinds": np.zeros(dim, np.int32), "ψ location": np.zeros(dim)}
    all_coordinates |= {"ψ scale": np.ones(dim), "ψ shape": np.ones(dim)}
    for array, values in zip(
        all_coordinates.values(), (heavy.kinds, heavy.location, heavy.scale, heavy.shape), strict=True
    ):
        array[heavy.columns] = values
    if removed is not None:
        all_coordinates["ψ slopes"] = heavy.slope(centre)
    return arrays | all_coordinates


def prior_slopes(arrays: Arrays, x: jax.Array) -> jax.Array | float:
    """ψ′ of every coordinate at states (chains, dim), by kind; `targets.priors` has the definitions."""
    if "ψ kinds" not in arrays:
        return 0.0
    kinds, d = arrays["ψ kinds"], x - arrays["ψ location"]
    scale, shape = arrays["ψ scale"], arrays["ψ shape"]
    by_kind = {
        STUDENT: (shape + 1) * d / (shape * scale**2 + d**2),
        LAPLACE: d / jnp.hypot(d, shape) / scale,
        HALF_STUDENT: (shape + 1) / (1 + shape * jnp.exp(-2 * d)) - 1,
        HALF_POWER: jnp.exp(shape * d) - 1,
    }
    return jnp.select([kinds == kind for kind in by_kind], list(by_kind.values()), 0.0)
