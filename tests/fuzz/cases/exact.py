"""Samplers with a Metropolis step."""

import numpy as np
from hypothesis import strategies as st

from svrhmc import engines, exact, targets

from .. import inputs
from ..judge import agree, ask, holds
from ..registry import case
from .samplers import LINES, ROWS
from .targets import build, models


@case(st.tuples(st.sampled_from(["SplitHMC", "SubsampledMH"]), st.lists(inputs.anything, max_size=3), st.sampled_from(["rows", "lines"]), st.one_of(st.integers(1, 5), inputs.count),
                st.one_of(st.integers(0, 5), inputs.count), inputs.seeds, st.sampled_from([None, None, "dense", "diagonal", "x", 3])),
      "svrhmc.exact.SplitHMC.*", "svrhmc.exact.SubsampledMH.*", cost=0.1, numba=True)  # fmt: skip
def runs(given):
    """Any settings: finite draws of the right shape and an acceptance between 0 and 1, or a refusal."""
    name, numbers, where, draws, burn_in, seed, how = given
    sampler = ask(getattr(exact, name), *numbers)
    target = ROWS if where == "rows" else LINES
    for value in (draws, burn_in):
        if isinstance(value, int) and not isinstance(value, bool) and value > 10**4:
            draws = burn_in = 3
    if name == "SplitHMC" and len(numbers) > 1 and isinstance(numbers[1], int) and numbers[1] > 100:
        return
    trace = ask(sampler.run, target, draws, chains=2, seed=seed, burn_in=burn_in, whitening=how)
    holds(trace.draws.shape == (2, draws, target.dim) and np.isfinite(trace.draws).all(), f"draws {trace.draws}")
    holds((trace.acceptance >= 0).all() and (trace.acceptance <= 1).all(), f"acceptance {trace.acceptance}")
    some = ask(sampler.run, target, draws, chains=[1], seed=seed, burn_in=burn_in, whitening=how)
    holds((some.draws[0] == trace.draws[1]).all(), "chains depend on each other")
    ask(sampler.smaller)
    ask(sampler.settings)


@case(
    st.tuples(models(odd=False), st.sampled_from(["SplitHMC", "SubsampledMH"])),
    "svrhmc.exact.SplitHMC.run",
    cost=0.3,
    numba=True,
)
def families(given):
    """All families, with rows in several layouts."""
    model, name = given
    target = build(model)
    trace = ask(getattr(exact, name)().run, target, 20, chains=2, burn_in=5)
    holds(np.isfinite(trace.draws).all(), "not finite")


@case(st.integers(0, 20), "svrhmc.exact.SplitHMC.run", cost=0.1, numba=True)
def law(seed):
    """On a Gaussian posterior every proposal of split HMC is accepted, and the mean is that of the closed form."""
    target = targets.linear(np.vander(np.linspace(-1, 1, 9), 2), np.arange(9.0))
    trace = ask(exact.SplitHMC().run, target, 800, chains=4, seed=seed)
    known = target.closed_form
    holds((trace.acceptance > 0.999).all(), f"acceptance {trace.acceptance}")
    agree("the mean", trace.mean(), known.mean, 6 * np.sqrt(np.diag(known.covariance) * 4 / 3200))


class Normal:
    """N(centre, I), as a density from outside."""

    n, dim = 1, 2

    def __init__(self, centre):
        self.centre = centre

    def energies(self, z):
        return 0.5 * ((z - self.centre) ** 2).sum(axis=1), z - self.centre

    def out(self, state, first=0):
        return state


@case(st.tuples(st.floats(-3, 3), st.integers(0, 20)), "svrhmc.engines.Density", cost=0.1)
def densities(given):
    """A density with four methods is sampled as it is, by the reference engine."""
    centre, seed = given
    density = Normal(centre)
    holds(isinstance(density, engines.Density), "it is no density")
    trace = ask(exact.SplitHMC().run, density, 800, chains=4, seed=seed)
    holds(trace.engine == "reference", trace.engine)
    agree("the mean", trace.mean(), np.full(2, centre), 6 * np.sqrt(4 / 3200))
