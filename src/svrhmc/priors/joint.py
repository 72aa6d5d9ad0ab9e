"""A normal prior of several coordinates together.

    −log p(w) = ½(w − m)ᵀP(w − m),    P = Λ + R,    Λ = ½λ diag(P),    λ = λ_min(diag(P)^{−½} P diag(P)^{−½}).

Λ is diagonal and positive, so that it stands for proper normal priors of single coordinates, with the mean m. The rest,
½(w − m)ᵀR(w − m) with R positive definite, is a `Term`. Together they are the joint law.
"""

from __future__ import annotations

import numpy as np

from svrhmc.core.arrays import Array, digest
from svrhmc.priors.terms import Normal, Term


class JointNormal(Term):
    """½(w − m)ᵀR(w − m): the part of a joint normal prior that is not in the priors of single coordinates."""

    convex = True
    quadratic = True

    def __init__(self, mean: Array, precision: Array) -> None:
        self._mean, self._precision = mean, precision

    def value(self, w: Array) -> Array:
        away = w - self._mean
        value: Array = 0.5 * np.einsum("sd,de,se->s", away, self._precision, away)
        return value

    def gradient(self, w: Array) -> Array:
        return np.asarray((w - self._mean) @ self._precision)

    def hessian(self, w: Array) -> Array:
        return self._precision

    def identity(self) -> str:
        return digest(self._mean, self._precision)


def joint_normal(mean: Array, covariance: Array) -> tuple[list[Normal], JointNormal]:
    """N(mean, covariance) as priors of single coordinates and a term.

    >>> single, term = joint_normal(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> w = np.array([[1.0, 1.0]])
    >>> single[0].of(0)[0] + term.value(w)  # ½wᵀP w of both, P = [[4/3, −2/3], [−2/3, 4/3]]
    array([0.66666667])
    """
    sd = np.sqrt(np.diag(covariance))
    inverse = np.linalg.inv(covariance / np.outer(sd, sd))
    precision = (inverse + inverse.T) / 2 / np.outer(sd, sd)
    size = np.sqrt(np.diag(precision))
    least = float(np.linalg.eigvalsh(precision / np.outer(size, size))[0])
    single = least / 2 * size**2
    priors = [Normal(p, mean=m) for p, m in zip(single.tolist(), mean.tolist(), strict=True)]
    return priors, JointNormal(mean, precision - np.diag(single))
