"""Posteriors as ArviZ keeps them: names, groups, and numbers that agree with the model."""

from dataclasses import replace

import arviz as az
import numpy as np
import pytest

import svrhmc
from svrhmc import Posterior, sample, targets
from svrhmc.results import arviz
from svrhmc.targets.priors import Laplace, Normal, StudentT

N = 120
LATER = int(az.__version__.split(".")[0]) >= 1  # the version of ArviZ that is installed
sensitivity = az.psense if LATER else az.psens
pytestmark = pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")  # few draws, for few rows


@pytest.fixture(scope="module", autouse=True)
def arviz_interpreted():
    """Functions of ArviZ 0.23 are not compiled, which takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        if not LATER:
            patch.setattr(az.utils.Numba, "numba_flag", False)
        yield


def elpd(data):
    found = az.loo(data)
    return found.elpd if LATER else found.elpd_loo


def table():
    rng = np.random.default_rng(0)
    plan = rng.choice(["basic", "max", "pro"], N)
    age = rng.uniform(20, 70, N)
    y = age / 10 + (plan == "pro") + rng.normal(size=N)
    return {"y": y, "age": age, "plan": plan, "member": rng.random(N) < 0.5}


@pytest.fixture(scope="module")
def fitted():
    return svrhmc.fit("y ~ plan + plan:member + poly(age, 2)", table(), draws=200, seed=4)


def test_terms_are_variables_and_levels_their_coordinates():
    found = svrhmc.fit("y ~ age + plan", table(), draws=200, seed=4)
    data = found.to_arviz()
    posterior = data["posterior"]
    assert set(posterior.data_vars) == {"Intercept", "age", "plan", "log sigma"}
    assert posterior["plan"].dims == ("chain", "draw", "plan_dim")
    assert list(posterior["plan_dim"].values) == ["max", "pro"]
    for k, name in enumerate(found.names):
        term, level = (name.split("[")[0], name.split("[")[1][:-1]) if "[" in name else (name, "")
        one = posterior[term].sel(plan_dim=level) if level else posterior[term]
        assert one.values == pytest.approx(found.trace.draws[:, :, k])
    summary = az.summary(data)
    assert set(summary.index) == set(found.names)
    assert data["constant_data"]["plan (column)"].values.tolist() == table()["plan"].tolist()
    assert data["observed_data"]["y"].values == pytest.approx(table()["y"])
    assert set(data.children if LATER else data.groups()) == {
        "posterior", "sample_stats", "log_prior", "observed_data", "constant_data",
    }  # fmt: skip


def test_interactions_and_polynomials_are_terms_too(fitted):
    posterior = fitted.to_arviz()["posterior"]
    names = {str(name) for name in posterior.data_vars}
    assert "poly(age, 2)" in names
    assert posterior["poly(age, 2)"].dims[-1] == "poly(age, 2)_dim"
    count = sum(int(np.prod(one.shape[2:])) for one in posterior.data_vars.values())
    assert count == len(fitted.names)
    assert az.loo(fitted.to_arviz(log_likelihood=True)).n_data_points == N
    assert (sensitivity(fitted.to_arviz())["poly(age, 2)"].values >= 0).all()


def test_without_a_design_coefficients_are_coordinates():
    rng = np.random.default_rng(1)
    posterior = sample(targets.linear(rng.normal(size=(40, 2)), rng.normal(size=40)), draws=40)
    x = posterior.to_arviz()["posterior"]["x"]
    assert x.dims == ("chain", "draw", "coefficient")
    assert x.values == pytest.approx(posterior.trace.draws)
    named = svrhmc.fitting.regress(rng.normal(size=(40, 1)), rng.normal(size=40), names=["dose"], draws=40).to_arviz()
    assert list(named["posterior"]["coefficient"].values) == ["Intercept", "dose", "log sigma"]
    chains, draws, _ = posterior.trace.draws.shape
    accepted = replace(posterior.trace, acceptance=np.linspace(0.5, 0.9, chains))
    stats = replace(posterior, trace=accepted).to_arviz()["sample_stats"]["acceptance_rate"]
    assert stats.values == pytest.approx(np.repeat(accepted.acceptance[:, None], draws, axis=1))
    assert accepted.to_arviz()["sample_stats"]["acceptance_rate"].values == pytest.approx(stats.values)
    # a column by the name of a dimension leaves no room for variables of their own
    data = {"y": rng.normal(size=40), "draw": rng.normal(size=40)}
    assert set(svrhmc.fit("y ~ draw", data, draws=40).to_arviz()["posterior"].data_vars) == {"x"}
    ratio = svrhmc.fit("y ~ I(draw/2)", data, draws=40).to_arviz()["posterior"]
    assert "I(draw ÷ 2)" in {str(n) for n in ratio.data_vars} or "I(draw÷2)" in {str(n) for n in ratio.data_vars}


@pytest.mark.parametrize("prior", [Normal(2.0, mean=0.3), StudentT(4.0, 0.5), Laplace(0.5)])
def test_the_log_prior_is_what_the_potential_has_beside_the_likelihood(prior):
    rng = np.random.default_rng(2)
    target = targets.glm(rng.normal(size=(30, 2)), rng.normal(size=30), targets.families.gaussian(1.0), prior=prior)
    x = rng.normal(size=(5, 2))
    form = target.form()
    likelihood = -form.values(form.predictors(x)).sum(axis=1)
    assert form.log_prior(x).sum(axis=1) == pytest.approx(-target.potentials(x) - likelihood, abs=1e-12)
    other = targets.glm(
        rng.normal(size=(30, 2)), np.zeros(30), targets.families.gaussian(1.0), prior=Normal(1.0)
    ).form()
    assert other.log_prior(x).sum(axis=1) != pytest.approx(form.log_prior(x).sum(axis=1), abs=0.1)


def test_rows_by_number_have_the_likelihood_they_have_among_all(fitted):
    whole = fitted.to_arviz(log_likelihood=True)["log_likelihood"]["y"]
    some = fitted.to_arviz(log_likelihood=True, posterior_predictive=True, rows=[7, 90, 3])
    assert list(some["log_likelihood"]["row"].values) == [7, 90, 3]
    assert some["log_likelihood"]["y"].values == pytest.approx(whole.values[:, :, [7, 90, 3]])
    assert some["observed_data"]["y"].values == pytest.approx(table()["y"][[7, 90, 3]])
    spread = fitted.to_arviz(log_likelihood=True, rows=40, seed=1)
    assert spread["log_likelihood"]["y"].shape[2] == 40
    assert N / 40 * elpd(spread) == pytest.approx(elpd(fitted.to_arviz(True)), rel=0.2)
    for rows in ([-1], [N], [0.5], 0):
        with pytest.raises(ValueError, match="rows must be"):
            fitted.to_arviz(rows=rows)


def test_observed_and_new_labels_are_of_one_kind():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 1)), rng.integers(0, 2, 60)
    target = targets.logistic(X, y)
    data = sample(target, draws=60).to_arviz(posterior_predictive=True)
    assert data["observed_data"]["y"].values == pytest.approx(y)
    assert set(np.unique(data["posterior_predictive"]["y"].values)) == {0, 1}
    assert data["observed_data"]["y"].dtype.kind == data["posterior_predictive"]["y"].dtype.kind == "i"
    assert set(target.form().y) == {-1.0, 1.0}  # the loss has them in its own way
    probit = targets.glm(X, y, targets.families.bernoulli("probit")).form()
    assert probit.loss.original_labels(probit.y) == pytest.approx(y)
    successes = rng.integers(0, 6, 60)
    tried = targets.glm(X, successes, "binomial", trials=5).form()
    assert tried.loss.original_labels(tried.y, tried.weights) == pytest.approx(successes)
    assert tried.y.max() <= 1.0


def test_classes_have_a_dimension_of_their_own():
    rng = np.random.default_rng(4)
    data = {"y": rng.choice(["a", "b", "c"], N), "plan": table()["plan"]}
    found = svrhmc.fit("y ~ plan", data, draws=100)
    posterior = found.to_arviz()["posterior"]
    assert posterior["plan"].dims == ("chain", "draw", "class", "plan_dim")
    assert list(posterior["class"].values) == ["b", "c"]
    one = posterior["plan"].sel({"class": "c", "plan_dim": "max"}).values
    assert one == pytest.approx(found.trace.draws[:, :, found.names.index("c: plan[max]")])


def test_a_posterior_from_a_file_has_its_draws_and_says_what_it_has_not(fitted, tmp_path):
    fitted.save(tmp_path / "fit.posterior")
    again = Posterior.load(tmp_path / "fit.posterior").to_arviz()
    assert again["posterior"]["plan"].values == pytest.approx(fitted.to_arviz()["posterior"]["plan"].values)
    assert dict(fitted.to_arviz().attrs)["inference_library"] == "svrhmc"
    assert dict(fitted.to_arviz().attrs)["verdict"].startswith("exact")
    with pytest.raises(ValueError, match="no file keeps the rows"):
        Posterior.load(tmp_path / "fit.posterior").to_arviz(log_likelihood=True)


@pytest.fixture(scope="module")
def results(fitted):
    """One of each door: a formula with numbers, with two classes and with three, counts, a target, and a run."""
    rng = np.random.default_rng(5)
    X, made = np.column_stack([np.ones(N), rng.normal(size=N)]), {"numbers": fitted}
    labels = {
        "events": rng.choice(["no", "yes"], N),
        "classes": rng.choice(["a", "b", "c"], N),
        "counts": rng.poisson(3, N),
    }
    for name, y in labels.items():
        made[name] = svrhmc.fit("y ~ age + plan", {**table(), "y": y}, draws=100, seed=4)
    made["target"] = sample(targets.logistic(X, labels["events"] == "yes"), draws=100)
    made["run"] = svrhmc.hmc(0.3).run(targets.logistic(X, labels["events"] == "yes"), 100)
    return made


KINDS = ("numbers", "events", "classes", "counts", "target", "run")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_of_draws_is_true(results, kind):
    """lp is log π but for a constant, in the variables that were sampled; what is not known is not there."""
    found, data = results[kind], results[kind].to_arviz()
    stats, trace = data["sample_stats"], found if kind == "run" else found.trace
    known = (
        {"passes"}
        | ({"lp"} if kind != "run" else set())
        | ({"acceptance_rate"} if trace.acceptance is not None else set())
    )
    assert set(stats.data_vars) == known
    assert (stats["passes"].values == trace.passes).all()
    assert dict(data.attrs)["inference_library_version"] == svrhmc.__version__
    assert dict(data.attrs)["seed"] == trace.seed
    if trace.acceptance is not None:
        assert (stats["acceptance_rate"].values == trace.acceptance[:, None]).all()
        assert trace.acceptance.min() > 0.3
    if kind == "run":
        return
    assert (trace.acceptance is None) == (found.sampler is None)  # split HMC, or a closed form
    whole = found.to_arviz(log_likelihood=True)
    total = sum(
        each.sum([d for d in each.dims if d not in ("chain", "draw")]) for each in whole["log_prior"].data_vars.values()
    )
    rows = whole["log_likelihood"]["y"].sum("row")
    apart = (stats["lp"] - total - rows).values
    assert apart == pytest.approx(np.full_like(apart, apart.mean()), abs=1e-8)
    assert (stats["lp"] - rows).values.std() > 1e-3  # the control: without the prior it is another
    assert str(dict(data.attrs)["verdict"]).startswith("exact")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")  # of ArviZ and Matplotlib
def test_arviz_draws_and_sums_up_every_kind_of_result(results, kind):
    """Whatever version is installed."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    found, run = results[kind], kind == "run"
    data = found.to_arviz() if run else found.to_arviz(log_likelihood=True, posterior_predictive=True)
    count = (found if run else found.trace).draws.shape[2]
    assert len(az.summary(data)) == count
    az.plot_forest(data)
    if kind in ("classes", "run"):  # the slow one
        az.plot_trace(data)
    if not run:
        assert az.loo(data).n_data_points == N
        prior, rows = (
            sensitivity(data, **{"group" if LATER else "component": part}) for part in ("prior", "likelihood")
        )
        assert set(prior.data_vars) == set(rows.data_vars) == set(data["posterior"].data_vars)
        (az.plot_ppc_dist if LATER else az.plot_ppc)(data, **{"num_samples" if LATER else "num_pp_samples": 3})
    if LATER and not run:
        assert len(az.psense_summary(data)) == count
        assert az.loo_subsample(data, observations=30).subsample_size == 30
        if kind == "counts":
            az.plot_ppc_rootogram(data)
        if len(data["posterior"].data_vars) > 1:  # with one, ArviZ 1.3 fails
            az.plot_psense_dist(data)
    pyplot.close("all")


def test_tall_data_have_fewer_draws_or_rows(results):
    found = results["events"]
    few, whole = found.to_arviz(log_likelihood=True, draws=40), found.to_arviz(log_likelihood=True)
    chains, draws, _ = found.trace.draws.shape
    places = np.linspace(0, draws - 1, 10).round().astype(int)
    assert few["posterior"]["age"].shape == (chains, 10)
    for group, name in (("posterior", "age"), ("log_prior", "age"), ("log_likelihood", "y"), ("sample_stats", "lp")):
        assert few[group][name].values == pytest.approx(whole[group][name].values[:, places], abs=1e-12)
    assert elpd(few) == pytest.approx(elpd(whole), rel=0.05)
    with pytest.raises(ValueError, match="draws must be a whole number of at least 1; got 0"):
        found.to_arviz(draws=0)


def test_log_densities_are_found_unasked_only_where_that_is_quick(results, monkeypatch, tmp_path):
    found = results["events"]
    monkeypatch.setattr(arviz, "_MOST_UNREQUESTED", N)
    monkeypatch.setattr(arviz, "_BLOCK_NUMBERS", 3 * N)  # some draws at a time
    assert "lp" not in found.to_arviz()["sample_stats"]
    assert "lp" not in found.to_arviz(lp=False)["sample_stats"]
    expected = -found._target.potentials(found.inner(1 << 20)).reshape(found.trace.draws.shape[:2])
    assert found.to_arviz(lp=True)["sample_stats"]["lp"].values == pytest.approx(expected, rel=1e-12)
    found.save(tmp_path / "fit.posterior")
    with pytest.raises(
        ValueError, match="lp must be None or False for this posterior; got True: no file keeps the rows"
    ):
        Posterior.load(tmp_path / "fit.posterior").to_arviz(lp=True)
    with pytest.raises(ValueError, match="lp must be True or False; got 'yes'"):
        found.to_arviz(lp="yes")


def test_a_target_that_has_no_potential_has_no_log_density():
    points = np.random.default_rng(6).normal(size=(20, 2))
    target = targets.custom(20, 2, lambda x, rows: x - points[rows])
    posterior = sample(target, draws=40)
    assert set(posterior.to_arviz()["sample_stats"].data_vars) <= {"passes", "acceptance_rate"}
    with pytest.raises(ValueError, match="its target has gradients alone"):
        posterior.to_arviz(lp=True)
