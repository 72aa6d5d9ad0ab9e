"""How far off the reported moments can be, and the word for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array

_WIDTH = 2.5  # standard errors of one coordinate on each side
_AGREE, _FEW = 1.05, 100  # R-hat up to which chains agree, and effective draws below which that says little
DECIDED = ("exact", "certified", "unjudged")  # verdicts after which nothing else is tried
_CHANCE = 3.5  # times its mean that χ² of seven degrees of freedom is once in a thousand times
_NO_DOUBT = 1e-4  # chance that settled chains are said to contradict the gradients at their draws
_FALSE_ALARM = 0.01  # chance that any of all coordinates' tests refutes an unbiased run


@dataclass(frozen=True, eq=False)
class Bias:
    """A measured bias of each coordinate with its standard error: of the mean in posterior sd, and of the sd,
    relative.
    """

    mean: Array
    mean_error: Array
    sd: Array
    sd_error: Array

    def largest(self) -> tuple[float, float]:
        """The largest |bias| of a mean and of a standard deviation."""
        return float(np.abs(self.mean).max()), float(np.abs(self.sd).max())

    def upper(self, means: bool = True) -> float:
        """max(|bias| + 2.5 standard errors), of the means (if asked for) and the sds."""
        return float(max((np.abs(b) + _WIDTH * e).max() for b, e in self._tests(means)))

    def lower(self, means: bool = True) -> float:
        """max(|bias| − k standard errors), k so large that unbiased draws give more than 0 once in a hundred runs."""
        return float(max((np.abs(b) - self.width() * e).max() for b, e in self._tests(means)))

    def more(self, tolerance: float, means: bool = True) -> float:
        """How many times the draws it would take for the upper end to fall below the tolerance, if the bias is what
        these draws prove and no more; infinite where that is above the tolerance."""
        factor = 1.0
        for b, e in self._tests(means):
            room = tolerance - np.maximum(np.abs(b) - self.width() * e, 0.0)
            if (room <= 0).any():
                return math.inf
            factor = max(factor, float((((_WIDTH + 1) * e / room) ** 2).max()))
        return factor

    def verdict(self, tolerance: float, means: bool = True) -> str:
        """ "certified" where no bias can be above the tolerance, "refuted" where one is, else "undecided"."""
        if self.lower(means) > tolerance:
            return "refuted"
        return "certified" if self.upper(means) < tolerance else "undecided"

    def width(self, chance: float = _FALSE_ALARM) -> float:
        """Standard errors beyond which none of all the tests of an unbiased run lies, but with this chance."""
        from scipy.special import ndtri

        return float(-ndtri(chance / (4 * len(self.mean))))

    def contradicts(self) -> bool:
        """Whether these numbers, whose mean should be 0, have another, beyond any doubt."""
        width = self.width(_NO_DOUBT)
        return any(bool((np.abs(b) > width * e).any()) for b, e in self._tests(True))

    def _tests(self, means: bool) -> list[tuple[Array, Array]]:
        both = [(self.mean, self.mean_error), (self.sd, self.sd_error)]
        return both if means else both[1:]


@dataclass(frozen=True, eq=False)
class Measured:
    """What pairs of chains say: of the draws by their balance and by halving the step, of the corrected moments by
    halving the step. Where states are recorded at the kick, the balance says nothing of the means.
    """

    balance: Bias
    halving: Bias
    corrected: Bias
    sighted: bool
    effective: float  # draws, of all pairs

    def draws(self, tolerance: float) -> str:
        """The verdict on the draws."""
        found = {self.balance.verdict(tolerance, self.sighted), self.halving.verdict(tolerance)}
        return next(word for word in ("refuted", "undecided", "certified") if word in found)

    def explains(self, stein: Bias, tolerance: float) -> bool:
        """Whether the draws are as far from the corrected moments as their bias makes them, within chance."""
        known = np.abs(self.halving.mean) + _WIDTH * self.halving.mean_error + tolerance
        return bool((np.abs(stein.mean) - stein.width(_NO_DOUBT) * stein.mean_error <= 2 * known).all())


@dataclass(frozen=True, eq=False)
class Certificate:
    """A verdict on the moments that are reported, with what it rests on.

    verdict: "exact" (the sampler leaves π itself invariant and its chains agree with each other and with Stein's
        identities: only Monte Carlo error), "certified" (the bias of every reported mean and sd is below the
        tolerance with its 2.5 standard errors), "refuted" (one is above it beyond doubt), "undecided" (see `reason`),
        or "unjudged" (`certificate=False`).
    draws: the same word for the draws themselves.
    draws_needed: effective draws with which the bias of an undecided run could be told, where more of them could.
    corrects: whether the corrected moments are the ones reported; not where they contradict the draws.
    stein: the means of Stein's identities over the draws. measured: what pairs of chains say of a sampler that has a
        bias; None for one that has none.
    """

    verdict: str
    tolerance: float
    stein: Bias
    measured: Measured | None = None
    draws: str = ""
    reason: str = ""
    draws_needed: int | None = None
    corrects: bool = True

    @property
    def balance(self) -> Bias | None:
        """The bias of the draws, by their balance."""
        return None if self.measured is None else self.measured.balance

    @property
    def halving(self) -> Bias | None:
        """The bias of the draws, by halving the step."""
        return None if self.measured is None else self.measured.halving

    @property
    def reported(self) -> Bias | None:
        """The bias of the corrected moments, by halving the step."""
        return None if self.measured is None else self.measured.corrected

    def __str__(self) -> str:
        return f"{self.verdict}: {self.because()}"

    def because(self) -> str:
        """How biased the reported numbers can be, and why one can believe it."""
        if self.measured is None:
            return self.reason or _WORDS[self.verdict]
        found, seen = self.measured.corrected, self.measured.balance
        mean, sd = found.largest()
        m, s = (max(pair) for pair in zip(seen.largest(), self.measured.halving.largest(), strict=True))
        said = (
            f"half the step moves them by no more than a bias of {mean:.2g} sd in a mean and {sd:.2g} of an sd would "
            f"(± {_WIDTH * max(float(found.mean_error.max()), float(found.sd_error.max())):.2g}, tolerance "
            f"{self.tolerance:g}); the draws themselves are biased by up to {m:.2g} and {s:.2g} ({self.draws})"
        )
        if self.reason:
            said += f"; {self.reason}"
        if self.draws_needed is not None:
            said += f"; about {self.draws_needed:,} effective draws of the measurement would decide"
        return said


_WORDS = {
    "exact": "the sampler leaves the posterior invariant, its chains agree, and the gradients at their draws average "
    "to what they must",
    "unjudged": "no measure of the bias was asked for",
}


def judge(stein: Bias, measured: Measured, tolerance: float) -> Certificate:
    """The verdict on a sampler that has a bias."""
    verdict, draws, reason = measured.corrected.verdict(tolerance), measured.draws(tolerance), ""
    needed = None
    if verdict == "undecided" and not math.isinf(factor := measured.corrected.more(tolerance)):
        needed = math.ceil(factor * measured.effective / 100) * 100
    agrees = measured.explains(stein, tolerance)
    if not agrees:
        verdict, reason = "undecided", "the correction differs from the draws by more than their bias: it is left out"
    return Certificate(verdict, tolerance, stein, measured, draws, reason, needed, agrees)


def unmeasured(tolerance: float, stein: Bias) -> Certificate:
    """Before anything was measured."""
    return Certificate(
        "undecided", tolerance, stein, None, "undecided", "the budget ended before the bias was measured"
    )


def unjudged(tolerance: float, dim: int) -> Certificate:
    """Where no verdict was asked for."""
    nothing = np.full(dim, np.nan)
    return Certificate("unjudged", tolerance, Bias(nothing, nothing, nothing, nothing), None, "unjudged")


def judge_invariant(
    stein: Bias, tolerance: float, effective: Array, r_hat: Array, wanted: int, chains: int = 4
) -> Certificate:
    """The verdict on a sampler that leaves π invariant: exact only where its chains agree with each other, and with
    Stein's identities.

    By chance alone R-hat² of m halves of chains is about 1 + (m/ess) χ²/(m − 1), which counts where few draws were
    asked for.
    """
    fewest, worst = float(effective.min()), float(r_hat.max())
    reason, chance = "", math.sqrt(1 + _CHANCE * 2 * chains / max(fewest, 1.0))
    if not (worst <= max(_AGREE, chance) and fewest >= min(_FEW, wanted)):
        reason = (
            f"the sampler leaves the posterior invariant, but its chains have not settled (R-hat up to {worst:.3g}, "
            f"{fewest:.0f} effective draws at the least): the posterior may be improper or nearly so, or need more"
        )
    elif stein.contradicts():
        mean, sd = stein.largest()
        reason = (
            "the sampler leaves the posterior invariant, but its draws do not agree with the gradients at them (off by "
            f"up to {mean:.2g} sd in a mean and {sd:.2g} in an sd, beyond chance): it may not have seen a tail yet"
        )
    word = "undecided" if reason else "exact"
    return Certificate(word, tolerance, stein, None, word, reason, corrects=not reason)
