"""Average marginal effects: against formulas by hand, through a design and without one."""

import numpy as np
import pytest

import svrhmc
from svrhmc import Posterior, sample, targets
from svrhmc.fitting import regress
from svrhmc.results import effects as effects_module
from svrhmc.results.base import even_rows, thin_draws
from svrhmc.results.effects import level_averages, varying_columns
from svrhmc.results.probability import match_moments

N = 300


def table():
    rng = np.random.default_rng(0)
    age, plan, member = rng.uniform(20, 70, N), rng.choice(["basic", "max", "pro"], N), rng.random(N) < 0.4
    y = 300 + 20 * np.log(age) + 3 * (plan == "pro") * age / 10 + member + rng.normal(size=N)
    return {"y": y, "age": age, "plan": plan, "member": member, "w": rng.integers(1, 9, N).astype(float)}


def coefficient(posterior, name):
    return posterior.mean[posterior.names.index(name)]


def test_a_logarithm_counts_by_the_slope_at_each_row():
    data = table()
    posterior = svrhmc.fit("y ~ np.log(age) + plan + member", data, draws=200)
    effects = posterior.effects()
    assert effects.names == ("plan[max - basic]", "plan[pro - basic]", "member[True - False]", "age")
    assert effects.terms == ("plan", "plan", "member", "age")
    assert effects.contrasts == ("max - basic", "pro - basic", "True - False", "dY/dX")
    beta = coefficient(posterior, "np.log(age)")
    assert effects.mean[3] == pytest.approx(beta * (1 / data["age"]).mean(), rel=1e-6)
    assert effects.mean[3] != pytest.approx(beta / data["age"].mean(), rel=1e-2)  # the slope at the mean is another
    assert effects.mean[:3] == pytest.approx([coefficient(posterior, n) for n in ("plan[max]", "plan[pro]", "member")])
    sd = posterior.sd[posterior.names.index("member")]
    assert effects.sd[2] == pytest.approx(sd, rel=1e-9)  # draws have the reported moments
    assert effects.draws.shape == (200, 4)
    assert effects.interval[:, 0] == pytest.approx(np.quantile(effects.draws, 0.05, axis=0))
    frame = effects.to_frame()
    assert list(frame.columns) == ["term", "contrast", "mean", "sd", "5%", "95%"]
    assert "Averaged over all 300 rows, under 200 draws" in str(effects)
    assert "<table>" in effects._repr_html_()
    few = posterior.effects(level=0.5, rows=50, draws=100, variables=["age"])
    assert posterior.effects(level=0.5, rows=50, draws=100, variables="age").names == few.names
    for wrong in (3, [3]):
        with pytest.raises(ValueError, match="variables must be names of columns, or None for all; got"):
            posterior.effects(variables=wrong)
    assert few.names == ("age",)
    assert few.said == "Averaged over 50 of 300 rows, spread evenly, under 100 draws of the posterior."
    with pytest.raises(ValueError, match=r"variables must be of the formula \(plan, member, age\); got 'zip'"):
        posterior.effects(variables=["zip"])


def test_interactions_and_weights_count_as_the_rows_do():
    data = table()
    posterior = svrhmc.fit("y ~ age * plan", data, weights="w", draws=200)
    effects = posterior.effects()
    names = dict(zip(effects.names, effects.mean, strict=True))
    w = data["w"] / data["w"].sum()
    extra = {level: coefficient(posterior, f"age:plan[{level}]") for level in ("max", "pro")}
    share = {level: w @ (data["plan"] == level) for level in extra}
    by_hand = coefficient(posterior, "age") + sum(share[level] * extra[level] for level in extra)
    assert names["age"] == pytest.approx(by_hand, rel=1e-7)
    assert names["plan[pro - basic]"] == pytest.approx(
        coefficient(posterior, "plan[pro]") + extra["pro"] * (w @ data["age"]), rel=1e-7
    )
    unweighted = coefficient(posterior, "plan[pro]") + extra["pro"] * data["age"].mean()
    assert names["plan[pro - basic]"] != pytest.approx(unweighted, rel=1e-4)


def test_effects_by_a_column_are_those_over_the_rows_of_each_value():
    data = table()
    posterior = svrhmc.fit("y ~ age * plan + member", data, draws=200)
    effects = posterior.effects(by="plan")
    assert effects.names[:3] == ("age (plan = basic)", "member[True - False] (plan = basic)", "age (plan = max)")
    frame = effects.to_frame()
    assert list(frame)[:3] == ["plan", "term", "contrast"]
    slopes = frame[frame["term"] == "age"].set_index("plan")["mean"]
    age = coefficient(posterior, "age")
    for level in ("max", "pro"):
        assert slopes[level] == pytest.approx(age + coefficient(posterior, f"age:plan[{level}]"), rel=1e-7)
    assert slopes["basic"] == pytest.approx(age, rel=1e-7)
    overall = posterior.effects(variables="age").mean[0]
    assert np.abs(slopes - overall).min() > 1e-3 * abs(overall)  # the average of all rows is that of no plan
    assert "all 300 rows, those of each value of 'plan' apart" in str(effects)
    assert posterior.effects(variables="plan", by="plan").names[0] == "plan[max - basic] (plan = basic)"


def test_effects_by_a_factor_and_over_some_rows_agree_with_those_of_a_table_of_these_rows():
    rng = np.random.default_rng(3)
    n, region = 2000, rng.choice(["east", "north", "west"], 2000, p=[0.2, 0.3, 0.5])
    x = rng.normal(size=n) + 2 * (region == "west")
    data = {"x": x, "region": region, "y": rng.random(n) < 1 / (1 + np.exp(2 - x))}
    posterior = svrhmc.fit("y ~ x + (1 | region)", data, draws=100, certificate=False)
    every = posterior.effects(by="region", rows=n)
    assert every.values == ("east", "north", "west")
    for k, name in enumerate(every.values):
        alone = posterior.effects(table={word: column[region == name] for word, column in data.items()}, rows=n)
        assert every.mean[k] == pytest.approx(alone.mean[0], rel=1e-4)
        assert every.sd[k] == pytest.approx(alone.sd[0], rel=1e-4)
    assert every.mean[2] > 1.5 * every.mean[0]  # the slope of a probability is another where x is
    some = posterior.effects(by="region", rows=200)
    assert some.mean == pytest.approx(every.mean, rel=0.01)
    assert "600 of 2,000 rows" in some.said
    with pytest.raises(ValueError, match=r"by must be None, or a column of the formula \(x, region\); got 'zip'"):
        posterior.effects(by="zip")
    with pytest.raises(ValueError, match="at most 100 different values; got 'x', which has 2,000"):
        posterior.effects(by="x")
    with pytest.raises(ValueError, match="by must be None where the model has no formula"):
        regress(x[:, None], data["y"], "bernoulli", draws=100, certificate=False).effects(by="x0")


def test_rows_keep_their_exposure_unless_a_table_gives_another():
    rng = np.random.default_rng(4)
    data = {"x": rng.normal(size=400), "years": rng.integers(1, 9, 400).astype(float)}
    data["claims"] = rng.poisson(data["years"] * np.exp(0.3 * data["x"]))
    posterior = svrhmc.fit("claims ~ x", data, exposure="years", draws=100)
    own, rate = posterior.effects(), posterior.effects(table={**data, "years": np.ones(400)})
    assert "all 400 rows, each with its own 'years', under" in own.said
    assert own.mean[0] == pytest.approx(rate.mean[0] * data["years"].mean(), rel=0.1)
    assert own.mean[0] > 3 * rate.mean[0]


def test_splines_are_not_asked_beyond_the_ends_of_the_data():
    data = table()
    posterior = svrhmc.fit("y ~ bs(age, df=4)", data, draws=200)
    h = 1e-3
    inner = (data["age"] > data["age"].min() + h) & (data["age"] < data["age"].max() - h)
    some = {"age": data["age"][inner]}
    ends = [posterior.design.rows({"age": some["age"] + side * h}) @ posterior.mean[1:5] for side in (-1, 1)]
    assert posterior.effects().mean[0] == pytest.approx(((ends[1] - ends[0]) / (2 * h)).mean(), rel=0.02)
    assert posterior.effects(table=some).mean[0] == pytest.approx(((ends[1] - ends[0]) / (2 * h)).mean(), rel=1e-4)


def test_without_a_design_every_column_is_a_number():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 2)) * [1.0, 30.0]
    y = (rng.logistic(size=N) < X @ [1.0, -0.03]).astype(float)
    posterior = regress(X, y, "bernoulli", names=["a", "b"], draws=300)
    effects = posterior.effects(draws=200)
    x = match_moments(thin_draws(posterior.trace.draws, 200), posterior.mean, posterior.sd)
    p = 1 / (1 + np.exp(-(x[:, :1] + x[:, 1:] @ X.T)))
    by_hand = x[:, 1:] * (p * (1 - p)).mean(axis=1)[:, None]
    assert effects.names == ("a", "b")
    assert effects.draws == pytest.approx(by_hand, rel=1e-6)
    designed = svrhmc.fit("y ~ a + b", {"y": y, "a": X[:, 0], "b": X[:, 1]}, draws=300)
    assert designed.effects(draws=200).mean == pytest.approx(effects.mean, rel=1e-6)
    plain = sample(targets.logistic(np.column_stack([np.ones(N), X]), y, prior_precision=0.01), draws=300)
    assert plain.effects().names == ("x[1]", "x[2]")  # not of the column of ones
    assert plain.effects(variables=["x[2]"]).mean == pytest.approx(plain.effects().mean[1:])
    assert plain.effects().mean == pytest.approx(effects.mean, rel=0.1)
    with pytest.raises(ValueError, match=r"columns that vary \(x\[0\], x\[1\], x\[2\]\); got 'zip'"):
        plain.effects(variables=["zip"])
    with pytest.raises(ValueError, match="table must be None where the model has no formula"):
        plain.effects(table={"a": [1.0]})


@pytest.mark.slow
def test_probabilities_of_classes_change_by_nothing_in_all():
    rng = np.random.default_rng(2)
    a = rng.normal(size=N)
    y = np.array(["c: one", "two", "three"])[(a + rng.normal(size=N) > 0).astype(int) + (rng.random(N) < 0.3)]
    designed = svrhmc.fit("y ~ a", {"y": y, "a": a}, draws=100).effects(draws=50)
    assert designed.groups == ("c: one", "three", "two")
    assert designed.draws.sum(axis=1) == pytest.approx(np.zeros(len(designed.draws)), abs=1e-10)
    assert designed.to_frame().columns[0] == "group"
    codes = np.unique(y, return_inverse=True)[1]
    arrays = regress(a[:, None], codes, "categorical", names=["a"], draws=100).effects(draws=50)
    assert arrays.names == ("the first class: a", "1: a", "2: a")
    assert arrays.mean == pytest.approx(designed.mean, rel=1e-5)


def test_a_posterior_from_a_file_says_what_is_missing_and_takes_a_table(tmp_path):
    data = table()
    posterior = svrhmc.fit("y ~ age + plan", data, draws=100)
    posterior.save(tmp_path / "fit.posterior")
    again = Posterior.load(tmp_path / "fit.posterior")
    with pytest.raises(ValueError, match=r"given a table to average over: effects\(table=…\); got one from a file"):
        again.effects()
    assert again.effects(table=data).draws == pytest.approx(posterior.effects().draws)
    assert again.rows == 0
    assert "300 rows" in str(again.summary()).splitlines()[0]  # `fitted_rows` is in the file
    with pytest.raises(ValueError, match="no missing values in 'age'"):
        again.effects(table={**data, "age": np.where(data["age"] > 60, np.nan, data["age"])})
    other = sample(targets.synthetic(20, 2), draws=20)
    for purpose, call in {
        "to have effects": other.effects,
        "to predict from": lambda: other.predict(np.ones((1, 2))),
        "to have a likelihood of each": other.log_likelihood,
    }.items():
        with pytest.raises(ValueError, match=f"linear predictors, {purpose}; got .* compute it from the draws"):
            call()


def test_rows_are_spread_evenly_and_in_step_with_nothing():
    places = even_rows(12_000, 1000, 0)
    assert len(np.unique(places)) == 1000
    assert np.abs(places - 12 * np.arange(1000) - 6).max() <= 6
    assert len(np.unique(places % 12)) == 12  # every twelfth row would be one month of the year
    assert (even_rows(12_000, 1000, 1) != places).any()
    X = np.column_stack([np.ones(50), np.full(50, 1e6), np.arange(50.0), 2000 + np.arange(50) % 2])
    assert varying_columns(targets.linear(X, np.zeros(50)).form()).tolist() == [2, 3]


FAMILIES = {"bernoulli": [0, 1], "poisson": [0, 3], "negative-binomial": [0, 3], "categorical": ["a", "b", "c"], "gaussian": [0.0, 1.5]}  # fmt: skip


def levelled(family, levels):
    """Rows (n of them at the first level), one row at every level, and draws."""
    rng = np.random.default_rng(3)
    number, y = rng.normal(size=40), np.resize(FAMILIES[family], 40 + levels)
    codes = np.append(np.zeros(40, int), np.arange(levels))
    numbers = np.append(number, np.full(levels, number[0]))
    X = np.column_stack([np.ones(40 + levels), numbers, codes[:, None] == np.arange(1, levels)]).astype(float)
    form = targets.glm(X, y, family).form()
    x = rng.normal(size=(5, form.rows.dim)) * 1.5
    return form.choose(np.arange(40)), form.choose(np.arange(40, 40 + levels)), x, rng.uniform(size=40)


def one_by_one(rows, levels, x, w):
    """Level after level, by a predictor of each row."""
    found = []
    for k in range(levels.rows.n):
        shift = levels.predictors(x)[:, k] - levels.predictors(x)[:, 0]
        mean = rows.loss.mean(rows.predictors(x) + shift[:, None])
        found.append(np.einsum("dr...,r->d...", mean, w).reshape(len(x), -1))
    return np.stack(found, axis=1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("levels", [3, 400])
def test_many_levels_need_few_looks_at_the_rows(family, levels, monkeypatch):
    rows, each, x, w = levelled(family, levels)
    expected = one_by_one(rows, each, x, w)
    looks, mean = [], type(rows.loss).mean
    monkeypatch.setattr(type(rows.loss), "mean", lambda self, t: looks.append(t.shape[1]) or mean(self, t))
    found = level_averages(rows, each, x, w)
    size = np.abs(expected).max(axis=1, keepdims=True)
    assert np.abs((found - found[:, :1]) - (expected - expected[:, :1])).max() < 1e-8 * size.max()
    assert (np.abs((found - found[:, :1]) - (expected - expected[:, :1])) < 1e-8 * size).all()
    if family not in ("categorical", "gaussian"):
        assert sum(looks) <= 40 * min(levels, 16 + 32 + 64 + 128 + 4)
    monkeypatch.setattr(effects_module, "_LAST_TOLERANCE", np.inf)  # the control: a degree of 16 is not enough
    rough = level_averages(rows, each, x, w)
    if levels == 400 and family == "bernoulli":
        assert np.abs((rough - rough[:, :1]) - (expected - expected[:, :1])).max() > 1e-5


@pytest.mark.slow
def test_a_category_of_its_own_has_the_effects_that_its_designs_say(monkeypatch):
    data = table()
    data["high"] = data["y"] > np.median(data["y"])
    posterior = svrhmc.fit("high ~ np.log(age) + plan + member", data, weights="w", draws=100)
    fast = posterior.effects(draws=50)
    assert posterior.design.separate("plan")
    assert not posterior.design.separate("age")
    assert not svrhmc.fit("y ~ age * plan", data, draws=50).design.separate("plan")
    monkeypatch.setattr(type(posterior.design), "separate", lambda self, name: False)
    slow = posterior.effects(draws=50)
    assert fast.names == slow.names
    np.testing.assert_allclose(fast.draws, slow.draws, atol=1e-10)
    assert np.abs(fast.mean).min() > 1e-4


def test_effects_over_some_rows_are_those_over_the_rows_kept_and_say_how_far_these_may_be_off():
    """A curve, whose slope differs from row to row: with 100 of 12,000 rows alone it would be off by many sds."""
    rng = np.random.default_rng(0)
    x, w = rng.uniform(0, 6, 12_000), rng.uniform(0.5, 1.5, 12_000)
    table = {"y": 3 * np.sin(x) + rng.normal(size=12_000), "x": x, "w": w}
    posterior = svrhmc.fit("y ~ poly(x, 5)", table, weights="w")
    every, some = posterior.effects(rows=10_000), [posterior.effects(rows=100, seed=seed) for seed in range(5)]
    assert max(abs(one.mean - every.mean)[0] for one in some) < 0.02 * every.sd[0]
    assert "a mean has a further standard error of up to" in every.said
    few = [posterior.effects(table={name: column[k::120] for name, column in table.items()}) for k in range(5)]
    assert max(abs(one.mean - every.mean)[0] for one in few) > 5 * every.sd[0]
    whole = posterior.effects(table=table, rows=12_000)
    assert "off by" not in whole.said


def test_effects_of_trials_are_on_the_probability_of_one_trial_and_those_of_the_long_table():
    """An aggregated table and the rows it was made of have the same posterior, so the same average effects: a row of m
    trials counts as m rows.
    """
    rng = np.random.default_rng(5)
    births, dose = rng.integers(1, 60, 40), rng.normal(size=40)
    deaths = rng.binomial(births, 1 / (1 + np.exp(1 - dose)))
    posterior = svrhmc.fit(
        "deaths ~ dose", {"deaths": deaths, "births": births, "dose": dose}, "binomial", trials="births", draws=400
    )
    effects = posterior.effects()
    assert effects.on == "the probability of a success in one trial (deaths of births)"
    assert "mean of deaths" not in str(effects)
    assert "all 40 rows, by their trials" in effects.said
    one = np.concatenate([np.repeat([1, 0], [d, m - d]) for d, m in zip(deaths, births, strict=True)])
    long = svrhmc.fit("died ~ dose", {"died": one, "dose": np.repeat(dose, births)}, "bernoulli", draws=400)
    expected = long.effects(rows=10**6)
    assert effects.mean == pytest.approx(expected.mean, abs=0.2 * expected.sd[0])
    p = 1 / (1 + np.exp(-(posterior.mean[0] + posterior.mean[1] * dose)))
    by_row = posterior.mean[1] * (p * (1 - p)).mean()  # what rows that count alike would give
    assert abs(by_row - expected.mean[0]) > 0.3 * expected.sd[0]
    again = posterior.effects(table={"dose": dose, "births": births})
    assert again.mean == pytest.approx(effects.mean, rel=1e-9)
    assert posterior.effects(table={"dose": dose}).mean == pytest.approx([by_row], rel=0.02)
