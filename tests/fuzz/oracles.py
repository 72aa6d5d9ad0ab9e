"""The answers once more, in fifty digits and by formulas that share nothing with the package."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

DIGITS = 50
SIZE = 1e100  # of numbers that an oracle is asked about; beyond them only nan, errors and warnings are looked for


def precise(function):
    """In fifty digits."""

    def inner(*args, **kwargs):
        with mpmath.workdps(DIGITS):
            return function(*args, **kwargs)

    return inner


# minus log likelihoods of one row as functions of its predictors, up to constants; y is as the user gives it


def _softplus(t):
    return mpmath.log1p(mpmath.exp(-abs(t))) + max(t, mpf(0))


def loss(family: str, t, y, extra: Any = None):
    """−log p(y | t), up to a constant in t; t has one number, or several."""
    if family == "bernoulli":
        return _softplus(-t[0] if y else t[0])
    if family == "probit":
        z = -t[0] if y else t[0]
        return -mpmath.log(mpmath.erfc(z / mpmath.sqrt(2)) / 2)
    if family == "binomial":
        return y * _softplus(-t[0]) + (extra - y) * _softplus(t[0])
    if family == "poisson":
        return mpmath.exp(t[0]) - y * t[0]
    if family == "linear":
        return (y - t[0]) ** 2 / (2 * extra)
    if family == "gaussian":
        return t[1] + ((y - t[0]) * mpmath.exp(-t[1])) ** 2 / 2
    if family == "student-t":
        v = mpf(4)
        return t[1] + (v + 1) / 2 * mpmath.log(1 + ((y - t[0]) * mpmath.exp(-t[1])) ** 2 / v)
    if family == "negative-binomial":
        phi, mu = mpmath.exp(t[1]), mpmath.exp(t[0])
        rising = sum(mpmath.log(phi + k) for k in range(int(y)))
        return -rising - phi * mpmath.log(phi / (phi + mu)) - y * mpmath.log(mu / (phi + mu))
    if family == "gamma":
        a, mu = mpmath.exp(t[1]), mpmath.exp(t[0])
        return mpmath.loggamma(a) - a * mpmath.log(a / mu) - (a - 1) * mpmath.log(y) + a * y / mu
    if family == "categorical":
        full = [mpf(0), *t]
        top = max(full)
        return top + mpmath.log(sum(mpmath.exp(each - top) for each in full)) - full[int(y)]
    raise KeyError(family)


def size(family: str, t, y, extra: Any = None) -> float:
    """How large the terms are of which a slope is the sum, for its rounding."""
    t = [float(each) for each in t]
    if family == "poisson":
        return abs(y) + math.exp(min(t[0], 700))
    if family == "linear":
        return (abs(y) + abs(t[0])) / float(extra)
    if family == "binomial":
        return float(extra)
    if family in ("gaussian", "student-t"):
        r = (abs(y) + abs(t[0])) * math.exp(min(-t[1], 300))
        return (1 + r) ** 2 * (1 + math.exp(min(-t[1], 300)))
    if family == "negative-binomial":
        return abs(y) + math.exp(min(t[1], 300)) * (1 + abs(t[0]) + abs(t[1])) + math.exp(min(t[0], 300))
    if family == "gamma":
        return math.exp(min(t[1], 300)) * (1 + abs(math.log(y)) + abs(t[0]) + abs(t[1]) + y * math.exp(min(-t[0], 300)))
    return 1.0


def prior(kind: tuple, x):
    """−log p of one coordinate, up to a constant."""
    if kind[0] == "normal":
        return mpf(kind[1]) * (x - mpf(kind[2])) ** 2 / 2
    if kind[0] == "student":
        v, s, at = map(mpf, kind[1:])
        return (v + 1) / 2 * mpmath.log(1 + ((x - at) / s) ** 2 / v)
    if kind[0] == "laplace":
        s, at, smoothing = map(mpf, kind[1:])
        e = smoothing * s
        return (mpmath.sqrt((x - at) ** 2 + e**2) - e) / s
    return mpf(0)


class Model:
    """f of a generalised linear model, with gradient and Hessian by differences in many digits."""

    def __init__(self, family, X, y, extra, offset, weights, priors, blocks, shared):
        self.family, self.X, self.y, self.extra = family, X, y, extra
        self.offset, self.weights, self.priors = offset, weights, priors
        self.blocks, self.shared, self.width = blocks, shared, X.shape[1]

    def _predictors(self, x, i):
        row = [mpf(float(each)) for each in self.X[i]]
        t = []
        for c in range(self.blocks):
            part = x[c * self.width : (c + 1) * self.width]
            t.append(mpmath.fdot(row, part) + mpf(float(self.offset[i])))
        return t + list(x[self.blocks * self.width :])

    @precise
    def all(self, x):
        """f, ∇f, ∇²f at x, and the size of the terms of each for rounding: (f, g, H, |f|, |g|, |H|), as floats."""
        x = [mpf(float(each)) for each in x]
        dim = len(x)
        f, g, H = mpf(0), [mpf(0)] * dim, [[mpf(0)] * dim for _ in range(dim)]
        af, ag, aH = 0.0, np.zeros(dim), np.zeros((dim, dim))
        for i in range(len(self.X)):
            w = mpf(float(self.weights[i]))
            if not w:
                continue
            t = self._predictors(x, i)
            value, slope, bend, third = derivatives(lambda u, i=i: loss(self.family, u, self.y[i], self.extra[i]), t)
            J = self._jacobian(i)
            reach = np.array([float(sum(abs(J[k][j] * x[j]) for j in range(dim))) for k in range(len(t))]) + abs(
                float(self.offset[i])
            )
            m = size(self.family, t, float(self.y[i]), self.extra[i])
            f += w * value
            one = np.abs(np.array([[float(each) for each in line] for line in J]))
            s, c = (
                np.abs(np.array([float(each) for each in slope])),
                np.abs(np.array([[float(e) for e in line] for line in bend])),
            )
            af += float(w) * (abs(float(value)) + s @ reach + m)
            ag += float(w) * one.T @ (s + m + c @ reach)
            aH += float(w) * one.T @ (c + m + float(third) * reach.sum()) @ one
            for j in range(dim):
                g[j] += w * sum(slope[k] * J[k][j] for k in range(len(t)))
                for other in range(dim):
                    H[j][other] += w * sum(
                        J[k][j] * bend[k][q] * J[q][other] for k in range(len(t)) for q in range(len(t))
                    )
        for j in range(dim):
            value, slope, bend, _ = derivatives(lambda u, j=j: prior(self.priors[j], u[0]), [x[j]])
            f, g[j], H[j][j] = f + value, g[j] + slope[0], H[j][j] + bend[0][0]
            centre = abs(self.priors[j][2]) if self.priors[j][0] == "normal" else 0.0
            stiff = self.priors[j][1] if self.priors[j][0] == "normal" else abs(float(bend[0][0]))
            af += abs(float(value)) + stiff * (abs(float(x[j])) + centre) ** 2
            ag[j] += abs(float(slope[0])) + stiff * (abs(float(x[j])) + centre)
            aH[j, j] += abs(float(bend[0][0])) + stiff
        return float(f), np.array([float(e) for e in g]), np.array([[float(e) for e in r] for r in H]), af, ag, aH

    def _jacobian(self, i):
        dim = self.blocks * self.width + self.shared
        J = [[mpf(0)] * dim for _ in range(self.blocks + self.shared)]
        for c in range(self.blocks):
            for j in range(self.width):
                J[c][c * self.width + j] = mpf(float(self.X[i, j]))
        for k in range(self.shared):
            J[self.blocks + k][self.blocks * self.width + k] = mpf(1)
        return J


def derivatives(function, t):
    """Value, slope, curvature at t by central differences, and the size of the third derivative along each axis."""
    m = len(t)
    h = [mpf(10) ** -12 * max(mpf(1), abs(each)) for each in t]

    def at(*moves):
        u = list(t)
        for k, by in moves:
            u[k] += by * h[k]
        return function(u)

    value = function(t)
    up, down = [at((k, 1)) for k in range(m)], [at((k, -1)) for k in range(m)]
    slope = [(up[k] - down[k]) / (2 * h[k]) for k in range(m)]
    bend = [[mpf(0)] * m for _ in range(m)]
    third = mpf(0)
    for k in range(m):
        bend[k][k] = (up[k] - 2 * value + down[k]) / h[k] ** 2
        third = max(third, abs(at((k, 2)) - 2 * up[k] + 2 * down[k] - at((k, -2))) / (2 * h[k] ** 3))
        for q in range(k):
            cross = at((k, 1), (q, 1)) - at((k, 1), (q, -1)) - at((k, -1), (q, 1)) + at((k, -1), (q, -1))
            bend[k][q] = bend[q][k] = cross / (4 * h[k] * h[q])
    return value, slope, bend, third


@precise
def gaussian_posterior(A, b):
    """A⁻¹b and A⁻¹ of a precision A in many digits, with the condition number of A."""
    A = mpmath.matrix(A)
    try:
        inverse = A**-1
    except ZeroDivisionError:
        return np.zeros(A.rows), np.eye(A.rows), math.inf
    mean = inverse * mpmath.matrix(b)
    return (
        np.array([float(each) for each in mean]),
        np.array([[float(inverse[i, j]) for j in range(A.cols)] for i in range(A.rows)]),
        float(mpmath.mnorm(A, 1) * mpmath.mnorm(inverse, 1)),
    )


@precise
def linear_posterior(X, y, noise, precision, mean):
    """(XᵀX/σ² + Λ, Xᵀy/σ² + Λp) of a conjugate regression, solved in many digits."""
    X = mpmath.matrix(X.tolist())
    L = mpmath.diag([mpf(float(each)) for each in precision])
    A = X.T * X / mpf(noise) + L
    b = X.T * mpmath.matrix([mpf(float(each)) for each in y]) / mpf(noise) + L * mpmath.matrix(
        [mpf(float(each)) for each in mean]
    )
    return gaussian_posterior(A, b)


@precise
def w2(mean_a, cov_a, mean_b, cov_b):
    """W₂ of two Gaussians in one or two dimensions; tr √(AB) = √(tr AB + 2√det AB) for 2 × 2."""
    A, B = mpmath.matrix(cov_a), mpmath.matrix(cov_b)
    away = sum((mpf(a) - mpf(b)) ** 2 for a, b in zip(mean_a, mean_b, strict=True))
    if A.rows == 1:
        return float(mpmath.sqrt(away + (mpmath.sqrt(A[0]) - mpmath.sqrt(B[0])) ** 2))
    AB = A * B
    root = mpmath.sqrt(max(AB[0, 0] + AB[1, 1] + 2 * mpmath.sqrt(max(mpmath.det(AB), 0)), 0))
    return float(mpmath.sqrt(max(away + A[0, 0] + A[1, 1] + B[0, 0] + B[1, 1] - 2 * root, 0)))


@precise
def free_noise(eta, gamma, u):
    """(Var εˣ, Cov, Var εᵛ) of the process without gradient over a step."""
    eta, g, u = mpf(eta), mpf(gamma), mpf(u)
    e = mpmath.exp(-g * eta)
    return tuple(
        float(each) for each in (u / g**2 * (2 * g * eta + 4 * e - e**2 - 3), u / g * (1 - e) ** 2, u * (1 - e**2))
    )


@precise
def flow(eta, gamma):
    """(1 − e^{−γη})/γ and e^{−γη}."""
    eta, g = mpf(eta), mpf(gamma)
    return float((1 - mpmath.exp(-g * eta)) / g), float(mpmath.exp(-g * eta))
