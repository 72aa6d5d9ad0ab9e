"""The mode of a model with a linear predictor, by Newton's method.

On the Hessian up to 2000 columns, by conjugate gradients beyond. It starts at 0, or where the model guesses, if f is
lower there; a step that overflows is halved like any other that does not help. Where rows are many (n > 400·dim) it
starts from the mode of an eighth of them, found in the same way, and with their Hessian. A Hessian serves as long as
each step with it leaves less than a twentieth of the Newton decrement √(∇fᵀH⁻¹∇f), the distance to go in posterior
standard deviations, or as a few steps more like the last are the end: a gradient costs far less than a Hessian. The
end is a decrement below 1e-9, or one that rounding no longer lets fall.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import CHOLESKY, done, look, piece
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.families.base import Loss
from svrhmc.targets.improper import least_eigenvalue, nearly_dependent, separable
from svrhmc.targets.rows import Rows

DENSE_DIM = 2000  # up to this many columns the dim × dim Hessian is formed; beyond it only its products are
TOLERANCE = 1e-9  # of the Newton decrement: the distance to the mode in posterior standard deviations
_NEWTON_STEPS = 100
_ROUNDING = 1e-14  # of f: half the squared decrement below this is lost in it
_FLOOR = 1e-10  # of the squared decrement: below it a step that does not help is rounding
_DAMPED_STEPS, _MOST_DAMPING = 500, 1e15
_LARGEST = float(np.finfo(np.float64).max)
_TALL = 400  # from so many rows a column on, Newton starts at the mode of some of them:
_SHARE, _SOME, _MOST_ENTRIES = 8, 100, 1 << 26  # an eighth, but no more than so many a column or so many entries
_PATIENCE = 6  # steps that may be left where a Hessian is kept although they are short ones
_LEAST = 1e-18  # of a step: a shorter one changes nothing
_DIGITS = 64  # times float64's rounding, in a gradient
_ROUGH = 0.3  # the tolerance there
_USUAL = 8  # rounds of a search
_VANISHED = 1e-10  # of the curvature at 0: rare events keep 1e-4 of it and more


class Smooth(Protocol):
    """What the search asks of a model."""

    n: int
    dim: int
    rows: Rows
    loss: Loss
    prior_strength: Array
    prior_precision: Array
    prior_mean: Array

    @property
    def convex_components(self) -> bool:
        """Whether f is known to be convex, and each component with it."""

    def potentials(self, x: Array) -> Array:
        """f at each of some points."""

    def gradients(self, x: Array) -> Array:
        """∇f at each of some points."""

    def gradient(self, x: Array) -> Array:
        """∇f(x); an error where float64 does not hold it."""

    def hessian(self, x: Array) -> Array:
        """∇²f(x)."""

    def hessian_product(self, x: Array, direction: Array) -> Array:
        """∇²f(x)·direction."""

    def row_curvatures(self, x: Array) -> Array:
        """ℓ″ of every row."""

    def operator(self, curvature: Array, bend: Array) -> Any:
        """The Hessian with these curvatures of rows and prior as scipy's linear operator."""

    def prior_curvature(self, x: Array) -> Array:
        """That of the prior."""

    def preconditioner(self, curvature: Array, bend: Array) -> Any:
        """Near the inverse of that, where it is cheap; else None."""

    def runs_off(self, x: Array, direction: Array) -> bool:
        """Whether no row's loss grows along a direction."""

    def share(self, chosen: Indices, prior_precision: Array) -> Smooth:
        """The model of some of its rows, with another prior."""

    def guess(self) -> Array | None:
        """A point to start from, or None."""


class ModeSearch:
    """One search; `passes` counts those over the rows, `rounds` the looks at a deadline.

    share, before: what part of the rows this search has, and the passes that were made before it.
    """

    def __init__(self, target: Smooth, share: float = 1.0, before: float = 0.0) -> None:
        self.target, self.passes, self.rounds = target, 0.0, 0
        self._share, self._before = share, before

    def find(self, tolerance: float = TOLERANCE) -> Array:
        """The mode, to so many posterior standard deviations."""
        done(1 / _USUAL)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is no step
            return self._find(tolerance)

    def _find(self, tolerance: float) -> Array:
        start, hessian = np.zeros(self.target.dim), None
        lowest: float | None = None  # f at the start, where it was needed
        if (point := self.target.guess()) is not None and point.any():
            lowest, there = self._value(start), self._value(point)
            if there < lowest:
                start, lowest = point, there
            self.passes += 4
        if self.target.n > _TALL * self.target.dim and (guess := self._mode_of_some()) is not None:
            lowest = self._value(start) if lowest is None else lowest
            if self._value(guess[0]) < lowest:
                start, hessian = guess
            self.passes += 2
        if self.target.dim > DENSE_DIM:
            return self._newton_products(start, tolerance)
        if not self.target.convex_components:
            return self._newton_damped(start, tolerance)
        return self._newton(start, hessian, tolerance)

    def _look(self) -> None:
        """At a deadline, before each round."""
        self.rounds += 1
        done((self.rounds + 1) / _USUAL)
        look(self._before + self._share * self.passes)

    def _value(self, x: Array) -> float:
        """f, which may be beyond float64 where a step is too long."""
        return float(self.target.potentials(x[None, :])[0])

    def _inside(self, x: Array) -> bool:
        """Whether f is finite, where it may be ∞ although ∇f is not."""
        return not self.target.loss.barrier or math.isfinite(self._value(x))

    def _slope(self, x: Array) -> Array:
        """∇f likewise; where the search stands it is asked of the target, which refuses what is beyond float64."""
        slope: Array = self.target.gradients(x[None, :])[0]
        return slope

    def _mode_of_some(self) -> tuple[Array, Array | None] | None:
        """Mode and Hessian from some of the rows, with as much less of the prior; None where they have no mode."""
        count = min(self.target.n // _SHARE, max(_SOME * self.target.dim, _MOST_ENTRIES // self.target.dim))
        chosen = Stream(0, np.arange(1)).indices(0, count, self.target.n, True, Purpose.DATA)[0]
        chosen.sort()
        share = count / self.target.n
        precision = share * self.target.prior_strength
        part = self.target.share(chosen, precision)
        search = ModeSearch(part, self._share * share, self._before + self._share * self.passes)
        try:
            mode = search.find(_ROUGH)
            hessian = part.hessian(mode) / share if self.target.dim <= DENSE_DIM else None
        except (ValueError, RuntimeError):
            return None
        self.passes += search.passes * share
        return mode, hessian

    def _newton(self, x: Array, hessian: Array | None, tolerance: float) -> Array:
        """Each step must lessen ∇fᵀH⁻¹∇f, for the H it was made with: then no value of f is needed."""
        from scipy.linalg import cho_factor, cho_solve

        try:
            with piece(CHOLESKY * self.target.dim**3):
                factor = None if hessian is None else cho_factor(hessian)
        except ValueError:  # of some rows, which may leave a direction out
            factor = None
        fresh = factor is None
        factor = self._factor(x) if factor is None else factor
        gradient = self.target.gradient(x)
        self.passes += 1 + fresh
        for _ in range(_NEWTON_STEPS):
            self._look()
            step = cho_solve(factor, gradient)
            size = float(gradient @ step)
            if fresh:
                self._require_curvature(x, step)
            if size <= tolerance**2:
                return np.asarray(x - step, np.float64)
            scale = 1.0
            while True:
                look(self._before + self._share * self.passes)
                there = self._slope(x - scale * step)
                self.passes += 1
                inside = np.isfinite(there).all() and self._inside(x - scale * step)
                left = float(there @ cho_solve(factor, there)) if inside else np.inf
                if left < (1 - 1e-4 * scale) * size or not fresh:
                    break
                if size < _FLOOR or size <= self._rounding(x):  # rounding, and nothing else, is left
                    return x
                scale /= 2
                if scale < _LEAST:
                    raise self._ill_conditioned(x, size)
            if left < (1 - 1e-4 * scale) * size:
                x, gradient = x - scale * step, there
                fresh = left > 0.0025 * size and left * (left / size) ** _PATIENCE > tolerance**2
            else:
                fresh = True
            if fresh:
                factor = self._factor(x)
                self.passes += 1
        raise self._no_mode(size)

    def _newton_damped(self, x: Array, tolerance: float) -> Array:
        """Where f may bend downwards: (H + τ diag|H|)⁻¹∇f, with τ raised until f falls, and lowered again after that.

        The end is where H itself is positive definite, and a step of Newton's own as small as asked.
        """
        from scipy.linalg import cho_factor, cho_solve

        value, damping, last, decrement = self._value(x), 0.0, np.inf, np.inf
        for _ in range(_DAMPED_STEPS):
            self._look()
            gradient, hessian = self.target.gradient(x), self.target.hessian(x)
            bend, size = np.diag(hessian), np.abs(np.diag(hessian)) + 1e-300
            damped = hessian.copy()
            self.passes += 2
            while damping < _MOST_DAMPING:
                look(self._before + self._share * self.passes)
                np.fill_diagonal(damped, np.minimum(bend + damping * size, _LARGEST))
                try:
                    with piece(CHOLESKY * self.target.dim**3):
                        step = cho_solve(cho_factor(damped), gradient)
                except np.linalg.LinAlgError:
                    damping = max(4 * damping, 1e-4)
                    continue
                decrement, trial = float(gradient @ step), self._value(x - step)
                self.passes += 1
                near = damping == 0 and decrement < _FLOOR * max(1.0, abs(value)) and decrement < last
                if near or trial <= value - 1e-4 * decrement:
                    break
                if damping == 0 and decrement < _FLOOR:  # rounding, and nothing else, is left
                    return x
                damping = max(4 * damping, 1e-4)
            else:
                break
            x, value = x - step, trial
            if damping == 0 and decrement <= tolerance**2:
                return x
            last = decrement if near else np.inf
            damping = damping / 16 if damping > 1e-3 else 0.0
        if decrement <= tolerance**2:  # no way down is left, but only because H was bent upwards for it
            raise nearly_dependent(self.target, hessian)
        raise self._no_mode(decrement)

    def _newton_products(self, x: Array, tolerance: float) -> Array:
        """With conjugate gradients for each step, and halving until f falls."""
        value, decrement = self._value(x), math.inf
        for _ in range(_NEWTON_STEPS):
            self._look()
            gradient = self.target.gradient(x)
            step = self._newton_step(x, gradient, decrement)
            decrement = float(gradient @ step)
            self._require_curvature(x, step)
            self.passes += 2
            if decrement <= tolerance**2 or decrement <= _ROUNDING * abs(value):
                return x - step
            scale = 1.0
            while not (trial := self._value(x - scale * step)) <= value - 1e-4 * scale * decrement:
                look(self._before + self._share * self.passes)
                scale /= 2
                if scale < 1e-10:  # the potential is flat to rounding
                    return x
            x, value = x - scale * step, trial
        raise self._no_mode(decrement)

    def _factor(self, x: Array) -> Any:
        """Cholesky factor of the Hessian; where it has none, the error names the columns that depend on each other."""
        from scipy.linalg import cho_factor

        hessian = self.target.hessian(x)
        try:
            with piece(CHOLESKY * self.target.dim**3):
                return cho_factor(hessian)
        except np.linalg.LinAlgError:
            raise nearly_dependent(self.target, hessian) from None

    def _rounding(self, x: Array) -> float:
        """Of the squared decrement: what float64 leaves of it where x, or the prior's mean, is many sd from 0."""
        away, prior = x - self.target.prior_mean, self.target.prior_mean
        size = float(x @ self.target.hessian_product(x, x))
        size += float(self.target.prior_precision @ (away**2 + prior**2)) + self.target.n
        return (_DIGITS * float(np.finfo(np.float64).eps)) ** 2 * size

    def _ill_conditioned(self, x: Array, size: float) -> RuntimeError:
        """The error where no step helps, with what can be said about the columns."""
        least = least_eigenvalue(self.target.hessian(x))
        return RuntimeError(
            f"no mode was found: it is still {size**0.5:.2g} sd away, and float64 is not precise enough to get closer "
            f"(the eigenvalues of the scaled Hessian fall to {least:.1e}). Scale the columns of X to about 1, drop "
            "those that nearly depend on others, raise prior_precision, or give a prior_mean nearer to 0."
        )

    def _no_mode(self, size: float) -> RuntimeError:
        return RuntimeError(
            f"no mode was found in {self.rounds} Newton steps; it is still {size**0.5:.2g} sd away. Scale the columns "
            "of X, the labels and the weights to about 1, or raise prior_precision."
        )

    def _require_curvature(self, x: Array, step: Array) -> None:
        """Newton's steps on separable data never shrink, while the curvature along them falls like e^{−|t|}.

        It may also fall because one row is far out: so the step, or the way so far, must separate the data.
        """
        free = self.target.prior_strength == 0
        flat = np.where(free, step, 0.0)
        if not flat.any():
            return
        here, there = (float(flat @ self.target.hessian_product(at, flat)) for at in (x, np.zeros(self.target.dim)))
        ways = (-flat, np.where(free, x, 0.0))
        if here < _VANISHED * there and any(self.target.runs_off(x, way) for way in ways):
            raise separable()

    def _newton_step(self, x: Array, gradient: Array, before: float) -> Array:
        """With a preconditioner, only as precisely as the squared decrement of the last step makes worth it: Newton's
        method then still converges faster than linearly.
        """
        from scipy.sparse.linalg import cg

        curvature, bend = self.target.row_curvatures(x), np.maximum(self.target.prior_curvature(x), 0.0)
        product, near = self.target.operator(curvature, bend), self.target.preconditioner(curvature, bend)
        precise = 1e-8 if near is None else min(0.1, max(0.1 * math.sqrt(before), 1e-8))
        most = 10 * self.target.dim  # cut short, it is still a way down
        step, _ = cg(product, gradient, rtol=precise, maxiter=most, M=near, callback=lambda _: look())
        return np.asarray(step, np.float64)
