"""What can be said of coefficients: quantiles, intervals, and the probability of a statement.

The means and sds that a posterior reports are better than those of its draws where they were corrected by the gradients
at the draws. So that intervals agree with them, draws x are moved and stretched, coordinate by coordinate:

    x′ⱼ = mⱼ + (xⱼ − x̄ⱼ)·sⱼ/ŝⱼ,          q_p(x′ⱼ) = mⱼ + sⱼ·q_p((xⱼ − x̄ⱼ)/ŝⱼ),

with m and s the reported moments, x̄ and ŝ those of the draws at hand. Then x′ has the mean and the sd that are
reported; what is left to chance is the shape of the standardised law alone, and correlations stay as they are. Where
the posterior is known to be Gaussian that shape is known too, and quantiles are mⱼ + sⱼΦ⁻¹(p).

A statement such as "age > 0 and abs(dose) < 2*age" is read by a small grammar of its own, never by Python:

    either  = both {"or" both}            sum     = product {("+" | "-") product}
    both    = not {"and" not}             product = signed {("*" | "/") signed}
    not     = "not" not | compared        signed  = ("+" | "-") signed | power
    compared = sum {("<" | "<=" | ">" | ">=" | "==" | "!=") sum}
    power   = atom ["**" signed]          atom    = number | name | function "(" sum ")" | "(" either ")"

Names are those of the coefficients, the longest that fits first, so that `plan[pro]` and `C: age` need no quotes;
between backticks stands a name as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import nearest, requirement
from svrhmc.core.summaries import quantile_levels
from svrhmc.diagnostics import some_columns

FUNCTIONS: dict[str, Callable[[Array], Array]] = {"abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt}
_COMPARED: dict[str, Callable[[Array, Array], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?")
_WORD = re.compile(r"[^\W\d][\w.]*(\[[^\]]*\])?")
_SIGN = re.compile(r"\*\*|<=|>=|==|!=|[-+*/()<>]")
_END = ("end", "the end")
_DEEPEST = 50  # brackets within brackets


def moved(x: Array, mean: Array, sd: Array) -> Array:
    """Draws (draws, dim) with these means and standard deviations."""
    if len(x) < 2:
        return x
    own = x.std(axis=0, ddof=1)
    return np.asarray(mean + (x - x.mean(axis=0)) * (sd / np.where(own > 0, own, 1.0)), np.float64)


def quantiles(x: Array, mean: Array, sd: Array, levels: Any, gaussian: bool) -> Array:
    """Of each coordinate, (levels…, dim), from draws (draws, dim)."""
    known = np.asarray(quantile_levels(levels), np.float64)
    if gaussian:
        from scipy.special import ndtri

        found = mean + sd * ndtri(known)[:, None]
    else:
        blocks = some_columns(len(x), len(mean))
        found = np.concatenate([np.quantile(moved(x[:, s], mean[s], sd[s]), known, axis=0) for s in blocks], axis=1)
    return np.asarray(found, np.float64).reshape(*np.shape(levels), len(mean))


def probability(text: Any, names: Sequence[str], x: Array) -> float:
    """The share of draws (draws, dim) for which a statement holds.

    >>> probability("age > 0 and `plan[pro]` < age", ["age", "plan[pro]"], np.array([[1.0, 0.5], [1.0, 2.0]]))
    0.5
    """
    if not isinstance(text, str) or not text.strip():
        raise requirement("the statement", 'a text such as "age > 0"', repr(text))
    found = _Reader(text, names, x).whole()
    if found.dtype != bool:
        raise requirement("the statement", 'true or false, such as "age > 0"', repr(text), "nothing is compared in it")
    return float(np.broadcast_to(found, len(x)).mean())


class _Reader:
    """One statement: its words, and where the reader stands among them."""

    def __init__(self, text: str, names: Sequence[str], x: Array) -> None:
        self._text, self._x = text, x
        self._place = {name: j for j, name in enumerate(names)}
        self._words, self._at, self._depth = self._split(), 0, 0

    def whole(self) -> Any:
        """The value of all of it."""
        with np.errstate(all="ignore"):
            found = self._either()
        if self._next() is not _END:
            raise self._wrong(f"{self._next()[1]!r} stands where nothing more is expected")
        return found

    def _split(self) -> list[tuple[str, str]]:
        """Words by kind: name, number, function, sign, and the words and, or, not."""
        text, words, at = self._text, [], 0
        known = sorted(self._place, key=len, reverse=True)
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            kind, word, end = self._word(at, known)
            words.append((kind, word))
            at = end
        return words

    def _word(self, at: int, known: list[str]) -> tuple[str, str, int]:
        text = self._text
        if text[at] == "`":
            end = text.find("`", at + 1)
            if end < 0:
                raise self._wrong("a backtick has no second one")
            return "name", self._named(text[at + 1 : end]), end + 1
        for name in known:
            if text.startswith(name, at) and _apart(text, at, at + len(name), name):
                return "name", name, at + len(name)
        if found := _NUMBER.match(text, at):
            return "number", found.group(), found.end()
        if found := _WORD.match(text, at):
            word = found.group()
            if word in ("and", "or", "not"):
                return "word", word, found.end()
            if word in FUNCTIONS:
                return "function", word, found.end()
            return "name", self._named(word), found.end()
        if found := _SIGN.match(text, at):
            return "sign", found.group(), found.end()
        if text[at] == "&" or text[at] == "|":
            raise self._wrong(f"write {'and' if text[at] == '&' else 'or'!r} for {text[at]!r}")
        raise self._wrong(f"{text[at]!r} has no meaning here")

    def _named(self, name: str) -> str:
        if name in self._place:
            return name
        known = list(self._place)
        shown = ", ".join(map(repr, known[:8])) + (", …" if len(known) > 8 else "")
        hint = nearest(name, known, 0.4) or f"there are {shown}"
        raise requirement("the statement", "about the coefficients", f"the name {name!r}", hint.rstrip("."))

    def _next(self) -> tuple[str, str]:
        return self._words[self._at] if self._at < len(self._words) else _END

    def _took(self, kind: str, *words: str) -> str:
        """The next word, if it is one of these; else nothing."""
        found, word = self._next()
        if found != kind or (words and word not in words):
            return ""
        self._at += 1
        return word

    def _wrong(self, why: str) -> ValueError:
        return requirement(
            "the statement", "comparisons of names, numbers, + - * / **, abs, exp, log, sqrt", repr(self._text), why
        )

    def _either(self) -> Any:
        found = self._both()
        while self._took("word", "or"):
            found = self._truth(found, "or") | self._truth(self._both(), "or")
        return found

    def _both(self) -> Any:
        found = self._negated()
        while self._took("word", "and"):
            found = self._truth(found, "and") & self._truth(self._negated(), "and")
        return found

    def _negated(self) -> Any:
        if self._took("word", "not"):
            return ~self._truth(self._deeper(self._negated), "not")
        return self._compared()

    def _compared(self) -> Any:
        left, found = self._sum(), None
        while sign := self._took("sign", *_COMPARED):
            right = self._number(self._sum(), sign)
            holds = _COMPARED[sign](self._number(left, sign), right)
            found = holds if found is None else found & holds
            left = right
        return left if found is None else found

    def _sum(self) -> Any:
        found = self._product()
        while sign := self._took("sign", "+", "-"):
            other = self._number(self._product(), sign)
            found = self._number(found, sign) + (other if sign == "+" else -other)
        return found

    def _product(self) -> Any:
        found = self._signed()
        while sign := self._took("sign", "*", "/"):
            other = self._number(self._signed(), sign)
            found = self._number(found, sign) * other if sign == "*" else self._number(found, sign) / other
        return found

    def _signed(self) -> Any:
        if sign := self._took("sign", "+", "-"):
            found = self._number(self._deeper(self._signed), sign)
            return found if sign == "+" else -found
        return self._power()

    def _power(self) -> Any:
        found = self._atom()
        if self._took("sign", "**"):
            found = self._number(found, "**") ** self._number(self._deeper(self._signed), "**")
        return found

    def _atom(self) -> Any:
        kind, word = self._next()
        self._at += 1
        if kind == "number":
            return np.asarray(float(word))
        if kind == "name":
            return np.asarray(self._x[:, self._place[word]])
        if kind == "function":
            if not self._took("sign", "("):
                raise self._wrong(f"{word!r} needs brackets after it")
            return FUNCTIONS[word](self._number(self._inside(), word))
        if word == "(":
            return self._inside()
        raise self._wrong(f"{word if kind == 'end' else repr(word)} stands where a name or a number is expected")

    def _inside(self) -> Any:
        """What stands before a closing bracket."""
        found = self._deeper(self._either)
        if not self._took("sign", ")"):
            raise self._wrong("a bracket is not closed")
        return found

    def _deeper(self, read: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"it is nested more than {_DEEPEST} times")
        found = read()
        self._depth -= 1
        return found

    def _truth(self, value: Any, word: str) -> Any:
        if value.dtype != bool:
            raise self._wrong(f"{word!r} joins comparisons, not numbers")
        return value

    def _number(self, value: Any, word: str) -> Any:
        if value.dtype == bool:
            raise self._wrong(f"{word!r} takes numbers, not comparisons")
        if np.isnan(value).any():
            raise self._wrong("a part of it is not defined at some of the draws, such as the log of a number below 0")
        return value


def _apart(text: str, begin: int, end: int, name: str) -> bool:
    """Whether a name stands by itself there, and is not a piece of a longer word."""
    before = begin > 0 and _inner(text[begin - 1]) and _inner(name[0])
    after = end < len(text) and _inner(name[-1]) and (_inner(text[end]) or text[end] in "[.")
    return not (before or after)


def _inner(sign: str) -> bool:
    return sign.isalnum() or sign == "_"
