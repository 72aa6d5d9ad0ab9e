"""Any user's components, from plain NumPy callables."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import check_budget, checking_budget, report_share_done
from svrhmc.core.errors import nonnegative, positive, requirement, whole_number
from svrhmc.core.recording import compute_array_once, iterate_recorded
from svrhmc.density.base import FiniteSum
from svrhmc.rows.forms import ComponentsForm

Result = TypeVar("Result")
_BLOCK_ELEMENTS = 1 << 20
_ENOUGH = 1e-9  # of a component's gradient at 0: where the search for the mode may end

Gradients = Callable[[Array, Indices], npt.ArrayLike]
Potential = Callable[[Array], float]


def custom(
    n: int,
    dim: int,
    gradients: Gradients,
    potential: Potential | None = None,
    smoothness: float | None = None,
    convexity: float | None = None,
    component_smoothness: float | None = None,
) -> Custom:
    """A target made of components fᵢ of your own, given by their gradients.

    n, dim: the number of components, and of coordinates.
    gradients: a function of (x, indices) that returns ∇fᵢ(x) for each index, as an array (len(indices), dim).
    potential: a function of x that returns f(x). It helps to find the mode, and can be left out if f is convex.
    smoothness: an upper bound on the curvature of f, needed by dynamics that have no inverse_mass of their own.
    convexity, component_smoothness: a lower bound on the curvature of f, and an upper bound on that of every fᵢ, needed
        by `svrhmc.theory`. With a convexity (of 0 or more) f is convex, and `svrhmc.sample` knows of one mode.

    Mind the scale: f is the *mean* of the fᵢ and π ∝ e^{−f}, so for a posterior fᵢ = n·(−log p(yᵢ|x)) − log p(x).

    >>> a = np.array([[0.0], [2.0]])
    >>> target = custom(n=2, dim=1, gradients=lambda x, i: x - a[i], smoothness=1.0)
    >>> target.gradient([0.0])
    array([-1.])
    """
    return Custom(n, dim, gradients, potential, smoothness, convexity, component_smoothness)


class Custom(FiniteSum):
    """Components known by their gradients alone; made by `custom`.

    >>> custom(2, 1, lambda x, rows: x - np.array([[0.0], [2.0]])[rows]).gradient([3.0])
    array([2.])
    """

    scalar_parts = False

    def __init__(
        self,
        n: int,
        dim: int,
        gradients: Gradients,
        potential: Potential | None,
        smoothness: float | None,
        convexity: float | None,
        component_smoothness: float | None,
    ) -> None:
        self.n, self.dim = whole_number("n", n, 1), whole_number("dim", dim, 1)
        self.row_size = self.dim
        if not callable(gradients):
            raise requirement("gradients", "a function of (x, indices)", repr(gradients))
        self._gradients, self._potential = gradients, potential
        self._smoothness = None if smoothness is None else positive("smoothness", smoothness)
        self._convexity = None if convexity is None else nonnegative("convexity", convexity)
        self._component_smoothness = (
            None if component_smoothness is None else positive("component_smoothness", component_smoothness)
        )
        self._component(np.zeros(self.dim), np.arange(min(2, self.n)))

    def __repr__(self) -> str:
        return f"Custom(n={self.n}, dim={self.dim})"

    def form(self) -> ComponentsForm:
        return ComponentsForm(self._gradients)

    def identity(self) -> dict[str, object]:
        """The user's gradients of a hundred components at two points, and the constants."""
        return {**super().identity(), "smoothness": self._smoothness, "convexity": self._convexity}

    def _components_for_identity(self, point: Array, indices: Indices) -> Array:
        """By one call of the user's function, which may be slow."""
        return self._finite_value("a component's gradient", point[None], lambda at: self._component(at[0], indices))

    @property
    def smoothness(self) -> float:
        return self._require_given("smoothness", self._smoothness, "a dynamics with inverse_mass=None needs it")

    @property
    def component_smoothness(self) -> float:
        return self._require_given("component_smoothness", self._component_smoothness, "theory needs it")

    @property
    def convexity(self) -> float:
        return self._require_given("convexity", self._convexity, "theory needs it")

    @property
    def one_mode(self) -> str | None:
        """As the convexity says, where it was given."""
        return None if self._convexity is None else "its density is log-concave, by the convexity that was given"

    def mode(self) -> Array:
        """L-BFGS, until |∇f| is below 1e-6 of a typical |∇fᵢ| at 0; found once.

        On `potential` where there is one; else on the gradients alone, which needs f to be convex: along a way down
        the slope then rises from below 0, and each step goes to where it is nearly 0.
        """
        mode: Array = self._mode.copy()
        return mode

    def recall_mode(self, mode: Array) -> None:
        """Unless it is known already."""
        self.__dict__.setdefault("_mode", np.array(mode))

    @cached_property
    def _mode(self) -> Array:
        from scipy.optimize import minimize

        self.mode_passes, start = 0.0, np.zeros(self.dim)
        sample = np.linspace(0, self.n - 1, min(self.n, 100)).astype(np.int64)
        scale = max(float(np.abs(self._component(start, sample)).max()), 1e-300)
        gradient = _reporting_progress(self._counted(self.gradient), _ENOUGH * scale)
        if self._potential is None:
            mode, message = self._descend(gradient, start, _ENOUGH * scale), "L-BFGS on gradients alone"
        else:
            minimum = minimize(
                self._counted(self.potential),
                start,
                jac=gradient,
                method="L-BFGS-B",
                options={"maxiter": 10_000, "maxfun": 100_000, "ftol": 0.0, "gtol": 0.0, "maxcor": 20},
            )
            mode, message = np.asarray(minimum.x, np.float64), minimum.message
        remaining = float(np.abs(gradient(mode)).max() / scale)
        if not remaining <= 1e-6:
            raise RuntimeError(
                f"no mode found: the gradient fell only to {remaining:.1e} of the components' size at 0 ({message})."
            )
        return mode

    def _counted(self, function: Callable[[Array], Result]) -> Callable[[Array], Result]:
        """A function that makes a pass over the components, with the passes counted and the budget checked."""

        def counted(x: Array) -> Result:
            check_budget(self.mode_passes + 1)
            self.mode_passes += 1
            return function(x)

        return counted

    def _descend(self, gradient: Callable[[Array], Array], x: Array, enough: float) -> Array:
        """L-BFGS with 20 pairs; a step along p ends where |pᵀ∇f| is at most half of what it was."""
        pairs: list[tuple[Array, Array]] = []
        g = gradient(x)
        for _ in range(1000):
            if np.abs(g).max() <= enough:
                break
            p = -_two_loops(g, pairs)
            slope = float(p @ g)
            t, low, high = (1.0 if pairs else 1.0 / max(1.0, float(np.linalg.norm(g)))), 0.0, np.inf
            for _ in range(60):
                new_gradient = gradient(x + t * p)
                new_slope = float(p @ new_gradient)
                if abs(new_slope) <= 0.5 * abs(slope):
                    break
                low, high = (t, high) if new_slope < 0 else (low, t)
                t = 2 * t if np.isinf(high) else (low + high) / 2
            else:
                break
            s, y = t * p, new_gradient - g
            x, g = x + s, new_gradient
            if s @ y > 0:
                pairs = [*pairs[-19:], (s, y)]
        return x

    @property
    def has_potential(self) -> bool:
        """Whether it was given."""
        return self._potential is not None

    def potentials(self, x: Array) -> Array:
        """The user's `potential`, state by state."""
        potential = self._potential
        if potential is None:
            raise requirement("potential", "given to custom(…)", "None", "the value of f is needed here")
        return np.array([float(compute_array_once(partial(potential, state), (), state)) for state in x])

    def gradients(self, x: Array) -> Array:
        """The mean of all component gradients, in blocks of rows."""
        size = max(1, _BLOCK_ELEMENTS // self.dim)
        blocks = [np.arange(begin, min(begin + size, self.n)) for begin in range(0, self.n, size)]

        def total(state: Array) -> Array:
            def add(number: int, before: tuple[Array, ...]) -> tuple[object, ...]:
                return before[0] + self._sum_of_components(state, blocks[number]), False

            return iterate_recorded(add, (np.zeros(self.dim),), len(blocks), state)[0]

        return np.array([compute_array_once(partial(total, state), (self.dim,), state) / self.n for state in x])

    def _sum_of_components(self, state: Array, rows: Indices) -> Array:
        """The sum of the gradients of some components."""
        check_budget()
        total: Array = self._component(state, rows).sum(axis=0)
        return total

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """Component gradients, state by state."""
        rows = np.broadcast_to(np.arange(self.n), (len(x), self.n)) if indices is None else indices
        return np.array(
            [
                compute_array_once(partial(self._component, state, chosen), (len(chosen), self.dim), (state, chosen))
                for state, chosen in checking_budget(zip(x, rows, strict=True))
            ]
        )

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """The mean over the batch."""
        mean: Array = parts.mean(axis=1)
        return mean

    def prior_gradient(self, x: Array) -> Array:
        """The user's components hold the prior already."""
        return np.zeros_like(x)

    def _with_quadratic(self, strength: float, centre: Array) -> Custom:
        """The user's functions with the quadratic added to each."""
        inner, potential = self._gradients, self._potential

        def gradients(x: Array, indices: Indices) -> Array:
            return np.asarray(inner(x, indices)) + strength * (x - centre)

        def total(x: Array) -> float:
            assert potential is not None
            return float(potential(x)) + strength / 2 * float((x - centre) @ (x - centre))

        smoothness, component_smoothness = (
            None if value is None else value + strength for value in (self._smoothness, self._component_smoothness)
        )
        convexity = (self._convexity or 0.0) + strength
        value = total if potential else None
        return Custom(self.n, self.dim, gradients, value, smoothness, convexity, component_smoothness)

    def _component(self, x: Array, indices: Indices) -> Array:
        state, rows = x.copy(), np.array(indices)  # the user's own, whatever is done to them
        result = np.asarray(self._gradients(state, rows))
        if result.dtype.kind not in "biuf":
            raise requirement("gradients(x, indices)", "an array of real numbers", f"dtype {result.dtype}")
        value = np.array(result, np.float64)  # a copy: the user may use one buffer for every answer
        if value.shape != (len(indices), self.dim):
            raise requirement(
                "gradients(x, indices)",
                f"an array of shape (len(indices), dim) = {(len(indices), self.dim)}",
                f"shape {value.shape}",
            )
        return value

    def _require_given(self, name: str, value: float | None, why: str) -> float:
        if value is None:
            raise requirement(name, "given to custom(…)", "None", why)
        return value


def _reporting_progress(gradient: Callable[[Array], Array], enough: float) -> Callable[[Array], Array]:
    """A gradient that reports how far a search for its zero has come: the share of the digits by which |∇f| is to fall,
    as L-BFGS gains about as many digits with each pass.
    """
    first = smallest = 0.0

    def reporting(x: Array) -> Array:
        nonlocal first, smallest
        g = gradient(x)
        size = max(float(np.abs(g).max()), enough)
        first, smallest = first or size, min(smallest or size, size)
        if smallest < first:
            report_share_done(math.log(first / smallest) / math.log(first / enough))
        return g

    return reporting


def _two_loops(g: Array, pairs: list[tuple[Array, Array]]) -> Array:
    """The inverse Hessian that (s, y) pairs stand for, times g."""
    q, factors = g.copy(), []
    for s, y in reversed(pairs):
        rho = 1 / float(s @ y)
        a = rho * float(s @ q)
        q -= a * y
        factors.append((rho, a))
    if pairs:
        s, y = pairs[-1]
        q *= float(s @ y) / float(y @ y)
    for (s, y), (rho, a) in zip(pairs, reversed(factors), strict=True):
        q += (a - rho * float(y @ q)) * s
    return q
