"""What diagnostics take in memory beside the draws."""

import subprocess
import sys

import numpy as np
import pytest

import svrhmc
from svrhmc import checkpoint, diagnostics
from svrhmc.sampling import coordinates, correction, doubts

MEASURED = """
import resource
import numpy as np
from svrhmc.sampling import correction as c, doubts as d
rng = np.random.default_rng(0)
x, h = rng.normal(size=(4, 12_500, 50)), rng.normal(size=(4, 12_500, 50))
few = x[:, :500]
d.effective_draws(few), d.tail_draws(few), d.largest_r_hat(few), c.correction(few, h[:, :500], np.ones(50))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
d.effective_draws(x), d.tail_draws(x), d.largest_r_hat(x), c.correction(x, h, np.ones(50))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


SUMMARY = """
import resource
import numpy as np
import svrhmc
x = np.random.default_rng(0).normal(size=(4, 12_500, 50))
trace = svrhmc.Trace(x, np.arange(12_500.0), 1, x[:, 0], 1.0, svrhmc.hmc(0.1), 0, np.arange(4), "numba")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
trace.summary()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""

SAMPLED = """
import resource
import sys
import numpy as np
import svrhmc
rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 50))
target = svrhmc.targets.logistic(X, rng.random(2000) < 1 / (1 + np.exp(-X[:, :4].sum(axis=1))))
svrhmc.sample(target, 50, method=sys.argv[1], progress=False)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
posterior = svrhmc.sample(target, int(sys.argv[2]), method=sys.argv[1], progress=False)
posterior.summary()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, posterior.trace.draws.nbytes / 2**20)
"""


def measured(*command):
    result = subprocess.run([sys.executable, "-c", *command], capture_output=True, text=True, check=True)
    return [float(number) for number in result.stdout.split()]


def test_diagnostics_take_little_beside_the_draws():
    assert measured(MEASURED)[0] < 75  # MB, for draws of 19 MB; twice as many took 600 all at once


def test_a_summary_takes_little_beside_the_draws():
    assert measured(SUMMARY)[0] < 50  # MB, for draws of 19 MB; twice as many took 300 with ArviZ


@pytest.mark.slow
@pytest.mark.parametrize(("method", "draws"), [("anchored", "40000"), ("split-hmc", "80000")])
def test_a_sample_takes_little_beside_the_draws(method, draws):
    peak, kept = measured(SAMPLED, method, draws)
    assert kept > 35
    assert peak < kept + 200  # MB; it took 322 for 39


def test_rows_come_out_as_they_went_in_whatever_was_expected():
    rng, blocks = np.random.default_rng(0), checkpoint.InMemory().growing("x", (2, 3), "x")
    assert blocks.array().shape == (2, 0, 3)
    given = [rng.normal(size=(2, rows, 3)) for rows in (4, 0, 5, 2, 7, 1, 1)]
    for number, block in enumerate(given):
        if number in (0, 3, 5):  # less than comes, more than comes, just as much
            blocks.expect({0: 3, 3: 20, 5: 2}[number])
        blocks.append(block)
        assert number % 2 or (blocks.array() == np.concatenate(given[: number + 1], axis=1)).all()
    assert (blocks.array() == np.concatenate(given, axis=1)).all()


@pytest.mark.parametrize("kind", ["dense", "diagonal", "low rank"])
@pytest.mark.parametrize("numbers", [1, 300, 1 << 20])
def test_draws_are_mapped_some_at_a_time(monkeypatch, kind, numbers):
    X = np.random.default_rng(0).normal(size=(40, 5))
    how = svrhmc.whitening.whitening(svrhmc.targets.linear(X, X[:, 0]), kind)
    z = np.random.default_rng(1).normal(size=(3, 150, 5))
    monkeypatch.setattr(coordinates, "_NUMBERS", numbers)
    shown = coordinates.ReportedCoordinates(how, None)
    assert (shown.out(z, 7) == how.out(z, 7)).all()
    expected = how.displace(z, 7)
    assert (shown.displace(z, 7, into=z) == expected).all()
    assert (z == expected).all()


@pytest.mark.parametrize("block", [1, 50, 1 << 30])
def test_blocks_change_no_number(monkeypatch, block):
    rng = np.random.default_rng(0)
    x, h = rng.normal(size=(3, 201, 7)), rng.normal(size=(3, 201, 7))
    h[..., 1] += x[..., 0] ** 3
    measures = (doubts.effective_draws, doubts.tail_draws, doubts.largest_r_hat, diagnostics.standard_error)
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
