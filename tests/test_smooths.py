"""Smooths: the basis and its penalty, designs of formulas, exact posteriors by quadrature, curves, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.interpolate import BSpline

import svrhmc
from svrhmc.core import serialise
from svrhmc.core.errors import DataError
from svrhmc.priors.groups import Group, Smooth
from svrhmc.tables.design import Design, designed
from svrhmc.tables.formula import parse_formula
from svrhmc.tables.smooths import smooths_from_array
from svrhmc.tables.splines import Spline
from svrhmc.targets.priors import HalfNormal, Normal

N = 120


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.gamma(3.0, 2.0, n)
    return {
        "y": np.sin(x / 2) + 0.4 * rng.normal(size=n), "x": x, "z": rng.normal(size=n), "my x": x**2,
        "g": rng.choice(["a", "b"], n), "few": rng.integers(0, 3, n).astype(float), "one": np.ones(n),
        "count": rng.integers(0, 8, n), "true": rng.random(n) < 0.5, "only": ["u"] * n,
        "rare": np.where(np.arange(n) < 3, "r", "s"),
    }  # fmt: skip


XS = {
    "even": np.linspace(-1, 1, 60),
    "skewed": np.random.default_rng(1).lognormal(0, 1.5, 300),
    "ties": np.random.default_rng(2).integers(0, 12, 200).astype(float),
    "years": 2000 + np.random.default_rng(3).random(90),
    "close": np.concatenate([np.linspace(0, 1e-2, 30), [1.0]]),
}


@pytest.mark.parametrize("x", XS.values(), ids=XS)
@pytest.mark.parametrize("k", [4, 5, 10])
def test_the_basis(x, k):
    spline = Spline.fit(x, k)
    B, u = spline.basis(x), (x - spline.low) / spline.width
    assert B.shape == (len(x), k - 2)
    np.testing.assert_allclose(B.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose((u - u.mean()) @ B, 0, atol=1e-10)
    np.testing.assert_allclose((B**2).sum(axis=1).mean(), 1, rtol=1e-10)
    gram = B.T @ B
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-10 * len(x))
    # the span of B-splines on the same knots is that of 1, u and B, and a line is reproduced
    knots = np.concatenate([[0.0] * 3, spline.knots, [1.0] * 3])
    fine = np.linspace(0, 1, 50)
    ours = np.column_stack([np.ones(50), fine, spline.evaluate(fine)])
    theirs = BSpline.design_matrix(np.minimum(fine, 1 - 1e-14), knots, 3).toarray()
    np.testing.assert_allclose(theirs @ np.linalg.lstsq(theirs, ours)[0], ours, atol=1e-9)


@pytest.mark.parametrize("name", ["even", "skewed", "years"])
def test_the_penalty_is_the_integral_of_the_squared_second_derivative(name):
    spline = Spline.fit(XS[name], 8)
    nodes, weights = np.polynomial.legendre.leggauss(4)

    def penalty(factor):
        total, h = 0.0, 1e-3
        for a, b in zip(spline.knots[:-1], spline.knots[1:], strict=True):
            step, middle = h * (b - a), (a + b) / 2
            at = middle + nodes * (b - a) / 2
            second = (spline.evaluate(at + step) - 2 * spline.evaluate(at) + spline.evaluate(at - step)) / step**2
            total = total + (second * (weights * (b - a) / 2)[:, None]).T @ second
        return factor * total / spline.roughness

    np.testing.assert_allclose(penalty(1.0), np.eye(6), atol=2e-5)  # differences of second order: 1e-16/h² and no more
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(penalty(1.001), np.eye(6), atol=2e-5)
    exact = 0.0
    for i, h in enumerate(np.diff(spline.knots)):
        at = (nodes + 1) / 2
        second = spline.curvatures[i] + at[:, None] * (spline.curvatures[i + 1] - spline.curvatures[i])
        exact = exact + (second * (weights * h / 2)[:, None]).T @ second
    np.testing.assert_allclose(exact / spline.roughness, np.eye(6), atol=1e-10)


def test_curves_have_two_derivatives_and_go_on_as_lines():
    spline = Spline.fit(XS["even"], 9)
    inner = spline.knots[1:-1]
    for side in (-1e-9, 1e-9):
        np.testing.assert_allclose(spline.evaluate(inner + side), spline.evaluate(inner), atol=1e-7)
    low, high = spline.evaluate(np.array([-1.0, -0.5, 0.0])), spline.evaluate(np.array([1.0, 1.5, 2.0]))
    for three in (low, high):
        np.testing.assert_allclose(three[0] - 2 * three[1] + three[2], 0, atol=1e-10)
    h = 1e-6
    ends = spline.evaluate(np.array([-h, 0.0, h, 1 - h, 1.0, 1 + h]))
    np.testing.assert_allclose(ends[1] - ends[0], ends[2] - ends[1], atol=1e-9)
    np.testing.assert_allclose(ends[4] - ends[3], ends[5] - ends[4], atol=1e-9)


def test_units_do_not_matter():
    x = XS["skewed"]
    B = Spline.fit(x, 10).basis(x)
    for other in (1000 * x, 2000 + x, 1e-12 * x, 1e6 * (x - 3)):
        np.testing.assert_allclose(Spline.fit(other, 10).basis(other), B, atol=1e-8)


@pytest.mark.parametrize(
    ("text", "names", "smooths"),
    [
        ("s(x)", ["s(x)[line]"], ["s(x)"]),
        ("z + s(x, k=6) + s(z, k=5)", None, None),
        ("s( x , k = 6 ) + g", ["g[b]", "s(x)[line]"], ["s(x)"]),
        ("s(`my x`)", ["s(my x)[line]"], ["s(my x)"]),
        ("s(np.log(x)) + x", ["x", "s(np.log(x))[line]"], ["s(np.log(x))"]),
        ("g + s(x, by=g)", ["g[b]", "s(x):g[a][line]", "s(x):g[b][line]"], ["s(x):g[a]", "s(x):g[b]"]),
        ("(1 | g) + s(x, by=g)", ["s(x):g[a][line]", "s(x):g[b][line]"], ["s(x):g[a]", "s(x):g[b]"]),
        ("true + s(x, by=true)", ["true", "s(x):true[False][line]", "s(x):true[True][line]"],
         ["s(x):true[False]", "s(x):true[True]"]),
        ("z + s(x, by=z)", ["z", "s(x):z[line]"], ["s(x):z"]),
        ("C(few) + s(x, by=C(few))", ["few[1]", "few[2]", *(f"s(x):few[{j}][line]" for j in range(3))],
         [f"s(x):few[{j}]" for j in range(3)]),
        ("s(x) + z + s(x, by=z)", ["z", "s(x)[line]", "s(x):z[line]"], ["s(x)", "s(x):z"]),
        ("g*z + s(x)", ["g[b]", "z", "g[b]:z", "s(x)[line]"], ["s(x)"]),
        ("s(count)", ["s(count)[line]"], ["s(count)"]),
        ("0 + s(x)", ["s(x)[line]"], ["s(x)"]),
    ],
)  # fmt: skip
def test_designs(text, names, smooths):
    if names is None:
        with pytest.raises(DataError, match="straight line of 'z'"):
            designed(f"y ~ {text}", table())
        return
    made = designed(f"y ~ {text}", table())
    assert list(made.design.names) == names
    assert [term.name for term in made.groups if isinstance(term, Smooth)] == smooths
    again = made.design.bases_of(table())
    own = [term.basis for term in made.groups if not isinstance(term, Group)]
    for new, fitted in zip(again, own, strict=True):
        np.testing.assert_array_equal(new, fitted)
    assert np.isfinite(made.X).all()


def test_levels_have_their_own_rows():
    data = table()
    made = designed("y ~ g + s(x, by=g)", data)
    inside = data["g"] == "a"
    first, line = made.groups[0].basis, made.X[:, 1]
    assert not first[~inside].any()
    assert not line[~inside].any()
    own = Spline.fit(data["x"][inside], 10).basis(data["x"][inside])
    np.testing.assert_allclose(first[inside], own, atol=1e-12)
    np.testing.assert_allclose([first.sum(axis=0).max(), line.sum()], 0, atol=1e-9)
    by_number = designed("y ~ z + s(x, by=z)", data).groups[0].basis
    plain = designed("y ~ s(x)", data).groups[0].basis
    np.testing.assert_allclose(by_number, data["z"][:, None] * plain, atol=1e-12)


def test_k_counts_constant_and_line():
    assert [term.count for term in designed("y ~ s(x) + s(z, k=20) + s(count)", table()).groups] == [8, 18, 6]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s(x, z)", "one column, such as s(age), and s(x, z) has 2"),
        ("s()", "has none"),
        ("s(g)", "holds texts or categories"),
        ("s(C(count))", "holds texts or categories"),
        ("s(one)", "'one' in s(one) is 1 in every row"),
        ("s(few)", "at least 4 different values of 'few', and there are 3"),
        ("s(x, k=3)", "k of s(x, k=3) is at least 4"),
        ("s(count, k=9)", "k of s(count, k=9) is at most 8, as 'count' has 8 different values"),
        ("s(x, k=1000)", "at most 120"),
        ("s(x, k=-5)", "whole number"),
        ("s(x, k=2.5)", "whole number"),
        ("s(x, k=5, k=6)", "k=… twice"),
        ("s(x, bs='cr')", "has bs=…, and a smooth takes k=…"),
        ("s(x, m=2)", "has m=…"),
        ("s(x, fx=True)", "has fx=…"),
        ("s(x, by=g)", "'g' has no effect of its own: add it, as in g + s(x, by=g)"),
        ("z:g + s(x, by=g)", "add it"),
        ("x + s(x)", "take the term x out"),
        ("np.log(x) + s(np.log(x))", "take the term {np.log(x)} out"),
        ("s(x) + s(x, k=5)", "are one smooth"),
        ("g + s(x) + s(x, by=g)", "is in the curves of s(x, by=g)"),
        ("only + s(x, by=only)", "one level only"),
        ("rare + s(x, by=rare)", "there are 3 in the rows of rare[r]"),
        ("one + s(x, by=one)", "is 1 in every row"),
        ("g + s(x, by=g:z)", "by=… of s(x, by=g:z)"),
        ("z + s(x, by=np.log(z))", "is a column, or C(column)"),
        ("s(x):z", "stand in no product"),
        ("z*s(x)", "stand in no product"),
        ("(s(x))", "stand in no product"),
        ("(s(x) | g)", "stand in no product"),
        ("np.exp(s(x))", "stand in no product"),
        ("s(s(x))", "a smooth of no column"),
        ("z - s(x)", "leave s(x) out"),
        ("s(bs(x, df=4))", "makes 4 columns"),
        ("s(nothing)", "'nothing'"),
        ("s(y)", "stands among its own predictors"),
        ("s(np.log(z))", "must be finite"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_what_is_refused(text, why):
    with pytest.raises(DataError) as caught:
        designed(f"y ~ {text}", table())
    assert why in str(caught.value)


def test_other_splines_dots_and_functions_of_that_name():
    assert len(designed("y ~ bs(x, df=4) + poly(z, 2) + cr(count, df=4)", table()).design.names) == 10
    assert [term.formula_text for term in parse_formula("y ~ . + s(x)", ["y", "x", "z"]).terms] == ["z"]
    with pytest.raises(DataError, match="rename it"):
        designed("y ~ s(x)", table(), transforms={"s": np.sqrt})
    twice = designed("y ~ s(double(x))", table(), transforms={"double": lambda x: 2 * x})
    np.testing.assert_allclose(twice.groups[0].basis, designed("y ~ s(x)", table()).groups[0].basis, atol=1e-8)


def test_missing_values():
    data = table()
    data["x"][:5] = np.nan
    with pytest.raises(DataError, match=r"'x' \(5 missing\)"):
        designed("y ~ s(x)", data)
    made = designed("y ~ s(x)", data, drop=True)
    assert made.groups[0].n == N - 5
    assert made.dropped == 5


def test_files(tmp_path):
    design = designed("y ~ g + s(np.log(x), by=g) + z + s(count, by=z)", table()).design
    serialise.save(tmp_path / "design", design, "design", 1)
    again = serialise.load(tmp_path / "design", Design, "design", 1)
    new = {**table(seed=5), "x": np.full(N, 100.0)}
    for a, b in zip(again.bases_of(new), design.bases_of(new), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(DataError, match="'c' in row 0"):
        again.bases_of({**new, "g": ["c"] * N})
    text = json.loads(design.smooth_terms.astype("<i8").tobytes())
    for wrong in (text[0][:5], [*text[0][:-1], [[1.0]]], ["s", text[0][1].replace('"line"', '"number"'), *text[0][2:]]):
        packed = json.dumps([wrong]).encode()
        packed += b" " * (-len(packed) % 8)
        with pytest.raises(ValueError, match="smooth_terms must be those of a design"):
            smooths_from_array(np.frombuffer(packed, "<i8"))


# Posteriors


class Exact:
    """The posterior of y = Xβ + Bv + noise, by quadrature over (log τ, log σ): given these all is Gaussian.

    factor: by which the penalty is wrong, for a negative control.
    """

    def __init__(self, X, B, y, prior_sd, tau_scale, sigma_prior, at, points=41, factor=1.0):
        A, n = np.column_stack([X, B]), len(y)
        gram, force, total = A.T @ A, A.T @ y, y @ y
        q, p = B.shape[1], X.shape[1]
        self.values = []

        def given(phi, log_sigma):
            tau, sigma = np.exp(phi), np.exp(log_sigma)
            precision = np.concatenate([prior_sd**-2.0, np.full(q, factor * tau**-2.0)])
            H = gram / sigma**2 + np.diag(precision)
            L = np.linalg.cholesky(H)
            mean = np.linalg.solve(H, force / sigma**2)
            log = -n * log_sigma - 0.5 * total / sigma**2 + 0.5 * mean @ force / sigma**2
            log += 0.5 * np.log(precision).sum() - np.log(np.diag(L)).sum()
            log += -0.5 * (tau / tau_scale) ** 2 + phi + stats.norm.logpdf(log_sigma, *sigma_prior)
            half = np.linalg.solve(L, at.T)
            G = H - np.diag(precision)
            inner = G[p:, p:] - G[p:, :p] @ np.linalg.solve(G[:p, :p], G[:p, p:])
            edf = 1 + np.trace(np.linalg.solve(inner + np.diag(precision[p:]), inner))
            return log, at @ mean, (half**2).sum(axis=0), edf

        noise = np.log(np.std(y - A @ np.linalg.lstsq(A, y)[0]))
        phis = np.linspace(np.log(tau_scale) - 7, np.log(tau_scale) + 1.3, points)
        sigmas = noise + np.linspace(-6, 8, points) / np.sqrt(2 * n)
        found = [given(phi, log_sigma) for phi in phis for log_sigma in sigmas]
        log, mean, variance, edf = (np.array(part) for part in zip(*found, strict=True))
        weights = np.exp(log - log.max())
        self.weights = weights / weights.sum()
        self.mean = self.weights @ mean
        self.sd = np.sqrt(self.weights @ (variance + mean**2) - self.mean**2)
        self.edf = self.weights @ edf
        self._parts = mean, np.sqrt(variance)

    def probability(self, low, high):
        """Of an interval at each place."""
        mean, sd = self._parts
        return self.weights @ (stats.norm.cdf((high - mean) / sd) - stats.norm.cdf((low - mean) / sd))


DATA_SETS = {
    "wave": lambda rng, x: np.sin(x),
    "line": lambda rng, x: 0.5 * x,
    "step": lambda rng, x: np.tanh(4 * (x - 4)),
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_gaussian_posterior_is_that_of_quadrature(name):
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 8, 90)
    y = DATA_SETS[name](rng, x) + 0.5 * rng.normal(size=90)
    posterior = svrhmc.fit("y ~ s(x)", {"y": y, "x": x}, draws=4000, seed=3)
    assert posterior.certificate.verdict == "exact"
    size, centred = y.std(ddof=0), x - x.mean()
    grid = np.linspace(x.min(), x.max(), 25)
    B = Spline.fit(x, 10)
    at = np.column_stack([np.ones(25), grid - x.mean(), B.basis(grid)])
    X = np.column_stack([np.ones(90), centred])
    scale = float(posterior.prior.said.split("HalfNormal(")[1].split(")")[0])
    np.testing.assert_allclose(scale, 2.5 * size, rtol=2e-3)
    settings = (np.array([5 * size, 2.5 * size / x.std()]), 2.5 * size, (np.log(size), 5.0), at)
    exact = Exact(X, B.basis(x), y - y.mean(), *settings)
    frame = posterior.predict({"x": grid}, draws=10**6)
    effective = posterior.ess.min()
    z = (frame.mean - y.mean() - exact.mean) / (exact.sd / np.sqrt(effective))
    assert np.abs(z).max() < 4.5
    assert np.abs(frame.sd / exact.sd - 1).max() < 4.5 * 1.5 / np.sqrt(effective)
    curve = posterior.smooth("x", points=25)[0]
    centre = Exact(X, B.basis(x), y - y.mean(), *settings[:-1], at - [1, *[0] * 9])
    np.testing.assert_allclose(curve.x, grid)
    inside = centre.probability(*curve.interval.T)
    assert np.abs(inside - 0.9).max() < 4.5 * np.sqrt(0.1 * 0.9 * 2 / effective)
    edf_error = curve.edf.std() / np.sqrt(min(effective, len(curve.edf)))
    assert abs(curve.edf.mean() - centre.edf) < 4.5 * edf_error
    wrong = Exact(X, B.basis(x), y - y.mean(), *settings, factor=9.0)
    if name != "line":  # where the smoothness is known by the prior alone, a scale of its own would be no other law
        assert np.abs((frame.mean - y.mean() - wrong.mean) / (wrong.sd / np.sqrt(effective))).max() > 4.5


@pytest.mark.slow
def test_a_logit_posterior_is_that_of_quadrature():
    """Against importance sampling with 2·10⁵ draws from Laplace's approximation on a grid of log τ."""
    rng = np.random.default_rng(6)
    n, x = 400, rng.uniform(0, 8, 400)
    y = (rng.random(n) < 1 / (1 + np.exp(-1.5 * np.sin(x)))).astype(float)
    posterior = svrhmc.fit("y ~ s(x, k=6)", {"y": y, "x": x}, family="bernoulli", draws=8000, seed=2)
    B = Spline.fit(x, 6)
    grid = np.linspace(x.min(), x.max(), 15)
    A = np.column_stack([np.ones(n), x - x.mean(), B.basis(x)])
    at = np.column_stack([np.ones(15), grid - x.mean(), B.basis(grid)])
    typical = np.log(y.mean() / (1 - y.mean()))
    prior_mean = np.array([typical, 0, 0, 0, 0, 0])
    log_weights, curves = [], []
    for phi in np.linspace(-5, 2.5, 61):
        tau = np.exp(phi)
        precision = np.concatenate([[5.0**-2, (2.5 / x.std()) ** -2.0], np.full(4, tau**-2.0)])
        w = prior_mean.copy()
        for _ in range(60):
            p = 1 / (1 + np.exp(-A @ w))
            H = (A * (p * (1 - p))[:, None]).T @ A + np.diag(precision)
            w = w - np.linalg.solve(H, A.T @ (p - y) + precision * (w - prior_mean))
        L = np.linalg.cholesky(H)
        e = rng.standard_t(6, size=(4000, 6))
        draws = w + np.linalg.solve(L.T, e.T).T
        t = draws @ A.T
        log = (t * y - np.logaddexp(0, t)).sum(axis=1) - 0.5 * ((draws - prior_mean) ** 2) @ precision
        log += 0.5 * np.log(precision).sum() - 0.5 * (tau / 2.5) ** 2 + phi
        log -= stats.t.logpdf(e, 6).sum(axis=1) + np.log(np.diag(L)).sum()
        log_weights.append(log)
        curves.append(draws @ at.T)
    log, t = np.concatenate(log_weights), np.concatenate(curves)
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    p = 1 / (1 + np.exp(-t))
    mean = weights @ p
    sd = np.sqrt(weights @ p**2 - mean**2)
    prediction = posterior.predict({"x": grid}, draws=10**6)
    assert np.abs((prediction.mean - mean) / sd).max() < 4.5 / np.sqrt(posterior.ess.min()) + 0.01
    assert np.abs(prediction.sd / sd - 1).max() < 0.05


@pytest.fixture(scope="module")
def fitted():
    return svrhmc.fit("y ~ g + s(x) + (1 | count)", table(), draws=400, seed=1)


def test_units_of_x_change_no_prediction():
    data = table()
    usual = svrhmc.fit("y ~ s(x)", data, draws=200).predict({"x": [1.0, 5.0, 30.0]})
    for move in (lambda x: 1000 * x, lambda x: 2000 + x):
        moved = svrhmc.fit("y ~ s(x)", {**data, "x": move(data["x"])}, draws=200)
        again = moved.predict({"x": move(np.array([1.0, 5.0, 30.0]))})
        np.testing.assert_allclose(again.mean, usual.mean, rtol=1e-5)
        np.testing.assert_allclose(again.sd, usual.sd, rtol=1e-4)


def test_predictions_leave_out_groups_and_keep_smooths(fitted):
    new = {"x": [1.0, 5.0, 9.0], "g": ["a"] * 3, "count": [0, 1, 99]}
    bare = fitted.predict(new, include_groups=False).mean
    curve, labels = fitted.smooth("s(x)"), fitted.labels
    at = np.interp(new["x"], curve[0].x, curve[0].mean)
    np.testing.assert_allclose(bare, fitted.mean[labels.index("Intercept")] + at, atol=0.02)
    assert np.abs(bare - fitted.mean[0]).max() > 0.3
    average = fitted.predict(new, new_groups="average").mean
    assert np.isclose(average[2], bare[2])
    assert not np.isclose(average[0], bare[0], atol=1e-6)


def test_what_a_fit_says(fitted, tmp_path):
    assert "sd(s(x))" in fitted.labels
    assert "s(x)[line]" in fitted.labels
    text = str(fitted.summary())
    assert "groups: count (8 levels); smooths: s(x)" in text.replace("\n", " ")
    assert "effective degrees of freedom with 90% intervals: s(x)" in text.replace("\n", " ")
    curves = fitted.smooth("x")
    assert "edf" in str(curves)
    assert len(curves) == 1
    assert curves._repr_html_().startswith("<")
    frame = curves.to_frame()
    assert list(frame.columns) == ["smooth", "x", "mean", "sd", "5%", "95%"]
    assert len(frame) == 200
    assert (frame["5%"] < frame["mean"]).all()
    assert (frame["mean"] < frame["95%"]).all()
    assert curves[0].edf.min() >= 1
    assert curves[0].edf.max() <= 9
    curves.plot(tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").stat().st_size > 1000
    assert isinstance(fitted.smooth().to_frame(), pd.DataFrame)
    for wrong in ("s(z)", "g", 3):
        with pytest.raises(ValueError, match="a smooth or its column"):
            fitted.smooth(wrong)
    page = fitted.report(tmp_path / "report.html").read_text()
    assert "s(x) with its band" in page
    assert "Groups and Smooths" in page
    assert set(fitted.groups().levels) == {str(j) for j in range(8)}
    with pytest.raises(ValueError, match="grouping factor"):
        fitted.groups("s(x)")
    assert "R2 marginal" in fitted.variances().names
    assert not any("s(x)" in name for name in fitted.variances().names)
    arviz = fitted.to_arviz().posterior
    assert arviz["s(x)"].shape[-1] == 8
    assert arviz["1|count"].shape[-1] == 8


def test_effects_and_files(fitted, tmp_path):
    effects = fitted.effects().to_frame()
    assert any("x" in str(name) for name in effects.index)
    fitted.save(tmp_path / "fit.posterior")
    again = svrhmc.Posterior.load(tmp_path / "fit.posterior")
    new = {"x": [1.0, 50.0], "g": ["a", "b"], "count": [1, 2]}
    np.testing.assert_array_equal(again.predict(new).mean, fitted.predict(new).mean)
    np.testing.assert_array_equal(again.smooth("x")[0].edf, fitted.smooth("x")[0].edf)


def test_priors_of_smooths_by_name():
    data = table()
    tight = svrhmc.fit("y ~ s(x)", data, draws=200, prior={"s(x)": HalfNormal(0.01), "s(x)[line]": Normal(1e8)})
    assert tight.mean[tight.labels.index("sd(s(x))")] < 0.03
    assert abs(tight.mean[tight.labels.index("s(x)[line]")]) < 0.001
    assert "sd(s(x)) ~ HalfNormal(0.01)" in tight.prior.said
    with pytest.raises(ValueError, match=r"the prior of 's\(x\)' must be HalfNormal"):
        svrhmc.fit("y ~ s(x)", data, prior={"s(x)": Normal(1.0)})
    with pytest.raises(ValueError, match=r"'s\(x\)'"):
        svrhmc.fit("y ~ s(x)", data, prior={"s(z)": HalfNormal(1.0)})


def test_arrays_take_their_functions():
    data = table()
    B = Spline.fit(data["x"], 8)
    smooth = Smooth(B.basis(data["x"]), "f(x)")
    posterior = svrhmc.fitting.regress(data["x"][:, None], data["y"], groups=[smooth], draws=200)
    new = np.array([2.0, 4.0])
    by_array = posterior.predict(new[:, None], groups=[B.basis(new)]).mean
    by_table = svrhmc.fit("y ~ s(x, k=8)", data, draws=200).predict({"x": new}).mean
    np.testing.assert_allclose(by_array, by_table, atol=0.05)
    with pytest.raises(ValueError, match=r"f\(x\) \(its functions at the rows\)"):
        posterior.predict(new[:, None], include_groups=False)
    with pytest.raises(ValueError, match="one of arrays"):
        posterior.smooth()


def test_tables_in_partitions_say_so(tmp_path):
    data = pd.DataFrame(table())[["y", "x"]]
    data.to_parquet(tmp_path / "part.parquet")
    with pytest.raises(DataError, match="whole table in memory"):
        svrhmc.fit("y ~ s(x)", svrhmc.data.from_parquet(tmp_path))


def test_no_scale_is_one_degree_of_freedom():
    data = table()
    line = svrhmc.fit("y ~ s(x)", data, draws=200, prior={"s(x)": HalfNormal(1e-9)})
    np.testing.assert_allclose(line.smooth("x")[0].edf, 1.0, atol=1e-12)
    free = svrhmc.fit("y ~ s(x, k=5)", data, draws=200, prior={"s(x)": HalfNormal(1e6)})
    assert abs(free.smooth("x")[0].edf.mean() - 4) < 0.1
