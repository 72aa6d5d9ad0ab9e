"""Priors of spreads and shapes: stated for σ itself, sampled as log σ, and said in the summary."""

import numpy as np
import pytest
from scipy import stats

import svrhmc
from conftest import LIMIT
from svrhmc.fitting import regress
from svrhmc.targets import glm
from svrhmc.targets.priors import (
    Exponential,
    Flat,
    HalfCauchy,
    HalfNormal,
    HalfStudentT,
    Laplace,
    Normal,
    StudentT,
    settle,
)

LAWS = {
    HalfNormal(0.7): stats.halfnorm(scale=0.7),
    HalfCauchy(0.3): stats.halfcauchy(scale=0.3),
    Exponential(2.5): stats.expon(scale=1 / 2.5),
    HalfStudentT(4.0, 1.7): stats.t(4.0, scale=1.7),  # of which only what is above 0 is looked at
}
TAU = np.linspace(-9.0, 6.0, 61)


def log_density(law, tau):
    """Of τ = log σ: that of σ, and log dσ/dτ = τ."""
    return law.logpdf(np.exp(tau)) + tau


@pytest.mark.parametrize("prior", LAWS)
def test_the_density_of_the_logarithm_is_scipys_by_the_change_of_variables(prior):
    heavy = settle(prior, 1, positive=True).heavy
    x = TAU[:, None]
    assert np.ptp(heavy.value(x) + log_density(LAWS[prior], TAU)) < 1e-10
    assert np.ptp(heavy.value(x) + LAWS[prior].logpdf(np.exp(TAU))) > 1  # without the Jacobian it is another law
    slope = (heavy.values(x + 1e-6) - heavy.values(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(heavy.slope(x), slope, rtol=1e-6, atol=1e-6)
    bend = (heavy.slope(x + 1e-6) - heavy.slope(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(heavy.curvature(x), bend, rtol=1e-6, atol=1e-6)
    least, most = heavy.bounds(1)
    assert ((heavy.curvature(x) >= least) & (heavy.curvature(x) <= most + 1e-12)).all()
    assert least == 0  # log-concave in log σ
    grid = np.linspace(-40.0, 12.0, 200_001)
    weights = np.exp(log_density(LAWS[prior], grid))
    mean = np.average(grid, weights=weights)
    sd = np.sqrt(np.average((grid - mean) ** 2, weights=weights))
    assert prior.spread == pytest.approx((mean, sd), rel=2e-3)


@pytest.mark.parametrize("prior", LAWS)
def test_jax_has_the_same_slopes(prior):
    from svrhmc.engines.jax.rows import prior_arrays, prior_slopes

    form = glm(np.ones((3, 1)), [1.0, 2.0, 4.0], "gaussian", shared_prior=prior).form()
    x = np.array([[0.3, -1.0], [0.3, 2.0]])
    np.testing.assert_allclose(np.asarray(prior_slopes(prior_arrays(form), x)), form.heavy.slope(x), rtol=1e-5)


def moments(log_posterior, first, second):
    """Mean and sd of both coordinates, on a grid."""
    a, tau = np.meshgrid(first, second, indexing="ij")
    log = log_posterior(a, tau)
    weights = np.exp(log - log.max())
    mean = np.array([np.average(each, weights=weights) for each in (a, tau)])
    sd = np.sqrt([np.average((each - m) ** 2, weights=weights) for each, m in zip((a, tau), mean, strict=True)])
    return mean, sd


Y = np.array([1.3, 2.9, 2.2, 4.1])


@pytest.mark.parametrize("prior", LAWS)
@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_a_prior_of_sigma_is_in_the_units_of_y_and_its_posterior_that_of_quadrature(prior, unit):
    """Four rows, so that the prior counts; with y in other units, and the prior in the same, log σ is shifted."""
    numbers = {name: value * (1 / unit if name == "rate" else unit if name == "scale" else 1) for name, value in vars(prior).items()}  # fmt: skip
    scaled = type(prior)(**numbers)
    law = LAWS[prior]
    home = Normal.with_sd(2.0, mean=1.0)
    given = {"Intercept": Normal.with_sd(2.0 * unit, mean=unit), "sigma": scaled}
    posterior = svrhmc.fit("y ~ 1", {"y": Y * unit}, "gaussian", prior=given, draws=200)
    assert posterior.method == "closed-form"

    def log_posterior(mu, tau):
        rows = stats.norm(mu[..., None], np.exp(tau)[..., None]).logpdf(Y).sum(axis=-1)
        return rows - 0.5 * home.precision * (mu - 1.0) ** 2 + log_density(law, tau)

    mean, sd = moments(log_posterior, np.linspace(-12, 16, 801), np.linspace(-4, 6, 801))
    np.testing.assert_allclose(posterior.mean, [mean[0] * unit, mean[1] + np.log(unit)], rtol=1e-5)
    np.testing.assert_allclose(posterior.sd, [sd[0] * unit, sd[1]], rtol=1e-4)
    weak = svrhmc.fit("y ~ 1", {"y": Y * unit}, "gaussian", draws=50)
    assert abs(weak.mean[1] - posterior.mean[1]) > 0.01  # the control: another prior is another posterior


COUNTS = np.array([0, 9, 1, 4, 0, 2])
AMOUNTS = np.array([0.4, 9.0, 1.0, 4.0, 0.7, 2.0])
SAMPLED = {
    "negative-binomial": (COUNTS, lambda a, tau, y: stats.nbinom(np.exp(tau), 1 / (1 + np.exp(a - tau))).logpmf(y), "shape"),
    "gamma": (AMOUNTS, lambda a, tau, y: stats.gamma(np.exp(tau), scale=np.exp(a - tau)).logpdf(y), "shape"),
    "student-t": (AMOUNTS, lambda a, tau, y: stats.t(4.0, a, np.exp(tau)).logpdf(y), "scale"),
}  # fmt: skip


@pytest.mark.parametrize(
    "family",
    [
        "negative-binomial",
        pytest.param("gamma", marks=pytest.mark.slow),
        pytest.param("student-t", marks=pytest.mark.slow),
    ],
)
def test_a_prior_of_a_shape_or_a_scale_is_sampled_exactly(family):
    """By a compiled sampler; a half-Cauchy and an exponential prior give other posteriors, beyond chance."""
    y, row, name = SAMPLED[family]
    first, second = np.linspace(-8, 14, 561), np.linspace(-7, 7, 561)
    found, expected = {}, {}
    for prior in (HalfCauchy(0.5), Exponential(3.0)):
        given = {"Intercept": Normal.with_sd(1.5, mean=0.5), name: prior}
        found[prior] = svrhmc.fit("y ~ 1", {"y": y}, family, prior=given, draws=1000)

        def log_posterior(a, tau, prior=prior):
            rows = row(a[..., None], tau[..., None], y).sum(axis=-1)
            return rows - 0.5 * (a - 0.5) ** 2 / 1.5**2 + log_density(LAWS_OF[prior], tau)

        expected[prior] = moments(log_posterior, first, second)
    for prior, posterior in found.items():
        errors = posterior.errors
        for other, (mean, sd) in expected.items():
            z = np.concatenate([(posterior.mean - mean) / errors[0], (posterior.sd - sd) / errors[1]])
            assert (np.abs(z).max() < LIMIT) == (prior is other), (prior, other, z)
    assert f"{name} ~ HalfCauchy(scale=0.5)" in found[HalfCauchy(0.5)].prior.said


LAWS_OF = {HalfCauchy(0.5): stats.halfcauchy(scale=0.5), Exponential(3.0): stats.expon(scale=1 / 3)}


def test_the_closed_form_is_used_only_where_it_is_one():
    X = np.column_stack([np.ones(4), [0.0, 1.0, 2.0, 3.0]])
    assert glm(X, Y, "gaussian", shared_prior=HalfNormal(2.0)).exact_law is not None
    assert glm(X, Y, "gaussian", shared_prior=StudentT(3.0)).exact_law is None  # log σ may have two modes
    assert glm(X, Y, "gaussian", prior=Laplace(1.0), shared_prior=HalfNormal(2.0)).exact_law is None


def test_a_spread_that_rounding_alone_would_decide_is_refused():
    """No row leaves a residual, and a prior whose density is above 0 at σ = 0 does not keep σ away from it."""
    X = np.column_stack([np.ones(6), np.arange(6.0)])
    with pytest.raises(ValueError, match="labels that leave residuals") as caught:
        glm(X, 2 + 3 * X[:, 1], "gaussian", shared_prior=HalfNormal(1.0))
    assert "a normal prior of log σ" in str(caught.value)
    assert glm(X, 2 + 3 * X[:, 1], "gaussian", shared_prior=Normal(1.0)).exact_law is not None


@pytest.mark.parametrize("family", ["student-t", "gamma"])
def test_the_advice_for_labels_without_residuals_is_one_that_the_family_accepts(family):
    X = np.column_stack([np.ones(6), np.arange(6.0)])
    y = 2 + 3 * X[:, 1] if family == "student-t" else np.exp(0.2 + 0.3 * X[:, 1])
    with pytest.raises(ValueError, match="labels that leave residuals") as caught:
        glm(X, y, family, shared_prior=Flat())
    assert "noise_variance" not in str(caught.value)
    advised = glm(X, y, "gaussian") if family == "student-t" else glm(X[:, :1], y, family)
    assert ("take the family 'gaussian'" in str(caught.value)) == (family == "student-t")
    assert np.isfinite(advised.mode()).all()


TABLE = {"y": Y, "x": np.array([0.0, 1.0, 1.0, 3.0])}


@pytest.mark.parametrize(
    ("prior", "said", "unsaid"),
    [
        (None, ["log σ ~ N(log sd(y), 5²)", "the intercept, at the means of the columns, ~ N(mean of y, (5·sd(y))²)"], []),
        (
            Normal.with_sd(2.0),
            ["every coefficient ~ N(0, 2²)", "the intercept, at the means of the columns, ~ N(2.625, 5.116²) unless prior={'Intercept': …} gives it", "log sigma ~ N(0.0229, 5²) unless prior={'sigma': …} gives it"],
            [],
        ),
        (Flat(), ["the intercept, at the means of the columns, flat unless"], []),
        ({"x": Normal(1.0)}, ["other coefficients have weak ones", "the intercept, at", "log sigma ~ N("], []),
        (
            {"Intercept": Normal.with_sd(2.0), "sigma": HalfNormal(2.0)},
            ["sigma ~ HalfNormal(scale=2.0)"],
            ["the intercept, at", "log sigma ~"],
        ),
        ({"log sigma": Normal(4.0, mean=1.0)}, ["log sigma ~ N(1, 0.5²)"], ["unless prior={'sigma'"]),
    ],
)  # fmt: skip
def test_the_summary_says_every_prior(prior, said, unsaid):
    whole = " ".join(str(svrhmc.fit("y ~ x", TABLE, "gaussian", prior=prior, draws=40).summary()).split())
    for part in said:
        assert part in whole
    for part in unsaid:
        assert part not in whole


def test_the_summary_says_the_prior_of_a_shape():
    posterior = svrhmc.fit("y ~ 1", {"y": COUNTS}, "negative-binomial", draws=40)
    assert "log shape ~ N(0, 2²)" in posterior.prior.said


def test_a_prior_of_log_sigma_is_used():
    posterior = svrhmc.fit("y ~ x", TABLE, "gaussian", prior={"log sigma": Normal(1e8, mean=-3.0)}, draws=40)
    assert posterior.mean[2] == pytest.approx(-3.0, abs=1e-3)
    loose, tight = (
        regress(TABLE["x"][:, None], Y, prior={"sigma": HalfNormal(s)}, draws=40).mean[2] for s in (1, 0.01)
    )
    assert tight < loose - 1


def test_a_column_of_the_name_of_a_parameter_comes_first():
    posterior = svrhmc.fit(
        "y ~ sigma", {"y": Y, "sigma": TABLE["x"]}, "gaussian", prior={"sigma": Normal(1e8)}, draws=40
    )
    assert abs(posterior.mean[1]) < 0.01
    assert posterior.mean[2] == pytest.approx(np.log(1.0), abs=1.0)


@pytest.mark.parametrize(
    ("prior", "family", "message"),
    [
        (HalfNormal(), "gaussian", "the prior of a coefficient must be one of numbers of either sign; got HalfNormal(scale=1.0)"),
        ({"x": Exponential()}, "gaussian", "such a prior is one of a positive parameter of the family, such as 'sigma'"),
        ({"Intercept": HalfCauchy()}, "gaussian", "the prior of a coefficient must be one of numbers of either sign"),
        ({"log sigma": HalfNormal()}, "gaussian", "the prior of 'log sigma' must be one of numbers of either sign; got HalfNormal(scale=1.0): it is one of 'sigma'"),
        ({"sigma": Normal()}, "gaussian", "the prior of 'sigma' must be HalfNormal, HalfStudentT, HalfCauchy or Exponential; got Normal("),
        ({"sigma": HalfNormal(), "log sigma": Normal()}, "gaussian", "prior must be of 'sigma' or of 'log sigma'; got both"),
        ({"sigma": HalfNormal()}, "student-t", "prior must be by the names of the columns (x) or Intercept, log scale, scale; got 'sigma'"),
    ],
)  # fmt: skip
def test_priors_of_the_wrong_parameter_are_refused(prior, family, message):
    with pytest.raises(ValueError, match="must be") as caught:
        svrhmc.fit("y ~ x", TABLE, family, prior=prior)
    assert message in str(caught.value)


@pytest.mark.parametrize("make", [HalfNormal, HalfCauchy, Exponential, lambda s: HalfStudentT(3.0, s), HalfStudentT])
def test_settings_of_priors_are_checked(make):
    for wrong in (0.0, -1.0, np.inf, "1"):
        with pytest.raises((ValueError, TypeError), match="must be"):
            make(wrong)
    with pytest.raises(ValueError, match="it is one of a positive parameter that rows share: give it as shared_prior"):
        glm(np.ones((4, 1)), Y, "gaussian", prior=HalfNormal())
