"""Data sets from a folder or from their publishers: checked, parsed strictly, kept as arrays."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from svrhmc.core.arrays import Reals
from svrhmc.core.errors import DataError, MissingDataError, requirement
from svrhmc.core.storage import write_bytes
from svrhmc.paper.datasets import DATASETS, Dataset, Edition, Source, Table
from svrhmc.paper.download import ArchiveError, cache_folder, cached_download, fetch, file_name, unpack
from svrhmc.paper.settings import Result
from svrhmc.rows.csr import CsrMatrix, Matrix

_SUFFIXES = ("", ".xz", ".gz", ".bz2")


def load(name: str, folder: Path | None = None, check: bool | None = None) -> Table:
    """A data set from `folder` (docs/data.md has its layout), or else from its publisher.

    The bytes must have the published hash; `check=False`, or SVRHMC_UNCHECKED=1 in the environment, trusts them. What
    was parsed is kept as arrays in the cache folder, and read from there the next time.
    """
    return obtain(name, folder, check)[1]


def obtain(name: str, folder: Path | None = None, check: bool | None = None) -> tuple[Edition, Table]:
    """A data set and which of its editions it is: the first that is whole in the folder, or in the cache, or to be had.

    Whatever is wrong, with a file or the network, is one `DataError` that names the file and says what to do.
    """
    dataset = DATASETS[name]
    check = _checking() if check is None else check
    at_hand = _edition_at_hand(dataset, folder, check)
    failures: list[DataError] = []
    for edition in sorted(dataset.editions, key=lambda edition: edition is not at_hand):
        try:
            return edition, _table(dataset, edition, folder, check)
        except MissingDataError as error:
            failures.append(error)
    raise failures[0]


@dataclass(frozen=True)
class Supply:
    """What could be had of the data sets asked for, by name: the edition, or why there is none."""

    editions: dict[str, Edition]
    missing: dict[str, str]

    def key(self, name: str) -> str:
        """The key of the edition of a data set that is at hand; empty where there is none."""
        return self.editions[name].key if name in self.editions else ""

    @property
    def notes(self) -> dict[str, str]:
        """What each edition is, for the report."""
        return {name: edition.note for name, edition in self.editions.items()}

    @property
    def partial(self) -> dict[str, str]:
        """What is not the paper's, where something is not."""
        return {name: edition.partial for name, edition in self.editions.items() if edition.partial}


def gather(
    names: Iterable[str], folder: Path | None, finished: Callable[[str, str], bool], say: Callable[[str], None]
) -> Supply:
    """Get each data set once, before the work begins; what cannot be had is named, and the rest goes on.

    A set of whose edition (by its key) everything is `finished` is not needed any more.
    """
    editions, missing = {}, {}
    for name in names:
        dataset = DATASETS[name]
        try:
            at_hand = _edition_at_hand(dataset, folder, _checking())
            done = [edition for edition in ([at_hand] if at_hand else dataset.editions) if finished(name, edition.key)]
            editions[name] = done[0] if done else obtain(name, folder)[0]
        except DataError as error:
            missing[name] = str(error)
            say(f"{name}: cannot be had, the rest goes on without it")
            continue
        if editions[name].partial:
            whole = ", ".join(source.path for source in dataset.editions[0].sources)
            say(f"{name}: {editions[name].partial}; the whole set needs {whole}")
    return Supply(editions, missing)


def _checking() -> bool:
    return os.environ.get("SVRHMC_UNCHECKED", "") in ("", "0")


def _edition_at_hand(dataset: Dataset, folder: Path | None, check: bool) -> Edition | None:
    """The first edition that is whole in the folder, or else in the cache, by its hashes or as it was downloaded."""
    for edition in dataset.editions:
        if folder is not None and all(_find_file(source, dataset.name, folder) for source in edition.sources):
            return edition
    for edition in dataset.editions:
        cached = _cached_table(dataset.name, [source.sha256 for source in edition.sources])
        if check and cached is not None and cached.exists():
            return edition
    with suppress(DataError):
        for edition in dataset.editions:
            if all(any(cached_download(url).exists() for url in source.urls) for source in edition.sources):
                return edition
    return None


def _table(dataset: Dataset, edition: Edition, folder: Path | None, check: bool) -> Table:
    """From the arrays kept under the hashes of its files, else from the files."""
    published = [source.sha256 for source in edition.sources]
    table = _read_cache(_cached_table(dataset.name, published)) if check else None
    if table is not None:
        return table
    contents = _contents(dataset.name, edition, folder, check)
    hashes = [hashlib.sha256(content).hexdigest() for content in contents.values()]
    cached = _cached_table(dataset.name, hashes, check)
    table = _read_cache(cached)
    if table is not None:
        return table
    try:
        table = _parse(dataset.name, edition, contents, check)
    except DataError as error:
        if _discard_downloads(dataset.name, edition, folder):
            raise MissingDataError(str(error)) from None  # another edition may be sound
        raise
    _write_cache(cached, table)
    return table


def _parse(name: str, edition: Edition, contents: dict[str, bytes], check: bool) -> Table:
    try:
        texts = {path: _decode(path, content) for path, content in contents.items()}
        table = edition.read(texts)
        if check and edition.verify is not None:
            edition.verify(texts, table)
    except ValueError as error:
        urls = " or ".join(dict.fromkeys(url for source in edition.sources for url in source.urls))
        remedy = f"put the published file in its place{f' ({urls})' if urls else ''}."
        raise DataError(f"{name}: {str(error).rstrip('.')}: {remedy}") from None
    return table


def _decode(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise requirement(path, "text", f"the bytes {content[:8]!r} …") from None


def _discard_downloads(name: str, edition: Edition, folder: Path | None) -> bool:
    """Whether any of its files was downloaded; such are not kept, so that the next run fetches them again."""
    absent = [source for source in edition.sources if folder is None or _find_file(source, name, folder) is None]
    with suppress(DataError, OSError):
        for url in {url for source in absent for url in source.urls}:
            cached_download(url).unlink(missing_ok=True)
    return bool(absent)


# Parsed tables in the cache.


def _cached_table(name: str, hashes: list[str], check: bool = True) -> Path | None:
    """The file of parsed arrays; None where hashes are not known beforehand, or there is no cache folder."""
    if not all(hashes):
        return None
    words = [name, *(digest[:12] for digest in hashes), *(() if check else ("unchecked",))]
    try:
        return cache_folder() / f"{'-'.join(words)}.npz"
    except DataError:
        return None


def _read_cache(path: Path | None) -> Table | None:
    if path is None or not path.exists():
        return None
    try:
        with np.load(path) as arrays:
            test = (_rows(arrays, "test_X"), arrays["test_target"]) if "test_target" in arrays else None
            return Table(_rows(arrays, "X"), arrays["target"], test)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # cut short, or of another version: made anew
        with suppress(OSError):
            path.unlink()
        return None


def _rows(arrays: Mapping[str, Reals], name: str) -> Matrix:
    """Dense, or CSR from its parts."""
    if name in arrays:
        return arrays[name]
    from scipy.sparse import csr_matrix

    rows: CsrMatrix = csr_matrix(tuple(arrays[f"{name}_{part}"] for part in _CSR), tuple(arrays[f"{name}_shape"]))
    return rows


_CSR = ("data", "indices", "indptr")


def _write_cache(path: Path | None, table: Table) -> None:
    """For the next time; where nothing can be written, it is parsed again then."""
    if path is None:
        return
    arrays: Result = {}
    for prefix, (X, y) in {"": (table.X, table.y), **({"test_": table.test} if table.test else {})}.items():
        arrays[f"{prefix}target"] = y
        if hasattr(X, "indptr"):
            arrays |= {f"{prefix}X_{part}": getattr(X, part) for part in _CSR} | {f"{prefix}X_shape": X.shape}
        else:
            arrays[f"{prefix}X"] = X
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content.getvalue())


# The bytes of files.


def _contents(name: str, edition: Edition, folder: Path | None, check: bool) -> dict[str, bytes]:
    """The bytes of each source by its path; what is not in the folder comes from the publisher, an archive once."""
    contents: dict[str, bytes] = {}
    absent: dict[tuple[str, ...], list[Source]] = {}
    for source in edition.sources:
        file = None if folder is None else _find_file(source, name, folder)
        if file is None:
            absent.setdefault(source.urls, []).append(source)
        else:
            contents[source.path] = _from_file(source, name, file, check)
    for sources in absent.values():
        contents |= _from_publishers(sources, name, folder, check)
    return {source.path: contents[source.path] for source in edition.sources}


def _find_file(source: Source, name: str, folder: Path) -> Path | None:
    """A source's file in the folder: its name plain, compressed, or an archive as published; in any case of letters.

    It may lie in the folder itself, or anywhere below the folder of the data set.
    """
    homes = {source.path.split("/")[0].casefold(), name.casefold()}
    names = [source.name + suffix for suffix in _SUFFIXES] + [file_name(url) for url in source.urls]
    rank = {name.casefold(): place for place, name in reversed(list(enumerate(names)))}
    candidates: list[tuple[int, int, str, Path]] = []
    try:
        for entry in folder.iterdir():
            inside: Iterable[Path] = [entry]
            if entry.is_dir():
                inside = entry.rglob("*") if entry.name.casefold() in homes else []
            for path in inside:
                place = rank.get(path.name.casefold())
                if place is not None and path.is_file():
                    candidates.append((place, len(path.parts), str(path), path))
    except OSError as error:
        raise DataError(f"{name}: {folder} cannot be read ({error.strerror}): make it readable.") from None
    return min(candidates)[-1] if candidates else None


def _from_file(source: Source, name: str, file: Path, check: bool) -> bytes:
    remedy = "replace it."
    if source.urls:
        remedy = f"replace it by the one at {' or '.join(source.urls)}, or take it away to have it downloaded."
    try:
        return _unpack_checked(source, file.name, file.read_bytes(), check)
    except OSError as error:
        raise DataError(f"{name}: {file} cannot be read ({error.strerror}): make it readable.") from None
    except ArchiveError as error:
        raise DataError(f"{name}: {file} {error}: {remedy}") from None


def _unpack_checked(source: Source, file: str, content: bytes, check: bool) -> bytes:
    """The source's own bytes out of a file, with the published hash."""
    member = unpack(content, file, source.name)
    digest = hashlib.sha256(member).hexdigest()
    if check and source.sha256 and digest != source.sha256:
        what = "is not the published file"
        if file != source.name:
            what = f"holds a {source.name} that is not the published"
        raise ArchiveError(f"{what}: its sha256 is {digest}, not {source.sha256}")
    return member


def _from_publishers(sources: list[Source], name: str, folder: Path | None, check: bool) -> dict[str, bytes]:
    """Sources that are published together, from the first publisher that has all of them."""
    urls = sources[0].urls

    def accept(file: str, content: bytes) -> dict[str, bytes]:
        return {source.path: _unpack_checked(source, file, content, check) for source in sources}

    try:
        if not urls:
            raise DataError("no publisher has it in this form")
        return fetch(urls, accept)
    except DataError as error:
        paths = ", ".join(source.path for source in sources)
        what = f"the file {paths} (or {paths}.xz)" if len(sources) == 1 else f"the files {paths}"
        get = f"download it from {' or '.join(urls)} yourself" if urls else "get it from whom you have the other files"
        raise MissingDataError(
            f"{name} needs {what} in {folder or 'a data folder'}, and {error}: try again later, or {get}, and pass the "
            "folder with --data DIR or SVRHMC_DATA."
        ) from None
