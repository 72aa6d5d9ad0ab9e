"""Models of JAX functions: regressions whose gradient and mode are known, and functions that are none."""

import numpy as np
from hypothesis import strategies as st

from svrhmc import targets

from .. import inputs
from ..judge import agree, ask, holds
from ..registry import case
from .targets import is_plain

KINDS = ("right",) * 6 + ("vector", "text", "none", "nan")


@case(
    st.tuples(
        inputs.tables(most_rows=4, most_columns=2),
        st.sampled_from(KINDS),
        inputs.often(st.just("float64"), st.just("float32"), st.sampled_from([None, "x", 1]), times=4),
        inputs.often(st.just(0.0), inputs.anything, times=4),
        inputs.numbers(2, inputs.mostly_plain),
    ),
    "svrhmc.targets.model",
    "svrhmc.targets.Model",
    cost=0.5,
    numba=True,
)
def functions(given):
    """∇f = XᵀXw − Xᵀy + w, which is 0 at the mode."""
    import jax.numpy as jnp

    X, kind, dtype, start, point = given
    n, columns = X.shape
    y = np.cos(np.arange(n))

    def log_likelihood(params, row):
        value = -0.5 * (row["y"] - row["x"] @ params["w"]) ** 2
        return {"right": value, "vector": jnp.ones(2), "text": "no", "none": None, "nan": value * jnp.nan}[kind]

    def log_prior(params):
        return -0.5 * (params["w"] ** 2).sum()

    init = [start] * columns if isinstance(start, float) else start
    target = ask(targets.model, log_likelihood, log_prior, {"x": X.make(), "y": y}, {"w": init}, dtype=dtype)
    w = np.array(point[: target.dim])
    ask(repr, target)
    g = ask(target.gradient, w)
    dense = X.dense
    if not (is_plain(dense, 1e3) and is_plain(w, 1e3)):
        return
    exact = dense.T @ (dense @ w - y) + w
    digits = 1e-4 if dtype == "float32" or X.dtype in ("float32", "float16") else 1e-10
    size = np.abs(dense).T @ (np.abs(dense) @ np.abs(w) + 1) + np.abs(w) + 1
    agree("the gradient", g, exact, digits * size)
    if digits == 1e-10 and abs(start) <= 1e3:
        mode = ask(target.mode)
        best = np.linalg.solve(dense.T @ dense + np.eye(columns), dense.T @ y)
        agree("the mode", mode, best, 1e-6 * (1 + np.abs(best)))


@case(
    st.tuples(
        st.sampled_from(["from_numpyro", "from_pymc", "from_bambi"]),
        st.sampled_from([None, 3, "model", {}, [], object(), dict, len, print, lambda: None, lambda x: x]),
        st.one_of(st.none(), inputs.numbers(2)),
    ),
    "svrhmc.targets.from_numpyro",
    "svrhmc.targets.from_pymc",
    "svrhmc.targets.from_bambi",
    cost=0.1,
)
def of_libraries(given):
    """What is no model is refused in words, and so is a library that is not there."""
    door, model, rows = given
    ask(getattr(targets, door), model, *(() if rows is None or door != "from_numpyro" else (np.array(rows),)))
    holds(False, f"{door} took {model!r} for a model")
