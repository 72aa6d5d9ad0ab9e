"""Models whose functions JAX differentiates in reverse mode alone, or only once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from svrhmc import sample, targets
from svrhmc.models.functions import count_loops

X = np.linspace(-1.0, 1.0, 20)
Y = 0.5 * X**3 + 0.1 * np.cos(7 * X)


def reverse_only():
    """x³, by a rule whose rule has a rule of its own: forward mode gets no further than the first, as with `odeint`."""

    @jax.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, slope: (2 * x * slope,))

    @jax.custom_vjp
    def cube(x):
        return x * square(x)

    cube.defvjp(lambda x: (x * square(x), x), lambda x, slope: (3 * square(x) * slope,))
    return cube


def once_only():
    """x³, whose derivative is computed outside JAX."""

    @jax.custom_vjp
    def cube(x):
        return x**3

    def backward(x, slope):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        found = jax.pure_callback(
            lambda at, by: np.asarray(3 * at**2 * by, at.dtype), shape, x, slope, vmap_method="expand_dims"
        )
        return (found,)

    cube.defvjp(lambda x: (x**3, x), backward)
    return cube


def target(cube, in_prior=False):
    def log_likelihood(params, row):
        curve = params["b"] ** 3 if in_prior else cube(params["b"])
        return -8 * (row["y"] - curve * row["x"] ** 3 - params["a"]) ** 2

    def log_prior(params):
        curve = cube(params["b"]) if in_prior else params["b"] ** 3
        return -0.5 * params["a"] ** 2 - 0.5 * (params["b"] - 1) ** 2 - 0.1 * curve**2

    return targets.model(log_likelihood, log_prior, {"x": X, "y": Y}, {"a": 0.0, "b": 1.0})


@pytest.mark.parametrize("in_prior", [False, True])
def test_a_function_for_reverse_mode_alone_has_its_hessian(in_prior):
    found, plain = target(reverse_only(), in_prior), target(lambda x: x**3, in_prior)
    assert not found.functions.forward
    assert plain.functions.forward  # else the comparison would be of one way with itself
    x = np.array([0.3, 0.8])
    np.testing.assert_allclose(found.hessian(x), plain.hessian(x), rtol=1e-12)
    np.testing.assert_allclose(found.prior_spread(), plain.prior_spread(), rtol=1e-12)


def test_a_function_for_reverse_mode_alone_is_sampled():
    """Beside the same model in forward mode, within chance: |z| < 4.5."""
    ours, plain = (sample(target(cube), draws=300, seed=0) for cube in (reverse_only(), lambda x: x**3))
    assert ours.certificate.verdict == plain.certificate.verdict
    error = np.hypot(ours.errors[0], plain.errors[0])
    assert (np.abs(ours.mean - plain.mean) < 4.5 * error).all()
    assert (np.abs(ours.mean - plain.mean - 0.5 * plain.sd) > 4.5 * error).all()  # so far off would be seen


@pytest.mark.parametrize("in_prior", [False, True])
def test_a_function_with_one_derivative_is_refused_at_the_door(in_prior):
    with pytest.raises(ValueError, match="a function that JAX can differentiate twice; got ValueError: Pure callbacks"):
        target(once_only(), in_prior)


@pytest.mark.slow
def test_a_differential_equation_by_odeint_is_sampled():
    """dz/dt = −k z, observed with noise: the posterior is that of the solution in closed form, |z| < 4.5."""
    from jax.experimental.ode import odeint

    times = np.linspace(0.5, 3.0, 6)
    y = 2.0 * np.exp(-0.7 * times) + 0.1 * np.cos(9 * times)

    def made(solve):
        def log_likelihood(params, row):
            k, z = jnp.exp(params["log_k"]), params["z"]
            return -50 * ((row["y"] - solve(k, z, row["t"])) ** 2).sum()

        def log_prior(params):
            return -0.5 * params["log_k"] ** 2 - 0.5 * (params["z"] - 2) ** 2

        one = {"t": times[None], "y": y[None]}
        return targets.model(log_likelihood, log_prior, one, {"log_k": 0.0, "z": 1.5})

    def by_odeint(k, z, t):
        return odeint(lambda z, _, k: -k * z, z, jnp.concatenate([jnp.zeros(1), t]), k, rtol=1e-9, atol=1e-9)[1:]

    found, plain = (sample(made(s), draws=300, seed=0) for s in (by_odeint, lambda k, z, t: z * jnp.exp(-k * t)))
    assert (np.abs(found.mean - plain.mean) < 4.5 * np.hypot(found.errors[0], plain.errors[0])).all()
    assert (np.abs(found.sd - plain.sd) < 4.5 * np.hypot(found.errors[1], plain.errors[1])).all()


def looping(turns, inner=1):
    """A row's mean by loops in which nearly nothing is done, one within another."""

    def log_likelihood(params, row):
        def one(carry, _):
            return jax.lax.scan(lambda c, _: (c * 0.999 + params["a"], None), carry, None, length=inner)[0], None

        return -((row - jax.lax.scan(one, 0.0 * params["a"], None, length=turns)[0]) ** 2)

    return targets.model(log_likelihood, lambda params: -(params["a"] ** 2), np.zeros(3), {"a": 0.5})


def test_turns_of_loops_are_part_of_the_declared_cost():
    """The compiler counts them once. Forwards and backwards there are 2 × 1000 of them, which 3 rows share, as they do
    with 100 × 10; a loop whose end is not known counts as 64.
    """
    short, long = (looping(turns).row_nanoseconds for turns in (2, 1000))
    assert long > short + 200 * 2 * 900 / 3
    assert looping(100, 10).row_nanoseconds == pytest.approx(long, rel=0.5)

    def open_end(x):
        return jax.lax.while_loop(lambda c: c[0] < x, lambda c: (c[0] + 1.0, c[1] * 2), (0.0, x))[1]

    assert count_loops(jax.make_jaxpr(open_end)(3.0).jaxpr)[1] == 64
    assert count_loops(jax.make_jaxpr(lambda x: x * 2)(3.0).jaxpr) == (0.0, 0.0)
