"""What can be said of coefficients: quantiles, intervals, and the probability of a statement.

The means and sds that a posterior reports are better than those of its draws where they were corrected by the gradients
at the draws. So that intervals agree with them, draws x are moved and stretched, coordinate by coordinate:

    x′ⱼ = mⱼ + (xⱼ − x̄ⱼ)·sⱼ/ŝⱼ,          q_p(x′ⱼ) = mⱼ + sⱼ·q_p((xⱼ − x̄ⱼ)/ŝⱼ),

with m and s the reported moments, x̄ and ŝ those of the draws at hand. Then x′ has the mean and the sd that are
reported; what is left to chance is the shape of the standardised law alone, and correlations stay as they are. Where
the posterior is known to be Gaussian that shape is known too, and quantiles are mⱼ + sⱼΦ⁻¹(p).

A statement such as "age > 0 and abs(dose) < 2*age" is read by a small grammar of its own, never by Python:

    operators, from those that bind least:    or    and    not    < <= > >= == !=    + -    * /    signs    **
    operands:    number | name | function "(" statement ")" | "(" statement ")"

Names are those of the coefficients, the longest that fits first, so that `plan[pro]` and `C: age` need no quotes;
between backticks stands a name as it is.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import did_you_mean, requirement
from svrhmc.core.summaries import array_name, quantile_levels
from svrhmc.diagnostics import some_columns

Value = Any  # an array of numbers or of truth values: of a part of a statement, under every draw or of a constant

_FUNCTIONS: dict[str, Callable[[Array], Array]] = {"abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt}
_LOGIC: dict[str, Callable[[Value, Value], Value]] = {"or": operator.or_, "and": operator.and_}
_COMPARISONS: dict[str, Callable[[Value, Value], Value]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Value, Value], Value]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip
_BINDING = {"or": 1, "and": 2, **dict.fromkeys(_COMPARISONS, 4), "+": 5, "-": 5, "*": 6, "/": 6, "**": 8}
_NOT, _SUM, _SIGNED = 3, 5, 7  # how tightly "not", what is compared, and a sign bind
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?")
_WORD = re.compile(r"[^\W\d][\w.]*(\[[^\]]*\])?")
_OPERATOR = re.compile(r"\*\*|<=|>=|==|!=|[-+*/()<>]")
_END = ("end", "the end")
_DEEPEST = 50  # brackets within brackets


def match_moments(x: Array, mean: Array, sd: Array) -> Array:
    """Shift and scale draws (draws, dim) so that they have these means and standard deviations."""
    if len(x) < 2:
        return x
    sds = x.std(axis=0, ddof=1)
    return np.asarray(mean + (x - x.mean(axis=0)) * (sd / np.where(sds > 0, sds, 1.0)), np.float64)


def quantiles(x: Array, mean: Array, sd: Array, levels: float | Sequence[float], gaussian: bool) -> Array:
    """Quantiles of each coordinate, (levels…, dim), from draws (draws, dim)."""
    flat = np.asarray(quantile_levels(levels), np.float64)
    if gaussian:
        from scipy.special import ndtri

        values = mean + sd * ndtri(flat)[:, None]
    else:
        blocks = some_columns(len(x), len(mean))
        parts = (match_moments(x[:, s], mean[s], sd[s]) for s in blocks)
        values = np.concatenate([np.quantile(part, flat, axis=0) for part in parts], axis=1)
    return np.asarray(values, np.float64).reshape(*np.shape(levels), len(mean))


def probability(text: object, names: Sequence[str], x: Array, factors: Sequence[str] = ()) -> float:
    """The share of draws (draws, dim) for which a statement holds. factors: of groups, whose effects have no names.

    >>> probability("age > 0 and `plan[pro]` < age", ["age", "plan[pro]"], np.array([[1.0, 0.5], [1.0, 2.0]]))
    0.5
    """
    if not isinstance(text, str) or not text.strip():
        raise requirement("the statement", 'a text such as "age > 0"', repr(text))
    holds = _Reader(text, names, x, factors).value()
    if holds.dtype != bool:
        raise requirement("the statement", 'true or false, such as "age > 0"', repr(text), "nothing is compared in it")
    return float(np.broadcast_to(holds, len(x)).mean())


class _Reader:
    """A statement: its tokens, and the position of the next one to be read."""

    def __init__(self, text: str, names: Sequence[str], x: Array, factors: Sequence[str]) -> None:
        self._text, self._x, self._factors = text, x, factors
        self._columns = {name: j for j, name in enumerate(names)}
        self._longest_first = sorted(self._columns, key=len, reverse=True)
        self._tokens, self._position, self._depth = self._tokenise(), 0, 0

    def value(self) -> Value:
        """The value of the whole statement under every draw."""
        with np.errstate(all="ignore"):
            value = self._expression()
        if self._peek() is not _END:
            raise self._error(f"{self._peek()[1]!r} stands where nothing more is expected")
        return value

    # Tokens: pairs of a kind (name, number, function or operator) and a text

    def _tokenise(self) -> list[tuple[str, str]]:
        tokens, start = [], 0
        while start < len(self._text):
            if self._text[start].isspace():
                start += 1
                continue
            kind, token, start = self._read_token(start)
            tokens.append((kind, token))
        return tokens

    def _read_token(self, start: int) -> tuple[str, str, int]:
        """Kind and text of the token that begins at `start`, and the position after it."""
        text = self._text
        if text[start] == "`":
            end = text.find("`", start + 1)
            if end < 0:
                raise self._error("a backtick has no second one")
            return "name", self._name(text[start + 1 : end]), end + 1
        for name in self._longest_first:
            if text.startswith(name, start) and _is_whole_word(text, start, name):
                return "name", name, start + len(name)
        if match := _NUMBER.match(text, start):
            return "number", match.group(), match.end()
        if match := _WORD.match(text, start):
            word = match.group()
            if word in ("and", "or", "not"):
                return "operator", word, match.end()
            if word in _FUNCTIONS:
                return "function", word, match.end()
            return "name", self._name(word), match.end()
        if match := _OPERATOR.match(text, start):
            return "operator", match.group(), match.end()
        if text[start] in "&|":
            raise self._error(f"write {'and' if text[start] == '&' else 'or'!r} for {text[start]!r}")
        raise self._error(f"{text[start]!r} has no meaning here")

    def _name(self, name: str) -> str:
        if name in self._columns:
            return name
        names = list(self._columns)
        listed = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
        hint = did_you_mean(name, names, 0.4) or f"there are {listed}"
        if (factor := array_name(name)) in self._factors:
            hint = f"contrast({factor!r}, ['a', 'b']) has the probability that the effect of b is above that of a"
        raise requirement("the statement", "about the coefficients", f"the name {name!r}", hint.rstrip("."))

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._position] if self._position < len(self._tokens) else _END

    def _accept(self, *operators: str) -> str:
        """Read the next token if it is one of these operators, and return it; else return ""."""
        kind, token = self._peek()
        if kind != "operator" or token not in operators:
            return ""
        self._position += 1
        return token

    def _accept_binary(self, binding: int) -> str:
        """Read the next token if it is a binary operator that binds at least as tightly; else return ""."""
        kind, token = self._peek()
        if kind != "operator" or _BINDING.get(token, -1) < binding:
            return ""
        self._position += 1
        return token

    # Values, of operators that bind at least as tightly as `binding`

    def _expression(self, binding: int = 0) -> Value:
        left = self._operand(binding)
        while sign := self._accept_binary(binding):
            if sign in _LOGIC:
                left = _LOGIC[sign](self._truth(left, sign), self._truth(self._expression(_BINDING[sign] + 1), sign))
            elif sign in _COMPARISONS:
                left = self._comparison(left, sign)
            elif sign == "**":
                left = self._number(left, sign) ** self._number(self._nested(_SIGNED), sign)
            else:
                right = self._number(self._expression(_BINDING[sign] + 1), sign)
                left = _ARITHMETIC[sign](self._number(left, sign), right)
        return left

    def _comparison(self, left: Value, sign: str) -> Value:
        """One comparison, or a chain of them, such as 0 < a < b."""
        holds: Value = np.array(True)
        while sign:
            right = self._number(self._expression(_SUM), sign)
            holds = holds & _COMPARISONS[sign](self._number(left, sign), right)
            left, sign = right, self._accept(*_COMPARISONS)
        return holds

    def _operand(self, binding: int) -> Value:
        if binding <= _NOT and self._accept("not"):
            return ~self._truth(self._nested(_NOT), "not")
        if sign := self._accept("+", "-"):
            value = self._number(self._nested(_SIGNED), sign)
            return value if sign == "+" else -value
        kind, token = self._peek()
        self._position += 1
        if kind == "number":
            return np.asarray(float(token))
        if kind == "name":
            return np.asarray(self._x[:, self._columns[token]])
        if kind == "function":
            if not self._accept("("):
                raise self._error(f"{token!r} needs brackets after it")
            return _FUNCTIONS[token](self._number(self._bracketed(), token))
        if token == "(":
            return self._bracketed()
        raise self._error(f"{token if kind == 'end' else repr(token)} stands where a name or a number is expected")

    def _bracketed(self) -> Value:
        """The value of an expression up to a closing bracket."""
        value = self._nested(0)
        if not self._accept(")"):
            raise self._error("a bracket is not closed")
        return value

    def _nested(self, binding: int) -> Value:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"it is nested more than {_DEEPEST} times")
        value = self._expression(binding)
        self._depth -= 1
        return value

    def _truth(self, value: Value, word: str) -> Value:
        if value.dtype != bool:
            raise self._error(f"{word!r} joins comparisons, not numbers")
        return value

    def _number(self, value: Value, word: str) -> Value:
        if value.dtype == bool:
            raise self._error(f"{word!r} takes numbers, not comparisons")
        if np.isnan(value).any():
            raise self._error("a part of it is not defined at some of the draws, such as the log of a number below 0")
        return value

    def _error(self, why: str) -> ValueError:
        return requirement(
            "the statement", "comparisons of names, numbers, + - * / **, abs, exp, log, sqrt", repr(self._text), why
        )


def _is_whole_word(text: str, begin: int, name: str) -> bool:
    """Whether the name at `begin` is not a part of a longer word."""
    end = begin + len(name)
    before = begin > 0 and _is_word_character(text[begin - 1]) and _is_word_character(name[0])
    after = end < len(text) and _is_word_character(name[-1]) and (_is_word_character(text[end]) or text[end] in "[.")
    return not (before or after)


def _is_word_character(sign: str) -> bool:
    return sign.isalnum() or sign == "_"
