"""Predictions as plain SQL, written from the document of `svrhmc.results.export`.

The query has three steps: columns φⱼ of each row (NULL where a value is missing, not a number, or a level that was not
fitted), the mean and variance of the linear predictor, and the mean of y with its interval. Levels of groups are a
table of their own that rows are joined to; a level that is not in it has effects 0 and the variance zᵀΣz.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from svrhmc.core.errors import DataError, one_of
from svrhmc.core.summaries import interval_ends
from svrhmc.results.base import PosteriorData
from svrhmc.results.export import Document, single_document
from svrhmc.tables.portable import Portable


@dataclass(frozen=True)
class Dialect:
    """How a database writes names, types, and numbers that are none."""

    quote: str
    double: str
    is_nan: str  # of {x}
    text: str
    escape: str = "'"  # what stands before a quote in a text
    step: str = "AS"  # before a step of the query whose columns are computed once, however often they are used

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
    """A number to the last digit, as one of double precision."""
    text = repr(float(value))
    text = text if "e" in text else text + "e0"
    return f"({text})" if text.startswith("-") else text


def summed(parts: Sequence[str]) -> str:
    """A sum whose brackets are nested by halves, as databases bound how deep they may be."""
    if len(parts) <= 8:
        return "(" + (" + ".join(parts) or "0e0") + ")"
    half = len(parts) // 2
    return f"({summed(parts[:half])} + {summed(parts[half:])})"


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
            return self._pieces(*parts)
        inner = [self.expression(part) for part in parts]
        if kind == "+":
            return summed(inner)
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

    def _pieces(
        self,
        x: Portable,
        knots: list[float],
        polynomials: list[list[float]],
        below: list[float] | None,
        above: list[float] | None,
    ) -> str:
        at = self.expression(x)

        def piece(i: int, coefficients: list[float] | None) -> str:
            if coefficients is None:
                return "NULL"
            s = f"(({at} - {number(knots[i])}) / {number(knots[i + 1] - knots[i])})"
            out = number(coefficients[-1])
            for c in coefficients[-2::-1]:
                out = f"({number(c)} + {s} * {out})"
            return out

        last = len(polynomials) - 1
        cases = [f"WHEN {at} < {number(knots[0])} THEN {piece(0, below)}"]
        cases += [f"WHEN {at} > {number(knots[-1])} THEN {piece(last, above)}"]
        cases += [f"WHEN {at} < {number(knots[i + 1])} THEN {piece(i, polynomials[i])}" for i in range(last)]
        return f"(CASE {' '.join(cases)} ELSE {piece(last, polynomials[last])} END)"

    def usable(self, variables: Sequence[Document]) -> str:
        """Whether a row has all that it needs."""
        tests = []
        for one in variables:
            source = self.source(one["name"])
            tests.append(f"{source} IS NOT NULL")
            if one["levels"]:
                tests.append(f"{source} IN ({', '.join(self.dialect.value(level) for level in one['levels'])})")
            elif one["kind"] == "number":
                cast = f"CAST({source} AS {self.dialect.double})"
                tests.append(f"NOT ({self.dialect.is_nan.format(x=cast)})")
        return " AND ".join(tests) or "TRUE"


def to_sql(posterior: PosteriorData, dialect: str, table: str, level: float) -> str:
    """The query for a table, in a dialect."""
    write = _Writer(DIALECTS[one_of("dialect", dialect, tuple(DIALECTS))])
    low, high = interval_ends(level)
    document = single_document(posterior)
    (predictor,), groups = document["predictors"], document["groups"]
    coefficients, rank = predictor["coefficients"], document["covariance"]["rank"]
    phi = [
        f"({write.expression(one['expression'])} - {number(one['centre'])}) / {number(one['scale'])} AS svrhmc_{j}"
        for j, one in enumerate(coefficients)
    ]
    parts = ["svrhmc_rows.*", f"({write.usable(document['variables'])}) AS svrhmc_usable", *phi]
    means = [f"{number(one['mean'])} * svrhmc_{j}" for j, one in enumerate(coefficients)]
    squares = [f"{number(one['remainder'])} * svrhmc_{j} * svrhmc_{j}" for j, one in enumerate(coefficients)]
    squares = squares if any(one["remainder"] for one in coefficients) else []
    along = [[f"{number(one['factor'][k])} * svrhmc_{j}" for j, one in enumerate(coefficients)] for k in range(rank)]
    tables, joins = [], []
    for g, group in enumerate(groups):
        for j, one in enumerate(group["varying"]):
            z = f"svrhmc_z{g}_{j}"
            parts.append(f"{write.expression(one)} AS {z}")
            means.append(f"COALESCE(svrhmc_m{g}_{j}, 0e0) * {z}")
            squares.append(f"COALESCE(svrhmc_d{g}_{j}, 0e0) * {z} * {z}")
            for k in range(rank):
                along[k].append(f"COALESCE(svrhmc_f{g}_{j}_{k}, 0e0) * {z}")
        new = summed([
            f"{number(value)} * svrhmc_z{g}_{i} * svrhmc_z{g}_{j}"
            for i, row in enumerate(group["new"]) for j, value in enumerate(row)
        ])  # fmt: skip
        squares.append(f"(CASE WHEN svrhmc_m{g}_0 IS NULL THEN {new} ELSE 0e0 END)")
        tables.append(_levels(write.dialect, g, group))
        keys = [f"c.{write.dialect.name(name)} = g{g}.svrhmc_level{g}_{j}" for j, name in enumerate(group["columns"])]
        joins.append(f"  LEFT JOIN svrhmc_group{g} AS g{g} ON {' AND '.join(keys)}")
    shift = [number(predictor["constant"])]
    if document["offset"]:
        shift.append(f"CAST(c.{write.dialect.name(document['offset'])} AS {write.dialect.double})")
    if document["exposure"]:
        x = f"CAST(c.{write.dialect.name(document['exposure'])} AS {write.dialect.double})"
        shift.append(f"(CASE WHEN {x} > 0 THEN LN({x}) END)")
    variance = summed([*(f"POWER({summed(one)}, 2e0)" for one in along), *squares])
    inside = ["svrhmc_usable", *(f"svrhmc_{j}" for j in range(len(phi)))]
    inside += [f"svrhmc_z{g}_{j}" for g, group in enumerate(groups) for j in range(len(group["varying"]))]
    return "\n".join([
        f"WITH svrhmc_columns {write.dialect.step} (",
        f"  SELECT {', '.join(parts)}\n  FROM {write.dialect.name(table)} AS svrhmc_rows\n),",
        *(f"{one}," for one in tables),
        f"svrhmc_predictors {write.dialect.step} (",
        f"  SELECT c.*, CASE WHEN svrhmc_usable THEN {summed([*shift, *means])} END AS predicted_linear,",
        f"  CASE WHEN svrhmc_usable THEN SQRT({variance}) END AS predicted_linear_sd",
        "  FROM svrhmc_columns AS c", *joins, ")",
        f"SELECT {_all_but(write.dialect, inside)}, {_response(document, low, high)}",
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


def _all_but(dialect: Dialect, names: Sequence[str]) -> str:
    """All columns but those of the query's own; PostgreSQL has no word for that, and gives them too."""
    words = {"DOUBLE": "EXCLUDE", "FLOAT64": "EXCEPT"}
    word = words.get(dialect.double)
    return "p.*" if word is None else f"p.* {word} ({', '.join(names)})"


def _response(document: Document, low: float, high: float) -> str:
    """The mean of y, and the ends of its interval; where the mean is no function of t alone, only those of t."""
    t, sd, link = "predicted_linear", "predicted_linear_sd", document["inverse_link"]
    ends = [f"{t} + {number(NormalDist().inv_cdf(p))} * {sd}" for p in (low, high)]
    if link == "":
        shown: list[object] = ["NULL", "NULL", "NULL"]
    elif link == "identity":
        shown = [t, *ends]
    else:
        nodes = zip(document["quadrature"]["nodes"], document["quadrature"]["weights"], strict=True)
        mean = summed([f"{number(w)} * {_LINKS[link](f'{t} + {number(z)} * {sd}')}" for z, w in nodes])
        shown = [mean, *map(_LINKS[link], ends)]
    names = ("predicted_mean", "predicted_lower", "predicted_upper")
    return ", ".join(f"{one} AS {name}" for one, name in zip(shown, names, strict=True))
