"""Work that survives: what a run has made so far is kept in a folder, and the same call goes on from there.

    settings      what the run is: every setting that decides its numbers, and digests of its data
    NAME          records of what is finished, or of where something stands
    NAME.rows     numbers that grow, as raw float64, such as the draws; what is written is never changed

A record is written in one step, and says how much of each growing file belongs to it, with checksums. So a kill at any
moment leaves the last record and all that it speaks of; what was written after it is cut off when work goes on.

A folder may come from somebody else. The names of files are those of the work that goes on, never those that a record
gives; a link, or a file that has a second name, is neither followed nor written; only files that a checkpoint made are
removed. What a record holds is checked against the work that goes on (`Record.value`, `Record.array`), and that a
growing file has the shape which that work has: so nothing of another size reaches compiled code.
"""

from __future__ import annotations

import json
import math
import os
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from svrhmc.core.arrays import Array, Values
from svrhmc.core.code_cache import compile_in_subprocess
from svrhmc.core.errors import CheckpointError, CheckpointInUseError, StorageError, requirement, whole_number
from svrhmc.core.recording import Entry, Recording
from svrhmc.core.storage import (
    Record,
    is_partial_record,
    is_plain,
    is_record,
    open_file,
    read_record,
    sync_folder,
    write_record,
)  # fmt: skip

SECONDS = 2.0  # between two records of a run that goes on
_LEAST_SHARE = 0.1  # of these: work that is not worth a record of its own
_FORMAT, _VERSION = "svrhmc-checkpoint", 1
_IN_WORDS = {  # settings that speak of the model and its data
    "n": "table (n, its number of rows)",
    "dim": "model or table (dim, the number of its coefficients)",
}  # fmt: skip
_LOCK, _SETTINGS, _ROWS = "lock", "settings", ".rows"
_PIECE = 1 << 24  # bytes of a growing file read at once
_MOST_AXES = 4  # of a row
_MOST_DEEP, _MOST_ARRAYS, _MOST_KEY = 100, 100, (1 << 32) - 1  # of a result of long work
_UNUSABLE = "cannot be used; choose another folder, or remove this one."


class GrowingRows(ABC):
    """Numbers for each of some chains that grow by blocks (chains, rows, …)."""

    @abstractmethod
    def append(self, block: Array) -> None:
        """Some more rows of every chain."""

    def expect(self, rows: int) -> None:
        """So many more will come, as far as is known."""
        return

    @abstractmethod
    def array(self) -> Array:
        """All of them: (chains, rows, …)."""


class Account(Protocol):
    """What was spent, which a record keeps beside the work it was spent on."""

    def ledger(self) -> dict[str, object]:
        """What was spent so far, as a record keeps it."""

    def resume(self, record: Record, name: str) -> None:
        """Go on from what a record says under a name, within a stage that is gone through again: what the stage counts
        itself is counted anew.
        """


class Journal(ABC):
    """Where a run keeps what it has made: in memory alone, or in a folder."""

    kept: bool  # whether it outlives the process

    @abstractmethod
    def get(self, name: str) -> Record | None:
        """What was put under this name, if anything."""

    @abstractmethod
    def put(self, name: str, settings: Mapping[str, object], arrays: Mapping[str, Values] | None = None) -> None:
        """Keep this, and all rows that were appended so far to what grows with this record."""

    @abstractmethod
    def growing(self, name: str, shape: tuple[int, ...], record: str) -> GrowingRows:
        """Rows that grow with a record; `shape` is (chains, …), without their number."""

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        self.close()
        if isinstance(value, StorageError):  # of a record that is not one of this work
            raise CheckpointError(f"{value} The checkpoint {_UNUSABLE}") from value

    def close(self) -> None:
        """No more is written."""
        return

    @contextmanager
    def recording(self, name: str, account: Account, depends_on: dict[str, object] | None = None) -> Iterator[None]:
        """Within this the results of long work (`svrhmc.core.recording`) are kept under a name.

        depends_on: what the work depends on beside the settings of the journal; results of other work are forgotten.
        """
        yield

    def within(self, name: str, account: Account, step: int, piece: int) -> AbstractContextManager[None]:
        """A recording of what the first of some steps takes, where a piece has one step only: after a kill it has. So a
        step that takes longer than there is between two kills comes to its end.
        """
        return self.recording(name, account, {"step": step}) if piece == 1 else nullcontext()

    def remove(self, name: str) -> None:
        """Forget a record that others have made needless."""
        return

    def once(self, name: str, make: Callable[[], Record]) -> Record:
        """What was made under this name before, else made now and kept."""
        record = self.get(name)
        if record is None:
            record = make()
            self.put(name, record.settings, record.arrays)
        return record


class InMemory(Journal):
    """Nothing is kept beyond the call."""

    kept = False

    def get(self, name: str) -> Record | None:
        """Nothing was put before."""
        return None

    def put(self, name: str, settings: Mapping[str, object], arrays: Mapping[str, Values] | None = None) -> None:
        """There is nothing to keep it in."""

    def growing(self, name: str, shape: tuple[int, ...], record: str) -> GrowingRows:
        return _RowsInMemory(shape)


class _RowsInMemory(GrowingRows):
    """In memory; rows that were expected are written to their place at once."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape, self._blocks = shape, list[Array]()
        self._room, self._filled = self._empty(0), 0  # the last block, as long as it is not full

    def expect(self, rows: int) -> None:
        self._close()
        self._room = self._empty(rows)

    def append(self, block: Array) -> None:
        rows = block.shape[1]
        if self._filled + rows > self._room.shape[1]:
            self._close()
            self._room, self._filled = block, rows
        elif rows:
            self._room[:, self._filled : self._filled + rows] = block
            self._filled += rows

    def array(self) -> Array:
        self._close()
        if not self._blocks:
            return self._empty(0)
        if len(self._blocks) > 1:  # each block goes as soon as it is copied
            whole, done = self._empty(sum(block.shape[1] for block in self._blocks)), 0
            while self._blocks:
                block = self._blocks.pop(0)
                whole[:, done : done + block.shape[1]] = block
                done += block.shape[1]
            self._blocks = [whole]
        return self._blocks[0]

    def _close(self) -> None:
        if self._filled:
            self._blocks.append(self._room[:, : self._filled])
        self._room, self._filled = self._empty(0), 0

    def _empty(self, rows: int) -> Array:
        return np.empty((self._shape[0], rows, *self._shape[1:]))


class Checkpoint(Journal):
    """A folder, opened for one call with its settings; used by one process at a time."""

    kept = True

    def __init__(self, path: str | os.PathLike[str], settings: dict[str, object]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise requirement("checkpoint", "the name of a folder", repr(path))
        self.path = Path(path)
        self._files: dict[str, dict[str, _RowsInFile]] = {}  # by record
        self._claims: dict[str, dict[str, Claim]] = {}  # of growing files, by record
        self._until_closed = ExitStack()
        with self._writing():
            self._open()
        try:
            self._check(settings)
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(f"{self.path} is a file; a checkpoint is a folder (a new one is created).")
        entries = sorted(self.path.iterdir()) if self.path.is_dir() else []
        partials = [entry for entry in entries if is_partial_record(entry)]
        if not any(entry.name == _SETTINGS for entry in entries):
            foreign = [entry.name for entry in entries if entry.name != _LOCK and entry not in partials]
            if foreign:
                raise CheckpointError(f"{self.path} is not a checkpoint: it has {foreign[0]} in it. Choose another.")
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.path / _LOCK)
        for partial in partials:  # of a process that was killed while it wrote
            partial.unlink(missing_ok=True)

    def _check(self, settings: dict[str, object]) -> None:
        """The settings of the call are those of the checkpoint, or it is new."""
        record = self._read(_SETTINGS)
        if record is None:
            header = {"format": _FORMAT, "version": _VERSION, "settings": settings}
            with self._writing():
                write_record(self.path / _SETTINGS, header, follow=False)
            return
        before, now = record.settings.get("settings"), _as_stored(settings)
        form = (record.settings.get("format"), record.settings.get("version"))
        if form != (_FORMAT, _VERSION) or not isinstance(before, dict):
            raise CheckpointError(f"{self.path} is not a checkpoint that this version of svrhmc can continue.")
        for name in dict.fromkeys([*before, *now]):
            if before.get(name) == now.get(name):
                continue
            if name == "version":
                raise CheckpointError(
                    f"{self.path} was begun by svrhmc {before.get(name)}, and this is {now.get(name)}: finish it with "
                    "that version, or choose another folder."
                )
            what = _IN_WORDS.get(name, name)
            raise CheckpointError(
                f"{self.path} was made with another {what}: {_shorten(before.get(name))}, and this call has "
                f"{_shorten(now.get(name))}. Use the same settings and data as before, or choose another folder."
            )
        self._until_closed.enter_context(compile_in_subprocess())  # what was interrupted once may be again

    def get(self, name: str) -> Record | None:
        """The record; what it says of growing files counts once they are asked for."""
        record = self._read(name)
        if record is not None and name not in self._claims:
            self._claims[name] = claims_in(record)
        return record

    def put(self, name: str, settings: Mapping[str, object], arrays: Mapping[str, Values] | None = None) -> None:
        """Rows first, then the record that speaks of them."""
        with self._writing():
            claims = {
                **self._claims.get(name, {}),
                **{k: file.flush() for k, file in self._files.get(name, {}).items()},
            }
            rows = {file: [list(claim.shape), claim.rows, claim.checksum] for file, claim in claims.items()}
            write_record(self.path / name, {**settings, "rows": rows}, arrays, follow=False)

    def growing(self, name: str, shape: tuple[int, ...], record: str) -> GrowingRows:
        """A file of rows, which goes on where the record left it."""
        files = self._files.setdefault(record, {})
        if name not in files:
            claim, path = self._claims.get(record, {}).get(name, Claim(shape, 0, 0)), self.path / f"{name}{_ROWS}"
            if claim.shape != shape:
                raise CheckpointError(
                    f"{path} has rows of shape {claim.shape}, and this call has {shape}; the checkpoint {_UNUSABLE}"
                )
            with self._writing():
                files[name] = _RowsInFile(path, claim)
        return files[name]

    @contextmanager
    def recording(self, name: str, account: Account, depends_on: dict[str, object] | None = None) -> Iterator[None]:
        """In a record that is written every few seconds, and at the end."""
        work, clock, record = _as_stored(depends_on or {}), Clock(), self.get(name)
        earlier = _entries_in(record) if record is not None and record.settings.get("of") == work else []
        if record is not None and earlier:
            account.resume(record, "account")

        def save(entries: Sequence[Entry]) -> None:
            described = [[entry.depth, len(entry.arrays), entry.key] for entry in entries]
            arrays = {f"{k}.{j}": array for k, entry in enumerate(entries) for j, array in enumerate(entry.arrays)}
            self.put(name, {"of": work, "entries": described, "account": account.ledger()}, arrays)

        recording = Recording(earlier, clock.due, save)
        with recording.binding():
            yield
        if clock.elapsed() > _LEAST_SHARE * SECONDS:
            recording.flush()

    def remove(self, name: str) -> None:
        """Delete its file, if there is one."""
        path = self.path / name
        with self._writing():
            if os.path.lexists(path) and is_plain(path) and is_record(path):
                path.unlink()

    def close(self) -> None:
        """Another call may use the folder."""
        self._until_closed.close()
        for files in self._files.values():
            for file in files.values():
                file.close()
        self._lock.close()

    def _read(self, name: str) -> Record | None:
        try:
            return read_record(self.path / name, follow=False)
        except StorageError as error:
            raise CheckpointError(f"{error} The work stored in {self.path} {_UNUSABLE}") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What the system says about a file becomes a sentence."""
        try:
            yield
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint {self.path} cannot be written ({error.strerror}). What it held before is kept; once "
                "it can be written, the same call continues from there."
            ) from error


@dataclass(frozen=True)
class Claim:
    """What a record says of a growing file: the shape (chains, …) of a row, the number of rows, their checksum."""

    shape: tuple[int, ...]
    rows: int
    checksum: int

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return 8 * math.prod(self.shape) * self.rows

    def require_intact(self, path: Path) -> None:
        """Refuse a growing file that does not begin with these rows, all of them finite."""
        damaged = f"{path} is cut short or was changed; the work stored in {path.parent} cannot be used."
        if not self.size:
            return
        checksum, left, finite = 0, self.size, True
        try:
            with open_file(path, follow=False, kind=CheckpointError) as file:
                if os.fstat(file.fileno()).st_size < left:
                    raise CheckpointError(damaged)
                while left and (piece := file.read(min(left, _PIECE))):
                    checksum, left = zlib.crc32(piece, checksum), left - len(piece)
                    finite = finite and bool(np.isfinite(np.frombuffer(piece, np.float64, len(piece) // 8)).all())
        except FileNotFoundError:
            raise CheckpointError(damaged) from None
        if left or checksum != self.checksum or not finite:
            raise CheckpointError(damaged)

    def map_rows(self, path: Path) -> Array:
        """The rows as (chains, rows, …), map_rows and not read."""
        if not self.rows:
            return np.empty((self.shape[0], 0, *self.shape[1:]))
        with open_file(path, follow=False, kind=CheckpointError) as file:
            return np.moveaxis(np.memmap(file, np.float64, "r", shape=(self.rows, *self.shape)), 0, 1)


def claims_in(record: Record) -> dict[str, Claim]:
    """What a record says of growing files; anything else is an error."""
    return record.value("rows", _read_claims)


def _read_claims(name: str, files: object) -> dict[str, Claim]:
    if not isinstance(files, dict):
        raise requirement(name, "of growing files by their names", type(files).__name__)
    claims = {}
    for file, (shape, rows, checksum) in files.items():
        axes = tuple(whole_number(f"the shape of {file!r}", size, 1, 1 << 40) for size in shape)
        if not 0 < len(axes) < _MOST_AXES:
            raise requirement(f"the shape of {file!r}", "of a few numbers", len(axes))
        claims[file] = Claim(
            axes, whole_number("rows", rows, 0, 1 << 60), whole_number("checksum", checksum, 0, (1 << 32) - 1)
        )
    return claims


def _entries_in(record: Record) -> list[Entry]:
    """The results of long work that a record holds."""
    described = record.value("entries", _read_entries)
    names = [[f"{k}.{j}" for j in range(count)] for k, (_, count, _) in enumerate(described)]
    if sorted(record.arrays) != sorted(chain(*names)):
        raise record.unusable("it has other arrays than it speaks of")
    return [
        Entry(depth, tuple(record.arrays[array] for array in arrays), key)
        for (depth, _, key), arrays in zip(described, names, strict=True)
    ]


def _read_entries(name: str, entries: list[tuple[object, object, object]]) -> list[tuple[int, int, int]]:
    """Of each result of long work: how deep it lies, the number of its arrays, and its key."""
    return [
        (
            whole_number("depth", depth, 0, _MOST_DEEP),
            whole_number("arrays", count, 0, _MOST_ARRAYS),
            whole_number("key", key, 0, _MOST_KEY),
        )
        for depth, count, key in entries
    ]


class _RowsInFile(GrowingRows):
    """Raw float64 rows (rows, chains, …), with the checksum of all of them."""

    def __init__(self, path: Path, claim: Claim) -> None:
        self.path, self._claim = path, claim
        claim.require_intact(path)
        handle = _open_for_append(path)
        try:
            os.ftruncate(handle, claim.size)
            self._handle = os.fdopen(handle, "ab")
        except BaseException:
            os.close(handle)
            raise

    def append(self, block: Array) -> None:
        """To the file; it counts from the next record on."""
        rows = np.ascontiguousarray(np.moveaxis(block, 1, 0), np.float64)
        try:
            self._handle.write(rows.reshape(-1).data)
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be written ({error.strerror}); earlier work is kept.") from error
        checksum = zlib.crc32(rows.reshape(-1).data, self._claim.checksum)
        self._claim = replace(self._claim, rows=self._claim.rows + len(rows), checksum=checksum)

    def flush(self) -> Claim:
        """Bring all rows to the disk, for a record that speaks of them."""
        self._handle.flush()
        os.fsync(self._handle.fileno())
        return self._claim

    def close(self) -> None:
        """Rows that no record speaks of may be left; they are cut off later."""
        with suppress(OSError):
            self._handle.close()

    def array(self) -> Array:
        """Mapped from the file, not read."""
        self._handle.flush()
        return self._claim.map_rows(self.path)


class Clock:
    """Says how many steps to make before the next record, and when it is due."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = SECONDS if seconds is None else seconds
        self._count, self._since = 1, time.monotonic()

    def piece(self, left: int) -> int:
        """How many of the steps that are left come before the next look at the clock."""
        return min(left, self._count)

    def learn(self, steps: int, seconds: float) -> None:
        """So many steps took so long: a piece takes about as long as the time between two records."""
        steps_per_record = steps * self._seconds / max(seconds, 1e-9)
        self._count = int(min(max(steps_per_record, 1), 8 * self._count, 1 << 40))

    def elapsed(self) -> float:
        """Seconds since the last record was due."""
        return time.monotonic() - self._since

    def due(self) -> bool:
        """Whether a record is due; if so, the time begins anew."""
        if self.elapsed() < self._seconds / 2:
            return False
        self._since = time.monotonic()
        return True


def is_checkpoint(path: Path) -> bool:
    """Whether there is a checkpoint in this folder."""
    return path.is_dir() and (path / _SETTINGS).exists()


def remove_checkpoint(path: Path, begun: bool = False) -> None:
    """Remove what a checkpoint made, its settings last, and its folder where nothing else is in it; what cannot be
    removed stays.

    begun: also of a folder without settings, whose removal an earlier version was killed at.
    """
    if path.is_symlink() or not (path.is_dir() if begun else is_checkpoint(path)):
        return
    with suppress(OSError):
        for entry in sorted(path.iterdir(), key=lambda entry: entry.name == _SETTINGS):
            with suppress(OSError):
                if is_plain(entry) and (entry.suffix == _ROWS or is_partial_record(entry) or is_record(entry)):
                    entry.unlink()
        if is_plain(path / _LOCK):
            (path / _LOCK).unlink()
        path.rmdir()


def _open_for_append(path: Path) -> int:
    """Open for appending a file of the checkpoint, new or not: no link, and nothing that has a second name, by which
    another file would be changed.
    """
    if os.path.lexists(path) and not is_plain(path):
        raise CheckpointError(f"{path} is a link or no file, and is not written to. The checkpoint {_UNUSABLE}")
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    return os.open(path, flags | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _lock(path: Path) -> IO[bytes]:
    """One process at a time; given back by the system when the process ends, however it ends."""
    handle = os.fdopen(_open_for_append(path), "ab")
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows: nothing is guarded there
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        raise CheckpointInUseError(
            f"{path.parent} is in use by another run; wait for that run, or choose another folder."
        ) from None
    except OSError:  # a file system without locks: nothing is guarded there
        return handle
    sync_folder(path.parent)
    return handle


def _as_stored(settings: dict[str, object]) -> dict[str, object]:
    """As they come back from a file."""
    plain: dict[str, object] = json.loads(json.dumps(settings))
    return plain


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:197] + "…"
