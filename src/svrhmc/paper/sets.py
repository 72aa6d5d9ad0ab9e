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
from svrhmc.tables.files import from_libsvm

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_STATIC = "https://archive.ics.uci.edu/static/public/"
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
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Edition:
    """One form in which a data set is to be had.

    `key` tells results of different editions apart; `partial` says what is not the paper's in it, if anything;
    `verify` checks what the hashes of its files leave open.
    """

    note: str
    sources: tuple[Source, ...]
    read: Callable[[Texts], Arrays]
    build: Callable[[Arrays], Table]
    key: str = ""
    partial: str = ""
    verify: Callable[[Texts, Arrays], None] | None = None


@dataclass(frozen=True)
class Dataset:
    """A data set of the paper, in its editions: the one to prefer first."""

    name: str
    editions: tuple[Edition, ...]

    @property
    def note(self) -> str:
        """Of the edition to prefer."""
        return self.editions[0].note


def _one(name: str, note: str, *sources: Source, read: Any, build: Callable[[Arrays], Table]) -> Dataset:
    return Dataset(name, (Edition(note, sources, read, build),))


def _sparse(arrays: Arrays, key: str, columns: int) -> Any:
    import scipy.sparse

    parts = (arrays[f"{key}_values"], arrays[f"{key}_columns"], arrays[f"{key}_ends"])
    return scipy.sparse.csr_matrix(parts, (len(arrays[f"{key}_y"]), columns))


def _read_libsvm(names: tuple[str, ...], columns: int, labels: tuple[int, int], dtype: Any = np.float64) -> Any:
    def read(texts: Texts) -> Arrays:
        arrays: Arrays = {}
        for name, (path, text) in zip(names, texts.items(), strict=True):
            X, y = from_libsvm(path, text.splitlines(), columns, dtype)
            _require_labels(path, y, labels)
            arrays |= {f"{name}_y": y, f"{name}_values": X.data, f"{name}_columns": X.indices, f"{name}_ends": X.indptr}
        return arrays

    return read


def _read_numbers(delimiter: str, columns: int, header: bool = False) -> Callable[[Texts], Arrays]:
    def read(texts: Texts) -> Arrays:
        ((path, text),) = texts.items()
        return {"table": numbers(text.splitlines(), path, delimiter, header, columns)}

    return read


def _read_gisette(columns: int) -> Callable[[Texts], Arrays]:
    """Pairs of a file of rows and a file of labels: to learn from, and to judge by where there are two."""

    def read(texts: Texts) -> Arrays:
        paths = list(texts)
        arrays: Arrays = {}
        for which, rows, labels in zip(("", "test_"), paths[::2], paths[1::2], strict=False):
            X = numbers(texts[rows].splitlines(), rows, " ", columns=columns, dtype=np.float32)
            y = numbers(texts[labels].splitlines(), labels, " ", columns=1)[:, 0]
            if len(y) != len(X):
                raise requirement(labels, f"{len(X)} labels, one for each row of {rows}", len(y))
            _require_labels(labels, y, (-1, 1))
            arrays |= {f"{which}X": X, f"{which}y": y}
        return arrays

    return read


def _require_labels(path: str, y: Array, labels: tuple[int, int]) -> None:
    bad = ~np.isin(y, labels)
    if bad.any():
        place = int(np.argmax(bad))
        allowed = f"{labels[0]} or {labels[1]} everywhere"
        raise requirement(f"the label of {path}", allowed, f"{y[place]:g} in row {place + 1}")


def _require_rows(path: str, found: int, published: int) -> None:
    if found != published:
        raise requirement(path, f"whole, with its {published} rows", f"{found} rows")


def _verify_whole(texts: Texts, arrays: Arrays) -> None:
    """Rows as published; and the first 1000 columns have the hash that is known of them."""
    rows, _, judged, _ = texts
    _require_rows(rows, len(arrays["y"]), 6000)
    _require_rows(judged, len(arrays["test_y"]), 1000)
    known = hashlib.sha256()
    for line in texts[rows].splitlines():
        known.update((" ".join(line.split(None, 1000)[:1000]) + " \n").encode())
    if known.hexdigest() != _GISETTE_FIRST:
        found = f"another sha256 of its first 1000 columns ({known.hexdigest()})"
        raise requirement(rows, f"the published file, with the sha256 {_GISETTE_FIRST} of these columns", found)


def _verify_scaled(texts: Texts, arrays: Arrays) -> None:
    rows, judged = texts
    _require_rows(rows, len(arrays["train_y"]), 6000)
    _require_rows(judged, len(arrays["test_y"]), 1000)


def _column_last(arrays: Arrays) -> Table:
    return Table(arrays["table"][:, :-1], arrays["table"][:, -1])


def _column_first(arrays: Arrays) -> Table:
    return Table(arrays["table"][:, 1:], arrays["table"][:, 0])


def _parkinson(arrays: Arrays) -> Table:
    """Target total_UPDRS (column 5); the paper's d = 21 keeps subject number and motor_UPDRS among the features."""
    return Table(np.delete(arrays["table"], 5, axis=1), arrays["table"][:, 5])


def _ones(y: Array) -> Array:
    return np.where(y > 0, 1.0, 0.0)


def _gisette_whole(arrays: Arrays) -> Table:
    return Table(arrays["X"], _ones(arrays["y"]), (arrays["test_X"], _ones(arrays["test_y"])))


def _gisette_scaled(arrays: Arrays) -> Table:
    X, test = (_sparse(arrays, key, 5000).toarray() for key in ("train", "test"))
    return Table(X, _ones(arrays["train_y"]), (test, _ones(arrays["test_y"])))


_GISETTE_ZIP = (_STATIC + "170/gisette.zip",)

DATASETS = {
    dataset.name: dataset
    for dataset in (
        _one(
            "pima",
            "768 rows, 8 columns; half of them for test",
            Source(
                "pima/diabetes",
                "419ba20be4862fc53a6fe92e55a84a53ae0075df06632c07592a17d619b5cb23",
                (_LIBSVM + "diabetes",),
            ),
            read=_read_libsvm(("pima",), 8, (-1, 1)),
            build=lambda arrays: Table(_sparse(arrays, "pima", 8).toarray(), np.where(arrays["pima_y"] < 0, 1.0, 0.0)),
        ),
        _one(
            "a3a",
            "3185 rows and 29,376 for test, 123 columns",
            Source("a3a/a3a", "2d513572f103d25e84bebe4b9f2f52ee9445764b5a393caff7db9c482cfc1ee4", (_LIBSVM + "a3a",)),
            Source(
                "a3a/a3a.t", "c46c9ea67e06f38e81d59c4883e3d670cbe55de6a5c32564b38fc89dcda3adac", (_LIBSVM + "a3a.t",)
            ),
            read=_read_libsvm(("train", "test"), 123, (-1, 1)),
            build=lambda arrays: Table(
                _sparse(arrays, "train", 123),
                _ones(arrays["train_y"]),
                (_sparse(arrays, "test", 123), _ones(arrays["test_y"])),
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
                    _read_gisette(5000),
                    _gisette_whole,
                    key="whole",
                    verify=_verify_whole,
                ),
                Edition(
                    "6000 rows and 1000 for test, 5000 columns, each scaled to [−1, 1] by LIBSVM",
                    (
                        Source("gisette/gisette_scale", "", (_LIBSVM + "gisette_scale.bz2",)),
                        Source("gisette/gisette_scale.t", "", (_LIBSVM + "gisette_scale.t.bz2",)),
                    ),
                    _read_libsvm(("train", "test"), 5000, (-1, 1), np.float32),
                    _gisette_scaled,
                    key="scaled",
                    verify=_verify_scaled,
                ),
                Edition(
                    "6000 rows, the first 1000 of 5000 columns; a sixth held out for test",
                    (
                        Source("gisette/gisette_train_first1000.data", _GISETTE_FIRST),
                        Source("gisette/gisette_train.labels", _GISETTE_LABELS, _GISETTE_ZIP),
                    ),
                    _read_gisette(1000),
                    lambda arrays: Table(arrays["X"], _ones(arrays["y"])),
                    partial="only the first 1000 of its 5000 columns are there and no validation rows, so a sixth of "
                    "the training rows is held out for test and the errors cannot be the paper's",
                ),
            ),
        ),
        _one(
            "mushroom",
            "8124 rows, 112 columns; half of them for test",
            Source(
                "mushrooms/mushrooms",
                "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538",
                (_LIBSVM + "mushrooms",),
            ),
            read=_read_libsvm(("mushroom",), 112, (1, 2)),
            build=lambda arrays: Table(_sparse(arrays, "mushroom", 112), np.where(arrays["mushroom_y"] == 1, 1.0, 0.0)),
        ),
        _one(
            "geographical",
            "1059 rows, 69 columns (68 of sound, and the latitude); the longitude is the target",
            Source(
                "geographical/default_features_1059_tracks.txt",
                "8557da3791e17b036763a95a7f16e3f23d20dcd4c5387d4f11aa1ed8c7a0b9ab",
                (
                    _STATIC + "315/geographical+original+of+music.zip",
                    _UCI + "00315/Geographical%20Original%20of%20Music.zip",
                ),
            ),
            read=_read_numbers(",", 70),
            build=_column_last,
        ),
        _one(
            "noise",
            "1503 rows, 5 columns",
            Source(
                "noise/airfoil_self_noise.dat",
                "74c75fd71783f1e6b71f8a622b993dc592897a97cd689c5090a07147a1b097b3",
                (_UCI + "00291/airfoil_self_noise.dat", _STATIC + "291/airfoil+self+noise.zip"),
            ),
            read=_read_numbers("\t", 6),
            build=_column_last,
        ),
        _one(
            "parkinson",
            "5875 rows, 21 columns, the other score and the subject's number among them",
            Source(
                "parkinson/parkinsons_updrs.data",
                "f2c7d5025dec4e92e7feae367a5f7ccf58789a10ac6b54bdf15976c599f9dd39",
                (
                    _UCI + "parkinsons/telemonitoring/parkinsons_updrs.data",
                    _STATIC + "189/parkinsons+telemonitoring.zip",
                ),
            ),
            read=_read_numbers(",", 22, header=True),
            build=_parkinson,
        ),
        _one(
            "toms",
            "28,179 rows, 96 columns",
            Source(
                "toms/TomsHardware.data",
                "eb18c0265e669813c6a9d32d11eb4d01125970fa46a7d4f75c3da0f0ccb3110c",
                (_UCI + "00248/regression.tar.gz", _STATIC + "248/buzz+in+social+media.zip"),
            ),
            read=_read_numbers(",", 97),
            build=_column_last,
        ),
        _one(
            "casp",
            "45,730 rows, 9 columns: the set whose size the paper gives for toms",
            Source(
                "casp/CASP.csv",
                "4277cfcb4e91a181746cbc654f001b57951c9e6a80f4f795fdb5c807e0848f40",
                (
                    _UCI + "00265/CASP.csv",
                    _STATIC + "265/physicochemical+properties+of+protein+tertiary+structure.zip",
                ),
            ),
            read=_read_numbers(",", 10, header=True),
            build=_column_first,
        ),
    )
}
