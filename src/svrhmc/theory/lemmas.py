"""Three lemmas of the paper as functions: the recursion (5), the path of the diffusion (10), the discrete path (12)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from svrhmc.core.errors import nonnegative, positive, requirement, whole
from svrhmc.targets.base import FiniteSum
from svrhmc.theory.bounds import FRICTION, g_0
from svrhmc.theory.problem import Problem, as_problem, held


@held
def recursion_bound(A: float, B: float, C: float, start: float, steps: int) -> float:
    """Lemma 5: if x²_{k+1} ≤ ((1 − A)x_k + C)² + B² for every k, with 0 < A < 1, then x_K ≤ (1 − A)^K x₀ + C/A + B/√A.

    Proof. Let E = C/A + B/√A. Then E − ((1 − A)E + C) = AE − C = √A B, and E + ((1 − A)E + C) ≥ (2 − A)B/√A ≥ B/√A, so
    that ((1 − A)E + C)² + B² ≤ E². If x_k ≤ E + t with t ≥ 0, then, as (1 − A)E + C ≤ E,

        x²_{k+1} ≤ ((1 − A)E + C)² + B² + 2((1 − A)E + C)(1 − A)t + (1 − A)²t² ≤ (E + (1 − A)t)²,

    and so x_K ≤ E + (1 − A)^K (x₀ − E)₊. ∎ This is Theorem 1 with A = 1 − e^{−η/(2κ)}, C = (2√D₁ + √D₂)η² and
    B = √(D₃ρ) mη². The repaired bound has another recursion, with the largest w of the epoch in it.

    >>> recursion_bound(A=0.1, B=0.0, C=0.2, start=1.0, steps=10**6)
    2.0
    """
    if not 0 < positive("A", A) < 1:
        raise requirement("A", "between 0 and 1", A)
    decay = (1 - A) ** whole("steps", steps, 0)
    return decay * nonnegative("start", start) + nonnegative("C", C) / A + nonnegative("B", B) / math.sqrt(A)


@dataclass(frozen=True)
class PathBounds:
    """Bounds on E|v|², E f(x) − f(x*) and (of the diffusion) E|∇f(x)|²."""

    speed: float
    potential: float
    gradient: float | None = None


@held
def diffusion_bounds(
    problem: Problem | FiniteSum,
    time: float,
    potential: float,
    speed: float = 0.0,
    friction: float = FRICTION,
    inverse_mass: float | None = None,
) -> PathBounds:
    """Lemma 10: the diffusion after a time t, from a point with f(X₀) − f(x*) = `potential` and |V₀|² = `speed`.

        E|V_t|² ≤ 2u(f(X₀) − f(x*) + γdt) + |V₀|²
        E f(X_t) − f(x*) ≤ f(X₀) − f(x*) + |V₀|²/(2u) + γdt
        E|∇f(X_t)|² ≤ 2L (f(X₀) − f(x*) + |V₀|²/(2u) + γdt)

    By Itô's formula the energy E f(X_t) + E|V_t|²/(2u) changes at the rate γd − (γ/u)E|V_t|² ≤ γd; and |∇f|² ≤
    2L(f − f(x*)). inverse_mass: u, 1/L if it is not given.

    >>> diffusion_bounds(Problem(n=1, dim=3, smoothness=2.0, convexity=1.0), time=0.5, potential=1.0)
    PathBounds(speed=4.0, potential=4.0, gradient=16.0)
    """
    facts, t = as_problem(problem), nonnegative("time", time)
    u = 1 / facts.smoothness if inverse_mass is None else positive("inverse_mass", inverse_mass)
    low, middle, high = sorted((positive("friction", friction), float(facts.dim), t))
    gained = low * high * middle  # γdt, in an order in which it does not overflow on the way
    here, v2 = nonnegative("potential", potential), nonnegative("speed", speed)
    energy = here + v2 / (2 * u) + gained
    return PathBounds(u * (2 * (here + gained)) + v2, energy, 2 * facts.smoothness * energy)


@held
def energy_bounds(
    problem: Problem | FiniteSum, step_size: float, steps: int, potential: float | None = None
) -> PathBounds:
    """Lemma 12: SVR-HMC (γ = 2, u = 1/L, v₀ = 0) at every step up to K, from f(x₀) − f(x*) = `potential`, else LR²/2.

        E f(x_k) − f(x*) ≤ M_K/(1 − γη),      E|v_k|² ≤ 2u M_K,
        M_K = e^{G₁Tη}E₀ + T(γd + G₀η) + ½T²ηG₁e^{G₁Tη}(γd + G₀η),      T = Kη,

    E₀ = (1 − γη)(f(x₀) − f(x*)), G₀ = 6u(1/n)Σ|∇fᵢ(x*)|² + Lud and G₁ = 36ρκ, with ρ = Λ²/L² (1 in the paper). The
    corrections to the statement are in docs/errata.md (A31 to A33). Steps: with the Lyapunov function
    E_k = (1 − γη)(f(x_k) − f(x*)) + |v_k|²/(2u), smoothness of f along x, the square of the velocity's update, and
    (1/n)Σ|∇fᵢ(x)|² ≤ (4Λ²/μ)(f(x) − f(x*)) + 2(1/n)Σ|∇fᵢ(x*)|² at x_k and at the snapshot x̃, where also |∇f(x̃)|² ≤
    (2L²/μ)(f(x̃) − f(x*)), as ∇f(x*) = 0,

        E_{k+1} ≤ (1 + G₁η²) max(E_k, E_snapshot) + ηγd + η²G₀,

    so that M_{k+1} ≤ (1 + G₁η²)M_k + ηγd + η²G₀ for the running maximum, and (eʸ − 1)/y ≤ 1 + yeʸ/2. Needs η ≤ 1/(2γ).

    >>> problem = Problem(n=9, dim=1, smoothness=1.0, convexity=1.0, gradient_variance=0.0)
    >>> round(energy_bounds(problem, step_size=0.01, steps=100).speed, 3)
    5.057
    """
    facts, eta, K = as_problem(problem), positive("step_size", step_size), whole("steps", steps, 0)
    if eta > 1 / (2 * FRICTION):
        raise requirement("step_size", f"at most {1 / (2 * FRICTION)}", eta, "Lemma 12 is proved only for such steps")
    if facts.gradient_variance is None:
        raise requirement("gradient_variance", "given for Lemma 12", "None")
    here = facts.smoothness * facts.radius**2 / 2 if potential is None else nonnegative("potential", potential)
    T, G_0, G_1 = K * eta, g_0(facts, facts.gradient_variance), 36 * facts.variance_ratio * facts.condition_number
    start, gained = (1 - FRICTION * eta) * here, FRICTION * facts.dim + G_0 * eta
    if G_1 * T * eta > 700:  # beyond what a float64 holds
        return PathBounds(math.inf, math.inf)
    growth = math.exp(G_1 * T * eta)
    most = growth * start + T * gained + 0.5 * T**2 * eta * G_1 * growth * gained
    return PathBounds(2 / facts.smoothness * most, most / (1 - FRICTION * eta))
