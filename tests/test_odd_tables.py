"""Odd names, numbers and columns at the front doors: fitted as they should be, or refused in one sentence."""

import numpy as np
import pytest

import svrhmc
from svrhmc.core.errors import DataError
from svrhmc.fitting import regress
from svrhmc.tables import columns_of


def _odd_table():
    rng = np.random.default_rng(5)
    return {
        "y": rng.normal(size=30), "a b": rng.normal(size=30), "g": np.array(["u", "v", "w"] * 10),
        "1": rng.normal(size=30), "class": rng.normal(size=30), "Intercept": rng.normal(size=30),
        "log sigma": rng.normal(size=30), "positive": rng.gamma(2.0, size=30), "zero": np.zeros(30),
    }  # fmt: skip


def test_names_with_signs_in_them_keep_them_in_interactions_and_expressions():
    """Formulaic's text of a term has no backticks, and an expression in braces no braces."""
    table = _odd_table()
    assert svrhmc.fit("y ~ g*`a b`", table).names[:6] == ("Intercept", "g[v]", "g[w]", "a b", "g[v]:a b", "g[w]:a b")
    assert svrhmc.fit("y ~ `class`:g", table).names[1] == "class:g[u]"
    assert svrhmc.fit("y ~ `1` + g", table).names[:2] == ("Intercept", "1")
    braced = svrhmc.fit("y ~ {positive + 1}:g + `a b`", table)
    again = svrhmc.fit("y ~ z:g + `a b`", {**table, "z": np.asarray(table["positive"]) + 1})
    np.testing.assert_allclose(np.sort(braced.mean), np.sort(again.mean), rtol=1e-8)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("y ~ .", "column 'Intercept' has the name of another parameter"),
        ("y ~ Intercept", "column 'Intercept' has the name of another parameter"),
        ("y ~ `log sigma`", "column 'log sigma' has the name of another parameter"),
        ("y ~ `not there`:g", "no column 'not there'"),
        ("y ~ np.log(zero)", "must be finite; it is -inf in row 0"),
        ("y ~ 0", "columns where there is no intercept"),
    ],
)
def test_names_and_transformations_that_cannot_be_used_are_refused(formula, said):
    with pytest.raises(ValueError, match=said), np.errstate(all="ignore"):
        svrhmc.fit(formula, _odd_table())


def test_an_intercept_alone_is_fitted_and_predicts():
    y = np.random.default_rng(6).normal(5.0, 2.0, 200)
    posterior = svrhmc.fit("y ~ 1", {"y": y})
    assert posterior.names == ("Intercept", "log sigma")
    assert abs(posterior.mean[0] - y.mean()) < 0.01
    np.testing.assert_allclose(posterior.predict({"other": [1, 2]}).mean, y.mean(), atol=0.05)
    with pytest.raises(ValueError, match="of an intercept no change is made"):
        posterior.effects()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": [1.0, np.inf, 2.0, 3.0]}, "column 'x' must hold finite numbers; it is inf in row 1"),
        ({"x": [1e200, 2e200, 5e200, 7e200]}, "column 'x' goes from 1e.200 to 7e.200, which is too large"),
        ({"x": [1e-200, 2e-200, 5e-200, 7e-200]}, "column 'x' goes from 1e-200 to 7e-200, which is too small"),
        ({"y": [1e200, 2e200, 5e200, 9e200]}, "the response 'y' goes from 1e.200"),
        ({"x": [[1], [1, 2], [1], [2]]}, "column 'x' must be one value for each row"),
    ],
)
def test_numbers_that_nothing_can_be_calculated_with_are_refused_by_name(change, said):
    with pytest.raises(DataError, match=said):
        svrhmc.fit("y ~ x", {"y": [1.0, 2.5, 2.0, 4.0], "x": [1.0, 2.0, 3.0, 4.5], **change}, "gaussian")


def test_two_levels_without_an_intercept_do_not_repeat_each_other():
    table = {"y": [1.0, 2.0, 3.0, 5.0, 4.0], "g": ["a", "b", "a", "b", "a"]}
    assert svrhmc.fit("y ~ 0 + g", table).names == ("g[a]", "g[b]", "log sigma")


def test_a_column_of_zeros_among_the_rows_that_count_is_no_overflow():
    table = {"y": [0.3, -1.1, 0.5, -0.4, 0.2], "x": [0.0, 1.0, 0.0, 0.0, 0.0], "g": list("aacba")}
    posterior = svrhmc.fit("y ~ 0 + x + g", table, weights=[0.0, 0.0, 1.0, 1.0, 1.0])
    assert np.isfinite(posterior.mean).all()
    assert np.isfinite(posterior.sd).all()


def test_columns_of_pandas_and_pyarrow_that_are_coded_are_the_same_in_any_table():
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    y, codes = np.random.default_rng(8).normal(size=12), np.array([3, 1, 2] * 4)
    category = pandas.Categorical(codes, categories=[1, 2, 3, 9])
    tables = [
        {"y": y, "c": category, "m": pandas.array(codes, dtype="Int64")},
        pandas.DataFrame({"y": y, "c": category, "m": codes}),
        pyarrow.table({"y": y, "c": pyarrow.array(codes).dictionary_encode(), "m": codes}),
    ]
    assert svrhmc.fit("y ~ i", {"y": y, "i": pandas.Index(codes)}).names[1] == "i"
    first, *others = [svrhmc.fit("y ~ c", table) for table in tables]
    assert first.names == ("Intercept", "c[2]", "c[3]", "log sigma")
    for other, table in zip(others, tables[1:], strict=True):
        assert other.names == first.names
        np.testing.assert_allclose(other.mean, first.mean, rtol=1e-12)
        np.testing.assert_allclose(first.predict(table).mean, other.predict(tables[0]).mean, rtol=1e-12)
    ordered = pyarrow.DictionaryArray.from_arrays([0, 1, 2] * 4, ["lo", "mid", "hi"], ordered=True)
    assert svrhmc.fit("y ~ c", pyarrow.table({"y": y, "c": ordered})).names[1:3] == ("c[mid]", "c[hi]")


@pytest.mark.parametrize("ordered", [False, True])
def test_the_baseline_of_a_category_does_not_depend_on_the_kind_of_table(ordered):
    """Sorted where the type declares no order, whatever order it keeps them in; the declared order where it does."""
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    values, order = ["b", "c", "a", "c"] * 3, ["c", "a", "b"]
    category = pandas.Categorical(values, categories=order, ordered=ordered)
    codes = [order.index(each) for each in values]
    frame = pandas.DataFrame({"g": category})
    tables = {
        "pandas": frame,
        "dictionary": {"g": category},
        "pyarrow": pyarrow.table({"g": pyarrow.DictionaryArray.from_arrays(codes, order, ordered=ordered)}),
        "pyarrow, converted": pyarrow.Table.from_pandas(frame),
        "polars": polars.DataFrame(
            {"g": polars.Series(values, dtype=polars.Enum(order) if ordered else polars.Categorical)}
        ),
    }
    tables["pandas, of polars"] = tables["polars"].to_pandas()
    if not ordered:
        tables |= {"texts": {"g": values}, "polars, converted": polars.from_pandas(frame)}
    found = {name: columns_of(table, ["g"])["g"].levels for name, table in tables.items()}
    assert found == dict.fromkeys(tables, tuple(order) if ordered else ("a", "b", "c"))


def test_intervals_are_categories_and_categories_of_several_kinds_are_refused():
    pandas = pytest.importorskip("pandas")
    y = np.random.default_rng(8).normal(size=12)
    cut = pandas.cut(np.arange(12.0), [-1, 8, 9, 20])
    assert columns_of({"g": cut}, ["g"])["g"].levels == ("(-1, 8]", "(8, 9]", "(9, 20]")  # not sorted as texts
    assert svrhmc.fit("y ~ g", {"y": y, "g": cut}, draws=50).design.baselines == ("g[(-1, 8]]",)
    with pytest.raises(ValueError, match=r"column 'g' has categories of several kinds \(int and str\)"):
        columns_of({"g": pandas.Categorical([1, "a"])}, ["g"])


def test_offsets_of_another_length_are_refused_when_predicting():
    posterior = svrhmc.fit("y ~ x", {"y": [1.0, 2.5, 2.0, 4.0], "x": [1.0, 2.0, 3.0, 4.5]}, "gaussian")
    with pytest.raises(ValueError, match="offset must be an array of shape"):
        posterior.predict({"x": [1.0, 2.0]}, offset=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(
        posterior.predict({"x": [1.0]}, offset=2.0).mean, posterior.predict({"x": [1.0]}).mean + 2
    )


def test_a_robust_fit_without_residuals_is_refused():
    """The mode of log scale would lie below rounding; the search for it ended in an error without advice."""
    with pytest.raises(ValueError, match="some coefficients fit every y exactly"):
        svrhmc.fit("y ~ x", {"y": [1.0, 3.0, 2.0], "x": ["a", "b", "c"]}, "student-t")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"weights": [0.0] * 4}, "weights must be above 0 for some row"),
        ({"weights": [1e200] * 4}, "weights must be numbers with a sum below 1e.18"),
        ({"offset": [1e200] * 4}, "the offset goes from 1e.200 to 1e.200, which is too large"),
        ({"prior": {"x": 3}}, "prior must be a dictionary by column of one of svrhmc.targets.priors .*; got 3"),
        ({"sed": 3}, "a keyword of fit must be one of .*'seed'.* got 'sed'"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(given, said):
    with pytest.raises(ValueError, match=said):
        svrhmc.fit("y ~ x", {"y": [1.0, 2.5, 2.0, 4.0], "x": [1.0, 2.0, 3.0, 4.5]}, "gaussian", **given)


def test_columns_of_one_name_are_refused():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(np.eye(4)[:, :3], columns=["y", "a b", "a b"])
    with pytest.raises(DataError, match="several columns named 'a b': rename all but one"):
        svrhmc.fit("y ~ `a b`", table)


def test_one_row_says_nothing_of_its_noise_and_contradicts_no_prior(recwarn):
    posterior = regress([[1.0, 2.0]], [3.0])
    assert posterior.clashes == ()
    assert not recwarn.list
