"""Odd values and names of columns: masks, labels that are no texts, large whole numbers, identifiers, signs of exports."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import polars
import pyarrow
import pytest
from typer.testing import CliRunner

import svrhmc
from svrhmc import targets
from svrhmc.core.errors import DataError
from svrhmc.core.serialise import is_text
from svrhmc.data import from_arrays
from svrhmc.fitting import regress
from svrhmc.fitting.labels import read_response
from svrhmc.shell.app import app
from svrhmc.tables import columns_of, designed, terms
from svrhmc.tables.columns import column_names
from svrhmc.tables.csv import require_names

N = 40
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
Y = 1 + X @ [1.0, -0.5] + 0.3 * RNG.normal(size=N)
COUNTS = RNG.poisson(3.0, N).astype(np.float64)
EVENTS = (RNG.random(N) > 0.5).astype(np.float64)
MASK = np.arange(N) == 3
CLOSED: dict[str, Any] = {"noise_variance": 0.1, "draws": 50}  # a posterior known in closed form


def masked(values: Any) -> Any:
    """With its fourth row under a mask, and a number there that would be noticed."""
    array = np.ma.array(values, copy=True)
    array[3] = np.ma.masked
    if array.dtype.kind == "f":
        array.data[3] = 1e6
    return array


@pytest.mark.parametrize("column", ["x", "g", "b", "k", "y", "w"])
def test_what_a_mask_covers_is_missing_in_tables(column: str) -> None:
    table: dict[str, Any] = {
        "y": Y, "x": X[:, 0], "g": np.where(EVENTS > 0, "u", "v"), "b": COUNTS > 2, "k": COUNTS.astype(int),
        "w": np.ones(N),
    }  # fmt: skip
    hidden = {**table, column: masked(table[column])}
    given: dict[str, Any] = {"weights": "w", **CLOSED}
    with pytest.raises(DataError, match=rf"missing values in '{column}' \(1 missing\)"):
        svrhmc.fit("y ~ x + g + b + k", hidden, **given)
    dropped = svrhmc.fit("y ~ x + g + b + k", hidden, missing="drop", **given)
    without = svrhmc.fit("y ~ x + g + b + k", {name: values[~MASK] for name, values in table.items()}, **given)
    np.testing.assert_array_equal(dropped.trace.draws, without.trace.draws)
    np.testing.assert_array_equal(dropped.mean, without.mean)
    if column not in ("y", "w"):
        with pytest.raises(DataError, match=rf"missing values in '{column}'"):
            without.predict(hidden)


def test_masks_without_masked_values_and_masked_texts() -> None:
    whole = columns_of({"x": np.ma.array([1, 2, 3])}, ["x"])["x"]
    assert whole.gaps is None
    texts = columns_of({"x": np.ma.array(["a", "b", None], dtype=object, mask=[1, 0, 0])}, ["x"])["x"]
    assert texts.levels == ("b",)
    assert texts.gaps is not None
    assert texts.gaps.tolist() == [True, False, True]
    with pytest.raises(DataError, match="missing values"):
        designed("y ~ x", {"y": [1.0, 2.0, 3.0], "x": [1.0, np.ma.masked, 2.0]})


CASES: dict[str, Callable[[], object]] = {
    "X": lambda: targets.glm(masked(X), Y, "gaussian"),
    "y": lambda: targets.glm(X, masked(Y), "gaussian"),
    "texts": lambda: targets.glm(X, masked(np.where(EVENTS > 0, "a", "b")), "bernoulli"),
    "classes": lambda: targets.glm(X, masked(COUNTS % 3), "categorical"),
    "counts": lambda: targets.glm(X, masked(COUNTS), "poisson"),
    "trials": lambda: targets.glm(X, COUNTS, "binomial", trials=masked(np.full(N, 30))),
    "weights": lambda: targets.glm(X, Y, "gaussian", weights=masked(np.ones(N))),
    "offset": lambda: targets.glm(X, Y, "gaussian", offset=masked(Y)),
    "regress": lambda: regress(masked(X), Y),
    "fit weights": lambda: svrhmc.fit("y ~ x", {"y": Y, "x": X[:, 0]}, weights=masked(np.ones(N))),
    "fit trials": lambda: svrhmc.fit("y ~ x", {"y": COUNTS, "x": X[:, 0]}, "binomial", trials=masked(COUNTS + 30)),
    "partitions X": lambda: from_arrays(masked(X), Y),
    "partitions y": lambda: from_arrays(X, masked(Y)),
    "classifier X": lambda: svrhmc.BayesianLogisticRegression().fit(masked(X), EVENTS),
    "classifier y": lambda: svrhmc.BayesianLogisticRegression().fit(X, masked(EVENTS)),
    "classifier w": lambda: svrhmc.BayesianLogisticRegression().fit(X, EVENTS, masked(np.ones(N))),
    "regressor X": lambda: svrhmc.BayesianRegression().fit(masked(X), Y),
    "regressor y": lambda: svrhmc.BayesianRegression().fit(X, masked(Y)),
    "regressor w": lambda: svrhmc.BayesianRegression().fit(X, Y, masked(np.ones(N))),
    "counting y": lambda: svrhmc.BayesianPoissonRegression().fit(X, masked(COUNTS)),
}


@pytest.mark.parametrize("case", CASES)
def test_masked_arrays_are_refused_where_missing_values_are(case: str) -> None:
    with pytest.raises(ValueError, match="without a mask; got a masked array"):
        CASES[case]()


def test_masked_rows_are_refused_at_predictions() -> None:
    posterior = regress(X, Y, **CLOSED)
    for given in ({"X": masked(X)}, {"X": X, "offset": masked(Y)}):
        with pytest.raises(ValueError, match="without a mask"):
            posterior.predict(**given)
    model = svrhmc.BayesianRegression(draws=20).fit(X, Y)
    for predict in (model.predict, model.predict_interval, model.sample_y):
        with pytest.raises(ValueError, match="without a mask"):
            predict(masked(X))


def test_columns_with_labels_that_are_no_texts() -> None:
    frame = pandas.DataFrame(np.column_stack([Y, X]), columns=[0, 5, 1])
    posterior = svrhmc.fit("`0` ~ `5` + np.exp(`1`)", frame, **CLOSED)
    assert posterior.names == ("Intercept", "5", "np.exp(`1`)")
    plain = svrhmc.fit("y ~ a + np.exp(b)", {"y": Y, "a": X[:, 0], "b": X[:, 1]}, **CLOSED)
    np.testing.assert_array_equal(posterior.predict(frame).mean, plain.predict({"a": X[:, 0], "b": X[:, 1]}).mean)
    assert svrhmc.fit("`0` ~ .", frame, **CLOSED).names == ("Intercept", "5", "1")
    assert svrhmc.fit("`0` ~ .", {0: Y, 5: X[:, 0]}, **CLOSED).names == ("Intercept", "5")
    pairs = pandas.DataFrame({("a", 1): Y, ("a", 2): X[:, 0]})
    assert column_names(pairs) == ["('a', 1)", "('a', 2)"]
    assert designed("`('a', 1)` ~ .", pairs).design.names == ("('a', 2)",)
    with pytest.raises(DataError, match="columns 5 and '5', which have one name"):
        columns_of({5: [1.0], "5": [2.0]}, ["5"])
    with pytest.raises(DataError, match="a column named 5 in backticks"):
        designed("`0` ~ 5", frame)


STORED: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda values: {"x": values},
    "list": lambda values: {"x": values.tolist()},
    "objects": lambda values: {"x": values.astype(object)},
    "pandas": lambda values: pandas.DataFrame({"x": values}),
    "nullable": lambda values: pandas.DataFrame({"x": pandas.array(values, dtype="Int64")}),
    "polars": lambda values: polars.DataFrame({"x": values}),
    "a series of polars": lambda values: {"x": polars.Series(values)},
    "arrow": lambda values: pyarrow.table({"x": values}),
}


@pytest.mark.parametrize("kind", STORED)
def test_whole_numbers_beyond_float64(kind: str) -> None:
    store = STORED[kind]
    with pytest.raises(DataError, match=r"'x' holds whole numbers from .* subtract the smallest one first"):
        columns_of(store(np.arange(50) + 2**60), ["x"])
    stamps = 1_700_000_000_000_000_000 + 10**9 * np.arange(50)  # nanoseconds, a second apart
    found = columns_of(store(stamps), ["x"])["x"].values
    np.testing.assert_allclose(found - found[0], stamps - stamps[0], atol=256)
    assert (columns_of(store(np.full(5, 2**60)), ["x"])["x"].values == 2.0**60).all()


def test_a_range_lost_beside_the_size_of_a_column_is_no_constant() -> None:
    x = 10.0**15 + np.arange(N)
    lost = r"from 1000000000000000 to 1000000000000039, .* subtract its smallest value"
    with pytest.raises(DataError, match=lost):
        svrhmc.fit("y ~ x", {"y": Y, "x": x})
    with pytest.raises(DataError, match=lost):
        regress(from_arrays(x[:, None], Y))
    for constant in (
        lambda one: svrhmc.fit("y ~ x0", {"y": Y, "x0": one}),
        lambda one: regress(from_arrays(one[:, None], Y)),
    ):
        with pytest.raises(DataError, match="'x0' is constant"):
            constant(np.full(N, 1e15))
    stamps = 1_700_000_000_000_000_000 + 10**9 * np.arange(N)
    posterior = svrhmc.fit("y ~ x", {"y": Y, "x": stamps}, **CLOSED)
    shifted = svrhmc.fit("y ~ x", {"y": Y, "x": np.arange(N)}, **CLOSED)
    np.testing.assert_allclose(posterior.mean[1] * 1e9, shifted.mean[1], rtol=1e-6)
    again, wanted = posterior.predict({"x": stamps}).mean, shifted.predict({"x": np.arange(N)}).mean
    np.testing.assert_allclose(again, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "formula", ["y ~ id", "y ~ C(n)", "y ~ x + C(n)", "y ~ id:x", "y ~ C(np.floor(n)):x", "y ~ a*b"]
)
def test_a_level_for_each_row_is_refused_before_anything_is_built(formula: str) -> None:
    rows = 60_000
    numbers = np.arange(rows)
    table = {
        "y": numbers % 7 / 7, "x": numbers % 11 / 11, "n": numbers, "id": [f"c{k}" for k in numbers],
        "a": [f"a{k % 250}" for k in numbers], "b": [f"b{k % 251}" for k in numbers],
    }  # fmt: skip
    began = time.process_time()
    with pytest.raises(DataError, match=r"has 6[02],\d{3} different .* in 60,000 rows.* leave it out of the formula"):
        svrhmc.fit(formula, table)
    assert time.process_time() - began < 10


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_a_class_for_each_row_is_refused() -> None:
    y = np.arange(200) * 1.0
    x = y[:, None] % 7
    for call in (
        lambda: targets.glm(x, y, "categorical"),
        lambda: svrhmc.fit("y ~ x", {"y": [f"c{k}" for k in range(200)], "x": x[:, 0]}, "categorical"),
        lambda: svrhmc.BayesianLogisticRegression().fit(x, y.astype(int)),
    ):
        with pytest.raises(ValueError, match="labels of classes that rows share; got 200 in 200 rows"):
            call()


def test_categories_with_enough_rows_are_fitted_and_predict_few_rows() -> None:
    levels = np.repeat(np.arange(60), 3)
    y = np.random.default_rng(0).normal(size=180)
    table = {"y": y, "g": [f"g{k}" for k in levels], "x": np.random.default_rng(1).normal(size=180)}
    made = designed("y ~ g:x", table)
    assert made.X.shape == (180, 60)
    assert made.design.rows({"g": ["g5"], "x": [2.0]}).sum() == 2.0


def test_designs_that_do_not_fit_into_memory_are_refused_before_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"y": np.arange(2000.0), "x": np.arange(2000.0), "g": [f"g{k % 100}" for k in range(2000)]}
    monkeypatch.setattr(terms, "free_memory", lambda: 1e6)
    with pytest.raises(DataError, match=r"makes 1,\d{3} columns of 2,000 rows, which take about .* GB"):
        designed("y ~ g*bs(x, df=10)", table)
    with pytest.raises(DataError, match=r"makes 99 columns of 2,000 rows"):
        designed("y ~ g", table)
    assert designed("y ~ bs(x, df=10)", table).X.shape == (2000, 10)


def test_names_are_looked_up_in_linear_time(tmp_path: Path) -> None:
    """Twenty thousand columns took a minute where each was compared with all others."""
    count = 20_000
    table = {"y": np.arange(3.0)} | {f"c{j}": np.arange(3.0) + j for j in range(count)}
    began = time.process_time()
    assert len(designed("y ~ .", pandas.DataFrame(table)).design.names) == count
    assert len(designed("y ~ " + " + ".join(f"c{j}" for j in range(count)), table).design.names) == count
    require_names(tmp_path, [f"c{j}" for j in range(10 * count)])
    assert time.process_time() - began < 30


SIGNS = {
    "no-break space": "a\u00a0b", "tab": "a\tb", "soft hyphen": "a\u00adb", "zero-width space": "a\u200bb",
    "byte order mark": "\ufeffa", "line end": "a\nb", "right to left": "\u200fa", "ideographic space": "a\u3000b",
    "letter that Python spells otherwise": "µ", "vertical tab": "a\x0bb", "quotes": "a\"b'c", "backslash": "a\\",
}  # fmt: skip


@pytest.mark.parametrize("kind", SIGNS)
def test_names_of_exports_survive(kind: str, tmp_path: Path) -> None:
    name = SIGNS[kind]
    frame = pandas.DataFrame({"y": Y, name: X[:, 0], "g": np.where(EVENTS > 0, name, "other")})
    posterior = svrhmc.fit("y ~ .", frame, **CLOSED)
    assert posterior.names[1] == name
    posterior.save(tmp_path / "a.posterior")
    again = svrhmc.Posterior.load(tmp_path / "a.posterior")
    assert again.names == posterior.names
    np.testing.assert_array_equal(again.predict(frame).mean, posterior.predict(frame).mean)
    assert 0 <= posterior.probability(f"`{name}` > 0") <= 1
    assert name.strip() in posterior.to_frame().index.str.strip()
    interaction = designed(f"y ~ `{name}`:g + log(abs(`{name}`))", frame).design
    assert interaction.rows(frame).shape == (N, 3)


def test_names_of_exports_in_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["a\u00a0b", "c\u00add", "e\u200bf"]
    values = np.random.default_rng(0).normal(size=(N, 4))
    with open("a.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["y", *names], *values.tolist()])
    shell = CliRunner()
    done = shell.invoke(app, ["fit", "a.csv", "--target", "y", "--draws", "50", "--quiet"])
    assert done.exit_code == 0, done.output
    with open("a-fit/coefficients.csv", encoding="utf-8", newline="") as file:
        assert [row[0] for row in csv.reader(file)][2:5] == names
    assert all(name in Path("a-fit/report.html").read_text(encoding="utf-8") for name in names)
    predicted = shell.invoke(app, ["predict", "a-fit", "a.csv", "--out", "p.csv", "--quiet"])
    assert predicted.exit_code == 0, predicted.output
    assert len(Path("p.csv").read_text().splitlines()) == N + 1


def test_names_that_no_file_can_hold_are_refused_before_any_work() -> None:
    for name in ("a\x1b[31mb", "a\x00b", "\ud800"):
        assert not is_text(name)
        with pytest.raises(DataError, match="control sign"):
            svrhmc.fit("y ~ .", {"y": Y, name: X[:, 0]})
        with pytest.raises(DataError, match="control sign"):
            svrhmc.fit("y ~ g", {"y": Y, "g": [name if event else "b" for event in EVENTS]})
        with pytest.raises(DataError, match="control sign"):
            svrhmc.fit("g ~ y", {"y": Y, "g": [name if event else "b" for event in EVENTS]})
        with pytest.raises(DataError, match="control sign"):
            regress(X, Y, names=["b", name])


@pytest.mark.parametrize(
    ("values", "family", "said"),
    [
        ([0, 1, 1], "bernoulli", "0 or 1"),
        ([-1.0, 1.0], "bernoulli", "-1 or 1"),
        ([True, False], "bernoulli", "true or false"),
        (["no", "yes"], "bernoulli", "two classes"),
        ([1.5, 2.5], "gaussian", "if 1.5 and 2.5 are classes, name the family 'bernoulli'"),
        ([1, 2, 2, 1], "gaussian", "if 1 and 2 are classes"),
        ([0, 3], "poisson", "counts"),
        ([10.0, 12.5, 13.0], "gaussian", "holds numbers"),
    ],
)
def test_only_yes_or_no_is_taken_for_events(values: npt.ArrayLike, family: str, said: str) -> None:
    found = read_response("y", columns_of({"y": values}, ["y"])["y"], None)
    assert found.loss.name == family
    assert said in found.guessed


def test_the_guess_is_said_in_the_summary() -> None:
    posterior = svrhmc.fit("y ~ 1", {"y": [1.5, 2.5]}, draws=50)
    assert posterior.family == "gaussian"
    assert "the response holds numbers" in " ".join(str(posterior.summary()).split())
