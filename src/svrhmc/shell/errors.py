"""The one boundary between commands and the shell: every error is one line, and says by its exit code what kind it is.

0    done
1    not done, or not all of it: something was missing or went wrong on the way
2    not begun: an option, a file or a package is not as it has to be
130  interrupted (Ctrl-C)
"""

from __future__ import annotations

import codecs
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer
from numpy.linalg import LinAlgError
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from svrhmc.core import processes
from svrhmc.core.errors import CheckpointError, requirement

CODES = (
    "Exit codes: 0 done; 1 not finished, or only in part (something was missing or went wrong on the way); 2 not "
    "started (an option, a file or a package is not as it has to be); 130 interrupted."
)
# what Typer says of options; it may bring its own copy of Click
_OPTIONS = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
_ROOM = 1 << 22  # bytes free, for a figure
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
_PLAIN = {
    "₁": "1", "₂": "2", "₃": "3", "⁻": "-", "¹": "1", "²": "2", "–": "-", "—": "-", "−": "-", "…": "...", "≤": "<=",
    "≥": ">=", "×": "x", "·": "*", "±": "+-", "∇": "grad ", "ε": "eps", "κ": "kappa", "μ": "mu", "η": "eta",
    "γ": "gamma", "π": "pi", "σ": "sigma", "λ": "lambda", "∞": "inf", "√": "sqrt", "ᵢ": "i", "→": "->", "’": "'",
    "“": '"', "”": '"', "•": "*", "─": "-", "━": "-", "│": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+",
}  # fmt: skip


class Shell(TyperGroup):
    """Commands within the boundary."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read what stands before the command."""
        if os.environ.get("COLUMNS", "1") in ("", "0"):  # as some terminals say: then no width is known, and none is 0
            os.environ.pop("COLUMNS")
        write_plainly()
        with boundary():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Read the rest, and carry it out."""
        with boundary():
            return super().invoke(ctx)


@contextmanager
def boundary() -> Iterator[None]:
    """Errors as one line on stderr, with their exit code; with SVRHMC_TRACEBACK set, as Python shows them."""
    try:
        yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        raise interrupted() from None
    except Exception as error:
        if os.environ.get("SVRHMC_TRACEBACK") or _shows_help(error):
            raise
        code, line = _report(error)
        say(f"[bold red]error:[/bold red] {escape(_one_line(line))}")
        raise typer.Exit(code) from None


@contextmanager
def writing() -> Iterator[None]:
    """What the system refuses from here on is a failure: the work is done, and what it gave is not kept."""
    try:
        yield
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise RuntimeError(f"{place}{error.strerror or error}; it is not written.") from error


def interrupted(line: str = "Interrupted.") -> typer.Exit:
    """Say, once, that an interrupt ended the command; gives how it ends."""
    processes.set_interrupt_message("")
    say(escape(line))
    return typer.Exit(processes.INTERRUPTED)


def show(line: str) -> None:
    """A line on stdout, as it stands."""
    Console().print(escape(line), highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """A line on stderr, with Rich's markup."""
    Console(stderr=True).print(line, highlight=False, soft_wrap=True)


def require_folder(option: str, path: Path, parents: bool = False) -> None:
    """Make a folder where there is none; refuse one that cannot be made, before any work is done for it."""
    if path.exists() and not path.is_dir():
        raise requirement(option, "a folder, or the name of a new one", path, "it is a file")
    try:
        path.mkdir(parents=parents, exist_ok=True)
    except OSError as error:
        why = str(error.strerror or error)
        raise requirement(option, "a folder that exists or can be made", path, why) from None


def require_place(option: str, path: Path) -> None:
    """Refuse a name under which no file can be written, before any work is done for it."""
    folder = path.resolve().parent
    if path.is_dir():
        raise requirement(option, "the name of a file", path, "it is a folder")
    if not folder.is_dir():
        raise requirement(option, "in a folder that exists and can be written to", path)
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
        if path.exists():
            path.open("ab").close()
    except OSError as error:
        why = str(error.strerror)
        raise requirement(option, "in a folder that exists and can be written to", path, why) from None
    if free < _ROOM:
        raise requirement(option, "on a disk with room", path, f"{free:,} bytes are free")


def write_plainly() -> None:
    """Where an output cannot show a sign, let it show what stands for it, rather than fail."""
    codecs.register_error("svrhmc", _plain)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and getattr(stream, "errors", "") in ("strict", "surrogateescape", "backslashreplace"):
            with suppress(AttributeError, ValueError, OSError):
                stream.reconfigure(errors="svrhmc")  # type: ignore[union-attr]


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def _report(error: Exception) -> tuple[int, str]:
    """The exit code and the line of an error."""
    if isinstance(error, _OPTIONS):
        return 2, error.format_message()  # type: ignore[attr-defined]
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return (1 if error.errno in _NO_ROOM else 2), f"{place}{error.strerror}."
    if isinstance(error, MemoryError):
        return 1, "there is not enough memory for this."
    if isinstance(error, CheckpointError) and _is_of_the_system(error):
        return 1, str(error)
    if isinstance(error, ValueError | ModuleNotFoundError | OSError) and not isinstance(error, LinAlgError):
        return 2, str(error)
    if isinstance(error, RuntimeError) and not isinstance(error, RecursionError | NotImplementedError):
        return 1, str(error)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return 1, f"svrhmc failed ({what}). Please report it, with what SVRHMC_TRACEBACK=1 shows."


def _is_of_the_system(error: BaseException | None) -> bool:
    """Whether an error of the system, such as a full disk, led to this one."""
    return error is not None and (isinstance(error, OSError) or _is_of_the_system(error.__cause__))


def _shows_help(error: Exception) -> bool:
    return type(error).__name__ == "NoArgsIsHelpError"


def _one_line(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
