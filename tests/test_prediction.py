"""Predictions against the laws they stand for: means, new labels, quantiles, the likelihood of rows; blocks change nothing."""

import numpy as np
import pytest
from scipy import stats

import svrhmc
from svrhmc.results import predict
from svrhmc.results.base import Model, thin_draws
from svrhmc.results.predict import Predictions, log_likelihoods

rng = np.random.default_rng(0)
X = np.column_stack([np.ones(40), rng.normal(size=40)])
POSITIVE = rng.gamma(2.0, 1.0, 40) + 0.1
COUNTS = rng.poisson(3.0, 40)
# family, labels, SciPy's law at a draw (coefficients, shared parameters) and a predictor
LAWS = {
    "bernoulli": (rng.integers(0, 2, 40), lambda t, s: stats.bernoulli(1 / (1 + np.exp(-t)))),
    "poisson": (COUNTS, lambda t, s: stats.poisson(np.exp(t))),
    "gaussian": (rng.normal(size=40), lambda t, s: stats.norm(t, np.exp(s))),
    "student-t": (rng.normal(size=40), lambda t, s: stats.t(4, t, np.exp(s))),
    "negative-binomial": (COUNTS, lambda t, s: stats.nbinom(np.exp(s), np.exp(s) / (np.exp(s) + np.exp(t)))),
    "gamma": (POSITIVE, lambda t, s: stats.gamma(np.exp(s), scale=np.exp(t - s))),
}


def made(family):
    y, law = LAWS[family]
    target = svrhmc.targets.glm(X, y, svrhmc.targets.families.student_t(4) if family == "student-t" else family)
    return target, y, law


@pytest.mark.parametrize("family", LAWS)
def test_new_labels_have_the_law_of_the_family(family):
    """One draw many times over: Kolmogorov–Smirnov or χ², and not the law of another predictor (control)."""
    target, _, law = made(family)
    point = np.r_[0.4, -0.3, np.full(target.dim - 2, 0.2)]
    x = np.tile(point, (20_000, 1))
    form = Model.of(target).at([[1.0, 1.0], [1.0, -2.0]], None)
    [block] = Predictions(form, x, seed=3).blocks()
    for row, t in enumerate((0.1, 1.0)):
        true, other = law(t, 0.2), law(t + 0.3, 0.2)
        mean = true.mean() if family != "student-t" else t
        np.testing.assert_allclose(block.mean[:, row], mean, rtol=1e-12)
        assert fits(block.new[:, row], true) > 1e-4
        assert fits(block.new[:, row], other) < 1e-6


def fits(values, law):
    if hasattr(law.dist, "pdf") and not hasattr(law.dist, "pmf"):
        return stats.kstest(values, law.cdf).pvalue
    top = int(law.ppf(0.999))
    expected = len(values) * np.append(law.pmf(np.arange(top + 1)), law.sf(top))
    seen = np.bincount(np.minimum(values, top + 1).astype(int), minlength=top + 2)
    kept = expected > 5
    seen, expected = (np.append(v[kept], v[~kept].sum()) for v in (seen, expected))
    enough = expected > 0
    return stats.chisquare(seen[enough], expected[enough] * seen[enough].sum() / expected[enough].sum()).pvalue


@pytest.mark.parametrize("family", LAWS)
def test_the_likelihood_of_rows_is_scipys(family):
    target, y, law = made(family)
    x = np.random.default_rng(1).normal(size=(7, target.dim)) / 2
    [(start, found)] = log_likelihoods(target.form(), x)
    assert start == 0
    for k, draw in enumerate(x):
        there = law(X @ draw[:2], draw[2] if target.dim > 2 else 0.0)
        density = there.logpdf if hasattr(there.dist, "pdf") and not hasattr(there.dist, "pmf") else there.logpmf
        np.testing.assert_allclose(found[k], density(y), rtol=1e-9, atol=1e-9)


def test_weights_and_trials_in_the_likelihood():
    y, trials = np.array([1, 4, 0]), np.array([3, 5, 2])
    target = svrhmc.targets.glm(np.ones((3, 1)), y, "binomial", trials=trials)
    [(_, found)] = log_likelihoods(target.form(), np.array([[0.7]]))
    np.testing.assert_allclose(found[0], stats.binom.logpmf(y, trials, 1 / (1 + np.exp(-0.7))), rtol=1e-12)
    weighed = svrhmc.targets.glm(np.ones((2, 1)), [1, 3], "poisson", weights=[2, 5])
    [(_, found)] = log_likelihoods(weighed.form(), np.array([[0.7]]))
    np.testing.assert_allclose(found[0], [2, 5] * stats.poisson.logpmf([1, 3], np.exp(0.7)), rtol=1e-12)


@pytest.mark.parametrize("family", ["bernoulli", "gaussian", "categorical"])
def test_blocks_of_rows_change_nothing(family, monkeypatch):
    y = rng.integers(0, 3, 40) if family == "categorical" else LAWS[family][0]
    target = svrhmc.targets.glm(X, y, family)
    x = np.random.default_rng(2).normal(size=(30, target.dim))
    many = np.random.default_rng(3).normal(size=(1500, 2))
    whole = Predictions(Model.of(target).at(many, None), x, 5).summarise((0.1, 0.9))
    monkeypatch.setattr(predict, "_BLOCK_NUMBERS", 1)
    cut = Predictions(Model.of(target).at(many, None), x, 5).summarise((0.1, 0.9))
    assert np.array_equal(whole.mean, cut.mean)
    assert np.array_equal(whole.quantiles, cut.quantiles)
    if family == "categorical":
        assert whole.mean.shape == (1500, 3)
        np.testing.assert_allclose(whole.mean.sum(axis=1), 1.0)
        assert whole.new_sd is None
    else:
        assert np.array_equal(whole.new_quantiles, cut.new_quantiles)
        some = Predictions(Model.of(target).at(many[:300], None), x[:10], 5)
        first = next(some.blocks())
        assert np.array_equal(
            first.new, next(Predictions(Model.of(target).at(many, None), x, 5).blocks()).new[:10, :256]
        )


def test_classes_are_drawn_in_proportion():
    target = svrhmc.targets.glm(X, rng.integers(0, 3, 40), "categorical")
    x = np.tile([0.3, -0.2, 0.1, 0.4], (30_000, 1))
    [block] = Predictions(Model.of(target).at([[1.0, 1.0]], None), x, 1).blocks()
    p = np.exp([0.0, 0.1, 0.5]) / np.exp([0.0, 0.1, 0.5]).sum()
    np.testing.assert_allclose(block.mean[0, 0], p, rtol=1e-12)
    seen = np.bincount(block.new[:, 0].astype(int), minlength=3)
    assert stats.chisquare(seen, 30_000 * p).pvalue > 1e-4
    assert stats.chisquare(seen, 30_000 * p[::-1]).pvalue < 1e-6


def test_offsets_sparse_rows_and_what_is_refused():
    from scipy.sparse import csr_matrix

    target, *_ = made("poisson")
    x = np.random.default_rng(4).normal(size=(5, 2))
    model, rows = Model.of(target), np.array([[1.0, 0.5], [1.0, 0.0]])
    plain = Predictions(model.at(rows, None), x, 0).summarise((0.5,))
    shifted = Predictions(model.at(rows, [np.log(2.0), 0.0]), x, 0).summarise((0.5,))
    np.testing.assert_allclose(shifted.mean, plain.mean * [2, 1], rtol=1e-12)
    np.testing.assert_allclose(Predictions(model.at(csr_matrix(rows), None), x, 0).summarise((0.5,)).mean, plain.mean)
    with pytest.raises(ValueError, match="2 columns"):
        model.at([[1.0]], None)
    with pytest.raises(ValueError, match="offset"):
        model.at(rows, [1.0])


def test_thinned_draws_come_evenly_from_every_chain():
    draws = np.arange(4 * 100.0).reshape(4, 100, 1)
    some = thin_draws(draws, 40)
    assert some.shape == (40, 1)
    assert (np.bincount((some[:, 0] // 100).astype(int)) == 10).all()
    assert len(thin_draws(draws, 10_000)) == 400
    assert len(thin_draws(draws, 2)) == 2


def test_posteriors_predict_and_keep_their_model_in_files(tmp_path):
    """Against the closed form of linear regression, from a fit and from its file."""
    rows, y = X, X @ [1.0, 2.0] + 0.5 * np.random.default_rng(5).normal(size=40)
    target = svrhmc.targets.linear(rows, y, noise_variance=0.25)
    posterior = svrhmc.sample(target, draws=20_000)
    new = np.array([[1.0, 0.3], [1.0, -4.0]])
    prediction = posterior.predict(new, draws=20_000, levels=(0.05, 0.95))
    law = target.closed_form
    sd = np.sqrt(np.einsum("nd,de,ne->n", new, law.covariance, new))
    np.testing.assert_allclose((prediction.mean - new @ law.mean) / sd, 0, atol=4.5 / np.sqrt(20_000))
    np.testing.assert_allclose(prediction.sd, sd, rtol=0.03)
    np.testing.assert_allclose(prediction.new_sd, np.sqrt(sd**2 + 0.25), rtol=0.03)
    edges = stats.norm.ppf([[0.05], [0.95]], new @ law.mean, np.sqrt(sd**2 + 0.25))
    np.testing.assert_allclose(prediction.new_quantiles, edges, atol=0.05)
    posterior.save(tmp_path / "fit")
    loaded = svrhmc.Posterior.load(tmp_path / "fit")
    assert np.array_equal(loaded.predict(new, draws=500).mean, posterior.predict(new, draws=500).mean)
    with pytest.raises(ValueError, match="no file keeps the rows"):
        loaded.log_likelihood()
    blocks = list(posterior.predict_draws(new, draws=100))
    assert blocks[0].mean.shape == blocks[0].new.shape == (100, 2)


def test_arviz_has_the_groups():
    target = svrhmc.targets.glm(X, COUNTS, "poisson")
    posterior = svrhmc.sample(target, draws=400)
    data = posterior.to_arviz(log_likelihood=True, posterior_predictive=True)
    chains, draws, _ = posterior.trace.draws.shape
    values = np.asarray(data["log_likelihood"]["y"])
    assert values.shape == np.asarray(data["posterior_predictive"]["y"]).shape == (chains, draws, 40)
    rate = np.exp(X @ posterior.trace.draws[1, 3])
    np.testing.assert_allclose(values[1, 3], stats.poisson.logpmf(COUNTS, rate), rtol=1e-9)
    assert np.isfinite(float(svrhmc.trace._arviz().loo(data).elpd if hasattr(svrhmc.trace._arviz().loo(data), "elpd")
                             else svrhmc.trace._arviz().loo(data).elpd_loo))  # fmt: skip


def test_a_posterior_without_rows_says_so():
    posterior = svrhmc.sample(svrhmc.targets.synthetic(20, 2), draws=100)
    with pytest.raises(ValueError, match="whose rows have linear predictors"):
        posterior.predict([[1.0, 2.0]])
    with pytest.raises(ValueError, match="to have a likelihood of each"):
        posterior.log_likelihood()
    with pytest.raises(ValueError, match="levels"):
        svrhmc.sample(svrhmc.targets.linear([[1.0], [2.0]], [1.0, 3.0])).predict([[1.0]], levels=[2.0])


def test_quantiles_of_a_new_y_are_nearly_those_of_its_law():
    """Of 1000 draws independent u would leave an error of 0.067 sd in the 5% quantile, as those of `blocks` do."""
    target = svrhmc.targets.glm(X, np.zeros(40), "gaussian", noise_variance=1.0)
    one = Predictions(target.form(), np.zeros((1000, 2)), 3)
    exact = stats.norm.ppf([0.05, 0.5, 0.95])[:, None]
    assert np.abs(one.summarise((0.05, 0.5, 0.95)).new_quantiles - exact).max() < 0.03
    drawn = np.concatenate([block.new for block in one.blocks()], axis=1)
    assert np.abs(np.quantile(drawn, [0.05, 0.5, 0.95], axis=0) - exact).max() > 0.1
    assert np.abs(np.corrcoef(drawn.T) - np.eye(40)).max() < 0.2  # rows are independent there


def test_the_sd_of_a_new_y_is_that_of_the_law_of_its_mean_and_its_own():
    """Var μ + E Var(y | t) where the family knows that of y, with and without quantiles; else from draws of y."""
    target = svrhmc.targets.glm(X, COUNTS, "poisson")
    x = 0.3 * np.random.default_rng(0).normal(size=(500, 2))
    predictions = Predictions(target.form(), x, 3)
    mean = np.exp(x @ X.T)
    exact = np.sqrt(mean.var(axis=0, ddof=1) + mean.mean(axis=0))
    for levels in ((), (0.05, 0.95)):
        assert predictions.summarise(levels).new_sd == pytest.approx(exact, rel=1e-12)
    drawn = np.concatenate([block.new for block in predictions.blocks()], axis=1).std(axis=0, ddof=1)
    assert 0.01 < np.abs(drawn / exact - 1).max() < 0.3  # these have an error of chance
    cauchy = svrhmc.targets.glm(X, X[:, 1] ** 2, svrhmc.targets.families.student_t(1.0))
    assert np.isfinite(Predictions(cauchy.form(), np.zeros((500, 3)), 3).summarise(()).new_sd).all()


def test_predictions_whose_squares_overflow_have_a_mean_and_a_deviation():
    target = svrhmc.targets.glm(X, LAWS["gaussian"][0], "gaussian")
    x = np.random.default_rng(2).normal(size=(30, target.dim)) / 10
    far, near = (
        Predictions(Model.of(target).at([[0.0, one]], None), x, 5).summarise((0.5,)) for one in (2.0**1000, 8.0)
    )
    assert (far.mean / 2.0**997, far.sd / 2.0**997) == (near.mean, near.sd)
    assert far.new_sd == pytest.approx(far.sd, rel=1e-12)


TRIED = {"deaths": [1, 4, 0, 9, 7, 3], "births": [30, 40, 20, 50, 60, 10], "dose": [0.0, 1.0, 0.0, 1.5, 1.0, 2.0]}


@pytest.mark.parametrize("given", ["births", TRIED["births"]], ids=["column", "array"])
def test_predictions_of_a_binomial_model_are_for_the_trials_of_the_new_rows(given, tmp_path):
    found = svrhmc.fit("deaths ~ dose", TRIED, "binomial", trials=given, draws=200)
    found.save(tmp_path / "model.posterior")
    found = svrhmc.Posterior.load(tmp_path / "model.posterior")
    new = {"dose": [0.0, 1.0, 1.0], "births": [100, 100, 0]}
    trials = None if given == "births" else new["births"]
    prediction = found.predict(new, trials=trials)
    np.testing.assert_array_equal(prediction.trials, [100, 100, 0])
    np.testing.assert_allclose(prediction.mean, prediction.probability * [100, 100, 0], rtol=1e-12)
    assert 1 < prediction.new_quantiles[2, 0] <= 100
    assert list(prediction.to_frame().columns)[:3] == ["trials", "probability", "mean"]
    prediction = found.predict({"dose": new["dose"]}, trials=1)
    np.testing.assert_allclose(prediction.mean, prediction.probability, rtol=1e-12)
    assert next(found.predict_draws(new, trials=trials)).mean[0, 0] > 1
    without = {"dose": new["dose"]} if given == "births" else new
    with pytest.raises(
        svrhmc.DataError, match=r"the model was fitted with the trials of .*: give trials=… for the new"
    ):
        found.predict(without)


def test_a_summary_of_a_binomial_model_says_what_is_modelled():
    posterior = svrhmc.fit("deaths ~ dose", TRIED, "binomial", trials="births", draws=100)
    assert "modelled is the probability of a success in each of the trials of 'births'" in posterior.summary().title


CUSTOMERS = {
    "left": ["no", "yes", "yes", "no", "yes", "no", "no", "yes", "yes", "no", "no", "yes"],
    "age": [31.0, 48.0, 50.0, 22.0, 35.0, 61.0, 44.0, 29.0, 57.0, 40.0, 33.0, 26.0],
    "region": ["a", "b", "c", "a", "b", "c", "a", "b", "c", "c", "b", "a"],
}


@pytest.fixture(scope="module")
def churn():
    return svrhmc.fit("left ~ age*region", CUSTOMERS, draws=200)


def test_rows_that_miss_values_or_have_new_levels_are_refused_dropped_or_nan(churn):
    new = {"id": [7, 8, 9], "age": [30.0, None, 50.0], "region": ["a", "b", "elsewhere"]}
    with pytest.raises(svrhmc.DataError, match="missing='nan'"):
        churn.predict(new)
    with pytest.raises(svrhmc.DataError, match="new_levels='nan'"):
        churn.predict(new, missing="drop")
    alone = churn.predict({"age": [30.0], "region": ["a"]})
    filled = churn.predict(new, missing="nan", new_levels="nan")
    assert filled.mean[0] == alone.mean[0]
    assert np.isnan(filled.mean[1:]).all()
    assert filled.quantiles.shape == (3, 3)
    dropped = churn.predict(new, missing="drop", new_levels="nan").to_frame(keep=["id"])
    assert dropped.index.tolist() == [0, 2]
    assert dropped["id"].tolist() == [7, 9]
    assert list(dropped)[:2] == ["id", "mean"]
    assert not any(name.startswith("new") for name in dropped)
    assert np.isnan(churn.predict({"age": [None], "region": ["a"]}, missing="nan").mean).all()
    for word, value in {"missing": "skip", "new_levels": "draw"}.items():
        with pytest.raises(ValueError, match=f"{word} must be"):
            churn.predict(new, **{word: value})
    with pytest.raises(ValueError, match="names no prediction has"):
        churn.predict({**CUSTOMERS, "mean": [0] * 12}).to_frame(keep=True)
    with pytest.raises(svrhmc.DataError, match="no row is without missing values"):
        churn.predict({"age": [None], "region": ["a"]}, missing="drop")


def test_predictions_have_the_index_of_the_table(churn):
    pandas = pytest.importorskip("pandas")
    new = {"id": [7, 8, 9], "age": [30.0, np.nan, 50.0], "region": ["a", "b", "c"]}
    table = pandas.DataFrame(new, index=["anna", "ben", "cleo"])
    all_rows = churn.predict(table, missing="nan")
    table["risk"] = all_rows.to_frame()["mean"]
    assert table["risk"].tolist() == pytest.approx(all_rows.mean.tolist(), nan_ok=True)
    assert not np.isnan(table["risk"]["cleo"])
    assert str(all_rows).splitlines()[3].startswith("cleo")
    dropped = churn.predict(table, missing="drop").to_frame(keep=["id"])
    assert dropped.index.tolist() == ["anna", "cleo"]
    assert dropped["id"].tolist() == [7, 9]
    backwards = churn.predict(table[::-1], missing="drop").to_frame()["mean"]  # an index that is in no order
    assert backwards["cleo"] == pytest.approx(table["risk"]["cleo"])
    assert churn.predict(new, missing="drop").to_frame().index.tolist() == [0, 2]  # a dictionary has no index


def test_an_unknown_level_is_refused_by_the_number_of_its_row_in_the_table(churn):
    new = {"age": [None, None, 30.0, 50.0], "region": ["a", "a", "b", "elsewhere"]}
    for missing in ("drop", "nan"):
        with pytest.raises(svrhmc.DataError, match=r"'region' has 'elsewhere' in row 3, which"):
            churn.predict(new, missing=missing)


def test_an_option_for_the_other_kind_of_new_levels_is_refused(churn):
    with pytest.raises(svrhmc.DataError, match=r"got 'average': new levels of 'region' follow new_levels"):
        churn.predict({"age": [30.0], "region": ["a"]}, new_groups="average")
    groups = svrhmc.fit("left ~ age + (1 | region)", CUSTOMERS, draws=100, certificate=False)
    for word in ("nan", "average"):
        with pytest.raises(svrhmc.DataError, match=r"got '\w+': new levels of 'region' follow new_groups"):
            groups.predict({"age": [30.0], "region": ["elsewhere"]}, new_levels=word)
    line = svrhmc.fit("left ~ age", CUSTOMERS, draws=100, certificate=False)
    assert len(line.predict({"age": [30.0]}, new_levels="nan", new_groups="average").mean) == 1  # nothing can be new


def test_a_new_level_is_the_mean_of_the_linear_predictors_of_the_others(churn):
    from scipy.special import expit, logit

    at = [next(churn.predict_draws({"age": [50.0], "region": [level]})).mean[:, 0] for level in "abc"]
    prediction = churn.predict({"age": [50.0], "region": ["elsewhere"]}, new_levels="average")
    np.testing.assert_allclose(prediction.mean[0], expit(np.mean(logit(at), axis=0)).mean(), rtol=1e-9)
    assert abs(prediction.mean[0] - np.mean(at)) > 1e-4  # the mean of the probabilities is another number
