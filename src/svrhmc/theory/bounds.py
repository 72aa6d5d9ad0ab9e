"""Bounds on W₂ after K steps: the paper's Theorem 1, corrected and as printed, and a repaired one of ours.

Throughout γ = 2, u = 1/L, κ = L/μ, v₀ = 0 and |x₀ − x*| ≤ R (the paper starts at 0, so that R bounds |x*|).
docs/theory.md derives the repaired bound; docs/errata.md says what was corrected, and why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from svrhmc.core.errors import one_of, positive, whole
from svrhmc.targets.base import FiniteSum
from svrhmc.theory.problem import Problem, as_problem, held

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


@held
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


@held
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
    problem, eta, K = as_problem(problem), positive("step_size", step_size), whole("steps", steps, 0)
    m, ratio = _noise(problem, epoch_length, batch_size, method)
    kappa, found = problem.condition_number, constants(problem, eta, printed)
    terms = (
        math.exp(-K * eta / (2 * kappa)) * found.w_0,
        *_errors(kappa, eta, m, ratio, found.D_1, found.D_2, found.D_3),
    )
    conditions = tuple(_conditions(problem, eta, K, m, ratio, method))
    return Bound("Theorem 1, as printed" if printed else "Theorem 1, corrected", sum(terms), *terms, conditions, found)


@held
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
    problem, eta, K = as_problem(problem), positive("step_size", step_size), whole("steps", steps, 0)
    m, ratio = _noise(problem, epoch_length, batch_size, method)
    small = Condition("η ≤ 1/4", eta <= 0.25, "ours")
    found = [chain for chain in recursions(problem, eta, m, ratio) if chain.beta < 1] if small.holds else []
    tame = Condition("β < 1: η ≤ cB/κ or η³ ≤ cB/(κm²), times L/L_max", bool(found), "ours")
    if not found:
        return Bound(_OURS, math.inf, math.inf, math.inf, math.inf, (small, tame))
    best = min(found, key=lambda chain: chain.after(K))
    start = math.sqrt(best.decay(K)) * best.w_0
    return Bound(_OURS, best.after(K), start, best.discretisation, best.variance, (small, tame))


_OURS = "repaired, ours"


@dataclass(frozen=True)
class Recursion:
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


def recursions(problem: Problem, eta: float, m: int, ratio: float) -> list[Recursion]:
    """The recursion of the repaired bound with each of the two bounds on |x_k − x̃|; m = 0 stands for full gradients."""
    kappa, delta = problem.condition_number, math.sqrt(problem.dim / problem.smoothness)
    A = -math.expm1(0.5 * math.log1p(-(eta / kappa) * (1 - eta / 2 - eta**2 / 4)))
    e = math.sqrt(109) / 2 * eta**2 * delta
    w_0 = constants(problem, eta).w_0
    pairs = [
        (min(m * eta, 2 * math.sqrt(kappa)), 2.0),
        (m * eta + math.sqrt(4 * m * eta**3 / 3), math.sqrt(2) * m * eta),
    ]
    found = []
    for a, b in pairs if m else [(0.0, 0.0)]:
        nu_0, nu_1 = eta * math.sqrt(ratio) * a * delta, eta * math.sqrt(ratio) * b
        beta = 2 * nu_1**2 / A
        room = math.sqrt(1 - beta) if beta < 1 else math.nan
        variance = math.sqrt(2) * nu_0 / (math.sqrt(A) * room)
        found.append(Recursion(A, beta, m or 1, w_0, e / (A * room), variance))
    return found


def _noise(problem: Problem, epoch_length: int | None, batch_size: int, method: str) -> tuple[int, float]:
    """m and ρ = Λ²/(L²B); m = 0 for full gradients."""
    B = whole("batch_size", batch_size, 1)
    if one_of("method", method, BOUNDED) == "hmc":
        return 0, 0.0
    m = max(1, problem.n // B) if epoch_length is None else whole("epoch_length", epoch_length, 1)
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
