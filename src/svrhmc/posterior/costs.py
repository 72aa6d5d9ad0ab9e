"""What a sampler takes, in seconds of two cores: the same numbers on every machine, so that a choice depends on the
problem alone.

The constants were measured once (`benchmarks/costs.py`). Another machine is faster or slower by a factor that is much
the same for all of them, and drops out where samplers are compared.
"""

from __future__ import annotations

from typing import Any

_ROW, _ENTRY, _SPARSE_ENTRY = 1.6e-9, 0.17e-9, 0.6e-9  # of a pass over all rows, for each chain
_FAR_ROW, _FAR_ENTRY = 20e-9, 0.5e-9  # of a row drawn at random
_SQUARE, _STEP = 0.3e-9, 0.3e-6  # of dim² and of a step itself
_CALL = 2e-5  # of a call of a user's own function


def of_pass(space: Any) -> float:
    """Value and gradient over all rows, at one state."""
    target = space.target
    if not target.scalar_parts:
        return float(_CALL + target.n * (_ROW + 5 * _ENTRY * target.row_entries))
    entry = _ENTRY if target.rows.storage == "dense" else _SPARSE_ENTRY
    return float(target.n * (_ROW + entry * target.row_entries) + _turn(space))


def of_rows(space: Any, rows: float) -> float:
    """One step that looks at so many rows drawn at random."""
    if not space.scalar_parts:
        return float(_CALL + rows * (_FAR_ROW + 5 * _FAR_ENTRY * space.row_entries))
    return float(_STEP + _turn(space) + rows * (_FAR_ROW + _FAR_ENTRY * space.row_entries))


def _turn(space: Any) -> float:
    """There and back through the whitening."""
    return 2 * _SQUARE * float(space.dim**2 if space.identity_hessian else space.dim)


def of_recipe(space: Any, recipe: Any) -> float:
    """One estimate of ∇f, snapshots included."""
    if recipe.full:
        return of_pass(space)
    again = of_pass(space) / recipe.period if recipe.reference == "snapshot" else 0.0
    return of_rows(space, recipe.batch) + again
