"""New rows with an old posterior as the prior: two halves of the data against all of it, and what does not fit is refused."""

import numpy as np
import pytest

import svrhmc
from svrhmc import targets
from svrhmc.core.errors import DataError
from svrhmc.fitting import regress
from svrhmc.priors.joint import joint_normal
from svrhmc.targets.priors import Normal


def table(n, draw, seed=0):
    rng = np.random.default_rng(seed)
    rows = {"x": rng.normal(30, 2, n), "z": rng.uniform(1, 2, n), "plan": rng.choice(["a", "b", "c"], n)}
    t = 0.4 * (rows["x"] - 30) - 0.7 * (rows["plan"] == "b") + 0.5 * rows["z"]
    return rows | {"y": draw(t, rng)}


def yes_or_no(t, rng):
    return np.where(rng.random(len(t)) < 1 / (1 + np.exp(-t)), "yes", "no")


def normal(t, rng):
    return t + rng.normal(size=len(t))


def some(rows, part):
    return {name: column[part] for name, column in rows.items()}


PRIOR = {"x": Normal(4.0), "z": Normal(4.0), "plan": Normal(1.0), "Intercept": Normal(0.1)}
FORMULA = "y ~ x*plan + poly(z, 2)"


def in_two_halves(rows, formula=FORMULA, **settings):
    """The same prior and columns for both: those that the first half has."""
    half = len(rows["y"]) // 2
    first = svrhmc.fit(formula, some(rows, slice(half)), **settings)
    return first, svrhmc.fit(formula, some(rows, slice(half, None)), prior=first, **settings)


def of_all_rows(first, rows, y, family):
    """The law of all rows under the prior of the first half, by the target itself: mean and covariance as they are
    reported; by a Gaussian law where it is one, else by 40,000 draws.
    """
    form, units = first.fitted(), first.units
    single = [Normal(p, mean=m) for p, m in zip(form.prior_precision, form.prior_mean, strict=True)]
    X = units.rows(first.design.rows(rows))
    target = targets.glm(
        X, y, family, prior=single, offset=None if form.offset is None else np.full(len(y), form.offset[0])
    )
    return target, units


def test_of_a_gaussian_with_known_noise_two_halves_are_the_whole_to_rounding(tmp_path):
    rows = table(300, normal)
    first, second = in_two_halves(rows, noise_variance=1.0, draws=200)
    target, units = of_all_rows(first, rows, rows["y"], first.model.loss)
    law = target.closed_form
    covariance = units.linear(units.linear(law.covariance).T)
    np.testing.assert_allclose(second.mean, units.outward(law.mean), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(second.covariance, covariance, rtol=1e-8, atol=1e-9 * covariance.max())
    assert second.method == "closed-form"
    assert "150 earlier rows" in second.prior.said
    assert "exactly known" in second.prior.said
    first.save(tmp_path / "first.posterior")
    again = svrhmc.fit(
        FORMULA, some(rows, slice(150, None)), prior=svrhmc.Posterior.load(tmp_path / "first.posterior"), draws=200
    )
    np.testing.assert_array_equal(again.mean, second.mean)


def test_of_yes_or_no_two_halves_are_the_whole_within_a_tenth_of_an_sd():
    """Chance alone makes 4.5·√(2/4000) = 0.1 sd of the means of 4,000 draws each, corrected means far less."""
    rows = table(2000, yes_or_no)
    first, second = in_two_halves(rows, "y ~ x + plan + z", draws=4000)
    target, units = of_all_rows(first, rows, (rows["y"] == "yes") * 1.0, "bernoulli")
    whole = svrhmc.sample(target, draws=4000)
    mean, covariance = units.outward(whole.mean), units.linear(units.linear(np.cov(whole.trace._flat().T)).T)
    sd = np.sqrt(np.diag(covariance))
    assert np.abs((second.mean - mean) / sd).max() < 0.1
    assert np.abs(second.sd / sd - 1).max() < 0.05
    assert "skewness and tails are left out" in str(second.summary()).replace("\n", " ")
    alone = svrhmc.fit(
        "y ~ x + plan + z", some(rows, slice(1000, None)), draws=400
    )  # the control: without the first half
    assert np.abs((alone.mean - mean) / sd).max() > 0.5


def test_unknown_noise_is_carried_with_the_coefficients():
    first, second = in_two_halves(table(600, normal), "y ~ x + plan", draws=2000)
    whole = svrhmc.fit("y ~ x + plan", table(600, normal), draws=2000)
    assert np.abs((second.mean - whole.mean) / whole.sd).max() < 0.15
    assert second.names == first.names
    assert second.method != "closed-form"  # which knows no coupled prior


def test_a_term_of_the_prior_counts_where_the_noise_is_unknown():
    """A closed form that left the term out would have the mean of the rows, about 0."""
    rng = np.random.default_rng(0)
    X, y = np.ones((30, 1)), rng.normal(size=30)
    single, term = joint_normal(np.array([3.0, 0.0]), np.diag([1e-4, 1.0]))
    target = targets.glm(X, y, "gaussian", prior=single[:1], shared_prior=single[1:], terms=[term])
    assert abs(svrhmc.sample(target, draws=400).mean[0] - 3) < 0.1


def test_new_rows_may_lack_levels_and_classes():
    rows = table(400, yes_or_no)
    first = svrhmc.fit("y ~ x + plan", rows, draws=2000)
    one = some(rows, (rows["plan"] == "b") & (rows["y"] == "yes"))
    second = svrhmc.fit("y ~ x + plan", one, prior=first, draws=2000)
    assert second.names == first.names
    assert second.design.classes == ("no", "yes")
    assert second.mean[2] > first.mean[2]  # plan b says yes alone
    assert abs(second.mean[3] - first.mean[3]) < 1.5 * first.sd[3]


def test_a_joint_normal_is_what_its_parts_are():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(4, 4))
    covariance, mean = root @ root.T, rng.normal(size=4)
    single, term = joint_normal(mean, covariance)
    w = rng.normal(size=(5, 4))
    away = w - mean
    parts = term.value(w) + sum(0.5 * one.precision * (w[:, j] - one.mean) ** 2 for j, one in enumerate(single))
    np.testing.assert_allclose(parts, 0.5 * np.einsum("sd,de,se->s", away, np.linalg.inv(covariance), away), rtol=1e-8)
    assert np.linalg.eigvalsh(term.hessian(mean))[0] > 0


ROWS = table(200, yes_or_no)


@pytest.fixture(scope="module")
def posterior():
    return svrhmc.fit("y ~ x + plan", ROWS, draws=400)


@pytest.mark.parametrize(
    ("change", "settings", "error", "sentence"),
    [
        ({}, {"formula": "y ~ x"}, ValueError, "formula must be 'y ~ x \\+ plan'"),
        ({}, {"family": "poisson"}, ValueError, "family must be 'bernoulli'"),
        ({"plan": np.repeat("d", 200)}, {}, DataError, "'d'"),
        ({"y": np.repeat("maybe", 200)}, {}, DataError, "the class 'maybe', which the posterior given as prior has not"),
        ({}, {"noise_variance": 1.0}, ValueError, "noise_variance must be"),
    ],
)  # fmt: skip
def test_what_does_not_match_is_refused_with_what_to_do(posterior, change, settings, error, sentence):
    settings = {"formula": "y ~ x + plan", **settings}
    with pytest.raises(error, match=sentence):
        svrhmc.fit(table=ROWS | change, prior=posterior, draws=200, **settings)


def test_posteriors_that_no_normal_law_stands_for_are_refused():
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=120), "g": rng.choice(["a", "b", "c", "d"], 120), "y": rng.normal(size=120)}
    grouped = svrhmc.fit("y ~ x + (1 | g)", rows, draws=200)
    with pytest.raises(ValueError, match=r"(?s)without groups and smooths.*fit the old and the new rows together"):
        svrhmc.fit("y ~ x + (1 | g)", rows, prior=grouped)
    classes = regress(rows["x"][:, None], rng.integers(0, 3, 120), "categorical", draws=200)
    with pytest.raises(ValueError, match="one linear predictor"):
        regress(rows["x"][:, None], rng.integers(0, 3, 120), "categorical", prior=classes)


def test_arrays_are_updated_by_their_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = X @ [1.0, -1.0] + rng.normal(size=100)
    first = regress(X[:50], y[:50], names=["a", "b"], noise_variance=1.0, draws=200)
    second = regress(X[50:], y[50:], names=["a", "b"], prior=first, draws=200)
    assert (second.sd < first.sd).all()
    with pytest.raises(ValueError, match="'c' are not in it; 'b' are missing here"):
        regress(X[50:], y[50:], names=["a", "c"], prior=first)
    with pytest.raises(ValueError, match="the same in another order"):
        regress(X[50:], y[50:], names=["b", "a"], prior=first)
    with pytest.raises(ValueError, match="a posterior that `fit` gave"):
        svrhmc.fit("y ~ a + b", {"a": X[:, 0], "b": X[:, 1], "y": y}, prior=first)
