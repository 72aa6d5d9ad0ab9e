"""Files that are damaged, made up, or made to do harm, and the doors that open them, each in a process of its own.

    python tests/hostile_files.py FOLDER        (reads lines "MAKER DOOR SEED", writes a JSON object for each)

This process has imported and compiled everything that a door needs. For each line it forks twice: one child makes the
file, the other opens it. Of the second it says

    outcome     "refused" (an error of ours, in one line), "accepted", "crashed", "hung", or "bare" (another's error)
    told        the error
    cpu         seconds of the processor from the opening to the answer
    memory      bytes beyond those that the process had before
    harm        what it did elsewhere: files outside changed, code run
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import time
import traceback
import zipfile
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

MAKERS: dict[str, Callable[[Path, Path, np.random.Generator], Any]] = {}
KINDS: dict[str, list[str]] = {}  # makers by the kind of file that they make
PATIENCE = 40.0  # seconds until a door that does not answer is said to hang
ROOM, HUGE = 4 << 30, 10**12  # bytes of addresses that a door may take, and what is far beyond them


def maker(*kinds: str) -> Callable[[Any], Any]:
    """A function that makes a hostile file of these kinds at a path, with legitimate ones at hand."""

    def keep(make: Any) -> Any:
        MAKERS[make.__name__] = make
        for kind in kinds:
            KINDS.setdefault(kind, []).append(make.__name__)
        return make

    return keep


# ---------------------------------------------------------------------------------------------------------- records
def record_parts(path: Path) -> tuple[dict[str, Any], dict[str, tuple[str, list[int], bytes]]]:
    """What a record says, and type, shape and bytes of its arrays."""
    content = path.read_bytes()
    size = int.from_bytes(content[7:15], "little")
    header, place = json.loads(content[15 : 15 + size]), 15 + size
    arrays = {}
    for name, kind, shape in header["arrays"]:
        length = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
        arrays[name] = (kind, shape, content[place : place + length])
        place += length
    return header["said"], arrays


def seal(path: Path, said: Any, arrays: Any, header: bytes | None = None) -> None:
    """A record with a checksum that fits, whatever it holds."""
    listed = [[name, kind, shape] for name, (kind, shape, _) in arrays.items()]
    front = json.dumps({"said": said, "arrays": listed}).encode() if header is None else header
    body = b"svrhmc\n" + len(front).to_bytes(8, "little") + front + b"".join(part[2] for part in arrays.values())
    path.write_bytes(body + sha256(body).digest())


def array_changed(kind: str, shape: list[int], content: bytes, how: str) -> tuple[str, list[int], bytes]:
    """Another array in place of one."""
    array = np.frombuffer(content, kind).reshape(shape)
    if how == "shorter":
        array = array[: max(0, len(array) - 1)] if array.ndim else array
    elif how == "narrower":
        array = array[..., :-1] if array.ndim else array
    elif how == "empty":
        array = array[:0]
    elif how == "longer":
        array = np.concatenate([array, array, array])
    elif how == "another type":
        array = array.astype("<i8" if kind == "<f8" else "<f8")
    elif how == "another axis":
        array = array[None]
    elif how == "not finite":
        array = np.full(shape, np.nan) if kind == "<f8" else np.full(shape, -(1 << 62))
    elif how == "beyond":
        array = np.full(shape, 1e300) if kind == "<f8" else np.full(shape, 1 << 30)
    array = np.ascontiguousarray(array)
    return array.dtype.newbyteorder("<").str, list(array.shape), array.tobytes()


CHANGES = ("not finite", "shorter", "narrower", "empty", "longer", "another type", "another axis")


def said_changed(said: Any, rng: np.random.Generator) -> Any:
    """Something else in one place of a nest of dictionaries and lists."""
    odd = [None, -1, 10**30, "../../x", [], {}, True, 1e308, float("nan"), [[1]], {"type": "Popen"}, "\0", "x" * 10_000]
    if isinstance(said, dict) and said and rng.random() < 0.8:
        key = list(said)[rng.integers(len(said))]
        if rng.random() < 0.1:
            return {name: value for name, value in said.items() if name != key}
        return {**said, key: said_changed(said[key], rng)}
    if isinstance(said, list) and said and rng.random() < 0.6:
        place = int(rng.integers(len(said)))
        return [*said[:place], said_changed(said[place], rng), *said[place + 1 :]]
    return odd[rng.integers(len(odd))]


@maker("posterior", "trace")
def truncated(path: Path, good: Path, rng: np.random.Generator) -> None:
    content = good.read_bytes()
    path.write_bytes(content[: rng.integers(len(content))])


@maker("posterior", "trace")
def flipped(path: Path, good: Path, rng: np.random.Generator) -> None:
    content = bytearray(good.read_bytes())
    for place in rng.integers(len(content), size=8):
        content[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)


@maker("posterior", "trace")
def another_array(path: Path, good: Path, rng: np.random.Generator) -> None:
    said, arrays = record_parts(good)
    name = list(arrays)[rng.integers(len(arrays))]
    arrays[name] = array_changed(*arrays[name], CHANGES[rng.integers(1, len(CHANGES))])
    seal(path, said, arrays)


@maker("posterior", "trace")
def draws_that_are_not_finite(path: Path, good: Path, rng: np.random.Generator) -> None:
    said, arrays = record_parts(good)
    name = next(each for each in arrays if each.endswith("draws"))
    seal(path, said, {**arrays, name: array_changed(*arrays[name], "not finite")})


@maker("posterior-said", "trace-said")
def another_word(path: Path, good: Path, rng: np.random.Generator) -> None:
    said, arrays = record_parts(good)
    seal(path, said_changed(said, rng), arrays)


@maker("posterior", "trace")
def no_array(path: Path, good: Path, rng: np.random.Generator) -> None:
    seal(path, record_parts(good)[0], {})


@maker("posterior", "trace")
def negative_shape(path: Path, good: Path, rng: np.random.Generator) -> None:
    said, arrays = record_parts(good)
    name, (kind, shape, content) = next(iter(arrays.items()))
    seal(path, said, {**arrays, name: (kind, [-shape[0], *shape[1:]], content)})


@maker("posterior", "trace")
def endless_shape(path: Path, good: Path, rng: np.random.Generator) -> None:
    said, arrays = record_parts(good)
    name, (kind, _, content) = next(iter(arrays.items()))
    seal(path, said, {**arrays, name: (kind, [1 << 61, 1 << 61], content)})


@maker("posterior", "trace")
def objects_in_a_record(path: Path, good: Path, rng: np.random.Generator) -> None:
    said, arrays = record_parts(good)
    seal(path, said, {**arrays, next(iter(arrays)): ("|O", [1], pickle.dumps(Payload(path)))})


@maker("posterior", "trace")
def huge_and_hollow(path: Path, good: Path, rng: np.random.Generator) -> None:
    """A sparse file: nothing on the disk, and longer than any memory."""
    said, arrays = record_parts(good)
    name = next(iter(arrays))
    listed = [[each, kind, shape] for each, (kind, shape, _) in arrays.items() if each != name]
    front = json.dumps({"said": said, "arrays": [[name, "<f8", [HUGE // 8]], *listed]}).encode()
    path.write_bytes(b"svrhmc\n" + len(front).to_bytes(8, "little") + front)
    left = sum(len(content) for each, (_, _, content) in arrays.items() if each != name)
    os.truncate(path, path.stat().st_size + HUGE + left + 32)


@maker("posterior", "trace")
def many_lists_in_the_header(path: Path, good: Path, rng: np.random.Generator) -> None:
    front = b'{"said": {"x": [' + b"[]," * 5_000_000 + b'[]]}, "arrays": []}'
    seal(path, {}, {}, front)


@maker("posterior", "trace")
def many_texts_in_the_header(path: Path, good: Path, rng: np.random.Generator) -> None:
    texts = b",".join(b'"%06x"' % k for k in range(1_600_000))
    seal(path, {}, {}, b'{"said": {"x": [' + texts + b']}, "arrays": []}')


@maker("posterior", "trace")
def deep_header(path: Path, good: Path, rng: np.random.Generator) -> None:
    seal(path, {}, {}, b'{"said": ' + b"[" * 100_000 + b"]" * 100_000 + b', "arrays": []}')


# ------------------------------------------------------------------------------------------------- anything by name
class Payload:
    """What runs where a file is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path.parent / "outside" / "ran")

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


ANY = ("posterior", "trace", "csv", "csv.gz", "parquet", "npy", "npz", "libsvm")


@maker(*ANY)
def pickled(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.write_bytes(pickle.dumps(Payload(path)))


@maker(*ANY)
def nothing(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.write_bytes(b"")


@maker(*ANY)
def pipe(path: Path, good: Path, rng: np.random.Generator) -> None:
    os.mkfifo(path)


@maker(*ANY)
def listening(path: Path, good: Path, rng: np.random.Generator) -> None:
    os.chdir(path.parent)  # names of sockets are short
    socket.socket(socket.AF_UNIX).bind(path.name)


@maker(*ANY)
def zeros_without_end(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.symlink_to("/dev/zero")


@maker(*ANY)
def link_to_itself(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.symlink_to(path.name)


@maker("posterior", "trace", "npy", "npz", "parquet")
def folder(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.mkdir()
    (path / "mine").write_text("mine")


@maker(*ANY)
def noise(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.write_bytes(rng.bytes(20_000))


@maker("posterior", "trace", "csv", "parquet", "npy", "npz")
def hollow(path: Path, good: Path, rng: np.random.Generator) -> None:
    """Zeros alone, longer than any memory, and nothing on the disk."""
    path.write_bytes(b"")
    os.truncate(path, HUGE)


# ----------------------------------------------------------------------------------------------------------- tables
@maker("csv-any", "csv.gz", "parquet", "npy", "npz", "libsvm-any")
def cut(path: Path, good: Path, rng: np.random.Generator) -> None:
    content = good.read_bytes()
    path.write_bytes(content[: rng.integers(1, len(content) // 2)])


@maker("csv-any", "csv.gz-any", "parquet-any", "npy-any", "npz-any", "libsvm-any")
def spoilt(path: Path, good: Path, rng: np.random.Generator) -> None:
    content = bytearray(good.read_bytes())
    for place in rng.integers(len(content), size=6):
        content[place] = int(rng.integers(256))
    path.write_bytes(content)


@maker("csv")
def one_line_without_end(path: Path, good: Path, rng: np.random.Generator) -> None:
    with path.open("wb") as file:
        file.write(b"x,y\n1,2\n3,")
        for _ in range(100):
            file.write(b"7" * (1 << 20))


@maker("csv")
def first_line_without_end(path: Path, good: Path, rng: np.random.Generator) -> None:
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"x" * (1 << 20))


@maker("csv")
def names_without_end(path: Path, good: Path, rng: np.random.Generator) -> None:
    names = b",".join(b"%x" % k for k in range(2_000_000))
    path.write_bytes(names + b"\n" + b"1," * 1_999_999 + b"1\n")


@maker("csv")
def zeros_in_the_text(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.write_bytes(b"x,y\n1,2\n\0\0\0,3\n4,5\n")


@maker("csv")
def zeros_after_the_head(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.write_bytes(b"x,y\n" + b"1,2\n" * 100_000)
    os.truncate(path, 1 << 30)


@maker("csv")
def open_quote(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.write_bytes(b'x,y\n1,"' + b"2,3\n" * 2_000_000)


def _packed(path: Path, head: bytes, line: bytes, size: int) -> None:
    """A text whose lines are all the same, packed: of each MiB a member of its own, which is written many times."""
    member = gzip.compress(line * ((1 << 24) // len(line)), 9)
    with path.open("wb") as file:
        file.write(gzip.compress(head))
        for _ in range(size >> 24):
            file.write(member)


@maker("csv.gz")
def many_rows_in_few_bytes(path: Path, good: Path, rng: np.random.Generator) -> None:
    _packed(path, b"x,y\n", b"0,1\n", 1 << 32)


@maker("csv.gz")
def long_line_in_few_bytes(path: Path, good: Path, rng: np.random.Generator) -> None:
    _packed(path, b"x,y\n1,2\n", b"1", 1 << 30)


@maker("csv.gz")
def many_names_in_few_bytes(path: Path, good: Path, rng: np.random.Generator) -> None:
    _packed(path, b"", b"x,", 1 << 30)


@maker("libsvm")
def large_index(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.write_bytes(b"1 1:2 99999999999999999999:1\n-1 1:1\n")


def _npz(path: Path, headers: dict[str, tuple[bytes, int]], packed: bool = True) -> None:
    """Arrays of zeros by their headers and sizes, piece by piece."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, (header, size) in headers.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(header)
                for begin in range(0, size, 1 << 24):
                    member.write(bytes(min(1 << 24, size - begin)))


def _header(descr: Any, shape: Any) -> bytes:
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b" \n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@maker("npz")
def zeros_in_few_bytes(path: Path, good: Path, rng: np.random.Generator) -> None:
    """X of half a gigabyte and a y that does not fit it."""
    rows = 1 << 26
    _npz(path, {"X": (_header("<f8", (rows, 1)), 8 * rows), "y": (_header("<f8", (3,)), 24)})


@maker("npz")
def larger_than_memory(path: Path, good: Path, rng: np.random.Generator) -> None:
    """By what the list of the archive says, and the arrays of themselves; its content is zeros."""
    rows = 1 << 37
    _npz(path, {"X": (_header("<f8", (rows, 1)), 1 << 20), "y": (_header("<f8", (rows,)), 1 << 20)})
    content = bytearray(path.read_bytes())
    begin = content.rfind(b"PK\x05\x06")
    at = struct.unpack_from("<I", content, begin + 16)[0]
    end = bytes(content[begin:])
    directory = bytearray()
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
    for info in infos:
        name, extra = info.filename.encode(), struct.pack("<HHQ", 1, 8, 8 * rows + 80)
        directory += struct.pack(
            "<4s4B4HL2L5H2L", b"PK\x01\x02", 45, 3, 45, 0, 0, 8, 0, 33, info.CRC, info.compress_size, 0xFFFFFFFF,
            len(name), len(extra), 0, 0, 0, 0, info.header_offset,
        )  # fmt: skip
        directory += name + extra
    last = bytearray(end)
    struct.pack_into("<I", last, 12, len(directory))
    path.write_bytes(bytes(content[:at]) + bytes(directory) + bytes(last))


@maker("npz")
def two_of_one_name(path: Path, good: Path, rng: np.random.Generator) -> None:
    import warnings

    with np.load(good) as loaded, zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("X", "y", "X"):
            out = io.BytesIO()
            np.save(out, loaded[name])
            archive.writestr(f"{name}.npy", out.getvalue())


@maker("npz")
def names_outside(path: Path, good: Path, rng: np.random.Generator) -> None:
    with np.load(good) as loaded, zipfile.ZipFile(path, "w") as archive:
        for name in ("X", "y"):
            out = io.BytesIO()
            np.save(out, loaded[name])
            archive.writestr(f"../outside/{name}.npy", out.getvalue())
            archive.writestr(f"/tmp/{name}.npy", out.getvalue())


@maker("npz")
def many_members(path: Path, good: Path, rng: np.random.Generator) -> None:
    """A list of four hundred thousand, and nothing in them."""
    count, entries = 400_000, bytearray()
    for k in range(count):
        name = b"%06d.npy" % k
        entries += struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 3, 20, 0, 0, 0, 0, 33, 0, 0, 0, len(name), *[0] * 6)
        entries += name
    size = len(entries)
    wide = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, size, 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 3, 3, 100, 0, 0)
    path.write_bytes(bytes(entries) + wide + locator + end)


@maker("npz")
def objects_in_an_archive(path: Path, good: Path, rng: np.random.Generator) -> None:
    array = np.empty(1, object)
    array[0] = Payload(path)
    np.savez(path.with_suffix(".tmp"), X=array, y=array)
    path.with_suffix(".tmp.npz").rename(path)


@maker("npz")
def negative_rows(path: Path, good: Path, rng: np.random.Generator) -> None:
    _npz(path, {"X": (_header("<f8", (-3, -2)), 48), "y": (_header("<f8", (3,)), 24)})


@maker("npz", "npy")
def code_for_a_header(path: Path, good: Path, rng: np.random.Generator) -> None:
    text = f"__import__('pathlib').Path({str(path.parent / 'outside' / 'ran')!r}).touch()".encode() + b"\n"
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    if path.suffix == ".npy":
        path.write_bytes(header + bytes(48))
    else:
        _npz(path, {"X": (header, 48), "y": (header, 48)})


@maker("npy")
def longer_than_the_file(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.write_bytes(_header("<f8", (1 << 40, 3)) + bytes(64))


@maker("npy")
def as_long_as_it_says(path: Path, good: Path, rng: np.random.Generator) -> None:
    path.write_bytes(_header("<f8", (HUGE // 16, 2)))
    os.truncate(path, path.stat().st_size + HUGE // 16 * 16)


@maker("npy")
def objects_in_an_array(path: Path, good: Path, rng: np.random.Generator) -> None:
    array = np.empty((2, 2), object)
    array[:] = Payload(path)
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=True)


@maker("parquet")
def one_row_many_times(path: Path, good: Path, rng: np.random.Generator) -> None:
    """Run lengths: a hundred million rows of one number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("x", pa.int8()), ("y", pa.int8())])
    piece = pa.table({name: pa.array(np.zeros(1 << 24, np.int8)) for name in ("x", "y")}, schema)
    with pq.ParquetWriter(path, schema, compression="zstd") as out:
        for _ in range(8):
            out.write_table(piece, row_group_size=1 << 24)


@maker("parquet")
def one_text_many_times(path: Path, good: Path, rng: np.random.Generator) -> None:
    """A dictionary of one text of a megabyte, and a hundred thousand rows of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.dictionary(pa.int32(), pa.string())
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), pa.array(["x" * (1 << 20)]))
    table = pa.table({"x": text.cast(kind), "y": pa.array(np.arange(100_000) % 2)})
    pq.write_table(table, path, compression="zstd", store_schema=False)


# ------------------------------------------------------------------------------------------------------ checkpoints
def _copy(good: Path, path: Path) -> None:
    import shutil

    shutil.copytree(good, path)


def _records(path: Path) -> list[str]:
    names = [each.name for each in sorted(path.iterdir()) if each.suffix != ".rows" and each.name != "lock"]
    return [name for name in names if name != "settings"]


@maker("checkpoint")
def another_array_in_a_record(path: Path, good: Path, rng: np.random.Generator) -> None:
    _copy(good, path)
    places = [(name, array) for name in _records(path) for array in record_parts(path / name)[1]]
    name, array = places[rng.integers(len(places))]
    said, arrays = record_parts(path / name)
    arrays[array] = array_changed(*arrays[array], CHANGES[rng.integers(len(CHANGES))])
    seal(path / name, said, arrays)


@maker("checkpoint")
def no_array_in_a_record(path: Path, good: Path, rng: np.random.Generator) -> None:
    _copy(good, path)
    places = [(name, array) for name in _records(path) for array in record_parts(path / name)[1]]
    name, array = places[rng.integers(len(places))]
    said, arrays = record_parts(path / name)
    seal(path / name, said, {each: part for each, part in arrays.items() if each != array})


@maker("checkpoint-said")
def another_word_in_a_record(path: Path, good: Path, rng: np.random.Generator) -> None:
    _copy(good, path)
    names = [*_records(path), "settings"]
    name = names[rng.integers(len(names))]
    said, arrays = record_parts(path / name)
    seal(path / name, said_changed(said, rng), arrays)


@maker("checkpoint")
def fewer_rows(path: Path, good: Path, rng: np.random.Generator) -> None:
    """Rows and their checksum cut together, so that they fit each other and not the state."""
    import zlib

    _copy(good, path)
    for name in _records(path):
        said, arrays = record_parts(path / name)
        for each, claim in said["rows"].items():
            if claim[1]:
                kept = claim[1] // 2
                size = 8 * int(np.prod(claim[0])) * kept
                content = (path / f"{each}.rows").read_bytes()[:size]
                (path / f"{each}.rows").write_bytes(content)
                said["rows"][each] = [claim[0], kept, zlib.crc32(content)]
        seal(path / name, said, arrays)


@maker("checkpoint")
def rows_that_are_not_finite(path: Path, good: Path, rng: np.random.Generator) -> None:
    import zlib

    _copy(good, path)
    for name in _records(path):
        said, arrays = record_parts(path / name)
        for each, claim in said["rows"].items():
            content = np.full(8 * int(np.prod(claim[0])) * claim[1] // 8, np.nan).tobytes()
            (path / f"{each}.rows").write_bytes(content)
            said["rows"][each][2] = zlib.crc32(content)
        seal(path / name, said, arrays)


def _claim(path: Path, name: str, claim: Any) -> None:
    """All records speak of one more growing file."""
    for each in _records(path):
        said, arrays = record_parts(path / each)
        seal(path / each, {**said, "rows": {**said["rows"], name: claim}}, arrays)


@maker("checkpoint-same")
def rows_outside(path: Path, good: Path, rng: np.random.Generator) -> None:
    _copy(good, path)
    (path.parent / "outside" / "x.rows").write_bytes(b"mine" * 8)
    _claim(path, "../outside/x", [[1], 0, 0])
    _claim(path, str(path.parent / "outside" / "x"), [[1], 0, 0])


@maker("checkpoint-same")
def files_of_others(path: Path, good: Path, rng: np.random.Generator) -> None:
    _copy(good, path)
    for name in ("film.part", "state.mine.part", "notes.1.2.part", "other.rows"):
        (path / name).write_bytes(b"mine")
    (path / "link.1.2.part").symlink_to(path.parent / "outside" / "mine")
    (path.parent / "outside" / "inside").symlink_to(path)


def _replaced(path: Path, rng: np.random.Generator, replace: Callable[[Path, Path], Any]) -> None:
    names = sorted(each.name for each in path.iterdir())
    name = names[rng.integers(len(names))]
    there = path.parent / "outside" / name
    (path / name).rename(there)
    replace(path / name, there)


@maker("checkpoint")
def linked(path: Path, good: Path, rng: np.random.Generator) -> None:
    _copy(good, path)
    _replaced(path, rng, lambda here, there: here.symlink_to(there))


@maker("checkpoint")
def linked_rows(path: Path, good: Path, rng: np.random.Generator) -> None:
    """Rows that have a second name elsewhere, and bytes after those that the record speaks of."""
    _copy(good, path)
    for rows in sorted(path.glob("*.rows")):
        there = path.parent / "outside" / rows.name
        rows.rename(there)
        with there.open("ab") as file:
            file.write(b"mine")
        os.link(there, rows)


@maker("checkpoint")
def pipes_for_records(path: Path, good: Path, rng: np.random.Generator) -> None:
    _copy(good, path)
    _replaced(path, rng, lambda here, there: os.mkfifo(here))


@maker("checkpoint")
def folder_for_a_record(path: Path, good: Path, rng: np.random.Generator) -> None:
    _copy(good, path)
    _replaced(path, rng, lambda here, there: here.mkdir())


@maker("checkpoint")
def hollow_record(path: Path, good: Path, rng: np.random.Generator) -> None:
    _copy(good, path)
    names = _records(path)
    name = names[rng.integers(len(names))]
    (path / name).unlink()
    huge_and_hollow(path / name, good / next(each for each in names if record_parts(good / each)[1]), rng)


# ------------------------------------------------------------------------------------------------------------ doors
def _dense() -> Any:
    from stored_runs import dense

    return dense()


def _often(name: str) -> None:
    """Record at every piece; of a search, which has many stages, now and then."""
    from svrhmc import checkpoint

    checkpoint.SECONDS = 0.2 if name.startswith("sample") else 0.0


def _wide_rows() -> Any:
    """Sparse rows whose whitening is a sparse factor."""
    from scipy import sparse

    from svrhmc import targets

    rng = np.random.default_rng(1)
    level = rng.integers(40, size=400)
    X = sparse.csr_matrix((np.ones(400), (np.arange(400), level)), (400, 40))
    return targets.logistic(X, rng.integers(2, size=400).astype(float))


def jobs() -> dict[str, Callable[..., Any]]:
    """Calls with a checkpoint, by name: each interrupted where `stop` says so."""
    import svrhmc
    from svrhmc.exact import SplitHMC

    return {
        "run": lambda folder, **more: svrhmc.svr_hmc(0.05, batch_size=4, epoch_length=7).run(
            _dense(), 60, seed=3, checkpoint=folder, threads=1, **more
        ),
        "table": lambda folder, **more: svrhmc.saga_ubu(0.05, batch_size=4).run(
            _dense(), 60, seed=3, start="mode", checkpoint=folder, threads=1, **more
        ),
        "reference": lambda folder, **more: svrhmc.saga_ubu(0.05, batch_size=4).run(
            _dense(), 30, seed=3, engine="reference", checkpoint=folder, threads=1, **more
        ),
        "split": lambda folder, **more: SplitHMC().run(_dense(), 60, seed=3, checkpoint=folder, threads=1, **more),
        "sparse": lambda folder, **more: SplitHMC().run(
            _wide_rows(), 60, seed=3, whitening="sparse", checkpoint=folder, threads=1, **more
        ),
        "low-rank": lambda folder, **more: SplitHMC().run(
            _dense(), 60, seed=3, whitening="low rank", checkpoint=folder, threads=1, **more
        ),
        "sample": lambda folder, **more: svrhmc.sample(
            _dense(), 300, seed=3, method="anchored", tolerance=0.3, checkpoint=folder, threads=1, **more
        ),
        "sample-exact": lambda folder, **more: svrhmc.sample(
            _dense(), 300, seed=3, checkpoint=folder, threads=1, **more
        ),
    }


def _draws(result: Any) -> Any:
    return getattr(result, "trace", result).draws


def interrupt(done: float, total: float) -> None:
    """Stop a run before its end."""
    if done > 0.6 * total:
        raise KeyboardInterrupt


def good_file(folder: Path, kind: str, door: str) -> Path:
    """A legitimate file, or an interrupted checkpoint, from which hostile ones are made; made where it is not there, by
    this process, so that all that the door needs is imported and compiled.
    """
    import shutil

    if kind == "checkpoint":
        name = door.split()[1]
        path = folder / f"{name}.checkpoint"
        if not path.exists():
            _often(name)
            with suppress(KeyboardInterrupt):
                jobs()[name](path, progress=interrupt)
            shutil.copytree(path, folder / "whole")
            np.save(folder / f"{name}.checkpoint.npy", _draws(jobs()[name](folder / "whole")))
            shutil.rmtree(folder / "whole")
        return path
    path = folder / (f"numbers.{kind}" if (kind, door) == ("csv", "read_table") else f"good.{kind}")
    if not path.exists():
        _make_good(path, kind)
    if door == "predict":  # which needs a table as well
        good_file(folder, "csv", "read")
    if (kind, door) not in _OPENED:
        shutil.copytree(folder, folder.parent / "opened")
        DOORS[door](folder.parent / "opened" / path.name)
        shutil.rmtree(folder.parent / "opened")
        _OPENED.add((kind, door))
    return path


_OPENED: set[tuple[str, str]] = set()


def table() -> tuple[Any, Any, list[str]]:
    """Two columns of numbers, labels, and a column of texts."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)).round(3)
    return X, (X @ [1.0, -1.0] + rng.logistic(size=80) > 0).astype(int), ["u", "v"] * 40


def _make_good(path: Path, kind: str) -> None:
    X, y, group = table()
    rows = list(zip(X.tolist(), y.tolist(), group, strict=True))
    if path.name == "numbers.csv":
        path.write_text("a,b,y\n" + "".join(f"{a},{b},{label}\n" for (a, b), label, _ in rows))
    elif kind in ("csv", "csv.gz"):
        text = "a,b,group,y\n" + "".join(f"{a},{b},{g},{label}\n" for (a, b), label, g in rows)
        path.write_bytes(gzip.compress(text.encode()) if kind == "csv.gz" else text.encode())
    elif kind == "libsvm":
        path.write_text("".join(f"{label} 1:{a} 2:{b}\n" for (a, b), label, _ in rows))
    elif kind == "npz":
        np.savez(path, X=X, y=y)
    elif kind == "npy":
        np.save(path, np.column_stack([X, y]))
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"a": X[:, 0], "group": group, "y": y}), path)
    else:
        import svrhmc

        data = {"a": X[:, 0], "group": group, "y": X[:, 1]}
        posterior = svrhmc.fit("y ~ a + group", data, "gaussian", draws=100)
        (posterior if kind == "posterior" else posterior.trace).save(path)


def _shell(*words: str) -> None:
    """A command; an error of one line on stderr becomes an error here."""
    import contextlib

    from svrhmc.shell.app import app

    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            app(list(words))
    except SystemExit as ended:
        if ended.code:
            raise ValueError(f"exit {ended.code}: {told.getvalue().strip()}") from None


def _predict(path: Path) -> None:
    _shell("predict", str(path), str(path.parent / "good.csv"), "--out", str(path.parent / "out.csv"), "--quiet")


def _fit(path: Path) -> None:
    _shell("fit", str(path), "--target", "y", "--out", str(path.parent / "fit"), "--draws", "50", "--quiet")


def _resume(name: str) -> Callable[[Path], bool]:
    def resume(path: Path) -> bool:
        _often(name)
        draws, good = _draws(jobs()[name](path)), np.load(path.parent / "draws.npy")
        if draws.shape != good.shape or not np.isfinite(draws).all():
            raise AssertionError(f"draws of shape {draws.shape}, not all finite or not as many as asked for")
        return bool((draws == good).all())

    return resume


def _load(name: str) -> Callable[[Path], Any]:
    def load(path: Path) -> None:
        import svrhmc

        loaded = getattr(svrhmc, name).load(path)
        if not np.isfinite(_draws(loaded)).all():
            raise AssertionError("draws are not all finite")
        str(loaded.summary())

    return load


def _rows(name: str) -> Callable[[Path], Any]:
    def rows(path: Path) -> None:
        from svrhmc import data

        opened = getattr(data, name)(path, "y")
        for number in range(len(opened.reader.sizes)):
            for _ in opened.reader.read(number):
                pass

    return rows


def _read(path: Path) -> None:
    from svrhmc.tables.files import read

    read(path)


def _read_table(path: Path) -> None:
    from svrhmc.tables.numbers import read_table

    read_table(path)


DOORS: dict[str, Callable[[Path], Any]] = {
    "Posterior.load": _load("Posterior"),
    "Trace.load": _load("Trace"),
    "predict": _predict,
    "fit": _fit,
    "read": _read,
    "read_table": _read_table,
    "from_parquet": _rows("from_parquet"),
    "from_csv": _rows("from_csv"),
    **{f"resume {name}": _resume(name) for name in (
        "run", "table", "reference", "split", "sparse", "low-rank", "sample", "sample-exact",
    )},
}  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- server
def _state(folder: Path) -> dict[str, Any]:
    """All that is in a folder: what a door may not change."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        status = os.lstat(path)
        content = path.read_bytes() if path.is_file() and not path.is_symlink() and status.st_size < 1 << 24 else None
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_size, content)
    return found


def _fork(work: Callable[[], Any], patience: float = PATIENCE) -> tuple[str, Any]:
    """What a child says, or how it ended."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(here)
        try:
            answer = json.dumps(work()).encode()
            os.write(there, answer[:60_000])
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
    os.close(there)
    ended, began = 0, time.monotonic()
    while not ended and time.monotonic() - began < patience:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0 if ended else 0.002)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(here, "rb") as answers:
        answer = answers.read()
    if not ended:
        return "hung", None
    if os.WIFSIGNALED(status) or not answer:
        return "crashed", f"status {status}"
    return "answered", json.loads(answer)


def _resident() -> tuple[int, int]:
    """Bytes in memory, and at the height so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return found["VmRSS"], found["VmHWM"]


def opened(door: str, path: Path) -> dict[str, Any]:
    """What comes of opening a file."""
    from svrhmc.core import errors

    ours = tuple(each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception))
    Path("/proc/self/clear_refs").write_text("5")
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before, began, told, same = _resident()[0], time.process_time(), "", None
    try:
        same = DOORS[door](path)
        outcome = "accepted"
    except BaseException as error:
        told = f"{type(error).__name__}: {error}"
        plain = type(error) is ValueError or (isinstance(error, OSError) and error.filename)
        outcome = "refused" if (isinstance(error, ours) or plain) and "\n" not in told else "bare"
        if outcome == "bare" or os.environ.get("HOSTILE_TRACEBACK"):
            traceback.print_exc()
    cpu = time.process_time() - began
    return {"outcome": outcome, "told": told[:2000], "cpu": cpu, "memory": _resident()[1] - before, "same": same}


def case(folder: Path, good: Path, kind: str, make: str, door: str, seed: int) -> dict[str, Any]:
    """A file made, and opened."""
    import shutil

    place = folder / "case"
    shutil.rmtree(place, ignore_errors=True)
    (place / "outside").mkdir(parents=True)
    (place / "outside" / "mine").write_text("mine")
    try:
        path, source = place / f"file.{kind}", good_file(good, kind, door)
    except Exception as error:
        return {"outcome": "not made", "told": f"{door} does not open a good file: {error}"}
    if door == "predict":
        shutil.copy(good / "good.csv", place / "good.csv")
    if kind == "checkpoint":
        shutil.copy(good / f"{source.name}.npy", place / "draws.npy")
    how, answer = _fork(lambda: MAKERS[make](path, source, np.random.default_rng([seed, len(make)])), 300.0)
    if how != "answered":
        return {"outcome": "not made", "told": str(answer)}
    before = _state(place / "outside")
    inside = _state(path) if path.is_dir() else {}
    how, answer = _fork(lambda: opened(door, path))
    found = answer if how == "answered" else {"outcome": how, "told": str(answer), "cpu": 0.0, "memory": 0}
    after = _state(place / "outside")
    found["harm"] = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if kind == "checkpoint":
        now = _state(path)
        found["harm"] += [name for name, state in inside.items() if state[2] == b"mine" and now.get(name) != state]
    shutil.rmtree(place, ignore_errors=True)
    return found


def main(folder: Path) -> None:
    """Answer until there are no more questions."""
    good = folder / "good"
    good.mkdir()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what doors print goes to stderr
    for line in sys.stdin:
        kind, make, door, seed = json.loads(line)
        answers.write(json.dumps(case(folder, good, kind, make, door, seed)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
