"""The gradient's estimates at many states: what the loop does in a step, without the step."""

from __future__ import annotations

import numpy as np
from numba import njit

from svrhmc.kernels.anchors import finish_gradient, full, refresh
from svrhmc.kernels.batches import draw_batches, rows_gradient
from svrhmc.kernels.compiling import ENTRY
from svrhmc.kernels.frames import displace
from svrhmc.kernels.layout import SVRG


@njit(**ENTRY)
def estimate(model, plan, held, sums, batch, draw, words, k0, k1, x, out, chains, step):
    """out = the estimates at the states of some chains, each as the chain would make it in this step.

    A snapshot is taken at each state. `sums` is None where no pass over the rows is made, `batch` and `draw` are None
    where nothing else is: then what they are for is not compiled.
    """
    at, anchor, total, prior, force = held.at, held.anchor, held.sum, model.prior, model.prior_force
    base = np.uint32(step & 0xFFFFFFFF)
    for chain in range(chains[0], chains[1]):
        xc = x[chain]
        for j in range(len(xc)):
            at[j] = xc[j]
        displace(model.frame, xc, held.room, at)
        if sums is not None:
            if batch is None:
                full(model, plan, held, sums)
            else:
                refresh(model, plan, k0[chain], k1[chain], base, held, sums, batch, draw, words)
        if batch is not None:
            draw_batches(model, k0[chain], k1[chain], base, 1, plan, draw, words, batch.rows)
            picked = batch.rows[: plan.batch]
            rows_gradient(model, picked, batch.weights, plan.kind == SVRG, plan.remembers, held, batch)
        finish_gradient(model, plan, held)
        for j in range(len(xc)):
            out[chain, j] = prior[j] * xc[j] - force[j] + anchor[j] + np.float64(total[j])
