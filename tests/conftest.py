import inspect
import os
import sys
import threading
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import scipy.sparse
from _pytest.assertion import rewrite
from numba.core.dispatcher import _FunctionCompiler

import svrhmc
from hand_written_laws import CURVATURE, Quadratic
from svrhmc.dynamics import BAOAB, UBU, Anchored, EulerMaruyama, Exponential, Overdamped, Underdamped
from svrhmc.rows import forms


@contextmanager
def untraced():
    """Out of sight of what measures coverage, which looks at each line and makes Python half as fast."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        threading.settrace(of_threads)
        sys.settrace(tracer)


def pytest_configure(config):
    """What tests write may be lost with the machine: only the processes that they start wait for the disk. Most tests
    are about something else than the verdict, and make too few draws for one: only those of alerts hear its warnings.
    JAX's programs are optimised where the slow tests are run: elsewhere it would take a third of the time of tests
    with JAX.
    """
    if config.getoption("markexpr") == "not slow":
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    os.fsync = lambda file: None
    _FunctionCompiler.compile = untraced()(_FunctionCompiler.compile)
    rewrite.rewrite_asserts = untraced()(rewrite.rewrite_asserts)
    for category in ("svrhmc.VerdictWarning", "sklearn.exceptions.ConvergenceWarning"):
        config.addinivalue_line("filterwarnings", f"ignore:The verdict on this posterior:{category}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a parametrised test with `ordinary`, the cases to which its function says no are slow."""
    for item in items:
        for mark in item.iter_markers("ordinary"):
            chosen = mark.args[0]
            if not chosen(**{name: item.callspec.params[name] for name in inspect.signature(chosen).parameters}):
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A test marked `untraced` repeats lines that other tests cover, many times."""
    with untraced() if item.get_closest_marker("untraced") else nullcontext():
        return (yield)


@pytest.fixture
def compiled(monkeypatch):
    """No problem is small: samplers run compiled, as on large ones."""
    monkeypatch.setattr(forms, "_SMALL", 0)


COMPILED_AT_LENGTH = ("jax",)  # engines whose programs take seconds each to compile: all but a few tests are slow
LIMIT = 4.5  # |z| of a fixed seed: one false alarm in 150,000 checks


def equal(engine, one, other, rows="float64"):
    """Bit for bit; to rounding where another number of chains is another program, in which sums may have another order.

    rows: what has "float32" in it where sums are rounded to that.
    """
    if engine in COMPILED_AT_LENGTH:
        rounding = 1e-5 if "float32" in rows else 1e-9
        return bool(np.allclose(one, other, rtol=rounding, atol=rounding / 10))
    return bool((one == other).all())


def every_engine():
    """Their names, as parameters of a test."""
    return [
        pytest.param(name, marks=pytest.mark.slow) if name in COMPILED_AT_LENGTH else name
        for name in svrhmc.engines.names()
    ]


@pytest.fixture
def problem():
    """Five strongly different components in two dimensions, spectrum far from closed under inversion."""
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(5, 2, 2))
    S = roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(2)
    return Quadratic(S, rng.normal(size=(5, 2)) * 3 + 2)


@pytest.fixture
def rows():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(6, 3))
    X[rng.random(X.shape) < 0.3] = 0
    return X, np.array([0, 1, 1, 0, 1, 0]), rng.normal(size=6)


def every_target(rows):
    X, labels, y = rows
    S = np.diag([0.5, 1.0, 4.0])
    many = np.stack([S * (k + 1) for k in range(6)])
    return {
        "logistic": svrhmc.targets.logistic(X, labels),
        "logistic-csr": svrhmc.targets.logistic(scipy.sparse.csr_matrix(X), labels),
        "logistic-float32": svrhmc.targets.logistic(X.astype(np.float32), labels, [0.5, 1.0, 2.0]),
        "linear": svrhmc.targets.linear(X, y, noise_variance=0.5),
        "linear-csr": svrhmc.targets.linear(scipy.sparse.csr_array(X), y),
        "gaussian": svrhmc.targets.gaussian(X, S),
        "gaussian-many": svrhmc.targets.gaussian(X, many),
        "custom": svrhmc.targets.custom(
            6,
            3,
            lambda x, i: (x - X[i]) @ S,
            potential=lambda x: 0.5 * np.mean([(x - a) @ S @ (x - a) for a in X]),
            smoothness=4.0,
            convexity=0.5,
            component_smoothness=4.0,
        ),
    }


@pytest.fixture
def targets(rows):
    return every_target(rows)


def every_dynamics(overdamped, step, friction, mass):
    """One of each kind, with these settings; the overdamped one has a step of its own."""
    return {
        "overdamped": Overdamped(overdamped),
        "euler": EulerMaruyama(step, friction, mass),
        "paper": Underdamped(step, friction, mass),
        "exponential": Exponential(step, friction, mass),
        "ubu": UBU(step, friction, mass),
        "baoab": BAOAB(step, friction, mass),
        "anchored": Anchored(step, friction, mass, CURVATURE),
    }
