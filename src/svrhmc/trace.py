"""What a run gives back: draws with their cost, a summary, a file."""

from __future__ import annotations

import dataclasses
import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from svrhmc import dynamics, gradients
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import TraceFileError, missing, requirement

if TYPE_CHECKING:
    from svrhmc.exact.base import ExactSampler
    from svrhmc.samplers import Sampler

_FORMAT, _VERSION = "svrhmc-trace", 2
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
    sampler: Sampler | ExactSampler | None
    seed: int
    chains: Indices
    engine: str
    acceptance: Array | None = None

    def __repr__(self) -> str:
        chains, draws, dim = self.draws.shape
        return (
            f"Trace({chains} chains × {draws} draws × {dim} coordinates, {self.passes[-1]:.4g} passes, "
            f"{self.seconds:.3g} s, seed {self.seed}, {self.engine} engine, {self.sampler})"
        )

    def mean(self) -> Array:
        """Mean over all draws of all chains."""
        mean: Array = self._flat().mean(axis=0)
        return mean

    def covariance(self) -> Array:
        """Covariance over all draws of all chains."""
        if len(self._flat()) < 2:
            raise requirement("a trace", "of at least 2 draws for a covariance", 1)
        return np.atleast_2d(np.cov(self._flat(), rowvar=False))

    def summary(self) -> Summary:
        """Mean, sd, MCSE, ESS and R-hat of each coordinate, by ArviZ."""
        az = _arviz()
        if self.draws.shape[1] < 4:
            raise requirement("a trace", "of at least 4 draws a chain for a summary", self.draws.shape[1])
        by_coordinate = [np.ascontiguousarray(self.draws[:, :, j]) for j in range(self.draws.shape[2])]
        several = len(self.draws) > 1
        return Summary(
            mean=self.mean(),
            sd=self._flat().std(axis=0, ddof=1),
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
            "sampler": _parts(self.sampler),
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if self.acceptance is not None:
            arrays["acceptance"] = self.acceptance
        with Path(path).open("wb") as file:
            text = np.array(json.dumps(settings))
            np.savez_compressed(file, settings=text, **arrays)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read what `save` wrote; anything else is refused."""
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
                sampler=_sampler_of(settings["sampler"]),
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


def _check_arrays(draws: Array, passes: Array, velocity: Array, chains: Indices) -> None:
    """What every trace is like; anything else is no trace."""
    count, kept, dim = draws.shape
    if (passes.shape, velocity.shape, chains.shape) != ((kept,), (count, dim), (count,)):
        raise ValueError("shapes that do not fit each other")
    if not (draws.dtype == passes.dtype == velocity.dtype == np.float64 and chains.dtype == np.int64):
        raise ValueError("arrays of other types")
    if not (np.isfinite(draws).all() and np.isfinite(passes).all()):
        raise ValueError("draws that are not finite")


def _parts(sampler: Any) -> dict[str, Any]:
    """A sampler's parts by name: dynamics and gradient, an exact sampler, or none."""
    from svrhmc import exact
    from svrhmc.samplers import Sampler

    if sampler is None:
        return {}
    if isinstance(sampler, Sampler):
        parts = {"dynamics": (sampler.dynamics, dynamics), "gradient": (sampler.gradient, gradients)}
    else:
        parts = {"exact": (sampler, exact)}
    for part, module in parts.values():
        if getattr(module, type(part).__name__, None) is not type(part):
            raise requirement("sampler", "made of svrhmc's own parts to be saved", repr(part))
    return {name: _to_settings(part) for name, (part, _) in parts.items()}


def _sampler_of(parts: dict[str, Any]) -> Any:
    from svrhmc import exact
    from svrhmc.samplers import Sampler

    if not parts:
        return None
    if "exact" in parts:
        return _from_settings(exact, parts["exact"])
    return Sampler(_from_settings(dynamics, parts["dynamics"]), _from_settings(gradients, parts["gradient"]))


def _to_settings(part: Any) -> dict[str, Any]:
    return {"type": type(part).__name__, **dataclasses.asdict(part)}


def _from_settings(module: Any, settings: dict[str, Any]) -> Any:
    kind = getattr(module, settings["type"])
    return kind(**{name: value for name, value in settings.items() if name != "type"})


def _arviz() -> Any:
    try:
        import arviz
    except ModuleNotFoundError:
        raise missing("ArviZ", "arviz", "a summary or an ArviZ object") from None
    return arviz
