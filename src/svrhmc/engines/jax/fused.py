"""The gradient of a dense model over all rows with one read of X: a kernel for GPUs, through Pallas.

XLA reads X twice, for Xθ and for Xᵀs. Here a program takes some rows into registers, finds their predictors and slopes
and adds up slope times row; the sums of all programs, one row each, are then added in float64.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from svrhmc.engines.jax import kernels
from svrhmc.engines.jax.kernels import triton
from svrhmc.engines.jax.losses import formulas, slope_of

_COLUMNS = tuple(1 << k for k in range(4, 10))


def serves(X: Any, record: Any, chains: int) -> bool:
    """Whether there is a kernel for such rows, and it is worth it: for one state. (Many share a read by XLA too.)"""
    plain = formulas(record).elementary and not record._fields
    return kernels.on_gpu() and chains == 1 and X.dtype == jnp.float32 and X.shape[1] in _COLUMNS and plain


def gradient(X: Any, y: Any, theta: Any, record: Any, tile: int = 64, warps: int = 8, interpret: bool = False) -> Any:
    """Σᵢ ℓ′(aᵢᵀθ, yᵢ)aᵢ of one state, for a number of columns that is a power of 2; rows beyond the last whole tile are
    added by XLA.
    """
    (n, dim), slope, loss = X.shape, slope_of(record), record()
    count = n // tile

    def kernel(rows_ref: Any, labels_ref: Any, theta_ref: Any, out_ref: Any) -> None:
        rows, at = rows_ref[...], theta_ref[...]
        t = jnp.sum(rows * at[None, :], axis=1)
        s = slope(loss, t, labels_ref[...])
        out_ref[...] = jnp.sum(rows * s[:, None], axis=0)[None, :]

    parameters: dict[str, Any] = {}
    if not interpret:
        parameters["compiler_params"] = triton.CompilerParams(num_warps=warps, num_stages=1)
    sums = pl.pallas_call(
        kernel,
        grid=(count,),
        in_specs=[
            pl.BlockSpec((tile, dim), lambda i: (i, 0)),
            pl.BlockSpec((tile,), lambda i: (i,)),
            pl.BlockSpec((dim,), lambda i: (0,)),
        ],
        out_specs=pl.BlockSpec((1, dim), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((count, dim), X.dtype),
        interpret=interpret,
        **parameters,
    )(X[: count * tile], y[: count * tile], theta)
    rest = X[count * tile :]
    last = slope(loss, jnp.matmul(rest, theta, precision="highest"), y[count * tile :])
    total = sums.sum(axis=0, dtype=jax.dtypes.canonicalize_dtype(jnp.float64))
    return total + jnp.matmul(last, rest, precision="highest")
