"""Progress on one line of a terminal, for runs that take more than a second or two."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TextIO

from svrhmc.core.code_cache import warn_if_not_kept
from svrhmc.core.errors import requirement

_PATIENCE = 1.5  # seconds before the line first appears
_PERIOD, _PERIOD_OF_LINES = 0.2, 10.0  # seconds between two updates, on a terminal and elsewhere
_stages: list[Event] = []  # those under way, the innermost last
_note = [""]  # a note about the work of the innermost stage,
_share = [0.0]  # and the share of it that is done, as far as it is known


def set_progress_note(text: str) -> None:
    """Set the note on how far the work of a stage is; a terminal shows it beside the stage's name."""
    _note[0] = text


def set_share_done(done: float) -> None:
    """Set the share of a stage's work that is done, from which the remaining time is estimated."""
    _share[0] = done


def format_duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours.

    >>> format_duration(40.2), format_duration(200.0), format_duration(9000.0)
    ('40 s', '3 minutes', '2.5 hours')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


class _Line:
    """One line of a terminal that is overwritten; elsewhere a line for each text, some seconds apart."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._terminal = stream, stream.isatty()
        self._width = 0
        self.period = _PERIOD if self._terminal else _PERIOD_OF_LINES

    def show(self, text: str) -> None:
        """Replace the line by this text."""
        _write(self._stream, "\r" + text.ljust(self._width) if self._terminal else text + "\n")
        self._width = max(self._width, len(text)) if self._terminal else 0

    def wipe(self) -> None:
        """Erase the line on a terminal."""
        if self._width:
            _write(self._stream, "\r" + " " * self._width + "\r")


class ProgressLine:
    """Counts work done; from 1.5 s on shows share, rate and time left on one line of a terminal.

    `show=None` shows it only where `stream` is a terminal; `remark` stands at its end.
    """

    def __init__(self, total: int, show: bool | None = None, stream: TextIO | None = None, remark: str = "") -> None:
        self._total, self._done, self._remark = total, 0, remark
        out = sys.stderr if stream is None else stream
        self._line = _Line(out) if is_shown(show, out) else None
        self._bar = "━" if _can_write("━", out) else "="
        self._began = time.monotonic()
        self._next = self._began + _PATIENCE

    def __call__(self, amount: int) -> None:
        """Count some more work."""
        self._done += amount
        if self._line is not None and time.monotonic() >= self._next:
            self._line.show(self._text())
            self._next = time.monotonic() + self._line.period

    def close(self) -> None:
        """Erase the line, if one was written."""
        if self._line is not None:
            self._line.wipe()

    def _text(self) -> str:
        spent = max(time.monotonic() - self._began, 1e-9)
        share = self._done / self._total
        filled = int(30 * share)
        left = f"{format_duration(spent * (1 - share) / share)} left" if share else ""
        bar = f"[{self._bar * filled}{' ' * (30 - filled)}] {share:4.0%}"
        return f"sampling {bar}  {self._done / spent:,.0f} chain steps/s  {left}{self._remark}"


def is_shown(show: bool | None, stream: TextIO | None) -> bool:
    """Whether a line is shown: never if there is no stream to write to, as in programs without a console."""
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
    """Write a text; a terminal that was closed ends no run."""
    with suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()


@contextmanager
def stage(name: str, progress: Progress, stream: TextIO | None = None) -> Iterator[None]:
    """Work that may be long: from 0.5 s on, a terminal shows its name, the seconds it has taken and, if the work
    reports the share that is done (`set_share_done`), an estimate of the seconds that are left.

    `progress` is that of `reporter`; a callable is only called with chain steps, so that here nothing is shown.
    """
    out = sys.stderr if stream is None else stream
    if callable(progress) or out is None or not is_shown(progress, out):
        yield
        return
    done, line, began = Event(), _Line(out), time.monotonic()
    before, _share[0] = _share[0], 0.0
    _stages.append(done)

    def show() -> None:
        wait = 0.5
        while not done.wait(wait):
            if _stages[-1] is not done:  # a stage within this one has the line
                continue
            spent, share = time.monotonic() - began, _share[0]
            note = f" ({_note[0]})" if _note[0] else ""
            left = f", about {format_duration(spent * (1 - share) / share)} left" if 0.02 < share < 1 else ""
            line.show(f"{name}{note}: {spent:.0f} s{left}")
            wait = max(1.0, line.period)

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        _stages.remove(done)
        _share[0] = before
        line.wipe()


@contextmanager
def compilation_stage(progress: Progress, stream: TextIO | None = None) -> Iterator[None]:
    """The stage in which code is compiled or loaded from files; shown if it takes long.

    The compiler keeps very many small objects: with garbage collection it would take a tenth longer. At the end they
    become old at once, as the search for cycles among them, which are hardly any, takes 0.3 seconds.
    """
    if progress is not False:
        warn_if_not_kept(stream)
    collecting = gc.isenabled()
    gc.disable()
    try:
        with stage("preparing compiled code, some seconds the first time on a machine", progress, stream):
            yield
    finally:
        if collecting:
            if not gc.get_freeze_count():  # else the user has frozen objects, which would be released
                gc.freeze()
                gc.unfreeze()
            gc.enable()
        if progress is not False:
            warn_if_not_kept(stream)


Progress = bool | Callable[[int, int], None] | None


def reporter(progress: Progress, total: int, remark: str = "") -> tuple[Callable[[int], None], Callable[[], None]]:
    """Two functions: one that an engine calls with each amount of work done, and one that ends the report.

    progress: a callable of (done, total) in chain steps; True, False or None: a line always, never, or on a terminal.
    """
    if callable(progress):
        report, done = progress, 0

        def count(amount: int) -> None:
            nonlocal done
            done += amount
            report(done, total)

        return count, lambda: None
    if not (progress is None or isinstance(progress, bool)):
        raise requirement("progress", "True, False, None or a function of (done, total)", repr(progress))
    line = ProgressLine(total, progress, remark=remark)
    return line, line.close
