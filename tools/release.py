"""What a release has to agree on: `make release`, a dry run that publishes nothing.

    python tools/release.py [--no-build]

It fails, with a sentence for each disagreement, unless

- the version in `src/svrhmc/core/version.py` is three numbers, and `CITATION.cff` and `conda/recipe.yaml` have it too;
- the changelog has a section of that version with a date that has come, right after an empty [Unreleased] or in its
  place, and the versions below it are earlier ones;
- no later version is tagged, its own tag is nowhere but here, and nothing is uncommitted;
- the README's section *Install* has the extras and the Python of `pyproject.toml`, and the recipe its requirements.

Then it builds sdist and wheel into `dist/`, and checks them. A tag v0.2.0 that is pushed publishes them.
"""

from __future__ import annotations

import argparse
import datetime
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SECTION = re.compile(r"^## \[(.+?)\](?: - (\S+))?$", re.MULTILINE)


def version_of(root: Path) -> str:
    """The version, from the one place that states it."""
    match = re.search(r'^VERSION = "(.*)"$', (root / "src/svrhmc/core/version.py").read_text(), re.MULTILINE)
    return "" if match is None else match[1]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def of_versions(root: Path, version: str) -> Iterator[str]:
    """Files that have the version too."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"the version {version!r} in src/svrhmc/core/version.py is not of the form 1.2.3."
    for file, pattern in (("CITATION.cff", r"^version: (.*)$"), ("conda/recipe.yaml", r'^  version: "(.*)"$')):
        match = re.search(pattern, (root / file).read_text(), re.MULTILINE)
        stated = None if match is None else match[1]
        if stated != version:
            yield f"{file} has the version {stated}, and src/svrhmc/core/version.py {version}."


def of_changelog(root: Path, version: str) -> Iterator[str]:
    """Its section of this version, and their order."""
    text = (root / "CHANGELOG.md").read_text()
    sections = list(_SECTION.finditer(text))
    released = [match for match in sections if match[1] != "Unreleased"]
    for match, after in zip(sections, [*sections[1:], None], strict=True):
        written = text[match.end() : after.start() if after else len(text)].strip()
        if match[1] == "Unreleased" and written:
            yield f"CHANGELOG.md has lines under [Unreleased]: move them to [{version}]."
        if match[1] != "Unreleased" and not written:
            yield f"CHANGELOG.md says nothing under [{match[1]}]."
    if not released or released[0][1] != version:
        yield f"CHANGELOG.md has no section [{version}] above all others."
        return
    try:
        date = datetime.date.fromisoformat(released[0][2] or "")
    except ValueError:
        yield f"CHANGELOG.md dates [{version}] {released[0][2]!r}: write a day such as 2026-11-30."
    else:
        if date > datetime.datetime.now(datetime.UTC).date():
            yield f"CHANGELOG.md dates [{version}] {date}, which has not come."
    versions = [match[1] for match in released]
    if versions != sorted(versions, key=numbers, reverse=True):
        yield f"CHANGELOG.md has its versions in another order than from the last to the first: {', '.join(versions)}."


def of_tags(root: Path, version: str) -> Iterator[str]:
    """Tags of the repository, and what is not committed."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")

    tags = [tag for tag in git("tag", "--list") if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    later = [tag for tag in tags if numbers(tag[1:]) > numbers(version)]
    if later:
        yield f"{', '.join(later)} is tagged, and is later than {version}."
    here = git("tag", "--points-at", "HEAD")
    if f"v{version}" in tags and f"v{version}" not in here:
        yield f"v{version} is the tag of another commit: raise the version."
    for tag in here:
        if tag in tags and tag != f"v{version}":
            yield f"this commit has the tag {tag}, and its version is {version}."
    changed = [line for line in git("status", "--porcelain") if line]
    if changed:
        yield f"{len(changed)} files are not committed, such as {changed[0][3:]}."


def of_docs(root: Path, project: dict[str, object]) -> Iterator[str]:
    """The README's section *Install*, and the recipe of conda."""
    readme = (root / "README.md").read_text()
    install = readme.partition("## Install")[2].partition("\n## ")[0]
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    for_users = set(extras) - {"all", "bench", "dev", "docs", "models"}
    listed = re.search(r"extras? ((?:`[\w-]+`(?:, | and )?)+)", install)
    named = set(re.findall(r"`([\w-]+)`", listed[1])) if listed else set()
    for extra in sorted(for_users ^ named):
        where = "is not in README's section Install" if extra in for_users else "is in README, not in pyproject.toml"
        yield f"the extra {extra!r} {where}."
    least = str(project["requires-python"]).removeprefix(">=")
    if f"Python {least}" not in install:
        yield f"README's section Install does not name Python {least}, which pyproject.toml requires."
    recipe = (root / "conda/recipe.yaml").read_text().partition("  run:\n")[2].partition("  run_constraints:")[0]
    stated = {line.strip(" -") for line in recipe.splitlines() if line.strip()}
    dependencies = project["dependencies"]
    assert isinstance(dependencies, list)
    wanted = {re.sub(r"^([\w-]+)>=", r"\1 >=", line) for line in [f"python>={least}", *dependencies]}
    for line in sorted(stated ^ wanted):
        yield f"conda/recipe.yaml and pyproject.toml do not agree on {line!r}."


def disagreements(root: Path) -> list[str]:
    """All of them, in sentences."""
    version, project = version_of(root), tomllib.loads((root / "pyproject.toml").read_text())["project"]
    first = list(of_versions(root, version))
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return first
    return [*first, *of_changelog(root, version), *of_tags(root, version), *of_docs(root, project)]


def build(root: Path, version: str) -> None:
    """sdist and wheel in dist/, checked."""
    shutil.rmtree(root / "dist", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", "dist"], cwd=root, check=True)
    files = sorted(str(file) for file in (root / "dist").iterdir())
    if not all(f"svrhmc-{version}" in file for file in files) or len(files) != 2:
        raise SystemExit(f"dist/ has other files than an sdist and a wheel of {version}: {', '.join(files)}")
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], cwd=root, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-build", action="store_true", help="compare files alone")
    asked = parser.parse_args()
    wrong = disagreements(ROOT)
    if wrong:
        sys.exit("\n".join(wrong))
    version = version_of(ROOT)
    if not asked.no_build:
        build(ROOT, version)
    print(f"{version} agrees with itself; nothing was published. To publish it: git tag v{version}, and push the tag.")


if __name__ == "__main__":
    main()
