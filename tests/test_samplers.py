"""One table: every named sampler × law, cost, determinism, divergence, printing. The law's half is in test_law."""

import numpy as np
import pytest
import scipy.sparse

import svrhmc
from conftest import LIMIT, equal, every_engine, every_target
from hand_written_laws import z_scores
from svrhmc import dynamics, gradients
from svrhmc.engines import reference

NAMED = {
    "lmc": svrhmc.lmc(0.05),
    "sgld": svrhmc.sgld(0.05, batch_size=2),
    "vr_sgld": svrhmc.vr_sgld(0.05, batch_size=2, epoch_length=3),
    "hmc": svrhmc.hmc(0.2),
    "sg_hmc": svrhmc.sg_hmc(0.2, batch_size=2),
    "svr_hmc": svrhmc.svr_hmc(0.2, batch_size=2, epoch_length=3),
    "euler": svrhmc.Sampler(dynamics.EulerMaruyama(0.2), gradients.Full()),
    "sgld_cv": svrhmc.sgld_cv(0.05, batch_size=2),
    "svrg_ubu": svrhmc.svrg_ubu(0.2, batch_size=2, epoch_length=3),
    "exponential": svrhmc.Sampler(dynamics.Exponential(0.2), gradients.Minibatch(2)),
    "baoab": svrhmc.Sampler(dynamics.BAOAB(0.2, 1.0), gradients.SVRG(2, 3)),
    "saga_hmc": svrhmc.saga_hmc(0.2, batch_size=2),
    "anchored": svrhmc.Sampler(dynamics.Anchored(0.3, 1.0, 0.1), gradients.ControlVariate(2)),
    "estimated": svrhmc.svr_hmc(0.2, batch_size=2, epoch_length=3, replacement=False, snapshot_size=4),
}
TARGETS = [
    "logistic", "logistic-csr", "logistic-float32", "linear", "linear-csr", "gaussian", "gaussian-many", "custom",
]  # fmt: skip


# loops that few other tests would have compiled
SELDOM = [("linear-csr", name) for name in NAMED] + [
    (kind, "saga_hmc") for kind in ("linear", "logistic-csr", "logistic-float32")
]
CELLS = [
    pytest.param(kind, name, marks=[pytest.mark.slow] * ((kind, name) in SELDOM)) for kind in TARGETS for name in NAMED
]


def compiled(name, kind):
    """Whether the compiled engine runs a sampler of the table on a target of it."""
    return kind != "custom" and not (name == "saga_hmc" and kind.startswith("gaussian"))


def test_a_name_is_one_expression_of_the_grid():
    D, G = dynamics, gradients
    assert svrhmc.lmc(0.1) == svrhmc.Sampler(D.Overdamped(0.1), G.Full())
    assert svrhmc.sgld(0.1, 3) == svrhmc.Sampler(D.Overdamped(0.1), G.Minibatch(3))
    assert svrhmc.vr_sgld(0.1, 3, 7, False, 5) == svrhmc.Sampler(D.Overdamped(0.1), G.SVRG(3, 7, False, 5))
    assert svrhmc.svr_hmc(0.1, 1.5, 0.3, 3, 7, False, 5) == svrhmc.Sampler(
        D.Underdamped(0.1, 1.5, 0.3), G.SVRG(3, 7, False, 5)
    )
    assert svrhmc.hmc(0.1, 1.5, 0.3) == svrhmc.Sampler(D.Underdamped(0.1, 1.5, 0.3), G.Full())
    assert svrhmc.sg_hmc(0.1, 1.5, 0.3, 4, False) == svrhmc.Sampler(D.Underdamped(0.1, 1.5, 0.3), G.Minibatch(4, False))
    assert svrhmc.svr_hmc(0.01) == svrhmc.Sampler(D.Underdamped(0.01, 2.0, None), G.SVRG(1, None))
    assert svrhmc.svrg_ubu(0.1, 1.5, 0.3, 3, 7, False) == svrhmc.Sampler(D.UBU(0.1, 1.5, 0.3), G.SVRG(3, 7, False))
    assert svrhmc.sgld_cv(0.1, 3, False) == svrhmc.Sampler(D.Overdamped(0.1), G.ControlVariate(3, False))
    assert svrhmc.cv_hmc(0.1, 1.5, 0.3, 3, False) == svrhmc.Sampler(
        D.Underdamped(0.1, 1.5, 0.3), G.ControlVariate(3, False)
    )
    assert svrhmc.saga_ld(0.1, 3, False) == svrhmc.Sampler(D.Overdamped(0.1), G.SAGA(3, False))
    assert svrhmc.saga_hmc(0.1, 1.5, 0.3, 3, False) == svrhmc.Sampler(D.Underdamped(0.1, 1.5, 0.3), G.SAGA(3, False))
    assert svrhmc.saga_ubu(0.1, 1.5, 0.3, 3, False) == svrhmc.Sampler(D.UBU(0.1, 1.5, 0.3), G.SAGA(3, False))
    assert len({svrhmc.hmc(0.1), svrhmc.hmc(0.1), svrhmc.hmc(0.2)}) == 2


@pytest.mark.parametrize("name", NAMED)
def test_a_sampler_prints_as_it_is_written(name):
    sampler = NAMED[name]
    names = {**vars(dynamics), **vars(gradients), "Sampler": svrhmc.Sampler}
    assert eval(repr(sampler), names) == sampler


@pytest.mark.parametrize(("kind", "name"), CELLS)
def test_the_count_is_what_the_gradient_foretells(rows, name, kind):
    target, sampler = every_target(rows)[kind], NAMED[name]
    trace = sampler.run(target, 10, chains=2)
    foretold = [sampler.gradient.evaluations(target, k) for k in range(1, 11)]
    assert trace.passes * target.n == pytest.approx(foretold, rel=1e-14)
    assert trace.gradient_evaluations == foretold[-1]


@pytest.mark.ordinary(lambda kind, name: kind == "logistic" or name in ("svr_hmc", "saga_hmc", "anchored"))
@pytest.mark.parametrize(("kind", "name"), CELLS)
@pytest.mark.parametrize("engine", every_engine())
def test_a_chain_is_the_same_in_any_company(rows, name, kind, engine):
    target, sampler = every_target(rows)[kind], NAMED[name]
    engine = engine if compiled(name, kind) else "reference"
    settings = {"steps": 12, "seed": 9, "start": np.array([0.1, 0.2, -0.3]), "engine": engine}
    together = sampler.run(target, chains=8, **settings)
    halves = [sampler.run(target, chains=part, **settings) for part in (range(4), range(4, 8))]
    alone = [sampler.run(target, chains=[chain], **settings) for chain in range(8)]
    assert equal(engine, together.draws, np.concatenate([t.draws for t in halves]), kind)
    assert equal(engine, together.draws, np.concatenate([t.draws for t in alone]), kind)
    assert equal(engine, together.velocity, np.concatenate([t.velocity for t in alone]), kind)
    other = sampler.run(target, chains=8, **{**settings, "seed": 10})
    assert (other.draws[:, -1] != together.draws[:, -1]).all()


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("dim", [1, 2, 17])
@pytest.mark.parametrize("engine", every_engine())
def test_a_chain_is_the_same_in_any_company_at_odd_sizes(kind, dim, engine):
    rng = np.random.default_rng(dim)
    X = rng.normal(size=(101, dim)) * (rng.random((101, dim)) < 0.5)
    target = svrhmc.targets.logistic(scipy.sparse.csr_matrix(X) if kind == "csr" else X, rng.integers(0, 2, 101))
    for sampler in (svrhmc.hmc(0.3), svrhmc.svr_hmc(0.3, batch_size=19, epoch_length=4)):
        together = sampler.run(target, 30, chains=5, engine=engine).draws
        alone = [sampler.run(target, 30, chains=[chain], engine=engine).draws for chain in range(5)]
        assert equal(engine, together, np.concatenate(alone))


@pytest.mark.parametrize("name", NAMED)
def test_thinning_and_burn_in_only_choose_among_the_states(rows, name):
    target, sampler = every_target(rows)["logistic"], NAMED[name]
    everything = sampler.run(target, 1000, chains=2)
    thinned = sampler.run(target, 1000, chains=2, burn_in=103, thin=7)
    assert thinned.draws.shape == (2, 128, 3)
    assert (thinned.draws == everything.draws[:, 109::7]).all()
    assert (thinned.passes == everything.passes[109::7]).all()
    last = sampler.run(target, 1000, chains=2, keep="last")
    assert (last.draws[:, 0] == everything.draws[:, -1]).all()
    assert last.passes == everything.passes[-1:]
    assert (last.velocity == everything.velocity).all()


def test_blocks_of_chains_do_not_change_the_draws(rows, monkeypatch):
    target = every_target(rows)["linear"]
    at_once = svrhmc.svr_hmc(0.2, batch_size=2).run(target, 20, chains=7, engine="reference").draws
    monkeypatch.setattr(reference, "_BLOCK_ELEMENTS", 40)
    assert (svrhmc.svr_hmc(0.2, batch_size=2).run(target, 20, chains=7, engine="reference").draws == at_once).all()


def test_passes_buy_steps(rows):
    target = every_target(rows)["logistic"]
    trace = svrhmc.svr_hmc(0.1, batch_size=2, epoch_length=5).run(target, passes=10, chains=1)
    assert trace.passes[-1] <= 10 < trace.passes[-1] + (2 + 6) / 6
    assert svrhmc.hmc(0.1).run(target, passes=10, chains=1).draws.shape[1] == 10


@pytest.mark.parametrize("engine", every_engine())
def test_starts(rows, engine):
    target = every_target(rows)["logistic"]

    def run(start):
        sampler = svrhmc.hmc(1e-9, inverse_mass=1e-12)
        return sampler.run(target, 1, chains=2, start=start, engine=engine).draws[:, 0]

    near = 1e-6
    assert run(None) == pytest.approx(np.zeros((2, 3)), abs=near)
    assert run("mode") == pytest.approx(np.tile(target.mode(), (2, 1)), abs=near)
    assert run([1.0, 2.0, 3.0]) == pytest.approx(np.array([[1.0, 2, 3], [1, 2, 3]]), abs=near)
    assert run([[1, 2, 3], [4, 5, 6]]) == pytest.approx(np.array([[1.0, 2, 3], [4, 5, 6]]), abs=near)


@pytest.mark.parametrize("name", NAMED)
def test_a_diverging_run_stops_with_chain_step_and_a_step_size_to_try(name):
    steep = svrhmc.targets.custom(
        4, 1, lambda x, i: np.tile(x**3, (len(i), 1)), potential=lambda x: x[0] ** 4 / 4, smoothness=1.0
    )
    with pytest.raises(svrhmc.DivergenceError, match="diverged at step") as caught:
        NAMED[name].run(steep, 1000, chains=3, start=[[0.0], [100.0], [0.0]])
    assert caught.value.chain == 1
    assert 1 <= caught.value.step < 100
    assert caught.value.step_size == NAMED[name].dynamics.step_size / 4
    assert f"try step_size {caught.value.step_size:.3g}" in str(caught.value)


def test_a_divergence_names_the_chain_by_its_own_number_and_survives_pickling(monkeypatch):
    import pickle

    monkeypatch.setattr(reference, "_BLOCK_ELEMENTS", 1)
    steep = svrhmc.targets.custom(4, 1, lambda x, i: np.tile(x**3, (len(i), 1)), smoothness=1.0)
    with pytest.raises(svrhmc.DivergenceError) as caught:
        svrhmc.hmc(0.2).run(steep, 1000, chains=[30, 20, 10], start=[[0.0], [0.0], [100.0]])
    assert caught.value.chain == 10
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.chain, again.step) == (str(caught.value), 10, caught.value.step)


def test_a_gradient_that_is_not_finite_is_the_targets_fault():
    broken = svrhmc.targets.custom(
        4, 1, lambda x, i: np.where(x > 0.05, np.nan, x) + np.zeros((len(i), 1)), smoothness=1.0
    )
    with pytest.raises(ValueError, match="the gradient must be finite; got nan or inf: chain 0, step"):
        svrhmc.hmc(0.2).run(broken, 1000, chains=1)


def test_numpy_numbers_are_as_good_as_plain_ones(rows, tmp_path):
    target = every_target(rows)["linear"]
    plain = svrhmc.svr_hmc(0.1, batch_size=2).run(target, 400, seed=7, burn_in=200, thin=100)
    numpy = svrhmc.svr_hmc(np.float32(0.1), batch_size=np.uint8(2)).run(
        target, np.int16(400), seed=np.int32(7), burn_in=np.uint8(200), thin=np.uint8(100), chains=np.int8(4)
    )
    assert numpy.draws.shape == plain.draws.shape
    numpy.save(tmp_path / "trace")
    assert svrhmc.Trace.load(tmp_path / "trace").seed == 7


def test_passes_are_not_lost_to_rounding():
    target = svrhmc.targets.synthetic(100, 2)
    assert svrhmc.sg_hmc(0.1).run(target, passes=0.29, chains=1).draws.shape[1] == 29


def test_a_fresh_start_in_the_middle_of_a_law_is_refused(rows):
    """The z-scores used everywhere have power: moments of the posterior itself are refused at this step size."""
    target = every_target(rows)["gaussian"]
    law = target.closed_form
    draws = svrhmc.hmc(0.5).run(target, 300, chains=20_000, keep="last").draws[:, 0]
    assert np.abs(z_scores(draws, law.mean, law.covariance)).max() > 2 * LIMIT


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1; got 0."),
        ({}, "steps and passes must be given one at a time; got steps=None, passes=None."),
        ({"steps": 5, "passes": 5}, "steps and passes must be given one at a time; got steps=5, passes=5."),
        ({"passes": -1}, "passes must be a positive number; got -1."),
        ({"passes": 0.5}, "passes must be at least 1.33333; got 0.5: that is what the first step costs."),
        ({"steps": 5, "chains": 0}, "chains must be a whole number from 1 to"),
        (
            {"steps": 5, "chains": [1, 1]},
            "chains must be a number of chains or a list of distinct chain numbers; got [1, 1].",
        ),
        (
            {"steps": 5, "chains": 2.5},
            "chains must be a number of chains or a list of distinct chain numbers; got 2.5.",
        ),
        (
            {"steps": 5, "progress": "no"},
            "progress must be True, False, None or a function of (done, total); got 'no'.",
        ),
        ({"steps": 5, "chains": []}, "chains must be a number of chains or a list of distinct chain numbers; got []."),
        ({"steps": 5, "seed": -3}, "seed must be a whole number from 0 to 18446744073709551615; got -3."),
        ({"steps": 5, "seed": 1.5}, "seed must be a whole number from 0 to 18446744073709551615; got 1.5."),
        ({"steps": 5, "burn_in": 5}, "burn_in must be a whole number from 0 to 4; got 5: the run has 5 steps."),
        (
            {"steps": 5, "burn_in": 3, "thin": 3},
            "thin must be a whole number from 1 to 2; got 3: 2 steps follow the burn-in.",
        ),
        ({"steps": 5, "keep": "first"}, "keep must be one of 'all', 'last'; got 'first'."),
        ({"steps": 5, "engine": "gpu"}, "engine must be one of 'auto', 'numba', 'reference', 'jax'; got 'gpu'."),
        ({"steps": 5, "threads": 0}, "threads must be a whole number of at least 1; got 0."),
        ({"steps": 5, "start": "zero"}, "start must be one of 'mode'; got 'zero'."),
        ({"steps": 5, "start": [1.0]}, "start must be an array of shape (3,); got shape (1,)."),
        ({"steps": 5, "start": [[1.0, 2, 3]]}, "start must be an array of shape (4, 3); got shape (1, 3)."),
        ({"steps": 5, "start": [1.0, np.nan, 3]}, "start must be finite everywhere; got nan at row 1."),
    ],
)
def test_bad_arguments_of_run(rows, settings, message):
    with pytest.raises(ValueError, match="must be") as caught:
        svrhmc.svr_hmc(0.1, batch_size=2).run(every_target(rows)["logistic"], **settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: svrhmc.hmc(0.1).run("posterior", 5), "target must be one of svrhmc.targets, such as logistic(X, y); got <class 'str'>."),
        (lambda t: svrhmc.Sampler(0.1, gradients.Full()), "dynamics must be one of svrhmc.dynamics, such as Underdamped(0.01); got 0.1."),
        (lambda t: svrhmc.Sampler(dynamics.Overdamped(1), "full"), "gradient must be one of svrhmc.gradients, such as SVRG(); got 'full'."),
        (lambda t: svrhmc.sgld(0.1, 7, replacement=False).run(t, 5), "batch_size must be at most n = 6 without replacement; got 7."),
    ],
)  # fmt: skip
def test_bad_pairs(rows, make, message):
    with pytest.raises(ValueError, match="must be") as caught:
        make(every_target(rows)["logistic"])
    assert str(caught.value) == message
