"""Columns of a design as expressions that any language can compute, written as plain lists, as in JSON.

    expression = number | ["column", name] | ["level", column, value]          1 where the column has this value, else 0
               | ["+", …] | ["*", …] | ["-", a, b] | ["/", a, b] | ["**", a, b]
               | ["<" | "<=" | "==", a, b]                                        1 where it holds, else 0
               | ["if", condition, a, b] | ["min", a, b] | ["max", a, b]
               | [function, a]                                                    of `FUNCTIONS`
               | ["pieces", x, knots, polynomials, below, above]

Pieces are the one form of all splines and polynomials: with knots k₀ < … < k_m and k_i ≤ x < k_{i+1} (the last piece
has its end too), s = (x − k_i)/(k_{i+1} − k_i) and the value is Σ_p c_p s^p, c = polynomials[i]. Below k₀ and above k_m
the coefficients are `below` and `above`, in the s of the first and of the last piece; null: there is no value.

The bases of formulaic (bs, cr, cs) are polynomials between their knots, and these are found from its own values: of a
polynomial of degree p, at p + 1 points of each piece.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError
from svrhmc.tables.expressions import Expression, Rows, function_of, wrapped_columns

Portable = Any  # an expression: a number, or a list whose first entry says what it is
FUNCTIONS = ("abs", "exp", "log", "sqrt", "floor", "ceil", "sin", "cos", "tan", "tanh")
_SPLINES = {"bs": 3, "cr": 3, "cs": 3}  # by name, the degree of their pieces unless it is given
_MOST_DEGREE = {"bs": 7, "poly": 12}  # up to these, powers of s lose no more than a few digits
_BEYOND = 1.0  # how far beyond the last knot, in widths of the last piece, a spline is evaluated


def column(name: str) -> Portable:
    """A column of the table."""
    return ["column", name]


def level(name: str, value: object) -> Portable:
    """1 where a column has a value."""
    return ["level", name, value]


def product(parts: list[Portable]) -> Portable:
    """The product of some expressions; 1 for none."""
    several = [part for part in parts if part != 1.0]
    return 1.0 if not several else several[0] if len(several) == 1 else ["*", *several]


def total(parts: list[Portable]) -> Portable:
    """The sum of some expressions; 0 for none."""
    return 0.0 if not parts else parts[0] if len(parts) == 1 else ["+", *parts]


def pieces(x: Portable, knots: Array, coefficients: Array, below: Array | None, above: Array | None) -> Portable:
    """A polynomial in each piece: coefficients (pieces, powers)."""
    ends = [None if end is None or not np.isfinite(end).all() else end.tolist() for end in (below, above)]
    return ["pieces", x, knots.tolist(), coefficients.tolist(), *ends]


def portable(expression: Expression, rows: Rows) -> list[Portable]:
    """The columns that an expression of numbers makes. rows: with what its functions learned of the table."""
    return _Translation(expression, rows).columns(expression.tree)


class _Translation:
    def __init__(self, expression: Expression, rows: Rows) -> None:
        self.expression, self.rows = expression, rows

    def columns(self, node: ast.AST) -> list[Portable]:
        """The columns that a node makes: several for a spline or polynomials, else one."""
        if isinstance(node, ast.Call):
            name = self.expression.function_name(node)
            if name == "poly":
                return self._polynomials(node)
            if name in _SPLINES:
                return self._splines(node, name)
        return [self.number(node)]

    def number(self, node: Any) -> Portable:
        """The expression of a node with one number for each row."""
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            return float(node.value)
        if isinstance(node, ast.Name | ast.Attribute):
            name = str(self.expression.column_name(node))
            return {"np.pi": np.pi, "np.e": np.e}.get(name, column(name))
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.UnaryOp):
            inner = self.number(node.operand)
            signs: dict[type[ast.AST], Portable] = {ast.UAdd: inner, ast.USub: ["*", -1.0, inner]}
            return signs.get(type(node.op), ["-", 1.0, inner])
        if isinstance(node, ast.BoolOp):
            parts = [self.number(part) for part in node.values]
            return product(parts) if isinstance(node.op, ast.And) else reduce(lambda a, b: ["max", a, b], parts)
        if isinstance(node, ast.Compare):
            return self._comparisons(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise self._not_exportable(node)

    def _binary(self, node: ast.BinOp) -> Portable:
        a, b = self.number(node.left), self.number(node.right)
        quotient = ["floor", ["/", a, b]]
        ways: dict[type[ast.AST], Portable] = {
            ast.Add: ["+", a, b], ast.Sub: ["-", a, b], ast.Mult: ["*", a, b], ast.Div: ["/", a, b],
            ast.Pow: ["**", a, b], ast.FloorDiv: quotient, ast.Mod: ["-", a, ["*", b, quotient]],
            ast.BitAnd: ["*", a, b], ast.BitOr: ["max", a, b],
        }  # fmt: skip
        return ways[type(node.op)]

    def _comparisons(self, node: ast.Compare) -> Portable:
        parts, left = [], node.left
        for sign, right in zip(node.ops, node.comparators, strict=True):
            parts.append(self._comparison(left, sign, right))
            left = right
        return product(parts)

    def _comparison(self, left: Any, sign: ast.AST, right: Any) -> Portable:
        if isinstance(sign, ast.In | ast.NotIn):
            inside = total([self._equal(left, item) for item in right.elts])
            return inside if isinstance(sign, ast.In) else ["-", 1.0, inside]
        if isinstance(sign, ast.Eq | ast.NotEq):
            equal = self._equal(left, right)
            return equal if isinstance(sign, ast.Eq) else ["-", 1.0, equal]
        a, b = self.number(left), self.number(right)
        ways: dict[type[ast.AST], Portable] = {
            ast.Lt: ["<", a, b], ast.LtE: ["<=", a, b], ast.Gt: ["<", b, a], ast.GtE: ["<=", b, a]
        }  # fmt: skip
        return ways[type(sign)]

    def _equal(self, left: Any, right: Any) -> Portable:
        for a, b in ((left, right), (right, left)):
            name = self.expression.column_name(a)
            if name is not None and isinstance(b, ast.Constant) and isinstance(b.value, str):
                return level(name, b.value)
        return ["==", self.number(left), self.number(right)]

    def _call(self, node: ast.Call) -> Portable:
        name = self.expression.function_name(node)
        if name == "Q":
            return column(self.expression.column_of_q(node))
        if name in ("center", "scale", "standardize"):
            return self._scaled(node)
        bare = name.removeprefix("np.")
        if node.keywords or name in self.rows.transforms:
            raise self._not_exportable(node)
        inner = [self.number(part) for part in node.args]
        if name == "I" or bare == "absolute":
            return inner[0] if name == "I" else ["abs", *inner]
        if bare in FUNCTIONS:
            return [bare, *inner]
        if (write := _WRITTEN.get(bare)) is None:
            raise self._not_exportable(node)
        return write(*inner)

    def _scaled(self, node: ast.Call) -> Portable:
        state = self.expression.learned_state(node, self.rows)
        out = self.number(node.args[0])
        if state.get("center") is not None:
            out = ["-", out, float(state["center"])]
        return out if state.get("scale") is None else ["/", out, float(state["scale"])]

    def _polynomials(self, node: ast.Call) -> list[Portable]:
        """Orthogonal polynomials by their recurrence, p_{k+1} = (x − α_k)p_k − (N_k/N_{k−1})p_{k−1}, over √N_k."""
        call = self.expression.call(node, self.rows)
        options = dict(zip(("degree", "raw"), call.arguments[1:], strict=False)) | call.keywords
        degree, x = int(options.get("degree", 1)), self.number(node.args[0])
        if degree > _MOST_DEGREE["poly"]:
            raise self._not_exportable(node, f"its degree is above {_MOST_DEGREE['poly']}")
        if options.get("raw", False):
            return [["**", x, float(power)] for power in range(1, degree + 1)]
        state = self.expression.learned_state(node, self.rows)
        alpha, norms = ({int(k): float(v) for k, v in state[name].items()} for name in ("alpha", "norms2"))
        centre, width = alpha[0], float(np.sqrt(norms[1] / norms[0]))
        polynomial = np.polynomial.Polynomial
        s = polynomial([0.0, width])  # x − centre, of s = (x − centre)/width
        before, now, out = polynomial([0.0]), polynomial([1.0]), []
        for k in range(degree):
            ratio = norms[k] / norms[k - 1] if k else 0.0
            before, now = now, (s + (centre - alpha[k])) * now - ratio * before
            c = now.coef / np.sqrt(norms[k + 1])
            out.append(pieces(x, np.array([centre, centre + width]), c[None], c, c))
        return out

    def _splines(self, node: ast.Call, name: str) -> list[Portable]:
        call = self.expression.call(node, self.rows)
        default: Any = call.arguments[3] if len(call.arguments) > 3 else _SPLINES[name]
        degree = int(call.keywords.get("degree", default))
        if degree > _MOST_DEGREE["bs"]:
            raise self._not_exportable(node, f"its degree is above {_MOST_DEGREE['bs']}")
        state = self.expression.learned_state(node, self.rows)
        knots, function = np.unique(np.asarray(state["knots"], np.float64)), function_of(name, {})
        nodes = (1 - np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))) / 2  # Chebyshev's, in (0, 1)
        powers = np.linalg.inv(nodes[:, None] ** np.arange(degree + 1))

        def values(x: Array) -> Array:
            basis = function(x, *call.arguments[1:], **call.keywords, _state=dict(state))
            return np.asarray(np.column_stack(wrapped_columns(basis)), np.float64)

        def fitted(first: float, width: float, at: Array) -> Array:
            """Coefficients (columns, powers) in s = (x − first)/width, from values at s = at."""
            back = powers if at is nodes else np.linalg.inv(at[:, None] ** np.arange(degree + 1))
            return (back @ values(first + width * at)).T

        def outside(first: float, width: float, at: Array) -> Array | None:
            try:
                return fitted(first, width, at)
            except ValueError:  # formulaic refuses what is beyond the knots
                return None

        inner = np.stack([fitted(a, b - a, nodes) for a, b in pairwise(knots)], axis=1)  # (columns, pieces, powers)
        below = outside(knots[0], knots[1] - knots[0], -_BEYOND * nodes)
        above = outside(knots[-2], knots[-1] - knots[-2], 1 + _BEYOND * nodes)
        x = self.number(node.args[0])
        return [
            pieces(x, knots, coefficients, None if below is None else below[j], None if above is None else above[j])
            for j, coefficients in enumerate(inner)
        ]

    def _not_exportable(self, node: ast.AST, why: str = "") -> DataError:
        what = self.expression.call_key(node)[:80]
        why = why or "it has no form that other languages compute"
        return DataError(f"the formula's {what!r} cannot be exported: {why}. Compute it in a column of the table.")


_WRITTEN: dict[str, Callable[..., Portable]] = {
    "square": lambda a: ["*", a, a],
    "exp2": lambda a: ["**", 2.0, a],
    "expm1": lambda a: ["-", ["exp", a], 1.0],
    "log1p": lambda a: ["log", ["+", 1.0, a]],
    "log2": lambda a: ["/", ["log", a], float(np.log(2))],
    "log10": lambda a: ["/", ["log", a], float(np.log(10))],
    "sign": lambda a: ["-", ["<", 0.0, a], ["<", a, 0.0]],
    "power": lambda a, b: ["**", a, b],
    "mod": lambda a, b: ["-", a, ["*", b, ["floor", ["/", a, b]]]],
    "minimum": lambda a, b: ["min", a, b],
    "maximum": lambda a, b: ["max", a, b],
    "clip": lambda a, low, high: ["min", ["max", a, low], high],
    "where": lambda condition, a, b: ["if", condition, a, b],
    "hypot": lambda a, b: ["sqrt", ["+", ["*", a, a], ["*", b, b]]],
    "logical_and": lambda a, b: ["*", a, b],
    "logical_or": lambda a, b: ["max", a, b],
    "logical_not": lambda a: ["-", 1.0, a],
}
