"""What the transformations of a formula learn from a table whose rows come block by block.

Formulaic's transformations learn from all rows at once. Here each asks for sums over blocks, pass after pass, and
computes from them the state that formulaic would have (`Learner`):

    center, scale, standardize     mean and Σ(x − x̄)², in one pass
    poly(x, k)                     Σ x p²ⱼ and Σ p²ⱼ of the orthogonal polynomials pⱼ, j = 0 … k, in k + 1 passes
    bs, cr, cs, cc                 the different values of x with how often each occurs, in one pass
    C                              the different values, in one pass

Quantiles, and so the knots of a spline, are exact. The number of different values is bounded so that they fit into
memory; a spline of more values must be given its knots.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from inspect import signature
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Values
from svrhmc.core.errors import DataError
from svrhmc.tables.expressions import Call, State, Value, wrapped_columns

MOST_DISTINCT = 1 << 24  # values of a column that knots are found from
_CHUNK = 1 << 16
Statistic = Callable[[Value], Value]  # of the values of a block; its results can be added up
Learner = Generator[Statistic, Value, State]


def make_learner(call: Call) -> Learner:
    """A generator that yields statistics of the first argument of a call, is sent their sums over all rows, and returns
    the state of the call.
    """
    if call.name == "C":
        return _learn_levels(call)
    if call.name not in _LEARNERS:
        raise DataError(
            f"the formula's {call.name!r} learns from all rows at once, and cannot be used on rows in partitions."
        )
    return _LEARNERS[call.name](call)


class Moments(NamedTuple):
    """The number of some rows, their mean, and Σ(x − mean)²."""

    n: int
    mean: Value
    squares: Value

    def __add__(self, other: Moments) -> Moments:  # type: ignore[override]
        n, away = self.n + other.n, other.mean - self.mean
        squares = self.squares + other.squares + away**2 * (self.n * other.n / n)
        return Moments(n, self.mean + away * (other.n / n), squares)


def moments(values: Value) -> Moments:
    """The moments of the rows of a block."""
    x = np.asarray(values, np.float64)
    mean = x.mean(axis=0)
    return Moments(len(x), mean, ((x - mean) ** 2).sum(axis=0))


class DistinctValues:
    """Different values, sorted, and how often each occurs."""

    def __init__(self, values: Values, counts: npt.NDArray[np.int64]) -> None:
        self._parts, self._waiting = [(values, counts)], 0

    def __add__(self, other: DistinctValues) -> DistinctValues:
        values, counts = other.sorted()
        self._parts.append((values, counts))
        self._waiting += len(values)
        if self._waiting > len(self._parts[0][0]) + _CHUNK:  # so that sorting takes n log n in all
            self.sorted()
        return self

    def sorted(self) -> tuple[Values, npt.NDArray[np.int64]]:
        """Values and counts. Refuses more values than fit into memory."""
        if len(self._parts) > 1:
            values, place = np.unique(np.concatenate([part[0] for part in self._parts]), return_inverse=True)
            counts = np.bincount(place, weights=np.concatenate([part[1] for part in self._parts]))
            self._parts, self._waiting = [(values, counts.astype(np.int64))], 0
        if len(self._parts[0][0]) > MOST_DISTINCT:
            raise DataError(
                f"a transformation of the formula would look at more than {MOST_DISTINCT:,} different values to find "
                "its knots or levels: give a spline its knots and bounds, such as bs(x, knots=[…], lower_bound=…, "
                "upper_bound=…), and take as a number what is no category."
            )
        return self._parts[0]


def count_distinct(values: Value) -> DistinctValues:
    """The different values of a block, and how often each occurs."""
    array = np.asarray(values)
    if array.dtype.kind == "f":
        array = array[np.isfinite(array)]
    return DistinctValues(*np.unique(array.astype(str) if array.dtype.kind == "O" else array, return_counts=True))


def polynomial_sums(values: Value, alpha: dict[int, float], norms: dict[int, float]) -> Array:
    """Σ x p² and Σ p² of the next orthogonal polynomial p. alpha, norms: the recurrence of those before it."""
    x = np.asarray(values, np.float64)
    before, p = np.zeros_like(x), np.ones_like(x)
    for k in range(len(alpha)):
        before, p = p, (x - alpha[k]) * p - (norms[k] / norms[k - 1] * before if k else 0.0)
    return np.array([(x * p**2).sum(), (p**2).sum()])


def _learn_scale(call: Call) -> Learner:
    given = _bound_arguments(call)
    total: Moments = yield moments
    centre, rescaled = given.get("center", True), given.get("rescale", given.get("scale", call.name != "center"))
    ddof = given.get("ddof", 0 if call.name == "standardize" else 1)
    state: State = {"ddof": ddof, "center": None, "scale": None}
    state["center"] = (total.mean if centre else None) if isinstance(centre, bool) else np.array(centre)
    state["scale"] = np.array(rescaled)
    if isinstance(rescaled, bool):
        away = total.mean - (0.0 if state["center"] is None else state["center"])
        squares = total.squares + total.n * away**2
        state["scale"] = np.sqrt(squares / (total.n - ddof)) if rescaled else None
    return state


def _learn_polynomials(call: Call) -> Learner:
    given = _bound_arguments(call)
    alpha: dict[int, float] = {}
    norms: dict[int, float] = {}
    if given.get("raw", False):
        return {}
    for k in range(given.get("degree", 1) + 1):
        weighted, norms[k] = (float(value) for value in (yield partial(polynomial_sums, alpha=alpha, norms=norms)))
        if k < given.get("degree", 1):
            alpha[k] = weighted / norms[k]
    return {"alpha": alpha, "norms2": norms}


def _learn_basis_spline(call: Call) -> Learner:
    assert call.function is not None
    values, counts = (yield count_distinct).sorted()
    state: State = {}
    keywords = {name: value for name, value in _bound_arguments(call).items() if name != "x"}
    df, degree = keywords.get("df"), keywords.get("degree", 3)
    inner = (df or 0) - degree - bool(keywords.get("include_intercept", False))
    if df and keywords.get("knots") is None and inner >= 0:
        bounds = [keywords.get(name) for name in ("lower_bound", "upper_bound")]
        inside = np.ones(len(values), bool)
        if keywords.get("extrapolation", "raise") in ("clip", "na", "zero"):
            inside &= values >= (values[0] if bounds[0] is None else bounds[0])
            inside &= values <= (values[-1] if bounds[1] is None else bounds[1])
        if inside.any():
            knots = quantiles(values[inside], counts[inside], np.linspace(0, 1, inner + 2)[1:-1])
            keywords = {**keywords, "df": None, "knots": knots.tolist()}
    call.function(values[[0, -1]], **keywords, _state=state)
    return state


def _learn_cubic_spline(call: Call) -> Learner:
    assert call.function is not None
    values, counts = (yield count_distinct).sorted()
    state: State = {}
    keywords = {name: value for name, value in _bound_arguments(call).items() if name != "x"}
    call.function(values, **keywords, _state=state)
    if keywords.get("constraints") == "center":
        free = {**state, "constraints": None}
        sums = 0.0
        for begin in range(0, len(values), _CHUNK):
            chunk = slice(begin, begin + _CHUNK)
            basis = call.function(values[chunk], **{**keywords, "constraints": None}, _state=dict(free))
            sums = sums + np.stack(wrapped_columns(basis)) @ counts[chunk]
        state["constraints"] = np.atleast_2d(sums / counts.sum())
    return state


def _learn_levels(call: Call) -> Learner:
    categories = getattr(getattr(call.arguments[0], "cat", None), "categories", None) if call.arguments else None
    if categories is not None:
        return {"levels": categories.tolist()}
    values, _ = (yield count_distinct).sorted()
    return {"levels": values.tolist()}


def quantiles(values: Values, counts: npt.NDArray[np.int64], levels: Array) -> Array:
    """`numpy.quantile` of all rows, from sorted values and how often each occurs.

    >>> quantiles(np.array([1.0, 2.0, 5.0]), np.array([3, 1, 1]), np.array([0.5, 0.875]))
    array([1. , 3.5])
    """
    ends = np.cumsum(counts)
    at = levels * (ends[-1] - 1)
    low, high = (values[np.searchsorted(ends, np.floor(at) + k, "right").clip(max=len(values) - 1)] for k in (0, 1))
    return np.asarray(low + (high - low) * (at - np.floor(at)), np.float64)


def _bound_arguments(call: Call) -> dict[str, Value]:
    assert call.function is not None
    return dict(signature(call.function).bind(*call.arguments, **call.keywords).arguments)


_LEARNERS: dict[str, Callable[[Call], Learner]] = {
    **dict.fromkeys(("center", "scale", "standardize"), _learn_scale),
    "poly": _learn_polynomials,
    "bs": _learn_basis_spline,
    **dict.fromkeys(("cc", "cr", "cs"), _learn_cubic_spline),
}
