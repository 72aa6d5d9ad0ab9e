"""The compiled engine: what it runs, chains across threads, and the grid in arrays that compiled code reads.

One compiled call runs a piece of the work of a tenth of a second; between pieces Python shows progress and hears an
interrupt. Neither pieces nor threads change a digit. Where chains of the grid are fewer than threads and the rows many,
the threads share each pass over all rows; no digit changes. What else is compiled (`split.py`, `subsampled.py`,
`gathered.py`) says so itself, by `runs`.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from threading import Event, Lock
from typing import Any, Generic, NamedTuple, TypeVar, cast, overload
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Reals, Values
from svrhmc.core.errors import DivergenceError
from svrhmc.core.randomness import Purpose, Stream, slot_counters
from svrhmc.dynamics import Scheme, normals_of
from svrhmc.engines import base
from svrhmc.engines.base import (
    EVERY,
    NONE,
    STEPS_PER_KEY,
    Chains,
    Engine,
    Extension,
    Keep,
    Pace,
    Reasons,
    Report,
    Setup,
    State,
    concatenate_extensions,
    no_report,
)
from svrhmc.families.base import Loss
from svrhmc.gradients import NEVER, Memory, Recipe
from svrhmc.kernels import frames, layout, loop, passes, priors, triangular
from svrhmc.kernels.layout import ROOM, Models, Noise
from svrhmc.kernels.rows import fixed
from svrhmc.rows.base import Rows
from svrhmc.rows.forms import QuadraticForm, RowsForm

Number = TypeVar("Number", bound=np.generic)
Workspace = TypeVar("Workspace")  # the arrays that one thread writes to


class Call(ABC, Generic[Workspace]):
    """Chains of a sampler on their way from a state, which is copied, to the step `end`.

    team: how many chains are moved in step; None where they are moved one after another.
    """

    team: int | None = None

    def __init__(self, state: State, end: int) -> None:
        self.begin, self.end, self.x = state.step, end, state.x.copy()

    @property
    def last_step(self) -> int:
        """The step at which to stop: `end`, or an earlier one if a chain diverged."""
        return self.end

    @abstractmethod
    def workspace(self) -> Workspace:
        """The arrays that one thread writes to."""

    @abstractmethod
    def advance(self, workspace: Workspace, chains: tuple[int, int], steps: tuple[int, int]) -> None:
        """Run the chains of one range through the steps of another."""

    def share_passes(self, threads: int, report: Report) -> bool:
        """Run chains one after another, with each pass over the rows on all threads, if that is faster; return whether
        it was done.
        """
        return False

    @abstractmethod
    def finish(self) -> tuple[State, Extension]:
        """The state at the end and the draws; an error if a chain diverged."""


class CompiledKernel(ABC):
    """A sampler on a target, as arrays that compiled code reads."""

    @abstractmethod
    def call(self, state: State, end: int, keep: Keep) -> Call[Any]:
        """A call that takes chains from a state to the step `end`."""

    @abstractmethod
    def empty_memory(self) -> Memory:
        """The memory of a state without chains, as for `Chains.empty_memory`."""

    def call_without_steps(self, state: State) -> Call[Any]:
        """A call for which everything is compiled or loaded, but no step is made."""
        return self.call(state, state.step, NONE)

    def fetch_until(self, state: State, end: int) -> int:
        """Fetch the rows that the chains need next; return the step, at most `end`, up to which they are in memory."""
        return end


class CompiledChains(Chains):
    """Chains whose steps are made by `svrhmc.kernels`."""

    engine = "numba"

    def __init__(self, setup: Setup, state: State, kernel: CompiledKernel) -> None:
        self.setup, self.state, self.kernel = setup, state, kernel

    def compile(self) -> None:
        """Compile the loop, or load it, by a call without chains and steps."""
        call = self.kernel.call_without_steps(self.state)
        call.advance(call.workspace(), (0, 0), (call.begin, call.begin))

    def empty_memory(self) -> Memory:
        return self.kernel.empty_memory()

    def extend(self, count: int, keep: Keep = EVERY, report: Report = no_report) -> Extension:
        """In calls of which none crosses a multiple of 2³² steps, where the keys of the stream change."""
        now, end = self.state, self.state.step + count
        parts: list[Extension] = []
        while now.step < end or not parts:
            last_step = min(self.kernel.fetch_until(now, end), (now.step // STEPS_PER_KEY + 1) * STEPS_PER_KEY)
            call = self.kernel.call(now, last_step, keep)
            self._run(call, report)
            now, part = call.finish()
            parts.append(part)
        self.state = now if count else self.state
        return concatenate_extensions(parts)

    def _run(self, call: Call[Workspace], report: Report) -> None:
        chains, available = len(call.x), self.setup.threads
        threads = min(available, chains)
        if available > threads and call.share_passes(available, report):
            return
        teams = Teams(chains, available, call.end - call.begin, call.team)

        def work(report_steps: Report) -> None:
            workspace, clock = call.workspace(), Pace()
            for first, last in teams.take(clock):
                step, chains_at_once = call.begin, last - first
                while step < (end := call.last_step) and not teams.stopping.is_set():
                    to_the_end = call.team is None and chains_at_once > 1
                    piece = end if to_the_end else min(end, step + max(1, clock.steps // chains_at_once))
                    began = time.perf_counter()
                    call.advance(workspace, (first, last), (step, piece))
                    clock.learn(chains_at_once * (piece - step), time.perf_counter() - began)
                    report_steps(chains_at_once * (piece - step))
                    step = piece

        run_on_threads(work, threads, report, teams.stopping)


class MetropolisCall(Call[Workspace]):
    """A call of a sampler with a Metropolis step, whose loop stores every draw.

    draws: (chains, steps, dim). gradients: ∇f at the draws, or None if it is not known. counts: the number of rows
    evaluated, by chain and step.
    """

    gradients: Array | None = None
    counts: Indices

    def __init__(self, state: State, end: int, keep: Keep) -> None:
        super().__init__(state, end)
        self._state, self._keep = state, keep
        self.draws = np.empty((len(self.x), end - state.step, self.x.shape[1]))
        self.accepted = np.zeros(len(self.x), np.int64)

    def memory(self) -> Memory:
        """What the chains carry from one step to the next besides z."""
        return {}

    def finish(self) -> tuple[State, Extension]:
        """The state at the end, and the draws that `keep` chooses."""
        state, chains = self._state, len(self.x)
        evaluated = round(state.spent * chains) + np.cumsum(self.counts.sum(axis=0))
        kept = self._keep.within(self.begin, self.end) - self.begin - 1
        chosen = slice(None) if len(kept) == self.end - self.begin else kept
        extension = Extension(
            draws=self.draws[:, chosen],
            spent=evaluated[kept] / chains,
            evaluations=int(self.counts.sum()),
            gradients=None if self.gradients is None else self.gradients[:, chosen],
            accepted=self.accepted,
            counts=self.counts,
        )
        spent = float(evaluated[-1] / chains) if len(evaluated) else state.spent
        return State(self.x, state.v, self.memory(), self.end, spent), extension


class Teams:
    """Chains that are still to be run, which threads take in teams.

    size: the number of chains in a team; None to fill a piece of work, with few enough that every thread gets a team.
    """

    def __init__(self, chains: int, threads: int, steps: int, size: int | None = None) -> None:
        self.stopping = Event()
        self._chains, self._threads, self._steps, self._size = chains, threads, max(1, steps), size
        self._lock, self._next = Lock(), 0

    def take(self, clock: Pace) -> Iterator[tuple[int, int]]:
        """Ranges (first, end) of the chains to run next, until none is left."""
        while not self.stopping.is_set():
            with self._lock:
                first, remaining = self._next, self._chains - self._next
                size = self._size or max(1, min(clock.steps // self._steps, remaining // (2 * self._threads)))
                self._next += min(size, remaining)
            if remaining < 1:
                return
            yield first, first + min(size, remaining)


def run_on_threads(work: Callable[[Report], None], threads: int, report: Report, stopped: Event) -> None:
    """Run `work` on each thread; an interrupt sets `stopped`, after which threads end when their piece is done."""
    if threads == 1:
        work(report)
        return
    done, reported = [0] * threads, 0

    def run(thread: int) -> None:
        def report_steps(amount: int) -> None:
            done[thread] += amount

        try:
            work(report_steps)
        except BaseException:
            stopped.set()
            raise

    with ThreadPoolExecutor(threads) as pool:
        futures: list[Future[None]] = [pool.submit(run, thread) for thread in range(threads)]
        try:
            waiting = set(futures)
            while waiting:
                _, waiting = wait(waiting, timeout=base.PIECE_SECONDS)
                now = sum(done)
                if now > reported:
                    report(now - reported)
                reported = now
        finally:
            stopped.set()
    for future in futures:
        future.result()


CHUNK_BLOCKS = 512  # random blocks made together: enough for vector code, little enough for the cache
_PADDING_BYTES = 128


@overload
def padded_zeros(shape: int | tuple[int, ...]) -> Array: ...
@overload
def padded_zeros(shape: int | tuple[int, ...], kind: np.dtype[Number] | type[Number]) -> npt.NDArray[Number]: ...
def padded_zeros(shape: int | tuple[int, ...], kind: np.dtype[np.generic] | type[np.generic] = np.float64) -> Values:
    """Zeros with a cache line to spare on both sides, so that two threads never write to the same one."""
    size = math.prod(shape if isinstance(shape, tuple) else (shape,))
    spare = _PADDING_BYTES // np.dtype(kind).itemsize
    return np.zeros(size + 2 * spare, kind)[spare : spare + size].reshape(shape)


def row_width(model: Models, dim: int) -> int:
    """The most numbers of a row that a pass reads for one predictor."""
    return int(np.diff(model.layout.begin).max()) if isinstance(model, layout.Model) else dim


def state_width(model: Models, dim: int) -> int:
    """How many numbers a pass reads of a state."""
    return int(model.layout.begin[-1]) if isinstance(model, layout.Model) else dim


def entry_kind(model: Models) -> np.dtype[np.floating]:
    """The type of the entries of the rows, or of the quadratics."""
    return (model.rows[0] if isinstance(model, layout.Model) else model.S).dtype


def make_noise(half: int, span: int, fine: bool = True, words: int = 0) -> Noise:
    """Buffers for the normals of `span` steps of `half` random blocks each, with at least `words` random words."""
    counters = np.arange(span, dtype=np.uint32)
    return Noise(
        steps=np.repeat(counters, half),
        slots=np.tile(slot_counters(Purpose.NOISE, half), span),
        fine_slots=np.tile(slot_counters(Purpose.NOISE_FINE, half if fine else 0), span),
        words=padded_zeros((4, max(words, span * half)), np.uint32),
    )


def make_chunk_noise(dim: int) -> Noise:
    """Buffers for the normals of as many steps as are drawn together."""
    half = (dim + 1) // 2
    return make_noise(half, max(1, CHUNK_BLOCKS // half))


_models: WeakKeyDictionary[RowsForm | QuadraticForm, Models] = WeakKeyDictionary()
_plain_models: WeakKeyDictionary[Rows, list[tuple[tuple[object, ...], Loss, layout.Model]]] = WeakKeyDictionary()


def make_model(form: RowsForm | QuadraticForm) -> Models:
    """A form as arrays; made once for each form, because the removed orders take a pass over the rows."""
    if form not in _models:
        _models[form] = MAKERS[form.kind](form)
    return _models[form]


def _of_rows(form: RowsForm) -> layout.Model:
    """Rows in the user's variables, or in whitened ones without the orders that were removed at the mode."""
    model, whitening, removed = plain_model(form), form.whitening, form.removed
    if whitening is None or removed is None:
        return model
    dim = form.rows.dim
    return model._replace(
        prior=fixed(np.ones(dim) if removed.second_order else np.zeros(dim)),
        prior_force=fixed(removed.force),
        frame=make_frame(whitening),
        inner=fixed(form.prior_precision),
        **_offsets_at(model, removed.predictors, removed.slopes, removed.curvatures)._asdict(),
        heavy=make_heavy(form, whitening.centre, 2 if removed.second_order else 1),
    )


def _of_quadratics(form: QuadraticForm) -> layout.GaussianModel:
    none = fixed(np.zeros(len(form.mean_force)))
    return layout.GaussianModel(
        S=fixed(form.precision[None] if form.shared else form.precision),
        forces=fixed(form.forces),
        mean_precision=fixed(form.mean_precision),
        mean_force=fixed(form.mean_force),
        prior=none,
        prior_force=none,
        frame=None,
    )


MAKERS: dict[str, Callable[[Any], Models]] = {"rows": _of_rows, "quadratic": _of_quadratics}


def plain_model(form: RowsForm) -> layout.Model:
    """The rows in the user's variables, with no order removed; made once for the same rows, labels, loss and prior."""
    models = _plain_models.setdefault(form.rows, [])
    parts = (form.y, form.prior_precision, form.prior_mean, form.offset, form.weights, form.heavy)
    for known_parts, loss, model in models:
        if loss == form.loss and all(part is known for part, known in zip(parts, known_parts, strict=True)):
            return model
    kind = form.rows.dtype.type
    number = np.float64 if form.loss.predictor_shape else kind
    added = np.zeros((0, 0)) if form.offset is None else form.offset[:, None]
    rows = form.rows.design_matrix
    model = layout.Model(
        rows=rows.compiled,
        layout=rows.compiled.layout(form.loss.windows(rows.dim), rows.dim, kind),
        y=fixed(form.y.astype(number)),
        prior=fixed(form.prior_precision),
        prior_force=fixed(form.prior_precision * form.prior_mean),
        loss=form.loss.record(number),
        frame=None,
        inner=None,
        taken=None,
        added=fixed(added.astype(number)),
        weights=None if form.weights is None else fixed(form.weights.astype(number)),
        heavy=make_heavy(form, 0.0, 0),
    )
    models.append((parts, form.loss, model))
    return model


def second_order_model(form: RowsForm, mode: Array) -> layout.Model:
    """Rows in the user's variables less their first two orders at the mode."""
    model = with_longer_loop(plain_model(form))
    predictors = form.predictors(mode[None, :])[0]
    offsets = _offsets_at(model, predictors, form.slopes(predictors), form.curvatures(predictors))
    return model._replace(frame=frames.shift(mode), **offsets._asdict(), heavy=make_heavy(form, mode, 0))


def make_heavy(form: RowsForm, centre: Array | float, orders: int) -> priors.Heavy | None:
    """Priors that are not normal, relative to a centre, without the first `orders` derivatives there; None if all
    priors are normal.
    """
    heavy = form.heavy
    if heavy is None:
        return None
    x = np.broadcast_to(centre, form.prior_mean.shape)
    derivatives = (heavy.slope(x), heavy.curvature(x))
    removed = [derivative[heavy.columns] * (orders > k) for k, derivative in enumerate(derivatives)]
    location = heavy.location - x[heavy.columns]
    parts = (heavy.columns, heavy.kinds, location, heavy.scale, heavy.shape, *removed)
    return priors.Heavy(*map(fixed, parts))


def with_longer_loop(model: Models) -> layout.Model:
    """The same model for the longer loop, which also has SAGA and rows drawn by weight."""
    assert isinstance(model, layout.Model)  # of quadratics there is no other loop
    if model.taken is not None:
        return model
    nothing = (fixed(np.zeros((0,) * axes, model.y.dtype)) for axes in (2, 3))
    return model._replace(inner=fixed(np.zeros(0)), taken=layout.Taken(*nothing))


def row_shape(model: Models) -> tuple[int, ...]:
    """The shape of what is stored for a row: (m,) for its m predictors; () for a quadratic."""
    return (len(model.layout.first),) if isinstance(model, layout.Model) else ()


def row_lines(model: Models) -> tuple[int, ...]:
    """The leading shape of buffers for predictors of several rows, with lines for intermediate results."""
    return tuple(2 * m + ROOM for m in row_shape(model))


def slope_kind(model: Models) -> np.dtype[np.floating]:
    """The type of stored slopes: float64 where a row has several."""
    return model.y.dtype if isinstance(model, layout.Model) else entry_kind(model)


STORED = ("dense", "sparse")
FRAMES: dict[str, Callable[[Any], frames.Frame]] = {
    "dense": lambda whitening: frames.dense(whitening.factor),
    "low rank": lambda whitening: frames.low_rank(whitening.scale, whitening.basis, whitening.gain),
    "sparse": lambda whitening: triangular.called_by_address(whitening.frame),
}


def make_frame(whitening: Any) -> frames.Frame:
    """A whitening as arrays."""
    return FRAMES[whitening.kind](whitening)


def row_bytes(model: Models) -> int:
    """How many bytes a pass over the rows reads; for quadratics, the bytes of their precisions."""
    return sum(np.asarray(part).nbytes for part in (model.rows if isinstance(model, layout.Model) else (model.S,)))


def stored_entries(model: Models) -> int:
    """How many entries of X are stored; 0 for quadratics, whose pass is one product."""
    return max(np.size(part) for part in model.rows) if isinstance(model, layout.Model) else 0


class _Offsets(NamedTuple):
    """What is added to the predictors of rows, and what is subtracted from their slopes."""

    added: Reals
    taken: layout.Taken


def _offsets_at(model: layout.Model, predictors: Array, slopes: Array, curvatures: Array) -> _Offsets:
    """The predictors t̂ at the mode, which are added, and the slopes there, which are subtracted. In float32 the slopes
    are computed by compiled code, so that the difference at u = 0 is exactly 0; in float64 they are those of NumPy, for
    which nothing has to be compiled.
    """
    kind, (m,) = model.y.dtype, row_shape(model)
    t, base = fixed(predictors.astype(kind).reshape(-1, m)), slopes.astype(kind, copy=False).reshape(-1, m)
    if kind == np.float32:
        base, buffers = np.zeros_like(t), (np.empty((lines, layout.TILE), kind) for lines in (*row_lines(model), m))
        passes.all_slopes(model.loss, model.y, t, model.weights, *buffers, base)
    return _Offsets(t, layout.Taken(fixed(base), fixed(curvatures.astype(kind).reshape(-1, m, m))))


_CHUNK_ROWS = 2048
_NEAR_BYTES = 1 << 20  # rows beyond this are asked for a step ahead


def make_plan(recipe: Recipe, scheme: Scheme, model: Models, second: bool) -> layout.Plan:
    """A recipe and a scheme as numbers; `second` if the first two orders at the mode were removed from the rows."""
    kind = layout.FULL if recipe.full else layout.MINIBATCH if recipe.reference == "none" or second else layout.SVRG
    return layout.Plan(
        n=recipe.n,
        kind=kind,
        batch=recipe.batch or 1,
        epoch=recipe.period,
        replacement=recipe.replacement,
        remembers=recipe.remembers and not second,
        snapshot_rows=recipe.snapshot_rows,
        before=scheme.moves_before,
        before_normals=normals_of(scheme.before_noise),
        first=1,
        thin=1,
        far_rows=row_bytes(model) > _NEAR_BYTES,
        anchored=recipe.reference == "mode" and not second,
        second=second,
        saga=recipe.reference == "table",
        importance=recipe.weighted,
    )


def make_table(scheme: Scheme) -> Array:
    """The sixteen numbers in the order in which the loop reads them, with no kick before the gradient."""
    parts = ((0.0, 0.0), scheme.before, scheme.before_noise, scheme.kick, scheme.after, scheme.after_noise)
    return np.array([number for part in parts for number in part], np.float64)


def make_memory(model: Models, chains: int, dim: int, columns: int) -> layout.Memory:
    """Arrays for what chains remember, with a column for each row whose slope is stored."""
    table = np.zeros((chains, columns), slope_kind(model))
    return layout.Memory(np.zeros((chains, dim)), np.zeros((chains, dim)), table)


def make_workspace(model: Models, plan: layout.Plan, dim: int, vectors: int, steps: int) -> layout.Workspace:
    """The workspace of one thread; each of at most `steps` steps draws `vectors` vectors of normals."""
    batch = plan.batch
    normals = max(1, vectors) * dim  # at least as many as the loop reads
    kind, slopes, shape = entry_kind(model), slope_kind(model), row_shape(model)
    half = (normals + 1) // 2
    span = max(1, min(CHUNK_BLOCKS // half, _CHUNK_ROWS // batch, steps))
    drawn = max(batch, plan.snapshot_rows)
    size = max(drawn, dim)
    pad, wide = row_width(model, dim), state_width(model, dim)
    passes = not plan.snapshot_rows
    blocks = 1 if isinstance(model, layout.GaussianModel) else -(-plan.n // layout.BLOCK)
    counters, tile = np.arange(span, dtype=np.uint32), layout.TILE
    held = layout.Held(
        at=padded_zeros(dim, kind),
        snapshot=padded_zeros(dim, kind),
        anchor=padded_zeros(dim),
        sum=padded_zeros(dim, kind),
        memory=padded_zeros(1 if plan.anchored or not plan.remembers else plan.n * math.prod(shape), slopes),
        hessian=padded_zeros((1, 1)),
        base=padded_zeros(dim),
        room=padded_zeros(dim),
        extra=padded_zeros(dim),
        normals=padded_zeros((3, span * half), kind),
        z=padded_zeros(normals, kind),
    )
    sums = None  # batches alone, or beside the mode, need no pass, and none is compiled for them
    if plan.kind != layout.MINIBATCH and not plan.anchored:
        sums = layout.Pass(
            partial=padded_zeros((blocks if passes else 0, dim)),
            wide=padded_zeros(wide, kind),
            tile=padded_zeros(pad, kind),
            total=padded_zeros(wide),
            t=padded_zeros((*row_lines(model), tile), slopes),
            slopes=padded_zeros((*shape, tile), slopes),
            labels=padded_zeros(tile, slopes),
            numbers=padded_zeros(tile, np.int64),
            value=padded_zeros(1),
        )
    batch_buffers = layout.Batch(
        rows=padded_zeros(span * batch + plan.snapshot_rows, np.int64),
        weights=np.zeros(0, kind),
        u=padded_zeros(wide, kind),
        t=padded_zeros((*row_lines(model), size), slopes),
        labels=padded_zeros((*shape, size), slopes),
        slopes=padded_zeros((*shape, size), slopes),
        then=padded_zeros((*shape, size), slopes),
    )
    draw = layout.Draws(
        steps=np.repeat(counters, batch),
        slots=np.tile(slot_counters(Purpose.BATCH, batch), span),
        seen=padded_zeros(1 if plan.replacement else 1 << (4 * drawn - 1).bit_length(), np.int64),
        threshold=np.zeros(0, np.uint32),
        alias=np.zeros(0, np.int64),
    )
    noise = make_noise(half, span, kind == np.float64, max(span * batch, plan.snapshot_rows))
    return layout.Workspace(held, sums, batch_buffers, draw, noise)


def copy_for_thread(sums: layout.Pass) -> layout.Pass:
    """Buffers of a thread for its share of a pass; the sums of blocks stay one array for all threads."""
    buffers = {
        name: padded_zeros(array.shape, array.dtype) for name, array in sums._asdict().items() if name != "partial"
    }
    return sums._replace(**buffers)


_SHARED_PASS = 1 << 19  # entries of X from which a pass is worth the hand-over to other threads


class GridKernel(CompiledKernel):
    """A setup as arrays: what every call of compiled code reads."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        form, recipe = setup.form, setup.sampler.recipe
        second = recipe.order == 2 and form.whitening is None  # whitened rows have that order removed already
        self.model: Models = second_order_model(form, setup.target.mode()) if second else make_model(form)
        if recipe.reference == "table" or recipe.weighted:
            self.model = with_longer_loop(self.model)
        self.plan = make_plan(recipe, setup.sampler.scheme, self.model, second)
        self.table = make_table(setup.sampler.scheme)
        self.stream = Stream(setup.seed, setup.chains)
        self.nothing = make_memory(self.model, 0, 0, 0)

    @property
    def passes_are_large(self) -> bool:
        """Whether passes over all rows are made, and long enough to be shared."""
        plan = self.plan
        none = plan.kind == layout.MINIBATCH or plan.anchored or plan.saga or plan.snapshot_rows
        return not none and stored_entries(self.model) >= _SHARED_PASS

    def workspace(self, steps: int) -> layout.Workspace:
        """The workspace of one thread, with the arrays that all threads read."""
        setup = self.setup
        work = make_workspace(self.model, self.plan, setup.target.dim, setup.sampler.scheme.normals, steps)
        work = work._replace(**{name: getattr(work, name)._replace(**fields) for name, fields in self._shared.items()})
        if self.plan.anchored or self.plan.second:
            work.held.anchor[:] = work.held.base
        return work

    @cached_property
    def _shared(self) -> dict[str, dict[str, Values]]:
        """Arrays that every thread reads: the mode with the derivatives there, and the alias table."""
        target, recipe, kind = self.setup.target, self.setup.sampler.recipe, entry_kind(self.model)
        held: dict[str, Values] = {}
        shared: dict[str, dict[str, Values]] = {"held": held}
        if recipe.reference == "mode":
            mode = target.mode()[None, :]
            held["base"] = (target.gradients(mode) - target.prior_gradient(mode))[0]
            if self.plan.anchored:
                held["snapshot"] = mode[0].astype(kind)
            if self.plan.anchored and self.plan.remembers:
                held["memory"] = (target.parts(mode, None)[0] / target.n).astype(slope_kind(self.model)).reshape(-1)
            if self.plan.second:
                held["hessian"] = target.expansion(mode[0]).hessian
        if recipe.weighted:
            threshold, alias, probability = target.row_table
            shared["draw"] = {"threshold": threshold, "alias": alias}
            shared["batch"] = {"weights": (1 / (target.n * probability)).astype(kind)}
        return shared

    def memory(self, chains: int) -> layout.Memory:
        """Arrays for what the chains remember."""
        recipe = self.setup.sampler.recipe
        columns = recipe.n * math.prod(row_shape(self.model)) if recipe.keeps_table(len(self.setup.chains)) else 0
        return make_memory(self.model, chains, self.setup.target.dim, columns)

    def empty_memory(self) -> Memory:
        """The snapshot, its gradient, and the slopes of the rows if they are stored."""
        recipe = self.setup.sampler.recipe
        return _to_memory(self.memory(0), recipe.remembers) if recipe.carries else {}

    def call(self, state: State, end: int, keep: Keep) -> Call[Any]:
        return GridCall(self, state, end, keep)

    def diverged(self, chain: int, step: int) -> DivergenceError:
        """The error for a chain whose numbers are no longer finite after a step."""
        size = self.setup.sampler.step_size
        return DivergenceError(int(self.setup.chains[chain]), step, size, size / 4)


class GridCall(Call[layout.Workspace]):
    """A call of the grid; what a chain remembers is loaded at its first step, and stored at its last."""

    def __init__(self, kernel: GridKernel, state: State, end: int, keep: Keep) -> None:
        super().__init__(state, end)
        self.kernel, self.recipe, self.v = kernel, kernel.setup.sampler.recipe, state.v.copy()
        self.kept = keep.within(state.step, end)
        self.draws = np.empty((len(self.x), len(self.kept), self.x.shape[1]))
        self.plan = kernel.plan._replace(first=int(self.kept[0]) if len(self.kept) else NEVER, thin=keep.thin)
        self.fresh = self.recipe.carries and not state.memory
        self.old = self.new = kernel.nothing
        if self.recipe.carries:
            self.old = kernel.nothing if self.fresh else _from_memory(kernel.model, state.memory)
            self.new = kernel.memory(len(self.x))
        self._lock = Lock()
        self._diverged: tuple[int, int] | None = None  # (step, place of the chain): the earliest so far

    @property
    def last_step(self) -> int:
        """`end`, or the step of a divergence: only an earlier one can still change which error is raised."""
        return self.end if self._diverged is None else min(self.end, self._diverged[0])

    def workspace(self) -> layout.Workspace:
        """Arrays for one chain at a time."""
        return self.kernel.workspace(self.end - self.begin)

    def finish(self) -> tuple[State, Extension]:
        """The state at the end, and the draws that were kept."""
        if self._diverged is not None:
            raise self.kernel.diverged(self._diverged[1], self._diverged[0])
        memory = _to_memory(self.new, self.recipe.remembers) if self.recipe.carries else {}
        spent = self.recipe.evaluations(np.r_[self.begin, self.kept, self.end])
        state = State(self.x, self.v, memory, self.end, float(spent[-1]))
        return state, Extension(self.draws, spent[1:-1].astype(float), int(spent[-1] - spent[0]) * len(self.x))

    def advance(self, workspace: layout.Workspace, chains: tuple[int, int], steps: tuple[int, int]) -> None:
        """Chain by chain; one that diverges stops, and the others go on."""
        first, last = chains
        while True:
            reason, chain, reached = self.loop(workspace, (first, last), steps)
            if reason != layout.DIVERGED:
                return
            self._note(chain, reached)
            if (first := chain + 1) >= last:
                return

    def share_passes(self, threads: int, report: Report) -> bool:
        """If there are passes over all rows, and many rows."""
        if self.kernel.passes_are_large:
            self._share_passes(threads, report)
        return self.kernel.passes_are_large

    def _share_passes(self, threads: int, report: Report) -> None:
        kernel, work = self.kernel, self.workspace()
        held, sums = work.held, work.sums
        assert sums is not None  # as passes are made
        buffers = [copy_for_thread(sums) for _ in range(threads)]
        cuts = np.linspace(0, len(sums.partial), threads + 1).astype(int)
        with ThreadPoolExecutor(threads) as pool:

            def pass_over_blocks(buffer: layout.Pass, low: int, high: int) -> None:
                passes.share_pass(kernel.model, held.at, low, high, buffer, held.memory, self.plan.remembers)

            def pass_on_all_threads() -> None:
                held.snapshot[:] = held.at
                list(pool.map(pass_over_blocks, buffers, cuts[:-1], cuts[1:]))
                passes.join_shares(kernel.model, sums.partial, held.room, held.anchor)

            for chain in range(len(self.x)):
                self._run_chain(work, chain, pass_on_all_threads, report)

    def _run_chain(
        self, work: layout.Workspace, chain: int, pass_on_all_threads: Callable[[], None], report: Report
    ) -> None:
        step, passed, pace = self.begin, False, Pace()
        while step < self.last_step:
            piece = min(self.last_step, step + pace.steps)
            began = time.perf_counter()
            reason, _, reached = self.loop(work, (chain, chain + 1), (step, piece), passed, outside=True)
            pace.learn(reached - step, time.perf_counter() - began)
            passed = reason == layout.PASS_DUE
            report(reached - step)
            step = reached
            if reason == layout.PASS_DUE:
                pass_on_all_threads()
            elif reason == layout.DIVERGED:
                self._note(chain, reached)

    def loop(
        self,
        work: layout.Workspace,
        chains: tuple[int, int],
        steps: tuple[int, int],
        passed: bool = False,
        outside: bool = False,
    ) -> tuple[int, int, int]:
        """Call the compiled loop; return why it ended, with which chain, and how many steps that chain has made."""
        k0, k1 = self.kernel.stream.keys(steps[0] >> 32)
        begins, ends = steps[0] == self.begin, steps[1] == self.end
        flags = layout.Flags(
            fresh=begins and self.fresh,
            load=begins and self.recipe.carries and not self.fresh,
            store=ends and self.recipe.carries,
            passed=passed,
            outside=outside,
        )
        result: tuple[int, int, int] = loop.advance(
            self.kernel.model, self.plan, self.kernel.table, *work, k0, k1, self.x, self.v, self.draws,
            self.old, self.new, chains, steps, flags,
        )  # fmt: skip
        return result

    def _note(self, chain: int, step: int) -> None:
        with self._lock:
            self._diverged = min(self._diverged or (step, chain), (step, chain))


def _from_memory(model: Models, memory: Memory) -> layout.Memory:
    """What chains remember, as the loop reads it."""
    empty = np.zeros((len(memory["anchor"]), 0), slope_kind(model))
    return layout.Memory(memory["snapshot"], memory["anchor"], memory.get("table", empty))


def _to_memory(memory: layout.Memory, remembers: bool) -> Memory:
    """What the loop wrote, by name."""
    table = {"table": memory.table} if remembers and memory.table.shape[1] else {}
    return cast(Memory, {"snapshot": memory.snapshot, "anchor": memory.anchor, **table})


class Compiled(Engine):
    """Rows and quadratics, compiled by Numba."""

    name = "numba"

    def supports(self, sampler: Any, density: Any) -> str | None:
        """Forms of rows and quadratics whose loss, storage and map are compiled."""
        runner = _RUNNERS.get(sampler.kind)
        return self.lacks(sampler, density, {} if runner is None else {sampler.kind: runner.reasons(self)})

    def lacks_compiled(self, form: RowsForm) -> str | None:
        """Why rows are not run by any compiled code of the grid or of split HMC."""
        return self.lacks_rows(form, STORED, FRAMES)

    def chains(self, setup: Setup, state: State) -> Chains:
        return CompiledChains(setup, state, _RUNNERS[setup.sampler.kind].make(setup))


class Runner(NamedTuple):
    """How the kernel of a kind of sampler is made, and why the engine does not run a form, by kind of form."""

    make: Callable[[Setup], CompiledKernel]
    reasons: Callable[[Compiled], Reasons]


_RUNNERS: dict[str, Runner] = {}  # by kind of sampler
Maker = TypeVar("Maker", bound=Callable[[Setup], CompiledKernel])


def runs(kind: str, reasons: Callable[[Compiled], Reasons]) -> Callable[[Maker], Maker]:
    """Register a function or class as the one that makes the kernel of a kind of sampler."""

    def register(make: Maker) -> Maker:
        _RUNNERS[kind] = Runner(make, reasons)
        return make

    return register


def lacks_map(form: RowsForm) -> str | None:
    """Why a sampler that runs in whitened variables does not run on a form."""
    return "its chains run in whitened variables" if form.whitening is None else None


def _lacks_for_quadratics(sampler: Any, form: QuadraticForm) -> str | None:
    recipe = sampler.recipe
    if recipe.remembers:
        return "what is remembered of the components of a quadratic has no compiled form"
    if recipe.order == 2 or recipe.weighted:
        return "second order, and rows drawn by weight, are for models with a linear predictor"
    return None


def _grid_reasons(engine: Compiled) -> Reasons:
    def of_rows(sampler: object, form: RowsForm) -> str | None:
        return engine.lacks_compiled(form) or engine.lacks_order(sampler, form)

    return {"rows": of_rows, "quadratic": _lacks_for_quadratics}


runs("grid", _grid_reasons)(GridKernel)
