"""Cases by name, and the public names that they cover."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import svrhmc
from svrhmc import diagnostics, estimators, fitting, posterior, sampler_comparison
from svrhmc.tables import numbers as files

from . import judge

MODULES = [
    svrhmc, svrhmc.targets, svrhmc.theory, svrhmc.engines, svrhmc.gradients, svrhmc.whitening, svrhmc.exact,
    svrhmc.data, posterior, estimators, fitting,
]  # fmt: skip
OPEN = [
    svrhmc.dynamics,
    svrhmc.distances,
    svrhmc.targets.families,
    svrhmc.targets.priors,
    files,
    diagnostics,
    sampler_comparison,
]
METHODS_OF = (
    "svrhmc.Trace", "svrhmc.Posterior", "svrhmc.Sampler", "svrhmc.Summary", "svrhmc.targets.FiniteSum",
    "svrhmc.targets.GeneralisedLinear", "svrhmc.targets.Gaussian", "svrhmc.targets.Custom", "svrhmc.theory.Problem",
    "svrhmc.exact.SplitHMC", "svrhmc.exact.SubsampledMH", "svrhmc.whitening.Whitening", "svrhmc.theory.Plan",
    "svrhmc.estimators.BayesianLogisticRegression", "svrhmc.estimators.BayesianRegression",
    "svrhmc.estimators.BayesianPoissonRegression", "svrhmc.estimators.BayesianNegativeBinomialRegression",
)  # fmt: skip
COMMANDS = ("fit", "predict", "compare", "compare-samplers", "plan", "reproduce", "warm")
CASES: dict[str, Case] = {}
_PARTS = (
    "targets", "dynamics", "gradients", "samplers", "theory", "distances", "whitening", "exact", "posteriors", "tables",
    "traces", "files", "shell", "data", "models",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One kind of call: how its input is made, what is asked, and which public names that covers.

    cost: seconds of an example, roughly; share: how often it has its turn beside the others.
    """

    name: str
    strategy: Any
    check: Callable[[Any], None]
    covers: tuple[str, ...]
    cost: float
    numba: bool


def case(strategy: Any, *covers: str, cost: float = 0.01, numba: bool = False) -> Callable[[Any], Any]:
    """Declare a case. numba: whether it compiles code that the default tests would have to wait for."""

    def declare(check: Any) -> Any:
        name = f"{check.__module__.rsplit('.', 1)[1]}.{check.__name__}"
        CASES[name] = Case(name, strategy, check, covers, cost, numba)
        return check

    return declare


def load(*more: str) -> dict[str, Case]:
    """All cases, and those of other modules of this folder."""
    for part in _PARTS:
        importlib.import_module(f"{__package__}.cases.{part}")
    for part in more:
        importlib.import_module(f"{__package__}.{part}")
    return CASES


def run(one: Case, given: Any) -> None:
    """One example; an input that is refused in the package's own words is one that is dealt with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how inputs are made; those of calls are judged where they are made
        try:
            one.check(given)
        except judge.RefusedError:
            return


def public_names() -> set[str]:
    """Every public function and class, methods of the classes that users hold, and the commands of the shell."""
    found = {
        f"{module.__name__}.{name}"
        for module in MODULES
        for name in module.__all__
        if inspect.isclass(getattr(module, name)) or callable(getattr(module, name))
    }
    found |= {f"svrhmc.{name}" for name in svrhmc._ESTIMATORS}
    for module in OPEN:
        found |= {
            f"{module.__name__}.{name}"
            for name, thing in vars(module).items()
            if not name.startswith("_")
            and (inspect.isclass(thing) or inspect.isfunction(thing))
            and thing.__module__ == module.__name__
        }
    for place in METHODS_OF:
        module, name = place.rsplit(".", 1)
        kind = getattr(importlib.import_module(module), name)
        found |= {
            f"{place}.{method}"
            for method, thing in inspect.getmembers(kind)
            if not method.startswith("_")
            and (inspect.isfunction(thing) or isinstance(thing, property))
            and getattr(thing, "__module__", "svrhmc").startswith("svrhmc")
        }
    return found | {f"svrhmc {command}" for command in COMMANDS}


def covered() -> set[str]:
    """The public names that some case declares; `name.*` stands for a class and all its methods."""
    declared = {name for one in load().values() for name in one.covers}
    stars = tuple(name[:-1] for name in declared if name.endswith(".*"))
    return {
        name for name in public_names()
        if name in declared or (stars and (name.startswith(stars) or f"{name}." in stars))
    }  # fmt: skip
