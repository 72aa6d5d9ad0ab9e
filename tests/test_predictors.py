"""Parameters with predictors of their own: sums, engines, laws and formulas."""

import itertools

import numpy as np
import pytest
from scipy import sparse, stats

import svrhmc
from svrhmc import Posterior, gradients
from svrhmc.core.errors import DataError
from svrhmc.dynamics import Anchored
from svrhmc.exact import SplitHMC
from svrhmc.targets import Group, glm, priors
from svrhmc.whitening import whitened

LIMIT = 4.5  # standard errors


def simulated(family, n=131, seed=5):
    """Rows X and Z with a first column of ones, and labels by means and spreads that depend on them."""
    rng = np.random.default_rng(seed)
    X, Z = (np.c_[np.ones(n), rng.standard_normal((n, p))] for p in (18, 3))
    eta, tau = X[:, :4] @ [0.5, 0.3, -0.2, 0.1], Z @ [0.2, 0.3, 0.0, -0.3]
    mu, spread = np.exp(eta), np.exp(tau)
    labels = {
        "gaussian": lambda: eta + spread * rng.standard_normal(n),
        "student-t": lambda: eta + spread * rng.standard_t(4, n),
        "gamma": lambda: rng.gamma(spread, mu / spread),
        "negative-binomial": lambda: rng.negative_binomial(spread, spread / (spread + mu)),
        "beta": lambda: np.clip(rng.beta(4 * spread * mu / (1 + mu), 4 * spread / (1 + mu)), 1e-6, 1 - 1e-6),
        "hurdle-poisson": lambda: np.where(rng.random(n) < 1 / (1 + spread), rng.poisson(mu) + 1, 0),
        "zero-inflated-negative-binomial": lambda: np.where(
            rng.random(n) < 1 / (1 + spread), rng.negative_binomial(2.0, 2 / (2 + mu)), 0
        ),
    }
    return X, Z, np.asarray(labels[family](), float)


def with_design(family, storage="dense", n=131, **more):
    X, Z, y = simulated(family, n)
    name = svrhmc.families.family_of(family).parameters[-1].name
    if storage == "sparse":
        X, Z = (sparse.csr_matrix(np.where(rng_mask(A), A, 0.0)) for A in (X, Z))
    return glm(X, y, family, predictors={name: Z}, **more)


def rng_mask(A):
    """About half of the entries, and the ones."""
    return (np.random.default_rng(2).random(A.shape) < 0.5) | (A == 1)


FAMILIES = (
    "gaussian", "student-t", "gamma", "negative-binomial", "beta", "hurdle-poisson",
    "zero-inflated-negative-binomial",
)  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_and_hessians_are_those_of_the_log_density(family):
    """Against SciPy's derivatives of the family's own value; the wrong twin has Z's columns in another order."""
    target = with_design(family, offset=np.linspace(0, 0.5, 131), weights=np.linspace(0.5, 2, 131))
    x = 0.2 * np.random.default_rng(1).standard_normal(target.dim)
    steps = 1e-5 * np.eye(target.dim)
    slope = np.array([np.diff(target.potentials(np.stack([x - h, x + h])))[0] / 2e-5 for h in steps])
    assert target.gradient(x) == pytest.approx(slope, rel=1e-6, abs=1e-5)
    bend = np.diff([target.gradients(np.stack([x - h, x + h])) for h in steps], axis=1)[:, 0] / 2e-5
    assert target.hessian(x) == pytest.approx(bend, rel=1e-5, abs=1e-4)
    assert target.hessian_product(x, x) == pytest.approx(bend @ x, rel=1e-5, abs=1e-3)
    turned = target.gradient(np.concatenate([x[:19], x[:18:-1]]))
    assert np.abs(turned - slope).max() > 1e-3
    J = target.rows.jacobians(np.arange(131))
    assert target.form().predictors(x[None])[0] == pytest.approx(J @ x + target.offset[:, None] * target.loss.unit())
    assert target.rows.squared_norms() == pytest.approx(np.linalg.norm(J, 2, axis=(1, 2)) ** 2)


@pytest.mark.parametrize("storage", ["dense", pytest.param("sparse", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "family", ["gaussian", pytest.param("zero-inflated-negative-binomial", marks=pytest.mark.slow)]
)
def test_engines_walk_the_same_path(family, storage):
    """19 and 4 columns are read as 32 and 4, batches of 7 as one four and a rest; the memory of SAGA too."""
    target = with_design(family, storage)
    space = whitened(target, "dense")
    ways = (gradients.Full(), gradients.SVRG(7), gradients.SAGA(7), gradients.Minibatch(7, importance=True))
    for gradient in ways:
        sampler = svrhmc.Sampler(Anchored(0.2, 2.0, 1.0), gradient)
        one, other = (sampler.run(space, 20, chains=2, engine=each).draws for each in ("reference", "numba"))
        assert np.abs(one - other).max() < 1e-9 * np.abs(one).max()
    third = sampler.run(space, 20, chains=2, engine="jax").draws
    assert np.abs(one - third).max() < 1e-9 * np.abs(one).max()
    chains = SplitHMC().chains(space, 1, np.arange(3), 1)
    chains.extend(4)
    x, memory = space.out(chains.state.x), chains.state.memory
    f = target.potentials(x)
    assert memory["f"] - memory["f"][0] == pytest.approx(f - f[0], abs=1e-8)
    assert memory["gradient"] == pytest.approx(space.whitening.pull(target.gradients(x)), rel=1e-9, abs=1e-9)


# Laws


def moments_by_quadrature(log_density, centre, spread):
    """Mean and sd of each coordinate, by sums on a grid: exact to all digits for laws as smooth as these."""
    nodes = np.linspace(-6.5, 6.5, 41)
    points = centre + spread * np.array(list(itertools.product(nodes, repeat=len(centre))))
    logs = np.concatenate([log_density(part) for part in np.array_split(points, 50)])
    w = np.exp(logs - logs.max())
    w /= w.sum()
    mean = w @ points
    return mean, np.sqrt(w @ (points - mean) ** 2)


def far_off(posterior, mean, sd):
    """The largest distance of a mean or an sd, in standard errors."""
    by_mean, by_sd = posterior.errors
    return max(np.abs((posterior.mean - mean) / by_mean).max(), np.abs((posterior.sd - sd) / by_sd).max())


LAWS = {
    "gaussian": lambda y, t, tau: stats.norm.logpdf(y, t, np.exp(tau)),
    "gamma": lambda y, t, tau: stats.gamma.logpdf(y, np.exp(tau), scale=np.exp(t - tau)),
    "hurdle-poisson": lambda y, t, tau: np.where(
        y > 0,
        -np.logaddexp(0, tau) + stats.poisson.logpmf(y, np.exp(t)) - np.log(-np.expm1(-np.exp(t))),
        -np.logaddexp(0, -tau),
    ),
}


@pytest.mark.untraced
@pytest.mark.parametrize("family", LAWS)
def test_sample_has_the_moments_of_quadrature(family):
    """An intercept, and two coefficients of the other parameter; the wrong twin takes twice the other predictor."""
    _, Z, y = simulated(family, n=60, seed=8)
    Z, one = Z[:, :2], np.ones((60, 1))
    name = svrhmc.families.family_of(family).parameters[-1].name
    given = {"prior": priors.Normal(1.0), "shared_prior": priors.Normal(1.0)}
    posterior = svrhmc.sample(glm(one, y, family, predictors={name: Z}, **given), seed=3)
    assert posterior.certificate.verdict == ("exact" if family == "hurdle-poisson" else "local")
    assert (posterior.modes is None) == (posterior.certificate.verdict in ("exact", "local"))

    def log_density(x, times=1.0):
        t, tau = x[:, :1], times * x[:, 1:] @ Z.T
        return LAWS[family](y, np.broadcast_to(t, tau.shape), tau).sum(axis=1) - 0.5 * (x**2).sum(axis=1)

    known = moments_by_quadrature(log_density, posterior.mean, posterior.sd)
    assert far_off(posterior, *known) < LIMIT
    twin = moments_by_quadrature(lambda x: log_density(x, 2.0), posterior.mean, 1.3 * posterior.sd)
    assert far_off(posterior, *twin) > 3 * LIMIT


def test_both_parts_of_a_hurdle_are_regressions_of_their_own():
    """They have no parameter in common: the zero part is the posterior of a logistic regression."""
    X, Z, y = simulated("hurdle-poisson", n=400)
    given = {"prior": priors.Normal(1.0), "shared_prior": priors.Normal(1.0)}
    whole = svrhmc.sample(glm(X[:, :3], y, "hurdle-poisson", predictors={"zero": Z}, **given), seed=1)
    zeros = svrhmc.sample(glm(Z, (y == 0).astype(float), prior=priors.Normal(1.0)), seed=2)
    assert whole.certificate.verdict == "exact"
    apart = np.hypot(whole.errors[0][3:], zeros.errors[0])
    assert np.abs((whole.mean[3:] - zeros.mean) / apart).max() < LIMIT
    assert np.abs((whole.mean[3:] - zeros.mean[::-1]) / apart).max() > 3 * LIMIT


def test_effects_of_groups_beside_another_predictor():
    """The curvature of a mixed model is the derivative of its slope, dense and sparse."""
    X, Z, y = simulated("gaussian")
    for A in (X[:, :3], sparse.csr_matrix(X[:, :3])):
        group = Group(np.arange(131) % 9, name="g")
        model = glm(A, y, "gaussian", predictors={"sigma": Z}, groups=[group])
        w = 0.1 * np.random.default_rng(4).standard_normal(model.inner_dim)
        steps = 1e-5 * np.eye(model.inner_dim)
        bend = [np.diff(model.conditional_energies(np.stack([w - h, w + h]))[1], axis=0)[0] / 2e-5 for h in steps]
        found = model.curvature(w).hessian
        found = found if isinstance(found, np.ndarray) else found.toarray()
        assert found == pytest.approx(np.array(bend), rel=1e-5, abs=1e-4)


# Formulas


def table(n=300, seed=2):
    rng = np.random.default_rng(seed)
    x, z, plan = rng.normal(5, 2, n), rng.normal(100, 20, n), rng.choice(["basic", "pro"], n)
    spread = np.exp(0.3 + 0.02 * (z - 100) + 0.5 * (plan == "pro"))
    return {"x": x, "z": z, "plan": plan, "g": np.arange(n) % 10, "y": 1 + 0.5 * x + spread * rng.standard_normal(n)}


@pytest.fixture(scope="module")
def fitted():
    return svrhmc.fit({"y": "y ~ x", "sigma": "~ z + plan"}, table(), seed=1)


def test_a_formula_for_sigma(fitted, tmp_path):
    """Coefficients are in the units of the data, and a file keeps all that predictions need."""
    assert fitted.names == ("Intercept", "x", "sigma: Intercept", "sigma: z", "sigma: plan[pro]")
    true = np.array([1.0, 0.5, 0.3 - 2.0, 0.02, 0.5])
    assert (np.abs(fitted.mean - true) < LIMIT * fitted.sd).all()
    assert (np.abs(fitted.mean - true[[0, 1, 2, 4, 3]]) > LIMIT * fitted.sd).any()
    rows = {"x": [5.0, 5.0], "z": [80.0, 120.0], "plan": ["basic", "pro"]}
    prediction = fitted.predict(rows, draws=4000)
    fitted.save(tmp_path / "fit.posterior")
    again = Posterior.load(tmp_path / "fit.posterior")
    assert again.predict(rows, draws=4000).new_sd == pytest.approx(prediction.new_sd)
    tau = fitted.mean[2] + fitted.mean[3] * np.array([80, 120]) + fitted.mean[4] * np.array([0, 1])
    assert prediction.new_sd == pytest.approx(np.exp(tau), rel=0.03)
    assert fitted.probability("`sigma: z` > 0") > 0.99
    assert "coefficients of sigma ~ N(0, (1/sd(x))²)" in fitted.prior.said
    assert "sigma: z" in fitted.to_arviz().posterior
    page = fitted.report(tmp_path / "report.html").read_text()
    assert "svrhmc.fit([&#x27;y ~ x&#x27;, &#x27;sigma ~ z + plan&#x27;], table" in page
    with pytest.raises(ValueError, match="first predictor alone has columns"):
        fitted.export()
    with pytest.raises(ValueError, match="a category or a grouping factor"):
        fitted.contrast("plan")  # which is none of the formula of y


def test_other_units_have_the_same_posterior(fitted):
    """Millimetres for metres, and another unit of y: priors and standardised rows follow."""
    other = {**table(), "z": 1000 * table()["z"], "y": 10 * table()["y"]}
    scaled = svrhmc.fit({"y": "y ~ x", "sigma": "~ z + plan"}, other, seed=1)
    assert scaled.mean[3] == pytest.approx(fitted.mean[3] / 1000, rel=1e-6)
    assert scaled.mean[2] == pytest.approx(fitted.mean[2] + np.log(10), rel=1e-6)


@pytest.mark.parametrize(
    "formula",
    [
        ["y ~ x", "sigma ~ z + plan"],
        {"mu": "y ~ x", "sigma": "sigma ~ z + plan"},
        {"sigma": "~ z + plan", "y": "y ~ x"},
    ],
)
def test_formulas_may_be_written_in_several_ways(fitted, formula):
    again = svrhmc.fit(formula, table(), seed=1)
    assert (again.trace.draws == fitted.trace.draws).all()


def test_a_parameter_with_an_intercept_alone_is_shared():
    """The same draws as without its formula."""
    one, other = (svrhmc.fit(formula, table(), seed=4) for formula in ("y ~ x", ["y ~ x", "sigma ~ 1"]))
    assert one.names == other.names
    assert (one.trace.draws == other.trace.draws).all()


def test_without_an_intercept_each_level_has_its_own_sigma():
    """The prior of a level is that of log σ itself, wherever the unit of y puts it."""
    for unit in (1.0, 1e6):
        data = {**table(), "y": unit * table()["y"]}
        levels = svrhmc.fit({"y": "y ~ x", "sigma": "~ 0 + plan"}, data, seed=1)
        assert levels.names[2:] == ("sigma: plan[basic]", "sigma: plan[pro]")
        assert 1.0 < levels.mean[2] / 1.0 - np.log(unit) + 0.7 < 2.0
        assert not levels.clashes


def test_priors_by_name_are_in_the_units_of_the_data(fitted):
    """A prior that holds a coefficient at a number, and one of all levels of a category."""
    held = {"sigma: z": priors.Normal(1e8, mean=0.01), "sigma: plan": priors.Normal(1e6, mean=0.2)}
    posterior = svrhmc.fit({"y": "y ~ x", "sigma": "~ z + plan"}, table(), seed=1, prior=held)
    assert posterior.mean[3:] == pytest.approx([0.01, 0.2], abs=5e-3)
    with pytest.raises(ValueError, match="must be a proper one"):
        svrhmc.fit({"y": "y ~ x", "sigma": "~ z"}, table(), prior={"sigma: z": priors.Flat()})


def test_effects_on_the_mean_go_through_every_predictor():
    """Of a hurdle model by the chance of a zero too: against the difference of predictions."""
    X, Z, y = simulated("hurdle-poisson", n=200)
    data = {"x": X[:, 1], "z": Z[:, 1], "plan": np.where(Z[:, 2] > 0, "a", "b"), "y": y.astype(int)}
    posterior = svrhmc.fit(["y ~ x + plan", "zero ~ z + plan"], data, "hurdle-poisson", seed=1)
    effects = posterior.effects(rows=200, draws=400).to_frame()
    h, everything = 1e-4, {"draws": 100_000}
    high, low = (posterior.predict({**data, "z": data["z"] + s * h}, **everything).mean.mean() for s in (1, -1))
    by_z = effects[effects.index.astype(str).str.startswith("z")]["mean"].iloc[0]
    assert by_z == pytest.approx((high - low) / (2 * h), abs=0.01)
    assert abs(by_z) > 0.03
    a, b = (posterior.predict({**data, "plan": np.full(200, level)}, **everything).mean.mean() for level in "ab")
    by_plan = effects[effects.index.astype(str).str.startswith("plan")]["mean"].iloc[0]
    assert by_plan == pytest.approx(b - a, abs=0.01)


@pytest.mark.parametrize(
    ("formula", "family", "message"),
    [
        ({"y": "y ~ x", "tau": "~ z"}, None, "must be of 'sigma', as 'gaussian' has it; got 'tau'"),
        ({"g": "g ~ x", "sigma": "~ z"}, "poisson", "that of the response alone: 'poisson' has no other parameter"),
        ({"y": "q ~ x", "sigma": "~ z"}, None, "of 'y' says that it is of 'q'"),
        ({"y": "y ~ x", "sigma": "tau ~ z"}, None, "of 'sigma' says that it is of 'tau'"),
        (["y ~ x", "sigma ~ z", "sigma ~ x"], None, "'sigma' has two formulas"),
        (["y ~ x", "~ z"], None, "must say what it is of"),
        (["y ~ x", "sigma ~ nope"], None, "no column 'nope'"),
        (["y ~ x", "sigma ~ z + w"], None, "column 'sigma: w' repeats column 'sigma: z'"),
        (["y ~ x", "sigma ~ gap"], None, "missing values in 'gap'"),
        (["y ~ x", "sigma ~ y"], None, "the response 'y' stands in it"),
        (["y ~ x", "sigma ~ (1 | g)"], None, "in the first formula, that of the response, alone"),
        (["y ~ x", "sigma ~ 0"], None, "no term and no intercept"),
        (["y ~ x", "sigma ~ z", "shape ~ x"], "gamma", "must be of 'shape'"),
        ([], None, "the first one that of the response"),
    ],
)
def test_formulas_that_cannot_be_are_refused(formula, family, message):
    data = {**table(60), "w": 2 * table(60)["z"], "gap": np.where(np.arange(60) == 3, np.nan, 1.0)}
    with pytest.raises((DataError, ValueError), match=message):
        svrhmc.fit(formula, data, family)


def test_rows_with_a_gap_in_sigma_alone_are_dropped():
    data = {**table(60), "gap": np.where(np.arange(60) == 3, np.nan, table(60)["z"])}
    assert svrhmc.fit(["y ~ x", "sigma ~ gap"], data, missing="drop").rows == 59


def test_designs_that_do_not_fit_are_refused():
    X, Z, y = simulated("gaussian")
    for designs, message in (
        ({"sigma": Z[:5]}, "131 rows"),
        ({"sigma": Z[:, 0]}, "a matrix"),
        ({"shape": Z}, "must be of 'sigma'"),
    ):
        with pytest.raises(ValueError, match=message):
            glm(X, y, "gaussian", predictors=designs)
    with pytest.raises(ValueError, match="without a prior"):
        glm(X, y, "gaussian", predictors={"sigma": Z}, shared_prior=priors.Flat())
