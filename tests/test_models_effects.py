"""Effects of groups in NumPyro models: the change of variables, that it is exact, and what it makes possible."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid

import svrhmc
from svrhmc.targets import from_numpyro

numpyro = pytest.importorskip("numpyro")
jax = pytest.importorskip("jax")
from numpyro import distributions as dist  # noqa: E402
from numpyro.contrib.control_flow import scan  # noqa: E402

from svrhmc.core.jax import scope  # noqa: E402
from svrhmc.models.numpyro_effects import standardise_effects  # noqa: E402
from svrhmc.models.numpyro_sites import Arguments  # noqa: E402

ROWS = np.random.default_rng(2)
GROUP = np.repeat(np.arange(5), [1, 2, 12, 30, 5])
X = ROWS.normal(size=len(GROUP))
Y = ROWS.poisson(np.exp(0.3 + 0.5 * ROWS.normal(size=5)[GROUP] + 0.4 * X)).astype(float)
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def slopes(x, group, y=None):
    """Intercepts and slopes that vary, centred, with an event axis."""
    mu = numpyro.sample("mu", dist.Normal(0, 2).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    with numpyro.plate("groups", 5):
        b = numpyro.sample("b", dist.Normal(mu, tau).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Poisson(jax.numpy.exp(b[group, 0] + b[group, 1] * x)), obs=y)


def schools(error, y=None):
    """Eight schools, centred."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(error)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, error), obs=y)


def plain(x, group, y=None):
    """No effects of groups: what varies has a prior with numbers."""
    b = numpyro.sample("b", dist.Normal(0, 1).expand([5]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    numpyro.sample("y", dist.Poisson(jax.numpy.exp(tau * b[group] + 0.1 * x)), obs=y)


@pytest.fixture(scope="module")
def target():
    return from_numpyro(slopes, X, GROUP, Y)


def test_the_density_is_that_of_the_model_with_the_jacobian_of_its_variables(target):
    """−f(z) = log p(b, rest) + log |∂(quantities)/∂(variables)| + constant; without the Jacobian it is not."""
    from numpyro.infer.util import log_density

    states = np.random.default_rng(0).normal(size=(6, target.dim))

    def quantities(x):
        named = target.constrain(target.functions.params(x))
        return jax.numpy.concatenate([jax.numpy.ravel(named[name]) for name in ("mu", "tau", "b")]), named

    differences, without = [], []
    with scope():
        for state in states:
            matrix = jax.jacobian(lambda x: quantities(x)[0])(state)
            assert matrix.shape == (target.dim, target.dim)
            named = quantities(state)[1]
            whole = float(log_density(slopes, (X, GROUP, Y), {}, named)[0])
            jacobian = float(np.linalg.slogdet(np.asarray(matrix))[1])
            f = float(target.potentials(state[None])[0])
            differences.append(f + whole + jacobian)
            without.append(f + whole)
    assert np.ptp(differences) < 1e-8
    assert np.ptp(without) > 1.0


def test_variables_of_well_known_effects_have_about_their_posterior_spread(target):
    """s² = 1/(τ⁻² + h): a group of 30 rows moves less than one of a single row."""
    with scope():
        slopes_of_b = jax.jacobian(lambda x: target.constrain(target.functions.params(x))["b"][:, 0])(target.start)
    spread = np.abs(np.asarray(slopes_of_b)[:, [name.startswith("b_") for name in target.names]]).max(axis=1)
    assert spread[3] < 0.7 * spread[0]


def test_names_are_those_of_the_model(target):
    posterior = svrhmc.sample(target, draws=40, method=svrhmc.exact.SplitHMC(0.1, 1), certificate=False)
    assert set(posterior.by_name()) == {"mu", "tau", "b"}
    assert posterior.by_name()["b"].shape[2:] == (5, 2)


def eight_schools_moments():
    """Means and standard deviations of μ, log τ and θ₁ by quadrature over μ and log τ: θ given both is normal."""
    log_tau, mu = np.linspace(-9, 7, 641), np.linspace(-45, 45, 721)
    t, m = np.meshgrid(log_tau, mu, indexing="ij")
    tau = np.exp(t)
    log_p = stats.norm.logpdf(m, 0, 5) + np.log(2 / np.pi / 5) - np.log1p((tau / 5) ** 2) + t
    for y, error in zip(SCHOOLS, ERRORS, strict=True):
        log_p += stats.norm.logpdf(y, m, np.hypot(tau, error))
    p = np.exp(log_p - log_p.max())
    p /= trapezoid(trapezoid(p, mu, axis=1), log_tau)
    precision = tau**-2.0 + ERRORS[0] ** -2.0
    theta, variance = (m / tau**2 + SCHOOLS[0] / ERRORS[0] ** 2) / precision, 1 / precision

    def moments(value, inner=0.0):
        mean = trapezoid(trapezoid(p * value, mu, axis=1), log_tau)
        second = trapezoid(trapezoid(p * ((value - mean) ** 2 + inner), mu, axis=1), log_tau)
        return mean, np.sqrt(second)

    return {"mu": moments(m), "log tau": moments(t), "theta": moments(theta, variance)}


def test_eight_schools_as_they_are_written_have_their_moments():
    """NUTS on this model misses small τ; without the change of variables its density has no mode."""
    posterior = svrhmc.sample(from_numpyro(schools, ERRORS, SCHOOLS), seed=1)
    assert posterior.certificate.verdict in ("exact", "local")
    draws = posterior.by_name()
    values = {"mu": draws["mu"], "log tau": np.log(draws["tau"]), "theta": draws["theta"][..., 0]}
    for name, (mean, sd) in eight_schools_moments().items():
        value = values[name]
        error = sd / np.sqrt(float(svrhmc.diagnostics.ess(value[..., None])[0]))
        assert abs(value.mean() - mean) < 4.5 * error, name
        assert value.std() == pytest.approx(sd, rel=0.1), name


def test_a_model_without_effects_is_left_as_it_is():
    with scope():
        arguments = Arguments.of(plain, (X, GROUP, Y), {})
        assert standardise_effects(plain, arguments) is plain
        assert standardise_effects(slopes, Arguments.of(slopes, (X, GROUP, Y), {})) is not slopes


def walk(y):
    """Steps of a scan: each has one value of its own, whose mean is the value before it."""
    tau = numpyro.sample("tau", dist.HalfNormal(1))

    def step(before, _):
        x = numpyro.sample("x", dist.Normal(before, tau))
        return x, x

    states = scan(step, 0.0, jax.numpy.arange(len(y)))[1]
    numpyro.sample("y", dist.Normal(states, 0.5), obs=y)


def test_a_random_walk_by_scan_is_taken_as_it_is():
    y = np.random.default_rng(4).normal(size=6)
    target = from_numpyro(walk, y)
    assert set(target.names) == {*(f"x[{j}]" for j in range(6)), "sampled tau"}
    states = np.random.default_rng(0).normal(size=(3, 7))
    places = [[name == f"x[{j}]" for name in target.names].index(True) for j in range(6)]
    log_tau, x = states[:, target.names.index("sampled tau")], states[:, places]
    tau = np.exp(log_tau)
    steps = np.diff(x, axis=1, prepend=0.0)
    log_p = stats.halfnorm.logpdf(tau) + log_tau + stats.norm.logpdf(steps, 0, tau[:, None]).sum(axis=1)
    log_p += stats.norm.logpdf(y, x, 0.5).sum(axis=1)
    np.testing.assert_allclose(np.ptp(target.potentials(states) + log_p), 0.0, atol=1e-9)
    assert np.ptp(target.potentials(states)) > 0.1
