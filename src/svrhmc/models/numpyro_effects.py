"""Effects of groups in a NumPyro model, bⱼ ~ N(μ, τ) with τ (or μ) unknown, in variables that chains move in easily.

As it is written, such a density has no mode: where τ goes to 0 and all bⱼ to μ it is infinite. With bⱼ = μ + τzⱼ it has
one, but where the data say much about bⱼ, zⱼ goes like 1/τ. Both are ends of one change of variables: let the rest of
the model say about bⱼ what a normal law of precision hⱼ around β̂ⱼ would. Then given μ and τ

    bⱼ = mⱼ + sⱼzⱼ ,      sⱼ⁻² = τ⁻² + hⱼ ,      mⱼ = μ + sⱼ²hⱼ(β̂ⱼ − μ) ,

has a zⱼ that is nearly N(0, 1) whatever τ is. As bⱼ is N(μ, τ), zⱼ is N((μ − mⱼ)/sⱼ, τ/sⱼ) before the data: with
r = sⱼ/τ = (1 + hⱼτ²)^{−½} and p = hⱼ(β̂ⱼ − μ) that is N(−τrp, 1/r), and bⱼ = μ + τr(τrp + zⱼ). The posterior is the same
with any h ≥ 0 and β̂, and h = 0 is bⱼ = μ + τzⱼ. Here h and β̂ are the curvature and the centre of the quadratic that
the rest of the model is at the mode of the one with h = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.jax import Tree
from svrhmc.models.numpyro_sites import Arguments, Model

_ROUNDS = 200  # of the search for the mode
_SUFFIX = "_standardised"  # of the name of z


def standardise_effects(model: Model, arguments: Arguments) -> Model:
    """The model with its effects of groups in the variables z; the model itself where it has none, or where the
    information about them cannot be had.
    """
    import jax

    try:
        effects = _find_effects(model, arguments)
    except (TypeError, ValueError, NotImplementedError, jax.errors.JAXTypeError):
        return model  # one that does not run without its numbers, or whose priors cannot be drawn
    if not effects:
        return model
    nothing = dict.fromkeys(effects, (0.0, 0.0))
    return _in_standard_variables(
        model, _information(model, arguments, _in_standard_variables(model, nothing), effects)
    )


def _find_effects(model: Model, arguments: Arguments) -> list[str]:
    """Latent sites of several normal values whose mean or standard deviation depends on other latent sites."""
    import jax
    from numpyro import distributions, handlers
    from numpyro.infer import init_to_uniform

    run, args, kwargs = arguments.called(model, {})

    @jax.jit
    def normal_priors(key: Tree) -> dict[str, tuple[Tree, Tree]]:
        started = handlers.substitute(handlers.seed(run, key), substitute_fn=init_to_uniform(radius=1.0))
        sites = handlers.trace(started).get_trace(*args, **kwargs)
        laws = {name: _unwrapped(site["fn"]) for name, site in sites.items() if _is_latent(site)}
        return {
            name: (law.loc, law.scale)
            for name, law in laws.items()
            if type(law) is distributions.Normal
            and np.size(sites[name]["value"]) > 1
            and "_control_flow_done" not in sites[name]  # of a scan, each step of which has one value
        }

    first, second = (normal_priors(jax.random.PRNGKey(seed)) for seed in (0, 1))
    return [
        name for name in first if any(not np.array_equal(a, b) for a, b in zip(first[name], second[name], strict=True))
    ]


def _is_latent(site: Mapping[str, Tree]) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def _unwrapped(law: Tree) -> Tree:
    """The law of a single value."""
    from numpyro import distributions

    while isinstance(law, distributions.Independent | distributions.ExpandedDistribution):
        law = law.base_dist
    return law


def _in_standard_variables(model: Model, information: Mapping[str, tuple[Tree, Tree]]) -> Model:
    """The model in the variables z, by h and β̂ of each effect."""
    import numpyro
    from jax import numpy as jnp
    from numpyro import distributions, handlers
    from numpyro.infer.reparam import Reparam

    class Standardised(Reparam):  # type: ignore[misc]
        def __init__(self, precision: Tree, centre: Tree) -> None:
            self.precision, self.centre = precision, centre

        def __call__(self, name: str, law: Tree, observed: Tree) -> tuple[None, Tree]:
            inner, shape, event = self._unwrap(law)
            r = (1 + self.precision * inner.scale**2) ** -0.5
            s, pull = inner.scale * r, self.precision * (self.centre - inner.loc)
            of_z = distributions.Normal(-s * pull, 1 / r).expand(shape)
            z = numpyro.sample(name + _SUFFIX, of_z.to_event(event) if event else of_z)
            return None, inner.loc + s * (s * pull + z)

    def arrays(pair: tuple[Tree, Tree]) -> Reparam:
        return Standardised(*map(jnp.asarray, pair))

    reparametrised: Model = handlers.reparam(model, config={name: arrays(pair) for name, pair in information.items()})
    return reparametrised


def _information(
    model: Model, arguments: Arguments, uninformed: Model, effects: list[str]
) -> dict[str, tuple[Array, Array]]:
    """h and β̂ of each effect, from the rest of the model at the mode of the one with h = 0."""
    import jax
    from numpyro import handlers
    from numpyro.infer.util import compute_log_probs

    place = _quantities_at_mode(uninformed, arguments)

    def rest(values: Mapping[str, Tree]) -> Tree:
        """All of the log density but the priors of the effects."""
        fixed = handlers.substitute(handlers.seed(model, 0), data={**place, **values})
        terms = compute_log_probs(*arguments.called(fixed, {}), {})[0]
        return sum(term for name, term in terms.items() if name not in effects)

    at = {name: place[name] for name in effects}

    @jax.jit
    def slope_and_curvature(values: Mapping[str, Tree]) -> dict[str, tuple[Tree, Tree]]:
        result = {}
        for name, value in values.items():
            slope = jax.grad(lambda own, name=name: rest({**values, name: own}))
            columns = value.shape[-1] if value.ndim > 1 else 1
            diagonal = 0.0
            for k in range(columns):  # groups do not see each other, so that one product serves all of them
                direction = (
                    jax.numpy.zeros_like(value).at[..., k].set(1.0) if columns > 1 else jax.numpy.ones_like(value)
                )
                diagonal = diagonal + direction * jax.jvp(slope, (value,), (direction,))[1]
            result[name] = slope(value), diagonal
        return result

    information = {}
    for name, (slope, curvature) in slope_and_curvature(at).items():
        precision = np.where(np.isfinite(curvature) & (curvature < 0), -np.asarray(curvature), 0.0)
        step = np.divide(slope, precision, out=np.zeros_like(precision), where=precision > 0)
        information[name] = precision, np.where(np.isfinite(step), at[name] + step, at[name])
    return information


def _quantities_at_mode(model: Model, arguments: Arguments) -> dict[str, Tree]:
    """All latent quantities, of which those of effects are derived, at a mode of the model."""
    import jax
    from jax.flatten_util import ravel_pytree
    from numpyro import handlers
    from numpyro.infer import init_to_median
    from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn
    from scipy.optimize import minimize

    seeded, args, kwargs = arguments.called(handlers.seed(model, 0), {})

    def start(model: Model) -> Tree:
        sites = handlers.trace(handlers.substitute(model, substitute_fn=init_to_median())).get_trace(*args, **kwargs)
        return unconstrain_fn(model, args, kwargs, {name: s["value"] for name, s in sites.items() if _is_latent(s)})

    flat, unravel = ravel_pytree(jax.jit(partial(start, seeded))())
    energy = jax.jit(jax.value_and_grad(lambda x: potential_energy(seeded, args, kwargs, unravel(x))))

    def finite(x: Array) -> tuple[float, Array]:
        value, slope = energy(x)
        return float(np.nan_to_num(value, nan=np.inf)), np.nan_to_num(np.asarray(slope, np.float64))

    with np.errstate(over="ignore", invalid="ignore"):
        end = minimize(finite, np.asarray(flat, np.float64), jac=True, method="L-BFGS-B", options={"maxiter": _ROUNDS})
    quantities: Callable[[Tree], dict[str, Tree]] = jax.jit(
        lambda x: constrain_fn(seeded, args, kwargs, unravel(x), return_deterministic=True)
    )
    return {name: value for name, value in quantities(end.x).items() if not name.endswith(_SUFFIX)}
