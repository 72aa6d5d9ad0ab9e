"""The report: figures, tables, and each claim of the paper with what the numbers say of it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import svrhmc
from svrhmc.paper.blocks import Block, Grid, Heading, Text, as_html, as_markdown
from svrhmc.paper.claims import CHECK, PAPER, Claims
from svrhmc.paper.figure1 import figure1
from svrhmc.paper.figures import Results
from svrhmc.paper.paths import figure2, figure3
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
    blocks: list[Block] = [Text(_opening(quick))]
    blocks += [Text(f"**Missing:** {text}") for text in missing]
    sections: list[Block] = []
    claims: Claims = []
    for part, write in _SECTIONS.items():
        if part in parts:
            sections += write(results, settings, out, claims)
    for whose, title in ((PAPER, "The paper's claims"), (CHECK, "Our own checks")):
        told = [(c.text, c.threshold, c.verdict, c.numbers) for c in claims if c.whose == whose]
        if told:
            blocks += [Heading(title), Grid((("claim", "what decides", "verdict", "numbers"), *told))]
    blocks += sections + _closing()
    (out / REPORT).write_text(as_markdown(blocks), encoding="utf-8")
    (out / "report.html").write_text(as_html(blocks), encoding="utf-8")
    (out / "runtime.txt").write_text(_runtime(results), encoding="utf-8")
    return out / REPORT


def _opening(quick: bool) -> str:
    text = (
        "The experiments of Zou, Xu & Gu, *Stochastic Variance-Reduced Hamilton Monte Carlo Methods* (ICML 2018), "
        "run again by "
        "`svrhmc reproduce`. The paper gives no step sizes, masses or scaling; every setting used here is in "
        "`src/svrhmc/paper/settings.toml`. A data pass is n component gradients really evaluated, snapshots included."
    )
    return text + (" **A quick run: few chains, seeds and settings; its verdicts mean little.**" if quick else "")


def _closing() -> list[Block]:
    packages = ("numpy", "scipy", "numba", "matplotlib")
    versions = ", ".join(f"{name} {_version(name)}" for name in packages)
    return [
        Heading("Versions, settings, runtime"),
        Text(
            f"svrhmc {svrhmc.__version__}, Python {platform.python_version()}, {versions}. All settings: "
            f"settings.toml of "
            "`svrhmc.paper`. Times of all tasks, which differ from run to run: runtime.txt."
        ),
    ]


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
