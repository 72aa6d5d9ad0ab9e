"""The public face: what is there, what it costs to import, that every name is documented and tested."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import svrhmc

MODULES = [svrhmc, svrhmc.targets, svrhmc.theory, svrhmc.engines]
NAMES = [(module, name) for module in MODULES for name in module.__all__]
TESTS = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py") if path.name != Path(__file__).name)


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[f"{m.__name__}.{n}" for m, n in NAMES])
def test_every_public_name_is_there_documented_and_in_a_test(module, name):
    thing = getattr(module, name)
    assert inspect.getdoc(thing)
    assert name in TESTS or name in ("Summary", "Job", "Outcome", "Schedule", "Custom", "GeneralisedLinear")


def test_importing_loads_numpy_and_nothing_heavier():
    code = "import sys, svrhmc; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("scipy", "numba", "jax", "arviz", "matplotlib", "typer", "rich", "ot", "sklearn", "pandas"):
        assert f"'{heavy}'" not in loaded
    assert "'numpy'" in loaded


def test_the_version_is_stated_once_and_the_same():
    root = Path(__file__).parents[1]
    assert f'version = "{svrhmc.__version__}"' in (root / "pyproject.toml").read_text()
    assert f"version: {svrhmc.__version__}" in (root / "CITATION.cff").read_text()
    assert f"[{svrhmc.__version__}]" in (root / "CHANGELOG.md").read_text()


def test_the_readme_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[1] / "README.md").read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert len(text.splitlines()) <= 120
