"""Forms in the arrays that compiled code reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.engines.compiled.room import fixed
from svrhmc.kernels import frames, layout, passes, priors, wide
from svrhmc.kernels.known import KERNELS
from svrhmc.targets.forms import QuadraticForm, RowsForm
from svrhmc.targets.rows import Rows

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


MAKERS: dict[str, Callable[[Any], Any]] = {"rows": _of_rows, "blocks": _of_rows, "quadratic": _of_quadratics}


def plain_model(form: RowsForm) -> Any:
    """The rows in the user's variables, with nothing taken out; made once for the same rows, labels, loss and prior."""
    known = _made.setdefault(form.rows, [])
    parts = (form.y, form.prior_precision, form.prior_mean, form.offset, form.weights, form.heavy)
    for others, loss, model in known:
        if loss == form.loss and all(one is other for one, other in zip(parts, others, strict=True)):
            return model
    assert form.loss.kernel is not None
    kind = form.rows.dtype.type
    prior = (fixed(form.prior_precision), fixed(form.prior_precision * form.prior_mean))
    loss, label = form.loss, np.float64 if form.loss.wide else kind
    size = (loss.blocks, loss.shared) if loss.wide else ()
    compiled = KERNELS[form.loss.kernel](*map(kind, loss.numbers), *size)
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
