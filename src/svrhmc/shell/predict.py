"""`svrhmc predict`: a fit and new rows in, their predictions out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from svrhmc.core.arrays import Array
from svrhmc.core.cells import csv_text
from svrhmc.core.errors import DataError, one_of, requirement
from svrhmc.core.progress import stage
from svrhmc.core.storage import write_text
from svrhmc.core.summaries import interval_ends
from svrhmc.results.posterior import Posterior
from svrhmc.results.predict import NEW_GROUPS, Prediction
from svrhmc.shell.errors import require_place, show, writing
from svrhmc.shell.outputs import model_in, spelling_in
from svrhmc.tables.csv import Reading
from svrhmc.tables.files import FileTable, read
from svrhmc.tables.new_rows import MISSING, NEW_LEVELS


def predict_command(
    fitted: Annotated[Path, typer.Argument(help="The folder of a fit, or its model.posterior.")],
    file: Annotated[Path, typer.Argument(help="New rows, with the columns that were fitted.")],
    out: Annotated[Path, typer.Option(help="Where the predictions go, as CSV; - prints them.")] = Path(
        "predictions.csv"
    ),
    level: Annotated[float, typer.Option(help="Probability within the intervals.")] = 0.9,
    draws: Annotated[int, typer.Option(help="Draws of the posterior to use, at most.", min=2)] = 1000,
    delimiter: Annotated[str | None, typer.Option(help="The sign between columns; found if not set.")] = None,
    encoding: Annotated[str, typer.Option(help="Of a text file, such as latin-1.")] = "utf-8",
    decimal: Annotated[str | None, typer.Option(help="The decimal sign of numbers; as in the fit if not set.")] = None,
    thousands: Annotated[
        str | None, typer.Option(help="The sign between thousands, such as ','; as in the fit if not set.")
    ] = None,
    na: Annotated[
        list[str] | None, typer.Option(help="A word for a missing value; may be repeated; as in the fit if not set.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="A column of categories with numbers for names; as in the fit if not set.")
    ] = None,
    new_groups: Annotated[str, typer.Option(help="Groups that were not fitted: draw, average or refuse.")] = "draw",
    missing: Annotated[str, typer.Option(help="Rows that miss a value: refuse, drop or nan.")] = "refuse",
    new_levels: Annotated[
        str, typer.Option(help="Rows with a category that was not fitted: refuse, nan or average.")
    ] = "refuse",
    trials: Annotated[int | None, typer.Option(help="Trials of each row, where the file has none.", min=0)] = None,
    exposure: Annotated[
        float | None, typer.Option(help="Exposure of each row, in the place of its column; 1 predicts a rate.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Write the columns of the file before the predictions.")] = False,
    no_groups: Annotated[bool, typer.Option("--no-groups", help="Leave effects of groups out.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Predict the target of new rows from a fit.

    The file of predictions has a line for each row: the mean of the target and
    its sd, an interval of that mean (lower, upper), and an interval of a single
    new value (new_lower, new_upper), of times with its median. Where the
    target is yes or no, these are about its probability; where it has
    classes, there is the probability of each; where it counts successes,
    the probability of one follows.

    A row that misses a value, or has a category that was not fitted, is refused
    unless --missing or --new-levels says what to do. A group that was not
    fitted, such as a new region, gets effects as groups vary; --new-groups
    average takes a typical group, and refuse names such rows.

    [bold]Example[/bold]: svrhmc predict customers-fit new.csv --out new-churn.csv
    """
    if not 0 < level < 1:
        raise requirement("--level", "between 0 and 1", level)
    one_of("--new-groups", new_groups, NEW_GROUPS)
    one_of("--missing", missing, MISSING)
    one_of("--new-levels", new_levels, NEW_LEVELS)
    printed = str(out) == "-"
    if not printed:
        require_place("--out", out)
    progress = False if quiet else None
    posterior = model_in(fitted)
    with stage(f"reading {file.name}", progress):
        options = {"decimal": decimal, "thousands": thousands, "na": na and tuple(na), "as_text": text and tuple(text)}
        said = {name: value for name, value in options.items() if value is not None}
        design = posterior.design
        named = set() if design is None else {*design.variables, design.offset, design.exposure, design.trials}
        how_read = Reading(delimiter, encoding, single=True, **{**spelling_in(fitted, named), **said})
        data = read(file, how_read, None if design is None else lambda names: named)
    with stage("predicting", progress):
        try:
            how = {
                "include_groups": not no_groups, "new_groups": new_groups, "missing": missing,
                "new_levels": new_levels, "trials": trials, "exposure": exposure,
            }  # fmt: skip
            prediction = _predict(posterior, data, level, draws, how)
            text_of_it = _predictions_as_csv(prediction, posterior, keep)
        except DataError as error:
            raise DataError(f"{file}: {_in_shell_words(str(error))}") from error
    if printed:
        print(text_of_it, end="")
        return
    with writing():
        write_text(out, text_of_it)
    if not quiet:
        left_out = data.n - len(prediction.mean)
        show(
            f"{len(prediction.mean):,} predictions: {out}"
            + (f" ({left_out:,} row{'s' if left_out > 1 else ''} left out)" if left_out else "")
        )


def _in_shell_words(message: str) -> str:
    """A message with the options of the shell in the place of Python's words, and rows counted from 1 as in the file
    of predictions.
    """
    words = {
        "new_groups='draw'": "--new-groups draw", "predict() has missing='nan' and missing='drop'":
        "there are --missing nan and --missing drop", "predict() has new_levels='nan' and 'average'":
        "there are --new-levels nan and --new-levels average", "'average'": "average", "trials=…": "--trials",
        "exposure=…": "--exposure", "exposure=1": "--exposure 1", "new_levels": "--new-levels",
        "new_groups": "--new-groups",
    }  # fmt: skip
    for python, shell in words.items():
        message = re.sub(rf"(?<!-){re.escape(python)}", shell, message)
    return re.sub(r"\bin row (\d+)\b", lambda found: f"in row {int(found[1]) + 1} (the first is row 1)", message)


def _predict(posterior: Posterior, data: FileTable, level: float, draws: int, how: dict[str, Any]) -> Prediction:
    (low, high), design = interval_ends(level), posterior.design
    levels = (low, high, 0.5) if _is_of_times(posterior) else (low, high)
    if data.X is not None:
        if design is not None or posterior.units is None:
            raise DataError("the fit is of a table with columns, and these are sparse rows.")
        width = len(posterior.units.centre)
        if data.X.shape[1] > width:
            raise DataError(f"rows must have {width} columns, as the fit has; got {data.X.shape[1]}.")
        X = data.X.copy()
        X.resize((data.X.shape[0], width))
        return posterior.predict(X, levels=levels, draws=draws)
    if design is None:
        raise DataError("the fit is of sparse rows, and this is a table with columns.")
    return posterior.predict(data.table, levels=levels, draws=draws, **how)


def _is_of_times(posterior: Posterior) -> bool:
    """Whether the target is a time until an event, of which the median is the number to look at first."""
    return posterior.design is not None and posterior.design.response.startswith("Surv(")


def _predictions_as_csv(prediction: Prediction, posterior: Posterior, keep: bool = False) -> str:
    columns, digits = _prediction_columns(prediction, posterior), 8 if prediction.mean.ndim == 1 else 6
    kept = prediction.kept_columns(keep, ["row", *columns])
    numbers = range(len(prediction.mean)) if prediction.rows is None else prediction.rows
    cells = [[str(value) if value == value and value is not None else "" for value in kept[name]] for name in kept]
    values = [column.tolist() for column in columns.values()]
    rows = ([k + 1, *row] for k, *row in zip(map(int, numbers), *cells, *values, strict=True))
    return csv_text(["row", *kept, *columns], rows, digits)


def _prediction_columns(prediction: Prediction, posterior: Posterior) -> dict[str, Array]:
    """The predictions by the names that the file has for them."""
    if prediction.mean.ndim > 1:
        classes = posterior.design.classes if posterior.design is not None else ()
        names = classes or tuple(map(str, range(prediction.mean.shape[1])))
        return dict(zip(names, prediction.mean.T, strict=True))
    columns = {
        "mean": prediction.mean,
        "sd": prediction.sd,
        **dict(zip(("lower", "upper"), prediction.quantiles, strict=False)),
    }
    if prediction.new_quantiles is not None and not prediction.binary:
        new_lower, new_upper, *median = prediction.new_quantiles
        columns |= {**({"median": median[0]} if median else {}), "new_lower": new_lower, "new_upper": new_upper}
    if prediction.trials is not None and prediction.probability is not None:
        columns |= {"trials": prediction.trials, "probability": prediction.probability}
    return columns
