"""The files of a fit: looked at before the work, and each written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svrhmc.core.errors import DataError
from svrhmc.core.storage import require_free, write_text
from svrhmc.reporting import Coefficient, coefficients_csv, report
from svrhmc.results.loo import Loo
from svrhmc.results.posterior import Posterior
from svrhmc.shell.errors import require_folder, require_place
from svrhmc.tables.csv import Reading

MODEL, LOO, TABLE, REPORT, NETCDF, READING, UNFINISHED = (
    "model.posterior", "model.loo", "coefficients.csv", "report.html", "posterior.nc", "reading.json", "unfinished",
)  # fmt: skip
_GROWTH, _OVERHEAD = 2, 1 << 20  # of a file of HDF5: bytes for each byte in it, and for its own lists


@contextmanager
def folder(out: Path) -> Iterator[None]:
    """The folder of a fit, looked at before any work; where nothing came of it, it is gone again."""
    is_new = not out.exists()
    require_folder("--out", out)
    try:
        for name in (MODEL, LOO, TABLE, REPORT, NETCDF, READING):
            require_place("--out", out / name)
        yield
    finally:
        if is_new:
            with suppress(OSError):  # it is kept where there is something in it
                out.rmdir()


@dataclass(frozen=True)
class Outputs:
    """The files by what they are; notes on those that need a package which is not there; errors of the others."""

    files: dict[str, str]
    notes: tuple[str, ...]
    errors: tuple[str, ...]


def write_all(
    out: Path,
    posterior: Posterior,
    loo: Loo | None,
    rows: tuple[Coefficient, ...],
    about: dict[str, Any],
    without_loo: str = "",
    reading: Reading | None = None,
) -> Outputs:
    """Write all files, each whatever became of the others; those of an earlier fit that this one lacks are removed.

    without_loo: what to say where there is no cross-validation. reading: how the values of the file are written.
    """
    writers: dict[str, tuple[str, Callable[[Path], object]]] = {
        "model": (MODEL, posterior.save),
        "coefficients": (TABLE, lambda path: write_text(path, coefficients_csv(rows))),
        "report": (REPORT, lambda path: report(posterior, path, **about)),
        "netcdf": (NETCDF, lambda path: _netcdf(posterior, path)),
    }
    if loo is None:
        (out / LOO).unlink(missing_ok=True)
    else:
        writers["loo"] = (LOO, loo.save)
    if spelling := {} if reading is None else _spelling_of_values(reading):
        writers["reading"] = (READING, lambda path: write_text(path, json.dumps(spelling, indent=1) + "\n"))
    else:
        (out / READING).unlink(missing_ok=True)
    files, notes, errors = dict[str, str](), [without_loo] if without_loo else [], list[str]()
    for what, (name, write) in writers.items():
        try:
            write(out / name)
            files[what] = str(out / name)
        except ImportError:
            notes.append(f"{name} is not written: it needs ArviZ, h5netcdf and h5py (pip install 'svrhmc[arviz]').")
        except (OSError, ValueError) as error:
            errors.append(f"{out / name} is not written: {getattr(error, 'strerror', None) or str(error).rstrip('.')}.")
    return Outputs(files, tuple(notes), tuple(errors))


def _netcdf(posterior: Posterior, path: Path) -> None:
    """As ArviZ keeps it. HDF5 does not survive a full disk, so there is room for the file before it is begun."""
    data = posterior.to_arviz()
    groups = data.children.values() if hasattr(data, "children") else (data[name] for name in data.groups())
    require_free(path, _GROWTH * sum(group.nbytes for group in groups) + _OVERHEAD)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        data.to_netcdf(str(partial))
        partial.replace(path)
    except ValueError as error:  # so xarray says that it has nothing to write by
        raise ImportError(str(error)) from error
    finally:
        partial.unlink(missing_ok=True)


def _spelling_of_values(reading: Reading) -> dict[str, Any]:
    """How numbers, missing values and names are written in a text, by the fields of `Reading`, where that is not as
    usual. (What a text looks like, its delimiter and its encoding, is found for each file.)
    """
    usual = Reading()
    fields = ("decimal", "thousands", "na", "as_text")
    return {name: getattr(reading, name) for name in fields if getattr(reading, name) != getattr(usual, name)}


def spelling_in(place: Path, columns: Collection[str]) -> dict[str, Any]:
    """How values were written in some columns of the file of a fit, as `_spelling_of_values` says; {} if as usual."""
    file = (place if place.is_dir() else place.parent) / READING
    if not file.exists():
        return {}
    try:
        stored = json.loads(file.read_text())
        signs = {name: stored[name] for name in ("decimal", "thousands") if name in stored}
        words = {name: tuple(stored[name]) for name in ("na", "as_text") if name in stored}
        if not all(
            isinstance(word, str) for word in (*signs.values(), *(one for some in words.values() for one in some))
        ):
            raise TypeError
        if "as_text" in words:
            words["as_text"] = tuple(name for name in words["as_text"] if name in columns)
        return signs | words
    except (ValueError, TypeError, OSError):
        raise DataError(f"{file} is not as `svrhmc fit` wrote it: remove it, and say its options again.") from None


def model_in(place: Path) -> Posterior:
    """The posterior of a fit's folder, or of a file."""
    file = place / MODEL if place.is_dir() else place
    if not file.exists():
        unfinished = " The fit was interrupted: the same command goes on." if (place / UNFINISHED).exists() else ""
        raise DataError(f"{place} holds no fit: it has no {MODEL}.{unfinished}")
    return Posterior.load(file)


def loo_in(place: Path) -> Loo:
    """The cross-validation of a fit, by its folder or by the model.posterior in it."""
    folder = place.parent if place.name == MODEL else place
    if not (folder / MODEL).exists():
        raise DataError(f"{place} is no folder of a fit: it has no {MODEL}, with {LOO} beside it.")
    if not (folder / LOO).exists():
        why = "it would have taken long, or --no-loo left it out: run svrhmc fit again, with --loo"
        raise DataError(f"{place} has no cross-validation to compare ({LOO}): {why}.")
    return Loo.load(folder / LOO)
