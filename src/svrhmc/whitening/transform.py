"""The door to targets in whitened variables."""

from __future__ import annotations

from typing import Any

from svrhmc.core.errors import requirement
from svrhmc.density.base import FiniteSum, require_target
from svrhmc.rows.forms import functions_of, rows_of
from svrhmc.whitening.at_mode import whitening
from svrhmc.whitening.maps import Map, Whitening, require_map
from svrhmc.whitening.partitions import WhitenedPartitions
from svrhmc.whitening.targets import Whitened, WhitenedRows


def whitened(target: FiniteSum, how: Map | str | None = None) -> FiniteSum:
    """The target in whitened variables. Any sampler runs on it, and its traces are in your own coordinates.

    how: a `Whitening`, or the kind of one to make at the mode (None: dense up to 2000 columns, diagonal beyond); or any
        `Map` x = T(z), which need not be linear: then full gradients alone are known, as `SplitHMC` needs them.

    >>> from svrhmc import Sampler, dynamics, gradients, targets
    >>> target = targets.logistic([[1.0, 0.5], [1.0, -2.0], [1.0, 1.5]], [1, 0, 1])
    >>> sampler = Sampler(dynamics.BAOAB(1.0, 1.0, 1.0), gradients.Full())
    >>> sampler.run(whitened(target), steps=2000, thin=10).draws.shape
    (4, 200, 2)
    """
    form = rows_of(require_target(target).form())
    known = form is not None and form.whitening is None
    if how is None or isinstance(how, str):
        if not (known or functions_of(target.form()) is not None):
            raise requirement("how", f"a Whitening for {target!r}", repr(how), "its curvature is not known")
        how = whitening(target, how)  # type: ignore[arg-type]
    how = require_map(how, target.dim)
    if form is None or not known or form.terms is not None or not isinstance(how, Whitening):
        return Whitened(target, how)
    kind: Any = WhitenedRows if form.rows.in_memory else WhitenedPartitions
    space: FiniteSum = kind(target, how)
    return space
