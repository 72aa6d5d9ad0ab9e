"""Long work that is recorded: the same results after a kill, without making again what was made."""

from functools import partial

import numpy as np
import pytest

from svrhmc import checkpoint
from svrhmc.checkpoint import Checkpoint, InMemory
from svrhmc.core.errors import CheckpointError
from svrhmc.core.recording import compute_once, iterate_recorded


class Killed(BaseException):
    """As a kill would end the work."""


class Account:
    def ledger(self):
        return {"spent": 1}

    def resume(self, record, name):
        assert record.settings[name] == {"spent": 1}


class Work:
    """Counts what is computed, and is killed before a given number of it."""

    def __init__(self):
        self.computed, self.last = 0, np.inf

    def _compute(self, *arrays):
        if self.computed >= self.last:
            raise Killed
        self.computed += 1
        return arrays

    def _failing(self):
        self._compute()
        raise ValueError("as ever")

    def _inner(self, number, state):
        (a,) = state
        (b,) = compute_once(lambda: self._compute(np.cos(a) + number), (3,))
        return np.sin(a) + b, number == 4

    def _outer(self, number, state):
        x, total = state
        (y,) = iterate_recorded(self._inner, (x,), 10)
        with pytest.raises(ValueError, match="as ever"):
            compute_once(self._failing, (1,))
        value, slope = compute_once(lambda: self._compute(float(y.sum()), y * x), (), (3,))
        (nested,) = compute_once(lambda: (compute_once(lambda: self._compute(slope + 1), (3,))[0] * 2,), (3,))
        return y + slope, total + value + nested.sum(), False

    def run(self):
        start = compute_once(lambda: self._compute(np.arange(3.0)), (3,))
        return iterate_recorded(self._outer, (start[0], 0.0), 6)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)


@pytest.mark.parametrize("every", [1, 2, 3, 7, 20])
def test_work_that_is_killed_again_and_again_ends_with_the_same_numbers(tmp_path, every):
    whole = Work()
    expected = whole.run()
    total = kills = 0
    while True:
        work = Work()
        work.last = every + 6  # those that failed are tried again
        try:
            with Checkpoint(tmp_path / "c", {}) as journal, journal.recording("work", Account()):
                trace = work.run()
            break
        except Killed:
            total, kills = total + work.computed, kills + 1
    assert kills > 3 if every < 7 else kills >= 1
    assert all(np.array_equal(a, b) for a, b in zip(expected, trace, strict=True))
    assert total + work.computed <= whole.computed + 7 * kills + 7


def test_results_of_other_work_are_not_used_and_damaged_ones_are_refused(tmp_path):
    with Checkpoint(tmp_path / "c", {}) as journal:
        for of, expected in (({"n": 1}, 1.0), ({"n": 1}, 1.0), ({"n": 2}, 3.0)):
            with journal.recording("work", Account(), of):
                assert compute_once(lambda expected=expected: (expected,), ())[0] == expected
        with pytest.raises(CheckpointError, match="does not fit"), journal.recording("work", Account(), {"n": 2}):
            compute_once(lambda: (np.zeros(2),), (2,))
        journal.remove("work")
        assert journal.get("work") is None


def require_refused(folder, entries, arrays, work):
    """Work does not go on from a record of these entries."""

    def go_on():
        with Checkpoint(folder, {}) as journal:
            journal.put("work", {"of": {}, "account": Account().ledger(), "entries": entries}, arrays)
            with journal.recording("work", Account()):
                work()

    with pytest.raises(CheckpointError):
        go_on()


@pytest.mark.parametrize(
    "changed",
    [
        {"entries": [[0, 1, 0]], "arrays": {"0.0": np.ones(3, np.int64)}},
        {"entries": [[0, 1, 0]], "arrays": {"0.0": np.ones(3), "0.1": np.ones(3)}},
        {"entries": [[0, 1, 0]], "arrays": {"0.0": np.ones(2)}},
        {"entries": [[0, 2, 0]], "arrays": {"0.0": np.ones(3)}},
        {"entries": [["0", 1, 0]], "arrays": {"0.0": np.ones(3)}},
        {"entries": [[0, 1, -1]], "arrays": {"0.0": np.ones(3)}},
        {"entries": [[0, 1]], "arrays": {"0.0": np.ones(3)}},
        {"entries": 3, "arrays": {}},
    ],
)
def test_a_record_that_was_changed_is_refused(tmp_path, changed):
    require_refused(
        tmp_path / "c", changed["entries"], changed["arrays"], lambda: compute_once(lambda: (np.zeros(3),), (3,))
    )


@pytest.mark.parametrize("rounds", [[-1.0, 0.0], [1.5, 0.0], [11.0, 0.0], [2.0, 3.0], [np.inf, 0.0]])
def test_rounds_that_cannot_be_are_refused(tmp_path, rounds):
    arrays = {"0.0": np.array(rounds), "0.1": np.ones(3)}
    work = partial(iterate_recorded, lambda number, state: (state[0] + 1, False), (np.zeros(3),), 10)
    require_refused(tmp_path / "c", [[0, 2, 0]], arrays, work)


def test_numbers_that_are_none_are_computed_anew(tmp_path):
    with Checkpoint(tmp_path / "c", {}) as journal:
        said = {"of": {}, "account": Account().ledger(), "entries": [[0, 1, 0]]}
        journal.put("work", said, {"0.0": np.full(3, np.nan)})
        with journal.recording("work", Account()):
            assert (compute_once(lambda: (np.ones(3),), (3,))[0] == 1).all()


def test_without_a_checkpoint_nothing_is_kept():
    with InMemory().recording("work", Account()):
        whole = Work()
        assert [array.shape for array in whole.run()] == [(3,), ()]
