"""Calls of many kinds that a kill may end at any moment, and that are made again until they have ended.

    python tests/faults/killed_calls.py NAME RESULT CHECKPOINT

makes the call of that name in `CALLS`, with a checkpoint unless that is "-", and writes what has to be the same.
`until_it_ends` starts it again and again, and ends each life by SIGKILL after so many seconds: of the processor's time,
of all threads of the process and of the processes that it started, which other work on the machine does not shorten and
which is no longer than the same number of seconds of a clock on the wall where one thread is busy; or of that clock.

    python tests/faults/killed_calls.py

goes through all calls, and prints for each how many lives it took.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import svrhmc
from svrhmc import targets

_PERIOD = 0.05  # seconds between two looks at a life
_FETCHING = ("partitions", "parquet", "dask")  # calls whose rows are fetched again after a kill, and counted again


def table(n: int, dim: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and a linear predictor."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, dim))
    return X, X @ rng.normal(size=dim) / np.sqrt(dim)


def logistic(n: int, dim: int, **settings: Any) -> Any:
    """A posterior over dense rows."""
    X, t = table(n, dim)
    y = np.random.default_rng(1).random(n) < 1 / (1 + np.exp(-t))
    return svrhmc.sample(targets.logistic(X, y), **settings)


def poisson(n: int, dim: int, **settings: Any) -> Any:
    """Counts."""
    X, t = table(n, dim)
    return svrhmc.sample(targets.glm(X, np.random.default_rng(1).poisson(np.exp(t)), "poisson"), **settings)


def categorical(n: int, dim: int, classes: int, **settings: Any) -> Any:
    """Classes, several predictors of each row."""
    X, t = table(n, dim)
    y = np.digitize(t + np.random.default_rng(1).normal(size=n), np.linspace(-1, 1, classes - 1))
    return svrhmc.sample(targets.glm(X, y, "categorical"), **settings)


def sparse(n: int, dim: int, **settings: Any) -> Any:
    """Sparse rows with many columns."""
    from scipy.sparse import random

    rng = np.random.default_rng(0)
    X = random(n, dim, 10 / dim, "csr", random_state=rng)
    y = rng.random(n) < 1 / (1 + np.exp(-X @ rng.normal(size=dim)))
    return svrhmc.sample(targets.logistic(X, y), **settings)


def custom(n: int, work: int, **settings: Any) -> Any:
    """Component gradients of the user's own, which are slow."""
    X, t = table(n, 3)
    y = np.random.default_rng(1).poisson(np.exp(t))

    def gradients(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        for _ in range(work):
            found = n * (np.exp(X[rows] @ x) - y[rows])[:, None] * X[rows] + x
        return found

    return svrhmc.sample(targets.custom(n, 3, gradients, smoothness=10.0 * n), **settings)


def partitions(n: int, dim: int, count: int, family: str, **settings: Any) -> Any:
    """Rows in partitions, which are gone through at each pass."""
    X, t = table(n, dim)
    rng = np.random.default_rng(1)
    y = rng.poisson(np.exp(t)) if family == "poisson" else (rng.random(n) < 1 / (1 + np.exp(-t))).astype(float)
    rows = svrhmc.data.from_arrays(X, y, partitions=count)
    return svrhmc.sample(targets.glm(rows, None, family), **settings)


def fit(n: int, family: str, **settings: Any) -> Any:
    """A formula and a table."""
    X, t = table(n, 4)
    rng = np.random.default_rng(1)
    columns = {f"x{j}": X[:, j] for j in range(4)} | {"level": rng.choice(list("abcdefgh"), n)}
    y = {"poisson": rng.poisson(np.exp(t)), "student-t": t + rng.standard_t(3, n)}[family]
    return svrhmc.fit("y ~ x0 + x1 * x2 + x3 + level", {"y": y, **columns}, family, **settings)


def model(n: int, groups: int, **settings: Any) -> Any:
    """JAX functions: effects of groups of an unknown scale, and a noise."""
    import jax.numpy as jnp

    X, t = table(n, 3)
    rng = np.random.default_rng(1)
    group = rng.integers(groups, size=n)
    y = t + rng.normal(size=groups)[group] + rng.normal(size=n)

    def log_likelihood(p: Any, row: Any) -> Any:
        x, g, y = row
        away = y - x @ p["slopes"] - jnp.exp(p["log_scale"]) * p["effects"][g]
        return -0.5 * (away / jnp.exp(p["log_sigma"])) ** 2 - p["log_sigma"]

    def log_prior(p: Any) -> Any:
        plain = (p["effects"] ** 2).sum() + (p["slopes"] ** 2).sum() + p["log_scale"] ** 2 + p["log_sigma"] ** 2
        return -0.5 * plain

    init = {"slopes": np.zeros(3), "effects": np.zeros(groups), "log_scale": 0.0, "log_sigma": 0.0}
    stated = {"constrain": lambda p: {**p, "sigma": jnp.exp(p["log_sigma"])}}
    return svrhmc.sample(targets.model(log_likelihood, log_prior, (X, group, y), init, **stated), **settings)


def parquet(n: int, client: Any = None, **settings: Any) -> Any:
    """Rows in files, which are made once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(tempfile.gettempdir()) / f"svrhmc-killed-{n}.parquet"
    if not folder.exists():
        X, t = table(n, 10)
        y = np.random.default_rng(1).poisson(np.exp(t))
        partial = folder.with_suffix(f".{os.getpid()}")
        partial.mkdir()
        for k, some in enumerate(np.array_split(np.arange(n), 10)):
            columns = {f"x{j}": X[some, j] for j in range(10)} | {"y": y[some]}
            pq.write_table(pa.table(columns), partial / f"{k}.parquet")
        partial.rename(folder)
    return svrhmc.sample(targets.glm(svrhmc.data.from_parquet(folder, "y", client=client), None, "poisson"), **settings)


def dask(n: int, **settings: Any) -> Any:
    """Chunks of a Dask array."""
    import dask.array as da

    X, t = table(n, 10)
    y = np.random.default_rng(1).poisson(np.exp(t))
    rows = svrhmc.data.from_dask(da.from_array(X, chunks=(n // 10, 10)), da.from_array(y, chunks=n // 10))
    return svrhmc.sample(targets.glm(rows, None, "poisson"), **settings)


def shell(n: int, draws: int, checkpoint: str | None = None) -> Any:
    """`svrhmc fit`, which goes on from the folder that it writes to."""
    from svrhmc.shell.app import app

    file = Path(tempfile.gettempdir()) / f"svrhmc-killed-{n}.csv"
    if not file.exists():
        X, t = table(n, 4)
        rows = np.column_stack([X, np.random.default_rng(1).poisson(np.exp(t))])
        np.savetxt(partial := f"{file}.{os.getpid()}", rows, "%.6g", ",", header="a,b,c,d,y", comments="")
        Path(partial).rename(file)
    with tempfile.TemporaryDirectory() as other:
        out = Path(checkpoint or other)
        app(
            ["fit", str(file), "--target", "y", "--draws", str(draws), "--out", str(out), "--quiet"],
            standalone_mode=False,
        )
        return svrhmc.Posterior.load(out / "model.posterior")


CALLS: dict[str, Callable[..., Any]] = {
    "logistic, tall": partial(logistic, 400_000, 20),
    "logistic, wide": partial(logistic, 3000, 400, draws=4000),
    "logistic, many draws": partial(logistic, 300, 5, draws=400_000),
    "logistic, anchored": partial(logistic, 20_000, 20, method="anchored"),
    "logistic, baoab": partial(logistic, 5000, 10, method="baoab", tolerance=0.05),
    "logistic, subsampled": partial(logistic, 200_000, 10, method="subsampled-mh"),
    "logistic, very wide": partial(logistic, 1500, 700, draws=300),
    "poisson, split": partial(poisson, 20_000, 20, method="split-hmc", draws=4000),
    "poisson, ubu": partial(poisson, 5000, 5, method="ubu", tolerance=0.05),
    "poisson, many draws": partial(poisson, 1000, 30, draws=40_000),
    "categorical, five": partial(categorical, 3000, 10, 5, draws=20_000),
    "categorical, eight": partial(categorical, 2000, 20, 8),
    "sparse, 1000": partial(sparse, 15_000, 1000),
    "sparse, 10,000": partial(sparse, 20_000, 10_000, draws=200),
    "custom, slow": partial(custom, 400, 20, draws=200, method="ubu", tolerance=0.3),
    "custom, very slow": partial(custom, 20_000, 20, draws=50, method="ubu", tolerance=0.5),
    "partitions, logistic": partial(partitions, 1_000_000, 20, 40, "bernoulli", draws=20_000),
    "partitions, poisson": partial(partitions, 200_000, 10, 20, "poisson"),
    "partitions, many": partial(partitions, 600_000, 10, 200, "bernoulli", draws=400),
    "partitions, split": partial(partitions, 60_000, 10, 10, "bernoulli", method="split-hmc", draws=100),
    "partitions, anchored": partial(partitions, 200_000, 10, 20, "bernoulli", method="anchored"),
    "fit, poisson": partial(fit, 20_000, "poisson", draws=400_000),
    "fit, student-t": partial(fit, 20_000, "student-t"),
    "fit, many draws": partial(fit, 2000, "poisson", draws=100_000),
    "model, eight groups": partial(model, 2000, 8),
    "model, thirty groups": partial(model, 5000, 30),
    "model, hundred groups": partial(model, 3000, 100),
    "model, many draws": partial(model, 500, 5, draws=6000),
    "model, tall": partial(model, 50_000, 10),
    "model, anchored": partial(model, 2000, 8, method="anchored", tolerance=0.1),
    "parquet, poisson": partial(parquet, 1_000_000),
    "dask, poisson": partial(dask, 1_000_000),
    "shell, fit": partial(shell, 20_000, 150_000),
}


def numbers(posterior: Any) -> dict[str, np.ndarray]:
    """All that has to be the same."""
    stein, found = posterior.certificate.stein, posterior.trace
    same = {"draws": found.draws, "passes": found.passes, "mean": posterior.mean, "sd": posterior.sd}
    same |= {"ess": posterior.ess, "r_hat": posterior.r_hat, "stein": stein.mean, "all passes": posterior.passes}
    if posterior.parameters is not None:
        same["parameters"] = posterior.parameters.draws
    return {name: np.asarray(array) for name, array in same.items()} | {"verdict": posterior.certificate.verdict}


def processor_seconds(process: int) -> float:
    """Of a process, all its threads, and all processes under it, those that ended among them."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = [each.read_text().split() for each in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:  # it has ended since
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(processor_seconds(int(child)) for some in children for child in some)


def lived(command: list[str], seconds: float = 0.0, clock: str = "processor", **settings: Any) -> bool:
    """One life of a command of so many seconds (0: as long as it takes); whether it came to its end."""
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(command, stderr=errors, **settings) as child:
        began = time.monotonic()
        while seconds and child.poll() is None:
            time.sleep(_PERIOD)
            spent = processor_seconds(child.pid) if clock == "processor" else time.monotonic() - began
            if spent >= seconds:
                child.kill()
        child.wait()
        errors.seek(0)
        assert child.returncode in (0, -signal.SIGKILL), f"{command}: {errors.read()[-3000:]}"
        return child.returncode == 0


def until_it_ends(
    name: str, folder: Path, seconds: float, most: int = 100, clock: str = "processor"
) -> tuple[int, float]:
    """How many lives a call takes, and how many seconds of the processor one that nobody kills; that it has other
    results than that one is an error.
    """
    command = [sys.executable, __file__, name]
    before = _of_children()
    lived([*command, str(folder / "whole.npz"), "-"])
    took = _of_children() - before
    parts = [*command, str(folder / "parts.npz"), str(folder / "kept")]
    lives = next((k for k in range(1, most + 1) if lived(parts, seconds, clock)), 0)
    assert lives, f"{name}: after {most} lives it has not come to its end"
    whole, pieces = (np.load(folder / f"{each}.npz") for each in ("whole", "parts"))
    same = [key for key in whole.files if key != "all passes" or not name.startswith(_FETCHING)]
    differ = [key for key in same if not np.array_equal(whole[key], pieces[key])]
    assert not differ, f"{name}: after {lives} lives there are other {', '.join(differ)}"
    return lives, took


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Make one call, or kill all of them."""
    if len(sys.argv) > 2:
        call, place, kept = CALLS[sys.argv[1]], sys.argv[2], sys.argv[3]
        np.savez(place, **numbers(call(checkpoint=None if kept == "-" else kept)))
        return
    for name in sys.argv[1:] or CALLS:
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            try:
                lives, took = until_it_ends(name, Path(folder), 8.0)
                said = f"{lives} lives for {took:.0f} s of the processor, the same numbers"
            except AssertionError as error:
                said = str(error)
            print(f"{name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
