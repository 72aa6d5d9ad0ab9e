"""What an error or a warning advises is accepted: each refusal of a door, what it says, and the call that follows it."""

import numpy as np
import pytest
import scipy.sparse

import svrhmc
from svrhmc import fit
from svrhmc.estimators import (
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    BayesianPoissonRegression,
    BayesianRegression,
)
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.targets import glm, linear, logistic
from svrhmc.targets.priors import Flat, HalfNormal, Normal

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
        lambda: glm(X, LINE, "gaussian", prior_precision=0, shared_prior=Flat()),
        r"noise_variance=…|normal prior",
        lambda: glm(X, LINE, "gaussian", prior_precision=0, noise_variance=1.0),
        lambda: glm(X, LINE, "gaussian", prior_precision=0, shared_prior=Normal(1.0)),
        lambda: glm(X[:, :1], LINE, "gaussian", prior_precision=0, shared_prior=Flat()),
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


rng = np.random.default_rng(0)
NUMBERS = rng.normal(size=40)
TABLE = {
    "x": NUMBERS,
    "y": rng.normal(size=40),
    "count": rng.poisson(1.5, 40) * (NUMBERS < 1),
    "event": (NUMBERS > 0).astype(int),  # x separates it
    "group": np.where(rng.random(40) < 0.5, "a", "b"),
    "class": rng.choice(["u", "v", "w"], 40),
    "tries": np.full(40, 12),
    "my column": rng.normal(size=40),
}


def table(formula, family=None, change=(), **settings):
    """A quick `fit` on the table with some columns changed."""
    return fit(formula, {**TABLE, **dict(change)}, family, draws=10, **settings)


GAPS = {"x": np.where(np.arange(40) < 2, np.nan, NUMBERS)}
DOORS = [
    advised(lambda: table("y"), "'y ~ age", lambda: table("y ~ x")),
    advised(lambda: table("y ~ age"), "it has 'x', 'y'", lambda: table("y ~ x")),
    advised(
        lambda: table("class ~ x", "gaussian"), "'categorical' takes texts", lambda: table("class ~ x", "categorical")
    ),
    advised(
        lambda: table("class ~ x", "bernoulli"),
        "take 'categorical' for classes",
        lambda: table("class ~ x", "categorical"),
    ),
    advised(
        lambda: table("y ~ x", "poisson"),
        "use 'gaussian' or 'student-t'",
        lambda: table("y ~ x", "gaussian"),
        lambda: table("y ~ x", "student-t"),
    ),
    advised(
        lambda: table("count ~ x", "tweedie"),
        "fit y > 0 by 'bernoulli', and the rows with y > 0 by 'gamma' or 'log-normal'",
        lambda: table("positive ~ x", "bernoulli", {"positive": (TABLE["count"] > 0).astype(int)}),
        lambda: fit("count ~ x", {k: v[TABLE["count"] > 0] for k, v in TABLE.items()}, "gamma", draws=10),
        lambda: fit("count ~ x", {k: v[TABLE["count"] > 0] for k, v in TABLE.items()}, "log-normal", draws=10),
    ),
    advised(
        lambda: table("class ~ x", "ordinal"),
        r"number the classes from the lowest on, .* or say the order: svrhmc.targets.families.ordinal\(levels=",
        lambda: table("place ~ x", "ordinal", {"place": np.unique(TABLE["class"], return_inverse=True)[1]}),
        lambda: table("class ~ x", svrhmc.targets.families.ordinal(levels=["w", "u", "v"])),
    ),
    advised(
        lambda: table("share ~ x", "beta", {"share": np.resize([0.0, 0.2, 0.5], 40)}),
        "fit whether y is 0 or 1 by 'bernoulli' and the other rows by 'beta'",
        lambda: table("edge ~ x", "bernoulli", {"edge": np.resize([1, 0, 0], 40)}),
        lambda: table("share ~ x", "beta", {"share": np.resize([0.3, 0.2, 0.5], 40)}),
    ),
    advised(lambda: table("y ~ x", "cauchy"), "take 'student-t'", lambda: table("y ~ x", "student-t")),
    advised(lambda: table("y ~ x + one", change={"one": np.ones(40)}), "leave it out", lambda: table("y ~ x")),
    advised(lambda: table("y ~ x + again", change={"again": NUMBERS}), "leave one of them out", lambda: table("y ~ x")),
    advised(lambda: table("y ~ x", change=GAPS), "missing='drop'", lambda: table("y ~ x", change=GAPS, missing="drop")),
    advised(
        lambda: table("count ~ x", "binomial"),
        "trials=…",
        lambda: table("count ~ x", "binomial", trials="tries"),
        lambda: table("count ~ x", "binomial", trials=12),
    ),
    advised(
        lambda: table("y ~ x", prior={"sigma": Normal()}),
        "must be HalfNormal.*it may be one of 'log sigma'",
        lambda: table("y ~ x", prior={"sigma": HalfNormal()}),
        lambda: table("y ~ x", prior={"log sigma": Normal()}),
    ),
    advised(
        lambda: table("y ~ x", prior={"z": Normal()}), r"columns \(x\)", lambda: table("y ~ x", prior={"x": Normal()})
    ),
    advised(
        lambda: table("y ~ x", prior=HalfNormal()),
        "parameter of the family, such as 'sigma'",
        lambda: table("y ~ x", prior={"sigma": HalfNormal()}),
    ),
    advised(
        lambda: table("y ~ x", "student-t", noise_variance=1.0),
        "only the family 'gaussian'",
        lambda: table("y ~ x", "gaussian", noise_variance=1.0),
    ),
    advised(
        lambda: table("event ~ x", prior=Flat()),
        "columns 'Intercept', 'x'.*a prior that is not flat, or leave prior out",
        lambda: table("event ~ x", prior=Normal()),
        lambda: table("event ~ x"),
    ),
    advised(
        lambda: table("y ~ x + 1 | group"),
        r"stand in brackets, such as \(1 \| g\)",
        lambda: table("y ~ x + (1 | group)"),
    ),
    advised(
        lambda: table("y ~ ns(x, df=4)"),
        r"write cr\(x, df=…\), natural cubic splines",
        lambda: table("y ~ cr(x, df=4)"),
    ),
    advised(
        lambda: table("y ~ h(x)"),
        r"fit\(…, transforms={'h': …}\)",
        lambda: table("y ~ h(x)", transforms={"h": np.tanh}),
    ),
    advised(
        lambda: table("y ~ my column"),
        "stands between backticks, such as `my column`",
        lambda: table("y ~ `my column`"),
    ),
    advised(lambda: table("y ~ y + x"), "take it out of the formula", lambda: table("y ~ x")),
    advised(lambda: table("y ~ level", change={"level": ["a"] * 40}), "leave it out", lambda: table("y ~ x")),
    advised(lambda: table("y ~ x", change={"x": 1e200 * NUMBERS}), "take another unit", lambda: table("y ~ x")),
    advised(
        lambda: table("count ~ x", "poisson", method="closed-form"),
        "method must be another one",
        lambda: table("count ~ x", "poisson", method="split-hmc"),
    ),
    advised(
        lambda: table("y ~ Intercept", change={"Intercept": NUMBERS}),
        "rename the column",
        lambda: table("y ~ x"),
    ),
    advised(
        lambda: BayesianPoissonRegression().fit(X, [1, -1, 0, 2]),
        "use BayesianRegression",
        lambda: BayesianRegression(draws=10).fit(X, [1, -1, 0, 2]),
    ),
    advised(
        lambda: BayesianRegression(family="gamma").fit(X, COUNTS),
        "must be 'gaussian', 'student-t' or svrhmc.targets.families.student_t",
        lambda: BayesianRegression(family="student-t", draws=10).fit(X, COUNTS),
    ),
    advised(
        lambda: BayesianLogisticRegression(prior=Flat()).fit(X[:, 1:], EVENTS),
        "column 'x0'.*a prior that is not flat, or leave prior out",
        lambda: BayesianLogisticRegression(prior=Normal(), draws=10).fit(X[:, 1:], EVENTS),
        lambda: BayesianLogisticRegression(draws=10).fit(X[:, 1:], EVENTS),
    ),
    advised(
        lambda: BayesianRegression().fit(np.array([["a"], ["b"], ["a"], ["b"]]), COUNTS),
        "OneHotEncoder in a pipeline.*svrhmc.fit",
        lambda: fit("y ~ x", {"x": ["a", "b", "a", "b"], "y": [0.0, 1.0, 0.2, 2.0]}, draws=10),
    ),
]


@pytest.mark.filterwarnings("ignore:The model contradicts")
@pytest.mark.parametrize(("refused", "words", "followed"), [*CASES, *DOORS])
def test_advice_is_accepted(refused, words, followed):
    with pytest.raises(ValueError, match=words):
        refused()
    for call in followed:
        call()


def curved(x, rng):
    return 20 * (x - 0.5) ** 2 + rng.normal(size=len(x))


def test_a_curve_is_advised_in_the_words_of_each_door():
    """The formula's advice is taken literally, for a name between backticks as well, and the misfit is gone."""
    rng = np.random.default_rng(3)
    columns = {"x": rng.random(300), "in m": rng.random(300)}
    y = curved(columns["x"], rng) + curved(columns["in m"], rng)
    for name, quoted in (("x", "x"), ("in m", "`in m`")):
        table, other = {"y": y - curved(columns["in m" if name == "x" else "x"], rng), name: columns[name]}, name
        (misfit,) = (each for each in fit(f"y ~ {quoted}", table, draws=50).misfits if f"along {other}" in each)
        advised = misfit.partition("Try: ")[2].removesuffix(" in the formula.").split(" or ")
        assert advised == [f"s({quoted})", f"bs({quoted}, df=4)"]
        for term in advised:
            assert not [each for each in fit(f"y ~ {term}", table, draws=50).misfits if each.startswith("Pattern")]
    X = columns["x"][:, None]
    one = curved(columns["x"], rng)
    for posterior in (
        BayesianRegression(draws=50).fit(X, one).posterior_,
        svrhmc.fitting.regress(X, one, draws=50),
        svrhmc.sample(glm(np.c_[np.ones(300), X], one, "gaussian", prior_precision=0.01), draws=50),
    ):
        patterns = [each for each in posterior.misfits if each.startswith("Pattern")]
        assert patterns
        assert "formula" not in " ".join(patterns)
        assert "its square" in patterns[-1]
    wider = np.c_[X, X**2]
    assert not BayesianRegression(draws=50).fit(wider, one).posterior_.misfits


def test_a_family_is_advised_by_the_name_that_a_door_has():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(400, 1))
    y = rng.negative_binomial(1, 0.2, 400)
    by_table = fit("y ~ x", {"x": X[:, 0], "y": y}, "poisson", draws=50).misfits
    assert any("family='negative-binomial'" in each for each in by_table)
    by_estimator = BayesianPoissonRegression(draws=50).fit(X, y).posterior_.misfits
    assert any("BayesianNegativeBinomialRegression" in each for each in by_estimator)
    assert not any("family=" in each for each in by_estimator)
    assert BayesianNegativeBinomialRegression(draws=50).fit(X, y).posterior_.misfits == ()
    far = np.r_[X[:, 0], 0.0]
    (said,) = (
        BayesianRegression(draws=50).fit(far[:, None], np.r_[X[:, 0] + rng.normal(size=400), 50.0]).posterior_.misfits
    )
    assert "BayesianRegression(family='student-t')" in said


@pytest.mark.parametrize("door", ["target", "table", "estimator"])
def test_a_prior_that_clashes_is_advised_about_in_the_words_of_the_door(door):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(100, 1))
    y = 5 * X[:, 0] + rng.normal(size=100)
    tight = Normal.with_sd(0.01)
    call = {
        "target": lambda: svrhmc.sample(glm(X, y, "gaussian", prior=tight), draws=50),
        "table": lambda: fit("y ~ x", {"x": X[:, 0], "y": y}, prior=tight, draws=50),
        "estimator": lambda: BayesianRegression(prior=tight, draws=50).fit(X, y),
    }[door]
    with pytest.warns(UserWarning, match="Take a wider prior") as caught:
        call()
    said = " ".join(str(warning.message) for warning in caught)
    assert ("use svrhmc.fit" in said) == (door == "target")
    assert ("leave it out" in said) == (door != "target")


def test_a_heavy_tail_that_pulls_little_is_no_clash():
    """A Cauchy prior of the same width moves a clear effect by a hundredth of an sd; a normal one would by hundreds."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=200)
    y = 5 * x + rng.normal(size=200)
    posterior = fit("y ~ x", {"x": x, "y": y}, prior=svrhmc.targets.priors.StudentT(1, 0.01), draws=100)
    assert posterior.clashes == ()
    assert abs(posterior.prior.shift[1]) < 0.1
