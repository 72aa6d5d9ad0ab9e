"""Where it runs: without a folder to write to, without a home, without a console."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import svrhmc
from svrhmc import warming
from svrhmc.core import code_cache, progress

USE = """
import numpy as np
from svrhmc.core import code_cache
from svrhmc.core.progress import compiling
from svrhmc.kernels import float64
from svrhmc.kernels.rows import dense_rows
with compiling(None):
    out = np.empty((1, 2))
    float64.predict(dense_rows(np.ones((2, 2))), np.ones(2), 0, 2, out)
with compiling(None):
    pass
print(code_cache.cache_folder(), float64.predict.stats.cache_path, int(out.sum()))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package in which numba can write nothing, not even as root: a file is where the folder would be."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(Path(svrhmc.__file__).parent, folder / "svrhmc", ignore=shutil.ignore_patterns("__pycache__"))
    for sub in ("kernels", "core", "."):
        (folder / "svrhmc" / sub / "__pycache__").write_text("")
    return folder


def use(package, cwd, **variables):
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")}
    environment = {**kept, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    cwd.mkdir(exist_ok=True)
    said = subprocess.run([sys.executable, "-c", USE], cwd=cwd, env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return said


def test_without_any_folder_it_runs_and_says_so_once(package, tmp_path):
    said = use(package, tmp_path / "cwd", HOME="/dev/null/none")
    assert said.stdout.split() == ["None", "None", "4"]
    assert said.stderr.splitlines() == [
        "svrhmc: there is no folder to keep compiled code in, so each process compiles again; set SVRHMC_CACHE to a "
        "folder that can be written to."
    ]


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ({"XDG_CACHE_HOME": "", "HOME": "{}/home"}, "home/.cache/svrhmc/compiled"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "{}/home"}, "home/.cache/svrhmc/compiled"),
        ({"XDG_CACHE_HOME": "{}/xdg"}, "xdg/svrhmc/compiled"),
        ({"XDG_CACHE_HOME": "{}/xdg", "HOME": ""}, "xdg/svrhmc/compiled"),
        ({"SVRHMC_CACHE": "{}/mine", "XDG_CACHE_HOME": "{}/xdg", "HOME": "{}/home"}, "mine/compiled"),
        ({"NUMBA_CACHE_DIR": "{}/numba", "SVRHMC_CACHE": "{}/mine"}, "numba"),
    ],
)  # fmt: skip
def test_compiled_code_goes_to_the_first_folder_that_can_be_written(package, tmp_path, variables, where):
    said = use(package, tmp_path / "cwd", **{name: value.format(tmp_path) for name, value in variables.items()})
    assert said.stdout.split()[0] == str(tmp_path / where)
    assert not said.stderr
    assert list((tmp_path / where).rglob("float64.predict*.nbc"))
    assert not list((tmp_path / "cwd").iterdir())


def test_a_full_disk_is_no_place(monkeypatch, tmp_path):
    assert code_cache._usable(tmp_path)
    monkeypatch.setattr(code_cache, "_ROOM", 1 << 70)
    assert not code_cache._usable(tmp_path)


def test_code_of_others_is_kept_where_it_was(tmp_path):
    from numba.core import caching as numbas

    kind = code_cache._locator(numbas, tmp_path)

    def theirs():
        pass

    assert kind.from_function(theirs, __file__) is None


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
    with progress.compiling(shown):
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


def test_everything_that_users_need_is_compiled_ahead(monkeypatch):
    made = []
    monkeypatch.setattr(warming, "_use", made.append)
    lines = []
    warming.warm(say=lines.append)
    assert len(made) == len(set(made)) == 8
    assert lines[0].startswith("[1/8] logistic model, dense rows, float64: ")
    monkeypatch.undo()
    from svrhmc.kernels import loop

    before = len(loop.advance.signatures)
    warming.warm((warming.Kind("linear", "dense", "float64"),), say=lines.append)
    assert len(loop.advance.signatures) >= max(2, before)
    with pytest.raises(ValueError, match="model must be one of logistic, linear; got tree"):
        warming.warm((warming.Kind("tree", "dense", "float64"),))
