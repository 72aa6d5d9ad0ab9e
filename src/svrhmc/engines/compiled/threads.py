"""Work on several threads, in pieces of a tenth of a second."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event

from svrhmc.engines.base import Report

PIECE_SECONDS = 0.1
HIGH = 1 << 32


class Pace:
    """How many chain steps a piece of a tenth of a second has, learnt from the pieces so far."""

    def __init__(self) -> None:
        self.steps = 64

    def learn(self, steps: int, seconds: float) -> None:
        """So many chain steps took so long; a call that only asked for a pass over the rows made none."""
        if steps:
            wanted = steps * PIECE_SECONDS / max(seconds, 1e-9)
            self.steps = int(min(max(wanted, 1), 8 * self.steps, 1 << 40))


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
                _, waiting = wait(waiting, timeout=PIECE_SECONDS)
                now = sum(done)
                if now > told:
                    report(now - told)
                told = now
        finally:
            stopped.set()
    for future in futures:
        future.result()
