"""The laws of the samplers written out by hand, from formulas of their own: nothing here looks at a Scheme.

Every fᵢ = ½(x − aᵢ)ᵀSᵢ(x − aᵢ). The state is y = (x − x*, v, x̃ − x*); mean m and second moment M obey one
recursion a step.
"""

import itertools
from dataclasses import dataclass

import mpmath
import numpy as np
import scipy.linalg

CURVATURE = 1.3  # of the Gaussian that `Anchored` solves exactly, in the tests


@dataclass(frozen=True)
class Quadratic:
    S: np.ndarray  # (n, d, d)
    a: np.ndarray  # (n, d)

    @property
    def mean(self):
        return np.linalg.solve(self.S.mean(0), np.einsum("nde,ne->d", self.S, self.a) / len(self.a))


def exact_covariances(a, u=1, friction=1):
    """(Var εˣ, Cov, Var εᵛ) by the printed formulas, in 60 digits."""
    with mpmath.workdps(60):
        a, u, g = mpmath.mpf(a), mpmath.mpf(u), mpmath.mpf(friction)
        e = mpmath.exp(-a)
        return u / g**2 * (2 * a + 4 * e - e**2 - 3), u / g * (1 - e) ** 2, u * (1 - e**2)


def harmonic(time, gamma, u, s):
    """The flow of ẋ = v, v̇ = −us x − γv over `time`, and the noise that keeps N(0, diag(1/s, u)); 2 × 2."""
    flow = scipy.linalg.expm(time * np.array([[0, 1], [-u * s, -gamma]]))
    stationary = np.diag([1 / s, u])
    return flow, stationary - flow @ stationary @ flow.T


def anchored_kick(eta, gamma, u, s):
    """κ for which a constant ∇R = 1 gives E x = −1/s half a step after the kick, by summing its echoes."""
    middle, whole = harmonic(eta / 2, gamma, u, s)[0], harmonic(eta, gamma, u, s)[0]
    echo, total = middle[:, 1], 0.0
    for _ in range(2000):
        total += echo[0]
        echo = whole @ echo
    return 1 / (s * total)


def shifts(kind, xs, eta, gamma, u):
    """What the maps before and after the gradient add to (x − x*, v) because the flow turns about 0 and not about x*."""
    d = len(xs)
    if kind != "anchored":
        return np.zeros(2 * d), np.zeros(2 * d)
    flow = np.kron(harmonic(eta / 2, gamma, u, CURVATURE)[0], np.eye(d))
    at, push = np.concatenate([xs, np.zeros(d)]), np.concatenate([np.zeros(d), xs])
    kappa = anchored_kick(eta, gamma, u, CURVATURE)
    return flow @ at - at, flow @ (at + kappa * CURVATURE * push) - at


def before_gradient(kind, d, eta, gamma, u):
    """What happens to (x, v) before a step's gradient: a matrix and its noise covariance; None where nothing does."""
    eye = np.eye(d)
    e = np.exp(-gamma * eta)
    if kind == "ubu":
        half = np.exp(-gamma * eta / 2)
        xx, xv, vv = (float(q) for q in exact_covariances(gamma * eta / 2, u, gamma))
        return np.kron(np.array([[1, (1 - half) / gamma], [0, half]]), eye), np.kron([[xx, xv], [xv, vv]], eye)
    if kind == "anchored":
        flow, Q = harmonic(eta / 2, gamma, u, CURVATURE)
        return np.kron(flow, eye), np.kron(Q, eye)
    if kind == "baoab":
        A, O = np.array([[1, eta / 2], [0, 1]]), np.diag([1, e])  # noqa: E741
        Q = A @ np.diag([0, u * (1 - e * e)]) @ A.T
        return np.kron(A @ O @ A, eye), np.kron(Q, eye)
    return None


def one_step(kind, S, eta, gamma, u):
    """A, b and the noise covariance Q (2×2 blocks times I) of one step in (x, v) with drift gradient S x.

    Of the part from the gradient on, for schemes that move before it.
    """
    d, eye, zero = len(S), np.eye(len(S)), np.zeros((len(S), len(S)))
    if kind == "overdamped":
        A = np.block([[eye - eta * S, zero], [zero, zero]])
        return A, np.vstack([-eta * eye, zero]), np.kron(np.diag([2 * eta, 0.0]), eye)
    if kind == "exponential":
        a, E = gamma * eta, 1 - np.exp(-gamma * eta)
        b = np.vstack([-u / gamma**2 * (a - E) * eye, -u / gamma * E * eye])
        xx, xv, vv = (float(q) for q in exact_covariances(a, u, gamma))
        free = np.block([[eye, E / gamma * eye], [zero, (1 - E) * eye]])
        return free + np.hstack([b @ S, np.zeros((2 * d, d))]), b, np.kron([[xx, xv], [xv, vv]], eye)
    if kind == "anchored":
        kappa = anchored_kick(eta, gamma, u, CURVATURE)
        kicked, b = np.eye(2 * d), np.vstack([zero, -kappa * eye])
        kicked[d:, :d] = -kappa * (S - CURVATURE * eye)
        flow, Q = before_gradient(kind, d, eta, gamma, u)
        return flow @ kicked, flow @ b, Q
    if kind in ("ubu", "baoab"):
        kicked, b = np.eye(2 * d), np.vstack([zero, -eta * u * eye])
        kicked[d:, :d] = -eta * u * S
        if kind == "baoab":
            return kicked, b, np.zeros((2 * d, 2 * d))
        U, Q = before_gradient(kind, d, eta, gamma, u)
        return U @ kicked, U @ b, Q
    A = np.block([[eye, eta * eye], [-eta * u * S, (1 - gamma * eta) * eye]])
    b = np.vstack([zero, -eta * u * eye])
    if kind == "euler":
        return A, b, np.kron(np.diag([0.0, 2 * gamma * u * eta]), eye)
    xx, xv, vv = (float(q) for q in exact_covariances(gamma * eta, u, gamma))
    return A, b, np.kron(np.array([[xx, xv], [xv, vv]]), np.eye(d))


def law(problem, kind, gradient, steps, *, eta, gamma=2.0, u=1.0, B=1, m=1, replacement=True):
    """Mean and covariance of (x, v) after `steps` steps from x = v = 0, by enumerating the components."""
    S, xs = problem.S, problem.mean
    n, d = problem.a.shape
    mean_S = S.mean(0)
    A, b, Q = one_step(kind, mean_S, eta, gamma, u)
    scale = 1 / B if replacement else (n - B) / (B * (n - 1))
    F = np.zeros((3 * d, 3 * d))
    F[: 2 * d, : 2 * d], F[2 * d :, 2 * d :] = A, np.eye(d)
    snap = np.eye(3 * d)
    snap[2 * d :] = np.hstack([np.eye(d), np.zeros((d, 2 * d))])
    mean = np.concatenate([-xs, np.zeros(d), -xs])
    M = np.outer(mean, mean)
    before = before_gradient(kind, d, eta, gamma, u)
    first, second = (np.concatenate([shift, np.zeros(d)]) for shift in shifts(kind, xs, eta, gamma, u))
    for step in range(steps):
        if before is not None:
            P = np.eye(3 * d)
            P[: 2 * d, : 2 * d] = before[0]
            mean, M = affine(P, first, mean, M)
            M[: 2 * d, : 2 * d] += before[1]
        if step % m == 0:
            mean, M = snap @ mean, snap @ M @ snap.T
        V = np.zeros((d, d))
        for Si, ai in zip(S, problem.a, strict=True):
            C, force = Si - mean_S, Si @ (xs - ai)
            if gradient == "sg":
                turned = C @ np.outer(mean[:d], force)
                V += C @ M[:d, :d] @ C + turned + turned.T + np.outer(force, force)
            elif gradient == "cv":
                V += C @ M[:d, :d] @ C
            elif gradient == "svr":
                D = np.hstack([np.eye(d), np.zeros((d, d)), -np.eye(d)])
                V += C @ D @ M @ D.T @ C
        mean, M = affine(F, second, mean, M)
        M[: 2 * d, : 2 * d] += Q + scale / n * b @ V @ b.T
    covariance = M[: 2 * d, : 2 * d] - np.outer(mean[: 2 * d], mean[: 2 * d])
    return mean[: 2 * d] + np.concatenate([xs, np.zeros(d)]), covariance


def affine(A, c, mean, M):
    """Mean and second moment of A y + c."""
    turned = A @ mean
    return turned + c, A @ M @ A.T + np.outer(turned, c) + np.outer(c, turned) + np.outer(c, c)


def enumerated(D, e, prior, kind, steps, *, memory, B, P, eta, gamma, u, distinct=False, m=None, snapshot=0):
    """Mean and covariance of (x, v) by going through every batch of a step, rows drawn with probabilities P.

    The data part of a component's gradient is Dᵢx − eᵢ; the prior's is prior∘x. memory: "none", "saga" (αᵢ renewed),
    "svr" (all αᵢ renewed every m steps; with `snapshot`, their mean is estimated from so many rows, drawn evenly) or
    "cv" (αᵢ those at the point where all gradients together are 0). distinct: B different rows, evenly. From x = v = 0.
    The state is (x, v, α₁, …, αₙ, ζ), ζ the error of the estimated mean.
    """
    n, d = e.shape
    size = (3 + n) * d
    A0, b, Q = one_step(kind, np.zeros((d, d)), eta, gamma, u)
    before = before_gradient(kind, d, eta, gamma, u)
    xs = np.linalg.solve(D.mean(0) + np.diag(prior), e.mean(0))
    start = D @ xs - e if memory == "cv" else np.zeros((n, d))
    mean = np.concatenate([np.zeros(2 * d), start.ravel(), np.zeros(d)])
    M = np.outer(mean, mean)
    alphas = [slice((2 + i) * d, (3 + i) * d) for i in range(n)]

    def batches(rows, chances):
        if distinct:
            every = list(itertools.combinations(range(n), rows))
            return [(batch, 1 / len(every)) for batch in every]
        return [(batch, np.prod(chances[list(batch)])) for batch in itertools.product(range(n), repeat=rows)]

    def over(cases, mean, M):
        """Moments of a mixture of affine maps."""
        new_mean, new_M = np.zeros(size), np.zeros((size, size))
        for chance, A, shift in cases:
            one, second = affine(A, shift, mean, M)
            new_mean, new_M = new_mean + chance * one, new_M + chance * second
        return new_mean, new_M

    def renew(A, shift, rows):
        for i in rows:
            A[alphas[i]] = 0
            A[alphas[i], :d], shift[alphas[i]] = D[i], -e[i]

    def snapshots():
        for batch, chance in batches(snapshot, np.full(n, 1 / n)):
            A, shift = np.eye(size), np.zeros(size)
            renew(A, shift, range(n))
            A[-d:] = 0
            for i in batch:
                A[-d:, :d] += (D[i] - D.mean(0)) / snapshot
                shift[-d:] -= (e[i] - e.mean(0)) / snapshot
            yield chance, A, shift

    def kicks():
        for batch, chance in batches(B, P):
            G, c = np.zeros((d, size)), np.zeros(d)  # g = G y + c
            G[:, :d], G[:, -d:] = np.diag(prior), np.eye(d)
            for i in range(n):
                G[:, alphas[i]] += np.eye(d) / n
            for i in batch:
                weight = 1 / B if distinct else 1 / (n * P[i] * B)
                G[:, :d] += weight * D[i]
                G[:, alphas[i]] -= weight * np.eye(d)
                c -= weight * e[i]
            A, shift = np.eye(size), np.zeros(size)
            A[: 2 * d, : 2 * d] = A0
            A[: 2 * d] += b @ G
            shift[: 2 * d] = b @ c
            renew(A, shift, set(batch) if memory == "saga" else ())
            yield chance, A, shift

    for step in range(steps):
        if before is not None:
            F = np.eye(size)
            F[: 2 * d, : 2 * d] = before[0]
            mean, M = affine(F, np.zeros(size), mean, M)
            M[: 2 * d, : 2 * d] += before[1]
        if (memory == "saga" and step == 0) or (memory == "svr" and step % m == 0):
            mean, M = over(snapshots(), mean, M)
        mean, M = over(kicks(), mean, M)
        M[: 2 * d, : 2 * d] += Q
    return mean[: 2 * d], (M - np.outer(mean, mean))[: 2 * d, : 2 * d]


def z_scores(sample, mean, covariance):
    """z of each mean and each covariance entry of a sample (N, k) against exact moments.

    Standard errors come from the sample's own products, so they hold for laws that are not Gaussian. Coordinates
    that never move must have exactly their mean.
    """
    moving = np.diag(covariance) > 0
    assert (sample[:, ~moving] == mean[~moving]).all()
    away = sample[:, moving] - mean[moving]
    covariance = covariance[np.ix_(moving, moving)]
    root = np.sqrt(len(sample))
    z_mean = away.mean(0) / (away.std(0) / root)
    i, j = np.triu_indices(moving.sum())
    products = away[:, i] * away[:, j]
    z_cov = (products.mean(0) - covariance[i, j]) / (products.std(0) / root)
    return np.concatenate([z_mean, z_cov])
