"""Models of other libraries as targets: what is missing is named, and names come back."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

import svrhmc
from svrhmc.models import description as described
from svrhmc.targets.libraries import from_bambi, from_numpyro, from_pymc

DOORS = {"numpyro": from_numpyro, "pymc": from_pymc, "bambi": from_bambi}
QUIET = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")


@pytest.mark.parametrize("package", DOORS)
@pytest.mark.parametrize("absent", ["jax", "itself"])
def test_what_is_missing_is_named_with_what_to_install(monkeypatch, package, absent):
    name = package if absent == "itself" else absent
    found = importlib.util.find_spec
    monkeypatch.setattr(described, "find_spec", lambda asked: None if asked == name else found("numpy"))
    with pytest.raises(
        ModuleNotFoundError, match=rf"from_{package} needs {name}: pip install 'svrhmc\[jax\]' {package}\."
    ):
        DOORS[package](lambda: None)


def test_no_door_loads_what_another_needs():
    pytest.importorskip("numpyro")
    code = """
import sys
import svrhmc
import numpyro, numpyro.distributions as dist
def model(y):
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(b, 1), obs=y)
import numpy as np
print(svrhmc.targets.from_numpyro(model, np.ones(5)).names)
print(sorted({"pymc", "bambi", "pytensor"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["('b',)", "[]"]


X = np.random.default_rng(3).standard_normal((200, 2))
Y = (X[:, 0] + np.random.default_rng(4).logistic(size=200) > 0).astype(np.int64)


def of_numpyro():
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ b * scale**0.1), obs=y)

    return model, from_numpyro(model, X, Y)


def of_pymc():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=2)
        scale = pm.LogNormal("scale", 0, 0.5)
        pm.Bernoulli("y", logit_p=pm.math.dot(X, b) * scale**0.1, observed=Y)
    return model, from_pymc(model)


@QUIET
def test_two_libraries_give_the_same_target_and_the_same_names():
    (_, ours), (_, theirs) = of_numpyro(), of_pymc()
    rng = np.random.default_rng(0)
    assert ours.names == ("b[0]", "b[1]", "sampled scale")
    assert theirs.names == ("b[0]", "b[1]", "scale_log__")
    x = rng.standard_normal((5, 3))
    np.testing.assert_allclose(ours.potentials(x), theirs.potentials(x), rtol=1e-10)
    np.testing.assert_allclose(ours.gradients(x), theirs.gradients(x), rtol=1e-9, atol=1e-9)


def test_parameters_are_reported_as_the_model_has_them():
    _, target = of_numpyro()
    posterior = svrhmc.sample(target, draws=100, chains=2, seed=0)
    assert posterior.summary().names == ("scale", "b[0]", "b[1]")  # a scalar first
    assert (posterior.summary().columns["5%"][0]) > 0  # log scale is negative half of the time
    assert posterior.probability("scale > 0") == 1
    assert "scale -" not in repr(posterior)
    assert "sampled" not in repr(posterior)
    assert list(posterior.to_frame().index) == ["scale", "b[0]", "b[1]"]
    assert (posterior.draws_frame()["scale"] > 0).all()
