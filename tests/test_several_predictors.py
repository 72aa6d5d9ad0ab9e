"""Several predictors in blocks of rows: sums, lengths and steps are those of the formulas."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import svrhmc
from svrhmc import gradients
from svrhmc.dynamics import Anchored
from svrhmc.exact import SplitHMC
from svrhmc.families.base import SharedFamily
from svrhmc.rows import base as stored_rows
from svrhmc.rows.base import DenseRows, Rows
from svrhmc.rows.predictors import PredictorRows
from svrhmc.targets import glm
from svrhmc.whitening import dense_whitening, whitened

MANY = 13_003  # rows of 41 columns, so many that compiled passes are used, and not a whole number of tiles


class Several(SharedFamily):
    """So many predictors of all columns, and further ones."""

    def __init__(self, blocks, widths):
        self._blocks, self._widths = blocks, widths

    @property
    def blocks(self):
        return self._blocks

    @property
    def widths(self):
        return self._widths

    @property
    def shared(self):
        return sum(max(1, width) for width in self._widths)

    def mean(self, t):
        return t


def drawn(n, columns, dtype=np.float64, seed=3):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((n, columns)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("signs", [(1,), (-1,), (-1, 1)])
def test_gram_matrices_of_many_weights(dtype, signs):
    rng, X = drawn(MANY, 41, dtype)
    weights = rng.random((MANY, 3)) * rng.choice(signs, (MANY, 3))
    rows, room = DenseRows(X), 1e-12 if dtype is np.float64 else 1e-4
    found = rows.grams(list(weights.T))
    for each, w in zip(found, weights.T, strict=True):
        wanted = (X.astype(float) * w[:, None]).T @ X.astype(float)
        assert np.abs(each - wanted).max() < room * np.abs(wanted).max()
        assert np.abs(each + wanted).max() > 0.1 * np.abs(wanted).max()  # of the other sign
    assert found == pytest.approx(Rows.grams(rows, list(weights.T)), rel=room * 1e3, abs=room * MANY)


def test_hessians_of_blocks():
    rng, X = drawn(200, 3)
    rows = PredictorRows(DenseRows(X), Several(2, (0,)))
    curvature = rng.standard_normal((200, 3, 3))
    curvature = curvature + curvature.swapaxes(1, 2)
    J = rows.jacobians(np.arange(200))
    assert J @ np.arange(7.0) == pytest.approx(rows.predict(np.arange(7.0)[None])[0])
    assert rows.gram(curvature) == pytest.approx(np.einsum("iad,iab,ibe->de", J, curvature, J))


@pytest.mark.parametrize("shared", [0, 1])
def test_lengths_of_rows_in_one_pass(shared):
    rng, X = drawn(500, 4)
    rows = PredictorRows(DenseRows(X), Several(3, (0,) * shared))
    root = rng.standard_normal((rows.dim, rows.dim))
    how = dense_whitening(np.zeros(rows.dim), root @ root.T + np.eye(rows.dim))
    one, other = rows.whitened_lengths(how), rows.lengths(how.norms)
    assert one == pytest.approx(other, rel=1e-12)
    J = rows.jacobians(np.arange(500))
    assert one**2 == pytest.approx(((J @ how.factor) ** 2).sum(axis=(1, 2)))


def classes(n, columns, count=4, **more):
    rng, X = drawn(n, columns)
    t = X @ (rng.standard_normal((columns, count)) / np.sqrt(columns))
    return glm(X, (t + rng.gumbel(size=(n, count))).argmax(axis=1), "categorical", **more)


def test_the_noise_of_curvatures_is_that_of_all_rows():
    """From 1024 rows; 1/√1024 of it would be their own chance, if they were drawn by chance."""
    space = whitened(classes(4000, 6), "dense")
    J, C, P = space.target.rows.jacobians(np.arange(4000)), space.curvatures, space.row_table[2]
    H = np.einsum("iad,iab,ibe->ide", J @ space.whitening.factor, C, J @ space.whitening.factor)
    exact = float(((H**2).sum(axis=(1, 2)) / P).sum() / space.dim)
    assert space.curvature_noise == pytest.approx(exact, rel=0.1)
    bound = float((space.rows_form.curvature_norms(C) ** 2 * space.row_norms**4 / P).sum() / space.dim)
    assert bound > 4 * exact  # what it was taken for


LABELS = {
    "gaussian": lambda rng, n: rng.standard_normal(n),
    "student-t": lambda rng, n: rng.standard_t(4, n),
    "gamma": lambda rng, n: rng.gamma(2.0, 0.5, n),
    "negative-binomial": lambda rng, n: rng.negative_binomial(2, 0.5, n),
    "categorical": lambda rng, n: rng.integers(0, 4, n),
}


@pytest.mark.parametrize("family", LABELS)
def test_gradients_of_many_rows(family, monkeypatch):
    """Compiled, block by block on all cores, against the formulas of the loss in NumPy."""
    monkeypatch.setattr(stored_rows, "_COMPILED", 0)
    rng, X = drawn(MANY, 41)
    X = X / np.sqrt(41)
    more = {"weights": rng.random(MANY)} if family == "categorical" else {"offset": rng.random(MANY)}
    target = glm(X, LABELS[family](rng, MANY), family, **more)
    x = 0.3 * rng.standard_normal((2, target.dim))
    assert target.rows.can_combine_slopes(target.loss)
    parts = target.assemble(target.parts(x, None), None) + target.prior_gradient(x)
    assert target.gradients(x) == pytest.approx(parts, rel=1e-10, abs=1e-9)
    assert np.abs(target.gradients(x + 0.01) - parts).max() > 1e-3


@pytest.mark.parametrize("family", [pytest.param("student-t", marks=pytest.mark.slow), "categorical"])
def test_both_engines_on_padded_rows(family):
    """37 columns are read as 48; 131 rows are two tiles and a rest, and batches of 7 one four and a rest."""
    rng, X = drawn(131, 37)
    target = glm(X, LABELS[family](rng, 131), family)
    space = whitened(target, "dense")
    for gradient in (gradients.Full(), gradients.Minibatch(7, importance=True)):
        sampler = svrhmc.Sampler(Anchored(0.2, 2.0, 1.0), gradient)
        one, other = (sampler.run(space, 30, chains=2, engine=each).draws for each in ("reference", "numba"))
        assert np.abs(one - other).max() < 1e-9 * np.abs(one).max()
    chains = SplitHMC().chains(space, 1, np.arange(3), 1)
    chains.extend(4)
    x, memory = space.out(chains.state.x), chains.state.memory
    f = target.potentials(x)
    assert memory["f"] - memory["f"][0] == pytest.approx(f - f[0], abs=1e-8)
    assert memory["gradient"] == pytest.approx(space.whitening.pull(target.gradients(x)), rel=1e-9, abs=1e-9)


@pytest.mark.slow
def test_ten_separable_classes_are_sampled():
    """Rows pass from one class to another within steps far shorter than the posterior is wide."""
    X, y = load_digits(return_X_y=True)
    posterior = svrhmc.BayesianLogisticRegression().fit(X, y).posterior_
    assert posterior.certificate.verdict == "exact"
    assert posterior.sampler.step_size < 0.05
    assert posterior.trace.acceptance.min() > 0.5
