import gc
import io
import time

import pytest

import svrhmc
from svrhmc.core import progress
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
    assert screen.getvalue().endswith("\r") == expected


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
    with progress.compiling(None, shown):
        assert not gc.isenabled()
        time.sleep(0.8)
    assert gc.isenabled()
    assert "preparing compiled code, slow only the first time on a machine: " in shown.getvalue()
    assert shown.getvalue().endswith("\r")
    with progress.compiling(None, quick), progress.compiling(None, piped), progress.compiling(False, shown):
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
