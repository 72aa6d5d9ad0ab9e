"""Tails so heavy that there is no variance to report."""

from __future__ import annotations

import math

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.posterior.drawing import Drawn
from svrhmc.posterior.ledger import Ledger
from svrhmc.targets.base import FiniteSum
from svrhmc.targets.forms import FunctionsForm

_BULGE = 4.0  # E a⁴/(E a²)² of draws, 3 for a Gaussian, from which a coordinate's tail is looked at
_MOST = 8  # coordinates that are looked at
_NEAR, _FAR = 1e4, 1e8  # standard deviations from the mode between which f is compared
_POWER = 3.0  # of 1/|a| in a density, up to which E a² is infinite
_SHARE = 1e-20  # of E a² that a tail has to hold along its ray; the volume of the other coordinates is not known there


def heavy_tail(target: FiniteSum, drawn: Drawn, sd: Array, ledger: Ledger) -> str:
    """A doubt, where the density falls so slowly along a coordinate that its variance is infinite; else empty.

    Along a ray from the mode, with the other coordinates as they are there, let f grow like c·log t: between 10⁴ and
    10⁸ standard deviations by c·log 10⁴. A density like t^{−c} has a variance for c > 3 alone. Draws do not show it:
    no chain of a reasonable length gets so far. They tell where to look: at coordinates with many draws far out. Only
    models of functions are looked at, as others say themselves whether they are proper, and where a budget allows it.

    A tail counts where it holds some of E a²: t³·exp(f(x̂) − f(x̂ + t d)) is its share between t and 2t standard
    deviations, d along the ray. Where f has risen by thousands before it becomes flat, because exp(t) is 0 or a
    probability is rounded to 1, the share is 0, and what f does there is of no consequence.
    """
    if drawn.stopped or not (isinstance(target.form(), FunctionsForm) and ledger.pays(0.0, 4.0 * _MOST)):
        return ""
    a = drawn.x.reshape(-1, target.dim) - drawn.x.mean(axis=(0, 1))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squares = a * a
        bulge = (squares * squares).mean(axis=0) / squares.mean(axis=0) ** 2
    worst = np.argsort(-bulge, kind="stable")[:_MOST]
    worst = worst[bulge[worst] > _BULGE]
    if not len(worst):
        return ""
    mode, count = target.mode(), len(worst)
    rays = np.zeros((count, target.dim))
    rays[np.arange(count), worst] = sd[worst]
    far_off = [mode + s * t * rays for t in (_NEAR, _FAR) for s in (-1.0, 1.0)]
    states = np.concatenate([mode[None], *far_off])
    ledger.evaluations += float(len(states)) * target.n
    with np.errstate(over="ignore", invalid="ignore"):
        f = target.potentials(states)
        near, far = (f[1:] - f[0]).reshape(2, 2, count)
        log_share = np.maximum(3 * math.log(_NEAR) - near, 3 * math.log(_FAR) - far)
        counts = np.isfinite(far - near) & (log_share > math.log(_SHARE))
        powers = np.where(counts, (far - near) / math.log(_FAR / _NEAR), np.inf).min(axis=0)
    least = int(np.argmin(powers))
    if not powers[least] <= _POWER:
        return ""
    name = target.names[worst[least]]
    return (
        f"far from its mode the density falls along {name} only like 1/|{name}|^{max(powers[least], 0.0):.2g}, so that "
        "the posterior has no variance, and perhaps no mean or no integral; give a prior with a lighter tail"
    )
