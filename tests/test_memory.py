"""What diagnostics take in memory beside the draws."""

import subprocess
import sys

import numpy as np
import pytest

from svrhmc import diagnostics
from svrhmc.posterior import correction

MEASURED = """
import resource
import numpy as np
from svrhmc.posterior import correction as c
rng = np.random.default_rng(0)
x, h = rng.normal(size=(4, 25_000, 50)), rng.normal(size=(4, 25_000, 50))
few = x[:, :500]
c.effective_draws(few), c.tail_draws(few), c.agreement(few), c.correction(few, h[:, :500], np.ones(50))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
c.effective_draws(x), c.tail_draws(x), c.agreement(x), c.correction(x, h, np.ones(50))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_diagnostics_take_little_beside_the_draws():
    said = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    assert float(said.stdout) < 150  # MB, for draws of 38 MB; all at once they took 600


@pytest.mark.parametrize("block", [1, 50, 1 << 30])
def test_blocks_change_no_number(monkeypatch, block):
    rng = np.random.default_rng(0)
    x, h = rng.normal(size=(3, 201, 7)), rng.normal(size=(3, 201, 7))
    h[..., 1] += x[..., 0] ** 3
    measures = (correction.effective_draws, correction.tail_draws, correction.agreement, diagnostics.standard_error)
    monkeypatch.setattr(diagnostics, "_BLOCK", 1 << 30)
    whole = [measure(x) for measure in measures]
    corrected = correction.correction(x, h, np.ones(7))[1]
    monkeypatch.setattr(diagnostics, "_BLOCK", block)
    assert [each.tolist() for each in whole] == [pytest.approx(measure(x).tolist(), rel=1e-12) for measure in measures]
    again = correction.correction(x, h, np.ones(7))[1]
    for name in ("mean", "sd", "mean_error", "sd_error"):
        assert getattr(again, name) == pytest.approx(getattr(corrected, name), rel=1e-9)


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 9])
def test_no_column_stands_alone(columns):
    pieces = diagnostics.some_columns(1 << 40, columns)
    assert [k for some in pieces for k in range(some.start, some.stop)] == list(range(columns))
    assert columns == 1 or min(some.stop - some.start for some in pieces) >= 2
