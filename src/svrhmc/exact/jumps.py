"""Split HMC on a posterior with several known modes: around each in its own variables, with jumps between them.

Let cᵢ be the modes, i = 1 … k, SᵢSᵢᵀ the inverse Hessian of f at cᵢ, and wᵢ ∝ e^{−f(cᵢ)} det Sᵢ the mass that Laplace's
method gives each. With qᵢ = ½wᵢ + ½/k, so that a mode of next to no mass is left as it is entered, and tᵢ the density
of cᵢ + Sᵢu, where u has Student's multivariate law with 5 + dim degrees of freedom, a label i is joined to the state z:

    p(i | z) = qᵢtᵢ(z)/Σⱼ qⱼtⱼ(z),            g(i, z) = π(z) p(i | z).

The z-part of g is π whatever q, c and S are. One draw is three moves, each of which keeps g:

(1) i is drawn from p(· | z): a Gibbs step.
(2) One draw of split HMC (`svrhmc.exact.SplitHMC`) at this i, in u, z = cᵢ + Sᵢu, of π(cᵢ + Sᵢu) p(i | cᵢ + Sᵢu). Near
    cᵢ that is about e^{−½|u|²}, however wide the mode is: one step size is right for all of them.
(3) A jump: j is drawn with probability qⱼ, whatever i is, and (i, u) becomes (j, u), so that z = cᵢ + Sᵢu
    becomes z′ = cⱼ + Sⱼu, with probability

        min(1, π(z′)p(j | z′) det Sⱼ qᵢ / (π(z)p(i | z) det Sᵢ qⱼ)).

Invariance of (3): in the variables (i, u) the density of g is h(i, u) = g(i, cᵢ + Sᵢu) det Sᵢ. At a fixed u the labels
are a finite set, j is proposed with probability qⱼ, and this is Metropolis and Hastings' acceptance for h(·, u). So the
move is in detailed balance with h(·, u) for every u, and with g.

Where modes are Gaussian and far apart, π(cᵢ + Sᵢu) det Sᵢ = wᵢe^{−½|u|²} for all of them, and a jump is accepted with
probability min(1, wⱼqᵢ/(wᵢqⱼ)), in any dimension. Where their shapes differ fewer are accepted, and no law is changed.
(j = i, which changes nothing, is one of the proposals so that chains do not alternate between modes of equal mass.)

*Scalings.* A heavy prior may put a narrow peak on a wide foot (`svrhmc.targets.priors.Heavy.feet`): steps that fit the
peak, of width s, take about R² draws to cross a foot of width Rs. So a draw has a fourth move. One such coordinate j is
drawn, and λ with log λ uniform on ±(1 + log R); with l the location of its prior and Σ the inverse Hessian at the mode,

    x′ = x + (λ − 1)(xⱼ − l) r,   r = Σⱼ/Σⱼⱼ,      accepted with probability min(1, λ π(x′)/π(x)):

xⱼ − l becomes λ(xⱼ − l), and the other coordinates follow as in the Gaussian law there. As rⱼ = 1, the map has the
determinant λ, and 1/λ, which is as likely, leads back: the move is in detailed balance with π. In z, x = x̂ + Wz, it is
z′ = z + (λ − 1)(a·z + b)W⁻¹r, with a row j of W and b = x̂ⱼ − l.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, contract
from svrhmc.core.deadline import check_budget
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.density.base import FiniteSum
from svrhmc.engines import Chains, Density, Setup, State
from svrhmc.engines.base import Kernel, spent_by_passes
from svrhmc.exact.base import start_chains
from svrhmc.exact.split import Point, Rise, SplitHMC, TrajectoryKernel
from svrhmc.models.model import Model
from svrhmc.whitening.curvature import curvature_at_mode
from svrhmc.whitening.targets import Whitened

_FREEDOM = 5.0  # ν − dim: tails heavy enough that a point far from all modes belongs to the nearest
_SCALINGS = 4  # in a draw, at most
MOST_COORDINATES = 1000  # for which there is a matrix S for every mode


@dataclass(frozen=True, eq=False)
class Regions:
    """Modes in whitened variables, with what jumps between them need; see the module.

    centres: c, (modes, dim). roots: S, (modes, dim, dim), symmetric. log_masses: log w, whose exponentials sum to 1.
    For scalings, with a row for each coordinate that has them: rows a, offsets b, the directions W⁻¹r (`ways`), and
    1 + log R (`reaches`).
    """

    centres: Array
    roots: Array
    log_masses: Array
    rows: Array
    offsets: Array
    ways: Array  # by these names in checkpoints
    reaches: Array

    @cached_property
    def _inverses(self) -> Array:
        inverses = np.linalg.inv(self.roots)
        return np.asarray((inverses + inverses.swapaxes(1, 2)) / 2, np.float64)

    @cached_property
    def _log_determinants(self) -> Array:
        return np.asarray(np.linalg.slogdet(self.roots)[1], np.float64)

    @property
    def count(self) -> int:
        """k."""
        return len(self.centres)

    def out(self, index: Indices, u: Array) -> Array:
        """z = cᵢ + Sᵢu, with one i for each state."""
        return self.centres[index] + _products(self.roots, index, u)

    def into(self, index: Indices, z: Array) -> Array:
        """u = Sᵢ⁻¹(z − cᵢ)."""
        return _products(self._inverses, index, z - self.centres[index])

    def pull(self, index: Indices, gradient: Array) -> Array:
        """Sᵢᵀ times a gradient in z: that in u."""
        return _products(self.roots, index, gradient)

    def log_shares(self, z: Array) -> Array:
        """log p(i | z) for all i: (states, dim) → (states, k)."""
        return self._shares(z, self.log_proposals)[0]

    def memberships(self, z: Array) -> Array:
        """The share of each mode in each state: p(i | z) with w in place of q; its probability if π is Σ wᵢtᵢ."""
        return np.exp(self._shares(z, self.log_masses)[0])

    def log_share(self, index: Indices, z: Array) -> tuple[Array, Array]:
        """log p(i | z) with one i for each state, and its gradient in z."""
        logs, u = self._shares(z, self.log_proposals)
        dim, rows = z.shape[1], np.arange(len(z))
        freedom = _FREEDOM + dim
        pulls = -(freedom + dim) / (freedom + (u * u).sum(axis=2, keepdims=True)) * u  # ∇ log tᵢ, in u
        slopes = contract("kde,cke->ckd", self._inverses, pulls)
        mean = contract("ck,ckd->cd", np.exp(logs), slopes)
        return logs[rows, index], slopes[rows, index] - mean

    def potentials(self, space: Whitened, index: Indices, u: Array) -> Array:
        """−log of π(cᵢ + Sᵢu) p(i | cᵢ + Sᵢu), up to a constant, with one i for each u."""
        z = self.out(index, u)
        with np.errstate(over="ignore", invalid="ignore"):
            energies: Array = space.potentials(z) - self.log_shares(z)[np.arange(len(z)), index]
        return energies

    def log_determinant(self, index: Indices) -> Array:
        """log det Sᵢ."""
        log_determinants: Array = self._log_determinants[index]
        return log_determinants

    @cached_property
    def log_proposals(self) -> Array:
        """log q."""
        return np.log(np.exp(self.log_masses) / 2 + 0.5 / self.count)

    def _shares(self, z: Array, log_weights: Array) -> tuple[Array, Array]:
        """log p(i | z) with these weights for log q, and Sᵢ⁻¹(z − cᵢ), for all i."""
        u = contract("kde,cke->ckd", self._inverses, z[:, None] - self.centres)
        freedom = _FREEDOM + z.shape[1]
        tails = 0.5 * (freedom + z.shape[1]) * np.log1p((u * u).sum(axis=2) / freedom)
        logs = log_weights - self._log_determinants - tails
        largest = logs.max(axis=1, keepdims=True)
        return logs - largest - np.log(np.exp(logs - largest).sum(axis=1, keepdims=True)), u


class WidePart(NamedTuple):
    """A part of the posterior around a mode, in whitened variables, that the curvature there does not show: its centre,
    S, and the logarithm of its mass over (2π)^{d/2}.
    """

    centre: Array
    root: Array
    log_mass: float


def find_regions(space: Whitened, modes: Array, wide: WidePart | None = None) -> Regions:
    """Regions around modes in the user's variables, with a wide part around them if there is one. A direction in which
    f does not curve upwards has the width that the whitening gives it, or, for a model of functions, the width over
    which f rises, as where it is flat along a ring. A coordinate is scaled as at the mode where its foot is widest.
    """
    whitening, centres = space.whitening, space.into(modes)
    hessians = np.stack([whitening.pull(whitening.pull(_curvature(space.target, mode)).T) for mode in modes])
    hessians = (hessians + hessians.swapaxes(1, 2)) / 2
    values, vectors = np.linalg.eigh(hessians)
    widths = np.where(values > 0, np.where(values > 0, values, 1.0) ** -0.5, 1.0)
    roots = contract("kde,ke,kfe->kdf", vectors, widths, vectors)
    logs = np.log(widths).sum(axis=1) - space.potentials(centres)
    if wide is not None:
        centres, roots = np.concatenate([centres, wide.centre[None]]), np.concatenate([roots, wide.root[None]])
        logs = np.append(logs, wide.log_mass)
    logs = logs - logs.max()
    location, widenings = (np.stack(parts) for parts in zip(*map(space.target.feet, modes), strict=True))
    widest = widenings.argmax(axis=0)
    columns = np.flatnonzero(widenings.max(axis=0) > 1)
    rows = whitening.pull(np.eye(space.dim)[columns])
    directions = np.zeros((len(columns), space.dim))
    for k, j in enumerate(columns):
        direction = np.linalg.solve(hessians[widest[j]], rows[k])
        directions[k] = direction / (rows[k] @ direction)
    return Regions(
        centres,
        roots,
        logs - math.log(np.exp(logs).sum()),
        rows,
        whitening.centre[columns] - location[0][columns],
        directions,
        1 + np.log(widenings.max(axis=0)[columns]),
    )


def _curvature(target: FiniteSum, mode: Array) -> Array:
    """∇²f at a mode; for a model of functions the curvature over a distance, where f contradicts ∇²f."""
    hessian: Array = target.hessian(mode)
    return curvature_at_mode(target, mode, hessian) if isinstance(target, Model) else hessian


@dataclass(frozen=True, eq=False)
class Jumps:
    """The sampler of this module: split HMC with jumps and scalings."""

    kind: ClassVar[str] = "jumps"
    defined: ClassVar[bool] = True
    in_numpy: ClassVar[str] = "always"
    split: SplitHMC
    regions: Regions

    def kernel(self, setup: Setup) -> Kernel:
        """A kernel that moves all chains in step."""
        return JumpKernel(setup.target, self, setup.stream)

    @property
    def scalings(self) -> int:
        """The number of scalings in a draw."""
        return min(len(self.regions.reaches), _SCALINGS)

    def spent(self, state: State, steps: Indices, n: int) -> Array:
        """Passes after steps: those of split HMC, and one for the jump and for each scaling."""
        return spent_by_passes(state, steps, n, lambda draws: self.split.leapfrogs_of(draws) + 1 + self.scalings)

    def chains(
        self, space: Whitened, seed: int, chains: Indices, threads: int, start: Array, engine: str = "auto"
    ) -> Chains:
        """Chains that can be continued."""
        return start_chains(self, space, seed, chains, threads, start, engine)


class JumpKernel(TrajectoryKernel):
    """The four moves. Only acceptances of move (2) are counted."""

    def __init__(self, density: Density, jumps: Jumps, stream: Callable[[Indices], Stream]) -> None:
        super().__init__(density, jumps.split, stream)
        self.regions, self._log_q = jumps.regions, jumps.regions.log_proposals
        self._scalings = jumps.scalings

    def warm(self, state: State) -> None:
        """Prepare what a pass over the rows needs."""
        self.energies(state.x)

    def points(
        self, stream: Stream, current: Point, begin: int, end: int
    ) -> Iterator[tuple[Point, npt.NDArray[np.bool_]]]:
        """Each step is the four moves, one after another."""
        for step in range(begin, end):
            check_budget()
            uniforms = stream.uniforms(step, 5 + 3 * self._scalings, Purpose.JUMP).T
            index = _draw_indices(self.regions.log_shares(current.z), uniforms[0])
            current, accepted = self._local_move(stream, step, index, uniforms[1:3], current)
            current = self._jump(stream, step, index, uniforms[3:5], current)
            for first in range(5, len(uniforms), 3):
                current = self._scaling(stream, step, uniforms[first : first + 3], current)
            yield current, accepted

    def _local_move(
        self, stream: Stream, step: int, index: Indices, uniforms: Array, current: Point
    ) -> tuple[Point, npt.NDArray[np.bool_]]:
        """Move (2), in u."""
        new = current

        def joint_energies(point: Point) -> tuple[Array, Array]:
            """f − log p(i | z), and its gradient in u."""
            share, slope = self.regions.log_share(index, point.z)
            return point.f - share, self.regions.pull(index, point.gradient - slope)

        def energies(u: Array, rise: Rise) -> tuple[Array, Array]:
            nonlocal new
            new = self.evaluate_point(stream, step, self.regions.out(index, u), rise)
            return joint_energies(new)

        start = Point(self.regions.into(index, current.z), *joint_energies(current))
        v = stream.normals(step, self.density.dim)
        with np.errstate(over="ignore", invalid="ignore"):  # a trajectory that leaves the finite numbers is refused
            accepted = np.log(uniforms[1]) < self.energy_drop(step, v, 2 * uniforms[0] - 1, start, energies)
        return new.where(accepted, current), accepted

    def _jump(self, stream: Stream, step: int, index: Indices, uniforms: Array, current: Point) -> Point:
        """The third move: a jump to another region."""
        regions, log_q = self.regions, self._log_q
        if regions.count == 1:
            return current
        proposed = _draw_indices(np.broadcast_to(log_q, (len(current.z), regions.count)), uniforms[0])
        new = self.evaluate_point(stream, step, regions.out(proposed, regions.into(index, current.z)))
        gain = regions.log_share(proposed, new.z)[0] + regions.log_determinant(proposed) + log_q[index]
        loss = regions.log_share(index, current.z)[0] + regions.log_determinant(index) + log_q[proposed]
        return new.where(np.log(uniforms[1]) < (current.f - new.f) + gain - loss, current)

    def _scaling(self, stream: Stream, step: int, uniforms: Array, current: Point) -> Point:
        """The fourth move: the scaling of one coordinate about its location."""
        regions = self.regions
        j = np.minimum((uniforms[0] * len(regions.reaches)).astype(np.int64), len(regions.reaches) - 1)
        log_scale = regions.reaches[j] * (2 * uniforms[1] - 1)
        distance = (regions.rows[j] * current.z).sum(axis=1) + regions.offsets[j]
        new = self.evaluate_point(stream, step, current.z + (np.expm1(log_scale) * distance)[:, None] * regions.ways[j])
        return new.where(np.log(uniforms[2]) < (current.f - new.f) + log_scale, current)


def _draw_indices(logs: Array, uniforms: Array) -> Indices:
    """An index for each row of log probabilities, from one uniform number each."""
    cumulative = np.cumsum(np.exp(logs), axis=1)
    index = (uniforms[:, None] * cumulative[:, -1:] >= cumulative).sum(axis=1)
    return np.asarray(np.minimum(index, logs.shape[1] - 1), np.int64)


def _products(matrices: Array, index: Indices, vectors: Array) -> Array:
    """The matrix of its index times each vector; no digit depends on the vectors beside it."""
    out = np.empty_like(vectors)
    for i in np.unique(index):
        is_chosen = index == i
        out[is_chosen] = contract("de,ce->cd", matrices[i], vectors[is_chosen])
    return out
