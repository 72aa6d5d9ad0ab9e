"""Subsampled Metropolis where ℓ‴ has a bound in a ball alone: the law is π itself, however small the ball."""

import importlib.util
import inspect
import math
import sys
from functools import cache

import mpmath
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from numba import njit

from conftest import LIMIT
from quadrature import monomials
from svrhmc import checkpoint, sample
from svrhmc.engines import base
from svrhmc.engines.compiled import subsampled as engine
from svrhmc.exact import SubsampledMH
from svrhmc.exact.subsampled import region
from svrhmc.families.poisson import Poisson
from svrhmc.kernels import losses, subsampled
from svrhmc.targets import families, glm, priors
from svrhmc.whitening import whitened, whitening

CHAINS = 100
LOSSES = [families.poisson(), families.bernoulli(), families.bernoulli("probit"), families.binomial()]


@cache
def skewed():
    """Eight rows of few counts, with offsets and weights."""
    X = np.array([[1.0, 0.3], [1.0, -1.0], [1.0, 0.6], [1.0, 1.4], [1.0, -1.1], [1.0, -0.4], [1.0, 0.9], [1.0, 2.0]])
    offset, weights = np.array([0.5, -0.3, 1.0, 0.2, 0.0, 1.2, -1.0, 0.4]), np.array([1.0, 2, 1, 0.5, 1, 3, 0, 1])
    return glm(X, [3, 0, 1, 5, 0, 2, 4, 3], "poisson", prior_precision=0.6, offset=offset, weights=weights)


@cache
def bent():
    """One row of one column: its predictor goes as far as |z| allows, and its third derivative with it."""
    return glm([[2.0]], [2], "poisson", prior_precision=1.2, offset=[0.5], weights=[0.5])


@cache
def moments(target):
    """The mean, and moments about it up to the third, by the trapezoid rule on whitened variables."""
    axis = np.linspace(-9, 9, 361)
    z = np.stack(np.meshgrid(*[axis] * target.dim), axis=-1).reshape(-1, target.dim)
    points = whitening(target, "dense").out(z)
    f = target.potentials(points)
    weight = np.exp(f.min() - f)
    weight /= weight.sum()
    mean = weight @ points
    return mean, weight @ monomials(points - mean)


def worst_z(sampler, target, draws=4000, fault=lambda chains: None):
    """Chains are independent, so their means give the error of the mean of all; `fault` may spoil them before."""
    mean, exact = moments(target)
    chains = sampler.chains(whitened(target, "dense"), 1, np.arange(CHAINS), 2, np.zeros((CHAINS, target.dim)))
    fault(chains)
    chains.extend(100)
    made = chains.extend(draws)
    by_chain = monomials(chains.setup.form.whitening.out(made.draws) - mean).mean(axis=1)
    z = (by_chain.mean(axis=0) - exact) / (by_chain.std(axis=0, ddof=1) / math.sqrt(CHAINS))
    return np.abs(z).max(), (made.counts == len(chains.setup.form.y)).mean()


SAMPLERS = [SubsampledMH(), SubsampledMH(radius=1.5), SubsampledMH(0.6, 0.3, 1.2), SubsampledMH(radius=0.2)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_draws_have_the_moments_of_the_posterior_whatever_the_ball(sampler):
    z, full = worst_z(sampler, skewed())
    assert z < LIMIT
    assert sampler.radius is None or full > 0.4
    assert worst_z(sampler, bent())[0] < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_a_million_draws_have_the_moments_of_the_posterior(sampler):
    assert worst_z(sampler, skewed(), 10_000)[0] < LIMIT


@pytest.mark.slow
def test_a_ball_for_a_loss_that_needs_none_and_a_prior_that_is_not_normal():
    X = skewed().rows.X
    student = [priors.Normal(0.6), priors.StudentT(3.0, 1.0)]
    counted = glm(X, [3, 0, 1, 5, 0, 2, 4, 3], "poisson", prior=student)
    assert worst_z(SubsampledMH(radius=1.3), counted)[0] < LIMIT
    signs = glm(X, [1, 0, 1, 1, 0, 1, 1, 0], "bernoulli", prior_precision=0.6)
    assert worst_z(SubsampledMH(radius=1.3), signs)[0] < LIMIT
    line = glm(X, X[:, 1] + 1.0, families.gaussian(0.5))
    made = SubsampledMH(radius=1.3).chains(whitened(line, "dense"), 1, np.arange(2), 1).extend(50)
    assert (made.accepted == 50).all()  # nothing is to be bounded, and no row is read
    assert not made.counts.any()


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    """The loop with its guards taken out: no rate is compared with its bound, and what a full step takes from the rows
    is replaced by log(third − 1): −∞, a rejection, where `third` is 1, and 0 where it is 2 (which only makes the bound
    looser by which rows are dropped early).
    """
    source = inspect.getsource(subsampled)
    for right, wrong in (("loose or not rate <= bound", "False"), ("now - new", "math.log(plan.third - 1.0)")):
        assert source.count(right) == 1
        source = source.replace(right, wrong)
    path = tmp_path_factory.mktemp("twins") / "subsampled_twin.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("subsampled_twin", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["subsampled_twin"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["subsampled_twin"]


FAULTS = {
    "no full step, though bounds hold in the ball alone": (bent, 0.01, {"reach": math.inf}),
    "a step beyond the ball is rejected": (skewed, 1.5, {}),
    "a step beyond the ball does not look at the rows": (skewed, 1.5, {"third": 2.0}),
}


@pytest.mark.parametrize(("target", "radius", "changed"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_twin_fails(twin, target, radius, changed, monkeypatch):
    monkeypatch.setattr(engine, "subsampled", twin)

    def fault(chains):
        chains.kernel.plan = chains.kernel.plan._replace(**changed)

    assert worst_z(SubsampledMH(radius=radius), target(), 10_000, fault)[0] > 2 * LIMIT


def test_bounds_too_small_are_noticed_as_the_chain_goes():
    chains = SubsampledMH(radius=0.01).chains(whitened(bent(), "dense"), 1, np.arange(4), 1)
    chains.kernel.plan = chains.kernel.plan._replace(reach=math.inf)
    with pytest.raises(RuntimeError, match=r"chain 0, step .*: the rate of a row is above its bound"):
        chains.extend(5000)


def test_full_steps_are_those_that_touch_what_is_beyond_the_ball():
    space = whitened(skewed(), "dense")
    chains = SubsampledMH(radius=1.5).chains(space, 3, np.arange(2), 1)
    start = chains.state.x
    made = chains.extend(3000)
    before = np.concatenate([start[:, None], made.draws[:, :-1]], axis=1)
    moved = (made.draws != before).any(axis=2)
    far = np.maximum(np.linalg.norm(before, axis=2), np.linalg.norm(made.draws, axis=2)) > 1.5
    assert (made.counts[moved & far] == space.n).all()
    assert (made.counts[moved & ~far] < space.n).mean() > 0.9
    assert made.accepted.sum() == moved.sum()


@pytest.mark.ordinary(lambda kind: kind == "dense")
@pytest.mark.parametrize("kind", ["dense", "sparse", "float32"])
def test_draws_depend_neither_on_threads_nor_chains_nor_calls_nor_pieces(kind, monkeypatch):
    target = skewed()
    if kind != "dense":
        X = scipy.sparse.csr_array(target.rows.X) if kind == "sparse" else target.rows.X.astype(np.float32)
        target = glm(
            X, target.y, "poisson", prior_precision=0.6, offset=target.form().offset, weights=target.form().weights
        )
    space, sampler = whitened(target, "dense"), SubsampledMH(0.3, radius=1.5)
    whole = sampler.chains(space, 3, np.arange(5), 1).extend(60)
    apart = sampler.chains(space, 3, np.arange(5), 3)
    first, second = apart.extend(41), apart.extend(19)
    assert (np.concatenate([first.draws, second.draws], axis=1) == whole.draws).all()
    assert (np.concatenate([first.counts, second.counts], axis=1) == whole.counts).all()
    assert (first.accepted + second.accepted == whole.accepted).all()
    plain = sampler.chains(whitened(skewed(), "dense"), 3, np.arange(5), 1).extend(60)
    assert whole.draws[:, :20] == pytest.approx(plain.draws[:, :20], abs=1e-4 if kind == "float32" else 1e-9)
    alone = sampler.chains(space, 3, np.array([3]), 1)
    monkeypatch.setattr(base, "PIECE_SECONDS", 0.0)  # pieces of one draw
    assert (alone.extend(60).draws[0] == whole.draws[3]).all()


def test_a_run_that_was_cut_goes_on_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    monkeypatch.setattr(base, "PIECE_SECONDS", 0.0)
    sampler, seen = SubsampledMH(radius=1.5), []

    def stop(done, total):
        seen.append(done)
        if done > 60:
            raise KeyboardInterrupt

    settings = {"chains": 2, "seed": 4, "burn_in": 5, "threads": 1, "checkpoint": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        sampler.run(skewed(), 100, progress=stop, **settings)
    assert 60 < max(seen) < 210
    again = sampler.run(skewed(), 100, **settings)
    whole = sampler.run(skewed(), 100, **settings | {"checkpoint": None})
    assert (again.draws == whole.draws).all()
    assert again.gradient_evaluations == whole.gradient_evaluations
    assert again.sampler == sampler


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_bound_on_an_interval_is_one(loss):
    """Against slopes of the curvature on a grid of 1000 intervals, for every label; Poisson's is met at its end."""
    rng = np.random.default_rng(7)
    low = rng.uniform(-20, 8, 1000)
    high = low + rng.exponential(2.0, 1000) * rng.integers(0, 2, 1000)
    bound = loss.third_within(low, high)
    assert bound.shape == (1000,)
    share = np.linspace(0, 1, 101)[:, None]
    t, step = low + share * (high - low), 1e-4
    for y in {"BinomialLoss": (0.0, 0.4, 1.0), "PoissonLoss": (0.0, 3.0)}.get(type(loss).__name__, (-1.0, 1.0)):
        label = np.full(t.shape, y)
        third = np.abs(loss.curvature(t + step, label) - loss.curvature(t - step, label)) / (2 * step)
        assert (third <= bound * (1 + 1e-6) + 1e-12).all()
    if loss == families.poisson():
        assert third[-1] == pytest.approx(bound, rel=1e-6)
        too_small = loss.third_within(low, (low + high) / 2)
        assert (third > too_small * (1 + 1e-6)).any(axis=0).mean() == pytest.approx((high > low).mean(), abs=0.01)


@njit
def remainders(loss, t, u, out):
    for k in range(len(t)):
        out[k] = losses.remainder(loss, t[k], 1.0, u[k])


def test_remainders_of_counts_keep_their_digits_and_their_bound():
    places = [-30.0, -2.0, 0.0, 3.0, 12.0], [-40.0, -3.0, -0.26, -0.24, -1e-3, 1e-8, 0.01, 0.2499, 0.2501, 1.0, 6.0]
    t, u = (axis.ravel() for axis in np.meshgrid(*places))
    out = np.empty_like(t)
    remainders(Poisson(), t, u, out)
    with mpmath.workdps(50):
        for at, by, found in zip(t, u, out, strict=True):
            v = mpmath.mpf(by)
            exact = mpmath.exp(mpmath.mpf(at)) * (mpmath.exp(v) - 1 - v - v * v / 2)
            assert found == pytest.approx(float(exact), rel=1e-13 if abs(by) < 0.25 else 1e-12, abs=0)
    bound = families.poisson().third_within(t - abs(u), t + abs(u))
    assert (np.abs(out) <= bound * np.abs(u) ** 3 / 6).all()
    remainders(Poisson(), np.array([0.0, 800.0]), np.array([800.0, 1.0]), out[:2])
    assert np.isposinf(out[0])


@cache
def tall(n=60_000, mean=1.0):
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    offset, weights = rng.uniform(-0.5, 0.5, n), rng.integers(1, 3, n).astype(float)
    y = rng.poisson(mean * np.exp(offset + X @ [0.0, 0.3, -0.2]))
    return glm(X, y, "poisson", offset=offset, weights=weights)


def test_the_radius_is_the_one_with_the_fewest_rows():
    """By hand: its rows are those of the docstring, and no other tail probability has fewer."""
    for target in (tall(), skewed()):
        space, n = whitened(target, "dense"), target.n
        t, lengths, w = space.predictors, space.row_norms, target.form().weights
        rows = {}
        for power in range(1, 13):
            q = 10.0**-power
            R = math.sqrt(scipy.stats.chi2.isf(q, space.dim))
            cubes = (w * np.exp(t + 1.001 * R * lengths) * lengths**3).sum()
            rows[R] = 0.5 * space.dim**1.5 * cubes + n * (1 - (1 - q) ** 2)
        best = min(rows, key=rows.get)
        found = region(space, 0.5, None)
        assert found.radius == pytest.approx(best, rel=1e-9)
        assert found.rows == pytest.approx(rows[best], rel=1e-6)
        assert SubsampledMH().rows_of_step(space) == found.rows
        assert found is region(space, 0.5, None)
        inside = np.linspace(-1, 1, 21)[:, None] * found.radius * lengths
        assert (np.exp(t + inside) <= found.third * found.shares).all()
    assert region(whitened(glm(np.ones((9, 1)), np.arange(9) % 2), "dense"), 0.5, None).radius == math.inf


@pytest.mark.slow
def test_sample_takes_it_for_many_counts_and_not_where_a_tail_is_long():
    posterior = sample(tall(), 1500, seed=2)
    assert (posterior.method, posterior.certificate.verdict) == ("subsampled-mh", "exact")
    assert "rows a step of the 60,000 there are" in posterior.why
    assert posterior.trace.passes[-1] < 0.1
    other = sample(tall(), 400, seed=2, method="split-hmc")
    away = np.abs(posterior.mean - other.mean) / np.hypot(posterior.errors[0], other.errors[0])
    assert away.max() < LIMIT
    with pytest.warns(UserWarning, match="contradicts the data's scale"):  # log 2e-4 is far from N(0, 1)
        assert sample(tall(mean=2e-4), 100).method == "split-hmc"


def test_a_start_where_the_density_is_nothing_is_refused():
    chains = SubsampledMH().chains(whitened(skewed(), "dense"), 0, np.arange(2), 1, np.full((2, 2), 1e6))
    with pytest.raises(
        ValueError, match=r"chain 0 must be where f is finite; got another place at step 0: it is too far"
    ):
        chains.extend(5)


def test_bounds_that_overflow_are_refused():
    for target in (skewed(), bent()):  # with a row of weight 0, and without
        with pytest.raises(ValueError, match=r"target must be one with at most 1,000,000 rows .*: use SplitHMC"):
            SubsampledMH(radius=1e4).run(target, 10)
