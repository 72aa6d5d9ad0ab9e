"""Figures 2 and 3, Table 3: Bayesian regression on the data sets, each sampler tuned by one rule (see `tuning`).

What the choice of settings itself varies is in the reported spread: each split has its own, and where one split serves
all seeds (a3a, gisette) the tuning is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc import theory
from svrhmc.checkpoint import Journal
from svrhmc.dynamics import BAOAB
from svrhmc.gradients import Full
from svrhmc.paper.data import Table, load
from svrhmc.paper.pieces import Pieces, pieces_of
from svrhmc.paper.settings import Settings
from svrhmc.paper.splits import Split, classification_split, error_of, loss_of, regression_split, target_of
from svrhmc.paper.tuning import Choice, Work
from svrhmc.samplers import Sampler


def classify(
    settings: Settings, name: str, method: str, folder: Path | None, threads: int, journal: Journal | None = None
) -> dict[str, Any]:
    """Figure 2 and Table 3: one data set, one sampler."""
    with pieces_of(journal) as pieces:
        return classified(settings, name, method, folder, threads, pieces)


def classified(
    settings: Settings, name: str, method: str, folder: Path | None, threads: int, pieces: Pieces
) -> dict[str, Any]:
    """The settings and runs of one sampler on one data set."""
    table = load(name, folder)

    def split(seed: int) -> Split:
        return classification_split(settings, name, table, seed)

    return _experiment(Work(settings, method, True, threads, pieces), split, _one_split(settings, name, table))


def regress(
    settings: Settings, name: str, method: str, folder: Path | None, threads: int, journal: Journal | None = None
) -> dict[str, Any]:
    """Figure 3: one data set, one sampler."""
    with pieces_of(journal) as pieces:
        table = load(name, folder)
        work = Work(settings, method, False, threads, pieces)
        return _experiment(work, lambda seed: regression_split(settings, table, seed), False)


def classification_reference(
    settings: Settings, name: str, folder: Path | None, threads: int, journal: Journal | None = None
) -> dict[str, Any]:
    """Loss and error of the posterior mean on each reported split: long full-gradient runs from the mode."""
    with pieces_of(journal) as pieces:
        table = load(name, folder)

        def made(seed: int) -> dict[str, float]:
            split = classification_split(settings, name, table, seed)
            return _reference(settings, split, seed, threads, pieces)

        found: dict[str, Any] = {"loss": [], "error": [], "uncertainty": []}
        for seed in range(1 if _one_split(settings, name, table) else settings["seeds"]):
            for what, value in pieces.once(f"seed {seed}", made, seed).items():
                found[what].append(value)
            pieces.forget(f"run {seed}")
        return found


def _reference(settings: Settings, split: Split, seed: int, threads: int, pieces: Pieces) -> dict[str, float]:
    target = target_of(settings, split, logistic=True)
    pieces.recall_mode(f"mode {seed}", target)
    largest = target.curvature_range(bound=False)
    dynamics = BAOAB(settings["reference_step"], settings["reference_friction"], 1 / largest[1])
    trace = pieces.run(
        f"run {seed}",
        Sampler(dynamics, Full()),
        target,
        settings["reference_steps"],
        chains=settings["reference_chains"],
        seed=seed,
        start="mode",
        burn_in=settings["reference_burn_in"],
        thin=settings["reference_thin"],
        threads=threads,
    )
    mean = trace.mean()
    alone = [loss_of(draws.mean(axis=0), split, True) for draws in trace.draws]
    return {
        "loss": loss_of(mean, split, True),
        "error": error_of(mean, split),
        "uncertainty": float(np.std(alone, ddof=1) / np.sqrt(len(alone))),
    }


def _one_split(settings: Settings, name: str, table: Table) -> bool:
    """Whether one split serves all seeds."""
    return table.test is not None or "split_seed" in settings["preparation"][name]


def regression_reference(
    settings: Settings, name: str, folder: Path | None, journal: Journal | None = None
) -> dict[str, Any]:
    """Test error of the exact posterior mean on each reported split."""
    with pieces_of(journal) as pieces:
        table = load(name, folder)

        def loss(seed: int) -> float:
            split = regression_split(settings, table, seed)
            return loss_of(target_of(settings, split, logistic=False).mode(), split, False)

        return {"loss": [pieces.once(f"seed {seed}", loss, seed) for seed in range(settings["seeds"])]}


def constants(
    settings: Settings, name: str, folder: Path | None, accuracy: float, logistic: bool, journal: Journal | None = None
) -> dict[str, Any]:
    """The constants of Table 1 on a data set's first split, for chains from the origin, and the accuracy asked for."""
    with pieces_of(journal) as pieces:
        found: dict[str, Any] = pieces.once("all", _constants, settings, name, folder, accuracy, logistic)
        return found


def _constants(settings: Settings, name: str, folder: Path | None, accuracy: float, logistic: bool) -> dict[str, Any]:
    table = load(name, folder)
    split = classification_split(settings, name, table, 0) if logistic else regression_split(settings, table, 0)
    problem = theory.Problem.of(target_of(settings, split, logistic))
    return {"accuracy": accuracy * problem.scale, "problem": asdict(problem)}


def _experiment(work: Work, split: Callable[[int], Split], fixed: bool) -> dict[str, Any]:
    """Each reported seed: its split, its settings, its run; a run that diverges all the same is None.

    Where one split serves all seeds it is tuned `repeats` times, on other held-out rows, and seed s has the setting of
    tuning s mod `repeats`. Of samplers with snapshots the epoch is tuned too, in runs of their own.
    """
    settings, pieces = work.settings, work.pieces
    tunings = [seed % settings["repeats"] if fixed else seed for seed in range(settings["seeds"])]

    def choose(number: int) -> Choice:
        return work.tuned(split(number), number)

    def with_epoch(number: int) -> Choice:
        return work.tuned_with_epoch(split(number), number, choices[number])

    def made(choice: Choice, seed: int) -> dict[str, Any] | None:
        part = split(seed)
        return work.path(choice, target_of(settings, part, work.logistic), part, seed)

    choices = {number: pieces.once(f"setting {number}", choose, number) for number in dict.fromkeys(tunings)}
    runs = [pieces.once(f"run of seed {s}", made, choices[number], s) for s, number in enumerate(tunings)]
    found: dict[str, Any] = {"choices": list(choices.values()), "runs": runs}
    if work.method in settings["epoch_samplers"]:
        other = {number: pieces.once(f"epoch {number}", with_epoch, number) for number in choices}
        again = [pieces.once(f"run of seed {s}, epoch", made, other[number], s) for s, number in enumerate(tunings)]
        found["epochs"] = {"choices": list(other.values()), "runs": again}
    return found
