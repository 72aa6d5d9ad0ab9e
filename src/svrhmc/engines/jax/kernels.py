"""Kernels of our own for GPUs, through Pallas and Triton, and where they are of use."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import jax

from svrhmc.core.jaxed import scoped

Given = ParamSpec("Given")
Found = TypeVar("Found")

triton: Any = None
with suppress(ImportError):  # that it will go one day is announced; without it XLA does everything
    triton = import_module("jax.experimental.pallas.triton")


def on_gpu() -> bool:
    """Whether kernels can be made, and are worth it."""
    return triton is not None and jax.default_backend() == "gpu"


def running(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """The function, called inside `scope`, without the notice that Pallas will leave Triton one day."""

    @scoped
    @wraps(function)
    def inside(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The Pallas Triton backend is deprecated", DeprecationWarning)
            return function(*args, **kwargs)

    return inside
