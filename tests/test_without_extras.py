"""Where only what svrhmc itself needs is installed: README's example runs, and all else says what to install."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEFORE = """
import sys

for name in ("arviz", "dask", "formulaic", "jax", "matplotlib", "narwhals", "onnx", "ot", "pandas", "polars", "pyarrow", "sklearn", "typer"):
    sys.modules[name] = None
"""
AFTER = """
from pathlib import Path

import svrhmc.__main__
from svrhmc import data, distances, targets

Path("rows.csv").write_text("x,y\\n1,2\\n2,3.5\\n3,4\\n")
Path("rows.parquet").write_bytes(b"PAR1")
cases = {
    "a function": lambda: svrhmc.fit("churn ~ np.log(age)", table),
    "an interaction": lambda: svrhmc.fit("churn ~ age * plan", table),
    "a spline": lambda: svrhmc.fit("churn ~ bs(age, df=4)", table),
    "contrasts": lambda: svrhmc.fit("churn ~ C(plan, contr.sum)", table),
    "censored times": lambda: svrhmc.fit("Surv(age, calls) ~ plan", table),
    "a data frame of a summary": lambda: posterior.summary().to_frame(),
    "a data frame of predictions": lambda: posterior.predict(table).to_frame(),
    "a figure": lambda: posterior.plot(),
    "ArviZ": lambda: posterior.to_arviz(),
    "ONNX": lambda: posterior.to_onnx(),
    "an estimator": lambda: svrhmc.BayesianLogisticRegression(),
    "CSV in parts": lambda: data.from_csv("rows.csv"),
    "Parquet": lambda: data.from_parquet("rows.parquet"),
    "Dask": lambda: data.from_dask(1),
    "a model in JAX": lambda: targets.model(lambda x: x, {}),
    "W2": lambda: distances.empirical_w2(np.zeros((3, 1)), np.ones((3, 1))),
    "the shell": lambda: svrhmc.__main__.main(),
}
for name, case in cases.items():
    try:
        case()
        print("nothing is said:", name)
    except (ModuleNotFoundError, SystemExit) as error:
        if "pip install 'svrhmc[" not in str(error):
            print(f"no extra is named: {name}: {error!r}")
"""


def run(code, folder):
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300)


def example():
    """The first of README."""
    return (ROOT / "README.md").read_text().partition("```python\n")[2].partition("```")[0]


def test_the_example_of_readme_runs_and_all_else_says_which_extra_to_install(tmp_path):
    done = run(BEFORE + example() + "print('done')\n" + AFTER, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n"), done.stdout
    assert (tmp_path / "churn.html").exists()


def test_a_package_that_is_needed_after_all_is_an_error(tmp_path):
    assert run("import sys\nsys.modules['scipy'] = None\n" + example(), tmp_path).returncode == 1
