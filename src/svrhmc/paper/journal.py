"""The work of a task in pieces, each made once: what is finished is kept in the task's journal, and not made again."""

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
    """Finished pieces by name, as plain JSON values: all of them in one record, written about every second.

    The seconds of a task count from here on, through all its lives.
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
        """What was made under this name before, else made now, of these arguments."""
        if name not in self._done:
            self._done[name] = make(*arguments)
            self._new = True
            self._save_when_due()
        return self._done[name]

    def save(self) -> None:
        """Write what there is."""
        seconds = self._earlier + time.perf_counter() - self._began
        self.journal.put(_RECORD, {"done": self._done, "seconds": seconds})
        self._new = False

    def run(self, name: str, sampler: Sampler, target: FiniteSum, steps: int, **options: Any) -> Trace:
        """A run of many seconds, which keeps its own state as it goes; the draws are in memory, in their usual order.

        Its folder stays until `forget`, or until the task's own is removed.
        """
        folder = self._folder(name)
        if folder is None:
            return sampler.run(target, steps, **options)
        trace = sampler.run(
            target, steps, checkpoint=folder, progress=lambda done, total: self._save_when_due(), **options
        )
        return replace(trace, draws=np.ascontiguousarray(trace.draws))

    def recall_mode(self, name: str, target: FiniteSum) -> None:
        """Let a target know its mode, found once."""
        record = self.journal.once(name, lambda: Record({}, {"mode": target.mode()}))
        target.recall_mode(record.array("mode", (target.dim,)))

    def forget(self, name: str) -> None:
        """Remove what a run kept, once what was made of it is written."""
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
    """A task whose last argument is its `Pieces`, from the `journal` that it is given by that name, else in memory."""

    @wraps(task)
    def resumed(*arguments: object, journal: Journal | None = None) -> R:
        with Pieces(InMemory() if journal is None else journal) as pieces:
            return task(*arguments, pieces)

    return resumed


def seconds_spent(journal: Journal) -> float:
    """By a task, in all its lives so far, up to its last record."""
    record = journal.get(_RECORD)
    return 0.0 if record is None else record.value("seconds", nonnegative)


def _dictionary(name: str, value: object) -> Result:
    """Pieces by their names."""
    if not isinstance(value, dict):
        raise requirement(name, "of pieces by their names", type(value).__name__)
    return value


def open_journal(folder: Path, settings: Result) -> Checkpoint:
    """A task's journal, empty where the one in this folder was made with other settings or cannot be read.

    Processes of a run that was killed end within seconds; so long it waits for the folder.
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
    """Whether what is in the folder is at fault, and not another process or the system."""
    return not isinstance(error, CheckpointInUseError) and not isinstance(error.__cause__, OSError)


def remove(folder: Path) -> None:
    """Remove the journal of a task, with those of its runs, and nothing else: no link is followed, and what somebody
    else has put there stays, which is an error.
    """
    if folder.is_dir() and not folder.is_symlink():
        for entry in sorted(folder.iterdir()):
            remove_checkpoint(entry)
        remove_checkpoint(folder, begun=True)
    if os.path.lexists(folder):
        raise CheckpointError(f"{folder} holds other files than those of an interrupted run: move it elsewhere.") from (
            OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        )
