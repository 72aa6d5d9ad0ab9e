"""Free memory, and how many threads of BLAS this process should use.

BLAS libraries start threads for products of more than some 64³ multiplications, which wait for each other by spinning.
If several threads of ours call BLAS at the same time, or other programs use the cores, that wait takes longer than the
product: a Gram matrix of 60,000 × 44 took 230 ms of the processor on two busy cores, and 10 ms with one BLAS thread in
each of ours. With one thread the rounding of a sum does not depend on the number of cores, either.

Free memory is read from the system itself: psutil reports that of the machine, without the limit of a container.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

NARROW = 256  # columns up to which threads of BLAS take longer to synchronise than to multiply
_GROUP = Path("/sys/fs/cgroup")


def free_memory() -> float:
    """How many bytes this process may still allocate; infinity if the system does not say."""
    return min([*_free_on_machine(), *_free_in_group(), *_free_addresses(), float("inf")])


def blas_for(columns: int) -> AbstractContextManager[None]:
    """A context with one thread of BLAS for matrices of few columns, and no limit for wider ones."""
    return one_blas_thread() if columns <= NARROW else nullcontext()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within this BLAS has one thread, in every thread of this process; afterwards as many as before.

    OpenBLAS accepts such a limit from the main thread alone: in other threads nothing changes.
    """
    if current_thread() is not main_thread():
        yield
        return
    with _blas_libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _blas_libraries() -> ThreadpoolController:
    """NumPy's BLAS, and SciPy's if it has its own."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _free_on_machine() -> list[float]:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return [1024.0 * int(line.split()[1])]
    with suppress(AttributeError, ValueError, OSError):
        return [float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))]
    return []


def _free_in_group() -> list[float]:
    """A container's own limit: Linux, version 2 of control groups."""
    with suppress(OSError, ValueError):
        limit = (_GROUP / "memory.max").read_text().strip()
        if limit != "max":
            return [float(int(limit) - int((_GROUP / "memory.current").read_text()))]
    return []


def _free_addresses() -> list[float]:
    """RLIMIT_AS, less the addresses in use."""
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            in_use = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            return [float(limit - in_use)]
    return []
