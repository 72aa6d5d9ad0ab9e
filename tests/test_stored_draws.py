"""The same seed gives the draws that it gave in 0.1.0, but for the order of sums and for what the changelog names."""

import json
from pathlib import Path

import numpy as np
import pytest

from stored_runs import RUNS, digest

FOLDER = Path(__file__).parent / "stored"
STORED = json.loads((FOLDER / "draws-0.1.0.json").read_text())
CHANGED = json.loads((FOLDER / "draws-changed.json").read_text())  # on purpose, since then


@pytest.mark.parametrize("name", RUNS)
def test_the_draws_are_those_of_0_1_0(name):
    found, stored = digest(RUNS[name]()), CHANGED.get(name, STORED[name])
    assert found["shape"] == stored["shape"]
    for part in ("last", "mean"):
        assert np.array(found[part]) == pytest.approx(np.array(stored[part]), abs=1e-9)
