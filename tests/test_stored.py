"""The same seed gives the draws that it gave in 0.1.0, but for the order of sums."""

import json
from pathlib import Path

import numpy as np
import pytest

from stored_runs import RUNS, digest

STORED = json.loads((Path(__file__).parent / "stored" / "draws-0.1.0.json").read_text())


@pytest.mark.parametrize("name", RUNS)
def test_the_draws_are_those_of_0_1_0(name):
    found = digest(RUNS[name]())
    assert found["shape"] == STORED[name]["shape"]
    for part in ("last", "mean"):
        assert np.array(found[part]) == pytest.approx(np.array(STORED[name][part]), abs=1e-9)
