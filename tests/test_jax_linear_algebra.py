"""Programs of JAX share no batch of linear algebra out to the pool in which they run themselves."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from svrhmc.core import jit
from svrhmc.core.jax import scope

RNG = np.random.default_rng(0)
A = RNG.standard_normal((3000, 5, 5))
S = A @ A.transpose(0, 2, 1) + np.eye(5)
B = RNG.standard_normal((3000, 5))

CALLS = {
    "cholesky": lambda s, b: jnp.linalg.cholesky(s),
    "solve": jnp.linalg.solve,
    "triangular": lambda s, b: jax.scipy.linalg.solve_triangular(s, b, lower=True),
    "eigh": lambda s, b: jnp.linalg.eigh(s)[0],
    "svd": lambda s, b: jnp.linalg.svd(s)[1],
    "slogdet": lambda s, b: jnp.linalg.slogdet(s)[1],
    "qr": lambda s, b: jnp.abs(jnp.linalg.qr(s)[1]),
    "inverse": lambda s, b: jnp.linalg.inv(s),
    "eigenvalues": lambda s, b: jnp.sort(jnp.abs(jnp.linalg.eigvals(s))),
    "fft": lambda s, b: jnp.abs(jnp.fft.fft(b)),
    "gradient": jax.grad(lambda s, b: b @ jnp.linalg.solve(s, b) + jnp.log(jnp.diag(jnp.linalg.cholesky(s))).sum()),
    "in a loop": lambda s, b: jax.lax.fori_loop(0, 3, lambda k, x: jnp.linalg.cholesky(x @ x.T + s), s),
    "in a branch": lambda s, b: jax.lax.cond(b[0] > 0, lambda: jnp.linalg.inv(s), lambda: jnp.linalg.cholesky(s)),
    "in a scan": lambda s, b: jax.lax.scan(lambda x, y: (jax.jit(jnp.linalg.cholesky)(s) @ x, x * y), b, b)[1],
}


def shared(function):
    """Operations of the largest batch in a traced function, by the count that is taken for jaxlib's."""
    found = [0]
    for equation in function.eqns:
        batch = jit._batch_shape(equation)
        if batch:
            count = int(np.prod(batch))
            found.append(count if count > jit._piece_size(equation, len(batch)) else 0)
        found += [shared(inner) for inner in jit._inner_functions(equation.params)]
    return max(found)


@pytest.mark.parametrize("name", CALLS)
def test_no_batch_is_shared_out_and_the_numbers_are_the_same(name):
    plain = jax.vmap(CALLS[name])
    with scope():
        cut = jit.program(plain)
        assert shared(jax.make_jaxpr(plain)(S, B).jaxpr) > 0  # which the cure takes away
        assert shared(jax.make_jaxpr(cut)(S, B).jaxpr) == 0
        few = S[:40], B[:40]  # not shared out either way
        np.testing.assert_allclose(cut(S, B)[:40], jax.jit(plain)(*few), rtol=1e-9, atol=1e-9)


def test_what_is_no_linear_algebra_is_left_as_it_is():
    def plain(s, b):
        return jnp.tanh(s @ b)

    with scope():
        cut = jit.program(jax.vmap(plain))
        (inner,) = jit._inner_functions(jax.make_jaxpr(cut)(S, B).jaxpr.eqns[0].params)
        assert str(inner) == str(jax.make_jaxpr(jax.vmap(plain))(S, B).jaxpr)


def test_a_program_knows_its_fixed_arguments_by_name():
    made = jit.program(lambda count, x, *, scale: scale * x[:count], static_argnames=("count",))
    np.testing.assert_array_equal(made(2, np.arange(4.0), scale=3.0), [0.0, 3.0])
    np.testing.assert_array_equal(made(scale=1.0, count=1, x=np.arange(4.0)), [0.0])


CHILD = """
import numpy as np, svrhmc, jax.numpy as jnp
x = np.linspace(-10, 10, 11)

def kernel(alpha, rho):
    return alpha**2 * jnp.exp(-0.5 * ((x[:, None] - x) / rho) ** 2) + 1e-6 * jnp.eye(11)

def constrain(p):
    return {name: jnp.linalg.cholesky(kernel(1 + p["a"] ** 2, factor)) @ p["z"] for name, factor in zip("uvw", (1, 2, 3))}

def log_likelihood(p, row):
    return -0.5 * ((row["y"] - constrain(p)["u"]) ** 2).sum()

def log_prior(p):
    return -0.5 * (p["z"] ** 2).sum() - 0.5 * p["a"] ** 2

target = svrhmc.targets.model(
    log_likelihood, log_prior, {"y": np.sin(x)[None]}, {"a": 0.0, "z": np.zeros(11)}, constrain=constrain
)
draws = np.random.default_rng(0).standard_normal((4, 29_000, 12))
for _ in range(10):
    names, values = target.stated(draws)
print(values.shape, np.isfinite(target.potentials(draws[0])).all())
"""


@pytest.mark.slow
def test_a_cholesky_factor_of_every_draw_ends():
    """In a process with a deadline: with batches that are shared out it stands still for ever, on two cores."""
    ended = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=300, check=True)
    assert ended.stdout.split("\n")[0] == "(4, 29000, 33) True"
