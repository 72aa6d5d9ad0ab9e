"""What an estimate asks of a target, in JAX: each form has `Operations` and the arrays that they work on.

Operations are plain data that can be hashed, so that programs are compiled once for all targets alike; whatever is
large is in the arrays: what rows have under "data", wherever that is (`targets.placed`), and what all share under names
of its own. States come as (chains, dim), batches of rows as (chains, batch); all sums are in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from svrhmc.engines.jax import factors, fused, priors
from svrhmc.engines.jax.losses import slope_of
from svrhmc.engines.jax.rows import EXACT, Arrays, Seen
from svrhmc.targets.devices import sharding
from svrhmc.targets.functions import copied
from svrhmc.targets.placed import Place, cut_over


class Batch(NamedTuple):
    """Some rows of every chain: their numbers, (chains, batch), and what they have, taken from where it is."""

    rows: Any
    data: Any


class Operations(ABC):
    """A component's gradient is what all share, `prior`, and a part of its own, as in `targets.base`."""

    place: Any = None  # where rows of data are (`targets.placed`); None where they are never cut over devices

    def copied(self, mesh: Mesh, data: Any) -> tuple[Operations, Any]:
        """The same with what rows have on each device."""
        return self, jax.device_put(data, sharding(mesh, False))

    def cut(self, mesh: Mesh, data: Any) -> tuple[Operations, Any]:
        """The same with rows of its own on each device."""
        raise NotImplementedError

    def kind(self, arrays: Arrays) -> Any:
        """Of numbers that rows give: float32 or float64. Normals are of the same kind; states are always float64."""
        return jnp.float64

    @abstractmethod
    def batch(self, arrays: Arrays, rows: Any) -> Batch:
        """Rows of the chains, by their numbers."""

    @abstractmethod
    def parts(self, arrays: Arrays, x: Any, batch: Batch) -> Any:
        """Parts of some components: (chains, batch), or (chains, batch, dim)."""

    @abstractmethod
    def every_part(self, arrays: Arrays, x: Any) -> Any:
        """Parts of all components."""

    @abstractmethod
    def assemble(self, arrays: Arrays, parts: Any, batch: Batch) -> Any:
        """The mean of the gradients that parts of some components stand for."""

    @abstractmethod
    def pass_over(self, arrays: Arrays, x: Any) -> Any:
        """∇f without the shared part: the same of all components."""

    @abstractmethod
    def prior(self, arrays: Arrays, x: Any) -> Any:
        """The gradient that every component shares."""

    def remembered(self, arrays: Arrays, x: Any) -> tuple[Any, Any]:
        """Parts of all components, and what they add up to: ∇f without the shared part."""
        return self.every_part(arrays, x), self.pass_over(arrays, x)

    def mean(self, arrays: Arrays, x: Any, batch: Batch, weights: Any = None) -> Any:
        """The mean over a batch of gradients without the shared one, each with a weight where there are weights."""
        return self.assemble(arrays, weighed(self.parts(arrays, x, batch), weights), batch)

    def change(self, arrays: Arrays, x: Any, point: Any, batch: Batch, weights: Any = None) -> Any:
        """The mean over a batch of what gradients at x have more than those at another point."""
        more = self.parts(arrays, x, batch) - self.parts(arrays, point, batch)
        return self.assemble(arrays, weighed(more, weights), batch)

    def bends(self, arrays: Arrays, away: Any, batch: Batch) -> Any:
        """Parts of Hᵢ·away at the mode, for rows with a linear predictor."""
        raise NotImplementedError

    def energies(self, arrays: Arrays, x: Any) -> tuple[Any, Any]:
        """f, up to a constant, and ∇f by one pass."""
        raise NotImplementedError


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
    record: Any  # of the loss: its type
    frame: Frame
    seen: Seen
    removed: bool
    second_order: bool
    shifted: bool
    weighed: bool
    heavy: bool
    place: Place

    def cut(self, mesh: Mesh, data: Any) -> tuple[Operations, Any]:
        """In sections, each of which is summed at once."""
        place, sections = cut_over(mesh, self.n, self.place.row, self.n, data)
        return replace(self, place=place), sections

    def kind(self, arrays: Arrays) -> Any:
        """That of the matrix."""
        return self.seen.dtype

    @property
    def plain(self) -> bool:
        """Whether a loss of one predictor and a normal prior, in the target's own variables, are all there is."""
        return not (self.removed or self.heavy or self.frame.kind or self.seen.sparse or self.seen.several)

    def constants(self, numbers: Any) -> Any:
        """The record of the loss with its numbers."""
        return self.record(*(numbers[k] for k in range(len(numbers))), *(self.seen.several or ()))

    def batch(self, arrays: Arrays, rows: Any) -> Batch:
        """From where they are."""
        return Batch(rows, self.place.taken(arrays["data"], rows))

    def parts(self, arrays: Arrays, x: Any, batch: Batch) -> Any:
        """nρᵢ′, or nwᵢℓ′."""
        u = self.seen.predict_at(batch.data, self.frame.displace(arrays, x))
        return self._slopes(arrays["numbers"], u, batch.data)

    def bends(self, arrays: Arrays, away: Any, batch: Batch) -> Any:
        """nwᵢℓ″ aᵢᵀ·away; nothing is left in variables from which the second order was taken."""
        if self.second_order:
            return jnp.zeros((*batch.rows.shape, *self.seen.tail))
        return self.seen.turned(arrays["mode curvatures"][batch.rows], self.seen.predict_at(batch.data, away))

    def _slopes(self, numbers: Any, u: Any, some: Arrays) -> Any:
        """Of some rows, by what these have and the numbers of the loss."""
        seen, t = self.seen, u
        if self.removed:
            t = some["predictors"] + u
        elif self.shifted:
            t = seen.shifted(u, some["offset"])
        found = slope_of(self.record)(self.constants(numbers), t, some["y"])
        if self.weighed:
            found = seen.weighed(found, some["weights"])
        if self.removed:
            found = found - some["slopes"]
        if self.second_order:
            found = found - seen.turned(some["curvatures"], u)
        return self.n * found

    def pass_over(self, arrays: Arrays, x: Any) -> Any:
        """(1/n) Σᵢ partᵢ Wᵀaᵢ."""
        at = self.frame.displace(arrays, x)
        return self.frame.pull(arrays, self.place.summed(arrays["data"], self._sum, arrays["numbers"], at))

    def _sum(self, some: Arrays, numbers: Any, at: Any) -> Any:
        """Over some rows; for one chain on a GPU, where a loss is all there is to a row, with one read of X."""
        plain = self.plain and not (self.shifted or self.weighed)
        if plain and fused.serves(some["X"], self.record, len(at)):
            kind = self.seen.dtype
            found = fused.gradient(some["X"], some["y"].astype(kind), at[0].astype(kind), self.record)
            return found[None].astype(jnp.float64)
        return self.seen.combine(some, self._every_slope(some, numbers, at) / self.n)

    def every_part(self, arrays: Arrays, x: Any) -> Any:
        """Of all rows at once."""
        at = self.frame.displace(arrays, x)
        return self.place.each(arrays["data"], self._every_slope, arrays["numbers"], at)

    def remembered(self, arrays: Arrays, x: Any) -> tuple[Any, Any]:
        """Where all rows are at hand, each slope is found once."""
        if self.place.mesh is not None:
            return super().remembered(arrays, x)
        parts = self.every_part(arrays, x)
        return parts, self.frame.pull(arrays, self.seen.combine(arrays["data"], parts / self.n))

    def _every_slope(self, some: Arrays, numbers: Any, at: Any) -> Any:
        return self._slopes(numbers, self.seen.predict(some, at), some)

    def assemble(self, arrays: Arrays, parts: Any, batch: Batch) -> Any:
        """(1/B) Σ_b part_b Wᵀa_{i_b}."""
        return self.frame.pull(arrays, self.seen.combine_at(batch.data, parts / batch.rows.shape[1]))

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

    def batch(self, arrays: Arrays, rows: Any) -> Batch:
        """By index; a precision that all share is not among them."""
        return Batch(rows, {name: array[rows] for name, array in arrays["data"].items()})

    def parts(self, arrays: Arrays, x: Any, batch: Batch) -> Any:
        """Gradients."""
        return self._gradients(arrays, x, batch.data, "cbde,ce->cbd")

    def every_part(self, arrays: Arrays, x: Any) -> Any:
        """Of all components."""
        return self._gradients(arrays, x, arrays["data"], "nde,ce->cnd")

    def _gradients(self, arrays: Arrays, x: Any, some: Arrays, axes: str) -> Any:
        if self.shared:
            return (x @ arrays["precision"])[:, None, :] - some["forces"]
        return jnp.einsum(axes, some["precision"], x, precision=EXACT) - some["forces"]

    def assemble(self, arrays: Arrays, parts: Any, batch: Batch) -> Any:
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

    def copied(self, mesh: Mesh, data: Any) -> tuple[Operations, Any]:
        """From the devices that have them."""
        functions, copies = copied(self.functions, data)
        return replace(self, functions=functions), copies

    def cut(self, mesh: Mesh, data: Any) -> tuple[Operations, Any]:
        """They are."""
        return self, data

    def kind(self, arrays: Arrays) -> Any:
        """As the user's functions see it."""
        return self.functions.dtype

    def batch(self, arrays: Arrays, rows: Any) -> Batch:
        """From where they are."""
        return Batch(rows, self.place.taken(arrays["data"], rows))

    def parts(self, arrays: Arrays, x: Any, batch: Batch) -> Any:
        """Gradients of −n log-likelihood, in the user's variables."""
        return -self.functions.n * self.functions.each_gradient(self.frame.out(arrays, x), batch.data)

    def every_part(self, arrays: Arrays, x: Any) -> Any:
        """Of all rows."""
        return -self.functions.n * self.functions.every_gradient(arrays["data"], self.frame.out(arrays, x))

    def assemble(self, arrays: Arrays, parts: Any, batch: Batch) -> Any:
        """Their mean."""
        return self.frame.pull(arrays, parts.mean(axis=1))

    def prior(self, arrays: Arrays, x: Any) -> Any:
        """That of −log prior."""
        return -self.frame.pull(arrays, self.functions.prior_gradient(self.frame.out(arrays, x)))

    def mean(self, arrays: Arrays, x: Any, batch: Batch, weights: Any = None) -> Any:
        """One gradient of the sum over the batch."""
        total = self.functions.batch_gradient(self.frame.out(arrays, x), batch.data)
        return self.frame.pull(arrays, total * (-self.functions.n / batch.rows.shape[1]))

    def change(self, arrays: Arrays, x: Any, point: Any, batch: Batch, weights: Any = None) -> Any:
        """The difference of two."""
        return self.mean(arrays, x, batch) - self.mean(arrays, point, batch)

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
