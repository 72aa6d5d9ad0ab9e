"""Generalised linear models with their rows on JAX's devices: the sums, the draws and the refusals.

The devices are CPUs here; what a GPU gives differs by rounding.
"""

import numpy as np
import pytest
import scipy.sparse

import svrhmc
from svrhmc import data, targets
from svrhmc.families import family_of
from svrhmc.families.base import FAMILIES
from svrhmc.rows.forms import RowsForm
from test_jax_devices import log_likelihood, log_prior, with_four_devices

pytest.importorskip("jax")
N = 101  # more rows than sections, and some are left over


def arguments(family, kind=np.float64, n=N):
    """X, y and what else `glm` takes: offsets and weights where the family has them."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))]).astype(kind)
    loss, t = family_of(family), 0.5 * (X @ [0.4, -0.7, 0.3])
    if family in ("categorical", "ordinal"):
        return X[:, loss.has_intercept :], np.digitize(t + rng.logistic(size=n), [-1.0, 1.0]), {}
    trials = np.full(n, 6.0) if loss.in_trials or loss.weights_are_trials else None
    predictors = np.zeros((n, *loss.predictor_shape))
    predictors[...] = t.reshape(n, *(1,) * len(loss.predictor_shape))
    y = loss.draw(predictors, rng.random(n), trials)
    y = np.clip(y, 1e-6, 1 - 1e-6) if family == "beta" else y
    more = {} if trials is None else {"trials": trials}
    return X, y, {"offset": rng.normal(size=n) / 4, "weights": rng.choice([0.5, 1.0, 2.0], n), **more}


def target_of(family, kind=np.float64):
    X, y, more = arguments(family, kind)
    return targets.glm(X if family_of(family).has_intercept else X[:, 1:], y, family, prior_precision=1.0, **more)


QUICK = ("bernoulli", "negative-binomial", "gaussian", "categorical", "ordinal", "hurdle-poisson")


@pytest.mark.parametrize(
    "family", [family if family in QUICK else pytest.param(family, marks=pytest.mark.slow) for family in FAMILIES]
)
def test_sums_over_rows_are_those_of_the_host(family):
    """Value, gradient and Hessian; and those of other weights are not."""
    from svrhmc.engines.jax.device_rows import on_devices

    target = target_of(family)
    there = on_devices(target, "cpu")
    x = target.mode() + 0.1 * np.cos(np.arange(target.dim))
    own = target.form().derivatives(x)
    sums = there.row_derivatives(x)
    np.testing.assert_allclose(sums.value, own.value, rtol=1e-12)
    np.testing.assert_allclose(sums.gradient, own.gradient, rtol=1e-11, atol=1e-11 * N)
    np.testing.assert_allclose(sums.hessian, own.hessian, rtol=1e-7, atol=1e-8 * N)
    states = x + 0.1 * np.arange(3)[:, None]
    for of_device, of_host in zip(there.energies(states), target.energies(states), strict=True):
        np.testing.assert_allclose(of_device, of_host, rtol=1e-11, atol=1e-9)
    if target.weights is not None and not target.loss.weights_are_trials:
        X, y, more = arguments(family)
        other = targets.glm(X, y, family, prior_precision=1.0, **{**more, "weights": None})
        assert abs(other.form().derivatives(x).value / own.value - 1) > 1e-3


def test_squares_are_those_of_the_host():
    from svrhmc.engines.jax.device_rows import on_devices

    target, beta = target_of("gaussian", np.float32), np.array([0.2, 0.1, -0.3])
    placed = on_devices(target, "cpu")
    zero = RowsForm.squares(target.form(), beta)
    sums = placed.rows.reduce(RowsForm.squares, placed.form(), beta, zero=zero, task="squares")
    for of_device, of_host in zip(sums, zero, strict=True):
        np.testing.assert_allclose(of_device, of_host, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("bernoulli", np.float64), ("bernoulli", np.float32), ("negative-binomial", np.float64), ("gaussian", np.float64)],
)
def test_draws_are_those_of_the_host(family, kind):
    target, settings = target_of(family, kind), {"draws": 100, "seed": 2}
    there = svrhmc.sample(target, devices="cpu", **settings)
    exact = "closed-form" if there.method == "closed-form" else "split-hmc"
    here = svrhmc.sample(target_of(family, kind), method=exact, **settings)
    assert there.certificate.verdict == here.certificate.verdict == "exact"
    rounding = 1e-5 if kind == np.float32 else 1e-8
    assert np.abs(there.trace.draws - here.trace.draws).max() < rounding
    assert np.abs(svrhmc.sample(target, devices="cpu", draws=100, seed=3).trace.draws - here.trace.draws).max() > 0.1
    np.testing.assert_allclose(target.mode(), target_of(family, kind).mode(), atol=rounding)


def test_a_fit_on_devices_predicts_summarises_and_compares_as_one_on_the_host():
    rng = np.random.default_rng(0)
    table = {"x": rng.normal(size=300), "g": rng.choice(["a", "b", "c"], 300)}
    table["y"] = (rng.random(300) < 1 / (1 + np.exp(-table["x"]))).astype(int)
    there = svrhmc.fit("y ~ x + g", table, devices="cpu")
    here = svrhmc.fit("y ~ x + g", table, method="split-hmc")
    np.testing.assert_allclose(there.mean, here.mean, atol=1e-8)
    assert str(there.summary()).splitlines()[:5] == str(here.summary()).splitlines()[:5]
    np.testing.assert_allclose(there.predict(table).mean, here.predict(table).mean, atol=1e-8)
    assert there.loo().elpd == pytest.approx(here.loo().elpd, abs=1e-6)


def test_a_checkpoint_of_devices_goes_on(tmp_path):
    settings = {"devices": "cpu", "checkpoint": tmp_path / "run", "draws": 100}
    first = svrhmc.sample(target_of("bernoulli"), **settings)
    again = svrhmc.sample(target_of("bernoulli"), **settings)
    assert np.array_equal(first.trace.draws, again.trace.draws)
    with pytest.raises(svrhmc.core.errors.CheckpointError):
        svrhmc.sample(target_of("poisson"), **settings)


@pytest.mark.slow
def test_draws_do_not_depend_on_the_number_of_devices_under_rows():
    counts = with_four_devices("""
import svrhmc
from test_device_rows import target_of
made = [svrhmc.sample(target_of("bernoulli"), devices=devices[:count], draws=40) for count in (1, 3)]
print(json.dumps([posterior.trace.draws.tolist() for posterior in made]))
""")
    one, three = map(np.array, counts)
    assert np.abs(one - three).max() < 1e-12
    assert np.abs(one[:, -1] - one[:, 0]).max() > 1e-3


REFUSED = {
    "of JAX functions": lambda: targets.model(log_likelihood, log_prior, (np.ones((9, 4)), np.ones(9) > 0), {"w": np.zeros(4), "b": 0.0}),
    "sparse rows": lambda: targets.logistic(scipy.sparse.csr_matrix(np.eye(4)), [0, 1, 0, 1]),
    "rows in partitions": lambda: targets.logistic(data.from_arrays(np.ones((9, 1)), np.arange(9) % 2, partitions=2)),
    "effects of groups": lambda: targets.glm(np.ones((9, 1)), np.arange(9) % 2, groups=[targets.Group(np.arange(9) % 3)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_targets_that_stay_on_the_host_are_refused_at_the_door(kind):
    with pytest.raises(ValueError, match=kind):
        svrhmc.sample(REFUSED[kind](), devices="cpu")


def test_a_sampler_of_single_rows_is_refused_by_its_name():
    with pytest.raises(ValueError, match="method must be None or 'split-hmc' with devices="):
        svrhmc.sample(target_of("bernoulli"), devices="cpu", method="subsampled-mh")


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="there is no such device here; JAX has: cpu:0"):
        svrhmc.sample(target_of("bernoulli"), devices="tpu")
