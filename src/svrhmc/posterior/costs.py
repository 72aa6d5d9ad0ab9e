"""What a sampler takes, in seconds of two cores: the same numbers on every machine, so that a choice depends on the
problem alone.

The constants, in nanoseconds, were measured once by `benchmarks/costs.py`. Another machine is faster or slower by a
factor that is much the same for all of them, and drops out where samplers are compared.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from svrhmc.gradients import Recipe


class _Rates(NamedTuple):
    """Of a row and of an entry: of a pass over all rows, and of a row drawn at random."""

    row: float
    entry: float
    some_row: float
    some_entry: float


_NEAR, _FAR = _Rates(2.8, 0.125, 7.4, 0.33), _Rates(2.0, 0.203, 44.0, 0.75)  # dense rows in and beyond the caches
_SPARSE = _Rates(2.2, 0.61, 2.2, 4.85)
_OWN = _Rates(30.0, 4.0, 100.0, 12.0)  # a user's own function, in NumPy
_NEAR_BYTES = 1 << 24
_STEP, _CALL = 160.0, 20_000.0  # of a step, and of a call of a user's own function
_CORRECTED = 1500.0  # of a coordinate of a draw
_DIM, _SQUARE = 7.4, 0.12  # of a coordinate, and of an entry of a whitening


def _rates(space: Any) -> _Rates:
    if not space.scalar_parts:
        return _OWN
    rows = space.target.rows
    if rows.storage != "dense":
        return _SPARSE
    return _NEAR if space.n * space.dim * rows.dtype.itemsize <= _NEAR_BYTES else _FAR


def _apart(space: Any) -> float:
    """What a step takes beside its rows."""
    if not space.scalar_parts:
        return _CALL
    return float(_STEP + _DIM * space.dim + _SQUARE * space.whitening.operations)


def of_pass(space: Any) -> float:
    """Value and gradient over all rows, at one state."""
    rates = _rates(space)
    return float(1e-9 * (space.n * (rates.row + rates.entry * space.row_entries) + _apart(space)))


def of_rows(space: Any, rows: float) -> float:
    """One step that looks at so many rows drawn at random."""
    rates = _rates(space)
    return float(1e-9 * (rows * (rates.some_row + rates.some_entry * space.row_entries) + _apart(space)))


def of_correction(space: Any) -> float:
    """Corrected moments and their errors, for each draw."""
    return float(1e-9 * (_CORRECTED * space.dim + space.dim**2))


def of_recipe(space: Any, recipe: Recipe) -> float:
    """One estimate of ∇f, snapshots included."""
    if recipe.full:
        return of_pass(space)
    again = of_pass(space) / recipe.period if recipe.reference == "snapshot" else 0.0
    return of_rows(space, recipe.batch) + again
