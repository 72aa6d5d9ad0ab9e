"""Priors that shrink many coefficients together: most of them nearly to 0, or to 0, a few hardly at all.

The laws of their variances are in `svrhmc.priors.local_scales`. The columns should have the same scale: `fit` and
`regress` standardise them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from svrhmc.core.arrays import Array
from svrhmc.core.errors import positive, requirement
from svrhmc.priors.local_scales import HorseshoeScales, LocalScales, R2D2Scales, SpikeScales
from svrhmc.priors.terms import Prior, require_ordinary


class Joint(Prior):
    """A prior of several coefficients, which share unknown parameters."""

    joint = True
    in_units_of_y: ClassVar[str] = ""  # the name of the setting in units of y, if there is one

    def of(self, j: int) -> tuple[float, float]:
        """Precision 0 and mean 0, as a single coordinate has no prior of its own."""
        return 0.0, 0.0

    def scaled(self, factor: float) -> Self:
        """The prior in other units of y."""
        name = self.in_units_of_y
        return replace(self, **{name: getattr(self, name) * factor}) if name else self  # type: ignore[type-var]

    def on_columns(self, scale: Array, size: float) -> list[Prior]:
        """The same prior for all columns, as they are standardised, in units of y."""
        return [self.scaled(size)] * len(scale)

    def shifted(self, by: float) -> Prior:
        """Refused, as an intercept takes a prior of its own."""
        why = "it is one of many coefficients; an intercept takes Normal, StudentT, Laplace or Flat"
        raise requirement("the prior of an intercept", "one of a single number", repr(self), why)

    @property
    def spread(self) -> tuple[float, float]:
        """That of a flat prior, as a single coefficient has no known width."""
        return 0.0, float("inf")


class Shrinking(Joint):
    """A joint prior whose coefficients are normal given a variance of each."""

    @abstractmethod
    def scales(self, count: int, rows: float) -> LocalScales:
        """The law of the variances of `count` coefficients, for a number of rows."""


def _require_few(expected: float, count: int) -> None:
    if not expected < count:
        allowed = f"below {count:,}, the number of coefficients that have this prior"
        raise requirement("expected", allowed, f"{expected:g}", "with a wide normal prior none is shrunk")


@dataclass(frozen=True)
class Horseshoe(Shrinking):
    """The regularised horseshoe of the coefficients that have it, which share its scales.

    expected: about how many of them are thought not to be near 0; below their number. It need not be whole.
    slab_scale, slab_df: scale and degrees of freedom of the law of those: in `fit` and `regress` for a change of a
        column by its standard deviation, in standard deviations of y (of events: in log odds).

    >>> Horseshoe(expected=5)
    Horseshoe(expected=5, slab_scale=2.0, slab_df=4.0)
    """

    in_units_of_y = "slab_scale"
    expected: float
    slab_scale: float = 2.0
    slab_df: float = 4.0

    def __post_init__(self) -> None:
        for name in ("expected", "slab_scale", "slab_df"):
            require_ordinary(name, getattr(self, name))

    def scales(self, count: int, rows: float) -> HorseshoeScales:
        """The law with τ₀ for this number of coefficients and rows."""
        _require_few(self.expected, count)
        global_scale = self.expected / ((count - self.expected) * rows**0.5)
        return HorseshoeScales(count, rows, float(global_scale), self.slab_scale, self.slab_df)


@dataclass(frozen=True)
class R2D2(Shrinking):
    """A prior of R², the share of the variance of y that the predictors explain, which the coefficients divide.

    mean_r2, precision_r2: of R² ~ Beta(mean_r2·precision_r2, (1 − mean_r2)·precision_r2).
    concentration: of the Dirichlet law of the coefficients' shares; the smaller, the fewer have most of it.

    As `R2D2(mean_R2, prec_R2, cons_D2)` of brms. Of events R² is that of the log odds with logistic noise, of variance
    π²/3, where brms takes 1.

    >>> R2D2(mean_r2=0.3)
    R2D2(mean_r2=0.3, precision_r2=2.0, concentration=0.5)
    """

    mean_r2: float = 0.5
    precision_r2: float = 2.0
    concentration: float = 0.5

    def __post_init__(self) -> None:
        require_ordinary("precision_r2", self.precision_r2)
        require_ordinary("concentration", self.concentration)
        if not 0 < positive("mean_r2", self.mean_r2) < 1:
            raise requirement("mean_r2", "a share between 0 and 1", repr(self.mean_r2))

    def scales(self, count: int, rows: float) -> R2D2Scales:
        """Of so many coefficients."""
        a = self.mean_r2 * self.precision_r2
        return R2D2Scales(count, rows, self.concentration, a, self.precision_r2 - a)


@dataclass(frozen=True)
class SpikeAndSlab(Shrinking):
    """Coefficients that are 0, but for some, of which it is unknown which and how many: these are normal.

    expected: the prior mean of how many are not 0; below their number. How many there are has a wide prior: each is
        not 0 with one probability π ~ Beta(1, p/expected − 1), p being their number.
    slab_scale: the standard deviation of those: in `fit` and `regress` for a change of a column by its standard
        deviation, in standard deviations of y (of events: in log odds). A slab twice as wide halves the odds that a
        coefficient of which the rows say much is not 0.

    >>> SpikeAndSlab(expected=5)
    SpikeAndSlab(expected=5, slab_scale=1.0)
    """

    in_units_of_y = "slab_scale"
    expected: float
    slab_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("expected", "slab_scale"):
            require_ordinary(name, getattr(self, name))

    def scales(self, count: int, rows: float) -> SpikeScales:
        """Of so many coefficients."""
        _require_few(self.expected, count)
        return SpikeScales(count, rows, self.slab_scale, count / self.expected - 1)


@dataclass(frozen=True)
class LearntScale(Joint):
    """N(0, τ²) of all coefficients that have it, with an unknown τ that is sampled with them.

        βⱼ ~ N(0, τ²),    τ ~ half-Student-t(df, scale).

    scale, df: in `fit` and `regress` for a change of a column by its standard deviation, in standard deviations of y
        (of events: in log odds). Where there are several classes, none of them is special: each has coefficients of its
        own with this prior, of which the differences to the first are reported.

    >>> LearntScale()
    LearntScale(scale=1.0, df=4.0)
    """

    in_units_of_y = "scale"
    scale: float = 1.0
    df: float = 4.0

    def __post_init__(self) -> None:
        for name in ("scale", "df"):
            require_ordinary(name, getattr(self, name))


def joint_prior(priors: Prior | Sequence[Prior], count: int) -> tuple[Shrinking | LearntScale, list[int]] | None:
    """The joint prior of some coefficients and the indices of those that have it; None where none has one."""
    listed = list(priors) if isinstance(priors, Sequence) else [priors] * count
    places = [j for j, prior in enumerate(listed) if getattr(prior, "joint", False)]  # others are refused elsewhere
    if not places:
        return None
    first = listed[places[0]]
    if not isinstance(first, Shrinking | LearntScale):
        allowed = "Horseshoe(…), R2D2(…), SpikeAndSlab(…) or LearntScale(), where it couples coefficients"
        raise requirement("prior", allowed, repr(first))
    for j in places:
        if listed[j] != first:
            why = "coefficients that share a prior share its settings"
            raise requirement("prior", f"{first!r} for all that have a joint prior", repr(listed[j]), why)
    return first, places
