"""Table 1 in the report: what the paper's orders come to at the data sets' constants, corrected and as printed."""

from __future__ import annotations

from pathlib import Path

from svrhmc import theory
from svrhmc.paper.blocks import Block, heading, paragraph, table, text, write_csv
from svrhmc.paper.claims import OURS, PAPER, Claim, Claims, Results, yes
from svrhmc.paper.settings import Result, Settings
from svrhmc.samplers import LABELS

_TITLE = "Table 1 at the experiments' constants"
_NOISY = ("sgld", "sg-hmc")
_CHANGED = (*_NOISY, OURS)  # rows that the paper prints without a term, or with another power


def table1(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Table 1; its claim is added to `claims`."""
    comparisons = {key.split()[1]: _both(r) for key, r in results.items() if key.startswith("table1 ")}
    if not comparisons:
        return [heading(_TITLE), paragraph("No data.")]
    methods = [row.method for row in next(iter(comparisons.values()))[0].rows]
    rows = [
        (
            name,
            str(right.problem.n),
            str(right.problem.dim),
            f"{right.problem.condition_number:.3g}",
            f"{right.accuracy:.3g}",
            *(f"{_totals(right)[m]:.2g}" for m in methods),
            LABELS[right.cheapest],
            *(f"{_totals(printed)[m]:.2g}" for m in _CHANGED),
            LABELS[printed.cheapest],
        )
        for name, (right, printed) in comparisons.items()
    ]
    last = [f"{method}_printed" for method in _CHANGED]
    head = ("data", "n", "d", "kappa", "accuracy", *methods, "cheapest", *last, "cheapest_printed")
    write_csv(out / "table1.csv", head, rows)
    cheap, printed_cheap = (
        [name for name, both in comparisons.items() if both[which].cheapest == OURS] for which in range(2)
    )
    claims.append(
        Claim(
            PAPER,
            "Table 1: SVR-HMC outperforms all existing algorithms",
            "cheapest at the constants of every data set",
            yes(len(cheap) == len(comparisons)),
            f"at the constants of {len(comparisons)} data sets it is cheapest on {len(cheap)} "
            f"({', '.join(cheap) or 'none'}); by the rows as printed on {len(printed_cheap)}",
        )
    )
    ours, theirs = ([_factor(both[which]) for both in comparisons.values()] for which in range(2))
    opening = text(
        "table1",
        accuracy=settings["table1"]["accuracy"],
        low=min(ours),
        high=max(ours),
        printed_low=min(theirs),
        printed_high=max(theirs),
    )
    shown = ("data", "n", "d", "κ", "ε", *(LABELS[m] for m in methods), "cheapest")
    asides = [f"{LABELS[m]}, printed" for m in _CHANGED]
    return [heading(_TITLE), paragraph(opening), table((*shown, *asides, "cheapest, printed"), rows)]


def _both(result: Result) -> tuple[theory.Comparison, theory.Comparison]:
    """Corrected and printed, at the constants of a data set."""
    problem, eps = theory.Problem(**result["problem"]), result["accuracy"]
    return theory.compare(problem, eps), theory.compare(problem, eps, printed=True)


def _factor(comparison: theory.Comparison) -> float:
    """The complexity of SVR-HMC over that of SG-HMC."""
    totals = _totals(comparison)
    return totals[OURS] / totals["sg-hmc"]


def _totals(comparison: theory.Comparison) -> dict[str, float]:
    return {row.method: row.total for row in comparison.rows}
