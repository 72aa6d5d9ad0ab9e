"""What was tried where our numbers and the paper's differ: preparation, prior, steps, passes and burn-in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.paper.data import load
from svrhmc.paper.pieces import pieces_of
from svrhmc.paper.regression import classified
from svrhmc.paper.settings import Settings
from svrhmc.paper.splits import classification_split, error_of, target_of
from svrhmc.paper.tuning import Choice, Work, grid


def preparation_experiment(
    settings: Settings, figure2: Settings, name: str, folder: Path | None, journal: Journal | None = None
) -> dict[str, Any]:
    """Test error of the posterior mode: with and without an intercept under each scaling, and for each λ."""
    with pieces_of(journal) as pieces:
        table = load(name, folder)
        usual = figure2["preparation"][name]
        seeds = range(1 if table.test is not None else settings["seeds"])

        def error(prepared: dict[str, Any], precision: float, seed: int) -> float:
            local = {**figure2, "preparation": {name: {**usual, **prepared}}, "prior_precision": precision}
            split = classification_split(local, name, table, seed)
            return error_of(target_of(local, split, logistic=True).mode(), split)

        def row(prepared: dict[str, Any], precision: float) -> dict[str, Any]:
            what = f"{prepared}, {precision}"
            errors = [pieces.once(f"{what}, seed {seed}", error, prepared, precision, seed) for seed in seeds]
            return {**usual, **prepared, "prior_precision": precision, **_averaged(errors)}

        ways = itertools.product((False, True), settings["scales"])
        own = figure2["prior_precision"]
        rows = [row({"intercept": intercept, "scale": scale}, own) for intercept, scale in ways]
        return {"rows": rows, "priors": [row({}, precision) for precision in settings["prior_precisions"]]}


def longer_experiment(
    settings: Settings, figure2: Settings, name: str, folder: Path | None, threads: int, journal: Journal | None = None
) -> dict[str, Any]:
    """Test error of each sampler, with its tuned setting, after more and more passes."""
    with pieces_of(journal) as pieces:
        table, found = load(name, folder), []
        for method in figure2["samplers"]:
            work = Work(figure2, method, True, threads, pieces)

            def error(seed: int, passes: int, work: Work = work) -> float | None:
                split = classification_split(figure2, name, table, seed)
                choice = pieces.once(f"{work.method}, seed {seed}, setting", work.tuned, split, seed)
                longer = Work({**figure2, "passes": passes}, work.method, True, threads, pieces)
                run = longer.path(choice, target_of(figure2, split, True), split, seed)
                return None if run is None else float(run["error"][-1])

            seeds = range(min(figure2["seeds"], settings["passes_seeds"]))
            errors = {
                passes: [pieces.once(f"{method}, seed {seed}, {passes} passes", error, seed, passes) for seed in seeds]
                for passes in settings["passes"]
            }
            found += [{"method": method, "passes": spent, **_averaged(values)} for spent, values in errors.items()]
        return {"rows": found, "seeds": len(seeds)}


def steps_experiment(
    settings: Settings, figure2: Settings, folder: Path | None, threads: int, journal: Journal | None = None
) -> dict[str, Any]:
    """Test error of one sampler on one data set, for every setting of its grid."""
    name, method, found = settings["step_data"], settings["step_sampler"], []
    with pieces_of(journal) as pieces:
        table = load(name, folder)
        splits = [classification_split(figure2, name, table, seed) for seed in range(settings["step_seeds"])]
        subjects = [(target_of(figure2, split, True), split, seed) for seed, split in enumerate(splits)]
        work = Work(figure2, method, True, threads, pieces)

        def error(choice: Choice, seed: int) -> float | None:
            run = work.path(choice, *subjects[seed])
            return None if run is None else float(run["error"][-1])

        for choice in grid(figure2, method):
            errors = [pieces.once(f"{choice}, seed {seed}", error, choice, seed) for seed in range(len(subjects))]
            if None not in errors:
                found.append({**choice, **_averaged(errors)})
    return {"data": name, "method": method, "rows": found}


def burn_in_experiment(
    settings: Settings,
    figure2: Settings,
    name: str,
    method: str,
    folder: Path | None,
    threads: int,
    journal: Journal | None = None,
) -> dict[str, Any]:
    """Figure 2 for one data set and sampler with the paper's larger burn-in; batches of 1, which make steps enough."""
    with pieces_of(journal) as pieces:
        changes = {"burn_in": settings["burn_in"], "batch_sizes": [1], "epoch_samplers": []}
        return classified({**figure2, **changes}, name, method, folder, threads, pieces)


def _averaged(errors: Iterable[float | None]) -> dict[str, float]:
    values = [error for error in errors if error is not None]
    return {"error": float(np.mean(values)), "deviation": float(np.std(values, ddof=min(1, len(values) - 1)))}
