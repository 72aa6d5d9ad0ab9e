"""What a run gives back: draws with their cost, a summary, a file."""

from __future__ import annotations

import dataclasses
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.checkpoint import is_checkpoint, mapped
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import StorageError, TraceFileError, missing, requirement
from svrhmc.core.parts import from_settings
from svrhmc.core.storage import Record, read_record

_FORMAT, _VERSION = "svrhmc-trace", 2
_BLOCK_NUMBERS = 1 << 22  # of draws looked at in one piece
_ARRAYS = ("draws", "passes", "velocity", "chains")


@dataclass(frozen=True, eq=False)
class Summary:
    """One number a coordinate: mean, sd, Monte Carlo standard error, effective draws (bulk, tail), R-hat.

    These measure how well the draws represent the law that the sampler has, not how far that law is from π: no
    effective sample size sees a bias. R-hat needs two chains, and is nan for one.
    """

    mean: Array
    sd: Array
    mcse: Array
    ess_bulk: Array
    ess_tail: Array
    r_hat: Array

    def __str__(self) -> str:
        names = [field.name for field in dataclasses.fields(self)]
        lines = ["".join(f"{name:>11}" for name in ("", *names))]
        for j in range(len(self.mean)):
            numbers = [getattr(self, name)[j] for name in names]
            shown = [
                f"{value:11.0f}" if name.startswith("ess") else f"{value:11.4g}"
                for name, value in zip(names, numbers, strict=True)
            ]
            lines.append(f"{f'x[{j}]':>11}" + "".join(shown))
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Trace:
    """Draws of some chains and what they cost.

    draws: (chain, draw, dim). passes: (draw,), component gradients over n that each chain had evaluated when the
    draw was taken, snapshots included. gradient_evaluations: what one chain evaluated in the whole run. velocity:
    (chain, dim), at the end of the run. chains: the number of each chain in the random stream. seconds: the time of
    sampling, compilation apart. sampler: of the grid or of `svrhmc.exact`; None for draws from a closed form.
    acceptance: (chain,), the share of proposals accepted, where there is a Metropolis step.
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
        """Mean, sd, MCSE, ESS and R-hat of each coordinate, by ArviZ."""
        az = _arviz()
        if self.draws.shape[1] < 4:
            raise requirement("a trace", "of at least 4 draws a chain for a summary", self.draws.shape[1])
        by_coordinate = _Coordinates(self.draws)
        several = len(self.draws) > 1
        return Summary(
            mean=self.mean(),
            sd=np.array([x.std(ddof=1) for x in by_coordinate]),
            mcse=np.array([np.asarray(az.mcse(x)).item() for x in by_coordinate]),
            ess_bulk=np.array([np.asarray(az.ess(x)).item() for x in by_coordinate]),
            ess_tail=np.array([np.asarray(az.ess(x, method="tail", prob=(0.05, 0.95))).item() for x in by_coordinate]),
            r_hat=np.array([np.asarray(az.rhat(x)).item() if several else np.nan for x in by_coordinate]),
        )

    def to_arviz(self) -> Any:
        """The draws as ArviZ keeps them, variable "x": InferenceData (ArviZ 0.x) or a DataTree (1.x)."""
        az = _arviz()
        groups = {"posterior": {"x": self.draws}}
        return az.from_dict(**groups) if int(az.__version__.split(".")[0]) < 1 else az.from_dict(groups)

    def save(self, path: str | Path) -> None:
        """Write one compressed file (NumPy's npz, no pickle); the name is used as it is."""
        settings = {
            "format": _FORMAT,
            "version": _VERSION,
            "gradient_evaluations": self.gradient_evaluations,
            "seconds": self.seconds,
            "seed": self.seed,
            "engine": self.engine,
            "sampler": {} if self.sampler is None else self.sampler.settings(),
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if self.acceptance is not None:
            arrays["acceptance"] = self.acceptance
        with Path(path).open("wb") as file:
            text = np.array(json.dumps(settings))
            np.savez_compressed(file, settings=text, **arrays)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read what `save` wrote, or the draws so far of a run with a checkpoint, even while it goes on.

        Anything else is refused.
        """
        if is_checkpoint(Path(path)):
            try:
                return _load_checkpoint(Path(path))
            except (StorageError, OSError) as error:
                raise TraceFileError(str(error)) from error
        try:
            with Path(path).open("rb") as handle, np.load(handle, allow_pickle=False) as file:
                settings = json.loads(str(file["settings"][()]))
                arrays = {name: file[name] for name in _ARRAYS}
                acceptance = file.get("acceptance")
            if settings["format"] != _FORMAT:
                raise KeyError("format")
            if settings["version"] != _VERSION:
                raise TraceFileError(
                    f"{path} is a trace of version {settings['version']}; this svrhmc reads version {_VERSION}."
                )
            _check_arrays(**arrays)
            return Trace(
                **arrays,
                sampler=sampler_of(settings["sampler"]),
                acceptance=acceptance,
                **{name: settings[name] for name in ("gradient_evaluations", "seconds", "seed", "engine")},
            )
        except (FileNotFoundError, IsADirectoryError, PermissionError, TraceFileError):
            raise
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise TraceFileError(f"{path} is not a whole trace file: it is cut short or damaged ({error}).") from error
        except Exception as error:
            raise TraceFileError(f"{path} is not a svrhmc trace ({type(error).__name__}: {error}).") from error

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
        """Draws, some at a time."""
        size = max(1, _BLOCK_NUMBERS // max(1, self.draws[:, 0].size))
        for begin in range(0, self.draws.shape[1], size):
            yield np.ascontiguousarray(self.draws[:, begin : begin + size]).reshape(-1, self.draws.shape[2])


class _Coordinates:
    """The draws of each coordinate, (chain, draw), one after another."""

    def __init__(self, draws: Array) -> None:
        self._draws = draws

    def __iter__(self) -> Iterator[Array]:
        for j in range(self._draws.shape[2]):
            yield np.ascontiguousarray(self._draws[:, :, j])


def _load_checkpoint(folder: Path) -> Trace:
    """The draws that a run has kept so far; they are read from the folder as they are needed."""
    names = [path.name for path in folder.iterdir() if re.fullmatch(r"state|chains-[0-9-]+", path.name)]
    records = {name: record for name in names if (record := read_record(folder / name)) is not None}
    if not records:
        raise TraceFileError(f"{folder} is a checkpoint that holds no draws yet.")
    name = max(records, key=lambda each: (folder / each).stat().st_mtime_ns)
    said, suffix = records[name].said, "" if name == "state" else f"-{name}"
    rows = {each: (tuple(shape), count) for each, (shape, count, _) in said["rows"].items()}
    (shape, count), spent = rows[f"draws{suffix}"], rows[f"spent{suffix}"][1]
    return Trace(
        draws=mapped(folder / f"draws{suffix}.rows", shape, count),
        passes=mapped(folder / f"spent{suffix}.rows", (1,), spent)[0] / said["n"],
        gradient_evaluations=round(said["spent"]),
        velocity=records[name].arrays["v"],
        seconds=float(said.get("seconds", 0.0)),
        sampler=sampler_of(said["sampler"]),
        seed=said["seed"],
        chains=records[name].arrays["chains"],
        engine=said["engine"],
        acceptance=_acceptance(records[name], count),
    )


def _acceptance(record: Record, draws: int) -> Array | None:
    accepted = record.arrays.get("accepted")
    return None if accepted is None or not draws else accepted / draws


def _check_arrays(draws: Array, passes: Array, velocity: Array, chains: Indices) -> None:
    """What every trace is like; anything else is no trace."""
    count, kept, dim = draws.shape
    if (passes.shape, velocity.shape, chains.shape) != ((kept,), (count, dim), (count,)):
        raise ValueError("shapes that do not fit each other")
    if not (draws.dtype == passes.dtype == velocity.dtype == np.float64 and chains.dtype == np.int64):
        raise ValueError("arrays of other types")
    if not (np.isfinite(draws).all() and np.isfinite(passes).all()):
        raise ValueError("draws that are not finite")


def sampler_of(parts: dict[str, Any]) -> Any:
    """The sampler of a file: dynamics and gradient, an exact sampler, or none."""
    if not parts:
        return None
    exact = parts.get("exact")
    return from_settings({"type": "Sampler", **parts} if exact is None else exact)


def _arviz() -> Any:
    try:
        import arviz
    except ModuleNotFoundError:
        raise missing("ArviZ", "arviz", "a summary or an ArviZ object") from None
    return arviz
