"""A design: how a table becomes the design matrix of a regression, and what its columns are called.

It is built once, by `designed` from a table in memory or by `svrhmc.tables.partitions` from rows in partitions. It is
then applied to any rows, block by block: those that are fitted, and new ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import DataError, requirement
from svrhmc.priors.groups import Group, Smooth
from svrhmc.rows.csr import CsrMatrix, Matrix
from svrhmc.rows.sparse import side_by_side
from svrhmc.tables import formula as grammar
from svrhmc.tables import smooths as smoothing
from svrhmc.tables.columns import CATEGORY, NUMBER, Column, Columns, Level, column_names, columns_of
from svrhmc.tables.expressions import Rows, State, Value, require_transforms, response_in_words
from svrhmc.tables.formula import ParsedFormula, formula_error, parse_formula, shorten_lists
from svrhmc.tables.groups import ErrorForReason, GroupDesign, group_designs, groups_from_array, groups_to_array
from svrhmc.tables.smooths import SmoothDesign, require_separate_smooths, smooth_designs
from svrhmc.tables.terms import (
    Category,
    Encoded,
    Number,
    Term,
    Transforms,
    compute_factor,
    encode_terms,
    formulaic_errors,
    level_name,
    levels_without_column,
    require_few_levels,
    require_finite,
    require_memory_for_design,
    require_no_numbers_as_texts,
    rows_with_levels,
    state_to_json,
    terms_from_json,
    terms_to_json,
)

_BLOCK = 1 << 13  # rows that are assembled at a time
_MOST_DENSE_LEVELS = 100  # rows with more columns of levels are sparse,
_SPARSE_RATIO = 5  # if these are also so many times as many as the other columns


@dataclass(frozen=True, eq=False)
class Design:
    """How a table becomes a design matrix. The matrix has the columns of the terms, and after them those of further
    predictors, such as one of sigma (`further`). Group effects (`groups`) and smooths (`smooths`) have bases of their
    own.

    offset, exposure, trials: the columns of the table that these come from; "" if none. classes: of the response, in
    order; of two, the second is the one whose probability is modelled. dropped: how many rows were left out because
    they miss values. guessed: why this family was chosen, if none was named. notes: what a user should know about how
    labels were read.
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
    shifted: bool = False  # whether an offset or an exposure was given as numbers, not as a column of the table
    tried: bool = False  # whether trials were given as numbers, not as a column of the table
    group_terms: Indices | None = field(default=None, repr=False)  # as written by `svrhmc.tables.groups`
    smooth_terms: Indices | None = field(default=None, repr=False)  # as written by `svrhmc.tables.smooths`
    notes: tuple[str, ...] = ()
    further_terms: tuple[str, ...] = ()  # four texts for each further predictor: formula, name, terms, "1" or "0"
    weights: str = ""  # the column of the table that they come from
    weighted: bool = False  # whether rows have weights, of a column or given as numbers
    transforms: ClassVar[Mapping[str, Callable[..., object]]] = {}

    def require_sound(self) -> None:
        """Raise an error if the stored terms cannot be read."""
        terms_from_json(self.terms)
        groups_from_array(self.group_terms)
        smoothing.smooths_from_array(self.smooth_terms)
        for design in self.further:
            terms_from_json(design.terms)

    def with_transforms(self, transforms: Mapping[str, Callable[..., object]]) -> Design:
        """The same design with the user's functions that its formula calls by name. No file holds them."""
        design = replace(self)
        object.__setattr__(design, "transforms", transforms)
        return design

    @cached_property
    def made_of(self) -> tuple[Term, ...]:
        """The terms, read from their JSON."""
        return terms_from_json(self.terms, self.transforms)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of the terms, without the intercept."""
        return tuple(name for term in self.made_of for name in term.names)

    @cached_property
    def further(self) -> tuple[Design, ...]:
        """The designs of parameters that have predictors of their own. `response` is the name of the parameter."""
        fields = zip(*(self.further_terms[k::4] for k in range(4)), strict=True)
        return tuple(
            Design(formula, name, terms, intercept == "1").with_transforms(self.transforms)
            for formula, name, terms, intercept in fields
        )

    @property
    def formulas(self) -> tuple[str, ...]:
        """The formulas that `fit` was given: that of the response, then those of further predictors."""
        further = [design.formula for design in self.further]
        return (self.formula.removesuffix("".join(f"; {formula}" for formula in further)), *further)

    @property
    def _designs(self) -> tuple[Design, ...]:
        """This design, then those of further predictors."""
        return (self, *self.further)

    @cached_property
    def groups(self) -> tuple[GroupDesign, ...]:
        """The terms of group effects."""
        return groups_from_array(self.group_terms, self.transforms)

    @cached_property
    def smooths(self) -> tuple[SmoothDesign, ...]:
        """The smooths. Their straight lines are among the terms."""
        return smoothing.smooths_from_array(self.smooth_terms, self.transforms)

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns of a table that the design needs: for coefficients, for groups, and for what varies by groups."""
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
        """The names of the levels that have no column: the other levels of their categories are compared with them."""
        return tuple(term.baseline for design in self._designs for term in design.made_of if term.baseline)

    @property
    def choices(self) -> dict[str, tuple[Level, ...]]:
        """The levels of each variable that is a category, the baseline first."""
        return {name: levels for design in self._designs for name, levels in design.own_choices.items()}

    @property
    def own_choices(self) -> dict[str, tuple[Level, ...]]:
        """`choices` of the first formula alone."""
        return {name: levels for term in self.made_of for name, levels in term.choices.items()}

    @cached_property
    def response_in_words(self) -> str:
        """The response, with long lists in it cut short; "time until event" for Surv(time, event == 2)."""
        return shorten_lists(response_in_words(self.response))

    @property
    def event_in_words(self) -> str:
        """What the modelled probability is one of, where there are two classes: "of 'yes', against 'no'"."""
        response = shorten_lists(self.response)
        if re.search(r" in \[|[=!<>]=|[<>]", response) and self.classes in (("0", "1"), ("False", "True")):
            return f"that {response}"
        return f"of {self.classes[1]!r}, against {self.classes[0]!r}"

    @property
    def row_values_in_words(self) -> str:
        """What rows have beside their columns, such as ", with exposure 'months'"; "" if nothing."""
        columns = (("exposure", self.exposure), ("offset", self.offset), ("weights", self.weights))
        words = [f"{word} {name!r}" for word, name in columns if name]
        if self.shifted:
            words.append("an offset or exposure given as numbers")
        if self.weighted and not self.weights:
            words.append("weights given as numbers")
        return f", with {' and '.join(words)}" if words else ""

    @property
    def all_choices(self) -> dict[str, tuple[Level, ...]]:
        """`choices`, and the levels of categories whose effects vary by groups."""
        varying = {
            name: levels for group in self.groups for term in group.terms for name, levels in term.choices.items()
        }
        return {**varying, **self.choices}

    def typical_changes(self, own: Array) -> Array:
        """For each column, the change that its coefficient is shown for. own: the typical change of each column,
        computed from that column alone. An interaction changes by the product of the changes of its factors, and a
        level of a category changes by 1. (The column plan[pro]:age is 0 in most rows, so its own spread is neither that
        of age nor 1.)
        """
        by_name = dict(zip(self.names, own, strict=True))
        for name, levels in self.choices.items():
            by_name |= {f"{name}[{text}]": 1.0 for level in levels for text in (level_name(level), str(level))}
        factors = [names for term in self.made_of for names in term.factors]
        products = [
            np.prod([by_name[factor] for factor in names]) if by_name.keys() >= set(names) else by_name[name]
            for name, names in zip(self.names, factors, strict=True)
        ]
        return np.array(products, np.float64)

    def separate(self, name: str) -> bool:
        """Whether a column is a category that occurs in one term only, which is the category itself. Each of its levels
        then adds the same number to the linear predictor of every row.
        """
        varies = any(name in term.variables for group in self.groups for term in group.terms)
        kinds = [[term.kind for term in design.made_of if name in term.variables] for design in self._designs]
        return not varies and all(kinds_of_terms in ([], ["category"]) for kinds_of_terms in kinds)

    @cached_property
    def plain_columns(self) -> frozenset[str]:
        """The columns of the table that occur in one term only, unchanged: numbers, and categories with a baseline.
        Their coefficients say all that they contribute to the linear predictor.
        """
        terms = [names for term in self.made_of for names in term.variables_by_term]
        alone = {
            name for name in self.coefficient_variables if [names for names in terms if name in names] == [(name,)]
        }
        baselines = {name: levels_without_column(name, levels, self.names) for name, levels in self.choices.items()}
        unchanged = {term for term, _ in self.parts}
        return frozenset(name for name in alone & unchanged if name not in baselines or len(baselines[name]) == 1)

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """For each column its term, and the level or the number within the term."""
        return tuple(part for term in self.made_of for part in term.parts)

    def rows(self, table: object) -> Matrix:
        """The design matrix of a new table. Missing values are refused."""
        return self.matrix(_complete_columns(table, self.coefficient_variables))

    def groups_of(self, table: object) -> list[tuple[Indices, Array]]:
        """For each term of group effects: the index of the level of each row of a new table (−1: the level was not
        fitted), and the columns (n, r) whose effects vary by level. table: any table, or `Columns` of one. Missing
        values are refused.
        """
        columns = table if isinstance(table, Columns) else _complete_columns(table, self.group_variables)
        return [(group.level_indices(columns), group.varying_columns(columns)) for group in self.groups]

    def bases_of(self, table: object) -> list[Array]:
        """For each smooth, its basis (n, q) at the rows of a new table. table: any table, or `Columns` of one. Missing
        values are refused.
        """
        columns = table if isinstance(table, Columns) else _complete_columns(table, self.coefficient_variables)
        return [smooth.basis(columns) for smooth in self.smooths]

    def offsets(self, table: object) -> Array | None:
        """The offsets of the rows of a new table, with the logarithms of exposures; None if the model has neither."""
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
        """The trials of the rows of a new table; None if the model has none."""
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
        """The design matrix (n, columns), with the columns of further predictors last. It is sparse if most columns are
        levels of categories.
        """
        return side_by_side([design._own_matrix(columns) for design in self._designs])

    def _own_matrix(self, columns: Columns) -> Matrix:
        levels = sum(len(term.names) for term in self.made_of if term.kind == "category")
        others = sum(len(term.names) for term in self.made_of if term.kind != "category")
        if levels > max(_MOST_DENSE_LEVELS, _SPARSE_RATIO * others):
            return self._sparse_matrix(columns)
        require_memory_for_design(levels + others, columns.n)
        blocks = [term.matrix(columns) for term in self.made_of]
        out = np.empty((columns.n, levels + others))
        ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
        for begin in range(0, columns.n, _BLOCK):
            for block, low, high in zip(blocks, ends[:-1], ends[1:], strict=True):
                out[begin : begin + _BLOCK, low:high] = block[begin : begin + _BLOCK]
            require_finite(self.names, out[begin : begin + _BLOCK], begin)
        return out

    def fill(self, columns: Columns, out: Values) -> None:
        """Write the design matrix of a block of rows into an array. Numbers that are not finite are not refused."""
        place = 0
        for term in self.made_of:
            block = term.matrix(columns)
            out[:, place : place + block.shape[1]] = block
            place += block.shape[1]

    def _sparse_matrix(self, columns: Columns) -> Matrix:
        from scipy.sparse import csr_matrix

        indices_by_term, values_by_term, width = [], [], 0
        for term in self.made_of:
            active = term.active_columns(columns)
            if active is None:
                block = term.matrix(columns)
                indices_by_term.append(np.broadcast_to(width + np.arange(block.shape[1]), block.shape))
                values_by_term.append(block)
            else:
                indices_by_term.append(np.where(active < 0, -1, width + active)[:, None])
                values_by_term.append(np.ones((columns.n, 1)))
            width += len(term.names)
        indices, values = np.concatenate(indices_by_term, axis=1), np.concatenate(values_by_term, axis=1)
        nonzero = (indices >= 0) & (values != 0)
        starts = np.concatenate([[0], np.cumsum(nonzero.sum(axis=1))])
        matrix: CsrMatrix = csr_matrix((values[nonzero], indices[nonzero], starts), shape=(columns.n, width))
        return matrix


@dataclass(frozen=True, eq=False)
class Designed:
    """What `designed` makes of a table.

    X: the design matrix. y: the response. extra: the further columns that were asked for. kept: which rows of the table
    are in X. gaps: how many values are missing, by column. columns: the columns of the table that X was made of.
    groups: the terms of group effects, and after them the smooths. survival: whether the response is
    `Surv(time, event)`.
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
    """The design of a table in memory, and the rows that it makes of the table.

    extra: further columns to return, such as weights. drop: whether to leave out rows with missing values; if not, they
    are refused. transforms: the user's functions that the formula calls, by name. learned: the design that the same
    formula had for an earlier table; it is applied as it is. further: formulas of parameters that have predictors of
    their own, by the names of the parameters.

    >>> made = designed("y ~ age + plan", {"y": [1, 0, 1], "age": [31, 48, 50], "plan": ["a", "b", "a"]})
    >>> made.design.names, made.design.baselines
    (('age', 'plan[b]'), ('plan[a]',))
    """
    functions = require_transforms(transforms)
    available = column_names(table)
    parsed_formula = parse_formula(formula, available)
    parameters = parse_parameter_formulas(further, parsed_formula, available)
    names = dict.fromkeys([*required_columns(parsed_formula, parameters.values()), *extra])
    columns = columns_of(table, names, open_columns=parsed_formula.response.open_columns)
    gaps, kept = columns.gaps(), np.ones(columns.n, bool)
    if gaps and not drop:
        raise missing_values_error(gaps)
    if gaps:
        kept = columns.whole()
        if not kept.any():
            raise no_complete_row_error(gaps)
        columns = columns.kept(kept)

    def encode(terms: Sequence[grammar.Term], intercept: bool, used: Columns) -> tuple[dict[str, Value], list[str]]:
        rows = Rows(used.series(), used.n, functions, {})
        return rows.state, encode_terms(terms, intercept, rows, used.n)[1]

    if learned is None:
        design = design_of(formula, parsed_formula, columns, functions, encode)
        further_terms: list[str] = []
        for name, parameter in parameters.items():
            terms = terms_to_json(_build_terms(parameter.terms, columns, parameter.intercept, encode))
            further_terms += [further[name], name, terms, str(int(parameter.intercept))]
        formulas = "; ".join([formula, *further.values()])
        design = replace(design, formula=formulas, further_terms=tuple(further_terms)).with_transforms(functions)
    else:
        design = learned.with_transforms(functions)
    groups: list[Group | Smooth] = [group.build_group(columns) for group in design.groups]
    groups += [smooth.build_smooth(columns) for smooth in design.smooths]
    response = parsed_formula.response
    return Designed(
        design.matrix(columns), response_column(response, columns, functions), {name: columns[name] for name in extra},
        design, kept, gaps, columns, tuple(groups), response.survival,
    )  # fmt: skip


Encode = Callable[[Sequence[grammar.Term], bool, Columns], tuple[dict[str, Value], list[str]]]


def design_of(
    formula: str, parsed_formula: ParsedFormula, columns: Columns, transforms: Transforms, encode: Encode
) -> Design:
    """The design of a formula.

    columns: the columns of the table; their kinds, their levels and the number of rows are enough. encode: returns, for
    terms that formulaic codes, what their transformations learn from the columns, and the names of the columns that
    they make.
    """
    response = parsed_formula.response.text
    if response in parsed_formula.variables:
        raise DataError(f"the response {response!r} stands among its own predictors: take it out of the formula.")
    error = partial(formula_error, formula)

    def terms_of(parsed_terms: Sequence[grammar.Term], intercept: bool) -> tuple[Term, ...]:
        return terms_from_json(terms_to_json(_build_terms(parsed_terms, columns, intercept, encode)), transforms)

    terms = _build_terms(parsed_formula.terms, columns, parsed_formula.intercept, encode)
    groups = [
        design
        for group in parsed_formula.groups
        for design in group_designs(group, terms_of(group.terms, group.intercept), columns, error)
    ]
    require_separate_smooths(parsed_formula, columns, transforms, error)
    smooths = [
        design
        for smooth in parsed_formula.smooths
        for design in smooth_designs(
            smooth, terms_of([grammar.Term((smooth.argument,))], True), columns, error, transforms
        )
    ]
    terms = (*terms, *(smooth.line for smooth in smooths))
    _require_distinct_effects(terms, groups, smooths, error)
    design = Design(
        formula, response, terms_to_json(terms), parsed_formula.intercept, group_terms=groups_to_array(groups),
        smooth_terms=smoothing.smooths_to_array(smooths),
    ).with_transforms(transforms)  # fmt: skip
    if "Intercept" in design.variables:
        raise DataError("column 'Intercept' has the name of another parameter of the model: rename the column.")
    return design


def parse_parameter_formulas(
    further: Mapping[str, str], first: ParsedFormula, available: Sequence[str]
) -> dict[str, ParsedFormula]:
    """The formulas of further parameters, such as sigma, by name. first: the formula of the response."""
    return {name: _parse_parameter_formula(text, first, available) for name, text in further.items()}


def _parse_parameter_formula(text: str, first: ParsedFormula, available: Sequence[str]) -> ParsedFormula:
    """The formula of one parameter. Refuses groups, smooths and columns of the response in it."""
    parameter = parse_formula(text, [name for name in available if name not in first.response.variables])
    if parameter.groups or parameter.smooths:
        why = "effects of groups and smooths stand in the first formula, that of the response, alone"
        raise formula_error(text, why)
    if both := set(parameter.variables) & set(first.response.variables):
        raise formula_error(text, f"the response {min(both)!r} stands in it")
    if not (parameter.terms or parameter.intercept):
        raise formula_error(text, "it has no term and no intercept: leave it out, and all rows share the parameter")
    return parameter


def required_columns(parsed_formula: ParsedFormula, parameters: Iterable[ParsedFormula] = ()) -> list[str]:
    """The columns of the table that a formula needs, with those of the formulas of further parameters."""
    further = [name for parameter in parameters for name in parameter.variables]
    return list(dict.fromkeys([*parsed_formula.response.variables, *parsed_formula.variables, *further]))


def _require_distinct_effects(
    terms: Sequence[Term], groups: Sequence[GroupDesign], smooths: Sequence[SmoothDesign], error: ErrorForReason
) -> None:
    """Refuse two parameters of one name, and an intercept that varies by a category whose levels have a coefficient
    each.
    """
    taken = {name for term in terms for name in term.names}
    categories = {term.variables[0] for term in terms if term.kind == "category"}
    effects: list[GroupDesign | SmoothDesign] = [*groups, *smooths]
    for effect in effects:
        for name in effect.parameter_names:
            if name in taken:
                raise error(f"two parameters would be named {name!r}: rename a column of {effect.text}")
            taken.add(name)
    for group in groups:
        if group.intercept and group.factors[:1] == group.factors and group.factors[0] in categories:
            raise error(
                f"the levels of {group.factors[0]!r} have a coefficient each, which the effects of {group.text} cannot "
                "be told from: take one of the two out"
            )


def _complete_columns(table: object, names: Sequence[str]) -> Columns:
    """Columns of a new table. Missing values are refused."""
    columns = columns_of(table, names)
    if gaps := columns.gaps():
        raise missing_in_new_rows_error(gaps)
    return columns


def missing_in_new_rows_error(gaps: dict[str, int]) -> DataError:
    """The error for missing values in rows that are to be predicted."""
    return DataError(
        f"the table must have no missing values in {missing_in_words(gaps)}: leave these rows out, or fill them; "
        "predict() has missing='nan' and missing='drop' for such rows."
    )


def missing_values_error(gaps: dict[str, int]) -> DataError:
    """The error for missing values in rows that are to be fitted."""
    return DataError(
        f"the table has missing values in {missing_in_words(gaps)}. Fill them, or leave these rows out: missing='drop' "
        "(in the shell --missing drop)."
    )


def no_complete_row_error(gaps: dict[str, int]) -> DataError:
    """The error for a table each of whose rows misses a value."""
    return DataError(f"no row of the table is without missing values: {missing_in_words(gaps)}.")


def response_column(
    response: grammar.Factor, columns: Columns, transforms: Transforms, state: State | None = None
) -> Column:
    """The response: a column of the table, or a computed one, such as log(price). state: what its transformations
    learned from the table that was fitted; None if `columns` are those of that table.
    """
    if response.expression is None:
        return columns[response.text]
    if state is None or response.survival:  # survival times learn nothing
        rows = Rows(columns.series(), columns.n, transforms, {})
    else:
        levels = {name: columns[name].levels for name in response.variables}
        rows = rows_with_levels(columns, transforms, state, levels)
    if response.survival:
        with formulaic_errors(response.text):
            return Column(NUMBER, np.asarray(response.expression.compute(rows)), None)
    values = compute_factor(response, rows)
    if values.shape[1] != 1:
        raise DataError(f"the response {response.text!r} must be one column; it makes {values.shape[1]}.")
    y = values[:, 0]
    if not np.isfinite(y).all():
        raise DataError(f"the response {response.text!r} must be finite; it is {y[~np.isfinite(y)][0]} in some rows.")
    return Column(NUMBER, y, None)


def category_columns(parsed_formula: ParsedFormula) -> set[str]:
    """The columns x of C(x), whose levels a design needs even if they hold numbers."""
    expressions = [factor.expression for term in parsed_formula.terms for factor in term.factors]
    return {one.category for one in expressions if one is not None and one.category is not None}


def _build_terms(terms: Sequence[grammar.Term], columns: Columns, intercept: bool, encode: Encode) -> tuple[Term, ...]:
    """The terms of a design. Numbers and categories are coded here, all else by formulaic. If one of the latter has a
    category in it, formulaic codes all terms, so that the columns of categories stay independent.
    """
    for name in dict.fromkeys(factor.text for term in terms for factor in term.factors if factor.expression is None):
        require_no_numbers_as_texts(name, columns[name])
    simple = {term: _simple_term(term, columns) for term in terms}
    complex_terms = [term for term in terms if simple[term] is None]
    if any(_has_category(term, columns) for term in complex_terms):
        return (_encoded_term(terms, columns, intercept, encode),)
    built: list[Term] = []
    full = not intercept  # without an intercept the first category has a column for every level
    for term in simple.values():
        if term is None:
            continue
        if isinstance(term, Category):
            require_few_levels(f"column {term.variable!r}", len(term.levels), columns.n, examples=term.levels)
            if len(term.levels) < 2 and not full:
                only = term.levels[0]
                raise DataError(f"column {term.variable!r} has one level only, {only!r}: leave it out of the formula.")
            term, full = replace(term, full=full), False
        built.append(term)
    if complex_terms:
        built.append(_encoded_term(complex_terms, columns, False, encode))
    return tuple(built)


def _simple_term(term: grammar.Term, columns: Columns) -> Number | Category | None:
    """A number or a category; None for any other term."""
    if len(term.factors) != 1:
        return None
    factor = term.factors[0]
    if factor.expression is None:
        column = columns[factor.text]
        return Category(factor.text, column.levels) if column.kind == CATEGORY else Number(factor.text)
    name = factor.expression.category
    return None if name is None else Category(name, columns[name].distinct())


def _has_category(term: grammar.Term, columns: Columns) -> bool:
    """Whether a column of the term, or a factor such as C(x), is a category."""
    made = any(factor.expression is not None and factor.expression.makes_category for factor in term.factors)
    return made or any(columns[name].kind == CATEGORY for name in term.variables)


def _encoded_term(terms: Sequence[grammar.Term], columns: Columns, intercept: bool, encode: Encode) -> Encoded:
    """Terms that formulaic codes."""
    names = sorted({name for term in terms for name in term.variables})
    used = Columns({name: columns[name] for name in names}, columns.n)
    state, made = encode(terms, intercept, used)
    text = " + ".join(["1" if intercept else "0", *(term.formula_text for term in terms)])
    coded = {factor.expression.category for term in terms for factor in term.factors if factor.expression is not None}
    levels = tuple(used[name].distinct() if name in coded else used[name].levels for name in names)
    kinds = tuple(used[name].kind for name in names)
    return Encoded(text, tuple(names), kinds, levels, tuple(made), state_to_json(state, text))


def log_exposure(exposure: npt.ArrayLike) -> Array:
    """The logarithm of an exposure. Refuses exposures that are not above 0."""
    values = np.asarray(exposure, np.float64)
    if not (values > 0).all():
        raise requirement("exposure", "above 0 in every row", f"{float(np.min(values)):g}")
    return np.log(values)


def is_table(X: object) -> bool:
    """Whether X has named columns, so that a design can be applied to it."""
    return (
        isinstance(X, Mapping | Columns)
        or (hasattr(X, "columns") and not hasattr(X, "format"))
        or hasattr(X, "column_names")
    )


def missing_in_words(gaps: dict[str, int]) -> str:
    """How many values are missing, by column, in words."""
    return ", ".join(f"{name!r} ({count:,} missing)" for name, count in gaps.items())
