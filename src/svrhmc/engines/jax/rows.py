"""Rows of a matrix, dense or sparse, as one predictor sees them or several do (`targets.rows`, `targets.blocks`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Arrays = dict[str, Any]

_GROUP = 2048  # rows whose sum is made by itself, so that many are made at once
EXACT = jax.lax.Precision.HIGHEST


@dataclass(frozen=True)
class Seen:
    """aᵢᵀx of one predictor: a number; or of `several` = (k, q), k blocks of coefficients and q parameters that all
    rows share: m = k + q numbers, the last axis.

    width: the columns of the matrix. Its rows come as arrays, "X", or "columns" and "values" where it is sparse: all
    that there are, with one axis of rows; or those of batches, with two, (chains, batch). dtype: of its numbers.
    """

    width: int
    sparse: bool
    dtype: Any
    several: tuple[int, int] | None = None

    @property
    def tail(self) -> tuple[int, ...]:
        """Of what a row has: (), or (m,)."""
        return () if self.several is None else (sum(self.several),)

    def predict_at(self, batch: Arrays, at: Any) -> Any:
        """aᵢᵀx of the rows of batches: (chains, dim) → (chains, batch, …)."""
        return self._stacked(at, batch["y"].shape[1], lambda part: self._predict_at(batch, part))

    def predict(self, rows: Arrays, at: Any) -> Any:
        """Of all rows: (chains, n, …)."""
        return self._stacked(at, len(rows["y"]), lambda part: self._predict(rows, part))

    def combine_at(self, batch: Arrays, weights: Any) -> Any:
        """Σ_b w_b a_{i_b}: (chains, batch, …) → (chains, dim)."""
        return self._joined(weights, lambda part: self._combine_at(batch, part))

    def combine(self, rows: Arrays, weights: Any) -> Any:
        """Σᵢ wᵢaᵢ over all rows."""
        return self._joined(weights, lambda part: self._combine(rows, part))

    def shifted(self, t: Any, offset: Any) -> Any:
        """Offsets belong to the first predictor."""
        return t + offset if self.several is None else t.at[..., 0].add(offset)

    def weighed(self, each: Any, weights: Any) -> Any:
        """Slopes times the weights of their rows."""
        return each * weights if self.several is None else each * weights[..., None]

    def turned(self, curvatures: Any, u: Any) -> Any:
        """Cᵢuᵢ."""
        return curvatures * u if self.several is None else (curvatures * u[..., None, :]).sum(axis=-1)

    def _stacked(self, at: Any, count: int, predict: Callable[[Any], Any]) -> Any:
        if self.several is None:
            return predict(at)
        blocks, shared = self.several
        edge = blocks * self.width
        found = jax.vmap(predict, in_axes=1, out_axes=-1)(at[:, :edge].reshape(len(at), blocks, self.width))
        last = jnp.broadcast_to(at[:, None, edge:], (len(at), count, shared))
        return jnp.concatenate([found, last], axis=-1)

    def _joined(self, weights: Any, combine: Callable[[Any], Any]) -> Any:
        if self.several is None:
            return combine(weights)
        blocks = self.several[0]
        found = jax.vmap(combine, in_axes=-1, out_axes=1)(weights[..., :blocks])
        return jnp.concatenate([found.reshape(len(found), -1), weights[..., blocks:].sum(axis=1)], axis=-1)

    def _predict_at(self, batch: Arrays, at: Any) -> Any:
        if self.sparse:
            seen = jax.vmap(lambda state, where: state[where])(at, batch["columns"])
            return (batch["values"].astype(jnp.float64) * seen).sum(axis=-1)
        X = batch["X"]
        return (X * at.astype(X.dtype)[:, None, :]).sum(axis=-1).astype(jnp.float64)

    def _predict(self, rows: Arrays, at: Any) -> Any:
        if self.sparse:
            return (rows["values"].astype(jnp.float64)[None] * at[:, rows["columns"]]).sum(axis=-1)
        X = rows["X"]
        return jnp.einsum("nd,cd->cn", X, at.astype(X.dtype), precision=EXACT).astype(jnp.float64)

    def _combine_at(self, batch: Arrays, weights: Any) -> Any:
        if self.sparse:
            values = batch["values"].astype(jnp.float64) * weights[..., None]
            add = jax.vmap(lambda where, what: jnp.zeros(self.width).at[where.ravel()].add(what.ravel()))
            return add(batch["columns"], values)
        X = batch["X"]
        return (weights.astype(X.dtype)[:, :, None] * X).sum(axis=1).astype(jnp.float64)

    def _combine(self, rows: Arrays, weights: Any) -> Any:
        if self.sparse:
            where, values = rows["columns"].ravel(), rows["values"].astype(jnp.float64)
            add = jax.vmap(lambda w: jnp.zeros(self.width).at[where].add((values * w[:, None]).ravel()))
            return add(weights)
        X = rows["X"]
        whole, weights = len(X) // _GROUP * _GROUP, weights.astype(X.dtype)
        groups = weights[:, :whole].reshape(len(weights), -1, _GROUP), X[:whole].reshape(-1, _GROUP, self.width)
        total = jnp.einsum("cgm,gmd->gcd", *groups, precision=EXACT).sum(axis=0, dtype=jnp.float64)
        return total + jnp.einsum("cn,nd->cd", weights[:, whole:], X[whole:], precision=EXACT)


def stored(rows: Any, several: tuple[int, int] | None) -> tuple[Seen, Arrays]:
    """How rows are seen, and their arrays."""
    if rows.storage == "dense":
        return Seen(rows.dim, False, rows.X.dtype, several), {"X": rows.X}
    columns, values = padded(rows.X)
    return Seen(rows.dim, True, values.dtype, several), {"columns": columns, "values": values}


def padded(matrix: Any) -> tuple[Any, Any]:
    """The columns and values of sparse rows, (n, most entries of a row); what is missing is 0 in column 0."""
    sizes = np.diff(matrix.indptr)
    shape = (len(sizes), max(1, int(sizes.max(initial=0))))
    columns, values = np.zeros(shape, np.int32), np.zeros(shape, matrix.data.dtype)
    there = np.arange(shape[1]) < sizes[:, None]
    columns[there], values[there] = matrix.indices, matrix.data
    return columns, values
