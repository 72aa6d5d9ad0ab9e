"""CSV files that are read whole: the delimiter, the names of the columns, and the line in which something is wrong.

A file is surveyed before it is read: its first lines, and then all of it once for quotes and size. It is read by
pyarrow if that is installed, else by pandas. If that fails, or finds texts among numbers, the file is read again line
by line, to say which line, column and value is wrong. (`svrhmc.data.csv` reads files in parts, by the same call of
pyarrow.)
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from types import ModuleType

import numpy as np

from svrhmc.core.cells import (
    MOST_LINE,
    binary_file_error,
    has_thousands_separators,
    is_number,
    long_line_error,
    unguard_formulas,
)
from svrhmc.core.errors import DataError, first_line, missing_package
from svrhmc.core.machine import free_memory
from svrhmc.core.storage import open_file
from svrhmc.tables.columns import Series

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None")
COPIES_OF_A_FIT = (
    4  # of all numbers that a fit holds at its height: the table, its rows, these standardised, and room to work
)
BYTES_PER_COLUMN = 1 << 14  # bytes that pyarrow takes for a column, whatever is in it
_BLOCK = 1 << 20  # bytes that pyarrow takes apart at once; a line lies in one block or in two
_SAMPLED_VALUES = 2000  # values that decide whether a column holds texts or numbers
ROW_NUMBERS = "\0rows"  # the name of a first column without one, which may count rows
DELIMITERS = {",": "','", ";": "';'", "\t": "tab", "|": "'|'"}
_HEAD_BYTES, _HEAD_LINES = 1 << 18, 200  # bytes and lines that are looked at first
_PIECE_BYTES, _BYTES_TO_GUESS = (
    1 << 20,
    1 << 26,
)  # bytes unpacked at once, and those from which on the whole size can be guessed
_FAR_TOO_LARGE = 4  # if the guess is so many times what is allowed, the rest is not read
_OTHER_FORMATS = {
    b"PAR1": "Parquet",
    b"PK\x03\x04": "a zip archive or an Excel file",
    b"\x93NUM": ".npy",
    b"\x89HDF": "HDF5",
}
_LINE_END, _QUOTE = b"\n", b'"'
_MAJORITY = 0.5  # if this share of the values are numbers, the others are mistakes


@dataclass(frozen=True)
class Reading:
    """How a text file is read.

    delimiter: None finds it. na: words for a missing value, besides the usual ones (`missing`). decimal: the sign
    before decimals. thousands: the sign between groups of three digits; "" for none. as_text: columns whose numbers are
    names of categories. single: whether a file with a single column is allowed.
    """

    delimiter: str | None = None
    encoding: str = "utf-8"
    na: tuple[str, ...] = ()
    decimal: str = "."
    as_text: tuple[str, ...] = ()
    single: bool = False
    thousands: str = ""
    missing: tuple[str, ...] = field(default=MISSING)

    def __post_init__(self) -> None:
        if len(self.decimal) != 1:
            raise DataError(f"--decimal must be one sign; got {self.decimal!r}.")
        if len(self.thousands) > 1 or self.thousands == self.decimal or self.thousands.isdigit():
            why = "the same as --decimal" if self.thousands == self.decimal else repr(self.thousands)
            raise DataError(f"--thousands must be one sign, other than the decimal one; got {why}.")

    @property
    def gaps(self) -> list[str]:
        """All words for a missing value."""
        return list(dict.fromkeys((*self.missing, *self.na)))


@dataclass(frozen=True)
class Head:
    """The first lines of a text file, and about how long a line is."""

    lines: tuple[str, ...]
    width: float

    @property
    def columns(self) -> int:
        """A bound of the number of columns, whatever the delimiter is."""
        return max(map(self.lines[0].count, DELIMITERS)) + 1


@dataclass(frozen=True)
class Layout:
    """The delimiter, the names of the columns, whether the first line holds them, and notes for the user."""

    delimiter: str
    names: tuple[str, ...]
    header: bool
    notes: tuple[str, ...] = ()


UsedColumns = Callable[[tuple[str, ...]], Collection[str]]  # of the names of all columns, those that will be used


def read_csv(path: Path, head: Head, reading: Reading, used: UsedColumns | None = None) -> tuple[Series, list[str]]:
    """Read a CSV file into a table of pyarrow or pandas. Returns the table and notes for the user.

    used: called with the names of all columns before the file is read; the values of columns that it does not return
    are not checked.
    """
    require_memory(path, float(head.columns * BYTES_PER_COLUMN))  # before a list is made of that many names
    header = find_layout(path, head, reading.delimiter, reading.single)
    named = tuple(name for name in header.names if name != ROW_NUMBERS)
    checked = set(named if used is None else used(named)) - set(reading.as_text)
    columns = len(header.names)
    grows = 1.0 + 8.0 * COPIES_OF_A_FIT * columns / max(1.0, head.width)
    surveyed = survey_text(path, reading.encoding, free_memory() / grows)
    require_memory(path, columns * BYTES_PER_COLUMN + grows * surveyed.size)
    if surveyed.odd:
        require_closed(path, header, reading.encoding)
    for name in reading.as_text:
        if name not in header.names:
            raise DataError(f"{path} has no column {name!r} to be read as text.")
    if pyarrow_or_none() is None:
        table = _read_by_pandas(path, header, reading, checked)
    else:
        table = _read_by_pyarrow(path, header, reading, checked, head.width, surveyed.newlines)
    if not len(table):
        require_rows(path, header, reading.encoding)
    table, notes = drop_empty_columns(path, table)
    return table, [*header.notes, *notes]


def arrow_table(
    source: Series,
    names: Sequence[str],
    delimiter: str,
    types: Mapping[str, Series],
    convert: Mapping[str, Series],
    newlines: bool = False,
    odd_row: Callable[[Series], str] | None = None,
    **reading: object,
) -> Series:
    """Read CSV by pyarrow. types: of some columns. convert, reading: further options of `ConvertOptions` and
    `ReadOptions`. newlines: whether there are line ends within quotes; if there are and this is not said,
    pyarrow silently drops rows. odd_row: called for a row whose number of values is not that of the names.
    """
    from pyarrow import csv

    return csv.read_csv(
        source,
        csv.ReadOptions(column_names=list(names), **reading),
        csv.ParseOptions(delimiter=delimiter, newlines_in_values=newlines, invalid_row_handler=odd_row),
        csv.ConvertOptions(column_types=dict(types), strings_can_be_null=True, **convert),
    )


def drop_empty_columns(path: Path, table: Series) -> tuple[Series, list[str]]:
    """The table without columns that have no values, and without a column that counts rows. Returns notes on the
    former.
    """
    names = getattr(table, "column_names", None)
    if names is None:
        empty = [name for name in table.columns if table[name].isna().all()] if len(table) else []
    else:
        empty = [name for name in names if str(table[name].type) == "null"] if len(table) else []
    left_out, notes = list(empty), [f"column {name!r} has no values and is left out" for name in empty]
    if ROW_NUMBERS in (table.columns if names is None else names) and ROW_NUMBERS not in empty:
        _require_counting(path, table[ROW_NUMBERS].to_numpy())
        left_out.append(ROW_NUMBERS)
    return (table.drop(columns=left_out) if names is None else table.drop_columns(left_out)), notes


def _read_by_pyarrow(
    path: Path, header: Layout, reading: Reading, checked: Collection[str], width: float, newlines: bool
) -> Series:
    """Read a file by pyarrow. checked: columns in which texts among numbers are refused."""
    import pyarrow

    types = dict.fromkeys(reading.as_text, pyarrow.string())
    try:
        table = arrow_table(
            str(path),
            header.names,
            header.delimiter,
            types,
            {"null_values": reading.gaps, "decimal_point": reading.decimal},
            newlines,
            skip_rows=int(header.header),
            encoding=reading.encoding,
            block_size=max(_BLOCK, 4 * int(width)),
        )
    except (pyarrow.ArrowException, UnicodeError, OSError) as error:
        require_even(path, header, reading.encoding)
        require_rows(path, header, reading.encoding)
        raise DataError(f"{path} cannot be read: {first_line(error)}.") from None
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if pyarrow.types.is_binary(kind):
            require_even(path, header, reading.encoding)
            raise DataError(f"{path}: column {name!r} is not text in {reading.encoding}: pass --encoding.")
    for name, column in zip(table.column_names, table.columns, strict=True):
        texts = pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)
        if texts and name not in reading.as_text:
            place, numbers = table.schema.get_field_index(name), _numbers_by_word(column.unique().to_pylist(), reading)
            if numbers is not None:
                packed = column.combine_chunks().dictionary_encode()
                values = [numbers.get(word) for word in packed.dictionary.to_pylist()]
                table = table.set_column(place, name, pyarrow.array(values, pyarrow.float64()).take(packed.indices))
                continue
            if name in checked:
                require_one_kind(path, header, name, column.slice(0, _SAMPLED_VALUES).drop_null().to_pylist(), reading)
            table = table.set_column(place, name, _without_guards(column))
    return table


def _without_guards(column: Series) -> Series:
    """A column of texts without the apostrophes that keep spreadsheets from running them (`svrhmc.core.cells`)."""
    import pyarrow
    from pyarrow import compute

    if not compute.any(compute.starts_with(column, "'")).as_py():
        return column
    packed = column.combine_chunks().dictionary_encode()
    return pyarrow.array(unguard_formulas(packed.dictionary.to_pylist()), column.type).take(packed.indices)


def _read_by_pandas(path: Path, header: Layout, reading: Reading, checked: Collection[str]) -> Series:
    """Read a file by pandas. checked: columns in which texts among numbers are refused."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise missing_package("pandas or pyarrow", "formula", "a table in a file") from None
    try:
        table = pandas.read_csv(
            path,
            sep=header.delimiter,
            names=list(header.names),
            skiprows=int(header.header),
            index_col=False,
            encoding=reading.encoding,
            na_values=reading.gaps,
            keep_default_na=False,
            decimal=reading.decimal,
            dtype=dict.fromkeys(reading.as_text, str),
            low_memory=False,
        )
    except (ValueError, UnicodeError, OverflowError) as error:
        require_even(path, header, reading.encoding)
        raise DataError(f"{path} cannot be read: {first_line(error)}.") from None
    if table[header.names[-1]].isna().any():  # pandas fills short lines up
        require_even(path, header, reading.encoding)
    for name, column in table.items():
        texts = not pandas.api.types.is_numeric_dtype(column) and not column.isna().all()
        if texts and name not in reading.as_text and name != ROW_NUMBERS:
            numbers = _numbers_by_word([str(word) for word in column.dropna().unique()], reading)
            if numbers is not None:
                table[name] = column.map(lambda word, numbers=numbers: numbers.get(str(word), np.nan)).astype(float)
                continue
            if name in checked:
                require_one_kind(
                    path, header, name, column.iloc[:_SAMPLED_VALUES].dropna().astype(str).tolist(), reading
                )
            words = [word for word in column.dropna().unique() if isinstance(word, str)]
            table[name] = column.replace(dict(zip(words, unguard_formulas(words), strict=True)))
    return table


def _require_counting(path: Path, values: Series) -> None:
    """Refuse a first column without a name unless it counts rows, as spreadsheets and pandas write it."""
    if values.dtype.kind not in "iu" or not (np.diff(values) == 1).all():
        raise DataError(f"{path}: the first column has no name. Give it one in the first line.")


def require_memory(path: Path, needed: float, available: float | None = None) -> None:
    """Refuse a fit that takes more bytes of memory than are free."""
    available = free_memory() if available is None else available
    if needed > available:
        raise DataError(
            f"{path} would take about {needed / 1e9:.3g} GB of memory to fit, and {available / 1e9:.3g} GB are free: "
            "take a part of its rows or columns, or a larger machine."
        )


def pyarrow_or_none() -> ModuleType | None:
    """The package pyarrow, or None if it is not installed."""
    try:
        return import_module("pyarrow")
    except ModuleNotFoundError:
        return None


def read_head(path: Path, encoding: str) -> Head:
    """The first lines of a text file. Refuses files that are no text."""
    with _open_bytes(path) as file:
        begin = file.read(_HEAD_BYTES)
        whole = len(begin) < _HEAD_BYTES
        if not whole and _LINE_END not in begin:
            begin += file.read(MOST_LINE - _HEAD_BYTES)
            whole = len(begin) < MOST_LINE
            if not whole and _LINE_END not in begin:
                raise long_line_error(path, 1)
    if not begin.strip():
        raise DataError(f"{path} is empty.")
    for mark, what in _OTHER_FORMATS.items():
        if begin.startswith(mark):
            raise DataError(f"{path} is no text: it looks like {what}. Name it so, or save it as CSV.")
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")) and encoding.lower().replace("-", "") == "utf8":
        raise DataError(f"{path} is a text in UTF-16: say --encoding utf-16, or save it as UTF-8.")
    if b"\0" in begin and not _is_wide(encoding):
        raise binary_file_error(path)
    with io.TextIOWrapper(
        io.BytesIO(begin), encoding=_codec_name(encoding, path), newline="", errors="replace"
    ) as text:
        lines_read = text.read().splitlines()
    lines_ = tuple(lines_read if whole else lines_read[:-1] or lines_read)[:_HEAD_LINES]
    return Head(lines_, sum(map(len, lines_)) / len(lines_) + 1)


@dataclass(frozen=True)
class Survey:
    """What is known of a whole text: its size in bytes, whether there are line ends within quotes, and whether the
    number of quotation marks is odd.
    """

    size: float
    newlines: bool = False
    odd: bool = False


def survey_text(path: Path, encoding: str, most: float) -> Survey:
    """Survey a text, reading it once, piece by piece. A compressed one is read only until it is known to have more than
    `most` bytes: because so many were read, or because the compression of its first 64 MiB says that there are four
    times as many.
    """
    packed, stored = path.suffix.lower() == ".gz", path.stat().st_size
    if not packed and stored > most:
        return Survey(float(stored))
    wide = _is_wide(encoding)  # then bytes are no letters
    total, quotes, newlines, guess = 0, 0, wide, 0.0
    with _open_bytes(path) as file:
        while piece := file.read(_PIECE_BYTES):
            total += len(piece)
            if not wide and (quotes % 2 or _QUOTE in piece):
                letters = np.frombuffer(piece, np.uint8)
                places, ends = np.flatnonzero(letters == _QUOTE[0]), np.flatnonzero(letters == _LINE_END[0])
                newlines = newlines or bool(((quotes + np.searchsorted(places, ends)) % 2).any())
                quotes += len(places)
            if packed and total >= _BYTES_TO_GUESS and not guess:
                guess = stored * total / max(1, file.fileobj.tell())
            if total > most or guess > _FAR_TOO_LARGE * most:
                return Survey(max(float(total), guess))
    return Survey(float(total), newlines, quotes % 2 == 1)


def find_layout(path: Path, head: Head, delimiter: str | None, single: bool = False) -> Layout:
    """The delimiter of a file and the names of its columns. Refuses a name that occurs twice, and a single column
    unless that is allowed and no other delimiter gives more.
    """
    best = _likely_delimiter(head.lines)
    single = single and best is None
    sign = _delimiter_sign(delimiter) if delimiter is not None else "," if single else best
    if sign is None:
        raise DataError(
            f"{path} has one column only: no comma, semicolon, tab or '|' parts its lines. Say --delimiter where it is "
            "another sign."
        )
    first = _split_line(head.lines[0], sign)
    if len(first) < 2 and not single:
        hint = f" it looks like --delimiter {DELIMITERS[best]}." if best else ""
        raise DataError(f"{path} has one column only, parted by {DELIMITERS.get(sign, repr(sign))}:{hint}")
    names = unguard_formulas([name.strip().lstrip("\ufeff") for name in first])
    if all(map(is_number, names)):
        numbered = tuple(f"column{k + 1}" for k in range(len(names)))
        note = f"the first line holds numbers: columns are named column1 to {numbered[-1]}"
        return Layout(sign, numbered, False, (note,))
    notes: tuple[str, ...] = ()
    if not names[0] and all(names[1:]):
        names[0], notes = ROW_NUMBERS, ("the first column has no name, counts rows, and is left out",)
    require_names(path, names)
    return Layout(sign, tuple(names), True, notes)


def require_names(path: Path, names: list[str]) -> None:
    """Refuse columns without a name, and two columns of one name."""
    places: dict[str, int] = {}
    for k, name in enumerate(names):
        if not name:
            raise DataError(f"{path}: column {k + 1} has no name. Give it one in the first line.")
        first = places.setdefault(name, k)
        if first < k:
            raise DataError(f"{path}: columns {first + 1} and {k + 1} are both named {name!r}. Rename one of them.")


def require_even(path: Path, header: Layout, encoding: str) -> None:
    """Refuse a file in which some line is no text, or has other than as many values as there are names."""
    for number, words in _numbered_rows(path, header, encoding):
        if words and len(words) != len(header.names):
            raise DataError(
                f"{path}, line {number}: {len(words)} columns where there are {len(header.names)} names. Correct "
                f"that line: a text with {DELIMITERS.get(header.delimiter, repr(header.delimiter))} in it needs quotes."
            )


def require_closed(path: Path, header: Layout, encoding: str) -> None:
    """Refuse a text that ends within quotes: all that follows the mark would be one value."""
    last = 1
    reader = csv.reader(decoded_lines(path, encoding), delimiter=header.delimiter, strict=True)
    try:
        for _ in reader:
            last = reader.line_num + 1
    except csv.Error:
        raise DataError(
            f"{path}, line {last}: a quotation mark opens there and is not closed as it should be. Close it, or write "
            "a quotation mark that is part of a text twice, within quotes."
        ) from None


def require_rows(path: Path, header: Layout, encoding: str) -> None:
    """Refuse a text that has names of columns and no rows."""
    if not any(words for number, words in _numbered_rows(path, header, encoding) if number > 1 or not header.header):
        raise DataError(f"{path} has a line of names and no rows.")


def require_one_kind(path: Path, header: Layout, name: str, sample: list[str], reading: Reading) -> None:
    """Refuse a column of numbers with a text in it, with the line of the text and what to do. sample: values of the
    column.
    """
    if not sample:
        return
    usual = "," if reading.decimal == "." else "."
    odd = [word for word in sample if not is_number(word.replace(reading.decimal, "."))]
    if odd and all(has_thousands_separators(word, usual, reading.decimal) for word in odd):
        both = f", or --decimal '{usual}' if it stands before decimals" if reading.decimal == "." else ""
        raise DataError(
            f"{path}: column {name!r} has numbers such as {odd[0]!r}: say --thousands '{usual}' if that sign parts "
            f"thousands{both}; --text {name!r} if the whole column holds names of categories."
        )
    points = [word for word in odd if has_thousands_separators(word, ".", ",")] if reading.decimal == "." else []
    if points and all(has_thousands_separators(word, ".", ",") or _has_decimal_comma(word) for word in odd):
        raise DataError(
            f"{path}: column {name!r} has numbers such as {points[0]!r}: say --thousands '.' --decimal ','."
        )
    if reading.decimal == "." and sum(_has_decimal_comma(word) for word in sample) >= _MAJORITY * len(sample):
        example = next(word for word in sample if _has_decimal_comma(word))
        raise DataError(
            f"{path}: column {name!r} has numbers with a decimal comma, such as {example!r}: say --decimal ','."
        )
    if sum(map(is_number, sample)) < _MAJORITY * len(sample):
        return
    place, gaps = header.names.index(name), set(reading.gaps)
    for number, words in _numbered_rows(path, header, reading.encoding):
        if number == 1 and header.header:
            continue
        word = words[place].strip() if len(words) > place else ""
        if word not in gaps and not is_number(word.replace(reading.decimal, ".")):
            raise DataError(
                f"{path}, line {number}: column {name!r} holds numbers, but here it is {word[:40]!r}. Correct it; or "
                f"pass --na {word[:40]!r} if that stands for a missing value, or --text {name!r} if the whole column "
                "holds names of categories."
            )


def decoded_lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines of a text file. A line that is no text in this encoding is refused with its number."""
    codec = _codec_name(encoding, path)
    if _is_wide(codec):
        with _open_bytes(path) as file:
            text = io.TextIOWrapper(file, encoding=codec, newline="")
            yield from _bounded_lines(path, lambda: text.readline(MOST_LINE))
        return
    with _open_bytes(path) as file:
        for number, line in enumerate(_bounded_lines(path, lambda: file.readline(MOST_LINE)), start=1):
            try:
                yield line.decode(codec if number == 1 else encoding)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}, line {number}: byte {error.start + 1} of it ({line[error.start]:#04x}) is not text in "
                    f"{encoding}. Save the file as UTF-8, or pass its encoding, such as --encoding latin-1."
                ) from None


def _numbered_rows(path: Path, header: Layout, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """The values of each row, with the number of its first line."""
    reader = csv.reader(decoded_lines(path, encoding), delimiter=header.delimiter)
    begin = 1
    try:
        for words in reader:
            yield begin, words
            begin = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}.") from None


def _likely_delimiter(head: tuple[str, ...]) -> str | None:
    """The delimiter that divides the first line and most others into the same number of columns, if there is one."""
    scores = {}
    for sign in DELIMITERS:
        counts = Counter(len(_split_line(line, sign)) for line in head[1:] if line.strip())
        first = len(_split_line(head[0], sign))
        alike = counts[first] / counts.total() if counts else 1.0
        if first > 1:
            scores[sign] = (alike > _MAJORITY, first, alike)
    return max(scores, key=lambda sign: scores[sign]) if scores else None


def _delimiter_sign(given: str) -> str:
    sign = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}.get(given, given)
    if len(sign) != 1:
        raise DataError(f"--delimiter must be one sign, or tab; got {given!r}.")
    return sign


def _split_line(line: str, sign: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=sign), [])
    except csv.Error:
        return []


def _numbers_by_word(words: Sequence[str | None], reading: Reading) -> dict[str, float] | None:
    """The number that each word of a column stands for, if a sign between thousands was given and all are numbers; else
    None.
    """
    if not reading.thousands:
        return None
    numbers = {}
    for word in words:
        if word is None:
            continue
        if has_thousands_separators(word, reading.thousands, reading.decimal):
            plain = word.replace(reading.thousands, "").replace(reading.decimal, ".")
        else:
            plain = word.replace(reading.decimal, ".")
            if not is_number(plain):
                return None
        numbers[word] = float(plain)
    return numbers


def _has_decimal_comma(word: str) -> bool:
    return word.count(",") == 1 and is_number(word.replace(",", "."))


def _codec_name(encoding: str, path: Path) -> str:
    """The name of the codec of an encoding; UTF-8 may begin with a byte order mark. Unknown encodings are refused."""
    import codecs

    try:
        codec = codecs.lookup(encoding).name
    except LookupError:
        raise DataError(f"--encoding must be the name of one, such as utf-8 or latin-1; got {encoding!r}.") from None
    return "utf-8-sig" if codec == "utf-8" else codec


def _is_wide(encoding: str) -> bool:
    """Whether every letter takes several bytes."""
    return encoding.lower().startswith(("utf-16", "utf16", "utf-32", "utf32", "utf_16", "utf_32"))


def _bounded_lines(path: Path, read: Callable[[], Series]) -> Iterator[Series]:
    """The lines that `read` returns. A line longer than any line of a table is refused."""
    for number in count(1):
        line = read()
        if len(line) == MOST_LINE:
            raise long_line_error(path, number)
        if not line:
            return
        yield line


@contextmanager
def _open_bytes(path: Path) -> Iterator[Series]:
    """The file of a text, decompressed if it is compressed. Errors of that are put into words."""
    with open_file(path, kind=DataError) as plain:
        if path.suffix.lower() != ".gz":
            yield plain
            return
        try:
            with gzip.GzipFile(fileobj=plain) as unpacked:
                yield unpacked
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{path} cannot be unpacked: {error}.") from None
