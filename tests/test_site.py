"""The documentation site: every public name is in its reference, every page in its navigation, every link leads somewhere."""

import importlib.util
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import svrhmc

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("site_tool", ROOT / "tools" / "site.py")
site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site)
INNER = {
    "svrhmc.core",
    "svrhmc.families",
    "svrhmc.kernels",
    "svrhmc.paper",
    "svrhmc.engines.compiled",
    "svrhmc.engines.jax",
    "svrhmc.models",
    "svrhmc.targets.libraries",
    "svrhmc.compare",  # the former place of compare_samplers
}  # not for users


@pytest.fixture(scope="module")
def pages():
    return site.gathered()


def test_every_public_module_has_a_page():
    found = {name for _, name, _ in pkgutil.walk_packages(svrhmc.__path__, "svrhmc.")}
    public = [name for name in found if not any(name == inner or name.startswith(f"{inner}.") for inner in INNER)]
    stated = [name for name in public if "__all__" in Path(importlib.util.find_spec(name).origin).read_text()]
    assert len(stated) > 5
    assert not set(stated) - set(site.MODULES)


@pytest.mark.parametrize("name", site.MODULES)
def test_every_public_name_is_in_the_reference(pages, name):
    page = pages[f"api/{name}.md"]
    module = importlib.import_module(name)
    names = site.names_of(module)
    assert names
    missing = [each for each in names if f"\n## `{each}`\n" not in page]
    assert not missing
    assert "\n## `no_such_name`\n" not in page
    for each in getattr(module, "__all__", ()):  # a module of a module has a page of its own
        assert each in names or f"svrhmc.{each}" in site.MODULES or f"{name}.{each}" in site.MODULES


def test_every_page_is_in_the_navigation(pages):
    def leaves(entry):
        for each in entry if isinstance(entry, list) else entry.values() if isinstance(entry, dict) else []:
            yield from [each] if isinstance(each, str) else leaves(each)

    named = list(leaves(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    assert sorted(named) == sorted(place for place in pages if place.endswith(".md"))


def slugs(text):
    """The anchors of a page's headings, as GitHub and the site make them."""
    without = "".join(part for fenced, part in site.fences(text) if not fenced)
    headings = re.findall(r"^#+ (.*)$", without, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | {""}


def dangling(pages):
    """Links between pages, and to anchors, that lead nowhere."""
    for place, page in pages.items():
        if isinstance(page, Path):
            continue
        text = "".join(part for fenced, part in site.fences(page) if not fenced)
        for address, anchor in re.findall(r"\]\((?!\w+:)([^()#\s]*)(?:#([^()\s]*))?\)", text):
            target = (Path("/") / place).parent / address if address else Path("/") / place
            found = pages.get(target.resolve().as_posix()[1:])
            if found is None or (anchor and anchor not in slugs(found)):
                yield f"{place}: {address}#{anchor}"


def test_every_link_of_the_pages_leads_somewhere(pages):
    assert not list(dangling(pages))
    for fault in ("[x](nowhere.md)", "[x](theory.md#nowhere)", "[x](#nowhere)"):
        assert len(list(dangling({**pages, "index.md": fault}))) == 1


def test_tables_stand_apart_from_what_is_before_them(pages):
    """Else the site shows their signs."""
    close = re.compile(r"^(?![|#\s]).*\n\|", re.MULTILINE)
    assert [place for place, page in pages.items() if isinstance(page, str) and close.search(page)] == []
    assert close.search("```\n| a | b |")
    assert not close.search("# a\n| a | b |\n| c | d |")


def test_a_link_out_of_the_repository_is_an_error():
    source = ROOT / "docs" / "index.md"
    known = {source: "index.md", ROOT / "CHANGELOG.md": "changelog.md"}
    assert site.moved("[a](../CHANGELOG.md#x), [b](../Makefile)", source, known) == "[a](changelog.md#x), b"
    with pytest.raises(SystemExit, match=r"docs/index\.md: the link to no\.md leads nowhere"):
        site.moved("[a](no.md)", source, known)


def test_the_check_of_the_built_site_finds_what_is_missing(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#here">b</a><img src="c.svg"><a href="https://d.e">d</a>')
    (tmp_path / "b.html").write_text('<h2 id="here">x</h2><a href="a.html">a</a><a href="#there">?</a>')
    assert site.broken(tmp_path) == ["a.html: c.svg leads nowhere.", "b.html: #there leads nowhere."]


def test_docstrings_become_lists_and_blocks_and_powers_are_raised():
    def example(steps, seed):
        """What it does.

        Note: this is no parameter.

        steps: of each chain,
            burn-in included.
        seed: fixes it.

        >>> 1 + 1
        2
        """

    text = "\n".join(site.documented(example))
    assert "- `steps`: of each chain,\n    burn-in included.\n- `seed`: fixes it." in text
    assert "\nNote: this" in text
    assert "```pycon\n>>> 1 + 1\n2\n```" in text
    assert site.raised("κ^{1/2}, x_k, `x_k`, burn_in") == "κ<sup>1/2</sup>, x<sub>k</sub>, `x_k`, burn_in"
    assert site.raised("1. a:\n\n    x_k\n\nb:\n\n    x_k") == "1. a:\n\n    x<sub>k</sub>\n\nb:\n\n    x_k"
    assert site.spaced("so:\n- a\n- b\n\n```\nx\n- y\n```") == "so:\n\n- a\n- b\n\n```\nx\n- y\n```"


def test_how_it_works_points_to_files_that_are_there():
    text = (ROOT / "docs" / "how_it_works.md").read_text()
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", text)) - {"src/svrhmc/"}
    assert len(named) > 30
    assert [name for name in named if not (ROOT / "src" / "svrhmc" / name).exists()] == []


def test_the_picture_of_a_row_is_the_one_that_its_script_draws():
    spec = importlib.util.spec_from_file_location("row_picture", ROOT / "tools" / "row_picture.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.PLACE.read_text(encoding="utf-8") == tool.picture()
    for box in tool.BOXES:
        assert all((ROOT / "src" / "svrhmc" / path).exists() for path in box.paths)
