"""Rows and chains shared out over several devices by `engine="jax"`: the draws of one, whatever their number.

The CPU counts as four devices in a process of its own (`with_four_devices`).
"""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from svrhmc import Sampler, gradients, targets
from svrhmc.whitening import whitened
from test_jax_devices import MOVES, X, Y, logistic, with_four_devices

jax = pytest.importorskip("jax")

N = len(X)
SPARSE = csr_matrix(np.where(np.abs(X) < 0.5, 0.0, X))
CLASSES, WEIGHTS = np.arange(N) % 3, 0.5 + np.arange(N) % 7 / 4
HEAD = "import svrhmc\nfrom test_jax_spread import *\n"


def dense(rows=N):
    return targets.logistic(X[:rows], Y[:rows], 1.0)


TARGETS = {
    "dense": dense,
    "three rows": lambda: dense(3),
    "single": lambda: targets.logistic(X.astype(np.float32), Y, 1.0),
    "sparse": lambda: targets.logistic(SPARSE, Y, 1.0),
    "classes": lambda: targets.glm(X, CLASSES.astype(float), "categorical", weights=WEIGHTS),
    "white": lambda: whitened(dense(), "dense"),
    "quadratic": lambda: targets.synthetic(n=50, dim=3),
    "model": lambda: logistic(devices="all"),
}


def draws(target, gradient, devices, moves=MOVES, chains=4, steps=25):
    sampler = Sampler(moves, gradient)
    return sampler.run(target, steps, chains=chains, seed=1, engine="jax", devices=devices).draws


def apart(found):
    """The largest difference from the first, of each of the others."""
    return [float(np.abs(other - found[0]).max()) for other in found[1:]]


def test_draws_are_those_of_one_device():
    """1003 rows, which come out even on no number of devices, and 3, fewer than there are devices; 5 chains. Sums that
    forget the rows that are left, or rows of batches that are those of a neighbour, would be seen.
    """
    full, cut, few, odd = with_four_devices(
        HEAD
        + """
from svrhmc.models import placement
target = dense()
everywhere = [draws(target, gradients.Full(), devices[:count]) for count in (1, 3)]
batches = [draws(target, gradients.Minibatch(5), some, chains=5) for some in (None, devices[:3])]
few = [draws(dense(3), gradients.Full(), some) for some in (None, devices)]
jax.clear_caches()
placement.OnDevices._rest_count = property(lambda self: 0)
less = [everywhere[0], draws(target, gradients.Full(), devices[:3])]
print(json.dumps([apart(each) for each in (everywhere, batches, few, less)]))
"""
    )
    assert full == [0.0]
    assert cut[0] < 1e-13
    assert few[0] < 1e-13
    assert odd[0] > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "moves", "gradient", "chains"),
    [
        ("dense", "dynamics.Overdamped(0.001)", "Full()", 1),
        ("dense", "dynamics.Underdamped(0.003, 1.0, 1.0)", "SVRG(5, 7)", 1),
        ("dense", "MOVES", "SVRG(5, 7, importance=True)", 4),
        ("dense", "MOVES", "SVRG(5, 7, snapshot_size=20)", 2),
        ("dense", "MOVES", "SAGA(5)", 5),
        ("dense", "dynamics.Overdamped(0.001)", "ControlVariate(5, order=2)", 3),
        ("three rows", "MOVES", "SVRG(2, 7)", 1),
        ("three rows", "MOVES", "SAGA(2)", 4),
        ("single", "MOVES", "Full()", 4),
        ("sparse", "MOVES", "Full()", 4),
        ("sparse", "dynamics.Underdamped(0.003, 1.0, 1.0)", "SVRG(5, 7)", 3),
        ("classes", "MOVES", "SAGA(5)", 1),
        ("classes", "MOVES", "Full()", 4),
        ("white", "MOVES", "Minibatch(5, False)", 2),
        ("quadratic", "MOVES", "SVRG(5, 7)", 5),
    ],
)
def test_every_gradient_has_the_draws_of_one_device(name, moves, gradient, chains):
    """Fewer chains than devices, as many, or more, so that rows or chains are cut."""
    found = with_four_devices(
        HEAD
        + f"""
target = TARGETS[{name!r}]()
found = [draws(target, gradients.{gradient}, some, {moves}, {chains})
         for some in (None, *(devices[:count] for count in (1, 2, 3, 4)))]
print(json.dumps([apart(found), float(np.abs(found[0][:, -1] - found[0][:, 0]).max())]))
"""
    )
    assert max(found[0]) < (1e-5 if name == "single" else 1e-12)
    assert found[1] > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["SVRG(5, 7)", "SAGA(5)", "ControlVariate(5)"])
@pytest.mark.parametrize("name", ["dense", "sparse", "model"])
def test_batches_of_rows_that_are_cut(name, gradient):
    """Where devices have room for their own rows only; a row of a neighbour would be seen."""
    found = with_four_devices(
        HEAD
        + f"""
from svrhmc.core.jax import scope
from svrhmc.engines.jax.placement import place_form
from svrhmc.core import devices as there
from svrhmc.models.placement import OnDevices
target, sampled = TARGETS[{name!r}](), None if {name!r} == "model" else devices
alone = draws(logistic() if sampled is None else target, gradients.{gradient}, None)
room, there.room_on = there.room_on, lambda device: 1.5e5
with scope():
    spread, operations, _ = place_form(target.form(), sampled, 4)
there.room_on = room
cut = draws(target, gradients.{gradient}, sampled)
right = OnDevices._mine
OnDevices._mine = lambda self, mine, rows: right(self, mine, rows ^ 1)
jax.clear_caches()
wrong = draws(target, gradients.{gradient}, sampled)
print(json.dumps([spread.chains, type(operations.place).__name__, apart([alone, cut, wrong])]))
"""
    )
    assert found[:2] == [False, "OnDevices"]
    assert found[2][0] < 1e-12
    assert found[2][1] > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["Full()", "SVRG(5, 7)", "SAGA(5)"])
def test_a_run_begun_on_two_devices_goes_on_with_one(tmp_path, gradient):
    with_four_devices(
        HEAD
        + f"""
from svrhmc import checkpoint
checkpoint.SECONDS = 0.0
def interrupt(done, total):
    if done >= total // 2:
        raise KeyboardInterrupt
try:
    Sampler(MOVES, gradients.{gradient}).run(dense(), 600, chains=3, seed=1, thin=10, engine="jax",
        devices=devices[:2], checkpoint={str(tmp_path / "run")!r}, progress=interrupt)
    print("false")
except KeyboardInterrupt:
    print("true")
"""
    )
    told = []
    sampler = Sampler(MOVES, eval(f"gradients.{gradient}"))
    settings = {"chains": 3, "seed": 1, "thin": 10, "engine": "jax"}
    again = sampler.run(
        dense(),
        600,
        **settings,
        checkpoint=tmp_path / "run",
        progress=lambda done, total: told.append(done / total),
    )
    assert told[0] > 0.3
    assert again.draws == pytest.approx(sampler.run(dense(), 600, **settings).draws, abs=1e-11)


@pytest.mark.slow
def test_exact_and_automatic_sampling_of_a_model():
    """Chains that share a pass over rows on several devices, and what `sample` makes of them."""
    found = with_four_devices(
        HEAD
        + """
from svrhmc.exact import SplitHMC
made = [logistic(devices=devices[:count]) for count in (1, 3, 4)]
exact = [SplitHMC().run(target, 30, chains=3, seed=1, burn_in=5).draws for target in made]
found = [svrhmc.sample(target, draws=100, seed=1) for target in made]
print(json.dumps([apart(exact), apart([each.trace.draws for each in found]), [each.certificate.verdict for each in found]]))
"""
    )
    assert max(found[0]) < 1e-12
    assert max(found[1]) < 1e-10
    assert found[2] == ["local"] * 3


@pytest.mark.slow
def test_a_chain_that_diverges_is_named():
    """With 5 chains on 3 devices, and rows that all devices pass over."""
    found = with_four_devices(
        HEAD
        + """
target = targets.glm(X, CLASSES.astype(float), "poisson")
start, found = np.where(np.arange(5)[:, None] == 3, 30.0, np.zeros((5, target.dim))), []
for gradient in (gradients.Minibatch(5), gradients.Full()):
    for some in (None, devices[:3]):
        try:
            Sampler(MOVES, gradient).run(target, 40, chains=5, seed=1, engine="jax", devices=some, start=start)
        except svrhmc.DivergenceError as error:
            found.append(str(error))
print(json.dumps(found))
"""
    )
    assert len(found) == 4
    assert len(set(found)) == 1
    assert "chain 3 diverged at step 2" in found[0]


@pytest.mark.slow
def test_kernels_of_many_steps_on_each_device():
    """As on GPUs, but interpreted; the kernel is used by both runs."""
    calls, (apart_by,) = with_four_devices(
        HEAD
        + """
from svrhmc.engines.jax import gpu
gpu.on_gpu, walk, calls = lambda: True, gpu.walk, []
gpu.walk = lambda *given: (calls.append(given), walk(*given))[1]
target = TARGETS["single"]()
found = [draws(target, gradients.Minibatch(5), some, chains=3, steps=12) for some in (None, devices[:2])]
print(json.dumps([len(calls), apart(found)]))
"""
    )
    assert calls >= 2
    assert apart_by < 1e-6


def test_devices_are_for_jax_and_must_be_there():
    sampler, target = Sampler(MOVES, gradients.Minibatch(5)), dense()
    with pytest.raises(ValueError, match=r"devices must be None, 'all'.*got 'tpu'.*JAX has: "):
        sampler.run(target, 10, engine="jax", devices="tpu")
    with pytest.raises(ValueError, match=r"engine must be 'auto' or 'jax'.*got 'numba'.*devices are given"):
        sampler.run(target, 10, engine="numba", devices="all")
    with pytest.raises(ValueError, match=r"devices must be None for a model.*got 'all'.*targets\.model"):
        sampler.run(logistic(), 10, devices="all")
    assert sampler.run(target, 10, devices="all").engine == "jax"


def test_rows_too_large_for_the_devices_are_refused(monkeypatch):
    """1003 rows of 4 numbers and a label are 40,120 bytes."""
    from svrhmc.core import devices

    monkeypatch.setattr(devices, "free_bytes", lambda device: 4e4)
    for gradient in (gradients.Full(), gradients.Minibatch(5)):
        with pytest.raises(ValueError, match=r"the arrays of the target must be such that.*got 4.02e-05 GB.*devices"):
            Sampler(MOVES, gradient).run(dense(), 10, devices="all")
