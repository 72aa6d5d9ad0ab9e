"""`fit` on small tables, whose summaries are frozen: families by formulas, and everything that a table may bring.

`frozen_runs.py` says what is stored, how it is written anew, and what to do about differences. Means and standard
deviations are compared to 1e-9 of the standard deviation; names, family, method, verdict, the words on the prior and the
number of rows that were left out have to be the same.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import svrhmc
from svrhmc.targets import families
from svrhmc.targets.priors import HalfNormal, Laplace, Normal, StudentT

FITS = Path(__file__).parent / "stored" / "frozen-fits.json"
ROWS = 80


@cache
def table() -> dict[str, Any]:
    """Columns of every kind; responses depend on age, income and plan."""
    rng = np.random.default_rng(29)
    n = ROWS
    age, income = rng.uniform(20, 70, n).round(1), rng.lognormal(10, 0.4, n).round(0)
    plan, region = rng.choice(["basic", "plus", "pro"], n), rng.choice(["north", "south"], n)
    t = 0.03 * (age - 45) + 0.5 * (plan == "pro") - 0.3 * (region == "south") + 0.4 * (np.log(income) - 10)
    months, visits = rng.uniform(0.5, 3.0, n).round(2), rng.integers(1, 8, n)
    gaps = age.copy()
    gaps[[3, 17, 40]] = np.nan
    return {
        "age": age,
        "income": income,
        "plan": plan,
        "region": region,
        "months": months,
        "visits": visits,
        "gaps": gaps,
        "far": 1e9 + 1e4 * age,
        "tiny": 1e-7 * income,
        "old": age > 50,
        "level": rng.integers(1, 4, n),
        "shift": rng.normal(0, 0.2, n).round(3),
        "churn": np.where(rng.random(n) < 1 / (1 + np.exp(-t)), "yes", "no"),
        "bought": rng.binomial(visits, 1 / (1 + np.exp(-t))),
        "calls": rng.poisson(months * np.exp(0.3 + t)),
        "claims": rng.negative_binomial(1.5, 1.5 / (1.5 + np.exp(0.5 + t))),
        "price": (20 + 2 * t + rng.normal(0, 1.0, n)).round(3),
        "heavy": (5 + t + 0.5 * rng.standard_t(3.0, n)).round(3),
        "cost": (rng.gamma(2.0, np.exp(3 + t) / 2.0)).round(3) + 0.001,
        "choice": rng.choice(["bus", "car", "train"], n, p=[0.3, 0.4, 0.3]),
    }


def some(*names: str) -> dict[str, Any]:
    """A few of the columns."""
    return {name: table()[name] for name in names}


def numbered() -> Any:
    """A data frame whose columns are named by whole numbers."""
    import pandas

    columns = table()
    return pandas.DataFrame({0: columns["age"], 1: columns["income"], 2: columns["price"]})


def ordered() -> Any:
    """A data frame with a category whose levels have an order, and with missing values."""
    import pandas

    columns = table()
    frame = pandas.DataFrame(some("age", "gaps", "price"))
    frame["plan"] = pandas.Categorical(columns["plan"], categories=["pro", "basic", "plus"])
    return frame


def fit(formula: str, family: Any = None, rows: Callable[[], Any] = table, **settings: Any) -> Callable[[], Any]:
    """A call of `fit` with few draws."""
    return lambda: svrhmc.fit(formula, rows(), family, draws=200, chains=2, threads=1, seed=3, **settings)


FITTED: dict[str, Callable[[], Any]] = {
    "texts as answers": fit("churn ~ age + plan"),
    "probit": fit("churn ~ age + region", families.bernoulli("probit")),
    "an interaction of a number and a category": fit("churn ~ age * region", "bernoulli"),
    "two categories crossed": fit("price ~ plan * region"),
    "no intercept": fit("price ~ 0 + plan + age"),
    "all other columns": fit("price ~ .", rows=lambda: some("price", "age", "plan", "months")),
    "a logarithm and a square": fit("price ~ np.log(income) + I(age ** 2)"),
    "a spline": fit("price ~ bs(age, df=4)"),
    "a polynomial": fit("heavy ~ poly(age, 2) + region", "student-t"),
    "standardised": fit("price ~ scale(age) + center(income)"),
    "sums of categories": fit("price ~ C(plan, Sum) + age"),
    "whole numbers as a category": fit("price ~ C(level) + age"),
    "truth values": fit("calls ~ old + plan", "poisson"),
    "a reference level": fit("churn ~ C(plan, Treatment('plus'))", "bernoulli"),
    "counts with an exposure": fit("calls ~ age + plan", "poisson", exposure="months"),
    "counts with an offset": fit("calls ~ age + plan", "poisson", offset="shift"),
    "counts with an offset and an exposure": fit("calls ~ plan", "poisson", offset="shift", exposure="months"),
    "counts that spread": fit("claims ~ age + region", "negative-binomial", exposure="months"),
    "trials": fit("bought ~ age + plan", "binomial", trials="visits"),
    "trials and weights": fit("bought ~ age", "binomial", trials="visits", weights="level"),
    "weights": fit("churn ~ age + region", "bernoulli", weights="visits"),
    "weights of measurements": fit("price ~ age + region", "gaussian", weights="visits"),
    "known noise": fit("price ~ age + plan", "gaussian", noise_variance=1.0),
    "positive numbers": fit("cost ~ age + np.log(income)", "gamma"),
    "positive numbers with an offset": fit("cost ~ age", "gamma", offset="shift"),
    "far out": fit("heavy ~ age + plan", "student-t", weights="level"),
    "classes": fit("choice ~ age + region", "categorical"),
    "one prior for all": fit("price ~ age + income", "gaussian", prior=Normal(4.0)),
    "priors by name": fit(
        "churn ~ age + plan + income",
        "bernoulli",
        prior={"age": StudentT(3.0, 0.1), "plan": Laplace(0.5), "Intercept": Normal(1.0)},
    ),
    "a prior of the noise": fit("price ~ age", "gaussian", prior={"sigma": HalfNormal(2.0)}),
    "missing values are dropped": fit("price ~ gaps + plan", missing="drop"),
    "missing values are refused": fit("price ~ gaps + plan"),
    "odd units": fit("price ~ far + tiny"),
    "odd units of counts": fit("calls ~ far + tiny", "poisson"),
    "columns named by numbers": fit("`2` ~ `0` + `1`", rows=numbered),
    "categories in an order of their own": fit("price ~ plan + gaps", rows=ordered, missing="drop"),
    "a function of one's own": fit("price ~ half(age)", transforms={"half": lambda column: column / 2}),
    "a column that is not there": fit("price ~ weight"),
    "guessed: counts": fit("calls ~ age"),
    "guessed: classes": fit("choice ~ age"),
}


def summary(run: Callable[[], Any]) -> dict[str, Any]:
    """What is frozen of a fit, or the kind of the error with which it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of verdicts on so few draws
        try:
            posterior = run()
        except (ValueError, TypeError) as error:
            return {"refused": type(error).__name__}
    return {
        "names": list(posterior.names),
        "mean": np.asarray(posterior.mean).tolist(),
        "sd": np.asarray(posterior.sd).tolist(),
        "verdict": posterior.certificate.verdict,
        "family": posterior.family,
        "method": posterior.method,
        "prior": posterior.prior.said,
        "location": np.asarray(posterior.prior.location).tolist(),
        "precision": np.asarray(posterior.prior.precision).tolist(),
        "dropped": int(posterior.design.dropped),
    }


def differences(found: dict[str, Any], stored: dict[str, Any]) -> str | None:
    """What differs between two summaries, in words; None where nothing does."""
    for key in sorted({*found, *stored} - {"mean", "sd", "location", "precision"}):
        if found.get(key) != stored.get(key):
            return f"{key} is {found.get(key)!r} instead of {stored.get(key)!r}"
    if "refused" in stored:
        return None
    sd = np.array(stored["sd"])
    for key in ("mean", "sd"):
        gap = np.abs(np.array(found[key]) - stored[key])
        if not (gap <= 1e-9 * sd).all():
            return f"{key} differs by up to {(gap / sd).max():.3g} standard deviations"
    for key in ("location", "precision"):
        if not np.allclose(found[key], stored[key], rtol=1e-9, atol=1e-300):
            return f"the prior's {key} is {found[key]} instead of {stored[key]}"
    return None


def all_fits() -> dict[str, Any]:
    """Every table, with its summary."""
    return json.loads(json.dumps({name: summary(run) for name, run in FITTED.items()}))
