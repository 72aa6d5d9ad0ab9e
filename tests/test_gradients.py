from itertools import combinations, product

import numpy as np
import pytest

import svrhmc
from conftest import every_engine, every_target
from simulated_data import events
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.dynamics import BAOAB, UBU
from svrhmc.gradients import SAGA, SVRG, ControlVariate, Full, Minibatch, Recipe

TARGETS = [
    "logistic", "logistic-csr", "logistic-float32", "linear", "linear-csr", "gaussian", "gaussian-many", "custom",
]  # fmt: skip
N = 6
X0, X1 = np.array([[0.3, -1.0, 0.5]]), np.array([[-0.2, 0.4, 1.1]])


class Scripted(Stream):
    """A stream whose batches are given."""

    def script(self, batch, snapshot=None):
        object.__setattr__(self, "batches", {Purpose.BATCH: batch, Purpose.SNAPSHOT: snapshot})
        return self

    def indices(self, step, count, bound, replacement, purpose=Purpose.BATCH):
        return np.array([self.batches[purpose]])


def all_batches(size, replacement):
    return list(product(range(N), repeat=size)) if replacement else list(combinations(range(N), size))


def estimates(gradient, target, x, before, batches):
    for batch in batches:
        estimator = gradient.estimator(target, Scripted(0, np.array([0])).script(batch))
        if before is not None:
            estimator(before, 0)  # takes the snapshot here
        yield estimator(x, 0 if before is None else 1)[0]


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("size", [1, 3])
def test_the_mean_over_all_batches_is_the_gradient(rows, name, size, replacement):
    target = every_target(rows)[name]
    batches = all_batches(size, replacement)
    minibatch = list(estimates(Minibatch(size, replacement), target, X1, None, batches))
    reduced = list(estimates(SVRG(size, 2, replacement), target, X1, X0, batches))
    true = target.gradient(X1[0])
    assert np.mean(minibatch, axis=0) == pytest.approx(true, rel=1e-12, abs=1e-12)
    assert np.mean(reduced, axis=0) == pytest.approx(true, rel=1e-12, abs=1e-12)
    if name != "gaussian" and name != "custom":  # those two share one S: there variance reduction is perfect
        assert np.std(reduced, axis=0).max() > 1e-3
    assert np.std(minibatch, axis=0).max() > 1e-3


@pytest.mark.parametrize("name", TARGETS)
def test_an_estimated_snapshot_is_unbiased_too(rows, name):
    target = every_target(rows)[name]
    gradient = SVRG(1, 2, replacement=False, snapshot_size=2)
    values = []
    for snapshot in all_batches(2, False):
        for batch in all_batches(1, False):
            estimator = gradient.estimator(target, Scripted(0, np.array([0])).script(batch, snapshot))
            estimator(X0, 0)
            values.append(estimator(X1, 1)[0])
    assert np.mean(values, axis=0) == pytest.approx(target.gradient(X1[0]), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", TARGETS)
def test_svrg_is_exact_at_its_snapshot_and_reduces_to_full(rows, name):
    target = every_target(rows)[name]
    stream = Stream(4, np.array([0]))
    true = target.gradient(X1[0])
    at_snapshot = SVRG(2, 5).estimator(target, stream)(X1, 0)[0]
    every_step = SVRG(1, 1).estimator(target, stream)
    every_step(X0, 0)
    whole = SVRG(N, 9, replacement=False).estimator(target, stream)
    whole(X0, 0)
    everything = Minibatch(N, replacement=False).estimator(target, stream)
    for got in (at_snapshot, every_step(X1, 1)[0], whole(X1, 1)[0], everything(X1, 1)[0], target.gradients(X1)[0]):
        assert got == pytest.approx(true, rel=1e-12, abs=1e-12)


def test_remembered_slopes_equal_slopes_computed_again(rows):
    target = every_target(rows)["logistic"]
    stream = Stream(0, np.arange(3))
    kept = SVRG(2, 4).estimator(target, stream)
    x = stream.normals(9, 3)
    kept(x, 0)
    y = x + 0.1
    batch = stream.indices(1, 2, N, True)
    again = target.parts(y, batch) - target.parts(x, batch)
    by_hand = target.gradients(x) - target.prior_gradient(x) + target.prior_gradient(y) + target.assemble(again, batch)
    assert kept(y, 1) == pytest.approx(by_hand, rel=1e-13)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("logistic", 10 * 1000 + 500 * 10), ("custom", 10 * 1000 + 2 * 500 * 10)],
)
def test_counts_of_the_issue(kind, expected):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    if kind == "logistic":
        target = svrhmc.targets.logistic(X, rng.integers(0, 2, 1000))
    else:
        target = svrhmc.targets.custom(1000, 2, lambda x, i: x - X[i], smoothness=1.0)
    trace = svrhmc.svr_hmc(0.01, batch_size=10, epoch_length=50).run(target, 500, chains=2)
    assert trace.gradient_evaluations == expected
    assert trace.passes[-1] * 1000 == pytest.approx(expected, rel=1e-14)
    assert trace.passes[0] == pytest.approx((1000 + (10 if kind == "logistic" else 20)) / 1000)


@pytest.mark.parametrize("name", ["linear", "gaussian"])
@pytest.mark.parametrize(
    "gradient",
    [
        Full(),
        Minibatch(2),
        SVRG(2),
        SVRG(1, 4),
        SVRG(1, 4, snapshot_size=3),
        SVRG(4, 1, replacement=False),
        SAGA(2),
        ControlVariate(2),
    ],
)
def test_the_count_foretold_is_the_count_made(rows, name, gradient):
    target = every_target(rows)[name]
    estimator = gradient.estimator(target, Stream(0, np.arange(2)))
    for step in range(11):
        assert estimator.evaluations == gradient.evaluations(target, step)
        estimator(np.zeros((2, 3)), step)
    for budget in (0.5, 1, 7, 40, 41.5, 100):
        steps = gradient.recipe(target).steps_within(budget)
        assert gradient.evaluations(target, steps) <= budget < gradient.evaluations(target, steps + 1)


class Sizes:
    """What a recipe asks of a target."""

    def __init__(self, n, scalar_parts=True):
        self.n, self.lasting_parts = n, scalar_parts


def test_epoch_length_defaults_to_one_pass_of_batches():
    assert [SVRG(size).recipe(Sizes(100)).period for size in (1, 7, 100, 300)] == [100, 14, 1, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Minibatch(0), "batch_size must be a whole number from 1 to 268435456; got 0."),
        (lambda: Minibatch(2.5), "batch_size must be a whole number from 1 to 268435456; got 2.5."),
        (lambda: Minibatch(2, 1), "replacement must be True or False; got 1."),
        (lambda: SVRG(1, 0), "epoch_length must be a whole number of at least 1; got 0."),
        (lambda: SVRG(True), "batch_size must be a whole number from 1 to 268435456; got True."),
        (lambda: SVRG(1, snapshot_size=0), "snapshot_size must be a whole number from 1 to 268435456; got 0."),
        (lambda: Minibatch(7, False).recipe(Sizes(6)), "batch_size must be at most n = 6 without replacement; got 7."),
        (
            lambda: SVRG(2, 1, False, snapshot_size=7).recipe(Sizes(6)),
            "snapshot_size must be at most n = 6 without replacement; got 7.",
        ),
        (
            lambda: Minibatch(1).recipe(Sizes(2**32 + 1)).check(),
            "n must be at most 4294967296; got 4294967297: row numbers are drawn from 32-bit words.",
        ),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match="must be") as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", ["logistic", "logistic-csr", "linear", "linear-csr"])
@pytest.mark.parametrize("order", [1, 2])
def test_control_variates_are_unbiased_and_vanish_at_the_mode(targets, kind, order):
    target, gradient = targets[kind], ControlVariate(1, order=order)
    x = np.array([[0.4, -0.3, 0.9]])
    every = []
    for row in range(target.n):
        estimator = gradient.estimator(target, Scripted(0, np.array([0])).script([row]))
        every.append(estimator(x, 0)[0])
        assert estimator(target.mode()[None, :], 1)[0] == pytest.approx(0, abs=1e-7)  # ∇f(x̂) = 0, with no noise
    assert np.mean(every, axis=0) == pytest.approx(target.gradients(x)[0], rel=1e-12, abs=1e-13)


@pytest.mark.ordinary(lambda kind, engine: (kind, engine) == ("linear", "reference"))
@pytest.mark.parametrize("engine", every_engine())
@pytest.mark.parametrize("kind", ["linear", "linear-csr"])
@pytest.mark.parametrize("replacement", [True, False])
def test_second_order_control_variates_follow_the_full_gradient_on_a_quadratic(targets, kind, engine, replacement):
    target = targets[kind]
    settings = {"chains": 3, "seed": 4, "engine": engine}
    full = svrhmc.Sampler(UBU(0.3), Full()).run(target, 300, **settings).draws
    second = svrhmc.Sampler(UBU(0.3), ControlVariate(2, replacement, order=2)).run(target, 300, **settings).draws
    first = svrhmc.Sampler(UBU(0.3), ControlVariate(2, replacement)).run(target, 300, **settings).draws
    assert second == pytest.approx(full, rel=1e-10, abs=1e-12)
    assert np.abs(first - full).max() > 0.01


def test_noise_falls_with_the_order_of_the_control_variate():
    """Per coordinate, in posterior scale: of the order n, d and d²/n (times a small factor)."""
    rng = np.random.default_rng(0)
    n, d = 5000, 4
    X = rng.normal(size=(n, d))
    target = svrhmc.targets.logistic(X, events(rng, X @ np.full(d, 0.5)))
    posterior = target.laplace()
    root = np.linalg.cholesky(posterior.covariance)
    chains = 4000
    x = posterior.mean + rng.normal(size=(chains, d)) @ root.T
    exact, noise = target.gradients(x), []
    for gradient in (Minibatch(1), ControlVariate(1), ControlVariate(1, order=2)):
        g = gradient.estimator(target, Stream(0, np.arange(chains)))(x, 0)
        noise.append(float((((g - exact) @ root) ** 2).mean()))
    assert noise[0] / n == pytest.approx(1, rel=0.2)
    assert d / 2 < noise[1] < 3 * d
    assert noise[2] < 5 * d**2 / n


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        ("logistic", 1), ("logistic", 2), ("logistic-csr", 1), ("logistic-float32", 1), ("linear", 1),
        *(pytest.param(*cell, marks=pytest.mark.slow)  # compiled for few others
          for cell in [("logistic-csr", 2), ("logistic-float32", 2), ("linear", 2), ("linear-csr", 1), ("linear-csr", 2)]),
    ],
)  # fmt: skip
def test_engines_agree_on_control_variates(targets, kind, order):
    sampler = svrhmc.Sampler(BAOAB(0.3, 1.0), ControlVariate(3, order=order))
    near = {"rel": 1e-4, "abs": 1e-4} if kind == "logistic-float32" else {"rel": 1e-10, "abs": 1e-12}
    one, two, three = (
        sampler.run(targets[kind], 300, chains=4, seed=3, engine=engine, threads=threads)
        for engine, threads in (("reference", None), ("numba", 1), ("numba", 2))
    )
    assert one.draws == pytest.approx(two.draws, **near)
    assert (two.draws == three.draws).all()
    assert (one.passes == two.passes).all()


def test_a_second_order_needs_a_linear_predictor(targets):
    sampler = svrhmc.Sampler(UBU(0.1), ControlVariate(1, order=2))
    for kind in ("gaussian", "custom"):
        with pytest.raises(ValueError, match="a model with a linear predictor for a gradient of order 2"):
            sampler.run(targets[kind], 3)
    with pytest.raises(ValueError, match="order must be a whole number from 1 to 2; got 3"):
        ControlVariate(order=3)


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_rows_of_a_gaussian_are_not_drawn_by_importance(engine):
    sampler = svrhmc.Sampler(svrhmc.dynamics.Underdamped(0.1), svrhmc.gradients.SVRG(2, 3, importance=True))
    with pytest.raises(ValueError, match="a model with a linear predictor for rows drawn by importance"):
        sampler.run(svrhmc.targets.synthetic(20, 3), 5, chains=2, engine=engine)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 0, "reference": "mode"}, "batch must be at least 1 for a gradient with a reference; got 0."),
        ({"batch": 5, "reference": "table"}, "remembers must be True for a table; got False."),
        (
            {"batch": 5, "reference": "table", "remembers": True, "period": 10},
            "reference must be 'snapshot' where there is a period or snapshot_rows; got 'table'.",
        ),
        (
            {"batch": 5, "reference": "snapshot", "period": 9, "snapshot_rows": 8, "remembers": True},
            "remembers must be False without a reference that all components have; got True.",
        ),
        ({"batch": 5, "order": 2}, "order must be 1 for a gradient whose reference is not the mode; got 2."),
        ({"batch": 5, "draw": "oddly"}, "draw must be one of 'evenly', 'distinct', 'weighted'; got 'oddly'."),
    ],
)
def test_recipes_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match="must be") as caught:
        Recipe(20, **settings)
    assert str(caught.value) == message


def test_what_quadratics_cannot_remember_in_compiled_code_runs_on_the_reference():
    class Kept(ControlVariate):
        def recipe(self, target):
            return Recipe(target.n, 3, "evenly", "mode", remembers=True)

    target = svrhmc.targets.synthetic(20, 2, spread=0.5)
    assert svrhmc.Sampler(svrhmc.dynamics.UBU(0.1), Kept(3)).run(target, 5).engine == "reference"
