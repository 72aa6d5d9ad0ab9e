"""Odd inputs as plain data, whose `repr` makes them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from hypothesis import strategies as st

inf, nan = float("inf"), float("nan")

EDGES = (
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-3, 1e3, 1e-8, 1e8, 1e-16, 1e16, 1e-100, 1e100, 1e-154, 1e154, 1e-160, 1e160,
    1e-300, 1e300, 5e-324, 2.2e-308, 1.7e308, -1e300, -1e-300, 1e15 + 0.5,
)  # fmt: skip
BAD = (nan, inf, -inf)
WRONG = (None, "1", True, [1.0], {}, 1 + 2j, b"x", "ä", -1, 0, 2**63, 2**64, 10**30, 0.5, nan, inf)


def often(usual, *others, times=5):
    """Mostly the usual one. (`st.one_of` takes a strategy that is given twice for one.)"""
    branches = [usual, *others]
    return st.sampled_from([0] * times + list(range(1, len(branches)))).flatmap(lambda k: branches[k])


plain = st.integers(-40, 40).map(lambda k: k / 8)
tame_positive = st.integers(1, 40).map(lambda k: k / 8)
edge = st.sampled_from(EDGES)
finite = often(plain, edge, st.floats(allow_nan=False, allow_infinity=False), times=2)
mostly_plain = often(plain, finite, times=8)
anything = often(finite, st.sampled_from(BAD), st.sampled_from(WRONG), times=2)
positive = st.one_of(tame_positive, st.sampled_from([abs(each) for each in EDGES if each]), st.floats(5e-324, 1.7e308))
setting = often(tame_positive, positive, anything, times=8)  # a number that should be positive
whole = often(st.integers(1, 20), st.sampled_from([0, -1, 2**31, 2**32, 2**53, 2**62, 2**63, 10**30]))
count = often(st.integers(1, 20), whole, st.sampled_from(WRONG), times=10)
seeds = st.one_of(st.integers(0, 5), st.sampled_from([2**32, 2**63, 2**64 - 1, 2**64, -1]))
words = st.one_of(st.sampled_from(["", "x", "ä", "mode", "all", "🙂", "\x00", "auto", "nan"]), st.text(max_size=6))

DTYPES = ("float64", "float64", "float64", "float64", "float32", "float16", "int64", "int8", "uint64", "bool", "object", "longdouble", "complex128", "str")  # fmt: skip
LAYOUTS = ("C", "C", "C", "F", "list", "strided", "reversed", "readonly", "swapped", "csr", "csr", "csr_array", "csc", "coo", "matrix", "masked", "frame", "flat")  # fmt: skip
DAMAGES = ("", "", "", "", "", "one-based", "far", "negative", "unsorted", "double", "short", "indptr", "int64")


@dataclass(frozen=True)
class Table:
    """Rows of numbers in some dtype and layout; a CSR matrix may be damaged."""

    values: tuple[tuple[float, ...], ...]
    dtype: str = "float64"
    layout: str = "C"
    damage: str = ""
    columns: int | None = None  # where there are no rows

    @property
    def dense(self) -> Any:
        """The numbers as float64, after a turn through the dtype, and of a damaged matrix what it still stands for."""
        with np.errstate(all="ignore"):
            if self.damage and self.stands:
                return self.make().astype(np.float64).toarray()  # an int8 would not hold a sum of two
            return self._array().astype(np.float64)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.values), len(self.values[0]) if self.values else self.columns or 0

    @property
    def stands(self) -> bool:
        """Whether a damaged matrix is still one: columns in range, rows that do not end before they begin."""
        made = self.make()
        inside = ((made.indices >= 0) & (made.indices < made.shape[1])).all()
        return bool(
            inside and (np.diff(made.indptr) >= 0).all() and made.indptr[0] == 0 and len(made.data) >= made.indptr[-1]
        )

    @property
    def sound(self) -> bool:
        """Whether it is a table that has to be taken."""
        fine = self.dtype in ("float64", "float32", "int64", "int8", "bool") and not self.damage and min(self.shape) > 0
        layouts = ("C", "F", "list", "strided", "reversed", "readonly", "csr", "csr_array")
        return fine and self.layout in layouts and bool(np.isfinite(self.dense).all())

    @property
    def digits(self) -> float:
        """Rounding of a product with it, in float32 where the rows are."""
        return 2e-4 if self.dtype in ("float32", "float16") else 1e-7

    def _array(self) -> Any:
        array = np.array(self.values, float).reshape(self.shape)
        with np.errstate(all="ignore"):
            if self.dtype in ("int64", "int8", "uint64"):
                array = np.nan_to_num(np.clip(array, 0 if self.dtype == "uint64" else -100, 100))
            return array.astype(self.dtype)

    def make(self) -> Any:
        """The object itself."""
        array = self._array()
        if self.layout == "list":
            return array.tolist()
        if self.layout == "F":
            return np.asfortranarray(array)
        if self.layout == "strided":
            return np.repeat(np.repeat(array, 2, axis=0), 3, axis=1)[::2, ::3]
        if self.layout == "reversed":
            return array[::-1].copy()[::-1]
        if self.layout == "swapped":
            return array.astype(array.dtype.newbyteorder()) if array.dtype.kind in "fiu" else array
        if self.layout == "matrix":
            return np.matrix(array)
        if self.layout == "masked":
            return np.ma.masked_array(array, np.zeros(array.shape, bool))
        if self.layout == "flat":
            return array.ravel()
        if self.layout == "frame":
            import pandas

            return pandas.DataFrame(array, columns=[f"c{j}" for j in range(array.shape[1])])
        if self.layout in ("csr", "csr_array", "csc", "coo"):
            return self._sparse(array)
        array.flags.writeable = self.layout != "readonly"
        return array

    def _sparse(self, array: Any) -> Any:
        if array.dtype.kind in "OU" or array.dtype == np.float16:
            array = array.astype(np.float64)
        kind = {"csr": scipy.sparse.csr_matrix, "csr_array": scipy.sparse.csr_array, "csc": scipy.sparse.csc_matrix,
                "coo": scipy.sparse.coo_matrix}[self.layout]  # fmt: skip
        made = kind(array)
        if self.layout in ("csc", "coo") or not self.damage or not made.nnz:
            return made
        if self.damage == "one-based":
            made.indices = made.indices + 1
        elif self.damage == "far":
            made.indices = made.indices + 10**6
        elif self.damage == "negative":
            made.indices = made.indices - 1
        elif self.damage == "unsorted":
            made.indices, made.data = made.indices[::-1].copy(), made.data[::-1].copy()
        elif self.damage == "double":
            made.indices = np.zeros_like(made.indices)
        elif self.damage == "short":
            made.data = made.data[:-1]
        elif self.damage == "indptr":
            made.indptr = made.indptr[::-1].copy()
        elif self.damage == "int64":
            made.indices, made.indptr = made.indices.astype(np.int64), made.indptr.astype(np.int64)
        return made


@st.composite
def tables(draw, most_rows=8, most_columns=3, odd=True, least=0):
    """Rows of some pattern: plain, constant, doubled, scaled, ill-conditioned, wild."""
    n = draw(st.integers(max(least, 1), most_rows))
    d = draw(st.integers(1, most_columns))
    if odd and least == 0 and draw(st.integers(0, 40)) == 0:
        n, d = draw(st.sampled_from([(0, d), (n, 0), (0, 0)]))
    rows = [[draw(plain) for _ in range(d)] for _ in range(n)]
    pattern = draw(
        st.sampled_from(
            ["plain"] * 6 + ["ones", "zeros", "same", "twice", "near", "scaled", "huge", "tiny", "wild", "bad"]
        )
    )
    if not odd:
        pattern = draw(st.sampled_from(["plain", "plain", "ones"]))
    if n and d:
        if pattern == "ones":
            rows = [[1.0, *row[1:]] for row in rows]
        elif pattern == "zeros":
            rows = [[0.0] * d for _ in rows]
        elif pattern == "same":
            rows = [rows[0] for _ in rows]
        elif pattern == "twice" and d > 1:
            rows = [[row[0], row[0], *row[2:]] for row in rows]
        elif pattern == "near" and d > 1:
            rows = [[row[0], row[0] * (1 + 1e-9 * k), *row[2:]] for k, row in enumerate(rows)]
        elif pattern == "scaled":
            scale = [10.0 ** draw(st.integers(-12, 12)) for _ in range(d)]
            rows = [[x * s for x, s in zip(row, scale, strict=True)] for row in rows]
        elif pattern in ("huge", "tiny"):
            power = draw(st.integers(3, 300)) * (1 if pattern == "huge" else -1)
            rows = [[x * 10.0**power for x in row] for row in rows]
        elif pattern == "wild":
            rows = [[draw(finite) for _ in row] for row in rows]
        elif pattern == "bad":
            rows[draw(st.integers(0, n - 1))][draw(st.integers(0, d - 1))] = draw(st.sampled_from(BAD))
    dtype = draw(st.sampled_from(DTYPES)) if odd else draw(st.sampled_from(["float64", "float64", "float32"]))
    layout = draw(st.sampled_from(LAYOUTS)) if odd else draw(st.sampled_from(["C", "F", "csr", "list"]))
    damage = draw(st.sampled_from(DAMAGES)) if odd and layout.startswith("csr") else ""
    return Table(tuple(map(tuple, rows)), dtype, layout, damage, d)


def numbers(length, each=finite):
    """So many numbers, as a tuple."""
    return st.tuples(*[each] * length)


@st.composite
def symmetric(draw, dim, tame=None):
    """A matrix, positive definite unless it is meant not to be."""
    root = [[draw(plain) for _ in range(dim)] for _ in range(dim)]
    S = np.array(root) @ np.array(root).T + 0.125 * np.eye(dim)
    odd = (
        "tame"
        if tame
        else draw(st.sampled_from(["tame"] * 6 + ["scaled", "flat", "indefinite", "skew", "bad", "huge", "tiny"]))
    )
    if odd == "scaled":
        s = np.array([10.0 ** draw(st.integers(-10, 10)) for _ in range(dim)])
        S = S * s * s[:, None]
    elif odd == "flat":
        S[:, 0] = S[0] = 0.0
    elif odd == "indefinite":
        S = S - draw(tame_positive) * np.eye(dim)
    elif odd == "skew":
        S[0, -1] += 1.0
    elif odd == "bad":
        S[0, 0] = draw(st.sampled_from(BAD))
    elif odd == "huge":
        S = S * 10.0 ** draw(st.integers(20, 306))
    elif odd == "tiny":
        S = S * 10.0 ** -draw(st.integers(20, 306))
    return tuple(map(tuple, S.tolist()))


namespace = {"Table": Table, "inf": inf, "nan": nan, "np": np}


def read(text: str) -> Any:
    """The input that a `repr` describes."""
    return eval(text, dict(namespace))
