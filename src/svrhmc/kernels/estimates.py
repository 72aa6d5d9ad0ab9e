"""The gradient's estimates at many states: what the loop does in a step, without the step."""

from __future__ import annotations

import numpy as np
from numba import njit

from svrhmc.kernels.anchors import batch_gradient, draw_snapshot, finish_gradient, full
from svrhmc.kernels.batches import ask_for, draw_batches
from svrhmc.kernels.compiling import ENTRY, kept
from svrhmc.kernels.frames import displace
from svrhmc.kernels.priors import add_prior


@kept
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
        turn = 1
        if sums is not None:
            for j in range(len(xc)):
                held.snapshot[j] = at[j]
            if plan.snapshot_rows == 0:
                full(model, plan, held, sums)
        if batch is not None:
            draw_batches(model, k0[chain], k1[chain], base, 1, plan, draw, words, batch.rows)
            ask_for(model, plan, held, batch.rows[: plan.batch])
            if plan.snapshot_rows > 0:
                turn = 0
                snapshot = batch.rows[len(batch.rows) - plan.snapshot_rows :]
                draw_snapshot(plan, k0[chain], k1[chain], base, draw, words, snapshot)
            batch_gradient(model, plan, turn, batch.rows[: plan.batch], held, batch)
        finish_gradient(model, plan, held)
        add_prior(model, plan, held)
        for j in range(len(xc)):
            out[chain, j] = prior[j] * xc[j] - force[j] + anchor[j] + np.float64(total[j])
