"""Models of one's own beside BlackJAX and NumPyro on a CPU: tables in Markdown.

    python benchmarks/models.py [--rounds 5] [--only network,logistic,curve,digits] [--out benchmarks/results]

Steps are timed in turn, round after round, in one process, after compilation; a row gives the median of each contender
and the ratio of two medians. BlackJAX's kernels are compiled into one scan with the rows drawn inside it, which is the
fastest way to run them. Its `sghmc` makes ten gradients of one batch in a step; here times are those of a gradient.
"""

import argparse
import importlib.metadata
import os
import platform
import statistics
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import svrhmc
from svrhmc import Sampler, dynamics, gradients, targets
from svrhmc.engines.base import NONE


def medians(rounds, contenders):
    """Median seconds of each contender, measured in turn; the first round is for warming up."""
    times = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            began = time.perf_counter()
            run()
            if turn:
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in times.items()}


def log_network(params, X):
    """Log-probabilities of classes, for one row or many."""
    (w0, b0), (w1, b1) = params
    return jax.nn.log_softmax(jax.nn.relu(X @ w0 + b0) @ w1 + b1)


def network_likelihood(params, row):
    x, y = row
    return jnp.take_along_axis(log_network(params, x), y[..., None], axis=-1)[..., 0]


def normal_prior(params):
    return -0.5 * sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(params))


def network(widths, seed=0):
    """Parameters of a network with one hidden layer, at random."""
    rng = np.random.default_rng(seed)
    sizes = list(zip(widths, widths[1:], strict=False))
    return [(rng.normal(size=(a, b)).astype(np.float32) / a**0.5, np.zeros(b, np.float32)) for a, b in sizes]


def blackjax_kernels(likelihood, prior, n):
    """SGHMC and SGLD: functions of (key, position, batch, step size), with the gradients that each makes."""
    import blackjax

    gradient = blackjax.sgmcmc.gradients.grad_estimator(prior, likelihood, n)
    return {"sghmc": (blackjax.sghmc(gradient, 10).step, 10), "sgld": (blackjax.sgld(gradient).step, 1)}


def blackjax_run(kernel, data, n, batch, steps, step_size):
    """Steps of a kernel in one program; a batch is drawn for each."""

    @jax.jit
    def run(data, position, key):
        def body(position, key):
            for_rows, for_noise = jax.random.split(key)
            rows = jax.random.randint(for_rows, (batch,), 0, n)
            return kernel(for_noise, position, jax.tree.map(lambda leaf: leaf[rows], data), step_size), None

        return jax.lax.scan(body, position, jax.random.split(key, steps))[0]

    data = jax.tree.map(jnp.asarray, data)
    return lambda position, seed=0: jax.block_until_ready(run(data, position, jax.random.key(seed)))


def timed(rounds, ours, kernels, data, n, batch, position, budget):
    """Microseconds of a gradient. ours: names with chains and how many steps are timed; budget: gradients of a
    kernel.
    """
    contenders = {name: lambda chains=chains, steps=steps: chains.extend(steps, NONE) for name, chains, steps in ours}
    counts = {name: steps for name, _, steps in ours}
    for name, (kernel, each) in kernels.items():
        steps = max(1, budget // each)
        run = blackjax_run(kernel, data, n, batch, steps, 1e-7)
        contenders[name], counts[name] = lambda run=run: run(position), steps * each
    found = medians(rounds, contenders)
    return {name: seconds / counts[name] * 1e6 for name, seconds in found.items()}
