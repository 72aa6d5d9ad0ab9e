"""A design: how a table becomes the rows of a regression, with the names of their columns.

It is made once, by `designed` from a table in memory and by `svrhmc.tables.partitions` from rows in partitions, and
then applied to whatever rows there are, block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import DataError, requirement
from svrhmc.priors.groups import Group, Smooth
from svrhmc.rows.csr import CsrMatrix, Matrix
from svrhmc.rows.sparse import beside
from svrhmc.tables import formula as grammar
from svrhmc.tables import smooths as smoothing
from svrhmc.tables.columns import CATEGORY, NUMBER, Column, Columns, Level, column_names, columns_of
from svrhmc.tables.expressions import Rows, State, Value, require_transforms, response_in_words
from svrhmc.tables.formula import ParsedFormula, formula_error, parse_formula
from svrhmc.tables.groups import GroupDesign, Refusal, from_numbers, group_designs, to_numbers
from svrhmc.tables.smooths import SmoothDesign, require_separate_smooths, smooth_designs
from svrhmc.tables.terms import (
    Category,
    Encoded,
    Number,
    Term,
    Transforms,
    computed,
    encoded,
    from_text,
    levels_without_column,
    new_rows,
    plainly,
    remembered,
    require_few,
    require_finite,
    require_memory,
    shown,
    to_text,
)

_BLOCK = 1 << 13  # rows that are put together at a time
_SPARSE, _SHARE = 100, 5  # columns of categories from which, and times the others from where, rows are sparse


@dataclass(frozen=True, eq=False)
class Design:
    """formula, response and terms; whether there is an intercept; the classes of the response, the last of two being
    the one whose probability is modelled; the columns that offsets, exposures and trials come from; how many rows were
    left out because of missing values; why this family, where none was named; what a user should know of how labels
    were taken (`notes`); what varies by groups (`groups`); the smooths (`smooths`); and the designs of parameters that
    have predictors of their own (`further`), whose columns follow those of the terms.
    """

    formula: str
    response: str
    terms: str  # as JSON
    intercept: bool
    classes: tuple[str, ...] = ()
    offset: str = ""
    exposure: str = ""
    trials: str = ""
    dropped: int = 0
    guessed: str = ""
    shifted: bool = False  # whether an offset or an exposure was given beside the table
    tried: bool = False  # whether trials were given beside the table
    group_terms: Indices | None = field(default=None, repr=False)  # as `svrhmc.tables.groups` writes them
    smooth_terms: Indices | None = field(default=None, repr=False)  # as `svrhmc.tables.smooths` writes them
    notes: tuple[str, ...] = ()
    further_terms: tuple[str, ...] = ()  # of each further predictor formula, name, terms, and "1" with an intercept
    transforms: ClassVar[Mapping[str, Callable[..., object]]] = {}

    def require_sound(self) -> None:
        """Refuse terms that are none."""
        from_text(self.terms)
        from_numbers(self.group_terms)
        smoothing.from_numbers(self.smooth_terms)
        for design in self.further:
            from_text(design.terms)

    def with_transforms(self, transforms: Mapping[str, Callable[..., object]]) -> Design:
        """The same with functions that its formula calls by name, which no file holds."""
        design = replace(self)
        object.__setattr__(design, "transforms", transforms)
        return design

    @cached_property
    def made_of(self) -> tuple[Term, ...]:
        """The terms, read from the text that the design keeps of them."""
        return from_text(self.terms, self.transforms)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns, without the intercept."""
        return tuple(name for term in self.made_of for name in term.names)

    @cached_property
    def further(self) -> tuple[Design, ...]:
        """The designs of parameters that have predictors of their own; the response of each is its name."""
        parts = zip(*(self.further_terms[k::4] for k in range(4)), strict=True)
        return tuple(
            Design(formula, name, terms, one == "1").with_transforms(self.transforms)
            for formula, name, terms, one in parts
        )

    @property
    def formulas(self) -> tuple[str, ...]:
        """Those that `fit` was given: of the response, and of further predictors."""
        others = [design.formula for design in self.further]
        return (self.formula.removesuffix("".join(f"; {one}" for one in others)), *others)

    @property
    def _designs(self) -> tuple[Design, ...]:
        """This one, and then the further ones."""
        return (self, *self.further)

    @cached_property
    def groups(self) -> tuple[GroupDesign, ...]:
        """The terms of group effects."""
        return from_numbers(self.group_terms, self.transforms)

    @cached_property
    def smooths(self) -> tuple[SmoothDesign, ...]:
        """The smooths, whose straight lines are among the terms."""
        return smoothing.from_numbers(self.smooth_terms, self.transforms)

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns of a table that it needs: those of coefficients, of groups, and of what varies by them."""
        return tuple(dict.fromkeys([*self.coefficient_variables, *self.group_variables]))

    @property
    def coefficient_variables(self) -> tuple[str, ...]:
        """The columns of a table that the coefficients need."""
        return tuple(
            dict.fromkeys(name for design in self._designs for term in design.made_of for name in term.variables)
        )

    @property
    def group_variables(self) -> tuple[str, ...]:
        """The columns of a table that the terms of group effects need."""
        return tuple(dict.fromkeys(name for group in self.groups for name in group.variables))

    @property
    def baselines(self) -> tuple[str, ...]:
        """The levels that the columns of their categories are compared with."""
        return tuple(term.baseline for design in self._designs for term in design.made_of if term.baseline)

    @property
    def choices(self) -> dict[str, tuple[Level, ...]]:
        """The levels of the variables that are categories, the baseline first."""
        return {name: levels for design in self._designs for name, levels in design.own_choices.items()}

    @property
    def own_choices(self) -> dict[str, tuple[Level, ...]]:
        """The same of the first formula alone."""
        return {name: levels for term in self.made_of for name, levels in term.choices.items()}

    @cached_property
    def response_in_words(self) -> str:
        """The response, or of Surv(time, event == 2) "time until event"."""
        return response_in_words(self.response)

    @property
    def all_choices(self) -> dict[str, tuple[Level, ...]]:
        """The same, with those of categories whose effects vary by groups."""
        varying = {
            name: levels for group in self.groups for term in group.terms for name, levels in term.choices.items()
        }
        return {**varying, **self.choices}

    def typical_changes(self, own: Array) -> Array:
        """Of each column the change that its coefficient is shown for, from the typical change of each by itself: that
        of an interaction is the product of those of its factors, where a level of a category changes by 1. (By itself
        the column plan[pro]:age, which is 0 in most rows, has a spread that is neither that of age nor 1.)
        """
        by_name = dict(zip(self.names, own, strict=True))
        for name, levels in self.choices.items():
            by_name |= {f"{name}[{text}]": 1.0 for level in levels for text in (shown(level), str(level))}
        factors = [names for term in self.made_of for names in term.factors]
        products = [
            np.prod([by_name[factor] for factor in names]) if by_name.keys() >= set(names) else by_name[name]
            for name, names in zip(self.names, factors, strict=True)
        ]
        return np.array(products, np.float64)

    def separate(self, name: str) -> bool:
        """Whether a column is a category that stands in a term of its own alone, so that a level adds the same number
        to the predictor of every row.
        """
        varies = any(name in term.variables for group in self.groups for term in group.terms)
        kinds = [[term.kind for term in design.made_of if name in term.variables] for design in self._designs]
        return not varies and all(own in ([], ["category"]) for own in kinds)

    @cached_property
    def plain_columns(self) -> frozenset[str]:
        """Columns of the table that stand in one term alone, as they are: numbers, and categories beside a baseline. So
        a coefficient says all that the linear predictor has of them.
        """
        terms = [names for term in self.made_of for names in term.variables_of_terms]
        alone = {
            name for name in self.coefficient_variables if [names for names in terms if name in names] == [(name,)]
        }
        beside = {name: levels_without_column(name, levels, self.names) for name, levels in self.choices.items()}
        named = {term for term, _ in self.parts}
        return frozenset(name for name in alone & named if name not in beside or len(beside[name]) == 1)

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Of each column the term, and the level or the number within it."""
        return tuple(part for term in self.made_of for part in term.parts)

    def rows(self, table: object) -> Matrix:
        """The rows of a new table; missing values are refused."""
        return self.matrix(_whole_columns(table, self.coefficient_variables))

    def groups_of(self, table: object) -> list[tuple[Indices, Array]]:
        """For each term of group effects, of the rows of a new table: their levels by number, −1 for one that was not
        fitted, and the columns (n, r) that vary by level. table: any, or `Columns` of one; missing values are refused.
        """
        columns = table if isinstance(table, Columns) else _whole_columns(table, self.group_variables)
        return [(group.index(columns), group.numbers(columns)) for group in self.groups]

    def bases_of(self, table: object) -> list[Array]:
        """For each smooth, its functions at the rows of a new table. table: any, or `Columns` of one; missing values
        are refused.
        """
        columns = table if isinstance(table, Columns) else _whole_columns(table, self.coefficient_variables)
        return [smooth.basis(columns) for smooth in self.smooths]

    def offsets(self, table: object) -> Array | None:
        """The offsets of a new table, with the logarithms of exposures, where the model has columns of them."""
        if self.shifted:
            raise DataError(
                "the model was fitted with an offset or exposure that was no column of the table: give offset=… for "
                "the new rows too (zeros, where there is none)."
            )
        names = [name for name in (self.offset, self.exposure) if name]
        if not names:
            return None
        there = column_names(table)
        if absent := [name for name in names if name not in there]:
            what = "exposure" if absent[0] == self.exposure else "offset"
            usual = "exposure=1 predicts the rate" if what == "exposure" else "0 where there is none"
            raise DataError(
                f"the table has no column {absent[0]!r}, the {what} that the model was fitted with: add it, or give "
                f"{what}=… for the new rows ({usual})."
            )
        columns = columns_of(table, names)
        offset = np.zeros(columns.n)
        if self.offset:
            offset += np.asarray(columns[self.offset].values, np.float64)
        return offset + log_exposure(columns[self.exposure].values) if self.exposure else offset

    def trials_of(self, table: object) -> Array | None:
        """The trials of the rows of a new table, where the model has any; else None."""
        if self.trials and self.trials in column_names(table):
            return np.asarray(columns_of(table, [self.trials])[self.trials].values, np.float64)
        if self.trials or self.tried:
            where = f"the column {self.trials!r}, which the table lacks" if self.trials else "an array"
            raise DataError(
                f"the model was fitted with the trials of {where}: give trials=… for the new rows, one number or one "
                "for each (1: predictions are then probabilities of a success)."
            )
        return None

    def matrix(self, columns: Columns) -> Matrix:
        """Dense, or sparse where most columns are levels; with those of further predictors."""
        return beside([design._own_matrix(columns) for design in self._designs])

    def _own_matrix(self, columns: Columns) -> Matrix:
        coded = sum(len(term.names) for term in self.made_of if term.kind == "category")
        others = sum(len(term.names) for term in self.made_of if term.kind != "category")
        if coded > max(_SPARSE, _SHARE * others):
            return self._sparse(columns)
        require_memory(coded + others, columns.n)
        parts = [term.numbers(columns) for term in self.made_of]
        out = np.empty((columns.n, coded + others))
        ends = np.cumsum([0, *(part.shape[1] for part in parts)])
        for begin in range(0, columns.n, _BLOCK):
            for part, low, high in zip(parts, ends[:-1], ends[1:], strict=True):
                out[begin : begin + _BLOCK, low:high] = part[begin : begin + _BLOCK]
            require_finite(self.names, out[begin : begin + _BLOCK], begin)
        return out

    def fill(self, columns: Columns, out: Values) -> None:
        """Write the rows of a block into an array, column by column; numbers that are not finite are left in them."""
        place = 0
        for term in self.made_of:
            numbers = term.numbers(columns)
            out[:, place : place + numbers.shape[1]] = numbers
            place += numbers.shape[1]

    def _sparse(self, columns: Columns) -> Matrix:
        from scipy.sparse import csr_matrix

        index, value, width = [], [], 0
        for term in self.made_of:
            places = term.places(columns)
            if places is None:
                numbers = term.numbers(columns)
                index.append(np.broadcast_to(width + np.arange(numbers.shape[1]), numbers.shape))
                value.append(numbers)
            else:
                index.append(np.where(places < 0, -1, width + places)[:, None])
                value.append(np.ones((columns.n, 1)))
            width += len(term.names)
        indices, values = np.concatenate(index, axis=1), np.concatenate(value, axis=1)
        kept = (indices >= 0) & (values != 0)
        starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        matrix: CsrMatrix = csr_matrix((values[kept], indices[kept], starts), shape=(columns.n, width))
        return matrix


@dataclass(frozen=True, eq=False)
class Designed:
    """Rows, the response and further columns that were asked for; the design; which rows of the table are in it; the
    columns that all of it was made of; the terms of group effects, with the smooths after them; and whether the
    response is `Surv(time, event)`.
    """

    X: Matrix
    y: Column
    extra: dict[str, Column]
    design: Design
    kept: npt.NDArray[np.bool_]
    gaps: dict[str, int]
    columns: Columns
    groups: tuple[Group | Smooth, ...] = ()
    survival: bool = False

    @property
    def dropped(self) -> int:
        """How many rows were left out."""
        return int((~self.kept).sum())


def designed(
    formula: str,
    table: object,
    extra: Iterable[str] = (),
    drop: bool = False,
    transforms: Mapping[str, Callable[..., object]] | None = None,
    learned: Design | None = None,
    further: Mapping[str, str] = MappingProxyType({}),
) -> Designed:
    """The rows of a regression.

    further: formulas of parameters that have predictors of their own, by their names.

    extra: further columns that are wanted, such as weights. drop: whether rows with missing values are left out; else
    they are refused, with their numbers by column. transforms: functions that the formula calls, by name, beside those
    that every formula has. learned: the design of earlier rows by the same formula, which makes these too.

    >>> made = designed("y ~ age + plan", {"y": [1, 0, 1], "age": [31, 48, 50], "plan": ["a", "b", "a"]})
    >>> made.design.names, made.design.baselines
    (('age', 'plan[b]'), ('plan[a]',))
    """
    given = require_transforms(transforms)
    available = column_names(table)
    parsed_formula = parse_formula(formula, available)
    others = parse_parameter_formulas(further, parsed_formula, available)
    names = dict.fromkeys([*required_columns(parsed_formula, others.values()), *extra])
    columns = columns_of(table, names, open_columns=parsed_formula.response.open_columns)
    gaps, kept = columns.gaps(), np.ones(columns.n, bool)
    if gaps and not drop:
        raise missing_values(gaps)
    if gaps:
        kept = columns.whole()
        if not kept.any():
            raise no_whole_row(gaps)
        columns = columns.kept(kept)

    def encode(terms: Sequence[grammar.Term], constant: bool, some: Columns) -> tuple[dict[str, Value], list[str]]:
        rows = Rows(some.series(), some.n, given, {})
        return rows.state, encoded(terms, constant, rows, some.n)[1]

    if learned is None:
        design = design_of(formula, parsed_formula, columns, given, encode)
        stored: list[str] = []
        for name, one in others.items():
            terms = to_text(_terms(one.terms, columns, one.intercept, encode))
            stored += [further[name], name, terms, str(int(one.intercept))]
        joined = "; ".join([formula, *further.values()])
        design = replace(design, formula=joined, further_terms=tuple(stored)).with_transforms(given)
    else:
        design = learned.with_transforms(given)
    X = design.matrix(columns)
    groups: list[Group | Smooth] = [group.made(columns) for group in design.groups]
    groups += [smooth.made(columns) for smooth in design.smooths]
    return Designed(
        X, response_of(parsed_formula.response, columns, given), {name: columns[name] for name in extra}, design, kept,
        gaps, columns, tuple(groups), parsed_formula.response.survival,
    )  # fmt: skip


Encode = Callable[[Sequence[grammar.Term], bool, Columns], tuple[dict[str, Value], list[str]]]


def design_of(
    formula: str, parsed_formula: ParsedFormula, columns: Columns, transforms: Transforms, encode: Encode
) -> Design:
    """The design of a formula.

    columns: those of the table, or their kinds and levels alone, with the number of rows. encode: for terms that
    formulaic codes, what their transformations learn of the columns, and the names of what they make.
    """
    response = parsed_formula.response.text
    if response in parsed_formula.variables:
        raise DataError(f"the response {response!r} stands among its own predictors: take it out of the formula.")
    refusal = partial(formula_error, formula)

    def varying(group: grammar.GroupTerm) -> tuple[Term, ...]:
        return from_text(to_text(_terms(group.terms, columns, group.intercept, encode)), transforms)

    def argument(smooth: grammar.SmoothTerm) -> tuple[Term, ...]:
        return from_text(to_text(_terms([grammar.Term((smooth.argument,))], columns, True, encode)), transforms)

    terms = _terms(parsed_formula.terms, columns, parsed_formula.intercept, encode)
    groups = [
        design for group in parsed_formula.groups for design in group_designs(group, varying(group), columns, refusal)
    ]
    require_separate_smooths(parsed_formula, columns, transforms, refusal)
    smooths = [
        design
        for smooth in parsed_formula.smooths
        for design in smooth_designs(smooth, argument(smooth), columns, refusal, transforms)
    ]
    terms = (*terms, *(smooth.line for smooth in smooths))
    _require_separate(terms, groups, smooths, refusal)
    design = Design(
        formula, response, to_text(terms), parsed_formula.intercept, group_terms=to_numbers(groups),
        smooth_terms=smoothing.to_numbers(smooths),
    ).with_transforms(transforms)  # fmt: skip
    if "Intercept" in design.variables:
        raise DataError("column 'Intercept' has the name of another parameter of the model: rename the column.")
    return design


def parse_parameter_formulas(
    further: Mapping[str, str], first: ParsedFormula, available: Sequence[str]
) -> dict[str, ParsedFormula]:
    """Formulas of parameters beside that of the response, by name."""
    return {name: _parse_parameter_formula(text, first, available) for name, text in further.items()}


def _parse_parameter_formula(text: str, first: ParsedFormula, available: Sequence[str]) -> ParsedFormula:
    """The formula of a parameter, which has no groups, no smooths, and nothing of the response in it."""
    other = parse_formula(text, [name for name in available if name not in first.response.variables])
    if other.groups or other.smooths:
        why = "effects of groups and smooths stand in the first formula, that of the response, alone"
        raise formula_error(text, why)
    if both := set(other.variables) & set(first.response.variables):
        raise formula_error(text, f"the response {min(both)!r} stands in it")
    if not (other.terms or other.intercept):
        raise formula_error(text, "it has no term and no intercept: leave it out, and all rows share the parameter")
    return other


def required_columns(parsed_formula: ParsedFormula, others: Iterable[ParsedFormula] = ()) -> list[str]:
    """The columns that a formula needs, and those of others."""
    more = [name for other in others for name in other.variables]
    return list(dict.fromkeys([*parsed_formula.response.variables, *parsed_formula.variables, *more]))


def _require_separate(
    terms: Sequence[Term], groups: Sequence[GroupDesign], smooths: Sequence[SmoothDesign], refusal: Refusal
) -> None:
    """Refuse names that collide, and an intercept by the levels of a category that has a coefficient for each."""
    labels: set[str] = set()
    coefficients = {name for term in terms for name in term.names}
    categories = {term.variables[0] for term in terms if term.kind == "category"}
    parts: list[GroupDesign | SmoothDesign] = [*groups, *smooths]
    for one in parts:
        for name in one.parameter_names:
            if name in coefficients or name in labels:
                raise refusal(f"two parameters would be named {name!r}: rename a column of {one.text}")
            labels.add(name)
    for group in groups:
        if group.intercept and group.factors[:1] == group.factors and group.factors[0] in categories:
            raise refusal(
                f"the levels of {group.factors[0]!r} have a coefficient each, which the effects of {group.text} cannot "
                "be told from: take one of the two out"
            )


def _whole_columns(table: object, names: Sequence[str]) -> Columns:
    """Columns of a new table, which must miss nothing."""
    columns = columns_of(table, names)
    if gaps := columns.gaps():
        raise missing_values_at(gaps)
    return columns


def missing_values_at(gaps: dict[str, int]) -> DataError:
    """What to do about those of new rows."""
    return DataError(
        f"the table must have no missing values in {missing_counts(gaps)}: leave these rows out, or fill them; "
        "predict() has missing='nan' and missing='drop' for such rows."
    )


def missing_values(gaps: dict[str, int]) -> DataError:
    """What to do about them."""
    return DataError(
        f"the table has missing values in {missing_counts(gaps)}. Fill them, or leave these rows out: missing='drop' "
        "(in the shell --missing drop)."
    )


def no_whole_row(gaps: dict[str, int]) -> DataError:
    """Where none would be left."""
    return DataError(f"no row of the table is without missing values: {missing_counts(gaps)}.")


def response_of(
    response: grammar.Factor, columns: Columns, transforms: Transforms, state: State | None = None
) -> Column:
    """A column of the table, or one that is computed, such as log(price). state: what it
    remembers of the table that was fitted; None for that table."""
    if response.expression is None:
        return columns[response.text]
    if response.survival:
        rows = Rows(columns.series(), columns.n, transforms, {})
        with plainly(response.text):
            labels = response.expression.compute(rows)
        return Column(NUMBER, np.asarray(labels), None)
    levels = {name: columns[name].levels for name in response.variables}
    if state is None:
        values = computed(response, Rows(columns.series(), columns.n, transforms, {}))
    else:
        values = computed(response, new_rows(columns, transforms, state, levels))
    if values.shape[1] != 1:
        raise DataError(f"the response {response.text!r} must be one column; it makes {values.shape[1]}.")
    y = values[:, 0]
    if not np.isfinite(y).all():
        raise DataError(f"the response {response.text!r} must be finite; it is {y[~np.isfinite(y)][0]} in some rows.")
    return Column(NUMBER, y, None)


def coded_columns(parsed_formula: ParsedFormula) -> set[str]:
    """The columns x of C(x), whose levels a design needs whatever they hold."""
    factors = [factor for term in parsed_formula.terms for factor in term.factors]
    return {
        factor.expression.category
        for factor in factors
        if factor.expression is not None and factor.expression.category is not None
    }


def _terms(terms: Sequence[grammar.Term], columns: Columns, intercept: bool, encode: Encode) -> tuple[Term, ...]:
    """Numbers and categories by ourselves, the rest by formulaic: all of it where categories interact."""
    simple = {term: _simple(term, columns) for term in terms}
    odd = [term for term in terms if simple[term] is None]
    if any(_has_category(term, columns) for term in odd):
        return (_encoded(terms, columns, intercept, encode),)
    ready: list[Term] = []
    full = not intercept
    for one in simple.values():
        if one is None:
            continue
        if one.kind == "category":
            require_few(f"column {one.variable!r}", len(one.levels), columns.n, some=one.levels)
            if len(one.levels) < 2 and not full:
                only = one.levels[0]
                raise DataError(f"column {one.variable!r} has one level only, {only!r}: leave it out of the formula.")
            one, full = replace(one, full=full), False
        ready.append(one)
    if odd:
        ready.append(_encoded(odd, columns, False, encode))
    return tuple(ready)


def _simple(term: grammar.Term, columns: Columns) -> Any:
    """A number or a category; None for all else."""
    if len(term.factors) != 1:
        return None
    factor = term.factors[0]
    if factor.expression is None:
        column = columns[factor.text]
        return Category(factor.text, column.levels) if column.kind == CATEGORY else Number(factor.text)
    name = factor.expression.category
    return None if name is None else Category(name, columns[name].distinct())


def _has_category(term: grammar.Term, columns: Columns) -> bool:
    coded = any(factor.expression is not None and factor.expression.makes_category for factor in term.factors)
    return coded or any(columns[name].kind == CATEGORY for name in term.variables)


def _encoded(terms: Sequence[grammar.Term], columns: Columns, intercept: bool, encode: Encode) -> Encoded:
    """By formulaic, without the column of the intercept, which the design has by itself."""
    names = sorted({name for term in terms for name in term.variables})
    some = Columns({name: columns[name] for name in names}, columns.n)
    state, names_of_columns = encode(terms, intercept, some)
    text = " + ".join(["1" if intercept else "0", *(term.formula_text for term in terms)])
    coded = {factor.expression.category for term in terms for factor in term.factors if factor.expression is not None}
    levels = tuple(some[name].distinct() if name in coded else some[name].levels for name in names)
    kinds = tuple(some[name].kind for name in names)
    return Encoded(text, tuple(names), kinds, levels, tuple(names_of_columns), remembered(state, text))


def log_exposure(exposure: npt.ArrayLike) -> Array:
    """Its logarithm; refuses exposures that are not above 0."""
    values = np.asarray(exposure, np.float64)
    if not (values > 0).all():
        raise requirement("exposure", "above 0 in every row", f"{float(np.min(values)):g}")
    return np.log(values)


def is_table(X: object) -> bool:
    """Whether it has columns with names, so that a design can be applied to it."""
    return (
        isinstance(X, Mapping | Columns)
        or (hasattr(X, "columns") and not hasattr(X, "format"))
        or hasattr(X, "column_names")
    )


def missing_counts(gaps: dict[str, int]) -> str:
    """Counts by column, in words."""
    return ", ".join(f"{name!r} ({count:,} missing)" for name, count in gaps.items())
