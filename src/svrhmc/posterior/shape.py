"""How far the posterior is from the Gaussian at its mode."""

from __future__ import annotations

from dataclasses import dataclass

from svrhmc.posterior.fresh import Fresh


@dataclass(frozen=True, eq=False)
class Shape:
    """What is known of it, found once for a target and the same whatever the seed."""

    fresh: Fresh

    def nearly_gaussian(self) -> bool:
        return True
