"""Two posteriors of every family: of real data, and of data simulated from a fixed seed.

Columns are an intercept and predictors of mean 0 and deviation 1; every coefficient has the prior N(0, 1), shared
parameters have that of their family. `python benchmarks/references.py` finds the moments of these posteriors by
NumPyro; `test_references.py` compares `sample` with them. Real data come from scikit-learn and statsmodels.
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
        return [n, dim, float(tilted @ (self.X @ np.arange(1.0, dim + 1))), float(tilted @ self.y), *rest]


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


REAL = {
    "bernoulli": breast_cancer, "probit": spector, "binomial": star98, "poisson": cancer,
    "gaussian, known noise": diabetes, "gaussian": longley, "student-t": stackloss, "negative-binomial": randhie,
    "gamma": scotland, "categorical": wine,
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
    else:
        raise KeyError(family)
    return Problem(family, f"simulated, seed {SEEDS[family]}", X, np.asarray(y, float), more)


def problem(family: str, kind: str) -> Problem:
    """kind: "real" or "simulated"."""
    return {"real": lambda: REAL[family](), "simulated": lambda: simulated(family)}[kind]()


PAIRS = [(family, kind) for family in FAMILIES for kind in ("real", "simulated")]
