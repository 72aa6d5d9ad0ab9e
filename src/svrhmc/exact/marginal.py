"""Independent proposals of the scales of a Gaussian mixed model, accepted by their exact density; the rest is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import positive, requirement, set_fields
from svrhmc.core.machine import one_blas_thread
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.serialise import part
from svrhmc.density.gaussian_scales import ConditionalLaw, GaussianScales
from svrhmc.density.mixed import MixedModel
from svrhmc.engines import Setup, State
from svrhmc.engines.base import Kernel, StepResult, spent_by_passes
from svrhmc.exact.base import ExactSampler
from svrhmc.gradients import Memory
from svrhmc.whitening.groups import Bend

_MUCH = 1 << 13  # coordinates of w, or numbers of a factor, from which chains are shared by threads


@part
@dataclass(frozen=True)
class MarginalMH(ExactSampler):
    """Metropolis with independent proposals on φ, the scales of a Gaussian mixed model, and w drawn given φ.

    With φ = g(A s) near to s ~ N(0, I) (`ScaleVariables`), one draw is

        s′ = ξ √(ν/χ²),   ξ ~ N(0, I),   χ² ~ χ²_ν,         a t law of ν = `freedom` degrees of freedom, density t(s′),
        accept s′ with probability min(1, ω(s′)/ω(s)),      ω = p(g(A s) | y) |∂g(A s)/∂s| / t(s),
        w ~ p(w | φ, y),                                    which is Gaussian.

    Invariance: the first step keeps the law of s under p(φ | y), by detailed balance, π(s) t(s′) min(1, ω(s′)/ω(s))
    being symmetric; w is drawn anew from its law given φ whether or not the proposal was accepted. p(φ | y) falls at
    least like e^{−c|s|} and t(s) like a power, so that ω is bounded, and chains forget their start at a geometric rate
    from everywhere (Mengersen & Tweedie 1996): no tail is seldom entered and seldom left.

    How large ω becomes in a tail is a matter of ν. With few levels, or a scale near 0, g(A s) fits the tails of φ less
    well than its middle: the largest of 20,000 ω, beside their mean, was 9 to 17 for ν = 20 and 2 for ν = 5
    (sleepstudy, (Days | Subject)), 32 to 83 and 7 to 16 (radon, (basement | county)), and a chain stands still for
    about as many draws. Where φ is Gaussian, ν = 5 costs 7% of the effective draws of two scales, 11% of those of four.

    Proposals depend on no state: those of a block of steps are evaluated together, by threads chain by chain.
    """

    kind = "marginal"
    defined, in_numpy = True, "always"
    method = "marginal-mh"
    freedom: float = 5.0

    def __post_init__(self) -> None:
        set_fields(self, freedom=positive("freedom", self.freedom))

    def kernel(self, setup: Setup) -> Kernel:
        """All chains by blocks of steps."""
        return MarginalKernel(setup.target, self, setup)

    def require(self, target: object) -> None:
        """Refuse what is not a Gaussian model with groups."""
        why = "it samples the standard deviations of groups in a Gaussian model; take another method"
        raise requirement("target", "a model with groups, given to svrhmc.sample", repr(target), why)

    def spent(self, state: State, steps: Indices, n: int) -> Array:
        """A pass for each proposal, and one at the start."""
        return spent_by_passes(state, steps, n, np.ones_like)


class ScaleVariables:
    """φ = g(A s) of a Gaussian mixed model; the states of chains are (w, θ) themselves.

    bend: g. mixing: A, a lower triangle.
    """

    def __init__(self, model: MixedModel, density: GaussianScales, bend: Bend, mixing: Array) -> None:
        self.model, self.density, self.bend, self.mixing = model, density, bend, mixing
        self.n, self.dim, self.randomness = model.n, model.dim, model.randomness

    def out_joint(self, x: Array) -> tuple[Array, Array]:
        """w and θ of states."""
        return x[:, : self.model.inner_dim], x[:, self.model.inner_dim :]

    def phi_of(self, x: Array) -> Array:
        """φ of states."""
        w, theta = self.out_joint(x)
        return theta if self.density.known_noise is not None else np.concatenate([theta, w[:, -1:]], axis=1)

    def phi(self, s: Array) -> tuple[Array, Array]:
        """φ, and log |∂φ/∂s| up to a constant."""
        value, first, _ = self.bend(s @ self.mixing.T)
        return value, np.log(first).sum(axis=1)

    def s(self, phi: Array) -> Array:
        """The reverse of `phi`."""
        return np.asarray(np.linalg.solve(self.mixing, self.bend.into(phi).T).T)

    def along(self, theta: Array, place: int, steps: Array) -> Array:
        """log p(φ | y) at steps of one coordinate of θ, with log σ in its middle."""
        phi = np.tile(self.bend.centre, (len(steps), 1))
        phi[:, : len(theta)] = theta
        phi[:, place] += steps
        return self.density.log_density(phi)

    def state(self, w: Array, phi: Array) -> Array:
        """(w, θ) of one state."""
        return np.concatenate([w, phi[: self.model.theta_dim]])


def student_draws(stream: Stream, steps: Indices, dim: int, freedom: float) -> Array:
    """Draws of a t law, (chains, steps, dim)."""
    from scipy.special import chdtri

    normals = stream.normals(steps, dim, Purpose.NEW, Purpose.NEW_FINE)
    square = chdtri(freedom, stream.uniforms(steps, 1, Purpose.JUMP))
    return np.asarray(normals * np.sqrt(freedom / square))


def log_weights(space: ScaleVariables, s: Array, freedom: float, log_density: Array | None = None) -> Array:
    """log ω at states s; log p(φ | y) is found unless it is given."""
    phi, jacobian = space.phi(s)
    if log_density is None:
        log_density = space.density.log_density(phi)
    tail = -0.5 * (freedom + s.shape[1]) * np.log1p((s * s).sum(axis=1) / freedom)
    return np.asarray(log_density + jacobian - tail)


@dataclass(frozen=True, eq=False)
class _Chain:
    """Where a chain is: the block and the row in it of its φ, log ω there, and the step that proposed it (0: none)."""

    conditional_law: ConditionalLaw
    row: int
    weight: float
    origin: int


class MarginalKernel(Kernel):
    """The draws of `MarginalMH`. Blocks begin at multiples of their length, whatever calls ask for, so that no digit
    depends on how a run is divided.
    """

    proposes = True

    def __init__(self, space: ScaleVariables, sampler: MarginalMH, setup: Setup) -> None:
        self.space, self.sampler, self.setup = space, sampler, setup
        self._length = space.density.batch_size
        self._large = max(space.model.inner_dim, space.density.pattern.numbers) > _MUCH
        self._blocks: dict[int, tuple[int, ConditionalLaw, Array]] = {}  # by chain, the block that was evaluated last
        self._now: dict[int, tuple[int, _Chain]] = {}  # by chain, its step and where it is

    def empty_memory(self, state: State) -> Memory:
        """log ω, and the step of the proposal that was accepted last."""
        return {"weight": np.empty(0), "origin": np.empty(0)}

    def walk(self, chains: Indices, state: State, end: int) -> Iterator[StepResult]:
        step, places = state.step, list(range(len(chains)))
        now = self._map_chains(lambda c: self._chain_at(int(chains[c]), state, c), places)
        while step < end:
            stop = min(end, (step // self._length + 1) * self._length)
            blocks = self._map_chains(self._blocks_of(chains, now, step, stop), places)
            now = [chain for _, _, chain in blocks]
            for k in range(stop - step):
                x = np.stack([draws[k] for draws, _, _ in blocks])
                yield StepResult(
                    x, state.v, _memory_of(now), None, np.array([accepted[k] for _, accepted, _ in blocks])
                )
            step = stop

    def _blocks_of(self, chains: Indices, now: list[_Chain], begin: int, end: int) -> Callable[[int], object]:
        return lambda c: self._run_block(int(chains[c]), now[c], begin, end)

    def _map_chains(self, work: Any, places: list[int]) -> list[Any]:
        """Chains by threads where there is much to do."""
        if not self._large:
            return [work(c) for c in places]
        with one_blas_thread():
            return list(self._pool.map(work, places))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.setup.threads)

    def _chain_at(self, number: int, state: State, c: int) -> _Chain:
        """Where a chain is; as it was, or found again from the step that proposed it, with the same digits."""
        step, chain = self._now.get(number, (-1, None))
        if chain is not None and step == state.step:
            return chain
        if not state.memory or state.memory["origin"][c] == 0:
            phi = self.space.phi_of(state.x[c : c + 1])
            given = self.space.density.conditional_law(phi)
            weight = log_weights(self.space, self.space.s(phi), self.sampler.freedom, given.log_density)[0]
            return _Chain(given, 0, float(weight), 0)
        origin = int(state.memory["origin"][c])
        given, _ = self._proposals(number, (origin - 1) // self._length)
        return _Chain(given, (origin - 1) % self._length, float(state.memory["weight"][c]), origin)

    def _proposals(self, number: int, block: int) -> tuple[ConditionalLaw, Array]:
        """The proposals of a chain in a block of steps, and log ω there."""
        block_proposals = self._blocks.get(number)
        if block_proposals is None or block_proposals[0] != block:
            steps = block * self._length + np.arange(self._length)
            stream, space = self.setup.stream(np.array([number])), self.space
            s = student_draws(stream, steps, space.density.dim, self.sampler.freedom)[0]
            given = space.density.conditional_law(space.phi(s)[0])
            block_proposals = block, given, log_weights(space, s, self.sampler.freedom, given.log_density)
            self._blocks[number] = block_proposals
        return block_proposals[1], block_proposals[2]

    def _run_block(self, number: int, chain: _Chain, begin: int, end: int) -> tuple[Array, list[bool], _Chain]:
        """States of a chain after each of some steps of one block, whether it accepted its proposals, and its end."""
        given, weights = self._proposals(number, begin // self._length)
        stream, space, inner = self.setup.stream(np.array([number])), self.space, self.space.model.inner_dim
        out, accepted = np.empty((end - begin, space.dim)), []
        thresholds = np.log(stream.uniforms(np.arange(begin, end), 1, Purpose.ACCEPT)[0, :, 0])
        for k, step in enumerate(range(begin, end)):
            row = step % self._length
            is_accepted = bool(thresholds[k] < weights[row] - chain.weight)
            if is_accepted:
                chain = _Chain(given, row, float(weights[row]), step + 1)
            accepted.append(is_accepted)
            w = space.density.draw(chain.conditional_law, chain.row, stream.normals(step, inner)[0])
            out[k] = space.state(w, chain.conditional_law.phi[chain.row])
        self._now[number] = end, chain
        return out, accepted, chain


def _memory_of(now: list[_Chain]) -> Callable[[], Memory]:
    return lambda: {
        "weight": np.array([chain.weight for chain in now]),
        "origin": np.array([float(chain.origin) for chain in now]),
    }
