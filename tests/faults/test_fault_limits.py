"""Limits of a process: files that may not grow, memory that may not, places that are none."""

import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import svrhmc
from svrhmc.shell import app as cli

RUN = "import svrhmc\ntrace = svrhmc.hmc(0.2).run(svrhmc.targets.synthetic(5, 20), 500, seed={}, engine='reference')\n"
SAVE = RUN + "try: trace.save('a.trace')\nexcept OSError as error: print(error)\n"
MEMORY = """
import resource
import numpy as np
import svrhmc
target = svrhmc.targets.synthetic(5, 20)
svrhmc.hmc(0.2).run(target, 5, engine="reference")
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (200 << 20),) * 2)
for work in (
    lambda: svrhmc.hmc(0.2).run(target, 1_000_000, engine="reference"),
    lambda: svrhmc.sample(target, draws=10_000_000),
    lambda: svrhmc.targets.linear(np.broadcast_to(1.0, (10_000_000, 5)), np.zeros(10_000_000)),
):
    try:
        work()
    except (ValueError, MemoryError) as error:
        print(type(error).__name__, error)
print(svrhmc.hmc(0.2).run(target, 50, engine="reference").draws.shape)
"""


def limited(code, folder, size):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )


def test_a_file_that_may_not_grow_leaves_the_old_one(tmp_path):
    assert limited(SAVE.format(1), tmp_path, 1 << 30).stdout == ""
    before = (tmp_path / "a.trace").read_bytes()
    assert limited(SAVE.format(2), tmp_path, len(before) // 2).stdout == "[Errno 27] File too large: 'a.trace'\n"
    assert (tmp_path / "a.trace").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.trace"]


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_memory_that_is_limited_is_an_error_in_words_and_the_process_goes_on():
    result = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    first, second, third, last = result.stdout.splitlines()
    assert first.startswith("ValueError steps must be such that the draws fit into memory")
    assert second.startswith("ValueError draws must be such that the draws fit into memory")
    assert third.split()[0] in ("ValueError", "MemoryError")
    assert last == "(4, 50, 20)"


@pytest.mark.parametrize("place", ["/dev/null/x", "/proc/none/x"])
@pytest.mark.parametrize("command", ["fit", "reproduce"])
def test_a_place_where_nothing_can_be_written_is_one_line(tmp_path, command, place):
    np.savetxt(tmp_path / "a.csv", np.arange(40.0).reshape(20, 2) % 7, "%g", ",", header="a,y", comments="")
    given = {"fit": ["fit", str(tmp_path / "a.csv"), "--target", "y"], "reproduce": ["reproduce", "table1"]}[command]
    result = CliRunner().invoke(cli.app, [*given, "--out", place], env={"COLUMNS": "80", "TERM": "dumb"})
    assert result.exit_code == 2, result.output
    assert len(result.output.splitlines()) == 1, result.output
    assert result.output.startswith("error: ")
    assert svrhmc.__name__ not in result.output.split(":")[0]
