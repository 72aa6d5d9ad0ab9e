"""Figure 1: W₂ against data passes on the synthetic targets, from chains and from the exact law."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from svrhmc import distances, targets, theory
from svrhmc.core.arrays import Array
from svrhmc.paper.settings import Settings
from svrhmc.samplers import METHODS, Sampler
from svrhmc.targets.gaussian import Gaussian
from svrhmc.theory.chain import Chain, State
from svrhmc.theory.moments import law_of
from svrhmc.theory.quadratic import Quadratic
from svrhmc.theory.settled import settled_state


def panel(settings: Settings, spread: float, dim: int, n: int, method: str, threads: int) -> dict[str, Any]:
    """One sampler in one panel: its best step, the chains' W₂ with what to expect of it, and the exact curve."""
    target = targets.synthetic(n, dim, seed=settings["seed"], spread=spread)
    model = Quadratic.of(target)
    chosen = min(
        (_sampler(settings, method, eta) for eta in settings["step_sizes"]),
        key=lambda sampler: _final(Chain(sampler, model, target), sampler.steps_for(target, settings["passes"])),
    )
    budget = chosen.steps_for(target, settings["passes"])
    steps = min(int(settings["chain_steps"]), budget)
    thin = max(1, steps // settings["points"])
    panels = list(itertools.product(settings["spreads"], settings["dims"], settings["sizes"]))
    seed = (
        settings["seed"] + 1 + panels.index((spread, dim, n))
    )  # the same for all samplers of a panel, and of no other
    trace = chosen.run(target, steps, chains=settings["chains"], seed=seed, thin=thin, threads=threads)
    looked = [thin * (k + 1) for k in range(trace.draws.shape[1])]
    line = np.unique(np.geomspace(1, steps, settings["line"]).astype(int)).tolist()
    later = np.unique(np.geomspace(steps, budget, settings["tail"] + 1).astype(int)).tolist()
    exact = _curve(Chain(chosen, model, target), sorted({*looked, *line}), [step for step in later if step > steps])
    pi, rng = target.closed_form, np.random.default_rng([seed, dim, n])
    points = []
    for place, step in enumerate(looked):
        law = exact[step]
        seen = distances.plug_in_w2(trace.draws[:, place], pi.mean, pi.covariance).value
        mean, deviation = expected_plug_in(law, pi, settings["chains"], settings["simulations"], rng)
        points.append({"step": step, "w2": seen, "expected": mean, "deviation": deviation})
    return {
        "step_size": chosen.dynamics.step_size,
        "floor": distances.plug_in_floor(pi.covariance, settings["chains"]),
        "steps": budget,
        "points": [{**point, **_passes(chosen, target, point["step"])} for point in points],
        "curve": [{"step": step, "w2": law.w2, **_passes(chosen, target, step)} for step, law in exact.items()],
        "reach": {str(level): _fewest(settings, method, level, target, model) for level in settings["thresholds"]},
    }


def expected_plug_in(law: theory.Law, pi: Any, size: int, count: int, rng: np.random.Generator) -> tuple[float, float]:
    """Mean and standard deviation of the plug-in W₂ of `size` independent draws from N(mean, covariance) of a law.

    The sample mean and the sample covariance (a Wishart matrix, by Bartlett's factor) are drawn `count` times.
    """
    x = law.position
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


def _curve(chain: Chain, near: list[int], far: list[int]) -> dict[int, theory.Law]:
    """Exact laws at some steps, in their order: near ones step by step, far ones by matrix powers."""
    start = chain.at(np.zeros(chain.model.dim))
    state, found = start, {}
    for step in range(1, near[-1] + 1):
        state = chain.step(state, step - 1)
        if step in near:
            found[step] = law_of(chain, state, step)
    return found | {step: law_of(chain, chain.after(start, step), step) for step in far}


def _passes(sampler: Sampler, target: Gaussian, steps: int) -> dict[str, float]:
    """Data passes: what is evaluated, and what the paper counts (one gradient for an inner step instead of two)."""
    recipe = sampler.gradient.recipe(target)
    evaluated = recipe.evaluations(steps)
    paper = evaluated - steps * recipe.batch if recipe.reference == "snapshot" else evaluated
    return {"passes": evaluated / target.n, "paper_passes": paper / target.n}


def _fewest(
    settings: Settings, method: str, level: float, target: Gaussian, model: Quadratic
) -> dict[str, float] | None:
    """The fewest passes after which W₂ is below a level, by the exact law, over the grid of steps; None if never."""
    found = []
    for eta in settings["step_sizes"]:
        sampler = _sampler(settings, method, eta)
        chain = Chain(sampler, model, target)
        try:
            if law_of(chain, settled_state(chain), None).w2 >= level:
                continue
        except theory.UnsettledError:
            continue

        def near(state: State, chain: Chain = chain) -> bool:
            return law_of(chain, state, None).w2 <= level

        steps = chain.steps_to(chain.at(np.zeros(target.dim)), near)
        found.append({"step_size": eta, **_passes(sampler, target, steps)})
    return min(found, key=lambda each: each["passes"], default=None)
