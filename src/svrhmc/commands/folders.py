"""`svrhmc fit` of a folder of Parquet files: its rows stay there, and are read in passes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.commands.asked import Asked
from svrhmc.core.errors import DataError
from svrhmc.fitting.regress import posterior_of, regression
from svrhmc.fitting.responses import Response, response_of
from svrhmc.results.posterior import Posterior
from svrhmc.tables.columns import columns_of
from svrhmc.tables.design import Design
from svrhmc.tables.grammar import quoted
from svrhmc.tables.reading import Read
from svrhmc.tables.terms import Category, Number, Term, to_text

_LABELS = 200_000  # from which a family is guessed
_NAME = re.compile(r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>\w+))\s*")


def opened(folder: Path, asked: Asked) -> Read:
    """What is in a folder: its columns, the number of its rows, and some labels."""
    from svrhmc.data import from_parquet

    if not asked.target:
        raise DataError(f"{folder} is a folder: say which column is to be explained, by --target.")
    for option, given in (("--exposure", asked.exposure), ("--trials", asked.trials)):
        if given:
            raise DataError(f"{option} is for a single file; for a folder give the log of an exposure as --offset.")
    data = from_parquet(
        folder, asked.target, _features(asked.formula), offset=asked.offset or None, weights=asked.weights or None
    )
    reader = data.reader
    some, count = [], 0
    for number in np.flatnonzero(reader.sizes):
        for labels in reader.labels(int(number)):
            some.append(labels)
            count += len(labels)
        if count >= _LABELS:
            break
    note = f"rows stay in {len(reader.sizes):,} partitions of {folder}, and are read in passes"
    y = np.concatenate(some)
    return Read(None, reader.names, int(reader.sizes.sum()), asked.target, (note,), data, y)


def response(found: Read, family: str | None) -> Response:
    """The family that labels are of."""
    column = columns_of({found.response: found.y}, [found.response])[found.response]
    return response_of(found.response, column.coded() if column.kind == "category" else column, family)


def fitted(found: Read, asked: Asked, family: str | None, **settings: Any) -> Posterior:
    """In the units of the data, with a design by which new tables are read."""
    layout = found.X.reader.layout
    terms: tuple[Term, ...] = tuple(
        Number(each.name) if each.levels is None else Category(each.name, each.levels) for each in layout.features
    )
    made = regression(found.X, None, response(found, family).loss)
    classes = made.target.classes
    design = Design(
        formula=f"{quoted(layout.target)} ~ {' + '.join(quoted(each.name) for each in layout.features)}",
        response=layout.target,
        terms=to_text(terms),
        intercept=True,
        classes=() if classes is None else tuple(map(str, classes)),
        offset=asked.offset or "",
    )
    return posterior_of(made, design=design, **settings).about(None)  # as its rows stay in the folder


def _features(formula: str) -> list[str] | None:
    """The columns of a sum such as "age + plan"; None where there is no formula."""
    right = formula.rpartition("~")[2]
    if not right.strip() or right.strip() == ".":
        return None
    found = [_NAME.fullmatch(term) for term in right.split("+")]
    if any(match is None for match in found):
        raise DataError(f"for a folder a formula is a sum of columns, such as 'age + plan'; got {formula!r}.")
    return [str(match["quoted"] or match["plain"]) for match in found if match is not None]
