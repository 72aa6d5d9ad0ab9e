"""Errors of one shape: which argument, what is allowed, what was given, and why.

>>> raise requirement("step_size", "a positive number", -1.0)
Traceback (most recent call last):
ValueError: step_size must be a positive number; got -1.0.
"""

from __future__ import annotations

import difflib
import math
import numbers
import warnings
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

_P = ParamSpec("_P")
_R = TypeVar("_R")
Checked = TypeVar("Checked")
_BLOCK_ELEMENTS = 1 << 22  # entries checked at a time, so that a check of X never allocates a second X


class DivergenceError(RuntimeError):
    """A chain diverged: its numbers are no longer finite. Attributes: `chain`, `step`, and a `step_size` to try."""

    def __init__(
        self, chain: int, step: int, step_size: float, suggestion: float, advice: str = "start='mode'"
    ) -> None:
        self.chain = chain
        self.step = step
        self.step_size = suggestion
        super().__init__(
            f"chain {chain} diverged at step {step} with step_size {step_size:g} (its numbers are no longer finite): "
            f"try step_size {suggestion:.3g}, a larger batch_size, or {advice}."
        )
        self._arguments = (chain, step, step_size, suggestion, advice)

    def advising(self, advice: str) -> DivergenceError:
        """The same error with other advice, in addition to that about the step and the batch."""
        return DivergenceError(*self._arguments[:4], advice)

    def __reduce__(self) -> tuple[type[DivergenceError], tuple[int, int, float, float, str]]:
        return DivergenceError, self._arguments


class UndefinedDensityError(RuntimeError):
    """The log posterior is not a number (NaN) at a state of a chain. Attributes: `chain` and `step`."""

    def __init__(self, chain: int, step: int) -> None:
        self.chain, self.step = chain, step
        super().__init__(
            f"chain {chain}, step {step}: the log posterior is not a number (NaN) at a point near the posterior. "
            "Rejecting such points would silently cut off a part of the posterior, so the run ends here. The log "
            "density must be finite, or -inf where the density is 0: look for 0 · inf, inf - inf, the log or root of a "
            "negative number, and overflow in float32."
        )

    def __reduce__(self) -> tuple[type[UndefinedDensityError], tuple[int, int]]:
        return UndefinedDensityError, (self.chain, self.step)


class BudgetError(RuntimeError):
    """A budget is too small for anything to be returned. Attributes: its `name`, its `limit`, and `needed`, roughly the
    seconds (or passes) from the start until there is something to return; infinite if that is not known, and the
    message says so.
    """

    def __init__(self, name: str, limit: float, missing: str, needed: float = math.inf) -> None:
        self.name, self.limit, self.needed = name, limit, needed
        self._arguments = (name, limit, missing, needed)
        unit = "s" if name == "budget_seconds" else "passes"
        roughly = f"It would take roughly {needed:g} {unit}."
        estimate = "How much it would take is not known." if math.isinf(needed) else roughly
        super().__init__(
            f"{name}={limit:g} ends before {missing}, and without that there is nothing to return. {estimate} Give a "
            "larger budget, or none."
        )

    def __reduce__(self) -> tuple[type[BudgetError], tuple[str, float, str, float]]:
        return BudgetError, self._arguments


class UnstableStepError(ValueError):
    """The step is too long: with it a chain would diverge."""


class NoResidualsError(ValueError):
    """Some coefficients fit every label exactly, so that there are no residuals to estimate the spread from."""


class TraceFileError(ValueError):
    """A file is not a complete svrhmc trace."""


class PosteriorFileError(ValueError):
    """A file is not a complete svrhmc posterior."""


class StorageError(ValueError):
    """A file of svrhmc cannot be read or is not whole."""


class ArchiveFileError(ValueError):
    """A file is not a whole .npz archive of numbers."""


class CheckpointError(ValueError):
    """A checkpoint cannot be used for this call, or cannot be written; what it holds is left as it is."""


class CheckpointInUseError(CheckpointError):
    """Another process has the checkpoint open."""


class DataError(ValueError):
    """A data set cannot be used or obtained; says which file, why, and what to do."""


class WorkersError(RuntimeError):
    """A worker was lost while it read partitions; says in which pass, and how to go on."""


class VerdictWarning(UserWarning):
    """A posterior is not known to be right (its verdict is undecided, refuted or unjudged), or it has fewer draws than
    were requested.
    """


class VerdictError(RuntimeError):
    """A posterior is not known to be right, and errors were requested (`on_undecided="raise"` of the estimators)."""


class MissingDataError(DataError):
    """A data set's file is not in the folder and cannot be downloaded; says which, and how to get it."""


def requirement(
    name: str, allowed: str, given: object, why: str = "", kind: type[ValueError] = ValueError
) -> ValueError:
    """An error about an argument, in the one shape that all of them have."""
    sentence = f"{name} must be {allowed}; got {given}{': ' + why if why else ''}"
    return kind(sentence if sentence.endswith("?") else f"{sentence}.")


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for use in a sentence; its type if the message is empty."""
    lines = str(error).strip().splitlines()
    return lines[0][:200].rstrip(".") if lines else type(error).__name__


def deprecated(former: str, instead: str, why: str = "") -> None:
    """Warn the caller's caller that a name is deprecated. All deprecations are made by this function."""
    warnings.warn(f"use {instead} for {former}{why and '; ' + why}", DeprecationWarning, stacklevel=3)


def missing_package(package: str, extra: str, purpose: str, also: str = "") -> ModuleNotFoundError:
    """The error if an optional package is not installed: which, what for, and how to install it. also: a package that
    is needed too and is in no extra.
    """
    return ModuleNotFoundError(f"{purpose} needs {package}: pip install 'svrhmc[{extra}]'{also and ' ' + also}.")


def real_number(name: str, value: object, allowed: str, fits: Callable[[float], bool], why: str = "") -> float:
    """A finite number that fits, as a float."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise requirement(name, allowed, repr(value))
    try:
        number = float(value)
    except OverflowError:
        raise requirement(name, f"{allowed} that float64 can hold", "a larger one") from None
    if not (math.isfinite(number) and fits(number)):
        raise requirement(name, allowed, value, why)
    return number


def positive(name: str, value: object, why: str = "") -> float:
    """A finite number above zero, as a float."""
    return real_number(name, value, "a positive number", lambda number: number > 0, why)


def nonnegative(name: str, value: object) -> float:
    """A finite number not below zero, as a float."""
    return real_number(name, value, "a number not below 0", lambda number: number >= 0)


def finite(name: str, value: object) -> float:
    """A finite number, as a float."""
    return real_number(name, value, "a finite number", math.isfinite)


_BEYOND_USE = (1 << 53, 1 << 62)  # upper bounds, as of steps, that an error names only if they are exceeded
_SEED = "leave it out for 0; for other draws each time give a new number, such as secrets.randbits(32)"


def whole_number(name: str, value: object, low: int, high: int | None = None, why: str = "") -> int:
    """An integer from low to high, both included."""
    allowed = f"a whole number from {low} to {high}" if high is not None else f"a whole number of at least {low}"
    if high in _BEYOND_USE and isinstance(value, numbers.Integral) and value < low:
        allowed = f"a whole number of at least {low}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise requirement(name, allowed, repr(value), why or (_SEED if name == "seed" and value is None else ""))
    number = int(value)
    if number < low or (high is not None and number > high):
        raise requirement(name, allowed, number, why)
    return number


def boolean(name: str, value: object) -> bool:
    """True or False; refuses values that are merely truthy."""
    if not isinstance(value, bool | np.bool_):
        raise requirement(name, "True or False", repr(value))
    return bool(value)


def text(name: str, value: object) -> str:
    """A str; refuses anything that would have to be converted."""
    if not isinstance(value, str):
        raise requirement(name, "a text", repr(value)[:60])
    return value


def optional(name: str, value: object, check: Callable[..., Checked], *bounds: object) -> Checked | None:
    """None, or the checked value."""
    return None if value is None else check(name, value, *bounds)


def set_fields(config: object, **values: object) -> None:
    """Set checked values of fields of a frozen dataclass, so that NumPy numbers become plain ones."""
    for name, value in values.items():
        object.__setattr__(config, name, value)


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """One of the allowed strings."""
    if isinstance(value, str) and value in allowed:
        return value
    raise requirement(name, "one of " + ", ".join(map(repr, allowed)), repr(value))


def explain_foreign_keywords(**own_words: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """A decorator: if the function is called with a keyword of another library, the error names the keyword used here.

    own_words: by the other library's keyword, the one used here.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def checked(*args: _P.args, **keywords: _P.kwargs) -> _R:
            for word in own_words.keys() & keywords.keys():
                hint = f"it is called {own_words[word]!r} here"
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {word!r}: {hint}")
            return function(*args, **keywords)

        return checked

    return decorate


def did_you_mean(word: str, words: Iterable[str], cutoff: float = 0.5) -> str:
    """The question whether a similar word was meant; "" if none is similar.

    >>> did_you_mean("agee", ["age", "plan"]), did_you_mean("xyz", ["age", "plan"])
    ("did you mean 'age'?", '')
    """
    matches = difflib.get_close_matches(word, list(words), 1, cutoff)
    return f"did you mean {matches[0]!r}?" if matches else ""


def real_array(name: str, value: npt.ArrayLike, shape: tuple[int | str, ...]) -> npt.NDArray[np.floating]:
    """A finite floating-point array of the given shape; a word in `shape` stands for any length of at least 1.

    float32 and float64 are kept; integers, booleans and objects that are numbers (such as `Decimal`) become float64,
    float16 becomes float32, and anything else is refused. Never a copy where the type already fits.
    """
    require_unmasked(name, value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise requirement(name, "an array of numbers", "lists of unequal lengths") from None
    if array.dtype.kind == "O":
        array = _numbers(name, array)
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        array = array.astype(np.float32 if array.dtype.itemsize <= 4 else np.float64, copy=False)
    if array.dtype not in (np.float32, np.float64):
        raise requirement(name, "an array of float32, float64 or integers", f"dtype {array.dtype}")
    expected = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
    fits = array.ndim == len(shape) and all(
        have >= 1 if isinstance(want, str) else have == want for have, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        raise requirement(name, f"an array of shape {expected}", f"shape {array.shape}")
    require_finite(name, array)
    return array


def require_unmasked(name: str, value: object) -> None:
    """Refuse an array with a mask, which most functions of NumPy ignore."""
    if isinstance(value, np.ma.MaskedArray):
        raise requirement(name, "an array without a mask", "a masked array", "fill in the missing values")


def require_finite(name: str, array: npt.NDArray[np.floating]) -> None:
    """Refuse NaN and infinity, with the place of the first in the error."""
    rows = max(1, _BLOCK_ELEMENTS // max(1, array[:1].size))
    for begin in range(0, len(array), rows):
        bad = ~np.isfinite(array[begin : begin + rows])
        if bad.any():
            inside = np.unravel_index(int(np.argmax(bad)), bad.shape)
            place = (int(inside[0]) + begin, *map(int, inside[1:]))
            raise requirement(name, "finite everywhere", f"{array[place]} at {_place(place)}")


def _numbers(name: str, array: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """An array of objects as float64; refuses objects that are not numbers."""
    for place, value in np.ndenumerate(array):
        if not isinstance(value, numbers.Real | Decimal):
            why = "drop such rows, or fill in the missing values" if value is None else ""
            raise requirement(name, "an array of numbers", f"{value!r} at {_place(place)}", why)
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise requirement(name, "an array of numbers that float64 can hold", "larger ones") from None


def _place(indices: tuple[int, ...]) -> str:
    axes = ("row", "column") if len(indices) <= 2 else tuple(f"axis {k} index" for k in range(len(indices)))
    return ", ".join(f"{axis} {index}" for axis, index in zip(axes, indices, strict=False))
