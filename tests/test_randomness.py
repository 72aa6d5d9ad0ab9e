from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from svrhmc.core.randomness import Purpose, Stream, alias_indices, alias_table, scale_words, threefry2x32


def word(value):
    return np.array([value], np.uint32)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_meets_the_known_answers_of_random123(counter, key, expected):
    got = threefry2x32((word(key[0]), word(key[1])), (word(counter[0]), word(counter[1])))
    assert tuple(int(w[0]) for w in got) == expected


def test_the_stream_is_fixed_for_ever():
    # values of the first release: a change here changes every user's draws and belongs in the changelog
    stream = Stream(2018, np.array([3]))
    assert stream.normals(5, 3)[0] == pytest.approx(FIRST_NORMALS, rel=1e-14)
    assert stream.indices(5, 4, 1000, True)[0].tolist() == FIRST_WITH
    assert stream.indices(5, 4, 1000, False)[0].tolist() == FIRST_WITHOUT


FIRST_NORMALS = [-0.1715643629327119, 1.1784084105409502, -0.3280640345475558]
FIRST_WITH = [925, 371, 386, 956]
FIRST_WITHOUT = [922, 370, 385, 956]


def test_a_normal_is_the_inverse_law_of_its_64_bits():
    stream = Stream(1, np.array([0]))
    coarse, fine = (stream.words(7, purpose, 1) for purpose in (Purpose.NOISE, Purpose.NOISE_FINE))
    for k, z in enumerate(stream.normals(7, 2)[0]):
        high, low = int(coarse[k][0, 0]), int(fine[k][0, 0])
        p = ((high & 0x7FFFFFFF) * 2**32 + low + 0.5) / 2**64
        assert z == pytest.approx(float(ndtri(p)) * (-1 if high >> 31 else 1), rel=1e-14)


def test_normals_are_standard_normal_and_uncorrelated():
    z = Stream(3, np.arange(2000)).normals(0, 500)
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-3
    assert abs(np.mean(z**4) - 3) < 4.5 * np.sqrt(96 / z.size)
    later = Stream(3, np.arange(2000)).normals(1, 500)
    for other in (later, np.roll(z, 1, axis=0), np.roll(z, 1, axis=1)):
        assert abs(np.mean(z * other)) < 4.5 / np.sqrt(z.size)


def test_every_part_of_the_counter_changes_the_words():
    base = Stream(1, np.array([0]))
    words = {tuple(int(w) for w in base.normals(s, 1)[0].view(np.uint64)) for s in (0, 1, 2**32, 2**32 + 1, 2**40)}
    assert len(words) == 5
    seeds = {float(Stream(seed, np.array([c])).normals(0, 1)[0, 0]) for seed in (0, 1, 2**32, 2**63) for c in (0, 1)}
    assert len(seeds) == 8
    purposes = {float(base.normals(0, 1, a, b)[0, 0]) for a in Purpose for b in Purpose}
    assert len(purposes) == len(Purpose) ** 2


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 10**9, 2**32 - 1, 2**32])
def test_indices_are_the_exact_product_of_64_bits(bound):
    w0, w1 = (w.astype(np.uint64) for w in Stream(5, np.array([0])).words(0, Purpose.BATCH, 64))
    w0[0, 0] = w1[0, 0] = 2**32 - 1
    w0[0, 1] = w1[0, 1] = 0
    expected = [(int(a) * 2**32 + int(b)) * bound >> 64 for a, b in zip(w0[0], w1[0], strict=True)]
    assert scale_words(w0, w1, np.uint64(bound))[0][0].tolist() == expected


def test_indices_with_replacement_are_uniform():
    drawn = Stream(6, np.arange(1000)).indices(0, 70, 7, True)
    assert stats.chisquare(np.bincount(drawn.ravel(), minlength=7)).pvalue > 1e-3


@pytest.mark.parametrize(("n", "size"), [(5, 1), (5, 2), (5, 3), (6, 4), (4, 4)])
def test_sets_without_replacement_are_uniform_over_all_subsets(n, size):
    drawn = np.sort(Stream(8, np.arange(20_000)).indices(2, size, n, False), axis=1)
    places = {subset: k for k, subset in enumerate(combinations(range(n), size))}
    counts = np.bincount([places[tuple(row)] for row in drawn.tolist()], minlength=len(places))
    assert counts.sum() == 20_000
    assert len(places) == 1 or stats.chisquare(counts).pvalue > 1e-3


def test_a_seed_is_a_64_bit_number():
    with pytest.raises(ValueError, match=r"seed must be a whole number from 0 to 18446744073709551615; got -1\."):
        Stream(-1, np.array([0]))


@pytest.mark.parametrize("weights", [[1.0], [1.0, 2.0, 5.0], [0.0, 3.0, 0.0, 1.0], np.arange(1.0, 301.0) ** 3])
def test_weighted_rows_are_those_of_the_alias_table(weights):
    table = alias_table(weights)
    stream = Stream(3, np.arange(50))
    rows = stream.weighted_indices(7, 400, table.threshold, table.alias)
    assert (rows == alias_indices(*stream.words(7, Purpose.BATCH, 400), table.threshold, table.alias)).all()
    p = np.asarray(weights) / np.sum(weights)
    assert table.probabilities == pytest.approx(p, abs=1e-9)
    seen = np.bincount(rows.ravel(), minlength=len(p))
    assert (seen[p == 0] == 0).all()
    often = (20_000 * p > 20) & (p < 1)
    z = (seen - 20_000 * p)[often] / np.sqrt(20_000 * p * (1 - p))[often]
    assert not often.any() or np.abs(z).max() < 4.5
    if len(p) == 3:
        assert np.abs((seen - 20_000 / 3) / np.sqrt(20_000 * p * (1 - p))).max() > 9  # even rows they are not


def test_even_weights_draw_the_rows_of_an_even_batch():
    table, stream = alias_table(np.ones(37)), Stream(5, np.arange(4))
    assert (stream.weighted_indices(2, 100, table.threshold, table.alias) == stream.indices(2, 100, 37, True)).all()
