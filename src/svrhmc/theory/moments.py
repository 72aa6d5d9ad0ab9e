"""The exact law of a sampler on a quadratic target: no simulation, no bound (ours).

Mean and covariance are exact always; the law itself is Gaussian where the gradient has no noise. Where it has, W₂
between Gaussians of these moments is a lower bound on W₂ (Gelbrich 1990). How they are found is in
`svrhmc.theory.chain`, and for SAGA in `svrhmc.theory.table`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement, whole
from svrhmc.distances import gaussian_w2
from svrhmc.samplers import Sampler
from svrhmc.targets.base import FiniteSum, Moments, require_target
from svrhmc.theory.chain import Chain
from svrhmc.theory.problem import Start, starting_point
from svrhmc.theory.quadratic import Quadratic
from svrhmc.theory.recursion import Recursion, State
from svrhmc.theory.settled import settled_state
from svrhmc.theory.table import TableChain


@dataclass(frozen=True, eq=False)
class Law:
    """Mean (2·dim) and covariance (2·dim, 2·dim) of (x, v) after `step` steps (None: stationary), and the passes spent.

    `target` has the moments of e^{−f/T} at the temperature T of the dynamics (1 unless it is set), and `w2` is the
    distance of x to it, by these moments.
    """

    step: int | None
    passes: float
    mean: Array
    covariance: Array
    target: Moments

    @property
    def position(self) -> Moments:
        """Mean and covariance of x alone."""
        dim = len(self.mean) // 2
        return Moments(self.mean[:dim], self.covariance[:dim, :dim])

    @cached_property
    def w2(self) -> float:
        """W₂ between the Gaussian with these moments of x and the target."""
        x, pi = self.position, self.target
        return gaussian_w2(x.mean, x.covariance, pi.mean, pi.covariance)


def laws(sampler: Sampler, target: FiniteSum, steps: int, start: Start = None) -> Iterator[Law]:
    """The law after 0, 1, …, `steps` steps, from a fixed start (None: the origin; "mode"; a point) and
    velocity 0.

    >>> from svrhmc import svr_hmc, targets
    >>> *_, last = laws(svr_hmc(step_size=0.1), targets.synthetic(n=50, dim=2), steps=100)
    >>> last.position.mean.shape
    (2,)
    """
    chain = recursion_of(sampler, target)
    state = chain.at(starting_point(target, start))
    yield law_of(chain, state, 0)
    for step in range(whole("steps", steps, 0)):
        state = chain.step(state, step)
        yield law_of(chain, state, step + 1)


def law(sampler: Sampler, target: FiniteSum, steps: int, start: Start = None) -> Law:
    """The law after `steps` steps. For a common S the time grows only with the logarithm of the number of steps.

    >>> from svrhmc import hmc, targets
    >>> float(round(law(hmc(step_size=1e-6), targets.synthetic(n=5000, dim=50), steps=10**9).w2, 9))
    1.227e-06
    """
    chain, steps = recursion_of(sampler, target), whole("steps", steps, 0)
    state = chain.after(chain.at(starting_point(target, start)), steps)
    return law_of(chain, state, steps)


def stationary(sampler: Sampler, target: FiniteSum) -> Law:
    """The distribution to which the sampler settles; with snapshots, the one at the end of an epoch.

    >>> from svrhmc import hmc, targets
    >>> settled = stationary(hmc(step_size=0.1, inverse_mass=2 / 3), targets.gaussian([[3.0]], [[1.2]]))
    >>> float(settled.covariance[0, 0].round(9))  # 1/1.2 is 0.833333333
    0.86858999
    """
    chain = recursion_of(sampler, target)
    return law_of(chain, settled_state(chain), None)


def law_of(chain: Recursion, state: State, step: int | None) -> Law:
    """The law that a chain has in this state, after so many steps (None: stationary)."""
    passes = math.inf if step is None else chain.recipe.evaluations(step) / chain.recipe.n
    return Law(step, passes, *chain.moments(state), chain.goal)


def recursion_of(sampler: Sampler, target: FiniteSum) -> Recursion:
    """The moments of a sampler on a quadratic target."""
    if not hasattr(sampler, "dynamics"):
        raise requirement("sampler", "a Sampler, such as svr_hmc(0.1)", repr(sampler))
    recipe = sampler.gradient.recipe(require_target(target))
    if recipe.reference == "table":
        return TableChain(sampler, target)
    return Chain(sampler, Quadratic.of(target, recipe), target)
