"""Models of functions in a pickle: by name, by value, or with a clear error."""

import copy
import pickle
import sys

import numpy as np
import pytest

from svrhmc import targets

jnp = pytest.importorskip("jax").numpy

ROWS = np.array([0.5, 1.0, -0.5])
POINTS = np.array([[0.3], [-1.0]])


def log_likelihood(params, row):
    return -0.5 * (row - params["mean"]) ** 2


def log_prior(params):
    return -0.5 * params["mean"] ** 2


def constrain(params):
    return {"square": params["mean"] ** 2}


@pytest.fixture(scope="module")
def named():
    return targets.model(log_likelihood, log_prior, ROWS, {"mean": 0.0}, constrain=constrain)


@pytest.fixture(scope="module")
def local():
    return targets.model(log_likelihood, lambda params: -0.5 * params["mean"] ** 2, ROWS, {"mean": 0.0})


@pytest.mark.parametrize("which", ["named", "local"])
def test_a_model_comes_back_from_a_pickle(which, request):
    pytest.importorskip("cloudpickle")
    target = request.getfixturevalue(which)
    again = pickle.loads(pickle.dumps(target))
    np.testing.assert_array_equal(again.potentials(POINTS), target.potentials(POINTS))
    assert again.names == target.names
    assert (again.constrain is None) == (target.constrain is None)
    assert again.identity() == target.identity()


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_a_copy_has_the_same_functions(named, way):
    assert way(named).functions is named.functions
    assert way(named).form().functions is named.functions


def test_without_cloudpickle_functions_without_a_name_are_refused_with_what_to_do(local, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ValueError, match=r"defined at the top of a module.*pip install cloudpickle"):
        pickle.dumps(local)


def test_what_nothing_can_pickle_is_refused_with_the_reason(monkeypatch):
    from svrhmc.core.serialise import pickle_functions

    pytest.importorskip("cloudpickle")
    with pytest.raises(ValueError, match="cloudpickle cannot take either"):
        pickle_functions((sys._getframe(),))
