"""Jumps between modes: the law they keep, the draws a seed fixes, and weights of modes that are known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from quadrature import line_moments, moments_of_one_coordinate
from simulated_data import events
from svrhmc import Posterior, fit, sample, targets
from svrhmc.exact import SplitHMC, jumps
from svrhmc.exact.jumps import JumpKernel, Jumps, Regions
from svrhmc.fitting.regression import build_regression
from svrhmc.sampling.modes import Modes
from svrhmc.targets.priors import Laplace, Normal, StudentT
from svrhmc.whitening import whitened, whitening

LIMIT = 4.5  # |z| of all the checks of a test together, beyond which a law is refuted


class Mixture:
    """Σᵢ wᵢN(mᵢ, Cᵢ) as a space of one component, with draws of it."""

    n = 1

    def __init__(self, weights, means, covariances):
        self.weights, self.means, self.covariances = map(np.array, (weights, means, covariances))
        self.dim, self.precisions = self.means.shape[1], np.linalg.inv(self.covariances)

    def _logs(self, z):
        away = z[:, None] - self.means
        pulled = np.einsum("kde,cke->ckd", self.precisions, away)
        logs = np.log(self.weights) - 0.5 * np.linalg.slogdet(self.covariances)[1] - 0.5 * (away * pulled).sum(axis=2)
        return np.logaddexp.reduce(logs, axis=1), logs, pulled

    def potentials(self, z):
        return -self._logs(z)[0]

    def energies(self, z):
        total, logs, pulled = self._logs(z)
        return -total, np.einsum("ck,ckd->cd", np.exp(logs - total[:, None]), pulled)

    def draw(self, rng, count):
        which = rng.choice(len(self.weights), size=count, p=self.weights)
        roots = np.linalg.cholesky(self.covariances)
        return self.means[which] + np.einsum("cde,ce->cd", roots[which], rng.normal(size=(count, self.dim)))


def overlapping():
    """Two wide modes that overlap and a narrow one, in two dimensions."""
    covariances = [[[1.0, 0.5], [0.5, 1.0]], [[0.6, 0.0], [0.0, 2.0]], [[0.04, 0.0], [0.0, 0.01]]]
    return Mixture([0.5, 0.3, 0.2], [[0.0, 0.0], [2.5, 0.5], [-1.0, 4.0]], covariances)


def rough_regions():
    """Centres, widths and masses that are those of no mode: the law must not depend on them."""
    roots = np.array([[[0.8, 0.2], [0.2, 1.1]], [[1.2, 0.0], [0.0, 0.7]], [[0.3, 0.05], [0.05, 0.2]]])
    centres = np.array([[0.2, -0.3], [2.0, 1.0], [-0.8, 3.8]])
    rows, ways = np.array([[1.0, 0.3], [0.2, 1.0]]), np.array([[0.7, 1.0], [0.5, 0.9]])  # each row times its way is 1
    return Regions(centres, roots, np.log([0.2, 0.3, 0.5]), rows, np.array([0.4, -1.0]), ways, np.array([1.5, 1.0]))


def functions(z):
    """Some functions of the state, each of which must keep its mean."""
    return np.column_stack([z, z**2, z[:, :1] * z[:, 1:], np.cos(3 * z), z[:, 1] > 2.5, np.abs(z) < 0.5])


def worst_z(count=25_000, steps=3, halvings=0):
    """The largest |z| of the change of the functions' means, over some steps from draws of the law itself."""
    space = overlapping()
    start = space.draw(np.random.default_rng(5), count)
    chains = Jumps(SplitHMC(0.7, 2, halvings=halvings), rough_regions()).chains(space, 3, np.arange(count), 1, start)
    chains.extend(steps)
    change = functions(chains.state.x) - functions(start)
    return float(np.abs(change.mean(axis=0) / (change.std(axis=0) / np.sqrt(count))).max())


def test_the_law_is_kept_whatever_the_regions_are():
    assert worst_z() < LIMIT


def test_the_law_is_kept_with_halved_steps():
    assert worst_z(halvings=2) < LIMIT


def test_jumps_are_made():
    """Else the law would be kept by standing still."""
    space = overlapping()
    start = np.tile(space.means[2], (400, 1))
    chains = Jumps(SplitHMC(0.7, 2), rough_regions()).chains(space, 3, np.arange(400), 1, start)
    chains.extend(20)
    assert (chains.state.x[:, 1] < 3).mean() > 0.5


def without_determinants(monkeypatch):
    monkeypatch.setattr(Regions, "log_determinant", lambda self, index: np.zeros(len(index)))


def without_proposals(monkeypatch):
    """Modes are proposed in other shares than the acceptance has."""
    drawn, wrong = jumps._draw_indices, np.log([0.6, 0.3, 0.1])

    def other(logs, coins):
        return drawn(logs if logs.strides[0] else 0 * logs + wrong, coins)  # a jump's rows are all the same one

    monkeypatch.setattr(jumps, "_draw_indices", other)


def without_labels(monkeypatch):
    """As if p(i | z) were 1 in the acceptance of both moves."""
    monkeypatch.setattr(Regions, "log_share", lambda self, index, z: (np.zeros(len(z)), np.zeros_like(z)))


def without_the_new_gradient(monkeypatch):
    """f of the state before the jump, which the next draw starts from."""
    jump = JumpKernel._jump
    monkeypatch.setattr(JumpKernel, "_jump", lambda *args: args[-1]._replace(z=jump(*args).z))


def with_other_ways(monkeypatch):
    """A scaling whose determinant is not λ."""
    rough = rough_regions()
    monkeypatch.setitem(globals(), "rough_regions", lambda: replace(rough, ways=1.3 * rough.ways))


@pytest.mark.parametrize(
    "wrong",
    [without_determinants, without_proposals, without_labels, without_the_new_gradient, with_other_ways],
    ids=lambda f: f.__name__,
)
def test_with_a_factor_left_out_it_is_another_law(monkeypatch, wrong):
    wrong(monkeypatch)
    assert worst_z() > LIMIT


def test_pieces_of_a_run_give_the_same_draws():
    space, start = overlapping(), overlapping().draw(np.random.default_rng(0), 4)

    def fresh():
        return Jumps(SplitHMC(), rough_regions()).chains(space, 1, np.arange(4), 1, start)

    whole = fresh().extend(30)
    cut = fresh()
    parts = [cut.extend(count) for count in (1, 12, 17)]
    np.testing.assert_array_equal(whole.draws, np.concatenate([part.draws for part in parts], axis=1))
    np.testing.assert_array_equal(whole.gradients, np.concatenate([part.gradients for part in parts], axis=1))
    np.testing.assert_array_equal(whole.accepted, sum(part.accepted for part in parts))
    flat = whole.draws.reshape(-1, 2)
    np.testing.assert_allclose(whole.gradients.reshape(-1, 2), space.energies(flat)[1], rtol=1e-9)


def test_a_chain_does_not_depend_on_those_beside_it():
    space, start = overlapping(), overlapping().draw(np.random.default_rng(0), 4)
    together = Jumps(SplitHMC(), rough_regions()).chains(space, 1, np.arange(4), 1, start).extend(25)
    alone = Jumps(SplitHMC(), rough_regions()).chains(space, 1, np.array([2]), 1, start[2:3]).extend(25)
    np.testing.assert_array_equal(together.draws[2], alone.draws[0])


def with_modes(target, modes):
    """The same target, told its modes: what is tested here is what happens once they are known."""
    target.modes = lambda: np.array(modes, np.float64)
    return target


def target_of(mixture, order):
    """A mixture as a target of the user's own functions, with its modes in some order, that of the mode first."""

    def gradients(x, indices):
        return np.repeat(mixture.energies(x[None])[1], len(indices), axis=0)

    target = targets.custom(2, mixture.dim, gradients, potential=lambda x: mixture.potentials(x[None])[0])
    target.recall_mode(mixture.means[order[0]])
    return with_modes(target, mixture.means[order])


def far_apart(dim=2):
    """Three modes, 12 and 25 widths of the first away from it, three times as wide and twenty times as narrow."""
    means = np.zeros((3, dim))
    means[1, 0], means[2, -1] = 12.0, -25.0
    return Mixture([0.6, 0.1, 0.3], means, np.array([1.0, 9.0, 0.0025])[:, None, None] * np.eye(dim))


@pytest.mark.parametrize("dim", [1, 2, 20])
def test_modes_of_unequal_widths_have_their_weights_and_moments(dim):
    mixture, order = far_apart(dim), [0, 2, 1]
    posterior = sample(target_of(mixture, order), draws=400, seed=4)
    assert posterior.certificate.verdict == "local"
    assert posterior.modes.error.max() < 0.05
    assert (np.abs(posterior.modes.weight - mixture.weights[order]) < LIMIT * posterior.modes.error).all()
    mean = mixture.weights @ mixture.means
    square = mixture.weights @ (mixture.means**2 + np.diagonal(mixture.covariances, axis1=1, axis2=2))
    assert (np.abs(posterior.mean - mean) < LIMIT * posterior.errors[0]).all()
    assert (np.abs(posterior.sd - np.sqrt(square - mean**2)) < LIMIT * posterior.errors[1]).all()
    np.testing.assert_array_equal(posterior.modes.location, mixture.means[order])
    assert posterior.modes.to_frame().shape == (3, 3 + dim)
    assert "Modes: 3, with weights 0." in str(posterior.summary())


class Interruption(Exception):  # noqa: N818 - no error
    pass


def test_a_seed_fixes_the_draws_whatever_threads_and_interruptions(tmp_path):
    def interrupt(done, total):
        if total >= 400 and done > 0.3 * total:
            raise Interruption

    def target():
        return target_of(far_apart(2), [0, 1, 2])

    whole = sample(target(), draws=200, seed=1, threads=1)
    with pytest.raises(Interruption):
        sample(target(), draws=200, seed=1, progress=interrupt, checkpoint=tmp_path / "run")
    cut = sample(target(), draws=200, seed=1, threads=2, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(whole.trace.draws, cut.trace.draws)
    np.testing.assert_array_equal(whole.mean, cut.mean)
    np.testing.assert_array_equal(whole.modes.weight, cut.modes.weight)


def test_modes_are_kept_in_a_file(tmp_path):
    posterior = sample(target_of(far_apart(1), [0, 1, 2]), draws=100, seed=1)
    posterior.save(tmp_path / "fit.posterior")
    again = Posterior.load(tmp_path / "fit.posterior")
    np.testing.assert_array_equal(again.modes.weight, posterior.modes.weight)
    np.testing.assert_array_equal(again.modes.location, posterior.modes.location)
    assert str(again.modes) == str(posterior.modes)


def test_one_mode_has_no_table_of_modes():
    assert sample(targets.logistic([[1.0], [0.5], [-1.0]], [1, 0, 1]), draws=100).modes is None


def test_weights_are_not_known_where_chains_hardly_move_between_modes():
    shares = np.zeros((4, 400, 2))
    shares[:2, :, 0] = shares[2:, :, 1] = 1.0  # each chain stays where it began
    shares[0, 200:] = [0.0, 1.0]
    found = Modes.of(np.zeros((2, 1)), shares, np.array([0.5, 0.5]))
    assert not found.known
    assert np.isnan(found.weight).all()
    assert "too seldom" in found.doubt
    assert "not known" in str(found)
    assert found.arrivals.tolist() == [0, 1]


def test_a_mode_that_no_chain_reached_leaves_no_weight_known_unless_it_is_rare():
    label = np.random.default_rng(0).integers(0, 2, size=(4, 400))
    shares = np.stack([label == 0, label == 1, label == 2], axis=2).astype(float)
    assert not Modes.of(np.zeros((3, 1)), shares, np.array([0.4, 0.4, 0.2])).known
    rare = Modes.of(np.zeros((3, 1)), shares, np.array([0.5, 0.5, 1e-9]))
    assert rare.known
    assert rare.weight[2] == 0
    assert 0 < rare.error[2] < 1e-3


def spiky(prior, rows=1000):
    """Rows that say 1.7, and a prior with a spike at 0: two modes."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(rows, 1))
    y = events(rng, 1.7 * X[:, 0])
    return targets.glm(X, y, "bernoulli", prior=prior)


def quadrature(target, low, high, count=4001):
    """Mean and sd of one coordinate, on a grid that is finer at 0."""
    grid = np.sort(np.concatenate([np.linspace(low, high, count), np.linspace(-0.02, 0.02, count)]))
    return moments_of_one_coordinate(target, grid)


def test_a_spike_of_the_prior_does_not_hide_the_mode_of_the_data():
    """Where a chain begins at the spike it leaves it: the spike has next to no mass."""
    target = spiky(StudentT(5, 0.001))
    posterior = sample(with_modes(target, [[0.00023], [1.633]]), draws=400, seed=2)
    mean, sd = quadrature(target, -1.0, 4.0)
    assert posterior.modes.weight[0] == pytest.approx(0, abs=1e-6)
    assert abs(posterior.mean[0] - mean) < LIMIT * posterior.errors[0][0]
    assert abs(posterior.sd[0] - sd) < LIMIT * posterior.errors[1][0]


@pytest.mark.untraced
def test_a_spike_with_most_of_the_mass_leaves_the_rest_to_the_mode_of_the_data():
    target = spiky(StudentT(5, 0.001), rows=200)
    posterior = sample(with_modes(target, [[0.00004], [1.2735]]), draws=1000, seed=2)
    mean, sd = quadrature(target, -1.0, 4.0)
    assert abs(posterior.modes.weight[0] - 0.975) < LIMIT * posterior.modes.error[0]
    assert abs(posterior.mean[0] - mean) < LIMIT * posterior.errors[0][0]
    assert abs(posterior.sd[0] - sd) < LIMIT * posterior.errors[1][0]


def one_count(y, prior):
    """A row with y events; with y = 1 rows and prior have their peak at the same place, one far wider than the other."""
    return targets.glm([[1.0]], [y], "poisson", prior=prior)


@pytest.mark.parametrize(
    ("prior", "peaked"),
    [
        (StudentT(1, 0.02), True),
        (StudentT(2, 0.02), True),
        (StudentT(1, 0.5), False),  # no peak
        (StudentT(8, 0.02), False),  # whose foot holds 10⁻⁹
        (Laplace(0.02), False),
        (Normal(2500.0), False),
    ],
    ids=str,
)
def test_a_peak_above_a_wide_foot_is_known(prior, peaked):
    target = one_count(1, prior)
    location, wider = target.feet(target.mode())
    assert (location, wider[0] > 5) == (0.0, peaked)
    if peaked:
        rows, own = 1.0, (prior.df + 1) / (prior.df * prior.scale**2)  # curvatures at 0
        assert wider[0] == pytest.approx(np.sqrt((rows + own) / rows))


@pytest.mark.untraced
@pytest.mark.parametrize("y", [1, 4])
def test_the_foot_of_a_peak_is_sampled(y):
    """With steps of the peak's width alone, the sd at y = 1 was half as large as it is, and said to be known to 7%."""
    target = one_count(y, StudentT(1, 0.02))
    points = np.unique(np.concatenate([np.linspace(-30, 6, 20_001), 0.02 * np.linspace(-40, 40, 8001)]))
    mean, sd = moments_of_one_coordinate(target, points)
    for seed in range(2):
        posterior = sample(target, 400, seed=seed)
        assert posterior.certificate.verdict == "local"
        assert abs(posterior.mean[0] - mean) < LIMIT * posterior.errors[0][0]
        assert abs(posterior.sd[0] - sd) < LIMIT * posterior.errors[1][0]
        assert posterior.errors[1][0] < 0.5 * sd


@pytest.mark.filterwarnings("ignore:The model contradicts")  # a spike is such a prior
@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_a_spike_in_a_formula_leaves_the_slope_its_two_places(unit):
    """Twelve rows under a Cauchy prior of scale 0.01: a fifth of the posterior is in the spike, by quadrature over the
    intercept and the slope.
    """
    rng = np.random.default_rng(12)
    x = unit * rng.normal(size=12)
    y = 0.5 + 1.4 * x / unit + rng.normal(size=12)
    known = {"prior": StudentT(1, 0.01 / unit), "noise_variance": 1.0}
    made = build_regression(x[:, None], y, "gaussian", names=["x"], **known)
    step = np.array([[[0.0, 0.0], [0.0, 1.0]]])
    factor = np.diff(made.units.outward(step)[0, :, 1])[0]  # of the slope, out of standardised variables
    peak = 0.01 / unit / factor
    slopes = np.unique(np.concatenate([np.linspace(-100, 300, 801) * peak, peak * np.sinh(np.linspace(-7, 7, 401))]))
    means = np.linspace(-1.5, 1.5, 61)
    grid = np.stack([each.ravel() for each in np.meshgrid(means, slopes, indexing="ij")], axis=1)
    f = made.target.potentials(grid).reshape(61, -1)
    mean, sd = line_moments(slopes, -logsumexp(-f, axis=0))
    posterior = fit("y ~ x", {"x": x, "y": y}, "gaussian", draws=300, seed=1, **known)
    assert posterior.certificate.verdict == "local"
    assert abs(posterior.mean[1] - mean * factor) < LIMIT * posterior.errors[0][1]
    assert abs(posterior.sd[1] - sd * factor) < LIMIT * posterior.errors[1][1]


def test_functions_in_jax_and_rows_of_a_family_make_the_same_draws():
    """One posterior in two forms: f and ∇f differ by rounding, and so do the draws."""
    import jax
    import jax.numpy as jnp

    rows = spiky(StudentT(5, 0.001), rows=200)
    X, y = np.asarray(rows.form().rows.X), np.asarray(rows.form().y) > 0

    def log_likelihood(x, row):
        return row[1] * row[0] * x[0] - jax.nn.softplus(row[0] * x[0])

    functions = targets.model(
        log_likelihood, lambda x: -3 * jnp.log1p((x[0] / 0.001) ** 2 / 5), np.column_stack([X[:, 0], y]), np.zeros(1)
    )
    modes, how = np.array([[0.00004], [1.2735]]), whitening(rows)
    spaces = [whitened(target, how) for target in (rows, functions)]
    where = jumps.find_regions(spaces[0], modes)
    start = where.out(np.array([0, 1, 0, 1]), np.full((4, 1), 0.5))
    first, second = (Jumps(SplitHMC(), where).chains(space, 5, np.arange(4), 1, start).extend(40) for space in spaces)
    np.testing.assert_allclose(first.draws, second.draws, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(first.accepted, second.accepted)
    labels = np.exp(where.log_shares(first.draws.reshape(-1, 1))).argmax(axis=1)
    assert 0 < labels.mean() < 1
