"""Files from strangers: no code of theirs runs, nothing crashes, nothing outside changes, and all is refused soon."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hostile_files import DOORS, KINDS

HERE = Path(__file__).parent
SECONDS, BYTES = 2.0, 200e6  # of the processor, and of memory beyond what importing takes
BY_KIND = {
    "posterior": ("Posterior.load", "predict"),
    "trace": ("Trace.load",),
    "csv": ("read", "fit", "read_table", "from_csv"),
    "csv.gz": ("read", "fit"),
    "parquet": ("read", "fit", "from_parquet"),
    "npz": ("read", "fit", "read_table"),
    "npy": ("read", "fit"),
    "libsvm": ("read", "fit"),
    "checkpoint": tuple(door for door in DOORS if door.startswith("resume")),
}
QUICK = ("resume split", "resume sparse", "resume sample")
IN_PASSES = {("one_row_many_times", "from_parquet")}  # rows beyond memory are what it is for
RANDOM = {"truncated": 8, "flipped": 8, "another_array": 40, "another_word": 60, "cut": 8, "spoilt": 30}
RANDOM |= {"another_array_in_a_record": 60, "no_array_in_a_record": 12, "another_word_in_a_record": 80}
RANDOM |= {"linked": 8, "pipes_for_records": 8, "folder_for_a_record": 8, "hollow_record": 4}


def cases():
    """Kind, maker, door, seed and what may come of it; one in a few is run by default."""
    for group, makers in KINDS.items():
        kind, _, expected = group.partition("-")
        for make in makers:
            for k, door in enumerate(BY_KIND[kind]):
                count = RANDOM.get(make, 1)
                for seed in range(count):
                    quick = seed < (1 if kind == "checkpoint" else 3) and (k == 0 or door in QUICK)
                    marks = [] if quick else [pytest.mark.slow]
                    allowed = "any" if (make, door) in IN_PASSES else expected
                    name = f"{kind}-{make}-{door}-{seed}"
                    yield pytest.param(kind, make, door, seed, allowed, id=name, marks=marks)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    command = [sys.executable, str(HERE / "hostile_files.py"), str(folder)]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):

        def ask(*question):
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, (folder / "log").read_text()[-2000:]
            return json.loads(answer)

        yield ask
        process.stdin.close()


@pytest.mark.parametrize(("kind", "make", "door", "seed", "allowed"), list(cases()))
def test_a_hostile_file_does_no_harm_and_is_refused_soon(kind, make, door, seed, allowed, server):
    found = server(kind, make, door, seed)
    assert not found.get("harm"), found
    assert found["outcome"] in ("refused", "accepted"), found
    if found["outcome"] == "accepted":
        assert allowed or (kind == "checkpoint" and found["same"]), found
        assert allowed != "same" or found["same"], found
    if allowed != "same":
        assert found["memory"] < BYTES, found
        assert found["outcome"] == "accepted" or found["cpu"] < SECONDS, found
