"""Generalised linear models of rows in partitions: what is known of all rows is found by passes over them.

    f(x) = Σᵢ wᵢℓ(tᵢ, yᵢ) + ½(x − p)ᵀΛ(x − p) + Σⱼ ψⱼ(xⱼ),      tᵢ = oᵢ + aᵢᵀx,

as in `generalised.py`, and no array here has a number for each row. The mode is Newton's: each pass gives f, ∇f and ∇²f
at once, as reading the rows costs more than multiplying them. It starts at the mode of some rows of a few partitions,
from which a tall posterior is a few dozen of its standard deviations away; then the Newton decrement δ falls as δ², and
two or three steps are enough.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, digest
from svrhmc.core.errors import DataError, requirement
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.recording import ANY, Whole
from svrhmc.targets.base import FiniteSum, Moments
from svrhmc.targets.blocks import seen_by
from svrhmc.targets.coding import Coding
from svrhmc.targets.forms import RowsForm
from svrhmc.targets.generalised import GeneralisedLinear
from svrhmc.targets.improper import separable
from svrhmc.targets.laws import Law, mixes
from svrhmc.targets.mode import DENSE_DIM, TOLERANCE
from svrhmc.targets.partitions import (
    Gathered,
    Lengths,
    Measured,
    Packing,
    Places,
    Slopes,
    Some,
    Squares,
    Sums,
    listed,
    some_of,
    total_of,
)
from svrhmc.targets.partitions import gathered as gather
from svrhmc.targets.partitions import measured as measure
from svrhmc.targets.partitions import share as some_rows
from svrhmc.targets.partitions import slopes as slope_up
from svrhmc.targets.partitions import squares as square_up
from svrhmc.targets.partitions import sums as sum_up
from svrhmc.targets.priors import Settled
from svrhmc.targets.profile import convex_given_shared, one_mode_of_profile, profile
from svrhmc.targets.reading import PartitionRows, Partitions
from svrhmc.targets.stored import make_rows

_STEPS, _HALVINGS = 60, 40
_SHARE_ENTRIES, _SHARE_PARTITIONS, _SHARE_ROWS = 1 << 24, 16, 100  # of the rows that Newton's method starts from
_NEAR = 1e-6  # sd from the mode within which a step that does not help is rounding


class PartitionedLinear(FiniteSum):
    """Loss × partitions × prior; made by `glm` and its kin from what `svrhmc.data` gives."""

    scalar_parts = True
    tells_passes = True
    unbounded = "rows in partitions have no bound on it; use svrhmc.sample"
    classes: Any = None

    def __init__(self, partitions: Partitions, coding: Coding, prior: Settled) -> None:
        self.partitions, self.coding, self.loss = partitions, coding, coding.loss
        self.rows = PartitionRows(partitions, coding.loss)
        self.n, self.dim, self.row_size = self.rows.n, self.rows.dim, self.rows.dim
        if self.dim > DENSE_DIM:
            raise requirement("X", f"at most {DENSE_DIM} columns where rows are in partitions", self.dim)
        self.prior_precision, self.prior_mean, self.heavy = prior.precision, prior.mean, prior.heavy
        self.prior_strength = self.prior_precision + (0.0 if self.heavy is None else self.heavy.strength(self.dim))
        self.quadratic = self.loss.quadratic and self.heavy is None
        self._form = RowsForm(
            self.rows, np.zeros(0), self.loss, self.prior_precision, self.prior_mean, heavy=self.heavy
        )
        self.passes, self.pass_seconds = 0.0, 0.0  # made over all rows, and what the quickest of them took
        self._summed: dict[bytes, Sums] = {}
        self._last: tuple[list[bytes], Slopes] | None = None
        self._tell: Callable[[float], None] | None = None

    def __repr__(self) -> str:
        return f"PartitionedLinear({self.loss}, n={self.n}, dim={self.dim}, partitions={len(self._numbers)})"

    @property
    def _numbers(self) -> range:
        return range(len(self.partitions.reader.sizes))

    def form(self) -> RowsForm:
        """The loss and the prior, and what rows are like."""
        return self._form

    def identity(self) -> dict[str, Any]:
        """The files, as they were found, and the model."""
        return {
            **self._kind(),
            "X": digest(np.array(self.partitions.reader.identity())),
            "loss": repr(self.loss),
            "prior": digest(self.prior_precision, self.prior_mean),
            **({} if self.heavy is None else {"heavy prior": self.heavy.digest()}),
        }

    @property
    def convex_components(self) -> bool:
        """As the loss and the prior are."""
        return self.loss.convex and float(self.prior_bounds()[0].min()) >= 0

    @cached_property
    def one_mode(self) -> str | None:
        """Where f is convex, or is so given a shared parameter along whose profile no other minimum is found."""
        if self.loss.mixture:
            return self.condensed.one_mode  # which is the same function
        found = profile(self, self._mode) if convex_given_shared(self) else None
        return super().one_mode or one_mode_of_profile(self, found)

    def prior_bounds(self) -> tuple[Array, Array]:
        """The least and the largest curvature of the prior anywhere, of every coordinate."""
        least, most = (0.0, 0.0) if self.heavy is None else self.heavy.bounds(self.dim)
        return self.prior_precision + least, self.prior_precision + most

    @property
    def row_entries(self) -> float:
        """Of a dense row."""
        return self.rows.entries

    # Passes.

    def sums(self, x: Array) -> Sums:
        """∇f and ∇²f of the rows at x: one pass, kept for the last few x."""
        key = np.ascontiguousarray(x).tobytes()
        if key not in self._summed:
            while len(self._summed) > 2:
                del self._summed[next(iter(self._summed))]
            zero = Sums(np.zeros(self.dim), np.zeros((self.dim, self.dim)))
            self._summed[key] = self._total(sum_up, (self.coding, x), "sums over all rows", zero)
            self._count(1.0)
        return self._summed[key]

    def slopes(self, states: Array) -> Slopes:
        """f and ∇f of the rows at some states: one pass, kept for the last states.

        Whoever asks counts the components.
        """
        keys = [np.ascontiguousarray(x).tobytes() for x in states]
        if self._last is None or self._last[0] != keys:
            zero = Slopes(np.zeros(len(states)), np.zeros(states.shape))
            self._last = keys, self._total(slope_up, (self.coding, states), "gradients over all rows", zero)
        return self._last[1]

    def measured(self, lengths: Lengths) -> list[Measured] | None:
        """Weights of all rows, summed by partition; None where S was too large."""
        with self._timed():
            parts = self._parts(measure, (self.coding, lengths), "lengths of all rows")
            by = np.array([lengths.scale, lengths.radius])
            keys = [(by, lengths.centre)] * len(self._numbers)
            found = listed(parts, len(self._numbers), Measured.packed, Measured.unpacked, Whole(), (), of=keys)
        self._count(1.0)
        return None if any(each is None for each in found) else found

    def gathered(self, lengths: Lengths | None, places: list[Places]) -> list[Gathered | None]:
        """The rows of places within each partition; a partition that none falls on is not read."""
        wanted = [k for k in self._numbers if len(places[k])]
        arguments, packing = [(k, self.coding, lengths, places[k]) for k in wanted], Packing(self.partitions.reader)

        def pack(one: Gathered) -> Any:
            return one.rows, one.q.view(np.int64), one.found, *packing.packed(*one[1:5])

        def unpack(arrays: Any) -> Gathered:
            X, y, offset, weights = packing.unpacked(arrays[3:])
            return Gathered(arrays[0], X, y, offset, weights, arrays[1].view(np.uint64), arrays[2])

        def parts(first: int) -> Any:
            return self.partitions.each(gather, arguments[first:], "fetching rows")

        shapes = (Whole((ANY,)),) * 3 + packing.shapes
        by = np.zeros(0) if lengths is None else np.array([lengths.scale, lengths.radius])
        keys = [(by, places[k]) for k in wanted]
        found = dict(zip(wanted, listed(parts, len(wanted), pack, unpack, *shapes, of=keys), strict=True))
        for k, one in found.items():
            one.require_sound(int(self.partitions.reader.sizes[k]), len(places[k]))
        share = sum(int(self.partitions.reader.sizes[k]) for k in wanted) / self.n
        self.passes += share
        self._count(share)
        return [found.get(k) for k in self._numbers]

    def _total(self, work: Callable[..., Any], arguments: tuple[Any, ...], told: str, zero: Any) -> Any:
        """The sum of a pass over all partitions."""
        with self._timed():
            return total_of(self._parts(work, arguments, told), len(self._numbers), zero, arguments[-1])

    def _parts(self, work: Callable[..., Any], arguments: tuple[Any, ...], told: str) -> Callable[[int], Any]:
        """What the partitions from one of them on give."""
        return lambda first: self.partitions.each(work, [(k, *arguments) for k in self._numbers[first:]], told)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """A pass over all rows."""
        began = time.perf_counter()
        yield
        self.pass_seconds = min(time.perf_counter() - began, self.pass_seconds or math.inf)
        self.passes += 1

    def _count(self, share: float) -> None:
        """Tell of a pass, or of a part of one, that nobody else counts."""
        if self._tell is not None:
            self._tell(share * self.n)

    # What a target says.

    def potentials(self, x: Array) -> Array:
        """One pass for all states."""
        return self.slopes(x).values + self._prior_values(x)

    def _prior_values(self, x: Array) -> Array:
        total: Array = -self._form.log_prior(x).sum(axis=-1)
        return total

    def gradients(self, x: Array) -> Array:
        """One pass for all states; none at one whose Hessian was just found."""
        keys = [np.ascontiguousarray(each).tobytes() for each in x]
        if all(key in self._summed for key in keys):
            return np.array([self._summed[key].gradient for key in keys]) + self.prior_gradient(x)
        return self.slopes(x).gradients + self.prior_gradient(x)

    def hessian(self, x: npt.ArrayLike) -> Array:
        """∇²f(x), by a pass."""
        point = self._point(x)[0]
        return self.sums(point).hessian + np.diag(self._form.prior_curvature(point))

    def prior_gradient(self, x: Array) -> Array:
        """Λ(x − p) + ψ′."""
        slope = (x - self.prior_mean) * self.prior_precision
        return slope if self.heavy is None else slope + self.heavy.slope(x)

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """Only of rows that were gathered (`svrhmc.whitening.tall`)."""
        raise requirement("target", "one whose rows are in memory, for single rows", repr(self))

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """Only of rows that were gathered."""
        return self.parts(parts, indices)

    @property
    def convexity(self) -> float:
        """What the prior alone guarantees."""
        return float(self.prior_precision.min()) if self.heavy is None else 0.0

    def curvature_range(self, bound: bool) -> tuple[float, float] | None:
        """At the mode; no bounds are known."""
        if bound:
            return None
        values = np.linalg.eigvalsh(self.modal_hessian)
        return float(values[0]), float(values[-1])

    @cached_property
    def closed_form(self) -> Moments | None:
        """The Gaussian posterior of a quadratic loss with a normal prior."""
        return self.condensed.closed_form if self.quadratic else None

    @cached_property
    def exact_law(self) -> Law | None:
        """Also where coefficients are Gaussian given log σ."""
        known = self.quadratic or mixes(self.loss, self.heavy, self.dim)
        return self.condensed.exact_law if known else None

    @cached_property
    def condensed(self) -> GeneralisedLinear:
        """A few rows with the same likelihood, for y ~ N(aᵀx, σ²), by one pass.

        That likelihood knows the rows by their weight W and by G = Σ w(a, y)(a, y)ᵀ alone. With RᵀR = G, the
        m = columns + 1 rows of R√(m/W), each of weight W/m, have the same two. (G is summed with the residuals of a
        first fit in place of y, so that no digits cancel.)
        """
        beta = self._first_fit()
        size = self.rows.width + 1
        weight, gram = self._total(
            square_up, (self.coding, beta), "squares of all rows", Squares(0.0, np.zeros((size, size)))
        )
        self._count(1.0)
        scale = np.sqrt(np.where(np.diag(gram) > 0, np.diag(gram), 1.0))
        values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
        m = len(gram)
        root = math.sqrt(m / weight) * np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T * scale
        X, y = np.ascontiguousarray(root[:, :-1]), root[:, -1] + root[:, :-1] @ beta
        rows, weights = seen_by(make_rows(X), self.loss), np.full(m, weight / m)
        return GeneralisedLinear(rows, y, self.loss, self.prior_precision, self.prior_mean, None, weights, self.heavy)

    def _first_fit(self) -> Array:
        """Coefficients near the posterior's, from some rows."""
        return self._start()[: self.rows.width]

    def mode(self) -> Array:
        """By Newton's method, found once."""
        return self._mode.copy()

    def recall_mode(self, mode: Array) -> None:
        """Unless it is known already."""
        self.__dict__.setdefault("_mode", np.array(mode))

    def recall_modes(self, modes: Array, doubt: str, starts: str, one_mode: str | None) -> None:
        """Unless they are known already."""
        if "_mode" not in self.__dict__:
            self.__dict__ |= {"_mode": np.array(modes[0]), "one_mode": one_mode}

    @cached_property
    def modal_hessian(self) -> Array:
        """∇²f at the mode."""
        return self.hessian(self._mode)

    def laplace(self) -> Moments:
        """The Gaussian at the mode with the inverse Hessian there; exact for a quadratic loss."""
        if self.closed_form is not None:
            return self.closed_form
        covariance = np.linalg.inv(self.modal_hessian)
        return Moments(self.mode(), (covariance + covariance.T) / 2)

    def warm(self) -> None:
        """Compile, or load, what passes need: by those over a few rows."""
        assert self._share is not None

    def watched(self, tell: Callable[[float], None]) -> None:
        """Of passes, but for those that find gradients at states."""
        self._tell = tell

    def shown(self) -> FiniteSum:
        """The rows that Newton's method starts from, with the whole prior."""
        small = self._share
        return GeneralisedLinear(
            small.rows, small.y, self.loss, self.prior_precision, self.prior_mean, small.offset, small.weights,
            self.heavy,
        )  # fmt: skip

    @property
    def at_hand(self) -> int:
        """None."""
        return 0

    def _with_quadratic(self, strength: float, centre: Array) -> FiniteSum:
        raise requirement("target", "one whose rows are in memory, to be regularised", repr(self))

    def _require_posterior(self) -> None:
        self.mode()

    # The mode.

    @cached_property
    def _mode(self) -> Array:
        if self.closed_form is not None:
            return self.closed_form.mean
        x, last = self._start(), math.inf
        gradient, hessian = self._at(x)
        for _ in range(_STEPS):
            solve = self._solver(hessian)
            step = solve(gradient)
            decrement = math.sqrt(max(float(gradient @ step), 0.0))
            if decrement <= TOLERANCE or (decrement < _NEAR and decrement > 0.5 * last):
                return x
            scale = 1.0
            for _ in range(_HALVINGS):  # each step must lessen ∇fᵀH⁻¹∇f, for the H it was made with
                there = self._at(x - scale * step)
                left = float(there[0] @ solve(there[0])) if np.isfinite(there[0]).all() else math.inf
                if decrement < _NEAR or left < (1 - 1e-4 * scale) * decrement**2:
                    break
                scale /= 2
            else:
                raise self._no_mode(decrement)
            x, last = x - scale * step, decrement
            gradient, hessian = there
            if self.prior_strength.min() == 0 and np.abs(x).max() > 1e8 * (1 + np.abs(self.prior_mean).max()):
                raise separable()
        raise self._no_mode(decrement)

    def _at(self, x: Array) -> tuple[Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            hessian = self.hessian(x)  # whose pass has the gradient too
            return self.gradients(x[None])[0], hessian

    def _solver(self, hessian: Array) -> Callable[[Array], Array]:
        """H⁻¹ of a gradient."""
        from scipy.linalg import cho_factor, cho_solve

        if not np.isfinite(hessian).all():
            why = "scale the columns to about 1"
            raise requirement("X", "made of numbers whose squares do not overflow", "larger ones", why)
        try:
            factor = cho_factor(hessian)
        except np.linalg.LinAlgError:
            raise requirement(
                "X", "columns that do not depend on each other, or a prior on them", _dependent(self, hessian)
            ) from None
        return lambda gradient: np.asarray(cho_solve(factor, gradient), np.float64)

    def _no_mode(self, size: float) -> RuntimeError:
        return RuntimeError(
            f"no mode was found in {_STEPS} passes over the rows; it is still {size:.2g} sd away. Scale the columns to "
            "about 1, drop those that nearly depend on others, or raise prior_precision."
        )

    def _start(self) -> Array:
        """The mode of some rows, with as much less of the prior; 0 where they have none."""
        small = self._share
        try:
            start = small.minimum().first
        except (ValueError, RuntimeError):
            start = np.zeros(self.dim)
        return start

    @cached_property
    def _share(self) -> GeneralisedLinear:
        """The first rows of some partitions, drawn at random, as a model in memory."""
        reader = self.partitions.reader
        filled = np.flatnonzero(reader.sizes > 0)
        if not len(filled):
            raise DataError("there are no rows in any partition.")
        order = np.argsort(Stream(0, filled).normals(0, 1, Purpose.DATA, Purpose.DATA_FINE)[:, 0], kind="stable")
        wanted = max(_SHARE_ENTRIES // self.rows.width, _SHARE_ROWS * self.dim)
        chosen: list[int] = []
        for k in filled[order]:
            chosen.append(int(k))
            held = int(reader.sizes[chosen].sum())
            if len(chosen) >= _SHARE_PARTITIONS and held >= wanted:
                break
        most = -(-wanted // len(chosen))
        arguments = [(k, self.coding, most) for k in sorted(chosen)]
        packing, arguments_of = Packing(reader), [np.array([k, most]) for k, *_ in arguments]
        X, y, offset, weights = some_of(
            listed(
                lambda first: self.partitions.each(some_rows, arguments[first:], "some rows to start from"),
                len(arguments),
                lambda some: packing.packed(*some),
                lambda arrays: Some(*packing.unpacked(arrays)),
                *packing.shapes,
                of=arguments_of,
            )
        )
        rows = seen_by(make_rows(X), self.loss)
        precision = self.prior_strength * (rows.n / self.n)
        self.passes += rows.n / self.n
        self._count(rows.n / self.n)
        return GeneralisedLinear(rows, y, self.loss, precision, self.prior_mean, offset, weights)


def _dependent(target: PartitionedLinear, hessian: Array) -> str:
    """Which columns do, in words."""
    scale = np.sqrt(np.where(np.diag(hessian) > 0, np.diag(hessian), 1.0))
    _, vectors = np.linalg.eigh(hessian / np.outer(scale, scale))
    large = np.flatnonzero(np.abs(vectors[:, 0]) > 0.1) % target.rows.width
    names = [target.partitions.reader.names[j] for j in np.unique(large)[:8]]
    return "columns that do: " + ", ".join(map(repr, names))
