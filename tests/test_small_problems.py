"""Small problems are sampled in plain NumPy: the draws are those of compiled code, which is neither made nor loaded."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse

import svrhmc
from conftest import LIMIT
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.exact import split as split_module
from svrhmc.rows import forms
from svrhmc.shell import warming
from svrhmc.targets.priors import StudentT
from svrhmc.whitening import whitened

RNG = np.random.default_rng(4)
X = RNG.normal(size=(40, 3))
LABELS = {
    "bernoulli": RNG.integers(0, 2, 40),
    "poisson": RNG.poisson(2.0, 40),
    "student-t": RNG.normal(size=40),
    "negative-binomial": RNG.poisson(2.0, 40),
    "categorical": RNG.integers(0, 3, 40),
}


def spaces():
    """Families, storages and whitenings, of which each needs compiled code of its own."""
    yield "bernoulli", np.asarray, "dense", {}
    yield "bernoulli", scipy.sparse.csr_matrix, "diagonal", {}
    yield "bernoulli", np.asarray, "dense", {"prior": StudentT(3.0, 1.0)}
    yield "poisson", np.float32, "dense", {"offset": np.linspace(0, 1, 40), "weights": np.linspace(1, 2, 40)}
    for family in ("student-t", "negative-binomial", "categorical"):
        yield family, np.asarray, "dense", {}


def chains_of(family, stored, how, more):
    target = svrhmc.targets.glm(stored(X), LABELS[family], family, **more)
    return SplitHMC(0.6, 2).chains(whitened(target, how), 3, np.arange(3), 1)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "stored", "how", "more"), list(spaces()))
def test_draws_are_those_of_compiled_code(family, stored, how, more, monkeypatch):
    plain = chains_of(family, stored, how, more)
    assert plain.engine == "reference"
    monkeypatch.setattr(forms, "_SMALL", 0)
    compiled = chains_of(family, stored, how, more)
    assert compiled.engine == "numba"
    one, other = plain.extend(60), compiled.extend(60)
    rounding = 1e-3 if stored is np.float32 else 1e-9
    np.testing.assert_allclose(one.draws, other.draws, rtol=rounding, atol=rounding)
    np.testing.assert_array_equal(one.accepted, other.accepted)
    np.testing.assert_array_equal(one.spent, other.spent)


@pytest.mark.parametrize("fault", [False, True])
def test_draws_have_the_law_of_the_posterior(fault, monkeypatch):
    """Mean and square of 200 chains beside quadrature; where every proposal is accepted they are off, beyond chance."""
    target = svrhmc.targets.logistic([[2.0], [1.6], [-2.4], [1.0]], [1, 1, 0, 1], prior_precision=0.35)
    x = np.linspace(-15, 25, 4001)
    p = np.exp(-target.potentials(x[:, None]))
    p /= p.sum()
    space = whitened(target, "dense")
    chains = SplitHMC(1.5, 1).chains(space, 1, np.arange(200), 1)
    if fault:
        noise = chains.kernel.noise
        monkeypatch.setattr(chains.kernel, "noise", lambda *at: ((*some, last - np.inf) for *some, last in noise(*at)))
    chains.extend(50)
    draws = space.out(chains.extend(300).draws)[..., 0]
    z = []
    for power in (1, 2):
        means = (draws**power).mean(axis=1)
        z.append((means.mean() - p @ x**power) / (means.std() / np.sqrt(len(means))))
    assert (np.abs(z).max() < LIMIT) != fault


def test_noise_drawn_ahead_is_that_of_each_step(monkeypatch):
    """Whatever is drawn ahead, and however a run is cut."""
    whole = chains_of("bernoulli", np.asarray, "dense", {}).extend(40)
    monkeypatch.setattr(split_module, "_AHEAD", 20)
    chains = chains_of("bernoulli", np.asarray, "dense", {})
    parts = [chains.extend(count) for count in (1, 12, 27)]
    assert np.array_equal(np.concatenate([part.draws for part in parts], axis=1), whole.draws)


def test_an_engine_that_does_not_have_a_sampler_says_so():
    target = svrhmc.targets.logistic(X, LABELS["bernoulli"])
    with pytest.raises(
        ValueError, match="'numba' for this target and sampler; got 'reference': SubsampledMH is not def"
    ):
        SubsampledMH().run(target, 9, engine="reference")
    with pytest.raises(ValueError, match="got 'jax': it runs functions forms, and this target is known by its rows"):
        SplitHMC().run(target, 9, engine="jax")
    with pytest.raises(ValueError, match="engine must be one of 'auto', 'numba', 'reference', 'jax'; got 'cuda'"):
        svrhmc.sample(target, engine="cuda")


def test_random_words_of_many_steps_are_those_of_each():
    stream = svrhmc.core.randomness.Stream(5, np.arange(3))
    steps = np.arange((1 << 32) + 7, (1 << 32) + 12)
    together = stream.normals(steps, 4)
    for place, step in enumerate(steps.tolist()):
        assert np.array_equal(together[:, place], stream.normals(step, 4))


def test_energies_from_one_set_of_predictors_are_potentials_and_gradients():
    target = svrhmc.targets.glm(X, LABELS["poisson"], "poisson", prior=StudentT(3.0, 1.0))
    x = RNG.normal(size=(5, 3))
    value, slope = target.energies(x)
    np.testing.assert_allclose(value, target.potentials(x), rtol=1e-13)
    np.testing.assert_allclose(slope, target.gradients(x), rtol=1e-10, atol=1e-12)


def test_how_many_rows_are_few_is_a_matter_of_their_numbers_alone():
    def is_small(n, dim, family="bernoulli"):
        labels = np.arange(n) % 5 if family == "categorical" else np.arange(n) % 2
        return svrhmc.targets.glm(np.ones((n, dim)), labels, family).form().is_small

    assert is_small(3000, 6)
    assert is_small(569, 31)
    assert not is_small(20_000, 10)
    assert not is_small(3000, 40)
    assert not is_small(3000, 10, "categorical")


def test_what_is_compiled_ahead_is_for_problems_that_are_not_small():
    assert not any(warming._target(kind, warming._ROWS, warming._COLUMNS).form().is_small for kind in warming.KINDS)


CHILD = """
import sys
import numpy as np, svrhmc
rng = np.random.default_rng(0)
table = {"x": rng.normal(size=500), "g": rng.choice(list("abc"), 500), "y": rng.integers(0, 2, 500), "n": rng.poisson(3, 500)}
for formula, family in (("y ~ x + g", "bernoulli"), ("n ~ x", "negative-binomial")):
    found = svrhmc.fit(formula, table, family, progress=False)
    assert found.certificate.verdict == "exact", found.certificate
    found.predict(table)
assert not {"numba", "llvmlite", "jax"} & set(sys.modules), "compiled code was loaded"
"""


def test_fits_of_small_tables_load_no_compiler():
    subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True, timeout=300)
