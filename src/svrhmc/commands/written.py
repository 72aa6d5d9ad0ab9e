"""The files of a fit: looked at before the work, and each written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from svrhmc.core.errors import DataError, requirement
from svrhmc.core.storage import write_text
from svrhmc.posterior.result import Posterior
from svrhmc.reporting import Coefficient, coefficients_csv, report
from svrhmc.shell import require_place

MODEL, TABLE, REPORT, NETCDF, UNFINISHED = (
    "model.posterior", "coefficients.csv", "report.html", "posterior.nc", "unfinished",
)  # fmt: skip


@contextmanager
def folder(out: Path) -> Iterator[None]:
    """The folder of a fit, looked at before any work; where nothing came of it, it is gone again."""
    if out.exists() and not out.is_dir():
        raise requirement("--out", "a folder, or the name of one to be made", out, "it is a file")
    made = not out.exists()
    try:
        out.mkdir(exist_ok=True)
    except OSError as error:
        raise requirement("--out", "a folder that exists or can be made", out, str(error.strerror or error)) from None
    try:
        for name in (MODEL, TABLE, REPORT, NETCDF):
            require_place("--out", out / name)
        yield
    finally:
        if made:
            with suppress(OSError):  # it is kept where there is something in it
                out.rmdir()


def write_all(
    out: Path, posterior: Posterior, rows: tuple[Coefficient, ...], told: dict[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """The names of the files by what they are, and what could not be written."""
    posterior.save(out / MODEL)
    write_text(out / TABLE, coefficients_csv(rows))
    report(posterior, out / REPORT, **told)
    made = {"model": MODEL, "coefficients": TABLE, "report": REPORT}
    lacking = _netcdf(posterior, out / NETCDF)
    if not lacking:
        made["netcdf"] = NETCDF
    return {what: str(out / name) for what, name in made.items()}, lacking


def _netcdf(posterior: Posterior, path: Path) -> list[str]:
    """As ArviZ keeps it; without ArviZ a line that says so."""
    lines = f"{path.name} is not written: it needs ArviZ, h5netcdf and h5py (pip install 'svrhmc[arviz]')."
    try:
        found = posterior.to_arviz()
    except ModuleNotFoundError:
        return [lines]

    def write(partial: Path) -> None:
        found.to_netcdf(str(partial))

    try:
        _replaced(path, write)
    except (ModuleNotFoundError, ImportError, ValueError):
        return [lines]
    return []


def _replaced(path: Path, write: Callable[[Path], None]) -> None:
    """What others write under a name of their own takes its place when it is whole."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        write(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def model_in(place: Path) -> Posterior:
    """The posterior of a fit's folder, or of a file."""
    file = place / MODEL if place.is_dir() else place
    if not file.exists():
        unfinished = " The fit was interrupted: the same command goes on." if (place / UNFINISHED).exists() else ""
        raise DataError(f"{place} holds no fit: it has no {MODEL}.{unfinished}")
    return Posterior.load(file)
