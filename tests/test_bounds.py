"""Numbers and times of which bounds are known: formulas against mpmath, probabilities that add up, point fits of
lifelines and of SciPy's minimiser, quadrature, calibration, and what stands before "~".
"""

import mpmath
import numpy as np
import pandas
import pytest
from scipy.integrate import quad

import svrhmc
from conftest import LIMIT, untraced
from svrhmc.core.errors import DataError
from svrhmc.results.survival import survivors
from svrhmc.targets import families, glm
from svrhmc.targets.priors import Flat

mp, inf = mpmath.mp, np.inf
derivative = untraced()(mp.diff)
LAWS = {
    "exponential": "extreme", "weibull": "extreme", "log-logistic": "logistic", "log-normal": "normal",
    "gaussian": "normal", "student-t": "student",
}  # fmt: skip


def loss_of(name):
    return families.family_of(name).with_bounds()


def distribution(law, z):
    """F(z); Student's with 4 degrees of freedom."""
    if abs(z) == mp.inf:
        return mp.mpf(z > 0)
    if law == "normal":
        return mp.erfc(-z / mp.sqrt(2)) / 2
    if law == "logistic":
        return 1 / (1 + mp.exp(-z))
    if law == "extreme":
        return -mp.expm1(-mp.exp(z))
    w = z / mp.sqrt(4 + z * z)
    return (2 + w * (3 - w * w)) / 4


def defined(law, label, eta, tau):
    """−log of the density, or of a probability, given what can be seen."""
    low, high, lb, ub = ((mp.mpf(v) if np.isfinite(v) else mp.inf * int(np.sign(v))) for v in label)
    z = lambda v: v if abs(v) == mp.inf else (v - eta) / mp.exp(tau)  # noqa: E731
    seen = -mp.log(distribution(law, z(high)) - distribution(law, z(low))) if low < high else None
    if low == high:
        density = {
            "normal": lambda v: mp.exp(-v * v / 2) / mp.sqrt(2 * mp.pi),
            "logistic": lambda v: mp.exp(-v) / (1 + mp.exp(-v)) ** 2,
            "extreme": lambda v: mp.exp(v - mp.exp(v)),
            "student": lambda v: mp.mpf(3) / 8 * (1 + v * v / 4) ** mp.mpf(-2.5),
        }[law]
        seen = tau - mp.log(density(z(low)))
    whole = distribution(law, z(ub)) - distribution(law, z(lb))
    return seen + mp.log(whole)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "log-normal" else name for name in LAWS]
)  # whose law is that of "gaussian"
def test_formulas_keep_their_digits_far_out(name):
    loss = loss_of(name)
    m = 1 + loss.shared
    labels = [
        (0.7, 0.7, -inf, inf), (0.7, inf, -inf, inf), (-inf, 0.7, -inf, inf), (0.5, 0.9, -inf, inf),
        (0.5, 0.500000001, -inf, inf), (0.7, 0.7, -1, 2.5), (0.7, inf, 0.2, inf), (0.3, 0.8, -inf, 0.9),
        (-19.0, -18.9, -inf, inf),
    ]  # fmt: skip
    checked = 0
    for label in labels:
        for eta, tau in ((1.3, -0.7), (-4.0, 0.3), (6.0, 0.2)):
            tau = tau if loss.shared else 0.0
            z = ((label[1] if label[1] < inf else label[0]) - eta) / np.exp(tau)
            if abs(z) > 20 or (LAWS[name] == "extreme" and z > 5):  # where densities have more digits than these
                continue
            f = lambda *u, label=label: defined(LAWS[name], label, u[0], u[1] if len(u) > 1 else mp.mpf(0))  # noqa: E731
            point, orders = (mp.mpf(eta), mp.mpf(tau))[:m], np.eye(m, dtype=int)
            with mp.workdps(160):
                value = float(f(*point)) - (loss.law.constant if label[0] == label[1] else 0.0)
                slope = np.array([float(derivative(f, point, tuple(order))) for order in orders])
                bend = np.array([[float(derivative(f, point, tuple(a + b))) for b in orders] for a in orders])
            t, y = (np.array([eta, tau]) if loss.shared else np.array(eta)), np.array(label, float)
            assert float(loss.value(t, y)) == pytest.approx(value, rel=1e-13, abs=1e-13), (label, eta, tau)
            steep = 1e-12 * np.abs(slope).max()  # a difference of two parts where rows are truncated
            assert np.atleast_1d(loss.slope(t, y)) == pytest.approx(slope, rel=1e-13, abs=steep), (label, eta, tau)
            most = 1e-11 * np.abs(bend).max()
            curvature = np.reshape(loss.curvature(t, y), (m, m))
            assert curvature == pytest.approx(bend, rel=1e-12, abs=most), (label, eta, tau)
            checked += 1
    assert checked >= 16


@pytest.mark.parametrize("name", LAWS)
def test_probabilities_of_what_can_be_seen_add_up_to_one(name):
    """Of intervals from c to e, and of the density between them; without what truncates they do not."""
    loss = loss_of(name)
    t = np.array([0.4, -0.3]) if loss.shared else np.array(0.4)
    edges = np.array([0.2, 0.5, 0.9, 1.4, 3.0])
    labels = np.column_stack([edges[:-1], edges[1:], np.full(4, 0.2), np.full(4, 3.0)])
    scale = (lambda v: v) if loss.identity_link else np.log
    total = np.exp(-loss.value(t, scale(labels))).sum()
    assert total == pytest.approx(1.0, rel=1e-12)
    labels[:, 2:] = -inf, inf
    assert np.exp(-loss.value(t, np.column_stack([scale(labels[:, :2]), labels[:, 2:]]))).sum() < 0.9

    def density(v):
        y = np.array([scale(v), scale(v), scale(0.2), scale(3.0)])
        return float(np.exp(-loss.value(t, y) - loss.constant(y)))

    assert quad(density, 0.2, 3.0, epsabs=1e-11)[0] == pytest.approx(1.0, rel=1e-8)
    y = scale(np.array([[0.5, 0.9, 0.2, 3.0]]))
    below, at_most = loss.cumulative(t, y)
    assert below[0] == pytest.approx(quad(density, 0.2, 0.5)[0], rel=1e-7)
    assert at_most[0] == pytest.approx(quad(density, 0.2, 0.9)[0], rel=1e-7)


def times(seed, n):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    return rng, X, np.exp(X @ [1.0, 0.5, -0.4] + 0.6 * np.log(rng.exponential(size=n)))


def visited():
    """Times that lie between two of four visits."""
    rng, X, time = times(11, 200)
    visits = np.sort(rng.uniform(0.2, 6, (200, 3)), axis=1)
    edges, k = np.column_stack([np.zeros(200), visits, np.full(200, inf)]), (time[:, None] > visits).sum(1)
    return X, edges[np.arange(200), k], edges[np.arange(200), k + 1]


def entered():
    """Right-censored times of those whose event came after they entered."""
    rng, X, time = times(12, 400)
    start = rng.uniform(0, 2, 400)
    end, there = start + rng.exponential(4, 400), time > start
    return X[there], start[there], np.minimum(time, end)[there], (time <= end)[there]


def measured():
    """Numbers that an instrument gives from 0 to 2.5."""
    rng = np.random.default_rng(13)
    x = rng.normal(size=300)
    return x, 1 + 0.8 * x + rng.normal(size=300)


# (Intercept, two slopes, log σ) of lifelines 0.30.3
LIFELINES = {
    "visited": [0.9389605147714931, 0.4435424708086829, -0.4633715338033513, -0.5871636268250937],
    "entered": [1.084032330569711, 0.4439567729687261, -0.4177130529277075, -0.6097328771819287],
}
LOGISTIC_ENTERED = [0.8707529531026129, 0.38905584972747137, -0.3771865356830134, -1.0060899758320438]


def step_to_mode(X, y, family, x):
    """Newton's step from x under nearly flat priors: how far the mode is."""
    weak = {"prior_precision": 1e-9, "shared_prior": svrhmc.targets.priors.Normal(1e-9)}
    target = glm(X, y, family, **weak)
    return np.linalg.solve(target.hessian(np.array(x)), target.gradient(np.array(x)))


def test_the_modes_under_flat_priors_are_the_point_fits_of_lifelines():
    X, low, high = visited()
    assert np.abs(step_to_mode(X, families.bounded(low, high), "weibull", LIFELINES["visited"])).max() < 3e-4
    X, start, stop, event = entered()
    y = families.bounded(stop, np.where(event, stop, inf), start)
    assert np.abs(step_to_mode(X, y, "weibull", LIFELINES["entered"])).max() < 3e-4
    assert np.abs(step_to_mode(X, y, "log-logistic", LOGISTIC_ENTERED)).max() < 5e-4
    late = families.bounded(stop, np.where(event, stop, inf))
    assert np.abs(step_to_mode(X, late, "weibull", LIFELINES["entered"])).max() > 0.05
    with pytest.raises(ValueError, match="has a limit, which is not 0"):
        glm(X, y, "weibull", prior=Flat(), shared_prior=Flat())


# by SciPy's minimiser, from its normal and Student's laws
TOBIT, TRUNCATED, STUDENT = (
    [1.04538803, 0.73749319, -0.00108605], [0.82455911, 0.85466487, 0.13884433], [1.03874957, 0.74527949, -0.16163016],
)  # fmt: skip


def test_the_modes_of_numbers_with_limits():
    x, y = measured()
    X = np.column_stack([np.ones(300), x])
    cut = families.bounded(np.where(y <= 0, -inf, np.minimum(y, 2.5)), np.where(y >= 2.5, inf, np.maximum(y, 0)))
    assert np.abs(step_to_mode(X, cut, "gaussian", TOBIT)).max() < 1e-6
    assert np.abs(step_to_mode(X, cut, "student-t", STUDENT)).max() < 1e-6
    there = y > 0.5
    cut = families.bounded(y[there], lb=0.5)
    assert np.abs(step_to_mode(X[there], cut, "gaussian", TRUNCATED)).max() < 1e-5
    assert np.abs(step_to_mode(X[there], y[there], "gaussian", TRUNCATED)).max() > 0.1


@pytest.mark.parametrize(
    "name",
    ["weibull", "log-logistic", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gaussian", "student-t"))],
)
def test_split_hmc_has_the_law_of_quadrature(name):
    from quadrature import around_the_mode
    from svrhmc.exact import SplitHMC

    if families.family_of(name).identity_link:
        _, number = measured()
        number = number[number > -0.5][:24]
        y = families.bounded(np.where(number <= 0.5, -inf, number), np.maximum(number, 0.5), -0.5)
    else:
        _, low, high = visited()
        y = families.bounded(low, high, 0.15)[low > 0.15][:24]
    target = glm(np.ones((len(y), 1)), y, name)
    draws = SplitHMC().run(target, 300, chains=100, seed=4, burn_in=60).draws
    points, weight = around_the_mode(target, 9.0, 301)
    mean = weight @ points
    for moment, shift in ((lambda x: x, 0.0), (lambda x: (x - mean) ** 2, 0.0), (lambda x: x, 0.1)):
        by_chain = moment(draws).mean(axis=1)
        z = np.abs(by_chain.mean(axis=0) - weight @ moment(points) - shift) / (by_chain.std(axis=0) / 10)
        assert (z < LIMIT).all() if shift == 0 else (z > LIMIT).any(), z


def test_what_stands_before_the_tilde():
    X, low, high = visited()
    table = {"x": X[:, 1], "low": low, "high": np.where(high < inf, high, np.nan)}
    fit = svrhmc.fit("Surv(low, high, type='interval2') ~ x", table, seed=1)
    assert fit.family == "weibull"
    assert "known up to an interval" in str(fit.summary())
    assert fit.certificate.verdict == "exact"
    assert fit.misfits == ()
    codes = np.where(low == 0, 2, np.where(high < inf, 3, 0))
    written = {"x": X[:, 1], "a": np.where(low > 0, low, high), "b": np.where(high < inf, high, 1.0), "event": codes}
    other = svrhmc.fit("Surv(a, b, event, type='interval') ~ x", written, seed=1)
    assert np.array_equal(fit.mean, other.mean)
    curves = fit.survival({"x": [0.0, 1.0]}, [0.0, 1.0, 3.0])
    assert curves.mean[:, 0].tolist() == [1.0, 1.0]
    X, start, stop, event = entered()
    table = {"x": X[:, 1], "start": start, "stop": stop, "event": event}
    one = svrhmc.fit("Surv(start, stop, event) ~ x", table, seed=1)
    other = svrhmc.fit("trunc(Surv(stop, event), lb=start) ~ x", table, "weibull", seed=1)
    assert np.array_equal(one.mean, other.mean)
    late = svrhmc.fit("Surv(stop, event) ~ x", table, seed=1)
    assert abs(late.mean[0] - one.mean[0]) > 0.05
    x, y = measured()
    table = {"x": x, "y": y, "cut": np.clip(y, 0, 2.5), "most": np.full(300, 2.5)}
    tobit = svrhmc.fit("cens(cut, lower=0, upper=most) ~ x", table, seed=1)
    assert tobit.family == "gaussian"
    assert tobit.mean == pytest.approx(TOBIT, abs=0.03)
    assert np.abs(svrhmc.fit("cut ~ x", table, "gaussian", seed=1).mean - TOBIT).max() > 0.1
    plain = svrhmc.fit("cens(y, upper=1000) ~ x", table, "gaussian", seed=1)
    assert np.array_equal(plain.mean, svrhmc.fit("y ~ x", table, "gaussian", seed=1).mean)


def test_left_censored_times_and_groups():
    X, low, high = visited()
    site = np.arange(200) % 8
    table = {"x": X[:, 1], "time": np.where(low > 0, low, high), "seen": low > 0, "site": site.astype(str)}
    fit = svrhmc.fit("Surv(time, seen, type='left') ~ x + (1 | site)", table, "log-normal", seed=1, draws=200)
    assert fit.names[-1] == "sd(1 | site)"
    assert "censored on the left" in fit.design.guessed


def test_exponential_times_have_no_memory():
    """A row that enters late is as one that begins at 0, and a stretch cut in two is two rows."""
    X, start, stop, event = entered()
    whole = glm(X, families.bounded(stop, np.where(event, stop, inf), start), "exponential")
    assert whole.loss == families.exponential()
    assert np.array_equal(whole.mode(), glm(X, families.censored(stop - start, event), "exponential").mode())
    middle = 0.5 * (start + stop)
    y = families.bounded(
        np.concatenate([middle, stop]), np.concatenate([middle * inf, np.where(event, stop, inf)]),
        np.concatenate([start, middle]),
    )  # fmt: skip
    assert glm(np.tile(X, (2, 1)), y, "exponential").mode() == pytest.approx(whole.mode(), abs=1e-9)


def test_the_nonparametric_curve_is_that_of_kaplan_and_meier_and_of_turnbull():
    from svrhmc.results.survival import kaplan_meier

    rng = np.random.default_rng(5)
    time, end = rng.exponential(size=80), rng.exponential(2.0, 80)
    event, seen = time <= end, np.minimum(time, end)
    labels = families.bounded(seen, np.where(event, seen, inf))
    at = np.linspace(0.05, seen.max() * 0.9, 20)
    assert survivors(labels, at) == pytest.approx(kaplan_meier(seen, event).at(at), abs=1e-6)
    # Peto's example by hand: (0, 1], (4, 6], (2, 6], (0, 3], (2, 4], (5, 7], as in Turnbull's paper
    labels = families.bounded([0, 4, 2, 0, 2, 5], [1, 6, 6, 3, 4, 7])
    steps = survivors(labels, np.array([1.5, 3.5, 4.5, 6.5]))
    assert (np.diff(steps) <= 1e-9).all()
    assert steps[-1] == pytest.approx(0.0, abs=1e-6)
    late = families.bounded([2.0, 3.0, 4.0], [2.0, 3.0, 4.0], [0.5, 2.5, 1.0])  # risk sets of 2, 2 and 1
    assert survivors(late, np.array([2.5, 3.5])) == pytest.approx([0.5, 0.25], abs=1e-6)


@pytest.mark.parametrize(
    ("formula", "family", "message"),
    [
        ("Surv(b, a, event) ~ x", None, "start must be below stop in every row; got 3 and 1 at row 0"),
        ("Surv(b, a, type='interval2') ~ x", None, "lower must be at most upper; got 3 at row 0"),
        (
            "Surv(a, b, type='interval3') ~ x",
            None,
            "its types are 'right', 'left', 'counting', 'interval', 'interval2'",
        ),
        ("Surv(a, b, event, type='interval2') ~ x", None, "Surv cannot be used so: it is Surv(lower, upper"),
        ("Surv(a, b, b, type='interval') ~ x", None, "0 (right-censored), 1 (event), 2 (left) or 3 (interval)"),
        ("Surv(none, everywhere, type='interval2') ~ x", None, "narrower than what can be seen"),
        ("Surv(below, b, type='interval2') ~ x", None, "0 or more for times"),
        ("cens(b, lower=7) ~ x", "gaussian", "left-censored ones alone"),
        ("cens(b, upper=1) ~ x", "gaussian", "right-censored ones alone"),
        ("cens(b, lower=9, upper=1) ~ x", "gaussian", "lower must be below upper; got 9 and 1 at row 0"),
        ("cens(b) ~ x", "gaussian", "with one limit at least"),
        ("trunc(b, lb=3) ~ x", "gaussian", "upper must be above lb; got 3 at row 0: a row outside of lb and ub"),
        ("trunc(b, lb=5, ub=4) ~ x", "gaussian", "lb must be below ub"),
        ("cens(b, upper=2) ~ x", "poisson", "takes none: take one of"),
        ("Surv(b, event) ~ x", "gaussian", "numbers with limits are cens(y, lower=…, upper=…)"),
        ("x ~ cens(b, upper=2)", None, "stand before '~'"),
        ("np.log(trunc(b, lb=0)) ~ x", None, "is the whole response"),
        ("trunc(trunc(b, lb=0), ub=9) ~ x", None, "is the whole response"),
    ],
)
def test_responses_that_cannot_be_used(formula, family, message):
    table = {
        "a": np.array([1.0, 2.0, 3.0, 2.0]), "b": np.array([3.0, 4.0, 5.0, 6.0]), "event": np.array([1, 0, 1, 1]),
        "x": np.array([0.0, 1.0, 2.0, 4.0]), "none": np.zeros(4), "everywhere": np.full(4, inf),
        "below": np.array([1.0, -2.0, 1.0, 1.0]),
    }  # fmt: skip
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        svrhmc.fit(formula, table, family)


def test_labels_of_arrays_that_cannot_be_used():
    X = np.ones((3, 1))
    for make, message in [
        (lambda: families.bounded([1.0, np.nan, 2.0]), "a number in every row"),
        (lambda: families.bounded([1.0, 2.0], [1.0]), "one number for each row"),
        (lambda: families.bounded(["a", "b"]), "one number for each row"),
        (lambda: families.bounded([1.0, 2.0, 3.0], lb=[0.0, 2.0, 1.0]), "above lb; got 2 at row 1"),
        (lambda: glm(X, families.bounded([1.0, 2.0], [2.0, 3.0]), "weibull"), "3 rows of"),
        (lambda: glm(X, np.ones((3, 2)), "weibull"), "bounded"),
        (lambda: glm(X, families.bounded([0.0, 1.0, 2.0]), "weibull"), "above 0 for times"),
        (lambda: glm(X, families.bounded([1.0, 1.0, 2.0], [inf] * 3), "weibull"), "right-censored ones alone"),
        (lambda: glm(X, families.bounded([1.0, 1.0, 2.0], lb=-1.0), "weibull"), "time begins at 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()


def test_rows_in_partitions_take_right_censored_times_alone(tmp_path):
    X, low, high = visited()
    pandas.DataFrame({"x": X[:, 1], "low": low, "high": high + 1}).to_parquet(tmp_path / "0.parquet")
    data = svrhmc.data.from_parquet(tmp_path)
    with pytest.raises(DataError, match="read the table into memory"):
        svrhmc.fit("cens(low, upper=2) ~ x", data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["weibull", "gaussian"])
def test_ranks_of_what_drew_the_data_are_uniform(name):
    """Of 200 parameters drawn from the prior, each with rows that are censored and truncated by chance; the ranks
    among the draws have a χ² that a right posterior has, and one that takes rows as not truncated does not.
    """
    from scipy.stats import chi2

    rng, bins = np.random.default_rng(21), 10
    counts, wrong = np.zeros((3, bins)), np.zeros((3, bins))
    loss = families.family_of(name)
    for trial in range(200):
        x = np.array([*rng.normal(size=2), rng.normal() * 0.5])
        X = np.column_stack([np.ones(120), rng.normal(size=120)])
        t = np.column_stack([X @ x[:2], np.full(120, x[2])])
        number = loss.draw(t, rng.random(120))
        lb = -0.5 if loss.identity_link else 0.4
        limit = rng.normal(1.0, 1.0, 120) if loss.identity_link else rng.exponential(3.0, 120)
        there = (number > lb) & (limit > lb)
        if (number < limit)[there].sum() < 3:
            continue
        low, high = np.minimum(number, limit)[there], np.where(number < limit, number, inf)[there]
        near = np.arange(there.sum()) % 3 == 0  # some are known up to an interval
        close = near & (high < inf)
        low = np.where(close, np.maximum(np.floor(low * 2) / 2, lb), low)
        high = np.where(close, np.floor(high * 2) / 2 + 0.5, high)
        prior = {"prior_precision": 1.0, "shared_prior": svrhmc.targets.priors.Normal(4.0)}
        for into, bound in ((counts, lb), (wrong, None)):
            try:
                target = glm(X[there], families.bounded(low, high, bound), name, **prior)
            except ValueError:
                continue
            draws = svrhmc.sample(target, draws=400, seed=trial).draws[:, ::4].reshape(-1, 3)
            into[np.arange(3), ((draws < x).mean(axis=0) * bins).astype(int).clip(max=bins - 1)] += 1
    expected = counts.sum(axis=1, keepdims=True) / bins
    assert expected.min() > 15
    p = chi2.sf(((counts - expected) ** 2 / expected).sum(axis=1), bins - 1)
    assert (p > 1e-4).all(), p
    assert (
        chi2.sf(
            ((wrong - wrong.sum(1, keepdims=True) / bins) ** 2 / (wrong.sum(1, keepdims=True) / bins)).sum(1), 9
        ).min()
        < 1e-6
    )


def test_stretches_have_the_likelihood_of_steps():
    from scipy.stats import expon

    from svrhmc.tables import split_times

    X, start, stop, event = entered()
    table = {"x": X[:, 1], "start0": start, "time": stop, "event": event}
    pieces = split_times(table, "time", "event", cuts=[1.0, 2.0, 4.0], entry="start0")
    assert pieces["exposure"].sum() == pytest.approx((stop - start).sum())
    assert pieces["event"].sum() == event.sum()
    assert (pieces["start"] >= pieces["start0"]).all()
    rates = np.array([0.2, 0.4, 0.1, 0.3])
    counts = rates[pieces["stretch"]] * pieces["exposure"]
    poisson = (pieces["event"] * np.log(rates[pieces["stretch"]]) - counts).sum()
    hazard = np.concatenate([[0.0], np.cumsum(rates[:3] * [1.0, 1.0, 2.0])])
    edges = np.array([0.0, 1.0, 2.0, 4.0])

    def cumulative(v):
        k = np.searchsorted(edges, v, "right") - 1
        return hazard[k] + rates[k] * (v - edges[k])

    place = np.searchsorted(edges, stop, "left") - 1
    exact = expon.logsf(cumulative(stop)) - expon.logsf(cumulative(start)) + event * np.log(rates[place])
    assert poisson == pytest.approx(exact.sum(), rel=1e-12)
    fit = svrhmc.fit("event ~ s(start, k=4) + x", pieces, "poisson", exposure="exposure", seed=1, draws=200)
    assert fit.mean[list(fit.names).index("x")] == pytest.approx(
        -0.44 / np.exp(-0.61), abs=0.25
    )  # that of Weibull times
    for arguments, message in [
        ({"cuts": [2.0, 1.0]}, "in order"),
        ({"cuts": [1.0], "entry": "time"}, "such a row was never watched"),
        ({"cuts": [1.0], "entry": "nothing"}, "no column 'nothing'"),
    ]:
        with pytest.raises(ValueError, match=message):
            split_times(table, "time", "event", **arguments)
    with pytest.raises(ValueError, match="0 or 1"):
        split_times({**table, "event": event + 1}, "time", "event", cuts=[1.0])
    with pytest.raises(ValueError, match="has the name of one that is made"):
        split_times({**table, "stop": stop}, "time", "event", cuts=[1.0])


def test_the_report_draws_what_bounds_allow_for(tmp_path):
    x, y = measured()
    fit = svrhmc.fit("cens(y, lower=0, upper=2.5) ~ x", {"x": x, "y": np.clip(y, 0, 2.5)}, seed=1)
    text = fit.report(tmp_path / "report.html").read_text()
    assert "Turnbull" in text
    fit.save(tmp_path / "kept.npz")
    again = svrhmc.Posterior.load(tmp_path / "kept.npz")
    assert again.predict({"x": [0.0]}).mean == pytest.approx(fit.predict({"x": [0.0]}).mean)
