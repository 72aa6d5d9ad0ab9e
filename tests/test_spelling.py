"""Texts that are probably not the categories that they look like are refused, or said aloud; others are left alone."""

from html import unescape

import numpy as np
import pytest

import svrhmc
from svrhmc.tables.columns import columns_of
from svrhmc.tables.design import designed
from svrhmc.tables.terms import notes_on_spelling

RNG = np.random.default_rng(0)
AGES = [str(age) for age in RNG.integers(18, 80, 400)]
LEFT = RNG.random(400) < 0.5


def table(ages, **columns):
    return {"left": LEFT, "age": ages, **columns}


def with_words(ages, *words):
    return [*words, *ages[len(words) :]]


@pytest.mark.parametrize("formula", ["left ~ age", "left ~ age * dose", "left ~ ."])
def test_numbers_that_a_word_made_texts_are_refused(formula):
    ages = with_words(AGES, "unknown", "unknown", "?")
    with pytest.raises(svrhmc.DataError, match=r"'\?' \(1 row\), 'unknown' \(2 rows\) among them: make numbers of it"):
        designed(formula, table(ages, dose=np.arange(400.0)))


def test_such_a_column_is_a_category_where_that_is_said():
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    ages = with_words(AGES, "unknown")
    levels = len(set(ages))
    assert len(designed("left ~ C(age)", table(ages)).design.names) == levels - 1
    declared = [
        pandas.DataFrame(table(pandas.Categorical(ages))),
        polars.DataFrame({"left": LEFT, "age": polars.Series(ages).cast(polars.Categorical)}),
    ]
    for one in declared:
        assert len(designed("left ~ age", one).design.names) == levels - 1
    plain = [pandas.DataFrame(table(ages)), polars.DataFrame(table(ages)), table(np.array(ages))]
    for one in plain:
        with pytest.raises(svrhmc.DataError, match="holds numbers as texts"):
            designed("left ~ age", one)
    assert designed("left ~ (1 | age)", table(ages)).design.groups  # factors are names, whatever they look like


@pytest.mark.parametrize(
    "texts",
    [
        [f"{k:05d}" for k in RNG.integers(1000, 1040, 400)],  # postcodes: no word stands among them
        with_words([str(k) for k in RNG.integers(0, 5, 400)], "5 or more"),  # steps of a scale
        [f"A{k}" if k % 2 else str(k) for k in RNG.integers(0, 60, 400)],  # codes
        with_words(["none"] * 400, *map(str, range(20))),  # numbers are the exception
    ],
)
def test_names_that_are_numbers_are_left_alone(texts):
    assert len(designed("left ~ age", table(texts)).design.names) == len(set(texts)) - 1


def test_levels_that_are_one_but_for_capitals_and_spaces_are_said():
    region = RNG.choice(["North", "north ", "South", "West  End", "west end"], 400)
    (note,) = notes_on_spelling(columns_of({"region": region, "left": LEFT}, ["region", "left"]), ["left", "region"])
    assert "('North' and 'north ', 'West  End' and 'west end')" in note
    for formula in ("left ~ region", "left ~ (1 | region)", "region ~ age"):
        preview = svrhmc.design(formula, {"left": LEFT, "region": region, "age": np.arange(400.0)})
        assert "Labels: region has levels that differ in capitals or spaces alone" in " ".join(str(preview).split())
    other = RNG.choice(["North", "North East", "northern"], 400)
    assert notes_on_spelling(columns_of({"region": other}, ["region"]), ["region"]) == ()


def test_a_response_that_puts_spellings_together_is_named_in_short_and_without_a_note(tmp_path):
    answers = RNG.choice(["Yes", "yes", "Y", "no", "No"], 400)
    table = {"left": answers, "dose": RNG.normal(size=400)}
    posterior = svrhmc.fit("{left in ['Yes', 'yes', 'Y']} ~ dose", table, draws=100, certificate=False)
    assert posterior.design.notes == ()
    page = unescape(posterior.report(tmp_path / "left.html").read_text())
    assert "What is associated with left in ['Yes', …]?" in page
    assert "adds to the log odds of left in ['Yes', …], all else" in page
    assert "] = 1" not in page
    assert "Odds ratio of left in ['Yes', …]," in str(posterior.ratios())
