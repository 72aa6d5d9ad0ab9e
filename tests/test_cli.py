import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import svrhmc
from svrhmc import __main__
from svrhmc.sampler_comparison import compare_samplers
from svrhmc.shell.app import app
from svrhmc.tables.numbers import read_table

SMALL = ["compare-samplers", "--n", "20", "--dim", "2", "--chains", "200", "--passes", "5"]


def shell(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80", "TERM": "dumb"})


def test_compare_prints_the_table_and_writes_the_figure(tmp_path):
    figure = tmp_path / "figure.svg"
    result = shell(*SMALL, "--samplers", "all", "--step-size", "0.2", "--step-size", "sgld=0.05", "--plot", str(figure))
    assert result.exit_code == 0, result.output
    for name in ("LMC", "SGLD", "VR-SGLD", "HMC", "SG-HMC", "SVR-HMC"):
        assert name in result.output
    assert "SGLD: 100 steps" in result.output
    assert "step_size=0.05" in result.output
    assert [line.split()[0] for line in result.output.splitlines() if " chains " in line and "W₂" not in line] == [
        "LMC", "SGLD", "VR-SGLD", "HMC", "SG-HMC", "SVR-HMC",
    ]  # fmt: skip
    assert sum(line.split()[:1] == ["exact"] for line in result.output.splitlines()) == 6
    assert "…" not in result.output
    assert "<!-- data passes" in figure.read_text()  # the axis, as Matplotlib notes it beside its outlines


def test_compare_is_the_same_twice(tmp_path):
    outputs = [shell(*SMALL, "--plot", str(tmp_path / "a.png")).output.split("SVRG")[0] for _ in range(2)]
    without_times = [[line for line in text.splitlines() if " steps in " not in line] for text in outputs]
    assert without_times[0] == without_times[1]


def test_curves_carry_the_exact_value_and_the_chains_agree():
    target = svrhmc.targets.synthetic(30, 3)
    curves = compare_samplers(
        target, [("HMC", svrhmc.hmc(0.3)), ("SG-HMC", svrhmc.sg_hmc(0.1))], passes=20, chains=4000
    )
    for curve in curves:
        expected = (curve.exact**2 + curve.floor**2) ** 0.5
        assert curve.sampled == pytest.approx(expected, rel=0.35)  # of one run; on the average far closer
        assert curve.sampled.mean() == pytest.approx(expected.mean(), rel=0.03)
        assert curve.at(0.001) is None
        assert curve.passes[curve.at(10)] <= 10


def test_compare_needs_a_closed_form():
    target = svrhmc.targets.logistic([[1.0], [-1.0]], [0, 1])
    with pytest.raises(ValueError, match="target must be one whose law is known"):
        compare_samplers(target, [("HMC", svrhmc.hmc(0.1))], passes=2, chains=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--samplers", "nuts"], "--samplers must be among lmc, sgld"),
        (["--step-size", "fast"], "--step-size must be a positive number or NAME=NUMBER; got 'fast'."),
        (["--step-size", "-1"], "--step-size must be a positive number or NAME=NUMBER; got '-1'."),
        (["--step-size", "lmc=0.1"], "--step-size must be a number or NAME=NUMBER with NAME among the samplers; got 'lmc=0.1'."),
        (["--step-size", "3"], "step_size must be a positive number below 1.0 for Underdamped with friction 2.0; got 3.0"),
        (["--passes", "0"], "passes must be a positive number; got 0.0."),
        (["--plot", "figure.bmp"], "--plot must be a name ending in .png, .svg or .pdf; got figure.bmp."),
        (["--plot", "/nowhere/at/all.png"], "--plot must be in a folder that exists and can be written to; got /nowhere/at/all.png."),
        (["--samplers", "[/x]"], "got '[/x]'."),
    ],
)  # fmt: skip
def test_errors_are_one_line_and_end_with_2(arguments, message):
    result = shell(*SMALL, *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.splitlines()) == 1


def test_help_reads_and_has_an_example():
    assert "compare-samplers" in shell("--help").output
    text = " ".join(shell("compare-samplers", "--help").output.split())
    assert "how many passes over the data" in text
    assert "Example" in text
    assert shell("--version").output.strip() == f"svrhmc {svrhmc.__version__}"


def test_the_module_runs_as_a_command():
    shown = subprocess.run([sys.executable, "-m", "svrhmc", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == f"svrhmc {svrhmc.__version__}"


def test_without_typer_the_command_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, svrhmc.shell.app.__name__)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"needs Typer and Rich: pip install 'svrhmc\[cli\]'"):
        __main__.main()


def test_without_matplotlib_the_figure_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"a figure needs Matplotlib: pip install 'svrhmc\[plot\]'"):
        svrhmc.plots.require_matplotlib()


PLAN = ["plan", "--n", "1000", "--dim", "10", "--smoothness", "4", "--convexity", "1", "--accuracy", "0.1"]


def test_plan_prints_the_table_the_regimes_and_the_plan(tmp_path):
    figure = tmp_path / "cost.svg"
    result = shell(*PLAN, "--gradient-variance", "100", "--plot", str(figure))
    assert result.exit_code == 0, result.output
    for line in (
        "LMC",
        "HMC",
        "SGLD",
        "SG-HMC",
        "SVR-HMC",
        "Table 1, corrected",
        "κ²(d/μ)^½/ε + κ²dσ²/ε²",
        "cheapest",
        "left out by the paper",
        "step_size",
        "Assumes",
    ):
        assert line in result.output
    assert "<!-- component gradients" in figure.read_text()
    problem = svrhmc.theory.Problem(1000, 10, 4.0, 1.0, gradient_variance=100.0)
    plan = svrhmc.theory.plan(problem, 0.1)
    assert f"{plan.steps:,}" in result.output
    assert all(len(line) <= 80 for line in result.output.splitlines()[:12] if not line.startswith("Problem"))
    proved = shell(*PLAN, "--rule", "corollary", "--method", "hmc")
    assert "Proved for every" in proved.output


def test_plan_draws_rows_by_importance_and_knows_saga(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 1)) * np.geomspace(0.1, 2, 6)[:, None]
    file = tmp_path / "a.csv"
    np.savetxt(file, np.column_stack([X, rng.normal(size=6)]), delimiter=",", header="x,y", comments="")
    arguments = ["plan", "--data", str(file), "--model", "linear", "--accuracy", "0.05"]
    target = svrhmc.targets.linear(X, np.loadtxt(file, delimiter=",", skiprows=1)[:, 1])
    for method in ("sg-hmc", "saga-hmc"):
        even, weighted = (shell(*arguments, "--method", method, *more) for more in ([], ["--importance"]))
        assert even.exit_code == weighted.exit_code == 0, weighted.output
        for result, importance in ((even, False), (weighted, True)):
            plan = svrhmc.theory.plan(target, 0.05, method, importance=importance)
            assert f"{plan.steps:,}" in result.output
        assert even.output != weighted.output
    refused = shell(*PLAN, "--importance")
    assert refused.exit_code == 2
    assert "importance must be False but for rule='exact' and a target whose rows are known" in refused.output
    text = " ".join(shell("plan", "--help").output.split())
    for word in ("--importance", "saga-ld or", "saga-hmc"):
        assert word in text


@pytest.mark.parametrize("model", ["logistic", "linear"])
def test_plan_reads_a_data_file(tmp_path, model):
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(60, 2)), rng.normal(size=60)
    y = X @ [1.0, 2.0] + noise if model == "linear" else (X[:, 0] + noise > 0).astype(float)
    np.savetxt(tmp_path / "a.csv", np.column_stack([X, y]), delimiter=",", header="one,two,y", comments="")
    np.savez(tmp_path / "a.npz", X=X, y=y)
    outputs = [
        shell("plan", "--data", str(tmp_path / name), "--model", model, "--accuracy", "0.05").output
        for name in ("a.csv", "a.npz")
    ]
    assert outputs[0] == outputs[1]
    assert ("the target itself" if model == "linear" else "Hessians at its mode") in outputs[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--accuracy", "0.1", "--n", "10"], "given; got no --dim, --smoothness, --convexity"),
        ([*PLAN[:-1], "0"], "accuracy must be a positive number; got 0.0"),
        ([*PLAN[:-1], "-1"], "accuracy must be a positive number; got -1.0"),
        ([*PLAN, "--convexity", "9"], "convexity must be at most the smoothness, 4; got 9"),
        ([*PLAN, "--method", "nuts"], "method must be one of 'lmc'"),
        ([*PLAN, "--rule", "magic"], "rule must be one of"),
        ([*PLAN, "--method", "sgld"], "gradient_variance must be given for SGLD"),
        ([*PLAN, "--plot", "x.gif"], "--plot must be a name ending in .png"),
        (["plan", "--accuracy", "0.1", "--data", "none.csv"], "none.csv"),
        (["plan", "--accuracy", "0.1", "--data", "none.txt"], "a data file must be a .csv or an .npz"),
        (["plan", "--accuracy", "0.1", "--data", "none.csv", "--model", "tree"], "--model must be one of"),
        (["plan", "--accuracy", "0.1", "--data", "none.csv", "--n", "9"], "--data must be given without constants"),
        (["plan", "--accuracy", "0.1", "--data", "none.csv", "--start", "x"], "--start must be one of"),
    ],
)
def test_plan_says_what_is_wrong(arguments, message):
    result = shell(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,x\n", "line 2, must be numbers; got 3,x"),
        ("a,b\n1,2\n1,2,3\n", "line 3, must be 2 numbers; got 3"),
        ("a,b\n", "at least one row of numbers; got none"),
        ("1\n2\n", "at least two columns; got 1"),
        ("1.5,,1\n1,2,3\n", "line 1, must be numbers; got 1.5,,1"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(tmp_path, text, message):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "bad.csv")
    np.savez(tmp_path / "bad.npz", a=1)
    with pytest.raises(ValueError, match="arrays X and y"):
        read_table(tmp_path / "bad.npz")
