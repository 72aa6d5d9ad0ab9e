"""A posterior in words and tables."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from svrhmc.core.arrays import Array, Indices, ratio
from svrhmc.core.cells import csv_text
from svrhmc.core.errors import missing_package, requirement
from svrhmc.core.summaries import Summary, array_name, interval_end_names, interval_ends
from svrhmc.families import FAMILIES
from svrhmc.families.base import Loss
from svrhmc.results.base import PosteriorData, even_rows
from svrhmc.results.checks import MISFITS_LOOKED_FOR
from svrhmc.results.imputations import imputation_notes
from svrhmc.results.probability import match_moments
from svrhmc.results.smooths import degrees_sentence
from svrhmc.sampling.answer import is_corrected
from svrhmc.sampling.tails import tails_in_words
from svrhmc.tables.formula import shorten_lists

if TYPE_CHECKING:
    import pandas

_NOTICEABLE = 0.5  # seconds of compilation
_SMALL_CHANGE, _LARGE_CHANGE = 0.01, 5.0  # changes of a predictor between these are easy to read
_ROUNDING = 1e-13  # sds: smaller means are rounding errors of 0
_MOST_NAMED = 8  # most coefficients that a sentence names
_MOST_UNITS = 3  # most columns in the note on changes by a standard deviation
_MOST_NUMERIC_LEVELS = 1000  # levels of a grouping factor of numbers, above which these may be amounts
_NEAR_ZERO_QUANTILE = (
    0.2  # a 5% quantile below this share of the median is near 0; for a half-normal law the share is half of this
)
_LAPLACE_DISTANCE = 0.5  # posterior sds from the median, above which Laplace's approximation gets a note
_NEAR_ONE, _MOST_DECIMALS = 0.1, 5  # ratios whose distance from 1 is what matters, and their decimals
_UNCHECKED = (
    "it was not checked whether it fits the rows, as that takes weights that are whole numbers, and 30 observations or "
    "more"
)
_SOME_ROWS = 1000
_SEPARATED = (
    "Separation: a combination of the columns tells all rows with the event from all without it, so that the data set "
    "no upper limit on the size of coefficients: how large they are is what the prior says."
)
_ABOUT_COMPUTATION = "It is about the computation (evidence: posterior.certificate), not the model."


class Coefficient(NamedTuple):
    """A coefficient in the units of the data: its posterior, the mode with Laplace's sd, effective draws, R-hat, the
    probability that it is above 0, and the prior's share of its precision (0 where no prior is stated). Where the
    family has ratios, also median and interval of e to its power; None elsewhere, and for intercepts.
    """

    name: str
    mean: float
    sd: float
    lower: float
    upper: float
    mode: float
    laplace_sd: float
    ess: float
    r_hat: float
    positive: float
    prior_share: float
    ratio: float | None = None
    ratio_lower: float | None = None
    ratio_upper: float | None = None

    def ratio_in_words(self) -> str:
        """Median and interval of the ratio, or ""."""
        if self.ratio is None or self.ratio_lower is None or self.ratio_upper is None:
            return ""
        return "{} ({}–{})".format(*_format_ratio(self.ratio, self.ratio_lower, self.ratio_upper))

    @property
    def distance(self) -> float:
        """The distance of the mean from 0 in posterior sds; infinite where all draws are equal."""
        return abs(self.mean) / self.sd if self.sd > 0 else math.inf


def _format_ratio(ratio: float, lower: float, upper: float) -> tuple[str, ...]:
    """A ratio and the ends of its interval as texts; near 1 with as many decimals as show their distance from 1.

    >>> _format_ratio(0.998, 0.99427, 1.0016), _format_ratio(1.701, 1.598, 1.809)
    (('0.998', '0.994', '1.002'), ('1.7', '1.6', '1.81'))
    """
    numbers, half = (ratio, lower, upper), (upper - lower) / 2
    decimals = max(3, -math.floor(math.log10(half))) if half > 0 else 3
    if abs(ratio - 1) > _NEAR_ONE or half > _NEAR_ONE or decimals > _MOST_DECIMALS:
        return tuple(f"{value:.3g}" for value in numbers)
    return tuple(f"{value:.{decimals}f}" for value in numbers)


def names_of(posterior: PosteriorData) -> tuple[str, ...]:
    """The names of all that is reported: the parameters of a user's own model, or else the coordinates."""
    return posterior.labels if posterior.parameters is None else posterior.parameters.names


def summary_columns(posterior: PosteriorData, level: float) -> dict[str, Array]:
    """Mean, sd, the ends of the interval, ratios where the family has them, standard errors of the two moments,
    effective draws and R-hat.
    """
    if posterior.parameters is not None:
        return posterior.parameters.columns(level)
    low, high = interval_end_names(level)
    ends = posterior.quantile(interval_ends(level))
    columns = {"mean": posterior.mean, "sd": posterior.sd, low: ends[0], high: ends[1]}
    if name := ratio_name(posterior):
        places, ratios = ratio_places(posterior), np.full((3, len(posterior.mean)), np.nan)
        ratios[:, places] = _ratio_quantiles(posterior, places, level)
        columns |= dict(zip((name, f"ratio {low}", f"ratio {high}"), ratios, strict=True))
    mean_error, sd_error = posterior.errors
    return columns | {"mcse_mean": mean_error, "mcse_sd": sd_error, "ess": posterior.ess, "r_hat": posterior.r_hat}


def coefficient_table(posterior: PosteriorData, level: float, mcse: bool = False) -> Summary:
    """The same columns as a table. mcse: whether with the standard errors. Scalars of a user's own model come before
    arrays, and short arrays before long ones.
    """
    names, columns = names_of(posterior), summary_columns(posterior, level)
    if posterior.units is None:
        counts = Counter(array_name(name) for name in names)
        order = sorted(range(len(names)), key=lambda j: counts[array_name(names[j])])
        names, columns = tuple(names[j] for j in order), {word: v[order] for word, v in columns.items()}
    if {"mean", "sd"} <= columns.keys():  # rounding errors of 0
        columns["mean"] = np.where(np.abs(columns["mean"]) < _ROUNDING * columns["sd"], 0.0, columns["mean"])
    if not mcse:
        columns = {word: v for word, v in columns.items() if not word.startswith("mcse")}
    return Summary(names, columns, folded=posterior.units is not None)


def build_summary(posterior: PosteriorData, level: float, mcse: bool = False) -> Summary:
    """The table of coefficients with a title and all notes."""
    return replace(
        coefficient_table(posterior, level, mcse), title=title_sentence(posterior), notes=all_notes(posterior)
    )


def ratio_name(posterior: PosteriorData) -> str:
    """What e to the power of a coefficient is, such as "odds ratio"; "" where that has no name."""
    loss = loss_of(posterior)
    return "" if loss is None or posterior.parameters is not None else loss.ratio


def ratio_places(posterior: PosteriorData) -> list[int]:
    """The coordinates that have ratios: all coefficients except intercepts."""
    loss = loss_of(posterior)
    assert loss is not None
    end = len(posterior.mean) - posterior.group_scales - loss.shared
    return [j for j, name in enumerate(posterior.labels[:end]) if name.rpartition(": ")[2] != "Intercept"]


def _ratio_quantiles(posterior: PosteriorData, places: list[int], level: float) -> Array:
    """Median and interval of e to the power of some coefficients: e to the power of their quantiles."""
    with np.errstate(over="ignore"):
        powers: Array = np.exp(posterior.quantile([0.5, *interval_ends(level)])[:, places])
    return powers


def ratio_table(posterior: PosteriorData, level: float) -> Summary:
    """Median and interval of e to the power of all coefficients except intercepts."""
    loss, design, name = loss_of(posterior), posterior.design, ratio_name(posterior)
    if loss is None or not name:
        family = (repr(posterior.family) if posterior.family else "'this target'") + _link_in_words(loss)
        raise requirement("the posterior", "of a family with a logit or log link, to have ratios", family)
    places, (low, high) = ratio_places(posterior), interval_end_names(level)
    columns = dict(zip((name, low, high), _ratio_quantiles(posterior, places, level), strict=True))
    if loss.proportional_hazards:
        end = len(posterior.mean) - posterior.group_scales - loss.shared
        columns |= _hazard_ratios(posterior, places, end, level)
    of = f" of {'a higher ' if loss.ordered else ''}{design.response_in_words}" if design is not None else ""
    if loss.blocks > 1 and design is not None and design.classes:
        of += f", each class against {design.classes[0]!r}"
    notes = [f"Levels of categories are compared with {_baselines(posterior)}."] if _baselines(posterior) else []
    return Summary(
        tuple(posterior.labels[j] for j in places),
        columns,
        f"{name.capitalize()}{of}, for a one-unit increase in each column: the median and interval of e^coefficient.",
        (*notes, *unit_notes(posterior, level)),
    )


def _hazard_ratios(posterior: PosteriorData, places: list[int], end: int, level: float) -> dict[str, Array]:
    """Median and interval of e^{−β/σ}, the hazard ratios of accelerated failure times with proportional hazards. end:
    the coordinate log σ, where the family has one.
    """
    draws = match_moments(posterior.trace._flat(), *posterior.stretched)
    sigma = np.exp(draws[:, [end]]) if posterior.model.loss.shared else 1.0
    middle, lower, upper = np.exp(np.quantile(-draws[:, places] / sigma, [0.5, *interval_ends(level)], axis=0))
    low, high = interval_end_names(level)
    return {"hazard ratio": middle, f"hazard {low}": lower, f"hazard {high}": upper}


def draws_frame(posterior: PosteriorData) -> pandas.DataFrame:
    """Draws as a data frame."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise missing_package("pandas", "formula", "a data frame") from None
    draws = posterior.trace.draws if posterior.parameters is None else posterior.parameters.draws
    chain, draw = np.indices(draws.shape[:2]).reshape(2, -1)
    columns = dict(zip(names_of(posterior), draws.reshape(-1, draws.shape[2]).T, strict=True))
    return pandas.DataFrame({"chain": chain, "draw": draw, **columns})


def _count_in_words(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count > 1 else ''}"


def _link_in_words(loss: Loss | None) -> str:
    """The link in words, where it is not the family's usual one."""
    return f" with the {loss.link} link" if loss is not None and loss.link else ""


def unit_notes(posterior: PosteriorData, level: float = 0.9) -> tuple[str, ...]:
    """The effect of one standard deviation of a column, where that of one unit is too small or too large to read."""
    units, design, ratio = posterior.units, posterior.design, ratio_name(posterior)
    if units is None:
        return ()
    plain_columns = {row.rpartition(": ")[2] for row in posterior.names} if design is None else design.plain_columns
    width, first, sentences = len(units.centre) + int(units.intercept), int(units.intercept), list[str]()
    middle, low, high = posterior.quantile([0.5, *interval_ends(level)])
    for j, name in enumerate(posterior.names[: units.blocks * width]):
        if j % width < first or name.rpartition(": ")[2] not in plain_columns:
            continue
        step = float(units.scale[j % width - first])
        ends = sorted(map(abs, (low[j], high[j])))
        if (ends[1] < _SMALL_CHANGE and step > 1) or (ratio and ends[0] > _LARGE_CHANGE and step < 1):
            values = np.array([middle[j], low[j], high[j]]) * step
            words = [f"{value:.3g}" for value in (np.exp(values) if ratio else values)]
            sentences.append(f"{words[0]} ({words[1]} to {words[2]}) for {name} (sd {short(step)})")
    if not sentences:
        return ()
    change = f"the {ratio} is" if ratio else "the linear predictor changes by"
    return (f"Units: for an increase of one standard deviation, {change} {'; '.join(sentences[:_MOST_UNITS])}.",)


def loss_of(posterior: PosteriorData) -> Loss | None:
    """The loss of the model or, where only its family is known, that of the family with its usual link."""
    if posterior.model is not None:
        return cast(Loss, posterior.model.loss)
    return FAMILIES[posterior.family]() if posterior.family in FAMILIES else None


def response_name(posterior: PosteriorData) -> str:
    """The name of the response."""
    design = posterior.design
    return design.response_in_words if design is not None and design.response else "the response"


def predictor_in_words(posterior: PosteriorData) -> str:
    """What a one-unit increase in a column adds its coefficient to."""
    loss = loss_of(posterior)
    return "the linear predictor" if loss is None else fill_in_words(posterior, loss.modelled)


def fill_in_words(posterior: PosteriorData, words: str) -> str:
    """The words of a family, with the response and its classes."""
    classes: tuple[str, ...] = () if posterior.design is None else posterior.design.classes
    response = response_name(posterior)
    event = response
    if posterior.design is not None and len(classes) == 2:
        is_statement = posterior.design.event_in_words.startswith("that ")
        event = response if is_statement else f"{response} = {classes[-1]}"
    return words.format(event=event, response=response, first=classes[0] if classes else "the first")


def _baselines(posterior: PosteriorData) -> str:
    return "" if posterior.design is None else ", ".join(dict.fromkeys(posterior.design.baselines))


def _family_in_words(posterior: PosteriorData) -> str:
    """The name of the family, with its degrees of freedom if it has some."""
    df = getattr(getattr(posterior.model, "loss", None), "df", None)
    return repr(posterior.family) + (f" with {df:g} degrees of freedom" if df is not None else "")


def title_sentence(posterior: PosteriorData) -> str:
    """What was fitted, in one sentence."""
    dim, design, n = len(posterior.mean), posterior.design, posterior.fitted_rows or posterior.rows
    rows_in_words = f"{n:,} rows" if n else ""
    if posterior.imputed is not None:
        rows_in_words = f"{posterior.imputed.count} imputed tables of {posterior.fitted_rows:,} rows each"
    if left_out := posterior.left_out:
        rows_in_words += f" ({left_out:,} of weight 0 left out)"
    if design is None and _is_own_model(posterior):
        observed = None if posterior._target is None else posterior._target.observed_count
        values = (
            f", {observed:,} observed values"
            if observed is not None and n == 1
            else f", {rows_in_words}"
            if rows_in_words
            else ""
        )
        return f"Posterior of a model, {_count_in_words(dim, 'coordinate')}{values}."
    if design is None:
        model = f"a regression of the family {_family_in_words(posterior)}" if posterior.family else "a target"
        groups = "" if posterior.group_effects is None else f"; {posterior.group_effects.in_words()}"
        coefficients = _count_in_words(dim - posterior.group_scales, "coefficient")
        return f"Posterior of {model}, {coefficients}{', ' + rows_in_words if rows_in_words else ''}{groups}."
    link = _link_in_words(None if posterior.model is None else posterior.model.loss)
    sentence = f"Posterior of {shorten_lists(design.formula)}, family {_family_in_words(posterior)}{link}"
    if design.guessed:
        sentence += f" ({design.guessed})"
    if posterior.family in FAMILIES and FAMILIES[posterior.family]().ordered:
        sentence += f"; classes in order: {' < '.join(design.classes)}"
    elif len(design.classes) == 2:
        sentence += f"; modelled is the probability {design.event_in_words}"
    elif design.classes:
        sentence += f"; classes are compared with {design.classes[0]!r}"
    elif design.trials or design.tried:
        of = f" of {design.trials!r}" if design.trials else ""
        sentence += f"; modelled is the probability of a success in each of the trials{of}"
    sentence += design.row_values_in_words.replace(", with", "; with", 1)
    if rows_in_words:
        sentence += f"; {rows_in_words}"
    if posterior.group_effects is not None:
        sentence += f"; {posterior.group_effects.in_words()}"
    if design.dropped:
        sentence += f"; {design.dropped:,} row{'s' if design.dropped > 1 else ''} left out because of missing values"
    return f"{sentence}."


def _is_own_model(posterior: PosteriorData) -> bool:
    """Whether the model is the user's own; a posterior from a file shows that only by stated parameters."""
    is_known = posterior._target is not None and posterior._target.observed_count is not None
    return is_known or (posterior.parameters is not None and not posterior.family)


def all_notes(posterior: PosteriorData) -> tuple[str, ...]:
    """All sentences after the table of `summary`."""
    sentences = []
    if levels := _baselines(posterior):
        sentences.append(f"Levels of categories are compared with {levels}.")
    if posterior.design is not None:
        sentences += [f"Labels: {note}." for note in posterior.design.notes]
    if posterior.design is not None and posterior.model is not None and posterior.model.loss.reading:
        sentences.append(posterior.model.loss.reading)
    if name := ratio_name(posterior):
        sentences.append(f"{name.capitalize()}: the median and interval of e to the power of the coefficient.")
    sentences += unit_notes(posterior)
    sentences += [
        f"Draws: {draws_sentence(posterior)}",
        f"Verdict: {verdict_sentence(posterior)} {_ABOUT_COMPUTATION}",
        *model_notes(posterior),
    ]
    if posterior.modes is not None:
        switch = posterior.modes.labels_switch()
        sentences.append(f"Modes: {posterior.modes.brief()} (posterior.modes).{switch and ' '}{switch}")
    sentences += tail_notes(posterior)
    if is_separated(posterior):
        sentences.append(_SEPARATED)
    sentences += [
        *smooth_notes(posterior),
        *factor_notes(posterior),
        *scale_notes(posterior),
        *(() if posterior.shrinkage is None else posterior.shrinkage.notes()),
    ]
    sentences += imputation_notes(posterior)
    if posterior.parameters is not None:
        sentences.append(
            f"Coordinates: the parameters are functions of {len(posterior.mean):,} unconstrained coordinates, which "
            "were sampled and which the verdict is about (posterior.mean, posterior.trace)."
        )
    if posterior.prior is not None:
        sentences.append(f"Prior: {posterior.prior.said}.")
        if len(dominated := posterior.prior.dominated()):
            sentences.append(f"For {_names_in_words(posterior, dominated)}, the prior says more than the data.")
        if sentence := entangled_sentence(posterior):
            sentences.append(sentence)
        sentences += posterior.prior.wider
    return (*sentences, *(f"Clash: {clash}" for clash in posterior.clashes))


def is_separated(posterior: PosteriorData) -> bool:
    """Whether a combination of the columns, that of the posterior mean, tells all events of a yes or no from all other
    rows. Asked of rows in memory and without effects of groups alone.
    """
    form = posterior.form
    if form is None or posterior.units is None or posterior.family != "bernoulli" or not form.rows.in_memory:
        return False
    if posterior.group_effects is not None or posterior.shrinkage is not None:
        return False
    mean = posterior.units.inward(posterior.mean[None, : posterior.units.dim])
    for some in (form.choose(even_rows(form.rows.n, _SOME_ROWS, 0)), form):  # the first decides nearly always
        t, events = some.predictors(mean)[0].ravel(), some.y > 0
        if events.all() or not events.any() or t[events].min() <= t[~events].max():
            return False
    return True


def tail_notes(posterior: PosteriorData) -> tuple[str, ...]:
    """Which parameters or coordinates have no standard deviation to report, or one whose error is not known."""
    if posterior.parameters is not None:
        sentence = posterior.parameters.heavy(_MOST_NAMED)
    elif posterior.tails is not None:
        sentence = tails_in_words(posterior.labels, posterior.trace.draws, posterior.tails, _MOST_NAMED)
    else:
        sentence = ""
    return (f"Tails: {sentence}",) if sentence else ()


def factor_notes(posterior: PosteriorData) -> tuple[str, ...]:
    """Which grouping factors are columns of very many different numbers, which may have been meant as numbers."""
    if posterior.design is None:
        return ()
    sentences = dict[str, None]()
    for group in posterior.design.groups:
        for name, levels in zip(group.factors, group.levels, strict=True):
            if len(levels) <= _MOST_NUMERIC_LEVELS or isinstance(levels[0], str) or f"C({name})" in group.text:
                continue
            reading = f"the {len(levels):,} different numbers of {name} are taken for names of groups"
            sentences[f"Groups: {reading}, as {group.text} says; write {name} or s({name}) if they are amounts."] = None
    return tuple(sentences)


def scale_notes(posterior: PosteriorData) -> tuple[str, ...]:
    """Which standard deviations of group effects may be 0, and for which Laplace's approximation is far off."""
    count, sentences = posterior.group_scales, list[str]()
    if not count:
        return ()
    low, middle = posterior.quantile([0.05, 0.5])
    loss, group_effects = posterior.model.loss, posterior.group_effects
    assert group_effects is not None
    smooths = {f"sd({group_effects.names[k]})" for k in group_effects.smooths}
    is_approximated = posterior.method != "laplace" and not (loss.quadratic or loss.mixture)  # given the scales
    for j in range(len(posterior.mean) - count, len(posterior.mean)):
        name = posterior.labels[j]
        if not name.startswith("sd("):
            continue
        if low[j] < _NEAR_ZERO_QUANTILE * middle[j]:
            difference = "this curve bends" if name in smooths else "these effects differ from group to group"
            sentences.append(
                f"{name} may be 0: one in twenty of its draws is below {low[j]:.2g}, and the data do not show that "
                f"{difference}."
            )
            continue
        distance = (posterior.laplace.mean[j] - middle[j]) / posterior.sd[j] if posterior.sd[j] > 0 else 0.0
        if abs(distance) > _LAPLACE_DISTANCE and is_approximated:
            side = "below" if distance < 0 else "above"
            sentences.append(
                f"Laplace's approximation, which lme4's glmer and INLA rest on, has {name} at "
                f"{posterior.laplace.mean[j]:.3g}, {abs(distance):.2g} posterior sds {side} the median of the "
                "posterior."
            )
    if group_effects.every > 1:
        size = 8e-9 * group_effects.draws.size
        sentences.append(
            f"the effects of one draw in {group_effects.every} are kept, {size:.2g} GB of "
            f"{size * group_effects.every:.2g} GB; coefficients and standard deviations have all draws."
        )
    kinds = [word for word, terms in (("Groups", group_effects.groups), ("Smooths", group_effects.smooths)) if terms]
    return tuple(f"{' and '.join(kinds).capitalize()}: {sentence}" for sentence in sentences)


def smooth_notes(posterior: PosteriorData, level: float = 0.9) -> tuple[str, ...]:
    """How much each smooth bends, in effective degrees of freedom."""
    if posterior.group_effects is None or not posterior.group_effects.smooths:
        return ()
    return (f"Smooths: {degrees_sentence(posterior, level)}",)


def model_notes(posterior: PosteriorData) -> tuple[str, ...]:
    """The misfits of the model, or that none was found; () where it was not checked, unless weights are the reason."""
    if not posterior.checked_rows and posterior.design is not None and posterior.design.weighted:
        return (f"Model: {_UNCHECKED}.",)
    if not posterior.checked_rows:
        return ()
    if posterior.misfits:
        return tuple(f"Misfit: {misfit}" for misfit in posterior.misfits)
    return (f"Model: {no_misfit_sentence(posterior.checked_rows)}",)


def no_misfit_sentence(rows: int) -> str:
    """That no misfit was found in so many rows, and what was looked for."""
    return f"no misfit was found in {rows:,} rows (looked for: {MISFITS_LOOKED_FOR})."


def entangled_sentence(posterior: PosteriorData) -> str:
    """Coefficients some combination of which is known from the prior more than from the data, in a sentence; or ""."""
    if posterior.prior is None:
        return ""
    draws = posterior.trace.draws[..., : len(posterior.prior.share)]
    draws = draws if posterior.units is None else posterior.units.inward(draws)
    entangled = posterior.prior.entangled(draws)
    if not len(entangled):
        return ""
    return (
        f"For some combination of {_names_in_words(posterior, entangled)}, the prior says more than the data, as their "
        "columns nearly add up to each other or there are few rows: do not read these coefficients one by one. "
        "Predictions and effects() may still be precise."
    )


def draws_sentence(posterior: PosteriorData) -> str:
    """How many draws there are, and by which sampler; `posterior.why` has the reason for it."""
    chains, draws, _ = posterior.trace.draws.shape
    sentence = f"{chains} chain{'s' if chains > 1 else ''} of {draws:,} by {posterior.method}"
    ending = "" if posterior.complete else "; stopped before there were as many as asked for"
    if posterior.method == "laplace":
        return (
            f"{chains * draws:,} of the Laplace approximation, in {posterior.seconds:.3g} s; the budget ended before "
            "there were any of the posterior."
        )
    effective = f"as precise as at least {posterior.ess.min():,.0f} independent ones"
    return f"{sentence}, {effective}, in {time_in_words(posterior)}{ending}."


def time_in_words(posterior: PosteriorData) -> str:
    """How long it took; with what a person waited in all, where compilation is a noticeable part of that."""
    seconds, compiling = posterior.seconds, posterior.compile_seconds
    noticeable = compiling >= max(_NOTICEABLE, 0.1 * seconds)
    return f"{seconds:.3g} s" + (f" ({seconds + compiling:.3g} s with compilation)" if noticeable else "")


def verdict_sentence(posterior: PosteriorData) -> str:
    """How far off the reported numbers can be, in one sentence; `posterior.certificate` has what it rests on."""
    (mean, _), (sd, _) = _largest_errors(posterior)
    certificate = posterior.certificate
    if mean == sd == 0 and certificate.verdict == "exact":
        return "exact: means and sds come from a formula, without sampling error."
    return f"{_for_one_chain(certificate.brief(), posterior)}; chance alone leaves {chance_in_words(posterior)}."


def _for_one_chain(verdict: str, posterior: PosteriorData) -> str:
    """A verdict in words, adapted where there is only one chain."""
    if len(posterior.trace.draws) > 1:
        return verdict
    return verdict.replace("its chains agree", "the halves of its chain agree")


def chance_in_words(posterior: PosteriorData) -> str:
    """The largest standard errors of the means and sds in the table, and which coefficients have them."""
    (mean, of_mean), (sd, of_sd) = _largest_errors(posterior)
    if not math.isfinite(mean + sd):
        return "standard errors that are not known"
    owners = [f" ({name})" if len(names_of(posterior)) > 1 else "" for name in (of_mean, of_sd)]
    return (
        f"a standard error of at most {mean:.2g} posterior sd in a mean{owners[0]} and of {sd:.2g} in an sd{owners[1]}"
    )


def _largest_errors(posterior: PosteriorData) -> tuple[tuple[float, str], tuple[float, str]]:
    """The largest standard errors of the means and of the sds of the table, in posterior sds, each with the name of its
    coefficient. Coefficients with heavy tails, whose errors are unknown, are left out; all unknown: infinite.
    """
    if posterior.parameters is None:
        sds, errors, tails = posterior.sd, posterior.errors, posterior.tails
    else:
        moments, tails = posterior.parameters.moments, posterior.parameters.shapes
        sds, errors = moments.sd, (moments.mean_error, moments.sd_error)
    has_error = np.flatnonzero(np.isfinite(sds) if tails is None else tails == 0)
    if not len(has_error):
        return (math.inf, ""), (math.inf, "")
    names, relative = names_of(posterior), [ratio(error[has_error], sds[has_error]) for error in errors]
    mean, sd = ((float(of.max()), names[int(has_error[int(np.argmax(of))])]) for of in relative)
    return mean, sd


def sampling_paragraph(posterior: PosteriorData) -> str:
    """How the draws were made, how far off the reported numbers are by chance, and the verdict on their bias."""
    chains, draws, dim = posterior.trace.draws.shape
    short = "" if posterior.complete else "; stopped before there were as many as asked for"
    tails = np.zeros(dim) if posterior.tails is None else posterior.tails
    mean, sd = (float(ratio(error, posterior.sd)[tails == 0].max(initial=0.0)) for error in posterior.errors)
    kind_of_moments = (
        "corrected by the gradients at the draws" if is_corrected(posterior) else "those of the draws themselves"
    )
    if posterior.sampler is None:
        kind_of_moments = (
            "known in closed form" if posterior.complete or mean == 0 else "those of the Laplace approximation"
        )
    size_of_errors = f"standard errors of up to {mean:.2g} and {sd:.2g} posterior sd"
    errors = size_of_errors if math.isfinite(mean + sd) and (tails == 0).any() else "errors that are not known"
    several_chains = chains > 1
    return (
        f"{chains} chain{'s' * several_chains} of {posterior.method} made {draws:,} draws{' each' * several_chains} of "
        f"{dim} parameter{'s' * (dim > 1)}, at least {posterior.ess.min():,.0f} of them effective "
        f"({posterior.why.rstrip('.')}; R-hat at most {posterior.r_hat.max():.3f}, {posterior.passes:.4g} passes over "
        f"the data, {time_in_words(posterior)}{short}).\nThe means and sds reported, {kind_of_moments}, have {errors}; "
        f"as to bias they are {_for_one_chain(str(posterior.certificate), posterior)}."
        + "".join(f"\n{note}" for note in tail_notes(posterior))
    )


def print_text(posterior: PosteriorData) -> str:
    """The text that `print` shows: for a fit the table with notes, for another target how its draws were made."""
    if posterior.units is None:
        return sampling_paragraph(posterior)
    notes = (f"Draws: {draws_sentence(posterior)}", *_verdict_notes(posterior), "summary() says more.")
    return str(replace(coefficient_table(posterior, 0.9), title=title_sentence(posterior), notes=notes))


def repr_text(posterior: PosteriorData) -> str:
    """The repr of a posterior, one or two lines."""
    chains, draws, dim = posterior.trace.draws.shape
    beginning = f"Posterior of {posterior.design.formula!r}: " if posterior.design is not None else "Posterior: "
    moments = posterior if posterior.parameters is None else posterior.parameters.moments
    estimates = ", ".join(
        f"{name} {mean:.4g} ± {sd:.2g}"
        for name, mean, sd in zip(names_of(posterior)[:4], moments.mean[:4], moments.sd[:4], strict=True)
    )
    sizes = _count_in_words(dim - posterior.group_scales, "coefficient")
    group_effects = posterior.group_effects
    if group_effects is not None and posterior.group_scales:
        kinds = [
            word for word, terms in (("groups", group_effects.groups), ("smooths", group_effects.smooths)) if terms
        ]
        sizes += f", {_count_in_words(posterior.group_scales, 'scale')} of {' and '.join(kinds)}"
    return (
        f"<{beginning}{sizes}, {chains} × {draws:,} draws by {posterior.method}, {posterior.certificate.verdict}\n"
        f" {estimates}{', …' if dim > 4 else ''}>"
    )


def html_text(posterior: PosteriorData) -> str:
    """The table and the verdict as HTML, for notebooks."""
    return replace(
        coefficient_table(posterior, 0.9), title=title_sentence(posterior), notes=_verdict_notes(posterior)
    )._repr_html_()


def _verdict_notes(posterior: PosteriorData) -> tuple[str, ...]:
    """The verdict, and the most important notes on the model."""
    return (
        f"Verdict: {verdict_sentence(posterior)}",
        *tail_notes(posterior),
        *model_notes(posterior),
        *unit_notes(posterior),
        *smooth_notes(posterior),
        *factor_notes(posterior),
        *scale_notes(posterior),
        *(() if posterior.shrinkage is None else posterior.shrinkage.notes()),
        *imputation_notes(posterior),
        *(f"Clash: {clash}" for clash in posterior.clashes),
    )


def _names_in_words(posterior: PosteriorData, places: Indices) -> str:
    names = [posterior.labels[int(j)] for j in np.asarray(places)]
    return ", ".join(names[:_MOST_NAMED]) + (
        f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    )


def coefficients(posterior: PosteriorData, level: float = 0.9) -> tuple[Coefficient, ...]:
    """A `Coefficient` for each coordinate; `level` is the probability between lower and upper."""
    mean, sd, laplace, (lower, upper) = posterior.mean, posterior.sd, posterior.laplace, posterior.interval(level).T
    draws = np.asarray(posterior.trace.draws).reshape(-1, len(mean))
    positive = (match_moments(draws, *posterior.stretched) > 0).mean(axis=0)
    share = np.zeros(len(mean))
    if posterior.prior is not None:
        share[: len(posterior.prior.share)] = posterior.prior.share
    columns = (mean, sd, lower, upper, laplace.mean, laplace.sd, posterior.ess, posterior.r_hat, positive, share)
    rows = [
        Coefficient(name, *row) for name, row in zip(posterior.labels, np.stack(columns, axis=1).tolist(), strict=True)
    ]
    if ratio_name(posterior):
        places = ratio_places(posterior)
        for j, (ratio, lower, upper) in zip(places, _ratio_quantiles(posterior, places, level).T.tolist(), strict=True):
            rows[j] = rows[j]._replace(ratio=ratio, ratio_lower=lower, ratio_upper=upper)
    return tuple(rows)


def coefficients_csv(rows: tuple[Coefficient, ...]) -> str:
    """Coefficients as CSV with the fields as header; a name that a spreadsheet would run as a formula is escaped.

    >>> coefficients_csv(()).strip()
    'name,mean,sd,lower,upper,mode,laplace_sd,ess,r_hat,positive,prior_share,ratio,ratio_lower,ratio_upper'
    """
    return csv_text(Coefficient._fields, rows, 10)


def short(value: float) -> str:
    """A number with three digits, without an exponent where possible.

    >>> short(1.6234), short(0.0123), short(1234.5)
    ('1.62', '0.0123', '1,230')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 1000 <= abs(rounded) < 1e9 else f"{rounded:g}"


def number(value: float) -> str:
    """A number with four digits.

    >>> number(0.00012345), number(1234567.0), number(-2.5)
    ('0.0001234', '1.235e+06', '-2.5')
    """
    return f"{value:.4g}"
