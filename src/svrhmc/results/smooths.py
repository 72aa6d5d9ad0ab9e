"""Smooths of a fit: their curves with bands, and how much they bend.

Under each draw a smooth is b(x − x̄) + Σⱼ vⱼBⱼ(x) (`svrhmc.tables.splines`), and its band at x is the middle interval of
that over the draws: since sd(s(x)) was drawn too, the band includes the uncertainty about the smoothness.

**Effective degrees of freedom.** Given τ and σ the smooths' coefficients v, beside coefficients with a flat prior, have
the mean F v̂, where v̂ is what they would be without a penalty, and with G = BᵀWB less what the columns of X explain of
it (`GroupEffects.information`) and D the standard deviations τ of the smooths, one for each function,

    F = (G + D⁻²)⁻¹G,      tr F = Σⱼ [DGD(I + DGD)⁻¹]ⱼⱼ   over the functions of one smooth:

from 0, a straight line, to k − 2, a curve without a penalty; with the line itself, edf = 1 + tr F. No inverse of τ is
taken, so that τ near 0 does no harm. W has the curvatures of the log likelihood at the posterior mean, 1/σ² of each
draw where noise is Gaussian. Group effects are taken as given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import did_you_mean, requirement, whole_number
from svrhmc.core.figures import COLOURS, STYLE, import_matplotlib, write_figure
from svrhmc.core.summaries import Summary, interval_end_names, interval_ends
from svrhmc.results.base import PosteriorData, Tabular, thin_draws
from svrhmc.results.predict import term_effects
from svrhmc.sampling.effects import GroupEffects

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

_DRAWS = 1000  # of effective degrees of freedom
_PANELS = 3  # in a row


@dataclass(frozen=True, eq=False)
class Curve:
    """One smooth at places x: mean, sd and interval (places, 2) of what it adds to the linear predictor; on average
    over the fitted rows it is 0. edf: draws of its effective degrees of freedom.

    label: its name, such as "s(age):plan[pro]". argument: what it is a function of. times: the column of numbers that
    it is multiplied by; "": none.
    """

    label: str
    argument: str
    times: str
    x: Array
    mean: Array
    sd: Array
    interval: Array
    edf: Array


@dataclass(frozen=True, eq=False, repr=False)
class Curves(Tabular):
    """Smooths of a fit; print it for how much they bend, take `to_frame()` for the curves, or `plot()` them."""

    curves: tuple[Curve, ...]
    level: float

    def __iter__(self) -> Iterator[Curve]:
        return iter(self.curves)

    def __len__(self) -> int:
        return len(self.curves)

    def __getitem__(self, place: int) -> Curve:
        return self.curves[place]

    def summary(self) -> Summary:
        """The effective degrees of freedom of each smooth."""
        low, high = interval_end_names(self.level)
        edf = np.stack([curve.edf for curve in self.curves])
        ends = np.quantile(edf, interval_ends(self.level), axis=1)
        columns = {"edf": edf.mean(axis=1), "sd": edf.std(axis=1, ddof=1), low: ends[0], high: ends[1]}
        note = "1 is a straight line; to_frame() has the curves, plot() draws them."
        names = tuple(curve.label for curve in self.curves)
        return Summary(names, columns, "Effective degrees of freedom of smooths.", (note,))

    def to_frame(self) -> pandas.DataFrame:
        """As a pandas data frame: smooth, x, mean, sd and the ends of the interval."""
        low, high = interval_end_names(self.level)
        parts = [
            {"x": c.x, "mean": c.mean, "sd": c.sd, low: c.interval[:, 0], high: c.interval[:, 1]} for c in self.curves
        ]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        rows = tuple(map(str, range(len(columns["x"]))))
        frame = Summary(rows, columns).to_frame().reset_index(drop=True)
        frame.insert(0, "smooth", [curve.label for curve in self.curves for _ in curve.x])
        return frame

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw each curve with its band in a panel of its own; save the figure if a path is given."""
        columns = min(_PANELS, len(self.curves))
        rows = -(-len(self.curves) // columns)
        with import_matplotlib().rc_context(STYLE):
            from matplotlib.figure import Figure

            figure = Figure(figsize=(0.8 + 3.6 * columns, 0.4 + 2.8 * rows), layout="constrained")
            for k, curve in enumerate(self.curves):
                axes = figure.add_subplot(rows, columns, k + 1)
                axes.axhline(0.0, color="0.4", linewidth=1, linestyle="--")
                axes.fill_between(curve.x, *curve.interval.T, color=COLOURS[0], alpha=0.25, linewidth=0)
                axes.plot(curve.x, curve.mean, color=COLOURS[0])
                axes.set_xlabel(curve.argument)
                axes.set_title(f"{curve.label}, edf {curve.edf.mean():.1f}", fontsize=10)
                if k % columns == 0:
                    axes.set_ylabel(f"mean and {self.level:.0%} interval")
            if path is not None:
                write_figure(figure, path)
        return figure


def curves_of(posterior: PosteriorData, name: str | None, level: float, points: int) -> Curves:
    """The smooths of one column of a `Posterior`, or one smooth by its name; None: all of them."""
    effects, design = group_effects_with_smooths(posterior), posterior.design
    if design is None:
        why = "of arrays the curve is basis @ coefficients, with posterior.group_effects"
        raise requirement("the posterior", "of a formula with smooths", "one of arrays", why)
    ends, points = interval_ends(level), whole_number("points", points, 2)
    plain = name.replace(" ", "") if isinstance(name, str) else name
    chosen = [
        j
        for j, smooth in enumerate(design.smooths)
        if name in (None, smooth.name, smooth.line.argument_name) or plain == smooth.text.replace(" ", "")
    ]
    if not chosen:
        names = [smooth.name for smooth in design.smooths]
        hint = did_you_mean(name, names) if isinstance(name, str) else ""
        raise requirement("name", f"a smooth or its column ({', '.join(map(repr, names))})", repr(name), hint)
    edf = effective_degrees(posterior)
    draws = thin_draws(posterior.trace.draws[:, :: effects.every], posterior.trace.draws[..., 0].size)
    curves = []
    for j in chosen:
        smooth, k = design.smooths[j], effects.smooths[j]
        x = smooth.spline.low + smooth.spline.width * np.linspace(0.0, 1.0, points)
        slope = draws[:, posterior.labels.index(smooth.line.names[0])]
        u = term_effects(effects, k, len(draws))[:, :, 0]
        values = slope[:, None] * (x - smooth.line.centre) + u @ smooth.spline.basis(x).T
        interval = np.quantile(values, ends, axis=0).T
        times = smooth.line.by if smooth.line.by and not smooth.line.levels else ""
        curves.append(
            Curve(
                smooth.name, smooth.line.argument_name, times, x, values.mean(axis=0), values.std(axis=0, ddof=1),
                interval, edf[:, j],
            )
        )  # fmt: skip
    return Curves(tuple(curves), level)


def group_effects_with_smooths(posterior: PosteriorData) -> GroupEffects:
    """The group effects, of which some are smooths; an error for a posterior without smooths."""
    effects: GroupEffects | None = posterior.group_effects
    if effects is None or not effects.smooths:
        raise requirement("the posterior", "of a model with smooths", "one without", 'such as fit("y ~ s(x)", table)')
    return effects


def effective_degrees(posterior: PosteriorData) -> Array:
    """Draws of the effective degrees of freedom, (draws, smooths)."""
    effects, loss = group_effects_with_smooths(posterior), posterior.model.loss
    draws = thin_draws(posterior.trace.draws[:, :: effects.every], _DRAWS)
    sizes = [len(effects.levels[k]) for k in effects.smooths]
    tau = np.stack([draws[:, effects.stated(k)][:, 0] for k in effects.smooths], axis=1)
    if loss.mixture:
        tau = tau / np.exp(draws[:, [draws.shape[1] - effects.covariances - 1]])
    scale = np.repeat(tau, sizes, axis=1)
    A = scale[:, :, None] * np.asarray(effects.information) * scale[:, None, :]
    smoother = np.linalg.solve(np.eye(A.shape[1]) + A, A)
    diagonal = np.einsum("dii->di", smoother)
    edges = np.cumsum([0, *sizes])
    return np.stack([1 + diagonal[:, a:b].sum(axis=1) for a, b in pairwise(edges)], axis=1)


def degrees_sentence(posterior: PosteriorData, level: float) -> str:
    """The effective degrees of freedom of each smooth, with their intervals."""
    effects, edf = group_effects_with_smooths(posterior), effective_degrees(posterior)
    ends = np.quantile(edf, interval_ends(level), axis=0)
    phrases = [
        f"{effects.names[k]} {mean:.1f} ({low:.1f} to {high:.1f}, of at most {len(effects.levels[k]) + 1})"
        for k, mean, low, high in zip(effects.smooths, edf.mean(axis=0), *ends, strict=True)
    ]
    listed = ", ".join(phrases[:8]) + (f" and {len(phrases) - 8:,} more" if len(phrases) > 8 else "")
    return f"effective degrees of freedom with {level:.0%} intervals: {listed}; 1 is a straight line."
