"""Figure 1: W₂ against data passes on the synthetic targets, by the exact law for every step and by chains.

The paper does not give its steps. So each sampler is given every step of a fine grid, and what is drawn is the least W₂
over the grid at each number of passes: the envelope. Chains are run where a claim rests: with the steps that are first
at the distances that the claims are about, and beyond, to where such a step settles.
"""

from __future__ import annotations

import itertools

import numpy as np

from svrhmc import distances, targets
from svrhmc.core.arrays import Array
from svrhmc.core.storage import Record
from svrhmc.density.base import Moments
from svrhmc.density.gaussian import Gaussian
from svrhmc.paper.journal import Pieces, resumable
from svrhmc.paper.settings import Result, Settings
from svrhmc.samplers import METHODS, Sampler
from svrhmc.theory.moments import Chain, law_of
from svrhmc.theory.quadratic import Quadratic

COUNTS = ("passes", "paper_passes")  # gradients evaluated; the paper's count: one for an inner step instead of two


@resumable
def panel(settings: Settings, spread: float, dim: int, n: int, method: str, threads: int, pieces: Pieces) -> Result:
    """One sampler in one panel: its envelope, the passes it needs to each distance, and chains that confirm them."""
    target = targets.synthetic(n, dim, seed=settings["seed"], spread=spread)
    model = Quadratic.of(target)
    panels = list(itertools.product(settings["spreads"], settings["dims"], settings["sizes"]))
    # the same for all samplers of a panel, and of no other
    seed = settings["seed"] + 1 + panels.index((spread, dim, n))
    samplers = {eta: _sampler(settings, method, eta) for eta in step_sizes(settings)}

    def chain(eta: float) -> Chain:
        return Chain(samplers[eta], model, target)

    curves = {
        eta: pieces.once(f"curve at {eta}", _curve, settings, chain(eta), sampler, target)
        for eta, sampler in samplers.items()
    }
    fewest = {}
    for level in settings["thresholds"]:
        steps = {
            eta: pieces.once(f"steps to {level} at {eta}", _steps_to, level, chain(eta), *between)
            for eta, between in _candidates(curves, level).items()
        }
        fewest[str(level)] = _fewest(steps, samplers, target)
    runs = []
    for level, beyond in zip(settings["thresholds"], settings["beyond"][str(spread)], strict=False):
        best = fewest[str(level)]
        if best is not None:
            eta = best["passes"]["step_size"]
            count = min(int(beyond * best["passes"]["steps"]) + 1, settings["chain_steps"])
            chains = _Chains(settings, chain(eta), samplers[eta], target, count, seed, threads, pieces, str(level))
            curve = [dict(zip(("w2", *COUNTS), point[1:], strict=True)) for point in curves[eta]]
            runs.append({"level": level, "step_size": eta, "points": chains.points(), "curve": curve})
    return {"envelope": _envelope(curves), "reach": fewest, "runs": runs}


def step_sizes(settings: Settings) -> list[float]:
    """The grid: `per_decade` steps a decade from the largest down to the smallest, to four digits.

    >>> step_sizes({"largest_step": 1.0, "smallest_step": 0.1, "per_decade": 2})
    [1.0, 0.3162, 0.1]
    """
    largest, smallest, per_decade = settings["largest_step"], settings["smallest_step"], settings["per_decade"]
    count = round(per_decade * np.log10(largest / smallest))
    return [float(f"{largest * 10 ** (-k / per_decade):.4g}") for k in range(count + 1)]


def _curve(settings: Settings, chain: Chain, sampler: Sampler, target: Gaussian) -> list[list[float]]:
    """[step, W₂, passes, the paper's passes], at passes spaced evenly in the logarithm, while the law is finite."""
    least = max(settings["first_pass"], sampler.gradient.recipe(target).evaluations(1) / target.n)
    spent = np.geomspace(least, settings["passes"], settings["line"])
    steps = sorted({sampler.steps_for(target, float(passes)) for passes in spent})
    curve = []
    for step, state in zip(steps, chain.states_after(chain.state_at(np.zeros(target.dim)), steps), strict=True):
        if not np.isfinite(state.C).all() or np.abs(state.C).max() > 1e12:
            break
        curve.append([step, law_of(chain, state, step).w2, *_passes(sampler, target, step).values()])
    return curve


def _envelope(curves: dict[float, list[list[float]]]) -> list[Result]:
    """The least W₂ over the steps after so many steps, hence passes, with the step that has it."""
    envelope: list[Result] = []
    for number in sorted({int(point[0]) for curve in curves.values() for point in curve}):
        points = [(*point[1:], eta) for eta, curve in curves.items() for point in curve if point[0] == number]
        w2, passes, paper, eta = min(points, key=lambda point: point[0])
        edge = eta in (min(curves), max(curves))
        envelope.append({"passes": passes, "paper_passes": paper, "w2": w2, "step_size": eta, "edge": edge})
    return envelope


def _candidates(curves: dict[float, list[list[float]]], level: float) -> dict[float, tuple[int, int]]:
    """The steps whose curve may be the first below a level, and the points between which it first goes below.

    Those that are above it for the last time where another has not yet gone below.
    """
    between = {}
    for eta, curve in curves.items():
        below = next((place for place, point in enumerate(curve) if point[1] <= level), None)
        if below is not None:
            between[eta] = ([0, 0, 0.0, 0.0] if below == 0 else curve[below - 1], curve[below])
    least = [min((after[place] for _, after in between.values()), default=0.0) for place in (2, 3)]
    return {
        eta: (int(before[0]), int(after[0]))
        for eta, (before, after) in between.items()
        if before[2] <= least[0] or before[3] <= least[1]
    }


def _fewest(steps: dict[float, int], samplers: dict[float, Sampler], target: Gaussian) -> dict[str, Result] | None:
    """The fewest passes to a distance over the grid, by each count, and at which step; None if no step gets there."""
    edges = (min(samplers), max(samplers))
    reached = [
        {"step_size": eta, "steps": count, "edge": eta in edges} | _passes(samplers[eta], target, count)
        for eta, count in steps.items()
    ]
    return {count: min(reached, key=lambda choice: choice[count]) for count in COUNTS} if reached else None


class _Chains:
    """Chains of one sampler, and at some of their steps the plug-in W₂ with what to expect of it."""

    def __init__(
        self, settings: Settings, chain: Chain, sampler: Sampler, target: Gaussian, steps: int, seed: int,
        threads: int, pieces: Pieces, name: str,
    ) -> None:  # fmt: skip
        self._settings, self._chain, self._sampler, self._target = settings, chain, sampler, target
        self._pieces, self._name, self._seed, self._threads = pieces, name, seed, threads
        kept = min(settings["kept"], steps)
        self._thin = steps // kept
        self._steps = kept * self._thin
        self._draws: Array | None = None
        places = np.unique(np.geomspace(1, kept, settings["points"]).round().astype(int)).tolist()
        self._looked_at = [place * self._thin for place in places]

    def points(self) -> list[dict[str, float]]:
        """Step, passes, plug-in W₂ and its expectation and deviation under the exact law, and the exact W₂."""
        laws = self._pieces.journal.once(f"laws to {self._name}", self._laws)
        rng = np.random.default_rng([self._seed, self._target.dim, self._target.n])
        points = []
        for place, step in enumerate(self._looked_at):
            point = self._pieces.once(f"point {place} to {self._name}", self._point, place, laws, rng)
            rng.bit_generator.state = point["random"]
            kept = {name: point[name] for name in ("w2", "expected", "deviation", "exact")}
            points.append({"step": step, **kept, **_passes(self._sampler, self._target, step)})
        return points

    def _laws(self) -> Record:
        start = self._chain.state_at(np.zeros(self._target.dim))
        laws = [law_of(self._chain, state, None) for state in self._chain.states_after(start, self._looked_at)]
        means = np.stack([law.position.mean for law in laws])
        covariances = np.stack([law.position.covariance for law in laws])
        return Record({"w2": [law.w2 for law in laws]}, {"means": means, "covariances": covariances})

    def _point(self, place: int, laws: Record, rng: np.random.Generator) -> Result:
        settings, pi = self._settings, self._target.closed_form
        draws = self._drawn()[:, self._looked_at[place] // self._thin - 1]
        w2 = distances.plug_in_w2(draws, pi.mean, pi.covariance).value
        x = Moments(laws.arrays["means"][place], laws.arrays["covariances"][place])
        mean, deviation = expected_plug_in(x, pi, settings["chains"], settings["simulations"], rng)
        exact = laws.value("w2", lambda _, distances: float(distances[place]))
        state = rng.bit_generator.state
        return {"w2": w2, "expected": mean, "deviation": deviation, "exact": exact, "random": state}

    def _drawn(self) -> Array:
        if self._draws is None:
            options = {"chains": self._settings["chains"], "seed": self._seed, "thin": self._thin}
            name = f"chains to {self._name}"
            trace = self._pieces.run(name, self._sampler, self._target, self._steps, threads=self._threads, **options)
            self._draws = trace.draws
        return self._draws


def expected_plug_in(x: Moments, pi: Moments, size: int, count: int, rng: np.random.Generator) -> tuple[float, float]:
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


def _passes(sampler: Sampler, target: Gaussian, steps: int) -> dict[str, float]:
    """Data passes by both counts."""
    recipe = sampler.gradient.recipe(target)
    evaluated = recipe.evaluations(steps)
    paper = evaluated - steps * recipe.batch if recipe.reference == "snapshot" else evaluated
    return dict(zip(COUNTS, (evaluated / target.n, paper / target.n), strict=True))


def _steps_to(level: float, chain: Chain, above: int, below: int) -> int:
    """The number of steps, between two of them, after which W₂ goes below a level: by bisection."""
    start = chain.state_at(np.zeros(chain.model.dim))
    while below - above > 1:
        middle = (above + below) // 2
        [state] = chain.states_after(start, [middle])
        if law_of(chain, state, None).w2 <= level:
            below = middle
        else:
            above = middle
    return below
