"""`fit`: right by default, whatever the units; names, tables, formulas, and errors at the door.

References are made without the library: the posterior under the documented priors, by importance sampling about the mode
that SciPy finds, in columns that are standardised here, and mapped back by hand.
"""

import numpy as np
import pytest
from scipy import optimize, stats

import svrhmc
from simulated_data import events
from svrhmc.core.errors import DataError
from svrhmc.targets.priors import Flat, Normal

np_rng = np.random.default_rng


def reference(columns, log_likelihood, response=(0.0, 1.0), shared=0, intercept=True, draws=8_000, seed=0):
    """Mean and sd of (intercept, slopes, shared) in the units of the columns.

    log_likelihood(t, θ) is that of all rows for one predictor t (without its typical value, response[0]) and θ.
    """
    X = np.column_stack(columns) if columns else np.zeros((0, 0))
    centre, scale = (X.mean(axis=0) if intercept else 0.0 * X.mean(axis=0)), X.std(axis=0)
    Z = (X - centre) / scale
    A = np.column_stack([np.ones(len(Z)), Z]) if intercept else Z
    typical, size = response
    k = A.shape[1]
    step = np.where([len(np.unique(column)) == 2 for column in columns], np.ptp(X, axis=0), scale)  # of two values
    sd = np.concatenate([[5 * size] * intercept, 2.5 * size * scale / step, [5.0] * shared])
    middle = np.concatenate([np.zeros(k), [np.log(size)] * shared])

    def minus_log(x):
        return -log_likelihood(typical + A @ x[:k], x[k:]) + 0.5 * (((x - middle) / sd) ** 2).sum()

    start = middle.copy()
    mode = optimize.minimize(minus_log, start, method="BFGS", options={"gtol": 1e-10, "maxiter": 2000}).x
    mode = optimize.minimize(
        minus_log, mode, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-10, "maxiter": 4000}
    ).x
    steps = 1e-4 * np.maximum(1e-3 * sd, np.minimum(sd, 1.0) * 0.1)
    size_of = len(mode)
    H = np.empty((size_of, size_of))
    for i in range(size_of):
        for j in range(size_of):
            e, f = np.eye(size_of)[i] * steps[i], np.eye(size_of)[j] * steps[j]
            H[i, j] = (
                minus_log(mode + e + f) - minus_log(mode + e - f) - minus_log(mode - e + f) + minus_log(mode - e - f)
            ) / (4 * steps[i] * steps[j])
    L = np.linalg.cholesky(np.linalg.inv((H + H.T) / 2)) * 1.1
    rng = np_rng(seed)
    t = stats.multivariate_t(np.zeros(size_of), np.eye(size_of), df=8, seed=rng)
    z = np.atleast_2d(t.rvs(draws)).reshape(draws, size_of)
    x = mode + z @ L.T
    log_w = np.array([-minus_log(each) for each in x]) - t.logpdf(z)
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    out = x.copy()
    first = int(intercept)
    out[:, first:k] = x[:, first:k] / scale
    if intercept:
        out[:, 0] = typical + x[:, 0] - out[:, 1:k] @ centre
    mean = w @ out
    return mean, np.sqrt(w @ (out - mean) ** 2)


def gaussian(y):
    return (lambda t, theta: stats.norm.logpdf(y, t, np.exp(theta[0])).sum()), (y.mean(), y.std())


def bernoulli(y):
    share = (y.sum() + 0.5) / (len(y) + 1)
    return (lambda t, theta: -np.logaddexp(0, np.where(y > 0, -t, t)).sum()), (np.log(share / (1 - share)), 1.0)


def poisson(y):
    return (lambda t, theta: (y * t - np.exp(t)).sum()), (np.log(y.mean()), 1.0)


def close(posterior, mean, sd, within=0.05):
    """Errors of the means in sds, and of the sds, relative."""
    assert posterior.certificate.verdict in ("exact", "certified", "local")
    return (np.abs(posterior.mean - mean) / sd).max() < within and np.abs(posterior.sd / sd - 1).max() < within


def linear_case(n=400, noise=1.0, offset=0.0, unit=1.0, x_unit=1.0, x_offset=0.0, seed=0):
    rng = np_rng(seed)
    x = rng.normal(size=n)
    y = offset + unit * (2 * x + noise * rng.normal(size=n))
    return {"y": y, "x": x_offset + x_unit * x}


GAUSSIAN = {
    "noise of 50, not 1": {"noise": 50.0},
    "an intercept of 300": {"offset": 300.0, "noise": 0.5},
    "a column of scale 1e-3": {"x_unit": 1e-3, "unit": 1.0, "noise": 0.1},
    "y in units of 1e-6": {"unit": 1e-6, "offset": 3e-6},
    "y in units of 1e6": {"unit": 1e6, "offset": -4e6},
    "a column of scale 1e6": {"x_unit": 1e6},
    "a column far from 0": {"x_offset": 1e6, "x_unit": 10.0},
    "y far from 0": {"offset": 1e9},
    "tiny noise": {"noise": 1e-5},
}


def test_functions_of_a_column_of_texts_say_what_to_do_about_it():
    amounts = [f"{k:,}" for k in range(1000, 90_000, 1000)]
    table = {"y": np.arange(89.0), "income": amounts, "plan": ["a"] * 89}
    for term in ("np.log(income)", "I(income / 2)", "bs(income, df=4)", "scale(income)"):
        with pytest.raises(
            DataError, match=r"column 'income' holds texts such as '1,000': make numbers .*thousands=','"
        ):
            svrhmc.fit(f"y ~ {term}", table)
    with pytest.raises(DataError, match="column 'plan' holds texts such as 'a', and arithmetic takes numbers"):
        svrhmc.fit("y ~ np.log(plan)", table)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_linear_regression_is_right_whatever_the_units(name):
    table = linear_case(**GAUSSIAN[name])
    posterior = svrhmc.fit("y ~ x", table)
    assert posterior.family == "gaussian"
    assert posterior.names == ("Intercept", "x", "log sigma")
    X = np.column_stack([np.ones(400), (table["x"] - table["x"].mean()) / table["x"].std()])
    y = table["y"] - table["y"].mean()
    beta, rss = np.linalg.lstsq(X, y, rcond=None)[:2]
    sigma = np.sqrt(rss[0] / 398)  # least squares, whose errors are those of Student's law with 398 degrees of freedom
    slope, sd = beta[1] / table["x"].std(), sigma / np.sqrt(400) / table["x"].std() * np.sqrt(398 / 396)
    assert abs(posterior.mean[1] - slope) < 0.05 * sd
    assert abs(posterior.sd[1] / sd - 1) < 0.02
    level = table["y"].mean() - slope * table["x"].mean()
    error = sigma * np.sqrt(398 / 396) * np.sqrt((1 + (table["x"].mean() / table["x"].std()) ** 2) / 400)
    assert abs(posterior.mean[0] - level) < 0.05 * error
    assert abs(posterior.sd[0] / error - 1) < 0.02
    assert abs(posterior.mean[2] - np.log(sigma)) < 0.1 * posterior.sd[2]


def test_explicit_defaults_are_not_right_there():
    """The control: the same check fails for priors and noise that do not follow the data."""
    table = linear_case(noise=50.0)
    X = np.column_stack([np.ones(400), table["x"]])
    sd = np.sqrt(np.diag(svrhmc.targets.linear(X, table["y"]).closed_form.covariance))
    assert sd[1] < 0.1 < 2 < svrhmc.fit("y ~ x", table).sd[1]


def logistic_case(kind, n=800, seed=1):
    rng = np_rng(seed)
    x, z = rng.normal(size=n), rng.normal(size=n)
    t = -1.0 + x
    if kind == "a rare event":
        t = -4.5 + 0.7 * x
    if kind == "one dominating category":
        z = (rng.random(n) < 0.02).astype(float)
        t = t + z
    if kind == "nearly collinear":
        z = x + 1e-4 * rng.normal(size=n)
    y = events(rng, t).astype(float)
    if kind == "units of 1e6 and 1e-6":
        x, z = 1e6 * x + 3e6, 1e-6 * z
    return x, z, y


@pytest.mark.parametrize(
    "kind", ["a rare event", "one dominating category", "nearly collinear", "units of 1e6 and 1e-6"]
)
def test_logistic_regression_is_right_by_default(kind):
    x, z, y = logistic_case(kind)
    if kind == "one dominating category":
        posterior = svrhmc.fit("y ~ x + g", {"y": y, "x": x, "g": np.where(z > 0, "rare", "most")})
        assert posterior.names[2] == "g[rare]"
        assert posterior.design.baselines == ("g[most]",)
    else:
        posterior = svrhmc.fit("y ~ x + z", {"y": y, "x": x, "z": z})
    mean, sd = reference([x, z], *bernoulli(y))
    assert close(posterior, mean, sd)
    wrong, other = reference([x, z], *bernoulli(1 - y))
    assert not close(posterior, wrong, other)


@pytest.mark.parametrize("also", ["", " + total"])
def test_a_combination_that_the_prior_decides_is_named(also):
    """A column that is the sum of others: each is known better than its prior, but not how they share. (Were the others
    independent, the sum would have just half of the variance that only the prior decides.)
    """
    rng = np.random.default_rng(0)
    parts = {name: rng.normal(size=2000) for name in ("a", "b", "c", "d")}
    parts["b"] -= 0.5 * parts["a"]
    table = {**parts, "total": parts["a"] + parts["b"] + parts["c"], "y": parts["a"] + rng.normal(size=2000)}
    posterior = svrhmc.fit(f"y ~ a + b + c + d{also}", table)
    assert not len(posterior.prior.dominated())
    found = posterior.prior.entangled(posterior.units.inward(posterior.trace.draws))
    assert [posterior.names[j] for j in found] == (["a", "b", "c", "total"] if also else [])
    assert ("For some combination of a, b, c, total, the prior" in " ".join(str(posterior.summary()).split())) == bool(
        also
    )


def test_a_prior_that_decides_is_named():
    """Two columns that are nearly one: the prior decides how they share, and the data decide their sum."""
    x, z, y = logistic_case("nearly collinear")
    posterior = svrhmc.fit("y ~ x + z", {"y": y, "x": x, "z": z})
    assert [posterior.names[j] for j in posterior.prior.dominated()] == ["x", "z"]
    both = posterior.trace.draws[..., 1:].sum(axis=2)
    assert both.std() < 0.2 < 1 < posterior.sd[1]
    assert not len(svrhmc.fit("y ~ x", {"y": y, "x": x}).prior.dominated())


@pytest.mark.parametrize("size", [1.0, 1e5])
def test_counts_of_any_size(size):
    rng = np_rng(3)
    x = rng.normal(size=300)
    y = rng.poisson(size * np.exp(0.3 * x)).astype(float)
    posterior = svrhmc.fit("y ~ x", {"y": y, "x": x}, "poisson")
    assert close(posterior, *reference([x], *poisson(y)))


def test_without_an_intercept():
    rng = np_rng(4)
    a, b = 3 + rng.normal(size=300), rng.normal(size=300)
    y = 2 * a - b + rng.normal(size=300)
    posterior = svrhmc.fit("y ~ 0 + a + b", {"y": y, "a": a, "b": b})
    assert posterior.names == ("a", "b", "log sigma")
    least = np.linalg.lstsq(np.column_stack([a, b]), y, rcond=None)[0]
    assert np.abs((posterior.mean[:2] - least) / posterior.sd[:2]).max() < 0.05


@pytest.mark.parametrize(
    "family",
    [
        "bernoulli", "poisson", "gaussian", "categorical", "negative-binomial",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("gamma", "student-t")),  # compiled anew
    ],
)  # fmt: skip
def test_other_units_of_a_column_change_nothing_else(family):
    """metres or millimetres: the same draws, to rounding, in other units."""
    rng = np_rng(5)
    x, z = rng.normal(size=200), rng.normal(size=200)
    y = {
        "bernoulli": lambda: (rng.random(200) < 0.4).astype(float),
        "categorical": lambda: rng.integers(0, 3, 200).astype(float),
        "gaussian": lambda: rng.normal(size=200),
        "student-t": lambda: rng.normal(size=200),
        "gamma": lambda: rng.gamma(2.0, size=200),
    }.get(family, lambda: rng.poisson(2.0, 200).astype(float))()
    one = svrhmc.fit("y ~ x + z", {"y": y, "x": x, "z": z}, family, draws=200)
    other = svrhmc.fit("y ~ x + z", {"y": y, "x": 1000 * x + 70_000, "z": z}, family, draws=200)
    assert one.trace.draws.shape == other.trace.draws.shape
    np.testing.assert_allclose(1000 * other.sd[1], one.sd[1], rtol=1e-6)
    np.testing.assert_allclose(1000 * other.mean[1], one.mean[1], rtol=1e-6, atol=1e-9)
    if family == "gaussian":  # independent draws, from eigenvectors whose signs are rounding's
        return
    for block in range(2 if family == "categorical" else 1):
        a, b = one.trace.draws[..., 3 * block :], other.trace.draws[..., 3 * block :]
        np.testing.assert_allclose(1000 * b[..., 1], a[..., 1], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(b[..., 0] + 70_000 * b[..., 1], a[..., 0], rtol=1e-6, atol=1e-6)
    new = {"x": x[:5], "z": z[:5]}
    moved = {"x": 1000 * x[:5] + 70_000, "z": z[:5]}
    np.testing.assert_allclose(one.predict(new).mean, other.predict(moved).mean, rtol=1e-6)


def test_an_aggregated_table_has_the_posterior_of_its_rows():
    rng = np_rng(6)
    x = rng.integers(0, 4, 500).astype(float)
    y = events(rng, x / 2 - 1).astype(float)
    cells = sorted(set(zip(x, y, strict=True)))
    table = {
        "x": [a for a, _ in cells],
        "y": [b for _, b in cells],
        "n": [float(((x == a) & (y == b)).sum()) for a, b in cells],
    }
    rows, cells = svrhmc.fit("y ~ x", {"x": x, "y": y}), svrhmc.fit("y ~ x", table, weights="n")
    np.testing.assert_allclose(cells.laplace.mean, rows.laplace.mean, rtol=1e-9)
    np.testing.assert_allclose(cells.laplace.sd, rows.laplace.sd, rtol=1e-9)
    unweighted = svrhmc.fit("y ~ x", table)
    assert abs(unweighted.laplace.mean[1] - rows.laplace.mean[1]) > rows.laplace.sd[1]


def test_priors_in_the_units_of_the_data():
    table = linear_case(n=20, x_unit=100.0)
    tight = svrhmc.fit("y ~ x", table, prior={"x": Normal(1e12, mean=0.5)})
    assert abs(tight.mean[1] - 0.5) < 1e-4
    flat = svrhmc.fit("y ~ x", table, prior=Flat())
    least = np.polyfit(table["x"], table["y"], 1)
    np.testing.assert_allclose(flat.mean[:2], least[::-1], rtol=1e-6)
    with pytest.raises(ValueError, match="by the names of the columns"):
        svrhmc.fit("y ~ x", table, prior={"z": Normal()})


def tables():
    pandas = pytest.importorskip("pandas")
    columns = {
        "y": ["no", "yes", "yes", "no", "yes", "no", "yes", "no"] * 10,
        "age": [31, 48, 50, 22, 61, 30, 44, 29] * 10,
        "plan": ["b", "a", "a", "c", "b", "c", "a", "b"] * 10,
        "old": [False, True, True, False, True, False, False, True] * 10,
    }
    frame = pandas.DataFrame(columns)
    yield "dictionary", columns
    yield "pandas", frame
    yield "pandas categories", frame.assign(plan=frame["plan"].astype("category"), age=frame["age"].astype("Int64"))
    for name in ("polars", "pyarrow"):
        try:
            module = __import__(name)
        except ModuleNotFoundError:
            continue
        yield name, module.DataFrame(columns) if name == "polars" else module.table(columns)


def test_every_kind_of_table_gives_the_same():
    found = {name: svrhmc.fit("y ~ age + plan + old", table, draws=200) for name, table in tables()}
    first = found.pop("dictionary")
    assert first.names == ("Intercept", "age", "plan[b]", "plan[c]", "old")
    assert first.design.classes == ("no", "yes")
    assert first.design.guessed == "the response has two classes"
    for other in found.values():
        assert other.names == first.names
        np.testing.assert_array_equal(other.trace.draws, first.trace.draws)


@pytest.mark.parametrize(
    ("formula", "names"),
    [
        ("y ~ age", ("Intercept", "age")),
        ("y ~ age + C(age2)", ("Intercept", "age", "age2[1]", "age2[2]")),
        ("y ~ 0 + plan", ("plan[a]", "plan[b]", "plan[c]")),
        ("y ~ age * plan", ("Intercept", "age", "plan[b]", "plan[c]", "age:plan[b]", "age:plan[c]")),
        ("y ~ poly(age, 2)", ("Intercept", "poly(age, 2)[1]", "poly(age, 2)[2]")),
        ("y ~ np.log(age) + plan", ("Intercept", "plan[b]", "plan[c]", "np.log(age)")),
        (
            "y ~ bs(age, df=4)",
            ("Intercept", "bs(age, df=4)[1]", "bs(age, df=4)[2]", "bs(age, df=4)[3]", "bs(age, df=4)[4]"),
        ),
        ("y ~ . - old", ("Intercept", "age", "plan[b]", "plan[c]", "age2")),
        ("np.log(age) ~ old", ("Intercept", "old", "log sigma")),
    ],
)
def test_formulas_and_what_a_file_keeps_of_them(formula, names, tmp_path):
    table = dict(next(tables())[1])
    table["age2"] = [k % 3 for k in range(80)]
    table["age"] = [a + k / 100 for k, a in enumerate(table["age"])]
    posterior = svrhmc.fit(formula, table, draws=100)
    assert posterior.names == names
    new = {name: values[3:9] for name, values in table.items()}
    posterior.save(tmp_path / "fit")
    np.testing.assert_allclose(svrhmc.Posterior.load(tmp_path / "fit").predict(new).mean, posterior.predict(new).mean)
    within = {name: values[:3] for name, values in table.items()}  # knots and polynomials are those of the fitted table
    both = posterior.predict(table).mean
    np.testing.assert_allclose(posterior.predict(within).mean, both[:3], rtol=1e-9)


def test_missing_values_are_counted_or_dropped():
    rng = np_rng(7)
    table = {"y": rng.normal(size=50), "x": rng.normal(size=50), "g": np.array(list("ab") * 25, object)}
    table["x"][[3, 8]] = np.nan
    table["g"][8] = None
    with pytest.raises(DataError, match=r"'x' \(2 missing\), 'g' \(1 missing\).*missing='drop'"):
        svrhmc.fit("y ~ x + g", table)
    posterior = svrhmc.fit("y ~ x + g", table, missing="drop", weights=np.ones(50))
    assert posterior.design.dropped == 2
    kept = {name: np.delete(values, [3, 8]) for name, values in table.items()}
    np.testing.assert_array_equal(posterior.trace.draws, svrhmc.fit("y ~ x + g", kept, weights=np.ones(48)).trace.draws)


def test_many_levels_are_sparse():
    rng = np_rng(8)
    g = rng.integers(0, 300, 3000)
    effect = rng.normal(size=300)
    table = {"y": effect[g] + rng.normal(size=3000), "g": np.char.add("l", g.astype(str)), "x": rng.normal(size=3000)}
    posterior = svrhmc.fit("y ~ x + g", table, draws=200)
    assert posterior.certificate.verdict == "exact"
    assert len(posterior.names) == 302
    level = np.array([int(name[3:-1]) for name in posterior.names[2:-1]])
    baseline = int(posterior.design.baselines[0][3:-1])
    draws = np.diff(posterior.trace.draws[..., 2:-1].reshape(-1, 299), axis=1)[:, ::2]  # each with levels of its own
    z = (draws.mean(axis=0) - np.diff(effect[level])[::2]) / draws.std(axis=0)
    assert 0.8 < z.std() < 1.2
    assert 0 <= baseline < 300
    assert baseline not in level


BAD = {
    "no tilde": ("x", {}, "response ~ terms"),
    "two responses": ("y + z ~ x", {}, "one response"),
    "half a formula": ("y ~ x +", {}, "cannot be used"),
    "not a column": ("y ~ xx", {}, "did you mean 'x'"),
    "its own response": ("y ~ x + y", {}, "among its own predictors"),
    "a constant column": ("y ~ x + one", {}, "'one' is constant"),
    "a column twice": ("y ~ x + twice", {}, "'twice' repeats column 'x'"),
    "one level": ("y ~ x + only", {}, "one level only"),
    "dates": ("y ~ when", {}, "dates or times"),
    "mixed": ("y ~ mixed", {}, "mixes texts and numbers: row 1"),
    "one class": ("only ~ x", {}, "one class only"),
    "texts as numbers": ("g ~ x", {"family": "poisson"}, "holds texts"),
    "too many classes": ("x ~ z", {"family": "bernoulli"}, "takes two"),
    "a family misspelt": ("y ~ x", {"family": "poison"}, "poisson"),
    "weights of texts": ("y ~ x", {"weights": "g"}, "must hold numbers"),
    "an option misspelt": ("y ~ x", {"missing": "skip"}, "'refuse', 'drop'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_at_the_door(name):
    rng = np_rng(9)
    x = rng.normal(size=40)
    table = {
        "y": rng.normal(size=40), "x": x, "z": rng.normal(size=40), "one": np.ones(40), "twice": 3 - 2 * x,
        "g": np.array(list("ab") * 20), "only": np.array(["a"] * 40),
        "when": np.arange(40).astype("datetime64[D]"), "mixed": np.array([1.0, "two"] * 20, object),
    }  # fmt: skip
    formula, options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        svrhmc.fit(formula, table, **options)


def test_a_level_that_was_never_seen_is_refused():
    table = next(tables())[1]
    posterior = svrhmc.fit("y ~ plan", table, draws=100)
    with pytest.raises(DataError, match=r"'d' in row 1.*nothing is known about it"):
        posterior.predict({"plan": ["a", "d"]})
    with pytest.raises(DataError, match=r"missing values in 'plan' \(1 missing\)"):
        posterior.predict({"plan": ["a", None]})


def test_an_offset_that_is_no_column_is_asked_for_again():
    rng = np_rng(10)
    x, o = rng.normal(size=60), rng.uniform(0, 1, 60)
    table = {"y": rng.poisson(np.exp(0.3 * x + o)), "x": x, "o": o}
    given, named = svrhmc.fit("y ~ x", table, "poisson", offset=o), svrhmc.fit("y ~ x", table, "poisson", offset="o")
    np.testing.assert_array_equal(given.trace.draws, named.trace.draws)
    with pytest.raises(DataError, match="give offset=… for the new rows too"):
        given.predict({"x": x[:3]})
    new = {"x": x[:3], "o": o[:3]}
    np.testing.assert_array_equal(given.predict(new, offset=o[:3]).mean, named.predict(new).mean)


def test_contrasts_of_formulaic():
    table = next(tables())[1]
    posterior = svrhmc.fit("y ~ C(plan, contr.treatment(base='b'))", table, draws=100)
    assert [name.split("[")[1] for name in posterior.names[1:]] == ["a]", "c]"]


def test_a_number_of_two_rows_is_no_event():
    """Two values of two rows may be any number: only 0 and 1, texts and truth values are events by themselves."""
    posterior = svrhmc.fit("y ~ x", {"y": [1.5, 2.5], "x": [0.0, 1.0]})
    assert posterior.model.loss.name == "gaussian"
    assert svrhmc.fit("y ~ x", {"y": [0, 1], "x": [0.0, 1.0]}).model.loss.name == "bernoulli"
