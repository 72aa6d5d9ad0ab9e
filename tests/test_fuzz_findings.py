"""What the machine of `tests/fuzz` found: each input once, with the answer that it must have."""

import warnings

import numpy as np
import pandas
import polars
import pytest
import scipy.sparse
from typer.testing import CliRunner

import svrhmc
from svrhmc import diagnostics, distances, dynamics, fitting, gradients, targets, theory, whitening
from svrhmc.core import lanczos
from svrhmc.core.arrays import ratio
from svrhmc.results import figures
from svrhmc.results.prior import Influence
from svrhmc.results.summary import Coefficient
from svrhmc.sampling.correction import correction
from svrhmc.shell import app as cli
from svrhmc.tables import files as reading
from svrhmc.targets import priors


@pytest.fixture(autouse=True)
def _no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda: targets.glm([[0.25]], [0], weights=[1e9], prior_precision=0.125), [1e300]),
        (lambda: targets.glm([[0.0]], [0], prior=priors.StudentT(0.125, 0.125)), [1.7e153]),
        (lambda: targets.glm([[0.75]], [0], "poisson"), [1000.0]),
        (lambda: targets.glm([[0.0]], [0], "negative-binomial"), [0.0, 1000.0]),
        (lambda: targets.gaussian([[0.0], [8e155]], [[[0.125]], [[0.14]]]), [0.5]),
        (lambda: targets.custom(1, 1, lambda x, rows: np.full((1, 1), np.nan)), [0.0]),
    ],
)
def test_what_float64_does_not_hold_is_an_error_and_no_warning_or_nan(make, x):
    target = make()
    answers = []
    for ask in (
        target.potential,
        target.gradient,
        lambda at: target.component_gradients(at, [0]),
        getattr(target, "hessian", target.gradient),
    ):
        try:
            answers.append(np.isfinite(ask(x)).all())
        except ValueError as error:
            answers.append("must be finite in float64" in str(error) or "must be given to custom" in str(error))
    assert all(answers)


def test_a_regression_whose_sums_overflow_says_so():
    with pytest.raises(ValueError, match="∇²f must be finite in float64"):
        targets.linear([[0.0], [1e300]], [0.0, 1.7e308], prior_precision=1e-300).laplace()
    with pytest.raises(ValueError, match=r"X, y and the prior must be of ordinary size"):
        svrhmc.sample(targets.conjugate([[0.125]], [0.0], 0.125, 1e160))
    assert targets.glm([[0.0], [1.25e154]], [0, 1], "poisson", prior_precision=1.5).mode() == [0.0]  # e⁰ = y


def test_settings_of_targets_and_priors_are_checked_at_the_door():
    with pytest.raises(ValueError, match="so small that their products do not overflow"):
        targets.synthetic(1, 2, eigenvalues=(0.125, 1.7e308))
    with pytest.raises(ValueError, match="spread must be a number not below 0; got None"):
        targets.synthetic(1, 1, spread=None)
    with pytest.raises(ValueError, match="eigenvalues must be an array of"):
        targets.synthetic(1, 1, eigenvalues="ab")
    with pytest.raises(ValueError, match="prior_precision must be finite"):
        priors.Normal(float("nan"))
    with pytest.raises(ValueError, match="prior_mean must be an array of numbers; got lists of unequal lengths"):
        priors.Normal(1.0, mean=[1, [2, 3]])
    with pytest.raises(ValueError, match="location must be a finite number; got 'x'"):
        priors.StudentT(3.0, 1.0, location="x")
    with pytest.raises(ValueError, match=r"\|location\| must be a number from 1e-50 to 1e\+50"):
        priors.Laplace(1.0, location=1e154)
    with pytest.raises(ValueError, match=r"df must be a number from 1e-50 to 1e\+50"):
        priors.StudentT(1e160)
    with pytest.raises(ValueError, match="1/sd² must be a positive number; got inf"):
        priors.Normal.with_sd(1e-160)
    with pytest.raises(ValueError, match="that float64 can hold"):
        priors.Normal(10**400)
    with pytest.raises(ValueError, match="that float64 can hold"):
        svrhmc.hmc(10**400)


def test_a_step_beyond_all_measure_is_unstable():
    with pytest.raises(svrhmc.UnstableStepError):
        dynamics.Overdamped(4.5).check_stable(targets.gaussian([[0.0]], [[3.9e307]]))
    with pytest.raises(ValueError, match="of ordinary size beside each other"):
        dynamics.Anchored(1491.0, 2.0).check_stable(targets.gaussian([[0.0]], [[0.125]]))
    with pytest.raises(ValueError, match="step_size"):
        dynamics.BAOAB(1e160).check_stable(targets.gaussian([[0.0]], [[0.125]]))


def test_the_theory_says_where_its_numbers_leave_float64():
    wide = theory.Problem(n=1, dim=1, smoothness=1e60, convexity=1e-60, gradient_variance=1.0)
    with pytest.raises(ValueError, match=r"the constants must be of ordinary size .* numbers of boundaries are beyond"):
        theory.boundaries(wide, 1e-60)
    with pytest.raises(ValueError, match="numbers of other_rates are beyond float64"):
        theory.other_rates(1, 1, 0.1, 1.7e308)
    assert theory.regularisation_distance(2.875, 6.25e307) == pytest.approx(6.7e153, rel=0.01)


def test_distances_and_diagnostics_of_very_large_and_small_numbers():
    assert distances.gaussian_w2([1e300], [[1.0]], [-1e300], [[1.0]]) == pytest.approx(2e300)
    assert distances.gaussian_w2([0.0], [[1e-300]], [0.0], [[4e-300]]) == pytest.approx(1e-150)
    assert distances.plug_in_floor(1.25e155 * np.eye(3), 100) == pytest.approx(
        1.25e155**0.5 * distances.plug_in_floor(np.eye(3), 100)
    )
    assert distances.empirical_w2([[1e200]], [[3e200]]) == pytest.approx(2e200)
    assert distances.sliced_w2([[1e200]], [[3e200]]) == pytest.approx(2e200)
    assert distances.plug_in_w2([[1e-320], [0.0]], [0.0], [[1.0]]).value == pytest.approx(1.0)
    draws = np.random.default_rng(0).normal(size=(2, 50, 1))
    for measure in (diagnostics.ess, diagnostics.r_hat):
        assert measure(1e200 * draws) == pytest.approx(measure(draws), rel=1e-9)
    assert diagnostics.standard_error(1e200 * draws) == pytest.approx(1e200 * diagnostics.standard_error(draws))


def test_chains_that_stand_still_apart_have_a_large_r_hat_in_any_unit():
    """It was √(between), so that a small unit made it look like agreement."""
    stuck = np.repeat([[0.0], [1e-3]], 8, axis=1)[:, :, None]
    assert diagnostics.r_hat(stuck) > 1e6
    assert diagnostics.r_hat(1e6 * stuck) > 1e6
    assert diagnostics.r_hat(np.zeros((2, 8, 1))) == 1.0


def test_a_prior_of_the_intercept_is_about_the_intercept():
    """It was about the intercept less the mean of y, where y is a number."""
    y = np.array([300.0, 302.0, 301.0, 299.0])
    for prior in (
        priors.Normal(100.0, mean=250.0),
        priors.StudentT(4.0, 0.1, location=250.0),
        priors.Laplace(0.1, location=250.0),
    ):
        assert prior.shifted(2.0).spread[0] == 252.0
    posterior = svrhmc.fit(
        "y ~ 1", {"y": y}, "gaussian", noise_variance=1.0, prior={"Intercept": priors.Normal(4.0, mean=300.0)}
    )
    assert posterior.mean == pytest.approx((y.sum() + 4.0 * 300.0) / 8.0, abs=1e-6)


def test_a_hessian_that_is_none_whitens_nothing():
    with pytest.raises(ValueError, match="hessian must be positive definite"):
        whitening.dense_whitening(np.zeros(1), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="hessian must be finite"):
        whitening.dense_whitening(np.zeros(1), np.full((1, 1), np.nan))
    with pytest.raises(ValueError, match="hessian must be symmetric"):
        whitening.dense_whitening(np.zeros(2), np.array([[1.0, 0.5], [0.0, 1.0]]))


def test_odd_questions_to_a_posterior_are_refused():
    posterior = svrhmc.sample(targets.linear([[1.0], [2.0]], [1.0, 3.0]), draws=20)
    for levels in ({}, b"x", "0.5", None):
        with pytest.raises(ValueError, match="levels must be"):
            posterior.quantile(levels)
    with pytest.raises(ValueError, match=r"variables must be names of columns, or None for all; got 0\.5"):
        posterior.effects(variables=0.5)
    with pytest.raises(ValueError, match=r"posterior must be one that `svrhmc\.fit` returns; got None"):
        svrhmc.report(None, "x.html")
    with pytest.raises(ValueError, match=r"a CSC matrix: use X\.tocsr"):
        fitting.regress(scipy.sparse.csc_matrix(np.array([[1j], [2.0]])), [0.0, 1.0])


@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_checkpoint_whose_draws_were_changed_gives_no_trace(tmp_path, how):
    svrhmc.hmc(0.1).run(targets.synthetic(6, 2), 8, chains=2, engine="reference", checkpoint=tmp_path / "run")
    path = tmp_path / "run" / "draws.rows"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content if how == "flipped" else content[:40])
    with pytest.raises(svrhmc.TraceFileError, match=r"draws\.rows is cut short or was changed"):
        svrhmc.Trace.load(tmp_path / "run")


def test_errors_are_shown_where_the_terminal_says_that_it_has_no_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    result = CliRunner().invoke(cli.app, ["plan"])
    assert result.exit_code == 2
    assert "Missing option" in result.output


def test_columns_of_lists_and_of_pandas_missing_values():
    y = [0.0, 1.0, 2.0, 3.0]
    lists = polars.DataFrame({"y": y, "b": [[0.0, 0.0], [0.0, 1.0], [2.0, 3.0], [1.0, 1.0]]})
    with pytest.raises(ValueError, match="column 'b' must hold numbers, truth values or texts; row 0 is array"):
        svrhmc.fit("y ~ b", lists)
    gaps = {"y": y, "b": np.array([1.0, pandas.NA, 2.0, 5.0], object)}
    posterior = svrhmc.fit("y ~ b", gaps, "gaussian", noise_variance=1.0, missing="drop", draws=20)
    assert posterior.design.dropped == 1


def test_a_decimal_sign_is_one_sign_for_new_rows_too(tmp_path):
    for sign in ("", ",,"):
        result = CliRunner().invoke(cli.app, ["predict", str(tmp_path), str(tmp_path / "a.csv"), "--decimal", sign])
        assert result.exit_code == 2
        with pytest.raises(ValueError, match="--decimal must be one sign; got"):
            reading.Reading(decimal=sign)


def test_a_coefficient_that_never_moves_has_no_error_and_breaks_no_report():
    """An exact fit, whose σ falls to e^-96: draws of the coefficients are all the same number."""
    assert ratio(np.array([0.0, 1.0, 1.0]), np.array([0.0, 2.0, 1.0])).tolist() == [0.0, 0.5, 1.0]
    x = np.random.default_rng(0).normal(size=(2, 60, 2)) * [1.0, 0.0]
    _, corrected = correction(x, x, np.array([1.0, 1e-40]))
    assert np.isfinite(corrected.sd_error).all()
    assert Coefficient("a", 1.0, 0.0, *[1.0] * 8).distance == np.inf


def test_a_quadratic_too_strong_to_add_is_refused():
    target = targets.logistic([[3.125], [1.0]], [0, 1])
    for eps in (1e154, 1e200):
        with pytest.raises(ValueError, match="strength must be a positive number; got inf"):
            target.regularised(accuracy=eps, fourth_moment=1e-3)
    with pytest.raises(ValueError, match="must be finite"):
        target.regularised(1e300, centre=[1e300])


@pytest.mark.parametrize(
    ("family", "weight", "prior"),
    [
        ("student-t", 1e9, priors.Normal(0.125)),  # the scale falls to e⁻³⁵⁵, where damping times a curvature overflows
        ("student-t", 1.0, priors.Normal(1e300, mean=1e12)),  # a gradient beyond float64 where the search begins
        ("bernoulli", 1.0, priors.Normal(1e300, mean=1e12)),
        ("gaussian", 1.0, priors.Normal(1e300, mean=1e12)),
    ],
)
def test_a_search_for_a_mode_beyond_float64_says_so(family, weight, prior):
    target = targets.glm([[0.0], [0.125], [0.125]], [0, 0, 1], family, weights=[0.0, 1.0, weight], prior=prior)
    with pytest.raises(ValueError, match=r"at x = .* must be finite in float64"):
        target.mode()


def test_a_search_whose_hessian_never_has_a_factor_says_so(monkeypatch):
    target = targets.glm([[1.0], [2.0]], [0.0, 1.0], "student-t")
    monkeypatch.setattr(target, "hessian", lambda x: np.array([[1.0, 1e30], [1e30, 1.0]]))
    with pytest.raises(RuntimeError, match=r"no mode was found in 1 Newton steps.*Scale the columns"):
        target.mode()


def test_a_column_that_float64_cannot_square_is_named_where_its_prior_is_flat():
    with pytest.raises(ValueError, match=r"prior_precision must be larger .* for column 0, where X is of rank 2 of 3"):
        targets.glm(
            [[1e-300, 1.0], [-1e-300, 0.5], [2e-300, -1.0]], [0.0, 1.0, 3.0], "gaussian", prior=priors.Flat()
        ).mode()


def test_rows_of_any_length_are_asked_whether_a_flat_prior_will_do():
    for size in (1e-320, 1e-200, 1.0, 1e200, 1.7e308):
        rows = np.array([[1.0], [0.5], [-1.0]]) * size
        targets.logistic(rows, [0, 1, 1], prior_precision=0.0)
        with pytest.raises(
            ValueError, match="its squares are" if size < 1e-160 else "the data are separable|do not over"
        ):
            targets.logistic(rows, [1, 1, 0], prior_precision=0.0)
    with pytest.raises(ValueError, match="X must be made of columns whose entries float64 can hold beside each other"):
        targets.logistic([[1e-300], [1e-300], [1e-300], [1e20]], [0, 1, 1, 0], prior_precision=0.0)
    with pytest.raises(ValueError, match="X, y and the prior must be of ordinary size"):
        targets.conjugate([[0.0], [0.125], [1e154]], np.zeros(3), 0.125, 0.0, 0.125, 0.125).exact_law  # noqa: B018


def test_constants_that_overflow_are_refused():
    target = targets.linear([[0.0], [1e154]], [0.0, 0.0], 0.625, 0.125)
    with pytest.raises(ValueError, match="a bound on a component's curvature must be finite in float64"):
        target.component_smoothness  # noqa: B018
    with pytest.raises(ValueError, match=r"centre must be so near to the mean that E\|x − c\|⁴ is finite"):
        targets.logistic([[1.0]], [1]).regularised(accuracy=0.125, fourth_moment="laplace", centre=[1.7e308])


@pytest.mark.parametrize("n", [None, 0, 1.5, "1", True])
def test_a_recipe_of_no_rows_is_refused(n):
    with pytest.raises(ValueError, match="n must be a whole number of at least 1"):
        gradients.Recipe(n, 1, reference="snapshot", period=1)


def test_eigenvalues_that_lanczos_does_not_find_are_bounded_or_named(monkeypatch):
    """Of 2001 columns whose sizes fall evenly by a factor of 1e6: the smallest curvatures lie close together."""
    X = scipy.sparse.diags(np.geomspace(1e-6, 1.0, 2001)).tocsr()
    target = targets.linear(X, np.ones(2001), prior_precision=1e-3)
    assert target.smoothness == pytest.approx(1.001)
    assert target.convexity == 1e-3
    monkeypatch.setattr(lanczos, "_RESTARTS", 1)
    how = whitening.whitening(target, "low rank", 3)
    assert np.isfinite(how.displace(np.ones(2001))).all()
    with pytest.raises(RuntimeError, match=r"the largest curvature was not found in 1 restarts .* Scale the columns"):
        lanczos.largest_eigenvalue(lambda z: z * np.geomspace(1.0, 2.0, 2001), 2001)


@pytest.mark.parametrize(("label", "mean"), [(0.0, 2.0**63), (3.35e168, 0.0), (1e155, 0.0)])
def test_a_prior_or_noise_beyond_all_measure_is_said_to_contradict_the_data(label, mean):
    X = np.zeros((7, 2))
    X[-1, 0] = 0.125
    with pytest.warns(UserWarning, match=r"contradicts the data's scale"):
        posterior = svrhmc.sample(targets.linear(X, [*np.zeros(6), label], 0.125, 0.125, mean), draws=20)
    assert np.isfinite(posterior.prior.shift).all()
    assert np.isfinite(posterior.prior.share).all()


def test_draws_beyond_all_measure_have_an_influence_without_warnings():
    draws = np.array([[[1.7e308, 1e160], [-1.7e308, -1e160], [1.7e308, 0.0]]])
    found = Influence.of(np.zeros(2), np.ones(2), draws, "")
    assert found.share.tolist() == [1.0, 1.0]
    assert np.isfinite(found.shift).all()
    assert len(found.entangled(draws)) == 0


def test_weights_below_0_are_refused_by_every_door():
    table = {"y": [0.0, 0.0, 0.125], "a": [0.0, -0.125, 0.25]}
    with pytest.raises(ValueError, match=r"weights must be numbers not below 0; got -0\.125 at row 1"):
        svrhmc.fit("y ~ 1", table, weights="a")
    with pytest.raises(ValueError, match="weights must be numbers with a sum below 1e"):
        svrhmc.fit("y ~ 1", {**table, "a": [1e308, 1e308, 1.0]}, weights="a")


def test_draws_that_hardly_differ_have_a_figure():
    one = np.nextafter(1.0, 2.0)
    for draws in ([1.0, one, one], [1.0, 1.0, 1.0], [0.0, 0.0, 5e-324]):
        assert "<svg" in figures.marginal_figure("a", np.array([draws]), 1.0, 1e-18)


@pytest.mark.parametrize("precision", [1e-100, 1e100])
def test_a_prior_that_float32_does_not_hold_stays_a_prior_beside_float32_rows(precision):
    X, y = np.array([[0.5], [1.0], [-1.0]], np.float32), [0.0, 1.0, 3.0]
    one, other = (targets.conjugate(rows, y, precision).exact_law.mean for rows in (X, X.astype(np.float64)))
    assert one == pytest.approx(other)


def test_estimators_refuse_inf_without_a_warning():
    with pytest.raises(ValueError, match="Input X contains infinity"):
        svrhmc.BayesianRegression(draws=20).fit(np.array([[np.inf], [-np.inf]], np.float32), [0.0, 1.0])


def test_a_constant_column_at_the_edge_of_float32_has_the_coefficient_0():
    model = svrhmc.BayesianRegression(draws=20).fit(np.array([[3e38], [3e38]], np.float32), [0.0, 1.0])
    assert model.coef_ == [0.0]


def test_data_of_a_model_that_jax_does_not_take_are_refused():
    pytest.importorskip("jax")
    for leaf, message in (
        (scipy.sparse.csr_matrix((2, 1)), r"data: 0 must be a dense array; got a sparse matrix \(csr_matrix\)"),
        (np.zeros((2, 1), np.longdouble), "data: 0 must be an array of numbers of up to 64 bits"),
        (np.zeros((2, 1), ">f8"), "data: 0 must be an array of .* in this machine's byte order; got dtype >f8"),
        (np.ma.masked_array(np.zeros((2, 1)), True), "data: 0 must be an array without a mask"),
        (pandas.Series([1, None], dtype="Int64"), "data: 0 must be an array of numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            targets.model(lambda p, row: 0.0, lambda p: 0.0, (leaf,), {"w": 0.0})


@pytest.mark.parametrize("prior", [(1e300, 1e300, 1.0, 1.0), (1.0, 0.0, 1e-200, 1e200)])
def test_a_conjugate_prior_that_overflows_is_refused(prior):
    with pytest.raises(ValueError, match="the prior must be made of numbers whose products float64 holds"):
        targets.conjugate([[1.0], [2.0]], [0.0, 1.0], *prior)
