"""Exit codes, command by command: 2 where nothing was begun, 1 where not all was done, 130 after an interrupt."""

import errno

import numpy as np
import pytest
from typer.testing import CliRunner

from svrhmc.paper import run
from svrhmc.shell import app as cli
from svrhmc.shell import fit as fitting
from svrhmc.shell import outputs
from svrhmc.shell import predict as predicting

PLAN = ("plan", "--n", "1000", "--dim", "10", "--smoothness", "4", "--convexity", "1", "--accuracy", "0.1")
COMPARE = ("compare-samplers", "--n", "20", "--dim", "2", "--chains", "50", "--passes", "5")
FIT = ("fit", "{here}/a.csv", "--target", "y", "--draws", "50")
PREDICT = ("predict", "{here}/fitted", "{here}/a.csv")
REPRODUCE = ("reproduce", "table1", "--quick")

NOT_BEGUN = {
    "no such command": ("fits",),
    "fit: no file": ("fit", "{here}/none.csv", "--target", "y"),
    "fit: a file that is no table": ("fit", "{here}/empty", "--target", "y"),
    "fit: no such column": ("fit", "{here}/a.csv", "--target", "z", "--out", "{here}/o"),
    "fit: no such option": (*FIT, "--speed", "1"),
    "fit: too few draws": ("fit", "{here}/a.csv", "--target", "y", "--draws", "1"),
    "fit: no such family": (*FIT, "--family", "guess", "--out", "{here}/o"),
    "fit: an impossible place": (*FIT, "--out", "/dev/null/x"),
    "fit: a file for a folder": (*FIT, "--out", "{here}/empty"),
    "predict: no fit": ("predict", "{here}/none", "{here}/a.csv"),
    "predict: a fit that is none": ("predict", "{here}/empty", "{here}/a.csv"),
    "predict: an impossible place": (*PREDICT, "--out", "/dev/null/x"),
    "predict: a folder for a file": (*PREDICT, "--out", "{here}"),
    "predict: no such level": (*PREDICT, "--level", "2"),
    "plan: no constants": ("plan", "--accuracy", "0.1"),
    "plan: no file": ("plan", "--accuracy", "0.1", "--data", "{here}/none.csv"),
    "plan: an impossible place": (*PLAN, "--plot", "/dev/null/x.png"),
    "compare: no fit": ("compare", "{here}/fitted", "{here}/none"),
    "compare: one fit": ("compare", "{here}/fitted"),
    "compare: a fit twice": ("compare", "{here}/fitted", "{here}/fitted"),
    "compare: options of another command": ("compare", "{here}/fitted", "{here}/other", "--n", "3"),
    "compare-samplers: no such sampler": (*COMPARE, "--samplers", "guess"),
    "compare-samplers: an impossible place": (*COMPARE, "--plot", "/dev/null/x.png"),
    "reproduce: no such part": ("reproduce", "figure9"),
    "reproduce: an impossible place": (*REPRODUCE, "--out", "/dev/null/x"),
    "reproduce: a file for a folder": (*REPRODUCE, "--out", "{here}/empty"),
    "reproduce: a file within the folder": (*REPRODUCE, "--out", "{here}/spoilt"),
    "reproduce: no such folder of data": (*REPRODUCE, "--data", "{here}/none"),
    "warm: no such model": ("warm", "--model", "guess"),
}
WORK = {  # what does the work of a command, and where the command looks for it
    "fit": (fitting, "_posterior", (*FIT, "--out", "{here}/o")),
    "predict": (predicting, "_predict", (*PREDICT, "--out", "{here}/p.csv")),
    "plan": (cli.theory, "compare", PLAN),
    "compare": (cli, "compare", ("compare", "{here}/fitted", "{here}/other")),
    "compare-samplers": (cli, "compare_samplers", (*COMPARE, "--plot", "{here}/c.png")),
    "reproduce": (run, "reproduce", (*REPRODUCE, "--out", "{here}/r")),
    "warm": (cli, "warm", ("warm",)),
}
WRITES = {
    "predict": (predicting, "write_text", WORK["predict"][2]),
    "plan": (cli, "plot_complexity", (*PLAN, "--plot", "{here}/c.png")),
    "compare-samplers": (cli, "plot_comparison", WORK["compare-samplers"][2]),
    "fit": (outputs, "report", (*FIT, "--out", "{here}/o", "--quiet")),
}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codes")
    rng = np.random.default_rng(0)
    np.savetxt(folder / "a.csv", rng.normal(size=(20, 2)), "%.3f", ",", header="a,y", comments="")
    (folder / "empty").touch()
    (folder / "spoilt").mkdir()
    (folder / "spoilt" / run.WORK).touch()
    for name in ("fitted", "other"):
        assert invoke(folder, *FIT, "--out", f"{{here}}/{name}", "--quiet").exit_code == 0
    return folder


def invoke(folder, *arguments):
    given = [argument.format(here=folder) for argument in arguments]
    return CliRunner().invoke(cli.app, given, env={"COLUMNS": "80", "TERM": "dumb"})


def failing(error):
    def fail(*arguments, **settings):
        raise error

    return fail


@pytest.mark.parametrize("name", NOT_BEGUN)
def test_what_is_refused_before_the_work_has_the_code_2(name, here):
    result = invoke(here, *NOT_BEGUN[name])
    assert result.exit_code == 2, result.output
    assert [line[:7] for line in result.output.splitlines()] == ["error: "], result.output


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("odd"), OSError(errno.ENOSPC, "No space left", "x")])
@pytest.mark.parametrize("name", WORK)
def test_work_that_fails_has_the_code_1(name, error, here, monkeypatch):
    module, function, arguments = WORK[name]
    monkeypatch.setattr(module, function, failing(error))
    result = invoke(here, *arguments)
    assert result.exit_code == 1, result.output
    assert result.output.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("name", WRITES)
def test_a_result_that_cannot_be_written_has_the_code_1(name, here, monkeypatch):
    module, function, arguments = WRITES[name]
    monkeypatch.setattr(module, function, failing(PermissionError(errno.EACCES, "Permission denied", "x")))
    result = invoke(here, *arguments)
    assert result.exit_code == 1, result.output
    assert "Permission denied" in result.output.splitlines()[-1]


@pytest.mark.parametrize("name", WORK)
def test_an_interrupt_has_the_code_130(name, here, monkeypatch):
    module, function, arguments = WORK[name]
    monkeypatch.setattr(module, function, failing(KeyboardInterrupt()))
    result = invoke(here, *arguments)
    assert result.exit_code == 130, result.output
    assert result.output.splitlines()[-1].startswith("Interrupted")


def test_a_data_set_that_is_missing_has_the_code_1(here, monkeypatch):
    finished = run.Finished(here / "report.md", ("pima: not there",))
    monkeypatch.setattr(run, "reproduce", lambda *arguments: finished)
    assert invoke(here, *WORK["reproduce"][2]).exit_code == 1
