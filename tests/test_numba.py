"""The compiled engine follows the reference, whatever the threads, the pieces and the precision."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse
from scipy.special import ndtri

import svrhmc
from conftest import every_target
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.dynamics import Dynamics, Kick, Map, NoiseFactor, Scheme, exact_noise
from svrhmc.engines import State, names
from svrhmc.engines import base as base_module
from svrhmc.engines.base import load
from svrhmc.engines.compiled import engine as grid
from svrhmc.engines.compiled.engine import CompiledChains, copy_for_thread, make_model
from test_samplers import CELLS, NAMED, TARGETS, compiled

IN_FULL = [("logistic", name) for name in ("sgld", "baoab", "saga_hmc", "anchored", "estimated")]
COMPILED = [name for name in TARGETS if name != "custom"]


def both(sampler, target, steps, **settings):
    runs = [sampler.run(target, steps, engine=name, **settings) for name in ("reference", "numba")]
    assert [run.engine for run in runs] == ["reference", "numba"]
    return runs


def largest_difference(a, b):
    return np.abs(a - b).max() / np.abs(a).max()


@pytest.mark.untraced
@pytest.mark.ordinary(lambda kind, name: name == "svr_hmc" or (kind, name) in IN_FULL)
@pytest.mark.parametrize(("kind", "name"), [cell for cell in CELLS if compiled(cell.values[1], cell.values[0])])
def test_paths_equal_the_reference_over_1000_steps(rows, kind, name):
    reference, compiled = both(NAMED[name], every_target(rows)[kind], 1000, chains=3, seed=4, thin=7, burn_in=20)
    tolerance = 2e-3 if kind == "logistic-float32" else 1e-10  # float32 products and 32-bit normals, at a step of 0.2
    assert largest_difference(reference.draws, compiled.draws) < tolerance
    assert largest_difference(reference.velocity + 1, compiled.velocity + 1) < tolerance
    assert (reference.passes == compiled.passes).all()
    assert reference.gradient_evaluations == compiled.gradient_evaluations


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 5, 32])
def test_paths_equal_the_reference_at_real_sizes(sparse, dtype, dim):
    rng = np.random.default_rng(dim)
    n = 9001  # several blocks of rows, and a rest
    X = (rng.normal(size=(n, dim)) * (rng.random((n, dim)) < 0.4)).astype(dtype)
    y = rng.random(n) < 0.4
    target = svrhmc.targets.logistic(scipy.sparse.csr_matrix(X) if sparse else X, y)
    tolerance = 1e-10 if dtype == np.float64 else 1e-3
    for sampler in (
        svrhmc.svr_hmc(0.1, batch_size=40, epoch_length=30, replacement=False),
        svrhmc.svr_hmc(0.1, batch_size=40, epoch_length=30, snapshot_size=500),
        svrhmc.sg_hmc(0.05, batch_size=300),
    ):
        reference, compiled = both(sampler, target, 100, chains=2, start="mode")
        assert largest_difference(reference.draws, compiled.draws) < tolerance


@pytest.mark.slow
@pytest.mark.parametrize("entry", [1.0, -0.4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows_of_one_number_follow_the_reference(entry, dtype):
    """As one-hot rows are: the compiled loops do without the entries. Rows of 0 to 9 entries: whole fours, and a rest."""
    rng = np.random.default_rng(8)
    X = scipy.sparse.csr_matrix((rng.random((5000, 9)) < rng.random((5000, 1))).astype(dtype) * dtype(entry))
    y = rng.random(5000) < 0.4
    target = svrhmc.targets.logistic(X, y)
    assert len(make_model(target.form()).rows.data) == 1
    tolerance = 1e-10 if dtype == np.float64 else 1e-3
    for sampler in (
        svrhmc.svr_hmc(0.1, batch_size=40, epoch_length=30),
        svrhmc.hmc(0.1),
        svrhmc.saga_hmc(0.1, batch_size=40),
    ):
        reference, compiled = both(sampler, target, 100, chains=2, start="mode")
        assert largest_difference(reference.draws, compiled.draws) < tolerance


def test_one_other_entry_and_the_entries_count():
    rng = np.random.default_rng(8)
    X = scipy.sparse.csr_matrix((rng.random((3000, 9)) < 0.5).astype(np.float64))
    y = rng.random(3000) < 0.4
    X.data[-1] = 2.0  # beyond the first thousand, at which a look is taken first
    target = svrhmc.targets.logistic(X, y)
    assert len(make_model(target.form()).rows.data) == X.nnz
    reference, compiled = both(svrhmc.hmc(0.1), target, 100, chains=2, start="mode")
    assert largest_difference(reference.draws, compiled.draws) < 1e-10
    empty = svrhmc.targets.logistic(scipy.sparse.csr_matrix((50, 3)), np.arange(50) % 2)
    reference, compiled = both(svrhmc.hmc(0.1), empty, 20, chains=2)
    assert largest_difference(reference.draws, compiled.draws) < 1e-10


@pytest.mark.parametrize(
    ("gradient", "plain"),
    [
        (svrhmc.gradients.SVRG(3, 7), True),
        (svrhmc.gradients.ControlVariate(3), True),
        (svrhmc.gradients.ControlVariate(3, order=2), False),
        (svrhmc.gradients.SAGA(3), False),
        (svrhmc.gradients.SVRG(3, 7, importance=True), False),
    ],
)
def test_only_what_needs_a_frame_gets_the_longer_loop(rows, gradient, plain):
    sampler = svrhmc.Sampler(svrhmc.dynamics.Underdamped(0.1), gradient)
    assert (made(sampler, every_target(rows)["logistic"]).kernel.model.taken is None) == plain


def made(sampler, target, chains=(4,), threads=1, engine="numba", seed=1, state=None):
    """Chains from the origin, or from a state."""
    origin = np.zeros((len(chains), target.dim))
    setup = sampler.setup(target, seed, np.array(chains), threads)
    return svrhmc.engines.chains(engine, setup, state or State(origin, origin.copy()))


def test_float32_rows_give_the_float64_path_but_for_rounding():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 6)).astype(np.float32)
    y = rng.random(2000) < 0.5
    single, double = (svrhmc.targets.logistic(rows, y) for rows in (X, X.astype(np.float64)))
    sampler = svrhmc.svr_hmc(0.05, batch_size=20)
    a, b = (sampler.run(target, 500, chains=2, engine="numba").draws for target in (single, double))
    sd = b.std(axis=(0, 1))
    assert (np.abs(a - b) / sd).max() < 2e-3
    assert a.dtype == np.float64


class Straddling(Dynamics):
    """A scheme with noise before and after the gradient, three normals a step: the sixteen numbers in full."""

    step_size = 0.1

    def scheme(self, target):
        before = NoiseFactor(*(0.3 * value for value in exact_noise(0.1, 2.0, 0.5)))
        return Scheme(
            Map(0.99, 0.05, 0.01, 0.95), before, Kick(0.01, 0.05), Map(1.0, 0.06, -0.01, 0.9), NoiseFactor(0.2, 0, 0)
        )

    def describe(self):
        return "Straddling"

    def check_stable(self, target):
        """Not what is tested."""


@pytest.mark.parametrize("gradient", [svrhmc.gradients.Full(), svrhmc.gradients.SVRG(2, 3)])
@pytest.mark.parametrize("kind", ["linear", "logistic-csr", "gaussian-many"])
def test_all_sixteen_numbers_are_interpreted(rows, gradient, kind):
    sampler = svrhmc.Sampler(Straddling(), gradient)
    reference, compiled = both(sampler, every_target(rows)[kind], 300, chains=2)
    assert largest_difference(reference.draws, compiled.draws) < 1e-10


@pytest.fixture(scope="module")
def tall():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40_000, 16)).astype(np.float32)
    return svrhmc.targets.logistic(X, rng.random(40_000) < 0.5)


@pytest.mark.parametrize("sampler", [svrhmc.hmc(0.3), svrhmc.svr_hmc(0.1, batch_size=50, epoch_length=20)])
@pytest.mark.parametrize("chains", [1, 3])
def test_threads_do_not_change_a_digit(tall, sampler, chains):
    one, two, many = (sampler.run(tall, 60, chains=chains, threads=threads) for threads in (1, 2, 5))
    assert (one.draws == two.draws).all()
    assert (one.draws == many.draws).all()
    assert (one.velocity == many.velocity).all()


def test_passes_are_shared_where_chains_are_fewer_than_threads(tall, monkeypatch):
    calls = []
    shared = grid.GridCall._share_passes
    monkeypatch.setattr(grid.GridCall, "_share_passes", lambda *a: calls.append(1) or shared(*a))
    svrhmc.hmc(0.3).run(tall, 3, chains=1, threads=2)
    assert calls == [1]
    svrhmc.hmc(0.3).run(tall, 3, chains=2, threads=2)
    svrhmc.sg_hmc(0.3).run(tall, 3, chains=1, threads=2)
    assert calls == [1]
    monkeypatch.setattr(grid, "_SHARED_PASS", 1)
    sampler = svrhmc.Sampler(Straddling(), svrhmc.gradients.SVRG(2, 3))
    target = svrhmc.targets.logistic(np.random.default_rng(0).normal(size=(9000, 2)), np.arange(9000) % 2)
    alone, shared_run = (sampler.run(target, 50, chains=1, threads=threads) for threads in (1, 2))
    assert calls == [1, 1]
    assert (alone.draws == shared_run.draws).all()


def test_pieces_do_not_change_a_digit(tall, monkeypatch):
    sampler = svrhmc.svr_hmc(0.1, batch_size=5, epoch_length=7)
    whole = sampler.run(tall, 500, chains=3, threads=2).draws
    monkeypatch.setattr(base_module, "PIECE_SECONDS", 1e-9)
    assert (sampler.run(tall, 500, chains=3, threads=2).draws == whole).all()
    monkeypatch.setattr(base_module, "PIECE_SECONDS", 10)
    assert (sampler.run(tall, 500, chains=3, threads=1).draws == whole).all()


@pytest.mark.untraced
@pytest.mark.parametrize("numbers", [(4,), pytest.param(tuple(range(50)), marks=pytest.mark.slow)], ids=len)
@pytest.mark.parametrize("gradient", [svrhmc.gradients.Minibatch(2), svrhmc.gradients.SVRG(2, 7)])
def test_the_stream_goes_on_beyond_two_to_the_32_steps(rows, gradient, numbers):
    """Steps near 2³² need the next keys; one chain, and many in one call, whose draws in two pieces are compiled for."""
    target, begin = every_target(rows)["logistic"], 2**32 - 5
    sampler = svrhmc.Sampler(svrhmc.dynamics.UBU(0.1), gradient)
    origin = np.zeros((len(numbers), target.dim))
    state = State(origin, origin, step=begin)
    one, *others = (made(sampler, target, numbers, 1, name, state=state).extend(10).draws for name in names())
    assert all(one == pytest.approx(other, abs=1e-12) for other in others)
    cut = made(sampler, target, numbers, state=state)
    pieces = [cut.extend(count).draws for count in (3, 4, 3)]
    assert (np.concatenate(pieces, axis=1) == one).all()


def test_memory_maps_are_used_in_place(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4)).astype(np.float32)
    X.tofile(tmp_path / "rows")
    mapped = np.memmap(tmp_path / "rows", np.float32, "r", shape=X.shape)
    y = rng.random(3000) < 0.5
    target = svrhmc.targets.logistic(mapped, y)
    assert np.shares_memory(make_model(target.form()).rows.flat, mapped)
    sampler = svrhmc.svr_hmc(0.1, batch_size=10)
    assert (sampler.run(target, 50).draws == sampler.run(svrhmc.targets.logistic(X, y), 50).draws).all()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_divergence_names_the_earliest_step_as_the_reference_does(threads, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2)) * 30
    target = svrhmc.targets.linear(X, rng.normal(size=50))
    monkeypatch.setattr(svrhmc.dynamics.Dynamics, "check_stable", lambda *arguments: None)
    sampler = svrhmc.hmc(0.9, inverse_mass=1.0)
    start = np.zeros((9, 2))
    start[6] = 1e100  # this one leaves first
    found = []
    for name in ("reference", "numba"):
        with pytest.raises(svrhmc.DivergenceError) as caught:
            sampler.run(target, 5000, chains=9, start=start, engine=name, threads=threads)
        found.append((caught.value.chain, caught.value.step, str(caught.value)))
    assert found[0][0] == found[1][0] == 6
    assert abs(found[0][1] - found[1][1]) <= 1  # a product may overflow in one engine a step before the other
    assert found[0][2].replace(str(found[0][1]), "") == found[1][2].replace(str(found[1][1]), "")


def test_an_interrupt_stops_the_threads(tall):
    def interrupt(done, total):
        raise KeyboardInterrupt

    for threads in (1, 2):
        before = threading.active_count()
        with pytest.raises(KeyboardInterrupt):
            svrhmc.svr_hmc(0.1).run(tall, 10**9, chains=4, threads=threads, keep="last", progress=interrupt)
        assert threading.active_count() == before


def test_an_interrupt_is_heard_within_a_long_epoch_while_passes_are_shared(tall):
    told = []

    def interrupt(done, total):
        told.append(done)
        if done:
            raise KeyboardInterrupt

    sampler = svrhmc.svr_hmc(0.1, epoch_length=10**9)
    with pytest.raises(KeyboardInterrupt):
        sampler.run(tall, 10**9, chains=1, threads=2, keep="last", progress=interrupt)
    assert told[-1] < 10**6


def test_threads_that_share_a_pass_write_to_their_own_room_and_to_one_array_of_blocks(tall):
    sums = made(svrhmc.svr_hmc(0.1), tall).kernel.workspace(5).sums
    own = copy_for_thread(sums)
    assert own.partial is sums.partial
    assert not any(np.shares_memory(mine, other) for mine, other in zip(own[1:], sums[1:], strict=True))


def test_progress_is_told_all_the_steps(tall):
    for threads in (1, 2):
        told = []
        svrhmc.hmc(0.3).run(
            tall, 20, chains=3, threads=threads, progress=lambda done, total, told=told: told.append((done, total))
        )
        assert told[-1] == (60, 60)


def test_targets_without_compiled_code_run_on_the_reference(rows):
    target = every_target(rows)["custom"]
    assert svrhmc.hmc(0.1).run(target, 3).engine == "reference"
    with pytest.raises(
        ValueError,
        match="engine must be 'auto' or 'reference' for this target and sampler; got 'numba': it runs rows",
    ):
        svrhmc.hmc(0.1).run(target, 3, engine="numba")
    assert svrhmc.hmc(0.1).run(every_target(rows)["linear"], 3).engine == "numba"


def test_seconds_do_not_count_compilation(monkeypatch):
    import time

    slow = CompiledChains.compile
    monkeypatch.setattr(CompiledChains, "compile", lambda self: (slow(self), time.sleep(0.5)))
    began = time.perf_counter()
    trace = svrhmc.hmc(0.1).run(svrhmc.targets.synthetic(5, 2), 3)
    assert time.perf_counter() - began > 0.5
    assert 0 < trace.seconds < 0.5


def test_importing_the_library_does_not_load_numba():
    code = "import sys, svrhmc; svrhmc.targets.synthetic(3, 2); print('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_compiled_normals_are_those_of_the_stream():
    from numba import njit

    from svrhmc.kernels.normals import make_normals

    @njit
    def call(words, z64, z32):
        make_normals(words, words.shape[1], z64)
        make_normals(words, words.shape[1], z32)

    stream = Stream(9, np.arange(100))
    coarse, fine = (stream.words(0, purpose, 5000)[0].ravel() for purpose in (Purpose.NOISE, Purpose.NOISE_FINE))
    coarse[:5000] = np.arange(5000)  # the far tail, and both sides of the middle
    coarse[5000:6000] = 2**31 - 500 + np.arange(1000)
    coarse[6000:7000] = 2**32 - 1 - np.arange(1000)
    fine[:10] = 0
    count = len(coarse)
    z64, z32 = np.empty((3, count)), np.empty((3, count), np.float32)
    call(np.array([coarse, coarse, fine, fine]), z64, z32)
    assert (z64[0] == z64[1]).all()
    z64, z32 = z64[0], z32[0]
    sign = np.where(coarse >> 31, -1, 1)
    magnitude = (coarse & 0x7FFFFFFF).astype(np.float64)
    exact = sign * ndtri((magnitude + (fine + 0.5) / 2**32) / 2**32)
    assert (np.abs(z64 - exact) < 2e-15 * np.abs(exact) + 1e-16).all()
    exact = sign * ndtri((magnitude + 0.5) / 2**32)
    assert np.abs(z32 / exact - 1).max() < 4e-7
    assert np.abs(exact).max() > 6.3


def test_compiled_slopes_are_those_of_the_losses():
    from numba import njit

    from svrhmc.families.bernoulli import Logistic
    from svrhmc.families.gaussian import Squared
    from svrhmc.kernels.losses import slopes

    @njit
    def call(loss, t, y, out):
        slopes(loss, len(out), t, y, out)

    t = np.concatenate([np.linspace(-40, 40, 4001), [-1000.0, -709.0, 709.0, 1000.0]])
    for y in (np.ones_like(t), -np.ones_like(t)):
        for dtype, tolerance in ((np.float64, 4e-15), (np.float32, 5e-7)):
            out = np.empty(len(t), dtype)
            call(Logistic(), t.astype(dtype), y.astype(dtype), out)
            exact = svrhmc.targets.losses.LogisticLoss().slope(t.astype(dtype).astype(float), y)
            assert out == pytest.approx(exact, rel=tolerance, abs=1e-37 if dtype == np.float32 else 1e-300)
        out = np.empty_like(t)
        call(Squared(2.0), t, y, out)
        assert out == pytest.approx(2 * (t - y), rel=1e-15)


@pytest.mark.slow
def test_a_thousand_million_normals_have_the_right_moments_and_no_memory():
    """10⁸ steps of pure noise, ten normals each, one chain: moments, serial correlation, and no drift between parts."""
    from numba import njit

    from svrhmc.engines.compiled.engine import make_noise
    from svrhmc.kernels.normals import fill_noise

    dim, span = 10, 50
    half = dim // 2
    noise = make_noise(half, span)

    @njit
    def moments(k0, k1, first, count, noise, normals, totals, last):
        steps = noise.steps
        for base in range(first, first + count, span):
            fill_noise(k0, k1, np.uint32(base), len(steps), noise, normals)
            for k in range(2):
                for i in range(len(steps)):
                    z = normals[k, i]
                    totals[0] += z
                    totals[1] += z * z
                    totals[2] += z * z * z
                    totals[3] += z * z * z * z
                    totals[4] += z * last[k, i % half]
                    last[k, i % half] = z

    k0, k1 = (int(key[0]) for key in Stream(2018, np.array([0])).keys(0))
    last = np.zeros((2, half))
    normals = np.zeros((3, len(noise.steps)))
    parts = []
    for part in range(10):
        totals = np.zeros(5)
        moments(np.uint32(k0), np.uint32(k1), part * 10**7, 10**7, noise, normals, totals, last)
        parts.append(totals / 1e8)
    for values, count in [(part, 1e8) for part in parts] + [(np.mean(parts, axis=0), 1e9)]:
        errors = np.sqrt(np.array([1, 2, 15, 96, 1]) / count)
        assert (np.abs(values - [0, 1, 0, 3, 0]) < 4.5 * errors).all()


GOING_ON = [
    svrhmc.gradients.Full(),
    svrhmc.gradients.Minibatch(3),
    svrhmc.gradients.Minibatch(3, importance=True),
    svrhmc.gradients.ControlVariate(3),
    svrhmc.gradients.SVRG(3, 7),
    svrhmc.gradients.SVRG(3, 7, snapshot_size=4),
    svrhmc.gradients.SAGA(3),
]


@pytest.mark.parametrize("gradient", GOING_ON, ids=str)
def test_a_run_that_goes_on_does_so_alike_in_both_engines_and_for_any_threads(rows, gradient):
    """From the middle of an epoch, with the memory and without it: a new snapshot is then taken there."""
    target, sampler = every_target(rows)["logistic"], svrhmc.Sampler(svrhmc.dynamics.UBU(0.3, 1.0, 0.5), gradient)
    numbers = tuple(range(5))
    first = made(sampler, target, numbers)
    first.extend(24)
    forgetful = State(first.state.x, first.state.v, step=24)
    one, two, reference = (
        made(sampler, target, numbers, threads, name, state=forgetful).extend(36).draws
        for name, threads in (("numba", 1), ("numba", 3), ("reference", 1))
    )
    assert (one == two).all()
    assert one == pytest.approx(reference, abs=1e-10)
    whole = made(sampler, target, numbers).extend(60).draws[:, 24:]
    assert (first.extend(36).draws == whole).all()
    assert (one == whole).all() != gradient.recipe(target).carries


@pytest.mark.parametrize(
    "gradient",
    # what each of the two is compiled for, no other gradient here needs
    [
        pytest.param(each, marks=[pytest.mark.slow] * (each in (GOING_ON[0], GOING_ON[2])), id=str(each))
        for each in GOING_ON
    ],
)
def test_gradients_at_many_states_are_those_of_the_estimator(rows, gradient):
    target = every_target(rows)["logistic"]
    states, chains = np.random.default_rng(0).normal(size=(9, 3)), np.arange(3, 12)
    sampler = svrhmc.Sampler(svrhmc.dynamics.UBU(0.3, 1.0, 0.5), gradient)
    for step in (0, 24):
        found = [
            svrhmc.engines.estimates(sampler.setup(target, 6, chains, threads), states, step) for threads in (1, 2)
        ]
        expected = gradient.estimator(target, Stream(6, chains))(states, step)
        assert found[0] == pytest.approx(expected, abs=1e-12)
        assert (found[0] == found[1]).all()
        by_reference = load("reference").estimates(sampler.setup(target, 6, chains, 1), states, step)
        assert (by_reference == expected).all()


def test_an_unknown_loss_or_frame_is_refused_by_name():
    from collections import namedtuple

    from numba import njit
    from numba.core.errors import TypingError

    from svrhmc.kernels import frames, losses

    Hinge = namedtuple("Hinge", "scale")
    t = np.zeros(3)

    @njit
    def slopes(loss, t):
        losses.slopes(loss, len(t), t, t, t)

    @njit
    def displace(frame, t):
        frames.displace(frame, t, t, t)

    with pytest.raises(TypingError, match=r"Hinge.* is no record of a family, which has formulas"):
        slopes(Hinge(1.0), t)
    with pytest.raises(TypingError, match=r"no change of variables is compiled for the frame Hinge"):
        displace(Hinge(1.0), t)
