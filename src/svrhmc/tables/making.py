"""What formulaic does for us: reading formulas, and transformations and interactions of columns.

What a transformation remembers of the table it was made with (the knots of a spline, the centre of `center`) is kept as
JSON; the rest of formulaic's own state follows from the text of the formula and the levels of its categories, and is
made again from a small table that has them all.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError, missing
from svrhmc.tables.columns import CATEGORY, Column, Columns

_MARK = re.compile(r"\x1b\[[0-9;]*m|[⧛⧚]")


def formulaic() -> Any:
    """The library, or an error that says how to install it."""
    try:
        import formulaic as found
    except ModuleNotFoundError:
        raise missing("formulaic", "formula", "a formula") from None
    return found


def parsed(formula: str, available: list[str]) -> tuple[str, list[str], bool]:
    """The response, the terms and whether there is an intercept; `.` stands for all other columns."""
    if "~" not in str(formula):
        raise DataError(f"the formula must read 'response ~ terms', such as 'y ~ age + C(plan)'; got {formula!r}.")
    for name in ("0", "1"):  # formulaic takes the column for the number
        if name in available and (f"`{name}`" in formula or re.search(r"(?<![\w`)])\.(?!\w)", formula)):
            raise DataError(f"no formula can name the column {name!r}, which means an intercept: rename it.")
    with plainly(formula):
        found = formulaic().Formula(formula, _context={"__formulaic_variables_available__": available})
    sides = getattr(found, "_structure", {})
    if "lhs" not in sides or len(list(found.lhs)) != 1 or not str(found.lhs).strip():
        raise DataError(f"the formula must have one response before '~', such as 'y ~ age'; got {formula!r}.")
    rhs = found.rhs
    if not hasattr(rhs, "required_variables"):
        raise DataError(f"the formula must have one list of terms after '~'; got {formula!r}.")
    terms = [":".join(_written(factor) for factor in term.factors) for term in rhs]
    return str(found.lhs), [term for term in terms if term not in ("0", "1")], "1" in terms


def quoted(name: str) -> str:
    """The name of a column as a formula takes it.

    >>> quoted("age"), quoted("age in years")
    ('age', '`age in years`')
    """
    if name.isidentifier() and not keyword.iskeyword(name) and name != "C":
        return name
    if "`" in name:
        raise DataError(f"column {name!r} has a ` in its name, which no formula can name: rename it.")
    if name.endswith("\\") or not name.strip():
        raise DataError(f"column {name!r} has a name that no formula can name: rename it.")
    return f"`{name}`"


def _written(factor: Any) -> str:
    """A factor as a formula takes it again, which formulaic's own text is not where a name has signs in it."""
    text = str(factor.expr)
    if factor.eval_method.value == "lookup":
        return quoted(text)
    if factor.eval_method.value == "literal" or re.fullmatch(r"[\w.]+\(.*\)", text, re.DOTALL):
        return text
    return f"{{{text}}}"


def variables_in(term: str, available: list[str]) -> list[str]:
    """The columns of a table that a term names, bare or within an expression."""
    known, found = set(available), re.findall(r"`([^`]+)`", term)
    plain = re.sub(r"`[^`]+`", "1", term)
    for piece in pieces(plain):
        if piece in known:
            found.append(piece)
            continue
        try:
            tree = ast.parse(piece, mode="eval")
        except SyntaxError:
            continue
        nodes = list(ast.walk(tree))
        called = {node.func.id for node in nodes if isinstance(node, ast.Call) and hasattr(node.func, "id")}
        called |= {node.value.id for node in nodes if isinstance(node, ast.Attribute) and hasattr(node.value, "id")}
        names = [node.id for node in nodes if isinstance(node, ast.Name)]
        found += [name for name in names if name in known or name not in called]
    return list(dict.fromkeys(found))


def pieces(term: str) -> list[str]:
    """The factors of an interaction: what stands between colons that no bracket encloses."""
    pieces, depth = [""], 0
    for sign in term:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == ":" and not depth:
            pieces.append("")
        else:
            pieces[-1] += sign
    return [piece.strip() for piece in pieces]


def made(text: str, columns: Columns) -> tuple[Any, list[str], Any]:
    """The matrix of a formula without a response, the names of its columns, and its specification."""
    with plainly(text):
        found = (
            formulaic()
            .Formula(text)
            .get_model_matrix(columns.frame(), context=_context(), na_action="ignore", output="numpy")
        )
    spec = found.model_spec
    return found.__wrapped__, [_pretty(str(name)) for name in spec.column_names], spec


def matrix(spec: Any, columns: Columns, levels: dict[str, tuple[Any, ...]]) -> Array:
    """New rows by a specification."""
    by_name = {
        name: Column(column.kind, column.values, None, levels[name] or column.levels)
        for name, column in columns.by_name.items()
        if name in levels
    }
    with plainly("the formula"):
        found = spec.get_model_matrix(Columns(by_name, columns.n).frame(), context=_context(), na_action="ignore")
    inner = found.__wrapped__
    return np.asarray(inner.toarray() if hasattr(inner, "toarray") else inner, np.float64)


def remembered(spec: Any) -> str:
    """What its transformations remember, as JSON; a TypeError where that is more than numbers."""
    return json.dumps(spec.transform_state, default=_number)


def recalled(text: str, variables: dict[str, tuple[str, tuple[Any, ...]]], state: str) -> Any:
    """The specification once more, from a small table with every level."""
    import pandas

    rows = max([16, *(len(levels) for _, levels in variables.values())])
    table: dict[str, Any] = {}
    for name, (kind, levels) in variables.items():
        cycle = [levels[k % len(levels)] for k in range(rows)] if levels else list(np.arange(1.0, rows + 1))
        table[name] = pandas.Categorical(cycle, categories=list(levels)) if kind == CATEGORY else np.array(cycle)
    with plainly(text):
        spec = (
            formulaic()
            .Formula(text)
            .get_model_matrix(pandas.DataFrame(table), context=_context(), na_action="ignore", output="numpy")
            .model_spec
        )
    return spec.update(transform_state={key: _keys(value) for key, value in json.loads(state).items()})


def _keys(value: Any) -> Any:
    """JSON has texts for keys that were numbers."""
    if isinstance(value, dict):
        return {int(key) if re.fullmatch(r"-?\d+", key) else key: _keys(each) for key, each in value.items()}
    return value


def _number(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item()


def _context() -> dict[str, Any]:
    return {"np": np, "log": np.log, "exp": np.exp, "sqrt": np.sqrt}


def _pretty(name: str) -> str:
    """Without the marks that only formulaic needs: C(plan)[T.basic] is plan[basic]."""
    return re.sub(r"C\(([^(),]+)(?:,[^()]*(?:\([^()]*\))?[^()]*)?\)", r"\1", name).replace("[T.", "[")


@contextmanager
def plainly(formula: str) -> Iterator[None]:
    """Formulaic's errors in one line, of our own kind."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except DataError:
        raise
    except Exception as error:
        told = " ".join(_MARK.sub("", str(error)).split())
        raise DataError(f"the formula {formula!r} cannot be used: {told or type(error).__name__}") from error
