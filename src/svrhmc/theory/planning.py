"""A run planned from an accuracy: step size, epoch, batch, steps, and what they promise.

    rule="corollary"   solves the equations of Theorem 1 as the Corollary does: each error term takes its share of ε
    rule="repaired"    the cheapest run for which our repaired bound is at most ε
    rule="exact"       the cheapest run whose exact law on a quadratic with the target's spectrum is within ε

The first two are proofs, and as loose as proofs of this kind are. The last is what to use, and says what it assumes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import boolean, one_of, requirement
from svrhmc.density.base import FiniteSum, is_target
from svrhmc.gradients import SVRG, Full, Recipe
from svrhmc.samplers import METHODS, Sampler, saga_hmc, saga_ld
from svrhmc.theory.bounds import (
    BOUNDED,
    FRICTION,
    Bound,
    bound,
    constants,
    epoch_recursions,
    g_0,
    repaired_bound,
    tilde_errors,
)
from svrhmc.theory.complexity import TABLE, complexity
from svrhmc.theory.moments import Chain, law_of, recursion_of
from svrhmc.theory.problem import Problem, Start, accuracy_of, as_problem, refuses_overflow, starting_point
from svrhmc.theory.quadratic import Quadratic, eigen_components, elementwise_noise, has_components
from svrhmc.theory.recursion import Recursion, State, UnsettledError, stationary_state

RULES = ("exact", "corollary", "repaired")
UNDERDAMPED = ("hmc", "sg-hmc", "svr-hmc", "saga-hmc")
TABLED: dict[str, Callable[..., Sampler]] = {"saga-ld": saga_ld, "saga-hmc": saga_hmc}
PLANNED = {**METHODS, **TABLED}
MAX_STEPS = (1 << 63) - 1
_MAX_TABLED = 16  # numbers of a state with a table, of which many steps and batches are tried
_AFFORDABLE = 2e10  # operations that a law is followed for step by step, to check a plan
_MARGIN = 0.97  # of the accuracy, aimed at where that is too much
_RESOLVED = 1e-15  # of the size of a posterior: less is lost among the digits of float64
_MAX_DIM = 5000
_FRACTIONS = (0.98, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)  # of the largest step, that are tried


@dataclass(frozen=True)
class Plan:
    """A run that reaches the accuracy. `sampler` is ready to run; `w2` is the distance that `rule` promises.

    Where the paper gives only an order of magnitude, only `gradient_evaluations` has a value, and `order` is true.
    """

    method: str
    rule: str
    accuracy: float
    problem: Problem
    gradient_evaluations: float
    assumes: str
    sampler: Sampler | None = None
    steps: int | None = None
    w2: float | None = None
    bound: Bound | None = None

    @property
    def order(self) -> bool:
        """True where only an order of magnitude is known."""
        return self.sampler is None

    @property
    def step_size(self) -> float | None:
        """η."""
        return None if self.sampler is None else self.sampler.dynamics.step_size

    @property
    def batch_size(self) -> int | None:
        """B; n for full gradients."""
        if self.sampler is None:
            return None
        return self.sampler.gradient.recipe(self.problem).rows_of_estimate

    @property
    def epoch_length(self) -> int | None:
        """m, for samplers with snapshots."""
        recipe = None if self.sampler is None else self.sampler.gradient.recipe(self.problem)
        return recipe.period if recipe is not None and recipe.reference == "snapshot" else None

    @property
    def passes(self) -> float:
        """Gradient evaluations over n."""
        return self.gradient_evaluations / self.problem.n

    def __str__(self) -> str:
        head = f"{self.method.upper()} to W₂ ≤ {self.accuracy:g} by rule {self.rule!r}"
        rows: list[tuple[str, str]] = []
        if self.sampler is not None:
            rows = [("step_size", f"{self.step_size:.4g}"), ("batch_size", f"{self.batch_size:,}")]
            if self.epoch_length is not None:
                rows.append(("epoch_length", f"{self.epoch_length:,}"))
            rows.append(("steps", f"{self.steps:,}"))
        rows += [
            ("gradient evaluations", f"{self.gradient_evaluations:.4g}" + (" (an order only)" if self.order else "")),
            ("data passes", f"{self.passes:.4g}"),
        ]
        if self.w2 is not None:
            rows.append(("W₂ promised", f"{self.w2:.4g}"))
        body = "\n".join(f"  {name:<21} {value}" for name, value in rows)
        return f"{head}\n{body}\n  {self.assumes}"


@refuses_overflow
def plan(
    problem: Problem | FiniteSum,
    accuracy: float,
    method: str = "svr-hmc",
    rule: str = "exact",
    start: Start = None,
    importance: bool = False,
) -> Plan:
    """A run of `method` after which W₂(P(x_K), π) ≤ accuracy.

    problem: a target, or the constants alone.
    method: a sampler of the paper, or (rule "exact", small linear and Gaussian targets) "saga-ld" or "saga-hmc".
    start: where chains of a target begin: None (the origin), "mode" or a point.
    rule: "exact" (default; moments of the exact law of a quadratic, see `Plan.assumes`), "corollary" (Theorem 1,
        SVR-HMC and HMC; an order for the others of Table 1) or "repaired" (our bound; SVR-HMC and HMC).
    importance: rows are drawn by importance (rule "exact", targets with a linear predictor).

    >>> from svrhmc import targets
    >>> target = targets.synthetic(n=1000, dim=10)
    >>> run = plan(target, accuracy=0.1)
    >>> run.w2 <= 0.1
    True
    >>> trace = run.sampler.run(target, steps=run.steps, keep="last")
    """
    eps = accuracy_of(accuracy)
    one_of("method", method, tuple(PLANNED))
    one_of("rule", rule, RULES)
    target = problem if is_target(problem) else None
    if target is None and start is not None:
        raise requirement("start", "given only with a target", repr(start), "a Problem has a radius instead")
    facts = as_problem(problem) if target is None else Problem.of(target, start)
    if boolean("importance", importance):
        if rule != "exact" or target is None or not has_components(target):
            raise requirement("importance", "False but for rule='exact' and a target whose rows are known", True)
        if method in ("lmc", "hmc"):
            raise requirement("importance", f"False for {method.upper()}, which draws no rows", True)
    if rule == "exact":
        return _exact(facts, eps, method, target, start, importance)
    if method not in BOUNDED:
        return _order(facts, eps, method, rule)
    return _proved(facts, eps, method, rule)


def _order(problem: Problem, eps: float, method: str, rule: str) -> Plan:
    if method not in TABLE or rule == "repaired":
        allowed = "svr-hmc or hmc" if rule == "repaired" else "one of " + ", ".join(TABLE)
        raise requirement("method", f"{allowed} for rule={rule!r}", repr(method), "rule='exact' plans every sampler")
    row = complexity(problem, eps, method)
    formula = " + ".join(term.formula for term in row.terms)
    assumes = (
        f"The paper gives only an order for {method.upper()}: {formula} (Table 1), without constants or logarithms."
    )
    return Plan(method, rule, eps, problem, row.total, assumes)


# Plans by a proved bound.


def _proved(problem: Problem, eps: float, method: str, rule: str) -> Plan:
    make = _corollary if rule == "corollary" else _repaired
    eta, m, K = make(problem, eps, method)
    if K > MAX_STEPS:
        raise _too_long(eps, K, lambda accuracy: make(problem, accuracy, method)[2])
    settings: dict[str, Any] = {"epoch_length": m} if m else {}
    sampler = METHODS[method](eta, inverse_mass=1 / problem.smoothness, **settings)
    promise = (bound if rule == "corollary" else repaired_bound)(problem, eta, int(K), m or None, method=method)
    open_end = "" if promise.proved else " One of its conditions cannot be told without gradient_variance."
    text = (
        "Proved for every L-smooth, μ-strongly convex f with "
        f"{'convex ' if problem.convex_components else ''}components of smoothness up to L_max, "
        f"from |x₀ − x*| ≤ radius and v₀ = 0 ({promise.form}).{open_end}"
    )
    evaluations = sampler.gradient.evaluations(problem, int(K))
    return Plan(method, rule, eps, problem, evaluations, text, sampler, int(K), promise.value, promise)


def _corollary(problem: Problem, eps: float, method: str) -> tuple[float, int, float]:
    """η, m = n (0 for HMC) and K: start, discretisation and variance at ε/3 each; without the last, ε/2 each.

    Then K = (2κ/η) log(w₀/(ε − the two errors)), which is at most the Corollary's. The step also keeps the conditions
    of the proof, with T = 2κ log(3w₀/ε).
    """
    kappa, m = problem.condition_number, problem.n if method == "svr-hmc" else 0
    share = eps / (3 if m else 2)
    ratio = problem.variance_ratio if m else 1.0
    w_0 = constants(problem, 1.0).w_0
    time = 2 * kappa * max(math.log(w_0 / share), math.log(2))

    def errors(eta: float) -> tuple[float, float]:
        promise = bound(problem, eta, 0, m or None, method=method)
        return promise.discretisation, promise.variance

    def allowed(eta: float) -> bool:
        variance = (problem.gradient_variance or 0.0) if m else 0.0
        return (
            max(errors(eta)) <= share
            and eta <= min(0.25, math.log(2) / (36 * kappa * ratio * time))
            and eta * g_0(problem, variance) <= FRICTION * problem.dim
            and max(tilde_errors(problem, eta, time, m, ratio if m else 0.0)) <= problem.scale
        )

    eta = _largest(allowed, 0.25)
    assert eta is not None
    K = math.ceil(2 * kappa / eta * max(0.0, math.log(w_0 / (eps - sum(errors(eta)))))) or 1
    return eta, m, K


def _repaired(problem: Problem, eps: float, method: str) -> tuple[float, int, float]:
    """The step and epoch with the fewest gradient evaluations for which the repaired bound is at most ε."""

    def runs(m: int) -> list[tuple[float, int, float]]:
        def steps(eta: float) -> float:
            chains = epoch_recursions(problem, eta, m, problem.variance_ratio if m else 0.0)
            return min((chain.steps_to(eps) for chain in chains), default=math.inf)

        limit = _largest(lambda eta: math.isfinite(steps(eta)), 0.25)
        assert limit is not None
        return [(limit * fraction, m, steps(limit * fraction)) for fraction in _FRACTIONS]

    def cost(run: tuple[float, int, float]) -> float:
        _, m, K = run
        return (SVRG(epoch_length=m) if m else Full()).evaluations(problem, int(min(K, 1e300)))

    epochs = _epochs_tried(problem.n) if method == "svr-hmc" else [0]
    eta, m, K = min((run for m in epochs for run in runs(m)), key=cost)
    while K < MAX_STEPS and repaired_bound(problem, eta, int(K), m or None, method=method).value > eps:
        K += max(1, K // 1000)  # rounding of the closed form
    return eta, m, K


def _largest(allowed: Callable[[float], bool], high: float, depth: int = 500) -> float | None:
    """The largest step that is allowed, to 1e-6 of it, for conditions that hold for every smaller one.

    None if even 4^−depth of `high` is not.
    """
    low = high
    for _ in range(depth):
        if allowed(low):
            break
        high, low = low, low / 4
    else:
        return None
    while high - low > 1e-6 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


def _too_long(eps: float, K: float, steps: Callable[[float], float]) -> ValueError:
    most = _largest(lambda inverse: steps(1 / inverse) <= MAX_STEPS, 1 / eps)
    assert most is not None
    feasible = 1 / most
    return requirement(
        "accuracy",
        f"at least {1.01 * feasible:.3g} for these constants and this rule",
        f"{eps:g}",
        f"that would take {K:.3g} steps, and {MAX_STEPS:.3g} can be counted; rule='exact' needs far fewer",
    )


# Plans by the exact law.


def _exact(problem: Problem, eps: float, method: str, target: FiniteSum | None, start: Start, importance: bool) -> Plan:
    if problem.dim > _MAX_DIM:
        raise requirement("dim", f"at most {_MAX_DIM} for rule='exact'", problem.dim)
    Recipe(problem.n, 0 if method in ("lmc", "hmc") else 1).check()
    if method in TABLED:
        if target is None or not has_components(target):
            raise requirement("method", "one without a table for constants alone", repr(method))
        size = recursion_of(PLANNED[method](1e-3), target).k
        if size > _MAX_TABLED:
            allowed = f"one with 2·dim + numbers of the table at most {_MAX_TABLED} for a plan of {method.upper()}"
            raise requirement("target", allowed, size, "method='svr-hmc' is planned on any target")
    model, origin, text = _spectrum(problem, target, start, method, importance)
    search = _Search(problem, method, importance, target, model, origin)
    run = search.confirmed(eps)
    if run is None:
        raise _unreachable(search, eps)
    if not run.checked:
        text += " Coordinates are taken one by one, which was not checked: too many for all pairs."
    return Plan(method, "exact", eps, problem, run.evaluations, text, run.sampler, run.steps, run.w2)


@dataclass(frozen=True, eq=False)
class _Run:
    """A sampler, its steps, the W₂ and gradient evaluations of these; whether the target's own law was followed."""

    sampler: Sampler
    steps: int
    w2: float
    evaluations: float
    checked: bool = True


@dataclass(frozen=True, eq=False)
class _Search:
    """Where the cheapest run is looked for: from `origin`, on a spectrum or (methods with a table) on the target."""

    problem: Problem
    method: str
    importance: bool
    target: FiniteSum | None
    model: Quadratic
    origin: Array

    def confirmed(self, eps: float) -> _Run | None:
        """The cheapest run on the spectrum; on a quadratic target, tightened until the target's own law agrees."""
        aim = eps
        for _ in range(20):
            run = self.cheapest(aim)
            if run is None or self.target is None or self.target.closed_form is None:
                return run
            chain = recursion_of(run.sampler, self.target)
            if not chain.compact and run.steps * chain.cost > _AFFORDABLE:
                if aim != eps:
                    return replace(run, checked=False)
                aim = _MARGIN * eps
                continue
            w2 = law_of(chain, chain.state_after(chain.state_at(self.origin), run.steps), run.steps).w2
            if w2 <= eps:
                return replace(run, w2=w2)
            aim *= 0.98 * eps / w2
        return None

    def cheapest(self, eps: float) -> _Run | None:
        """Of all batches or epochs and steps that are tried; None if none comes within ε."""
        runs = [run for sampler_at in self._samplers() for run in self._runs(sampler_at, eps)]
        return min(runs, key=lambda run: run.evaluations, default=None)

    def _runs(self, sampler_at: Callable[[float], Sampler], eps: float) -> Iterator[_Run]:
        """With fractions of the largest step whose stationary law is within ε, those that come within ε."""
        top = 0.999 if self.method in UNDERDAMPED else 1.999 / self.problem.smoothness
        limit = _largest(lambda eta: self._settles(sampler_at(eta), eps), top, depth=25)
        if limit is not None:
            runs = (self._run(sampler_at(limit * fraction), eps) for fraction in _FRACTIONS)
            yield from (run for run in runs if run is not None)

    def _samplers(self) -> Iterator[Callable[[float], Sampler]]:
        """Samplers by their step, for each epoch or batch that is tried."""
        n, method = self.problem.n, self.method
        mass = {"inverse_mass": 1 / self.problem.smoothness} if method in UNDERDAMPED else {}
        settings: list[dict[str, int]] = [{}]
        if method in ("svr-hmc", "vr-sgld"):
            settings = [{"epoch_length": m} for m in _epochs_tried(n)]
        elif method in ("sg-hmc", "sgld", *TABLED):
            settings = [{"batch_size": 4**k} for k in range(12) if 4**k <= n]
        for options in settings:
            sampler_at = partial(PLANNED[method], **mass, **options)
            yield partial(_by_importance, sampler_at) if self.importance else sampler_at

    def _chain(self, sampler: Sampler) -> Recursion:
        if self.target is not None and self.method in TABLED:
            return recursion_of(sampler, self.target)
        return Chain(sampler, self.model, self.problem)

    def _settles(self, sampler: Sampler, eps: float) -> bool:
        """Whether the stationary law is within ε."""
        try:
            chain = self._chain(sampler)
            return _distance(chain, stationary_state(chain)) < eps
        except UnsettledError:
            return False

    def _run(self, sampler: Sampler, eps: float) -> _Run | None:
        """With the least steps to ε; None where rounding keeps the law from coming that near."""
        chain = self._chain(sampler)
        start = chain.state_at(self.origin)
        try:
            steps = chain.steps_to(start, lambda state: _distance(chain, state) <= eps)
        except ValueError:
            return None
        w2 = _distance(chain, chain.state_after(start, steps))  # the same steps composed in another order
        return _Run(sampler, steps, w2, sampler.gradient.evaluations(self.problem, steps)) if w2 <= eps else None


def _by_importance(sampler_at: Callable[[float], Sampler], eta: float) -> Sampler:
    sampler: Any = sampler_at(eta)
    return Sampler(sampler.dynamics, replace(sampler.gradient, importance=True))


def _epochs_tried(n: int) -> list[int]:
    """Epoch lengths that are tried; of equals, the one nearest n is taken."""
    return list(dict.fromkeys(max(1, round(n * factor)) for factor in (1, 1 / 2, 2, 1 / 4, 4, 1 / 16, 16, 64)))


def _unreachable(search: _Search, eps: float) -> ValueError:
    """Says what accuracy is within reach of the exact law in float64, and how long a run would be for this one."""
    scale = math.sqrt(search.problem.dim / search.problem.smoothness)
    near = max(eps, _RESOLVED * scale)  # below which there is no use in trying
    for _ in range(120):
        near *= 4
        run = search.cheapest(near)
        if run is not None:
            return requirement(
                "accuracy",
                f"at least {near:.3g} for {search.method.upper()} by rule='exact'",
                f"{eps:g}",
                f"that would take more than {run.steps * near / eps:.2g} steps, or digits that float64 does not have",
            )
    return requirement("accuracy", "large enough for float64 to resolve", f"{eps:g}")


def _spectrum(
    problem: Problem, target: FiniteSum | None, start: Start, method: str, importance: bool
) -> tuple[Quadratic, Array, str]:
    """A quadratic with one scalar recursion for each eigenvalue, where a chain starts, and what that assumes.

    The noise of a variance-reduced gradient in direction a is Σ_b N_ab R_bb, N_ab = Σ Pᵢ C_i[a, b]²; with R_bb in
    the proportion 1/s_b that a posterior has, that is (Σ_b N_ab s_a/s_b) R_aa.
    """
    noisy = "moments of its exact law; the law itself is not Gaussian where gradients are noisy"
    if target is not None and has_components(target):
        centre = target.mode()
        spectrum, basis, components = eigen_components(target, centre, importance)
        N = components.squares()
        noise = (N * (spectrum[:, None] / spectrum)).sum(axis=1)
        forces = components.P @ components.forces**2
        origin = starting_point(target, start)
        what = "the target itself" if target.closed_form else "the quadratic with the target's Hessians at its mode"
        text = f"Assumes {what}: {noisy}."
    else:
        if method in ("sgld", "sg-hmc") and problem.gradient_variance is None:
            raise requirement("gradient_variance", f"given for {method.upper()}", "None")
        d, L_max = problem.dim, problem.component_smoothness or problem.smoothness
        spectrum, basis = np.geomspace(problem.convexity, problem.smoothness, d), np.eye(d)
        noise = spectrum * (L_max - spectrum)  # the most that 0 ≤ s_i ≤ L_max with mean s can vary
        forces = np.full(d, (problem.gradient_variance or 0.0) / d)
        centre, origin = np.zeros(d), np.eye(d)[0] * problem.radius
        text = (
            "Assumes eigenvalues spaced evenly in the logarithm between μ and L, a start at the radius along the least "
            f"curved direction, and component curvatures that vary as much as L_max allows: {noisy}."
        )
    axes, zero = np.arange(len(spectrum)), np.zeros(len(spectrum))
    alone = elementwise_noise(noise, zero, zero, forces)
    return Quadratic(problem.n, centre, basis, spectrum, axes, axes, alone), origin, text


def _distance(chain: Recursion, state: State) -> float:
    """W₂ of x to the target where coordinates are independent."""
    mean, variance = chain.marginals(state)
    exact = 1 / np.sqrt(chain.spectrum)
    return float(np.sqrt((mean**2 + (np.sqrt(np.maximum(variance, 0)) - exact) ** 2).sum()))
