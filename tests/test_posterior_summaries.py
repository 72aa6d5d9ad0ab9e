"""Quantiles, statements, summaries and clashes of a posterior."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtri

import svrhmc
from svrhmc import sample, targets
from svrhmc.core.summaries import Summary, rows_to_print
from svrhmc.results.probability import match_moments, probability
from svrhmc.results.report import verdict_in_words
from svrhmc.results.summary import short, time_in_words


def gaussian(scale=1.0, shift=0.0, **settings):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.normal(size=(200, 2))])
    return targets.linear(X, shift + scale * (X @ [1.0, 0.5, -1.0] + rng.normal(size=200)), **settings)


@pytest.fixture(scope="module")
def known():
    return sample(gaussian(), draws=400)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(1)
    n = 400
    age, plan = rng.uniform(20, 70, n), rng.choice(["basic", "pro"], n)
    rare = (np.arange(n) == 7).astype(float)
    odds = np.exp(-3 + 0.05 * age - (plan == "pro"))
    churn = np.where(rng.random(n) < odds / (1 + odds), "yes", "no").astype(object)
    age[3] = np.nan
    table = {"churn": churn, "age": age, "plan": plan, "rare <b>": rare}
    return svrhmc.fit(
        "churn ~ age + plan + `rare <b>`",
        table,
        missing="drop",
        draws=400,
        prior={"rare <b>": targets.priors.Normal(1.0)},
    )


def test_a_summary_has_columns_rows_and_a_sentence_for_anything_else(fitted):
    summary = fitted.summary()
    assert summary[:2].names == summary.names[:2]
    assert len(str(summary[:2]).splitlines()) == len(str(summary).splitlines()) - 2
    np.testing.assert_array_equal(summary["mean"], fitted.mean)
    with pytest.raises(KeyError) as error:
        summary["age"]
    assert str(error.value).startswith("what stands in brackets behind a summary must be a column (mean, sd, 5%")


def test_quantiles_of_a_gaussian_are_exact(known):
    law = gaussian().closed_form
    sd = np.sqrt(np.diag(law.covariance))
    levels = [0.01, 0.05, 0.5, 0.999]
    assert known.quantile(levels) == pytest.approx(law.mean + sd * ndtri(levels)[:, None], rel=1e-9)
    assert known.quantile(0.3).shape == (3,)
    assert known.quantile([[0.1], [0.2]]).shape == (2, 1, 3)
    assert known.interval() == pytest.approx(known.quantile([0.05, 0.95]).T)
    flat = known.trace.draws.reshape(-1, 3)
    assert np.abs(np.quantile(flat, 0.999, axis=0) - known.quantile(0.999)).max() > 0.01  # the draws alone do not know


def test_quantiles_elsewhere_are_those_of_draws_with_the_reported_moments(fitted):
    x = match_moments(fitted.trace.draws.reshape(-1, 4), fitted.mean, fitted.sd)
    assert x.mean(axis=0) == pytest.approx(fitted.mean, rel=1e-10)
    assert x.std(axis=0, ddof=1) == pytest.approx(fitted.sd, rel=1e-10)
    assert fitted.quantile([0.1, 0.9]) == pytest.approx(np.quantile(x, [0.1, 0.9], axis=0))
    raw = np.quantile(fitted.trace.draws.reshape(-1, 4), [0.1, 0.9], axis=0)
    assert np.abs(fitted.quantile([0.1, 0.9]) - raw).max() > 1e-4
    assert match_moments(np.array([[2.0]]), np.zeros(1), np.ones(1)) == 2.0  # one draw has no spread to stretch


@pytest.mark.parametrize("level", [0, 1, 1.5, "0.9", True])
def test_levels_that_are_none_are_refused(known, level):
    with pytest.raises(ValueError, match="level must be a"):
        known.interval(level)
    with pytest.raises(ValueError, match="levels must be numbers from 0 to 1"):
        known.quantile([0.5, 2.0])


@pytest.mark.parametrize("levels", ["a", ["a"], None, [0.1, None], {}, [[0.1, 0.2], [0.3]], True, 1j, np.nan, []])
def test_levels_that_are_no_numbers_are_refused_in_our_own_words(known, levels):
    for ask in (known.quantile, lambda each: known.predict([[1.0, 0.0, 0.0]], levels=each)):
        with pytest.raises(ValueError, match=r"^levels must be numbers from 0 to 1; got "):
            ask(levels)


def test_one_level_is_a_level(known):
    assert known.predict([[1.0, 0.0, 0.0]], levels=0.5).quantiles.shape == (1, 1)
    assert known.quantile(0.5).shape == (3,)


NAMES = ("Intercept", "age", "plan[pro]", "C: age", "a b", "log(x)", "x", "age:x")
DRAWS = np.random.default_rng(2).normal(size=(4000, 8))
A, P, C, S, L, X, AX = DRAWS.T[1:]


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("age > 0", A > 0),
        ("plan[pro] < age", P < A),
        ("`plan[pro]`<`age`", P < A),
        ("C: age > -0.5", C > -0.5),
        ("a b >= 1e-1", S >= 0.1),
        ("0 < age < 1", (A > 0) & (A < 1)),
        ("age > 0 and plan[pro] > 0 or x > 1", ((A > 0) & (P > 0)) | (X > 1)),
        ("not (age > 0) and x != 0", ~(A > 0)),
        ("abs(age) + 2*x**2 - x/4 > exp(-age)", np.abs(A) + 2 * X**2 - X / 4 > np.exp(-A)),
        ("log(x) > 0", L > 0),  # the coefficient of that name
        ("sqrt(x**2) == abs(x)", np.sqrt(X**2) == np.abs(X)),
        ("-2**2 < age", A > -4),
        ("age:x > age", AX > A),
        ("(age + x) * 2 <= .5", (A + X) * 2 <= 0.5),
    ],
)
def test_a_statement_holds_for_the_draws_it_holds_for(text, holds):
    assert probability(text, NAMES, DRAWS) == pytest.approx(holds.mean(), abs=1e-12)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("agee > 0", "did you mean 'age'"),
        ("zzz > 0", "there are 'Intercept', 'age'"),
        ("`nothing` > 0", "the name 'nothing'"),
        ("age", "nothing is compared"),
        ("age +", "the end stands where a name or a number is expected"),
        ("age > 0 x", "'x' stands where nothing more is expected"),
        ("(age > 0", "a bracket is not closed"),
        ("age and x > 0", "'and' joins comparisons"),
        ("(age > 0) + 1 > 0", "takes numbers, not comparisons"),
        ("age > 0 & x > 0", "write 'and'"),
        ("sqrt x > 0", "needs brackets"),
        ("sqrt(x) > 0", "not defined at some of the draws"),
        ("`age > 0", "no second one"),
        ("age; x > 0", "';' has no meaning"),
        ("__import__('os').system('true') > 0", "the name '__import__'"),
        ("age.mean() > 0", "the name 'age.mean'"),
        ("(" * 200 + "age" + ")" * 200 + " > 0", "nested more than 50 times"),
        ("-" * 200 + "age > 0", "nested more than 50 times"),
        ("", "a text such as"),
        (None, "a text such as"),
        (3, "a text such as"),
    ],
)
def test_what_is_no_statement_is_refused(text, why):
    with pytest.raises(ValueError, match="the statement must be") as error:
        probability(text, NAMES, DRAWS)
    assert why in str(error.value)


def test_a_coefficient_named_like_an_operator_is_none():
    names, draws = ("age", "or"), DRAWS[:, :2]
    assert probability("`or` > 0", names, draws) == (draws[:, 1] > 0).mean()
    with pytest.raises(ValueError, match="'or' stands where nothing more is expected"):
        probability("age > 0 `or` age > 1", names, draws)


def test_the_probability_of_a_gaussian_agrees_with_its_law(known):
    from scipy.special import ndtr

    edge = float(known.mean[1] + known.sd[1])
    assert known.probability(f"x[1] > {edge!r}") == pytest.approx(1 - ndtr(1), abs=4.5 * np.sqrt(0.134 / 400))
    assert known.probability(f"x[2] > {edge!r}") < 0.01


def test_one_kind_of_summary_for_traces_and_posteriors(known, fitted):
    trace = svrhmc.hmc(0.05).run(gaussian(), 100, engine="reference")
    for one in (trace.summary(), known.summary(), fitted.summary()):
        assert isinstance(one, Summary)
        frame = one.to_frame()
        assert len(set(frame.columns)) == len(frame.columns)
        assert list(frame.index) == list(one.names)
        assert one.mean == pytest.approx(frame["mean"].to_numpy())
        assert one["sd"] is one.sd
    with pytest.raises(AttributeError, match="a summary has no 'nothing'"):
        _ = known.summary().nothing
    frame = fitted.to_frame(level=0.5)
    ratios = ["odds ratio", "ratio 25%", "ratio 75%"]
    assert list(frame.columns) == ["mean", "sd", "25%", "75%", *ratios, "ess", "r_hat"]
    assert list(frame.loc["age", ratios]) == pytest.approx(np.exp(fitted.quantile([0.5, 0.25, 0.75])[:, 1]), rel=1e-12)
    assert frame.loc["Intercept", ratios].isna().all()
    assert frame.loc["age", "25%"] == pytest.approx(fitted.interval(0.5)[1, 0])
    many = Summary(tuple(f"n{k}" for k in range(70)), {"mean": np.zeros(70)})
    assert "… and 10 more" in str(many)
    assert "… and 10 more" in many._repr_html_()


def test_the_summary_says_what_was_fitted_and_how_far_to_trust_it(fitted):
    text = str(fitted.summary())
    assert max(map(len, text.splitlines())) <= 100
    whole = " ".join(text.split())
    for part in (
        "family 'bernoulli' (the response has two classes)",
        "modelled is the probability of 'yes', against 'no'",
        "399 rows; 1 row left out because of missing values",
        "compared with plan[basic].",
        "Verdict: exact: the sampler has no bias, and its chains agree; chance alone leaves a standard error of at most",
        "It is about the computation (evidence: posterior.certificate), not the model",
        "Prior: given: rare <b> ~ N(",
        "For rare <b>, the prior says more than the data.",
    ):
        assert part in whole
    assert not re.search(r"For [^.]*\bage\b[^.]*the prior says more", whole)
    assert len(repr(fitted).splitlines()) == 2
    assert "4 coefficients" in repr(fitted)
    assert "exact" in repr(fitted)


def test_a_fit_is_printed_as_its_table_and_what_to_think_of_it(fitted):
    lines = str(fitted).splitlines()
    whole = " ".join(" ".join(lines).split())
    for part in ("Posterior of ", "odds ratio", "age ", "Draws: ", "Verdict: exact", "summary() says more."):
        assert part in whole
    for part in ("passes", "gradients", "leaves the posterior invariant"):
        assert part not in whole


def test_the_largest_errors_by_chance_are_said_with_the_coefficients_that_they_are_of(fitted):
    mean, sd = (errors / fitted.sd for errors in fitted.errors)
    said = [
        f"of at most {mean.max():.2g} posterior sd in a mean ({fitted.labels[mean.argmax()]})",
        f"and of {sd.max():.2g} in an sd ({fitted.labels[sd.argmax()]}).",
    ]
    for text in (str(fitted.summary()), verdict_in_words(fitted)):
        assert all(each in " ".join(text.split()) for each in said)


def test_html_is_escaped(fitted):
    page = fitted._repr_html_()
    assert "rare &lt;b&gt;" in page
    assert "<b>" not in page
    assert "Verdict: exact" in page


def test_a_forest_has_a_row_for_each_coefficient_but_the_intercept(fitted, known, tmp_path):
    figure = fitted.plot(tmp_path / "forest.svg", level=0.5)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["age", "plan[pro]", "rare <b>"]
    assert (tmp_path / "forest.svg").read_bytes().startswith(b"<?xml")
    assert len(known.plot().axes[0].get_yticks()) == 3
    known.plot(tmp_path / "FOREST.PNG")
    for name in ("forest.badsuffix", "forest", "forest.png."):
        with pytest.raises(ValueError, match=r"the path of a figure must be one that ends in .png, .svg or .pdf; got "):
            known.plot(tmp_path / name)
    assert {each.name for each in tmp_path.iterdir()} == {"forest.svg", "FOREST.PNG"}


@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_a_forest_of_columns_of_different_units_is_for_a_step_of_each(unit):
    rng = np.random.default_rng(0)
    size, group = rng.normal(0, 2 * unit, 400), rng.choice(["a", "b"], 400)
    table = {"y": size / unit + (group == "b") + rng.normal(size=400), "size": size, "group": group}
    found = svrhmc.fit("y ~ size + group", table)
    axes = found.plot().axes[0]
    factor = (1.0, "") if unit == 1 else (float(size.std()), "for one standard deviation of a number")
    assert factor[1] in axes.get_xlabel()
    assert ("standard deviation" in axes.get_xlabel()) == (unit != 1)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["size", "group[b]"]  # without log sigma
    np.testing.assert_allclose(axes.lines[-1].get_xdata(), [found.mean[1] * factor[0], found.mean[2]], rtol=1e-9)


@pytest.mark.parametrize(
    ("formula", "steps"),
    [
        ("y ~ income * plan", {"income": "income", "plan[b]": 1, "plan[c]": 1, "income:plan[b]": "income"}),
        ("y ~ C(kind) * income + rare", {"kind[2.0]": 1, "kind[3.0]": 1, "kind[2.0]:income": "income", "rare": 1}),
        ("y ~ income + plan:C(kind)", {"income": "income", "plan[b]:kind[2.0]": 1, "plan[c]:kind[3.0]": 1}),
        ("y ~ income:plan + rare", {"rare": 1}),
        ("y ~ income + {income > 0} + C(plan, Treatment('c'))", {"income": "income", "income > 0": 1, "plan[a]": 1}),
        ("y ~ income + two", {"income": "income", "two": 10}),
    ],
)
def test_levels_are_drawn_from_their_baseline_whatever_stands_beside_them(formula, steps):
    """A level whose effect is 1.45 was drawn at 0.02, as the standard deviation of its column is small, once a formula
    had an interaction.
    """
    rng = np.random.default_rng(1)
    n = 300
    columns = {
        "income": rng.normal(0, 1e5, n),
        "plan": np.resize(["a", "b", "c"], n),
        "kind": rng.choice([1, 2, 3], n),
        "rare": rng.random(n) < 0.02,
        "two": rng.choice([10.0, 20.0], n),
    }
    found = svrhmc.fit(formula, {"y": 1.45 * (columns["plan"] == "b") + rng.normal(size=n), **columns}, draws=40)
    sd = columns["income"].std()
    axes = found.plot().axes[0]
    drawn = dict(zip([each.get_text() for each in axes.get_yticklabels()], axes.lines[-1].get_xdata(), strict=True))
    assert "from the baseline of a category" in axes.get_xlabel()
    for name, step in steps.items():
        expected = found.mean[found.names.index(name)] * (sd if step == "income" else step)
        np.testing.assert_allclose(drawn[name], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (lambda: gaussian(scale=50.0, prior_precision=1e-6), "the sd 1, but residuals have 49.9"),
        (lambda: gaussian(scale=0.001), "about 1,001 times too large"),
        (lambda: gaussian(shift=300.0), r"the prior of x\[0\] is 300 standard deviations"),
        (lambda: gaussian(prior_precision=1e6), r"the prior of x\[0\] \(and that of 1 more\)"),
    ],
)
def test_a_prior_or_a_noise_that_clashes_with_the_data_is_said(target, said):
    with pytest.warns(UserWarning, match=said):
        found = sample(target(), draws=40)
    assert len(found.clashes) == 1
    assert "Clash: the " in str(found.summary())
    assert "Clash: the " in found._repr_html_()


@pytest.mark.parametrize(
    "target",
    [
        lambda: gaussian(),
        lambda: gaussian(scale=4.0, prior_precision=0.01),  # σ is wrong, but within a factor of five
        lambda: gaussian(shift=300.0, prior_precision=1e-6),
        lambda: gaussian(shift=300.0, prior_mean=[300.0, 0.0, 0.0]),
        lambda: targets.linear(
            np.random.default_rng(3).normal(size=(30, 50)), np.random.default_rng(4).normal(size=30)
        ),
    ],
)
def test_what_fits_the_data_brings_no_warning(target):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sample(target(), draws=40).clashes == ()


def test_units_that_the_default_prior_does_not_fit_are_said_and_fit_has_none():
    rng = np.random.default_rng(5)
    x = rng.normal(size=400)
    y = (rng.logistic(size=400) < 2 * x).astype(float)
    with pytest.warns(UserWarning, match=r"the prior of x\[0\] is .* Take a wider prior"):
        sample(targets.logistic(x[:, None] * 1e-3, y), draws=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert svrhmc.fit("y ~ x", {"y": y, "x": x * 1e-3}, draws=100).clashes == ()
    with pytest.warns(UserWarning, match="the prior of x is"):
        svrhmc.fit("y ~ x", {"y": y, "x": x}, prior=targets.priors.Normal(1e6), draws=100)


def test_long_arrays_are_cut_and_single_numbers_are_shown():
    names = (*(f"theta[{k}]" for k in range(100)), "tau", "plan[a]", "plan[b]", "zeta")
    text = str(Summary(names, {"mean": np.arange(104.0)}))
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[-6:-2]] == ["theta[55]", "tau", "plan[a]", "plan[b]"]
    assert lines[-1] == "… and 44 more of theta (all of them in to_frame())"
    assert "theta[55]" in Summary(names, {"mean": np.arange(104.0)})._repr_html_()
    places, words = rows_to_print(tuple(f"a{k}[{j}]" for k in range(40) for j in range(3)), 60)
    assert (len(places), words) == (40, "80 more")
    assert rows_to_print(("a", "b"), 60) == ([0, 1], "")
    levels = ("Intercept", *(f"region[r{k}]" for k in range(40)), "age")
    folded = str(Summary(levels, {"mean": np.arange(42.0)}, folded=True)).splitlines()
    assert [line.split()[0] for line in folded[-4:-1]] == ["region[r6]", "region[r7]", "age"]
    assert folded[-1] == "… and 32 more of region (all of them in to_frame())"
    assert len(rows_to_print(levels[1:-1], 60, folded=True)[0]) == 40  # alone


def test_a_coefficient_too_small_or_too_large_to_read_is_said_for_a_standard_deviation():
    rng = np.random.default_rng(4)
    cents, share, years = rng.normal(5e5, 2e5, 900), rng.uniform(0, 0.1, 900), rng.normal(40, 10, 900)
    predictor = -2.5e-6 * (cents - 5e5) + 40 * (share - 0.05) + 0.05 * (years - 40)
    table = {"cents": cents, "share": share, "years": years, "y": rng.random(900) < 1 / (1 + np.exp(-predictor))}
    posterior = svrhmc.fit("y ~ cents + share + years", table, draws=200)
    (note,) = (note for note in posterior.summary().notes if note.startswith("Units: "))
    step = float(np.std(cents))
    low, high = np.exp(step * posterior.interval()[1])
    middle = np.exp(step * posterior.quantile(0.5)[1])
    assert f"the odds ratio is {middle:.3g} ({low:.3g} to {high:.3g}) for cents (sd {short(step)}); " in note
    assert "for share (sd " in note
    assert "years" not in note
    hundreds = svrhmc.fit("y ~ cents + share", {**table, "cents": cents / 1e5, "share": 100 * share}, draws=100)
    assert not any(note.startswith("Units: ") for note in hundreds.summary().notes)


@pytest.mark.parametrize(
    ("seconds", "compiling", "words"),
    [(3.914, 3.38, "3.91 s (7.29 s with compilation)"), (3.914, 0.38, "3.91 s"), (391.0, 3.38, "391 s")],
)
def test_time_is_said_with_compilation_where_that_is_noticeable(seconds, compiling, words):
    assert time_in_words(SimpleNamespace(seconds=seconds, compile_seconds=compiling)) == words
