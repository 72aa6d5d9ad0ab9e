"""One step of a sampler on a quadratic target as a linear map of the moments of its state (ours).

In the coordinates of `quadratic`, every scheme acts on each coordinate of y = (x, v, x̃, ζ̃) alone (snapshot x̃; error ζ̃
of an estimated snapshot gradient), and the noise of its gradient has mean zero. So the mean m_a of coordinate a and
the covariance C_ab of a pair obey, over the two halves of a step,

    m_a ← P m_a,   C_ab ← P C_ab Pᵀ + δ_ab Lp Lpᵀ ;     m_a ← F_a m_a,   C_ab ← F_a C_ab F_bᵀ + δ_ab Lq Lqᵀ + ρV_ab kkᵀ,

F_a containing the drift −k(s_a x + ζ̃), ρ = 1/B, or (n − B)/(B(n − 1)) without replacement, and V the second moment of
the noise of one row, drawn evenly or by importance (`quadratic`), from M = C + mmᵀ:

    Minibatch:  V = 𝒩(M_xx) + 𝒳(m_x) + ℱ,      SVRG:  V = 𝒩(E (x − x̃)(x − x̃)ᵀ),      ControlVariate:  V = 𝒩(M_xx)

(and 0 for order 2). At a snapshot x̃ ← x, and ζ̃ ← a fresh error with second moment ρ̃ (𝒩(M_xx) + 𝒳(m_x) + ℱ),
uncorrelated with the rest; its rows are drawn evenly always. SAGA, whose state holds a table, is in `table`.

Mean and covariance are exact always; the law itself is Gaussian where the gradient has no noise. Where it has, W₂
between Gaussians of these moments is a lower bound on W₂ (Gelbrich 1990). All this is linear in (C, m̂m̂ᵀ), and
`recursion` finds the law after many steps. Pairs do not mix where a common S, or Sᵢ that commute, make the noise of a
pair its own; else a step takes O(dim⁴) or a pass over the components.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.dynamics import Curved, Map, NoiseFactor
from svrhmc.gradients import Recipe
from svrhmc.samplers import Sampler
from svrhmc.theory.quadratic import GradientNoise, Quadratic
from svrhmc.theory.recursion import Recursion, State, after_change, heated, turned


class Chain(Recursion):
    """A sampler without a table on a quadratic: coordinates of y alone, and their pairs."""

    def __init__(self, sampler: Sampler, model: Quadratic, curved: Curved) -> None:
        recipe = sampler.gradient.recipe(model)
        k = _parts(recipe, sampler)  # of y that matter: x, v, then x̃, then ζ̃
        even = model.snapshot_noise
        elementwise = model.noise.elementwise and (even is None or even.elementwise)
        goal = heated(model.moments, sampler.dynamics.temperature)
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

    def at(self, x: Array) -> State:
        """The state at a fixed point with velocity 0."""
        away = self.model.basis.T @ (x - self.model.centre)
        mean = np.zeros((self.model.dim, self.k + 1))
        mean[:, 0], mean[:, self.k] = away, 1.0
        if self.k > 2:
            mean[:, 2] = away
        return self.fixed(mean)

    def moments(self, state: State) -> tuple[Array, Array]:
        """Mean and covariance of (x, v) in the target's coordinates."""
        model, d = self.model, self.model.dim
        covariance = np.zeros((2, d, 2, d))
        for i in range(2):
            for j in range(2):
                covariance[j, model.b, i, model.a] = state.C[:, i, j]
                covariance[i, model.a, j, model.b] = state.C[:, i, j]
        return turned(model.basis, model.centre, self._mean(state)[:, :2].T, covariance)

    def spread(self, state: State) -> tuple[Array, Array]:
        """Mean and variance of x in each coordinate."""
        return self._mean(state)[:, 0], state.C[self.coordinates, 0, 0]

    @property
    def cost(self) -> float:
        """Operations of a step made by itself, roughly."""
        return 50.0 * len(self.model.a) * self.k**2 + self.model.noise.cost

    def _change(self, state: State, snapshot: bool) -> State:
        changes = []
        C, mm = state.C, state.mm
        if self.scheme.moves_before:
            dC, dmm = self._through(C, mm, self._before)
            changes.append((dC + self._before_noise * mm[..., -1:, -1:], dmm))
            C, mm = C + changes[-1][0], mm + changes[-1][1]
        if snapshot:
            changes.append(self._snapshot(C, mm))
            C, mm = C + changes[-1][0], mm + changes[-1][1]
        V = self._gradient_noise(C, mm)
        dC, dmm = self._through(C, mm, self._after)
        dC = dC + self._after_noise * mm[..., -1:, -1:]
        if V is not None:
            dC = dC + self._kick_noise * V[..., None, None]
        for earlier in changes:
            dC, dmm = dC + earlier[0], dmm + earlier[1]
        return State(dC, dmm)

    def _snapshot(self, C: Array, mm: Array) -> tuple[Array, Array]:
        """What a snapshot changes."""
        take = self.take + np.eye(self.k + 1)
        inner = take[: self.k, : self.k]
        moved = inner @ C @ inner.T
        if self.k == 4:
            scale = _scale(self.recipe.snapshot_rows, self.model.n, self.recipe.replacement)
            moved[..., 3, 3] = scale * self._component_noise(C, mm, self.model.snapshot_noise or self.model.noise)
        return moved - C, take @ mm @ take.T - mm

    def _gradient_noise(self, C: Array, mm: Array) -> Array | None:
        """ρV of each pair."""
        recipe = self.recipe
        if recipe.full or recipe.order == 2:
            return None
        scale = _scale(recipe.batch, self.model.n, recipe.replacement)
        if recipe.reference == "none":
            return scale * self._component_noise(C, mm, self.model.noise)
        M = C + mm[..., :-1, :-1]
        apart = M[..., 0, 0]  # from the mode, or from the snapshot
        if recipe.reference == "snapshot":
            apart = apart - M[..., 0, 2] - M[..., 2, 0] + M[..., 2, 2]
        return scale * self.model.noise.curvature(apart)

    def _component_noise(self, C: Array, mm: Array, noise: GradientNoise) -> Array:
        mean = mm[..., self.coordinates, 0, -1]
        cross = noise.cross(mm[..., 0, -1], mm[..., -1, 0], mean)
        return noise.curvature(C[..., 0, 0] + mm[..., 0, 0]) + cross + noise.forces * mm[..., -1, -1]

    def _maps(self, linear: Map, kick: Array) -> Array:
        """G = F − I on (y, 1) in each coordinate; a map with xx ≠ 1 acts on x itself, not on x − x*."""
        d, k = self.model.dim, self.k
        G = np.zeros((d, k + 1, k + 1))
        G[:, 0, 0], G[:, 0, 1], G[:, 1, 0], G[:, 1, 1] = linear.xx - 1, linear.xv, linear.vx, linear.vv - 1
        centre = self.model.basis.T @ self.model.centre
        G[:, 0, k], G[:, 1, k] = (linear.xx - 1) * centre, linear.vx * centre
        G[:, :k, :k] += kick
        return G

    def _noise(self, noise: NoiseFactor) -> Array:
        """LLᵀ on the pairs of equal coordinates."""
        cross = noise.xv * noise.vv
        matrix = np.array([[noise.xv**2 + noise.xx**2, cross], [cross, noise.vv**2]])
        return self._diagonal[:, None, None] * self._top(matrix)

    def _top(self, matrix: Array) -> Array:
        """A 2 × 2 matrix of (x, v) as one of y."""
        whole = np.zeros((self.k, self.k))
        whole[:2, :2] = matrix
        return whole

    def _mean(self, state: State) -> Array:
        mean: Array = state.mm[self.coordinates, :, -1]
        return mean

    @cached_property
    def quiet_steps(self) -> tuple[Array, Array]:
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
