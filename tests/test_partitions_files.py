"""Readers of partitions: the same rows from every kind of file and collection, and clear words for what cannot be read."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_matrix, save_npz

import svrhmc
from simulated_data import events
from svrhmc import data, targets
from svrhmc.core.errors import DataError, WorkersError
from svrhmc.rows import workers
from svrhmc.rows.columns import ColumnRows
from svrhmc.targets import families
from svrhmc.targets.priors import Flat

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")

N = 60


def frame(n=N):
    rng = np.random.default_rng(8)
    return pd.DataFrame(
        {
            "age": rng.normal(size=n).round(3),
            "visits": rng.integers(0, 5, size=n),
            "plan": np.array(["basic", "gold", "plus"])[rng.integers(0, 3, size=n)],
            "exposure": rng.normal(size=n).round(3),
            "count": rng.integers(1, 4, size=n),
            "y": rng.integers(0, 2, size=n),
        }
    )


TABLE = frame()
CUTS = [(0, 7), (7, 30), (30, N)]
OPTIONS = {"target": "y", "offset": "exposure", "weights": "count", "intercept": True}


def parquet(folder, table=TABLE):
    for k, (low, high) in enumerate(CUTS):
        pq.write_table(
            pa.Table.from_pandas(table[low:high], preserve_index=False), folder / f"part-{k}.parquet", row_group_size=11
        )
    return folder


def csv(folder, table=TABLE):
    for k, (low, high) in enumerate(CUTS):
        table[low:high].to_csv(folder / f"part-{k}.csv", index=False)
    return folder


def dask(folder, table=TABLE):
    return pytest.importorskip("dask.dataframe").from_pandas(table, npartitions=4)


OPEN = {
    "parquet": lambda folder: data.from_parquet(parquet(folder), **OPTIONS),
    "pattern": lambda folder: data.from_parquet(str(parquet(folder) / "part-*.parquet"), **OPTIONS),
    "list": lambda folder: data.from_parquet(sorted(parquet(folder).iterdir()), **OPTIONS),
    "csv": lambda folder: data.from_csv(csv(folder), **OPTIONS, partition_bytes=300),
    "one csv": lambda folder: data.from_csv(csv(folder), **OPTIONS),
    "dask": lambda folder: data.from_dask(dask(folder), **OPTIONS),
    "dask, persisted": lambda folder: data.from_dask(dask(folder).persist(scheduler="synchronous"), **OPTIONS),
}
NAMES = ("Intercept", "age", "visits", "plan[gold]", "plan[plus]")


def everything(found):
    reader = found.reader
    blocks = [block for k in range(len(reader.sizes)) for block in reader.read(k)]
    alone = [y for k in range(len(reader.sizes)) for y in reader.labels(k)]
    X, y, offset, weights = (np.concatenate([block[j] for block in blocks]) for j in range(1, 5))
    assert (np.concatenate(alone) == y).all()
    return X, y, offset, weights


@pytest.mark.parametrize("kind", OPEN)
def test_every_source_gives_the_same_rows(kind, tmp_path):
    found = OPEN[kind](tmp_path)
    X, y, offset, weights = everything(found)
    plan = TABLE["plan"].to_numpy()
    expected = np.column_stack([np.ones(N), TABLE["age"], TABLE["visits"], plan == "gold", plan == "plus"])
    assert found.reader.names == NAMES
    assert (expected == X).all()
    assert (y == TABLE["y"]).all()
    assert (offset == TABLE["exposure"]).all()
    assert (weights == TABLE["count"]).all()
    assert found.reader.sizes.sum() == N
    assert len(found.reader.sizes) > 1
    assert str(found) == f"Partitions(60 rows, 5 columns, {len(found.reader.sizes)} partitions)"
    for k in range(len(found.reader.sizes)):  # what goes to a worker reads the same
        one, other = list(found.reader.read(k)), list(found.reader.single_partition(k).read(0))
        assert all(
            (np.asarray(a[j]) == np.asarray(b[j])).all() for a, b in zip(one, other, strict=True) for j in range(5)
        )
        assert found.reader.partition_name(k) == found.reader.single_partition(k).partition_name(0)


def test_every_source_gives_the_same_mode(tmp_path):
    modes = []
    for k, kind in enumerate(OPEN):
        (tmp_path / str(k)).mkdir()
        modes.append(targets.glm(OPEN[kind](tmp_path / str(k)), family="bernoulli").mode())
    assert np.ptp(modes, axis=0).max() < 1e-9


def draws_of(rows, family):
    method = "subsampled-mh" if family == "bernoulli" else "closed-form"
    return svrhmc.sample(targets.glm(rows, family=family), draws=100, method=method, seed=4)


@pytest.mark.untraced
@pytest.mark.parametrize("family", ["bernoulli", "gaussian", families.gaussian(0.5)], ids=str)
def test_files_cut_anyhow_give_the_same_draws(family, tmp_path):
    """As seven files and 64, and as one array."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(300, 3))
    t = X @ np.array([0.3, 0.5, -0.4])
    y = t + 0.7 * rng.normal(size=300)
    if family == "bernoulli":
        y = events(rng, t).astype(int)
    table = pa.table({f"x{j}": X[:, j] for j in range(3)} | {"y": y})
    one = draws_of(data.from_arrays(X, y, partitions=1), family)
    for count in (7, 64):
        folder = tmp_path / str(count)
        folder.mkdir()
        cuts = np.linspace(0, 300, count + 1).astype(int)
        for k, (low, high) in enumerate(pairwise(cuts)):
            pq.write_table(table.slice(low, high - low), folder / f"part-{k:02}.parquet")
        other = draws_of(data.from_parquet(folder, "y"), family)
        assert np.abs((other.trace.draws - one.trace.draws) / one.sd).max() < 1e-8
        assert np.abs((other.mean - one.mean) / one.sd).max() < 1e-8
    modes = [targets.glm(data.from_arrays(X[k:], y[k:], partitions=1), family=family).mode() for k in (0, 1)]
    assert np.abs((modes[1] - modes[0]) / one.sd).max() > 1e-3  # a row that is left out is seen


def test_features_are_taken_in_their_order(tmp_path):
    for found in (
        data.from_parquet(parquet(tmp_path), "y", ["visits", "age"]),
        data.from_csv(csv(tmp_path), "y", ["visits", "age"]),
        data.from_dask(dask(tmp_path), "y", ["visits", "age"]),
    ):
        assert found.reader.names == ("visits", "age")
        assert (everything_of(found) == TABLE[["visits", "age"]].to_numpy()).all()


def everything_of(found):
    return np.concatenate([block.X for k in range(len(found.reader.sizes)) for block in found.reader.read(k)])


def test_small_numbers_stay_small(tmp_path):
    table = pa.table({"x": pa.array(np.arange(4), pa.float32()), "b": [True, False, True, True], "y": [0, 1, 0, 1]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert data.from_parquet(tmp_path, "y").reader.dtype == np.float32
    pq.write_table(table.append_column("k", pa.array([1, 2, 3, 4])), tmp_path / "a.parquet")
    assert data.from_parquet(tmp_path, "y").reader.dtype == np.float64  # which float32 would round


def test_empty_row_groups_are_no_matter(tmp_path):
    table = pa.Table.from_pandas(TABLE, preserve_index=False)
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for low, high in ((0, 20), (20, 20), (20, N)):
            writer.write_table(table.slice(low, high - low))
    pq.write_table(table.slice(0, 0), tmp_path / "b.parquet")
    found = data.from_parquet(tmp_path, **OPTIONS)
    assert found.reader.sizes.sum() == N
    one = targets.glm(found, family="bernoulli")
    (tmp_path / "other").mkdir()
    other = targets.glm(data.from_parquet(parquet(tmp_path / "other"), **OPTIONS), family="bernoulli")
    assert one.mode() == pytest.approx(other.mode(), abs=1e-9)


def test_sparse_blocks_are_the_rows_they_were(tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 5)) * (rng.random((N, 5)) < 0.4)
    y = TABLE["y"].to_numpy()
    for k, (low, high) in enumerate(CUTS):
        save_npz(tmp_path / f"part-{k}.npz", csr_matrix(X[low:high]))
    tall = targets.logistic(data.from_sparse(tmp_path, y))
    short = targets.logistic(csr_matrix(X), y)
    assert tall.mode() == pytest.approx(short.mode(), abs=1e-9)
    assert tall.modal_hessian == pytest.approx(short.modal_hessian, rel=1e-11, abs=1e-11)
    space = svrhmc.whitening.whitened(tall)
    window, at = space.gather(space.even_places(50))
    found = window.target.rows.X.toarray()
    assert all((row == X).all(axis=1).any() for row in found)
    assert len(at) == 50


def test_memory_maps_are_cut_into_partitions(tmp_path):
    X = TABLE[["age", "visits"]].to_numpy(float)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", TABLE["y"].to_numpy())
    found = data.from_arrays(tmp_path / "X.npy", tmp_path / "y.npy", partitions=4, names=["age", "visits"])
    assert (everything_of(found) == X).all()
    assert found.reader.names == ("age", "visits")


def test_dask_arrays_have_their_chunks_as_partitions():
    da = pytest.importorskip("dask.array")
    X, y = TABLE[["age", "visits"]].to_numpy(float), TABLE["y"].to_numpy()
    more = {"offset": TABLE["exposure"].to_numpy(), "weights": TABLE["count"].to_numpy()}
    parts = {name: da.from_array(each, chunks=25) for name, each in more.items()}
    found = data.from_dask(da.from_array(X, chunks=(25, 2)), da.from_array(y, chunks=25), **parts)
    assert found.reader.sizes.tolist() == [25, 25, 10]
    tall, short = targets.glm(found, family="bernoulli"), targets.glm(X, y, "bernoulli", **more)
    assert tall.mode() == pytest.approx(short.mode(), abs=1e-9)
    unknown = da.from_array(X, chunks=(25, 2))
    unknown = unknown[unknown[:, 0] > -10]  # whose sizes Dask does not know
    assert data.from_dask(unknown, da.from_array(y, chunks=25)).reader.sizes.tolist() == [25, 25, 10]
    with pytest.raises(ValueError, match="target must be in chunks of as many rows"):
        data.from_dask(da.from_array(X, chunks=(25, 2)), da.from_array(y, chunks=30))
    with pytest.raises(ValueError, match="chunks of whole rows"):
        data.from_dask(da.from_array(X, chunks=(25, 1)), da.from_array(y, chunks=25))
    with pytest.raises(ValueError, match="data must be a Dask data frame or a Dask array"):
        data.from_dask(X, y)


# What cannot be read.


def refused(match, kind=DataError):
    return pytest.raises(kind, match=match)


def test_a_path_that_is_not_there(tmp_path):
    with refused("nowhere is not there: give a file, a folder, or a pattern"):
        data.from_parquet(tmp_path / "nowhere", "y")
    with refused(r"the folder .* has no \.parquet or \.pq file in it"):
        data.from_parquet(tmp_path, "y")
    with refused(r"the folder .* has no \.csv file in it"):
        data.from_csv(tmp_path, "y")
    with refused("there are no files in the list"):
        data.from_parquet([], "y")
    with refused("no Parquet file, or is damaged"):
        (tmp_path / "a.parquet").write_bytes(b"PAR1 but no more")
        data.from_parquet(tmp_path, "y")


@pytest.mark.parametrize(
    "opened",
    [
        lambda f: data.from_parquet(parquet(f), "yy"),
        lambda f: data.from_csv(csv(f), "yy"),
        lambda f: data.from_dask(dask(f), "yy"),
    ],
)
def test_a_column_that_is_not_there(opened, tmp_path):
    with refused(r"there is no column 'yy'; did you mean 'y'\?"):
        opened(tmp_path)


def test_features_that_are_none(tmp_path):
    parquet(tmp_path)
    with pytest.raises(ValueError, match="features must be different columns, none of them the target"):
        data.from_parquet(tmp_path, "y", ["age", "y"])
    with pytest.raises(ValueError, match="features must be at least one column"):
        data.from_parquet(tmp_path, "y", [])
    with pytest.raises(ValueError, match="features must be a list of names"):
        data.from_parquet(tmp_path, "y", "age")


def test_a_partition_with_another_schema(tmp_path):
    parquet(tmp_path)
    last = TABLE[:5].rename(columns={"age": "Age"})
    pq.write_table(pa.Table.from_pandas(last, preserve_index=False), tmp_path / "part-9.parquet")
    with refused(r"part-9\.parquet: the column 'age' is not there, and in .*part-0\.parquet it is float64"):
        data.from_parquet(tmp_path, "y")
    last = TABLE[:5].assign(age="old")
    pq.write_table(pa.Table.from_pandas(last, preserve_index=False), tmp_path / "part-9.parquet")
    with refused(r"part-9\.parquet: the column 'age' is text, and in .*part-0\.parquet it is float64. All files"):
        data.from_parquet(tmp_path, "y")


def test_a_csv_file_with_another_header(tmp_path):
    csv(tmp_path)
    (tmp_path / "part-9.csv").write_text("age,y\n1,0\n")
    with refused(r"part-9\.csv has the header age,y, and .*part-0\.csv has age,visits"):
        data.from_csv(tmp_path, "y")


def test_a_category_that_comes_later(tmp_path):
    """One that was not there when the list of levels was made."""
    found = data.from_parquet(parquet(tmp_path), "y", ["plan"])
    table = pa.Table.from_pandas(TABLE[:7].assign(plan="silver"), preserve_index=False)
    pq.write_table(table, tmp_path / "part-0.parquet", row_group_size=11)
    with refused(r"part-0\.parquet, row group 0, row 0, column 'plan': the category 'silver' was not there before"):
        targets.logistic(found).mode()


@pytest.mark.parametrize("place", ["plan", "y"])
@pytest.mark.parametrize("kind", ["plain", "dictionary", "csv"])
def test_a_text_that_is_no_name_is_refused_before_it_stands_in_every_row(kind, place, tmp_path):
    """A megabyte in each of 30,000 rows, from a file of some kilobytes."""
    text, rows = "x" * (1 << 20), 30_000
    if kind == "csv":
        (tmp_path / "a.csv").write_text(
            "plan,y\n" + "u,0\nv,1\n" * rows + {"plan": f"{text},1", "y": f"u,{text}"}[place]
        )
        with pytest.raises(DataError, match=r"'(plan|y)' (has a text of 1,048,576|has both|is)"):
            data.from_csv(tmp_path / "a.csv", "y")
        return
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))
    columns = {"plan": pa.array(["u", "v"] * (rows // 2)), "y": pa.array(np.arange(rows) % 2), place: column}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", store_schema=kind == "dictionary")
    with pytest.raises(DataError, match=f"'{place}' has a text of 1,048,576 bytes"):
        next(data.from_parquet(tmp_path / "a.parquet", "y").reader.read(0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_missing_value_in_the_last_row_of_the_last_file(bad, tmp_path):
    table = TABLE.copy()
    table.loc[N - 1, "age"] = bad
    with refused(r"part-2\.parquet, row group 2, row 7, column 'age': a missing value"):
        targets.logistic(data.from_parquet(parquet(tmp_path, table), "y", ["age", "visits"])).mode()
    with refused(r"part-2\.csv, row 29, column 'age': a missing value"):
        targets.logistic(data.from_csv(csv(tmp_path, table), "y", ["age", "visits"], partition_bytes=200)).mode()
    with refused("partition 3 of the data frame, row 14, column 'age': a missing value"):
        targets.logistic(data.from_dask(dask(tmp_path, table), "y", ["age", "visits"])).mode()
    rows = table[["age", "visits"]].to_numpy()
    with refused("X, rows from 40 on, row 19, column 'x0': a missing value"):
        targets.logistic(data.from_arrays(rows, table["y"], partitions=3)).mode()


def test_missing_labels_offsets_and_weights(tmp_path):
    for name in ("y", "exposure", "count"):
        table = TABLE.astype({name: float})
        table.loc[N - 1, name] = np.nan
        with refused(f"row 7, (column '{name}'|offset|weights): a missing value"):
            targets.glm(data.from_parquet(parquet(tmp_path, table), **OPTIONS), family="bernoulli").mode()
    table = TABLE.copy()
    table.loc[N - 1, "count"] = -1
    with refused("row 7: the weight in 'count' is below 0"):
        targets.glm(data.from_parquet(parquet(tmp_path, table), **OPTIONS), family="bernoulli").mode()
    table = TABLE.copy()
    table.loc[3, "plan"] = None
    with refused("row 3, column 'plan': a missing value"):
        data.from_parquet(parquet(tmp_path, table), "y")


def test_labels_of_two_types(tmp_path):
    for name, labels in (("a", ["no", "yes"] * 5), ("b", [0, 1] * 5)):
        np.save(tmp_path / f"{name}.npy", np.arange(10.0)[:, None])
        pq.write_table(pa.table({"x": np.arange(10.0), "y": labels}), tmp_path / f"{name}.parquet")
    with refused("the column 'y' is int64, and in .* it is text"):
        data.from_parquet(tmp_path, "y")


def test_labels_that_no_family_has(tmp_path):
    X = np.arange(10.0)[:, None]
    with pytest.raises(ValueError, match=r"0 and 1|two"):
        targets.logistic(data.from_arrays(X, np.arange(10), partitions=2))
    with refused("X, rows from 5 on, rows from 0 on: .*y must"):
        y = np.arange(10)
        y[9] = -3
        targets.glm(data.from_arrays(X, y, partitions=2), family="poisson").mode()


def test_a_csv_column_of_numbers_and_texts(tmp_path):
    csv(tmp_path)
    text = (tmp_path / "part-1.csv").read_text().splitlines()
    text[5] = "old" + text[5][text[5].index(",") :]
    (tmp_path / "part-1.csv").write_text("\n".join(text) + "\n")
    for size in (100, 1 << 20):
        with refused(r"part-1\.csv, row 4, column 'age': 'old' is no number, and there are numbers elsewhere"):
            data.from_csv(tmp_path, "y", partition_bytes=size)
    assert (
        data.from_csv(tmp_path, "y", ["visits"]).reader.sizes.sum() == N
    )  # a column that nobody asks for is no matter


@pytest.mark.parametrize("size", [30, 1 << 20])
@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("x,y\n1,0\n2,1\n3,1,9\n", r"a\.csv, line 4: 3 values, where the header has 2 names"),
        ("x,y\n1,0\n2\n3,1\n", r"a\.csv, line 3: 1 values, where the header has 2 names"),
        ('x,y\n1,0\n2,1\n"3\n",1\n', r"a\.csv, line 4: a quotation mark is open"),
        ("x,x\n1,0\n", "two columns of the same name"),
        ("", "no header line"),
        ("x,y\n", "has no rows"),
        ("x,y\n1,0\n,1\n", r"a\.csv, row 1, column 'x': a missing value"),
    ],
)
def test_csv_files_that_cannot_be_read_in_parts(text, match, size, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with refused(match):
        targets.logistic(data.from_csv(tmp_path, "y", partition_bytes=size)).mode()


def test_csv_has_quotes_other_delimiters_and_other_line_ends(tmp_path):
    (tmp_path / "a.csv").write_bytes('\ufeffx;"the plan";y\r\n1;"a;b";0\r\n2;c;1\r\n\r\n3;c;1'.encode())
    found = data.from_csv(tmp_path, "y", delimiter=";", partition_bytes=10)
    assert found.reader.names == ("x", "the plan[c]")
    assert everything_of(found).tolist() == [[1, 0], [2, 1], [3, 1]]
    with pytest.raises(ValueError, match="delimiter must be one character"):
        data.from_csv(tmp_path, "y", delimiter=";;")
    (tmp_path / "a.csv").write_bytes(b"\x1f\x8b\x08")
    with refused("is compressed"):
        data.from_csv(tmp_path, "y")


def test_a_data_frame_whose_partitions_are_not_what_it_says(tmp_path):
    dd = pytest.importorskip("dask.dataframe")

    def bad(part):
        return part.assign(age="old") if len(part) and part.index[0] >= 30 else part

    made = dd.from_pandas(TABLE, npartitions=4).map_partitions(bad, meta=TABLE[:0])
    with refused("partition 2 of the data frame: the column 'age' is text, and the frame says float64"):
        data.from_dask(made, "y", ["age"])


def test_columns_that_are_no_features(tmp_path):
    table = pa.table({"when": pa.array([1, 2], pa.timestamp("s")), "same": ["a", "a"], "y": [0, 1]})
    pq.write_table(table, tmp_path / "a.parquet")
    with refused("'when' holds neither numbers nor texts; leave it out"):
        data.from_parquet(tmp_path, "y")
    with refused("'same' has one level everywhere"):
        data.from_parquet(tmp_path, "y", ["same"])
    pq.write_table(pa.table({"k": [f"k{j}" for j in range(1100)], "y": [0, 1] * 550}), tmp_path / "a.parquet")
    with refused("'k' has more than 1000 levels"):
        data.from_parquet(tmp_path, "y")


def test_dependent_columns_are_named():
    X = np.column_stack([np.ones(N), TABLE["age"], 2 * TABLE["age"]])
    rows = data.from_arrays(X, TABLE["y"], partitions=2, names=["one", "age", "twice"])
    with pytest.raises(ValueError, match="for columns 'age', 'twice', where X is of rank 2 of 3: drop a column"):
        targets.glm(rows, prior=Flat()).mode()


def test_arrays_stay_in_this_process():
    from concurrent.futures import ThreadPoolExecutor

    X, y = np.ones((4, 1)), np.array([0, 1, 0, 1])
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match=r"paths of \.npy files .* numpy\.save"):
        data.from_arrays(X, y, pool)
    with pytest.raises(ValueError, match=r"client must be None, a concurrent\.futures executor"):
        data.from_arrays(X, y, client=3)
    with pytest.raises(ValueError, match="y must be an array of 4 numbers"):
        data.from_arrays(X, y[:3])


def test_a_cluster_that_does_not_answer(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "_CONNECT_SECONDS", 0.5)
    with pytest.raises(WorkersError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9' within 0\.5 seconds"):
        data.from_arrays("X.npy", "y.npy", client="tcp://127.0.0.1:9")
    with pytest.raises(WorkersError, match="no Dask scheduler answers at 'nonsense'"):
        data.from_arrays("X.npy", "y.npy", client="nonsense")


# Rows that lie column by column, as files have them.


@pytest.mark.ordinary(lambda dtype: dtype is np.float64)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 3, 4, 21, 70, 131])
def test_sums_over_columns_are_those_of_rows(columns, dtype):
    rng = np.random.default_rng(2)
    for n in (1, 255, 256, 700):
        X = np.asfortranarray(rng.normal(size=(n, columns)), dtype)
        rows, A = ColumnRows(X), X.astype(np.float64)
        x, s, c = rng.normal(size=(2, columns)), rng.normal(size=n), rng.random(n)
        near = {"rel": 1e-11, "abs": 1e-11 * n}
        assert rows.predict(x) == pytest.approx(x @ A.T, **near)
        assert rows.combine(s[None]) == pytest.approx(s[None] @ A, **near)
        gradient, gram = rows.combine_and_gram(s, c)
        assert gradient == pytest.approx(s @ A, **near)
        assert gram == pytest.approx(A.T @ (c[:, None] * A), **near)
        assert (gram == gram.T).all()
        factor = np.tril(rng.normal(size=(columns, columns)))
        lengths = rows.image_squares(factor)
        assert lengths == pytest.approx(((A @ factor) ** 2).sum(axis=1), **near)
        later = ColumnRows(np.asfortranarray(X[n // 3 :])).image_squares(factor)
        assert (later == lengths[n // 3 :]).all()  # so that weights do not depend on how rows are cut
