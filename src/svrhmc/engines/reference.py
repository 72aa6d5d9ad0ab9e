"""The definition of every sampler, in plain NumPy: a scheme, a gradient, a loop.

z ← P z + Lp ξ ;      g = ∇f̂(x) ;      z ← Q z − k g + Lq ξ′
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DivergenceError, requirement
from svrhmc.core.randomness import Stream
from svrhmc.dynamics import IDENTITY, SILENT, Map, Noise
from svrhmc.engines.base import Job, Outcome

_BLOCK_ELEMENTS = (
    1 << 22
)  # chains are run in blocks whose arrays of (chains, n) or (chains, batch, dim) stay this small


def run(job: Job) -> Outcome:
    """Run the job; chains in blocks, each from start to end."""
    began = time.perf_counter()
    outcome = Outcome.empty(job)
    chains, dim = job.start.shape
    per_chain = job.target.n + dim + job.target.row_size * job.gradient.rows_at_once
    size = max(1, _BLOCK_ELEMENTS // per_chain)
    for begin in range(0, chains, size):
        _run_block(job, slice(begin, min(begin + size, chains)), outcome)
    return replace(outcome, seconds=time.perf_counter() - began)


def _run_block(job: Job, block: slice, outcome: Outcome) -> None:
    scheme, schedule = job.scheme, job.schedule
    stream = Stream(job.seed, job.chains[block])
    estimate = job.gradient.estimator(job.target, stream)
    x, v = job.start[block].copy(), job.velocities()[block]
    chains, dim = x.shape
    for step in range(job.begin, schedule.steps):
        normals = iter(stream.normals(step, scheme.normals * dim).reshape(chains, -1, dim).transpose(1, 0, 2))
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging chain is an error below, not a warning
            x, v = _move(x, v, scheme.before, scheme.before_noise, normals)
            g = estimate(x, step)
            _require_gradient(job, block, step, x, g)
            x, v = _move(x, v, scheme.after, scheme.after_noise, normals)
            x, v = x - scheme.kick.x * g, v - scheme.kick.v * g
        _require_finite(job, block, step, x, v)
        kept = schedule.slot(step + 1)
        if kept is not None:
            outcome.draws[block, kept] = x
            outcome.evaluations[kept] = estimate.evaluations
        job.report(chains)
    outcome.velocity[block] = v


def _move(x: Array, v: Array, linear: Map, noise: Noise, normals: Iterator[Array]) -> tuple[Array, Array]:
    """(x, v) ← M (x, v) + L ξ, taking from `normals` only those that L uses."""
    if linear == IDENTITY and noise == SILENT:
        return x, v
    x, v = linear.xx * x + linear.xv * v, linear.vx * x + linear.vv * v
    if noise.vv or noise.xv:
        first = next(normals)
        x, v = x + noise.xv * first, v + noise.vv * first
    if noise.xx:
        x = x + noise.xx * next(normals)
    return x, v


def _require_gradient(job: Job, block: slice, step: int, x: Array, g: Array) -> None:
    """A gradient that is not finite at an ordinary state is the target's fault, not the step size's."""
    bad = ~np.isfinite(g).all(axis=1) & (np.abs(x).max(axis=1) < 1e30)
    if bad.any():
        chain = int(job.chains[block][int(np.argmax(bad))])
        raise requirement("the gradient", "finite", "nan or inf", f"chain {chain}, step {step + 1}, at a finite state")


def _require_finite(job: Job, block: slice, step: int, x: Array, v: Array) -> None:
    bad = ~(np.isfinite(x).all(axis=1) & np.isfinite(v).all(axis=1))
    if bad.any():
        chain = int(job.chains[block][int(np.argmax(bad))])
        raise DivergenceError(chain, step + 1, job.step_size, job.step_size / 4)
