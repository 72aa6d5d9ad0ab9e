"""Some examples of every case, the same ones each time; that the judge and the machine find what is broken; and, among
the slow tests, an hour of it.
"""

import warnings

import numpy as np
import pytest

import svrhmc

from . import inputs, judge, machine, registry
from .judge import FailureError, RefusedError, ask

CASES = {name: one for name, one in registry.load().items() if not name.startswith("broken.")}
COMPILED_ANYWAY = ("samplers.engines_agree",)  # kernels that other tests compile too
EACH = 0.5  # seconds of processor time for a case, roughly
CHOSEN = [name for name, one in CASES.items() if not one.numba or name in COMPILED_ANYWAY]


def examples(one):
    return max(2, min(40, int(EACH / one.cost)))


@pytest.mark.parametrize("name", CHOSEN)
def test_examples(name):
    one = CASES[name]
    failure = machine.explore(one, None, examples(one), 60.0, lambda case, text: None, set())
    assert failure is None, f"{failure['error']}\npython -m tests.fuzz --case {name} --input {failure['input']!r}"


def test_every_public_name_has_a_case():
    assert registry.public_names() - registry.covered() == set()


def test_a_name_without_a_case_is_noticed(monkeypatch):
    monkeypatch.setattr(svrhmc.theory, "__all__", [*svrhmc.theory.__all__, "no_such_law"])
    monkeypatch.setattr(svrhmc.theory, "no_such_law", lambda: None, raising=False)
    assert registry.public_names() - registry.covered() == {"svrhmc.theory.no_such_law"}


def spin():
    while True:
        pass


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: [][0], "an error of test_fuzz.py"),
        (lambda: np.linalg.inv(np.zeros((2, 2))), "an error of _linalg.py"),
        (lambda: svrhmc.targets.linear([[1.0]], [1.0]).rows.X.nothing(), "an error of test_fuzz.py"),
        (lambda: np.array([1.0, np.nan]), "nan in the answer"),
        (lambda: {"a": (1.0, float("nan"))}, "nan in the answer.a.1"),
        (lambda: warnings.warn("look", UserWarning, stacklevel=1), "warned: UserWarning: look"),
        (lambda: np.float64(1) / np.float64(0), "warned: RuntimeWarning: divide by zero"),
    ],
)
def test_what_no_user_should_see_is_a_failure(call, said):
    with pytest.raises(FailureError) as told:
        ask(call)
    assert said in str(told.value)


def test_a_hang_is_a_failure(monkeypatch):
    monkeypatch.setattr(judge, "SECONDS", 0.2)
    with pytest.raises(FailureError, match="took more than"):
        ask(spin)


def test_the_words_of_the_package_are_a_refusal_unless_the_input_is_plain():
    with pytest.raises(RefusedError, match="step_size must be a positive number"):
        ask(svrhmc.hmc, -1.0)
    with pytest.raises(FailureError, match="refused a plain input"):
        ask(svrhmc.hmc, -1.0, tame=True)
    with pytest.raises(FailureError, match="answered a bad input"):
        judge.refuses(svrhmc.hmc, 1e-3, match="step_size")
    with pytest.raises(FailureError, match="not 'friction'"):
        judge.refuses(svrhmc.hmc, -1.0, match="friction")
    with pytest.raises(FailureError, match="the oracle has"):
        judge.agree("one", [1.0, 2.0], [1.0, 2.1], 1e-3)
    with pytest.raises(FailureError):
        judge.agree("one", float("nan"), 1.0, 1e-3)


def test_an_input_is_made_again_from_its_text():
    given = (inputs.Table(((1.0, float("nan")),), "float32", "csr"), float("-inf"), "ä")
    again = inputs.read(repr(given))
    assert repr(again) == repr(given)
    assert again[0].make().format == "csr"


@pytest.mark.slow
def test_the_machine_names_the_input_of_what_is_broken(tmp_path):
    cases = ["broken.crash", "broken.bare", "broken.wrong"]
    tally = machine.drive(cases, 10_000, 300.0, 2.0, 1, tmp_path, set(), lambda line: None, parts=("broken",), rounds=1)
    found = {one["case"]: one for one in tally.failures.values()}
    assert set(found) == set(cases)
    assert "ended with -11" in found["broken.crash"]["error"]
    assert int(found["broken.crash"]["input"]) > 300
    assert (found["broken.bare"]["input"], found["broken.wrong"]["input"]) == ("17", "40")
    assert "ZeroDivisionError" in found["broken.bare"]["error"]
    assert tally.calls > 10


@pytest.mark.slow
def test_what_does_not_return_is_ended_and_named(tmp_path):
    tally = machine.drive(
        ["broken.sleeps"], 100, 60.0, 2.0, 1, tmp_path, set(), lambda line: None, parts=("broken",), rounds=1, stuck=3
    )
    [one] = tally.failures.values()
    assert int(one["input"]) > 300


@pytest.mark.slow
def test_an_hour_finds_nothing(tmp_path):
    tally = machine.drive(list(CASES), 100_000, 3600.0, 6.0, 1, tmp_path, set())
    assert not tally.failures, tally.text()
    print(tally.text())
