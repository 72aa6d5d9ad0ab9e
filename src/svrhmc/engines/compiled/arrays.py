"""Arrays for compiled code: forms, plans, room that no two threads share, and views that cannot be written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.randomness import MAX_SLOTS, Purpose
from svrhmc.gradients import Recipe
from svrhmc.kernels import frames, layout, passes, priors, wide
from svrhmc.kernels.layout import DenseModel, Noise
from svrhmc.scheme import Scheme, normals_of
from svrhmc.targets.forms import QuadraticForm, RowsForm
from svrhmc.targets.rows import Rows

CHUNK_BLOCKS = 512  # random blocks made together: enough for vector code, little enough for the cache
_LANES = {np.dtype(np.float32): 32, np.dtype(np.float64): 16}  # numbers that a vector loop takes at once
_PADDING = 1.4  # rows are read to a multiple of that where it costs no more than this
_APART = 128  # bytes


def apart(shape: int | tuple[int, ...], kind: Any = np.float64) -> Any:
    """Zeros with a cache line to spare on both sides, so that two threads never write to the same one."""
    size = math.prod(shape if isinstance(shape, tuple) else (shape,))
    spare = _APART // np.dtype(kind).itemsize
    return np.zeros(size + 2 * spare, kind)[spare : spare + size].reshape(shape)


def slots_of(purpose: Purpose, count: int) -> Any:
    """Second words of the counters of so many blocks."""
    return np.arange(count, dtype=np.uint32) + np.uint32(purpose * MAX_SLOTS)


def row_width(model: Any, dim: int) -> int:
    """To how many numbers a pass reads a row: where it costs little, a dense one to whole vectors."""
    lanes, columns = _LANES[model[0].dtype], (dim - _shared(model)) // _blocks(model)
    width = -(-columns // lanes) * lanes
    return width if isinstance(model, DenseModel) and width <= _PADDING * columns else columns


def state_width(model: Any, dim: int) -> int:
    """Numbers of a state whose blocks are each as long as that; one block for most losses."""
    return _blocks(model) * row_width(model, dim) + _shared(model)


def _blocks(model: Any) -> int:
    return int(getattr(getattr(model, "loss", None), "blocks", 1))


def _shared(model: Any) -> int:
    return int(getattr(getattr(model, "loss", None), "shared", 0))


def noise_room(half: int, span: int, fine: bool = True, words: int = 0) -> Noise:
    """Counters and words for the normals of `span` steps of `half` random blocks each; room for `words` at least."""
    counters = np.arange(span, dtype=np.uint32)
    return Noise(
        steps=np.repeat(counters, half),
        slots=np.tile(slots_of(Purpose.NOISE, half), span),
        fine_slots=np.tile(slots_of(Purpose.NOISE_FINE, half if fine else 0), span),
        words=apart((4, max(words, span * half)), np.uint32),
    )


def chunk_noise(dim: int) -> Noise:
    """Room for the normals of as many steps as are made together."""
    half = (dim + 1) // 2
    return noise_room(half, max(1, CHUNK_BLOCKS // half))


def fixed(array: Any) -> Any:
    """A view that cannot be written, as memory maps are: so that both compile to the same code."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


_models: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by form
_made: WeakKeyDictionary[Rows, list[Any]] = WeakKeyDictionary()  # what a model was made of, and the model


def make_model(form: Any) -> Any:
    """A form in arrays; made once for each form, because what was taken out of the rows takes a pass over them."""
    if form not in _models:
        _models[form] = MAKERS[form.kind](form)
    return _models[form]


def _of_rows(form: RowsForm) -> Any:
    """Rows in the user's variables, or in whitened ones with what was taken out of them."""
    model, how, removed = plain_model(form), form.whitening, form.removed
    if how is None or removed is None:
        return model
    dim = form.rows.dim
    return model._replace(
        prior=fixed(np.ones(dim) if removed.second_order else np.zeros(dim)),
        prior_force=fixed(removed.force),
        frame=make_frame(how),
        inner=fixed(form.prior_precision),
        taken=_taken(model, removed.predictors, removed.curvatures),
        heavy=make_heavy(form, how.centre, 2 if removed.second_order else 1),
    )


def _of_quadratics(form: QuadraticForm) -> Any:
    none = fixed(np.zeros(len(form.mean_force)))
    return layout.GaussianModel(
        S=fixed(form.precision[None] if form.shared else form.precision),
        forces=fixed(form.forces),
        mean_precision=fixed(form.mean_precision),
        mean_force=fixed(form.mean_force),
        prior=none,
        prior_force=none,
        frame=None,
    )


MAKERS: dict[str, Callable[[Any], Any]] = {"rows": _of_rows, "quadratic": _of_quadratics}


def plain_model(form: RowsForm) -> Any:
    """The rows in the user's variables, with nothing taken out; made once for the same rows, labels, loss and prior."""
    known = _made.setdefault(form.rows, [])
    parts = (form.y, form.prior_precision, form.prior_mean, form.offset, form.weights, form.heavy)
    for others, loss, model in known:
        if loss == form.loss and all(one is other for one, other in zip(parts, others, strict=True)):
            return model
    kind = form.rows.dtype.type
    prior = (fixed(form.prior_precision), fixed(form.prior_precision * form.prior_mean))
    compiled, label = form.loss.record(kind), np.float64 if form.loss.tail else kind
    more = (None if each is None else fixed(each.astype(kind)) for each in (form.offset, form.weights))
    rest = (fixed(form.y.astype(label)), *prior, compiled, None, None, None, *more, make_heavy(form, 0.0, 0))
    model = STORED[form.rows.storage](getattr(form.rows, "rows", form.rows), rest)
    known.append((parts, form.loss, model))
    return model


def _dense(rows: Any, rest: tuple[Any, ...]) -> Any:
    return layout.DenseModel(fixed(rows.X), fixed(rows.X.reshape(-1)), *rest)


def _sparse(rows: Any, rest: tuple[Any, ...]) -> Any:
    X = rows.X
    data = X.data[:1] if _same(X.data[:1000]) and _same(X.data) else X.data
    return layout.SparseModel(fixed(data), fixed(X.indices.astype(np.uint32)), fixed(X.indptr.astype(np.uint64)), *rest)


STORED: dict[str, Callable[[Any, tuple[Any, ...]], Any]] = {"dense": _dense, "sparse": _sparse}


def second_order_model(form: RowsForm, mode: Array) -> Any:
    """Rows in the user's variables less their first two orders at the mode."""
    model = longer(plain_model(form))
    predictors = form.predictors(mode[None, :])[0]
    taken = _taken(model, predictors, form.curvatures(predictors))
    return model._replace(frame=frames.shift(mode), taken=taken, heavy=make_heavy(form, mode, 0))


def make_heavy(form: RowsForm, centre: Any, orders: int) -> Any:
    """Priors that are not normal, around a centre, less so many orders there besides their value; None without any."""
    heavy = form.heavy
    if heavy is None:
        return None
    at = np.broadcast_to(centre, form.prior_mean.shape)
    known = (heavy.slope(at), heavy.curvature(at))
    removed = [each[heavy.columns] * (orders > k) for k, each in enumerate(known)]
    away = heavy.location - at[heavy.columns]
    parts = (heavy.columns, heavy.kinds, away, heavy.scale, heavy.shape, *removed)
    return priors.Heavy(*map(fixed, parts))


def longer(model: Any) -> Any:
    """The same model for the longer loop, which knows of SAGA and of rows drawn by weight."""
    if model.taken is not None:
        return model
    axes = (2, 2, 3) if row_shape(model) else (1, 1, 1)
    nothing = [fixed(np.zeros((0,) * count, model.y.dtype)) for count in axes]
    return model._replace(inner=fixed(np.zeros(0)), taken=layout.Taken(*nothing))


def row_shape(model: Any) -> tuple[int, ...]:
    """Of what is kept of a row: one number, (), or those of its predictors, (m,), also where m is 1."""
    loss: Any = getattr(model, "loss", None)
    return (int(loss.blocks + loss.shared),) if hasattr(loss, "blocks") else ()


def row_lines(model: Any) -> tuple[int, ...]:
    """Of the predictors of several rows: one line, or one for each predictor and some room."""
    return tuple(m + wide.ROOM for m in row_shape(model))


def slope_kind(model: Any) -> Any:
    """The type of slopes that are kept: float64 where a row has several."""
    return getattr(model, "y", model[0]).dtype


FRAMES: dict[str, Callable[[Any], Any]] = {
    "dense": lambda how: frames.dense(how.factor),
    "low rank": lambda how: frames.low_rank(how.scale, how.basis, how.gain),
    "sparse": lambda how: how.frame,
}


def make_frame(whitening: Any) -> Any:
    """A whitening in arrays."""
    return FRAMES[whitening.kind](whitening)


def row_bytes(model: Any) -> int:
    """How much is read in a pass over the rows; of quadratics, their precisions."""
    return int(model.data.nbytes + model.columns.nbytes if isinstance(model, layout.SparseModel) else model[0].nbytes)


def stored_entries(model: Any) -> int:
    """Entries of X that are stored; none of quadratics, whose pass is one product."""
    if isinstance(model, layout.GaussianModel):
        return 0
    return int(model.columns.size if isinstance(model, layout.SparseModel) else model.X.size)


def _same(values: Any) -> bool:
    """Whether there are values, and all of them are one number."""
    return len(values) > 0 and bool((values == values[0]).all())


def _taken(model: Any, predictors: Any, curvatures: Any) -> Any:
    """The rows' slopes at t̂ as the loops find them, so that what is left there is 0 to the last digit."""
    kind = model.y.dtype
    t = predictors.astype(kind)
    base = np.zeros_like(t)
    if shape := row_shape(model):
        room = np.empty((*row_lines(model), layout.TILE)), np.empty((*shape, layout.TILE))
        wide.all_wide_slopes(model.loss, t, model.y, model.weights, *room, base)
    else:
        passes.all_slopes(model.loss, t, model.y, model.weights, base)
    return layout.Taken(fixed(t), fixed(base), fixed(curvatures.astype(kind)))


_CHUNK_ROWS = 2048
_NEAR_BYTES = 1 << 20  # rows beyond this are asked for a step ahead


def make_plan(recipe: Recipe, scheme: Scheme, model: Any, second: bool) -> Any:
    """A recipe and a scheme as numbers; `second` where the first two orders at the mode were taken out of the rows."""
    kind = layout.FULL if recipe.full else layout.MINIBATCH if recipe.reference == "none" or second else layout.SVRG
    return layout.Plan(
        n=recipe.n,
        kind=kind,
        batch=recipe.batch or 1,
        epoch=recipe.period,
        replacement=recipe.replacement,
        remembers=recipe.remembers and not second,
        snapshot_rows=recipe.snapshot_rows,
        before=scheme.moves_before,
        before_normals=normals_of(scheme.before_noise),
        first=1,
        thin=1,
        far_rows=row_bytes(model) > _NEAR_BYTES,
        anchored=recipe.reference == "mode" and not second,
        second=second,
        saga=recipe.reference == "table",
        importance=recipe.weighted,
    )


def make_table(scheme: Scheme) -> Any:
    """The sixteen numbers in the order in which the loop reads them, with no kick before the gradient."""
    parts = ((0.0, 0.0), scheme.before, scheme.before_noise, scheme.kick, scheme.after, scheme.after_noise)
    return np.array([number for part in parts for number in part], np.float64)


def make_memory(model: Any, chains: int, dim: int, columns: int) -> Any:
    """Room for what chains remember, with a column for each row whose slope is kept."""
    table = np.zeros((chains, columns), slope_kind(model))
    return layout.Memory(np.zeros((chains, dim)), np.zeros((chains, dim)), table)


def make_workspace(model: Any, plan: Any, dim: int, vectors: int, steps: int) -> Any:
    """Room for one thread; `vectors` of normals are drawn at each step, of which there are at most `steps`."""
    batch = plan.batch
    normals = max(1, vectors) * dim  # at least as many as the loop reads
    kind, slopes, shape = model[0].dtype, slope_kind(model), row_shape(model)
    half = (normals + 1) // 2
    span = max(1, min(CHUNK_BLOCKS // half, _CHUNK_ROWS // batch, steps))
    drawn = max(batch, plan.snapshot_rows)
    size = max(drawn, dim)
    pad, wide = row_width(model, dim), state_width(model, dim)
    passes = plan.kind != layout.MINIBATCH and not plan.snapshot_rows
    blocks = 1 if isinstance(model, layout.GaussianModel) else -(-plan.n // layout.BLOCK)
    counters, tile = np.arange(span, dtype=np.uint32), layout.TILE
    held = layout.Held(
        at=apart(dim, kind),
        snapshot=apart(dim, kind),
        anchor=apart(dim),
        sum=apart(dim, kind),
        memory=apart(1 if plan.anchored or not plan.remembers else plan.n * math.prod(shape), slopes),
        hessian=apart((1, 1)),
        base=apart(dim),
        room=apart(dim),
        extra=apart(dim),
        normals=apart((3, span * half), kind),
        z=apart(normals, kind),
    )
    sums = layout.Pass(
        partial=apart((blocks if passes else 0, dim)),
        wide=apart(wide, kind),
        tile=apart(pad, kind),
        total=apart(wide),
        t=apart((*row_lines(model), tile), slopes),
        slopes=apart((*shape, tile), slopes),
    )
    some = layout.Batch(
        rows=apart(span * batch + plan.snapshot_rows, np.int64),
        weights=np.zeros(0, kind),
        u=apart(wide if shape else size, kind),
        t=apart((*row_lines(model), size), slopes),
        labels=apart((*shape, size), slopes),
        slopes=apart((*shape, size), slopes),
        then=apart((*shape, size), slopes),
    )
    draw = layout.Draws(
        steps=np.repeat(counters, batch),
        slots=np.tile(slots_of(Purpose.BATCH, batch), span),
        seen=apart(1 if plan.replacement else 1 << (4 * drawn - 1).bit_length(), np.int64),
        threshold=np.zeros(0, np.uint32),
        alias=np.zeros(0, np.int64),
    )
    noise = noise_room(half, span, kind == np.float64, max(span * batch, plan.snapshot_rows))
    return layout.Workspace(held, sums, some, draw, noise)


def own_room(sums: Any) -> Any:
    """What a thread writes in its share of a pass; the sums of blocks stay one array."""
    own = {name: apart(array.shape, array.dtype) for name, array in sums._asdict().items() if name != "partial"}
    return sums._replace(**own)
