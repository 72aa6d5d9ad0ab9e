"""Posteriors to measure on: real data that scikit-learn brings along, and data simulated from fixed seeds.

Every one has independent N(0, 1) priors on its coefficients; the first column is the intercept's and is 1.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import svrhmc


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, labels or responses, and the model: "logistic", or "linear" with noise of variance 1."""

    name: str
    X: np.ndarray
    y: np.ndarray
    family: str = "logistic"

    def target(self):
        """A new one each time: nothing, such as the mode, is known to it yet."""
        return getattr(svrhmc.targets, self.family)(self.X, self.y, prior_precision=1.0)


def standard(values):
    """Mean 0 and deviation 1, column by column."""
    return (values - values.mean(axis=0)) / values.std(axis=0)


def with_ones(X):
    return np.ascontiguousarray(np.hstack([np.ones((len(X), 1)), X]))


def bundled(name):
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(return_X_y=True)


def breast_cancer():
    X, y = bundled("breast_cancer")
    return Problem("breast_cancer", with_ones(standard(X)), y.astype(float))


def diabetes_linear():
    X, y = bundled("diabetes")
    return Problem("diabetes_linear", with_ones(standard(X)), standard(y), "linear")


def wine01():
    """The first two of three kinds."""
    X, y = bundled("wine")
    X, y = X[y != 2], y[y != 2]
    return Problem("wine01", with_ones(standard(X)), y.astype(float))


def digits49():
    """Fours and nines; grey values from 0 to 1."""
    X, y = bundled("digits")
    both = np.isin(y, (4, 9))
    return Problem("digits49", with_ones(X[both] / 16), (y[both] == 9).astype(float))


def rare_event():
    """50,000 rows with 0.3% of ones: what is known about 20 coefficients comes from about 150 rows."""
    rng = np.random.default_rng(20180703)
    X = with_ones(rng.standard_normal((50_000, 19)))
    x = 0.25 * rng.standard_normal(20)
    x[0] = -6.7
    return Problem("rare_event", X, (rng.random(len(X)) < 1 / (1 + np.exp(-X @ x))).astype(float))


def tall(name, n, seed, dtype):
    """50 columns of deviations from 0.3/√50 to 2/√50, made block by block."""
    rng, dim, block = np.random.default_rng(seed), 50, 100_000
    x = rng.standard_normal(dim + 1)
    x[0] = -0.5
    deviations = np.linspace(0.3, 2, dim) / np.sqrt(dim)
    X, y = np.ones((n, dim + 1), dtype), np.empty(n)
    for part in (slice(begin, begin + block) for begin in range(0, n, block)):
        X[part, 1:] = rng.standard_normal(X[part, 1:].shape) * deviations
        predictor = X[part].astype(float) @ x
        y[part] = rng.random(len(predictor)) < 1 / (1 + np.exp(-predictor))
    return Problem(name, X, y)


def synth_1e5():
    return tall("synth_1e5", 100_000, 20180701, np.float64)


def synth_1e6():
    return tall("synth_1e6", 1_000_000, 20180702, np.float32)


def covtype(path: Path):
    """UCI covertype, class 2 against all others. The file: npz with `num` (10 columns), `bin` (44) and `label`."""
    with np.load(path) as file:
        numeric, binary, label = file["num"].astype(float), file["bin"], file["label"]
    varied = binary[:, np.ptp(binary, axis=0) > 0].astype(float)
    return Problem("covtype", with_ones(np.hstack([standard(numeric), varied])), (label == 2).astype(float))


def heavy_tailed(n=20_000, dim=10, seed=20261115):
    """Rows from Student's t with 3 degrees of freedom: some have far more leverage than others."""
    rng = np.random.default_rng(seed)
    X = with_ones(rng.standard_t(3, (n, dim - 1)) / np.sqrt(3))
    x = rng.standard_normal(dim) / 2
    return Problem("heavy_tailed", X, (rng.random(n) < 1 / (1 + np.exp(-X @ x))).astype(float))


PROBLEMS = {
    make.__name__: make
    for make in (wine01, breast_cancer, digits49, diabetes_linear, rare_event, synth_1e5, synth_1e6, covtype)
}
