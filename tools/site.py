"""The documentation site: gathers its pages, writes the API reference, and checks every link. `make docs` runs it.

    python tools/site.py            gather the pages in build/pages, where zensical.toml looks for them
    python tools/site.py --check    look at what was built in site/: every link and every anchor must be there

The sources stay where they are read in the repository; here each gets its place in the site (`places`), and the links
between them follow. The reference has a page for each module in MODULES, with every name of its `__all__` (or, where it
has none, every public class and function that it defines). Docstrings are written for people at a prompt: paragraphs,
then lines such as `name: what it means`, then examples. `as_markdown` makes lists and code blocks of these.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
PAGES, SITE = ROOT / "build" / "pages", ROOT / "site"

MODULES = {
    "svrhmc": "The names that most programs need: `fit`, `sample`, the samplers, what they return, and errors.",
    "svrhmc.fitting": "Regressions from tables and arrays, in the units of the data.",
    "svrhmc.estimators": "Estimators for scikit-learn.",
    "svrhmc.tables": "Tables, formulas and designs: what stands between a data frame and rows.",
    "svrhmc.data": "Rows that are not in memory: Parquet folders, memory maps, CSV, sparse blocks, Dask.",
    "svrhmc.reporting": "The report in HTML.",
    "svrhmc.plots": "Figures, in one style.",
    "svrhmc.posterior": "What `sample` returns, part by part.",
    "svrhmc.targets": "What is sampled: posteriors of regressions, Gaussians, and sums of your own.",
    "svrhmc.targets.families": "Families of generalised linear models, for `svrhmc.targets.glm`.",
    "svrhmc.targets.priors": "Priors, for `svrhmc.targets.glm`.",
    "svrhmc.targets.losses": "The class that a family of your own derives from.",
    "svrhmc.exact": "Samplers with a Metropolis step, which have no bias.",
    "svrhmc.dynamics": "How the state of a chain moves.",
    "svrhmc.scheme": "The numbers that a dynamics of your own returns.",
    "svrhmc.gradients": "How the gradient is estimated from some of the rows.",
    "svrhmc.whitening": "Changes of variables in which a posterior looks like N(0, I).",
    "svrhmc.engines": "What runs the steps, and how to add an engine.",
    "svrhmc.theory": "The paper's bounds, plans for an accuracy, and exact laws on quadratics.",
    "svrhmc.distances": "Distances between distributions.",
}


def places() -> dict[Path, str]:
    """Every file that belongs to the site, with its place in it."""
    found = {
        path: path.relative_to(ROOT / "docs").as_posix()
        for path in sorted((ROOT / "docs").rglob("*"))
        if path.is_file()
    }
    found |= {path: f"benchmarks/{path.name}" for path in (ROOT / "benchmarks" / "results").glob("*.md")}
    found |= {ROOT / "CHANGELOG.md": "changelog.md", ROOT / "CONTRIBUTING.md": "contributing.md"}
    return found


def gathered() -> dict[str, str | Path]:
    """Every page of the site by its place: its text, or the file to copy."""
    known = places()
    pages: dict[str, str | Path] = {}
    for source, place in known.items():
        text = source.read_text(encoding="utf-8") if source.suffix == ".md" else None
        pages[place] = source if text is None else raised(spaced(moved(text, source, known)))
    for name in MODULES:
        pages[f"api/{name}.md"] = raised(reference(name))
    lines = [f"| [`{name}`]({name}.md) | {purpose} |" for name, purpose in MODULES.items()]
    pages["api/index.md"] = "\n".join(
        [
            "# API reference",
            "",
            "Every public name, module by module.",
            "",
            "| module | what it has |",
            "|---|---|",
            *lines,
        ]
    )
    return pages


def moved(text: str, source: Path, known: dict[Path, str]) -> str:
    """The text with its relative links leading to places in the site; links to other files become plain text."""

    def link(match: re.Match[str]) -> str:
        shown, address, anchor = match["shown"], match["address"], match["anchor"] or ""
        target = (source.parent / address).resolve()
        if target in known:
            place = Path(known[source]).parent
            return f"[{shown}]({Path(os.path.relpath(known[target], place)).as_posix()}{anchor})"
        if not target.exists():
            raise SystemExit(f"{source.relative_to(ROOT)}: the link to {address} leads nowhere.")
        return shown

    pattern = r"\[(?P<shown>[^\[\]]*)\]\((?!\w+:)(?P<address>[^()#\s]+)(?P<anchor>#[^()\s]*)?\)"
    return "".join(part if fenced else re.sub(pattern, link, part) for fenced, part in fences(text))


def fences(text: str) -> list[tuple[bool, str]]:
    """The text cut at its fenced blocks, each part with whether it is one."""
    parts = re.split(r"(^```.*?^```[^\n]*$)", text, flags=re.MULTILINE | re.DOTALL)
    return [(bool(k % 2), part) for k, part in enumerate(parts)]


def spaced(text: str) -> str:
    """The text with an empty line before each list that follows a line of text: Markdown's dialects differ in this."""
    parts = []
    for fenced, part in fences(text):
        lines: list[str] = []
        within = False
        for line in part.split("\n"):
            if re.match(r"(-|\d+\.) ", line):
                if not within and lines and lines[-1].strip() and not fenced:
                    lines.append("")
                within = True
            elif not line.strip() or line.startswith("#"):
                within = False
            lines.append(line)
        parts.append("\n".join(lines))
    return "".join(parts)


RAISED = [
    (r"\^\{([^{}]*)\}", r"<sup>\1</sup>"),
    (r"\^(⌊[^⌋]*⌋|-?\d+(?:\.\d+)?|[^\W_])", r"<sup>\1</sup>"),
    (r"_\{([^{}]*)\}", r"<sub>\1</sub>"),
    (r"(?<=[^\W_]|[\u0303²)>])_(max|min|start|[A-Za-z0-9π∞])(?![A-Za-z0-9_*])", r"<sub>\1</sub>"),
]


def raised(text: str) -> str:
    """Powers and indices such as κ^{1/2} and x_k, raised and lowered; not in code, links and headings."""
    parts = []
    item = False  # whether indented lines belong to an item of a list, and are no block of code
    before = ""
    for fenced, part in fences(text):
        lines = []
        for line in part.split("\n"):
            if line[:1].strip():
                item = bool(re.match(r"(-|\d+\.) ", line)) or (item and bool(before.strip()))
            is_code = fenced or line.startswith("#") or (line.startswith("    ") and not item)
            lines.append(line if is_code else _raised(line))
            before = line
        parts.append("\n".join(lines))
    return "".join(parts)


def _raised(line: str) -> str:
    pieces = re.split(r"(`[^`]*`|\]\([^)]*\))", line)
    for k in range(0, len(pieces), 2):
        for pattern, new in RAISED:
            pieces[k] = re.sub(pattern, new, pieces[k])
    return "".join(pieces)


def names_of(module: Any) -> list[str]:
    """The public names of a module: `__all__`, or else the classes and functions that it defines."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(thing) or inspect.isfunction(thing))
        and thing.__module__ == module.__name__
    ]


def reference(name: str) -> str:
    """The page of a module."""
    module = importlib.import_module(name)
    known = {each for other in names_of(module) for each in parameters_of(getattr(module, other))}
    lines = [f"# `{name}`", "", MODULES[name], "", *as_markdown(module.__doc__.partition("\n")[2], known)]
    for each in sorted(names_of(module), key=lambda name: name.endswith("Error")):  # errors last
        thing = getattr(module, each)
        home = first_home(each, thing)
        if home == name:
            lines += entry(each, thing)
        else:
            lines += [f"## `{each}`", "", f"The same as [`{home}.{each}`]({home}.md#{each.lower()}).", ""]
    return "\n".join(lines)


def first_home(name: str, thing: Any) -> str | None:
    """The first module in MODULES that has this thing under this name."""
    for each in MODULES:
        module = importlib.import_module(each)
        if name in names_of(module) and getattr(module, name) is thing:
            return each
    return None


def entry(name: str, thing: Any) -> list[str]:
    """A class with its methods, a function, or a constant."""
    if inspect.isclass(thing):
        kind = "exception" if issubclass(thing, BaseException) else "class"
        lines = [f"## `{name}`", "", *signature(f"{kind} {name}", thing), *documented(thing)]
        within = [base for base in thing.__mro__ if base.__module__.startswith("svrhmc")]
        homes = {base: first_home(base.__name__, base) for base in within[1:]}
        above = [base for base, home in homes.items() if home is not None]
        if above:
            links = [f"[`{base.__name__}`]({homes[base]}.md#{base.__name__.lower()})" for base in above]
            lines += [f"Derived from {' and '.join(links)}, and has the methods described there.", ""]
        own = {each: member for base in reversed(within) if base not in above for each, member in vars(base).items()}
        for each, member in own.items():
            if not each.startswith("_") and described(member) and not any(hasattr(base, each) for base in above):
                lines += part_of(name, each, member)
        return lines
    if inspect.isfunction(thing):
        return [f"## `{name}`", "", *signature(name, thing), *documented(thing)]
    return [f"## `{name}`", "", f"```python\n{name} = {shown(thing)}\n```", ""]


def part_of(owner: str, name: str, member: Any) -> list[str]:
    """A method or a property of a class."""
    if isinstance(member, property) or not callable(getattr(member, "__func__", member)):
        return [f"### `{owner}.{name}`", "", "*property*", "", *documented(member)]
    return [f"### `{owner}.{name}`", "", *signature(name, getattr(member, "__func__", member)), *documented(member)]


def described(member: Any) -> bool:
    """Whether a member of a class has a docstring of its own."""
    is_part = inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod))
    return (is_part or hasattr(member, "attrname")) and bool(member.__doc__)


def shown(value: Any) -> str:
    """A value without the places in memory that Python writes for some."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def signature(head: str, thing: Any) -> list[str]:
    """The call, in one line where it fits and else one parameter a line, without annotations of what it returns."""
    try:
        found = inspect.signature(thing)
    except ValueError:
        return []
    parameters: list[str] = []
    keywords = False
    for parameter in found.parameters.values():
        if parameter.name.startswith("_") or parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            parameters.append("*")
            keywords = True
        sign = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        keywords = keywords or parameter.kind is parameter.VAR_POSITIONAL
        text = sign + parameter.name
        if parameter.default is not parameter.empty:
            value = "…" if "factory" in repr(parameter.default) else shown(parameter.default)
            text += f"={value}"
        parameters.append(text)
    line = f"{head}({', '.join(parameters)})"
    if len(line) > 88:
        line = head + "(\n" + "".join(f"    {each},\n" for each in parameters) + ")"
    return ["```python", line, "```", ""]


def as_markdown(docstring: str, known: set[str]) -> list[str]:
    """A docstring, with lists of its `name: meaning` lines of known names, and code blocks of its examples."""
    text = inspect.cleandoc(docstring)
    lines: list[str] = []
    example = within = False
    for line in text.split("\n"):
        if line.startswith(">>> ") and not example:
            lines += ["", "```pycon"]
            example = True
        if example:
            if line.strip():
                lines.append(line)
                continue
            lines += ["```", ""]
            example = False
        item = re.match(r"(?P<names>\w+(?:, \w+)*(?: and \w+)?): (?P<rest>.*)", line)
        if item and set(re.split(r", | and ", item["names"])) <= known:
            if not within:
                lines.append("")
            names = re.sub(r"(\w+)(?=, |$| and )", r"`\1`", item["names"])
            lines.append(f"- {names}: {item['rest']}")
            within = True
        else:
            within = within and line.startswith("    ")
            lines.append(line)
    return [*lines, *(["```"] if example else []), ""]


def documented(thing: Any) -> list[str]:
    """The docstring of a class, a function or a property."""
    return as_markdown(thing.__doc__ or "", parameters_of(thing))


def parameters_of(thing: Any) -> set[str]:
    """The names that a docstring may describe one by one."""
    try:
        return set(inspect.signature(getattr(thing, "__func__", thing)).parameters)
    except (TypeError, ValueError):
        return set()


class Reader(HTMLParser):
    """The links, pictures and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what a tag refers to, and what it can be referred to by."""
        for name, value in attrs:
            if name in ("href", "src") and value and tag in ("a", "img"):
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def broken(site: Path) -> list[str]:
    """Every link of the built site that leads nowhere."""
    pages = {
        path: Reader(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if path.name != "404.html"
    }
    faults = []
    for path, page in pages.items():
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (target in pages and unquote(parts.fragment) not in pages[target].anchors):
                faults.append(f"{path.relative_to(site)}: {link} leads nowhere.")
    return faults


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        faults = broken(SITE)
        if faults:
            raise SystemExit("\n".join(faults))
        return
    shutil.rmtree(PAGES, ignore_errors=True)
    for place, page in gathered().items():
        (PAGES / place).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(page, Path):
            shutil.copyfile(page, PAGES / place)
        else:
            (PAGES / place).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
