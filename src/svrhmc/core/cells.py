"""Tables as CSV that a spreadsheet opens and does not run, and texts that are no tables.

A cell that begins with =, +, -, @, a tab or a line end is a formula to a spreadsheet, whoever wrote it, in quotes or
not. Names of columns and of classes come from data, so such texts are written with an apostrophe before them, which a
spreadsheet takes for the mark of a text. A text that begins with apostrophes before such a sign gets one more, so that
taking one away gives back every text (`unguarded`). Numbers, negative ones too, stay as they are.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from svrhmc.core.errors import DataError

MOST_LINE = 1 << 24  # bytes of a line: a million columns, and what is longer is no line of a table
_RUN = re.compile(r"'*(?:[\s\ufeff\u200b]*[=+\-@＝＋－＠]|[\t\r\n])")
_SEPARATORS = re.compile(r"[;|\t]")  # which part cells elsewhere


def csv_text(head: Iterable[str], rows: Iterable[Iterable[object]], digits: int = 6) -> str:
    """A header and rows as CSV; floats with so many digits.

    >>> print(csv_text(["name", "=1+1"], [["-age", -2.5], ["-3", 7]]), end="")
    name,'=1+1
    '-age,-2.5
    -3,7
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    quoting = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in (head, *rows):
        cells = [_cell(value, digits) for value in row]
        (quoting if any(map(_SEPARATORS.search, cells)) else writer).writerow(cells)
    return out.getvalue()


def _cell(value: object, digits: int) -> str:
    if isinstance(value, str):
        return guarded(value)
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def guarded(text: str) -> str:
    """A text that no spreadsheet runs."""
    return f"'{text}" if _RUN.match(text) and not is_number(text) else text


def unguarded(texts: Sequence[str]) -> list[str]:
    """Texts as they were before they were guarded; where one of them is not guarded that would have been, none was."""
    if any(not text.startswith("'") and guarded(text) != text for text in texts):
        return list(texts)
    return [text[1:] if text.startswith("'") and _RUN.match(text) else text for text in texts]


def is_number(word: str) -> bool:
    """Whether float takes it, and it is none of nan and inf."""
    try:
        return math.isfinite(float(word)) and "_" not in word
    except ValueError:
        return False


def made_numbers(texts: Iterable[object]) -> str:
    """How a column of texts such as '24,652' becomes numbers; "" where none of them has a sign between thousands."""
    grouped = next((text for text in texts if isinstance(text, str) and in_thousands(text, ",", ".")), "")
    if not grouped:
        return ""
    return (
        f"texts such as {grouped!r}: make numbers of them, in pandas by read_csv(…, thousands=',') or "
        "column.str.replace(',', '').astype(float)"
    )


def in_thousands(word: str, sign: str, decimal: str) -> bool:
    """Whether a number has a sign between its groups of three digits.

    >>> in_thousands("-1,234,567.5", ",", "."), in_thousands("1,23", ",", "."), in_thousands("123", ",", ".")
    (True, False, False)
    """
    part, point = re.escape(sign), re.escape(decimal)
    return re.fullmatch(rf"[+-]?[0-9]{{1,3}}({part}[0-9]{{3}})+({point}[0-9]*)?", word.strip()) is not None


def binary(path: Path) -> DataError:
    """The error where a text holds what no text does."""
    return DataError(f"{path} is a binary file, not a text. Save it as CSV.")


def too_long(path: Path, number: int) -> DataError:
    """The error where a line of a text does not end."""
    return DataError(
        f"{path}, line {number}: it is longer than {MOST_LINE >> 20} MiB. Is it a text with one row in each line?"
    )
