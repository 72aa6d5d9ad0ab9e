"""Distances and diagnostics."""

import numpy as np
from hypothesis import strategies as st

from svrhmc import diagnostics, distances

from .. import inputs, oracles
from ..judge import agree, ask, holds
from ..registry import case


@st.composite
def gaussians(draw):
    dim = draw(st.integers(1, 3))
    means = [draw(inputs.numbers(dim, inputs.mostly_plain)) for _ in range(2)]
    return means[0], draw(inputs.symmetric(dim)), means[1], draw(inputs.symmetric(dim))


def large(*arrays):
    return max(np.abs(np.array(each, float)).max() for each in arrays) > 1e90


@case(gaussians(), "svrhmc.distances.gaussian_w2", cost=0.005)
def gaussian_w2(given):
    """Against fifty digits in one and two dimensions; symmetric, and 0 for one law."""
    a, A, b, B = given
    value = ask(distances.gaussian_w2, a, A, b, B)
    turned = ask(distances.gaussian_w2, b, B, a, A)
    size = np.sqrt(np.abs(np.array(A)).max() + np.abs(np.array(B)).max()) + np.abs(np.array(a) - np.array(b)).max()
    agree("the other way round", turned, value, 1e-6 * size)
    zero = ask(distances.gaussian_w2, a, A, a, A)
    agree("from itself", zero, 0.0, 1e-6 * size)
    if (
        len(a) < 3
        and not large(a, A, b, B)
        and min(np.linalg.eigvalsh(np.array(A))[0], np.linalg.eigvalsh(np.array(B))[0]) >= 0
    ):
        agree("W2", value, oracles.w2(a, A, b, B), 1e-6 * size)


@case(
    st.tuples(st.one_of(st.integers(1, 3).flatmap(inputs.symmetric), inputs.anything), inputs.count),
    "svrhmc.distances.plug_in_floor",
)
def plug_in_floor(given):
    """By its formula."""
    covariance, size = given
    floor = ask(distances.plug_in_floor, covariance, size)
    spectrum = np.maximum(np.linalg.eigvalsh(np.array(covariance, float)), 0).astype(np.longdouble)
    pairs = [x * y / (x + y) for i, x in enumerate(spectrum) for y in spectrum[:i] if x + y > 0]
    agree("the floor", floor, np.sqrt((1.5 * spectrum.sum() + sum(pairs)) / size), 1e-6 * floor)


SAMPLES = st.integers(1, 2).flatmap(
    lambda dim: st.tuples(*[st.lists(inputs.numbers(dim, inputs.mostly_plain), min_size=1, max_size=5)] * 2)
)


@case(
    st.tuples(SAMPLES, inputs.count, inputs.seeds),
    "svrhmc.distances.empirical_w2",
    "svrhmc.distances.sliced_w2",
    cost=0.02,
)
def samples(given):
    """By the best matching where sizes are equal; in one dimension a slice is the whole."""
    from scipy.optimize import linear_sum_assignment

    (a, b), projections, seed = given
    exact = ask(distances.empirical_w2, a, b)
    sliced = (
        ask(distances.sliced_w2, a, b, projections, seed)
        if projections is not True and not (isinstance(projections, int) and projections > 10**5)
        else None
    )
    A, B = np.array(a, np.longdouble), np.array(b, np.longdouble)
    size = np.abs(np.concatenate([A, B])).max() + 1e-300
    if size > 1e150:
        return
    if A.shape[1] == 1 and sliced is not None:
        agree("a slice of a line", sliced, exact, 1e-6 * size)
    if len(a) == len(b):
        cost = ((A[:, None] - B) ** 2).sum(axis=2).astype(float)
        rows, columns = linear_sum_assignment(cost)
        agree("the best matching", exact, np.sqrt(cost[rows, columns].mean()), 1e-6 * size)


@case(
    st.tuples(SAMPLES, st.integers(1, 2).flatmap(inputs.symmetric)),
    "svrhmc.distances.plug_in_w2",
    "svrhmc.distances.PlugIn",
    cost=0.01,
)
def plug_in(given):
    """The distance of the fitted Gaussian."""
    (draws, _), covariance = given
    dim = len(draws[0])
    found = ask(distances.plug_in_w2, draws, np.zeros(dim), covariance)
    holds(found.value >= 0 and found.floor >= 0, "below 0")
    sample = np.array(draws, float)
    if np.abs(sample).max() < 1e100 and not large(covariance):
        fitted = np.atleast_2d(np.cov(sample, rowvar=False))
        again = distances.gaussian_w2(sample.mean(axis=0), fitted, np.zeros(dim), covariance)
        agree("the fitted Gaussian's", found.value, again, 1e-6 * (again + 1e-9))


@case(
    st.tuples(
        st.integers(1, 3), st.integers(4, 12), st.lists(inputs.mostly_plain, min_size=1, max_size=20), st.integers(1, 2)
    ),
    "svrhmc.diagnostics.*",
    cost=0.01,
)
def diagnosed(given):
    """Effective draws are between nothing and what ArviZ gives; R-hat does not depend on units."""
    chains, draws, values, columns = given
    table = np.resize(np.array(values), (chains, draws, columns))
    ess = ask(diagnostics.ess, table)
    r_hat = ask(diagnostics.r_hat, table)
    ask(diagnostics.standard_error, table)
    holds((ess > 0).all(), f"{ess} effective draws")
    if np.abs(table).max() < 1e6 and np.abs(table).max() > 1e-6:
        agree("R-hat in other units", ask(diagnostics.r_hat, 1024 * table), r_hat, 1e-6 * (1 + r_hat))
        agree("effective draws in other units", ask(diagnostics.ess, 1024 * table), ess, 1e-6 * ess)
    parts = ask(diagnostics.some_columns, draws, columns)
    holds(
        np.concatenate([np.arange(columns)[each] for each in parts]).tolist() == list(range(columns)),
        "columns left out",
    )
    ask(diagnostics.by_columns(lambda each: each.sum(axis=(0, 1))), np.clip(table, -1e100, 1e100))
