"""The gradient's estimates at many states: what the loop does in a step, without the step."""

from __future__ import annotations

import numpy as np
from numba import njit

from svrhmc.kernels.anchors import finish_gradient, refresh
from svrhmc.kernels.batches import draw_batches, rows_gradient
from svrhmc.kernels.compiling import ENTRY
from svrhmc.kernels.frames import displace
from svrhmc.kernels.layout import FULL, SVRG


@njit(**ENTRY)
def estimate(model, plan, held, sums, batch, draw, noise, k0, k1, x, out, chains, step):
    """out = the estimates at the states of some chains, each as the chain would make it in this step.

    A snapshot is taken at each state.
    """
    at, rows = held.at, batch.rows
    base = np.uint32(step & 0xFFFFFFFF)
    for chain in range(chains[0], chains[1]):
        xc, g = x[chain], out[chain]
        for j in range(len(xc)):
            at[j] = xc[j]
        displace(model.frame, xc, held.room, at)
        if plan.kind == FULL or (plan.kind == SVRG and not plan.anchored):
            refresh(model, plan, k0[chain], k1[chain], base, held, sums, batch, draw, noise.words)
        if plan.kind != FULL:
            draw_batches(model, k0[chain], k1[chain], base, 1, plan, draw, noise.words, rows)
            picked = rows[: plan.batch]
            rows_gradient(model, picked, batch.weights, plan.kind == SVRG, plan.remembers, held, batch)
        finish_gradient(model, plan, held)
        for j in range(len(xc)):
            known = model.prior[j] * xc[j] - model.prior_force[j]
            g[j] = known + held.anchor[j] + np.float64(held.sum[j])
