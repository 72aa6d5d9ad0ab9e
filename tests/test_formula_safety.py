"""Formulas only calculate: whatever their text, at a fit and from a stranger's file, no other code runs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

import svrhmc
from svrhmc.core.errors import DataError, PosteriorFileError
from svrhmc.shell import app as cli
from svrhmc.tables import Design, designed
from svrhmc.tables.expressions import parse_expression
from svrhmc.tables.formula import parse_formula
from svrhmc.tables.terms import Encoded, terms_to_json

_RNG = np.random.default_rng(0)
N = 80
TABLE = {
    "y": _RNG.normal(size=N),
    "x": _RNG.uniform(1, 9, N),
    "k": _RNG.integers(0, 3, N),
    "plan": _RNG.choice(["a", "b", "c"], N),
    "old": _RNG.random(N) > 0.5,
    "a b": _RNG.normal(size=N),
    "a_b": _RNG.normal(10.0, 5.0, N),
    "µ": _RNG.uniform(1, 2, N),
    "class": _RNG.normal(size=N),
}
CODE = "__import__('pathlib').Path({!r}).touch()"


def again(design: Design, rows: slice) -> np.ndarray:
    """Rows of the table by a design that was kept as text."""
    kept = Design(design.formula, design.response, design.terms, design.intercept)
    return np.asarray(kept.rows({name: values[rows] for name, values in TABLE.items()}))


@pytest.mark.parametrize(
    "terms",
    [
        "poly(x, 2) + np.log(µ)", "bs(x, df=4)", "cr(x, df=4)", "cr(x, df=3, constraints='center')", "cc(x, df=4)",
        "scale(x) + center(`a b`) + scale(a_b)", "standardize(x) + C(plan, Sum)", "C(k)*x", "C(k, levels=[2, 0, 1])",
        "C(plan, Treatment('b')):x", "C(plan, contr.helmert)", "C(np.floor(x))", "C(np.where(x > 4, 'high', 'low'))",
        "hashed(plan, levels=5)", "I(x**2) + log1p(x) + sqrt(x)", "{x > 3 and not old} + {old * 2}", "Q('a b'):plan",
        "np.clip(x, 2, None) + np.minimum(x, 4)", "{plan in ['a', 'b']}", "`class`*plan", "poly(scale(x), 2):plan",
        "np.power(x, 2) + np.round(x, 1) + abs(`a b`)",
    ],
)  # fmt: skip
def test_functions_of_formulas_and_what_they_learn(terms: str) -> None:
    made = designed(f"y ~ {terms}", TABLE)
    np.testing.assert_allclose(again(made.design, slice(5, 8)), made.X[5:8], rtol=1e-12, atol=1e-12)


def test_values_are_those_of_numpy() -> None:
    made = designed("y ~ {np.log(x)*2 - k/2} + {old + old} + {x > 3 or old} + {x**2 % 3} + exp(-`a b`)", TABLE)
    x, old, k = np.asarray(TABLE["x"]), np.asarray(TABLE["old"]), np.asarray(TABLE["k"])
    wanted = [np.log(x) * 2 - k / 2, 2.0 * old, (x > 3) | old, x**2 % 3, np.exp(-np.asarray(TABLE["a b"]))]
    np.testing.assert_allclose(made.X, np.column_stack(wanted))


@pytest.mark.parametrize(
    "text",
    [
        "(lambda: 1)()", "x.real", "x.__class__", "[i for i in x]", "x[0]", "f'{x}'", "eval('1')", "open('a')", "(z := 3)",
        "10**10**9*x", "2**3000*x", "poly(x, 10**9)", "poly(x, degree=x)", "bs(x, df=10**9)", "cr(x, df=10**7)",
        "lag(x, 10**9)", "hashed(x, levels=10**8)", "x*" + "9" * 5000, "(" * 300 + "x" + ")" * 300, "-" * 5000 + "x",
        "'a'*10**9", "bs(x, _state=1)", "poly(x, **k)", "poly(*x)", "np.load('a')", "np.mean(x)", "x if old else k", "b'x'",
        "x ^ 2", "1 + 1", "x + 'a'", "'" + "a" * 20_000 + "'", "x" + "+x" * 3000, "not x", "C(x, contr.custom([[1]]))",
        "np.log(x, out=x)", "hashed(x, 3, hash_func=abs)", "C(x).y", "0.5j*x", "x @ x", "`x", "C(1)", "Q(x)", "I(x, x)",
    ],
)  # fmt: skip
def test_all_else_is_refused_at_once(text: str) -> None:
    began = time.perf_counter()
    for formula in (f"y ~ {{{text}}}", f"y ~ I({text})", f"{{{text}}} ~ x"):
        with pytest.raises(DataError):
            designed(formula, TABLE)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        ("y ~ (x + k + old)**999999999", "whole number from 1 to 100"),
        ("y ~ " + "*".join(f"x{j}" for j in range(40)), "more than 10,000 terms"),
        ("y ~ " + "(" * 500 + "x" + ")" * 500, "nested more than"),
        ("y ~ x[0]", "no subscripts"),
        ("y ~ x:(1 | plan)", "stand in no product"),
        ("y ~ 2*x", "0 or 1"),
        ("y ~ x ~ k", "not expected"),
        ("y ~ np.mean(x)", "center"),
        ("y ~ offset(x)", "offset='column'"),
        ("y ~ factor(k)", "C(x)"),
    ],
)
def test_formulas_that_cannot_be_used_say_what_to_do(formula: str, why: str) -> None:
    with pytest.raises(DataError, match=why.replace("(", r"\(").replace(")", r"\)")):
        designed(formula, TABLE)


def test_no_code_runs_wherever_it_stands(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = CODE.format(str(mark))
    for formula in (
        f"y ~ {{{code}}}", f"y ~ I({code})", f"{{{code}}} ~ x", f"y ~ C(x, {code})", f"y ~ C(x, levels=[{code}])",
        f"y ~ Q({code})", f"y ~ bs(x, df={code})", f"y ~ x:{{{code}}}", f"y ~ C(plan, Treatment('a\"); {code}; (\"'))",
        f"y ~ {{x + {code}}}",
    ):  # fmt: skip
        with pytest.raises(DataError):
            designed(formula, TABLE)
    assert not mark.exists()


@pytest.fixture(scope="module")
def fitted() -> svrhmc.Posterior:
    return svrhmc.fit("y ~ scale(x) + plan:x", TABLE, "gaussian", noise_variance=1.0, draws=50)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "1 + {__import__('os').getcwd()}"},
        {"text": "1 + C(x, __import__('os'))"},
        {"text": "1 + elsewhere"},
        {"state": '{"scale(x)": "no"}'},
        {"state": '{"scale(x)": {"knots": [' + "0," * 6000 + "0]}}"},
        {"state": "[" * 3000 + "]" * 3000},
        {"levels": ((), ({"a": 1},))},
        {"levels": (("a", "a"), ())},
        {"kinds": ("number",)},
        {"kinds": ("number", "code")},
    ],
)
def test_a_file_with_other_than_plain_terms_is_refused(
    change: dict[str, object], fitted: svrhmc.Posterior, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fitted.design is not None
    (term,) = fitted.design.made_of
    assert isinstance(term, Encoded)
    with monkeypatch.context() as patch:
        patch.setattr(Design, "require_sound", lambda self: None)
        terms = terms_to_json((replace(term, **change),))  # type: ignore[arg-type]
        replace(fitted, design=replace(fitted.design, terms=terms)).save(tmp_path / "model.posterior")
    with pytest.raises(PosteriorFileError, match="terms must be those of a design"):
        svrhmc.Posterior.load(tmp_path / "model.posterior")
    pandas.DataFrame(TABLE).to_csv(tmp_path / "new.csv", index=False)
    arguments = [str(tmp_path / name) for name in ("model.posterior", "new.csv")]
    result = CliRunner().invoke(cli.app, ["predict", *arguments, "--out", str(tmp_path / "p.csv")])
    assert result.exit_code != 0
    assert "terms must be those of a design" in " ".join(result.output.split())
    assert not (tmp_path / "p.csv").exists()


def test_a_state_that_was_lost_is_not_learned_anew_from_new_rows(fitted: svrhmc.Posterior) -> None:
    assert fitted.design is not None
    (term,) = fitted.design.made_of
    assert isinstance(term, Encoded)
    other = Design("", "y", terms_to_json((replace(term, state="{}"),)), True)
    with pytest.raises(DataError, match=r"does not hold what 'scale\(x\)' learned"):
        other.rows({name: values[:3] for name, values in TABLE.items()})


def test_functions_of_ones_own_are_passed_by_name(tmp_path: Path) -> None:
    def hinge(x: object, knot: float = 5.0) -> object:
        return np.maximum(x - knot, 0)  # type: ignore[operator]

    formula = "y ~ hinge(x, knot=4) + x"
    with pytest.raises(DataError, match=r"calls 'hinge'.*transforms={'hinge': …}"):
        svrhmc.fit(formula, TABLE)
    posterior = svrhmc.fit(formula, TABLE, noise_variance=1.0, draws=50, transforms={"hinge": hinge})
    plain = svrhmc.fit("y ~ np.maximum(x - 4, 0) + x", TABLE, noise_variance=1.0, draws=50)
    np.testing.assert_array_equal(posterior.trace.draws, plain.trace.draws)
    new = {"x": [2.0, 7.0]}
    wanted = posterior.predict(new).mean
    posterior.save(tmp_path / "own.posterior")
    loaded = svrhmc.Posterior.load(tmp_path / "own.posterior", transforms={"hinge": hinge})
    np.testing.assert_array_equal(loaded.predict(new).mean, wanted)
    without = svrhmc.Posterior.load(tmp_path / "own.posterior")
    assert without.names == posterior.names
    with pytest.raises(DataError, match=r"Posterior.load\(path, transforms={'hinge': …}\)"):
        without.predict(new)


@pytest.mark.parametrize(
    ("transforms", "why"),
    [
        ({"log": np.log}, "names that formulas do not have"),
        ({"f": 3}, "functions by name"),
        ({"f()": abs}, "functions by name"),
        ([abs], "functions by name"),
    ],
)
def test_transforms_that_cannot_be_used(transforms: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        designed("y ~ x", TABLE, transforms=transforms)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="one value for each of 80 rows"):
        designed("y ~ f(x)", TABLE, transforms={"f": lambda x: x[:3]})
    with pytest.raises(DataError, match="modulo by zero"):
        designed("y ~ f(x)", TABLE, transforms={"f": lambda x: 1 // 0})


def test_values_beyond_the_levels_of_a_category_are_refused() -> None:
    table = {**TABLE, "Sum": TABLE["x"]}  # a column, and the name of contrasts
    assert designed("y ~ log(Sum) + C(plan, Sum)", table).design.variables == ("Sum", "plan")
    made = designed("y ~ C(np.floor(x)):k", TABLE)
    with pytest.raises(DataError, match=r"99.0 is not among its levels"):
        made.design.rows({"x": [99.5], "k": [1]})
    with pytest.raises(DataError, match="'c' is not among its levels"):
        designed("y ~ C(plan, levels=['a', 'b'])", TABLE)


def test_grammar() -> None:
    def terms(text: str) -> list[str]:
        return [term.formula_text for term in parse_formula(f"y ~ {text}", ["y", "a", "b", "c d"]).terms]

    assert terms("a*b*b") == ["a", "b", "a:b"]
    assert terms("a/b") == terms("b %in% a") == ["a", "a:b"]
    assert terms("(a + b)**2") == terms("(a + b)^3") == ["a", "b", "a:b"]
    assert terms(". - a") == ["b", "`c d`"]
    assert terms("b:a + a:b + `c d`") == ["`c d`", "b:a"]
    assert terms("{ a }") == ["a"]
    assert [parse_formula(f"y ~ {text}", []).intercept for text in ("a", "a - 1", "0 + a", "-1 + a", "0 + a + 1")] == [
        True, False, False, False, True,
    ]  # fmt: skip
    assert parse_expression("np.log( `c d`+a )").text == "np.log(`c d` + a)"
