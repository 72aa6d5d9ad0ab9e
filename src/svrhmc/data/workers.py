"""Who makes the passes: threads, processes or the workers of a Dask cluster, through `submit` and `result` alone.

A task is a pure function of a reader, the number of a partition and a few numbers, so that any worker may run it, and
run it again. Results are taken in the order of the tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from svrhmc.core.arrays import cores
from svrhmc.core.errors import DataError, WorkersError, missing, requirement
from svrhmc.core.progress import note
from svrhmc.targets.reading import Partitions, Reader

T = TypeVar("T")
Tell = Callable[[int], None]
_RETRIES, _PATIENCE = 3, 8  # times that a cluster runs a failed task again; seconds to wait for its address
_TOLD = 100  # times in a pass that a cluster is asked for results
_GO_ON = (
    "Run the same call again when that is put right; what was found before is kept in the folder of checkpoint=…, if "
    "you gave one."
)
_UNLIKE = (
    "the cluster cannot load the work: its scheduler and workers need the packages that this process has, svrhmc too"
)
_ALLOWED = "None, a concurrent.futures executor, a distributed.Client, or the address of a Dask cluster"


class Workers(ABC):
    """Submits tasks and waits for them."""

    @abstractmethod
    def run(self, work: Callable[..., T], tasks: Sequence[tuple[Any, ...]], tell: Tell) -> list[T]:
        """The results, in the order of the tasks; `tell` hears how many are there."""


class Threads(Workers):
    """One thread more than there are cores, for one pass each time: so that some read while others compute."""

    def run(self, work: Callable[..., T], tasks: Sequence[tuple[Any, ...]], tell: Tell) -> list[T]:
        """By a pool that ends with the pass."""
        with ThreadPoolExecutor(max(1, min(cores() + 1, len(tasks)))) as pool:
            return Pool(pool).run(work, tasks, tell)


class Pool(Workers):
    """An executor of `concurrent.futures` that somebody else opens and closes."""

    def __init__(self, pool: Executor) -> None:
        self.pool = pool

    def run(self, work: Callable[..., T], tasks: Sequence[tuple[Any, ...]], tell: Tell) -> list[T]:
        """All tasks at once; where one fails, those that have not begun are cancelled."""
        try:
            futures = [self.pool.submit(work, *task) for task in tasks]
        except RuntimeError as error:  # it is shut down, or broken
            raise WorkersError(f"the executor takes no tasks: {error}.") from None
        found: list[T] = []
        try:
            for future in futures:
                found.append(future.result())
                tell(len(found))
            return found
        except BrokenExecutor:
            raise WorkersError("a worker process died, perhaps because memory ran out.") from None
        except CancelledError:
            raise WorkersError("the executor was shut down.") from None
        finally:
            for future in futures:
                future.cancel()


class Cluster(Workers):
    """A `distributed.Client`: the scheduler runs tasks of workers that died again, and a failed task three times."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, work: Callable[..., T], tasks: Sequence[tuple[Any, ...]], tell: Tell) -> list[T]:
        """Nothing but names of files and a few numbers goes to the workers; sums and single rows come back."""
        from distributed import KilledWorker

        found: list[T] = []
        size = -(-len(tasks) // _TOLD)
        try:
            futures = [self.client.submit(work, *task, pure=False, retries=_RETRIES) for task in tasks]
            for low in range(0, len(futures), size):
                found += self.client.gather(futures[low : low + size])
                tell(len(found))
            return found
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


def workers_of(client: Any) -> Workers:
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


def _connected(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise missing("distributed", "dask", "a Dask cluster") from None
    try:
        return Client(address, timeout=_PATIENCE)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise WorkersError(f"no Dask scheduler answers at {address!r} within {_PATIENCE} seconds.") from error


def _said(error: OSError) -> str:
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

    def each(self, work: Callable[..., T], arguments: Sequence[tuple[Any, ...]], told: str) -> list[T]:
        """One task for each partition."""
        return each_of(self.workers, self.reader, work, arguments, told)


class Parted(Protocol):
    """Whatever has partitions."""

    def only(self, number: int) -> Any:
        """The same with one of them, which has the number 0."""


def each_of(
    workers: Workers, parted: Parted, work: Callable[..., T], arguments: Sequence[tuple[Any, ...]], told: str
) -> list[T]:
    """work(one partition, 0, *rest) for each (number, *rest) of some arguments, in their order."""
    tasks = [(parted.only(number), 0, *rest) for number, *rest in arguments]
    try:
        return workers.run(work, tasks, lambda done: note(f"{told}, {done} of {len(tasks)} partitions"))
    except WorkersError as error:
        raise WorkersError(f"{error} It was in the pass '{told}'. {_GO_ON}") from None
    except OSError as error:  # of a file
        raise DataError(f"{_said(error)} It was in the pass '{told}'. {_GO_ON}") from None
    finally:
        note("")
