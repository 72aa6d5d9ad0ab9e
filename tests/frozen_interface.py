"""The face of the library: public names with their signatures, and the commands of the shell with what they print.

`frozen_runs.py` says what is stored, how it is written anew, and what to do about differences.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import inspect
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

NAMES = Path(__file__).parent / "stored" / "frozen-names.json"
COMMANDS = Path(__file__).parent / "stored" / "frozen-commands.json"
MODULES = (
    "svrhmc", "svrhmc.compare", "svrhmc.data", "svrhmc.diagnostics", "svrhmc.distances", "svrhmc.dynamics",
    "svrhmc.engines", "svrhmc.estimators", "svrhmc.exact", "svrhmc.fitting", "svrhmc.gradients", "svrhmc.plots",
    "svrhmc.posterior", "svrhmc.reporting", "svrhmc.sampler_comparison", "svrhmc.samplers", "svrhmc.scheme", "svrhmc.tables", "svrhmc.targets",
    "svrhmc.targets.families", "svrhmc.targets.libraries", "svrhmc.targets.priors", "svrhmc.theory", "svrhmc.trace",
    "svrhmc.whitening",
)  # fmt: skip
SHELL = ((), ("fit",), ("predict",), ("compare",), ("compare-samplers",), ("plan",), ("reproduce",), ("warm",))
PLANNED = ("--n", "100000", "--dim", "50", "--smoothness", "10", "--convexity", "1", "--accuracy", "0.1")
WIDTH = 100


def public(module: Any) -> list[str]:
    """The names that a module says are public, or else those of its own functions and classes, and of its constants."""
    if hasattr(module, "__all__"):
        extra = getattr(module, "_ESTIMATORS", ())
        return sorted({*module.__all__, *extra})
    return sorted(
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (
            getattr(thing, "__module__", None) == module.__name__
            if inspect.isclass(thing) or inspect.isfunction(thing)
            else name.isupper()
        )
    )


def signature_of(thing: Any) -> str:
    """Parameters with their defaults, without types and without addresses; empty where there are none to be known."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    text = str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def described(thing: Any) -> dict[str, Any]:
    """The kind of a thing, its signature, and for a class its public attributes with theirs."""
    if inspect.ismodule(thing):
        return {"kind": "module"}
    if not inspect.isclass(thing):
        if callable(thing):
            return {"kind": "function", "signature": signature_of(thing)}
        return {"kind": type(thing).__name__}
    parts = {}
    for name in dir(thing):
        owner = next((each for each in thing.__mro__ if name in vars(each)), thing)
        foreign = not owner.__module__.startswith("svrhmc") or re.fullmatch("set_.*_request", name)  # scikit-learn's
        if name.startswith("_") or foreign:
            continue
        part = inspect.getattr_static(thing, name)
        inner = part.__func__ if isinstance(part, (classmethod, staticmethod)) else part
        parts[name] = signature_of(inner) if inspect.isfunction(inner) else ""
    bases = [each.__name__ for each in thing.__mro__ if issubclass(each, BaseException)]
    made = {"kind": "error" if bases else "class", "signature": signature_of(thing)}
    return {**made, **({"is": bases} if bases else {"parts": parts})}


def names() -> dict[str, Any]:
    """Every public name, by module."""
    found = {}
    for path in MODULES:
        module = importlib.import_module(path)
        found[path] = {name: described(getattr(module, name)) for name in public(module)}
    return json.loads(json.dumps(found))


# The shell


def invoke(*arguments: str) -> Any:
    """A command, in a terminal of a fixed width."""
    from svrhmc.shell import app as cli

    return CliRunner().invoke(cli.app, list(arguments), env={"COLUMNS": str(WIDTH), "TERM": "dumb", "NO_COLOR": "1"})


def without_times(text: str) -> list[str]:
    """Lines in which each time that was taken is replaced by one word, and blanks at the ends are gone."""
    timed = re.sub(r"(less than a tenth of a second|\d[\d.,]* (s|ms|seconds|minutes)\b)", "TIME", text)
    return [line.rstrip() for line in timed.splitlines()]


def shapes(value: Any) -> Any:
    """A JSON value with its keys, and the kinds of what they hold."""
    if isinstance(value, dict):
        return {key: shapes(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shapes(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def example() -> dict[str, Any]:
    """What `svrhmc fit` prints and writes for the packaged example, and `svrhmc predict` after it."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        printed = invoke("fit")
        found["svrhmc fit"] = {"code": printed.exit_code, "printed": without_times(printed.output)}
        place = Path("titanic-fit")
        found["files"] = sorted(each.name for each in place.iterdir() if each.suffix != ".nc")  # that needs ArviZ
        with open(place / "coefficients.csv", newline="") as file:
            rows = list(csv.reader(file))
        found["coefficients.csv"] = {"columns": rows[0], "names": [row[0] for row in rows[1:]]}
        with open("new.csv", "w", newline="") as file:
            csv.writer(file).writerows(
                [["class", "age", "sex"], ["first", "child", "female"], ["crew", "adult", "male"]]
            )
        predicted = invoke("predict", "titanic-fit", "new.csv")
        found["svrhmc predict"] = {"code": predicted.exit_code, "printed": without_times(predicted.output)}
        made = sorted(each for each in os.listdir() if each.endswith(".csv") and each != "new.csv")
        found["predictions"] = {}
        for name in made:
            with open(name, newline="") as file:
                found["predictions"][name] = next(csv.reader(file))
        result = invoke("fit", "--json", "--out", "other")
        found["svrhmc fit --json"] = {"code": result.exit_code, "shape": shapes(json.loads(result.stdout))}
        found["errors"] = {
            " ".join(words): [(done := invoke(*words)).exit_code, *done.output.splitlines()]
            for words in (
                ("fit", "nothing.csv"), ("fit", "--family", "poison"), ("predict", "nothing"), ("compare", "--n", "0"),
            )
        }  # fmt: skip
    return found


def commands() -> dict[str, Any]:
    """Every command with its help, and the example."""
    helped = {}
    for words in SHELL:
        done = invoke(*words, "--help")
        helped[" ".join(("svrhmc", *words))] = {"code": done.exit_code, "printed": without_times(done.output)}
    planned = invoke("plan", *PLANNED)
    printed = {"code": planned.exit_code, "printed": without_times(planned.output)}
    found = {"versions": versions(), "help": helped, "example": example(), "svrhmc plan": printed}
    return json.loads(json.dumps(found))


def versions() -> dict[str, str]:
    """Of the packages that lay out the help: with others, lines are broken in other places."""
    from importlib.metadata import version

    return {name: version(name) for name in ("typer", "rich")}


def known_commands() -> list[str]:
    """The commands that the shell has."""
    import typer

    from svrhmc.shell import app as cli

    return sorted(typer.main.get_command(cli.app).commands)


def differences(found: Any, stored: Any, path: str = "") -> list[str]:
    """The places in which two JSON values differ."""
    if isinstance(found, dict) and isinstance(stored, dict):
        apart = []
        for key in sorted({*found, *stored}):
            if key not in found:
                apart.append(f"{path}/{key} is gone")
            elif key not in stored:
                apart.append(f"{path}/{key} is new")
            else:
                apart += differences(found[key], stored[key], f"{path}/{key}")
        return apart
    return [] if found == stored else [f"{path}: {found!r} instead of {stored!r}"]
