"""Processes that others start: they end with the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
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
