"""`svrhmc reproduce`: the experiments as tasks whose results are files, so that an interrupted run goes on.

A task keeps what it has made so far in a journal beside its result (`svrhmc.checkpoint`), so that a kill at any moment
loses seconds and changes no result.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from svrhmc.core.arrays import cores
from svrhmc.core.errors import CheckpointError, DataError
from svrhmc.core.processes import block_interrupts, end_with_parent
from svrhmc.core.storage import remove_partials, write_text
from svrhmc.paper import experiments, regression, synthetic
from svrhmc.paper.data import gather
from svrhmc.paper.journal import open_journal, remove, seconds_spent, unusable
from svrhmc.paper.report import write_report
from svrhmc.paper.settings import Result, Settings, load_settings, panel_name

# Of an experiment's code, from 2 on: to be raised by a change that changes a result.
VERSIONS = {"figure1": 4, "figure2": 3, "figure3": 3, "experiment": 3, "table1": 3}
PARTS = ("figure1", "figure2", "figure3", "table1", "table3")
WORK = "work"  # the folder of results, in that of the report


@dataclass(frozen=True)
class Task:
    """A piece of work: a name, a function and its arguments; `threads` is added where the function takes it.

    The function keeps what it makes in the `journal` that it is given by that name. A task on data names the data set,
    and is another task with another of its editions.
    """

    name: str
    function: Callable[..., Result]
    arguments: tuple[object, ...]
    threaded: bool = True
    dataset: str = ""
    edition: str = ""


@dataclass(frozen=True)
class Finished:
    """The report of a run, and a line for each data set that was missing, with the reason."""

    report: Path
    missing: tuple[str, ...]


def reproduce(
    parts: tuple[str, ...],
    out: Path,
    data: Path | None = None,
    quick: bool = False,
    seeds: int | None = None,
    jobs: int | None = None,
    say: Callable[[str], None] = print,
) -> Finished:
    """Run what is not yet in `out`, and write figures, tables and the report of these parts.

    Each task's result is a file under out/work, with the settings it was made with; a result made with others, or by
    another version of the experiments, is made again. What a task has made before it is finished is in a folder beside
    its result, and goes with it. Data sets are gathered first; one that cannot be had is left out, and named in the
    end and in the report.
    """
    settings = load_settings(quick, seeds)
    tasks = [task for part in parts for task in _tasks(part, settings, data)]
    tasks = list({task.name: task for task in tasks}.values())
    store = Store(out / WORK)

    def finished(name: str, edition: str) -> bool:
        return all(store.get(replace(task, edition=edition)) for task in tasks if task.dataset == name)

    supply = gather(dict.fromkeys(task.dataset for task in tasks if task.dataset), data, finished, say)
    tasks = [replace(task, edition=supply.key(task.dataset)) for task in tasks]
    tasks = [task for task in tasks if task.dataset not in supply.missing or store.get(task)]
    jobs = cores() if jobs is None else jobs
    results, missing = _run_tasks(tasks, store, jobs, say)
    missing = list(dict.fromkeys([*supply.missing.values(), *missing]))
    settings |= {"notes": supply.notes, "partial": supply.partial}
    report = write_report(results, settings, parts, out, tuple(missing), quick)
    return Finished(report, tuple(missing))


class Store:
    """Results as JSON files, each written as a whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, task: Task) -> Result | None:
        """The stored result of a task with the same arguments; None if there is none."""
        try:
            saved = json.loads(self._path(task).read_text())
        except (OSError, ValueError):
            return None
        if not isinstance(saved, dict) or saved.get("settings") != _identity(task):
            return None
        result = saved.get("result")
        return result if isinstance(result, dict) and result else None

    def put(self, task: Task, result: Result) -> None:
        """Store the result of a task, and remove its journal."""
        write_text(self._path(task), json.dumps({"settings": _identity(task), "result": result}, indent=1))
        self.tidy(task, finished=True)

    def progress(self, task: Task) -> Path:
        """The folder of a task's journal."""
        return self._path(task).with_suffix(".progress")

    def tidy(self, task: Task, finished: bool) -> None:
        """Remove what a kill may have left of a task, and the journal of a finished one."""
        remove_partials(self._path(task))
        if finished:
            with suppress(CheckpointError):  # files of others are left alone
                remove(self.progress(task))

    def _path(self, task: Task) -> Path:
        return self.folder / (task.name.replace(" ", "-").replace("=", "") + ".json")


def _identity(task: Task) -> str:
    """A fingerprint of a task by its settings alone: the folder of the data does not matter."""
    settings = [value for value in task.arguments if not isinstance(value, Path)]
    edition = [task.edition] if task.edition else []
    return fingerprint([VERSIONS.get(task.name.split()[0], 2), task.name, *settings, *edition])


Outcome = Result | DataError  # of a task: an error where its data are not there


def fingerprint(value: object) -> str:
    """Equal for equal settings."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _run_tasks(
    tasks: list[Task], store: Store, jobs: int, say: Callable[[str], None]
) -> tuple[dict[str, Result], list[str]]:
    results = {task.name: saved for task in tasks if (saved := store.get(task)) is not None}
    unfinished = [task for task in tasks if task.name not in results]
    for task in tasks:
        store.tidy(task, finished=task.name in results)
    if results:
        say(f"{len(results)} of {len(tasks)} tasks are already there")
    missing: list[str] = []
    for number, (task, outcome, seconds) in enumerate(_outcomes(unfinished, store, jobs), start=len(results) + 1):
        if isinstance(outcome, DataError):
            missing.append(str(outcome))
            store.tidy(task, finished=True)
            say(f"[{number}/{len(tasks)}] {task.name}: no data")
            continue
        results[task.name] = {**outcome, "seconds": seconds}
        store.put(task, results[task.name])
        say(f"[{number}/{len(tasks)}] {task.name}: {seconds:.1f} s")
    ordered = {task.name: results[task.name] for task in tasks if task.name in results}
    return ordered, list(dict.fromkeys(missing))


def _outcomes(tasks: list[Task], store: Store, jobs: int) -> Iterator[tuple[Task, Outcome, float]]:
    """Yield tasks with their outcomes and seconds as they finish; with several jobs they run in processes."""
    threads = max(1, cores() // jobs)
    if jobs == 1:
        for task in tasks:
            yield task, *_perform(task, threads, store.progress(task))
        return
    with _threads_of_processes(threads):
        pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=end_with_parent)
        running: dict[Future[tuple[Outcome, float]], Task] = {}
        waiting = list(reversed(tasks))
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    task = waiting.pop()
                    with block_interrupts():
                        running[pool.submit(_perform, task, threads, store.progress(task))] = task
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), *future.result()
        except BaseException:  # an interrupt waits neither for minutes of work nor for workers that are just starting
            for process in list(pool._processes.values()):
                process.kill()
            pool.shutdown(cancel_futures=True)
            raise
        pool.shutdown()


@contextmanager
def _threads_of_processes(threads: int) -> Iterator[None]:
    """Limit the threads of linear algebra in processes that start within: more would only wait for each other."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _perform(task: Task, threads: int, progress: Path) -> tuple[Outcome, float]:
    """The outcome of a task, and the seconds it took over all interruptions; restarted if its journal is damaged."""
    try:
        return _continue(task, threads, progress)
    except CheckpointError as error:
        if not unusable(error):
            raise
        remove(progress)
        return _continue(task, threads, progress)


def _continue(task: Task, threads: int, progress: Path) -> tuple[Outcome, float]:
    with open_journal(progress, {"task": task.name, "identity": _identity(task)}) as journal:
        earlier, began = seconds_spent(journal), time.perf_counter()
        try:
            outcome: Outcome = task.function(*task.arguments, *((threads,) if task.threaded else ()), journal=journal)
        except DataError as error:
            outcome = error
        return outcome, earlier + time.perf_counter() - began


def _tasks(part: str, settings: Settings, data: Path | None) -> Iterator[Task]:
    figure1, figure2, figure3, experiment = (settings[key] for key in ("figure1", "figure2", "figure3", "experiment"))
    if part == "figure1":
        dims = sorted(figure1["dims"], reverse=True)
        for spread, dim, n, method in itertools.product(
            figure1["spreads"], dims, figure1["sizes"], figure1["samplers"]
        ):
            yield Task(panel_name(spread, dim, n, method), synthetic.panel, (figure1, spread, dim, n, method))
    if part in ("figure2", "table3"):
        for name in sorted(figure2["datasets"], key=lambda name: name != "gisette"):  # the longest first
            for method in figure2["samplers"]:
                yield Task(
                    f"figure2 {name} {method}", regression.experiment, (figure2, name, method, data), dataset=name
                )
            reference = regression.classification_reference
            yield Task(f"figure2 {name} reference", reference, (figure2, name, data), dataset=name)
    if part == "table3":
        for name in experiment["datasets"]:
            yield Task(
                f"experiment {name}", experiments.preparation_experiment, (experiment, figure2, name, data), False, name
            )
        yield Task(
            "experiment steps",
            experiments.steps_experiment,
            (experiment, figure2, data),
            dataset=experiment["step_data"],
        )
        if "mushroom" in figure2["datasets"]:
            subject = (experiment, figure2, "mushroom", data)
            yield Task("experiment mushroom passes", experiments.longer_experiment, subject, dataset="mushroom")
        for name, method in itertools.product(experiment["burn_in_datasets"], figure2["samplers"]):
            arguments = (experiment, figure2, name, method, data)
            yield Task(f"experiment burn-in {name} {method}", experiments.burn_in_experiment, arguments, dataset=name)
    if part == "figure3":
        for name in figure3["datasets"]:
            for method in figure3["samplers"]:
                yield Task(
                    f"figure3 {name} {method}", regression.experiment, (figure3, name, method, data), dataset=name
                )
            yield Task(f"figure3 {name} reference", regression.regression_reference, (figure3, name, data), False, name)
    if part == "table1":
        accuracy = settings["table1"]["accuracy"]
        for section in (figure2, figure3):
            for name in section["datasets"]:
                yield Task(f"table1 {name}", regression.constants, (section, name, data, accuracy), False, name)
