"""What cannot be kept is said in one line, after the results, with an exit code of 1; what cannot fit is refused first."""

import errno
import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import svrhmc
from svrhmc import CheckpointError, targets
from svrhmc.core import storage
from svrhmc.estimators import BayesianLogisticRegression
from svrhmc.exact import SplitHMC
from svrhmc.shell import outputs, predict
from svrhmc.shell.app import app

MANY = 10**12


def shell(*words, size=None, **environment):
    """A command in a process of its own, which can write no file larger than `size` bytes."""

    def limit():
        if size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [sys.executable, "-m", "svrhmc", *words], capture_output=True, text=True, preexec_fn=limit, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


def test_a_disk_that_is_full_while_netcdf_is_written(tmp_path):
    """HDF5 would take the process with it."""
    told = shell("fit", "--draws", "200", "--out", str(tmp_path / "a"), size=150_000)
    assert told.returncode == 1
    assert "survived" in told.stdout
    assert "P(> 0)" in told.stdout
    last = told.stderr.splitlines()[-1]
    assert last == f"error: {tmp_path / 'a' / 'posterior.nc'} is not written: File too large."
    kept = {path.name for path in (tmp_path / "a").iterdir()}
    assert kept == {"model.posterior", "model.loo", "coefficients.csv", "report.html", "unfinished"}
    again = shell("fit", "--draws", "200", "--out", str(tmp_path / "a"))
    assert again.returncode == 0
    assert {path.name for path in (tmp_path / "a").iterdir()} == kept - {"unfinished"} | {"posterior.nc"}


def test_a_home_that_cannot_be_written_loses_nothing(tmp_path):
    told = shell("fit", "--draws", "200", "--out", str(tmp_path / "a"), HOME="/proc/none")
    assert told.returncode == 0, told.stderr
    assert "P(> 0)" in told.stdout
    assert "Report: " in told.stdout
    assert (tmp_path / "a" / "posterior.nc").exists()


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["x,y", *(f"{x:.3f},{x + noise:.3f}" for x, noise in rng.normal(size=(50, 2)))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def refused(*arguments, **settings):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(arguments[0]))


def test_each_file_is_written_whatever_became_of_the_others(table, monkeypatch):
    monkeypatch.setattr(outputs, "report", lambda posterior, path, **told: refused(path))
    result = CliRunner().invoke(app, ["fit", "rows.csv", "--target", "y", "--draws", "50", "--json"])
    assert result.exit_code == 1
    content = json.loads(result.stdout)
    assert set(content["files"]) == {"model", "loo", "coefficients", "netcdf"}
    assert content["notes"][-1] == "rows-fit/report.html is not written: Read-only file system."
    assert "error: rows-fit/report.html is not written: Read-only file system." in result.stderr


def test_what_is_refused_on_the_way_is_a_failure(table, monkeypatch):
    """1, and not 2: the options were right, and the work was begun."""
    assert CliRunner().invoke(app, ["fit", "rows.csv", "--target", "y", "--draws", "50"]).exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(predict, "write_text", refused)
        result = CliRunner().invoke(app, ["predict", "rows-fit", "rows.csv"])
    assert result.exit_code == 1
    assert result.stderr == "error: predictions.csv: Read-only file system; it is not written.\n"
    monkeypatch.setattr(svrhmc.checkpoint, "write_record", refused)
    result = CliRunner().invoke(app, ["fit", "rows.csv", "--target", "y", "--out", "other"])
    assert result.exit_code == 1
    assert "cannot be written (Read-only file system)" in result.stderr
    for words in (["fit", "none.csv"], ["fit", "rows.csv", "--target", "z"], ["predict", "rows.csv", "rows.csv"]):
        assert CliRunner().invoke(app, words).exit_code == 2


class Untouched:
    """A table that fails a test where anything looks at it."""

    def __getattr__(self, name):
        raise AssertionError(f"{name} was looked at")


def doors():
    target = targets.linear(np.eye(3), np.ones(3))
    table = {"x": np.arange(9.0), "y": np.arange(9.0)}
    return {
        "sample": lambda **more: svrhmc.sample(target, **more),
        "fit": lambda **more: svrhmc.fit("y ~ x", Untouched(), **more),
        "regress": lambda **more: svrhmc.fitting.regress(table["x"][:, None], table["y"], "gaussian", **more),
        "estimator": lambda **more: BayesianLogisticRegression(**more).fit(np.eye(4), [0, 1, 0, 1]),
        "exact": lambda draws=10, **more: SplitHMC().run(target, draws, **more),
        "run": lambda draws=10, **more: svrhmc.hmc(0.1).run(target, draws, **more),
    }


@pytest.mark.parametrize("door", doors())
@pytest.mark.parametrize("word", ["draws", "chains"])
def test_more_draws_than_fit_are_refused_at_the_door(door, word, monkeypatch):
    monkeypatch.setattr(svrhmc.samplers, "free_memory", lambda: 1e9)
    with pytest.raises(
        ValueError, match=r"(draws|steps|chains) must be such that the draws fit into memory, 1 GB; got"
    ):
        doors()[door](**{word: 10**9})


@pytest.mark.parametrize("door", ["sample", "fit", "run", "exact"])
def test_more_draws_than_the_disk_holds_are_refused_at_the_door(door, tmp_path):
    with pytest.raises(ValueError, match=r"(draws|steps) must be such that the draws fit onto the disk of"):
        doors()[door](draws=MANY, checkpoint=tmp_path / "new" / "folder")
    assert not list(tmp_path.iterdir())


def test_the_shell_refuses_them_before_it_reads(table):
    result = CliRunner().invoke(app, ["fit", "none.csv", "--target", "y", "--draws", str(10**15)])
    assert result.exit_code == 2
    assert "draws must be such that the draws fit onto the disk" in result.stderr
    assert [path.name for path in table.iterdir()] == ["rows.csv"]


def test_a_partial_that_is_there_already_is_not_written_into(tmp_path, monkeypatch):
    """A link by the name that the next file in the making would have."""
    (tmp_path / "mine").write_text("mine")
    monkeypatch.setattr(storage, "_partial_numbers", iter([7, 8]))
    (tmp_path / f"a.{os.getpid()}.7.part").symlink_to(tmp_path / "mine")
    storage.write_text(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"
    assert (tmp_path / "mine").read_text() == "mine"


def test_partials_of_others_stay(tmp_path):
    names = ("a.backup.part", "a.1.part", "a.1.2.mine.part")
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / "a.12.3.part").write_text("half")
    storage.remove_partials(tmp_path / "a")
    assert {path.name for path in tmp_path.iterdir()} == set(names)


def test_a_folder_with_a_partial_of_the_user_is_no_checkpoint(tmp_path):
    (tmp_path / "film.part").write_text("mine")
    with pytest.raises(CheckpointError, match=r"is not a checkpoint: it has film\.part"):
        svrhmc.hmc(0.1).run(targets.synthetic(5, 2), 10, checkpoint=tmp_path)
    assert (tmp_path / "film.part").read_text() == "mine"


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    with pytest.raises(svrhmc.core.errors.StorageError, match="names and texts must take at most"):
        storage.write_record(tmp_path / "a", {"names": "x" * (1 << 25)})
    assert not list(tmp_path.iterdir())
