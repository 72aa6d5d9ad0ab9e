"""`svrhmc fit`: a file in; coefficients, a verdict and a report out."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from svrhmc.checkpoint import remove_checkpoint
from svrhmc.commands import written
from svrhmc.commands.asked import ASKED_BY_DEFAULT, Asked, formula_of, require_columns
from svrhmc.core import starting
from svrhmc.core.errors import CheckpointError, CheckpointInUseError, DataError, VerdictWarning, one_of
from svrhmc.core.progress import Progress, stage
from svrhmc.fitting.labels import Response, response_of
from svrhmc.fitting.regression import fit, posterior_of, regression, require_settings
from svrhmc.reporting import Coefficient, coefficients
from svrhmc.results.posterior import Posterior
from svrhmc.results.report import misfit, scale, verdict
from svrhmc.results.summary import entangled, number
from svrhmc.shell import interrupted, say
from svrhmc.tables.columns import Column, columns_of
from svrhmc.tables.csv import Reading
from svrhmc.tables.files import Read, read

_SHOWN = 60  # coefficients of the table on the screen
_EXAMPLE = "titanic.csv"
_SOURCE = (
    "who was saved from the Titanic: the British Board of Trade's inquiry, 1912, as counted by R. J. M. Dawson, "
    "Journal of Statistics Education 3(3), 1995"
)


def fit_command(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A table: .csv, .tsv, .txt (also .gz), .parquet, .libsvm, .npy or .npz, or a folder of Parquet files; "
            "else an example."
        ),
    ] = None,
    target: Annotated[str, typer.Option(help="The column to be explained.")] = "",
    formula: Annotated[str, typer.Option(help="Such as 'age + C(plan)'; all other columns if not set.")] = "",
    family: Annotated[
        str, typer.Option(help="bernoulli, poisson, gaussian, …; guessed from the target if not set.")
    ] = "",
    weights: Annotated[str, typer.Option(help="A column: how many observations a row stands for.")] = "",
    offset: Annotated[str, typer.Option(help="A column that is added to the predictor.")] = "",
    exposure: Annotated[str, typer.Option(help="A column: how long or how much a count was observed.")] = "",
    trials: Annotated[str, typer.Option(help="A column: the trials of a binomial target.")] = "",
    missing: Annotated[str, typer.Option(help="Rows with missing values: drop or refuse.")] = "refuse",
    out: Annotated[Path | None, typer.Option(help="Folder for the files; FILE-fit if not set.")] = None,
    draws: Annotated[int, typer.Option(help="Effective draws.", min=10)] = ASKED_BY_DEFAULT["draws"],
    tolerance: Annotated[float, typer.Option(help="Error allowed, in posterior sd.")] = ASKED_BY_DEFAULT["tolerance"],
    seed: Annotated[int, typer.Option(help="Fixes every draw.", min=0)] = 0,
    budget: Annotated[float | None, typer.Option(help="Seconds that sampling may take.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between columns; found if not set.")] = None,
    encoding: Annotated[str, typer.Option(help="Of a text, such as latin-1.")] = "utf-8",
    decimal: Annotated[str, typer.Option(help="The decimal sign of numbers.")] = ".",
    na: Annotated[list[str] | None, typer.Option(help="A word for a missing value; may be repeated.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="A column of categories with numbers for names.")] = None,
    progress: Annotated[bool, typer.Option("--progress", help="Show progress without a terminal, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Fit a regression to a table, and write a report.

    The target is explained by the other columns, or by those of --formula.
    Coefficients are in the units of the data, a verdict says how far they are
    computed correctly, and failures of the model to fit are named. The folder
    gets report.html, coefficients.csv, model.posterior (for svrhmc predict) and
    posterior.nc (for ArviZ).

    Started again after an interrupt, it goes on where it stopped. Without FILE
    it fits who was saved from the Titanic.

    [bold]Example[/bold]: svrhmc fit customers.csv --target churn
    """
    one_of("--missing", missing, ("refuse", "drop"))
    reading = Reading(delimiter, encoding, tuple(na or ()), decimal, tuple(text or ()))
    place = out if out is not None else Path(f"{_stem(Path(_EXAMPLE) if file is None else file)}-fit")
    asked = Asked(
        file, target, formula, family, weights, offset, exposure, trials,
        missing, place, draws, tolerance, seed, budget, reading,
    )  # fmt: skip
    show: Progress = True if progress else False if as_json or quiet else None
    if file is None:
        asked = replace(asked, target=target or "survived", weights=weights or "persons")
        with as_file(files("svrhmc").joinpath("data", _EXAMPLE)) as example:
            _fit(asked, example, show, as_json, quiet)
    else:
        _fit(asked, file, show, as_json, quiet)


def _fit(asked: Asked, file: Path, show: Progress, as_json: bool, quiet: bool) -> None:
    began = time.perf_counter()
    require_settings(fit, {**asked.sampling(), "checkpoint": asked.out / written.UNFINISHED})
    with stage(f"reading {file.name}", show):
        found = _folder(file, asked) if file.is_dir() else read(file, asked.reading)
    target = asked.target or found.response
    sparse = found.X is not None
    if not sparse:
        require_columns(found, file, asked, "" if "~" in asked.formula else target)
    formula, notes = ("", ()) if sparse else formula_of(found, asked, target)
    notes = notes if asked.file is not None else (_SOURCE, *notes)
    if sparse and not asked.family:
        guess = _labels(found, None)[1]
        notes = (f"the family is {guess.loss.name}, as {guess.guessed}",)
    with written.folder(asked.out):
        told: dict[str, Any] = {
            "source": str(asked.file or _EXAMPLE), "command": asked.command(),
            "python": "" if sparse else asked.python(formula), "notes": (*found.notes, *notes),
        }  # fmt: skip
        goes_on = f"Interrupted: what is done is kept in {asked.out}, and the same command goes on."
        starting.last_words(goes_on)
        try:
            posterior = _posterior(asked, found, file, formula, show)
            rows = coefficients(posterior)
            if not (as_json or quiet):
                _show(asked, found, posterior, rows, (*found.notes, *notes), time.perf_counter() - began)
            with stage("report", show):
                made = written.write_all(asked.out, posterior, rows, told)
        except KeyboardInterrupt:
            if (asked.out / written.UNFINISHED).exists():
                raise interrupted(goes_on) from None
            raise
        if not made.errors:
            remove_checkpoint(asked.out / written.UNFINISHED)
    seconds = time.perf_counter() - began
    if as_json:
        lines = (*found.notes, *notes, *made.notes, *made.errors)
        print(json.dumps(_object(asked, found, posterior, rows, made.files, lines, seconds)))
    elif not quiet:
        if "report" in made.files:
            Console().print(escape(f"Report: {made.files['report']}"), highlight=False, soft_wrap=True)
        for line in made.notes:
            say(escape(line))
    for line in made.errors:
        say(f"[bold red]error:[/bold red] {escape(line)}")
    if made.errors:
        raise typer.Exit(1)


def _posterior(asked: Asked, found: Read, file: Path, formula: str, show: Progress) -> Posterior:
    """The fit, from where an interrupted one of the same settings left it; complaints about the data name the file."""
    settings = {**asked.sampling(), "progress": show, "checkpoint": asked.out / written.UNFINISHED}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VerdictWarning)  # the verdict is printed
            return _fitted(asked, found, formula, settings)
    except CheckpointInUseError:
        raise
    except CheckpointError as error:
        where = asked.out / written.UNFINISHED
        raise CheckpointError(f"{error} Remove {where} to begin anew, or name another --out.") from error
    except DataError as error:
        raise DataError(f"{file}: {error}") from error


def _fitted(asked: Asked, found: Read, formula: str, settings: dict[str, Any]) -> Posterior:
    family = asked.family or None
    if found.X is not None:
        if asked.columns or asked.formula:
            raise DataError("sparse rows have no columns for a formula, weights, offset, exposure or trials.")
        column, response = _labels(found, family)
        classes = response.classes or None
        made = regression(found.X, response.coded(column), response.loss, names=found.names, classes=classes)
        return posterior_of(made, **settings)
    return fit(
        formula,
        found.table,
        family,
        weights=asked.weights or None,
        offset=asked.offset or None,
        exposure=asked.exposure or None,
        trials=asked.trials or None,
        missing=asked.missing,
        **settings,
    )


def _folder(folder: Path, asked: Asked) -> Read:
    """A folder of Parquet files, whose rows stay there, and are read in passes."""
    from svrhmc.data import from_parquet

    if not asked.target and "~" not in asked.formula:
        raise DataError(f"{folder} is a folder: say which column is to be explained, by --target.")
    if asked.trials:
        raise DataError("--trials is for a single file.")
    data = from_parquet(folder)
    sizes = data.source.sizes
    note = f"rows stay in {len(sizes):,} partitions of {folder}, and are read in passes"
    return Read(data, tuple(data.source.kinds), int(sizes.sum()), "", (note,))


def _labels(found: Read, family: str | None) -> tuple[Column, Response]:
    """The labels of sparse rows, and how they are coded."""
    column = columns_of({found.response: found.y}, [found.response])[found.response]
    return column, response_of(found.response, column, family)


def _show(
    asked: Asked, found: Read, posterior: Posterior, rows: tuple[Coefficient, ...], notes: Any, seconds: float
) -> None:
    console, design = Console(), posterior.design
    about = f"{found.n:,} rows" if design is None or not design.dropped else f"{found.n - design.dropped:,} rows"
    family = posterior.family + (f" ({design.guessed})" if design is not None and design.guessed else "")
    lines = [f"{asked.file or _EXAMPLE}: {about}, {family}."]
    if design is not None and design.dropped:
        lines.append(f"{design.dropped:,} rows with missing values were left out.")
    lines += [f"Note: {note}." for note in notes]
    for line in lines:
        console.print(escape(line), highlight=False, soft_wrap=True)
    console.print(f"\nWhat one more of a column adds to {escape(scale(posterior))}:", highlight=False, soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("")
    for name in ("mean", "sd", "5%", "95%", "P(> 0)"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows[:_SHOWN]:
        shown = (*(number(value) for value in (row.mean, row.sd, row.lower, row.upper)), f"{row.positive:.3f}")
        table.add_row(escape(row.name), *shown)
    console.print(table)
    last = [f"… and {len(rows) - _SHOWN} more, in {written.TABLE}."] if len(rows) > _SHOWN else []
    if design is not None and design.baselines:
        last.append(f"Compared with {', '.join(design.baselines)}.")
    last += [said] if (said := entangled(posterior)) else []
    compiled = posterior.compile_seconds
    once = f", {compiled:.1f} s preparing compiled code (slow only the first time)" if compiled > 1 else ""
    last += [
        verdict(posterior),
        *filter(None, [misfit(posterior)]),
        f"{seconds:.1f} s in all: {posterior.seconds:.1f} s sampling{once}.",
    ]
    for line in last:
        console.print(escape(line), highlight=False, soft_wrap=True)


def _object(
    asked: Asked,
    found: Read,
    posterior: Posterior,
    rows: tuple[Coefficient, ...],
    made: dict[str, str],
    notes: Any,
    seconds: float,
) -> dict[str, Any]:
    design = posterior.design
    return {
        "file": str(asked.file or _EXAMPLE),
        "rows": found.n,
        "dropped": 0 if design is None else design.dropped,
        "formula": "" if design is None else design.formula,
        "family": posterior.family,
        "guessed": "" if design is None else design.guessed,
        "classes": [] if design is None else list(design.classes),
        "baselines": [] if design is None else list(design.baselines),
        "verdict": posterior.certificate.verdict,
        "sentence": verdict(posterior),
        "misfits": list(posterior.misfits),
        "checked_rows": posterior.checked_rows,
        "tolerance": posterior.certificate.tolerance,
        "complete": posterior.complete,
        "method": posterior.method,
        "seconds": round(seconds, 3),
        "compile_seconds": round(posterior.compile_seconds, 3),
        "coefficients": [row._asdict() for row in rows],
        "files": made,
        "notes": list(notes),
    }


def _stem(file: Path) -> str:
    """The name of a file without its endings, in the folder that the command runs in."""
    name = file.name
    for _ in range(2):
        name = name.removesuffix(Path(name).suffix) if Path(name).suffix.lower() in _ENDINGS else name
    return name


_ENDINGS = (
    ".gz", ".csv", ".tsv", ".txt", ".tab", ".parquet", ".pq", ".npy", ".npz", ".libsvm", ".svm", ".svmlight",
)  # fmt: skip
