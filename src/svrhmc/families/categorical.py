"""Classes by softmax: t_c = log p_c/p₀ for c = 1 … K − 1, ℓ = log(1 + Σ eᵗ) − t_y: a predictor for each but one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement, whole_number
from svrhmc.core.serialise import part
from svrhmc.families.base import Coded, Formulas, Loss, SharedFamily, class_at, family
from svrhmc.families.labels import class_numbers, classes_of
from svrhmc.families.primitives import Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones


@family
def categorical(classes: int | None = None) -> Loss:
    """Classes by softmax, the first of them as the baseline: 0 … K − 1, or (None) those that y has, in their order.

    >>> categorical(3).mean(np.array([0.0, 0.0])).round(3)
    array([0.333, 0.333, 0.333])
    """
    return CategoricalLoss(classes)


class Categorical(NamedTuple):
    """log(1 + Σ eᵗ) − t_y."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With p_c = e^{t_c}/Σe^t, t₀ = 0: slopes p_c − 1[y = c], of the class itself minus the sum of the others;
        curvatures diag(p) − ppᵀ, with 1 − p_c as the sum of the others.
        """
        exp = op.exp

        def value(loss: Fields, t: Value, y: Value) -> Value:
            """log(1 + Σ_{c ≠ y} e^{t_c − t_y}), a sum of terms not below 0: by log1p where it is small."""
            xp = op.xp
            full = _with_baseline(xp, t)
            own = _is_own_class(xp, full, y)
            away = full - xp.where(own, full, 0.0).sum(axis=-1, keepdims=True)
            top = xp.maximum(away.max(axis=-1), 0.0)
            others = xp.where(own, 0.0, exp(away - top[..., None])).sum(axis=-1)
            return xp.where(top > 0, top + xp.log(others + exp(-top)), xp.log1p(others))

        def slope(loss: Fields, t: Value, y: Value) -> Value:
            xp, p = op.xp, _softmax(op.xp, t)
            own = _is_own_class(xp, p, y)
            others = xp.where(own, 0.0, p).sum(axis=-1, keepdims=True)
            return xp.where(own, -others, p)[..., 1:]

        def curvature(loss: Fields, t: Value, y: Value) -> Value:
            p = _softmax(np, t)
            rest = (p[..., None, :] * (1.0 - np.eye(p.shape[-1]))).sum(axis=-1)
            matrix, diagonal = -p[..., 1:, None] * p[..., None, 1:], np.arange(p.shape[-1] - 1)
            matrix[..., diagonal, diagonal] = (p * rest)[..., 1:]
            return matrix

        def energies(loss: Fields, count: Value, t: Value, y: Value, s: Value, valued: Value) -> None:
            """A loop over classes, and within it one over rows, which becomes vector code: e_c = e^{t_c − top},
            top = max(0, t).
            """
            k = len(s)
            top, total, others = t[k], t[k + 1], t[k + 2]
            for i in range(count):
                top[i] = max(0.0, t[0, i])
            for c in range(1, k):
                one = t[c]
                for i in range(count):
                    top[i] = max(top[i], one[i])
            for i in range(count):
                e = exp(-top[i])
                total[i], others[i] = e, (0.0 if y[i] == 0.0 else e)
            for c in range(k):
                one, e, own = t[c], s[c], c + 1.0
                for i in range(count):
                    e[i] = exp(one[i] - top[i])
                    total[i] += e[i]
                    others[i] += 0.0 if y[i] == own else e[i]
            for c in range(k):
                e, own = s[c], c + 1.0
                for i in range(count):
                    e[i] = (-others[i] if y[i] == own else e[i]) / total[i]
            if valued:
                for i in range(count):
                    place = np.int64(y[i])
                    here = t[place - 1, i] if place > 0 else 0.0
                    top[i] = math.log1p(others[i]) if here == top[i] else (top[i] - here) + math.log(total[i])

        return Formulas(slope, curvature, value, energies=energies)


def _with_baseline(xp: ModuleType, t: Value) -> Value:
    return xp.concatenate([xp.zeros((*t.shape[:-1], 1)), t], axis=-1)


def _is_own_class(xp: ModuleType, full: Value, y: Value) -> Value:
    """Which of all classes is a row's own."""
    return xp.arange(full.shape[-1]) == xp.asarray(y)[..., None].astype(xp.int64)


def _softmax(xp: ModuleType, t: Value) -> Value:
    """Probabilities of all classes, the baseline first."""
    full = _with_baseline(xp, t)
    e = xp.exp(full - full.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@part
@dataclass(frozen=True)
class CategoricalLoss(SharedFamily):
    """Classes 0 … K − 1 with p_c ∝ e^{t_c}, t₀ = 0: class 0 is the baseline, and the others have coefficients each."""

    name = "categorical"
    mistaken = ("multinomial", "softmax")
    ratio = "odds ratio"
    outcome = "classes"
    modelled = "the log odds of a class against {first}"
    most_classes = math.inf
    convex = True
    shared = 0
    kernel = Categorical
    classes: int | None = None

    def __post_init__(self) -> None:
        if self.classes is not None:
            whole_number("classes", self.classes, 2)

    def coded(self, y: npt.ArrayLike) -> Coded:
        """The classes that the labels have, in order; where it was said how many there are, they are 0 … K − 1."""
        if self.classes is not None:
            return Coded(self, y, np.arange(self.classes))
        codes, classes = classes_of(y)
        if len(classes) < 2:
            why = "a model of classes needs a second one"
            raise requirement("y", "labels of at least two classes", f"{classes.tolist()[0]!r} everywhere", why)
        return Coded(CategoricalLoss(len(classes)), codes, classes)

    def with_classes(self, levels: Sequence[object], ordered: bool) -> tuple[Loss, Sequence[object]]:
        return CategoricalLoss(len(levels)), levels

    @property
    def _count(self) -> int:
        if self.classes is None:
            raise requirement("classes", "known", "None", "coded(y) counts those of the labels")
        return self.classes

    @property
    def blocks(self) -> int:
        """All classes but the baseline."""
        return self._count - 1

    @property
    def nanoseconds(self) -> float:
        """An exponential for each class."""
        return 2.0 + 3.6 * self.blocks

    @property
    def curvature_bound(self) -> float:
        """diag(p) − ppᵀ has no eigenvalue above ½."""
        return 0.5

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Classes 0 … K − 1; each must be seen."""
        return class_numbers(y, n, self._count, "'categorical' finds out which classes there are")

    def recession_cones(self, y: Array) -> RecessionCones:
        """Along u the loss grows by max_c u_c − u_y (u₀ = 0): it is bounded where u_c ≤ u_y for every other class c."""
        places, K = np.asarray(y).astype(np.int64), self._count
        eye = np.eye(K)
        others = np.array([[c for c in range(K) if c != own] for own in range(K)])
        normals = eye[others[places]] - eye[places][:, None, :]
        return RecessionCones(normals[..., 1:], np.zeros(normals.shape[:2], bool))

    def mean(self, t: Array) -> Array:
        """Probabilities of all K classes."""
        return np.asarray(_softmax(np, t), np.float64)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """The class at which the cumulated probabilities pass u."""
        return class_at(self.mean(t), u)
