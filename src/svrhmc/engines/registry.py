"""Engines by name, and which of them runs a sampler."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import one_of, requirement
from svrhmc.engines.base import Chains, Engine, Setup, State
from svrhmc.targets.forms import rows_of

# Where each is: compiled code is not loaded before it is used. "auto" takes the first that can, after the one that is
# preferred.
_PLACES = {
    "numba": ("svrhmc.engines.compiled", "Compiled"),
    "reference": ("svrhmc.engines.reference", "Reference"),
    "jax": ("svrhmc.engines.jax", "OnJax"),
}
_LOADED: dict[str, Engine] = {}


def names() -> tuple[str, ...]:
    """The names of all engines."""
    return tuple({**_PLACES, **_LOADED})


def register(engine: Engine) -> None:
    """Add an engine of your own, which can then be chosen by its name.

    With engine="auto" it is tried after the built-in ones.
    """
    if not isinstance(engine, Engine):
        raise requirement("engine", "an svrhmc.engines.Engine", repr(engine))
    if "recipe" in signature(engine.supports).parameters:
        why = 'the form is density.form(), and the recipe is sampler.recipe where sampler.kind is "grid"'
        raise requirement("engine", "one with supports(sampler, density)", "supports(form, recipe)", why)
    _LOADED[engine.name] = engine


def load(name: str) -> Engine:
    """The engine of this name."""
    if name not in _LOADED:
        module, kind = _PLACES[name]
        _LOADED[name] = getattr(import_module(module), kind)()
    return _LOADED[name]


def choose(name: str, setup: Setup) -> Engine:
    """The engine of this name; for "auto", the first one that supports this sampler on this target.

    That is a function of the kind of sampler, of the size of the problem and of where its rows are, and of nothing
    else: a seed fixes the draws, and their trace says which engine made them.
    """
    one_of("engine", name, ("auto", *names()))
    own, reasons = _preferred(setup), {}
    for each in sorted(names(), key=lambda other: other != own) if name == "auto" else (name,):
        reason = _reason(load(each), setup)
        if reason is None:
            load(each).check(setup)
            return load(each)
        reasons[each] = reason
    if name == "auto":
        told = "; ".join(f"{each}: {reason}" for each, reason in reasons.items())
        raise requirement("sampler", "one that some engine runs on this target", repr(setup.sampler), told)
    others = [each for each in names() if each != name and _reason(load(each), setup) is None]
    allowed = " or ".join(map(repr, ["auto", *others])) + " for this target and sampler"
    raise requirement("engine", allowed, repr(name), reasons[name])


def _preferred(setup: Setup) -> str | None:
    """The engine that is asked first: NumPy where rows are few or elsewhere, and the sampler needs no more; JAX for its
    functions.
    """
    form, when = setup.form, setup.sampler.in_numpy
    if when == "always" or (when == "small" and _is_small(form)):
        return "reference"
    return getattr(form, "engine", None)


def _is_small(form: Any) -> bool:
    """Whether a target has few rows in memory, or none there."""
    rows = rows_of(form)
    return form is None or (rows is not None and (rows.is_small or not rows.rows.in_memory))


def _reason(engine: Engine, setup: Setup) -> str | None:
    """Why an engine does not run this; None where it does."""
    if setup.devices is not None and not engine.has_devices:
        return "it runs on the cores of the host alone, and devices are given"
    return engine.supports(setup.sampler, setup.target)


def chains(name: str, setup: Setup, state: State) -> Chains:
    """Chains of the engine named."""
    return choose(name, setup).chains(setup, state)


def estimates(setup: Setup, states: Array, step: int) -> Array:
    """The recipe's estimate of ∇f at each state, as that chain of the setup would make it at that step: the same to the
    bit however many states are divided into calls.
    """
    rows = rows_of(setup.form)
    engine = choose("reference" if rows is not None and rows.is_small else "auto", setup)
    if (block := engine.block) is None:
        return engine.estimates(setup, states, step)
    found = np.empty(states.shape)
    for first in range(0, len(states), block):
        some = np.minimum(np.arange(first, first + block), len(states) - 1)  # the last one fills the last block
        there = engine.estimates(replace(setup, chains=setup.chains[some]), states[some], step)
        found[first : first + block] = there[: len(states) - first]
    return found
