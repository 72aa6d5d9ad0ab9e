"""`svrhmc predict`: a fit and new rows in, their predictions out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from svrhmc.core.cells import csv_text
from svrhmc.core.errors import DataError, one_of, requirement
from svrhmc.core.progress import stage
from svrhmc.core.storage import write_text
from svrhmc.core.summaries import level_ends
from svrhmc.results.posterior import Posterior
from svrhmc.results.predict import NEW_GROUPS, Prediction
from svrhmc.shell.errors import require_place, show, writing
from svrhmc.shell.outputs import model_in
from svrhmc.tables.csv import Reading
from svrhmc.tables.files import Read, read


def predict_command(
    fitted: Annotated[Path, typer.Argument(help="The folder of a fit, or its model.posterior.")],
    file: Annotated[Path, typer.Argument(help="New rows, with the columns that were fitted.")],
    out: Annotated[Path, typer.Option(help="Where the predictions go, as CSV.")] = Path("predictions.csv"),
    level: Annotated[float, typer.Option(help="Probability within the intervals.")] = 0.9,
    draws: Annotated[int, typer.Option(help="Draws of the posterior to use, at most.", min=2)] = 1000,
    delimiter: Annotated[str | None, typer.Option(help="Between columns; found if not set.")] = None,
    encoding: Annotated[str, typer.Option(help="Of a text, such as latin-1.")] = "utf-8",
    decimal: Annotated[str, typer.Option(help="The decimal sign of numbers.")] = ".",
    na: Annotated[list[str] | None, typer.Option(help="A word for a missing value; may be repeated.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="A column of categories with numbers for names.")] = None,
    new_groups: Annotated[str, typer.Option(help="Effects of groups not fitted: draw, average or refuse.")] = "draw",
    no_groups: Annotated[bool, typer.Option("--no-groups", help="Leave effects of groups out.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Predict the target of new rows from a fit.

    A line for each row: mean and sd of the mean of the target, its interval
    (lower, upper), and that of a single new value (new_lower, new_upper). For
    classes, the probability of each. Where the fit has trials, all of these are
    numbers of successes, and the probability of a success follows. Where the fit
    has groups, rows of a group that was not fitted get effects as groups vary;
    --new-groups average takes a typical group, and refuse names such rows.

    [bold]Example[/bold]: svrhmc predict customers-fit new.csv --out new-churn.csv
    """
    if not 0 < level < 1:
        raise requirement("--level", "between 0 and 1", level)
    one_of("--new-groups", new_groups, NEW_GROUPS)
    require_place("--out", out)
    progress = False if quiet else None
    posterior = model_in(fitted)
    with stage(f"reading {file.name}", progress):
        data = read(file, Reading(delimiter, encoding, tuple(na or ()), decimal, tuple(text or ()), single=True))
    with stage("predicting", progress):
        try:
            prediction = _predicted(posterior, data, level, draws, not no_groups, new_groups)
        except DataError as error:
            said = str(error).replace("new_groups='draw'", "--new-groups draw").replace("'average'", "average")
            raise DataError(f"{file}: {said}") from error
    with writing():
        write_text(out, _table(prediction, posterior))
    if not quiet:
        show(f"{data.n:,} predictions: {out}")


def _predicted(
    posterior: Posterior, data: Read, level: float, draws: int, include_groups: bool, new_groups: str
) -> Prediction:
    levels, design = level_ends(level), posterior.design
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
    return posterior.predict(
        data.table, levels=levels, draws=draws, include_groups=include_groups, new_groups=new_groups
    )


def _table(prediction: Prediction, posterior: Posterior) -> str:
    if prediction.mean.ndim > 1:
        classes = posterior.design.classes if posterior.design is not None else ()
        names = classes or tuple(map(str, range(prediction.mean.shape[1])))
        return csv_text(["row", *names], ([k + 1, *row] for k, row in enumerate(prediction.mean.tolist())))
    assert prediction.new_quantiles is not None
    columns = {
        "mean": prediction.mean,
        "sd": prediction.sd,
        **dict(zip(("lower", "upper"), prediction.quantiles, strict=True)),
    }
    columns |= dict(zip(("new_lower", "new_upper"), prediction.new_quantiles, strict=True))
    if prediction.trials is not None and prediction.probability is not None:
        columns |= {"trials": prediction.trials, "probability": prediction.probability}
    rows = ([k + 1, *map(float, row)] for k, row in enumerate(zip(*columns.values(), strict=True)))
    return csv_text(["row", *columns], rows, 8)
