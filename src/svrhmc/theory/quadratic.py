"""A finite sum of quadratics in the eigenvectors of its mean Hessian, where every scheme acts on each coordinate alone.

A row drawn with probability Pᵢ gives the term ∇p(x) + ∇ℓᵢ(x)/(nPᵢ), where ∇fᵢ = ∇p + ∇ℓᵢ and ∇p is what all
components share (the prior's part of a linear model, else nothing). With x measured from x*, S̄ = U diag(s) Uᵀ, all in
the coordinates of U,

    ∇p(x) + ∇ℓᵢ(x)/(nPᵢ) = s∘x + Cᵢx + bᵢ,      Σ PᵢCᵢ = 0,      Σ Pᵢbᵢ = 0 :

Cᵢ = ∇²p + ∇²ℓᵢ/(nPᵢ) − S̄ and bᵢ = ∇p(x*) + ∇ℓᵢ(x*)/(nPᵢ), which for rows drawn evenly, Pᵢ = 1/n, are Sᵢ − S̄ and
∇fᵢ(x*). What couples the coordinates is the noise of the gradient alone. Its second moments need, for a pair (a, b) of
coordinates, three averages over the components:

    𝒩(R)_ab = Σ Pᵢ (CᵢRCᵢ)_ab,      𝒳(m)_ab = Σ Pᵢ ((Cᵢm)_a b_ib + b_ia (Cᵢm)_b),      ℱ_ab = Σ Pᵢ b_ia b_ib.

`pairs` lists the pairs that are followed: all a ≤ b for a target, the diagonal alone for a spectrum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import requirement
from svrhmc.density.base import FiniteSum, Moments, require_target
from svrhmc.gradients import Recipe
from svrhmc.rows.forms import QuadraticForm, RowsForm, rows_of

_TENSOR_DIM = 64  # up to which 𝒩 is one matrix over pairs of coordinates; beyond it, a pass over the components
_BLOCK = 1 << 23  # numbers of component matrices held at once
_COMMUTE = 1e-12  # largest entry off the diagonal, over the largest on it, of matrices that count as diagonal


@dataclass(frozen=True, eq=False)
class GradientNoise:
    """𝒩, 𝒳 and ℱ on pairs; R and the results have the pairs as their last axis.

    curvature: 𝒩(R). cross: 𝒳(m), given m_a and m_b of each pair and m of each coordinate. forces: ℱ.
    elementwise: whether a pair's noise depends on that pair alone. cost: operations of one use, roughly.
    """

    curvature: Callable[[Array], Array]
    cross: Callable[[Array, Array, Array], Array]
    forces: Array
    elementwise: bool
    cost: float


def elementwise_noise(N: Array, E_left: Array, E_right: Array, forces: Array) -> GradientNoise:
    """Of diagonal Cᵢ: 𝒩(R)_ab = N_ab R_ab with N_ab = Σ Pᵢ c_ia c_ib, 𝒳(m)_ab = E_ab m_a + E_ba m_b."""
    return GradientNoise(
        lambda R: N * R, lambda left, right, _: E_left * left + E_right * right, forces, True, float(forces.size)
    )


@dataclass(frozen=True, eq=False)
class Components:
    """The Cᵢ in the eigenvectors of S̄: rᵢrᵢᵀ − G (`rows`), whole matrices (drawn evenly), or (neither) all zero.

    And the bᵢ (`forces`) and the Pᵢ (`chances`; None: evenly).
    """

    forces: Array
    rows: Array | None = None
    matrices: Array | None = None
    chances: Array | None = None

    @property
    def n(self) -> int:
        """The number of components."""
        return len(self.forces)

    @property
    def dim(self) -> int:
        """The number of coordinates."""
        return int(self.forces.shape[1])

    @cached_property
    def P(self) -> Array:
        """The probability of each."""
        return np.full(self.n, 1 / self.n) if self.chances is None else self.chances

    def average(self, left: Array, right: Array, some: slice = slice(None)) -> Array:
        """Σ Pᵢ lᵢrᵢᵀ, over some of the components."""
        total: Array = (left * self.P[some, None]).T @ right
        return total

    @cached_property
    def outer_mean(self) -> Array:
        """G = Σ Pᵢ rᵢrᵢᵀ."""
        assert self.rows is not None
        return self.average(self.rows, self.rows)

    def curvature(self, R: Array) -> Array:
        """Σ Pᵢ CᵢRCᵢ for symmetric R."""
        if self.rows is not None:
            quadratic = np.einsum("nd,nd->n", self.rows @ R, self.rows)
            return self.average(self.rows * quadratic[:, None], self.rows) - self.outer_mean @ R @ self.outer_mean
        assert self.matrices is not None
        mean: Array = (self.matrices @ R @ self.matrices).mean(axis=0)
        return mean

    def times(self, m: Array) -> Array:
        """Cᵢm of every component."""
        if self.rows is not None:
            return self.rows * (self.rows @ m)[:, None] - self.outer_mean @ m
        assert self.matrices is not None
        return self.matrices @ m

    def diagonals(self) -> Array | None:
        """The diagonals (n, dim) of the Cᵢ if they have nothing else, else None."""
        if self.rows is not None:
            return self.rows**2 - self.outer_mean.diagonal() if self.dim == 1 else None
        if self.matrices is None:
            return np.zeros_like(self.forces)
        diagonals = np.einsum("nii->ni", self.matrices)
        off = self.matrices - diagonals[:, :, None] * np.eye(self.dim)
        return diagonals if np.abs(off).max() <= _COMMUTE * np.abs(self.matrices).max() else None

    def squares(self) -> Array:
        """Σ Pᵢ C_i[a, b]²."""
        if self.rows is not None:
            return self.average(self.rows**2, self.rows**2) - self.outer_mean**2
        if self.matrices is None:
            return np.zeros((self.dim, self.dim))
        squares: Array = (self.matrices**2).mean(axis=0)
        return squares

    def noise(self, a: Indices, b: Indices) -> GradientNoise:
        """𝒩, 𝒳 and ℱ on these pairs, which are all a ≤ b."""
        forces = self.average(self.forces, self.forces)[a, b]
        diagonals = self.diagonals()
        if diagonals is not None:
            N, E = self.average(diagonals, diagonals), self.average(diagonals, self.forces)
            return elementwise_noise(N[a, b], E[a, b], E[b, a], forces)
        if self.dim > _TENSOR_DIM:
            return self._noise_by_passes(a, b, forces)
        fourth, third = self._averages()
        to_pairs, X = fourth[a, b], third[a, b] + third[b, a]
        N = to_pairs[:, a, b] + np.where(a == b, 0.0, to_pairs[:, b, a])
        return GradientNoise(lambda R: R @ N.T, lambda left, right, m: m @ X.T, forces, False, 2.0 * N.size)

    def _noise_by_passes(self, a: Indices, b: Indices, forces: Array) -> GradientNoise:
        """In high dimension: each use is a pass over the components, for one R or one m."""

        def curvature(R: Array) -> Array:
            full = np.zeros((self.dim, self.dim))
            full[a, b] = full[b, a] = R
            return self.curvature(full)[a, b]

        def cross(left: Array, right: Array, m: Array) -> Array:
            half = self.average(self.times(m), self.forces)
            return (half + half.T)[a, b]

        return GradientNoise(curvature, cross, forces, False, 6.0 * self.n * self.dim**2)

    def _averages(self) -> tuple[Array, Array]:
        """Σ Pᵢ C_i[a, c] C_i[b, d] as (a, b, c, d), and Σ Pᵢ C_i[a, c] b_ib as (a, b, c); block by block."""
        d = self.dim
        fourth, third = np.zeros((d * d, d * d)), np.zeros((d * d, d))
        size = max(1, _BLOCK // (d * d))
        for some in (slice(low, low + size) for low in range(0, self.n, size)):
            if self.rows is not None:
                rows = self.rows[some]
                flat = (rows[:, :, None] * rows[:, None, :]).reshape(-1, d * d)
            else:
                assert self.matrices is not None
                flat = self.matrices[some].reshape(-1, d * d)
            fourth += self.average(flat, flat, some)
            third += self.average(flat, self.forces[some], some)
        both = fourth.reshape(d, d, d, d).transpose(0, 2, 1, 3)
        if self.rows is not None:  # Cᵢ = rᵢrᵢᵀ − G; Σ Pᵢbᵢ = 0 removes G from the other
            both = both - self.outer_mean[:, None, :, None] * self.outer_mean[None, :, None, :]
        return both, third.reshape(d, d, d).transpose(0, 2, 1)


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Spectrum s, eigenvectors U, minimiser x*, and the gradient's noise on pairs of coordinates.

    `snapshot_noise` is that of an estimated snapshot, whose rows are drawn evenly, where a step's are not.
    """

    n: int
    centre: Array
    basis: Array
    spectrum: Array
    a: Indices
    b: Indices
    noise: GradientNoise
    scalar_parts: bool = False
    snapshot_noise: GradientNoise | None = None

    @property
    def lasting_parts(self) -> bool:
        """Whether a number for every component is kept."""
        return self.scalar_parts

    @property
    def dim(self) -> int:
        """The number of coordinates."""
        return len(self.spectrum)

    @property
    def moments(self) -> Moments:
        """N(x*, S̄⁻¹)."""
        return Moments(self.centre, (self.basis / self.spectrum) @ self.basis.T)

    @staticmethod
    def of(target: FiniteSum, recipe: Recipe | None = None) -> Quadratic:
        """A quadratic target, whole: every pair of coordinates, with the noise of a recipe (None: rows evenly)."""
        centre = require_quadratic(target).mean
        weighted = recipe is not None and recipe.weighted
        spectrum, basis, components = eigen_components(target, centre, weighted)
        a, b = np.triu_indices(target.dim)
        silent = recipe is not None and recipe.full
        noise = elementwise_noise(*np.zeros((4, len(a)))) if silent else components.noise(a, b)
        estimated = weighted and recipe is not None and recipe.snapshot_rows > 0
        even = eigen_components(target, centre)[2].noise(a, b) if estimated else None
        return Quadratic(target.n, centre, basis, spectrum, a, b, noise, target.scalar_parts, even)


def require_quadratic(target: FiniteSum) -> Moments:
    """The law of a quadratic target; refuse others."""
    law = require_target(target).closed_form
    if law is None or not has_components(target):
        raise requirement("target", "quadratic (gaussian or linear) for an exact law", repr(target))
    return law


def has_components(target: FiniteSum) -> bool:
    """Whether the second derivatives of every component are known, in the target's own variables."""
    form = target.form()
    if form is None or form.kind not in _COMPONENTS or form.whitening is not None:
        return False
    return (rows := rows_of(form)) is None or not rows.loss.predictor_shape


def eigen_components(target: FiniteSum, centre: Array, weighted: bool = False) -> tuple[Array, Array, Components]:
    """Spectrum and eigenvectors of the Hessian at `centre`, and the components there (of a quadratic approximation).

    weighted: rows are drawn with the target's probabilities.
    """
    form = target.form()
    assert form is not None
    return _COMPONENTS[form.kind](target, form, centre, target.row_table[2] if weighted else None)


def _of_rows(target: FiniteSum, form: RowsForm, centre: Array, P: Array | None) -> tuple[Array, Array, Components]:
    """∇²p = Λ and ∇²ℓᵢ/(nPᵢ) = rᵢrᵢᵀ."""
    point = centre[None, :]
    curvature = form.curvatures(form.predictors(point)[0])
    spectrum, basis = np.linalg.eigh(form.rows.gram(curvature) + np.diag(form.prior_curvature(centre)))
    design = form.rows.predict(basis.T).T  # in the eigenvectors
    weights = np.ones(target.n) if P is None else 1 / (target.n * P)
    rows = design * np.sqrt(target.n * curvature * weights)[:, None]
    forces = design * (weights * target.parts(point, None)[0])[:, None] + (target.prior_gradient(point) @ basis)
    return spectrum, basis, Components(forces, rows=rows, chances=P)


def _of_quadratics(target: FiniteSum, form: QuadraticForm, centre: Array, _: None) -> tuple[Array, Array, Components]:
    """∇p = 0: the Sᵢ themselves, which are no rows to draw by importance."""
    spectrum, basis = np.linalg.eigh(form.mean_precision)
    forces = target.component_gradients(centre, np.arange(target.n)) @ basis
    if form.shared:
        return spectrum, basis, Components(forces)
    return spectrum, basis, Components(forces, matrices=basis.T @ (form.precision - form.mean_precision) @ basis)


_COMPONENTS: dict[str, Callable[..., tuple[Array, Array, Components]]] = {
    "rows": _of_rows,
    "quadratic": _of_quadratics,
}
