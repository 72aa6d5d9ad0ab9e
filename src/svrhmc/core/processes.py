"""Processes that others start: they end with the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from threading import Thread

_STARTED_BY_ANOTHER = "--multiprocessing-fork"  # on the command line of every process that is spawned
_SOON = 0.02  # seconds


def end_with_parent() -> bool:
    """Let a worker end when the process that started it is gone, however it went and whenever; False in any other.

    What is watched is a pipe that the system closes with the parent, so that it does not matter whether the parent is
    still there when the watch begins. A worker learns of that pipe after it has imported what its parent was started
    with; so it may be called there.
    """
    if _STARTED_BY_ANOTHER not in sys.orig_argv:
        return False

    def watch() -> None:
        while (parent := multiprocessing.parent_process()) is None:
            time.sleep(_SOON)
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
    return True


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """What is started within never hears a Ctrl-C, which a terminal sends to all: it is for the one who started them.

    A signal that is blocked stays so in a process that is started meanwhile; here it comes through in the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not where there is no such thing
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
