"""Priors: sums over coordinates, each normal, flat, Student-t or Laplace; and those of positive numbers.

    −log p(x) = ½ (x − p)ᵀΛ(x − p) + Σ_{j ∈ J} ψⱼ(xⱼ) + constant,         d = x − location, s = scale:

    normal     Λⱼ = precision, pⱼ = mean          folded into quadratics, as before
    flat       Λⱼ = 0                             where the data alone make the posterior proper
    Student-t  ψ = (ν + 1)/2 · log(1 + d²/(νs²))       ψ″ from −(ν + 1)/(8νs²) to (ν + 1)/(νs²)
    Laplace    ψ = (√(d² + ε²) − ε)/s                  ψ″ from 0 to 1/(sε)

A Laplace density has a kink at its location, where no gradient is: it is *smoothed* over ε = smoothing·scale, which
makes it the hyperbolic density. Within a few ε of the location it is rounder than Laplace's, and beyond it is the same.
A spread σ or a shape is positive, and its coordinate is τ = log σ. A prior p(σ) is one of τ by the change of variables
dσ = e^τ dτ: −log p(τ) = −log p(e^τ) − τ. With d = τ − log s,

    half normal, p(σ) ∝ e^{−σ²/2s²}                         ψ = e^{2d}/2 − d
    exponential, p(σ) ∝ e^{−σ/s}, s = 1/rate                ψ = e^d − d
    half Student-t, p(σ) ∝ (1 + σ²/(νs²))^{−(ν + 1)/2}      ψ = (ν + 1)/2 · log(1 + e^{2d}/ν) − d

(half Cauchy: ν = 1). All are convex in τ: the first two are ψ = e^{kd}/k − d with k = 2 and 1, ψ″ = ke^{kd}, and the
third has ψ″ = 2ν(ν + 1)e^{2d}/(ν + e^{2d})², from 0 to (ν + 1)/2.

The gradient of a prior is exact in every sampler: it is never subsampled. A user gives one prior for all columns, or
a list with one for each.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, wraps
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, digest
from svrhmc.core.errors import deprecated, finite, nonnegative, positive, real_array, requirement

_RANGE = (1e-50, 1e50)  # of scales and shapes
_PEAKED, _FOOT = (
    5.0,
    0.05,
)  # the least ratio of the width of a foot to its peak, and its least share of the second moment
_DIFFERENCE = 1e-5  # step of the differences by which derivatives of a term are checked
_WIDEST = 1e6  # the largest ratio of widths
STUDENT, LAPLACE, HALF_STUDENT, HALF_POWER = 1, 2, 3, 4  # kinds of ψ, as compiled code has them


class Prior(ABC):
    """The prior of one coordinate, or of all."""

    positive: ClassVar[bool] = False  # whether it is the prior of a positive number, whose logarithm is the coordinate
    by_data: ClassVar[bool] = False  # whether it follows the scale of the data, as default priors do
    joint: ClassVar[bool] = False  # whether all coefficients with it share unknown parameters (`shrinkage.py`)

    @abstractmethod
    def of(self, j: int) -> tuple[float, float] | tuple[int, float, float, float]:
        """The parameters for coordinate j: (precision, mean) of a normal prior, (kind, location, scale, shape)
        of a ψ.
        """

    def check(self, dim: int) -> None:
        """Refuse settings that do not fit `dim` coordinates."""
        return

    @abstractmethod
    def scaled(self, factor: float) -> Prior:
        """The prior of a coordinate times a factor above 0."""

    def on_columns(self, scale: Array, size: float) -> list[Prior]:
        """The priors of coefficients of standardised columns, given their scales; size: that of a large effect."""
        return [self.scaled(float(s)) for s in scale]

    @abstractmethod
    def shifted(self, by: float) -> Prior:
        """The prior of a coordinate plus a number."""

    @property
    @abstractmethod
    def spread(self) -> tuple[float, float]:
        """Location and standard deviation; the scale for Student's t, and infinite for a flat prior."""

    def in_words(self) -> str:
        """How summaries name it."""
        return repr(self)


PriorClass = TypeVar("PriorClass", bound=type[Prior])


def location_by_name(prior: PriorClass) -> PriorClass:
    """A class of priors whose location, and what follows it, should be named: other libraries have it first, and read
    Normal(1.0, 2.5) as a mean and a standard deviation.
    """
    names = [field.name for field in fields(prior)]  # type: ignore[arg-type]
    place = next(place for place, name in enumerate(names) if name in ("mean", "location"))
    initialise = prior.__init__

    @wraps(initialise)
    def with_names(self: Prior, *values: Any, **named: Any) -> None:
        if not place < len(values) <= len(names):
            return initialise(self, *values, **named)
        scale, location = (repr(value) for value in values[place - 1 : place + 1])
        why = f"the arguments are {', '.join(names)}"
        if names[place - 1] == "scale" and np.all(np.asarray(values[place - 1]) == 0):
            first = "".join(f"{values[k]!r}, " for k in range(place - 1))
            raise requirement(
                "scale", "above 0", scale, f"{why}; about 0 it is {prior.__name__}({first}scale={location})"
            )
        initialise(self, *values, **named)
        why += f", and other libraries have the {names[place]} first"
        if names[place - 1] == "precision":
            why += f"; with the standard deviation {location} it is Normal.with_sd({location}, mean={scale})"
        pairs = ", ".join(f"{name}={value!r}" for name, value in zip(names, values, strict=False))
        former = f"{prior.__name__}({', '.join(map(repr, values))})"
        deprecated(former, f"{prior.__name__}({pairs})", why)

    prior.__init__ = with_names  # type: ignore[method-assign, assignment]
    return prior


@location_by_name
@dataclass(frozen=True)
class Normal(Prior):
    """N(mean, 1/precision); each one number, or one for each column. `Normal.with_sd(sd, mean=…)` takes a standard
    deviation.

    >>> Normal(4.0).of(0)
    (4.0, 0.0)
    """

    precision: Any = 1.0
    mean: Any = 0.0

    def __post_init__(self) -> None:
        for name, value in (("prior_precision", self.precision), ("prior_mean", self.mean)):
            per_column(name, value, 1) if _is_single(value) else real_array(name, value, ("columns",))
        if _is_single(self.precision) and self.precision == 0 and _is_single(self.mean) and self.mean != 0:
            sd = f"{self.mean:g}" if self.mean > 0 else "sd"
            why = (
                f"a flat prior has no mean; the arguments are precision and mean, and N(0, sd²) is Normal.with_sd({sd})"
            )
            raise requirement("prior_precision", "above 0 where a mean is given", f"0 with the mean {self.mean:g}", why)

    @staticmethod
    def with_sd(sd: float, mean: float = 0.0) -> Normal:
        """N(mean, sd²).

        >>> Normal.with_sd(0.5)
        Normal(precision=4.0, mean=0.0)
        """
        try:
            precision = positive("sd", sd) ** -2
        except OverflowError:
            precision = float("inf")
        return Normal(positive("1/sd²", precision), mean=mean)

    def check(self, dim: int) -> None:
        """One number, or one for each of the coordinates."""
        nonnegative("prior_precision", float(per_column("prior_precision", self.precision, dim).min()))
        per_column("prior_mean", self.mean, dim)

    def of(self, j: int) -> tuple[float, float]:
        precision, mean = (
            value if np.ndim(value) == 0 else np.asarray(value)[j] for value in (self.precision, self.mean)
        )
        return float(precision), float(mean)

    def scaled(self, factor: float) -> Normal:
        """Precision over factor², mean times factor."""
        with np.errstate(over="ignore"):
            return Normal(np.asarray(self.precision) / factor**2, mean=np.asarray(self.mean) * factor)

    def shifted(self, by: float) -> Normal:
        """Mean plus the number; where it is flat, it stays as it is."""
        return Normal(self.precision, mean=np.where(np.asarray(self.precision) == 0, 0.0, np.asarray(self.mean) + by))

    @property
    def spread(self) -> tuple[float, float]:
        """Mean and standard deviation."""
        precision = float(np.min(self.precision))
        return float(np.mean(self.mean)), precision**-0.5 if precision > 0 else float("inf")

    def in_words(self) -> str:
        """By mean and standard deviation."""
        if np.size(self.precision) > 1 or np.size(self.mean) > 1:
            return repr(self)
        mean, sd = self.spread
        return f"N({mean:.4g}, {sd:.4g}²)" if math.isfinite(sd) else "flat"


@dataclass(frozen=True)
class Flat(Prior):
    """A flat prior: the rows alone must determine the coordinate.

    >>> from svrhmc.targets import glm
    >>> glm([[1.0], [1.0], [1.0]], [1, 2, 6], "poisson", prior=Flat()).mode().round(6)  # log 3
    array([1.098612])
    """

    def of(self, j: int) -> tuple[float, float]:
        """Precision 0."""
        return 0.0, 0.0

    def scaled(self, factor: float) -> Flat:
        return self

    def shifted(self, by: float) -> Flat:
        return self

    @property
    def spread(self) -> tuple[float, float]:
        return 0.0, float("inf")


@dataclass(frozen=True)
class StandardNormal(Prior):
    """N(0, scale²) for a change of each column by its standard deviation, and of a column of two values for the step
    from one to the other, in standard deviations of y (of events: in log odds), where `fit` or `regress` standardise
    the columns. With the scale 2.5 these are their default priors.

    >>> StandardNormal(0.5).on_columns(np.array([10.0]), 2.0)
    [Normal(precision=1.0, mean=0.0)]
    """

    by_data = True
    scale: float = 2.5

    def __post_init__(self) -> None:
        require_ordinary("scale", self.scale)

    def of(self, j: int) -> tuple[float, float]:
        return self.scale**-2, 0.0

    def scaled(self, factor: float) -> Prior:
        """The scale times the factor."""
        return StandardNormal(self.scale * factor)

    def on_columns(self, scale: Array, size: float) -> list[Prior]:
        """The same for every standardised column."""
        return [Normal.with_sd(self.scale * size)] * len(scale)

    def shifted(self, by: float) -> Prior:
        """A normal prior with the number as its mean."""
        return Normal(self.scale**-2, mean=by)

    @property
    def spread(self) -> tuple[float, float]:
        return 0.0, self.scale


@location_by_name
@dataclass(frozen=True)
class StudentT(Prior):
    """location + scale·t with df degrees of freedom: like a normal near its location, but with tails that allow a few
    large effects.

    >>> StudentT(df=4.0, scale=2.5)
    StudentT(df=4.0, scale=2.5, location=0.0)
    """

    df: float = 3.0
    scale: float = 1.0
    location: float = 0.0

    def __post_init__(self) -> None:
        require_ordinary("df", self.df)
        require_ordinary("scale", self.scale)
        require_ordinary("|location|", max(abs(finite("location", self.location)), 1.0))

    def of(self, j: int) -> tuple[int, float, float, float]:
        return STUDENT, float(self.location), float(self.scale), float(self.df)

    def scaled(self, factor: float) -> StudentT:
        """Location and scale times the factor."""
        return StudentT(self.df, self.scale * factor, location=self.location * factor)

    def shifted(self, by: float) -> StudentT:
        """Location plus the number."""
        return replace(self, location=self.location + by)

    @property
    def spread(self) -> tuple[float, float]:
        return float(self.location), float(self.scale)


@location_by_name
@dataclass(frozen=True)
class Laplace(Prior):
    """Density ∝ e^{−|d|/scale}, smoothed over `smoothing`·scale around its location.

    >>> Laplace(0.5)
    Laplace(scale=0.5, location=0.0, smoothing=0.1)
    """

    scale: float = 1.0
    location: float = 0.0
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        require_ordinary("scale", self.scale)
        require_ordinary("|location|", max(abs(finite("location", self.location)), 1.0))
        positive("smoothing", self.smoothing, "without it the density has a kink, where no gradient is")
        require_ordinary("smoothing", self.smoothing)

    def of(self, j: int) -> tuple[int, float, float, float]:
        return LAPLACE, float(self.location), float(self.scale), float(self.smoothing * self.scale)

    def scaled(self, factor: float) -> Laplace:
        """Location and scale times the factor."""
        return replace(self, scale=self.scale * factor, location=self.location * factor)

    def shifted(self, by: float) -> Laplace:
        """Location plus the number."""
        return replace(self, location=self.location + by)

    @property
    def spread(self) -> tuple[float, float]:
        """Location and standard deviation."""
        return float(self.location), float(2**0.5 * self.scale)


class PositivePrior(Prior):
    """The prior of a positive number, such as σ, whose logarithm is the coordinate; in the units of that number."""

    positive = True

    def scaled(self, factor: float) -> Prior:
        """Refused, as coefficients may have either sign."""
        raise self._refusal()

    def shifted(self, by: float) -> Prior:
        """Refused, as intercepts may have either sign."""
        raise self._refusal()

    def _refusal(self) -> ValueError:
        why = "such a prior is one of a positive parameter of the family, such as 'sigma'"
        return requirement("the prior of a coefficient", "one of numbers of either sign", repr(self), why)


@dataclass(frozen=True)
class HalfStudentT(PositivePrior):
    """|scale·t| with df degrees of freedom, for a spread that is probably at most about `scale`, but may be far above.

    >>> HalfStudentT(df=4.0, scale=2.5)
    HalfStudentT(df=4.0, scale=2.5)
    """

    df: float = 3.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_ordinary("df", self.df)
        require_ordinary("scale", self.scale)

    def of(self, j: int) -> tuple[int, float, float, float]:
        """Its kind, log s and ν."""
        return HALF_STUDENT, math.log(self.scale), 1.0, float(self.df)

    @property
    def spread(self) -> tuple[float, float]:
        """Mean and standard deviation of log σ = log s + ½ log F with F of (1, ν) degrees of freedom."""
        from scipy.special import digamma, polygamma

        half = self.df / 2
        mean = math.log(self.scale) + 0.5 * (float(digamma(0.5) - digamma(half)) + math.log(self.df))
        return mean, 0.5 * math.sqrt(float(polygamma(1, 0.5) + polygamma(1, half)))


@dataclass(frozen=True)
class HalfCauchy(PositivePrior):
    """|scale·t| with one degree of freedom: `HalfStudentT(1, scale)`.

    >>> HalfCauchy(2.5).of(0) == HalfStudentT(1.0, 2.5).of(0)
    True
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        require_ordinary("scale", self.scale)

    def of(self, j: int) -> tuple[int, float, float, float]:
        """Those of Student's t with ν = 1."""
        return HalfStudentT(1.0, self.scale).of(j)

    @property
    def spread(self) -> tuple[float, float]:
        """Those of Student's t with ν = 1."""
        return HalfStudentT(1.0, self.scale).spread


@dataclass(frozen=True)
class HalfNormal(PositivePrior):
    """|scale·z| with z ~ N(0, 1), for a spread that is at most a few times `scale`.

    >>> HalfNormal(2.0)
    HalfNormal(scale=2.0)
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        require_ordinary("scale", self.scale)

    def of(self, j: int) -> tuple[int, float, float, float]:
        """Its kind, log s and k = 2."""
        return HALF_POWER, math.log(self.scale), 1.0, 2.0

    @property
    def spread(self) -> tuple[float, float]:
        """Mean and standard deviation of log σ = log s + ½ log χ²₁."""
        return math.log(self.scale) - 0.5 * (_EULER + math.log(2)), math.pi / math.sqrt(8)


@dataclass(frozen=True)
class Exponential(PositivePrior):
    """Density ∝ e^{−rate·σ}, with the mean 1/rate.

    >>> Exponential(0.5)
    Exponential(rate=0.5)
    """

    rate: float = 1.0

    def __post_init__(self) -> None:
        require_ordinary("rate", self.rate)

    def of(self, j: int) -> tuple[int, float, float, float]:
        """Its kind, log s and k = 1."""
        return HALF_POWER, -math.log(self.rate), 1.0, 1.0

    @property
    def spread(self) -> tuple[float, float]:
        """Mean and standard deviation of log σ."""
        return -math.log(self.rate) - _EULER, math.pi / math.sqrt(6)


@dataclass(frozen=True)
class LKJ:
    """The prior ∝ |Ω|^{η−1} of the matrix Ω of the correlations of effects of groups: η = 1 is even over all matrices,
    and the larger it is, the nearer are the correlations to 0 (Lewandowski, Kurowicka & Joe, 2009).

    >>> LKJ(2.0)
    LKJ(eta=2.0)
    """

    eta: float = 1.0

    def __post_init__(self) -> None:
        require_ordinary("eta", self.eta)


_EULER = 0.5772156649015329


class _Shape(NamedTuple):
    """A ψ and its derivatives in d, of (d, scale, shape), the bounds on ψ″, and whether ψ(−d) = ψ(d)."""

    value: Callable[[Array, Array, Array], Array]
    slope: Callable[[Array, Array, Array], Array]
    curvature: Callable[[Array, Array, Array], Array]
    bounds: Callable[[Array, Array], tuple[Array, Array]]
    symmetric: bool = False


_SHAPES = {
    STUDENT: _Shape(
        lambda d, s, v: (v + 1) / 2 * np.log1p((d / s) ** 2 / v),
        lambda d, s, v: (v + 1) * d / (v * s**2 + d**2),
        lambda d, s, v: (v + 1) * (v * s**2 - d**2) / (v * s**2 + d**2) ** 2,
        lambda s, v: (-(v + 1) / (8 * v * s**2), (v + 1) / (v * s**2)),
        symmetric=True,
    ),
    LAPLACE: _Shape(
        lambda d, s, e: d * (d / (np.hypot(d, e) + e)) / s,
        lambda d, s, e: d / np.hypot(d, e) / s,
        lambda d, s, e: e * e / np.hypot(d, e) ** 3 / s,
        lambda s, e: (0.0 * s, 1 / (s * e)),
        symmetric=True,
    ),
    HALF_STUDENT: _Shape(
        lambda d, s, v: (v + 1) / 2 * np.logaddexp(0.0, 2 * d - np.log(v)) - d,
        lambda d, s, v: (v + 1) / (1 + v * _exp(-2 * d)) - 1,
        lambda d, s, v: 2 * (v + 1) / ((1 + v * _exp(-2 * d)) * (1 + _exp(2 * d) / v)),
        lambda s, v: (0.0 * s, (v + 1) / 2),
    ),
    HALF_POWER: _Shape(
        lambda d, s, k: _exp(k * d) / k - d,
        lambda d, s, k: _exp(k * d) - 1,
        lambda d, s, k: k * _exp(k * d),
        lambda s, k: (0.0 * s, np.full_like(s, np.inf)),
    ),
}


def _exp(t: Array) -> Array:
    """e^t, and ∞ where it overflows; such states are rejected by every sampler."""
    with np.errstate(over="ignore"):
        return np.exp(t)


@dataclass(frozen=True, eq=False)
class Heavy:
    """The priors ψⱼ of the coordinates in `columns`, with their kinds and parameters."""

    columns: Indices
    kinds: Indices
    location: Array
    scale: Array
    shape: Array

    def value(self, x: Array) -> Array:
        """Σⱼ ψⱼ at states (…, dim)."""
        total: Array = self._evaluate(x, 0).sum(axis=-1)
        return total

    def values(self, x: Array) -> Array:
        """ψ of every coordinate: (…, dim), 0 where there is none."""
        return self._expand(x, self._evaluate(x, 0))

    def slope(self, x: Array) -> Array:
        """ψ′ of every coordinate: (…, dim), 0 where there is none."""
        return self._expand(x, self._evaluate(x, 1))

    def curvature(self, x: Array) -> Array:
        """ψ″ of every coordinate."""
        return self._expand(x, self._evaluate(x, 2))

    def strength(self, dim: int) -> Array:
        """ψ″ at the location, where it is largest for a prior with its peak there."""
        centre = np.zeros(dim)
        centre[self.columns] = self.location
        return self.curvature(centre)

    def bounds(self, dim: int) -> tuple[Array, Array]:
        """The infimum and supremum of ψ″ for every coordinate."""
        least, most = np.zeros(dim), np.zeros(dim)
        for kind, members in self._groups:
            low, high = _SHAPES[kind].bounds(self.scale[members], self.shape[members])
            least[self.columns[members]], most[self.columns[members]] = low, high
        return least, most

    def equivalent(self, x: Array, precision: Array) -> Array:
        """The precisions, with those of symmetric ψⱼ replaced by the precision of a normal prior with the same slope at
        x: ψ′(d)/d, and ψ″(0) where d = 0. Far out a heavy tail pulls less than its width suggests.
        """
        d, slope, curvature = x[self.columns] - self.location, self._evaluate(x, 1), self._evaluate(x, 2)
        pull = np.where(d == 0, curvature, slope / np.where(d == 0, 1.0, d))
        symmetric = np.array([_SHAPES[int(kind)].symmetric for kind in self.kinds])
        out = precision.copy()
        out[self.columns[symmetric]] = pull[symmetric]
        return out

    def feet(self, point: Array, covariance: Array) -> Array:
        """For every coordinate the ratio R of the width of the posterior's foot to that of its peak at a mode; 1 where
        the foot has hardly any mass.

        With Σ the inverse Hessian at the mode m, the law without ψⱼ has in coordinate j the variance

            Σ′ⱼⱼ = Σⱼⱼ/(1 − ψⱼ″(mⱼ)Σⱼⱼ) = R²Σⱼⱼ,

        by the formula of Sherman and Morrison. Where ψⱼ grows slowly, π falls from its peak, of width √Σⱼⱼ, to a foot
        of width R√Σⱼⱼ that is lower by about e^{−Δ}, Δ = ψⱼ(mⱼ ± √Σ′ⱼⱼ) − ψⱼ(mⱼ). Relative to the peak its mass is
        about Re^{−Δ}, and its second moment R³e^{−Δ}.
        """
        variance = np.diag(covariance)
        left = np.maximum(1 - self.curvature(point) * variance, _WIDEST**-2)
        R = np.sqrt(1 / left)
        sides = [self.values(point + s * R * np.sqrt(variance)) for s in (-1.0, 1.0)]
        share = 3 * np.log(R) - (np.minimum(*sides) - self.values(point))
        return np.where((R > _PEAKED) & (share > math.log(_FOOT)), R, 1.0)

    def digest(self) -> str:
        """A digest of all fields."""
        return digest(self.columns, self.kinds, self.location, self.scale, self.shape)

    @cached_property
    def _groups(self) -> list[tuple[int, Indices]]:
        return [(int(kind), np.flatnonzero(self.kinds == kind)) for kind in np.unique(self.kinds)]

    def _evaluate(self, x: Array, order: int) -> Array:
        """ψ or its derivative of this order, for each of `columns`."""
        d = x[..., self.columns] - self.location
        out = np.zeros(d.shape)
        for kind, members in self._groups:
            shape = _SHAPES[kind]
            function = (shape.value, shape.slope, shape.curvature)[order]
            out[..., members] = function(d[..., members], self.scale[members], self.shape[members])
        return out

    def _expand(self, x: Array, values: Array) -> Array:
        """Values of `columns` in the shape of x, 0 for other coordinates."""
        out = np.zeros(x.shape)
        out[..., self.columns] = values
        return out


class Term(ABC):
    """A term of minus the log prior that couples coordinates, and may bring parameters of its own.

    The coordinates of a model with terms are (β, shared parameters, parameters of the first term, of the second, …). A
    term is a function of states w = (β, shared parameters, its own parameters), (states, dim), and adds

        −log p(w) = value(w),        with its gradient and Hessian,

    to f, in addition to the priors of single coordinates; its own parameters have no other prior. It is exact in every
    sampler that supports it; engines without support refuse it.

    names: of its own parameters. convex: whether its value is known to be convex in w. quadratic: whether it is a
    quadratic in w.
    """

    names: tuple[str, ...] = ()
    convex: ClassVar[bool] = False
    quadratic: ClassVar[bool] = False

    @abstractmethod
    def value(self, w: Array) -> Array:
        """(states, dim) → (states,)."""

    @abstractmethod
    def gradient(self, w: Array) -> Array:
        """(states, dim) → (states, dim)."""

    @abstractmethod
    def hessian(self, w: Array) -> Array:
        """At one state: (dim,) → (dim, dim)."""

    def identity(self) -> str:
        """What must be unchanged when a run is resumed: here its printed form, which should show its numbers."""
        return repr(self)


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of a prior that couple coordinates."""

    terms: tuple[Term, ...]
    inner: int  # coordinates before the first parameter of a term

    @property
    def parameters(self) -> int:
        """The number of own parameters of all terms."""
        return sum(len(term.names) for term in self.terms)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the own parameters of all terms."""
        return tuple(name for term in self.terms for name in term.names)

    def placed(self) -> list[tuple[Term, Indices]]:
        """Each term with the indices of its coordinates."""
        first, pairs = self.inner, []
        for term in self.terms:
            pairs.append((term, np.r_[: self.inner, first : first + len(term.names)]))
            first += len(term.names)
        return pairs

    def value(self, x: Array) -> Array:
        """The sum of all terms at states (states, dim)."""
        values = (term.value(x[:, indices]) for term, indices in self.placed())
        return np.asarray(sum(values, np.zeros(len(x))), np.float64)

    def gradient(self, x: Array) -> Array:
        """The gradient of the sum of all terms: (states, dim)."""
        total = np.zeros(x.shape)
        for term, indices in self.placed():
            total[:, indices] += term.gradient(x[:, indices])
        return total

    def hessian(self, x: Array) -> Array:
        """The Hessian of the sum of all terms at one state."""
        total = np.zeros((len(x), len(x)))
        for term, indices in self.placed():
            total[np.ix_(indices, indices)] += term.hessian(x[indices])
        return total


def require_terms(terms: Sequence[Term], inner: int) -> Terms | None:
    """The terms, after a check of the shapes of their results and of their derivatives at some points; None
    without any.
    """
    if not terms:
        return None
    for term in terms:
        if not isinstance(term, Term):
            raise requirement("terms", "a list of svrhmc.targets.priors.Term", repr(term))
        size = inner + len(term.names)
        w = 0.1 * np.cos(np.arange(3 * size)).reshape(3, size)
        shapes = (np.shape(term.value(w)), np.shape(term.gradient(w)), np.shape(term.hessian(w[0])))
        if shapes != ((3,), (3, size), (size, size)):
            allowed = f"value, gradient and Hessian of shapes (3,), (3, {size}) and ({size}, {size}) for 3 states"
            raise requirement(f"the term {term!r}", f"one that gives {allowed}", " and ".join(map(str, shapes)))
        step = _DIFFERENCE * np.eye(size)
        slope = (term.value(w[0] + step) - term.value(w[0] - step)) / (2 * _DIFFERENCE)
        curvature = (term.gradient(w[0] + step) - term.gradient(w[0] - step)) / (2 * _DIFFERENCE)
        for name, function, derivative, differences in (
            ("gradient", "value", term.gradient(w)[0], slope),
            ("hessian", "gradient", term.hessian(w[0]), curvature),
        ):
            if not np.allclose(derivative, differences, rtol=1e-4, atol=1e-4 * (1 + np.abs(differences).max())):
                off = f"one that is off by {np.abs(derivative - differences).max():.2g}"
                raise requirement(f"{name} of {term!r}", f"the derivative of its {function}", off)
    return Terms(tuple(terms), inner)


class Settled(NamedTuple):
    """A prior as arrays: Λ, p and the ψⱼ, None if there are none; and the terms that couple coordinates."""

    precision: Array
    mean: Array
    heavy: Heavy | None
    terms: Terms | None = None

    def repeated(self, times: int) -> Settled:
        """The prior of `times` blocks of coordinates with this prior each."""
        repeated = self
        for _ in range(times - 1):
            repeated = repeated.followed(self)
        return repeated

    def followed(self, other: Settled) -> Settled:
        """The prior of these coordinates, followed by those of another prior."""
        heavy, dim = self.heavy, len(self.mean)
        if other.heavy is not None:
            later = replace(other.heavy, columns=other.heavy.columns + dim)
            names = [field.name for field in fields(later)]
            pairs = {name: (getattr(heavy, name, []), getattr(later, name)) for name in names}
            heavy = later if heavy is None else Heavy(**{name: np.concatenate(pair) for name, pair in pairs.items()})
        precision, mean = np.concatenate([self.precision, other.precision]), np.concatenate([self.mean, other.mean])
        return Settled(precision, mean, heavy)


def settle(prior: object, dim: int, positive: bool = False, joint: bool = False) -> Settled:
    """One prior for all coordinates, or a list of one for each, as arrays.

    positive: whether the coordinates are logarithms of positive numbers, so that priors of these are allowed. joint:
    whether joint priors are allowed, because the caller takes care of them.

    >>> settled = settle([Flat(), Normal(4.0), Laplace(0.5)], 3)
    >>> settled.precision, settled.heavy.columns
    (array([0., 4., 0.]), array([2]))
    """
    if dim == 0:
        return Settled(np.zeros(0), np.zeros(0), None)
    allowed = f"one of svrhmc.targets.priors, or a list of {dim}, one for each column"
    if isinstance(prior, Sequence):
        if len(prior) != dim:
            raise requirement("prior", allowed, f"a list of {len(prior)}")
        priors = list(prior)
    else:
        priors = [prior] * dim
    for single in priors[:1] if not isinstance(prior, Sequence) else priors:
        if not isinstance(single, Prior):
            raise requirement("prior", allowed, repr(single))
        if single.positive and not positive:
            why = "it is one of a positive parameter that rows share: give it as shared_prior"
            raise requirement("prior", "one of numbers of either sign", repr(single), why)
        if single.joint and not joint:
            why = "many coefficients share it, in models whose rows are in memory and that have no groups or terms"
            raise requirement("prior", "one of a single coefficient here (such as Normal)", repr(single), why)
        single.check(dim if not isinstance(prior, Sequence) else 1)
    parameters = [single.of(j if not isinstance(prior, Sequence) else 0) for j, single in enumerate(priors)]
    normal = np.array([pair if len(pair) == 2 else (0.0, 0.0) for pair in parameters])
    columns = np.array([j for j, single in enumerate(parameters) if len(single) == 4], np.int64)
    heavy = None
    if len(columns):
        kinds, location, scale, shape = (
            np.array(column) for column in zip(*(parameters[j] for j in columns), strict=True)
        )
        heavy = Heavy(columns, kinds.astype(np.int64), location, scale, shape)
    return Settled(normal[:, 0].copy(), normal[:, 1].copy(), heavy)


def per_column(name: str, value: float | npt.ArrayLike, dim: int) -> Array:
    """One finite number for each column."""
    single = _is_single(value)
    array = real_array(name, np.atleast_1d(np.asarray(value)) if single else value, (1 if single else dim,))
    return np.array(np.broadcast_to(array, dim), np.float64)


def require_ordinary(name: str, value: float) -> None:
    """Refuse numbers so large or small that their powers leave float64."""
    low, high = _RANGE
    if not low <= positive(name, value) <= high:
        raise requirement(name, f"a number from {low:g} to {high:g}", value)


def _is_single(value: object) -> bool:
    """Whether the value is a single one, and not a list or an array."""
    return not isinstance(value, list | tuple) and np.ndim(value) == 0  # type: ignore[arg-type]
