"""Rows that are not in the memory of the host, such as those in partitions or on a device.

Each sum over them is a pass, and the results of the last passes are remembered, as reading rows costs more than
multiplying them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import NoReturn, cast

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.rows.base import Rows, RowSums, Total

_REMEMBERED = 2  # passes that are remembered besides the last one


class RowsByPasses(Rows):
    """Rows of which only sums over all of them are known."""

    in_memory = False

    def recall(self, function: Callable[..., Total], *arguments: Array) -> Total | None:
        return cast(Total | None, self._remembered.get(_key(function, arguments)))

    def remember(
        self, function: Callable[..., Total], arguments: tuple[Array, ...], total: Total, counted: bool
    ) -> None:
        """Beside the last ones; and count the pass, if the caller does not."""
        for old in list(self._remembered)[:-_REMEMBERED]:
            del self._remembered[old]
        self._remembered[_key(function, arguments)] = total
        if not counted:
            self.count(1.0)

    def count(self, share: float) -> None:
        """Report a pass, or a share of one, that the caller does not count."""
        if self.watch is not None:
            self.watch(share * self.n)

    @cached_property
    def _remembered(self) -> dict[tuple[str | bytes, ...], RowSums]:
        return {}

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count a pass over all rows, and time it."""
        began = time.perf_counter()
        yield
        self.pass_seconds = min(time.perf_counter() - began, self.pass_seconds or math.inf)
        self.passes += 1

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise requirement("target", "one whose rows are in memory, for this", f"rows {self.where}")

    predict = predict_at = dense_matrix = combine = combine_at = gram = gram_diagonal = squared_norms = _refuse
    choose = lengths = _refuse


def _key(function: Callable[..., object], arguments: Sequence[Array]) -> tuple[str | bytes, ...]:
    return function.__name__, *(np.ascontiguousarray(array).tobytes() for array in arguments)
