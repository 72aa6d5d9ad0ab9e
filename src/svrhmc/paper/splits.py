"""What the experiments on data learn from and are judged by: rows, how they are prepared, loss and error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc import targets
from svrhmc.core.arrays import Array
from svrhmc.paper.data import Table
from svrhmc.paper.settings import Settings


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to learn from and rows to judge by."""

    X: Any
    y: Array
    test: Any
    judged: Array


def target_of(settings: Settings, split: Split, logistic: bool) -> Any:
    """The posterior of a split's rows to learn from."""
    if logistic:
        return targets.logistic(split.X, split.y, settings["prior_precision"])
    return targets.linear(split.X, split.y, settings["noise_variance"], settings["prior_precision"])


def classification_split(settings: Settings, name: str, table: Table, seed: int) -> Split:
    """The publisher's own, or a random one; prepared as the settings say."""
    how = settings["preparation"][name]
    if table.test is not None:
        split = Split(table.X, table.y, *table.test)
    else:
        order = np.random.default_rng(how.get("split_seed", seed)).permutation(table.n)
        rows, rest = order[: how["train"]], order[how["train"] :]
        split = Split(table.X[rows], table.y[rows], table.X[rest], table.y[rest])
    return _prepared(split, how["scale"], how["intercept"])


def regression_split(settings: Settings, table: Table, seed: int) -> Split:
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


def held_out(split: Split, share: float, seed: list[int]) -> Split:
    """The training rows alone, a share of them to judge by. (The split's columns were scaled by all training rows.)"""
    n = len(split.y)
    order = np.random.default_rng([*seed, 1]).permutation(n)
    rest, rows = order[: round(share * n)], order[round(share * n) :]
    return Split(split.X[rows], split.y[rows], split.X[rest], split.y[rest])


def _dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else X


def loss_of(x: Array, split: Split, logistic: bool) -> float:
    """Mean negative log-likelihood, or mean squared error, on the rows to judge by."""
    predicted = np.asarray(split.test @ x, np.float64)
    if logistic:
        return float(np.logaddexp(0.0, -np.where(split.judged > 0, predicted, -predicted)).mean())
    with np.errstate(over="ignore"):  # of a chain that has all but diverged
        return float(((predicted - split.judged) ** 2).mean())


def error_of(x: Array, split: Split) -> float:
    """The share of wrong labels on the rows to judge by."""
    return float(((split.test @ x > 0) != (split.judged > 0)).mean())
