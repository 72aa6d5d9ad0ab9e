"""The grammar of formulas: from a text to a response and a list of terms, after Wilkinson & Rogers (1973).

    formula = response "~" sum                 sum     = ["+" | "-"] product {("+" | "-") product}
    product = inner {("*" | "/" | "%in%") inner}        inner = power {":" power}
    power   = atom [("**" | "^") number]       atom    = "0" | "1" | "." | factor | "(" sum ")"
    factor  = column | `column` | function(…) | {expression}

A term is a product of factors; a sum is a list of different terms, in the order of their degrees. a*b is a + b + a:b,
a/b is a + a:b, b %in% a is the same, (a + b)**2 has all products of up to two; `.` stands for all columns that are not
in the response; 0 takes the intercept out. Expressions are read by `svrhmc.tables.expressions`. Nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from svrhmc.core.errors import DataError
from svrhmc.tables.expressions import Expression, expression, is_word

_MOST_TERMS = 10_000  # that products may make
_DEEPEST = 50
_BLANK = re.compile(r"\s+")
_QUOTED = re.compile(r"`([^`]+)`")
_WORD = re.compile(r"[\w.]+")
_SIGN = re.compile(r"%in%|\*\*|[-+*/:^()~|]")
_TEXT = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`""", re.DOTALL)
_NUMBER = re.compile(r"\d[\d.]*|\.\d+")
_QUOTING = "a name with spaces or signs in it stands between backticks, such as `my column`"


@dataclass(frozen=True, eq=False)
class Factor:
    """A column by its name, or an expression."""

    text: str
    expression: Expression | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Factor) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, bool]:
        return self.text, self.expression is None

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return (self.text,) if self.expression is None else self.expression.variables

    @property
    def written(self) -> str:
        """As a formula takes it."""
        return quoted(self.text) if self.expression is None else f"{{{self.text}}}"


class Term(NamedTuple):
    """A product of factors; without any it is the intercept."""

    factors: tuple[Factor, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return tuple(dict.fromkeys(name for factor in self.factors for name in factor.variables))

    @property
    def written(self) -> str:
        """As a formula takes it."""
        return ":".join(factor.written for factor in self.factors)

    def times(self, other: Term) -> Term:
        """The interaction of two terms, with each factor once."""
        return Term(tuple(dict.fromkeys((*self.factors, *other.factors))))


INTERCEPT = Term(())
_Sum = dict[frozenset[Factor], Term]  # a:b is b:a


class Parsed(NamedTuple):
    """The response, the terms without the intercept, and whether there is one."""

    response: Factor
    terms: tuple[Term, ...]
    intercept: bool


def parsed(formula: str, available: Sequence[str]) -> Parsed:
    """A whole formula.

    >>> made = parsed("y ~ a*b + np.log(x) - 1", ["y", "a", "b", "x"])
    >>> [term.written for term in made.terms], made.intercept
    (['a', 'b', '{np.log(x)}', 'a:b'], False)
    """
    if "~" not in str(formula):
        raise DataError(
            f"the formula must read 'response ~ terms', such as 'y ~ age + C(plan)'; got {_short(formula)}."
        )
    return _Parser(str(formula), available).formula()


def terms_of(text: str) -> tuple[tuple[Term, ...], bool]:
    """The terms of a formula without a response, and whether it has an intercept."""
    parser = _Parser(text, ())
    return parser.terms({})


def quoted(name: str) -> str:
    """The name of a column as a formula takes it.

    >>> quoted("age"), quoted("age in years")
    ('age', '`age in years`')
    """
    if is_word(name):
        return name
    if "`" in name:
        raise DataError(f"column {name!r} has a ` in its name, which no formula can name: rename it.")
    if not name:
        raise DataError("a column without a name cannot stand in a formula: rename it.")
    return f"`{name}`"


class _Parser:
    """One formula: its tokens, and where the parser stands among them."""

    def __init__(self, text: str, available: Sequence[str]) -> None:
        self.text, self.available = text, available
        self.tokens, self.at, self.depth = self._split(text), 0, 0
        self.response: Factor | None = None

    def formula(self) -> Parsed:
        """response ~ sum."""
        value = self._next()[1]
        if not isinstance(value, Factor) or self.tokens[1:2] != [("sign", "~")]:
            raise DataError(
                f"the formula must have one response before '~', such as 'y ~ age'; got {_short(self.text)}."
            )
        self.response, self.at = value, 2
        terms, intercept = self.terms({frozenset(): INTERCEPT})
        return Parsed(value, terms, intercept)

    def terms(self, start: _Sum) -> tuple[tuple[Term, ...], bool]:
        """A sum up to the end, in the order of degrees."""
        found = self._sum(start)
        if self.at < len(self.tokens):
            raise self._wrong(f"{self._shown()} is not expected there; {_QUOTING}")
        intercept = found.pop(frozenset(), None) is not None
        return tuple(sorted(found.values(), key=lambda term: len(term.factors))), intercept

    def _split(self, text: str) -> list[tuple[str, str | Factor]]:
        """Signs, numbers and factors."""
        tokens: list[tuple[str, str | Factor]] = []
        at = 0
        while at < len(text):
            if blank := _BLANK.match(text, at):
                at = blank.end()
            elif name := _QUOTED.match(text, at):
                tokens.append(("factor", Factor(name[1])))
                at = name.end()
            elif text[at] == "{":
                end = self._closing(text, at)
                tokens.append(("factor", _factor(text[at + 1 : end - 1])))
                at = end
            elif word := _WORD.match(text, at):
                at = self._word(text, word, tokens)
            elif sign := _SIGN.match(text, at):
                tokens.append(("sign", sign[0]))
                at = sign.end()
            else:
                raise self._wrong(
                    f"{text[at]!r} has no meaning there; names with signs in them stand between backticks"
                )
        return tokens

    def _word(self, text: str, word: re.Match[str], tokens: list[tuple[str, str | Factor]]) -> int:
        """A number, a dot, the name of a column, or a call with all that is between its brackets."""
        end = word.end()
        if text[end : end + 1] == "[":
            raise self._wrong(f"a formula takes no subscripts; {_QUOTING}")
        if text[end : end + 1] == "(":
            end = self._closing(text, end)
            tokens.append(("factor", _factor(text[word.start() : end])))
        elif word[0] == ".":
            tokens.append(("dot", "."))
        elif _NUMBER.fullmatch(word[0]):
            tokens.append(("number", word[0]))
        else:
            tokens.append(("factor", Factor(word[0])))
        return end

    def _closing(self, text: str, at: int) -> int:
        """The place after the bracket that closes the one at a place."""
        depth, begin = 0, at
        while at < len(text):
            if (skipped := _TEXT.match(text, at)) is not None:
                at = skipped.end()
                continue
            depth += (text[at] in "([{") - (text[at] in ")]}")
            at += 1
            if not depth:
                return at
        raise self._wrong(f"the bracket in {text[begin : begin + 20]!r} is not closed")

    def _next(self) -> tuple[str, str | Factor]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "the end")

    def _took(self, *signs: str) -> str:
        """The next sign, if it is one of these; else nothing."""
        kind, value = self._next()
        if kind != "sign" or value not in signs:
            return ""
        self.at += 1
        return str(value)

    def _sum(self, found: _Sum) -> _Sum:
        sign = self._signs() or "+"
        while True:
            terms, zero = self._product()
            if zero:  # + 0 is - 1, and - 0 is + 1
                sign = "-" if sign == "+" else "+"
            if sign == "+":
                for key, term in terms.items():
                    found.setdefault(key, term)
            else:
                for key in terms:
                    found.pop(key, None)
            sign = self._signs()
            if not sign:
                return found

    def _signs(self) -> str:
        """+ or −, of as many as there are."""
        minus, some = 0, False
        while sign := self._took("+", "-"):
            some, minus = True, minus + (sign == "-")
        return ("-" if minus % 2 else "+") if some else ""

    def _product(self) -> tuple[_Sum, bool]:
        found, zero = self._inner()
        while sign := self._took("*", "/", "%in%"):
            other, other_zero = self._inner()
            if zero or other_zero:
                raise self._wrong("0 takes the intercept out of a sum, and is no factor of a product")
            if sign == "*":
                found = {**found, **other, **self._crossed(found, other)}
            else:
                parents, nested = (found, other) if sign == "/" else (other, found)
                common = INTERCEPT
                for term in parents.values():
                    common = common.times(term)
                found = {**parents, **self._crossed(_summed([common]), nested)}
        return found, zero

    def _inner(self) -> tuple[_Sum, bool]:
        found, zero = self._power()
        while self._took(":"):
            other, other_zero = self._power()
            if zero or other_zero:
                raise self._wrong("0 takes the intercept out of a sum, and is no factor of a product")
            found = self._crossed(found, other)
        return found, zero

    def _power(self) -> tuple[_Sum, bool]:
        found, zero = self._atom()
        while self._took("**", "^"):
            kind, value = self._next()
            if kind != "number" or not str(value).isdecimal() or not 1 <= int(str(value)[:9]) <= 100:
                raise self._wrong("a power of a sum is a whole number from 1 to 100; write {x**2} for that of a column")
            self.at += 1
            base = found
            for _ in range(int(str(value)) - 1):
                larger = self._crossed(found, base)
                if larger.keys() == found.keys():
                    break
                found = larger
        return found, zero

    def _crossed(self, one: _Sum, other: _Sum) -> _Sum:
        if len(one) * len(other) > _MOST_TERMS:
            raise self._wrong(f"its products make more than {_MOST_TERMS:,} terms")
        return _summed(a.times(b) for a in one.values() for b in other.values())

    def _atom(self) -> tuple[_Sum, bool]:
        kind, value = self._next()
        self.at += 1
        if isinstance(value, Factor):
            return _summed([Term((value,))]), False
        if kind == "dot":
            used = set(() if self.response is None else self.response.variables)
            return _summed(Term((Factor(name),)) for name in self.available if name not in used), False
        if kind == "number":
            if value not in ("0", "1"):
                raise self._wrong(
                    f"a number in it is 0 or 1; arithmetic stands in I(…), and a column named {value} in backticks"
                )
            return _summed([INTERCEPT]), value == "0"
        if value == "(":
            self.depth += 1
            if self.depth > _DEEPEST:
                raise self._wrong(f"it is nested more than {_DEEPEST} times")
            found = self._sum({})
            if self._next() == ("sign", "|"):
                raise self._wrong("it has no effects of groups such as (1 | g); C(g) has one for each level")
            if not self._took(")"):
                raise self._wrong("a bracket is not closed")
            self.depth -= 1
            return found, False
        self.at -= 1
        raise self._wrong(f"{self._shown()} stands where a column is expected")

    def _shown(self) -> str:
        kind, value = self._next()
        return str(value) if kind == "end" else repr(value.text if isinstance(value, Factor) else value)

    def _wrong(self, why: str) -> DataError:
        return DataError(f"the formula {_short(self.text)} cannot be used: {why}.")


def _factor(text: str) -> Factor:
    """An expression; one that is a column alone is that column."""
    made = expression(text)
    if made.tree.__class__.__name__ in ("Name", "Attribute") and len(made.variables) == 1:
        return Factor(made.variables[0])
    return Factor(made.text, made)


def _summed(terms: Iterable[Term]) -> _Sum:
    found: _Sum = {}
    for term in terms:
        found.setdefault(frozenset(term.factors), term)
    return found


def _short(formula: object) -> str:
    text = repr(formula)
    return text if len(text) <= 120 else f"{text[:100]} … {text[-15:]}"
