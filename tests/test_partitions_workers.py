"""Who makes the passes does not matter, and neither does it when some of them die."""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import svrhmc
from simulated_data import events
from svrhmc import data, targets
from svrhmc.core.errors import DataError, WorkersError
from svrhmc.rows import workers
from svrhmc.rows.workers import InPartitions, Pool

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N, FILES = 900, 5
SETTINGS = {"draws": 100, "method": "subsampled-mh", "seed": 2}
PASSES = ("labels", "some rows to start from", "sums over all rows", "lengths of all rows", "fetching rows")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, 3))
    y = events(rng, X @ [0.5, -0.3, 0.2]).astype(int)
    made = tmp_path_factory.mktemp("rows")
    for k in range(FILES):
        some = slice(k * N // FILES, (k + 1) * N // FILES)
        columns = {f"x{j}": X[some, j] for j in range(3)} | {"y": y[some]}
        pq.write_table(pa.table(columns), made / f"part-{k}.parquet", row_group_size=100)
    return made


def draws_of(client, folder, **more):
    return svrhmc.sample(
        targets.logistic(data.from_parquet(folder, "y", client=client)), **SETTINGS, **more
    ).trace.draws


@pytest.fixture(scope="module")
def expected(folder):
    return draws_of(None, folder)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_make_the_same_draws(threads, folder, expected):
    with ThreadPoolExecutor(threads) as pool:
        assert (draws_of(pool, folder) == expected).all()


def test_processes_make_the_same_draws(folder, expected):
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        assert (draws_of(pool, folder) == expected).all()


class Counting(ThreadPoolExecutor):
    """An executor that counts its tasks."""

    submitted = 0

    def submit(self, *task):
        self.submitted += 1
        return super().submit(*task)


def test_results_are_taken_in_order_and_few_are_held(folder, monkeypatch):
    """However many partitions there are, no more than a window of tasks is under way."""
    monkeypatch.setattr(workers, "_LEAST_AHEAD", 8)
    monkeypatch.setattr(workers, "cores", lambda: 1)
    with Counting(2) as pool:
        rows = InPartitions(data.from_parquet(folder, "y").reader, Pool(pool))
        taken = []
        for found in rows.pass_over(numbered, [(0, k) for k in range(500)], "labels"):
            assert pool.submitted - len(taken) <= 8
            taken.append(found)
        assert pool.submitted == 500
        assert taken == list(range(500))
        few = rows.pass_over(numbered, [(0, k) for k in range(500)], "labels")
        assert next(few) == 0
        few.close()  # and those that nobody wants are not begun
        assert pool.submitted == 508


def numbered(reader, number, k):
    time.sleep(0.002 * (k % 3 == 0))
    return k


def test_an_executor_that_is_shut_down_is_told(folder):
    pool = ThreadPoolExecutor(1)
    rows = data.from_parquet(folder, "y", client=pool)
    pool.shutdown()
    with pytest.raises(WorkersError, match=r"the executor takes no tasks: .* It was in the pass 'labels'"):
        targets.logistic(rows)


def dies(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_is_told(folder):
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        rows = Faulty(data.from_parquet(folder, "y", client=pool), "sums over all rows", dies)
        target = targets.logistic(rows)
        with pytest.raises(WorkersError, match=r"a worker process died, .* in the pass 'sums over all rows'"):
            target.mode()


def test_files_that_cannot_be_read_are_told(folder):
    def gone(work, *task):
        raise OSError(5, "Input/output error", "part-3.parquet")

    rows = Faulty(data.from_parquet(folder, "y"), "sums over all rows", gone)
    with pytest.raises(DataError, match=r"part-3\.parquet.*Input/output error.*'sums over all rows'"):
        targets.logistic(rows).mode()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_threads_of_blas_do_not_matter(dtype, tmp_path):
    code = f"""
import numpy as np, svrhmc
from svrhmc import data, targets
rng = np.random.default_rng(0)
X = rng.normal(size=(150_000, 20)).astype("{dtype}")
y = (rng.random(len(X)) < 0.4).astype(int)
found = svrhmc.sample(targets.logistic(data.from_arrays(X, y, partitions=3)), draws=100)
np.save(r"{tmp_path}/" + __import__("os").environ["OMP_NUM_THREADS"] + ".npy", found.trace.draws)
"""
    for count in ("1", "2"):
        blas = {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count, "MKL_NUM_THREADS": count}
        subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | blas)
    assert (np.load(tmp_path / "1.npy") == np.load(tmp_path / "2.npy")).all()


@pytest.mark.slow
@pytest.mark.parametrize("columns", [20, 100])
def test_threads_of_blas_change_no_digit_of_a_pass(columns):
    """Workers of a cluster have one thread, and this process may have several."""
    code = f"""
import numpy as np
from svrhmc import data, targets
from svrhmc.core.arrays import digest
from svrhmc.rows.partitions import RowWeights
rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, {columns})).astype(np.float32)
x, factor = np.full({columns}, 0.01), rng.normal(size=({columns}, {columns}))
target = targets.logistic(data.from_arrays(X, np.arange(len(X)) % 2, partitions=2))
totals = [each.total for each in target.rows.sum_weights(RowWeights(x, factor, 0.0, 2.0**20, 0.1, np.inf))]
print(digest(target.hessian(x), *target.energies(x[None] + 0.1), np.array(totals)))
"""
    found = []
    for count in ("1", "2"):
        blas = {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count, "MKL_NUM_THREADS": count}
        done = subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | blas, capture_output=True)
        found.append(done.stdout)
    assert found[0] == found[1]


# Faults. What goes wrong is wrapped around the work of one pass; markers are files, which all processes see.


class Faulty(InPartitions):
    """Partitions of which one pass has a fault: fault(work, …) in place of work(…)."""

    def __init__(self, sound, told, fault, before=lambda: None):
        super().__init__(sound.reader, sound.workers)
        self.told, self.fault, self.before = told, fault, before

    def pass_over(self, work, arguments, told):
        if told == self.told:
            before, self.before = self.before, lambda: None  # once
            before()
            work = functools.partial(self.fault, work)
        return super().pass_over(work, arguments, told)


def first_times(marker, count):
    """Whether this is one of the first so many times, of all processes together."""
    for k in range(count):
        try:
            os.close(os.open(f"{marker}-{k}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


def killed(marker, work, *task):
    """The worker of the first task dies."""
    if first_times(marker, 1):
        os.kill(os.getpid(), signal.SIGKILL)
    return work(*task)


def unlucky(marker, work, *task):
    """The first task fails twice."""
    if first_times(marker, 2):
        raise OSError("the disk does not answer")
    return work(*task)


def slow(marker, work, *task):
    """Time for somebody else to do something."""
    Path(f"{marker}-begun").touch()
    time.sleep(0.3)
    return work(*task)


def when_begun(marker, do):
    """Do something once a task has begun."""

    def wait():
        while not os.path.exists(f"{marker}-begun"):
            time.sleep(0.01)
        do()

    return threading.Thread(target=wait, daemon=True).start


def sampled(rows, **more):
    return svrhmc.sample(targets.logistic(rows), **SETTINGS, **more).trace.draws


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as made,
        distributed.Client(made) as client,
    ):
        yield made, client


@pytest.mark.slow
def test_clusters_make_the_same_draws(folder, expected, cluster):
    made, client = cluster
    assert (draws_of(client, folder) == expected).all()
    assert (draws_of(made.scheduler_address, folder) == expected).all()
    made.scale(3)
    client.wait_for_workers(3, timeout=120)
    assert (draws_of(client, folder) == expected).all()


@pytest.mark.slow
def test_a_collection_that_a_cluster_keeps_is_refused(cluster):
    """Its partitions go with the workers that hold them; one that Dask holds in this process is as good as any."""
    frame = pytest.importorskip("pandas").DataFrame({"x": np.arange(8.0), "y": np.arange(8) % 2})
    made = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
    with pytest.raises(ValueError, match=r"one that is kept on a cluster: give it as it was before persist\(\)"):
        data.from_dask(cluster[1].persist(made), "y", client=cluster[1])
    plain, kept = (
        targets.logistic(data.from_dask(each, "y", client=cluster[1])).mode()
        for each in (made, made.persist(scheduler="synchronous"))
    )
    assert (plain == kept).all()


@pytest.mark.slow
@pytest.mark.parametrize("told", PASSES)
def test_a_worker_killed_in_a_pass_changes_nothing(told, folder, expected, cluster, tmp_path):
    rows = data.from_parquet(folder, "y", client=cluster[1])
    marker = tmp_path / "killed"
    assert (sampled(Faulty(rows, told, functools.partial(killed, marker))) == expected).all()
    assert os.path.exists(f"{marker}-0")


@pytest.mark.slow
@pytest.mark.parametrize("told", ["sums over all rows", "fetching rows"])
def test_a_partition_that_fails_twice_changes_nothing(told, folder, expected, cluster, tmp_path):
    rows = data.from_parquet(folder, "y", client=cluster[1])
    marker = tmp_path / "unlucky"
    assert (sampled(Faulty(rows, told, functools.partial(unlucky, marker))) == expected).all()
    assert os.path.exists(f"{marker}-1")


@pytest.mark.slow
@pytest.mark.parametrize("told", ["sums over all rows", "lengths of all rows", "fetching rows"])
def test_all_workers_killed_and_replaced_change_nothing(told, folder, expected, cluster, tmp_path):
    client, marker = cluster[1], tmp_path / "slow"
    pids = list(client.run(os.getpid).values())

    def kill_all():
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    rows = Faulty(
        data.from_parquet(folder, "y", client=client),
        told,
        functools.partial(slow, marker),
        when_begun(marker, kill_all),
    )
    assert (sampled(rows) == expected).all()
    assert not set(pids) & set(client.run(os.getpid).values())


@pytest.mark.slow
@pytest.mark.parametrize("told", ["lengths of all rows", "fetching rows"])
def test_a_file_deleted_half_way_is_told_and_the_run_goes_on_once_it_is_back(told, folder, expected, cluster, tmp_path):
    away, here = tmp_path / "away.parquet", folder / "part-3.parquet"
    rows = data.from_parquet(folder, "y", client=cluster[1])
    faulty = Faulty(rows, told, plainly, lambda: shutil.move(here, away))
    run = tmp_path / "run"
    with pytest.raises(DataError, match=rf"part-3\.parquet.* '{told}'\. Run the same call again .*checkpoint"):
        sampled(faulty, checkpoint=run)
    shutil.move(away, here)
    assert (sampled(rows, checkpoint=run) == expected).all()


def plainly(work, *task):
    return work(*task)


@pytest.mark.slow
@pytest.mark.parametrize("told", ["sums over all rows", "fetching rows"])
def test_a_scheduler_that_goes_away_is_told_and_the_run_goes_on_with_another(told, folder, expected, tmp_path):
    distributed = pytest.importorskip("distributed")
    file, marker, run = tmp_path / "scheduler.json", tmp_path / "slow", tmp_path / "run"
    start = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    quiet |= {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}}
    scheduler = subprocess.Popen([*start, "--no-dashboard", "--scheduler-file", str(file)], **quiet)
    worker = None
    try:
        while not file.exists():
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        work = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
        worker = subprocess.Popen([*work, "--no-nanny"], **quiet)
        client = distributed.Client(address, timeout=30)
        client.wait_for_workers(1, timeout=120)
        rows = data.from_parquet(folder, "y", client=client)
        faulty = Faulty(rows, told, functools.partial(slow, marker), when_begun(marker, scheduler.kill))
        with pytest.raises(WorkersError, match=rf"the cluster went away .*'{told}'.*checkpoint"):
            sampled(faulty, checkpoint=run)
        client.close(timeout=1)
    finally:
        for process in (scheduler, worker):
            if process is not None:
                process.kill()
                process.wait()
    assert (sampled(data.from_parquet(folder, "y"), checkpoint=run) == expected).all()


def test_a_cluster_without_the_packages_is_told(folder):
    pytest.importorskip("distributed")
    from svrhmc.rows.workers import Cluster

    class Elsewhere:
        status = "running"

        def __init__(self, error):
            self.error = error

        def nthreads(self):
            return {"worker": 1}

        def submit(self, *task, **settings):
            return None

        def gather(self, futures):
            raise self.error

    for error in (ModuleNotFoundError("No module named 'svrhmc'"), RuntimeError("Error during deserialization of")):
        with pytest.raises(WorkersError, match="the cluster cannot load the work: its scheduler and workers need"):
            list(
                InPartitions(data.from_parquet(folder, "y").reader, Cluster(Elsewhere(error))).pass_over(
                    print, [(0,)], "labels"
                )
            )
