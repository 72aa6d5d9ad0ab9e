"""Compiled code on disks that are full, in files that are damaged, by processes that compile at once or are killed."""

import hashlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from svrhmc.core.code_cache import CodeFiles, source_digest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from killed_files import compiled, compiling  # noqa: E402

KEY, DATA = ("types", "processor"), {"code": b"\x00" * 1000}
KEEPS = """
import numpy as np
from svrhmc.core.progress import compilation_stage
from svrhmc.kernels import float64
from svrhmc.kernels.rows import dense_rows
for _ in range(2):
    with compilation_stage(None):
        out = np.empty((1, 2))
        float64.predict(dense_rows(np.ones((2, 2))), np.ones(2), 0, 2, out)
print(out.sum())
"""


@pytest.fixture
def files(tmp_path):
    made = CodeFiles(tmp_path, "loop.advance-1.py311", "s" * 16)
    made.save(KEY, DATA)
    return made


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:10],
        lambda content: content[:-1],
        lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:],
        lambda content: content + b"\x00",
        lambda content: hashlib.sha256(b"cnone.such\nthing\n.").digest() + b"cnone.such\nthing\n.",
    ],
)
def test_code_that_is_damaged_is_as_good_as_none(files, tmp_path, damage):
    assert files.load(KEY) == DATA
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert files.load(KEY) is None
    files.save(KEY, DATA)
    assert files.load(KEY) == DATA
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_finds_its_own_code_alone(files, tmp_path):
    assert files.load(("types", "other")) is None
    (path,) = tmp_path.iterdir()
    files.save(("types", "other"), "more")
    assert (files.load(KEY), files.load(("types", "other"))) == (DATA, "more")
    other = next(each for each in tmp_path.iterdir() if each != path)
    other.write_bytes(path.read_bytes())  # a digest that fits, of something else
    assert files.load(("types", "other")) is None


def test_what_older_texts_were_compiled_to_goes(files, tmp_path):
    for name in ("loop.advance-1.py311.nbi", "loop.advance-1.py311.1.nbc", "loop.extend-1.py311.1.nbc"):
        (tmp_path / name).write_text("of numba")
    later = CodeFiles(tmp_path, "loop.advance-1.py311", "t" * 16)
    assert later.load(KEY) is None
    later.save(KEY, DATA)
    assert len([path for path in tmp_path.iterdir() if path.name.startswith("loop.advance")]) == 1
    later.flush()
    assert [path.name for path in tmp_path.iterdir()] == ["loop.extend-1.py311.1.nbc"]


def test_the_stamp_is_of_every_text(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("1")
    texts = [tmp_path / "a", tmp_path / "b"]
    before = source_digest(texts)
    assert before == source_digest(texts[::-1])
    (tmp_path / "b").write_text("2")
    assert source_digest(texts) != before


def test_a_full_disk_ends_no_run_and_is_said_once(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", KEEPS],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert result.stdout == "4.0\n", result.stderr
    assert result.stderr.splitlines() == [
        f"svrhmc: {tmp_path} cannot be used (File too large), so each process compiles again; set SVRHMC_CACHE to a "
        "folder that can be written to."
    ]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_processes_that_compile_at_once_and_damaged_files_leave_a_whole_cache(tmp_path):
    at_once = [compiling(tmp_path) for _ in range(3)]
    for process in at_once:
        out, err = process.communicate(timeout=600)
        assert (process.returncode, err, out.split()[:2]) == (0, "", ["ready", "8.0"])
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) == 2
    for number, path in enumerate(kept):  # a kill of the machine can leave such files
        path.write_bytes(path.read_bytes()[: 100 * number])
    assert compiled(tmp_path) == 0
    assert compiled(tmp_path) == 2


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("save", 5),
        pytest.param("save", 60, marks=pytest.mark.slow),
        pytest.param("compile", 40, marks=pytest.mark.slow),
    ],
)
def test_kills_leave_whole_files(kind, kills, tmp_path):
    command = [sys.executable, str(HERE / "killed_files.py"), kind, str(kills), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "every file whole" in result.stdout or "no cache broken" in result.stdout
