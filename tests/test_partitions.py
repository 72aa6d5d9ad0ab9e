"""Rows in partitions: passes, weights in whole numbers, gathered rows, and the law of what is drawn from them."""

import bisect
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import svrhmc
from simulated_data import events
from svrhmc import data, dynamics, gradients, targets
from svrhmc.core.errors import WorkersError
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.data import arrays
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.rows.coding import make_coding
from svrhmc.rows.partitions import gather_rows
from svrhmc.rows.reading import Block
from svrhmc.targets import families
from svrhmc.whitening import whitening
from svrhmc.whitening.partitions import scale_words

N, COLUMNS = 600, 3
FAMILIES = {
    "bernoulli": "bernoulli",
    "probit": families.bernoulli("probit"),
    "binomial": "binomial",
    "poisson": "poisson",
    "gaussian, known noise": families.gaussian(0.5),
    "gaussian": "gaussian",
    "student-t": "student-t",
    "negative-binomial": "negative-binomial",
    "gamma": "gamma",
    "categorical": "categorical",
}


def table(n=N, seed=3):
    """Rows with an intercept, an offset and a weight; and labels of every family."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, COLUMNS - 1))])
    more = {"offset": 0.2 * rng.normal(size=n), "weights": rng.integers(1, 4, size=n).astype(float)}
    t = X @ np.array([0.3, 0.5, -0.4])
    happened = events(rng, t).astype(int)
    counts, noise = rng.poisson(np.exp(t)), rng.normal(size=n)
    classes = np.array(["a", "b", "c"])[np.argmax(np.stack([0 * t, t, -t], 1) + rng.gumbel(size=(n, 3)), axis=1)]
    y = dict.fromkeys(FAMILIES, happened) | {
        "poisson": counts,
        "negative-binomial": counts,
        "gaussian": t + 0.7 * noise,
        "gaussian, known noise": t + 0.7 * noise,
        "student-t": t + 0.7 * noise,
        "gamma": np.exp(t) * rng.gamma(3, 1 / 3, size=n),
        "categorical": classes,
    }
    return X, y, more


X, Y, MORE = table()


def both(family, partitions=3, plain=False):
    """A model in memory, and the same in partitions."""
    more = {} if plain else {k: v for k, v in MORE.items() if family != "categorical" or k == "weights"}
    loss = FAMILIES[family]
    tall = targets.glm(data.from_arrays(X, Y[family], partitions=partitions, **more), family=loss)
    return targets.glm(X, Y[family], loss, **more), tall


@pytest.mark.parametrize("family", FAMILIES)
def test_passes_are_the_sums_in_memory(family):
    short, tall = both(family)
    states = short.mode() + 0.1 * np.random.default_rng(0).normal(size=(3, short.dim))
    assert tall.potentials(states) == pytest.approx(short.potentials(states), rel=1e-12)
    assert tall.gradients(states) == pytest.approx(short.gradients(states), rel=1e-11, abs=1e-10)
    assert tall.rows.passes == 1
    assert tall.hessian(states[0]) == pytest.approx(short.hessian(states[0]), rel=1e-11, abs=1e-10)
    one = states[:1]
    assert tall.gradients(one) == pytest.approx(short.gradients(one), rel=1e-11, abs=1e-10)
    assert tall.rows.passes == 2  # the pass of the Hessian had it
    sd = short.laplace().covariance.diagonal() ** 0.5
    assert np.abs(tall.mode() - short.mode()).max() < 1e-8 * sd.min()
    assert tall.laplace().covariance == pytest.approx(short.laplace().covariance, rel=1e-6, abs=1e-12)
    assert list(tall.classes if tall.classes is not None else []) == list(
        short.classes if short.classes is not None else []
    )


@pytest.mark.parametrize("family", ["gaussian", "gaussian, known noise"])
def test_a_gaussian_posterior_is_that_of_a_few_rows(family):
    """Mean and sd against the closed form of all rows, after one pass and a few rows to start from."""
    short, tall = both(family)
    law, other = short.exact_law, tall.exact_law
    sd = np.sqrt(np.diag(law.covariance))
    assert np.abs(other.mean - law.mean).max() < 1e-9 * sd.min()
    assert other.covariance == pytest.approx(law.covariance, rel=1e-9, abs=1e-15)
    assert tall.rows.passes <= 2
    posterior = svrhmc.sample(tall, draws=100)
    assert posterior.method == "closed-form"
    assert np.abs(posterior.mean - law.mean).max() < 1e-9 * sd.min()
    draws = svrhmc.sample(short, draws=100).trace.draws
    assert posterior.trace.draws == pytest.approx(draws, abs=1e-8)
    assert np.abs(svrhmc.sample(short, draws=100, seed=1).trace.draws - draws).max() > 1e-2


# Draws by weight.


def whitened(tall):
    return svrhmc.whitening.whitened(tall)


def by_hand(space, family):
    """q of every row in Python's whole numbers, and the places at which rows begin."""
    lengths, short = space.lengths, both(family)[0]
    form = short.form()
    norms = np.sqrt(((X @ lengths.factor[: X.shape[1]]) ** 2).sum(axis=1))
    assert form.loss.predictor_shape == ()
    t = form.predictors(lengths.centre[None])[0]
    reach = (1 + 1e-3) * lengths.radius * norms
    bounds = np.full(N, lengths.third) if math.isinf(lengths.radius) else form.loss.third_within(t - reach, t + reach)
    weight = MORE["weights"] * bounds * norms**3 * (1 + 1e-9) ** 3
    q = [math.ceil(Fraction(w) * Fraction(lengths.scale)) for w in weight]
    return q, np.cumsum([0, *q], dtype=object), weight


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
@pytest.mark.parametrize("partitions", [1, 4, N])
def test_places_fall_on_rows_as_in_a_table_of_all_of_them(family, partitions):
    space = whitened(both(family, partitions)[1])
    q, begins, weight = by_hand(space, family)
    assert abs(space.total - begins[-1]) <= N  # a length may differ by its last bit
    assert space.total / space.lengths.scale >= weight.sum() * (1 - 1e-12)
    assert 2**48 < space.total < 2**62
    rng = np.random.default_rng(1)
    places = np.sort(rng.integers(0, space.total, size=500, dtype=np.uint64))
    window, at = space.gather(places)
    rows = [bisect.bisect_right(begins, int(place)) - 1 for place in places]
    assert (window.target.rows.X[at] == X[rows]).all()
    assert window.target.form().offset[at] == pytest.approx(MORE["offset"][rows], abs=0)
    assert window.probabilities[at] == pytest.approx(np.array(q, float)[rows] / float(space.total), rel=1e-12)
    assert len(np.unique(window.target.rows.X, axis=0)) == len(window.target.rows.X)  # each is fetched once
    shifted = [
        bisect.bisect_right(begins, int(place)) - 1 for place in (places + np.uint64(space.total // N)) % space.total
    ]
    assert (window.target.rows.X[at] != X[shifted]).any()  # the comparison sees a table that is off by a row


class Counts:
    """Weights that are given: the first column."""

    def evaluate(self, form):
        return form.rows.X[:, 0].astype(np.uint64), None


@pytest.mark.parametrize("rows", [1, 3, 10])
def test_every_place_falls_on_its_row(rows, monkeypatch):
    """Also the first and the last of a row, and none on a row without weight; a block has so many rows."""
    q = np.array([2.0, 0, 1, 3, 0, 0, 4, 1, 0, 2])
    monkeypatch.setattr(arrays, "BLOCK_ENTRIES", 1)
    monkeypatch.setattr(arrays, "max", lambda *_: rows, raising=False)
    found = data.from_arrays(np.column_stack([q, np.arange(10.0)]), np.arange(10) % 2, partitions=1)
    places = np.arange(int(q.sum()), dtype=np.uint64)
    part = gather_rows(found.reader, 0, make_coding(found, families.bernoulli())[0], Counts(), places)
    assert part.rows[part.row_of_place].tolist() == np.repeat(np.arange(10), q.astype(int)).tolist()
    assert part.q.tolist() == q[q > 0].tolist()
    assert part.X[:, 1].tolist() == np.flatnonzero(q).tolist()
    few = np.array([1, 5, 12], np.uint64)
    part = gather_rows(found.reader, 0, make_coding(found, families.bernoulli())[0], Counts(), few)
    assert part.rows[part.row_of_place].tolist() == [0, 3, 9]


def test_weights_are_rounded_up_so_that_they_are_bounds():
    space = whitened(both("bernoulli")[1])
    window, _ = space.gather(np.arange(0, space.total, space.total // 4000, dtype=np.uint64))
    norms = np.sqrt(((window.target.rows.X @ space.lengths.factor) ** 2).sum(axis=1))
    bound = window.target.form().multiply_by_weights(np.full(len(norms), space.lengths.third)) * norms**3
    q = np.rint(window.probabilities * float(space.total))
    assert (q / space.lengths.scale >= bound).all()
    assert not (0.999 * q / space.lengths.scale >= bound).all()  # and no more than rounding asks for


@pytest.mark.parametrize("total", [1, 3, 2**33 + 1, 2**62 - 1])
def test_a_place_is_the_exact_product_of_64_bits(total):
    w0, w1 = Stream(1, np.arange(50)).words(0, Purpose.BATCH, 20)
    w0[0, 0], w1[0, 0] = 2**32 - 1, 2**32 - 1
    expected = [(int(a) * 2**32 + int(b)) * total >> 64 for a, b in zip(w0.ravel(), w1.ravel(), strict=True)]
    assert scale_words(w0, w1, total).ravel().tolist() == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_estimates_from_rows_by_weight_have_the_full_gradient_as_their_mean(family):
    """Σᵢ (qᵢ/Q)·estimateᵢ = ∇f, to rounding, for the probabilities of a table of all rows."""
    short, tall = both(family)
    space = whitened(tall)
    places = np.arange(0, space.total, max(1, space.total // (40 * N)), dtype=np.uint64)
    window, _ = space.gather(places)
    assert window.held == N
    assert window.probabilities.sum() == pytest.approx(1, rel=1e-12)
    z = 0.7 * np.random.default_rng(2).normal(size=(1, space.dim))
    every = np.arange(N)[None, :]
    parts = window.parts(np.repeat(z, N, axis=0), every.T)
    weights = 1 / (N * window.drawn_with(every.T))
    weighed = parts * (weights if parts.ndim == 2 else weights[:, :, None])
    each = window.assemble(weighed, every.T) + window.prior_gradient(np.repeat(z, N, axis=0))
    mean = (each * window.probabilities[:, None]).sum(axis=0)
    full = svrhmc.whitening.whitened(short, space.whitening).gradients(z)[0]
    assert mean == pytest.approx(full, rel=1e-7, abs=1e-7)
    if tall.loss.third_bound != 0:  # else there is nothing left of a row but rounding
        assert np.abs(each.mean(axis=0) - full).max() > 1e-4  # were all rows as likely, it would not be


# The law of the draws.


def tall_logistic(partitions=3, client=None):
    return targets.logistic(data.from_arrays(X, Y["bernoulli"], client, partitions=partitions))


def worst(one, other):
    """The largest |z| of the difference of means and of mean squares."""
    found = []
    for power in (1, 2):
        a, b = (np.mean(t.draws**power, axis=1) for t in (one, other))
        se = np.sqrt(a.var(axis=0, ddof=1) / len(a) + b.var(axis=0, ddof=1) / len(b))
        found.append(np.abs((a.mean(axis=0) - b.mean(axis=0)) / se).max())
    return max(found)


def test_subsampled_metropolis_has_the_law_it_has_in_memory():
    settings = {"chains": 64, "seed": 1, "burn_in": 20}
    tall = SubsampledMH().run(tall_logistic(), 60, **settings)
    short = SubsampledMH().run(targets.logistic(X, Y["bernoulli"]), 60, **settings)
    assert worst(tall, short) < 4.5
    assert tall.acceptance.mean() == pytest.approx(short.acceptance.mean(), abs=0.05)
    assert 0.5 < tall.gradient_evaluations / short.gradient_evaluations < 2
    other = SubsampledMH().run(targets.logistic(X, Y["bernoulli"], 60.0), 60, **settings)
    assert worst(tall, other) > 4.5  # a prior that is a little stronger is seen


def test_split_hmc_draws_what_it_draws_in_memory():
    tall, short = (SplitHMC().run(t, 20, seed=2) for t in (tall_logistic(), targets.logistic(X, Y["bernoulli"])))
    assert tall.draws == pytest.approx(short.draws, abs=1e-9)
    assert (tall.acceptance == short.acceptance).all()
    assert (tall.passes == short.passes).all()


@pytest.mark.parametrize(
    "gradient",
    [
        gradients.Minibatch(8, importance=True),
        gradients.SVRG(8, 5, importance=True),
        gradients.ControlVariate(8, importance=True),
    ],
)
def test_samplers_of_the_grid_run_on_windows(gradient):
    """As on all rows in memory, with the same probabilities, to the noise of batches."""
    sampler = svrhmc.Sampler(dynamics.Anchored(1.0, 1.0, 1.0), gradient)
    settings = {"steps": 150, "chains": 64, "seed": 1, "burn_in": 20, "thin": 3}
    tall = sampler.run(svrhmc.whitening.whitened(tall_logistic()), **settings)
    short = sampler.run(svrhmc.whitening.whitened(targets.logistic(X, Y["bernoulli"])), engine="reference", **settings)
    assert tall.engine == "reference"
    assert worst(tall, short) < 4.5


@pytest.mark.parametrize("gradient", [gradients.Minibatch(8), gradients.SAGA(8)])
def test_what_needs_a_table_of_all_rows_is_refused(gradient):
    sampler = svrhmc.Sampler(dynamics.Anchored(1.0, 1.0, 1.0), gradient)
    with pytest.raises(ValueError, match=r"rows in partitions|no table of all rows"):
        sampler.run(svrhmc.whitening.whitened(tall_logistic()), steps=10)
    with pytest.raises(ValueError, match=r"whitening\.whitened\(target\)"):
        svrhmc.Sampler(dynamics.Anchored(0.01, 1.0, 1.0), gradients.Full()).run(tall_logistic(), steps=10)


@pytest.mark.untraced
def test_draws_do_not_depend_on_how_rows_are_cut():
    settings = {"draws": 200, "seed": 4, "method": "subsampled-mh"}
    one, seven, many = (svrhmc.sample(tall_logistic(k), **settings) for k in (1, 7, 16))
    for other in (seven, many):
        assert np.abs((other.trace.draws - one.trace.draws) / one.sd).max() < 1e-8
        assert np.abs((other.mean - one.mean) / one.sd).max() < 1e-8
    again = svrhmc.sample(tall_logistic(7), **settings)
    assert (again.trace.draws == seven.trace.draws).all()
    assert (svrhmc.sample(tall_logistic(7), **settings | {"seed": 5}).trace.draws != seven.trace.draws).any()


def test_a_mode_takes_few_passes():
    tall = tall_logistic()
    tall.mode()
    assert tall.rows.passes <= 6


# Runs that are cut, budgets and progress.


class Failing(ThreadPoolExecutor):
    """An executor that is gone after some tasks."""

    def __init__(self, tasks):
        super().__init__(1)
        self.left = tasks

    def submit(self, *task):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return super().submit(*task)


@pytest.fixture
def files(tmp_path):
    paths = [str(tmp_path / name) for name in ("X.npy", "y.npy")]
    for path, values in zip(paths, (X, Y["bernoulli"]), strict=True):
        np.save(path, values)
    return paths


@pytest.mark.parametrize("method", ["subsampled-mh", pytest.param("anchored", marks=pytest.mark.slow)])
def test_a_run_that_lost_its_workers_goes_on_with_the_same_draws(files, tmp_path, method):
    def run(client, checkpoint):
        target = targets.logistic(data.from_arrays(*files, client, partitions=3))
        return svrhmc.sample(target, draws=100, method=method, checkpoint=checkpoint)

    with ThreadPoolExecutor(2) as pool:
        whole = run(pool, None)
    for tasks in (7, 12, 17):
        folder = tmp_path / f"run-{tasks}"
        with (
            Failing(tasks) as pool,
            pytest.raises(WorkersError, match=r"in the pass '.* kept in the folder of checkpoint"),
        ):
            run(pool, folder)
        with ThreadPoolExecutor(2) as other:
            cut = run(other, folder)
        assert (cut.trace.draws == whole.trace.draws).all()
        assert (cut.mean == whole.mean).all()


def test_budgets_end_a_run_and_progress_is_told():
    told = []
    posterior = svrhmc.sample(
        tall_logistic(),
        draws=100_000,
        method="split-hmc",
        budget_passes=200,
        progress=lambda *amount: told.append(amount),
    )
    assert not posterior.complete
    assert posterior.passes < 260
    assert told
    assert told[-1][0] <= told[-1][1]


def test_a_stage_says_how_many_partitions_are_done():
    from svrhmc.core import progress

    said = []
    target = tall_logistic(5)
    original = target.rows.partitions.workers.run

    def watched(work, tasks, tell):
        return original(work, tasks, lambda done: (tell(done), said.append(progress._note[0])))

    target.rows.partitions.workers.run = watched
    target.mode()
    assert "sums over all rows, 5 of 5 partitions" in said
    assert progress._note[0] == ""


def test_blocks_of_a_partition_join_as_if_they_were_one(monkeypatch):
    """Blocks are small here, so that several make a partition."""
    from svrhmc.data.arrays import ArraysReader

    original = ArraysReader.read

    def small(self, number):
        for block in original(self, number):
            for low in range(0, len(block.y), 50):
                some = block.choose(slice(low, low + 50))
                yield Block(block.first + low, *some[1:])

    settings = {"draws": 100, "method": "subsampled-mh"}
    one = svrhmc.sample(tall_logistic(2), **settings)
    monkeypatch.setattr(ArraysReader, "read", small)
    other = svrhmc.sample(tall_logistic(2), **settings)
    assert np.abs((other.trace.draws - one.trace.draws) / one.sd).max() < 1e-8


def test_labels_offsets_and_weights_belong_to_the_partitions():
    rows = data.from_arrays(X, Y["bernoulli"])
    with pytest.raises(ValueError, match="y must be None where X is in partitions"):
        targets.logistic(rows, Y["bernoulli"])
    with pytest.raises(ValueError, match="offset must be None where X is in partitions"):
        targets.glm(rows, offset=MORE["offset"])
    with pytest.raises(ValueError, match="y must be the labels of the rows"):
        targets.logistic(X)


def by_importance(target, count=20_000):
    """Mean and sd of a posterior near its Gaussian, with their errors: weighed draws of Student's t about the mode."""
    law, df = target.laplace(), 10
    rng = np.random.default_rng(9)
    normals = rng.normal(size=(count, target.dim))
    z = normals / np.sqrt(rng.chisquare(df, size=(count, 1)) / df)
    x = law.mean + z @ np.linalg.cholesky(law.covariance).T
    log = -target.potentials(x) + (df + target.dim) / 2 * np.log1p((z * z).sum(axis=1) / df)
    w = np.exp(log - log.max())
    w = (w / w.sum())[:, None]
    mean = (w * x).sum(axis=0)
    away = (x - mean) ** 2
    variance = (w * away).sum(axis=0)
    errors = np.sqrt((w**2 * away).sum(axis=0)), np.sqrt((w**2 * (away - variance) ** 2).sum(axis=0) / variance) / 2
    return (mean, np.sqrt(variance)), errors


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_the_posterior_it_has_in_memory(family):
    short, tall = both(family)
    posterior = svrhmc.sample(tall, draws=2000)
    assert posterior.certificate.verdict in ("exact", "certified", "local")
    moments, errors = by_importance(short)
    bias = 0.02 * posterior.sd * (posterior.certificate.verdict != "exact")
    for k, one in enumerate((posterior.mean, posterior.sd)):
        assert (np.abs(one - moments[k]) < 4.5 * np.hypot(posterior.errors[k], errors[k]) + bias).all()
    wrong, more = by_importance(both(family, plain=True)[0])  # without weights and offsets it is another
    assert (np.abs(wrong[1] - posterior.sd) > 4.5 * np.hypot(posterior.errors[1], more[1]) + bias).any()


@pytest.mark.slow
@pytest.mark.parametrize("radius", [1.2, 2.5])
def test_a_step_beyond_the_ball_keeps_the_law(radius):
    """Bounds of Poisson rows hold in a ball; most steps leave the small one, and are made by passes."""
    rows, y = X[:8], np.array([0, 1, 0, 0, 1, 0, 2, 0])  # so few that the law is far from Gaussian
    more = {"prior_precision": 0.5}
    short = targets.glm(rows, y, "poisson", **more)
    tall = targets.glm(data.from_arrays(rows, y, partitions=1), family="poisson", **more)
    settings = {"chains": 64, "burn_in": 10}
    one = SubsampledMH(radius=radius).run(tall, 30, seed=3, **settings)
    other = SplitHMC().run(short, 300, seed=4, **settings)
    assert worst(one, other) < 4.5
    least, most = {1.2: (1280, 2560), 2.5: (100, 1280)}[radius]
    assert least < tall.passes < most + 20  # of 64 × 40 steps
    draws = (
        short.mode()
        + np.random.default_rng(0).normal(size=(64, 300, 3)) @ np.linalg.cholesky(short.laplace().covariance).T
    )
    wrong = replace(other, draws=draws)  # what comes of accepting every proposal
    assert worst(one, wrong) > 4.5


def test_labels_of_one_kind_are_labels():
    """All rows may have the same label: the gradient is that of the rows in memory."""
    X, y = np.array([[0.5], [1.5], [-1.0]]), np.ones(3, int)
    tall, here = targets.logistic(data.from_arrays(X, y, partitions=2)), targets.logistic(X, y)
    assert tall.gradient([0.3]) == pytest.approx(here.gradient([0.3]), rel=1e-12)


@pytest.mark.parametrize("kind", ["diagonal", "low rank", "sparse"])
def test_whitenings_other_than_dense_are_refused_in_words(kind):
    X = np.random.default_rng(0).normal(size=(60, 3))
    target = targets.glm(data.from_arrays(X, X[:, 0] > 0, partitions=3), None, "bernoulli")
    with pytest.raises(ValueError, match=f"whitening must be 'dense' for rows in partitions; got '{kind}'"):
        whitening(target, kind)
