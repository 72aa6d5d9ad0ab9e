"""The certificate measures what it says: Stein's identities, moments corrected by them, step-halving, the verdict."""

import inspect
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import svrhmc
from conftest import LIMIT
from svrhmc import Sampler, targets
from svrhmc import dynamics as every_dynamics
from svrhmc.checkpoint import InMemory
from svrhmc.core.deadline import Budget
from svrhmc.diagnostics import standard_error
from svrhmc.dynamics import (
    BAOAB,
    IDENTITY,
    UBU,
    Anchored,
    Dynamics,
    EulerMaruyama,
    Exponential,
    Overdamped,
    StepNoise,
    Underdamped,
    pushed,
    step_noise,
)
from svrhmc.gradients import SAGA, SVRG, ControlVariate, Full, Minibatch
from svrhmc.rows.forms import FunctionsForm
from svrhmc.sampling.bias import Pairs, plan_of, settling_steps
from svrhmc.sampling.certificate import Bias, Certificate, Chance, Measured, judge, judge_invariant, unmeasured
from svrhmc.sampling.correction import Correction, correction, stein_bias
from svrhmc.sampling.doubts import (
    effective_draws,
    largest_r_hat,
    longest_stay,
    settling_doubt,
    tail_draws,
)
from svrhmc.sampling.gradients import FreshGradients
from svrhmc.sampling.tails import density_tail_doubt, tails_by_density
from svrhmc.theory import stationary
from svrhmc.whitening import dense_whitening, whitened

KINDS = [
    kind
    for kind in vars(every_dynamics).values()
    if inspect.isclass(kind) and issubclass(kind, Dynamics) and not inspect.isabstract(kind)
]
PRECISION = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.5]])


def biased_draws(shift, stretch, noise=0.0, chains=4, draws=5000):
    """Independent draws with mean `shift` and covariance stretch·Σ·stretch, with C∇f of N(0, Σ) at them."""
    rng = np.random.default_rng(5)
    C = np.diag(stretch) @ np.linalg.inv(PRECISION) @ np.diag(stretch)
    x = np.asarray(shift) + rng.normal(size=(chains, draws, 3)) @ np.linalg.cholesky(C).T
    gradients = x @ PRECISION + noise * rng.normal(size=x.shape)
    return x, gradients @ C, C


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize(("shift", "stretch"), [([0.0] * 3, [1.0] * 3), ([0.2, -0.1, 0.3], [1.2, 0.9, 1.0])])
def test_stein_bias_is_exact_on_gaussians(shift, stretch, noise):
    x, h, C = biased_draws(shift, stretch, noise)
    sd = np.sqrt(np.diag(C))
    mean_bias = C @ PRECISION @ shift / sd
    sd_bias = (np.diag(C @ PRECISION @ C) / sd**2 - 1) / 2
    bias = stein_bias(x, h, np.diag(C))
    z = np.concatenate([(bias.mean - mean_bias) / bias.mean_error, (bias.sd - sd_bias) / bias.sd_error])
    assert np.abs(z).max() < LIMIT
    if any(shift):
        from_none = np.abs([bias.mean / bias.mean_error, bias.sd / bias.sd_error])
        assert (from_none.max(axis=1) > 2 * LIMIT).all()


def test_stein_bias_is_that_of_the_sd_to_first_order():
    """In one dimension ½(σ′²/σ² − 1) = δ + δ²/2 for σ′ = (1 + δ)σ."""
    x = np.random.default_rng(0).normal(size=(4, 5000, 1))
    for delta in (-0.05, 0.02):
        y = x / x.std() * (1 + delta)
        found = stein_bias(y, y * (1 + delta) ** 2, np.array([(1 + delta) ** 2])).sd[0]
        assert found == pytest.approx(delta + delta**2 / 2, abs=1e-4)


def line(count, strength):
    """A posterior in one dimension on a fine grid: points, probabilities, ∇f and the Laplace variance."""
    rng = np.random.default_rng(1)
    X = np.abs(rng.normal(size=(count, 1))) * strength
    target = targets.logistic(X, np.arange(count) % 5 > 0, prior_precision=0.3)
    mode, variance = target.mode()[0], target.laplace().covariance[0, 0]
    points = mode + math.sqrt(variance) * np.linspace(-12, 12, 40_001)
    f = target.potentials(points[:, None])
    weight = np.exp(f.min() - f)
    return points, weight / weight.sum(), target.gradients(points[:, None])[:, 0], variance


@pytest.mark.parametrize(("count", "gain"), [(400, 5), (10, 1.2)])
def test_corrected_moments_are_consistent_and_far_more_precise(count, gain):
    points, weight, gradient, variance = line(count, 1.0 if count == 400 else 2.0)
    mean = weight @ points
    sd = math.sqrt(weight @ (points - mean) ** 2)
    skew = weight @ ((points - mean) / sd) ** 3
    places = np.random.default_rng(2).choice(len(points), (4, 5000, 1), p=weight)
    x, h = points[places], variance * gradient[places]
    corrected = correction(x, h, np.array([variance]))[1]
    assert abs(corrected.mean[0] - mean) < LIMIT * corrected.mean_error[0]
    assert abs(corrected.sd[0] - sd) < LIMIT * corrected.sd_error[0]
    assert corrected.mean_error[0] < sd / math.sqrt(20_000) / gain
    assert corrected.sd_error[0] < sd / math.sqrt(40_000) / gain
    if count == 10:
        assert abs(skew) > 0.5  # and the correction is no Gaussian's
    wrong = correction(x, h, np.array([1.2 * variance]))[1]
    assert abs(wrong.sd[0] - sd) > 2 * LIMIT * wrong.sd_error[0]
    wrong = correction(x, h + 0.2 * sd, np.array([variance]))[1]
    assert abs(wrong.mean[0] - mean) > 2 * LIMIT * wrong.mean_error[0]


@pytest.mark.parametrize("draws", [20, 400])
def test_corrected_moments_of_a_gaussian_are_exact(draws):
    """With few draws for many coordinates each has a slope of its own, with many they have one together."""
    x = 0.3 + np.random.default_rng(0).normal(size=(4, draws, 30))
    corrected = correction(x, x - 0.3, np.ones(30))[1]
    assert corrected.mean == pytest.approx(np.full(30, 0.3), abs=1e-10)
    assert corrected.sd == pytest.approx(np.ones(30), abs=1e-10)
    assert max(corrected.mean_error.max(), corrected.sd_error.max()) < 1e-10


def bias(mean, mean_error, sd=0.0, sd_error=1e-4, dim=1):
    return Bias(*(np.full(dim, value) for value in (mean, mean_error, sd, sd_error)))


K = 2.8070337683438042  # Φ(−K) = 0.01/4

JUDGED = [
    (bias(0.0, 0.00799), "certified"),
    (bias(0.0, 0.00801), "undecided"),
    (bias(-0.012, 0.0031), "certified"),
    (bias(-0.012, 0.0033), "undecided"),
    (bias(0.05, 0.0299 / K), "refuted"),
    (bias(-0.05, 0.0299 / K), "refuted"),
    (bias(0.05, 0.0301 / K), "undecided"),
    (bias(0.0, 1e-4, 0.0, 0.00799), "certified"),
    (bias(0.0, 1e-4, 0.0, 0.00801), "undecided"),
    (bias(0.0, 1e-4, -0.05, 0.0299 / K), "refuted"),
]
NONE, LARGE = bias(0.0, 1e-4), bias(5.0, 1e-4)
QUIET = Chance(np.array([1e-5]), np.array([1e-5]), 1000.0)


@pytest.mark.parametrize(("found", "verdict"), JUDGED)
def test_each_verdict_at_its_border(found, verdict):
    """On what is reported by the bias of the corrected moments, on the draws by both measures of theirs."""
    assert found.verdict(0.02) == verdict
    judged = judge(NONE, Measured(NONE, NONE, found, True, 1000.0), 0.02, QUIET)
    assert (judged.verdict, judged.draws, judged.reported) == (verdict, "certified", found)
    assert (judged.draws_needed is not None) == (verdict == "undecided")
    for draws in (Measured(found, NONE, NONE, True, 1000.0), Measured(NONE, found, NONE, True, 1000.0)):
        judged = judge(NONE, draws, 0.02, QUIET)
        assert (judged.verdict, judged.draws) == ("certified", verdict)


def test_more_coordinates_refute_later():
    assert bias(0.05, 0.01, dim=1).verdict(0.02) == "refuted"
    assert bias(0.05, 0.01, dim=50).verdict(0.02) == "undecided"
    assert bias(0.0, 1.0, 0.0, 1.0, dim=50).lower() == pytest.approx(-3.8905918864131203)  # Φ = 0.01/200


def test_what_the_balance_says_of_means_at_the_kick_does_not_count():
    assert Measured(LARGE, NONE, NONE, True, 1000.0).draws(0.02) == "refuted"
    assert Measured(LARGE, NONE, NONE, False, 1000.0).draws(0.02) == "certified"
    assert Measured(LARGE, LARGE, NONE, False, 1000.0).draws(0.02) == "refuted"


def test_the_draws_needed_would_do():
    """3.5 standard errors must fit into the tolerance: (3.5e/δ)² times the draws; they then certify a bias of 0."""
    undecided = judge(NONE, Measured(NONE, NONE, bias(0.0, 0.02), True, 1000.0), 0.02, QUIET)
    assert undecided.draws_needed == 12_300
    e = 0.02 * math.sqrt(1000 / undecided.draws_needed)
    assert bias(e, e).verdict(0.02) == "certified"
    assert "would take about 12,300 effective draws in this check, which used 1,000" in str(undecided)
    assert math.isinf(bias(0.06, 0.01).more(0.02))


def test_what_is_certified_is_near_by_bias_and_by_chance():
    """2.5 errors of both together must fit into the tolerance; else it says how many draws would do."""
    fine = Measured(NONE, NONE, bias(0.001, 0.0001), True, 1000.0)
    for error, verdict in ((0.0075, "certified"), (0.0077, "undecided")):
        for chance in (
            Chance(np.array([error]), np.array([0.0]), 800.0),
            Chance(np.array([0.0]), np.array([error]), 800.0),
        ):
            judged = judge(NONE, fine, 0.02, chance)
            sd = chance.sd[0] > 0
            assert judged.verdict == ("certified" if sd and error < 0.008 else verdict)
            assert judged.corrects
    many = judge(NONE, fine, 0.02, Chance(np.array([0.02]), np.array([0.0]), 800.0))
    assert many.draws_needed == 16_700  # 1.2 (2.5·0.02/(0.6·0.02))² times 800
    assert "so more draws are needed, about 16,700 effective ones" in str(many)


def test_a_correction_that_contradicts_the_draws_is_left_out():
    """The draws differ from the corrected moments by what Stein's identities average to: their bias, within chance."""
    for stein, halving, trusted in [
        (bias(0.3, 0.03), NONE, False),
        (bias(0.3, 0.03), bias(0.2, 0.01), True),
        (bias(0.1, 0.03), NONE, True),
    ]:
        judged = judge(stein, Measured(NONE, halving, NONE, True, 1000.0), 0.02, QUIET)
        assert judged.corrects == trusted
        assert judged.verdict == ("certified" if trusted else "undecided")
        assert ("the corrected moments contradict the draws" in str(judged)) == (not trusted)
        assert judged.draws_needed is None
    for stein, trusted in ((bias(0.0, 0.01, 0.3, 0.02), False), (bias(0.0, 0.01, 0.1, 0.02), True)):  # of an sd
        assert judge(stein, Measured(NONE, NONE, NONE, True, 1000.0), 0.02, QUIET).corrects == trusted


def test_a_verdict_needs_chains_that_agree_with_each_other_and_with_the_gradients():
    enough, one = np.array([500.0]), np.array([1.01])
    fine = Measured(NONE, NONE, NONE, True, 1000.0)
    cases = [
        (NONE, enough, one, "exact", ""),
        (bias(0.05, 0.03), enough, one, "exact", ""),
        (bias(0.3, 0.03), enough, one, "undecided", "do not agree with the gradients"),
        (NONE, np.array([60.0]), one, "undecided", "as few as 60 effective draws"),
        (NONE, enough, np.array([1.2]), "undecided", "have not settled (R-hat up to 1.2"),
    ]
    for stein, effective, r_hat, verdict, said in cases:
        doubt = settling_doubt(effective, r_hat, 1000, 4, False)
        judged = judge_invariant(stein, 0.02, doubt)
        assert (judged.verdict, judged.draws) == (verdict, verdict)
        assert judged.corrects == (verdict == "exact")
        assert said in str(judged)
        if stein is NONE:
            biased = judge(stein, fine, 0.02, QUIET, doubt)
            assert (biased.verdict, biased.corrects) == (("undecided", False) if doubt else ("certified", True))
            assert unmeasured(0.02, stein, doubt).corrects == (not doubt)
    assert settling_doubt(np.array([60.0]), one, 50, 4, False) == ""  # as many as were asked for
    assert settling_doubt(np.array([60.0]), np.array([1.15]), 50, 4, False) == ""  # chance, with so few
    assert "the budget ended too soon" in settling_doubt(np.array([60.0]), one, 1000, 4, True)


def test_chains_that_stick_or_are_slow_are_no_ground_for_a_verdict():
    """Neither R-hat nor effective draws show a part of the posterior that chains hardly enter."""
    enough, few, one = np.array([500.0]), np.array([499.0]), np.array([1.01])
    assert settling_doubt(enough, one, 1000, 4, False, stay=100) == ""
    assert "a chain stood at one point for 101 draws" in settling_doubt(enough, one, 1000, 4, False, stay=101)
    assert "only 499 effective draws of the 1,000 asked for" in settling_doubt(few, one, 1000, 4, False)
    assert settling_doubt(few, one, 1000, 4, True) == ""  # a budget ended them, and their number is known
    assert "one stood at one point for 101 draws" in settling_doubt(enough, np.array([1.2]), 1000, 4, False, stay=101)


@pytest.mark.parametrize(
    ("power", "rise", "count", "said"),
    [
        (2.0, 0.0, 400, "density falls along b only like 1/|b|^2, so that it has neither mean nor variance"),
        (2.6, 0.0, 400, "like 1/|b|^2.6, so that it has no variance"),
        (0.0, 0.0, 400, "no faster than 1/|b|, so that the posterior has no integral: it is improper"),
        (2.0, 40.0, 400, "like 1/|b|^2"),  # a Cauchy tail of weight 4e-18: E b² is infinite by it
        (3.2, 0.0, 400, "like 1/|b|^3.2, so that its sd hangs on places so far out that hardly any draw is made there"),
        (3.2, 40.0, 400, ""),  # E b⁴ is infinite by a tail of next to no weight
        (5.0, 0.0, 400, "like 1/|b|^5"),
        (5.1, 0.0, 400, ""),
        (2.0, 0.0, 0, ""),
        (0.0, 3400.0, 400, ""),  # flat, but 3400 below the mode: where exp(b) is 0 in float64, for instance
        (2.0, 1000.0, 400, ""),
    ],
)
def test_a_tail_without_a_variance_is_noticed_where_it_holds_some_of_the_variance(power, rise, count, said):
    """f = ½a² + c log(1 + b²)/2, far out with a rise: where some draws are far out along b, f itself tells how heavy
    the tail is.
    """
    draws = np.random.default_rng(0).standard_normal((4, 1000, 2))
    draws[0, :count, 1] *= 10
    target = SimpleNamespace(
        form=lambda: FunctionsForm(None, None), dim=2, n=7, names=("a", "b"), mode=lambda: np.zeros(2),
        hessian=lambda x: np.diag([1.0, power * (1 - x[1] ** 2) / (1 + x[1] ** 2) ** 2]), row_nanoseconds=1e6,
        potentials=lambda x: (
            0.5 * x[:, 0] ** 2 + power * np.log1p(x[:, 1] ** 2) / 2 + rise * (np.abs(x[:, 1]) > 100)
        ),
    )  # fmt: skip
    ledger = SimpleNamespace(covers=lambda seconds, passes: True, evaluations=0.0)
    found = density_tail_doubt(target.names, tails_by_density(target, draws, np.ones(2), ledger).shapes)
    assert (said in found) if said else found == ""
    assert (ledger.evaluations > 0) == bool(count)
    assert not tails_by_density(target, draws, np.ones(2), ledger, stopped=True).shapes.any()


def test_the_longest_stay_of_a_chain():
    x = np.arange(24.0).reshape(2, 6, 2)
    assert longest_stay(x) == 1
    x[1, 2:5] = x[1, 2]
    assert longest_stay(x) == 3
    x[0, :, 0] = 7.0  # one coordinate stands still, and the chain does not
    assert longest_stay(x) == 3
    x[0] = x[0, 0]
    assert longest_stay(x) == 6


def test_a_verdict_says_what_it_rests_on():
    measured = Measured(bias(0.004, 1e-4, 0.01), bias(0.003, 1e-4), bias(0.001, 0.002, 0.002), True, 1000.0)
    text = str(judge(NONE, measured, 0.02, QUIET))
    assert text.startswith(
        "certified: chains with half the step give the same numbers within the tolerance, which puts"
    )
    assert "their bias at no more than 0.001 sd in a mean and 0.002 in an sd (± 0.005; tolerance 0.02)" in text
    assert text.endswith("the draws themselves are biased by up to 0.004 and 0.01 (certified)")
    exact = Certificate("exact", 0.02, bias(0.01, 0.004))
    assert str(exact).startswith(
        "exact: the sampler leaves the posterior invariant, so that it has no bias; its chains agree"
    )
    assert exact.brief() == "exact: the sampler has no bias, and its chains agree"
    assert (
        judge(NONE, measured, 0.02, QUIET).brief()
        == "certified: no mean and no sd is off by more than 0.02 posterior sd"
    )
    refuted = Certificate("refuted", 0.02, bias(0.01, 0.004))
    assert refuted.brief().endswith("off by more than 0.02 posterior sd, so do not use these numbers")
    assert unmeasured(0.02, NONE).brief() == "undecided: the budget ended before the bias was measured"


def quadratic(spread=1.0):
    rng = np.random.default_rng(3)
    return targets.gaussian(rng.normal(size=(8, 2)) * spread + [1.0, -2.0], np.diag([1.0, 0.5]))


def measure(sampler, target, chains=2000, seed=1, whitening=None):
    """By pairs of chains from the posterior itself, in variables that are off by a scale and a shift."""
    law = target.closed_form
    how = dense_whitening(np.array([0.5, -1.5]), np.diag([1.3, 0.4])) if whitening is None else whitening
    space = whitened(target, how)
    start = law.mean + np.random.default_rng(9).normal(size=(chains, 2)) @ np.linalg.cholesky(law.covariance).T
    sd = np.sqrt(np.diag(law.covariance))
    curve = np.array([np.zeros(2), np.ones(2), np.zeros(2)])
    control = Correction(np.ones(2), how.variances, law.mean, curve[1:] * 0, law.mean, curve, sd**2)
    fresh = FreshGradients(space, 1, Budget(target.n, math.inf, math.inf, False))
    plan = plan_of(sampler, space, chains)
    pairs = Pairs(sampler, fresh.setup(Full(), np.arange(plan.chains), 7), control, seed)
    ledger = Budget(target.n, math.inf, math.inf, False)
    return pairs.measured(pairs.averages(how.into(start[: plan.chains]), plan, InMemory(), "pairs", ledger), 1.0)


def halve(sampler, target, chains=2000):
    return measure(sampler, target, chains, whitening=dense_whitening(np.zeros(2), np.eye(2))).halving


def made(kind, step, friction=1.0, inverse_mass=1.0):
    """A dynamics of this kind, with what of these settings it has."""
    return kind(step) if kind is Overdamped else kind(step, friction, inverse_mass)


def exact_halving(dynamics, gradient, target):
    """Twice the difference of the stationary laws' means at η and η/2, and of spreads around the latter's mean."""
    coarse, fine = (
        stationary(Sampler(replace(dynamics, step_size=step), gradient), target).position
        for step in (dynamics.step_size, dynamics.step_size / 2)
    )
    variance, apart = np.diag(fine.covariance), coarse.mean - fine.mean
    return 2 * apart / np.sqrt(variance), np.sqrt(2 * (np.diag(coarse.covariance) + apart**2) / variance - 1) - 1


@pytest.mark.parametrize("gradient", [Full(), Minibatch(1)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_halving_finds_the_difference_of_the_stationary_laws(kind, gradient):
    dynamics = made(kind, 0.8)
    target = quadratic()
    found, (mean, exact) = halve(Sampler(dynamics, gradient), target), exact_halving(dynamics, gradient, target)
    assert (
        np.abs(found.mean - mean) < LIMIT * found.mean_error + 1e-4
    ).all()  # five relaxation times leave 1e-5 of the start
    assert (np.abs(found.sd - exact) < LIMIT * found.sd_error + 1e-5).all()
    unbiased = isinstance(dynamics, BAOAB) and isinstance(gradient, Full)
    seen = np.abs([found.mean, found.sd]) > 2 * LIMIT * np.array([found.mean_error, found.sd_error]) + 1e-3
    assert np.abs(exact).max() < 1e-9 if unbiased else seen.any()


def test_halving_an_exact_flow_changes_nothing():
    target = targets.gaussian(np.array([[1.0, -2.0], [1.0, -2.0]]) * 0, np.eye(2))
    found = halve(Sampler(Anchored(1.5), Full()), target, chains=50)
    assert np.abs([found.mean, found.sd]).max() < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_the_two_runs_share_their_noise(kind, monkeypatch):
    dynamics, target = made(kind, 0.4 if kind in (UBU, BAOAB, Anchored) else 0.1), quadratic()
    shared = halve(Sampler(dynamics, Full()), target, chains=200)
    joined = type(dynamics).joined

    def another_chains(*arguments):
        return StepNoise(*(tuple(np.roll(part, 1, axis=0) for part in half) for half in joined(*arguments)))

    monkeypatch.setattr(type(dynamics), "joined", another_chains)
    apart = halve(Sampler(dynamics, Full()), target, chains=200)
    assert (shared.mean_error < apart.mean_error / 5).all()
    assert (shared.sd_error < apart.sd_error / 4).all()


def short_and_long(dynamics):
    target = quadratic()
    return replace(dynamics, step_size=dynamics.step_size / 2).scheme(target), dynamics.scheme(target)


@pytest.mark.parametrize("kind", [UBU, BAOAB, Exponential, Overdamped])
def test_without_a_gradient_a_long_step_ends_where_two_short_ones_do(kind):
    rng, dynamics = np.random.default_rng(0), made(kind, 0.4, 1.3, 0.7)
    short, long = short_and_long(dynamics)
    noise = [step_noise(short, rng.normal(size=(3, short.normals, 2))) for _ in range(2)]
    joined = dynamics.joined(long, short, noise)
    start = rng.normal(size=(2, 3, 2))
    fine, coarse = tuple(start), tuple(start)
    for one in noise:
        fine = pushed(short.after, pushed(short.before, fine, one.before), one.after)
    coarse = pushed(long.after, pushed(long.before, coarse, joined.before), joined.after)
    assert coarse[1] == pytest.approx(fine[1], abs=1e-14)
    if kind is not BAOAB:
        assert coarse[0] == pytest.approx(fine[0], abs=1e-14)


def covariance_of(noise):
    """Of (εˣ, εᵛ) before and after the gradient, for noise given as its coefficients at some standard normals."""
    factor = np.concatenate([np.concatenate(half) for half in noise])
    return factor @ factor.T


def joined_covariance(dynamics, joined):
    """That of joined(long, short, noise) of two short steps, and the long scheme's own."""
    short, long = short_and_long(dynamics)
    count = short.normals
    both = np.eye(2 * count).reshape(2, 1, count, 2 * count)
    noise = (step_noise(short, both[0]), step_noise(short, both[1]))
    own = step_noise(long, np.eye(long.normals)[None])
    return covariance_of(joined(long, short, noise)), covariance_of(own)


@pytest.mark.parametrize("step", [1e-3, 0.4, 1.1])
@pytest.mark.parametrize("kind", KINDS)
def test_the_joined_noise_of_two_short_steps_has_the_law_of_a_long_steps(kind, step):
    dynamics = made(kind, step, 1.3, 0.7)
    assert dynamics.couples_halves
    found, own = joined_covariance(dynamics, dynamics.joined)
    scale = np.sqrt(np.diag(own))
    assert (np.abs(found - own) <= 1e-12 * np.outer(scale, scale)).all()

    def one_half_twice(long, short, noise):
        return dynamics.joined(long, short, (noise[0], noise[0]))

    wrong, _ = joined_covariance(dynamics, one_half_twice)
    assert (np.abs(wrong - own) > 0.3 * np.outer(scale, scale))[scale > 0].any()


@pytest.mark.parametrize("kind", [Underdamped, Exponential])
def test_noise_that_only_adds_or_goes_through_eulers_drift_would_fail_that_test(kind):
    dynamics = made(kind, 0.4, 1.3, 0.7)
    euler = made(EulerMaruyama, 0.2, 1.3, 0.7).scheme(quadratic()).after
    for map_ in (IDENTITY, euler):

        def wrong(long, short, noise, map_=map_):
            return StepNoise(noise[0].before, pushed(map_, noise[0].after, noise[1].after))

        found, own = joined_covariance(dynamics, wrong)
        assert np.abs(found[2:, 2:] / own[2:, 2:] - 1).max() > 0.01


def test_the_papers_update_and_the_exponential_one_gather_the_same_noise():
    """Where it goes through the flow first, and not last, which its covariance would not tell."""
    rng, kinds = np.random.default_rng(0), [made(kind, 0.4, 1.3, 0.7) for kind in (Underdamped, Exponential)]
    schemes = [short_and_long(dynamics) for dynamics in kinds]
    noise = [step_noise(schemes[0][0], rng.normal(size=(3, 2, 2))) for _ in range(2)]
    found = [one.joined(long, short, noise).after for one, (short, long) in zip(kinds, schemes, strict=True)]
    assert np.array_equal(found[0], found[1])
    swapped = kinds[0].joined(schemes[0][1], schemes[0][0], noise[::-1]).after
    assert np.abs(np.subtract(swapped, found[0])).max() > 0.01


class Alone(UBU):
    """One that does not say how to join."""

    couples_halves, joined = False, Dynamics.joined


def test_steps_whose_noise_cannot_be_joined_are_halved_with_noise_of_their_own():
    target = quadratic()
    alone, joined = (halve(Sampler(kind(0.8, 1.0, 1.0), Minibatch(1)), target) for kind in (Alone, UBU))
    mean, exact = exact_halving(UBU(0.8, 1.0, 1.0), Minibatch(1), target)
    assert (np.abs(alone.sd - exact) < LIMIT * alone.sd_error).all()
    assert (np.abs(alone.mean - mean) < LIMIT * alone.mean_error).all()
    assert (alone.sd_error > 1.5 * joined.sd_error).all()


SETTINGS = {"SVRG": SVRG(1, 4), "SAGA": SAGA(2), "ControlVariate": ControlVariate(1), "Minibatch": Minibatch(2)}


def curved():
    """Components with curvatures of their own, whose gradients are noisy wherever they are taken."""
    rng = np.random.default_rng(1)
    S = rng.uniform(0.6, 2.2, (6, 2))
    return targets.gaussian(rng.normal(size=(6, 2)), np.array([np.diag(row) for row in S]))


@pytest.mark.ordinary(lambda kind, gradient: kind is UBU or gradient == Full())
@pytest.mark.parametrize("gradient", [Full(), *SETTINGS.values()], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_balance_is_steins_average_for_every_cell_of_the_grid(kind, gradient):
    """Of E∇f and of ½(E(x − x̄)∇f − 1) in the sampler's own law, from a run of its own; with far less noise."""
    target, how = curved(), dense_whitening(np.array([0.3, -0.2]), np.diag([1.6, 1.1]))
    step = {"Anchored": 0.7, "UBU": 0.5, "BAOAB": 0.6}.get(kind.__name__, 0.25)
    sampler, space = Sampler(made(kind, step), gradient), whitened(target, how)
    found = measure(sampler, target, 800, whitening=how).balance
    epoch = gradient.recipe(space).epoch
    settle = settling_steps(sampler.dynamics.scheme(space), epoch)
    run = sampler.run(space, settle + 60 * epoch, chains=800, seed=5, burn_in=settle).draws
    z, sd = how.into(run), np.sqrt(how.variances)
    g = space.gradients(z.reshape(-1, 2)).reshape(z.shape)
    away = (run - run.mean(axis=(0, 1))) / sd
    scale = np.sqrt((away**2).mean(axis=(0, 1)))
    pulled = how.displace(g) / sd
    for terms, have, error in (
        (pulled * scale, found.mean, found.mean_error),
        ((away * pulled - 1) / 2, found.sd, found.sd_error),
    ):
        by_chain = terms.mean(axis=1)
        own = by_chain.std(axis=0, ddof=1) / math.sqrt(len(by_chain))
        mean = by_chain.mean(axis=0) if have is found.mean else np.sqrt(1 + 2 * by_chain.mean(axis=0)) - 1
        assert (np.abs(have - mean) < LIMIT * np.hypot(own, error) + 0.02 * np.abs(have)).all()


@pytest.mark.ordinary(lambda gradient: isinstance(gradient, (SVRG, SAGA)))
@pytest.mark.parametrize("gradient", SETTINGS.values(), ids=str)
def test_halving_the_step_of_gradients_that_remember(gradient):
    """The difference of the moments of runs at η and η/2, each with a memory of its own."""
    target, how = curved(), dense_whitening(np.zeros(2), np.eye(2))
    sampler = Sampler(UBU(0.8, 1.0, 1.0), gradient)
    found = measure(sampler, target, whitening=how).halving
    squares = []
    for step in (0.8, 0.4):
        one = Sampler(UBU(step, 1.0, 1.0), gradient)
        settle = settling_steps(one.dynamics.scheme(whitened(target, how)), 4)
        x = one.run(whitened(target, how), settle + 400, chains=600, seed=5, burn_in=settle).draws
        squares.append(((x - target.closed_form.mean) ** 2).mean(axis=1))
    variance = squares[1].mean(axis=0)
    terms = (squares[0] - squares[1]) / variance
    own = terms.std(axis=0, ddof=1) / math.sqrt(len(terms))
    stretch = np.sqrt(1 + 2 * terms.mean(axis=0))
    assert (np.abs(found.sd - stretch + 1) < LIMIT * np.hypot(own / stretch, found.sd_error) + 0.01).all()
    assert (np.abs(found.sd) > 2 * LIMIT * found.sd_error).any()  # and there is something to be seen


@pytest.mark.slow
def test_the_mean_gradient_is_blind_at_the_kick_and_sees_half_a_step_away():
    """A skewed posterior: BAOAB's mean is off and E∇f = 0 all the same; UBU's is off, and E∇f says so."""
    X = np.array([[2.0], [1.6], [-2.4], [1.0], [-1.4], [3.2], [-0.6]])
    target = targets.logistic(X, [1, 1, 0, 1, 0, 1, 1], prior_precision=0.35)
    law = target.laplace()
    points = law.mean[0] + math.sqrt(law.covariance[0, 0]) * np.linspace(-12, 12, 40_001)
    weight = np.exp(-target.potentials(points[:, None]))
    mean = weight @ points / weight.sum()
    z = {}
    for dynamics in (BAOAB(1.5, 1.0, 1.0), UBU(1.5, 1.0, 1.0)):
        x = Sampler(dynamics, Full()).run(whitened(target), 1100, chains=400, seed=2, burn_in=100).draws
        gradients = target.gradients(x.reshape(-1, 1)).reshape(x.shape)
        by_chain = np.stack([(x - mean).mean(axis=1)[:, 0], gradients.mean(axis=1)[:, 0]])
        z[type(dynamics)] = np.abs(by_chain.mean(axis=1) / (by_chain.std(axis=1, ddof=1) / 20))
    assert z[BAOAB][0] > 2 * LIMIT
    assert z[BAOAB][1] < LIMIT
    assert (z[UBU] > 2 * LIMIT).all()


def test_effective_draws_are_the_fewer_of_x_and_its_square():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 1000, 2))
    x[:, :, 1] = np.repeat(np.abs(x[:, ::10, 1]), 10, axis=1) * rng.choice([-1, 1], (4, 1000))  # |x| is slow, x is not
    found = effective_draws(x + 5)
    assert found[0] > 2500
    assert found[1] < 1000 < svrhmc.diagnostics.ess(x)[1]
    assert standard_error(x).shape == (2,)


def test_the_tails_have_effective_draws_of_their_own():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 1000, 1))
    assert tail_draws(x)[0] > 2500
    x[0, 500:600] = 8.0  # one visit of a tail, and a long one
    assert tail_draws(x)[0] < 400


def test_chains_that_differ_in_spread_alone_do_not_agree():
    x = np.random.default_rng(0).normal(size=(4, 1000, 1))
    assert largest_r_hat(x)[0] < 1.01
    x[0] *= 3
    assert svrhmc.diagnostics.r_hat(x)[0] < 1.01 < 1.1 < largest_r_hat(x)[0]


def test_corrected_moments_do_not_depend_on_units():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 500, 4)) @ np.array([[1, 0.9, 0, 0], [0, 1, 0.5, 0], [0, 0, 1, 0], [0.3, 0, 0, 1]])
    h, control = x + 0.1 * x**2 * np.sign(x), np.ones(4)
    units = 10.0 ** np.array([6, -6, 3, -3])
    plain, scaled = correction(x, h, control)[1], correction(x * units, h * units, control * units**2)[1]
    for name in ("mean", "sd", "mean_error", "sd_error"):
        assert getattr(scaled, name) / units == pytest.approx(getattr(plain, name), rel=1e-9)
