"""Rows that say nothing, or next to nothing: zeros alone, a column of zeros, one row, one row repeated, one label."""

import numpy as np
import pytest
import scipy.sparse

import svrhmc
from svrhmc.data import from_arrays

LABELS = np.array([1.0, 0.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("family", "stored"),
    [
        ("bernoulli", np.asarray),
        ("poisson", np.asarray),
        ("bernoulli", scipy.sparse.csr_matrix),
        pytest.param("poisson", scipy.sparse.csr_matrix, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("method", [None, "split-hmc", "subsampled-mh"])
def test_the_posterior_of_rows_of_zeros_is_the_prior(family, stored, method):
    target = svrhmc.targets.glm(stored(np.zeros((5, 2))), LABELS, family, prior_precision=4.0, prior_mean=0.5)
    posterior = svrhmc.sample(target, 400, method=method)
    assert posterior.certificate.verdict == "exact"
    assert np.allclose(posterior.mean, 0.5, atol=1e-6)
    assert np.allclose(posterior.sd, 0.5, atol=1e-6)


def test_rows_of_zeros_in_partitions_are_refused_in_words():
    target = svrhmc.targets.glm(from_arrays(np.zeros((5, 2)), LABELS, partitions=2), family="poisson")
    with pytest.raises(svrhmc.DataError, match="zeros in all columns"):
        svrhmc.sample(target, 100)


@pytest.mark.parametrize("method", ["split-hmc", "subsampled-mh"])
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.c_[np.ones(5), np.zeros(5)], LABELS),
        (np.array([[1.0, 2.0]]), [1.0]),
        (np.ones((6, 2)), [1, 0, 1, 1, 0, 1]),
        (np.c_[np.ones(6), np.arange(6.0)], np.ones(6)),
    ],
    ids=["a column of zeros", "one row", "one row repeated", "one label"],
)
def test_rows_that_say_little_are_sampled(X, y, method):
    posterior = svrhmc.sample(svrhmc.targets.logistic(X, y), 400, method=method)
    stays = method == "subsampled-mh" and len(set(y)) == 1 and len(y) > 1  # in a tail that its proposals do not have
    assert posterior.certificate.verdict == ("undecided" if stays else "exact")
    assert (posterior.sd <= 1.001).all()
