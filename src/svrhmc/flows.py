"""What Langevin dynamics does over a time in which no gradient acts: maps and noise, without cancellation."""

from __future__ import annotations

import math

import numpy as np

from svrhmc.scheme import Map, NoiseFactor


def harmonic_flow(time: float, friction: float, pull: float) -> Map:
    """Φ(t) = e^{−γt/2}[[C + γS/2, S], [−pull·S, C − γS/2]], with C = cos ωt, S = sin(ωt)/ω, ω² = pull − γ²/4."""
    a, square = friction / 2, pull - friction**2 / 4
    root = math.sqrt(abs(square))
    y = root * time
    if y < 1e-4:
        C, S = 1 - square * time**2 / 2, time * (1 - square * time**2 / 6)
    elif square > 0:
        C, S = math.cos(y), math.sin(y) / root
    else:
        C, S = math.cosh(y), math.sinh(y) / root
    decay = math.exp(-a * time)
    return Map(decay * (C + a * S), decay * S, -decay * pull * S, decay * (C - a * S))


def harmonic_noise(time: float, friction: float, inverse_mass: float, curvature: float) -> NoiseFactor:
    """Factor of ∫₀ᵗ 2γu Φ(r)e₂e₂ᵀΦ(r)ᵀ dr: by Gauss's rule, all terms positive, where t is short, else Σ − ΦΣΦᵀ."""
    u, pull = inverse_mass, inverse_mass * curvature
    if time * (friction + math.sqrt(pull)) < 2:
        nodes, weights = np.polynomial.legendre.leggauss(24)
        flows = [harmonic_flow(time * (node + 1) / 2, friction, pull) for node in nodes]
        xv, vv = (np.array([getattr(flow, name) for flow in flows]) for name in ("xv", "vv"))
        scale = friction * u * time
        var_x, cov, var_v = (float(scale * (weights @ q)) for q in (xv * xv, xv * vv, vv * vv))
    else:
        flow = harmonic_flow(time, friction, pull)
        var_x = (1 - flow.xx**2) / curvature - flow.xv**2 * u
        var_v = u * (1 - flow.vv**2) - flow.vx**2 / curvature
        cov = -flow.xx * flow.vx / curvature - flow.xv * flow.vv * u
    vv_factor = math.sqrt(var_v)
    return NoiseFactor(vv_factor, cov / vv_factor, math.sqrt(var_x - cov**2 / var_v))


def flow(time: float, friction: float) -> Map:
    """U(h): x ← x + (1 − e^{−γh})/γ · v, v ← e^{−γh} v."""
    lost = -math.expm1(-friction * time)
    return Map(1.0, lost / friction, 0.0, 1 - lost)


def exact_noise(time: float, friction: float, inverse_mass: float) -> NoiseFactor:
    """Factor of the noise that underdamped dynamics gathers over `time` (paper eq. 8), with no cancellation.

    With a = γη, t = tanh(a/2) and r(a) = a − 2t,

        Var εᵛ = u (1 − e^{−2a})                             = u·4t/(1+t)²
        Cov    = (u/γ)(1 − e^{−a})²                          = (u/γ)·4t²/(1+t)²
        Var εˣ = (u/γ²)(2a + 4e^{−a} − e^{−2a} − 3)          = (u/γ²)(2r + 4t³/(1+t)²)

    and the Schur complement Var εˣ − Cov²/Var εᵛ is exactly 2ur/γ², so that

        εᵛ = √u·2√t/(1+t) ξ₁,      εˣ = (√u/γ)( 2t^{3/2}/(1+t) ξ₁ + √(2r) ξ₂ ).

    The printed form loses 6ε/a³ of its digits; this one none, for any a > 0.

    >>> noise = exact_noise(1e-4, friction=1.0, inverse_mass=1.0)
    >>> float(noise.xv**2 + noise.xx**2)
    6.666166689999166e-13
    """
    a = friction * time
    t = math.tanh(a / 2)
    root_u = math.sqrt(inverse_mass)
    vv = root_u * 2 * math.sqrt(t) / (1 + t)
    return NoiseFactor(vv, vv * t / friction, root_u / friction * math.sqrt(2 * remainder(a)))


def remainder(a: float) -> float:
    """r(a) = a − 2 tanh(a/2), from tanh y = y/(1 + c), c = y²/(3 + y²/(5 + y²/(7 + …))): all terms positive."""
    if a > 2:
        return a - 2 * math.tanh(a / 2)
    y = a / 2
    tail = 0.0
    for odd in range(23, 1, -2):
        tail = y * y / (odd + tail)
    return a * tail / (1 + tail)
