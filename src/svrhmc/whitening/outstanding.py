"""Directions that stand out from the others, of a symmetric matrix that is known by its products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from svrhmc.core.arrays import Array, Indices

FAR = 0.5  # |log θ| from which a direction stands out
_USED_UP = 1e-10  # of its length that a direction has left, where nothing new is in it

Products = Callable[[Array], Array]  # of T with some columns


class Krylov:
    """Orthonormal columns Q with their images TQ; grows by blocks, the first of which is random."""

    def __init__(self, size: int) -> None:
        self.basis, self.image = np.zeros((size, 0)), np.zeros((size, 0))
        self._first = np.zeros((size, 0))

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
        found = np.asarray(products(block)) if new.any() else block
        self._first = self._first if basis.size else block
        self.basis, self.image = np.hstack([basis, block]), np.hstack([self.image, found])
        return found

    def rescaled(self, ratio: Array) -> None:
        """The same directions for R⁻¹TR⁻¹ instead of T, R = diag(ratio): these are RQ, with images R⁻¹TQ."""
        self.basis, upper = np.linalg.qr(ratio[:, None] * self.basis)
        self.image = np.linalg.solve(upper.T, (self.image / ratio[:, None]).T).T
        self._first = ratio[:, None] * self._first

    def pairs(self) -> tuple[Array, Array, Array]:
        """Ritz values θ, the smallest first, their vectors v, and the residuals Tv − θv."""
        small = self.basis.T @ self.image
        values, turn = np.linalg.eigh((small + small.T) / 2)
        vectors = self.basis @ turn
        return values, vectors, self.image @ turn - vectors * values

    def shares(self, vectors: Array) -> Array:
        """How many eigenvalues each of some Ritz values stands for: size·E(vᵀb)² over the random directions b of the
        first block, by which θ has its weight in a quadrature of the spectrum. It is about 1 where θ lies alone (with
        eight of them, a mean of eight χ²₁), and more at the end of a range full of eigenvalues, of which one less makes
        no difference.
        """
        along = (vectors.T @ self._first) ** 2 / (self._first**2).sum(axis=0)
        return np.asarray(len(vectors) * along.sum(axis=1) / max(1, along.shape[1]), np.float64)

    def least_sure(self, count: int) -> Array:
        """The residuals of so many pairs that leave most, r²/|θ|: where the space should grow."""
        values, _, residuals = self.pairs()
        left = (residuals**2).sum(axis=0) / np.maximum(np.abs(values), 1e-12)
        return np.asarray(residuals[:, np.argsort(-left, kind="stable")[:count]], np.float64)


def standing_out(values: Array, rest: Array) -> tuple[Array, Indices]:
    """What each of some Ritz pairs lessens |WᵀTW − I|²_F by, W = I + v(|θ|^{−½} − 1)vᵀ, and those that stand out and
    do so by at least half of what they could: with r = |Tv − θv|, v leaves 2r²/|θ| of (|θ| − 1)². rest: r².
    """
    sizes = np.maximum(np.abs(values), 1e-12)
    most = (sizes - 1) ** 2
    gain = most - 2 * rest / sizes
    return gain, np.flatnonzero((np.abs(np.log(sizes)) > FAR) & (gain > most / 2))
