"""What a report is made of: blocks that say how they are written, and the files they are written into."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from svrhmc.core.cells import csv_text
from svrhmc.core.storage import write_text

_TITLE = "The paper, reproduced"
_CSS = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;font-size:14px;display:block;overflow-x:auto}"
    "td,th{border-bottom:1px solid #ddd;padding:.25rem .6rem;text-align:left;"
    "vertical-align:top}img{max-width:100%}"
)


class Block(ABC):
    """A piece of the report, which says itself how it is written in each form."""

    @abstractmethod
    def markdown(self) -> list[str]:
        """Its lines of Markdown, without the empty one after it."""

    @abstractmethod
    def html(self) -> list[str]:
        """Its lines of HTML."""


@dataclass(frozen=True)
class Heading(Block):
    """A heading of the second level."""

    text: str

    def markdown(self) -> list[str]:
        """One line, with two marks before it."""
        return [f"## {self.text}"]

    def html(self) -> list[str]:
        """One element."""
        return [f"<h2>{escape(self.text)}</h2>"]


@dataclass(frozen=True)
class Text(Block):
    """A paragraph, in the little Markdown that `inline` knows."""

    text: str

    def markdown(self) -> list[str]:
        """The text as it is."""
        return [self.text]

    def html(self) -> list[str]:
        """One element."""
        return [f"<p>{inline(self.text)}</p>"]


@dataclass(frozen=True)
class Grid(Block):
    """A table; its first row is the head."""

    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> list[str]:
        """A line for each row, and one below the head."""
        head, *rows = ([cell.replace("|", "\\|") for cell in row] for row in self.rows)
        lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        return lines + ["| " + " | ".join(row) + " |" for row in rows]

    def html(self) -> list[str]:
        """A line for each row; cells are plain text."""
        head, *rows = ([escape(cell) for cell in row] for row in self.rows)
        parts = ["<table><tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>"]
        parts += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
        return [*parts, "</table>"]


@dataclass(frozen=True)
class Picture(Block):
    """A figure beside the report."""

    path: Path
    text: str

    def markdown(self) -> list[str]:
        """A link to the file beside the report."""
        return [f"![{self.text}]({self.path.name})"]

    def html(self) -> list[str]:
        """The file itself, within the page."""
        data = base64.b64encode(self.path.read_bytes()).decode()
        return [f'<img alt="{escape(self.text)}" src="data:image/svg+xml;base64,{data}">']


def as_markdown(blocks: Iterable[Block]) -> str:
    """The blocks under the report's title, as Markdown."""
    lines = [f"# {_TITLE}", ""]
    for block in blocks:
        lines += [*block.markdown(), ""]
    return "\n".join(lines)


def as_html(blocks: Iterable[Block]) -> str:
    """The blocks under the report's title, as one page that needs no other file."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{_TITLE}</title><style>{_CSS}</style>",
        f"<h1>{_TITLE}</h1>",
    ]
    for block in blocks:
        parts += block.html()
    return "\n".join(parts) + "</html>\n"


def inline(text: str) -> str:
    """The little Markdown that paragraphs use: bold, emphasis and code.

    >>> inline("a **b** <c>")
    'a <strong>b</strong> &lt;c&gt;'
    """
    escaped = escape(text)
    for mark, tag in (("**", "strong"), ("*", "em"), ("`", "code")):
        pieces = escaped.split(mark)
        escaped = "".join(
            piece + ("" if k == len(pieces) - 1 else f"<{'/' if k % 2 else ''}{tag}>") for k, piece in enumerate(pieces)
        )
    return escaped


def write_csv(path: Path, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """A table of numbers beside the report, with six digits."""
    write_text(path, csv_text(head, rows))
