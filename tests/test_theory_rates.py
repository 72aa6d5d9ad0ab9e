"""Table 1 with the terms that it leaves out, the steps of its regimes, Theorem 2, and rates in other distances."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy import stats

import svrhmc
from svrhmc import theory
from svrhmc.theory import Problem

QUIET = Problem(n=1000, dim=10, smoothness=20.0, convexity=1.0, gradient_variance=0.0)
GRID = [
    (Problem(n, d, L, 1.0, 0.0, V), eps)
    for n in (10, 10**6)
    for d in (1, 100)
    for L in (1.0, 1e3)
    for V in (0.0, 1.0, 1e8)
    for eps in (1e-3, 1e-1)
]


def slope(cost, name, value, factor=1.001):
    """d log cost / d log name."""
    low, high = cost(**{name: value / factor}), cost(**{name: value * factor})
    return math.log(high / low) / math.log(factor**2)


# Table 1.


def by_lemma_5(problem, eps, method):
    """Steps of a noisy method, solved from Lemma 5 with constants: each error at ε/3, K = log(3w₀/ε)/A."""
    kappa, d, mu, L, V = (
        problem.condition_number,
        problem.dim,
        problem.convexity,
        problem.smoothness,
        problem.gradient_variance,
    )
    if method == "sgld":  # Dalalyan & Karagulyan: A = μη, C/A = 1.65κ√(ηd), B = η√V
        eta = min((eps / 3 / (1.65 * kappa)) ** 2 / d, (eps / 3) ** 2 * mu / V if V else math.inf)
        return 1 / (mu * eta)
    found = theory.constants(problem, 1e-12)  # A ≥ η/(4κ), C = (2√D₁ + √D₂)η², B = ηu√V
    C_over_A = 4 * kappa * (2 * math.sqrt(found.D_1) + math.sqrt(found.D_2))
    noise = (eps / 3) ** 2 * L**2 / (4 * kappa * V) if V else math.inf
    return 2 * kappa / min(eps / 3 / C_over_A, noise)


@pytest.mark.parametrize("method", ["sgld", "sg-hmc"])
def test_rows_of_noisy_gradients_are_the_solution_of_lemma_5_up_to_a_constant(method):
    corrected, printed = (
        [
            by_lemma_5(p, eps, method) / max(theory.complexity(p, eps, method, printed=how).total, 1e-9)
            for p, eps in GRID
        ]
        for how in (False, True)
    )
    assert max(corrected) / min(corrected) < 150  # one constant, of d/μ + d/L too, for all
    assert max(printed) / min(printed) > 1e6  # without noise the printed row costs nothing


def test_without_noise_one_gradient_is_all_of_them():
    """SG-HMC on equal components is HMC, and costs one gradient where that costs n; so with SGLD and LMC."""
    target = svrhmc.targets.gaussian(np.ones((50, 2)), np.diag([0.5, 2.0]))
    problem = Problem.of(target)
    assert problem.gradient_variance == pytest.approx(0, abs=1e-20)
    for noisy, full in (("sg-hmc", "hmc"), ("sgld", "lmc")):
        a, b = (theory.plan(target, 0.05, method) for method in (noisy, full))
        assert b.gradient_evaluations == 50 * a.gradient_evaluations
        a, b = (theory.complexity(problem, 0.05, method).total for method in (noisy, full))
        assert b == pytest.approx(50 * a)
        assert theory.complexity(problem, 0.05, noisy, printed=True).total == pytest.approx(0, abs=1e-12)


def test_printed_rows_are_as_printed_and_the_comparison_can_be_either():
    problem = replace(QUIET, gradient_variance=4e4)
    d, kappa, eps, sigma2 = 10, 20.0, 0.1, 4e4 / 10 / 400  # the table's σ², with μ = 1
    for method in ("sgld", "sg-hmc"):
        row = theory.complexity(problem, eps, method, printed=True)
        assert row.total == pytest.approx(kappa**2 * sigma2 * d / eps**2)
        first, second = theory.complexity(problem, eps, method).terms
        assert second.value == pytest.approx(row.total)
        assert first.value == pytest.approx(kappa**2 * (d / eps**2 if method == "sgld" else d**0.5 / eps))
    for printed in (False, True):
        comparison = theory.compare(QUIET, 0.1, printed)
        assert comparison.cheapest == "sg-hmc"
        totals = {row.method: row.total for row in comparison.rows}
        assert (totals["sg-hmc"] == 0) == printed
        assert ("κ²(d/μ)^½/ε + κ²dσ²/ε²" in str(comparison)) != printed
    loud = replace(QUIET, gradient_variance=1e5)
    crossing = theory.crossings(loud, 0.1)[-1]
    assert crossing == pytest.approx(theory.boundaries(loud, 0.1)["n2"], rel=0.6)  # n itself is counted too
    assert theory.crossings(loud, 0.1, printed=True)[-1] > crossing  # κ^{3/4}
    assert [r.cheapest for r in theory.regimes(loud, 0.1, printed=True)][-1] == "sg-hmc"


# Steps.


def planned_step(problem, eps):
    return theory.plan(problem, eps, rule="corollary").step_size


STEPS = {  # regime: problem, accuracy, slopes of the step in n, d, κ, ε
    "first": (Problem(2, 10, 1e3, 1.0, 0.0, 10.0), 1e-5, (0, -0.5, -1, 1)),
    "second": (Problem(10**9, 10, 1e2, 1.0, 0.0, 10.0), 1e-4, (-2 / 3, -1 / 3, -1 / 3, 2 / 3)),
}


@pytest.mark.parametrize("regime", STEPS)
def test_steps_have_the_slopes_of_the_equations_of_the_corollary(regime):
    problem, eps, slopes = STEPS[regime]
    for step in (lambda p, e: theory.optimal_step(p, e).value, planned_step):
        changes = [
            step(replace(problem, n=2 * problem.n), eps),
            step(replace(problem, dim=2 * problem.dim), eps),
            step(replace(problem, smoothness=2 * problem.smoothness), eps),
            step(problem, 2 * eps),
        ]
        assert [math.log2(c / step(problem, eps)) for c in changes] == pytest.approx(slopes, abs=0.02)
    printed = theory.optimal_step(problem, eps, printed=True)
    assert (printed == theory.optimal_step(problem, eps)) == (regime == "second")  # the Remark's, for every n


def test_steps_change_where_the_regimes_do_and_are_continuous():
    problem = Problem(n=1000, dim=10, smoothness=3.0, convexity=1.0, gradient_variance=100.0)
    edges = theory.boundaries(problem, 0.01)
    formulas = []
    for edge in ("n1", "n3"):
        n = round(edges[edge])
        before, after = (theory.optimal_step(replace(problem, n=round(n * f)), 0.01) for f in (0.99, 1.01))
        assert before.formula != after.formula
        assert before.value == pytest.approx(after.value, rel=0.02)
        formulas += [before.formula, after.formula]
    assert formulas[1] == formulas[2] == theory.optimal_step(problem, 0.01, printed=True).formula
    huge = [theory.optimal_step(replace(problem, n=round(edges["n3"] * f)), 0.01).value for f in (10, 1000)]
    assert huge[0] == huge[1]
    assert problem.condition_number / huge[0] == pytest.approx(edges["n3"])  # steps, fewer than one epoch's


@pytest.mark.parametrize("method", ["lmc", "hmc", "sgld", "sg-hmc"])
def test_a_row_is_its_time_over_its_step(method):
    for problem, eps in GRID:
        time = 1 / problem.convexity if method in ("lmc", "sgld") else problem.condition_number
        each = problem.n if method in ("lmc", "hmc") else 1
        taken = each * time / theory.optimal_step(problem, eps, method).value
        total = theory.complexity(problem, eps, method).total
        assert taken <= total * (1 + 1e-12) <= 2 * taken * (1 + 1e-9)


def test_the_step_of_sg_hmc_is_shorter_where_the_remark_says_so():
    for problem, eps in GRID:
        if problem.gradient_variance == 0:
            continue
        short = theory.optimal_step(problem, eps, "sg-hmc").value <= theory.optimal_step(problem, eps).value * (
            1 + 1e-9
        )
        assert short or problem.n > theory.boundaries(problem, eps)["n2"]
    for bad in ("lmc", "hmc", "sgld"):
        with pytest.raises(ValueError, match="method must be one of 'sg-hmc', 'svr-hmc'"):
            theory.optimal_step(QUIET, 0.1, bad, printed=True)
    assert theory.optimal_step(QUIET, 0.1, "sg-hmc", printed=True).value == math.inf
    with pytest.raises(ValueError, match="gradient_variance must be given for SGLD"):
        theory.optimal_step(replace(QUIET, gradient_variance=None), 0.1, "sgld")


def test_factors_of_the_remark_over_hmc_and_sg_hmc():
    """By κ²d^{1/2}/ε and n^{2/3}κ^{4/3}d^{1/3}/ε^{2/3}; over SG-HMC's noise in the first regime σ²d^{1/2}/ε, with σ²."""
    d, kappa, eps, sigma2 = 10, 50.0, 1e-3, 7.0
    few = Problem(5, d, kappa, 1.0, gradient_variance=sigma2 * d * kappa**2)
    _, second, _ = theory.complexity(few, eps, "svr-hmc").terms
    noise = theory.complexity(few, eps, "sg-hmc", printed=True).total
    assert theory.complexity(few, eps, "hmc").total / second.value == pytest.approx(5)
    assert noise / second.value == pytest.approx(sigma2 * d**0.5 / eps)
    assert noise / second.value != pytest.approx(d**0.5 / eps, rel=0.5)  # as printed
    n = 10**6
    many = replace(few, n=n)
    third = theory.complexity(many, eps, "svr-hmc").terms[2].value
    over_hmc = theory.complexity(many, eps, "hmc").total / third
    assert over_hmc == pytest.approx(n ** (1 / 3) * kappa ** (2 / 3) * d ** (1 / 6) / eps ** (1 / 3))
    assert noise / third == pytest.approx(kappa ** (2 / 3) * d ** (2 / 3) * sigma2 * n ** (-2 / 3) / eps ** (4 / 3))


# Theorem 2.

RATES = {"svr-hmc": None, "hmc": (1, 5.5, -6), "lmc": (1, 7, -8)}
TERMS = [(1, 0, 0), (0, 5.5, -6), (2 / 3, 11 / 3, -4)]  # slopes in n, d, ε


def term(which, method="svr-hmc", n=10**6, dim=100, accuracy=1e-3, wrong=0.0):
    """With Assumption 3: E|x|⁴ = Ūd², Ū = 2; `wrong` changes the power of d in it."""
    found = theory.general_complexity(round(n), round(dim), 1.0, 2.0 * round(dim) ** (2 + wrong), accuracy, method)
    return found.terms[which].value


def slopes(cost):
    return slope(cost, "n", 10**6, 2), slope(cost, "dim", 1000, 2), slope(cost, "accuracy", 1e-3)


@pytest.mark.parametrize("which", range(3))
def test_theorem_2_has_its_powers(which):
    assert slopes(lambda **at: term(which, **at)) == pytest.approx(TERMS[which], abs=1e-3)
    if which:  # fourth moments that grow like d³ would give others
        assert slopes(lambda **at: term(which, wrong=1.0, **at)) != pytest.approx(TERMS[which], abs=0.5)


@pytest.mark.parametrize("method", ["hmc", "lmc"])
def test_full_gradients_on_the_same_targets(method):
    assert slopes(lambda **at: term(0, method, **at)) == pytest.approx(RATES[method], abs=1e-3)


def test_theorem_2_is_table_1_on_the_regularised_target():
    """With the strength and the accuracy that `regularised` and `plan` would be given."""
    n, d, L, moment, eps = 500, 3, 4.0, 20.0, 0.1
    strength = eps**2 / moment
    assert theory.regularisation_distance(strength, moment) == pytest.approx(eps / 2)
    problem = Problem(n, d, L + strength, strength, component_smoothness=10 * L + strength)
    row = theory.general_complexity(n, d, L, moment, eps, component_smoothness=10 * L)
    assert row == theory.complexity(problem, eps / 2, "svr-hmc")
    leading = 2 * L**2 * d**0.5 * moment**2.5 / eps**6
    assert row.terms[1].value == pytest.approx(leading, rel=1e-3)
    assert row.terms[2].value == pytest.approx((leading * math.sqrt(10) * n) ** (2 / 3), rel=1e-3)
    for bad in ({"fourth_moment": 0.0}, {"accuracy": -1.0}, {"smoothness": 0.0}):
        with pytest.raises(ValueError, match="must be a positive number"):
            theory.general_complexity(
                **{"n": 5, "dim": 1, "smoothness": 1.0, "fourth_moment": 1.0, "accuracy": 0.1, **bad}
            )


# Total variation and Kullback–Leibler divergence.


def test_small_total_variation_bounds_w2_by_the_fourth_moment():
    """W₂ ≤ 2(M TV)^{1/4} on pairs of laws, by quadrature; not with M^{1/4} TV (the control)."""
    x = np.linspace(-60, 60, 400_001)
    gap = x[1] - x[0]
    worst = 0.0
    for a, b in (
        (stats.norm(0, 1), stats.norm(0.3, 1)),
        (stats.norm(0, 1), stats.norm(0, 1.4)),
        (stats.laplace(0, 1), stats.norm(0, 1)),
        (stats.norm(0, 1), stats.norm(0, 1.02)),
    ):
        p, q = a.pdf(x), b.pdf(x)
        tv = 0.5 * np.abs(p - q).sum() * gap
        moment = max((x**4 * p).sum(), (x**4 * q).sum()) * gap
        u = (np.arange(20_000) + 0.5) / 20_000
        w2 = math.sqrt(np.mean((a.ppf(u) - b.ppf(u)) ** 2))
        assert w2 <= 2 * (moment * tv) ** 0.25
        worst = max(worst, w2 / (moment**0.25 * tv))
        kl = (p * (a.logpdf(x) - b.logpdf(x))).sum() * gap
        assert tv <= math.sqrt(kl / 2)  # Pinsker
        if isinstance(b.dist, type(stats.norm)):
            assert w2 <= math.sqrt(2 * kl * b.var()) * (1 + 1e-6)  # Lemma 9, Talagrand: b is 1/var-strongly log-concave
    assert worst > 1


def test_a_small_w2_bounds_no_total_variation():
    """Atoms on a grid: W₂ to the uniform law is the grid's, and TV is 1."""
    points = 1000
    u = (np.arange(points * 100) + 0.5) / (points * 100)
    atoms = (np.floor(u * points) + 0.5) / points
    assert math.sqrt(np.mean((u - atoms) ** 2)) < 3e-4  # while no set of atoms has any uniform mass


def test_rates_in_other_distances_and_what_they_come_to_in_w2():
    def rate(which, name, **at):
        settings = {"n": 10**6, "dim": 1000, "accuracy": 1e-3, **at}
        d = round(settings["dim"])
        found = theory.other_rates(round(settings["n"]), d, settings["accuracy"], 2.0 * d**2)[which]
        return getattr(found, name)

    own, inside = [(1, 3, -4), (1, 5, -2), (1, 1, -3)], [(1, 11, -16), (1, 9, -8), (1, 7, -12)]
    for which in range(3):
        for name, powers in (("own", own), ("gradients", inside)):
            found = slopes(lambda which=which, name=name, **at: rate(which, name, **at))
            assert found == pytest.approx(powers[which], abs=1e-3)
        ours = theory.general_complexity(10**6, 1000, 1.0, 2e6, 1e-3).total
        assert rate(which, "gradients") > 1e3 * ours
    rates = theory.other_rates(1000, 10, 0.1, 100.0)
    assert [r.metric for r in rates] == ["TV", "TV", "KL"]
    assert rates[0].needed == pytest.approx(0.1**4 / 1600)
    assert rates[2].needed == pytest.approx(0.1**4 / 800)
    with pytest.raises(ValueError, match="TV is at most 1"):
        theory.other_rates(10, 1, 10.0, 1.0)


# In the report.


def test_the_reports_table_1_has_both_and_their_ratio(tmp_path):
    from svrhmc.paper.settings import load_settings
    from svrhmc.paper.table1 import table1

    settings, claims, results = load_settings(), [], {}
    delta = settings["table1"]["accuracy"]
    for name, variance in (("quiet", 1e-3), ("loud", 1e8)):
        problem = Problem(2000, 20, 5e3, 2.0, 1.0, variance, 3e4)
        eps = delta * problem.scale
        results[f"table1 {name}"] = {"accuracy": eps, "problem": asdict(problem)}
    blocks = table1(results, settings, tmp_path, claims)
    head, quiet, loud = [line.split(",") for line in (tmp_path / "table1.csv").read_text().splitlines()]
    for name, line in (("quiet", quiet), ("loud", loud)):
        said = dict(zip(head, line, strict=True))
        problem, eps = Problem(**results[f"table1 {name}"]["problem"]), results[f"table1 {name}"]["accuracy"]
        for row in theory.compare(problem, eps).rows:
            assert float(said[row.method]) == pytest.approx(row.total, rel=0.05)
        printed = theory.complexity(problem, eps, "sg-hmc", printed=True)
        assert float(said["sg-hmc_printed"]) == pytest.approx(printed.total, rel=0.05)
        assert said["cheapest"] == ("SG-HMC" if name == "quiet" else "SVR-HMC")
    assert claims[0].verdict == "does not"
    assert "by the printed rows it would be" in blocks[1].markdown
