"""Gradients: recipes against a count by hand, estimates against the whole gradient."""

import numpy as np
from hypothesis import strategies as st

from svrhmc import engines, gradients, targets
from svrhmc.core.randomness import Stream

from .. import inputs
from ..judge import agree, ask, holds, refuses
from ..registry import case
from .targets import build, models

KINDS = {
    "Full": st.tuples(), "Minibatch": st.tuples(inputs.count, st.booleans(), st.booleans()),
    "SVRG": st.tuples(inputs.count, st.one_of(st.none(), inputs.count), st.booleans(), st.one_of(st.none(), inputs.count), st.booleans()),
    "SAGA": st.tuples(inputs.count, st.booleans(), st.booleans()),
    "ControlVariate": st.tuples(inputs.count, st.booleans(), st.one_of(st.just(1), st.just(2), inputs.count), st.booleans()),
}  # fmt: skip
ANY = st.sampled_from(sorted(KINDS)).flatmap(lambda name: st.tuples(st.just(name), KINDS[name]))
SMALL = st.sampled_from(sorted(KINDS)).flatmap(
    lambda name: st.tuples(st.just(name), {
        "Full": st.tuples(), "Minibatch": st.tuples(st.integers(1, 4), st.booleans(), st.booleans()),
        "SVRG": st.tuples(st.integers(1, 4), st.one_of(st.none(), st.integers(1, 5)), st.booleans(), st.one_of(st.none(), st.integers(1, 4)), st.booleans()),
        "SAGA": st.tuples(st.integers(1, 4), st.booleans(), st.booleans()),
        "ControlVariate": st.tuples(st.integers(1, 4), st.booleans(), st.integers(1, 2), st.booleans()),
    }[name]))  # fmt: skip


def make(given):
    name, numbers = given
    return ask(getattr(gradients, name), *numbers)


def counted(name, numbers, n, scalar, steps):
    """Component gradients by going through the steps."""
    total = 0
    for step in range(steps):
        if name == "Full":
            total += n
            continue
        B = numbers[0]
        if name == "Minibatch":
            total += B
        elif name == "SVRG":
            period = max(1, n // B) if numbers[1] is None else numbers[1]
            if step % period == 0:
                total += n if numbers[3] is None else numbers[3]
            total += B if scalar and numbers[3] is None else 2 * B
        else:
            total += (n if step == 0 else 0) + (B if name == "SAGA" or scalar else 2 * B)
    return total


@case(st.tuples(ANY, st.integers(1, 30), st.booleans(), st.integers(0, 40), st.one_of(st.integers(0, 2000), inputs.positive)),
      "svrhmc.gradients.Full", "svrhmc.gradients.Minibatch", "svrhmc.gradients.SVRG", "svrhmc.gradients.SAGA",
      "svrhmc.gradients.ControlVariate", "svrhmc.gradients.Recipe", "svrhmc.gradients.Gradient", "svrhmc.gradients.Batched", cost=0.002)  # fmt: skip
def costs(given):
    """What a run costs, and how far a budget goes."""
    kind, n, scalar, steps, budget = given
    gradient = make(kind)
    target = targets.linear(np.ones((n, 1)), np.arange(n)) if scalar else targets.synthetic(n, 1)
    recipe = ask(gradient.recipe, target)
    cost = ask(gradient.evaluations, target, steps)
    holds(cost == counted(*kind, n, scalar, steps), f"{cost} evaluations, counted {counted(*kind, n, scalar, steps)}")
    within = ask(recipe.steps_within, budget, 10**6)
    holds(within == 0 or recipe.evaluations(within) <= budget, "over the budget")
    holds(within == 10**6 or recipe.evaluations(within + 1) > budget, f"{within} steps, but one more is affordable")


@case(
    st.tuples(models(odd=False), SMALL, st.integers(0, 3)),
    "svrhmc.gradients.Estimator",
    "svrhmc.engines.estimates",
    "svrhmc.gradients.Memory",
    cost=0.02,
)
def estimates(given):
    """All rows, each once, are the whole gradient; a reference at x itself has no noise."""
    model, kind, seed = given
    target, gradient = build(model), make(kind)
    chains = np.arange(3)
    estimator = ask(gradient.estimator, target, Stream(seed, chains))
    x = np.tile(np.cos(np.arange(target.dim)), (3, 1))
    first = ask(estimator, x, 0)
    whole = ask(target.gradients, x)
    size = np.abs(ask(target.component_gradients, x[0], np.arange(target.n))).max(axis=0) + 1
    name, numbers = kind
    exact = name == "Full" or (name == "SVRG" and numbers[3] is None) or name == "SAGA"
    exact = exact or (name == "Minibatch" and not numbers[1] and numbers[0] == target.n)
    if exact:
        agree("the estimate", first, whole, model[1].digits * 10 * size)
    ask(lambda: estimator.memory)
    if name != "Full":
        ask(estimator, x + 0.125, 1)


@case(st.sampled_from([None, 1, "SVRG", gradients.SVRG]), "svrhmc.gradients.require_gradient")
def no_gradient(given):
    """What is none is refused."""
    refuses(gradients.require_gradient, given, match="gradient must be one of svrhmc.gradients")


@case(st.tuples(inputs.count, inputs.count, st.sampled_from(["evenly", "distinct", "weighted", "x"]), st.sampled_from(["none", "snapshot", "mode", "table", "x"]),
                inputs.count, inputs.count, st.booleans(), inputs.count), "svrhmc.gradients.Recipe")  # fmt: skip
def recipes(given):
    """Recipes of any numbers."""
    recipe = ask(gradients.Recipe, *given)
    ask(recipe.check)
    holds(ask(recipe.evaluations, 3) >= 0, "a cost below 0")
    ask(recipe.due, 2)
    for name in ("full", "carries", "replacement", "weighted", "rows_at_once", "rows_of_estimate", "epoch"):
        ask(lambda name=name: getattr(recipe, name))


@case(st.tuples(inputs.whole, inputs.whole, st.integers(0, 30)), "svrhmc.engines.Keep")
def keeps(given):
    """Which states are kept, by going through them."""
    first, thin, end = given
    if not (1 <= first <= 1 << 62 and 1 <= thin <= 1 << 62):
        return
    keep = engines.Keep(first, thin)
    by_hand = [k for k in range(1, end + 1) if k >= first and (k - first) % thin == 0]
    holds(ask(keep.count, end) == len(by_hand), "another number of states")
    for begin in range(0, end + 1, 7):
        holds(ask(keep.within, begin, end).tolist() == [k for k in by_hand if k > begin], "other states")
