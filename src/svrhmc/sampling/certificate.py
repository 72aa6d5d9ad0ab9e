"""How far off the reported moments can be, and the verdict on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from svrhmc.core.arrays import Array, require_equal_lengths
from svrhmc.core.errors import one_of, positive, requirement, whole_number

_WIDTH = 2.5  # standard errors of one coordinate on each side
SOUND = ("exact", "certified", "local")  # verdicts that the reported numbers are right, as far as modes are known
DECIDED = (*SOUND, "unjudged")  # verdicts after which nothing else is tried
_FOR_CHANCE = 0.6  # of the tolerance, for errors by chance; the rest is for a bias
_NO_DOUBT = 1e-4  # chance that settled chains are said to contradict the gradients at their draws
_FALSE_ALARM = 0.01  # chance that any of all coordinates' tests refutes an unbiased run


@dataclass(frozen=True, eq=False)
class Bias:
    """The measured bias of each coordinate with its standard error: for the mean in posterior standard deviations, for
    the standard deviation relative to it.
    """

    mean: Array
    mean_error: Array
    sd: Array
    sd_error: Array

    def require_sound(self) -> None:
        """Refuse arrays of unequal shapes."""
        require_equal_lengths(self)

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
        """How many times the draws are needed for the upper end to fall below the tolerance, if the bias is no larger
        than these draws prove; infinite if that is above the tolerance."""
        factor = 1.0
        for b, e in self._tests(means):
            margin = tolerance - np.maximum(np.abs(b) - self.width() * e, 0.0)
            if (margin <= 0).any():
                return math.inf
            factor = max(factor, float((((_WIDTH + 1) * e / margin) ** 2).max()))
        return factor

    def with_chance(self, mean_error: Array, sd_error: Array) -> Bias:
        """The same bias of numbers that have errors of their own, by chance."""
        return Bias(self.mean, np.hypot(self.mean_error, mean_error), self.sd, np.hypot(self.sd_error, sd_error))

    def verdict(self, tolerance: float, means: bool = True) -> str:
        """ "certified" where no bias can be above the tolerance, "refuted" where one is, else "undecided"."""
        if self.lower(means) > tolerance:
            return "refuted"
        return "certified" if self.upper(means) < tolerance else "undecided"

    def width(self, chance: float = _FALSE_ALARM) -> float:
        """Standard errors that some test of an unbiased run exceeds with this probability only."""
        from scipy.special import ndtri

        return float(-ndtri(chance / (4 * len(self.mean))))

    def contradicts(self) -> bool:
        """Whether the mean of these numbers, which should be 0, certainly is not."""
        width = self.width(_NO_DOUBT)
        return any(bool((np.abs(b) > width * e).any()) for b, e in self._tests(True))

    def _tests(self, means: bool) -> list[tuple[Array, Array]]:
        pairs = [(self.mean, self.mean_error), (self.sd, self.sd_error)]
        return pairs if means else pairs[1:]


@dataclass(frozen=True, eq=False)
class Measured:
    """The bias as measured by pairs of chains: that of the draws by their balance and by halving the step, that of the
    corrected moments by halving the step. sighted: whether the balance shows a bias of the means, which it does not if
    states are recorded at the kick.
    """

    balance: Bias
    halving: Bias
    corrected: Bias
    sighted: bool
    effective: float  # draws, of all pairs

    def draws(self, tolerance: float) -> str:
        """The verdict on the draws."""
        verdicts = {self.balance.verdict(tolerance, self.sighted), self.halving.verdict(tolerance)}
        return next(word for word in ("refuted", "undecided", "certified") if word in verdicts)

    def explains(self, stein: Bias, tolerance: float) -> bool:
        """Whether the draws are as far from the corrected moments as their bias makes them, within chance."""
        width = stein.width(_NO_DOUBT)
        return all(
            bool((np.abs(observed) - width * error <= 2 * (np.abs(bias) + _WIDTH * bias_error + tolerance)).all())
            for observed, error, bias, bias_error in (
                (stein.mean, stein.mean_error, self.halving.mean, self.halving.mean_error),
                (stein.sd, stein.sd_error, self.halving.sd, self.halving.sd_error),
            )
        )


@dataclass(frozen=True, eq=False)
class Certificate:
    """A verdict on the reported means and standard deviations, with what it rests on.

    verdict: "exact" (the sampler has no bias, and its chains agree with each other and with Stein's identities, so that
        only Monte Carlo error remains), "certified" (every reported mean and sd is off by less than the tolerance,
        counting its bias and 2.5 standard errors of the bias and of chance together), "local" (one of these two holds
        for the modes that were found, and nothing shows that the posterior has no other), "refuted" (a bias is above
        the tolerance beyond doubt), "undecided" (see `reason`), or "unjudged" (you passed `certificate=False`).
    tolerance: the error that was to be accepted.
    stein: the means of Stein's identities over the draws.
    measured: what pairs of chains say about a sampler that has a bias; None for a sampler without one.
    draws: the verdict on the draws themselves, in the same words.
    reason: why an undecided run could not be decided.
    draws_needed: how many effective draws would decide an undecided run, if more draws can.
    corrects: whether the corrected moments are the reported ones. They are not if they contradict the draws.
    modes: why the posterior is known to have one mode, or else how many were found, and from where.
    """

    verdict: str
    tolerance: float
    stein: Bias
    measured: Measured | None = None
    draws: str = ""
    reason: str = ""
    draws_needed: int | None = None
    corrects: bool = True
    modes: str = ""

    @property
    def passed(self) -> bool:
        """Whether the reported means and sds are right as far as is known: "exact", "certified" or "local". A gate for
        production: `posterior.certificate.passed and posterior.complete`.
        """
        return self.verdict in SOUND

    def __bool__(self) -> bool:
        raise TypeError("a certificate is neither true nor false: use certificate.passed, or certificate.verdict.")

    def require_sound(self) -> None:
        """Refuse words that are no verdict, and biases of other coordinates."""
        one_of("verdict", self.verdict, (*_WORDS, "local"))
        one_of("draws", self.draws, ("", *_WORDS, "local"))
        positive("tolerance", self.tolerance)
        if self.draws_needed is not None:
            whole_number("draws_needed", self.draws_needed, 0)
        elif self.reason and self.measured is not None and self.corrects:
            raise requirement("draws_needed", "given where draws are the reason", None)
        measured = self.measured
        counts = (
            [] if measured is None else [len(b.mean) for b in (measured.balance, measured.halving, measured.corrected)]
        )
        if any(count != len(self.stein.mean) for count in counts):
            raise requirement("measured", "of as many coordinates as stein", counts)

    @property
    def balance(self) -> Bias | None:
        """The bias of the draws, measured by their balance."""
        return None if self.measured is None else self.measured.balance

    @property
    def halving(self) -> Bias | None:
        """The bias of the draws, measured by halving the step."""
        return None if self.measured is None else self.measured.halving

    @property
    def reported(self) -> Bias | None:
        """The bias of the reported moments, measured by halving the step."""
        if self.measured is None:
            return None
        return self.measured.corrected if self.corrects else self.measured.halving

    def knowing(self, one_mode: str | None, count: int, starts: str) -> Certificate:
        """The same for a posterior that is known to have one mode, or of which `count` modes were found from some
        starts: then the verdict holds for these.
        """
        if one_mode is not None:
            return replace(self, modes=f"the posterior has one mode, because {one_mode}")
        words = {"exact": "local", "certified": "local"}
        modes = f"{count} mode{'s' if count > 1 else ''} found from {starts}"
        verdict, draws = (words.get(word, word) for word in (self.verdict, self.draws))
        return replace(self, verdict=verdict, draws=draws, modes=modes)

    def __str__(self) -> str:
        return f"{self.verdict}: {self.because()}"

    def brief(self) -> str:
        """The verdict in a few words; a run that is undecided says why."""
        words = _BRIEF.get(self._underlying_verdict, "").format(tolerance=f"{self.tolerance:g}")
        if words and self.verdict == "local":
            words += f"; {self.modes}, and nothing shows that there is no other"
        return f"{self.verdict}: {words or self.because()}"

    @property
    def _underlying_verdict(self) -> str:
        """The verdict for the modes that were found: "exact" or "certified" if it is "local"."""
        if self.verdict != "local":
            return self.verdict
        return "exact" if self.measured is None else "certified"

    def because(self) -> str:
        """How large the bias of the reported numbers can be, why, and what is known of modes."""
        if self.verdict == "local":
            return f"{self._bias_in_words()}; {self.modes}, and nothing shows that there is no other"
        return (
            f"{self._bias_in_words()}; {self.modes}" if self.modes and self.verdict in SOUND else self._bias_in_words()
        )

    def _bias_in_words(self) -> str:
        if self.measured is None or not self.corrects:
            return self.reason or _WORDS[self._underlying_verdict]
        measured, corrected = self.measured, self.measured.corrected
        mean, sd = corrected.largest()
        about = "about" if self.verdict == "refuted" else "no more than"
        m, s = (max(pair) for pair in zip(measured.balance.largest(), measured.halving.largest(), strict=True))
        error = max(float(corrected.mean_error.max()), float(corrected.sd_error.max()))
        sentence = (
            f"{_WORDS[self._underlying_verdict]}, which puts their bias at {about} {mean:.2g} sd in a mean and "
            f"{sd:.2g} in an sd (± {_WIDTH * error:.2g}; tolerance {self.tolerance:g}); the draws themselves are "
            f"biased by up to {m:.2g} and {s:.2g} ({self.draws})"
        )
        if self.reason:
            sentence += f"; {self.reason}, about {self.draws_needed:,} effective ones"
        elif self.draws_needed is not None:
            used = f"{measured.effective:,.0f}"
            sentence += (
                f"; a decision would take about {self.draws_needed:,} effective draws in this check, which used {used}"
            )
        return sentence


_FEW_DRAWS = "but chance alone can put them off by more than the tolerance, so more draws are needed"
_WORDS = {
    "exact": "the sampler leaves the posterior invariant, so that it has no bias; its chains agree; and the average "
    "gradient of the log posterior at the draws is zero within chance, as it is for draws from the posterior",
    "unjudged": "the bias was not measured, because certificate=False",
    "certified": "chains with half the step give the same numbers within the tolerance",
    "refuted": "chains with half the step give different numbers",
    "undecided": "chains with half the step do not decide it",
}
_BRIEF = {
    "exact": "the sampler has no bias, and its chains agree",
    "certified": "no mean and no sd is off by more than {tolerance} posterior sd",
    "refuted": "some mean or sd is off by more than {tolerance} posterior sd, so do not use these numbers",
}


@dataclass(frozen=True, eq=False)
class Chance:
    """Monte Carlo errors of what is reported, in posterior sd, and the effective draws behind them."""

    mean: Array
    sd: Array
    effective: float

    def draws_factor(self, tolerance: float) -> float:
        """How many times the draws are needed for errors that leave room for a bias."""
        worst = max(float(self.mean.max()), float(self.sd.max()))
        return max(1.0, (_WIDTH * worst / (_FOR_CHANCE * tolerance)) ** 2)


def judge(stein: Bias, measured: Measured, tolerance: float, chance: Chance, doubt: str = "") -> Certificate:
    """The verdict on a sampler that has a bias; undecided if there is a doubt about its draws.

    Certified moments are off by less than the tolerance, by bias and chance together.
    """
    draws = measured.draws(tolerance)
    if not (doubt or measured.explains(stein, tolerance)):
        doubt = "the corrected moments contradict the draws, so the moments of the draws are reported"
    if doubt:
        words = "refuted" if draws == "refuted" else "undecided"
        return Certificate("undecided", tolerance, stein, measured, words, doubt, corrects=False)
    verdict, needed = measured.corrected.verdict(tolerance), None
    if verdict == "undecided" and not math.isinf(factor := measured.corrected.more(tolerance)):
        needed = math.ceil(factor * measured.effective / 100) * 100
    elif verdict == "certified" and measured.corrected.with_chance(chance.mean, chance.sd).upper() >= tolerance:
        needed = math.ceil(1.2 * chance.draws_factor(tolerance) * chance.effective / 100) * 100
        return Certificate("undecided", tolerance, stein, measured, draws, _FEW_DRAWS, needed)
    return Certificate(verdict, tolerance, stein, measured, draws, "", needed)


def unknown_bias(dim: int) -> Bias:
    """The bias of moments whose errors are unknown."""
    zero, unknown = np.zeros(dim), np.full(dim, np.inf)
    return Bias(zero, unknown, zero, unknown)


def unmeasured(tolerance: float, stein: Bias, doubt: str = "") -> Certificate:
    """The verdict before any bias was measured."""
    reason = doubt or "the budget ended before the bias was measured"
    return Certificate("undecided", tolerance, stein, None, "undecided", reason, corrects=not doubt)


def unjudged(tolerance: float, stein: Bias, doubt: str = "") -> Certificate:
    """The verdict if none was asked for."""
    return Certificate("unjudged", tolerance, stein, None, "unjudged", doubt, corrects=not doubt)


def judge_invariant(stein: Bias, tolerance: float, doubt: str = "") -> Certificate:
    """The verdict on a sampler that leaves π invariant: exact only where its chains agree with each other, and with
    Stein's identities.
    """
    if not doubt and stein.contradicts():
        mean, sd = stein.largest()
        doubt = (
            f"the draws do not agree with the gradients at them (off by up to {mean:.2g} sd in a mean and {sd:.2g} in "
            "an sd, beyond chance): the chains may not have visited a tail yet, or the density ends or jumps at some "
            "bound (write a parameter with bounds as a function of one without, such as its logarithm)"
        )
    reason = f"the sampler leaves the posterior invariant, but {doubt}" if doubt else ""
    word = "undecided" if doubt else "exact"
    return Certificate(word, tolerance, stein, None, word, reason, corrects=not doubt)
