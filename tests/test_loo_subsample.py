"""`posterior.loo_subsample`: the difference estimator beside cross-validation of all rows."""

import numpy as np
import pytest

import svrhmc
from svrhmc.results.comparison import _estimates_of_all_rows, stacking_weights

RNG = np.random.default_rng(0)
N = 3000
TABLE = {"x": RNG.normal(size=N), "g": RNG.choice(list("abcdefgh"), N)}
TABLE["y"] = RNG.random(N) < 1 / (1 + np.exp(-TABLE["x"]))
TABLE["count"] = RNG.poisson(np.exp(0.5 * TABLE["x"]))


@pytest.mark.parametrize(("formula", "family"), [("y ~ x", None), ("count ~ x + (1 | g)", "poisson")])
def test_it_is_that_of_all_rows_within_its_error(formula, family):
    posterior = svrhmc.fit(formula, TABLE, family, draws=200)
    whole = posterior.loo()
    away = []
    for seed in range(12):
        some = posterior.loo_subsample(300, seed=seed)
        assert len(some.rows) == len(set(some.rows.tolist())) == 300
        np.testing.assert_allclose(some.pointwise, whole.pointwise[some.rows], rtol=1e-9)
        np.testing.assert_allclose(some.se, whole.se, rtol=0.02)
        away.append((some.elpd - whole.elpd) / some.subsampling_se)
    assert np.abs(away).max() < 4.5
    assert 0.4 < np.std(away) < 2.0  # the error is what it is said to be
    plain = N * whole.pointwise[some.rows].mean()  # negative control: without the control variate it is far off
    assert abs(plain - whole.elpd) > 4.5 * some.subsampling_se


def test_all_rows_leave_no_error():
    posterior = svrhmc.fit("y ~ x", {name: column[:60] for name, column in TABLE.items()}, draws=100)
    whole, some = posterior.loo(), posterior.loo_subsample(1000)
    assert some.subsampling_se == some.p_se == 0
    np.testing.assert_allclose([some.elpd, some.se, some.p_loo], [whole.elpd, whole.se, whole.p_loo])
    text = " ".join(str(some).split())
    assert "Leave-one-out cross-validation of 60 rows, from 60 of them" in text
    assert list(some.to_frame().columns) == ["elpd", "pareto_k"]
    assert "<table>" in some._repr_html_()


def test_a_row_that_decides_is_said_to(tmp_path):
    y = RNG.normal(size=40)
    y[7] = 300.0
    posterior = svrhmc.fit("y ~ x", {"x": RNG.normal(size=40), "y": y}, "gaussian", draws=200)
    assert "Pareto k is above" in str(posterior.loo_subsample(40))
    posterior.save(tmp_path / "a.posterior")
    with pytest.raises(ValueError, match="fit again, or keep the posterior in memory"):
        svrhmc.Posterior.load(tmp_path / "a.posterior").loo_subsample()
    with pytest.raises(ValueError, match="rows must be"):
        posterior.loo_subsample(2)


def test_models_are_compared_by_some_rows():
    """The difference lies within its error of that by all rows, and the error is far below that without π̃."""
    models = {"x": svrhmc.fit("y ~ x", TABLE, draws=200), "g": svrhmc.fit("y ~ g", TABLE, draws=200)}
    whole, away = svrhmc.compare(models), []
    for seed in range(12):
        some = svrhmc.compare(models, rows=300, seed=seed)
        assert some.names == whole.names == ("x", "g")
        np.testing.assert_allclose(some.diff_se, whole.diff_se, rtol=0.05)
        away.append((some.elpd_diff[1] - whole.elpd_diff[1]) / some.subsampling_se[1])
    assert np.abs(away).max() < 4.5
    assert 0.4 < np.std(away) < 2.0
    assert 20 * some.subsampling_se[1] < whole.diff_se[1]
    assert some.decided == whole.decided == (False, True)
    assert "3,000 rows, from 300 of them" in " ".join(str(some).split())
    assert "subsampling_se" in some.to_frame().columns
    assert "subsampling_se" not in whole.to_frame().columns
    every = svrhmc.compare(models, rows=N)
    np.testing.assert_allclose(every.elpd_diff, whole.elpd_diff, rtol=1e-9)
    np.testing.assert_allclose(every.diff_se, whole.diff_se, rtol=1e-9)


def test_models_are_compared_by_the_same_rows():
    models = [svrhmc.fit("y ~ x", TABLE, draws=100), svrhmc.fit("y ~ g", TABLE, draws=100)]
    by_other_rows = [model.loo_subsample(100, seed=seed) for seed, model in enumerate(models)]
    with pytest.raises(ValueError, match="cross-validated by the same rows"):
        svrhmc.compare(*by_other_rows)
    with pytest.raises(ValueError, match="rows must be None where groups are left out or draws are moved"):
        svrhmc.compare(*models, rows=100, moment_match=True)


def test_weights_are_those_of_all_rows():
    """Two of three models have a weight by all rows; by the few rows alone, the weights are others."""
    rng = np.random.default_rng(0)
    n, (x, z) = 4000, rng.normal(size=(2, 4000))
    y = rng.random(n) < 1 / (1 + np.exp(-0.5 * x - 0.15 * z - 0.4 * x**2))
    models = [svrhmc.fit(f, {"x": x, "z": z, "y": y}, draws=200) for f in ("y ~ x", "y ~ x + I(x**2) + z", "y ~ x + z")]
    whole, few = svrhmc.compare(*models), svrhmc.compare(*models, rows=100)
    assert few.names == whole.names
    np.testing.assert_allclose(few.weights, whole.weights, atol=0.01)
    alone = stacking_weights(np.stack([one.pointwise for one in few.loo], axis=1))  # negative control
    assert np.abs(alone - whole.weights).max() > 0.1
    for one in few.loo:
        np.testing.assert_allclose(_estimates_of_all_rows(one).sum(), one.elpd)


def test_large_sums_are_printed_to_a_tenth():
    """A difference of 48 between sums of 29,000 can be read from the table."""
    models = [svrhmc.fit(formula, TABLE, draws=100) for formula in ("y ~ x", "y ~ 1")]
    compared = svrhmc.compare(*models)
    for loo in compared.loo:
        assert f"{loo.elpd:.1f}" in str(compared)
        assert f"{loo.elpd:.1f}" in str(loo)
