"""`svrhmc reproduce --quick` on simulated data, with records as often as can be, for the tests that kill it."""

import os
import sys
from pathlib import Path

from svrhmc import checkpoint
from svrhmc.paper import run

# at the top, for the workers too, which import this file
checkpoint.SECONDS = 0.02
os.environ["SVRHMC_UNCHECKED"] = "1"

if __name__ == "__main__":
    part, out, folder, jobs = sys.argv[1:]
    print("begun", flush=True)
    run.reproduce((part,), Path(out), Path(folder), quick=True, jobs=int(jobs), say=lambda line: None)
