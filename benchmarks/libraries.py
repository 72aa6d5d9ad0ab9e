"""Posteriors of models of NumPyro, PyMC and Bambi beside the libraries' own NUTS: a table in Markdown.

    python benchmarks/libraries.py [--only numpyro,pymc,bambi] [--models logistic,ordinal] [--out FILE]

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
import described

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
    found = described.apart(posterior.parameters, draws)
    cells = [name, "yes" if name in module.LOG_CONCAVE else "no", posterior.certificate.verdict]
    for difference, error in ((found.mean, found.mean_error), (found.sd, found.sd_error)):
        worst = int(np.argmax(difference))
        cells += [f"{difference[worst]:.3f} ({error[worst]:.3f})", f"`{found.names[worst]}`"]
    cells += [f"{found.effective:,.0f}", f"{ours:.0f}, {theirs:.0f}"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(LIBRARIES))
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
        module = importlib.import_module(f"test_models_{library}")
        lines += ["", f"## {library}", *HEAD]
        for name in chosen.models.split(",") if chosen.models else module.MODELS:
            lines.append(row(module, name))
            print(library, lines[-1], flush=True)
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
