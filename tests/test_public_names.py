"""The public face: what is there, what it costs to import, that every name is documented and tested."""

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import svrhmc

MODULES = [
    svrhmc, svrhmc.targets, svrhmc.theory, svrhmc.engines, svrhmc.gradients, svrhmc.whitening, svrhmc.exact,
]  # fmt: skip
OPEN = [svrhmc.dynamics, svrhmc.distances]
NAMES = [(module, name) for module in MODULES for name in module.__all__] + [
    (module, name)
    for module in OPEN
    for name, thing in vars(module).items()
    if not name.startswith("_")
    and (inspect.isclass(thing) or inspect.isfunction(thing))
    and thing.__module__ == module.__name__
]
TESTS = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py") if path.name != Path(__file__).name)
# made by other names, which the tests call
TYPES_RETURNED = {
    "Summary",
    "Custom",
    "GeneralisedLinear",
    "Engine",
    "Estimator",
    "Gradient",
    "Batched",
    "Whitening",
    "Dynamics",
    "PlugIn",
    "Curved",
    "Gaussian",
    "Memory",
    "require_dynamics",
    "require_gradient",
    "require_whitening",
    "is_whitened",
    "Whitened",
    "Expansion",
    "RowExpansion",
    "Bound",
    "Comparison",
    "Complexity",
    "Condition",
    "Constants",
    "Plan",
    "Regime",
    "OtherRate",
    "PathBounds",
    "Term",
}


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[f"{m.__name__}.{n}" for m, n in NAMES])
def test_every_public_name_is_documented_and_used_in_a_test(module, name):
    thing = getattr(module, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert thing.__doc__
        assert not thing.__doc__.startswith(f"{name}(")  # what a dataclass writes where nobody did
    assert name in TYPES_RETURNED or re.search(rf"\b{name}\(|\.{name}\b|\b{name}\b,|import .*\b{name}\b", TESTS)


def test_importing_loads_numpy_and_nothing_heavier():
    code = "import sys, svrhmc; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in (
        "scipy",
        "numba",
        "jax",
        "numpyro",
        "pymc",
        "bambi",
        "arviz",
        "matplotlib",
        "typer",
        "rich",
        "ot",
        "sklearn",
        "pandas",
    ):
        assert f"'{heavy}'" not in loaded
    assert "'numpy'" in loaded


def test_the_version_is_stated_once_and_the_same():
    root = Path(__file__).parents[1]
    assert 'dynamic = ["version"]' in (root / "pyproject.toml").read_text()  # that of svrhmc/core/version.py
    assert f"version: {svrhmc.__version__}" in (root / "CITATION.cff").read_text()


ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *(f"docs/{name}.md" for name in (
    "index", "tutorial", "automatic", "families", "family_details", "priors", "extending", "theory", "sklearn", "results_of_a_fit", "models",
    "tall", "coming_from", "production"))]  # fmt: skip


def exists(name):
    """Whether a dotted name of the package is there, or another package installed."""
    package, *parts = name.split(".")
    if package != "svrhmc":
        return importlib.util.find_spec(package) is not None
    found = svrhmc
    for part in parts:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


GALLERY = [
    f"docs/gallery/{path.name}" for path in sorted((ROOT / "docs" / "gallery").glob("*.md")) if path.stem != "index"
]
# models that JAX compiles, which tests of their own have in parts; large tables
LONGEST = {
    "docs/models.md",
    *(f"docs/gallery/{name}.md" for name in ("churn", "claims", "dask", "many_columns", "numpyro", "samplers")),
}
LONG = ["docs/tutorial.md", "docs/priors.md", "docs/sklearn.md"]  # they have blocks for which much is compiled


@pytest.mark.untraced
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")  # ArviZ's advice on some rows
@pytest.mark.parametrize(
    ("page", "long"),
    [
        *(pytest.param(page, False, marks=[pytest.mark.slow] * (page in LONGEST), id=page) for page in PAGES + GALLERY),
        *(pytest.param(page, True, marks=pytest.mark.slow, id=f"{page}, all of it") for page in LONG),
    ],
)
def test_the_examples_of_the_pages_run(tmp_path, monkeypatch, page, long):
    """Block after block, as a reader would.

    `<!-- needs name -->` before one leaves it out until there is one, `<!-- long -->` leaves it to the slow tests.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(svrhmc.engines.base, "_LOADED", dict(svrhmc.engines.base._LOADED))
    text = (ROOT / page).read_text()
    blocks = re.findall(
        r"(?:<!-- (?:needs (\S+)|(long)) -->\n)?^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == text.count("```python\n") > 0
    assert (page in LONG) == any(later for _, later, _ in blocks)
    names = {}
    for needed, later, block in blocks:
        if (not needed or exists(needed)) and (long or not later):
            exec(compile(block, page, "exec"), names)
    assert page != "README.md" or len(text.splitlines()) <= 120
    if page in GALLERY:
        figures = re.findall(r"!\[[^\]]+\]\((\w+\.svg)\)", text)
        assert figures
        assert all((tmp_path / name).is_file() and (ROOT / "docs" / "gallery" / name).is_file() for name in figures)


def test_a_block_that_needs_a_name_waits_for_it():
    assert exists("svrhmc.sample")
    assert exists("svrhmc.targets.glm")
    assert not exists("svrhmc.targets.no_such_name")
    assert exists("numpy")
    assert not exists("no_such_package")
