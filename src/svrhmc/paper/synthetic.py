"""Figure 1: W₂ against data passes on the synthetic targets, from chains and from the exact law."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np

from svrhmc import distances, targets, theory
from svrhmc.checkpoint import InMemory, Journal
from svrhmc.core.arrays import Array
from svrhmc.core.storage import Record
from svrhmc.paper.pieces import Pieces
from svrhmc.paper.settings import Settings
from svrhmc.samplers import METHODS, Sampler
from svrhmc.targets.base import Moments
from svrhmc.targets.gaussian import Gaussian
from svrhmc.theory.chain import Chain
from svrhmc.theory.moments import law_of
from svrhmc.theory.quadratic import Quadratic
from svrhmc.theory.recursion import State
from svrhmc.theory.settled import settled_state


def panel(
    settings: Settings, spread: float, dim: int, n: int, method: str, threads: int, journal: Journal | None = None
) -> dict[str, Any]:
    """One sampler in one panel: its best step, the chains' W₂ with what to expect of it, and the exact curve."""
    with Pieces(InMemory() if journal is None else journal) as pieces:
        target = targets.synthetic(n, dim, seed=settings["seed"], spread=spread)
        model = Quadratic.of(target)
        chosen = _best(settings, method, target, model, pieces)
        budget = chosen.steps_for(target, settings["passes"])
        steps = min(int(settings["chain_steps"]), budget)
        thin = max(1, steps // settings["points"])
        panels = list(itertools.product(settings["spreads"], settings["dims"], settings["sizes"]))
        # the same for all samplers of a panel, and of no other
        seed = settings["seed"] + 1 + panels.index((spread, dim, n))

        @cache
        def draws() -> Array:
            options = {"chains": settings["chains"], "seed": seed, "thin": thin, "threads": threads}
            return pieces.run("chains", chosen, target, steps, **options).draws

        looked = list(range(thin, steps + 1, thin))
        line = np.unique(np.geomspace(1, steps, settings["line"]).astype(int)).tolist()
        later = np.unique(np.geomspace(steps, budget, settings["tail"] + 1).astype(int)).tolist()
        chain = Chain(chosen, model, target)
        near = pieces.journal.once("laws", lambda: _laws(chain, sorted({*looked, *line}), looked))
        curve = [(int(step), w2) for step, w2 in near.said["w2"]]
        for step in later:
            if step > steps:
                curve.append((step, pieces.once(f"w2 after {step}", _final, chain, step)))
        pi, rng = target.closed_form, np.random.default_rng([seed, dim, n])

        def point(place: int) -> dict[str, Any]:
            seen = distances.plug_in_w2(draws()[:, place], pi.mean, pi.covariance).value
            x = Moments(near.arrays["means"][place], near.arrays["covariances"][place])
            mean, deviation = expected_plug_in(x, pi, settings["chains"], settings["simulations"], rng)
            return {"w2": seen, "expected": mean, "deviation": deviation, "random": rng.bit_generator.state}

        points = []
        for place, step in enumerate(looked):
            found = pieces.once(f"point {place}", point, place)
            rng.bit_generator.state = found["random"]
            points.append({"step": step, **{name: found[name] for name in ("w2", "expected", "deviation")}})
        reach = {
            str(level): _fewest(settings, method, level, target, model, pieces) for level in settings["thresholds"]
        }
    return {
        "step_size": chosen.dynamics.step_size,
        "floor": distances.plug_in_floor(pi.covariance, settings["chains"]),
        "steps": budget,
        "points": [{**point, **_passes(chosen, target, point["step"])} for point in points],
        "curve": [{"step": step, "w2": w2, **_passes(chosen, target, step)} for step, w2 in curve],
        "reach": reach,
    }


def _best(settings: Settings, method: str, target: Gaussian, model: Quadratic, pieces: Pieces) -> Sampler:
    """With the step that is nearest to π when the budget is spent, by the exact law."""

    def final(sampler: Sampler) -> float:
        eta, steps = sampler.dynamics.step_size, sampler.steps_for(target, settings["passes"])
        w2: float = pieces.once(f"step {eta}", lambda: _final(Chain(sampler, model, target), steps))
        return w2

    return min((_sampler(settings, method, eta) for eta in settings["step_sizes"]), key=final)


def expected_plug_in(x: Moments, pi: Any, size: int, count: int, rng: np.random.Generator) -> tuple[float, float]:
    """Mean and standard deviation of the plug-in W₂ of `size` independent draws from the Gaussian with these moments.

    The sample mean and the sample covariance (a Wishart matrix, by Bartlett's factor) are drawn `count` times.
    """
    spectrum, vectors = np.linalg.eigh(x.covariance)
    root, dim = vectors * np.sqrt(np.maximum(spectrum, 0.0)), len(x.mean)
    values = []
    for _ in range(count):
        factor = np.tril(rng.normal(size=(dim, dim)), -1)
        factor[np.diag_indices(dim)] = np.sqrt(rng.chisquare(size - 1 - np.arange(dim)))
        spread: Array = root @ factor / np.sqrt(size - 1)
        mean = x.mean + root @ rng.normal(size=dim) / np.sqrt(size)
        values.append(distances.gaussian_w2(mean, spread @ spread.T, pi.mean, pi.covariance))
    return float(np.mean(values)), float(np.std(values, ddof=1))


def _sampler(settings: Settings, method: str, eta: float) -> Sampler:
    batch = {} if method == "hmc" else {"batch_size": settings["batch_size"]}
    return METHODS[method](eta, **batch)


def _final(chain: Chain, steps: int) -> float:
    return law_of(chain, chain.after(chain.at(np.zeros(chain.model.dim)), steps), steps).w2


def _laws(chain: Chain, steps: list[int], looked: list[int]) -> Record:
    """Exact laws at some steps, in their order, step by step: W₂ at each, the moments of x at those `looked` at."""
    state, found = chain.at(np.zeros(chain.model.dim)), {}
    for step in range(1, steps[-1] + 1):
        state = chain.step(state, step - 1)
        if step in steps:
            found[step] = law_of(chain, state, step)
    seen = [found[step].position for step in looked]
    moments = {"means": np.stack([x.mean for x in seen]), "covariances": np.stack([x.covariance for x in seen])}
    return Record({"w2": [[step, law.w2] for step, law in found.items()]}, moments)


def _passes(sampler: Sampler, target: Gaussian, steps: int) -> dict[str, float]:
    """Data passes: what is evaluated, and what the paper counts (one gradient for an inner step instead of two)."""
    recipe = sampler.gradient.recipe(target)
    evaluated = recipe.evaluations(steps)
    paper = evaluated - steps * recipe.batch if recipe.reference == "snapshot" else evaluated
    return {"passes": evaluated / target.n, "paper_passes": paper / target.n}


def _fewest(
    settings: Settings, method: str, level: float, target: Gaussian, model: Quadratic, pieces: Pieces
) -> dict[str, float] | None:
    """The fewest passes after which W₂ is below a level, by the exact law, over the grid of steps; None if never."""
    found = []
    for eta in settings["step_sizes"]:
        sampler = _sampler(settings, method, eta)
        steps = pieces.once(f"steps to {level} at {eta}", _steps_to, level, sampler, target, model)
        if steps is not None:
            found.append({"step_size": eta, **_passes(sampler, target, steps)})
    return min(found, key=lambda each: each["passes"], default=None)


def _steps_to(level: float, sampler: Sampler, target: Gaussian, model: Quadratic) -> int | None:
    """The least number of steps after which W₂ is below a level; None if never."""
    chain = Chain(sampler, model, target)
    try:
        if law_of(chain, settled_state(chain), None).w2 >= level:
            return None
    except theory.UnsettledError:
        return None

    def near(state: State) -> bool:
        return law_of(chain, state, None).w2 <= level

    return int(chain.steps_to(chain.at(np.zeros(chain.model.dim)), near))
