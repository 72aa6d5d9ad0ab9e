"""A claim and the verdict of the runs on it: it holds, it does not, or it cannot be told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.paper.settings import Result

Results = dict[str, Result]  # of tasks, by their names
OURS = "svr-hmc"  # the sampler that the claims are about
PAPER, CHECK = "the paper", "our check"  # who says it


@dataclass(frozen=True)
class Claim:
    """A claim: whose it is, its text, the threshold that decides it, the verdict, and the numbers."""

    whose: str
    text: str
    threshold: str
    verdict: str
    numbers: str


Claims = list[Claim]


def finished(result: Result) -> list[Result]:
    """The runs that did not diverge."""
    return [run for run in result["runs"] if run is not None]


def by_pass(runs: list[Result]) -> tuple[list[int], Array]:
    """The passes that all runs report, and their losses at these: (run, pass)."""
    passes = sorted(set.intersection(*(set(run["passes"]) for run in runs)))
    losses = [dict(zip(run["passes"], run["loss"], strict=True)) for run in runs]
    return passes, np.array([[of_run[spent] for spent in passes] for of_run in losses])


def paired_gaps(other: Result, ours: Result) -> tuple[list[int], Array] | None:
    """The passes, and the losses of another sampler less ours at these passes, (seed, pass), for seeds at which neither
    diverged; None if there is no such seed.
    """
    pairs = [pair for pair in zip(other["runs"], ours["runs"], strict=True) if None not in pair]
    if not pairs:
        return None
    passes, losses = by_pass([run for pair in pairs for run in pair])
    return passes, losses[::2] - losses[1::2]


@dataclass(frozen=True)
class Gap:
    """The loss of another sampler less ours, seed by seed: the mean over all passes and the last pass, with their
    standard errors.
    """

    mean: tuple[float, float]
    end: tuple[float, float]
    median: float

    @staticmethod
    def between(other: Result, ours: Result) -> Gap:
        """The gap between two samplers on the same splits; not a number if at no seed both have a run."""
        paired = paired_gaps(other, ours)
        if paired is None:
            return Gap((np.nan, np.inf), (np.nan, np.inf), np.nan)
        means = paired[1].mean(axis=1)
        return Gap(with_error(means), with_error(paired[1][:, -1]), float(np.median(means)))


def with_error(values: Array | list[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    return float(np.mean(values)), float(error)


def signed(mean: float, error: float) -> str:
    """A mean with its sign and its standard error.

    >>> signed(0.123, 0.04)
    '+0.12 ± 0.04'
    """
    return f"{mean:+.2g} ± {error:.2g}"


def sign(mean: float, error: float, errors: float) -> str:
    """The verdict on the claim that a mean is positive, decided if it is more than `errors` standard errors from 0.

    >>> [sign(mean, 1.0, 2.0) for mean in (3.0, 1.0, -3.0)]
    ['holds', 'cannot be told', 'does not']
    """
    return "holds" if mean > errors * error else "does not" if mean < -errors * error else "cannot be told"


def joint(verdicts: Iterable[str]) -> str:
    """The verdict on a claim about all: it does not hold if one does not, and holds if all hold.

    >>> joint(["holds", "cannot be told"])
    'cannot be told'
    """
    kinds = set(verdicts)
    return "does not" if "does not" in kinds else "holds" if kinds == {"holds"} else "cannot be told"


def yes(holds: bool) -> str:
    """The verdict on a claim that is known to hold or not."""
    return "holds" if holds else "does not"
