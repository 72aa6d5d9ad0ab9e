"""What is sampled: π(x) ∝ exp(−f(x)), f(x) = (1/n) Σᵢ fᵢ(x)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Values, digest
from svrhmc.core.errors import positive, real_array, requirement
from svrhmc.core.randomness import Stream
from svrhmc.density.closed_forms import GaussianLaw, Law
from svrhmc.families.base import Loss
from svrhmc.priors.terms import Heavy
from svrhmc.rows.base import Rows
from svrhmc.rows.forms import Form

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

_DIFFERENCE = 1e-5  # in x, for second derivatives


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and covariance of a law.

    >>> Moments(np.zeros(2), np.eye(2)).fourth_about(np.zeros(2))  # E|x|⁴ = d² + 2d
    8.0
    """

    mean: Array
    covariance: Array

    def fourth_about(self, centre: Array) -> float:
        """E|x − c|⁴ of the Gaussian: (tr C + |Δ|²)² + 2 tr C² + 4ΔᵀCΔ with Δ = mean − c."""
        C = self.covariance
        with np.errstate(over="ignore", invalid="ignore"):
            difference = self.mean - centre
            second = np.trace(C) + difference @ difference
            fourth = float(second**2 + 2 * (C * C).sum() + 4 * difference @ C @ difference)
        if not math.isfinite(fourth):
            distant = f"one {np.abs(difference).max():g} away with a variance of up to {np.diag(C).max():g}"
            raise requirement("centre", "so near to the mean that E|x − c|⁴ is finite in float64", distant)
        return fourth


class Expansion(ABC):
    """The components' second derivatives Hᵢ at a point, by products with them, and the data part of their mean H."""

    hessian: Array

    @abstractmethod
    def parts(self, away: Array, indices: Indices) -> Array:
        """Parts of Hᵢ·away for the chosen components: (chains, dim), (chains, batch) → (chains, batch)."""


class FiniteSum(ABC):
    """A potential that is the mean of n components.

    A component's gradient has two pieces: one that all components share (`prior_gradient`, never subsampled) and a
    *part* of its own. For a model with a linear predictor a part is one number, the slope that multiplies the row (with
    several predictors a few numbers, on a last axis); for others it is the gradient itself. So with `parts` and
    `assemble`

        (1/B) Σ_{i ∈ batch} ∇fᵢ(x) = prior_gradient(x) + assemble(parts(x, batch), batch)

    and a snapshot can remember n numbers instead of n vectors if `scalar_parts` is true. These methods and `gradients`
    take many states at once: x has shape (chains, dim), indices (chains, batch). A chain's digits do not depend on the
    other chains of the call.

    >>> from svrhmc.targets import logistic
    >>> target = logistic([[1.0], [2.0]], [0, 1])
    >>> bool(np.allclose(target.component_gradients([0.3], [0, 1]).mean(axis=0), target.gradient([0.3])))
    True
    """

    n: int
    dim: int
    scalar_parts: bool
    row_size: int  # numbers that a component consists of
    left_out: int = 0  # rows of weight 0, which are no components
    mode_passes: float = 0.0  # passes over the components that the search for the mode took
    note: str = ""  # what the user should know of how the target was made, in sentences
    prior_draws: Array | None = None  # states from which modes are searched for, if a library can draw from the prior
    dims: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # names of the axes of parameters, "" for none
    coords: Mapping[str, Sequence[object]] = MappingProxyType({})  # coordinates along such axes, if a model has some
    observed: tuple[str, ...] = ()  # names of the observed variables, if a model has some
    observed_count: int | None = None  # how many values `row_log_likelihoods` gives for a draw; None if it gives none
    row_nanoseconds: float | None = None  # that f and ∇f of a component take on a core, if that is known
    names: tuple[str, ...] = ()  # of the coordinates, if they have names
    doubt: str = ""  # why the law around the mode may not be all of the posterior, once that is known
    travels: bool = True  # whether it can be pickled and sent to another process
    theta_dim: int = 0  # standard deviations and correlations of effects of groups, which are reported last
    effect_count: int = 0  # effects of groups, which are the last columns of the rows of `shown()`
    group_terms: tuple[Any, ...] = ()  # the terms of groups, with their covariances (`svrhmc.density.mixed`)
    searched_by: str = "mode"  # which search of `svrhmc.sampling.run` samples it
    tells_passes: bool = False  # whether it reports the passes of its mode and its map itself (`watched`)
    unbounded: str = "the smoothness of this target is not known"  # the reason in an error that asks for a smoothness

    @property
    def smoothness(self) -> float:
        """L: an upper bound on λ_max of the Hessian of f; exact for quadratics."""
        raise requirement("inverse_mass", "given", "None", self.unbounded)

    @property
    def typical_curvature(self) -> float:
        """The inverse of the default inverse mass: L, or λ_max at the mode if no bound L is known."""
        return self.smoothness

    @property
    def component_smoothness(self) -> float:
        """L_max: the largest smoothness of a single fᵢ (the paper's L of Assumption 1)."""
        raise requirement("inverse_mass", "given", "None", self.unbounded)

    @property
    def convexity(self) -> float:
        """μ: a lower bound on λ_min of the Hessian of f, exact for quadratics; 0 where nothing is known."""
        return 0.0

    @property
    def closed_form(self) -> Moments | None:
        """Exact mean and covariance of π if they are known, as for a quadratic f, else None."""
        return None

    @property
    def exact_law(self) -> Law | None:
        """π if its moments are known and independent draws can be made, as for a quadratic f; else None."""
        moments = self.closed_form
        return None if moments is None else GaussianLaw(moments.mean, moments.covariance)

    def curvature_range(self, bound: bool) -> tuple[float, float] | None:
        """Smallest and largest eigenvalue of the Hessian: bounds valid everywhere, or (bound=False) those at the mode.

        None where they are not known.
        """
        return None

    @abstractmethod
    def mode(self) -> Array:
        """x* = argmin f."""

    @property
    def has_potential(self) -> bool:
        """Whether f itself is known, and not only its gradient."""
        return True

    @abstractmethod
    def potentials(self, x: Array) -> Array:
        """f at each of many states: (chains, dim) → (chains,)."""

    @abstractmethod
    def gradients(self, x: Array) -> Array:
        """∇f at each of many states: (chains, dim) → (chains, dim)."""

    def energies(self, x: Array) -> tuple[Array, Array]:
        """f and ∇f at each of many states."""
        return self.potentials(x), self.gradients(x)

    @abstractmethod
    def parts(self, x: Array, indices: Indices | None) -> Array:
        """Parts of some components (None: all n): (chains, batch) numbers or (chains, batch, dim) gradients."""

    @abstractmethod
    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """Mean over the batch of the gradients that the parts stand for: (chains, dim)."""

    @abstractmethod
    def prior_gradient(self, x: Array) -> Array:
        """The gradient every component shares: (chains, dim) → (chains, dim)."""

    @abstractmethod
    def _with_quadratic(self, strength: float, centre: Array) -> FiniteSum:
        """f + (strength/2)|x − centre|², up to a constant, as a target."""

    def _require_posterior(self) -> None:
        """Refuse a target that is known to have no density. None is, unless a subclass can tell."""
        return

    def require_decided(self) -> None:
        """Refuse a target without a density, if that was too costly to find out when it was made."""
        return

    def form(self) -> Form | None:
        """What the target is made of (`svrhmc.rows.forms`), or None where only its methods say it."""
        return None

    def identity(self) -> dict[str, object]:
        """What must be unchanged for a run to be continued, by name: numbers, texts, and digests of data.

        By default the gradients of a hundred components at two points.
        """
        indices = np.linspace(0, self.n - 1, min(self.n, 100)).astype(np.int64)
        points = (np.zeros(self.dim), np.cos(np.arange(self.dim)))
        gradients = digest(*(self._components_for_identity(point, indices) for point in points))
        return {**self._kind(), "components": gradients}

    def _components_for_identity(self, point: Array, indices: Indices) -> Array:
        """Gradients of some components."""
        return self.component_gradients(point, indices)

    def _kind(self) -> dict[str, object]:
        return {"target": type(self).__name__, "n": self.n, "dim": self.dim}

    @property
    def convex_components(self) -> bool:
        """Whether every fᵢ is known to be convex."""
        return False

    @property
    def one_mode(self) -> str | None:
        """Why π is known to have one mode, in words after "because"; None if nothing shows it."""
        return "its density is log-concave" if self.convex_components else None

    @property
    def mode_starts(self) -> str:
        """The starts of the search for modes, in words after "found from"."""
        return "one start"

    @property
    def row_entries(self) -> float:
        """Numbers read for one component, on average."""
        return float(self.row_size)

    def expansion(self, x: Array) -> Expansion:
        """Second derivatives of the components at x, for models with a linear predictor."""
        raise requirement("target", "a model with a linear predictor for a gradient of order 2", repr(self))

    def importance(self) -> Array:
        """Weights of the components for drawing them by importance: large where their gradients vary most."""
        raise requirement("target", "a model with a linear predictor for rows drawn by importance", repr(self))

    @cached_property
    def row_table(self) -> tuple[npt.NDArray[np.uint32], Indices, Array]:
        """The alias table of `importance`: thresholds, aliases, probabilities."""
        from svrhmc.core.randomness import alias_table

        return alias_table(self.importance())

    def drawn(self, stream: Stream, step: int, count: int) -> Indices:
        """Components drawn by importance at a step, (chains, count)."""
        return stream.weighted_indices(step, count, *self.row_table[:2])

    def drawn_with(self, indices: Indices) -> Array:
        """The probabilities with which `drawn` takes some components."""
        probabilities: Array = self.row_table[2][indices]
        return probabilities

    @property
    def at_hand(self) -> int:
        """Components that are in memory."""
        return self.n

    def shown(self) -> FiniteSum:
        """A target whose rows can be examined: this one, or one of some rows if its rows are not in memory."""
        return self

    @property
    def lasting_parts(self) -> bool:
        """Whether all of a component that has to be remembered is one number, and these fit into memory."""
        return self.scalar_parts and self.at_hand == self.n

    def watched(self, tell: Callable[[float], None]) -> None:
        """Call `tell` with the number of components that are read apart from gradients that a sampler asks for: for a
        mode, for weights of rows, or to fetch some of them, if a target makes such passes itself.
        """
        return

    def into(self, x: Array) -> Array:
        """The state of x: x itself, except for targets in other coordinates than the user's."""
        return x

    def out(self, state: Array, first: int = 0) -> Array:
        """The x of a state; for draws (chain, draw, dim), `first` is the number of the first one."""
        return state

    def modes(self) -> Array:
        """The mode, and other minima of f that were found and matter: (count, dim)."""
        return self.mode()[None, :]

    def feet(self, mode: Array) -> tuple[Array, Array]:
        """For each coordinate whose density is a narrow peak above a wide foot at a mode (`Heavy.feet`): its location,
        and how many times wider the foot is; as arrays of all coordinates, with a ratio of 1 where there is no peak.
        """
        return np.zeros(self.dim), np.ones(self.dim)

    def has_feet(self) -> bool:
        """Whether a coordinate has such a peak at one of the modes."""
        return any(bool((self.feet(mode)[1] > 1).any()) for mode in self.modes())

    def hessian(self, x: Array) -> Array:
        """∇²f at one point: here by differences of the gradient."""
        point = self._point(x)
        scale = _DIFFERENCE * max(1.0, float(np.abs(point).max()))
        steps = scale * np.eye(self.dim)

        def differences(at: Array) -> Array:
            H = (self.gradients(at + steps) - self.gradients(at - steps)) / (2 * scale)
            return np.asarray((H + H.T) / 2, np.float64)

        return self._finite_value("∇²f", point, differences)

    def recall_mode(self, mode: Array) -> None:
        """Take a mode from a record, so that it need not be found again."""
        return

    def recall_modes(self, modes: Array, doubt: str, starts: str, one_mode: str | None) -> None:
        """Take all that is known of modes from a record."""
        self.recall_mode(modes[0])

    def log_prior_at(self, x: Array) -> Array | None:
        """log p(params) of a model whose log prior is a function by itself, at states (draw, dim), up to a constant;
        None for others.
        """
        return None

    def stated(self, draws: Array) -> tuple[tuple[str, ...], Array] | None:
        """Names and values of the parameters as the model states them, at draws (chain, draw, dim); None where they are
        the coordinates themselves.
        """
        return None

    def laplace(self) -> Moments:
        """A Gaussian approximation of π: the law itself where it is Gaussian."""
        if self.closed_form is None:
            raise requirement("target", "one with a Hessian for a Laplace approximation", repr(self))
        return self.closed_form

    def regularised(
        self,
        strength: float | None = None,
        *,
        accuracy: float | None = None,
        fourth_moment: float | str | None = None,
        centre: str | npt.ArrayLike | None = None,
    ) -> FiniteSum:
        """π̄ ∝ exp(−f(x) − (λ/2)|x − c|²), strongly log-concave where π is only log-concave (paper, section 4.2).

        strength: λ itself; or `accuracy` ε with `fourth_moment`, an upper bound on E_π|x − c|⁴ (Ūd² in the paper's
            Assumption 3), for which λ = ε²/fourth_moment gives W₂(π̄, π) ≤ ½√(λ·fourth_moment) = ε/2 (Theorem 2).
            "laplace" takes the fourth moment of the Laplace approximation, which is an estimate and not a bound.
        centre: c: None (the origin), "mode" or a point.

        >>> from svrhmc import targets
        >>> flat = targets.logistic([[1.0], [2.0], [0.5]], [1, 0, 1], prior_precision=0.0)
        >>> flat.convexity, flat.regularised(0.1).convexity
        (0.0, 0.1)
        """
        self._require_posterior()
        c = self.mode() if isinstance(centre, str) and centre == "mode" else np.zeros(self.dim)
        if centre is not None and not isinstance(centre, str):
            c = np.asarray(real_array("centre", centre, (self.dim,)), np.float64)
        elif isinstance(centre, str) and centre != "mode":
            raise requirement("centre", "None, 'mode' or a point", repr(centre))
        if (strength is None) == (accuracy is None) or (accuracy is None) != (fourth_moment is None):
            raise requirement(
                "strength, or accuracy with fourth_moment,",
                "given",
                f"strength={strength}, accuracy={accuracy}, fourth_moment={fourth_moment}",
            )
        if strength is None:
            moment = self.laplace().fourth_about(c) if fourth_moment == "laplace" else fourth_moment
            eps = positive("accuracy", accuracy)
            strength = eps * eps / positive("fourth_moment", moment)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused as the target is made
            return self._with_quadratic(positive("strength", strength), c)

    def row_log_likelihoods(self, x: Array) -> Iterator[tuple[int, Array]] | None:
        """log p(rowᵢ | x) under draws (draws, dim), some rows at a time: pairs (number of the first, (draws, rows)).

        None where rows have linear predictors, which say more.
        """
        return None

    def observed_values(self) -> dict[str, Values]:
        """What was observed, by the names of variables; empty where a model has none of its own."""
        return {}

    def drawn_observations(self, x: Array, seed: int) -> dict[str, Values]:
        """New values of those variables, one of each for every draw of x: (draws, …)."""
        raise NotImplementedError

    @property
    def condition_number(self) -> float:
        """κ = L/μ; infinite where f is not known to be strongly convex."""
        return self.smoothness / self.convexity if self.convexity > 0 else float("inf")

    def potential(self, x: npt.ArrayLike) -> float:
        """f(x) at one point, up to a constant."""
        point = self._point(x)
        return float(self._finite_value("f", point, self.potentials)[0])

    def gradient(self, x: npt.ArrayLike) -> Array:
        """∇f(x) at one point."""
        point = self._point(x)
        gradient: Array = self._finite_value("the gradient", point, self.gradients)[0]
        return gradient

    def component_gradients(self, x: npt.ArrayLike, indices: npt.ArrayLike) -> Array:
        """∇fᵢ(x) for each index given: (len(indices), dim)."""
        state, rows = self._point(x), self._rows(indices)
        states, single = np.repeat(state, len(rows), axis=0), rows[:, None]
        return self._finite_value(
            "a component's gradient",
            state,
            lambda _: self.prior_gradient(states) + self.assemble(self.parts(states, single), single),
        )

    def _finite_value(self, name: str, point: Array | None, evaluate: Callable[..., Array]) -> Array:
        """The value of a function, at a point if there is one; an error, and neither a warning nor a nan, if it is not
        finite in float64. name: what the error calls the value.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            value = evaluate(point)
        if not np.isfinite(value).all():
            why = "the numbers of the target, or of x, are too large; scale them to about 1"
            at_point = "" if point is None else f" at x = {np.array2string(point[0], threshold=8)}"
            raise requirement(f"{name}{at_point}", "finite in float64", "what is not", why)
        return value

    def _point(self, x: npt.ArrayLike) -> Array:
        return np.asarray(real_array("x", x, (self.dim,)), np.float64)[None, :]

    def _rows(self, indices: npt.ArrayLike) -> Indices:
        rows = np.asarray(indices)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise requirement("indices", "a list of whole numbers", f"dtype {rows.dtype} of shape {rows.shape}")
        if len(rows) and (rows.min() < 0 or rows.max() >= self.n):
            raise requirement("indices", f"from 0 to {self.n - 1}", f"{rows.min()} to {rows.max()}")
        return rows.astype(np.int64)


class RowsDensity(FiniteSum):
    """The density of rows, a loss and a prior: what the searches for its modes and the proofs about it need.

    prior_precision, prior_mean: of the normal part of the prior. prior_strength: its largest curvature; 0 where it is
    flat. heavy: priors of single coordinates that are not normal.
    """

    rows: Rows
    y: Array
    loss: Loss
    offset: Array | None
    weights: Array | None
    heavy: Heavy | None
    prior_precision: Array
    prior_mean: Array
    prior_strength: Array

    @abstractmethod
    def hessian_product(self, x: npt.ArrayLike, direction: Array) -> Array:
        """∇²f(x)·direction."""

    @abstractmethod
    def row_curvatures(self, x: npt.ArrayLike) -> Array:
        """wᵢℓ″ of every row at x."""

    @abstractmethod
    def operator(self, curvature: Array, bend: Array) -> LinearOperator:
        """Aᵀ diag(curvature) A + diag(bend) as scipy's linear operator."""

    @abstractmethod
    def preconditioner(self, curvature: Array, bend: Array) -> LinearOperator:
        """An approximate inverse of that operator, if there is a cheap one; else None."""

    @abstractmethod
    def prior_curvature(self, x: Array) -> Array:
        """The second derivatives of the prior, coordinate by coordinate."""

    @abstractmethod
    def prior_bounds(self) -> tuple[Array, Array]:
        """The least and the largest curvature of the prior anywhere, of every coordinate."""

    @abstractmethod
    def runs_off(self, x: Array, direction: Array) -> bool:
        """Whether no row's loss grows along a direction, from x on."""

    @abstractmethod
    def share(self, chosen: Indices, prior_precision: Array) -> RowsDensity:
        """The model of some of its rows, with another prior precision."""

    @abstractmethod
    def guess(self) -> Array | None:
        """Where the search for the mode starts; None for 0."""


def is_target(value: object) -> TypeGuard[FiniteSum]:
    """Whether a value is a target."""
    return isinstance(value, FiniteSum)


def require_target(target: object) -> FiniteSum:
    """The target itself; an error if it is none."""
    if not isinstance(target, FiniteSum):
        raise requirement("target", "one of svrhmc.targets, such as logistic(X, y)", repr(type(target)))
    return target
