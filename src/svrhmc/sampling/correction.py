"""Moments by control variates that every posterior has.

Under π, for every smooth f (integration by parts),

    E ∇f(x) = 0,            E (x − x̄)∇f(x)ᵀ = I.

With C the covariance of the draws and h = C∇f, each draw gives for each coordinate j two numbers of known mean,

    hⱼ/σⱼ                      whose mean is, to first order, the bias of the mean in units of σⱼ, and
    ½((xⱼ − x̄ⱼ)hⱼ/σⱼ² − 1)      whose mean is, to first order, the relative bias of the standard deviation

where π is near to Gaussian. ∇f may be an unbiased estimate whose noise is independent of the draw. As control variates
they free the moments of nearly all Monte Carlo error, and of most of the bias of a sampler that has one. A sampler that
leaves π invariant must give them the mean 0: where they have another, its chains have not settled."""

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
from svrhmc.sampling.drawing import Drawn

_TAIL = 3.0  # of the factor for skewed terms; found on three skewed posteriors, 60 to 200 seeds each
_RAW = 0.08  # of the error of raw moments, for a skewness of 1; found on two skewed posteriors, 60 seeds each
_FEW, _MANY = 16.0, 64.0  # draws on which an error rests: at a few it is that of the raw moments, at many its own
_LEAST = 0.01  # of the raw variance that a corrected one has
_RIDGE = 1e-13  # against controls that are the same
_ROWS = 1 << 18  # numbers of draws looked at in one piece
_PARTS = 4  # of a run, each with coefficients from the others, for the errors
_PRODUCTS = 1 << 36  # of numbers, up to which functions of the draws are corrected
_NO_GRADIENTS = "the budget ended before the gradients at the draws were found"
MANY = 20  # draws of each coordinate from which coefficients of all of them are found together


def stein_bias(x: Array, h: Array, variances: Array) -> Bias:
    """From draws (chain, draw, dim) and h = Σ̂∇f at them, with `variances` the diagonal of Σ̂.

    Σ̂ is the covariance of the draws where they are many; another matrix near it gives numbers of mean 0 under π too,
    which measure a bias in proportion only.
    """

    def of(some: slice) -> list[Array]:
        here, pulled, variance = x[:, :, some], h[:, :, some], variances[some]
        away = here - here.mean(axis=(0, 1))
        terms = pulled / np.sqrt(variance), (away * pulled / variance - 1) / 2
        return [numbers for values in terms for numbers in (values.mean(axis=(0, 1)), standard_error(values))]

    columns = some_columns(x.shape[0] * x.shape[1], x.shape[2])
    pieces = [compute_once(partial(of, some), *[(some.stop - some.start,)] * 4) for some in columns]
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
        """x with its controls taken off, for draws (…, dim)."""
        terms: Array = x - (h @ self.slopes if self.slopes.ndim == 2 else h * self.slopes)
        return _without(_controls(x - self.centre, h, self.control)[1:], terms, self.alpha[None])

    def squares(self, x: Array, h: Array) -> Array:
        """(x − x̄)² with its controls taken off."""
        a = x - self.mean
        return _without(_controls(a, h, self.control), a * a, self.beta[None])

    def terms(self, x: Array, h: Array) -> tuple[Array, Array]:
        """Those of the mean and of the variance."""
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
        """The same where such a share of a variance lies beyond all draws, by half of which an sd may be too small."""
        return replace(self, sd_error=np.hypot(self.sd_error, self.sd * share / 2)) if share.any() else self


@dataclass(frozen=True, eq=False)
class DrawMoments:
    """Corrected moments, with what they rest on: states (chain, draw, dim), their gradient, coefficients, errors.

    doubt: why they are not to be used, where a budget ended before they were found.
    corrected_at: the same states in the user's variables, and WWᵀ∇f there.
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
        cls, few: Drawn, gradient: Gradient, pulled: Array, variances: Array, effective: Array, one_mode: bool
    ) -> DrawMoments:
        """From WWᵀ∇f at some draws, where all of them are worth so many; one_mode: whether it is known that there is
        one.
        """
        control, corrected = correction(few.x, pulled, variances, one_mode)
        stein = stein_bias(few.x, pulled, variances)
        errors = ratio(corrected.mean_error, corrected.sd), ratio(corrected.sd_error, corrected.sd)
        chance = Chance(*errors, float(effective.min()))
        return cls(few.z, gradient, control, corrected, stein, chance, corrected_at=(few.x, pulled))

    @classmethod
    def uncorrected(cls, drawn: Drawn) -> DrawMoments:
        """Those of the draws, where nothing but them is there."""
        x = drawn.x
        mean, sd = x.mean(axis=(0, 1)), x.std(axis=(0, 1), ddof=1)
        mean_error, sd_error = error_of_mean(x), error_of_mean((x - mean) ** 2) / (2 * sd)
        chance = Chance(mean_error / sd, sd_error / sd, float(drawn.effective.min()))
        corrected = Corrected(mean, sd, mean_error, sd_error)
        return cls(drawn.z, Full(), None, corrected, unknown_bias(x.shape[2]), chance, _NO_GRADIENTS)


def correction(x: Array, h: Array, control: Array, one_mode: bool = True) -> tuple[Correction, Corrected]:
    """Coefficients by least squares from draws (chain, draw, dim), and the moments with their errors.

    B = Cov(x, h)Cov(h, h)⁻¹ where draws are many (else its diagonal, one by one), in units of each coordinate.

    The errors are those of terms with coefficients from the other parts of the run: those from a visit of a tail
    explain that visit too well. Coefficients B for dim coordinates from N effective draws make residuals smaller, and
    the mean's error larger, by dim/2N each. And what is left by the correction of a skewed coordinate hangs on few
    visits of its tail: a part of the error of the raw moments, in proportion to the skewness beyond chance, is added.

    one_mode: whether the posterior is known to have one. Where it is not, a shoulder of it may hold a hundredth of the
    mass and be visited once in a thousand draws, for long. What is left by the correction is then large in these visits
    alone, and how large its mean is hangs on their number. With r what is left, less its mean, its variance rests on
    m = (Σr²)²/Σr⁴ draws (N/3 of N Gaussian ones): the share 16/m − 16/64 of the error of the raw moments, from none of
    it at m = 64 to all at 13, is added.
    """
    dim, rows = x.shape[2], x.shape[0] * x.shape[1]
    flat_x, flat_h = np.ascontiguousarray(x).reshape(-1, dim), np.ascontiguousarray(h).reshape(-1, dim)
    slopes: Array = compute_array_once(
        lambda: _slopes(flat_x, flat_h, np.sqrt(control)), (dim, dim) if len(flat_x) >= MANY * dim else (dim,)
    )

    def of(some: slice) -> _Piece:
        here, pulled = flat_x[:, some], flat_h[:, some]
        first = here - (flat_h @ slopes[:, some] if slopes.ndim == 2 else pulled * slopes[some])
        together = dim if slopes.ndim == 2 else 0
        return _corrected(here, first, _Near(here, pulled, control[some]), x.shape[:2], together, one_mode)

    pieces = [_Piece.recorded(of, some) for some in some_columns(rows, dim)]
    centre, mean, variance = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in _Piece._fields[:3])
    alpha, beta = (np.concatenate([getattr(piece, name) for piece in pieces], axis=1) for name in ("alpha", "beta"))
    return Correction(slopes, control, centre, alpha, mean, beta, variance), _joined(pieces)


def corrected_functions(
    g: Array, x: Array, h: Array, pull: Callable[[Array], Array], one_mode: bool = True
) -> Corrected | None:
    """The same for functions g (chain, draw, function) of the draws; pull(w) = Wᵀw, where Σ̂ = WWᵀ.

    E hⱼ = 0 holds whatever is averaged with it, and with u = c + wᵀx the linear function that is nearest to g, by least
    squares, E (u − c)wᵀh = wᵀΣ̂w = |Wᵀw|²: the controls of g are those of the coordinate u. A g that is a coordinate has
    the moments of that coordinate. Where draws are few, u is the best multiple of one coordinate. None where all that
    would be long; the moments of the draws are right too.
    """
    dim, rows, count = x.shape[2], x.shape[0] * x.shape[1], g.shape[2]
    if rows * dim * count > _PRODUCTS:
        return None
    flat_g, flat_x, flat_h = (np.ascontiguousarray(values).reshape(rows, -1) for values in (g, x, h))
    away_x, away_h = flat_x - flat_x.mean(axis=0), flat_h - flat_h.mean(axis=0)
    many = rows >= MANY * dim

    def of(some: slice) -> _Piece:
        here = flat_g[:, some]
        away = here - here.mean(axis=0)
        w = _least_squares(away_x, away) if many else _best_coordinate(away_x, away)
        near = _Near(here.mean(axis=0) + away_x @ w, flat_h @ w, (pull(np.ascontiguousarray(w.T)) ** 2).sum(axis=1))
        if many:
            first = here - flat_h @ _least_squares(away_h, away)
        else:
            own = near.pulled - near.pulled.mean(axis=0)
            first = here - near.pulled * ((own * away).sum(axis=0) / np.maximum((own * own).sum(axis=0), 1e-300))
        return _corrected(here, first, near, x.shape[:2], dim if many else 0, one_mode)

    return _joined([_Piece.recorded(of, some) for some in some_columns(rows, count)])


def _controls(a: Array, h: Array, v: Array) -> tuple[Array, Array, Array]:
    """h, a h − v and a²h − 2a v: of mean 0 under π."""
    ah = a * h
    return h, ah - v, a * (ah - 2 * v)


class _Near(NamedTuple):
    """A coordinate with the controls of something that is near to it: u, wᵀh and |Wᵀw|²."""

    u: Array
    pulled: Array
    control: Array


class _Piece(NamedTuple):
    """What is found for some coordinates."""

    centre: Array
    mean: Array
    variance: Array
    sd: Array
    mean_error: Array
    sd_error: Array
    alpha: Array
    beta: Array

    @staticmethod
    def recorded(of: Callable[[slice], _Piece], some: slice) -> _Piece:
        """Found once, whatever kills there are."""
        count = some.stop - some.start
        return _Piece(*compute_once(partial(of, some), *[(count,)] * 6, (2, count), (3, count)))


def _slopes(x: Array, h: Array, spread: Array) -> Array:
    """Bᵀ, or its diagonal, from sums over some draws at a time."""
    dim, middle_x, middle_h = x.shape[1], x.mean(axis=0), h.mean(axis=0)
    many = len(x) >= MANY * dim
    own, other = (np.zeros((dim, dim) if many else dim) for _ in range(2))
    size = max(1, _ROWS // dim)

    def add(number: int, sums: tuple[Array, ...]) -> tuple[object, ...]:
        (own, other), here = sums, slice(number * size, (number + 1) * size)
        away_x, away_h = (x[here] - middle_x) / spread, (h[here] - middle_h) / spread
        own += away_h.T @ away_h if many else (away_h**2).sum(axis=0)
        other += away_h.T @ away_x if many else (away_h * away_x).sum(axis=0)
        return own, other, False

    own, other = iterate_recorded(add, (own, other), -(-len(x) // size))
    if not many:
        return np.asarray(other / own)
    return np.asarray(np.linalg.lstsq(own, other, rcond=None)[0] * spread / spread[:, None], np.float64)


def _least_squares(X: Array, Y: Array) -> Array:
    """Coefficients (column of X, column of Y), for columns about their means."""
    units = np.sqrt(np.maximum(np.einsum("nj,nj->j", X, X), 1e-300))
    gram, right = X.T @ X / units / units[:, None], X.T @ Y / units[:, None]
    return np.asarray(np.linalg.lstsq(gram, right, rcond=None)[0] / units[:, None], np.float64)


def _best_coordinate(X: Array, Y: Array) -> Array:
    """The same with one column of X for each of Y, that with the largest correlation."""
    squares = np.maximum(np.einsum("nj,nj->j", X, X), 1e-300)
    right = X.T @ Y
    which, coefficients = np.argmax(np.abs(right) / np.sqrt(squares)[:, None], axis=0), np.zeros_like(right)
    columns = np.arange(right.shape[1])
    coefficients[which, columns] = right[which, columns] / squares[which]
    return coefficients


def _joined(pieces: list[_Piece]) -> Corrected:
    names = ("mean", "sd", "mean_error", "sd_error")
    return Corrected(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in names))


def _corrected(
    wanted: Array, first: Array, near: _Near, chains: tuple[int, ...], together: int, one_mode: bool
) -> _Piece:
    """Moments of some quantities (draw, quantity), `first` being these less their multiples of h; `together`: how many
    multiples were found together.
    """
    shape, centre = (*chains, wanted.shape[1]), first.mean(axis=0)
    two = _controls(near.u - centre, near.pulled, near.control)[1:]  # as h itself is taken off already
    alpha, by_part = _fits(two, first)
    mean = _without(two, first, alpha[None]).mean(axis=0)
    left = _without(two, first, by_part)
    mean_error, mean_share = error_of_mean(left.reshape(shape)), _on_few(left)
    del two, first

    away = wanted - mean
    squares, controls = away * away, _controls(near.u - mean, near.pulled, near.control)
    beta, by_part = _fits(controls, squares)
    variance, raw = _without(controls, squares, beta[None]).mean(axis=0), squares.mean(axis=0)
    enough = variance > _LEAST * raw  # few draws can leave less than nothing
    left = _without(controls, squares, np.where(enough, by_part, 0.0))
    square_error, square_share = error_of_mean(left.reshape(shape)), _on_few(left)
    beta, variance = np.where(enough, beta, 0.0), np.where(enough, variance, raw)
    del controls

    sd, x = np.sqrt(variance), wanted.reshape(shape)
    effective = ess(x)
    mean_error = (1 + together / effective) * mean_error
    skewed = _RAW * np.maximum(0.0, _skewness(wanted - wanted.mean(axis=0)) - 3 * np.sqrt(6 / effective))
    if one_mode:
        mean_share = square_share = skewed
    else:
        mean_share, square_share = np.maximum(skewed, mean_share), np.maximum(skewed, square_share)
    if mean_share.any() or square_share.any():  # of the errors of the raw moments
        mean_error = np.hypot(mean_error, mean_share * error_of_mean(x))
        square_error = np.hypot(square_error, square_share * error_of_mean(squares.reshape(shape)))
    return _Piece(centre, mean, variance, sd, mean_error, ratio(square_error, 2 * sd), alpha, beta)


def _fits(controls: tuple[Array, ...], wanted: Array) -> tuple[Array, Array]:
    """Coefficients (control, coordinate) of the least squares of what is wanted on the controls, each in units of its
    spread; and the same for each part of the run from the others, (part, control, coordinate).
    """
    F = [control - control.mean(axis=0) for control in controls]
    units = [np.sqrt(np.maximum(np.einsum("nj,nj->j", f, f) / len(f), 1e-300)) for f in F]
    away, count = wanted - wanted.mean(axis=0), len(controls)
    gram = np.empty((_PARTS, wanted.shape[1], count, count))
    right = np.empty((_PARTS, wanted.shape[1], count, 1))
    for part, here in enumerate(_blocks(len(wanted))):
        for i in range(count):
            right[part, :, i, 0] = np.einsum("nj,nj->j", F[i][here], away[here]) / units[i]
            for k in range(i + 1):
                product = np.einsum("nj,nj->j", F[i][here], F[k][here]) / (units[i] * units[k])
                gram[part, :, i, k] = gram[part, :, k, i] = product
    ridge = _RIDGE * len(wanted) * np.eye(count)
    rows = np.stack(units)

    def solved(G: Array, r: Array) -> Array:
        return np.asarray(np.linalg.solve(G + ridge, r)[..., 0].swapaxes(-1, -2) / rows, np.float64)

    whole = (gram.sum(axis=0), right.sum(axis=0))
    return solved(*whole), solved(whole[0] - gram, whole[1] - right)


def _without(controls: tuple[Array, ...], wanted: Array, coefficients: Array) -> Array:
    """What is wanted less its controls, with coefficients (part, control, coordinate) for each part of the run."""
    terms = wanted.copy()
    blocks = _blocks(len(wanted)) if len(coefficients) > 1 else [slice(None)]
    for here, of_part in zip(blocks, coefficients, strict=True):
        for beta, control in zip(of_part, controls, strict=True):
            terms[here] -= beta * control[here]
    return terms


def _blocks(count: int) -> list[slice]:
    """The parts of a run of so many draws, chain after chain."""
    ends = np.linspace(0, count, _PARTS + 1).astype(int)
    return [slice(low, high) for low, high in pairwise(ends)]


def _skewness(away: Array) -> Array:
    """|E a³|/(E a²)^{3/2} of each quantity, for a (draw, quantity) about its mean."""
    squares = away * away
    third, second = np.einsum("nj,nj->j", squares, away) / len(away), squares.mean(axis=0)
    return np.asarray(np.abs(third) / np.maximum(second * np.sqrt(second), 1e-300), np.float64)


def _on_few(left: Array) -> Array:
    """16/m − 16/64 of each quantity, from 0 to 1, for what a correction leaves (draw, quantity)."""
    squares = (left - left.mean(axis=0)) ** 2
    fourth, second = np.einsum("nj,nj->j", squares, squares), squares.sum(axis=0)
    return np.asarray(np.clip(_FEW * fourth / np.maximum(second**2, 1e-300) - _FEW / _MANY, 0.0, 1.0), np.float64)


@by_columns
def error_of_mean(terms: Array) -> Array:
    """The standard error of the mean of each quantity, larger where few visits of a tail make it.

    Where the terms are skewed and correlated, a run that has seen little of the tail has too small a mean and too
    small an error: with g their skewness and τ draws to an effective one, the error is taken 1 + 3|g|(1 − 1/τ)/√ess
    times as large. For independent draws the factor is 1.
    """
    effective = ess(terms)
    flat = terms.reshape(-1, terms.shape[2])
    away = flat - flat.mean(axis=0)
    spread = np.sqrt(np.einsum("nj,nj->j", away, away) / len(away))
    sticky = np.maximum(0.0, 1 - effective / len(flat))
    tail = _TAIL * _skewness(away) * sticky / np.sqrt(effective)
    return np.asarray(spread / np.sqrt(effective) * (1 + tail), np.float64)
