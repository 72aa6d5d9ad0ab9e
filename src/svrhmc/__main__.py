"""`svrhmc` and `python -m svrhmc`."""

from __future__ import annotations

import signal
import sys

if "--multiprocessing-fork" in sys.orig_argv:  # a worker of `svrhmc reproduce`, which imports this file first of all
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the command itself, which ends its workers

from svrhmc.core import processes
from svrhmc.core.errors import missing_package

processes.end_with_parent()


def main() -> None:
    """Start the shell, or say what it needs."""
    try:
        from svrhmc.shell.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"error: {missing_package('Typer and Rich', 'cli', 'the svrhmc command')}")
    processes.hear_interrupts()
    try:
        app()
    except SystemExit as ended:
        processes.exit_after_interrupt(ended)
        raise
    finally:
        processes.end_on_interrupt()  # the work is done, and what is left is to end


if __name__ == "__main__":
    __spec__ = None  # else workers of `python -m svrhmc` do not import this file
    main()
