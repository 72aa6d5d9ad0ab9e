"""What a sampler costs, in seconds of two cores: the same numbers on every machine, so that a choice depends on the
problem alone.

The constants, in nanoseconds, were measured once by `benchmarks/costs.py`; each loss declares its own cost. Another
machine is faster or slower by a factor that is much the same for all of them, and cancels when samplers are compared.
"""

from __future__ import annotations

from typing import NamedTuple

from svrhmc.gradients import Recipe
from svrhmc.sampling.correction import MANY
from svrhmc.whitening.targets import Space


class _Rates(NamedTuple):
    """Nanoseconds of a row and of an entry, in a pass over all rows and for rows drawn at random."""

    row: float
    entry: float
    some_row: float
    some_entry: float


_NEAR, _FAR = _Rates(2.8, 0.125, 7.4, 0.33), _Rates(2.0, 0.203, 44.0, 0.75)  # dense rows in and beyond the caches
_SPARSE = _Rates(2.2, 0.61, 2.2, 4.85)
_OWN = _Rates(30.0, 4.0, 100.0, 12.0)  # a user's own function, in NumPy
_AT_RANDOM = 3.0  # times what a row of JAX functions takes in a pass
_NEAR_BYTES = 1 << 24
_PASS = 0.125  # least seconds that are assumed for a pass over rows that are not in memory
_CARD = 2.0  # of an entry of the curvature of a row with several predictors
_STEP, _CALL = 160.0, 20_000.0  # of a step, and of a call of a user's own function
_CORRECTED = 1500.0  # of a coordinate of a draw
_DIM, _SQUARE = 7.4, 0.12  # of a coordinate, and of an entry of a whitening


def _rates(space: Space) -> _Rates:
    if not space.scalar_parts:
        own_nanoseconds = space.row_nanoseconds
        return _OWN if own_nanoseconds is None else _Rates(own_nanoseconds, 0.0, _AT_RANDOM * own_nanoseconds, 0.0)
    rows = space.target.rows
    if rows.storage != "dense":
        return _SPARSE
    return _NEAR if space.n * rows.columns * rows.dtype.itemsize <= _NEAR_BYTES else _FAR


def _rates_nearby(rates: _Rates) -> _Rates:
    """The rates of entries that were read just before."""
    return _NEAR if rates is _FAR else rates


def _row_nanoseconds(space: Space, entry: float, near_entry: float) -> float:
    """What a row takes in addition to the constant cost: its loss and its entries, which several predictors read again
    from a nearby cache.
    """
    if not space.scalar_parts:
        return float(entry * space.row_entries)
    stored = space.target.rows.entries_read_once
    return float(space.target.loss.nanoseconds + entry * stored + near_entry * (space.row_entries - stored))


def _row_constants_nanoseconds(space: Space) -> float:
    """The cost of the derivatives of a row with several predictors."""
    return float(_CARD * sum(space.target.loss.predictor_shape) ** 2) if space.scalar_parts else 0.0


def _step_nanoseconds(space: Space) -> float:
    """What a step takes apart from its rows."""
    if not space.scalar_parts:
        return _CALL
    return float(_STEP + _DIM * space.dim + _SQUARE * space.whitening.operations)


def pass_seconds(space: Space) -> float:
    """Value and gradient over all rows, at one state. For rows that are not in memory, as long as a pass took, but at
    least so long that full gradients are not chosen: otherwise the choice would depend on the clock. It does not where
    there is no choice, as single rows cannot be had.
    """
    if space.scalar_parts and not space.target.rows.single:
        return float(space.target.pass_seconds)
    if space.at_hand < space.n:
        return max(float(space.target.pass_seconds), _PASS)
    rates = _rates(space)
    of_row = rates.row + _row_nanoseconds(space, rates.entry, _rates_nearby(rates).entry)
    return float(1e-9 * (space.n * of_row + _step_nanoseconds(space)))


def rows_seconds(space: Space, rows: float) -> float:
    """One step that reads this many rows drawn at random."""
    rates = _rates(space)
    of_row = (
        rates.some_row
        + _row_nanoseconds(space, rates.some_entry, _rates_nearby(rates).some_entry)
        + _row_constants_nanoseconds(space)
    )
    return float(1e-9 * (rows * of_row + _step_nanoseconds(space)))


def correction_seconds(space: Space, draws: int) -> float:
    """Corrected moments and their errors, for each of `draws` draws; with many draws all coordinates are corrected
    together.
    """
    joint_nanoseconds = float(space.dim**2) if draws >= MANY * space.dim else 0.0
    return float(1e-9 * (_CORRECTED * space.dim + _SQUARE * space.whitening.operations + joint_nanoseconds))


def recipe_seconds(space: Space, recipe: Recipe) -> float:
    """One estimate of ∇f, snapshots included."""
    if recipe.full:
        return pass_seconds(space)
    again = pass_seconds(space) / recipe.period if recipe.reference == "snapshot" else 0.0
    return rows_seconds(space, recipe.batch) + again
