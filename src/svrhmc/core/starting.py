"""The command while it starts and ends: an interrupt then is one line and exit code 130, and no traceback.

Loading the package takes a good part of a second, and nothing can catch an interrupt in the middle of it; so the
command, and no other program that loads the package, hears it by a handler until its work begins.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any

_WORKER = "--multiprocessing-fork"  # on the command line of processes that the command starts


def is_command() -> bool:
    """Whether this process is `svrhmc …` or `python -m svrhmc …`."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    as_module = name == "-m" and "svrhmc" in sys.orig_argv
    return _WORKER not in sys.orig_argv and (as_module or os.path.splitext(name)[0] == "svrhmc")


def end_quietly() -> None:
    """From now on an interrupt ends the process at once, unless it is dealt with in some other way already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, _end)


def hear_interrupts() -> None:
    """From now on an interrupt is Python's KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: Any) -> None:
    with suppress(OSError):
        os.write(2, b"Interrupted.\n")
    os._exit(130)


if is_command():
    end_quietly()
