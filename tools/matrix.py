"""The tests with the oldest and the newest dependencies that pyproject.toml promises, on each Python it promises.

    python tools/matrix.py [--python 3.11 …] [--only oldest|newest] [--folder build/matrix] [TESTS …]

Each cell is a virtual environment of its own, with the package installed as a user would install it. "oldest" is, for
each requirement, the oldest release that is allowed and that has a wheel for that Python; "newest" is what pip finds.
The quick tests run in each, or those that are named (`tests` for all). Pythons are looked for among those of pyenv and
on the PATH.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11", "3.12", "3.13")
TOOLS = ("pytest", "pytest-xdist", "mpmath", "polars")  # of the extra `dev`: what tests need, and no linters
EXTRAS = ("arviz", "cli", "formula", "plot", "sklearn", "tables", "transport")
QUICK = (
    "tests/test_chain_state.py", "tests/test_stored_draws.py", "tests/test_extensions.py", "tests/test_gradients.py",
    "tests/test_dynamics.py", "tests/test_trace.py", "tests/test_diagnostics.py", "tests/test_saving.py",
    "tests/test_table_files.py", "tests/test_arviz.py", "tests/test_fit_results.py", "tests/test_shell.py",
    "tests/faults/test_fault_caches.py",
)  # fmt: skip


def requirements() -> dict[str, str]:
    """The least release of everything that the package and its tests need, by name."""
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for name in EXTRAS for line in extras[name])]
    lines += [line for line in extras["dev"] if line.split(">=")[0] in TOOLS]
    found = (re.fullmatch(r"([\w.-]+)>=([\w.]+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def interpreter(version: str) -> str | None:
    """Where a Python of this version is."""
    known = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for place in (*reversed(known), shutil.which(f"python{version}")):
        if place and subprocess.run([str(place), "-c", ""], capture_output=True).returncode == 0:
            return str(place)
    return None


def key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def oldest(python: str, name: str, least: str) -> str:
    """The oldest release not below `least` that has a wheel for this Python."""
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    told = subprocess.run([*pip, "index", "versions", name], capture_output=True, text=True, check=True).stdout
    listed = re.search(r"Available versions: (.*)", told)
    allowed = [each.strip() for each in (listed[1].split(",") if listed else [])]
    allowed = [each for each in allowed if re.fullmatch(r"[\d.]+", each) and key(each) >= key(least)]
    for version in sorted(allowed, key=key):
        asked = ["install", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", f"{name}=={version}"]
        if subprocess.run([*pip, *asked], capture_output=True).returncode == 0:
            return version
    raise SystemExit(f"{name}: no release from {least} on has a wheel for {python}")


def install(python: str, folder: Path, which: str) -> Path:
    """An environment with the package, its extras and what the tests need; gives its Python."""
    if not (folder / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    own = folder / "bin" / "python"
    pip = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--prefer-binary"]
    wanted = [f"{ROOT}[{','.join(EXTRAS)}]", *TOOLS]
    if which == "oldest":
        least = requirements()
        pinned = {name: oldest(str(own), name, version) for name, version in least.items()}
        constraints = folder / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in sorted(pinned.items())))
        higher = {
            name: version
            for name, version in pinned.items()
            if key(version)[: len(key(least[name]))] != key(least[name])
        }
        if higher:
            print(f"  above the floor, for want of a wheel: {', '.join(f'{n} {v}' for n, v in higher.items())}")
        pip += ["--constraint", str(constraints)]
    else:
        pip.append("--upgrade")
    subprocess.run([*pip, "--force-reinstall", "--no-deps", str(ROOT)], check=True)
    subprocess.run([*pip, *wanted], check=True)
    return own


def versions(python: Path) -> str:
    names = ("numpy", "scipy", "numba", "pandas", "arviz", "scikit-learn")
    code = f"import importlib.metadata as m; print(*(n + ' ' + m.version(n) for n in {names}), sep=', ')"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True).stdout.strip()


def cell(version: str, which: str, folder: Path, tests: list[str]) -> tuple[str, str]:
    """One environment and its tests: how it went, in a word and a line."""
    python = interpreter(version)
    if python is None:
        return "absent", f"no Python {version} on this machine"
    place = folder / f"{version}-{which}"
    try:
        own = install(python, place, which)
    except subprocess.CalledProcessError as error:
        return "failed", f"cannot be installed: {error}"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"NUMBA_CACHE_DIR": str(place / "numba")}
    command = [str(own), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    if which == "oldest":
        command += ["-o", "filterwarnings="]  # what old releases warn of is known
    print(f"  {versions(own)}", flush=True)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    (place / "tests.log").write_text(done.stdout + done.stderr)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            print(f"  {line[:180]}", flush=True)
    return ("passed" if done.returncode == 0 else "failed"), (lines[-1] if lines else done.stderr[-200:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="such as 3.12; may be repeated")
    parser.add_argument("--only", choices=("oldest", "newest"))
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "matrix")
    parser.add_argument(
        "tests", nargs="*", default=QUICK, help="files or folders of tests; the quick ones if not given"
    )
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for version in asked.python or PYTHONS:
        for which in (asked.only,) if asked.only else ("oldest", "newest"):
            began = time.monotonic()
            print(f"Python {version}, {which}", flush=True)
            found[version, which] = cell(version, which, asked.folder.absolute(), [*asked.tests])
            print(f"  {': '.join(found[version, which])} ({time.monotonic() - began:.0f} s)", flush=True)
    sys.exit(any(word != "passed" for word, _ in found.values()))


if __name__ == "__main__":
    main()
