"""Work on several threads, in pieces of a tenth of a second."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event

from svrhmc.engines import pace
from svrhmc.engines.base import Report


def share(work: Callable[[Report], None], threads: int, report: Report, stopped: Event) -> None:
    """The work on some threads; an interrupt sets `stopped`, and they end after their present piece."""
    if threads == 1:
        work(report)
        return
    done, told = [0] * threads, 0

    def count(place: int) -> None:
        def tell(amount: int) -> None:
            done[place] += amount

        try:
            work(tell)
        except BaseException:
            stopped.set()
            raise

    with ThreadPoolExecutor(threads) as pool:
        futures: list[Future[None]] = [pool.submit(count, place) for place in range(threads)]
        try:
            waiting = set(futures)
            while waiting:
                _, waiting = wait(waiting, timeout=pace.PIECE_SECONDS)
                now = sum(done)
                if now > told:
                    report(now - told)
                told = now
        finally:
            stopped.set()
    for future in futures:
        future.result()
