"""The arguments of `svrhmc fit`: the formula that they make, and the same call in the shell and in Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from svrhmc.core.errors import DataError, did_you_mean, missing_package, requirement
from svrhmc.families.base import Loss
from svrhmc.families.labels import identifies_rows
from svrhmc.families.ordinal import ordinal
from svrhmc.posterior import usual_settings
from svrhmc.tables.columns import unknown_column_error
from svrhmc.tables.csv import Reading
from svrhmc.tables.design import parse_parameter_formulas, required_columns
from svrhmc.tables.files import FileTable, listed_names
from svrhmc.tables.formula import parse_formula, parse_formulas, quote_name
from svrhmc.tables.partitions import TableInPartitions

_ROW_NUMBER = re.compile(r"(?i:(?:^|_)(?:id|nr|no|key|index|rowid|number)$)|[a-z]I[dD]$")
_FEW_ROWS = 20  # below which numbers may all differ by chance
_MOST_LEVELS = 1000  # of a category that is used without being named


@dataclass(frozen=True)
class FitArguments:
    """The options of `svrhmc fit`; empty texts are those not given."""

    file: Path | None
    target: str
    formula: str
    further: tuple[str, ...]  # formulas of other parameters
    family: str
    weights: str
    offset: str
    exposure: str
    trials: str
    levels: tuple[str, ...]  # of an ordinal target
    missing: str
    out: Path
    draws: int
    tolerance: float
    seed: int
    budget: float | None
    reading: Reading

    @property
    def columns(self) -> dict[str, str]:
        """Options that name a column."""
        given = {
            "--weights": self.weights, "--offset": self.offset, "--exposure": self.exposure, "--trials": self.trials,
        }  # fmt: skip
        return {option: name for option, name in given.items() if name}

    @property
    def loss(self) -> str | Loss | None:
        """The family, as `fit` takes it."""
        return ordinal(levels=self.levels) if self.levels else self.family or None

    def row_arguments(self) -> dict[str, Any]:
        """What `fit` is told of the rows: columns by their names, and what becomes of missing values."""
        named = {option.removeprefix("--"): name for option, name in self.columns.items()}
        return {**named, "missing": self.missing}

    def sampling_settings(self) -> dict[str, Any]:
        """The settings of `sample`."""
        return {
            "draws": self.draws, "tolerance": self.tolerance, "seed": self.seed, "budget_seconds": self.budget,
        }  # fmt: skip

    def command(self) -> str:
        """The same in the shell."""
        words = ["svrhmc", "fit", *([] if self.file is None else [str(self.file)])]
        options: dict[str, Any] = {
            "--target": self.target if self.file is not None else "", "--formula": self.formula,
            "--family": self.family, "--levels": ", ".join(self.levels),
            **(self.columns if self.file is not None else {}),
            "--missing": self.missing if self.missing != DEFAULTS["missing"] else "",
            "--draws": self.draws if self.draws != DEFAULTS["draws"] else "",
            "--tolerance": self.tolerance if self.tolerance != DEFAULTS["tolerance"] else "",
            "--seed": self.seed if self.seed else "", "--budget": "" if self.budget is None else self.budget,
            "--delimiter": self.reading.delimiter or "",
            "--encoding": self.reading.encoding if self.reading.encoding != "utf-8" else "",
            "--decimal": self.reading.decimal if self.reading.decimal != "." else "",
            "--thousands": self.reading.thousands,
        }  # fmt: skip
        for option, value in options.items():
            words += [] if value == "" else [option, str(value)]
        for option, values in (("--na", self.reading.na), ("--text", self.reading.as_text)):
            for value in values:
                words += [option, value]
        words += [word for one in self.further for word in ("--formula", one)]
        return shlex.join([*words, "--out", str(self.out)])

    def python(self, formula: str) -> str:
        """The same in Python, for a table that is at hand."""
        formulas = repr([formula, *self.further] if self.further else formula)
        family = f"svrhmc.targets.families.ordinal(levels={list(self.levels)!r})" if self.levels else repr(self.family)
        words = [formulas, "table", *([family] if self.loss else [])]
        words += [f"{option.removeprefix('--')}={name!r}" for option, name in self.columns.items()]
        words += [f"missing={self.missing!r}"] if self.missing != DEFAULTS["missing"] else []
        defaults = {name: value for name, value in usual_settings().items() if name != "seed"}
        words += [
            f"{name}={value!r}" for name, value in self.sampling_settings().items() if value != defaults.get(name, "")
        ]
        return f"import svrhmc\n\nposterior = svrhmc.fit({', '.join(words)})\nposterior.report('report.html')"


DEFAULTS: dict[str, Any] = {
    "missing": "refuse", **{word: usual_settings()[word] for word in ("draws", "tolerance")},
}  # fmt: skip


def require_columns(names: Sequence[str], file: Path, arguments: FitArguments, target: str) -> None:
    """Refuse columns that are not in the file, with the nearest name that is."""
    for option, name in {**({"--target": target} if target else {}), **arguments.columns}.items():
        if name not in names:
            hint = did_you_mean(name, names) or f"it has {listed_names(names)}."
            raise DataError(f"{file} has no column {name!r} for {option}: {hint}")


def columns_used(names: Sequence[str], file: Path, arguments: FitArguments) -> tuple[str, ...]:
    """The columns of a text that the fit needs. Asked before the values are read, so that a name that is not there is
    the first to be refused.
    """
    require_columns(names, file, arguments, "" if "~" in arguments.formula else arguments.target)
    formula = _formula_with_response(names, arguments, arguments.target)
    if not formula:
        return tuple(names)
    try:
        formulas = parse_formulas([formula, *arguments.further])
        main = parse_formula(formulas.main, names)
        used = required_columns(main, parse_parameter_formulas(formulas.further, main, names).values())
        if absent := [name for name in used if name not in names]:
            raise unknown_column_error("the table", absent[0], names)
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
    return (*used, *arguments.columns.values())


def _formula_with_response(names: Sequence[str], arguments: FitArguments, target: str) -> str:
    """The formula with its response; "" where all other columns are to explain the target."""
    if "~" in arguments.formula:
        return arguments.formula
    if not target and arguments.formula:
        raise requirement("--target", "given", "nothing", "--formula has no response before '~'")
    if not target:
        raise requirement("--target", "the name of a column", "nothing", f"the file has {listed_names(names)}")
    return f"{quote_name(target)} ~ {arguments.formula}" if arguments.formula else ""


def formula_of(data: FileTable, arguments: FitArguments, target: str) -> tuple[str, tuple[str, ...]]:
    """The target by all other columns that can be used, and what is to be said of those that cannot."""
    if formula := _formula_with_response(data.names, arguments, target):
        return formula, ()
    others = [name for name in data.names if name != target and name not in arguments.columns.values()]
    unusable = _unusable(data, others)
    predictors = [name for name in others if name not in unusable]
    notes = _notes_on_columns_left_out(unusable)
    notes += tuple(
        f"column {name!r} has another whole number in each row, as a number of rows has: if it says nothing of "
        f"{target!r}, name the other columns in --formula"
        for name in predictors
        if _ROW_NUMBER.search(name) and _numbers_rows(data, name)
    )
    if not predictors:
        why = f" ({'; '.join(notes[:3])})" if notes else ""
        raise DataError(f"the file has no column beside {target!r} that can be used{why}: there is nothing to fit.")
    return f"{quote_name(target)} ~ " + " + ".join(map(quote_name, predictors)), notes


def without_unusable(data: FileTable, formula: str) -> tuple[FileTable, tuple[str, ...]]:
    """The table without columns that '.' alone would bring into a formula and that cannot be used, and what is to be
    said of them.
    """
    if not formula or isinstance(data.table, dict | TableInPartitions):
        return data, ()
    named = {*(one := parse_formula(formula, ())).variables, *one.response.variables}
    unusable = _unusable(data, [name for name in parse_formula(formula, data.names).variables if name not in named])
    if not unusable:
        return data, ()
    import narwhals

    table = narwhals.from_native(data.table).drop(*unusable).to_native()
    names = tuple(name for name in data.names if name not in unusable)
    return replace(data, table=table, names=names), _notes_on_columns_left_out(unusable)


def _notes_on_columns_left_out(reasons: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"column {name!r} is left out: {why}" for name, why in reasons.items())


def _are_equal(column: Any, other: Any) -> bool:
    """Whether two columns hold the same in every row."""
    if column.dtype != other.dtype or column[0] != other[0]:
        return False
    missing = column.is_null()
    return bool((missing == other.is_null()).all() and (column == other).filter(~missing).all())


def _numbers_rows(data: FileTable, name: str) -> bool:
    """Whether a column of a table in memory holds whole numbers that are all different."""
    if isinstance(data.table, dict | TableInPartitions) or data.n < _FEW_ROWS:
        return False
    import narwhals

    column = narwhals.from_native(data.table, eager_only=True)[name]
    if not column.dtype.is_numeric() or column.null_count() or column.n_unique() < data.n:
        return False
    return bool(column.dtype.is_integer() or (column == column.round()).all())


def _unusable(data: FileTable, names: Sequence[str]) -> dict[str, str]:
    """Why some columns cannot be used: dates, texts that differ in most rows or are very many, one value only, and
    what another column holds already.
    """
    if isinstance(data.table, dict):
        return {}
    if isinstance(data.table, TableInPartitions):
        kinds = data.table.source.kinds
        return {name: "it holds neither numbers nor texts" for name in names if kinds[name] == "other"}
    try:
        import narwhals
    except ModuleNotFoundError:
        raise missing_package("narwhals", "formula", "a table") from None

    frame, reasons = narwhals.from_native(data.table, eager_only=True), dict[str, str]()
    for number, name in enumerate(names):
        kind = frame[name].dtype
        if kind.is_temporal():
            reasons[name] = "it holds dates or times; make a number or a category of them to use it"
        elif kind == narwhals.String and identifies_rows(different := frame[name].n_unique(), data.n):
            reasons[name] = f"it has {different:,} different texts, and is taken for a name of each row"
        elif kind == narwhals.String and different > _MOST_LEVELS:
            reasons[name] = (
                f"it has {different:,} different texts, each of which would have a coefficient; name it in --formula "
                f"to have them, as (1 | {quote_name(name)}) for effects that vary by it"
            )
        elif same := next((other for other in names[:number] if _are_equal(frame[other], frame[name])), ""):
            reasons[name] = f"it repeats column {same!r}"
        elif data.n > 1 and (present := frame[name].drop_nulls()).n_unique() == 1:
            value = present[0]
            reasons[name] = (
                f"it is {value!r} in every row" if len(present) == data.n else f"it has no value but {value!r}"
            )
    return reasons
