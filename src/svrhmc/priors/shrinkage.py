"""Priors that shrink many coefficients together: most of them nearly to 0, a few hardly at all.

The regularised horseshoe (Piironen & Vehtari, Electronic Journal of Statistics 11, 2017) of p coefficients βⱼ:

    βⱼ ~ N(0, vⱼ),    1/vⱼ = 1/(τλⱼ)² + 1/c²,    λⱼ ~ C⁺(0, 1),    τ ~ C⁺(0, τ₀σ̃),    c² ~ InvGamma(ν/2, νs²/2),

    τ₀ = p₀/((p − p₀)√n),        p₀ = expected, the number of effects that are thought not to be near 0.

A coefficient whose τλⱼ is far below the slab's c is drawn to 0; one far above it has the prior N(0, c²), and with c
unknown Student's t of ν degrees of freedom and scale s. σ̃ is the standard deviation of the noise, and for events
1/√(p̄(1 − p̄)) with p̄ their share. The columns are to have one scale: `fit` and `regress` standardise them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.priors.terms import Prior, require_ordinary


@dataclass(frozen=True)
class Horseshoe(Prior):
    """The regularised horseshoe of the coefficients that have it, which share its scales.

    expected: about how many of them are thought not to be near 0; below their number. It need not be whole.
    slab_scale, slab_df: scale and degrees of freedom of the law of those: in `fit` and `regress` for a change of a
        column by its standard deviation, in standard deviations of y (of events: in log odds).

    >>> Horseshoe(expected=5)
    Horseshoe(expected=5, slab_scale=2.0, slab_df=4.0)
    """

    joint = True
    expected: float
    slab_scale: float = 2.0
    slab_df: float = 4.0

    def __post_init__(self) -> None:
        for name in ("expected", "slab_scale", "slab_df"):
            require_ordinary(name, getattr(self, name))

    def of(self, j: int) -> tuple[float, float]:
        """No prior of a coordinate by itself."""
        return 0.0, 0.0

    def scaled(self, factor: float) -> Horseshoe:
        """The slab times the factor."""
        return replace(self, slab_scale=self.slab_scale * factor)

    def on_columns(self, scale: Array, size: float) -> list[Prior]:
        """The same for all columns, as they are standardised; its slab is in units of y."""
        return [self.scaled(size)] * len(scale)

    def shifted(self, by: float) -> Prior:
        """Refused: it is no prior of an intercept."""
        why = "it is one of many coefficients that may be near 0; an intercept takes Normal, StudentT, Laplace or Flat"
        raise requirement("the prior of an intercept", "one of a single number", repr(self), why)

    @property
    def spread(self) -> tuple[float, float]:
        """As of a flat one: no width is its own."""
        return 0.0, float("inf")

    def global_scale(self, count: int, rows: float) -> float:
        """τ₀, for so many coefficients and rows."""
        if not self.expected < count:
            allowed = f"below {count:,}, the number of coefficients that have this prior"
            raise requirement("expected", allowed, f"{self.expected:g}", "with a wide normal prior none is shrunk")
        return float(self.expected / ((count - self.expected) * rows**0.5))


@dataclass(frozen=True)
class LearntScale(Prior):
    """N(0, τ²) of all coefficients that have it, with an unknown τ that is sampled with them.

        βⱼ ~ N(0, τ²),    τ ~ half-Student-t(df, scale).

    scale, df: in `fit` and `regress` for a change of a column by its standard deviation, in standard deviations of y
        (of events: in log odds). Where there are several classes, none of them is special: each has coefficients of its
        own with this prior, of which the differences to the first are reported.

    >>> LearntScale()
    LearntScale(scale=1.0, df=4.0)
    """

    joint = True
    scale: float = 1.0
    df: float = 4.0

    def __post_init__(self) -> None:
        for name in ("scale", "df"):
            require_ordinary(name, getattr(self, name))

    def of(self, j: int) -> tuple[float, float]:
        """No prior of a coordinate by itself."""
        return 0.0, 0.0

    def scaled(self, factor: float) -> LearntScale:
        """The scale of τ times the factor."""
        return replace(self, scale=self.scale * factor)

    def on_columns(self, scale: Array, size: float) -> list[Prior]:
        """The same for all columns, as they are standardised; in units of y."""
        return [self.scaled(size)] * len(scale)

    def shifted(self, by: float) -> Prior:
        """Refused: it is no prior of an intercept."""
        why = "it is one of many coefficients; an intercept takes Normal, StudentT, Laplace or Flat"
        raise requirement("the prior of an intercept", "one of a single number", repr(self), why)

    @property
    def spread(self) -> tuple[float, float]:
        """As of a flat one: no width is its own."""
        return 0.0, float("inf")


def joint_prior(priors: Prior | Sequence[Prior], count: int) -> tuple[Horseshoe | LearntScale, list[int]] | None:
    """The one joint prior among those of some coefficients, and which have it; None where none has one."""
    each = list(priors) if isinstance(priors, Sequence) else [priors] * count
    places = [j for j, one in enumerate(each) if getattr(one, "joint", False)]  # others are refused elsewhere
    if not places:
        return None
    first = each[places[0]]
    if not isinstance(first, Horseshoe | LearntScale):
        raise requirement("prior", "Horseshoe(…) or LearntScale(), where it couples coefficients", repr(first))
    for j in places:
        if each[j] != first:
            why = "coefficients that share a prior share its settings"
            raise requirement("prior", f"{first!r} for all that have a joint prior", repr(each[j]), why)
    return first, places
