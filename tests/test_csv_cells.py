"""CSV files that a spreadsheet opens and does not run, and that come back as they were."""

import csv
import io

import numpy as np
import pytest

import svrhmc
from svrhmc.core.cells import csv_text, guard_formula, unguard_formulas
from svrhmc.paper.blocks import write_csv
from svrhmc.reporting import coefficients, coefficients_csv
from svrhmc.shell.app import app
from svrhmc.tables import csv as csv_module
from svrhmc.tables.files import read

RUN = ("=1+1", "+x", "-x", "@SUM(A1)", "\tx", "\rx", "\nx", " =1", "\u00a0=1", "＝1", "=cmd|' /C calc'!A0", "-", "'=a")
PLAIN = ("age", "x - 1", "-1", "+2.5", "-1e5", "1", "", "'quoted'", "a=b", "C(x)[T.-1]", "µ")


def runs(cell):
    """Whether a spreadsheet would take a cell for a formula."""
    try:
        float(cell)
    except ValueError:
        return cell.strip().startswith(("=", "+", "-", "@", "＝")) or cell.startswith(("\t", "\r", "\n"))
    return False


@pytest.mark.parametrize("text", RUN)
def test_texts_that_run_are_guarded_and_come_back(text):
    assert runs(text) or text.startswith("'")
    assert not runs(guard_formula(text))
    assert unguard_formulas([guard_formula(text)]) == [text]


def test_other_texts_and_all_numbers_stay():
    assert [guard_formula(text) for text in PLAIN] == list(PLAIN)
    assert unguard_formulas([guard_formula(text) for text in (*RUN, *PLAIN)]) == [*RUN, *PLAIN]
    assert csv_text(["n"], [[-1.5], [-2], [float("-inf")]]) == "n\n-1.5\n-2\n-inf\n"


def test_texts_that_nobody_guarded_are_not_touched():
    """Else two different names would become one."""
    assert unguard_formulas(["-x", "'-x"]) == ["-x", "'-x"]


def test_separators_of_other_countries_part_no_cell():
    """A semicolon in a cell: such a line is quoted wholly, so that what follows it begins no cell."""
    assert csv_text(["a", "b"], [["x;=1+1", 2.0]]).splitlines()[1] == '"x;=1+1","2"'


@pytest.mark.parametrize("arrow", [True, False])
def test_names_and_values_survive_reading_back(arrow, tmp_path, monkeypatch):
    if not arrow:
        monkeypatch.setattr(csv_module, "pyarrow_or_none", lambda: None)
    texts = ["=1+1", "-x", "'=a", "@b", "c", "＝d"]
    place = tmp_path / "a.csv"
    place.write_text(csv_text(["-name", "n"], [[text, float(k)] for k, text in enumerate(texts)]))
    assert not any(runs(cell) for row in csv.reader(io.StringIO(place.read_text())) for cell in row)
    found = read(place)
    assert found.names == ("-name", "n")
    assert list(svrhmc.tables.columns.columns_of(found.table, ["-name"])["-name"].levels) == sorted(texts)


def test_files_of_a_fit_and_of_predictions_run_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=90)
    lines = ["=x,group,y", *(f"{a:.3f},{'+u' if k % 2 else '-v'},{('=A', '@B', '-C')[k % 3]}" for k, a in enumerate(x))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    for words in (["fit", "rows.csv", "--target", "y", "--draws", "50"], ["predict", "rows-fit", "rows.csv"]):
        with pytest.raises(SystemExit) as ended:
            app([*words, "--quiet"])
        assert not ended.value.code
    for name in ("predictions.csv", "rows-fit/coefficients.csv"):
        cells = [cell for row in csv.reader(io.StringIO((tmp_path / name).read_text())) for cell in row]
        assert not any(map(runs, cells))
    assert set(read(tmp_path / "predictions.csv").names) == {"row", "=A", "@B", "-C"}
    posterior = svrhmc.Posterior.load(tmp_path / "rows-fit" / "model.posterior")
    names = [row.name for row in coefficients(posterior)]
    assert read(tmp_path / "rows-fit" / "coefficients.csv").table["name"].to_pylist() == names
    assert not any(map(runs, coefficients_csv(coefficients(posterior)).split("\n")[1:]))


def test_tables_of_the_paper_run_nothing(tmp_path):
    write_csv(tmp_path / "t.csv", ["data", "-loss"], [["=x", -0.5]])
    assert (tmp_path / "t.csv").read_text() == "data,'-loss\n'=x,-0.5\n"
