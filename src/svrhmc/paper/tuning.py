"""How the samplers of Figures 2 and 3 are tuned: one rule for all, on grids of one size.

The rule, for every sampler and every reported split: of all settings of its grid (step, batch, and for underdamped
samplers inverse mass), the one with the least loss of the path average after all passes, on held-out parts of the
split's training rows. The whole grid is tried on a first part; the best of it, a fixed share, on all parts. So no test
row of a run has been seen when its settings are chosen. Settings that diverge, or make too few steps, are out.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc.core.errors import DivergenceError, UnstableStepError, requirement
from svrhmc.paper.pieces import Pieces
from svrhmc.paper.settings import Settings
from svrhmc.paper.splits import Split, error_of, held_out, loss_of, target_of
from svrhmc.samplers import METHODS, Sampler
from svrhmc.targets.base import FiniteSum

Choice = dict[str, float]
_OVERDAMPED = ("sgld", "vr-sgld")


@dataclass(frozen=True, eq=False)
class Work:
    """What the runs of one task share."""

    settings: Settings
    method: str
    logistic: bool
    threads: int
    pieces: Pieces

    def tuned(self, split: Split, number: int) -> Choice:
        """The setting of the grid for the training rows of a split; `number` picks the parts that are held out."""
        return self.best_of(grid(self.settings, self.method), split, number)

    def tuned_with_epoch(self, split: Split, number: int, choice: Choice) -> Choice:
        """The same with the length of the epoch, from a setting that was tuned without."""
        factors = itertools.product(self.settings["epoch_factors"], self.settings["step_factors"])
        return self.best_of([{**choice, "epoch": m, "step": choice["step"] * by} for m, by in factors], split, number)

    def best_of(self, choices: list[Choice], split: Split, number: int) -> Choice:
        """The one with the least mean loss on held-out parts of the training rows."""
        folds = self.settings["folds"]
        parts = [held_out(split, self.settings["held_out"], [number, fold]) for fold in range(folds)]
        subjects = [(target_of(self.settings, part, self.logistic), part) for part in parts]

        def loss(choice: Choice, fold: int) -> float | None:
            run = self.path(choice, *subjects[fold], self.settings["first_fold"] + fold)
            return None if run is None else float(run["loss"][-1])

        def mean(choice: Choice, upto: int) -> float:
            name = f"{self.method}, number {number}, {choice}, fold "
            found = [self.pieces.once(f"{name}{fold}", loss, choice, fold) for fold in range(upto)]
            return float(np.mean([np.inf if value is None else value for value in found]))

        first = [(mean(choice, 1), place) for place, choice in enumerate(choices)]
        kept = sorted(first)[: max(1, round(self.settings["first_share"] * len(choices)))]
        value, place = min((mean(choices[place], folds), place) for _, place in kept)
        if not np.isfinite(value):
            raise requirement(f"the grid of {self.method}", "one with a setting that does not diverge", "none")
        return choices[place]

    def path(self, choice: Choice, target: FiniteSum, split: Split, seed: int) -> dict[str, Any] | None:
        """Loss (and error) of the path average after each pass; None where the chain diverges or is too short."""
        settings = self.settings
        burn_in = settings["burn_in"]
        options = {"chains": [seed], "seed": seed, "burn_in": burn_in, "threads": self.threads}
        try:
            sampler = self.sampler(choice, target)
            steps = sampler.steps_for(target, settings["passes"])
            if steps < burn_in + settings["least_steps"]:
                return None
            thin = -(-(steps - burn_in) // settings["kept_states"])
            trace = sampler.run(target, steps, thin=thin, **options)
        except (DivergenceError, UnstableStepError):
            return None
        average = np.cumsum(trace.draws[0], axis=0) / np.arange(1, trace.draws.shape[1] + 1)[:, None]
        found: dict[str, Any] = {"passes": [], "loss": []}
        if self.logistic:
            found["error"] = []
        for spent in range(1, settings["passes"] + 1):
            place = int(np.searchsorted(trace.passes, spent * (1 + 1e-9), side="right")) - 1
            if place >= 0:
                found["passes"].append(spent)
                found["loss"].append(loss_of(average[place], split, self.logistic))
                if self.logistic:
                    found["error"].append(error_of(average[place], split))
        return found

    def sampler(self, choice: Choice, target: FiniteSum) -> Sampler:
        """Steps and inverse masses are in units of 1/L (the step of underdamped samplers has no unit)."""
        L, batch = target.smoothness, int(choice["batch_size"])
        options: dict[str, Any] = {"batch_size": batch}
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
    """What a sampler's settings consist of, each with its values."""
    if method in _OVERDAMPED:
        return {"batch_size": settings["batch_sizes"], "step": _spaced(settings["overdamped_steps"])}
    steps = _spaced(settings["underdamped_steps"])
    return {"batch_size": settings["batch_sizes"], "step": steps, "inverse_mass": settings["inverse_masses"]}


def at_edge(settings: Settings, method: str, choice: Choice) -> list[str]:
    """What of a setting stands at an edge of its grid beyond which there would be something to try.

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
    """Evenly in the logarithm, to four digits."""
    return [float(f"{value:.4g}") for value in np.geomspace(axis["largest"], axis["smallest"], int(axis["count"]))]
