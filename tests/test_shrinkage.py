"""The regularised horseshoe: its sampler against quadrature, Pólya–Gamma draws against their law, and its door."""

import math

import numpy as np
import pytest

import svrhmc
from svrhmc import Posterior
from svrhmc.density.shrunk import GaussianBlock
from svrhmc.exact import gibbs
from svrhmc.exact.gibbs import gibbs_step
from svrhmc.exact.polya_gamma import polya_gamma
from svrhmc.fitting import regress
from svrhmc.priors.shrinkage import joint_prior
from svrhmc.targets import Group, glm
from svrhmc.targets.priors import Flat, Horseshoe, Laplace, Normal

PRIOR = Horseshoe(expected=0.5, slab_scale=1.5, slab_df=4.0)


def z_scores(draws, expected, block=40):
    """Of means of correlated draws (draws, quantities), by means of blocks."""
    blocks = draws[: len(draws) // block * block].reshape(block, -1, draws.shape[1]).mean(axis=1)
    return (blocks.mean(axis=0) - expected) / (blocks.std(axis=0, ddof=1) / math.sqrt(block))


# Pólya–Gamma variables


def pg_law(b, t, s):
    """Mean, variance and E e^{−sω} of PG(b, t)."""
    mean = b / 4 if t == 0 else b * math.tanh(t / 2) / (2 * t)
    variance = b / 24 if t == 0 else b * (math.sinh(t) - t) / (4 * t**3 * math.cosh(t / 2) ** 2)
    return mean, variance, (math.cosh(t / 2) / math.cosh(math.sqrt(t * t / 4 + s / 2))) ** b


@pytest.mark.untraced
@pytest.mark.parametrize(("b", "t"), [(1, 0.0), (1, 0.7), (1, -3.1), (1, 3.2), (1, 40.0), (3, 1.5)])
def test_polya_gamma_draws_have_their_mean_variance_and_laplace_transform(b, t):
    count, s = 60_000, 1.3
    draws = polya_gamma(np.random.default_rng(5), np.full(count, float(b)), np.full(count, t))

    def scores(b, t):
        mean, variance, transform = pg_law(b, t, s)
        squares, waves = (draws - mean) ** 2, np.exp(-s * draws)
        pairs = ((draws, mean), (squares, variance), (waves, transform))
        return np.array([(v.mean() - e) / (v.std() / math.sqrt(count)) for v, e in pairs])

    assert np.abs(scores(b, t)).max() < 4.5
    assert np.abs(scores(b, 1.1 * abs(t) + 0.9)).max() > 4.5  # those of another law


def test_polya_gamma_far_out_is_finite():
    draws = polya_gamma(np.random.default_rng(0), np.ones(200), np.full(200, 3e3))
    assert np.abs(draws * 2 * 3e3 - 1).max() < 0.2


# One coefficient, by quadrature over (log λ, log τ, log c), with β integrated out or on a grid


def scales_grid(model, sigma):
    """log λ, log τ, log c on a grid, their log prior, and the variance of β there."""
    local, overall = np.linspace(-14, 14, 141), math.log(model.global_scale * sigma) + np.linspace(-14, 14, 141)
    slab = math.log(model.horseshoe.slab_scale) + np.linspace(-2, 3.5, 56)
    L, T, C = np.meshgrid(local, overall, slab, indexing="ij")
    d, (nu, s) = T - math.log(model.global_scale * sigma), (model.horseshoe.slab_df, model.horseshoe.slab_scale)
    log_prior = L - np.logaddexp(0, 2 * L) + d - np.logaddexp(0, 2 * d) - nu * C - 0.5 * nu * s**2 * np.exp(-2 * C)
    return L, T, C, log_prior, 1 / (np.exp(-2 * (L + T)) + np.exp(-2 * C))


def one_column(n=12, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    return x[:, None], 0.8 * x + rng.standard_normal(n)


def run(model, count, seed=0, step=gibbs_step):
    rng = np.random.default_rng(seed)
    x, out = gibbs.start(model, rng), np.empty((count, model.dim))
    for k in range(count + 200):
        x = step(model, x, rng)
        out[max(k - 200, 0)] = x
    return out


def gaussian_moments(model, sigma):
    """E of β, β², log λ, log τ, log c given known noise."""
    X, y = model.X[:, 0], model.conditional.y
    L, T, C, log_prior, v = scales_grid(model, sigma)
    precision, pull = X @ X / sigma**2, X @ y / sigma**2
    variance = 1 / (precision + 1 / v)
    log_w = log_prior - 0.5 * np.log1p(precision * v) + 0.5 * pull**2 * variance
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    mean = variance * pull
    return np.array([(w * q).sum() for q in (mean, variance + mean**2, L, T, C)])


def quantities(draws):
    beta, local, overall, slab = draws[:, 0], draws[:, -3], draws[:, -2], draws[:, -1]
    return np.stack([beta, beta**2, local, overall, slab], axis=1)


@pytest.mark.untraced
@pytest.mark.parametrize("wide", [False, True])
def test_one_gaussian_coefficient_is_that_of_quadrature(wide, monkeypatch):
    X, y = one_column()
    model = glm(X, y, "gaussian", noise_variance=1.3, prior=PRIOR)
    if wide:  # the same law by the factor of the rows' side
        monkeypatch.setattr(gibbs, "_block", wide_block)
    expected = gaussian_moments(model, math.sqrt(1.3))
    assert np.abs(z_scores(quantities(run(model, 6000)), expected)).max() < 4.5


def wide_block(model, omega, z, shared, scales):
    block = GaussianBlock.__new__(GaussianBlock)
    padded = np.concatenate([model.X, np.zeros((model.n, model.n))], axis=1)
    mean, variance = model.prior_of(scales)
    block.__init__(padded, omega, z, np.append(mean, np.zeros(model.n)), np.append(variance, np.ones(model.n)))
    assert block._wide
    whole = block.draw
    block.draw = lambda rng: whole(rng)[:1]
    return block


@pytest.mark.untraced
def test_a_sampler_made_wrong_is_told(monkeypatch):
    X, y = one_column()
    model = glm(X, y, "gaussian", noise_variance=1.3, prior=PRIOR)
    right = gibbs._local_scales
    monkeypatch.setattr(gibbs, "_local_scales", lambda *given: right(*given) + 0.3)
    assert np.abs(z_scores(quantities(run(model, 6000)), gaussian_moments(model, math.sqrt(1.3)))).max() > 4.5


@pytest.mark.untraced
@pytest.mark.parametrize("move", ["_global_given_products", "_scales_given_coefficients", "_scales_given_held"])
def test_each_move_alone_leaves_the_law_invariant(move, monkeypatch):
    """With the other moves of τ and c left out, but for those by which the chain reaches everything."""
    X, y = one_column()
    model = glm(X, y, "gaussian", noise_variance=1.3, prior=PRIOR)
    still = {
        "_global_given_products": lambda model, shared, scales, rng: scales,
        "_scales_given_held": lambda model, beta, shared, scales, rng: (beta, scales),
    }
    for name, none in still.items():
        if name != move:
            monkeypatch.setattr(gibbs, name, none)
    expected = gaussian_moments(model, math.sqrt(1.3))
    assert np.abs(z_scores(quantities(run(model, 8000)), expected, 20)).max() < 4.5


@pytest.mark.untraced
def test_one_log_odds_is_that_of_quadrature():
    X, _ = one_column(10)
    y = np.array([1, 0, 1, 1, 0, 1, 0, 1, 1, 0])
    model = glm(X, y, "bernoulli", prior=PRIOR)
    *_, log_prior, v = scales_grid(model, model.pseudo_noise)
    edges = np.linspace(-14, 4, 400)  # of log v: the prior of v, then β on a grid
    prior_w = np.exp(log_prior - log_prior.max()).ravel()
    log_v = np.log(v).ravel()
    place = np.clip(np.digitize(log_v, edges), 0, 400)
    mass = np.bincount(place, prior_w, 401)
    centre = np.exp(np.bincount(place, prior_w * log_v, 401) / np.maximum(mass, 1e-300))
    u = np.linspace(-8, 8, 1201)
    beta = np.sinh(u * 1.6) / np.sinh(8 * 1.6) * 25
    step = np.gradient(beta)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        density = np.exp(-0.5 * beta[:, None] ** 2 / centre) / np.sqrt(centre) @ mass
    t = X[:, 0] * beta[:, None]
    like = np.exp((y * t - np.logaddexp(0, t)).sum(axis=1))
    w = density * like * step
    w /= w.sum()
    expected = np.array([w @ beta, w @ beta**2, w @ np.tanh(beta)])
    draws = run(model, 8000)[:, 0]
    found = np.stack([draws, draws**2, np.tanh(draws)], axis=1)
    assert np.abs(z_scores(found, expected)).max() < 4.5
    assert np.abs(z_scores(found, expected * [1, 1.25, 1.1])).max() > 4.5


# Getting it right (Geweke 2004): states and labels drawn in turn have the law of the prior


def renewed(model, y):
    """The same model with other labels."""
    model.conditional.y = y
    for name in ("gram", "kappa", "pseudo_noise"):
        model.__dict__.pop(name, None)
    return model


def prior_state(model, rng, noise):
    """β, shared and scales from their prior."""
    shared = np.array([model.conditional.prior_mean[-1] + rng.standard_normal() * noise])[: model.loss.shared]
    local, overall = (np.log(np.abs(np.tan(math.pi / 2 * rng.random(k)))) for k in (len(model.shrunk), 1))
    overall = float(overall[0]) + math.log(model.global_scale * model.noise(shared))
    nu, s = model.horseshoe.slab_df, model.horseshoe.slab_scale
    slab = 0.5 * math.log(nu * s**2 / rng.chisquare(nu))
    scales = gibbs.Scales(local, overall, slab)
    mean, variance = model.prior_of(scales)
    return model.joined(mean + np.sqrt(variance) * rng.standard_normal(model.width), shared, scales)


def bounded(x):
    """Of states: what has moments."""
    return np.concatenate([np.tanh(x), np.tanh(x) ** 2], axis=-1)


def successive(model, count, seed, noise):
    rng = np.random.default_rng(seed)
    x, out = prior_state(model, rng, noise), np.empty((count, model.dim))
    for k in range(count):
        beta, shared, _ = model.split(x)
        t = model.X @ beta
        if model.loss.shared:
            y = t + math.exp(shared[0]) * rng.standard_normal(model.n)
        else:
            y = np.where(rng.random(model.n) < 1 / (1 + np.exp(-t)), 1.0, -1.0)
        out[k] = x = gibbs_step(renewed(model, y), x, rng)
    return out


def small_model(n, family):
    X = np.random.default_rng(1).standard_normal((n, 3))
    X[:, 0] = 1.0
    prior = Horseshoe(expected=1.0, slab_scale=1.0)
    shared = {"shared_prior": Normal.with_sd(0.4, 0.2)} if family == "gaussian" else {}
    y = np.arange(n) % 2
    return glm(X, y, family, prior=[Normal.with_sd(0.7, 0.3), prior, prior], **shared)


@pytest.mark.untraced
@pytest.mark.parametrize(("n", "family"), [(5, "gaussian"), (2, "gaussian"), (4, "bernoulli"), (2, "bernoulli")])
def test_states_and_labels_drawn_in_turn_have_the_law_of_the_prior(n, family, monkeypatch):
    model = small_model(n, family)
    if family == "bernoulli":  # the scale of τ follows the labels, unless it is held
        monkeypatch.setattr(type(model), "noise", lambda self, shared: 2.0)
    rng = np.random.default_rng(11)
    prior = bounded(np.stack([prior_state(model, rng, 0.4) for _ in range(20_000)]))
    chain = bounded(successive(model, 6000, 12, 0.4))
    blocks = chain.reshape(30, -1, chain.shape[1]).mean(axis=1)
    error = np.sqrt(blocks.var(axis=0, ddof=1) / 30 + prior.var(axis=0) / len(prior))
    assert np.abs((blocks.mean(axis=0) - prior.mean(axis=0)) / error).max() < 4.5


@pytest.mark.untraced
def test_a_wrong_noise_is_told_by_the_prior(monkeypatch):
    model = small_model(5, "gaussian")
    right = gibbs._noise_scale

    monkeypatch.setattr(gibbs, "_noise_scale", lambda *given: right(*given) + 0.1)
    rng = np.random.default_rng(11)
    prior = bounded(np.stack([prior_state(model, rng, 0.4) for _ in range(20_000)]))
    chain = bounded(successive(model, 6000, 12, 0.4))
    blocks = chain.reshape(30, -1, chain.shape[1]).mean(axis=1)
    error = np.sqrt(blocks.var(axis=0, ddof=1) / 30 + prior.var(axis=0) / len(prior))
    assert np.abs((blocks.mean(axis=0) - prior.mean(axis=0)) / error).max() > 4.5


# The door, and what comes out of it


def table(n=60, columns=8, seed=0):
    rng = np.random.default_rng(seed)
    data = {f"x{j}": rng.standard_normal(n) * 10.0 ** (j % 3) for j in range(columns)}
    return {**data, "y": 3 * data["x0"] + rng.standard_normal(n)}


@pytest.fixture(scope="module")
def posterior():
    return svrhmc.fit("y ~ .", table(), prior=Horseshoe(expected=2), draws=100, seed=1)


def test_a_fit_has_a_local_verdict_and_says_what_was_shrunk(posterior):
    assert (posterior.method, posterior.certificate.verdict) == ("gibbs", "local")
    assert posterior.names == ("Intercept", *(f"x{j}" for j in range(8)), "log sigma")
    inclusion = posterior.inclusion()
    assert inclusion.names[0] == "x0"
    assert inclusion["kappa"][0] < 0.05
    assert set(inclusion.names) == {f"x{j}" for j in range(8)}
    assert (np.diff(inclusion["kappa"]) >= 0).all()
    assert "Shrinkage: of 8 coefficients" in str(posterior.summary())
    assert "Horseshoe(expected=2" in posterior.prior.said


def test_draws_follow_the_seed_and_neither_threads_nor_a_checkpoint(posterior, tmp_path):
    settings = {"prior": Horseshoe(expected=2), "draws": 100, "seed": 1}
    again = svrhmc.fit("y ~ .", table(), **settings, threads=1, checkpoint=tmp_path / "run")
    assert np.array_equal(again.trace.draws, posterior.trace.draws)
    resumed = svrhmc.fit("y ~ .", table(), **settings, checkpoint=tmp_path / "run")
    assert np.array_equal(resumed.trace.draws, posterior.trace.draws)


def test_units_of_columns_do_not_matter(posterior):
    data = table()
    other = {**data, "x3": data["x3"] / 1000, "y": 7 * data["y"]}
    scaled = svrhmc.fit("y ~ .", other, prior=Horseshoe(expected=2), draws=100, seed=1)
    assert np.allclose(scaled.mean[4] / 7000, posterior.mean[4], rtol=1e-4, atol=1e-9)


def test_a_file_keeps_it_and_results_come_of_it(posterior, tmp_path):
    posterior.save(tmp_path / "fit.posterior")
    loaded = Posterior.load(tmp_path / "fit.posterior")
    assert str(loaded.inclusion()) == str(posterior.inclusion())
    assert posterior.predict(table(5)).mean.shape == (5,)
    assert posterior.probability("x0 > 2") == 1.0
    posterior.report(tmp_path / "page.html")
    assert "log_prior" not in posterior.to_arviz().groups()


def test_an_estimator_and_trials_take_it():
    data = table()
    X = np.stack([data[f"x{j}"] for j in range(4)], axis=1)
    estimator = svrhmc.BayesianRegression(prior=Horseshoe(expected=1), draws=50).fit(X, data["y"])
    assert abs(estimator.coef_[0] - 3) < 0.6
    single = regress(X, np.arange(60) % 2, "bernoulli", prior=Horseshoe(expected=1), draws=50, weights=np.full(60, 2))
    trials = regress(X, 2 * (np.arange(60) % 2), "binomial", trials=2, prior=Horseshoe(expected=1), draws=50)
    assert np.allclose(single.mean, trials.mean)


def test_two_columns_that_share_an_effect_are_not_called_exact():
    rng = np.random.default_rng(2)
    x = rng.standard_normal(100)
    X = np.stack([x, x + 1e-3 * rng.standard_normal(100), rng.standard_normal(100)], axis=1)
    with pytest.warns(svrhmc.core.errors.VerdictWarning):
        twin = regress(
            X, x + 0.3 * rng.standard_normal(100), prior=Horseshoe(expected=1), draws=400, budget_passes=4000
        )
    assert twin.certificate.verdict == "undecided"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"family": "poisson"}, "its sampler is one for 'gaussian', 'bernoulli', 'binomial'|'bernoulli'"),
        ({"prior": Horseshoe(expected=30)}, "expected must be below 4"),
        ({"prior": {"Intercept": Horseshoe(expected=1)}}, "the prior of an intercept"),
        ({"prior": {"log sigma": Horseshoe(expected=1)}}, "one of single coordinates here"),
        ({"prior": {"x0": Horseshoe(expected=0.3), "x1": Horseshoe(expected=0.4)}}, "share its settings"),
        ({"prior": {"x0": Horseshoe(expected=0.3), "x1": Laplace()}}, "beside a Horseshoe must be Normal"),
        ({"prior": {"x0": Horseshoe(expected=0.3), "x1": Flat()}}, "beside a Horseshoe must be Normal"),
        ({"method": "split-hmc"}, "under a Horseshoe"),
        ({"family": "bernoulli", "weights": np.full(60, 1.5)}, "whole numbers"),
        ({"family": svrhmc.targets.families.bernoulli("probit")}, "probit"),
        ({"groups": [Group(np.arange(60) % 5)]}, "one of single coordinates here"),
    ],
)
def test_what_it_does_not_have_is_refused(change, words):
    X = np.stack([table()[f"x{j}"] for j in range(4)], axis=1)
    given = {"prior": Horseshoe(expected=1), **change}
    with pytest.raises(ValueError, match=words):
        regress(X, np.arange(60) % 2, **given)


@pytest.mark.parametrize("settings", [{"expected": 0}, {"expected": 2, "slab_df": -1}, {"expected": float("nan")}])
def test_settings_that_are_none_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        Horseshoe(**settings)
    assert joint_prior(Normal(), 3) is None


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_nuts_has_the_same_moments(family):
    from benchmarks.shrinkage import by_gibbs, by_nuts, problem

    X, y, prior = problem(60, 30, family)
    ours, theirs = by_gibbs(X, y, family, prior, 2000, 1)[0], by_nuts(X, y, family, prior, 500, 1500, 2, 1)[0]
    error = np.sqrt(sum(x.var(axis=(0, 1)) / svrhmc.diagnostics.ess(x) for x in (ours, theirs)))
    assert np.abs((ours.mean(axis=(0, 1)) - theirs.mean(axis=(0, 1))) / error).max() < 4.5
