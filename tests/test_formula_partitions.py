"""Formulas on tables in partitions: the design, the posterior and all that follows are those of the table in memory."""

import re
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context

import numpy as np
import pytest

import svrhmc
from simulated_data import events
from svrhmc import data
from svrhmc.core.errors import DataError
from svrhmc.tables import designed, transforms
from svrhmc.tables.columns import columns_of
from svrhmc.tables.partitions import open_by_formula

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")

N = 400
CUTS = (0, 3, 90, 91, 200, 201, 333, N)  # of seven files
FORMULAS = {
    "numbers": "y ~ a + b",
    "all other columns": "y ~ . - when",
    "interactions": "y ~ a*b + C(region) + np.log(x)",
    "no intercept": "y ~ 0 + region + a:region",
    "levels with an order": "y ~ size + a",
    "numbers as levels": "y ~ C(k) + C(k):a",
    "contrasts": "y ~ C(region, Sum) + C(region, Treatment('S')):a",
    "computed levels": "y ~ C(np.where(a > 0, 'above', 'below')) + b",
    "truth values": "y ~ t*a",
    "centred": "y ~ center(a) + scale(b) + standardize(x)",
    "centred elsewhere": "y ~ scale(a, center=1.5) + scale(b, scale=False) + scale(x, center=False, ddof=0)",
    "polynomials": "y ~ poly(x, 4) + poly(a, 2, raw=True)",
    "splines": "y ~ bs(x, df=5) + bs(b, knots=[2, 4], degree=2)",
    "splines within bounds": "y ~ bs(x, df=6, lower_bound=1, upper_bound=8, extrapolation='clip')",
    "splines of few values": "y ~ bs(k, df=4, include_intercept=True)",
    "cubic splines": "y ~ cr(a, df=4) + cc(x, df=3) + cr(b, df=3, constraints='center')",
    "one within another": "y ~ bs(center(np.log(x)), df=4):region + scale(poly(a, 2))",
    "quoted": "y ~ `a name` + np.exp(`a name`)",
}


def table(n=N):
    rng = np.random.default_rng(3)
    made = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": rng.normal(3, 2, size=n),
            "x": rng.uniform(0.5, 9, n),
            "region": rng.choice(["N", "S", "E", "W"], n),
            "size": pd.Categorical(rng.choice(["s", "m", "l"], n), ["s", "m", "l"], ordered=True),
            "k": rng.integers(1, 7, n),
            "t": rng.random(n) < 0.3,
            "a name": rng.normal(size=n),
            "exposure": rng.uniform(0.5, 2, n),
        }
    )
    t = (
        0.3
        + 0.5 * made.a
        - 0.2 * made.b
        + 0.4 * np.log(made.x)
        + made.region.map({"N": 0, "S": 0.3, "E": -0.2, "W": 0.1})
    )
    made["y"] = t + 0.5 * rng.normal(size=n)
    made["churn"] = np.where(events(rng, t), "yes", "no")
    made["visits"] = rng.poisson(np.exp(t / 3) * made.exposure)
    made["amount"] = np.exp(t / 3) * rng.gamma(2.0, size=n)
    made["when"] = pd.Timestamp("2020-01-01")
    return made


TABLE = table()


def written(folder, made=TABLE):
    for k, (low, high) in enumerate(pairwise(CUTS)):
        rows = pa.Table.from_pandas(made[low:high], preserve_index=False)
        pq.write_table(rows, folder / f"part-{k}.parquet", row_group_size=50)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("rows"))


def dask(made=TABLE):
    return pytest.importorskip("dask.dataframe").from_pandas(made, npartitions=4)


def csv(folder, made=TABLE):
    made.drop(columns="when").to_csv(folder / "rows.csv", index=False)
    return data.from_csv(folder / "rows.csv", partition_bytes=4000)


def rows_of(formula, partitions, drop=False, own=None):
    """Every row that a target would see, with the names of the columns."""
    rows, design = open_by_formula(formula, partitions, (), drop, own).rows(
        None, dict.fromkeys(("offset", "exposure", "weights"))
    )
    reader = rows.reader
    blocks = [block for k in range(len(reader.sizes)) for block in reader.read(k)]
    assert sum(len(block.y) for block in blocks) == reader.sizes.sum()
    return np.concatenate([block.X for block in blocks]), design


@pytest.mark.parametrize("name", FORMULAS)
def test_the_rows_are_those_of_the_table_in_memory(name, folder):
    formula = FORMULAS[name] if name != "all other columns" else "y ~ . - when - churn"
    made = designed(formula, TABLE.drop(columns="when"))
    for partitions in (data.from_parquet(folder), data.from_dask(dask())):
        X, design = rows_of(formula, partitions)
        assert design.names == made.design.names
        assert design.choices == made.design.choices
        assert pytest.approx(made.X, rel=1e-9, abs=1e-10) == X
        new = TABLE[:40]
        assert design.rows(new) == pytest.approx(made.design.rows(new), rel=1e-9, abs=1e-10)


def test_a_state_learned_of_one_file_would_be_seen(folder, tmp_path):
    """The negative control: means of the first file alone are others."""
    X, _ = rows_of("y ~ center(a) + bs(x, df=5)", data.from_parquet(folder))
    other = TABLE.copy()
    other.loc[N - 1, ["a", "x"]] = [7.0, 9.5]  # in the last file
    moved, _ = rows_of("y ~ center(a) + bs(x, df=5)", data.from_parquet(written(tmp_path, other)))
    assert np.abs(moved[: N - 1] - X[: N - 1]).max() > 1e-3


@pytest.mark.parametrize(
    ("formula", "more"),
    [
        ("y ~ a*b + C(region) + np.log(x)", {}),
        ("np.log(amount) ~ bs(x, df=4) + region", {"weights": "k"}),
        ("y ~ region + scale(b)", {"offset": "exposure"}),
    ],
)
def test_the_posterior_is_that_of_the_table_in_memory(formula, more, folder, tmp_path):
    whole = svrhmc.fit(formula, TABLE, **more)
    for partitions in (data.from_parquet(folder), data.from_dask(dask()), csv(tmp_path)):
        posterior = svrhmc.fit(formula, partitions, **more)
        assert (posterior.names, posterior.family, posterior.rows) == (whole.names, whole.family, N)
        assert np.abs((posterior.mean - whole.mean) / whole.sd).max() < 1e-6
        assert posterior.sd == pytest.approx(whole.sd, rel=1e-6)
        new = TABLE[:7]
        assert posterior.predict(new).mean == pytest.approx(whole.predict(new).mean, rel=1e-6)
        assert posterior.effects().mean == pytest.approx(whole.effects().mean, rel=1e-6, abs=1e-9)
    other = svrhmc.fit(formula, TABLE[1:], **more)
    assert np.abs((other.mean - whole.mean) / whole.sd).max() > 1e-5  # a row that is left out is seen


@pytest.mark.ordinary(lambda formula, family, more: family == "bernoulli")
@pytest.mark.parametrize(
    ("formula", "family", "more"),
    [
        ("churn ~ a + C(region)", "bernoulli", {}),
        ("t ~ a + region", "bernoulli", {}),
        ("visits ~ a + bs(x, df=4)", "poisson", {"exposure": "exposure"}),
        ("amount ~ a + region", "gamma", {}),
        ("visits ~ a", "negative-binomial", {"exposure": "exposure", "weights": "k"}),
        ("region ~ a + b", "categorical", {}),
        ("size ~ a + b", "ordinal", {}),
    ],
)
def test_every_family_has_the_mode_of_the_table_in_memory(formula, family, more, folder):
    kind = None if family in ("bernoulli", "poisson", "categorical") else family
    whole, found = (
        svrhmc.fit(formula, each, kind, draws=50, tolerance=0.5, **more) for each in (TABLE, data.from_parquet(folder))
    )
    assert (found.names, found.family) == (whole.names, family)
    assert found.design.classes == whole.design.classes
    assert found.design.guessed == whole.design.guessed
    assert np.abs((found.laplace.mean - whole.laplace.mean) / whole.laplace.sd).max() < 1e-6
    assert found.laplace.sd == pytest.approx(whole.laplace.sd, rel=1e-6)


def test_rows_with_missing_values_are_refused_or_left_out(tmp_path):
    made = TABLE.copy()
    made.loc[[5, 150, N - 1], "a"] = np.nan
    made.loc[[5, 300], "region"] = None
    partitions = data.from_parquet(written(tmp_path, made))
    with pytest.raises(DataError, match=r"part-1\.parquet, row group 0, row 2, column 'region': a missing value"):
        svrhmc.fit("y ~ a + region", partitions)
    with pytest.raises(DataError, match="column 'a': a missing value"):
        svrhmc.fit("y ~ a", partitions)
    whole, found = (svrhmc.fit("y ~ center(a) + region", each, missing="drop") for each in (made, partitions))
    assert found.design.dropped == whole.design.dropped == 4
    assert found.rows == N - 4
    assert np.abs((found.mean - whole.mean) / whole.sd).max() < 1e-6
    assert found.effects().mean == pytest.approx(whole.effects().mean, rel=1e-6)


def test_a_cluster_fits_the_same(folder):
    distributed = pytest.importorskip("distributed")
    formula = "y ~ bs(x, df=4) + region:a"
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as made,
        distributed.Client(made) as client,
    ):
        found = [
            svrhmc.fit(formula, partitions)
            for partitions in (data.from_parquet(folder, client=client), data.from_dask(dask(), client=client))
        ]
    expected = svrhmc.fit(formula, data.from_parquet(folder))
    assert (found[0].mean == expected.mean).all()
    assert found[1].mean == pytest.approx(expected.mean, rel=1e-9)


def test_columns_named_where_the_table_was_opened_are_used(folder):
    opened = data.from_parquet(folder, target="visits", features=["a"], offset="exposure", weights="k")
    posterior = svrhmc.fit("y ~ a", opened)
    whole = svrhmc.fit("y ~ a", TABLE, offset="exposure", weights="k")
    assert np.abs((posterior.mean - whole.mean) / whole.sd).max() < 1e-6
    assert posterior.design.offset == "exposure"


def test_a_fit_is_saved_reported_and_predicts_in_the_shell(folder, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from svrhmc.shell import app as cli

    monkeypatch.chdir(tmp_path)
    TABLE[:5].drop(columns="when").to_csv("new.csv", index=False)

    def invoke(*words):
        return CliRunner().invoke(cli.app, [str(word) for word in words])

    result = invoke("fit", folder, "--formula", "y ~ a*region + bs(x, df=4)", "--weights", "k", "--out", "made")
    assert result.exit_code == 0, result.output
    report = (tmp_path / "made" / "report.html").read_text()
    assert "Average effects" in report
    assert re.search(r"rows stay in \d+ partitions", result.output)
    whole = svrhmc.fit("y ~ a*region + bs(x, df=4)", TABLE, weights="k")
    kept = svrhmc.Posterior.load("made/model.posterior")
    assert np.abs((kept.mean - whole.mean) / whole.sd).max() < 1e-6
    result = invoke("predict", "made", "new.csv", "--out", "predicted.csv")
    assert result.exit_code == 0, result.output
    assert pd.read_csv("predicted.csv")["mean"].to_numpy() == pytest.approx(whole.predict(TABLE[:5]).mean, rel=1e-4)
    result = invoke(
        "fit", folder, "--target", "visits", "--formula", "a", "--exposure", "exposure", "--draws", 50, "--out", "b"
    )
    assert result.exit_code == 0, result.output
    assert svrhmc.Posterior.load("b/model.posterior").design.exposure == "exposure"


REFUSED = {
    "a column that is not there": ("y ~ aa", {}, r"the table has no column 'aa': did you mean 'a'\?"),
    "dates": ("y ~ when", {}, "holds neither numbers nor truth values nor texts everywhere"),
    "rows that depend on others": ("y ~ lag(a)", {}, "depends on other rows, and cannot be used on rows in partitions"),
    "a function that does": ("y ~ f(a)", {"transforms": {"f": lambda a: a - a.mean()}}, "depends on other rows"),
    "itself": ("y ~ y + a", {}, "stands among its own predictors"),
    "one level": ("y ~ C(np.where(a > -99, 'u', 'v')) + C(one)", {}, "has no column 'one'"),
    "constants": ("y ~ I(0*a) + b", {}, "is constant"),
    "logarithms of 0": ("y ~ np.log(a)", {}, "is not finite"),
    "arrays beside the table": ("y ~ a", {"weights": np.ones(N)}, "weights must be the name of a column"),
    "trials": (
        "visits ~ a",
        {"trials": "k", "family": "binomial"},
        "trials must be None where the table is in partitions",
    ),
    "texts as weights": ("y ~ a", {"weights": "region"}, "has no numbers but texts"),
    "texts of numbers": ("region ~ a", {"family": "poisson"}, "holds texts"),
    "too many classes": ("a ~ b", {"family": "bernoulli"}, "takes two"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, folder):
    formula, more, match = REFUSED[name]
    with pytest.raises((DataError, ValueError), match=match):
        svrhmc.fit(formula, data.from_parquet(folder), **more)


def test_functions_of_the_caller_are_applied_block_by_block(folder):
    own = {"half": lambda x: x / 2}
    X, _ = rows_of("y ~ half(a):region + center(half(b))", data.from_parquet(folder), own=own)
    assert (
        pytest.approx(designed("y ~ half(a):region + center(half(b))", TABLE.drop(columns="when"), transforms=own).X)
        == X
    )


def test_a_csv_column_that_no_formula_names_may_hold_anything(tmp_path):
    made = TABLE[["y", "a"]].assign(note="x" * 1000, mixed=["7", "old"] * (N // 2))
    made.to_csv(tmp_path / "rows.csv", index=False)
    partitions = data.from_csv(tmp_path / "rows.csv", partition_bytes=100_000)
    whole, found = svrhmc.fit("y ~ a", TABLE), svrhmc.fit("y ~ a", partitions)
    assert np.abs((found.mean - whole.mean) / whole.sd).max() < 1e-6
    for name in ("note", "mixed"):
        with pytest.raises(DataError, match=f"column '{name}' holds neither numbers nor truth values nor texts"):
            svrhmc.fit(f"y ~ {name}", partitions)
        made[["y", "a", name]].to_csv(tmp_path / f"{name}.csv", index=False)
        with pytest.raises(DataError, match=name):
            data.from_csv(tmp_path / f"{name}.csv", "y", partition_bytes=100_000)


def half(x):
    return x / 2


def test_processes_fit_the_same_and_need_functions_that_they_can_load(folder):
    formula = "y ~ half(a) + bs(x, df=4) + region"
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        partitions = data.from_parquet(folder, client=pool)
        posterior = svrhmc.fit(formula, partitions, transforms={"half": half})
        with pytest.raises(ValueError, match="transforms must be functions that other processes can import; got half"):
            svrhmc.fit(formula, partitions, transforms={"half": lambda x: x / 2})
    expected = svrhmc.fit(formula, data.from_parquet(folder), transforms={"half": half})
    assert (posterior.mean == expected.mean).all()


def test_a_table_without_a_target_is_for_formulas(folder):
    opened = data.from_parquet(folder)
    assert str(opened) == f"Partitions({N} rows, 14 columns, {len(opened.source.sizes)} partitions)"
    with pytest.raises(ValueError, match="target must be the name of a column"):
        svrhmc.targets.logistic(opened)
    with pytest.raises(ValueError, match="target must be given where features or an intercept are"):
        data.from_parquet(folder, features=["a"])
    with pytest.raises(DataError, match="no columns by name, and take no formula"):
        svrhmc.fit("y ~ x0", data.from_arrays(np.ones((4, 1)), np.arange(4)))


def test_more_different_values_than_are_kept_need_their_knots(folder, monkeypatch):
    monkeypatch.setattr(transforms, "MOST_DISTINCT", 100)
    with pytest.raises(DataError, match=r"more than 100 different values .* give a spline its knots"):
        svrhmc.fit("y ~ bs(x, df=5)", data.from_parquet(folder))


def test_statistics_do_not_depend_on_how_rows_are_cut():
    rng = np.random.default_rng(0)
    x = 1e6 + rng.integers(0, 40, 500) / 8
    whole, parts = transforms.moments(x), [transforms.moments(part) for part in np.split(x, [1, 2, 77, 400])]
    total = parts[0] + parts[1] + parts[2] + parts[3] + parts[4]
    assert total.mean == pytest.approx(x.mean(), rel=1e-15)
    assert total.squares == pytest.approx(whole.squares, rel=1e-12)
    values, counts = (transforms.count_distinct(x[:100]) + transforms.count_distinct(x[100:])).sorted()
    levels = np.linspace(0, 1, 23)
    assert transforms.quantiles(values, counts, levels) == pytest.approx(np.quantile(x, levels), rel=1e-15)
    assert transforms.quantiles(values, np.ones_like(counts), levels) != pytest.approx(np.quantile(x, levels), rel=1e-9)


def test_texts_by_number_are_the_texts():
    column = columns_of({"plan": ["b", "a", "b"]}, ["plan"])["plan"]
    from svrhmc.tables.columns import CodedTexts, Column

    other = Column("category", CodedTexts(["a", "b", "c"], np.array([1, 0, 1])), None)
    assert column.codes(("a", "b")).tolist() == other.codes(("a", "b")).tolist() == [1, 0, 1]
    assert other.values.present_texts() == ["a", "b"]
    assert other.values[1:].tolist() == ["a", "b"]
    assert other.codes(("a",)).tolist() == [-1, 0, -1]
