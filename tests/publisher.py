"""A publisher on this machine: a server whose files are there, missing, pages, cut short, silent or broken."""

import bz2
import io
import tarfile
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LIBSVM = "www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
UCI = "archive.ics.uci.edu/ml/machine-learning-databases/"
STATIC = "archive.ics.uci.edu/static/public/"
PAGE = b"<!DOCTYPE html>\n<html><body>We have moved.</body></html>"


class Cut(bytes):
    """Sent in part; then the connection is closed."""


class Silent:
    """Never answered."""


class Publisher:
    """What is answered, by address without its scheme: bytes, a status, Cut or Silent. All else is 404."""

    def __init__(self):
        self.files, self.asked, self.closing = {}, [], threading.Event()

    @contextmanager
    def open(self):
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                address = self.path.lstrip("/")
                publisher.asked.append(address)
                answer = publisher.files.get(address, 404)
                if isinstance(answer, Silent):
                    publisher.closing.wait(20)
                elif isinstance(answer, int):
                    self.send_error(answer)
                else:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer[: len(answer) // 2] if isinstance(answer, Cut) else answer)

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            self.closing.set()
            server.shutdown()
            server.server_close()
            thread.join()


def zipped(**members):
    """A zip of members, by their paths."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(**members):
    """A tar of members, compressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def bad_crc(archive):
    """The same zip, with a byte of its first member changed."""
    place = archive.index(b"PK\x01\x02") // 2
    return archive[:place] + bytes([archive[place] ^ 0xFF]) + archive[place + 1 :]


def as_published(plain):
    """Where each file of the plain folder is published, in the form it has there."""
    read = {path.name: path.read_bytes() for path in Path(plain).rglob("*") if path.is_file()}
    return {
        LIBSVM + "diabetes": read["diabetes"],
        LIBSVM + "a3a": read["a3a"],
        LIBSVM + "a3a.t": read["a3a.t"],
        LIBSVM + "mushrooms": read["mushrooms"],
        LIBSVM + "gisette_scale.bz2": bz2.compress(read["gisette_scale"]),
        LIBSVM + "gisette_scale.t.bz2": bz2.compress(read["gisette_scale.t"]),
        STATIC + "170/gisette.zip": zipped(
            **{f"GISETTE/{name}": read[name] for name in ("gisette_train.data", "gisette_valid.data")},
            **{"GISETTE/gisette_train.labels": read["gisette_train.labels"]},
            **{"gisette_valid.labels": read["gisette_valid.labels"], "GISETTE/gisette.param": b"5000 columns"},
        ),
        STATIC + "315/geographical+original+of+music.zip": zipped(
            **{"Geographical Original of Music/Default_Features_1059_tracks.TXT": read["default_features_1059_tracks.txt"]}
        ),
        STATIC + "291/airfoil+self+noise.zip": zipped(
            **{"__MACOSX/._airfoil_self_noise.dat": b"x", "data/airfoil_self_noise.dat": read["airfoil_self_noise.dat"]}
        ),
        UCI + "parkinsons/telemonitoring/parkinsons_updrs.data": read["parkinsons_updrs.data"],
        STATIC + "248/buzz+in+social+media.zip": zipped(
            **{"classification.tar.gz": tarred(**{"classification/Twitter/Twitter.data": b"0"})},
            **{"regression.tar.gz": tarred(**{"regression/TomsHardware/TomsHardware.data": read["TomsHardware.data"]})},
        ),
        STATIC + "265/physicochemical+properties+of+protein+tertiary+structure.zip": zipped(**{"CASP.csv": read["CASP.csv"]}),
    }  # fmt: skip
