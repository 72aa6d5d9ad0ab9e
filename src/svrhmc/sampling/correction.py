"""Moments by control variates that every posterior has.

Under π, for every smooth f (integration by parts),

    E ∇f(x) = 0,            E (x − x̄)∇f(x)ᵀ = I.

With C the covariance of the draws and h = C∇f, each draw gives for each coordinate j two numbers of known mean,

    hⱼ/σⱼ                      whose mean is, to first order, the bias of the mean in units of σⱼ, and
    ½((xⱼ − x̄ⱼ)hⱼ/σⱼ² − 1)      whose mean is, to first order, the relative bias of the standard deviation

where π is near to Gaussian. ∇f may be an unbiased estimate whose noise is independent of the draw. As control variates
they remove nearly all Monte Carlo error from the moments, and most of the bias of a sampler that has one. Under a
sampler that leaves π invariant their mean must be 0: if it is not, its chains have not settled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, ratio, require_equal_lengths
from svrhmc.core.recording import compute_array_once, compute_once, iterate_recorded
from svrhmc.diagnostics import by_columns, ess, some_columns, standard_error
from svrhmc.gradients import Full, Gradient
from svrhmc.sampling.certificate import Bias, Chance, unknown_bias

_TAIL = 3.0  # factor for skewed terms; found on three skewed posteriors, 60 to 200 seeds each
_RAW = 0.08  # share of the error of raw moments, for a skewness of 1; found on two skewed posteriors, 60 seeds each
_FEW, _MANY = 16.0, 64.0  # draws on which an error rests: with few it is that of the raw moments, with many its own
_LEAST = 0.01  # of the raw variance that a corrected variance has at least
_RIDGE = 1e-13  # against controls that are the same
_ROWS = 1 << 18  # numbers of draws that are summed at once
_PARTS = 4  # of a run, each with coefficients from the others, for the errors
_PRODUCTS = 1 << 36  # of numbers, up to which functions of the draws are corrected
_NO_GRADIENTS = "the budget ended before the gradients at the draws were found"
_NOT_FINITE = "the gradient of the log density is not finite at some draws; is a prior missing or too wide?"
MANY = 20  # draws for each coordinate from which on the coefficients of all coordinates are fitted jointly


def stein_bias(x: Array, h: Array, variances: Array) -> Bias:
    """The mean of these numbers over draws (chain, draw, dim) with h = Σ̂∇f; `variances` is the diagonal of Σ̂.

    With Σ̂ near the covariance of the draws they estimate a bias; with any other matrix they have mean 0 under π too,
    and measure a bias up to a factor only.
    """

    def terms_of_block(block: slice) -> list[Array]:
        values, preconditioned, variance = x[:, :, block], h[:, :, block], variances[block]
        deviation = values - values.mean(axis=(0, 1))
        terms = preconditioned / np.sqrt(variance), (deviation * preconditioned / variance - 1) / 2
        return [numbers for term in terms for numbers in (term.mean(axis=(0, 1)), standard_error(term))]

    columns = some_columns(x.shape[0] * x.shape[1], x.shape[2])
    pieces = [compute_once(partial(terms_of_block, block), *[(block.stop - block.start,)] * 4) for block in columns]
    return Bias(*(np.concatenate(numbers) for numbers in zip(*pieces, strict=True)))


@dataclass(frozen=True, eq=False)
class Correction:
    """Control variates with their coefficients: h = Σ̂∇f with Σ̂ fixed, whose diagonal is v.

    For every smooth φ, E φ hⱼ = E (Σ̂∇φ)ⱼ. So E h = 0, and with a = xⱼ − cⱼ for any fixed c, E a hⱼ = vⱼ and
    E a²hⱼ = 2 E a vⱼ. With c first the mean of x − B h, then x̄, the mean and the variance are those of

        x − B h − α₂(a hⱼ − vⱼ) − α₃(a²hⱼ − 2a vⱼ)        and        a² − β₁hⱼ − β₂(a hⱼ − vⱼ) − β₃(a²hⱼ − 2a vⱼ).

    Under π both are right for all coefficients, and nearly without noise where π is nearly Gaussian; the terms with a
    take off most of what is left where it is skewed.
    """

    slopes: Array  # Bᵀ, or its diagonal
    control: Array  # v
    centre: Array  # c of the mean
    alpha: Array  # (2, dim)
    mean: Array
    beta: Array  # (3, dim)
    variance: Array

    def means(self, x: Array, h: Array) -> Array:
        """x less its controls, for draws (…, dim)."""
        terms: Array = x - (h @ self.slopes if self.slopes.ndim == 2 else h * self.slopes)
        return _subtract_controls(_controls(x - self.centre, h, self.control)[1:], terms, self.alpha[None])

    def squares(self, x: Array, h: Array) -> Array:
        """(x − x̄)² less its controls."""
        a = x - self.mean
        return _subtract_controls(_controls(a, h, self.control), a * a, self.beta[None])

    def terms(self, x: Array, h: Array) -> tuple[Array, Array]:
        """The terms whose averages are the mean and the variance."""
        return self.means(x, h), self.squares(x, h)


@dataclass(frozen=True, eq=False)
class Location:
    """Mean and standard deviation of each coordinate."""

    mean: Array
    sd: Array

    def require_sound(self) -> None:
        """Refuse arrays of unequal shapes."""
        require_equal_lengths(self)


@dataclass(frozen=True, eq=False)
class Corrected:
    """Means and standard deviations freed of what Stein's identities explain, with their standard errors."""

    mean: Array
    sd: Array
    mean_error: Array
    sd_error: Array

    def require_sound(self) -> None:
        """Refuse arrays of unequal shapes."""
        require_equal_lengths(self)

    def missing(self, share: Array) -> Corrected:
        """The same if this share of the variance lies beyond all draws: an sd may be too small by half of it."""
        return replace(self, sd_error=np.hypot(self.sd_error, self.sd * share / 2)) if share.any() else self


@dataclass(frozen=True, eq=False)
class DrawMoments:
    """Corrected moments of draws.

    z: the draws (chain, draw, dim) in whitened variables. gradient: by which ∇f was estimated at them. control: control
    variates with their coefficients. stein: what Stein's identities say of the draws. chance: Monte Carlo errors.
    doubt: why the moments are not to be used, if a budget ended before the gradients were computed. corrected_at: the
    same draws in the user's variables, and WWᵀ∇f there.
    """

    z: Array
    gradient: Gradient
    control: Correction | None
    corrected: Corrected
    stein: Bias
    chance: Chance
    doubt: str = ""
    corrected_at: tuple[Array, Array] | None = None

    @classmethod
    def of(
        cls,
        z: Array,
        x: Array,
        gradient: Gradient,
        preconditioned: Array,
        variances: Array,
        effective: Array,
        one_mode: bool,
    ) -> DrawMoments:
        """From WWᵀ∇f (`preconditioned`) at some draws, z in whitened variables and x in the user's.

        variances: the diagonal of WWᵀ. effective: effective draws, of all that were made. one_mode: whether the
        posterior is known to have one mode. Without gradients that are finite at all draws, as where chains of an
        improper posterior ran off, the moments are those of the draws.
        """
        if not np.isfinite(preconditioned).all():
            return cls.uncorrected(z, x, effective, _NOT_FINITE)
        control, corrected = correction(x, preconditioned, variances, one_mode)
        stein = stein_bias(x, preconditioned, variances)
        errors = ratio(corrected.mean_error, corrected.sd), ratio(corrected.sd_error, corrected.sd)
        chance = Chance(*errors, float(effective.min()))
        return cls(z, gradient, control, corrected, stein, chance, corrected_at=(x, preconditioned))

    @classmethod
    def uncorrected(cls, z: Array, x: Array, effective: Array, doubt: str = _NO_GRADIENTS) -> DrawMoments:
        """The moments of the draws themselves, where there are no gradients, for which the doubt is the reason."""
        mean, sd = x.mean(axis=(0, 1)), x.std(axis=(0, 1), ddof=1)
        mean_error, sd_error = error_of_mean(x), error_of_mean((x - mean) ** 2) / (2 * sd)
        chance = Chance(mean_error / sd, sd_error / sd, float(effective.min()))
        corrected = Corrected(mean, sd, mean_error, sd_error)
        return cls(z, Full(), None, corrected, unknown_bias(x.shape[2]), chance, doubt)


def correction(x: Array, h: Array, control: Array, one_mode: bool = True) -> tuple[Correction, Corrected]:
    """Coefficients by least squares from draws (chain, draw, dim), and the moments with their errors.

    B = Cov(x, h)Cov(h, h)⁻¹ where draws are many (else its diagonal, one by one), in units of each coordinate.

    The errors are those of terms with coefficients fitted to the other parts of the run, as coefficients fitted to a
    visit of a tail explain that visit too well. Coefficients B for dim coordinates from N effective draws make
    residuals smaller, and the mean's error larger, by dim/2N each. And the remainder of a skewed coordinate depends on
    few visits of its tail: a part of the error of the raw moments, in proportion to the skewness beyond chance, is
    added.

    one_mode: whether the posterior is known to have one mode. If not, a shoulder of it may hold a hundredth of the mass
    and be visited once in a thousand draws, for long. The remainder after the correction is then large in these visits
    alone, and its mean depends on their number. With r the remainder less its mean, its variance rests on
    m = (Σr²)²/Σr⁴ draws (N/3 of N Gaussian ones): the share 16/m − 16/64 of the error of the raw moments, from none of
    it at m = 64 to all at 13, is added.
    """
    dim, rows = x.shape[2], x.shape[0] * x.shape[1]
    flat_x, flat_h = np.ascontiguousarray(x).reshape(-1, dim), np.ascontiguousarray(h).reshape(-1, dim)
    slopes: Array = compute_array_once(
        lambda: _control_slopes(flat_x, flat_h, np.sqrt(control)), (dim, dim) if len(flat_x) >= MANY * dim else (dim,)
    )

    def corrected_block(block: slice) -> _Block:
        values, preconditioned = flat_x[:, block], flat_h[:, block]
        first = values - (flat_h @ slopes[:, block] if slopes.ndim == 2 else preconditioned * slopes[block])
        jointly_fitted = dim if slopes.ndim == 2 else 0
        return _correct_block(
            values,
            first,
            _LinearFunction(values, preconditioned, control[block]),
            x.shape[:2],
            jointly_fitted,
            one_mode,
        )

    pieces = [_Block.compute(corrected_block, block) for block in some_columns(rows, dim)]
    centre, mean, variance = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in _Block._fields[:3])
    alpha, beta = (np.concatenate([getattr(piece, name) for piece in pieces], axis=1) for name in ("alpha", "beta"))
    return Correction(slopes, control, centre, alpha, mean, beta, variance), _join_blocks(pieces)


def corrected_functions(
    g: Array, x: Array, h: Array, pull: Callable[[Array], Array], one_mode: bool = True
) -> Corrected | None:
    """Corrected moments of functions g (chain, draw, function) of the draws; pull(w) = Wᵀw, where Σ̂ = WWᵀ.

    E hⱼ = 0 holds whatever is averaged with it, and with u = c + wᵀx the linear function that is nearest to g, by least
    squares, E (u − c)wᵀh = wᵀΣ̂w = |Wᵀw|²: the controls of g are those of the coordinate u. A g that is a coordinate has
    the moments of that coordinate. With few draws, u is the best multiple of one coordinate. None if all that would
    take long; the moments of the draws are right too.
    """
    dim, rows, count = x.shape[2], x.shape[0] * x.shape[1], g.shape[2]
    if rows * dim * count > _PRODUCTS:
        return None
    flat_g, flat_x, flat_h = (np.ascontiguousarray(values).reshape(rows, -1) for values in (g, x, h))
    away_x, away_h = flat_x - flat_x.mean(axis=0), flat_h - flat_h.mean(axis=0)
    jointly = rows >= MANY * dim

    def corrected_block(block: slice) -> _Block:
        values = flat_g[:, block]
        deviation = values - values.mean(axis=0)
        w = _least_squares(away_x, deviation) if jointly else _best_coordinate(away_x, deviation)
        nearest = _LinearFunction(
            values.mean(axis=0) + away_x @ w, flat_h @ w, (pull(np.ascontiguousarray(w.T)) ** 2).sum(axis=1)
        )
        if jointly:
            first = values - flat_h @ _least_squares(away_h, deviation)
        else:
            control = nearest.preconditioned - nearest.preconditioned.mean(axis=0)
            first = values - nearest.preconditioned * (
                (control * deviation).sum(axis=0) / np.maximum((control * control).sum(axis=0), 1e-300)
            )
        return _correct_block(values, first, nearest, x.shape[:2], dim if jointly else 0, one_mode)

    return _join_blocks([_Block.compute(corrected_block, block) for block in some_columns(rows, count)])


def _controls(a: Array, h: Array, v: Array) -> tuple[Array, Array, Array]:
    """h, a h − v and a²h − 2a v: of mean 0 under π."""
    ah = a * h
    return h, ah - v, a * (ah - 2 * v)


class _LinearFunction(NamedTuple):
    """The linear function u = c + wᵀx nearest to a quantity, with its controls: u, wᵀh and |Wᵀw|²."""

    u: Array
    preconditioned: Array
    control: Array


class _Block(NamedTuple):
    """Corrected moments and coefficients of some coordinates."""

    centre: Array
    mean: Array
    variance: Array
    sd: Array
    mean_error: Array
    sd_error: Array
    alpha: Array
    beta: Array

    @staticmethod
    def compute(make: Callable[[slice], _Block], block: slice) -> _Block:
        """Computed once, even if the process is killed and continued."""
        count = block.stop - block.start
        return _Block(*compute_once(partial(make, block), *[(count,)] * 6, (2, count), (3, count)))


def _control_slopes(x: Array, h: Array, spread: Array) -> Array:
    """Bᵀ, or its diagonal, from sums over some draws at a time."""
    dim, mean_x, mean_h = x.shape[1], x.mean(axis=0), h.mean(axis=0)
    jointly = len(x) >= MANY * dim
    gram, cross = (np.zeros((dim, dim) if jointly else dim) for _ in range(2))
    size = max(1, _ROWS // dim)

    def add(number: int, sums: tuple[Array, ...]) -> tuple[object, ...]:
        (gram, cross), part = sums, slice(number * size, (number + 1) * size)
        x_deviation, h_deviation = (x[part] - mean_x) / spread, (h[part] - mean_h) / spread
        gram += h_deviation.T @ h_deviation if jointly else (h_deviation**2).sum(axis=0)
        cross += h_deviation.T @ x_deviation if jointly else (h_deviation * x_deviation).sum(axis=0)
        return gram, cross, False

    gram, cross = iterate_recorded(add, (gram, cross), -(-len(x) // size))
    if not jointly:
        return np.asarray(cross / gram)
    return np.asarray(np.linalg.lstsq(gram, cross, rcond=None)[0] * spread / spread[:, None], np.float64)


def _least_squares(X: Array, Y: Array) -> Array:
    """Coefficients (column of X, column of Y) of least squares, for columns less their means."""
    units = np.sqrt(np.maximum(np.einsum("nj,nj->j", X, X), 1e-300))
    gram, right = X.T @ X / units / units[:, None], X.T @ Y / units[:, None]
    return np.asarray(np.linalg.lstsq(gram, right, rcond=None)[0] / units[:, None], np.float64)


def _best_coordinate(X: Array, Y: Array) -> Array:
    """The same with only one column of X for each of Y, that with the largest correlation."""
    squares = np.maximum(np.einsum("nj,nj->j", X, X), 1e-300)
    right = X.T @ Y
    best, coefficients = np.argmax(np.abs(right) / np.sqrt(squares)[:, None], axis=0), np.zeros_like(right)
    columns = np.arange(right.shape[1])
    coefficients[best, columns] = right[best, columns] / squares[best]
    return coefficients


def _join_blocks(pieces: list[_Block]) -> Corrected:
    names = ("mean", "sd", "mean_error", "sd_error")
    return Corrected(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in names))


def _correct_block(
    values: Array, first: Array, nearest: _LinearFunction, chains: tuple[int, ...], jointly_fitted: int, one_mode: bool
) -> _Block:
    """Corrected moments of some quantities, `values` (draw, quantity); `first` are these less their multiples of h, of
    which `jointly_fitted` were fitted jointly.
    """
    shape, centre = (*chains, values.shape[1]), first.mean(axis=0)
    second_controls = _controls(nearest.u - centre, nearest.preconditioned, nearest.control)[
        1:
    ]  # as h itself is taken off already
    alpha, by_part = _control_coefficients(second_controls, first)
    mean = _subtract_controls(second_controls, first, alpha[None]).mean(axis=0)
    remainder = _subtract_controls(second_controls, first, by_part)
    mean_error, mean_share = error_of_mean(remainder.reshape(shape)), _excess_on_few_draws(remainder)
    del second_controls, first

    deviation = values - mean
    squares, controls = deviation * deviation, _controls(nearest.u - mean, nearest.preconditioned, nearest.control)
    beta, by_part = _control_coefficients(controls, squares)
    variance, raw = _subtract_controls(controls, squares, beta[None]).mean(axis=0), squares.mean(axis=0)
    enough = variance > _LEAST * raw  # few draws can leave less than nothing
    remainder = _subtract_controls(controls, squares, np.where(enough, by_part, 0.0))
    square_error, square_share = error_of_mean(remainder.reshape(shape)), _excess_on_few_draws(remainder)
    beta, variance = np.where(enough, beta, 0.0), np.where(enough, variance, raw)
    del controls

    sd, x = np.sqrt(variance), values.reshape(shape)
    effective = ess(x)
    mean_error = (1 + jointly_fitted / effective) * mean_error
    skewed = _RAW * np.maximum(0.0, _skewness(values - values.mean(axis=0)) - 3 * np.sqrt(6 / effective))
    if one_mode:
        mean_share = square_share = skewed
    else:
        mean_share, square_share = np.maximum(skewed, mean_share), np.maximum(skewed, square_share)
    if mean_share.any() or square_share.any():  # of the errors of the raw moments
        mean_error = np.hypot(mean_error, mean_share * error_of_mean(x))
        square_error = np.hypot(square_error, square_share * error_of_mean(squares.reshape(shape)))
    return _Block(centre, mean, variance, sd, mean_error, ratio(square_error, 2 * sd), alpha, beta)


def _control_coefficients(controls: tuple[Array, ...], values: Array) -> tuple[Array, Array]:
    """Coefficients (control, coordinate) of the least squares of values on the controls; and for each part of the run
    those fitted to the other parts, (part, control, coordinate).
    """
    F = [control - control.mean(axis=0) for control in controls]
    units = [np.sqrt(np.maximum(np.einsum("nj,nj->j", f, f) / len(f), 1e-300)) for f in F]
    deviation, count = values - values.mean(axis=0), len(controls)
    gram = np.empty((_PARTS, values.shape[1], count, count))
    right = np.empty((_PARTS, values.shape[1], count, 1))
    for part, part_rows in enumerate(_parts_of_run(len(values))):
        for i in range(count):
            right[part, :, i, 0] = np.einsum("nj,nj->j", F[i][part_rows], deviation[part_rows]) / units[i]
            for k in range(i + 1):
                product = np.einsum("nj,nj->j", F[i][part_rows], F[k][part_rows]) / (units[i] * units[k])
                gram[part, :, i, k] = gram[part, :, k, i] = product
    ridge = _RIDGE * len(values) * np.eye(count)
    rows = np.stack(units)

    def solved(G: Array, r: Array) -> Array:
        return np.asarray(np.linalg.solve(G + ridge, r)[..., 0].swapaxes(-1, -2) / rows, np.float64)

    whole = (gram.sum(axis=0), right.sum(axis=0))
    return solved(*whole), solved(whole[0] - gram, whole[1] - right)


def _subtract_controls(controls: tuple[Array, ...], values: Array, coefficients: Array) -> Array:
    """The values less their controls, with coefficients (part, control, coordinate) for each part of the run."""
    terms = values.copy()
    blocks = _parts_of_run(len(values)) if len(coefficients) > 1 else [slice(None)]
    for part_rows, coefficients_of_part in zip(blocks, coefficients, strict=True):
        for beta, control in zip(coefficients_of_part, controls, strict=True):
            terms[part_rows] -= beta * control[part_rows]
    return terms


def _parts_of_run(count: int) -> list[slice]:
    """The parts of a run with `count` draws, chain after chain."""
    ends = np.linspace(0, count, _PARTS + 1).astype(int)
    return [slice(low, high) for low, high in pairwise(ends)]


def _skewness(deviation: Array) -> Array:
    """|E a³|/(E a²)^{3/2} of each quantity, for deviations a (draw, quantity) from the mean."""
    squares = deviation * deviation
    third, second = np.einsum("nj,nj->j", squares, deviation) / len(deviation), squares.mean(axis=0)
    return np.asarray(np.abs(third) / np.maximum(second * np.sqrt(second), 1e-300), np.float64)


def _excess_on_few_draws(remainder: Array) -> Array:
    """16/m − 16/64 of each quantity, from 0 to 1, for the remainder after a correction (draw, quantity)."""
    squares = (remainder - remainder.mean(axis=0)) ** 2
    fourth, second = np.einsum("nj,nj->j", squares, squares), squares.sum(axis=0)
    return np.asarray(np.clip(_FEW * fourth / np.maximum(second**2, 1e-300) - _FEW / _MANY, 0.0, 1.0), np.float64)


@by_columns
def error_of_mean(terms: Array) -> Array:
    """The standard error of the mean of each quantity, enlarged if it depends on few visits of a tail.

    Where the terms are skewed and correlated, a run that has seen little of the tail has too small a mean and too
    small an error: with g their skewness and τ draws to an effective one, the error is taken 1 + 3|g|(1 − 1/τ)/√ess
    times as large. For independent draws the factor is 1.
    """
    effective = ess(terms)
    flat = terms.reshape(-1, terms.shape[2])
    deviation = flat - flat.mean(axis=0)
    spread = np.sqrt(np.einsum("nj,nj->j", deviation, deviation) / len(deviation))
    sticky = np.maximum(0.0, 1 - effective / len(flat))
    tail = _TAIL * _skewness(deviation) * sticky / np.sqrt(effective)
    return np.asarray(spread / np.sqrt(effective) * (1 + tail), np.float64)
