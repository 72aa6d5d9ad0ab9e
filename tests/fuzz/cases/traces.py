"""Traces, posteriors and their files: there and back, damaged files, checkpoints."""

import functools
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

import svrhmc
from svrhmc import Posterior, Trace

from .. import inputs
from ..judge import RefusedError, agree, ask, holds
from ..registry import case
from .gradients import SMALL, make
from .posteriors import kinds
from .samplers import GIVEN

STORED = Path(__file__).parents[2] / "stored"


@case(
    st.tuples(SMALL, st.sampled_from(sorted(GIVEN)), st.integers(1, 12), st.integers(1, 3), inputs.words),
    "svrhmc.Trace.*",
    cost=0.03,
)
def round_trips(given):
    """A trace from its file is the trace; its moments are those of its draws."""
    kind, where, steps, chains, name = given
    trace = ask(
        svrhmc.Sampler(svrhmc.dynamics.UBU(0.01), make(kind)).run,
        GIVEN[where],
        steps=steps,
        chains=chains,
        engine="reference",
    )
    flat = trace.draws.reshape(-1, trace.draws.shape[2])
    agree("the mean", ask(trace.mean), flat.mean(axis=0), 1e-12 * (1 + np.abs(flat).max()))
    try:
        agree(
            "the covariance",
            ask(trace.covariance),
            np.atleast_2d(np.cov(flat.T)),
            1e-12 * (1 + np.abs(flat).max() ** 2),
        )
    except RefusedError:
        holds(len(flat) < 2, "no covariance")
    ask(trace.require_sound)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/{name}.trace"
        if (
            "\x00" in name
            or "/" in name
            or len(name.encode("utf-8", "ignore")) > 200
            or any(0xD800 <= ord(sign) < 0xE000 for sign in name)
        ):
            return
        ask(trace.save, path)
        again = ask(Trace.load, path)
    holds(
        (again.draws == trace.draws).all() and again.sampler == trace.sampler and again.seed == trace.seed,
        "another trace from its file",
    )
    try:
        ask(trace.summary, nan=("r_hat",))
    except RefusedError:
        holds(steps < 4, "no summary")


@functools.cache
def contents():
    """Bytes of sound files."""
    with tempfile.TemporaryDirectory() as folder:
        trace = svrhmc.svr_hmc(0.1).run(GIVEN["lines"], 12, chains=2, engine="reference")
        trace.save(f"{folder}/a.trace")
        kinds()["fit"].save(f"{folder}/a.posterior")
        found = {
            "trace": Path(f"{folder}/a.trace").read_bytes(),
            "posterior": Path(f"{folder}/a.posterior").read_bytes(),
        }
    for path in STORED.glob("*.trace"):
        found[path.name] = path.read_bytes()
    return found


FILES = ("trace", "posterior", "closed-0.1.0.trace", "exact-0.1.0.trace", "grid-0.1.0.trace")
DAMAGE = st.one_of(
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(st.just("flip"), st.floats(0, 1), st.integers(1, 255)),
    st.tuples(st.just("zero"), st.floats(0, 1), st.integers(1, 40)),
    st.tuples(st.just("insert"), st.floats(0, 1), st.binary(max_size=8)),
    st.tuples(st.just("replace"), st.floats(0, 1), st.binary(max_size=8)),
    st.tuples(
        st.just("twice"),
    ),
    st.tuples(st.just("text"), st.binary(max_size=40)),
    st.tuples(st.just("whole"), st.just(0)),
    st.tuples(st.just("digit"), st.floats(0, 1), st.integers(0, 9)),
)


def damaged(content, how):
    content = bytearray(content)
    kind, *more = how
    at = min(int(more[0] * len(content)), len(content) - 1) if more and isinstance(more[0], float) else 0
    if kind == "cut":
        return bytes(content[:at])
    if kind == "flip":
        content[at] ^= more[1]
    elif kind == "zero":
        content[at : at + more[1]] = bytes(len(content[at : at + more[1]]))
    elif kind == "insert":
        content[at:at] = more[1]
    elif kind == "replace":
        content[at : at + len(more[1])] = more[1]
    elif kind == "twice":
        content = content + content
    elif kind == "text":
        return more[0]
    elif kind == "digit":
        digits = [k for k, sign in enumerate(content) if chr(sign).isdigit()]
        if digits:
            content[digits[int(more[0] * (len(digits) - 1))]] = ord(str(more[1]))
    return bytes(content)


@case(
    st.tuples(st.sampled_from(FILES), DAMAGE),
    "svrhmc.Trace.load",
    "svrhmc.TraceFileError",
    "svrhmc.PosteriorFileError",
    "svrhmc.Posterior.load",
    "svrhmc.Posterior.save",
    cost=0.005,
)
def damaged_files(given):
    """A damaged file is refused, or is equal to the original."""
    name, how = given
    load = Posterior.load if name == "posterior" else Trace.load
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(contents()[name])
        original = load(path)
        path.write_bytes(damaged(contents()[name], how))
        try:
            found = ask(load, path)
        except RefusedError as refused:
            kinds_of = (svrhmc.PosteriorFileError,) if name == "posterior" else (svrhmc.TraceFileError,)
            holds(isinstance(refused.error, kinds_of), f"refused by {type(refused.error).__name__}: {refused.error}")
            return
    one, other = (original.trace, found.trace) if name == "posterior" else (original, found)
    holds(
        np.array_equal(one.draws, other.draws)
        and np.array_equal(one.passes, other.passes)
        and one.seed == other.seed
        and one.sampler == other.sampler
        and one.engine == other.engine
        and one.seconds == other.seconds,
        "a damaged file was taken for another one",
    )


@case(
    st.tuples(
        st.sampled_from(["", "/dev/null", "folder", "none/x", "\x00", "x" * 300, 3, None]),
        st.sampled_from(["save", "load"]),
        st.sampled_from(["trace", "posterior"]),
    ),
    "svrhmc.Trace.save",
    "svrhmc.Trace.load",
)
def odd_places(given):
    """Names of files that are none."""
    place, what, kind = given
    one = kinds()["linear"] if kind == "posterior" else kinds()["linear"].trace
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "folder").mkdir()
        path = f"{folder}/{place}" if isinstance(place, str) and not place.startswith("/") else place
        if place == "/dev/null" and what == "save":
            return
        try:
            ask(one.save if what == "save" else type(one).load, path)
        except RefusedError:
            return
        except AssertionError as error:
            if (
                "FileNotFoundError" in str(error)
                or "IsADirectoryError" in str(error)
                or "PermissionError" in str(error)
                or "File name too long" in str(error)
                or "embedded null" in str(error)
                or "TypeError" in str(error)
            ):
                return  # the file system's own words
            raise


@case(
    st.tuples(SMALL, st.integers(2, 10), st.integers(0, 3), DAMAGE, st.integers(0, 20)),
    "svrhmc.Sampler.run",
    "svrhmc.CheckpointError",
    cost=0.1,
)
def checkpoints(given):
    """A checkpoint gives the same draws; a damaged one the same draws or an error, and another run an error."""
    kind, steps, seed, how, which = given
    sampler = svrhmc.Sampler(svrhmc.dynamics.UBU(0.01), make(kind))
    said = {"steps": steps, "chains": 2, "seed": seed, "engine": "reference"}
    plain = ask(sampler.run, GIVEN["lines"], **said)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        first = ask(sampler.run, GIVEN["lines"], checkpoint=place, **said)
        holds((first.draws == plain.draws).all(), "a checkpoint changes the draws")
        first = None
        files = sorted(path for path in place.rglob("*") if path.is_file())
        path = files[which % len(files)]
        content = path.read_bytes()
        if content:
            path.write_bytes(damaged(content, how))
        for call in (lambda: sampler.run(GIVEN["lines"], checkpoint=place, **said), lambda: Trace.load(place)):
            try:
                again = ask(call)
            except RefusedError:
                continue
            holds(
                np.array_equal(again.draws, plain.draws[:, : again.draws.shape[1]]),
                f"{path.name} was damaged, and the draws are others",
            )


@case(
    st.tuples(
        st.lists(st.text(max_size=5), max_size=3), st.lists(inputs.finite, min_size=3, max_size=3), st.text(max_size=5)
    ),
    "svrhmc.Summary.*",
)
def summaries(given):
    """A table of any names and numbers prints."""
    names, values, title = given
    made = svrhmc.Summary(
        tuple(names),
        {"mean": np.array(values[: len(names)]), "ess": np.abs(np.array(values[: len(names)]))},
        title,
        (title,),
    )
    ask(str, made)
    ask(made._repr_html_)
    ask(made.to_frame)
    holds((made.mean == made["mean"]).all(), "another column")
