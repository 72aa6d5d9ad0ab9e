"""Compile ahead what users will need, so that no first run waits for it: in an image, on a new machine, in a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc import exact, samplers, targets
from svrhmc.core.errors import requirement
from svrhmc.density.base import FiniteSum
from svrhmc.posterior import usual_settings
from svrhmc.sampling.run import find_answer

_ROWS, _COLUMNS = 7_000, 3  # more than small problems have, for which nothing is compiled
_MANY = 1 << 14  # rows of 32 columns, which are gone through by compiled passes


@dataclass(frozen=True)
class Kind:
    """A model, how its rows are stored, and in which precision."""

    model: str
    storage: str
    precision: str

    def __str__(self) -> str:
        return f"{self.model} model, {self.storage} rows, {self.precision}"


MODELS: dict[str, Callable[..., FiniteSum]] = {"logistic": targets.logistic, "linear": targets.linear}
KINDS = tuple(Kind(m, s, p) for m in MODELS for s in ("dense", "sparse") for p in ("float64", "float32"))


def warm(kinds: tuple[Kind, ...] = KINDS, say: Callable[[str], None] = print) -> float:
    """Compile, or load, the loops of the grid, of `sample` and of the exact samplers, and say how long each took.

    Gives the seconds in all. What is compiled is kept where `svrhmc.core.code_cache.cache_folder` says.

    >>> warm((Kind("logistic", "dense", "float64"),), say=lambda line: None) > 0
    True
    """
    total = 0.0
    for number, kind in enumerate(kinds, start=1):
        began = time.perf_counter()
        _use(kind)
        took = time.perf_counter() - began
        total += took
        say(f"[{number}/{len(kinds)}] {kind}: {took:.1f} s")
    return total


def _use(kind: Kind) -> None:
    """A few steps of everything on a target that takes next to no time."""
    if kind.model not in MODELS:
        raise requirement("model", "one of " + ", ".join(MODELS), kind.model)
    target = _target(kind, _ROWS, _COLUMNS)
    for sampler in (samplers.svr_hmc(0.01), samplers.saga_hmc(0.01)):  # the shorter loop and the longer one
        sampler.run(target, 4, chains=1, progress=False)
    if kind.storage == "dense":
        _target(kind, _MANY, 32).warm()
    if target.closed_form is None:
        for method in ("split-hmc", "subsampled-mh", "anchored"):
            few = {"draws": 50, "chains": 2, "tolerance": 10.0, "method": method, "progress": False}
            find_answer(target, None, **{**usual_settings(), **few})
        exact.SplitHMC().run(target, 2, whitening="low rank", progress=False)


def _target(kind: Kind, rows: int, columns: int) -> Any:
    rng = np.random.default_rng(0)
    X: Any = rng.normal(size=(rows, columns)).astype(kind.precision)
    if kind.storage == "sparse":
        from scipy.sparse import csr_matrix

        X = csr_matrix(X)
    return MODELS[kind.model](X, (rng.random(rows) < 0.5).astype(float))
