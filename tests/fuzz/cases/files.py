"""Files with tables."""

import csv
import io
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from svrhmc.tables import files as reading
from svrhmc.tables import numbers as files

from ..inputs import often
from ..judge import agree, ask, holds
from ..registry import case

CELL = often(
    st.integers(-99, 99).map(str),
    st.sampled_from(
        [
            "1.5",
            "-2e3",
            "",
            "nan",
            "inf",
            "a",
            "ä",
            '"x"',
            '"',
            " 1 ",
            "1e999",
            "0x10",
            "1_000",
            "٣",
            "1,5",
            "NA",
            "\x00",
            "🙂",
            "True",
        ]
    ),
)
LINES = st.lists(st.lists(CELL, min_size=1, max_size=4), max_size=6)
TEXTS = st.one_of(
    LINES.map(lambda lines: "\n".join(",".join(line) for line in lines)),
    st.integers(1, 3)
    .flatmap(
        lambda width: st.lists(
            st.lists(st.integers(-99, 99).map(str), min_size=width, max_size=width), min_size=1, max_size=6
        )
    )
    .map(lambda lines: "\n".join(",".join(line) for line in lines)),
    st.text(max_size=30),
)


def plain(text, delimiter=","):
    """The numbers of a text by the csv module, or None."""
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
        return [[float(cell) for cell in row] for row in rows]
    except (ValueError, csv.Error):
        return None


@case(
    st.tuples(TEXTS, st.sampled_from([".csv", ".npz", ".txt", ""]), st.sampled_from(["utf-8", "latin-1", "utf-16"])),
    "svrhmc.tables.numbers.read_table",
    cost=0.003,
)
def read_table(given):
    """The numbers that the csv module finds."""
    text, suffix, encoding = given
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        path.write_bytes(text.encode(encoding, "replace"))
        X, y = ask(files.read_table, path)
    rows = plain(text)
    holds(np.isfinite(X).all() and np.isfinite(y).all(), "numbers that are not finite")
    if rows is not None and encoding == "utf-8":
        agree("the numbers", np.column_stack([X, y]), rows, 0)


@case(
    st.tuples(
        TEXTS,
        st.sampled_from([",", ";", " ", "\t"]),
        st.sampled_from([True, False, None]),
        st.one_of(st.none(), st.integers(1, 4)),
    ),
    "svrhmc.tables.numbers.numbers",
    cost=0.002,
)
def numbers(given):
    """Lines of numbers."""
    text, delimiter, header, columns = given
    found = ask(files.numbers, text.splitlines(), "a", delimiter, header, columns)
    holds(np.isfinite(found).all() and found.ndim == 2, f"{found}")


KINDS = (".csv", ".tsv", ".txt", ".csv.gz", ".npy", ".npz", ".libsvm", ".svm", ".parquet", ".xyz")


@case(
    st.tuples(
        TEXTS,
        st.sampled_from(KINDS),
        st.booleans(),
        st.sampled_from([None, ",", ";", "ab", ""]),
        st.sampled_from(["utf-8", "latin-1", "x"]),
        st.sampled_from([".", ",", "x", ""]),
    ),
    "svrhmc fit",
    cost=0.02,
)
def tables(given):
    """The reader of `svrhmc fit`."""
    text, suffix, header, delimiter, encoding, decimal = given
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        path.write_bytes((("a,b\n" if header else "") + text).encode("utf-8", "replace"))
        found = ask(reading.read, path, ask(reading.Reading, delimiter, encoding, (), decimal))
    holds(found.n >= 0, "no rows")
