"""Targets in whitened variables are the same targets, in both engines, and give back the user's coordinates."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

from conftest import LIMIT, every_engine
from hand_written_laws import z_scores
from svrhmc import Sampler, targets
from svrhmc.core.randomness import Stream
from svrhmc.dynamics import BAOAB, UBU, Anchored, Underdamped
from svrhmc.gradients import SAGA, SVRG, ControlVariate, Full, Minibatch
from svrhmc.whitening import (
    DenseWhitening,
    LowRankWhitening,
    WhitenedComponents,
    WhitenedRows,
    dense_whitening,
    whitened,
    whitening,
)
from svrhmc.whitening import at_mode as made
from svrhmc.whitening.curvature import curvature_at_mode

KINDS = ("dense", "diagonal", "low rank")
ROWS = ("dense", "csr", "float32")
DIM = 5


def make(rows="dense", loss="logistic", n=60, seed=3):
    """Columns of very different sizes that depend on each other, a prior of its own for each."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, DIM)) @ (np.eye(DIM) + 0.5 * rng.normal(size=(DIM, DIM))) * [1.0, 0.3, 2.0, 1.0, 0.1]
    X[rng.random(X.shape) < 0.2] = 0
    t = X @ [1.0, -2.0, 0.5, 0.3, 1.0]
    X = {"dense": X, "csr": scipy.sparse.csr_array(X), "float32": X.astype(np.float32)}[rows]
    prior = ([0.5, 1.0, 2.0, 0.7, 1.5], [0.1, -0.2, 0.3, 0.0, 1.0])
    if loss == "linear":
        return targets.linear(X, t + rng.normal(size=n), 0.5, *prior)
    return targets.logistic(X, t + rng.logistic(size=n) > 0, *prior)


def matrix(how):
    """W, column by column."""
    return how.displace(np.eye(DIM)).T


def dense_rows(target):
    X = target.rows.X
    return np.asarray(X.toarray() if scipy.sparse.issparse(X) else X, np.float64)


def build(target, kind):
    return whitening(target, kind, rank=2 if kind == "low rank" else None)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_map_is_that_of_its_matrix(kind, rows):
    target = make(rows)
    how, rng = build(target, kind), np.random.default_rng(0)
    W, H = matrix(how), target.hessian(target.mode())
    assert isinstance(how, DenseWhitening if kind == "dense" else LowRankWhitening)
    assert how.centre == pytest.approx(target.mode(), abs=1e-12)
    z, x, g = rng.normal(size=(3, 2, 3, DIM))
    assert how.displace(z) == pytest.approx(z @ W.T, abs=1e-12)
    assert how.out(z) == pytest.approx(target.mode() + z @ W.T, abs=1e-12)
    assert how.pull(g) == pytest.approx(g @ W, abs=1e-11)
    assert how.into(x) == pytest.approx((x - target.mode()) @ np.linalg.inv(W).T, abs=1e-10)
    assert how.into(how.out(z[0, 0])) == pytest.approx(z[0, 0], abs=1e-12)
    assert how.variances == pytest.approx(np.diag(W @ W.T), rel=1e-12)
    assert how.out(z[0])[1] == pytest.approx(how.out(z[0, 1]), abs=0)
    loose = 1e-5 if rows == "float32" else 1e-11
    assert target.rows.lengths(how.norms) == pytest.approx(np.linalg.norm(dense_rows(target) @ W, axis=1), rel=loose)
    assert target.row_lengths(how) is target.row_lengths(how)
    white = W.T @ H @ W
    if kind == "dense":
        assert white == pytest.approx(np.eye(DIM), abs=1e-10)
    if kind == "diagonal":
        assert matrix(how) == pytest.approx(np.diag(np.diag(H) ** -0.5), abs=1e-5 if rows == "float32" else 1e-12)
        assert np.diag(white) == pytest.approx(np.ones(DIM), abs=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_low_rank_puts_the_farthest_eigenvalues_right_and_leaves_the_rest(rank):
    target = make()
    H = target.hessian(target.mode())
    D = np.diag(np.diag(H) ** -0.5)
    before = np.linalg.eigvalsh(D @ H @ D)
    W = matrix(whitening(target, "low rank", rank=rank))
    far = np.argsort(-np.abs(np.log(before)))[:rank]
    after = np.concatenate([np.delete(before, far), np.ones(rank)])
    assert np.linalg.eigvalsh(W.T @ H @ W) == pytest.approx(np.sort(after), abs=1e-10)
    assert np.ptp(before) > 1


def test_low_rank_by_products_is_that_by_the_matrix():
    """Many columns: Lanczos, whose pairs are good to 1e-3; the variables are exact for whatever it finds."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 60)) * np.linspace(0.5, 2, 60)
    X[:, 1:6] += 4 * X[:, :1]
    target = targets.logistic(X, X[:, 0] + rng.logistic(size=300) > 0)
    H = target.hessian(target.mode())
    W, D = (
        whitening(target, kind, **rank).displace(np.eye(60)).T
        for kind, rank in [("low rank", {"rank": 8}), ("diagonal", {})]
    )
    condition = [np.linalg.cond(V.T @ H @ V) for V in (W, D)]
    values = np.linalg.eigvalsh(D.T @ H @ D)
    far = np.argsort(-np.abs(np.log(values)))[:8]
    left = np.append(np.delete(values, far), 1.0)
    assert condition[0] < 1.05 * left.max() / left.min()
    assert condition[0] < condition[1] / 3


@pytest.mark.parametrize("loss", ["logistic", "linear"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_target_pulled_back(kind, rows, loss):
    target = make(rows, loss)
    space = whitened(target, build(target, kind))
    assert isinstance(space, WhitenedRows)
    assert (space.n, space.dim, space.row_size, space.scalar_parts) == (60, DIM, DIM, True)
    W, z = matrix(space.whitening), np.random.default_rng(1).normal(size=(4, DIM))
    x = target.mode() + z @ W.T
    exact = target.gradients(x) @ W
    assert space.gradients(z) == pytest.approx(exact, abs=1e-10)
    loose = 1e-4 if rows == "float32" else 1e-9  # predictors are kept in the rows' precision
    assert space.prior_gradient(z) + space.assemble(space.parts(z, None), None) == pytest.approx(exact, abs=loose)
    assert space.component_gradients(z[0], np.arange(60)).mean(axis=0) == pytest.approx(exact[0], abs=loose)
    assert space.potentials(z) == pytest.approx(target.potentials(x), abs=1e-10)
    assert space.mode() == pytest.approx(np.zeros(DIM), abs=1e-6)
    step = 1e-5 * np.eye(DIM)
    numeric = (space.potentials(z[:1] + step) - space.potentials(z[:1] - step)) / 2e-5
    assert numeric == pytest.approx(exact[0], abs=1e-6)
    assert repr(space) == f"whitened({target!r})"


@pytest.mark.parametrize("engine", every_engine())
def test_a_centre_beside_the_mode_is_as_good(engine):
    target = make()
    centre = target.mode() + 0.3
    space = whitened(target, dense_whitening(centre, target.hessian(centre)))
    z = np.random.default_rng(1).normal(size=(4, DIM))
    exact = target.gradients(space.out(z)) @ matrix(space.whitening)
    assert np.abs(space.force).max() > 0.5
    assert space.prior_gradient(z) + space.assemble(space.parts(z, None), None) == pytest.approx(exact, abs=1e-9)
    for gradient in (Full(), Minibatch(4), SVRG(4, 7)):
        sampler = Sampler(Anchored(0.4), gradient)
        run, reference = (sampler.run(space, 200, chains=2, engine=name).draws for name in (engine, "reference"))
        assert run == pytest.approx(reference, abs=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_curvature_is_within_its_bounds(kind):
    target = make()
    space = whitened(target, build(target, kind))
    W, A = matrix(space.whitening), dense_rows(target)
    most = W.T @ (A.T @ A / 4 + np.diag(target.prior_precision)) @ W
    assert space.smoothness == pytest.approx(np.linalg.eigvalsh(most)[-1], rel=1e-8)
    low, high = space.curvature_range(bound=True)
    for z in np.random.default_rng(2).normal(size=(20, DIM)) * 3:
        spectrum = np.linalg.eigvalsh(W.T @ target.hessian(space.out(z)) @ W)
        assert low * (1 - 1e-9) <= spectrum[0] <= spectrum[-1] <= high * (1 + 1e-9)
    met = np.linalg.eigvalsh(W.T @ target.hessian(target.mode()) @ W)
    assert space.curvature_range(bound=False)[1] == pytest.approx(met[-1], rel=1e-8)
    each = [
        60 / 4 * np.linalg.norm(W.T @ a) ** 2
        + (1 if kind == "dense" else np.linalg.norm(W.T * target.prior_precision @ W, 2))
        for a in A
    ]
    assert space.component_smoothness == pytest.approx(max(each), rel=1e-8)
    assert (low > 0) == (kind == "diagonal")


def test_a_step_that_is_too_long_in_these_variables_is_refused():
    target = make()
    with pytest.raises(ValueError, match=r"step_size must be a positive number below 2 for BAOAB.* up to 1; got 2.5"):
        Sampler(BAOAB(2.5, 1.0, 1.0), Full()).run(whitened(target), 5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_closed_form_in_z(kind):
    target = make(loss="linear")
    space = whitened(target, build(target, kind))
    W, law = np.linalg.inv(matrix(space.whitening)), target.closed_form
    assert space.closed_form.mean == pytest.approx(np.zeros(DIM), abs=1e-9)
    assert space.closed_form.covariance == pytest.approx(W @ law.covariance @ W.T, abs=1e-9)
    assert space.laplace().covariance == pytest.approx(space.closed_form.covariance, abs=1e-9)
    assert whitened(make(), kind).closed_form is None


@pytest.mark.parametrize("kind", KINDS)
def test_starts_and_traces_are_in_the_users_coordinates(kind):
    target = make()
    space = whitened(target, build(target, kind))
    still = Sampler(Underdamped(1e-9, 1.0, 1e-12), Full())
    for start in ([1.0, 2.0, -1.0, 0.5, 3.0], np.random.default_rng(0).normal(size=(2, DIM))):
        trace = still.run(space, 1, chains=2, start=start)
        assert trace.draws[:, 0] == pytest.approx(np.broadcast_to(start, (2, DIM)), abs=1e-6)
    for start in ("mode", None):
        assert still.run(space, 1, chains=2, start=start).draws[1, 0] == pytest.approx(target.mode(), abs=1e-6)
    one = Sampler(BAOAB(0.5, 1.0, 1.0), Full()).run(space, 1, chains=3, seed=5, start="mode")
    decay = np.exp(-0.5)
    moved = 0.25 * np.sqrt(1 - decay**2) * Stream(5, np.arange(3)).normals(0, DIM)
    assert one.draws[:, 0] == pytest.approx(target.mode() + moved @ matrix(space.whitening).T, abs=1e-9)


GRADIENTS = [
    Full(),
    Minibatch(4),
    Minibatch(4, replacement=False),
    Minibatch(4, importance=True),
    SVRG(4, 7),
    SVRG(4, 7, importance=True),
    SVRG(4, 7, snapshot_size=20),
    SAGA(2),
    SAGA(2, importance=True),
    ControlVariate(4),
    ControlVariate(4, importance=True),
]


def remembers_nothing(gradient):
    """Whether the loop without a memory runs it, which is compiled by itself."""
    return isinstance(gradient, Full | Minibatch)


@pytest.mark.ordinary(
    lambda kind, rows, gradient: (
        (kind, rows) == ("dense", "dense")
        or (remembers_nothing(gradient) and (rows == "dense" or (kind, rows) == ("dense", "float32")))
    )
)
@pytest.mark.parametrize("gradient", GRADIENTS, ids=str)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_engines_make_the_same_path(kind, rows, gradient):
    target = make(rows)
    space = whitened(target, build(target, kind))
    sampler = Sampler(Anchored(0.4) if kind == "dense" else UBU(0.3, 1.0, 0.5), gradient)
    reference, compiled = (sampler.run(space, 200, chains=2, seed=4, engine=name) for name in ("reference", "numba"))
    assert [reference.engine, compiled.engine] == ["reference", "numba"]
    away = np.abs(reference.draws - compiled.draws) / np.sqrt(space.whitening.variances)
    assert away.max() < (5e-3 if rows == "float32" else 1e-10)
    assert (reference.passes == compiled.passes).all()


def test_second_order_control_variates_of_a_dense_whitening_are_its_minibatches():
    space = whitened(make())
    one, two = (
        Sampler(Anchored(0.5), gradient).run(space, 100, engine=engine).draws
        for gradient in (Minibatch(4), ControlVariate(4, order=2))
        for engine in ("reference",)
    )
    assert one == pytest.approx(two, abs=1e-9)
    with pytest.raises(ValueError, match="target must be a model with a linear predictor for a gradient of order 2"):
        Sampler(UBU(0.1, 1.0, 0.5), ControlVariate(4, order=2)).run(whitened(make(), "diagonal"), 5, engine="reference")


@pytest.mark.ordinary(remembers_nothing)
@pytest.mark.parametrize("gradient", [Full(), Minibatch(8, importance=True), SVRG(8, 7), SAGA(8)], ids=str)
def test_float32_rows_follow_their_float64_twins(gradient):
    single = make("float32")
    double = targets.logistic(dense_rows(single), single.y, single.prior_precision, single.prior_mean)
    a, b = (
        Sampler(Anchored(0.5), gradient).run(whitened(t), 400, chains=2, engine="numba").draws for t in (single, double)
    )
    assert (np.abs(a - b) / b.std(axis=(0, 1))).max() < 5e-3


def component_noise(target, space, z, P, order):
    """Covariance of one row's estimate at z, drawn with probabilities P, from the losses written out."""
    W, A, n = matrix(space.whitening), dense_rows(target), target.n
    t0, t = A @ target.mode(), A @ space.out(z)
    p0, p = 1 / (1 + np.exp(-t0)), 1 / (1 + np.exp(-t))
    rest = p - p0 - (order == 2) * p0 * (1 - p0) * (t - t0)
    each = (n * rest / (n * P))[:, None] * (A @ W)
    mean = P @ each
    return (each * P[:, None]).T @ each - np.outer(mean, mean)


@pytest.mark.parametrize(("kind", "order"), [("dense", 2), ("diagonal", 1), ("low rank", 1)])
@pytest.mark.parametrize("importance", [False, True])
def test_minibatches_of_whitened_rows_have_the_noise_of_control_variates(kind, order, importance):
    target = make()
    space = whitened(target, build(target, kind))
    z, count, B = np.array([0.8, -1.0, 0.5, 1.2, -0.3]), 20_000, 3
    P = space.row_table[2] if importance else np.full(60, 1 / 60)
    stream = Stream(8, np.arange(count))
    g = Minibatch(B, importance=importance).estimator(space, stream)(np.tile(z, (count, 1)), 0)
    exact = space.gradients(z[None, :])[0]
    noise = component_noise(target, space, z, P, order) / B
    assert np.abs(z_scores(g, exact, noise)).max() < LIMIT
    assert np.abs(z_scores(g, exact, component_noise(target, space, z, P, 3 - order) / B)).max() > 2 * LIMIT
    if not importance:
        user = ControlVariate(B, order=order).estimator(target, stream)(np.tile(space.out(z), (count, 1)), 0)
        assert g == pytest.approx(space.whitening.pull(user), abs=1e-8)


def test_importance_is_the_size_of_a_third_order_term():
    target = make()
    space = whitened(target)
    A, W = dense_rows(target), matrix(space.whitening)
    p = 1 / (1 + np.exp(-A @ target.mode()))
    weight = np.maximum(p * (1 - p), 0.02) * np.linalg.norm(A @ W, axis=1) ** 3
    assert space.importance() == pytest.approx(0.9 * weight / weight.sum() + 0.1 / 60, rel=1e-9)


def last_states(target, dynamics):
    return Sampler(dynamics, Full()).run(whitened(target), 25, chains=20_000, seed=6, keep="last").draws[:, 0]


@pytest.mark.slow
def test_anchored_draws_a_linear_posterior_exactly_at_any_step():
    """Independent chains, a state each, of the law N(x̂, H⁻¹); of UBU, which is biased, as a control."""
    target = make(loss="linear")
    law = target.closed_form
    for step in (1.0, 3.0):
        draws = last_states(target, Anchored(step))
        assert np.abs(z_scores(draws, law.mean, law.covariance)).max() < LIMIT
    assert np.abs(z_scores(draws, law.mean, 1.1 * law.covariance)).max() > 1.5 * LIMIT
    assert np.abs(z_scores(last_states(target, UBU(1.0, 1.0, 1.0)), law.mean, law.covariance)).max() > 2 * LIMIT


@pytest.mark.parametrize("name", ["custom", "gaussian", "gaussian-many"])
def test_any_components_can_be_whitened(targets_of_three, name):
    target = targets_of_three[name]
    step = 1e-5 * np.eye(3)
    mode = target.mode()
    H = np.array([(target.gradient(mode + s) - target.gradient(mode - s)) / 2e-5 for s in step])
    how = dense_whitening(mode, (H + H.T) / 2)
    space = whitened(target, how)
    assert isinstance(space, WhitenedComponents)
    z = np.random.default_rng(3).normal(size=(2, 3))
    W = how.displace(np.eye(3)).T
    exact = target.gradients(space.out(z)) @ W
    assert exact == pytest.approx(z, abs=1e-6)  # these f are quadratic
    assert space.gradients(z) == pytest.approx(exact, abs=1e-10)
    assert space.prior_gradient(z) + space.assemble(space.parts(z, None), None) == pytest.approx(exact, abs=1e-10)
    assert space.component_gradients(z[0], [2, 4]) == pytest.approx(
        target.component_gradients(space.out(z[0]), [2, 4]) @ W, abs=1e-10
    )
    assert space.curvature_range(bound=True) is None
    assert space.convexity == 0
    sampler = Sampler(UBU(0.5, 1.0, 1.0), ControlVariate(2))
    trace = sampler.run(space, 30, chains=2)
    assert trace.engine == "reference"
    assert (trace.passes == sampler.run(target, 30, chains=2).passes).all()
    for constant in ("smoothness", "component_smoothness"):
        with pytest.raises(
            ValueError, match="inverse_mass must be given; got None: the smoothness in whitened variables is not known"
        ):
            getattr(space, constant)


@pytest.fixture
def targets_of_three(rows):
    from conftest import every_target

    return every_target(rows)


def test_whitening_refuses_what_it_cannot_do(targets_of_three):
    target = make()
    for call, message in [
        (
            lambda: whitening(target, "full"),
            "kind must be one of 'dense', 'diagonal', 'low rank', 'sparse'; got 'full'.",
        ),
        (
            lambda: whitened(target, "none"),
            "kind must be one of 'dense', 'diagonal', 'low rank', 'sparse'; got 'none'.",
        ),
        (lambda: whitening(target, "low rank", rank=5), "rank must be a whole number from 1 to 4; got 5."),
        (lambda: whitening(target, "low rank", rank=0), "rank must be a whole number from 1 to 4; got 0."),
        (
            lambda: whitened(targets_of_three["custom"]),
            "how must be a Whitening for Custom(n=6, dim=3); got None: its curvature is not known.",
        ),
        (
            lambda: whitened(targets_of_three["gaussian"], "dense"),
            "how must be a Whitening for Gaussian(n=6, dim=3, shared=True); got 'dense': its curvature is not known.",
        ),
        (
            lambda: whitened(target).regularised(1.0),
            f"target must be one in its own coordinates: regularise it first, then whiten it; got whitened({target!r}).",
        ),
        (
            lambda: whitened(target, "diagonal").laplace(),
            f"target must be one with a Hessian for a Laplace approximation; got whitened({target!r}).",
        ),
    ]:
        with pytest.raises(ValueError, match="must be") as caught:
            call()
        assert str(caught.value) == message


def test_the_kind_is_chosen_by_the_number_of_columns(monkeypatch):
    target = make()
    assert isinstance(whitening(target), DenseWhitening)
    monkeypatch.setattr(made, "DENSE_DIM", 4)
    assert isinstance(whitening(target), LowRankWhitening)
    how = whitening(target)
    assert how.basis.shape == (DIM, 0)
    assert whitened(target, how).whitening is how


def told(f, hessian, names=("a", "b")):
    """The curvature of such an f about 0, with a prior of spread 1."""
    target = SimpleNamespace(
        names=names, prior_spread=lambda: np.ones(len(names)), energies=lambda x: (f(*x.T), np.zeros_like(x))
    )
    return curvature_at_mode(target, np.zeros(len(names)), np.asarray(hessian, float))


def test_where_the_hessian_tells_nothing_the_function_does():
    steep, smooth = [[2.0, 0.5], [0.5, 1.0]], [[1e12, 0.3], [0.3, 1e-12]]
    assert (told(lambda a, b: a * a + a * b / 2 + b * b / 2, steep) == steep).all()
    assert (told(lambda a, b: 5e11 * a * a + 5e-13 * b * b + 0.3 * a * b, smooth) == smooth).all()  # units alone
    kinks = told(lambda a, b: 100 * np.abs(a) + np.abs(b), np.diag([0.01, 0.0]))
    assert np.diag(kinks) ** -0.5 == pytest.approx([0.005, 0.5], rel=1.0)
    assert kinks[0, 1] == pytest.approx(0.0, abs=1e-6)
    box = told(lambda a, b: np.where((np.abs(a) < 3) & (np.abs(b) < 1), a * a * 1e-4, np.inf), np.diag([2e-4, 0.0]))
    assert np.diag(box) ** -0.5 == pytest.approx([3.0, 1.0], rel=0.6)
    saddle = told(lambda a, b: -a * a / 2 + a**4 + b * b / 2, np.diag([-1.0, 1.0]))
    assert saddle == pytest.approx(np.eye(2))


@pytest.mark.parametrize(
    ("f", "hessian", "said"),
    [
        (lambda a, b: (a + b) ** 2 / 2, np.ones((2, 2)), r"does not fall along a direction \(of a, b\), however far"),
        (lambda a, b: a * a / 2, np.diag([1.0, 0.0]), r"does not fall along a direction \(of b\), however far"),
        (lambda a, b: a * a / 2, np.diag([1.0, np.nan]), "second derivatives are not finite"),
    ],
)
def test_a_direction_without_end_is_improper(f, hessian, said):
    with pytest.raises(RuntimeError, match=said):
        told(f, hessian)
