"""Parts from outside the package: a loss, a dynamics, a gradient, engines and a density, with nothing in it edited."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

import svrhmc
from conftest import LIMIT, every_engine
from svrhmc import Sampler, engines, gradients, sample, targets
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.serialise import part
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.dynamics import UBU, Dynamics
from svrhmc.engines.reference import Reference
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.families.base import Family, Formulas
from svrhmc.families.recession import one_predictor_cones
from svrhmc.gradients import Gradient, Recipe
from svrhmc.rows.sparse import make_rows
from svrhmc.scheme import Kick, Map, NoiseFactor, Scheme
from svrhmc.targets.losses import Loss
from svrhmc.targets.priors import Term
from svrhmc.whitening import whitened


@dataclass(frozen=True)
class Poisson(Loss):
    """ℓ(t, y) = eᵗ − yt: counts with a logarithmic link."""

    def value(self, t, y):
        return np.exp(t) - y * t

    def slope(self, t, y):
        return np.exp(t) - y

    def curvature(self, t, y):
        return np.exp(t)

    def mean(self, t):
        return np.exp(t)


def test_a_loss_from_outside():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) / 2
    target = GeneralisedLinear(make_rows(X), rng.poisson(np.exp(X @ [0.5, -1.0])).astype(float), Poisson(), 1.0)
    grid = target.mode() + np.stack(np.meshgrid(*[np.linspace(-1, 1, 201)] * 2), axis=-1).reshape(-1, 2)
    weight = np.exp(target.potentials(target.mode()[None]) - target.potentials(grid))
    mean = weight @ grid / weight.sum()
    run = Sampler(UBU(0.1, 2.0, 1.0), gradients.Full()).run(whitened(target), 1100, chains=100, burn_in=100, thin=10)
    by_chain = run.draws.mean(axis=1)
    assert (np.abs(by_chain.mean(axis=0) - mean) < LIMIT * by_chain.std(axis=0) / 10 + 1e-3).all()
    assert run.engine == "reference"
    with pytest.raises(ValueError, match=r"got 'numba': it does not have the loss .*Poisson\(\)"):
        svrhmc.sgld(1e-3).run(target, 5, engine="numba")
    with pytest.raises(ValueError, match=r"inverse_mass must be given; got None: the curvature of .* has no bound"):
        svrhmc.hmc(0.01).run(target, 5)
    exact = sample(target, 400, seed=1)
    assert exact.method == "split-hmc"
    assert (np.abs(exact.mean - mean) < LIMIT * exact.sd / 20 + 1e-3).all()
    with pytest.raises(ValueError, match=r"the third derivative of .* has no bound"):
        sample(target, method="subsampled-mh")


def test_a_loss_from_outside_may_have_former_names():
    with pytest.warns(DeprecationWarning, match="for Former") as warned:

        @dataclass(frozen=True)
        class Former(Poisson):
            tried = True

            def faces(self, y):
                return one_predictor_cones(True, y > 0)

    assert [str(warning.message) for warning in warned] == [
        "use recession_cones for Former.faces",
        "use weights_are_trials for Former.tried",
    ]
    loss = Former()
    assert loss.weights_are_trials
    assert loss.recession_cones(np.array([0.0, 2.0])).both.tolist() == [[False], [True]]
    assert Poisson().recession_cones(np.zeros(1)) is None
    assert not Poisson().weights_are_trials
    with pytest.warns(DeprecationWarning, match=r"use predictor_shape for Poisson\.tail"):
        assert Poisson().tail == ()
    with pytest.raises(AttributeError, match="'Poisson' object has no attribute 'tails'"):
        _ = Poisson().tails


class Cauchy(NamedTuple):
    """log(1 + (t − y)²)."""

    @staticmethod
    def formulas(op):
        log1p, one, two = op.log1p, op.number(1), op.number(2)

        def value(loss, t, y):
            return log1p((t - y) * (t - y))

        def slope(loss, t, y):
            return two * (t - y) / (one + (t - y) * (t - y))

        def curvature(loss, t, y):
            return 2 * (1 - (t - y) ** 2) / (1 + (t - y) ** 2) ** 2

        return Formulas(slope, curvature, value)


@dataclass(frozen=True)
class CauchyLoss(Family):
    kernel = Cauchy

    def mean(self, t):
        return t


def test_a_family_from_outside_is_compiled_and_runs_on_jax():
    pytest.importorskip("jax")
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 3))
    target = whitened(targets.glm(X, X @ [1.0, 0.0, -1.0] + rng.standard_cauchy(300), CauchyLoss()))
    sampler = Sampler(UBU(0.1, 2.0, 1.0), gradients.SVRG(16, 5))
    runs = [sampler.run(target, 20, chains=2, engine=engine).draws for engine in ("reference", "numba", "jax")]
    assert np.abs(np.array(runs) - runs[0]).max() < 1e-9


def test_a_family_without_a_remainder_is_not_subsampled():
    bounded = type("Bounded", (CauchyLoss,), {"third_bound": 3.0})
    with pytest.raises(ValueError, match=r"the formulas of .* have no remainder"):
        SubsampledMH().run(targets.glm(np.eye(3), np.zeros(3), bounded()), draws=5)


def test_a_dynamics_from_outside(tmp_path):
    pytest.importorskip("jax")  # one of its engines

    @part
    @dataclass(frozen=True)
    class Heun(Dynamics):
        """x ← x + √η ξ ; x ← x − ηg(x) + √η ξ′: half of the noise before the gradient (ηs < 2)."""

        step_size: float

        def scheme(self, target):
            half = NoiseFactor(0.0, 0.0, self.step_size**0.5)
            return Scheme(Map(1.0, 0.0, 0.0, 0.0), half, Kick(self.step_size, 0.0), Map(1.0, 0.0, 0.0, 0.0), half)

        def describe(self):
            return "Heun"

    target = targets.gaussian([[0.0], [1.0]], [[1.3]])
    sampler, eta, s = Sampler(Heun(0.5), gradients.Full()), 0.5, 1.3
    variance = eta * (1 + (1 - eta * s) ** 2) / (1 - (1 - eta * s) ** 2)  # of x = (1 − ηs)(x + √η ξ) + √η ξ′
    assert svrhmc.theory.stationary(sampler, target).covariance[0, 0] == pytest.approx(variance, rel=1e-12)
    for engine in engines.names():
        last = sampler.run(target, 60, chains=20_000, keep="last", engine=engine).draws[:, -1, 0]
        assert abs(last.var() / variance - 1) < LIMIT * (2 / 20_000) ** 0.5
    with pytest.raises(svrhmc.UnstableStepError, match=r"for Heun on curvatures up to 1\.3"):
        Sampler(Heun(2.0), gradients.Full()).run(target, 5)
    sampler.run(target, 9).save(tmp_path / "trace")
    assert svrhmc.Trace.load(tmp_path / "trace").sampler == sampler


@dataclass(frozen=True)
class Lazy(Gradient):
    """Snapshots from a tenth of the rows, every fifth step."""

    def recipe(self, target):
        size = max(1, target.n // 10)
        return Recipe(target.n, 4, "distinct", "snapshot", 5, snapshot_rows=size)


@pytest.mark.parametrize("engine", every_engine())
def test_a_gradient_from_outside(engine):
    target = targets.synthetic(40, 3, spread=0.5)
    sampler, known = (Sampler(UBU(0.1), each) for each in (Lazy(), gradients.SVRG(4, 5, False, 4)))
    run, reference = (sampler.run(target, 50, engine=name).draws for name in (engine, "reference"))
    assert run == pytest.approx(reference, abs=1e-12)
    assert (reference == known.run(target, 50, engine="reference").draws).all()
    assert Lazy().evaluations(target, 50) == 10 * 4 + 50 * 8
    one, other = (svrhmc.theory.law(each, target, 23).covariance for each in (sampler, known))
    assert (one == other).all()


def test_sample_takes_a_gradient_from_outside():
    target = targets.logistic(np.eye(40)[:, :3], np.arange(40) % 2)
    assert sample(target, 20, method=Sampler(UBU(0.1), Lazy())).trace.draws.shape[2] == 3


def test_an_engine_from_outside():
    class Toy(Reference):
        """The reference, for full gradients alone."""

        name = "toy"

        def supports(self, sampler, density):
            return None if sampler.kind == "grid" and sampler.recipe.full else "it has no dice"

    engines.register(Toy())
    try:
        target = targets.synthetic(10, 2)
        assert "toy" in engines.names()
        assert (
            svrhmc.hmc(0.1).run(target, 9, engine="toy").draws
            == svrhmc.hmc(0.1).run(target, 9, engine="reference").draws
        ).all()
        with pytest.raises(ValueError, match=r"engine must be .*; got 'toy': it has no dice"):
            svrhmc.sgld(0.1).run(target, 9, engine="toy")
    finally:
        engines.base._LOADED.pop("toy")
    with pytest.raises(ValueError, match="engine must be one of"):
        svrhmc.hmc(0.1).run(target, 9, engine="toy")

    class Old(Reference):
        name = "old"

        def supports(self, form, recipe):
            return None

    with pytest.raises(
        ValueError, match=r"engine must be one with supports\(sampler, density\); got supports\(form, rec"
    ):
        engines.register(Old())


class Plain(engines.Engine):
    """Split HMC and nothing else, as its docstring has it."""

    name = "plain"

    def supports(self, sampler, density):
        return None if sampler.kind == "split" else "it knows split HMC alone"

    def chains(self, setup, state):
        return PlainChains(setup, state)

    def estimates(self, setup, states, step):
        raise NotImplementedError


class PlainChains(engines.Chains):
    engine = "plain"
    refuses = True

    def __init__(self, setup, state):
        self.setup, self.state, self.stream = setup, state, Stream(setup.seed, setup.chains)

    def extend(self, count, keep=engines.EVERY, report=None):
        z, begin, density, sampler = self.state.x, self.state.step, self.setup.target, self.setup.sampler
        (draws, slopes), accepted = np.empty((2, len(z), count, density.dim)), np.zeros(len(z), np.int64)
        slope = density.energies(z)[1]
        for step in range(begin, begin + count):
            v, (uniform, U) = self.stream.normals(step, density.dim), self.stream.uniforms(step, 2, Purpose.ACCEPT).T
            q, (f, g), h = z, density.energies(z), (sampler.step_size * (1 + sampler.jitter * (2 * U - 1)))[:, None]
            fall = f + (v * v).sum(axis=1) / 2
            for turn, first, last in zip(*sampler.kicks(), strict=True):
                v = v - first * h * (g - q)
                q, v = q * np.cos(turn * h) + v * np.sin(turn * h), v * np.cos(turn * h) - q * np.sin(turn * h)
                f, g = density.energies(q)
                v = v - last * h * (g - q)
            moved = np.log(uniform) < fall - f - (v * v).sum(axis=1) / 2 if self.refuses else np.full(len(z), True)
            z, slope = np.where(moved[:, None], (q, g), (z, slope))
            draws[:, step - begin], slopes[:, step - begin], accepted = z, slope, accepted + moved
        spent = density.n * (1 + sampler.leapfrogs) * (begin + 1.0 + np.arange(count))
        self.state = engines.State(z, self.state.v, {}, begin + count, spent[-1])
        kept = keep.within(begin, begin + count) - begin - 1
        return engines.Extension(draws[:, kept], spent[kept], round(spent[-1]), slopes[:, kept], accepted)


def worst_z(draws, expected):
    """Of means and squares over chains, (chains, draws, dim), beside their expectations, (2, dim)."""
    z = []
    for power in (1, 2):
        means = (draws**power).mean(axis=1)
        z.append((means.mean(axis=0) - expected[power - 1]) / (means.std(axis=0) / len(means) ** 0.5))
    return np.abs(z).max()


@pytest.mark.parametrize("fault", [False, True])
def test_an_engine_from_outside_runs_split_hmc(fault, monkeypatch):
    """By its name, with the draws of the reference engine and the law of the posterior; and where no proposal is refused
    with another law.
    """
    monkeypatch.setattr(engines.base, "_LOADED", dict(engines.base._LOADED))
    monkeypatch.setattr(PlainChains, "refuses", not fault)
    engines.register(Plain())
    target = targets.logistic([[2.0], [1.6], [-2.4], [1.0]], [1, 1, 0, 1], prior_precision=0.35)
    x = np.linspace(-15, 25, 4001)
    p = np.exp(-target.potentials(x[:, None]))
    expected = [[p @ x**power / p.sum()] for power in (1, 2)]
    run, reference = (SplitHMC(1.5, 1).run(target, 300, chains=200, engine=name) for name in ("plain", "reference"))
    assert (run.engine, reference.engine) == ("plain", "reference")
    assert np.allclose(run.draws, reference.draws, atol=1e-9) != fault
    assert (worst_z(run.draws, expected) < LIMIT) != fault
    with pytest.raises(ValueError, match=r"engine must be .*; got 'plain': it knows split HMC alone"):
        svrhmc.hmc(0.1).run(target, 9, engine="plain")
    if not fault:
        posterior = sample(target, 100, engine="plain")
        assert (posterior.trace.engine, posterior.method) == ("plain", "split-hmc")


class Alike(Term):
    """β₀ − β₁ ~ N(0, τ²) with an unknown scale: log τ ~ N(−1, 0.7²), the parameter of this term."""

    names = ("log tau",)

    def __init__(self, normalised=True):
        self.normalised = float(normalised)  # whether −log τ of the density of β₀ − β₁ is there

    def value(self, w):
        away, phi = w[:, 0] - w[:, 1], w[:, -1]
        return away**2 / 2 * np.exp(-2 * phi) + self.normalised * phi + (phi + 1) ** 2 / 0.98

    def gradient(self, w):
        away, phi, slope = w[:, 0] - w[:, 1], w[:, -1], np.zeros(w.shape)
        slope[:, 0], slope[:, 1] = away * np.exp(-2 * phi), -away * np.exp(-2 * phi)
        slope[:, -1] = -(away**2) * np.exp(-2 * phi) + self.normalised + (phi + 1) / 0.49
        return slope

    def hessian(self, w):
        away, p, bend = w[0] - w[1], np.exp(-2 * w[-1]), np.zeros((3, 3))
        bend[:2, :2], bend[:2, 2] = [[p, -p], [-p, p]], [-2 * away * p, 2 * away * p]
        bend[2, :] = [*bend[:2, 2], 2 * away**2 * p + 1 / 0.49]
        return bend


@pytest.mark.parametrize("fault", [False, True])
def test_a_prior_term_from_outside_that_couples_coordinates(fault):
    """Against quadrature; without its normalisation, which depends on its own parameter, it is another law."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    target = targets.glm(X, 0.3 * np.cos(np.arange(40)) < X @ [1.0, 0.4], terms=[Alike(not fault)])
    axes = np.linspace(-1, 7, 81), np.linspace(-1, 7, 81), np.linspace(-5, 3, 65)
    x = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    p = np.exp(-targets.glm(X, 0.3 * np.cos(np.arange(40)) < X @ [1.0, 0.4], terms=[Alike()]).potentials(x))
    run = SplitHMC(0.4, 4).run(target, 200, chains=200, burn_in=20)
    assert (run.engine, target.dim) == ("reference", 3)
    assert (worst_z(run.draws, [p @ x**power / p.sum() for power in (1, 2)]) < LIMIT) != fault
    with pytest.raises(ValueError, match=r"got 'numba': it does not have the terms \[.*Alike"):
        svrhmc.sgld(1e-3).run(target, 5, engine="numba")


def test_sample_takes_a_prior_term_from_outside():
    X = np.random.default_rng(0).normal(size=(40, 2))
    posterior = sample(targets.glm(X, X @ [1.0, 0.4] > 0, terms=[Alike()]), 200)
    assert (posterior.method, posterior.certificate.verdict) == ("split-hmc", "local")
    assert posterior.labels == ("x[0]", "x[1]", "log tau")


def test_a_term_whose_derivatives_are_not_its_own_is_refused():
    class Wrong(Alike):
        def gradient(self, w):
            return 2 * super().gradient(w)

    with pytest.raises(ValueError, match=r"gradient of .* must be the derivative of its value; got one that is off by"):
        targets.glm(np.eye(2), [0, 1], terms=[Wrong()])
    with pytest.raises(ValueError, match=r"terms must be a list of svrhmc.targets.priors.Term; got 3"):
        targets.glm(np.eye(2), [0, 1], terms=[3])


class Stretched(svrhmc.whitening.Map):
    """xⱼ = sinh zⱼ, with log |det| = Σ log cosh zⱼ."""

    def __init__(self, determinant=True):
        self.determinant = float(determinant)

    def out(self, z, first=0):
        return np.sinh(z)

    def into(self, x):
        return np.arcsinh(x)

    def pulled(self, z, gradient):
        return np.cosh(z) * gradient

    def log_determinant(self, z):
        return self.determinant * np.log(np.cosh(z)).sum(axis=1), self.determinant * np.tanh(z)


@pytest.mark.parametrize("fault", [False, True])
def test_a_map_from_outside_that_is_not_linear(fault):
    """Against quadrature in x; without its determinant it is another law."""
    target = targets.logistic([[2.0], [1.6], [-2.4], [1.0]], [1, 1, 0, 1], prior_precision=0.35)
    x = np.linspace(-15, 25, 4001)
    p = np.exp(-target.potentials(x[:, None]))
    run = SplitHMC(0.8, 3).run(target, 300, chains=200, whitening=Stretched(not fault))
    assert run.engine == "reference"
    assert (worst_z(run.draws, [[p @ x**power / p.sum()] for power in (1, 2)]) < LIMIT) != fault
    space = whitened(target, Stretched())
    z, step = np.array([[0.3], [-1.2]]), 1e-6
    slope = (space.potentials(z + step) - space.potentials(z - step)) / (2 * step)
    assert np.allclose(space.gradients(z)[:, 0], slope, atol=1e-6)
    assert np.allclose(space.energies(z)[1], space.gradients(z), atol=1e-12)


def test_a_map_that_does_not_lead_back_is_refused():
    class Lost(Stretched):
        def into(self, x):
            return x

    with pytest.raises(ValueError, match=r"the map must be one of 1 coordinates with into\(out\(z\)\) = z; got"):
        whitened(targets.logistic([[2.0], [-1.0]], [1, 0]), Lost())


class Funnel:
    """s ~ Gamma(3, rate 2), θ ~ N(0, s²) and 1 = θ + ½N(0, 1), in z: s = e^{z₁}, θ = s z₂, so that log |det| = 2z₁."""

    n, dim = 1, 2

    def __init__(self, determinant=True):
        self.determinant = 2.0 * determinant

    def energies(self, z):
        s, b, away = np.exp(z[:, 0]), z[:, 1], 1 - np.exp(z[:, 0]) * z[:, 1]
        f = 2 * s - (1 + self.determinant) * z[:, 0] + b**2 / 2 + 2 * away**2
        return f, np.stack([2 * s - 1 - self.determinant - 4 * away * s * b, b - 4 * away * s], axis=1)

    def out(self, state, first=0):
        s = np.exp(state[..., 0])
        return np.stack([s, s * state[..., 1]], axis=-1)


@pytest.mark.parametrize("fault", [False, True])
def test_a_density_from_outside_in_variables_that_are_not_linear(fault):
    """Against quadrature in s and θ; without its determinant it is another law."""
    s, theta = np.meshgrid(np.linspace(0.002, 12, 3000), np.linspace(-6, 8, 1401), indexing="ij")
    p = s * np.exp(-2 * s - (theta / s) ** 2 / 2 - 2 * (1 - theta) ** 2)
    expected = [[(p * at**power).sum() / p.sum() for at in (s, theta)] for power in (1, 2)]
    assert isinstance(Funnel(), engines.Density)
    run = SplitHMC(0.4, 4).run(Funnel(determinant=not fault), 300, chains=400)
    assert run.engine == "reference"
    assert (worst_z(run.draws, expected) < LIMIT) != fault
    with pytest.raises(ValueError, match="whitening must be None for a density of your own"):
        SplitHMC().run(Funnel(), 9, whitening="dense")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 0}, "dim must be a whole number of at least 1"),
        ({"n": 0}, "n must be a whole number of at least 1"),
        ({"energies": lambda z: (z, z)}, r"energies must be f and ∇f of shapes \(2,\) and \(2, 3\) for 2 states; got"),
        ({"energies": lambda z: None}, "energies must be f and ∇f .* got NoneType"),
    ],
)
def test_a_density_of_other_shapes_is_refused(changes, message):
    normal = {"n": 1, "dim": 3, "energies": lambda z: ((z * z).sum(axis=1) / 2, z), "out": lambda z, first=0: z}
    assert SplitHMC(0.6, 3).run(SimpleNamespace(**normal), draws=5).draws.shape == (4, 5, 3)
    with pytest.raises(ValueError, match=message):
        SplitHMC(0.6, 3).run(SimpleNamespace(**{**normal, **changes}), draws=5)


@pytest.mark.parametrize("name", ["numba", "jax"])
def test_an_engine_refuses_prior_terms_that_it_does_not_have(name):
    if name == "jax":
        pytest.importorskip("jax")
    target = targets.glm(np.eye(2), [0, 1], terms=[Alike()])
    sampler = SimpleNamespace(kind="grid", recipe=gradients.Minibatch(2).recipe(target))
    engine = engines.base.load(name)
    assert engine.supports(sampler, targets.glm(np.eye(2), [0, 1])) is None
    assert engine.supports(sampler, target).startswith("it does not have the terms [<")


def test_jax_refuses_a_kind_of_prior_that_it_does_not_have():
    pytest.importorskip("jax")
    form = targets.glm(np.eye(3), [0.0, 1.0, 1.0], "bernoulli", prior=targets.priors.StudentT(4.0, 1.5)).form()
    unknown = replace(form, heavy=replace(form.heavy, kinds=np.full(3, 99)))
    sampler = SimpleNamespace(kind="grid", recipe=gradients.Minibatch(2).recipe(SimpleNamespace(n=3)))
    supported, refused = (
        engines.base.load("jax").supports(sampler, SimpleNamespace(form=lambda form=each: form))
        for each in (form, unknown)
    )
    assert supported is None
    assert refused == "it does not have priors of kind 99"
