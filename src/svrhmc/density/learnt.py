"""Regressions whose coefficients have a normal prior with an unknown scale (`svrhmc.priors.shrinkage.LearntScale`).

    f(w, φ) = Σᵢ ℓ(tᵢ, yᵢ) + prior of other coordinates + qφ + ½e^{−2φ} wᵀDw − log p(φ),        φ = log τ,

w being coefficients and shared parameters, q the rank of D. D is 1 for coefficients that have this prior and 0 for
others. Where a row has K classes, of which the first is the baseline, wₖ = βₖ − β₀ with all βₖ ~ N(0, τ²), so that no
class is special: the contrasts of one column have the covariance τ²(1 + 11ᵀ), and D holds (1 + 11ᵀ)⁻¹ = 1 − 11ᵀ/K.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import requirement
from svrhmc.density.base import FiniteSum
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.priors.shrinkage import LearntScale
from svrhmc.priors.terms import Heavy

_MOST = 3000  # coordinates, whose Hessian is dense


class LearntScaleModel(FiniteSum):
    """Made by `svrhmc.targets.glm(…, prior=LearntScale())`."""

    searched_by = "learnt scale"
    covariance_names: tuple[str, ...] = ()
    classes: Values | None = None  # what the labels 0, 1, … stand for, where they were not numbers

    def __init__(self, conditional: GeneralisedLinear, prior: LearntScale, columns: Sequence[int]) -> None:
        """conditional: the model whose coefficients in these columns have a flat prior."""
        self.conditional, self.prior, self.loss = conditional, prior, conditional.loss
        self.n, self.left_out, self.scalar_parts = conditional.n, conditional.left_out, conditional.scalar_parts
        self.reported_dim, self.dim = conditional.dim, conditional.dim + 1
        self.row_size, self.blocks = conditional.row_size, conditional.loss.blocks
        width = conditional.rows.columns
        column_numbers = np.array(columns, np.int64)
        self.shrunk: Indices = (np.arange(self.blocks)[:, None] * width + column_numbers).ravel()
        if not conditional.rows.in_memory:
            raise requirement("the rows", "in memory under a LearntScale", "rows in partitions")
        if conditional.dim > _MOST:
            why = "its sampler holds a matrix of all coefficients; Laplace or Horseshoe shrink more of them"
            raise requirement("X", f"of at most {_MOST:,} coefficients under a LearntScale", conditional.dim, why)

    def __repr__(self) -> str:
        return f"LearntScaleModel({self.loss}, n={self.n}, coefficients={self.reported_dim}, {self.prior!r})"

    @property
    def heavy(self) -> Heavy | None:
        """Priors that are not normal, of other coefficients and shared parameters."""
        return self.conditional.heavy

    def identity(self) -> dict[str, object]:
        """The data and the model."""
        shrinkage = [repr(self.prior), *map(int, self.shrunk)]
        return {**self.conditional.identity(), **self._kind(), "shrinkage": shrinkage}

    def shown(self) -> GeneralisedLinear:
        """The model given the scale, with a flat prior of the shrunk coefficients, whose rows can be examined."""
        return self.conditional

    def metric_product(self, w: Array) -> Array:
        """Dw of states (states, dim of w)."""
        out = np.zeros_like(w)
        shrunk = w[:, self.shrunk].reshape(len(w), self.blocks, -1)
        if self.blocks > 1:
            shrunk = shrunk - shrunk.sum(axis=1, keepdims=True) / (self.blocks + 1)
        out[:, self.shrunk] = shrunk.reshape(len(w), -1)
        return out

    @cached_property
    def metric(self) -> Array:
        """D."""
        return self.metric_product(np.eye(self.reported_dim))

    def log_prior(self, phi: Array) -> tuple[Array, Array]:
        """log p(φ) and its derivative, with qφ: of τ ~ half-Student-t of ν degrees of freedom and scale s,
        −½(ν + 1) log(1 + e^{2φ}/νs²) + φ − qφ.
        """
        df, scale, q = self.prior.df, self.prior.scale, len(self.shrunk)
        beyond = 2 * (phi - np.log(scale)) - np.log(df)
        value = -0.5 * (df + 1) * np.logaddexp(0.0, beyond) + (1 - q) * phi
        return value, -(df + 1) / (1 + np.exp(-beyond)) + (1 - q)

    def energies(self, x: Array) -> tuple[Array, Array]:
        """f and ∇f at states (states, dim), φ last."""
        w, phi = np.ascontiguousarray(x[:, :-1]), x[:, -1]
        value, slope = self.conditional.energies(w)
        product, precision = self.metric_product(w), np.exp(-2 * phi)
        squares = (w * product).sum(axis=1)
        by_prior, slope_by_prior = self.log_prior(phi)
        gradient = np.concatenate([slope + precision[:, None] * product, np.zeros((len(x), 1))], axis=1)
        gradient[:, -1] = -precision * squares - slope_by_prior
        return value + 0.5 * precision * squares - by_prior, gradient

    def potentials(self, x: Array) -> Array:
        """f."""
        return self.energies(x)[0]

    def gradients(self, x: Array) -> Array:
        """∇f."""
        return self.energies(x)[1]

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """Those of the rows."""
        return self.conditional.parts(np.ascontiguousarray(x[:, :-1]), indices)

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """With 0 for φ."""
        return np.pad(self.conditional.assemble(parts, indices), [(0, 0), (0, 1)])

    def prior_gradient(self, x: Array) -> Array:
        """What does not depend on the rows."""
        return self.gradients(x) - self.assemble(self.parts(x, None), None)

    def mode(self) -> Array:
        """Refused: the joint density of coefficients and their scale is unbounded."""
        why = "its density grows without bound as the scale goes to 0; svrhmc.sample finds its posterior"
        raise requirement("target", "one with a mode", repr(self), why)

    def _with_quadratic(self, strength: float, centre: Array) -> FiniteSum:
        raise requirement("target", "one whose prior is a sum over coordinates, to be regularised", repr(self))
