"""python -m tests.fuzz: run the machine, or one input again."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

if str(Path(__file__).resolve().parents[1]) not in sys.path:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for what other tests know (`hand_written_laws.py`)

from . import inputs, machine, registry


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    words.add_argument(
        "--calls", type=int, default=100_000, help="stop after the round with so many calls of public names"
    )
    words.add_argument("--seconds", type=float, default=3600.0, help="stop after this time")
    words.add_argument("--slice", type=float, default=6.0, help="seconds for a case in each round")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--case", action="append", help="only cases whose name contains this; may be repeated")
    words.add_argument("--plain", action="store_true", help="only cases that compile nothing")
    words.add_argument("--input", help="run this input of the one --case again, as the report printed it")
    words.add_argument("--out", type=Path, help="write the report to this file as JSON")
    words.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    asked = words.parse_args()
    if asked.child:
        machine.child(json.loads(asked.child.read_text()))
        return 0
    cases = registry.load()
    if asked.input is not None:
        registry.run(cases[asked.case[0]], inputs.read(asked.input))
        print("no failure")
        return 0
    chosen = [name for name in cases if not asked.case or any(part in name for part in asked.case)]
    chosen = [name for name in chosen if not (asked.plain and cases[name].numba)]
    with tempfile.TemporaryDirectory() as folder:
        tally = machine.drive(
            chosen,
            asked.calls,
            asked.seconds,
            asked.slice,
            asked.seed,
            Path(folder),
            set(),
            lambda line: print(line, flush=True),
        )
    print(tally.text())
    if asked.out:
        told = {"calls": tally.calls, "examples": tally.examples, "seconds": tally.seconds, "by_case": dict(tally.by_case),
                "by_name": dict(tally.by_name), "failures": list(tally.failures.values())}  # fmt: skip
        asked.out.write_text(json.dumps(told, indent=1))
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
