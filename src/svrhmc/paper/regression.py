"""Figures 2 and 3, Table 3: Bayesian regression on the data sets, each sampler tuned by one rule.

The rule, for every sampler and every reported split: of all settings of its grid (step, batch, and for underdamped
samplers inverse mass), the one with the least loss of the path average after all passes, on held-out parts of the
split's training rows. The whole grid is tried on a first part; the best of it, a fixed share, on all parts. So no test
row of a run has been seen when its settings are chosen. Settings that diverge, or make too few steps, are out.

What the choice of settings itself varies is in the reported spread: each split has its own, and where one split serves
all seeds (a3a, gisette) the tuning is repeated.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc import targets, theory
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import DivergenceError, UnstableStepError, requirement
from svrhmc.density.base import FiniteSum
from svrhmc.dynamics import BAOAB
from svrhmc.gradients import Full
from svrhmc.paper.data import load
from svrhmc.paper.datasets import Table
from svrhmc.paper.journal import Pieces, resumable
from svrhmc.paper.settings import Result, Settings
from svrhmc.rows.csr import Matrix
from svrhmc.samplers import METHODS, Sampler

Choice = dict[str, float]
_OVERDAMPED = ("sgld", "vr-sgld")


# Tasks: what is run for the figures and tables.


@resumable
def experiment(settings: Settings, name: str, method: str, folder: Path | None, threads: int, pieces: Pieces) -> Result:
    """One sampler on one data set, each reported seed: its split, its settings, its run (None where it diverges).

    Where one split serves all seeds it is tuned `repeats` times, on other held-out rows, and seed s has the setting of
    tuning s mod `repeats`. Of samplers with snapshots the epoch is tuned too, in runs of their own.
    """
    table, work = load(name, folder), Work(settings, method, threads, pieces)
    fixed = _one_split(settings, name, table)
    tunings = [seed % settings["repeats"] if fixed else seed for seed in range(settings["seeds"])]

    def choose(number: int) -> Choice:
        return work.tuned(split_of(settings, name, table, number), number)

    def choose_epoch(number: int) -> Choice:
        return work.tuned_with_epoch(split_of(settings, name, table, number), number, choices[number])

    def run(choice: Choice, seed: int) -> Result | None:
        split = split_of(settings, name, table, seed)
        return work.path(choice, posterior(settings, split), split, seed)

    choices = {number: pieces.once(f"setting {number}", choose, number) for number in dict.fromkeys(tunings)}
    runs = [pieces.once(f"run of seed {s}", run, choices[number], s) for s, number in enumerate(tunings)]
    result: Result = {"choices": list(choices.values()), "runs": runs}
    if method in settings["epoch_samplers"]:
        other = {number: pieces.once(f"epoch {number}", choose_epoch, number) for number in choices}
        again = [pieces.once(f"run of seed {s}, epoch", run, other[number], s) for s, number in enumerate(tunings)]
        result["epochs"] = {"choices": list(other.values()), "runs": again}
    return result


@resumable
def classification_reference(
    settings: Settings, name: str, folder: Path | None, threads: int, pieces: Pieces
) -> Result:
    """Loss and error of the posterior mean on each reported split: long full-gradient runs from the mode."""
    table = load(name, folder)

    def losses(seed: int) -> dict[str, float]:
        return _posterior_mean(settings, split_of(settings, name, table, seed), seed, threads, pieces)

    reference: Result = {"loss": [], "error": [], "uncertainty": []}
    for seed in range(1 if _one_split(settings, name, table) else settings["seeds"]):
        for what, value in pieces.once(f"seed {seed}", losses, seed).items():
            reference[what].append(value)
        pieces.forget(f"run {seed}")
    return reference


def _posterior_mean(settings: Settings, split: Split, seed: int, threads: int, pieces: Pieces) -> dict[str, float]:
    target = posterior(settings, split)
    pieces.recall_mode(f"mode {seed}", target)
    _, largest = target.curvature_range(bound=False)
    sampler = Sampler(BAOAB(settings["reference_step"], settings["reference_friction"], 1 / largest), Full())
    trace = pieces.run(
        f"run {seed}",
        sampler,
        target,
        settings["reference_steps"],
        chains=settings["reference_chains"],
        seed=seed,
        start="mode",
        burn_in=settings["reference_burn_in"],
        thin=settings["reference_thin"],
        threads=threads,
    )
    by_chain = [loss_of(draws.mean(axis=0), split) for draws in trace.draws]
    return {
        "loss": loss_of(trace.mean(), split),
        "error": error_of(trace.mean(), split),
        "uncertainty": float(np.std(by_chain, ddof=1) / np.sqrt(len(by_chain))),
    }


@resumable
def regression_reference(settings: Settings, name: str, folder: Path | None, pieces: Pieces) -> Result:
    """Test error of the exact posterior mean on each reported split."""
    table = load(name, folder)

    def loss(seed: int) -> float:
        split = split_of(settings, name, table, seed)
        return loss_of(posterior(settings, split).mode(), split)

    return {"loss": [pieces.once(f"seed {seed}", loss, seed) for seed in range(settings["seeds"])]}


@resumable
def constants(settings: Settings, name: str, folder: Path | None, accuracy: float, pieces: Pieces) -> Result:
    """The constants of Table 1 on a data set's first split, for chains from the origin, and the accuracy asked for."""

    def of_first_split() -> Result:
        split = split_of(settings, name, load(name, folder), 0)
        problem = theory.Problem.of(posterior(settings, split))
        return {"accuracy": accuracy * problem.scale, "problem": asdict(problem)}

    result: Result = pieces.once("all", of_first_split)
    return result


# Splits: rows to learn from, rows for test, and how they are prepared.


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to learn from and rows for test, of a logistic regression or a linear one."""

    X: Matrix
    y: Array
    X_test: Matrix
    y_test: Array
    logistic: bool


def split_of(settings: Settings, name: str, table: Table, seed: int) -> Split:
    """The publisher's own split, or a random one; of logistic regression, prepared as the settings say.

    Of linear regression, features and target have mean 0 and deviation 1 over the training rows.
    """
    logistic = "preparation" in settings
    preparation: Settings = settings["preparation"][name] if logistic else {"scale": "standard", "intercept": False}
    if table.test is not None:
        split = Split(table.X, table.y, *table.test, logistic)
    else:
        train = preparation["train"] if logistic else round(settings["train"] * table.n)
        order = np.random.default_rng(preparation.get("split_seed", seed)).permutation(table.n)
        split = _divided(table.X, table.y, order[:train], order[train:], logistic)
    if not logistic:
        mean, deviation = split.y.mean(), split.y.std()
        split = replace(split, y=(split.y - mean) / deviation, y_test=(split.y_test - mean) / deviation)
    return _prepared(split, preparation["scale"], preparation["intercept"])


def _one_split(settings: Settings, name: str, table: Table) -> bool:
    """Whether one split serves all seeds."""
    return table.test is not None or "split_seed" in settings.get("preparation", {}).get(name, {})


def _held_out(split: Split, share: float, seed: list[int]) -> Split:
    """The training rows alone, a share of them for test. (The split's columns were scaled by all training rows.)"""
    n = len(split.y)
    order = np.random.default_rng([*seed, 1]).permutation(n)
    return _divided(split.X, split.y, order[round(share * n) :], order[: round(share * n)], split.logistic)


def _divided(X: Matrix, y: Array, rows: Indices, rest: Indices, logistic: bool) -> Split:
    return Split(X[rows], y[rows], X[rest], y[rest], logistic)


def _prepared(split: Split, scale: str, intercept: bool) -> Split:
    if scale == "none" and not intercept:
        return split
    X, X_test = (rows.toarray() if hasattr(rows, "toarray") else rows for rows in (split.X, split.X_test))
    if scale == "standard":
        mean, deviation = X.mean(axis=0), X.std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        X, X_test = (X - mean) / deviation, (X_test - mean) / deviation
    elif scale == "maximum":
        most = np.abs(X).max(axis=0)
        most = np.where(most > 0, most, 1.0).astype(X.dtype)
        X, X_test = X / most, X_test / most
    if intercept:
        X, X_test = (np.column_stack([np.ones(len(rows)), rows]) for rows in (X, X_test))
    return replace(split, X=X, X_test=X_test)


def posterior(settings: Settings, split: Split) -> Any:
    """Given a split's rows to learn from."""
    if split.logistic:
        return targets.logistic(split.X, split.y, settings["prior_precision"])
    return targets.linear(split.X, split.y, settings["noise_variance"], settings["prior_precision"])


def loss_of(x: Array, split: Split) -> float:
    """Mean negative log-likelihood, or mean squared error, on the test rows."""
    predicted = np.asarray(split.X_test @ x, np.float64)
    if split.logistic:
        return float(np.logaddexp(0.0, -np.where(split.y_test > 0, predicted, -predicted)).mean())
    with np.errstate(over="ignore"):  # of a chain that has all but diverged
        return float(((predicted - split.y_test) ** 2).mean())


def error_of(x: Array, split: Split) -> float:
    """The share of wrong labels on the test rows."""
    return float(((split.X_test @ x > 0) != (split.y_test > 0)).mean())


# Tuning and runs of one sampler.


@dataclass(frozen=True, eq=False)
class Work:
    """What the runs of one task share."""

    settings: Settings
    method: str
    threads: int
    pieces: Pieces

    def tuned(self, split: Split, number: int) -> Choice:
        """The setting of the grid for the training rows of a split; `number` picks the parts that are held out."""
        return self._best(grid(self.settings, self.method), split, number)

    def tuned_with_epoch(self, split: Split, number: int, choice: Choice) -> Choice:
        """The same with the length of the epoch, from a setting that was tuned without."""
        factors = itertools.product(self.settings["epoch_factors"], self.settings["step_factors"])
        return self._best([{**choice, "epoch": m, "step": choice["step"] * by} for m, by in factors], split, number)

    def _best(self, choices: list[Choice], split: Split, number: int) -> Choice:
        """The choice with the smallest mean loss on held-out parts of the training rows."""
        folds = self.settings["folds"]
        parts = [_held_out(split, self.settings["held_out"], [number, fold]) for fold in range(folds)]
        posteriors = [posterior(self.settings, part) for part in parts]

        def loss(choice: Choice, fold: int) -> float | None:
            run = self.path(choice, posteriors[fold], parts[fold], self.settings["first_fold"] + fold)
            return None if run is None else float(run["loss"][-1])

        def mean_loss(choice: Choice, upto: int) -> float:
            name = f"{self.method}, number {number}, {choice}, fold "
            losses = [self.pieces.once(f"{name}{fold}", loss, choice, fold) for fold in range(upto)]
            return float(np.mean([np.inf if value is None else value for value in losses]))

        losses_of_first_fold = [(mean_loss(choice, 1), place) for place, choice in enumerate(choices)]
        best_choices = sorted(losses_of_first_fold)[: max(1, round(self.settings["first_share"] * len(choices)))]
        smallest_loss, place = min((mean_loss(choices[place], folds), place) for _, place in best_choices)
        if not np.isfinite(smallest_loss):
            raise requirement(f"the grid of {self.method}", "one with a setting that does not diverge", "none")
        return choices[place]

    def path(self, choice: Choice, target: FiniteSum, split: Split, seed: int) -> Result | None:
        """Loss (and error) of the path average after each pass; None where the chain diverges or is too short."""
        settings, burn_in = self.settings, self.settings["burn_in"]
        options = {"chains": [seed], "seed": seed, "burn_in": burn_in, "threads": self.threads}
        try:
            sampler = self._sampler(choice, target)
            steps = sampler.steps_for(target, settings["passes"])
            if steps < burn_in + settings["least_steps"]:
                return None
            thin = -(-(steps - burn_in) // settings["kept_states"])
            trace = sampler.run(target, steps, thin=thin, **options)
        except (DivergenceError, UnstableStepError):
            return None
        average = np.cumsum(trace.draws[0], axis=0) / np.arange(1, trace.draws.shape[1] + 1)[:, None]
        places = {
            spent: int(np.searchsorted(trace.passes, spent * (1 + 1e-9), side="right")) - 1
            for spent in range(1, settings["passes"] + 1)
        }
        averages = {spent: average[place] for spent, place in places.items() if place >= 0}
        curve: Result = {"passes": list(averages), "loss": [loss_of(x, split) for x in averages.values()]}
        if split.logistic:
            curve["error"] = [error_of(x, split) for x in averages.values()]
        return curve

    def _sampler(self, choice: Choice, target: FiniteSum) -> Sampler:
        """Steps and inverse masses are in units of 1/L (the step of underdamped samplers has no unit)."""
        L, batch = target.smoothness, int(choice["batch_size"])
        options: Result = {"batch_size": batch}
        if "epoch" in choice:
            options["epoch_length"] = max(1, round(choice["epoch"] * target.n / batch))
        if "inverse_mass" in choice:
            mass = choice["inverse_mass"] / L
            return METHODS[self.method](choice["step"], self.settings["friction"], inverse_mass=mass, **options)
        return METHODS[self.method](choice["step"] / L, **options)


def grid(settings: Settings, method: str) -> list[Choice]:
    """Every setting of a sampler: as many for each of them.

    >>> from svrhmc.paper.settings import load_settings
    >>> [len(grid(load_settings()["figure2"], method)) for method in ("sgld", "sg-hmc", "vr-sgld", "svr-hmc")]
    [196, 196, 196, 196]
    """
    axes = grid_axes(settings, method)
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def grid_axes(settings: Settings, method: str) -> dict[str, list[float]]:
    """The settings of a sampler, each with its values on the grid."""
    if method in _OVERDAMPED:
        return {"batch_size": settings["batch_sizes"], "step": _spaced(settings["overdamped_steps"])}
    steps = _spaced(settings["underdamped_steps"])
    return {"batch_size": settings["batch_sizes"], "step": steps, "inverse_mass": settings["inverse_masses"]}


def at_edge(settings: Settings, method: str, choice: Choice) -> list[str]:
    """Which parts of a setting are at an edge of their grid, beyond which other values could be tried.

    There is nothing below a batch of 1, nor above the largest step of the underdamped samplers, whose scheme diverges
    from 1 on, nor above an epoch that is as long as the run.

    >>> from svrhmc.paper.settings import load_settings
    >>> at_edge(load_settings()["figure2"], "sg-hmc", {"batch_size": 1, "step": 0.0012, "inverse_mass": 4096.0})
    ['step', 'inverse mass']
    """
    axes, ends = grid_axes(settings, method), {"batch_size": {1.0}}
    if method not in _OVERDAMPED:
        ends["step"] = {max(axes["step"])}
    if "epoch" in choice:
        axes = {"epoch": settings["epoch_factors"]}
        ends = {"epoch": {factor for factor in axes["epoch"] if factor > settings["passes"]}}
    return [
        name.replace("_", " ")
        for name, values in axes.items()
        if choice[name] in {min(values), max(values)} - ends.get(name, set())
    ]


def _spaced(axis: dict[str, float]) -> list[float]:
    """The values of an axis, evenly spaced in the logarithm, to four digits."""
    return [float(f"{value:.4g}") for value in np.geomspace(axis["largest"], axis["smallest"], int(axis["count"]))]
