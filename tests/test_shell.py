"""The boundary between commands and the shell: one line for each error, and an exit code that says what kind it is."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import svrhmc
from svrhmc.paper import run
from svrhmc.shell import app as cli
from svrhmc.shell import errors as shell
from svrhmc.tables import numbers as files

PLAN = ["plan", "--n", "1000", "--dim", "10", "--smoothness", "4", "--convexity", "1", "--accuracy", "0.1"]
COMPARE = ["compare-samplers", "--n", "20", "--dim", "2", "--chains", "50", "--passes", "5"]


def invoke(*arguments):
    return CliRunner().invoke(cli.app, list(arguments), env={"COLUMNS": "80", "TERM": "dumb"})


def start(*arguments, **options):
    source = str(Path(svrhmc.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "svrhmc", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run where it is ignored
        **options,
    )


def one_line(result, code, *words):
    assert result.exit_code == code, result.output
    assert len(result.output.splitlines()) == 1, result.output
    assert result.output.startswith("error: ")
    for word in words:
        assert word in result.output


def damaged(path):
    np.savez(path, X=np.ones((5, 2)), y=np.ones(5))
    content = bytearray(path.read_bytes())
    content[60:90] = bytes(30)
    path.write_bytes(content)


def as_npy(path):
    with path.open("wb") as file:
        np.save(file, np.ones(3))


def objects(path):
    np.savez(path, X=np.array([{}], dtype=object), y=np.ones(1))


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.npz", damaged, "must be an .npz with arrays X and y"),
        ("a.npz", as_npy, "is no .npz archive, or is cut short or damaged"),
        ("a.npz", objects, "holds Python objects in X.npy"),
        ("a.npz", lambda path: path.write_bytes(b""), "is no .npz archive"),
        ("a.csv", lambda path: path.write_text("1,2\n3," + "4" * 140_000 + "\n"), "line 2, must be numbers"),
        (
            "a.csv",
            lambda path: path.write_bytes("1,2\n3,ä\n".encode("latin-1")),
            "line 2: byte 3 of it (0xe4) is not text in utf-8",
        ),
        ("a.csv", lambda path: path.mkdir(), "a.csv is a folder, not a file"),
        ("a.csv", lambda path: None, "a.csv: No such file or directory"),
    ],
)
def test_a_data_file_that_cannot_be_read_is_one_line(tmp_path, name, write, message):
    write(tmp_path / name)
    result = invoke("plan", "--accuracy", "0.1", "--data", str(tmp_path / name))
    one_line(result, 2, message, name)
    assert "allow_pickle" not in result.output


def test_a_table_with_a_field_too_long_names_its_line(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3," + "4" * 140_000 + "\n")
    with pytest.raises(ValueError, match=r"a\.csv, line 2, must be numbers; got other text \(field larger"):
        files.read_table(tmp_path / "a.csv")


@pytest.mark.parametrize("command", [COMPARE, PLAN])
def test_where_a_figure_goes_is_looked_at_before_the_work(tmp_path, monkeypatch, command):
    monkeypatch.setattr(cli, "compare_samplers", None)  # would fail, if it came to it
    monkeypatch.setattr(cli.theory, "plan", None)
    (tmp_path / "folder.png").mkdir()
    one_line(
        invoke(*command, "--plot", str(tmp_path / "folder.png")),
        2,
        "--plot must be the name of a file",
        "it is a folder",
    )
    one_line(invoke(*command, "--plot", str(tmp_path / "no" / "x.png")), 2, "--plot must be in a folder that exists")
    (tmp_path / "file").write_text("")
    one_line(invoke(*command, "--plot", str(tmp_path / "file" / "x.png")), 2, "--plot must be in a folder that exists")
    monkeypatch.setattr(shell, "_ROOM", 1 << 70)
    one_line(
        invoke(*command, "--plot", str(tmp_path / "x.png")), 2, "--plot must be on a disk with room", "bytes are free"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.png"]


def test_a_disk_that_fills_up_is_one_line_and_leaves_the_old_figure(tmp_path, monkeypatch):
    (tmp_path / "x.svg").write_text("old")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = invoke(*PLAN, "--plot", str(tmp_path / "x.svg"))
    assert result.exit_code == 1
    assert "SVR-HMC to W₂ ≤ 0.1" in result.stdout  # what was found is said all the same
    assert result.stderr == f"error: {tmp_path / 'x.svg'}: No space left on device; it is not written.\n"
    assert (tmp_path / "x.svg").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.svg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare-samplers", "--n", "many"], "Invalid value for '--n'"),
        (["compare-samplers", "--chains", "1"], "Invalid value for '--chains'"),
        (["nothing"], "No such command"),
        (["plan"], "Missing option"),
        (["--nothing"], "No such option"),
        (["plan", "--nothing"], "No such option"),
    ],
)
def test_options_that_are_wrong_are_one_line_too(arguments, message):
    one_line(invoke(*arguments), 2, message)


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (KeyError("x"), 1, "svrhmc failed (KeyError: 'x'). Please report it, with what SVRHMC_TRACEBACK=1 shows."),
        (ZeroDivisionError(), 1, "svrhmc failed (ZeroDivisionError)."),
        (MemoryError(), 1, "there is not enough memory"),
        (ValueError("two\nlines"), 2, "two lines"),
        (svrhmc.DivergenceError(1, 2, 0.5, 0.1), 1, "chain 1 diverged at step 2"),
        (OSError("odd"), 2, "odd"),
    ],
)
def test_every_error_is_one_line(monkeypatch, raised, code, message):
    def fail(*arguments):
        raise raised

    monkeypatch.setattr(cli.theory, "compare", fail)
    one_line(invoke(*PLAN), code, message)


def test_a_traceback_is_there_for_those_who_ask(monkeypatch):
    monkeypatch.setattr(cli.theory, "compare", None)
    monkeypatch.setenv("SVRHMC_TRACEBACK", "1")
    assert isinstance(invoke(*PLAN).exception, TypeError)


def test_exit_codes_are_in_the_help():
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", invoke("--help").output).split())
    assert " ".join(shell.CODES.split()) in shown


def test_an_interrupt_says_how_to_go_on_and_ends_with_130(monkeypatch, tmp_path):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "reproduce", interrupted)
    result = invoke("reproduce", "table1", "--out", str(tmp_path / "out"))
    assert result.exit_code == 130
    assert result.output == "Interrupted. Run the same command again to continue from here.\n"
    monkeypatch.setattr(cli.theory, "compare", interrupted)
    result = invoke(*PLAN)
    assert (result.exit_code, result.output) == (130, "Interrupted.\n")


def test_a_result_that_holds_nothing_is_said_in_one_line(tmp_path, monkeypatch):
    def broken(*arguments):
        raise KeyError("panels")

    monkeypatch.setattr(run, "reproduce", broken)
    one_line(invoke("reproduce", "table1", "--out", str(tmp_path / "o")), 1, "a result in ", "remove that folder")
    (tmp_path / "file").write_text("")
    one_line(invoke("reproduce", "table1", "--out", str(tmp_path / "file")), 2, "--out must be a folder")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_output_is_plain_where_signs_cannot_be_shown(encoding):
    child = start(*PLAN, env={"PYTHONIOENCODING": encoding})
    out, err = child.communicate(timeout=100)
    assert child.returncode == 0, err
    assert ("W₂ ≤ 0.1" if encoding == "utf-8" else "W2 <= 0.1") in out.decode(encoding)
    assert not err


def children(pid):
    """Processes that are descendants of one, by /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    return {child for child, parent in parents.items() if parent == pid}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.005)
    return condition()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_a_command_that_is_ended_while_they_start(tmp_path, how):
    child = start(
        "reproduce", "figure1", "--quick", "--jobs", "2", "--out", str(tmp_path / "o"), start_new_session=True
    )
    workers = set()
    try:
        assert until(lambda: len(children(child.pid)) >= 3, 60)  # two workers, and the tracker of shared things
        workers = children(child.pid)
        if how == signal.SIGKILL:
            child.send_signal(how)
        else:
            time.sleep(1)
            os.killpg(child.pid, how)  # as a terminal does
        child.wait(60)
        assert until(lambda: not any(map(alive, workers)), 30), workers
    finally:
        for pid in {child.pid, *workers}:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        _, err = child.communicate()
    if how == signal.SIGINT:
        assert child.returncode == 130
        assert err.decode() == "Interrupted. Run the same command again to continue from here.\n"


def test_code_is_compiled_ahead_by_a_command(monkeypatch):
    monkeypatch.setattr(cli, "warm", lambda kinds, say: say(f"{len(kinds)} kinds") or 12.0)
    result = invoke("warm", "--model", "linear")
    assert result.exit_code == 0
    assert "4 kinds" in result.output
    assert "Compiled in 12 s. The code is kept in " in result.output
    monkeypatch.setattr(cli.code_cache, "cache_folder", lambda: None)
    one_line(invoke("warm"), 2, "SVRHMC_CACHE must be a folder that can be written")
    one_line(invoke("warm", "--model", "tree"), 2, "--model must be one of 'logistic', 'linear', 'all'")
