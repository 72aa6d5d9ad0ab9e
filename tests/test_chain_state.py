"""One state: a run may be cut anywhere, and no bit of it changes."""

import itertools

import numpy as np
import pytest

import svrhmc
from conftest import every_engine
from stored_runs import counts, dense, sparse_rows
from svrhmc import dynamics, gradients, targets
from svrhmc.engines import EVERY, Chains, Extension, Keep, Setup, State, chains, choose
from svrhmc.engines.base import load
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.whitening import whitened

DYNAMICS = {
    "underdamped": dynamics.Underdamped(0.02, 2.0, 1.0),
    "ubu": dynamics.UBU(0.02, 2.0, 1.0),
    "overdamped": dynamics.Overdamped(1e-4),
    "anchored": dynamics.Anchored(0.02),
}
GRADIENTS = {
    "full": gradients.Full(),
    "minibatch": gradients.Minibatch(5),
    "minibatch, distinct": gradients.Minibatch(5, False),
    "minibatch, by importance": gradients.Minibatch(5, importance=True),
    "svrg": gradients.SVRG(4, 7),
    "svrg, distinct": gradients.SVRG(4, 11, False),
    "svrg, estimated snapshots": gradients.SVRG(4, 7, snapshot_size=9),
    "saga": gradients.SAGA(3),
    "saga, by importance": gradients.SAGA(3, importance=True),
    "control variate": gradients.ControlVariate(4),
    "control variate, second order": gradients.ControlVariate(4, order=2),
}
TARGETS = {
    "dense": dense,
    "sparse": sparse_rows,
    "gaussian": lambda: targets.synthetic(40, 4, spread=0.5),
    "custom": counts,
    "float32": lambda: targets.logistic(dense().rows.X.astype(np.float32), dense().y),
    "whitened": lambda: whitened(dense()),
    "whitened, low rank": lambda: whitened(dense(), "low rank"),
}
# loops that no other test would have compiled
SELDOM = [(rows, gradient) for rows in ("sparse", "float32") for gradient in ("second order", "saga", "importance")]
ROWS_ONLY = ("importance", "second order")
CUTS = ([40], [17, 23], [1] * 40)


def allowed(target, gradient):
    of_rows = target not in ("gaussian", "custom")
    if target == "whitened, low rank" and "second order" in gradient:
        return False
    return of_rows or not any(word in gradient for word in ROWS_ONLY)


def cells():
    named = ("dense", "sparse", "gaussian", "custom")
    for target, dynamic, gradient in itertools.product(TARGETS, DYNAMICS, GRADIENTS):
        if allowed(target, gradient) and (target in named or dynamic == "ubu"):
            rare = any(target == one and part in gradient for one, part in SELDOM)
            rare |= dynamic != "ubu" and gradient not in ("full", "svrg", "saga")  # what is carried on is that of ubu
            yield pytest.param(target, dynamic, gradient, marks=[pytest.mark.slow] * rare)


MADE = {name: make() for name, make in TARGETS.items()}


def in_pieces(make, cuts, threads=1, keep=EVERY):
    """Draws, costs and the last state of chains that are extended by so many steps at a time."""
    made: Chains = make(threads)
    extensions: list[Extension] = [made.extend(count, keep) for count in cuts]
    draws = np.concatenate([each.draws for each in extensions], axis=1)
    spent = np.concatenate([each.spent for each in extensions])
    return draws, spent, sum(each.evaluations for each in extensions), made.state


def same(a, b):
    """Bit for bit."""
    states = a[3], b[3]
    assert (a[0] == b[0]).all()
    assert (a[1] == b[1]).all()
    assert a[2] == b[2]
    assert (states[0].step, states[0].spent) == (states[1].step, states[1].spent)
    assert (states[0].x == states[1].x).all()
    assert (states[0].v == states[1].v).all()
    assert states[0].memory.keys() == states[1].memory.keys()
    assert all((states[0].memory[name] == states[1].memory[name]).all() for name in states[0].memory)
    return True


def grid(target, sampler, engine):
    def make(threads):
        origin = np.zeros((3, target.dim))
        setup: Setup = sampler.setup(target, 5, np.arange(3), threads)
        return chains(engine, setup, State(origin, origin.copy()))

    return make


@pytest.mark.parametrize("engine", every_engine())
@pytest.mark.parametrize(("target", "dynamic", "gradient"), list(cells()))
def test_cutting_changes_no_bit(target, dynamic, gradient, engine):
    sampler = svrhmc.Sampler(DYNAMICS[dynamic], GRADIENTS[gradient])
    setup = sampler.setup(MADE[target], 5, np.arange(3), 1)
    if engine != "reference" and load(engine).supports(setup.sampler, setup.target) is not None:
        with pytest.raises(ValueError, match=r"engine must be 'auto' or 'reference'.* for this target and sampler"):
            choose(engine, setup)
        return
    make = grid(MADE[target], sampler, engine)
    whole, *cut = (in_pieces(make, cuts, 1 + len(cuts) % 2) for cuts in CUTS)
    assert all(same(whole, each) for each in cut)
    assert whole[2] == 3 * sampler.gradient.evaluations(MADE[target], 40)


@pytest.mark.parametrize("sampler", [SplitHMC(), SplitHMC(0.3, 4), SubsampledMH(), SubsampledMH(0.5)], ids=str)
@pytest.mark.parametrize("target", ["dense", "sparse", "float32"])
def test_cutting_changes_no_bit_of_an_exact_sampler(target, sampler):
    space = whitened(MADE[target], "dense")

    def make(threads):
        return sampler.chains(space, 5, np.arange(3), threads)

    whole, *cut = (in_pieces(make, cuts, 1 + len(cuts) % 2) for cuts in CUTS)
    assert all(same(whole, each) for each in cut)


@pytest.mark.parametrize("engine", every_engine())
def test_a_memory_forgotten_is_noticed(engine):
    """The control: without its memory a chain takes a new snapshot, and ends elsewhere."""
    for gradient in ("svrg", "saga"):
        sampler = svrhmc.Sampler(DYNAMICS["ubu"], GRADIENTS[gradient])
        make = grid(MADE["dense"], sampler, engine)
        whole = in_pieces(make, [40])
        made = make(1)
        made.extend(17)
        made.state = State(made.state.x, made.state.v, {}, made.state.step, made.state.spent)
        assert (made.extend(1).draws[:, 0] != whole[0][:, 17]).any()


@pytest.mark.parametrize("engine", every_engine())
def test_a_table_that_is_not_kept_is_made_again_to_the_same_digits(engine, monkeypatch):
    sampler = svrhmc.Sampler(DYNAMICS["ubu"], GRADIENTS["svrg"])
    for target in ("dense", "sparse", "float32", "whitened"):
        make = grid(MADE[target], sampler, engine)
        whole = in_pieces(make, [40])
        assert "table" in whole[3].memory
        with monkeypatch.context() as patch:
            patch.setattr(gradients, "_MOST_KEPT", 10)
            cut = in_pieces(make, [17, 23])
        assert "table" not in cut[3].memory
        assert (cut[0] == whole[0]).all()


@pytest.mark.parametrize("engine", every_engine())
@pytest.mark.parametrize("keep", [Keep(1, 3), Keep(9, 4), Keep(40, 40), Keep(100)])
def test_what_is_kept_does_not_depend_on_the_cuts(engine, keep):
    make = grid(MADE["dense"], svrhmc.Sampler(DYNAMICS["ubu"], GRADIENTS["svrg"]), engine)
    everything = in_pieces(make, [40])
    chosen = [step - 1 for step in range(keep.first, 41, keep.thin)]
    for cuts in CUTS:
        found = in_pieces(make, cuts, keep=keep)
        assert (found[0] == everything[0][:, chosen]).all()
        assert (found[1] == everything[1][chosen]).all()


METHODS = {
    "custom, SVRG by choice": (counts, {"method": "ubu", "tolerance": 0.05, "draws": 40}),
    "split HMC": (dense, {"draws": 300}),
    "subsampled": (dense, {"draws": 300, "method": "subsampled-mh"}),
    "anchored": (dense, {"draws": 300, "method": "anchored", "tolerance": 0.3}),
    "baoab": (dense, {"draws": 300, "method": "baoab", "tolerance": 0.3}),
    "svr-hmc": (dense, {"draws": 40, "method": svrhmc.svr_hmc(0.3, 1.0, 1.0, 10, 13)}),
    "saga": (dense, {"draws": 40, "method": svrhmc.saga_ubu(0.3, 1.0, 1.0, 10)}),
}


@pytest.mark.untraced
@pytest.mark.parametrize("name", METHODS)
def test_a_budget_that_is_not_used_up_changes_no_bit(name):
    make, settings = METHODS[name]
    free = svrhmc.sample(make(), seed=3, **settings)
    bound = svrhmc.sample(make(), seed=3, budget_passes=1e9, budget_seconds=1e6, **settings)
    if "SVRG" in name:
        assert free.sampler.gradient.recipe(make()).reference == "snapshot"
    assert bound.complete
    assert (free.trace.draws == bound.trace.draws).all()
    assert (free.trace.passes == bound.trace.passes).all()
    assert (free.mean == bound.mean).all()
    assert free.certificate.verdict == bound.certificate.verdict
    assert free.passes == bound.passes
