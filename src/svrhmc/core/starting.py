"""The command while it starts and ends: an interrupt then is one line and exit code 130, and no traceback.

Loading the package takes a good part of a second, and nothing can catch an interrupt in the middle of it; so the
command, and no other program that loads the package, hears it by a handler until its work begins.

While it works an interrupt is Python's, which waits for compiled code to return: a compiler, or one product of large
matrices, can take many seconds. So a second thread, which the system tells of the interrupt at once, ends the process
where it has not ended by itself a second later. Whatever is kept in files is whole at any moment.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from threading import Thread
from typing import Any

INTERRUPTED = 130  # the exit code
_PATIENCE = 1.0  # seconds after an interrupt, in which the command may end by itself
_last_words = ["Interrupted."]  # none once they are said
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
    """From now on an interrupt is Python's KeyboardInterrupt again, and the end of the process soon after."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(ValueError, OSError):  # not in the main thread, or on Windows
            heard, told = os.pipe()
            os.set_blocking(told, False)
            signal.set_wakeup_fd(told, warn_on_full_buffer=False)
            Thread(target=_end_late, args=(heard,), daemon=True).start()


def last_words(line: str) -> None:
    """What is said on stderr where an interrupt ends the process; nothing where the line is empty."""
    _last_words[:] = [line] if line else []


def end_at_once(ended: SystemExit) -> None:
    """After an interrupt, without waiting for libraries that tidy up."""
    if ended.code == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(INTERRUPTED)


def _end_late(heard: int) -> None:
    while os.read(heard, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(_PATIENCE)
    _end()


def _end(*_: Any) -> None:
    with suppress(OSError):
        os.write(2, "".join(f"{line}\n" for line in _last_words).encode())
    os._exit(INTERRUPTED)


if is_command():
    end_quietly()
