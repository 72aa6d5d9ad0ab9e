"""The regularised horseshoe: its sampler against quadrature, Pólya–Gamma draws against their law, and its door."""

import math

import numpy as np
import pytest
from scipy.special import betaln

import svrhmc
from svrhmc import Posterior
from svrhmc.density.shrunk import GaussianBlock
from svrhmc.exact import gibbs
from svrhmc.exact.gibbs import gibbs_step
from svrhmc.exact.polya_gamma import polya_gamma
from svrhmc.fitting import regress
from svrhmc.priors.shrinkage import joint_prior
from svrhmc.targets import Group, glm
from svrhmc.targets.priors import R2D2, Flat, Horseshoe, Laplace, Normal, SpikeAndSlab

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
    local, overall = np.linspace(-14, 14, 141), math.log(model.scales.global_scale * sigma) + np.linspace(-14, 14, 141)
    slab = math.log(model.prior.slab_scale) + np.linspace(-2, 3.5, 56)
    L, T, C = np.meshgrid(local, overall, slab, indexing="ij")
    d, (nu, s) = T - math.log(model.scales.global_scale * sigma), (model.prior.slab_df, model.prior.slab_scale)
    log_prior = L - np.logaddexp(0, 2 * L) + d - np.logaddexp(0, 2 * d) - nu * C - 0.5 * nu * s**2 * np.exp(-2 * C)
    return L, T, C, log_prior, 1 / (np.exp(-2 * (L + T)) + np.exp(-2 * C))


def one_column(n=12, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    return x[:, None], 0.8 * x + rng.standard_normal(n)


@pytest.fixture
def once(monkeypatch):
    """Each part of a draw is made once."""
    monkeypatch.setattr(gibbs, "_SWEEPS", 1)
    monkeypatch.setattr(gibbs, "_STRETCHES", 1)


def run(model, count, seed=0, step=gibbs_step):
    rng = np.random.default_rng(seed)
    x, out = gibbs.start(model, rng), np.empty((count, model.dim))
    for k in range(count + 200):
        x = step(model, x, rng)
        out[max(k - 200, 0)] = x
    return out


def gaussian_moments(model, sigma):
    """E of β, β², log λ, log τ, log c given known noise."""
    X, y = model.sampled_rows.columns[0], model.sampled_rows.z
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
@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("wide", [False, True])
def test_one_gaussian_coefficient_is_that_of_quadrature(wide, monkeypatch):
    X, y = one_column()
    model = glm(X, y, "gaussian", noise_variance=1.3, prior=PRIOR)
    if wide:  # the same law by the factor of the rows' side
        monkeypatch.setattr(gibbs, "GaussianBlock", wide_block)
    expected = gaussian_moments(model, math.sqrt(1.3))
    assert np.abs(z_scores(quantities(run(model, 3000)), expected)).max() < 4.5


def wide_block(columns, omega, z, mean, variance):
    n = len(z)
    padded = np.concatenate([columns, np.zeros((n, n))])
    block = GaussianBlock(padded, omega, z, np.append(mean, np.zeros(n)), np.append(variance, np.ones(n)))
    assert block._wide
    whole = block.draw
    block.draw = lambda rng: whole(rng)[: len(columns)]
    return block


@pytest.mark.untraced
@pytest.mark.usefixtures("once")
def test_a_sampler_made_wrong_is_told(monkeypatch):
    X, y = one_column()
    model = glm(X, y, "gaussian", noise_variance=1.3, prior=PRIOR)
    right = gibbs._sweep_coefficients

    def shifted(*given):
        beta, scales = right(*given)
        return beta, scales._replace(local=scales.local + 0.3)

    monkeypatch.setattr(gibbs, "_sweep_coefficients", shifted)
    assert np.abs(z_scores(quantities(run(model, 3000)), gaussian_moments(model, math.sqrt(1.3)))).max() > 4.5


@pytest.mark.untraced
@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("move", ["_draw_overall_scale", "_move_overall_scale"])
def test_each_move_alone_leaves_the_law_invariant(move, monkeypatch):
    """With the other move of τ left out."""
    X, y = one_column()
    model = glm(X, y, "gaussian", noise_variance=1.3, prior=PRIOR)
    still = {
        "_draw_overall_scale": lambda model, shared, scales, rng: scales,
        "_move_overall_scale": lambda model, beta, shared, scales, rng: (beta, scales),
    }
    for name, none in still.items():
        if name != move:
            monkeypatch.setattr(gibbs, name, none)
    expected = gaussian_moments(model, math.sqrt(1.3))
    assert np.abs(z_scores(quantities(run(model, 4000)), expected, 20)).max() < 4.5


@pytest.mark.untraced
@pytest.mark.usefixtures("once")
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
    draws = run(model, 4000)[:, 0]
    found = np.stack([draws, draws**2, np.tanh(draws)], axis=1)
    assert np.abs(z_scores(found, expected)).max() < 4.5
    assert np.abs(z_scores(found, expected * [1, 1.5, 1.3])).max() > 4.5


# A spike and a slab, by all 2^p models


def enumerated(X, y, prior, log_sigma_prior):
    """Probabilities that each coefficient is not 0, means, the mean number of those that are not, and of log σ."""
    p = X.shape[1]
    b = p / prior.expected - 1
    log_sigma = np.linspace(-2.0, 2.0, 161)
    log_w, rows = [], []
    for code in range(2**p):
        some = [j for j in range(p) if code >> j & 1]
        values, vectors = np.linalg.eigh(prior.slab_scale**2 * X[:, some] @ X[:, some].T)
        turned, k = vectors.T @ y, len(some)
        variance = np.exp(2 * log_sigma) + values[:, None]
        log_model = betaln(1 + k, b + p - k)
        fit = -0.5 * (np.log(variance) + turned[:, None] ** 2 / variance).sum(axis=0)
        log_w.append(log_model + fit - 0.5 * ((log_sigma - log_sigma_prior[0]) / log_sigma_prior[1]) ** 2)
        pull = (vectors / 1.0).T @ y
        means = np.zeros((len(log_sigma), p))
        means[:, some] = ((prior.slab_scale**2 * X[:, some].T @ vectors) @ (pull[:, None] / variance)).T
        gamma = np.zeros((len(log_sigma), p))
        gamma[:, some] = 1
        rows.append(np.column_stack([gamma, means, np.full(len(log_sigma), k), log_sigma]))
    log_w = np.concatenate(log_w)
    w = np.exp(log_w - log_w.max())
    return w @ np.concatenate(rows) / w.sum()


def spike_quantities(draws, p):
    gamma = draws[:, p + 1 : 2 * p + 1]
    return np.column_stack([gamma, draws[:, :p], gamma.sum(axis=1), draws[:, p]])


@pytest.mark.untraced
@pytest.mark.parametrize("n", [20, 5])
def test_a_spike_and_slab_is_the_sum_over_all_models(n):
    rng, p = np.random.default_rng(4), 6
    X = rng.standard_normal((n, p))
    X[:, 1] += X[:, 0]
    y, prior = 0.7 * X[:, 0] + rng.standard_normal(n), SpikeAndSlab(expected=1.5, slab_scale=0.8)
    model = glm(X, y, "gaussian", prior=prior, shared_prior=Normal.with_sd(0.3, 0.1))
    expected = enumerated(X, y, prior, (0.1, 0.3))
    found = spike_quantities(run(model, 6000), p)
    assert np.abs(z_scores(found, expected)).max() < 4.5
    wider = enumerated(X, y, SpikeAndSlab(expected=1.5, slab_scale=1.6), (0.1, 0.3))
    assert np.abs(z_scores(found, wider)).max() > 4.5


@pytest.mark.untraced
def test_a_spike_and_slab_of_events_is_the_sum_over_all_models():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((12, 2))
    y, prior = (rng.random(12) < 1 / (1 + np.exp(-1.2 * X[:, 0]))) * 1.0, SpikeAndSlab(expected=0.8, slab_scale=1.2)
    grid, b = np.linspace(-8, 8, 401), 2 / prior.expected - 1
    log_slab = -0.5 * (grid / 1.2) ** 2 - np.log(1.2 * math.sqrt(2 * math.pi)) + math.log(grid[1] - grid[0])
    weights, values = [], []
    for code in range(4):
        axes = [grid if code >> j & 1 else np.zeros(1) for j in range(2)]
        first, second = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
        t = X[:, :1] * first + X[:, 1:] * second
        inner = sum(np.interp(x, grid, log_slab) for x, j in ((first, 0), (second, 1)) if code >> j & 1)
        k = code.bit_count()
        weights.append(np.exp(betaln(1 + k, b + 2 - k) + (y[:, None] * t - np.logaddexp(0, t)).sum(axis=0) + inner))
        values.append(np.stack([first != 0, second != 0, first, second, first**2], axis=1) * 1.0)
    w = np.concatenate([np.broadcast_to(part, len(v)) for part, v in zip(weights, values, strict=True)])
    expected = w @ np.concatenate(values) / w.sum()
    draws = run(glm(X, y, "bernoulli", prior=prior), 5000)
    found = np.column_stack([draws[:, 2:4], draws[:, :2], draws[:, 0] ** 2])
    assert np.abs(z_scores(found, expected)).max() < 4.5
    assert np.abs(z_scores(found, expected * [1.1, 1, 1, 1, 1.2])).max() > 4.5


# R2D2 of one coefficient, by quadrature over W


@pytest.mark.untraced
def test_one_coefficient_under_r2d2_is_that_of_quadrature():
    X, y = one_column()
    prior, sigma = R2D2(mean_r2=0.4, precision_r2=3.0, concentration=0.3), math.sqrt(1.3)
    model = glm(X, y, "gaussian", noise_variance=1.3, prior=prior)
    log_w = np.linspace(-25, 25, 4001)
    v = sigma**2 * np.exp(log_w)
    precision, pull = float(X[:, 0] @ X[:, 0]) / sigma**2, float(X[:, 0] @ y) / sigma**2
    variance = 1 / (precision + 1 / v)
    log_density = 1.2 * log_w - 3.0 * np.logaddexp(0, log_w) - 0.5 * np.log1p(precision * v) + 0.5 * pull**2 * variance
    w = np.exp(log_density - log_density.max())
    mean, w = variance * pull, w / w.sum()
    expected = np.array([w @ mean, w @ (variance + mean**2), w @ log_w])
    draws = run(model, 5000)
    found = np.stack([draws[:, 0], draws[:, 0] ** 2, 2 * (draws[:, 1] + draws[:, 2])], axis=1)
    assert np.abs(z_scores(found, expected)).max() < 4.5
    assert np.abs(z_scores(found, expected * 1.1)).max() > 4.5


# Getting it right (Geweke 2004): states and labels drawn in turn have the law of the prior


def renewed(model, y):
    """The same model with other labels."""
    model.conditional.y = y
    for name in ("sampled_rows", "lengths", "kappa", "pseudo_noise"):
        model.__dict__.pop(name, None)
    return model


def prior_state(model, rng, noise):
    """β, shared and scales from their prior."""
    shared = np.array([model.conditional.prior_mean[-1] + rng.standard_normal() * noise])[: model.loss.shared]
    scales = model.scales.draw_prior(rng, model.log_noise(shared))
    mean, variance = model.prior_of(scales, shared)
    return model.joined(mean + np.sqrt(variance) * rng.standard_normal(model.width), shared, scales)


def bounded(x):
    """Of states: what has moments."""
    return np.concatenate([np.tanh(x), np.tanh(x) ** 2], axis=-1)


def successive(model, count, seed, noise):
    rng = np.random.default_rng(seed)
    x, out = prior_state(model, rng, noise), np.empty((count, model.dim))
    X = model.conditional.rows.design_matrix.dense_matrix(np.arange(model.n))
    for k in range(count):
        beta, shared, _ = model.split(x)
        t = X @ beta
        if model.loss.shared:
            y = t + math.exp(shared[0]) * rng.standard_normal(model.n)
        else:
            y = np.where(rng.random(model.n) < 1 / (1 + np.exp(-t)), 1.0, -1.0)
        out[k] = x = gibbs_step(renewed(model, y), x, rng)
    return out


def small_model(n, family, prior=Horseshoe(expected=1.0, slab_scale=1.0)):  # noqa: B008
    X = np.random.default_rng(1).standard_normal((n, 3))
    X[:, 0] = 1.0
    shared = {"shared_prior": Normal.with_sd(0.4, 0.2)} if family == "gaussian" else {}
    y = np.arange(n) % 2
    return glm(X, y, family, prior=[Normal.with_sd(0.7, 0.3), prior, prior], **shared)


@pytest.mark.untraced
@pytest.mark.usefixtures("once")
@pytest.mark.parametrize(
    "prior", [Horseshoe(expected=1.0, slab_scale=1.0), R2D2(0.6, 3.0, 0.7), SpikeAndSlab(1.0, 0.8)]
)
@pytest.mark.parametrize(("n", "family"), [(5, "gaussian"), (2, "gaussian"), (4, "bernoulli"), (2, "bernoulli")])
def test_states_and_labels_drawn_in_turn_have_the_law_of_the_prior(n, family, prior, monkeypatch):
    model = small_model(n, family, prior)
    if family == "bernoulli":  # the scale of τ follows the labels, unless it is held
        monkeypatch.setattr(type(model), "log_noise", lambda self, shared: math.log(2.0))
    rng = np.random.default_rng(11)
    prior = bounded(np.stack([prior_state(model, rng, 0.4) for _ in range(8_000)]))
    chain = bounded(successive(model, 3000, 12, 0.4))
    blocks = chain.reshape(30, -1, chain.shape[1]).mean(axis=1)
    error = np.sqrt(blocks.var(axis=0, ddof=1) / 30 + prior.var(axis=0) / len(prior))
    assert np.abs((blocks.mean(axis=0) - prior.mean(axis=0)) / error).max() < 4.5


@pytest.mark.untraced
@pytest.mark.usefixtures("once")
def test_a_wrong_noise_is_told_by_the_prior(monkeypatch):
    model = small_model(5, "gaussian")
    right = gibbs._draw_noise_scale

    monkeypatch.setattr(gibbs, "_draw_noise_scale", lambda *given: right(*given) + 0.1)
    rng = np.random.default_rng(11)
    prior = bounded(np.stack([prior_state(model, rng, 0.4) for _ in range(8_000)]))
    chain = bounded(successive(model, 3000, 12, 0.4))
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


@pytest.mark.untraced
def test_draws_follow_the_seed_and_neither_threads_nor_a_checkpoint(posterior, tmp_path):
    settings = {"prior": Horseshoe(expected=2), "draws": 100, "seed": 1}
    again = svrhmc.fit("y ~ .", table(), **settings, threads=1, checkpoint=tmp_path / "run")
    assert np.array_equal(again.trace.draws, posterior.trace.draws)
    resumed = svrhmc.fit("y ~ .", table(), **settings, checkpoint=tmp_path / "run")
    assert np.array_equal(resumed.trace.draws, posterior.trace.draws)


@pytest.mark.untraced
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


@pytest.mark.untraced
def test_an_estimator_and_trials_take_it():
    data = table()
    X = np.stack([data[f"x{j}"] for j in range(4)], axis=1)
    estimator = svrhmc.BayesianRegression(prior=Horseshoe(expected=1), draws=50).fit(X, data["y"])
    assert abs(estimator.coef_[0] - 3) < 0.6
    single = regress(X, np.arange(60) % 2, "bernoulli", prior=Horseshoe(expected=1), draws=50, weights=np.full(60, 2))
    trials = regress(X, 2 * (np.arange(60) % 2), "binomial", trials=2, prior=Horseshoe(expected=1), draws=50)
    assert np.allclose(single.mean, trials.mean)


def twins(seed=2):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(100)
    X = np.stack([x, x + 1e-3 * rng.standard_normal(100), rng.standard_normal(100)], axis=1)
    return X, x + 0.3 * rng.standard_normal(100)


@pytest.mark.untraced
@pytest.mark.parametrize("prior", [Horseshoe(expected=1), SpikeAndSlab(expected=1)])
def test_twin_columns_share_their_effect(prior):
    twin = regress(*twins(), prior=prior, draws=200)
    assert twin.certificate.verdict == "local"
    assert np.abs(twin.mean[1:3] - 0.5).max() < 0.25
    assert abs(twin.mean[1:3].sum() - 1) < 0.1


@pytest.mark.untraced
def test_three_columns_or_the_three_that_have_the_same_sum_are_undecided():
    rng = np.random.default_rng(2)
    first, second = rng.standard_normal((100, 3)), rng.standard_normal((100, 2))
    rest = first.sum(axis=1) - second.sum(axis=1) + 1e-3 * rng.standard_normal(100)
    X, y = np.column_stack([first, second, rest]), first.sum(axis=1) + 0.3 * rng.standard_normal(100)
    with pytest.warns(svrhmc.core.errors.VerdictWarning):
        posterior = regress(X, y, prior=Horseshoe(expected=0.01), draws=400, budget_passes=4000)
    assert posterior.certificate.verdict == "undecided"


def test_a_spike_and_slab_says_how_probable_each_coefficient_is(tmp_path):
    posterior = svrhmc.fit("y ~ .", table(), prior=SpikeAndSlab(expected=1), draws=100, seed=1)
    assert posterior.certificate.verdict == "local"
    inclusion = posterior.inclusion()
    assert (inclusion.names[0], inclusion["included"][0]) == ("x0", 1.0)
    assert (np.diff(inclusion["included"]) <= 0).all()
    assert "are not 0" in str(posterior.summary())
    posterior.save(tmp_path / "fit.posterior")
    assert str(Posterior.load(tmp_path / "fit.posterior").inclusion()) == str(inclusion)
    assert np.isfinite(posterior.predict(table(5)).mean).all()


def test_a_coefficient_that_is_always_0_has_no_error():
    data = table(200, 30)
    posterior = svrhmc.fit("y ~ .", data, prior=SpikeAndSlab(expected=0.01, slab_scale=50), draws=50, seed=2)
    assert (posterior.sd == 0).any()
    assert posterior.certificate.verdict == "local"
    assert np.isfinite(posterior.certificate.stein.mean_error).all()
    str(posterior.summary())


@pytest.mark.untraced
@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_r2d2_says_what_share_is_explained(family):
    data = table()
    data["y"] = data["y"] > 0 if family == "bernoulli" else data["y"]
    posterior = svrhmc.fit("y ~ .", data, family=family, prior=R2D2(concentration=1.0), draws=100, seed=1)
    assert posterior.certificate.verdict == "local"
    assert posterior.inclusion().names[0] == "x0"
    assert "R² of the prior" in str(posterior.summary())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"family": "poisson"}, "its sampler is one for 'gaussian', 'bernoulli', 'binomial'|'bernoulli'"),
        ({"prior": Horseshoe(expected=30)}, "expected must be below 4"),
        ({"prior": {"Intercept": Horseshoe(expected=1)}}, "the prior of an intercept"),
        ({"prior": {"log sigma": Horseshoe(expected=1)}}, "one of a single coefficient here"),
        ({"prior": {"x0": Horseshoe(expected=0.3), "x1": Horseshoe(expected=0.4)}}, "share its settings"),
        ({"prior": {"x0": Horseshoe(expected=0.3), "x1": Laplace()}}, "beside a Horseshoe must be Normal"),
        ({"prior": {"x0": Horseshoe(expected=0.3), "x1": Flat()}}, "beside a Horseshoe must be Normal"),
        ({"method": "split-hmc"}, "under a Horseshoe"),
        ({"family": "bernoulli", "weights": np.full(60, 1.5)}, "whole numbers"),
        ({"family": svrhmc.targets.families.bernoulli("probit")}, "probit"),
        ({"groups": [Group(np.arange(60) % 5)]}, "one of a single coefficient here"),
    ],
)
def test_what_it_does_not_have_is_refused(change, words):
    X = np.stack([table()[f"x{j}"] for j in range(4)], axis=1)
    given = {"prior": Horseshoe(expected=1), **change}
    with pytest.raises(ValueError, match=words):
        regress(X, np.arange(60) % 2, **given)


@pytest.mark.parametrize(
    ("prior", "settings"),
    [
        (Horseshoe, {"expected": 0}), (Horseshoe, {"expected": 2, "slab_df": -1}), (Horseshoe, {"expected": math.nan}),
        (SpikeAndSlab, {"expected": -1}), (SpikeAndSlab, {"expected": 2, "slab_scale": 0}), (R2D2, {"mean_r2": 1.0}),
        (R2D2, {"precision_r2": 0}), (R2D2, {"concentration": math.inf}),
    ],
)  # fmt: skip
def test_settings_that_are_none_are_refused(prior, settings):
    with pytest.raises(ValueError, match="must be"):
        prior(**settings)
    assert joint_prior(Normal(), 3) is None


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_nuts_has_the_same_moments(family):
    from benchmarks.shrinkage import by_gibbs, by_nuts, problem

    X, y, prior = problem(60, 30, family)
    ours, theirs = by_gibbs(X, y, family, prior, 2000, 1)[0], by_nuts(X, y, family, prior, 500, 1500, 2, 1)[0]
    error = np.sqrt(sum(x.var(axis=(0, 1)) / svrhmc.diagnostics.ess(x) for x in (ours, theirs)))
    assert np.abs((ours.mean(axis=(0, 1)) - theirs.mean(axis=(0, 1))) / error).max() < 4.5
