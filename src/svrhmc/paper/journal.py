"""The work of a task in pieces, each computed once: results of finished pieces are stored in the task's journal."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from svrhmc.checkpoint import Checkpoint, Clock, InMemory, Journal, remove_checkpoint
from svrhmc.core.errors import CheckpointError, CheckpointInUseError, nonnegative, requirement
from svrhmc.core.storage import Record
from svrhmc.density.base import FiniteSum
from svrhmc.paper.settings import Result
from svrhmc.samplers import Sampler
from svrhmc.trace import Trace

R = TypeVar("R")
_PATIENCE = 10.0  # seconds for a process of a run that was killed to end
_RECORD = "pieces"


class Pieces:
    """Results of finished pieces by name, as plain JSON values in one record that is written about every second.

    The seconds of a task are counted from the start of this object, and added up over interruptions.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        record = journal.get(_RECORD)
        self._done = {} if record is None else record.value("done", _dictionary)
        self._earlier, self._began = seconds_spent(journal), time.perf_counter()
        self._clock, self._new = Clock(), False

    def __enter__(self) -> Pieces:
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if self._new:
            self.save()

    def once(self, name: str, make: Callable[..., Any], *arguments: object) -> Any:
        """The stored result under this name; if there is none, make(*arguments), which is stored."""
        if name not in self._done:
            self._done[name] = make(*arguments)
            self._new = True
            self._save_when_due()
        return self._done[name]

    def save(self) -> None:
        """Write the results so far, and the seconds spent."""
        seconds = self._earlier + time.perf_counter() - self._began
        self.journal.put(_RECORD, {"done": self._done, "seconds": seconds})
        self._new = False

    def run(self, name: str, sampler: Sampler, target: FiniteSum, steps: int, **options: Any) -> Trace:
        """A run of many seconds with a checkpoint of its own; its draws are in memory, in their usual order.

        Its folder stays until `forget`, or until the folder of the task is removed.
        """
        folder = self._folder(name)
        if folder is None:
            return sampler.run(target, steps, **options)
        trace = sampler.run(
            target, steps, checkpoint=folder, progress=lambda done, total: self._save_when_due(), **options
        )
        return replace(trace, draws=np.ascontiguousarray(trace.draws))

    def recall_mode(self, name: str, target: FiniteSum) -> None:
        """Give a target its mode, which is found once and stored."""
        record = self.journal.once(name, lambda: Record({}, {"mode": target.mode()}))
        target.recall_mode(record.array("mode", (target.dim,)))

    def forget(self, name: str) -> None:
        """Remove the checkpoint of a run, after the results made from it are written."""
        folder = self._folder(name)
        if folder is not None and folder.exists():
            self.save()
            remove_checkpoint(folder)

    def _folder(self, name: str) -> Path | None:
        return self.journal.path / name if isinstance(self.journal, Checkpoint) else None

    def _save_when_due(self) -> None:
        if self.journal.kept and self._clock.due():
            self.save()


def resumable(task: Callable[..., R]) -> Callable[..., R]:
    """Call a task with its `Pieces` as last argument: those of the keyword argument `journal`, or else in memory."""

    @wraps(task)
    def resumed(*arguments: object, journal: Journal | None = None) -> R:
        with Pieces(InMemory() if journal is None else journal) as pieces:
            return task(*arguments, pieces)

    return resumed


def seconds_spent(journal: Journal) -> float:
    """The seconds that a task has taken, over all interruptions, up to its last record."""
    record = journal.get(_RECORD)
    return 0.0 if record is None else record.value("seconds", nonnegative)


def _dictionary(name: str, value: object) -> Result:
    """Check that a value is a dictionary of pieces by name."""
    if not isinstance(value, dict):
        raise requirement(name, "of pieces by their names", type(value).__name__)
    return value


def open_journal(folder: Path, settings: Result) -> Checkpoint:
    """A task's journal; an empty one if that in the folder was made with other settings or cannot be read.

    Processes of a run that was killed may hold the folder for some seconds, for which this waits.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return Checkpoint(folder, settings)
        except CheckpointInUseError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.05)
        except CheckpointError as error:
            if not unusable(error):
                raise
            remove(folder)


def unusable(error: CheckpointError) -> bool:
    """Whether the content of the folder is the cause of an error, and not another process or the system."""
    return not isinstance(error, CheckpointInUseError) and not isinstance(error.__cause__, OSError)


def remove(folder: Path) -> None:
    """Remove the journal of a task and those of its runs, and nothing else: no link is followed, and other files are
    left alone, which is an error.
    """
    if folder.is_dir() and not folder.is_symlink():
        for entry in sorted(folder.iterdir()):
            remove_checkpoint(entry)
        remove_checkpoint(folder, begun=True)
    if os.path.lexists(folder):
        raise CheckpointError(f"{folder} holds other files than those of an interrupted run: move it elsewhere.") from (
            OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        )
