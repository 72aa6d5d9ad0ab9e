"""Posteriors of models of NumPyro, PyMC and Bambi beside the libraries' own NUTS: a table in Markdown.

    python benchmarks/libraries.py [--only numpyro,pymc,bambi,gradients] [--models logistic,ordinal] [--out FILE]

The models are those of `tests/test_models_*.py`, with 60 rows each. `svrhmc.sample` runs with its defaults, NUTS with 4
chains of 4,000 draws after 1,000 of warm-up, in float64. Differences are the largest over all parameters as the model
has them, and quantities derived from them: of means in posterior sd of NUTS, of sds relative to these; in brackets
stands the standard error of that difference, of both sides together. Seconds are those of a whole call, with
compilation.
"""

import argparse
import importlib
import importlib.metadata
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import svrhmc

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import library_models

LIBRARIES = ("numpyro", "pymc", "bambi")
HEAD = (
    "| model | log-concave | verdict | mean apart | of | sd apart | of | effective draws of NUTS | s: sample, NUTS |",
    "|---|---|---|---|---|---|---|---|---|",
)


def timed(run, *args):
    began = time.perf_counter()
    return run(*args), time.perf_counter() - began


def row(module, name):
    """One model, as a line of the table."""
    posterior, ours = timed(svrhmc.sample, module.target(name))
    draws, theirs = timed(module.nuts, name)
    found = library_models.apart(posterior.parameters, draws)
    cells = [name, "yes" if name in module.LOG_CONCAVE else "no", posterior.certificate.verdict]
    for difference, error in ((found.mean, found.mean_error), (found.sd, found.sd_error)):
        worst = int(np.argmax(difference))
        cells += [f"{difference[worst]:.3f} ({error[worst]:.3f})", f"`{found.names[worst]}`"]
    cells += [f"{found.effective:,.0f}", f"{ours:.0f}, {theirs:.0f}"]
    return "| " + " | ".join(cells) + " |"


def as_numpyro(X, y):
    import numpyro
    import numpyro.distributions as dist

    def model(X, y):
        b = numpyro.sample("b", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Bernoulli(logits=X @ b), obs=y)

    return svrhmc.targets.from_numpyro(model, X, y)


def as_pymc(X, y):
    import pymc as pm

    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=pm.math.dot(X, b), observed=y)
    return svrhmc.targets.from_pymc(model)


def as_functions(X, y):
    import jax.numpy as jnp

    def log_likelihood(b, rows):
        t = rows[0] @ b
        return rows[1] * t - jnp.logaddexp(0.0, t)

    start = np.zeros(X.shape[1])
    return svrhmc.targets.model(log_likelihood, lambda b: -jnp.sum(b**2) / 8, (X, y), start, batched=True)


def gradients(rounds=15):
    """What f and ∇f of a logistic regression take through each door, measured in turn in one process."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100_000, 20))
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-X[:, 0]))).astype(np.int64)
    made = {"plain JAX": as_functions(X, y), "NumPyro": as_numpyro(X, y), "PyMC": as_pymc(X, y)}
    lines = [
        "",
        "## A gradient of a logistic regression of 100,000 × 20 through each door",
        f"The median of {rounds} rounds, in processor time of all threads.",
        "",
        "| states at once | " + " | ".join(f"{name}, ms" for name in made) + " |",
        "|---|" + "---|" * len(made),
    ]
    for states in (1, 4):
        x, times = 0.1 * rng.standard_normal((states, 20)), {name: [] for name in made}
        for _ in range(rounds + 1):
            for name, target in made.items():
                began = time.process_time()
                target.energies(x)
                times[name].append(1e3 * (time.process_time() - began))
        lines.append(f"| {states} | " + " | ".join(f"{np.median(each[1:]):.1f}" for each in times.values()) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join((*LIBRARIES, "gradients")))
    parser.add_argument("--models")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", *LIBRARIES))
    told = " ".join(__doc__.split("\n\n")[2].split())
    lines = [
        "# Models of NumPyro, PyMC and Bambi beside their own NUTS",
        "",
        f"`python benchmarks/libraries.py --only {chosen.only}`; {versions}. {told}",
    ]
    for library in chosen.only.split(","):
        if library == "gradients":
            lines += gradients()
            print("\n".join(lines[-4:]), flush=True)
            continue
        module = importlib.import_module(f"test_models_{library}")
        lines += ["", f"## {library}", *HEAD]
        for name in chosen.models.split(",") if chosen.models else module.MODELS:
            lines.append(row(module, name))
            print(library, lines[-1], flush=True)
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
