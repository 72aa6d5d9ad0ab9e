"""`svrhmc fit` and `svrhmc predict`: files in, files out, one line for what is wrong."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import svrhmc
from svrhmc.core import progress
from svrhmc.results.predict import Prediction
from svrhmc.shell import app as cli
from svrhmc.shell import fit as command
from svrhmc.shell import outputs, predict
from svrhmc.tables import csv as csv_files
from svrhmc.tables.formula import quote_name

RNG = np.random.default_rng(0)
AGE, PLAN = RNG.uniform(20, 70, 60), RNG.choice(["basic", "pro"], 60)
PRICE = 20 + 0.1 * AGE + 2 * (PLAN == "pro") + RNG.normal(size=60)
FILES = {"model.posterior", "model.loo", "coefficients.csv", "report.html", "posterior.nc"}


def invoke(*arguments, **options):
    return CliRunner().invoke(cli.app, list(map(str, arguments)), env={"COLUMNS": "100", "TERM": "dumb"}, **options)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("a.csv", "w", newline="") as file:
        csv.writer(file).writerows([["price", "age", "plan"], *zip(PRICE.round(3), AGE.round(1), PLAN, strict=True)])
    return tmp_path


def one_line(result, code, *words):
    assert result.exit_code == code, result.output
    assert len(result.output.splitlines()) == 1, result.output
    assert result.output.startswith("error: ")
    for word in words:
        assert word in result.output


def test_a_fit_prints_the_table_and_the_verdict_and_writes_its_files(table):
    result = invoke("fit", "a.csv", "--target", "price")
    assert result.exit_code == 0, result.output
    for word in (
        "60 rows, gaussian (the response holds numbers)", "adds to price", "plan[pro]", "Compared with plan[basic]",
        "The numbers are computed correctly", "s in all: ", " s cross-validation and report, the rest", "report.html",
    ):  # fmt: skip
        assert word in result.output
    made = {path.name for path in (table / "a-fit").iterdir()}
    assert made in (FILES, FILES - {"posterior.nc"})
    kept = svrhmc.Posterior.load(table / "a-fit" / "model.posterior")
    with open(table / "a-fit" / "coefficients.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == list(kept.names)
    assert [float(row["mean"]) for row in rows] == pytest.approx(kept.mean.tolist())
    asked = svrhmc.fit("price ~ age + plan", {"price": PRICE.round(3), "age": AGE.round(1), "plan": PLAN})
    assert kept.mean == pytest.approx(asked.mean, rel=1e-12)


def test_json_is_one_object_and_quiet_is_silent(table):
    shown = invoke("fit", "a.csv", "--target", "price", "--json", "--out", "j")
    content = json.loads(shown.stdout)
    assert (content["family"], content["verdict"], content["rows"]) == ("gaussian", "exact", 60)
    assert [each["name"] for each in content["coefficients"]] == ["Intercept", "age", "plan[pro]", "log sigma"]
    assert set(content["files"]) >= {"model", "coefficients", "report"}
    assert invoke("fit", "a.csv", "--target", "price", "--quiet", "--out", "j").output == ""


def test_predictions_are_those_of_the_posterior(table):
    invoke("fit", "a.csv", "--formula", "price ~ age + plan", "--quiet")
    (table / "new.csv").write_text("age;plan\n30;basic\n50;pro\n")
    result = invoke("predict", "a-fit", "new.csv", "--level", 0.8)
    assert result.exit_code == 0, result.output
    with open("predictions.csv") as file:
        rows = [[float(value) for value in row.values()] for row in csv.DictReader(file)]
    kept = svrhmc.Posterior.load(table / "a-fit" / "model.posterior")
    expected = kept.predict({"age": [30.0, 50.0], "plan": ["basic", "pro"]}, levels=(0.1, 0.9))
    assert [row[1] for row in rows] == pytest.approx(expected.mean.tolist(), rel=1e-6)
    assert [row[3:5] for row in rows] == [pytest.approx(each, rel=1e-6) for each in expected.quantiles.T.tolist()]
    (table / "new.csv").write_text("age;plan\n30;basic\n50;gold\n")
    one_line(
        invoke("predict", "a-fit", "new.csv", "--out", "p.csv"), 2, "new.csv", "'plan' has 'gold' in row 2 (the first"
    )
    (table / "odd.csv").write_text("id;age;plan\n7;30;basic\n8;;pro\n9;50;gold\n")
    one_line(invoke("predict", "a-fit", "odd.csv", "--out", "p.csv"), 2, "--missing nan and --missing drop")
    dropped = invoke("predict", "a-fit", "odd.csv", "--out", "p.csv", "--missing", "drop")
    one_line(dropped, 2, "'plan' has 'gold' in row 3 (the first is row 1)", "--new-levels nan and --new-levels average")
    odd = ["predict", "a-fit", "odd.csv", "--out", "odd-out.csv", "--keep", "--missing", "drop", "--new-levels", "nan"]
    assert "2 predictions: odd-out.csv (1 row left out)" in invoke(*odd).output
    with open("odd-out.csv") as file:
        first, last = csv.DictReader(file)
    assert [first["row"], first["id"], last["row"], last["id"]] == ["1", "7", "3", "9"]
    assert [first["plan"], last["plan"], last["mean"]] == ["basic", "gold", "nan"]
    assert float(first["mean"]) == pytest.approx(expected.mean[0], rel=1e-6)
    average = invoke("predict", "a-fit", "new.csv", "--out", "p.csv", "--new-groups", "average")
    one_line(average, 2, "--new-groups must be", "new levels of 'plan' follow --new-levels")
    one_line(invoke(*odd[:-1], "draw"), 2, "--new-levels must be")
    (table / "new.csv").write_text("plan;x\nbasic;1\npro;2\n")
    one_line(invoke("predict", "a-fit", "new.csv", "--out", "p.csv"), 2, "no column 'age'")
    assert not (table / "p.csv").exists()
    one_line(invoke("predict", "elsewhere", "new.csv"), 2, "elsewhere holds no fit")
    one_line(invoke("predict", "a-fit", "new.csv", "--level", 2), 2, "--level must be between 0 and 1")


@pytest.mark.parametrize(
    ("lines", "options", "words"),
    [
        (None, ["--target", "prize"], ["a.csv has no column 'prize' for --target: did you mean 'price'?"]),
        (None, [], ["--target must be the name of a column", "'price', 'age', 'plan'"]),
        (None, ["--target", "price", "--weights", "w"], ["no column 'w' for --weights"]),
        (None, ["--target", "price", "--missing", "fill"], ["--missing must be one of 'refuse', 'drop'"]),
        (None, ["--target", "price", "--family", "poison"], ["poison"]),
        (None, ["--target", "price", "--formula", "age + "], ["formula"]),
        (None, ["--target", "price", "--out", "a.csv"], ["--out must be a folder"]),
        (None, ["--target", "price", "--out", "no/such/place"], ["--out must be a folder that exists or can be made"]),
        (["y,a", "1,2", "2,2", "3,2"], ["--formula", "y ~ a"], ["a.csv: column 'a' is constant"]),
        (["y,a", "1,2", "2,2", "3,2"], ["--target", "y"], ["no column beside 'y' that", "'a' is left out: it is 2 in"]),
        (["y,a,b", "1.5,1,1", "2,2,2", "3,4,4"], ["--formula", "y ~ a + b"], ["column 'b' repeats column 'a'"]),
        (["y,a", "yes,2", "yes,3", "yes,4"], ["--target", "y"], ["has one class only, 'yes'"]),
        (["y,a", "1.5,2", ",3", "2,4"], ["--target", "y"], ["missing values in 'y' (1 missing)", "--missing drop"]),
        (["y,a", "1.5,2", "2,x", "2,4"], ["--target", "y"], ["line 3: column 'a' holds numbers"]),
        (["y,a", "1.5,2", "2,3,4"], ["--target", "y"], ["line 3: 3 columns"]),
        (["y,d", "1.5,2020-01-01", "2,2020-01-03"], ["--target", "y"], ["no column beside 'y' that can be used"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_and_nothing_is_left_behind(table, lines, options, words):
    if lines is not None:
        (table / "a.csv").write_text("\n".join(lines) + "\n")
    one_line(invoke("fit", "a.csv", *options), 2, *words)
    assert [path.name for path in table.iterdir()] == ["a.csv"]


def test_columns_of_one_value_are_left_out_aloud(table):
    (table / "a.csv").write_text("y,a,unit,rate\n1.5,2,mg,3.5\n1.2,3,mg,\n2,4,mg,3.5\n2.5,9,mg,3.5\n1,1,mg,3.5\n")
    result = invoke("fit", "a.csv", "--target", "y")
    assert result.exit_code == 0, result.output
    assert "column 'unit' is left out: it is 'mg' in every row" in result.output
    assert "column 'rate' is left out: it has no value but 3.5" in result.output


def test_what_a_category_of_very_many_texts_or_a_repeated_column_holds_is_left_out_aloud(table):
    rows = [["price", "age", "years", "note"]]
    rows += [[round(10 + k % 7, 1), k % 50, k % 50, f"words {k % 1100}"] for k in range(2400)]
    with open("b.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    result = invoke("fit", "b.csv", "--target", "price", "--draws", "50", "--no-loo")
    assert result.exit_code == 0, result.output
    flat = " ".join(result.output.split())
    assert "column 'years' is left out: it repeats column 'age'" in flat
    assert "column 'note' is left out: it has 1,100 different texts" in flat


@pytest.mark.parametrize("by", ["pyarrow", "pandas"])
def test_columns_that_no_formula_uses_may_hold_anything_and_names_are_looked_at_first(table, by, monkeypatch):
    if by == "pandas":
        monkeypatch.setattr(csv_files, "pyarrow_or_none", lambda: None)
    with open("b.csv", "w", newline="") as file:
        rows = zip(PRICE.round(3), AGE.round(1), PLAN, ["unknown"] + ["12.5"] * 59, strict=True)
        csv.writer(file).writerows([["price", "age", "plan", "income"], *rows])
    fitted = invoke("fit", "b.csv", "--formula", "price ~ plan", "--draws", "50", "--no-loo", "--quiet")
    assert fitted.exit_code == 0, fitted.output
    assert invoke("predict", "b-fit", "b.csv", "--quiet", "--keep").exit_code == 0
    one_line(invoke("fit", "b.csv", "--target", "pricee"), 2, "no column 'pricee' for --target: did you mean 'price'?")
    one_line(invoke("fit", "b.csv", "--formula", "price ~ agee"), 2, "b.csv: the table has no column 'agee'", "'age'?")
    one_line(invoke("fit", "b.csv", "--target", "price", "--weights", "w"), 2, "no column 'w' for --weights")
    one_line(invoke("fit", "b.csv", "--formula", "plan"), 2, "--target must be given")
    for options in (("--target", "price"), ("--formula", "price ~ income"), ("--formula", "price ~ .")):
        one_line(invoke("fit", "b.csv", *options), 2, "b.csv, line 2: column 'income' holds numbers", "'unknown'")


def test_no_column_of_the_table_is_cut_on_a_narrow_screen(table):
    count = RNG.poisson(2, 60)
    rows = [["count", "a number with a long name", "income"], *zip(count, AGE.round(3), 1e5 * PRICE, strict=True)]
    with open("b.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    for width in ("80", "100"):
        options = ["fit", "b.csv", "--target", "count", "--no-loo"]
        result = CliRunner().invoke(cli.app, options, env={"COLUMNS": width, "TERM": "dumb"})
        lines = result.output.splitlines()
        (head,) = (line for line in lines if "ratio of means (90%)" in line)
        assert "P(> 0)" in head
        assert ("95%" in head) == (width == "100")
        (row,) = (line for line in lines if line.strip().startswith("income"))
        assert row.rstrip()[-1].isdigit()
        assert ")" in row


def test_yes_and_no_in_several_spellings_are_refused_with_what_to_do(table):
    answers = ["yes", "No", "Y", "no", "Yes", "N"]
    with open("b.csv", "w", newline="") as file:
        csv.writer(file).writerows([["left", "age"], *([answers[k % 6], k] for k in range(60))])
    one_line(
        invoke("fit", "b.csv", "--target", "left"), 2, "the response 'left' spells yes and no in 6 ways",
        "write {left in ['Y', 'Yes', 'yes']} before the '~' of the formula", "name the family 'categorical'",
    )  # fmt: skip
    bernoulli = invoke("fit", "b.csv", "--target", "left", "--family", "bernoulli")
    one_line(bernoulli, 2, "takes two: write {")
    assert invoke("fit", "b.csv", "--target", "left", "--family", "categorical", "--draws", "50").exit_code == 0


def test_an_ordinal_target_of_texts_is_given_its_order(table):
    with open("b.csv", "w", newline="") as file:
        csv.writer(file).writerows([["sat", "age"], *([["bad", "fair", "very good"][k % 3], k] for k in range(60))])
    told = invoke("fit", "b.csv", "--target", "sat", "--levels", "bad, fair, very good", "--draws", "50", "--json")
    names = [one["name"] for one in json.loads(told.stdout)["coefficients"]]
    assert names == ["age", "threshold bad|fair", "threshold fair|very good"]
    page = Path("b-fit/report.html").read_text()
    assert "--levels &#x27;bad, fair, very good&#x27;" in page
    assert "ordinal(levels=[&#x27;bad&#x27;, &#x27;fair&#x27;, &#x27;very good&#x27;])" in page
    untold = invoke("fit", "b.csv", "--target", "sat", "--family", "ordinal")
    one_line(untold, 2, "in the shell --levels 'low, medium, high'")
    odd = invoke("fit", "b.csv", "--target", "sat", "--family", "poisson", "--levels", "bad, fair")
    one_line(odd, 2, "--levels must be given with --family ordinal, or without a family; got --family poisson")


def test_predictions_are_printed_and_take_an_exposure(table):
    with open("b.csv", "w", newline="") as file:
        csv.writer(file).writerows([["count", "age", "years"], *([k % 3, k, 1 + k % 4] for k in range(40))])
    with open("new.csv", "w", newline="") as file:
        csv.writer(file).writerows([["age"], [10], [20]])
    assert invoke("fit", "b.csv", "--target", "count", "--exposure", "years", "--no-loo").exit_code == 0
    one_line(
        invoke("predict", "b-fit", "new.csv"), 2, "no column 'years', the exposure", "--exposure 1 predicts the rate"
    )
    printed = {n: invoke("predict", "b-fit", "new.csv", "--exposure", n, "--out", "-").output for n in (1, 2)}
    means = {
        n: np.array([float(row["mean"]) for row in csv.DictReader(text.splitlines())]) for n, text in printed.items()
    }
    np.testing.assert_allclose(means[2], 2 * means[1], rtol=1e-6)
    posterior = svrhmc.Posterior.load(table / "b-fit" / "model.posterior")
    np.testing.assert_allclose(
        posterior.predict({"age": [10, 20]}, exposure=[1.0, 2.0]).mean, [means[1][0], means[2][1]], rtol=1e-6
    )
    with pytest.raises(ValueError, match="exposure must be above 0"):
        posterior.predict({"age": [10]}, exposure=0)
    assert not (table / "-").exists()


def test_a_file_that_is_not_there_is_one_line(table):
    one_line(invoke("fit", "b.csv", "--target", "y"), 2, "b.csv: No such file or directory.")


def test_missing_rows_are_dropped_aloud(table):
    (table / "a.csv").write_text("y,a\n1.5,2\n,3\n2,4\n2.5,9\n1,1\n")
    result = invoke("fit", "a.csv", "--target", "y", "--missing", "drop")
    assert result.exit_code == 0, result.output
    assert "1 rows with missing values were left out" in result.output
    assert "1 rows with missing values" in (table / "a-fit" / "report.html").read_text()


def test_after_an_interrupt_the_same_command_goes_on(table, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    whole = json.loads(invoke("fit", "a.csv", "--target", "price", "--json", "--out", "w").stdout)
    with monkeypatch.context() as patched:
        patched.setattr(outputs, "write_all", interrupted)
        result = invoke("fit", "a.csv", "--target", "price")
    assert result.exit_code == 130
    assert "what is done is kept in a-fit, and the same command goes on" in result.output
    assert [path.name for path in (table / "a-fit").iterdir()] == ["unfinished"]
    one_line(invoke("fit", "a.csv", "--target", "price", "--seed", 1), 2, "Remove a-fit/unfinished to begin anew")
    one_line(invoke("predict", "a-fit", "a.csv"), 2, "The fit was interrupted: the same command goes on")
    content = json.loads(invoke("fit", "a.csv", "--target", "price", "--json").stdout)
    assert content["coefficients"] == whole["coefficients"]
    assert not (table / "a-fit" / "unfinished").exists()


def test_an_interrupt_before_anything_is_done_leaves_nothing(table, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "fit", interrupted)
    assert invoke("fit", "a.csv", "--target", "price").exit_code == 130
    assert [path.name for path in table.iterdir()] == ["a.csv"]


def test_without_arviz_the_rest_is_written(table, monkeypatch):
    def absent(self, **_):
        raise ModuleNotFoundError("arviz")

    monkeypatch.setattr(svrhmc.Posterior, "to_arviz", absent)
    result = invoke("fit", "a.csv", "--target", "price")
    assert result.exit_code == 0
    assert "posterior.nc is not written: it needs ArviZ" in result.output
    assert {path.name for path in (table / "a-fit").iterdir()} == FILES - {"posterior.nc"}


def test_arrays_and_sparse_rows_are_fitted_and_predicted(table):
    X = np.column_stack([AGE, PLAN == "pro"])
    np.savez("z.npz", X=X, y=PRICE)
    assert invoke("fit", "z.npz", "--quiet").exit_code == 0
    assert invoke("predict", "z-fit", "z.npz", "--quiet").exit_code == 0
    (table / "s.svm").write_text(
        "".join(f"{y:.3f} 1:{a:.2f} 3:{p}\n" for y, a, p in zip(PRICE, AGE, RNG.random(60), strict=True))
    )
    result = invoke("fit", "s.svm", "--formula", "x1")
    one_line(result, 2, "sparse rows have no columns for a formula")
    assert not (table / "s-fit").exists()
    one_line(invoke("predict", "z-fit", "s.svm"), 2, "s.svm: the fit is of a table with columns")
    result = invoke("fit", "s.svm")
    assert result.exit_code == 0, result.output
    assert "the family is gaussian, as the response holds numbers" in result.output
    (table / "new.svm").write_text("0 1:30\n0 1:40\n")
    assert invoke("predict", "s-fit", "new.svm", "--quiet").exit_code == 0
    one_line(invoke("predict", "s-fit", "a.csv"), 2, "a.csv: the fit is of sparse rows")
    (table / "new.svm").write_text("0 9:30\n")
    one_line(invoke("predict", "s-fit", "new.svm"), 2, "rows must have 3 columns, as the fit has; got 9")


def test_the_example_is_fitted_without_a_file(tmp_path, monkeypatch):
    """The Titanic: the figures add up to those of the inquiry, and the coefficients are those of the likelihood's mode
    within a tenth of their sd, as the prior is weak and 2,201 people are many."""
    monkeypatch.chdir(tmp_path)
    result = invoke("fit", "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert (content["family"], content["classes"], content["verdict"]) == ("bernoulli", ["no", "yes"], "exact")
    place = command.files("svrhmc").joinpath("data", "titanic.csv").read_text().splitlines()[1:]
    people = {
        answer: sum(int(line.split(",")[4]) for line in place if line.split(",")[3] == answer)
        for answer in ("no", "yes")
    }
    assert people == {"no": 1490, "yes": 711}
    means = {each["name"]: (each["mean"], each["sd"]) for each in content["coefficients"]}
    known = {
        "class[first]": 0.8577,
        "class[second]": -0.1604,
        "class[third]": -0.9201,
        "age[child]": 1.0615,
        "sex[male]": -2.4201,
    }
    for name, value in known.items():
        assert abs(means[name][0] - value) < 0.15 * means[name][1], name
    assert (tmp_path / "titanic-fit" / "report.html").exists()
    shutil.rmtree(tmp_path / "titanic-fit")


@pytest.mark.parametrize(
    ("name", "word"), [("age", "age"), ("class", "`class`"), ("plan & co", "`plan & co`"), ("C", "C")]
)
def test_names_are_quoted_where_a_formula_needs_it(name, word):
    assert quote_name(name) == word


def test_classes_have_a_probability_each():
    mean = np.array([[0.25, 0.75], [0.5, 0.5]])
    made = Prediction(mean, mean, mean[None], None, None, (0.5,), 2)
    posterior = svrhmc.fit("y ~ a", {"y": [1.0, 2.0, 2.5], "a": [1.0, 2.0, 4.0]})
    assert predict._predictions_as_csv(made, posterior).splitlines() == ["row,0,1", "1,0.25,0.75", "2,0.5,0.5"]


def test_predictions_of_trials_are_successes_and_a_probability(table):
    """Twice the trials are twice the successes at the same probability; without their column there is one line."""
    dose, tries = np.linspace(-1, 1, 40), np.full(40, 20)
    deaths = RNG.binomial(20, 1 / (1 + np.exp(-dose)))
    with open("b.csv", "w", newline="") as file:
        csv.writer(file).writerows([["deaths", "dose", "tries"], *zip(deaths, dose.round(3), tries, strict=True)])
    result = invoke("fit", "b.csv", "--target", "deaths", "--trials", "tries", "--family", "binomial", "--quiet")
    assert result.exit_code == 0, result.output
    (table / "new.csv").write_text("dose,tries\n0.5,10\n0.5,20\n")
    assert invoke("predict", "b-fit", "new.csv", "--out", "p.csv").exit_code == 0
    with open("p.csv") as file:
        first, second = csv.DictReader(file)
    assert list(first) == ["row", "mean", "sd", "lower", "upper", "new_lower", "new_upper", "trials", "probability"]
    assert (float(first["trials"]), float(second["trials"])) == (10, 20)
    assert float(first["probability"]) == pytest.approx(float(second["probability"])) == pytest.approx(0.62, abs=0.1)
    for row in (first, second):
        assert float(row["mean"]) == pytest.approx(float(row["trials"]) * float(row["probability"]), rel=1e-6)
        assert float(row["new_upper"]) == int(float(row["new_upper"])) <= float(row["trials"])
    (table / "new.csv").write_text("dose\n0.5\n")
    one_line(invoke("predict", "b-fit", "new.csv", "--out", "p.csv"), 2, "tries")


def test_progress_is_shown_without_a_terminal_where_it_is_asked_for(table, monkeypatch):
    """Stages of 10 ms are long ones here."""
    monkeypatch.setattr(progress, "_PATIENCE", 0.01)
    command = ["fit", "a.csv", "--target", "price", "--family", "student-t", "--draws", "50"]
    asked = invoke(*command, "--progress")
    assert asked.exit_code == 0, asked.output
    assert any(stage in asked.stderr for stage in ("finding the mode: ", "sampling [", "report: "))
    assert invoke(*command, "--out", "q").stderr == ""


def test_new_rows_may_have_one_column(table):
    assert invoke("fit", "a.csv", "--formula", "price ~ age", "--quiet").exit_code == 0
    (table / "new.csv").write_text("age\n30\n40\n")
    assert invoke("predict", "a-fit", "new.csv", "--out", "p.csv").exit_code == 0
    assert len((table / "p.csv").read_text().splitlines()) == 3
    (table / "new.csv").write_text("age;plan\n30;pro\n")
    one_line(invoke("predict", "a-fit", "new.csv", "--delimiter", ","), 2, "--delimiter")


def test_text_says_that_numbers_with_a_word_among_them_are_names(table):
    codes = [*map(str, range(20)), "other"] * 5
    rows = "".join(f"{k % 7},{code}\n" for k, code in enumerate(codes))
    (table / "codes.csv").write_text(f"y,code\n{rows}")
    one_line(invoke("fit", "codes.csv", "--target", "y", "--family", "gaussian"), 2, "--text 'code'")
    options = ("--target", "y", "--family", "gaussian", "--text", "code", "--draws", 100, "--quiet")
    assert invoke("fit", "codes.csv", *options).exit_code == 0
    assert "code[other]" in (table / "codes-fit" / "coefficients.csv").read_text()


def test_a_dot_stands_for_the_columns_that_can_be_used(table):
    rng = np.random.default_rng(0)
    words = ["yes", "Yes", "no", "No"]
    rows = "".join(f"c{k},{k % 5},{rng.choice(words)},{k % 5}\n" for k in range(60))
    (table / "c.csv").write_text(f"id,age,left,again\n{rows}")
    formula = "{left in ['Yes', 'yes']} ~ "
    result = invoke("fit", "c.csv", "--formula", f"{formula}.", "--draws", 100)
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert "column 'id' is left out: it has 60 different texts" in told
    assert "column 'again' is left out: it repeats column 'age'" in told
    frame = (table / "c-fit" / "coefficients.csv").read_text()
    assert "\nage," in frame
    assert "again" not in frame
    (table / "new.csv").write_text("age\n3\n")
    assert invoke("predict", "c-fit", "new.csv", "--out", "p.csv").exit_code == 0
    named = invoke("fit", "c.csv", "--formula", f"{formula}. + id", "--draws", 100)  # what is named is refused
    one_line(named, 2, "column 'id' has 60 different levels")


def test_new_rows_are_written_as_the_fitted_ones_unless_it_is_said(table):
    rng = np.random.default_rng(0)
    income, code = rng.integers(1000, 9000, 60), rng.choice(["1", "2"], 60)
    noise = rng.normal(size=60)
    rows = "".join(f'"{x:,}",{c},{x / 1000 + int(c) + e:.3f}\n' for x, c, e in zip(income, code, noise, strict=True))
    (table / "c.csv").write_text(f"income,code,y\n?,1,2.5\n{rows}")
    fitting = ("fit", "c.csv", "--target", "y", "--missing", "drop", "--draws", 100, "--quiet")
    spelling = ("--thousands", ",", "--na", "?", "--text", "code")
    assert invoke(*fitting, *spelling).exit_code == 0
    assert json.loads((table / "c-fit" / "reading.json").read_text()) == {
        "thousands": ",", "na": ["?"], "as_text": ["code"],
    }  # fmt: skip
    new = ('"2,500",1\n"7,500",2\n?,1\n', "2.5e3,1\n7500,2\n-,1\n")
    told = []
    for rows, options in zip(new, ((), ("--thousands", "", "--na", "-")), strict=True):
        (table / "new.csv").write_text(f"income,code\n{rows}")
        result = invoke("predict", "c-fit", "new.csv", "--missing", "nan", "--out", "-", *options)
        assert result.exit_code == 0, result.output
        told.append(result.output)
    assert told[0] == told[1]
    assert invoke("predict", "c-fit/model.posterior", "new.csv", "--missing", "nan", "--out", "-").exit_code == 2  # '-'
    (table / "c-fit" / "reading.json").write_text('{"na": 1}')
    one_line(invoke("predict", "c-fit", "new.csv"), 2, "reading.json is not as")
    (table / "c.csv").write_text("x,y\n1,2\n2,3\n3,5\n")
    assert invoke("fit", "c.csv", "--target", "y", "--draws", 100, "--quiet").exit_code == 0
    assert not (table / "c-fit" / "reading.json").exists()


def test_the_command_of_a_report_says_every_option(table):
    (table / "b.csv").write_text("y;a;w\n1,5;01;1\n2,5;02;2\n?;03;1\n4,5;01;1\n1;02;1\n")
    options = ["--target", "y", "--weights", "w", "--missing", "drop", "--decimal", ",", "--na", "?", "--text", "a"]
    result = invoke("fit", "b.csv", *options, "--draws", 500, "--quiet")
    assert result.exit_code == 0, result.output
    told = " ".join((table / "b-fit" / "report.html").read_text().split())
    for word in ("--weights w", "--missing drop", "--decimal ,", "--na", "--text a", "--draws 500", "draws=500"):
        assert word in told
    one_line(invoke("fit", "a.csv", "--formula", "age"), 2, "--target must be given")
    one_line(invoke("fit", "a.csv", "--target", "price", "--decimal", ",,"), 2, "--decimal must be one sign")
    (table / "a.csv").write_text("y,a`b\n1,2\n2,5\n")
    one_line(invoke("fit", "a.csv", "--target", "y"), 2, "has a ` in its name")


def test_a_folder_is_fitted_where_it_lies_and_predicts(table):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"price": PRICE.round(3), "age": AGE.round(1), "plan": PLAN}
    (table / "rows").mkdir()
    for k in range(3):
        pq.write_table(pa.table(columns).slice(20 * k, 20), table / "rows" / f"part-{k}.parquet")
    result = invoke("fit", "rows", "--target", "price")
    assert result.exit_code == 0, result.output
    for word in ("60 rows", "rows stay in 3 partitions", "adds to price", "Compared with plan[basic]"):
        assert word in result.output
    kept = svrhmc.Posterior.load(table / "rows-fit" / "model.posterior")
    whole = svrhmc.fit("price ~ age + plan", columns)
    assert kept.names == whole.names
    assert kept.mean == pytest.approx(whole.mean, rel=1e-9)
    assert kept.sd == pytest.approx(whole.sd, rel=1e-9)
    result = invoke("predict", "rows-fit", "a.csv", "--out", "new.csv")
    assert result.exit_code == 0, result.output
    with open("new.csv") as file:
        found = [float(row["mean"]) for row in csv.DictReader(file)]
    assert found == pytest.approx(whole.predict(columns).mean, rel=1e-6)
    pq.write_table(pa.table(columns | {"plan": ["gold"] * 60}), "other.parquet")
    one_line(invoke("predict", "rows-fit", "other.parquet", "--out", "new.csv"), 2, "gold")
    found = svrhmc.fit("price ~ age", svrhmc.data.from_parquet("rows", "price"))
    assert found.mean == pytest.approx(svrhmc.fit("price ~ age", columns).mean, rel=1e-9)
