"""Theory: laws against those by hand, bounds and complexities against their formulas in many digits."""

import math
from contextlib import suppress

import mpmath
import numpy as np
from hypothesis import strategies as st

import hand_written_laws as hand
import svrhmc
from svrhmc import dynamics, gradients, targets, theory

from .. import inputs
from ..judge import RefusedError, agree, ask, holds
from ..registry import case
from .gradients import SMALL, make
from .targets import quadratics

METHODS = ("lmc", "hmc", "sgld", "sg-hmc", "svr-hmc")
method = inputs.often(st.sampled_from(METHODS), st.sampled_from(["vr-sgld", "saga-ld", "saga-hmc", "x", None]))
constant = inputs.often(inputs.tame_positive, inputs.setting, st.integers(-60, 60).map(lambda k: 10.0**k))
accuracy = inputs.often(st.sampled_from([0.1, 1.0, 0.01]), constant)


@st.composite
def problems(draw):
    L, mu = draw(constant), draw(constant)
    if isinstance(L, float) and isinstance(mu, float) and mu > L:
        L, mu = mu, L
    variance = draw(st.one_of(st.none(), st.just(0.0), constant))
    rough = draw(inputs.often(st.none(), st.just(L), constant, times=2))
    return (draw(inputs.count), draw(inputs.count), L, mu, draw(st.one_of(st.just(0.0), constant)), variance, rough, draw(st.booleans()), draw(st.booleans()))  # fmt: skip


def problem(given):
    return ask(theory.Problem, *given)


@case(problems(), "svrhmc.theory.Problem.*")
def facts(given):
    """Constants are as given, or refused."""
    made = problem(given)
    ask(str, made)
    holds(made.condition_number >= 1 - 1e-9, f"κ = {made.condition_number}")
    agree("κ", made.condition_number, made.smoothness / made.convexity, 0)
    holds(made.scale > 0 and made.variance_ratio >= 1 - 1e-9, "a scale or ratio out of range")


def table(made, eps, name, printed):
    """Rows of Table 1 in many digits."""
    with mpmath.workdps(40):
        n, d, L, mu, e = (mpmath.mpf(each) for each in (made.n, made.dim, made.smoothness, made.convexity, eps))
        k, delta = L / mu, e / mpmath.sqrt(d / mu)
        V = None if made.gradient_variance is None else mpmath.mpf(made.gradient_variance)
        rho = mpmath.mpf(1) if made.component_smoothness is None else mpmath.mpf(made.component_smoothness) / L
        rho = rho if made.convex_components else rho**2
        if name == "lmc":
            return n * k**2 / delta**2
        if name == "hmc":
            return n * k**2 / delta
        if name in ("sgld", "sg-hmc"):
            noise = V / (mu * e) ** 2
            return noise if printed else noise + k**2 / (delta**2 if name == "sgld" else delta)
        power = mpmath.mpf(3) / 4 if printed else mpmath.mpf(4) / 3
        return n + k**2 / delta + k**power * (rho * n**2 / delta**2) ** (mpmath.mpf(1) / 3)


@case(st.tuples(problems(), accuracy, method, st.booleans()), "svrhmc.theory.complexity", "svrhmc.theory.Complexity", "svrhmc.theory.Term",
      "svrhmc.theory.compare", "svrhmc.theory.Comparison", "svrhmc.theory.boundaries", "svrhmc.theory.regimes", "svrhmc.theory.Regime", "svrhmc.theory.crossings",
      "svrhmc.theory.optimal_step", cost=0.02)  # fmt: skip
def complexities(given):
    """Table 1, by its formulas in many digits."""
    facts, eps, name, printed = given
    made = problem(facts)
    found = ask(theory.complexity, made, eps, name, printed)
    exact = table(made, eps, name, printed)
    agree("the total", found.total, float(exact), 1e-9 * float(exact))
    holds(found.dominant.value <= found.total, "a term above the total")
    with suppress(RefusedError):
        step = ask(theory.optimal_step, made, eps, name, printed)
        holds(step.value > 0, "a step of 0")
    compared = ask(theory.compare, made, eps, printed)
    ask(str, compared)
    totals = {row.method: row.total for row in compared.rows}
    holds(totals[compared.cheapest] == min(totals.values()), "not the cheapest")
    edges = ask(theory.boundaries, made, eps)
    holds(all(value > 0 for key, value in edges.items() if key != "n2"), "an edge at 0")
    found = ask(theory.regimes, made, eps, printed)
    holds(found[0].low == 1 and math.isinf(found[-1].high), "regimes that do not cover all n")
    ask(theory.crossings, made, eps, printed=printed)


@case(st.tuples(problems(), st.one_of(st.sampled_from([1e-3, 1e-6]), inputs.setting), inputs.count, st.one_of(st.none(), inputs.count), inputs.count, st.sampled_from(["svr-hmc", "hmc", "lmc", 1]), st.booleans()),
      "svrhmc.theory.bound", "svrhmc.theory.repaired_bound", "svrhmc.theory.constants", "svrhmc.theory.Bound", "svrhmc.theory.Condition", "svrhmc.theory.Constants", cost=0.005)  # fmt: skip
def bounds(given):
    """Theorem 1 in many digits; the repaired bound falls with the steps, and starts at w₀."""
    facts, eta, steps, epoch, batch, name, printed = given
    made = problem(facts)
    found = ask(theory.bound, made, eta, steps, epoch, batch, name, printed)
    ask(str, found)
    ask(lambda: found.proved)
    with mpmath.workdps(40):
        d, L, mu, R, e = (mpmath.mpf(each) for each in (made.dim, made.smoothness, made.convexity, made.radius, eta))
        k = L / mu
        Ux = 42 * d / mu + 24 * R**2 + 8 * d / L
        Uv, Uf = 80 * d / mu + 48 * R**2 + 18 * d / L, L * Ux / 2
        first = (8 * e**2 / 5 + mpmath.mpf(4) / 3) if printed else mpmath.mpf(10) / 3
        D1 = first * Uv + 4 * Uf / (3 * L) + 16 * d * e / (3 * L)
        D2 = 13 * Uv + 8 * Uf / L + (28 if printed else 8) * d * e / L
        D3 = (1 if printed else 2) * Uv + 4 * d / L
        away = mpmath.sqrt(d / mu) + R
        w0 = away if printed else mpmath.sqrt(2 * away**2 + d / L)
        m = 0 if name == "hmc" else (max(1, made.n // batch) if epoch is None else epoch)
        rho = mpmath.mpf(made.variance_ratio) / batch
        terms = (
            mpmath.exp(-steps * e / (2 * k)) * w0,
            4 * e * k * (2 * mpmath.sqrt(D1) + mpmath.sqrt(D2)),
            2 * mpmath.sqrt(k * D3 * rho) * m * e ** mpmath.mpf(1.5),
        )
        exact = [float(each) for each in terms]
    agree(
        "the terms",
        [found.start, found.discretisation, found.variance],
        exact,
        [1e-6 * each + 1e-300 for each in exact],
    )
    ours = ask(theory.repaired_bound, made, eta, steps, epoch, batch, name)
    more = ask(theory.repaired_bound, made, eta, 2 * steps + 1, epoch, batch, name)
    holds(more.value <= ours.value * (1 + 1e-9), "a bound that grows with the steps")
    ask(theory.constants, made, eta, printed)


@case(
    st.tuples(inputs.anything, inputs.anything, inputs.anything, inputs.anything, inputs.count),
    "svrhmc.theory.recursion_bound",
)
def recursion(given):
    """Lemma 5: the recursion itself stays below it."""
    A, B, C, start, steps = given
    top = ask(theory.recursion_bound, A, B, C, start, steps)
    x = float(start)
    if max(B, C, x) < 1e100:
        for _ in range(min(steps, 200)):
            x = math.sqrt(((1 - A) * x + C) ** 2 + B**2)
        holds(steps > 200 or x <= top * (1 + 1e-9) + 1e-300, f"{x} above {top}")


@case(st.tuples(problems(), inputs.setting, inputs.setting, inputs.setting, st.one_of(st.just(2.0), inputs.setting), st.one_of(st.none(), inputs.setting), inputs.count),
      "svrhmc.theory.diffusion_bounds", "svrhmc.theory.energy_bounds", "svrhmc.theory.PathBounds")  # fmt: skip
def paths(given):
    """Lemmas 10 and 12 by their formulas."""
    facts, time, potential, speed, friction, u, steps = given
    made = problem(facts)
    found = ask(theory.diffusion_bounds, made, time, potential, speed, friction, u)
    mass = 1 / made.smoothness if u is None else u
    with mpmath.workdps(40):
        t, p, s, g, w = (mpmath.mpf(each) for each in (time, potential, speed, friction, mass))
        gained = g * made.dim * t
        exact = [
            float(each)
            for each in (
                2 * w * (p + gained) + s,
                p + s / (2 * w) + gained,
                2 * mpmath.mpf(made.smoothness) * (p + s / (2 * w) + gained),
            )
        ]
    if inputs.inf in exact:  # one of them is beyond float64, and the others may go by way of it
        return
    agree("Lemma 10", [found.speed, found.potential, found.gradient], exact, [1e-9 * each for each in exact])
    energy = ask(theory.energy_bounds, made, min(time, 0.25) if isinstance(time, float) else time, steps)
    holds(energy.speed >= 0 and energy.potential >= 0, "below 0")


@case(st.tuples(inputs.count, inputs.count, constant, constant, accuracy, method, st.one_of(st.none(), constant), st.booleans(), st.one_of(st.none(), constant)),
      "svrhmc.theory.general_complexity", "svrhmc.theory.other_rates", "svrhmc.theory.OtherRate", "svrhmc.theory.regularisation_distance")  # fmt: skip
def general(given):
    """Theorem 2 as Table 1 of the regularised problem."""
    n, dim, L, M, eps, name, rough, convex, variance = given
    with suppress(RefusedError):
        agree(
            "the distance",
            ask(theory.regularisation_distance, L, M),
            0.5 * math.sqrt(L) * math.sqrt(M),
            1e-9 * math.sqrt(L) * math.sqrt(M),
        )
    with suppress(RefusedError):
        for rate in ask(theory.other_rates, n, dim, eps, M):
            holds(rate.own > 0 and rate.gradients > 0 and rate.needed > 0, "a rate of 0")
    found = ask(theory.general_complexity, n, dim, L, M, eps, name, rough, convex, variance)
    strength = eps**2 / M
    again = theory.Problem(
        n, dim, L + strength, strength, 0.0, variance, None if rough is None else rough + strength, convex
    )
    exact = float(table(again, eps / 2, name, False))
    agree("the total", found.total, exact, 1e-9 * exact)


KIND = {
    "Overdamped": "overdamped",
    "EulerMaruyama": "euler",
    "Underdamped": "paper",
    "Exponential": "exponential",
    "UBU": "ubu",
    "BAOAB": "baoab",
}
STEPS = st.sampled_from([0.01, 0.1, 0.5])


@case(st.tuples(quadratics(tame=True), st.sampled_from(sorted(KIND)), SMALL, st.integers(0, 6), STEPS),
      "svrhmc.theory.law", "svrhmc.theory.laws", "svrhmc.theory.Law", cost=0.02)  # fmt: skip
def laws(given):
    """The law of a sampler, by going through the components by hand."""
    (centers, precision), kind, gradient, steps, eta = given
    target = ask(targets.gaussian, centers, precision, tame=True)
    sampler = svrhmc.Sampler(
        getattr(dynamics, kind)(eta / max(1, target.smoothness), *(() if kind == "Overdamped" else (2.0, 1.0))),
        make(gradient),
    )
    found = ask(theory.law, sampler, target, steps)
    *_, last = ask(lambda: list(theory.laws(sampler, target, steps)))
    size = np.abs(found.covariance).max() + np.abs(found.mean).max() ** 2 + 1
    agree("the last law", last.covariance, found.covariance, 1e-9 * size)
    agree("the last law's mean", last.mean, found.mean, 1e-9 * size)
    ask(lambda: found.w2)
    name, numbers = gradient
    if (
        name == "SAGA"
        or (name == "SVRG" and numbers[3] is not None)
        or (name != "Full" and numbers[-1])
        or (name == "ControlVariate" and numbers[2] == 2)
    ):
        return
    n = target.n
    S = (
        np.broadcast_to(np.array(precision), (n, target.dim, target.dim))
        if np.ndim(precision) == 2
        else np.array(precision)
    )
    if name != "Full" and not numbers[{"Minibatch": 1, "SVRG": 2, "ControlVariate": 1}[name]] and n == 1:
        return
    word = {"Full": "full", "Minibatch": "sg", "SVRG": "svr", "ControlVariate": "cv"}[name]
    B = 1 if name == "Full" else numbers[0]
    replacement = name == "Full" or numbers[{"Minibatch": 1, "SVRG": 2, "ControlVariate": 1}[name]]
    m = 1 if name != "SVRG" else numbers[1] or max(1, n // B)
    mean, covariance = hand.law(
        hand.Quadratic(S, np.array(centers)),
        KIND[kind],
        word,
        steps,
        eta=sampler.dynamics.step_size,
        gamma=2.0,
        u=1.0,
        B=B,
        m=m,
        replacement=replacement,
    )
    agree("the mean", found.mean, mean, 1e-8 * size * (1 + target.condition_number * 1e-3))
    agree("the covariance", found.covariance, covariance, 1e-8 * size * (1 + target.condition_number * 1e-3))


@case(
    st.tuples(quadratics(tame=True), st.sampled_from(sorted(KIND)), SMALL, STEPS),
    "svrhmc.theory.stationary",
    "svrhmc.theory.UnsettledError",
    cost=0.05,
)
def settled(given):
    """A stationary law stays as it is after many steps."""
    (centers, precision), kind, gradient, eta = given
    target = ask(targets.gaussian, centers, precision, tame=True)
    sampler = svrhmc.Sampler(
        getattr(dynamics, kind)(eta / max(1, target.smoothness), *(() if kind == "Overdamped" else (2.0, 1.0))),
        make(gradient),
    )
    found = ask(theory.stationary, sampler, target)
    rate = (
        target.convexity if kind == "Overdamped" else min(0.4 * target.convexity, 0.5)
    )  # a velocity forgets by friction
    slow = sampler.dynamics.step_size * rate * 20_000
    if slow < 40 or gradient[0] in ("SAGA", "SVRG"):
        return
    late = ask(theory.law, sampler, target, 20_000)
    size = np.abs(found.covariance).max() + np.abs(found.mean).max() ** 2 + 1
    agree("the law after many steps", late.covariance, found.covariance, 1e-5 * size)


@case(st.tuples(st.one_of(problems(), st.tuples(st.integers(1, 1000), st.integers(1, 20), inputs.tame_positive, st.just(0.125))), accuracy, st.one_of(st.sampled_from(["svr-hmc", "hmc", "lmc", "sgld", "sg-hmc", "vr-sgld"]), method), st.sampled_from(["exact", "exact", "corollary", "repaired", "x"])),
      "svrhmc.theory.plan", "svrhmc.theory.Plan.*", cost=0.3)  # fmt: skip
def plans(given):
    """A plan keeps its promise, by the law or the bound that it names."""
    facts, eps, name, rule = given
    made = problem(facts)
    found = ask(theory.plan, made, eps, name, rule)
    ask(str, found)
    for each in ("order", "step_size", "batch_size", "epoch_length", "passes"):
        ask(lambda each=each: getattr(found, each))
    if found.order:
        return
    holds(found.w2 <= eps * (1 + 1e-9), f"W₂ {found.w2} above {eps}")
    holds(found.steps >= 1 and found.gradient_evaluations > 0, "no steps")
    agree(
        "the cost",
        found.gradient_evaluations,
        found.sampler.gradient.evaluations(made, found.steps),
        1e-6 * found.gradient_evaluations,
    )
    if rule == "repaired":
        agree(
            "the bound",
            ask(theory.repaired_bound, made, found.step_size, found.steps, found.epoch_length, method=name).value,
            found.w2,
            1e-6 * found.w2,
        )


@case(
    st.tuples(
        quadratics(tame=True),
        accuracy,
        st.sampled_from(["svr-hmc", "hmc", "lmc", "sgld", "saga-hmc"]),
        st.one_of(st.none(), st.just("mode"), inputs.numbers(2, inputs.plain)),
    ),
    "svrhmc.theory.plan",
    "svrhmc.theory.Problem.of",
    cost=0.5,
)
def plans_for_targets(given):
    """The law of the planned run on the target itself."""
    (centers, precision), eps, name, start = given
    target = ask(targets.gaussian, centers, precision, tame=True)
    if isinstance(start, tuple):
        start = (start * 2)[: target.dim]
    found = ask(theory.plan, target, eps, name, "exact", start)
    if found.steps < 10**5:
        law = ask(theory.law, found.sampler, target, found.steps, start)
        holds(law.w2 <= eps * 1.01, f"the law is at {law.w2}, the plan says {found.w2} for {eps}")


@case(
    st.tuples(
        st.integers(1, 6),
        st.integers(1, 2),
        st.sampled_from(["hmc", "sgld", "svr_hmc", "lmc"]),
        inputs.setting,
        inputs.setting,
        st.integers(2, 20),
    ),
    "svrhmc.sampler_comparison.*",
    "svrhmc.compare_samplers",
    cost=0.05,
)
def comparisons(given):
    """Curves of samplers; the exact ones are those of the laws."""
    n, dim, name, step, passes, chains = given
    if isinstance(passes, float) and passes > 50:
        passes = 50.0
    target = targets.synthetic(n, dim)
    sampler = ask(getattr(svrhmc, name), step)
    [curve] = ask(svrhmc.compare_samplers, target, [(name, sampler)], passes, chains, engine="reference")
    if curve.steps < 100:
        points = len(curve.exact)
        law = theory.law(sampler, target, points * (curve.steps // points))  # every so many steps there is a point
        agree("the last exact distance", curve.exact[-1], law.w2, 1e-9 * (1 + law.w2))
    holds(curve.at(passes) is not None, "no point within the budget")
    holds(gradients.Full() == gradients.Full(), "equal settings, unequal objects")
