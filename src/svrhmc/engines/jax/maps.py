"""The variables of chains in JAX: x = centre + W z, for each kind of whitening.

That of a sparse factor is x = x̂ + P L⁻ᵀz, with an L that is sparse in its first columns (the head) and dense in the
last ones (the core); `whitening.factors` has the definition. Every entry of the head below the diagonal takes its part
from one number, for that of another which must be known by then. Entries are sorted by how many others have to go
before, into stages whose entries do not wait for each other; a stage is one or several lines of equal length, filled up
with zeros. What is not yet divided by Lⱼⱼ is in `sums`, so that y = sums/Lⱼⱼ can be read at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from svrhmc.core.arrays import Indices, Integers, Values
from svrhmc.core.jax import Tree
from svrhmc.whitening.sparse import SparseWhitening

Arrays = dict[str, Tree]  # by name; under "data" those of the rows

_LEAST = 256  # entries of a line


@dataclass(frozen=True)
class Map:
    """The kind of a whitening, whose centre and W are among the arrays; None where x = z."""

    kind: str | None = None

    @staticmethod
    def of(whitening: Any) -> tuple[Map, Arrays]:
        """Of a whitening or None, with its arrays."""
        if whitening is None:
            return Map(), {}
        sparse = whitening.kind == "sparse"
        return Map(whitening.kind), _factor_arrays(whitening) if sparse else dict(whitening.arrays())

    def displace(self, arrays: Arrays, z: jax.Array) -> jax.Array:
        """W z."""
        if self.kind is None:
            return z
        return _MAPS[self.kind][0](arrays, z)

    def out(self, arrays: Arrays, z: jax.Array) -> jax.Array:
        """x."""
        return z if self.kind is None else arrays["centre"] + self.displace(arrays, z)

    def pull(self, arrays: Arrays, gradient: jax.Array) -> jax.Array:
        """Wᵀg."""
        if self.kind is None:
            return gradient
        return _MAPS[self.kind][1](arrays, gradient)


def _displace_dense(arrays: Arrays, z: jax.Array) -> jax.Array:
    return z @ arrays["factor"].T


def _pull_dense(arrays: Arrays, gradient: jax.Array) -> jax.Array:
    return gradient @ arrays["factor"]


def _displace_low_rank(arrays: Arrays, z: jax.Array) -> jax.Array:
    return arrays["scale"] * _stretch_along_basis(arrays, z)


def _pull_low_rank(arrays: Arrays, gradient: jax.Array) -> jax.Array:
    return _stretch_along_basis(arrays, arrays["scale"] * gradient)


def _stretch_along_basis(arrays: Arrays, z: jax.Array) -> jax.Array:
    """z, longer by some gain in each direction of the basis."""
    return z + ((z @ arrays["basis"]) * arrays["gain"]) @ arrays["basis"].T


def _factor_arrays(how: SparseWhitening) -> Arrays:
    """The centre, the order of elimination, 1/Lⱼⱼ, the lines of the head, and the core as a matrix."""
    head = len(how.begin) - 1
    columns = np.repeat(np.arange(head), np.diff(how.begin))
    lines = _lines(_stages(how.begin, how.rows, head)[columns], columns, how.rows, how.values)
    size = len(how.order) - head
    core = np.zeros((size, size))
    core[np.tril_indices(size, -1)] = how.core
    core[np.diag_indices(size)] = 1 / how.inverse[head:]
    names = ("factor columns", "factor rows", "factor values")
    arrays = {"centre": how.centre, "order": how.order, "inverse": how.inverse, "core": core}
    return arrays | dict(zip(names, lines, strict=True))


def _stages(begin: Integers, rows: Integers, head: int) -> Indices:
    """Of every column of the head: one more than the last of those at which it has entries; 0 where all are in the
    core.
    """
    stages = np.zeros(head + 1, np.int64)
    for j in range(head - 1, -1, -1):
        own = rows[begin[j] : begin[j + 1]]
        own = own[own < head]
        stages[j] = 1 + stages[own].max() if len(own) else 0
    return stages[:-1]


def _lines(stages: Indices, *entries: Values) -> list[Values]:
    """Entries as lines of one stage each, in the order of the stages."""
    counts = np.bincount(stages) if len(stages) else np.zeros(0, np.int64)
    length = max(_LEAST, -(-len(stages) // max(1, len(counts))))
    padded_counts = -(-counts // length) * length
    first = np.cumsum(padded_counts) - padded_counts
    order = np.argsort(stages, kind="stable")
    within = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(first, counts) + within
    lines = []
    for values in entries:
        line = np.zeros(int(padded_counts.sum()), np.asarray(values).dtype)
        line[places] = np.asarray(values)[order]
        lines.append(line.reshape(-1, length))
    return lines


def _displace_factor(arrays: Arrays, z: jax.Array) -> jax.Array:
    """P y with Lᵀy = z."""
    head, inverse = _head(arrays), arrays["inverse"]
    sums = z.at[:, head:].set(_solve_core(arrays, z[:, head:], 1) / inverse[head:])

    def line(k: jax.Array, sums: jax.Array) -> jax.Array:
        columns, rows, values = _line(arrays, k)
        return sums.at[:, columns].add(-values * sums[:, rows] * inverse[rows])

    return jnp.zeros_like(z).at[:, arrays["order"]].set(_run_lines(arrays, line, sums) * inverse)


def _pull_factor(arrays: Arrays, gradient: jax.Array) -> jax.Array:
    """y with L y = Pᵀg."""
    head, inverse, count = _head(arrays), arrays["inverse"], len(arrays["factor values"])

    def line(k: jax.Array, sums: jax.Array) -> jax.Array:
        columns, rows, values = _line(arrays, count - 1 - k)
        return sums.at[:, rows].add(-values * sums[:, columns] * inverse[columns])

    sums = _run_lines(arrays, line, gradient[:, arrays["order"]])
    return (sums * inverse).at[:, head:].set(_solve_core(arrays, sums[:, head:], 0))


def _run_lines(arrays: Arrays, line: Callable[[jax.Array, jax.Array], jax.Array], sums: jax.Array) -> jax.Array:
    count = len(arrays["factor values"])
    return jax.lax.fori_loop(0, count, line, sums) if count else sums


def _solve_core(arrays: Arrays, sums: jax.Array, trans: int) -> jax.Array:
    """The system of the core alone."""
    return solve_triangular(arrays["core"], sums.T, trans=trans, lower=True).T if sums.size else sums


def _head(arrays: Arrays) -> int:
    return len(arrays["order"]) - len(arrays["core"])


def _line(arrays: Arrays, k: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(arrays[name][k] for name in ("factor columns", "factor rows", "factor values"))


_MAPS = {
    "dense": (_displace_dense, _pull_dense),
    "low rank": (_displace_low_rank, _pull_low_rank),
    "sparse": (_displace_factor, _pull_factor),
}
