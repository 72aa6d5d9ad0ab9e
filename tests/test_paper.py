"""The paper's experiments, end to end in their quick version; data files; what an interrupt leaves."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import svrhmc
from simulated_data import folder_like_the_real_one
from svrhmc.checkpoint import Checkpoint, InMemory
from svrhmc.core.errors import CheckpointInUseError
from svrhmc.paper import blocks, experiments, journal, regression, run, synthetic
from svrhmc.paper.journal import Pieces, open_journal, resumable
from svrhmc.paper.settings import load_settings
from svrhmc.shell.app import app
from svrhmc.tables.files import from_libsvm


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_like_the_real_one(tmp_path_factory.mktemp("data"))


@pytest.fixture
def unchecked(monkeypatch, tmp_path):
    """The simulated files have not the published hashes."""
    monkeypatch.setenv("SVRHMC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SVRHMC_UNCHECKED", "1")


def test_everything_runs_end_to_end_and_an_interrupted_run_ends_the_same(folder, unchecked, tmp_path):
    said = []
    whole = run.reproduce(run.PARTS, tmp_path / "whole", folder, quick=True, seeds=2, jobs=1, say=said.append)
    assert whole.missing == ()
    names = {"report.md", "report.html", "figure1_common.svg", "figure1_own.svg", "figure2.svg", "figure3.svg"}
    names |= {"figure1.csv", "figure2.csv", "figure3.csv", "table1.csv", "table3.csv"}
    assert names <= {path.name for path in (tmp_path / "whole").iterdir()}
    report = whole.report.read_text()
    for word in (
        "The paper's claims",
        "Figure 1",
        "Table 3",
        "Table 1",
        "holds",
        "seed by seed",
        "Versions",
        "A quick run",
        "in the end",
    ):
        assert word in report
    page = (tmp_path / "whole" / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 4
    assert "http" not in page.replace("http://www.w3.org", "")  # nothing is fetched

    class StopError(Exception):
        pass

    def stop_after_eight(line):
        if line.startswith("[8/"):
            raise StopError

    with pytest.raises(StopError):
        run.reproduce(run.PARTS, tmp_path / "two", folder, quick=True, seeds=2, jobs=1, say=stop_after_eight)
    assert not (tmp_path / "two" / "report.md").exists()
    done, todo = ({path.name for path in (tmp_path / which / "work").glob("*.json")} for which in ("two", "whole"))
    assert (len(done), len(todo)) == (8, len(said))
    left = sorted(todo - done)[::8]
    for name in todo - done - set(left):  # most of what is left, to be brief
        shutil.copy(tmp_path / "whole" / "work" / name, tmp_path / "two" / "work")
    again = []
    run.reproduce(run.PARTS, tmp_path / "two", folder, quick=True, seeds=2, jobs=1, say=again.append)
    assert again[0] == f"{len(said) - len(left)} of {len(said)} tasks are already there"
    assert len(again) == len(left) + 1
    for name in names:
        first, second = ((tmp_path / which / name).read_text() for which in ("whole", "two"))
        assert first == second, name


def test_other_settings_are_run_anew(tmp_path):
    store = run.Store(tmp_path)
    task = run.Task("a", print, ({"chains": 1}, tmp_path))
    store.put(task, {"x": 1})
    assert store.get(task) == {"x": 1}
    assert store.get(run.Task("a", print, ({"chains": 1}, tmp_path / "elsewhere"))) == {"x": 1}
    assert store.get(run.Task("a", print, ({"chains": 2}, tmp_path))) is None
    named = json.loads((tmp_path / "a.json").read_text())["settings"]
    damaged = (
        "{",
        "{}",
        "[]",
        "null",
        '{"result": {}}',
        f'{{"settings": "{named}"}}',
        f'{{"settings": "{named}", "result": 1}}',
        f'{{"settings": "{named}", "result": {{}}}}',
    )
    for text in damaged:  # such as one cut short by a crash of the machine
        (tmp_path / "a.json").write_text(text)
        assert store.get(task) is None
    (tmp_path / "a.json").write_bytes(b"\xff\xfe{")
    assert store.get(task) is None


@pytest.mark.slow
def test_processes_give_what_one_process_gives(tmp_path):
    results = [
        run.reproduce(("figure1",), tmp_path / str(jobs), quick=True, jobs=jobs, say=lambda line: None).report
        for jobs in (1, 2)
    ]
    for name in ("report.md", "report.html", "figure1.csv", "figure1_common.svg"):
        assert (results[0].parent / name).read_text() == (results[1].parent / name).read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["figure9"], "PART must be one of 'figure1'"), (["all", "--data", "nowhere"], "--data must be a folder")],
)
def test_what_reproduce_refuses(arguments, message):
    result = CliRunner().invoke(app, ["reproduce", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "+1 1:2 x",
            "line 2, must be a label and index:value pairs of finite numbers with increasing indices from 1 to 8; got",
        ),
        ("+1 3:2 1:4", "line 2"),
        ("+1 0:2", "line 2"),
        ("+1 9:2", "line 2"),
        ("one 1:2", "line 2"),
        ("+1 1:nan", "line 2"),
    ],
)
def test_a_bad_line_is_an_error_with_its_number(line, message):
    with pytest.raises(ValueError, match=message):
        from_libsvm("pima", ["-1 1:3", line], 8)


def test_the_settings_are_one_file_and_quick_changes_only_what_it_says():
    full, quick = load_settings(), load_settings(quick=True, seeds=7)
    assert full["figure1"]["chains"] == 20_000
    assert quick["figure2"]["seeds"] == quick["figure3"]["seeds"] == 7
    assert quick["figure2"]["burn_in"] == full["figure2"]["burn_in"] == 50
    assert run.fingerprint(full) != run.fingerprint(quick)
    assert run.fingerprint(full) == run.fingerprint(json.loads(json.dumps(full)))
    assert "quick" not in full


@pytest.mark.untraced
def test_the_expected_plug_in_is_that_of_samples():
    """Mean and deviation by Bartlett's factor, against real samples; and not those of another size (control)."""
    target = svrhmc.targets.synthetic(20, 3)
    law = svrhmc.theory.law(svrhmc.hmc(0.2), target, 400)
    rng = np.random.default_rng(0)
    mean, deviation = synthetic.expected_plug_in(law.position, target.closed_form, 200, 4000, rng)
    x, pi = law.position, target.closed_form
    seen = [
        svrhmc.distances.plug_in_w2(rng.multivariate_normal(x.mean, x.covariance, 200), pi.mean, pi.covariance).value
        for _ in range(1500)
    ]
    error = deviation / np.sqrt(len(seen))
    assert abs(np.mean(seen) - mean) < 4.5 * error * np.sqrt(1 + 1500 / 4000)
    assert np.std(seen) == pytest.approx(deviation, rel=0.1)
    other, _ = synthetic.expected_plug_in(law.position, pi, 800, 4000, rng)
    assert abs(np.mean(seen) - other) > 9 * error


@pytest.mark.slow
def test_the_envelope_is_the_least_over_all_steps_and_flags_edges():
    """Against every step looked at alone; the fewest passes to a level likewise."""
    settings = {**load_settings(quick=True)["figure1"], "largest_step": 0.9, "smallest_step": 0.009, "per_decade": 2}
    settings |= {"chains": 20, "simulations": 2, "line": 12, "passes": 60}
    target = svrhmc.targets.synthetic(50, 10, seed=settings["seed"])
    for method in ("hmc", "sg-hmc", "svr-hmc"):
        found = synthetic.panel(settings, 0.0, 10, 50, method, 1)
        samplers = {eta: synthetic._sampler(settings, method, eta) for eta in synthetic.step_sizes(settings)}
        assert list(samplers) == [0.9, 0.2846, 0.09, 0.02846, 0.009]
        for point in found["envelope"][::4]:
            w2 = {}
            for eta, sampler in samplers.items():
                steps = sampler.steps_for(target, point["passes"])
                w2[eta] = svrhmc.theory.law(sampler, target, steps).w2
            assert point["w2"] == pytest.approx(min(w2.values()), rel=1e-8)
            assert point["edge"] == (min(w2, key=w2.get) in (0.9, 0.009))
        for level in settings["thresholds"]:
            reached = {}
            for eta, sampler in samplers.items():
                walk = enumerate(svrhmc.theory.laws(sampler, target, sampler.steps_for(target, 60)))
                reached[eta] = next((step for step, law in walk if step and law.w2 <= level), np.inf)
            best = found["reach"][str(level)] or {}
            for count, choice in best.items():
                assert reached[choice["step_size"]] == choice["steps"]
                spent = {eta: synthetic._passes(samplers[eta], target, int(steps))[count]
                         for eta, steps in reached.items() if steps < np.inf}  # fmt: skip
                assert choice[count] == min(spent.values())
            assert bool(best) == (min(reached.values()) < np.inf)


def test_tuning_never_sees_the_test_rows_of_its_run(folder, unchecked, monkeypatch):
    settings = {**load_settings(quick=True)["figure2"], "seeds": 3}
    seen, real = [], regression.Work.path

    def path(work, choice, target, split, seed):
        seen.append((seed, {row.tobytes() for row in split.X}, {row.tobytes() for row in split.X_test}))
        return real(work, choice, target, split, seed)

    monkeypatch.setattr(regression.Work, "path", path)
    regression.experiment(settings, "pima", "svr-hmc", folder, 1)
    assert not any(rows & judged for _, rows, judged in seen)
    used = [rows | judged for seed, rows, judged in seen if seed >= settings["first_fold"]]
    reported = {seed: rows for seed, rows, _ in seen if seed < settings["first_fold"]}
    assert len(reported) == 3
    assert all(any(rows == one for rows in reported.values()) for one in used)  # training rows alone, all of them
    assert all(any(rows == one for one in used) for rows in reported.values())  # each split was tuned for


def test_every_paragraph_of_the_report_is_used():
    code = "".join(path.read_text() for path in Path(run.__file__).parent.glob("*.py"))
    used = set(re.findall(r'\btext\(\s*"(\w+)"', code)) | {
        "figure2",
        "figure3",
    }  # these two by the key of their section
    assert used == set(blocks._TEXTS)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("figure", ["figure2", "figure3"])
def test_all_samplers_have_grids_of_one_size(figure, quick):
    settings = load_settings(quick)[figure]
    assert len({len(regression.grid(settings, method)) for method in settings["samplers"]}) == 1


def test_the_first_fold_only_drops_what_is_worse(monkeypatch):
    """A setting that is best on all parts is found unless four fifths of the grid do better on the first."""
    settings = {**load_settings()["figure2"], "folds": 3}
    losses = {step: [abs(np.log(step / 0.1)), abs(np.log(step / 0.2)), abs(np.log(step / 0.2))]
              for step in regression.grid_axes(settings, "sgld")["step"]}  # fmt: skip

    def path(work, choice, target, split, seed):
        return {"loss": [losses[choice["step"]][seed - settings["first_fold"]] + choice["batch_size"]]}

    monkeypatch.setattr(regression.Work, "path", path)
    rng = np.random.default_rng(0)
    split = regression.Split(rng.normal(size=(40, 2)), rng.choice([-1.0, 1.0], 40), None, None, True)
    work = regression.Work(settings, "sgld", 1, Pieces(InMemory()))
    best = min(losses, key=lambda step: sum(losses[step]))
    assert work.tuned(split, 0) == {"batch_size": 1, "step": best}
    assert best != min(losses, key=lambda step: losses[step][0])  # the first part alone would choose another


def test_a_step_beyond_what_the_scheme_allows_is_out(folder, unchecked):
    settings = {**load_settings(quick=True)["figure2"], "seeds": 1, "step_factors": [1.0, 20.0]}
    settings["underdamped_steps"] = {"largest": 0.2, "smallest": 0.1, "count": 2}
    found = regression.experiment(settings, "pima", "svr-hmc", folder, 1)
    assert found["epochs"]["choices"][0]["step"] < 1


@pytest.mark.untraced
def test_settings_at_an_edge_are_flagged(folder, unchecked, tmp_path):
    run.reproduce(("figure2",), tmp_path, folder, quick=True, seeds=2, jobs=1, say=lambda line: None)
    path = tmp_path / "work" / "figure2-pima-sgld.json"
    saved = json.loads(path.read_text())
    reports = []
    for step in (1.0, 0.4642):  # the largest of the grid, and one inside
        saved["result"]["choices"] = [{"batch_size": 10, "step": step}] * 2
        path.write_text(json.dumps(saved))
        done = run.reproduce(("figure2",), tmp_path, folder, quick=True, seeds=2, jobs=1, say=lambda line: None)
        line = next(line for line in done.report.read_text().splitlines() if line.startswith("| pima | SGLD"))
        reports.append(line)
    assert "2 of 2 at the grid's edge (batch size, step)" in reports[0]
    assert "2 of 2 at the grid's edge (batch size)" in reports[1]


@pytest.mark.slow
def test_a_reported_run_that_diverges_is_left_out_and_said(folder, unchecked, tmp_path):
    run.reproduce(("figure2", "table3"), tmp_path, folder, quick=True, seeds=3, jobs=1, say=lambda line: None)
    path = tmp_path / "work" / "figure2-pima-sgld.json"
    saved = json.loads(path.read_text())
    saved["result"]["runs"][1] = None
    path.write_text(json.dumps(saved))
    done = run.reproduce(("figure2", "table3"), tmp_path, folder, quick=True, seeds=3, jobs=1, say=lambda line: None)
    assert "1 diverged" in done.report.read_text()


@pytest.mark.parametrize(
    ("error", "said"), [(svrhmc.UnstableStepError, "a setting that does not diverge"), (ValueError, "another fault")]
)
def test_only_a_step_that_diverges_is_left_out(folder, unchecked, monkeypatch, error, said):
    def fail(*arguments, **options):
        raise error("another fault")

    monkeypatch.setattr(svrhmc.Sampler, "run", fail)
    with pytest.raises(ValueError, match=said):
        regression.experiment(load_settings(quick=True, seeds=1)["figure2"], "pima", "sgld", folder, 1)


def test_paragraphs_of_the_page():
    assert blocks.inline("a **b** *c* `d` <e>") == "a <strong>b</strong> <em>c</em> <code>d</code> &lt;e&gt;"


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path):
    """Killed for real, by a signal, with two processes at work."""
    whole = run.reproduce(("figure1",), tmp_path / "whole", quick=True, jobs=1, say=lambda line: None).report.parent
    command = [
        sys.executable,
        "-m",
        "svrhmc",
        "reproduce",
        "figure1",
        "--quick",
        "--jobs",
        "2",
        "--out",
        str(tmp_path / "two"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("[3/"):
                break
        process.kill()
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "of 12 tasks are already there" in done
    for name in ("report.md", "report.html", "figure1.csv", "figure1_common.svg", "figure1_own.svg"):
        assert (whole / name).read_text() == (tmp_path / "two" / name).read_text()


def written(out):
    """All that a run wrote, by name, without the seconds it took."""
    found = {}
    for path in (path for path in Path(out).rglob("*") if path.name != "runtime.txt" and not path.is_dir()):
        content = path.read_bytes()
        if path.suffix == ".json":
            saved = json.loads(content)
            assert saved["result"].pop("seconds") > 0
            content = json.dumps(saved).encode()
        found[str(path.relative_to(out))] = content
    return found


class Killed:
    """Runs of `killed_run.py` that are killed, and how many were, and how many left a task half done."""

    def __init__(self, folder, seed):
        self.folder, self.random, self.kills, self.half_done = folder, random.Random(seed), 0, 0

    def __call__(self, part, out, jobs, kills, longest, alone=False):
        """Start it again until it has ended, with up to so many kills within so many seconds of its beginning."""
        script = Path(__file__).with_name("killed_run.py")
        command = [sys.executable, str(script), part, str(out), str(self.folder), str(jobs)]
        for life in range(kills + 1):
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            ) as made:
                assert made.stdout.readline() == b"begun\n", made.stderr.read()
                try:
                    made.wait(self.random.uniform(0, longest) if life < kills else 600)
                except subprocess.TimeoutExpired:
                    if alone:  # its workers are left for a second, and the next life has to wait for them
                        made.kill()
                    else:
                        os.killpg(made.pid, signal.SIGKILL)
                    made.wait()
                    self.kills += 1
                    self.half_done += any((out / "work").glob("*.progress/pieces"))
                else:
                    assert made.returncode == 0, made.stderr.read()
                    return


@pytest.mark.slow
def test_a_run_killed_at_any_moment_writes_the_same_files(folder, tmp_path):
    killed = Killed(folder, seed=1)
    killed("figure1", tmp_path / "killed", jobs=1, kills=5, longest=0.7)
    run.reproduce(("figure1",), tmp_path / "whole", quick=True, jobs=1, say=lambda line: None)
    assert killed.kills >= 2
    assert written(tmp_path / "killed") == written(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["figure1", "figure2"])
def test_a_run_killed_many_times_writes_the_same_files(folder, unchecked, tmp_path, part):
    killed, rounds = Killed(folder, seed=2), 0
    began = time.monotonic()
    killed(part, tmp_path / "whole", jobs=1, kills=0, longest=0.0)
    longest = (time.monotonic() - began) / 2  # so that on any machine some kills come before, in and after the tasks
    whole = written(tmp_path / "whole")
    while killed.kills < 25:
        rounds += 1
        out, jobs = tmp_path / f"round {rounds}", 1 + rounds % 2
        killed(part, out, jobs, kills=10, longest=longest, alone=rounds % 4 < 2)
        assert written(out) == whole
    assert killed.half_done >= 3


TASKS = {
    "figure1": lambda s, f, j: synthetic.panel(s["figure1"], 0.5, 10, 50, "svr-hmc", 1, journal=j),
    "figure2": lambda s, f, j: regression.experiment(s["figure2"], "pima", "sg-hmc", f, 1, journal=j),
    "figure2, one split": lambda s, f, j: regression.experiment(s["figure2"], "a3a", "sgld", f, 1, journal=j),
    "figure2 reference": lambda s, f, j: regression.classification_reference(s["figure2"], "pima", f, 1, journal=j),
    "figure3": lambda s, f, j: regression.experiment(s["figure3"], "noise", "vr-sgld", f, 1, journal=j),
    "figure3 reference": lambda s, f, j: regression.regression_reference(s["figure3"], "noise", f, journal=j),
    "preparation": lambda s, f, j: experiments.preparation_experiment(s["experiment"], s["figure2"], "pima", f, journal=j),
    "steps": lambda s, f, j: experiments.steps_experiment(s["experiment"], s["figure2"], f, 1, journal=j),
    "passes": lambda s, f, j: experiments.longer_experiment(s["experiment"], s["figure2"], "pima", f, 1, journal=j),
    "table1": lambda s, f, j: regression.constants(s["figure2"], "pima", f, 0.1, journal=j),
}  # fmt: skip


@pytest.fixture
def work(monkeypatch):
    """Counts what takes time in the experiments."""
    count = [0]

    def counted(real):
        def made(*arguments, **options):
            count[0] += 1
            return real(*arguments, **options)

        return made

    places = [
        (svrhmc.Sampler, "run"),
        (synthetic, "expected_plug_in"),
        (synthetic, "law_of"),
        (svrhmc.theory.Problem, "of"),
    ]
    places += [
        (synthetic.Chain, "step"), (synthetic.Chain, "states_after"), (regression, "loss_of"), (regression, "error_of"),
        (experiments, "error_of"),
    ]  # fmt: skip
    for place, name in places:
        monkeypatch.setattr(place, name, counted(getattr(place, name)))
    return count


@pytest.mark.parametrize("name", TASKS)
def test_a_task_makes_no_piece_of_work_twice(folder, unchecked, work, tmp_path, name):
    settings = load_settings(quick=True)
    settings["figure2"]["preparation"]["a3a"] = {"scale": "none", "intercept": False}
    plain = TASKS[name](settings, folder, None)
    results = []
    for _ in range(2):
        with open_journal(tmp_path / "journal", {"task": name}) as journal:
            work[0] = 0
            results.append(TASKS[name](settings, folder, journal))
            assert (work[0] > 0) == (len(results) == 1)
    assert json.dumps(results[0]) == json.dumps(results[1]) == json.dumps(plain)
    assert not [path for path in (tmp_path / "journal").iterdir() if path.name.startswith("run ")]


@pytest.mark.parametrize("name", TASKS)
def test_a_task_that_ends_after_every_piece_gives_the_same(folder, unchecked, tmp_path, monkeypatch, name):
    settings = load_settings(quick=True)
    settings["figure2"]["preparation"]["a3a"] = {"scale": "none", "intercept": False}
    plain = TASKS[name](settings, folder, None)

    class StopError(Exception):
        pass

    real = Pieces.once

    def stop(self, name, make, *arguments):
        new = name not in self._done
        found = real(self, name, make, *arguments)
        if new:
            raise StopError
        return found

    monkeypatch.setattr(Pieces, "once", stop)
    lives, result = 0, None
    while result is None:
        lives += 1
        with open_journal(tmp_path / "journal", {"task": name}) as journal:
            try:
                result = TASKS[name](settings, folder, journal)
            except StopError:
                continue
    assert lives > 1
    assert json.dumps(result) == json.dumps(plain)


def test_an_interrupted_panel_goes_on_within_its_chains(tmp_path, monkeypatch, work):
    """Also its seconds: those of the life before count."""
    monkeypatch.setattr(svrhmc.checkpoint, "SECONDS", 0.0)
    settings = load_settings(quick=True)["figure1"]
    arguments = (settings, 0.5, 10, 50, "svr-hmc", 1)
    plain = synthetic.panel(*arguments)

    class StopError(Exception):
        pass

    def stop(done, total):
        if done > total / 2:
            raise StopError

    real = svrhmc.Sampler.run
    with monkeypatch.context() as patched:
        patched.setattr(svrhmc.Sampler, "run", lambda *a, **options: real(*a, **{**options, "progress": stop}))
        with open_journal(tmp_path / "j", {}) as kept, pytest.raises(StopError):
            synthetic.panel(*arguments, journal=kept)
    step = svrhmc.core.storage.read_record(tmp_path / "j" / "chains to 0.2" / "state").settings["step"]
    assert 0 < step < 200
    with open_journal(tmp_path / "j", {}) as kept:
        before = journal.seconds_spent(kept)
        assert before > 0
        assert synthetic.panel(*arguments, journal=kept) == plain
        assert journal.seconds_spent(kept) > before


@resumable
def some_work(amount, pieces):
    return {"amount": pieces.once("amount", lambda: amount)}


def test_only_the_journal_of_a_task_is_removed(tmp_path):
    task, mine = run.Task("a", some_work, (3,), threaded=False), tmp_path / "mine"
    place = run.Store(tmp_path).progress(task)
    mine.mkdir()
    (mine / "settings").write_bytes(b"mine")

    def a_file():
        place.write_text("mine")

    def a_link():
        place.symlink_to(mine)

    def a_folder():
        mine.rename(place)

    def a_link_within():
        run._perform(task, 1, place)
        (place / "settings").unlink()
        (place / "settings").symlink_to(mine / "settings")
        (place / "runs").symlink_to(mine)

    for put in (a_file, a_link, a_link_within, a_folder):
        put()
        with pytest.raises(svrhmc.CheckpointError, match=r"other files|is a file|is a link|cannot be"):
            run._perform(task, 1, place)
        kept = place if put is a_folder else mine
        assert (kept / "settings").read_bytes() == b"mine"
        assert put is not a_file or place.read_text() == "mine"
        if put is not a_folder:
            for entry in [*place.iterdir(), place] if put is a_link_within else [place]:
                entry.unlink() if entry.is_symlink() or entry.is_file() else entry.rmdir()


def test_the_journal_of_a_task_is_its_own(tmp_path):
    task, store = run.Task("a", some_work, (3,), threaded=False), run.Store(tmp_path)
    place = store.progress(task)
    result, seconds = run._perform(task, 1, place)
    assert result == {"amount": 3}
    settings = {"task": "a", "identity": run._identity(task)}
    with open_journal(place, settings) as kept:
        record = kept.get("pieces")
        assert record.settings["done"] == {"amount": 3}
        kept.put("pieces", {"done": {"amount": 4}, "seconds": 1000.0})
    result, seconds = run._perform(task, 1, place)
    assert result == {"amount": 4}  # what was made is not made again
    assert 1000 < seconds < 1100
    other = run.Task("a", some_work, (5,), threaded=False)
    assert run._perform(other, 1, place)[0] == {"amount": 5}  # other settings: from the beginning
    assert run._perform(task, 1, place)[0] == {"amount": 3}
    for damage in ("pieces", "settings"):
        (place / damage).write_bytes((place / damage).read_bytes()[:-1])
        assert run._perform(task, 1, place)[0] == {"amount": 3}
    for changed in ({"done": [], "seconds": 1.0}, {"done": {}, "seconds": "1"}, {"done": {}}):
        with open_journal(place, settings) as kept:
            kept.put("pieces", changed)
        assert run._perform(task, 1, place)[0] == {"amount": 3}
    (place / "settings").unlink()  # killed while it was removed
    assert run._perform(task, 1, place)[0] == {"amount": 3}
    journal.remove(place)
    assert not place.exists()
    run._perform(task, 1, place)
    (tmp_path / "a.json.77.1.part").write_text("{")
    store.put(task, {"amount": 3})
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_task_waits_for_a_process_that_is_ending(tmp_path, monkeypatch):
    held = Checkpoint(tmp_path / "j", {})
    monkeypatch.setattr(journal, "_PATIENCE", 0.1)
    with pytest.raises(CheckpointInUseError, match="is in use by another run"):
        open_journal(tmp_path / "j", {"other": 1})
    monkeypatch.setattr(journal, "_PATIENCE", 10.0)
    ending, began = threading.Timer(0.3, held.close), time.monotonic()
    ending.start()
    with open_journal(tmp_path / "j", {}):
        assert time.monotonic() - began > 0.2
    ending.join()
    (tmp_path / "no folder").write_text("")
    with pytest.raises(svrhmc.CheckpointError, match="cannot be written"):  # not a fault of what is in it
        open_journal(tmp_path / "no folder" / "j", {})
