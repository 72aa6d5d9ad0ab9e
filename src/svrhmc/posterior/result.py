"""What `sample` gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.posterior.certificate import Certificate, Corrected
from svrhmc.trace import Trace


@dataclass(frozen=True, eq=False)
class Location:
    """Mean and standard deviation of each coordinate."""

    mean: Array
    sd: Array


@dataclass(frozen=True, eq=False)
class Posterior:
    """What `sample` gives back.

    mean, sd: the best known: Stein-corrected for exact and certified draws, else raw. `corrected`, `raw` and
    `laplace` hold all three. trace: the draws. sampler, why: what was chosen and the reason in one sentence. ess,
    r_hat: of each coordinate (the fewer of x and x²). passes: over the data, of the mode, the sampling and the
    certificate. seconds: of everything; compilation is apart, in `compile_seconds`. complete: False where a budget
    ended the run first.
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
        short = "" if self.complete else ", stopped before there were as many as asked for"
        return "\n".join(
            (
                f"posterior of {dim} coordinates by {self.method}: {self.why}",
                f"  {chains} chains × {draws} draws, at least {self.ess.min():.0f} effective, R-hat at most "
                f"{self.r_hat.max():.3f}, {self.passes:.4g} passes, {self.seconds:.3g} s{short}",
                f"  {self.certificate}",
            )
        )

    def summary(self) -> str:
        """One line a coordinate: mean and sd with their standard errors, the Laplace approximation's beside them."""
        lines = [str(self), f"{'':>8}" + "".join(f"{name:>12}" for name in _COLUMNS)]
        used = self.corrected if self.mean is self.corrected.mean else None
        errors = (
            (used.mean_error, used.sd_error)
            if used is not None
            else (self.raw.sd / np.sqrt(self.ess), self.raw.sd / np.sqrt(2 * self.ess))
        )
        columns = (self.mean, errors[0], self.sd, errors[1], self.laplace.mean, self.laplace.sd, self.ess, self.r_hat)
        for j in range(len(self.mean)):
            shown = [
                f"{c[j]:12.0f}" if name == "ess" else f"{c[j]:12.4g}" for name, c in zip(_COLUMNS, columns, strict=True)
            ]
            lines.append(f"{f'x[{j}]':>8}" + "".join(shown))
        return "\n".join(lines)

    def to_arviz(self) -> Any:
        """The draws as ArviZ keeps them."""
        return self.trace.to_arviz()


_COLUMNS = ("mean", "±", "sd", "± ", "laplace mean", "laplace sd", "ess", "r_hat")
