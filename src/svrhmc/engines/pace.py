"""Pieces of a tenth of a second: the time between two looks at the clock, at an interrupt and at who is told."""

from __future__ import annotations

PIECE_SECONDS = 0.1
HIGH = 1 << 32  # steps after which the keys of chains change


class Pace:
    """How many chain steps a piece of a tenth of a second has, learnt from the pieces so far."""

    def __init__(self) -> None:
        self.steps = 64

    def learn(self, steps: int, seconds: float) -> None:
        """So many chain steps took so long; a call that only asked for a pass over the rows made none."""
        if steps:
            wanted = steps * PIECE_SECONDS / max(seconds, 1e-9)
            self.steps = int(min(max(wanted, 1), 8 * self.steps, 1 << 40))
