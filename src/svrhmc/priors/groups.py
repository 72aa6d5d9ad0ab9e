"""Group effects: which level of a grouping factor each row belongs to, and which columns vary by level.

    tᵢ = oᵢ + aᵢᵀβ + Σₖ zᵢₖᵀ uₖ,ℓₖ₍ᵢ₎,        uₖ,ℓ ~ N(0, Σₖ) for each level ℓ of term k,        Σₖ = diag(τ) Ω diag(τ).

zᵢₖ are the r columns of term k in row i: 1 for an intercept that varies, (1, xᵢ) for an intercept and a slope.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Values, digest
from svrhmc.core.errors import positive, real_array, requirement, set_fields
from svrhmc.priors.terms import Prior

ScalePriors = Prior | Sequence[Prior | None] | None  # of standard deviations: one for all columns, or one for each
INTERCEPT_COLUMN = "1"
MOST_COLUMNS = 12  # of one term, whose covariances are dense


class EffectTerm(ABC):
    """Effects u ~ N(0, Σ) of each level, with unknown standard deviations and correlations. The levels are those of a
    grouping factor (`Group`), or the basis functions of a smooth (`Smooth`).

    Z = `design()` has a column for each level and column, level by level; Zu is added to the predictors of the rows.
    """

    name: str
    prior: ScalePriors
    lkj: float  # η of the prior of their correlations
    column_names: tuple[str, ...] | None
    levels: Any
    centre: Array | None = None  # subtracted from the columns for priors and sampling, (r,)
    by_level: ClassVar[bool]  # whether the effects are those of levels of a grouping factor

    @property
    @abstractmethod
    def n(self) -> int:
        """The number of rows."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of levels."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The term as written in a formula."""

    @abstractmethod
    def chosen(self, rows: Indices) -> Self:
        """The term for the chosen rows."""

    @abstractmethod
    def design(self) -> Any:
        """Z in CSR."""

    @abstractmethod
    def blocks(self, weights: Array) -> Array:
        """Σ wᵢ zᵢzᵢᵀ over the rows of each level, (r, r, levels)."""

    @abstractmethod
    def row_counts(self) -> Indices:
        """How many rows each level has."""

    @abstractmethod
    def spreads(self) -> Array:
        """For each column the size of a typical change of it."""

    @abstractmethod
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the standard deviations, one for each column, then of the correlations."""

    @abstractmethod
    def prior_names(self, column: int) -> tuple[str, ...]:
        """The names by which a prior of the standard deviation of a column can be given."""

    @abstractmethod
    def identity(self) -> dict[str, object]:
        """What decides the numbers of a run."""

    @abstractmethod
    def require_columns(self) -> None:
        """Refuse columns whose standard deviations the rows do not determine."""

    @property
    def of_single_rows(self) -> bool:
        """Whether each row has an intercept of its own."""
        return False

    def outward(self, effects: Array) -> Array:
        """Effects (…, levels · r) of the columns themselves, from those of the centred columns."""
        return effects if self.centre is None else self._shift_first(effects, -self.centre)

    def inward(self, effects: Array) -> Array:
        """Effects of the centred columns from those of the columns themselves: the inverse of `outward`."""
        return effects if self.centre is None else self._shift_first(effects, self.centre)

    def _shift_first(self, effects: Array, by: Array) -> Array:
        """Add `by` times the effects of each level to the first effect of the level."""
        blocks = effects.reshape(*effects.shape[:-1], self.count, self.width).copy()
        blocks[..., 0] += blocks @ by
        return blocks.reshape(effects.shape)

    def few(self) -> str:
        """Why its standard deviations may be poorly determined, as the end of a clause."""
        return ""

    def correlation_words(self) -> list[str]:
        """The prior of the correlations in words, if there are any."""
        return []

    @property
    def width(self) -> int:
        """The number r of effects of a level."""
        return 1

    def priors(self, usual: Sequence[Prior]) -> list[Prior]:
        """One prior for each column: the given one, or else the usual one."""
        if self.prior is None:
            return list(usual)
        priors: list[Prior | None] = [self.prior] * self.width if isinstance(self.prior, Prior) else list(self.prior)
        if len(priors) != self.width:
            raise requirement(f"prior of {self.label}", f"one, or {self.width} of them", len(priors))
        return [weak if own is None else own for own, weak in zip(priors, usual, strict=True)]

    def with_priors(self, scales: Sequence[Prior | None], lkj: float) -> Self:
        """The term with other priors of the standard deviations, None for usual ones, and of the correlations."""
        given = any(prior is not None for prior in scales)
        return replace(self, prior=tuple(scales) if given else None)  # type: ignore[type-var]

    def settled(self, usual: Sequence[Prior]) -> Self:
        """The term with the usual priors where none were given."""
        return replace(self, prior=tuple(self.priors(usual)))  # type: ignore[type-var]

    def prior_words(self) -> str:
        """The priors of standard deviations and correlations, in the words of a summary."""
        priors: list[Any] = self.priors([None] * self.width)  # type: ignore[list-item]
        at = ["" if self.centre is None else ", at the means of the columns,", *[""] * (self.width - 1)]
        named = zip(self.parameter_names(), at, priors, strict=False)
        scales = [f"{name}{place} ~ {_prior_words(prior)}" for name, place, prior in named]
        return "; ".join([*scales, *self.correlation_words()])


@dataclass(frozen=True, eq=False)
class Group(EffectTerm):
    """A term of group effects, such as (1 + x | school): each level has an effect for each column.

    index: the level of each row, whole numbers from 0.
    columns: (n, r), what the effects of a row's level are multiplied by; None for an intercept alone.
    levels: the names of the levels; "0", "1", … if None.
    name: that of the grouping factor, such as "school" or "school:class".
    column_names: of the columns; "1" is that of an intercept.
    prior: of the standard deviations, one of `svrhmc.targets.priors` for positive numbers, or one for each column;
        None, there too, for a half-normal law on the scale of the data.
    lkj: the parameter η of the prior ∝ |Ω|^{η−1} of the correlations of the columns; 1 is even.
    centre: what the columns are where these priors hold, (r,), 0 for an intercept, which is first: where a column is
        far from 0, as years are, an intercept and a slope that are about independent at 0 could not differ in both by
        level. None: 0. What is reported is of the columns as they are.

    >>> Group([0, 0, 1, 2], name="school")
    Group('1 | school', levels=3, rows=4)
    """

    index: Indices
    columns: Array | None = None
    levels: tuple[str, ...] | None = None
    name: str = "group"
    column_names: tuple[str, ...] | None = None
    prior: ScalePriors = None
    lkj: float = 1.0
    centre: Array | None = None
    by_level: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for word, own in (("levels", self.levels), ("column_names", self.column_names)):
            several = isinstance(own, Sequence) and not isinstance(own, str | bytes)
            if not (own is None or several or getattr(own, "ndim", 0) == 1):
                raise requirement(f"{word} of a group", "a list of names", type(own).__name__)
        index = _array_of(self.index)
        if index.ndim != 1 or not len(index) or index.dtype.kind not in "iu":
            given = f"shape {index.shape} of {index.dtype}"
            raise requirement("index of a group", "one whole number for each row, its level", given)
        index = index.astype(np.int64)
        count = int(index.max()) + 1 if self.levels is None else len(self.levels)
        if int(index.min()) < 0 or int(index.max()) >= count:
            outside = int(index.min()) if index.min() < 0 else int(index.max())
            raise requirement("index of a group", f"levels from 0 to {count - 1}", outside)
        columns = np.ones((len(index), 1)) if self.columns is None else self.columns
        columns = np.asarray(real_array("columns of a group", columns, (len(index), "columns")), np.float64)
        width = columns.shape[1]
        if not 1 <= width <= MOST_COLUMNS:
            raise requirement("columns of a group", f"from 1 to {MOST_COLUMNS}", width)
        names = self.column_names
        if names is None:
            constant = bool((columns[:, 0] == 1).all())
            names = tuple(INTERCEPT_COLUMN if constant and j == 0 else f"z{j}" for j in range(width))
        if len(names) != width or len(set(names)) < width:
            raise requirement("column_names of a group", f"{width} different ones", tuple(names))
        levels = tuple(map(str, range(count))) if self.levels is None else tuple(map(str, self.levels))
        if len(set(levels)) < count:
            (twice, _), *_ = Counter(levels).most_common(1)
            raise requirement("levels of a group", "different names", f"{twice!r} twice")
        _require_scale_prior(self.prior)
        lkj = positive("lkj", self.lkj)
        if self.centre is not None:
            centre = np.asarray(real_array("centre of a group", self.centre, (width,)), np.float64)
            if centre[0] != 0 or not (columns[:, 0] == 1).all():
                raise requirement("centre of a group", "0 for an intercept, the first column", centre.tolist())
            set_fields(self, centre=centre)
        set_fields(self, index=index, columns=columns, levels=levels, column_names=tuple(map(str, names)), lkj=lkj)

    @property
    def width(self) -> int:
        """The number r of columns that vary by level."""
        return len(self.column_names or ())

    @property
    def count(self) -> int:
        """The number of levels."""
        return len(self.levels or ())

    @cached_property
    def _varying(self) -> Array:
        """The columns less their centre."""
        assert self.columns is not None
        return self.columns if self.centre is None else self.columns - self.centre

    @property
    def label(self) -> str:
        """As a formula has it: "1 + x | school"."""
        return f"{' + '.join(self.column_names or ())} | {self.name}"

    def __repr__(self) -> str:
        return f"Group({self.label!r}, levels={self.count}, rows={len(self.index)})"

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.index)

    def chosen(self, rows: Indices) -> Group:
        """The same for some of the rows."""
        assert self.columns is not None  # which __post_init__ has set
        return replace(self, index=self.index[rows], columns=self.columns[rows])

    def design(self) -> Any:
        """Z in CSR, (n, levels · r): the columns of each row in the places of its level."""
        from scipy.sparse import csr_matrix

        n, r = self._varying.shape
        places = (self.index[:, None] * r + np.arange(r)).ravel()
        return csr_matrix((self._varying.ravel(), places, np.arange(0, n * r + 1, r)), shape=(n, self.count * r))

    def blocks(self, weights: Array) -> Array:
        """Σ wᵢ zᵢzᵢᵀ over the rows of each level, (r, r, levels)."""
        out = np.empty((self.width, self.width, self.count))
        for a in range(self.width):
            for b in range(a + 1):
                products = weights * self._varying[:, a] * self._varying[:, b]
                out[a, b] = out[b, a] = np.bincount(self.index, products, self.count)
        return out

    def row_counts(self) -> Indices:
        """How many rows each level has."""
        return np.bincount(self.index, minlength=self.count).astype(np.int64)

    def require_columns(self) -> None:
        """Refuse a column of zeros, and a second constant one."""
        assert self.columns is not None
        assert self.column_names is not None
        low, high = self.columns.min(axis=0), self.columns.max(axis=0)
        constant = np.flatnonzero(low == high)
        for j in constant:
            if low[j] == 0 or j > constant[0]:
                why = "its effects change nothing" if low[j] == 0 else "it cannot be told from another constant column"
                given = f"{self.column_names[j]!r}, which is {low[j]:g} in every row"
                raise requirement(f"columns of ({self.label})", "such as vary over the rows", given, why)

    @property
    def of_single_rows(self) -> bool:
        assert self.columns is not None
        return bool((np.ptp(self.columns, axis=0) == 0).any() and (self.row_counts() <= 1).all())

    def few(self) -> str:
        return f", as there are {self.count:,} levels"

    def correlation_words(self) -> list[str]:
        there = "" if self.centre is None else ", there too,"
        return [f"cor({self.name}){there} ~ LKJ({self.lkj:g})"] if self.width > 1 else []

    def with_priors(self, scales: Sequence[Prior | None], lkj: float) -> Group:
        return replace(super().with_priors(scales, lkj), lkj=lkj)

    def spreads(self) -> Array:
        """What a change of one is large beside, for each column: its standard deviation, or 1 for an intercept."""
        assert self.columns is not None
        spread = self.columns.std(axis=0)
        return np.where(spread > 0, spread, 1.0)

    def prior_names(self, column: int) -> tuple[str, ...]:
        """By which a prior of the standard deviation of a column is given; the term without its level comes last."""
        name = (self.column_names or ())[column]
        terms = (name, re.sub(r"\[[^]]*\]", "", name))
        return tuple(f"{label}{term} | {self.name}{end}" for term in terms for label, end in (("", ""), ("sd(", ")")))

    def identity(self) -> dict[str, object]:
        """What decides the numbers of a run."""
        assert self.columns is not None  # which __post_init__ has set
        centre = {} if self.centre is None else {"centre": self.centre.tolist()}
        return {
            "group": digest(self.index, self.columns), "levels": self.count, "prior": repr(self.prior), "lkj": self.lkj,
            **centre,
        }  # fmt: skip

    def parameter_names(self) -> tuple[str, ...]:
        """sd(1 | school), sd(x | school), …, then cor(1, x | school), …"""
        names = self.column_names or ()
        scales = [f"sd({name} | {self.name})" for name in names]
        pairs = [f"cor({names[j]}, {names[i]} | {self.name})" for i in range(len(names)) for j in range(i)]
        return (*scales, *pairs)


@dataclass(frozen=True, eq=False)
class Smooth(EffectTerm):
    """A smooth function of a column, as effects of basis functions with one unknown standard deviation:

        s(xᵢ) = Σⱼ Bⱼ(xᵢ) uⱼ,        uⱼ ~ N(0, τ²).

    basis: (n, q), the basis functions at the rows, in which the penalty on the curvature of s is |u|²; the straight
        line, which has none, is a column of X.
    name: as a formula has it, such as "s(age)".
    prior: of τ; None for a half-normal law on the scale of the data.
    """

    basis: Array
    name: str = "s(x)"
    prior: ScalePriors = None
    lkj: float = field(default=1.0, init=False)  # of no correlations
    column_names: tuple[str, ...] = field(default=(INTERCEPT_COLUMN,), init=False)
    by_level: ClassVar[bool] = False

    def __post_init__(self) -> None:
        basis = np.asarray(real_array("basis of a smooth", self.basis, ("rows", "functions")), np.float64)
        _require_scale_prior(self.prior)
        set_fields(self, basis=np.ascontiguousarray(basis))

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.basis)

    @property
    def count(self) -> int:
        """The number of basis functions."""
        return int(self.basis.shape[1])

    @property
    def levels(self) -> tuple[str, ...]:
        """Numbers of the basis functions."""
        return tuple(map(str, range(self.count)))

    @property
    def label(self) -> str:
        """As a formula has it."""
        return self.name

    def __repr__(self) -> str:
        return f"Smooth({self.name!r}, functions={self.count}, rows={self.n})"

    def chosen(self, rows: Indices) -> Smooth:
        """The same for some of the rows."""
        return replace(self, basis=self.basis[rows])

    def design(self) -> Any:
        """The basis in CSR."""
        from scipy.sparse import csr_matrix

        return csr_matrix(self.basis)

    def blocks(self, weights: Array) -> Array:
        """Σ wᵢ Bⱼ(xᵢ)², (1, 1, functions)."""
        squares: Array = (weights @ self.basis**2)[None, None, :]
        return squares

    def require_columns(self) -> None:
        """Refuse functions that are 0 in every row."""
        if not self.basis.any():
            raise requirement(f"basis of {self.name}", "functions that are not 0 in every row", "zeros")

    def row_counts(self) -> Indices:
        """All rows, for each function."""
        return np.full(self.count, self.n, np.int64)

    def spreads(self) -> Array:
        """The standard deviation of s for τ = 1 at a typical row, of those where it is not 0."""
        variance = (self.basis**2).sum(axis=1)
        return np.array([max(float(np.sqrt(variance.sum() / max(np.count_nonzero(variance), 1))), 1e-300)])

    def prior_names(self, column: int) -> tuple[str, ...]:
        """By which a prior of its standard deviation is given."""
        return (self.name, f"sd({self.name})")

    def identity(self) -> dict[str, object]:
        """What decides the numbers of a run."""
        return {"smooth": digest(self.basis), "prior": repr(self.prior)}

    def parameter_names(self) -> tuple[str, ...]:
        """sd(s(x))."""
        return (f"sd({self.name})",)


def _prior_words(prior: Any) -> str:
    """A prior with its numbers to three digits: HalfNormal(2.5)."""
    if prior is None:
        return "a half-normal law on the scale of the data"
    numbers = ", ".join(f"{getattr(prior, field.name):.3g}" for field in fields(prior))
    return f"{type(prior).__name__}({numbers})"


def _array_of(values: npt.ArrayLike) -> Values:
    """A NumPy array; an empty one of objects, which is refused later, for lists of unequal lengths."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError):
        return np.empty(0, object)


def _require_scale_prior(prior: Any) -> None:
    """Refuse a prior, or a list of priors, that is not one of positive numbers."""
    for single in (prior,) if prior is None or isinstance(prior, Prior) or np.ndim(prior) == 0 else tuple(prior):
        if single is not None and not (isinstance(single, Prior) and single.positive):
            allowed = "HalfNormal, HalfStudentT, HalfCauchy or Exponential"
            raise requirement("the prior of a group's standard deviations", allowed, repr(single))
