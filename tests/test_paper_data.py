"""The paper's data sets: from folders of any layout, from a simulated publisher, and what every fault says."""

import bz2
import gzip
import hashlib
import lzma
import os
import resource
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import publisher
from publisher import LIBSVM, PAGE, STATIC, UCI, Cut, Publisher, Silent, as_published, bad_crc, tarred, zipped
from simulated_data import folder_like_the_real_one, whole_gisette
from svrhmc.core.errors import DataError, MissingDataError
from svrhmc.paper import data, datasets, download, run
from svrhmc.paper.download import ArchiveError, unpack
from svrhmc.shell.app import app
from svrhmc.tables.files import from_libsvm


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """All files under their published names, uncompressed, gisette whole and in part."""
    root = folder_like_the_real_one(tmp_path_factory.mktemp("plain"), plain=True)
    whole_gisette(root / "gisette")
    return root


@pytest.fixture(scope="module")
def published(plain):
    return as_published(plain)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    """A cache of its own, files without the published hashes, and no way out of this machine."""
    for name in ("SVRHMC_DATA", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SVRHMC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SVRHMC_UNCHECKED", "1")
    monkeypatch.setenv("SVRHMC_TIMEOUT", "2")
    monkeypatch.setenv("SVRHMC_MIRROR", "http://127.0.0.1:9")


@pytest.fixture
def server(monkeypatch):
    made = Publisher()
    with made.open() as address:
        monkeypatch.setenv("SVRHMC_MIRROR", address)
        yield made


def shell(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


def same(one, two):
    parts = [(one.X, two.X), (one.y, two.y)]
    if one.test is not None:
        parts += list(zip(one.test, two.test, strict=True))
    dense = [[part.toarray() if hasattr(part, "toarray") else part for part in pair] for pair in parts]
    return all(np.array_equal(a, b) for a, b in dense)


def kept():
    folder = download.cache_folder() / "downloads"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


# A whole run from a publisher.


def test_a_run_gets_all_it_can_and_says_what_it_could_not(server, published, tmp_path):
    """pima is there; noise only in UCI's zip, in a folder; mushroom is a page; parkinson is cut, and its zip broken."""
    server.files = {name: published[name] for name in (LIBSVM + "diabetes", STATIC + "291/airfoil+self+noise.zip")}
    updrs = UCI + "parkinsons/telemonitoring/parkinsons_updrs.data"
    zipped_updrs = STATIC + "189/parkinsons+telemonitoring.zip"
    server.files |= {
        LIBSVM + "mushrooms": PAGE,
        updrs: Cut(published[updrs]),
        zipped_updrs: bad_crc(zipped(**{"parkinsons_updrs.data": published[updrs]})),
    }
    first = shell("table1", "--quick", "--jobs", 1, "--out", tmp_path / "out")
    assert first.exit_code == 1
    lines = [line for line in first.output.splitlines() if line.startswith("missing: ")]
    assert len(lines) == 2
    (mushroom,) = [line for line in lines if "mushroom needs the file mushrooms/mushrooms" in line]
    assert "is a web page and not the data" in mushroom
    (parkinson,) = [line for line in lines if "parkinson needs the file parkinson/parkinsons_updrs.data" in line]
    assert "ended the connection" in parkinson
    assert "cannot be unpacked" in parkinson
    for line in lines:
        assert "try again later, or download it from https://" in line
        assert "--data DIR or SVRHMC_DATA" in line
    assert "mushroom: cannot be had, the rest goes on without it" in first.output
    assert {path.name for path in (tmp_path / "out" / "work").iterdir()} == {"table1-pima.json", "table1-noise.json"}
    for name in ("report.md", "report.html"):
        report = (tmp_path / "out" / name).read_text()
        assert "mushroom needs the file" in report
        assert "parkinson needs the file" in report
        assert "pima needs" not in report
    assert len(server.asked) == len(set(server.asked))  # nothing is asked for twice, whatever needs it
    server.files |= {LIBSVM + "mushrooms": published[LIBSVM + "mushrooms"], updrs: published[updrs]}
    server.asked.clear()
    second = shell("table1", "--quick", "--jobs", 1, "--out", tmp_path / "out")  # the control: all is there
    assert second.exit_code == 0, second.output
    assert "missing" not in second.output.lower()
    assert "2 of 4 tasks are already there" in second.output
    assert sorted(server.asked) == sorted([LIBSVM + "mushrooms", updrs])
    server.files.clear()
    shutil.rmtree(download.cache_folder())
    server.asked.clear()
    assert shell("table1", "--quick", "--jobs", 1, "--out", tmp_path / "out").exit_code == 0  # finished: none needed
    assert server.asked == []


def test_processes_find_what_was_fetched_once(server, published, tmp_path):
    server.files = dict(published)
    done = shell("table1", "--quick", "--jobs", 2, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert len(server.asked) == 5  # four data sets, and the first place of noise


@pytest.mark.slow
def test_without_data_the_synthetic_part_runs_and_each_set_is_named(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    done = shell("all", "--quick", "--jobs", 1, "--data", empty, "--out", tmp_path / "out")
    assert done.exit_code == 1
    for name in ("pima/diabetes", "mushrooms/mushrooms", "noise/airfoil_self_noise.dat"):
        assert f"needs the file {name} (or {name}.xz) in {empty}, and http://127.0.0.1:9/" in done.output
    assert "cannot be reached (Connection refused)" in done.output
    assert done.output.count("missing: ") == 4
    assert (tmp_path / "out" / "figure1_common.svg").exists()
    assert "Missing" in (tmp_path / "out" / "report.md").read_text()


def test_the_help_has_the_layout_and_the_exit_code():
    text = " ".join(shell("--help").output.split())
    for name in (source.name for dataset in data.DATASETS.values() for source in dataset.editions[0].sources):
        assert name in text
    assert "the exit code is 1" in text


def test_the_page_names_every_file_and_variable():
    page = (Path(__file__).parents[1] / "docs" / "data.md").read_text()
    editions = [edition for dataset in data.DATASETS.values() for edition in dataset.editions]
    for source in (source for edition in editions for source in edition.sources):
        assert source.path in page
        for url in source.urls:
            assert download.file_name(url) in page
    for name in ("CACHE", "DATA", "MIRROR", "TIMEOUT", "UNCHECKED"):
        assert f"SVRHMC_{name}" in page


# Every set, as published and from folders.


def test_every_set_is_read_from_what_its_publisher_ships(server, published, plain):
    server.files = dict(published)
    for name in data.DATASETS:
        edition, table = data.obtain(name)
        assert edition is data.DATASETS[name].editions[0]
        assert same(table, data.load(name, plain)), name
    asked = len(server.asked)
    assert server.asked.count(STATIC + "170/gisette.zip") == 1  # four files, one archive
    for name in data.DATASETS:
        data.load(name)
    assert len(server.asked) == asked  # all from the cache


def test_every_set_is_read_as_published(plain):
    shapes = {name: data.load(name, plain).X.shape for name in data.DATASETS}
    assert shapes["pima"] == (768, 8)
    assert shapes["mushroom"] == (8124, 112)
    assert shapes["parkinson"] == (1000, 21)
    assert shapes["geographical"] == (50, 69)
    assert shapes["casp"] == (50, 9)
    assert data.load("a3a", plain).test[0].shape == (200, 123)
    for name in ("pima", "a3a", "gisette", "mushroom"):
        assert set(data.load(name, plain).y) == {0.0, 1.0}


@pytest.mark.parametrize(
    "place",
    [
        "noise/airfoil_self_noise.dat",
        "noise/airfoil_self_noise.dat.xz",
        "noise/airfoil_self_noise.dat.gz",
        "airfoil_self_noise.dat.bz2",
        "NOISE/Airfoil_Self_Noise.DAT",
        "noise/unpacked/data/airfoil_self_noise.dat",
        "noise/airfoil+self+noise.zip",
        "airfoil+self+noise.zip",
    ],
)
def test_layouts_of_a_folder(place, published, plain, tmp_path):
    content = (plain / "noise" / "airfoil_self_noise.dat").read_bytes()
    pack = {".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}
    pack[".zip"] = lambda content: published[STATIC + "291/airfoil+self+noise.zip"]
    path = tmp_path / "data" / place
    path.parent.mkdir(parents=True)
    path.write_bytes(pack.get(path.suffix, bytes)(content))
    assert same(data.load("noise", tmp_path / "data"), data.load("noise", plain))
    path.rename(path.with_name("something else"))
    with pytest.raises(MissingDataError):  # the control
        data.load("noise", tmp_path / "data")


def test_a_file_elsewhere_in_the_folder_is_not_taken(plain, tmp_path):
    other = tmp_path / "other" / "airfoil_self_noise.dat"
    other.parent.mkdir()
    shutil.copy(plain / "noise" / "airfoil_self_noise.dat", other)
    with pytest.raises(MissingDataError):
        data.load("noise", tmp_path)


def test_what_the_folder_lacks_comes_from_the_publisher(server, published, plain, tmp_path):
    (tmp_path / "a3a").mkdir()
    shutil.copy(plain / "a3a" / "a3a", tmp_path / "a3a" / "a3a")
    server.files = dict(published)
    assert same(data.load("a3a", tmp_path), data.load("a3a", plain))
    assert server.asked == [LIBSVM + "a3a.t"]


# gisette, whole and in part.


def test_gisette_is_whole_where_its_files_are(plain, tmp_path):
    edition, table = data.obtain("gisette", plain)
    assert (edition.key, edition.partial) == ("whole", "")
    assert (table.X.shape, table.test[0].shape, table.X.dtype) == ((40, 5000), (10, 5000), np.float32)
    assert set(table.test[1]) == {0.0, 1.0}
    scaled = tmp_path / "scaled"
    scaled.mkdir()
    for name in ("gisette_scale", "gisette_scale.t"):
        (scaled / f"{name}.bz2").write_bytes(bz2.compress((plain / "gisette" / name).read_bytes()))
    edition, other = data.obtain("gisette", scaled)
    assert (edition.key, edition.partial) == ("scaled", "")
    np.testing.assert_allclose(other.X, 2 * table.X / 999 - 1, atol=1e-5)
    assert np.array_equal(other.test[1], table.test[1])
    part = tmp_path / "part" / "gisette"
    part.mkdir(parents=True)
    for name in ("gisette_train_first1000.data", "gisette_train.labels"):
        shutil.copy(plain / "gisette" / name, part / name)
    (part / "gisette_train.labels").write_text("1\n-1\n" * 15)
    edition, table = data.obtain("gisette", part.parent)
    assert "first 1000 of its 5000 columns" in edition.partial
    assert (table.X.shape, table.test) == ((30, 1000), None)


def test_gisette_in_part_is_said_and_its_results_are_not_those_of_the_whole(plain, tmp_path):
    said, done = [], []
    part = tmp_path / "part" / "gisette"
    part.mkdir(parents=True)
    shutil.copy(plain / "gisette" / "gisette_train_first1000.data", part)
    (part / "gisette_train.labels").write_text("1\n-1\n" * 15)
    supply = data.gather(["gisette", "pima"], part.parent, lambda *which: bool(done.append(which)), said.append)
    assert list(supply.editions) == ["gisette"]
    assert list(supply.missing) == ["pima"]
    assert list(supply.partial) == ["gisette"]
    assert "first 1000 of 5000" in supply.notes["gisette"]
    assert said[0].startswith("gisette: only the first 1000 of its 5000 columns")
    assert "gisette/gisette_valid.labels" in said[0]
    whole = data.gather(["gisette"], plain, lambda *which: False, said.append)
    assert (whole.partial, len(said)) == ({}, 2)
    task = run.Task("figure2 gisette sgld", print, (1,), dataset="gisette")
    store = run.Store(tmp_path / "work")
    store.put(replace(task, edition=supply.key("gisette")), {"x": 1})
    assert store.get(replace(task, edition=supply.key("gisette"))) == {"x": 1}
    assert store.get(replace(task, edition=whole.key("gisette"))) is None


def test_the_report_names_the_edition(plain, tmp_path, monkeypatch):
    real = run.load_settings

    def settings(quick, seeds):
        found = real(quick, seeds)
        found["figure2"]["datasets"] = ["gisette"]
        found["figure2"] |= {"batch_sizes": [1], "least_steps": 10, "reference_steps": 60}
        found["figure2"] |= {"samplers": ["sgld", "svr-hmc"]}
        found["figure2"]["overdamped_steps"] = {"largest": 0.1, "smallest": 0.1, "count": 1}
        return found

    monkeypatch.setattr(run, "load_settings", settings)
    done = run.reproduce(("figure2",), tmp_path, plain, quick=True, seeds=1, jobs=1, say=lambda line: None)
    assert (
        "gisette: 6000 rows and 1000 for test (the publisher's validation rows), 5000 columns"
        in done.report.read_text()
    )


def test_what_is_known_of_the_whole_is_checked():
    rows = [f"{k} " * 3 for k in range(6000)]
    texts = {"rows": "\n".join(rows), "labels": "", "judged": "", "judged labels": ""}
    table = datasets.Table(None, np.ones(6000), (None, np.ones(1000)))
    with pytest.raises(ValueError, match="rows must be the published file, with the sha256 b131a0001db8"):
        datasets._verify_whole(texts, table)
    with pytest.raises(ValueError, match="judged must be whole, with its 1000 rows; got 999 rows"):
        datasets._verify_whole(texts, replace(table, test=(None, np.ones(999))))
    with pytest.raises(ValueError, match="rows must be whole, with its 6000 rows; got 5999 rows"):
        datasets._verify_rows({"rows": "", "judged": ""}, replace(table, y=np.ones(5999)))


def test_the_hash_of_the_first_columns_is_taken_from_the_whole_rows(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 999, (6000, 1003))
    first = "".join(" ".join(map(str, row[:1000])) + " \n" for row in X.tolist())
    texts = {"rows": "".join(" ".join(map(str, row)) + " \n" for row in X.tolist()), "l": "", "t": "", "tl": ""}
    monkeypatch.setattr(datasets, "_GISETTE_FIRST", hashlib.sha256(first.encode()).hexdigest())
    table = datasets.Table(None, np.ones(6000), (None, np.ones(1000)))
    assert datasets._verify_whole(texts, table) is None
    with pytest.raises(ValueError, match="rows must be the published file"):
        datasets._verify_whole({**texts, "rows": "1" + texts["rows"]}, table)


# Faults of files.


def edited(plain, tmp_path, name, change):
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in (plain / name).parent.iterdir():
        shutil.copy(other, path.parent)
    path.write_bytes(change(path.read_bytes()))
    return path.parent.parent


@pytest.mark.parametrize(
    ("name", "file", "change", "message"),
    [
        ("noise", "noise/airfoil_self_noise.dat", lambda b: b"", r"noise: .*dat is empty: replace it by the one at https"),
        ("noise", "noise/airfoil_self_noise.dat", lambda b: PAGE, "dat is a web page and not the data: replace it"),
        ("noise", "noise/airfoil_self_noise.dat", lambda b: b + b"1\t2\n", r"dat, line 1504, must be 6 numbers; got 2: put"),
        ("noise", "noise/airfoil_self_noise.dat", lambda b: b"1\t2\t3\n", r"dat, line 1, must be 6 numbers; got 3"),
        ("noise", "noise/airfoil_self_noise.dat", lambda b: b"1\tx\t3\t4\t5\t6\n", "line 1, must be numbers"),
        ("noise", "noise/airfoil_self_noise.dat", lambda b: b"1\tnan\t3\t4\t5\t6\n", "line 1, must be finite numbers"),
        ("noise", "noise/airfoil_self_noise.dat", lambda b: b"\xff\xfe1", r"dat must be text; got the bytes .*: put the published file"),
        ("noise", "noise/airfoil_self_noise.dat", lambda b: b"\n\n", "must be at least one row of numbers"),
        ("pima", "pima/diabetes", lambda b: b.replace(b"+1", b"+3", 1), "label of pima/diabetes must be -1 or 1 everywhere; got 3"),
        ("pima", "pima/diabetes", lambda b: b"+1 9:1\n", "pima/diabetes, line 1, must be a label and index:value pairs"),
        ("mushroom", "mushrooms/mushrooms", lambda b: b"0 1:1\n", "must be 1 or 2 everywhere; got 0 in row 1"),
        ("gisette", "gisette/gisette_valid.labels", lambda b: b"1\n" * 9, r"gisette_valid.labels must be 10 labels, one for each"),
        ("gisette", "gisette/gisette_valid.labels", lambda b: b"7\n" * 10, "must be -1 or 1 everywhere; got 7 in row 1"),
        ("gisette", "gisette/gisette_train.data", lambda b: b[2:], r"train.data, line 1, must be 5000 numbers; got 4999"),
    ],
)  # fmt: skip
def test_a_faulty_file_is_named_with_what_to_do(plain, tmp_path, name, file, change, message):
    untouched = edited(plain, tmp_path / "control", file, bytes)
    data.load(name, untouched)
    folder = edited(plain, tmp_path, file, change)
    with pytest.raises(DataError, match=message) as error:
        data.load(name, folder)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"{name}: ")


@pytest.mark.parametrize("suffix", [".xz", ".gz", ".bz2", ".zip"])
def test_damaged_compression_is_named(suffix, published, plain, tmp_path):
    content = (plain / "noise" / "airfoil_self_noise.dat").read_bytes()
    archive = published[STATIC + "291/airfoil+self+noise.zip"]
    packed = {".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}
    whole = archive if suffix == ".zip" else packed[suffix](content)
    name = "airfoil+self+noise.zip" if suffix == ".zip" else "airfoil_self_noise.dat" + suffix
    path = tmp_path / "noise" / name
    path.parent.mkdir()
    middle = len(whole) // 2
    for broken in (whole[:middle], whole[:middle] + bytes(40) + whole[middle + 40 :], whole[:8]):
        path.write_bytes(broken)
        with pytest.raises(
            DataError, match=rf"noise: .*{name.replace('+', '.')} (cannot be|is not an archive).*: replace it"
        ):
            data.load("noise", tmp_path)
    path.write_bytes(whole)
    data.load("noise", tmp_path)


def test_a_file_that_is_not_the_published_one_is_refused(plain, monkeypatch):
    monkeypatch.delenv("SVRHMC_UNCHECKED")
    with pytest.raises(DataError, match=r"diabetes is not the published file: its sha256 is .*, not 419ba20be4862"):
        data.load("pima", plain)
    data.load("pima", plain, check=False)
    with pytest.raises(DataError, match="is not the published file"):  # what was trusted once is not trusted for ever
        data.load("pima", plain)


def test_what_cannot_be_read_is_named(plain, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"noise: .*file cannot be read \(Not a directory\): make it readable"):
        data.load("noise", tmp_path / "file")
    unreadable = tmp_path / "odd" / "airfoil_self_noise.dat"
    unreadable.parent.mkdir()
    if Path("/proc/self/mem").is_file():  # a file that not even the superuser can read from its beginning
        unreadable.symlink_to("/proc/self/mem")
        with pytest.raises(DataError, match=r"dat cannot be read \(Input/output error\): make it readable"):
            data.load("noise", unreadable.parent)
    if os.getuid() != 0:
        folder = edited(plain, tmp_path, "noise/airfoil_self_noise.dat", bytes)
        (folder / "noise" / "airfoil_self_noise.dat").chmod(0)
        with pytest.raises(DataError, match=r"dat cannot be read \(Permission denied\): make it readable"):
            data.load("noise", folder)


# Faults of publishers.


FILE = UCI + "00291/airfoil_self_noise.dat"
ZIP = STATIC + "291/airfoil+self+noise.zip"
FAULTS = {
    "missing": (FILE, lambda b: 404, r"answers with HTTP status 404 \(Not Found\)"),
    "broken server": (FILE, lambda b: 500, r"answers with HTTP status 500 \(Internal Server Error\)"),
    "cut": (FILE, lambda b: Cut(b), "ended the connection after [0-9]+ bytes, before the end"),
    "silent": (FILE, lambda b: Silent(), "was silent for 0.3 s"),
    "page": (FILE, lambda b: PAGE, "sends is a web page and not the data"),
    "empty": (FILE, lambda b: b"", "sends is empty"),
    "cut zip": (ZIP, lambda b: b[: len(b) // 2], "sends cannot be unpacked .* cut short or damaged"),
    "damaged zip": (ZIP, bad_crc, "sends cannot be unpacked"),
    "page for a zip": (ZIP, lambda b: PAGE, "sends is a web page"),
    "text for a zip": (ZIP, lambda b: b"Not here.", "sends is not an archive"),
    "other members": (ZIP, lambda b: zipped(**{"a/readme.txt": b"x"}), r"sends holds no file named airfoil_self_noise.dat \(it holds a/readme.txt\)"),
    "empty member": (ZIP, lambda b: zipped(**{"airfoil_self_noise.dat": b""}), "holds a file airfoil_self_noise.dat that is empty"),
    "empty zip": (ZIP, lambda b: zipped(), "it holds nothing"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_publisher_is_named_and_not_kept(server, published, plain, monkeypatch, fault):
    monkeypatch.setenv("SVRHMC_TIMEOUT", "0.3")
    address, change, message = FAULTS[fault]
    good = published.get(address) or (plain / "noise" / "airfoil_self_noise.dat").read_bytes()
    server.files = {address: change(good)}
    with pytest.raises(MissingDataError, match=message) as error:
        data.load("noise")
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith("noise needs the file noise/airfoil_self_noise.dat")
    assert address in text
    assert f"download it from https://{FILE} or https://{ZIP} yourself" in text
    assert kept() == []
    server.files[address] = good  # the control: the same call, once the publisher is well
    assert same(data.load("noise"), data.load("noise", plain))
    assert len(kept()) == 1
    assert not kept()[0].endswith(".part")


def test_one_publisher_stands_in_for_the_other(server, published, plain):
    server.files = {ZIP: published[ZIP], FILE: PAGE}
    assert same(data.load("noise"), data.load("noise", plain))
    server.files = {name: published[name] for name in published if "gisette_scale" in name}
    edition, _ = data.obtain("gisette")
    assert edition.key == "scaled"
    server.asked.clear()
    assert data.obtain("gisette")[0].key == "scaled"
    assert server.asked == []  # what is there is not looked for elsewhere


def test_a_download_that_cannot_be_read_is_not_kept_for_ever(server, published, plain):
    """No hash is known of it, so that only its lines tell."""
    address, members = STATIC + "170/gisette.zip", {}
    for name in ("train.data", "train.labels", "valid.data", "valid.labels"):
        members[f"gisette_{name}"] = (plain / "gisette" / f"gisette_{name}").read_bytes()
    server.files = {address: zipped(**{**members, "gisette_valid.data": b"1 2 3\n"})}
    with pytest.raises(MissingDataError, match=r"gisette/gisette_valid\.data, line 1, must be 5000 numbers; got 3"):
        data.load("gisette")
    assert kept() == []
    server.files |= {name: published[name] for name in published if "gisette_scale" in name}
    assert data.obtain("gisette")[0].key == "scaled"
    shutil.rmtree(download.cache_folder())
    server.files[address] = zipped(**members)
    assert data.obtain("gisette")[0].key == "whole"


@pytest.mark.parametrize("damage", [b"", PAGE, b"PK\x03\x04 cut"])
def test_a_broken_download_in_the_cache_is_fetched_again(server, published, plain, damage):
    server.files = {ZIP: published[ZIP]}
    data.load("noise")
    (name,) = kept()
    for path in download.cache_folder().glob("*.npz"):
        path.unlink()
    (download.cache_folder() / "downloads" / name).write_bytes(damage)
    server.asked.clear()
    assert same(data.load("noise"), data.load("noise", plain))
    assert server.asked == [FILE, ZIP]
    server.asked.clear()
    data.load("noise")
    assert server.asked == []  # it is whole again


@pytest.mark.parametrize("damage", [b"", b"PK", b"no arrays"])
def test_broken_arrays_in_the_cache_are_made_again(plain, damage):
    first = data.load("noise", plain)
    (arrays,) = download.cache_folder().glob("*.npz")
    arrays.write_bytes(damage)
    assert same(data.load("noise", plain), first)
    assert arrays.stat().st_size > 1000


def test_what_was_parsed_is_read_from_the_cache(plain, tmp_path, monkeypatch):
    content = (plain / "noise" / "airfoil_self_noise.dat").read_bytes()
    (edition,) = data.DATASETS["noise"].editions
    source = replace(edition.sources[0], sha256=hashlib.sha256(content).hexdigest())
    known = replace(data.DATASETS["noise"], editions=(replace(edition, sources=(source,)),))
    monkeypatch.setitem(data.DATASETS, "noise", known)
    monkeypatch.delenv("SVRHMC_UNCHECKED")
    first = data.load("noise", plain)
    assert same(data.load("noise"), first)  # its hashes are enough


def test_no_server_and_no_address(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("SVRHMC_MIRROR", f"http://127.0.0.1:{port}")
    with pytest.raises(MissingDataError, match=r"cannot be reached \(Connection refused\)"):
        data.load("pima")
    monkeypatch.setenv("SVRHMC_MIRROR", "nonsense")
    with pytest.raises(MissingDataError, match="is no address"):
        data.load("pima")
    monkeypatch.setenv("SVRHMC_TIMEOUT", "soon")
    with pytest.raises(DataError, match="SVRHMC_TIMEOUT must be a positive number of seconds; got 'soon'"):
        data.load("pima")
    monkeypatch.delenv("SVRHMC_MIRROR")
    assert download.mirrored("https://a.org/b") == "https://a.org/b"


# The cache folder.


def test_a_full_disk_is_said_and_leaves_nothing(server, published, tmp_path):
    """By a limit on the size of files, which the system answers like a full disk."""
    server.files = {LIBSVM + "mushrooms": published[LIBSVM + "mushrooms"]}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(DataError, match=r"cannot be saved in .*downloads \(File too large\): make room there"):
            data.load("mushroom")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert kept() == []
    data.load("mushroom")
    assert len(kept()) == 1


def test_a_cache_that_cannot_be_written_is_said_and_folders_do_without(server, published, plain, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SVRHMC_CACHE", str(tmp_path / "file" / "cache"))
    server.files = {LIBSVM + "diabetes": published[LIBSVM + "diabetes"]}
    with pytest.raises(
        DataError, match=r"saved in .*downloads \(Not a directory\).* or set SVRHMC_CACHE to another folder"
    ):
        data.load("pima")
    assert data.load("pima", plain).n == 768


def test_where_the_cache_is(tmp_path, monkeypatch, plain):
    assert download.cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("SVRHMC_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert download.cache_folder() == tmp_path / "xdg" / "svrhmc"
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert download.cache_folder() == tmp_path / "home" / ".cache" / "svrhmc"
    monkeypatch.delenv("HOME")

    def nobody(user):
        raise KeyError(user)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert download.cache_folder() == tmp_path / "xdg" / "svrhmc"
    data.load("pima", plain)
    assert list((tmp_path / "xdg" / "svrhmc").glob("pima-*.npz"))
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    with pytest.raises(DataError, match="there is no home folder to keep downloads in: set SVRHMC_CACHE"):
        download.cache_folder()
    with pytest.raises(MissingDataError, match="set SVRHMC_CACHE"):
        data.load("pima")
    assert data.load("pima", plain).n == 768


# Archives.


CONTENT = b"".join(b"%d\t%d\n" % (k, k * k) for k in range(3000))


@pytest.mark.parametrize(
    ("file", "packed"),
    [
        ("a.data", CONTENT),
        ("a.data.gz", gzip.compress(CONTENT)),
        ("a.data.bz2", bz2.compress(CONTENT)),
        ("a.data.xz", lzma.compress(CONTENT)),
        ("x.zip", zipped(**{"deep/er/A.DATA": CONTENT, "deep/a.data.txt": b"no"})),
        ("x.zip", zipped(**{"deep/a.data.gz": gzip.compress(CONTENT)})),
        ("x.zip", zipped(**{"other.zip": zipped(b=b"no"), "inner.zip": zipped(**{"f/a.data": CONTENT})})),
        ("x.zip", zipped(**{"inner.tgz": tarred(**{"f/a.data": CONTENT})})),
        ("x.tar.gz", tarred(**{"./f/a.data": CONTENT})),
        ("x.tgz", tarred(**{"a.data": CONTENT})),
        ("X.TAR", gzip.decompress(tarred(**{"a.data": CONTENT}))),
        ("no name of an archive", zipped(**{"a.data": CONTENT})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # archives hold the time at which they were made
)  # fmt: skip
def test_a_member_is_found_by_its_name(file, packed):
    assert unpack(packed, file, "a.data") == CONTENT
    if packed != CONTENT and not file.startswith("a.data"):
        with pytest.raises(ArchiveError, match=r"holds no file named b\.data"):
            unpack(packed, file, "b.data")


def test_the_member_nearest_to_the_top_is_taken():
    assert unpack(zipped(**{"z/a.data": b"2", "a/b/a.data": b"3", "a.data": CONTENT}), "x.zip", "a.data") == CONTENT


def test_archives_within_archives_end():
    packed = CONTENT
    for _ in range(6):
        packed = zipped(**{"inner.zip" if packed != CONTENT else "a.data": packed})
    with pytest.raises(ArchiveError, match=r"holds no file named a\.data"):
        unpack(packed, "x.zip", "a.data")


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "gz", "bz2", "xz"])
def test_damage_of_any_kind_is_one_error_or_none(kind):
    """Cut, overwritten or with a bit turned: the very content, or an `ArchiveError`; never another error."""
    whole = {
        "zip": zipped(**{"f/a.data": CONTENT, "readme": b"x"}),
        "tar.gz": tarred(**{"f/a.data": CONTENT}),
        "gz": gzip.compress(CONTENT),
        "bz2": bz2.compress(CONTENT),
        "xz": lzma.compress(CONTENT),
    }[kind]
    file = {"zip": "x.zip", "tar.gz": "x.tar.gz"}.get(kind, f"a.data.{kind}")
    rng, refused = np.random.default_rng(0), 0
    for _ in range(200):
        broken, place = bytearray(whole), int(rng.integers(3, len(whole)))
        how = rng.integers(3)
        if how == 0:
            del broken[place:]
        elif how == 1:
            broken[place : place + 20] = rng.bytes(len(broken[place : place + 20]))
        else:
            broken[place] ^= 1 << int(rng.integers(8))
        try:
            assert unpack(bytes(broken), file, "a.data") == CONTENT
        except ArchiveError:
            refused += 1
    assert refused > 100
    assert unpack(whole, file, "a.data") == CONTENT


def test_libsvm_reads_what_it_read_entry_by_entry():
    X, labels = from_libsvm("x", ["+1 1:0.5 3:-2", "", "-1", "2 2:1e3"], 3)
    assert labels.tolist() == [1, -1, 2]
    assert X.data.tolist() == [0.5, -2, 1000]
    assert X.indices.tolist() == [0, 2, 1]
    assert X.indptr.tolist() == [0, 2, 2, 3]
    for line in ("1 1:2:3 4", "1 2: 3:4", "inf 1:2", "1 99999999999999999999:1", "1 1.5:2"):
        with pytest.raises(ValueError, match="x, line 1, must be a label"):
            from_libsvm("x", [line], 9)


def test_the_publisher_itself():
    assert publisher.bad_crc(zipped(a=CONTENT)) != zipped(a=CONTENT)
