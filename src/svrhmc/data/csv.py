"""CSV: a partition is a range of bytes of a file, cut at the ends of lines.

Every file has the same header line. What a column is, numbers or texts, is asked of all partitions before the first
pass, so that it does not depend on how files are cut: numbers where every value is one, texts where none is.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from svrhmc.core.cells import MOST_LINE, binary_file_error, long_line_error
from svrhmc.core.errors import DataError, missing_package, requirement, whole_number
from svrhmc.rows.workers import ClientLike, pass_over, workers_of
from svrhmc.tables.columns import Level, Series
from svrhmc.tables.csv import arrow_table, pyarrow_or_none
from svrhmc.tables.learning import MOST_LEVELS, levels_of_all
from svrhmc.tables.partitions import TableInPartitions, chosen_columns, open_partitions
from svrhmc.tables.sources import LONGEST, Batch, Source, file_stamps, list_files, require_short

_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_TYPES = {"int64": "int64", "float64": "double", "text": "string"}
_QUOTE, _LINE = b'"', b"\n"
_MOST_COLUMNS = 1 << 17


def from_csv(
    path: str | os.PathLike[str] | list[str | os.PathLike[str]],
    target: str | None = None,
    features: Sequence[str] | None = None,
    client: ClientLike = None,
    *,
    offset: str | None = None,
    weights: str | None = None,
    intercept: bool = False,
    delimiter: str = ",",
    partition_bytes: int = 1 << 26,
) -> TableInPartitions:
    """Rows of CSV files, in parts of about `partition_bytes`; every file begins with the same header line.

    A column is one of numbers where every value in all files is a number, and one of categories where none is; both
    together are refused. Values with line breaks in them are refused, as such files cannot be read in parts.
    path, target, features, client, offset, weights, intercept: as for `from_parquet`.

    >>> import tempfile, os
    >>> file = os.path.join(tempfile.mkdtemp(), "rows.csv")
    >>> with open(file, "w") as out:
    ...     _ = out.write("x,y\\n1.0,1\\n2.0,1\\n-1.0,0\\n0.5,0\\n")
    >>> from_csv(file, target="y")
    Partitions(4 rows, 1 columns, 1 partitions)
    """
    workers, files = workers_of(client), list_files(path, (".csv",))
    if len(str(delimiter)) != 1:
        raise requirement("delimiter", "one character", repr(delimiter))
    ranges, header = ranges_of(files, whole_number("partition_bytes", partition_bytes, 1), delimiter)
    source = CsvSource(ranges, header, delimiter, dict.fromkeys(header, "text"))
    names = list(header)
    if target is not None:
        chosen = chosen_columns(source, target, features, offset, weights, intercept)
        names = [name for name in (target, *chosen, offset, weights) if name is not None]
    if not ranges:
        raise DataError(f"{path} has no rows.")
    tasks = [(k, names, target is not None) for k in range(len(ranges))]
    surveys = list(pass_over(workers, source, survey_range, tasks, "columns"))
    source = source.with_surveys(surveys, names, file_stamps(files), target is not None)
    return open_partitions(source, workers, target, features, offset, weights, intercept, str(path))


class Range(NamedTuple):
    """Some lines of a file, by its bytes."""

    path: str
    begin: int
    end: int


class CsvSource(Source):
    """Ranges of lines of files with one header, and one type for each column."""

    def __init__(
        self,
        ranges: list[Range],
        header: tuple[str, ...],
        delimiter: str,
        kinds: Mapping[str, str],
        sizes: Sequence[int] = (),
        firsts: Sequence[int] = (),
        levels: Mapping[str, Sequence[Level] | None] | None = None,
        stamps: Sequence[str] = (),
    ) -> None:
        """sizes, firsts: the rows of each range, and the number of the first of them in its file. stamps: of the
        files (`file_stamps`).
        """
        self.ranges, self.header, self.delimiter, self.kinds = ranges, header, delimiter, kinds
        self.sizes, self.firsts = np.array(sizes, np.int64), np.array(firsts, np.int64)
        self.levels, self.stamps = levels or {}, stamps

    def with_surveys(
        self, surveys: list[CsvSurvey], names: list[str], stamps: Sequence[str], all_used: bool
    ) -> CsvSource:
        """With what is in each range. all_used: whether every column must be of one kind."""
        before: dict[str, int] = defaultdict(int)
        firsts = []
        for survey in surveys:
            firsts.append(before[survey.path])
            before[survey.path] += survey.rows
        kinds, levels = agree_on_kinds(surveys, firsts, names, all_used)
        sizes = [survey.rows for survey in surveys]
        return CsvSource(self.ranges, self.header, self.delimiter, kinds, sizes, firsts, levels, stamps)

    def single_partition(self, number: int) -> CsvSource:
        some = slice(number, number + 1)
        sizes, firsts = self.sizes[some].tolist(), self.firsts[some].tolist()
        return CsvSource(self.ranges[some], self.header, self.delimiter, self.kinds, sizes, firsts)

    def partition_name(self, number: int) -> str:
        """The file; rows are counted from its header on."""
        return self.ranges[number].path

    def identity(self) -> list[str]:
        """Paths, sizes and times of files."""
        return list(self.stamps)

    def batches(self, number: int, names: Sequence[str], rows: int) -> Iterator[Batch]:
        """Of a range, which is read wholly."""
        if not self.sizes[number]:
            return
        table = self.table(number, list(names), {name: self.kinds[name] for name in names})
        if table.num_rows != self.sizes[number]:
            raise DataError(f"{self.partition_name(number)} has other rows than when it was opened.")
        first = int(self.firsts[number])
        for batch in table.to_batches(rows):
            yield first, dict(zip(batch.schema.names, batch.columns, strict=True))
            first += batch.num_rows

    def table(self, number: int, columns: list[str], types: dict[str, str]) -> Series:
        """Some columns of a range, as pyarrow has them; types that are not given are found."""
        pyarrow = _pyarrow()
        path, begin, end = self.ranges[number]
        with open(path, "rb") as file:
            file.seek(begin)
            text = file.read(end - begin)
        if len(text) < end - begin:
            raise DataError(f"{path} is shorter than it was.")
        if b"\0" in text:
            raise binary_file_error(Path(path))
        if _QUOTE in text:
            self._require_whole_lines(number, text)
        bad: list[Series] = []

        def ragged(row: Series) -> str:
            bad.append(row)
            return "skip"

        try:
            table = arrow_table(
                BytesIO(text),
                self.header,
                self.delimiter,
                {name: pyarrow.type_for_alias(_TYPES[kind]) for name, kind in types.items()},
                {"include_columns": columns, "true_values": [], "false_values": []},
                odd_row=ragged,
                block_size=max(1 << 20, 2 * len(text)),
                use_threads=False,
            )
        except pyarrow.ArrowException as error:
            raise DataError(
                f"{path}, lines from {self._first_line_number(number)} on: {str(error).splitlines()[0][:300]}"
            ) from None
        if bad:
            row = bad[0]
            line = self._first_line_number(number) + (row.number or 1) - 1
            raise DataError(
                f"{path}, line {line}: {row.actual_columns} values, where the header has {len(self.header)} names."
            )
        return table

    def _require_whole_lines(self, number: int, text: bytes) -> None:
        for k, line in enumerate(text.split(_LINE)):
            if line.count(_QUOTE) % 2:
                raise DataError(
                    f"{self.ranges[number].path}, line {self._first_line_number(number) + k}: a quotation mark is open "
                    "at its end. Values with line breaks in them cannot be read in parts: leave that column out of the "
                    "file, or write the table as Parquet."
                )

    def _first_line_number(self, number: int) -> int:
        """The number of the first line of a range in its file, counted from 1."""
        path, begin, _ = self.ranges[number]
        count, left = 1, begin
        with open(path, "rb") as file:
            while left > 0 and (some := file.read(min(left, 1 << 20))):
                count, left = count + some.count(_LINE), left - len(some)
        return count


class CsvSurvey(NamedTuple):
    """What is in a range: its rows, and the kind and the texts of each column; None for texts that are too many."""

    rows: int
    kinds: dict[str, str]
    texts: dict[str, Series]
    odd: dict[str, tuple[int, str]]  # a row and its text, where a column has texts
    path: str


def survey_range(source: CsvSource, number: int, columns: list[str], all_used: bool) -> CsvSurvey:
    """Of one range. all_used: whether texts that are too long for a name are refused."""
    _pyarrow()
    import pyarrow.compute as pc

    table, path = source.table(number, columns, {}), source.partition_name(number)
    kinds: dict[str, str] = {}
    words: dict[str, Series] = {}
    odd: dict[str, tuple[int, str]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = str(column.type)
        kinds[name] = {"int64": "int64", "double": "float64", "string": "text", "null": "null"}.get(kind, "other")
        if kinds[name] == "text":
            longest = int(pc.max(pc.binary_length(column)).as_py())
            if longest > LONGEST and not all_used:
                kinds[name] = "other"
                continue
            require_short(longest, name, path)
            kinds[name], words[name], odd[name] = _survey_texts(column)
    return CsvSurvey(table.num_rows, kinds, words, odd, path)


def _survey_texts(column: Series) -> tuple[str, Series, tuple[int, str]]:
    """Whether all values are texts, or some are numbers; which there are; and the first that is no number."""
    import pyarrow.compute as pc

    values = column.drop_null().unique()
    number = pc.match_substring_regex(values, _NUMBER)
    first = pc.filter(values, pc.invert(number))[0].as_py()
    row = int(pc.index(column, first).as_py())
    texts = None if len(values) > MOST_LEVELS else values.to_pylist()
    return "mixed" if pc.any(number).as_py() else "text", texts, (row, first)


def agree_on_kinds(
    surveys: list[CsvSurvey], firsts: list[int], columns: list[str], all_used: bool
) -> tuple[dict[str, str], dict[str, Series]]:
    """One kind for each column, and the levels of those of texts; None where they are too many. firsts: the number of
    the first row of each range in its file.
    """
    kinds: dict[str, str] = {}
    levels: dict[str, Series] = {}
    for name in columns:
        here = {survey.kinds[name] for survey in surveys if survey.rows} - {"null"}
        if all_used and ("mixed" in here or ("text" in here and len(here) > 1)):
            odd, first = next(pair for pair in zip(surveys, firsts, strict=True) if name in pair[0].odd)
            row, text = odd.odd[name]
            raise DataError(
                f"{odd.path}, row {first + row}, column {name!r}: {text!r} is no number, and there "
                "are numbers elsewhere. Put it right, or write numbers that are categories as texts, such as 'c1'."
            )
        if here <= {"int64", "float64"}:
            kinds[name] = "int64" if here == {"int64"} else "float64"
            continue
        kinds[name] = "text" if here == {"text"} else "other"
        if kinds[name] == "other":
            continue
        levels[name] = levels_of_all(survey.texts[name] for survey in surveys if name in survey.texts)
    return kinds, levels


def ranges_of(files: list[str], size: int, delimiter: str) -> tuple[list[Range], tuple[str, ...]]:
    """Ranges of about so many bytes, and the header of all files."""
    ranges: list[Range] = []
    header: tuple[str, ...] = ()
    for path in files:
        with open(path, "rb") as file:
            line = file.readline(MOST_LINE)
            if line.startswith(b"\x1f\x8b"):
                raise DataError(f"{path} is compressed, and cannot be read in parts: unpack it first.")
            _require_header(line, path, delimiter)
            names = _header_names(line, path, delimiter)
            header = header or names
            if names != header:
                raise DataError(
                    f"{path} has the header {','.join(names)}, and {files[0]} has {','.join(header)}. All files must "
                    "have the same columns in the same order."
                )
            begin, last = file.tell(), os.fstat(file.fileno()).st_size
            while begin < last:
                file.seek(min(begin + size, last) - 1)
                if len(rest := file.readline(MOST_LINE)) == MOST_LINE and not rest.endswith(_LINE):
                    raise DataError(
                        f"{path}: the line with byte {file.tell():,} does not end within {len(rest) >> 20} MiB, and a "
                        "line of a table is shorter. Is it a text with a row in each line?"
                    )
                ranges.append(Range(path, begin, file.tell()))
                begin = file.tell()
    return ranges, header


def _require_header(line: bytes, path: str, delimiter: str) -> None:
    """Refuse what is no line of names, or has more of them than a model has coefficients."""
    if b"\0" in line:
        raise binary_file_error(Path(path))
    if len(line) == MOST_LINE:
        raise long_line_error(Path(path), 1)
    if (columns := line.count(delimiter.encode()) + 1) > _MOST_COLUMNS:
        raise DataError(f"{path} has {columns:,} columns, and at most {_MOST_COLUMNS:,} are read in parts.")


def _header_names(line: bytes, path: str, delimiter: str) -> tuple[str, ...]:
    import csv

    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise DataError(f"{path} is no text in UTF-8.") from None
    try:
        names = tuple(next(csv.reader([text], delimiter=delimiter), []))
    except csv.Error as error:
        raise DataError(f"{path}, line 1: {error}.") from None
    if not names:
        raise DataError(f"{path} has no header line with the names of its columns.")
    if len(set(names)) != len(names):
        raise DataError(f"{path} has two columns of the same name in its header: {','.join(names)}.")
    return names


def _pyarrow() -> ModuleType:
    if (pyarrow := pyarrow_or_none()) is None:
        raise missing_package("pyarrow", "parquet", "reading CSV in parts")
    return pyarrow
