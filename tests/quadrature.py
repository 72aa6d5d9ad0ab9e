"""Posteriors of up to three parameters by quadrature: from SciPy's laws, or from a target's own density.

−log π on a grid of points along the axes, the trapezoid rule for moments (which converges like e^{−1/h²}), and the
marginal law of each coordinate for quantiles. `Fault` makes a law wrong on purpose. Whatever takes `Data` looks at no
loss of the library.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.integrate import trapezoid
from scipy.interpolate import CubicSpline
from scipy.special import expit, log_ndtr

FREEDOM, NOISE_VARIANCE = 4.0, 0.5
SHARED_SD = {"gaussian": 5.0, "student-t": 5.0, "negative-binomial": 2.0, "gamma": 2.0}  # of log σ, log s; log φ, log α


@dataclass(frozen=True)
class Fault:
    """slope: by which the rows' part is multiplied; prior: the same for the prior's; constants: how many rows lack
    the part of their density that depends on the shared parameter alone.
    """

    slope: float = 1.0
    prior: float = 1.0
    constants: float = 0.0


NONE = Fault()


@dataclass(frozen=True, eq=False)
class Data:
    """Rows, labels, offset, weights (trials for the binomial), and the prior precision of the coefficients."""

    family: str
    X: np.ndarray
    y: np.ndarray
    offset: np.ndarray
    weights: np.ndarray
    trials: np.ndarray | None = None
    precision: float = 1.0

    @property
    def dim(self) -> int:
        columns = self.X.shape[1]
        return 2 * columns if self.family == "categorical" else columns + (self.family in SHARED_SD)


def log_density(data: Data, x: np.ndarray) -> np.ndarray:
    """log p(y | x) of every row at every point: (points, rows)."""
    columns, y = data.X.shape[1], data.y
    t = data.offset + x[:, :columns] @ data.X.T
    if data.family == "categorical":
        other = x[:, columns:] @ data.X.T
        norm = np.logaddexp(0.0, np.logaddexp(t, other))
        return np.select([y == 0, y == 1], [0 * t, t], other) - norm
    if data.family == "bernoulli":
        return stats.bernoulli.logpmf(y, expit(t))
    if data.family == "probit":
        return log_ndtr((2 * y - 1) * t)
    if data.family == "binomial":
        return stats.binom.logpmf(y, data.trials, expit(t))
    if data.family == "poisson":
        return stats.poisson.logpmf(y, np.exp(t))
    if data.family == "gaussian, known noise":
        return stats.norm.logpdf(y, t, NOISE_VARIANCE**0.5)
    shared = np.exp(x[:, columns:])
    if data.family == "gaussian":
        return stats.norm.logpdf(y, t, shared)
    if data.family == "student-t":
        return stats.t.logpdf(y, FREEDOM, t, shared)
    if data.family == "negative-binomial":
        return stats.nbinom.logpmf(y, shared, shared / (shared + np.exp(t)))
    assert data.family == "gamma"
    return stats.gamma.logpdf(y, shared, scale=np.exp(t) / shared)


def shared_constant(data: Data, x: np.ndarray) -> np.ndarray:
    """The part of one row's −log density that depends on the shared parameter alone; of counts a factor φ, because
    without 1/Γ(φ) there is no law.
    """
    from scipy.special import gammaln

    theta = x[:, -1]
    if data.family in ("gaussian", "student-t", "negative-binomial"):
        return theta
    assert data.family == "gamma"
    alpha = np.exp(theta)
    return gammaln(alpha) - alpha * theta


def potential(data: Data, x: np.ndarray, fault: Fault = NONE) -> np.ndarray:
    """−log π at many points, up to a constant."""
    columns = x.shape[1] - (data.family in SHARED_SD)
    f = -fault.slope * log_density(data, x) @ data.weights
    f += fault.prior * data.precision * (x[:, :columns] ** 2).sum(axis=1) / 2
    if data.family in SHARED_SD:
        f += fault.prior * (x[:, -1] / SHARED_SD[data.family]) ** 2 / 2
    return f - fault.constants * shared_constant(data, x) if fault.constants else f


@dataclass(frozen=True, eq=False)
class Law:
    """Axes, normalised weights on their grid, means and sds, and quantiles of every coordinate."""

    mean: np.ndarray
    sd: np.ndarray
    third: np.ndarray
    products: np.ndarray
    quantiles: np.ndarray


LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def law(data: Data, centre: np.ndarray, scale: np.ndarray, fault: Fault = NONE) -> Law:
    """About a centre, with `scale` the width of a unit on each axis; as far out as there is mass."""
    for half in (9.0, 13.0, 18.0, 25.0):
        axes, points, weight = _grid(data, centre, scale, fault, half)
        ends = [np.take(weight, (0, -1), axis=k).sum() for k in range(len(axes))]
        if max(ends) < 1e-8:
            return _summary(axes, points, weight)
    raise ValueError(f"the posterior of {data.family} has mass beyond {half} units")


def _grid(
    data: Data, centre: np.ndarray, scale: np.ndarray, fault: Fault, half: float
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Axes, all points, and their weights, whose sum is 1."""
    dim = len(centre)
    count = 1 + 2 * round(half * {1: 100, 2: 10, 3: 2.8}[dim])
    axes = [c + s * np.linspace(-half, half, count) for c, s in zip(centre, scale, strict=True)]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    f = np.concatenate([potential(data, part, fault) for part in np.array_split(points, 1 + len(points) // 20_000)])
    weight = np.exp(f.min() - f)
    return axes, points, (weight / weight.sum()).reshape((count,) * dim)


def _summary(axes: list[np.ndarray], points: np.ndarray, weight: np.ndarray) -> Law:
    dim = len(axes)
    mean, sd, third, quantiles = np.empty(dim), np.empty(dim), np.empty(dim), np.empty((dim, len(LEVELS)))
    for j, axis in enumerate(axes):
        marginal = weight.sum(axis=tuple(k for k in range(dim) if k != j))
        mean[j] = marginal @ axis
        sd[j], third[j] = np.sqrt(marginal @ (axis - mean[j]) ** 2), marginal @ (axis - mean[j]) ** 3
        below = CubicSpline(axis, marginal).antiderivative()
        fine = np.linspace(axis[0], axis[-1], 40_001)
        quantiles[j] = np.interp(LEVELS, below(fine) / below(axis[-1]), fine)
    away = points - mean
    pairs = (
        np.stack([away[:, a] * away[:, b] for a in range(dim) for b in range(a)], axis=1) if dim > 1 else away[:, :0]
    )
    return Law(mean, sd, third, weight.ravel() @ pairs, quantiles)


def worst_z(draws: np.ndarray, exact: Law) -> float:
    """Largest |z| of means, squares, cubes, products and shares below quantiles; chains (first axis) are independent,
    so that their own spread is the error of their mean, however slowly each of them mixes.
    """
    away = draws - exact.mean
    dim = draws.shape[-1]
    found = [away, away**2 - exact.sd**2, away**3 - exact.third]
    if dim > 1:
        pairs = np.stack([away[..., a] * away[..., b] for a in range(dim) for b in range(a)], axis=-1)
        found.append(pairs - exact.products)
    found += [(draws < exact.quantiles[:, k]) - level for k, level in enumerate(LEVELS)]
    by_chain = np.concatenate([each.mean(axis=1) for each in found], axis=1)
    return float(np.abs(by_chain.mean(axis=0) / (by_chain.std(axis=0, ddof=1) / np.sqrt(len(draws)))).max())


def around_the_mode(target, reach, count):
    """Points of a target's own density, up to `reach` standard deviations of Laplace's approximation from its mode, and
    their probabilities: weights of the trapezoid rule.
    """
    law = target.laplace()
    spread = np.sqrt(np.diag(law.covariance))
    axes = [np.linspace(m - reach * s, m + reach * s, count) for m, s in zip(law.mean, spread, strict=True)]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    f = target.potentials(points)
    weight = np.exp(f.min() - f)
    return points, weight / weight.sum()


def line_moments(points, potentials):
    """Mean and sd of a law on a line with these −log densities, up to a constant, at points in ascending order."""
    density = np.exp(potentials.min() - potentials)
    total = trapezoid(density, points)
    mean = trapezoid(density * points, points) / total
    return float(mean), float(np.sqrt(trapezoid(density * (points - mean) ** 2, points) / total))


def moments_of_one_coordinate(target, points):
    """Mean and sd of a target of one coordinate, by its own density at points in ascending order."""
    some_at_a_time = np.array_split(points, 1 + len(points) // 500)
    return line_moments(points, np.concatenate([target.potentials(some[:, None]) for some in some_at_a_time]))


def monomials(away):
    """All products of one, two and three coordinates."""
    chosen = [c for k in (1, 2, 3) for c in itertools.combinations_with_replacement(range(away.shape[-1]), k)]
    return np.stack([np.prod(away[..., list(c)], axis=-1) for c in chosen], axis=-1)
