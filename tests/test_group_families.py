"""Every family with every kind of group term, from a formula: it runs, its names are right, and what follows works."""

import numpy as np
import pytest
from scipy.special import expit

import svrhmc

N, LEVELS = 80, 5
RNG = np.random.default_rng(8)
X, G, H = RNG.normal(size=N), RNG.permutation(np.arange(N) % LEVELS), RNG.permutation(np.arange(N) % 4)
ETA = 0.3 + 0.4 * X + RNG.normal(0, 0.7, LEVELS)[G]
TABLE = {
    "x": X,
    "g": [f"g{k}" for k in G],
    "h": [f"h{k}" for k in H],
    "trials": RNG.integers(1, 6, N),
    "bernoulli": RNG.random(N) < expit(ETA),
    "poisson": RNG.poisson(np.exp(ETA / 2)),
    "negative-binomial": RNG.negative_binomial(3, 3 / (3 + np.exp(ETA / 2))),
    "gaussian": ETA + RNG.normal(size=N),
    "student-t": ETA + 0.7 * RNG.standard_t(4, N),
    "gamma": RNG.gamma(2.0, np.exp(ETA / 2) / 2),
    "ordinal": np.digitize(ETA + RNG.logistic(size=N), [-0.5, 1.0]),
}
TABLE["binomial"] = RNG.binomial(TABLE["trials"], expit(ETA))
FAMILIES = [name for name in TABLE if name not in ("x", "g", "h", "trials")]
TERMS = {
    "(1 | g)": ["sd(1 | g)"],
    "x + (x | g)": ["sd(1 | g)", "sd(x | g)", "cor(1, x | g)"],
    "x + (1 | g) + (1 | h)": ["sd(1 | g)", "sd(1 | h)"],
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.ordinary(lambda family, terms: terms == "(1 | g)" or family in ("bernoulli", "gaussian"))
@pytest.mark.untraced
def test_every_family_takes_every_kind_of_term(family, terms):
    trials = {"trials": "trials"} if family == "binomial" else {}
    posterior = svrhmc.fit(f"`{family}` ~ {terms}", TABLE, family, draws=40, budget_seconds=20, **trials)
    assert list(posterior.names[-posterior.group_scales :]) == TERMS[terms]
    assert np.isfinite(posterior.trace.draws).all()
    assert (posterior.mean[list(map(posterior.names.index, TERMS[terms]))[:1]] > 0).all()
    new = {"x": [0.0, 0.0], "g": ["g1", "other"], "h": ["h1", "h1"], "trials": [2, 2]}
    assert np.isfinite(posterior.predict(new).mean).all()
    assert len(posterior.loo("g").pointwise) == LEVELS


def test_thresholds_stand_in_the_place_of_columns(tmp_path):
    """An ordinal model with group terms alone: what a user reads of it, and against frequencies by level."""
    posterior = svrhmc.fit("ordinal ~ (1 | g)", TABLE, "ordinal", draws=400)
    assert posterior.names == ("threshold 0|1", "threshold 1|2", "sd(1 | g)")
    chances = posterior.predict({"g": [f"g{k}" for k in range(LEVELS)]}).mean
    assert np.allclose(chances.sum(axis=1), 1.0)
    overall = np.bincount(TABLE["ordinal"]) / N
    assert np.allclose(chances.mean(axis=0), overall, atol=0.05)
    posterior.save(tmp_path / "o.posterior")
    again = svrhmc.Posterior.load(tmp_path / "o.posterior")
    assert np.allclose(again.predict({"g": ["g1"]}).mean, chances[1])
    assert posterior.to_arviz(log_likelihood=True) is not None
    with pytest.raises(svrhmc.core.errors.DataError, match="needs a column that may explain"):
        svrhmc.fit("ordinal ~ 1", TABLE, "ordinal")
