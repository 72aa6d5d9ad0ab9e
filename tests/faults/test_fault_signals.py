"""Interrupts: while the command starts, and in the middle of a fit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import svrhmc

PLAN = ["plan", "--n", "1000", "--dim", "10", "--smoothness", "4", "--convexity", "1", "--accuracy", "0.1"]
STARTS = """
import os, runpy, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "{name}":
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["{program}", *{arguments}]
runpy.run_module("svrhmc", run_name="__main__")
"""


def started(name, program="svrhmc"):
    code = STARTS.format(name=name, program=program, arguments=PLAN)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize("name", ["numpy", "svrhmc.theory", "typer", "svrhmc.shell.app"])
def test_an_interrupt_while_the_command_starts_is_one_line(name):
    said = started(name)
    assert (said.returncode, said.stdout, said.stderr) == (130, "", "Interrupted.\n")


def test_other_programs_hear_interrupts_as_python_does():
    assert "KeyboardInterrupt" in started("numpy", "program.py").stderr
    assert signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN)  # where tests run unheard


@pytest.mark.parametrize("line", ["Interrupted.", "Interrupted: the same command goes on.", ""])
def test_an_interrupt_ends_compiled_code_that_does_not_return_to_python(line):
    """A digest of some minutes, in one call, stands for a compiler or a product of large matrices."""
    code = f"""
import hashlib, signal
from svrhmc.core import processes
signal.signal(signal.SIGINT, signal.default_int_handler)
processes._PATIENCE = 0.1
processes.end_on_interrupt()
processes.hear_interrupts()
processes.set_interrupt_message({line!r})
print("begun", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 30)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "begun\n"
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (130, line and f"{line}\n")


def begin(folder, *more):
    command = [sys.executable, "-m", "svrhmc", "fit", "a.csv", "--target", "y", "--draws", "300000", *more]
    source = str(Path(svrhmc.__file__).parents[1])
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run where it is ignored
    )


def drawn(folder):
    """Draws of a chain that a checkpoint holds."""
    try:
        return svrhmc.Trace.load(folder).draws.shape[1]
    except (svrhmc.TraceFileError, OSError):
        return 0


@pytest.mark.slow
def test_an_interrupted_fit_keeps_what_is_done_and_goes_on_to_the_same_draws(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 5))
    y = rng.random(2000) < 1 / (1 + np.exp(-X[:, 0]))
    table = np.column_stack([X, y])
    np.savetxt(tmp_path / "a.csv", table, "%.6g", ",", header="a,b,c,d,e,y", comments="")
    with begin(tmp_path, "--out", "whole") as whole:
        assert whole.wait(600) == 0
    unfinished, seen = tmp_path / "a-fit" / "unfinished", [0]
    while True:
        with begin(tmp_path) as child:
            while child.poll() is None:
                if len(seen) < 4 and drawn(unfinished) > seen[-1]:
                    child.send_signal(signal.SIGINT)
                    break
                time.sleep(0.02)
            _, err = child.communicate(timeout=600)
        if child.returncode == 0:
            break
        assert child.returncode == 130
        assert err == "Interrupted: what is done is kept in a-fit, and the same command goes on.\n"
        seen.append(drawn(unfinished))
        assert seen[-1] > seen[-2]
    assert len(seen) > 1
    found, expected = (svrhmc.Posterior.load(tmp_path / each / "model.posterior") for each in ("a-fit", "whole"))
    assert (found.trace.draws == expected.trace.draws).all()
    assert (found.mean == expected.mean).all()
    assert not (tmp_path / "a-fit" / "unfinished").exists()
