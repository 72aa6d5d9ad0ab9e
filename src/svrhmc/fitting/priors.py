"""Priors of a regression: weak ones that follow the scale of the data, and those that the user gives instead.

With sⱼ the standard deviation of column j (where it has two values only, as the columns of a category have, their
difference), and (m, s) what is typical of the response on the scale of the predictor
(`Loss.typical_predictor_and_effect`: the mean and standard deviation of y where the mean of y is the predictor itself;
else the link of the mean, and 1):

    coefficient βⱼ ~ N(0, (2.5 s/sⱼ)²),          intercept at the centre of the columns ~ N(m, (5 s)²),
    log σ, log scale ~ N(log s, 5²),             log shapes as the family has them.

Where such a parameter has a predictor of its own, that is the prior of its intercept at the centre of its columns, and
its coefficients are ~ N(0, (e/sⱼ)²) with e = 1 for logarithms (a standard deviation of the column multiplies σ by
e^{±1} in two of three cases) and e = 2.5 for log odds. Without an intercept they have to reach the parameter itself,
and e² is the mean square of its prior.

Sparse columns are not centred, and their intercept is that at 0: with mⱼ their means its variance has Σ(2.5 s mⱼ/sⱼ)²
more, which is what the coefficients' own priors say of the way from the centre to 0.

These are the weakly informative defaults of rstanarm (2.5 s/sⱼ; Gabry & Goodrich, "Prior Distributions for rstanarm
Models") and of Bambi (Capretto et al., Journal of Statistical Software 103, 2022), but for the intercept, which is
centred on the data and twice as wide, so that rare events and large counts are not pulled, and for columns of two
values, where the step from one to the other counts (Gelman, Jakulin, Pittau & Su, Annals of Applied Statistics 2,
2008): the standard deviation of a rare level is small, and 2.5 over it would be no information at all. They have the
units of the data: a column in metres and one in millimetres give the same posterior.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import did_you_mean, requirement
from svrhmc.families.base import Loss, Parameter
from svrhmc.fitting.standardise import Scales
from svrhmc.priors.groups import EffectTerm
from svrhmc.priors.terms import LKJ, Flat, Normal, Prior, StandardNormal
from svrhmc.sampling.coordinates import Units

INTERCEPT = "Intercept"
Priors = Prior | Mapping[str, Any] | None  # of all coefficients, by name (`Prior`, `LKJ`), or weak ones
_EFFECT_SD, _INTERCEPT_SD = 2.5, 5.0
_PRIORS = "one of svrhmc.targets.priors (Normal, StudentT, Laplace, Flat, Horseshoe, …)"
_EXAMPLE = "write Normal.with_sd(2.5) for all coefficients, {'age': Normal.with_sd(2.5)} for one, or Flat()"


class FurtherParameter(NamedTuple):
    """A shared parameter of a family. If it has a predictor of its own: the names of its columns, and whether it has an
    intercept.
    """

    parameter: Parameter
    names: tuple[str, ...] = ()
    intercept: bool = False

    @property
    def width(self) -> int:
        """The number of its coefficients; 0 if all rows share its value."""
        return len(self.names) + int(self.intercept)

    @property
    def coefficients(self) -> list[str]:
        """The names of its coefficients, the intercept first."""
        return [INTERCEPT] * self.intercept + list(self.names)


def units_and_priors(
    loss: Loss,
    scales: Scales,
    names: tuple[str, ...],
    parameters: tuple[str, ...],
    typical: float,
    size: float,
    intercept: bool,
    prior: Priors,
    scale_names: tuple[str, ...] = (),
    further: Sequence[FurtherParameter] = (),
) -> tuple[Units, list[Prior], list[Prior] | None]:
    """Units, priors of the standardised coefficients, and those of shared parameters.

    names, parameters: of the columns of the first predictor, and of what all rows share, or the coefficients of further
    predictors; scales has the columns of those last. scale_names: what else of the model may be given a
    prior, which `prior` has no more.
    """
    by_offset = loss.identity_link and intercept
    response, lifted = typical if by_offset else 0.0, not loss.has_intercept
    sizes = np.array([[len(one.names), int(one.intercept)] for one in further]) if any(loss.widths) else None
    units = Units(
        scales.centre, scales.scale, intercept, loss.blocks, loss.shared, response, scales.step, lifted, sizes
    )
    all_scales, scales = scales, scales.of(slice(0, len(names)))
    others = (INTERCEPT, *parameters) if intercept else parameters
    slopes = _slope_priors(prior, names, scales, size, others, scale_names)
    away = scales.left * scales.scale / scales.step
    far = float(np.sqrt(1 + (_EFFECT_SD / _INTERCEPT_SD) ** 2 * (away @ away)))
    middle = _intercept_prior(prior, 0.0 if by_offset or loss.blocks > 1 else typical, size * far, units.response)
    weak = _weak_shared_priors(loss, all_scales, len(names), further, size, typical, far if lifted else 1.0)
    if lifted and isinstance(prior, Flat):
        why = "nothing would show that the thresholds have a posterior; with it by column, as in "
        why += f"prior={{{names[0]!r}: Flat()}}, they keep their weak priors"
        raise requirement("prior", f"a proper one, or a dictionary by column, for {loss.name!r}", repr(prior), why)
    at = _slope_scales(all_scales, len(names), further)
    return units, ([middle] if intercept else []) + slopes, _shared_priors(prior, weak, parameters, names, at)


def _weak_shared_priors(
    loss: Loss,
    scales: Scales,
    columns: int,
    further: Sequence[FurtherParameter],
    size: float,
    typical: float,
    far: float,
) -> list[Prior]:
    """The weak priors of shared parameters, and of the coefficients of those that have predictors of their own."""
    count = len(loss.widths)
    precision, mean = (np.broadcast_to(part, count).tolist() for part in loss.weak_shared_prior(size, typical))
    weak: list[Prior] = []
    for k in range(count):
        one = further[k] if any(loss.widths) else None
        if one is None or not one.width:
            weak.append(Normal(precision[k] / far**2, mean=mean[k]))
            continue
        own = scales.of(slice(columns, columns + len(one.names)))
        columns += len(one.names)
        away = one.parameter.effect * own.left * own.scale / own.step
        weak += [Normal(1 / (1 / precision[k] + away @ away), mean=mean[k])] * one.intercept
        effect = one.parameter.effect if one.intercept else math.hypot(mean[k], precision[k] ** -0.5)
        weak += [Normal(float((effect * s) ** -2)) for s in own.scale / own.step]
    return weak


def _slope_scales(scales: Scales, columns: int, further: Sequence[FurtherParameter]) -> list[float | None]:
    """The scale of the column of each coefficient of further predictors; None for intercepts and shared parameters."""
    at: list[float | None] = []
    for one in further:
        at += [None] * (one.intercept or not one.width)
        at += scales.scale[columns : columns + len(one.names)].tolist()
        columns += len(one.names)
    return at


def with_given_priors(groups: Sequence[EffectTerm], prior: Priors) -> tuple[tuple[EffectTerm, ...], Priors]:
    """Groups with the priors that a dictionary gives them, and the rest of the dictionary, for coefficients.

    The standard deviation of an effect goes by the name that a formula has for it, "x | school", or by that of the
    parameter, "sd(x | school)"; "plan | school" stands for all levels of plan that have none of their own, and
    "cor(school)" for the correlations; that of a smooth goes by "s(x)" or "sd(s(x))". Spaces do not matter.
    """
    if not groups or not isinstance(prior, Mapping):
        return tuple(groups), prior
    keys_by_name = {_without_spaces(str(name)): name for name in prior}
    used: set[str] = set()

    def own(*names: str) -> Prior | LKJ | None:
        """The prior under the first of these names that has one. Marks all of the names as used."""
        keys = [keys_by_name[name] for name in map(_without_spaces, names) if name in keys_by_name]
        used.update(keys)
        return prior[keys[0]] if keys else None

    with_own: list[EffectTerm] = []
    for group in groups:
        usual: list[Any] = [None] * group.width
        scales: list[Prior | None] = list(group.priors(usual))
        for j in range(group.width):
            one = own(*group.prior_names(j))
            if one is not None and not (isinstance(one, Prior) and one.positive):
                allowed = "HalfNormal, HalfStudentT, HalfCauchy or Exponential"
                raise requirement(f"the prior of {group.prior_names(j)[0]!r}", allowed, repr(one))
            scales[j] = scales[j] if one is None else one
        correlations = own(_correlations_name(group)) if group.width > 1 else None
        if not (correlations is None or isinstance(correlations, LKJ)):
            raise requirement(f"the prior of {_correlations_name(group)!r}", "LKJ(eta)", repr(correlations))
        with_own.append(group.with_priors(scales, group.lkj if correlations is None else correlations.eta))
    left = {name: one for name, one in prior.items() if name not in used}
    return tuple(with_own), left or None


def scale_names(groups: Sequence[EffectTerm]) -> tuple[str, ...]:
    """The names under which priors of groups may be given."""
    scales = [group.prior_names(j)[0] for group in groups for j in range(group.width)]
    return tuple(dict.fromkeys([*scales, *(_correlations_name(group) for group in groups if group.width > 1)]))


def _correlations_name(group: EffectTerm) -> str:
    return f"cor({group.name})"


def _without_spaces(name: str) -> str:
    return re.sub(r"\s+", "", name)


def _slope_priors(
    prior: Priors,
    names: tuple[str, ...],
    scales: Scales,
    size: float,
    others: tuple[str, ...],
    scale_names: tuple[str, ...],
) -> list[Prior]:
    """Priors of the standardised slopes. others, scale_names: the other names under which a prior may be given."""
    usual: list[Prior] = [Normal(float((_EFFECT_SD * size * s) ** -2)) for s in scales.scale / scales.step]
    if prior is None:
        return usual
    if isinstance(prior, Prior):
        return _prior_on_columns(prior, scales, size)
    if not isinstance(prior, Mapping):
        raise requirement("prior", f"{_PRIORS}, or a dictionary of them by column", repr(prior), _EXAMPLE)
    more = (*others, *(_without_log(name) for name in others if name != _without_log(name)))
    known = {*names, *more}
    unknown = [name for name in prior if name not in known]
    if unknown:
        shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        more = (*more, *(repr(name) for name in scale_names[:8]), *(("…",) if len(scale_names) > 8 else ()))
        allowed = f"by the names of the columns ({shown})" + (f" or {', '.join(more)}" if more else "")
        why = "this model has no intercept" if unknown[0] == INTERCEPT else did_you_mean(str(unknown[0]), known)
        raise requirement("prior", allowed, repr(unknown[0]), why)
    odd = [own for own in prior.values() if not isinstance(own, Prior)]
    if odd:
        raise requirement("prior", f"a dictionary by column of {_PRIORS}", repr(odd[0]), _EXAMPLE)
    return [
        _prior_on_columns(prior[name], scales.of(slice(j, j + 1)), size)[0] if name in prior else one
        for j, (name, one) in enumerate(zip(names, usual, strict=True))
    ]


def _prior_on_columns(prior: Prior, scales: Scales, size: float) -> list[Prior]:
    """The prior of each standardised column. A prior that follows the data is about a typical change of the column."""
    priors = prior.on_columns(scales.scale, size)
    if not prior.by_data:
        return priors
    return [one.scaled(float(s)) for one, s in zip(priors, scales.scale / scales.step, strict=True)]


def _intercept_prior(prior: Priors, location: float, size: float, taken_off: float) -> Prior:
    """The prior of the intercept at the centre of the columns. taken_off: what was subtracted from the response."""
    if isinstance(prior, Mapping) and INTERCEPT in prior:
        given: Prior = prior[INTERCEPT].shifted(-taken_off)
        return given
    return Flat() if isinstance(prior, Flat) else Normal((_INTERCEPT_SD * size) ** -2, mean=location)


def _without_log(name: str) -> str:
    """The name of the parameter whose logarithm has this name: sigma for log sigma."""
    return name.removeprefix("log ")


def _shared_priors(
    prior: Priors, weak: list[Prior], parameters: tuple[str, ...], names: tuple[str, ...], at: Sequence[float | None]
) -> list[Prior] | None:
    """Priors of the shared parameters; None if there are none. Each is given under the name of the parameter or of its
    logarithm, or is a weak one. If a column has the name of the parameter, only the name of its logarithm is left. at:
    for coefficients of further predictors, the scales of their columns.
    """
    priors: list[Prior] = []
    for name, usual in zip(parameters, weak, strict=True):
        bare = _without_log(name)
        by_name = prior if isinstance(prior, Mapping) else {}
        given = {key: by_name[key] for key in {name: 0, bare: 0} if key in by_name and key not in names}
        if len(given) > 1:
            raise requirement("prior", f"of {bare!r} or of {name!r}", "both", "one follows from the other")
        for key, one in given.items():
            if one.positive and key == name:
                why = f"it is one of {bare!r}, whose logarithm this is"
                raise requirement(f"the prior of {name!r}", "one of numbers of either sign", repr(one), why)
            if not one.positive and key == bare != name:
                allowed, why = "HalfNormal, HalfStudentT, HalfCauchy or Exponential", f"it may be one of {name!r}"
                raise requirement(f"the prior of {bare!r}", allowed, repr(one), why)
        priors.append(next(iter(given.values()), usual))
        scale = at[len(priors) - 1] if at else None
        if at and not np.isfinite(priors[-1].spread[1]):
            why = "nothing would show that such a coefficient has a posterior"
            raise requirement(f"the prior of {name!r}", "a proper one", repr(priors[-1]), why)
        if given and scale is not None:
            priors[-1] = priors[-1].on_columns(np.array([scale]), 1.0)[0]
    return priors or None


def locations_and_precisions(priors: list[Prior], loss: Loss, shared: list[Prior] | None) -> tuple[Array, Array]:
    """The prior location and precision of every standardised coordinate."""
    first = [one.spread for one in priors] * loss.blocks
    last = [one.spread for one in shared or ()]
    location, sd = (np.array(column) for column in zip(*(first + last), strict=True))
    return location, np.where(np.isfinite(sd), sd, np.inf) ** -2.0


def prior_in_words(
    prior: Priors,
    loss: Loss,
    middle: Prior | None,
    response: float,
    parameters: tuple[str, ...],
    shared: list[Prior] | None,
) -> str:
    """All priors in words: of coefficients, of the intercept (`middle`, after `response` was subtracted from the
    response) and of shared parameters. If the user gave some, the others are stated in numbers.
    """
    if prior is None:
        return "; ".join(
            filter(
                None,
                ("weak, on the scale of the data: " + _weak_slopes_in_words(loss), *loss.weak_shared_words(parameters)),
            )
        )
    if isinstance(prior, Mapping):
        given = ", ".join(f"{name} ~ {one.in_words()}" for name, one in prior.items())
        words = [f"given: {given}", "other coefficients have weak ones, on the scale of the data"]
    elif isinstance(prior, StandardNormal):
        of = f"·sd({loss.scaled_by})" if loss.scaled_by else ""
        sd = f"{prior.scale:g}{of}"
        words = [
            f"given (prior_scale), on the scale of the data: coefficients of numbers ~ N(0, ({sd}/sd(x))²), those of "
            f"columns of two values, such as 0 and 1, N(0, ({sd})²) for the step from one to the other"
        ]
    else:
        words = [f"given: every coefficient ~ {prior.in_words()}"]
    by_name = prior if isinstance(prior, Mapping) else {}
    if middle is not None and INTERCEPT not in by_name:
        law = "flat" if isinstance(middle, Flat) else f"~ {_normal(*middle.shifted(response).spread)}"
        words.append(f"the intercept, at the means of the columns, {law} unless prior={{'{INTERCEPT}': …}} gives it")
    weak = {
        name: f"~ {_normal(*one.spread)}{_by_sd(name, loss)} unless prior={{{_without_log(name)!r}: …}} gives it"
        for name, one in zip(parameters, shared or (), strict=True)
        if not {name, _without_log(name)} & set(by_name)
    }
    if weak and not loss.has_intercept:  # all of them have one law
        many = "thresholds" if len(weak) == len(parameters) else "other thresholds"
        words.append(f"{many}, at the means of the columns, {next(iter(weak.values()))}")
    else:
        words.extend(f"{name} {law}" for name, law in weak.items())
    return "; ".join(words)


def _by_sd(name: str, loss: Loss) -> str:
    """The unit of the prior of a coefficient of a further predictor, in words."""
    return " for one sd of the column" if any(loss.widths) and not name.endswith(INTERCEPT) and ": " in name else ""


def _normal(mean: float, sd: float) -> str:
    return f"N({mean:.4g}, {sd:.4g}²)"


def _weak_slopes_in_words(loss: Loss) -> str:
    if of := loss.scaled_by:
        return (
            f"coefficients ~ N(0, (2.5·sd({of})/sd(x))²), those of categories N(0, (2.5·sd({of}))²); the intercept, at "
            f"the means of the columns, ~ N(mean of {of}, (5·sd({of}))²)"
        )
    slopes = "coefficients ~ N(0, (2.5/sd(x))²), those of categories N(0, 2.5²)"
    if not loss.has_intercept:
        return slopes
    centre = "N(0, 5²)" if loss.blocks > 1 else "N(m, 5²), where m is what an intercept alone would be"
    return f"{slopes}; the intercept, at the means of the columns, ~ {centre}"
