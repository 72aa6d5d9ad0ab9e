"""What a family is: minus the log-likelihood of one row, ℓ(t, y), as a function of its linear predictors t.

A row has k predictors of the coefficients of all its columns (`blocks`) and q further ones, m = k + q numbers t in all.
A further predictor is a parameter that all rows share (its column is 1) unless it has columns of its own, which only
some of a row are (`windows`; `distributional.py`). A family is complete: it says which labels it takes, its
value, slope and curvature in t, the mean of y, how a y is drawn, what is known of its derivatives everywhere (None
where nothing is), and the words that reports use. The functions take arrays and numbers alike. Where m is 1 they are of
plain numbers; else t and slopes have m of them, their last axis, and curvatures m × m.

The formulas of a family here stand once, in a `Record`: a factory over primitives (`primitives.py`) that makes the
functions of NumPy, of compiled code and of JAX. A loss from outside need not have one: then it says its value, slope
and curvature itself, and the reference engine runs it.

A label is one number for each row. A row that stands for several observations (successes of some trials, or a row of an
aggregated table) has a weight besides, wᵢℓ(tᵢ, yᵢ), which belongs to the form and not to the loss: no loss knows of
offsets and weights.
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
from svrhmc.core.errors import real_array, requirement
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value
from svrhmc.families.recession import Faces

Classes = Values | Sequence[object]  # what labels stand for, in order


class Formulas(NamedTuple):
    """The functions of one row that a record's factory makes; the first argument of each is the record, with numbers.

    slope, curvature, value: of (record, t, y), where `arguments` is 1: t is a number, or all of a row's (last axis).
        Where it is m, of (record, t₀, …, t_{m−1}, y); then a slope has m parts, and a curvature those of the upper
        triangle, row by row: (∂₀₀, ∂₀₁, ∂₁₁) of two.
    both: value and slope at once, where they share most of their work; then value may be left out, and serves NumPy
        alone.
    remainder: of (record, t, y, u), ℓ(t + u) − ℓ(t) − ℓ′(t)u − ½ℓ″(t)u² in float64, for subsampled Metropolis.
    energies: the compiled body for many rows of several predictors, of (record, count, t, y, s, valued): a line of t
        and s for each predictor, values left in line m of t, of which two more lines are room. Of one predictor, of
        (record, count, t, y, slope, value), where a loop over `both` or over value and slope is not as good.
    elementary: whether a slope is made of e^t and arithmetic alone, which any device has.
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
    """The numbers of a family, a named tuple by whose type compiled code chooses formulas; of several predictors its
    last fields are `blocks` and `shared`.
    """

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """Its functions over some primitives."""


class Observed(NamedTuple):
    """Labels in the form that a loss uses, and how many observations each stands for (None: one)."""

    y: Array
    counts: Array | None


class Parameter(NamedTuple):
    """A shared parameter that may have a predictor of its own instead: the name of its formula, those that others have
    for it, and the standard deviation of the weak prior of a coefficient, for a standardised column.
    """

    name: str
    other_names: tuple[str, ...] = ()
    effect: float = 1.0


class Window(NamedTuple):
    """Which columns of a row one of its predictors has coefficients of: so many from `first` on, whose coefficients are
    those from `place` on in x. Where it is `shared` it is a parameter that all rows share: one coefficient, whose
    column is 1, and which no row holds.
    """

    first: int
    width: int
    place: int
    shared: bool

    @property
    def columns(self) -> slice:
        """Those of the row."""
        return slice(self.first, self.first + self.width)

    @property
    def coefficients(self) -> slice:
        """Those of x."""
        return slice(self.place, self.place + (1 if self.shared else self.width))


class Coded(NamedTuple):
    """The loss for some labels, the labels in numbers, and what 0, 1, … stand for where they were something else."""

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
    parameters: ClassVar[tuple[Parameter, ...]] = ()  # the same where they may have predictors of their own
    quadratic: ClassVar[bool] = False  # whether the curvature is constant, so that the posterior is Gaussian
    convex: ClassVar[bool] = False  # whether the curvature is known to be 0 or more for all t and y
    convex_given_shared: ClassVar[bool] = False  # the same in the predictors, at any value of the shared parameters
    shared_prior: ClassVar[tuple[Value, Value]] = (
        0.25,
        0.0,
    )  # precision and mean: one for all of them, or one for each
    tried: ClassVar[bool] = False  # whether a row's weight is how many trials its label stands for
    in_trials: ClassVar[bool] = False  # whether y counts the successes of some trials
    label_on_link: ClassVar[bool] = False  # whether labels are on the scale of the predictor, as log y with a log link
    mixture: ClassVar[bool] = False  # whether coefficients are Gaussian given the shared parameter (`closed_forms.py`)
    gaussian_given: ClassVar[str] = ""  # given what rows are Gaussian in the predictor: "noise" or "polya-gamma"
    spread: ClassVar[bool] = False  # whether the shared parameter is a spread, which the residuals of labels tell
    without_residuals: ClassVar[str] = "drop columns"  # what helps where some coefficients fit every label exactly
    overdispersed: ClassVar[str] = ""  # what to try where y varies more than the family has it
    other_zeros: ClassVar[str] = "family='hurdle-negative-binomial'"  # to try where counts have other numbers of zeros
    far_off: ClassVar[str] = ""  # what to try where some y are further off than the family has them
    reading: ClassVar[str] = ""  # how to read a coefficient, where a summary has to say it
    proportional_hazards: ClassVar[bool] = False  # whether e^{−β/σ} is a ratio of hazards
    signed: ClassVar[bool] = False  # whether a label below 0 is a right-censored time
    most_classes: ClassVar[float] = 0  # that labels may have, where they are classes, texts among them
    ordered: ClassVar[bool] = False  # whether the classes have an order, which texts must be given with
    has_intercept: ClassVar[bool] = True  # or whether shared parameters stand in its place
    barrier: ClassVar[bool] = False  # whether ℓ is ∞ outside a region of t, where slopes mean nothing
    outcome: ClassVar[str] = "numbers"  # what y is: events (0 and 1, or shares), counts, classes or numbers
    aliases: ClassVar[tuple[str, ...]] = ()  # other names of the family
    mistaken: ClassVar[tuple[str, ...]] = ()  # names by which people ask for it, and which are answered with its own

    @property
    def link(self) -> str:
        """Where the family has several, and this is not the usual one; else ""."""
        return ""

    @property
    def ratio(self) -> str:
        """What e to the power of a coefficient is, where that has a name."""
        return ""

    @property
    def modelled(self) -> str:
        """What the predictor is, in words, with {response}, {event} and {first}, the first class."""
        return "the linear predictor"

    @property
    def multiplied(self) -> str:
        """What e to the power of a coefficient multiplies, in the same words; "" where that has no name."""
        words = self.modelled.replace("the log odds", "the odds").replace("the logarithm of ", "")
        return words if self.ratio and words != self.modelled else ""

    @property
    def kernel(self) -> Any:
        """Its `Record`, where its formulas are compiled."""
        return None

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers of its record."""
        return ()

    def record(self, kind: Callable[[float], Value] = float) -> Fields:
        """Its numbers as compiled code takes them, in the precision of the rows."""
        size = (self.blocks, sum(self.tail) - self.blocks) if self.tail else ()
        return self.kernel(*map(kind, self.numbers), *size)

    @property
    def nanoseconds(self) -> float:
        """What value and slope of a row take beyond those of the logistic loss, as `benchmarks/costs.py` measures."""
        return 0.0

    @property
    def blocks(self) -> int:
        """The number of predictors that have coefficients of their own."""
        return 1

    @property
    def shared(self) -> int:
        """The number of coefficients of the further predictors: of parameters that all rows share, one each."""
        return 0

    @property
    def widths(self) -> tuple[int, ...]:
        """How many columns each of the further predictors has for itself: none, where all rows share a parameter."""
        return (0,) * self.shared

    def windows(self, columns: int) -> tuple[Window, ...]:
        """The columns and coefficients of each predictor, of rows with so many columns: those that the first k see,
        then those of each further one.
        """
        every = columns - sum(self.widths)
        windows = [Window(0, every, c * every, False) for c in range(self.blocks)]
        first, place = every, self.blocks * every
        for width in self.widths:
            windows.append(Window(first, width, place, width == 0))
            first, place = first + width, place + max(1, width)
        return tuple(windows)

    @property
    def tail(self) -> tuple[int, ...]:
        """The shape of a row's t: () for one number, (m,) for those of several predictors and shared parameters."""
        return ()

    def predictor(self, t: Array, block: int = 0) -> Array:
        """One of the predictors in t."""
        one: Array = t[..., block] if self.tail else t
        return one

    def unit(self, block: int = 0) -> Array:
        """The t of a row that has 1 as this predictor, and else 0."""
        t = np.zeros(self.tail)
        t[(block,) * t.ndim] = 1.0
        return t

    @property
    def known_noise(self) -> float | None:
        """The standard deviation of y about its predictor, where it is given beforehand; None where it is not."""
        return None

    def parameter_names(self, classes: Classes | None = None) -> tuple[str, ...]:
        """The names of the shared parameters, for labels of these classes."""
        return self.shared_names

    def with_classes(self, levels: Sequence[object], ordered: bool) -> tuple[Loss, Sequence[object]]:
        """The loss for labels of these classes, and the classes in the order in which they are numbered.

        ordered: whether the levels have an order of their own; that of texts is else the alphabet's.
        """
        return self, levels

    @property
    def scaled_by(self) -> str:
        """What the size of a large effect on a predictor is the standard deviation of; "" where it is 1."""
        return "y" if self.identity_link else ""

    def weak_shared_prior(self, size: float, typical: float = 0.0) -> tuple[Value, Value]:
        """Precision and mean of the shared parameters where the size of a large effect on a predictor, and what is
        typical of it (`overall`), are known.
        """
        return self.shared_prior

    def weak_shared_words(self, names: Sequence[str]) -> list[str]:
        """The same in words."""
        precision, mean = (np.broadcast_to(part, len(names)) for part in self.shared_prior)
        return [f"{name} ~ N({m:g}, {p**-0.5:g}²)" for name, p, m in zip(names, precision, mean, strict=True)]

    def shared_start(self, y: Array) -> Array:
        """Values of the shared parameters at which the search for the mode starts."""
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
        """Bounds on |∂³ℓ/∂t³| over low ≤ t ≤ high and all y, finite or ∞; here the one that holds everywhere."""
        return None if self.third_bound is None else np.full(np.shape(low), self.third_bound)

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Check n labels, and return them in the form that the loss uses."""
        return np.asarray(real_array("y", y, (n,)), np.float64)

    def observed(self, y: npt.ArrayLike, n: int, trials: npt.ArrayLike | None = None) -> Observed:
        """The labels, and how many observations each stands for; trials are an error unless the family has them."""
        if trials is not None:
            raise requirement("trials", f"None for {self}", "an array", "only a binomial label is a number of trials")
        return Observed(self.labels(y, n), None)

    def coded(self, y: npt.ArrayLike) -> Coded:
        """The loss for these labels, where it depends on them, and the labels in numbers, where they are not."""
        within = self.with_bounds() if np.ndim(y) == 2 else None
        return Coded(self, y) if within is None else within.coded(y)

    def remark(self, least: float) -> str:
        """What a user should know of labels that are taken, of which this is the least; "" where there is nothing."""
        return ""

    def with_noise(self, noise_variance: float) -> Loss:
        """The loss with this variance of the noise, for families that have noise which may be known."""
        why = "only the family 'gaussian' has noise whose variance may be known"
        raise requirement("noise_variance", f"None for {self}", noise_variance, why)

    def with_censoring(self) -> Loss | None:
        """The loss for labels that are times, −time where they are right-censored; None where there is none."""
        return None

    def with_bounds(self) -> Loss | None:
        """The loss for labels of which bounds are given (`bounds.py`); None where there is none."""
        return None

    def bounds(self, y: Array) -> Array | None:
        """(lower, upper, lb, ub) of each label, on the scale on which users have it; None where labels have none."""
        return None

    def centre(self, y: Array) -> Array:
        """One finite number for each label."""
        return y

    def censored(self, y: Array) -> npt.NDArray[np.bool_] | None:
        """Which labels are right-censored times; None where none can be."""
        return None

    def on_link(self, y: Array) -> Array:
        """Labels on the scale of the predictor, of a family whose shared parameter is a spread."""
        return y

    def faces(self, y: Array) -> Faces | None:
        """The directions in which ℓ stays bounded, for each label (`recession.py`); None where that is not known."""
        return None

    def unsettled(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """Why a shared parameter whose prior is flat has no posterior, in words; None where it has one.

        Rows of this weight in all, so many coefficients whose prior is flat too, whether some coefficients fit all
        labels without a residual, which shared parameters have a flat prior, and the labels.
        """
        return None

    def start(self, y: Array) -> Array | None:
        """For each label, the predictor that would fit it best, where the search for the mode starts; None for 0."""
        return None

    def overall(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """What is typical of the labels, for weak priors that follow the data: the predictor (less offsets) whose mean
        is that of all rows, and the size of a large effect on a predictor; 0 and 1 where a loss does not say.
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
        """The variance of one y at t, for R² on the scale of y; None where a loss does not say, or there is none."""
        return None

    def link_variance(self, mean: Array, shared: Array) -> Array | None:
        """The variance of one y about its mean, on the scale of the predictor, for shares of variance and R².

        mean: of y over rows, (draws,). shared: the shared parameters, (draws, q). None where a loss does not say.
        """
        return None

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """The part of −log p(y | t) that does not depend on t; 0 unless a loss says otherwise."""
        return np.zeros(np.shape(y))

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """The quantile of y at t for a probability u; with u uniform on (0, 1) this draws a new y."""
        raise requirement("loss", "one that says how a y is drawn", f"{self}")

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array] | None:
        """P(Y < y) and P(Y ≤ y) at t, by which the fit of a model is checked; None where a loss does not say."""
        return None

    def survival(self, t: Array, time: Array) -> Array | None:
        """P(Y > time) at t, of families for times; None of any other."""
        return None

    def trials_of(self, y: Array, weights: Array | None) -> Array | None:
        """How many trials each label stands for, by the labels and weights of rows; None where there are none."""
        return weights if self.tried else None

    def seen(self, y: Array, trials: Array | None = None) -> Array:
        """Labels as a user knows them, and as `draw` gives new ones."""
        return y

    def identity(self, label: Array) -> str:
        """A name that changes if the loss does: that of its class, with a digest of some of its values."""
        t = np.linspace(-3.0, 3.0, 13)
        return f"{type(self).__name__} {digest(self.value(t, label), self.slope(t, label))}"

    def third_size(self, curvature: Array) -> Array:
        """A rough size of |∂³ℓ/∂t³| near a point with this curvature, 0 or more. It decides how often a row is drawn,
        and need not be a bound.
        """
        return np.abs(curvature)


class Family(Loss):
    """A loss whose value, slope and curvature are the formulas of its record."""

    def value(self, t: Array, y: Array) -> Array:
        """ℓ(t, y)."""
        formulas = _formulas(self.kernel)
        if formulas.value is not None:
            return self._evaluated(formulas.value, formulas.arguments, t, y)
        return self._evaluated(formulas.both, formulas.arguments, t, y)[0]

    def slope(self, t: Array, y: Array) -> Array:
        """∂ℓ/∂t."""
        formulas = _formulas(self.kernel)
        slopes = self._evaluated(formulas.slope, formulas.arguments, t, y)
        return slopes if formulas.arguments == 1 else np.stack(np.broadcast_arrays(*slopes), axis=-1)

    def curvature(self, t: Array, y: Array) -> Array:
        """∂²ℓ/∂t²."""
        formulas = _formulas(self.kernel)
        bend = self._evaluated(formulas.curvature, formulas.arguments, t, y)
        if formulas.arguments == 1:
            return bend
        m = formulas.arguments
        place = np.zeros((m, m), np.int64)
        place[np.triu_indices(m)] = np.arange(len(bend))
        return np.stack(np.broadcast_arrays(*bend), axis=-1)[..., np.maximum(place, place.T)]

    def _evaluated(self, function: Value, arguments: int, t: Array, y: Array) -> Value:
        """With e^t = ∞ where it overflows, from which formulas make the right limit."""
        with np.errstate(over="ignore"):
            if arguments == 1:
                return function(self._float64_record, t, y)
            return function(self._float64_record, *(t[..., j] for j in range(arguments)), y)

    @cached_property
    def _float64_record(self) -> Fields:
        return self.record()


class SharedFamily(Family):
    """A family of t ∈ ℝᵐ, its last axis: `blocks` predictors and `shared` parameters, one of them unless it says more.

    Coefficients come first in x, shared parameters last, each with a normal prior of its own unless another is given.
    """

    @property
    def shared(self) -> int:
        return 1

    @property
    def tail(self) -> tuple[int, ...]:
        """(k + q,)."""
        return (self.blocks + self.shared,)

    def identity(self, label: Array) -> str:
        """As for one predictor, at some points of ℝᵐ."""
        t = np.cos(np.arange(13 * sum(self.tail))).reshape(13, -1)
        return f"{type(self).__name__} {digest(self.value(t, label), self.slope(t, label))}"


@cache
def _formulas(record: type[Record]) -> Formulas:
    """The formulas of a record over NumPy's primitives."""
    formulas: Formulas = record.formulas(NUMPY)
    return formulas


Factory = TypeVar("Factory", bound=Callable[..., Loss])
FAMILIES: dict[str, Callable[[], Loss]] = {}  # by name, as users write it


def family(factory: Factory) -> Factory:
    """Declare what makes a family: it has the name of its function."""
    FAMILIES[factory.__name__.replace("_", "-")] = factory
    return factory


def two_values(none: Array, event: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
    """P(Y < y) and P(Y ≤ y) of 0 and 1, from P(Y = 0)."""
    return np.where(event, none, 0.0), np.where(event, 1.0, none)


def class_at(probabilities: Array, u: Array) -> Array:
    """The class at which the cumulated probabilities pass u."""
    edges = np.cumsum(probabilities, axis=-1)[..., :-1]
    return np.asarray((np.asarray(u)[..., None] > edges).sum(axis=-1), np.float64)


def mean_and_sd(y: Array, weights: Array) -> tuple[float, float]:
    """Of weighted numbers; the standard deviation of equal ones is taken as their size, or 1."""
    mean = float(np.average(y, weights=weights))
    sd = math.sqrt(float(np.average((y - mean) ** 2, weights=weights)))
    return mean, sd if sd > 1e-12 * abs(mean) else abs(mean) or 1.0


def log_odds(events: Value, total: Value) -> float:
    """log p/(1 − p) of a share, with half an event more of each kind."""
    return math.log((float(events) + 0.5) / (float(total - events) + 0.5))


def log_rate(y: Array, weights: Array, offset: Array) -> float:
    """log Σ wy / Σ we^{offset}, the rate of all rows together; of half an event where there was none."""
    high = float(offset.max())
    total = float(weights @ y)
    return math.log(total if total else 0.5) - math.log(float(weights @ np.exp(offset - high))) - high


def spread_unsettled(weight: float, free: int, exact: bool) -> str | None:
    """What a spread needs: residuals, and rows of more weight than there are coefficients without a prior."""
    if exact:
        return "some coefficients fit every y exactly, so that no residual tells how large the spread is"
    if weight <= free:
        return f"rows of weight {weight:g} in all leave nothing over for it beside {free} coefficients"
    return None
