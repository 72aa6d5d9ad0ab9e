"""The exact samplers have the law π itself, to the third moment; with a factor of their acceptance changed they have not."""

import itertools
import math
from dataclasses import FrozenInstanceError, replace
from functools import cache
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from numba import njit

import svrhmc
from conftest import LIMIT
from quadrature import around_the_mode, monomials
from simulated_data import events
from svrhmc.core.randomness import Purpose, Stream, alias_indices, alias_table
from svrhmc.engines import base
from svrhmc.engines.compiled import split as compiled_split
from svrhmc.exact import SplitHMC, SubsampledMH, split
from svrhmc.exact.split import TrajectoryKernel, lobatto, trapezoid
from svrhmc.kernels import losses, subsampled
from svrhmc.kernels.rows import fixed
from svrhmc.whitening import DenseWhitening, dense_whitening, whitened, whitening

pytestmark = pytest.mark.usefixtures("compiled")

CHAINS, DRAWS, FEW, BURN_IN = 100, 10_000, 2_500, 100


def skewed(dim, strength=2.0):
    """Rows that a line nearly separates, and a weak prior; strength 2 has tails too heavy for independent proposals."""
    X = np.array([[1.0, 0.3], [0.8, -1.0], [-1.2, 0.6], [0.5, 1.4], [-0.7, -1.1], [1.6, -0.4], [-0.3, 0.9]])
    y = np.array([1, 1, 0, 1, 0, 1, 1])
    return svrhmc.targets.logistic(strength * X[:, :dim], y, prior_precision=0.35 if strength == 2 else 0.6)


@cache
def moments(dim, strength):
    """Exact mean, and moments about it of second and third order, by the trapezoid rule, which converges like e^{−1/h²}."""
    points, weight = around_the_mode(skewed(dim, strength), 14, 700)
    mean = weight @ points
    return mean, weight @ monomials(points - mean)


def worst_z(sampler, dim, whiten="dense", seed=1, draws=DRAWS, fault=lambda chains: None, engine="auto"):
    """Chains are independent, so their means give the error of the mean of all; `fault` may spoil them before."""
    strength = 1.0 if sampler == SubsampledMH() else 2.0
    target, (mean, exact) = skewed(dim, strength), moments(dim, strength)
    W = whitening(target, whiten) if isinstance(whiten, str) else whiten
    chains = sampler.chains(whitened(target, W), seed, np.arange(CHAINS), 2, engine=engine)
    fault(chains)
    chains.extend(BURN_IN)
    by_chain = monomials(W.out(chains.extend(draws).draws) - mean).mean(axis=1)
    return np.abs((by_chain.mean(axis=0) - exact) / (by_chain.std(axis=0, ddof=1) / math.sqrt(CHAINS))).max()


def make(sampler, target, chains=2, seed=3, threads=1, whiten="dense", start=None):
    W = whitening(target, whiten, rank=2 if whiten == "low rank" else None)
    return sampler.chains(whitened(target, W), seed, np.arange(chains), threads, start)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 5)) * [1.0, 0.5, 2.0, 1.0, 0.2]
    X[rng.random(X.shape) < 0.3] = 0
    return X, (X @ [1.0, -2.0, 0.5, 0.0, 1.0] + rng.logistic(size=150) > 0).astype(float)


LAWS = [
    (SplitHMC(), 1, "dense"),
    (SplitHMC(), 2, "dense"),
    (SplitHMC(1.1, 1, 0.0), 2, "diagonal"),
    (SplitHMC(0.5, 9), 2, "dense"),
    (SubsampledMH(), 1, "dense"),
    (SubsampledMH(), 2, "dense"),
    (SubsampledMH(0.7, 0.3), 2, "dense"),
]


def test_the_skewed_targets_are_skewed():
    for dim, strength, least in itertools.product((1, 2), (1.0, 2.0), (0.25,)):
        _, exact = moments(dim, strength)
        assert exact[{1: 2, 2: 5}[dim]] / exact[{1: 1, 2: 2}[dim]] ** 1.5 > least * strength


@pytest.mark.untraced
@pytest.mark.ordinary(lambda sampler, draws: draws == (FEW if isinstance(sampler, SplitHMC) else DRAWS))
@pytest.mark.parametrize("draws", [FEW, DRAWS])
@pytest.mark.parametrize(("sampler", "dim", "whiten"), LAWS)
def test_draws_have_the_moments_of_the_posterior(sampler, dim, whiten, draws):
    """A million in all, or a quarter of them where they take seconds."""
    assert worst_z(sampler, dim, whiten, draws=draws) < LIMIT


@pytest.mark.untraced
@pytest.mark.ordinary(lambda factor: factor == 0.5)
@pytest.mark.parametrize("factor", [0.5, 0.0])
def test_a_factor_of_the_acceptance_of_split_hmc_changed_fails(factor, monkeypatch):
    right = TrajectoryKernel.energy_drop
    monkeypatch.setattr(TrajectoryKernel, "energy_drop", lambda self, *known: factor * right(self, *known))
    assert worst_z(SplitHMC(1.1, 1), 2, draws=FEW, engine="reference") > 2 * LIMIT


@pytest.mark.untraced
def test_compiled_trajectories_that_have_another_prior_fail(monkeypatch):
    right = compiled_split.SplitKernel.arrays.func

    def wrong(kernel):
        prior, *rest = right(kernel)
        return prior._replace(precision=fixed(1.5 * prior.precision + 0.5)), *rest

    monkeypatch.setattr(compiled_split.SplitKernel, "arrays", property(wrong))
    assert worst_z(SplitHMC(1.1, 1), 2, draws=FEW) > 2 * LIMIT


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 11, 32])
def test_kicks_stand_at_the_nodes_of_gauss_and_lobatto(steps):
    nodes, weights = lobatto(steps)
    for degree in range(2 * steps):
        assert weights @ nodes**degree == pytest.approx(1 / (degree + 1), abs=1e-14)
    np.testing.assert_allclose(nodes, 1 - nodes[::-1], atol=1e-15)  # else a trajectory would not be its own reverse
    np.testing.assert_array_equal(weights, weights[::-1])
    turns, first, last = SplitHMC(0.1, steps).kicks()
    np.testing.assert_array_equal(first, last[::-1])
    np.testing.assert_allclose(turns, turns[::-1], rtol=1e-13)
    assert turns.sum() == pytest.approx(steps)
    assert first.sum() + last.sum() == pytest.approx(steps)
    places, equal = trapezoid(steps)
    assert steps == 1 or abs(equal @ places**2 - 1 / 3) > 1e-4  # equal steps are of degree 1
    assert steps <= 2 or np.allclose(turns, 1.0) == (steps > 8)


@pytest.mark.untraced
def test_kicks_that_are_not_the_same_from_both_ends_fail(monkeypatch):
    nodes, weights = trapezoid(9)
    uneven = weights * (1 + 0.3 * np.linspace(-1, 1, 10))
    monkeypatch.setattr(split, "trapezoid", lambda steps: (nodes, uneven))
    assert worst_z(SplitHMC(0.5, 9), 2, draws=FEW) > 2 * LIMIT


def test_many_leapfrogs_are_stable_up_to_the_limit_of_equal_ones(monkeypatch):
    """Where f has the curvature λ = 100 a step h is stable for h√λ < 2, and nodes of Gauss and Lobatto have steps up
    to π/2 times as long."""
    curvature = np.array([1.0, 25.0, 100.0])

    def energies(z):
        return 0.5 * (curvature * z * z).sum(axis=1), curvature * z

    density = SimpleNamespace(n=1, dim=3, energies=energies, out=lambda z, first=0: z)

    def accepted():
        return SplitHMC(0.15, 12).run(density, 200, chains=8, seed=1).acceptance.mean()

    assert accepted() > 0.8
    monkeypatch.setattr(split, "_SMOOTH", 12)
    assert accepted() < 0.4


@pytest.mark.untraced
@pytest.mark.parametrize("gain", [math.log(SubsampledMH().spread), 0.0])
def test_a_factor_of_the_acceptance_of_subsampled_metropolis_changed_fails(gain):
    """c, or 1, for (1 + c)/c."""

    def fault(chains):
        chains.kernel.plan = chains.kernel.plan._replace(gain=gain)

    assert worst_z(SubsampledMH(), 2, fault=fault) > 2 * LIMIT


def off_centre():
    """Half a standard deviation beside the mode, and a whitening of a Hessian that is 10 % too large."""
    target = skewed(2, 1.0)
    centre = whitening(target).out(np.array([0.4, -0.3]))
    return dense_whitening(centre, 1.1 * target.hessian(centre))


def without_gradient(chains):
    chains.kernel.anchor = chains.kernel.anchor._replace(slope=fixed(np.zeros_like(chains.kernel.anchor.slope)))


def another_hessian(chains):
    """As if ∇²f were smaller by a tenth than it is."""
    leftover = (chains.kernel.anchor.leftover + np.eye(2)) / 1.1 - np.eye(2)
    chains.kernel.anchor = chains.kernel.anchor._replace(leftover=fixed(leftover))


@pytest.mark.untraced
def test_an_inexact_mode_and_hessian_change_nothing():
    assert worst_z(SubsampledMH(), 2, off_centre()) < LIMIT
    assert worst_z(SubsampledMH(), 2, off_centre(), fault=without_gradient, draws=DRAWS // 4) > 2 * LIMIT
    assert worst_z(SubsampledMH(), 2, off_centre(), fault=another_hessian) > 2 * LIMIT


@pytest.mark.parametrize(
    "sampler",
    [  # split HMC is compiled anew for the squared loss, whose posterior `sample` knows
        pytest.param(SplitHMC(), marks=pytest.mark.slow),
        pytest.param(SplitHMC(0.3, 4), marks=pytest.mark.slow),
        SubsampledMH(),
        SubsampledMH(0.7),
    ],
)
def test_linear_regression_is_always_accepted_and_has_its_posterior(data, sampler):
    target = svrhmc.targets.linear(data[0], data[1], noise_variance=0.5)
    trace = sampler.run(target, 4000, chains=25, seed=2)
    law = target.closed_form
    assert trace.acceptance.min() > 1 - 1e-3
    away = trace.draws - law.mean
    pairs = np.einsum("cdi,cdj->cij", away, away) / away.shape[1]
    for by_chain, exact in ((away.mean(axis=1), 0), (pairs, law.covariance)):
        assert (np.abs(by_chain.mean(axis=0) - exact) < LIMIT * by_chain.std(axis=0, ddof=1) / 5).all()


@pytest.mark.parametrize("whiten", ["dense", "diagonal", "low rank"])
def test_gradients_and_energies_are_those_of_the_target(data, whiten):
    storages = (np.asarray, scipy.sparse.csr_array) if whiten == "dense" else (np.asarray,)
    for X in (storage(data[0]) for storage in storages):
        target = svrhmc.targets.logistic(X, data[1], [0.1, 1.0, 2.0, 0.5, 1.5], 0.3)
        chains = make(SplitHMC(), target, whiten=whiten)
        z = chains.extend(30)
        W = chains.setup.form.whitening
        x = W.out(z.draws)
        expected = W.pull(target.gradients(x.reshape(-1, 5))).reshape(x.shape)
        assert z.gradients == pytest.approx(expected, rel=1e-10, abs=1e-10)
        assert chains.state.memory["f"][0] - chains.state.memory["f"][1] == pytest.approx(
            np.diff(target.potentials(x[::-1, -1]))[0], abs=1e-10
        )


def test_energies_of_many_float32_rows_keep_their_digits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 9)).astype(np.float32)
    y = events(rng, 3 + X @ np.full(9, 0.5))
    for kind, error in ((np.float32, 1e-3), (np.float64, 1e-8)):
        target = svrhmc.targets.logistic(X.astype(kind), y)
        chains = make(SplitHMC(), target, chains=3)
        x = chains.setup.form.whitening.out(chains.extend(1).draws[:, 0])
        f, energy = target.potentials(x), chains.state.memory["f"]
        assert np.abs((energy - energy[0]) - (f - f[0])).max() < error


@pytest.mark.parametrize("one_number", [False, True])
@pytest.mark.parametrize("sampler", [SplitHMC(), SubsampledMH(), SubsampledMH(-0.4)])
def test_sparse_rows_give_the_draws_of_dense_ones(data, sampler, one_number):
    X = 0.7 * (data[0] > 0) if one_number else data[0]
    dense, sparse = (svrhmc.targets.logistic(rows, data[1]) for rows in (X, scipy.sparse.csr_matrix(X)))
    one, other = (make(sampler, target).extend(200) for target in (dense, sparse))
    assert other.draws == pytest.approx(one.draws, abs=1e-7)
    assert (one.counts == other.counts).all()


@pytest.mark.parametrize(
    ("sampler", "kind"),
    [
        (SplitHMC(), np.asarray),
        pytest.param(SplitHMC(), scipy.sparse.csr_matrix, marks=pytest.mark.slow),  # else in test_sparse_whitening.py
        (SubsampledMH(), np.asarray),
        pytest.param(SubsampledMH(), scipy.sparse.csr_matrix, marks=pytest.mark.slow),
    ],
)
def test_float32_rows_follow_float64_ones(data, sampler, kind):
    coarse, fine = (
        make(sampler, svrhmc.targets.logistic(kind(data[0].astype(precision)), data[1])).extend(200).draws
        for precision in (np.float32, np.float64)
    )
    same = np.abs(coarse - fine).max(axis=2) < 1e-3  # a decision may differ; from ρ = 0 or rejection chains meet again
    assert same[:, :20].all()
    assert same.mean() > 0.9


@pytest.mark.parametrize("sampler", [SplitHMC(), SubsampledMH(0.5)])
def test_draws_depend_neither_on_threads_nor_chains_nor_calls_nor_pieces(data, sampler, monkeypatch):
    target = svrhmc.targets.logistic(*data)
    whole = make(sampler, target, chains=5).extend(15)
    apart = make(sampler, target, chains=5, threads=3)
    first, second = apart.extend(10), apart.extend(5)
    assert (np.concatenate([first.draws, second.draws], axis=1) == whole.draws).all()
    assert (first.accepted + second.accepted == whole.accepted).all()
    assert first.evaluations + second.evaluations == whole.evaluations == whole.counts.sum()
    alone = sampler.chains(whitened(target), 3, np.array([3]), 1)
    monkeypatch.setattr(base, "PIECE_SECONDS", 0.0)  # pieces of one draw
    assert (alone.extend(15).draws[0] == whole.draws[3]).all()


def test_chains_start_from_their_own_normals_or_from_those_given(data):
    target = svrhmc.targets.logistic(*data)
    expected = Stream(3, np.arange(2)).normals(0, 5, Purpose.START, Purpose.START_FINE)
    assert (make(SplitHMC(), target).state.x == expected).all()
    start = np.full((2, 5), 0.25)
    assert (make(SubsampledMH(), target, start=start).state.x == start).all()
    with pytest.raises(ValueError, match=r"start must be an array of shape \(2, 5\); got shape \(5,\)"):
        make(SplitHMC(), target, start=start[0])


def test_every_row_evaluated_is_counted(data):
    target = svrhmc.targets.logistic(*data)
    trace = SplitHMC(leapfrogs=3).run(target, 20, burn_in=10)
    assert trace.passes == pytest.approx(1 + 3 * (10 + np.arange(1, 21)))
    assert trace.gradient_evaluations == 150 * 91
    sampler = SubsampledMH(spread=0.8)
    chains = make(sampler, target, chains=4)
    rows = chains.extend(2000)
    cubes = (np.linalg.norm(data[0] @ chains.setup.form.whitening.factor, axis=1) ** 3).sum()
    typical = 1.8 / (18 * math.sqrt(3)) * cubes * 5**1.5
    assert sampler.rows_of_step(whitened(target, "dense")) == pytest.approx(typical, rel=1e-6)
    proposals = np.array([Stream(3, np.arange(4)).normals(k, 5) for k in range(2000)]).transpose(1, 0, 2)
    moved = (np.abs(rows.draws - proposals).max(axis=2) < 1e-12).mean(axis=1)
    assert (rows.accepted / 2000 == moved).all()
    before = np.concatenate([make(SubsampledMH(), target, chains=4).state.x[:, None], rows.draws[:, :-1]], axis=1)
    reach = np.linalg.norm(before, axis=2) ** 3 + np.linalg.norm(proposals, axis=2) ** 3
    rate = chains.kernel.plan.rate * reach
    assert abs((rows.counts - rate).sum()) < LIMIT * math.sqrt(rate.sum())
    assert ((rows.counts - rate) ** 2 / rate).mean() == pytest.approx(1, abs=LIMIT * math.sqrt(2 / rate.size))


def test_a_trace_is_in_the_users_coordinates(data, tmp_path):
    target = svrhmc.targets.logistic(*data)
    trace = SplitHMC().run(target, 50, chains=[4, 7], seed=9, burn_in=5, whitening="diagonal")
    chains = SplitHMC().chains(whitened(target, "diagonal"), 9, np.array([4, 7]), 1)
    chains.extend(5)
    extension = chains.extend(50)
    assert (trace.draws == chains.setup.form.whitening.out(extension.draws)).all()
    assert (trace.acceptance == extension.accepted / 50).all()
    assert (trace.engine, trace.seed, trace.velocity.any()) == ("numba", 9, False)
    assert "sampler=SplitHMC" not in repr(trace)
    assert "SplitHMC(step_size=0.8, leapfrogs=2, jitter=0.2, halvings=0)" in repr(trace)
    given = SplitHMC().run(target, 50, chains=[4, 7], seed=9, burn_in=5, whitening=chains.setup.form.whitening)
    assert (given.draws == trace.draws).all()
    trace.save(tmp_path / "a.trace")
    again = svrhmc.Trace.load(tmp_path / "a.trace")
    assert again.sampler == trace.sampler
    assert (again.acceptance == trace.acceptance).all()
    told = []
    assert SubsampledMH().run(target, 8, burn_in=0, progress=lambda *done: told.append(done)).draws.shape == (4, 8, 5)
    assert told[-1] == (32, 32)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_leaves_the_chains_where_they_were(data, threads):
    target = svrhmc.targets.logistic(*data)

    def interrupt(amount):
        raise KeyboardInterrupt

    chains = make(SplitHMC(), target, threads=threads)
    with pytest.raises(KeyboardInterrupt):
        chains.extend(200_000 if threads == 2 else 100, report=interrupt)
    assert (chains.extend(7).draws == make(SplitHMC(), target).extend(7).draws).all()


def test_the_samplers_refuse_what_they_cannot_do(data):
    target = svrhmc.targets.logistic(*data)
    for settings, message in [
        ({"step_size": 3.2}, r"step_size must be a positive number below π; got 3.2: .*π is half a turn\."),
        ({"step_size": 0}, r"step_size must be a positive number; got 0\."),
        ({"leapfrogs": 0}, r"leapfrogs must be a whole number of at least 1; got 0\."),
        ({"jitter": 1.0}, r"jitter must be a number from 0 to below 1; got 1.0\."),
        ({"jitter": -0.1}, r"jitter must be a number not below 0; got -0.1\."),
    ]:
        with pytest.raises(ValueError, match=message):
            SplitHMC(**settings)
    for settings, message in [
        ({"correlation": 1.0}, r"correlation must be a number between -1 and 1; got 1.0\."),
        ({"correlation": "a"}, r"correlation must be a number between -1 and 1; got 'a'\."),
        ({"spread": 0.0}, r"spread must be a positive number; got 0.0\."),
        ({"radius": -1.0}, r"radius must be a positive number; got -1.0\."),
        ({"radius": math.inf}, r"radius must be a positive number; got inf\."),
    ]:
        with pytest.raises(ValueError, match=message):
            SubsampledMH(**settings)
    with pytest.raises(ValueError, match=r"target must be a generalised linear model, .*; got Gaussian"):
        SplitHMC().run(svrhmc.targets.synthetic(10, 2), 10)
    with pytest.raises(ValueError, match="whitening must be dense for SubsampledMH; got a low rank one: the Gaussian"):
        SubsampledMH().run(target, 10, whitening="diagonal")
    with pytest.raises(ValueError, match="kind must be one of 'dense', 'diagonal', 'low rank', 'sparse'; got 'none'"):
        SplitHMC().run(target, 10, whitening="none")
    with pytest.raises(ValueError, match=r"whitening must be None, one of .*; got 3"):
        SplitHMC().run(target, 10, whitening=3)
    with pytest.raises(ValueError, match="whitening must be one of 5 coordinates; got 2"):
        SplitHMC().run(target, 10, whitening=DenseWhitening(np.zeros(2), np.eye(2)))
    with pytest.raises(ValueError, match="draws must be a whole number of at least 1; got 0"):
        SplitHMC().run(target, 0)
    with pytest.raises(FrozenInstanceError):
        SplitHMC().jitter = 0.1


def test_too_many_rows_to_evaluate_are_refused():
    X = np.concatenate([np.full((1, 3), 1e4), np.eye(3)])
    flat = svrhmc.targets.logistic(X, [1, 0, 1, 0], prior_precision=1e-9)
    with pytest.raises(
        ValueError, match=r"target must be one with at most 1,000,000 rows .*; got .* for n = 4: use SplitHMC"
    ):
        SubsampledMH().run(flat, 10)


def test_a_chain_too_far_out_and_a_bound_that_fails_are_refused(data):
    target = svrhmc.targets.logistic(*data)
    far = make(SubsampledMH(), target, seed=0, threads=2, start=np.full((2, 5), 1e4))
    with pytest.raises(ValueError, match=r"chain [01] must be where a step draws at most .* rows; got more at step 0"):
        far.extend(5)
    loose = make(SubsampledMH(), target)
    loose.kernel.plan = loose.kernel.plan._replace(rate=loose.kernel.plan.rate * 1e-3)
    with pytest.raises(RuntimeError, match=r"chain 0, step .*: the rate of a row is above its bound"):
        loose.extend(5000)


@njit
def poissons(rate, U, out):
    for k in range(len(U)):
        out[k] = subsampled.poisson(rate, U[k])


@pytest.mark.parametrize("rate", [0.0, 0.3, 7.7, 15.99, 16.0, 40.5, 690.2, 1e4, 999_999.5])
def test_poisson_numbers_have_their_probabilities(rate):
    """Each number takes one interval of U, as long as its probability."""
    count = 100_000
    out = np.empty(count, np.int64)
    poissons(rate, (np.arange(count) + 0.5) / count, out)
    values, seen = np.unique(out, return_counts=True)
    assert np.abs(seen / count - scipy.stats.poisson.pmf(values, rate)).max() < 1.01 / count
    assert rate == 0 or out.mean() == pytest.approx(rate, rel=1e-3)
    poissons(rate, np.array([1 - 2.0**-53, 2.0**-53]), out[:2])
    assert (np.abs(out[:2] - rate) <= 9 * math.sqrt(rate) + 20).all()


@njit
def remainders(loss, t, u, out):
    for k in range(len(t)):
        out[k] = losses.remainder(loss, t[k], 1.0, u[k])


def test_remainders_keep_their_digits():
    t, u = (
        axis.ravel() for axis in np.meshgrid([-30.0, -4.0, -1.3, 0.1, 2.0, 9.0], [-5, -0.3, -0.04, 1e-4, 0.0501, 2])
    )
    out = np.empty_like(t)
    remainders(svrhmc.targets.losses.SquaredLoss(0.5).record(), t, u, out)
    assert not out.any()
    remainders(svrhmc.targets.losses.LogisticLoss().record(), t, u, out)
    with mp.workdps(50):
        for ti, ui, got in zip(t, u, out, strict=True):
            x, v = mp.mpf(ti), mp.mpf(ui)
            p = 1 / (1 + mp.exp(-x))
            exact = mp.log1p(mp.exp(x + v)) - mp.log1p(mp.exp(x)) - p * v - p * (1 - p) * v * v / 2
            assert got == pytest.approx(float(exact), rel=1e-7, abs=1e-15)


@njit
def many_energies(loss, t, y, slope, value):
    losses.energies(loss, len(t), t, y, slope, value)


@pytest.mark.parametrize(("kind", "error"), [(np.float64, 4e-16), (np.float32, 3e-7)])
def test_values_and_slopes_are_those_of_the_losses(kind, error):
    t = np.concatenate([np.linspace(-40, 40, 4001), np.linspace(-1, 1, 1001)]).astype(kind)
    y = np.where(np.arange(len(t)) % 2, 1, -1).astype(kind)
    value, slope = np.empty_like(t), np.empty_like(t)
    for python in (svrhmc.targets.losses.LogisticLoss(), svrhmc.targets.losses.SquaredLoss(0.5)):
        many_energies(python.record(kind), t, y, slope, value)
        wide = t.astype(np.float64), y.astype(np.float64)
        assert value == pytest.approx(python.value(*wide), rel=4 * error, abs=1e-36)
        assert slope == pytest.approx(python.slope(*wide), rel=4 * error, abs=1e-36)


@pytest.mark.parametrize(
    "weights",
    [[1.0], [0.1, 0.1, 0.1], [0, 2, 0, 1], np.random.default_rng(0).pareto(0.5, 5000), np.arange(1000) ** 9.0],
)
def test_an_alias_table_has_its_probabilities(weights):
    table, n = alias_table(weights), len(weights)
    p = np.asarray(weights, float) / np.sum(weights)
    assert table.probabilities.sum() == pytest.approx(1, abs=1e-14)
    assert (p <= table.probabilities * (1 + 1e-8)).all()
    assert (table.probabilities[p == 0] == 0).all()
    grid = (np.arange(64 * n) + 0.5) / (64 * n) * 2.0**32
    w0 = grid.astype(np.uint32)
    w1 = ((grid % 1) * 2.0**32).astype(np.uint32)
    seen = np.bincount(alias_indices(w0, w1, table.threshold, table.alias), minlength=n) / (64 * n)
    cells = 1 + np.bincount(table.alias, minlength=n)
    assert (np.abs(seen - table.probabilities) <= cells / (64 * n)).all()


def test_alias_tables_refuse_weights_that_are_none():
    for weights, message in [
        ([1.0, -1.0], "weights must be not below 0, with a positive finite sum; got -1 to 1"),
        ([0.0, 0.0], "weights must be not below 0, with a positive finite sum; got 0 to 0"),
        ([1.0, np.nan], "weights must be finite everywhere"),
    ]:
        with pytest.raises(ValueError, match=message):
            alias_table(weights)


def test_the_compiled_picks_are_those_of_the_table(data):
    """A table in which rows have weights alike would hide a wrong pick: keep all that is drawn, and count."""
    target = svrhmc.targets.logistic(*data)
    chains = make(SubsampledMH(), target)
    table = alias_table(np.linalg.norm(data[0] @ chains.setup.form.whitening.factor, axis=1) ** 3)
    cells = (table.threshold.astype(np.uint64) << np.uint64(32)) | table.alias.astype(np.uint64)
    assert (chains.kernel.anchor.cells == cells).mean() > 0.9  # the sums of the norms may round in another way
    assert chains.kernel.anchor.cards[1::2] == pytest.approx(table.probabilities, rel=1e-8)
    w0, w1 = np.random.default_rng(1).integers(0, 1 << 32, (2, 400), dtype=np.uint32)
    rows = np.empty(400, np.int64)
    picks(cells, w0, w1, rows)
    assert (rows == alias_indices(w0, w1, table.threshold, table.alias)).all()


@njit
def picks(cells, w0, w1, rows):
    subsampled.pick(cells, w0, w1, 0, 0, rows, len(rows))


def test_samplers_are_equal_hashable_and_printable():
    assert replace(SplitHMC(), jitter=0.1) == SplitHMC(0.8, 2, 0.1)
    assert len({SubsampledMH(), SubsampledMH(0.0), SubsampledMH(0.5)}) == 2
    assert repr(SubsampledMH(np.float32(0.5))) == "SubsampledMH(correlation=0.5, spread=0.5, radius=None)"
