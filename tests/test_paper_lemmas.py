"""The paper's twelve lemmas, one by one: on quadratics exactly, on a logistic posterior by chains; each with a control."""

import math

import numpy as np
import pytest
from scipy.linalg import expm

import svrhmc
from conftest import LIMIT
from hand_written_laws import exact_covariances
from simulated_data import events
from svrhmc import theory
from svrhmc.dynamics import UBU, exact_noise
from svrhmc.gradients import SVRG, Full
from svrhmc.theory import Problem


def quadratic(n=30, d=3, kappa=8.0, spread=0.6, seed=1):
    return svrhmc.targets.synthetic(n, d, seed=seed, eigenvalues=(1.0, kappa), spread=spread)


def logistic(n=60, d=2):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, d)) * [1.0, 2.0]
    return svrhmc.targets.logistic(X, events(rng, X @ [1.0, -0.5]), prior_precision=5.0)


def gap_of(law, S):
    """E f(x) − f(x*) of a quadratic, from the moments of x."""
    x, goal = law.position, law.target
    away = x.mean - goal.mean
    return 0.5 * float(np.trace(S @ x.covariance) + away @ S @ away)


def speed_of(law):
    d = len(law.mean) // 2
    return float(np.trace(law.covariance[d:, d:]) + law.mean[d:] @ law.mean[d:])


# Lemma 1: the noise that the diffusion gathers.


@pytest.mark.parametrize("time", [0.05, 0.7])
def test_lemma_1_covariances_are_those_of_the_ito_integrals(time):
    gamma, u = 1.7, 0.4
    t = (np.arange(4000) + 0.5) * time / 4000
    kick = np.stack([(1 - np.exp(-gamma * t)) / gamma, np.exp(-gamma * t)])  # what dB at time − t leaves in x and v
    integral = 2 * gamma * u * kick @ kick.T * time / 4000
    found = exact_noise(time, gamma, u).covariance()
    assert found == pytest.approx(integral, rel=1e-5)
    xx, xv, vv = (float(q) for q in exact_covariances(gamma * time, u, gamma))
    assert found == pytest.approx(np.array([[xx, xv], [xv, vv]]), rel=1e-12)
    assert found[0, 1] / math.sqrt(found[0, 0] * found[1, 1]) > 0.7  # not independent, as the text says once


# Lemmas 2 and 3: one step.


def one_step_errors(s, eta, x, v, gamma=2.0, u=1.0):
    """E|Gx − 𝓛x|² and E|Gv − 𝓛v|² in one dimension with f = s x²/2, from a fixed point: flows, and noises that cancel."""
    pull = np.array([[0.0, 1.0], [-u * s, -gamma]])
    step = np.array([[1.0, eta], [-eta * u * s, 1 - gamma * eta]])
    t = (np.arange(200) + 0.5) * eta / 200
    diffusion = expm(t[:, None, None] * pull)[:, :, 1].T
    ours = np.stack([(1 - np.exp(-gamma * t)) / gamma, np.exp(-gamma * t)])
    noise = 2 * gamma * u * ((ours - diffusion) ** 2).sum(axis=1) * eta / 200
    away = (step - expm(eta * pull)) @ [x, v]
    return away**2 + noise


@pytest.mark.parametrize("eta", [0.25, 0.05, 1e-3])
def test_lemma_2_bounds_the_error_of_a_step(eta):
    """D₁ and D₂ with the moments of this point for U_v and U_f; L = u = 1, d = 1."""
    tightest = math.inf
    for s in (0.05, 0.5, 1.0):
        for x, v in ((0.0, 0.0), (2.0, 0.0), (0.0, 1.5), (-3.0, 1.0), (1.0, 1.0)):
            U_v, U_f = v**2, s * x**2 / 2
            D_1 = 10 / 3 * U_v + 4 / 3 * U_f + 16 * eta / 3
            D_2 = 13 * U_v + 8 * U_f + 8 * eta
            in_x, in_v = one_step_errors(s, eta, x, v)
            assert in_x <= D_1 * eta**4
            assert in_v <= D_2 * eta**4
            tightest = min(tightest, D_1 * eta**4 / max(in_x, 1e-300), D_2 * eta**4 / max(in_v, 1e-300))
    assert tightest < 10  # and a tenth of it would fail


@pytest.mark.untraced
def test_lemma_2_bounds_the_error_of_a_step_on_a_logistic_posterior():
    """Against 64 fine steps (Cheng et al.'s, of error 1/64) on the same Brownian path, from fixed points."""
    target, eta, fine, paths = logistic(), 0.2, 64, 300
    L, mode, rng = target.smoothness, target.mode(), np.random.default_rng(0)
    gamma, u, h = 2.0, 1 / target.smoothness, 0.2 / 64
    noise, decay = exact_noise(h, gamma, u), math.exp(-gamma * h)
    lost = 1 - decay
    beaten = 0
    for start, v0 in ((mode, [0.0, 0.0]), (mode + np.array([0.5, -0.3]), [0.05, 0.0])):
        x, v = np.tile(start, (paths, 1)), np.tile(v0, (paths, 1)).astype(float)
        ex, ev = np.zeros_like(x), np.zeros_like(v)
        for _ in range(fine):
            first, second = rng.normal(size=(2, paths, 2))
            dx, dv = noise.xv * first + noise.xx * second, noise.vv * first
            g = np.array([target.gradient(point) for point in x])
            x, v = (
                x + lost / gamma * v - u / gamma**2 * (gamma * h - lost) * g + dx,
                decay * v - u / gamma * lost * g + dv,
            )
            ex, ev = ex + lost / gamma * ev + dx, decay * ev + dv
        G_x = np.asarray(start) + eta * np.asarray(v0) + ex
        G_v = (1 - gamma * eta) * np.asarray(v0) - eta * u * target.gradient(np.asarray(start)) + ev
        U_v, U_f = float(np.dot(v0, v0)), target.potential(np.asarray(start)) - target.potential(mode)
        D_1 = 10 / 3 * U_v + 4 * U_f / (3 * L) + 16 * 2 * eta / (3 * L)
        D_2 = 13 * U_v + 8 * U_f / L + 8 * 2 * eta / L
        for error, D in ((G_x - x, D_1), (G_v - v, D_2)):
            squares = (error**2).sum(axis=1)
            assert squares.mean() + LIMIT * squares.std() / math.sqrt(paths) <= D * eta**4
            beaten += squares.mean() > D * eta**4 / 100
    assert beaten >= 2  # a hundredth of it would fail away from the mode


def test_lemma_3_on_a_logistic_posterior_by_enumeration():
    """(1/n)Σ|∇fᵢ(x) − ∇fᵢ(x̃) − ∇f(x) + ∇f(x̃)|² ≤ Λ²|x − x̃|², Λ² = L_max L; a tenth of Λ² would not do."""
    target, rng = logistic(), np.random.default_rng(3)
    problem = Problem.of(target)
    Lambda2 = problem.variance_ratio * problem.smoothness**2
    rows, worst = np.arange(target.n), 0.0
    for _ in range(100):
        x, other = target.mode() + rng.normal(size=(2, 2)) * 10 ** rng.uniform(-2, 0.5)
        apart = target.component_gradients(x, rows) - target.component_gradients(other, rows)
        variance = float(((apart - apart.mean(axis=0)) ** 2).sum(axis=1).mean())
        worst = max(worst, variance / float((x - other) @ (x - other)))
    assert Lambda2 / 10 < worst <= Lambda2


def test_lemma_3_bounds_the_noise_of_the_reduced_gradient():
    """E|Sv − Gv|² = η²u²E|g − ∇f|² ≤ η²u²Λ²E|x_k − x̃|² ≤ D₃ρm²η⁴, along exact laws; and Λ² is not L² (control)."""
    target, eta, m = quadratic(spread=0.9), 0.1, 12
    problem = Problem.of(target)
    S, mean = target.precision, target.mean_precision
    noise = np.mean([(s - mean) @ (s - mean) for s in S], axis=0)  # E|g − ∇f|² = E (x − x̃)ᵀ noise (x − x̃)
    Lambda2 = problem.variance_ratio * problem.smoothness**2
    top = float(np.linalg.eigvalsh(noise).max())
    assert top <= Lambda2
    assert np.linalg.eigvalsh(np.mean([s @ s for s in S], axis=0)).max() > problem.smoothness**2
    sampler = svrhmc.svr_hmc(eta, epoch_length=m)
    laws = list(theory.laws(sampler, target, m))
    speed = max(speed_of(law) for law in laws)
    D_3 = 2 * speed + 4 * target.dim / problem.smoothness
    trace = sampler.run(target, m, chains=20_000, seed=1)
    apart = np.einsum("cke,ef,ckf->k", trace.draws, noise, trace.draws) / 20_000  # x̃ = 0 all along the first epoch
    assert (eta**2 / problem.smoothness**2 * apart[:-1] <= D_3 * problem.variance_ratio * m**2 * eta**4).all()
    assert eta**2 / problem.smoothness**2 * apart[-2] > 1e-3 * D_3 * problem.variance_ratio * eta**4  # m² is needed


# Lemma 4: contraction.


def contraction(kappa, t, gamma=2.0):
    """The largest |𝓛z₁ − 𝓛z₂|²/|z₁ − z₂|², z = (x, x + v), over curvatures from 1/κ to 1 (u = L = 1)."""
    turn = np.array([[1.0, 0.0], [1.0, 1.0]])
    worst = 0.0
    for s in np.geomspace(1 / kappa, 1, 40):
        flow = turn @ expm(t * np.array([[0.0, 1.0], [-s, -gamma]])) @ np.linalg.inv(turn)
        worst = max(worst, float(np.linalg.norm(flow, 2)) ** 2)
    return worst


@pytest.mark.parametrize("kappa", [1.0, 5.0, 300.0])
def test_lemma_4_the_diffusion_contracts(kappa):
    for t in (1e-3, 0.1, 1.0, 10.0, 100.0):
        assert contraction(kappa, t) <= math.exp(-t / kappa) * (1 + 1e-12)
    assert contraction(kappa, 0.1, gamma=1.0) > math.exp(-0.1 / kappa)  # not with another friction
    assert contraction(kappa, 0.01) > math.exp(-3 * 0.01 / kappa)  # nor three times as fast


def test_lemma_4_on_a_logistic_posterior():
    """Two chains with one noise and a short step come together at the rate of the lemma, or faster."""
    target = logistic()
    kappa = target.smoothness / target.convexity
    sampler = svrhmc.Sampler(UBU(0.01), Full())
    for steps in (50, 400):
        ends = [
            sampler.run(target, steps, chains=1, start=start, seed=2, keep="last") for start in ([3.0, 0], [-1.0, 2])
        ]
        x, v = (ends[0].draws - ends[1].draws)[0, -1], (ends[0].velocity - ends[1].velocity)[0]
        start = 2 * (4.0**2 + 2.0**2)  # v₀ = 0
        assert x @ x + (x + v) @ (x + v) <= math.exp(-steps * 0.01 / kappa) * start


# Lemma 5: the recursion.


def worst_sequence(A, B, C, start, steps):
    x = start
    for _ in range(steps):
        x = math.sqrt(((1 - A) * x + C) ** 2 + B**2)
    return x


def test_lemma_5_bounds_every_sequence_and_two_faulty_twins_do_not():
    rng = np.random.default_rng(0)
    broken = {"B√A": 0, "C": 0}
    for _ in range(400):
        A, (B, C, start), steps = rng.uniform(1e-3, 0.999), 10 ** rng.uniform(-3, 2, 3), int(rng.integers(1, 3000))
        worst = worst_sequence(A, B, C, start, steps)
        assert worst <= theory.recursion_bound(A, B, C, start, steps) * (1 + 1e-12)
        decay = (1 - A) ** steps * start
        broken["B√A"] += worst > decay + C / A + B * math.sqrt(A)
        broken["C"] += worst > decay + C + B / math.sqrt(A)
    assert min(broken.values()) > 50
    assert worst_sequence(0.5, 0.0, 1.0, 7.0, 200) == pytest.approx(theory.recursion_bound(0.5, 0.0, 1.0, 7.0, 200))
    for bad in ({"A": 0.0}, {"A": 1.0}, {"B": -1.0}, {"C": -1.0}, {"start": -1.0}, {"steps": -1}):
        with pytest.raises(ValueError, match="must be"):
            theory.recursion_bound(**{"A": 0.5, "B": 1.0, "C": 1.0, "start": 1.0, "steps": 3, **bad})


def test_theorem_1_is_lemma_5_with_a_rounded_up_contraction():
    problem = Problem(n=50, dim=4, smoothness=8.0, convexity=2.0, radius=1.0)
    eta, m, K = 1e-3, 20, 5000
    found, kappa = theory.constants(problem, eta), problem.condition_number
    A = -math.expm1(-eta / (2 * kappa))
    C, B = (2 * math.sqrt(found.D_1) + math.sqrt(found.D_2)) * eta**2, math.sqrt(found.D_3) * m * eta**2
    lemma, theorem = theory.recursion_bound(A, B, C, found.w_0, K), theory.bound(problem, eta, K, epoch_length=m)
    assert lemma <= theorem.value
    assert theorem.discretisation == pytest.approx(2 * C / A, rel=1e-3)  # 1 − e^{−y} ≥ y/2 is twice too careful
    assert theorem.variance == pytest.approx(math.sqrt(2) * B / math.sqrt(A), rel=1e-3)


# Lemmas 6 and 7.


def test_lemma_6_the_triangle_inequality_of_root_mean_squares():
    rng = np.random.default_rng(1)
    for _ in range(50):
        X = rng.normal(size=(200, 3)) * rng.exponential(size=3)
        Y = rng.normal(size=(200, 3)) + rng.uniform(-1, 1) * X
        size = [math.sqrt(np.mean((Z**2).sum(axis=1))) for Z in (X, Y, X + Y)]
        assert size[2] <= size[0] + size[1] + 1e-12
    same = math.sqrt(np.mean(((X + X) ** 2).sum(axis=1)))
    assert same > 1.9 * size[0]  # and it is met


def test_lemma_7_the_second_moment_about_the_mode():
    """E|x − x*|² ≤ d/μ: equal for a round Gaussian; and on a logistic posterior, by quadrature. Not d/L (control)."""
    target = quadratic(spread=0.0)
    assert np.trace(target.closed_form.covariance) <= 3 / target.convexity
    assert np.trace(target.closed_form.covariance) > 3 / target.smoothness
    posterior = logistic()
    grid = posterior.mode() + np.stack(np.meshgrid(*[np.linspace(-3, 3, 301)] * 2), axis=-1).reshape(-1, 2)
    weight = np.exp(posterior.potential(posterior.mode()) - posterior.potentials(grid))
    moment = float(weight @ ((grid - posterior.mode()) ** 2).sum(axis=1) / weight.sum())
    assert 2 / posterior.smoothness < moment <= 2 / posterior.convexity


# Lemmas 8 and 9: log-concave targets.


@pytest.mark.parametrize("strength", [1e-3, 0.1, 2.0])
def test_lemmas_8_and_9_on_laws_in_one_dimension(strength):
    """KL(π‖π̄) ≤ ½E_π(f̄ − f)² and W₂ ≤ √(2KL/λ) for Laplace's and Gauss's law with a quadratic added, by quadrature."""
    x = np.linspace(-40, 40, 200_001)
    gap = x[1] - x[0]
    for f in (np.abs(x), x**2 / 2, np.log(np.cosh(x))):
        near = f + strength * x**2 / 2
        Z, Z_near = (float(np.exp(-g).sum() * gap) for g in (f, near))
        p, q = np.exp(-f) / Z, np.exp(-near) / Z_near
        kl = float((p * (near - f)).sum() * gap) + math.log(Z_near / Z)
        lemma_8 = 0.5 * float((p * (strength * x**2 / 2) ** 2).sum() * gap)
        assert 0 < kl <= lemma_8
        assert kl > 0.1 * lemma_8 or strength > 0.05  # the order is right where λ is small
        quantiles = [np.interp((np.arange(50_000) + 0.5) / 50_000, np.cumsum(law) * gap, x) for law in (p, q)]
        w2 = math.sqrt(np.mean((quantiles[0] - quantiles[1]) ** 2))
        assert w2 <= math.sqrt(2 * kl / strength)
        assert w2 <= theory.regularisation_distance(strength, float((p * x**4).sum() * gap))
        if strength < 0.01 and f[-1] < 100:  # without 1/λ, which a flat f needs, Lemma 9 would fail
            assert w2 > math.sqrt(2 * kl)


# Lemma 10: the path of the diffusion.


def diffusion_law(S, x, v, t, gamma, u):
    """Exact mean and covariance of (X_t, V_t) in the eigenvectors of S, a 2 × 2 block for each."""
    for s, x0, v0 in zip(np.linalg.eigvalsh(S), x, v, strict=True):
        flow = expm(t * np.array([[0.0, 1.0], [-u * s, -gamma]]))
        stationary = np.diag([1 / s, u])
        yield s, flow @ [x0, v0], stationary - flow @ stationary @ flow.T


@pytest.mark.parametrize(("gamma", "u"), [(2.0, None), (0.7, 0.2), (5.0, 1.0)])
def test_lemma_10_along_the_diffusion_on_quadratics(gamma, u):
    S = np.diag([0.3, 1.0, 4.0])
    problem = Problem(n=1, dim=3, smoothness=4.0, convexity=0.3)
    mass = 0.25 if u is None else u
    beaten = 0
    for x, v in (([0.0] * 3, [0.0] * 3), ([2.0, -1.0, 0.5], [0.0] * 3), ([0.1, 0.0, 1.0], [1.0, -2.0, 0.3])):
        potential, speed = 0.5 * float(x @ S @ x), float(np.dot(v, v))
        for t in (0.0, 0.01, 0.1, 1.0, 30.0):
            blocks = list(diffusion_law(S, x, v, t, gamma, mass))
            V2 = sum(m[1] ** 2 + C[1, 1] for _, m, C in blocks)
            F = sum(s * (m[0] ** 2 + C[0, 0]) / 2 for s, m, C in blocks)
            G = sum(s**2 * (m[0] ** 2 + C[0, 0]) for s, m, C in blocks)
            bounds = theory.diffusion_bounds(problem, t, potential, speed, gamma, u)
            for value, bound in ((V2, bounds.speed), (F, bounds.potential), (G, bounds.gradient)):
                assert value <= bound * (1 + 1e-9) + 1e-12
            frozen = theory.diffusion_bounds(problem, 0.0, potential, speed, gamma, u)  # the twin without γdt
            beaten += frozen.speed * (1 + 1e-6) < V2 or frozen.potential * (1 + 1e-6) < F
    assert beaten > 0


def test_lemma_10_energy_changes_at_the_rate_of_itos_formula():
    """d/dt E[f + |V|²/(2u)] = γd − (γ/u)E|V|²: equal, of which the lemma keeps γd."""
    S, x, v, gamma, u = np.diag([0.3, 4.0]), [1.0, -0.5], [0.3, 1.0], 1.3, 0.4

    def energy(t):
        total = speed = 0.0
        for s, m, C in diffusion_law(S, x, v, t, gamma, u):
            speed += m[1] ** 2 + C[1, 1]
            total += s * (m[0] ** 2 + C[0, 0]) / 2
        return total + speed / (2 * u), speed

    for t in (0.1, 1.0, 3.0):
        rate = (energy(t + 1e-5)[0] - energy(t - 1e-5)[0]) / 2e-5
        assert rate == pytest.approx(gamma * 2 - gamma / u * energy(t)[1], rel=1e-5, abs=1e-7)


def moments_on_logistic(target, states, velocities):
    """Means and their standard errors of |v|², f − f(x*) and |∇f|²."""
    values = (
        (velocities**2).sum(axis=1),
        target.potentials(states) - target.potential(target.mode()),
        np.array([(target.gradient(x) ** 2).sum() for x in states]),
    )
    return [(float(value.mean()), float(value.std() / math.sqrt(len(value)))) for value in values]


def test_lemma_10_along_the_diffusion_on_a_logistic_posterior():
    """By 2000 chains of UBU with steps of 0.01, whose own error is of order 1e-5."""
    target = logistic()
    problem = Problem.of(target)
    start = np.array([1.5, -1.0])
    potential = target.potential(start) - target.potential(target.mode())
    for t in (0.05, 0.5, 3.0):
        trace = svrhmc.Sampler(UBU(0.01), Full()).run(target, round(t / 0.01), chains=2000, start=start, keep="last")
        found = moments_on_logistic(target, trace.draws[:, -1], trace.velocity)
        bounds = theory.diffusion_bounds(problem, t, potential)
        for (value, error), bound in zip(found, (bounds.speed, bounds.potential, bounds.gradient), strict=True):
            assert value - LIMIT * error <= bound
    at_mode = svrhmc.Sampler(UBU(0.01), Full()).run(target, 300, chains=2000, start="mode", keep="last")
    found = moments_on_logistic(target, at_mode.draws[:, -1], at_mode.velocity)
    frozen, right = (theory.diffusion_bounds(problem, t, 0.0) for t in (0.0, 3.0))
    beaten = [value - LIMIT * error > b for (value, error), b in zip(found, vars(frozen).values(), strict=True)]
    assert all(beaten)
    assert all(value <= b for (value, _), b in zip(found, vars(right).values(), strict=True))


# Lemmas 11 and 12: the discrete path.


@pytest.mark.parametrize(("eta", "m"), [(0.2, 5), (0.02, 30), (0.25, 1)])
def test_lemmas_11_and_12_along_the_chain_on_quadratics(eta, m):
    target = quadratic()
    problem = Problem.of(target)
    S = target.mean_precision
    sampler = svrhmc.svr_hmc(eta, epoch_length=m)
    start = gap_of(next(theory.laws(sampler, target, 0)), S)
    beaten = 0
    for law in theory.laws(sampler, target, 120, "mode"):
        bounds, first = (theory.energy_bounds(problem, eta, k, 0.0) for k in (law.step, 0))
        assert gap_of(law, S) <= bounds.potential
        assert speed_of(law) <= bounds.speed
        beaten += gap_of(law, S) > first.potential and speed_of(law) > first.speed  # the twin that gains nothing
    assert beaten > 100
    for law in theory.laws(sampler, target, 120):
        bounds, gap, speed = theory.energy_bounds(problem, eta, law.step, start), gap_of(law, S), speed_of(law)
        assert gap <= bounds.potential * (1 + 1e-9)
        assert speed <= bounds.speed + 1e-12
        crude = theory.energy_bounds(problem, eta, law.step)
        assert bounds.potential <= crude.potential  # LR²/2 for f(x₀) − f(x*)
        found = theory.constants(problem, eta)  # Lemma 11: for as long as its conditions hold, and here far beyond
        away = law.position.mean - law.target.mean
        assert np.trace(law.position.covariance) + away @ away <= found.U_x
        assert gap <= found.U_f
        assert speed <= found.U_v


def test_lemma_11_does_not_hold_without_the_dimension():
    """The control: U_v with 0 for d is below the speed of a chain from the mode."""
    target = quadratic()
    law = theory.stationary(svrhmc.svr_hmc(0.1, epoch_length=5), target)
    assert speed_of(law) > 0.5 * target.dim / target.smoothness
    assert Problem.of(target, "mode").radius == pytest.approx(0)


def test_lemmas_11_and_12_along_the_chain_on_a_logistic_posterior():
    target = logistic()
    problem = Problem.of(target)
    potential = target.potential(np.zeros(2)) - target.potential(target.mode())
    sampler, eta = svrhmc.Sampler(svrhmc.dynamics.Underdamped(0.05), SVRG(1, 20)), 0.05
    for steps in (1, 5, 20, 60):
        trace = sampler.run(target, steps, chains=2000, seed=steps, keep="last")
        (speed, a), (gap, b), _ = moments_on_logistic(target, trace.draws[:, -1], trace.velocity)
        bounds, found = theory.energy_bounds(problem, eta, steps, potential), theory.constants(problem, eta)
        assert speed - LIMIT * a <= min(bounds.speed, found.U_v)
        assert gap - LIMIT * b <= min(bounds.potential, found.U_f)
    nothing_gained = theory.energy_bounds(problem, eta, 0, 0.0)
    trace = sampler.run(target, 60, chains=2000, start="mode", keep="last")
    (speed, a), (gap, b), _ = moments_on_logistic(target, trace.draws[:, -1], trace.velocity)
    assert speed - LIMIT * a > nothing_gained.speed
    assert gap - LIMIT * b > nothing_gained.potential
    assert speed <= theory.energy_bounds(problem, eta, 60, 0.0).speed


def test_what_the_lemmas_refuse():
    problem = Problem(n=9, dim=1, smoothness=1.0, convexity=1.0, gradient_variance=0.0)
    with pytest.raises(ValueError, match=r"step_size must be at most 0\.25; got 0\.3: Lemma 12"):
        theory.energy_bounds(problem, 0.3, 10)
    with pytest.raises(ValueError, match="gradient_variance must be given for Lemma 12"):
        theory.energy_bounds(Problem(n=9, dim=1, smoothness=1.0, convexity=1.0), 0.1, 10)
    with pytest.raises(ValueError, match="time must be"):
        theory.diffusion_bounds(problem, -1.0, 1.0)
    assert theory.energy_bounds(problem, 0.25, 10**9).speed == math.inf
