"""What a run has made survives: kills, full disks, other settings, damaged files."""

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import svrhmc
from conftest import every_engine
from kills import JOBS
from stored_runs import counts, dense, sparse_rows, table
from svrhmc import CheckpointError, Trace, checkpoint, gradients, sample, samplers, targets
from svrhmc.core.errors import StorageError
from svrhmc.core.storage import read_record, write_record
from svrhmc.engines.compiled.engine import CompiledChains
from svrhmc.engines.reference import ReferenceChains
from svrhmc.exact import SplitHMC
from svrhmc.sampling.drawing import Drawing
from svrhmc.whitening import whitened

HERE = Path(__file__).parent
SAMPLER = svrhmc.svr_hmc(0.05, batch_size=4, epoch_length=7)


def run(folder, **settings):
    return SAMPLER.run(dense(), **{"steps": 60, "seed": 3, "thin": 2, "checkpoint": folder, **settings})


@pytest.fixture
def often(monkeypatch):
    """A record at every piece."""
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)


@pytest.fixture
def stopped(often, tmp_path):
    """A run that was interrupted half way."""
    folder = tmp_path / "run.ckpt"

    def interrupt(done, total):
        if done >= total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(folder, progress=interrupt)
    return folder


@pytest.mark.ordinary(
    lambda make, gradient, engine: make is dense or (gradient == gradients.SVRG(4, 7) and engine == "reference")
)
@pytest.mark.parametrize("engine", every_engine())
@pytest.mark.parametrize("make", [dense, sparse_rows, lambda: whitened(dense())], ids=["dense", "sparse", "whitened"])
@pytest.mark.parametrize("gradient", [gradients.SVRG(4, 7), gradients.SAGA(4), gradients.Minibatch(4)], ids=str)
def test_a_run_with_a_checkpoint_is_the_run_without(gradient, make, engine, tmp_path, often):
    target, sampler = make(), svrhmc.Sampler(svrhmc.dynamics.UBU(0.05, 1.0, 1.0), gradient)
    plain = sampler.run(target, 150, burn_in=11, thin=2, seed=5, engine=engine)
    kept = sampler.run(target, 150, burn_in=11, thin=2, seed=5, engine=engine, checkpoint=tmp_path / "run")
    assert (kept.draws == plain.draws).all()
    assert (kept.passes == plain.passes).all()
    assert (kept.velocity == plain.velocity).all()
    assert kept.mean() == pytest.approx(plain.mean(), rel=1e-12)
    assert kept.covariance() == pytest.approx(plain.covariance(), rel=1e-10)
    assert kept.summary().ess_bulk == pytest.approx(plain.summary().ess_bulk)


def test_it_goes_on_where_it_was(stopped):
    """What was made before is not made again."""
    before, told = Trace.load(stopped), []
    assert 0 < before.draws.shape[1] < 30
    again = run(stopped, progress=lambda done, total: told.append(done))
    assert told[0] >= 4 * 25
    assert (again.draws == run(None).draws).all()
    assert (before.draws == again.draws[:, : before.draws.shape[1]]).all()
    assert before.sampler == SAMPLER
    assert (before.passes == again.passes[: before.draws.shape[1]]).all()
    assert "30 draws" in repr(Trace.load(stopped))


def test_what_is_finished_returns_at_once(tmp_path, monkeypatch):
    first = run(tmp_path / "a")
    exact = SplitHMC().run(dense(), 40, checkpoint=tmp_path / "b")

    def fail(*arguments):
        raise AssertionError("a step was made again")

    for kind in (CompiledChains, ReferenceChains):
        for method in ("extend", "compile"):
            monkeypatch.setattr(kind, method, fail)
    again = run(tmp_path / "a")
    assert (first.draws == again.draws).all()
    assert (first.seconds, first.gradient_evaluations) == (again.seconds, again.gradient_evaluations)
    twice = SplitHMC().run(dense(), 40, checkpoint=tmp_path / "b")
    assert (twice.draws == exact.draws).all()
    assert (twice.acceptance == exact.acceptance).all()


def other_rows():
    target = dense()
    X = target.rows.X.copy()
    X[17, 2] += 1e-12
    return targets.logistic(X, target.y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "another seed: 3, and this call has 4"),
        ({"steps": 61}, "another steps: 60, and this call has 61"),
        ({"burn_in": 1}, "another burn_in: 0, and this call has 1"),
        ({"keep": "last"}, "another keep: all, and this call has last"),
        ({"chains": 5}, "another chains: 0 to 3, and this call has 0 to 4"),
        ({"start": "mode"}, "another start"),
        ({"engine": "reference"}, "another engine: numba, and this call has reference"),
    ],
)
def test_other_settings_are_refused_by_name(stopped, change, message):
    with pytest.raises(CheckpointError, match=message):
        run(stopped, **change)
    assert (run(stopped).draws == run(None).draws).all()


def test_what_another_version_began_is_to_be_finished_with_it(stopped, monkeypatch):
    monkeypatch.setattr(samplers, "VERSION", "9.0.0")
    with pytest.raises(
        CheckpointError, match=r"begun by svrhmc 0.*this is 9.0.0: finish it with that version, or choose"
    ):
        run(stopped)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (other_rows, "another X"),
        (lambda: targets.logistic(dense().rows.X, -dense().y), "another y"),
        (lambda: targets.logistic(dense().rows.X, dense().y, 2.0), "another prior"),
        (lambda: targets.linear(dense().rows.X, dense().y), "another loss"),
        (counts, "another target: GeneralisedLinear, and this call has Custom"),
        (lambda: targets.synthetic(300, 5), "another target: GeneralisedLinear, and this call has Gaussian"),
    ],
)
def test_other_data_are_refused_by_name(stopped, target, message):
    with pytest.raises(CheckpointError, match=message):
        svrhmc.Sampler(SAMPLER.dynamics, SAMPLER.gradient).run(target(), 60, seed=3, thin=2, checkpoint=stopped)
    with pytest.raises(CheckpointError, match="another sampler"):
        svrhmc.svr_hmc(0.04, batch_size=4, epoch_length=7).run(dense(), 60, seed=3, thin=2, checkpoint=stopped)
    with pytest.raises(CheckpointError, match=r"another call: Sampler\.run, and this call has sample"):
        sample(dense(), checkpoint=stopped)


@pytest.mark.parametrize("name", ["settings", "state", "draws.rows", "spent.rows"])
def test_files_cut_short_or_edited_are_refused_and_left(stopped, name):
    path = stopped / name
    whole = path.read_bytes()
    middle = len(whole) // 2
    edited = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (whole[:-1], whole[:middle], edited, b"", b"{}", b"PK\x03\x04" + whole[4:]):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"hoose another folder|cannot be used|can continue"):
            run(stopped)
        assert path.read_bytes() == damaged
    path.write_bytes(whole)
    assert (run(stopped).draws == run(None).draws).all()
    path.unlink()
    if name != "state":  # without it the run begins anew
        with pytest.raises(CheckpointError):
            run(stopped)


def test_what_a_killed_write_leaves_is_cut_off(stopped):
    with (stopped / "draws.rows").open("ab") as file:
        file.write(b"half of a row")
    (stopped / "state.123.0.part").write_bytes(b"svrhmc\n and half of a record")
    assert (run(stopped).draws == run(None).draws).all()
    assert not list(stopped.glob("*.part"))


def test_folders_that_are_something_else_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"is not a checkpoint: it has notes\.txt"):
        run(tmp_path)
    with pytest.raises(CheckpointError, match="is a file; a checkpoint is a folder"):
        run(tmp_path / "notes.txt")
    with pytest.raises(CheckpointError, match=r"cannot be written \(.*\)\. What it held before is kept"):
        run("/proc/nowhere/run.ckpt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_two_runs_do_not_share_a_folder(tmp_path):
    entered, leave, errors = threading.Event(), threading.Event(), []

    def hold(done, total):
        entered.set()
        leave.wait(10)

    def held():
        try:
            run(tmp_path / "a", progress=hold)
        except BaseException as error:
            errors.append(error)

    first = threading.Thread(target=held)
    first.start()
    entered.wait(10)
    with pytest.raises(CheckpointError, match="is in use by another run"):
        run(tmp_path / "a")
    leave.set()
    first.join()
    assert not errors
    run(tmp_path / "a")


def limited(code, folder, size):
    """A process that can write no file larger than `size` bytes."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, preexec_fn=limit,
        env={**os.environ, "PYTHONPATH": str(HERE)}, check=False,
    )  # fmt: skip


def test_a_disk_that_is_full_is_said_and_earlier_work_is_kept(tmp_path):
    code = (
        "import sys, svrhmc\nfrom stored_runs import dense\nfrom svrhmc import checkpoint\ncheckpoint.SECONDS = 0.0\n"
        "sampler = svrhmc.svr_hmc(0.05, batch_size=4)\n"
        "try: sampler.run(dense(), 2000, seed=1, engine='reference', checkpoint=sys.argv[1])\n"
        "except svrhmc.CheckpointError as error: print(error)\n"
    )
    folder = tmp_path / "run.ckpt"
    told = limited(code, folder, 100_000)
    assert "cannot be written (File too large)" in told.stdout
    assert "earlier work is kept" in told.stdout or "What it held before is kept" in told.stdout
    assert not told.stderr
    kept = Trace.load(folder).draws.shape[1]
    assert kept > 100
    sampler = svrhmc.svr_hmc(0.05, batch_size=4)
    again = sampler.run(dense(), 2000, seed=1, engine="reference", checkpoint=folder)
    assert (again.draws == sampler.run(dense(), 2000, seed=1, engine="reference").draws).all()


def test_a_trace_can_be_read_while_it_is_written(tmp_path, often):
    seen = []

    def look(done, total):
        if (tmp_path / "a" / "state").exists():
            seen.append(Trace.load(tmp_path / "a"))

    whole = run(tmp_path / "a", progress=look)
    assert len({trace.draws.shape[1] for trace in seen}) > 3
    for trace in seen:
        assert (trace.draws == whole.draws[:, : trace.draws.shape[1]]).all()
    empty = tmp_path / "b"
    checkpoint.Checkpoint(empty, {}).close()
    with pytest.raises(svrhmc.TraceFileError, match="holds no draws yet"):
        Trace.load(empty)


@pytest.mark.untraced
def test_a_sample_with_a_checkpoint_is_the_sample_without(tmp_path, often):
    name, job = "sample-custom", JOBS["sample-custom"]
    plain, kept = job(5, None), job(5, tmp_path / name)
    again = job(5, tmp_path / name)
    for one in (kept, again):
        assert (one.trace.draws == plain.trace.draws).all()
        assert (one.mean == plain.mean).all()
        assert (one.certificate.verdict, one.passes) == (plain.certificate.verdict, plain.passes)
    assert (Trace.load(tmp_path / name).draws == plain.trace.draws).all()
    with pytest.raises(CheckpointError, match=r"another tolerance: 0\.2, and this call has 0\.1"):
        sample(counts(), 60, seed=5, threads=1, method="ubu", tolerance=0.1, checkpoint=tmp_path / name)


def test_draws_beyond_memory_go_to_the_file(tmp_path):
    """Fifteen times the draws, and hardly more memory: the peak of a process of its own."""
    code = (
        "import resource, sys, svrhmc\nfrom svrhmc import checkpoint\ncheckpoint.SECONDS = 0.05\n"
        "target = svrhmc.targets.synthetic(20, 10)\n"
        "svrhmc.hmc(0.1).run(target, 10)\n"
        "svrhmc.hmc(0.1).run(target, int(sys.argv[2]), chains=4, checkpoint=sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    peaks = []
    for steps in (20_000, 300_000):
        command = [sys.executable, "-c", code, str(tmp_path / f"{steps}"), str(steps)]
        peaks.append(int(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    assert (tmp_path / "300000" / "draws.rows").stat().st_size == 96_000_000
    assert peaks[1] < peaks[0] + 45_000  # KiB


def test_a_record_is_whole_or_not_there(tmp_path):
    path = tmp_path / "record"
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(3, np.float32), "c": np.arange(2), "e": np.zeros((4, 0))}
    write_record(path, {"x": 0.1, "y": None, "z": ["é", 2**70]}, arrays)
    record = read_record(path)
    assert record.settings == {"x": 0.1, "y": None, "z": ["é", 2**70]}
    assert all((record.arrays[name] == array).all() for name, array in arrays.items())
    assert {name: array.dtype for name, array in record.arrays.items()} == {n: a.dtype for n, a in arrays.items()}
    with pytest.raises(TypeError, match="not kept in files"):
        write_record(path, {}, {"o": np.array([object()])})
    assert read_record(path).settings["x"] == 0.1
    assert [each.name for each in tmp_path.iterdir()] == ["record"]
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(StorageError):
            read_record(path)
    assert read_record(tmp_path / "none") is None
    with pytest.raises(StorageError, match="is a folder, not a file"):
        read_record(tmp_path)


class Springs(targets.FiniteSum):
    """A target of one's own: fᵢ(x) = |x − cᵢ|²/2."""

    scalar_parts = False

    def __init__(self, c):
        self.c, (self.n, self.dim) = c, c.shape
        self.row_size = self.dim

    smoothness = component_smoothness = convexity = 1.0
    closed_form = None

    def curvature_range(self, bound):
        return 1.0, 1.0

    def mode(self):
        return self.c.mean(axis=0)

    def potentials(self, x):
        return ((x[:, None] - self.c) ** 2).sum(axis=2).mean(axis=1) / 2

    def gradients(self, x):
        return x - self.c.mean(axis=0)

    def parts(self, x, indices):
        return x[:, None] - (self.c[None] if indices is None else self.c[indices])

    def assemble(self, parts, indices):
        return parts.mean(axis=1)

    def prior_gradient(self, x):
        return np.zeros_like(x)

    def _with_quadratic(self, strength, centre): ...


def test_targets_losses_and_samplers_of_ones_own_are_told_apart(tmp_path):
    c = np.random.default_rng(0).normal(size=(30, 2))
    first = svrhmc.sgld(0.1).run(Springs(c), 20, checkpoint=tmp_path / "a")
    assert (svrhmc.sgld(0.1).run(Springs(c), 20, checkpoint=tmp_path / "a").draws == first.draws).all()
    with pytest.raises(CheckpointError, match="another components"):
        svrhmc.sgld(0.1).run(Springs(c + 5), 20, checkpoint=tmp_path / "a")

    class Plain(targets.losses.LogisticLoss):
        __repr__ = object.__repr__

    class Mine(SplitHMC):
        pass

    def target():
        return targets.GeneralisedLinear(dense().rows, dense().y, Plain(), 1.0)

    for _ in range(2):
        assert svrhmc.sgld(1e-4).run(target(), 9, checkpoint=tmp_path / "b").draws.shape == (4, 9, 5)
        assert Mine().run(dense(), 9, checkpoint=tmp_path / "c").draws.shape == (4, 9, 5)
    assert Trace.load(tmp_path / "c").sampler is None
    assert Trace.load(tmp_path / "c").acceptance.shape == (4,)


def test_numbers_of_numpy_are_as_good_and_other_things_are_refused(tmp_path):
    whole = run(tmp_path / "a", thin=np.int64(5), steps=np.int32(60))
    assert (run(tmp_path / "a", thin=5).draws == whole.draws).all()
    sample(dense(), np.int64(50), budget_passes=np.int64(10_000), checkpoint=tmp_path / "b")
    for wrong in (True, 3.5):
        with pytest.raises(ValueError, match="checkpoint must be the name of a folder"):
            run(wrong)
    with pytest.raises(ValueError, match="method must be None, a sampler, or one of"):
        sample(dense(), method=SplitHMC)
    posterior = sample(targets.linear(dense().rows.X, dense().y), checkpoint=tmp_path / "c")
    assert (Trace.load(tmp_path / "c").draws == posterior.trace.draws).all()


class Records:
    """Counts what `Drawing` puts on disk, and interrupts it after so many of them."""

    def __init__(self, monkeypatch):
        self.count, self.limit, record = 0, None, Drawing._record

        def counted(drawing):
            record(drawing)
            self.count += 1
            if self.count == self.limit:
                raise KeyboardInterrupt

        monkeypatch.setattr(Drawing, "_record", counted)

    def cut(self, after, run):
        """Run until so many records are made, and no further."""
        self.count, self.limit = 0, after
        with pytest.raises(KeyboardInterrupt):
            run()
        self.limit = None


@pytest.mark.parametrize("after", [3, 40, 60, 68, 70])
def test_a_budget_in_passes_ends_where_it_would_have(after, tmp_path, often, monkeypatch):
    """Interrupted after so many records, also after the very last one of a piece."""
    target = targets.logistic(*table(60, 3))
    plain = sample(target, 1000, budget_passes=900, checkpoint=tmp_path / "plain")
    assert not plain.complete
    cut = tmp_path / "cut"
    Records(monkeypatch).cut(after, lambda: sample(target, 1000, budget_passes=900, checkpoint=cut))
    again = sample(target, 1000, budget_passes=900, checkpoint=tmp_path / "cut")
    assert again.trace.draws.shape == plain.trace.draws.shape
    assert (again.trace.draws == plain.trace.draws).all()
    assert (again.passes, again.complete) == (plain.passes, plain.complete)


@pytest.mark.parametrize(
    "start",
    [
        lambda target, **settings: svrhmc.svr_hmc(0.1).run(target, 60, **settings),
        lambda target, **settings: svrhmc.cv_hmc(0.1).run(target, 60, **settings),
        lambda target, **settings: SplitHMC().run(target, 30, burn_in=9, **settings),
    ],
    ids=["svr", "cv", "split"],
)
def test_other_threads_of_linear_algebra_change_no_bit(start, often, tmp_path):
    """Modes, maps and bounds of a resumed run are those it began with, though they would be others now."""

    def draws(folder, threads, progress=None):
        with threadpool_limits(threads, "blas"):
            target = svrhmc.targets.logistic(*table(600, 150))
            return start(target, checkpoint=tmp_path / folder, progress=progress).draws

    def interrupt(done, total):
        if done > total / 2:
            raise KeyboardInterrupt

    whole = draws("whole", 1)
    with pytest.raises(KeyboardInterrupt):
        draws("cut", 1, interrupt)
    assert (draws("cut", 2) == whole).all()


def killed(kind, kills, folder, seed=0):
    command = [sys.executable, str(HERE / "kills.py"), kind, str(kills), str(folder), str(seed)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)


@pytest.mark.parametrize("kind", ["subsampled"])  # the others are among the slow ones below
def test_killing_changes_no_bit(kind, tmp_path):
    told = killed(kind, 4, tmp_path)
    assert "each the same bit for bit" in told.stdout, told.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOBS)
def test_killing_often_changes_no_bit(kind, tmp_path):
    told = killed(kind, 40, tmp_path, 7)
    assert "each the same bit for bit" in told.stdout, told.stderr


def test_the_clock_learns_and_says_when_a_record_is_due():
    clock = checkpoint.Clock(0.2)
    assert clock.piece(100) == 1
    clock.learn(1, 1e-4)
    assert clock.piece(100) == 8
    clock.learn(8, 0.4)
    assert clock.piece(100) == 4
    assert not clock.due()
    time.sleep(0.11)
    assert clock.due()
    assert not clock.due()


def test_what_was_measured_for_a_choice_is_measured_once(tmp_path, monkeypatch):
    """Killed right after the choice is on disk: the passes of the whole run are those of one that was not."""
    target, put = targets.logistic(*table(5000, 3)), checkpoint.Checkpoint.put
    plain = sample(target, 100, seed=2)

    def stop(self, name, *rest):
        put(self, name, *rest)
        if name == "choice":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoint, "put", stop)
        with pytest.raises(KeyboardInterrupt):
            sample(target, 100, seed=2, checkpoint=tmp_path / "cut")
    again = sample(target, 100, seed=2, checkpoint=tmp_path / "cut")
    assert (again.trace.draws == plain.trace.draws).all()
    assert again.passes == pytest.approx(plain.passes, rel=1e-12)


@pytest.mark.parametrize("after", [0.5, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.2, 0.75, 0.95))])
def test_an_attempt_that_draws_on_resumes(after, tmp_path, often, monkeypatch):
    """Chance alone would hide a bias at first, so that more draws are made: cut before, within and after them."""
    target = targets.logistic(*table(60, 3))
    settings = {"draws": 100, "method": "anchored", "tolerance": 0.05, "seed": 1}
    records = Records(monkeypatch)
    plain = sample(target, checkpoint=tmp_path / "plain", **settings)
    assert plain.ess.min() > 150  # more than were asked for
    records.cut(int(after * records.count), lambda: sample(target, checkpoint=tmp_path / "cut", **settings))
    again = sample(target, checkpoint=tmp_path / "cut", **settings)
    assert (again.trace.draws == plain.trace.draws).all()
    assert (again.mean == plain.mean).all()
    assert again.passes == pytest.approx(plain.passes, rel=1e-12)
    assert again.certificate.verdict == plain.certificate.verdict


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda modes: np.concatenate([modes, modes]), "one mode several times"),
        (lambda modes: np.concatenate([modes, modes + 1]), "several where there is one"),
        (lambda modes: modes[:0], "it has no mode"),
    ],
    ids=["twice", "another", "none"],
)
def test_modes_that_were_not_found_are_refused(change, message, tmp_path, monkeypatch):
    """A log-concave posterior has one: chains from others would have other draws."""
    target, put = targets.logistic(*table(60, 3)), checkpoint.Checkpoint.put

    def stop(self, name, said, arrays=None):
        changed = {**arrays, "modes": change(arrays["modes"])} if name == "variables" else arrays
        put(self, name, said, changed)
        if name == "choice":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoint, "put", stop)
        with pytest.raises(KeyboardInterrupt):
            sample(target, 100, seed=2, checkpoint=tmp_path / "cut")
    with pytest.raises(CheckpointError, match=message):
        sample(target, 100, seed=2, checkpoint=tmp_path / "cut")
