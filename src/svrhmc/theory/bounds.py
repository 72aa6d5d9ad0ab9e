"""Bounds on W₂ after K steps: the paper's Theorem 1, corrected and as printed, and a repaired one of ours; its lemmas.

Throughout γ = 2, u = 1/L, κ = L/μ, v₀ = 0 and |x₀ − x*| ≤ R (the paper starts at 0, so that R bounds |x*|).
docs/theory.md derives the repaired bound; docs/errata.md says what was corrected, and why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from svrhmc.core.errors import nonnegative, one_of, positive, requirement, whole_number
from svrhmc.density.base import FiniteSum
from svrhmc.theory.problem import Problem, as_problem, refuses_overflow

FRICTION = 2.0
BOUNDED = ("svr-hmc", "hmc")


@dataclass(frozen=True)
class Condition:
    """A condition of the proof; `holds` is None if it is not known whether it holds."""

    needs: str
    holds: bool | None
    source: str

    def __str__(self) -> str:
        word = {True: "holds", False: "does not hold", None: "cannot be told"}[self.holds]
        return f"{self.needs} ({self.source}): {word}"


@dataclass(frozen=True)
class Constants:
    """U_x, U_f, U_v of Lemma 11 (`tightbound_discretepath`), D₁, D₂, D₃ of Theorem 1, and w₀."""

    U_x: float
    U_f: float
    U_v: float
    D_1: float
    D_2: float
    D_3: float
    w_0: float


@dataclass(frozen=True)
class Bound:
    """A bound on W₂(P(x_K), π), its terms, and the conditions under which it is proved."""

    form: str
    value: float
    start: float
    discretisation: float
    variance: float
    conditions: tuple[Condition, ...]
    constants: Constants | None = None

    @property
    def proved(self) -> bool | None:
        """True if every condition holds, False if one does not, None if this is not known."""
        verdicts = [condition.holds for condition in self.conditions]
        return False if False in verdicts else None if None in verdicts else True

    def __str__(self) -> str:
        lines = [
            f"W₂ ≤ {self.value:.6g} ({self.form})",
            f"  start           {self.start:.6g}",
            f"  discretisation  {self.discretisation:.6g}",
            f"  variance        {self.variance:.6g}",
            *(f"  {condition}" for condition in self.conditions),
        ]
        return "\n".join(lines)


@refuses_overflow
def constants(problem: Problem | FiniteSum, step_size: float, printed: bool = False) -> Constants:
    """The constants of Theorem 1 at a step size.

        U_x = 42d/μ + 24R² + 8d/L,    U_f = L U_x/2,    U_v = 80d/μ + 48R² + 18d/L           (Lemma 11)
        D₁ = (10/3) U_v + 4U_f/(3L) + 16dη/(3L)       printed: (8η²/5 + 4/3) U_v + …           (Lemma 2)
        D₂ = 13 U_v + 8U_f/L + 8dη/L                  printed: … + 28dη/L                      (Lemma 2)
        D₃ = 2U_v + 4d/L                              printed: U_v + 4d/L                      (Lemma 3)
        w₀ = √(2(√(d/μ) + R)² + d/L)                  printed: W₂(P(x₀), π) ≤ √(d/μ) + R       (Theorem 1)

    >>> constants(Problem(n=1, dim=1, smoothness=1.0, convexity=1.0), step_size=1e-6).w_0**2
    2.9999999999999996
    """
    problem = as_problem(problem)
    d, L, mu, R = problem.dim, problem.smoothness, problem.convexity, problem.radius
    eta = positive("step_size", step_size)
    U_x = 42 * d / mu + 24 * R**2 + 8 * d / L
    U_f = L * U_x / 2
    U_v = 80 * d / mu + 48 * R**2 + 18 * d / L
    D_1, D_2, D_3 = _step_errors(d, L, eta, U_f, U_v)
    if printed:
        D_1, D_2, D_3 = D_1 + (8 * eta**2 / 5 - 2) * U_v, D_2 + 20 * d * eta / L, D_3 - U_v
    away = problem.scale + R
    return Constants(U_x, U_f, U_v, D_1, D_2, D_3, away if printed else math.sqrt(2 * away**2 + d / L))


@refuses_overflow
def bound(
    problem: Problem | FiniteSum,
    step_size: float,
    steps: int,
    epoch_length: int | None = None,
    batch_size: int = 1,
    method: str = "svr-hmc",
    printed: bool = False,
) -> Bound:
    """Theorem 1, on W₂ after `steps` steps.

        W₂(P(x_K), π) ≤ e^{−Kη/(2κ)} w₀ + 4ηκ(2√D₁ + √D₂) + 2√(κD₃ρ) m η^{3/2}

    with ρ = Λ²/(L²B): 1 in the paper, where B = 1 and L bounds every component. For "hmc" the last term is absent.
    `epoch_length` None stands for n // batch_size. `printed=True` takes the paper's own constants; with them the
    statement is false (docs/errata.md, A1).

    >>> problem = Problem(n=100, dim=10, smoothness=1.5, convexity=2 / 3, gradient_variance=50.0)
    >>> print(bound(problem, step_size=1e-6, steps=10**6))
    W₂ ≤ 4.85124 (Theorem 1, corrected)
      start           4.84871
      discretisation  0.00252367
      variance        1.54919e-05
      η ≤ 1/4 (Lemma 2): holds
      η² ≤ log 2 L²/(36κΛ²K) (Lemma 11): holds
      G₀η ≤ γd (proof of Lemma 11): holds
      4ηκ(2√D̃₁ + √D̃₂) and 2√(κD̃₃ρ)mη^{3/2} ≤ √(d/μ) (proof of Lemma 11): holds
    """
    problem, eta, K = as_problem(problem), positive("step_size", step_size), whole_number("steps", steps, 0)
    m, ratio = _noise(problem, epoch_length, batch_size, method)
    kappa, at_eta = problem.condition_number, constants(problem, eta, printed)
    start = math.exp(-K * eta / (2 * kappa)) * at_eta.w_0
    terms = (start, *_errors(kappa, eta, m, ratio, at_eta.D_1, at_eta.D_2, at_eta.D_3))
    conditions = tuple(_conditions(problem, eta, K, m, ratio, method))
    return Bound("Theorem 1, as printed" if printed else "Theorem 1, corrected", sum(terms), *terms, conditions, at_eta)


@refuses_overflow
def repaired_bound(
    problem: Problem | FiniteSum,
    step_size: float,
    steps: int,
    epoch_length: int | None = None,
    batch_size: int = 1,
    method: str = "svr-hmc",
) -> Bound:
    """Our bound on W₂ after `steps` steps: for every K, so for the stationary law too, and with no 1/κ² on the step.

    With δ = √(d/L), ρ = Λ²/(L²B), q² = 1 − (η/κ)(1 − η/2 − η²/4), A = 1 − q, and η ≤ 1/4,

        W₂² ≤ y + Γ_K (w₀² − y)₊,      y = (e²/A + 2ν₀²)/(A(1 − β)),      β = 2ν₁²/A < 1,
        e = (√109/2) η²δ,      ν₀ = η√ρ·a·δ,      ν₁ = η√ρ·b,
        Γ_K = (β + (1 − β)(1 − A)^m)^⌊K/m⌋ · (β + (1 − β)(1 − A)^(K mod m)),

    for (a, b) = (min(mη, 2√κ), 2) and for (a, b) = (mη + √(4mη³/3), √2 mη); the better of the two is given. The three
    terms shown are √Γ_K w₀ and the two parts of √y; derived in docs/theory.md.

    >>> problem = Problem(n=100, dim=10, smoothness=1.5, convexity=2 / 3)
    >>> repaired_bound(problem, step_size=1e-3, steps=10**5).proved
    True
    """
    problem, eta, K = as_problem(problem), positive("step_size", step_size), whole_number("steps", steps, 0)
    m, ratio = _noise(problem, epoch_length, batch_size, method)
    small = Condition("η ≤ 1/4", eta <= 0.25, "ours")
    converging = epoch_recursions(problem, eta, m, ratio) if small.holds else []
    tame = Condition("β < 1: η ≤ cB/κ or η³ ≤ cB/(κm²), times L/L_max", bool(converging), "ours")
    if not converging:
        return Bound("repaired, ours", math.inf, math.inf, math.inf, math.inf, (small, tame))
    best = min(converging, key=lambda recursion: recursion.after(K))
    terms = (math.sqrt(best.decay(K)) * best.w_0, best.discretisation, best.variance)
    return Bound("repaired, ours", best.after(K), *terms, (small, tame))


@dataclass(frozen=True)
class EpochRecursion:
    """w²_{k+1} ≤ (1 − A) w²_k + e²/A + 2ν₀² + 2ν₁² max over the epoch of w²: its solution."""

    A: float
    beta: float
    epoch: int
    w_0: float
    discretisation: float
    variance: float

    @property
    def floor(self) -> float:
        """y, the square of what is left for K → ∞."""
        return self.discretisation**2 + self.variance**2

    def decay(self, steps: int) -> float:
        """Γ_K."""
        epochs, rest = divmod(steps, self.epoch)
        loss = self._loss(self.epoch)
        whole = math.exp(epochs * math.log1p(-loss)) if loss < 1 else float(epochs == 0)
        return whole * (1 - self._loss(rest))

    def after(self, steps: int) -> float:
        """The bound on W₂ after K steps."""
        return math.sqrt(self.floor + self.decay(steps) * max(0.0, self.w_0**2 - self.floor))

    def steps_to(self, accuracy: float) -> float:
        """The least K with a bound of `accuracy`, to within one epoch's rounding; infinite where there is none."""
        if accuracy**2 <= self.floor:
            return math.inf
        if accuracy >= self.w_0:
            return 1
        wanted = math.log((accuracy**2 - self.floor) / (self.w_0**2 - self.floor))
        a_epoch = math.log1p(-self._loss(self.epoch))
        epochs = math.floor(wanted / a_epoch)
        left = math.exp(wanted - epochs * a_epoch)
        share = (left - self.beta) / (1 - self.beta)  # (1 − A)^rest that is needed after whole epochs
        rest = self.epoch if share <= 0 else min(self.epoch, math.ceil(math.log(share) / math.log1p(-self.A)))
        return epochs * self.epoch + max(rest, 0)

    def _loss(self, steps: int) -> float:
        """1 − (β + (1 − β)(1 − A)^steps), for steps within an epoch."""
        return -(1 - self.beta) * math.expm1(steps * math.log1p(-self.A))


def epoch_recursions(problem: Problem, eta: float, m: int, ratio: float) -> list[EpochRecursion]:
    """The recursion of the repaired bound with each of the two bounds on |x_k − x̃|, where it converges (β < 1).

    m = 0 stands for full gradients.
    """
    kappa, delta = problem.condition_number, math.sqrt(problem.dim / problem.smoothness)
    A = -math.expm1(0.5 * math.log1p(-(eta / kappa) * (1 - eta / 2 - eta**2 / 4)))
    e = math.sqrt(109) / 2 * eta**2 * delta
    w_0 = constants(problem, eta).w_0
    pairs = [
        (min(m * eta, 2 * math.sqrt(kappa)), 2.0),
        (m * eta + math.sqrt(4 * m * eta**3 / 3), math.sqrt(2) * m * eta),
    ]
    converging = []
    for a, b in pairs if m else [(0.0, 0.0)]:
        nu_0, nu_1 = eta * math.sqrt(ratio) * a * delta, eta * math.sqrt(ratio) * b
        beta = 2 * nu_1**2 / A
        if beta < 1:
            room = math.sqrt(1 - beta)
            variance = math.sqrt(2) * nu_0 / (math.sqrt(A) * room)
            converging.append(EpochRecursion(A, beta, m or 1, w_0, e / (A * room), variance))
    return converging


def _noise(problem: Problem, epoch_length: int | None, batch_size: int, method: str) -> tuple[int, float]:
    """m and ρ = Λ²/(L²B); m = 0 for full gradients."""
    B = whole_number("batch_size", batch_size, 1)
    if one_of("method", method, BOUNDED) == "hmc":
        return 0, 0.0
    m = max(1, problem.n // B) if epoch_length is None else whole_number("epoch_length", epoch_length, 1)
    return m, problem.variance_ratio / B


def _errors(kappa: float, eta: float, m: int, ratio: float, D_1: float, D_2: float, D_3: float) -> tuple[float, float]:
    """4ηκ(2√D₁ + √D₂) and 2√(κD₃ρ) m η^{3/2}."""
    return (
        4 * eta * kappa * (2 * math.sqrt(D_1) + math.sqrt(D_2)),
        2 * math.sqrt(kappa * D_3 * ratio) * m * eta**1.5,
    )


def _conditions(problem: Problem, eta: float, K: int, m: int, ratio: float, method: str) -> list[Condition]:
    """What the proof of Theorem 1 uses, including what its statement leaves out."""
    kappa = problem.condition_number
    variance = 0.0 if method == "hmc" else problem.gradient_variance
    growth = problem.variance_ratio if method == "svr-hmc" else 1.0
    noise = None if variance is None else eta * g_0(problem, variance) <= FRICTION * problem.dim
    early = max(tilde_errors(problem, eta, K * eta, m, ratio)) <= problem.scale
    return [
        Condition("η ≤ 1/4", eta <= 0.25, "Lemma 2"),
        Condition("η² ≤ log 2 L²/(36κΛ²K)", 36 * kappa * growth * K * eta**2 <= math.log(2), "Lemma 11"),
        Condition("G₀η ≤ γd", noise, "proof of Lemma 11"),
        Condition("4ηκ(2√D̃₁ + √D̃₂) and 2√(κD̃₃ρ)mη^{3/2} ≤ √(d/μ)", early, "proof of Lemma 11"),
    ]


def g_0(problem: Problem, variance: float) -> float:
    """G₀ = 6u(1/n)Σ|∇fᵢ(x*)|² + Lud, with f(x*) = 0 (Lemma 12, corrected)."""
    return 6 * variance / problem.smoothness + problem.dim


def tilde_errors(problem: Problem, eta: float, time: float, m: int, ratio: float) -> tuple[float, float]:
    """The two errors with the first, crude bounds Ũ_f = 4(E₀ + 2γdT), Ũ_v = uŨ_f, E₀ ≤ LR²/2 (proof of Lemma 11)."""
    L, d = problem.smoothness, problem.dim
    U_f = 4 * (L * problem.radius**2 / 2 + 2 * FRICTION * d * time)
    return _errors(problem.condition_number, eta, m, ratio, *_step_errors(d, L, eta, U_f, U_f / L))


def _step_errors(d: int, L: float, eta: float, U_f: float, U_v: float) -> tuple[float, float, float]:
    """D₁, D₂ and D₃, corrected, from bounds on f(x_k) − f(x*) and |v_k|²."""
    return (
        10 / 3 * U_v + 4 * U_f / (3 * L) + 16 * d * eta / (3 * L),
        13 * U_v + 8 * U_f / L + 8 * d * eta / L,
        2 * U_v + 4 * d / L,
    )


@refuses_overflow
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
    decay = (1 - A) ** whole_number("steps", steps, 0)
    return decay * nonnegative("start", start) + nonnegative("C", C) / A + nonnegative("B", B) / math.sqrt(A)


@dataclass(frozen=True)
class PathBounds:
    """Bounds on E|v|², E f(x) − f(x*) and (of the diffusion) E|∇f(x)|²."""

    speed: float
    potential: float
    gradient: float | None = None


@refuses_overflow
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


@refuses_overflow
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
    facts, eta, K = as_problem(problem), positive("step_size", step_size), whole_number("steps", steps, 0)
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
