"""What is known of the number of modes, and what a verdict makes of it."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

import svrhmc
from quadrature import moments_of_one_coordinate
from simulated_data import events
from svrhmc import sample, targets
from svrhmc.core.deadline import Budget
from svrhmc.density import minima as search_of_minima
from svrhmc.density.minima import find_minima, find_only_minimum
from svrhmc.gradients import Full
from svrhmc.sampling.certificate import Bias, Certificate
from svrhmc.sampling.correction import DrawMoments
from svrhmc.targets import families, glm
from svrhmc.targets.priors import Flat, Laplace, Normal, StudentT

ONE_PREDICTOR = [
    (families.bernoulli(), [-1.0, 1.0]), (families.bernoulli("probit"), [-1.0, 1.0]),
    (families.binomial(), [0.0, 0.3, 1.0]), (families.poisson(), [0.0, 2.0, 40.0]), (families.gaussian(2.0), [0.7]),
]  # fmt: skip
SHARED = [
    (families.gaussian(), [-3.0, 0.7]), (families.negative_binomial(), [0.0, 2.0, 40.0]), (families.gamma(), [-2.0, 0.7]),
    (families.student_t(), [-3.0, 0.7]),
]  # fmt: skip


def test_losses_that_say_they_are_convex_are():
    t = np.linspace(-30, 30, 241)
    for loss, labels in ONE_PREDICTOR:
        assert loss.convex
        assert all((loss.curvature(t, np.full(t.shape, y)) >= 0).all() for y in labels)
    loss = families.categorical(4)
    points = np.random.default_rng(0).normal(size=(200, 3)) * 5
    for y in range(4):
        values = np.linalg.eigvalsh(loss.curvature(points, np.full(200, float(y))))
        assert loss.convex
        assert values.min() > -1e-12


def test_losses_that_say_they_are_convex_given_a_shared_parameter_are():
    t = np.stack(np.meshgrid(np.linspace(-12, 12, 97), np.linspace(-6, 6, 25)), axis=-1).reshape(-1, 2)
    for loss, labels in SHARED:
        least = min(loss.curvature(t, np.full(len(t), y))[:, 0, 0].min() for y in labels)
        assert (least >= 0) == loss.convex_given_shared  # Student's is the negative control
        assert not loss.convex


@pytest.mark.parametrize("prior", [Normal(), Laplace(0.5), StudentT()], ids=lambda prior: type(prior).__name__)
def test_a_log_concave_prior_and_loss_have_one_mode(prior):
    X = np.random.default_rng(1).normal(size=(30, 2))
    target = glm(X, X[:, 0] > 0.3 * np.cos(np.arange(30)), prior=prior)
    known = "its density is log-concave" if not isinstance(prior, StudentT) else None
    assert target.one_mode == known


def rows_of(family):
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(60), rng.normal(size=(60, 2))])
    mean = np.exp(X @ [0.5, 0.3, -0.2])
    y = {
        "gaussian": X @ [1.0, 2.0, 3.0] + rng.normal(size=60), "student-t": X @ [1.0, 2.0, 3.0] + rng.normal(size=60),
        "negative-binomial": rng.poisson(mean * rng.gamma(2.0, 0.5, 60)), "gamma": rng.gamma(2.0, mean / 2),
    }  # fmt: skip
    return X, y[family]


@pytest.mark.ordinary(lambda family: family in ("gamma", "student-t"))
@pytest.mark.parametrize("family", ["gaussian", "negative-binomial", "gamma", "student-t"])
def test_the_profile_of_a_shared_parameter_shows_one_mode(family):
    target = glm(*rows_of(family), family)
    if family == "student-t":
        assert target.one_mode is None
    else:
        assert target.one_mode.startswith(f"it is log-concave given {target.loss.shared_names[0]}, and the profile")
    heavy = glm(*rows_of(family), family, prior=StudentT())
    assert heavy.one_mode is None


def test_a_prior_far_from_the_data_gives_a_gaussian_two_modes_which_the_profile_shows():
    """y ~ N(8, 0.3²) in 50 rows and β ~ N(0, ½²): σ = 0.3 with β near 8, or σ = 8 with β near 0."""
    y = 8.0 + 0.3 * np.random.default_rng(3).normal(size=50)
    prior, shared = Normal.with_sd(0.5), Normal.with_sd(5.0)
    target = glm(np.ones((50, 1)), y, "gaussian", prior=prior, shared_prior=shared)
    tau = np.linspace(-2, 4, 2001)  # the profile by hand
    S, W, mean = ((y - y.mean()) ** 2).sum(), 50.0, y.mean()
    beta = W * np.exp(-2 * tau) * mean / (W * np.exp(-2 * tau) + 4.0)
    p = W * tau + 0.5 * np.exp(-2 * tau) * (S + W * (mean - beta) ** 2) + 2 * beta**2 + 0.02 * tau**2
    find_minima = ((p[1:-1] < p[:-2]) & (p[1:-1] < p[2:])).sum()
    assert find_minima == 2
    assert target.one_mode is None
    assert glm(np.ones((50, 1)), y, "gaussian").one_mode is not None  # under N(0, 1) for each there is one


def test_what_a_custom_target_declares():
    centres = np.array([[0.0], [2.0]])
    target = targets.custom(2, 1, lambda x, rows: x - centres[rows], convexity=1.0)
    assert target.one_mode == "its density is log-concave, by the convexity that was given"
    assert targets.custom(2, 1, lambda x, rows: x - centres[rows]).one_mode is None
    assert targets.gaussian(centres, [[1.0]]).one_mode == "it is Gaussian"


def test_a_model_that_is_declared_log_concave_has_one_mode():
    def log_likelihood(b, row):
        return -0.5 * (row - b[0]) ** 2 - b[1] ** 2

    target = targets.model(log_likelihood, lambda b: -0.5 * (b**2).sum(), np.arange(3.0), np.ones(2), log_concave=True)
    assert target.one_mode == "its density is log-concave, as was declared"
    np.testing.assert_allclose(target.modes(), [[0.75, 0.0]], atol=1e-6)
    with pytest.raises(ValueError, match="log_concave must be True or False; got 'yes'"):
        targets.model(log_likelihood, lambda b: 0.0, np.arange(3.0), np.ones(2), log_concave="yes")


@pytest.mark.parametrize("apart", [0.0, 3.0, 6.0, 20.0])
def test_what_is_declared_log_concave_and_is_not_is_refused(apart):
    """Two normal laws of sd 1 have a log-concave mixture where they are less than 2 apart."""
    target = Mixture([0.5, 0.5], [[0.0, 0.0], [apart, 0.0]], [1.0, 1.0])
    if apart:
        with pytest.raises(ValueError, match=r"log_concave must be True only .* curves upwards somewhere between"):
            find_only_minimum(target, np.zeros(2), 1e-6)
    else:
        assert np.abs(find_only_minimum(target, np.ones(2), 1e-6).points).max() < 1e-6


def certificate(verdict, draws):
    zero = np.zeros(1)
    return Certificate(verdict, 0.02, Bias(zero, zero, zero, zero), None, draws)


@pytest.mark.parametrize("verdict", ["exact", "certified", "undecided", "refuted", "unjudged"])
def test_a_verdict_where_other_modes_are_not_excluded(verdict):
    known = certificate(verdict, verdict).knowing("its density is log-concave", 1, "one start")
    assert (known.verdict, known.draws) == (verdict, verdict)
    open_ = certificate(verdict, verdict).knowing(None, 3, "64 starts at 1, 3, 10 and 30 times the spread")
    word = "local" if verdict in ("exact", "certified") else verdict
    assert (open_.verdict, open_.draws) == (word, word)
    told = "3 modes found from 64 starts at 1, 3, 10 and 30 times the spread, and nothing shows that there is no other"
    assert (told in str(open_), told in open_.brief()) == (word == "local", word == "local")
    open_.require_sound()


def test_sample_calls_what_may_have_other_modes_local():
    X, y = rows_of("student-t")
    posterior = sample(glm(X, y, "student-t"), draws=200)
    assert posterior.certificate.verdict == "local"
    assert "1 mode found from" in str(posterior.certificate)
    posterior = sample(glm(X, y > 0, prior=Flat()), draws=200)
    assert posterior.certificate.verdict == "exact"
    assert "the posterior has one mode, because its density is log-concave" in str(posterior.certificate)


def test_a_fit_of_a_family_with_a_shared_parameter_is_exact():
    X, y = rows_of("gamma")
    posterior = svrhmc.fit("y ~ a + b", {"y": y, "a": X[:, 1], "b": X[:, 2]}, family="gamma", draws=200)
    assert posterior.certificate.verdict == "exact"


class Mixture:
    """Σ w N(μ, s²I), with all that a search for modes asks of a target. row_nanoseconds: the cost that it declares."""

    n = 1

    def __init__(self, weights, means, sds, row_nanoseconds=1000.0):
        self.means, self.sds, self.row_nanoseconds = np.array(means, float), np.array(sds, float), row_nanoseconds
        self.prior_draws = None
        self.dim = self.means.shape[1]
        self.logs = np.log(weights) - self.dim * np.log(self.sds)

    def prior_spread(self):
        return np.ones(self.dim)

    def _parts(self, x):
        """The log density of every component, and ∇ of minus it."""
        slopes = (x[:, None] - self.means) / self.sds[:, None] ** 2
        return self.logs - 0.5 * ((x[:, None] - self.means) * slopes).sum(axis=2), slopes

    def potentials(self, x):
        return -logsumexp(self._parts(x)[0], axis=1)

    def energies(self, x):
        parts, slopes = self._parts(x)
        total = logsumexp(parts, axis=1)
        return -total, np.einsum("nk,nkd->nd", np.exp(parts - total[:, None]), slopes)

    def hessian(self, x):
        parts, slopes = (one[0] for one in self._parts(x[None]))
        share = np.exp(parts - logsumexp(parts))
        mean = share @ slopes
        outer = np.einsum("k,kd,ke->de", share, slopes, slopes)
        return (share / self.sds**2).sum() * np.eye(self.dim) - outer + np.outer(mean, mean)

    def modes(self):
        return find_minima(self, np.zeros(self.dim)).points


def has(found, mode, sd):
    return bool((np.sqrt(((found - mode) ** 2).sum(axis=1)) < 0.1 * sd).any())


def test_the_mixture_of_these_tests_is_its_own_derivative():
    target, x, h = Mixture([0.4, 0.6], [[0.0, 1.0], [1.0, -1.0]], [1.0, 0.5]), np.array([0.3, 0.2]), 1e-5
    ways = h * np.eye(2)
    f = target.potentials(np.concatenate([x + ways, x - ways]))
    g = target.energies(np.concatenate([x + ways, x - ways]))[1]
    np.testing.assert_allclose((f[:2] - f[2:]) / (2 * h), target.energies(x[None])[1][0], rtol=1e-8)
    np.testing.assert_allclose((g[:2] - g[2:]) / (2 * h), target.hessian(x), rtol=1e-8)


def test_two_modes_twelve_apart_are_found_and_half_the_mass_is_never_called_exact():
    """½N(−6, ½²) + ½N(6, 1²): from 0 a search goes to one of them, and none by chance to the other."""
    from jax.scipy.special import logsumexp as log_sum

    def log_likelihood(x, row):
        return log_sum(np.array([np.log(2.0), 0.0]) - 0.5 * ((x - np.array([-6.0, 6.0])) / np.array([0.5, 1.0])) ** 2)

    target = targets.model(lambda x, row: log_likelihood(x, row) + 0.0 * row, lambda x: 0.0, np.zeros(1), np.zeros(1))
    modes = target.modes()
    assert len(modes) == 2
    assert has(modes, [-6.0], 0.5)
    assert has(modes, [6.0], 1.0)
    assert target.mode_starts.endswith("points at up to 30 times the spread of each")
    posterior = sample(target, draws=100)
    assert posterior.certificate.verdict in ("local", "undecided")
    if posterior.certificate.verdict == "local":
        assert "2 modes found from" in str(posterior.certificate)
        assert (np.abs(posterior.modes.weight - 0.5) < 4.5 * posterior.modes.error).all()


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_unequal_modes_are_found_wherever_they_lie(dim):
    """Four of weights down to 5% and widths from ½ to 1, the next one 3, 8 and 10 of the larger sds away."""
    rng = np.random.default_rng(dim)
    way = rng.normal(size=(3, dim))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    means = np.concatenate([np.zeros((1, dim)), np.cumsum(way * [[3.0], [8.0], [10.0]], axis=0)])
    sds = [0.5, 1.0, 0.6, 0.5]
    modes = Mixture([0.5, 0.25, 0.2, 0.05], means, sds, 2e5).modes()
    assert [has(modes, mean, sd) for mean, sd in zip(means, sds, strict=True)] == [True] * 4
    assert len(modes) == 4


@pytest.mark.parametrize("distance", [1.0, 9.0])
def test_a_spike_of_a_thousandth_of_the_volume_is_found_where_points_can_be_afforded(distance):
    """A tenth as wide in three coordinates, inside the wide mode or far from it. A dear density has too few points."""
    spike = distance * np.array([0.6, -0.48, 0.64])
    cheap, dear = (Mixture([0.9, 0.1], [[0.0] * 3, spike], [1.0, 0.1], cost).modes() for cost in (1e4, 1e7))
    assert has(cheap, spike, 0.1)
    assert len(cheap) == 2
    assert not has(dear, spike, 0.1)


def test_points_lie_in_the_ball_that_a_narrow_mode_rules_as_often_as_derived():
    """m at every distance D: the points within ρ√(c + D²) of places at D, for a small ρ, in which f hardly changes."""
    d, narrow, places = 3, 0.04, np.random.default_rng(0).normal(size=(100, 3))
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    target = Mixture([1.0], [[0.0] * d], [1.0])
    search = search_of_minima._MinimumSearch(target)
    first = search.polished_minimum(np.full(d, 1e-9))
    points = search_of_minima._MinimaSearch(search, first, np.ones(d), 2e4)._points_around(first, np.eye(d))
    radii = np.linspace(0.0, 12.0, 100_001)
    integral = np.trapezoid(radii ** (d - 1) * (points.c + radii**2) ** (-d / 2), radii)
    m = 0.75 * len(points.x) * narrow**d / (d * integral)
    for distance in (0.5, 4.0, 10.0):
        away = cdist(distance * places, points.x)
        counts = (away < narrow * np.sqrt(points.c + distance**2)).sum(axis=1)
        far = 0.25 / np.log(30.0) / (4 * np.pi * distance**3) * (distance > np.sqrt(d))  # density of the points beyond
        more = far * len(points.x) * 4 / 3 * np.pi * narrow**3 * (points.c + distance**2) ** 1.5
        assert abs(counts.mean() / (m + more) - 1) < 4.5 / np.sqrt(len(places) * m)


def test_the_number_of_points_is_decided_by_the_declared_cost():
    target = Mixture([1.0], [[0.0] * 5], [1.0])
    search = search_of_minima._MinimumSearch(target)
    first = search.polished_minimum(np.full(5, 1e-9))
    counts = []
    for nanoseconds in (1e9, 1e6, 1e4):
        search.passes = 0.0
        others = search_of_minima._MinimaSearch(search, first, np.ones(5), nanoseconds)
        counts.append(len(others._points_around(first, np.eye(5)).x))
        assert search.passes == counts[-1]
    assert counts == [64, 256, 32768]


def test_a_budget_of_passes_makes_points_fewer_and_still_finds_the_other_mode():
    target, deadline = Mixture([0.5, 0.5], [[0.0] * 3, [7.0, 0.0, 0.0]], [1.0, 1.0]), Budget(1, passes=20_000)
    with deadline.binding():
        minima_found = find_minima(target, np.zeros(3))
    assert len(minima_found.points) == 2
    assert minima_found.passes < 5_000


def test_the_main_mode_is_the_heaviest_and_not_the_highest():
    target = Mixture([0.05, 0.95], [[0.0, 0.0], [4.0, 0.0]], [0.02, 1.0])
    high, wide = target.potentials(np.array([[0.0, 0.0], [4.0, 0.0]]))
    assert high < wide - 4
    modes = target.modes()
    assert modes[0] == pytest.approx([4.0, 0.0], abs=0.01)
    assert has(modes, [0.0, 0.0], 0.02)
    light = Mixture([1e-5, 1.0], [[0.0, 0.0], [9.0, 0.0]], [1.0, 1.0])
    assert len(light.modes()) == 1  # what weighs nothing is no place for a chain


def spiky(scale, low, high):
    """Points that follow both modes."""
    return np.unique(np.concatenate([np.linspace(low, high, 4001), scale * np.linspace(-40, 40, 8001)]))


def test_a_spiky_prior_does_not_hide_the_data():
    """1000 rows and a prior t₅ of scale 0.001: the density is highest in the spike at 0, and the mass is at 1.4."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 1))
    y = events(rng, 1.7 * x[:, 0])
    target = glm(x, y, prior=StudentT(5, 0.001))
    mean, sd = moments_of_one_coordinate(target, spiky(0.001, -1.0, 3.0))
    assert mean > 1
    for seed in range(3):
        posterior = sample(target, draws=200, seed=seed)
        assert posterior.certificate.verdict == "local"
        assert abs(posterior.mean[0] - mean) < 4.5 * posterior.errors[0][0] + 1e-3 * sd
        assert posterior.sd[0] == pytest.approx(sd, rel=0.02)


def test_a_shoulder_beside_a_spike_is_a_place_for_chains():
    """Four events in one row under a Cauchy prior of scale 0.02: no second minimum, but 13% of the mass out there."""
    target = glm([[1.0]], [4], "poisson", prior=StudentT(1, 0.02))
    points = spiky(0.02, -6.0, 4.0)
    slopes = target.gradients(points[:, None])[:, 0]
    assert (np.diff(np.sign(slopes)) > 0).sum() == 1
    found = target.modes()[:, 0]
    assert found[0] == pytest.approx(0.0, abs=0.01)
    assert found[1] == pytest.approx(np.log(4.0), abs=0.05)


def test_coefficients_leave_the_spike_one_by_one():
    """Three orthogonal columns with effects of 3.5 sd under Cauchy priors of scale 0.01: each coefficient is in the spike
    or out of it whatever the others are, which makes eight modes.
    """
    X = np.linalg.qr(np.random.default_rng(5).normal(size=(60, 3)))[0] * np.sqrt(60.0)
    target = glm(X, X @ np.full(3, 0.45), "gaussian", noise_variance=1.0, prior=StudentT(1, 0.01))
    points = np.linspace(0.0, 0.45, 100_001)
    slope = 60.0 * (points - 0.45) + 2 * points / (0.01**2 + points**2)
    inside, outside = points[np.flatnonzero(np.diff(np.sign(slope)) > 0)]
    expected = np.stack(np.meshgrid(*[[inside, outside]] * 3), axis=-1).reshape(-1, 3)
    modes = target.modes()
    assert len(modes) == 8
    assert all(has(modes, mode, 0.01) for mode in expected)
    assert modes[0] == pytest.approx(np.full(3, outside), abs=1e-3)


def benchmark():
    """`benchmarks/modes.py`, as a module."""
    place = Path(__file__).parents[1] / "benchmarks" / "modes.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_modes", place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_modes_of_the_benchmark():
    """A mixture of `benchmarks/modes.py` in three coordinates: all modes are found."""
    measured = benchmark().measured
    row = measured(2, draws=0)
    assert row["found"] == row["modes"]


@pytest.mark.slow
def test_modes_and_verdicts_of_the_benchmark():
    bench = benchmark()
    rows = [bench.measured(seed, draws=400) for seed in range(30)]
    assert not [row for row in rows if row["verdict"] in ("exact", "certified")]
    goal = [row for row in rows if row["dim"] <= bench.LOW and row["sd"] <= bench.NEAR]
    assert sum(row["found"] == row["modes"] for row in goal) >= 0.95 * len(goal)
    complete = [row for row in rows if row["verdict"] == "local" and row["found"] == row["modes"]]
    assert max((row["z"] for row in complete), default=0.0) < 4.5


def of_log_density(log_density, init):
    """A model without data that say anything."""
    return targets.model(
        lambda params, row: 0.0 * row["y"], log_density, {"y": np.zeros(2)}, {name: np.array(x) for name, x in init.items()}
    )  # fmt: skip


def test_components_that_can_change_places_are_named():
    """Two modes of a mixture that are the same but for the order of its components; and two that are not."""
    jnp = pytest.importorskip("jax").numpy
    centres, sds = jnp.array([-2.0, 3.0]), jnp.array([0.3, 0.5])

    def mixture(params, turned):
        def near(order):
            far = (params["mu"] - centres[order]) ** 2 + (params["s"] - sds[order]) ** 2
            return -50 * far.sum() - 0.5 * params["shift"] ** 2

        return jnp.logaddexp(near(jnp.array([0, 1])), near(jnp.array([1, 0])) - turned)

    init = {"mu": [-2.0, 3.0], "s": [0.3, 0.5], "shift": 0.1}
    posterior = sample(of_log_density(lambda params: mixture(params, 0.0), init), draws=100, seed=0)
    assert posterior.modes.exchanged == ("mu", "s")
    text = " ".join(str(posterior.summary()).split())
    assert "The components of mu, s can change places" in text
    assert "Order them, as by OrderedTransform in NumPyro" in text
    other = sample(of_log_density(lambda params: mixture(params, 2.0), init), draws=100, seed=0)
    assert len(other.modes.weight) == 2
    assert other.modes.exchanged == ()
    assert "change places" not in str(other.summary())


@pytest.mark.filterwarnings("ignore::svrhmc.VerdictWarning")
def test_a_posterior_that_is_flat_along_a_ring_is_sampled_as_wide_as_it_is():
    """The Hessian at a mode is singular along the ring; it raised LinAlgError. Its radius is 4, its width 0.2."""
    jnp = pytest.importorskip("jax").numpy
    target = of_log_density(
        lambda params: -0.5 * ((jnp.sqrt((params["x"] ** 2).sum() + 1e-12) - 4) / 0.2) ** 2, {"x": [1.0, 0.5]}
    )
    posterior = sample(target, draws=100, seed=0, budget_passes=40_000)
    radius = np.sqrt((posterior.trace.draws**2).sum(axis=2))
    assert abs(radius.mean() - 4) < 0.1
    assert 0.1 < radius.std() < 0.3


@pytest.mark.untraced
def test_a_posterior_without_an_integral_is_called_improper():
    """Eight schools with a flat prior on the logarithm of the scale: the chains run off to −∞, where R-hat alone spoke
    of a narrow part; and no warning but that of the verdict reaches the user, though f overflows far out.
    """
    jax = pytest.importorskip("jax")
    jnp, logpdf = jax.numpy, jax.scipy.stats.norm.logpdf
    effects, sds = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    target = targets.model(
        lambda p, row: logpdf(row["y"], p["mu"] + jnp.exp(p["lt"]) * p["z"][row["j"]], row["s"]),
        lambda p: logpdf(p["mu"], 0, 20) + logpdf(p["z"], 0, 1).sum(),
        {"y": effects, "s": sds, "j": np.arange(8)},
        {"mu": 0.0, "lt": 0.0, "z": np.zeros(8)},
    )
    with pytest.warns(svrhmc.VerdictWarning) as warned:
        posterior = sample(target, draws=100, seed=0)
    assert len(warned) == 1
    assert posterior.certificate.verdict == "undecided"
    assert "falls along lt no faster than 1/|lt|, so that the posterior has no integral" in str(posterior.certificate)
    assert np.isnan(posterior.sd[target.names.index("lt")])


def test_an_improper_posterior_whose_chains_meet_no_finite_gradient_is_called_improper():
    """A flat prior on the logarithm of one of two scales: a chain stood where f is infinite and its gradient is nan,
    which raised LinAlgError from a singular value decomposition.
    """
    jax = pytest.importorskip("jax")
    jnp, logpdf = jax.numpy, jax.scipy.stats.norm.logpdf
    target = targets.model(
        lambda p, row: logpdf(row["y"], p["mu"], jnp.sqrt(1 + jnp.exp(2 * p["lt"]))),
        lambda p: logpdf(p["mu"], 0, 5),
        {"y": np.random.default_rng(0).normal(size=20)},
        {"mu": 0.0, "lt": 0.0},
    )
    with pytest.warns(svrhmc.VerdictWarning):
        posterior = sample(target, draws=100, seed=0)
    assert posterior.certificate.verdict == "undecided"
    assert "falls along lt no faster than 1/|lt|, so that the posterior has no integral" in str(posterior.certificate)
    assert np.isnan(posterior.sd[target.names.index("lt")])
    assert np.isfinite(posterior.sd[target.names.index("mu")])


def test_moments_without_finite_gradients_are_those_of_the_draws():
    x = np.random.default_rng(0).normal(size=(2, 50, 3))
    gradient = x.copy()
    gradient[1, 7, 2] = np.nan
    effective = np.full(3, 100.0)
    moments = DrawMoments.of(x, x, Full(), gradient, np.ones(3), effective, True)
    assert (
        moments.doubt == "the gradient of the log density is not finite at some draws; is a prior missing or too wide?"
    )
    np.testing.assert_array_equal(moments.corrected.mean, x.mean(axis=(0, 1)))
    assert not DrawMoments.of(x, x, Full(), x, np.ones(3), effective, True).doubt
