"""Passes over many dense rows with products and sums in float64, whatever the rows are stored in."""

from __future__ import annotations

import numpy as np
from numba import njit

from svrhmc.kernels.layout import BLOCK
from svrhmc.kernels.losses import slope

_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}


@njit(**_OPTIONS)
def predict(X, x, low, high, out):
    """out = aᵢᵀx of some rows."""
    for i in range(low, high):
        row, total = X[i], 0.0
        for j in range(len(x)):
            total += np.float64(row[j]) * x[j]
        out[i] = total


@njit(**_OPTIONS)
def combine(X, weights, low, high, partial):
    """Add wᵢaᵢ of some rows to the sums of their blocks."""
    for i in range(low, high):
        row, weight, total = X[i], weights[i], partial[i // BLOCK]
        for j in range(len(row)):
            total[j] += weight * row[j]


@njit(**_OPTIONS)
def gradient(loss, X, y, x, low, high, partial):
    """Add ℓ′(aᵢᵀx, yᵢ)aᵢ to the sums of the rows' blocks, each row read once."""
    for i in range(low, high):
        row, total = X[i], partial[i // BLOCK]
        t = 0.0
        for j in range(len(x)):
            t += np.float64(row[j]) * x[j]
        weight = slope(loss, t, y[i])
        for j in range(len(row)):
            total[j] += weight * row[j]
