"""Verdicts by which numbers are not known to be right are told in Python, where someone may never print a summary."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import svrhmc
from svrhmc.results import advice
from svrhmc.results.advice import open_verdict, warn_of_verdict
from svrhmc.sampling import judging

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
EVENTS = rng.poisson(np.exp(X[:, 0] / 2)) > 0
TABLE = {"y": EVENTS, "a": X[:, 0], "b": X[:, 1]}
DOORS = {
    "sample": lambda **more: svrhmc.sample(svrhmc.targets.logistic(X, EVENTS), **more),
    "fit": lambda **more: svrhmc.fit("y ~ a + b", TABLE, "bernoulli", **more),
    "estimator": lambda **more: svrhmc.BayesianLogisticRegression(**more).fit(X, EVENTS).posterior_,
}


def category(door):
    return ConvergenceWarning if door == "estimator" else svrhmc.VerdictWarning


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("verdict", ["unjudged", "undecided"])
def test_a_verdict_that_is_open_warns_at_the_line_of_the_caller(door, verdict, monkeypatch):
    if verdict == "undecided":
        monkeypatch.setattr(
            judging, "settling_doubt", lambda *_, **__: "the chains have not settled (as they were told)"
        )
    more = {"draws": 40} if verdict == "undecided" else {"method": "ubu", "draws": 40, "certificate": False}
    with pytest.warns(category(door), match=f"The verdict on this posterior is '{verdict}': ") as warned:
        found = DOORS[door](**more)
    assert found.certificate.verdict == verdict
    assert [each.filename for each in warned] == [__file__]


@pytest.mark.parametrize("door", DOORS)
def test_a_verdict_that_numbers_are_right_does_not_warn(door):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = DOORS[door](draws=200)
    assert found.certificate.verdict in ("exact", "certified", "local")


@pytest.mark.parametrize(
    ("verdict", "stopped", "needed", "remedy"),
    [
        ("undecided", True, None, "give a larger budget, or none"),
        ("undecided", False, None, "Do not rely on its means and sds[.]$"),
        ("undecided", False, 8000, "ask for draws=8000, or for a larger tolerance"),
        ("refuted", False, None, "Do not use its means and sds: let method=None choose a sampler"),
        ("unjudged", False, None, "leave out certificate=False"),
    ],
)
def test_a_warning_says_what_to_do(verdict, stopped, needed, remedy):
    """Where no budget ended a run that has too few draws, none is spoken of."""
    posterior = svrhmc.sample(svrhmc.targets.linear(X, EVENTS), draws=40)
    certificate = replace(posterior.certificate, verdict=verdict, reason="for this test", draws_needed=needed)
    with pytest.warns(svrhmc.VerdictWarning, match=remedy) as warned:
        warn_of_verdict(replace(posterior, certificate=certificate, complete=False, stopped=stopped))
    assert f"'{verdict}': for this test. " in str(warned[0].message)


@pytest.mark.parametrize("door", DOORS)
def test_a_run_that_ended_early_warns_whatever_its_verdict(door, monkeypatch):
    monkeypatch.setattr(advice, "open_verdict", lambda posterior: open_verdict(replace(posterior, complete=False)))
    with pytest.warns(category(door), match="'exact', but the run ended before there were as many draws as asked for"):
        assert DOORS[door](draws=40).certificate.passed


def test_a_gate_for_production():
    posterior = DOORS["sample"](draws=200)
    assert posterior.certificate.passed
    for verdict in ("undecided", "refuted", "unjudged"):
        assert not replace(posterior.certificate, verdict=verdict).passed
    with pytest.raises(TypeError, match=r"use certificate\.passed"):
        bool(posterior.certificate)


def test_estimators_refuse_or_repeat_an_open_verdict(monkeypatch):
    monkeypatch.setattr(judging, "settling_doubt", lambda *_, **__: "the chains have not settled (as they were told)")
    model = svrhmc.BayesianLogisticRegression(draws=40, on_undecided="raise")
    with pytest.raises(svrhmc.VerdictError, match="the chains have not settled"):
        model.fit(X, EVENTS)
    assert not hasattr(model, "posterior_")
    with pytest.warns(ConvergenceWarning):
        pickled = pickle.dumps(model.set_params(on_undecided="warn").fit(X, EVENTS))
    with pytest.warns(ConvergenceWarning, match="is .undecided."):
        pickle.loads(pickled)
    with pytest.raises(ValueError, match="on_undecided must be"):
        model.set_params(on_undecided="stop").fit(X, EVENTS)


def test_a_summary_without_any_draw_of_the_posterior_does_not_speak_of_chance():
    with pytest.warns(svrhmc.VerdictWarning):
        posterior = DOORS["fit"](draws=400, budget_passes=40.0)
    text = " ".join(str(posterior.summary()).split())
    assert posterior.method == "laplace"
    assert "of the Laplace approximation" in text
    assert "inf" not in text.replace("in fact", "")
    assert "independent ones" not in text


@pytest.mark.parametrize(
    ("shape", "remedy"), [(0.4, "Do not rely on its sds: report quantiles"), (np.inf, "there is no posterior that")]
)
def test_a_warning_of_a_heavy_tail_speaks_of_no_budget(shape, remedy):
    posterior = svrhmc.sample(svrhmc.targets.linear(X, EVENTS), draws=40)
    certificate = replace(posterior.certificate, verdict="undecided", reason="for this test")
    tails = np.full(len(posterior.mean), shape)
    with pytest.warns(svrhmc.VerdictWarning, match=remedy):
        warn_of_verdict(replace(posterior, certificate=certificate, complete=False, stopped=True, tails=tails))
