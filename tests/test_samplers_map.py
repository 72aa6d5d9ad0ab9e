"""`benchmarks/samplers_map.py`: its quadratics are those of the data, its runs do what the map says, its file is whole."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import LIMIT
from simulated_data import events
from svrhmc import targets, theory

PLACE = Path(__file__).parents[1] / "benchmarks" / "samplers_map.py"


@pytest.fixture(scope="module")
def bench():
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("benchmark_of_the_map", PLACE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def logistic():
    rng = np.random.default_rng(34)
    X = np.column_stack([np.ones(60), rng.normal(size=(60, 2)) * [1.0, 2.0]])
    return X, targets.logistic(X, events(rng, X @ [-1.0, 1.0, 0.5]), 2.0)


@pytest.fixture(scope="module")
def instance(bench, logistic):
    X, target = logistic
    return bench.quadratic_of("simulated", X, target, 2.0)


def test_the_quadratic_of_a_logistic_regression_has_its_mode_curvature_and_noise(instance, logistic):
    target, quadratic = logistic[1], instance.target()
    np.testing.assert_allclose(quadratic.mode(), target.mode(), atol=1e-12)
    np.testing.assert_allclose(quadratic.laplace().covariance, target.laplace().covariance, rtol=1e-9)
    ours, theirs = (theory.Problem.of(each, "mode").gradient_variance for each in (quadratic, target))
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_more_rows_of_a_kind_are_as_copies_of_those_that_there_are(bench, instance):
    n, twice = 2 * instance.n, instance.target(2)
    model = instance.model(n)
    copied = bench.Instance("copied", np.tile(instance.X, (2, 1)), np.tile(instance.y, 2), 2.0).model(n)
    for part in ("s", "noise", "forces"):
        np.testing.assert_allclose(getattr(model, part), getattr(copied, part), rtol=1e-9)
    np.testing.assert_allclose(
        np.sort(model.s), np.linalg.eigvalsh(np.linalg.inv(twice.laplace().covariance)), rtol=1e-9
    )
    assert np.abs(instance.model(instance.n).s / model.s - 1).min() > 0.1  # other rows, another curvature


@pytest.mark.parametrize("method", ["svr-hmc", "sg-hmc"])
def test_a_run_of_the_map_has_the_law_that_it_says(bench, instance, method):
    n, target = 2 * instance.n, instance.target(2)
    model = instance.model(n)
    run = model.search(method).cheapest(0.2 * model.spread)
    law, faulty = (bench._law(run, target, longer) for longer in (1.0, 1.2))
    draws = run.sampler.run(target, run.steps, chains=20_000, keep="last", seed=3).draws[:, -1]
    assert bench.largest_z(draws, law) < LIMIT
    assert bench.largest_z(draws, faulty) > LIMIT
    assert law.w2 == pytest.approx(run.w2, rel=0.3)


def test_the_map_is_whole_and_nearer_costs_more(bench):
    rows = bench.read()
    names = {row["instance"] for row in rows}
    assert names == {*bench.SYNTHETIC, *bench.SECTIONS}
    assert len(rows) == len(names) * len(bench.SIZES) * len(bench.SHARES)
    for method in bench.METHODS:
        costs = np.array([float(row[method]) for row in rows]).reshape(-1, len(bench.SHARES))
        assert (np.diff(costs, axis=1) >= 0).all()
