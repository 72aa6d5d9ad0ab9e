"""A posterior of rows in a Parquet folder that does not fit in memory: time, passes, memory, and errors.

    python benchmarks/partitions.py make FOLDER --rows 50000000          # once; 4 GB for 20 columns of float32
    python benchmarks/partitions.py read FOLDER                          # what pyarrow alone takes to read it
    python benchmarks/partitions.py run FOLDER --memory 2                # the posterior, with memory limited to 2 GB
    python benchmarks/partitions.py check FOLDER                         # beside the same rows in memory, and a formula
    python -P benchmarks/partitions.py others FOLDER                     # beside SGD, dask-glm and statsmodels

The limit is on the address space that data may take (RLIMIT_DATA), so that a run that needed more would fail. It leaves
the page cache alone. To limit that too, so that every pass reads the folder from the disk, run it in a control group:

    systemd-run --scope -p MemoryMax=2G python benchmarks/partitions.py run FOLDER
"""

from __future__ import annotations

import argparse
import json
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS, GROUP, FILE = 20, 250_000, 1_000_000


def truth() -> Any:
    """The coefficients that labels are made with; the first column is 1."""
    rng = np.random.default_rng(1)
    beta = rng.normal(size=COLUMNS) * 0.4
    beta[0] = -1.0
    return beta


def make(folder: Path, rows: int, compression: str) -> None:
    """Files of a million rows: columns of different scales that are correlated, labels 0 and 1, and a measurement."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    beta = truth()
    for number, begin in enumerate(range(0, rows, FILE)):
        rng = np.random.default_rng([2, number])
        count = min(FILE, rows - begin)
        X = rng.normal(size=(count, COLUMNS)).astype(np.float32)
        X[:, 2:] += 0.3 * X[:, 1:2]
        X[:, 0] = 1.0
        t = X @ beta
        y = (rng.random(count) < 1 / (1 + np.exp(-t))).astype(np.int8)
        z = (t + rng.normal(size=count) * 2).astype(np.float32)
        columns = {f"x{j}": X[:, j] for j in range(COLUMNS)} | {"y": y, "z": z}
        path = folder / f"part-{number:05d}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=GROUP, compression=compression, use_dictionary=False)


def read(folder: Path, label: str = "y") -> tuple[float, float]:
    """Seconds to read every row group of the columns of the model once, by pyarrow on all cores: on the clock, and of
    all cores together.
    """
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow.parquet as pq

    from svrhmc.core.arrays import cores

    columns = [f"x{j}" for j in range(COLUMNS)] + [label]

    def one(path: Path) -> int:
        with pq.ParquetFile(path) as file:
            return sum(
                file.read_row_group(k, columns, use_threads=False).num_rows for k in range(file.metadata.num_row_groups)
            )

    began, worked = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(cores()) as pool:
        rows = sum(pool.map(one, sorted(folder.glob("*.parquet"))))
    seconds, work = time.perf_counter() - began, time.process_time() - worked
    print(f"read {rows:,} rows in {seconds:.2f} s, {work:.2f} s of all cores")
    return seconds, work


def peak() -> float:
    """The largest resident memory so far, in GB, without pages of mapped files."""
    return peak_seen[0] / 1e9


peak_seen = [0]


def watch() -> None:
    """Look at private memory twenty times a second."""
    while True:
        status = Path("/proc/self/status").read_text()
        anonymous = int(status.split("RssAnon:")[1].split()[0]) * 1024
        peak_seen[0] = max(peak_seen[0], anonymous)
        time.sleep(0.05)


def run(folder: Path, memory: float, draws: int, family: str) -> dict[str, Any]:
    """The posterior."""
    if memory:
        limit = int(memory * (1 << 30))
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    threading.Thread(target=watch, daemon=True).start()
    import svrhmc
    import svrhmc.data

    label = "z" if family == "gaussian" else "y"
    features = [f"x{j}" for j in range(COLUMNS)]
    first = sorted(folder.glob("*.parquet"))[0]
    some, target = (
        svrhmc.targets.glm(svrhmc.data.from_parquet(path, label, features), family=family) for path in (first, folder)
    )
    svrhmc.sample(some, draws=draws)  # so that nothing is left to be compiled
    before = [read(folder, label) for _ in range(2)]
    began, worked = time.perf_counter(), time.process_time()
    posterior = svrhmc.sample(target, draws=draws)
    seconds, work = time.perf_counter() - began, time.process_time() - worked
    clock, cores = np.mean([*before, *(read(folder, label) for _ in range(2))], axis=0)
    away = np.abs(posterior.mean[:COLUMNS] - truth()) / posterior.sd[:COLUMNS]
    return {
        "n": target.n, "method": posterior.method, "verdict": posterior.certificate.verdict, "seconds": seconds,
        "compiling": posterior.compile_seconds, "passes": target.rows.passes, "fastest pass": target.rows.pass_seconds,
        "least ess": float(posterior.ess.min()), "peak GB": peak(), "largest z": float(away.max()),
        "reading once": clock, "times reading as often": seconds / (target.rows.passes * clock), "work": work,
        "work of reading once": cores, "times the work of reading": work / (target.rows.passes * cores),
        "steps": posterior.steps,
    }  # fmt: skip


def check(folder: Path, draws: int) -> None:
    """The posterior of the folder beside that of the same rows in memory, and linear regression beside its formula."""
    import pyarrow.parquet as pq

    import svrhmc
    import svrhmc.data

    features = [f"x{j}" for j in range(COLUMNS)]
    tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    X = np.concatenate([np.column_stack([table[name].to_numpy() for name in features]) for table in tables])
    y, z = (np.concatenate([table[name].to_numpy() for table in tables]) for name in "yz")
    both = []
    for target in (
        svrhmc.targets.logistic(svrhmc.data.from_parquet(folder, "y", features)),
        svrhmc.targets.logistic(X, y),
    ):
        began = time.perf_counter()
        both.append(svrhmc.sample(target, draws=draws))
        print(f"{target!r}: {time.perf_counter() - began:.1f} s, {both[-1].method}, {both[-1].certificate.verdict}")
    here, there = both
    away, ratio = np.abs(here.mean - there.mean) / there.sd, np.abs(here.sd / there.sd - 1)
    print(f"means differ by at most {away.max():.2g} sd, standard deviations by {ratio.max():.2g}")
    linear = svrhmc.targets.linear(svrhmc.data.from_parquet(folder, "z", features), noise_variance=4.0)
    A = X.astype(np.float64)
    precision = A.T @ A / 4 + np.eye(COLUMNS)
    mean, sd = np.linalg.solve(precision, A.T @ z.astype(np.float64) / 4), np.sqrt(np.diag(np.linalg.inv(precision)))
    law = linear.closed_form
    away = np.abs(law.mean - mean) / sd
    print(
        f"linear: mean off by {away.max():.1e} sd, sd by {np.abs(np.sqrt(np.diag(law.covariance)) / sd - 1).max():.1e}"
    )


def others(folder: Path) -> None:
    """What a user would pick for such data, over the same batches: seconds, and distance from the mode in posterior sd.

    Of these only what is installed: scikit-learn, dask-glm, and statsmodels with all rows in memory.
    """
    import svrhmc
    import svrhmc.data

    features = [f"x{j}" for j in range(COLUMNS)]
    target = svrhmc.targets.logistic(svrhmc.data.from_parquet(folder, "y", features))
    target.warm()
    began = time.perf_counter()
    mode = target.mode()
    print(f"mode: {time.perf_counter() - began:.1f} s, {target.rows.passes:.2f} passes")
    sd = np.sqrt(np.diag(np.linalg.inv(target.modal_hessian)))
    for fit in (_sgd, _dask_glm, _statsmodels):
        began = time.perf_counter()
        try:
            for name, found in fit(sorted(folder.glob("*.parquet")), features):
                away = np.abs(found - mode) / sd
                print(f"{name}: {time.perf_counter() - began:.1f} s, {away.max():.2g} sd from the mode", flush=True)
        except Exception as error:
            print(f"{fit.__name__}: {type(error).__name__}: {error}")


def _arrays(path: Path, features: list[str]) -> tuple[Any, Any]:
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=[*features, "y"])
    return np.column_stack([table[name].to_numpy() for name in features]), table["y"].to_numpy()


def _sgd(files: list[Path], features: list[str]) -> Iterator[tuple[str, Any]]:
    """By `partial_fit`, file by file; the rows of a file come in an order of their own in each pass."""
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(loss="log_loss", fit_intercept=False, average=True, random_state=0)
    for epoch in range(3):
        for path in files:
            model.partial_fit(*_arrays(path, features), classes=[0, 1])
        yield f"SGDClassifier.partial_fit, {epoch + 1} passes", model.coef_[0]


def _dask_glm(files: list[Path], features: list[str]) -> Iterator[tuple[str, Any]]:
    """Newton's method, on arrays of float64 whose chunks are files that are read in every pass."""
    import dask
    import dask.array as da
    from dask_glm import algorithms, families

    parts = [dask.delayed(_arrays)(path, features) for path in files]
    X = da.concatenate([da.from_delayed(part[0], (FILE, COLUMNS), np.float32) for part in parts]).astype(np.float64)
    y = da.concatenate([da.from_delayed(part[1], (FILE,), np.int8) for part in parts])
    yield "dask-glm, newton", algorithms.newton(X, y, family=families.Logistic)


def _statsmodels(files: list[Path], features: list[str]) -> Iterator[tuple[str, Any]]:
    """All rows in memory, in float64."""
    import statsmodels.api as sm

    parts = [_arrays(path, features) for path in files]
    X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    yield "statsmodels, Logit", np.asarray(sm.Logit(y, X.astype(np.float64)).fit(disp=0).params)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "read", "run", "check", "others"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--memory", type=float, default=0.0)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--family", default="bernoulli")
    given = parser.parse_args()
    if given.what == "make":
        make(given.folder, given.rows, given.compression)
    elif given.what == "read":
        for _ in range(3):
            read(given.folder)
    elif given.what == "run":
        print(json.dumps(run(given.folder, given.memory, given.draws, given.family), indent=1))
    elif given.what == "check":
        check(given.folder, given.draws)
    elif given.what == "others":
        others(given.folder)


if __name__ == "__main__":
    main()
