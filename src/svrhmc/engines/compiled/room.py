"""Arrays for compiled code: room that no two threads share, and views that cannot be written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from svrhmc.core.randomness import MAX_SLOTS, Purpose
from svrhmc.kernels.layout import DenseModel, Noise

CHUNK_BLOCKS = 512  # random blocks made together: enough for vector code, little enough for the cache
_LANES = {np.dtype(np.float32): 32, np.dtype(np.float64): 16}  # numbers that a vector loop takes at once
_PADDING = 1.4  # rows are read to a multiple of that where it costs no more than this
_APART = 128  # bytes


def apart(shape: int | tuple[int, ...], kind: Any = np.float64) -> Any:
    """Zeros with a cache line to spare on both sides, so that two threads never write to the same one."""
    size = math.prod(shape if isinstance(shape, tuple) else (shape,))
    spare = _APART // np.dtype(kind).itemsize
    return np.zeros(size + 2 * spare, kind)[spare : spare + size].reshape(shape)


def slots_of(purpose: Purpose, count: int) -> Any:
    """Second words of the counters of so many blocks."""
    return np.arange(count, dtype=np.uint32) + np.uint32(purpose * MAX_SLOTS)


def row_width(model: Any, dim: int) -> int:
    """To how many numbers a pass reads a row: where it costs little, a dense one to whole vectors."""
    lanes, columns = _LANES[model[0].dtype], (dim - _shared(model)) // _blocks(model)
    width = -(-columns // lanes) * lanes
    return width if isinstance(model, DenseModel) and width <= _PADDING * columns else columns


def state_width(model: Any, dim: int) -> int:
    """Numbers of a state whose blocks are each as long as that; one block for most losses."""
    return _blocks(model) * row_width(model, dim) + _shared(model)


def _blocks(model: Any) -> int:
    return int(getattr(getattr(model, "loss", None), "blocks", 1))


def _shared(model: Any) -> int:
    return int(getattr(getattr(model, "loss", None), "shared", 0))


def noise_room(half: int, span: int, fine: bool = True, words: int = 0) -> Noise:
    """Counters and words for the normals of `span` steps of `half` random blocks each; room for `words` at least."""
    counters = np.arange(span, dtype=np.uint32)
    return Noise(
        steps=np.repeat(counters, half),
        slots=np.tile(slots_of(Purpose.NOISE, half), span),
        fine_slots=np.tile(slots_of(Purpose.NOISE_FINE, half if fine else 0), span),
        words=apart((4, max(words, span * half)), np.uint32),
    )


def chunk_noise(dim: int) -> Noise:
    """Room for the normals of as many steps as are made together."""
    half = (dim + 1) // 2
    return noise_room(half, max(1, CHUNK_BLOCKS // half))


def fixed(array: Any) -> Any:
    """A view that cannot be written, as memory maps are: so that both compile to the same code."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
