"""Split Hamiltonian Monte Carlo: the Gaussian part of π is followed exactly, the rest by kicks; Metropolis corrects."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, interquartile_sd
from svrhmc.core.errors import nonnegative, positive, requirement, set_fields, whole_number
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.serialise import part
from svrhmc.density.base import FiniteSum
from svrhmc.engines import Density, Setup, State
from svrhmc.engines.base import STEPS_PER_KEY, Kernel, StepResult, require_defined, spent_by_passes
from svrhmc.exact.base import ExactSampler
from svrhmc.gradients import Memory

_TURN = 1.6  # of a trajectory: about a quarter of a circle
_LONGEST = 8.0  # times that, at most
_SHORTEST = 0.05  # step that is tried
_SHORTEST_CONVEX = 0.005  # the same where f is convex, and no part of it is narrower without end
_SMOOTH = 8  # leapfrogs up to which a trajectory is that of Gauss and Lobatto
_QUARTER, _NEARLY = 1.5, 0.15  # a step, and a spread of R with which one is enough
_ENERGY = 0.3  # the variance of a trajectory's change of H
_OFTEN = 2  # halvings that one draw in four has
_HALVINGS = 5  # of steps for a posterior of which parts are narrower than the rest
_AHEAD = 1 << 18  # numbers in the noise that is drawn ahead


@part
@dataclass(frozen=True)
class SplitHMC(ExactSampler):
    """HMC in z, x = x̂ + W z, that rotates where f = ½|z|² + R(z) is Gaussian (Shahbaba, Lan, Johnson & Neal 2014).

    One draw, from z:

        v ~ N(0, I),   T = leapfrogs·step_size·(1 + jitter·U),   U ~ uniform(−1, 1)
        v ← v − w₀T∇R(z)
        for k = 1 … leapfrogs:   (z, v) ← (z cos h + v sin h, v cos h − z sin h),   h = (cₖ − cₖ₋₁)T
                                 v ← v − wₖT∇R(z)
        accept (z′, v′) with probability min(1, exp(H(z, v) − H(z′, v′))),   H = f(z) + ½|v|²,

    where ∇R = Wᵀ∇f − z. It costs `leapfrogs` passes over the rows, which give f and ∇f together.

    Parts of a posterior that are narrower than the rest (a bent ridge, the neck of a funnel) need shorter steps than
    the rest can afford. With `halvings` = m, draw number s = 1, 2, … follows its trajectory in 2ᵏ pieces of T/2ᵏ, each
    of them as above, k being how often s can be halved, but at most m: every other draw has k = 0, every fourth k = 1,
    … (the ruler sequence), and a draw costs 1 + m/2 times as much on average. All steps are of one length for m = 0.

    Where R is small, a trajectory changes H by −∫₀ᵀ d/dt R(z(t)) dt along the rotation, less what the kicks take: to
    first order in R the error is that of the quadrature Σ wₖφ(cₖT) of an integral over [0, T] (McLachlan 1995). So
    the nodes cₖ and weights wₖ are those of Gauss and Lobatto, which have both ends among them, and an error of order
    T^{2·leapfrogs} where equal steps have T². (One leapfrog is the ordinary one; two are Simpson's rule.)

    More than 8 leapfrogs are asked for where R is not small: along a direction in which f has the curvature λ ≫ 1 for a
    while, as where a row of a separable table passes from one class to another, the kicks follow f only while a step h
    has h√λ < 2, and between the nodes of Gauss and Lobatto it is up to π/2 times T/leapfrogs. Those have equal steps,
    cₖ = k/leapfrogs.

    Invariance. Let T be the trajectory for one U, and F the flip (z, v) ↦ (z, −v).
    (1) T keeps volume: a kick shifts v by a function of z alone, with Jacobian 1, and a rotation has Jacobian 1.
    (2) (F T)² = 1: for a kick K, F K F = K⁻¹, as its shift of v changes sign; for a rotation Q by h, F Q F is the
    rotation by −h. Nodes and weights are the same from both ends, so that T is a palindrome of kicks and rotations,
    and F T F, in which each is replaced by its inverse, is T⁻¹.
    (3) H∘F = H. So the proposal F T is an involution that keeps volume, and with μ ∝ e^{−H}, for sets A and B,

        ∫_A μ(s) min(1, μ(FTs)/μ(s)) 1[FTs ∈ B] ds = ∫ min(μ(s), μ(FTs)) 1[s ∈ A, FTs ∈ B] ds

    is the same with A and B exchanged (put s = FTs′): the move keeps μ, by detailed balance. A flip of v afterwards,
    and a fresh v, keep μ too, and its z-part is π.
    (4) U is drawn apart from the state, so that the mixture over U keeps μ. Nor does k depend on the state; 2ᵏ equal
    palindromes in a row are a palindrome, and moves that keep π keep it in any order that is fixed beforehand.
    Nothing is asked of W, of x̂ or of ∇R: whatever function of z the kicks use, only the acceptance suffers.

    >>> from svrhmc import targets
    >>> target = targets.logistic([[1.0, 0.5], [1.0, -2.0], [1.0, 1.5]], [1, 0, 1])
    >>> trace = SplitHMC().run(target, 500, seed=1)
    >>> trace.draws.shape, bool((trace.acceptance > 0.9).all())
    ((4, 500, 2), True)
    """

    kind = "split"
    defined, in_numpy = True, "small"
    method = "split-hmc"
    gradients_come_free = True
    of_functions = True
    jumps = True
    step_size: float = 0.8
    leapfrogs: int = 2
    jitter: float = 0.2
    halvings: int = 0

    def __post_init__(self) -> None:
        step_size = positive("step_size", self.step_size)
        if step_size >= math.pi:
            why = "a step turns the state by this angle, and π is half a turn"
            raise requirement("step_size", "a positive number below π", self.step_size, why)
        jitter = nonnegative("jitter", self.jitter)
        if jitter >= 1:
            raise requirement("jitter", "a number from 0 to below 1", self.jitter)
        leapfrogs, halvings = (
            whole_number("leapfrogs", self.leapfrogs, 1),
            whole_number("halvings", self.halvings, 0, 16),
        )
        set_fields(self, step_size=step_size, leapfrogs=leapfrogs, jitter=jitter, halvings=halvings)

    @classmethod
    def for_leftover(cls, leftover: float, least: float = 1.0) -> SplitHMC:
        """Its defaults, or a shorter step where a whitening leaves E = WᵀHW − I, `leftover` = |E|²_F; and a longer
        trajectory where it leaves an eigenvalue of WᵀHW, `least`, far below 1.

        Along an eigenvector of E with value e a trajectory changes H by about ½·e(h/2)²·χ, χ of mean 0 and variance 4
        or less: together by something of variance h⁴|E|²_F/16, which is to be at most 0.3: then 3 of 4 proposals are
        accepted.

        Along an eigenvector of WᵀHW with value λ the posterior has standard deviation λ^{−½}, and a trajectory of turn
        T leaves cos(√λ T) of where it was. For small √λ T that takes 4/(λT²) draws, of T/h gradients each, to forget:
        the longest T takes the fewest gradients, up to a quarter of a circle, √λ T = π/2.
        """
        step = min(cls().step_size, (16 * _ENERGY / max(leftover, 1e-300)) ** 0.25)
        turn = _TURN * min(_LONGEST, max(least, 1e-300) ** -0.5)
        return cls() if turn < 2 * _TURN and step == cls().step_size else cls(step, max(1, round(turn / step)))

    @classmethod
    def for_remainder(cls, remainder: Array, leftover: float = 0.0, least: float = 1.0) -> SplitHMC:
        """The sampler for a remainder R whose values at draws of N(0, I) are known up to a constant.

        One leapfrog of about a quarter of a circle where the standard deviation of R is small, which is about that of a
        trajectory's change of H then: next to every proposal is accepted, and draws hardly depend on each other.

        Else as for a leftover, that of the whitening or of R, the larger one: a quadratic form R = ½zᵀEz has the
        variance ½|E|²_F. The spread is that of the middle half of the draws, as one far out in a tail tells of no
        chain.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            if float(f"{np.std(remainder):.3g}") <= _NEARLY:
                return cls(_QUARTER, 1)
            spread = interquartile_sd(remainder)
        from_spread = 2 * min(spread, math.sqrt(8 * _ENERGY) / _SHORTEST**2) ** 2
        return cls.for_leftover(float(f"{max(from_spread, leftover):.3g}"), least)

    def kicks(self) -> tuple[Array, Array, Array]:
        """For each leapfrog, in steps: its turn, and the kicks before and after it (neighbours share a node's)."""
        nodes, weights = lobatto(self.leapfrogs) if self.leapfrogs <= _SMOOTH else trapezoid(self.leapfrogs)
        inner = np.full(self.leapfrogs + 1, 0.5)
        inner[0] = inner[-1] = 1.0
        shares = self.leapfrogs * weights * inner
        return self.leapfrogs * np.diff(nodes), shares[:-1].copy(), shares[1:].copy()

    def leapfrogs_of(self, draws: Indices) -> Indices:
        """The number of leapfrogs of each draw, by the numbers of the draws from 1 on.

        >>> SplitHMC(leapfrogs=2, halvings=2).leapfrogs_of(np.arange(1, 9))
        array([2, 4, 2, 8, 2, 4, 2, 8])
        """
        return np.asarray(self.leapfrogs * np.minimum(draws & -draws, 1 << self.halvings), np.int64)

    def pieces_of(self, draw: int) -> int:
        """2ᵏ for a draw, by its number: into how many pieces its steps are cut."""
        return min(draw & -draw, 1 << self.halvings)

    def rows_of_step(self, space: FiniteSum) -> float:
        """A pass for each leapfrog step, on average."""
        return float(self.leapfrogs * (1 + self.halvings / 2) * space.n)

    @property
    def cycle(self) -> int:
        """2ᵐ draws, after which the lengths of steps repeat."""
        return 1 << self.halvings

    @property
    def reach(self) -> float:
        """h, or h/2ᵏ with the k ≤ 2 that every fourth draw has."""
        return self.step_size / (1 << min(self.halvings, _OFTEN))

    def narrowing(self) -> SplitHMC | None:
        """The same sampler with halved steps at some draws; None if it has them already."""
        return None if self.halvings else replace(self, halvings=_HALVINGS)

    def smaller(self, share: float = 0.75, convex: bool = False) -> SplitHMC | None:
        """The same sampler with a share of the step, and as many steps as make the same turn; None below a step of
        0.05, or of 0.005 if f is convex: then a short step suffices, while otherwise a part may be narrower still.
        """
        step, turn = self.step_size * share, self.step_size * self.leapfrogs
        if step < (_SHORTEST_CONVEX if convex else _SHORTEST):
            return None
        leapfrogs = max(1, round((turn if turn > 1.5 * _TURN else _TURN) / step))
        return replace(self, step_size=step, leapfrogs=leapfrogs)

    def kernel(self, setup: Setup) -> Kernel:
        """A kernel that moves all chains in step: each leapfrog is one pass over the rows, wherever they are stored."""
        return SplitKernel(setup.target, self, setup.stream)

    def spent(self, state: State, steps: Indices, n: int) -> Array:
        """Passes after steps: one for each leapfrog, and one at the start."""
        return spent_by_passes(state, steps, n, self.leapfrogs_of)


Rise = Callable[[], Array]  # returns how far the energies of trajectories have risen


class Point(NamedTuple):
    """z of each chain, with f and ∇f there."""

    z: Array
    f: Array
    gradient: Array

    def memory(self) -> Memory:
        """What a chain remembers."""
        return {"f": self.f, "gradient": self.gradient}

    def where(self, chosen: npt.NDArray[np.bool_], other: Point) -> Point:
        """This point for the chosen chains, the other point for the rest."""
        column = chosen[:, None]
        z, gradient = (np.where(column, a, b) for a, b in ((self.z, other.z), (self.gradient, other.gradient)))
        return Point(z, np.where(chosen, self.f, other.f), gradient)


class TrajectoryKernel(Kernel):
    """A kernel on any `Density` whose chains remember f and ∇f, and follow trajectories of kicks and rotations."""

    gradients = proposes = True

    def __init__(self, density: Density, sampler: SplitHMC, stream: Callable[[Indices], Stream]) -> None:
        self.density, self.sampler, self.stream = density, sampler, stream
        self._turns, self._first, self._last = (part.tolist() for part in sampler.kicks())

    @abstractmethod
    def points(
        self, stream: Stream, current: Point, begin: int, end: int
    ) -> Iterator[tuple[Point, npt.NDArray[np.bool_]]]:
        """The points of the chains after each step, and whether they accepted their proposals."""

    def empty_memory(self, state: State) -> Memory:
        """f and ∇f at z."""
        return {"f": np.empty(0), "gradient": np.empty((0, self.density.dim))}

    def walk(self, chains: Indices, state: State, end: int) -> Iterator[StepResult]:
        """The steps of chains, from f and ∇f in the state or evaluated at its start."""
        stream, memory = self.stream(chains), state.memory
        start = (
            Point(state.x, memory["f"], memory["gradient"])
            if memory
            else self.evaluate_point(stream, state.step, state.x)
        )
        for current, accepted in self.points(stream, start, state.step, end):
            yield StepResult(current.z, state.v, current.memory, current.gradient, accepted)

    def energies(self, z: Array) -> tuple[Array, Array]:
        """f and ∇f; they may overflow far out, where the proposal is then refused."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.density.energies(z)

    def evaluate_point(self, stream: Stream, step: int, z: Array, rise: Rise | None = None) -> Point:
        """f and ∇f at a point of a trajectory; an error if f is not a number there."""
        f, gradient = self.energies(z)
        if np.isnan(f).any():
            require_defined(stream.chains, step + 1, z, f, 0.0 if rise is None else rise())
        return Point(z, f, gradient)

    def energy_drop(
        self, step: int, v: Array, jitter: Array, start: Point, energies: Callable[[Array, Rise], tuple[Array, Array]]
    ) -> Array:
        """By how much H falls along one trajectory, with U = jitter. energies: gives f and ∇f at a point of it, and is
        passed a function for how far H has risen up to the last kick. Two kicks at one point are made as one.
        """
        sampler, pieces, leapfrogs = self.sampler, self.sampler.pieces_of(step + 1), self.sampler.leapfrogs
        angle = (sampler.step_size * (1 + sampler.jitter * jitter) / pieces)[:, None]
        rotations = [(np.cos(turn * angle), np.sin(turn * angle)) for turn in self._turns]
        q, f, force = start
        before = f + 0.5 * (v * v).sum(axis=1)
        share, count = self._first[0], leapfrogs * pieces
        with np.errstate(over="ignore", invalid="ignore"):  # a trajectory that overflows is refused
            for leap in range(count):
                cosine, sine = rotations[leap % leapfrogs]
                v = v - share * angle * (force - q)

                def rise(f: Array = f, v: Array = v) -> Array:
                    risen: Array = f + 0.5 * (v * v).sum(axis=1) - before
                    return risen

                q, v = cosine * q + sine * v, cosine * v - sine * q
                f, force = energies(q, rise)
                after = self._first[(leap + 1) % leapfrogs] if leap + 1 < count else 0.0
                share = self._last[leap % leapfrogs] + after
            v = v - share * angle * (force - q)
            drop: Array = before - (f + 0.5 * (v * v).sum(axis=1))
        return drop


class SplitKernel(TrajectoryKernel):
    """The draws of `SplitHMC`."""

    def warm(self, state: State) -> None:
        """Prepare what a pass over the rows needs."""
        self.energies(state.x)

    def points(
        self, stream: Stream, current: Point, begin: int, end: int
    ) -> Iterator[tuple[Point, npt.NDArray[np.bool_]]]:
        """Each step is one trajectory."""
        forces = getattr(self.density, "forces", None)
        for step, v, jitter, threshold in self.noise(stream, current.z.size, begin, end):
            quick = None if forces is None else self._fast_trajectory(forces, step, v, jitter, current)
            new, drop = quick or self._checked_trajectory(stream, step, v, jitter, current)
            accepted = threshold < drop
            current = new.where(accepted, current)
            yield current, accepted

    def _checked_trajectory(
        self, stream: Stream, step: int, v: Array, jitter: Array, current: Point
    ) -> tuple[Point, Array]:
        """The end of a trajectory, and by how much H falls; an error where f is not a number on the way."""
        new = current

        def energies(q: Array, rise: Rise) -> tuple[Array, Array]:
            nonlocal new
            new = self.evaluate_point(stream, step, q, rise)
            return new.f, new.gradient

        drop = self.energy_drop(step, v, jitter, current, energies)
        return new, drop

    def _fast_trajectory(
        self, forces: Callable[[Array], Array], step: int, v: Array, jitter: Array, current: Point
    ) -> tuple[Point, Array] | None:
        """The same with f evaluated at the end alone; None if it is not a number there, or was not on the way."""
        new, remaining = current, self.sampler.leapfrogs * self.sampler.pieces_of(step + 1)

        def energies(q: Array, rise: Rise) -> tuple[Array, Array]:
            nonlocal new, remaining
            remaining -= 1
            if remaining:
                return current.f, forces(q)
            new = Point(q, *self.density.energies(q))
            return new.f, new.gradient

        with np.errstate(over="ignore", invalid="ignore"):
            drop = self.energy_drop(step, v, jitter, current, energies)
        return None if np.isnan(drop).any() else (new, drop)

    def noise(self, stream: Stream, size: int, first: int, end: int) -> Iterator[tuple[int, Array, Array, Array]]:
        """For each step from `first` to before `end`: its number, and by chain v, U and the log of a uniform number."""
        for begin, v, uniform in self.noise_ahead(stream, size, first, end):
            for place in range(v.shape[1]):
                yield begin + place, v[:, place], uniform[:, place, 1], uniform[:, place, 0]

    def noise_ahead(self, stream: Stream, size: int, first: int, end: int) -> Iterator[tuple[int, Array, Array]]:
        """The same for many steps at a time: the number of the first, v (chain, step, dim), and the log of a uniform
        number with U (chain, step, 2).
        """
        count_ahead = max(1, _AHEAD // size)
        while first < end:
            steps = np.arange(first, min(end, first + count_ahead, (first // STEPS_PER_KEY + 1) * STEPS_PER_KEY))
            v = stream.normals(steps, self.density.dim)
            uniform = stream.uniforms(steps, 2, Purpose.ACCEPT)
            yield first, v, np.stack([np.log(uniform[..., 0]), 2 * uniform[..., 1] - 1], axis=-1)
            first += len(steps)


def lobatto(steps: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss and Lobatto on [0, 1] with steps + 1 nodes: exact for polynomials of degree
    2·steps − 1; the same from both ends, to rounding.

    >>> lobatto(2)
    (array([0. , 0.5, 1. ]), array([0.16666667, 0.66666667, 0.16666667]))
    """
    basis = np.polynomial.legendre.Legendre.basis(steps)
    x = np.concatenate([[-1.0], np.sort(basis.deriv().roots().real), [1.0]])
    x = (x - x[::-1]) / 2
    w = 2 / (steps * (steps + 1) * basis(x) ** 2)
    return np.asarray((1 + x) / 2, np.float64), np.asarray((w + w[::-1]) / 4, np.float64)


def trapezoid(steps: int) -> tuple[Array, Array]:
    """Nodes and weights of the trapezoid rule on [0, 1], exact for lines.

    >>> trapezoid(2)
    (array([0. , 0.5, 1. ]), array([0.25, 0.5 , 0.25]))
    """
    weights = np.full(steps + 1, 1 / steps)
    weights[[0, -1]] /= 2
    return np.linspace(0.0, 1.0, steps + 1), weights
