"""The variables in which a posterior is sampled: whitened at the mode, by the Hessian or by differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.errors import optional, text
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.posterior import costs
from svrhmc.posterior.ledger import Ledger
from svrhmc.targets.base import FiniteSum
from svrhmc.targets.forms import FunctionsForm, rows_of
from svrhmc.whitening import LowRankWhitening, Whitening, dense_whitening, whitening
from svrhmc.whitening.made import whitening_in
from svrhmc.whitening.nearest import nearest

_MODES = "modes"
_SAID = ("doubt", "starts", "one mode")  # of modes, in words
_SEARCH = "search"  # the record of what was found on the way to the mode, and of the curvature there
_DENSE_CUSTOM = 100  # columns up to which a custom target's Hessian is found by differences


def variables(target: FiniteSum, seed: int, journal: Journal, ledger: Ledger) -> Whitening:
    """The map to whitened variables, found once for a journal."""
    found = journal.get("variables")
    if found is not None:
        ledger.restore(found)
        how = whitening_in(found, target.dim, beside=(_MODES,))
        modes, alone = found.array(_MODES, (None, target.dim)), found.value(_SAID[2], optional, text)
        if not len(modes):
            raise found.unusable("it has no mode")
        if len(np.unique(modes, axis=0)) < len(modes) or (alone is not None and len(modes) > 1):
            raise found.unusable("it has one mode several times, or several where there is one")
        doubt, starts = (found.value(name, text) for name in _SAID[:2])
        target.recall_modes(modes, doubt, starts, alone)
    else:
        with journal.recording(_SEARCH, ledger):
            how = _found(target, seed, ledger)
            modes, known = target.modes(), (target.doubt, target.mode_starts, target.one_mode)
        said = {"kind": how.kind, "map": how.said(), "ledger": ledger.said(), **dict(zip(_SAID, known, strict=True))}
        journal.put("variables", said, {**how.arrays(), _MODES: modes})
        journal.remove(_SEARCH)
    return how


def _found(target: Any, seed: int, ledger: Ledger) -> Whitening:
    """By what the target's form tells."""
    form = target.form()
    if rows_of(form) is not None:
        return _by_hessian(target, ledger)
    if form is not None and form.kind == FunctionsForm.kind:
        return _of_bulk(target, _by_hessian(target, ledger), ledger)
    return _by_differences(target, seed, ledger)


def _of_bulk(target: Any, how: Whitening, ledger: Ledger) -> Whitening:
    """Another map where most of a posterior with one mode lies elsewhere, and the budget allows to look."""
    alone = len(target.modes()) == 1 and not target.doubt
    return nearest(target, how, ledger, costs.of_pass(target)) if alone else how


def _by_hessian(target: Any, ledger: Ledger) -> Whitening:
    ledger.compile(target.warm)
    how = whitening(target)
    if not target.tells_passes:
        ledger.require_passes(target.mode_passes + 2)  # where the mode was known, nobody has looked yet
        ledger.evaluations += (target.mode_passes + 2) * target.n
    return how


def _by_differences(target: FiniteSum, seed: int, ledger: Ledger) -> Whitening:
    """The curvature at the mode by differences of the gradient: all of it, or its diagonal from random directions."""
    if target.dim <= _DENSE_CUSTOM:
        ways = np.eye(target.dim)
    else:
        signs = Stream(seed, np.arange(30)).normals(0, target.dim, Purpose.DATA, Purpose.DATA_FINE)
        ways = np.where(signs > 0, 1.0, -1.0)
    ledger.after = 2.0 * len(ways)
    mode = target.mode()
    ledger.require_passes(target.mode_passes)
    ledger.evaluations += target.mode_passes * target.n
    ledger.done, ledger.after = 1.0, 0.0
    ledger.require_passes(2.0 * len(ways))
    scale = max(1e-5, 1e-5 * float(np.abs(mode).max()))
    change = np.empty((len(ways), target.dim))
    steps = scale * ways
    for number, step in enumerate(steps):
        ledger.done = (target.mode_passes + 2 * number) / (target.mode_passes + 2 * len(ways))
        change[number] = (target.gradient(mode + step) - target.gradient(mode - step)) / (2 * scale)
    ledger.evaluations += 2.0 * len(ways) * target.n
    if target.dim <= _DENSE_CUSTOM:
        return dense_whitening(mode, (change + change.T) / 2)
    diagonal = (change * steps / scale).mean(axis=0)
    floor = 0.05 * float(np.median(np.abs(diagonal)))
    return LowRankWhitening(mode, np.maximum(diagonal, floor) ** -0.5, np.zeros((target.dim, 0)), np.zeros(0))
