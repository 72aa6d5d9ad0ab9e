"""The base class of families: minus the log-likelihood of one row, ℓ(t, y), as a function of its linear predictors t.

A row has k main predictors (`blocks`), each with coefficients for all columns, and q further ones: t has m = k + q
numbers. A further predictor is a parameter that all rows share, with 1 as its only column, unless it has columns of its
own (`windows`; `distributional.py`). A family declares all there is to know of it: which labels it takes, the value,
slope and curvature of ℓ in t, the mean of y, how y is drawn, bounds on derivatives (None where there are none), and the
words that reports use. The functions take arrays and numbers alike. Where m is 1, t, slopes and curvatures are one
number a row; otherwise t and slopes have m numbers on the last axis, and curvatures are m × m.

The formulas of each family here are written once, in a `Record`: a factory over primitives (`primitives.py`), from
which the functions for NumPy, for compiled code and for JAX are made. A loss defined outside the library needs no
record: it implements value, slope and curvature itself, and the reference engine runs it.

A label is one number a row. A row that stands for several observations (successes in several trials, or a row of an
aggregated table) has a weight wᵢ as well, and contributes wᵢℓ(tᵢ, yᵢ). Offsets and weights belong to the form
(`rows/forms.py`): losses do not know of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Values, digest
from svrhmc.core.errors import deprecated, real_array, requirement
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones

FORMER_NAMES = {  # of methods and settings, which families defined outside the library may still override
    "faces": "recession_cones",
    "overall": "typical_predictor_and_effect",
    "seen": "original_labels",
    "tail": "predictor_shape",
    "tried": "weights_are_trials",
    "unsettled": "improper_reason",
}
Classes = Values | Sequence[object]  # the classes that the labels 0, 1, … stand for, in order


class Formulas(NamedTuple):
    """The functions of one row that a record's factory makes. The first argument of each is the record.

    slope, curvature, value: functions of (record, t, y) where `arguments` is 1; t is a number, or has all predictors of
        a row on its last axis. Where `arguments` is m they are functions of (record, t₀, …, t_{m−1}, y); a slope is
        then a tuple of m parts, and a curvature the upper triangle, row by row: (∂₀₀, ∂₀₁, ∂₁₁) for m = 2.
    both: value and slope at once, where they share most of their work. Then `value` may be left out; if given, only
        NumPy uses it.
    remainder: of (record, t, y, u), ℓ(t + u) − ℓ(t) − ℓ′(t)u − ½ℓ″(t)u² in float64, for subsampled Metropolis.
    energies: the compiled loop over many rows. For several predictors a function of (record, count, t, y, s, valued):
        t and s have a line for each predictor, values are written to line m of t, and two more lines of t are scratch
        space. For one predictor a function of (record, count, t, y, slope, value), given only where a generic loop over
        `both`, or over value and slope, is not as good.
    elementary: whether a slope needs only e^t and arithmetic, which any device has.
    """

    slope: Callable[..., Value]
    curvature: Callable[..., Value]
    value: Callable[..., Value] | None = None
    both: Callable[..., Value] | None = None
    remainder: Callable[..., Value] | None = None
    energies: Callable[..., Value] | None = None
    arguments: int = 1
    elementary: bool = False


class Record(Protocol):
    """The numbers of a family, such as degrees of freedom: a named tuple by whose type compiled code chooses formulas.
    With several predictors its last two fields are `blocks` and `shared`.
    """

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """The functions of the family, over the primitives `op`."""


class Observed(NamedTuple):
    """Labels in the form that a loss uses, and how many observations each stands for (None: one each)."""

    y: Array
    counts: Array | None


class Parameter(NamedTuple):
    """A shared parameter that may be given a formula of its own.

    name: of its formula. other_names: what other libraries call it. effect: the standard deviation of the weak prior of
    a coefficient in that formula, for a standardised column.
    """

    name: str
    other_names: tuple[str, ...] = ()
    effect: float = 1.0


class Window(NamedTuple):
    """The columns of a row that enter one predictor, and where their coefficients are in x.

    They are `width` columns from `first` on, and their coefficients start at `place` in x. A `shared` predictor is a
    parameter that all rows share: it has one coefficient and no column of the row, as its column is 1 everywhere.
    """

    first: int
    width: int
    place: int
    shared: bool

    @property
    def columns(self) -> slice:
        """The columns of the row that it covers."""
        return slice(self.first, self.first + self.width)

    @property
    def coefficients(self) -> slice:
        """The places of its coefficients in x."""
        return slice(self.place, self.place + (1 if self.shared else self.width))


class Coded(NamedTuple):
    """The loss for given labels, the labels as numbers, and the classes that 0, 1, … stand for if they were coded."""

    loss: Loss
    y: npt.ArrayLike
    classes: Values | None = None


class Loss(ABC):
    """Minus the log-likelihood of one row as a function of its linear predictor.

    −log p(y | t) = value(t, y) + constant(y).
    """

    name: ClassVar[str] = ""  # of the family, as users write it
    identity_link: ClassVar[bool] = False  # whether the mean of y is the predictor itself
    inverse_link: ClassVar[str] = ""  # the mean as a function of one predictor alone: identity, logistic or exp; or ""
    shared_names: ClassVar[tuple[str, ...]] = ()  # of the parameters that all rows share
    parameters: ClassVar[tuple[Parameter, ...]] = ()  # the shared parameters that may have formulas of their own
    quadratic: ClassVar[bool] = False  # whether the curvature is constant, so that the posterior is Gaussian
    convex: ClassVar[bool] = False  # whether the curvature is known to be 0 or more for all t and y
    convex_given_shared: ClassVar[bool] = False  # whether it is so in the main predictors, given the shared parameters
    shared_prior: ClassVar[tuple[Value, Value]] = (
        0.25,
        0.0,
    )  # precision and mean, each one number for all shared parameters or one for each
    weights_are_trials: ClassVar[bool] = False  # whether the weight of a row is its number of trials
    in_trials: ClassVar[bool] = False  # whether y counts the successes of some trials
    label_on_link: ClassVar[bool] = False  # whether labels are stored on the scale of the predictor, such as log y
    mixture: ClassVar[bool] = False  # whether coefficients are Gaussian given the shared parameter
    gaussian_given: ClassVar[str] = ""  # what makes rows Gaussian in the predictor if given: "noise" or "polya-gamma"
    spread: ClassVar[bool] = False  # whether the shared parameter is the spread of the residuals
    without_residuals: ClassVar[str] = "drop columns"  # advice where coefficients fit every label exactly
    overdispersed: ClassVar[str] = ""  # what to try where y varies more than the family allows
    other_zeros: ClassVar[str] = "family='hurdle-negative-binomial'"  # to try where the number of zeros does not fit
    far_off: ClassVar[str] = ""  # what to try where y has outliers
    reading: ClassVar[str] = ""  # how to read a coefficient, if a summary has to explain it
    proportional_hazards: ClassVar[bool] = False  # whether e^{−β/σ} is a ratio of hazards
    signed: ClassVar[bool] = False  # whether a label below 0 is a right-censored time
    most_classes: ClassVar[float] = 0  # the most classes that labels, texts among them, may have
    ordered: ClassVar[bool] = False  # whether classes are ordered; texts need that order stated
    has_intercept: ClassVar[bool] = True  # False where shared parameters take its place
    barrier: ClassVar[bool] = False  # whether ℓ is ∞ outside a region of t, where slopes are meaningless
    outcome: ClassVar[str] = "numbers"  # what y is: events (0 and 1, or shares), counts, classes or numbers
    aliases: ClassVar[tuple[str, ...]] = ()  # other names of the family
    mistaken: ClassVar[tuple[str, ...]] = ()  # other libraries' names, answered with this one

    def __init_subclass__(cls) -> None:
        for former, name in FORMER_NAMES.items():
            if former in vars(cls):
                deprecated(f"{cls.__name__}.{former}", name)
                setattr(cls, name, vars(cls)[former])

    def __getattr__(self, name: str) -> Any:
        if name not in FORMER_NAMES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        deprecated(f"{type(self).__name__}.{name}", FORMER_NAMES[name])
        return getattr(self, FORMER_NAMES[name])

    @property
    def link(self) -> str:
        """The name of the link where it is not the usual one of the family; otherwise ""."""
        return ""

    @property
    def ratio(self) -> str:
        """The name of e to the power of a coefficient, such as "odds ratio"; "" where it has none."""
        return ""

    @property
    def modelled(self) -> str:
        """What the predictor is, in words; with the fields {response}, {event} and {first}, the first class."""
        return "the linear predictor"

    @property
    def multiplied(self) -> str:
        """What e to the power of a coefficient multiplies, in words; "" where that has no name."""
        words = self.modelled.replace("the log odds", "the odds").replace("the logarithm of ", "")
        return words if self.ratio and words != self.modelled else ""

    @property
    def kernel(self) -> Any:
        """The class of its `Record` if its formulas can be compiled, otherwise None."""
        return None

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers of its record, without `blocks` and `shared`."""
        return ()

    def record(self, kind: Callable[[float], Value] = float) -> Fields:
        """Its record as compiled code takes it; kind: the type of its numbers, in the precision of the rows."""
        size = (self.blocks, sum(self.predictor_shape) - self.blocks) if self.predictor_shape else ()
        return self.kernel(*map(kind, self.numbers), *size)

    @property
    def nanoseconds(self) -> float:
        """Time for value and slope of a row beyond that of the logistic loss, measured by `benchmarks/costs.py`."""
        return 0.0

    @property
    def blocks(self) -> int:
        """The number k of main predictors, each with a coefficient for every column."""
        return 1

    @property
    def shared(self) -> int:
        """The number of coefficients of all further predictors: one for each parameter that all rows share."""
        return 0

    @property
    def widths(self) -> tuple[int, ...]:
        """How many columns each further predictor has for itself: 0 for a parameter that all rows share."""
        return (0,) * self.shared

    def windows(self, columns: int) -> tuple[Window, ...]:
        """The columns and coefficients of each predictor, for rows with this number of columns: first those of the k
        main predictors, then those of each further one.
        """
        main = columns - sum(self.widths)
        windows = [Window(0, main, c * main, False) for c in range(self.blocks)]
        first, place = main, self.blocks * main
        for width in self.widths:
            windows.append(Window(first, width, place, width == 0))
            first, place = first + width, place + max(1, width)
        return tuple(windows)

    @property
    def predictor_shape(self) -> tuple[int, ...]:
        """The shape of one row's t: () for a single predictor, (m,) for several predictors and shared parameters."""
        return ()

    def predictor(self, t: Array, block: int = 0) -> Array:
        """One of the predictors in t."""
        predictor: Array = t[..., block] if self.predictor_shape else t
        return predictor

    def unit(self, block: int = 0) -> Array:
        """The t of a row in which this predictor is 1 and all others are 0."""
        t = np.zeros(self.predictor_shape)
        t[(block,) * t.ndim] = 1.0
        return t

    @property
    def known_noise(self) -> float | None:
        """The standard deviation of y about its predictor if it is given beforehand, otherwise None."""
        return None

    def parameter_names(self, classes: Classes | None = None) -> tuple[str, ...]:
        """The names of the shared parameters for labels of these classes."""
        return self.shared_names

    def with_classes(self, levels: Sequence[object], ordered: bool) -> tuple[Loss, Sequence[object]]:
        """The loss for labels of these classes, and the classes in the order in which they are numbered.

        ordered: whether the order of `levels` is meant; otherwise texts are merely in alphabetical order.
        """
        return self, levels

    @property
    def scaled_by(self) -> str:
        """The quantity whose standard deviation is a large effect on a predictor, in words; "" where that size is 1."""
        return "y" if self.identity_link else ""

    def weak_shared_prior(self, size: float, typical: float = 0.0) -> tuple[Value, Value]:
        """Precision and mean of the weak prior of the shared parameters.

        size, typical: of a large effect on a predictor, and of the predictor itself (`typical_predictor_and_effect`).
        """
        return self.shared_prior

    def weak_shared_words(self, names: Sequence[str]) -> list[str]:
        """The weak prior of the shared parameters in words."""
        precision, mean = (np.broadcast_to(part, len(names)) for part in self.shared_prior)
        return [f"{name} ~ N({m:g}, {p**-0.5:g}²)" for name, p, m in zip(names, precision, mean, strict=True)]

    def shared_start(self, y: Array) -> Array:
        """Values of the shared parameters from which the search for the mode starts."""
        return np.zeros(self.shared)

    @property
    def curvature_bound(self) -> float | None:
        """sup ∂²ℓ/∂t² over all t and y."""
        return None

    @property
    def third_bound(self) -> float | None:
        """sup |∂³ℓ/∂t³| over all t and y."""
        return None

    def third_within(self, low: Array, high: Array) -> Array | None:
        """Bounds on |∂³ℓ/∂t³| over low ≤ t ≤ high and all y, finite or ∞; here the bound that holds everywhere."""
        return None if self.third_bound is None else np.full(np.shape(low), self.third_bound)

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Check n labels, and return them in the form that the loss uses."""
        return np.asarray(real_array("y", y, (n,)), np.float64)

    def observed(self, y: npt.ArrayLike, n: int, trials: npt.ArrayLike | None = None) -> Observed:
        """The labels, and how many observations each stands for; trials are refused unless the family has them."""
        if trials is not None:
            raise requirement("trials", f"None for {self}", "an array", "only a binomial label is a number of trials")
        return Observed(self.labels(y, n), None)

    def coded(self, y: npt.ArrayLike) -> Coded:
        """The labels as numbers, with the loss for them, which may depend on them (on their classes, say)."""
        bounded = self.with_bounds() if np.ndim(y) == 2 else None
        return Coded(self, y) if bounded is None else bounded.coded(y)

    def remark(self, least: float) -> str:
        """What a user should know of accepted labels, given the least of them; "" if there is nothing to say."""
        return ""

    def with_noise(self, noise_variance: float) -> Loss:
        """The loss with this known variance of the noise, for families that allow it."""
        why = "only the family 'gaussian' has noise whose variance may be known"
        raise requirement("noise_variance", f"None for {self}", noise_variance, why)

    def with_censoring(self) -> Loss | None:
        """The loss for labels that are times, −time where right-censored; None for families that have none."""
        return None

    def with_bounds(self) -> Loss | None:
        """The loss for labels of which bounds are given (`bounds.py`); None for families that have none."""
        return None

    def bounds(self, y: Array) -> Array | None:
        """(lower, upper, lb, ub) of each label, in the units of the user; None where labels have no bounds."""
        return None

    def centre(self, y: Array) -> Array:
        """One finite number for each label, within its bounds."""
        return y

    def censored(self, y: Array) -> npt.NDArray[np.bool_] | None:
        """Which labels are right-censored times; None for families without censoring."""
        return None

    def on_link(self, y: Array) -> Array:
        """Labels on the scale of the predictor, for a family whose shared parameter is a spread."""
        return y

    def recession_cones(self, y: Array) -> RecessionCones | None:
        """The directions in which ℓ stays bounded, for each label (`recession.py`); None where they are not known."""
        return None

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """Why a shared parameter with a flat prior would have an improper posterior, in words; None if it is proper.

        weight: of all rows together. free: the number of coefficients whose prior is flat too. exact: whether some
        coefficients fit all labels without a residual. flat: which shared parameters have a flat prior.
        """
        return None

    def start(self, y: Array) -> Array | None:
        """For each label a predictor that fits it well, from which the search for the mode starts; None for 0."""
        return None

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The predictor (without offset) at which the mean of y is that of all rows, and the size of a large effect on
        a predictor, for weak priors that follow the data; 0 and 1 unless a loss says otherwise.
        """
        return 0.0, 1.0

    @abstractmethod
    def value(self, t: Array, y: Array) -> Array:
        """ℓ(t, y)."""

    @abstractmethod
    def slope(self, t: Array, y: Array) -> Array:
        """∂ℓ/∂t."""

    @abstractmethod
    def curvature(self, t: Array, y: Array) -> Array:
        """∂²ℓ/∂t²."""

    @abstractmethod
    def mean(self, t: Array) -> Array:
        """E y at t: the inverse link."""

    def variance(self, t: Array) -> Array | None:
        """The variance of one y at t, for R² on the scale of y; None where it is unknown or infinite."""
        return None

    def link_variance(self, mean: Array, shared: Array) -> Array | None:
        """The variance of one y about its mean, on the scale of the predictor, for shares of variance and R².

        mean: of y over rows, (draws,). shared: the shared parameters, (draws, q). None where it is unknown.
        """
        return None

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """The part of −log p(y | t) that does not depend on t; 0 unless a loss says otherwise."""
        return np.zeros(np.shape(y))

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """The quantile of y at t for a probability u; with u uniform on (0, 1) this draws a new y."""
        raise requirement("loss", "one that says how a y is drawn", f"{self}")

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array] | None:
        """P(Y < y) and P(Y ≤ y) at t, by which the fit of a model is checked; None where they are unknown."""
        return None

    def survival(self, t: Array, time: Array) -> Array | None:
        """P(Y > time) at t, for families of times; None for any other."""
        return None

    def trials_of(self, y: Array, weights: Array | None) -> Array | None:
        """How many trials each label stands for, from the labels and weights of the rows; None without trials."""
        return weights if self.weights_are_trials else None

    def original_labels(self, y: Array, trials: Array | None = None) -> Array:
        """Labels as the user gave them, on the scale on which `draw` gives new ones."""
        return y

    def identity(self, label: Array) -> str:
        """A name that changes if the loss does: that of its class, and a digest of some values and slopes."""
        t = np.linspace(-3.0, 3.0, 13)
        return f"{type(self).__name__} {digest(self.value(t, label), self.slope(t, label))}"

    def third_size(self, curvature: Array) -> Array:
        """A rough size of |∂³ℓ/∂t³| near a point with this curvature, at least 0. It decides how often a row is drawn,
        and need not be a bound.
        """
        return np.abs(curvature)


class Family(Loss):
    """A loss whose value, slope and curvature are the formulas of its record."""

    def value(self, t: Array, y: Array) -> Array:
        """ℓ(t, y)."""
        formulas = _formulas(self.kernel)
        if formulas.value is not None:
            return self._evaluate(formulas.value, formulas.arguments, t, y)
        return self._evaluate(formulas.both, formulas.arguments, t, y)[0]

    def slope(self, t: Array, y: Array) -> Array:
        """∂ℓ/∂t."""
        formulas = _formulas(self.kernel)
        slopes = self._evaluate(formulas.slope, formulas.arguments, t, y)
        return slopes if formulas.arguments == 1 else np.stack(np.broadcast_arrays(*slopes), axis=-1)

    def curvature(self, t: Array, y: Array) -> Array:
        """∂²ℓ/∂t²."""
        formulas = _formulas(self.kernel)
        curvature = self._evaluate(formulas.curvature, formulas.arguments, t, y)
        if formulas.arguments == 1:
            return curvature
        m = formulas.arguments
        place = np.zeros((m, m), np.int64)
        place[np.triu_indices(m)] = np.arange(len(curvature))
        return np.stack(np.broadcast_arrays(*curvature), axis=-1)[..., np.maximum(place, place.T)]

    def _evaluate(self, function: Value, arguments: int, t: Array, y: Array) -> Value:
        """A formula at t and y. Where e^t overflows it is ∞, from which formulas make the right limit."""
        with np.errstate(over="ignore"):
            if arguments == 1:
                return function(self._float64_record, t, y)
            return function(self._float64_record, *(t[..., j] for j in range(arguments)), y)

    @cached_property
    def _float64_record(self) -> Fields:
        return self.record()


class SharedFamily(Family):
    """A family with several predictors, t ∈ ℝᵐ on the last axis: `blocks` main ones, then shared parameters, one of
    them unless the family says otherwise.

    Coefficients come first in x, shared parameters last, each with a normal prior of its own unless another is given.
    """

    @property
    def shared(self) -> int:
        return 1

    @property
    def predictor_shape(self) -> tuple[int, ...]:
        """(k + q,)."""
        return (self.blocks + self.shared,)

    def identity(self, label: Array) -> str:
        t = np.cos(np.arange(13 * sum(self.predictor_shape))).reshape(13, -1)
        return f"{type(self).__name__} {digest(self.value(t, label), self.slope(t, label))}"


@cache
def _formulas(record: type[Record]) -> Formulas:
    """The formulas of a record over NumPy's primitives."""
    formulas: Formulas = record.formulas(NUMPY)
    return formulas


Factory = TypeVar("Factory", bound=Callable[..., Loss])
FAMILIES: dict[str, Callable[[], Loss]] = {}  # by name, as users write it


def family(factory: Factory) -> Factory:
    """Register a function that makes a family, under the function's name."""
    FAMILIES[factory.__name__.replace("_", "-")] = factory
    return factory


def two_values(none: Array, event: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
    """P(Y < y) and P(Y ≤ y) of labels 0 and 1, from P(Y = 0)."""
    return np.where(event, none, 0.0), np.where(event, 1.0, none)


def class_at(probabilities: Array, u: Array) -> Array:
    """The class at which the cumulative probabilities pass u."""
    edges = np.cumsum(probabilities, axis=-1)[..., :-1]
    return np.asarray((np.asarray(u)[..., None] > edges).sum(axis=-1), np.float64)


def mean_and_sd(y: Array, weights: Array) -> tuple[float, float]:
    """The weighted mean and standard deviation; where all y are equal, |y| or 1 takes the place of the latter."""
    mean = float(np.average(y, weights=weights))
    sd = math.sqrt(float(np.average((y - mean) ** 2, weights=weights)))
    return mean, sd if sd > 1e-12 * abs(mean) else abs(mean) or 1.0


def log_odds(events: Value, total: Value) -> float:
    """log p/(1 − p) of the share of events, with half an event more of each kind."""
    return math.log((float(events) + 0.5) / (float(total - events) + 0.5))


def log_rate(y: Array, weights: Array, offset: Array) -> float:
    """log Σ wy / Σ we^{offset}, the rate of all rows together; with half an event if there was none."""
    high = float(offset.max())
    total = float(weights @ y)
    return math.log(total if total else 0.5) - math.log(float(weights @ np.exp(offset - high))) - high


def spread_improper_reason(weight: float, free: int, exact: bool) -> str | None:
    """Why a spread with a flat prior has no posterior: it takes residuals, and more rows than coefficients without a
    prior.
    """
    if exact:
        return "some coefficients fit every y exactly, so that no residual tells how large the spread is"
    if weight <= free:
        return f"rows of weight {weight:g} in all leave nothing over for it beside {free} coefficients"
    return None
