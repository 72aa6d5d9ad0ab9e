"""Which sampler: by what an effective draw costs, exact ones wherever they are affordable."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.dynamics import BAOAB, UBU, Anchored
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.gradients import SVRG, ControlVariate, Full, Gradient, Minibatch
from svrhmc.samplers import Sampler
from svrhmc.targets.base import FiniteSum
from svrhmc.targets.forms import rows_of
from svrhmc.targets.losses import Loss

EXACT_WORK = 6e9  # entries of X up to which an exact sampler is chosen whatever else is cheaper
_SMALL, _FAR_CHEAPER = 2e4, 50.0  # beyond so many entries, and cheaper by so much, subsampled steps come first
_RANDOM = 3.0  # what an entry of a random row costs, in entries of rows in their order
_PILOT = 4096  # states at which the noise of a single row is measured
_BIASED: dict[str, tuple[Callable[..., Any], float]] = {
    "anchored": (Anchored, 1.0),
    "baoab": (BAOAB, 1.0),
    "ubu": (UBU, 0.3),
}
_EXACT = {"split-hmc": SplitHMC, "subsampled-mh": SubsampledMH}
METHODS = ("closed-form", *_EXACT, *_BIASED)

Noise = Callable[[Gradient, Array, int], float]  # of a gradient's estimates at some states, by a seed


@dataclass(frozen=True)
class Choice:
    """A method, its sampler and the reason."""

    method: str
    sampler: Any
    why: str

    def halved(self) -> Choice:
        """Half the step, with the same batches, whose noise then counts half as much."""
        dynamics = replace(self.sampler.dynamics, step_size=self.sampler.dynamics.step_size / 2)
        why = f"{self.why.rstrip('.')}; step halved to {dynamics.step_size:g} after a refutation."
        return Choice(self.method, Sampler(dynamics, self.sampler.gradient), why)


@dataclass(frozen=True, eq=False)
class Chooser:
    """What a choice rests on: the target, the same in whitened variables, and what is asked for."""

    target: FiniteSum
    space: Any
    draws: int
    tolerance: float
    seed: int
    noise: Noise

    def choose(self, method: Any) -> Choice:
        """By name, or (None) by cost; a sampler is taken as it is."""
        if not (method is None or isinstance(method, str)):
            if method.invariant:
                method.require(self.target)
            return Choice(method.method, method, "as asked for.")
        form = rows_of(self.target.form())
        if form is None:
            if method not in (None, "ubu"):
                raise requirement("method", "None, 'ubu' or a sampler for this target", repr(method))
            return self._for_components()
        if method in _EXACT:
            sampler = _EXACT[method]()
            sampler.require(self.target)
            return Choice(method, sampler, "as asked for.")
        return self._among(method, form.loss)

    def _among(self, method: str | None, loss: Loss) -> Choice:
        """By what an effective draw costs, in entries of X; samplers that refuse the loss cost too much."""
        target, space, n = self.target, self.space, self.target.n
        entries = self.draws * target.row_entries
        split = 4.0 * n * entries if SplitHMC().refuses(loss) is None else math.inf
        rows = subsampled = math.inf
        if space.identity_hessian and SubsampledMH().refuses(loss) is None:
            rows = SubsampledMH().rows_of_step(space)
            subsampled = _RANDOM * 2 * rows / 0.4 * entries
        if method is None:
            choice = self._exact(split, subsampled, rows)
            if choice is not None:
                return choice
        kind, step = _BIASED[method or "anchored"]
        size = self._batch(step, 1.0)
        if method is None and size is None and split < math.inf:
            why = f"batches that keep the bias below {self.tolerance:g} would be nearly all rows."
            return Choice("split-hmc", SplitHMC(), why)
        gradient: Gradient = Full() if size is None else Minibatch(size, importance=True)
        why = "as asked for."
        if method is None:
            how = "full gradients" if size is None else f"batches of {size} rows, drawn by importance,"
            dear = (
                f"would need {min(split, subsampled):.2g} entries of X"
                if split < math.inf
                else f"is not known for {loss}"
            )
            why = f"{how} do; an exact sampler {dear}."
        return Choice(method or "anchored", Sampler(kind(step, 1.0, 1.0), gradient), why)

    def _exact(self, split: float, subsampled: float, rows: float) -> Choice | None:
        """An exact sampler where it is affordable, given what both need in entries of X."""
        n, draws = self.target.n, self.draws
        said = f"{split:.2g} entries of X for {draws} effective draws by full gradients"
        if not self.space.identity_hessian and split < math.inf:
            return Choice("split-hmc", SplitHMC(), f"exact full-gradient HMC is affordable ({said}).")
        far_cheaper = n * self.target.row_entries > _SMALL and subsampled <= split / _FAR_CHEAPER
        if split <= EXACT_WORK and not far_cheaper:
            return Choice("split-hmc", SplitHMC(), f"exact full-gradient HMC is affordable ({said}).")
        if subsampled <= min(EXACT_WORK / 4, split):
            why = f"exact, with about {rows:.0f} rows a step of the {n:,} there are."
            return Choice("subsampled-mh", SubsampledMH(), why)
        return None

    def _batch(self, step: float, friction: float) -> int | None:
        """B with hV₂/(2γB) ≤ δ/2, V₂ the largest variance of a row's remainder, and B ≥ hV₁/(4γ) for stability.

        None where that is nearly all rows.
        """
        space, n = self.space, self.target.n
        if not space.identity_hessian:
            return None
        z = Stream(self.seed, np.arange(_PILOT)).normals(0, space.dim, Purpose.DATA, Purpose.DATA_FINE)
        second = self.noise(Minibatch(1, importance=True), z, 1 << 20)
        first = float((space.curvatures**2 * space.row_norms**4 / space.row_table[2]).sum() / space.dim)
        size = max(step * second / (friction * self.tolerance), step * first / (4 * friction), 4.0)
        return None if size > n / 8 else math.ceil(size)

    def _for_components(self) -> Choice:
        """UBU with control variates at the mode where batches of a reasonable size do, else SVRG, else full
        gradients.
        """
        target, space, step = self.target, self.space, 0.3
        z = Stream(self.seed, np.arange(64)).normals(0, space.dim, Purpose.DATA, Purpose.DATA_FINE)
        noise = self.noise(ControlVariate(1), z, 1 << 20)
        size = math.ceil(max(step * noise / self.tolerance, 4.0))
        dynamics = UBU(step, 1.0, 1.0)
        if 2 * size <= target.n / 8:
            why = f"no Hessian is known; control variates at the mode, {size} rows a step, do."
            return Choice("ubu", Sampler(dynamics, ControlVariate(size)), why)
        period = (1.5 * self.tolerance * target.n / noise) ** (1 / 3)  # T* of the snapshot, in time
        epoch = max(1, round(period / step))
        if epoch >= 3 and target.n >= 4 * epoch:
            gradient = SVRG(max(1, target.n // (4 * epoch)), epoch)
            return Choice("ubu", Sampler(dynamics, gradient), f"no Hessian is known; snapshots every {epoch} steps do.")
        return Choice(
            "ubu", Sampler(dynamics, Full()), "no Hessian is known, and batches would be nearly all components."
        )
