"""Figures 2 and 3, Table 3: Bayesian regression on the data sets, each sampler tuned by one rule.

The rule: of all settings in settings.toml (step, batch, and for underdamped samplers inverse mass; friction 2 as in
the paper), the one with the least mean loss of the path average after all passes, on a held-out part of the training
rows, over the tuning seeds. Settings that diverge, or make no more than twice the burn-in's steps, are out. The
reported seeds are others, and their test rows are used for nothing else.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc import targets, theory
from svrhmc.arrays import Array
from svrhmc.errors import DivergenceError
from svrhmc.paper.data import Table, load
from svrhmc.paper.settings import Settings
from svrhmc.samplers import METHODS, Sampler
from svrhmc.targets.base import FiniteSum

_TUNING = 1000  # the first tuning seed


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

    def split(seed: int, held_out: float) -> Split:
        return _held(_classification_split(settings, name, table, seed), held_out, seed)

    return _experiment(settings, split, method, threads, logistic=True)


def regress(settings: Settings, name: str, method: str, folder: Path | None, threads: int) -> dict[str, Any]:
    """Figure 3: one data set, one sampler."""
    table = load(name, folder)

    def split(seed: int, held_out: float) -> Split:
        return _held(_regression_split(settings, table, seed), held_out, seed)

    return _experiment(settings, split, method, threads, logistic=False)


def classification_reference(settings: Settings, name: str, folder: Path | None, threads: int) -> dict[str, Any]:
    """Loss and error of the posterior mean on each reported split: long full-gradient runs from the mode."""
    table = load(name, folder)
    found: dict[str, Any] = {"loss": [], "error": []}
    fixed = table.test is not None or "split_seed" in settings["preparation"][name]
    for seed in range(1 if fixed else settings["seeds"]):
        split = _classification_split(settings, name, table, seed)
        target = _target(settings, split, logistic=True)
        largest = target.curvature_range(bound=False)
        assert largest is not None
        sampler = METHODS["hmc"](0.3, inverse_mass=1 / largest[1])
        steps, chains = settings["reference_steps"], settings["reference_chains"]
        trace = sampler.run(
            target, steps, chains=chains, seed=seed, start="mode", burn_in=steps // 10, thin=10, threads=threads
        )
        mean = trace.mean()
        found["loss"].append(_loss(mean, split, True))
        found["error"].append(_error(mean, split))
    return found


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
        found.append(
            {
                "intercept": intercept,
                "scale": scale,
                "error": float(np.mean(errors)),
                "deviation": float(np.std(errors)),
            }
        )
    return {"rows": found}


def longer_experiment(
    settings: Settings, figure2: Settings, name: str, folder: Path | None, threads: int
) -> dict[str, Any]:
    """Test error of each sampler, with its tuned setting, after more and more passes."""
    table, found = load(name, folder), []
    for method in figure2["samplers"]:
        for passes in settings["passes"]:
            local = {**figure2, "passes": passes, "seeds": min(figure2["seeds"], settings["seeds"])}
            choice = _tuned(figure2, name, table, method, threads)
            errors = []
            for seed in range(local["seeds"]):
                split = _classification_split(local, name, table, seed)
                run = _path(local, choice, method, _target(local, split, True), split, seed, threads, True)
                assert run is not None
                errors.append(run["error"][-1])
            spread = float(np.std(errors))
            found.append({"method": method, "passes": passes, "error": float(np.mean(errors)), "deviation": spread})
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
            found.append({**choice, "error": float(np.mean(errors)), "deviation": float(np.std(errors))})
    return {"data": name, "method": method, "rows": found}


def _tuned(settings: Settings, name: str, table: Table, method: str, threads: int) -> dict[str, float]:
    def split(seed: int, held_out: float) -> Split:
        return _held(_classification_split(settings, name, table, seed), held_out, seed)

    return _tune(settings, split, method, threads, logistic=True)[1]


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


def _experiment(settings: Settings, split: Any, method: str, threads: int, logistic: bool) -> dict[str, Any]:
    value, best, tried = _tune(settings, split, method, threads, logistic)
    runs = []
    for seed in range(settings["seeds"]):
        part = split(seed, 0.0)
        runs.append(_path(settings, best, method, _target(settings, part, logistic), part, seed, threads, logistic))
    return {"choice": best, "tuning_loss": value, "settings_tried": tried, "runs": runs}


def _tune(
    settings: Settings, split: Any, method: str, threads: int, logistic: bool
) -> tuple[float, dict[str, float], int]:
    """The rule: the least mean held-out loss over the tuning seeds."""
    tuning = [split(_TUNING + k, settings["held_out"]) for k in range(settings["tuning_seeds"])]
    subjects = [(_target(settings, part, logistic), part, _TUNING + k) for k, part in enumerate(tuning)]
    tried = []
    for choice in _choices(settings, method):
        losses = [_path(settings, choice, method, *subject, threads, logistic) for subject in subjects]
        final = [loss["loss"][-1] for loss in losses if loss is not None]
        if len(final) == len(losses) and np.isfinite(final).all():
            tried.append((float(np.mean(final)), choice))
    value, best = min(tried, key=lambda pair: pair[0])
    return value, best, len(tried)


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
    sampler = _sampler(choice, method, target)
    steps = sampler.steps_for(target, settings["passes"])
    burn_in = settings["burn_in"]
    if steps <= 2 * burn_in:
        return None
    thin = -(-(steps - burn_in) // settings["kept_states"])
    try:
        trace = sampler.run(target, steps, chains=[seed], seed=seed, burn_in=burn_in, thin=thin, threads=threads)
    except (DivergenceError, ValueError):
        return None
    average = np.cumsum(trace.draws[0], axis=0) / np.arange(1, trace.draws.shape[1] + 1)[:, None]
    found: dict[str, Any] = {"passes": [], "loss": [], "error": []}
    for spent in range(1, settings["passes"] + 1):
        place = int(np.searchsorted(trace.passes, spent * (1 + 1e-9), side="right")) - 1
        if place >= 0:
            found["passes"].append(spent)
            found["loss"].append(_loss(average[place], split, logistic))
            found["error"].append(_error(average[place], split) if logistic else 0.0)
    return found


def _choices(settings: Settings, method: str) -> list[dict[str, float]]:
    batches = settings["batch_sizes"]
    if method in ("sgld", "vr-sgld"):
        steps = settings["overdamped_steps"]
        return [{"batch_size": batch, "step": step} for batch, step in itertools.product(batches, steps)]
    steps, masses = settings["underdamped_steps"], settings["inverse_masses"]
    grid = itertools.product(batches, steps, masses)
    return [{"batch_size": batch, "step": step, "inverse_mass": mass} for batch, step, mass in grid]


def _sampler(choice: dict[str, float], method: str, target: FiniteSum) -> Sampler:
    """Steps and inverse masses are in units of 1/L (the step of underdamped samplers has no unit)."""
    L, batch = target.smoothness, int(choice["batch_size"])
    if "inverse_mass" in choice:
        return METHODS[method](choice["step"], inverse_mass=choice["inverse_mass"] / L, batch_size=batch)
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


def _held(split: Split, share: float, seed: int) -> Split:
    """The training rows alone, a share of them to judge by; all as it is for share 0."""
    if share == 0:
        return split
    n = len(split.y)
    order = np.random.default_rng([seed, 1]).permutation(n)
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
