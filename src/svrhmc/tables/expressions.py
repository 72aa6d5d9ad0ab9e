"""Expressions in formulas, such as `np.log(age)` or `C(plan, Sum)`. They are read by a whitelist and computed here,
never by Python's `eval`.

A formula may come from a stranger, for instance in a saved posterior, so an expression can do nothing but calculate:

    expression = number | text | True | False | None | column | [constants]
               | expression (+ - * / // % **) expression        | (+ - not ~) expression
               | expression (< <= > >= == != in) expression     | expression (and or & |) expression
               | function(expressions, keyword=expression)

Columns are named, and any name may stand between backticks. Functions are those of `FUNCTIONS`, and those that the user
passes by name (`transforms`). There are no attributes except in dotted names, no subscripts, no lambdas and no
comprehensions. Lengths, depths, powers of numbers and sizes of bases are bounded, and anything beyond is refused at
once.

A function that learns from the table (the knots of a spline, the levels of a category) stores what it learned as plain
data in a dictionary, under the text of its call. It is read from there when new rows are computed.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from inspect import signature
from threading import Lock
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.cells import thousands_advice
from svrhmc.core.errors import DataError, did_you_mean, missing_package, requirement
from svrhmc.tables.columns import Level
from svrhmc.tables.surv import RESPONSES, SURV, TRUNC, response_labels

Value = Any  # of an expression: a number, a column, or what a transform of formulaic or of the user returns
State = dict[str, Any]  # what transforms learned from all rows, by the text of their calls
_PARSING = Lock()  # as ast.parse of Python 3.11 fails where threads call it at once
_LONGEST, _DEEPEST, _NODES, _CONSTANTS = 10_000, 100, 2_000, 10_000
_LARGEST = 1 << 63  # bound of whole numbers
_REMEMBERED = 5_000  # most numbers in a list of a stored state

_NUMPY_FUNCTIONS = (
    "abs", "absolute", "arccos", "arcsin", "arctan", "arctan2", "cbrt", "ceil", "clip", "cos", "cosh", "exp", "exp2",
    "expm1", "floor", "hypot", "isfinite", "isnan", "log", "log10", "log1p", "log2", "logical_and", "logical_not",
    "logical_or", "maximum", "minimum", "mod", "power", "rint", "round", "sign", "sin", "sinh", "sqrt", "square", "tan",
    "tanh", "trunc", "where",
)  # fmt: skip
_NAMED_CONSTANTS = {"np.pi": np.pi, "np.e": np.e, "np.nan": np.nan, "np.inf": np.inf}
_LARGEST_SIZES: dict[
    str, dict[str, int]
] = {  # of formulaic's functions, the largest whole numbers that some parameters take
    "bs": {"df": 1_000, "degree": 20},
    "cc": {"df": 1_000},
    "center": {},
    "cr": {"df": 1_000},
    "cs": {"df": 1_000},
    "hashed": {"levels": 10_000},
    "lag": {"k": 1_000_000},
    "poly": {"degree": 100},
    "scale": {},
    "standardize": {},
}
_CONTRASTS = {
    "Diff": "diff",
    "Helmert": "helmert",
    "Poly": "poly",
    "Sum": "sum",
    "Treatment": "treatment",
    "contr.SAS": "SAS",
    "contr.diff": "diff",
    "contr.helmert": "helmert",
    "contr.poly": "poly",
    "contr.sum": "sum",
    "contr.treatment": "treatment",
}
_OWN_FUNCTIONS = ("C", "I", "Q", *RESPONSES)
_NEVER_LEARN = frozenset(
    (*_NUMPY_FUNCTIONS, *(f"np.{name}" for name in _NUMPY_FUNCTIONS), "I", "Q", *RESPONSES)
)  # which never learn
SMOOTH = "s"  # the name of smooths, which are terms and no functions
_TAKE_NUMBERS = frozenset(_LARGEST_SIZES) - {"hashed", "lag"}
FUNCTIONS = frozenset(
    (*_NUMPY_FUNCTIONS, *(f"np.{name}" for name in _NUMPY_FUNCTIONS), *_LARGEST_SIZES, *_CONTRASTS, *_OWN_FUNCTIONS)
)
_WHAT_TO_WRITE = {  # names of other languages and libraries, and what to write here
    "as.factor": "write C(x)",
    "factor": "write C(x)",
    "ifelse": "write np.where(condition, a, b)",
    "mean": "a mean would be another one for new rows: write center(x), which keeps that of the table",
    "np.mean": "a mean would be another one for new rows: write center(x), which keeps that of the table",
    "np.std": "it would be another one for new rows: write scale(x), which keeps that of the table",
    "censored": "write cens(y, lower=…, upper=…) for the response",
    "truncated": "write trunc(y, lb=…, ub=…) for the response",
    "ns": "write cr(x, df=…), natural cubic splines",
    "cbind": "write the successes alone, and their trials as fit(…, 'binomial', trials='column')",
    "offset": "offset(x) and offset(log(x)) of a column stand by themselves behind a +; else make it a column, and "
    "give its name as fit(…, offset='column'), or fit(…, exposure='column') for its logarithm",
    SMOOTH: "a smooth such as s(x) is a term by itself, and stands in no expression",
}
_ARITHMETIC: dict[type[ast.AST], Callable[[Value, Value], Value]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_COMPARISONS: dict[type[ast.AST], Callable[[Value, Value], Value]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_ALLOWED_NODES = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Attribute, ast.Call, ast.keyword, ast.List, ast.Tuple,
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, *_ARITHMETIC, *_COMPARISONS, ast.BitAnd, ast.BitOr, ast.UAdd,
    ast.USub, ast.Not, ast.Invert, ast.And, ast.Or, ast.In, ast.NotIn,
)  # fmt: skip
_FUNCTION = re.compile(r"[^\W\d_]\w*(\.[^\W\d_]\w*)*")
_WORD = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|`(?P<quoted>[^`]+)`|(?P<word>[^\W\d]\w*)""", re.DOTALL
)


class Rows(NamedTuple):
    """Rows of a table, for expressions.

    columns: pandas series. transforms: the user's functions by name. state: what functions learned, by their calls.
    levels: the levels of the columns when they were fitted; None if these rows are the ones that are fitted, and then
    the state is filled.
    """

    columns: Mapping[str, Value]
    n: int
    transforms: Mapping[str, Callable[..., object]]
    state: State
    levels: Mapping[str, tuple[Level, ...]] | None = None


@dataclass(frozen=True)
class Expression:
    """A checked expression: its text as Python writes it, its syntax tree, and the column names that placeholders stand
    for.
    """

    text: str
    tree: ast.expr
    names: Mapping[str, str]

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The columns that it names, in order."""
        return tuple(dict.fromkeys(self._iterate_variables(self.tree)))

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """The functions that it calls and that are not in `FUNCTIONS`."""
        calls = [self.function_name(node) for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return tuple(dict.fromkeys(name for name in calls if name not in FUNCTIONS))

    @cached_property
    def category(self) -> str | None:
        """The column x if the expression is `C(x)`; else None."""
        tree = self.tree
        bare = (
            isinstance(tree, ast.Call) and self.function_name(tree) == "C" and len(tree.args) == 1 and not tree.keywords
        )
        return self.column_name(tree.args[0]) if bare and isinstance(tree, ast.Call) else None

    @property
    def survival(self) -> bool:
        """Whether it is `Surv(…)`, `cens(…)` or `trunc(…)`."""
        return isinstance(self.tree, ast.Call) and self.function_name(self.tree) in RESPONSES

    @property
    def open_columns(self) -> tuple[str, ...]:
        """The columns that hold bounds, which may be infinite or missing."""
        calls = (
            node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and self.function_name(node) == SURV
        )
        types = [word.value for node in calls for word in node.keywords if word.arg == "type"]
        is_open = any(isinstance(kind, ast.Constant) and kind.value == "interval2" for kind in types)
        return self.variables if is_open else ()

    def truncates(self, node: ast.Call) -> bool:
        """Whether the whole expression is `trunc(…)` of this call."""
        tree = self.tree
        if not isinstance(tree, ast.Call) or self.function_name(node) == TRUNC:
            return False
        return self.function_name(tree) == TRUNC and node in tree.args[:1]

    @property
    def makes_category(self) -> bool:
        """Whether it makes a category."""
        return isinstance(self.tree, ast.Call) and self.function_name(self.tree) in ("C", "hashed")

    @property
    def coded_column(self) -> str | None:
        """The column x if the expression is `C(x, …)`, with any contrasts; None if it codes computed levels."""
        tree = self.tree
        if not isinstance(tree, ast.Call) or self.function_name(tree) != "C" or not tree.args:
            return None
        return self.column_name(tree.args[0])

    @property
    def first_argument_columns(self) -> tuple[str, ...]:
        """The first column in each argument if the expression is a call without keywords; else ()."""
        if not isinstance(self.tree, ast.Call) or self.tree.keywords:
            return ()
        return tuple(next(self._iterate_variables(node), "") for node in self.tree.args)

    def compute(self, rows: Rows) -> Value:
        """The values of the expression for some rows."""
        for name in self.functions:
            if name not in rows.transforms:
                raise self._unknown_function_error(name)
        values = _Computation(self, rows).value(self.tree)
        if np.ndim(unwrapped(values)) == 0 and not isinstance(values, Mapping):
            raise self.error("it is the same for all rows")
        return _require_row_values(values, rows.n, self.text)

    @cached_property
    def learning_calls(self) -> tuple[ast.Call, ...]:
        """The calls that may learn from the table, inner ones first."""
        return tuple(
            node
            for node in _inner_first(self.tree)
            if isinstance(node, ast.Call)
            and (name := self.function_name(node)) not in _NEVER_LEARN
            and name not in _CONTRASTS
        )

    def call(self, node: ast.Call, rows: Rows) -> Call:
        """The function and the arguments of a call, before it is made."""
        values, name = _Computation(self, rows), self.function_name(node)
        return Call(
            name,
            None if name == "C" else function_of(name, rows.transforms),
            [values.argument_value(node, part) for part in node.args],
            {str(part.arg): values.argument_value(node, part.value) for part in node.keywords},
        )

    def learned_state(self, node: ast.Call, rows: Rows) -> dict[str, Value]:
        """What a call learned from the table that was fitted."""
        return _Computation(self, rows).learned_state(node)

    def call_key(self, node: ast.AST, legacy: bool = False) -> str:
        """The text of a call, under which its state is stored. legacy: the text that formulaic would write."""
        return _without_placeholders(ast.unparse(node), self.names, legacy)

    def _unknown_function_error(self, name: str) -> DataError:
        hint = f"{_WHAT_TO_WRITE[name]}." if name in _WHAT_TO_WRITE else did_you_mean(name, FUNCTIONS, 0.75)
        return DataError(
            f"the formula calls {name!r}, which is no function of formulas{': ' if hint else '.'}{hint} A function of "
            f"your own is passed by its name: fit(…, transforms={{{name!r}: …}}), and again for a saved model, "
            f"Posterior.load(path, transforms={{{name!r}: …}})."
        )

    def error(self, why: str) -> DataError:
        """The error that says why the expression cannot be used."""
        return DataError(f"the formula's {self.text[:80]!r} cannot be used: {why}.")

    def _iterate_variables(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Call):
            if self.function_name(node) == "Q":
                yield self.column_of_q(node)
                return
            for child in (*node.args, *(keyword.value for keyword in node.keywords)):
                if not self._is_contrast(node, child):
                    yield from self._iterate_variables(child)
        elif isinstance(node, ast.Name | ast.Attribute):
            name = self.column_name(node)
            if name is not None and name not in _NAMED_CONSTANTS:
                yield name
        else:
            for part in ast.iter_child_nodes(node):
                yield from self._iterate_variables(part)

    def column_name(self, node: ast.AST) -> str | None:
        """The name of a column, or the dotted name of a constant; None if the node is neither."""
        name = _dotted_name(node)
        return None if name is None else self.names.get(name, name)

    def function_name(self, node: ast.Call) -> str:
        """The dotted name of the function that a call calls."""
        name = _dotted_name(node.func) or ""
        return self.names.get(name, name)

    def _is_contrast(self, call: ast.Call, node: ast.AST) -> bool:
        """Whether an argument of C names contrasts, as in C(plan, Sum), and not a column."""
        return self.function_name(call) == "C" and node not in call.args[:1] and self.column_name(node) in _CONTRASTS

    def column_of_q(self, node: ast.Call) -> str:
        """The column that a call of Q names."""
        if len(node.args) != 1 or node.keywords or not isinstance(node.args[0], ast.Constant):
            raise self.error('Q takes the name of a column as a text, such as Q("a b")')
        return str(node.args[0].value)


class Call(NamedTuple):
    """A call in a formula: its name, its function (None for C), and the values of its arguments."""

    name: str
    function: Callable[..., object] | None
    arguments: list[Value]
    keywords: dict[str, Value]

    @property
    def learns(self) -> bool:
        """Whether the function learns from the table."""
        if self.function is None:
            return self.keywords.get("levels") is None
        return bool(getattr(self.function, "__is_stateful_transform__", False))


@lru_cache(maxsize=256)
def parse_expression(text: str) -> Expression:
    """Read an expression. Refuses what is not in the grammar.

    >>> parse_expression("np.log(`age in years`) + x").variables
    ('age in years', 'x')
    >>> parse_expression("__import__('os').system('ls')")
    Traceback (most recent call last):
    svrhmc.core.errors.DataError: the formula's "__import__('os').system('ls')" cannot be used: ...
    """
    if len(text) > _LONGEST:
        raise DataError(f"an expression in a formula must have at most {_LONGEST:,} signs; got {len(text):,}.")
    plain, names = _with_placeholders(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _PARSING:
                tree: ast.expr = ast.parse(plain.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError | MemoryError) else "it cannot be read"
        raise DataError(
            f"the formula's {text[:80]!r} cannot be used: {why}. Names with signs in them stand between backticks."
        ) from None
    checked = Expression(text, tree, names)
    _require_allowed(checked, tree, 0)
    if sum(1 for _ in ast.walk(tree)) > _NODES:
        raise checked.error(f"it has more than {_NODES:,} parts")
    checked_expression = Expression(_without_placeholders(ast.unparse(tree), names), tree, names)
    checked_expression.variables  # noqa: B018 -- refuses a Q that names no column
    return checked_expression


def require_transforms(transforms: Mapping[str, Callable[..., object]] | None) -> dict[str, Callable[..., object]]:
    """The user's functions by name. Refuses what is no function, and names that formulas have already."""
    if transforms is None:
        return {}
    if not isinstance(transforms, Mapping):
        raise requirement("transforms", "a dictionary of functions by name", type(transforms).__name__)
    for name, function in transforms.items():
        if not _FUNCTION.fullmatch(str(name)):
            raise requirement("transforms", "a dictionary of functions by name", f"the name {name!r}")
        if not callable(function):
            raise requirement("transforms", "a dictionary of functions by name", f"{name!r}: {function!r}"[:80])
        if name in FUNCTIONS:
            raise requirement("transforms", "of names that formulas do not have", repr(name), "take another name")
    return dict(transforms)


def require_state(state: Value, depth: int = 0) -> None:
    """Refuse a stored state that holds anything but numbers, texts, and lists and dictionaries of these."""
    if depth > 6:
        raise ValueError("a state that is nested too deeply")
    if isinstance(state, dict):
        for name, value in state.items():
            if isinstance(value, list) and name != "levels" and np.size(np.array(value, object)) > _REMEMBERED:
                raise ValueError("a state of too many numbers")
            require_state(value, depth + 1)
    elif isinstance(state, list):
        for value in state:
            require_state(value, depth + 1)
    elif not (state is None or isinstance(state, bool | int | float | str)):
        raise TypeError(f"a state of {type(state).__name__}")


def _require_allowed(whole: Expression, node: ast.AST, depth: int) -> None:
    """Refuse a node that is not in the grammar, with all nodes below it."""
    if depth > _DEEPEST:
        raise whole.error(f"it is nested more than {_DEEPEST} times")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
        raise whole.error("powers are written **, not ^, within a function or braces")
    if not isinstance(node, _ALLOWED_NODES):
        kind = type(node).__name__.lower()
        raise whole.error(f"a formula has numbers, texts, columns, operators and functions, and no {kind}")
    if isinstance(node, ast.Constant):
        _require_allowed_constant(whole, node.value)
    if isinstance(node, ast.List | ast.Tuple):
        if len(node.elts) > _CONSTANTS:
            raise whole.error(f"a list in it has more than {_CONSTANTS:,} entries")
        inner = [element.operand if isinstance(element, ast.UnaryOp) else element for element in node.elts]
        if not all(isinstance(element, ast.Constant) for element in inner):
            raise whole.error("a list in it may hold numbers and texts only")
    if isinstance(node, ast.Call) and not _FUNCTION.fullmatch(whole.function_name(node)):
        raise whole.error("only functions that stand by their names can be called")
    if isinstance(node, ast.Attribute):
        if _dotted_name(node) is None:
            raise whole.error("a formula takes no attributes")
        return
    if isinstance(node, ast.keyword) and (node.arg is None or node.arg.startswith("_")):
        raise whole.error("keywords of a function have names, and none that begins with _")
    for child in ast.iter_child_nodes(node):
        _require_allowed(whole, child, depth + 1)


def _require_allowed_constant(whole: Expression, value: Value) -> None:
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise whole.error("a number in it is beyond 2**63")
    if not (value is None or isinstance(value, bool | int | float | str)):
        raise whole.error(f"a formula takes no {type(value).__name__}")


class _Computation:
    """The values of one expression at some rows."""

    def __init__(self, whole: Expression, rows: Rows) -> None:
        self.expression, self.columns, self.rows = whole, rows.columns, rows.n
        self.transforms, self.state, self.levels = rows.transforms, rows.state, rows.levels

    def value(self, node: Value) -> Value:
        """The value of one node of the syntax tree."""
        compute: dict[type[ast.AST], Callable[[], Value]] = {
            ast.Constant: lambda: node.value,
            ast.List: lambda: [self.value(element) for element in node.elts],
            ast.Tuple: lambda: [self.value(element) for element in node.elts],
            ast.Name: lambda: self._named_value(node),
            ast.Attribute: lambda: self._named_value(node),
            ast.BinOp: lambda: self._binary_value(node),
            ast.UnaryOp: lambda: self._unary_value(node),
            ast.BoolOp: lambda: self._boolean_value(node),
            ast.Compare: lambda: self._comparison_value(node),
            ast.Call: lambda: self._call_value(node),
        }
        with np.errstate(all="ignore"):
            return compute[type(node)]()

    def _named_value(self, node: ast.AST) -> Value:
        name = str(self.expression.column_name(node))
        if name in self.columns:
            return self.columns[name]
        if name in _NAMED_CONSTANTS:
            return _NAMED_CONSTANTS[name]
        raise self.expression.error(f"there is no column {name!r}")

    def _binary_value(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.BitAnd | ast.BitOr):
            a, b = self._as_truth(left), self._as_truth(right)
            return a & b if isinstance(node.op, ast.BitAnd) else a | b
        return self._arithmetic(_ARITHMETIC[type(node.op)], self._as_number(left), self._as_number(right))

    def _arithmetic(self, operation: Callable[[Value, Value], Value], a: Value, b: Value) -> Value:
        if not (isinstance(a, int | float) and isinstance(b, int | float)):
            return operation(a, b)
        try:
            result = operation(float(a), float(b))  # of bounded size, whatever the numbers are
            if not isinstance(result, float):
                raise ArithmeticError
        except ArithmeticError:
            raise self.expression.error("a number in it is not defined or too large") from None
        if isinstance(a, int) and isinstance(b, int) and result.is_integer() and abs(result) < _LARGEST:
            exact = operation(a, b)
            return int(exact) if isinstance(exact, int) else result
        return result

    def _unary_value(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not | ast.Invert):
            return ~self._as_truth(value)
        number = self._as_number(value)
        return number if isinstance(node.op, ast.UAdd) else -number

    def _boolean_value(self, node: ast.BoolOp) -> Value:
        truth, *others = (self._as_truth(self.value(operand)) for operand in node.values)
        for other in others:
            truth = truth & other if isinstance(node.op, ast.And) else truth | other
        return truth

    def _comparison_value(self, node: ast.Compare) -> Value:
        left, result = self.value(node.left), None
        for sign, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator)
            if isinstance(sign, ast.In | ast.NotIn):
                if not isinstance(right, list) or not hasattr(left, "isin"):
                    raise self.expression.error("'in' stands between a column and a list")
                holds = left.isin(right) if isinstance(sign, ast.In) else ~left.isin(right)
            elif not (hasattr(left, "dtype") or hasattr(right, "dtype")):
                raise self.expression.error("a comparison in it names no column")
            else:
                holds = _COMPARISONS[type(sign)](left, right)
            result = holds if result is None else result & holds
            left = right
        return result

    def _as_truth(self, value: Value) -> Value:
        if getattr(getattr(value, "dtype", None), "kind", "") != "b":
            raise self.expression.error("and, or, not, & and | join truth values, such as comparisons")
        return value

    def _as_number(self, value: Value) -> Value:
        """A number, or a column of numbers; truth values become 0 and 1."""
        if isinstance(value, bool | np.bool_):
            return int(value)
        if isinstance(value, int | float):
            return value
        kind = getattr(getattr(value, "dtype", None), "kind", "")
        if kind == "b":
            return value.astype(np.float64)
        if kind not in ("i", "u", "f") or np.ndim(value) == 0:
            raise self.expression.error(self._why_no_number(value))
        return value

    def _why_no_number(self, value: Value) -> str:
        """Why arithmetic cannot take a value, and what to do about a column of texts."""
        name = getattr(value, "name", None)
        if name not in self.columns:
            return "arithmetic takes numbers, not texts or lists"
        texts = list(dict.fromkeys(value.tolist()))
        remedy = thousands_advice(texts)
        if not remedy:
            remedy = f"texts such as {str(texts[0])!r}, and arithmetic takes numbers: make numbers of them first"
        return f"column {name!r} holds {remedy}"

    def _call_value(self, node: ast.Call) -> Value:
        name = self.expression.function_name(node)
        if name == "Q":
            return self.columns[self.expression.column_of_q(node)]
        arguments = [self.argument_value(node, argument) for argument in node.args]
        keywords = {str(keyword.arg): self.argument_value(node, keyword.value) for keyword in node.keywords}
        if name == "C":
            return self._category_value(node, *arguments, **keywords)
        if name == "I":
            if len(arguments) != 1 or keywords:
                raise self.expression.error("I takes one expression")
            return arguments[0]
        if name in RESPONSES:
            if node is not self.expression.tree and not self.expression.truncates(node):
                raise self.expression.error(f"{name}(…) is the whole response, and part of no expression")
            return response_labels(name, self.rows, node is self.expression.tree, *arguments, **keywords)
        if name in _CONTRASTS:
            return _contrast(name, *arguments, **keywords)
        if name.removeprefix("np.") in _NUMPY_FUNCTIONS:
            return self._elementwise(name.removeprefix("np."), arguments, keywords)
        function = function_of(name, self.transforms)
        texts = arguments and getattr(getattr(arguments[0], "dtype", None), "kind", "") in ("O", "U")
        if texts and name in _TAKE_NUMBERS and name not in self.transforms:
            self._as_number(arguments[0])
        if name in _LARGEST_SIZES:
            self._require_size(name, function, arguments, keywords)
        if getattr(function, "__is_stateful_transform__", False):
            keywords["_state"] = self.learned_state(node)
        return _require_row_values(function(*arguments, **keywords), self.rows, name)

    def argument_value(self, call: ast.Call, node: ast.AST) -> Value:
        """The value of an argument of a call, or the contrasts that it names."""
        return (
            _contrast(str(self.expression.column_name(node)))
            if self.expression._is_contrast(call, node)
            else self.value(node)
        )

    def _elementwise(self, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        if keywords and name not in ("clip", "round"):
            raise self.expression.error(f"{name} takes no keywords")
        if name == "where":
            return self._where_value(*arguments)
        if name.startswith("logical_"):
            return getattr(np, name)(*map(self._as_truth, arguments))
        numbers = [self._as_number_or_none(name, argument) for argument in arguments]
        return getattr(np, name)(
            *numbers, **{word: self._as_number_or_none(name, argument) for word, argument in keywords.items()}
        )

    def _as_number_or_none(self, name: str, value: Value) -> Value:
        """As `_as_number`; but None is allowed for the bounds of clip."""
        return None if value is None and name == "clip" else self._as_number(value)

    def _where_value(self, condition: Value = None, then: Value = None, otherwise: Value = None) -> Value:
        if isinstance(then, str) and isinstance(otherwise, str):
            return np.where(self._as_truth(condition), then, otherwise).astype(object)
        return np.where(self._as_truth(condition), self._as_number(then), self._as_number(otherwise))

    def _require_size(self, name: str, function: Value, arguments: list[Value], keywords: dict[str, Value]) -> None:
        """Refuse bases so large that they can only be a mistake or an attack, before anything is computed."""
        try:
            bound = signature(function).bind(*arguments, **keywords).arguments
        except TypeError as error:
            raise self.expression.error(f"{name}: {error}") from None
        for word, most in _LARGEST_SIZES[name].items():
            value = bound.get(word)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or abs(value) > most:
                shown = value if isinstance(value, int | float | str) else type(value).__name__
                raise self.expression.error(
                    f"{word} of {name} must be a whole number up to {most:,}; got {shown!r:.40}"
                )
        for word in ("knots", "levels"):
            if isinstance(bound.get(word), list) and len(bound[word]) > 1_000:
                raise self.expression.error(f"{word} of {name} must be a list of at most 1,000")

    def learned_state(self, node: ast.Call) -> dict[str, Value]:
        """What a call learned; for the table that is fitted, an empty dictionary for the function to fill."""
        key = self.expression.call_key(node)
        if self.levels is None:
            learned: dict[str, Value] = self.state.setdefault(key, {})
            return learned
        for stored_key in (key, self.expression.call_key(node, legacy=True)):
            if stored_key in self.state:
                return {
                    name: value if name == "levels" else _restored_state(value)
                    for name, value in self.state[stored_key].items()
                }
        raise self.expression.error(f"the model does not hold what {key!r} learned from its table")

    def _category_value(self, node: ast.Call, *arguments: Value, **keywords: Value) -> Value:
        """C(values, contrasts, levels=…, spans_intercept=…). Values that are not among its levels are refused."""
        values = arguments[0] if arguments else keywords.pop("data", None)
        if not hasattr(values, "dtype") or np.ndim(values) != 1:
            raise self.expression.error("C takes a column")
        levels = keywords.get("levels")
        if levels is None:
            state = self._learned_levels(node)
            if "levels" not in state:
                categorical = hasattr(values, "cat")
                state["levels"] = values.cat.categories.tolist() if categorical else _sorted_levels(np.asarray(values))
            levels = state["levels"]
        unknown = set(np.asarray(values).tolist()) - set(levels)
        if unknown:
            shown = ", ".join(map(repr, levels[:8])) + (", …" if len(levels) > 8 else "")
            raise self.expression.error(
                f"{sorted(map(repr, unknown))[0]} is not among its levels ({shown}), so nothing is known about it"
            )
        options = {**keywords, "levels": levels}
        return _formulaic_transforms().C(values, *arguments[1:], **options)

    def _learned_levels(self, node: ast.Call) -> dict[str, Value]:
        """The state of a call of C; if an old file has none, the levels of the column in it."""
        try:
            return self.learned_state(node)
        except DataError:
            column = self.expression.column_name(node.args[0]) if node.args else None
            if self.levels is None or not self.levels.get(str(column)):
                raise
            return {"levels": list(self.levels[str(column)])}


def response_in_words(text: str) -> str:
    """What a response is called: "time until event" for Surv(time, event) and Surv(start, stop, event), the time if
    there is no event, and the text itself for other responses.

    >>> response_in_words("Surv(time, status == 'died')"), response_in_words("Surv(time)"), response_in_words("log(y)")
    ('time until status', 'time', 'log(y)')
    """
    if not text.startswith(f"{SURV}("):
        return text
    try:
        names = parse_expression(text).first_argument_columns
    except DataError:
        return text
    if not names or not all(names):
        return text
    *times, event = names
    return f"{times[-1]} until {event}" if times else event


def function_of(name: str, transforms: Mapping[str, Callable[..., object]]) -> Callable[..., object]:
    """The user's function of this name, or formulaic's."""
    function: Callable[..., object] = (
        transforms[name] if name in transforms else _formulaic_transforms().TRANSFORMS[name]
    )
    return function


def _inner_first(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield from _inner_first(child)
    yield node


def wrapped_columns(value: Value) -> list[Value]:
    """The columns of a basis, which formulaic has in a dictionary; any other value is the only column."""
    inner = unwrapped(value)
    if not isinstance(inner, dict):
        return [inner]
    return [column for name, column in inner.items() if not str(name).startswith("__")]


def unwrapped(value: Value) -> Value:
    """The value within a wrapper of formulaic's, or the value itself."""
    return getattr(value, "__wrapped__", value)


def _require_row_values(value: Value, rows: int, name: str) -> Value:
    """The value that a function returned. Refuses a value without one number, or one list of numbers, for each row."""
    for part in wrapped_columns(value):
        if getattr(part, "ndim", np.ndim(part)) not in (0, 1, 2) or (np.ndim(part) and np.shape(part)[0] != rows):
            raise DataError(f"{name} must give one value for each of {rows:,} rows; got shape {np.shape(part)}.")
    return value


def _sorted_levels(values: Value) -> list[Value]:
    try:
        return sorted(set(values.tolist()))
    except TypeError:
        raise DataError("the levels of a category must be all texts or all numbers.") from None


def _contrast(name: str, *arguments: Value, **keywords: Value) -> Value:
    if name == "Treatment":  # patsy calls the base "reference"
        keywords = {"base" if word == "reference" else word: value for word, value in keywords.items()}
    return getattr(_formulaic_transforms().ContrastsRegistry, _CONTRASTS[name])(*arguments, **keywords)


def _formulaic_transforms() -> ModuleType:
    """Formulaic's functions, or an error that says how to install it."""
    try:
        return import_module("formulaic.transforms")
    except ModuleNotFoundError:
        raise missing_package("formulaic", "formula", "a formula") from None


def _dotted_name(node: ast.AST) -> str | None:
    """The text of a name such as a or a.b.c; None for any other node."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted_name(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None


def _with_placeholders(text: str) -> tuple[str, dict[str, str]]:
    """The text with a placeholder for each name between backticks, and for each name that Python would change (it
    normalises letters such as µ), with the names by placeholder. Quoted texts stay as they are.
    """
    prefix = "column_"
    while prefix in text:
        prefix += "_"
    placeholders: dict[str, str] = {}

    def replacement(match: re.Match[str]) -> str:
        name = match["quoted"] or match["word"]
        if match["text"] is not None or (match["word"] is not None and name.isascii()):
            return match[0]
        placeholder = placeholders.setdefault(name, f"{prefix}{len(placeholders)}")
        return f" {placeholder} " if match["quoted"] else placeholder

    plain = _WORD.sub(replacement, text)
    return plain, {placeholder: name for name, placeholder in placeholders.items()}


def _without_placeholders(text: str, names: Mapping[str, str], legacy: bool = False) -> str:
    """The text with the names in the place of their placeholders, between backticks if they need them."""
    if not names:
        return text

    def replacement(match: re.Match[str]) -> str:
        name = names[match[0]]
        if legacy:
            plain = re.sub(r"\W", "_", name)
            return f"_{plain}" if plain[0].isdigit() else plain
        return name if is_word(name) else f"`{name}`"

    return re.sub("|".join(rf"\b{re.escape(placeholder)}\b" for placeholder in names), replacement, text)


def is_word(name: str) -> bool:
    """Whether a name needs no backticks in a formula."""
    return name.isidentifier() and not keyword.iskeyword(name)


def _restored_state(value: Value) -> Value:
    """A stored state as its transformation had it: keys that were numbers are texts in JSON, and arrays are lists."""
    if isinstance(value, dict):
        return {int(key) if re.fullmatch(r"-?\d+", key) else key: _restored_state(item) for key, item in value.items()}
    return np.array(value, np.float64) if isinstance(value, list) else value
