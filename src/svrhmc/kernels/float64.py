"""The compiled loops behind `passes`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

BLOCK = 4096  # rows whose sum one thread makes
_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}


@njit(**_OPTIONS)
def predict(X: Any, x: Any, low: int, high: int, out: Any) -> None:
    """out = aᵢᵀx of some rows."""
    for i in range(low, high):
        row, total = X[i], 0.0
        for j in range(len(x)):
            total += np.float64(row[j]) * x[j]
        out[i] = total


@njit(**_OPTIONS)
def combine(X: Any, weights: Any, low: int, high: int, partial: Any) -> None:
    """Add wᵢaᵢ of some rows to the sums of their blocks."""
    for i in range(low, high):
        row, weight, total = X[i], weights[i], partial[i // BLOCK]
        for j in range(len(row)):
            total[j] += weight * row[j]


@njit(**_OPTIONS)
def logistic(X: Any, y: Any, x: Any, low: int, high: int, partial: Any) -> None:
    """Add ℓ′(aᵢᵀx, yᵢ)aᵢ of the logistic loss to the sums of the rows' blocks."""
    for i in range(low, high):
        row, total = X[i], partial[i // BLOCK]
        t = 0.0
        for j in range(len(x)):
            t += np.float64(row[j]) * x[j]
        slope = -y[i] / (1.0 + math.exp(min(y[i] * t, 700.0)))
        for j in range(len(row)):
            total[j] += slope * row[j]
