"""What a report is made of: blocks, each in Markdown and in HTML, and the files they are written into."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from svrhmc.core.cells import csv_text
from svrhmc.core.storage import write_text

_TEXTS: dict[str, str] = tomllib.loads(files("svrhmc.paper").joinpath("texts.toml").read_text(encoding="utf-8"))
_TITLE = "The paper, reproduced"
_CSS = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;font-size:14px;display:block;overflow-x:auto}"
    "td,th{border-bottom:1px solid #ddd;padding:.25rem .6rem;text-align:left;"
    "vertical-align:top}img{max-width:100%}"
)


@dataclass(frozen=True)
class Block:
    """A piece of the report in each form; in Markdown without the empty line after it."""

    markdown: str
    html: str


def heading(text: str) -> Block:
    """A heading of the second level."""
    return Block(f"## {text}", f"<h2>{escape(text)}</h2>")


def paragraph(text: str) -> Block:
    """In the little Markdown that `inline` knows."""
    return Block(text, f"<p>{inline(text)}</p>")


def text(name: str, **values: object) -> str:
    """A paragraph of texts.toml, with its numbers."""
    return _TEXTS[name].format(**values)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Block:
    """Cells are plain text."""
    names, cells = list(head), [list(row) for row in rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (names, *cells)]
    parts = ["<table><tr>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "</tr>"]
    parts += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells]
    markdown = "\n".join([lines[0], "|" + "---|" * len(names), *lines[1:]])
    return Block(markdown, "\n".join([*parts, "</table>"]))


def picture(path: Path, text: str) -> Block:
    """A figure: a link to the file beside the report, or within the HTML the file itself."""
    data = base64.b64encode(path.read_bytes()).decode()
    return Block(f"![{text}]({path.name})", f'<img alt="{escape(text)}" src="data:image/svg+xml;base64,{data}">')


def as_markdown(blocks: Iterable[Block]) -> str:
    """The blocks under the report's title, as Markdown."""
    return "\n\n".join([f"# {_TITLE}", *(block.markdown for block in blocks)]) + "\n"


def as_html(blocks: Iterable[Block]) -> str:
    """The blocks under the report's title, as one page that needs no other file."""
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>{_TITLE}</title><style>{_CSS}</style>"
    return "\n".join([head, f"<h1>{_TITLE}</h1>", *(block.html for block in blocks)]) + "</html>\n"


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


def write_csv(path: Path, head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A table of numbers beside the report, with six digits."""
    write_text(path, csv_text(head, rows))
