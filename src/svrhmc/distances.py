"""2-Wasserstein distances, and the floor below which a sample cannot show them.

W₂²(μ, ν) = inf E|X − Y|² over all couplings of X ~ μ, Y ~ ν.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Reals, scaling_unit
from svrhmc.core.errors import missing_package, real_array, requirement, whole_number
from svrhmc.core.randomness import Purpose, Stream


@dataclass(frozen=True)
class PlugIn:
    """W₂ between a Gaussian and the Gaussian fitted to a sample, with what an exact sample of that size would show."""

    value: float
    floor: float


def gaussian_w2(mean_a: npt.ArrayLike, cov_a: npt.ArrayLike, mean_b: npt.ArrayLike, cov_b: npt.ArrayLike) -> float:
    """Exact W₂ between N(mean_a, cov_a) and N(mean_b, cov_b).

    W₂² = |m_a − m_b|² + min_U |A − B U|_F², over orthogonal U, A and B the symmetric roots of the covariances; the
    best U is the polar factor of BA. The usual form tr(C_a + C_b − 2(C_a^{1/2}C_bC_a^{1/2})^{1/2}) is equal, but
    subtracts large traces and cannot show distances below 1e-8 of the scale; this one can.

    >>> gaussian_w2([0.0], [[1.0]], [3.0], [[25.0]])
    5.0
    """
    a, b = _moments("mean_a", mean_a, "cov_a", cov_a), _moments("mean_b", mean_b, "cov_b", cov_b)
    if len(a[0]) != len(b[0]):
        raise requirement("mean_b", f"of length {len(a[0])}, as mean_a is", f"length {len(b[0])}")
    length, unit = scaling_unit(a[0], b[0]), scaling_unit(np.sqrt(np.abs(a[1])), np.sqrt(np.abs(b[1])))
    root_a, root_b = _symmetric_root("cov_a", a[1] / unit / unit), _symmetric_root("cov_b", b[1] / unit / unit)
    left, _, right = np.linalg.svd(root_b @ root_a)
    mean_distance = length * np.linalg.norm(a[0] / length - b[0] / length)
    return float(np.hypot(mean_distance, unit * np.linalg.norm(root_a - root_b @ (left @ right))))


def plug_in_w2(draws: npt.ArrayLike, mean: npt.ArrayLike, covariance: npt.ArrayLike) -> PlugIn:
    """W₂ between N(mean, covariance) and the Gaussian with the moments of independent `draws` (N, dim).

    >>> from svrhmc.core.randomness import Stream
    >>> exact = Stream(0, np.arange(4000)).normals(0, 2)
    >>> near = plug_in_w2(exact, [0.0, 0.0], np.eye(2))
    >>> near.value < 2 * near.floor
    True
    """
    sample = np.asarray(real_array("draws", draws, ("N", "dim")), np.float64)
    if len(sample) < 2:
        raise requirement("draws", "at least 2 rows", len(sample))
    m = np.asarray(real_array("mean", mean, (sample.shape[1],)), np.float64)
    C = np.asarray(real_array("covariance", covariance, (sample.shape[1],) * 2), np.float64)
    unit = scaling_unit(sample, m, np.sqrt(np.abs(C)))
    fitted = np.atleast_2d(np.cov(sample / unit, rowvar=False))
    value = unit * gaussian_w2((sample / unit).mean(axis=0), fitted, m / unit, C / unit / unit)
    return PlugIn(value, plug_in_floor(covariance, len(sample)))


def plug_in_floor(covariance: npt.ArrayLike, size: int) -> float:
    """√E W₂² of the plug-in for `size` exact independent draws, to leading order in 1/size.

        E W₂² ≈ (1/N) [ (3/2) tr C + Σ_{i<j} λᵢλⱼ/(λᵢ + λⱼ) ]

    with λ the eigenvalues of C: |m̂ − m|² gives tr C, and the Bures distance ½ Σ_{ij} E H_ij²/(λᵢ + λⱼ), with
    E H_ij² = λᵢλⱼ(1 + δ_ij)/N for the sample covariance's error H, gives ½ tr C on the diagonal and the sum off it.
    """
    matrix = np.asarray(real_array("covariance", covariance, ("dim", "dim")), np.float64)
    if matrix.shape[0] != matrix.shape[1]:
        raise requirement("covariance", "a square matrix", f"shape {matrix.shape}")
    unit = scaling_unit(np.sqrt(np.abs(matrix)))
    spectrum = _nonnegative_eigenvalues("covariance", np.linalg.eigvalsh(matrix / unit / unit))
    sums = spectrum[:, None] + spectrum
    pairs = np.divide(spectrum[:, None] * spectrum, sums, out=np.zeros_like(sums), where=sums > 0)
    return float(unit * np.sqrt((1.5 * spectrum.sum() + np.triu(pairs, 1).sum()) / whole_number("size", size, 2)))


def empirical_w2(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Exact W₂ between two samples (rows, equal weights), by POT's network simplex.

    For small samples: cost and memory grow with the product of the sizes. In more than a few dimensions two samples
    of one law are far apart, of order size^(−1/dim); compare with what two exact samples show.

    >>> empirical_w2([[0.0], [1.0]], [[3.0], [2.0]])
    2.0
    """
    try:
        import ot
    except ModuleNotFoundError:
        raise missing_package("POT", "transport", "empirical_w2") from None
    first, second = _two_samples(a, b)
    from scipy.spatial.distance import cdist

    unit = scaling_unit(first, second)
    cost = cdist(first / unit, second / unit, "sqeuclidean")
    return float(unit * np.sqrt(max(0.0, float(ot.emd2([], [], cost, numItermax=10_000_000)))))


def sliced_w2(a: npt.ArrayLike, b: npt.ArrayLike, projections: int = 256, seed: int = 0) -> float:
    """Root mean square, over random directions, of the one-dimensional W₂ between two projected samples.

    Sorting solves each direction, so samples may be large; sizes may differ. For laws that differ by a shift Δ it
    is |Δ|/√dim.

    >>> sliced_w2([[0.0], [1.0]], [[3.0], [2.0]])
    2.0
    """
    first, second = _two_samples(a, b)
    dim = first.shape[1]
    directions = Stream(seed, np.arange(whole_number("projections", projections, 1))).normals(
        0, dim, Purpose.PROJECTION, Purpose.PROJECTION_FINE
    )
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    unit = scaling_unit(first, second)
    first, second = first / unit, second / unit
    return float(unit * np.sqrt(np.mean([_line_w2(first @ direction, second @ direction) for direction in directions])))


def _line_w2(a: Array, b: Array) -> float:
    """W₂² on the line: ∫ (F_a⁻¹ − F_b⁻¹)² over the steps of both quantile functions."""
    a, b = np.sort(a), np.sort(b)
    ends = np.union1d(np.arange(1, len(a) + 1) / len(a), np.arange(1, len(b) + 1) / len(b))
    widths = np.diff(ends, prepend=0.0)
    middle = ends - widths / 2
    at_a = a[np.minimum((middle * len(a)).astype(np.int64), len(a) - 1)]
    at_b = b[np.minimum((middle * len(b)).astype(np.int64), len(b) - 1)]
    return float(widths @ (at_a - at_b) ** 2)


def _two_samples(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Array, Array]:
    first = np.asarray(real_array("a", a, ("N", "dim")), np.float64)
    return first, np.asarray(real_array("b", b, ("M", first.shape[1])), np.float64)


def _moments(mean_name: str, mean: npt.ArrayLike, cov_name: str, cov: npt.ArrayLike) -> tuple[Array, Array]:
    center = np.asarray(real_array(mean_name, mean, ("dim",)), np.float64)
    covariance = np.asarray(real_array(cov_name, cov, (len(center), len(center))), np.float64)
    if not np.allclose(covariance, covariance.T, rtol=1e-8, atol=1e-12 * np.abs(covariance).max()):
        raise requirement(cov_name, "symmetric", "a matrix that is not")
    return center, covariance


def _symmetric_root(name: str, covariance: Array) -> Array:
    spectrum, vectors = np.linalg.eigh(covariance)
    root: Array = (vectors * np.sqrt(_nonnegative_eigenvalues(name, spectrum))) @ vectors.T
    return root


def _nonnegative_eigenvalues(name: str, spectrum: Reals) -> Array:
    """Eigenvalues in rising order; those that rounding has put below 0 are 0."""
    if spectrum[0] < -1e-10 * max(spectrum[-1], 1e-300):
        raise requirement(name, "positive semi-definite", f"eigenvalue {spectrum[0]:g}")
    return np.maximum(np.asarray(spectrum, np.float64), 0.0)
