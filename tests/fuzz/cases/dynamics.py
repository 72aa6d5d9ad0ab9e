"""Dynamics: the sixteen numbers of each, against fifty digits; settings of any size."""

import numpy as np
from hypothesis import strategies as st

from svrhmc import dynamics, targets

from .. import inputs, oracles
from ..judge import agree, ask, holds
from ..registry import case

NAMES = ("Overdamped", "EulerMaruyama", "Underdamped", "Exponential", "UBU", "BAOAB", "Anchored")
SIMPLE = targets.gaussian([[0.0], [1.0]], [[2.0]])


def settings(name, eta, gamma, u, temperature):
    more = {} if name == "Overdamped" else {"friction": gamma, "inverse_mass": u}
    return ask(getattr(dynamics, name), eta, temperature=temperature, **more)


@case(st.tuples(st.sampled_from(NAMES), inputs.setting, inputs.setting, st.one_of(st.none(), inputs.setting), st.one_of(st.just(1.0), inputs.setting)),
      "svrhmc.dynamics.*", "svrhmc.UnstableStepError", cost=0.003)  # fmt: skip
def schemes(given):
    """Maps and noise by the formulas that are printed, where they are of a size that floats can tell."""
    name, eta, gamma, u, temperature = given
    made = settings(*given)
    holds(ask(repr, made) == repr(settings(*given)) and made == settings(*given), "equal settings, unequal objects")
    ask(made.describe)
    scheme = ask(made.scheme_on, SIMPLE)
    for numbers in scheme.numbers():
        holds(np.isfinite(numbers).all(), f"not finite: {scheme}")
    ask(made.check_stable, SIMPLE)
    u = 0.5 if u is None else u
    if name == "Overdamped":
        agree("the step", scheme.kick.x, eta, 1e-15 * eta)
        agree(
            "the noise", scheme.after_noise.xx, np.sqrt(2 * eta) * np.sqrt(temperature), 1e-14 * scheme.after_noise.xx
        )
        return
    if name in ("BAOAB", "EulerMaruyama", "Anchored"):
        return
    time = eta / 2 if name == "UBU" else eta
    if not (1e-12 < gamma * time < 1e3 and 1e-100 < u < 1e100 and 1e-50 < gamma < 1e50 and 1e-50 < temperature < 1e50):
        return
    xx, xv, vv = oracles.free_noise(time, gamma, u)
    for noise in (scheme.after_noise, *((scheme.before_noise,) if name == "UBU" else ())):
        factor = np.array([[noise.xv, noise.xx], [noise.vv, 0.0]])
        got = factor @ factor.T
        agree(
            "the noise",
            got,
            np.array([[xx, xv], [xv, vv]]) * temperature,
            1e-11 * temperature * np.array([[xx, xv], [xv, vv]]),
        )
    if name in ("Exponential", "UBU"):
        drift, decay = oracles.flow(time, gamma)
        agree("the flow", [scheme.after.xv, scheme.after.vv], [drift, decay], [1e-12 * drift, 1e-12 * max(decay, 1e-4)])


@case(st.sampled_from([None, 1, "Underdamped", dynamics.UBU, object]), "svrhmc.dynamics.require_dynamics")
def no_dynamics(given):
    """What is none is refused."""
    from ..judge import refuses

    refuses(dynamics.require_dynamics, given, match="dynamics must be one of svrhmc.dynamics")


@case(st.tuples(st.sampled_from(NAMES), inputs.setting, inputs.setting), "svrhmc.dynamics.*")
def stability(given):
    """What is refused as unstable grows, and what is allowed does not."""
    name, eta, curvature = given
    made = settings(name, eta, 2.0, None if name != "Anchored" else 1.0, 1.0)
    target = ask(targets.gaussian, [[0.0]], [[curvature]])
    from svrhmc import UnstableStepError

    from ..judge import RefusedError

    try:
        ask(made.check_stable, target)
    except RefusedError as refused:
        if isinstance(refused.error, UnstableStepError):
            holds(
                ask(made.scheme_on, target).growth(target.smoothness) > 1, f"a stable step was refused: {refused.error}"
            )
        return
    growth = ask(made.scheme_on, target).growth(target.smoothness)
    holds(growth <= 1 + 1e-9, f"growth {growth} was allowed")
