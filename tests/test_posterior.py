"""`sample`: what it chooses, that its moments are those of the posterior, and that its verdict is honest."""

import math
from functools import cache

import numpy as np
import pytest
import scipy.sparse

import svrhmc
from conftest import LIMIT, every_target
from quadrature import around_the_mode
from svrhmc import Sampler, sample, targets
from svrhmc.dynamics import BAOAB, UBU, Anchored, EulerMaruyama, Exponential, Overdamped, Underdamped
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.gradients import SAGA, SVRG, ControlVariate, Full, Minibatch
from svrhmc.sampling import choice, coordinates, drawing, preparation, search
from svrhmc.sampling.choice import Choice
from svrhmc.whitening import at_mode as made
from svrhmc.whitening import whitened


def regression(n, dim, seed=0, prior=1.0, kind=np.asarray):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, dim)) * np.linspace(0.5, 2, dim)
    y = X @ np.linspace(-1, 1, dim) + rng.logistic(size=n) > 0
    return targets.logistic(kind(X), y, prior)


def skewed(dim=2):
    """Seven rows that a line nearly separates."""
    X = np.array([[1.0, 0.3], [0.8, -1.0], [-1.2, 0.6], [0.5, 1.4], [-0.7, -1.1], [1.6, -0.4], [-0.3, 0.9]])
    return targets.logistic(2 * X[:, :dim], [1, 1, 0, 1, 0, 1, 1], prior_precision=0.35)


def by_quadrature(target):
    """Exact mean and sd, by the trapezoid rule."""
    points, weight = around_the_mode(target, 14, 200)
    mean = weight @ points
    return mean, np.sqrt(weight @ (points - mean) ** 2)


@cache
def breast_cancer():
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return targets.logistic(np.column_stack([np.ones(len(X)), X]), y)


@cache
def truth_of_breast_cancer():
    return sample(breast_cancer(), draws=20_000, seed=99, method="split-hmc")


def as_custom(target, potential=True):
    """The same posterior known by its gradients alone."""
    X, y, n = target.rows.X, target.y, target.n

    def gradients(x, i):
        return (-n * y[i] / (1 + np.exp(y[i] * (X[i] @ x))))[:, None] * X[i] + target.prior_precision * x

    return targets.custom(n, target.dim, gradients, (lambda x: float(target.potential(x))) if potential else None)


def test_a_linear_posterior_is_known_in_closed_form(rows):
    for target in (every_target(rows)["linear"], every_target(rows)["linear-csr"], every_target(rows)["gaussian-many"]):
        found, law = sample(target, draws=40_000, seed=3), target.closed_form
        assert (found.method, found.certificate.verdict, found.complete) == ("closed-form", "exact", True)
        sd = np.sqrt(np.diag(law.covariance))
        for given in (found, found.corrected, found.laplace):
            assert given.mean == pytest.approx(law.mean, abs=1e-10)
            assert given.sd == pytest.approx(sd, abs=1e-10)
        assert (found.corrected.mean_error == 0).all()
        x = found.trace.draws.reshape(-1, 3)
        assert x.shape == (40_000, 3)
        assert np.abs((x.mean(axis=0) - law.mean) / sd * 200).max() < LIMIT
        assert np.cov(x.T) == pytest.approx(law.covariance, abs=LIMIT * math.sqrt(2 / 40_000) * law.covariance.max())
        assert found.raw.sd == pytest.approx(sd, rel=LIMIT / math.sqrt(80_000))
    assert sample(target, method="closed-form").sampler is None


def test_small_problems_get_full_gradients_and_tall_ones_few_rows():
    small, tall = sample(regression(100, 3), draws=500), sample(regression(200_000, 5), draws=500)
    assert (small.method, tall.method) == ("split-hmc", "subsampled-mh")
    assert isinstance(small, svrhmc.Posterior)
    assert isinstance(small.sampler, SplitHMC)
    assert isinstance(tall.sampler, SubsampledMH)
    assert small.why == "exact, with full gradients, in less than a tenth of a second for 500 effective draws."
    assert "rows a step of the 200,000 there are" in tall.why
    for found in (small, tall):
        assert found.certificate.verdict == "exact"
        assert found.ess.min() >= 500
        assert found.r_hat.max() < 1.02
        assert found.complete


def test_sparse_rows_are_sampled_as_dense_ones():
    X = scipy.sparse.random_array((300, 4), density=0.5, rng=np.random.default_rng(0), format="csr")
    y = np.random.default_rng(1).random(300) < 0.4
    sparse, dense = (sample(targets.logistic(kind, y), draws=200, seed=1) for kind in (X, X.toarray()))
    assert sparse.method == dense.method == "split-hmc"
    assert sparse.trace.draws == pytest.approx(dense.trace.draws, abs=1e-6)


def test_where_exact_samplers_are_too_dear_batches_are_used(monkeypatch):
    monkeypatch.setattr(choice, "_PATIENCE", 1e-9)
    posterior = sample(regression(200_000, 3), draws=300)
    assert posterior.method == "anchored"
    assert isinstance(posterior.sampler.gradient, Minibatch)
    assert posterior.sampler.gradient.importance
    assert "drawn by importance, are enough for the tolerance; an exact sampler would take" in posterior.why
    full = sample(skewed(), draws=300)
    assert full.method == "split-hmc"
    assert full.why == "exact, with full gradients, in less than a tenth of a second: nothing else would be faster."


@pytest.mark.parametrize(("seconds", "method"), [(0.0, "anchored"), (1e6, "split-hmc")])
def test_the_price_of_batches_includes_that_of_their_verdict(monkeypatch, seconds, method):
    monkeypatch.setattr(choice, "_PATIENCE", 1e-9)
    monkeypatch.setattr(preparation.Preparation, "verdict_seconds", lambda self, sampler: seconds)
    assert sample(regression(200_000, 3), draws=100, certificate=False).method == method


def test_many_columns_are_whitened_by_their_diagonal(monkeypatch):
    monkeypatch.setattr(made, "DENSE_DIM", 2)
    target = regression(100, 3)
    posterior = sample(target, draws=500)
    assert posterior.method == "split-hmc"
    assert posterior.laplace.sd == pytest.approx(np.diag(target.hessian(target.mode())) ** -0.5)
    sampled = sample(target, draws=100, method="anchored", certificate=False)
    assert isinstance(sampled.sampler.gradient, Full)
    with pytest.raises(ValueError, match="whitening must be dense for SubsampledMH"):
        sample(target, method="subsampled-mh")


METHODS = {
    "split-hmc": SplitHMC,
    "subsampled-mh": SubsampledMH,
    "anchored": Anchored,
    "baoab": BAOAB,
    "ubu": UBU,
}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_asked_for_by_name_is_used(method):
    posterior = sample(regression(200, 2), draws=200, method=method, tolerance=0.5)
    assert posterior.method == method
    assert posterior.why.startswith("as asked for")
    assert isinstance(getattr(posterior.sampler, "dynamics", posterior.sampler), METHODS[method])
    assert (posterior.trace.acceptance is not None) == posterior.sampler.invariant  # only proposals are accepted or not


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("sampler", "name"),
    [
        (SplitHMC(0.5, 3), "split-hmc"),
        (SubsampledMH(0.5), "subsampled-mh"),
        (Sampler(Anchored(0.7), Full()), "anchored"),
        (Sampler(BAOAB(0.7, 1.0, 1.0), Minibatch(5)), "baoab"),
        (Sampler(UBU(0.3), SVRG(5, 7)), "ubu"),
        (Sampler(UBU(0.3, 1.0, 1.0), SAGA(5)), "ubu"),
        (Sampler(UBU(0.3, 1.0, 1.0), ControlVariate(5)), "ubu"),
    ],
    ids=str,
)
def test_a_sampler_asked_for_is_used_as_it_is_and_threads_change_nothing(sampler, name):
    target = regression(60, 2)
    one, two, other = (
        sample(target, draws=400, chains=3, method=sampler, threads=threads, seed=seed)
        for threads, seed in ((1, 5), (2, 5), (1, 6))
    )
    assert one.method == name
    assert one.sampler == sampler
    assert one.ess.min() >= 400
    assert (one.trace.draws == two.trace.draws).all()
    assert (one.mean == two.mean).all()
    assert one.passes == two.passes
    assert one.trace.draws.shape[1] != other.trace.draws.shape[1] or (one.trace.draws != other.trace.draws).all()


def test_the_automatic_choice_is_the_same_again_and_for_any_threads():
    target = regression(60, 2)
    runs = [sample(target, draws=300, seed=2, threads=threads) for threads in (1, 2, 1)]
    assert all((run.trace.draws == runs[0].trace.draws).all() for run in runs)
    assert (sample(target, draws=300, seed=3).trace.draws[:, :100] != runs[0].trace.draws[:, :100]).any()


@pytest.mark.untraced
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("method", [None, "split-hmc", SubsampledMH(0.3)], ids=str)
def test_exact_moments_are_those_of_the_posterior(dim, method):
    target = skewed(dim) if method != SubsampledMH(0.3) else regression(400, dim)
    mean, sd = by_quadrature(target)
    posterior = sample(target, draws=4000, seed=1, method=method)
    used = posterior.corrected
    assert posterior.certificate.verdict == "exact"
    assert (posterior.mean == used.mean).all()
    assert (posterior.sd == used.sd).all()
    z = np.array([(used.mean - mean) / used.mean_error, (used.sd - sd) / used.sd_error])
    assert np.abs(z).max() < LIMIT
    raw = (posterior.raw.mean - mean) / (sd / np.sqrt(posterior.ess))
    assert np.abs(raw).max() < LIMIT
    assert (used.mean_error < sd / np.sqrt(posterior.ess)).all()
    if method != SubsampledMH(0.3):
        laplace = np.abs((posterior.laplace.mean - mean) / used.mean_error)
        assert laplace.max() > 2 * LIMIT  # what is not the mean is seen not to be


@pytest.mark.untraced
def test_the_stein_correction_is_worth_many_draws():
    target = regression(1000, 3)
    few, many = sample(target, draws=300, seed=1), sample(target, draws=10_000, seed=2)
    error = np.abs(few.mean - many.mean) / many.sd
    assert error.max() < 4 / math.sqrt(300) / 10
    z = (few.mean - many.mean) / np.hypot(few.corrected.mean_error, many.corrected.mean_error)
    assert np.abs(z).max() < LIMIT


@pytest.mark.untraced
def test_corrected_moments_are_reported_with_a_bias_of_their_own():
    """Of a biased sampler the corrected moments are off far less than the draws, and that is what is judged."""
    truth = truth_of_breast_cancer()
    posterior = sample(breast_cancer(), draws=2000, tolerance=0.1, method=Sampler(Anchored(1.0), Full()))
    assert (posterior.certificate.verdict, posterior.certificate.draws) == ("certified", "refuted")
    assert posterior.mean is posterior.corrected.mean
    raw, corrected = (
        np.abs((each.mean - truth.mean) / truth.sd).max() for each in (posterior.raw, posterior.corrected)
    )
    assert corrected < raw / 2
    measured = posterior.certificate.reported
    off = np.abs((posterior.mean - truth.mean) / truth.sd)
    assert (off < np.abs(measured.mean) + 2.5 * measured.mean_error + 4 * posterior.errors[0] / truth.sd).all()


def test_a_thousand_draws_decide_on_a_bias_at_two_percent():
    """Where averages of the gradient would need 20,000. Whether chance alone puts the moments off is said apart."""
    found = sample(breast_cancer(), draws=1000, method=Sampler(Anchored(0.25), Full())).certificate
    assert found.reported.verdict(0.02) == "certified"
    assert found.stein.upper() > 0.06
    assert found.balance.upper() < 0.03
    assert (found.verdict, found.corrects) == ("undecided", True)
    assert "chance alone can put them off by more than the tolerance" in str(found)
    assert 1000 < found.draws_needed < 10_000


@pytest.mark.parametrize("dynamics", [BAOAB(1.4, 1.0, 1.0), Anchored(1.5)], ids=str)
def test_long_steps_on_breast_cancer_are_refuted_and_left_as_they_are(dynamics):
    sampler = Sampler(dynamics, Full())
    posterior = sample(breast_cancer(), draws=1000, tolerance=0.05, method=sampler)
    assert (posterior.certificate.verdict, posterior.certificate.draws) == ("refuted", "refuted")
    assert posterior.sampler == sampler
    assert posterior.complete
    assert "as to bias they are refuted: chains with half the step give different numbers" in str(posterior)


@pytest.mark.untraced
def test_a_refuted_step_halves_itself():
    posterior = sample(breast_cancer(), method="baoab", tolerance=0.06)
    assert posterior.certificate.verdict == "certified"
    step = posterior.sampler.dynamics.step_size
    assert step <= 0.5
    assert f"the step is {step:g}, because a run with {2 * step:g} was" in posterior.why
    truth = truth_of_breast_cancer()
    assert np.abs((posterior.mean - truth.mean) / truth.sd).max() < 0.06
    fixed = sample(breast_cancer(), tolerance=0.06, method=Sampler(BAOAB(1.0, 1.0, 1.0), Full()))
    assert fixed.certificate.verdict in ("refuted", "undecided")
    assert fixed.certificate.reported.upper() > 0.06  # by measurement, not for want of one
    assert fixed.passes < posterior.passes


def test_halving_ends(monkeypatch):
    monkeypatch.setattr(search, "_HALVINGS", 1)
    posterior = sample(skewed(), draws=20_000, method="anchored", tolerance=1e-4)
    assert posterior.sampler.dynamics.step_size >= 0.5
    assert posterior.certificate.verdict == "refuted"


@pytest.mark.untraced
def test_what_is_not_decided_is_handed_to_an_exact_sampler(monkeypatch):
    monkeypatch.setattr(choice.Chooser, "_choose_automatically", biased)
    posterior = sample(skewed(), tolerance=1e-3)
    assert (posterior.method, posterior.certificate.verdict) == ("split-hmc", "exact")
    assert posterior.why.startswith("exact, because a run of anchored was")
    monkeypatch.setattr(choice.Chooser, "_choose_automatically", diverging)
    posterior = sample(leverage(), draws=50)
    assert (posterior.method, posterior.certificate.verdict) == ("split-hmc", "exact")
    assert posterior.why == "exact, because a run of anchored diverged."


def biased(self, loss):
    return Choice("anchored", Sampler(Anchored(1.0), Full()), "for a test.")


def diverging(self, loss):
    return Choice("anchored", Sampler(Anchored(1.0), Minibatch(4)), "for a test.")


@pytest.mark.untraced
@pytest.mark.parametrize(
    "dynamics",
    [
        Overdamped(0.6),
        EulerMaruyama(0.3, 1.0, 1.0),
        Underdamped(0.3, 1.0, 1.0),
        Exponential(0.6, 1.0, 1.0),
    ],
    ids=str,
)
def test_schemes_whose_means_the_balance_cannot_see_are_judged_by_halving(dynamics):
    """Recorded where the kick is evaluated: E∇f = 0 whatever their bias, here above 0.1 sd."""
    mean, sd = by_quadrature(skewed(1))
    posterior = sample(skewed(1), draws=20_000, tolerance=0.05, method=Sampler(dynamics, Full()))
    bias = ((posterior.raw.mean - mean) / sd)[0]
    assert bias > 0.08
    assert abs(posterior.certificate.stein.mean[0]) < LIMIT * posterior.certificate.stein.mean_error[0]
    assert abs(posterior.certificate.balance.mean[0]) < LIMIT * posterior.certificate.balance.mean_error[0] + 1e-9
    assert posterior.certificate.draws == "refuted"
    assert posterior.certificate.halving.mean[0] == pytest.approx(bias, rel=0.5)


SMALL = {"skewed": skewed, "one column": lambda: skewed(1), "regression": lambda: regression(60, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["skewed", *(pytest.param(each, marks=pytest.mark.slow) for each in list(SMALL)[1:])])
def test_the_verdict_on_svr_hmc_is_within_a_factor_of_two_of_its_bias(name):
    target = SMALL[name]()
    mean, sd = by_quadrature(target)
    long, short = (
        svrhmc.svr_hmc(step, batch_size=max(2, target.n // 4), epoch_length=4, inverse_mass=1.0) for step in (0.5, 0.02)
    )
    many = sample(target, draws=30_000, method=long, certificate=False, seed=9)
    found = sample(target, draws=1000, tolerance=0.05, method=long).certificate
    for kind, true in (("mean", (many.raw.mean - mean) / sd), ("sd", many.raw.sd / sd - 1)):
        largest = np.abs(true).max()
        measured = max(np.abs(getattr(each, kind)).max() for each in (found.balance, found.halving))
        assert measured < 2 * largest + 0.02
        assert measured > largest / 2 - 0.02
    assert np.abs(many.raw.sd / sd - 1).max() > 0.1
    assert found.draws == "refuted"
    fine = sample(target, draws=300, tolerance=0.1, method=short)
    assert (fine.certificate.verdict, fine.certificate.draws) == ("certified", "certified")


def test_without_a_certificate_nothing_is_made_for_one():
    sampler = Sampler(Anchored(0.5), Minibatch(20, importance=True))
    judged, plain = (sample(regression(500, 2), draws=300, method=sampler, certificate=each) for each in (True, False))
    assert (plain.certificate.verdict, plain.certificate.draws) == ("unjudged", "unjudged")
    assert plain.mean is plain.corrected.mean
    assert (plain.trace.draws == judged.trace.draws).all()
    assert plain.passes < judged.passes / 2
    assert "the bias was not measured, because certificate=False" in str(plain)
    exact = sample(regression(60, 2), draws=300, certificate=False)  # whose gradients cost nothing
    assert exact.certificate.verdict == "exact"
    with pytest.raises(ValueError, match="certificate must be True or False; got 'no'"):
        sample(regression(60, 2), certificate="no")


def leverage():
    """Ten columns with one row each and a weak prior: a batch that meets such a row throws the chain far off."""
    rng = np.random.default_rng(0)
    X = np.zeros((2000, 13))
    X[:, :3] = rng.normal(size=(2000, 3))
    X[np.arange(10), 3 + np.arange(10)] = 1
    return targets.logistic(X, X[:, :3] @ [1, -1, 0.5] + rng.logistic(size=2000) > 0, prior_precision=0.01)


def test_batches_far_too_small_for_high_leverage_diverge():
    said = r"try step_size 0\.25, a larger batch_size, or another `method`"
    with pytest.raises(svrhmc.DivergenceError, match=said) as caught:
        sample(leverage(), draws=300, method=Sampler(Anchored(1.0), Minibatch(4)))
    assert caught.value.step < 1000
    assert sample(leverage(), draws=50).certificate.verdict == "exact"


def test_a_budget_of_passes_ends_the_run():
    target = regression(200, 2)
    for method in ("split-hmc", SubsampledMH(0.2), Sampler(UBU(0.3, 1.0, 1.0), Full())):
        posterior = sample(target, draws=10**6, method=method, budget_passes=2000)
        assert not posterior.complete
        assert "stopped before there were as many as asked for" in str(posterior)
        assert posterior.trace.draws.shape[1] >= 25
        whole = sample(target, draws=10, method=method, budget_passes=1e9)
        assert whole.complete
    assert 19_900 <= sample(target, draws=10**6, method="split-hmc", budget_passes=20_000).passes < 20_100
    endless = sample(skewed(), draws=10**6, method="anchored", budget_passes=40_000)
    assert not endless.complete  # and no second attempt


def test_a_budget_of_seconds_ends_the_run():
    posterior = sample(regression(200, 2), draws=10**7, method="split-hmc", budget_seconds=0.2)
    assert not posterior.complete
    assert 5 <= posterior.trace.draws.shape[1] < 10**6
    assert sample(regression(200, 2), draws=10, budget_seconds=1e3).complete


def test_a_budget_does_not_change_the_draws():
    target = regression(60, 2)
    free, bound = (sample(target, draws=500, seed=4, budget_passes=budget) for budget in (None, 1e9))
    assert (free.trace.draws == bound.trace.draws).all()


@pytest.mark.untraced
@pytest.mark.parametrize(("n", "gradient"), [(60, Full), (400, SVRG), (1500, ControlVariate)])
def test_custom_targets_have_the_same_door(n, gradient):
    known = regression(n, 2, prior=0.5)
    mean, sd = by_quadrature(known)
    posterior = sample(as_custom(known), draws=120, tolerance=0.1, seed=1)
    assert posterior.method == "anchored"
    assert isinstance(posterior.sampler.gradient, gradient)
    assert "no bound on single components is known" in posterior.why
    assert posterior.trace.engine == "reference"
    assert posterior.laplace.mean == pytest.approx(known.mode(), abs=1e-4)
    assert np.abs((posterior.raw.mean - mean) / sd * np.sqrt(posterior.ess)).max() < LIMIT
    assert np.abs((posterior.raw.sd / sd - 1) * np.sqrt(2 * posterior.ess)).max() < LIMIT
    assert np.abs((posterior.raw.mean - mean - sd) / sd * np.sqrt(posterior.ess)).max() > 2 * LIMIT
    assert posterior.certificate.verdict != "exact"


def test_custom_targets_need_no_potential():
    known = regression(60, 2)
    with_potential, without = (sample(as_custom(known, potential), draws=20) for potential in (True, False))
    assert without.laplace.mean == pytest.approx(known.mode(), abs=1e-5)
    assert without.trace.draws == pytest.approx(with_potential.trace.draws, abs=1e-2)


def test_custom_targets_of_many_columns_get_a_diagonal_and_small_ones_full_gradients(monkeypatch):
    known = regression(12, 2)
    full = sample(as_custom(known), draws=50, tolerance=0.05, certificate=False)
    assert isinstance(full.sampler.gradient, Full)
    assert full.why == "no bound on single components is known, and there are few of them."
    monkeypatch.setattr(coordinates, "_DENSE_CUSTOM", 1)
    diagonal = sample(as_custom(known), draws=50, certificate=False)
    H = known.hessian(known.mode())
    assert diagonal.laplace.sd == pytest.approx(np.diag(H) ** -0.5, rel=0.5)


def test_a_gaussian_target_can_be_sampled_too(rows):
    target = every_target(rows)["gaussian"]
    found, law = sample(target, draws=300, method="ubu", tolerance=0.1), target.closed_form
    sd = np.sqrt(np.diag(law.covariance))
    assert np.abs((found.raw.mean - law.mean) / sd * np.sqrt(found.ess)).max() < LIMIT


def test_one_chain_and_few_draws_do():
    target = regression(60, 2)
    one = sample(target, draws=10, chains=1)
    assert one.trace.draws.shape[0] == 1
    assert np.isfinite(one.r_hat).all()
    assert one.ess.min() >= 10


def test_the_result_prints_what_it_promises():
    posterior = sample(regression(60, 2), draws=300)
    chains, draws, _ = posterior.trace.draws.shape
    text = str(posterior)
    for part in (
        f"{chains} chains of split-hmc made {draws} draws each of 2 parameters, at least {posterior.ess.min():.0f} of them",
        posterior.why.rstrip("."),
        "passes over the data",
        "have standard errors of up to",
        "exact: the sampler leaves the posterior invariant",
    ):
        assert part in text
    assert text.count(". ") + text.count(".\n") + 1 == 2  # sentences
    lines = str(posterior.summary()).splitlines()
    assert lines[0] == "Posterior of a target, 2 coefficients, 60 rows."
    assert not {"mcse_mean", "mcse_sd"} & set(lines[1].split())
    lines = str(posterior.summary(mcse=True)).splitlines()
    assert lines[1].split()[-4:] == ["mcse_mean", "mcse_sd", "ess", "r_hat"]
    assert lines[2].split()[0] == "x[0]"
    shown = [float(word) for word in lines[2].split()[1:]]
    ends, used = posterior.interval()[0], posterior.corrected
    expected = [posterior.mean[0], posterior.sd[0], *ends]
    assert shown[:4] == pytest.approx(expected, rel=1e-3)
    assert shown[-4:-2] == pytest.approx([used.mean_error[0], used.sd_error[0]], rel=1e-3)
    assert "Verdict: exact: the sampler has no bias, and its chains agree; chance alone leaves a" in " ".join(lines[4:])
    assert set(posterior.steps) == {"mode and whitening", "choice", "sampling", "gradients at the draws", "certificate"}
    assert posterior.seconds == pytest.approx(sum(posterior.steps.values()), rel=0.2)
    assert np.asarray(posterior.to_arviz().posterior["x"]) == pytest.approx(posterior.trace.draws)


def test_progress_is_told():
    told = []
    sample(regression(60, 2), draws=100, progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]


def test_a_flat_prior_on_separable_data_is_an_error_that_says_so():
    X = np.array([[1.0, 2.0], [2.0, 1.0], [-1.0, -2.0], [-2.0, -1.0]])
    with pytest.raises(ValueError, match="the data are separable and the prior is flat along a direction"):
        sample(targets.logistic(X, [1, 1, 0, 0], prior_precision=0.0))
    with pytest.raises(ValueError, match="the posterior is improper"):
        sample(targets.linear(np.ones((3, 2)), [1.0, 2.0, 3.0], prior_precision=0.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draws": 9}, "draws must be a whole number of at least 10; got 9."),
        ({"chains": 0}, "chains must be a whole number from 1 to 2147483648; got 0."),
        ({"tolerance": 0}, "tolerance must be a positive number; got 0."),
        ({"seed": -1}, "seed must be a whole number from 0 to 9223372036854775807; got -1."),
        ({"budget_seconds": 0}, "budget_seconds must be a positive number; got 0."),
        ({"budget_passes": -2.0}, "budget_passes must be a positive number; got -2.0."),
        ({"threads": 0}, "threads must be a whole number of at least 1; got 0."),
        (
            {"method": "nuts"},
            "method must be one of 'closed-form', 'split-hmc', 'subsampled-mh', 'marginal-mh', 'anchored', 'baoab', 'ubu'; got 'nuts'.",
        ),
        ({"method": 3}, "method must be None, a sampler, or one of 'closed-form', "),
        (
            {"method": "closed-form"},
            "method must be another one for this target; got 'closed-form': its law is not known.",
        ),
        ({"progress": "no"}, "progress must be True, False, None or a function of (done, total); got 'no'."),
        (
            {"method": Sampler(BAOAB(2.5, 1.0, 1.0), Full())},
            "step_size must be a positive number below 2 for BAOAB with friction 1.0 on curvatures up to 1; got 2.5",
        ),
        (
            {"method": Sampler(UBU(0.1, 1.0, 1.0), Minibatch(70, replacement=False))},
            "batch_size must be at most n = 60 without replacement; got 70.",
        ),
    ],
)
def test_bad_arguments(settings, message):
    with pytest.raises(ValueError, match="must be") as caught:
        sample(regression(60, 2), **settings)
    assert message in str(caught.value)


def test_bad_targets():
    known = regression(60, 2)
    custom = as_custom(known)
    for target, settings, message in [
        ("posterior", {}, "target must be one of svrhmc.targets, such as logistic(X, y); got <class 'str'>."),
        (
            whitened(known),
            {},
            "target must be one in its own coordinates, which `sample` whitens itself; got whitened(",
        ),
        (
            custom,
            {"method": "split-hmc"},
            "method must be None, 'anchored', 'baoab', 'ubu' or a sampler for this target; got 'split-hmc'.",
        ),
        (
            custom,
            {"method": SplitHMC()},
            "target must be a generalised linear model, such as logistic(X, y) or linear(X, y)",
        ),
        (
            custom,
            {"method": Sampler(UBU(0.1), Full())},
            "inverse_mass must be given; got None: the smoothness in whitened variables is not known.",
        ),
    ]:
        with pytest.raises(ValueError, match="must be") as caught:
            sample(target, **settings)
        assert message in str(caught.value)


RUNS = 40


@pytest.mark.slow
def test_no_certified_run_is_wrong():
    """Random steps, batches, schemes and problems like breast_cancer: a certified bias is below the tolerance."""
    rng = np.random.default_rng(7)
    verdicts = []
    for run in range(RUNS):
        n, dim = int(rng.integers(60, 600)), int(rng.integers(2, 8))
        target = regression(n, dim, seed=run, prior=float(rng.choice([0.1, 1.0])))
        dynamics = rng.choice([Anchored, UBU, BAOAB])(float(rng.uniform(0.2, 1.8)), 1.0, 1.0)
        gradient = (
            Full() if rng.random() < 0.4 else Minibatch(int(rng.integers(4, n)), importance=bool(rng.random() < 0.5))
        )
        tolerance = float(rng.choice([0.03, 0.06, 0.1]))
        try:
            posterior = sample(target, draws=20_000, tolerance=tolerance, seed=run, method=Sampler(dynamics, gradient))
        except svrhmc.DivergenceError:
            verdicts.append("diverged")
            continue
        truth = sample(target, draws=40_000, seed=1000 + run, method="split-hmc")
        verdicts.append(posterior.certificate.verdict)
        if verdicts[-1] == "certified":
            mean, sd = (np.abs(a - b) / truth.sd for a, b in ((posterior.mean, truth.mean), (posterior.sd, truth.sd)))
            allowed = [
                tolerance + 3 * np.hypot(a, b) / truth.sd for a, b in zip(posterior.errors, truth.errors, strict=True)
            ]
            assert (mean <= allowed[0]).all(), (run, dynamics, gradient, tolerance)
            assert (sd <= allowed[1]).all(), (run, dynamics, gradient, tolerance)
    assert verdicts.count("certified") >= RUNS // 8
    assert verdicts.count("refuted") >= RUNS // 8


def iris():
    """Versicolor and virginica under a flat prior: nearly separable, so that a chain may freeze where it starts."""
    data = pytest.importorskip("sklearn.datasets").load_iris()
    some = data.target > 0
    return targets.logistic(np.column_stack([np.ones(100), data.data[some]]), data.target[some] == 2, 0.0)


@pytest.mark.untraced
def test_a_frozen_chain_is_cured_by_a_smaller_step():
    """One of its four chains accepts nothing at the first step, and all together accept enough."""
    found = [sample(iris(), seed=seed) for seed in (0, 4)]
    assert all(posterior.sampler.step_size < 0.8 for posterior in found)
    assert all(posterior.complete and posterior.certificate.verdict == "exact" for posterior in found)
    assert (np.abs(found[0].raw.mean - found[1].raw.mean) < 0.25 * found[0].raw.sd).all()


def test_chains_that_do_not_settle_are_not_called_exact(monkeypatch):
    """A step with which no proposal is accepted: the draws end, and the verdict says why."""
    monkeypatch.setattr(drawing, "_MOST", 3)
    posterior = sample(iris(), 200, method=SplitHMC(3.0, 1, 0.0))
    assert not posterior.complete
    assert posterior.certificate.verdict == "undecided"
    assert "but the chains have not settled (R-hat up to" in str(posterior.certificate)
    assert posterior.mean is posterior.raw.mean
