"""Whitenings at the mode of a model with a linear predictor."""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import one_of, whole
from svrhmc.targets.generalised import GeneralisedLinear
from svrhmc.targets.mode import DENSE_DIM
from svrhmc.whitening.maps import LowRankWhitening, Whitening, dense_whitening

KINDS = ("dense", "diagonal", "low rank")
_RANK = 20


def whitening(target: GeneralisedLinear, kind: str | None = None, rank: int | None = None) -> Whitening:
    """The whitening of a target at its mode; `kind` None is dense up to 2000 columns and diagonal beyond.

    >>> from svrhmc import targets
    >>> target = targets.logistic([[1.0, 0.5], [1.0, -2.0], [1.0, 1.5]], [1, 0, 1])
    >>> W = whitening(target).displace(np.eye(2)).T
    >>> (W.T @ target.hessian(target.mode()) @ W).round(12)
    array([[ 1., -0.],
           [-0.,  1.]])
    """
    if kind is None:
        kind = "dense" if target.dim <= DENSE_DIM else "diagonal"
    one_of("kind", kind, KINDS)
    if kind == "dense":
        return dense_whitening(target.mode(), target.modal_hessian)
    mode = target.mode()
    curvature = target.row_curvatures(mode)
    bend = target.prior_curvature(mode)
    scale = (target.rows.squares(curvature) + bend) ** -0.5
    if kind == "diagonal":
        return LowRankWhitening(mode, scale, np.zeros((target.dim, 0)), np.zeros(0))
    count = whole("rank", min(_RANK, target.dim - 1) if rank is None else rank, 1, target.dim - 1)
    values, vectors = _extremes(target, curvature, bend, scale, count)
    return LowRankWhitening(mode, scale, vectors, values**-0.5 - 1)


def _extremes(target: GeneralisedLinear, curvature: Array, bend: Array, scale: Array, rank: int) -> tuple[Array, Array]:
    """The `rank` eigenpairs of D^{−½}HD^{−½} farthest from 1 in |log λ|, of the `rank` largest and smallest."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    def product(z: Array) -> Array:
        return scale * target.curved_product(curvature, scale * z.ravel(), bend)

    operator: Any = LinearOperator((target.dim, target.dim), matvec=product, dtype=np.float64)
    start = np.ones(target.dim)  # fixed, so that the answer is the same every time
    if 2 * rank >= target.dim - 1:
        whole_matrix = np.array([product(row) for row in np.eye(target.dim)])
        values, vectors = np.linalg.eigh((whole_matrix + whole_matrix.T) / 2)
    else:
        pairs = [eigsh(operator, k=rank, which=which, v0=start, tol=1e-3) for which in ("LA", "SA")]
        values, vectors = (np.concatenate(both, axis=-1) for both in zip(*pairs, strict=True))
    chosen = np.argsort(-np.abs(np.log(values)))[:rank]
    basis, _ = np.linalg.qr(vectors[:, chosen])
    projected = basis.T @ np.array([product(column) for column in basis.T]).T
    values, turn = np.linalg.eigh((projected + projected.T) / 2)
    return values, np.ascontiguousarray(basis @ turn)
