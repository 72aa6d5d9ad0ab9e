"""Sparse rows are looked at before compiled code trusts them."""

import numpy as np
import pytest
from scipy import sparse

import svrhmc
from svrhmc.rows import csr as door
from svrhmc.targets import linear, logistic

N, DIM = 40, 6


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(N, DIM))
    dense[rng.random(dense.shape) < 0.5] = 0
    return sparse.csr_matrix(dense)


def y(n=N):
    return np.arange(n) % 2


def with_arrays(X, **arrays):
    """As a user may have changed it, behind scipy's back."""
    made = X.copy()
    for name, array in arrays.items():
        setattr(made, name, array)
    return made


def test_columns_counted_from_1_are_refused_with_the_remedy():
    rng = np.random.default_rng(1)
    n, dim = 300, 2500
    columns = np.sort(np.array([rng.choice(dim, 8, replace=False) for _ in range(n)]), axis=1)
    columns[7, -1] = dim - 1
    whole = sparse.csr_matrix((rng.normal(size=8 * n), columns.ravel(), np.arange(0, 8 * n + 1, 8)), shape=(n, dim))
    wrong = with_arrays(whole, indices=whole.indices + 1)
    with pytest.raises(
        ValueError,
        match=r"columns from 0 to 2499; got column 2500 in row 7: if columns are counted from 1, use indices - 1",
    ):
        logistic(wrong, y(n))
    made = sparse.csr_matrix((whole.data, whole.indices + 1, whole.indptr), shape=(n, dim))
    with pytest.raises(ValueError, match="counted from 1"):
        linear(made, np.zeros(n))


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: {"indices": X.indices - 1}, r"columns from 0 to 5; got column -1 in row \d+: they count from 0"),
        (lambda X: {"indices": X.indices + 10**9}, r"columns from 0 to 5; got column 10000000\d\d in row 0"),
        (lambda X: {"indptr": X.indptr[:-1]}, r"indptr of n \+ 1 = 41 numbers; got 40"),
        (lambda X: {"indptr": X.indptr + 1}, "indptr that begins with 0; got 1"),
        (lambda X: {"indptr": np.r_[0, X.indptr[-1], X.indptr[2:]]}, r"indptr that never falls; got \d+ and then \d+ in row 1"),
        (lambda X: {"indptr": np.r_[X.indptr[:-1], X.indptr[-1] + 5]}, r"indptr that ends with at most \d+, the entries there are"),
        (lambda X: {"data": X.data[:-3]}, r"indptr that ends with at most \d+"),
        (lambda X: {"indices": X.indices.astype(float)}, "whole numbers as indices; got dtype float64"),
        (lambda X: {"indices": X.indices[:, None]}, "one array indices"),
        (lambda X: {"data": np.r_[X.data[:-1], np.nan]}, r"X must be finite everywhere; got nan at row \d+, column \d"),
    ],
)  # fmt: skip
def test_what_leads_out_of_the_arrays_is_refused(X, kind, change, message, monkeypatch):
    monkeypatch.setattr(door, "_BLOCK", 7)  # many pieces
    changed = {name: array.astype(kind) if name == "indptr" else array for name, array in change(X).items()}
    with pytest.raises(ValueError, match=message):
        logistic(with_arrays(X, **changed), y())


def test_a_matrix_that_is_sound_is_kept_as_it_is(X):
    assert logistic(X, y()).rows.X is X
    wide = with_arrays(X, indices=X.indices.astype(np.int64), indptr=X.indptr.astype(np.int64))
    assert logistic(wide, y()).gradient(np.ones(DIM)) == pytest.approx(logistic(X, y()).gradient(np.ones(DIM)), abs=0)


@pytest.mark.parametrize("block", [3, 1 << 22])
def test_columns_out_of_order_or_given_twice_are_put_right_on_a_copy(X, block, monkeypatch):
    monkeypatch.setattr(door, "_BLOCK", block)
    coo = X.tocoo()
    order = np.lexsort((-coo.col, coo.row))  # each row from right to left
    halves = [np.repeat(a[order], 2) for a in (coo.data / 2, coo.col)]
    twice = sparse.csr_matrix(X.shape)
    twice.data, twice.indices, twice.indptr = halves[0], halves[1].astype(np.int32), 2 * X.indptr
    twice.has_canonical_format = twice.has_sorted_indices = True  # which is not true
    before = twice.data.copy(), twice.indices.copy()
    target = logistic(twice, y())
    assert (twice.data == before[0]).all()
    assert (twice.indices == before[1]).all()
    assert (target.rows.X.toarray() == X.toarray()).all()
    assert (np.diff(target.rows.X.indices)[np.setdiff1d(np.arange(X.nnz - 1), X.indptr[1:] - 1)] > 0).all()
    runs = [svrhmc.svr_hmc(0.05, batch_size=3).run(t, 30, seed=1).draws for t in (target, logistic(X, y()))]
    assert (runs[0] == runs[1]).all()


def test_entries_beyond_the_last_row_are_left_out(X):
    longer = with_arrays(X, data=np.r_[X.data, np.nan, 3.0], indices=np.r_[X.indices, 99, -1].astype(np.int32))
    assert (
        linear(longer, np.zeros(N)).rows.gram_diagonal(np.ones(N))
        == linear(X, np.zeros(N)).rows.gram_diagonal(np.ones(N))
    ).all()


def test_memory_maps_are_looked_at_too_and_stay_on_the_disk(X, tmp_path):
    arrays = {}
    for name in ("data", "indices", "indptr"):
        np.save(tmp_path / f"{name}.npy", getattr(X, name))
        arrays[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    mapped = with_arrays(X, **arrays)
    assert isinstance(logistic(mapped, y()).rows.X.data, np.memmap)
    np.save(tmp_path / "indices.npy", X.indices + 1)
    with pytest.raises(ValueError, match="counted from 1"):
        logistic(with_arrays(X, **{**arrays, "indices": np.load(tmp_path / "indices.npy", mmap_mode="r")}), y())


def test_empty_rows_and_no_entries_at_all_are_sound():
    empty = sparse.csr_matrix((5, 3))
    assert (logistic(empty, y(5)).gradient(np.ones(3)) == 1).all()
    some = sparse.csr_matrix(([1.0, 2.0], [2, 0], [0, 0, 1, 1, 2, 2]), shape=(5, 3))
    assert logistic(some, y(5)).rows.X is some
