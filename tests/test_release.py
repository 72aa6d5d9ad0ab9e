"""A release agrees with itself: `tools/release.py` on a repository that does, and on copies in which one thing is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from release import disagreements, version_of  # noqa: E402

FILES = ("pyproject.toml", "README.md", "CITATION.cff", "conda/recipe.yaml", "src/svrhmc/core/version.py")


def git(folder, *words):
    who = ["-c", "user.name=tester", "-c", "user.email=tester@example.org"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    """A repository whose version, changelog, tag and pages agree: that of the next release, with a short changelog."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    version = version_of(tmp_path)
    lines = (
        f"# Changelog\n\n## [Unreleased]\n\n## [{version}] - 2026-01-02\n- News.\n\n## [0.0.1] - 2025-01-02\n- All.\n"
    )
    (tmp_path / "CHANGELOG.md").write_text(lines)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "Release")
    return tmp_path


def change(folder, name, old, new):
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    git(folder, "commit", "-qam", "Change it")


def test_a_release_that_agrees_has_no_disagreement(repository):
    assert disagreements(repository) == []
    git(repository, "tag", f"v{version_of(repository)}")
    assert disagreements(repository) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        ("src/svrhmc/core/version.py", 'VERSION = "', 'VERSION = "9.', "is not of the form 1.2.3"),
        ("CITATION.cff", "\nversion: ", "\nversion: 9", "CITATION.cff has the version 9"),
        ("conda/recipe.yaml", '  version: "', '  version: "9', "conda/recipe.yaml has the version 9"),
        ("conda/recipe.yaml", "    - numba >=0.61", "    - numba >=0.60", "do not agree on 'numba >=0.60'"),
        ("CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n- More.\n", "lines under [Unreleased]"),
        ("CHANGELOG.md", "- 2026-01-02", "- unreleased", "write a day such as"),
        ("CHANGELOG.md", "- 2026-01-02", "- 2999-01-02", "which has not come"),
        ("CHANGELOG.md", "- News.\n", "", "says nothing under"),
        ("CHANGELOG.md", "[0.0.1]", "[7.0.1]", "in another order"),
        ("README.md", "`onnx`, ", "", "the extra 'onnx' is not in README"),
        ("README.md", "`onnx`", "`onyx`", "the extra 'onyx' is in README"),
        ("README.md", "With Python 3.11", "With Python 3.12", "does not name Python 3.11"),
        ("pyproject.toml", 'numba>=0.61', 'numba>=0.62', "do not agree on 'numba >=0.62'"),
    ],
)  # fmt: skip
def test_one_wrong_thing_is_said(repository, name, old, new, sentence):
    change(repository, name, old, new)
    assert any(sentence in line for line in disagreements(repository))


def test_the_changelog_needs_a_section_of_the_version(repository):
    change(repository, "CHANGELOG.md", f"[{version_of(repository)}]", "[0.0.2]")
    assert any("has no section" in line for line in disagreements(repository))


def test_tags_of_later_versions_and_of_other_commits_and_files_that_are_not_committed_are_said(repository):
    version = version_of(repository)
    git(repository, "tag", f"v{version}")
    change(repository, "CHANGELOG.md", "- News.", "- More news.")
    assert disagreements(repository) == [f"v{version} is the tag of another commit: raise the version."]
    git(repository, "tag", "-d", f"v{version}")
    git(repository, "tag", "v99.0.0", "HEAD~1")
    assert disagreements(repository) == [f"v99.0.0 is tagged, and is later than {version}."]
    git(repository, "tag", "-d", "v99.0.0")
    git(repository, "tag", "v0.0.2")
    assert disagreements(repository) == [f"this commit has the tag v0.0.2, and its version is {version}."]
    git(repository, "tag", "-d", "v0.0.2")
    (repository / "README.md").write_text((repository / "README.md").read_text() + "\n")
    assert disagreements(repository) == ["1 files are not committed, such as README.md."]
