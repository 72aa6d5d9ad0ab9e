"""The random words of `svrhmc.core.randomness`, compiled: Threefry-2x32-20, uniforms, and rows drawn from words."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from svrhmc.kernels.compiling import INLINE, PLAIN, one_copy, wide_vectors

_TURNS = (13, 15, 26, 6, 17, 29, 16, 24)


@intrinsic
def threefry(context, k0, k1, c0, c1):
    """Threefry-2x32-20 on uint32; see `svrhmc.core.randomness`."""

    def generate(context, builder, signature, arguments):
        word = ir.IntType(32)
        k0, k1, x0, x1 = arguments
        keys = k0, k1, builder.xor(builder.xor(k0, k1), ir.Constant(word, 0x1BD11BDA))
        x0, x1 = builder.add(x0, k0), builder.add(x1, k1)
        for turn in range(20):
            left = _TURNS[turn % 8]
            x0 = builder.add(x0, x1)
            high, low = builder.shl(x1, ir.Constant(word, left)), builder.lshr(x1, ir.Constant(word, 32 - left))
            x1 = builder.xor(builder.or_(high, low), x0)
            if turn % 4 == 3:
                count = turn // 4 + 1
                x0 = builder.add(x0, keys[count % 3])
                x1 = builder.add(builder.add(x1, keys[(count + 1) % 3]), ir.Constant(word, count))
        return context.make_tuple(builder, signature.return_type, (x0, x1))

    word = types.uint32
    return types.UniTuple(word, 2)(word, word, word, word), generate


@njit(**PLAIN)
def random_words(k0, k1, base, count, steps, slots, words, row):
    """Words of many blocks of one chain, in two rows of `words`: counters (base + steps[i], slots[i])."""
    wide_vectors()
    w0, w1 = words[row], words[row + 1]
    for i in range(count):
        w0[i], w1[i] = threefry(k0, k1, np.uint32(base + steps[i]), slots[i])


@njit(**INLINE)
def uniform(w0, w1):
    """52 bits and a half, in (0, 1): with one bit more the largest would round to 1."""
    bits = (np.uint64(w0) << np.uint64(20)) | (np.uint64(w1) >> np.uint64(12))
    return (np.float64(np.int64(bits)) + 0.5) * 2.0**-52


@njit(**INLINE)
def uniform_of(k0, k1, step, slot):
    """The uniform of one block."""
    w0, w1 = threefry(k0, k1, np.uint32(step & 0xFFFFFFFF), np.uint32(slot))
    return uniform(w0, w1)


@njit(**INLINE)
def _below(w0, w1, bound):
    high = np.uint64(w0) * np.uint64(bound)
    low = (np.uint64(w1) * np.uint64(bound)) >> np.uint64(32)
    return np.int64((high + low) >> np.uint64(32))


@njit(**PLAIN)
def draw_weighted(w0, w1, threshold, alias, out):
    """Row numbers from random words, as `randomness.Stream.weighted` defines them."""
    one_copy()
    bound = np.uint64(len(alias))
    for k in range(len(out)):
        product = np.uint64(w0[k]) * bound + ((np.uint64(w1[k]) * bound) >> np.uint64(32))
        bucket = np.int64(product >> np.uint64(32))
        rest = product & np.uint64(0xFFFFFFFF)
        out[k] = bucket if rest < np.uint64(threshold[bucket]) else alias[bucket]


@njit(**PLAIN)
def draw_rows(w0, w1, n, replacement, out, seen):
    """Row numbers from random words, as `randomness.Stream.indices` defines them."""
    one_copy()
    count = len(out)
    if replacement:
        for k in range(count):
            out[k] = _below(w0[k], w1[k], n)
        return
    mask = len(seen) - 1
    seen[:] = -1
    first = n - count
    for k in range(count):
        pick = _below(w0[k], w1[k], first + k + 1)
        place = _place(pick, mask, seen)
        if seen[place] == pick:
            pick = first + k  # the newest possible number, which cannot have been taken
            place = _place(pick, mask, seen)
        seen[place] = pick
        out[k] = pick


@njit(**INLINE)
def _place(pick, mask, seen):
    """Where a number stands in the hash table, or would."""
    place = (pick * 0x9E3779B1) & mask
    while seen[place] >= 0 and seen[place] != pick:
        place = (place + 1) & mask
    return place
