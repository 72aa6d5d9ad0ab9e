"""Rows in partitions: the same numbers as rows in memory, however they are cut."""

import numpy as np
from hypothesis import strategies as st

from svrhmc import data, targets

from .. import inputs
from ..judge import agree, ask, holds
from ..registry import case


@case(
    st.tuples(inputs.tables(), st.integers(0, 1 << 16), st.one_of(st.integers(1, 9), inputs.count)),
    "svrhmc.data.from_arrays",
    cost=0.1,
    numba=True,
)
def arrays(given):
    """Gradient and Hessian are those of the same rows in memory, or both are refused."""
    table, bits, cuts = given
    X = table.make()
    rows = X.shape[0] if hasattr(X, "shape") and len(X.shape) == 2 else 0
    y = np.array([(bits >> k) & 1 for k in range(rows)])
    parts = ask(data.from_arrays, X, y, partitions=cuts)
    tall = ask(targets.logistic, parts)
    here = ask(targets.logistic, X, y)
    x = np.full(here.dim, 0.1)
    agree("the gradient", ask(tall.gradient, x), here.gradient(x), 1e-9 * (1 + np.abs(here.gradient(x))))
    agree("the Hessian", ask(tall.hessian, x), here.hessian(x), 1e-9 * (1 + np.abs(here.hessian(x))))
    holds(tall.n == rows, f"{tall.n} rows of {rows}")


@case(
    st.tuples(
        st.sampled_from(["from_parquet", "from_csv", "from_sparse"]),
        st.one_of(inputs.words, st.sampled_from(["/nowhere", "*.parquet", "tests/no-such-folder"])),
        st.one_of(inputs.words, inputs.anything),
    ),
    "svrhmc.data.from_parquet",
    "svrhmc.data.from_csv",
    "svrhmc.data.from_sparse",
    "svrhmc.data.from_dask",
)
def places(given):
    """Places where nothing is are refused in one sentence."""
    name, place, column = given
    ask(getattr(data, name), place, column)
    ask(data.from_dask, column, "y")
