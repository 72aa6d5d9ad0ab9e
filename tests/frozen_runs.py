"""What must not change while the inside of the library is rebuilt: draws, numbers of `fit`, names, and commands.

    python tests/frozen_runs.py              compares the source with what is stored, and prints what differs
    python tests/frozen_runs.py --write      writes stored/frozen-*.json anew; --only draws,fits,names,commands for some
    python tests/frozen_runs.py --add        runs the combinations that frozen-draws.json does not have, and adds them

`test_frozen.py` makes the same comparison. What differs on purpose goes into the changelog under *Draws that differ*,
with its reason, in the same commit as the stored numbers that were written anew; anything else that differs is an error
in the source, and the stored numbers stay as they are.

Four files are stored. This module makes the first; `frozen_fits.py` the second, `frozen_interface.py` the other two.

- frozen-draws.json: short runs of the samplers, described below.
- frozen-fits.json: the summaries of `fit` on small tables.
- frozen-names.json: every public name with its kind and signature.
- frozen-commands.json: every command of the shell with its help, and what `svrhmc fit` prints and writes.

Runs are combinations of one value of each factor in `FACTORS`: a method, a family, how rows are stored, in which
variables the sampler moves, the prior, what else rows have (offsets, weights), and the engine. The full product is far
too large. `covering` makes a list in which every tuple of values that `tuples` names occurs in a run: all pairs of
method, family, storage and variables, each family with each prior and each kind of extras, all of these in plain NumPy;
and every value with each engine, and each family on rows of the main kinds with each compiled one. First it tries every
value, and every pair that is asked for, in plain surroundings (`BACKGROUNDS`). If the library refuses it in each of
them (with an error of the kinds in `REFUSALS`), it is not supported: the kind of the error is the frozen outcome, and
no combination after it contains that pair. Then it goes through the tuples in their order, and makes for each one that
no run has yet a combination in which the other factors are filled so that as many new tuples as possible are in it. If
that is refused (three values may not go together where each two do), this is a frozen outcome too, and the tuple is run
in plain surroundings. So the list depends on nothing but the factors and on what the library supports. The file stores
it with its outcomes, and the tests run what it lists: if something becomes supported, or ceases to be, a stored outcome
is wrong, and the test says so.

How an engine is asked for: samplers of the grid take its name. Exact samplers and `sample` choose their own here: they
run in plain NumPy where the problem is small, and compiled where it is large. So "reference" gives them few rows, and
"numba" gives them 8,000; "jax" is asked for, and refused. (Subsampled Metropolis is compiled in any case.)

An outcome of a run is the last state of every chain and the mean over its draws, as in `stored_runs.py`, compared to
rounding: 1e-9 in general, and 1e-5 where JAX or compiled code sums in float32.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import svrhmc
from stored_runs import digest
from svrhmc import data, targets
from svrhmc.dynamics import BAOAB, UBU, Anchored, EulerMaruyama, Exponential, Overdamped, Underdamped
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.gradients import SAGA, SVRG, ControlVariate, Full, Minibatch
from svrhmc.targets import families
from svrhmc.targets.priors import Flat, Laplace, Normal, StudentT
from svrhmc.whitening import whitened

FOLDER = Path(__file__).parent / "stored"
DRAWS = FOLDER / "frozen-draws.json"
REFUSALS = (ValueError, TypeError, NotImplementedError, AttributeError)  # the library's own are kinds of the first
STEPS, CHAINS, SEED = 12, 2, 7
FEW, MANY, COLUMNS, BURN_IN = 48, 8_000, 4, 4

Combination = dict[str, str]


# Methods. Every dynamics and every gradient of the grid occurs, and every way to draw rows.

GRID: dict[str, Callable[[float, float], svrhmc.Sampler]] = {
    "svr-hmc": lambda h, u: svrhmc.Sampler(Underdamped(h, 2.0, u), SVRG(3, epoch_length=5)),
    "sgld": lambda h, u: svrhmc.Sampler(Overdamped(h * h * u / 2), Minibatch(4)),
    "vr-sgld, estimated snapshots, distinct, at another temperature": lambda h, u: svrhmc.Sampler(
        Overdamped(h * h * u / 2, temperature=0.5), SVRG(3, 5, replacement=False, snapshot_size=12)
    ),
    "lmc": lambda h, u: svrhmc.Sampler(Overdamped(h * h * u / 2), Full()),
    "saga-ubu": lambda h, u: svrhmc.Sampler(UBU(h, 2.0, u), SAGA(3)),
    "cv-hmc of order 2": lambda h, u: svrhmc.Sampler(Underdamped(h, 2.0, u), ControlVariate(3, order=2)),
    "anchored, by importance": lambda h, u: svrhmc.Sampler(Anchored(h, 2.0, u), Minibatch(5, importance=True)),
    "baoab, distinct": lambda h, u: svrhmc.Sampler(BAOAB(h, 2.0, u), Minibatch(5, replacement=False)),
    "exponential, control variates by importance": lambda h, u: svrhmc.Sampler(
        Exponential(h, 2.0, u), ControlVariate(3, importance=True)
    ),
    "euler, saga, distinct": lambda h, u: svrhmc.Sampler(EulerMaruyama(h, 2.0, u), SAGA(3, replacement=False)),
}
EXACT: dict[str, Callable[[], Any]] = {
    "split-hmc": lambda: SplitHMC(),
    "split-hmc with halvings": lambda: SplitHMC(0.5, 3, halvings=2),
    "subsampled-mh": lambda: SubsampledMH(),
}
SAMPLE = "sample"

FAMILIES: dict[str, Any] = {
    "bernoulli": "bernoulli",
    "probit": families.bernoulli("probit"),
    "binomial": "binomial",
    "poisson": "poisson",
    "gaussian, known noise": families.gaussian(0.5),
    "gaussian": "gaussian",
    "student-t": families.student_t(4.0),
    "negative-binomial": "negative-binomial",
    "gamma": "gamma",
    "categorical": "categorical",
}
PRIORS: dict[str, Any] = {
    "normal": Normal(2.0, mean=0.1),
    "student-t": StudentT(4.0, 0.8, location=0.1),
    "laplace": Laplace(0.7, location=0.1),
    "flat": Flat(),
}
FACTORS: dict[str, tuple[str, ...]] = {  # the first value of each is the plainest
    "method": (*GRID, *EXACT, SAMPLE),
    "family": tuple(FAMILIES),
    "storage": (
        "float64", "float32", "csr", "csr of float32", "csc", "by columns", "memory map", "partitions", "parquet",
        "sparse partitions",
    ),
    "variables": ("plain", "dense", "diagonal", "low rank", "sparse"),
    "prior": tuple(PRIORS),
    "extras": ("none", "offset", "weights", "offset and weights"),
    "engine": ("reference", "numba", "jax"),
}  # fmt: skip
PLAINEST = {factor: values[0] for factor, values in FACTORS.items()}
BACKGROUNDS = [  # rows in partitions need whitened variables, and a sparse whitening sparse rows
    {**PLAINEST, **other}
    for other in ({}, {"storage": "csr"}, {"variables": "dense"}, {"method": "split-hmc"}, {"method": SAMPLE})
]
MAIN = ("method", "family", "storage", "variables")
PAIRS = (
    *itertools.combinations(MAIN, 2), ("family", "prior"), ("family", "extras"), ("storage", "extras"),
    ("variables", "prior"),
)  # fmt: skip


# Data


def labels(family: str, t: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None]:
    """Labels of rows with these predictors, and trials."""
    n, noise = len(t), rng.standard_normal(len(t))
    trials = rng.integers(1, 6, n)
    match family:
        case "bernoulli":
            return (rng.random(n) < 1 / (1 + np.exp(-t))).astype(float), None
        case "probit":
            return (t + noise > 0).astype(float), None
        case "binomial":
            return rng.binomial(trials, 1 / (1 + np.exp(-t))).astype(float), trials.astype(float)
        case "poisson":
            return rng.poisson(np.exp(t)).astype(float), None
        case "negative-binomial":
            return rng.negative_binomial(1.5, 1.5 / (1.5 + np.exp(t))).astype(float), None
        case "gamma":
            return rng.gamma(1.7, np.exp(t) / 1.7), None
        case "student-t":
            return t + 0.6 * rng.standard_t(4.0, n), None
        case "categorical":
            return (np.digitize(t + noise, [-0.6, 0.6])).astype(float), None
        case _:
            return t + 0.7 * noise, None


def table(combination: Combination, n: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Rows, labels, and what else the rows have; entries are multiples of 1/8, so that float32 holds them exactly."""
    rng = np.random.default_rng(100 + FACTORS["family"].index(combination["family"]))
    X = np.round(4 * rng.normal(size=(n, COLUMNS))) / 8
    X[rng.random(X.shape) < 0.4] = 0
    X[:, 0] = 1
    offset, weights = np.round(8 * rng.uniform(-0.5, 0.5, n)) / 8, rng.integers(1, 4, n).astype(float)
    more: dict[str, np.ndarray] = {}
    if "offset" in combination["extras"]:
        more["offset"] = offset
    if "weights" in combination["extras"]:
        more["weights"] = weights
    y, trials = labels(combination["family"], X @ np.array([0.2, 0.6, -0.4, 0.3]) + more.get("offset", 0.0), rng)
    return X, y, more if trials is None else {**more, "trials": trials}


def parquet(X: np.ndarray, y: np.ndarray, more: dict[str, np.ndarray], folder: Path) -> tuple[Any, dict[str, Any]]:
    """Two files."""
    import pyarrow
    import pyarrow.parquet

    beside = {name: more[name] for name in ("offset", "weights") if name in more}
    columns = {**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y, **beside}
    half = len(y) // 2
    for k, part in enumerate((slice(half), slice(half, None))):
        pyarrow.parquet.write_table(
            pyarrow.table({name: column[part] for name, column in columns.items()}), folder / f"part-{k}.parquet"
        )
    features = [f"x{j}" for j in range(X.shape[1])]
    rows = data.from_parquet(folder, target="y", features=features, **{name: name for name in beside})
    return rows, {name: value for name, value in more.items() if name not in beside}


def sparse_files(X: np.ndarray, y: np.ndarray, folder: Path) -> Any:
    """Two files of `scipy.sparse.save_npz`."""
    half = len(y) // 2
    for k, part in enumerate((slice(half), slice(half, None))):
        sparse.save_npz(folder / f"part-{k}.npz", sparse.csr_matrix(X[part]))
    return data.from_sparse(folder, y)


def stored(combination: Combination, n: int, folder: Path) -> tuple[Any, Any, dict[str, Any]]:
    """What `targets.glm` is called with: X, y, and settings."""
    X, y, more = table(combination, n)
    match combination["storage"]:
        case "float64":
            return X, y, more
        case "float32":
            return X.astype(np.float32), y, more
        case "csr":
            return sparse.csr_matrix(X), y, more
        case "csr of float32":
            return sparse.csr_array(X.astype(np.float32)), y, more
        case "csc":
            return sparse.csc_matrix(X), y, more
        case "by columns":
            return np.asfortranarray(X), y, more
        case "memory map":
            np.save(folder / "rows.npy", X)
            return np.load(folder / "rows.npy", mmap_mode="r"), y, more
        case "partitions":
            beside = {name: more.pop(name) for name in ("offset", "weights") if name in more}
            return data.from_arrays(X, y, partitions=3, **beside), None, more
        case "parquet":
            rows, rest = parquet(X, y, more, folder)
            return rows, None, rest
        case "sparse partitions":
            return sparse_files(X, y, folder), None, more
    raise KeyError(combination["storage"])


def target_of(combination: Combination, n: int, folder: Path) -> Any:
    """The posterior that a combination samples."""
    X, y, more = stored(combination, n, folder)
    return targets.glm(X, y, FAMILIES[combination["family"]], prior=PRIORS[combination["prior"]], **more)


# Runs


def draws_of(combination: Combination, folder: Path) -> np.ndarray:
    """The draws of a combination; what the library refuses is an error of `REFUSALS`."""
    method, engine, how = combination["method"], combination["engine"], combination["variables"]
    named = {"engine": "jax"} if engine == "jax" else {}
    target = target_of(combination, MANY if method not in GRID and engine == "numba" else FEW, folder)
    if method in EXACT:
        kind = None if how == "plain" else how
        settings = {"chains": CHAINS, "seed": SEED, "burn_in": BURN_IN, "whitening": kind, "threads": 1, **named}
        return EXACT[method]().run(target, STEPS, **settings).draws
    space = target if how == "plain" else whitened(target, how)
    if method == SAMPLE:
        return svrhmc.sample(space, draws=40, chains=CHAINS, seed=SEED, threads=1, **named).trace.draws
    sampler = GRID[method](0.4, 0.02 if how == "plain" else 1.0)
    return sampler.run(space, STEPS, chains=CHAINS, seed=SEED, start="mode", engine=engine, threads=1).draws


def outcome(run: Callable[[Path], np.ndarray]) -> dict[str, Any]:
    """What is frozen of a run: its digest, or the kind of the error with which it is refused."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of verdicts on so few draws
        try:
            return digest(run(Path(folder)))
        except REFUSALS as error:
            return {"refused": type(error).__name__}


# The list of combinations


def tuples(engine: str) -> Iterator[tuple[tuple[str, str], ...]]:
    """What has to occur in some run of an engine, as ((factor, value), …): in plain NumPy all pairs of the main factors,
    and some more; compiled, every value, and each family with rows of the main kinds.
    """
    last = (("engine", engine),)
    if engine == "reference":
        for factors in PAIRS:
            yield from (each + last for each in _all(*factors))
    else:
        for factor in FACTORS:
            yield from (each + last for each in _all(factor) if factor != "engine")
        for each in _all("family", "storage"):
            if each[1][1] in ("float64", "float32", "csr"):
                yield each + last


def _all(*factors: str) -> Iterator[tuple[tuple[str, str], ...]]:
    for values in itertools.product(*(FACTORS[factor] for factor in factors)):
        yield tuple(zip(factors, values, strict=True))


def name_of(combination: Combination) -> str:
    """The values, in the order of the factors."""
    return " | ".join(combination[factor] for factor in FACTORS)


def combination_of(name: str) -> Combination:
    """The combination that has this name."""
    return dict(zip(FACTORS, name.split(" | "), strict=True))


class Cover:
    """Which tuples occur in a run, which are not supported, and how often each value has occurred."""

    def __init__(self, engines: Iterable[str]) -> None:
        self.asked = [frozenset(each) for engine in engines for each in tuples(engine)]
        self.by_value: dict[tuple[str, str], list[frozenset[tuple[str, str]]]] = {}
        for each in self.asked:
            for pair in each:
                self.by_value.setdefault(pair, []).append(each)
        self.covered: set[frozenset[tuple[str, str]]] = set()
        self.refused: set[frozenset[tuple[str, str]]] = set()
        self.used: dict[tuple[str, str], int] = {}

    def note(self, combination: Combination) -> None:
        """A run of it has been made."""
        have = set(combination.items())
        self.covered |= {each for each in self.asked if each <= have}
        for pair in have:
            self.used[pair] = self.used.get(pair, 0) + 1

    def possible(self, values: Iterable[tuple[str, str]]) -> bool:
        """Whether nothing among these values is known as not supported."""
        have = set(values)
        return not any(each <= have for each in self.refused)

    def filled(self, begin: frozenset[tuple[str, str]]) -> Combination | None:
        """These values, with others that bring as many new tuples as possible, and were used least among such; None
        where there are none. The engine is chosen last, and in the order of `FACTORS`.
        """
        found = dict(begin)
        for factor in (each for each in FACTORS if each not in dict(begin)):
            options = []
            for place, value in enumerate(FACTORS[factor]):
                have = {*found.items(), (factor, value)}
                if self.possible(have):
                    fresh = [each for each in self.by_value[factor, value] if each <= have and each not in self.covered]
                    used = 0 if factor == "engine" else self.used.get((factor, value), 0)
                    options.append((-len(fresh), used, place, value))
            if not options:
                return None
            found[factor] = min(options)[-1]
        return found


def covering(
    run: Callable[[Combination], dict[str, Any]], engines: Iterable[str] = FACTORS["engine"]
) -> dict[str, dict[str, Any]]:
    """Combinations by name, with the outcome of each: `run` is called once for each of them."""
    cover, kept, tried = Cover(engines), {}, {}

    def succeeds(combination: Combination, keep: bool) -> bool:
        name = name_of(combination)
        if name not in tried:
            tried[name] = run(combination)
        done = "refused" not in tried[name]
        if keep and name not in kept:
            kept[name] = tried[name]
            if done:
                cover.note(combination)
        return done

    def supported(values: frozenset[tuple[str, str]], keep: bool) -> bool:
        """Whether some plain combination with these values runs; if none does, the first of them is kept."""
        plain = [{**other, **dict(values)} for other in BACKGROUNDS]
        if any(succeeds(one, keep) for one in plain if cover.possible(one.items())):
            return True
        succeeds(plain[0], keep=True)
        cover.refused.add(values)
        return False

    for engine in engines:
        alone = [(factor,) for factor in FACTORS if factor != "engine"]
        for factors in (*alone, *PAIRS) if engine == "reference" else alone:
            for each in map(frozenset, _all(*factors)):
                values = each if engine == "reference" else each | {("engine", engine)}
                if cover.possible(values):
                    supported(values, keep=engine != "reference")
        for each in map(frozenset, tuples(engine)):
            if each not in cover.covered and cover.possible(each):
                begun = cover.filled(each)
                if begun is None or not succeeds(begun, keep=True):
                    supported(each, keep=True)
    return kept


# Runs of targets and settings that are no combination of these


def small() -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of a logistic model."""
    X, y, _ = table(PLAINEST, FEW)
    return X, y


def levels() -> Any:
    """A logistic posterior over two crossed categories, with more columns than a full factor is made of."""
    rng = np.random.default_rng(5)
    first, second = rng.integers(0, 30, 90), 30 + rng.integers(0, 20, 90)
    places = np.column_stack([first, second]).ravel()
    X = sparse.csr_matrix((np.ones(180), places, np.arange(0, 181, 2)), shape=(90, 50))
    return targets.logistic(X, (rng.random(90) < 0.4).astype(float), prior_precision=0.5)


def components(potential: bool) -> Any:
    """A Poisson regression by its component gradients, with its potential or without."""
    X, _, _ = table(PLAINEST, FEW)
    y = np.arange(FEW) % 3.0

    def value(x: np.ndarray) -> float:
        t = X @ x
        return float(np.sum(np.exp(t) - y * t) + x @ x / 2)

    more = {"potential": value} if potential else {}
    return targets.custom(
        FEW, COLUMNS, lambda x, i: FEW * (np.exp(X[i] @ x) - y[i])[:, None] * X[i] + x, smoothness=200.0, **more
    )


def quadratic(many: bool) -> Any:
    """A Gaussian target, of one matrix or of one for each component."""
    rng = np.random.default_rng(6)
    roots = rng.normal(size=(8, 3, 3))
    S = roots @ roots.transpose(0, 2, 1) + np.eye(3)
    return targets.gaussian(rng.normal(size=(8, 3)), S if many else S[0])


def of_functions() -> Any:
    """A logistic posterior whose parts are JAX functions."""
    import jax
    import jax.numpy as jnp

    X, y = small()
    return targets.model(
        lambda x, row: row["y"] * (row["a"] @ x) - jax.nn.softplus(row["a"] @ x),
        lambda x: -x @ x / 2,
        {"a": X, "y": y},
        jnp.zeros(COLUMNS),
    )


def shared(family: Any, prior: Any) -> Any:
    """A regression with a prior of its own for the parameter that all rows share, and one for each column."""
    X, y, _ = table({**PLAINEST, "family": "gamma"}, FEW)
    each = [Flat(), Normal(1.0), Normal(2.0, mean=0.5), Laplace(1.0)]
    return targets.glm(X, np.ceil(y), family, prior=each, shared_prior=prior)


def walk(sampler: svrhmc.Sampler, target: Callable[[], Any], **settings: Any) -> Callable[[Path], np.ndarray]:
    """A run of a sampler of the grid in plain NumPy, unless an engine is named."""
    usual = {"steps": STEPS, "chains": CHAINS, "seed": SEED, "engine": "reference", "threads": 1}
    return lambda _: sampler.run(target(), **{**usual, **settings}).draws


def asked(target: Callable[[], Any], **settings: Any) -> Callable[[Path], np.ndarray]:
    """Draws of `sample`."""
    usual = {"draws": 40, "chains": CHAINS, "seed": SEED, "threads": 1, "tolerance": 0.2}
    return lambda _: svrhmc.sample(target(), **{**usual, **settings}).trace.draws


def logistic() -> Any:
    """A logistic posterior over few rows."""
    return targets.logistic(*small())


OTHERS: dict[str, Callable[[Path], np.ndarray]] = {
    "a mass from the bound on the curvature, from the origin": walk(svrhmc.svr_hmc(0.1, batch_size=2), logistic),
    "by passes, thinned": walk(svrhmc.saga_hmc(0.1, batch_size=6), logistic, steps=None, passes=4, thin=3, burn_in=2),
    "some chains, each with its start": walk(
        svrhmc.svrg_ubu(0.1, batch_size=2), logistic, chains=[5, 2], start=np.arange(8.0).reshape(2, 4) / 8
    ),
    "rows of weight 0": walk(
        svrhmc.cv_hmc(0.1, batch_size=2), lambda: targets.glm(*small(), weights=np.arange(FEW) % 3.0), start="mode"
    ),
    "a precision for each column": walk(
        svrhmc.hmc(0.1), lambda: targets.logistic(*small(), [0.5, 1.0, 2.0, 0.0], [0.0, 0.1, 0.2, 0.0])
    ),
    "two categories, sparse factor": walk(
        svrhmc.sg_hmc(0.1, 2.0, 1.0, batch_size=4), lambda: whitened(levels(), "sparse")
    ),
    "two categories, low rank": walk(svrhmc.hmc(0.1, 2.0, 1.0), lambda: whitened(levels(), "low rank")),
    "two categories, split HMC": lambda _: SplitHMC().run(levels(), STEPS, chains=CHAINS, burn_in=BURN_IN).draws,
    "components": walk(svrhmc.saga_hmc(0.1, batch_size=4), lambda: components(False)),
    "components with a potential": walk(svrhmc.vr_sgld(1e-4, 4, 5), lambda: components(True)),
    "quadratic": walk(svrhmc.svr_hmc(0.1, batch_size=2), lambda: quadratic(False)),
    "quadratic, a matrix for each": walk(svrhmc.saga_ld(0.01, batch_size=2), lambda: quadratic(True)),
    "quadratic, jax": walk(svrhmc.svr_hmc(0.1, batch_size=2), lambda: quadratic(True), engine="jax"),
    "quadratic, numba": walk(svrhmc.svr_hmc(0.1, batch_size=2), lambda: quadratic(True), engine="numba"),
    "synthetic": walk(svrhmc.sgld_cv(0.01, 2), lambda: targets.synthetic(20, 3, spread=0.5)),
    "functions, split HMC, jax": lambda _: SplitHMC().run(of_functions(), STEPS, chains=CHAINS, burn_in=BURN_IN).draws,
    "functions, jax": walk(svrhmc.sgld(1e-3, 4), of_functions, engine="jax"),
    "conjugate": walk(
        svrhmc.hmc(0.1, 2.0, 0.02), lambda: targets.conjugate(small()[0], np.arange(FEW) / FEW), start="mode"
    ),
    "sample, conjugate": asked(lambda: targets.conjugate(small()[0], np.arange(FEW) / FEW)),
    "sample, linear": asked(lambda: targets.linear(small()[0], np.arange(FEW) / FEW), method="closed-form"),
    **{
        f"sample, {method}": asked(logistic, method=method)
        for method in ("split-hmc", "anchored", "baoab", "ubu")
    },
    "sample, a sampler of the grid": asked(
        logistic, method=svrhmc.svr_hmc(0.2, 2.0, 1.0, batch_size=4), certificate=False
    ),
    "sample, a Laplace approximation": asked(logistic, budget_passes=12),
    **{
        f"{family}, {type(prior).__name__}": walk(
            svrhmc.lmc(1e-4), lambda family=family, prior=prior: shared(family, prior), start="mode"
        )
        for family, prior in (
            ("gaussian", targets.priors.HalfNormal(1.0)), ("gamma", targets.priors.HalfStudentT(3.0, 1.0)),
            ("negative-binomial", targets.priors.HalfCauchy(1.0)), ("student-t", targets.priors.Exponential(1.0)),
        )
    },
}  # fmt: skip
COMPILED = {"sample, anchored", "sample, baoab", "sample, ubu", "sample, a sampler of the grid"}  # on any problem


def is_slow(name: str) -> bool:
    """Whether a combination is left to the slow tests: it compiles for seconds, or looks for several modes."""
    if name in OTHERS:
        return "jax" in name or "numba" in name or name in COMPILED
    plain, found = {**PLAINEST, "method": "", "engine": ""}, combination_of(name)
    if found["engine"] != "reference":
        quick = found["engine"] == "numba" and found["method"] in GRID
        return not (quick and {**found, "method": "", "engine": ""} == plain)
    searched = "student-t" in (found["family"], found["prior"]) and found["storage"] != "float64"
    read = found["method"] == SAMPLE and found["storage"] in ("partitions", "parquet", "sparse partitions")
    return found["method"] == "subsampled-mh" or searched or read


def tolerance_of(name: str) -> float:
    """How far numbers of a run may be from those stored: JAX and compiled code sum in the type of the rows."""
    return 1e-5 if name.endswith(("jax", "numba")) and "float32" in name else 1e-9


def run_of(name: str) -> Callable[[Path], np.ndarray]:
    """The run of this name."""
    return OTHERS[name] if name in OTHERS else lambda folder: draws_of(combination_of(name), folder)


def all_draws(engines: Iterable[str], known: dict[str, Any]) -> dict[str, Any]:
    """Every combination and every other run, with its outcome; those that are not known yet are run, and are then."""

    def run(name: str) -> dict[str, Any]:
        if name not in known:
            began = time.perf_counter()
            known[name] = outcome(run_of(name))
            ended = known[name].get("refused", "")
            print(f"{time.perf_counter() - began:6.2f} s  {name}  {ended}", file=sys.stderr, flush=True)
        return known[name]

    others = {name: run(name) for name in OTHERS}
    combinations = covering(lambda combination: run(name_of(combination)), engines)
    return {"engines": list(engines), "others": others, "combinations": combinations}


def write_draws(known: dict[str, Any]) -> None:
    """Engine by engine, so that what is made by one is stored before the next begins."""
    for count in range(1, len(FACTORS["engine"]) + 1):
        written(DRAWS, all_draws(FACTORS["engine"][:count], known))


def differences(found: Any, stored: Any, tolerance: float) -> str | None:
    """What differs between two outcomes, in words; None where nothing does."""
    if found.keys() != stored.keys() or "refused" in stored:
        brief = {key: value for key, value in found.items() if key in ("refused", "shape")}
        expected = {key: value for key, value in stored.items() if key in ("refused", "shape")}
        return None if found == stored else f"{brief} instead of {expected}"
    if found["shape"] != stored["shape"]:
        return f"shape {found['shape']} instead of {stored['shape']}"
    for part in ("last", "mean"):
        gap = np.abs(np.array(found[part]) - stored[part])
        if not (gap <= tolerance * (1 + np.abs(stored[part]))).all():
            return f"{part} differs by up to {gap.max():.3g}"
    return None


def written(path: Path, content: Any) -> None:
    """As text that changes line by line."""
    path.write_text(json.dumps(content, indent=0, ensure_ascii=False) + "\n")


def main() -> None:
    """Compare, or write anew."""
    import frozen_fits
    import frozen_interface

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the stored files anew")
    parser.add_argument("--add", action="store_true", help="run the combinations that are not stored, and add them")
    parser.add_argument("--only", default="draws,fits,names,commands", help="which files, with commas between")
    chosen = parser.parse_args()
    if chosen.add:
        return write_draws(both(json.loads(DRAWS.read_text())))
    made = {"fits": frozen_fits.all_fits, "names": frozen_interface.names, "commands": frozen_interface.commands}
    for word in chosen.only.split(","):
        path = FOLDER / f"frozen-{word}.json"
        if word == "draws" and chosen.write:
            write_draws({})
        elif word == "draws":
            for name, stored_outcome in both(json.loads(path.read_text())).items():
                differs = differences(outcome(run_of(name)), stored_outcome, tolerance_of(name))
                if differs is not None:
                    print(f"{name}: {differs}")
        elif chosen.write:
            written(path, made[word]())
        elif made[word]() != json.loads(path.read_text()):
            print(f"{word} differ from {path.name}; test_frozen.py says where")


def both(stored_draws: dict[str, Any]) -> dict[str, Any]:
    """Combinations and other runs together."""
    return {**stored_draws["others"], **stored_draws["combinations"]}


if __name__ == "__main__":
    main()
