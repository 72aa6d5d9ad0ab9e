"""Quadratic components, for which every question has an exact answer.

    fᵢ(x) = ½ (x − aᵢ)ᵀ Sᵢ (x − aᵢ),      f(x) = ½ (x − x*)ᵀ S̄ (x − x*) + const,

    S̄ = (1/n) Σ Sᵢ,      x* = S̄⁻¹ (1/n) Σ Sᵢaᵢ,      π = N(x*, S̄⁻¹).

With one S for all components (the paper's synthetic problem, section 5.1) x* is the mean of the aᵢ and the
covariance is S⁻¹; the paper prints S. There ∇fᵢ(x) − ∇fᵢ(x̃) = S(x − x̃) for every i: a variance-reduced gradient
is the full gradient.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, contract, digest
from svrhmc.core.errors import nonnegative, positive, real_array, requirement, whole_number
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.density.base import FiniteSum, Moments
from svrhmc.rows.forms import QuadraticForm


def gaussian(centers: npt.ArrayLike, precision: npt.ArrayLike) -> Gaussian:
    """Components ½(x − aᵢ)ᵀSᵢ(x − aᵢ): `centers` (n, dim), `precision` (dim, dim) or one for each i, (n, dim, dim).

    >>> target = gaussian([[0.0, 0.0], [2.0, 4.0]], [[2.0, 0.0], [0.0, 0.5]])
    >>> target.closed_form.mean, target.closed_form.covariance.diagonal()
    (array([1., 2.]), array([0.5, 2. ]))
    """
    return Gaussian(centers, precision)


def synthetic(
    n: int,
    dim: int,
    seed: int = 0,
    eigenvalues: tuple[float, float] = (2 / 3, 3 / 2),
    spread: float = 0.0,
) -> Gaussian:
    """The paper's synthetic instance: aᵢ ~ N(2·1, 4I), one S with eigenvalues evenly spaced between the two given.

    S has random orthogonal eigenvectors. With `spread` > 0 each component has its own Sᵢ = (1 + spread·ωᵢ)S with ωᵢ
    = ±1 in equal numbers (n even), so that S̄ = S still holds but variance reduction is no longer trivially
    perfect.

    >>> target = synthetic(n=50, dim=10)
    >>> round(target.smoothness, 12), round(target.convexity, 12)
    (1.5, 0.666666666667)
    """
    n, dim = whole_number("n", n, 1), whole_number("dim", dim, 1)
    low, high = (positive("eigenvalues", float(value)) for value in real_array("eigenvalues", eigenvalues, (2,)))
    draws = Stream(seed, np.array([0]))
    centers = 2 + 2 * draws.normals(0, n * dim, Purpose.DATA, Purpose.DATA_FINE).reshape(n, dim)
    rotation, upper = np.linalg.qr(draws.normals(1, dim * dim, Purpose.DATA, Purpose.DATA_FINE).reshape(dim, dim))
    rotation = rotation * np.sign(np.diag(upper))  # the sign makes Q uniform over rotations
    S = (rotation * np.linspace(low, high, dim)) @ rotation.T
    S = S / 2 + S.T / 2
    if nonnegative("spread", spread) == 0:
        return Gaussian(centers, S)
    if not spread < 1 or n % 2:
        raise requirement("spread", "from 0 to 1 (excluded), with an even n", f"{spread} with n = {n}")
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)
    with np.errstate(over="ignore"):  # what overflows is refused as the target is made
        precisions = (1 + spread * signs)[:, None, None] * S
    return Gaussian(centers, precisions)


class Gaussian(FiniteSum):
    """Quadratic components; made by `gaussian` and `synthetic`.

    >>> gaussian([[0.0], [2.0]], [[4.0]]).mode()
    array([1.])
    """

    scalar_parts = False

    def __init__(self, centers: npt.ArrayLike, precision: npt.ArrayLike) -> None:
        self.centers = np.asarray(real_array("centers", centers, ("n", "dim")), np.float64)
        self.n, self.dim = self.centers.shape
        self.shared = np.ndim(precision) == 2
        self.row_size = self.dim if self.shared else self.dim**2
        shape = (self.dim, self.dim) if self.shared else (self.n, self.dim, self.dim)
        self.precision = np.asarray(real_array("precision", precision, shape), np.float64)
        if not np.allclose(self.precision, np.swapaxes(self.precision, -1, -2), rtol=1e-10, atol=1e-12):
            raise requirement("precision", "symmetric", "a matrix that is not")
        with np.errstate(over="ignore", invalid="ignore"):
            self.forces = contract("...de,nd->ne" if self.shared else "nde,nd->ne", self.precision, self.centers)
            self.mean_force: Array = self.forces.mean(axis=0)
            self.mean_precision = self.precision if self.shared else self.precision.mean(axis=0)
        if not (np.isfinite(self.forces).all() and np.isfinite(self.mean_force).all()):
            largest = f"centers up to {np.abs(self.centers).max():g}"
            raise requirement("centers and precision", "so small that their products do not overflow", largest)
        if not np.isfinite(self.mean_precision).all():
            raise requirement(
                "precision", "so small that its mean is finite", f"up to {np.abs(self.precision).max():g}"
            )
        self._spectrum = np.linalg.eigvalsh(self.mean_precision)
        if self._spectrum[0] <= 0:
            raise requirement("precision", "positive definite in the mean", f"eigenvalue {self._spectrum[0]:g}")

    def __repr__(self) -> str:
        return f"Gaussian(n={self.n}, dim={self.dim}, shared={self.shared})"

    def form(self) -> QuadraticForm:
        return QuadraticForm(self.precision, self.shared, self.forces, self.mean_precision, self.mean_force)

    def identity(self) -> dict[str, object]:
        return {**self._kind(), "centers": digest(self.centers), "precision": digest(self.precision)}

    @property
    def convex_components(self) -> bool:
        """Whether no Sᵢ has an eigenvalue below 0."""
        return bool(np.linalg.eigvalsh(self.precision).min() >= 0)

    @property
    def one_mode(self) -> str:
        """S̄ is positive definite."""
        return "it is Gaussian"

    @property
    def smoothness(self) -> float:
        """λ_max(S̄)."""
        return float(self._spectrum[-1])

    @property
    def convexity(self) -> float:
        """λ_min(S̄)."""
        return float(self._spectrum[0])

    @cached_property
    def component_smoothness(self) -> float:
        """max_i |λ(Sᵢ)|."""
        return float(np.abs(np.linalg.eigvalsh(self.precision)).max())

    @cached_property
    def closed_form(self) -> Moments:
        """N(x*, S̄⁻¹)."""
        with np.errstate(over="ignore", invalid="ignore"):
            inverse = np.linalg.inv(self.mean_precision)
            covariance, mean = inverse / 2 + inverse.T / 2, np.linalg.solve(self.mean_precision, self.mean_force)
        if not (np.isfinite(covariance).all() and np.isfinite(mean).all()):
            raise requirement(
                "precision", "such that its inverse is finite in float64", f"eigenvalue {self.convexity:g}"
            )
        return Moments(mean, covariance)

    def curvature_range(self, bound: bool) -> tuple[float, float]:
        return self.convexity, self.smoothness

    def mode(self) -> Array:
        """x*, which is also the mean."""
        return self.closed_form.mean.copy()

    def potentials(self, x: Array) -> Array:
        """½(x − x*)ᵀS̄(x − x*) plus the mean of ½(x* − aᵢ)ᵀSᵢ(x* − aᵢ)."""
        deviation = x - self.closed_form.mean
        return 0.5 * contract("cd,de,ce->c", deviation, self.mean_precision, deviation) + self._least

    def gradients(self, x: Array) -> Array:
        """S̄x − (1/n) Σ Sᵢaᵢ."""
        return contract("cd,de->ce", x, self.mean_precision) - self.mean_force

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """Sᵢ(x − aᵢ): whole gradients."""
        if indices is None:
            indices = np.broadcast_to(np.arange(self.n), (len(x), self.n))
        if self.shared:
            return contract("cd,de->ce", x, self.precision)[:, None, :] - self.forces[indices]
        return contract("cd,cbde->cbe", x, self.precision[indices]) - self.forces[indices]

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """The mean over the batch."""
        mean: Array = parts.mean(axis=1)
        return mean

    def prior_gradient(self, x: Array) -> Array:
        return np.zeros_like(x)

    def _with_quadratic(self, strength: float, centre: Array) -> Gaussian:
        """Sᵢ + λI around (Sᵢ + λI)⁻¹(Sᵢaᵢ + λc)."""
        precision = self.precision + strength * np.eye(self.dim)
        if np.abs(np.linalg.det(precision)).min() == 0:
            raise requirement("strength", "one for which no Sᵢ + λI is singular", strength)
        centers = np.linalg.solve(precision, (self.forces + strength * centre)[:, :, None])[:, :, 0]
        return Gaussian(centers, precision)

    @cached_property
    def _least(self) -> float:
        deviation = self.closed_form.mean - self.centers
        form = "nd,de,ne->" if self.shared else "nd,nde,ne->"
        return float(0.5 * contract(form, deviation, self.precision, deviation) / self.n)
