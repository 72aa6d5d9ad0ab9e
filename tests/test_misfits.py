"""Failures of a model to fit are named with what to try; a model that is right is left alone.

Residuals are looked at here at the mode, which takes no draws. A right model may be called wrong in one of a hundred
fits: the number of such fits is compared with that rate, with a chance of 10⁻⁴ that a right count fails.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_matrix

import svrhmc
from svrhmc.fitting import regress
from svrhmc.fitting.regression import build_regression
from svrhmc.results import checks
from svrhmc.results.advice import Advice
from svrhmc.results.base import even_rows
from svrhmc.results.checks import find_misfits
from svrhmc.results.left_out import leave_out_rows
from svrhmc.rows.base import DenseRows
from svrhmc.rows.columns import ColumnRows
from svrhmc.rows.forms import RowsForm
from svrhmc.rows.sparse import SparseRows
from svrhmc.targets import families
from svrhmc.targets.priors import Normal


def draw(family, t, rng, shape=2.0):
    mean, p = np.exp(t), 1 / (1 + np.exp(-t))
    if family == "categorical":
        odds = np.exp(np.stack([0 * t, t, -t], axis=1))
        return (rng.random(len(t))[:, None] > (odds / odds.sum(axis=1, keepdims=True)).cumsum(axis=1)).sum(axis=1)
    return {
        "gaussian": lambda: t + rng.normal(size=len(t)),
        "student-t": lambda: t + rng.standard_t(4, size=len(t)),
        "bernoulli": lambda: (rng.random(len(t)) < p).astype(float),
        "binomial": lambda: rng.binomial(10, p),
        "poisson": lambda: rng.poisson(mean),
        "negative-binomial": lambda: rng.negative_binomial(shape, shape / (shape + mean)),
        "gamma": lambda: rng.gamma(shape, mean / shape),
        "log-normal": lambda: np.exp(t + 0.7 * rng.normal(size=len(t))),
        "inverse-gaussian": lambda: rng.wald(mean, shape),
        "exponential": lambda: mean * rng.exponential(size=len(t)),
        "weibull": lambda: mean * rng.weibull(shape, size=len(t)),
        "log-logistic": lambda: np.exp(t + 0.7 * rng.logistic(size=len(t))),
        "beta": lambda: np.clip(rng.beta(5 * p, 5 * (1 - p)), 1e-12, 1 - 1e-12),
        "beta-binomial": lambda: rng.binomial(10, rng.beta(5 * p, 5 * (1 - p))),
        "geometric": lambda: rng.geometric(1 / (1 + mean)) - 1,
        "hurdle-poisson": lambda: behind_a_hurdle(lambda: rng.poisson(mean), rng),
        "hurdle-negative-binomial": lambda: behind_a_hurdle(
            lambda: rng.negative_binomial(shape, shape / (shape + mean)), rng
        ),
        "zero-inflated-poisson": lambda: np.where(rng.random(len(t)) < 0.3, 0, rng.poisson(mean)),
        "zero-inflated-negative-binomial": lambda: np.where(
            rng.random(len(t)) < 0.3, 0, rng.negative_binomial(shape, shape / (shape + mean))
        ),
        "ordinal": lambda: np.digitize(t + rng.logistic(size=len(t)), [-1.0, 1.5]),
    }[family]()


def behind_a_hurdle(count, rng):
    """Counts that are drawn until they are above 0, and zeros in place of three in ten."""
    y = count()
    while (none := y == 0).any():
        y = np.where(none, count(), y)
    return np.where(rng.random(len(y)) < 0.3, 0, y)


def found(X, y, family, **more):
    if family in ("binomial", "beta-binomial"):
        more["trials"] = np.full(len(y), 10)
    made = build_regression(X, y, family, **more)
    law = made.target.exact_law
    return find_misfits(made.target.form(), made.target.mode() if law is None else law.mean, made.names, 1, Advice())


def rows(n, rng):
    return np.column_stack([rng.normal(size=n), rng.exponential(size=n)])


SETTINGS = [(60, 0.0), (400, -2.0), (2000, 0.5)]  # rows, and an intercept: events that are rare are among them
FITS = 12
LOCAL = (
    "student-t", "hurdle-negative-binomial", "zero-inflated-poisson", "zero-inflated-negative-binomial", "beta",
    "beta-binomial", "inverse-gaussian",
)  # fmt: skip


@pytest.mark.untraced
@pytest.mark.ordinary(lambda family: family not in LOCAL)  # their modes are looked for at length
@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_right_model_is_called_wrong_once_in_a_hundred_fits_at_most(family):
    wrong, fits = 0, 0
    for n, shift in SETTINGS:
        for seed in range(FITS):
            rng = np.random.default_rng([seed, n])
            X = rows(n, rng)
            y = draw(family, shift + X @ [0.7, -0.3], rng)
            if len(np.unique(y)) > 1:
                said, looked = found(X, y, family)
                assert looked == n
                wrong, fits = wrong + bool(said), fits + 1
    assert fits > 2 * FITS
    assert stats.binom.sf(wrong - 1, fits, 0.01) > 1e-4


def data(n=3000, seed=1):
    rng = np.random.default_rng(seed)
    return rng, rows(n, rng)


def overdispersed():
    rng, X = data()
    return X, draw("negative-binomial", 0.5 + X[:, 0] / 2, rng, 1.0), "poisson"


def zero_inflated(family):
    rng, X = data()
    return X, np.where(rng.random(len(X)) < 0.4, 0, rng.poisson(np.exp(1 + X[:, 0] / 2))), family


def heavy_tailed():
    rng, X = data()
    return X, X[:, 0] + rng.standard_t(3, size=len(X)), "gaussian"


def outlier():
    rng, X = data(300)
    y = X[:, 0] + rng.normal(size=len(X))
    y[17] += 12.0
    return X, y, "gaussian"


def curved(family):
    rng, X = data()
    return X, draw(family, 0.5 + 0.4 * X[:, 0] ** 2, rng), family


def wrong_link():
    """The complementary log-log link, whose curve is not symmetric."""
    rng, X = data(20_000)
    return X, (rng.random(len(X)) < 1 - np.exp(-np.exp(2 * X[:, 0]))).astype(float), "bernoulli"


def clustered():
    rng, X = data()
    p = 1 / (1 + np.exp(-X[:, 0] - rng.normal(size=len(X))))
    return X, rng.binomial(10, p), "binomial"


def interacting():
    rng, X = data()
    return X, draw("categorical", 1.5 * np.abs(X[:, 0]) - 1, rng), "categorical"


WRONG = {
    "overdispersed counts": (overdispersed, "Dispersion: y varies", "family='negative-binomial'"),
    "zeros under Poisson": (lambda: zero_inflated("poisson"), "Zeros: 1,3", "family='negative-binomial'"),
    "zeros under negative binomial": (lambda: zero_inflated("negative-binomial"), "Zeros: ", "family='hurdle-negative-binomial', which has a probability of its own for zeros"),
    "heavy tails": (heavy_tailed, "rows are beyond 3 standard deviations", "family='student-t'"),
    "an outlier": (outlier, "Outliers: row 17 is more than 8 standard deviations", "family='student-t'"),
    "a curve under gaussian": (lambda: curved("gaussian"), "Pattern: along x0", "splines beside x0"),
    "a curve under Poisson": (lambda: curved("poisson"), "Pattern: along x0", "splines beside x0"),
    "a curve under gamma": (lambda: curved("gamma"), "Pattern: along x0", "splines beside x0"),
    "a curve under bernoulli": (lambda: curved("bernoulli"), "Pattern: along x0", "splines beside x0"),
    "a wrong link": (wrong_link, "Calibration: where the model says", "bernoulli('probit')"),
    "clustered trials": (clustered, "Dispersion: y varies", "family='beta-binomial'"),
    "a curve of classes": (interacting, "Pattern: along x0", "splines beside x0"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_model_is_named_with_what_to_try(name):
    make, said, advice = WRONG[name]
    whole = " ".join(found(*make())[0])
    assert said in whole
    assert advice in whole


@pytest.mark.parametrize("name", ["overdispersed counts", "heavy tails"])
def test_what_is_advised_mends_it(name):
    X, y, _ = WRONG[name][0]()
    family = families.student_t(3.0) if name == "heavy tails" else "negative-binomial"
    assert found(X, y, family) == ((), len(y))


def test_a_law_that_is_too_narrow_is_no_pattern_along_a_column():
    """Counts that vary too much have mean residuals below 0 everywhere: a straight effect is not called bent for it."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(20_000, 2))
    sentences = found(X, draw("negative-binomial", 0.5 + X[:, 0] / 2, rng, 0.7), "poisson")[0]
    assert any(one.startswith("Dispersion") for one in sentences)
    assert not [one for one in sentences if one.startswith("Pattern")]
    bent = found(X, draw("negative-binomial", 0.5 + X[:, 0] ** 2 / 3, rng, 0.7), "poisson")[0]
    assert [one for one in bent if one.startswith("Pattern: along x0")]  # a bend is still seen


def test_an_outlier_is_named_by_its_row_in_the_table():
    X, y, _ = outlier()
    lost = 5
    table = {"x": np.r_[np.full(lost, np.nan), X[:, 0]], "y": np.r_[np.zeros(lost), y]}
    weights = np.r_[np.zeros(lost + 3), np.ones(len(y) - 3)]

    def said(**rows):
        return svrhmc.fit("y ~ x", table, missing="drop", draws=100, certificate=False, **rows).misfits[0]

    assert said().startswith(f"Outliers: row {17 + lost} is more than 8 standard deviations")
    assert "(counted from 0)" in said()
    # rows of weight 0 are left out beneath the table, which no number speaks of
    assert said(weights=weights).startswith("Outliers: row 14 is")
    assert "(counted from 0, of the rows that were fitted)" in said(weights=weights)


@pytest.mark.parametrize("kind", ["dense", "sparse", "a formula"])
def test_a_bend_is_seen_behind_any_number_of_categories(kind):
    """Columns of two values cannot bend, and take no places."""
    rng = np.random.default_rng(4)
    n, levels = 3000, 60
    x, region = rng.normal(size=n), rng.integers(0, levels, n)
    y = 0.5 * x**2 + rng.normal(size=n)
    if kind == "a formula":
        table = {"y": y, "region": np.array([f"r{k:02d}" for k in region]), "x": x}
        sentences = svrhmc.fit("y ~ region + x", table, draws=20, certificate=False).misfits
        assert any("Pattern: along x residuals" in one for one in sentences)
        return
    X = np.column_stack([region[:, None] == np.arange(1, levels), x]).astype(float)
    sentences = found(csr_matrix(X) if kind == "sparse" else X, y, "gaussian")[0]
    assert any(f"Pattern: along x{levels - 1} residuals" in one for one in sentences)
    straight = found(X, x + rng.normal(size=n), "gaussian")[0]
    assert straight == ()


def test_of_very_many_columns_the_most_promising_are_looked_at(monkeypatch):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4000, 40))
    y = X[:, 33] ** 2 / 2 + rng.normal(size=4000)
    monkeypatch.setattr(checks, "_MOST_VALUES", 4000 * 3)
    monkeypatch.setattr(checks, "_SCREENING_ROWS", 1000)
    assert any("Pattern: along x33 residuals" in one for one in found(X, y, "gaussian")[0])
    assert found(X, X[:, 33] + rng.normal(size=4000), "gaussian")[0] == ()


def test_rows_of_every_kind_give_columns():
    X = np.random.default_rng(6).normal(size=(7, 4)) * (np.arange(4) % 2)
    kinds = [DenseRows(X), SparseRows(csr_matrix(X)), ColumnRows(np.asfortranarray(X))]
    for one in kinds:
        assert np.array_equal(one.column_values(np.array([3, 0])), X[:, [3, 0]])
    weights = np.arange(7.0)
    assert [list(one.stored_weights(weights)) for one in kinds] == [[21.0] * 4, [0.0, 21.0, 0.0, 21.0], [21.0] * 4]


def test_a_row_of_weight_w_counts_as_w_rows():
    rng = np.random.default_rng(3)
    X = np.repeat(np.linspace(-1, 1, 5), 2)[:, None]
    y, weights = np.tile([0.0, 1.0], 5), rng.integers(200, 400, 10)
    long, count = np.repeat(X, weights, axis=0), np.repeat(y, weights)
    grouped, separate = found(X, y, "bernoulli", weights=weights), found(long, count, "bernoulli")
    assert grouped[0] == separate[0]
    assert found(X, y, "bernoulli", weights=weights + 0.5) == ((), 0)  # no counts of rows
    assert found(X, y, "bernoulli") == ((), 0)  # too few rows


def test_summary_report_and_files_say_it(tmp_path):
    X, y, _ = zero_inflated("poisson")
    posterior = svrhmc.fit("y ~ a + b", {"y": y, "a": X[:, 0], "b": X[:, 1]}, "poisson", draws=100)
    posterior.save(tmp_path / "model.posterior")
    for one in (posterior, svrhmc.Posterior.load(tmp_path / "model.posterior")):
        text = " ".join(str(one.summary()).split())
        assert "Misfit: Zeros: " in text
        assert "family='negative-binomial'" in text
        assert "Misfit: Zeros: " in one._repr_html_()
        page = one.report(tmp_path / "report.html").read_text()
        assert "The numbers are computed correctly" in page
        assert "can be trusted" not in page
        assert '<div class="verdict open"><h2>The model</h2><p>The model does not fit the data. Zeros: ' in page
    right = svrhmc.fit("y ~ a", {"y": draw("poisson", X[:, 0], np.random.default_rng(0)), "a": X[:, 0]}, draws=100)
    assert right.misfits == ()
    assert "Model: no misfit was found in 3,000 rows (looked for: zeros" in " ".join(str(right.summary()).split())


def many_small_groups(seed, family="bernoulli"):
    rng = np.random.default_rng(seed)
    g, x = rng.integers(0, 500, 2000), rng.normal(size=2000)
    table = {"x": x, "g": [f"g{k}" for k in g], "y": draw(family, 0.5 * x + rng.normal(0, 1, 500)[g], rng)}
    return svrhmc.fit("y ~ x + (1 | g)", table, family, draws=100)


def many_columns(seed, sd, prior_sd, family="bernoulli", n=1000, square=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 100))
    t = X @ rng.normal(0, sd, 100)
    y = draw(family, t + square * t**2, rng)
    return regress(X, y, family, prior=prior_sd and Normal.with_sd(prior_sd), draws=100)


@pytest.mark.untraced
@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian"])
def test_many_small_groups_are_no_misfit(family):
    """At the posterior mean given all rows, fitted values are drawn inward, and residuals go up along them."""
    assert [many_small_groups(seed, family).misfits for seed in range(3)] == [()] * 3


@pytest.mark.parametrize("prior_sd", [0.2, 0.3, 1.0])
@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_a_prior_that_is_right_too_wide_or_too_narrow_is_no_misfit_of_the_form(family, prior_sd):
    assert [many_columns(seed, 0.3, prior_sd, family).misfits for seed in range(2)] == [()] * 2


@pytest.mark.parametrize("prior_sd", [0.2, 0.3, None])
def test_a_missing_square_is_found_under_any_prior(prior_sd):
    assert "Calibration: " in " ".join(many_columns(0, 0.1, prior_sd, n=4000, square=1.0).misfits)


def test_predictions_that_are_much_too_sure_are_named_with_a_prior_to_try():
    """The weak prior of 200 coefficients leaves them to 1,000 rows, which separate the classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 200))
    y = draw("bernoulli", X @ rng.normal(0, 0.3, 200), rng)
    sentence = " ".join(regress(X, y, "bernoulli", draws=100).misfits)
    assert "a narrower prior" in sentence
    assert "LearntScale" in sentence


def thirty_columns(seed, sd):
    """200 rows of yes and no under the default prior, N(0, 2.5²), of coefficients that vary by sd."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 30))
    return regress(X, draw("bernoulli", X @ rng.normal(0, sd, 30), rng), "bernoulli", draws=200)


def test_predictions_that_are_too_sure_are_named_before_classes_are_separated():
    """90% intervals hold two thirds of the true probabilities; a prior that is right is no misfit."""
    for seed in range(3):
        (sentence,) = thirty_columns(seed, 0.5).misfits
        assert "much too sure" in sentence
        assert "LearntScale" in sentence
        assert thirty_columns(seed, 2.5).misfits == ()


def normal_draws(form, count=200):
    """The mode of a form, and draws of the normal law there."""
    mode = np.zeros(len(form.prior_mean))
    mode[form.rows.columns :] = np.linspace(-1, 1, len(mode) - form.rows.columns)
    for _ in range(50):
        _, gradient, hessian = form.derivatives(mode)
        hessian = hessian + np.diag(form.prior_precision)
        mode = mode - np.linalg.solve(hessian, gradient + form.prior_precision * (mode - form.prior_mean))
    root = np.linalg.cholesky(np.linalg.inv(hessian))
    return mode, mode + np.random.default_rng(0).normal(size=(count, len(mode))) @ root.T


def called_wrong(family, sets, n=200, effect=0.0, prior_precision=0.01):
    """In how many of some data sets a right model, whose columns hardly matter, is called wrong."""
    wrong = 0
    for seed in range(sets):
        rng = np.random.default_rng([seed, n])
        x, plan = rng.normal(size=n), rng.integers(0, 3, n)
        X = np.column_stack([np.ones(n), x, plan == 1, plan == 2])[:, 1 if family == "ordinal" else 0 :].astype(float)
        form = build_regression(X, draw(family, effect * x, rng), family, intercept=False).target.form()
        form = replace(form, prior_precision=np.full_like(form.prior_precision, prior_precision))
        mode, draws = normal_draws(form)
        names = tuple(map(str, range(len(mode))))
        first = 0 if family == "ordinal" else 1
        wrong += bool(find_misfits(form, mode, names, first, Advice(), draws=lambda _, draws=draws: draws)[0])
    return wrong


RIGHT_AND_WEAK = [
    ("bernoulli", 200, 0.0), ("bernoulli", 1000, 0.0), ("bernoulli", 200, 0.5), ("poisson", 300, 0.0),
    ("ordinal", 400, 0.2), ("categorical", 400, 0.0),
]  # fmt: skip


@pytest.mark.untraced
@pytest.mark.parametrize(("family", "n", "effect"), RIGHT_AND_WEAK)
def test_a_right_model_whose_columns_hardly_matter_is_not_called_wrong(family, n, effect):
    """At most 2 of 40: more have a chance below 10⁻² at a rate of 1 in 100."""
    assert called_wrong(family, 40, n, effect) <= 2


def test_sorting_rows_by_what_the_others_say_of_them_calls_right_models_wrong(monkeypatch):
    """The negative control: where predictions hardly differ rows are sorted by their own y. At a rate of 1 in 100, four
    of 20 have a chance of 4e-5.
    """
    bend = checks._Outcome.bend

    def bend_along_left_out(outcome, column=None, tests=1):
        if column is None:
            p = outcome.form.loss.mean(outcome.predictors).mean(axis=0)
            column = np.log(p / (1 - p)) - outcome.form.y * 4 / len(p)  # what about four coefficients make of it
        return bend(outcome, column, tests)

    monkeypatch.setattr(checks._Outcome, "bend", bend_along_left_out)
    monkeypatch.setattr(checks._Outcome, "bend_along_predictor", lambda outcome, tests=1: outcome.bend(tests=tests))
    assert called_wrong("bernoulli", 20) >= 4


def test_too_few_zeros_are_called_that_and_no_hurdle_is_advised():
    rng, X = data()
    y = draw("poisson", 1 + X[:, 0] / 2, rng)
    sentence = found(X[y > 0], y[y > 0], "poisson")[0][0]
    assert sentence.startswith("Zeros: 0 of 2,")
    assert "fewer zeros than it expects" in sentence
    assert "hurdle" not in sentence


def test_an_outlier_is_named_by_its_row_in_a_table_of_which_some_rows_are_checked():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120_000, 1))
    y = x[:, 0] + rng.normal(size=len(x))
    row = even_rows(len(x), checks._MOST_ROWS, 0)[30_000]
    y[row] += 20
    assert f"Outliers: row {row:,} is more than 8 standard deviations" in found(x, y, "gaussian")[0][0]


def test_of_a_prior_that_contradicts_the_data_no_narrower_one_is_advised():
    rng = np.random.default_rng(0)
    x, plan = rng.normal(size=600), rng.choice(["a", "b", "c"], 600)
    y = draw("bernoulli", x + (plan == "b") / 2, rng)
    with pytest.warns(UserWarning, match="Take a wider prior"):
        fit = svrhmc.fit("y ~ x + plan", {"x": x, "plan": plan, "y": y}, prior={"x": Normal.with_sd(0.01)}, draws=100)
    assert fit.misfits
    for sentence in fit.misfits:
        assert sentence.endswith("The prior or the noise that contradicts the data may be why: change that first.")
        assert "Try" not in sentence


def test_rows_whose_columns_are_the_same_are_not_sorted_by_y():
    rng = np.random.default_rng(0)
    for count in (2, 7, 40):
        x = rng.integers(0, count, 2000) / count
        assert regress(x[:, None], draw("gaussian", x, rng), draws=100).misfits == ()


@pytest.mark.parametrize("leverage", [0.01, 0.3, 0.7])
def test_what_is_known_without_a_row(leverage):
    """A normal law times a normal likelihood gives back the law; times a logistic one, quadrature does."""
    t, y, noise = np.array([0.3]), np.array([1.0]), 0.7
    without = leverage * noise / (1 - leverage)
    mean, variance = t + (y - t) * without / (without + noise), leverage * noise
    found = leave_out_rows(of_one_row(families.gaussian(noise), y), mean, mean + np.sqrt(variance) * EVEN)
    assert found.mean(lambda t: t) == pytest.approx(t, abs=1e-3)
    assert found.mean(lambda s: (s - t) ** 2) == pytest.approx(without, rel=0.02)
    grid = t + np.sqrt(without * 10) * np.linspace(-9, 9, 4001)
    density = np.exp(-0.5 * (grid - t) ** 2 / (without * 10)) / (1 + np.exp(-grid))
    mean = np.average(grid, weights=density)
    sd = np.sqrt(np.average((grid - mean) ** 2, weights=density))
    found = leave_out_rows(of_one_row(families.bernoulli(), y), np.array([mean]), mean + sd * EVEN)
    assert found.mean(lambda t: t) == pytest.approx(t, abs=0.02 + 0.02 * without)
    assert found.mean(lambda s: (s - t) ** 2) == pytest.approx(without * 10, rel=0.05)


EVEN = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)[:, None]


def of_one_row(loss, y):
    return RowsForm(DenseRows(np.ones((1, 1))), loss.labels(y, 1), loss, np.ones(1), np.zeros(1))
