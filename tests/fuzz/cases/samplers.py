"""Samplers: settings of any size, runs against each other, the reference engine against the compiled one."""

import numpy as np
from hypothesis import strategies as st

import svrhmc
from svrhmc import dynamics, engines, targets

from .. import inputs
from ..judge import RefusedError, agree, ask, holds, refuses
from ..registry import case
from .gradients import SMALL, make
from .targets import build, models, quadratics

NAMES = (
    "lmc",
    "sgld",
    "vr_sgld",
    "hmc",
    "sg_hmc",
    "svr_hmc",
    "svrg_ubu",
    "sgld_cv",
    "cv_hmc",
    "saga_ld",
    "saga_hmc",
    "saga_ubu",
)
ALL = tuple(f"svrhmc.{name}" for name in NAMES)
QUADRATIC = targets.synthetic(6, 2, spread=0.5)
ROWS = targets.logistic([[1.0, 0.5], [1.0, -1.0], [0.0, 2.0], [1.0, 0.25], [-1.0, 1.0], [0.5, 0.5]], [0, 1, 1, 0, 1, 0])
LINES = targets.linear(
    [[1.0, 0.5], [1.0, -1.0], [0.0, 2.0], [1.0, 0.25], [-1.0, 1.0], [0.5, 0.5]], [0.0, 1.0, 2.0, 0.0, 1.0, -1.0]
)
GIVEN = {"quadratic": QUADRATIC, "rows": ROWS, "lines": LINES}


@st.composite
def settings(draw):
    name = draw(st.sampled_from(NAMES))
    said = {"step_size": draw(inputs.often(st.sampled_from([0.01, 0.1]), inputs.setting))}
    if name.endswith(("hmc", "ubu")) and draw(st.booleans()):
        said["friction"] = draw(inputs.setting)
    if name.endswith(("hmc", "ubu")) and draw(st.booleans()):
        said["inverse_mass"] = draw(inputs.setting)
    if name not in ("lmc", "hmc"):
        said["batch_size"] = draw(inputs.count)
        said["replacement"] = draw(st.booleans())
    if name in ("vr_sgld", "svr_hmc", "svrg_ubu"):
        said["epoch_length"] = draw(st.one_of(st.none(), inputs.count))
    return name, said


def run(sampler, target, **said):
    return ask(sampler.run, target, **said)


@case(st.tuples(settings(), st.sampled_from(sorted(GIVEN)), st.integers(1, 12)|inputs.count, inputs.seeds,
                st.one_of(st.integers(1, 3), inputs.count, st.lists(st.integers(0, 6), max_size=3)), st.one_of(st.none(), st.just("mode"), inputs.words, inputs.numbers(2))),
      *ALL, "svrhmc.Sampler.*", "svrhmc.DivergenceError", cost=0.02)  # fmt: skip
def runs(given):
    """Any settings: a run of the reference engine is finite and has the shape and cost that were asked for, or is refused."""
    (name, said), where, steps, seed, chains, start = given
    sampler = ask(getattr(svrhmc, name), **said)
    ask(repr, sampler)
    target = GIVEN[where]
    if isinstance(steps, int) and not isinstance(steps, bool) and steps > 1000:
        refuses_or_large(sampler, target, steps, seed)
        return
    if isinstance(chains, int) and chains > 1000:
        return  # a large array is a large array
    try:
        trace = run(sampler, target, steps=steps, seed=seed, chains=chains, start=start, engine="reference")
    except RefusedError as refused:
        if isinstance(refused.error, svrhmc.DivergenceError):
            holds(refused.error.step_size > 0 and refused.error.step >= 1, "no advice")
        raise
    count = chains if isinstance(chains, int) else len(chains)
    holds(trace.draws.shape == (count, steps, target.dim), f"shape {trace.draws.shape}")
    holds(np.isfinite(trace.draws).all(), "draws that are not finite")
    holds(trace.gradient_evaluations == sampler.gradient.evaluations(target, steps), "another cost")
    agree(
        "passes",
        trace.passes,
        [sampler.gradient.evaluations(target, k + 1) / target.n for k in range(steps)],
        1e-12 * trace.passes,
    )
    ask(repr, trace)


def refuses_or_large(sampler, target, steps, seed):
    if steps > 1 << 53:
        refuses(sampler.run, target, steps=steps, seed=seed if 0 <= seed < 2**64 else 0, match="")


@case(st.tuples(settings(), st.sampled_from(sorted(GIVEN)), inputs.setting), "svrhmc.Sampler.steps_for", cost=0.003)
def budgets(given):
    """As many steps as a budget in passes allows, by the recipe's own cost."""
    (name, said), where, passes = given
    sampler, target = ask(getattr(svrhmc, name), **said), GIVEN[where]
    steps = ask(sampler.steps_for, target, passes)
    cost = sampler.gradient.evaluations
    holds(cost(target, steps) <= passes * target.n * (1 + 1e-9), "over the budget")
    holds(cost(target, steps + 1) > passes * target.n * (1 - 1e-9), "one more step is affordable")


@case(st.tuples(SMALL, st.sampled_from(["Overdamped", "Underdamped", "UBU", "BAOAB", "Exponential", "EulerMaruyama"]), st.sampled_from(sorted(GIVEN)),
                st.integers(2, 12), st.integers(0, 10), st.integers(1, 3), st.integers(0, 3)), "svrhmc.Sampler.run", "svrhmc.engines.State", "svrhmc.engines.Chains",
      "svrhmc.engines.Extension", "svrhmc.engines.Setup", "svrhmc.engines.Grid", "svrhmc.engines.chains", "svrhmc.engines.Engine", cost=0.02)  # fmt: skip
def pieces(given):
    """A run does not depend on which chains run beside it, on what is kept, or on where it is cut."""
    kind, name, where, steps, burn_in, thin, seed = given
    target = GIVEN[where]
    sampler = svrhmc.Sampler(getattr(dynamics, name)(0.01), make(kind))
    whole = run(sampler, target, steps=steps, chains=3, seed=seed, engine="reference")
    some = run(sampler, target, steps=steps, chains=[2, 0], seed=seed, engine="reference")
    holds((some.draws == whole.draws[[2, 0]]).all(), "chains depend on each other")
    last = run(sampler, target, steps=steps, chains=3, seed=seed, keep="last", engine="reference")
    holds((last.draws[:, 0] == whole.draws[:, -1]).all(), "the last state is another one")
    if burn_in + thin <= steps:
        thinned = run(sampler, target, steps=steps, chains=3, seed=seed, burn_in=burn_in, thin=thin, engine="reference")
        holds((thinned.draws == whole.draws[:, burn_in + thin - 1 :: thin]).all(), "thinned draws are others")
    setup = ask(sampler.setup, target, seed, np.arange(3), 1)
    state = engines.State(np.zeros((3, target.dim)), np.zeros((3, target.dim)))
    chains = ask(engines.chains, "reference", setup, state)
    cut = steps // 2
    parts = [ask(chains.extend, count).draws for count in (cut, steps - cut) if count]
    holds((np.concatenate(parts, axis=1) == whole.draws).all(), "a run that is cut is another one")


COMPILED = ("rows", "quadratic")


@case(
    st.tuples(settings(), st.sampled_from(COMPILED), st.integers(1, 8), st.integers(0, 3)),
    "svrhmc.engines.choose",
    "svrhmc.engines.names",
    cost=0.05,
    numba=True,
)
def engines_agree(given):
    """The compiled engine makes the chain of the reference engine, or refuses what that refuses."""
    (name, said), where, steps, seed = given
    sampler, target = ask(getattr(svrhmc, name), **said), GIVEN[where]
    answers = []
    for engine in ("reference", "numba"):
        try:
            answers.append(run(sampler, target, steps=steps, chains=2, seed=seed, engine=engine).draws)
        except RefusedError as refused:
            if "engine must be" in str(refused.error):
                return  # a gradient that only the reference engine knows on this target
            answers.append(type(refused.error))
    one, two = answers
    if isinstance(one, type) or isinstance(two, type):
        holds(one is two, f"reference: {one}, numba: {two}")
        return
    agree("the compiled chain", two, one, 1e-7 * (np.abs(one) + 1))


@case(
    st.tuples(models(), SMALL, st.integers(1, 4)), "svrhmc.Sampler.run", "svrhmc.Sampler.chains", cost=0.1, numba=True
)
def engines_agree_on_models(given):
    """The same on any family, rows and prior."""
    model, kind, steps = given
    target = build(model)
    sampler = svrhmc.Sampler(dynamics.UBU(0.01, 2.0, 1e-3), make(kind))
    answers = []
    for engine in ("reference", "numba"):
        try:
            answers.append(run(sampler, target, steps=steps, chains=2, engine=engine).draws)
        except RefusedError as refused:
            answers.append(refused)
    if any(isinstance(each, RefusedError) for each in answers):
        told = [each for each in answers if isinstance(each, RefusedError)]
        fine = len(told) == 2 or "engine must be" in str(told[0])
        holds(fine, f"only one engine refuses: {told[0]}")
        return
    one, two = answers
    digits = model[1].digits if model[1].dtype in ("float32", "float16") else 1e-6
    agree("the compiled chain", two, one, digits * (np.abs(one).max() + 1))


@case(
    st.tuples(inputs.words, st.sampled_from(["reference", "auto", "x", None, 3])),
    "svrhmc.engines.choose",
    "svrhmc.engines.register",
)
def engine_names(given):
    """Engines by names that there are, and that there are not."""
    word, name = given
    setup = svrhmc.hmc(0.1).setup(QUADRATIC, 0, np.arange(2), 1)
    holds("reference" in ask(engines.names), "no reference engine")
    for each in (word, name):
        try:
            found = ask(engines.choose, each, setup)
        except RefusedError:
            continue
        holds(each in ("auto", found.name), f"{each!r} chose {found.name}")
    refuses(engines.register, word, match="engine must be an svrhmc.engines.Engine")


@case(
    st.tuples(
        st.sampled_from(
            [
                "target",
                "chains",
                "steps",
                "passes",
                "start",
                "burn_in",
                "thin",
                "keep",
                "engine",
                "threads",
                "seed",
                "progress",
            ]
        ),
        inputs.anything,
    ),
    "svrhmc.Sampler.run",
)
def arguments(given):
    """One argument of a run is anything."""
    name, value = given
    said = {"steps": 4, "chains": 2, "engine": "reference"}
    if name == "passes":
        del said["steps"]
    if name == "target":
        ask(svrhmc.hmc(0.1).run, value, **said)
        return
    if name in ("chains", "threads") and isinstance(value, int) and value > 10**4:
        return  # many chains are many chains
    if name == "passes" and isinstance(value, float) and 100 < value < 1e16:
        return
    if name == "steps" and isinstance(value, int) and value > 10**4:
        return
    trace = ask(svrhmc.hmc(0.1).run, QUADRATIC, **{**said, name: value})
    holds(np.isfinite(trace.draws).all(), "not finite")


@case(
    st.tuples(st.integers(0, 9), st.integers(0, 9), inputs.positive, inputs.positive, st.sampled_from(["a", "ä"])),
    "svrhmc.DivergenceError",
    "svrhmc.UndefinedDensityError",
    "svrhmc.BudgetError",
    "svrhmc.CheckpointError",
    "svrhmc.DataError",
    "svrhmc.WorkersError",
    "svrhmc.VerdictWarning",
)
def errors(given):
    """Errors survive a trip to another process."""
    import pickle

    out_of_time = svrhmc.BudgetError("budget_seconds", given[2], given[4], given[3])
    plain = (
        svrhmc.CheckpointError,
        svrhmc.TraceFileError,
        svrhmc.DataError,
        svrhmc.WorkersError,
        svrhmc.VerdictWarning,
    )
    for one in (
        svrhmc.DivergenceError(*given),
        svrhmc.UndefinedDensityError(*given[:2]),
        out_of_time,
        *(kind("x") for kind in plain),
    ):
        again = pickle.loads(pickle.dumps(one))
        holds(str(again) == str(one) and type(again) is type(one), "another error")


@case(st.tuples(inputs.anything, inputs.anything), "svrhmc.Sampler")
def parts(given):
    """What is no dynamics and no gradient makes no sampler."""
    refuses(svrhmc.Sampler, given[0], svrhmc.gradients.Full(), match="dynamics must be")
    refuses(svrhmc.Sampler, dynamics.UBU(0.1), given[1], match="gradient must be")


@case(quadratics(tame=True), "svrhmc.Sampler.run", cost=0.2)
def still(given):
    """Without noise to speak of, a chain goes to the mean: temperature 1e-300."""
    centers, precision = given
    target = ask(targets.gaussian, centers, precision, tame=True)
    step = 0.5 / target.smoothness
    if target.condition_number > 20:
        return
    sampler = svrhmc.Sampler(dynamics.Overdamped(step, temperature=1e-300), svrhmc.gradients.Full())
    trace = ask(sampler.run, target, steps=1200, chains=1, keep="last", engine="reference", tame=True)
    agree("where it stops", trace.draws[0, 0], target.closed_form.mean, 1e-9 * (1 + np.abs(np.array(centers)).max()))
