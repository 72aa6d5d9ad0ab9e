"""A report is one page that needs nothing else, in which every name is a text and nothing more."""

import re
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

import svrhmc
from svrhmc.reporting import coefficients, coefficients_csv
from svrhmc.results import checks, figures, findings, summary
from svrhmc.results import report as written
from svrhmc.results.checks import Check
from svrhmc.results.figures import Axis
from svrhmc.sampling.certificate import Certificate
from svrhmc.targets.families import FAMILIES

NASTY = "<script>alert('x')</script>\"&"
VOID = {"meta", "line", "circle", "rect", "path", "br"}


class Page(HTMLParser):
    """Tags in their order; fails where one is not closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.links, self.words = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href", "data", "srcset")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def posterior():
    rng = np.random.default_rng(0)
    dose, plan = rng.uniform(0, 5, 300), rng.choice(["a", NASTY], 300)
    y = 3 + 0.5 * dose + (plan == "a") + rng.normal(size=300)
    return svrhmc.fit(f"y ~ dose + `{NASTY}`", {"y": y, "dose": dose, NASTY: plan})


@pytest.fixture(scope="module")
def text(posterior, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert posterior.report(path, source=NASTY, command=f"svrhmc fit '{NASTY}'", notes=[NASTY]) == path
    return path.read_text()


def test_it_is_one_page_without_scripts_or_requests(text):
    found = Page(text)
    assert not found.links
    assert not re.search(r"url\(|@import|https?://", text)
    assert {"script", "link", "iframe", "img", "object"}.isdisjoint(tag for tag, _ in found.tags)
    assert found.tags[0] == ("html", {"lang": "en"})
    assert "prefers-color-scheme: dark" in text


def test_cells_that_fit_into_no_half_of_a_small_screen_have_a_line_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    dose = rng.uniform(0, 5, 300)
    table = {"sick": rng.random(300) < 1 / (1 + np.exp(2 - dose)), "dose": dose}
    page = svrhmc.fit("sick ~ dose", table, draws=100).report(tmp_path / "sick.html").read_text()
    cells = re.findall(r'<td( class="long")? data-label="([^"]*)">([^<]*)</td>', page)
    long = {(label, bool(mark)) for mark, label, cell in cells if cell}
    assert {("odds ratio (90%)", True), ("sd", False), ("ess", False), ("R-hat", False)} <= long
    assert {("odds ratio (90%)", False), ("sd", True), ("ess", True)}.isdisjoint(long)
    assert "td.long { grid-column: 1 / -1; }" in page


def test_it_says_when_the_model_was_fitted(text, posterior):
    day, hour = posterior.fitted_at.removesuffix("+00:00").split("T")
    assert f"{day} {hour} UTC" in "".join(Page(text).words)


def test_every_name_is_shown_as_it_is(text):
    assert "<script" not in text
    assert NASTY in "".join(Page(text).words)


def test_headings_are_in_order_tables_have_headers_and_figures_texts(text):
    tags = Page(text).tags
    levels = [int(tag[1]) for tag, _ in tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(attrs.get("scope") in ("row", "col") for tag, attrs in tags if tag == "th")
    known = {attrs.get("id") for _, attrs in tags}
    for tag, attrs in tags:
        if tag == "svg":
            assert attrs["role"] == "img"
            assert set(attrs["aria-labelledby"].split()) <= known


def test_it_has_its_parts(text):
    for word in (
        "What is associated with y?", "The data and the model", "Coefficients", "Marginal distributions",
        "Average effects", "How well the model fits", "60 others that it had not seen", "Are the numbers computed correctly?",
        "Chains", "The prior", "To repeat it", "In the shell", "In Python", "prior’s share",
    ):  # fmt: skip
        assert word in text


def luminance(colour):
    parts = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def test_colours_stand_out_from_the_paper(text):
    """WCAG's contrast, 4.5 for texts and 3 for lines of a figure, on light and dark paper."""
    found = re.findall(r"--(\w+): (#\w{6})", text)
    light, dark = dict(found[: len(found) // 2]), dict(found[len(found) // 2 :])
    assert light.keys() == dark.keys()
    for colours in (light, dark):
        for name in ("ink", "soft", "one", "two", "three", "four"):
            for paper in ("paper", "panel"):
                high, low = sorted((luminance(colours[name]), luminance(colours[paper])), reverse=True)
                assert (high + 0.05) / (low + 0.05) >= 4.5, (name, paper)


def test_numbers_are_those_of_the_posterior(posterior, text):
    rows = coefficients(posterior)
    for row in rows:
        assert summary.number(row.mean) in text
    assert [row.mean for row in rows] == posterior.mean.tolist()
    assert all(row.lower < row.mean < row.upper for row in rows)
    assert coefficients_csv((rows[0]._replace(name="=1+1"),)).splitlines()[1].startswith("'=1+1,")


def test_a_posterior_from_a_file_has_a_report_too(posterior, tmp_path):
    posterior.save(tmp_path / "a.posterior")
    svrhmc.report(svrhmc.Posterior.load(tmp_path / "a.posterior"), tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    Page(text)
    assert "How well the model fits" not in text
    bare = svrhmc.sample(svrhmc.targets.linear([[1.0], [2.0]], [1.0, 3.0]))
    with pytest.raises(ValueError, match="coefficients have names"):
        bare.report(tmp_path / "b.html")


def test_rows_that_were_held_out_have_no_part_in_the_second_fit(posterior, monkeypatch):
    seen = []
    share = type(posterior._target).share
    monkeypatch.setattr(
        type(posterior._target), "share", lambda self, rows, p: seen.append(rows) or share(self, rows, p)
    )
    found = checks.compare_with_rows(posterior)
    train, held = seen
    assert not set(train) & set(held)
    assert len(train) + len(held) == 300
    assert found.seen.tolist() == posterior._target.y[held].tolist()
    left = np.sqrt(((found.seen - found.fitted) ** 2).mean())
    assert abs(left - 1) < 4.5 / np.sqrt(2 * len(held))  # the noise has sd 1
    assert np.abs(found.seen - found.fitted[::-1]).mean() > 1.2 * np.abs(found.seen - found.fitted).mean()


def made(outcome, fitted, seen, new=None):
    return Check(outcome, fitted, seen, np.ones(len(seen)), np.asarray(new if new is not None else [seen]), "")


def test_a_calibration_curve_tells_a_model_that_is_right_from_one_that_is_not():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.05, 0.95, 20000)
    y = (rng.random(20000) < p).astype(float)
    away = [abs(s - m) for m, s, _ in figures._binned(p, y, np.ones(len(p)))]
    assert max(away) < 4.5 * 0.5 / np.sqrt(2000)
    twin = [abs(s - m) for m, s, _ in figures._binned(p**2, y, np.ones(len(p)))]
    assert max(twin) > 0.2
    figure, told = figures.fit_figure(made("events", p[:500], y[:500]))
    assert "Brier" in told
    Page(figure)


def test_counts_classes_and_numbers_have_figures_of_their_own():
    rng = np.random.default_rng(2)
    mean = np.full(200, 2.0)
    counts = rng.poisson(mean).astype(float)
    figure, told = figures.fit_figure(made("counts", mean, counts, rng.poisson(2.0, (20, 200))))
    assert f"Zeros: {(counts == 0).sum()} seen" in told
    Page(figure)
    chances = rng.dirichlet(np.ones(3), 200)
    Page(figures.fit_figure(made("classes", chances, np.eye(3)[rng.integers(0, 3, 200)]))[0])
    figure, told = figures.fit_figure(made("numbers", mean, mean))
    assert "variance" not in told
    Page(figure)


def test_every_family_says_what_its_outcome_is():
    assert {name: made_().outcome for name, made_ in FAMILIES.items()} == {
        "bernoulli": "events", "binomial": "events", "poisson": "counts", "gaussian": "numbers", "student-t": "numbers",
        "negative-binomial": "counts", "gamma": "numbers", "categorical": "classes",
        "ordinal": "classes", "beta-binomial": "events", "beta": "numbers", "geometric": "counts",
        "hurdle-poisson": "counts", "hurdle-negative-binomial": "counts", "zero-inflated-poisson": "counts",
        "zero-inflated-negative-binomial": "counts", "log-normal": "numbers", "inverse-gaussian": "numbers",
        "exponential": "numbers", "weibull": "numbers", "log-logistic": "numbers",
    }  # fmt: skip


def test_verdicts_are_sentences(posterior):
    from dataclasses import replace

    def said(verdict, reason=""):
        told = Certificate(verdict, 0.02, posterior.certificate.stein, None, verdict, reason, corrects=not reason)
        return written.verdict_in_words(replace(posterior, certificate=told))

    assert said("certified").startswith("The numbers are computed correctly: bias and chance")
    assert said("refuted").startswith("Do not use the numbers")
    assert (
        said("undecided", "the budget ended too soon")
        == "It is open whether the numbers are computed correctly: the budget ended too soon."
    )
    assert "no verdict was asked for" in said("unjudged")
    local = replace(posterior.certificate, verdict="local", modes="2 modes found from 64 starts")
    told = written.verdict_in_words(replace(posterior, certificate=local))
    assert told.endswith("around 2 modes found from 64 starts, but nothing shows that there is no other.")


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1e-9, 3e-9), (1e6, 1e6 + 3), (5, 5), (-2e12, 7)])
def test_axes_have_some_round_numbers_within_them(low, high):
    axis = Axis(low, high, 0, 100)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 12
    assert all(-1e-6 <= axis(tick) <= 100 + 1e-6 for tick in ticks)


def test_a_report_has_a_title_and_goes_to_a_file_of_html_in_a_folder_that_is_there(posterior, tmp_path):
    for name in ("boss.pdf", "boss.docx"):
        with pytest.raises(
            ValueError, match=r"path must be the name of a file that ends in \.html or \.htm; got '.*boss"
        ):
            posterior.report(tmp_path / name)
    with pytest.raises(ValueError, match=r"in a folder that exists; got '.*nowhere.a\.html': there is no folder"):
        posterior.report(tmp_path / "nowhere" / "a.html")
    with pytest.raises(ValueError, match="it is a folder"):
        posterior.report(tmp_path)
    assert not list(tmp_path.iterdir())
    page = posterior.report(tmp_path / "a.HTM", title="Who leaves & why").read_text()
    assert page.count("Who leaves &amp; why") == 2


def test_a_report_of_many_coefficients_shows_some_of_them():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 40)) * np.geomspace(1, 1e4, 40)
    found = svrhmc.fit("y ~ .", {"y": rng.normal(size=300), **{f"x{j}": X[:, j] for j in range(40)}})
    text = written.page(found)
    assert "The 30 that are furthest from 0 of 40" in text
    assert "for one standard deviation of a number" in text
    assert "coefficients is clearly away" in text or "are clearly away" in text


def test_what_is_unusual_is_said(posterior):
    from dataclasses import replace

    share = np.array([0.9, 0.0, 0.0, 0.0])
    strong = replace(posterior, prior=replace(posterior.prior, share=share), complete=False)
    text = written.page(strong)
    assert "For Intercept, the prior says more than the data" in text
    assert "a budget ended the run" in text
    assert "The prior</h2>" not in written.page(replace(posterior, prior=None))
    rows = coefficients(posterior)
    nothing = [row._replace(lower=-1.0, upper=1.0) for row in rows]
    assert findings.clear_count_sentence(nothing, posterior).startswith(
        "None of the 2 coefficients is clearly away from 0"
    )
    assert findings.clear_count_sentence(rows[:1], posterior) == "There are no coefficients but the intercept."


def test_what_repeats_a_fit_has_its_exposure_and_its_missing_rows():
    table = {"y": [3.0, 1.0, 4.0, 1.0, 5.0], "x": [1.0, 2.0, np.nan, 4.0, 5.0], "years": [1.0, 2.0, 1.0, 3.0, 2.0]}
    text = unescape(written.page(svrhmc.fit("y ~ x", table, "poisson", exposure="years", missing="drop")))
    assert "svrhmc.fit('y ~ x', table, 'poisson', exposure='years', missing='drop', seed=0, tolerance=0.02)" in text
    assert "<dt>Exposure</dt><dd>years</dd>" in text
    assert "Average effects on the mean of y" in text


def test_findings_are_those_of_the_posterior_in_sentences(posterior):
    rows = coefficients(posterior)
    sentences = findings.findings(rows, posterior, None, "", "y")
    dose = next(row for row in rows if row.name == "dose")
    assert (
        f"a one-unit increase in dose goes with an increase of {findings.interval_in_words(dose.mean, dose.lower, dose.upper)} in y."
        in sentences
    )
    level = next(row for row in rows if row.name.startswith(f"{NASTY}["))
    assert any(sentence.startswith(f"compared with {NASTY}, {NASTY} a ") for sentence in sentences) == (level.lower > 0)
    apart = [row._replace(lower=-1.0, upper=1.0) for row in rows]
    assert not findings.findings(apart, posterior, None, "", "y")
    row = dose._replace(mean=np.log(1.6), lower=np.log(1.5), upper=np.log(1.7))
    assert findings.findings([rows[0], row], posterior, None, "the odds", "") == [
        "a one-unit increase in dose multiplies the odds by 1.6 (1.5 to 1.7)."
    ]
    step = findings._standard_steps(posterior)["dose"]
    fine = row._replace(mean=-2e-3 / step, lower=-3e-3 / step, upper=-1e-3 / step)
    assert findings.findings([rows[0], fine], posterior, None, "", "y") == [
        f"an increase of one standard deviation ({findings.short(step)}) in dose goes with a decrease of 0.0020 "
        "(0.0010 to 0.0030) in y."
    ]


def test_of_columns_in_several_terms_the_average_effect_speaks():
    rng = np.random.default_rng(0)
    age, inn = rng.uniform(20, 60, 400), rng.random(400) < 0.5
    plan, vip = rng.choice(["a", "b"], 400), rng.random(400) < 0.5
    y = 0.5 * age + 8 * (plan == "b") + 6 * vip + 0.1 * age * (plan == "b") + 5 * inn + rng.normal(size=400)
    table = {"y": y, "age": age, "plan": plan, "vip": vip, "inn": inn}
    posterior = svrhmc.fit("y ~ np.exp(age / 60) + age * C(plan, Treatment('b')) + bs(age, df=4) * vip + inn", table)
    assert posterior.design.plain_columns == {"inn"}
    assert posterior.design.baselines == ("plan[b]",)
    text = written.page(posterior)
    assert "<li>Inn being true goes with an increase of 5.1" in text
    assert "<li>On average, an increase of one standard deviation (" in text
    assert "<li>On average, vip being true goes with an increase of 6" in text
    assert "<li>On average, compared with a, plan b goes with an increase of 12" in text
    assert "multiplies" not in text[text.index("<ul") : text.index("</ul>")]
    for formula, plain in {
        "y ~ 0 + plan + age": {"age"}, "y ~ C(plan, Sum) + age": {"age"}, "y ~ plan:age": set(), "y ~ s(age) + plan": {"plan"},
        "y ~ C(vip) + np.log(age)": {"vip"},
    }.items():  # fmt: skip
        assert svrhmc.fit(formula, table, draws=20).design.plain_columns == plain


def test_what_a_ratio_multiplies_is_named_where_the_predictor_is_a_logarithm():
    assert FAMILIES["bernoulli"]().multiplied == "the odds of {event}"
    assert FAMILIES["poisson"]().multiplied == FAMILIES["log-normal"]().multiplied == "the mean of {response}"
    assert FAMILIES["gaussian"]().multiplied == ""


def test_names_are_whole_in_a_forest_and_long_tables_are_folded(posterior):
    name = " ".join(f"word{k}" for k in range(40))
    row = coefficients(posterior)[0]._replace(name=name)
    figure = figures.forest_figure([("", [row])], "change", "Coefficients")
    assert " ".join(re.findall(r'class="t name">([^<]*)<', figure)) == name
    assert max(map(len, re.findall(r'class="t name">([^<]*)<', figure))) <= 20
    assert figure.count('class="bar"') == 1
    assert "<details>" in written._table("c", ("", "mean"), [("a", "1")] * 13, 13)
    assert "<details>" not in written._table("c", ("", "mean"), [("a", "1")] * 12, 12)


@pytest.mark.parametrize("formula", ["y ~ s(x) + z", "y ~ poly(x, 2) + z"])
def test_of_an_effect_that_goes_up_and_down_the_course_is_said_and_not_the_slope(formula):
    rng = np.random.default_rng(0)
    x, z = rng.uniform(0, 10, 300), rng.normal(size=300)
    table = {"y": 3 + 0.2 * (x - 5) ** 2 + 0.3 * x + rng.normal(size=300), "x": x, "z": z}
    posterior = svrhmc.fit(formula, table, draws=100)
    effects = posterior.effects(rows=100, draws=100)
    sentences = findings.findings(coefficients(posterior), posterior, effects, "", "y")
    assert any(one.startswith("On average, the mean of y falls and then rises along x: ") for one in sentences)
    assert not any(" in x goes" in one for one in sentences)
    page = written.page(posterior)
    assert '<th scope="row">x (falls and then rises)</th>' in page
    assert "Its average slope says little." in page
    straight = svrhmc.fit(formula, {**table, "y": x + rng.normal(size=300)}, draws=100)
    effects = straight.effects(rows=100, draws=100)
    sentences = findings.findings(coefficients(straight), straight, effects, "", "y")
    assert not any("falls and then" in one or "rises and then" in one for one in sentences)
    assert any(") in x goes" in one for one in sentences)
