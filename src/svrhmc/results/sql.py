"""Predictions as plain SQL, written from the document of `svrhmc.results.export`.

The query has three steps: the columns φⱼ of each row, the mean and variance of the linear predictor, and the mean of y
with its interval. A row with a value that is missing or not a number, or with a level that was not fitted, has NULL.
The effects of the levels of groups are a table of their own that rows are joined to; a level that is not in it has
effects 0 and the variance zᵀΣz.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from svrhmc.core.errors import DataError, one_of
from svrhmc.core.summaries import interval_ends
from svrhmc.results.base import PosteriorData
from svrhmc.results.export import Document, Pieces, single_document
from svrhmc.tables.portable import Portable


@dataclass(frozen=True)
class Dialect:
    """How a database writes names, types, texts and the test whether a number is NaN."""

    quote: str
    double: str
    is_nan: str  # of {x}
    text: str
    escape: str = "'"  # the sign that is written before a quote within a text
    step: str = "AS"  # written before a step of the query, so that its columns are computed only once

    def name(self, name: str) -> str:
        """The name of a column or table."""
        if self.quote in name and self.escape != "'":
            raise DataError(f"the name {name!r} has a {self.quote} in it, which the dialect cannot write: rename it.")
        return f"{self.quote}{name.replace(self.quote, 2 * self.quote)}{self.quote}"

    def value(self, value: object) -> str:
        """A level as a constant of the query."""
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, str):
            text = value.replace("\\", "\\\\") if self.escape == "\\" else value
            return "'" + text.replace("'", self.escape + "'") + "'"
        return number(float(value))  # type: ignore[arg-type]

    def table(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        """Rows of constants, as a query."""
        lines = ",\n  ".join(f"({', '.join(row)})" for row in rows)
        if self.escape == "\\":  # BigQuery has no VALUES
            first = ", ".join(f"{value} AS {name}" for value, name in zip(rows[0], names, strict=True))
            rest = "".join(f",\n  ({', '.join(row)})" for row in rows[1:])
            return f"SELECT * FROM UNNEST([STRUCT({first}){rest}])"
        return f"SELECT * FROM (VALUES\n  {lines}\n) AS v({', '.join(names)})"


DIALECTS = {
    "duckdb": Dialect('"', "DOUBLE", "isnan({x})", "VARCHAR"),
    "postgresql": Dialect('"', "DOUBLE PRECISION", "{x} = 'NaN'::DOUBLE PRECISION", "TEXT", step="AS MATERIALIZED"),
    "bigquery": Dialect("`", "FLOAT64", "IS_NAN({x})", "STRING", "\\"),
}
_GUARDED = {"log": "CASE WHEN {x} > 0 THEN LN({x}) END", "sqrt": "CASE WHEN {x} >= 0 THEN SQRT({x}) END"}
_LINKS: dict[str, Callable[[str], str]] = {
    "identity": lambda t: t,
    "exp": lambda t: f"EXP({t})",
    "logistic": lambda t: f"(CASE WHEN {t} > 0 THEN 1e0 / (1e0 + EXP(-({t}))) ELSE EXP({t}) / (1e0 + EXP({t})) END)",
}


def number(value: float) -> str:
    """A number of double precision, with all of its digits."""
    text = repr(float(value))
    text = text if "e" in text else text + "e0"
    return f"({text})" if text.startswith("-") else text


def nested_sum(parts: Sequence[str]) -> str:
    """A sum with balanced nested brackets, as databases limit how deeply brackets may be nested."""
    if len(parts) <= 8:
        return "(" + (" + ".join(parts) or "0e0") + ")"
    half = len(parts) // 2
    return f"({nested_sum(parts[:half])} + {nested_sum(parts[half:])})"


class _Writer:
    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def expression(self, e: Portable) -> str:
        """A column of the design."""
        if not isinstance(e, list):
            return number(e)
        kind, *parts = e
        if kind == "column":
            return f"CAST({self.source(parts[0])} AS {self.dialect.double})"
        if kind == "level":
            return f"(CASE WHEN {self.source(parts[0])} = {self.dialect.value(parts[1])} THEN 1e0 ELSE 0e0 END)"
        if kind == "pieces":
            return self._piecewise(Pieces(*parts))
        inner = [self.expression(part) for part in parts]
        if kind == "+":
            return nested_sum(inner)
        if kind in ("*", "-"):
            return "(" + f" {kind} ".join(inner) + ")"
        if kind == "/":
            return f"({inner[0]} / NULLIF({inner[1]}, 0e0))"
        if kind == "**":
            return f"POWER({inner[0]}, {inner[1]})"
        if kind in ("<", "<=", "=="):
            return f"(CASE WHEN {inner[0]} {kind[:1] if kind == '==' else kind} {inner[1]} THEN 1e0 ELSE 0e0 END)"
        if kind == "if":
            return f"(CASE WHEN {inner[0]} <> 0e0 THEN {inner[1]} ELSE {inner[2]} END)"
        if kind in ("min", "max"):
            return f"{'LEAST' if kind == 'min' else 'GREATEST'}({', '.join(inner)})"
        return "(" + _GUARDED.get(kind, f"{kind.upper()}({{x}})").format(x=inner[0]) + ")"

    def source(self, name: str) -> str:
        """A column of the table by its name."""
        return f"svrhmc_rows.{self.dialect.name(name)}"

    def _piecewise(self, pieces: Pieces) -> str:
        """Piecewise polynomials: a CASE with a branch for each piece, by Horner's rule."""
        _, knots, polynomials, below, above = pieces
        x = self.expression(pieces.x)

        def piece(i: int, coefficients: list[float] | None) -> str:
            if coefficients is None:
                return "NULL"
            s = f"(({x} - {number(knots[i])}) / {number(knots[i + 1] - knots[i])})"
            out = number(coefficients[-1])
            for c in coefficients[-2::-1]:
                out = f"({number(c)} + {s} * {out})"
            return out

        last = len(polynomials) - 1
        cases = [f"WHEN {x} < {number(knots[0])} THEN {piece(0, below)}"]
        cases += [f"WHEN {x} > {number(knots[-1])} THEN {piece(last, above)}"]
        cases += [f"WHEN {x} < {number(knots[i + 1])} THEN {piece(i, polynomials[i])}" for i in range(last)]
        return f"(CASE {' '.join(cases)} ELSE {piece(last, polynomials[last])} END)"

    def usable_condition(self, variables: Sequence[Document]) -> str:
        """The condition that a row has all values that its prediction needs."""
        tests = []
        for variable in variables:
            source = self.source(variable["name"])
            tests.append(f"{source} IS NOT NULL")
            if variable["levels"]:
                tests.append(f"{source} IN ({', '.join(self.dialect.value(level) for level in variable['levels'])})")
            elif variable["kind"] == "number":
                cast = f"CAST({source} AS {self.dialect.double})"
                tests.append(f"NOT ({self.dialect.is_nan.format(x=cast)})")
        return " AND ".join(tests) or "TRUE"


def to_sql(posterior: PosteriorData, dialect: str, table: str, level: float) -> str:
    """The query for a table, in a dialect."""
    writer = _Writer(DIALECTS[one_of("dialect", dialect, tuple(DIALECTS))])
    low, high = interval_ends(level)
    document = single_document(posterior)
    (predictor,), groups = document["predictors"], document["groups"]
    coefficients, rank = predictor["coefficients"], document["covariance"]["rank"]
    phi = [
        f"({writer.expression(one['expression'])} - {number(one['centre'])}) / {number(one['scale'])} AS svrhmc_{j}"
        for j, one in enumerate(coefficients)
    ]
    parts = ["svrhmc_rows.*", f"({writer.usable_condition(document['variables'])}) AS svrhmc_usable", *phi]
    means = [f"{number(one['mean'])} * svrhmc_{j}" for j, one in enumerate(coefficients)]
    squares = [f"{number(one['remainder'])} * svrhmc_{j} * svrhmc_{j}" for j, one in enumerate(coefficients)]
    squares = squares if any(one["remainder"] for one in coefficients) else []
    projections = [
        [f"{number(one['factor'][k])} * svrhmc_{j}" for j, one in enumerate(coefficients)] for k in range(rank)
    ]
    tables, joins = [], []
    for g, group in enumerate(groups):
        for j, one in enumerate(group["varying"]):
            z = f"svrhmc_z{g}_{j}"
            parts.append(f"{writer.expression(one)} AS {z}")
            means.append(f"COALESCE(svrhmc_m{g}_{j}, 0e0) * {z}")
            squares.append(f"COALESCE(svrhmc_d{g}_{j}, 0e0) * {z} * {z}")
            for k in range(rank):
                projections[k].append(f"COALESCE(svrhmc_f{g}_{j}_{k}, 0e0) * {z}")
        new = nested_sum([
            f"{number(value)} * svrhmc_z{g}_{i} * svrhmc_z{g}_{j}"
            for i, row in enumerate(group["new"]) for j, value in enumerate(row)
        ])  # fmt: skip
        squares.append(f"(CASE WHEN svrhmc_m{g}_0 IS NULL THEN {new} ELSE 0e0 END)")
        tables.append(_levels(writer.dialect, g, group))
        keys = [f"c.{writer.dialect.name(name)} = g{g}.svrhmc_level{g}_{j}" for j, name in enumerate(group["columns"])]
        joins.append(f"  LEFT JOIN svrhmc_group{g} AS g{g} ON {' AND '.join(keys)}")
    shift = [number(predictor["constant"])]
    if document["offset"]:
        shift.append(f"CAST(c.{writer.dialect.name(document['offset'])} AS {writer.dialect.double})")
    if document["exposure"]:
        x = f"CAST(c.{writer.dialect.name(document['exposure'])} AS {writer.dialect.double})"
        shift.append(f"(CASE WHEN {x} > 0 THEN LN({x}) END)")
    variance = nested_sum([*(f"POWER({nested_sum(one)}, 2e0)" for one in projections), *squares])
    internal_names = ["svrhmc_usable", *(f"svrhmc_{j}" for j in range(len(phi)))]
    internal_names += [f"svrhmc_z{g}_{j}" for g, group in enumerate(groups) for j in range(len(group["varying"]))]
    return "\n".join([
        f"WITH svrhmc_columns {writer.dialect.step} (",
        f"  SELECT {', '.join(parts)}\n  FROM {writer.dialect.name(table)} AS svrhmc_rows\n),",
        *(f"{one}," for one in tables),
        f"svrhmc_predictors {writer.dialect.step} (",
        f"  SELECT c.*, CASE WHEN svrhmc_usable THEN {nested_sum([*shift, *means])} END AS predicted_linear,",
        f"  CASE WHEN svrhmc_usable THEN SQRT({variance}) END AS predicted_linear_sd",
        "  FROM svrhmc_columns AS c", *joins, ")",
        f"SELECT {_columns_except(writer.dialect, internal_names)}, {_response(document, low, high)}",
        "FROM svrhmc_predictors AS p",
    ])  # fmt: skip


def _levels(dialect: Dialect, g: int, group: Document) -> str:
    """A table of the effects of the levels of a grouping factor."""
    width, first = len(group["varying"]), group["levels"][0]["effects"]
    rank = len(first[0]["factor"])
    names = [f"svrhmc_level{g}_{j}" for j in range(len(group["columns"]))]
    names += [f"svrhmc_{what}{g}_{j}" for what in "md" for j in range(width)]
    names += [f"svrhmc_f{g}_{j}_{k}" for j in range(width) for k in range(rank)]
    rows = []
    for one in group["levels"]:
        numbers = [effect[what] for what in ("mean", "remainder") for effect in one["effects"]]
        numbers += [value for effect in one["effects"] for value in effect["factor"]]
        rows.append([*(dialect.value(value) for value in one["level"]), *map(number, numbers)])
    return f"svrhmc_group{g} AS ({dialect.table(names, rows)})"


def _columns_except(dialect: Dialect, names: Sequence[str]) -> str:
    """All columns except some of the query's own; PostgreSQL has no word for that, and returns them too."""
    words = {"DOUBLE": "EXCLUDE", "FLOAT64": "EXCEPT"}
    word = words.get(dialect.double)
    return "p.*" if word is None else f"p.* {word} ({', '.join(names)})"


def _response(document: Document, low: float, high: float) -> str:
    """The mean of y and the ends of its interval as columns; NULL where the mean is not a function of t alone."""
    t, sd, link = "predicted_linear", "predicted_linear_sd", document["inverse_link"]
    ends = [f"{t} + {number(NormalDist().inv_cdf(p))} * {sd}" for p in (low, high)]
    if link == "":
        columns: list[object] = ["NULL", "NULL", "NULL"]
    elif link == "identity":
        columns = [t, *ends]
    else:
        nodes = zip(document["quadrature"]["nodes"], document["quadrature"]["weights"], strict=True)
        mean = nested_sum([f"{number(w)} * {_LINKS[link](f'{t} + {number(z)} * {sd}')}" for z, w in nodes])
        columns = [mean, *map(_LINKS[link], ends)]
    names = ("predicted_mean", "predicted_lower", "predicted_upper")
    return ", ".join(f"{column} AS {name}" for column, name in zip(columns, names, strict=True))
