"""Outstanding eigendirections of a symmetric matrix that is known only by its products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, Indices

_FAR = 0.5  # |log θ| from which a direction stands out
_LEAST = 1e-12  # the least |θ| that is distinguished from 0
_USED_UP = 1e-10  # the share of its length that is left of a direction without a new part

Products = Callable[[Array], Array]  # the products of T with columns


class Ritz(NamedTuple):
    """Ritz pairs (θ, v) with θ increasing: v = Qt for the columns t of `rotation`; squared residuals |Tv − θv|²."""

    values: Array
    rotation: Array
    squared_residuals: Array


class Krylov:
    """A Krylov space: orthonormal columns Q with their images TQ. It grows by blocks, the first of which is random."""

    def __init__(self, size: int) -> None:
        self.basis, self.image = np.zeros((size, 0)), np.zeros((size, 0))
        self._first = np.zeros((size, 0))
        self._pairs: Ritz | None = None

    def grow(self, products: Products, start: Array) -> Array:
        """Add the new part of the columns `start` to the space; returns the images of the new columns."""
        basis, lengths = self.basis, np.sqrt((start**2).sum(axis=0))
        for _ in range(2):
            start = start - basis @ (basis.T @ start)
        block, upper = np.linalg.qr(start)
        new = np.abs(np.diag(upper)) > _USED_UP * lengths
        if not new.all():
            block = block[:, new]
            block, _ = np.linalg.qr(block - basis @ (basis.T @ block))
        images = np.asarray(products(block)) if new.any() else block
        self._first = self._first if basis.size else block
        self.basis, self.image = np.hstack([basis, block]), np.hstack([self.image, images])
        self._pairs = None
        return images

    def rescale(self, ratio: Array) -> None:
        """Replace T by R⁻¹TR⁻¹, R = diag(ratio), keeping the directions: they become RQ, with images R⁻¹TQ."""
        moved = ratio[:, None] * self.basis
        back = np.linalg.inv(np.linalg.qr(moved, mode="r"))
        self.basis, self.image = moved @ back, (self.image / ratio[:, None]) @ back
        self._first, self._pairs = ratio[:, None] * self._first, None

    def pairs(self) -> Ritz:
        """The Ritz pairs of T in this space."""
        if self._pairs is None:
            small = self.basis.T @ self.image
            values, rotation = np.linalg.eigh((small + small.T) / 2)
            squares = ((self.image.T @ self.image @ rotation) * rotation).sum(axis=0)  # |Tv|² = |Tv − θv|² + θ²
            self._pairs = Ritz(values, rotation, np.maximum(squares - values**2, 0.0))
        return self._pairs

    def multiplicities(self) -> Array:
        """How many eigenvalues each Ritz value stands for: size·E(vᵀb)² over the random directions b of the first
        block, its weight in a quadrature of the spectrum. It is about 1 for an isolated θ (with eight directions a mean
        of eight χ²₁), and larger at the end of a range full of eigenvalues, where removing one makes no difference.
        """
        weights = (self.pairs().rotation.T @ (self.basis.T @ self._first)) ** 2 / (self._first**2).sum(axis=0)
        return np.asarray(len(self.basis) * weights.sum(axis=1) / max(1, weights.shape[1]), np.float64)

    def largest_residuals(self, count: int) -> Array:
        """The residuals of the `count` pairs with the largest r²/|θ|: the directions in which the space should grow."""
        values, rotation, squared_residuals = self.pairs()
        largest = np.argsort(-squared_residuals / np.maximum(np.abs(values), _LEAST), kind="stable")[:count]
        return self.image @ rotation[:, largest] - self.basis @ (rotation[:, largest] * values[largest])


def outstanding_pairs(pairs: Ritz) -> tuple[Array, Indices]:
    """By how much each pair reduces |WᵀTW − I|²_F with W = I + v(|θ|^{−½} − 1)vᵀ, and the indices of those that stand
    out and achieve at least half of what is possible: v leaves 2r²/|θ| of (|θ| − 1)².
    """
    sizes = np.maximum(np.abs(pairs.values), _LEAST)
    most = (sizes - 1) ** 2
    gain = most - 2 * pairs.squared_residuals / sizes
    return gain, np.flatnonzero((np.abs(np.log(sizes)) > _FAR) & (gain > most / 2))
