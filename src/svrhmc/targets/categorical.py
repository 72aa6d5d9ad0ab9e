"""Classes by softmax: t_c = log p_c/p₀ for c = 1 … K − 1, ℓ = log(1 + Σ eᵗ) − t_y: a predictor for each but one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement, whole
from svrhmc.core.parts import part
from svrhmc.targets.faces import Faces
from svrhmc.targets.labels import classes_of, counts
from svrhmc.targets.losses import Coded
from svrhmc.targets.shared import WideLoss


@part
@dataclass(frozen=True)
class CategoricalLoss(WideLoss):
    """Classes 0 … K − 1 with p_c ∝ e^{t_c}, t₀ = 0: class 0 is the baseline, and the others have coefficients each."""

    name = "categorical"
    ratio = "odds ratio"
    outcome = "classes"
    convex = True
    shared = 0
    kernel = "categorical"
    classes: int | None = None

    def __post_init__(self) -> None:
        if self.classes is not None:
            whole("classes", self.classes, 2)

    def coded(self, y: npt.ArrayLike) -> Coded:
        """The classes that the labels have, in order; where it was said how many there are, they are 0 … K − 1."""
        if self.classes is not None:
            return Coded(self, y, np.arange(self.classes))
        codes, found = classes_of(y)
        if len(found) < 2:
            why = "a model of classes needs a second one"
            raise requirement("y", "labels of at least two classes", f"{found.tolist()[0]!r} everywhere", why)
        return Coded(CategoricalLoss(len(found)), codes, found)

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
    def numbers(self) -> tuple[float, ...]:
        """None."""
        return ()

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
        array = counts("y", y, (n,))
        if (array >= self._count).any():
            row = int(np.argmax(array >= self._count))
            raise requirement("y", f"classes from 0 to {self._count - 1}", f"{array[row]:g} at row {row}")
        unseen = np.setdiff1d(np.arange(self._count), array)
        if len(unseen):
            why = "'categorical' finds out which classes there are"
            raise requirement("y", "labels in which every class is seen", f"none of class {int(unseen[0])}", why)
        return array

    def faces(self, y: Array) -> Faces:
        """Along u the loss grows by max_c u_c − u_y (u₀ = 0): it is bounded where u_c ≤ u_y for every other class c."""
        places, K = np.asarray(y).astype(np.int64), self._count
        eye = np.eye(K)
        others = np.array([[c for c in range(K) if c != own] for own in range(K)])
        normals = eye[others[places]] - eye[places][:, None, :]
        return Faces(normals[..., 1:], np.zeros(normals.shape[:2], bool))

    def value(self, t: Array, y: Array) -> Array:
        """log(1 + Σ eᵗ) − t_y, as a sum of terms not below 0."""
        full = self._with_baseline(t)
        places = self._places(full, y)
        return _log_sum(full - np.take_along_axis(full, places, axis=-1), np.arange(self._count) == places)

    def slope(self, t: Array, y: Array) -> Array:
        """p_c − 1[y = c]; of the class itself minus the sum of the others."""
        full = self._with_baseline(t)
        p = _softmax(full)
        own = np.arange(self._count) == self._places(full, y)
        rest = np.where(own, 0.0, p).sum(axis=-1, keepdims=True)
        slopes: Array = np.where(own, -rest, p)[..., 1:]
        return slopes

    def curvature(self, t: Array, y: Array) -> Array:
        """diag(p) − ppᵀ."""
        p = _softmax(self._with_baseline(t))
        others = 1.0 - np.eye(self._count)
        rest = (p[..., None, :] * others).sum(axis=-1)  # 1 − p_c without cancellation
        diagonal = (p * rest)[..., 1:]
        matrix = -p[..., 1:, None] * p[..., None, 1:]
        each = np.arange(self._count - 1)
        matrix[..., each, each] = diagonal
        return matrix

    def mean(self, t: Array) -> Array:
        """Probabilities of all K classes."""
        return _softmax(self._with_baseline(t))

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """The class at which the cumulated probabilities pass u."""
        edges = np.cumsum(self.mean(t), axis=-1)[..., :-1]
        return np.asarray((np.asarray(u)[..., None] > edges).sum(axis=-1), np.float64)

    def _with_baseline(self, t: Array) -> Array:
        return np.concatenate([np.zeros((*t.shape[:-1], 1)), t], axis=-1)

    def _places(self, full: Array, y: Array) -> npt.NDArray[np.int64]:
        return np.broadcast_to(np.asarray(y).astype(np.int64), full.shape[:-1])[..., None]


def _log_sum(away: Array, own: npt.NDArray[np.bool_]) -> Array:
    """log(1 + Σ_{c ≠ y} e^{t_c − t_y}): by log1p where the sum is small."""
    top = np.maximum(away.max(axis=-1), 0.0)
    others = np.where(own, 0.0, np.exp(away - top[..., None])).sum(axis=-1)
    return np.asarray(np.where(top > 0, top + np.log(others + np.exp(-top)), np.log1p(others)), np.float64)


def _softmax(full: Array) -> Array:
    e = np.exp(full - full.max(axis=-1, keepdims=True))
    p: Array = e / e.sum(axis=-1, keepdims=True)
    return p
