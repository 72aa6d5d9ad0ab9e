"""`sample` and what it gives back."""

import functools
import warnings
from contextlib import suppress

import numpy as np
from hypothesis import strategies as st

import svrhmc
from svrhmc import posterior, targets

from .. import inputs, oracles
from ..judge import RefusedError, agree, ask, holds, refuses
from ..registry import case
from .targets import build, is_plain, models, regressions

PARTS = ("Bias", "Certificate", "Corrected", "Location", "METHODS", "Posterior", "sample")


@case(
    st.tuples(regressions(), st.integers(0, 3)),
    "svrhmc.sample",
    "svrhmc.Posterior",
    *(f"svrhmc.posterior.{name}" for name in PARTS),
    cost=0.1,
)
def closed_forms(given):
    """A conjugate regression: mean and sd in fifty digits, and draws that have them."""
    (X, y, noise, precision, mean), seed = given
    target = ask(targets.linear, X.make(), y, noise, precision, mean)
    found = ask(svrhmc.sample, target, draws=50, seed=seed)
    holds(
        found.method == "closed-form" and found.certificate.verdict == "exact",
        f"{found.method}, {found.certificate.verdict}",
    )
    dense = X.dense
    if (
        max(
            np.abs(np.asarray(each, float)).max()
            for each in (dense, y, noise, 1 / np.asarray(noise, float), precision, mean)
        )
        > 1e6
    ):
        return
    p, m = (
        np.broadcast_to(np.asarray(precision, float), target.dim),
        np.broadcast_to(np.asarray(mean, float), target.dim),
    )
    exact, covariance, condition = oracles.linear_posterior(dense, np.array(y, float), noise, p, m)
    if condition > 1e6:
        return
    sd = np.sqrt(np.diag(covariance))
    blur = (1e-2 if X.digits > 1e-6 else 1e-7) * (np.abs(exact).max() + sd + 1)
    agree("the mean", found.mean, exact, blur)
    agree("the sd", found.sd, sd, blur)
    draws = found.trace.draws.reshape(-1, target.dim)
    agree("the mean of the draws", draws.mean(axis=0), exact, blur + 6 * sd / np.sqrt(len(draws)))


@case(
    st.tuples(
        st.sampled_from(
            [
                "draws",
                "chains",
                "tolerance",
                "seed",
                "method",
                "budget_seconds",
                "budget_passes",
                "threads",
                "certificate",
                "progress",
                "target",
            ]
        ),
        st.one_of(inputs.anything, inputs.words),
    ),
    "svrhmc.sample",
    cost=0.05,
)
def arguments(given):
    """One argument is anything."""
    name, value = given
    target = targets.linear([[1.0], [2.0]], [1.0, 3.0])
    if name in ("draws", "chains", "threads") and isinstance(value, int | float) and value > 10**4:
        if name == "draws" and value > 2**60:
            refuses(svrhmc.sample, target, draws=value, match="draws must be")
        return
    if name == "target":
        ask(svrhmc.sample, value)
        return
    found = ask(svrhmc.sample, target, **{"draws": 20, name: value}, nan=("r_hat",) if name == "chains" else ())
    holds(np.isfinite(found.mean).all(), "not finite")


def quick(model):
    """A posterior by a chain, as quickly as can be."""
    return ask(
        svrhmc.sample, build(model), draws=20, chains=2, tolerance=1.0, certificate=False, budget_seconds=3.0, seed=1
    )


@case(models(), "svrhmc.sample", cost=1.0, numba=True)
def every_family(given):
    """Any model: finite numbers, or a refusal; means within the reach of what Laplace says."""
    found = quick(given)
    holds(
        np.isfinite(found.mean).all() and np.isfinite(found.sd).all() and (found.sd > 0).all(),
        f"{found.mean} ± {found.sd}",
    )
    holds(np.isfinite(found.trace.draws).all(), "draws that are not finite")
    ask(repr, found)
    ask(str, found)


@functools.cache
def kinds():
    """Posteriors of several kinds, made once."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 2))
    y = X @ [1.0, -0.5] + 0.3 * rng.normal(size=40)
    table = {"y": y, "a": X[:, 0], "b b": X[:, 1], "g": np.array(["u", "vü", "<w>"] * 14)[:40]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "linear": svrhmc.sample(targets.linear(X, y), draws=100),
            "gaussian": svrhmc.sample(targets.gaussian(X[:5], np.eye(2)), draws=100),
            "fit": svrhmc.fit("y ~ a + `b b` + g", table, draws=100, noise_variance=1.0),
        }


KIND = st.sampled_from(["linear", "gaussian", "fit"])
level = inputs.often(st.sampled_from([0.9, 0.5, 0.05]), inputs.anything)


@case(
    st.tuples(KIND, level, st.one_of(level, st.lists(level, max_size=3))),
    "svrhmc.Posterior.*",
    "svrhmc.Summary.*",
    cost=0.02,
)
def statements(given):
    """Quantiles, intervals and tables; exact where the posterior is Gaussian."""
    from scipy.stats import norm

    kind, one, levels = given
    found = kinds()[kind]
    for call in (found.interval, found.to_frame, found.summary, found.ratios, found.inclusion):
        try:
            answer = ask(call, one, nan=("r_hat",))
        except RefusedError:
            continue
        if call == found.interval:
            holds((answer[:, 0] <= answer[:, 1]).all(), "an interval the wrong way round")
        elif hasattr(answer, "_repr_html_") and call == found.summary:
            ask(str, answer)
            ask(answer._repr_html_)
            ask(answer.to_frame)
    ask(found._repr_html_)
    for name in ("errors", "rows", "labels", "form"):
        ask(lambda name=name: getattr(found, name))
    quantiles = ask(found.quantile, levels)
    if found.gaussian and kind == "linear":
        at = np.atleast_1d(np.array(levels, float))
        exact = found.mean + found.sd * norm.ppf(at)[:, None]
        agree("quantiles", np.atleast_2d(quantiles), exact, 1e-6 * (np.abs(exact) + 1))


WORDS = [
    "x[0]",
    "x[1]",
    "a",
    "`b b`",
    "b b",
    "Intercept",
    "g[vü]",
    ">",
    "<",
    "0",
    "1.5",
    "and",
    "or",
    "not",
    "(",
    ")",
    "+",
    "-",
    "*",
    "/",
    "**",
    "abs(",
    "exp(",
    "log(",
    "sqrt(",
    "1e308",
    "nan",
    "inf",
    "__import__('os')",
    "lambda: 0",
    "'",
    "==",
    "!=",
    "[",
    "\\",
    "\n",
    "🙂",
    "1/0",
]


@case(
    st.tuples(KIND, st.one_of(st.text(max_size=12), st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join))),
    "svrhmc.Posterior.probability",
    cost=0.005,
)
def probabilities(given):
    """A statement of any text is a probability or is refused."""
    kind, text = given
    value = ask(kinds()[kind].probability, text)
    holds(0 <= value <= 1, f"probability {value}")


@case(
    st.tuples(KIND, inputs.anything, inputs.anything, inputs.anything),
    "svrhmc.Posterior.effects",
    "svrhmc.Posterior.log_likelihood",
    "svrhmc.Posterior.loo",
    "svrhmc.Posterior.waic",
    "svrhmc.Posterior.r2",
    "svrhmc.Posterior.sensitivity",
    "svrhmc.Posterior.loo_subsample",
    "svrhmc.compare",
    "svrhmc.Posterior.inner",
    "svrhmc.Posterior.about",
    "svrhmc.Posterior.fitted",
    cost=0.05,
)
def asked(given):
    """Effects and likelihoods with odd arguments; of a line, an effect is its slope."""
    kind, one, two, three = given
    found = kinds()[kind]
    for call, words in (
        (found.effects, {"level": one}),
        (found.effects, {"rows": two}),
        (found.effects, {"draws": three}),
        (found.effects, {"variables": one}),
        (found.effects, {"table": two}),
        (found.effects, {"seed": three}),
    ):
        try:
            effects = ask(call, **words)
        except RefusedError:
            continue
        ask(effects.summary)
        ask(effects.to_frame)
        if kind == "fit" and not {"variables", "table", "draws"} & set(words):
            place = next(k for k, each in enumerate(effects.summary().names) if each.startswith("a"))
            agree(
                "the effect of a",
                effects.mean[place],
                found.mean[found.names.index("a")],
                0.5 * found.sd[found.names.index("a")],
            )
    with suppress(RefusedError):
        parts = ask(lambda: list(found.log_likelihood(one)))
        holds(sum(part.shape[1] for _, part in parts) == found.rows, "rows left out")
    for words in ({"by": one}, {"draws": two}):
        with suppress(RefusedError):
            left = ask(found.loo, **words)
            holds(len(left.pointwise) == found.rows and not np.isnan(left.elpd), "rows left out")
            ask(left.to_frame)
    for call, words in (
        (found.waic, {"draws": two}),
        (found.r2, {"draws": two}),
        (found.r2, {"level": one}),
        (found.sensitivity, {"draws": three}),
        (found.loo_subsample, {"rows": three}),
    ):
        with suppress(RefusedError):
            ask(ask(call, **words).to_frame)
    for several in ((found, one), (two,), ({"a": found, one if isinstance(one, str) else "b": found},)):
        with suppress(RefusedError):
            together = ask(svrhmc.compare, *several, draws=20)
            holds(not together.elpd_diff.any(), "a model differs from itself")
    if isinstance(two, int) and not isinstance(two, bool) and 0 < two < 100:
        holds(len(ask(found.inner, two)) <= two, "more draws than asked for")
    ask(found.about, found._target)
    ask(found.draws_frame)


@case(
    st.tuples(
        KIND,
        inputs.tables(4, 2),
        st.one_of(st.none(), inputs.anything),
        st.lists(level, max_size=3),
        st.one_of(st.integers(2, 30), inputs.count),
        inputs.seeds,
    ),
    "svrhmc.Posterior.predict",
    "svrhmc.Posterior.predict_draws",
    cost=0.03,
)
def predictions(given):
    """Of a line, the mean of a prediction is that of the draws."""
    kind, X, offset, levels, draws, seed = given
    found = kinds()[kind]
    made = ask(found.predict, X.make(), offset=offset, levels=levels, draws=draws, seed=seed, nan=())
    ask(made.summary)
    ask(lambda: list(found.predict_draws(X.make(), draws=draws, seed=seed)))
    if kind == "linear" and offset is None and is_plain(X.dense, 1e6):
        x = found.inner(draws)
        exact = (X.dense @ x.T).mean(axis=1)
        agree(
            "the mean",
            made.mean,
            exact,
            (1e-3 if X.digits > 1e-6 else 1e-9) * (np.abs(X.dense) @ np.abs(x).max(axis=0) + 1e-300),
        )


@case(
    st.tuples(
        KIND,
        st.booleans(),
        st.booleans(),
        st.one_of(st.none(), inputs.anything, st.lists(inputs.count, max_size=3)),
        inputs.seeds,
    ),
    "svrhmc.Posterior.to_arviz",
    "svrhmc.Trace.to_arviz",
    cost=0.1,
)
def exchanged(given):
    """For ArviZ: the draws are the draws."""
    kind, likelihood, predictive, rows, seed = given
    found = kinds()[kind]
    made = ask(found.to_arviz, likelihood, predictive, rows, seed, allow=())
    values = np.concatenate(
        [
            np.asarray(made["posterior"][name]).reshape(len(found.trace.draws), found.trace.draws.shape[1], -1)
            for name in made["posterior"]
        ],
        axis=2,
    )
    agree("the sum of all draws", values.sum(), found.trace.draws.sum(), 1e-6 * np.abs(found.trace.draws).sum())
    ask(found.trace.to_arviz)


@case(st.tuples(KIND, st.one_of(st.none(), level)), "svrhmc.Posterior.plot", cost=0.3)
def plotted(given):
    """A forest plot."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot

    kind, one = given
    try:
        ask(kinds()[kind].plot, None, one)
    finally:
        matplotlib.pyplot.close("all")


@case(st.sampled_from(posterior.METHODS), "svrhmc.posterior.METHODS", cost=0.2, numba=True)
def methods(name):
    """Every method by its name agrees with the closed form."""
    X = np.vander(np.linspace(-1, 1, 30), 2)
    target = targets.linear(X, np.cos(np.arange(30)))
    found = ask(svrhmc.sample, target, draws=200, method=name)
    known = target.closed_form
    agree("the mean", found.mean, known.mean, 0.5 * np.sqrt(np.diag(known.covariance)))
