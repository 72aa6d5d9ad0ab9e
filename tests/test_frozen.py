"""What must not change while the library is rebuilt: `frozen_runs.py` says what is stored, and what to do about it."""

import importlib.util
import json

import pytest

import frozen_fits
import frozen_interface
import frozen_runs

DRAWS = frozen_runs.both(json.loads(frozen_runs.DRAWS.read_text()))
FITS = json.loads(frozen_fits.FITS.read_text())


def marked(name):
    needs = [
        pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")
        for word, package in (("jax", "jax"), ("parquet", "pyarrow"))
        if word in name
    ]
    return pytest.param(name, marks=[*needs, *([pytest.mark.slow] if frozen_runs.is_slow(name) else [])])


@pytest.mark.untraced
@pytest.mark.parametrize("name", [marked(name) for name in DRAWS])
def test_draws_are_frozen(name):
    found = frozen_runs.outcome(frozen_runs.run_of(name))
    assert frozen_runs.differences(found, DRAWS[name], frozen_runs.tolerance_of(name)) is None


def test_every_run_is_stored():
    stored = json.loads(frozen_runs.DRAWS.read_text())
    assert stored["others"].keys() == frozen_runs.OTHERS.keys()
    assert FITS.keys() == frozen_fits.FITTED.keys()


def test_the_runs_cover_what_is_supported():
    """Every tuple occurs in a run, or in a combination that is refused."""
    content = json.loads(frozen_runs.DRAWS.read_text())
    stored = content["combinations"]
    found = [frozenset(frozen_runs.combination_of(name).items()) for name in stored]
    refused = [each for each, outcome in zip(found, stored.values(), strict=True) if "refused" in outcome]
    every = [frozenset(each) for engine in content["engines"] for each in frozen_runs.tuples(engine)]
    lost = [dict(each) for each in every if not any(each <= one for one in found)]
    for each in lost:  # then a part of it is refused in the plainest surroundings
        parts = [each.items() & one for one in refused]
        assert any(
            one == frozenset({**frozen_runs.PLAINEST, **dict(part)}.items())
            for one, part in zip(refused, parts, strict=True)
        ), each


@pytest.mark.untraced
@pytest.mark.parametrize("name", frozen_fits.FITTED)
def test_fits_are_frozen(name):
    assert frozen_fits.differences(frozen_fits.summary(frozen_fits.FITTED[name]), FITS[name]) is None


def test_public_names_are_frozen():
    assert frozen_interface.differences(frozen_interface.names(), json.loads(frozen_interface.NAMES.read_text())) == []


def test_commands_are_frozen():
    stored, found = json.loads(frozen_interface.COMMANDS.read_text()), frozen_interface.commands()
    assert sorted(word[0] for word in frozen_interface.SHELL if word) == frozen_interface.known_commands()
    if found["versions"] != stored["versions"]:  # then help is laid out in other lines
        found, stored = ({**each, "help": {}, "versions": {}} for each in (found, stored))
    assert frozen_interface.differences(found, stored) == []


def test_a_difference_is_seen():
    """Negative controls: of a state by 1e-7, of a mean by 1e-7 sd, of a default, and of what is supported."""
    name, stored = next((name, each) for name, each in DRAWS.items() if "last" in each)
    other = {**stored, "last": [value + 1e-7 for value in stored["last"]]}
    assert frozen_runs.differences(stored, stored, 1e-9) is None
    assert "last differs" in frozen_runs.differences(other, stored, frozen_runs.tolerance_of(name))
    assert "refused" in frozen_runs.differences({"refused": "ValueError"}, stored, 1e-9)
    assert "refused" in frozen_runs.differences(stored, {"refused": "ValueError"}, 1e-9)
    fit = FITS["texts as answers"]
    moved = {**fit, "mean": [mean + 1e-7 * sd for mean, sd in zip(fit["mean"], fit["sd"], strict=True)]}
    assert frozen_fits.differences(fit, fit) is None
    assert "mean differs" in frozen_fits.differences(moved, fit)
    assert "verdict" in frozen_fits.differences({**fit, "verdict": "refuted"}, fit)
    assert frozen_interface.differences({"a": {"b": 1}}, {"a": {"b": 2}, "c": 0}) == [
        "/a/b: 1 instead of 2",
        "/c is gone",
    ]
