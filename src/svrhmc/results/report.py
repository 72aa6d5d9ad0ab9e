"""The report: a posterior as one page of HTML, self-contained, without scripts, for light and dark screens, large and
small; its numbers, and the same in plain words.

Every text that comes from the data (names, levels, formulas, commands) goes through `escape`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path

import numpy as np

from svrhmc.core.arrays import Array, ratio
from svrhmc.core.errors import requirement
from svrhmc.core.storage import write_text
from svrhmc.core.version import VERSION
from svrhmc.results.base import PosteriorData
from svrhmc.results.checks import compare_with_rows
from svrhmc.results.effects import SLOPE, Effects, effects_of, fitted_rows
from svrhmc.results.figures import chains_figure, curve_figure, fit_figure, forest_figure, marginal_figure
from svrhmc.results.findings import (
    Finding,
    clear_count_sentence,
    find_bends,
    findings,
    signed_names,
    slope_coefficients,
)
from svrhmc.results.groups import GroupLevels, levels_of, variances_of
from svrhmc.results.plots import column_changes
from svrhmc.results.smooths import curves_of
from svrhmc.results.summary import (
    Coefficient,
    chance_in_words,
    coefficients,
    entangled_sentence,
    factor_notes,
    fill_in_words,
    loss_of,
    no_misfit_sentence,
    number,
    predictor_in_words,
    ratio_name,
    response_name,
    scale_notes,
    smooth_notes,
)
from svrhmc.sampling.certificate import SOUND

_LEVEL = 0.9
_MOST_IN_FOREST, _MOST_IN_TABLE, _MOST_MARGINALS, _MOST_TRACES = (
    30,
    500,
    12,
    4,
)  # how many coefficients a report shows, in each of its parts
_FOLDED_ROWS = 12  # rows from which on a table is folded
_LONG_CELL = 15  # letters of a cell and its label, beyond which they do not fit into half a small screen
_TITLES_OF_TERMS = {"Groups": "groups", "Smooths": "smooths"}
_CURVE_POINTS = 200  # of the curve of a smooth
_MOST_LEVELS = 30  # of a category up to which its effects are found


def report(
    posterior: PosteriorData,
    path: str | Path,
    *,
    title: str = "",
    source: str = "",
    command: str = "",
    python: str = "",
    notes: Sequence[str] = (),
) -> Path:
    """Write a report on a posterior: one HTML file, whole or not at all.

    path: of the file, which ends in .html or .htm. title: of the page; "": the question that it answers.
    source: where the data come from. command, python: what makes the same posterior again. notes: on how the data
    were read. The part on how well the model fits needs the rows that were fitted, which a posterior from a file does
    not have.

    >>> import tempfile
    >>> from svrhmc import fit
    >>> posterior = fit("y ~ dose", {"y": [1.0, 2.1, 2.9, 4.2], "dose": [1.0, 2.0, 3.0, 4.0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report(posterior, f"{folder}/report.html").read_text()[:15]
    '<!DOCTYPE html>'
    """
    if not hasattr(posterior, "certificate"):
        raise requirement("posterior", "one that `svrhmc.fit` returns", repr(posterior)[:60])
    if not posterior.names:
        raise requirement("the posterior", "one of `fit`, whose coefficients have names", "one without names")
    file = _require_html_path(path)
    write_text(file, page(posterior, source, command, python, notes, title))
    return file


def _require_html_path(path: str | Path) -> Path:
    """Refuse a name of another kind of file, and a folder that is not there, before the page is made."""
    file = Path(path)
    if file.suffix and file.suffix.lower() not in (".html", ".htm"):
        why = "the report is a page of HTML, which a browser can print to PDF"
        raise requirement("path", "the name of a file that ends in .html or .htm", repr(str(path)), why)
    if file.is_dir():
        raise requirement("path", "the name of a file", repr(str(path)), "it is a folder")
    if not file.absolute().parent.is_dir():
        raise requirement("path", "in a folder that exists", repr(str(path)), f"there is no folder {file.parent}")
    return file


# In words


def verdict_in_words(posterior: PosteriorData) -> str:
    """Whether the numbers are those of the model's posterior, in one sentence; `misfit` is about the model."""
    certificate = posterior.certificate
    chance = max(float(ratio(error, posterior.sd).max()) for error in posterior.errors)
    if certificate.verdict == "exact":
        return (
            "The numbers are computed correctly: they are those of the posterior, and chance alone leaves "
            f"{chance_in_words(posterior)}."
            if chance > 0
            else "The numbers are computed correctly: means and standard deviations are known in closed form."
        )
    if certificate.verdict == "certified":
        return (
            "The numbers are computed correctly: bias and chance together put no mean and no standard deviation off by "
            f"more than {certificate.tolerance:g} posterior sd."
        )
    if certificate.verdict == "local":
        return (
            "The numbers are computed correctly as far as the modes of the posterior are known: bias and chance put "
            f"them off by little around {certificate.modes}, but nothing shows that there is no other."
        )
    if certificate.verdict == "refuted":
        return (
            f"Do not use the numbers: some are off by more than the tolerance of {certificate.tolerance:g} posterior "
            "sd; allow more time, or a larger tolerance."
        )
    if certificate.verdict == "unjudged":
        return "It is not known whether the numbers are computed correctly, as no verdict was asked for."
    return f"It is open whether the numbers are computed correctly: {certificate.because()}."


def misfit_in_words(posterior: PosteriorData) -> str:
    """Whether the model fits the rows, in one sentence; "" where that was not checked."""
    if not posterior.checked_rows:
        return ""
    if posterior.misfits:
        return f"The model does not fit the data. {' '.join(posterior.misfits)}"
    sentence = no_misfit_sentence(posterior.checked_rows)
    return sentence[:1].upper() + sentence[1:]


# The page


def page(
    posterior: PosteriorData,
    source: str = "",
    command: str = "",
    python: str = "",
    notes: Sequence[str] = (),
    title: str = "",
) -> str:
    """The text of the page."""
    rows = coefficients(posterior, _LEVEL)
    question = title or f"What is associated with {response_name(posterior)}?"
    style = files("svrhmc.results").joinpath("style.css").read_text("utf-8")
    own = rows[: len(rows) - posterior.group_scales]
    effects = _average_effects(posterior)
    bends = {} if effects is None else find_bends(effects, posterior)
    parts: tuple[Callable[[], str], ...] = (
        lambda: "" if effects is None else _effect_section(posterior, effects, bends),
        lambda: _coefficient_section(posterior, own),
        lambda: _group_section(posterior, rows[len(rows) - posterior.group_scales :]),
        lambda: _fit_section(posterior),
        lambda: _computation_section(posterior, rows),
        lambda: _prior_section(posterior, rows),
        lambda: _data_section(posterior, source, notes),
        lambda: _repeat_section(posterior, command, python),
    )
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in _sentences(posterior, own, effects, bends))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(question)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(question)}</h1>\n"
        f'<p class="lead">{escape(clear_count_sentence(own, posterior))}</p>\n'
        + (f'<ul class="lead">{sentences}</ul>\n<p class="note">{_READING}</p>\n' if sentences else "")
        + _verdict_cards(posterior)
        + "\n".join(filter(None, (part() for part in parts)))
        + f'\n<p class="note">Written by svrhmc {escape(VERSION)}.</p>\n</main>\n</body>\n</html>\n'
    )


def _sentences(
    posterior: PosteriorData, rows: Sequence[Coefficient], effects: Effects | None, bends: Mapping[str, Finding]
) -> list[str]:
    loss = loss_of(posterior)
    multiplied = "" if loss is None else fill_in_words(posterior, loss.multiplied)
    found = findings(rows, posterior, effects, multiplied, predictor_in_words(posterior), bends)
    return [sentence[:1].upper() + sentence[1:] for sentence in found]


_READING = (
    "Ranges in brackets are 90% intervals, all else in the model being equal. These are associations in the data, and "
    "not effects of a change, unless the data come from an experiment."
)


def _verdict_cards(posterior: PosteriorData) -> str:
    """On the computation, and beside it on the model."""
    cards = [("The computation", verdict_in_words(posterior), posterior.certificate.verdict in SOUND)]
    if sentence := misfit_in_words(posterior):
        cards.append(("The model", sentence, not posterior.misfits))
    inside = "".join(
        f'<div class="verdict{"" if sound else " open"}"><h2>{title}</h2><p>{escape(sentence)}</p></div>'
        for title, sentence, sound in cards
    )
    return f'<div class="verdicts">{inside}</div>\n'


def _data_section(posterior: PosteriorData, source: str, notes: Sequence[str]) -> str:
    design, items = posterior.design, list[tuple[str, str]]()
    if source:
        items.append(("File", source))
    target = posterior._target
    if target is not None:
        weights = getattr(target, "weights", None)
        stands = "" if weights is None else f", which stand for {weights.sum():,.0f} observations"
        items.append(("Rows", f"{target.n:,}{stands}"))
        if target.left_out:
            items.append(("Left out", f"{target.left_out:,} rows of weight 0"))
    if design is not None:
        if design.dropped:
            items.append(("Left out", f"{design.dropped:,} rows with missing values"))
        items.append(("Formula", design.formula))
        if design.baselines:
            items.append(("Baselines", ", ".join(design.baselines) + ": other levels are compared with these"))
        if design.classes:
            event = f"; what is modelled is {design.classes[-1]!r}" if len(design.classes) == 2 else ""
            items.append(("Classes", ", ".join(design.classes) + event))
        for word, name in (("Offset", design.offset), ("Exposure", design.exposure), ("Trials", design.trials)):
            if name:
                items.append((word, name))
    why = f" ({design.guessed})" if design is not None and design.guessed else ""
    items.append(("Family", f"{posterior.family}{why}"))
    if posterior.fitted_at:
        items.append(("Fitted", posterior.fitted_at.replace("T", " ").replace("+00:00", " UTC")))
    items += [("Note", note) for note in (*(() if design is None else design.notes), *notes)]
    return _section("The data and the model", _definition_list(items))


def _coefficient_section(posterior: PosteriorData, rows: Sequence[Coefficient]) -> str:
    slopes = slope_coefficients(rows, posterior)
    predictor, inside = predictor_in_words(posterior), list[str]()
    if slopes:
        shown = sorted(slopes, key=lambda row: -row.distance)[:_MOST_IN_FOREST]
        shown = [row for row in slopes if row in shown]
        places = [posterior.names.index(row.name) for row in shown]
        steps, change = column_changes(posterior, places, np.array([row.upper - row.lower for row in shown]))
        drawn = [_scaled(row, float(step)) for row, step in zip(shown, steps, strict=True)]
        unit = change or "for a one-unit increase in the column"
        figure = forest_figure(_group_by_term(posterior, drawn), "change, with its 90% interval", "Coefficients")
        few = (
            f" The {_MOST_IN_FOREST} that are furthest from 0 of {len(slopes)}."
            if len(slopes) > _MOST_IN_FOREST
            else ""
        )
        inside.append(
            f"<p>A coefficient is what a one-unit increase in its column adds to {escape(predictor)}, all else being "
            "equal.</p>"
            f"<figure>{figure}<figcaption>Mean and 90% interval of the change of {escape(predictor)}, {unit}.{few}"
            "</figcaption></figure>"
        )
    ratio, signed = ratio_name(posterior), signed_names(posterior)
    head = ("", "mean", "sd", "5%", "95%", *([f"{ratio} (90%)"] if ratio else []), "P(> 0)", "mode", "ess", "R-hat")
    body = [
        (row.name, *(number(v) for v in (row.mean, row.sd, row.lower, row.upper)),
         *([row.ratio_in_words()] if ratio else []), _probability_in_words(row.positive) if row.name in signed else "",
         number(row.mode), f"{row.ess:,.0f}", f"{row.r_hat:.3f}")
        for row in rows[:_MOST_IN_TABLE]
    ]  # fmt: skip
    inside.append(_table("Coefficients in the units of the data", head, body, len(rows)))
    draws = np.asarray(posterior.trace.draws)
    names = posterior.names
    chosen = [names.index(row.name) for row in sorted(rows, key=lambda row: -row.distance)[:_MOST_MARGINALS]]
    small = "".join(
        _small_figure(
            names[j],
            marginal_figure(names[j], draws[..., j], float(posterior.laplace.mean[j]), float(posterior.laplace.sd[j])),
        )
        for j in sorted(chosen)
    )
    inside.append(
        f'<h3>Marginal distributions</h3><div class="grid">{small}</div><p class="note">Bars are the draws; the line '
        "is Laplace’s approximation. Where they differ, the posterior is not normal.</p>"
    )
    return _section("Coefficients", "".join(inside))


def _group_section(posterior: PosteriorData, scales: Sequence[Coefficient]) -> str:
    """Standard deviations and correlations of effects, what they are of the variance, and the effects in order."""
    kept = posterior.group_effects
    if kept is None:
        return ""
    inside = [
        f"<p>Some effects vary by group ({escape(kept.counted())}). Their standard deviation says how much, "
        f"on the scale of {escape(predictor_in_words(posterior))}; each group's own effect is estimated from its rows "
        "and drawn towards the others, the more so the fewer rows it has.</p>"
    ] if kept.groups else []  # fmt: skip
    inside += _curve_figures(posterior)
    head = ("", "mean", "sd", "5%", "95%", "ess", "R-hat")
    body = [
        (row.name, *(number(v) for v in (row.mean, row.sd, row.lower, row.upper)), f"{row.ess:,.0f}",
         f"{row.r_hat:.3f}")
        for row in scales
    ]  # fmt: skip
    inside.append(_table("Standard deviations and correlations of the effects", head, body, len(body)))
    inside += [
        f"<p>{escape(note)}</p>"
        for note in (
            *smooth_notes(posterior),
            *factor_notes(posterior),
            *scale_notes(posterior),
            *_wider_prior_notes(posterior),
        )
    ]
    if posterior.form is not None and kept.groups:
        inside.append(_variance_shares(posterior))
    for name in kept.factors:
        levels = levels_of(posterior, name, _LEVEL)
        for column in dict.fromkeys(levels.columns):
            inside.append(_caterpillar(levels, column))
    return _section(
        " and ".join(word for word, some in _TITLES_OF_TERMS.items() if getattr(kept, some)), "".join(inside)
    )


def _curve_figures(posterior: PosteriorData) -> list[str]:
    """Each smooth with its band."""
    kept = posterior.group_effects
    if kept is None or not kept.smooths or posterior.design is None:
        return []
    figures = [
        curve_figure(curve.label, curve.argument, curve.x, curve.mean, curve.interval)
        for curve in curves_of(posterior, None, _LEVEL, _CURVE_POINTS)
    ]
    drawn = "".join(f"<figure>{figure}</figure>" for figure in figures)
    return [
        "<p>Smooths are curves whose bending is learnt from the data. Shown is what each adds to "
        f"{escape(predictor_in_words(posterior))}, on average 0 over the rows, with a band of {_LEVEL:.0%} at each "
        "place, which allows for what is not known of the smoothness; beyond the rows a curve goes on as a straight "
        "line.</p>"
        f"{drawn}"
    ]


def _wider_prior_notes(posterior: PosteriorData) -> tuple[str, ...]:
    sentences: tuple[str, ...] = () if posterior.prior is None else posterior.prior.wider
    return sentences


def _variance_shares(posterior: PosteriorData) -> str:
    if posterior.model.loss.link_variance(np.ones(1), np.zeros((1, posterior.model.loss.shared))) is None:
        return ""
    shares = variances_of(posterior, _LEVEL, 400, None)
    body = [
        (name, *(number(float(v)) for v in (mean, sd, *ends)))
        for name, mean, sd, ends in zip(shares.names, shares.mean, shares.sd, shares.interval, strict=True)
    ]
    table = _table("Shares of the variance", ("", "mean", "sd", "5%", "95%"), body, len(body))
    return f'{table}<p class="note">{escape(" ".join(shares.notes))}</p>'


def _caterpillar(levels: GroupLevels, column: str) -> str:
    """The levels of one factor in the order of their effects, the highest first."""
    chosen, total = levels.ordered(column)[::-1], levels.columns.count(column)
    drawn = [_interval_row(levels.levels[j], float(levels.mean[j]), levels.interval[j]) for j in chosen]
    term = f"{column} | {levels.factor}"
    figure = forest_figure([("", drawn)], "effect, with its 90% interval", f"Effects {term}")
    few = f" The {len(chosen) // 2} highest and lowest of {total:,}." if len(chosen) < total else ""
    return (
        f"<h3>{escape(term)}</h3><figure>{figure}<figcaption>Mean and 90% interval of the effect of each level, in "
        f"their order.{few}</figcaption></figure>"
    )


def _interval_row(name: str, mean: float, ends: Array) -> Coefficient:
    """A mean and its interval, as a forest draws them."""
    blank = Coefficient(name, *np.zeros(len(Coefficient._fields) - 1).tolist())
    return blank._replace(mean=mean, lower=float(ends[0]), upper=float(ends[1]))


def _group_by_term(posterior: PosteriorData, rows: Sequence[Coefficient]) -> list[tuple[str, list[Coefficient]]]:
    """Rows that stand beside each other and come from one term, under its name where there are several."""
    design = posterior.design
    terms = {} if design is None else dict(zip(design.names, (term for term, _ in design.parts), strict=True))
    groups = []
    for _, some in groupby(rows, lambda row: terms.get(row.name.rpartition(": ")[2], row.name)):
        shown = list(some)
        groups.append((terms.get(shown[0].name.rpartition(": ")[2], "") if len(shown) > 1 else "", shown))
    return groups


def _small_figure(name: str, figure: str) -> str:
    return f"<figure><figcaption>{escape(name)}</figcaption>{figure}</figure>"


def _scaled(row: Coefficient, step: float) -> Coefficient:
    """The change for so much more of its column."""
    return row._replace(**{field: getattr(row, field) * step for field in _SCALED})


_SCALED = ("mean", "sd", "lower", "upper", "mode", "laplace_sd")


def _average_effects(posterior: PosteriorData) -> Effects | None:
    """Those of columns that have few coefficients; None without a table, which a file does not keep."""
    design = posterior.design
    if design is None or not posterior.rows:
        return None
    few = [term for term in design.made_of if len(term.names) <= _MOST_LEVELS]
    variables = tuple(dict.fromkeys(name for term in few for name in term.variables))
    return effects_of(posterior, _LEVEL, 500, 200, 0, variables, None) if variables else None


def _effect_section(posterior: PosteriorData, effects: Effects, bends: Mapping[str, Finding]) -> str:
    """bends: of columns along which the mean goes up and down, whose average slope is marked."""
    bent = "".join(f"<p>{escape(bend.sentence)} Its average slope says little.</p>" for bend in bends.values())
    names = [
        f"{name} ({bends[term].course})" if term in bends else name
        for name, term in zip(effects.names, effects.terms, strict=True)
    ]
    effects = replace(effects, names=tuple(names))
    body = [
        (name, number(float(m)), number(float(s)), number(float(e[0])), number(float(e[1])))
        for name, m, s, e in zip(effects.names, effects.mean, effects.sd, effects.interval, strict=True)
    ][:_MOST_IN_TABLE]
    table = _table(f"Average effects on {effects.on}", ("", "mean", "sd", "5%", "95%"), body, len(effects.names))
    figure = forest_figure(_effects_by_column(posterior, effects), "change, with its 90% interval", "Average effects")
    cut = f" The first {_MOST_IN_FOREST} of {len(effects.names)}." if len(effects.names) > _MOST_IN_FOREST else ""
    return _section(
        "Average effects",
        f"<p>By how much {escape(effects.on)} changes on average.</p>{bent}<figure>{figure}<figcaption>For a number: "
        f"an increase of one standard deviation; for a category: against its baseline.{cut}</figcaption></figure>"
        f"{table}"
        f'<p class="note">In the table, a number increases by one unit. {escape(effects.said)}</p>',
    )


def _effects_by_column(posterior: PosteriorData, effects: Effects) -> list[tuple[str, list[Coefficient]]]:
    """The effects as a forest has them, by the columns that are changed."""
    columns, rows = fitted_rows(posterior, None).columns, list[tuple[str, Coefficient]]()
    for name, term, contrast, mean, ends in zip(
        effects.names, effects.terms, effects.contrasts, effects.mean, effects.interval, strict=True
    ):
        spread = float(np.std(columns[term].values.astype(np.float64))) if contrast == SLOPE else 1.0
        rows.append((term, _interval_row(name, float(mean) * spread, ends * spread)))
    groups = [(term, [row for _, row in some]) for term, some in groupby(rows[:_MOST_IN_FOREST], lambda pair: pair[0])]
    return [(term if len(some) > 1 else "", some) for term, some in groups]


def _fit_section(posterior: PosteriorData) -> str:
    comparison = compare_with_rows(posterior)
    if comparison is None:
        return ""
    figure, caption = fit_figure(comparison)
    return _section(
        "How well the model fits",
        f"<p>{escape(comparison.said)}</p><figure>{figure}<figcaption>{escape(caption)}</figcaption></figure>",
    )


def _computation_section(posterior: PosteriorData, rows: Sequence[Coefficient]) -> str:
    chains, draws, _ = posterior.trace.draws.shape
    items = [
        ("Verdict", f"{posterior.certificate.verdict} (tolerance {posterior.certificate.tolerance:g} posterior sd)"),
        ("Evidence", posterior.certificate.because() + "."),
        ("Chance", chance_in_words(posterior)),
        ("Draws", f"{chains} chains of {draws:,}; at least {posterior.ess.min():,.0f} effective ones"),
        ("Agreement", f"R-hat of at most {posterior.r_hat.max():.3f} (1 where chains agree)"),
        ("Sampler", f"{posterior.method}: {posterior.why.rstrip('.')}."),
        ("Cost", f"{posterior.seconds:.3g} s and {posterior.passes:.4g} passes over the data"),
    ]
    if not posterior.complete:
        items.append(("Stopped", "a budget ended the run before there were as many draws as asked for"))
    every: Array = np.asarray(posterior.trace.draws)
    worst = sorted(range(len(rows)), key=lambda j: rows[j].ess)[:_MOST_TRACES]
    small = "".join(_small_figure(rows[j].name, chains_figure(rows[j].name, every[..., j])) for j in sorted(worst))
    return _section(
        "Are the numbers computed correctly?",
        f"<p>{escape(verdict_in_words(posterior))}</p>{_definition_list(items)}<h3>Chains</h3>"
        f'<div class="grid">{small}</div>'
        '<p class="note">The coefficients with the fewest effective draws. Lines of different colours are chains with '
        "starts of their own; where they overlap, they agree.</p>",
    )


def _prior_section(posterior: PosteriorData, rows: Sequence[Coefficient]) -> str:
    if posterior.prior is None:
        return ""
    places = posterior.prior.dominated()
    strongest = sorted(range(len(posterior.prior.share)), key=lambda j: -rows[j].prior_share)[:8]
    if len(places):
        names = ", ".join(rows[int(j)].name for j in places[:12]) + (", …" if len(places) > 12 else "")
        sentence = f"For {names}, the prior says more than the data: another prior would give other numbers."
    else:
        sentence = "For every coefficient, the data say more than the prior."
    sentence = " ".join(filter(None, (sentence, entangled_sentence(posterior), *_wider_prior_notes(posterior))))
    body = [(rows[j].name, f"{rows[j].prior_share:.2%}", f"{float(posterior.prior.shift[j]):+.2g}") for j in strongest]
    head = ("", "prior’s share", "shift, in sd")
    table = _table(
        "Where the prior counts most: its share of what is known, and how far it moved the mean", head, body, len(body)
    )
    stated = posterior.prior.said[:1].upper() + posterior.prior.said[1:]
    return _section("The prior", f"<p>{escape(stated)}.</p><p>{escape(sentence)}</p>{table}")


def _repeat_section(posterior: PosteriorData, command: str, python: str) -> str:
    design, seed = posterior.design, posterior.trace.seed
    formulas = ("…",) if design is None else design.formulas
    formula = formulas[0] if len(formulas) == 1 else list(formulas)
    given = [f"{word}={name!r}" for word in _SPECIAL_COLUMNS if design is not None and (name := getattr(design, word))]
    if design is not None and design.dropped:
        given.append("missing='drop'")
    settings = ", ".join([*given, f"seed={seed}", f"tolerance={posterior.certificate.tolerance:g}"])
    python = python or (
        f"import svrhmc\n\nposterior = svrhmc.fit({formula!r}, table, {posterior.family!r}, {settings})\n"
        "posterior.report('report.html')"
    )
    shell = f"<h3>In the shell</h3><pre><code>{escape(command)}</code></pre>" if command else ""
    kept = "<p>model.posterior beside this file is the whole posterior: svrhmc.Posterior.load reads it.</p>"
    return _section(
        "To repeat it",
        f"{shell}<h3>In Python</h3><pre><code>{escape(python)}</code></pre>"
        f"<p>The seed fixes every draw, on any machine.</p>{kept if command else ''}",
    )


_SPECIAL_COLUMNS = ("offset", "exposure", "trials")  # of a design that are named to `fit`


def _section(title: str, inside: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{inside}\n</section>"


def _definition_list(items: Sequence[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(word)}</dt><dd>{escape(what)}</dd>" for word, what in items) + "</dl>"


def _table(caption: str, head: Sequence[str], body: Sequence[Sequence[str]], of: int) -> str:
    """Cells are escaped. A long one is folded; on a small screen each row is a block of its own, whole."""
    few = f" (the first {len(body)} of {of})" if of > len(body) else ""
    top = "".join(f'<th scope="col">{escape(word) or "<span>name</span>"}</th>' for word in head)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(_labelled_cell(word, cell) for word, cell in zip(head[1:], row[1:], strict=True))
        + "</tr>"
        for row in body
    )
    name = f"{escape(caption)}{few}"
    table = f"<table><caption>{name}</caption><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table>"
    table = f'<div class="wide" role="region" aria-label="{escape(caption)}" tabindex="0">{table}</div>'
    return (
        f"<details><summary>{name}: {len(body)} rows</summary>{table}</details>" if len(body) > _FOLDED_ROWS else table
    )


def _labelled_cell(label: str, cell: str) -> str:
    """A cell with the label that stands beside it on a small screen, where both need room: those that are long get a
    line of their own.
    """
    long = ' class="long"' if len(label) + len(cell) > _LONG_CELL else ""
    return f'<td{long} data-label="{escape(label)}">{escape(cell)}</td>'


def _probability_in_words(share: float) -> str:
    """Draws do not tell 0 from very little.

    >>> _probability_in_words(1.0), _probability_in_words(0.5), _probability_in_words(0.0)
    ('> 0.99', '0.50', '< 0.01')
    """
    if share > 0.99:
        return "> 0.99"
    return "< 0.01" if share < 0.01 else f"{share:.2f}"
