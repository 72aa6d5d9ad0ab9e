"""A line of progress for runs that take long enough to wonder about."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TextIO

from svrhmc.core.caching import tell
from svrhmc.core.errors import requirement

_PATIENCE = 1.5  # seconds before the line first appears
_PERIOD = 0.2
_stages: list[Event] = []  # those under way, the innermost last
_noted = [""]  # how far the work of the innermost is


def note(text: str) -> None:
    """Say how far the work of a stage is, where that is known: a terminal shows it beside the stage's name."""
    _noted[0] = text


class ProgressLine:
    """Counts work done; from 1.5 s on shows share, rate and time left on one line of a terminal.

    `show=None` shows it only where `stream` is a terminal.
    """

    def __init__(self, total: int, show: bool | None = None, stream: TextIO | None = None) -> None:
        self._total, self._done = total, 0
        self._stream = sys.stderr if stream is None else stream
        self._show = is_shown(show, self._stream)
        self._bar = "━" if _can_write("━", self._stream) else "="
        self._began = time.monotonic()
        self._next = self._began + _PATIENCE
        self._width = 0

    def __call__(self, amount: int) -> None:
        """Some more work is done."""
        self._done += amount
        if self._show and time.monotonic() >= self._next:
            self._draw()
            self._next = time.monotonic() + _PERIOD

    def close(self) -> None:
        """Wipe the line."""
        if self._width and self._stream is not None:
            _write(self._stream, "\r" + " " * self._width + "\r")

    def _draw(self) -> None:
        if self._stream is None:
            return
        spent = time.monotonic() - self._began
        share = self._done / self._total
        filled = int(30 * share)
        left = spent * (1 - share) / share if share else float("inf")
        text = (
            f"sampling [{self._bar * filled}{' ' * (30 - filled)}] {share:4.0%}  "
            f"{self._done / spent:,.0f} chain steps/s  {left:,.0f} s left"
        )
        _write(self._stream, "\r" + text.ljust(self._width))
        self._width = max(self._width, len(text))


def is_shown(show: bool | None, stream: TextIO | None) -> bool:
    """Whether a line is shown: never where there is nothing to write to, as in programs without a console."""
    if stream is None or getattr(stream, "closed", False):
        return False
    return stream.isatty() if show is None else show


def _can_write(text: str, stream: TextIO | None) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeError, LookupError):
        return False
    return True


def _write(stream: TextIO, text: str) -> None:
    """A terminal that is gone ends no run."""
    with suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()


@contextmanager
def finishing(finish: Callable[[], None]) -> Iterator[None]:
    """End a line of progress, whatever happens."""
    try:
        yield
    finally:
        finish()


@contextmanager
def stage(name: str, progress: Progress, stream: TextIO | None = None) -> Iterator[None]:
    """Work whose length nobody knows: from 0.5 s on, a terminal shows its name and the seconds it has taken.

    `progress` is that of `reporter`; a callable is told of chain steps alone, and nothing is shown.
    """
    out = sys.stderr if stream is None else stream
    if callable(progress) or out is None or not is_shown(progress, out):
        yield
        return
    done, width, began = Event(), 0, time.monotonic()
    _stages.append(done)

    def tell() -> None:
        nonlocal width
        wait = 0.5
        while not done.wait(wait):
            if _stages[-1] is not done:  # a stage within this one has the line
                continue
            far = f" ({_noted[0]})" if _noted[0] else ""
            text = f"{name}{far}: {time.monotonic() - began:.0f} s"
            _write(out, "\r" + text.ljust(width))
            width, wait = max(width, len(text)), 1.0

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        _stages.remove(done)
        if width:
            _write(out, "\r" + " " * width + "\r")


@contextmanager
def compiling(progress: Progress, stream: TextIO | None = None) -> Iterator[None]:
    """Compilation, or the loading of what was compiled before; said aloud where it takes long.

    The compiler makes very many small objects and keeps them: looking for cycles among them would take a tenth longer.
    """
    tell(progress, stream)
    collecting = gc.isenabled()
    gc.disable()
    try:
        with stage("preparing compiled code, slow only the first time on a machine", progress, stream):
            yield
    finally:
        if collecting:
            gc.enable()
        tell(progress, stream)


Progress = bool | Callable[[int, int], None] | None


def reporter(progress: Progress, total: int) -> tuple[Callable[[int], None], Callable[[], None]]:
    """What an engine calls with each amount of work done, and what ends it.

    A callable is given (done, total) in chain steps; True, False and None mean a line always, never, on a terminal.
    """
    if callable(progress):
        told, done = progress, 0

        def tell(amount: int) -> None:
            nonlocal done
            done += amount
            told(done, total)

        return tell, lambda: None
    if not (progress is None or isinstance(progress, bool)):
        raise requirement("progress", "True, False, None or a function of (done, total)", repr(progress))
    line = ProgressLine(total, progress)
    return line, line.close
