"""Directions that stand out from the others, of a symmetric matrix that is known by its products."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, Indices

_FAR = 0.5  # |log θ| from which a direction stands out
_LEAST = 1e-12  # |θ| that is told from 0
_USED_UP = 1e-10  # of its length that a direction has left, where nothing new is in it

Products = Callable[[Array], Array]  # of T with some columns


class Ritz(NamedTuple):
    """Pairs (θ, v), the smallest θ first: v = Qt for the columns t of `turn`, and rest = |Tv − θv|²."""

    values: Array
    turn: Array
    rest: Array


class Krylov:
    """Orthonormal columns Q with their images TQ; grows by blocks, the first of which is random."""

    def __init__(self, size: int) -> None:
        self.basis, self.image = np.zeros((size, 0)), np.zeros((size, 0))
        self._first = np.zeros((size, 0))
        self._pairs: Ritz | None = None

    def grow(self, products: Products, start: Array) -> Array:
        """Take in what is new in some columns; gives the images of that."""
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

    def rescaled(self, ratio: Array) -> None:
        """The same directions for R⁻¹TR⁻¹ instead of T, R = diag(ratio): these are RQ, with images R⁻¹TQ."""
        moved = ratio[:, None] * self.basis
        back = np.linalg.inv(np.linalg.qr(moved, mode="r"))
        self.basis, self.image = moved @ back, (self.image / ratio[:, None]) @ back
        self._first, self._pairs = ratio[:, None] * self._first, None

    def pairs(self) -> Ritz:
        """Those of T in this space."""
        if self._pairs is None:
            small = self.basis.T @ self.image
            values, turn = np.linalg.eigh((small + small.T) / 2)
            squares = ((self.image.T @ self.image @ turn) * turn).sum(axis=0)  # |Tv|² = |Tv − θv|² + θ²
            self._pairs = Ritz(values, turn, np.maximum(squares - values**2, 0.0))
        return self._pairs

    def shares(self) -> Array:
        """How many eigenvalues each Ritz value stands for: size·E(vᵀb)² over the random directions b of the
        first block, by which θ has its weight in a quadrature of the spectrum. It is about 1 where θ lies alone (with
        eight of them, a mean of eight χ²₁), and more at the end of a range full of eigenvalues, of which one less makes
        no difference.
        """
        along = (self.pairs().turn.T @ (self.basis.T @ self._first)) ** 2 / (self._first**2).sum(axis=0)
        return np.asarray(len(self.basis) * along.sum(axis=1) / max(1, along.shape[1]), np.float64)

    def least_sure(self, count: int) -> Array:
        """The residuals of so many pairs that leave most, r²/|θ|: where the space should grow."""
        values, turn, rest = self.pairs()
        these = np.argsort(-rest / np.maximum(np.abs(values), _LEAST), kind="stable")[:count]
        return self.image @ turn[:, these] - self.basis @ (turn[:, these] * values[these])


def standing_out(pairs: Ritz) -> tuple[Array, Indices]:
    """What each pair lessens |WᵀTW − I|²_F by, W = I + v(|θ|^{−½} − 1)vᵀ, and those that stand out and do so by at
    least half of what they could: v leaves 2r²/|θ| of (|θ| − 1)².
    """
    sizes = np.maximum(np.abs(pairs.values), _LEAST)
    most = (sizes - 1) ** 2
    gain = most - 2 * pairs.rest / sizes
    return gain, np.flatnonzero((np.abs(np.log(sizes)) > _FAR) & (gain > most / 2))
