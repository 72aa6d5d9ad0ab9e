"""What `sample` gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from svrhmc.core.arrays import Array
from svrhmc.posterior.certificate import Certificate
from svrhmc.posterior.correction import Corrected, error_of_mean
from svrhmc.trace import Trace


@dataclass(frozen=True, eq=False)
class Location:
    """Mean and standard deviation of each coordinate."""

    mean: Array
    sd: Array


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
        return self.mean is self.corrected.mean

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


_COLUMNS = ("mean", "± mean", "sd", "± sd", "laplace mean", "laplace sd", "ess", "r_hat")
