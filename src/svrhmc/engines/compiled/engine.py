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
Room = TypeVar("Room")  # of one thread


class Call(ABC, Generic[Room]):
    """Some chains of a sampler on their way from a state, which is copied, to an end.

    team: how many are moved in step; None where they are moved one after another.
    """

    team: int | None = None

    def __init__(self, state: State, end: int) -> None:
        self.begin, self.end, self.x = state.step, end, state.x.copy()

    @property
    def last(self) -> int:
        """The step up to which it is worth to go."""
        return self.end

    @abstractmethod
    def room(self) -> Room:
        """Room for the chains that one thread runs at a time."""

    @abstractmethod
    def advance(self, room: Room, chains: tuple[int, int], steps: tuple[int, int]) -> None:
        """One piece of some chains."""

    def share_passes(self, threads: int, report: Report) -> bool:
        """Run chains one after another, each pass over the rows on all threads, where that is better: whether it is."""
        return False

    @abstractmethod
    def finish(self) -> tuple[State, Extension]:
        """Where the chains are at the end, and what they made; an error where one has left the finite numbers."""


class CompiledKernel(ABC):
    """A sampler on a target, in arrays that compiled code reads."""

    @abstractmethod
    def call(self, state: State, end: int, keep: Keep) -> Call[Any]:
        """Chains in a state, to an end."""

    @abstractmethod
    def empty_memory(self) -> Memory:
        """Arrays of the right sizes, for the memory of a state, as `Chains.empty_memory` has them."""

    def blank(self, state: State) -> Call[Any]:
        """Chains that make no step, to compile for."""
        return self.call(state, state.step, NONE)

    def until(self, state: State, end: int) -> int:
        """Up to which step, at most `end`, all is at hand that the chains need; it is fetched first."""
        return end


class CompiledChains(Chains):
    """Chains whose steps are made by `svrhmc.kernels`."""

    engine = "numba"

    def __init__(self, setup: Setup, state: State, kernel: CompiledKernel) -> None:
        self.setup, self.state, self.kernel = setup, state, kernel

    def compile(self) -> None:
        """Compile the loop, or load it, by running no chain for no step."""
        call = self.kernel.blank(self.state)
        call.advance(call.room(), (0, 0), (call.begin, call.begin))

    def empty_memory(self) -> Memory:
        return self.kernel.empty_memory()

    def extend(self, count: int, keep: Keep = EVERY, report: Report = no_report) -> Extension:
        """Stretch by stretch, never across a multiple of 2³² steps, where the keys of the stream change."""
        now, end = self.state, self.state.step + count
        parts: list[Extension] = []
        while now.step < end or not parts:
            until = min(self.kernel.until(now, end), (now.step // STEPS_PER_KEY + 1) * STEPS_PER_KEY)
            call = self.kernel.call(now, until, keep)
            self._run(call, report)
            now, part = call.finish()
            parts.append(part)
        self.state = now if count else self.state
        return concatenate_extensions(parts)

    def _run(self, call: Call[Room], report: Report) -> None:
        chains, wanted = len(call.x), self.setup.threads
        threads = min(wanted, chains)
        if wanted > threads and call.share_passes(wanted, report):
            return
        teams = Teams(chains, wanted, call.end - call.begin, call.team)

        def work(tell: Report) -> None:
            room, clock = call.room(), Pace()
            for first, last in teams.take(clock):
                step, chains_at_once = call.begin, last - first
                while step < (end := call.last) and not teams.stopping.is_set():
                    whole = call.team is None and chains_at_once > 1
                    piece = end if whole else min(end, step + max(1, clock.steps // chains_at_once))
                    began = time.perf_counter()
                    call.advance(room, (first, last), (step, piece))
                    clock.learn(chains_at_once * (piece - step), time.perf_counter() - began)
                    tell(chains_at_once * (piece - step))
                    step = piece

        share(work, threads, report, teams.stopping)


class MetropolisCall(Call[Room]):
    """Of a sampler with proposals, whose loop keeps every draw.

    draws: (chains, steps, dim). gradients: ∇f at them, where it is known. counts: rows evaluated, by chain and step.
    """

    gradients: Array | None = None
    counts: Indices

    def __init__(self, state: State, end: int, keep: Keep) -> None:
        super().__init__(state, end)
        self._state, self._keep = state, keep
        self.draws = np.empty((len(self.x), end - state.step, self.x.shape[1]))
        self.accepted = np.zeros(len(self.x), np.int64)

    def memory(self) -> Memory:
        """What the chains carry besides z."""
        return {}

    def finish(self) -> tuple[State, Extension]:
        """Every draw, or those that are kept."""
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
    """Chains that are still to be run, of which threads take some at a time.

    size: how many; None for as many as a piece has steps of, out of few enough that all threads have some.
    """

    def __init__(self, chains: int, threads: int, steps: int, size: int | None = None) -> None:
        self.stopping = Event()
        self._chains, self._threads, self._steps, self._size = chains, threads, max(1, steps), size
        self._lock, self._next = Lock(), 0

    def take(self, clock: Pace) -> Iterator[tuple[int, int]]:
        """The next chains, from one to before another, until none is left."""
        while not self.stopping.is_set():
            with self._lock:
                first, left = self._next, self._chains - self._next
                size = self._size or max(1, min(clock.steps // self._steps, left // (2 * self._threads)))
                self._next += min(size, left)
            if left < 1:
                return
            yield first, first + min(size, left)


def share(work: Callable[[Report], None], threads: int, report: Report, stopped: Event) -> None:
    """The work on some threads; an interrupt sets `stopped`, and they end after their present piece."""
    if threads == 1:
        work(report)
        return
    done, reported = [0] * threads, 0

    def count(place: int) -> None:
        def tell(amount: int) -> None:
            done[place] += amount

        try:
            work(tell)
        except BaseException:
            stopped.set()
            raise

    with ThreadPoolExecutor(threads) as pool:
        futures: list[Future[None]] = [pool.submit(count, place) for place in range(threads)]
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
_APART = 128  # bytes


@overload
def apart(shape: int | tuple[int, ...]) -> Array: ...
@overload
def apart(shape: int | tuple[int, ...], kind: np.dtype[Number] | type[Number]) -> npt.NDArray[Number]: ...
def apart(shape: int | tuple[int, ...], kind: np.dtype[np.generic] | type[np.generic] = np.float64) -> Values:
    """Zeros with a cache line to spare on both sides, so that two threads never write to the same one."""
    size = math.prod(shape if isinstance(shape, tuple) else (shape,))
    spare = _APART // np.dtype(kind).itemsize
    return np.zeros(size + 2 * spare, kind)[spare : spare + size].reshape(shape)


def row_width(model: Models, dim: int) -> int:
    """To how many numbers a pass reads a row, at most."""
    return int(np.diff(model.layout.begin).max()) if isinstance(model, layout.Model) else dim


def state_width(model: Models, dim: int) -> int:
    """Numbers of a state as a pass reads it."""
    return int(model.layout.begin[-1]) if isinstance(model, layout.Model) else dim


def entry_kind(model: Models) -> np.dtype[np.floating]:
    """The type of entries of rows, or of quadratics."""
    return (model.rows[0] if isinstance(model, layout.Model) else model.S).dtype


def noise_room(half: int, span: int, fine: bool = True, words: int = 0) -> Noise:
    """Counters and words for the normals of `span` steps of `half` random blocks each; room for `words` at least."""
    counters = np.arange(span, dtype=np.uint32)
    return Noise(
        steps=np.repeat(counters, half),
        slots=np.tile(slot_counters(Purpose.NOISE, half), span),
        fine_slots=np.tile(slot_counters(Purpose.NOISE_FINE, half if fine else 0), span),
        words=apart((4, max(words, span * half)), np.uint32),
    )


def chunk_noise(dim: int) -> Noise:
    """Room for the normals of as many steps as are made together."""
    half = (dim + 1) // 2
    return noise_room(half, max(1, CHUNK_BLOCKS // half))


_models: WeakKeyDictionary[RowsForm | QuadraticForm, Models] = WeakKeyDictionary()
_made: WeakKeyDictionary[Rows, list[tuple[tuple[object, ...], Loss, layout.Model]]] = WeakKeyDictionary()  # and of what


def make_model(form: RowsForm | QuadraticForm) -> Models:
    """A form in arrays; made once for each form, because what was taken out of the rows takes a pass over them."""
    if form not in _models:
        _models[form] = MAKERS[form.kind](form)
    return _models[form]


def _of_rows(form: RowsForm) -> layout.Model:
    """Rows in the user's variables, or in whitened ones with what was taken out of them."""
    model, whitening, removed = plain_model(form), form.whitening, form.removed
    if whitening is None or removed is None:
        return model
    dim = form.rows.dim
    return model._replace(
        prior=fixed(np.ones(dim) if removed.second_order else np.zeros(dim)),
        prior_force=fixed(removed.force),
        frame=make_frame(whitening),
        inner=fixed(form.prior_precision),
        **_taken(model, removed.predictors, removed.slopes, removed.curvatures)._asdict(),
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
    """The rows in the user's variables, with nothing taken out; made once for the same rows, labels, loss and prior."""
    models = _made.setdefault(form.rows, [])
    parts = (form.y, form.prior_precision, form.prior_mean, form.offset, form.weights, form.heavy)
    for others, loss, model in models:
        if loss == form.loss and all(one is other for one, other in zip(parts, others, strict=True)):
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
    model = longer(plain_model(form))
    predictors = form.predictors(mode[None, :])[0]
    taken = _taken(model, predictors, form.slopes(predictors), form.curvatures(predictors))
    return model._replace(frame=frames.shift(mode), **taken._asdict(), heavy=make_heavy(form, mode, 0))


def make_heavy(form: RowsForm, centre: Array | float, orders: int) -> priors.Heavy | None:
    """Priors that are not normal, around a centre, less so many orders there besides their value; None without any."""
    heavy = form.heavy
    if heavy is None:
        return None
    at = np.broadcast_to(centre, form.prior_mean.shape)
    derivatives = (heavy.slope(at), heavy.curvature(at))
    removed = [derivative[heavy.columns] * (orders > k) for k, derivative in enumerate(derivatives)]
    away = heavy.location - at[heavy.columns]
    parts = (heavy.columns, heavy.kinds, away, heavy.scale, heavy.shape, *removed)
    return priors.Heavy(*map(fixed, parts))


def longer(model: Models) -> layout.Model:
    """The same model for the longer loop, which knows of SAGA and of rows drawn by weight."""
    assert isinstance(model, layout.Model)  # of quadratics there is no other loop
    if model.taken is not None:
        return model
    nothing = (fixed(np.zeros((0,) * axes, model.y.dtype)) for axes in (2, 3))
    return model._replace(inner=fixed(np.zeros(0)), taken=layout.Taken(*nothing))


def row_shape(model: Models) -> tuple[int, ...]:
    """Of what is kept of a row: the numbers of its predictors, (m,); of a quadratic ()."""
    return (len(model.layout.first),) if isinstance(model, layout.Model) else ()


def row_lines(model: Models) -> tuple[int, ...]:
    """Of the predictors of several rows: a line for each predictor and some room."""
    return tuple(2 * m + ROOM for m in row_shape(model))


def slope_kind(model: Models) -> np.dtype[np.floating]:
    """The type of slopes that are kept: float64 where a row has several."""
    return model.y.dtype if isinstance(model, layout.Model) else entry_kind(model)


STORED = ("dense", "sparse")
FRAMES: dict[str, Callable[[Any], frames.Frame]] = {
    "dense": lambda how: frames.dense(how.factor),
    "low rank": lambda how: frames.low_rank(how.scale, how.basis, how.gain),
    "sparse": lambda how: triangular.called_by_address(how.frame),
}


def make_frame(whitening: Any) -> frames.Frame:
    """A whitening in arrays."""
    return FRAMES[whitening.kind](whitening)


def row_bytes(model: Models) -> int:
    """How much is read in a pass over the rows; of quadratics, their precisions."""
    return sum(np.asarray(part).nbytes for part in (model.rows if isinstance(model, layout.Model) else (model.S,)))


def stored_entries(model: Models) -> int:
    """Entries of X that are stored; none of quadratics, whose pass is one product."""
    return max(np.size(part) for part in model.rows) if isinstance(model, layout.Model) else 0


class _Offsets(NamedTuple):
    """What is added to the products of rows, and what is taken from their slopes."""

    added: Reals
    taken: layout.Taken


def _taken(model: layout.Model, predictors: Array, slopes: Array, curvatures: Array) -> _Offsets:
    """What is added to products, t̂, and what is taken from slopes there: in float32 as the loops find them, so that
    what is left at u = 0 is 0 to the last digit; in float64 those of NumPy, for which nothing is compiled.
    """
    kind, (m,) = model.y.dtype, row_shape(model)
    t, base = fixed(predictors.astype(kind).reshape(-1, m)), slopes.astype(kind, copy=False).reshape(-1, m)
    if kind == np.float32:
        base, room = np.zeros_like(t), (np.empty((lines, layout.TILE), kind) for lines in (*row_lines(model), m))
        passes.all_slopes(model.loss, model.y, t, model.weights, *room, base)
    return _Offsets(t, layout.Taken(fixed(base), fixed(curvatures.astype(kind).reshape(-1, m, m))))


_CHUNK_ROWS = 2048
_NEAR_BYTES = 1 << 20  # rows beyond this are asked for a step ahead


def make_plan(recipe: Recipe, scheme: Scheme, model: Models, second: bool) -> layout.Plan:
    """A recipe and a scheme as numbers; `second` where the first two orders at the mode were taken out of the rows."""
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
    """Room for what chains remember, with a column for each row whose slope is kept."""
    table = np.zeros((chains, columns), slope_kind(model))
    return layout.Memory(np.zeros((chains, dim)), np.zeros((chains, dim)), table)


def make_workspace(model: Models, plan: layout.Plan, dim: int, vectors: int, steps: int) -> layout.Workspace:
    """Room for one thread; `vectors` of normals are drawn at each step, of which there are at most `steps`."""
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
        at=apart(dim, kind),
        snapshot=apart(dim, kind),
        anchor=apart(dim),
        sum=apart(dim, kind),
        memory=apart(1 if plan.anchored or not plan.remembers else plan.n * math.prod(shape), slopes),
        hessian=apart((1, 1)),
        base=apart(dim),
        room=apart(dim),
        extra=apart(dim),
        normals=apart((3, span * half), kind),
        z=apart(normals, kind),
    )
    sums = None  # batches alone, or beside the mode, need no pass, and none is compiled for them
    if plan.kind != layout.MINIBATCH and not plan.anchored:
        sums = layout.Pass(
            partial=apart((blocks if passes else 0, dim)),
            wide=apart(wide, kind),
            tile=apart(pad, kind),
            total=apart(wide),
            t=apart((*row_lines(model), tile), slopes),
            slopes=apart((*shape, tile), slopes),
            labels=apart(tile, slopes),
            numbers=apart(tile, np.int64),
            value=apart(1),
        )
    some = layout.Batch(
        rows=apart(span * batch + plan.snapshot_rows, np.int64),
        weights=np.zeros(0, kind),
        u=apart(wide, kind),
        t=apart((*row_lines(model), size), slopes),
        labels=apart((*shape, size), slopes),
        slopes=apart((*shape, size), slopes),
        then=apart((*shape, size), slopes),
    )
    draw = layout.Draws(
        steps=np.repeat(counters, batch),
        slots=np.tile(slot_counters(Purpose.BATCH, batch), span),
        seen=apart(1 if plan.replacement else 1 << (4 * drawn - 1).bit_length(), np.int64),
        threshold=np.zeros(0, np.uint32),
        alias=np.zeros(0, np.int64),
    )
    noise = noise_room(half, span, kind == np.float64, max(span * batch, plan.snapshot_rows))
    return layout.Workspace(held, sums, some, draw, noise)


def own_room(sums: layout.Pass) -> layout.Pass:
    """What a thread writes in its share of a pass; the sums of blocks stay one array."""
    own = {name: apart(array.shape, array.dtype) for name, array in sums._asdict().items() if name != "partial"}
    return sums._replace(**own)


_SHARED_PASS = 1 << 19  # entries of X from which a pass is worth the hand-over to other threads


class GridKernel(CompiledKernel):
    """A setup in arrays: what every call of compiled code reads."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        form, recipe = setup.form, setup.sampler.recipe
        second = recipe.order == 2 and form.whitening is None  # else that order is taken out already
        self.model: Models = second_order_model(form, setup.target.mode()) if second else make_model(form)
        if recipe.reference == "table" or recipe.weighted:
            self.model = longer(self.model)
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
        """Room for one thread, with what all threads read."""
        setup = self.setup
        work = make_workspace(self.model, self.plan, setup.target.dim, setup.sampler.scheme.normals, steps)
        work = work._replace(**{name: getattr(work, name)._replace(**fields) for name, fields in self._shared.items()})
        if self.plan.anchored or self.plan.second:
            work.held.anchor[:] = work.held.base
        return work

    @cached_property
    def _shared(self) -> dict[str, dict[str, Values]]:
        """Arrays that every thread reads: the mode with what is known there, and the alias table."""
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
        """Room for what so many chains remember."""
        recipe = self.setup.sampler.recipe
        columns = recipe.n * math.prod(row_shape(self.model)) if recipe.keeps_table(len(self.setup.chains)) else 0
        return make_memory(self.model, chains, self.setup.target.dim, columns)

    def empty_memory(self) -> Memory:
        """The snapshot, its gradient, and slopes of the rows where they are kept."""
        recipe = self.setup.sampler.recipe
        return _to_memory(self.memory(0), recipe.remembers) if recipe.carries else {}

    def call(self, state: State, end: int, keep: Keep) -> Call[Any]:
        return GridCall(self, state, end, keep)

    def diverged(self, chain: int, step: int) -> DivergenceError:
        """The error for a chain that left the finite numbers in a step."""
        size = self.setup.sampler.step_size
        return DivergenceError(int(self.setup.chains[chain]), step, size, size / 4)


class GridCall(Call[layout.Workspace]):
    """Chains on their way; what they remember enters where a chain begins, and leaves where it ends."""

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
    def last(self) -> int:
        """Steps to make: all, or as many as could still diverge earlier than a chain that has."""
        return self.end if self._diverged is None else min(self.end, self._diverged[0])

    def room(self) -> layout.Workspace:
        """For one chain at a time."""
        return self.kernel.workspace(self.end - self.begin)

    def finish(self) -> tuple[State, Extension]:
        """What was kept on the way."""
        if self._diverged is not None:
            raise self.kernel.diverged(self._diverged[1], self._diverged[0])
        memory = _to_memory(self.new, self.recipe.remembers) if self.recipe.carries else {}
        spent = self.recipe.evaluations(np.r_[self.begin, self.kept, self.end])
        state = State(self.x, self.v, memory, self.end, float(spent[-1]))
        return state, Extension(self.draws, spent[1:-1].astype(float), int(spent[-1] - spent[0]) * len(self.x))

    def advance(self, room: layout.Workspace, chains: tuple[int, int], steps: tuple[int, int]) -> None:
        """Chain by chain; one that diverges stops, and the others go on."""
        first, last = chains
        while True:
            reason, chain, reached = self.loop(room, (first, last), steps)
            if reason != layout.DIVERGED:
                return
            self._note(chain, reached)
            if (first := chain + 1) >= last:
                return

    def share_passes(self, threads: int, report: Report) -> bool:
        """Where rows are many, and passed over."""
        if self.kernel.passes_are_large:
            self._share_passes(threads, report)
        return self.kernel.passes_are_large

    def _share_passes(self, threads: int, report: Report) -> None:
        kernel, work = self.kernel, self.room()
        held, sums = work.held, work.sums
        assert sums is not None  # as passes are made
        sharers = [own_room(sums) for _ in range(threads)]
        cuts = np.linspace(0, len(sums.partial), threads + 1).astype(int)
        with ThreadPoolExecutor(threads) as pool:

            def part(own: layout.Pass, low: int, high: int) -> None:
                passes.share_pass(kernel.model, held.at, low, high, own, held.memory, self.plan.remembers)

            def everyone() -> None:
                held.snapshot[:] = held.at
                list(pool.map(part, sharers, cuts[:-1], cuts[1:]))
                passes.join_shares(kernel.model, sums.partial, held.room, held.anchor)

            for chain in range(len(self.x)):
                self._run_chain(work, chain, everyone, report)

    def _run_chain(self, work: layout.Workspace, chain: int, everyone: Callable[[], None], report: Report) -> None:
        step, passed, pace = self.begin, False, Pace()
        while step < self.last:
            piece = min(self.last, step + pace.steps)
            began = time.perf_counter()
            reason, _, reached = self.loop(work, (chain, chain + 1), (step, piece), passed, outside=True)
            pace.learn(reached - step, time.perf_counter() - began)
            passed = reason == layout.PASS_DUE
            report(reached - step)
            step = reached
            if reason == layout.PASS_DUE:
                everyone()
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
        """One call: why it ended, the chain that it ended with, and how many steps that has made."""
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
    """What chains carry, as the loop reads it."""
    empty = np.zeros((len(memory["anchor"]), 0), slope_kind(model))
    return layout.Memory(memory["snapshot"], memory["anchor"], memory.get("table", empty))


def _to_memory(kept: layout.Memory, remembers: bool) -> Memory:
    """What the loop wrote, by name."""
    table = {"table": kept.table} if remembers and kept.table.shape[1] else {}
    return cast(Memory, {"snapshot": kept.snapshot, "anchor": kept.anchor, **table})


class Compiled(Engine):
    """Rows and quadratics, compiled by Numba."""

    name = "numba"

    def supports(self, sampler: Any, density: Any) -> str | None:
        """Forms that have arrays, with losses, storages and maps that are compiled."""
        runner = _RUNNERS.get(sampler.kind)
        return self.lacks(sampler, density, {} if runner is None else {sampler.kind: runner.reasons(self)})

    def lacks_compiled(self, form: RowsForm) -> str | None:
        """Why rows are not run by any compiled code of the grid or of split HMC."""
        return self.lacks_rows(form, STORED, FRAMES)

    def chains(self, setup: Setup, state: State) -> Chains:
        return CompiledChains(setup, state, _RUNNERS[setup.sampler.kind].make(setup))


class Runner(NamedTuple):
    """What makes the kernel of a kind of sampler, and by kind of form why the engine does not run it."""

    make: Callable[[Setup], CompiledKernel]
    reasons: Callable[[Compiled], Reasons]


_RUNNERS: dict[str, Runner] = {}  # by kind of sampler
Maker = TypeVar("Maker", bound=Callable[[Setup], CompiledKernel])


def runs(kind: str, reasons: Callable[[Compiled], Reasons]) -> Callable[[Maker], Maker]:
    """Say of a function or class that it makes the kernel of a kind of sampler."""

    def noted(make: Maker) -> Maker:
        _RUNNERS[kind] = Runner(make, reasons)
        return make

    return noted


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
