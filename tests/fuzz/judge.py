"""What counts as a failure.

A call may give an answer, or refuse its input by an error that the package raises itself, with a message of its own.
Everything else is a failure: an error of a library below, a warning, a nan, an answer that differs from an oracle.
"""

from __future__ import annotations

import collections
import dataclasses
import dis
import math
import signal
import types
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import svrhmc

PACKAGE = Path(svrhmc.__file__).resolve().parent
SECONDS = 20  # of processor time that a call may take, compilation not counted
# errors by which the package refuses an input; all others are failures even if it raises them itself
KINDS = (ValueError, TypeError, RuntimeError, ModuleNotFoundError, AttributeError)
OWN_WARNINGS = ("The model contradicts the data's scale: ",)

counted: collections.Counter[str] = collections.Counter()  # calls, by the name of what was called


class FailureError(AssertionError):
    """What a case found."""


class RefusedError(Exception):
    """The package refused the input, in its own words."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error


class _HangError(BaseException):
    """A call that takes too long; no `except Exception` stops it."""


def ask(call, *args, tame=False, allow=(), nan=(), **kwargs):
    """The answer of a call; raises `RefusedError` where the input is refused, and `FailureError` for all that must not be.

    tame: an input that has an answer, so that to refuse it is a failure too.
    allow: libraries below whose errors may pass, such as scikit-learn's own checks of its estimators.
    nan: names of fields that may hold nan.
    """
    counted[_name(call)] += 1
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=FutureWarning, module="arviz")
        try:
            with _watched(_name(call)):
                answer = call(*args, **kwargs)
        except _HangError:
            raise FailureError(f"{_name(call)} took more than {SECONDS} s") from None
        except MemoryError as error:
            raise FailureError(f"{_name(call)}: MemoryError") from error
        except Exception as error:
            reason = bare(error, allow)
            if reason:
                raise FailureError(f"{_name(call)}: {reason}: {type(error).__name__}: {error}") from error
            _no_warning(call, told, allow)
            if tame:
                raise FailureError(f"{_name(call)} refused a plain input: {type(error).__name__}: {error}") from error
            raise RefusedError(error) from error
    _no_warning(call, told, allow)
    where = nan_in(answer, nan)
    if where:
        raise FailureError(f"{_name(call)}: nan in {where}")
    return answer


def refuses(call, *args, match, **kwargs):
    """The input is known to be bad: to answer it is a failure, and so are other words than `match`."""
    try:
        answer = ask(call, *args, **kwargs)
    except RefusedError as refused:
        if match not in str(refused.error):
            raise FailureError(f"{_name(call)} said {refused.error}, not {match!r}") from refused.error
        return refused.error
    raise FailureError(f"{_name(call)} answered a bad input with {answer!r}")


def agree(what, got, expected, tolerance):
    """An answer, and that of an oracle: within an absolute tolerance, one number or an array of them."""
    got, expected, tolerance = (np.asarray(each, np.longdouble) for each in (got, expected, tolerance))
    with np.errstate(all="ignore"):
        fine = (np.abs(got - expected) <= tolerance) | (got == expected)
    if got.shape != expected.shape or not fine.all():
        raise FailureError(f"{what} is {got}, and the oracle has {expected} (tolerance {tolerance})")


def holds(condition, what):
    """Something that must be true."""
    if not condition:
        raise FailureError(what)


def bare(error, allow=()):
    """Why an error is one that no user should see; None where the package says it itself."""
    trace = error.__traceback__
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    if len(frames) <= 1 and isinstance(error, TypeError):
        return None  # Python says that there is no such argument
    last = frames[-1]
    file = Path(last.tb_frame.f_code.co_filename)
    if any(f"/{library}/" in str(file) for library in allow):
        return None
    if not file.resolve().is_relative_to(PACKAGE):
        return f"an error of {file.name}, line {last.tb_lineno}"
    if not _raises(last):
        return f"an error that {file.relative_to(PACKAGE)}, line {last.tb_lineno}, does not raise itself"
    if isinstance(error, np.linalg.LinAlgError) or not isinstance(error, KINDS) or not str(error).strip():
        return "an error of the wrong kind"
    return None


def _raises(trace: types.TracebackType) -> bool:
    """Whether the frame was left by a `raise` of its own, and not by an operation that failed."""
    return any(
        each.offset == trace.tb_lasti and each.opname in ("RAISE_VARARGS", "RERAISE")
        for each in dis.get_instructions(trace.tb_frame.f_code)
    )


def nan_in(answer, but=(), depth=5, where="the answer"):
    """Where a nan is in an answer; None where there is none."""
    if isinstance(answer, float | np.floating):
        return where if math.isnan(answer) else None
    if isinstance(answer, np.ndarray):
        if answer.dtype.kind == "f" and np.isnan(answer).any():
            return where
        return None
    if depth == 0:
        return None
    parts = ()
    if isinstance(answer, dict):
        parts = answer.items()
    elif isinstance(answer, tuple | list):
        parts = enumerate(answer[:50])
    elif dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        parts = [(each.name, getattr(answer, each.name)) for each in dataclasses.fields(answer)]
    for name, part in parts:
        if name not in but and (found := nan_in(part, but, depth - 1, f"{where}.{name}")):
            return found
    return None


def _no_warning(call, told, allow):
    for each in told:
        of_a_library = any(f"/{library}/" in each.filename for library in allow)
        if not str(each.message).startswith(OWN_WARNINGS) and not of_a_library:
            place = f"{Path(each.filename).name}, line {each.lineno}"
            raise FailureError(f"{_name(call)} warned: {each.category.__name__}: {each.message} ({place})")


def _name(call) -> str:
    owner = getattr(call, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        kind = owner if isinstance(owner, type) else type(owner)
        return f"{kind.__name__}.{getattr(call, '__name__', call)}"
    return f"{getattr(call, '__module__', '')}.{getattr(call, '__qualname__', call)}".removeprefix("svrhmc.")


def _compiles(frame) -> bool:
    """Whether the time goes into compilation, which is not counted."""
    while frame is not None:
        if "/numba/" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


@contextmanager
def _watched(name):
    """An alarm that ends Python code; what does not return to Python ends with its process (`machine.py`)."""

    def ring(number, frame):
        if _compiles(frame):
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
        else:
            raise _HangError(name)

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
