"""How the command and its workers start, hear an interrupt (Ctrl-C), and end.

An interrupt of the command is one line and exit code 130, and no traceback. Loading the package takes a good part of a
second, and nothing can catch an interrupt in the middle of it; so the command, and no other program that loads the
package, has a handler for it until its work begins. For the same reason this file loads next to nothing.

While the command works an interrupt is Python's, which waits for compiled code to return: a compiler, or one product of
large matrices, can take many seconds. So a second thread, which the system tells of the interrupt at once, ends the
process where it has not ended by itself a second later. Whatever is kept in files is whole at any moment.

Workers leave interrupts to the process that started them, and end with it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

INTERRUPTED = 130  # the exit code
_PATIENCE = 1.0  # seconds after an interrupt, in which the command may end by itself
_POLL = 0.02  # seconds
_WORKER = "--multiprocessing-fork"  # on the command line of every process that is spawned
_last_words = ["Interrupted."]  # none once they are said


def is_worker() -> bool:
    """Whether another process has spawned this one."""
    return _WORKER in sys.orig_argv


def is_command() -> bool:
    """Whether this process is `svrhmc …` or `python -m svrhmc …`."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    as_module = name == "-m" and "svrhmc" in sys.orig_argv
    return not is_worker() and (as_module or os.path.splitext(name)[0] == "svrhmc")


began = time.perf_counter() if is_command() else None  # when the command started, for it to say how long it took


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
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            Thread(target=_end_late, args=(reader,), daemon=True).start()


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


def _end_late(reader: int) -> None:
    while os.read(reader, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(_PATIENCE)
    _end()


def _end(*_: object) -> None:
    with suppress(OSError):
        os.write(2, "".join(f"{line}\n" for line in _last_words).encode())
    os._exit(INTERRUPTED)


def end_with_parent() -> bool:
    """Let a worker end when the process that started it is gone, however it went and whenever; False in any other.

    What is watched is a pipe that the system closes with the parent, so that it does not matter whether the parent is
    still there when the watch begins. A worker learns of that pipe after it has imported what its parent was started
    with; so it may be called there.
    """
    if not is_worker():
        return False
    import multiprocessing
    from multiprocessing.connection import wait

    def watch() -> None:
        while (parent := multiprocessing.parent_process()) is None:
            time.sleep(_POLL)
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
    return True


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """What is started within never hears a Ctrl-C, which a terminal sends to all: it is for the one who started them.

    A signal that is blocked stays so in a process that is started meanwhile; here it comes through in the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


if is_command():
    end_quietly()
