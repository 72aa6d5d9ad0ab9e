"""What is sampled: π(x) ∝ exp(−f(x)), f(x) = (1/n) Σᵢ fᵢ(x)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from svrhmc.arrays import Array, Indices
from svrhmc.errors import real_array, requirement


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and covariance of a law."""

    mean: Array
    covariance: Array


class FiniteSum(ABC):
    """A potential that is the mean of n components.

    A component's gradient has two pieces: what it shares with all others (`prior_gradient`, never subsampled) and a
    *part* of its own. For a model with a linear predictor a part is one number, the slope that multiplies the row; for
    others it is the gradient itself. So with `parts` and `assemble`

        (1/B) Σ_{i ∈ batch} ∇fᵢ(x) = prior_gradient(x) + assemble(parts(x, batch), batch)

    and a snapshot can remember n numbers instead of n vectors where `scalar_parts` is true. These four, and
    `gradients`, work on many states at once: x has shape (chains, dim), indices (chains, batch). They give the same
    digits for a chain whatever stands beside it.
    """

    n: int
    dim: int
    scalar_parts: bool
    row_size: int  # numbers that stand for one component

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """L: an upper bound on λ_max of the Hessian of f; exact for quadratics."""

    @property
    @abstractmethod
    def component_smoothness(self) -> float:
        """L_max: the largest smoothness of a single fᵢ (the paper's L of Assumption 1)."""

    @property
    @abstractmethod
    def convexity(self) -> float:
        """μ: a lower bound on λ_min of the Hessian of f; exact for quadratics."""

    @property
    @abstractmethod
    def closed_form(self) -> Moments | None:
        """Exact mean and covariance of π where f is quadratic, else None."""

    @abstractmethod
    def curvature_range(self, bound: bool) -> tuple[float, float] | None:
        """Smallest and largest eigenvalue of the Hessian: bounds valid everywhere, or (bound=False) those at the mode.

        None where they are not known.
        """

    @abstractmethod
    def mode(self) -> Array:
        """x* = argmin f."""

    @abstractmethod
    def potentials(self, x: Array) -> Array:
        """f at each of many states: (chains, dim) → (chains,)."""

    @abstractmethod
    def gradients(self, x: Array) -> Array:
        """∇f at each of many states: (chains, dim) → (chains, dim)."""

    @abstractmethod
    def parts(self, x: Array, indices: Indices | None) -> Array:
        """Parts of the chosen components (None: all n): (chains, batch) numbers or (chains, batch, dim) gradients."""

    @abstractmethod
    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """Mean over the batch of the gradients that the parts stand for: (chains, dim)."""

    @abstractmethod
    def prior_gradient(self, x: Array) -> Array:
        """The gradient every component shares: (chains, dim) → (chains, dim)."""

    @property
    def condition_number(self) -> float:
        """κ = L/μ; infinite where f is not known to be strongly convex."""
        return self.smoothness / self.convexity if self.convexity > 0 else float("inf")

    def potential(self, x: npt.ArrayLike) -> float:
        """f(x) at one point, up to a constant."""
        return float(self.potentials(self._point(x))[0])

    def gradient(self, x: npt.ArrayLike) -> Array:
        """∇f(x) at one point."""
        gradient: Array = self.gradients(self._point(x))[0]
        return gradient

    def component_gradients(self, x: npt.ArrayLike, indices: npt.ArrayLike) -> Array:
        """∇fᵢ(x) for each index given: (len(indices), dim)."""
        state, rows = self._point(x), self._rows(indices)
        each = np.repeat(state, len(rows), axis=0)
        return self.prior_gradient(each) + self.assemble(self.parts(each, rows[:, None]), rows[:, None])

    def _point(self, x: npt.ArrayLike) -> Array:
        return np.asarray(real_array("x", x, (self.dim,)), np.float64)[None, :]

    def _rows(self, indices: npt.ArrayLike) -> Indices:
        rows = np.asarray(indices)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise requirement("indices", "a list of whole numbers", f"dtype {rows.dtype} of shape {rows.shape}")
        if len(rows) and (rows.min() < 0 or rows.max() >= self.n):
            raise requirement("indices", f"from 0 to {self.n - 1}", f"{rows.min()} to {rows.max()}")
        return rows.astype(np.int64)
