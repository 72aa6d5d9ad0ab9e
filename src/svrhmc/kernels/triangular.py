"""Triangular systems with a factor that is sparse in its first columns and dense in the last ones.

H, its rows and columns taken in the order of elimination, is L Lᵀ. The first k columns of L (the head) are stored by
columns, below the diagonal; the others (the core) as the rows of a dense triangle, one after another, without their
diagonal, in float64 or float32; what is computed is float64. `inverse` holds 1/Lⱼⱼ of all columns.

    Lᵀy = z:   y = (z − (what later rows take))/Lⱼⱼ   from the last row of the core to the first of the head,
    L y = g:   the same from the first to the last.

The core is read four rows at a time and serves all states before the next four are read: beyond the caches reading it
is what takes the time. No digit of a state depends on those beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, typeof, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from svrhmc.core.arrays import Array, Indices, Integers, Reals
from svrhmc.kernels.compiling import ENTRY, FAST, INLINE, PLAIN, QUICK, kept, peek, unshared


class Factor(NamedTuple):
    """u = P L⁻ᵀ z: `order[p]` is the coordinate that is eliminated as the p-th."""

    order: Indices
    inverse: Array
    begin: Indices  # of the head's columns in `rows` and `values`; one more than there are columns
    rows: Integers
    values: Array
    core: Reals
    address: int = 0  # of `solve` for such a factor


_ADDRESS, _STATES = Factor._fields.index("address"), types.float64[:, ::1]


@njit(**QUICK)
def _back_four(core, inverse, i, y):
    """Solve rows i … i + 3 of the core in Lᵀy = z, and take their part from all before them."""
    unshared()
    a = i * (i - 1) // 2
    b = a + i
    c = b + i + 1
    d = c + i + 2
    yd = y[i + 3] * inverse[i + 3]
    yc = (y[i + 2] - core[d + i + 2] * yd) * inverse[i + 2]
    yb = (y[i + 1] - core[d + i + 1] * yd - core[c + i + 1] * yc) * inverse[i + 1]
    ya = (y[i] - core[d + i] * yd - core[c + i] * yc - core[b + i] * yb) * inverse[i]
    y[i], y[i + 1], y[i + 2], y[i + 3] = ya, yb, yc, yd
    first, second, third, fourth = core[a : a + i], core[b : b + i], core[c : c + i], core[d : d + i]
    for j in range(i):
        y[j] -= (ya * first[j] + yb * second[j]) + (yc * third[j] + yd * fourth[j])


@njit(**QUICK)
def _forward_four(core, inverse, i, y):
    """Solve rows i … i + 3 of the core in L y = g, all before them being solved."""
    unshared()
    a = i * (i - 1) // 2
    b = a + i
    c = b + i + 1
    d = c + i + 2
    first, second, third, fourth = core[a : a + i], core[b : b + i], core[c : c + i], core[d : d + i]
    sa = sb = sc = sd = 0.0
    for j in range(i):
        sa += first[j] * y[j]
        sb += second[j] * y[j]
        sc += third[j] * y[j]
        sd += fourth[j] * y[j]
    ya = (y[i] - sa) * inverse[i]
    yb = (y[i + 1] - sb - core[b + i] * ya) * inverse[i + 1]
    yc = (y[i + 2] - sc - core[c + i] * ya - core[c + i + 1] * yb) * inverse[i + 2]
    yd = (y[i + 3] - sd - core[d + i] * ya - core[d + i + 1] * yb - core[d + i + 2] * yc) * inverse[i + 3]
    y[i], y[i + 1], y[i + 2], y[i + 3] = ya, yb, yc, yd


@njit(**QUICK)
def _back_few(core, inverse, count, y):
    """The first rows of the core, fewer than four."""
    for i in range(count - 1, -1, -1):
        y[i] *= inverse[i]
        for j in range(i):
            y[j] -= core[i * (i - 1) // 2 + j] * y[i]


@njit(**QUICK)
def _forward_few(core, inverse, count, y):
    for i in range(count):
        total = y[i]
        for j in range(i):
            total -= core[i * (i - 1) // 2 + j] * y[j]
        y[i] = total * inverse[i]


@njit(**QUICK)
def _back_column(rows, values, low, high, pivot, j, y):
    """Row j of the head in Lᵀy = z, whose entries are those from `low` on."""
    unshared()
    total = y[j]
    for k in range(low, high):
        total -= peek(values, k) * y[peek(rows, k)]
    y[j] = total * pivot


@njit(**PLAIN)
def _forward_column(rows, values, low, high, pivot, j, y):
    """Column j of the head in L y = g."""
    unshared()
    y[j] *= pivot
    at = y[j]
    for k in range(low, high):
        y[peek(rows, k)] -= peek(values, k) * at


@njit(**INLINE)
def _solve_back(frame, states, count):
    """Lᵀy = z in place, for the first `count` of some states (state, dim), in the order of elimination."""
    begin, rows, values, core, inverse = frame.begin, frame.rows, frame.values, frame.core, frame.inverse
    head = len(begin) - 1
    size = len(inverse) - head
    few, last = size % 4, inverse[head:]
    for i in range(size - 4, -1, -4):
        for c in range(count):
            _back_four(core, last, i, states[c, head:])
    for c in range(count):
        _back_few(core, last, few, states[c, head:])
    for j in range(head - 1, -1, -1):
        for c in range(count):
            _back_column(rows, values, begin[j], begin[j + 1], inverse[j], j, states[c])


@njit(**INLINE)
def _solve_forward(frame, states, count):
    """L y = g in place."""
    begin, rows, values, core, inverse = frame.begin, frame.rows, frame.values, frame.core, frame.inverse
    head = len(begin) - 1
    size = len(inverse) - head
    few, last = size % 4, inverse[head:]
    for j in range(head):
        for c in range(count):
            _forward_column(rows, values, begin[j], begin[j + 1], inverse[j], j, states[c])
    for c in range(count):
        _forward_few(core, last, few, states[c, head:])
    for i in range(few, size, 4):
        for c in range(count):
            _forward_four(core, last, i, states[c, head:])


@kept
@njit(fastmath=FAST, **ENTRY)
def solve(frame, states, low, high, forward):
    """L y = g (`forward`) or Lᵀy = z of some states, in place."""
    some = states[low:high]
    if forward:
        _solve_forward(frame, some, high - low)
    else:
        _solve_back(frame, some, high - low)


def backs(frame: Factor, states: Array, low: int, high: int) -> None:
    """Lᵀy = z of some states, in place."""
    solve(frame, states, low, high, False)


def forwards(frame: Factor, states: Array, low: int, high: int) -> None:
    """L y = g of some states, in place."""
    solve(frame, states, low, high, True)


def called_by_address(frame: Factor) -> Factor:
    """The same factor with the address of `solve`, by which loops call it: so it is compiled once for all of them and
    for Python. It holds in this process alone.
    """
    signature = (typeof(frame), _STATES, types.intp, types.intp, types.boolean)
    if signature not in solve.overloads:
        solve.compile(signature)
    code = solve.overloads[signature]
    return frame._replace(address=code.library.get_pointer_to_function(code.fndesc.llvm_func_name))


@intrinsic
def solve_by_address(context, frame, states, count, forward):
    """`solve` for the first `count` states of an array, or for one state."""
    if states.layout != "C" or states.dtype != types.float64:
        return None
    given = (frame, _STATES, types.intp, types.intp, types.boolean)

    def generate(context, builder, signature, arguments):
        factor, array, count, forward = arguments
        none, one = (context.get_constant(types.intp, number) for number in (0, 1))
        if states.ndim == 1:
            state, rows = context.make_array(states)(context, builder, array), context.make_array(_STATES)
            of_one, length, size = rows(context, builder), state.nitems, state.itemsize
            populate_array(of_one, state.data, (one, length), (builder.mul(length, size), size), size, None)
            array = of_one._getvalue()
        kind = context.call_conv.get_function_type(types.none, given)
        function = builder.inttoptr(builder.extract_value(factor, _ADDRESS), kind.as_pointer())
        context.call_conv.call_function(builder, function, types.none, given, [factor, array, none, count, forward])
        return context.get_dummy_value()

    return types.none(frame, states, types.intp, types.boolean), generate


@kept
@njit(fastmath=FAST, **ENTRY)
def turns(frame, states, low, high):
    """z = Lᵀy of some states, in place: row j needs those after it as they were."""
    begin, rows, values, core, inverse = frame.begin, frame.rows, frame.values, frame.core, frame.inverse
    head = len(begin) - 1
    for c in range(low, high):
        y = states[c]
        for j in range(head):
            total = y[j] / inverse[j]
            for k in range(begin[j], begin[j + 1]):
                total += values[k] * y[rows[k]]
            y[j] = total
        last = y[head:]
        for i in range(len(last)):
            at, row = last[i], core[i * (i - 1) // 2 : i * (i + 1) // 2]
            for j in range(i):
                last[j] += row[j] * at
            last[i] = at / inverse[head + i]


@njit(**PLAIN)
def _known(begin, rows, entries, diagonal, inner, low, high):
    """(H⁻¹) at two places, low ≤ high, of which both are among the core or the pattern of L has them; else nan."""
    head = len(begin) - 1
    if low >= head:
        return inner[low - head, high - head]
    if low == high:
        return diagonal[low]
    first, last = begin[low], begin[low + 1]
    while first < last:
        middle = (first + last) // 2
        if rows[middle] < high:
            first = middle + 1
        else:
            last = middle
    if first < begin[low + 1] and rows[first] == high:
        return entries[first]
    return np.nan


@kept
@njit(**ENTRY)
def inverse_diagonal(frame, inner, entries, room, diagonal):
    """The diagonal of H⁻¹ in the order of elimination, given H⁻¹ of the core (Takahashi, Fagan & Chin 1973).

    With l the j-th column of L over its diagonal and N the rows where it is not 0, all of which come later,

        Z_Nj = −Z_NN l,        Zⱼⱼ = Lⱼⱼ⁻² + lᵀZ_NN l,        Z = H⁻¹,

    and every pair of N is in the pattern of L, as eliminating j has joined them. nan where it is not, because an entry
    of H has vanished by chance. `entries` is room for Z on the pattern of the head, `room` for a column.
    """
    begin, rows, values, inverse = frame.begin, frame.rows, frame.values, frame.inverse
    head = len(begin) - 1
    for j in range(len(inverse) - head):
        diagonal[head + j] = inner[j, j]
    for j in range(head - 1, -1, -1):
        first, count = begin[j], begin[j + 1] - begin[j]
        for a in range(count):
            room[a] = 0.0
        for a in range(count):
            la = values[first + a] * inverse[j]
            at = np.int64(rows[first + a])
            room[a] += _known(begin, rows, entries, diagonal, inner, at, at) * la
            for b in range(a + 1, count):
                lb = values[first + b] * inverse[j]
                joint = _known(begin, rows, entries, diagonal, inner, at, np.int64(rows[first + b]))
                room[a] += joint * lb
                room[b] += joint * la
        total = inverse[j] * inverse[j]
        for a in range(count):
            entries[first + a] = -room[a]
            total += values[first + a] * inverse[j] * room[a]
        diagonal[j] = total
