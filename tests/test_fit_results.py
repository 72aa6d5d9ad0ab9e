"""What a fit offers besides coefficients: ratios, draws and predictions as tables, exposures, known noise, and errors
that say what to do.
"""

import numpy as np
import pandas as pd
import pytest

import svrhmc
from simulated_data import events
from svrhmc.core.errors import DataError
from svrhmc.targets.priors import Normal

N = 400


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    age, plan = rng.uniform(20, 70, N), rng.choice(["basic", "family", "pro"], N)
    months = rng.uniform(1, 24, N)
    t = 1 - 0.05 * age + (plan == "pro")
    return pd.DataFrame(
        {
            "age": age,
            "plan": plan,
            "months": months,
            "churn": np.where(events(rng, t), "yes", "no"),
            "visits": rng.poisson(months * np.exp(-2 + 0.01 * age)),
            "spend": 300 + 2 * age + rng.normal(0, 50, N),
        }
    )


@pytest.fixture(scope="module")
def churn(table):
    return svrhmc.fit("churn ~ age + plan", table)


def test_ratios_are_the_quantiles_of_e_to_the_coefficients(churn):
    found = churn.ratios(level=0.5)
    assert found.names == ("age", "plan[family]", "plan[pro]")
    assert list(found.columns) == ["odds ratio", "25%", "75%"]
    assert np.log(found["75%"]) == pytest.approx(churn.quantile(0.75)[1:])
    assert "compared with plan[basic]" in str(found)


def test_ratios_leave_out_intercepts_and_shared_parameters_and_need_a_logarithm(table):
    counts = svrhmc.fit("visits ~ age", table, "negative-binomial", exposure="months")
    assert counts.ratios().names == ("age",)
    assert next(iter(counts.ratios().columns)) == "ratio of means"
    with pytest.raises(ValueError, match="of a family with a logit or log link, to have ratios; got 'gaussian'"):
        svrhmc.fit("spend ~ age", table).ratios()


def test_a_probit_is_not_said_to_be_about_log_odds(table, tmp_path):
    posterior = svrhmc.fit("churn ~ age", table, family=svrhmc.families.bernoulli("probit"))
    posterior.save(tmp_path / "probit.posterior")
    for one in (posterior, svrhmc.Posterior.load(tmp_path / "probit.posterior")):
        assert "family 'bernoulli' with the probit link" in str(one.summary())
        with pytest.raises(ValueError, match="to have ratios; got 'bernoulli' with the probit link"):
            one.ratios()
    posterior.report(tmp_path / "probit.html")
    page = (tmp_path / "probit.html").read_text()
    assert "log odds" not in page
    assert "the probit Φ⁻¹(p) of the probability p of churn = yes" in page


def test_draws_are_a_frame_with_names(churn):
    frame = churn.draws_frame()
    chains, draws, dim = churn.trace.draws.shape
    assert frame.shape == (chains * draws, 2 + dim)
    one = frame[(frame["chain"] == 1) & (frame["draw"] == 3)]
    assert one.iloc[0, 2:].to_numpy() == pytest.approx(churn.trace.draws[1, 3])


def test_predictions_are_printed_and_framed(churn, table):
    prediction = churn.predict(table.head(3), levels=(0.05, 0.95))
    assert list(prediction.to_frame().columns) == ["mean", "sd", "5%", "95%"]  # a new label is 0 or 1, and says nothing
    assert prediction.to_frame()["mean"].to_numpy() == pytest.approx(prediction.mean)
    assert len(str(prediction).splitlines()) == 4
    numbers = svrhmc.fit("spend ~ age", table).predict(table.head(3))
    assert list(numbers.to_frame().columns)[-1] == "new 95%"
    classes = svrhmc.fit("plan ~ age", table, draws=100).predict(table.head(2))
    assert list(classes.to_frame().columns) == ["basic", "family", "pro"]
    assert classes.to_frame().to_numpy().sum(axis=1) == pytest.approx(1)


def test_an_exposure_is_an_offset_of_its_logarithm(table, tmp_path):
    given = svrhmc.fit("visits ~ age", table, exposure="months")
    plain = svrhmc.fit("visits ~ age", table, offset=np.log(table["months"]))
    without = svrhmc.fit("visits ~ age", table)
    assert given.mean == pytest.approx(plain.mean, rel=1e-12)
    assert abs(given.mean[0] - without.mean[0]) > 1
    given.save(tmp_path / "fit.posterior")
    for posterior in (given, svrhmc.Posterior.load(tmp_path / "fit.posterior")):
        expected = plain.predict(table.head(4), offset=np.log(table["months"].head(4)))
        assert posterior.predict(table.head(4)).mean == pytest.approx(expected.mean, rel=1e-12)
    half = svrhmc.fit("visits ~ age", table, exposure=table["months"].to_numpy() / 2, offset=np.full(N, np.log(2.0)))
    assert half.mean == pytest.approx(plain.mean, rel=1e-8)
    with pytest.raises(ValueError, match="exposure must be above 0 in every row; got 0"):
        svrhmc.fit("visits ~ age", table.assign(months=0.0), exposure="months")


def test_known_noise_is_that_of_generalised_least_squares(table):
    """With a flat prior: (XᵀX)⁻¹Xᵀy, with covariance v(XᵀX)⁻¹; another v gives another sd."""
    v = 2500.0
    posterior = svrhmc.fit("spend ~ age", table, noise_variance=v, prior=svrhmc.targets.priors.Flat())
    X = np.column_stack([np.ones(N), table["age"]])
    cov = v * np.linalg.inv(X.T @ X)
    assert posterior.names == ("Intercept", "age")
    assert posterior.mean == pytest.approx(cov @ X.T @ table["spend"].to_numpy() / v, rel=1e-8)
    assert posterior.sd == pytest.approx(np.sqrt(np.diag(cov)), rel=1e-8)
    twice = svrhmc.fit("spend ~ age", table, noise_variance=4 * v, prior=svrhmc.targets.priors.Flat())
    assert twice.sd == pytest.approx(2 * posterior.sd, rel=1e-8)
    assert "log σ" not in svrhmc.fit("spend ~ age", table, noise_variance=v).prior.said
    with pytest.raises(ValueError, match="noise_variance must be None for LogisticLoss"):
        svrhmc.fit("churn ~ age", table, noise_variance=1.0)


def test_the_prior_of_a_category_is_that_of_its_levels(table):
    by_term = {"plan": Normal.with_sd(0.1), "plan[pro]": Normal(1.0)}
    by_level = {"plan[family]": Normal(100.0), "plan[pro]": Normal(1.0)}
    both = [svrhmc.fit("churn ~ age + plan", table, prior=prior, draws=100) for prior in (by_term, by_level)]
    assert both[0].mean == pytest.approx(both[1].mean, rel=1e-12)
    with pytest.raises(ValueError, match="got 'pla'"):
        svrhmc.fit("churn ~ age + plan", table, prior={"pla": Normal(1.0)})


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%Y-%m-%d %H:%M"])
def test_texts_that_are_dates_are_refused(table, form):
    days = (pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(N) % 90, "D")).strftime(form)
    with pytest.raises(DataError, match=r"'joined' holds 90 different dates as texts.*days since the first one"):
        svrhmc.fit("churn ~ joined", table.assign(joined=np.asarray(days, object)))
    codes = np.asarray([f"{k}-{k}" for k in np.arange(N) % 90], object)
    assert svrhmc.fit("spend ~ joined", table.assign(joined=codes)).names[1] == "joined[1-1]"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_draws": 3}, r"a keyword of fit must be one of 'family', .*'draws'.*; got 'n_draws'"),
        ({"family": "normal"}, "did you mean 'gaussian'"),
        ({"family": "linear"}, "did you mean 'gaussian'"),
        ({"family": "logistic"}, "did you mean 'bernoulli'"),
        ({"family": "t"}, "did you mean 'student-t'"),
        ({"family": "nb"}, "did you mean 'negative-binomial'"),
        ({"family": "probit"}, r"it is a link: take svrhmc\.families\.bernoulli\('probit'\)"),
    ],
)
def test_keywords_and_families_that_are_none_are_refused_with_those_there_are(table, given, said):
    with pytest.raises(ValueError, match=said):
        svrhmc.fit("spend ~ age", table, **given)


def test_a_path_is_no_table():
    with pytest.raises(DataError, match=r"got str: read the file first, as pandas\.read_csv does"):
        svrhmc.fit("churn ~ age", "customers.csv")


def test_the_prior_is_said_for_the_family_at_hand(churn, table):
    assert "sd(y)" not in churn.prior.said
    assert "log σ ~ N(log sd(y), 5²)" in svrhmc.fit("spend ~ age", table).prior.said


def test_effects_say_what_they_are_on(churn, table):
    assert str(churn.effects(rows=50, draws=50)).startswith(
        "Average marginal effects on the probability of churn = yes"
    )
    spend = svrhmc.fit("spend ~ age", table).effects(rows=50, draws=50)
    assert str(spend).startswith("Average marginal effects on the mean of spend")
