"""The paper's data sets, from datasets.toml: their files, where these are published, and how they are read."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.paper.settings import Result
from svrhmc.rows.csr import Matrix
from svrhmc.tables.files import from_libsvm
from svrhmc.tables.numbers import numbers

_GISETTE_FIRST = "b131a0001db88db8ab7541444eb6ac0de9cb2e4423ca02649ffd1fa2520bdad0"


@dataclass(frozen=True)
class Source:
    """One published file: its place in a data folder, the hash of its bytes (decompressed), and where it is published.

    At `urls`, tried in turn, is the file itself, compressed, or an archive with a file of its name. There are none
    where no publisher has exactly these bytes; `sha256` is empty where the hash is not known.
    """

    path: str
    sha256: str = ""
    urls: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the file, without its folder."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows X (dense, or scipy CSR) and y; `test` rows of their own where the publisher has them."""

    X: Matrix
    y: Array
    test: tuple[Matrix, Array] | None = None

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.y)


Texts = dict[str, str]  # by the path of their source


@dataclass(frozen=True)
class Edition:
    """One form in which a data set is to be had.

    `key` tells results of different editions apart; `partial` says what is not the paper's in it, if anything;
    `verify` checks what the hashes of its files leave open.
    """

    note: str
    sources: tuple[Source, ...]
    read: Callable[[Texts], Table]
    key: str = ""
    partial: str = ""
    verify: Callable[[Texts, Table], None] | None = None


@dataclass(frozen=True)
class Dataset:
    """A data set of the paper, in its editions: the one to prefer first."""

    name: str
    editions: tuple[Edition, ...]

    @property
    def note(self) -> str:
        """Of the edition to prefer."""
        return self.editions[0].note


def _libsvm(
    texts: Texts, columns: int, labels: list[int], one: int, dense: bool = False, dtype: str = "float64"
) -> Table:
    """Of a file to learn from and, where there are two, one for test; the label that counts as `one`."""
    parts = []
    for path, text in texts.items():
        X, y = from_libsvm(path, text.splitlines(), columns, dtype)
        _require_labels(path, y, labels)
        parts.append((X.toarray() if dense else X, np.where(y == one, 1.0, 0.0)))
    return Table(*parts[0], *parts[1:])


def _numbers(texts: Texts, delimiter: str, columns: int, target: int = -1, header: bool = False) -> Table:
    """Of one file; `target` is the column of y."""
    ((path, text),) = texts.items()
    table = numbers(text.splitlines(), path, delimiter, header, columns)
    return Table(np.delete(table, target, axis=1), table[:, target])


def _rows_and_labels(texts: Texts, columns: int) -> Table:
    """Of a file of rows and one of their labels: to learn from, and for test where there are two pairs."""
    paths, parts = list(texts), []
    for rows, labels in zip(paths[::2], paths[1::2], strict=True):
        X = numbers(texts[rows].splitlines(), rows, " ", columns=columns, dtype=np.float32)
        y = numbers(texts[labels].splitlines(), labels, " ", columns=1)[:, 0]
        if len(y) != len(X):
            raise requirement(labels, f"{len(X)} labels, one for each row of {rows}", len(y))
        _require_labels(labels, y, [-1, 1])
        parts.append((X, np.where(y == 1, 1.0, 0.0)))
    return Table(*parts[0], *parts[1:])


def _require_labels(path: str, y: Array, labels: list[int]) -> None:
    bad = ~np.isin(y, labels)
    if bad.any():
        row = int(np.argmax(bad))
        allowed = f"{labels[0]} or {labels[1]} everywhere"
        raise requirement(f"the label of {path}", allowed, f"{y[row]:g} in row {row + 1}")


def _verify_rows(texts: Texts, table: Table) -> None:
    """Of gisette: all of them, as published."""
    assert table.test is not None
    paths = list(texts)
    for path, y, published in ((paths[0], table.y, 6000), (paths[len(paths) // 2], table.test[1], 1000)):
        if len(y) != published:
            raise requirement(path, f"whole, with its {published} rows", f"{len(y)} rows")


def _verify_whole(texts: Texts, table: Table) -> None:
    """Rows as published; and the first 1000 columns have the hash that is known of them."""
    _verify_rows(texts, table)
    path = next(iter(texts))
    columns = hashlib.sha256()
    for line in texts[path].splitlines():
        columns.update((" ".join(line.split(None, 1000)[:1000]) + " \n").encode())
    if columns.hexdigest() != _GISETTE_FIRST:
        other = f"another sha256 of its first 1000 columns ({columns.hexdigest()})"
        raise requirement(path, f"the published file, with the sha256 {_GISETTE_FIRST} of these columns", other)


_FORMATS: dict[str, Callable[..., Table]] = {
    "libsvm": _libsvm,
    "numbers": _numbers,
    "rows and labels": _rows_and_labels,
}
_CHECKS = {"rows": _verify_rows, "rows and columns": _verify_whole}


def _edition(note: str, read: Result, sources: list[Result], verify: str = "", **others: str) -> Edition:
    """From its entry in datasets.toml."""
    published = tuple(Source(**{**source, "urls": tuple(source.get("urls", ()))}) for source in sources)
    reader = partial(_FORMATS[read.pop("format")], **read)
    return Edition(note, published, reader, verify=_CHECKS.get(verify), **others)


DATASETS = {
    name: Dataset(name, tuple(_edition(**entry) for entry in entries))
    for name, entries in tomllib.loads(
        files("svrhmc.paper").joinpath("datasets.toml").read_text(encoding="utf-8")
    ).items()
}
