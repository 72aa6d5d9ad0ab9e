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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc import targets, theory
from svrhmc.core.arrays import Array
from svrhmc.core.errors import DivergenceError, UnstableStepError, requirement
from svrhmc.dynamics import BAOAB
from svrhmc.gradients import Full
from svrhmc.paper.data import Table, load
from svrhmc.paper.settings import Settings
from svrhmc.samplers import METHODS, Sampler
from svrhmc.targets.base import FiniteSum


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to learn from and rows to judge by."""

    X: Any
    y: Array
    test: Any
    judged: Array


def classify(settings: Settings, name: str, method: str, folder: Path | None, threads: int) -> dict[str, Any]:
    """Figure 2 and Table 3: one data set, one sampler."""
    table = load(name, folder)
    fixed = _one_split(settings, name, table)
    return _experiment(
        settings, lambda seed: _classification_split(settings, name, table, seed), fixed, method, threads, logistic=True
    )


def regress(settings: Settings, name: str, method: str, folder: Path | None, threads: int) -> dict[str, Any]:
    """Figure 3: one data set, one sampler."""
    table = load(name, folder)
    return _experiment(
        settings, lambda seed: _regression_split(settings, table, seed), False, method, threads, logistic=False
    )


def classification_reference(settings: Settings, name: str, folder: Path | None, threads: int) -> dict[str, Any]:
    """Loss and error of the posterior mean on each reported split: long full-gradient runs from the mode."""
    table = load(name, folder)
    found: dict[str, Any] = {"loss": [], "error": [], "uncertainty": []}
    for seed in range(1 if _one_split(settings, name, table) else settings["seeds"]):
        split = _classification_split(settings, name, table, seed)
        target = _target(settings, split, logistic=True)
        largest = target.curvature_range(bound=False)
        dynamics = BAOAB(settings["reference_step"], settings["reference_friction"], 1 / largest[1])
        trace = Sampler(dynamics, Full()).run(
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
        found["loss"].append(_loss(mean, split, True))
        found["error"].append(_error(mean, split))
        alone = [_loss(draws.mean(axis=0), split, True) for draws in trace.draws]
        found["uncertainty"].append(float(np.std(alone, ddof=1) / np.sqrt(len(alone))))
    return found


def _one_split(settings: Settings, name: str, table: Table) -> bool:
    """Whether one split serves all seeds."""
    return table.test is not None or "split_seed" in settings["preparation"][name]


def regression_reference(settings: Settings, name: str, folder: Path | None) -> dict[str, Any]:
    """Test error of the exact posterior mean on each reported split."""
    table, losses = load(name, folder), []
    for seed in range(settings["seeds"]):
        split = _regression_split(settings, table, seed)
        losses.append(_loss(_target(settings, split, logistic=False).mode(), split, False))
    return {"loss": losses}


def preparation_experiment(settings: Settings, figure2: Settings, name: str, folder: Path | None) -> dict[str, Any]:
    """Test error of the posterior mode with and without an intercept, under each scaling."""
    table, found = load(name, folder), []
    for intercept, scale in itertools.product((False, True), settings["scales"]):
        errors = []
        for seed in range(1 if table.test is not None else settings["seeds"]):
            prepared = {**figure2["preparation"][name], "intercept": intercept, "scale": scale}
            local = {**figure2, "preparation": {name: prepared}}
            split = _classification_split(local, name, table, seed)
            errors.append(_error(_target(figure2, split, logistic=True).mode(), split))
        found.append({"intercept": intercept, "scale": scale, **_averaged(errors)})
    return {"rows": found}


def longer_experiment(
    settings: Settings, figure2: Settings, name: str, folder: Path | None, threads: int
) -> dict[str, Any]:
    """Test error of each sampler, with its tuned setting, after more and more passes."""
    table, found = load(name, folder), []
    seeds = range(min(figure2["seeds"], settings["seeds"]))
    for method in figure2["samplers"]:
        errors: dict[int, list[float]] = {passes: [] for passes in settings["passes"]}
        for seed in seeds:
            split = _classification_split(figure2, name, table, seed)
            target = _target(figure2, split, True)
            choice = _tune(figure2, split, seed, figure2["folds"], method, threads, True)
            for passes in settings["passes"]:
                run = _path({**figure2, "passes": passes}, choice, method, target, split, seed, threads, True)
                if run is not None:
                    errors[passes].append(run["error"][-1])
        for passes, values in errors.items():
            found.append({"method": method, "passes": passes, **_averaged(values)})
    return {"rows": found}


def steps_experiment(settings: Settings, figure2: Settings, folder: Path | None, threads: int) -> dict[str, Any]:
    """Test error of one sampler on one data set, for every setting of its grid."""
    name, method, found = settings["step_data"], settings["step_sampler"], []
    table = load(name, folder)
    splits = [_classification_split(figure2, name, table, seed) for seed in range(settings["step_seeds"])]
    subjects = [(_target(figure2, split, True), split, seed) for seed, split in enumerate(splits)]
    for choice in _choices(figure2, method):
        runs = [_path(figure2, choice, method, *subject, threads, True) for subject in subjects]
        errors = [run["error"][-1] for run in runs if run is not None]
        if len(errors) == len(runs):
            found.append({**choice, **_averaged(errors)})
    return {"data": name, "method": method, "rows": found}


def _averaged(errors: list[float]) -> dict[str, float]:
    return {"error": float(np.mean(errors)), "deviation": float(np.std(errors, ddof=min(1, len(errors) - 1)))}


def constants(settings: Settings, name: str, folder: Path | None, accuracy: float, logistic: bool) -> dict[str, Any]:
    """Table 1 at the constants of a data set's first split, for chains from the origin."""
    table = load(name, folder)
    split = _classification_split(settings, name, table, 0) if logistic else _regression_split(settings, table, 0)
    problem = theory.Problem.of(_target(settings, split, logistic))
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
    settings: Settings, split: Callable[[int], Split], fixed: bool, method: str, threads: int, logistic: bool
) -> dict[str, Any]:
    """Each reported seed: its split, its settings, its run; a run that diverges all the same is None."""
    choices: list[dict[str, float]] = []
    runs = []
    for seed in range(settings["seeds"]):
        part = split(seed)
        if not (fixed and choices):
            folds = settings["fixed_folds"] if fixed else settings["folds"]
            choices.append(_tune(settings, part, seed, folds, method, threads, logistic))
        target = _target(settings, part, logistic)
        runs.append(_path(settings, choices[-1], method, target, part, seed, threads, logistic))
    return {"choices": choices, "runs": runs}


def _tune(
    settings: Settings, split: Split, seed: int, folds: int, method: str, threads: int, logistic: bool
) -> dict[str, float]:
    """The setting with the least mean loss on held-out parts of the training rows."""
    parts = [_held(split, settings["held_out"], [seed, fold]) for fold in range(folds)]
    subjects = [(_target(settings, part, logistic), part) for part in parts]
    best: tuple[float, dict[str, float]] | None = None
    for choice in _choices(settings, method):
        losses = []
        for fold, (target, part) in enumerate(subjects):
            run = _path(settings, choice, method, target, part, settings["first_fold"] + fold, threads, logistic)
            losses.append(np.inf if run is None else run["loss"][-1])
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
            found["loss"].append(_loss(average[place], split, logistic))
            if logistic:
                found["error"].append(_error(average[place], split))
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


def _target(settings: Settings, split: Split, logistic: bool) -> Any:
    if logistic:
        return targets.logistic(split.X, split.y, settings["prior_precision"])
    return targets.linear(split.X, split.y, settings["noise_variance"], settings["prior_precision"])


def _classification_split(settings: Settings, name: str, table: Table, seed: int) -> Split:
    how = settings["preparation"][name]
    if table.test is not None:
        split = Split(table.X, table.y, *table.test)
    else:
        order = np.random.default_rng(how.get("split_seed", seed)).permutation(table.n)
        rows, rest = order[: how["train"]], order[how["train"] :]
        split = Split(table.X[rows], table.y[rows], table.X[rest], table.y[rest])
    return _prepared(split, how["scale"], how["intercept"])


def _regression_split(settings: Settings, table: Table, seed: int) -> Split:
    """Features and target to mean 0 and deviation 1, by the training rows."""
    order = np.random.default_rng(seed).permutation(table.n)
    half = round(settings["train"] * table.n)
    rows, rest = order[:half], order[half:]
    mean, deviation = table.y[rows].mean(), table.y[rows].std()
    y, judged = (table.y[rows] - mean) / deviation, (table.y[rest] - mean) / deviation
    return _prepared(Split(table.X[rows], y, table.X[rest], judged), "standard", False)


def _prepared(split: Split, scale: str, intercept: bool) -> Split:
    X, test = split.X, split.test
    if scale == "standard":
        X, test = _dense(X), _dense(test)
        mean, deviation = X.mean(axis=0), X.std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        X, test = (X - mean) / deviation, (test - mean) / deviation
    elif scale == "maximum":
        X, test = _dense(X), _dense(test)
        most = np.abs(X).max(axis=0)
        most = np.where(most > 0, most, 1.0).astype(X.dtype)
        X, test = X / most, test / most
    if intercept:
        X, test = (np.column_stack([np.ones(len(rows)), rows]) for rows in (_dense(X), _dense(test)))
    return Split(X, split.y, test, split.judged)


def _held(split: Split, share: float, seed: list[int]) -> Split:
    """The training rows alone, a share of them to judge by. (The split's columns were scaled by all training rows.)"""
    n = len(split.y)
    order = np.random.default_rng([*seed, 1]).permutation(n)
    rest, rows = order[: round(share * n)], order[round(share * n) :]
    return Split(split.X[rows], split.y[rows], split.X[rest], split.y[rest])


def _dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else X


def _loss(x: Array, split: Split, logistic: bool) -> float:
    """Mean negative log-likelihood, or mean squared error, on the rows to judge by."""
    predicted = np.asarray(split.test @ x, np.float64)
    if logistic:
        return float(np.logaddexp(0.0, -np.where(split.judged > 0, predicted, -predicted)).mean())
    with np.errstate(over="ignore"):  # of a chain that has all but diverged
        return float(((predicted - split.judged) ** 2).mean())


def _error(x: Array, split: Split) -> float:
    return float(((split.test @ x > 0) != (split.judged > 0)).mean())
