"""What a run gives back: draws with their cost, a summary, a file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from svrhmc import diagnostics
from svrhmc.checkpoint import claims_in, is_checkpoint
from svrhmc.core import serialise
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import (
    ArchiveFileError,
    CheckpointError,
    StorageError,
    TraceFileError,
    missing_package,
    nonnegative,
    require_finite,
    requirement,
    text,
    whole_number,
)  # fmt: skip
from svrhmc.core.npz import read_npz
from svrhmc.core.serialise import from_settings
from svrhmc.core.storage import Record, is_record, read_record
from svrhmc.core.summaries import Summary
from svrhmc.core.version import VERSION

if TYPE_CHECKING:
    from types import ModuleType

    from arviz import InferenceData

_VERSION, _ARCHIVE_VERSION = 3, 2  # of the files written now, and of the archives that 0.1.0 wrote
_ARCHIVE_ROOM, _SHRINKS = 1 << 25, 16  # memory that such an archive may take: so much, and so many times its size
_BLOCK_NUMBERS = 1 << 22  # of draws looked at in one piece
COEFFICIENT = "coefficient"  # the dimension of the coordinates, for ArviZ
_LATER = "log_prior"  # a group that ArviZ 0.x takes after the others
_HOMES = ("XDG_CACHE_HOME", "MPLCONFIGDIR")  # folders that ArviZ and Matplotlib write to
_ENTRY = re.compile(r"[^\[\]]+\[\d+(, *\d+)*\]")
_ARRAYS = ("draws", "passes", "velocity", "chains")


@dataclass(frozen=True, eq=False)
class Trace:
    """The draws of some chains, and what they cost.

    draws: an array (chain, draw, coordinate).
    passes: an array (draw,): the passes over the data that each chain had made when the draw was taken, that is
        component gradients divided by n, including snapshots.
    gradient_evaluations: component gradients that one chain evaluated in the whole run.
    velocity: an array (chain, coordinate): the velocities at the end of the run.
    seconds: the time of sampling, without compilation.
    sampler: a sampler of the grid or of `svrhmc.exact`; None for draws from a closed form.
    seed: the seed of the run.
    chains: the number of each chain in the random stream.
    engine: the name of the engine that made the draws.
    acceptance: an array (chain,): the share of accepted proposals, if there is a Metropolis step.
    names: of the coordinates, as the target has them; () where it has none, and in files of 0.1.0.
    """

    draws: Array
    passes: Array
    gradient_evaluations: int
    velocity: Array
    seconds: float
    sampler: Any
    seed: int
    chains: Indices
    engine: str
    acceptance: Array | None = None
    names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        chains, draws, dim = self.draws.shape
        passes = self.passes[-1] if draws else 0.0
        return (
            f"Trace({chains} chains × {draws} draws × {dim} coordinates, {passes:.4g} passes, "
            f"{self.seconds:.3g} s, seed {self.seed}, {self.engine} engine, {self.sampler})"
        )

    def mean(self) -> Array:
        """Mean over all draws of all chains."""
        if not self._count:
            raise requirement("a trace", "of at least 1 draw for a mean", 0)
        if self._in_memory:
            mean: Array = self._flat().mean(axis=0)
            return mean
        total = np.zeros(self.draws.shape[2])
        for block in self._blocks():
            total += block.sum(axis=0)
        return total / self._count

    def covariance(self) -> Array:
        """Covariance over all draws of all chains."""
        if self._count < 2:
            raise requirement("a trace", "of at least 2 draws for a covariance", self._count)
        if self._in_memory:
            return np.atleast_2d(np.cov(self._flat(), rowvar=False))
        mean, total = self.mean(), np.zeros((self.draws.shape[2],) * 2)
        for block in self._blocks():
            total += (block - mean).T @ (block - mean)
        return total / (self._count - 1)

    def summary(self) -> Summary:
        """Mean, sd, Monte Carlo standard error, effective draws and R-hat of each coordinate, the same as ArviZ's.

        It is computed for some coordinates at a time, so that it takes little memory beside the draws.
        """
        chains, draws, dim = self.draws.shape
        if draws < 4:
            raise requirement("a trace", "of at least 4 draws a chain for a summary", draws)
        columns = {
            "mean": self.mean(),
            "sd": diagnostics.spread(self.draws),
            "mcse": diagnostics.standard_error(self.draws),
            "ess_bulk": diagnostics.bulk_ess(self.draws),
            "ess_tail": diagnostics.tail_ess(self.draws),
            "r_hat": diagnostics.rank_r_hat(self.draws) if chains > 1 else np.full(dim, np.nan),
        }
        return Summary(self.names or numbered(dim), columns)

    def to_arviz(self) -> InferenceData:
        """The draws as ArviZ keeps them, by the names of the target or as a variable "x": InferenceData (ArviZ 0.x) or
        a DataTree (1.x).

        Group sample_stats has `passes`, the passes over the data that a chain had made by then, and `acceptance_rate`,
        that of the whole chain, where the sampler has a Metropolis step.
        """
        coords = {COEFFICIENT: np.arange(self.draws.shape[2])}
        if self.names:
            arrays = grids(self.names) or {name: np.array(place) for place, name in enumerate(self.names)}
            draws = {name: self.draws[:, :, places] for name, places in arrays.items()}
            with_names: InferenceData = inference_data(
                {"posterior": draws, "sample_stats": self.stats()}, {}, {}, self.attributes()
            )
            return with_names
        groups = {"posterior": {"x": self.draws}, "sample_stats": self.stats()}
        exported: InferenceData = inference_data(groups, coords, {"x": [COEFFICIENT]}, self.attributes())
        return exported

    def stats(self) -> dict[str, Array]:
        """What is known of each draw beside it: arrays (chain, draw)."""
        stats = {"passes": self.passes}
        if self.acceptance is not None:
            stats["acceptance_rate"] = self.acceptance[:, None]
        return {name: np.array(np.broadcast_to(values, self.draws.shape[:2])) for name, values in stats.items()}

    def attributes(self) -> dict[str, object]:
        """What made the draws, as ArviZ names it."""
        return {
            "inference_library": "svrhmc",
            "inference_library_version": VERSION,
            "seed": int(self.seed),
            "sampler": str(self.sampler),
            "sampling_time": float(self.seconds),
        }

    def save(self, path: str | Path) -> None:
        """Write the trace to one file. If the process is killed meanwhile, an older file of that name stays intact.

        The name is used as given. The file has a checksum and contains no pickle. Later versions of svrhmc can read it.

        >>> import tempfile
        >>> from svrhmc import hmc, targets
        >>> trace = hmc(0.1).run(targets.synthetic(n=20, dim=2), steps=50)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     trace.save(f"{folder}/run.trace")
        ...     (Trace.load(f"{folder}/run.trace").draws == trace.draws).all()
        np.True_
        """
        serialise.save(Path(path), self, "trace", _VERSION)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read a file that `save` wrote, in this version or an earlier one; or read the draws so far from the
        checkpoint folder of a run, even while it is running.

        Anything else raises a `TraceFileError`. Every field is checked, and sizes are checked before memory is taken.
        """
        place = Path(path)
        from_checkpoint = is_checkpoint(place)
        try:
            if from_checkpoint:
                return _load_checkpoint(place)
            return serialise.load(place, Trace, "trace", _VERSION) if is_record(place) else _load_archive(place)
        except (StorageError, ArchiveFileError, CheckpointError) as error:
            raise TraceFileError(str(error)) from error
        except OSError as error:
            if from_checkpoint:
                raise TraceFileError(f"{place} cannot be read ({error.strerror or error}).") from error
            raise

    def require_sound(self) -> None:
        """Raise an error unless shapes and numbers are such as a run gives; used when a file is read."""
        if self.draws.ndim != 3 or not self.draws.size:
            raise requirement("draws", "an array (chain, draw, dim) of at least one each", f"shape {self.draws.shape}")
        chains, draws, dim = self.draws.shape
        shapes = {"passes": (draws,), "velocity": (chains, dim), "chains": (chains,), "acceptance": (chains,)}
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise requirement(name, f"an array of shape {shape}, as the draws have it", f"shape {array.shape}")
        if not all(np.isfinite(block).all() for block in self._blocks()):
            raise requirement("draws", "finite everywhere", "some that are not")
        for name in ("passes", "velocity", "acceptance"):
            if getattr(self, name) is not None:
                require_finite(name, getattr(self, name))
        if self.passes.min() < 0:
            raise requirement("passes", "not below 0", float(self.passes.min()))
        if self.chains.min() < 0 or self.chains.max() >= 1 << 32 or len(np.unique(self.chains)) < chains:
            raise requirement("chains", "distinct numbers from 0 on", self.chains.tolist()[:8])
        if self.acceptance is not None and not (self.acceptance.min() >= 0 and self.acceptance.max() <= 1):
            raise requirement("acceptance", "from 0 to 1", self.acceptance.tolist()[:8])
        if len(self.names) not in (0, dim):
            raise requirement("names", f"{dim} of them, or none", len(self.names))
        whole_number("gradient_evaluations", self.gradient_evaluations, 0)
        nonnegative("seconds", self.seconds)
        whole_number("seed", self.seed, 0, (1 << 64) - 1)
        if not re.fullmatch(r"[\w.-]{1,100}", self.engine):
            raise requirement("engine", "the name of an engine", repr(self.engine[:60]))
        if not (self.sampler is None or hasattr(self.sampler, "invariant")):
            raise requirement("sampler", "a sampler", repr(self.sampler)[:60])

    def _flat(self) -> Array:
        return self.draws.reshape(-1, self.draws.shape[2])

    @property
    def _count(self) -> int:
        chains, draws, _ = self.draws.shape
        return int(chains * draws)

    @property
    def _in_memory(self) -> bool:
        """Whether the draws are an array of their own, and not read from a file as they are needed."""
        return not isinstance(self.draws, np.memmap)

    def _blocks(self) -> Iterator[Array]:
        """All draws of all chains, some rows at a time."""
        size = max(1, _BLOCK_NUMBERS // max(1, self.draws[:, 0].size))
        for begin in range(0, self.draws.shape[1], size):
            yield np.ascontiguousarray(self.draws[:, begin : begin + size]).reshape(-1, self.draws.shape[2])


def inference_data(
    groups: dict[str, dict[str, Any]], coords: dict[str, Any], dims: dict[str, list[str]], attrs: dict[str, Any]
) -> Any:
    """Groups of arrays by name as ArviZ has them, of 0.x or of 1.x."""
    az = _arviz()
    if int(az.__version__.split(".")[0]) >= 1:
        return az.from_dict(groups, coords=coords, dims=dims, attrs={"/": attrs})
    first = {name: group for name, group in groups.items() if name != _LATER}
    data = az.from_dict(**first, coords=coords, dims=dims, attrs=attrs)
    if _LATER in groups:
        data.add_groups({_LATER: groups[_LATER]}, coords=coords, dims=dims)
    return data


def numbered(dim: int) -> tuple[str, ...]:
    """Names of coordinates that have no others."""
    return tuple(f"x[{j}]" for j in range(dim))


def grids(names: tuple[str, ...]) -> dict[str, Indices] | None:
    """From the names of entries, w[0, 0], w[0, 1], …, the numbers of the entries of each array in its shape; None where
    some entry is missing.

    >>> grids(("b", "w[0]", "w[1]"))
    {'b': array(0), 'w': array([1, 2])}
    """
    places: dict[str, list[tuple[int, ...]]] = {}
    numbers: dict[str, list[int]] = {}
    for number, full in enumerate(names):
        name, _, inside = full.rstrip("]").partition("[")
        index = tuple(int(part) for part in inside.split(",")) if _ENTRY.fullmatch(full) else ()
        places.setdefault(name if index else full, []).append(index)
        numbers.setdefault(name if index else full, []).append(number)
    arrays = {}
    for name, indices in places.items():
        shape = tuple(1 + max(axis) for axis in zip(*indices, strict=True)) if len(set(map(len, indices))) == 1 else ()
        if indices != list(np.ndindex(*shape)):
            return None
        arrays[name] = np.array(numbers[name]).reshape(shape)
    return arrays


def _load_checkpoint(folder: Path) -> Trace:
    """The draws that a run has kept so far; they are read from the folder as they are needed."""
    names = [path.name for path in folder.iterdir() if re.fullmatch(r"state|chains-[0-9-]+", path.name)]
    newest = max(names, key=lambda name: (folder / name).lstat().st_mtime_ns, default="")
    record = read_record(folder / newest, follow=False) if newest else None
    if record is None:
        raise TraceFileError(f"{folder} is a checkpoint that holds no draws yet.")
    claims, suffix = claims_in(record), "" if newest == "state" else f"-{newest}"
    rows = {}
    for name, axes in (("draws", 2), ("spent", 1)):
        claim, path = claims.get(f"{name}{suffix}"), folder / f"{name}{suffix}.rows"
        if claim is None or len(claim.shape) != axes:
            raise TraceFileError(f"{folder} is a checkpoint of something else than a run: it has no {name}.")
        claim.require_intact(path)
        rows[name] = claim.map_rows(path)
    chains, draws, dim = rows["draws"].shape
    trace = Trace(
        draws=rows["draws"],
        passes=rows["spent"][0] / record.value("n", whole_number, 1),
        gradient_evaluations=round(record.value("spent", nonnegative)),
        velocity=record.array("v", (chains, dim)),
        seconds=record.value("seconds", nonnegative) if "seconds" in record.settings else 0.0,
        sampler=record.value("sampler", lambda _, parts: sampler_of(parts)),
        seed=record.value("seed", whole_number, 0),
        chains=record.array("chains", (chains,), np.int64),
        engine=record.value("engine", text),
        acceptance=_acceptance(record, chains, draws),
    )
    if draws:
        trace.require_sound()
    return trace


def _acceptance(record: Record, chains: int, draws: int) -> Array | None:
    """Of all steps where the record counts them from the start, as those of `sample` do; else of the draws."""
    if "accepted" not in record.arrays:
        return None
    steps = record.value("step", whole_number, 0) if "burn_in" in record.settings else draws
    return record.array("accepted", (chains,), np.int64) / steps if steps else None


def _load_archive(path: Path) -> Trace:
    """What 0.1.0 wrote: an .npz, whose arrays shrink little in it."""
    most_bytes = _ARCHIVE_ROOM + _SHRINKS * path.stat().st_size
    try:
        arrays = read_npz(path, ("settings", *_ARRAYS), ("acceptance",), most_bytes)
    except ArchiveFileError as error:
        raise TraceFileError(f"{path} is not a svrhmc trace: {error}") from error
    try:
        settings = json.loads(str(arrays.pop("settings")[()]))
        if settings["format"] != "svrhmc-trace" or settings["version"] != _ARCHIVE_VERSION:
            raise ValueError(f"version {settings['version']}, and this svrhmc reads {_ARCHIVE_VERSION} and {_VERSION}")
        for name, array in arrays.items():
            if array.dtype != (np.int64 if name == "chains" else np.float64):
                raise requirement(name, "an array of numbers of 8 bytes", array.dtype)
        names = ("gradient_evaluations", "seconds", "seed", "engine")
        fields: dict[str, Any] = {**arrays, **{name: settings[name] for name in names}}
        trace = Trace(sampler=sampler_of(settings["sampler"]), **fields)
        trace.require_sound()
    except KeyError as error:
        raise TraceFileError(f"{path} is not a svrhmc trace: it has no {error.args[0]}.") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise TraceFileError(f"{path} is not a svrhmc trace: {str(error).rstrip('.')}.") from error
    return trace


def sampler_of(parts: Any) -> Any:
    """The sampler of a file: dynamics and gradient, an exact sampler, or none."""
    if parts == {}:
        return None
    if not isinstance(parts, dict):
        raise requirement("sampler", "made of parts", repr(parts)[:60])
    exact = parts.get("exact")
    return from_settings({"type": "Sampler", **parts} if exact is None else exact)


def _arviz() -> ModuleType:
    try:
        with _writable_home():
            import arviz
    except ModuleNotFoundError:
        raise missing_package("ArviZ", "arviz", "an ArviZ object") from None
    return arviz


@contextmanager
def _writable_home() -> Iterator[None]:
    """Where the user's home cannot be written, let libraries that write there when they are imported, and fail where
    they cannot, write into a folder that goes with the process.
    """
    if os.access(os.path.expanduser("~"), os.W_OK | os.X_OK):
        yield
        return
    unset = [name for name in _HOMES if not os.environ.get(name)]
    before = {name: os.environ[name] for name in unset if name in os.environ}
    os.environ.update(dict.fromkeys(unset, _home_instead().name))
    try:
        yield
    finally:
        for name in unset:
            os.environ.pop(name, None)
        os.environ.update(before)


@cache
def _home_instead() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="svrhmc-")
