"""Held-out log loss of classifiers with a learnt scale of their prior, beside scikit-learn's LogisticRegressionCV.

    python benchmarks/log_loss.py [--only wine,breast] [--out benchmarks/results]

Each of five stratified folds (shuffled by the seed 0) is predicted by models that were fitted to the other four:
`BayesianLogisticRegression(prior="auto")`, the same with its usual prior, and `LogisticRegressionCV` on standardised
columns, which searches its 10 values of C by five folds of its own, by log loss, and by accuracy as it does by default.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from svrhmc import BayesianLogisticRegression

TABLES = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
DRAWS = {"digits": 200}  # effective ones, of a model with 585 coefficients


def models(name: str) -> dict[str, Any]:
    """What is compared on one table."""
    draws = DRAWS.get(name, 1000)
    return {
        'prior="auto"': BayesianLogisticRegression(prior="auto", draws=draws),
        "usual prior": BayesianLogisticRegression(draws=draws),
        "LogisticRegressionCV, by log loss": _by_grid("neg_log_loss"),
        "LogisticRegressionCV, by accuracy": _by_grid(None),
    }


def _by_grid(scoring: str | None) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegressionCV(scoring=scoring, max_iter=2000))


def main() -> None:
    """A line for each table and model as it is there, and the file of all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TABLES))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = ["| table | model | log loss | of each fold |", "|---|---|---|---|"]
    for name in arguments.only.split(","):
        X, y = TABLES[name](return_X_y=True)
        folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
        for label, model in models(name).items():
            losses = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for fitted, held_out in folds:
                    model.fit(X[fitted], y[fitted])
                    losses.append(log_loss(y[held_out], model.predict_proba(X[held_out])))
            each = ", ".join(f"{loss:.4f}" for loss in losses)
            lines.append(f"| {name} | {label} | {np.mean(losses):.4f} | {each} |")
            print(lines[-1], flush=True)
    if arguments.out is not None:
        head = (__doc__ or "").strip().splitlines()
        text = "\n".join(
            [f"# {head[0]}", "", "`python benchmarks/log_loss.py --out benchmarks/results`", "", *lines, ""]
        )
        (arguments.out / "log_loss.md").write_text(text)


if __name__ == "__main__":
    main()
