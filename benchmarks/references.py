"""`svrhmc.sample` with default options against NumPyro, on two data sets of every family.

The models below are written from the statistical definition of each family and share nothing with this library:
NumPyro's distributions, its NUTS, float64. Moments found are kept in tests/stored/references.json, with standard errors
by batch means; `tests/test_references.py` compares `sample` with them without NumPyro.

    python benchmarks/references.py                 # everything; writes benchmarks/results/references.md
    python benchmarks/references.py --kept          # `sample` alone, against the moments kept
    python benchmarks/references.py --only gamma    # one family

Bars: means within 0.03 posterior sd, sds within 2 %, and a verdict ("exact", "certified" or "local").
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
MEAN_BAR, SD_BAR = 0.03, 0.02


def model(problem):
    """A function that NumPyro traces; its sites are `x` (coefficients) and, where rows share one, `shared`."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import log_ndtr

    from family_problems import FREEDOM, NOISE_VARIANCE

    X, y = jnp.asarray(problem.X), jnp.asarray(problem.y)
    columns, family = X.shape[1], problem.family
    offset = jnp.asarray(problem.more.get("offset", np.zeros(len(y))))

    def coefficients(shape=(columns,)):
        return numpyro.sample("x", dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))

    def bernoulli():
        numpyro.sample("y", dist.Bernoulli(logits=X @ coefficients()), obs=y)

    def probit():
        numpyro.factor("y", log_ndtr((2 * y - 1) * (X @ coefficients())).sum())

    def binomial():
        trials = jnp.asarray(problem.more["trials"]).astype(int)
        numpyro.sample("y", dist.Binomial(trials, logits=X @ coefficients()), obs=y)

    def poisson():
        numpyro.sample("y", dist.Poisson(jnp.exp(offset + X @ coefficients())), obs=y)

    def known_noise():
        numpyro.sample("y", dist.Normal(X @ coefficients(), NOISE_VARIANCE**0.5), obs=y)

    def gaussian():
        mean, log_sigma = X @ coefficients(), numpyro.sample("shared", dist.Normal(0.0, 5.0))
        numpyro.sample("y", dist.Normal(mean, jnp.exp(log_sigma)), obs=y)

    def student():
        mean, log_scale = X @ coefficients(), numpyro.sample("shared", dist.Normal(0.0, 5.0))
        numpyro.sample("y", dist.StudentT(FREEDOM, mean, jnp.exp(log_scale)), obs=y)

    def negative_binomial():
        mean, log_phi = jnp.exp(X @ coefficients()), numpyro.sample("shared", dist.Normal(0.0, 2.0))
        numpyro.sample("y", dist.NegativeBinomial2(mean, jnp.exp(log_phi)), obs=y)

    def gamma():
        mean, log_alpha = jnp.exp(X @ coefficients()), numpyro.sample("shared", dist.Normal(0.0, 2.0))
        alpha = jnp.exp(log_alpha)
        numpyro.sample("y", dist.Gamma(alpha, alpha / mean), obs=y)

    def categorical():
        others = int(problem.y.max())
        x = coefficients((others, columns))
        logits = jnp.column_stack([jnp.zeros(len(y)), X @ x.T])
        numpyro.sample("y", dist.Categorical(logits=logits), obs=y.astype(int))

    return {
        "bernoulli": bernoulli, "probit": probit, "binomial": binomial, "poisson": poisson,
        "gaussian, known noise": known_noise, "gaussian": gaussian, "student-t": student,
        "negative-binomial": negative_binomial, "gamma": gamma, "categorical": categorical,
    }[family]  # fmt: skip


def batch_error(values, batches=40):
    """Standard error of the mean over chains and draws, (chains, draws, dim)."""
    chains, draws, dim = values.shape
    means = values[:, : draws // batches * batches].reshape(chains * batches, -1, dim).mean(axis=1)
    return means.std(axis=0, ddof=1) / np.sqrt(len(means))


def reference(problem, draws=2_500, chains=8):
    """Mean and sd of every coordinate, with standard errors; longer where the error of a mean is above the most."""
    import jax
    import numpyro
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    numpyro.enable_x64()
    kernel = NUTS(model(problem), dense_mass=True, target_accept_prob=0.9)
    run = MCMC(kernel, num_warmup=1_000, num_samples=draws, num_chains=chains, chain_method="vectorized",
               progress_bar=False)  # fmt: skip
    key, parts = jax.random.PRNGKey(2026), []
    while True:
        if parts:
            run.post_warmup_state, key = run.last_state, run.last_state.rng_key
        run.run(key)
        found = run.get_samples(group_by_chain=True)
        blocks = [np.asarray(found["x"]).reshape(chains, draws, -1)]
        blocks += [np.asarray(found["shared"])[:, :, None]] if "shared" in found else []
        parts.append(np.concatenate(blocks, axis=2))
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


def row(problem, exact, seed=0):
    """One line of the table, and whether the bars hold."""
    import svrhmc

    posterior = svrhmc.sample(problem.target(), seed=seed)
    mean, sd, mean_error, sd_error = (np.array(exact[key]) for key in ("mean", "sd", "mean_error", "sd_error"))
    of_mean, of_sd = np.abs((posterior.mean - mean) / sd).max(), np.abs(posterior.sd / sd - 1).max()
    errors = np.hypot(posterior.errors[0], mean_error), np.hypot(posterior.errors[1], sd_error)
    z = max(np.abs((posterior.mean - mean) / errors[0]).max(), np.abs((posterior.sd - sd) / errors[1]).max())
    verdict = posterior.certificate.verdict
    good = of_mean < MEAN_BAR and of_sd < SD_BAR and verdict in ("exact", "certified", "local")
    n, columns = problem.X.shape
    cells = (problem.family, problem.data, f"{n:,} × {columns}", len(mean), posterior.method, verdict, f"{of_mean:.4f}",
             f"{100 * of_sd:.2f} %", f"{z:.1f}", f"{(mean_error / sd).max():.4f}", "yes" if good else "no")  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |", good


HEAD = """# Every family against NumPyro, default options

`python benchmarks/references.py`: `svrhmc.sample(target)` against long runs of NumPyro's NUTS in float64, whose models
are written from the definition of each family. Priors: N(0, 1) for coefficients, N(0, 5²) for log σ and log s, N(0, 2²)
for log φ and log α. Errors are the largest over coordinates, of means in posterior sd, of sds relative; z is the
largest difference by the standard errors of both; the next column is the largest standard error of a reference's mean,
in sd.

| family | data | rows × columns | parameters | method | verdict | mean | sd | z | reference | within 0.03 and 2 % |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", action="store_true", help="do not run NumPyro")
    parser.add_argument("--only", default="", help="a family")
    arguments = parser.parse_args()
    from family_problems import PAIRS, problem

    lines = []
    for family, kind in PAIRS:
        if arguments.only not in ("", family):
            continue
        made, name, began = problem(family, kind), f"{family}/{kind}", time.perf_counter()
        if not arguments.kept:
            keep(name, made, reference(made))
        line, _ = row(made, kept()[name])
        lines.append(line)
        print(f"{line}  {time.perf_counter() - began:.0f} s", flush=True)
    if not arguments.only:
        RESULTS.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
