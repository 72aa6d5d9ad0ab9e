"""The displays of the paper's proofs, line by line: the coupling of Theorem 1 and the energies of Lemma 12, exactly."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import expm

import svrhmc
from svrhmc import theory
from svrhmc.dynamics import exact_noise
from svrhmc.theory import Problem

# Theorem 1: SVR-HMC and the stationary diffusion on one Brownian path, in one dimension, by second moments.

CURVATURES = np.array([0.3, 0.9, 1.2])  # of the components fᵢ = sᵢx²/2; u = 1/L = 1 with L = 1, μ = 0.8
TURN = np.array([[1.0, 0.0], [1.0, 1.0]])  # z = (x, x + v)


class Coupled:
    """E yyᵀ of y = (x, v, x̃, x^π, v^π), every component enumerated, and the noise of both by Itô's isometry."""

    def __init__(self, eta, m, start=2.0):
        self.eta, self.m, self.s = eta, m, float(CURVATURES.mean())
        pull = np.array([[0.0, 1.0], [-self.s, -2.0]])
        t = (np.arange(400) + 0.5) * eta / 400
        ours = np.stack([(1 - np.exp(-2 * t)) / 2, np.exp(-2 * t)])
        diffusion = expm(t[:, None, None] * pull)[:, :, 1].T
        both = np.concatenate([ours, diffusion])
        joint = 4 * both @ both.T * eta / 400
        self.Q = np.zeros((5, 5))
        places = np.array([0, 1, 3, 4])
        self.Q[np.ix_(places, places)] = joint
        self.flow = expm(eta * pull)
        self.M = np.zeros((5, 5))
        self.M[np.ix_([0, 2], [0, 2])] = start**2
        self.M[3, 3], self.M[4, 4] = 1 / self.s, 1.0
        self.k = 0

    def step_of(self, s):
        """One step with the component of curvature s."""
        A = np.zeros((5, 5))
        A[0, :2] = 1.0, self.eta
        A[1, :3] = -self.eta * s, 1 - 2 * self.eta, -self.eta * (self.s - s)
        A[2, 2] = 1.0
        A[np.ix_([3, 4], [3, 4])] = self.flow
        return A

    def snapshot(self):
        if self.k % self.m == 0:
            take = np.eye(5)
            take[2] = take[0]
            self.M = take @ self.M @ take.T

    def distance(self, M=None):
        """w_k² = E|z_k − z^π_k|²."""
        M = self.M if M is None else M
        apart = TURN @ np.hstack([np.eye(2), np.zeros((2, 1)), -np.eye(2)])
        return float(np.trace(apart @ M @ apart.T))

    def advance(self):
        """Returns E|z_{k+1} − Gz_k|², E|Gz_k − 𝓛z^π_k|², E|Gz_k − 𝓛z_k|² and E|𝓛z_k − 𝓛z^π_k|², then makes the step."""
        self.snapshot()
        G = self.step_of(self.s)
        noisy = sum((A := self.step_of(s)) @ self.M @ A.T for s in CURVATURES) / len(CURVATURES)
        full = G @ self.M @ G.T
        L = np.zeros((5, 5))  # the diffusion from (x, v), with the noise of the diffusion
        L[:2, :2], L[2, 2], L[3:, 3:] = self.flow, 1.0, self.flow
        drift = TURN @ (G[:2] - L[:2])
        noise = np.hstack([np.eye(2), np.zeros((2, 1)), -np.eye(2)])
        local = float(np.trace(drift @ self.M @ drift.T) + np.trace(TURN @ noise @ self.Q @ noise.T @ TURN.T))
        parts = (
            float(noisy[1, 1] - full[1, 1]),
            self.distance(full + self.Q),
            local,
            self.distance(L @ self.M @ L.T),  # both with one noise, which cancels
        )
        self.M, self.k = noisy + self.Q, self.k + 1
        return parts


@pytest.mark.parametrize(("eta", "m"), [(0.1, 7), (0.02, 40), (0.25, 3)])
def test_theorem_1_along_the_coupling_itself(eta, m):
    """eqs. thm1_decom, g1, pan1002 to pan1004, recursion_w_k, thm1_result1 and w2_error, for every k."""
    L, kappa = 1.0, 1 / 0.8
    chain = Coupled(eta, m)
    target = svrhmc.targets.gaussian(np.zeros((3, 1)), CURVATURES[:, None, None])
    sampler = svrhmc.svr_hmc(eta, inverse_mass=1.0, epoch_length=m)
    problem = Problem(3, 1, L, 0.8, 2.0, 0.0, 1.2)
    found = theory.constants(problem, eta)
    tight = 0
    for law in theory.laws(sampler, target, round(15 / eta), [2.0]):
        w = math.sqrt(chain.distance())
        assert chain.M[0, 0] == pytest.approx(law.covariance[0, 0] + law.mean[0] ** 2, rel=1e-5)  # it is this sampler
        settled = math.sqrt(1 / chain.s)
        exact = math.hypot(law.mean[0], math.sqrt(law.covariance[0, 0]) - settled)
        assert exact <= w  # W₂(P(x_k), π) ≤ W₂(P(z_k), π_z) ≤ w_k
        assert w <= theory.bound(problem, eta, law.step, epoch_length=m).value
        noise, other, local, apart = chain.advance()
        after = chain.distance()
        assert after == pytest.approx(noise + other, rel=1e-9)  # squares add, for E z_{k+1} = Gz_k given the past
        assert noise <= found.D_3 * problem.variance_ratio * m**2 * eta**4
        assert math.sqrt(other) <= math.sqrt(local) + math.sqrt(apart) + 1e-12  # Lemma 6
        assert math.sqrt(apart) <= math.exp(-eta / (2 * kappa)) * w + 1e-12  # Lemma 4
        assert math.sqrt(local) <= (2 * math.sqrt(found.D_1) + math.sqrt(found.D_2)) * eta**2  # Lemma 2
        C, B = (2 * math.sqrt(found.D_1) + math.sqrt(found.D_2)) * eta**2, math.sqrt(found.D_3 * 1.2) * m * eta**2
        assert after <= (math.exp(-eta / (2 * kappa)) * w + C) ** 2 + B**2
        tight += math.sqrt(other) > math.exp(-eta / (2 * kappa)) * w  # without C the recursion would fail
    assert tight > 0


def test_the_counter_example_of_w_0_by_the_coupling():
    """At k = 0 w₀² = 2E|x₀ − x^π|² + d/L and not W₂(P(x₀), π)² (errata A1)."""
    chain = Coupled(0.1, 5, start=0.0)
    assert chain.distance() == pytest.approx(2 / chain.s + 1)
    assert chain.distance() > 1 / chain.s


def test_the_cheap_inequality_behind_the_constants_of_theorem_1():
    """1 − e^{−y} ≥ y/2 for y = η/(2κ) ≤ 1, so that C/(1 − e^{−y}) ≤ 4κC/η; not ≥ 0.9y (control)."""
    y = np.linspace(1e-6, 1, 1000)
    assert (-np.expm1(-y) >= y / 2).all()
    assert not (-np.expm1(-y) >= 0.9 * y).all()


# The Corollary: its proof, number by number.


def test_the_steps_of_the_proof_of_the_corollary():
    """η = min(ε/(3C₂), (ε/(3C₃m))^{2/3}), K = T/η ≤ 3TC₂/ε + T(3C₃m/ε)^{2/3}, T_g ≤ 2K + n, with T = 2κ log(3w₀/ε)."""
    problem = Problem(n=10**9, dim=10, smoothness=100.0, convexity=1.0, gradient_variance=10.0)
    eps, kappa, n = 1e-4, 100.0, 10**9
    found = theory.constants(problem, 1e-12)
    C_2 = 4 * kappa * (2 * math.sqrt(found.D_1) + math.sqrt(found.D_2))
    C_3 = 2 * math.sqrt(kappa * found.D_3)
    eta, T = min(eps / (3 * C_2), (eps / (3 * C_3 * n)) ** (2 / 3)), 2 * kappa * math.log(3 * found.w_0 / eps)
    plan = theory.plan(problem, eps, rule="corollary")
    assert plan.step_size == pytest.approx(eta, rel=1e-5)
    K = T / eta
    assert 3 * T * C_2 / eps + T * (3 * C_3 * n / eps) ** (2 / 3) >= K
    assert plan.steps <= K * (1 + 1e-9)
    printed = K + n * max(1, K / n)  # one gradient a step; two are evaluated (errata A10)
    assert printed <= 2 * K + n
    assert plan.gradient_evaluations <= 3 * K + n
    for d in (10, 1000):  # C₂ = O(κ(d/μ)^½) and C₃ = O((κd/μ)^½): the same factor for every d
        other = theory.constants(Problem(9, d, 100.0, 1.0), 1e-12)
        assert 4 * (2 * math.sqrt(other.D_1) + math.sqrt(other.D_2)) / math.sqrt(d) == pytest.approx(
            C_2 / kappa / 10**0.5
        )
        assert 2 * math.sqrt(other.D_3) / math.sqrt(d) == pytest.approx(C_3 / math.sqrt(kappa) / 10**0.5)


# Lemma 12: its displays, from exact moments.


@pytest.mark.parametrize(("eta", "m"), [(0.2, 4), (0.05, 10), (0.25, 1)])
def test_the_displays_of_lemma_12_along_exact_laws(eta, m):
    """eqs. pan1009 to pan1013, lyp_discrete, lyp_discrete2 and bound_lyp, with the corrected G₀."""
    target = svrhmc.targets.synthetic(20, 3, seed=2, eigenvalues=(1.0, 5.0), spread=0.5)
    problem, S, x_star = Problem.of(target), target.mean_precision, target.mode()
    L, u, d, gamma = target.smoothness, 1 / target.smoothness, 3, 2.0
    kappa, rho = problem.condition_number, problem.variance_ratio
    G_0, G_1 = 6 * u * problem.gradient_variance + d, 36 * rho * kappa
    noise = exact_noise(eta, gamma, u).covariance() * d  # E|εˣ|², E⟨εˣ, εᵛ⟩, E|εᵛ|²
    assert noise[1, 1] <= 2 * gamma * u * eta * d
    assert noise[0, 0] <= 2 / 3 * u * gamma * eta**3 * d <= 2 * u * eta**2 * d
    assert noise[0, 1] <= gamma * u * eta**2 * d
    components = list(zip(target.precision, target.component_gradients(x_star, np.arange(20)), strict=True))

    def moments(law):
        away = law.mean - np.concatenate([x_star, np.zeros(d)])
        M = law.covariance + np.outer(away, away)
        return M[:d, :d], M[:d, d:], M[d:, d:], away[:d]

    def gap(law):
        return 0.5 * float(np.trace(S @ moments(law)[0]))

    def component_square(law):
        """E(1/n)Σ|∇fᵢ(x)|², ∇fᵢ(x) = Sᵢ(x − x*) + bᵢ."""
        xx, _, _, away = moments(law)
        return float(np.mean([np.trace(s @ xx @ s) + 2 * b @ s @ away + b @ b for s, b in components]))

    def energy(law):
        return (1 - gamma * eta) * gap(law) + float(np.trace(moments(law)[2])) / (2 * u)

    laws = list(theory.laws(svrhmc.svr_hmc(eta, epoch_length=m), target, 4 * m + 3))
    needed = 0
    for k, (here, after) in enumerate(pairwise(laws)):
        old = laws[k - k % m]
        _, xv, vv, _ = moments(here)
        speed, work = float(np.trace(vv)), float(np.trace(S @ xv))  # E|v|², E⟨v, ∇f⟩
        pan1009 = gap(here) + eta * work + L * eta**2 * speed / 2 + L / 2 * noise[0, 0]
        assert gap(after) <= pan1009 + 1e-12
        squares = component_square(here) + component_square(old) + float(np.trace(S @ moments(old)[0] @ S))
        pan1011 = (1 - gamma * eta) * speed - 2 * (1 - gamma * eta) * eta * u * work + 3 * eta**2 * u**2 * squares
        assert float(np.trace(moments(after)[2])) <= pan1011 + noise[1, 1] + 1e-12
        bounded = 4 * rho * L**2 / problem.convexity  # E|∇fᵢ(x)|² ≤ (4Λ²/μ)(f − f*) + 2V
        assert component_square(here) <= bounded * gap(here) + 2 * problem.gradient_variance + 1e-9
        pan1012 = (
            (1 - gamma * eta) * gap(here)
            + (1 - gamma * eta) * (1 + eta**2) * speed / (2 * u)
            + 1.5 * eta**2 * u * squares
            + (1 - gamma * eta) * L / 2 * noise[0, 0]
            + noise[1, 1] / (2 * u)
        )
        assert energy(after) <= pan1012 + 1e-12
        pan1013 = (
            (1 - gamma * eta + 6 * eta**2 * rho * kappa) * gap(here)
            + (1 - gamma * eta + eta**2) * speed / (2 * u)
            + 12 * eta**2 * rho * kappa * gap(old)
            + eta * gamma * d
            + eta**2 * G_0
        )
        assert pan1012 <= pan1013 + 1e-12
        lyapunov = (1 + 12 * eta**2 * rho * kappa) * energy(here) + 24 * eta**2 * rho * kappa * energy(old)
        assert pan1013 <= lyapunov + eta * gamma * d + eta**2 * G_0 + 1e-12
        relaxed = (1 + G_1 * eta**2) * max(energy(here), energy(old)) + eta * gamma * d + eta**2 * G_0
        assert lyapunov + eta * gamma * d + eta**2 * G_0 <= relaxed + 1e-12
        needed += energy(after) > energy(here)  # without what the noise adds
        T = (k + 1) * eta
        growth = math.exp(G_1 * T * eta)
        bound_lyp = growth * energy(laws[0]) + T * (gamma * d + eta * G_0) * (1 + 0.5 * T * eta * G_1 * growth)
        assert energy(after) <= bound_lyp
    assert needed > 0


def test_the_two_inequalities_of_an_exponential_in_lemma_12():
    """(1 + y)^k ≤ e^{ky}, (e^y − 1)/y ≤ 1 + ye^y/2; not ≤ 1 + y/2 (control)."""
    y = np.geomspace(1e-3, 20, 200)
    assert ((1 + y) ** 7 <= np.exp(7 * y)).all()
    assert (np.expm1(y) / y <= 1 + y * np.exp(y) / 2).all()
    assert not (np.expm1(y) / y <= 1 + y / 2).all()


# Lemma 11: its proof.


def test_the_arithmetic_of_the_uniform_bounds():
    """w_k² ≤ 2w₀² + 8d/μ with w₀² ≤ 6d/μ + 6R² + 2d/L gives U_x = 2w_k² + 2d/μ, U_f = LU_x/2, U_v = 2d/L + 4w_k²."""
    problem = Problem(n=9, dim=4, smoothness=8.0, convexity=2.0, radius=3.0)
    d, mu, L, R = 4, 2.0, 8.0, 3.0
    w_0 = 6 * d / mu + 6 * R**2 + 2 * d / L
    w_k = 2 * w_0 + 8 * d / mu
    found = theory.constants(problem, 0.01)
    assert found.U_x == pytest.approx(2 * w_k + 2 * d / mu)
    assert found.U_f == pytest.approx(L * found.U_x / 2)
    assert found.U_v == pytest.approx(2 * d / L + 4 * w_k)
    assert found.w_0**2 <= w_0  # the exact one is less than what the proof takes


def test_the_crude_bounds_of_lemma_11_are_those_of_lemma_12():
    """Where G₁Tη ≤ log 2, G₀η ≤ γd and γη ≤ 1/2, Lemma 12 is at most Ũ_f = 4(E₀ + 2Tγd) and Ũ_v = uŨ_f."""
    problem = Problem(n=9, dim=4, smoothness=8.0, convexity=2.0, radius=3.0, gradient_variance=5.0)
    for eta in (1e-3, 1e-4):
        K = int(math.log(2) / (36 * problem.condition_number * eta**2))
        start = 8.0 * 9 / 2
        bounds = theory.energy_bounds(problem, eta, K, start)
        U_f = 4 * (start + 2 * K * eta * 2 * 4)
        assert bounds.potential <= U_f
        assert bounds.speed <= U_f / 8
        assert theory.energy_bounds(problem, eta, 20 * K, start).potential > U_f  # beyond the condition it is not
