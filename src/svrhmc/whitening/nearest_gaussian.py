"""The Gaussian law that is nearest to a posterior, for models whose mode is far from where their posterior lies.

Effects of groups whose scale σ is unknown are an example: in the variables (log σ, standardised effects) the density is
highest where σ is large and the effects are small, and next to nothing of the posterior is there.

Of all laws N(μ, Σ), Σ = WWᵀ, the one with the least KL(N(μ, Σ) ‖ π) = E f − log det W + const has

    E ∇f(x) = 0   and   E ∇²f(x) = Σ⁻¹,      x = μ + Wε,   ε ~ N(0, I),

and by Stein's identity E ε(Wᵀ∇f)ᵀ = Wᵀ E∇²f W, so that gradients at draws tell both. From N(μ, Σ) a step along the
natural gradient of length ρ is, with m = E Wᵀ∇f and A = E ε(Wᵀ∇f)ᵀ,

    Σ⁻¹ ← W⁻ᵀ((1 − ρ)I + ρA)W⁻¹,      μ ← μ − ρ W((1 − ρ)I + ρA)⁻¹m .

The draws of a step are new ones, and come in pairs ±ε. Eigenvalues of A are kept within a range, and so is the length
of a step, as the first ones are made where f is nothing like the quadratic that A stands for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, interquartile_sd
from svrhmc.core.deadline import Budget
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.recording import iterate_recorded
from svrhmc.models.model import STATES, Model
from svrhmc.whitening.maps import DenseWhitening, Whitening

MOST = 300  # coordinates for which it is looked for
POOR = 2.4  # the spread of f(μ + Wε) − ½|ε|² from which another law may be nearer
_STEP, _LEAST, _LARGEST = 0.3, 0.2, 5.0  # ρ, and the range of eigenvalues
_WINDOW, _WINDOWS, _GAIN = 10, 40, 0.1  # steps that are judged together, at most so many times; what they must gain
_LAST = 30  # steps that become shorter, at the end
_LONGEST = 30.0  # seconds, about, for the others


@np.errstate(over="ignore", invalid="ignore")  # draws of a law that is far too wide may lie where f is beyond float64
def find_nearest_gaussian(target: Model, at_mode: Whitening, spent: Budget, seconds: float) -> Whitening:
    """Variables in which the nearest Gaussian is N(0, I), where those `at_mode` are poor and these are twice as good;
    otherwise `at_mode` itself, also where the search would exceed the budget or take more than half a minute.

    seconds: of a pass over the rows. A poor law has a large spread of R = f(x) − ½|ε|² over draws of N(0, I), as R
    would be constant if the posterior were Gaussian.
    """
    count = STATES * max(1, -(-target.dim // (STATES // 2)))

    def covers(steps: int) -> bool:
        return spent.covers(steps * count * seconds, float(steps * count))

    if target.dim > MOST or not covers(1):
        return at_mode
    law = _Law(target, at_mode.centre, np.ascontiguousarray(at_mode.displace(np.eye(target.dim)).T), spent)
    before = _spread(law)
    if before < POOR:
        return at_mode
    affordable = _LONGEST / max(_WINDOW * count * seconds, 1e-300)

    def window(number: int, state: Any) -> Any:
        """Some steps. The state is centre, factor, KL before them, and the number of steps so far, or −1 where the
        budget does not cover more.
        """
        law.centre, law.factor, earlier, steps_made = state
        if not covers(_WINDOW + _LAST + 1):
            return law.centre, law.factor, earlier, -1.0, True
        now = float(np.mean([law.step(count, int(steps_made) + k, _STEP) for k in range(_WINDOW)]))
        return law.centre, law.factor, now, steps_made + _WINDOW, now > earlier - _GAIN

    def shorter(number: int, state: Any) -> Any:
        law.centre, law.factor = state
        law.step(count, int(steps_made) + number, _STEP / (1 + number / 5))
        return law.centre, law.factor, False

    start = (law.centre, law.factor, np.inf, 0.0)
    law.centre, law.factor, _, steps_made = iterate_recorded(window, start, int(min(_WINDOWS, affordable)))
    if steps_made < 0:
        return at_mode
    law.centre, law.factor = iterate_recorded(shorter, (law.centre, law.factor), _LAST if steps_made else 0)
    return DenseWhitening(law.centre, law.factor) if _spread(law) < before / 2 else at_mode


class _Law:
    """The current law N(μ, WWᵀ) of the search."""

    def __init__(self, target: Model, centre: Array, factor: Array, spent: Budget) -> None:
        self.target, self.centre, self.factor, self.spent = target, centre, factor, spent

    def at(self, count: int, number: int) -> tuple[Array, Array, Array]:
        """ε, R and Wᵀ∇f of `count` draws; where they are not finite, R is ∞ and Wᵀ∇f is 0."""
        half = Stream(0, np.arange(count // 2)).normals(number, len(self.centre), Purpose.DATA, Purpose.DATA_FINE)
        noise = np.concatenate([half, -half])
        self.spent.evaluations += float(count) * self.target.n
        blocks = (self.centre + noise @ self.factor.T).reshape(-1, STATES, len(self.centre))
        f, slopes = (np.concatenate(arrays) for arrays in zip(*map(self.target.energies, blocks), strict=True))
        sound = np.isfinite(f) & np.isfinite(slopes).all(axis=1)
        rest = np.where(sound, f, np.inf) - 0.5 * (noise * noise).sum(axis=1)
        return noise, rest, np.where(sound[:, None], slopes, 0.0) @ self.factor

    def step(self, count: int, number: int, rho: float) -> float:
        """One step; KL before it, up to a constant."""
        noise, rest, pulled = self.at(count, number)
        sound = np.isfinite(rest)
        if not 2 * sound.sum() > count:  # most draws are where f is not known
            self.factor = self.factor * 0.7
            return np.inf
        divergence = float(rest[sound].mean()) - float(np.linalg.slogdet(self.factor)[1])
        A = noise.T @ pulled / sound.sum()
        values, rotation = np.linalg.eigh((A + A.T) / 2)
        bent = (1 - rho) + rho * np.clip(values, _LEAST, _LARGEST)
        direction = -rho * (rotation / bent) @ (rotation.T @ (pulled.sum(axis=0) / sound.sum()))
        direction *= min(1.0, 0.5 * np.sqrt(len(direction)) / max(float(np.linalg.norm(direction)), 1e-300))
        self.centre = self.centre + self.factor @ direction
        self.factor = self.factor @ (rotation * bent**-0.5) @ rotation.T
        return divergence


def _spread(law: _Law) -> float:
    """The spread of R over some draws."""
    return interquartile_sd(law.at(STATES, 1 << 20)[1])
