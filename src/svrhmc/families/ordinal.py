"""Ordered classes 0 < 1 < … < K − 1 by the cumulative logit: P(y ≤ j) = 1/(1 + e^{−(c_j − η)}).

The predictor η has no intercept; the thresholds c₀ < … < c_{K−2} are shared parameters, t = (η, c₀, …, c_{K−2}). A
larger η makes higher classes more probable, and e^β is the ratio by which the odds of a higher class grow, wherever the
line between high and low is drawn. A row of class y lies between

    b = c_{y−1} − η  (−∞ for the first class)     and     a = c_y − η  (∞ for the last),

and its probability is σ(a) − σ(b) = σ(a)σ(−b)(1 − e^{−d}), d = a − b, a product in which nothing cancels. So

    ℓ = sp(−a) + sp(b) − log(1 − e^{−d}),     sp(v) = log(1 + eᵛ),     and ∞ where d ≤ 0.

With g = 1/(e^d − 1), the force that keeps two thresholds apart:

    ∂ℓ/∂a = −σ(−a) − g,     ∂ℓ/∂b = σ(b) + g,     ∂ℓ/∂η = σ(−a) − σ(b).

sp and −log(1 − e^{−d}) are convex and their arguments are linear in t: ℓ is jointly convex where thresholds are in
order (Pratt, Journal of the American Statistical Association 76, 1981), and as every class is seen, rows keep all of
them in order. The curvature g(1 + g) in d has no bound. Outside, where ℓ = ∞, slopes and curvatures are those of
g = 0: a trajectory may pass there, and a Metropolis step refuses to end there.

The model is that of McCullagh, Journal of the Royal Statistical Society B 42, 1980.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement, whole
from svrhmc.core.serialise import part
from svrhmc.families.base import Classes, Coded, Formulas, Loss, SharedFamily, class_at, family
from svrhmc.families.labels import class_labels, class_numbers, distinct
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value
from svrhmc.families.recession import Faces, sides

_LOG2 = math.log(2.0)
_LEAST = 1e-300  # in place of a distance that is not above 0
_HOW = (
    "number the classes from the lowest on, give a pandas.Categorical(…, categories=[…], ordered=True), or say the "
    "order: svrhmc.targets.families.ordinal(levels=[…])"
)


@family
def ordinal(levels: Sequence[object] | None = None) -> Loss:
    """Ordered classes with P(y ≤ j) = 1/(1 + e^{−(c_j − t)}), the thresholds c_j the last coordinates of x.

    levels: the classes, the lowest first; None: the order of an ordered category, or that of numbers.

    >>> ordinal(["low", "medium", "high"]).coded(["high", "low", "medium"]).y
    array([2., 0., 1.])
    """
    if levels is not None and (isinstance(levels, str) or not isinstance(levels, Iterable)):
        raise requirement("levels", "a list of the classes, the lowest first", repr(levels))
    return OrdinalLoss(None, None if levels is None else tuple(levels))


class Ordinal(NamedTuple):
    """sp(−a) + sp(b) − log(1 − e^{−(a − b)})."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """As at the top of this file; where thresholds are not in order g = 0, and ℓ = ∞."""
        exp, expm1, log, log1p, where, maximum = op.exp, op.expm1, op.log, op.log1p, op.where, op.maximum
        softplus, sigmoid, infinity = op.softplus, op.sigmoid, math.inf

        @op.function
        def value_of(a: Value, b: Value, d: Value) -> Value:
            safe = maximum(d, _LEAST)
            apart = where(d > _LOG2, log1p(-exp(-maximum(d, _LOG2))), log(-expm1(-safe)))
            return where(d > 0.0, softplus(-a) + softplus(b) - apart, infinity)

        @op.function
        def slopes_of(a: Value, b: Value, d: Value) -> Value:
            """By η, a and b."""
            g = where(d > 0.0, 1.0 / expm1(maximum(d, _LEAST)), 0.0)
            below, above = sigmoid(-a), sigmoid(b)
            return below - above, -below - g, above + g

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
            """With q = σ(1 − σ) at a and b: ∂² by (η, a, b) = ((q_a + q_b, −q_a, −q_b), (·, q_a + w, −w),
            (·, ·, q_b + w)), w = g(1 + g).
            """
            a, b, d = _between(np, t, y)
            at_a, at_b = sigmoid(a) * sigmoid(-a), sigmoid(b) * sigmoid(-b)
            g = np.where(d > 0.0, 1.0 / expm1(maximum(d, _LEAST)), 0.0)
            w = g * (1.0 + g)
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
                for size, way in zip((at_a, at_b, w), ways, strict=True)
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


def _between(xp: ModuleType, t: Value, y: Value) -> tuple[Value, Value, Value]:
    """a and b, the thresholds above and below the class of each row, less its predictor, and d, all digits of it."""
    shape = (*t.shape[:-1], 1)
    ends = xp.full(shape, -xp.inf), xp.full(shape, xp.inf)
    edges = xp.concatenate([ends[0], t[..., 1:], ends[1]], axis=-1)
    place = xp.broadcast_to(xp.asarray(y).astype(xp.int64), t.shape[:-1])[..., None]
    upper, lower = (xp.take_along_axis(edges, place + k, axis=-1)[..., 0] for k in (1, 0))
    return upper - t[..., 0], lower - t[..., 0], upper - lower


@part
@dataclass(frozen=True)
class OrdinalLoss(SharedFamily):
    """Classes 0 < … < K − 1 by the cumulative logit, t = (η, c₀, …, c_{K−2}).

    classes: K; None: those that the labels have. levels: the classes as users know them, in order, until they are
    numbers.
    """

    name = "ordinal"
    aliases = ("cumulative",)
    mistaken = ("ordered", "cumulative-logit", "ordered-logistic", "polr", "proportional-odds")
    ratio = "odds ratio"
    outcome = "classes"
    modelled = "the log odds of a higher {response}"
    most_classes = 50
    ordered = True
    has_intercept = False
    barrier = True
    convex = True
    shared_prior = (0.04, 0.0)
    nanoseconds = 32.0
    kernel = Ordinal
    classes: int | None = None
    levels: tuple[object, ...] | None = None

    def __post_init__(self) -> None:
        if self.classes is not None:
            whole("classes", self.classes, 2)
        if self.levels is None:
            return
        if not all(isinstance(level, Hashable) for level in self.levels):
            raise requirement("levels", "texts or numbers, the lowest class first", repr(list(self.levels)))
        if not len(set(self.levels)) == len(self.levels) >= 2:
            raise requirement("levels", "at least two different classes, the lowest first", repr(list(self.levels)))

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
            raise requirement("y", "labels whose order is known for the family 'ordinal'", f"the texts {shown}", _HOW)
        ranked = list(levels if self.levels is None else self.levels)
        if len(ranked) > self.most_classes:
            why = "each but one has a threshold; for numbers use 'gaussian'"
            raise requirement("y", f"labels of at most {self.most_classes} classes", f"{len(ranked):,}", why)
        for own, others, what in ((levels, ranked, "among the levels"), (ranked, levels, "seen in some row")):
            if strange := [level for level in own if level not in others]:
                why = f"levels={ranked!r} must be the classes of the labels, {list(levels)!r}"
                raise requirement("y", f"labels whose classes are each {what}", repr(strange[0]), why)
        return OrdinalLoss(len(ranked)), ranked

    def coded(self, y: npt.ArrayLike) -> Coded:
        """The classes of the labels, in order; where it was said how many there are, they are 0 … K − 1."""
        if self.classes is not None:
            return Coded(self, y, np.arange(self.classes))
        array, categories = class_labels(y)
        if categories:
            seen = set(array.tolist())
            levels = [level for level in categories if level in seen]
        else:
            levels = distinct(array).tolist()
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
        """The log odds of the shares up to each class, with half a row more in each."""
        below = np.cumsum(np.bincount(np.asarray(y, np.int64), minlength=self._count) + 0.5)
        return np.asarray(np.log(below[:-1] / (below[-1] - below[:-1])), np.float64)

    def faces(self, y: Array) -> Faces:
        """At given thresholds it grows upwards but for the last class, and downwards but for the first."""
        return sides(y < self._count - 1, y > 0)

    def unsettled(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """Every class is seen, so that rows hold all thresholds, unless coefficients without a prior move them too."""
        return "some coefficients have flat priors too, and may carry the thresholds along" if free else None

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """π²/3, that of the logistic law."""
        return np.full(len(mean), np.pi**2 / 3)

    def mean(self, t: Array) -> Array:
        """Probabilities of all K classes, σ(a)σ(−b)(1 − e^{−d})."""
        ends = np.full((*t.shape[:-1], 1), np.inf)
        edges = np.concatenate([-ends, t[..., 1:], ends], axis=-1)
        upper, lower, eta = edges[..., 1:], edges[..., :-1], t[..., :1]
        between = NUMPY.sigmoid(upper - eta) * NUMPY.sigmoid(eta - lower)
        return np.maximum(between * -np.expm1(lower - upper), 0.0)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """The class at which the cumulated probabilities pass u."""
        return class_at(self.mean(t), u)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """σ(b) and σ(a)."""
        a, b, _ = _between(np, t, y)
        return NUMPY.sigmoid(b), NUMPY.sigmoid(a)
