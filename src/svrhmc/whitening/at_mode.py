"""Whitenings at the mode of a target, and the target in the variables of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import checking_budget
from svrhmc.core.errors import one_of, requirement, whole_number
from svrhmc.core.lanczos import extreme_pairs
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.storage import Record
from svrhmc.density.base import FiniteSum, require_target
from svrhmc.density.elimination import MOST_CORE, eliminate
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.density.mode import DENSE_DIM
from svrhmc.models.model import Model
from svrhmc.rows.csr import MatrixLike
from svrhmc.rows.forms import functions_of, rows_of
from svrhmc.whitening.curvature import curvature_at_mode
from svrhmc.whitening.krylov import Krylov, outstanding_pairs
from svrhmc.whitening.maps import (
    DenseWhitening,
    LowRankWhitening,
    Map,
    Whitening,
    dense_whitening,
    require_map,
    require_whitening,
)
from svrhmc.whitening.partitions import WhitenedPartitions
from svrhmc.whitening.products import whiten_by_products
from svrhmc.whitening.sparse import SparseWhitening
from svrhmc.whitening.targets import Whitened, WhitenedRows

KINDS = ("dense", "diagonal", "low rank", "sparse")
_RANK = 20
_MOST_PAIRS = 3e8  # products of entries of a row, over all rows, that a sparse Hessian is summed from
_BLOCK, _ROUNDS = 8, 8  # of the Krylov space in which directions that stand out are looked for


def whitened(target: FiniteSum, how: Map | str | None = None) -> FiniteSum:
    """The target in whitened variables. Any sampler runs on it, and its traces are in your own coordinates.

    how: a `Whitening`, or the kind of one to make at the mode (None: dense up to 2000 columns, diagonal beyond); or any
        `Map` x = T(z), which need not be linear: then full gradients alone are known, as `SplitHMC` needs them.

    >>> from svrhmc import Sampler, dynamics, gradients, targets
    >>> target = targets.logistic([[1.0, 0.5], [1.0, -2.0], [1.0, 1.5]], [1, 0, 1])
    >>> sampler = Sampler(dynamics.BAOAB(1.0, 1.0, 1.0), gradients.Full())
    >>> sampler.run(whitened(target), steps=2000, thin=10).draws.shape
    (4, 200, 2)
    """
    form = rows_of(require_target(target).form())
    unwhitened = form is not None and form.whitening is None
    if how is None or isinstance(how, str):
        if not (unwhitened or functions_of(target.form()) is not None):
            raise requirement("how", f"a Whitening for {target!r}", repr(how), "its curvature is not known")
        how = whitening(target, how)  # type: ignore[arg-type]
    how = require_map(how, target.dim)
    if form is None or not (unwhitened and form.terms is None and form.rows.single and isinstance(how, Whitening)):
        return Whitened(target, how)
    kind: Any = WhitenedRows if form.rows.in_memory else WhitenedPartitions
    space: FiniteSum = kind(target, how)
    return space


def whitening(target: GeneralisedLinear | Model, kind: str | None = None, rank: int | None = None) -> Whitening:
    """The whitening of a target at its mode.

    kind: "dense", "diagonal", "low rank" or "sparse". None means dense up to 2000 columns. Beyond that, sparse rows get
        a sparse factor of the Hessian if it is affordable, and otherwise a diagonal whitening with a correction for the
        directions that stand out; dense rows get a diagonal one. A model of functions of your own gets a low-rank one,
        from products of the Hessian with some hundred directions.
    rank: the number of directions of a low-rank whitening; for a model of functions the most of them.

    >>> from svrhmc import targets
    >>> target = targets.logistic([[1.0, 0.5], [1.0, -2.0], [1.0, 1.5]], [1, 0, 1])
    >>> W = whitening(target).displace(np.eye(2)).T
    >>> (W.T @ target.hessian(target.mode()) @ W).round(12)
    array([[ 1., -0.],
           [-0.,  1.]])
    """
    if kind is None and target.dim <= DENSE_DIM:
        kind = "dense"
    if kind is not None:
        one_of("kind", kind, KINDS)
    if isinstance(target, Model):
        return _whiten_functions(target, kind, rank)
    if kind == "dense":
        return dense_whitening(target.mode(), target.modal_hessian)
    if target.at_hand < target.n:
        why = f"the others are made of the curvatures of all rows at once; up to {DENSE_DIM} columns can be dense"
        raise requirement("whitening", "'dense' for rows in partitions", repr(kind), why)
    mode = target.mode()
    curvature = target.row_curvatures(mode)
    bend = target.prior_curvature(mode)
    if kind in (None, "sparse"):
        by_factor = _sparse(target, mode, curvature, bend, kind is not None)
        if by_factor is not None:
            return by_factor
        kind = "diagonal"
    scale = (target.rows.gram_diagonal(curvature) + bend) ** -0.5
    if kind == "diagonal":
        return LowRankWhitening(mode, scale, np.zeros((target.dim, 0)), np.zeros(0))
    count = whole_number("rank", min(_RANK, target.dim - 1) if rank is None else rank, 1, target.dim - 1)
    values, vectors = _extremes(target, curvature, bend, scale, count)
    return LowRankWhitening(mode, scale, vectors, values**-0.5 - 1)


def whitening_of(kind: str, arrays: dict[str, Any], said: dict[str, Any] | None = None) -> Whitening:
    """The map that `arrays`, `kind` and what else is said describe."""
    classes: tuple[type[Whitening], ...] = DenseWhitening, LowRankWhitening, SparseWhitening
    kinds: dict[str, Callable[..., Whitening]] = {one.kind: one for one in classes}
    return kinds[one_of("kind", kind, tuple(kinds))](**arrays, **(said or {}))


def read_whitening(record: Record, dim: int, beside: tuple[str, ...] = ()) -> Whitening:
    """The map of `dim` coordinates that a record holds, with arrays of other names beside; anything else is a
    `StorageError`.
    """
    arrays = {name: array for name, array in record.arrays.items() if name not in beside}
    kind = record.value("kind", one_of, ("dense", "low rank", "sparse"))
    return record.value("map", lambda _, said: require_whitening(whitening_of(kind, arrays, said), dim))


def _whiten_functions(target: Model, kind: str | None, rank: int | None) -> Whitening:
    """From the Hessian at the mode, or what f itself tells where that tells nothing; beyond, from its products."""
    if kind == "sparse":
        why = "the functions of a model do not say which entries of its Hessian are 0"
        raise requirement("kind", "'dense', 'low rank' or 'diagonal' for this target", repr(kind), why)
    if kind != "dense":
        most = 0 if kind == "diagonal" else whole_number("rank", target.dim if rank is None else rank, 1, target.dim)
        return whiten_by_products(target, most)
    mode = target.mode()
    return dense_whitening(mode, curvature_at_mode(target, mode, target.modal_hessian))


def _sparse(target: GeneralisedLinear, mode: Array, curvature: Array, bend: Array, required: bool) -> Whitening | None:
    """By a sparse factor; unless that was required for, by a diagonal and some directions where there is none; None
    where rows are dense.
    """
    H = target.rows.sparse_gram(curvature, bend, _MOST_PAIRS, MOST_CORE)
    why = "the rows are not sparse" if H is None else eliminate(H)
    if not isinstance(why, str):
        return SparseWhitening(mode, *why.arrays())
    if required:
        raise requirement("kind", "another one for this target", "'sparse'", why)
    return None if H is None else _outstanding(mode, H, why)


def _outstanding(mode: Array, H: MatrixLike, why: str) -> LowRankWhitening:
    """W = D^{−½}(I + V diag(θ^{−½} − 1) Vᵀ) with the directions of T = D^{−½}HD^{−½} that stand out from the others.

    Categories that are crossed with each other, or with an intercept, have a few: their sums. Ritz pairs (θ, v) of a
    Krylov space are taken where they lessen |WᵀHW − I|²_F.
    """
    scale = H.diagonal() ** -0.5
    size = len(scale)
    T = H.copy()
    T.data *= scale[T.indices] * np.repeat(scale, np.diff(T.indptr))
    left = float((T.data**2).sum()) - size
    start = Stream(0, np.arange(min(_BLOCK, size))).normals(0, size, Purpose.DATA, Purpose.DATA_FINE).T
    space = Krylov(size)
    for _ in checking_budget(range(_ROUNDS)):
        start = space.grow(lambda block: T @ block, start)
    pairs = space.pairs()
    gain, worth = outstanding_pairs(pairs)
    chosen = worth[np.argsort(-gain[worth], kind="stable")][:_RANK]
    left = max(0.0, left - float(gain[chosen].sum()))
    directions = np.ascontiguousarray((space.basis @ pairs.rotation)[:, chosen])
    return LowRankWhitening(mode, scale, directions, pairs.values[chosen] ** -0.5 - 1, left, why)


def _extremes(target: GeneralisedLinear, curvature: Array, bend: Array, scale: Array, rank: int) -> tuple[Array, Array]:
    """The `rank` eigenpairs of D^{−½}HD^{−½} farthest from 1 in |log λ|, of those found among the `rank` largest and
    smallest.
    """

    def product(z: Array) -> Array:
        return scale * target.curved_product(curvature, scale * z, bend)

    if 2 * rank >= target.dim - 1:
        whole_matrix = np.array([product(row) for row in np.eye(target.dim)])
        values, vectors = np.linalg.eigh((whole_matrix + whole_matrix.T) / 2)
    else:
        pairs = [extreme_pairs(product, target.dim, rank, which, 1e-3) for which in ("LA", "SA")]
        values, vectors = (np.concatenate(both, axis=-1) for both in zip(*pairs, strict=True))
    chosen = np.argsort(-np.abs(np.log(values)))[:rank]
    basis, _ = np.linalg.qr(vectors[:, chosen])
    projected = basis.T @ np.array([product(column) for column in basis.T]).reshape(-1, target.dim).T
    values, rotation = np.linalg.eigh((projected + projected.T) / 2)
    return values, np.ascontiguousarray(basis @ rotation)
