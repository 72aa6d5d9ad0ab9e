"""`svrhmc.design`: columns, coding and priors before a fit, and what the priors expect."""

import numpy as np
import pytest

import svrhmc
from svrhmc.density.glm import glm
from svrhmc.results import prior_predictive as checked
from svrhmc.rows.forms import rows_of
from svrhmc.targets import families
from svrhmc.targets.priors import Flat, HalfNormal, Laplace, Normal, StudentT

RNG = np.random.default_rng(0)
N = 120
TABLE = {
    "y": 50 + RNG.normal(0, 5, N), "age": RNG.uniform(20, 70, N), "plan": RNG.choice(["a", "b", "c"], N),
    "left": RNG.choice(["no", "yes"], N), "count": RNG.poisson(2, N), "school": RNG.choice(list("uvwxyz"), N),
}  # fmt: skip


def test_columns_codings_and_priors_are_those_of_the_fit():
    formula, prior = "y ~ age + plan", {"age": Normal.with_sd(0.25, 0.5)}
    preview, posterior = svrhmc.design(formula, TABLE, prior=prior), svrhmc.fit(formula, TABLE, prior=prior, draws=50)
    assert preview.coefficients.names == posterior.names
    assert (preview.rows, preview.family) == (N, "gaussian")
    frame = preview.to_frame()
    np.testing.assert_allclose(frame.loc["age"], [TABLE["age"].mean(), TABLE["age"].std(), 0.5, 0.25])
    sd = TABLE["y"].std()
    np.testing.assert_allclose(frame.loc["plan[b]", "prior scale"], 2.5 * sd, rtol=1e-6)
    np.testing.assert_allclose(frame.loc["Intercept"].iloc[2:], [TABLE["y"].mean(), 5 * sd], rtol=1e-6)
    text = " ".join(str(preview).split())
    assert f"Prior: {posterior.prior.said}." in text
    assert "Levels of categories are compared with plan[a]." in text
    coded = svrhmc.design("y ~ C(plan, Treatment('b')) + C(school, Sum)", TABLE)
    assert coded.coefficients.names == svrhmc.fit(coded.design.formula, TABLE, draws=50).names
    assert "120 rows" in text
    assert "<table>" in preview._repr_html_()


@pytest.mark.parametrize(
    ("formula", "family", "names"),
    [
        ("left ~ age", None, ["share of left = yes"]),
        ("left ~ 1", None, ["share of left = yes"]),
        ("plan ~ age", None, ["share of plan = a", "share of plan = b", "share of plan = c"]),
        ("count ~ s(age) + (age | school)", None, [f"{word} of count" for word in ("mean", "sd", "least", "largest")]),
        (["y ~ age", "sigma ~ plan"], None, [f"{word} of y" for word in ("mean", "sd", "least", "largest")]),
    ],
)
def test_what_the_default_prior_expects_holds_the_table(formula, family, names):
    expected = svrhmc.design(formula, TABLE, family).prior_predictive
    assert list(expected.names) == names
    low, here, high = (
        np.array([expected[word][j] for j in range(len(names))]) for word in ("5%", "in the table", "95%")
    )
    assert (low <= high).all()
    assert ((low <= here) & (here <= high)).sum() >= len(names) - 1


def test_a_prior_that_contradicts_the_table_is_said_to():
    prior = {"Intercept": Normal.with_sd(1.0, 0.0), "age": Normal.with_sd(0.001), "sigma": HalfNormal(1.0)}
    preview = svrhmc.design("y ~ age", TABLE, prior=prior)
    assert "Outside of what the prior expects in nine tables of ten: mean of y" in " ".join(str(preview).split())
    assert "No prior predictive check: a flat prior" in str(svrhmc.design("left ~ age", TABLE, prior=Flat()))
    assert "No prior predictive" in svrhmc.design("left ~ age", TABLE, prior=Flat())._repr_html_()


def test_draws_follow_the_prior():
    """The mean of squares (of probabilities below a quartile, for long tails) of 400 draws, |z| < 4.5."""
    priors = [Normal.with_sd(2.0, 1.0), Laplace(3.0), StudentT(3, scale=2.0), Normal.with_sd(0.5)]
    target = glm(RNG.normal(size=(20, 4)), RNG.integers(0, 2, 20), families.bernoulli(), prior=priors)
    x = checked._draws(target, rows_of(target.form()), np.random.default_rng(1))
    from scipy import stats

    laws = [stats.norm(1, 2), stats.laplace(0, 3), stats.t(3, 0, 2), stats.norm(0, 0.5)]
    wrong = [stats.norm(1, 3), stats.laplace(0, 4.5), stats.t(3, 0, 3), stats.norm(0, 0.75)]
    for draws, law, other in zip(x.T, laws, wrong, strict=True):
        assert stats.kstest(draws, law.cdf).pvalue > 1e-5
        assert stats.kstest(draws, other.cdf).pvalue < 1e-3  # negative control


def test_effects_of_groups_follow_their_prior():
    from svrhmc.fitting.regression import ModelRequest, build_models, prepare
    from svrhmc.tables.formula import parse_formulas

    row_values = dict.fromkeys(("weights", "offset", "exposure", "trials"))
    prior = {"1 | school": HalfNormal(2.0), "age | school": HalfNormal(0.1)}
    formulas = parse_formulas("y ~ age + (age | school)")
    prepared = prepare(TABLE, ModelRequest(formulas, None, row_values, prior, None, False, None))
    target = build_models(prepared).models[0].target
    form = rows_of(target.shown().form())
    (term,) = target.group_terms
    x = checked._draws(target, form, np.random.default_rng(0))[:, term.effects].reshape(400, 6, 2)
    squares = (x**2).mean(axis=(0, 1))  # E tau² = scale²
    error = (x**2).mean(axis=1).std(axis=0) / 20
    scales = np.array([group_scale(target, j) for j in range(2)])
    assert (np.abs(squares - scales**2) < 4.5 * error).all()
    assert (np.abs(squares - 4 * scales**2) > 4.5 * error).all()  # negative control


def group_scale(target, j):
    """Of the half-normal prior of the j-th standard deviation, by its log density of log tau."""
    heavy = target.group_terms[0].covariance.heavy
    phi = np.full((3, 2), np.log([0.01, 0.5, 1.0])[:, None])
    values = -heavy.values(phi)[:, j] - phi[:, j]  # log density of tau: −tau²/2s²
    return np.sqrt((1.0 - 0.25) / 2 / (values[1] - values[2]))


def test_what_cannot_be_looked_at_before_a_fit_is_refused(tmp_path):
    with pytest.raises(ValueError, match="table must be one in memory, to be looked at before a fit; got several"):
        svrhmc.design("y ~ age", [TABLE, TABLE])
    posterior = svrhmc.fit("y ~ age", TABLE, draws=50)
    with pytest.raises(ValueError, match=r"prior must be one of svrhmc\.targets.priors"):
        svrhmc.design("y ~ age", TABLE, prior=posterior)


def test_the_shell_prints_it_and_fits_nothing(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from svrhmc.shell import app

    monkeypatch.chdir(tmp_path)
    lines = ["left,age,unit", *(f"{a},{b:.1f},mg" for a, b in zip(TABLE["left"], TABLE["age"], strict=True))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    result = CliRunner().invoke(app.app, ["fit", "a.csv", "--target", "left", "--design"])
    assert result.exit_code == 0, result.output
    assert "column 'unit' is left out" in result.output
    assert "Design of left ~ age" in result.output
    assert "share of left = yes" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    wrong = CliRunner().invoke(app.app, ["fit", "a.csv", "--target", "left", "--design", "--family", "poisson"])
    assert wrong.exit_code == 2
    assert "error: a.csv: the response 'left' holds texts" in wrong.output
