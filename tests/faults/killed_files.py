"""Kill processes while they save or compile, and look at what they leave.

    python tests/faults/killed_files.py save|compile KILLS FOLDER [SEED]

save: a child saves two traces and two posteriors over each other, without end; after each kill (SIGKILL at a random
moment) both files are there, and each is one of the two, bit for bit.
compile: a process compiles into a folder of its own, and is killed; then another finds its code whole or compiles it
anew, gives the right numbers and leaves a folder that the next one only reads.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import svrhmc
from svrhmc import targets

COMPILES = """
import numpy as np
from svrhmc.kernels import float64
from svrhmc.kernels.rows import dense_rows
print("ready", flush=True)
out, partial = np.empty((1, 2)), np.zeros((1, 2))
float64.predict(dense_rows(np.ones((2, 2))), np.ones(2), 0, 2, out)
float64.combine(dense_rows(np.ones((2, 2))), np.ones((1, 2)), 2, 0, 2, np.empty(2), partial)
hits = sum(sum(each.stats.cache_hits.values()) for each in (float64.predict, float64.combine))
print(out.sum() + partial.sum(), hits, flush=True)
"""


def compiling(folder: Path) -> subprocess.Popen[str]:
    """A process that compiles two functions, or finds them in the folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", COMPILES]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def compiled(folder: Path) -> int:
    """What it says when nobody disturbs it: how many of the two it found."""
    with compiling(folder) as process:
        out, err = process.communicate(timeout=600)
    if process.returncode or err or out.split()[:2] != ["ready", "8.0"]:
        raise SystemExit(f"after a kill: {out} {err}")
    return int(out.split()[2])


def kill_compilers(kills: int, folder: Path, rng: np.random.Generator) -> str:
    """Each time into an empty folder, or into what the one before has left."""
    began = time.monotonic()
    compiled(folder / "timed")
    longest, done, halves = time.monotonic() - began, 0, 0
    while done < kills:
        place = folder / f"{done}"
        for _ in range(int(rng.integers(1, 4))):
            with compiling(place) as process:
                if process.stdout.readline() != "ready\n":
                    raise SystemExit(process.stderr.read())
                time.sleep(rng.uniform(0, 0.5 * longest))
                done += process.poll() is None
                process.kill()
                process.wait()
        found = compiled(place)
        halves += found == 1
        if compiled(place) != 2:
            raise SystemExit(f"{place}: what was compiled is not found")
    return f"{done} kills, {halves} of them between two files, no cache broken"


def kill_savers(kills: int, folder: Path, rng: np.random.Generator) -> str:
    """Children are forked from this process, which has everything already."""
    target = targets.synthetic(5, 50)
    traces = [svrhmc.hmc(0.2).run(target, 2000, seed=seed, engine="reference") for seed in (1, 2)]
    posteriors = [svrhmc.sample(target, draws=4000, seed=seed) for seed in (1, 2)]
    draws = [[each.draws for each in traces], [each.trace.draws for each in posteriors]]
    paths = [folder / "a.trace", folder / "a.posterior"]
    traces[0].save(paths[0])
    posteriors[0].save(paths[1])
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            while True:
                for trace, posterior in zip(traces, posteriors, strict=True):
                    trace.save(paths[0])
                    posterior.save(paths[1])
        time.sleep(rng.uniform(0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found = [svrhmc.Trace.load(paths[0]).draws, svrhmc.Posterior.load(paths[1]).trace.draws]
        for now, known in zip(found, draws, strict=True):
            if not any(np.array_equal(now, each) for each in known):
                raise SystemExit("a file holds something that nobody saved")
    return f"{kills} kills, every file whole"


def main(kind: str, kills: int, folder: Path, seed: int = 0) -> None:
    """Kill and look."""
    kind_of = {"save": kill_savers, "compile": kill_compilers}
    print(f"{kind}: {kind_of[kind](kills, folder, np.random.default_rng(seed))}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 0)
