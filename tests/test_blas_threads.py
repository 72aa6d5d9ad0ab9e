"""Linear algebra has one thread where threads of ours share the rows, and as many as before afterwards."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from svrhmc.core.machine import NARROW, blas_for, one_blas_thread
from svrhmc.rows import passes


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    """Whatever the environment of the tests says."""
    with one_blas_thread():
        pass  # the libraries are loaded now
    with threadpool_limits(2, "blas"):
        yield


def test_one_thread_within_and_as_many_as_before_afterwards():
    assert threads() == {2}
    with one_blas_thread():
        assert threads() == {1}
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {2}


def test_an_error_lifts_the_limit():
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        1 / 0  # noqa: B018
    assert threads() == {2}


def test_other_threads_have_the_limit_of_the_main_thread_and_change_nothing():
    def work(_):
        before = threads()
        with one_blas_thread():
            return before, threads()

    with ThreadPoolExecutor(3) as pool:
        with one_blas_thread():
            assert list(pool.map(work, range(3))) == [({1}, {1})] * 3
        assert list(pool.map(work, range(3))) == [({2}, {2})] * 3
    assert threads() == {2}


def test_wide_matrices_keep_the_threads_of_blas():
    with blas_for(NARROW + 1):
        assert threads() == {2}
    with blas_for(NARROW):
        assert threads() == {1}


def test_no_digit_of_a_gram_depends_on_the_threads_of_blas():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(20_000, 100)), rng.random(20_000)
    several = passes.grams(X, [w])
    with threadpool_limits(1, "blas"):
        one = passes.grams(X, [w])
    assert np.array_equal(several, one)
    np.testing.assert_allclose(one[0], (X * w[:, None]).T @ X, rtol=1e-12, atol=1e-9)
