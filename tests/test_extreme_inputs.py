"""No error of Python, NumPy or SciPy reaches a user bare, nothing runs for ever, and no nan comes out."""

import numpy as np
import pytest
import scipy.sparse

import svrhmc
from svrhmc import distances, dynamics, gradients, targets

SMALL = targets.synthetic(10, 2)
FLAT = {"logistic": targets.logistic, "linear": targets.linear}


@pytest.mark.parametrize("model", FLAT)
def test_a_target_that_is_flat_is_refused(model):
    with pytest.raises(ValueError, match=r"prior_precision must be positive .* nothing but zeros is in them"):
        FLAT[model](np.zeros((4, 2)), [1, 0, 1, 0], prior_precision=0.0)


@pytest.mark.parametrize("friction", [5e-324, 1e-300, 1e10, 1e155, 1e300, 1.7e308])
@pytest.mark.parametrize("kind", ["Underdamped", "Exponential", "UBU", "BAOAB", "EulerMaruyama", "Anchored"])
def test_extreme_settings_are_refused_or_run(kind, friction):
    try:
        sampler = svrhmc.Sampler(getattr(dynamics, kind)(1e-3, friction), gradients.Full())
        trace = sampler.run(SMALL, 5, engine="reference")
    except ValueError as told:
        text = str(told)
        trace = None
    assert trace is not None or " must be " in text
    assert trace is None or np.isfinite(trace.draws).all()


@pytest.mark.parametrize("count", [2**63, 2**63 - 1, 2**62, 10**30])
def test_numbers_beyond_all_use_are_refused_before_any_work(count):
    with pytest.raises(ValueError, match="steps must be a whole number from 1 to 9007199254740992; got"):
        svrhmc.hmc(0.1).run(SMALL, count, keep="last")
    with pytest.raises(ValueError, match="draws must be a whole number from 1 to 9007199254740992; got"):
        svrhmc.exact.SplitHMC().run(targets.linear(np.eye(3), np.ones(3)), count)
    with pytest.raises(ValueError, match="draws must be a whole number from 10 to"):
        svrhmc.sample(SMALL, draws=count)
    if count > 2**62:
        with pytest.raises(ValueError, match="epoch_length must be a whole number from 1 to"):
            svrhmc.svr_hmc(0.1, epoch_length=count)


@pytest.mark.parametrize("passes", [1e308, 1e300, 1e18])
@pytest.mark.parametrize("sampler", [svrhmc.hmc(0.1), svrhmc.svr_hmc(0.1), svrhmc.saga_ld(0.1)])
def test_passes_beyond_all_use_are_refused(passes, sampler):
    with pytest.raises(ValueError, match="passes must be so many that at most 9007199254740992 steps are made"):
        sampler.run(SMALL, passes=passes)


def test_draws_that_do_not_fit_into_memory_are_refused_with_what_to_do():
    with pytest.raises(
        ValueError,
        match=r"steps must be such that the draws fit into memory, .* GB; got 1,000,000,000,000 draws of 4 chains, 6\.4e\+04 GB: thin them",
    ):
        svrhmc.hmc(0.1).run(SMALL, 10**12)
    with pytest.raises(ValueError, match="draws must be such that the draws fit into memory"):
        svrhmc.exact.SplitHMC().run(targets.linear(np.eye(3), np.ones(3)), 10**13)
    with pytest.raises(ValueError, match="draws must be such that the draws fit into memory"):
        svrhmc.sample(SMALL, draws=10**14)


def test_a_covariance_that_is_none_is_refused():
    with pytest.raises(ValueError, match="covariance must be positive semi-definite; got eigenvalue -1"):
        distances.plug_in_floor([[-1.0]], 10)
    with pytest.raises(ValueError, match="covariance must be a square matrix"):
        distances.plug_in_floor([[1.0, 0.0]], 10)
    assert distances.plug_in_floor([[0.0]], 10) == 0


def test_centres_whose_sum_overflows_are_refused():
    with pytest.raises(ValueError, match="centers and precision must be so small that their products do not overflow"):
        targets.gaussian([[1e308, 0.0], [1e308, 1.0]], np.eye(2))
    with pytest.raises(ValueError, match="so small that"):
        targets.gaussian([[1.0, 0.0], [1.0, 1.0]], 1e308 * np.eye(2))


def test_a_prior_far_away_ends_the_search():
    X = np.array([[1.0], [2.0], [-1.0]])
    assert targets.logistic(X, [1, 0, 1], prior_mean=1e12).mode() == pytest.approx(1e12, rel=1e-9)
    with pytest.raises(RuntimeError, match=r"no mode was found: it is still .* sd away"):
        targets.logistic(1e6 * X, [1, 0, 1], prior_mean=1e50).mode()


def test_columns_that_depend_to_rounding_are_named_with_their_rank():
    X = np.random.default_rng(0).normal(size=(50, 4))
    X[:, 3] = X[:, 1]
    with pytest.raises(
        ValueError,
        match=r"prior_precision must be larger where the columns of X depend on each other to rounding; got 1e-20 for columns 1, 3, where X is of rank 3 of 4",
    ) as raised:
        targets.logistic(X, np.arange(50) % 2, prior_precision=1e-20).mode()
    assert not isinstance(raised.value, np.linalg.LinAlgError)


def test_some_rows_that_leave_a_direction_out_are_no_obstacle():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=4000), np.zeros(4000)])
    X[7, 1] = 1.0
    target = targets.logistic(X, rng.integers(0, 2, 4000), prior_precision=[0.0, 1e-30])
    mode = target.mode()
    assert (np.abs(target.gradient(mode)) < 1e-6 * np.sqrt(np.diag(target.hessian(mode)))).all()


def ill_conditioned(seed):
    """Rows, labels and a prior that are hard on float64."""
    rng = np.random.default_rng(seed)
    n, dim = int(rng.choice([5, 30, 200, 1500])), int(rng.choice([1, 2, 3, 6]))
    X = rng.normal(size=(n, dim))
    how = seed % 8
    if how == 0:
        X = X * 10.0 ** rng.uniform(-12, 12, size=dim)
    elif how == 1 and dim > 1:
        X[:, 1] = X[:, 0] * (1 + 10.0 ** rng.uniform(-16, -4) * rng.normal(size=n))
    elif how == 2:
        X = np.vander(rng.uniform(0, 1, n), dim)
    elif how == 3:
        X = X * 10.0 ** rng.uniform(3, 150)
    elif how == 4:
        X = X * 10.0 ** rng.uniform(-160, -3)
    elif how == 5:
        X = X[:, :1] + 10.0 ** rng.uniform(-9, -1) * X
    elif how == 6:
        X[0] *= 10.0 ** rng.uniform(3, 15)
    else:
        X = np.column_stack([np.ones(n), 1 + 10.0 ** rng.uniform(-15, -3) * X])
    precision, mean = rng.choice([0, 1e-300, 1e-20, 1e-12, 1e-6, 1, 1e12]), rng.choice([0, 0, 1, 1e6, 1e12, -1e9])
    return X, rng.integers(0, 2, n), {"prior_precision": float(precision), "prior_mean": float(mean)}


@pytest.mark.parametrize("seed", range(64))
def test_ill_conditioned_data_have_a_mode_or_an_error_that_says_why(seed):
    X, y, prior = ill_conditioned(seed)
    target = targets.logistic(X, y, **prior)
    try:
        mode = target.mode()
    except (ValueError, RuntimeError) as error:
        mode, told = None, error
    assert mode is not None or (
        type(told) in (ValueError, RuntimeError)
        and any(w in str(told) for w in ("prior_precision", "improper", "columns"))
    )
    assert mode is None or np.isfinite(mode).all()


def test_what_was_too_much_to_decide_at_the_door_is_refused_by_run_as_by_sample():
    """2001 flat columns, each with two rows of one label; a control has two labels."""
    rows = scipy.sparse.vstack([scipy.sparse.identity(2001, format="csr")] * 2).tocsr()
    target = targets.logistic(rows, np.tile(np.arange(2001) % 2, 2), prior_precision=0.0)
    for ask in (lambda: svrhmc.hmc(0.1).run(target, 2, engine="reference"), lambda: svrhmc.sample(target)):
        with pytest.raises(ValueError, match="improper and has no mode: the data are separable"):
            ask()
    proper = targets.logistic(rows, np.arange(4002) < 2001, prior_precision=0.0)
    assert svrhmc.hmc(0.1).run(proper, 2, engine="reference").draws.shape == (4, 2, 2001)
