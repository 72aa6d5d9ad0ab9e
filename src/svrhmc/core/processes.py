"""How the command and its workers start, hear an interrupt (Ctrl-C), and end.

An interrupt of the command prints one line and ends with exit code 130, without a traceback. Importing the package
takes a good part of a second, in which no `except` can catch an interrupt; so the command (and no other program that
imports the package) has a signal handler until its work begins. For the same reason this file imports very little.

While the command works, an interrupt is Python's, which waits for compiled code to return: a compiler, or one product
of large matrices, can take many seconds. So a second thread, which the system wakes at once, ends the process if it has
not ended by itself a second later. Files are complete at any moment.

Workers ignore interrupts, and end with the process that started them.
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
_interrupt_message = ["Interrupted."]  # empty once it is printed


def is_worker() -> bool:
    """Whether another process has spawned this one."""
    return _WORKER in sys.orig_argv


def is_command() -> bool:
    """Whether this process is `svrhmc …` or `python -m svrhmc …`."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    as_module = name == "-m" and "svrhmc" in sys.orig_argv
    return not is_worker() and (as_module or os.path.splitext(name)[0] == "svrhmc")


began = time.perf_counter() if is_command() else None  # when the command started, to report how long it took


def end_on_interrupt() -> None:
    """From now on an interrupt ends the process at once, unless another handler is installed already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, _end)


def hear_interrupts() -> None:
    """From now on an interrupt raises KeyboardInterrupt again, and ends the process a second later."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(ValueError, OSError):  # not in the main thread, or on Windows
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            Thread(target=_end_after_patience, args=(reader,), daemon=True).start()


def set_interrupt_message(line: str) -> None:
    """Set the line printed on stderr if an interrupt ends the process; nothing is printed if it is empty."""
    _interrupt_message[:] = [line] if line else []


def exit_after_interrupt(ended: SystemExit) -> None:
    """End the process after an interrupt, without waiting for the exit handlers of libraries."""
    if ended.code == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(INTERRUPTED)


def _end_after_patience(reader: int) -> None:
    while os.read(reader, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(_PATIENCE)
    _end()


def _end(*_: object) -> None:
    with suppress(OSError):
        os.write(2, "".join(f"{line}\n" for line in _interrupt_message).encode())
    os._exit(INTERRUPTED)


def end_with_parent() -> bool:
    """Let a worker end when the process that started it ends, in whatever way. False if this process is no worker.

    It watches a pipe that the system closes with the parent, so that the parent may already be gone when the watch
    begins. A worker gets that pipe after it has imported its parent's main module, so this may be called there.
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
def block_interrupts() -> Iterator[None]:
    """Processes started within this never receive a Ctrl-C, which a terminal sends to all: their parent handles it.

    A blocked signal stays blocked in a process that is started meanwhile; this process receives it at the end.
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
    end_on_interrupt()
