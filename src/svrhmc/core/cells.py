"""Tables as CSV in which a spreadsheet runs no formula, and errors for texts that are not tables.

A spreadsheet takes a cell that begins with =, +, -, @, a tab or a line end for a formula, in quotes or not. Names of
columns and of classes come from data, so such texts are written with an apostrophe before them, by which a spreadsheet
marks a text. A text that already has apostrophes before such a sign gets one more, so that removing one restores every
text (`unguard_formulas`). Numbers, negative ones too, stay as they are.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from svrhmc.core.errors import DataError

MOST_LINE = 1 << 24  # bytes of a line: enough for a million columns
_FORMULA = re.compile(r"'*(?:[\s\ufeff\u200b]*[=+\-@＝＋－＠]|[\t\r\n])")
_SEPARATORS = re.compile(r"[;|\t]")  # which separate cells in other dialects of CSV


def csv_text(head: Iterable[str], rows: Iterable[Iterable[object]], digits: int = 6) -> str:
    """A header and rows as CSV; floats with `digits` significant digits.

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
        return guard_formula(value)
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def guard_formula(text: str) -> str:
    """The text, with an apostrophe before it if a spreadsheet would take it for a formula."""
    return f"'{text}" if _FORMULA.match(text) and not is_number(text) else text


def unguard_formulas(texts: Sequence[str]) -> list[str]:
    """The reverse of `guard_formula`. If a formula stands there without an apostrophe, the texts were never guarded and
    are returned as they are.
    """
    if any(not text.startswith("'") and guard_formula(text) != text for text in texts):
        return list(texts)
    return [text[1:] if text.startswith("'") and _FORMULA.match(text) else text for text in texts]


def is_number(word: str) -> bool:
    """Whether float accepts the word, and it is finite."""
    try:
        return math.isfinite(float(word)) and "_" not in word
    except ValueError:
        return False


def thousands_advice(texts: Iterable[object]) -> str:
    """How to make numbers of a column of texts such as '24,652'; "" if no text has thousands separators."""
    grouped = next((text for text in texts if isinstance(text, str) and has_thousands_separators(text, ",", ".")), "")
    if not grouped:
        return ""
    return (
        f"texts such as {grouped!r}: make numbers of them, in pandas by read_csv(…, thousands=',') or "
        "column.str.replace(',', '').astype(float)"
    )


def has_thousands_separators(word: str, sign: str, decimal: str) -> bool:
    """Whether a number has a sign between its groups of three digits.

    >>> [has_thousands_separators(word, ",", ".") for word in ("-1,234,567.5", "1,23", "123")]
    [True, False, False]
    """
    part, point = re.escape(sign), re.escape(decimal)
    return re.fullmatch(rf"[+-]?[0-9]{{1,3}}({part}[0-9]{{3}})+({point}[0-9]*)?", word.strip()) is not None


def binary_file_error(path: Path) -> DataError:
    """The error if a file that should be text is binary."""
    return DataError(f"{path} is a binary file, not a text. Save it as CSV.")


def long_line_error(path: Path, number: int) -> DataError:
    """The error if a line of a text is too long."""
    return DataError(
        f"{path}, line {number}: it is longer than {MOST_LINE >> 20} MiB. Is it a text with one row in each line?"
    )
