"""A posterior in words and tables. Each function takes a `Posterior`."""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.summaries import Summary
from svrhmc.posterior.statements import end_names, level_ends

_NAMED = 8  # coefficients that a sentence names
_APART = (
    "The verdict is about these numbers: that they are those of this model's posterior. Whether the model is right is "
    "another question, which posterior predictive checks and other models help to answer."
)


def columns_of(posterior: Any, level: float) -> dict[str, Array]:
    """Mean, sd, the ends of the interval, effective draws and R-hat."""
    low, high = end_names(level)
    ends = posterior.quantile(level_ends(level))
    found = {"mean": posterior.mean, "sd": posterior.sd, low: ends[0], high: ends[1]}
    return {**found, "ess": posterior.ess, "r_hat": posterior.r_hat}


def summary_of(posterior: Any, level: float) -> Summary:
    """The same with the standard errors, and with what there is to know besides."""
    mean, sd = posterior.errors
    columns = columns_of(posterior, level)
    last = {name: columns.pop(name) for name in ("ess", "r_hat")}
    return Summary(
        posterior.labels, {**columns, "mcse_mean": mean, "mcse_sd": sd, **last}, title(posterior), notes(posterior)
    )


def title(posterior: Any) -> str:
    """What was fitted, in one sentence."""
    dim, design, n = len(posterior.mean), posterior.design, posterior.rows
    many = f"{n:,} rows" if n else ""
    if design is None:
        what = f"a regression of the family {posterior.family!r}" if posterior.family else "a target"
        return f"Posterior of {what}, {dim:,} coefficient{'s' if dim > 1 else ''}{', ' + many if many else ''}."
    said = f"Posterior of {design.formula}, family {posterior.family!r}"
    if design.guessed:
        said += f" ({design.guessed})"
    if len(design.classes) == 2:
        said += f"; modelled is the probability of {design.classes[1]!r}, against {design.classes[0]!r}"
    elif design.classes:
        said += f"; classes are compared with {design.classes[0]!r}"
    if many:
        said += f"; {many}"
    if design.dropped:
        said += f"; {design.dropped:,} row{'s' if design.dropped > 1 else ''} left out because of missing values"
    return f"{said}."


def notes(posterior: Any) -> tuple[str, ...]:
    """The sentences after the table."""
    found = []
    if posterior.design is not None and (levels := ", ".join(dict.fromkeys(posterior.design.baselines))):
        found.append(f"Levels of categories are compared with {levels}.")
    found += [f"Draws: {drawn(posterior)}", f"Verdict: {verdict(posterior)}", _APART]
    if posterior.prior is not None:
        found.append(f"Prior: {posterior.prior.said}.")
        if len(some := posterior.prior.dominated()):
            found.append(f"More is known from the prior than from the data of {_listed(posterior, some)}.")
    return (*found, *(f"Clash: {clash}" for clash in posterior.clashes))


def drawn(posterior: Any) -> str:
    """How many draws there are, by which sampler, and why that one."""
    chains, draws, _ = posterior.trace.draws.shape
    each = f"{chains} chain{'s' if chains > 1 else ''} of {draws:,} by {posterior.method}"
    short = "" if posterior.complete else "; stopped before there were as many as asked for"
    return (
        f"{each}, at least {posterior.ess.min():,.0f} of all of them effective, R-hat at most "
        f"{posterior.r_hat.max():.3f}, {posterior.passes:.4g} passes over the data, {posterior.seconds:.3g} s{short} "
        f"({posterior.why.rstrip('.')})."
    )


def verdict(posterior: Any) -> str:
    """How far off the reported numbers can be, in one sentence."""
    mean, sd = (float((error / posterior.sd).max()) for error in posterior.errors)
    chance = f"by chance means are off by about {mean:.2g} sd and sds by about {sd:.2g} at most"
    if mean == sd == 0:
        chance = "no chance is in them"
    return f"{posterior.certificate}; {chance}."


def short(posterior: Any) -> str:
    """One line, or two."""
    chains, draws, dim = posterior.trace.draws.shape
    what = f"Posterior of {posterior.design.formula!r}: " if posterior.design is not None else "Posterior: "
    first = ", ".join(
        f"{name} {mean:.4g} ± {sd:.2g}"
        for name, mean, sd in zip(posterior.labels[:4], posterior.mean[:4], posterior.sd[:4], strict=True)
    )
    many = f"{dim:,} coefficient{'s' if dim > 1 else ''}"
    return (
        f"<{what}{many}, {chains} × {draws:,} draws by {posterior.method}, {posterior.certificate.verdict}\n"
        f" {first}{', …' if dim > 4 else ''}>"
    )


def page(posterior: Any) -> str:
    """HTML: a table, and the verdict."""
    told = (f"Verdict: {verdict(posterior)}", *(f"Clash: {clash}" for clash in posterior.clashes))
    return Summary(posterior.labels, columns_of(posterior, 0.9), title(posterior), told)._repr_html_()


def _listed(posterior: Any, some: Any) -> str:
    names = [posterior.labels[int(j)] for j in np.asarray(some)]
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")
