"""Rows of a model on several devices, where they are, or in float32: the same draws everywhere, and little memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import svrhmc
from svrhmc import Sampler, dynamics, gradients, targets

jax = pytest.importorskip("jax")
jnp = jax.numpy

RNG = np.random.default_rng(7)
N, DIM = 1003, 4
X, Y = RNG.standard_normal((N, DIM)), RNG.random(N) < 0.4
MOVES = dynamics.UBU(0.01, 1.0, 1.0)
HEAD = """
import json, numpy as np, jax, jax.numpy as jnp
from svrhmc import Sampler, dynamics, gradients, targets
from test_jax_devices import MOVES, SOME, STATES, logistic
devices = jax.devices()
"""


def log_likelihood(params, row):
    x, y = row
    t = x @ params["w"] + params["b"]
    return -jnp.logaddexp(0.0, jnp.where(y, -t, t))


def log_prior(params):
    return -0.5 * (params["w"] @ params["w"] + params["b"] ** 2)


def logistic(rows=X, **more):
    return targets.model(log_likelihood, log_prior, (rows, Y), {"w": np.zeros(DIM), "b": 0.0}, **more)


def chains(target, gradient, steps=20):
    return Sampler(MOVES, gradient).run(target, steps, chains=4, seed=1).draws


def with_four_devices(code):
    """What a process in which the CPU counts as four devices prints, as JSON."""
    here = os.pathsep.join([str(Path(__file__).parent), str(Path(svrhmc.__file__).parents[1])])
    env = {**os.environ, "PYTHONPATH": here, "JAX_PLATFORMS": "cpu"}
    env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    done = subprocess.run([sys.executable, "-c", HEAD + code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


STATES = np.linspace(-1, 1, 10).reshape(2, 5)
SOME = np.array([[0, 1, N - 1, 500, 31], [N // 4, N // 2, 7, 7, 998]])


@pytest.fixture(scope="module")
def here():
    return logistic()


def test_sums_and_rows_do_not_depend_on_the_number_of_devices(here):
    """To the last bit; and a device that gave the rows of its neighbour would be seen."""
    found = with_four_devices("""
made = [logistic(devices=devices[:count]) for count in (1, 3)]
print(json.dumps([[t.gradients(STATES).tolist(), t.parts(STATES, SOME).tolist()] for t in made]))
""")
    assert found[0] == found[1]
    slopes, parts = map(np.array, found[0])
    np.testing.assert_allclose(slopes, here.gradients(STATES), rtol=1e-12)
    np.testing.assert_allclose(parts, here.parts(STATES, SOME), rtol=1e-12)
    assert np.abs(parts - here.parts(STATES, (SOME + 1) % N)).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["Full()", "SVRG(5, 10)", "Minibatch(5)", "SAGA(5)"])
def test_draws_do_not_depend_on_the_number_of_devices(gradient):
    found = with_four_devices(f"""
sampler, found = Sampler(MOVES, gradients.{gradient}), []
for count in (1, 2, 4):
    found.append(sampler.run(logistic(devices=devices[:count]), 25, chains=4, seed=1).draws.tolist())
print(json.dumps(found))
""")
    first = np.array(found[0])
    assert max(np.abs(np.array(other) - first).max() for other in found[1:]) < 1e-12
    assert np.abs(first[:, -1] - first[:, 0]).max() > 1e-3


@pytest.mark.slow
def test_chains_are_cut_over_devices_where_no_step_passes_over_all_rows():
    found = with_four_devices("""
from svrhmc.core.jax import scope
from svrhmc.engines import Grid, Setup, State
from svrhmc.engines.jax.grid import GridKernel
target, found = logistic(devices="all"), []
for gradient in (gradients.Minibatch(5), gradients.Full()):
    recipe = gradient.recipe(target)
    setup = Setup(target, Grid(MOVES.scheme(target), recipe, 0.01), 1, np.arange(8))
    with scope():
        place = GridKernel(setup).begin(State(np.zeros((8, 5)), np.zeros((8, 5))))
    found.append([len(place.x.sharding.device_set), place.x.sharding.is_fully_replicated])
print(json.dumps(found))
""")
    assert found == [[4, False], [4, True]]


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"devices must be None, 'all'.*got 'tpu'.*JAX has: "):
        logistic(devices="tpu")
    with pytest.raises(ValueError, match=r"devices must be None, 'all'.*got 3"):
        logistic(devices=3)
    with pytest.raises(ValueError, match=r"devices must be None, 'all'.*got \[\]"):
        logistic(devices=[])


@pytest.fixture
def mapped(tmp_path):
    """The rows in a file."""
    np.save(tmp_path / "rows.npy", X)
    return np.load(tmp_path / "rows.npy", mmap_mode="r")


@pytest.mark.parametrize(
    "gradient",
    [gradients.Minibatch(5), *(pytest.param(g, marks=pytest.mark.slow) for g in (gradients.SAGA(5), gradients.Full(),
     gradients.SVRG(5, 10), gradients.SVRG(5, 10, snapshot_size=20), gradients.ControlVariate(5)))],
    ids=lambda gradient: type(gradient).__name__,
)  # fmt: skip
def test_a_memory_map_has_the_draws_of_the_array(mapped, here, gradient):
    """To rounding: a block that is read from elsewhere is summed by a program of its own."""
    np.testing.assert_allclose(chains(logistic(mapped), gradient), chains(here, gradient), rtol=1e-10, atol=1e-12)


def test_a_memory_map_stays_where_it_is(mapped, here, monkeypatch):
    """It is read in blocks of 100 rows, halves of which are summed side by side, as on a GPU; the last has 3."""
    from svrhmc.models import placement as placed

    monkeypatch.setattr(placed, "_LEAST_BLOCK", 120)
    kind = jax.default_backend()
    monkeypatch.setattr(placed, "_WIDE", (kind,))
    monkeypatch.setattr(placed, "_GROUP", 50)
    monkeypatch.setitem(placed._BLOCK_NUMBERS, kind, 1)
    there = logistic(mapped)
    assert (there.data, there.functions.place.block) == ((), 100)
    assert there.identity() == here.identity()
    np.testing.assert_allclose(there.gradients(STATES), here.gradients(STATES), rtol=1e-12)
    with pytest.raises(ValueError, match="devices must be None for data in a memory map"):
        logistic(mapped, devices="all")


def test_rows_that_a_device_has_no_room_for_stay_on_the_host(here, monkeypatch):
    from svrhmc.core import devices

    monkeypatch.setattr(devices, "free_bytes", lambda device: 1000.0)
    target = logistic()
    assert target.data == ()
    np.testing.assert_allclose(target.gradients(STATES), here.gradients(STATES), rtol=1e-12)
    with pytest.raises(ValueError, match=r"data must be such that it fits.*got 3.31e-05 GB"):
        logistic(devices="all")
    with pytest.raises(ValueError, match=r"the table of gradients must be .*1e-06 GB are free; got 0.00016 GB"):
        chains(target, gradients.SAGA(5))
    rows = targets.logistic(X, Y.astype(float))
    with pytest.raises(ValueError, match="the arrays of the target must be such that"):
        Sampler(MOVES, gradients.Minibatch(5)).run(rows, 10, engine="jax")


@pytest.mark.slow
def test_a_large_memory_map_takes_little_memory(tmp_path):
    """1 GB of rows, of which no more than a part is ever copied. Pages of the file that the system keeps at hand are
    not counted: it takes them back when it likes.
    """
    code = f"""
import threading, time
most, stopped = 0, threading.Event()
def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024
def watch():
    global most
    while not stopped.is_set():
        most = max(most, anonymous())
        time.sleep(0.005)
rows = np.lib.format.open_memmap({str(tmp_path / "rows.npy")!r}, "w+", np.float32, (8_000_000, 32))
for first in range(0, len(rows), 100_000):
    rows[first:first + 100_000] = np.sin(np.arange(first, first + 100_000, dtype=np.float32))[:, None]
rows.flush()
rows = np.load({str(tmp_path / "rows.npy")!r}, mmap_mode="r")
jnp.zeros(3).block_until_ready()
before = anonymous()
thread = threading.Thread(target=watch); thread.start()
target = targets.model(
    lambda w, x: -0.5 * (x @ w - 1.0) ** 2, lambda w: -0.5 * w @ w, rows, np.zeros(32, np.float32), dtype="float32"
)
draws = Sampler(dynamics.UBU(1e-5, 1.0, 1.0), gradients.SVRG(32, 50)).run(target, 60, chains=2, seed=1).draws
stopped.set(); thread.join()
print(json.dumps([most - before, bool(np.isfinite(draws).all())]))
"""
    more, finite = with_four_devices(code)
    assert finite
    assert more < 300


@pytest.mark.parametrize("gradient", [gradients.Full(), pytest.param(gradients.SVRG(5, 10), marks=pytest.mark.slow)])
def test_float32_follows_float64(here, gradient):
    """States are float64, and the functions see float32."""
    seen = set()

    def watched(params, row):
        seen.update(leaf.dtype for leaf in (params["w"], params["b"], row[0]))
        return log_likelihood(params, row)

    init = {"w": np.zeros(DIM), "b": 0.0}
    coarse = targets.model(watched, log_prior, (X, Y), init, dtype="float32")
    assert seen == {np.dtype(np.float32)}
    fine, rough = (chains(target, gradient, steps=100) for target in (here, coarse))
    assert rough.dtype == np.float64
    assert 0 < np.abs(fine - rough).max() < 1e-4
    assert np.abs(rough - rough.astype(np.float32)).max() > 0


def test_float32_normals_are_those_of_the_stream_less_their_fine_bits():
    """In both tails and between, for counts even and odd."""
    from scipy.special import ndtri

    from svrhmc.core.jax import scope
    from svrhmc.core.randomness import Purpose, Stream
    from svrhmc.engines.jax import randomness

    numbers = np.arange(40)
    for count in (5000, 4999):
        expected = Stream(3, numbers).normals(7, count)
        with scope():
            keys = tuple(jnp.asarray(key) for key in Stream(3, numbers).keys(0))
            steps = jnp.array([7], jnp.uint32)
            fine = randomness.normals(keys, steps, count, Purpose.NOISE, Purpose.NOISE_FINE)[0]
            coarse = randomness.normals(keys, steps, count, Purpose.NOISE, None)[0]
        assert coarse.dtype == np.float32
        assert np.abs(expected).max() > 4.5
        assert np.abs(np.asarray(fine) - expected).max() < 1e-12
        bits = np.concatenate(Stream(3, numbers).words(7, Purpose.NOISE, 2500), axis=1)[:, :count]
        less = np.where(bits >> 31, -1, 1) * ndtri(((bits & 0x7FFFFFFF) + 0.5) * 2.0**-32)
        assert np.abs(np.asarray(coarse) / less - 1).max() < 5e-7
        assert 1e-8 < np.abs(np.asarray(coarse) - expected).max() < 1e-4


def test_random_numbers_made_in_the_step_before():
    """Steps of so many coordinates that their random numbers are not made for all steps together."""
    target = targets.model(
        lambda w, x: -0.5 * ((w[:2] - x) ** 2).sum(), lambda w: -0.5 * w @ w, X[:50, :2], np.zeros(40_000)
    )
    sampler = Sampler(dynamics.UBU(0.01, 1.0, 1.0), gradients.Minibatch(5))
    whole, other = (sampler.run(target, 3, chains=1, seed=1, engine=engine).draws for engine in ("jax", "reference"))
    assert np.abs(whole - other).max() < 1e-12
    assert np.abs(whole[:, 1:] - whole[:, :-1]).max() > 1e-3
