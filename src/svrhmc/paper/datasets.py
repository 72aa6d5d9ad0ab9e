"""The paper's data sets: their files, where these are published, and how they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.files import numbers
from svrhmc.tables.matrices import from_libsvm

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_STATIC = "https://archive.ics.uci.edu/static/public/"
_GISETTE_ZIP = (_STATIC + "170/gisette.zip",)
_GISETTE_FIRST = "b131a0001db88db8ab7541444eb6ac0de9cb2e4423ca02649ffd1fa2520bdad0"
_GISETTE_LABELS = "42bd681fe51b161f033df773df14a0116e492676555ab14616c1b72edc054075"


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

    X: Any
    y: Array
    test: tuple[Any, Array] | None = None

    @property
    def n(self) -> int:
        """Rows."""
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


def _one(name: str, note: str, read: Callable[[Texts], Table], *sources: Source) -> Dataset:
    return Dataset(name, (Edition(note, sources, read),))


def _libsvm(
    columns: int, labels: tuple[int, int], one: int, dense: bool = False, dtype: Any = np.float64
) -> Callable[[Texts], Table]:
    """Of a file to learn from and, where there are two, one for test; the label that counts as `one`."""

    def read(texts: Texts) -> Table:
        parts = []
        for path, text in texts.items():
            X, y = from_libsvm(path, text.splitlines(), columns, dtype)
            _require_labels(path, y, labels)
            parts.append((X.toarray() if dense else X, np.where(y == one, 1.0, 0.0)))
        return Table(*parts[0], *parts[1:])

    return read


def _numbers(delimiter: str, columns: int, target: int = -1, header: bool = False) -> Callable[[Texts], Table]:
    """Of one file; `target` is the column of y."""

    def read(texts: Texts) -> Table:
        ((path, text),) = texts.items()
        table = numbers(text.splitlines(), path, delimiter, header, columns)
        return Table(np.delete(table, target, axis=1), table[:, target])

    return read


def _gisette(columns: int) -> Callable[[Texts], Table]:
    """Of a file of rows and one of their labels: to learn from, and for test where there are two pairs."""

    def read(texts: Texts) -> Table:
        paths, parts = list(texts), []
        for rows, labels in zip(paths[::2], paths[1::2], strict=True):
            X = numbers(texts[rows].splitlines(), rows, " ", columns=columns, dtype=np.float32)
            y = numbers(texts[labels].splitlines(), labels, " ", columns=1)[:, 0]
            if len(y) != len(X):
                raise requirement(labels, f"{len(X)} labels, one for each row of {rows}", len(y))
            _require_labels(labels, y, (-1, 1))
            parts.append((X, np.where(y == 1, 1.0, 0.0)))
        return Table(*parts[0], *parts[1:])

    return read


def _require_labels(path: str, y: Array, labels: tuple[int, int]) -> None:
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


DATASETS = {
    dataset.name: dataset
    for dataset in (
        _one(
            "pima",
            "768 rows, 8 columns; half of them for test",
            _libsvm(8, (-1, 1), one=-1, dense=True),
            Source(
                "pima/diabetes",
                "419ba20be4862fc53a6fe92e55a84a53ae0075df06632c07592a17d619b5cb23",
                (_LIBSVM + "diabetes",),
            ),
        ),
        _one(
            "a3a",
            "3185 rows and 29,376 for test, 123 columns",
            _libsvm(123, (-1, 1), one=1),
            Source("a3a/a3a", "2d513572f103d25e84bebe4b9f2f52ee9445764b5a393caff7db9c482cfc1ee4", (_LIBSVM + "a3a",)),
            Source(
                "a3a/a3a.t", "c46c9ea67e06f38e81d59c4883e3d670cbe55de6a5c32564b38fc89dcda3adac", (_LIBSVM + "a3a.t",)
            ),
        ),
        Dataset(
            "gisette",
            (
                Edition(
                    "6000 rows and 1000 for test (the publisher's validation rows), 5000 columns",
                    (
                        Source("gisette/gisette_train.data", "", _GISETTE_ZIP),
                        Source("gisette/gisette_train.labels", _GISETTE_LABELS, _GISETTE_ZIP),
                        Source("gisette/gisette_valid.data", "", _GISETTE_ZIP),
                        Source("gisette/gisette_valid.labels", "", _GISETTE_ZIP),
                    ),
                    _gisette(5000),
                    key="whole",
                    verify=_verify_whole,
                ),
                Edition(
                    "6000 rows and 1000 for test, 5000 columns, each scaled to [−1, 1] by LIBSVM",
                    (
                        Source("gisette/gisette_scale", "", (_LIBSVM + "gisette_scale.bz2",)),
                        Source("gisette/gisette_scale.t", "", (_LIBSVM + "gisette_scale.t.bz2",)),
                    ),
                    _libsvm(5000, (-1, 1), one=1, dense=True, dtype=np.float32),
                    key="scaled",
                    verify=_verify_rows,
                ),
                Edition(
                    "6000 rows, the first 1000 of 5000 columns; a sixth held out for test",
                    (
                        Source("gisette/gisette_train_first1000.data", _GISETTE_FIRST),
                        Source("gisette/gisette_train.labels", _GISETTE_LABELS, _GISETTE_ZIP),
                    ),
                    _gisette(1000),
                    partial="only the first 1000 of its 5000 columns are there and no validation rows, so a sixth of "
                    "the training rows is held out for test and the errors cannot be the paper's",
                ),
            ),
        ),
        _one(
            "mushroom",
            "8124 rows, 112 columns; half of them for test",
            _libsvm(112, (1, 2), one=1),
            Source(
                "mushrooms/mushrooms",
                "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538",
                (_LIBSVM + "mushrooms",),
            ),
        ),
        _one(
            "geographical",
            "1059 rows, 69 columns (68 of sound, and the latitude); the longitude is the target",
            _numbers(",", 70),
            Source(
                "geographical/default_features_1059_tracks.txt",
                "8557da3791e17b036763a95a7f16e3f23d20dcd4c5387d4f11aa1ed8c7a0b9ab",
                (
                    _STATIC + "315/geographical+original+of+music.zip",
                    _UCI + "00315/Geographical%20Original%20of%20Music.zip",
                ),
            ),
        ),
        _one(
            "noise",
            "1503 rows, 5 columns",
            _numbers("\t", 6),
            Source(
                "noise/airfoil_self_noise.dat",
                "74c75fd71783f1e6b71f8a622b993dc592897a97cd689c5090a07147a1b097b3",
                (_UCI + "00291/airfoil_self_noise.dat", _STATIC + "291/airfoil+self+noise.zip"),
            ),
        ),
        _one(
            "parkinson",
            "5875 rows, 21 columns, the other score and the subject's number among them",
            _numbers(",", 22, target=5, header=True),  # total_UPDRS; the paper's d = 21 keeps motor_UPDRS
            Source(
                "parkinson/parkinsons_updrs.data",
                "f2c7d5025dec4e92e7feae367a5f7ccf58789a10ac6b54bdf15976c599f9dd39",
                (
                    _UCI + "parkinsons/telemonitoring/parkinsons_updrs.data",
                    _STATIC + "189/parkinsons+telemonitoring.zip",
                ),
            ),
        ),
        _one(
            "toms",
            "28,179 rows, 96 columns",
            _numbers(",", 97),
            Source(
                "toms/TomsHardware.data",
                "eb18c0265e669813c6a9d32d11eb4d01125970fa46a7d4f75c3da0f0ccb3110c",
                (_UCI + "00248/regression.tar.gz", _STATIC + "248/buzz+in+social+media.zip"),
            ),
        ),
        _one(
            "casp",
            "45,730 rows, 9 columns: the set whose size the paper gives for toms",
            _numbers(",", 10, target=0, header=True),
            Source(
                "casp/CASP.csv",
                "4277cfcb4e91a181746cbc654f001b57951c9e6a80f4f795fdb5c807e0848f40",
                (
                    _UCI + "00265/CASP.csv",
                    _STATIC + "265/physicochemical+properties+of+protein+tertiary+structure.zip",
                ),
            ),
        ),
    )
}
