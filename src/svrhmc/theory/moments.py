"""The exact law of a sampler on a quadratic target: no simulation, no bound (ours).

One step is a linear map of the moments of the state, which `recursion` follows.

In the coordinates of `quadratic`, every scheme acts on each coordinate of y = (x, v, x̃, ζ̃) alone (snapshot x̃; error ζ̃
of an estimated snapshot gradient), and the noise of its gradient has mean zero. So the mean m_a of coordinate a and
the covariance C_ab of a pair obey, over the two halves of a step,

    m_a ← P m_a,   C_ab ← P C_ab Pᵀ + δ_ab Lp Lpᵀ ;     m_a ← F_a m_a,   C_ab ← F_a C_ab F_bᵀ + δ_ab Lq Lqᵀ + ρV_ab kkᵀ,

F_a containing the drift −k(s_a x + ζ̃), ρ = 1/B, or (n − B)/(B(n − 1)) without replacement, and V the second moment of
the noise of one row, drawn evenly or by importance (`quadratic`), from M = C + mmᵀ:

    Minibatch:  V = 𝒩(M_xx) + 𝒳(m_x) + ℱ,      SVRG:  V = 𝒩(E (x − x̃)(x − x̃)ᵀ),      ControlVariate:  V = 𝒩(M_xx)

(and 0 for order 2). At a snapshot x̃ ← x, and ζ̃ ← a fresh error with second moment ρ̃ (𝒩(M_xx) + 𝒳(m_x) + ℱ),
uncorrelated with the rest; its rows are drawn evenly always. SAGA, whose state holds a table, is `TableChain`.

Mean and covariance are exact always; the law itself is Gaussian where the gradient has no noise. Where it has, W₂
between Gaussians of these moments is a lower bound on W₂ (Gelbrich 1990). All this is linear in (C, m̂m̂ᵀ), and
`recursion` finds the law after many steps. Pairs do not mix where a common S, or Sᵢ that commute, make the noise of a
pair its own; else a step takes O(dim⁴) or a pass over the components.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement, whole_number
from svrhmc.density.base import FiniteSum, Moments, require_target
from svrhmc.distances import gaussian_w2
from svrhmc.dynamics import Curved, Map, NoiseFactor
from svrhmc.gradients import Recipe
from svrhmc.samplers import Sampler
from svrhmc.theory.problem import Start, starting_point
from svrhmc.theory.quadratic import GradientNoise, Quadratic, eigen_components, require_quadratic
from svrhmc.theory.recursion import Recursion, State, after_change, original_coordinates, stationary_state, tempered

_MOST = 200  # numbers of a state with a table, whose moments are followed all together


@dataclass(frozen=True, eq=False)
class Law:
    """Mean (2·dim) and covariance (2·dim, 2·dim) of (x, v) after `step` steps (None: stationary), and the passes spent.

    `target` has the moments of e^{−f/T} at the temperature T of the dynamics (1 unless it is set), and `w2` is the
    distance of x to it, by these moments.
    """

    step: int | None
    passes: float
    mean: Array
    covariance: Array
    target: Moments

    @property
    def position(self) -> Moments:
        """Mean and covariance of x alone."""
        dim = len(self.mean) // 2
        return Moments(self.mean[:dim], self.covariance[:dim, :dim])

    @cached_property
    def w2(self) -> float:
        """W₂ between the Gaussian with these moments of x and the target."""
        x, pi = self.position, self.target
        return gaussian_w2(x.mean, x.covariance, pi.mean, pi.covariance)


def laws(sampler: Sampler, target: FiniteSum, steps: int, start: Start = None) -> Iterator[Law]:
    """The law after 0, 1, …, `steps` steps, from a fixed start (None: the origin; "mode"; a point) and
    velocity 0.

    >>> from svrhmc import svr_hmc, targets
    >>> *_, last = laws(svr_hmc(step_size=0.1), targets.synthetic(n=50, dim=2), steps=100)
    >>> last.position.mean.shape
    (2,)
    """
    chain = recursion_of(sampler, target)
    state = chain.state_at(starting_point(target, start))
    yield law_of(chain, state, 0)
    for step in range(whole_number("steps", steps, 0)):
        state = chain.step(state, step)
        yield law_of(chain, state, step + 1)


def law(sampler: Sampler, target: FiniteSum, steps: int, start: Start = None) -> Law:
    """The law after `steps` steps. For a common S the time grows only with the logarithm of the number of steps.

    >>> from svrhmc import hmc, targets
    >>> float(round(law(hmc(step_size=1e-6), targets.synthetic(n=5000, dim=50), steps=10**9).w2, 9))
    1.227e-06
    """
    chain, steps = recursion_of(sampler, target), whole_number("steps", steps, 0)
    state = chain.state_after(chain.state_at(starting_point(target, start)), steps)
    return law_of(chain, state, steps)


def stationary(sampler: Sampler, target: FiniteSum) -> Law:
    """The distribution to which the sampler settles; with snapshots, the one at the end of an epoch.

    >>> from svrhmc import hmc, targets
    >>> settled = stationary(hmc(step_size=0.1, inverse_mass=2 / 3), targets.gaussian([[3.0]], [[1.2]]))
    >>> float(settled.covariance[0, 0].round(9))  # 1/1.2 is 0.833333333
    0.86858999
    """
    chain = recursion_of(sampler, target)
    return law_of(chain, stationary_state(chain), None)


def law_of(chain: Recursion, state: State, step: int | None) -> Law:
    """The law that a chain has in this state, after so many steps (None: stationary)."""
    passes = math.inf if step is None else chain.recipe.evaluations(step) / chain.recipe.n
    return Law(step, passes, *chain.moments(state), chain.goal)


def recursion_of(sampler: Sampler, target: FiniteSum) -> Recursion:
    """The moments of a sampler on a quadratic target."""
    if not hasattr(sampler, "dynamics"):
        raise requirement("sampler", "a Sampler, such as svr_hmc(0.1)", repr(sampler))
    recipe = sampler.gradient.recipe(require_target(target))
    if recipe.reference == "table":
        return TableChain(sampler, target)
    return Chain(sampler, Quadratic.of(target, recipe), target)


class Chain(Recursion):
    """A sampler without a table on a quadratic: coordinates of y alone, and their pairs."""

    def __init__(self, sampler: Sampler, model: Quadratic, curved: Curved) -> None:
        recipe = sampler.gradient.recipe(model)
        k = _parts(recipe, sampler)  # of y that matter: x, v, then x̃, then ζ̃
        even = model.snapshot_noise
        elementwise = model.noise.elementwise and (even is None or even.elementwise)
        goal = tempered(model.moments, sampler.dynamics.temperature)
        super().__init__(recipe, k, model.a, model.b, elementwise, goal)
        self.spectrum, self.model, self.scheme = model.spectrum, model, sampler.dynamics.scheme(curved)
        self._diagonal = np.where(model.a == model.b, 1.0, 0.0)
        kick = np.zeros((model.dim, self.k, self.k))
        kick[:, :2, 0] = -np.outer(model.spectrum, self.scheme.kick)
        if self.k == 4:
            kick[:, :2, 3] = -np.array(self.scheme.kick)
        self._before = self._maps(self.scheme.before, np.zeros_like(kick))
        self._after = self._maps(self.scheme.after, kick)
        self._before_noise, self._after_noise = (
            self._noise(noise) for noise in (self.scheme.before_noise, self.scheme.after_noise)
        )
        self._kick_noise = self._top(np.outer(self.scheme.kick, self.scheme.kick))

    def state_at(self, x: Array) -> State:
        """The state at a fixed point with velocity 0."""
        away = self.model.basis.T @ (x - self.model.centre)
        mean = np.zeros((self.model.dim, self.k + 1))
        mean[:, 0], mean[:, self.k] = away, 1.0
        if self.k > 2:
            mean[:, 2] = away
        return self.state_without_spread(mean)

    def moments(self, state: State) -> tuple[Array, Array]:
        """Mean and covariance of (x, v) in the target's coordinates."""
        model, d = self.model, self.model.dim
        covariance = np.zeros((2, d, 2, d))
        for i in range(2):
            for j in range(2):
                covariance[j, model.b, i, model.a] = state.C[:, i, j]
                covariance[i, model.a, j, model.b] = state.C[:, i, j]
        return original_coordinates(model.basis, model.centre, self._mean(state)[:, :2].T, covariance)

    def marginals(self, state: State) -> tuple[Array, Array]:
        """Mean and variance of x in each coordinate."""
        return self._mean(state)[:, 0], state.C[self.coordinates, 0, 0]

    @property
    def cost(self) -> float:
        """Operations of a step made by itself, roughly."""
        return 50.0 * len(self.model.a) * self.k**2 + self.model.noise.cost

    def _renew(self, C: Array, mm: Array) -> tuple[Array, Array]:
        take = self.take + np.eye(self.k + 1)
        inner = take[: self.k, : self.k]
        moved = inner @ C @ inner.T
        if self.k == 4:
            scale = _scale(self.recipe.snapshot_rows, self.model.n, self.recipe.replacement)
            moved[..., 3, 3] = scale * self._component_noise(C, mm, self.model.snapshot_noise or self.model.noise)
        return moved - C, take @ mm @ take.T - mm

    def _gradient_noise(self, C: Array, mm: Array) -> Array | None:
        """ρV kkᵀ of each pair."""
        recipe = self.recipe
        if recipe.full or recipe.order == 2:
            return None
        if recipe.reference == "none":
            V = self._component_noise(C, mm, self.model.noise)
        else:
            M = C + mm[..., :-1, :-1]
            apart = M[..., 0, 0]  # from the mode, or from the snapshot
            if recipe.reference == "snapshot":
                apart = apart - M[..., 0, 2] - M[..., 2, 0] + M[..., 2, 2]
            V = self.model.noise.curvature(apart)
        scale = _scale(recipe.batch, self.model.n, recipe.replacement)
        return self._kick_noise * (scale * V)[..., None, None]

    def _component_noise(self, C: Array, mm: Array, noise: GradientNoise) -> Array:
        mean = mm[..., self.coordinates, 0, -1]
        cross = noise.cross(mm[..., 0, -1], mm[..., -1, 0], mean)
        return noise.curvature(C[..., 0, 0] + mm[..., 0, 0]) + cross + noise.forces * mm[..., -1, -1]

    def _maps(self, linear: Map, kick: Array) -> Array:
        """G = F − I on (y, 1) in each coordinate; a map with xx ≠ 1 acts on x itself, not on x − x*."""
        d, k = self.model.dim, self.k
        change = linear.matrix() - np.eye(2)
        G = np.zeros((d, k + 1, k + 1))
        G[:, :2, :2] = change
        G[:, :2, k] = np.outer(self.model.basis.T @ self.model.centre, change[:, 0])
        G[:, :k, :k] += kick
        return G

    def _noise(self, noise: NoiseFactor) -> Array:
        """LLᵀ on the pairs of equal coordinates."""
        return self._diagonal[:, None, None] * self._top(noise.covariance())

    def _top(self, matrix: Array) -> Array:
        """A 2 × 2 matrix of (x, v) as one of y."""
        whole = np.zeros((self.k, self.k))
        whole[:2, :2] = matrix
        return whole

    def _mean(self, state: State) -> Array:
        mean: Array = state.mm[self.coordinates, :, -1]
        return mean

    @cached_property
    def noiseless_steps(self) -> tuple[Array, Array]:
        """The first and every other step of an epoch on (y, 1) in each coordinate, without noise."""
        inner = after_change(self._after, self._before)
        if self.k == 2:
            return inner, inner
        return after_change(self._after, after_change(np.broadcast_to(self.take, inner.shape), self._before)), inner

    @cached_property
    def take(self) -> Array:
        """What a snapshot changes on (y, 1): x̃ ← x, ζ̃ ← 0."""
        take = np.zeros((self.k + 1, self.k + 1))
        take[2, 0], take[2, 2] = 1.0, -1.0
        for k in range(3, self.k):
            take[k, k] = -1.0
        return take


def _parts(recipe: Recipe, sampler: Sampler) -> int:
    """How many parts of y matter to a recipe; refused where the law is not known."""
    if recipe.reference == "table":
        raise requirement("gradient", "one without a table, on a spectrum alone", repr(sampler.gradient))
    if recipe.reference == "snapshot":
        return 4 if recipe.snapshot_rows else 3
    return 2


def _scale(size: int, n: int, replacement: bool) -> float:
    """Variance of a mean of `size` components over that of one."""
    if replacement:
        return 1 / size
    return (n - size) / (size * (n - 1)) if n > 1 else 0.0


@dataclass(frozen=True, eq=False)
class Batch:
    """Which rows a batch holds: πᵢ, and the covariances Γ, H and K."""

    chance: Array
    gamma: Array
    H: Array
    K: Array

    @staticmethod
    def of(recipe: Recipe, P: Array) -> Batch:
        """B rows drawn one by one with probabilities P, or B different ones (evenly).

        One by one, with oᵢ = 1 − Pᵢ:  Cov(cᵢ, cⱼ) = B(Pᵢ[i = j] − PᵢPⱼ),  Cov(cᵢ, iⱼ) = BPᵢoⱼᴮ⁻¹([i = j] − Pⱼ),  and
        Cov(iᵢ, iⱼ) = (1 − Pᵢ − Pⱼ)ᴮ − oᵢᴮoⱼᴮ, or oᵢᴮ(1 − oᵢᴮ) for i = j. Different ones have c = i and
        P(i and j) = B(B − 1)/(n(n − 1)).
        """
        n, B, eye = len(P), recipe.batch, np.eye(len(P))
        if not recipe.replacement:
            both = B * (B - 1) / (n * (n - 1)) if n > 1 else 0.0
            K = np.where(eye == 1, B / n, both) - (B / n) ** 2
            return Batch(np.full(n, B / n), K / B**2, K / B, K)
        out, w = 1 - P, 1 / (n * P)
        counts = B * (np.diag(P) - np.outer(P, P))
        with_one = B * P[:, None] * out ** (B - 1) * (eye - P)
        neither = np.where(eye == 1, out, 1 - P[:, None] - P) ** B
        return Batch(
            1 - out**B, counts * np.outer(w, w) / B**2, with_one * w[:, None] / B, neither - np.outer(out**B, out**B)
        )


class TableChain(Recursion):
    """SAGA on a quadratic: one block of numbers, y = (x, v, β), its table included.

    With x measured from x*, in the eigenvectors of S̄ (`quadratic`), a component's own part of the gradient is
    ∇ℓᵢ(x) = LᵢRᵢx + qᵢ, and αᵢ = Lᵢβᵢ + qᵢ is what the table holds of it: a row of a linear model has
    Lᵢ = Rᵢᵀ = rᵢ, and βᵢ is one number; else Lᵢ = Sᵢ and Rᵢ = I. Let row i be cᵢ times in the batch, iᵢ = [cᵢ > 0], and
    wᵢ = 1/(nPᵢ). Then the qᵢ cancel, and with δᵢ = Rᵢx − βᵢ

        g = S̄x + Σ (cᵢwᵢ/B − 1/n) Lᵢδᵢ,      βᵢ ← βᵢ + iᵢδᵢ,

    where the coefficients are independent of the state and those of g have mean zero. So y = (x, v, β₁, …, βₙ) has the
    mean m ← Fm, in which βᵢ ← βᵢ + πᵢδᵢ with πᵢ = P(i in the batch), and the covariance C ← FCFᵀ + LqLqᵀ + what the
    batch adds: with D = E δδᵀ and products by blocks,

        to zzᵀ:  kkᵀ ⊗ L(Γ∘D)Lᵀ,      to zβᵀ:  −k ⊗ L(H∘D),      to ββᵀ:  K∘D,

        Γᵢⱼ = Cov(cᵢwᵢ, cⱼwⱼ)/B²,      Hᵢⱼ = Cov(cᵢwᵢ, iⱼ)/B,      Kᵢⱼ = Cov(iᵢ, iⱼ)      (`Batch`).

    The first step fills the table where its gradient is evaluated, β ← Rx. All pairs of table entries matter, so that
    2·dim + numbers of the table is limited.
    """

    def __init__(self, sampler: Sampler, target: FiniteSum) -> None:
        goal, recipe, dim, n = require_quadratic(target), sampler.gradient.recipe(target), target.dim, target.n
        table = n if target.scalar_parts else n * dim
        size = 2 * dim + table
        if size > _MOST:
            raise requirement(
                "target",
                f"one with 2·dim + numbers of the table at most {_MOST} for the exact law of a gradient with a table",
                f"{2 * dim} + {table}",
                "the covariances of all of them are followed together; take fewer components, or a gradient without a "
                "table, such as SVRG",
            )
        zero = np.zeros(1, np.int64)
        super().__init__(recipe, size, zero, zero, True, tempered(goal, sampler.dynamics.temperature))
        self.spectrum, self.basis, components = eigen_components(target, goal.mean)
        if components.rows is not None:
            self.L, self.R = components.rows.T, components.rows
        else:
            S = np.diag(self.spectrum) + (
                np.zeros((n, dim, dim)) if components.matrices is None else components.matrices
            )
            self.L, self.R = S.transpose(1, 0, 2).reshape(dim, n * dim), np.tile(np.eye(dim), (n, 1))
        batch = Batch.of(recipe, target.row_table[2] if recipe.weighted else np.full(n, 1 / n))
        block = np.ones((table // n, table // n))
        self._chance = np.repeat(batch.chance, table // n)
        self._gamma, self._H, self._K = (np.kron(matrix, block) for matrix in (batch.gamma, batch.H, batch.K))
        self.scheme = sampler.dynamics.scheme(target)
        self._before, self._after = self._map(self.scheme.before), self._map(self.scheme.after)
        self._after[0, : 2 * dim, :dim] -= np.kron(np.array(self.scheme.kick)[:, None], np.diag(self.spectrum))
        self._after += self._renewed(self._chance)
        self._before_noise, self._after_noise = (
            self._noise(noise) for noise in (self.scheme.before_noise, self.scheme.after_noise)
        )

    def state_at(self, x: Array) -> State:
        """The state at a fixed point with velocity 0; the table is filled in the first step."""
        mean = np.zeros((1, self.k + 1))
        mean[0, : len(x)], mean[0, -1] = self.basis.T @ (x - self.goal.mean), 1.0
        return self.state_without_spread(mean)

    def moments(self, state: State) -> tuple[Array, Array]:
        """Mean and covariance of (x, v) in the target's coordinates."""
        d = len(self.spectrum)
        mean, covariance = state.mm[0, : 2 * d, -1], state.C[0, : 2 * d, : 2 * d]
        return original_coordinates(self.basis, self.goal.mean, mean.reshape(2, d), covariance.reshape(2, d, 2, d))

    def marginals(self, state: State) -> tuple[Array, Array]:
        """Mean and variance of x in each coordinate."""
        d = len(self.spectrum)
        return state.mm[0, :d, -1], state.C[0].diagonal()[:d]

    @property
    def cost(self) -> float:
        """Operations of a step made by itself, roughly."""
        return 20.0 * self.k**3

    @cached_property
    def noiseless_steps(self) -> tuple[Array, Array]:
        """A step on (y, 1) without noise; once the table is filled all steps are alike."""
        step = after_change(self._after, self._before)
        return step, step

    def _renew(self, C: Array, mm: Array) -> tuple[Array, Array]:
        return self._through(C, mm, self._renewed(np.ones_like(self._chance))[None])

    def _gradient_noise(self, C: Array, mm: Array) -> Array:
        """What the batch adds to C, by the second moments of y at the gradient."""
        d, M = len(self.spectrum), C + mm[..., :-1, :-1]
        x, beta = slice(0, d), slice(2 * d, None)
        from_x = self.R @ M[..., x, :]
        D = (from_x[..., x] @ self.R.T - from_x[..., beta]) - (M[..., beta, x] @ self.R.T - M[..., beta, beta])
        added = np.zeros_like(M)
        within, across = self.L @ (self._gamma * D) @ self.L.T, self.L @ (self._H * D)
        for i, left in enumerate(self.scheme.kick):
            rows = slice(i * d, (i + 1) * d)
            added[..., rows, beta] = -left * across
            added[..., beta, rows] = -left * across.swapaxes(-1, -2)
            for j, right in enumerate(self.scheme.kick):
                added[..., rows, j * d : (j + 1) * d] = left * right * within
        added[..., beta, beta] = self._K * D
        return added

    def _renewed(self, chance: Array) -> Array:
        """What βᵢ ← βᵢ + πᵢ(Rᵢx − βᵢ) changes on (y, 1)."""
        d = len(self.spectrum)
        G = np.zeros((self.k + 1, self.k + 1))
        G[2 * d : -1, :d], G[2 * d : -1, 2 * d : -1] = chance[:, None] * self.R, -np.diag(chance)
        return G

    def _map(self, linear: Map) -> Array:
        """What a map of (x, v) changes on (y, 1); with xx ≠ 1 it acts on x itself, not on x − x*."""
        d, change = len(self.spectrum), linear.matrix() - np.eye(2)
        G = np.zeros((1, self.k + 1, self.k + 1))
        G[0, : 2 * d, : 2 * d] = np.kron(change, np.eye(d))
        G[0, : 2 * d, -1] = np.kron(change[:, 0], self.basis.T @ self.goal.mean)
        return G

    def _noise(self, noise: NoiseFactor) -> Array:
        """LLᵀ on (x, v)."""
        d, whole = len(self.spectrum), np.zeros((self.k, self.k))
        whole[: 2 * d, : 2 * d] = np.kron(noise.covariance(), np.eye(d))
        return whole
