"""The variables in which a posterior is sampled: whitened at the mode, by the Hessian or by differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.posterior.ledger import Ledger
from svrhmc.targets.base import FiniteSum
from svrhmc.targets.forms import rows_of
from svrhmc.whitening import LowRankWhitening, Whitening, dense_whitening, whitening, whitening_of

_DENSE_CUSTOM = 100  # columns up to which a custom target's Hessian is found by differences


def variables(target: FiniteSum, seed: int, journal: Journal, ledger: Ledger) -> Whitening:
    """The map to whitened variables, found once for a journal."""
    found = journal.get("variables")
    if found is not None:
        ledger.restore(found.said["ledger"])
        how = whitening_of(found.said["kind"], found.arrays, found.said["map"])
        target.recall_mode(how.centre)
    else:
        known = rows_of(target.form()) is not None
        how = _by_hessian(target, ledger) if known else _by_differences(target, seed, ledger)
        journal.put("variables", {"kind": how.kind, "map": how.said(), "ledger": ledger.said()}, dict(how.arrays()))
    return how


def _by_hessian(target: Any, ledger: Ledger) -> Whitening:
    ledger.compile(target.warm)
    how = whitening(target)
    if not target.tells_passes:
        ledger.require_passes(target.mode_passes + 2)  # where the mode was known, nobody has looked yet
        ledger.evaluations += (target.mode_passes + 2) * target.n
    return how


def _by_differences(target: FiniteSum, seed: int, ledger: Ledger) -> Whitening:
    """The curvature at the mode by differences of the gradient: all of it, or its diagonal from random directions."""
    mode = target.mode()
    ledger.require_passes(target.mode_passes)
    ledger.evaluations += target.mode_passes * target.n
    scale = max(1e-5, 1e-5 * float(np.abs(mode).max()))
    if target.dim <= _DENSE_CUSTOM:
        steps = scale * np.eye(target.dim)
    else:
        signs = Stream(seed, np.arange(30)).normals(0, target.dim, Purpose.DATA, Purpose.DATA_FINE)
        steps = scale * np.where(signs > 0, 1.0, -1.0)
    ledger.require_passes(2.0 * len(steps))
    change = np.array([(target.gradient(mode + s) - target.gradient(mode - s)) / (2 * scale) for s in steps])
    ledger.evaluations += 2.0 * len(steps) * target.n
    if target.dim <= _DENSE_CUSTOM:
        return dense_whitening(mode, (change + change.T) / 2)
    diagonal = (change * steps / scale).mean(axis=0)
    floor = 0.05 * float(np.median(np.abs(diagonal)))
    return LowRankWhitening(mode, np.maximum(diagonal, floor) ** -0.5, np.zeros((target.dim, 0)), np.zeros(0))
