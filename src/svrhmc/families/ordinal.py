"""Ordered classes 0 < 1 < … < K − 1 by cumulative probabilities: P(y ≤ j) = F(c_j − η).

F is the logistic law ("logit", 1/(1 + e^{−v})), the normal law ("probit", Φ(v)) or that of the logarithm of an
exponential time ("cloglog", 1 − exp(−eᵛ)). The predictor η has no intercept; the thresholds c₀ < … < c_{K−2} are shared
parameters, t = (η, c₀, …, c_{K−2}). A larger η makes higher classes more probable. With the logit e^β is the ratio by
which the odds of a higher class grow, wherever the line between high and low is drawn. With the cloglog
P(y > j) = exp(−e^{c_j − η}), proportional hazards: e^β divides the hazard of stopping at a class that is reached, at
every class alike, so that e^{−β} is the hazard ratio. With the probit e^β has no name. A row of class y lies between

    b = c_{y−1} − η  (−∞ for the first class)     and     a = c_y − η  (∞ for the last),     ℓ = −log(F(a) − F(b)),

and ℓ = ∞ where d = a − b ≤ 0; `intervals.py` has ℓ and its derivatives by a and b without a difference that cancels.

ℓ is jointly convex where thresholds are in order, as log F′ is concave (Pratt, Journal of the American Statistical
Association 76, 1981), and as every class is seen, rows keep all of them in order. The curvature in d has no bound.
Outside, where ℓ = ∞, slopes and curvatures are finite: a trajectory may pass there, and a Metropolis step refuses to
end there.

The model is that of McCullagh, Journal of the Royal Statistical Society B 42, 1980.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import one_of, requirement, whole_number
from svrhmc.core.serialise import part
from svrhmc.families import intervals
from svrhmc.families.base import Classes, Coded, Formulas, Loss, SharedFamily, class_at, family
from svrhmc.families.labels import class_labels, class_numbers, sorted_labels
from svrhmc.families.laws import EXTREME, LOGISTIC, NORMAL
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones

_HOW_TO_ORDER = (
    "number the classes from the lowest on, give a pandas.Categorical(…, categories=[…], ordered=True), or say the "
    "order: svrhmc.targets.families.ordinal(levels=[…]), in the shell --levels 'low, medium, high'"
)


@family
def ordinal(link: str = "logit", levels: Sequence[object] | None = None) -> Loss:
    """Ordered classes with P(y ≤ j) = F(c_j − t), the thresholds c_j the last coordinates of x.

    link: "logit", "probit" or "cloglog", for F(v) = 1/(1 + e^{−v}), Φ(v) or 1 − exp(−eᵛ).
    levels: the classes, the lowest first; None: the order of an ordered category, or that of numbers.

    >>> ordinal(levels=["low", "medium", "high"]).coded(["high", "low", "medium"]).y
    array([2., 0., 1.])
    >>> float(ordinal("probit").coded([0, 1]).loss.mean(np.zeros(2))[0])
    0.5
    """
    if not isinstance(link, str):
        why = "the classes go by name: ordinal(levels=[…])"
        raise requirement("link", "one of " + ", ".join(map(repr, LINKS)), repr(link), why)
    one_of("link", link, tuple(LINKS))
    if levels is not None and (isinstance(levels, str) or not isinstance(levels, Iterable)):
        raise requirement("levels", "a list of the classes, the lowest first", repr(levels))
    return OrdinalLoss(None, None if levels is None else tuple(levels), link)


class Ordinal(NamedTuple):
    """−log(σ(a) − σ(b))."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With F = σ."""
        return _formulas(op, intervals.logit(op))


class OrdinalProbit(NamedTuple):
    """−log(Φ(a) − Φ(b))."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With F = Φ."""
        return _formulas(op, intervals.probit(op))


class OrdinalCloglog(NamedTuple):
    """−log(exp(−e^b) − exp(−e^a))."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With F(v) = 1 − exp(−eᵛ)."""
        return _formulas(op, intervals.cloglog(op))


def _formulas(op: Primitives, interval: intervals.Interval) -> Formulas:
    """The formulas of a row from those of its interval."""
    value_of, slopes_of, _ = interval
    infinity = math.inf

    def value(loss: Fields, t: Value, y: Value) -> Value:
        return value_of(*_between(op.xp, t, y))

    def slope(loss: Fields, t: Value, y: Value) -> Value:
        xp, thresholds = op.xp, op.xp.arange(t.shape[-1] - 1)
        by_predictor, by_a, by_b = slopes_of(*_between(xp, t, y))
        own = y[..., None]
        by_thresholds = xp.where(thresholds == own, by_a[..., None], 0.0) + xp.where(
            thresholds == own - 1, by_b[..., None], 0.0
        )
        return xp.concatenate([by_predictor[..., None], by_thresholds], axis=-1)

    def curvature(loss: Fields, t: Value, y: Value) -> Value:
        """p, r and w times the squares of da, db and da − db, a = c_y − η and b = c_{y−1} − η."""
        a, b, d = _between(np, t, y)
        thresholds = np.arange(t.shape[-1] - 1)
        upper, lower = (np.asarray(thresholds == own, np.float64) for own in (y[..., None], y[..., None] - 1))
        one = np.zeros((*a.shape, 1))
        to_predictor = np.concatenate([one + 1.0, np.zeros((*a.shape, len(thresholds)))], axis=-1)
        to_a, to_b = (
            np.concatenate([one, np.broadcast_to(end, (*a.shape, len(thresholds)))], -1) for end in (upper, lower)
        )
        ways = to_a - to_predictor, to_b - to_predictor, to_a - to_b
        return sum(
            size[..., None, None] * (way[..., :, None] * way[..., None, :])
            for size, way in zip(interval.curvatures(a, b, d), ways, strict=True)
        )

    def energies(loss: Fields, count: Value, t: Value, y: Value, s: Value, valued: Value) -> None:
        """A row meets two thresholds at the most."""
        m = len(s)
        for j in range(1, m):
            s[j, :count] = 0.0
        for i in range(count):
            own = np.int64(y[i])
            upper = t[own + 1, i] if own + 1 < m else infinity
            lower = t[own, i] if own > 0 else -infinity
            a, b, d = upper - t[0, i], lower - t[0, i], upper - lower
            s[0, i], by_a, by_b = slopes_of(a, b, d)
            if own + 1 < m:
                s[own + 1, i] = by_a
            if own > 0:
                s[own, i] = by_b
            if valued:
                t[m, i] = value_of(a, b, d)

    return Formulas(slope, curvature, value, energies=energies)


class Link(NamedTuple):
    """What depends on the law F: the record, F and its inverse, the variance of F, words, and time."""

    record: type[NamedTuple]
    cumulative: Callable[[Array], Array]
    quantile: Callable[[Array], Array]
    variance: float
    modelled: str
    ratio: str
    nanoseconds: float


def _normal(v: Array) -> Array:
    from scipy.special import ndtr

    return np.asarray(ndtr(v), np.float64)


LINKS = {
    "logit": Link(
        Ordinal, NUMPY.sigmoid, lambda p: np.log(p / (1 - p)), LOGISTIC.variance,
        "the log odds of a higher {response}", "odds ratio", 32.0,
    ),
    "probit": Link(
        OrdinalProbit, _normal, NORMAL.quantile, 1.0,
        "the probit Φ⁻¹(p) of the probability p of a higher {response}", "", 260.0,
    ),
    "cloglog": Link(
        OrdinalCloglog, lambda v: -np.expm1(-np.exp(v)), EXTREME.quantile, EXTREME.variance,
        "−log(−log p) of the probability p of a higher {response}",
        "inverse hazard ratio", 62.0,
    ),
}  # fmt: skip


def _between(xp: ModuleType, t: Value, y: Value) -> tuple[Value, Value, Value]:
    """a and b, the thresholds above and below the class of each row, less its predictor, and d, all digits of it."""
    shape = (*t.shape[:-1], 1)
    ends = xp.full(shape, -xp.inf), xp.full(shape, xp.inf)
    edges = xp.concatenate([ends[0], t[..., 1:], ends[1]], axis=-1)
    place = xp.broadcast_to(xp.asarray(y).astype(xp.int64), t.shape[:-1])[..., None]
    upper, lower = (xp.take_along_axis(edges, place + k, axis=-1)[..., 0] for k in (1, 0))
    return upper - t[..., 0], lower - t[..., 0], upper - lower


def _as_numbers(given: Sequence[object], levels: Sequence[object]) -> Sequence[object]:
    """Texts such as '1', which is how a shell gives numbers, as the numbers that the labels are; others unchanged."""
    numbers = {float(level): level for level in levels if isinstance(level, int | float)}
    if len(numbers) < len(levels):
        return given
    try:
        return [numbers.get(float(text), text) if isinstance(text, str) else text for text in given]
    except ValueError:
        return given


@part
@dataclass(frozen=True)
class OrdinalLoss(SharedFamily):
    """Classes 0 < … < K − 1 by cumulative probabilities, t = (η, c₀, …, c_{K−2}).

    classes: K; None: those that the labels have. levels: the classes as users know them, in order, until they are
    numbers. link_name: one of `LINKS`.
    """

    name = "ordinal"
    aliases = ("cumulative",)
    mistaken = ("ordered", "cumulative-logit", "ordered-logistic", "polr", "proportional-odds")
    outcome = "classes"
    most_classes = 50
    ordered = True
    has_intercept = False
    barrier = True
    convex = True
    shared_prior = (0.04, 0.0)
    classes: int | None = None
    levels: tuple[object, ...] | None = None
    link_name: str = "logit"

    def __post_init__(self) -> None:
        one_of("link_name", self.link_name, tuple(LINKS))
        if self.classes is not None:
            whole_number("classes", self.classes, 2)
        if self.levels is None:
            return
        if not all(isinstance(level, Hashable) for level in self.levels):
            raise requirement("levels", "texts or numbers, the lowest class first", repr(list(self.levels)))
        if not len(set(self.levels)) == len(self.levels) >= 2:
            raise requirement("levels", "at least two different classes, the lowest first", repr(list(self.levels)))

    @property
    def link(self) -> str:
        """The name of the link, and "" for the logit."""
        return "" if self.link_name == "logit" else self.link_name

    @property
    def ratio(self) -> str:
        return LINKS[self.link_name].ratio

    @property
    def modelled(self) -> str:
        return LINKS[self.link_name].modelled

    @property
    def nanoseconds(self) -> float:
        return LINKS[self.link_name].nanoseconds

    @property
    def kernel(self) -> Any:
        return LINKS[self.link_name].record

    @property
    def shared(self) -> int:
        """A threshold between each two classes."""
        return self._count - 1

    @property
    def _count(self) -> int:
        if self.classes is None:
            raise requirement("classes", "known", "None", "coded(y) counts those of the labels")
        return self.classes

    def parameter_names(self, classes: Classes | None = None) -> tuple[str, ...]:
        """Of the classes on both sides."""
        levels = range(self._count) if classes is None else classes
        return tuple(f"threshold {low}|{high}" for low, high in pairwise(levels))

    def weak_shared_words(self, names: Sequence[str]) -> list[str]:
        """All of them at once."""
        return [f"thresholds, at the means of the columns, ~ N(0, {self.shared_prior[0] ** -0.5:g}²)"]

    def with_classes(self, levels: Sequence[object], ordered: bool) -> tuple[Loss, Sequence[object]]:
        """In their own order, or in the one that was given."""
        if self.levels is None and not ordered:
            shown = ", ".join(map(repr, levels[:4])) + (", …" if len(levels) > 4 else "")
            raise requirement(
                "y", "labels whose order is known for the family 'ordinal'", f"the texts {shown}", _HOW_TO_ORDER
            )
        ranked = list(levels if self.levels is None else _as_numbers(self.levels, levels))
        if len(ranked) > self.most_classes:
            why = "each but one has a threshold; for numbers use 'gaussian'"
            raise requirement("y", f"labels of at most {self.most_classes} classes", f"{len(ranked):,}", why)
        for own, others, what in ((levels, ranked, "among the levels"), (ranked, levels, "seen in some row")):
            if strange := [level for level in own if level not in others]:
                why = f"levels={ranked!r} must be the classes of the labels, {list(levels)!r}"
                raise requirement("y", f"labels whose classes are each {what}", repr(strange[0]), why)
        return OrdinalLoss(len(ranked), None, self.link_name), ranked

    def coded(self, y: npt.ArrayLike) -> Coded:
        """The classes of the labels, in order; where it was said how many there are, they are 0 … K − 1."""
        if self.classes is not None:
            return Coded(self, y, np.arange(self.classes))
        array, categories = class_labels(y)
        if categories:
            seen = set(array.tolist())
            levels = [level for level in categories if level in seen]
        else:
            levels = sorted_labels(array).tolist()
        if len(levels) < 2:
            why = "a model of classes needs a second one"
            raise requirement("y", "labels of at least two classes", f"{levels[0]!r} everywhere", why)
        loss, ranked = self.with_classes(levels, bool(categories) or array.dtype.kind in "biuf")
        places = {level: float(k) for k, level in enumerate(ranked)}
        return Coded(loss, np.array([places[label] for label in array.tolist()]), np.array(ranked))

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Classes 0 … K − 1, each of which is seen: else nothing tells two thresholds apart."""
        return class_numbers(y, n, self._count, "leave out the levels that no row has")

    def shared_start(self, y: Array) -> Array:
        """F⁻¹ of the shares up to each class, with half a row more in each."""
        below = np.cumsum(np.bincount(np.asarray(y, np.int64), minlength=self._count) + 0.5)
        return np.asarray(LINKS[self.link_name].quantile(below[:-1] / below[-1]), np.float64)

    def recession_cones(self, y: Array) -> RecessionCones:
        """At given thresholds it grows upwards but for the last class, and downwards but for the first."""
        return one_predictor_cones(y < self._count - 1, y > 0)

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """Every class is seen, so that rows hold all thresholds, unless coefficients without a prior move them too."""
        return "some coefficients have flat priors too, and may carry the thresholds along" if free else None

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """That of the law F: π²/3, 1 or π²/6."""
        return np.full(len(mean), LINKS[self.link_name].variance)

    def mean(self, t: Array) -> Array:
        """Probabilities of all K classes, e^{−ℓ}."""
        values = [self.value(t, np.full(t.shape[:-1], float(k))) for k in range(t.shape[-1])]
        return np.asarray(np.exp(-np.stack(values, axis=-1)), np.float64)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """The class at which the cumulated probabilities pass u."""
        return class_at(self.mean(t), u)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """F(b) and F(a)."""
        a, b, _ = _between(np, t, y)
        law = LINKS[self.link_name].cumulative
        return law(b), law(a)
