"""Arrays for compiled code: forms, plans, room that no two threads share, and views that cannot be written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.randomness import MAX_SLOTS, Purpose
from svrhmc.dynamics import Scheme, normals_of
from svrhmc.gradients import Recipe
from svrhmc.kernels import frames, layout, passes, priors
from svrhmc.kernels.layout import ROOM, Noise
from svrhmc.kernels.rows import fixed
from svrhmc.targets.forms import QuadraticForm, RowsForm
from svrhmc.targets.rows import Rows

CHUNK_BLOCKS = 512  # random blocks made together: enough for vector code, little enough for the cache
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
    """To how many numbers a pass reads a row."""
    return int(model.width) if isinstance(model, layout.Model) else dim


def state_width(model: Any, dim: int) -> int:
    """Numbers of a state whose blocks are each as long as that; one block for most losses."""
    k, q = predictors_of(getattr(model, "loss", None))
    return k * row_width(model, dim) + q


def predictors_of(loss: Any) -> tuple[int, int]:
    """(k, q) of a record."""
    return int(getattr(loss, "blocks", 1)), int(getattr(loss, "shared", 0))


def entry_kind(model: Any) -> Any:
    """The type of entries of rows, or of quadratics."""
    return (model.rows[0] if isinstance(model, layout.Model) else model.S).dtype


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
        **_taken(model, removed.predictors, removed.curvatures),
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
    number = np.float64 if form.loss.tail else kind
    added = np.zeros((0, 0)) if form.offset is None else form.offset[:, None]
    rows = form.rows.seen_once
    model = layout.Model(
        rows=rows.compiled,
        width=rows.compiled.width(rows.dim, kind),
        y=fixed(form.y.astype(number)),
        prior=fixed(form.prior_precision),
        prior_force=fixed(form.prior_precision * form.prior_mean),
        loss=form.loss.record(number),
        frame=None,
        inner=None,
        taken=None,
        added=fixed(added.astype(number)),
        weights=None if form.weights is None else fixed(form.weights.astype(number)),
        heavy=make_heavy(form, 0.0, 0),
    )
    known.append((parts, form.loss, model))
    return model


def second_order_model(form: RowsForm, mode: Array) -> Any:
    """Rows in the user's variables less their first two orders at the mode."""
    model = longer(plain_model(form))
    predictors = form.predictors(mode[None, :])[0]
    taken = _taken(model, predictors, form.curvatures(predictors))
    return model._replace(frame=frames.shift(mode), **taken, heavy=make_heavy(form, mode, 0))


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
    nothing = (fixed(np.zeros((0,) * axes, model.y.dtype)) for axes in (2, 3))
    return model._replace(inner=fixed(np.zeros(0)), taken=layout.Taken(*nothing))


def row_shape(model: Any) -> tuple[int, ...]:
    """Of what is kept of a row: the numbers of its predictors, (m,); of a quadratic ()."""
    return (sum(predictors_of(model.loss)),) if isinstance(model, layout.Model) else ()


def row_lines(model: Any) -> tuple[int, ...]:
    """Of the predictors of several rows: a line for each predictor and some room."""
    return tuple(2 * m + ROOM for m in row_shape(model))


def slope_kind(model: Any) -> Any:
    """The type of slopes that are kept: float64 where a row has several."""
    return model.y.dtype if isinstance(model, layout.Model) else entry_kind(model)


STORED = ("dense", "sparse")
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
    return sum(np.asarray(part).nbytes for part in (model.rows if isinstance(model, layout.Model) else (model.S,)))


def stored_entries(model: Any) -> int:
    """Entries of X that are stored; none of quadratics, whose pass is one product."""
    return max(np.size(part) for part in model.rows) if isinstance(model, layout.Model) else 0


def _taken(model: Any, predictors: Any, curvatures: Any) -> dict[str, Any]:
    """What is added to products, t̂, and what is taken from slopes there: as the loops find them, so that what is left
    at u = 0 is 0 to the last digit.
    """
    kind, (m,) = model.y.dtype, row_shape(model)
    t = fixed(predictors.astype(kind).reshape(-1, m))
    base, room = np.zeros_like(t), (np.empty((*row_lines(model), layout.TILE), kind), np.empty((m, layout.TILE), kind))
    passes.all_slopes(model.loss, model.y, t, model.weights, *room, base)
    return {"added": t, "taken": layout.Taken(fixed(base), fixed(curvatures.astype(kind).reshape(-1, m, m)))}


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
    kind, slopes, shape = entry_kind(model), slope_kind(model), row_shape(model)
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
        value=apart(1),
    )
    some = layout.Batch(
        rows=apart(span * batch + plan.snapshot_rows, np.int64),
        weights=np.zeros(0, kind),
        u=apart(wide, kind),
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
