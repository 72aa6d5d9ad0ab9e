"""Temperatures other than 1: the law is that of e^{−f/T}, by hand and in chains, and what knows e^{−f} alone refuses."""

from dataclasses import replace

import numpy as np
import pytest

import hand_written_laws as hand
import svrhmc
from conftest import LIMIT, every_dynamics, every_engine
from svrhmc import theory
from svrhmc.core.serialise import from_settings, to_settings
from svrhmc.dynamics import UBU, Anchored, EulerMaruyama, Exponential, NoiseFactor, Overdamped, Scheme, Underdamped
from svrhmc.gradients import SAGA, SVRG, ControlVariate, Full, Minibatch

HOT, ETA, FRICTION, MASS, EPOCH = 2.5, 0.3, 1.7, 0.35, 4
COLD = every_dynamics(0.08, ETA, FRICTION, MASS)
GRADIENTS = {"full": Full(), "sg": Minibatch(2), "svr": SVRG(2, EPOCH), "cv": ControlVariate(2)}


def warm(kind, temperature=HOT):
    return replace(COLD[kind], temperature=temperature)


def as_target(problem):
    return svrhmc.targets.gaussian(problem.a, problem.S)


def by_hand(problem, kind, gradient, steps, monkeypatch, temperature=HOT):
    """A step on f with u at temperature T is a step on f/T with uT (overdamped: ηT) at temperature 1, which `hand_written_laws` has."""
    monkeypatch.setattr(hand, "CURVATURE", hand.CURVATURE / temperature)
    eta = COLD[kind].step_size * (temperature if kind == "overdamped" else 1)
    divided = hand.Quadratic(problem.S / temperature, problem.a)
    law = hand.law(divided, kind, gradient, steps, eta=eta, gamma=FRICTION, u=MASS * temperature, B=2, m=EPOCH)
    monkeypatch.undo()
    return law


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("kind", COLD)
def test_laws_at_a_temperature_are_those_by_hand(problem, kind, gradient, monkeypatch):
    for temperature in (HOT, 0.3):
        sampler = svrhmc.Sampler(warm(kind, temperature), GRADIENTS[gradient])
        mean, covariance = by_hand(problem, kind, gradient, 9, monkeypatch, temperature)
        *_, stepped = theory.laws(sampler, as_target(problem), 9)
        for law in (stepped, theory.law(sampler, as_target(problem), 9)):
            assert law.mean == pytest.approx(mean, rel=1e-11, abs=1e-12)
            assert law.covariance == pytest.approx(covariance, rel=1e-10, abs=1e-12)
        cold = theory.law(svrhmc.Sampler(COLD[kind], GRADIENTS[gradient]), as_target(problem), 9)
        assert np.abs(cold.covariance - covariance).max() > 0.05 * covariance.max()


@pytest.mark.ordinary(lambda gradient, engine: engine == "numba" or gradient == "svr")
@pytest.mark.parametrize("engine", every_engine())
@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("kind", COLD)
def test_20_000_chains_have_the_law_of_their_temperature(problem, kind, gradient, engine, monkeypatch):
    sampler = svrhmc.Sampler(warm(kind), GRADIENTS[gradient])
    trace = sampler.run(as_target(problem), 9, chains=20_000, seed=3, keep="last", engine=engine)
    state = np.hstack([trace.draws[:, -1], trace.velocity])
    assert np.abs(hand.z_scores(state, *by_hand(problem, kind, gradient, 9, monkeypatch))).max() < LIMIT
    printed = by_hand(problem, kind, gradient, 9, monkeypatch, 1 / HOT)  # e^{−βf} with the paper's β, as it prints
    assert np.abs(hand.z_scores(state, *printed)).max() > 2 * LIMIT


def test_noise_that_is_t_times_and_not_its_root_fails_the_law(problem, monkeypatch):
    class Wrong(Underdamped):
        def scheme(self, target):
            good = Underdamped(self.step_size, self.friction, self.inverse_mass).scheme(target)
            return replace(good, after_noise=good.after_noise.times(self.temperature))

    trace = svrhmc.Sampler(Wrong(ETA, FRICTION, MASS, temperature=HOT), Full()).run(
        as_target(problem), 9, chains=20_000, seed=3, keep="last"
    )
    state = np.hstack([trace.draws[:, -1], trace.velocity])
    assert np.abs(hand.z_scores(state, *by_hand(problem, "paper", "full", 9, monkeypatch))).max() > 2 * LIMIT


@pytest.mark.parametrize("kind", COLD)
def test_a_path_at_a_temperature_is_a_path_on_the_divided_target(problem, kind):
    hot, divided = warm(kind), svrhmc.targets.gaussian(problem.a, problem.S / HOT)
    changes = {"step_size": COLD[kind].step_size * HOT} if kind == "overdamped" else {"inverse_mass": MASS * HOT}
    if kind == "anchored":
        changes["curvature"] = hand.CURVATURE / HOT
    for gradient in GRADIENTS.values():
        a = svrhmc.Sampler(hot, gradient).run(as_target(problem), 50, chains=2)
        b = svrhmc.Sampler(replace(COLD[kind], **changes), gradient).run(divided, 50, chains=2)
        assert a.draws == pytest.approx(b.draws, rel=1e-9, abs=1e-9)
        assert a.velocity == pytest.approx(b.velocity, rel=1e-9, abs=1e-9)


def test_stationary_laws_in_closed_form_and_as_the_step_goes_to_0():
    """(T/s)/(1 − ηs/2) overdamped, (T + ηV/2)/(1 − ηs/2)/s with noise of variance V, T times the others; → T S⁻¹."""
    s, eta = 1.2, 0.1
    one = svrhmc.targets.gaussian([[3.0]], [[s]])
    settled = theory.stationary(svrhmc.Sampler(Overdamped(eta, temperature=HOT), Full()), one)
    assert settled.covariance[0, 0] == pytest.approx(HOT / s / (1 - eta * s / 2), rel=1e-12)
    a = np.array([[0.0], [2.0], [5.0]])
    noisy = svrhmc.targets.gaussian(a, [[s]])
    V = float(np.mean((s * (a - a.mean())) ** 2))
    settled = theory.stationary(svrhmc.Sampler(Overdamped(eta, temperature=HOT), Minibatch()), noisy)
    assert settled.covariance[0, 0] == pytest.approx((HOT + eta * V / 2) / (1 - eta * s / 2) / s, rel=1e-12)
    for kind, value in {
        Underdamped: 0.8685899895703873,
        EulerMaruyama: 0.869980290711998,
        UBU: 0.8322232424732608,
    }.items():
        law = theory.stationary(svrhmc.Sampler(kind(0.1, 2.0, 2 / 3, temperature=HOT), Full()), one)
        assert law.covariance[0, 0] == pytest.approx(HOT * value, rel=1e-12)
    S = np.diag([0.3, 2.0])
    two = svrhmc.targets.gaussian(np.ones((2, 2)), S)
    for kind in (Overdamped, EulerMaruyama, Underdamped, Exponential, UBU):
        law = theory.stationary(svrhmc.Sampler(kind(1e-5, temperature=HOT), Full()), two)
        assert law.position.covariance == pytest.approx(HOT * np.linalg.inv(S), rel=1e-4, abs=1e-9)
        assert law.target.covariance == pytest.approx(HOT * np.linalg.inv(S))
        assert law.w2 < 1e-4  # to e^{−f/T}; e^{−f} is far
        far = svrhmc.distances.gaussian_w2(*vars(law.position).values(), *vars(two.closed_form).values())
        assert far > 0.5


def test_a_table_of_gradients_knows_the_temperature(problem):
    sampler = svrhmc.Sampler(Underdamped(0.1, FRICTION, MASS, temperature=HOT), SAGA(2))
    target = svrhmc.targets.gaussian(problem.a, problem.S)
    law = theory.law(sampler, target, 7)
    trace = sampler.run(target, 7, chains=20_000, seed=1, keep="last")
    state = np.hstack([trace.draws[:, -1], trace.velocity])
    assert np.abs(hand.z_scores(state, law.mean, law.covariance)).max() < LIMIT
    cold = theory.law(svrhmc.Sampler(Underdamped(0.1, FRICTION, MASS), SAGA(2)), target, 7)
    assert np.abs(hand.z_scores(state, cold.mean, cold.covariance)).max() > 2 * LIMIT
    assert law.target.covariance == pytest.approx(HOT * cold.target.covariance)


@pytest.mark.parametrize("kind", COLD)
def test_at_temperature_1_every_number_is_what_it_was(kind):
    scheme = COLD[kind].scheme(svrhmc.targets.synthetic(4, 2))
    assert scheme.at(1.0).numbers() == scheme.numbers()
    assert scheme.at(4.0).after_noise == NoiseFactor(*(2 * value for value in scheme.after_noise))
    assert scheme.at(4.0).kick == scheme.kick
    assert Scheme.of(scheme.at(4.0).numbers()) == scheme.at(4.0)


def test_steps_and_half_steps_share_their_noise_at_a_temperature():
    """The coupling of `joined` is linear in the noise, so it holds at any temperature: means and covariances add up."""
    from svrhmc.dynamics import step_noise

    target = svrhmc.targets.synthetic(4, 2)
    for kind in COLD:
        long, short = warm(kind).scheme(target), replace(warm(kind), step_size=COLD[kind].step_size / 2).scheme(target)
        normals = np.random.default_rng(0).normal(size=(2, 200_000, short.normals, 1))
        joined = warm(kind).joined(long, short, (step_noise(short, normals[0]), step_noise(short, normals[1])))
        for half, factor in ((joined.before, long.before_noise), (joined.after, long.after_noise)):
            found = np.cov(np.hstack([half[0], half[1]]).T)
            assert found == pytest.approx(factor.covariance(), rel=0.03, abs=0.03 * factor.covariance().max() + 1e-15)


def test_temperatures_are_kept_in_files_and_in_the_identity_of_a_run(tmp_path):
    hot = svrhmc.Sampler(Overdamped(0.01, temperature=HOT), Full())
    assert from_settings(to_settings(hot)) == hot
    assert from_settings({"type": "Overdamped", "step_size": 0.01}) == Overdamped(0.01)  # of a file without it
    target = svrhmc.targets.synthetic(10, 2)
    hot.run(target, 20, checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match="sampler"):
        svrhmc.lmc(0.01).run(target, 20, checkpoint=tmp_path / "run")


def test_curves_are_measured_to_the_law_of_the_temperature():
    target = svrhmc.targets.synthetic(20, 2)
    [curve] = svrhmc.compare_samplers(
        target, [("hot", svrhmc.Sampler(Underdamped(0.1, temperature=HOT), Full()))], 300, 2000
    )
    assert curve.exact[-1] < 0.1
    assert curve.sampled[-1] < 0.3


@pytest.mark.parametrize("kind", [Overdamped, Underdamped, EulerMaruyama, Exponential, UBU, Anchored])
def test_what_knows_only_the_posterior_refuses_other_temperatures(kind):
    target = svrhmc.targets.logistic([[1.0], [-1.0], [0.5]], [0, 1, 1])
    with pytest.raises(ValueError, match=r"temperature must be 1 for the posterior, which is e\^\(-f\); got 2.5"):
        svrhmc.sample(target, method=svrhmc.Sampler(kind(0.1, temperature=HOT), Full()))
    for bad in (0.0, -1.0, float("nan"), float("inf"), "hot"):
        with pytest.raises(ValueError, match="temperature must be a positive number"):
            kind(0.1, temperature=bad)
