"""A summary: one row for each coordinate, some columns of numbers, and sentences before and after."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import missing_package, requirement

if TYPE_CHECKING:
    import pandas

_WIDTH, _WIDEST = 100, 48  # of sentences, and of names in a printed table
_SHOWN, _ARRAYS = 60, 5  # rows that are printed (a data frame has all), and shortened arrays that are listed
_LARGE = 1000  # numbers that four digits leave no decimal
_LONG, _FOLDED = 20, 8  # an array of more entries is shortened if there are others, to so many entries


@dataclass(frozen=True, eq=False)
class Summary:
    """Numbers of each coordinate by column, with names; print it, or take `to_frame()`.

    A column is also an attribute: `summary.mean`, `summary.ess`. `summary[:10]` has the first ten rows. title: a
    sentence before the table. notes: sentences after it. folded: whether most levels of long categories are left out
    where it is printed. tenths: whether large numbers are printed with a decimal, as their differences matter, rather
    than with four digits. The effective draws and R-hat in it measure how well the draws represent the law that the
    sampler has, not how far that law is from π: no effective sample size sees a bias. R-hat needs two chains, and is
    nan for one.

    >>> import numpy as np
    >>> print(Summary(("age", "dose"), {"mean": np.array([0.5, 12.25]), "ess": np.array([990.6, 1000.0])}, "Two."))
    Two.
           mean   ess
    age     0.5   991
    dose  12.25  1000
    """

    names: tuple[str, ...]
    columns: dict[str, Array]
    title: str = ""
    notes: tuple[str, ...] = ()
    folded: bool = False
    tenths: bool = False

    def __getattr__(self, name: str) -> Array:
        try:
            return self.__dict__["columns"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(f"a summary has no {name!r}") from None

    @overload
    def __getitem__(self, key: str) -> Array: ...

    @overload
    def __getitem__(self, key: slice) -> Summary: ...

    def __getitem__(self, key: str | slice) -> Array | Summary:
        """A column by its name, or, by a slice such as [:10], some of the rows."""
        if isinstance(key, slice):
            return replace(self, names=self.names[key], columns={name: v[key] for name, v in self.columns.items()})
        if key not in self.columns:
            allowed = f"a column ({', '.join(self.columns)}), or a slice of rows such as [:10]"
            why = "str(summary) is its text, and to_frame() has rows by the names of coefficients"
            raise _NoColumnError(str(requirement("what stands in brackets behind a summary", allowed, repr(key), why)))
        return self.columns[key]

    def __str__(self) -> str:
        places, left_out = rows_to_print(self.names, _SHOWN, self.folded)
        names = [
            name if len(name) <= _WIDEST else name[: _WIDEST - 1] + "…" for name in map(self.names.__getitem__, places)
        ]
        cells = [["", *names]]
        cells += [
            [name, *(_number(name, value, self.tenths) for value in v[places])] for name, v in self.columns.items()
        ]
        wide = [max(map(len, column)) for column in cells]
        lines = [
            f"{row[0]:<{wide[0]}}" + "".join(f"{cell:>{w + 2}}" for cell, w in zip(row[1:], wide[1:], strict=True))
            for row in zip(*cells, strict=True)
        ]
        if left_out:
            lines.append(f"… and {left_out} (all of them in to_frame())")
        title, notes = ([_wrapped(text) for text in texts if text] for texts in ([self.title], self.notes))
        return "\n".join([*title, *lines, *notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        places, left_out = rows_to_print(self.names, _SHOWN, self.folded)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = "".join(
            f"<tr><th>{html.escape(self.names[j])}</th>"
            + "".join(f"<td>{html.escape(_number(c, v[j], self.tenths))}</td>" for c, v in self.columns.items())
            + "</tr>"
            for j in places
        )
        more = f"<p>… and {html.escape(left_out)}</p>" if left_out else ""
        title = f"<p>{html.escape(self.title)}</p>" if self.title else ""
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes if note)
        return f"{title}<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>{more}{notes}"

    def to_frame(self) -> pandas.DataFrame:
        """As a pandas data frame: one row for each coordinate, indexed by its name."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise missing_package("pandas", "formula", "a data frame") from None
        return pandas.DataFrame(self.columns, index=pandas.Index(self.names, name="name"))


class _NoColumnError(KeyError):
    """A summary has no such column; printed as a sentence, without the quotes of other key errors."""

    def __str__(self) -> str:
        return str(self.args[0])


def array_name(name: str) -> str:
    """The array that an entry belongs to: theta for theta[3], plan for plan[pro]; other names stay as they are."""
    array, bracket, _ = name.partition("[")
    return array if bracket and name.endswith("]") else name


def rows_to_print(names: Sequence[str], limit: int, folded: bool = False) -> tuple[list[int], str]:
    """The places of at most `limit` rows to print, and a text with how many of which are left out: the ends of long
    arrays. folded: whether an array of many entries, such as the levels of a category, is shortened if there are
    others.

    >>> rows_to_print(("a", "w[0]", "w[1]", "w[2]", "w[3]", "b"), 4)
    ([0, 1, 2, 5], '2 more of w')
    """
    places_of: dict[str, list[int]] = {}
    for j, name in enumerate(names):
        places_of.setdefault(array_name(name), []).append(j)
    entries = places_of
    if folded and len(places_of) > 1:
        entries = {name: group[:_FOLDED] if len(group) > _LONG else group for name, group in places_of.items()}
    lengths, rows_left = sorted(map(len, entries.values())), limit
    longest = 0  # entries of an array that are shown: the most for which all arrays have room
    for left, size in zip(range(len(lengths), 0, -1), lengths, strict=True):
        longest = max(1, rows_left // left)
        if size > longest:
            break
        longest, rows_left = max(longest, size), rows_left - size
    places = sorted(place for group in entries.values() for place in group[:longest])[:limit]
    hidden = [(name, len(set(group) - set(places))) for name, group in places_of.items()]
    arrays = [f"{count:,} more of {name}" for name, count in hidden if count and len(places_of[name]) > 1]
    singles = sum(count for name, count in hidden if count and len(places_of[name]) == 1)
    if len(arrays) > _ARRAYS:
        arrays, singles = [], sum(count for _, count in hidden)
    return places, ", ".join([*arrays, *([f"{singles:,} more"] if singles else [])])


def interval_ends(level: float) -> tuple[float, float]:
    """The quantile levels at which the central interval of this probability ends."""
    if not (isinstance(level, Real) and 0 < level < 1):
        percent = isinstance(level, Real) and 1 < level < 100
        raise requirement(
            "level", "a number above 0 and below 1", level, f"{level}% is {level / 100:g}" if percent else ""
        )
    return (1 - level) / 2, (1 + level) / 2


def interval_end_names(level: float) -> tuple[str, str]:
    """The names of those levels: 5% and 95% for 0.9.

    >>> interval_end_names(0.9), interval_end_names(0.95)
    (('5%', '95%'), ('2.5%', '97.5%'))
    """
    low, high = (f"{round(100 * end, 10):g}%" for end in interval_ends(level))
    return low, high


def quantile_levels(levels: npt.ArrayLike) -> tuple[float, ...]:
    """One or several numbers in [0, 1]; refuses others."""
    try:
        array = np.asarray(levels)
    except ValueError:  # lists of unequal lengths
        array = np.empty(0)
    if array.dtype.kind not in "iuf" or not array.size or not ((array >= 0) & (array <= 1)).all():
        raise requirement("levels", "numbers from 0 to 1", repr(levels))
    return tuple(array.ravel().tolist())


def _wrapped(sentence: str) -> str:
    return "\n".join(textwrap.wrap(sentence, _WIDTH, break_long_words=False, break_on_hyphens=False))


def _number(column: str, value: float, tenths: bool) -> str:
    if math.isnan(value):
        return "–"
    if tenths and _LARGE <= abs(value) < math.inf:
        return f"{value:.1f}"
    return f"{value:.0f}" if column.startswith("ess") or column == "rows" else f"{value:.4g}"
