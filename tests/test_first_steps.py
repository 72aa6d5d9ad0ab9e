"""What a newcomer writes first: priors, offsets, weights and labels as other libraries have them, and slips."""

import csv
import re
import traceback

import numpy as np
import pytest
from typer.testing import CliRunner

import svrhmc
from svrhmc.checkpoint import Checkpoint, CheckpointError
from svrhmc.core.errors import DataError
from svrhmc.families import family_of
from svrhmc.fitting import regression
from svrhmc.results.sensitivity import sensitivity_of
from svrhmc.shell import app
from svrhmc.tables.formula import split_offsets
from svrhmc.targets.priors import Normal

RNG = np.random.default_rng(0)
N = 200
TABLE = {
    "age": RNG.uniform(20, 70, N),
    "months": RNG.integers(1, 13, N).astype(float),
    "plan": RNG.choice(["a", "b"], N),
}
TABLE |= {"claims": RNG.poisson(0.2 * TABLE["months"]), "part": RNG.uniform(0.5, 2, N), "times": RNG.integers(1, 3, N)}
TABLE |= {"trials": TABLE["months"] + 4, "won": RNG.binomial(4, 0.3, N)}


def words(printed):
    return " ".join(str(printed).split())


def test_offsets_in_a_formula_are_those_of_the_arguments():
    by_formula = svrhmc.fit("claims ~ age + offset(log(months))", TABLE, weights="times", draws=40)
    by_argument = svrhmc.fit("claims ~ age", TABLE, exposure="months", weights="times", draws=40)
    np.testing.assert_array_equal(by_formula.trace.draws, by_argument.trace.draws)
    assert "; with exposure 'months' and weights 'times'; 200 rows" in words(by_formula.summary())
    assert "Model: no misfit was found" in words(by_formula.summary())
    assert "poisson, with exposure 'months' and weights 'times'" in words(svrhmc.compare(by_formula, by_argument))
    assert "; with exposure 'months'; 200 rows" in words(svrhmc.design("claims ~ offset(log(months))", TABLE))


@pytest.mark.parametrize(
    ("formula", "rest", "columns"),
    [
        ("y ~ x + offset( np.log(`a b`) ) + z", "y ~ x + z", {"exposure": "a b"}),
        ("y ~ offset(a) + offset(log(b)) + x", "y ~ 1 + x", {"offset": "a", "exposure": "b"}),
        ("y ~ offset(a)", "y ~ 1", {"offset": "a"}),
        ("y ~ exp(x + offset(a))", "y ~ exp(x + offset(a))", {}),
        ("y ~ x + offset(2 * a)", "y ~ x + offset(2 * a)", {}),
        ("y ~ x - offset(a)", "y ~ x - offset(a)", {}),
    ],
)
def test_offsets_are_split_off_where_they_stand_by_themselves(formula, rest, columns):
    assert split_offsets(formula) == (rest, columns)


def test_what_was_not_checked_is_said():
    fitted = svrhmc.fit("claims ~ age", TABLE, weights="part", draws=40)
    assert "Model: it was not checked whether it fits the rows, as that takes weights that are whole" in words(
        fitted.summary()
    )
    assert "Model: it was not checked" not in words(svrhmc.fit("claims ~ age", TABLE, draws=40).summary())
    given = svrhmc.design("claims ~ age", TABLE, weights=TABLE["part"], offset=np.zeros(N))
    assert "with an offset or exposure given as numbers and weights given as numbers" in words(given)


def test_trials_mean_a_binomial_family():
    assert "family 'binomial' (its rows have trials)" in words(svrhmc.design("won ~ age", TABLE, trials="trials"))
    assert svrhmc.design("won ~ age", TABLE).family == "poisson"


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (("claims ~ age",), {"data": TABLE}, "unexpected keyword argument 'data': it is called 'table' here"),
        (("claims ~ age", TABLE), {"misssing": "drop"}, "did you mean 'missing'?"),
        (("claims ~ age", TABLE), {"prior": {"agee": Normal()}}, "did you mean 'age'?"),
        (("claims ~ age", TABLE), {"prior": "flat"}, "Normal.with_sd(2.5) for all coefficients"),
        (("claims ~ age", TABLE), {"prior": {"age": 2.5}}, "or Flat()"),
        (("claims ~ age", TABLE), {"offset": "log(months)"}, "the logarithm of a column is exposure='months'"),
        (("claims ~ offset(months)", TABLE), {"offset": "age"}, "offset must be given once"),
        (("claims ~ age^2", TABLE), {}, "write I(age**2)"),
        (("claims ~ exp(offset(months))", TABLE), {}, "fit(…, exposure='column') for its logarithm"),
    ],
)
def test_slips_are_answered_with_what_to_write(arguments, keywords, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        svrhmc.fit(*arguments, **keywords)


def test_the_name_of_a_method_is_answered_with_its_family():
    for name in ("logistc", "logistic"):
        with pytest.raises(ValueError, match="did you mean 'bernoulli'"):
            family_of(name)
    with pytest.raises(ValueError, match="did you mean 'poisson'\\?"):
        family_of("poison")


def spelled(others):
    answers = np.array(["yes", "Yes", "y", "NO", " no"], object)[np.arange(N) % 5]
    answers[: len(others)] = others
    return {"churn": answers, "age": TABLE["age"]}


def test_yes_and_no_in_several_spellings_are_refused_beside_other_answers():
    with pytest.raises(DataError, match=re.escape("holds other texts too ('?' in 1 row, 'unknown' in 3 rows)")):
        svrhmc.design("churn ~ age", spelled(["unknown"] * 3 + ["?"]))
    with pytest.raises(DataError, match=re.escape("write {churn in ['Yes', 'y', 'yes']}")):
        svrhmc.design("churn ~ age", spelled(["unknown"]))
    classes = {"churn": np.array(["yes", "no", "maybe"], object)[np.arange(N) % 3], "age": TABLE["age"]}
    assert svrhmc.design("churn ~ age", classes).family == "categorical"
    mostly_others = spelled(["never", "once", "often"] * (N // 4))
    assert svrhmc.design("churn ~ age", mostly_others).family == "categorical"


def test_long_lists_are_cut_in_titles():
    fitted = svrhmc.fit("{churn in ['yes', 'Yes', 'y']} ~ age", spelled([]), draws=40)
    assert "Posterior of {churn in ['yes', …]} ~ age, family 'bernoulli'" in words(fitted.summary())
    assert "modelled is the probability that churn in ['yes', …]; 200 rows" in words(fitted.summary())
    assert "effects on the probability that churn in ['yes', …] mean" in words(fitted.effects())


def test_effects_over_some_rows_say_so_in_their_head():
    fitted = svrhmc.fit("claims ~ age", TABLE, draws=40)
    assert words(fitted.effects(rows=50)).startswith(
        "Average marginal effects on the mean of claims, averaged over 50 of 200 rows (rows=200 takes all)"
    )
    assert "averaged over" not in str(fitted.effects())
    many = {name: np.tile(TABLE[name], 55) for name in ("age", "claims")}
    large = svrhmc.fit("claims ~ age", many, draws=40)
    assert "2,000 of 11,000 rows (rows=10000 takes all that are kept; effects(table=…)" in words(
        large.effects(draws=10)
    )
    assert "10,000 of 11,000 rows (no more are kept; effects(table=…)" in words(large.effects(rows=11_000, draws=10))


def test_a_clash_is_named_by_its_own_coefficient():
    """Power scaling moves others than the coefficient that its prior holds fast."""
    table = {"x": RNG.normal(size=100), "z": RNG.normal(size=100)}
    table["y"] = table["z"] + RNG.normal(size=100)
    with pytest.warns(UserWarning, match="the prior of x is"):
        clashing = svrhmc.fit("y ~ x + z", table, prior={"x": Normal.with_sd(0.01, mean=3)}, draws=200)
    assert "Clash: the prior of x is" in words(clashing.sensitivity())
    assert "the data say little" not in words(clashing.sensitivity())
    assert "Clash" not in words(svrhmc.fit("y ~ x + z", table, draws=200).sensitivity())
    assert "Prior:\n  Given: x ~ N(3, 0.01²)." in str(clashing.prior)
    assert "array" not in str(clashing.prior)


def test_separated_rows_are_said_to_be():
    table = {"y": TABLE["age"] > 45, "age": TABLE["age"], "plan": TABLE["plan"]}
    assert "Separation: " in words(svrhmc.fit("y ~ age + plan", table, draws=40).summary())
    table["y"] = table["y"].copy()
    table["y"][np.argmax(table["age"])] = False
    assert "Separation: " not in words(svrhmc.fit("y ~ age + plan", table, draws=40).summary())


def test_smooths_go_by_the_text_of_the_formula():
    fitted = svrhmc.fit("won ~ plan + s(age, by=plan)", TABLE, "poisson", draws=40)
    by_text, every = fitted.smooth("s(age,by = plan)"), fitted.smooth()
    assert len(by_text.curves) == len(every.curves) == 2


def test_an_interrupt_ends_without_the_frames_of_the_sampler(monkeypatch):
    def interrupted(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(regression, "find_answer", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        svrhmc.fit("claims ~ age", TABLE)
    assert caught.value.__suppress_context__
    assert "interrupted" not in [frame.name for frame in traceback.extract_tb(caught.tb)]


def test_a_posterior_from_a_file_says_what_comparisons_need(tmp_path):
    svrhmc.fit("claims ~ age", TABLE, draws=40).save(tmp_path / "a.posterior")
    loaded = svrhmc.Posterior.load(tmp_path / "a.posterior")
    for call in (loaded.loo, lambda: svrhmc.compare(loaded, loaded), lambda: sensitivity_of(loaded, 100), loaded.r2):
        with pytest.raises(ValueError, match="fit again, or keep the posterior in memory"):
            call()


def shell(*arguments):
    result = CliRunner().invoke(app.app, [str(argument) for argument in arguments], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    return words(result.output)


def test_the_shell_has_medians_of_times_and_notes_numbers_of_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    time = RNG.weibull(1.5, 60) * 10
    columns = {"time": time.round(3), "event": np.arange(60) % 3 > 0, "customer_id": np.arange(60) + 1000, "age": AGES}
    with open("a.csv", "w", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    shell("fit", "a.csv", "--formula", "Surv(time, event) ~ age", "--draws", 100, "--out", "fit", "--quiet")
    shell("predict", "fit", "a.csv", "--out", "p.csv")
    with open("p.csv") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == ["row", "mean", "sd", "lower", "upper", "median", "new_lower", "new_upper"]
    expected = svrhmc.Posterior.load("fit/model.posterior").survival({"age": AGES}, times=[1.0]).median[0]
    np.testing.assert_allclose([float(row["median"]) for row in rows], expected, rtol=0.1)
    note = "column 'customer_id' has another whole number in each row"
    assert note in shell("fit", "a.csv", "--target", "age", "--design")
    columns["customer_id"][1] = 1000
    with open("b.csv", "w", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    assert note not in shell("fit", "b.csv", "--target", "age", "--design")


AGES = np.arange(60) % 17 + 20


def test_a_checkpoint_of_another_model_is_said_to_be_one(tmp_path):
    with Checkpoint(tmp_path / "a", {"version": "1", "target": "GeneralisedLinear", "n": 10, "dim": 76}):
        pass
    for other, message in (
        ({"dim": 78}, "another model or table (dim, the number of its coefficients): 76"),
        ({"n": 11}, "another table (n"),
    ):
        with pytest.raises(CheckpointError, match=re.escape(message)):
            Checkpoint(tmp_path / "a", {"version": "1", "target": "GeneralisedLinear", "n": 10, "dim": 76, **other})
