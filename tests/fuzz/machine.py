"""A child process that runs cases, and a parent that outlives what kills the child.

Before each example the child writes down which it is. A segfault, a hang in compiled code (ended by faulthandler) or a
kill for memory so names its input. Failures that are known are counted and passed over, so that a run goes on.
"""

from __future__ import annotations

import collections
import faulthandler
import json
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STUCK = 240  # seconds by the clock after which code that does not return to Python is ended
MEMORY = 12 << 30  # bytes of address space
_SHRINKING = (300, 15.0)  # examples and seconds spent on making a failure small
ROOT = Path(__file__).resolve().parents[2]


class _EnoughError(BaseException):
    """Time is up."""


def signature(case: str, error: BaseException | str) -> str:
    """A name for a failure that does not depend on the numbers in it."""
    text = str(error).split("\n")[0]
    return (
        f"{case}: "
        + re.sub(r"\s+", " ", re.sub(r"'[^']*'|[-+]?\d[\d.,e+-]*|\bnan\b|\binf\b|\[.*?\]|[^\x00-\x7f]+", "#", text))[
            :110
        ]
    )


def explore(
    one: Any, seed: int | None, examples: int, seconds: float, before: Any, known: set[str]
) -> dict[str, Any] | None:
    """Examples of a case until one fails in a way that is not known; that failure, made small."""
    import hypothesis

    from . import registry

    end = time.process_time() + seconds
    found: dict[str, Any] = {}
    since = [0, 0.0]

    def check(given: Any) -> None:
        if found:
            since[0] += 1
            if since[0] > _SHRINKING[0] or time.process_time() - since[1] > _SHRINKING[1]:
                raise _EnoughError
        elif time.process_time() > end:
            raise _EnoughError
        text = repr(given)
        before(one.name, text)
        try:
            registry.run(one, given)
        except Exception as error:
            name = signature(one.name, error)
            if name in known:
                return
            if not found:
                since[1] = time.process_time()
            if not found or name == found["signature"]:
                found.update(case=one.name, signature=name, error=f"{type(error).__name__}: {error}"[:2000], input=text)
                raise

    settings = hypothesis.settings(
        max_examples=examples, database=None, deadline=None, derandomize=seed is None, report_multiple_bugs=False,
        print_blob=False, suppress_health_check=list(hypothesis.HealthCheck), verbosity=hypothesis.Verbosity.quiet,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
    )  # fmt: skip
    test = settings(hypothesis.given(one.strategy)(check))
    if seed is not None:
        test = hypothesis.seed(seed)(test)
    try:
        test()
    except _EnoughError:
        pass
    except Exception:
        if not found:
            raise
    return found or None


def child(plan: dict[str, Any]) -> None:
    """Run the cases of a plan, writing what happens to its log."""
    import warnings

    import numba  # noqa: F401  its import is no part of a call
    import pandas  # noqa: F401

    from . import judge, registry

    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    np.set_printoptions(threshold=10**6)
    log, last = Path(plan["log"]).open("a", buffering=1), Path(plan["last"])  # noqa: SIM115
    handle = os.open(last, os.O_CREAT | os.O_RDWR)
    known = set(plan["known"])
    examples = [0]

    def before(case: str, text: str) -> None:
        examples[0] += 1
        faulthandler.dump_traceback_later(plan["stuck"], exit=True)
        data = json.dumps({"case": case, "input": text}).encode()
        os.ftruncate(handle, 0)
        os.pwrite(handle, data, 0)

    warnings.simplefilter("ignore")
    for name in plan["cases"]:
        one = registry.load(*plan["parts"])[name]
        calls = sum(judge.counted.values())
        examples[0] = 0
        log.write(json.dumps({"begin": name}) + "\n")
        for again in range(3):
            failure = explore(
                one, plan["seed"] * 7 + again, plan["examples"], plan["seconds"] / (1 + again), before, known
            )
            if failure is None:
                break
            known.add(failure["signature"])
            log.write(json.dumps({"failure": failure}) + "\n")
        faulthandler.cancel_dump_traceback_later()
        log.write(
            json.dumps({"done": name, "calls": sum(judge.counted.values()) - calls, "examples": examples[0]}) + "\n"
        )
    log.write(json.dumps({"counted": dict(judge.counted)}) + "\n")


@dataclass
class Tally:
    """What a run of the machine has seen."""

    calls: int = 0
    examples: int = 0
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)
    by_case: collections.Counter[str] = field(default_factory=collections.Counter)
    by_name: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: float = 0.0

    def text(self) -> str:
        lines = [
            f"{self.calls:,} calls in {self.examples:,} examples of {len(self.by_case)} cases, {self.seconds:.0f} s: {len(self.failures)} failures"
        ]
        for one in self.failures.values():
            lines.append(
                f"\n{one['case']}: {one['error']}\n  again: python -m tests.fuzz --case {one['case']} --input {one['input']!r}"
            )
        return "\n".join(lines)


def drive(cases: list[str], calls: int, seconds: float, slice_seconds: float, seed: int, folder: Path, known: set[str], say: Any = print,
          parts: tuple[str, ...] = (), rounds: int = 10**9, stuck: float = STUCK) -> Tally:  # fmt: skip
    """Whole rounds of all cases, each with another seed, until there are so many calls; cut short only by the time."""
    tally, began, turn = Tally(), time.monotonic(), seed
    known = set(known)
    while tally.calls < calls and time.monotonic() - began < seconds and turn - seed < rounds:
        left = list(cases)
        while left and time.monotonic() - began < seconds:
            some, left = left[:10], left[10:]
            more = {"cases": some, "seed": turn, "seconds": slice_seconds, "parts": parts, "stuck": stuck}
            left = _one_child(more, folder, tally, known, say) + left
        turn += 1
        tally.seconds = time.monotonic() - began
        say(f"round {turn - seed}: {tally.calls:,} calls, {len(tally.failures)} failures, {tally.seconds:.0f} s")
    return tally


def _one_child(more, folder, tally, known, say) -> list[str]:
    """Run some cases in a child; those that it did not come to are given back."""
    log, last, plan, cases = folder / "log", folder / "last", folder / "plan", more["cases"]
    log.write_text("")
    last.write_text("")
    told = {**more, "examples": 100_000, "log": str(log), "last": str(last), "known": sorted(known)}
    plan.write_text(json.dumps(told))
    words = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", "--child", str(plan)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")}
    ended = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    done = []
    for line in log.read_text().splitlines():
        told = json.loads(line)
        if "failure" in told:
            note(tally, told["failure"], known, say)
        elif "done" in told:
            done.append(told["done"])
            tally.calls += told["calls"]
            tally.examples += told["examples"]
            tally.by_case[told["done"]] += told["calls"]
        elif "counted" in told:
            tally.by_name.update(told["counted"])
    if ended.returncode == 0:
        return []
    seen = json.loads(last.read_text() or '{"case": "", "input": ""}')
    error = f"the process ended with {ended.returncode}: {ended.stderr[-1500:]}"
    name = f"{seen['case'] or cases[len(done)]}: process ended with {ended.returncode} {signature('', seen['input'])}"
    note(tally, {"case": seen["case"], "signature": name, "error": error, "input": seen["input"]}, known, say)
    return cases[len(done) + 1 :]


def note(tally: Tally, failure: dict[str, Any], known: set[str], say: Any) -> None:
    """A failure, once."""
    if failure["signature"] in tally.failures:
        return
    tally.failures[failure["signature"]] = failure
    known.add(failure["signature"])
    say(f"FAILURE {failure['case']}: {failure['error'][:600]}\n    input {failure['input'][:1500]}")
