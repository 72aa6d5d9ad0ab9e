"""Targets that are log-concave, but not strongly so (paper, section 4.2): what the quadratic added to them costs."""

from __future__ import annotations

import math

from svrhmc.core.errors import positive


def regularisation_distance(strength: float, fourth_moment: float) -> float:
    """A bound on W₂(π̄, π) for π̄ ∝ exp(−f − (λ/2)|x − c|²), given E_π|x − c|⁴ ≤ fourth_moment.

        KL(π‖π̄) ≤ ½ E_π (f̄ − f)² = (λ²/8) E_π|x − c|⁴            (Lemma 8)
        W₂(π̄, π) ≤ √(2 KL(π‖π̄)/λ) ≤ ½ √(λ E_π|x − c|⁴)          (Lemma 9, Talagrand; the proof of Theorem 2)

    >>> regularisation_distance(strength=0.04, fourth_moment=1.0)
    0.1
    """
    return 0.5 * math.sqrt(positive("strength", strength) * positive("fourth_moment", fourth_moment))
