"""`fit`, `regress`, the estimators and the report, on odd tables."""

import tempfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

import svrhmc
from svrhmc import estimators, fitting
from svrhmc.tables import designed, split_times
from svrhmc.targets import Group, Smooth, priors

from .. import inputs
from ..judge import FailureError, RefusedError, agree, ask, holds
from ..registry import case
from .targets import FAMILIES, is_plain

NAMES = (
    "a",
    "b",
    "a b",
    "ä",
    "🙂",
    "1",
    "class",
    "Intercept",
    "log sigma",
    "y~",
    "C(a)",
    "`",
    "x:y",
    "",
    " ",
    "a.b",
    "np",
    "lambda",
    "None",
    "<b>",
    "a\nb",
    "%s",
)
FORMULAS = ("y ~ .", "y ~ a", "y ~ a + b", "y ~ 0 + a", "y ~ 1", "y ~ 0", "a ~ y", "y ~ C(a)", "y ~ a:b", "y ~ a*b", "y ~ np.log(a)", "y ~ a - 1", "y~`a b`", "y", "", "~", "y ~", "y ~ poly(a, 2)", "y ~ z",
            "y ~ a + a", "y ~ (a", "y ~ a ** 2", "y ~ I(a)", "y ~ {a + 1}", "y ~ 'a'", "y ~ a | b", "y ~ __import__('os')", "y ~ bs(a, df=4)", "y ~ scale(a)", "y ~ y", "log(y) ~ a", "y ~ a +", "ä ~ b", "y ~ 🙂", "y ~ a/b", "y ~ -1", "y ~ 2", "y ~ a^2", "y ~ (a+b)**3")  # fmt: skip


@st.composite
def columns(draw, n, name="x"):
    """A column of some kind, as plain data with its kind."""
    kind = draw(
        st.sampled_from(
            ["numbers"] * 5
            + [
                "whole",
                "bools",
                "texts",
                "texts",
                "two",
                "constant",
                "missing",
                "none",
                "mixed",
                "huge",
                "dates",
                "objects",
                "short",
                "nested",
                "one text",
                "inf",
                "categories",
            ]
        )
    )
    numbers = draw(inputs.numbers(n, inputs.plain))
    if kind == "whole":
        return kind, tuple(int(each) for each in numbers)
    if kind == "bools":
        return kind, tuple(each > 0 for each in numbers)
    if kind in ("texts", "categories"):
        return kind, tuple(
            draw(st.sampled_from(["u", "v", "ü", "", " ", "0", "nan", "<script>", "🙂"])) for _ in range(n)
        )
    if kind == "two":
        return kind, tuple("yes" if each > 0 else "no" for each in numbers)
    if kind == "constant":
        return kind, (3.0,) * n
    if kind == "missing":
        return kind, (float("nan"), *numbers[1:]) if n else ()
    if kind == "none":
        return kind, (None, *numbers[1:]) if n else ()
    if kind == "mixed":
        return kind, ("a", *numbers[1:]) if n else ()
    if kind == "huge":
        return kind, draw(inputs.numbers(n, inputs.finite))
    if kind == "inf":
        return kind, (float("inf"), *numbers[1:]) if n else ()
    if kind == "dates":
        return kind, tuple(int(abs(each) * 8) for each in numbers)
    if kind == "objects":
        return kind, tuple({"a": 1} for _ in numbers)
    if kind == "short":
        return kind, numbers[:-1]
    if kind == "nested":
        return kind, tuple([each, each] for each in numbers)
    if kind == "one text":
        return kind, ("u",) * n
    return kind, numbers


def made_column(one, how):
    kind, values = one
    if kind == "dates":
        return np.array(values, "datetime64[D]")
    if kind == "objects":
        return np.array(values, object)
    if kind in ("none", "mixed"):
        return np.array(values, object) if how else list(values)
    if kind == "categories" and how:
        import pandas

        return pandas.Categorical(values)
    return np.array(values) if how and kind not in ("nested",) else list(values)


@st.composite
def frames(draw):
    n = draw(st.integers(0, 14))
    names = ["y", "a", "b", *draw(st.lists(st.sampled_from(NAMES), max_size=2))]
    table = {name: draw(columns(n)) for name in names}
    if draw(st.integers(0, 2)):
        table["y"] = ("numbers", draw(inputs.numbers(n, inputs.plain)))
    kind = draw(st.sampled_from(["dict", "dict", "pandas", "polars", "pyarrow", "lists"]))
    return kind, table


def made_table(given):
    kind, table = given
    data = {name: made_column(one, kind != "lists") for name, one in table.items()}
    if kind in ("dict", "lists"):
        return data
    try:
        if kind == "pandas":
            import pandas

            return pandas.DataFrame(data)
        if kind == "polars":
            import polars

            return polars.DataFrame(data)
        import pyarrow

        return pyarrow.table(data)
    except Exception:  # a table that the library itself does not make
        return data


GROUPS = ("(1 | a)", "(1|b)", "(a | b)", "(0 + a | b)", "(a || b)", "(1 | a/b)", "(1 | a:b)", "(1 | C(a))", "(poly(a, 2) | b)", "(np.log(a) | b)", "(C(a) | b)", "(C(a) || b)", "(1 | y)", "(1 | zz)", "(. | b)", "(1 | `a b`)",
          "(1 | a", "1 | a", "(1 |)", "(| a)", "(1 | a | b)", "(0 | a)", "(1 | 1)", "(1 | a)**2", "a:(1 | b)", "-(1 | a)", "(1 | a + b)", "a", "b", ".", "0", "(1 | I(a))")  # fmt: skip


@case(st.tuples(frames(), st.lists(inputs.setting, max_size=3)), "svrhmc.tables.split_times", cost=0.03)
def stretches(given):
    """Odd tables and cuts: stretches that add up to the times, or one sentence."""
    frame, cuts = given
    ask(split_times, made_table(frame), "y", "a", cuts)


@case(
    st.tuples(
        frames(),
        st.lists(st.sampled_from(GROUPS) | st.text("(1|ab): /+0", max_size=12), min_size=1, max_size=3),
        st.booleans(),
    ),
    cost=0.03,
)
def group_terms(given):
    """Formulas of groups on odd tables: levels of all rows, which are found again, or one sentence."""
    frame, terms, drop = given
    made = ask(designed, f"y ~ {' + '.join(terms)}", made_table(frame), drop=drop)
    for (index, columns), group in zip(made.design.groups_of(made.columns), made.groups, strict=True):
        holds(len(group.index) == len(made.X) == made.columns.n, "a level for each row")
        holds(len(set(group.levels)) == group.count >= 2, "levels that are told apart")
        agree("levels", index, group.index, 0.0)
        agree("columns that vary", columns, group.columns, 0.0)


@case(st.tuples(st.one_of(st.lists(st.integers(-1, 4), max_size=6), inputs.anything), st.one_of(st.none(), inputs.anything),
                st.one_of(st.none(), st.just(("a", "b", "c", "d", "e")), inputs.anything), inputs.anything), "svrhmc.targets.Group", cost=0.01)  # fmt: skip
def groups_of_arrays(given):
    """A group, or one sentence."""
    index, columns, levels, lkj = given
    group = ask(Group, index, columns, levels, lkj=1.0 if columns is None else lkj)
    holds(0 <= group.index.min() <= group.index.max() < group.count, "levels that there are")
    holds(group.columns.shape == (len(group.index), group.width), "a number for each row and column")


@case(st.tuples(st.one_of(st.just(np.eye(4)), inputs.anything), st.one_of(st.none(), inputs.anything)), "svrhmc.targets.Smooth", cost=0.01)  # fmt: skip
def smooths_of_arrays(given):
    """A smooth, or one sentence."""
    basis, prior = given
    smooth = ask(Smooth, basis, prior=prior)
    holds(smooth.basis.shape == (smooth.n, smooth.count), "a number for each row and function")


PRIORS = st.one_of(
    st.none(),
    st.just(("Normal", 1.0)),
    st.just(("StudentT", 3.0)),
    st.just(("Laplace", 1.0)),
    st.just(("Flat",)),
    st.just("wrong"),
    st.just({"a": ("Normal", 4.0)}),
    st.just({"zz": ("Normal", 4.0)}),
)


def made_prior(given):
    if isinstance(given, dict):
        return {name: made_prior(each) for name, each in given.items()}
    return getattr(priors, given[0])(*given[1:]) if isinstance(given, tuple) else given


@case(st.tuples(frames(), st.one_of(st.sampled_from(FORMULAS[:6]), st.sampled_from(FORMULAS), st.text(max_size=10)),
                st.sampled_from([None, None, "gaussian", "gaussian", "bernoulli", "poisson", "x", 3]), st.sampled_from(["refuse", "refuse", "drop", "x"]), PRIORS,
                st.one_of(st.none(), st.none(), st.sampled_from(["a", "zz"]), inputs.anything)),
      "svrhmc.fit", "svrhmc.fitting.fit", "svrhmc.design", "svrhmc.fitting.design", cost=0.3)  # fmt: skip
def fits(given):
    """A table and a formula of any kind: a posterior that is finite, or one sentence."""
    frame, formula, family, missing, prior, weights = given
    if family not in (None, "gaussian", "x", 3):
        return  # by chains, below
    table = made_table(frame)
    y = frame[1].get("y", ("", ()))[0]
    more = (
        {}
        if y not in ("numbers", "whole", "constant", "huge") or family == "x"
        else {"noise_variance": 1.0, "family": "gaussian"}
    )
    if not more:
        family = family or "gaussian"
        more = {"family": family, "noise_variance": 1.0}
    preview = ask(svrhmc.design, formula, table, missing=missing, prior=made_prior(prior), weights=weights, **more)
    ask(repr, preview)
    found = ask(svrhmc.fit, formula, table, missing=missing, prior=made_prior(prior), weights=weights, draws=20, **more)
    judge_fit(found)


def judge_fit(found):
    holds(
        np.isfinite(found.mean).all() and np.isfinite(found.sd).all() and (found.sd >= 0).all(),
        f"{found.mean} ± {found.sd}",
    )
    holds(len(found.names) == len(set(found.names)) == len(found.mean), f"names {found.names}")
    ask(found.summary)
    ask(repr, found)
    with tempfile.TemporaryDirectory() as folder:
        path = ask(svrhmc.report, found, f"{folder}/report.html", source="<&>", command="\x00", notes=["ä"])
        text = Path(path).read_text()
        check_page(text)
        ask(found.save, f"{folder}/a.posterior")
        again = ask(svrhmc.Posterior.load, f"{folder}/a.posterior")
        holds((again.mean == found.mean).all() and again.names == found.names, "another posterior from its file")


class _Page(HTMLParser):
    """Tags that are open, and scripts."""

    def __init__(self):
        super().__init__()
        self.open, self.bad = [], []

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "b") or any(name.startswith("on") for name, _ in attrs):
            self.bad.append(tag)
        if tag not in (
            "meta",
            "br",
            "hr",
            "img",
            "link",
            "path",
            "line",
            "rect",
            "circle",
            "polyline",
            "polygon",
            "col",
            "input",
        ):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open and self.open.pop() != tag:
                pass


def check_page(text):
    page = _Page()
    page.feed(text)
    holds(not page.bad, f"a text of the data became a tag: {page.bad}")
    for word in (">nan<", ">inf<", "NaN", ">None<"):
        holds(word not in text or word == "NaN", f"{word} in the report")


@case(st.tuples(frames(), st.sampled_from(FORMULAS[:8]), st.sampled_from([None, "bernoulli", "poisson", "student-t", "negative-binomial", "gamma", "categorical", "gaussian"]), st.sampled_from(["refuse", "drop"]), PRIORS,
                st.one_of(st.none(), inputs.anything)), "svrhmc.fit", "svrhmc.report", cost=2.0, numba=True)  # fmt: skip
def fits_by_chains(given):
    """Families that need chains."""
    frame, formula, family, missing, prior, weights = given
    found = ask(
        svrhmc.fit,
        formula,
        made_table(frame),
        family,
        missing=missing,
        prior=made_prior(prior),
        weights=weights,
        draws=20,
        chains=2,
        tolerance=1.0,
        certificate=False,
        budget_seconds=3.0,
    )
    judge_fit(found)


@st.composite
def plain_tables(draw):
    n = draw(st.integers(4, 12))
    a, b = draw(inputs.numbers(n, inputs.plain)), draw(inputs.numbers(n, inputs.plain))
    g = tuple(draw(st.sampled_from(["u", "v", "w"])) for _ in range(n))
    y = draw(inputs.numbers(n, inputs.plain))
    power = draw(st.integers(-6, 6))
    return a, b, g, y, 10.0**power, draw(st.sampled_from([0.5, 4.0]))


@case(plain_tables(), "svrhmc.fit", "svrhmc.report", cost=0.1)
def lines(given):
    """A regression on numbers and a category with known noise and normal priors, against normal equations of its own."""
    a, b, g, y, scale, precision = given
    table = {"y": np.array(y), "a": scale * np.array(a), "b": np.array(b), "g": np.array(g)}
    levels = sorted(set(g))
    if len(levels) < 2 or len(set(a)) < 3 or len(set(b)) < 3 or np.ptp(y) == 0:
        return
    if np.linalg.matrix_rank(np.column_stack([np.ones(len(y)), a, b])) < 3:
        return  # columns that repeat each other are refused
    prior = {
        "a": priors.Normal(precision * scale**2),
        "b": priors.Normal(precision),
        "Intercept": priors.Normal(precision),
        "g": priors.Normal(precision),
    }
    found = ask(svrhmc.fit, "y ~ a + b + g", table, "gaussian", noise_variance=2.0, prior=prior, draws=20, tame=True)
    X = np.column_stack([table["a"], table["b"], *[np.array(g) == level for level in levels[1:]]]).astype(float)
    centred = X - X.mean(axis=0)
    A = np.column_stack([np.ones(len(y)), centred])  # the intercept's prior is of the middle of the columns
    L = np.diag([precision, precision * scale**2, *[precision] * (X.shape[1] - 1)])
    H = A.T @ A / 2.0 + L
    beta = np.linalg.solve(H, A.T @ np.array(y) / 2.0)
    covariance = np.linalg.inv(H)
    T = np.eye(len(beta))
    T[0, 1:] = -X.mean(axis=0)
    mean, sd = T @ beta, np.sqrt(np.diag(T @ covariance @ T.T))
    agree("the means", found.mean, mean, 1e-5 * sd + 1e-9 * np.abs(mean))
    agree("the sds", found.sd, sd, 1e-5 * sd)
    told = ask(found.predict, {"a": table["a"], "b": table["b"], "g": table["g"]}, draws=4000)
    agree("the fitted values", told.mean, A @ beta, 6 * np.sqrt(np.einsum("nd,de,ne->n", A, covariance, A) / 20) + 1e-6)


@case(st.tuples(inputs.tables(10, 3), st.integers(0, 2**30), st.sampled_from(["gaussian", "linear", "x", "poisson"]), st.booleans(), PRIORS, st.one_of(st.none(), inputs.anything), st.one_of(st.none(), st.lists(st.sampled_from(NAMES), max_size=3))),
      "svrhmc.fitting.regress", cost=0.1, numba=True)  # fmt: skip
def regressions(given):
    """Arrays of any kind."""
    X, bits, family, intercept, prior, weights, names = given
    y = [((bits >> (3 * k % 27)) % 8) / 2 for k in range(X.shape[0])]
    if family == "poisson":
        return
    more = {"noise_variance": 1.0} if family == "linear" else {}
    found = ask(
        fitting.regress,
        X.make(),
        y,
        "gaussian" if family == "linear" else family,
        intercept=intercept,
        prior=made_prior(prior),
        weights=weights,
        names=names,
        draws=20,
        **more,
    )
    holds(np.isfinite(found.mean).all() and np.isfinite(found.sd).all(), f"{found.mean} ± {found.sd}")


ESTIMATORS = (
    "BayesianLogisticRegression",
    "BayesianRegression",
    "BayesianPoissonRegression",
    "BayesianNegativeBinomialRegression",
)


@case(st.tuples(st.just("BayesianRegression"), inputs.tables(10, 2), st.integers(0, 2**30), st.booleans(), st.one_of(st.none(), st.lists(st.sampled_from([0.0, 1.0, 2.0, -1.0, float("nan")]), min_size=10, max_size=10)), inputs.tables(3, 2)),
      *(f"svrhmc.{name}" for name in ESTIMATORS), "svrhmc.estimators.BayesianRegression.*", "svrhmc.VerdictError", cost=0.2)  # fmt: skip
def linear_estimator(given):
    """fit, predict, intervals of the linear estimator."""
    estimated(given, {"on_undecided": "raise"})


@case(st.tuples(st.sampled_from(ESTIMATORS), inputs.tables(10, 2), st.integers(0, 2**30), st.booleans(), st.one_of(st.none(), st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=10, max_size=10)), inputs.tables(3, 2)),
      *(f"svrhmc.estimators.{name}.*" for name in ESTIMATORS), cost=2.0, numba=True)  # fmt: skip
def every_estimator(given):
    """All of them; half of them answer an undecided posterior by an error."""
    on_undecided = "raise" if given[2] % 2 else "warn"
    settings = {"chains": 2, "tolerance": 1.0, "certificate": False, "budget_seconds": 3.0}
    estimated(given, settings | {"on_undecided": on_undecided})


def estimated(given, more):
    name, X, bits, intercept, weights, new = given
    y = [(bits >> (3 * k % 27)) % (2 if "Logistic" in name else 8) for k in range(X.shape[0])]
    model = ask(getattr(estimators, name), fit_intercept=intercept, draws=20, **more)
    w = None if weights is None else weights[: len(y)]
    ask(model.fit, X.make(), y, sample_weight=w, allow=("sklearn", "scipy"))
    holds(np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all(), "coefficients that are not finite")
    at = new.make()
    if "Logistic" in name:
        p = ask(model.predict_proba, at, allow=("sklearn", "scipy"))
        holds((p >= 0).all() and np.allclose(p.sum(axis=1), 1), f"probabilities {p}")
        ask(model.predict_log_proba, at, allow=("sklearn", "scipy"))
    else:
        mean, sd = ask(model.predict, at, return_std=True, allow=("sklearn", "scipy"))
        holds((sd >= 0).all(), "an sd below 0")
        interval = ask(model.predict_interval, at, 0.5, allow=("sklearn", "scipy"))
        holds((interval[:, 0] <= interval[:, 1]).all(), "an interval the wrong way round")
        if name == "BayesianRegression" and is_plain(new.dense, 1e6) and is_plain(model.coef_, 1e6):
            size = np.abs(new.dense) @ np.abs(model.coef_) + abs(model.intercept_) + 1
            sdev = (
                np.sqrt(
                    sum(
                        (np.abs(new.dense[:, j]) * model.posterior_.sd[1 if intercept else 0 :][j]) ** 2
                        for j in range(new.shape[1])
                    )
                )
                + model.posterior_.sd[0]
            )
            agree("predictions", mean, new.dense @ model.coef_ + model.intercept_, 1e-6 * size + 2 * sdev)
    ask(model.predict, at, allow=("sklearn", "scipy"))
    ask(model.sample_y, at, 3, allow=("sklearn", "scipy"))
    if X.shape[0] > 1:  # of one row scikit-learn's own score is nan
        ask(model.score, X.make(), y, sample_weight=w, allow=("sklearn", "scipy"))


@case(st.sampled_from(FAMILIES), "svrhmc.report", cost=0.05)
def no_names(given):
    """A report of what has no names is refused; so is one of what is no posterior."""
    from .posteriors import kinds

    with tempfile.TemporaryDirectory() as folder:
        for each in (kinds()["linear"], None, given):
            try:
                ask(svrhmc.report, each, f"{folder}/x.html")
            except RefusedError:
                continue
            raise FailureError("a report of nothing")
