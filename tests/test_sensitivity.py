"""`posterior.sensitivity()`: power scaling of prior and likelihood, beside ArviZ and beside posteriors in closed form."""

import warnings

import numpy as np
import pytest
from scipy import stats

import svrhmc
from svrhmc.results.psis import smoothed_log_weights
from svrhmc.results.sensitivity import distance
from svrhmc.targets.priors import HalfNormal, Horseshoe, Normal

RNG = np.random.default_rng(0)
N = 80
TABLE = {"y": RNG.poisson(3, N), "x": RNG.normal(size=N), "g": RNG.choice(list("abcdef"), N)}


@pytest.mark.parametrize("formula", ["y ~ x", "y ~ x + (1 | g)"])
def test_it_is_that_of_arviz(formula):
    az = pytest.importorskip("arviz")
    prior = {"x": Normal.with_sd(0.1, 0.3)} | ({"1 | g": HalfNormal(0.2)} if "|" in formula else {})
    posterior = svrhmc.fit(formula, TABLE, "poisson", prior=prior, draws=300)
    ours = posterior.sensitivity(draws=10**6)
    data = posterior.to_arviz(log_likelihood=True)
    for component in ("prior", "likelihood"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = az.psens(data, component=component)
        values = {name: float(theirs[name]) for name in ("Intercept", "x")}
        if "|" in formula:
            values["sd(1 | g)"] = float(theirs["1|g_sigma"] if "1|g_sigma" in theirs else theirs["sd(1 | g)"])
        for name, value in values.items():
            np.testing.assert_allclose(ours[component][ours.names.index(name)], value, rtol=1e-6, err_msg=name)
    assert ours["prior"][ours.names.index("x")] > 0.05


def test_a_normal_mean_moves_as_its_closed_form_does():
    """y ~ N(x, 1), x ~ N(m, s²): raising the prior to α moves mean and variance in closed form; the distance of two
    normal laws by quadrature.
    """
    n, m, s = 20, 0.8, 0.3
    y = RNG.normal(size=n)
    target = svrhmc.targets.linear(np.ones((n, 1)), y, prior_precision=1 / s**2, prior_mean=m)
    posterior = svrhmc.sample(target, draws=4000)
    found, edge = posterior.sensitivity(draws=10**6), 0.56 / posterior.trace.draws[..., 0].size

    def law(of_prior, of_data):
        precision = of_prior / s**2 + of_data * n
        return stats.norm((of_prior * m / s**2 + of_data * y.sum()) / precision, precision**-0.5)

    base, step = law(1, 1), 0.01
    grid = np.linspace(*base.ppf([edge, 1 - edge]), 200_001)

    def apart(other):
        sides = []
        for F, G in ((base.cdf(grid), other.cdf(grid)), (base.sf(grid), other.sf(grid))):
            middle = np.log2((F + G) / 2)
            parts = F * (np.log2(F) - middle) + G * (np.log2(G) - middle)
            sides.append(np.sqrt(np.trapezoid(parts, grid) / np.trapezoid(F + G, grid)))
        return max(sides)

    for name, laws in (("prior", lambda a: law(a, 1)), ("likelihood", lambda a: law(1, a))):
        exact = sum(apart(laws(a)) for a in (1 / (1 + step), 1 + step)) / (2 * np.log2(1 + step))
        wrong = sum(apart(laws(a)) for a in (1 / (1 + 2 * step), 1 + 2 * step)) / (2 * np.log2(1 + step))
        assert abs(found[name][0] / exact - 1) < 0.15
        assert abs(found[name][0] / wrong - 1) > 0.3  # negative control: another power


def test_sentences_are_there_where_it_matters():
    def text(table, prior=None):
        return " ".join(str(svrhmc.fit("y ~ x", table, "gaussian", prior=prior, draws=400).sensitivity()).split())

    x = RNG.normal(size=100)
    told = {"x": x, "y": 2 * x + RNG.normal(size=100)}
    assert "No coordinate moves much with its prior" in text(told)
    assert "contradict each other in x" in text(told, {"x": Normal.with_sd(0.3, 1.0)}).replace("Intercept, ", "")
    same = {"x": x, "y": RNG.normal(size=100)}
    assert "The prior counts" in text(same, {"x": Normal.with_sd(0.01)})


def test_parts_are_what_they_are_said_to_be():
    draws = RNG.normal(size=400)
    assert distance(draws, np.ones(400)) < 0.01
    assert distance(np.zeros(400), np.ones(400)) == 0.0
    moved = np.exp(draws)
    assert 0.1 < distance(draws, moved) < 1
    weights = smoothed_log_weights(5 * draws).log_weights
    assert weights.max() <= 1e-12
    assert (np.argsort(weights, kind="stable")[:300] == np.argsort(draws, kind="stable")[:300]).all()


def test_what_has_no_such_prior_is_refused(tmp_path):
    posterior = svrhmc.fit("y ~ x", TABLE, "poisson", draws=50)
    posterior.save(tmp_path / "a.posterior")
    with pytest.raises(ValueError, match="fit again, or keep the posterior in memory"):
        svrhmc.Posterior.load(tmp_path / "a.posterior").sensitivity()
    shrunk = svrhmc.fit(
        "y ~ x + z",
        {**TABLE, "y": RNG.normal(size=N), "z": RNG.normal(size=N)},
        "gaussian",
        prior=Horseshoe(expected=1),
        draws=50,
    )
    with pytest.raises(ValueError, match="whose coordinates have priors of their own"):
        shrunk.sensitivity()
    with pytest.raises(ValueError, match="draws must be"):
        posterior.sensitivity(draws=3)
