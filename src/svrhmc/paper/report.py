"""The report: figures, tables, and each claim of the paper with what the numbers say of it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import svrhmc
from svrhmc.paper.blocks import Block, as_html, as_markdown, heading, paragraph, table, text
from svrhmc.paper.claims import CHECK, PAPER, Claims, Results
from svrhmc.paper.figure1 import figure1
from svrhmc.paper.figure2_3 import figure2, figure3
from svrhmc.paper.settings import Settings
from svrhmc.paper.table1 import table1
from svrhmc.paper.table3 import table3

# By part, in the order of the report.
_SECTIONS = {"figure1": figure1, "figure2": figure2, "table3": table3, "figure3": figure3, "table1": table1}
REPORT = "report.md"


def write_report(
    results: Results, settings: Settings, parts: tuple[str, ...], out: Path, missing: tuple[str, ...], quick: bool
) -> Path:
    """report.md, report.html (self-contained), the figures as SVG and the numbers as CSV."""
    blocks = [paragraph(text("opening", quick=text("quick") if quick else ""))]
    blocks += [paragraph(f"**Missing:** {reason}") for reason in missing]
    sections: list[Block] = []
    claims: Claims = []
    for part, write in _SECTIONS.items():
        if part in parts:
            sections += write(results, settings, out, claims)
    for whose, title in ((PAPER, "The paper's claims"), (CHECK, "Our own checks")):
        rows = [(c.text, c.threshold, c.verdict, c.numbers) for c in claims if c.whose == whose]
        if rows:
            blocks += [heading(title), table(("claim", "what decides", "verdict", "numbers"), rows)]
    packages = ", ".join(f"{name} {_version(name)}" for name in ("numpy", "scipy", "numba", "matplotlib"))
    versions = text("closing", own=svrhmc.__version__, python=platform.python_version(), packages=packages)
    blocks += [*sections, heading("Versions, settings, runtime"), paragraph(versions)]
    (out / REPORT).write_text(as_markdown(blocks), encoding="utf-8")
    (out / "report.html").write_text(as_html(blocks), encoding="utf-8")
    (out / "runtime.txt").write_text(_runtime(results), encoding="utf-8")
    return out / REPORT


def _runtime(results: Results) -> str:
    groups: dict[str, float] = {}
    for key, result in results.items():
        groups[key.split()[0]] = groups.get(key.split()[0], 0.0) + result["seconds"]
    lines = [f"{name}: {seconds:.0f} s" for name, seconds in groups.items()]
    return "Work of all tasks, as if one after another:\n" + "\n".join(lines) + f"\nall: {sum(groups.values()):.0f} s\n"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
