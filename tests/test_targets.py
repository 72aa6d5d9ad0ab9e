import numpy as np
import pytest
import scipy.sparse

import svrhmc
from conftest import every_target
from svrhmc.density import generalised, mode
from svrhmc.density import propriety as proper
from svrhmc.rows import base as rows
from svrhmc.rows import passes
from svrhmc.rows import sparse as stored
from svrhmc.targets import custom, gaussian, linear, logistic, synthetic
from svrhmc.targets.losses import LogisticLoss

TARGETS = [
    "logistic", "logistic-csr", "logistic-float32", "linear", "linear-csr", "gaussian", "gaussian-many", "custom",
]  # fmt: skip
X0 = np.array([0.3, -1.0, 0.5])


def numeric_gradient(f, x, h=1e-6):
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))])


@pytest.mark.parametrize("name", TARGETS)
def test_gradient_is_the_derivative_of_the_potential_and_the_mean_of_components(rows, name):
    target = every_target(rows)[name]
    assert target.gradient(X0) == pytest.approx(numeric_gradient(target.potential, X0), rel=1e-6, abs=1e-6)
    components = target.component_gradients(X0, np.arange(target.n))
    assert components.shape == (target.n, 3)
    assert components.mean(axis=0) == pytest.approx(target.gradient(X0), rel=1e-13, abs=1e-13)
    assert target.component_gradients(X0, [4, 1])[1] == pytest.approx(components[1], rel=1e-14)


def test_components_have_the_scale_of_the_design(rows):
    X, labels, y = rows
    i, n = 2, len(X)
    t = X[i] @ X0
    sign = 2 * labels[i] - 1
    by_hand = -n * sign / (1 + np.exp(sign * t)) * X[i] + 0.7 * X0
    assert logistic(X, labels, 0.7).component_gradients(X0, [i])[0] == pytest.approx(by_hand, rel=1e-14)
    by_hand = n * (t - y[i]) / 0.5 * X[i] + 0.7 * X0
    assert linear(X, y, 0.5, 0.7).component_gradients(X0, [i])[0] == pytest.approx(by_hand, rel=1e-14)


def test_logistic_potential_is_minus_the_log_posterior(rows):
    X, labels, _ = rows
    p = 1 / (1 + np.exp(-X @ X0))
    by_hand = -np.sum(np.log(np.where(labels == 1, p, 1 - p))) + 0.5 * 2.0 * X0 @ X0
    assert logistic(X, labels, 2.0).potential(X0) == pytest.approx(by_hand, rel=1e-14)


def test_labels_may_be_zero_one_or_minus_one_one_or_boolean(rows):
    X, labels, _ = rows
    values = [logistic(X, y).potential(X0) for y in (labels, 2 * labels - 1, labels == 1, labels.astype(float))]
    assert len(set(values)) == 1


@pytest.mark.parametrize("name", TARGETS)
def test_constants_bound_the_curvature(rows, name):
    target = every_target(rows)[name]
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.normal(size=(2, 3))
        change = target.gradient(a) - target.gradient(b)
        slope = change @ (a - b) / ((a - b) @ (a - b))
        assert target.convexity - 1e-9 <= slope <= target.smoothness + 1e-9
        parts = target.component_gradients(a, np.arange(6)) - target.component_gradients(b, np.arange(6))
        stretch = np.linalg.norm(parts, axis=1).max() / np.linalg.norm(a - b)
        assert stretch <= target.component_smoothness * (1 + 1e-9)
    assert target.condition_number == target.smoothness / target.convexity


@pytest.mark.parametrize("name", ["linear", "linear-csr", "gaussian", "gaussian-many"])
def test_quadratics_know_their_law(rows, name):
    target = every_target(rows)[name]
    law = target.closed_form
    assert isinstance(target, svrhmc.targets.FiniteSum)
    assert isinstance(law, svrhmc.targets.Moments)
    hessian = np.array([target.gradient(law.mean + e) for e in np.eye(3)])  # quadratic: exact differences
    assert target.gradient(law.mean) == pytest.approx(np.zeros(3), abs=1e-12)
    assert law.covariance @ hessian == pytest.approx(np.eye(3), abs=1e-12)
    spectrum = np.linalg.eigvalsh(hessian)
    assert (target.convexity, target.smoothness) == pytest.approx((spectrum[0], spectrum[-1]), rel=1e-12)
    assert target.mode() == pytest.approx(law.mean, abs=1e-12)


@pytest.mark.parametrize("name", ["logistic", "logistic-csr", "logistic-float32", "custom"])
def test_other_targets_have_a_mode_and_no_closed_form(rows, name):
    target = every_target(rows)[name]
    assert target.closed_form is None
    assert target.gradient(target.mode()) == pytest.approx(np.zeros(3), abs=1e-7 if name == "custom" else 1e-9)


def test_the_gaussian_target_has_the_inverse_as_covariance():
    target = gaussian([[1.0, 0.0], [3.0, 0.0]], np.diag([4.0, 0.5]))  # asymmetric: S and S⁻¹ differ
    assert target.closed_form.covariance.diagonal() == pytest.approx([0.25, 2.0])
    assert target.closed_form.mean == pytest.approx([2.0, 0.0])


def test_the_paper_instance():
    target = synthetic(n=5000, dim=10, seed=3)
    spectrum = np.linalg.eigvalsh(target.precision)
    assert (spectrum[0], spectrum[-1]) == pytest.approx((2 / 3, 3 / 2), rel=1e-12)
    assert np.abs(target.centers.mean() - 2) < 4.5 * 2 / np.sqrt(50_000)
    assert np.abs(target.centers.var() - 4) < 4.5 * 4 * np.sqrt(2 / 50_000)
    assert (synthetic(8, 3, seed=1).centers == synthetic(8, 3, seed=1).centers).all()
    assert (synthetic(8, 3, seed=1).centers != synthetic(8, 3, seed=2).centers).all()
    spread = synthetic(8, 3, seed=1, spread=0.5)
    assert spread.mean_precision == pytest.approx(synthetic(8, 3, seed=1).precision, rel=1e-14)
    assert spread.component_smoothness == pytest.approx(1.5 * 1.5)


def test_large_dimensions_use_products_only(rows, monkeypatch):
    X, labels, y = rows
    dense = [logistic(X, labels), linear(X, y, prior_precision=0.5)]
    expected = [(t.smoothness, t.convexity, t.mode()) for t in dense]
    for module in (generalised, mode):
        monkeypatch.setattr(module, "DENSE_DIM", 2)
    thin = [logistic(scipy.sparse.csr_matrix(X), labels), linear(scipy.sparse.csr_matrix(X), y, prior_precision=0.5)]
    for target, (smoothness, convexity, found) in zip(thin, expected, strict=True):
        assert target.smoothness == pytest.approx(smoothness, rel=1e-9)
        assert target.convexity == pytest.approx(convexity, rel=1e-9)
        assert target.mode() == pytest.approx(found, abs=1e-8)


def test_lanczos_finds_the_smoothness_of_a_wide_sparse_design():
    X = scipy.sparse.random(300, 3000, density=0.01, random_state=0, format="csr")
    target = logistic(X, np.arange(300) % 2)
    largest = np.linalg.svd(X.toarray(), compute_uv=False)[0] ** 2 / 4 + 1
    assert target.smoothness == pytest.approx(largest, rel=1e-9)
    assert linear(X, np.ones(300)).convexity == 1.0


def test_hessian_and_its_product_agree_with_differences(rows):
    X, labels, _ = rows
    for target in (logistic(X, labels), logistic(scipy.sparse.csr_matrix(X), labels)):
        hessian = target.hessian(X0)
        differences = np.array([(target.gradient(X0 + h) - target.gradient(X0 - h)) / 2e-6 for h in 1e-6 * np.eye(3)])
        assert hessian == pytest.approx(differences, rel=1e-7, abs=1e-7)
        direction = np.array([1.0, 2.0, -1.0])
        assert target.hessian_product(X0, direction) == pytest.approx(hessian @ direction, rel=1e-13)


def test_losses_are_stable_far_out():
    loss = svrhmc.targets.losses.LogisticLoss()
    t = np.array([-1e4, -800.0, 0.0, 800.0, 1e4])
    assert loss.value(t, 1.0) == pytest.approx([1e4, 800, np.log(2), 0, 0])
    assert loss.slope(t, 1.0) == pytest.approx([-1, -1, -0.5, 0, 0])
    assert loss.curvature(t, 1.0) == pytest.approx([0, 0, 0.25, 0, 0])
    assert loss.slope(np.array([30.0]), np.array([1.0])) == pytest.approx(-np.exp(-30), rel=1e-12)


def test_blocks_of_rows_do_not_change_the_answer(rows, monkeypatch):
    X, labels, _ = rows
    target = logistic(X, labels)
    at_once = target.gradient(X0), target.hessian(X0), target.component_smoothness
    user = custom(6, 3, lambda x, i: x - X[i])
    user_at_once = user.gradient(X0)
    monkeypatch.setattr(svrhmc.rows.base, "_BLOCK_ELEMENTS", 6)
    monkeypatch.setattr(svrhmc.density.custom, "_BLOCK_ELEMENTS", 6)
    in_blocks = target.gradient(X0), target.hessian(X0), target.component_smoothness
    for a, b in zip(at_once, in_blocks, strict=True):
        assert a == pytest.approx(b, rel=1e-14)
    assert user.gradient(X0) == pytest.approx(user_at_once, rel=1e-14)


def test_float32_rows_are_kept_as_they_are_and_summed_in_float64(rows):
    X, labels, _ = rows
    single = X.astype(np.float32)
    target = logistic(single, labels)
    assert target.rows.X is single
    assert target.gradient(X0) == pytest.approx(logistic(single.astype(float), labels).gradient(X0), rel=1e-15)


def test_sparse_entries_given_twice_are_summed():
    twice = scipy.sparse.csr_matrix((np.array([1.0, 2.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    assert linear(twice, [1.0]).component_smoothness == 1 * 9 + 1
    assert twice.nnz == 2  # the user's matrix is left alone


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda X, y: logistic(np.where(X[1, 2] == X, np.nan, X), y), "X must be finite everywhere; got nan at row 1, column 2."),
        (lambda X, y: logistic(np.where(X[0, 0] == X, np.inf, X), y), "X must be finite everywhere; got inf at row 0, column 0."),
        (lambda X, y: linear(X, np.where(y == 1, np.nan, y)), "y must be finite everywhere; got nan at row 1."),
        (lambda X, y: logistic(scipy.sparse.csr_matrix(np.where(X[1, 2] == X, np.nan, X)), y), "got nan at row 1, column 2."),
        (lambda X, y: logistic(scipy.sparse.csr_matrix(X.astype(complex)), y), "got dtype complex128."),
        (lambda X, y: logistic(np.ma.masked_array(X, X > 1), y), "X must be an array without a mask; got a masked array"),
        (lambda X, y: logistic([[1.0, 2.0], [3.0]], [0, 1]), "X must be an array of numbers; got lists of unequal lengths."),
        (lambda X, y: custom(6, 3, None), "gradients must be a function of (x, indices); got None."),
        (lambda X, y: custom(6, 3, lambda x, i: X[i] * 1j), "gradients(x, indices) must be an array of real numbers; got dtype complex128."),
        (lambda X, y: logistic(X, y * 2), "y must be labels in {0, 1} or {-1, 1}; got the values 0, 2: say which"),
        (lambda X, y: logistic(X, np.arange(6)), "got the values 0, 1, 2, 3, …: say which"),
        (lambda X, y: logistic(X, y[:-1]), "y must be an array of shape (6,); got shape (5,)."),
        (lambda X, y: logistic(X[0], y), "X must be an array of shape (n, dim); got shape (3,)."),
        (lambda X, y: logistic(X[:0], y[:0]), "X must be an array of shape (n, dim); got shape (0, 3)."),
        (lambda X, y: logistic(X.astype(complex), y), "X must be an array of float32, float64 or integers; got dtype complex128."),
        (lambda X, y: logistic([["a"]], [1]), "got dtype <U1."),
        (
            lambda X, y: logistic(scipy.sparse.csc_matrix(X), y),
            "X must be a dense array or a scipy CSR matrix; got a CSC matrix: use X.tocsr().",
        ),
        (lambda X, y: logistic(scipy.sparse.csr_matrix((0, 3)), y[:0]), "X must be an array of shape (n, dim); got shape (0, 3)."),
        (lambda X, y: logistic(X, y, prior_precision=-1.0), "prior_precision must be a number not below 0; got -1.0."),
        (lambda X, y: logistic(X, y, prior_precision=[1.0, 2.0]), "prior_precision must be an array of shape (3,)"),
        (lambda X, y: logistic(X, y, prior_precision=[1.0, -2.0, 1]), "prior_precision must be a number not below 0; got -2.0."),
        (lambda X, y: linear(X, y, noise_variance=0.0), "noise_variance must be a positive number; got 0.0."),
        (lambda X, y: gaussian(X, np.eye(2)), "precision must be an array of shape (3, 3); got shape (2, 2)."),
        (lambda X, y: gaussian(X, np.triu(np.ones((3, 3)))), "precision must be symmetric; got a matrix that is not."),
        (lambda X, y: gaussian(X, -np.eye(3)), "precision must be positive definite in the mean; got eigenvalue -1."),
        (lambda X, y: gaussian(X, np.full((6, 3, 3), np.nan)), "got nan at axis 0 index 0, axis 1 index 0, axis 2 index 0."),
        (lambda X, y: synthetic(0, 2), "n must be a whole number of at least 1; got 0."),
        (lambda X, y: synthetic(3, 2, spread=0.5), "spread must be from 0 to 1 (excluded), with an even n; got 0.5 with n = 3."),
        (lambda X, y: custom(0, 3, lambda x, i: x), "n must be a whole number of at least 1; got 0."),
        (
            lambda X, y: custom(6, 3, lambda x, i: x),
            "gradients(x, indices) must be an array of shape (len(indices), dim) = (2, 3); got shape (3,).",
        ),
        (lambda X, y: custom(6, 3, lambda x, i: X[i]).smoothness, "smoothness must be given to custom(…); got None"),
        (lambda X, y: custom(6, 3, lambda x, i: X[i]).convexity, "convexity must be given to custom(…); got None"),
        (lambda X, y: custom(6, 3, lambda x, i: X[i]).component_smoothness, "component_smoothness must be given to custom(…)"),
        (lambda X, y: custom(6, 3, lambda x, i: X[i]).potential([0.0] * 3), "potential must be given to custom(…); got None"),
        (lambda X, y: logistic(X, y).gradient([1.0]), "x must be an array of shape (3,); got shape (1,)."),
        (lambda X, y: logistic(X, y).component_gradients(X0, [6]), "indices must be from 0 to 5; got 6 to 6."),
        (lambda X, y: logistic(X, y).component_gradients(X0, [0.5]), "indices must be a list of whole numbers; got dtype float64"),
        (
            lambda X, y: linear(np.ones((4, 2)), np.ones(4), prior_precision=0.0).closed_form,
            "prior_precision must be positive where the columns of X are linearly dependent; got 0 for columns 0, 1, which "
            "are: column 1 is 1 times column 0, so the posterior is improper; give prior_precision > 0 or drop a column.",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused_at_the_door(rows, make, message):
    X, labels, _ = rows
    with pytest.raises(ValueError, match="must be") as caught:
        make(X, labels)
    assert message in str(caught.value)


@pytest.mark.parametrize("dense_dim", [0, 2000])
def test_separable_data_with_a_flat_prior_have_no_mode(dense_dim, monkeypatch):
    """The search for it says so too, where the door has not looked."""
    for module in (generalised, mode):
        monkeypatch.setattr(module, "DENSE_DIM", dense_dim)
    monkeypatch.setattr(proper, "_DENSE", 0)
    X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]
    flat = logistic(scipy.sparse.csr_matrix(X), y, prior_precision=0.0)
    assert flat.condition_number == np.inf
    with pytest.raises(ValueError, match="the data are separable and the prior is flat"):
        flat.mode()
    assert logistic(X, y, prior_precision=1e-4).mode()[0] > 4  # any prior will do
    assert np.isfinite(logistic(X, [0, 1, 0, 1], prior_precision=0.0).mode()).all()  # and so does overlap


UNITS = {"as they are": np.ones(4), "far apart": np.array([1e-6, 1e6, 1.0, 1e3])}


def columns(kind, n=40):
    """Four columns of normals, as they are or with the last one spoilt."""
    X = np.random.default_rng(0).normal(size=(n, 4))
    if kind == "dependent":
        X[:, 3] = X[:, :3] @ [1.0, -2.0, 0.5]
    elif kind == "a column of zeros":
        X[:, 3] = 0.0
    elif kind == "nearly dependent":
        X[:, 3] = X[:, 2] + 1.5e-3 * X[:, 3]  # correlation 0.999999
    return X[:3] if kind == "three rows" else X


def labels_of(X):
    return np.arange(len(X)) % 3 > 0


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("model", [logistic, linear])
@pytest.mark.parametrize("kind", ["dependent", "a column of zeros", "three rows"])
def test_a_flat_prior_on_columns_that_rows_do_not_determine_is_refused(kind, model, units):
    X = columns(kind) * UNITS[units]
    for seed, threads in ((0, 1), (1, 2)):
        for form in (np.asarray, scipy.sparse.csr_matrix):
            with pytest.raises(ValueError, match=r"linearly dependent; got 0 for columns? .*the posterior is improper"):
                svrhmc.sample(model(form(X), labels_of(X), prior_precision=0.0), seed=seed, threads=threads)
    if kind != "three rows":  # a prior on one of the columns is enough there
        plain = model(columns(kind), labels_of(X), prior_precision=[0.0, 0.0, 0.0, 1.0]).mode()
        scaled = model(X, labels_of(X), prior_precision=[0.0, 0.0, 0.0, 1.0] * UNITS[units] ** 2).mode()
        assert scaled * UNITS[units] == pytest.approx(plain, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("model", [logistic, linear])
@pytest.mark.parametrize("kind", ["proper", "nearly dependent"])
def test_a_flat_prior_on_columns_however_scaled_or_correlated_is_not(kind, model, units, monkeypatch):
    X = columns(kind)
    y, scaled = labels_of(X), model(X * UNITS[units], labels_of(X), prior_precision=0.0)
    plain = model(X, y, prior_precision=0.0).laplace()
    found = scaled.laplace()
    assert found.mean * UNITS[units] == pytest.approx(plain.mean, rel=1e-6)
    assert np.diag(found.covariance) * UNITS[units] ** 2 == pytest.approx(np.diag(plain.covariance), rel=1e-6)
    monkeypatch.setattr(rows, "_THREADED", 1)  # float32 rows, many of them: sums must not be theirs
    many = np.tile(X, (300, 1)).astype(np.float32)
    law = model(many, np.tile(y, 300), prior_precision=0.0).laplace()
    exact = model(many.astype(float), np.tile(y, 300), prior_precision=0.0).laplace()
    assert np.diag(law.covariance) == pytest.approx(np.diag(exact.covariance), rel=1e-5)


@pytest.mark.parametrize("kind", ["dependent", "three rows", "a column of zeros"])
def test_dependent_columns_are_found_by_products_too(kind, monkeypatch):
    for module in (generalised, mode):
        monkeypatch.setattr(module, "DENSE_DIM", 2)
    monkeypatch.setattr(proper, "_DENSE", 0)
    X = columns(kind)
    with pytest.raises(ValueError, match="linearly dependent; got 0 for column"):
        logistic(scipy.sparse.csr_matrix(X), labels_of(X), prior_precision=0.0).mode()
    X = columns("proper")
    assert np.isfinite(logistic(scipy.sparse.csr_matrix(X), labels_of(X), prior_precision=0.0).mode()).all()


def separated(kind):
    """Rows and labels that a plane separates: all of them, all but those in it, or for want of a second class."""
    X = np.random.default_rng(1).normal(size=(30, 3))
    X[:, 0] = 1.0
    if kind == "one class":
        return X, np.ones(30)
    if kind == "all rows":
        return X, X @ [0.3, 1.0, -1.0] > 0
    X[:, 2] = np.arange(30) < 5  # an indicator of rows that are all of one class
    return X, (X[:, 2] > 0) | (np.arange(30) % 2 > 0)


@pytest.mark.parametrize("units", [[1.0, 1.0, 1.0], [1e6, 1e-6, 1e3]], ids=str)
@pytest.mark.parametrize("kind", ["one class", "all rows", "some rows"])
def test_a_flat_prior_on_separated_rows_is_refused(kind, units):
    X, y = separated(kind)
    for seed, threads in ((0, 1), (1, 2)):
        with pytest.raises(ValueError, match=r"improper .* the data are separable and the prior is flat"):
            svrhmc.sample(logistic(X * units, y, prior_precision=0.0), seed=seed, threads=threads)
    y = np.array(y, float)
    y[[0, 1, 20]] = 1 - y[[0, 1, 20]]  # a few rows on the other side
    assert np.isfinite(logistic(X * units, y, prior_precision=0.0).mode()).all()


def test_a_row_far_out_does_not_separate_the_others():
    """There the curvature falls by more than 1e10 from 0 to the mode, as it does on separable data."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 1)), rng.random(100) < 0.5
    X[0], y[0] = 1e7, True
    target = logistic(X, y, prior_precision=0.0)
    mode = target.mode()
    assert target.hessian(mode)[0, 0] < 1e-10 * target.hessian([0.0])[0, 0]
    assert target.gradient(mode) ** 2 / target.hessian(mode)[0] < 1e-14
    with pytest.raises(ValueError, match="separable"):
        logistic(X, X[:, 0] > 0, prior_precision=0.0).mode()


def test_newton_says_when_it_gives_up(rows, monkeypatch):
    X, labels, _ = rows
    monkeypatch.setattr(mode, "_NEWTON_STEPS", 1)
    with pytest.raises(RuntimeError, match="no mode was found in 1 Newton steps"):
        logistic(X, labels).mode()


def test_a_steep_design_with_a_prior_has_a_mode():
    target = logistic([[-1e6], [-2e6], [1e6], [2e6]], [0, 0, 1, 1], 1.0)
    assert target.gradient(target.mode()) == pytest.approx([0.0], abs=1e-6)


def test_a_custom_target_whose_mode_is_the_origin():
    a = np.array([[-1.0], [1.0], [0.1], [-0.1]])
    target = custom(4, 1, lambda x, i: x - a[i], potential=lambda x: 0.5 * float(x @ x))
    assert target.mode() == pytest.approx([0.0], abs=1e-8)


def test_a_custom_function_may_reuse_its_buffer_and_change_its_arguments():
    a = np.array([[0.0], [2.0], [5.0]])
    buffer = np.empty((1, 1))

    def careless(x, i):
        buffer[:] = x - a[i[0]]
        x += 100.0
        i += 1
        return buffer[: len(i)]

    tidy = custom(3, 1, lambda x, i: x - a[i], smoothness=1.0)
    rude = custom(3, 1, lambda x, i: careless(x, i) if len(i) == 1 else x - a[i], smoothness=1.0)
    sampler = svrhmc.sg_hmc(0.1)
    assert (sampler.run(tidy, 20, chains=2).draws == sampler.run(rude, 20, chains=2).draws).all()


def test_a_large_linear_target_runs_without_its_dense_covariance(monkeypatch):
    X = scipy.sparse.random(400, 3000, density=0.01, random_state=0, format="csr")
    target = linear(X, np.ones(400))
    monkeypatch.setattr(generalised.GeneralisedLinear, "hessian", None)
    draws = svrhmc.svr_hmc(0.1, batch_size=4).run(target, 2, chains=1).draws
    assert draws.shape == (1, 2, 3000)
    assert np.isfinite(draws).all()


def test_the_first_bad_place_is_named_beyond_the_first_block(monkeypatch):
    monkeypatch.setattr(svrhmc.core.errors, "_BLOCK_ELEMENTS", 6)
    X = np.ones((7, 3))
    X[5, 1] = np.inf
    with pytest.raises(ValueError, match="got inf at row 5, column 1"):
        logistic(X, np.arange(7) % 2)


def test_a_custom_potential_that_disagrees_with_its_gradients_has_no_mode():
    target = custom(1, 1, lambda x, i: np.full((len(i), 1), 1.0), potential=lambda x: float(-x[0]))
    with pytest.raises(RuntimeError, match="no mode found: the gradient fell only to"):
        target.mode()


def test_rows_are_never_looked_at_twice_for_being_memory_maps(tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    X.tofile(tmp_path / "rows.bin")
    mapped = np.memmap(tmp_path / "rows.bin", np.float32, "r", shape=(50, 4))
    target = logistic(mapped, np.arange(50) % 2)
    assert np.shares_memory(target.rows.X, mapped)
    assert isinstance(stored.make_rows(mapped), rows.DenseRows)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_prints_its_size(rows, name):
    assert "n=6, dim=3" in repr(every_target(rows)[name])


def logistic_gradient(X, y, x):
    """By the compiled pass."""
    return passes.RowsPass(rows.DenseRows(X), LogisticLoss(), rows.Labels(y))(x[None], valued=False)[1][0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (4096, 5), (4097, 1), (12_289, 9)])
def test_compiled_passes_are_numpys(shape, dtype):
    rng = np.random.default_rng(shape[0])
    X = rng.normal(size=shape).astype(dtype)
    wide = X.astype(np.float64)
    x, weights, y = (
        rng.normal(size=shape[1]),
        rng.normal(size=shape[0]),
        np.where(rng.random(shape[0]) < 0.5, 1.0, -1.0),
    )
    size = np.sqrt(shape[0])
    assert passes.predict(rows.DenseRows(X), x) == pytest.approx(wide @ x, abs=1e-12 * shape[1])
    assert passes.combine(rows.DenseRows(X), weights) == pytest.approx(weights @ wide, abs=1e-12 * size)
    slopes = -y / (1 + np.exp(y * (wide @ x)))
    assert logistic_gradient(X, y, x) == pytest.approx(slopes @ wide, abs=1e-12 * size)
    gram = passes.grams(X, [weights**2])[0]
    exact = (wide * weights[:, None] ** 2).T @ wide
    assert gram == pytest.approx(exact, abs=(1e-12 if dtype == np.float64 else 1e-5) * shape[0])
    assert (gram == gram.T).all()


def test_far_out_rows_have_finite_slopes():
    X = np.array([[1e4], [-1e4], [1e-3]])
    y = np.array([1.0, 1.0, -1.0])
    for x in (-1.0, 1.0):
        exact = (-y / (1 + np.exp(np.minimum(y * X[:, 0] * x, 700)))) @ X
        assert logistic_gradient(X, y, np.array([x])) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_rows_are_gone_through_with_the_same_results(dtype, monkeypatch):
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(5001, 4)).astype(dtype), rng.random(5001) < 0.3
    x = rng.normal(size=(3, 4)) * 0.5
    small, many = logistic(X, labels), logistic(X, labels)
    plain = small.gradients(x), small.potentials(x), small.hessian(x[0]), small.parts(x, None), small.mode()
    assert small.rows._compiled_passes() is None
    monkeypatch.setattr(rows, "_THREADED", 1)
    monkeypatch.setattr(rows, "_COMPILED", 1)
    assert many.rows._compiled_passes() is passes
    found = many.gradients(x), many.potentials(x), many.hessian(x[0]), many.parts(x, None), many.mode()
    for a, b in zip(plain, found, strict=True):
        assert b == pytest.approx(a, rel=1e-9 if dtype == np.float64 else 2e-5, abs=1e-8)
    assert linear(X, x[0] @ X.T).gradients(x) == pytest.approx(x @ (X.T @ X) - x[0] @ (X.T @ X) + x, rel=1e-3)


@pytest.mark.parametrize("cores", [1, 3])
def test_no_digit_of_a_pass_depends_on_the_threads(cores, monkeypatch):
    rng = np.random.default_rng(1)
    X, weights, y = rng.normal(size=(20_001, 3)), rng.normal(size=20_001), np.ones(20_001)
    x = np.array([0.1, -0.2, 0.3])
    before = (
        passes.predict(rows.DenseRows(X), x),
        passes.combine(rows.DenseRows(X), weights),
        logistic_gradient(X, y, x),
    )
    monkeypatch.setattr(passes, "cores", lambda: cores)
    after = passes.predict(rows.DenseRows(X), x), passes.combine(rows.DenseRows(X), weights), logistic_gradient(X, y, x)
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_the_mode_from_some_of_the_rows_is_the_mode(kind, monkeypatch):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2501, 3)) + np.array([1.0, 0.0, 0.0])
    labels = X @ [0.5, -1.0, 1.0] + rng.logistic(size=2501) > 0
    began = []
    some = mode.ModeSearch._mode_of_sample
    monkeypatch.setattr(mode.ModeSearch, "_mode_of_sample", lambda self: began.append(self.target.n) or some(self))
    target = logistic(kind(X), labels)
    found = target.mode()
    assert began[0] == 2501
    monkeypatch.setattr(mode, "_TALL", 10**9)
    plain = logistic(kind(X), labels).mode()
    sd = np.sqrt(np.diag(np.linalg.inv(target.hessian(plain))))
    assert (np.abs(found - plain) / sd).max() < 1e-8
    assert target.mode_passes > 0


@pytest.mark.parametrize("positive", [0, 1, 5])
def test_the_mode_of_rare_events(positive):
    """Some of the rows may hold no event at all, or be separable: the mode is that of all rows even so."""
    rng = np.random.default_rng(3)
    n = 5000
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    labels = np.zeros(n)
    labels[rng.choice(n, positive, replace=False)] = 1
    target = logistic(X, labels, prior_precision=0.1)
    mode = target.mode()
    gradient, H = target.gradient(mode), target.hessian(mode)
    assert gradient @ np.linalg.solve(H, gradient) < 1e-14
    assert mode[0] < -4
    if positive == 5:
        flat = logistic(X, labels, prior_precision=0.0)
        away = flat.gradient(flat.mode())
        assert away @ np.linalg.solve(flat.hessian(flat.mode()), away) < 1e-14
    if positive == 0:
        with pytest.raises(ValueError, match="the data are separable and the prior is flat"):
            logistic(X, labels, prior_precision=0.0).mode()


def test_a_custom_target_looks_for_its_mode_once():
    calls = []
    target = custom(
        2, 1, lambda x, i: x - 1.0 + 0.0 * i[:, None], potential=lambda x: calls.append(1) or (x[0] - 1) ** 2 / 2
    )
    first = target.mode()
    count = len(calls)
    first[0] = 9.0
    assert target.mode() == pytest.approx([1.0], abs=1e-6)
    assert len(calls) == count
