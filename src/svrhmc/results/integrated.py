"""The likelihood of whole groups with their effects integrated: log p(y_g | x) = log ∫ Πᵢ p(yᵢ | tᵢ + zᵢᵀu) N(u; 0, Σ)
du.

Given a draw x of everything else, with Σ = MMᵀ and u = Mv, the integrand is e^{−h(v)} times a constant,

    h(v) = Σᵢ wᵢℓ(tᵢ + aᵢᵀv, yᵢ) + ½|v|²,        aᵢ = Mᵀzᵢ,

where the sum is over the rows of the group. With v̂ its minimum (by Newton's method, for all groups and draws of a
block at once), H the curvature there without the negative curvature of losses, and H⁻¹ = LLᵀ,

    ∫ e^{−h(v)} dv = |L| ∫ e^{−h(v̂ + Le)} de.

- For squared residuals the integrand is Gaussian, and its value at e = 0 is enough.
- For one or two effects the integral over e is computed by Gauss–Hermite quadrature with nodes eⱼ and weights ωⱼ for
  e^{−½e²}: Σ ωⱼe^{½eⱼ²}e^{−h(v̂ + Leⱼ)} (Liu & Pierce, Biometrika 81, 1994), by a product of two rules for two effects.
- For more effects it is estimated by importance sampling: the average of integrand over density for draws e of a
  Student's t with 5 degrees of freedom, whose tails are heavier. Its standard error comes from the same draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.rows.forms import RowsForm

_NODES = {1: 25, 2: 15}  # quadrature nodes, by the number of effects
_DRAWS, _DEGREES_OF_FREEDOM = 400, 5.0  # of the Student's t for more effects
_NEWTON_STEPS, _HALVINGS, _TOLERANCE = 60, 30, 1e-9
_BLOCK_NUMBERS = 1 << 20  # rows × draws × effects² in one block


class Integral(NamedTuple):
    """log p(y_g | x), and the relative standard error of p(y_g | x), both (draws, groups)."""

    log_likelihood: Array
    error: Array


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """The rows of some groups, sorted by group, each group with at least one row. x: draws without the groups' effects.
    starts: the first row of each group. columns: zᵢ, (rows, r). factor: M under each draw, (draws, r, r).
    """

    form: RowsForm
    x: Array
    starts: Indices
    columns: Array
    factor: Array

    def integral(self) -> Integral:
        """The integral of every group under every draw, for a block of draws at a time."""
        rows, r = self.columns.shape
        size = max(1, _BLOCK_NUMBERS // (rows * r * r))
        parts = [self._integral_under_draws(slice(begin, begin + size)) for begin in range(0, len(self.x), size)]
        return Integral(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _integral_under_draws(self, draws: slice) -> Integral:
        t = self.form.predictors(self.x[draws])
        a = np.einsum("nc,dce->dne", self.columns, self.factor[draws])
        return _Potential(self.form, t, a, self.starts).integral()


@dataclass(frozen=True, eq=False)
class _Potential:
    """h(v) of groups under some draws. t: (draws, rows, …); a: (draws, rows, r)."""

    form: RowsForm
    t: Array
    a: Array
    starts: Indices

    @cached_property
    def _group_of_row(self) -> Indices:
        """The group of each row."""
        sizes = np.diff([*self.starts, self.a.shape[1]])
        return np.repeat(np.arange(len(self.starts)), sizes)

    def _sum_by_group(self, values: Array) -> Array:
        """The sum over the rows of each group: (draws, rows, …) → (draws, groups, …)."""
        return np.asarray(np.add.reduceat(values, self.starts, axis=1))

    def _predictors(self, v: Array) -> Array:
        loss = self.form.loss
        shift = np.einsum("dnc,dnc->dn", self.a, v[:, self._group_of_row])
        t: Array = self.t + shift[(..., *(None,) * len(loss.predictor_shape))] * loss.unit()
        return t

    def value(self, v: Array) -> Array:
        """h(v): (draws, groups, r) → (draws, groups); ∞ where it is not a number."""
        with np.errstate(over="ignore", invalid="ignore"):
            h = self._sum_by_group(self.form.values(self._predictors(v))) + 0.5 * (v * v).sum(axis=2)
        return np.asarray(np.where(np.isnan(h), np.inf, h), np.float64)

    def derivatives(self, v: Array) -> tuple[Array, Array]:
        """∇h, and I + Σ aᵢaᵢᵀ max(wᵢℓ″, 0)."""
        t, loss = self._predictors(v), self.form.loss
        with np.errstate(over="ignore", invalid="ignore"):
            slope, bend = self.form.slopes(t), self.form.curvatures(t)
        slope, bend = (slope[..., 0], bend[..., 0, 0]) if loss.predictor_shape else (slope, bend)
        gradient = self._sum_by_group(slope[..., None] * self.a) + v
        weighted = np.maximum(np.nan_to_num(bend), 0.0)[..., None, None] * self.a[..., :, None] * self.a[..., None, :]
        return gradient, self._sum_by_group(weighted) + np.eye(v.shape[2])

    def minimum(self) -> tuple[Array, Array, Array]:
        """v̂, h(v̂) and H."""
        v = np.zeros((len(self.t), len(self.starts), self.a.shape[2]))
        h = self.value(v)
        for _ in range(_NEWTON_STEPS):
            gradient, H = self.derivatives(v)
            step = np.linalg.solve(H, gradient[..., None])[..., 0]
            decrement = (gradient * step).sum(axis=2)
            if not (decrement > _TOLERANCE).any():
                break
            step_size = np.ones(h.shape)
            for _ in range(_HALVINGS):
                new = v - step_size[..., None] * step
                lower = self.value(new)
                decreases = lower <= h - 1e-4 * step_size * decrement
                if decreases.all():
                    break
                step_size = np.where(decreases, step_size, step_size / 2)
            better = lower < h
            if not better.any():
                break
            v, h = np.where(better[..., None], new, v), np.where(better, lower, h)
        return v, h, self.derivatives(v)[1]

    def integral(self) -> Integral:
        """log of (2π)^{−r/2} ∫ e^{−h} dv, less the constants of the rows."""
        v, h, H = self.minimum()
        root = np.linalg.cholesky(H)
        L = np.linalg.inv(root).swapaxes(-1, -2)
        r, loss = v.shape[2], self.form.loss
        volume = -np.log(np.einsum("dgaa->dga", root)).sum(axis=2)
        if loss.mixture or loss.quadratic:  # h is a square
            log_sum, error = np.full(h.shape, 0.5 * r * math.log(2 * math.pi)), np.zeros(h.shape)
        else:
            points, log_weights, is_random = _integration_points(r)
            total, squares = np.zeros(h.shape), np.zeros(h.shape)
            for e, log_weight in zip(points, log_weights, strict=True):
                term = np.exp(log_weight + h - self.value(v + L @ e))
                total, squares = total + term, squares + term * term
            log_sum = np.log(total)
            error = np.sqrt(np.maximum(squares / total**2 - 1 / len(points), 0.0)) if is_random else np.zeros(h.shape)
        constants = np.add.reduceat(self.form.constants(), self.starts)
        return Integral(log_sum - h + volume - 0.5 * r * math.log(2 * math.pi) - constants, error)


def _integration_points(r: int) -> tuple[Array, Array, bool]:
    """Points e (points, r), the logarithms of their weights for e^{−h}, and whether they are random draws."""
    if r in _NODES:
        node, weight = np.polynomial.hermite_e.hermegauss(_NODES[r])
        e = np.stack(np.meshgrid(*[node] * r, indexing="ij"), axis=-1).reshape(-1, r)
        weights = np.stack(np.meshgrid(*[weight] * r, indexing="ij"), axis=-1).reshape(-1, r)
        return e, np.log(weights).sum(axis=1) + 0.5 * (e * e).sum(axis=1), False
    rng = np.random.default_rng(0)
    df = _DEGREES_OF_FREEDOM
    e = rng.normal(size=(_DRAWS, r)) / np.sqrt(rng.chisquare(df, (_DRAWS, 1)) / df)
    square = (e * e).sum(axis=1)
    log_density = (
        math.lgamma((df + r) / 2) - math.lgamma(df / 2) - 0.5 * r * math.log(df * math.pi)
        - 0.5 * (df + r) * np.log1p(square / df)
    )  # fmt: skip
    return e, -log_density - math.log(len(e)), True
