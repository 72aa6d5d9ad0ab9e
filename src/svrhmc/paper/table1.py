"""Table 1 in the report: what the paper's orders come to at the constants of the data sets."""

from __future__ import annotations

from pathlib import Path

from svrhmc.paper.blocks import Block, Grid, Heading, Text, write_csv
from svrhmc.paper.claims import OURS, PAPER, Claim, Claims, yes
from svrhmc.paper.figures import Results
from svrhmc.paper.settings import Settings
from svrhmc.samplers import LABELS

_TITLE = "Table 1 at the experiments' constants"


def table1(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Table 1; its claim is added to `claims`."""
    found = {key.split()[1]: result for key, result in results.items() if key.startswith("table1 ")}
    if not found:
        return [Heading(_TITLE), Text("No data.")]
    methods = list(next(iter(found.values()))["totals"])
    head = ("data", "n", "d", "κ", "ε", *(LABELS[m] for m in methods), "cheapest")
    rows = [
        (
            name,
            str(r["n"]),
            str(r["dim"]),
            f"{r['condition_number']:.3g}",
            f"{r['accuracy']:.3g}",
            *(f"{r['totals'][m]:.2g}" for m in methods),
            LABELS[r["cheapest"]],
        )
        for name, r in found.items()
    ]  # fmt: skip
    write_csv(out / "table1.csv", ("data", "n", "d", "kappa", "accuracy", *methods, "cheapest"), rows)
    cheap = [name for name, r in found.items() if r["cheapest"] == OURS]
    claims.append(
        Claim(
            PAPER,
            "Table 1: SVR-HMC outperforms all existing algorithms",
            "cheapest at the constants of every data set",
            yes(len(cheap) == len(found)),
            f"at the constants of {len(found)} data sets it is cheapest on {len(cheap)} ({', '.join(cheap) or 'none'})",
        )
    )
    text = (
        "Leading terms of `theory.compare`, with the global constants of each posterior on its first split, chains "
        "from 0, and "
        f"ε = {settings['table1']['accuracy']:g}√(d/μ). For logistic regression μ is the prior's precision, which "
        f"makes κ far larger than it is near the mode."
    )
    return [Heading(_TITLE), Text(text), Grid((head, *rows))]
