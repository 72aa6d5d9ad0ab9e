"""Files that a path, a folder, a pattern or a list stands for."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

from svrhmc.core.errors import DataError
from svrhmc.core.storage import require_file


def files_of(path: str | os.PathLike[str] | list[Any], suffixes: tuple[str, ...]) -> list[str]:
    """Files of a folder, of a pattern such as "part-*.parquet", or of a list, in the order of their names."""
    if isinstance(path, (list, tuple)):
        found = [str(each) for each in path]
    elif os.path.isdir(path):
        try:
            found = sorted(str(each) for each in Path(path).rglob("*") if each.suffix in suffixes and each.is_file())
        except OSError as error:
            raise DataError(f"the folder {path} cannot be read: {error.strerror} ({error.filename}).") from None
        if not found:
            raise DataError(f"the folder {path} has no {' or '.join(suffixes)} file in it.")
    elif os.path.exists(path):
        found = [str(path)]
    else:
        found = sorted(glob.glob(str(path), recursive=True))
        if not found:
            raise DataError(f"{path} is not there: give a file, a folder, or a pattern such as 'data/part-*.parquet'.")
    if not found:
        raise DataError("there are no files in the list.")
    for each in found:
        if not os.path.exists(each):
            raise DataError(f"{each} is not there.")
        require_file(Path(each), os.stat(each), DataError)
    return found


def stamps_of(files: list[str]) -> dict[str, tuple[int, int]]:
    """Size and time of each file, by which a run that goes on knows that they are the same."""
    return {path: ((stat := os.stat(path)).st_size, stat.st_mtime_ns) for path in files}
