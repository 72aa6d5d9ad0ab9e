"""What an estimate asks of a target, in JAX: each form has `Operations` and the arrays that they work on.

Operations are plain data that can be hashed, so that programs are compiled once for all targets alike; whatever is
large is in the arrays. States come as (chains, dim), rows as (chains, batch); all sums are in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import jax.numpy as jnp
import numpy as np

from svrhmc.engines.jax import factors, fused, priors
from svrhmc.engines.jax.losses import SLOPES
from svrhmc.engines.jax.rows import EXACT, Seen, stored
from svrhmc.targets.forms import FunctionsForm, QuadraticForm, RowsForm
from svrhmc.targets.placed import require_room

Arrays = dict[str, Any]


class Operations(ABC):
    """A component's gradient is what all share, `prior`, and a part of its own, as in `targets.base`."""

    @property
    def place(self) -> Any:
        """Where rows of data are (`targets.placed`); None where all are among the arrays."""
        return None

    def kind(self, arrays: Arrays) -> Any:
        """Of numbers that rows give: float32 or float64. Normals are of the same kind; states are always float64."""
        return jnp.float64

    @abstractmethod
    def parts(self, arrays: Arrays, x: Any, rows: Any) -> Any:
        """Parts of some components: (chains, batch), or (chains, batch, dim)."""

    @abstractmethod
    def every_part(self, arrays: Arrays, x: Any) -> Any:
        """Parts of all components."""

    @abstractmethod
    def assemble(self, arrays: Arrays, parts: Any, rows: Any) -> Any:
        """The mean of the gradients that parts of some components stand for."""

    @abstractmethod
    def assemble_all(self, arrays: Arrays, parts: Any) -> Any:
        """The same of all components."""

    @abstractmethod
    def prior(self, arrays: Arrays, x: Any) -> Any:
        """The gradient that every component shares."""

    def mean(self, arrays: Arrays, x: Any, rows: Any, weights: Any = None) -> Any:
        """The mean over a batch of gradients without the shared one, each with a weight where there are weights."""
        return self.assemble(arrays, weighed(self.parts(arrays, x, rows), weights), rows)

    def change(self, arrays: Arrays, x: Any, point: Any, rows: Any, weights: Any = None) -> Any:
        """The mean over a batch of what gradients at x have more than those at another point."""
        more = self.parts(arrays, x, rows) - self.parts(arrays, point, rows)
        return self.assemble(arrays, weighed(more, weights), rows)

    def bends(self, arrays: Arrays, away: Any, rows: Any) -> Any:
        """Parts of Hᵢ·away at the mode, for rows with a linear predictor."""
        raise NotImplementedError

    def energies(self, arrays: Arrays, x: Any) -> tuple[Any, Any]:
        """f, up to a constant, and ∇f by one pass."""
        raise NotImplementedError

    def pass_over(self, arrays: Arrays, x: Any) -> Any:
        """∇f without the shared part."""
        return self.assemble_all(arrays, self.every_part(arrays, x))


@dataclass(frozen=True)
class Frame:
    """x = centre + W z, where there is a whitening: its kind, and W among the arrays."""

    kind: str | None = None

    def displace(self, arrays: Arrays, z: Any) -> Any:
        """W z."""
        if self.kind == "dense":
            return z @ arrays["factor"].T
        if self.kind == "low rank":
            turned = z + ((z @ arrays["basis"]) * arrays["gain"]) @ arrays["basis"].T
            return arrays["scale"] * turned
        return factors.displace(arrays, z) if self.kind == "sparse" else z

    def out(self, arrays: Arrays, z: Any) -> Any:
        """x."""
        return z if self.kind is None else arrays["centre"] + self.displace(arrays, z)

    def pull(self, arrays: Arrays, gradient: Any) -> Any:
        """Wᵀg."""
        if self.kind == "dense":
            return gradient @ arrays["factor"]
        if self.kind == "low rank":
            scaled = arrays["scale"] * gradient
            return scaled + ((scaled @ arrays["basis"]) * arrays["gain"]) @ arrays["basis"].T
        return factors.pull(arrays, gradient) if self.kind == "sparse" else gradient


@dataclass(frozen=True)
class RowOperations(Operations):
    """A loss of aᵢᵀx, in the variables of a frame, less what was taken out at its centre."""

    n: int
    dim: int
    slope: str
    frame: Frame
    seen: Seen
    removed: bool
    second_order: bool
    shifted: bool
    weighed: bool
    heavy: bool

    def kind(self, arrays: Arrays) -> Any:
        """That of the matrix."""
        return self.seen.kind(arrays)

    @property
    def plain(self) -> bool:
        """Whether a loss of one predictor and a normal prior, in the target's own variables, are all there is."""
        return not (self.removed or self.heavy or self.frame.kind or self.seen.sparse or self.seen.several)

    def parts(self, arrays: Arrays, x: Any, rows: Any) -> Any:
        """nρᵢ′, or nwᵢℓ′."""
        u = self.seen.predict_at(arrays, self.frame.displace(arrays, x), rows)
        return self._slopes(arrays, u, rows)

    def bends(self, arrays: Arrays, away: Any, rows: Any) -> Any:
        """nwᵢℓ″ aᵢᵀ·away; nothing is left in variables from which the second order was taken."""
        if self.second_order:
            return jnp.zeros((*rows.shape, *self.seen.tail))
        return self.seen.turned(arrays["mode curvatures"][rows], self.seen.predict_at(arrays, away, rows))

    def _slopes(self, arrays: Arrays, u: Any, rows: Any) -> Any:
        seen, y, t = self.seen, arrays["y"][rows], u
        if self.removed:
            t = arrays["predictors"][rows] + u
        elif self.shifted:
            t = seen.shifted(u, arrays["offset"][rows])
        found = SLOPES[self.slope](arrays["numbers"], t, y)
        if self.weighed:
            found = seen.weighed(found, arrays["weights"][rows])
        if self.removed:
            found = found - arrays["slopes"][rows]
        if self.second_order:
            found = found - seen.turned(arrays["curvatures"][rows], u)
        return self.n * found

    def pass_over(self, arrays: Arrays, x: Any) -> Any:
        """For one chain on a GPU, where a loss of its own is all there is to a row, with one read of X."""
        plain = self.plain and not (self.shifted or self.weighed)
        if plain and fused.serves(arrays["X"], self.slope, len(x)):
            kind = arrays["X"].dtype
            found = fused.gradient(arrays["X"], arrays["y"].astype(kind), x[0].astype(kind), self.slope)
            return found[None].astype(jnp.float64)
        return super().pass_over(arrays, x)

    def every_part(self, arrays: Arrays, x: Any) -> Any:
        """Of all rows at once."""
        at = self.frame.displace(arrays, x)
        return self._slopes(arrays, self.seen.predict(arrays, at), slice(None))

    def assemble(self, arrays: Arrays, parts: Any, rows: Any) -> Any:
        """(1/B) Σ_b part_b Wᵀa_{i_b}."""
        return self.frame.pull(arrays, self.seen.combine_at(arrays, parts / rows.shape[1], rows))

    def assemble_all(self, arrays: Arrays, parts: Any) -> Any:
        """(1/n) Σᵢ partᵢ Wᵀaᵢ."""
        return self.frame.pull(arrays, self.seen.combine(arrays, parts / self.n))

    def prior(self, arrays: Arrays, x: Any) -> Any:
        """Λ(x − p) + ψ′; in other variables b + M z, and what is left of ψ′."""
        if not self.removed:
            at = self.frame.out(arrays, x)
            slope = (at - arrays["prior mean"]) * arrays["prior precision"]
            return self.frame.pull(arrays, slope + priors.slopes(arrays, at) if self.heavy else slope)
        if self.second_order and not self.heavy:
            return x - arrays["force"]
        u = self.frame.displace(arrays, x)
        slope = u * arrays["prior precision"]
        if self.heavy:
            slope = slope + (priors.slopes(arrays, arrays["centre"] + u) - arrays["ψ slopes"])
        if self.second_order:
            return x + self.frame.pull(arrays, slope - u * arrays["bend"]) - arrays["force"]
        return self.frame.pull(arrays, slope) - arrays["force"]


@dataclass(frozen=True)
class QuadraticOperations(Operations):
    """Sᵢx − Sᵢaᵢ."""

    shared: bool

    def parts(self, arrays: Arrays, x: Any, rows: Any) -> Any:
        """Gradients."""
        forces = arrays["forces"][rows]
        if self.shared:
            return (x @ arrays["precision"])[:, None, :] - forces
        return jnp.einsum("cbde,ce->cbd", arrays["precision"][rows], x, precision=EXACT) - forces

    def every_part(self, arrays: Arrays, x: Any) -> Any:
        """Of all components."""
        if self.shared:
            return (x @ arrays["precision"])[:, None, :] - arrays["forces"][None]
        return jnp.einsum("nde,ce->cnd", arrays["precision"], x, precision=EXACT) - arrays["forces"][None]

    def assemble(self, arrays: Arrays, parts: Any, rows: Any) -> Any:
        """Their mean."""
        return parts.mean(axis=1)

    def assemble_all(self, arrays: Arrays, parts: Any) -> Any:
        """Their mean."""
        return parts.mean(axis=1)

    def prior(self, arrays: Arrays, x: Any) -> Any:
        """None."""
        return jnp.zeros_like(x)

    def pass_over(self, arrays: Arrays, x: Any) -> Any:
        """S̄x less the mean force."""
        return x @ arrays["mean precision"] - arrays["mean force"]


@dataclass(frozen=True)
class FunctionOperations(Operations):
    """A user's log-likelihood and log prior (`targets.functions`), in the variables of a frame."""

    functions: Any
    frame: Frame

    @property
    def place(self) -> Any:
        """Of the model's data."""
        return self.functions.place

    def kind(self, arrays: Arrays) -> Any:
        """As the user's functions see it."""
        return self.functions.dtype

    def parts(self, arrays: Arrays, x: Any, rows: Any) -> Any:
        """Gradients of −n log-likelihood, in the user's variables."""
        return -self.functions.n * self.functions.each_gradient(arrays["data"], self.frame.out(arrays, x), rows)

    def every_part(self, arrays: Arrays, x: Any) -> Any:
        """Of all rows."""
        return -self.functions.n * self.functions.every_gradient(arrays["data"], self.frame.out(arrays, x))

    def assemble(self, arrays: Arrays, parts: Any, rows: Any) -> Any:
        """Their mean."""
        return self.frame.pull(arrays, parts.mean(axis=1))

    def assemble_all(self, arrays: Arrays, parts: Any) -> Any:
        """Their mean."""
        return self.frame.pull(arrays, parts.mean(axis=1))

    def prior(self, arrays: Arrays, x: Any) -> Any:
        """That of −log prior."""
        return -self.frame.pull(arrays, self.functions.prior_gradient(self.frame.out(arrays, x)))

    def mean(self, arrays: Arrays, x: Any, rows: Any, weights: Any = None) -> Any:
        """One gradient of the sum over the batch."""
        total = self.functions.batch_gradient(arrays["data"], self.frame.out(arrays, x), rows)
        return self.frame.pull(arrays, total * (-self.functions.n / rows.shape[1]))

    def change(self, arrays: Arrays, x: Any, point: Any, rows: Any, weights: Any = None) -> Any:
        """The difference of two."""
        return self.mean(arrays, x, rows) - self.mean(arrays, point, rows)

    def energies(self, arrays: Arrays, x: Any) -> tuple[Any, Any]:
        """Block by block of rows."""
        value, slope = self.functions.energies(arrays["data"], self.frame.out(arrays, x))
        return value, self.frame.pull(arrays, slope)

    def pass_over(self, arrays: Arrays, x: Any) -> Any:
        """Block by block of rows."""
        return -self.frame.pull(arrays, self.functions.whole_gradient(arrays["data"], self.frame.out(arrays, x)))


def weighed(parts: Any, weights: Any) -> Any:
    """Each part times its weight, where there are weights."""
    if weights is None:
        return parts
    return parts * (weights if parts.ndim == 2 else weights[:, :, None])


def _of_rows(form: RowsForm) -> tuple[Operations, Arrays]:
    removed, loss = form.removed, form.loss
    seen, matrix = stored(form.rows.seen_once, (loss.blocks, loss.shared) if loss.wide else None)
    arrays: Arrays = {
        "y": form.y, "numbers": np.array(loss.numbers, np.float64),
        "prior precision": form.prior_precision, "prior mean": form.prior_mean,
        **matrix, **_map(form.whitening), **priors.heavy_arrays(form),
    }  # fmt: skip
    if removed is not None:
        arrays |= {"predictors": removed.predictors, "slopes": removed.slopes, "force": removed.force}
        arrays |= {"curvatures": removed.curvatures} if removed.second_order else {}
    arrays |= {} if form.offset is None else {"offset": form.offset}
    arrays |= {} if form.weights is None else {"weights": form.weights}
    assert loss.kernel is not None
    operations = RowOperations(
        form.rows.n, form.rows.dim, loss.kernel, _frame(form.whitening), seen, removed is not None,
        removed is not None and removed.second_order, form.offset is not None, form.weights is not None,
        form.heavy is not None,
    )  # fmt: skip
    return operations, arrays


def _of_quadratics(form: QuadraticForm) -> tuple[Operations, Arrays]:
    arrays = {
        "precision": form.precision, "forces": form.forces,
        "mean precision": form.mean_precision, "mean force": form.mean_force,
    }  # fmt: skip
    return QuadraticOperations(form.shared), arrays


def _of_functions(form: FunctionsForm) -> tuple[Operations, Arrays]:
    return FunctionOperations(form.functions, _frame(form.whitening)), _map(form.whitening)


def _frame(whitening: Any) -> Frame:
    return Frame(None if whitening is None else whitening.kind)


def _map(whitening: Any) -> Arrays:
    if whitening is None:
        return {}
    return factors.factor_arrays(whitening) if whitening.kind == "sparse" else dict(whitening.arrays())


_MAKERS: dict[str, Callable[[Any], tuple[Operations, Arrays]]] = {
    "rows": _of_rows,
    "blocks": _of_rows,
    "quadratic": _of_quadratics,
    "functions": _of_functions,
}
_PLACED: WeakKeyDictionary[Any, tuple[Operations, Arrays]] = WeakKeyDictionary()


def placed(form: Any) -> tuple[Operations, Arrays]:
    """Operations and arrays of a form, on the device; found once for it."""
    if form not in _PLACED:
        operations, arrays = _MAKERS[form.kind](form)
        needed = float(sum(np.asarray(array).nbytes for array in arrays.values()))
        require_room("the arrays of the target", needed, "give float32 rows, or engine='numba'")
        on_device = {name: jnp.asarray(array) for name, array in arrays.items()}
        if form.kind == "functions":
            on_device["data"] = form.data
        _PLACED[form] = operations, on_device
    return _PLACED[form]
