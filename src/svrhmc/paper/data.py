"""The paper's data sets: from a folder, or from their publishers; checked, parsed strictly, cached as arrays."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import missing
from svrhmc.files import libsvm, numbers

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"


class DataError(ValueError):
    """A data set cannot be used; says which file, and why."""


class MissingDataError(DataError):
    """A data set's file is neither in the folder nor to be had; says which, and how to get it."""


@dataclass(frozen=True)
class Source:
    """One published file: its place in a data folder, the hash of its bytes (decompressed), and where it is published.

    `member` names the file within the archive at `url`; `url` is empty where no publisher has exactly these bytes.
    """

    path: str
    sha256: str
    url: str = ""
    member: str = ""


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


@dataclass(frozen=True)
class Dataset:
    """A data set of the paper: its files, and how they are read."""

    name: str
    note: str
    sources: tuple[Source, ...]
    read: Callable[[list[str]], dict[str, Array]]
    build: Callable[[dict[str, Array]], Table]


def load(name: str, folder: Path | None = None, check: bool = True) -> Table:
    """A data set from `folder` (plain or .xz files, laid out as `Source.path`), or else from its publisher.

    The bytes must have the published hash (`check=False` trusts the folder). What was parsed is kept as arrays under
    SVRHMC_CACHE, or ~/.cache/svrhmc, and read from there the next time.
    """
    dataset = DATASETS[name]
    cached = cache_folder() / f"{name}-{'-'.join(source.sha256[:12] for source in dataset.sources)}.npz"
    if check and cached.exists():
        try:
            with np.load(cached) as arrays:
                return dataset.build(dict(arrays))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):  # cut short: made anew
            cached.unlink()
    contents = [_bytes(source, name, folder, check) for source in dataset.sources]
    try:
        arrays = dataset.read([content.decode("utf-8", "strict") for content in contents])
    except ValueError as error:
        raise DataError(f"{name}: {error}") from None
    if check:
        cached.parent.mkdir(parents=True, exist_ok=True)
        partial = cached.with_suffix(f".{os.getpid()}.npz")
        np.savez_compressed(partial, **arrays)  # type: ignore[arg-type]
        partial.replace(cached)  # at once, so that no reader sees half a file
    return dataset.build(arrays)


def cache_folder() -> Path:
    """Where parsed tables are kept."""
    given = os.environ.get("SVRHMC_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "svrhmc"


def _bytes(source: Source, name: str, folder: Path | None, check: bool) -> bytes:
    content = _from_folder(source, folder) if folder is not None else None
    if content is None:
        content = _from_publisher(source, name, folder)
    if check and hashlib.sha256(content).hexdigest() != source.sha256:
        raise DataError(
            f"{source.path} of {name} is not the published file: its sha256 is {hashlib.sha256(content).hexdigest()}, "
            f"not {source.sha256}."
        )
    return content


def _from_folder(source: Source, folder: Path) -> bytes | None:
    plain = folder / source.path
    packed = plain.with_name(plain.name + ".xz")
    if packed.exists():
        try:
            return lzma.decompress(packed.read_bytes())
        except lzma.LZMAError as error:
            raise DataError(f"{packed} cannot be decompressed: {error}.") from None
    return plain.read_bytes() if plain.exists() else None


def _from_publisher(source: Source, name: str, folder: Path | None) -> bytes:
    if not source.url:
        raise _missing(source, name, folder, "no publisher has it in this form")
    try:
        import pooch
    except ModuleNotFoundError:
        raise _missing(source, name, folder, str(missing("pooch", "paper", "a download")).rstrip(".")) from None
    known = None if source.member else "sha256:" + source.sha256
    try:
        file = Path(pooch.retrieve(source.url, known, path=cache_folder() / "downloads"))
    except Exception as error:
        raise _missing(source, name, folder, f"the download failed ({type(error).__name__}: {error})") from None
    content = file.read_bytes()
    if source.member and file.name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.read(source.member)
    if source.member:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            member = archive.extractfile(source.member)
            assert member is not None
            return member.read()
    return content


def _missing(source: Source, name: str, folder: Path | None, why: str) -> MissingDataError:
    place = f"in {folder}" if folder is not None else "in a data folder"
    get = (
        f"download it from {source.url}"
        if source.url
        else "get it from the UCI repository (gisette, first 1000 columns)"
    )
    return MissingDataError(
        f"{name} needs the file {source.path} (or {source.path}.xz) {place}, and {why}: {get}, and pass the folder "
        f"with --data DIR or SVRHMC_DATA."
    )


def _sparse(arrays: dict[str, Array], key: str, columns: int) -> Any:
    import scipy.sparse

    parts = (arrays[f"{key}_values"], arrays[f"{key}_columns"], arrays[f"{key}_ends"])
    return scipy.sparse.csr_matrix(parts, (len(arrays[f"{key}_y"]), columns))


def _read_libsvm(names: tuple[str, ...], columns: int) -> Callable[[list[str]], dict[str, Array]]:
    def read(texts: list[str]) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for name, text in zip(names, texts, strict=True):
            found = libsvm(text.splitlines(), name, columns)
            arrays.update(zip((f"{name}_y", f"{name}_values", f"{name}_columns", f"{name}_ends"), found, strict=True))
        return arrays

    return read


def _read_numbers(name: str, delimiter: str, header: bool = False) -> Callable[[list[str]], dict[str, Array]]:
    return lambda texts: {"table": numbers(texts[0].splitlines(), name, delimiter, header)}


def _read_gisette(texts: list[str]) -> dict[str, Array]:
    X = numbers(texts[0].splitlines(), "gisette", " ")
    y = numbers(texts[1].splitlines(), "gisette labels", " ")[:, 0]
    return {"X": X.astype(np.float32), "y": y}


def _column_last(arrays: dict[str, Array]) -> Table:
    return Table(arrays["table"][:, :-1], arrays["table"][:, -1])


def _column_first(arrays: dict[str, Array]) -> Table:
    return Table(arrays["table"][:, 1:], arrays["table"][:, 0])


def _parkinson(arrays: dict[str, Array]) -> Table:
    """Target total_UPDRS (column 5); the paper's d = 21 keeps subject number and motor_UPDRS among the features."""
    return Table(np.delete(arrays["table"], 5, axis=1), arrays["table"][:, 5])


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "pima",
            "768 rows, 8 columns; half of them for test",
            (
                Source(
                    "pima/diabetes",
                    "419ba20be4862fc53a6fe92e55a84a53ae0075df06632c07592a17d619b5cb23",
                    _LIBSVM + "diabetes",
                ),
            ),
            _read_libsvm(("pima",), 8),
            lambda arrays: Table(_sparse(arrays, "pima", 8).toarray(), np.where(arrays["pima_y"] < 0, 1.0, 0.0)),
        ),
        Dataset(
            "a3a",
            "3185 rows and 29,376 for test, 123 columns",
            (
                Source("a3a/a3a", "2d513572f103d25e84bebe4b9f2f52ee9445764b5a393caff7db9c482cfc1ee4", _LIBSVM + "a3a"),
                Source(
                    "a3a/a3a.t", "c46c9ea67e06f38e81d59c4883e3d670cbe55de6a5c32564b38fc89dcda3adac", _LIBSVM + "a3a.t"
                ),
            ),
            _read_libsvm(("train", "test"), 123),
            lambda arrays: Table(
                _sparse(arrays, "train", 123),
                np.where(arrays["train_y"] > 0, 1.0, 0.0),
                (_sparse(arrays, "test", 123), np.where(arrays["test_y"] > 0, 1.0, 0.0)),
            ),
        ),
        Dataset(
            "gisette",
            "6000 rows, the first 1000 of 5000 columns; a sixth held out for test",
            (
                Source(
                    "gisette/gisette_train_first1000.data",
                    "b131a0001db88db8ab7541444eb6ac0de9cb2e4423ca02649ffd1fa2520bdad0",
                ),
                Source(
                    "gisette/gisette_train.labels",
                    "42bd681fe51b161f033df773df14a0116e492676555ab14616c1b72edc054075",
                    _UCI + "gisette/GISETTE/gisette_train.labels",
                ),
            ),
            _read_gisette,
            lambda arrays: Table(arrays["X"], np.where(arrays["y"] > 0, 1.0, 0.0)),
        ),
        Dataset(
            "mushroom",
            "8124 rows, 112 columns; half of them for test",
            (
                Source(
                    "mushrooms/mushrooms",
                    "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538",
                    _LIBSVM + "mushrooms",
                ),
            ),
            _read_libsvm(("mushroom",), 112),
            lambda arrays: Table(_sparse(arrays, "mushroom", 112), np.where(arrays["mushroom_y"] == 1, 1.0, 0.0)),
        ),
        Dataset(
            "geographical",
            "1059 rows, 69 columns (68 of sound, and the latitude); the longitude is the target",
            (
                Source(
                    "geographical/default_features_1059_tracks.txt",
                    "8557da3791e17b036763a95a7f16e3f23d20dcd4c5387d4f11aa1ed8c7a0b9ab",
                    "https://archive.ics.uci.edu/static/public/315/geographical+original+of+music.zip",
                    "default_features_1059_tracks.txt",
                ),
            ),
            _read_numbers("geographical", ","),
            _column_last,
        ),
        Dataset(
            "noise",
            "1503 rows, 5 columns",
            (
                Source(
                    "noise/airfoil_self_noise.dat",
                    "74c75fd71783f1e6b71f8a622b993dc592897a97cd689c5090a07147a1b097b3",
                    _UCI + "00291/airfoil_self_noise.dat",
                ),
            ),
            _read_numbers("noise", "\t"),
            _column_last,
        ),
        Dataset(
            "parkinson",
            "5875 rows, 21 columns, the other score and the subject's number among them",
            (
                Source(
                    "parkinson/parkinsons_updrs.data",
                    "f2c7d5025dec4e92e7feae367a5f7ccf58789a10ac6b54bdf15976c599f9dd39",
                    _UCI + "parkinsons/telemonitoring/parkinsons_updrs.data",
                ),
            ),
            _read_numbers("parkinson", ",", header=True),
            _parkinson,
        ),
        Dataset(
            "toms",
            "28,179 rows, 96 columns",
            (
                Source(
                    "toms/TomsHardware.data",
                    "eb18c0265e669813c6a9d32d11eb4d01125970fa46a7d4f75c3da0f0ccb3110c",
                    _UCI + "00248/regression.tar.gz",
                    "regression/TomsHardware/TomsHardware.data",
                ),
            ),
            _read_numbers("toms", ","),
            _column_last,
        ),
        Dataset(
            "casp",
            "45,730 rows, 9 columns: the set whose size the paper gives for toms",
            (
                Source(
                    "casp/CASP.csv",
                    "4277cfcb4e91a181746cbc654f001b57951c9e6a80f4f795fdb5c807e0848f40",
                    _UCI + "00265/CASP.csv",
                ),
            ),
            _read_numbers("casp", ",", header=True),
            _column_first,
        ),
    )
}
