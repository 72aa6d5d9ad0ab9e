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


def moved(x: Array, mean: Array, sd: Array) -> Array:
    """Draws (draws, dim) with these means and standard deviations."""
    if len(x) < 2:
        return x
    own = x.std(axis=0, ddof=1)
    return np.asarray(mean + (x - x.mean(axis=0)) * (sd / np.where(own > 0, own, 1.0)), np.float64)


def quantiles(x: Array, mean: Array, sd: Array, levels: float | Sequence[float], gaussian: bool) -> Array:
    """Of each coordinate, (levels…, dim), from draws (draws, dim)."""
    flat = np.asarray(quantile_levels(levels), np.float64)
    if gaussian:
        from scipy.special import ndtri

        values = mean + sd * ndtri(flat)[:, None]
    else:
        blocks = some_columns(len(x), len(mean))
        values = np.concatenate([np.quantile(moved(x[:, s], mean[s], sd[s]), flat, axis=0) for s in blocks], axis=1)
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
    """One statement: its tokens, and where the reader stands among them."""

    def __init__(self, text: str, names: Sequence[str], x: Array, factors: Sequence[str]) -> None:
        self._text, self._x, self._factors = text, x, factors
        self._place = {name: j for j, name in enumerate(names)}
        self._longest_first = sorted(self._place, key=len, reverse=True)
        self._tokens, self._at, self._depth = self._split(), 0, 0

    def value(self) -> Value:
        """Of the whole statement, under every draw."""
        with np.errstate(all="ignore"):
            value = self._expression()
        if self._next() is not _END:
            raise self._wrong(f"{self._next()[1]!r} stands where nothing more is expected")
        return value

    # Tokens: pairs of a kind (name, number, function or operator) and a text

    def _split(self) -> list[tuple[str, str]]:
        tokens, at = [], 0
        while at < len(self._text):
            if self._text[at].isspace():
                at += 1
                continue
            kind, token, at = self._token(at)
            tokens.append((kind, token))
        return tokens

    def _token(self, at: int) -> tuple[str, str, int]:
        """The token that begins there, and where it ends."""
        text = self._text
        if text[at] == "`":
            end = text.find("`", at + 1)
            if end < 0:
                raise self._wrong("a backtick has no second one")
            return "name", self._name(text[at + 1 : end]), end + 1
        for name in self._longest_first:
            if text.startswith(name, at) and _stands_alone(text, at, name):
                return "name", name, at + len(name)
        if match := _NUMBER.match(text, at):
            return "number", match.group(), match.end()
        if match := _WORD.match(text, at):
            word = match.group()
            if word in ("and", "or", "not"):
                return "operator", word, match.end()
            if word in _FUNCTIONS:
                return "function", word, match.end()
            return "name", self._name(word), match.end()
        if match := _OPERATOR.match(text, at):
            return "operator", match.group(), match.end()
        if text[at] in "&|":
            raise self._wrong(f"write {'and' if text[at] == '&' else 'or'!r} for {text[at]!r}")
        raise self._wrong(f"{text[at]!r} has no meaning here")

    def _name(self, name: str) -> str:
        if name in self._place:
            return name
        names = list(self._place)
        listed = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
        hint = did_you_mean(name, names, 0.4) or f"there are {listed}"
        if (factor := array_name(name)) in self._factors:
            hint = f"contrast({factor!r}, ['a', 'b']) has the probability that the effect of b is above that of a"
        raise requirement("the statement", "about the coefficients", f"the name {name!r}", hint.rstrip("."))

    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _took(self, *operators: str) -> str:
        """The next token, if it is one of these operators; else nothing."""
        kind, token = self._next()
        if kind != "operator" or token not in operators:
            return ""
        self._at += 1
        return token

    def _took_tighter(self, binding: int) -> str:
        """The next token, if it is an operator between two values that binds at least as tightly; else nothing."""
        kind, token = self._next()
        if kind != "operator" or _BINDING.get(token, -1) < binding:
            return ""
        self._at += 1
        return token

    # Values, of operators that bind at least as tightly as `binding`

    def _expression(self, binding: int = 0) -> Value:
        left = self._operand(binding)
        while sign := self._took_tighter(binding):
            if sign in _LOGIC:
                left = _LOGIC[sign](self._truth(left, sign), self._truth(self._expression(_BINDING[sign] + 1), sign))
            elif sign in _COMPARISONS:
                left = self._compared(left, sign)
            elif sign == "**":
                left = self._number(left, sign) ** self._number(self._deeper(_SIGNED), sign)
            else:
                right = self._number(self._expression(_BINDING[sign] + 1), sign)
                left = _ARITHMETIC[sign](self._number(left, sign), right)
        return left

    def _compared(self, left: Value, sign: str) -> Value:
        """One comparison, or several in a chain."""
        holds: Value = np.array(True)
        while sign:
            right = self._number(self._expression(_SUM), sign)
            holds = holds & _COMPARISONS[sign](self._number(left, sign), right)
            left, sign = right, self._took(*_COMPARISONS)
        return holds

    def _operand(self, binding: int) -> Value:
        if binding <= _NOT and self._took("not"):
            return ~self._truth(self._deeper(_NOT), "not")
        if sign := self._took("+", "-"):
            value = self._number(self._deeper(_SIGNED), sign)
            return value if sign == "+" else -value
        kind, token = self._next()
        self._at += 1
        if kind == "number":
            return np.asarray(float(token))
        if kind == "name":
            return np.asarray(self._x[:, self._place[token]])
        if kind == "function":
            if not self._took("("):
                raise self._wrong(f"{token!r} needs brackets after it")
            return _FUNCTIONS[token](self._number(self._inside(), token))
        if token == "(":
            return self._inside()
        raise self._wrong(f"{token if kind == 'end' else repr(token)} stands where a name or a number is expected")

    def _inside(self) -> Value:
        """What stands before a closing bracket."""
        value = self._deeper(0)
        if not self._took(")"):
            raise self._wrong("a bracket is not closed")
        return value

    def _deeper(self, binding: int) -> Value:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"it is nested more than {_DEEPEST} times")
        value = self._expression(binding)
        self._depth -= 1
        return value

    def _truth(self, value: Value, word: str) -> Value:
        if value.dtype != bool:
            raise self._wrong(f"{word!r} joins comparisons, not numbers")
        return value

    def _number(self, value: Value, word: str) -> Value:
        if value.dtype == bool:
            raise self._wrong(f"{word!r} takes numbers, not comparisons")
        if np.isnan(value).any():
            raise self._wrong("a part of it is not defined at some of the draws, such as the log of a number below 0")
        return value

    def _wrong(self, why: str) -> ValueError:
        return requirement(
            "the statement", "comparisons of names, numbers, + - * / **, abs, exp, log, sqrt", repr(self._text), why
        )


def _stands_alone(text: str, begin: int, name: str) -> bool:
    """Whether a name is there, and not a piece of a longer word."""
    end = begin + len(name)
    before = begin > 0 and _in_word(text[begin - 1]) and _in_word(name[0])
    after = end < len(text) and _in_word(name[-1]) and (_in_word(text[end]) or text[end] in "[.")
    return not (before or after)


def _in_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"
