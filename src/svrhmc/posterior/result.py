"""What `sample` gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.core import saving
from svrhmc.core.arrays import Array, require_alike
from svrhmc.core.errors import PosteriorFileError, StorageError, nonnegative, require_finite, requirement
from svrhmc.posterior.certificate import Certificate
from svrhmc.posterior.correction import Corrected, error_of_mean
from svrhmc.trace import Trace

_VERSION = 1  # of its files


@dataclass(frozen=True, eq=False)
class Location:
    """Mean and standard deviation of each coordinate."""

    mean: Array
    sd: Array

    def require_sound(self) -> None:
        """Refuse arrays of unequal shapes."""
        require_alike(self)


@dataclass(frozen=True, eq=False)
class Posterior:
    """What `sample` gives back.

    mean, sd: the best known, with their standard errors in `errors`: corrected by the gradients at the draws, or raw
    where the correction contradicts the draws or the chains have not settled. `corrected`, `raw` and `laplace`
    hold all three. trace: the draws. sampler, why: what was chosen and the reason in one sentence. ess,
    r_hat: of each coordinate (the fewer of x and x²). passes: over the data, of the mode, the sampling and the
    certificate. seconds: of everything; compilation is apart, in `compile_seconds`. complete: False where a budget,
    or the most draws that are made, ended the run first.
    """

    mean: Array
    sd: Array
    raw: Location
    corrected: Corrected
    laplace: Location
    trace: Trace
    method: str
    sampler: Any
    why: str
    certificate: Certificate
    ess: Array
    r_hat: Array
    passes: float
    seconds: float
    compile_seconds: float
    complete: bool
    steps: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        chains, draws, dim = self.trace.draws.shape
        short = "" if self.complete else "; stopped before there were as many as asked for"
        mean, sd = (float((error / self.sd).max()) for error in self.errors)
        which = "corrected by the gradients at the draws" if self._is_corrected else "those of the draws themselves"
        if self.sampler is None:
            which = "known in closed form"
        each, many = "s" if chains > 1 else "", "s" if dim > 1 else ""
        return (
            f"{chains} chain{each} of {self.method} made {draws:,} draws{' each' if each else ''} of {dim} "
            f"parameter{many}, at least "
            f"{self.ess.min():,.0f} of them effective ({self.why.rstrip('.')}; R-hat at most {self.r_hat.max():.3f}, "
            f"{self.passes:.4g} passes over the data, {self.seconds:.3g} s{short}).\n"
            f"The means and sds reported, {which}, have standard errors of up to {mean:.2g} and {sd:.2g} posterior sd; "
            f"as to bias they are {self.certificate}."
        )

    @property
    def errors(self) -> tuple[Array, Array]:
        """Standard errors of the means and of the sds that are reported: what chance alone does to them."""
        if self._is_corrected:
            return self.corrected.mean_error, self.corrected.sd_error
        x = self.trace.draws
        return error_of_mean(x), error_of_mean((x - self.raw.mean) ** 2) / (2 * self.raw.sd)

    @property
    def _is_corrected(self) -> bool:
        return np.array_equal(self.mean, self.corrected.mean) and np.array_equal(self.sd, self.corrected.sd)

    def summary(self) -> str:
        """One line a coordinate: mean and sd with their standard errors, the Laplace approximation's beside them."""
        lines = [str(self), f"{'':>8}" + "".join(f"{name:>13}" for name in _COLUMNS)]
        mean, sd = self.errors
        columns = (self.mean, mean, self.sd, sd, self.laplace.mean, self.laplace.sd, self.ess, self.r_hat)
        for j in range(len(self.mean)):
            shown = [
                f"{c[j]:13.0f}" if name == "ess" else f"{c[j]:13.4g}" for name, c in zip(_COLUMNS, columns, strict=True)
            ]
            lines.append(f"{f'x[{j}]':>8}" + "".join(shown))
        return "\n".join(lines)

    def to_arviz(self) -> Any:
        """The draws as ArviZ keeps them."""
        return self.trace.to_arviz()

    def save(self, path: str | Path) -> None:
        """Write all of it into one file, in one step: a kill at any moment leaves the old file whole.

        The file has a checksum and no pickle; the next versions of svrhmc read it too.

        >>> import tempfile
        >>> from svrhmc import Posterior, sample, targets
        >>> posterior = sample(targets.linear([[1.0], [2.0]], [1.0, 3.0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     posterior.save(f"{folder}/fit.posterior")
        ...     Posterior.load(f"{folder}/fit.posterior").summary() == posterior.summary()
        True
        """
        saving.save(Path(path), self, "posterior", _VERSION)

    @staticmethod
    def load(path: str | Path) -> Posterior:
        """Read what `save` wrote, of this version or an earlier one; anything else is a `PosteriorFileError`."""
        try:
            return saving.load(Path(path), Posterior, "posterior", _VERSION)
        except StorageError as error:
            raise PosteriorFileError(str(error)) from error

    def require_sound(self) -> None:
        """Refuse what `sample` does not give: shapes that do not fit each other, numbers that cannot be."""
        dim = self.trace.draws.shape[2]
        parts = {"": self, "raw.": self.raw, "corrected.": self.corrected, "laplace.": self.laplace}
        arrays = {f"{place}{name}": getattr(part, name) for place, part in parts.items() for name in ("mean", "sd")}
        for name, array in {**arrays, "ess": self.ess, "r_hat": self.r_hat}.items():
            if array.shape != (dim,):
                raise requirement(name, f"an array of {dim} numbers, as the draws have it", f"shape {array.shape}")
        for name, array in arrays.items():
            require_finite(name, array)
        if len(self.certificate.stein.mean) != dim:
            raise requirement("certificate", f"one of {dim} coordinates", len(self.certificate.stein.mean))
        for name in ("passes", "seconds", "compile_seconds"):
            nonnegative(name, getattr(self, name))
        if not (self.sampler is None or hasattr(self.sampler, "invariant")):
            raise requirement("sampler", "a sampler", repr(self.sampler)[:60])


_COLUMNS = ("mean", "± mean", "sd", "± sd", "laplace mean", "laplace sd", "ess", "r_hat")
