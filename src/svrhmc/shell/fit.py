"""`svrhmc fit`: a file in; coefficients, a verdict and a report out."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Sequence
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
from svrhmc.core import processes
from svrhmc.core.errors import CheckpointError, CheckpointInUseError, DataError, VerdictWarning, one_of, requirement
from svrhmc.core.progress import Progress, stage
from svrhmc.core.summaries import rows_to_print
from svrhmc.families.base import Loss
from svrhmc.fitting.labels import Response, read_response
from svrhmc.fitting.preview import design as design_of
from svrhmc.fitting.regression import build_regression, fit, require_settings, sample_regression
from svrhmc.reporting import Coefficient, coefficients
from svrhmc.results.findings import signed_names
from svrhmc.results.loo import Loo
from svrhmc.results.posterior import Posterior
from svrhmc.results.report import misfit_in_words, verdict_in_words
from svrhmc.results.summary import (
    entangled_sentence,
    factor_notes,
    number,
    predictor_in_words,
    ratio_name,
    scale_notes,
    unit_notes,
)
from svrhmc.sampling.effects import GroupEffects
from svrhmc.shell import outputs
from svrhmc.shell.arguments import DEFAULTS, FitArguments, columns_used, formula_of, require_columns, without_unusable
from svrhmc.shell.errors import interrupted, say, show
from svrhmc.tables.columns import Column, columns_of
from svrhmc.tables.csv import Reading
from svrhmc.tables.files import FileTable, read
from svrhmc.tables.partitions import TableInPartitions

_QUICK = 1 << 26  # rows times draws that are always cross-validated
_SECONDS = 5.0  # that a cross-validation of more may take on a core
_OF_ROW, _OF_FAMILY = 35e-9, 4.0  # seconds of a row under a draw, and of NumPy for each of the family's compiled ones
_SHOWN = 60  # coefficients of the table on the screen
_NAME = 24  # signs of a name that a table has room for
_UNBOUNDED = 1000  # signs that a table might take, whatever the screen has
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
    formula: Annotated[
        list[str] | None,
        typer.Option(
            help="Such as 'age * plan + s(income) + (1 | region)'; else all other columns. Again for other "
            "parameters: 'sigma ~ age'."
        ),
    ] = None,
    family: Annotated[
        str,
        typer.Option(
            help=(
                "bernoulli (yes or no), poisson, negative-binomial (counts), gaussian, student-t (numbers), gamma, "
                "log-normal (amounts), weibull (times), ordinal, …; guessed from the target if not set."
            )
        ),
    ] = "",
    weights: Annotated[str, typer.Option(help="A column: how many observations a row stands for.")] = "",
    offset: Annotated[str, typer.Option(help="A column that is added to the linear predictor.")] = "",
    exposure: Annotated[
        str, typer.Option(help="A column: for how long, or among how many, each row was counted.")
    ] = "",
    trials: Annotated[str, typer.Option(help="A column: of how many trials the target counts the successes.")] = "",
    levels: Annotated[
        str,
        typer.Option(help="An ordinal target's values, the lowest first: 'bad, fair, good'.", show_default=False),
    ] = "",
    missing: Annotated[str, typer.Option(help="Rows with missing values: drop or refuse.")] = "refuse",
    out: Annotated[Path | None, typer.Option(help="Folder for the files; FILE-fit if not set.")] = None,
    draws: Annotated[int, typer.Option(help="How many independent draws the draws are worth.", min=10)] = DEFAULTS[
        "draws"
    ],
    tolerance: Annotated[float, typer.Option(help="Error allowed in a mean or sd, in posterior sds.")] = DEFAULTS[
        "tolerance"
    ],
    seed: Annotated[int, typer.Option(help="Fixes every draw.", min=0)] = 0,
    budget: Annotated[float | None, typer.Option(help="Seconds that sampling may take.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="The sign between columns; found if not set.")] = None,
    encoding: Annotated[str, typer.Option(help="Of a text file, such as latin-1.")] = "utf-8",
    decimal: Annotated[str, typer.Option(help="The decimal sign of numbers.")] = ".",
    thousands: Annotated[str, typer.Option(help="The sign between thousands, such as ','.", show_default=False)] = "",
    na: Annotated[list[str] | None, typer.Option(help="A word for a missing value; may be repeated.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="A column of categories with numbers for names.")] = None,
    loo: Annotated[
        bool | None,
        typer.Option(
            "--loo/--no-loo",
            help="Cross-validate, for svrhmc compare; if not set, where it takes seconds.",
            show_default=False,
        ),
    ] = None,
    design: Annotated[
        bool,
        typer.Option("--design", help="Print columns, priors and what these expect of the target, and fit nothing."),
    ] = False,
    progress: Annotated[bool, typer.Option("--progress", help="Show progress without a terminal, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Fit a regression to a table, and write a report.

    The target is explained by the other columns, or by those of --formula.
    Coefficients are in the units of the data. A verdict says whether they are
    computed correctly, and another sentence whether the model fits. The folder
    gets report.html, coefficients.csv, model.posterior (for svrhmc predict),
    model.loo (for svrhmc compare) and posterior.nc (for ArviZ).

    If it is interrupted, start it again and it continues where it stopped.
    Without a file it fits who was saved from the Titanic.

    [bold]Example[/bold]: svrhmc fit customers.csv --target churn
    """
    one_of("--missing", missing, ("refuse", "drop"))
    reading = Reading(delimiter, encoding, tuple(na or ()), decimal, tuple(text or ()), thousands=thousands)
    folder = out if out is not None else Path(f"{_stem(Path(_EXAMPLE) if file is None else file)}-fit")
    arguments = FitArguments(
        file, target, *_formulas(formula or []), family, weights, offset, exposure, trials,
        _levels(levels, family), missing, folder, draws, tolerance, seed, budget, reading,
    )  # fmt: skip
    shown: Progress = True if progress else False if as_json or quiet else None
    if file is None:
        arguments = replace(arguments, target=target or "survived", weights=weights or "persons")
        with as_file(files("svrhmc").joinpath("data", _EXAMPLE)) as example:
            _fit(arguments, example, loo, shown, as_json, quiet, design)
    else:
        _fit(arguments, file, loo, shown, as_json, quiet, design)


def _levels(given: str, family: str) -> tuple[str, ...]:
    """The classes of an ordinal target, in their order."""
    levels = tuple(word for word in map(str.strip, given.split(",")) if word)
    if levels and family not in ("", "ordinal"):
        raise requirement("--levels", "given with --family ordinal, or without a family", f"--family {family}")
    return levels


def _formulas(given: list[str]) -> tuple[str, tuple[str, ...]]:
    """That of the target, and those of other parameters, which say what they are of."""
    first, *further = given or [""]
    if odd := [one for one in further if "~" not in one]:
        raise requirement("--formula", "'parameter ~ terms' where it is given again", repr(odd[0]))
    return first, tuple(further)


def _fit(
    arguments: FitArguments,
    file: Path,
    loo: bool | None,
    progress: Progress,
    as_json: bool,
    quiet: bool,
    design: bool = False,
) -> None:
    began = processes.began or time.perf_counter()
    unfinished = arguments.out / outputs.UNFINISHED
    require_settings(fit, {**arguments.sampling_settings(), "checkpoint": unfinished})

    def used(names: tuple[str, ...]) -> tuple[str, ...]:
        return columns_used(names, file, arguments)

    with stage(f"reading {file.name}", progress):
        data = _read_folder(file, arguments) if file.is_dir() else read(file, arguments.reading, used)
    formula, notes = _formula_and_notes(arguments, data, file)
    data, on_columns = without_unusable(data, formula)
    data, notes = _with_categories(data, arguments.reading.as_text), (*notes, *on_columns)
    if design:
        _preview(arguments, data, file, formula, notes)
        return
    with outputs.folder(arguments.out):
        interruption = f"Interrupted: what is done is kept in {arguments.out}, and the same command goes on."
        processes.set_interrupt_message(interruption)
        try:
            posterior = _posterior(arguments, data, file, formula, progress)
            rows = coefficients(posterior)
            if not (as_json or quiet):
                _print_fit(arguments, data, posterior, rows, notes)
            sampled = time.perf_counter()
            with stage("cross-validation", progress):
                left_out, why_none = _cross_validate(posterior, loo)
            with stage("report", progress):
                about = {
                    "source": str(arguments.file or _EXAMPLE), "command": arguments.command(),
                    "python": arguments.python(formula) if formula else "", "notes": notes,
                }  # fmt: skip
                written = outputs.write_all(
                    arguments.out, posterior, left_out, rows, about, why_none, arguments.reading
                )
        except KeyboardInterrupt:
            if unfinished.exists():
                raise interrupted(interruption) from None
            raise
        if not written.errors:
            remove_checkpoint(unfinished)
    if as_json:
        lines, seconds = [*notes, *written.notes, *written.errors], time.perf_counter() - began
        print(json.dumps(_fit_as_json(arguments, data, posterior, rows, written.files, lines, seconds)))
    elif not quiet:
        if "report" in written.files:
            show(f"Report: {written.files['report']}")
        for line in written.notes:
            say(escape(line))
        ended = time.perf_counter()
        show(_times_in_words(posterior, ended - sampled, ended - began))
    for line in written.errors:
        say(f"[bold red]error:[/bold red] {escape(line)}")
    if written.errors:
        raise typer.Exit(1)


def _preview(arguments: FitArguments, data: FileTable, file: Path, formula: str, notes: tuple[str, ...]) -> None:
    """Print what would be fitted."""
    if data.X is not None or file.is_dir():
        raise requirement("--design", "for a table in memory", "sparse rows" if data.X is not None else "a folder")
    try:
        preview = design_of([formula, *arguments.further], data.table, arguments.loss, **arguments.row_arguments())
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
    for note in notes:
        show(f"Note: {note}.")
    print(preview)


def _with_categories(data: FileTable, names: tuple[str, ...]) -> FileTable:
    """The table, with a type that says of columns of texts that they are categories, whatever stands in them."""
    names = tuple(name for name in names if name in data.names)
    if not names or data.X is not None or isinstance(data.table, dict | TableInPartitions):
        return data
    import narwhals

    categories = narwhals.col(*names).cast(narwhals.Categorical)
    return replace(data, table=narwhals.from_native(data.table).with_columns(categories).to_native())


def _formula_and_notes(arguments: FitArguments, data: FileTable, file: Path) -> tuple[str, tuple[str, ...]]:
    """The formula, empty for sparse rows, and what is to be said of the data."""
    if data.X is not None:
        if arguments.loss:
            return "", data.notes
        response = _labels(data, None)[1]
        return "", (*data.notes, f"the family is {response.loss.name}, as {response.guessed}")
    target = arguments.target or data.response
    require_columns(data.names, file, arguments, "" if "~" in arguments.formula else target)
    formula, notes = formula_of(data, arguments, target)
    return formula, (*data.notes, *((_SOURCE,) if arguments.file is None else ()), *notes)


def _posterior(arguments: FitArguments, data: FileTable, file: Path, formula: str, progress: Progress) -> Posterior:
    """The fit, from where an interrupted one of the same settings left it; complaints about the data name the file."""
    unfinished = arguments.out / outputs.UNFINISHED
    settings = {**arguments.sampling_settings(), "progress": progress, "checkpoint": unfinished}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VerdictWarning)  # the verdict is printed
            return _fit_table(arguments, data, formula, settings)
    except CheckpointInUseError:
        raise
    except CheckpointError as error:
        raise CheckpointError(f"{error} Remove {unfinished} to begin anew, or name another --out.") from error
    except DataError as error:
        raise DataError(f"{file}: {error}") from error


def _fit_table(arguments: FitArguments, data: FileTable, formula: str, settings: dict[str, Any]) -> Posterior:
    family = arguments.loss
    if data.X is not None:
        if arguments.columns or arguments.formula:
            raise DataError("sparse rows have no columns for a formula, weights, offset, exposure or trials.")
        column, response = _labels(data, family)
        classes = response.classes or None
        model = build_regression(data.X, response.codes(column), response.loss, names=data.names, classes=classes)
        return sample_regression(model, **settings)
    return fit(
        [formula, *arguments.further],
        data.table,
        family,
        **arguments.row_arguments(),
        **settings,
    )


def _cross_validate(posterior: Posterior, wanted: bool | None) -> tuple[Loo | None, str]:
    """Leave-one-out cross-validation, by default where rows are in memory and it takes seconds; else None, and what to
    say of it.
    """
    if wanted is not None:
        return (posterior.loo() if wanted else None), ""
    if posterior._target is None or posterior._target.at_hand < posterior.rows:
        return None, f"{outputs.LOO} is not written: rows in partitions are not left out one by one."
    chains, draws, _ = posterior.trace.draws.shape
    numbers = posterior.rows * chains * draws
    own = 0.0 if posterior.model is None else posterior.model.loss.nanoseconds * 1e-9
    seconds = numbers * (_OF_ROW + _OF_FAMILY * own)
    if numbers <= _QUICK or seconds <= _SECONDS:
        return posterior.loo(), ""
    why = f"cross-validation of so many rows would take about {seconds:,.0f} s"
    return None, f"{outputs.LOO}, for svrhmc compare, is not written: {why}. With --loo it is."


def _read_folder(folder: Path, arguments: FitArguments) -> FileTable:
    """A folder of Parquet files, whose rows stay there, and are read in passes."""
    from svrhmc.data import from_parquet

    if not arguments.target and "~" not in arguments.formula:
        raise DataError(f"{folder} is a folder: say which column is to be explained, by --target.")
    if arguments.trials:
        raise DataError("--trials is for a single file.")
    data = from_parquet(folder)
    sizes = data.source.sizes
    note = f"rows stay in {len(sizes):,} partitions of {folder}, and are read in passes"
    return FileTable(data, tuple(data.source.kinds), int(sizes.sum()), "", (note,))


def _labels(data: FileTable, family: str | Loss | None) -> tuple[Column, Response]:
    """The labels of sparse rows, and how they are coded."""
    column = columns_of({data.response: data.y}, [data.response])[data.response]
    return column, read_response(data.response, column, family)


def _print_fit(
    arguments: FitArguments,
    data: FileTable,
    posterior: Posterior,
    rows: tuple[Coefficient, ...],
    notes: tuple[str, ...],
) -> None:
    design = posterior.design
    dropped = 0 if design is None else design.dropped
    family = posterior.family + (f" ({design.guessed})" if design is not None and design.guessed else "")
    row_values = "" if design is None else design.row_values_in_words
    show(f"{arguments.file or _EXAMPLE}: {data.n - dropped:,} rows, {family}{row_values}.")
    if dropped:
        show(f"{dropped:,} rows with missing values were left out.")
    for note in (*(() if design is None else design.notes), *notes):
        show(f"Note: {note}.")
    show(f"\nWhat a one-unit increase in a column adds to {predictor_in_words(posterior)}:")
    edge = len(rows) - posterior.group_scales
    signed = signed_names(posterior)
    _print_coefficients(rows[:edge], signed, ratio_name(posterior))
    if posterior.group_effects is not None:
        show(f"{_scales_in_words(posterior.group_effects)}:")
        _print_coefficients(rows[edge:], signed)
    if design is not None and design.baselines:
        show(f"Compared with {', '.join(design.baselines)}.")
    for line in (
        *unit_notes(posterior),
        *factor_notes(posterior),
        *scale_notes(posterior),
        entangled_sentence(posterior),
        verdict_in_words(posterior),
        misfit_in_words(posterior),
    ):
        if line:
            show(line)


def _times_in_words(posterior: Posterior, written: float, everything: float) -> str:
    """How long it all took, from the start of the command to its last file."""
    compiled = posterior.compile_seconds
    once = f"{compiled:.1f} s preparing compiled code (slow only the first time), " if compiled > 1 else ""
    after = f"{written:.1f} s cross-validation and report"
    return f"{everything:.1f} s in all: {posterior.seconds:.1f} s sampling, {once}{after}, the rest reading and checks."


def _scales_in_words(kept: GroupEffects) -> str:
    """What the standard deviations of groups and smooths say."""
    groups = f"how much effects vary by {kept.counted()}" if kept.groups else ""
    smooths = f"how much {', '.join(kept.names[k] for k in kept.smooths)} may bend" if kept.smooths else ""
    words = ", and ".join(filter(None, (groups, smooths)))
    return words[:1].upper() + words[1:]


def _print_coefficients(rows: tuple[Coefficient, ...], signed: frozenset[str], ratio: str = "") -> None:
    """With ratios where there are some, for which sds make room, and on a narrow screen intervals too.

    signed: the names of those of which P(> 0) says something.
    """
    console = Console()
    places, left_out = rows_to_print([row.name for row in rows], _SHOWN, folded=True)
    some = [rows[j] for j in places]
    table = _coefficient_table(some, signed, ratio, ("5%", "95%"))
    unbounded = console.options.update(max_width=_UNBOUNDED)
    if ratio and console.measure(table, options=unbounded).maximum > console.width:
        table = _coefficient_table(some, signed, ratio, ())
    console.print(table)
    if left_out:
        show(f"… and {left_out}, in {outputs.TABLE}.")


def _coefficient_table(rows: Sequence[Coefficient], signed: frozenset[str], ratio: str, ends: tuple[str, ...]) -> Table:
    """ends: of intervals of the coefficients, where there is room for them."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", min_width=min(_NAME, max(len(row.name) for row in rows)))
    chances = ["P(> 0)"] if any(row.name in signed for row in rows) else []
    heads = ("mean", *ends, f"{ratio} (90%)") if ratio else ("mean", "sd", *ends)
    for head in (*heads, *chances):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        own = (row.mean, *((row.lower, row.upper) if ends else ())) if ratio else row[1:5]
        cells = [*map(number, own), *([row.ratio_in_words()] if ratio else [])]
        cells += [f"{row.positive:.3f}" if row.name in signed else "" for _ in chances]
        table.add_row(escape(row.name), *cells)
    return table


def _fit_as_json(
    arguments: FitArguments,
    data: FileTable,
    posterior: Posterior,
    rows: tuple[Coefficient, ...],
    files: dict[str, str],
    notes: list[str],
    seconds: float,
) -> dict[str, Any]:
    design = posterior.design
    return {
        "file": str(arguments.file or _EXAMPLE),
        "rows": data.n,
        "dropped": 0 if design is None else design.dropped,
        "formula": "" if design is None else design.formula,
        "family": posterior.family,
        "guessed": "" if design is None else design.guessed,
        "classes": [] if design is None else list(design.classes),
        "baselines": [] if design is None else list(design.baselines),
        "verdict": posterior.certificate.verdict,
        "sentence": verdict_in_words(posterior),
        "misfits": list(posterior.misfits),
        "checked_rows": posterior.checked_rows,
        "tolerance": posterior.certificate.tolerance,
        "complete": posterior.complete,
        "method": posterior.method,
        "seconds": round(seconds, 3),
        "compile_seconds": round(posterior.compile_seconds, 3),
        "ratio": ratio_name(posterior),
        "coefficients": [row._asdict() for row in rows],
        "files": files,
        "notes": notes,
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
