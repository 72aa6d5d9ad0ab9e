"""Plans and room for the compiled loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from svrhmc.core.randomness import Purpose
from svrhmc.engines.compiled.models import row_bytes, row_lines, row_shape, slope_kind
from svrhmc.engines.compiled.room import CHUNK_BLOCKS, apart, noise_room, row_width, slots_of, state_width
from svrhmc.gradients import Recipe
from svrhmc.kernels import layout
from svrhmc.scheme import Scheme, normals_of

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
