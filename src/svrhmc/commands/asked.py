"""What a fit in the shell was asked for: options, the formula that they make, and how to say the same again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svrhmc.core.errors import DataError, missing, nearest, requirement
from svrhmc.data.design import TableInPartitions
from svrhmc.families.labels import names_rows
from svrhmc.posterior import usual_settings
from svrhmc.tables.csv import Reading
from svrhmc.tables.files import Read, wanted
from svrhmc.tables.formula import quoted


@dataclass(frozen=True)
class Asked:
    """The options of `svrhmc fit`; empty texts are those not given."""

    file: Path | None
    target: str
    formula: str
    family: str
    weights: str
    offset: str
    exposure: str
    trials: str
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

    def sampling(self) -> dict[str, Any]:
        """The settings of `sample`."""
        return {
            "draws": self.draws, "tolerance": self.tolerance, "seed": self.seed, "budget_seconds": self.budget,
        }  # fmt: skip

    def command(self) -> str:
        """The same in the shell."""
        words = ["svrhmc", "fit", *([] if self.file is None else [str(self.file)])]
        usual = ASKED_BY_DEFAULT
        told: dict[str, Any] = {
            "--target": self.target if self.file is not None else "", "--formula": self.formula,
            "--family": self.family, **(self.columns if self.file is not None else {}),
            "--missing": self.missing if self.missing != usual["missing"] else "",
            "--draws": self.draws if self.draws != usual["draws"] else "",
            "--tolerance": self.tolerance if self.tolerance != usual["tolerance"] else "",
            "--seed": self.seed if self.seed else "", "--budget": "" if self.budget is None else self.budget,
            "--delimiter": self.reading.delimiter or "",
            "--encoding": self.reading.encoding if self.reading.encoding != "utf-8" else "",
            "--decimal": self.reading.decimal if self.reading.decimal != "." else "",
        }  # fmt: skip
        for option, value in told.items():
            words += [] if value == "" else [option, str(value)]
        for option, values in (("--na", self.reading.na), ("--text", self.reading.as_text)):
            for value in values:
                words += [option, value]
        return shlex.join([*words, "--out", str(self.out)])

    def python(self, formula: str) -> str:
        """The same in Python, for a table that is at hand."""
        given = {word.removeprefix("--"): name for word, name in self.columns.items()}
        told = [repr(formula), "table", *([repr(self.family)] if self.family else [])]
        told += [f"{word}={name!r}" for word, name in given.items()]
        told += [f"missing={self.missing!r}"] if self.missing != ASKED_BY_DEFAULT["missing"] else []
        usual = {word: value for word, value in usual_settings().items() if word != "seed"}
        told += [f"{word}={value!r}" for word, value in self.sampling().items() if value != usual.get(word, "")]
        return f"import svrhmc\n\nposterior = svrhmc.fit({', '.join(told)})\nposterior.report('report.html')"


ASKED_BY_DEFAULT: dict[str, Any] = {
    "missing": "refuse", **{word: usual_settings()[word] for word in ("draws", "tolerance")},
}  # fmt: skip


def require_columns(found: Read, file: Path, asked: Asked, target: str) -> None:
    """Refuse columns that are not in the file, with the nearest name that is."""
    for option, name in {**({"--target": target} if target else {}), **asked.columns}.items():
        if name not in found.names:
            hint = nearest(name, found.names) or f"it has {wanted(found.names)}."
            raise DataError(f"{file} has no column {name!r} for {option}: {hint}")


def formula_of(found: Read, asked: Asked, target: str) -> tuple[str, tuple[str, ...]]:
    """The target by all other columns that can be used, and what is to be said of those that cannot."""
    if asked.formula:
        if "~" in asked.formula:
            return asked.formula, ()
        if not target:
            raise requirement("--target", "given", "nothing", "--formula has no response before '~'")
        return f"{quoted(target)} ~ {asked.formula}", ()
    if not target:
        raise requirement("--target", "the name of a column", "nothing", f"the file has {wanted(found.names)}")
    others = [name for name in found.names if name != target and name not in asked.columns.values()]
    odd = _unusable(found, others)
    chosen = [name for name in others if name not in odd]
    notes = tuple(f"column {name!r} is left out: {why}" for name, why in odd.items())
    if not chosen:
        why = f" ({'; '.join(notes[:3])})" if notes else ""
        raise DataError(f"the file has no column beside {target!r} that can be used{why}: there is nothing to fit.")
    return f"{quoted(target)} ~ " + " + ".join(map(quoted, chosen)), notes


def _unusable(found: Read, names: Sequence[str]) -> dict[str, str]:
    """Dates, texts that are different in most rows, and columns with one value only."""
    if isinstance(found.table, dict):
        return {}
    if isinstance(found.table, TableInPartitions):
        kinds = found.table.source.kinds
        return {name: "it holds neither numbers nor texts" for name in names if kinds[name] == "other"}
    try:
        import narwhals
    except ModuleNotFoundError:
        raise missing("narwhals", "formula", "a table") from None

    frame, odd = narwhals.from_native(found.table, eager_only=True), dict[str, str]()
    for name in names:
        kind = frame[name].dtype
        if kind.is_temporal():
            odd[name] = "it holds dates or times; make a number or a category of them to use it"
        elif kind == narwhals.String and names_rows(different := frame[name].n_unique(), found.n):
            odd[name] = f"it has {different:,} different texts, and is taken for a name of each row"
        elif found.n > 1 and (known := frame[name].drop_nulls()).n_unique() == 1:
            value = known[0]
            odd[name] = f"it is {value!r} in every row" if len(known) == found.n else f"it has no value but {value!r}"
    return odd
