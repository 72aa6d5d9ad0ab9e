"""The balance of a chain is exact on quadratics, for every dynamics and gradient; a dropped term is noticed."""

import numpy as np
import pytest

import svrhmc
from conftest import LIMIT
from svrhmc import Sampler, theory
from svrhmc.dynamics import BAOAB, UBU, Anchored, EulerMaruyama, Exponential, Overdamped, Underdamped, move
from svrhmc.gradients import SVRG, ControlVariate, Full, Minibatch
from svrhmc.sampling.bias import Balance, balance

DYNAMICS = [
    Overdamped(0.3), EulerMaruyama(0.3, 1.5, 0.8), Underdamped(0.3, 1.5, 0.8), Exponential(0.5, 1.5, 0.8),
    UBU(0.7, 1.0, 1.0), BAOAB(0.9, 1.0, 1.0), Anchored(1.1), Anchored(0.6, 2.5, 0.7, 1.3),
]  # fmt: skip
CURVATURE, CENTRE = 1.4, 0.6  # of a quadratic whose whitening is off: ∇f(z) = 1.4 z − 0.84, so r(z) = 0.4 z − 0.84


def one(centers=(CENTRE,)):
    return svrhmc.targets.gaussian(np.array(centers)[:, None], [[CURVATURE]])


def kick_moments(scheme, mean, covariance):
    """Mean and second moments of y* = P y + Lp ξ."""
    P = np.array([[scheme.before.xx, scheme.before.xv], [scheme.before.vx, scheme.before.vv]])
    L = np.array([[scheme.before_noise.xv, scheme.before_noise.xx], [scheme.before_noise.vv, 0.0]])
    at = P @ mean
    return at, P @ covariance @ P.T + L @ L.T + np.outer(at, at)


def expected(scheme, law, noise):
    """E r(z), E z r(z), E r(z*), E z*r, E v*r and E r̂², with r(z) = (s − 1)z − sc and gradient noise of a variance."""
    slope, shift = CURVATURE - 1, -CURVATURE * CENTRE
    second = law.covariance + np.outer(law.mean, law.mean)
    mean, at = kick_moments(scheme, law.mean, law.covariance)
    square = slope**2 * at[0, 0] + 2 * slope * shift * mean[0] + shift**2
    return (
        slope * law.mean[0] + shift,
        slope * second[0, 0] + shift * law.mean[0],
        slope * mean[0] + shift,
        slope * at[0, 0] + shift * mean[0],
        slope * at[0, 1] + shift * mean[1],
        square + noise,
    )


@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("dynamics", DYNAMICS, ids=str)
def test_moments_follow_from_the_balance_to_1e_10(dynamics, batch):
    centers = np.array([-1.0, 0.2, 1.1, 2.1])
    centers += CENTRE - centers.mean()
    target = one(centers)
    gradient, noise = (Full(), 0.0) if batch is None else (Minibatch(batch), CURVATURE**2 * centers.var() / batch)
    law = theory.stationary(Sampler(dynamics, gradient), target)
    found = balance(scheme := dynamics.scheme(target))
    r, zr, r_kick, zr_kick, vr_kick, square = expected(scheme, law, noise)
    assert law.mean[0] == pytest.approx(-found.c1 * r_kick, abs=1e-10)
    second = found.s0 + found.sz * zr_kick + found.sv * vr_kick + found.sq * square
    assert law.covariance[0, 0] + law.mean[0] ** 2 == pytest.approx(second, rel=1e-10)
    assert found.mean_terms(r, r_kick) == pytest.approx(law.mean[0] + r, abs=1e-10)  # E ∇f itself
    unit = np.ones(1)  # terms are linear in products, so that their means may stand for them
    by_terms = found.sd_terms(zr * unit, unit, zr_kick * unit, vr_kick * unit, unit, square * unit)
    assert by_terms == pytest.approx((law.covariance[0, 0] + law.mean[0] ** 2 + zr - 1) / 2, rel=1e-10)
    for name in Balance._fields:  # the controls: each constant in the moment that it is for
        value = getattr(found, name)
        if value == 0.0 or (name == "sv" and scheme.kick.v == 0):
            continue
        wrong = found._replace(**{name: -value})
        if name == "c1":
            assert abs(wrong.mean_terms(r, r_kick) - law.mean[0] - r) > 1e-6
        else:
            other = wrong.sd_terms(zr * unit, unit, zr_kick * unit, vr_kick * unit, unit, square * unit)
            assert abs(other - by_terms)[0] > 1e-6


@pytest.mark.parametrize("dynamics", DYNAMICS, ids=str)
def test_the_mean_is_blind_where_the_recorded_state_is_that_of_the_kick(dynamics):
    target = one()
    scheme = dynamics.scheme(target)
    assert scheme.recorded_at_kick == (not isinstance(dynamics, UBU | Anchored))
    law = theory.stationary(Sampler(dynamics, Full()), target)
    r, _, r_kick, *_ = expected(scheme, law, 0.0)
    seen = balance(scheme).mean_terms(r, r_kick)
    assert seen == pytest.approx(0 if scheme.recorded_at_kick else law.mean[0] + r, abs=1e-10)


CELLS = [
    (UBU(0.5, 1.0, 1.0), SVRG(1, 5)),
    (Underdamped(0.2, 1.5, 0.8), SVRG(2, 7)),
    (Anchored(0.8), Minibatch(2)),
    (BAOAB(0.6, 1.0, 1.0), ControlVariate(1)),
    (Overdamped(0.2), SVRG(1, 4)),
]


@pytest.mark.parametrize(("dynamics", "gradient"), CELLS, ids=str)
def test_the_balance_holds_in_simulation(dynamics, gradient):
    """Components with curvatures of their own, whose gradients are noisy at every state; whole epochs are averaged."""
    rng = np.random.default_rng(1)
    S, a = rng.uniform(0.6, 2.2, 6), rng.normal(size=6)
    target = svrhmc.targets.gaussian(a[:, None], S[:, None, None])
    sampler, chains = Sampler(dynamics, gradient), 4000
    setup = sampler.setup(target, 3, np.arange(chains), 1)
    scheme, found = setup.sampler.scheme, balance(setup.sampler.scheme)
    law = theory.stationary(sampler, target)
    root = np.linalg.cholesky(law.covariance + 1e-12 * np.eye(2))
    y = law.mean + rng.normal(size=(chains, 2)) @ root.T
    x, v = y[:, :1], y[:, 1:]
    estimator, stream = gradient.estimator(target, svrhmc.core.randomness.Stream(3, np.arange(chains))), rng
    epoch = setup.sampler.recipe.epoch
    burn, steps = 8 * epoch, 24 * epoch
    sums = np.zeros((chains, 4))
    for step in range(burn + steps):
        z = x[:, 0]
        normals = iter(stream.normal(size=(scheme.normals, chains, 1)))
        x_kick, v_kick = move(scheme.before, scheme.before_noise, x, v, normals)
        g = estimator(x_kick, step)
        r_hat = (g - x_kick)[:, 0]
        r_kick, r = ((target.gradients(state) - state)[:, 0] for state in (x_kick, x))
        if step >= burn:
            terms = found.s0 + found.sz * x_kick[:, 0] * r_kick + found.sv * v_kick[:, 0] * r_kick + found.sq * r_hat**2
            sums += np.stack([z + found.c1 * r_kick, z**2 - terms, r, z], axis=1)
        x, v = move(scheme.after, scheme.after_noise, x_kick, v_kick, normals)
        x, v = x - scheme.kick.x * g, v - scheme.kick.v * g
    means = sums[:, :2] / steps
    score = means.mean(axis=0) / (means.std(axis=0, ddof=1) / chains**0.5)
    assert (np.abs(score) < LIMIT).all()
    raw = sums[:, 3] / steps
    assert means[:, 0].std() < 1.5 * raw.std()
