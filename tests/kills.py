"""Kill a run at random moments until it is done, and compare it with one that nobody disturbed.

    python tests/kills.py KIND KILLS FOLDER [SEED]

KIND is one of `JOBS`. A child is forked from this process, which has compiled everything already, works with a
checkpoint, and is killed (SIGKILL) at a random moment; the next child goes on. When a job is done its result is
compared bit for bit, and the next seed begins, until there were enough kills.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import svrhmc
from stored_runs import counts, dense, table
from svrhmc import checkpoint, targets
from svrhmc.exact import SplitHMC, SubsampledMH

EVERY = 0.02  # seconds between two records here
TALL = targets.logistic(*table(20_000, 4))
JOBS = {
    "run": lambda seed, folder: svrhmc.svr_hmc(0.05, batch_size=4, epoch_length=31).run(
        dense(), 1_500_000, thin=150, seed=seed, threads=1, checkpoint=folder
    ),
    "reference": lambda seed, folder: svrhmc.saga_ubu(0.05, batch_size=4).run(
        dense(), 3000, seed=seed, engine="reference", checkpoint=folder
    ),
    "split": lambda seed, folder: SplitHMC().run(dense(), 60_000, seed=seed, threads=1, checkpoint=folder),
    "subsampled": lambda seed, folder: SubsampledMH().run(TALL, 20_000, seed=seed, threads=1, checkpoint=folder),
    "sample": lambda seed, folder: svrhmc.sample(
        dense(), 60_000, seed=seed, threads=1, method="anchored", tolerance=0.1, checkpoint=folder
    ),
    "sample-exact": lambda seed, folder: svrhmc.sample(dense(), 80_000, seed=seed, threads=1, checkpoint=folder),
    "sample-custom": lambda seed, folder: svrhmc.sample(
        counts(), 60, seed=seed, threads=1, method="ubu", tolerance=0.2, checkpoint=folder
    ),
}


def numbers(result: object) -> list[np.ndarray]:
    """All that has to be the same."""
    if isinstance(result, svrhmc.Trace):
        return [result.draws, result.passes, result.velocity, np.array(result.gradient_evaluations)]
    stein = result.certificate.stein
    return [
        result.trace.draws, result.trace.passes, result.mean, result.sd, stein.mean, stein.mean_error, result.ess,
        np.array(result.passes), np.array([ord(letter) for letter in result.certificate.verdict]),
    ]  # fmt: skip


def life(kind: str, seed: int, folder: Path, wait: float) -> bool:
    """One child until it is killed or done; whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            JOBS[kind](seed, folder)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(3)
    ended, began = 0, time.monotonic()
    while time.monotonic() - began < wait and not ended:
        time.sleep(0.001)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status):
        raise SystemExit(f"{kind}, seed {seed}: a child failed")
    return False


def main(kind: str, kills: int, folder: Path, seed: int = 0) -> None:
    """Kill and compare."""
    checkpoint.SECONDS = EVERY
    rng = np.random.default_rng([seed, len(kind)])
    JOBS[kind](10**6, None)  # compiled, and loaded
    done = lives = 0
    while lives < kills:
        began = time.monotonic()
        whole = numbers(JOBS[kind](seed, None))
        length = time.monotonic() - began
        place = folder / f"{kind}-{seed}"
        while life(kind, seed, place, rng.uniform(0, 0.5 * max(length, 0.2))):
            lives += 1
        parts = [path.name for path in place.iterdir() if path.suffix == ".part"]
        found = numbers(JOBS[kind](seed, place))
        if parts or not all(np.array_equal(a, b) for a, b in zip(whole, found, strict=True)):
            raise SystemExit(f"{kind}, seed {seed}: after kills the result is another, or {parts} were left")
        done, seed = done + 1, seed + 1
    print(f"{kind}: {lives} kills, {done} runs, each the same bit for bit")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 0)
