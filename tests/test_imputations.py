"""Imputed tables: their pooled posterior is the mixture, and with proper imputations that given the observed values."""

import numpy as np
import pandas
import pytest

import svrhmc
from svrhmc.targets.priors import Normal

PRIOR = {"Intercept": Normal(0.01), "x": Normal(0.25), "plan": Normal(1.0)}


def imputed(count=3, n=60, seed=0):
    """Tables that differ in a third of x."""
    rng = np.random.default_rng(seed)
    x, plan = rng.normal(size=n), rng.choice(["a", "b"], n)
    y = 1 + 2 * x - (plan == "b") + rng.normal(size=n)
    missing = rng.random(n) < 1 / 3
    tables = []
    for _ in range(count):
        filled = np.where(missing, 0.4 * (y - 1) + 0.4 * rng.normal(size=n), x)
        tables.append({"y": y, "x": filled, "plan": plan})
    return tables


def fitted(tables, **settings):
    return svrhmc.fit("y ~ x + plan", tables, noise_variance=1.0, prior=PRIOR, **settings)


def test_the_pooled_posterior_is_the_mixture_of_those_of_the_tables():
    """Priors are given for coefficients at the means of the columns, which are those of all tables: here they agree."""
    tables = imputed()
    centred = [{**table, "x": table["x"] - table["x"].mean()} for table in tables]
    single = [fitted(table) for table in centred]
    pooled = fitted(centred)
    means, sds = np.stack([one.mean for one in single]), np.stack([one.sd for one in single])
    np.testing.assert_allclose(pooled.mean, means.mean(axis=0), rtol=1e-10)
    within, between = (sds**2).mean(axis=0), means.var(axis=0, ddof=1)
    np.testing.assert_allclose(pooled.sd**2, within + 2 / 3 * between, rtol=1e-10)
    table = pooled.imputations().columns
    np.testing.assert_allclose(table["within"] ** 2, within, rtol=1e-10)
    np.testing.assert_allclose(table["between"] ** 2, between, rtol=1e-10)
    np.testing.assert_allclose(table["missing information"], 4 / 3 * between / (within + 4 / 3 * between), rtol=1e-10)
    assert pooled.certificate.verdict == "exact"
    assert pooled.trace.draws.shape[0] == 3 * single[0].trace.draws.shape[0]
    z = (pooled.raw.mean - pooled.mean) / pooled.sd * np.sqrt(pooled.trace.draws[..., 0].size)
    assert np.abs(z).max() < 4.5


@pytest.mark.parametrize("proper", [True, False])
def test_proper_imputations_give_the_posterior_of_the_observed_values(proper):
    """y ~ N(θ, 1), half of it missing: the mixture over imputations from the predictive law is p(θ | observed), whose
    variance is 1/(Λ + observed). Imputations with θ fixed at its mean, which are not proper, have a smaller one.
    """
    n, observed, count, precision = 40, 20, 120, 0.01
    rng = np.random.default_rng(5)
    y = 1.5 + rng.normal(size=observed)
    variance = 1 / (precision + observed)
    mean = variance * y.sum()
    theta = mean + proper * np.sqrt(variance) * rng.normal(size=count)
    tables = [{"y": np.append(y, one + rng.normal(size=n - observed))} for one in theta]
    pooled = svrhmc.fit("y ~ 1", tables, noise_variance=1.0, prior={"Intercept": Normal(precision)}, draws=40)
    between = pooled.imputed.between[0] ** 2
    z_mean = (pooled.mean[0] - mean) / pooled.imputed.error[0]
    z_variance = (pooled.sd[0] ** 2 - variance) / (between * np.sqrt(2 / (count - 1)))
    assert abs(z_mean) < 4.5
    assert (abs(z_variance) < 4.5) == proper


def test_sampled_posteriors_are_pooled_with_their_errors():
    rng = np.random.default_rng(1)
    tables = [{**table, "win": (table["y"] + 0 * rng.normal(size=60) > 1).astype(int)} for table in imputed()]
    pooled = svrhmc.fit("win ~ x", tables, seed=3)
    single = [svrhmc.fit("win ~ x", table, seed=3) for table in tables]
    assert pooled.certificate.verdict == "exact"
    assert (pooled.ess > sum(one.ess for one in single) / 2).all()
    away = (pooled.mean - np.mean([one.mean for one in single], axis=0)) / pooled.sd
    assert np.abs(away).max() < 0.05  # but for default priors, which follow the scale of one table or of all
    assert (pooled.errors[0] < max(one.errors[0].max() for one in single)).all()


def test_a_seed_and_a_checkpoint_fix_the_draws(tmp_path):
    tables = [{**table, "win": (table["y"] > 1).astype(int)} for table in imputed(2)]
    first, again = (svrhmc.fit("win ~ x", tables, seed=3, checkpoint=tmp_path / "fit") for _ in range(2))
    other = svrhmc.fit("win ~ x", tables, seed=4)
    np.testing.assert_array_equal(first.trace.draws, again.trace.draws)
    assert other.trace.draws[0, 0, 0] != first.trace.draws[0, 0, 0]
    assert sorted(path.name for path in (tmp_path / "fit").iterdir()) == ["table-1", "table-2"]


def test_groups_of_imputed_tables_are_pooled():
    rng = np.random.default_rng(2)
    school = np.repeat(list("abcdef"), 10)
    tables = [{**table, "school": school, "y": table["y"] + rng.normal(size=6).repeat(10)} for table in imputed(2)]
    pooled = svrhmc.fit("y ~ x + (1 | school)", tables, seed=1)
    levels = pooled.groups().to_frame()
    assert list(levels["rows"]) == [10] * 6
    assert pooled.group_effects.draws.shape[:2] == pooled.trace.draws.shape[:2]
    predicted = pooled.predict({"x": [0.0], "school": ["a"]}).mean
    assert np.isfinite(predicted).all()


def test_what_is_pooled_is_saved_and_said(tmp_path):
    pooled = fitted(imputed())
    pooled.save(tmp_path / "fit.posterior")
    loaded = svrhmc.Posterior.load(tmp_path / "fit.posterior")
    assert str(loaded.imputations()) == str(pooled.imputations())
    words = " ".join(str(pooled.summary()).split())
    assert "3 imputed tables of 60 rows each" in words
    assert "3 are few: their choice alone" in words
    assert pooled.effects().names == ("x", "plan[b - a]")
    with pytest.raises(ValueError, match="the posterior must be that of a single table; got 3 pooled"):
        pooled.loo()
    with pytest.raises(ValueError, match="for a list of imputed tables"):
        fitted(imputed()[0]).imputations()


def changed(tables, **columns):
    return [tables[0], {**tables[1], **columns}, *tables[2:]]


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (imputed()[:1], "a list of imputed tables must be 2 tables or more; got 1"),
        ([], "a list of imputed tables must be 2 tables or more; got 0"),
        (changed(imputed(), x=np.r_[np.nan, np.zeros(59)]), r"table 2 of 3 misses values: 'x' \(1 rows\)"),
        (
            changed(imputed(), x=["low"] * 60),
            "'x' must be of one kind in all tables; got number in one and category in another",
        ),
        ([imputed()[0], imputed(n=50)[0]], "table 2 of 2 must be as many rows as the first, 60; got 50"),
        ([imputed()[0], {"y": imputed()[0]["y"]}], "table 2 of 2 has no column 'x'"),
        (changed(imputed(), plan=pandas.Categorical(["a"] * 60, ordered=True)), "plan"),
        ([imputed()[0], 3], "the table must be a pandas, polars or pyarrow table"),
    ],
)
def test_tables_that_are_no_imputations_of_one_are_refused(tables, sentence):
    with pytest.raises(ValueError, match=sentence):
        fitted(tables)


def test_a_class_that_one_table_lacks_is_named():
    label = np.repeat(["low", "middle", "high"], 20)
    tables = [{"x": np.arange(60.0) % 7, "label": one} for one in (label, np.where(label == "high", "low", label))]
    with pytest.raises(ValueError, match="table 2 of 2 has no row of the class 'high'"):
        svrhmc.fit("label ~ x", tables)
