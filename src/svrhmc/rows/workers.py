"""Passes over partitions by threads, processes or the workers of a Dask cluster.

A task is a pure function of a reader, the number of a partition and a few numbers, so that any worker may run it, also
repeatedly. Results are taken in the order of the tasks, and only some tasks are submitted before the first result is
taken, so that the memory of this process does not grow with the number of partitions.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Protocol, TypeVar, cast

from svrhmc.core.arrays import cores
from svrhmc.core.errors import DataError, WorkersError, missing_package, requirement
from svrhmc.core.progress import set_progress_note
from svrhmc.rows.reading import Partitions, Reader

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Report = Callable[[int], None]
_RETRIES, _CONNECT_SECONDS = 3, 8  # of a failed task on a cluster; to wait for an answer from its address
_LEAST_AHEAD, _AHEAD_PER_THREAD = 64, 4  # tasks that are submitted ahead: at least, and for each thread of the workers
_HOW_TO_RESUME = (
    "Run the same call again when that is put right; what was found before is kept in the folder of checkpoint=…, if "
    "you gave one."
)
_CANNOT_LOAD = (
    "the cluster cannot load the work: its scheduler and workers need the packages that this process has, svrhmc too"
)
_ALLOWED = "None, a concurrent.futures executor, a distributed.Client, or the address of a Dask cluster"


class Future(Protocol[T_co]):
    """A task that was submitted, by `concurrent.futures` or by Dask."""

    def result(self) -> T_co:
        """The result of the task, as soon as it is done."""

    def cancel(self) -> object:
        """Cancel the task unless it has begun."""


class Client(Protocol):
    """What the library uses of a `distributed.Client`, for which Dask has no types."""

    status: str

    def nthreads(self) -> dict[str, int]:
        """The number of threads of each worker, by its address."""

    def submit(self, work: Callable[..., T], *task: object, pure: bool, retries: int) -> Future[T]:
        """Have a worker call a function."""

    def gather(self, futures: list[Future[T]]) -> list[T]:
        """The results of the futures, in their order."""


class Workers(ABC):
    """Submits tasks and waits for them."""

    def run(self, work: Callable[..., T], tasks: Iterable[tuple[object, ...]], report: Report) -> Iterator[T]:
        """The results, in the order of the tasks; `report` is called with the number of results taken so far.

        Where a task fails, those that have not begun are cancelled.
        """
        ahead: deque[Future[T]] = deque()
        window, left, done = max(_LEAST_AHEAD, _AHEAD_PER_THREAD * self.threads()), iter(tasks), 0
        with self.translate_errors():
            try:
                while True:
                    ahead.extend(self.submit(work, task) for task in islice(left, window - len(ahead)))
                    if not ahead:
                        return
                    for result in self.results(
                        [ahead.popleft() for _ in range(min(len(ahead), window // _AHEAD_PER_THREAD))]
                    ):
                        done += 1
                        report(done)
                        yield result
            finally:
                for future in ahead:
                    self.cancel(future)

    @abstractmethod
    def threads(self) -> int:
        """The approximate number of tasks that run at once."""

    @abstractmethod
    def submit(self, work: Callable[..., T], task: tuple[object, ...]) -> Future[T]:
        """Submit a task to the workers."""

    @abstractmethod
    def results(self, futures: list[Future[T]]) -> Iterable[T]:
        """The results of the futures, in their order."""

    @abstractmethod
    def cancel(self, future: Future[T]) -> None:
        """Cancel a task whose result is not needed any more."""

    @abstractmethod
    def require_importable(self, functions: Mapping[str, Callable[..., object]]) -> None:
        """Refuse functions that the workers cannot import."""

    @abstractmethod
    def translate_errors(self) -> AbstractContextManager[None]:
        """A context in which failures of the workers, but not of the work, become a `WorkersError`."""


class Pool(Workers):
    """An executor of `concurrent.futures`, which the caller opens and closes."""

    def __init__(self, pool: Executor) -> None:
        self.pool = pool

    def threads(self) -> int:
        """The number of cores."""
        return cores()

    def require_importable(self, functions: Mapping[str, Callable[..., object]]) -> None:
        """Other processes import functions by their names."""
        if isinstance(getattr(self, "pool", None), ProcessPoolExecutor):
            try:
                pickle.dumps(dict(functions))
            except (pickle.PicklingError, AttributeError, TypeError):
                why = "write them in a module, or leave client out, so that threads read"
                raise requirement(
                    "transforms", "functions that other processes can import", ", ".join(functions), why
                ) from None

    def submit(self, work: Callable[..., T], task: tuple[object, ...]) -> Future[T]:
        """Submit a task; an error where the executor is shut down or broken."""
        try:
            return self.pool.submit(work, *task)
        except BrokenExecutor:
            raise
        except RuntimeError as error:
            raise WorkersError(f"the executor takes no tasks: {error}.") from None

    def results(self, futures: list[Future[T]]) -> Iterable[T]:
        """The results one after another; where one fails, the others are cancelled."""
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                self.cancel(future)

    def cancel(self, future: Future[T]) -> None:
        """Cancel it unless it has begun."""
        future.cancel()

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translates the errors of processes that died, and of executors that were shut down."""
        try:
            yield
        except BrokenExecutor:
            raise WorkersError("a worker process died, perhaps because memory ran out.") from None
        except CancelledError:
            raise WorkersError("the executor was shut down.") from None


class Threads(Pool):
    """One thread more than there are cores, opened for each pass, so that some read while others compute."""

    def __init__(self) -> None:
        pass

    def run(self, work: Callable[..., T], tasks: Iterable[tuple[object, ...]], report: Report) -> Iterator[T]:
        """Run by an executor that ends with the pass."""
        with ThreadPoolExecutor(cores() + 1) as pool:
            yield from Pool(pool).run(work, tasks, report)


class Cluster(Workers):
    """A `distributed.Client`. The scheduler repeats the tasks of workers that died, and a failed task three times.

    Only names of files and a few numbers go to the workers; sums and single rows come back.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def threads(self) -> int:
        """The threads of the workers that are connected now."""
        return sum(self.client.nthreads().values())

    def submit(self, work: Callable[..., T], task: tuple[object, ...]) -> Future[T]:
        return self.client.submit(work, *task, pure=False, retries=_RETRIES)

    def require_importable(self, functions: Mapping[str, Callable[..., object]]) -> None:
        """Nothing is refused, as Dask sends functions by value."""

    def results(self, futures: list[Future[T]]) -> Iterable[T]:
        return self.client.gather(futures)

    def cancel(self, future: Future[T]) -> None:
        """Nothing to do: the scheduler forgets futures that are not referenced."""

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translates the errors of workers that die, a lost scheduler, and a cluster without the packages."""
        from distributed import KilledWorker

        try:
            yield
        except KilledWorker as error:
            raise WorkersError(f"workers died again and again at a partition, as if memory ran out: {error}") from None
        except ImportError as error:
            raise WorkersError(f"{_CANNOT_LOAD} ({error}).") from None
        except (CancelledError, TimeoutError, OSError, RuntimeError) as error:
            if "deserialization" in str(error):
                raise WorkersError(f"{_CANNOT_LOAD}.") from None
            if self.client.status == "running" and not isinstance(error, (CancelledError, TimeoutError)):
                raise  # the task itself failed
            raise WorkersError(f"the cluster went away ({type(error).__name__}).") from None


ClientLike = Client | Executor | str | None  # None for threads of this machine


def workers_of(client: ClientLike) -> Workers:
    """The workers of an executor, a Dask client or the address of a cluster; for None threads of this machine."""
    if client is None:
        return Threads()
    if isinstance(client, str):
        return Cluster(_connect(client))
    if isinstance(client, Executor):
        return Pool(client)
    if hasattr(client, "submit") and hasattr(client, "scheduler_info"):
        return Cluster(client)
    raise requirement("client", _ALLOWED, repr(client))


def _connect(address: str) -> Client:
    try:
        import distributed
    except ImportError:
        raise missing_package("distributed", "dask", "a Dask cluster") from None
    try:
        return cast(Client, distributed.Client(address, timeout=_CONNECT_SECONDS))  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise WorkersError(f"no Dask scheduler answers at {address!r} within {_CONNECT_SECONDS} seconds.") from error


def _file_problem(error: OSError) -> str:
    """An error of a file, in words."""
    if isinstance(error, FileNotFoundError):
        return f"{error.filename or error}: the file is not there any more."
    return f"{error.filename or 'A file'} cannot be read: {error.strerror or error}."


class InPartitions(Partitions):
    """Partitions that a reader reads and workers make passes over."""

    def __init__(self, reader: Reader, workers: Workers) -> None:
        self.reader, self.workers = reader, workers

    def __repr__(self) -> str:
        rows, columns = int(self.reader.sizes.sum()), len(self.reader.names)
        return f"Partitions({rows:,} rows, {columns} columns, {len(self.reader.sizes)} partitions)"

    def with_reader(self, reader: Reader) -> InPartitions:
        """The same workers with another reader."""
        return InPartitions(reader, self.workers)

    def pass_over(
        self, work: Callable[..., T], arguments: Sequence[tuple[int, *tuple[object, ...]]], purpose: str
    ) -> Iterator[T]:
        """One task for each partition."""
        return pass_over(self.workers, self.reader, work, arguments, purpose)


class Partitioned(Protocol):
    """Anything that consists of partitions, and can be cut down to one of them."""

    def single_partition(self, number: int) -> object:
        """The same with one partition, which then has the number 0."""


def pass_over(
    workers: Workers,
    partitioned: Partitioned,
    work: Callable[..., T],
    arguments: Sequence[tuple[int, *tuple[object, ...]]],
    purpose: str,
) -> Iterator[T]:
    """The results of work(single partition, 0, *rest) for each (number, *rest) in `arguments`, in their order."""
    tasks = ((partitioned.single_partition(number), 0, *rest) for number, *rest in arguments)
    try:
        yield from workers.run(
            work, tasks, lambda done: set_progress_note(f"{purpose}, {done} of {len(arguments)} partitions")
        )
    except WorkersError as error:
        raise WorkersError(f"{error} It was in the pass '{purpose}'. {_HOW_TO_RESUME}") from None
    except OSError as error:  # of a file
        raise DataError(f"{_file_problem(error)} It was in the pass '{purpose}'. {_HOW_TO_RESUME}") from None
    finally:
        set_progress_note("")
