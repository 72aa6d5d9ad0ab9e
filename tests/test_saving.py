"""Files of traces and posteriors: whole or not there, read with care, and readable by the next version."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import svrhmc
from simulated_data import events
from svrhmc import Posterior, PosteriorFileError, Trace, TraceFileError, targets
from svrhmc.core import storage
from svrhmc.core.storage import read_record, write_record

STORED = Path(__file__).parent / "stored"
OLD = json.loads((STORED / "traces-0.1.0.json").read_text())


def same(one, other):
    """Whether two results are equal in every field that a file keeps."""
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one) if field.metadata.get("saved", True)]
        return type(one) is type(other) and all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
    return type(one) is type(other) and one == other


@pytest.fixture(scope="module")
def trace():
    return svrhmc.svr_hmc(0.2, batch_size=5).run(targets.synthetic(20, 3), 40, chains=4, seed=12)


@pytest.fixture(scope="module")
def posteriors():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = events(rng, X @ [1.0, -1.0, 0.5])
    model = targets.logistic(X, y)
    return {
        "closed form": svrhmc.sample(targets.linear(X, X[:, 0] + np.cos(np.arange(len(X)))), draws=100),
        "exact": svrhmc.sample(model, draws=200),
        "biased": svrhmc.sample(model, draws=200, method="anchored", tolerance=0.2),
        "unjudged": svrhmc.sample(model, draws=200, method=svrhmc.hmc(0.1), certificate=False),
    }


@pytest.mark.parametrize("name", ["closed form", "exact", "biased", "unjudged"])
def test_all_of_a_posterior_survives(posteriors, name, tmp_path):
    posterior = posteriors[name]
    posterior.save(tmp_path / "a.posterior")
    again = Posterior.load(tmp_path / "a.posterior")
    assert same(posterior, again)
    assert str(again.summary().to_frame()) == str(posterior.summary().to_frame())
    assert str(again.certificate) == str(posterior.certificate)
    assert repr(again.trace) == repr(posterior.trace)
    assert again.trace.seed == posterior.trace.seed
    assert [e.tolist() for e in again.errors] == [e.tolist() for e in posterior.errors]


def test_a_file_of_another_kind_says_what_it_is(trace, posteriors, tmp_path):
    trace.save(tmp_path / "t")
    posteriors["exact"].save(tmp_path / "p")
    with pytest.raises(
        PosteriorFileError, match=r"is not a svrhmc posterior: it is a trace, and not read by Posterior\.load"
    ):
        Posterior.load(tmp_path / "t")
    with pytest.raises(TraceFileError, match="is not a svrhmc trace: it is a posterior"):
        Trace.load(tmp_path / "p")
    (tmp_path / "x").write_text("no")
    with pytest.raises(PosteriorFileError, match="x is not a svrhmc posterior"):
        Posterior.load(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        Posterior.load(tmp_path / "none")


def test_a_file_of_a_later_version_says_who_wrote_it(trace, tmp_path):
    trace.save(tmp_path / "t")
    record = read_record(tmp_path / "t")
    write_record(tmp_path / "t", {**record.settings, "version": 9, "written_by": "7.0"}, record.arrays)
    with pytest.raises(
        TraceFileError, match=r"a trace of version 9, written by svrhmc 7\.0; this svrhmc .* reads versions up to 3"
    ):
        Trace.load(tmp_path / "t")


@pytest.mark.parametrize("name", OLD)
def test_traces_saved_by_0_1_0_are_read(name, tmp_path):
    loaded = Trace.load(STORED / f"{name}-0.1.0.trace")
    assert loaded.draws.tolist() == OLD[name]["draws"]
    assert loaded.passes.tolist() == OLD[name]["passes"]
    assert (None if loaded.acceptance is None else loaded.acceptance.tolist()) == OLD[name]["acceptance"]
    shown = repr(loaded).replace(", temperature=1.0", "").replace(", halvings=0", "")  # which 0.1.0 did not have
    assert shown.split("seed")[1].split("gradient")[0] == OLD[name]["repr"].split("seed")[1].split("gradient")[0]
    loaded.save(tmp_path / "again")
    assert same(Trace.load(tmp_path / "again"), loaded)


def altered(content, rng):
    """Some bytes of a file changed, cut out, doubled or added."""
    content, kind = bytearray(content), rng.integers(5)
    begin = int(rng.integers(len(content)))
    length = int(rng.integers(1, 64))
    if kind == 0:
        content[begin] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        content[begin : begin + length] = rng.bytes(len(content[begin : begin + length]))
    elif kind == 2:
        del content[begin : begin + length]
    elif kind == 3:
        content[begin:begin] = content[begin : begin + length]
    else:
        content = content[:begin]
    return bytes(content)


ODD = [
    None,
    True,
    -1,
    1.5,
    math.nan,
    math.inf,
    "",
    "x",
    "a\x00b",
    [],
    {},
    [1],
    {"type": "__init__"},
    {"type": "Full"},
    10**400,
    -(10**30),
]
ODD_SAMPLERS = [
    {"exact": {"type": "__init__", "self": 1}}, {"type": "Sampler"}, {"type": ["Sampler"]}, {"type": "Underdamped", "step_size": 0.1},
    {"type": "Sampler", "dynamics": {"type": "Full"}, "gradient": {"type": "Full"}}, {"type": "os.system"}, {"type": "SplitHMC", "__class__": 1},
    {"type": "SplitHMC", "leapfrogs": -1}, {"type": "SplitHMC", "leapfrogs": "2"}, {"type": "SplitHMC", "step_size": [1]}, {"type": "SVRG"},
]  # fmt: skip


def places(said, before=()):
    """Every place of what a file says."""
    for name, value in said.items():
        yield (*before, name)
        if isinstance(value, dict):
            yield from places(value, (*before, name))


def with_value(said, place, value):
    if not place:
        return value
    return {**said, place[0]: with_value(said.get(place[0], {}), place[1:], value)}


def odd_files(record, name):
    """What no svrhmc writes, with a checksum that fits; and what each must not be read as."""
    for place in places(record.settings):
        for value in ODD:
            yield with_value(record.settings, place, value), record.arrays
        inner = record.settings
        for step in place[:-1]:
            inner = inner[step]
        yield (
            with_value(record.settings, place[:-1], {key: each for key, each in inner.items() if key != place[-1]}),
            record.arrays,
        )
    for sampler in ODD_SAMPLERS:
        yield with_value(record.settings, (name, "sampler"), sampler), record.arrays
    for key, array in record.arrays.items():
        for other in (array[:0], array[..., None], array[..., :-1], array.astype(np.float32), -array - 1, np.zeros(0)):
            yield record.settings, {**record.arrays, key: other}
        if array.dtype == np.float64:
            yield record.settings, {**record.arrays, key: array.astype(np.int64)}
            yield record.settings, {**record.arrays, key: np.full_like(array, np.nan)}
        yield record.settings, {each: a for each, a in record.arrays.items() if each != key}


def opened(kind, path):
    """What is read, and None; or None, and why not."""
    error = {Trace: TraceFileError, Posterior: PosteriorFileError}[kind]
    try:
        loaded = kind.load(path)
    except error as told:
        return None, str(told)
    loaded.require_sound()
    assert repr(loaded)
    assert str(loaded)
    return loaded, None


def test_a_thousand_altered_files_are_refused_or_equal(trace, posteriors, tmp_path):
    rng = np.random.default_rng(0)
    trace.save(tmp_path / "t")
    posteriors["biased"].save(tmp_path / "p")
    originals = [
        (Trace, tmp_path / "t", 600),
        (Posterior, tmp_path / "p", 400),
        (Trace, STORED / "grid-0.1.0.trace", 200),
        (Trace, STORED / "exact-0.1.0.trace", 200),
    ]
    path, refused = tmp_path / "altered", 0
    for kind, original, count in originals:
        content, whole = original.read_bytes(), kind.load(original)
        for _ in range(count):
            path.write_bytes(altered(content, rng))
            found, told = opened(kind, path)
            assert told is None or (str(path) in told and len(told) < 500)
            assert found is None or same(found, whole)
            refused += found is None
    assert refused > 1200


@pytest.mark.parametrize("kind", [Trace, Posterior])
def test_files_with_a_checksum_that_fits_are_looked_at_field_by_field(kind, trace, posteriors, tmp_path):
    name = kind.__name__.lower()
    {Trace: trace, Posterior: posteriors["biased"]}[kind].save(tmp_path / "whole")
    record, refused, read = read_record(tmp_path / "whole"), 0, 0
    for said, arrays in odd_files(record, name):
        write_record(tmp_path / "odd", said, arrays)
        found, told = opened(kind, tmp_path / "odd")
        assert told is None or (str(tmp_path / "odd") in told and len(told) < 1200)
        refused, read = refused + (found is None), read + (found is not None)
    assert refused > 5 * read


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"seed": 2**64}, "seed must be a whole number from 0"),
        ({"engine": "a b\n"}, "engine must be the name of an engine"),
        ({"engine": 3}, "engine must be a text"),
        ({"seconds": math.nan}, "seconds must be a number not below 0"),
        ({"seconds": "1"}, "seconds must be a number"),
        ({"gradient_evaluations": 1.5}, "gradient_evaluations must be a whole number"),
        ({"sampler": {"type": "__init__"}}, "a part must be of a declared type; got '__init__'"),
        ({"sampler": {"type": "Full"}}, "sampler must be a sampler"),
    ],
)
def test_every_field_is_looked_at(trace, tmp_path, change, message):
    trace.save(tmp_path / "t")
    record = read_record(tmp_path / "t")
    write_record(
        tmp_path / "t", with_value(record.settings, ("trace",), record.settings["trace"] | change), record.arrays
    )
    with pytest.raises(TraceFileError, match=message):
        Trace.load(tmp_path / "t")
    with np.load(STORED / "exact-0.1.0.trace") as file:
        old = dict(file)
    settings = json.loads(str(old["settings"][()])) | change
    if "sampler" in change:
        settings["sampler"] = {"exact": change["sampler"]}
    with (tmp_path / "old").open("wb") as file:
        np.savez(file, **{**old, "settings": np.array(json.dumps(settings))})
    with pytest.raises(TraceFileError, match="is not a svrhmc trace"):
        Trace.load(tmp_path / "old")


def test_a_trace_of_no_draws_is_neither_saved_nor_loaded(trace, tmp_path):
    none = dataclasses.replace(trace, draws=trace.draws[:, :0], passes=trace.passes[:0])
    with pytest.raises(ValueError, match=r"draws must be an array \(chain, draw, dim\) of at least one each"):
        none.save(tmp_path / "t")
    assert not (tmp_path / "t").exists()
    with np.load(STORED / "grid-0.1.0.trace") as file:
        old = dict(file)
    with (tmp_path / "t").open("wb") as file:
        np.savez(file, **{**old, "draws": old["draws"][:, :0], "passes": old["passes"][:0]})
    with pytest.raises(TraceFileError, match="of at least one each"):
        Trace.load(tmp_path / "t")


MEASURED = """
import resource, sys, tracemalloc
import svrhmc
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tracemalloc.start()
try:
    svrhmc.Trace.load(sys.argv[1])
except svrhmc.TraceFileError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, tracemalloc.get_traced_memory()[1] / 2**20)
"""


def bomb(path, size):
    """An archive of zeros, thousand times as large as it looks."""
    with np.load(STORED / "grid-0.1.0.trace") as file:
        old = dict(file)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in old.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                if name != "draws":
                    np.lib.format.write_array(member, array)
                    continue
                kept = size // 8 // 2 // 3
                np.lib.format.write_array_header_1_0(
                    member, {"descr": "<f8", "fortran_order": False, "shape": (2, kept, 3)}
                )
                left = 2 * kept * 3 * 8
                while left > 0:
                    left -= member.write(bytes(min(left, 1 << 22)))


@pytest.mark.parametrize("size", [400_000_000, pytest.param(3_200_000_000, marks=pytest.mark.slow)])
def test_a_bomb_takes_no_memory(tmp_path, size):
    bomb(tmp_path / "bomb", size)
    assert (tmp_path / "bomb").stat().st_size < size / 800
    result = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path / "bomb")], capture_output=True, text=True, check=True
    )
    told, used = result.stdout.splitlines()
    assert f"would take {size:,}"[:13] in told
    assert max(map(float, used.split())) < 100
    header = json.dumps(
        {"said": {"format": "svrhmc-trace", "version": 3}, "arrays": [["draws", "<f8", [4, 10**8, 1]]]}
    ).encode()
    (tmp_path / "bomb").write_bytes(b"svrhmc\n" + len(header).to_bytes(8, "little") + header + bytes(3_000_000))
    result = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path / "bomb")], capture_output=True, text=True, check=True
    )
    told, used = result.stdout.splitlines()
    assert "it is not as long as its arrays" in told
    assert max(map(float, used.split())) < 100


SAVES = """
import sys
import svrhmc
trace = svrhmc.hmc(0.2).run(svrhmc.targets.synthetic(5, 50), 3000, chains=8, progress=False)
trace.save(sys.argv[1])
print("saved", flush=True)
while True:
    trace.save(sys.argv[1])
"""


@pytest.mark.slow  # test_fault_caches.py kills a process that saves traces and posteriors
def test_a_kill_while_a_trace_is_saved_leaves_a_whole_file(tmp_path):
    path, rng = tmp_path / "run.trace", np.random.default_rng(0)
    for _ in range(4):
        child = subprocess.Popen([sys.executable, "-c", SAVES, str(path)], stdout=subprocess.PIPE)
        child.stdout.readline()
        time.sleep(rng.uniform(0, 0.1))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert Trace.load(path).draws.shape == (8, 3000, 50)


def test_an_old_file_stays_where_the_new_one_cannot_be_written(trace, tmp_path, monkeypatch):
    path = tmp_path / "run.trace"
    trace.save(path)
    before = path.read_bytes()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: '.*run\.trace'"):
            trace.save(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["run.trace"]
    with pytest.raises(OSError, match=r"'.*none/run\.trace'"):
        trace.save(tmp_path / "none" / "run.trace")
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        trace.save(tmp_path)


def test_a_link_stays_a_link_and_what_was_abandoned_goes(trace, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    left = tmp_path / "link.1.0.part"
    left.write_text("of a kill")
    os.utime(left, (0, 0))
    trace.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert same(Trace.load(tmp_path / "real"), trace)
    assert not left.exists()


def test_draws_that_are_mapped_are_saved_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_PIECE", 100)
    target = targets.synthetic(10, 3)
    kept = svrhmc.hmc(0.2).run(target, 60, chains=2, checkpoint=tmp_path / "c")
    kept.save(tmp_path / "t")
    assert (Trace.load(tmp_path / "t").draws == svrhmc.hmc(0.2).run(target, 60, chains=2).draws).all()
    assert (
        svrhmc.sample(target, draws=20, checkpoint=tmp_path / "s").trace.draws == Trace.load(tmp_path / "s").draws
    ).all()


def test_parts_of_files_are_those_of_the_list():
    from svrhmc.core.serialise import from_settings

    with pytest.raises(ValueError, match="a part Full must be made of nothing; got 'x'"):
        from_settings({"type": "Full", "x": 1})
    with pytest.raises(ValueError, match="a part must be a type with its settings"):
        from_settings([1])


def test_the_former_place_of_a_public_name_still_works():
    from svrhmc.core import parts, serialise

    with pytest.warns(DeprecationWarning, match=r"use svrhmc\.core\.serialise\.part"):
        assert parts.part is serialise.part
    with pytest.raises(AttributeError, match="has no attribute 'described'"):
        _ = parts.described
