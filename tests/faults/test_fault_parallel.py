"""The same draws in threads, in children of a fork, in processes that are spawned, and by joblib."""

import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import svrhmc
from svrhmc import targets

SEEDS = (1, 2, 3, 4)


def draws(seed):
    """Of the compiled engine, in several threads of its own."""
    return svrhmc.svr_hmc(0.2, batch_size=5).run(targets.synthetic(20, 3), 200, chains=4, seed=seed, threads=2).draws


@pytest.fixture(scope="module")
def alone():
    return [draws(seed) for seed in SEEDS]


def test_threads(alone):
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert all(map(np.array_equal, pool.map(draws, SEEDS), alone))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 warns of forks beside threads
def test_fork(alone):
    for seed, expected in zip(SEEDS, alone, strict=True):
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writes, draws(seed).tobytes()[:4096])
            finally:
                os._exit(0)
        os.close(writes)
        with open(reads, "rb") as pipe:
            found = pipe.read()
        os.waitpid(child, 0)
        assert found == expected.tobytes()[:4096]


def test_spawn(alone):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert all(map(np.array_equal, pool.map(draws, SEEDS), alone))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_joblib(alone, backend):
    joblib = pytest.importorskip("joblib")
    found = joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(draws)(seed) for seed in SEEDS)
    assert all(map(np.array_equal, found, alone))
