"""Where compiled code is kept: the first folder that can be written, or none; and what is compiled ahead."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import svrhmc
from svrhmc.core import code_cache
from svrhmc.shell import warming

USE = """
import numpy as np
from svrhmc.core import code_cache
from svrhmc.core.progress import compilation_stage
from svrhmc.kernels import float64
from svrhmc.kernels.rows import dense_rows
with compilation_stage(None):
    out = np.empty((1, 2))
    float64.predict(dense_rows(np.ones((2, 2))), np.ones(2), 0, 2, out)
with compilation_stage(None):
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
    result = subprocess.run([sys.executable, "-c", USE], cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result


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
    assert code_cache._is_writable(tmp_path)
    monkeypatch.setattr(code_cache, "_LEAST_FREE_BYTES", 1 << 70)
    assert not code_cache._is_writable(tmp_path)


def test_code_of_others_is_kept_where_it_was(tmp_path):
    from numba.core import caching as numbas

    kind = code_cache._locator(numbas, tmp_path)

    def theirs():
        pass

    assert kind.from_function(theirs, __file__) is None


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
