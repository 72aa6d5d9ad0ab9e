"""What was tried where our numbers and the paper's differ: preparation, prior, steps, passes and burn-in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.paper.data import load
from svrhmc.paper.journal import Pieces, resumable
from svrhmc.paper.regression import Choice, Work, error_of, experiment, grid, posterior, split_of
from svrhmc.paper.settings import Result, Settings


@resumable
def preparation_experiment(
    settings: Settings, figure2: Settings, name: str, folder: Path | None, pieces: Pieces
) -> Result:
    """Test error of the posterior mode: with and without an intercept under each scaling, and for each λ."""
    table = load(name, folder)
    usual = figure2["preparation"][name]
    seeds = range(1 if table.test is not None else settings["seeds"])

    def error(prepared: Result, precision: float, seed: int) -> float:
        local = {**figure2, "preparation": {name: {**usual, **prepared}}, "prior_precision": precision}
        split = split_of(local, name, table, seed)
        return error_of(posterior(local, split).mode(), split)

    def row(prepared: Result, precision: float) -> Result:
        what = f"{prepared}, {precision}"
        errors = [pieces.once(f"{what}, seed {seed}", error, prepared, precision, seed) for seed in seeds]
        return {**usual, **prepared, "prior_precision": precision, **_averaged(errors)}

    ways = itertools.product((False, True), settings["scales"])
    own = figure2["prior_precision"]
    rows = [row({"intercept": intercept, "scale": scale}, own) for intercept, scale in ways]
    return {"rows": rows, "priors": [row({}, precision) for precision in settings["prior_precisions"]]}


@resumable
def longer_experiment(
    settings: Settings, figure2: Settings, name: str, folder: Path | None, threads: int, pieces: Pieces
) -> Result:
    """Test error of each sampler, with its tuned setting, after more and more passes."""
    table = load(name, folder)
    seeds = range(min(figure2["seeds"], settings["passes_seeds"]))

    def error(method: str, seed: int, passes: int) -> float | None:
        split, work = split_of(figure2, name, table, seed), Work(figure2, method, threads, pieces)
        choice = pieces.once(f"{method}, seed {seed}, setting", work.tuned, split, seed)
        longer = Work({**figure2, "passes": passes}, method, threads, pieces)
        run = longer.path(choice, posterior(figure2, split), split, seed)
        return None if run is None else float(run["error"][-1])

    rows = []
    for method, passes in itertools.product(figure2["samplers"], settings["passes"]):
        errors = [pieces.once(f"{method}, seed {seed}, {passes} passes", error, method, seed, passes) for seed in seeds]
        rows.append({"method": method, "passes": passes, **_averaged(errors)})
    return {"rows": rows, "seeds": len(seeds)}


@resumable
def steps_experiment(
    settings: Settings, figure2: Settings, folder: Path | None, threads: int, pieces: Pieces
) -> Result:
    """Test error of one sampler on one data set, for every setting of its grid."""
    name, method, rows = settings["step_data"], settings["step_sampler"], []
    table, work = load(name, folder), Work(figure2, method, threads, pieces)
    splits = [split_of(figure2, name, table, seed) for seed in range(settings["step_seeds"])]
    posteriors = [posterior(figure2, split) for split in splits]

    def error(choice: Choice, seed: int) -> float | None:
        run = work.path(choice, posteriors[seed], splits[seed], seed)
        return None if run is None else float(run["error"][-1])

    for choice in grid(figure2, method):
        errors = [pieces.once(f"{choice}, seed {seed}", error, choice, seed) for seed in range(len(splits))]
        if None not in errors:
            rows.append({**choice, **_averaged(errors)})
    return {"data": name, "method": method, "rows": rows}


def burn_in_experiment(
    settings: Settings,
    figure2: Settings,
    name: str,
    method: str,
    folder: Path | None,
    threads: int,
    journal: Journal | None = None,
) -> Result:
    """Figure 2 for one data set and sampler with the paper's larger burn-in; batches of 1, which make steps enough."""
    changes = {"burn_in": settings["burn_in"], "batch_sizes": [1], "epoch_samplers": []}
    return experiment({**figure2, **changes}, name, method, folder, threads, journal=journal)


def _averaged(errors: Iterable[float | None]) -> dict[str, float]:
    values = [error for error in errors if error is not None]
    return {"error": float(np.mean(values)), "deviation": float(np.std(values, ddof=min(1, len(values) - 1)))}
