"""Budgets bind: every stage looks at the one deadline, by clocks that the tests turn on themselves."""

import functools
import math
import threading

import numpy as np
import pytest
import scipy.sparse

import svrhmc
from svrhmc import Sampler, sample, targets
from svrhmc.core import deadline as deadlines
from svrhmc.core.deadline import Budget, BudgetSpent, budget_check, check_budget, checking_budget, indivisible_work
from svrhmc.core.errors import BudgetError
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.dynamics import UBU
from svrhmc.engines.compiled.engine import CompiledChains
from svrhmc.engines.reference import ReferenceChains
from svrhmc.exact import SubsampledMH
from svrhmc.fitting import regress
from svrhmc.gradients import Full
from svrhmc.results.posterior import Posterior
from svrhmc.rows import sparse as stored
from svrhmc.sampling import drawing, preparation, run, search
from svrhmc.sampling.bias import Pairs
from svrhmc.sampling.gradients import FreshGradients
from svrhmc.sampling.preparation import ChainStarter

FAR = 1e9


class Clock:
    """Stands still until it is set."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(run, "Budget", functools.partial(Budget, clock=made))
    return made


def late(monkeypatch, clock, owner, name, after=1):
    """The clock is far beyond every budget from call `after` of a method on; gives the list of later calls."""
    plain, calls = getattr(owner, name), []

    @functools.wraps(plain)
    def told(*arguments, **settings):
        calls.append(name)
        if len(calls) >= after:
            clock.now = FAR
        return plain(*arguments, **settings)

    monkeypatch.setattr(owner, name, told)
    return calls


def regression(n=60, dim=2, **settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, dim))
    return targets.logistic(X, X[:, 0] + rng.logistic(size=n) > 0, **settings)


def component_gradients(n=40, calls=None):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(n, 2)), rng.random(n) < 0.4

    def gradients(x, rows):
        if calls is not None:
            calls.append(len(rows))
        return n * X[rows] * (1 / (1 + np.exp(-(X[rows] @ x))) - y[rows])[:, None] + x

    return targets.custom(n, 2, gradients)


def test_a_deadline_counts_seconds_but_for_those_apart_and_passes():
    clock = Clock()
    deadline = Budget(10, 5.0, 3.0, clock=clock)
    clock.now, deadline.evaluations = 2.0, 10.0
    assert deadline.used() == (2.0, 1.0)
    assert deadline.left() == (3.0, 2.0)
    with deadline.paused():
        clock.now = 102.0
        assert deadline.used() == (2.0, 1.0)
    assert deadline.used() == (2.0, 1.0)
    assert deadline.compiling == 100.0
    assert deadline.covers(3.0, 2.0)
    assert not deadline.covers(3.1, 0.0)
    assert not deadline.covers(0.0, 2.1)
    assert deadline.affordable((1.0, 0.5), (1.0, 0.0)) == 2.0
    assert deadline.affordable((0.0, 0.0)) == math.inf
    assert deadline.affordable((0.0, 0.0), (3.0, 0.0)) == 0.0
    deadline.check(2.0)
    for passes, kept in ((2.1, 0.0), (0.0, 3.0)):
        with pytest.raises(BudgetSpent):
            deadline.check(passes, kept)
    assert not deadline.is_spent()
    clock.now = 105.0
    assert deadline.is_spent()
    with pytest.raises(BudgetSpent):
        deadline.check()
    assert Budget(10).unlimited
    assert not deadline.unlimited


def test_only_what_a_deadline_binds_looks_at_it():
    clock = Clock()
    deadline = Budget(1, 1.0, math.inf, clock=clock)
    clock.now = 2.0
    check_budget()
    seen = []
    with deadline.binding():
        with pytest.raises(BudgetSpent):
            check_budget()
        there = budget_check()
        with Budget(1).binding():  # one without limits binds nothing
            check_budget()
        thread = threading.Thread(
            target=lambda: seen.append(check_budget())
        )  # another thread has a deadline of its own,
        thread.start()
        thread.join()
        with pytest.raises(BudgetSpent):  # unless it is given this one
            there(0.0)
    assert seen == [None]
    check_budget()


def test_a_long_piece_is_begun_only_where_it_is_expected_to_end_in_time(monkeypatch):
    clock, trials = Clock(), []

    def trial(_):
        trials.append(clock.now)
        return 1e-9

    monkeypatch.setattr(deadlines, "time_small_product", trial)
    deadline = Budget(1, 5.0, math.inf, clock=clock)
    with deadline.indivisible_work(1e7):  # too short to ask
        assert trials == []
    with deadline.indivisible_work(4.9e9):  # 4.9 seconds
        assert trials == [0.0]
    clock.now = 4.0
    with pytest.raises(BudgetSpent), deadline.indivisible_work(2e9):
        pytest.fail("begun")
    assert deadline.needed == pytest.approx(6.0)
    clock.now = 5.0
    with pytest.raises(BudgetSpent), deadline.indivisible_work(1.0):  # nothing is begun after the end
        pytest.fail("begun")
    with (
        Budget(1, math.inf, 5.0, clock=clock).indivisible_work(1e30),
        indivisible_work(1e30),
    ):  # without a budget in seconds, or without any
        assert len(trials) == 2


def test_a_trial_takes_the_time_of_a_small_product():
    times = iter([0.0, 3.0, 10.0, 12.0])
    assert deadlines.time_small_product(lambda: next(times)) == 2.0 / 256**3


def gaussian(n, dim):
    rng = np.random.default_rng(3)
    return rng.normal(size=(n, dim)), rng.normal(size=n)


@pytest.mark.parametrize(
    "made",
    [
        lambda: regression(40, 300),
        lambda: targets.linear(*gaussian(40, 300)),
        lambda: targets.glm(*gaussian(40, 300), family="gaussian"),
        lambda: targets.glm(*gaussian(400, 300), family="student-t"),
    ],
    ids=["logistic", "linear", "gaussian", "student-t"],
)
def test_where_a_factor_of_the_hessian_does_not_fit_the_error_says_how_long_it_takes(made, clock, monkeypatch):
    monkeypatch.setattr(deadlines, "time_small_product", lambda _: 1e-3)
    with pytest.raises(BudgetError, match=r"budget_seconds=5 ends before .* It would take roughly .* s\.") as caught:
        sample(made(), budget_seconds=5.0)
    assert 0.2e-3 * 300**3 <= caught.value.needed < 1e6
    assert clock.now == 0.0  # nothing of it was begun


def test_a_sparse_hessian_is_found_some_columns_at_a_time_and_the_same(monkeypatch):
    rng = np.random.default_rng(4)
    target = targets.logistic(
        scipy.sparse.random_array((200, 30), density=0.2, rng=rng, format="csr"), np.arange(200) % 2
    )
    whole = target.hessian(np.zeros(30))
    monkeypatch.setattr(stored, "_BLOCK_PRODUCTS", 100)
    assert (target.hessian(np.zeros(30)) == whole).all()
    clock, calls = Clock(), []
    deadline = Budget(1, 5.0, math.inf, clock=clock)

    def late_look(each):
        for one in checking_budget(each):
            calls.append(one)
            clock.now += 3.0
            yield one

    monkeypatch.setattr(stored, "checking_budget", late_look)
    with deadline.binding(), pytest.raises(BudgetSpent):
        target.hessian(np.zeros(30))
    assert len(calls) == 2


def test_estimates_by_a_users_own_function_stop_between_two_states(clock):
    plain, calls = component_gradients(400), []

    def told(x, rows):
        calls.append(len(rows))
        clock.now += 1.0 if len(rows) == 1 else 0.0  # where the noise of single rows is measured
        return plain._gradients(x, rows)

    posterior = sample(targets.custom(400, 2, told), budget_seconds=5.0)
    assert posterior.method == "laplace"
    assert calls.count(1) <= 7  # five seconds, and two calls apart; all 64 states would be 256


@pytest.mark.parametrize("made", [regression, functools.partial(targets.glm, family="poisson")])
def test_the_search_for_the_mode_stops_after_one_hessian(made, clock, monkeypatch):
    target = regression() if made is regression else made(np.ones((30, 1)), np.arange(30) % 3)
    calls = late(monkeypatch, clock, GeneralisedLinear, "hessian")
    with pytest.raises(
        BudgetError, match=r"budget_seconds=5 ends before the mode and the .* found.* roughly .* s\. Give a"
    ):
        sample(target, budget_seconds=5.0)
    assert len(calls) == 1


def test_so_does_one_with_many_columns_between_two_products(clock, monkeypatch):
    rng = np.random.default_rng(2)
    X = scipy.sparse.random_array((300, 2100), density=0.02, rng=rng, format="csr")
    target = targets.logistic(X, rng.random(300) < 0.5)
    products = late(monkeypatch, clock, GeneralisedLinear, "operator")
    with pytest.raises(BudgetError) as caught:
        sample(target, budget_seconds=5.0)
    assert len(products) == 1
    assert caught.value.name == "budget_seconds"
    assert caught.value.limit == 5.0


def test_and_one_by_gradients_alone(clock):
    calls = []
    target = component_gradients(calls=calls)

    def told(x, rows):
        calls.append(len(rows))
        clock.now = FAR if len(calls) > 20 else 0.0
        return target._gradients(x, rows)

    with pytest.raises(BudgetError):
        sample(targets.custom(target.n, 2, told), budget_seconds=5.0)
    assert len(calls) < 45  # two entries a call: 21 calls, and one on its way


@pytest.mark.parametrize("budget", ["budget_seconds", "budget_passes"])
@pytest.mark.parametrize("limit", [20.0, 40.0])
@pytest.mark.parametrize("known", [False, True])
def test_a_search_by_gradients_says_how_much_it_would_take(known, limit, budget, clock):
    """A pass takes a second here. What the whole takes is known: the search's passes, and two for each coordinate."""
    a, bend = np.random.default_rng(2).normal(size=(30, 8)), np.geomspace(1.0, 300.0, 8)

    def gradients(x, rows):
        clock.now += 1.0
        return (x - a[rows]) * bend

    def value(x):
        clock.now += 1.0
        return 0.5 * float((bend * (x - a) ** 2).sum(axis=1).mean())

    made = functools.partial(targets.custom, 30, 8, gradients, value if known else None)
    whole = made()
    whole.mode()
    passes = whole.mode_passes + 16
    assert passes > 1.2 * limit
    with pytest.raises(BudgetError, match=f"It would take roughly .* {'s' if 'sec' in budget else 'passes'}") as caught:
        sample(made(), **{budget: limit})
    assert caught.value.name == budget
    assert max(limit, passes / 3) < caught.value.needed < 3 * passes


def test_where_nothing_was_measured_the_error_says_that_it_is_not_known(clock):
    def gradients(x, rows):
        clock.now += 10.0
        return x - np.ones((len(rows), 2))

    with pytest.raises(BudgetError, match="How much it would take is not known") as caught:
        sample(targets.custom(5, 2, gradients), budget_seconds=5.0)
    assert caught.value.needed == np.inf


def test_an_error_of_a_budget_can_be_sent_to_another_process():
    import pickle

    error = pickle.loads(pickle.dumps(BudgetError("budget_seconds", 2.0, "the mode is found", 30.0)))
    assert (error.name, error.limit, error.needed) == ("budget_seconds", 2.0, 30.0)
    assert str(error) == (
        "budget_seconds=2 ends before the mode is found, and without that there is nothing to return. It would take "
        "roughly 30 s. Give a larger budget, or none."
    )


def is_laplace(found, target, chains=4):
    """The Laplace approximation, said to be nothing else."""
    assert found.method == "laplace"
    assert found.certificate.verdict == "undecided"
    assert "the budget ended before any draw; these numbers are those of the Laplace approximation" in str(found)
    assert not found.complete
    assert found.trace.draws.shape[0] == chains
    assert found.mean == pytest.approx(target.mode(), rel=1e-9)
    assert found.sd == pytest.approx(np.sqrt(np.diag(np.linalg.inv(target.hessian(target.mode())))), rel=1e-9)
    return True


@pytest.mark.parametrize(
    ("owner", "name", "most"),
    [(FreshGradients, "gradients_at", 1), (ReferenceChains, "extend", 1)],
    ids=["choice", "tuning"],
)
def test_before_any_draw_the_laplace_approximation_is_given(owner, name, most, clock, monkeypatch):
    target = regression()
    calls = late(monkeypatch, clock, owner, name)
    posterior = sample(target, budget_seconds=5.0)
    assert is_laplace(posterior, target)
    assert len(calls) <= most
    draws = posterior.trace.draws.reshape(-1, 2)  # independent draws of N(mean, H⁻¹): |z| < 4.5
    assert np.abs((draws.mean(axis=0) - posterior.mean) / posterior.sd).max() < 4.5 / math.sqrt(len(draws))
    assert np.abs(draws.std(axis=0) / posterior.sd - 1).max() < 4.5 / math.sqrt(2 * len(draws))


def test_chains_are_never_fewer_than_asked_for(clock, monkeypatch):
    target = regression()
    late(monkeypatch, clock, ReferenceChains, "extend")
    assert is_laplace(sample(target, 10, chains=700, budget_seconds=5.0), target, 700)


@pytest.mark.parametrize("owner", [ReferenceChains, CompiledChains])
def test_draws_that_were_made_are_given(owner, clock, monkeypatch):
    method = "split-hmc" if owner is ReferenceChains else Sampler(UBU(0.3, 1.0, 1.0), Full())
    calls = late(monkeypatch, clock, owner, "extend", after=12)
    posterior = sample(regression(), 10**6, method=method, budget_seconds=5.0)
    assert len(calls) == 12  # the last is thrown away
    assert posterior.trace.draws.shape[1] >= 4
    assert not posterior.complete
    assert np.isfinite(posterior.errors).all()


def test_a_piece_that_was_held_up_does_not_end_the_draws(clock, monkeypatch):
    plain, calls = ReferenceChains.extend, []

    def extend(self, count, *rest):
        calls.append(count)
        clock.now += 0.001 * count + (1.0 if len(calls) == 3 else 0.0)
        return plain(self, count, *rest)

    monkeypatch.setattr(ReferenceChains, "extend", extend)
    posterior = sample(regression(), 10**6, method="split-hmc", budget_seconds=5.0)
    assert posterior.method == "split-hmc"
    assert posterior.trace.draws.shape[1] > 100  # 4 s are left after it, and a draw takes a millisecond
    assert posterior.seconds <= 5.0


@pytest.mark.parametrize("owner", [ReferenceChains, CompiledChains])
@pytest.mark.parametrize("each", [0.004, 0.04])
def test_a_budget_that_ends_the_draws_is_used_up(owner, each, clock, monkeypatch):
    """However wrong the estimate is of what follows the draws: here that takes no time at all."""
    plain = owner.extend

    def extend(self, count, *rest):
        clock.now += each * count
        return plain(self, count, *rest)

    monkeypatch.setattr(owner, "extend", extend)
    method = "split-hmc" if owner is ReferenceChains else Sampler(UBU(0.3, 1.0, 1.0), Full())
    posterior = sample(regression(), 10**6, method=method, budget_seconds=40.0)
    assert not posterior.complete
    assert 0.8 * 40 <= posterior.seconds <= 40


@pytest.fixture
def slow_draws(clock, monkeypatch):
    """A step takes 0.01 s, and gradients at the draws and moments take a third as long as the draws themselves."""
    plain, of = CompiledChains.extend, search.DrawMoments.of

    def extend(self, count, *rest):
        clock.now += 0.01 * count
        return plain(self, count, *rest)

    def found_of(z, x, *rest):
        clock.now += 0.01 / 3 * x.shape[1]
        return of(z, x, *rest)

    monkeypatch.setattr(CompiledChains, "extend", extend)
    monkeypatch.setattr(search.DrawMoments, "of", staticmethod(found_of))


@pytest.mark.usefixtures("slow_draws")
def test_what_follows_the_draws_is_paid_for_once_it_was_measured():
    method = Sampler(UBU(0.3, 1.0, 1.0), Full())
    posterior = sample(regression(), 10**6, method=method, budget_seconds=40.0, certificate=False)
    assert 0.7 * 40 <= posterior.seconds <= 40
    assert np.isfinite(posterior.errors).all()


@pytest.mark.usefixtures("slow_draws")
def test_first_steps_leave_as_many_for_the_draws():
    """A step so short that it takes far more of them to settle than the budget pays for."""
    method = Sampler(UBU(0.001, 1.0, 1.0), Full())
    posterior = sample(regression(), 10**6, method=method, budget_seconds=40.0, certificate=False)
    assert posterior.trace.draws.shape[1] > 1000  # of 4000 steps
    assert 0.7 * 40 <= posterior.seconds <= 40


@pytest.mark.usefixtures("slow_draws")
def test_a_person_is_told_how_long_the_budget_lasts(monkeypatch):
    """And not how long the next piece takes, which is half of that at most."""
    pieces = []

    def reporter(asked, total, remark=""):
        piece = {"total": total, "made": 0}
        pieces.append(piece)
        return (lambda amount: piece.update(made=piece["made"] + amount)), (lambda: None)

    monkeypatch.setattr(drawing, "reporter", reporter)
    method = Sampler(UBU(0.3, 1.0, 1.0), Full())
    sample(regression(), 10**6, method=method, budget_seconds=40.0, certificate=False)
    long = [piece for piece in pieces if piece["made"] > 100]
    assert len(long) > 3
    assert all(piece["total"] >= 1.9 * piece["made"] for piece in long)


def churn():
    rng = np.random.default_rng(5)
    age = rng.normal(size=60)
    return {"age": age, "churn": (age + rng.logistic(size=60) > 0).astype(int)}


DOORS = {
    "fit": lambda table: svrhmc.fit("churn ~ age", table, budget_seconds=5.0),
    "regress": lambda table: regress(table["age"][:, None], table["churn"], "bernoulli", budget_seconds=5.0),
    "estimator": lambda table: svrhmc.BayesianLogisticRegression(budget_seconds=5.0).fit(
        table["age"][:, None], table["churn"]
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_front_doors_keep_to_the_same_deadline(door, clock, monkeypatch):
    calls = late(monkeypatch, clock, GeneralisedLinear, "hessian")
    with pytest.raises(BudgetError, match="budget_seconds=5 ends before the mode"):
        DOORS[door](churn())
    assert len(calls) == 1


def test_the_shell_says_in_one_line_that_a_budget_is_too_small(clock, monkeypatch, tmp_path):
    from typer.testing import CliRunner

    from svrhmc.shell.app import app

    calls, table = late(monkeypatch, clock, GeneralisedLinear, "hessian"), churn()
    lines = ["age,churn", *(f"{a},{b}" for a, b in zip(table["age"], table["churn"], strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    asked = ["fit", str(tmp_path / "t.csv"), "--target", "churn", "--budget", "5", "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 1
    assert "error: budget_seconds=5 ends before the mode" in result.stderr
    assert len(calls) == 1


def test_gradients_at_the_draws_may_be_missing(clock, monkeypatch):
    plain, armed = FreshGradients.gradients_at, []

    def at(self, gradient, states, seed, first=0):
        if seed >= 1 << 50:  # those at the draws
            armed.append(len(states))
            clock.now = FAR
        return plain(self, gradient, states, seed, first)

    monkeypatch.setattr(FreshGradients, "gradients_at", at)
    posterior = sample(regression(200), 200, method="anchored", budget_seconds=5.0)
    assert len(armed) == 1
    assert posterior.certificate.verdict == "undecided"
    assert "the budget ended before the gradients at the draws were found" in str(posterior.certificate)
    assert (posterior.mean == posterior.raw.mean).all()
    assert np.isfinite(posterior.errors).all()


def test_pairs_of_chains_stop_between_two_steps(clock, monkeypatch):
    moves = late(monkeypatch, clock, Pairs, "_step_of_chain")
    posterior = sample(regression(200), 200, method="anchored", budget_seconds=5.0)
    assert len(moves) == 3  # one step of a pair
    assert posterior.certificate.verdict == "undecided"
    assert "the budget ended before the bias was measured" in str(posterior.certificate)
    assert posterior.complete


def test_draws_from_a_known_law_are_as_many_as_the_budget_pays_for(clock, monkeypatch):
    X = np.column_stack([np.ones(20), np.arange(20.0)])
    target = targets.linear(X, np.arange(20.0) % 7)
    law = type(target.exact_law)
    plain = law.draw

    def draw(self, stream, count):
        clock.now += 0.01 * count
        return plain(self, stream, count)

    monkeypatch.setattr(law, "draw", draw)
    posterior = sample(target, 4000, budget_seconds=5.0)
    assert posterior.trace.draws.shape == (4, 256, 2)  # 4 + 16 + 64 + 256 draws take 3.4 s, and 1000 more 10 s
    assert not posterior.complete
    assert posterior.certificate.verdict == "exact"
    assert posterior.seconds <= 5.0
    whole = sample(target, 4000)
    assert whole.complete
    assert (sample(target, 4000, budget_seconds=1e6).trace.draws == whole.trace.draws).all()


@pytest.mark.parametrize("budget", [15, 60, 90, 150, 200, 333, 1000])
@pytest.mark.parametrize("method", ["split-hmc", SubsampledMH(0.2), Sampler(UBU(0.3, 1.0, 1.0), Full()), "anchored"])
def test_a_budget_in_passes_is_never_exceeded_by_more_than_a_step(method, budget):
    """A step of all chains is the piece that is not divided; only that of subsampled chains has a random length."""
    target = regression(100)
    posterior = sample(target, 10**6, method=method, budget_passes=budget)
    step = 4.0 if isinstance(method, SubsampledMH) else 0.0
    assert posterior.passes <= budget + step
    assert not posterior.complete


def test_a_budget_in_passes_counts_the_search_for_a_mode():
    for target in (regression(), component_gradients()):
        with pytest.raises(BudgetError, match="budget_passes=3 ends before the mode and"):
            sample(target, budget_passes=3)
        target.mode()
        with pytest.raises(BudgetError, match="budget_passes=3"):  # known already or not
            sample(target, budget_passes=3)


def test_what_a_budget_left_goes_through_a_file_and_a_checkpoint(tmp_path):
    target = regression()
    posterior = sample(target, 100, budget_passes=20, checkpoint=tmp_path / "run")
    assert is_laplace(posterior, target)
    again = sample(target, 100, budget_passes=20, checkpoint=tmp_path / "run")
    assert (again.trace.draws == posterior.trace.draws).all()
    assert again.passes == posterior.passes
    posterior.save(tmp_path / "posterior.npz")
    kept = Posterior.load(tmp_path / "posterior.npz")
    assert kept.method == "laplace"
    assert (kept.mean == posterior.mean).all()
    assert np.isinf(kept.errors[0]).all()


def test_a_number_of_passes_beyond_all_use_is_refused():
    for passes in (1e308, 1e300, 1e17):
        with pytest.raises(ValueError, match="passes must be"):
            svrhmc.lmc(1e-3).run(regression(), passes=passes)


def test_tuning_has_a_bound_of_its_own(monkeypatch):
    """Where no share of accepted proposals is enough, steps fall to 0.005 where f is convex, and what was made with the last is given."""
    monkeypatch.setattr(preparation, "_ACCEPTED", 2.0)
    plain, steps = ChainStarter._drawing, []

    def told(self, sampler, seed, name):
        steps.append(sampler.step_size)
        return plain(self, sampler, seed, name)

    monkeypatch.setattr(ChainStarter, "_drawing", told)
    posterior = sample(regression(), 40)
    assert posterior.method == "split-hmc"
    assert len(steps) < 20
    assert 0.005 <= steps[-1] < 0.005 / 0.75
