"""Commands of the shell through its own boundary: one line for each error, exit codes 0, 1 or 2, no traceback, no nan."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hypothesis import strategies as st

import svrhmc
from svrhmc.shell import app as cli

from .. import inputs
from ..judge import FailureError, ask, holds
from ..registry import case
from .files import TEXTS

NUMBER = inputs.often(
    st.sampled_from(["1", "10", "0.1", "2", "100"]),
    st.sampled_from(
        ["0", "-1", "nan", "inf", "1e308", "1e-308", "x", "", "1e400", "9" * 25, "0x1", "½", "--", "\x00", "1 2"]
    ),
)


def options(**given):
    """Some of these options, each with one of its values."""
    return st.lists(st.sampled_from(sorted(given)), unique=True, max_size=5).flatmap(
        lambda names: st.tuples(*[st.tuples(st.just("--" + name.replace("_", "-")), given[name]) for name in names])
    )


def invoke(words, folder):
    """A command within a folder, judged."""
    from typer.testing import CliRunner

    before = Path.cwd()
    os.chdir(folder)
    try:
        result = ask(CliRunner().invoke, cli.app, words, env={"COLUMNS": "80", "TERM": "dumb", "SVRHMC_TRACEBACK": ""})
    finally:
        os.chdir(before)
    judge(result.exit_code, result.output, result.exception, words)
    return result


def judge(code, output, error, words):
    holds(error is None or isinstance(error, SystemExit), f"{words} raised {error!r}")
    holds(code in (0, 1, 2), f"{words} ended with {code}: {output}")
    holds("Traceback" not in output and "svrhmc failed" not in output, f"{words}: {output}")
    if code == 2 and words:  # without any, the help is shown
        holds(len(output.splitlines()) == 1 and output.startswith("error: "), f"{words} said {output!r}")


@case(options(n=NUMBER, dim=NUMBER, smoothness=NUMBER, convexity=NUMBER, accuracy=NUMBER, radius=NUMBER, gradient_variance=NUMBER, component_smoothness=NUMBER,
              method=st.sampled_from(["svr-hmc", "hmc", "sgld", "x"]), rule=st.sampled_from(["exact", "corollary", "repaired", "x"]), start=st.sampled_from(["mode", "origin", "x"]), plot=st.sampled_from(["a.png", "a", "/none/a.png", ""]), data=st.sampled_from(["a.csv", "none.csv"])),
      "svrhmc plan", cost=0.05)  # fmt: skip
def plan(given):
    """svrhmc plan, with constants that are there unless they are said otherwise."""
    said = {"--n": "10", "--dim": "2", "--smoothness": "2", "--convexity": "1", "--accuracy": "0.5", **dict(given)}
    if "--data" in said and len(given) % 2:
        said = {"--accuracy": "0.5", **dict(given)}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.csv").write_text("1,2,0\n3,1,1\n2,2,1\n")
        result = invoke(["plan", *(word for pair in said.items() for word in pair)], folder)
    holds(result.exit_code or "nan" not in result.output.replace("finance", ""), f"nan in {result.output}")


@case(options(n=NUMBER, dim=NUMBER, passes=NUMBER, step_size=st.one_of(NUMBER, st.sampled_from(["hmc=0.1", "x=1", "hmc=x"])), batch_size=NUMBER, epoch_length=NUMBER, seed=NUMBER, samplers=st.sampled_from(["hmc", "sgld", "all", "x", "", "hmc,hmc"]), plot=st.sampled_from(["a.svg", "a", "/none/a.svg"])),
      "svrhmc compare-samplers", cost=0.3, numba=True)  # fmt: skip
def compare_samplers(given):
    """svrhmc compare-samplers."""
    said = {"--n": "6", "--dim": "2", "--passes": "2", "--samplers": "hmc", "--plot": "c.svg", **dict(given)}
    for name in ("--n", "--dim"):
        if len(said[name]) > 5 and said[name].isdigit():
            said[name] = "1000"
    with tempfile.TemporaryDirectory() as folder:
        result = invoke(
            ["compare-samplers", "--chains", "20", *(word for pair in said.items() for word in pair)], folder
        )
    holds(result.exit_code or " nan" not in result.output, f"nan in {result.output}")


@case(
    st.tuples(st.lists(st.sampled_from(["a", "b", "none", "damaged", ".", ""]), min_size=1, max_size=4), st.booleans()),
    "svrhmc compare",
    cost=0.05,
)
def compare(given):
    """svrhmc compare of folders, some of which are none or damaged."""
    from .posteriors import kinds

    places, older = given
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a", "b", "damaged"):
            Path(folder, name).mkdir()
            kinds()["fit"].save(f"{folder}/{name}/model.posterior")
            if not older:
                kinds()["fit"].loo().save(f"{folder}/{name}/model.loo")
        path = Path(folder, "damaged/model.loo")
        path.write_bytes(path.read_bytes()[:-30] if path.exists() else b"")
        result = invoke(["compare", *places], folder)
    fine = len(set(places)) == len(places) > 1 and {*places} <= {"a", "b"} and not older
    holds((result.exit_code == 0) == fine, f"ends with {result.exit_code}")
    holds("nan" not in result.output, f"nan in {result.output}")


FIT = options(target=st.sampled_from(["y", "a", "b", "c", "zz", ""]), formula=st.sampled_from(["a", "a + b", "y ~ a", "(", "C(a)", "z", "1", "0"]), family=st.sampled_from(["gaussian", "x"]), weights=st.sampled_from(["a", "zz"]), offset=st.sampled_from(["a", "zz"]),
              missing=st.sampled_from(["drop", "x"]), draws=NUMBER, tolerance=NUMBER, seed=NUMBER, delimiter=st.sampled_from([",", ";", "ab", ""]), encoding=st.sampled_from(["latin-1", "x", "utf-16"]), decimal=st.sampled_from([",", "", "ab"]), na=st.sampled_from(["-", "1"]), text=st.sampled_from(["a", "zz"]), budget=st.sampled_from(["1", "0", "-1", "nan", "x"]))  # fmt: skip


@case(
    st.tuples(TEXTS, FIT, st.sampled_from(["a.csv", "a.csv", "a.txt", "none.csv", "a.npz", "a.parquet"])),
    "svrhmc fit",
    cost=0.2,
    numba=True,
)
def fit(given):
    """svrhmc fit of a file of any content, as JSON."""
    text, said, name = given
    with tempfile.TemporaryDirectory() as folder:
        if name != "none.csv":
            Path(folder, name).write_bytes(("y,a,b\n" + text).encode("utf-8", "replace"))
        said = {"--target": "y", "--draws": "20", "--tolerance": "0.5", "--budget": "2", **dict(said)}
        if said["--draws"] not in ("10", "100", "0", "-1", "nan", "x", ""):
            said["--draws"] = "20"
        result = invoke(["fit", name, "--json", *(word for pair in said.items() for word in pair)], folder)
    if result.exit_code == 0:
        told = json.loads(result.stdout, parse_constant=_constant)
        holds(told, "an empty answer")


def _constant(word):
    raise FailureError(f"{word} in the JSON")


@case(
    st.tuples(
        TEXTS,
        options(
            level=NUMBER,
            draws=NUMBER,
            out=st.sampled_from(["p.csv", "/none/p.csv", "."]),
            delimiter=st.sampled_from([",", "ab"]),
            encoding=st.sampled_from(["latin-1", "x"]),
        ),
        st.sampled_from(["fit", "none", "damaged"]),
    ),
    "svrhmc predict",
    cost=0.05,
)
def predict(given):
    """svrhmc predict for a file of any content."""
    from .posteriors import kinds

    text, said, where = given
    said = dict(said)
    if said.get("--draws", "").startswith("999"):
        said["--draws"] = "20"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "new.csv").write_bytes(("a,b b,g\n" + text).encode("utf-8", "replace"))
        if where != "none":
            Path(folder, "fit").mkdir()
            kinds()["fit"].save(f"{folder}/fit/model.posterior")
        if where == "damaged":
            path = Path(folder, "fit/model.posterior")
            path.write_bytes(path.read_bytes()[:-30])
        result = invoke(["predict", "fit", "new.csv", *(word for pair in said.items() for word in pair)], folder)
        if result.exit_code == 0:
            out = Path(folder, said.get("--out", "predictions.csv")).read_text()
            holds("nan" not in out, f"nan in {out}")


@case(st.lists(st.one_of(st.sampled_from(["fit", "predict", "compare", "compare-samplers", "plan", "reproduce", "warm", "--help", "--version", "-x", "", "figure1", "table1", "--quick", "--jobs", "0", "--model", "x", "--data", "none", "--out", "a\x00b", "\ud800", "ä"]), st.text(max_size=5)), max_size=4),
      "svrhmc reproduce", "svrhmc warm", cost=0.05)  # fmt: skip
def words(given):
    """Any words."""
    if given[:1] in (["warm"], ["reproduce"], ["fit"], ["compare"], ["compare-samplers"]) and not any(
        word in given[1:] for word in ("--help", "x", "none", "0", "-x")
    ):
        given = [*given, "--nothing"]  # not the work itself
    with tempfile.TemporaryDirectory() as folder:
        invoke(list(given), folder)


@case(
    st.tuples(
        st.sampled_from(
            [
                ("plan", "--n", "10", "--dim", "2", "--smoothness", "2", "--convexity", "1", "--accuracy", "0.1"),
                ("predict", "x", "y"),
                ("fit", "none.csv"),
                ("--version",),
                ("plan",),
                ("x",),
            ]
        ),
        st.sampled_from(["ascii", "latin-1", "utf-8", "utf-16"]),
        st.sampled_from(["", "0"]),
    ),
    "svrhmc plan",
    cost=1.5,
)
def processes(given):
    """A few in processes of their own, with other encodings and without a home."""
    words, encoding, columns = given
    source = str(Path(svrhmc.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONIOENCODING": encoding, "COLUMNS": columns or "80"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "svrhmc", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
    text = (done.stdout + done.stderr).decode(encoding, "replace")
    judge(done.returncode, text if done.returncode != 2 else done.stderr.decode(encoding, "replace"), None, words)
