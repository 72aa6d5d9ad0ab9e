"""Figures 2 and 3, Table 3: Bayesian regression on the data sets, each sampler tuned by one rule.

The rule, for every sampler and every reported split: of all settings in settings.toml (step, batch, and for underdamped
samplers inverse mass), the one with the least loss of the path average after all passes on a held-out part of the
split's training rows. Where one split serves all seeds (a3a, gisette) that is done once, with several parts. So no test
row of a run has been seen when its settings are chosen, and what the choice itself varies is in the reported spread.
Settings that diverge, or make too few steps, are out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc import theory
from svrhmc.checkpoint import InMemory, Journal
from svrhmc.core.errors import DivergenceError, UnstableStepError, requirement
from svrhmc.dynamics import BAOAB
from svrhmc.gradients import Full
from svrhmc.paper.data import Table, load
from svrhmc.paper.pieces import Pieces
from svrhmc.paper.settings import Settings
from svrhmc.paper.splits import Split, classification_split, error_of, held_out, loss_of, regression_split, target_of
from svrhmc.samplers import METHODS, Sampler
from svrhmc.targets.base import FiniteSum


def classify(
    settings: Settings, name: str, method: str, folder: Path | None, threads: int, journal: Journal | None = None
) -> dict[str, Any]:
    """Figure 2 and Table 3: one data set, one sampler."""
    with _pieces(journal) as pieces:
        table = load(name, folder)

        def split(seed: int) -> Split:
            return classification_split(settings, name, table, seed)

        return _experiment(settings, split, _one_split(settings, name, table), method, threads, True, pieces)


def regress(
    settings: Settings, name: str, method: str, folder: Path | None, threads: int, journal: Journal | None = None
) -> dict[str, Any]:
    """Figure 3: one data set, one sampler."""
    with _pieces(journal) as pieces:
        table = load(name, folder)
        return _experiment(
            settings, lambda seed: regression_split(settings, table, seed), False, method, threads, False, pieces
        )


def classification_reference(
    settings: Settings, name: str, folder: Path | None, threads: int, journal: Journal | None = None
) -> dict[str, Any]:
    """Loss and error of the posterior mean on each reported split: long full-gradient runs from the mode."""
    with _pieces(journal) as pieces:
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


def _pieces(journal: Journal | None) -> Pieces:
    return Pieces(InMemory() if journal is None else journal)


def _one_split(settings: Settings, name: str, table: Table) -> bool:
    """Whether one split serves all seeds."""
    return table.test is not None or "split_seed" in settings["preparation"][name]


def regression_reference(
    settings: Settings, name: str, folder: Path | None, journal: Journal | None = None
) -> dict[str, Any]:
    """Test error of the exact posterior mean on each reported split."""
    with _pieces(journal) as pieces:
        table = load(name, folder)

        def loss(seed: int) -> float:
            split = regression_split(settings, table, seed)
            return loss_of(target_of(settings, split, logistic=False).mode(), split, False)

        return {"loss": [pieces.once(f"seed {seed}", loss, seed) for seed in range(settings["seeds"])]}


def preparation_experiment(
    settings: Settings, figure2: Settings, name: str, folder: Path | None, journal: Journal | None = None
) -> dict[str, Any]:
    """Test error of the posterior mode with and without an intercept, under each scaling."""
    with _pieces(journal) as pieces:
        table, found = load(name, folder), []

        def error(prepared: dict[str, Any], seed: int) -> float:
            local = {**figure2, "preparation": {name: {**figure2["preparation"][name], **prepared}}}
            split = classification_split(local, name, table, seed)
            return error_of(target_of(figure2, split, logistic=True).mode(), split)

        for intercept, scale in itertools.product((False, True), settings["scales"]):
            prepared = {"intercept": intercept, "scale": scale}
            errors = [
                pieces.once(f"{prepared}, seed {seed}", error, prepared, seed)
                for seed in range(1 if table.test is not None else settings["seeds"])
            ]
            found.append({**prepared, **_averaged(errors)})
        return {"rows": found}


def longer_experiment(
    settings: Settings, figure2: Settings, name: str, folder: Path | None, threads: int, journal: Journal | None = None
) -> dict[str, Any]:
    """Test error of each sampler, with its tuned setting, after more and more passes."""
    with _pieces(journal) as pieces:
        table, found = load(name, folder), []

        def error(method: str, seed: int, passes: int) -> float | None:
            split = classification_split(figure2, name, table, seed)
            target = target_of(figure2, split, True)
            arguments = (figure2, split, seed, figure2["folds"], method, threads, True, pieces)
            choice = pieces.once(f"{method}, seed {seed}, setting", _tune, *arguments)
            run = _path({**figure2, "passes": passes}, choice, method, target, split, seed, threads, True)
            return None if run is None else float(run["error"][-1])

        for method in figure2["samplers"]:
            errors: dict[int, list[float]] = {passes: [] for passes in settings["passes"]}
            for seed in range(min(figure2["seeds"], settings["seeds"])):
                for passes in settings["passes"]:
                    value = pieces.once(f"{method}, seed {seed}, {passes} passes", error, method, seed, passes)
                    if value is not None:
                        errors[passes].append(value)
            for passes, values in errors.items():
                found.append({"method": method, "passes": passes, **_averaged(values)})
        return {"rows": found}


def steps_experiment(
    settings: Settings, figure2: Settings, folder: Path | None, threads: int, journal: Journal | None = None
) -> dict[str, Any]:
    """Test error of one sampler on one data set, for every setting of its grid."""
    name, method, found = settings["step_data"], settings["step_sampler"], []
    with _pieces(journal) as pieces:
        table = load(name, folder)
        splits = [classification_split(figure2, name, table, seed) for seed in range(settings["step_seeds"])]
        subjects = [(target_of(figure2, split, True), split, seed) for seed, split in enumerate(splits)]

        def error(choice: dict[str, float], seed: int) -> float | None:
            run = _path(figure2, choice, method, *subjects[seed], threads, True)
            return None if run is None else float(run["error"][-1])

        for choice in _choices(figure2, method):
            errors = [pieces.once(f"{choice}, seed {seed}", error, choice, seed) for seed in range(len(subjects))]
            if None not in errors:
                found.append({**choice, **_averaged(errors)})
    return {"data": name, "method": method, "rows": found}


def _averaged(errors: list[float]) -> dict[str, float]:
    return {"error": float(np.mean(errors)), "deviation": float(np.std(errors, ddof=min(1, len(errors) - 1)))}


def constants(
    settings: Settings, name: str, folder: Path | None, accuracy: float, logistic: bool, journal: Journal | None = None
) -> dict[str, Any]:
    """Table 1 at the constants of a data set's first split, for chains from the origin."""
    with _pieces(journal) as pieces:
        found: dict[str, Any] = pieces.once("all", _constants, settings, name, folder, accuracy, logistic)
        return found


def _constants(settings: Settings, name: str, folder: Path | None, accuracy: float, logistic: bool) -> dict[str, Any]:
    table = load(name, folder)
    split = classification_split(settings, name, table, 0) if logistic else regression_split(settings, table, 0)
    problem = theory.Problem.of(target_of(settings, split, logistic))
    eps = accuracy * problem.scale
    comparison = theory.compare(problem, eps)
    return {
        "n": problem.n,
        "dim": problem.dim,
        "condition_number": problem.condition_number,
        "gradient_variance": problem.gradient_variance,
        "accuracy": eps,
        "totals": {row.method: row.total for row in comparison.rows},
        "cheapest": comparison.cheapest,
    }


def _experiment(
    settings: Settings,
    split: Callable[[int], Split],
    fixed: bool,
    method: str,
    threads: int,
    logistic: bool,
    pieces: Pieces,
) -> dict[str, Any]:
    """Each reported seed: its split, its settings, its run; a run that diverges all the same is None."""
    choices: list[dict[str, float]] = []
    folds = settings["fixed_folds"] if fixed else settings["folds"]

    def tuned(seed: int) -> dict[str, float]:
        return _tune(settings, split(seed), seed, folds, method, threads, logistic, pieces)

    def made(seed: int) -> dict[str, Any] | None:
        part = split(seed)
        target = target_of(settings, part, logistic)
        return _path(settings, choices[-1], method, target, part, seed, threads, logistic)

    runs = []
    for seed in range(settings["seeds"]):
        if not (fixed and choices):
            choices.append(pieces.once(f"setting of seed {seed}", tuned, seed))
        runs.append(pieces.once(f"run of seed {seed}", made, seed))
    return {"choices": choices, "runs": runs}


def _tune(
    settings: Settings,
    split: Split,
    seed: int,
    folds: int,
    method: str,
    threads: int,
    logistic: bool,
    pieces: Pieces,
) -> dict[str, float]:
    """The setting with the least mean loss on held-out parts of the training rows."""
    parts = [held_out(split, settings["held_out"], [seed, fold]) for fold in range(folds)]
    subjects = [(target_of(settings, part, logistic), part) for part in parts]

    def loss(choice: dict[str, float], fold: int) -> float | None:
        target, part = subjects[fold]
        run = _path(settings, choice, method, target, part, settings["first_fold"] + fold, threads, logistic)
        return None if run is None else float(run["loss"][-1])

    best: tuple[float, dict[str, float]] | None = None
    for choice in _choices(settings, method):
        losses = []
        for fold in range(folds):
            name = f"{method}, seed {seed}, {choice}, fold {fold}"
            found = pieces.once(name, loss, choice, fold)
            losses.append(np.inf if found is None else found)
        value = float(np.mean(losses))
        if np.isfinite(value) and (best is None or value < best[0]):
            best = (value, choice)
    if best is None:
        raise requirement(f"the grid of {method}", "one with a setting that does not diverge", "none")
    return best[1]


def _path(
    settings: Settings,
    choice: dict[str, float],
    method: str,
    target: FiniteSum,
    split: Split,
    seed: int,
    threads: int,
    logistic: bool,
) -> dict[str, Any] | None:
    """Test loss (and error) of the path average after each pass; None where the chain diverges or is too short."""
    sampler = _sampler(settings, choice, method, target)
    steps = sampler.steps_for(target, settings["passes"])
    burn_in = settings["burn_in"]
    if steps < settings["least_steps"]:
        return None
    thin = -(-(steps - burn_in) // settings["kept_states"])
    try:
        trace = sampler.run(target, steps, chains=[seed], seed=seed, burn_in=burn_in, thin=thin, threads=threads)
    except (DivergenceError, UnstableStepError):
        return None
    average = np.cumsum(trace.draws[0], axis=0) / np.arange(1, trace.draws.shape[1] + 1)[:, None]
    found: dict[str, Any] = {"passes": [], "loss": []}
    if logistic:
        found["error"] = []
    for spent in range(1, settings["passes"] + 1):
        place = int(np.searchsorted(trace.passes, spent * (1 + 1e-9), side="right")) - 1
        if place >= 0:
            found["passes"].append(spent)
            found["loss"].append(loss_of(average[place], split, logistic))
            if logistic:
                found["error"].append(error_of(average[place], split))
    return found


def _choices(settings: Settings, method: str) -> list[dict[str, float]]:
    batches = settings["batch_sizes"]
    if method in ("sgld", "vr-sgld"):
        steps = settings["overdamped_steps"]
        return [{"batch_size": batch, "step": step} for batch, step in itertools.product(batches, steps)]
    steps, masses = settings["underdamped_steps"], settings["inverse_masses"]
    grid = itertools.product(batches, steps, masses)
    return [{"batch_size": batch, "step": step, "inverse_mass": mass} for batch, step, mass in grid]


def _sampler(settings: Settings, choice: dict[str, float], method: str, target: FiniteSum) -> Sampler:
    """Steps and inverse masses are in units of 1/L (the step of underdamped samplers has no unit)."""
    L, batch = target.smoothness, int(choice["batch_size"])
    if "inverse_mass" in choice:
        mass = choice["inverse_mass"] / L
        return METHODS[method](choice["step"], settings["friction"], inverse_mass=mass, batch_size=batch)
    return METHODS[method](choice["step"] / L, batch_size=batch)
