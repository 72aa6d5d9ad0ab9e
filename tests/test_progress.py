"""What is shown while a run goes on: on terminals, in files, to a callable, and without a console."""

import gc
import io
import re
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

import svrhmc
from svrhmc import estimators
from svrhmc.core import progress
from svrhmc.dynamics import UBU
from svrhmc.fitting import regression
from svrhmc.gradients import Full
from svrhmc.sampling import drawing, judging, preparation, search
from svrhmc.targets import synthetic


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_callable_is_told_the_chain_steps_done():
    told = []
    svrhmc.hmc(0.1).run(synthetic(5, 2), 10, chains=3, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (30, 30)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


@pytest.mark.parametrize(
    ("show", "terminal", "expected"),
    [(None, True, True), (None, False, False), (True, False, True), (False, True, False)],
)
def test_a_line_is_shown_where_it_should_be(monkeypatch, show, terminal, expected):
    monkeypatch.setattr(progress, "_PATIENCE", -1)
    screen = Terminal() if terminal else io.StringIO()
    line = progress.ProgressLine(10, show, screen)
    line(5)
    line.close()
    assert ("50%" in screen.getvalue()) == expected
    assert screen.getvalue().endswith("\r" if terminal else "\n") == expected  # wiped, or one line after another


def test_short_runs_show_nothing():
    screen = Terminal()
    line = progress.ProgressLine(10, None, screen)
    line(10)
    line.close()
    assert screen.getvalue() == ""


def test_an_interrupt_leaves_the_line_wiped(monkeypatch):
    closed = []
    monkeypatch.setattr(progress.ProgressLine, "close", lambda self: closed.append(True))

    def interrupt(self, amount):
        raise KeyboardInterrupt

    monkeypatch.setattr(progress.ProgressLine, "__call__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        svrhmc.hmc(0.1).run(synthetic(5, 2), 10)
    assert closed


def test_compilation_is_said_on_a_terminal_where_it_takes_long():
    shown, quick, piped = Terminal(), Terminal(), io.StringIO()
    with progress.compilation_stage(None, shown):
        assert not gc.isenabled()
        time.sleep(0.8)
    assert gc.isenabled()
    assert "preparing compiled code, some seconds the first time on a machine: " in shown.getvalue()
    assert shown.getvalue().endswith("\r")
    with (
        progress.compilation_stage(None, quick),
        progress.compilation_stage(None, piped),
        progress.compilation_stage(False, shown),
    ):
        pass
    assert quick.getvalue() == piped.getvalue() == ""


def test_a_stage_within_another_has_the_line():
    stream = io.StringIO()
    with progress.stage("outer", True, stream), progress.stage("inner", True, stream):
        time.sleep(0.8)
    assert "inner: " in stream.getvalue()
    assert "outer" not in stream.getvalue()
    with progress.stage("outer", True, stream):
        time.sleep(0.8)
    assert "outer: " in stream.getvalue()


def test_a_stage_that_tells_its_share_foretells_its_end():
    stream = Terminal()
    with progress.stage("long work", None, stream):
        progress.set_share_done(0.25)
        time.sleep(0.8)
    assert "long work: " in stream.getvalue()
    assert ", about 2 s left" in stream.getvalue()
    with progress.stage("another", None, stream):
        time.sleep(0.8)
    assert "left" not in stream.getvalue().split("another")[1]  # what one stage told is not another's


def test_where_there_is_no_terminal_each_state_is_a_line(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(progress, "_PERIOD_OF_LINES", 0.1)
    with progress.stage("work", True, stream):
        time.sleep(0.8)
    assert stream.getvalue().splitlines()[0].startswith("work: ")
    assert "\r" not in stream.getvalue()


def test_every_long_stage_of_a_call_has_a_name(monkeypatch, capsys):
    """Each is shown at once here, and every part of the call is made slow: no two seconds are silent."""
    shown = []

    @contextmanager
    def stage(name, asked, stream=None):
        assert asked is True
        shown.append(name)
        yield

    for module in (drawing, judging, preparation, search, progress, regression):
        monkeypatch.setattr(module, "stage", stage)
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    table = {"x": x, "y": rng.poisson(np.exp(x / 2))}
    svrhmc.fit("y ~ x", table, "poisson", progress=True, draws=100)
    told = ["making columns of the table", "scales of the columns", "finding the mode", "choosing a sampler"]
    told += ["effective draws", "moments", "tails", "parameters"]
    assert [name for name in dict.fromkeys(shown) if "compiled code" not in name] == told
    assert any("compiled code" in name for name in shown)


def test_a_run_that_takes_far_longer_than_expected_says_so_and_what_to_do(monkeypatch):
    """A step that hardly moves: 1 draw in hundreds is effective."""
    remarks = []

    def reporter(asked, total, remark=""):
        remarks.append(remark)
        return (lambda amount: None), (lambda: None)

    monkeypatch.setattr(drawing, "reporter", reporter)
    monkeypatch.setattr(drawing, "_SLOW", 0.0)
    monkeypatch.setattr(drawing, "_MOST", 8)
    target = svrhmc.targets.logistic(np.eye(2), [0, 1])
    svrhmc.sample(target, 100, method=svrhmc.Sampler(UBU(0.01, 1.0, 1.0), Full()), certificate=False)
    assert not remarks[0]
    assert re.fullmatch(
        r"  \d+ of 100 effective, .* more \(budget_seconds=60 or fewer draws end it sooner\)", remarks[-1]
    )


@pytest.mark.parametrize(("verbose", "expected"), [(None, None), (0, False), (False, False), (1, True), (2, True)])
def test_estimators_show_progress_where_they_are_asked_to(verbose, expected, monkeypatch):
    class AskedError(Exception):
        pass

    def sample_regression(*_, progress, **__):
        raise AskedError(progress)

    monkeypatch.setattr(estimators, "sample_regression", sample_regression)
    X, y = [[0.0], [1.0], [2.0]], [0, 1, 1]
    with pytest.raises(AskedError, match=str(expected)):
        svrhmc.BayesianLogisticRegression(verbose=verbose).fit(X, y)
    with pytest.raises(ValueError, match="verbose must be a whole number"):
        svrhmc.BayesianLogisticRegression(verbose="yes").fit(X, y)


@pytest.mark.filterwarnings("ignore:The model contradicts")
@pytest.mark.parametrize("shown", [None, True])
def test_without_a_console_runs_go_on(monkeypatch, shown):
    X = np.random.default_rng(0).normal(size=(50, 2))

    def draws(shown):
        trace = svrhmc.hmc(0.1).run(svrhmc.targets.synthetic(5, 2), 50, engine="reference", progress=shown)
        posterior = svrhmc.sample(svrhmc.targets.linear(X, X[:, 0]), draws=20, progress=shown)
        return np.concatenate([trace.draws.ravel(), posterior.trace.draws.ravel()])

    expected = draws(False)
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    with progress.compilation_stage(shown):
        assert (draws(shown) == expected).all()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_the_line_is_written_in_what_the_console_can_show(monkeypatch, encoding):
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    raw = io.BytesIO()
    line = progress.ProgressLine(10, True, io.TextIOWrapper(raw, encoding, write_through=True))
    line(5)
    line.close()
    assert ("━" if encoding == "utf-8" else "=") * 15 in raw.getvalue().decode(encoding)


def test_a_console_that_is_gone_ends_no_run(monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    stream = io.StringIO()
    line = progress.ProgressLine(10, True, stream)
    line(2)
    stream.close()
    line(2)
    line.close()
    assert not progress.is_shown(None, stream)
