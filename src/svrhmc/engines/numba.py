"""The compiled engine: generalised linear models and Gaussians, every sampler of the grid, chains across threads.

One compiled call runs a piece of the work; between pieces Python shows progress and hears an interrupt. Where
chains are fewer than threads and the rows many, the threads share each pass over all rows instead. Neither changes
a digit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event, Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DivergenceError, requirement
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.dynamics import IDENTITY, SILENT, Scheme, normals_of
from svrhmc.engines.base import Job, Outcome
from svrhmc.engines.pieces import CHUNK_BLOCKS, HIGH, Pace, apart, fixed, noise_room, row_width, share, slots_of
from svrhmc.gradients import SAGA, SVRG, Batched, ControlVariate, Full, Gradient, Minibatch
from svrhmc.kernels import estimates, frames, layout, loop, passes
from svrhmc.kernels.losses import KERNELS
from svrhmc.targets.base import FiniteSum
from svrhmc.targets.gaussian import Gaussian
from svrhmc.targets.glm import GeneralisedLinear
from svrhmc.targets.losses import LogisticLoss, SquaredLoss
from svrhmc.targets.rows import DenseRows, SparseRows
from svrhmc.whitening import DenseWhitening, LowRankWhitening, WhitenedRows, Whitening

_CHUNK_ROWS = 2048
_SHARED_PASS = 1 << 19  # entries of X from which a pass is worth the hand-over to other threads
_NEAR_BYTES = 1 << 20  # rows beyond this are asked for a step ahead
_NEVER = 1 << 62


def run(job: Job) -> Outcome:
    """Run the job on all threads."""
    outcome = Outcome.empty(job)
    outcome.evaluations[:] = job.gradient.evaluations(job.target, job.schedule.kept())
    run = _Run(job, outcome)
    run.compile()
    began = time.perf_counter()
    threads = min(job.threads, len(job.chains))
    if job.threads > threads and run.passes_are_large:
        run.share_passes()
    else:
        run.share_chains(threads)
    outcome.velocity[:] = run.v
    return replace(outcome, seconds=time.perf_counter() - began)


def gradients(job: Job) -> Array:
    """The gradient's estimates at the states where the job's chains start, each as in the job's first step."""
    found = _Run(job, Outcome.empty(job))
    if job.threads > len(job.chains) and found.passes_are_large:
        return run(job).velocity
    return found.estimates()


def prepare(job: Job) -> None:
    """Compile what runs the job, or load it."""
    _Run(job, Outcome.empty(job)).compile()


def supports(job: Job) -> bool:
    """Whether target and gradient are among those compiled."""
    gradient = job.gradient
    if isinstance(job.target, Gaussian):
        return type(gradient) in (Full, Minibatch, SVRG, ControlVariate) and not (
            (isinstance(gradient, ControlVariate) and gradient.order == 2) or _by_importance(gradient)
        )
    target = job.target.target if isinstance(job.target, WhitenedRows) else job.target
    return (
        isinstance(target, GeneralisedLinear)
        and isinstance(target.loss, LogisticLoss | SquaredLoss)
        and isinstance(target.rows, DenseRows | SparseRows)
        and type(gradient) in (Full, Minibatch, SVRG, ControlVariate, SAGA)
    )


@dataclass
class _Run:
    """A job in arrays, and the state of its chains.

    memory: what the chains remember from a run before; None takes a snapshot at the first step. keeps: room for what
    they remember in the end, or None.
    """

    job: Job
    outcome: Outcome
    memory: Any = None
    keeps: Any = None
    lock: Lock = field(default_factory=Lock)
    next_chain: int = 0
    stopped: Event = field(default_factory=Event)
    diverged: tuple[int, int] | None = None  # (step, place of the chain): the earliest so far

    def __post_init__(self) -> None:
        job = self.job
        self.model = make_model(job.target, _second(job))
        if isinstance(job.gradient, SAGA) or _by_importance(job.gradient):
            self.model = _framed(self.model)
        self.plan = _plan(job, self.model)
        self.table = _table(job.scheme)
        self.x, self.v = job.start.copy(), job.velocities()
        self.stream = Stream(job.seed, job.chains)
        self.chains, self.steps = len(job.chains), job.schedule.steps

    def compile(self) -> None:
        """Compile the loop, or load it, by running no chain for no step."""
        self._advance(self._workspace(), (0, 0), (0, 0))

    @property
    def takes_snapshots(self) -> bool:
        """Whether chains remember a state where their gradient was found."""
        return self.plan.kind == layout.SVRG and not self.plan.anchored

    @property
    def passes_are_large(self) -> bool:
        """Whether passes over all rows are made, and long enough to be shared."""
        if (
            self.plan.kind == layout.MINIBATCH
            or self.plan.anchored
            or self.plan.saga
            or self.plan.snapshot_rows
            or isinstance(self.model, layout.GaussianModel)
        ):
            return False
        X = self.model.columns if isinstance(self.model, layout.SparseModel) else self.model.X
        return bool(X.size >= _SHARED_PASS)

    def share_chains(self, threads: int) -> None:
        """Each thread takes chains and runs them from start to end."""
        share(self._work, threads, self.job.report, self.stopped)
        self._raise_divergence()

    def estimates(self) -> Array:
        """The gradient's estimates at the states, by a loop that makes no step."""
        out = np.empty_like(self.x)
        k0, k1 = self.stream.keys(self.job.begin >> 32)

        def work(report: Callable[[int], None]) -> None:
            room, pace = self._workspace(), Pace()
            sums = room.sums if self.plan.kind == layout.FULL or self.takes_snapshots else None
            some = (None, None) if self.plan.kind == layout.FULL else (room.batch, room.draw)
            rest = (room.held, sums, *some, room.noise.words, k0, k1, self.x, out)
            for chains in self._shares(pace):
                began = time.perf_counter()
                estimates.estimate(self.model, self.plan, *rest, chains, self.job.begin)
                pace.learn(chains[1] - chains[0], time.perf_counter() - began)

        share(work, min(self.job.threads, self.chains), self.job.report, self.stopped)
        fine = np.isfinite(out).all(axis=1)
        if not fine.all():
            self._note_divergence(int(np.argmin(fine)), self.steps)
        self._raise_divergence()
        return out

    def share_passes(self) -> None:
        """Chains one after another, each pass over the rows on all threads."""
        work = self._workspace()
        threads = self.job.threads
        held, sharers = work.held, [_own_room(work.sums) for _ in range(threads)]
        cuts = np.linspace(0, len(work.sums.partial), threads + 1).astype(int)
        with ThreadPoolExecutor(threads) as pool:

            def share(own: Any, low: int, high: int) -> None:
                passes.pass_blocks(self.model, held.at, low, high, own, held.memory, self.plan.remembers)

            def everyone() -> None:
                held.snapshot[:] = held.at
                list(pool.map(share, sharers, cuts[:-1], cuts[1:]))
                passes.join_blocks(self.model, work.sums.partial, held.room, held.anchor)

            for chain in range(self.chains):
                self._run_chain(work, chain, everyone)
        self._raise_divergence()

    def _run_chain(self, work: Any, chain: int, everyone: Callable[[], None]) -> None:
        step, passed, pace = self.job.begin, False, Pace()
        while step < self._end():
            piece = self._piece(step, min(self._end(), step + pace.steps))
            began = time.perf_counter()
            reason, _, reached = self._advance(work, (chain, chain + 1), (step, piece), passed, outside=True)
            pace.learn(reached - step, time.perf_counter() - began)
            passed = reason == layout.PASS_DUE
            self.job.report(reached - step)
            step = reached
            if reason == layout.PASS_DUE:
                everyone()
            elif reason == layout.DIVERGED:
                self._note_divergence(chain, reached)

    def _work(self, report: Callable[[int], None]) -> None:
        """Take chains until none is left; pieces grow to a tenth of a second."""
        work = self._workspace()
        pace = Pace()
        for first, last in self._shares(pace):
            while first < last and not self.stopped.is_set():
                step, end = self.job.begin, self._end()
                while step < end:
                    piece = end if last - first > 1 else self._piece(step, min(end, step + pace.steps))
                    began, amount = time.perf_counter(), (last - first) * (piece - step)
                    reason, chain, reached = self._advance(work, (first, last), (step, piece))
                    pace.learn(amount, time.perf_counter() - began)
                    report(amount)
                    step = piece
                    if reason == layout.DIVERGED:
                        self._note_divergence(chain, reached)
                        first, step = chain, end
                    if self.stopped.is_set():
                        return
                first = first + 1 if reason == layout.DIVERGED else last

    def _shares(self, pace: Pace) -> Iterator[tuple[int, int]]:
        """Ranges of chains, each about a piece of work long."""
        while not self.stopped.is_set():
            with self.lock:
                left = self.chains - self.next_chain
                whole = max(1, pace.steps // max(1, self.steps - self.job.begin))
                size = min(whole, max(1, left // (2 * self.job.threads)))
                first, last = self.next_chain, min(self.chains, self.next_chain + size)
                self.next_chain = last
            if first >= self.chains:
                return
            yield first, last

    def _advance(
        self, work: Any, chains: tuple[int, int], steps: tuple[int, int], passed: bool = False, outside: bool = False
    ) -> tuple[int, int, int]:
        """One call of the loop: memory enters where a chain begins, and leaves where it ends."""
        k0, k1 = self.stream.keys(steps[0] >> 32)
        begins, ends = steps[0] == self.job.begin, steps[1] == self.steps
        flags = layout.Flags(
            fresh=begins and self.memory is None,
            load=begins and self.memory is not None,
            store=ends and self.keeps is not None,
            passed=passed,
            outside=outside,
        )
        result: tuple[int, int, int] = loop.advance(
            self.model, self.plan, self.table, *work, k0, k1, self.x, self.v, self.outcome.draws,
            self.memory or self.nothing, self.keeps or self.nothing, chains, steps, flags,
        )  # fmt: skip
        return result

    @cached_property
    def nothing(self) -> Any:
        """A memory without rows."""
        return make_memory(self.model, 0, 0, 0)

    def _piece(self, step: int, end: int) -> int:
        """Never across a multiple of 2³² steps, where the keys of the stream change."""
        return min(end, (step // HIGH + 1) * HIGH)

    def _end(self) -> int:
        """Steps to make: all, or as many as could still diverge earlier than a chain that has."""
        return self.steps if self.diverged is None else min(self.steps, self.diverged[0])

    def _note_divergence(self, chain: int, step: int) -> None:
        with self.lock:
            self.diverged = min(self.diverged or (step, chain), (step, chain))

    def _raise_divergence(self) -> None:
        if self.diverged is not None:
            step, chain = self.diverged
            size = self.job.step_size
            raise DivergenceError(int(self.job.chains[chain]), step, size, size / 4)

    def _workspace(self) -> Any:
        work = _workspace(self.model, self.plan, self.job)
        work = work._replace(**{name: getattr(work, name)._replace(**known) for name, known in self.shared.items()})
        if self.plan.anchored or self.plan.second:
            work.held.anchor[:] = work.held.base
        return work

    @cached_property
    def shared(self) -> dict[str, dict[str, Any]]:
        """Arrays that every thread reads: the mode with what is known there, and the alias table."""
        target, gradient, kind = self.job.target, self.job.gradient, self.model[0].dtype
        held: dict[str, Any] = {}
        found: dict[str, dict[str, Any]] = {"held": held}
        if isinstance(gradient, ControlVariate):
            mode = target.mode()[None, :]
            held["base"] = (target.gradients(mode) - target.prior_gradient(mode))[0]
            if self.plan.anchored:
                held["snapshot"] = mode[0].astype(kind)
            if self.plan.anchored and self.plan.remembers:
                held["memory"] = (target.parts(mode, None)[0] / target.n).astype(kind)
            if self.plan.second:
                held["hessian"] = target.expansion(mode[0]).hessian
        if _by_importance(gradient):
            threshold, alias, probability = target.row_table
            found["draw"] = {"threshold": threshold, "alias": alias}
            found["batch"] = {"weights": (1 / (target.n * probability)).astype(kind)}
        return found


def make_memory(model: Any, chains: int, dim: int, columns: int) -> Any:
    """Room for what chains remember, with a column for each row whose slope is kept."""
    return layout.Memory(np.zeros((chains, dim)), np.zeros((chains, dim)), np.zeros((chains, columns), model[0].dtype))


def _second(job: Job) -> bool:
    """Whether the gradient is of order 2 in the user's coordinates; a whitened target has that order taken out
    already.
    """
    gradient = job.gradient
    return isinstance(gradient, ControlVariate) and gradient.order == 2 and not isinstance(job.target, WhitenedRows)


def _by_importance(gradient: Gradient) -> bool:
    return isinstance(gradient, Batched) and gradient.importance


_models: WeakKeyDictionary[FiniteSum, dict[bool, Any]] = WeakKeyDictionary()


def make_model(target: FiniteSum, second: bool = False) -> Any:
    """A target in arrays, made once; with `second`, its rows less their first two orders at the mode."""
    made = _models.setdefault(target, {})
    if second not in made:
        made[second] = _make_model(target, second)
    return made[second]


def _make_model(target: FiniteSum, second: bool) -> Any:
    if isinstance(target, Gaussian):
        S = target.precision[None] if target.shared else target.precision
        none = np.zeros(target.dim)
        return layout.GaussianModel(
            S=fixed(S),
            forces=fixed(target.forces),
            mean_precision=fixed(target.mean_precision),
            mean_force=fixed(target.mean_force),
            prior=fixed(none),
            prior_force=fixed(none),
            frame=None,
        )
    if isinstance(target, WhitenedRows):
        model = make_model(target.target)
        ones, zeros, inner = np.ones(target.dim), np.zeros(target.dim), target.target.prior_precision
        return model._replace(
            prior=fixed(ones if target.exact else zeros),
            prior_force=fixed(target.force),
            frame=make_frame(target.whitening),
            inner=fixed(inner),
            taken=_taken(model, target.predictors, target.curvatures if target.exact else np.zeros(target.n)),
        )
    assert isinstance(target, GeneralisedLinear)
    kind = target.rows.dtype.type
    logistic = isinstance(target.loss, LogisticLoss)
    loss = KERNELS["logistic" if logistic else "squared"](kind(1 if logistic else target.loss.curvature_bound))
    prior = (fixed(target.prior_precision), fixed(target.prior_precision * target.prior_mean))
    rest = (fixed(target.y.astype(kind)), *prior, loss, None, None, None)
    if isinstance(target.rows, DenseRows):
        model = layout.DenseModel(fixed(target.rows.X), fixed(target.rows.X.reshape(-1)), *rest)
    else:
        X = target.rows.X  # type: ignore[attr-defined]
        data = X.data[:1] if _same(X.data[:1000]) and _same(X.data) else X.data
        model = layout.SparseModel(
            fixed(data), fixed(X.indices.astype(np.uint32)), fixed(X.indptr.astype(np.uint64)), *rest
        )
    if not second:
        return model
    mode = target.mode()
    predictors = target.rows.predict(mode[None, :])[0]
    taken = _taken(model, predictors, target.row_curvatures(mode))
    return _framed(model)._replace(frame=frames.shift(mode), taken=taken)


def _framed(model: Any) -> Any:
    """The same model for the longer loop."""
    if model.taken is not None:
        return model
    nothing = fixed(np.zeros(0, model.y.dtype))
    return model._replace(inner=fixed(np.zeros(0)), taken=layout.Taken(nothing, nothing, nothing))


def make_frame(whitening: Whitening) -> Any:
    """A whitening in arrays."""
    if isinstance(whitening, DenseWhitening):
        return frames.dense(whitening.factor)
    if isinstance(whitening, LowRankWhitening):
        return frames.low_rank(whitening.scale, whitening.basis, whitening.gain)
    raise requirement("whitening", "dense, diagonal or of low rank", f"a {type(whitening).__name__}")


def _same(values: Any) -> bool:
    """Whether there are values, and all of them are one number."""
    return len(values) > 0 and bool((values == values[0]).all())


def row_bytes(model: Any) -> int:
    """How much is read in a pass over the rows; of a Gaussian, its precisions."""
    return int(model.data.nbytes + model.columns.nbytes if isinstance(model, layout.SparseModel) else model[0].nbytes)


def _taken(model: Any, predictors: Any, curvatures: Any) -> Any:
    """The rows' slopes at t̂ as the loops find them, so that what is left there is 0 to the last digit."""
    kind = model.y.dtype
    t = predictors.astype(kind)
    base = np.zeros_like(t)
    passes.all_slopes(model.loss, t, model.y, base)
    return layout.Taken(fixed(t), fixed(base), fixed(curvatures.astype(kind)))


def _plan(job: Job, model: Any) -> Any:
    target, gradient, schedule = job.target, job.gradient, job.schedule
    svrg = gradient if isinstance(gradient, SVRG) else None
    return layout.Plan(
        n=target.n,
        kind=layout.MINIBATCH if _second(job) else _kind(gradient),
        batch=1 if isinstance(gradient, Full) else gradient.batch_size,  # type: ignore[attr-defined]
        epoch=svrg.period(target.n) if svrg else _NEVER,
        replacement=isinstance(gradient, Full) or gradient.replacement,  # type: ignore[attr-defined]
        remembers=svrg.remembers(target)
        if svrg
        else isinstance(gradient, ControlVariate | SAGA) and target.scalar_parts and not _second(job),
        snapshot_rows=(svrg.snapshot_size or 0) if svrg else 0,
        before=(job.scheme.before, job.scheme.before_noise) != (IDENTITY, SILENT),
        before_normals=normals_of(job.scheme.before_noise),
        first=schedule.first,
        thin=schedule.thin,
        far_rows=row_bytes(model) > _NEAR_BYTES,
        anchored=isinstance(gradient, ControlVariate) and not _second(job),
        second=_second(job),
        saga=isinstance(gradient, SAGA),
        importance=_by_importance(gradient),
    )


def _kind(gradient: Gradient) -> int:
    kinds = {Full: layout.FULL, Minibatch: layout.MINIBATCH}
    return kinds.get(type(gradient), layout.SVRG)


def _table(scheme: Scheme) -> Any:
    parts = ((0.0, 0.0), scheme.before, scheme.before_noise, scheme.kick, scheme.after, scheme.after_noise)
    return np.array([number for part in parts for number in part], np.float64)


def _workspace(model: Any, plan: Any, job: Job) -> Any:
    dim, batch = job.target.dim, plan.batch
    normals = max(1, job.scheme.normals) * dim  # at least as many as the loop reads
    rows = not isinstance(model, layout.GaussianModel)
    kind = model[0].dtype
    half = (normals + 1) // 2
    span = max(1, min(CHUNK_BLOCKS // half, _CHUNK_ROWS // batch, job.schedule.steps))
    drawn = max(batch, plan.snapshot_rows)
    size = max(drawn, dim)
    pad = row_width(model, dim)
    passes = plan.kind != layout.MINIBATCH and not plan.snapshot_rows
    blocks = -(-plan.n // layout.BLOCK) if rows else 1
    counters, tile = np.arange(span, dtype=np.uint32), layout.TILE
    held = layout.Held(
        at=apart(dim, kind),
        snapshot=apart(dim, kind),
        anchor=apart(dim),
        sum=apart(dim, kind),
        memory=apart(1 if plan.anchored or not plan.remembers else plan.n, kind),
        hessian=apart((1, 1)),
        base=apart(dim),
        room=apart(dim),
        normals=apart((3, span * half), kind),
        z=apart(normals, kind),
    )
    sums = layout.Pass(
        partial=apart((blocks if passes else 0, dim)),
        wide=apart(pad, kind),
        tile=apart(pad, kind),
        total=apart(pad),
        t=apart(tile, kind),
        slopes=apart(tile, kind),
    )
    some = layout.Batch(
        rows=apart(span * batch + plan.snapshot_rows, np.int64),
        weights=np.zeros(0, kind),
        u=apart(size, kind),
        t=apart(size, kind),
        labels=apart(size, kind),
        slopes=apart(size, kind),
        then=apart(size, kind),
    )
    draw = layout.Draws(
        steps=np.repeat(counters, batch),
        slots=np.tile(slots_of(Purpose.BATCH, batch), span),
        seen=apart(1 if plan.replacement else 1 << (4 * drawn - 1).bit_length(), np.int64),
        threshold=np.zeros(0, np.uint32),
        alias=np.zeros(0, np.int64),
    )
    noise = noise_room(half, span, kind == np.float64, max(span * batch, plan.snapshot_rows))
    return layout.Workspace(held, sums, some, draw, noise)


def _own_room(sums: Any) -> Any:
    """What a thread writes in its share of a pass; the sums of blocks stay one array."""
    own = {name: apart(array.shape, array.dtype) for name, array in sums._asdict().items() if name != "partial"}
    return sums._replace(**own)
