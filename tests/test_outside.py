"""Parts from outside the package: a loss, a dynamics, a gradient and an engine, with nothing in it edited."""

from dataclasses import dataclass

import numpy as np
import pytest

import svrhmc
from conftest import LIMIT
from svrhmc import Sampler, engines, gradients, sample, targets
from svrhmc.core.parts import part
from svrhmc.dynamics import UBU, Dynamics
from svrhmc.engines.reference import Reference
from svrhmc.gradients import Gradient, Recipe
from svrhmc.scheme import Kick, Map, NoiseFactor, Scheme
from svrhmc.targets.generalised import GeneralisedLinear
from svrhmc.targets.losses import Loss
from svrhmc.targets.stored import make_rows
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
    assert sample(target, 50, tolerance=0.5).method == "anchored"
    with pytest.raises(ValueError, match=r"the third derivative of .* has no bound"):
        sample(target, method="subsampled-mh")


def test_a_dynamics_from_outside(tmp_path):
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


def test_a_gradient_from_outside():
    @dataclass(frozen=True)
    class Lazy(Gradient):
        """Snapshots from a tenth of the rows, every fifth step."""

        def recipe(self, target):
            size = max(1, target.n // 10)
            return Recipe(target.n, 4, "distinct", "snapshot", 5, snapshot_rows=size)

    target = targets.synthetic(40, 3, spread=0.5)
    sampler, known = (Sampler(UBU(0.1), each) for each in (Lazy(), gradients.SVRG(4, 5, False, 4)))
    runs = [sampler.run(target, 50, engine=name).draws for name in engines.names()]
    assert all(run == pytest.approx(runs[0], abs=1e-12) for run in runs)
    assert (runs[0] == known.run(target, 50, engine=engines.names()[0]).draws).all()
    assert Lazy().evaluations(target, 50) == 10 * 4 + 50 * 8
    one, other = (svrhmc.theory.law(each, target, 23).covariance for each in (sampler, known))
    assert (one == other).all()
    assert sample(targets.logistic(np.eye(40)[:, :3], np.arange(40) % 2), 20, method=sampler).trace.draws.shape[2] == 3


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
        engines.registry._LOADED.pop("toy")
    with pytest.raises(ValueError, match="engine must be one of"):
        svrhmc.hmc(0.1).run(target, 9, engine="toy")
