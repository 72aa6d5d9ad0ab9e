"""A fitted model as one JSON document that can be read without svrhmc; SQL and ONNX are written from it.

Let θ be all parameters of a linear predictor: standardised coefficients x̃, coefficients of smooths, effects of groups.
Their posterior is approximated by the Gaussian law with its mean and covariance,

    θ ~ N(m, FFᵀ + diag(d)),        t = c + φᵀθ,        E t = c + φᵀm,        var t = |Fᵀφ|² + Σⱼ dⱼφⱼ²,

with φⱼ = (expressionⱼ − centreⱼ)/scaleⱼ at a row (`svrhmc.tables.portable`). m are the reported means, and the
covariance is that of the draws. (Were it stretched to the reported standard deviations, one coordinate by 1% more than
the next, var t would come out many times too large where columns are nearly collinear.)

Up to 100 coordinates (or 32 more than β has) F has the whole covariance, and d is 0. Beyond that θ = (β, u), where u
are effects of groups and coefficients of levels, and β all others (200 at most), however strongly they are correlated.
From the draws less their means, divided by √(draws − 1), B = UΛVᵀ of β and W of u,

    F = [VΛ 0; WᵀU G],      WᵀW − WᵀUUᵀW ≈ GGᵀ + diag(d),

so that the covariances of β, and of β with u, are complete. G has the 32 directions of the largest correlations of
what is left of u, and d the rest of each variance.

A level of a grouping factor that was not fitted adds zᵀΣz to the variance, Σ being the posterior mean of the covariance
of its effects. The mean of y is E μ(t) under this law, by the trapezoid rule at 33 points z = −8, −7.5, …, 8 of
t = E t + z√var t, whose error is below 1e-7 of the mean where √var t ≤ 2, 2e-5 at 3 and 4e-4 at 4; the ends of its
interval are μ at those of t, as μ increases. `docs/production.md` has every field.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError, requirement
from svrhmc.core.storage import write_text
from svrhmc.core.version import VERSION
from svrhmc.results.base import PosteriorData, effect_interval, no_rows
from svrhmc.results.predict import covariance_factors
from svrhmc.tables.arrays import ArrayDesign
from svrhmc.tables.design import Design
from svrhmc.tables.portable import Portable, column, pieces, product
from svrhmc.tables.smooths import SmoothDesign

FORMAT, FORMAT_VERSION = "svrhmc model", 1
_MOST_DENSE, _MOST_CLOSE, _RANK = (
    100,
    200,
    32,
)  # most coordinates for which d is 0; beyond that most in β, and columns of G
NODES = np.arange(-8.0, 8.25, 0.5)
WEIGHTS = 0.5 * np.exp(-(NODES**2) / 2) / np.sqrt(2 * np.pi)

# The columns that SQL and ONNX predict for each row
PREDICTED = ("predicted_linear", "predicted_linear_sd", "predicted_mean", "predicted_lower", "predicted_upper")
Document = dict[str, Any]


class Pieces(NamedTuple):
    """A function of x that is a polynomial between any two neighbouring knots: the arguments of a "pieces" expression.

    polynomials: the coefficients of each, in powers of (x − knot)/width with the left knot and the width of its piece.
    below, above: those beyond the first and the last knot, in the variables of the first and last piece; None where
    the function is not defined there.
    """

    x: Portable
    knots: list[float]
    polynomials: list[list[float]]
    below: list[float] | None
    above: list[float] | None


def document_of(posterior: PosteriorData) -> Document:
    """The model as plain data, as described in docs/production.md."""
    model, design, units = posterior.model, posterior.design, posterior.units
    arrays = posterior.arrays or ArrayDesign()
    table_design = arrays if design is None else design
    if model is None:
        raise no_rows("to predict from")
    loss = model.loss
    if any(loss.widths):
        why = "predict() has them, and save() keeps all of it"
        allowed = "one whose first predictor alone has columns, to be exported"
        raise requirement("the posterior", allowed, "one with a predictor of another parameter too", why)
    intercept = units is not None and units.intercept
    names, expressions = _columns(posterior, design, intercept)
    width, blocks = len(names) + int(intercept), loss.blocks
    two_valued = (
        np.zeros(len(names), bool) if design or units is None or units.step is None else units.step != units.scale
    )
    of_levels = [False] * intercept + [
        is_two_valued or not _uses_number(expression)
        for is_two_valued, expression in zip(two_valued.tolist(), expressions, strict=True)
    ]
    mean, factor, remainder, draws = _gaussian_law(posterior, of_levels * blocks)
    centre, scale = (np.zeros(len(names)), np.ones(len(names))) if units is None else (units.centre, units.scale)
    classes = table_design.classes

    def parameter(place: int) -> Document:
        return {"mean": float(mean[place]), "factor": factor[place].tolist(), "remainder": float(remainder[place])}

    predictors: list[Document] = []
    for block in range(blocks):
        begin = block * width
        coefficients: list[Document] = [
            {"name": "Intercept", "expression": 1.0, "centre": 0.0, "scale": 1.0, **parameter(begin)}
        ] * intercept  # fmt: skip
        coefficients += [
            {
                "name": name, "expression": expressions[j], "centre": float(centre[j]), "scale": float(scale[j]),
                **parameter(begin + int(intercept) + j),
            }
            for j, name in enumerate(names)
        ]  # fmt: skip
        label = classes[block + 1] if blocks > 1 and len(classes) > blocks else None
        constant = 0.0 if units is None else float(units.response)
        predictors.append({"class": label, "constant": constant, "coefficients": coefficients})
    edge = blocks * width + loss.shared
    groups: list[Document] = []
    group_effects = posterior.group_effects
    if group_effects is not None:
        if len(table_design.groups) < len(group_effects.groups):
            raise DataError("effects of groups that were given as arrays have no columns: fit by a formula to export.")
        places = [edge + np.arange(part.start, part.stop) for part in group_effects.slices()]
        for k, smooth in zip(group_effects.smooths, () if design is None else design.smooths, strict=True):
            predictors[0]["coefficients"] += [
                {
                    "name": f"{smooth.name}[{j}]",
                    "expression": expression,
                    "centre": 0.0,
                    "scale": 1.0,
                    **parameter(place),
                }
                for j, (expression, place) in enumerate(zip(_smooth_functions(smooth), places[k], strict=True))
            ]
        for k, group in zip(group_effects.groups, table_design.groups, strict=True):
            varying = [1.0] * group.intercept + [expression for term in group.terms for expression in term.portable()]
            varying = varying if group.column < 0 else [varying[group.column]]
            spread = covariance_factors(posterior, k, 1000)
            level_places = places[k].reshape(group.level_count, len(varying))
            groups.append(
                {
                    "name": group.name, "columns": list(group.factors), "varying": varying,
                    "names": list(group.column_names),
                    "new": (spread @ spread.transpose(0, 2, 1)).mean(axis=0).tolist(),
                    "levels": [
                        {"level": level, "effects": [parameter(place) for place in level_places[i]]}
                        for i, level in enumerate(_level_values(group))
                    ],
                }
            )  # fmt: skip
    return {
        "format": FORMAT, "format_version": FORMAT_VERSION, "svrhmc": VERSION,
        "formula": "" if design is None else design.formula,
        "response": table_design.response,
        "family": posterior.family or loss.name, "inverse_link": loss.inverse_link, "classes": list(classes),
        "variables": _variables(table_design, names), "matrix": design is None and arrays.matrix,
        "offset": "" if design is None else design.offset,
        "exposure": "" if design is None else design.exposure,
        "predictors": predictors, "groups": groups,
        "shared": [
            {"name": name, **parameter(blocks * width + j)}
            for j, name in enumerate(posterior.labels[blocks * width : edge])
        ],
        "estimates": [
            {"name": name, "mean": float(m), "sd": float(s)}
            for name, m, s in zip(posterior.labels, posterior.mean, posterior.sd, strict=True)
        ],
        "covariance": {"rank": factor.shape[1], "draws": draws, "exact": not remainder.any()},
        "quadrature": {"nodes": NODES.tolist(), "weights": WEIGHTS.tolist()},
        "card": _model_card(posterior),
    }  # fmt: skip


def export(posterior: PosteriorData, path: str | Path | None) -> str:
    """The document as JSON, written to a file where a path is given."""
    text = json.dumps(document_of(posterior), ensure_ascii=False, allow_nan=False)
    if path is not None:
        write_text(Path(path), text)
    return text


def single_document(posterior: PosteriorData) -> Document:
    """The document of a model whose rows have a single linear predictor; other models are refused."""
    loss = None if posterior.model is None else posterior.model.loss
    if loss is not None and (loss.blocks > 1 or not loss.has_intercept):
        raise DataError(
            f"the family {loss.name!r} has several probabilities for a row, and cannot be written as SQL or ONNX: "
            "export() has everything that they are made of."
        )
    document = document_of(posterior)
    for name in (variable["name"] for variable in document["variables"]):
        if name in PREDICTED:
            raise DataError(f"the column {name!r} of the table has the name of a prediction: rename it, and fit again.")
    return document


def _columns(
    posterior: PosteriorData, design: Design | None, intercept: bool
) -> tuple[tuple[str, ...], list[Portable]]:
    """The names of the columns of a row, and their expressions."""
    if design is None:
        names = posterior.labels[int(intercept) :][: posterior.model.columns - int(intercept)]
        return tuple(names), [column(name) for name in names]
    if design.shifted:
        why = "name its column in fit(…, offset='column') instead"
        raise requirement("the offset", "a column of the table, to export a model", "an array", why)
    return design.names, [one for term in design.made_of for one in term.portable()]


def _variables(design: Design | ArrayDesign, names: Sequence[str]) -> list[Document]:
    """The columns of the table that are used, with their kinds, and the levels of those that are categories."""
    factors = {name: "group" for group in design.groups for name in group.factors}
    if isinstance(design, ArrayDesign):
        kinds = {**dict.fromkeys(names, "number"), **factors}
        return [{"name": name, "kind": kind, "levels": []} for name, kind in kinds.items()]
    choices = design.choices
    shifts = [name for name in (design.offset, design.exposure) if name]
    return [
        {
            "name": name,
            "kind": "category" if name in choices else "group" if name in factors else "number",
            "levels": list(choices.get(name, ())),
        }
        for name in dict.fromkeys([*design.variables, *shifts])
    ]


def _smooth_functions(smooth: SmoothDesign) -> list[Portable]:
    """The functions of a smooth: cubic between neighbouring knots, and straight lines beyond the knots."""
    spline, line = smooth.spline, smooth.line
    knots, h = spline.low + spline.width * spline.knots, np.diff(spline.knots)[:, None]
    bend, next_bend = spline.curvatures[:-1], spline.curvatures[1:]
    cubic = np.stack(
        [spline.values[:-1], h * spline.slopes[:-1], h**2 * bend / 2, h**2 * (next_bend - bend) / 6], axis=-1
    )  # (pieces, functions, powers), in s = (u − knot)/h
    below = np.stack([spline.values[0], h[0] * spline.slopes[0]], axis=-1)
    above = np.stack([spline.values[-1] - h[-1] * spline.slopes[-1], h[-1] * spline.slopes[-1]], axis=-1)
    x, times = line.portable_argument(), line.portable_multipliers()
    return [product([*times, pieces(x, knots, cubic[:, j], below[j], above[j])]) for j in range(spline.values.shape[1])]


def _level_values(group: Any) -> list[list[Any]]:
    """The values that the columns of a grouping factor have at each of its levels."""
    if group.combinations is None:
        return [[one] for one in group.levels[0]]
    return [[group.levels[j][k] for j, k in enumerate(row)] for row in group.combinations.tolist()]


def _uses_number(e: Portable) -> bool:
    """Whether an expression uses a numeric column of the row, and not levels alone."""
    return isinstance(e, list) and (e[0] == "column" or any(map(_uses_number, e[1:])))


def _gaussian_law(posterior: PosteriorData, of_levels: Sequence[bool]) -> tuple[Array, Array, Array, int]:
    """m, F and d of standardised coefficients, shared parameters and effects, and from how many draws they are.

    of_levels: for each coefficient, whether it belongs to a level of a category.
    """
    kept, units = posterior.group_effects, posterior.units
    draws, edge = posterior.trace.draws, len(posterior.mean) - posterior.group_scales
    x = draws[:, :: effect_interval(kept), :edge].reshape(-1, edge)
    mean, distant = posterior.mean[:edge], np.zeros(edge, bool)
    distant[: len(of_levels)] = of_levels
    if units is not None:
        x, mean = units.inward(x), units.inward(mean)
    if kept is not None:
        effects = kept.draws.reshape(-1, kept.draws.shape[2])
        x, mean = np.concatenate([x, effects], axis=1), np.concatenate([mean, effects.mean(axis=0)])
        parts = enumerate(kept.slices())
        distant = np.concatenate([distant, *(np.full(s.stop - s.start, k not in kept.smooths) for k, s in parts)])
    away = (x - x.mean(axis=0)) / np.sqrt(max(len(x) - 1, 1))
    sd = np.sqrt((away**2).sum(axis=0))
    unit = np.where(sd > 0, sd, 1.0)
    close = np.flatnonzero(~distant)[:_MOST_CLOSE]
    if whole := away.shape[1] <= max(_MOST_DENSE, len(close) + _RANK):
        close = np.arange(away.shape[1])
    scores, size, vector = np.linalg.svd((away / unit)[:, close], full_matrices=False)
    factor = away.T @ scores  # of β itself VΛ but for rounding, which this is without:
    factor[close] = unit[close, None] * (size[:, None] * vector).T
    if whole:
        return mean, factor, np.zeros(len(mean)), len(x)
    from scipy.sparse.linalg import svds

    left = away - scores @ (scores.T @ away)
    left[:, close] = 0.0
    _, size, vector = svds(left / unit, k=min(_RANK, min(away.shape) - 1), random_state=0)
    factor = np.concatenate([factor, unit[:, None] * (size[:, None] * vector).T], axis=1)
    remainder = np.maximum(sd**2 - (factor**2).sum(axis=1), 0.0)
    remainder[close] = 0.0
    return mean, factor, remainder, len(x)


def _model_card(posterior: PosteriorData) -> Document:
    """The model card: what the model was fitted on, how, and how far to trust it."""
    design, certificate = posterior.design, posterior.certificate
    return {
        "rows": posterior.fitted_rows,
        "rows_left_out": 0 if design is None else design.dropped,
        "fitted_at": posterior.fitted_at,
        "method": posterior.method,
        "draws": int(np.prod(posterior.trace.draws.shape[:2])),
        "complete": posterior.complete,
        "verdict": certificate.verdict,
        "verdict_reason": certificate.reason,
        "largest_r_hat": float(np.nan_to_num(posterior.r_hat.max(), nan=0.0, posinf=0.0)),
        "fewest_effective_draws": float(posterior.ess.min()),
        "prior": "" if posterior.prior is None else posterior.prior.said,
        "checks": [*posterior.clashes, *posterior.misfits],
        "rows_checked": posterior.checked_rows,
    }
