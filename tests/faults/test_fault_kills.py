"""Calls that are killed again and again: they come to their end, with the numbers of one that nobody disturbed.

Quick ones count the work itself: a life is so many calls of the user's function, reads of a partition or looks at a block
of columns, and everything is recorded at once. A stage that needs more of them, and is not recorded on its way, would
never end. The slow ones are killed for good, after 8 seconds of the processor.
"""

import os
import sys
from contextlib import suppress

import numpy as np
import pytest
from killed_calls import CALLS, numbers, until_it_ends

import svrhmc
from svrhmc import checkpoint, diagnostics, targets
from svrhmc.data import arrays
from svrhmc.density.custom import Custom
from svrhmc.models import functions

MOST = 200  # lives
pytestmark = pytest.mark.filterwarnings("ignore")  # what is said of these posteriors is of no matter


class Killed(BaseException):
    """The end of a life."""


class Work:
    """Counts, and ends a life after so many."""

    def __init__(self):
        self.most, self.made = np.inf, 0

    def __call__(self):
        if self.made >= self.most:
            raise Killed
        self.made += 1

    def counted(self, function):
        def called(*arguments, **settings):
            self()
            return function(*arguments, **settings)

        return called


@pytest.fixture
def work(monkeypatch):
    made = Work()
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)  # every result is written,
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # at once, as no machine is cut off here
    monkeypatch.setattr(diagnostics, "_BLOCK", 1)  # two columns at a time
    monkeypatch.setattr(diagnostics, "_effective_draws", made.counted(diagnostics._effective_draws))
    return made


def require_the_same(call, work, most, folder, another=""):
    """A call ends after several lives of so much work, and its numbers are those of a single one, but for `another`."""
    whole, lives, parts = numbers(call(None)), 0, None
    total = work.made
    work.most = most
    while parts is None and lives < MOST:
        work.made, lives = 0, lives + 1
        with suppress(Killed):
            parts = numbers(call(folder))
    assert parts is not None, "it does not come to its end"
    assert lives > 2 + total // (4 * most)
    assert [name for name in whole if not np.array_equal(whole[name], parts[name])] in ([], [another])


def test_a_call_with_slow_functions_of_the_users_own(work, monkeypatch, tmp_path):
    """A gradient takes 5 calls, the mode and the curvature there some hundred, a life has 25."""
    monkeypatch.setattr(sys.modules[Custom.__module__], "_BLOCK_ELEMENTS", 24)
    X = np.random.default_rng(0).normal(size=(40, 3))
    gradients = work.counted(lambda x, rows: 40 * (np.exp(X[rows] @ x / 4) - 1)[:, None] * X[rows] / 4 + x)

    def call(folder):
        target = targets.custom(40, 3, gradients, smoothness=100.0)
        return svrhmc.sample(target, 10, 2, 1.0, method="ubu", threads=1, certificate=False, checkpoint=folder)

    require_the_same(call, work, 25, tmp_path / "c")


def test_a_call_on_partitions(work, monkeypatch, tmp_path):
    """A pass takes 12 reads, a life has 16."""
    monkeypatch.setattr(arrays.ArraysReader, "read", work.counted(arrays.ArraysReader.read))
    X = np.random.default_rng(0).normal(size=(3000, 3))
    y = X[:, 0] + np.random.default_rng(1).normal(size=3000) > 0

    def call(folder):
        rows = svrhmc.data.from_arrays(X, y, partitions=12)
        return svrhmc.sample(targets.glm(rows, None, "bernoulli"), 100, threads=1, checkpoint=folder)

    require_the_same(call, work, 16, tmp_path / "c", "all passes")  # rows that are fetched again are counted again


def test_a_call_with_many_coefficients(work, tmp_path):
    """Effective draws, moments and tails of 8 coefficients, two at a time."""
    X = np.random.default_rng(0).normal(size=(60, 8))

    def call(folder):
        target = targets.logistic(X, X[:, 0] > 0.3)
        return svrhmc.sample(target, 100, threads=1, method="split-hmc", checkpoint=folder)

    require_the_same(call, work, 9, tmp_path / "c")


@pytest.mark.slow
def test_a_call_of_jax_functions(work, monkeypatch, tmp_path):
    """Searches from several starts, the nearest Gaussian law, and parameters of blocks of draws."""
    import jax.numpy as jnp

    for name in ("energies", "products", "potentials", "stated"):
        monkeypatch.setattr(functions, name, work.counted(getattr(functions, name)))
    y = np.random.default_rng(0).normal(size=(8, 1)) + np.zeros((8, 4))
    row = {"y": y, "k": np.arange(8)}

    def log_likelihood(p, row):
        return -0.5 * ((row["y"] - jnp.exp(p["s"]) * p["z"][row["k"]]) ** 2).sum()

    def log_prior(p):
        return -0.5 * (p["z"] @ p["z"] + p["s"] ** 2)

    def call(folder):
        init = {"z": np.zeros(8), "s": 0.0}
        stated = {"constrain": lambda p: {"effects": jnp.exp(p["s"]) * p["z"]}}
        work.most, most = np.inf, work.most  # what the door checks is made in each life
        target = targets.model(log_likelihood, log_prior, row, init, **stated)
        work.most = most + work.made
        return svrhmc.sample(target, 300, threads=1, checkpoint=folder)

    require_the_same(call, work, 40, tmp_path / "c")


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_killed_every_eight_seconds(name, tmp_path):
    until_it_ends(name, tmp_path, 8.0)
