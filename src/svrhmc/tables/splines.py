"""Cubic splines as a smooth term has them: functions of one number with a penalty on their curvature.

With knots 0 = t₁ < … < tₘ = 1 on u = (x − low)/width, the cubic splines on them have k = m + 2 dimensions: B-splines
span them, and so do 1, u and the m functions whose second derivatives are the hats hⱼ, hⱼ(tᵢ) = δᵢⱼ. In these

    s″ = Σⱼ cⱼ hⱼ,        ∫ s″(u)² du = cᵀMc,        Mᵢⱼ = ∫ hᵢhⱼ        (three diagonals, and well conditioned
                                                                          however close knots lie),

so that the penalty is exact, and the constant and the line, which have none, are separate from the start. From each
function its projection on 1 and u over the fitted rows is subtracted, and then the functions are rotated so that

    B₁, …, B_q, q = k − 2:    Σᵢ Bⱼ(xᵢ) = Σᵢ xᵢBⱼ(xᵢ) = 0,   Σᵢ Bⱼ(xᵢ)B_l(xᵢ) = 0 (j ≠ l),   ∫ (Σⱼ vⱼBⱼ″)² du = ρ|v|²,

the smoothest first (Demmler & Reinsch, Numerische Mathematik 24, 1975). ρ is chosen so that Σⱼ Bⱼ(xᵢ)² is 1 on average
over the rows: with vⱼ ~ N(0, τ²) the curve lies about its line with the standard deviation τ.

Knots are at equal steps among the different values of x, so that a skewed x has them where its rows are. Beyond the
first and the last knot a spline goes on as a straight line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array

FEWEST = 4  # functions of a smooth, with constant and line: one cubic


@dataclass(frozen=True, eq=False)
class Spline:
    """The functions B₁, …, B_q, given by their values at the knots.

    low, width: u = (x − low)/width. knots: (m,), in u. values, slopes, curvatures: (m, q), of the functions at the
    knots. roughness: ρ.
    """

    low: float
    width: float
    knots: Array
    values: Array
    slopes: Array
    curvatures: Array
    roughness: float

    @staticmethod
    def fit(x: Array, k: int) -> Spline:
        """The spline with k functions, constant and line included, for rows with at least k ≥ 4 different x."""
        low, width = float(x.min()), float(np.ptp(x))
        u = (x - low) / width
        knots = np.quantile(np.unique(u), np.linspace(0, 1, k - 2))
        m, steps = len(knots), np.diff(knots)
        hats = np.eye(m)
        slopes, values = np.zeros((m, m)), np.zeros((m, m))
        for i, h in enumerate(steps):
            slopes[i + 1] = slopes[i] + h * (hats[i] + hats[i + 1]) / 2
            values[i + 1] = values[i] + h * slopes[i] + h**2 * (hats[i] / 3 + hats[i + 1] / 6)
        mass = np.zeros((m, m))
        inner = np.arange(m - 1)
        mass[inner, inner] += steps / 3
        mass[inner + 1, inner + 1] += steps / 3
        mass[inner, inner + 1] = mass[inner + 1, inner] = steps / 6
        whitening = np.linalg.inv(np.linalg.cholesky(mass)).T
        spline = Spline(low, width, knots, values @ whitening, slopes @ whitening, whitening, 1.0)._without_line(u)
        B = spline.evaluate(u)
        size, turn = np.linalg.eigh(B.T @ B)
        scale = np.sqrt(len(u) / size.sum())
        bends = spline.curvatures @ turn
        signs = np.sign(bends[np.abs(bends).argmax(axis=0), np.arange(m)])  # which an eigenvector leaves open
        return spline._combined(scale * (turn * signs)[:, ::-1], float(scale**2))._without_line(u)

    def basis(self, x: Array) -> Array:
        """(n, q): the functions at x."""
        return self.evaluate((x - self.low) / self.width)

    def evaluate(self, u: Array) -> Array:
        """(n, q): the functions at u."""
        inside = np.clip(u, 0.0, 1.0)
        i = np.clip(np.searchsorted(self.knots, inside, "right") - 1, 0, len(self.knots) - 2)
        s, h = (inside - self.knots[i])[:, None], np.diff(self.knots)[i][:, None]
        bend, next_bend = self.curvatures[i], self.curvatures[i + 1]
        out: Array = self.values[i] + s * (self.slopes[i] + s * (bend / 2 + s / h * (next_bend - bend) / 6))
        beyond = u - inside
        if beyond.any():
            out += beyond[:, None] * np.where(beyond[:, None] < 0, self.slopes[0], self.slopes[-1])
        return out

    def _without_line(self, u: Array) -> Spline:
        """The functions without their projection on 1 and u over these rows."""
        middle, B = u.mean(), self.evaluate(u)
        away = u - middle
        level, slope = B.mean(axis=0), away @ B / (away @ away)
        values = self.values - level - (self.knots[:, None] - middle) * slope
        return Spline(
            self.low, self.width, self.knots, values, self.slopes - slope, self.curvatures, self.roughness
        )  # fmt: skip

    def _combined(self, turn: Array, roughness: float) -> Spline:
        """Linear combinations of the functions, by the columns of a matrix."""
        values, slopes, curvatures = (part @ turn for part in (self.values, self.slopes, self.curvatures))
        return Spline(self.low, self.width, self.knots, values, slopes, curvatures, roughness)

    def to_numbers(self) -> list[Any]:
        """The spline as plain numbers, for a file."""
        arrays = (self.knots, self.values, self.slopes, self.curvatures)
        return [self.low, self.width, self.roughness, *(array.tolist() for array in arrays)]

    @staticmethod
    def from_numbers(stored: list[Any]) -> Spline:
        """The inverse of `to_numbers`. Anything else is a ValueError or a TypeError."""
        low, width, roughness = map(float, stored[:3])
        knots, values, slopes, curvatures = (np.array(numbers, np.float64) for numbers in stored[3:])
        m = len(knots)
        if m < FEWEST - 2 or not values.shape == slopes.shape == curvatures.shape == (m, m):
            raise ValueError("a spline of knots and values that do not fit")
        finite = all(np.isfinite(array).all() for array in (low, width, roughness, values, slopes, curvatures))
        if not finite or not width > 0 or not (np.diff(knots) > 0).all():
            raise ValueError("a spline of no numbers")
        return Spline(low, width, knots, values, slopes, curvatures, roughness)
