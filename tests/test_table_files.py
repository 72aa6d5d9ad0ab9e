"""Tables from files, and what is said of those that cannot be read."""

import gzip
import resource
import sys
import zipfile

import numpy as np
import pytest

from svrhmc.core import machine, npz
from svrhmc.core.errors import ArchiveFileError, DataError
from svrhmc.tables import csv
from svrhmc.tables import files as reading
from svrhmc.tables.columns import columns_of
from svrhmc.tables.files import Reading, read

ROWS = "dose,plan,died\n1.5,a,no\n2.5,b,yes\n,a,no\n4,b,yes\n"


@pytest.fixture(params=["pyarrow", "pandas"])
def reader(request, monkeypatch):
    """Both readers say the same."""
    if request.param == "pandas":
        monkeypatch.setattr(csv, "pyarrow_or_none", lambda: None)
    return request.param


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, reader, sign):
    found = read(written(tmp_path / "a.csv", ROWS.replace(",", sign)))
    assert found.names == ("dose", "plan", "died")
    columns = columns_of(found.table, found.names)
    assert columns["dose"].values[[0, 1, 3]].tolist() == [1.5, 2.5, 4.0]
    assert columns.gaps() == {"dose": 1}
    assert columns["died"].levels == ("no", "yes")


def test_packed_marked_and_quoted_texts_are_read(tmp_path, reader):
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write(ROWS)
    assert read(tmp_path / "a.csv.gz").n == 4
    marked = read(written(tmp_path / "b.csv", b'\xef\xbb\xbfdose,name\n1,"x, y"\n2,"two\nlines"\n'))
    assert (marked.names, marked.n) == (("dose", "name"), 2)
    decimal = read(written(tmp_path / "c.csv", "a;b\n1,5;x\n2,5;y\n"), Reading(decimal=","))
    assert columns_of(decimal.table, ["a"])["a"].values.tolist() == [1.5, 2.5]
    latin = read(written(tmp_path / "d.csv", "a,b\n1,Käse\n2,x\n".encode("latin-1")), Reading(encoding="latin-1"))
    assert columns_of(latin.table, ["b"])["b"].levels == ("Käse", "x")
    codes = read(written(tmp_path / "e.csv", "zip,b\n01,1\n02,2\nK1,2\n"), Reading(as_text=("zip",)))
    assert columns_of(codes.table, ["zip"])["zip"].levels == ("01", "02", "K1")
    other = read(written(tmp_path / "f.csv", "a,b\n1,1\n?,2\n3,4\n"), Reading(na=("?",)))
    assert columns_of(other.table, ["a"]).gaps() == {"a": 1}


def test_row_numbers_and_files_without_names_are_said_aloud(tmp_path, reader):
    counted = read(written(tmp_path / "a.csv", ",a,b\n0,1,2\n1,3,4\n"))
    assert counted.names == ("a", "b")
    assert "counts rows" in counted.notes[0]
    bare = read(written(tmp_path / "b.csv", "1,2\n3,4\n"))
    assert (bare.names, bare.n) == (("column1", "column2"), 2)
    empty = read(written(tmp_path / "c.csv", "a,b,c\n1,,2\n3,,4\n"))
    assert empty.names == ("a", "c")
    assert "'b' has no values" in empty.notes[0]


BAD = {
    "empty": (b"", "a.csv is empty"),
    "blank": (b"\n\n", "a.csv is empty"),
    "names alone": (b"a,b\n", "a line of names and no rows"),
    "names alone, without the end of a line": (b"a,b", "a line of names and no rows"),
    "one column": (b"a\n1\n", "has one column only"),
    "ragged": (b"a,b\n1,2\n3,4,5\n", "line 3: 3 columns where there are 2 names"),
    "short": (b"a,b\n1,2\n3\n", "line 3: 1 columns where there are 2 names"),
    "text": (b"a,b\n1,2\n1,3\nx9,4\n", "line 4: column 'a' holds numbers, but here it is 'x9'"),
    "word": (b"a,b\n1,2\n1,3\nunknown,4\n", "--na 'unknown'"),
    "comma": (b"a;b\n1,5;2\n2,5;3\n", "column 'a' has numbers with a decimal comma, such as '1,5': say --decimal ','"),
    "thousands": (b'a,b\n"1,500",2\n"12,300",3\n950,1\n', "numbers such as '1,500': say --thousands ','"),
    "points": (b"a;b\n1.500,5;2\n2.300,25;3\n", "numbers such as '1.500,5': say --thousands '.' --decimal ','"),
    "latin": ("a,b\n1,x\n2,Käse\n".encode("latin-1"), "line 3: byte 4 of it (0xe4) is not text in utf-8"),
    "twice": (b"a,b,a\n1,2,3\n", "columns 1 and 3 are both named 'a'"),
    "unnamed": (b"a,,c\n1,2,3\n", "column 2 has no name"),
    "first unnamed": (b",a,b\n5,1,2\n9,3,4\n", "the first column has no name"),
    "binary": (b"a,b\n\x00\x01\x02", "is a binary file, not a text"),
    "parquet": (b"PAR1....", "looks like Parquet"),
    "excel": (b"PK\x03\x04....", "an Excel file"),
    "wide": ("a,b\n1,2\n".encode("utf-16"), "--encoding utf-16"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line_that_names_it(tmp_path, reader, name):
    content, message = BAD[name]
    with pytest.raises(DataError) as raised:
        read(written(tmp_path / "a.csv", content))
    assert message in str(raised.value)
    assert "a.csv" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_numbers_may_have_a_sign_between_thousands(tmp_path, reader):
    path = written(tmp_path / "a.csv", 'a,b,c\n"1,500",2,"1,2"\n"-12,300.5",3,x\n950,1,x\nNA,4,x\n')
    table = read(path, Reading(thousands=",", as_text=("c",))).table
    values = np.asarray(table["a"].to_numpy(), np.float64)
    np.testing.assert_array_equal(values, [1500.0, -12300.5, 950.0, np.nan])
    assert list(table["c"].to_numpy())[:2] == ["1,2", "x"]
    table = read(written(tmp_path / "b.csv", "a;b\n1.500,5;2\n2.300;3\n"), Reading(thousands=".", decimal=",")).table
    np.testing.assert_array_equal(np.asarray(table["a"].to_numpy(), np.float64), [1500.5, 2300.0])
    for sign, why in ((".", "the same as --decimal"), ("ab", "'ab'"), ("1", "'1'")):
        with pytest.raises(DataError, match=f"--thousands must be one sign, other than the decimal one; got {why}"):
            Reading(thousands=sign)


def test_a_wrong_delimiter_is_named(tmp_path):
    with pytest.raises(DataError, match=r"one column only, parted by ',': it looks like --delimiter ';'"):
        read(written(tmp_path / "a.csv", "a;b\n1;2\n"), Reading(delimiter=","))
    with pytest.raises(DataError, match="--encoding must be the name of one"):
        read(tmp_path / "a.csv", Reading(encoding="klingon"))
    with pytest.raises(DataError, match="no column 'c' to be read as text"):
        read(tmp_path / "a.csv", Reading(as_text=("c",)))
    with pytest.raises(DataError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"must be a \.csv"):
        read(written(tmp_path / "a.doc", "hello"))


def test_parquet_has_its_types(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"a": [1, 2], "b": ["x", "y"]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").names == ("a", "b")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read(written(tmp_path / "b.parquet", b"no parquet at all"))


def test_arrays_are_tables(tmp_path):
    X, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    np.savez(tmp_path / "a.npz", X=X, y=y, names=["u", "v"])
    found = read(tmp_path / "a.npz")
    assert (found.names, found.n, found.response) == (("u", "v", "y"), 3, "y")
    np.save(tmp_path / "a.npy", np.column_stack([X, y]))
    assert read(tmp_path / "a.npy").names == ("x0", "x1", "y")
    np.save(tmp_path / "b.npy", np.array([(1.0, 2)], dtype=[("p", float), ("q", int)]))
    assert read(tmp_path / "b.npy").names == ("p", "q")
    np.savez(tmp_path / "b.npz", A=X)
    with pytest.raises(DataError, match=r"no array X or y; it holds A\. An \.npz for a fit has arrays X"):
        read(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", X=X, y=y[:2])
    with pytest.raises(DataError, match=r"X of shape \(rows, columns\) and y of \(rows,\)"):
        read(tmp_path / "c.npz")
    np.save(tmp_path / "c.npy", y)
    with pytest.raises(DataError, match="rows × columns"):
        read(tmp_path / "c.npy")
    with pytest.raises(DataError, match=r"no \.npy file of numbers"):
        read(written(tmp_path / "d.npy", b"nothing like it"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 0:3", "line 2, must be a label and index:value pairs"),
        ("1 3:3 2:1", "line 2, must be a label and index:value pairs"),
        ("1 x:3", "line 2, must be a label and index:value pairs"),
        ("1 99999999999999999999:1", "line 2, must be a label and index:value pairs"),
        ("1 2:nan", "line 2, must be a label and index:value pairs"),
    ],
)
def test_libsvm_is_sparse_rows_and_a_bad_line_has_its_number(tmp_path, line, message):
    found = read(written(tmp_path / "good", "+1 1:2 4:0.5\n-1 2:1 # a remark\n"))
    assert found.X.toarray().tolist() == [[2, 0, 0, 0.5], [0, 1, 0, 0]]
    assert found.y.tolist() == [1, -1]
    with pytest.raises(DataError, match=message):
        read(written(tmp_path / "a.svm", f"1 1:1\n{line}\n"))


def test_a_file_larger_than_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = written(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 1000)
    monkeypatch.setattr(csv, "free_memory", lambda: 1e4)
    monkeypatch.setattr(reading, "free_memory", lambda: 1e4)
    with pytest.raises(DataError, match=r"a\.csv would take about .* GB of memory to fit, and 1e-05 GB are free"):
        read(path)


@pytest.mark.skipif(sys.platform != "linux", reason="limits are read as Linux says them")
def test_limits_of_the_process_count(monkeypatch):
    assert 0 < machine.free_memory() < 1e15
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**9, 10**9))
    assert machine.free_memory() < 10**9


def test_other_encodings_damaged_archives_and_odd_signs(tmp_path, monkeypatch):
    wide = read(written(tmp_path / "a.csv", "a,b\n1,x\n2,y\n".encode("utf-16")), Reading(encoding="utf-16"))
    assert (wide.names, wide.n) == (("a", "b"), 2)
    with pytest.raises(DataError, match=r"line 3: 3 columns"):
        read(written(tmp_path / "a.csv", "a,b\n1,x\n2,y,z\n".encode("utf-16")), Reading(encoding="utf-16"))
    with pytest.raises(DataError, match="cannot be unpacked"):
        read(written(tmp_path / "a.csv.gz", b"not packed at all"))
    with pytest.raises(DataError, match=r"--delimiter must be one sign, or tab; got ';;'"):
        read(written(tmp_path / "b.csv", "a;;b\n1;;2\n"), Reading(delimiter=";;"))
    assert read(written(tmp_path / "b.csv", "a\tb\n1\t2\n"), Reading(delimiter="tab")).names == ("a", "b")
    with pytest.raises(DataError, match="field larger than field limit"):
        read(written(tmp_path / "c.csv", "a,b\n1,2\n3," + "4" * 140_000 + ",5\n"))
    monkeypatch.setattr(reading, "pyarrow_or_none", lambda: None)
    with pytest.raises(ModuleNotFoundError, match=r"a Parquet file needs pyarrow: pip install 'svrhmc\[tables\]'"):
        read(written(tmp_path / "a.parquet", b"PAR1"))


def test_arrays_that_are_no_tables_are_refused(tmp_path, monkeypatch):
    X = np.ones((3, 2))
    np.savez(tmp_path / "a.npz", X=np.array([["a", "b"]]), y=np.ones(1))
    with pytest.raises(DataError, match="numbers in X"):
        read(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", X=X, y=np.ones(3), names=["u", "u"])
    with pytest.raises(DataError, match="2 different names for the columns of X"):
        read(tmp_path / "b.npz")
    with pytest.raises(DataError, match="no rows with numbers in them"):
        read(written(tmp_path / "a.svm", "1\n2\n"))
    np.save(tmp_path / "c.npy", X)
    monkeypatch.setattr(csv, "free_memory", lambda: 10.0)
    monkeypatch.setattr(reading, "free_memory", lambda: 10.0)
    with pytest.raises(DataError, match=r"c\.npy would take .* GB of memory"):
        read(tmp_path / "c.npy")


def test_a_container_has_its_own_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_GROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    assert machine.free_memory() == 1000
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.free_memory() > 1000


def test_a_header_that_never_closes_its_brackets_is_refused(tmp_path):
    """NumPy tokenizes such headers, and lets the tokenizer's own error out."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, \n"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24)
    (tmp_path / "X.npy").write_bytes(array)
    with zipfile.ZipFile(tmp_path / "X.npz", "w") as archive:
        archive.writestr("X.npy", array)
    with pytest.raises(DataError, match=r"X\.npy is no \.npy file of numbers"):
        npz.mapped_npy(tmp_path / "X.npy")
    with pytest.raises(ArchiveFileError, match=r"X\.npz is cut short or damaged: an array in it cannot be read"):
        npz.read_npz(tmp_path / "X.npz", ["X"])
