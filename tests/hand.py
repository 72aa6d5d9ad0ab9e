"""The laws of the samplers written out by hand, from formulas of their own: nothing here looks at a Scheme.

Every fᵢ = ½(x − aᵢ)ᵀSᵢ(x − aᵢ). The state is y = (x − x*, v, x̃ − x*); mean m and second moment M obey one
recursion a step.
"""

from dataclasses import dataclass

import mpmath
import numpy as np


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


def before_gradient(kind, d, eta, gamma, u):
    """What happens to (x, v) before a step's gradient: a matrix and its noise covariance; None where nothing does."""
    eye = np.eye(d)
    e = np.exp(-gamma * eta)
    if kind == "ubu":
        half = np.exp(-gamma * eta / 2)
        xx, xv, vv = (float(q) for q in exact_covariances(gamma * eta / 2, u, gamma))
        return np.kron(np.array([[1, (1 - half) / gamma], [0, half]]), eye), np.kron([[xx, xv], [xv, vv]], eye)
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
    for step in range(steps):
        if before is not None:
            P = np.eye(3 * d)
            P[: 2 * d, : 2 * d] = before[0]
            mean, M = P @ mean, P @ M @ P.T
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
        mean, M = F @ mean, F @ M @ F.T
        M[: 2 * d, : 2 * d] += Q + scale / n * b @ V @ b.T
    covariance = M[: 2 * d, : 2 * d] - np.outer(mean[: 2 * d], mean[: 2 * d])
    return mean[: 2 * d] + np.concatenate([xs, np.zeros(d)]), covariance


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
