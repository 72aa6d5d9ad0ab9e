"""Effective draws, R-hat and standard errors are those of ArviZ."""

import arviz
import numpy as np
import pytest

from svrhmc import diagnostics
from svrhmc.diagnostics import bulk_ess, ess, r_hat, rank_r_hat, standard_error, tail_ess

AGREE = 1e-9


def chains_of(correlations, shape, seed=0):
    """AR(1) chains (chain, draw, quantity) with the correlations given, from their stationary law."""
    rng = np.random.default_rng(seed)
    rho = np.asarray(correlations, float)
    x = np.empty((*shape, len(rho)))
    x[:, 0] = rng.normal(size=(shape[0], len(rho)))
    for k in range(1, shape[1]):
        x[:, k] = rho * x[:, k - 1] + np.sqrt(1 - rho**2) * rng.normal(size=(shape[0], len(rho)))
    return x


def by_arviz(function, draws, **settings):
    return np.array(
        [np.asarray(function(np.ascontiguousarray(column), **settings)).item() for column in draws.transpose(2, 0, 1)]
    )


@pytest.mark.parametrize("shape", [(4, 4), (4, 5), (1, 10), (2, 11), (4, 100), (3, 251), (4, 1000), (2, 4097)])
def test_effective_draws_are_those_of_arviz(shape):
    draws = chains_of([0.99, 0.9, 0.5, 0.0, -0.3, -0.9, -0.99], shape, seed=shape[1])
    draws[:, :, 0] += 3 * np.arange(shape[0])[:, None]  # chains that have not met
    for x in (draws, draws**2, 1e-6 * draws):
        assert ess(x) == pytest.approx(by_arviz(arviz.ess, x, method="mean"), rel=AGREE)


@pytest.mark.parametrize("shape", [(4, 4), (4, 5), (2, 11), (4, 1000), (3, 251)])
def test_r_hat_is_that_of_arviz(shape):
    draws = chains_of([0.99, 0.5, 0.0, -0.9], shape, seed=shape[1])
    draws[:, :, 2] += np.arange(shape[0])[:, None]
    assert r_hat(draws) == pytest.approx(by_arviz(arviz.rhat, draws, method="split"), rel=AGREE)


@pytest.mark.parametrize("shape", [(4, 5), (1, 11), (4, 1000)])
def test_standard_errors_are_those_of_arviz(shape):
    draws = chains_of([0.9, 0.0, -0.9], shape, seed=shape[1])
    spread = draws.reshape(-1, 3).std(axis=0, ddof=1)
    expected = spread / np.sqrt(by_arviz(arviz.ess, draws, method="mean"))
    assert standard_error(draws) == pytest.approx(expected, rel=AGREE)
    if shape[0] > 1:
        assert standard_error(draws) == pytest.approx(by_arviz(arviz.mcse, draws, method="mean"), rel=AGREE)


@pytest.mark.parametrize("long", [1, 1 << 30])  # chains one by one, and together
@pytest.mark.parametrize("shape", [(4, 4), (4, 5), (2, 11), (3, 251), (4, 1000)])
def test_ranks_and_tails_are_those_of_arviz(shape, long, monkeypatch):
    monkeypatch.setattr(diagnostics, "_LONG", long)
    draws = chains_of([0.99, 0.5, 0.0, -0.9], shape, seed=shape[1])
    draws[:, :, 0] += 3 * np.arange(shape[0])[:, None]  # chains that have not met
    draws[:, :, 2] = draws[:, :, 2].round(1)  # draws that are equal
    before = draws.copy()
    assert bulk_ess(draws) == pytest.approx(by_arviz(arviz.ess, draws), rel=AGREE)
    assert tail_ess(draws) == pytest.approx(by_arviz(arviz.ess, draws, method="tail", prob=(0.05, 0.95)), rel=AGREE)
    assert rank_r_hat(draws) == pytest.approx(by_arviz(arviz.rhat, draws), rel=AGREE)
    assert ess(draws) == pytest.approx(by_arviz(arviz.ess, draws, method="mean"), rel=AGREE)
    assert (draws == before).all()


def test_effective_draws_of_a_known_correlation():
    draws = chains_of([0.8, 0.0, -0.5], (8, 20_000))
    assert ess(draws) / 160_000 == pytest.approx([1 / 9, 1, 3], rel=0.15)
    assert standard_error(draws) * np.sqrt(160_000) == pytest.approx([3, 1, 3**-0.5], rel=0.08)


def test_draws_that_never_move_count_in_full_and_have_no_error():
    draws = np.full((4, 50, 2), 7.0)
    draws[:, :, 1] = np.random.default_rng(0).normal(size=(4, 50))
    assert ess(draws)[0] == 200 == by_arviz(arviz.ess, draws[:, :, :1], method="mean")[0]
    assert standard_error(draws)[0] == 0
    assert np.isfinite(r_hat(draws)).all()
    alone = [f(draws[:, :, 1:])[0] for f in (ess, r_hat, standard_error)]
    assert [f(draws)[1] for f in (ess, r_hat, standard_error)] == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("draws", [4, 5, 6, 7, 8, 9, 11, 14])
def test_effective_draws_of_the_shortest_chains_are_those_of_arviz(draws):
    x = np.random.default_rng(draws).normal(size=(3, draws, 200))
    assert ess(x) == pytest.approx(by_arviz(arviz.ess, x, method="mean"), rel=AGREE)


def test_where_the_draws_lie_does_not_matter():
    draws = chains_of([0.9, 0.0, -0.9], (4, 101))
    assert ess(1e6 + draws) == pytest.approx(ess(draws), rel=1e-6)
    assert r_hat(1e6 + draws) == pytest.approx(r_hat(draws), rel=1e-9)
