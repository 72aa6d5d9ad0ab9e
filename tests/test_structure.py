"""How the code hangs together: who imports whom, and that nobody asks for a class elsewhere."""

import ast
import importlib
import inspect
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import svrhmc

pytestmark = pytest.mark.untraced  # it reads the code

SOURCE = Path(svrhmc.__file__).parent
FILES = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
# From the ground up: a part imports what stands before it, or beside it in its own folder.
LAYERS = [
    ("core",),
    ("families",),
    ("kernels", "priors"),
    ("rows",),
    ("density",),
    ("models",),
    ("targets",),
    ("whitening", "distances", "diagnostics", "tables"),
    ("data", "gradients", "dynamics", "checkpoint"),
    ("engines", "trace", "scheme"),
    ("samplers",),
    ("exact",),
    ("theory", "sampling"),
    ("results",),
    ("posterior", "reporting"),
    ("sampler_comparison", "fitting"),
    ("compare", "estimators", "plots"),
    ("paper",),
    ("shell",),
    ("__main__",),
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def module_of(file):
    return "svrhmc." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


MODULES = {module_of(file): file for file in FILES if file != "__init__.py"}


@cache
def nodes(file):
    """Every node of the syntax tree of a file."""
    return list(ast.walk(ast.parse(FILES[file].read_text())))


def imports(file):
    """Every module of the package that a file imports, at its top, in a function or for its types."""
    found = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in inner}
    return {name for name in found if name.startswith("svrhmc.")}


@cache
def graph():
    """What each module imports. It takes seconds to parse them all, which only those who run these tests do."""
    return {name: imports(file) for name, file in MODULES.items()}


def part(name):
    return name.split(".")[1]


def test_every_part_has_its_layer():
    assert {part(name) for name in graph()} == set(LEVEL)


@pytest.mark.parametrize("name", MODULES)
def test_no_import_goes_upwards(name):
    for other in graph()[name]:
        assert part(other) == part(name) or LEVEL[part(other)] < LEVEL[part(name)], f"{name} imports {other}"


def test_no_import_goes_in_a_circle_not_even_a_lazy_one():
    """A folder's __init__ names what is in it, and is left out."""
    state: dict[str, str] = {}

    def visit(name, path):
        assert state.get(name) != "open", " → ".join([*path, name])
        if state.get(name) == "done" or name not in graph():
            return
        state[name] = "open"
        for other in graph()[name]:
            if not MODULES[other].endswith("__init__.py") if other in MODULES else False:
                visit(other, [*path, name])
        state[name] = "done"

    for name, file in MODULES.items():
        if not file.endswith("__init__.py"):
            visit(name, [])


KINDS = re.compile(
    r"isinstance\([^)]*\b(Gradient|Batched|Full|Minibatch|SVRG|SAGA|ControlVariate"
    r"|FiniteSum|GeneralisedLinear|Gaussian|Custom|Whitened\w*|DenseRows|SparseRows|DenseWhitening|LowRankWhitening"
    r"|Loss|LogisticLoss|SquaredLoss|Dynamics|Overdamped|Underdamped|EulerMaruyama|Exponential|UBU|BAOAB|Anchored)\b"
)
OWN = {"gradients.py", "density/base.py", "whitening/targets.py", "dynamics.py"}


@pytest.mark.parametrize("file", FILES)
def test_nobody_asks_for_a_class_of_another_part(file):
    found = KINDS.findall(re.sub(r"\s+", " ", FILES[file].read_text()))
    assert not found or file in OWN
    assert not re.search(r"type\(\w*(gradient|target|loss|dynamics)\w*\) (in|is|==)", FILES[file].read_text())


def test_the_grep_finds_what_it_looks_for():
    assert KINDS.search("if isinstance(gradient, SVRG | SAGA):")
    assert KINDS.search("isinstance(job.target, GeneralisedLinear)")
    assert not KINDS.search("isinstance(value, float)")


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith(("sampling/", "results/"))])
def test_no_frozen_instance_is_written_and_no_import_is_hidden(file):
    text = FILES[file].read_text()
    assert "__setattr__" not in text
    assert "import_module" not in text
    assert not re.search(r"__dict__(\[|\.update)", text)


def test_each_engine_has_one_kind_of_chains():
    """What differs between samplers is a kernel."""
    kinds = {
        node.name
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.ClassDef) and any("Chains" in ast.unparse(base) for base in node.bases)
    }
    assert kinds == {"ReferenceChains", "CompiledChains", "JaxChains"}


def calls_of(function):
    """Names of what a function calls, itself or in functions inside it."""
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}


@cache
def every_call():
    """(file, name) of every function, and the names of what it calls."""
    return [
        (file, node.name, calls_of(node)) for file in FILES for node in nodes(file) if isinstance(node, ast.FunctionDef)
    ]


def functions(*wanted):
    """(file, name) of the functions that call one of each of these sets of names."""
    return [(file, name) for file, name, calls in every_call() if all(calls & names for names in wanted)]


def test_the_gradient_over_rows_is_summed_once_by_each_who_executes():
    """Σℓ′a in NumPy, in compiled code (tiles and batches share `evaluate`), in JAX, and in the kernel of the GPU."""
    adds = {"combine", "combine_at", "tile_sum", "some_sum", "row_add", "_row_sum"}
    places = functions({"slopes", "_slopes", "slope", "evaluate"}, adds)
    assert {file for file, _ in places} == {
        "rows/forms.py", "kernels/passes.py", "engines/jax/rows.py", "engines/jax/gpu.py",
    }  # fmt: skip
    assert [name for file, name in places if file == "rows/forms.py"] == ["gradients_at"]
    assert [name for _, name in functions({"formulas_of_rows"})] == ["evaluate"]
    sums = [
        node.name
        for node in nodes("engines/jax/gpu.py")
        if isinstance(node, ast.FunctionDef) and node.name == "_row_sum"
    ]
    assert len(sums) == 1


def test_newtons_method_stands_once():
    """Whoever solves with a Hessian to make a step asks `Newton`; the proof of propriety has a function of its own."""
    solving = {file for file, _ in functions({"cho_factor"})}
    assert solving - {"density/newton.py", "density/recession.py"} == {
        "density/generalised.py"
    }  # Σ of closed forms, a guess
    assert functions({"Newton"}) != []
    assert {file for file, _ in functions({"Newton"})} == {"density/mode.py", "density/profile.py", "density/minima.py"}


def test_exact_samplers_know_no_engine():
    for name in graph():
        if part(name) == "exact":
            assert not {other for other in graph()[name] if other.startswith("svrhmc.engines.")} - {
                "svrhmc.engines.base"
            }


ROOT = Path(__file__).resolve().parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def table_below(heading):
    """The cells of the first table below a heading, without the line of titles."""
    lines = iter(CONTRIBUTING.partition(f"## {heading}\n")[2].splitlines())
    table = []
    for line in lines:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif table:
            break
    return table[2:]


MAP = [(re.findall(r"`([^`]+)`", place), text) for place, text in table_below("Where things are")]


def test_the_map_has_every_folder_and_module():
    named = {place.removesuffix(".py").strip("/").split("/")[0] for places, _ in MAP for place in places}
    assert named == set(LEVEL)


@pytest.mark.parametrize(("places", "text"), MAP, ids=[places[0] for places, _ in MAP])
def test_the_map_names_files_that_are_there(places, text):
    folders = [SOURCE / place for place in places if place.endswith("/")] + [SOURCE, ROOT]
    named = re.findall(r"`([\w./]+(?:\.(?:py|toml|csv)|/))`", text)
    for name in (*places, *named):
        assert any((folder / name).exists() for folder in folders), name


def test_the_map_is_drawn_from_the_ground_up():
    """Whatever a line imports stands on a line above it, or on its own."""
    line = {place.removesuffix(".py").strip("/"): k for k, (places, _) in enumerate(MAP) for place in places}
    upwards = {
        (part(name), part(other))
        for name in graph()
        for other in graph()[name]
        if part(name) != part(other) and line[part(other)] > line[part(name)]
    }
    assert upwards == set()


def test_families_and_kernels_stand_on_what_the_map_says():
    assert {part(other) for name in graph() if part(name) == "families" for other in graph()[name]} == {
        "core",
        "families",
    }
    assert {part(other) for name in graph() if part(name) == "kernels" for other in graph()[name]} <= {
        "core",
        "families",
        "kernels",
    }
    for file, path in FILES.items():
        if file.startswith("families/"):
            assert not re.search(r"^\s*(import|from) (numba|jax)", path.read_text(), re.MULTILINE), file


def test_targets_define_nothing():
    for file, path in FILES.items():
        if file.startswith("targets/"):
            kinds = {type(node) for node in ast.parse(path.read_text()).body}
            assert kinds <= {ast.Expr, ast.Import, ast.ImportFrom, ast.Assign}, file


QUESTIONS = table_below("Ten questions of a newcomer")


@pytest.mark.parametrize(("question", "answer"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
def test_a_grep_answers_each_question_of_a_newcomer(question, answer):
    command = shlex.split(answer.strip("`"))
    assert command[0] == "grep"
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(found) == 1


def test_the_newcomers_questions_are_ten():
    assert len(QUESTIONS) == 10


def documented(path):
    """Every class and function of a file with the classes around it, and its docstring or None."""

    def visit(node, around):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
                yield around, child, ast.get_docstring(child)
                inner = (*around, child.name) if isinstance(child, ast.ClassDef) else None
                yield from visit(child, inner) if inner else ()
            else:
                yield from visit(child, around)

    return visit(ast.parse(path.read_text()), ())


SAYS_SOMETHING = re.compile(r"[^\x00-\x7f]|[=()\[\]|~0-9]|\b[b-zB-Z]\b")  # a formula, a shape, a symbol


def test_a_docstring_says_something():
    """A formula may be short; three words are no sentence."""
    empty = [
        (file, node.name, text)
        for file, path in FILES.items()
        for _, node, text in documented(path)
        if text and len(text.split()) <= 3 and not SAYS_SOMETHING.search(text)
    ]
    assert empty == []


def test_the_search_for_empty_docstrings_finds_them():
    for text in ("None.", "They are.", "As given.", "A copy."):
        assert not SAYS_SOMETHING.search(text)
    for text in ("W z.", "∂ℓ/∂t.", "(n, columns).", "k."):
        assert SAYS_SOMETHING.search(text)


def test_a_method_without_a_docstring_overrides_one_that_has_it():
    bare = [
        (file, around, node.name)
        for file, path in FILES.items()
        for around, node, text in documented(path)
        if around and not text and isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        and not any(name.startswith("_") for name in around)
    ]  # fmt: skip
    assert len(bare) > 100
    for file, around, name in bare:
        kind = importlib.import_module(module_of(file))
        for outer in around:
            kind = getattr(kind, outer)
        above = [vars(base)[name] for base in kind.__mro__[1:] if name in vars(base)]
        assert any(inspect.getdoc(getattr(method, "__func__", method)) for method in above), f"{kind.__name__}.{name}"


def files_walked(call):
    """The files of the package whose functions a call goes through, once everything is loaded."""
    walked = set()

    def note(frame, event, _):
        if event == "call":
            walked.add(frame.f_code.co_filename)

    call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {path.relative_to(SOURCE).as_posix() for path in map(Path, walked) if SOURCE in path.parents}


def test_a_run_walks_through_few_files():
    """From `svr_hmc(0.1).run` to the draws."""
    target = svrhmc.targets.logistic(np.random.default_rng(0).normal(size=(50, 2)), np.arange(50) % 2)
    walked = files_walked(lambda: svrhmc.svr_hmc(0.1).run(target, 20, chains=1, threads=1, progress=False).draws)
    assert "engines/compiled/engine.py" in walked
    assert len(walked) <= 12, sorted(walked)


def churn():
    """The table of README's first example."""
    rng = np.random.default_rng(0)
    age, calls = rng.uniform(18, 80, 3000), rng.poisson(1.5, 3000)
    plan = rng.choice(["basic", "family", "premium"], 3000)
    odds = 0.4 - 0.03 * age + 0.5 * calls - 1.2 * (plan == "premium")
    return {"age": age, "calls": calls, "plan": plan, "churn": rng.random(3000) < 1 / (1 + np.exp(-odds))}


def test_a_fit_walks_through_no_more_files_than_it_did():
    """From README's `fit` to its summary: the mode, the choice of a sampler, draws, their correction and the verdict."""
    walked = files_walked(lambda: str(svrhmc.fit("churn ~ age + plan + calls", churn(), progress=False).summary()))
    assert {"tables/formula.py", "density/mode.py", "exact/split.py", "sampling/certificate.py"} <= walked
    assert len(walked) <= 73, sorted(walked)


def test_tests_replace_names_in_modules_that_they_import():
    """`monkeypatch.setattr(module, "name", …)`: a module that has moved is then an error where it is imported."""
    tests = Path(__file__).resolve().parent
    by_text = re.compile(r"\b(setattr|delattr)\(\s*f?[\"']svrhmc\.")
    assert [path.name for path in tests.rglob("*.py") if by_text.search(path.read_text())] == []
    assert by_text.search("monkeypatch.set" + 'attr("svrhmc.engines.base.PIECE_SECONDS", 0.0)')


def test_no_merge_is_left_half_done():
    root = Path(__file__).resolve().parents[1]
    folders = [root / name for name in ("src", "tests", "tools", "benchmarks", "docs")]
    files = [path for folder in folders for kind in ("*.py", "*.md", "*.toml") for path in folder.rglob(kind)]
    assert [path for path in (*files, *root.glob("*.*")) if path.is_file() and half_merged(path.read_bytes())] == []
    assert half_merged(b"one\n" + b"<" * 7 + b" HEAD\ntwo\n")


def half_merged(content):
    return re.search(rb"^(<{7}|>{7}) ", content, re.MULTILINE) is not None


def test_deprecations_have_one_mechanism():
    """Former names warn by `deprecated` of core/errors.py; `compare` and `parts` are the modules that have any."""
    files = [file for file, path in FILES.items() if re.search(r"\bDeprecationWarning, stacklevel", path.read_text())]
    assert files == ["core/errors.py"]
