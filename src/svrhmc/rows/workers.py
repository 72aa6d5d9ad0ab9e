"""Who makes the passes: threads, processes or the workers of a Dask cluster, through `submit` and `result` alone.

A task is a pure function of a reader, the number of a partition and a few numbers, so that any worker may run it, and
run it again. Results are taken in the order of the tasks, and only some tasks are submitted before the first of them is
taken: so what this process holds does not grow with the number of partitions.
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
Tell = Callable[[int], None]
_RETRIES, _PATIENCE = 3, 8  # times that a cluster runs a failed task again; seconds to wait for its address
_AHEAD, _EACH = 64, 4  # tasks that are submitted ahead, at least, and for each thread of the workers
_GO_ON = (
    "Run the same call again when that is put right; what was found before is kept in the folder of checkpoint=…, if "
    "you gave one."
)
_UNLIKE = (
    "the cluster cannot load the work: its scheduler and workers need the packages that this process has, svrhmc too"
)
_ALLOWED = "None, a concurrent.futures executor, a distributed.Client, or the address of a Dask cluster"


class Future(Protocol[T_co]):
    """A task that was submitted, by `concurrent.futures` or by Dask."""

    def result(self) -> T_co:
        """What the task gave, as soon as it is done."""

    def cancel(self) -> object:
        """Give it up, unless it has begun."""


class Client(Protocol):
    """A `distributed.Client`, as far as it is used here: Dask has no types."""

    status: str

    def nthreads(self) -> dict[str, int]:
        """Threads of each worker, by its address."""

    def submit(self, work: Callable[..., T], *task: object, pure: bool, retries: int) -> Future[T]:
        """Have some worker call a function."""

    def gather(self, futures: list[Future[T]]) -> list[T]:
        """The results of all of them, in their order."""


class Workers(ABC):
    """Submits tasks and waits for them."""

    def run(self, work: Callable[..., T], tasks: Iterable[tuple[object, ...]], tell: Tell) -> Iterator[T]:
        """The results, in the order of the tasks; `tell` hears how many were taken.

        Where one fails, those that have not begun are given up.
        """
        ahead: deque[Future[T]] = deque()
        window, left, done = max(_AHEAD, _EACH * self.threads()), iter(tasks), 0
        with self.in_words():
            try:
                while True:
                    ahead.extend(self.submit(work, task) for task in islice(left, window - len(ahead)))
                    if not ahead:
                        return
                    for result in self.results([ahead.popleft() for _ in range(min(len(ahead), window // _EACH))]):
                        done += 1
                        tell(done)
                        yield result
            finally:
                for future in ahead:
                    self.give_up(future)

    @abstractmethod
    def threads(self) -> int:
        """How many tasks run at once, about."""

    @abstractmethod
    def submit(self, work: Callable[..., T], task: tuple[object, ...]) -> Future[T]:
        """A task that will be run."""

    @abstractmethod
    def results(self, futures: list[Future[T]]) -> Iterable[T]:
        """The results of some tasks, in their order."""

    @abstractmethod
    def give_up(self, future: Future[T]) -> None:
        """A task whose result nobody wants."""

    @abstractmethod
    def require_known(self, functions: Mapping[str, Callable[..., object]]) -> None:
        """Refuse functions of a caller that those who work cannot load."""

    @abstractmethod
    def in_words(self) -> AbstractContextManager[None]:
        """A context in which errors of the workers, and not of the work, become a `WorkersError`."""


class Pool(Workers):
    """An executor of `concurrent.futures` that somebody else opens and closes."""

    def __init__(self, pool: Executor) -> None:
        self.pool = pool

    def threads(self) -> int:
        """As many as there are cores."""
        return cores()

    def require_known(self, functions: Mapping[str, Callable[..., object]]) -> None:
        """Processes load them by their names."""
        if isinstance(getattr(self, "pool", None), ProcessPoolExecutor):
            try:
                pickle.dumps(dict(functions))
            except (pickle.PicklingError, AttributeError, TypeError):
                why = "write them in a module, or leave client out, so that threads read"
                raise requirement(
                    "transforms", "functions that other processes can import", ", ".join(functions), why
                ) from None

    def submit(self, work: Callable[..., T], task: tuple[object, ...]) -> Future[T]:
        """Unless it is shut down, or broken."""
        try:
            return self.pool.submit(work, *task)
        except BrokenExecutor:
            raise
        except RuntimeError as error:
            raise WorkersError(f"the executor takes no tasks: {error}.") from None

    def results(self, futures: list[Future[T]]) -> Iterable[T]:
        """One after another; where one fails, the others are given up."""
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                self.give_up(future)

    def give_up(self, future: Future[T]) -> None:
        """Unless it has begun."""
        future.cancel()

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Processes that died, and pools that were shut down."""
        try:
            yield
        except BrokenExecutor:
            raise WorkersError("a worker process died, perhaps because memory ran out.") from None
        except CancelledError:
            raise WorkersError("the executor was shut down.") from None


class Threads(Pool):
    """One thread more than there are cores, for one pass each time: so that some read while others compute."""

    def __init__(self) -> None:
        pass

    def run(self, work: Callable[..., T], tasks: Iterable[tuple[object, ...]], tell: Tell) -> Iterator[T]:
        """By a pool that ends with the pass."""
        with ThreadPoolExecutor(cores() + 1) as pool:
            yield from Pool(pool).run(work, tasks, tell)


class Cluster(Workers):
    """A `distributed.Client`: the scheduler runs tasks of workers that died again, and a failed task three times.

    Nothing but names of files and a few numbers goes to the workers; sums and single rows come back.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def threads(self) -> int:
        """Of the workers that are there now."""
        return sum(self.client.nthreads().values())

    def submit(self, work: Callable[..., T], task: tuple[object, ...]) -> Future[T]:
        return self.client.submit(work, *task, pure=False, retries=_RETRIES)

    def require_known(self, functions: Mapping[str, Callable[..., object]]) -> None:
        """Dask sends any of them."""

    def results(self, futures: list[Future[T]]) -> Iterable[T]:
        return self.client.gather(futures)

    def give_up(self, future: Future[T]) -> None:
        """The scheduler forgets what nobody holds."""

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Workers that die, a scheduler that goes away, and a cluster without the packages."""
        from distributed import KilledWorker

        try:
            yield
        except KilledWorker as error:
            raise WorkersError(f"workers died again and again at a partition, as if memory ran out: {error}") from None
        except ImportError as error:
            raise WorkersError(f"{_UNLIKE} ({error}).") from None
        except (CancelledError, TimeoutError, OSError, RuntimeError) as error:
            if "deserialization" in str(error):
                raise WorkersError(f"{_UNLIKE}.") from None
            if self.client.status == "running" and not isinstance(error, (CancelledError, TimeoutError)):
                raise  # it is one of a task
            raise WorkersError(f"the cluster went away ({type(error).__name__}).") from None


ClientLike = Client | Executor | str | None  # None: threads of this machine


def workers_of(client: ClientLike) -> Workers:
    """Threads of this machine for None; else what was given."""
    if client is None:
        return Threads()
    if isinstance(client, str):
        return Cluster(_connected(client))
    if isinstance(client, Executor):
        return Pool(client)
    if hasattr(client, "submit") and hasattr(client, "scheduler_info"):
        return Cluster(client)
    raise requirement("client", _ALLOWED, repr(client))


def _connected(address: str) -> Client:
    try:
        import distributed
    except ImportError:
        raise missing_package("distributed", "dask", "a Dask cluster") from None
    try:
        return cast(Client, distributed.Client(address, timeout=_PATIENCE))  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise WorkersError(f"no Dask scheduler answers at {address!r} within {_PATIENCE} seconds.") from error


def _file_problem(error: OSError) -> str:
    """What is wrong with a file."""
    if isinstance(error, FileNotFoundError):
        return f"{error.filename or error}: the file is not there any more."
    return f"{error.filename or 'A file'} cannot be read: {error.strerror or error}."


class InPartitions(Partitions):
    """A reader with its workers."""

    def __init__(self, reader: Reader, workers: Workers) -> None:
        self.reader, self.workers = reader, workers

    def __repr__(self) -> str:
        rows, columns = int(self.reader.sizes.sum()), len(self.reader.names)
        return f"Partitions({rows:,} rows, {columns} columns, {len(self.reader.sizes)} partitions)"

    def read_by(self, reader: Reader) -> InPartitions:
        """The same workers with another reader."""
        return InPartitions(reader, self.workers)

    def pass_over(
        self, work: Callable[..., T], arguments: Sequence[tuple[int, *tuple[object, ...]]], purpose: str
    ) -> Iterator[T]:
        """One task for each partition."""
        return pass_over(self.workers, self.reader, work, arguments, purpose)


class Parted(Protocol):
    """Whatever can be cut down to one of its partitions."""

    def only(self, number: int) -> object:
        """The same with one of them, which has the number 0."""


def pass_over(
    workers: Workers,
    parted: Parted,
    work: Callable[..., T],
    arguments: Sequence[tuple[int, *tuple[object, ...]]],
    purpose: str,
) -> Iterator[T]:
    """work(one partition, 0, *rest) for each (number, *rest) of some arguments, in their order, as they are there."""
    tasks = ((parted.only(number), 0, *rest) for number, *rest in arguments)
    try:
        yield from workers.run(
            work, tasks, lambda done: set_progress_note(f"{purpose}, {done} of {len(arguments)} partitions")
        )
    except WorkersError as error:
        raise WorkersError(f"{error} It was in the pass '{purpose}'. {_GO_ON}") from None
    except OSError as error:  # of a file
        raise DataError(f"{_file_problem(error)} It was in the pass '{purpose}'. {_GO_ON}") from None
    finally:
        set_progress_note("")
