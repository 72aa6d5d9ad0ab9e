"""One thread for linear algebra, where threads of our own share the rows.

BLAS libraries start threads for products of more than some 64³ multiplications and have them wait for each other by
spinning. Where several threads of ours call BLAS at the same time, or other programs want the cores, that wait takes
longer than the product: a gram of 60,000 × 44 took 230 ms of the processor on two busy cores, and 10 ms with one BLAS
thread in each of ours. With one thread no digit of a sum depends on how many cores there are, either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import current_thread, main_thread
from typing import Any

NARROW = 256  # columns up to which threads of BLAS take longer to meet than to multiply


def blas_for(columns: int) -> AbstractContextManager[None]:
    """One thread of BLAS for matrices of so few columns; as many as it likes for wider ones."""
    return one_blas_thread() if columns <= NARROW else nullcontext()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within it BLAS has one thread, in every thread of this process; afterwards as many as before.

    OpenBLAS takes such a limit from the main thread alone: where another thread calls, nothing changes.
    """
    if current_thread() is not main_thread():
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> Any:
    """Of the libraries that are loaded: NumPy's, and SciPy's where it has one of its own."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
