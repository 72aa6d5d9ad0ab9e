"""One step of SAGA on a quadratic target as a linear map of the moments of its state, table included (ours).

With x measured from x*, in the eigenvectors of S̄ (`quadratic`), a component's own part of the gradient is
∇ℓᵢ(x) = LᵢRᵢx + qᵢ, and αᵢ = Lᵢβᵢ + qᵢ is what the table holds of it: a row of a linear model has
Lᵢ = Rᵢᵀ = rᵢ, and βᵢ is one number; else Lᵢ = Sᵢ and Rᵢ = I. Let row i be cᵢ times in the batch, iᵢ = [cᵢ > 0], and
wᵢ = 1/(nPᵢ). Then the qᵢ cancel, and with δᵢ = Rᵢx − βᵢ

    g = S̄x + Σ (cᵢwᵢ/B − 1/n) Lᵢδᵢ,      βᵢ ← βᵢ + iᵢδᵢ,

where the coefficients are independent of the state and those of g have mean zero. So y = (x, v, β₁, …, βₙ) has the mean
m ← Fm, in which βᵢ ← βᵢ + πᵢδᵢ with πᵢ = P(i in the batch), and the covariance C ← FCFᵀ + LqLqᵀ + what the batch
adds: with D = E δδᵀ and products by blocks,

    to zzᵀ:  kkᵀ ⊗ L(Γ∘D)Lᵀ,      to zβᵀ:  −k ⊗ L(H∘D),      to ββᵀ:  K∘D,

    Γᵢⱼ = Cov(cᵢwᵢ, cⱼwⱼ)/B²,      Hᵢⱼ = Cov(cᵢwᵢ, iⱼ)/B,      Kᵢⱼ = Cov(iᵢ, iⱼ)      (`Batch`).

The first step fills the table where its gradient is evaluated, β ← Rx. All pairs of table entries matter, so that
2·dim + numbers of the table is limited.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.dynamics import Map, NoiseFactor
from svrhmc.gradients import Recipe
from svrhmc.samplers import Sampler
from svrhmc.targets.base import FiniteSum
from svrhmc.theory.quadratic import eigen_components, require_quadratic
from svrhmc.theory.recursion import Recursion, State, after_change, heated, turned

MOST = 200  # numbers of a state whose moments are followed all together


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
    """SAGA on a quadratic: one block of numbers, y = (x, v, β)."""

    def __init__(self, sampler: Sampler, target: FiniteSum) -> None:
        goal, recipe, dim, n = require_quadratic(target), sampler.gradient.recipe(target), target.dim, target.n
        table = n if target.scalar_parts else n * dim
        size = 2 * dim + table
        if size > MOST:
            raise requirement(
                "target",
                f"one with 2·dim + numbers of the table at most {MOST} for the exact law of a gradient with a table",
                f"{2 * dim} + {table}",
                "the covariances of all of them are followed together; take fewer components, or a gradient without a "
                "table, such as SVRG",
            )
        zero = np.zeros(1, np.int64)
        super().__init__(recipe, size, zero, zero, True, heated(goal, sampler.dynamics.temperature))
        self.spectrum, self.basis, components = eigen_components(target, goal.mean)
        if components.rows is not None:
            self.L, self.R = components.rows.T, components.rows
        else:
            S = np.diag(self.spectrum) + (
                np.zeros((n, dim, dim)) if components.matrices is None else components.matrices
            )
            self.L, self.R = S.transpose(1, 0, 2).reshape(dim, n * dim), np.tile(np.eye(dim), (n, 1))
        batch = Batch.of(recipe, target.row_table[2] if recipe.weighted else np.full(n, 1 / n))
        each = np.ones((table // n, table // n))
        self._chance = np.repeat(batch.chance, table // n)
        self._gamma, self._H, self._K = (np.kron(matrix, each) for matrix in (batch.gamma, batch.H, batch.K))
        self.scheme = sampler.dynamics.scheme(target)
        self._before, self._after = self._map(self.scheme.before), self._map(self.scheme.after)
        self._after[: 2 * dim, :dim] -= np.kron(np.array(self.scheme.kick)[:, None], np.diag(self.spectrum))
        self._after += self._renewed(self._chance)
        self._before_noise, self._after_noise = (
            self._noise(noise) for noise in (self.scheme.before_noise, self.scheme.after_noise)
        )

    def at(self, x: Array) -> State:
        """The state at a fixed point with velocity 0; the table is filled in the first step."""
        mean = np.zeros((1, self.k + 1))
        mean[0, : len(x)], mean[0, -1] = self.basis.T @ (x - self.goal.mean), 1.0
        return self.fixed(mean)

    def moments(self, state: State) -> tuple[Array, Array]:
        """Mean and covariance of (x, v) in the target's coordinates."""
        d = len(self.spectrum)
        mean, covariance = state.mm[0, : 2 * d, -1], state.C[0, : 2 * d, : 2 * d]
        return turned(self.basis, self.goal.mean, mean.reshape(2, d), covariance.reshape(2, d, 2, d))

    def spread(self, state: State) -> tuple[Array, Array]:
        """Mean and variance of x in each coordinate."""
        d = len(self.spectrum)
        return state.mm[0, :d, -1], state.C[0].diagonal()[:d]

    @property
    def cost(self) -> float:
        """Operations of a step made by itself, roughly."""
        return 20.0 * self.k**3

    @cached_property
    def quiet_steps(self) -> tuple[Array, Array]:
        """A step on (y, 1) without noise; once the table is filled all steps are alike."""
        step = after_change(self._after, self._before)[None]
        return step, step

    def _change(self, state: State, snapshot: bool) -> State:
        total = State(np.zeros_like(state.C), np.zeros_like(state.mm))
        filled = [(self._renewed(np.ones_like(self._chance)), None)] if snapshot else []
        for G, noise in [(self._before, self._before_noise), *filled, (self._after, self._after_noise)]:
            C, mm = state.C + total.C, state.mm + total.mm
            dC, dmm = self._through(C, mm, G[None])
            if noise is not None:
                dC = dC + noise * mm[..., -1:, -1:]
            if G is self._after:
                dC = dC + self._batch_noise(C + mm[..., :-1, :-1])
            total = State(total.C + dC, total.mm + dmm)
        return total

    def _batch_noise(self, M: Array) -> Array:
        """What the batch adds to C, given the second moments of y at the gradient."""
        d = len(self.spectrum)
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
        d = len(self.spectrum)
        change = np.array([[linear.xx - 1, linear.xv], [linear.vx, linear.vv - 1]])
        G = np.zeros((self.k + 1, self.k + 1))
        G[: 2 * d, : 2 * d] = np.kron(change, np.eye(d))
        G[: 2 * d, -1] = np.kron(change[:, 0], self.basis.T @ self.goal.mean)
        return G

    def _noise(self, noise: NoiseFactor) -> Array:
        """LLᵀ on (x, v)."""
        d, cross = len(self.spectrum), noise.xv * noise.vv
        whole = np.zeros((self.k, self.k))
        both = np.array([[noise.xv**2 + noise.xx**2, cross], [cross, noise.vv**2]])
        whole[: 2 * d, : 2 * d] = np.kron(both, np.eye(d))
        return whole
