"""The grammar of formulas: a text is parsed into a response and a list of terms, after Wilkinson & Rogers (1973).

    formula = response "~" sum                 sum     = ["+" | "-"] product {("+" | "-") product}
    product = inner {("*" | "/" | "%in%") inner}        inner = power {":" power}
    power   = atom [("**" | "^") number]       atom    = "0" | "1" | "." | factor | "(" sum ")"
    factor  = column | `column` | function(…) | {expression}           group = "(" sum ("|" | "||") sum ")"
    smooth  = "s(" factor ["," "k" "=" number] ["," "by" "=" factor] ")"

A term is a product of factors, and a sum is a list of different terms, in the order of their degrees. a*b means a + b +
a:b; a/b and b %in% a mean a + a:b; (a + b)**2 has all products of up to two terms. `.` stands for all columns that are
neither in the response, nor grouping factors, nor arguments of smooths. 0 takes the intercept out.

A group is a term of the outermost sum: what stands before its bar varies by the levels of what stands after it (Bates,
Mächler, Bolker & Walker, "Fitting linear mixed-effects models using lme4", 2015). (x | a/b) means (x | a) + (x | a:b),
and with || the effects of a level are independent of each other. A smooth is also a term of the outermost sum.
Expressions are read by `svrhmc.tables.expressions`. Nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from svrhmc.core.errors import DataError
from svrhmc.tables.expressions import SMOOTH, Expression, is_word, parse_expression

_MOST_TERMS = 10_000  # that a product may have
_DEEPEST = 50
_BLANK = re.compile(r"\s+")
_QUOTED = re.compile(r"`([^`]+)`")
_WORD = re.compile(r"[\w.]+")
_SIGN = re.compile(r"%in%|\*\*|\|\||[-+*/:^()~|]")
_BARS = ("|", "||")
_TEXT = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`""", re.DOTALL)
_NUMBER = re.compile(r"\d[\d.]*|\.\d+")
_GROUPS_ARE_ADDED = (
    "effects of groups such as (1 | g) are added to the other terms: they stand in no product, power or other brackets"
)
_SMOOTHS_ARE_ADDED = (
    "smooths such as s(x) are added to the other terms: they stand in no product, power or brackets; s(x, by=g) is a "
    "smooth for each level of g"
)
_OPTION = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)(.*)", re.DOTALL)
_USE_BACKTICKS = "a name with spaces or signs in it stands between backticks, such as `my column`"


@dataclass(frozen=True, eq=False)
class Factor:
    """A column, by its name, or an expression."""

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
        """The columns of the table that it needs."""
        return (self.text,) if self.expression is None else self.expression.variables

    @property
    def survival(self) -> bool:
        """Whether it is `Surv(…)`, `cens(…)` or `trunc(…)`."""
        return self.expression is not None and self.expression.survival

    @property
    def open_columns(self) -> tuple[str, ...]:
        """The columns that hold bounds, which may be infinite or missing."""
        return () if self.expression is None else self.expression.open_columns

    @property
    def functions(self) -> tuple[str, ...]:
        """The user's functions that it calls."""
        return () if self.expression is None else self.expression.functions

    @property
    def formula_text(self) -> str:
        """The text by which it stands in a formula."""
        return quote_name(self.text) if self.expression is None else f"{{{self.text}}}"


class Term(NamedTuple):
    """A product of factors; the empty product is the intercept."""

    factors: tuple[Factor, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return tuple(dict.fromkeys(name for factor in self.factors for name in factor.variables))

    @property
    def formula_text(self) -> str:
        """The text by which it stands in a formula."""
        return ":".join(factor.formula_text for factor in self.factors)

    def times(self, other: Term) -> Term:
        """The interaction of two terms, with each factor once."""
        return Term(tuple(dict.fromkeys((*self.factors, *other.factors))))


INTERCEPT = Term(())
_Sum = dict[frozenset[Factor], Term]  # a:b is b:a


class GroupTerm(NamedTuple):
    """Effects that vary by group, such as (1 + x | a:b).

    terms, intercept: what varies. factor: the columns whose combinations are the levels. correlated: whether the
    effects of a level may be correlated. coded: the columns of the factor that stand in C(…), and so are categories.
    text: the term as it stands in the formula.
    """

    terms: tuple[Term, ...]
    intercept: bool
    factor: Term
    correlated: bool
    coded: tuple[str, ...]
    text: str

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return tuple(dict.fromkeys(name for term in (self.factor, *self.terms) for name in term.variables))

    @property
    def formula_text(self) -> str:
        """The term by itself, with its intercept written out."""
        bar = "|" if self.correlated else "||"
        left = [str(int(self.intercept)), *(term.formula_text for term in self.terms)]
        return f"({' + '.join(left)} {bar} {self.factor.formula_text})"


class SmoothTerm(NamedTuple):
    """A smooth function, such as s(age, k=20, by=plan).

    argument: what it is a function of. k: how many basis functions it has, with constant and line; None: the usual
    number. by: the column that it is multiplied by, or the category for each of whose levels there is one smooth.
    coded: whether `by` stands in C(…), and so is a category. text: the term as it stands in the formula.
    """

    argument: Factor
    k: int | None
    by: str | None
    coded: bool
    text: str

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return tuple(dict.fromkeys([*self.argument.variables, *([] if self.by is None else [self.by])]))


class ParsedFormula(NamedTuple):
    """A formula: its response, its terms but the intercept, whether it has an intercept, group terms and smooths."""

    response: Factor
    terms: tuple[Term, ...]
    intercept: bool
    groups: tuple[GroupTerm, ...] = ()
    smooths: tuple[SmoothTerm, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns that explain the response."""
        terms: list[Term | GroupTerm | SmoothTerm] = [*self.terms, *self.groups, *self.smooths]
        return tuple(dict.fromkeys(name for term in terms for name in term.variables))


def parse_formula(formula: str, available: Sequence[str]) -> ParsedFormula:
    """Parse a whole formula. available: the columns of the table, for `.`.

    >>> parsed = parse_formula("y ~ a*b + np.log(x) - 1", ["y", "a", "b", "x"])
    >>> [term.formula_text for term in parsed.terms], parsed.intercept
    (['a', 'b', '{np.log(x)}', 'a:b'], False)
    >>> [term.formula_text for term in parse_formula("y ~ x + (x | a/b)", ["y", "x", "a", "b"]).groups]
    ['(1 + x | a)', '(1 + x | a:b)']
    """
    if "~" not in str(formula):
        raise DataError(
            f"the formula must read 'response ~ terms', such as 'y ~ age + C(plan)'; got {_shortened(formula)}."
        )
    return _Parser(str(formula), available).formula()


class Formulas(NamedTuple):
    """The formula of the response, and those of further parameters by name, each with the name before ~."""

    main: str
    further: Mapping[str, str]

    def __str__(self) -> str:
        return "; ".join([self.main, *self.further.values()])


def shorten_lists(text: str) -> str:
    """Lists of more than two in a formula, with the first one alone.

    >>> shorten_lists("{churn in ['Y', 'yes', ' y']} ~ age")
    "{churn in ['Y', …]} ~ age"
    """
    return re.sub(r"\[([^,\[\]]*),[^,\[\]]*,[^\[\]]*\]", r"[\1, …]", text)


_OFFSET = re.compile(
    r"(?P<before>[~+])\s*offset\(\s*(?P<log>(?:np\.)?log\(\s*)?(?P<name>`[^`]+`|[^\W\d][\w.]*)\s*(?(log)\)\s*)\)"
)


def split_offsets(formula: str) -> tuple[str, dict[str, str]]:
    """A formula without offset(x) and offset(log(x)), which R has in formulas, and the columns of these as "offset" and
    "exposure". What stands in brackets is left as it is.

    >>> split_offsets("claims ~ age + offset(log(months))")
    ('claims ~ age', {'exposure': 'months'})
    """
    columns: dict[str, str] = {}
    place = 0
    while match := _OFFSET.search(formula, place):
        word, start = "exposure" if match["log"] else "offset", match.start()
        place = match.end()
        if word in columns or formula[:start].count("(") != formula[:start].count(")"):
            continue
        columns[word] = match["name"].strip("`")
        kept = formula[:start].rstrip() if match["before"] == "+" else f"{formula[:start]}~ 1"
        formula, place = kept + formula[place:], len(kept)
    return formula, columns


def parse_formulas(given: object) -> Formulas:
    """The formulas of a model, given as one text, as a list, or as a dictionary by what each is for.

    The first of a list is the formula of the response. In a dictionary it is the one whose key is its response or "mu";
    the others may leave out what stands before ~.

    >>> parse_formulas({"y": "y ~ x + (1 | g)", "sigma": "~ z"})
    Formulas(main='y ~ x + (1 | g)', further={'sigma': 'sigma ~ z'})
    >>> parse_formulas(["y ~ x", "sigma ~ z"]).further
    {'sigma': 'sigma ~ z'}
    """
    if isinstance(given, str):
        return Formulas(given, {})
    if isinstance(given, Mapping):
        pairs = [(str(name), text) for name, text in given.items()]
    elif isinstance(given, Sequence):
        pairs = [("", text) for text in given]
    else:
        raise DataError(f"the formula must be a text, a list of them or a dictionary; got {type(given).__name__}.")
    if not pairs or not all(isinstance(text, str) for _, text in pairs):
        raise DataError("formulas must be texts, the first one that of the response, such as 'y ~ x'; got others.")
    formulas = [(key, *_sides(key, text)) for key, text in pairs]
    complete = [k for k, (key, left, _) in enumerate(formulas) if left and key in ("", left, _NAME_OF_MEAN)]
    of_mean = [k for k in complete if not isinstance(given, Mapping) or formulas[k][0] == _NAME_OF_MEAN]
    main_key, response, main_terms = formulas.pop((of_mean or complete or [0])[0])
    further: dict[str, str] = {}
    for key, left, terms in formulas:
        name = left or key
        if key and left and left != key:
            raise DataError(f"the formula of {key!r} says that it is of {left!r}: write {key!r}: '~ {terms}'.")
        if not name:
            raise DataError(f"the formula '~ {terms}' must say what it is of, such as 'sigma ~ {terms}'.")
        if name in further:
            raise DataError(f"{name!r} has two formulas: take one of them out.")
        further[name] = f"{name} ~ {terms}"
    if main_key not in ("", response, _NAME_OF_MEAN) and response:
        raise DataError(f"the formula of {main_key!r} says that it is of {response!r}: take one name for the response.")
    if not (main_key or response):
        return Formulas(main_terms, further)
    return Formulas(f"{response or quote_name(main_key)} ~ {main_terms}", further)


_NAME_OF_MEAN = "mu"  # a key for the formula of the response, as in other libraries


def _sides(name: str, text: str) -> tuple[str, str]:
    """What stands before ~ and what stands after it, without spaces at their ends."""
    left, tilde, right = text.partition("~")
    if not tilde and not name:
        raise DataError(f"a formula reads 'response ~ terms' or 'parameter ~ terms'; got {_shortened(text)}.")
    return (left.strip(), right.strip()) if tilde else ("", text.strip())


def parse_terms(text: str) -> tuple[tuple[Term, ...], bool]:
    """The terms of a formula without a response, and whether it has an intercept."""
    parser = _Parser(text, ())
    terms = parser.terms({})
    if parser.groups or parser.smooths:
        raise formula_error(text, "it has effects of groups or smooths")
    return terms


def formula_error(formula: object, why: str) -> DataError:
    """The error that says why a formula cannot be used."""
    return DataError(f"the formula {_shortened(formula)} cannot be used: {why}.")


def quote_name(name: str) -> str:
    """The name of a column as it stands in a formula, between backticks if it needs them.

    >>> quote_name("age"), quote_name("age in years")
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
    """A parser of one formula by recursive descent: the tokens, and the position of the next one."""

    def __init__(self, text: str, available: Sequence[str]) -> None:
        self.text, self.available = text, available
        self.starts: list[int] = []  # of the tokens in the text
        self.smooths: list[SmoothTerm] = []
        self.tokens, self.position, self.depth = self._tokenise(text), 0, 0
        self.response: Factor | None = None
        self.groups: list[GroupTerm] = []
        self.grouping_columns = self._find_grouping_columns()

    def formula(self) -> ParsedFormula:
        """Parse response ~ sum."""
        value = self._peek()[1]
        if not isinstance(value, Factor) or self.tokens[1:2] != [("sign", "~")]:
            raise DataError(
                f"the formula must have one response before '~', such as 'y ~ age'; got {_shortened(self.text)}."
            )
        self.response, self.position = value, 2
        terms, intercept = self.terms({frozenset(): INTERCEPT})
        if any(isinstance(token, Factor) and token.survival for _, token in self.tokens[1:]):
            raise self._error("Surv(…), cens(…) and trunc(…) are responses, and stand before '~'")
        return ParsedFormula(value, terms, intercept, tuple(self.groups), tuple(self.smooths))

    def terms(self, start: _Sum) -> tuple[tuple[Term, ...], bool]:
        """Parse a sum up to the end of the formula. Returns its terms in the order of their degrees, and whether it has
        an intercept.
        """
        terms = self._sum(start)
        if self._peek()[1] in _BARS:
            raise self._error("effects of groups stand in brackets, such as (1 | g); `or` of columns in {a | b}")
        if self.position < len(self.tokens):
            raise self._error(f"{self._next_in_words()} is not expected there; {_USE_BACKTICKS}")
        intercept = terms.pop(frozenset(), None) is not None
        return tuple(sorted(terms.values(), key=lambda term: len(term.factors))), intercept

    def _tokenise(self, text: str) -> list[tuple[str, str | Factor]]:
        """Split a formula into signs, numbers, factors, smooths and dots."""
        tokens: list[tuple[str, str | Factor]] = []
        at = 0
        while at < len(text):
            if blank := _BLANK.match(text, at):
                at = blank.end()
                continue
            self.starts.append(at)
            if name := _QUOTED.match(text, at):
                tokens.append(("factor", Factor(name[1])))
                at = name.end()
            elif text[at] == "{":
                end = self._end_of_bracket(text, at)
                tokens.append(("factor", _read_factor(text[at + 1 : end - 1])))
                at = end
            elif word := _WORD.match(text, at):
                at = self._read_word(text, word, tokens)
            elif sign := _SIGN.match(text, at):
                tokens.append(("sign", sign[0]))
                at = sign.end()
            else:
                raise self._error(
                    f"{text[at]!r} has no meaning there; names with signs in them stand between backticks"
                )
        return tokens

    def _read_word(self, text: str, word: re.Match[str], tokens: list[tuple[str, str | Factor]]) -> int:
        """Add the token that begins with a word: a number, a dot, the name of a column, or a call with all that is
        between its brackets. Returns the position after it.
        """
        end = word.end()
        if text[end : end + 1] == "[":
            raise self._error(f"a formula takes no subscripts; {_USE_BACKTICKS}")
        if text[end : end + 1] == "(":
            end = self._end_of_bracket(text, end)
            call = text[word.start() : end]
            if word[0] != SMOOTH and SMOOTH in (factor := _read_factor(call)).functions:
                raise self._error(_SMOOTHS_ARE_ADDED)
            tokens.append(("smooth", call) if word[0] == SMOOTH else ("factor", factor))
        elif word[0] == ".":
            tokens.append(("dot", "."))
        elif _NUMBER.fullmatch(word[0]):
            tokens.append(("number", word[0]))
        else:
            tokens.append(("factor", Factor(word[0])))
        return end

    def _end_of_bracket(self, text: str, at: int) -> int:
        """The position after the bracket that closes the one at position `at`."""
        depth, begin = 0, at
        while at < len(text):
            if (skipped := _TEXT.match(text, at)) is not None:
                at = skipped.end()
                continue
            depth += (text[at] in "([{") - (text[at] in ")]}")
            at += 1
            if not depth:
                return at
        raise self._error(f"the bracket in {text[begin : begin + 20]!r} is not closed")

    def _peek(self) -> tuple[str, str | Factor]:
        return self.tokens[self.position] if self.position < len(self.tokens) else ("end", "the end")

    def _accept(self, *signs: str) -> str:
        """Consume the next token if it is one of these signs, and return it; otherwise return ""."""
        kind, value = self._peek()
        if kind != "sign" or value not in signs:
            return ""
        self.position += 1
        return str(value)

    def _sum(self, terms: _Sum) -> _Sum:
        sign = self._accept_signs() or "+"
        while True:
            if not self.depth and self._is_group():
                self._group(sign)
            elif not self.depth and self._peek()[0] == "smooth":
                self._smooth(sign)
            else:
                self._add(terms, sign)
            sign = self._accept_signs()
            if not sign:
                return terms

    def _add(self, total: _Sum, sign: str) -> None:
        """Parse a product, and add it to a sum or take it out."""
        terms, zero = self._product()
        if zero:  # + 0 is - 1, and - 0 is + 1
            sign = "-" if sign == "+" else "+"
        if sign == "+":
            for key, term in terms.items():
                total.setdefault(key, term)
        else:
            for key in terms:
                total.pop(key, None)

    def _find_grouping_columns(self) -> set[str]:
        """The columns of grouping factors: all that stand between a bar and the closing bracket after it."""
        columns: set[str] = set()
        depth = after = 0  # brackets that are open, and how many were at the last bar
        for kind, value in self.tokens:
            depth += (value == "(") - (value == ")")
            if value in _BARS:
                after = depth
            elif depth < after:
                after = 0
            elif after and isinstance(value, Factor):
                columns.update(value.variables)
            elif after and kind == "dot":
                raise self._error("'.' stands for no grouping factor: name the column, such as (1 | g)")
        return columns

    def _is_group(self) -> bool:
        """Whether the next token opens a bracket with a bar in it, outside of inner brackets."""
        depth = 0
        for _, value in self.tokens[self.position :] if self._peek() == ("sign", "(") else ():
            depth += (value == "(") - (value == ")")
            if not depth:
                return False
            if depth == 1 and value in _BARS:
                return True
        return False

    def _group(self, sign: str) -> None:
        """Parse (sum | sum) into a group term for each term after the bar."""
        begin = self.position
        self.position, self.depth = self.position + 1, 1
        left = self._sum({frozenset(): INTERCEPT})
        bar = self._accept(*_BARS)
        if not bar:
            raise self._error(f"{self._next_in_words()} is not expected there; {_USE_BACKTICKS}")
        right = self._sum({})
        if self._peek()[1] in _BARS:
            raise self._error("effects of groups have one bar, such as (1 | a) + (1 | b)")
        if self._peek()[1] != ")":
            shown = (
                "a bracket is not closed"
                if self._peek()[0] == "end"
                else f"{self._next_in_words()} is not expected there"
            )
            raise self._error(shown)
        text = " ".join(self.text[self.starts[begin] : self.starts[self.position] + 1].split())
        self.position, self.depth = self.position + 1, 0
        if self._accept("*", "/", "%in%", ":", "**", "^"):
            raise self._error(_GROUPS_ARE_ADDED)
        if sign == "-":
            raise self._error(f"effects of groups are not taken out: leave {text} out")
        if not left:
            raise self._error(f"in {text} nothing varies: (1 | g) has an intercept that does, (0 + x | g) a slope")
        if not right or frozenset() in right:
            raise self._error(f"{text} has no grouping factor after its bar, such as (1 | g)")
        intercept = left.pop(frozenset(), None) is not None
        terms = tuple(sorted(left.values(), key=lambda term: len(term.factors)))
        for term in right.values():
            self._append_group(
                GroupTerm(
                    terms, intercept, self._grouping_factors(term, text), bar == "|", _categories_of_factor(term), text
                )
            )

    def _smooth(self, sign: str) -> None:
        """Parse s(factor, k=number, by=factor)."""
        text = " ".join(str(self._peek()[1]).split())
        self.position += 1
        if self._accept("*", "/", "%in%", ":", "**", "^"):
            raise self._error(_SMOOTHS_ARE_ADDED)
        if sign == "-":
            raise self._error(f"smooths are not taken out: leave {text} out")
        smooth = self._smooth_term(text)
        for other in self.smooths:
            if other.argument == smooth.argument and other.by == smooth.by:
                raise self._error(f"{other.text} and {text} are one smooth: take one of them out")
        self.smooths.append(smooth)

    def _smooth_term(self, text: str) -> SmoothTerm:
        """The smooth with this text."""
        columns, options = [], dict[str, str]()
        for part in _split_at_commas(text[text.index("(") + 1 : -1]):
            option = _OPTION.match(part)
            if option is None:
                columns.append(part)
            elif option[1] not in ("k", "by"):
                raise self._error(
                    f"{text} has {option[1]}=…, and a smooth takes k=… (how many functions it is made of) and by=… (a "
                    "column) alone: it is a cubic spline, whose smoothness is learnt from the data"
                )
            elif option[1] in options:
                raise self._error(f"{text} has {option[1]}=… twice")
            else:
                options[option[1]] = option[2].strip()
        if len(columns) != 1 or not columns[0]:
            count = len([column for column in columns if column]) or "none"
            raise self._error(
                f"a smooth is one of one column, such as s(age), and {text} has {count}"
                "; of two take s(a) + s(b), s(a, by=b), or products of splines such as bs(a, df=4):bs(b, df=4)"
            )
        by, coded = None, False
        if "by" in options:
            try:
                factor = self._read_smooth_argument(options["by"], text)
            except DataError as error:
                raise self._error(f"by=… of {text} is a column, or C(column), such as by=g") from error
            coded = factor.expression is not None and factor.expression.category is not None
            if factor.expression is not None and not coded:
                raise self._error(f"by=… of {text} is a column, or C(column), and no expression: make a column of it")
            by = factor.variables[0]
        if "k" in options and not options["k"].isdecimal():
            raise self._error(f"k of {text} is a whole number, such as k=20")
        k = int(options["k"][:9]) if "k" in options else None
        return SmoothTerm(self._read_smooth_argument(columns[0], text), k, by, coded, text)

    def _read_smooth_argument(self, part: str, text: str) -> Factor:
        """Read a column or an expression of a smooth."""
        name = _QUOTED.fullmatch(part)
        if name is not None:
            return Factor(name[1])
        if not part or SMOOTH in (factor := _read_factor(part.removeprefix("{").removesuffix("}"))).functions:
            raise self._error(f"{text} is a smooth of no column")
        return factor

    def _grouping_factors(self, term: Term, text: str) -> Term:
        """A grouping factor as a product of columns, where C(g) stands for g. Refuses other expressions."""
        for factor in term.factors:
            if factor.expression is not None and factor.expression.category is None:
                raise self._error(
                    f"a grouping factor is a column, or several that are joined by : or /, and {factor.text!r} in "
                    f"{text} is none: make a column of it first"
                )
        return Term(tuple(dict.fromkeys(Factor(factor.variables[0]) for factor in term.factors)))

    def _append_group(self, group: GroupTerm) -> None:
        """Add a group term. Refuses one that repeats an effect of an earlier one."""
        own = {INTERCEPT, *group.terms} if group.intercept else set(group.terms)
        for other in self.groups:
            shared = own & ({INTERCEPT, *other.terms} if other.intercept else set(other.terms))
            if shared and set(other.factor.factors) == set(group.factor.factors):
                repeated = next(iter(shared)).formula_text or "1"
                where = f"in {other.text} and in {group.text}" if other.text != group.text else f"in {group.text}"
                hint = "; (x | g) has an intercept of its own, (0 + x | g) has none" if repeated == "1" else ""
                raise self._error(
                    f"({repeated} | {group.factor.formula_text}) stands twice, {where}: take one of them out{hint}"
                )
        self.groups.append(group)

    def _accept_signs(self) -> str:
        """Consume all + and − that come next, and return the sign that they amount to; "" if there are none."""
        signs: list[str] = []
        while sign := self._accept("+", "-"):
            signs.append(sign)
        if not signs:
            return ""
        return "-" if signs.count("-") % 2 else "+"

    def _product(self) -> tuple[_Sum, bool]:
        """Parse a product. Returns its terms, and whether it is the 0 that takes the intercept out."""
        terms, zero = self._inner()
        while sign := self._accept("*", "/", "%in%"):
            other, other_zero = self._inner()
            if zero or other_zero:
                raise self._error("0 takes the intercept out of a sum, and is no factor of a product")
            if sign == "*":
                terms = {**terms, **other, **self._product_of_sums(terms, other)}
            else:
                parents, nested = (terms, other) if sign == "/" else (other, terms)
                common = INTERCEPT
                for term in parents.values():
                    common = common.times(term)
                terms = {**parents, **self._product_of_sums(_sum_of([common]), nested)}
        return terms, zero

    def _inner(self) -> tuple[_Sum, bool]:
        terms, zero = self._power()
        while self._accept(":"):
            other, other_zero = self._power()
            if zero or other_zero:
                raise self._error("0 takes the intercept out of a sum, and is no factor of a product")
            terms = self._product_of_sums(terms, other)
        return terms, zero

    def _power(self) -> tuple[_Sum, bool]:
        terms, zero = self._atom()
        while self._accept("**", "^"):
            kind, value = self._peek()
            if kind != "number" or not str(value).isdecimal() or not 1 <= int(str(value)[:9]) <= 100:
                raise self._error("a power of a sum is a whole number from 1 to 100; write {x**2} for that of a column")
            self.position += 1
            if len(terms) == 1 and int(str(value)) > 1:
                (term,) = terms.values()
                why = f"a power of one term is that term again: write I({term.formula_text}**{value}) for the power"
                raise self._error(why)
            base = terms
            for _ in range(int(str(value)) - 1):
                larger = self._product_of_sums(terms, base)
                if larger.keys() == terms.keys():
                    break
                terms = larger
        return terms, zero

    def _product_of_sums(self, left: _Sum, right: _Sum) -> _Sum:
        if len(left) * len(right) > _MOST_TERMS:
            raise self._error(f"its products make more than {_MOST_TERMS:,} terms")
        return _sum_of(a.times(b) for a in left.values() for b in right.values())

    def _atom(self) -> tuple[_Sum, bool]:
        kind, value = self._peek()
        self.position += 1
        if isinstance(value, Factor):
            return _sum_of([Term((value,))]), False
        if kind == "smooth":
            raise self._error(_SMOOTHS_ARE_ADDED)
        if kind == "dot":
            smooth = {self._smooth_term(str(text)).argument.text for kind, text in self.tokens if kind == "smooth"}
            used = self.grouping_columns | smooth | set(() if self.response is None else self.response.variables)
            return _sum_of(Term((Factor(name),)) for name in self.available if name not in used), False
        if kind == "number":
            if value not in ("0", "1"):
                raise self._error(
                    f"a number in it is 0 or 1; arithmetic stands in I(…), and a column named {value} in backticks"
                )
            return _sum_of([INTERCEPT]), value == "0"
        if value == "(":
            self.depth += 1
            if self.depth > _DEEPEST:
                raise self._error(f"it is nested more than {_DEEPEST} times")
            terms = self._sum({})
            if self._peek()[1] in _BARS:
                raise self._error(_GROUPS_ARE_ADDED)
            if not self._accept(")"):
                raise self._error("a bracket is not closed")
            self.depth -= 1
            return terms, False
        self.position -= 1
        raise self._error(f"{self._next_in_words()} stands where a column is expected")

    def _next_in_words(self) -> str:
        kind, value = self._peek()
        return str(value) if kind == "end" else repr(value.text if isinstance(value, Factor) else value)

    def _error(self, why: str) -> DataError:
        return formula_error(self.text, why)


def _split_at_commas(text: str) -> list[str]:
    """Split a text at the commas that are outside of brackets and quotes."""
    parts, depth, begin, at = [], 0, 0, 0
    while at < len(text):
        if (skipped := _TEXT.match(text, at)) is not None:
            at = skipped.end()
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if text[at] == "," and not depth:
            parts.append(text[begin:at].strip())
            begin = at + 1
        at += 1
    return [*parts, text[begin:].strip()]


def _categories_of_factor(term: Term) -> tuple[str, ...]:
    """The columns of a grouping factor that stand in C(…)."""
    return tuple(factor.variables[0] for factor in term.factors if factor.expression is not None)


def _read_factor(text: str) -> Factor:
    """Read an expression; one that is only a column becomes that column."""
    parsed = parse_expression(text)
    if parsed.tree.__class__.__name__ in ("Name", "Attribute") and len(parsed.variables) == 1:
        return Factor(parsed.variables[0])
    return Factor(parsed.text, parsed)


def _sum_of(terms: Iterable[Term]) -> _Sum:
    total: _Sum = {}
    for term in terms:
        total.setdefault(frozenset(term.factors), term)
    return total


def _shortened(formula: object) -> str:
    text = repr(formula)
    return text if len(text) <= 120 else f"{text[:100]} … {text[-15:]}"
