"""Group effects in formulas: the grammar, the levels and columns of a design, what is refused, and priors by name."""

import json
import pickle
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from typer.testing import CliRunner

import svrhmc
from svrhmc.core import serialise
from svrhmc.core.errors import DataError
from svrhmc.fitting import regression as door
from svrhmc.fitting.priors import with_given_priors
from svrhmc.priors.groups import Group
from svrhmc.shell.app import app
from svrhmc.tables.columns import columns_of
from svrhmc.tables.design import Design, designed
from svrhmc.tables.formula import parse_formula
from svrhmc.targets import glm
from svrhmc.targets.priors import LKJ, Exponential, HalfNormal, Normal

COLUMNS = ["y", "x", "z", "a", "b", "g", "my school", "plan"]


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "y": rng.normal(size=n), "x": rng.normal(size=n), "z": rng.normal(size=n), "t": rng.random(n),
        "a": rng.choice(["p", "q", "r"], n), "b": rng.integers(0, 4, n), "g": rng.choice(["s1", "s2", "s3"], n),
        "plan": rng.choice(["basic", "pro"], n), "my school": rng.choice(["u", "v"], n), "id": np.arange(n),
        "one": ["only"] * n, "three": np.full(n, 3.0), "true": rng.random(n) < 0.5, "1": rng.normal(size=n),
        "half": rng.choice([0.5, 1.0, 1.5], n), "a:b": rng.choice(["k", "l"], n), "events": rng.poisson(2.0, n),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "terms", "intercept", "groups"),
    [
        ("(1 | g)", [], True, ["(1 | g)"]),
        ("1 + (1|g)", [], True, ["(1 | g)"]),
        ("0 + x + (1|g)", ["x"], False, ["(1 | g)"]),
        ("x + (x | g)", ["x"], True, ["(1 + x | g)"]),
        ("x + ( 1+x|g )", ["x"], True, ["(1 + x | g)"]),
        ("(0 + x | g)", [], True, ["(0 + x | g)"]),
        ("(x - 1 | g)", [], True, ["(0 + x | g)"]),
        ("(-1 + x | g) + z", ["z"], True, ["(0 + x | g)"]),
        ("(x || g)", [], True, ["(1 + x || g)"]),
        ("(1 | a/b)", [], True, ["(1 | a)", "(1 | a:b)"]),
        ("(x | a/b/g)", [], True, ["(1 + x | a)", "(1 + x | a:b)", "(1 + x | a:b:g)"]),
        ("(1 | b %in% a)", [], True, ["(1 | a)", "(1 | a:b)"]),
        ("(1 | a:b)", [], True, ["(1 | a:b)"]),
        ("(1 | a*b)", [], True, ["(1 | a)", "(1 | b)", "(1 | a:b)"]),
        ("(1 | a + b)", [], True, ["(1 | a)", "(1 | b)"]),
        ("(1 | a) + x + (0 + x | b)", ["x"], True, ["(1 | a)", "(0 + x | b)"]),
        ("(1 | g) + (0 + x | g)", [], True, ["(1 | g)", "(0 + x | g)"]),
        ("(1 | `my school`)", [], True, ["(1 | `my school`)"]),
        ("(1 | C(g))", [], True, ["(1 | g)"]),
        ("(x*z | g)", [], True, ["(1 + x + z + x:z | g)"]),
        ("(np.log(x) + C(plan) + poly(x, 2) | g)", [], True, ["(1 + {np.log(x)} + {C(plan)} + {poly(x, 2)} | g)"]),
        (". + (1 | g)", ["x", "z", "a", "b", "`my school`", "plan"], True, ["(1 | g)"]),
        (". + (1 | (a):b)", ["x", "z", "g", "`my school`", "plan"], True, ["(1 | a:b)"]),
        (". - x - plan + (1 | a/b/g/`my school`)", ["z"], True,
         ["(1 | a)", "(1 | a:b)", "(1 | a:b:g)", "(1 | a:b:g:`my school`)"]),
        ("(g) + (a + b)", ["g", "a", "b"], True, []),
        ("{a | b} + (1 | g)", ["{a | b}"], True, ["(1 | g)"]),
    ],
)  # fmt: skip
def test_the_grammar(text, terms, intercept, groups):
    made = parse_formula(f"y ~ {text}", COLUMNS)
    assert [term.formula_text for term in made.terms] == terms
    assert made.intercept == intercept
    assert [group.formula_text for group in made.groups] == groups
    again = parse_formula("y ~ " + " + ".join(["1", *groups]), COLUMNS)
    assert [(group.terms, group.intercept, group.factor) for group in again.groups] == [
        (group.terms, group.intercept, group.factor) for group in made.groups
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 | g", "stand in brackets"),
        ("x || g", "stand in brackets"),
        ("(1 | g", "not closed"),
        ("(1 |)", "column is expected"),
        ("(| g)", "column is expected"),
        ("(1 | a | b)", "one bar"),
        ("(x | 1)", "no grouping factor"),
        ("(1 | 0)", "no grouping factor"),
        ("(1 | .)", "'.' stands for no grouping factor"),
        ("(1 | g):x", "stand in no product"),
        ("x*(1 | g)", "stand in no product"),
        ("(1 | g)**2", "stand in no product"),
        ("((1 | g))", "other brackets"),
        ("(x + (1 | g))", "other brackets"),
        ("((1 | a) | b)", "other brackets"),
        ("x - (1 | g)", "leave (1 | g) out"),
        ("(0 | g)", "nothing varies"),
        ("(1 | g) + (1|g)", "(1 | g) stands twice, in (1 | g) and in (1|g)"),
        ("(1 | g) + (x | g)", "(0 + x | g) has none"),
        ("(0 + x | g) + (x || g)", "(x | g) stands twice"),
        ("(1 | a:b) + (1 | b:a)", "stands twice"),
        ("(1 | a/b) + (1 | a)", "(1 | a) stands twice, in (1 | a/b) and in (1 | a)"),
        ("(1 | np.floor(x))", "make a column of it first"),
        ("(1 | {x > 0})", "make a column of it first"),
        ("(1 | g g)", "'g' is not expected"),
        ("(1 | g)(1 | a)", "'(' is not expected"),
        ("(1 | one)", "'one' has one level only, 'only'"),
        ("(1 | one:one)", "has one level only"),
        ("(three | g)", "is 3 in every row, and cannot be told from the intercept"),
        ("(0 + {three - 3} | g)", "is 0 in every row"),
        ("(1 | t)", "looks like a measurement"),
        ("(x*z*t*C(b) | g)", "at most 12"),
        ("(plan + C(plan) | g)", "two columns named 'plan[pro]'"),
        ("(`1` | g)", "two columns named '1'"),
        ("g + (1 | g)", "take one of the two out"),
        ("(1 | a:b) + (1 | `a:b`)", "two parameters would be named 'sd(1 | a:b)'"),
    ],
)
def test_what_is_refused_quotes_the_formula(text, why):
    formula = f"y ~ {text}"
    with pytest.raises(DataError) as error:
        designed(formula, table())
    assert why in str(error.value)
    assert repr(formula) in str(error.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(1 | schol)", "did you mean 'my school'?"),
        ("(xx | g)", "no column 'xx'"),
        ("(1 | y)", "stands among its own predictors"),
        ("(np.log(x) | g)", "must be finite"),
        ("(one | g)", "one level only"),
        ("(evil(x) | g)", "no function of formulas"),
    ],
)
def test_columns_are_refused_as_in_the_rest_of_a_formula(text, why):
    with pytest.raises(DataError) as error:
        designed(f"y ~ {text}", table())
    assert why in str(error.value)


def test_the_successes_and_failures_of_lme4_are_answered_with_trials():
    with pytest.raises(DataError, match="write the successes alone, and their trials as"):
        designed("cbind(y, x) ~ 1 + (1 | g)", table())


def test_levels_and_columns_of_groups():
    data = table()
    made = designed("y ~ x + (1 + np.exp(x) + plan | g) + (1 | a/b) + (1 | true) + (1 | half) + (1 | C(t))", data)
    slopes, outer, nested, truth, half, each = made.groups
    assert slopes.name == "g"
    assert slopes.levels == ("s1", "s2", "s3")
    assert slopes.column_names == ("1", "plan[pro]", "np.exp(x)")
    pro = np.asarray(data["plan"]) == "pro"
    np.testing.assert_allclose(slopes.columns, np.column_stack([np.ones(60), pro, np.exp(data["x"])]))
    np.testing.assert_array_equal(np.array(slopes.levels)[slopes.index], data["g"])
    assert outer.levels == ("p", "q", "r")
    expected = sorted({f"{a}:{b}" for a, b in zip(data["a"], data["b"], strict=True)})
    assert nested.name == "a:b"
    assert list(nested.levels) == expected
    names = [f"{a}:{b}" for a, b in zip(data["a"], data["b"], strict=True)]
    assert [nested.levels[k] for k in nested.index] == names
    assert truth.levels == ("False", "True")
    assert half.levels == ("0.5", "1", "1.5")
    assert each.count == 60
    assert made.design.names == ("x",)
    assert made.design.variables == ("x", "g", "plan", "a", "b", "true", "half", "t")
    assert made.design.coefficient_variables == ("x",)


def test_two_bars_make_a_term_of_each_column():
    made = designed("y ~ x + (x + plan + poly(z, 2) || g)", table())
    assert [group.column_names for group in made.groups] == [
        ("1",), ("x",), ("plan[pro]",), ("poly(z, 2)[1]",), ("poly(z, 2)[2]",),
    ]  # fmt: skip
    together = designed("y ~ x + (x + plan + poly(z, 2) | g)", table()).groups[0]
    np.testing.assert_array_equal(np.column_stack([group.columns for group in made.groups]), together.columns)


def test_levels_are_in_the_order_of_the_table():
    data = pd.DataFrame(table())
    data["g"] = pd.Categorical(data["g"], ["s3", "s1", "s2", "s0"], ordered=True)
    group = designed("y ~ (1 | g)", data).groups[0]
    assert group.levels == ("s3", "s1", "s2")
    assert [group.levels[k] for k in group.index] == data["g"].tolist()


def test_missing_levels_are_refused_or_dropped():
    data = {**table(), "g": np.array([None, *table()["g"][1:]], object)}
    with pytest.raises(DataError, match=r"missing values in 'g' \(1 missing\)"):
        designed("y ~ x + (1 | g)", data)
    made = designed("y ~ x + (1 | g)", data, drop=True)
    assert made.dropped == 1
    assert len(made.groups[0].index) == len(made.X) == 59
    lonely = {**data, "g": np.array(["s0", *data["g"][1:]], object), "x": np.array([np.nan, *data["x"][1:]])}
    assert designed("y ~ x + (1 | g)", lonely, drop=True).groups[0].levels == ("s1", "s2", "s3")


def test_new_rows_have_the_levels_that_were_fitted():
    data = table()
    design = designed("y ~ x + (center(x) | g) + (1 | a:b) + (1 | id)", data).design
    new = {
        "x": [1.0, 2.0, 3.0, 4.0], "g": ["s2", "s9", "s1", "s1"], "a": ["p", "q", "zz", "p"], "b": [0, 9, 1, 1],
        "id": [5, 600, 5.5, 0],
    }  # fmt: skip
    (slopes, columns), (nested, ones), (each, _) = design.groups_of(new)
    assert slopes.tolist() == [1, -1, 0, 0]
    np.testing.assert_allclose(columns, np.column_stack([np.ones(4), np.array(new["x"]) - data["x"].mean()]))
    names = design.groups[1].level_names
    assert [names[k] if k >= 0 else "" for k in nested] == ["p:0", "", "", "p:1"]
    assert (ones == 1).all()
    assert each.tolist() == [5, -1, -1, 0]
    np.testing.assert_array_equal(design.rows({"x": new["x"]})[:, 0], new["x"])  # needs no groups
    with pytest.raises(DataError, match="no column 'g'"):
        design.groups_of({"x": [1.0], "a": ["p"], "b": [0], "id": [1]})
    with pytest.raises(DataError, match="missing values in 'g'"):
        design.groups_of({**new, "g": ["s1", None, "s1", "s1"]})
    with pytest.raises(DataError, match=r"levels of 'id' were numbers .* here they are texts"):
        design.groups_of({**new, "id": ["5", "6", "7", "8"]})


def test_combinations_that_were_not_fitted_are_unseen_though_each_part_was():
    data = {"y": [1.0, 2.0, 3.0], "a": ["p", "p", "q"], "b": ["u", "v", "v"]}
    design = designed("y ~ (1 | a:b)", data).design
    assert design.groups[0].level_names == ("p:u", "p:v", "q:v")
    assert design.groups_of({"a": ["q", "q", "p"], "b": ["u", "v", "u"]})[0][0].tolist() == [-1, 2, 0]


def test_level_names_are_told_apart_where_colons_are_in_them():
    data = {"y": [1.0, 2.0, 3.0], "a": ["x:y", "x", "x"], "b": ["z", "y:z", "w"]}
    group = designed("y ~ (1 | a:b)", data).groups[0]
    assert group.levels == ('"x":"w"', '"x":"y:z"', '"x:y":"z"')
    assert group.index.tolist() == [2, 1, 0]


LEVELS = [st.text("ab:\\\" '|é", max_size=3), st.integers(-3, 3)]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 4), st.integers(2, 12))
def test_levels_of_combinations_are_one_for_each_and_found_again(data, factors, rows):
    kinds = [data.draw(st.sampled_from(LEVELS)) for _ in range(factors)]
    columns = {f"f{j}": data.draw(st.lists(kind, min_size=rows, max_size=rows)) for j, kind in enumerate(kinds)}
    combinations = list(zip(*columns.values(), strict=True))
    if len(set(combinations)) < 2:
        return
    made = designed(f"y ~ (1 | {':'.join(columns)})", {"y": np.arange(rows) * 1.0, **columns})
    group, design = made.groups[0], made.design.groups[0]
    assert len(set(group.levels)) == group.count == len(set(combinations))
    of_level = {}
    for level, combination in zip(group.index, combinations, strict=True):
        assert of_level.setdefault(level, combination) == combination
    plain = [":".join(map(str, of_level[k])) for k in range(group.count)]
    if len(set(plain)) == len(plain):
        assert list(group.levels) == plain
    else:
        quoted = [":".join(json.dumps(str(part)) for part in of_level[k]) for k in range(group.count)]
        assert list(group.levels) == quoted
    every = list(product(*(sorted(set(values)) for values in columns.values())))
    new = dict(zip(columns, map(list, zip(*every, strict=True)), strict=True))
    number = {combination: level for level, combination in of_level.items()}
    assert design.level_indices(columns_of(new, new)).tolist() == [number.get(row, -1) for row in every]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(0, 1000))
def test_nested_terms_are_those_of_their_products(depth, seed):
    rng = np.random.default_rng(seed)
    data = {"y": rng.normal(size=40), **{f"f{j}": rng.integers(0, 3, 40) for j in range(depth)}}
    nested = designed(f"y ~ (1 | {'/'.join(f'f{j}' for j in range(depth))})", data).groups
    products = [":".join(f"f{j}" for j in range(k + 1)) for k in range(depth)]
    apart = designed("y ~ " + " + ".join(f"(1 | {name})" for name in products), data).groups
    assert [group.name for group in nested] == products
    for one, other in zip(nested, apart, strict=True):
        assert one.levels == other.levels
        np.testing.assert_array_equal(one.index, other.index)
    for outer, inner in pairwise(nested):  # a level lies in one level of the term before
        pairs = set(zip(inner.index.tolist(), outer.index.tolist(), strict=True))
        assert len(pairs) == inner.count
        assert all(inner.levels[i].startswith(f"{outer.levels[o]}:") for i, o in pairs)


def test_many_levels_take_seconds_at_most_and_are_kept_in_a_file(tmp_path):
    n = 200_000
    data = {"y": np.zeros(n), "a": np.arange(n) // 2, "b": np.array([f"user {k}" for k in range(n)], object)}
    design = designed("y ~ (1 | a/b)", data, (), False).design
    serialise.save(tmp_path / "design", design, "design", 1)
    again = serialise.load(tmp_path / "design", Design, "design", 1)
    assert [len(group.level_names) for group in again.groups] == [n // 2, n]
    assert again.groups[1].level_names[3] == "1:user 3"


def test_a_design_is_kept_in_a_file(tmp_path):
    data = table()
    made = designed("y ~ x + (poly(x, 2) + plan || g) + (f(x) | a/b) + (1 | true)", data, transforms={"f": np.tanh})
    serialise.save(tmp_path / "design", made.design, "design", 1)
    again = serialise.load(tmp_path / "design", Design, "design", 1).with_transforms({"f": np.tanh})
    assert again.variables == made.design.variables
    assert [group.text for group in again.groups][:1] == ["(poly(x, 2) + plan || g)"]
    for (index, columns), group in zip(again.groups_of(data), made.groups, strict=True):
        np.testing.assert_array_equal(index, group.index)
        np.testing.assert_allclose(columns, group.columns, rtol=1e-12, atol=1e-14)
    with pytest.raises(DataError, match="calls 'f'"):
        serialise.load(tmp_path / "design", Design, "design", 1).groups_of(data)


def test_a_file_without_groups_is_read_as_before(tmp_path):
    design = designed("y ~ x", table()).design
    assert design.group_terms is None
    serialise.save(tmp_path / "design", design, "design", 1)
    again = serialise.load(tmp_path / "design", Design, "design", 1)
    assert again.groups == ()
    assert again.groups_of(table()) == []
    assert "group_terms" not in repr(design)


@pytest.mark.parametrize(
    "change",
    [
        {"factors": []}, {"levels": [["p"]]}, {"levels": [["p", "p"], [0.0, 1.0]]}, {"combinations": [0, 9]},
        {"combinations": [0, 0, 0, 0]}, {"combinations": [0]}, {"combinations": []}, {"intercept": 3}, {"column": 5},
        {"terms": '[{"kind": "number", "variable": 3}]'}, {"terms": "nothing"}, {"other": 1}, {"text": 3},
        {"intercept": False, "terms": "[]"}, {"levels": [[None], [0.0]]}, {"combinations": ["0", "1"]},
    ],
)  # fmt: skip
def test_a_file_that_was_changed_is_refused(tmp_path, change):
    design = designed("y ~ (1 | a:b)", table()).design
    said = json.loads(design.group_terms.tobytes())
    text = json.dumps([{**said[0], **change}]).encode()
    numbers = np.frombuffer(text + b" " * (-len(text) % 8), "<i8").copy()
    with pytest.raises(ValueError, match="group_terms must be those of a design"):
        Design("", "y", "[]", True, group_terms=numbers).require_sound()


def test_groups_on_rows_in_partitions_say_what_to_do(tmp_path):
    pd.DataFrame(table()).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"'y ~ x \+ \(1 \| g\)'.*\(1 \| g\) need the whole table in memory: read it"):
        svrhmc.fit("y ~ x + (1 | g)", svrhmc.data.from_parquet(tmp_path))


class ReachedError(Exception):
    """What a door was given."""


@pytest.fixture
def reached(monkeypatch):
    def glm(X, y, loss, **given):
        raise ReachedError(given)

    monkeypatch.setattr(door, "glm", glm)

    def call(formula, **settings):
        with pytest.raises(ReachedError) as error:
            svrhmc.fit(formula, table(), **settings)
        return error.value.args[0]

    return call


def test_fit_gives_groups_to_the_target(reached):
    groups = reached("y ~ x + (x | g) + (1 | a/b)")["groups"]
    assert [group.label for group in groups] == ["1 + x | g", "1 | a", "1 | a:b"]
    assert "groups" not in reached("y ~ x")
    assert [group.label for group in reached("y ~ (1 | g)")["groups"]] == ["1 | g"]


def test_priors_by_the_names_of_scales_and_correlations(reached):
    prior = {
        "1|g": HalfNormal(0.5), "sd( x | g )": Exponential(2.0), "cor(g)": LKJ(2), "1 | a:b": HalfNormal(3.0),
        "plan | b": HalfNormal(7.0), "x": Normal(4.0),
    }  # fmt: skip
    groups = reached("y ~ x + (x | g) + (1 | a/b) + (plan | b)", prior=prior)["groups"]
    assert [group.prior for group in groups] == [
        (HalfNormal(0.5), Exponential(2.0)), None, (HalfNormal(3.0),), (None, HalfNormal(7.0)),
    ]  # fmt: skip
    assert [group.lkj for group in groups] == [2.0, 1.0, 1.0, 1.0]
    usual = [HalfNormal(1.0), HalfNormal(2.0)]
    assert groups[3].priors(usual) == [HalfNormal(1.0), HalfNormal(7.0)]
    own = with_given_priors([Group([0, 1, 0], name="g", prior=HalfNormal(9.0))], {"1 | g": HalfNormal(2.0)})
    assert own[0][0].prior == (HalfNormal(2.0),)
    assert own[1] is None


@pytest.mark.parametrize(
    ("prior", "why"),
    [
        ({"1 | h": HalfNormal(1.0)}, r"columns \(x\) or Intercept, .*'1 \| g', 'x \| g', 'cor\(g\)'; got '1 \| h'"),
        ({"cor(h)": LKJ(2.0)}, r"'cor\(g\)'; got 'cor\(h\)'"),
        ({"cor(g)": HalfNormal(1.0)}, r"the prior of 'cor\(g\)' must be LKJ\(eta\); got HalfNormal"),
        ({"1 | g": Normal(1.0)}, r"the prior of '1 \| g' must be HalfNormal, .*; got Normal"),
        ({"1 | g": LKJ(1.0)}, r"the prior of '1 \| g' must be HalfNormal, .*; got LKJ"),
        ({"x": LKJ(1.0)}, "a dictionary by column of one of svrhmc.targets.priors .*; got LKJ"),
    ],
)
def test_priors_of_groups_that_cannot_be_used(prior, why):
    with pytest.raises(ValueError, match=why):
        svrhmc.fit("y ~ x + (x | g)", table(), prior=prior)
    with pytest.raises(ValueError, match="positive"):
        LKJ(0.0)


def test_correlations_of_one_column_have_no_prior():
    with pytest.raises(ValueError, match=r"'1 \| g'; got 'cor\(g\)'"):
        svrhmc.fit("y ~ x + (1 | g)", table(), prior={"cor(g)": LKJ(2.0)})


def test_an_effect_of_each_row_needs_another_law_than_that_of_the_noise(reached):
    why = r"levels of \(1 \| id\) must be fewer.*one for each of 60 rows.*cannot be told from that of the noise"
    with pytest.raises(ValueError, match=why):
        svrhmc.fit("y ~ x + (1 | id)", table())
    with pytest.raises(ValueError, match="one for each of 5 rows"):
        glm(np.ones((5, 1)), np.arange(5.0), "gaussian", groups=[Group(np.arange(5))])
    assert reached("y ~ x + (1 | id)", noise_variance=1.0)["groups"][0].count == 60
    assert reached("events ~ x + (1 | id)", family="poisson")["groups"][0].count == 60
    assert reached("y ~ x + (0 + x | id)")["groups"][0].count == 60
    assert reached("y ~ x + (1 | id)", weights=np.full(60, 2.0))["groups"][0].count == 60


@pytest.mark.parametrize(
    ("family", "why"),
    [
        ("bernoulli", "where a row is a single answer"), ("binomial", "where a row is a single answer"),
        ("student-t", "where log scale is unknown"),
    ],
)  # fmt: skip
def test_an_effect_of_each_row_needs_more_than_one_answer_of_a_row(family, why):
    """Two answers of some rows tell how far apart rows are, whether as trials or as weights."""
    index, y = np.arange(6), np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    with pytest.raises(ValueError, match=why):
        glm(np.ones((6, 1)), y, family, groups=[Group(index)])
    with pytest.raises(ValueError, match=why):
        svrhmc.fit("y ~ 1 + (1 | id)", {"y": y, "id": [f"row {k}" for k in index]}, family)
    several = {"trials": 1 + index % 2} if "binomial" in family else {"weights": 1.0 + index % 2}
    assert glm(np.ones((6, 1)), y, family, groups=[Group(index)], **several).effect_count == 6
    assert glm(np.ones((6, 1)), y, family, groups=[Group(index // 2)]).effect_count == 3


def test_groups_stand_beside_something():
    with pytest.raises(DataError, match="beside an intercept or a column"):
        svrhmc.fit("y ~ 0 + (1 | g)", table())


QUICK = {"draws": 50, "chains": 2, "certificate": False}
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore::svrhmc.core.errors.VerdictWarning"
)


def schools(n=200, seed=1):
    rng = np.random.default_rng(seed)
    school = rng.integers(0, 8, n)
    effects = np.linspace(-3, 3, 8)
    X = pd.DataFrame({"age": rng.normal(size=n), "school": [f"s{k}" for k in school]})
    return X, X["age"].to_numpy() + effects[school] + rng.normal(0, 0.5, n), effects


NEW = pd.DataFrame({"age": [0.0, 0.0], "school": ["s7", "elsewhere"]})


def test_an_estimator_has_the_posterior_of_the_formula():
    X, y, effects = schools()
    model = svrhmc.BayesianRegression(groups=["school"], new_groups="draw", **QUICK).fit(X, y)
    other = svrhmc.fit("y ~ age + (1 | school)", X.assign(y=y), "gaussian", **QUICK)
    np.testing.assert_array_equal(model.posterior_.trace.draws, other.trace.draws)
    assert model.posterior_.names == ("Intercept", "age", "log sigma", "sd(1 | school)")
    assert model.coef_.shape == (1,)
    assert list(model.feature_names_in_) == ["age", "school"]
    mean, sd = model.predict(NEW, return_std=True)
    assert abs(mean[0] - effects[7]) < 0.6
    assert mean[1] == model.intercept_
    spread = np.exp(2 * other.trace.draws[..., 2]) + other.trace.draws[..., 3] ** 2
    assert abs(sd[1] / np.sqrt(spread.mean()) - 1) < 0.3  # that of a level is in it
    assert sd[0] < 0.7
    low, high = model.predict_interval(NEW).T
    assert high[1] - low[1] > 3 * (high[0] - low[0])
    drawn = model.sample_y(NEW.iloc[[0, 1, 1]], 400, random_state=0)
    assert drawn.shape == (3, 400)
    assert np.corrcoef(drawn[1], drawn[2])[0, 1] > 0.8  # rows of one new level share its effect
    assert drawn[1].std() > 3 * drawn[0].std()
    typical = model.set_params(new_groups="average").predict(NEW, return_std=True)
    np.testing.assert_array_equal(typical[0], mean)
    assert typical[1][1] < 0.6 * sd[1]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(NEW), mean)
    assert clone(model).get_params()["groups"] == ["school"]


def test_estimators_take_groups_by_number_and_without_other_columns():
    X, y, _ = schools()
    numbers = np.column_stack([X["age"], [int(text[1:]) for text in X["school"]]])
    by_name = svrhmc.BayesianRegression(groups=["school"], **QUICK).fit(X, y)
    by_number = svrhmc.BayesianRegression(groups=[1], **QUICK).fit(numbers, y)
    np.testing.assert_allclose(by_number.predict([[0.0, 7], [0.0, 99]]), by_name.predict(NEW), rtol=1e-12)
    assert by_number.posterior_.names[-1] == "sd(1 | x1)"
    alone = svrhmc.BayesianRegression(groups=["school"], **QUICK).fit(X[["school"]], y)
    assert alone.coef_.shape == (0,)
    assert alone.predict(NEW[["school"]])[1] == alone.intercept_
    found = cross_val_predict(by_name, X, y, cv=2)
    assert np.corrcoef(found, y)[0, 1] > 0.9


def test_estimators_of_classes_and_counts_take_groups():
    X, y, _ = schools()
    weights = np.r_[0.0, np.ones(len(y) - 1)]
    model = svrhmc.BayesianLogisticRegression(groups=["school"], **QUICK).fit(X, y > 0, weights)
    (_, known), (_, unknown) = model.predict_proba(NEW)
    assert known > 0.9 > unknown > 0.1
    rates = np.random.default_rng(0).poisson(np.exp(y / 3)) + 0.5
    counts = svrhmc.BayesianPoissonRegression(groups=["school"], **QUICK).fit(X, rates)
    assert counts.predict(NEW)[0] > 1.5


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ("school", "a list of columns of X"), ([], "a list of columns"), (["schol"], "did you mean 'school'"),
        ([2], "whole number from 0 to 1"), (["school", 1], "different columns"), (["age"], r"the text 's\d'"),
    ],
)  # fmt: skip
def test_groups_of_an_estimator_are_columns_of_x(groups, why):
    X, y, _ = schools()
    with pytest.raises(ValueError, match=why):
        svrhmc.BayesianRegression(groups=groups).fit(X, y)


def test_levels_that_an_estimator_refuses():
    X, y, _ = schools()
    with pytest.raises(ValueError, match="new_groups must be one of"):
        svrhmc.BayesianRegression(groups=["school"], new_groups="other").fit(X, y)
    with pytest.raises(ValueError, match="X has no names of columns"):
        svrhmc.BayesianRegression(groups=["school"]).fit(X[["age"]].to_numpy(), y)
    with pytest.raises(DataError, match=r"groups=\['school'\] cannot be used: 'school' has one level only"):
        svrhmc.BayesianRegression(groups=["school"]).fit(X.assign(school="one"), y)
    with pytest.raises(DataError, match=r"missing values in 'school' \(1 missing\)"):
        svrhmc.BayesianRegression(groups=["school"]).fit(X.assign(school=[None, *X["school"][1:]]), y)
    model = svrhmc.BayesianRegression(groups=["school"], new_groups="refuse", **QUICK).fit(X, y)
    model.predict(NEW[:1])
    with pytest.raises(DataError, match=r"levels of 'school' were not fitted \('elsewhere'\): give new_groups='draw'"):
        model.predict(NEW)


def test_a_saved_posterior_predicts_the_groups_of_new_rows(tmp_path):
    X, y, _ = schools()
    rng = np.random.default_rng(2)
    data = X.assign(y=y, room=rng.integers(0, 3, len(y)), f=rng.normal(size=len(y)))
    posterior = svrhmc.fit(
        "y ~ age + (half(f) || school) + (1 | school:room)", data, transforms={"half": halved}, **QUICK
    )
    assert posterior.names[-3:] == ("sd(1 | school)", "sd(half(f) | school)", "sd(1 | school:room)")
    posterior.save(tmp_path / "a.posterior")
    again = svrhmc.Posterior.load(tmp_path / "a.posterior", transforms={"half": halved})
    new = {"age": [0.0, 0.0], "school": ["s7", "elsewhere"], "room": [1, 8], "f": [1.0, 2.0]}
    expected, found = posterior.predict(new), again.predict(new)
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.new_quantiles, expected.new_quantiles)
    assert found.sd[1] > found.sd[0]
    with pytest.raises(DataError, match="elsewhere"):
        again.predict(new, new_groups="refuse")


def halved(x):
    return x / 2


def test_the_shell_takes_groups_and_quotes_what_it_refuses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y, _ = schools(100)
    X.assign(y=y).to_csv("a.csv", index=False)
    fitted = CliRunner().invoke(app, ["fit", "a.csv", "--formula", "y ~ age + (1|school)", "--draws", "50", "--quiet"])
    assert fitted.exit_code == 0, fitted.output
    design = svrhmc.Posterior.load("a-fit/model.posterior").design
    assert [group.text for group in design.groups] == ["(1|school)"]
    for text, why in (
        ("age + (1 | schol)", "a.csv: the table has no column 'schol': did you mean 'school'?"),
        ("age + (1 | school) + (age | school)", "the formula 'y ~ age + (1 | school) + (age | school)' cannot be used"),
        ("age + 1 | school", "stand in brackets"),
    ):
        refused = CliRunner().invoke(app, ["fit", "a.csv", "--target", "y", "--formula", text, "--out", "b"])
        assert refused.exit_code != 0
        assert why in " ".join(refused.output.split())


def test_combinations_of_very_many_levels_are_told_apart():
    rng = np.random.default_rng(0)
    columns = {f"f{j}": rng.permutation(40_000) for j in range(5)}  # 40,000⁵ is beyond 2⁶³
    group = designed("y ~ (1 | f0:f1:f2:f3:f4)", {"y": np.zeros(40_000), **columns}).groups[0]
    assert group.count == 40_000
    np.testing.assert_array_equal(group.index, columns["f0"])
