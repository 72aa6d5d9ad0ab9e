"""The law that a chain settles to: the fixed point of the map of an epoch, on its moments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.theory.recursion import SMALL, Recursion, State, after_change, power_change

_REFINEMENTS = 6  # of the iteration to a stationary law
_SETTLED = 1e-13
_ROUGH = 1e-4  # accuracy of an answer that is only looked at for its sign
_NOTHING = 1e-9  # entries of a power that end a series
_DOUBLINGS = 50


class UnsettledError(ValueError):
    """A sampler has no stationary law at its step."""

    def __init__(self) -> None:
        super().__init__(
            "step_size must be small enough for a stationary law; got one at which the chain, or the noise of its "
            "gradient, grows (or is damped too little to tell): try half the step or a larger batch_size."
        )


def settled_state(chain: Recursion) -> State:
    """The fixed point of the map of an epoch; refused where there is none that is a covariance."""
    settled = _settled_mean(chain)
    state = _solved(chain, settled) if chain.compact and chain.k <= SMALL else _iterated(chain, settled)
    variances = np.einsum("pii->pi", state.C[chain.coordinates])
    if not (np.isfinite(variances).all() and variances.min() >= -1e-9 * np.abs(variances).max()):
        raise UnsettledError()
    return state


def _settled_mean(chain: Recursion) -> State:
    """C = 0 with the mean that an epoch leaves as it is."""
    k, (first, inner) = chain.k, chain.quiet_steps
    epoch = after_change(power_change(inner, chain.period - 1), first)[:, :k]
    _require_decay(epoch[:, :, :k])
    mean = np.zeros((len(epoch), k + 1))
    mean[:, k] = 1.0
    mean[:, :k] = np.linalg.solve(-epoch[:, :, :k], epoch[:, :, k:])[..., 0]
    return chain.fixed(mean)


def _solved(chain: Recursion, settled: State) -> State:
    """(I − T_CC) C = T_Cm mm, in every block, with T − I at hand."""
    count = chain.k**2
    maps, numbers = chain.epoch_map, chain.numbers(settled)
    if chain.elementwise:
        inner = slice(0, count)
    else:
        per_pair = np.arange(numbers.shape[1]).reshape(len(chain.a), -1)
        inner = per_pair[:, :count].reshape(-1)  # type: ignore[assignment]
    change = maps[:, inner][:, :, inner]
    _require_decay(change)
    pushed = (maps @ numbers[:, :, None])[:, inner]
    solved = numbers.copy()
    try:
        solved[:, inner] = np.linalg.solve(-change, pushed)[:, :, 0]
    except np.linalg.LinAlgError:  # damped by less than rounding
        raise UnsettledError() from None
    return chain.state(solved)


def _iterated(chain: Recursion, settled: State) -> State:
    """C − Φ(C) = Φ₀, Φ an epoch without and Φ₀ one from nothing: GMRES, with (I − T₀)⁻¹ of each pair in front.

    T₀ is an epoch without the noise that mixes pairs, so what is left to the iteration is that noise alone. Φ maps
    covariances to covariances, so it shrinks if and only if X − Φ(X) = W has a solution X ≥ 0 for a W > 0; then X ≥ W.
    """
    from scipy.sparse.linalg import LinearOperator, gmres

    shape, divided = settled.C.shape, (_by_doubling if chain.k > SMALL else _by_pairs)(chain)

    def epoch(C: Array, mm: Array) -> Array:
        return np.asarray(chain.epoch(State(C.reshape(shape), mm)).C.ravel(), np.float64)

    def quiet(C: Array) -> Array:
        return C - epoch(C, np.zeros_like(settled.mm))

    size = settled.C.size
    system, front = (LinearOperator((size, size), matvec=f, dtype=np.float64) for f in (quiet, divided))

    def solved(pushed: Array, rtol: float) -> Array:
        C, left = np.zeros(size), pushed
        for _ in range(_REFINEMENTS):
            step, _ = gmres(system, left, M=front, rtol=rtol, restart=40, maxiter=3)
            C, before = C + step, left
            left = pushed - quiet(C)
            if not np.isfinite(left).all() or np.abs(divided(left)).max() <= _SETTLED * np.abs(C).max():
                break
            if rtol >= _ROUGH or np.linalg.norm(left) > 0.5 * np.linalg.norm(before):  # rounding is reached
                break
        if not (np.isfinite(C).all() and np.abs(divided(left)).max() <= max(1e-6, 100 * rtol) * np.abs(C).max()):
            raise UnsettledError()
        return C.reshape(shape)

    C = solved(epoch(settled.C.ravel(), settled.mm), 1e-10)
    variances = np.abs(np.einsum("pii->pi", C[chain.coordinates]))
    variances = np.where(variances > 0, variances, variances.max())
    W = np.zeros(shape)
    W[chain.coordinates] = variances[:, :, None] * np.eye(chain.k)
    if _least_eigenvalue(chain, solved(W.ravel(), _ROUGH), variances) < 0.5:
        raise UnsettledError()
    return State(C, settled.mm)


def _least_eigenvalue(chain: Recursion, C: Array, variances: Array) -> float:
    """Of the covariance of all blocks together, each number divided by a standard deviation."""
    blocks, k = variances.shape
    whole = np.zeros((blocks, k, blocks, k))
    whole[chain.b, :, chain.a, :] = C.swapaxes(-1, -2)
    whole[chain.a, :, chain.b, :] = C
    scale = np.sqrt(variances).ravel()
    return float(np.linalg.eigvalsh(whole.reshape(blocks * k, -1) / np.outer(scale, scale))[0])


def _by_pairs(chain: Recursion) -> Callable[[Array], Array]:
    """(I − T₀)⁻¹ as a matrix for each pair."""
    k, eye = chain.k, np.eye(chain.k)

    def of_pairs(G: Array) -> Array:
        left, right = G[chain.a, :k, :k], G[chain.b, :k, :k]
        joined: Array = np.einsum("pij,kl->pikjl", left, eye) + np.einsum("ij,pkl->pikjl", eye, right)
        joined += np.einsum("pij,pkl->pikjl", left, right)
        return joined.reshape(-1, k * k, k * k)

    first, inner = (of_pairs(G) for G in chain.quiet_steps)
    alone = -after_change(power_change(inner, chain.period - 1), first)
    return lambda C: np.asarray(np.linalg.solve(alone, C.reshape(-1, k * k, 1)).ravel(), np.float64)


def _by_doubling(chain: Recursion) -> Callable[[Array], Array]:
    """(I − T₀)⁻¹C = Σ AʲCAʲᵀ for A that shrink, A the mean of an epoch: twice as many terms each time."""
    k, (first, inner) = chain.k, chain.quiet_steps
    A = np.eye(k) + after_change(power_change(inner, chain.period - 1), first)[:, :k, :k]
    powers = [A]
    while np.abs(powers[-1]).max() > _NOTHING and len(powers) < _DOUBLINGS:
        powers.append(powers[-1] @ powers[-1])

    def divided(C: Array) -> Array:
        total = C.reshape(-1, k, k)
        for A in powers:
            total = total + A[chain.a] @ total @ A[chain.b].swapaxes(-1, -2)
        return np.asarray(total.ravel(), np.float64)

    return divided


def _require_decay(change: Array) -> None:
    """Refuse a map I + change that does not shrink: |1 + λ|² − 1 = 2 Re λ + |λ|² must be negative."""
    if not np.isfinite(change).all():
        raise UnsettledError()
    values = np.linalg.eigvals(change)
    with np.errstate(over="ignore"):
        if (2 * values.real + np.abs(values) ** 2).max() >= 0:
            raise UnsettledError()
