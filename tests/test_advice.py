"""What an error advises is accepted: each refusal of a door of `svrhmc.targets`, what it says, and the call that follows
it.
"""

import numpy as np
import pytest
import scipy.sparse

import svrhmc
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.targets import glm, linear, logistic
from svrhmc.targets.priors import Normal

X = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
LINE = X @ [0.5, 2.0]  # no residuals
TWICE = np.c_[X[:, 1], 2 * X[:, 1]]
TEXTS = ["a", "b", "c", "a"]
EVENTS, COUNTS = [0, 0, 1, 1], [0, 1, 0, 2]
TALL = np.array([[30.0, 1.0], [-20.0, 1.0], [25.0, 1.0]])


def advised(refused, words, *followed):
    return pytest.param(refused, words, followed, id=words[:40])


CASES = [
    advised(
        lambda: glm(X, LINE, "gaussian", prior_precision=0, shared_prior=svrhmc.targets.priors.Flat()),
        r"noise_variance=…|normal prior",
        lambda: glm(X, LINE, "gaussian", prior_precision=0, noise_variance=1.0),
        lambda: glm(X, LINE, "gaussian", prior_precision=0, shared_prior=Normal(1.0)),
        lambda: glm(X[:, :1], LINE, "gaussian", prior_precision=0, shared_prior=svrhmc.targets.priors.Flat()),
    ),
    advised(
        lambda: glm(X, [1, -1, 0, 2], "poisson"),
        "use 'gaussian' or 'student-t'",
        lambda: glm(X, [1, -1, 0, 2], "gaussian"),
        lambda: glm(X, [1, -1, 0, 2], "student-t"),
    ),
    advised(
        lambda: glm(X, [1, 1.5, 0.5, 2], "poisson"),
        "use 'gaussian' or 'gamma'",
        lambda: glm(X, [1, 1.5, 0.5, 2], "gaussian"),
        lambda: glm(X, [1, 1.5, 0.5, 2], "gamma"),
    ),
    advised(lambda: glm(X, TEXTS), "use 'categorical'", lambda: glm(X, TEXTS, "categorical")),
    advised(lambda: glm(X, COUNTS, "binomial"), "trials=…", lambda: glm(X, COUNTS, "binomial", trials=3)),
    advised(
        lambda: linear(TWICE, COUNTS, prior_precision=0),
        r"prior_precision must be positive|prior_precision > 0",
        lambda: linear(TWICE, COUNTS, prior_precision=0.5),
        lambda: linear(TWICE[:, :1], COUNTS, prior_precision=0),
    ),
    advised(
        lambda: logistic(X, EVENTS, prior_precision=0),
        "prior_precision > 0",
        lambda: logistic(X, EVENTS, prior_precision=0.1),
    ),
    advised(
        lambda: logistic(scipy.sparse.csc_matrix(X), EVENTS),
        r"X\.tocsr\(\)",
        lambda: logistic(scipy.sparse.csc_matrix(X).tocsr(), EVENTS),
    ),
    advised(
        lambda: glm(X, COUNTS, "poisson", weights=[1, -1, 0, 1]),
        "leave out what shall not count, or give it 0",
        lambda: glm(X, COUNTS, "poisson", weights=[1, 0, 0, 1]),
    ),
    advised(
        lambda: glm(X, COUNTS, "poisson", weights=[1, 1e-40, 1, 1]),
        "give it 0",
        lambda: glm(X, COUNTS, "poisson", weights=[1, 0, 1, 1]),
    ),
    advised(
        lambda: glm(X, COUNTS, "poisson", offset=[0, -np.inf, 0, 0]),
        "leave such rows out",
        lambda: glm(X[[0, 2, 3]], [0, 0, 2], "poisson", offset=[0, 0, 0]),
    ),
    advised(
        lambda: glm(X, TEXTS, "categorical", offset=np.zeros(4)),
        "leave it out",
        lambda: glm(X, TEXTS, "categorical"),
    ),
    advised(
        lambda: glm(X, COUNTS, "poisson", noise_variance=1.0),
        "only the family 'gaussian'",
        lambda: glm(X, COUNTS, "gaussian", noise_variance=1.0),
    ),
    advised(
        lambda: SubsampledMH(radius=60.0).run(glm(TALL, [1, 0, 2], "poisson"), 10),
        "use SplitHMC",
        lambda: SplitHMC().run(glm(TALL, [1, 0, 2], "poisson"), 10),
    ),
]


@pytest.mark.parametrize(("refused", "words", "followed"), CASES)
def test_advice_is_accepted(refused, words, followed):
    with pytest.raises(ValueError, match=words):
        refused()
    for call in followed:
        call()
