"""docs/paper.md names every item of the paper once, and each of its pointers leads somewhere."""

import ast
import importlib
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
VERDICTS = ("right", "corrected", "examined", "does not hold", "not reproducible", "quoted")
WITHOUT = ("quoted", "examined")  # verdicts of items that may do without code and test: others' work, and words

# Labels of the paper's source, and how often it gives each to an item.
SOURCE = """
eq:SDE eq:GLD eq:hmc_dynamics eq:GD_HMC0 def:finite_sum_function table:complexity eq:GD_HMC eq:covariance_noise
alg:finitesum_hmc As:smooth as:strongly_conv thm:theorem1_online eq:W2_distance_theorem1 coro eq:gradient_complex_sc
as:bounded_fourth thm:genral_convex fig:simulation fig:classification fig:regression table:dataset table:dataset
table:dataset2 eq:GD_HMC_full eq:onestep_cont1 eq:onestep_cont2 lemma:langevin_cont lemma:onestep_diserror
lemma:onestep_meanerror lemma:exp_decay lemma:dalalyan1 lemma:triangle_expectation eq:thm1_decom eq:g1 eq:pan1002
eq:pan1003 eq:g2 eq:pan1004 eq:recursion_w_k eq:thm1_result1 eq:w2_error lemma:durmus eq:complexity_strongly
lemma:KL_upperbound lemma:W2_KL eq:upperbound_w2_KL lemma:boundpath_cont lemma:tightbound_discretepath
eq:covariance_discrete eq:norm_noise eq:error_v eq:discrete_error_v eq:discrete_error_x eq:onesteperror_scsg_mean
eq:pan1001 eq:triangle_expection eq:pan1006 eq:upperbound_lyp lemma:boundpath_discrete eq:pan1007 eq:def_tildeD
eq:upperbound_wk2 eq:pan1008 eq:upperbound_w0 eq:pan1009 eq:pan1010 eq:pan1011 eq:pan1012 eq:pan1013 eq:lyp_discrete
eq:lyp_discrete2 eq:bound_lyp
"""
COUNTS = {  # how many items begin so
    **{f"Lemma {k} ": 1 for k in range(1, 13)},
    **{f"Assumption {k} ": 1 for k in (1, 2, 3)},
    **{f"Figure 1({panel})": 1 for panel in "abcdefgh"},
    **{f"Figure {k}({panel})": 1 for k in (2, 3) for panel in "abcd"},
    **{f"eq. ({k})": 1 for k in (1, 2, 3, 4, 5, 6, 7, 8, 12, 14, 15)},  # 9 to 11, 13, 16 and 17 stand in other items
    "Algorithm 1": 1,
    "Corollary `": 1,
    "Theorem 1 `": 1,
    "Theorem 1": 7,
    "Theorem 2 `": 1,
    "Remark 1": 1,
    "Remark 2": 13,
    "Table 1": 5,
    "Table 2": 4,
    "Table 3": 5,
    "Table 4": 4,
    "Abstract": 4,
    "Contribution": 4,
}


def rows_of(text):
    """The cells of every row of every table."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| item |")]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


ROWS = rows_of((DOCS / "paper.md").read_text())


@cache
def anchors(page):
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", (DOCS / page).read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def functions(file):
    return {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)}


@cache
def errata():
    return set(re.findall(r"^\| (A\d+) ", (DOCS / "errata.md").read_text(), flags=re.MULTILINE))


def resolves(pointer):
    """Whether a dotted name can be imported, attribute by attribute, or a path of the repository is there."""
    if "/" in pointer:
        return (ROOT / pointer).is_file()
    parts = pointer.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for place, name in enumerate(parts[length:]):
            owner, thing = thing, getattr(thing, name, None)
            if thing is None:  # a field of a dataclass without a default
                fields = getattr(owner, "__dataclass_fields__", {})
                return name in fields and place == len(parts) - length - 1
        return True
    return False


def faults(row):
    """What is wrong with a row, in words."""
    if len(row) != 5 or not all(row):
        return ["not five cells with something in each"]
    _, code, tests, pages, verdict = row
    found = []
    quoted = re.findall(r"`([^`]+)`", code)
    found += [f"no such code: {name}" for name in quoted if not resolves(name)]
    for pointer in re.findall(r"`([^`]+)`", tests):
        file, _, name = pointer.partition("::")
        if not (ROOT / file).is_file() or name not in functions(file) or not name.startswith("test_"):
            found.append(f"no such test: {pointer}")
    for shown, link in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", pages):
        page, _, anchor = link.partition("#")
        if not (DOCS / page).is_file() or (anchor and anchor not in anchors(page)):
            found.append(f"no such page: {link}")
        if re.fullmatch(r"A\d+", shown) and shown not in errata():
            found.append(f"no such erratum: {shown}")
    found += [f"no such erratum: {name}" for name in re.findall(r"\bA\d+\b", verdict) if name not in errata()]
    if "corrected" in verdict and not re.search(r"corrected A\d+", verdict):
        found.append("corrected, but by which erratum?")
    if not verdict.startswith(VERDICTS):
        found.append(f"no such verdict: {verdict}")
    for cell, pointers in ((code, quoted), (tests, re.findall("`", tests))):
        if not pointers and not (cell == "none" and verdict.startswith(WITHOUT)):
            found.append("neither a pointer nor an item that needs none")
    if "](" not in pages:
        found.append("no page")
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_every_pointer_of_the_list_leads_somewhere(row):
    assert not faults(row)


def test_every_item_of_the_paper_is_there_once():
    items = [row[0] for row in ROWS]
    assert len(set(items)) == len(items)
    labels = Counter(label for item in items for label in re.findall(r"`([^`]+)`", item))
    assert labels == Counter(SOURCE.split())
    assert {start: sum(item.startswith(start) for item in items) for start in COUNTS} == COUNTS
    inside = " ".join(items)
    assert all(f"eq. ({k})" in inside or f"eqs. ({k})" in inside or f"and ({k})" in inside for k in range(1, 18))
    assert len(items) == 220


def test_every_erratum_is_met_in_the_list():
    named = set(re.findall(r"\bA\d+\b", " ".join(" ".join(row[3:]) for row in ROWS)))
    assert named == errata()


def test_every_item_of_the_theory_that_is_public_is_met_in_the_list():
    """Functions of `svrhmc.theory`; classes are what they return."""
    from svrhmc import theory

    said = " ".join(row[1] for row in ROWS)
    for name in theory.__all__:
        if name[0].islower() and name not in ("laws", "law"):
            assert f"svrhmc.theory.{name}`" in said


GOOD = next(row for row in ROWS if row[0].startswith("Lemma 5 "))


@pytest.mark.parametrize(
    ("place", "cell", "fault"),
    [
        (1, "`svrhmc.theory.recursive_bound`", "no such code"),
        (1, "`svrhmc.theory.Law.nothing`", "no such code"),
        (1, "`src/svrhmc/theory/lemma.py`", "no such code"),
        (1, "", "not five cells"),
        (1, "none", "neither a pointer"),
        (1, "somewhere", "neither a pointer"),
        (2, "`tests/test_paper_lemmas.py::test_lemma_five`", "no such test"),
        (2, "`tests/test_lemma.py::test_lemma_5`", "no such test"),
        (2, "`tests/test_paper_lemmas.py::quadratic`", "no such test"),
        (3, "[theory.md](theory.md#no-such-heading)", "no such page"),
        (3, "[A99](errata.md)", "no such erratum"),
        (3, "somewhere", "no page"),
        (4, "fine", "no such verdict"),
        (4, "corrected", "by which erratum"),
        (4, "corrected A99", "no such erratum"),
    ],
)
def test_a_row_with_a_fault_is_caught(place, cell, fault):
    assert not faults(GOOD)
    found = faults([cell if k == place else old for k, old in enumerate(GOOD)])
    assert any(fault in one for one in found)
