"""Times that may be right-censored: formulas against mpmath, laws against SciPy, point fits of lifelines, long runs of
NUTS, quadrature, and from `Surv(time, event)` to survival curves.
"""

import json

import mpmath
import numpy as np
import pandas
import pytest
from scipy import stats
from scipy.integrate import quad

import svrhmc
from conftest import LIMIT, untraced
from svrhmc.core.errors import DataError
from svrhmc.results.survival import kaplan_meier, restricted_means
from svrhmc.targets import families, glm
from svrhmc.targets.priors import Flat, Normal

mp = mpmath.mp
derivative = untraced()(mp.diff)
NAMES = ("exponential", "weibull", "log-logistic", "log-normal")


def loss_of(name):
    return families.family_of(name).with_censoring()


def at(name, eta, log_sigma, shape=()):
    """t of a family at η and log σ."""
    both = np.stack(np.broadcast_arrays(eta, log_sigma), axis=-1) if loss_of(name).shared else np.asarray(eta, float)
    return np.broadcast_to(both, (*shape, *both.shape)).copy() if shape else both


def defined(name, y, eta, tau):
    """−log of density (times the time) or of survival, by their definitions."""
    z = (mp.log(abs(y)) - eta) / mp.exp(tau)
    if name == "log-normal":
        return tau + z**2 / 2 if y > 0 else -mp.log(mp.erfc(z / mp.sqrt(2)) / 2)
    if name == "log-logistic":
        density, beyond = mp.exp(z) / (1 + mp.exp(z)) ** 2, 1 / (1 + mp.exp(z))
    else:
        density, beyond = mp.exp(z - mp.exp(z)), mp.exp(-mp.exp(z))
    return tau - mp.log(density) if y > 0 else -mp.log(beyond)


@pytest.mark.parametrize("name", NAMES)
def test_formulas_keep_their_digits_far_out(name):
    from one_row import row_energy

    loss = loss_of(name)
    m = 1 + loss.shared
    places = [(0.0, 0.0), (1.3, -0.7), (-2.0, 1.0), (4.0, -1.5), (-4.0, 2.0), (9.0, 0.5), (1.0, 3.0), (1e-9, -0.1)]
    checked = 0
    for y in (2.0, -2.0, 1e-6, -1e-6, 3e4, -3e4, 1.0, -1.0):
        for eta, tau in places:
            tau = tau if loss.shared else 0.0
            f = lambda *u, y=y: defined(name, mp.mpf(y), u[0], u[1] if len(u) > 1 else mp.mpf(0))  # noqa: E731
            point, orders = (mp.mpf(eta), mp.mpf(tau))[:m], np.eye(m, dtype=int)
            with mp.workdps(320):
                z = float((mp.log(abs(mp.mpf(y))) - point[0]) / mp.exp(tau))
                if not -200 < z < (6 if "log-" not in name else 30):  # beyond, densities have more digits than these
                    continue
                value = float(f(*point))
                slope = [float(derivative(f, point, tuple(order))) for order in orders]
                bend = [[float(derivative(f, point, tuple(one + other))) for other in orders] for one in orders]
            checked += 1
            t = at(name, eta, tau)
            room = 4e-15 * (1 + abs(z)) * (1 + np.exp(min(z, 6.0) if "log-" not in name else 0.0))
            assert float(loss.value(t, np.array(y))) == pytest.approx(value, rel=1e-13, abs=room), (y, eta, tau)
            steep = 1e-13 * max(map(abs, slope)) + room * np.exp(-tau)
            assert np.atleast_1d(loss.slope(t, np.array(y))) == pytest.approx(slope, rel=1e-13, abs=steep)
            most = 1e-12 * np.abs(bend).max() + 10 * room * (1 + abs(z)) * np.exp(-2 * min(tau, 0.0))
            curvature = np.reshape(loss.curvature(t, np.array(y)), (m, m))
            assert curvature == pytest.approx(np.array(bend), rel=1e-12, abs=most), (y, eta, tau)
            if m > 1:
                s = np.empty(m)
                assert row_energy(loss.record(), t, y, s) == pytest.approx(value, rel=1e-13, abs=room)
                assert s == pytest.approx(slope, rel=1e-13, abs=steep)
    assert checked >= 20


@pytest.mark.parametrize("name", ["weibull", "log-logistic", "log-normal"])
def test_nothing_is_lost_where_a_time_is_far_off(name):
    """Survival of e^{−10⁴} and less has a finite logarithm with all its digits."""
    loss = loss_of(name)
    for z, wanted in {
        "weibull": [(9.0, mp.exp(9)), (-40.0, mp.exp(-40))],
        "log-logistic": [(5000.0, mp.mpf(5000)), (-40.0, mp.log1p(mp.exp(-40)))],
        "log-normal": [
            (200.0, -mp.log(mp.erfc(200 / mp.sqrt(2)) / 2)),
            (-9.0, -mp.log1p(-mp.erfc(9 / mp.sqrt(2)) / 2)),
        ],
    }[name]:
        found = float(loss.value(np.array([-z, 0.0]), np.array(-1.0)))
        assert found == pytest.approx(float(wanted), rel=1e-13), z


def law_of(name, eta, sigma):
    scale = np.exp(eta)
    return {
        "exponential": stats.expon(scale=scale),
        "weibull": stats.weibull_min(1 / sigma, scale=scale),
        "log-logistic": stats.fisk(1 / sigma, scale=scale),
        "log-normal": stats.lognorm(sigma, scale=scale),
    }[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_family_has_the_law_that_scipy_has(name):
    loss, eta, sigma = loss_of(name), 0.4, 0.7 if name != "exponential" else 1.0
    law, times = law_of(name, eta, sigma), np.linspace(0.05, 9, 12)
    t = at(name, eta, np.log(sigma), (12,))
    assert np.exp(-loss.value(t, times) - loss.constant(times)) == pytest.approx(law.pdf(times), rel=1e-11)
    assert np.exp(-loss.value(t, -times) - loss.constant(-times)) == pytest.approx(law.sf(times), rel=1e-11)
    assert loss.survival(t, times) == pytest.approx(law.sf(times), rel=1e-11)
    below, at_most = loss.cumulative(t, np.where(np.arange(12) % 2, times, -times))
    assert below == pytest.approx(law.cdf(times), rel=1e-10)
    assert at_most[::2].tolist() == [1.0] * 6
    assert at_most[1::2] == pytest.approx(below[1::2])
    u = (np.arange(12) + 0.5) / 12
    assert loss.draw(t, u) == pytest.approx(law.ppf(u), rel=1e-10)
    assert loss.mean(t) == pytest.approx(law.mean(), rel=1e-10)
    assert loss.original_labels(-times) == pytest.approx(times)
    if loss.shared:
        wanted = law_of(name, 0.0, sigma).rvs(400_000, random_state=1)
        assert loss.link_variance(np.ones(1), np.log([[sigma]]))[0] == pytest.approx(np.log(wanted).var(), rel=0.02)
    assert families.log_logistic().mean(np.array([0.0, 0.1])) == np.inf


@pytest.mark.parametrize("name", NAMES)
def test_restricted_means_are_the_area_under_the_curve(name):
    loss = loss_of(name)
    for eta, sigma, horizon in [(0.4, 0.7, 3.0), (0.0, 0.15, 0.4), (1.0, 1.8, 50.0), (0.0, 0.05, 30.0)]:
        sigma = sigma if name != "exponential" else 1.0
        law = law_of(name, eta, sigma)
        with np.errstate(divide="ignore"):  # in SciPy's own formula near 0
            area = quad(law.sf, 0, horizon, points=[law.median()] if law.median() < horizon else None, limit=200)[0]
        found = restricted_means(loss, at(name, eta, np.log(sigma), (1,)), horizon)[0]
        assert found == pytest.approx(area, rel=2e-5), (sigma, horizon)


def drawn():
    """200 rows of Weibull times, a third of them censored."""
    rng = np.random.default_rng(7)
    X = np.column_stack([np.ones(200), rng.normal(size=(200, 2))])
    time = np.exp(X @ [1.0, 0.5, -0.4] + 0.6 * np.log(rng.exponential(size=200)))
    end = rng.exponential(6.0, 200)
    return X, np.minimum(time, end), time <= end


# (Intercept, two slopes, log σ) of lifelines 0.30.3
LIFELINES = {
    "weibull": [1.0172179466, 0.5378000361, -0.4423189229, -0.6089613746],
    "log-logistic": [0.7669038502, 0.5341020863, -0.4495985362, -0.9136043716],
    "log-normal": [0.7234682399, 0.5568726819, -0.4570656369, -0.3037129802],
}


@pytest.mark.parametrize("name", LIFELINES)
def test_the_mode_under_flat_priors_is_the_point_fit_of_lifelines(name):
    X, time, event = drawn()
    y = families.censored(time, event)
    target = glm(X, y, loss_of(name), prior=Flat(), shared_prior=Flat())
    assert target.mode() == pytest.approx(LIFELINES[name], abs=1e-4)
    ignored = glm(X, time, loss_of(name), prior=Flat(), shared_prior=Flat())
    assert np.abs(ignored.mode() - LIFELINES[name]).max() > 0.05


# means and standard deviations of 40,000 draws of NumPyro's NUTS, in float64
NUTS = {
    "exponential": ([1.02255, 0.58281, -0.49192], [0.08557, 0.08984, 0.09338]),
    "weibull": ([1.01926, 0.53587, -0.4416, -0.59299], [0.04799, 0.05015, 0.05357, 0.06355]),
    "log-logistic": ([0.7657, 0.53371, -0.44859, -0.8995], [0.05564, 0.0616, 0.06227, 0.06935]),
    "log-normal": ([0.72308, 0.55536, -0.45626, -0.29055], [0.05971, 0.06608, 0.06553, 0.05929]),
}


@pytest.mark.parametrize("name", NUTS)
def test_long_runs_of_nuts(name):
    X, time, event = drawn()
    mean, sd = map(np.array, NUTS[name])
    target = glm(X, families.censored(time, event), loss_of(name))
    found = svrhmc.sample(target, draws=4000, seed=1)
    assert found.certificate.verdict == "exact"
    assert np.abs((found.mean - mean) / sd).max() < 0.03
    assert np.abs(found.sd / sd - 1).max() < 0.03
    ignored = svrhmc.sample(glm(X, time, loss_of(name)), seed=1)
    assert np.abs((ignored.mean - mean) / sd).max() > 1


@pytest.mark.parametrize("name", NAMES)
def test_engines_and_derivatives_of_targets(name):
    import jax

    from svrhmc.engines.jax.rows import slopes

    X, time, event = drawn()
    y = families.censored(time, event)
    target = glm(X, y, loss_of(name), offset=np.linspace(-0.3, 0.3, 200), weights=1.0 + np.arange(200) % 3)
    x = np.random.default_rng(1).normal(size=target.dim) / 3
    step = 1e-5 * np.eye(target.dim)
    numeric = np.array([(target.potential(x + h) - target.potential(x - h)) / 2e-5 for h in step])
    assert target.gradient(x) == pytest.approx(numeric, rel=1e-6, abs=1e-4)
    bend = np.array([(target.gradient(x + h) - target.gradient(x - h)) / 2e-5 for h in step])
    assert target.hessian(x) == pytest.approx(bend, rel=1e-6, abs=1e-3)
    t = np.random.default_rng(2).normal(size=(200, 1 + target.loss.shared))
    with jax.enable_x64(True):
        on_jax = slopes(target.loss.record(), jax.numpy.asarray(t), jax.numpy.asarray(target.y))
    own = target.loss.slope(t if target.loss.predictor_shape else t[:, 0], target.y).reshape(200, -1)
    assert np.asarray(on_jax) == pytest.approx(own, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_split_hmc_has_the_law_of_quadrature(name):
    from quadrature import around_the_mode
    from svrhmc.exact import SplitHMC

    X, time, event = drawn()
    target = glm(X[:24, :1], families.censored(time, event)[:24], loss_of(name))
    draws = SplitHMC().run(target, 300, chains=100, seed=4, burn_in=60).draws
    points, weight = around_the_mode(target, 9.0, {1: 2001, 2: 301}[target.dim])
    mean = weight @ points
    for moment, shift in ((lambda x: x, 0.0), (lambda x: (x - mean) ** 2, 0.0), (lambda x: x, 0.1)):
        by_chain = moment(draws).mean(axis=1)
        z = np.abs(by_chain.mean(axis=0) - weight @ moment(points) - shift) / (by_chain.std(axis=0) / 10)
        assert (z < LIMIT).all() if shift == 0 else (z > LIMIT).any(), z


@pytest.mark.parametrize("name", NAMES)
def test_compiled_rows_are_those_of_numpy(name):
    from svrhmc.exact import SplitHMC

    X, time, event = drawn()
    target = glm(X, families.censored(time, event), loss_of(name))
    one, other = (
        SplitHMC().run(target, 20, chains=2, seed=3, engine=engine).draws for engine in ("numba", "reference")
    )
    assert one == pytest.approx(other, rel=1e-7, abs=1e-9)


def table_of(name, n=400, between=0.0, seed=0):
    rng = np.random.default_rng([seed, NAMES.index(name)])
    x, arm, site = rng.normal(size=n), rng.choice(["a", "b"], n), rng.integers(0, 12, n)
    eta = 3 + 0.5 * x + 0.4 * (arm == "b") + between * rng.normal(size=12)[site]
    time, end = loss_of(name).draw(at(name, eta, -0.4), rng.random(n)), rng.exponential(60.0, n)
    event = time <= end
    return pandas.DataFrame(
        {
            "x": x, "arm": arm, "site": site.astype(str), "time": np.minimum(time, end), "event": event,
            "status": 1 + event, "state": np.where(event, "died", "alive"),
        }
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_from_formula_to_report(name, tmp_path):
    table = table_of(name)
    found = svrhmc.fit("Surv(time, event) ~ x + C(arm)", table, name, seed=1)
    loss = loss_of(name)
    assert found.names == ("Intercept", "x", "arm[b]", *loss.shared_names)
    assert found.family == name
    assert found.certificate.verdict == "exact", str(found.certificate)
    assert found.misfits == ()
    assert found.checked_rows == 400
    assert abs(found.mean[1] - 0.5) < LIMIT * found.sd[1]
    summary = str(found.summary())
    assert "times are censored" in summary
    assert "time ratio" in summary
    ratios = found.ratios().to_frame()
    assert ratios.loc["x", "time ratio"] == pytest.approx(np.exp(found.quantile(0.5)[1]))
    if loss.proportional_hazards:
        draws = found.trace.draws.reshape(-1, found.trace.draws.shape[2])
        sigma = np.exp(draws[:, 3]) if loss.shared else 1.0
        wanted = np.median(np.exp(-draws[:, 1] / sigma))
        assert ratios.loc["x", "hazard ratio"] == pytest.approx(wanted, rel=0.02)
    prediction = found.predict(table[:5])
    assert np.isfinite(prediction.mean).all()
    curves = found.survival(table[:5], [0.0, 10.0, 40.0], draws=4000)
    assert curves.mean[:, 0].tolist() == [1.0] * 5
    assert (np.diff(curves.mean, axis=1) < 0).all()
    assert (curves.interval[0] <= curves.mean + 1e-12).all()
    assert (curves.restricted_mean[0] < 40).all()
    assert curves.median[0] == pytest.approx(prediction.new_quantiles[1], rel=0.06)
    frame = curves.to_frame()
    assert list(frame) == ["row", "time", "survival", "5%", "95%"]
    assert len(frame) == 15
    assert frame["row"].drop_duplicates().tolist() == table.index[:5].tolist()
    named = found.survival(table[:2].set_axis(["anna", "ben"]), [10.0])
    assert named.to_frame()["row"].tolist() == ["anna", "ben"]
    assert named.summary().names == ("anna", "ben")
    assert "median" in str(curves)
    assert curves.plot(tmp_path / "curves.png") is not None
    assert (tmp_path / "curves.png").exists()
    assert found.survival(table[:2]).times[-1] == pytest.approx(table["time"].max())
    assert np.isfinite(found.effects().mean).all()
    text = found.report(tmp_path / "report.html").read_text()
    assert "Kaplan–Meier" in text
    assert "<h1>What is associated with time until event?</h1>" in text
    assert "the logarithm of time until event" in text
    assert ">Kaplan–Meier estimate</text>" in text
    found.save(tmp_path / "kept.npz")
    again = svrhmc.Posterior.load(tmp_path / "kept.npz")
    assert np.array_equal(again.survival(table[:5], [10.0]).mean, found.survival(table[:5], [10.0]).mean)
    with pytest.raises(ValueError, match="times must be given"):
        again.survival(table[:5])


def test_an_event_in_the_place_of_the_time_is_answered():
    table = {"time": [1.5, 2.0, 0.5], "event": [1, 0, 1], "lost": ["yes", "no", "no"], "x": [0.0, 1.0, 2.0]}
    for response in ("Surv(event, time)", "Surv(lost == 'yes', time)", "Surv(lost, time)"):
        with pytest.raises(svrhmc.DataError, match="takes the time first: these two are the other way round"):
            svrhmc.fit(f"{response} ~ x", table)


def test_log_normal_times_that_all_ended_are_the_family_without_censoring():
    table = table_of("log-normal")
    one = svrhmc.fit("Surv(time) ~ x", table, "log-normal", seed=1)
    other = svrhmc.fit("time ~ x", table, "log-normal", seed=1)
    assert np.array_equal(one.mean, other.mean)
    assert one.survival(table[:2], [9.0]).mean == pytest.approx(other.survival(table[:2], [9.0]).mean)
    loss, t = families.log_normal(), np.array([1.0, -0.3])
    assert loss.survival(t, np.array(9.0)) == pytest.approx(stats.lognorm(np.exp(-0.3), scale=np.e).sf(9.0))


@pytest.mark.parametrize("name", NAMES)
def test_likelihoods_are_densities_and_survival(name):
    table = table_of(name, 60)
    found = svrhmc.fit("Surv(time, event) ~ x", table, name, seed=1)
    (_, block), *_ = found.log_likelihood(draws=3)
    x = found.without_groups(3)
    own = found.units
    draws = svrhmc.Posterior.without_groups(found, 3) if own is None else own.outward(x)
    for k, one in enumerate(draws):
        law = law_of(name, one[0] + one[1] * table["x"].to_numpy(), np.exp(one[2]) if len(one) > 2 else 1.0)
        time = table["time"].to_numpy()
        wanted = np.where(table["event"], law.logpdf(time), law.logsf(time))
        assert block[k] == pytest.approx(wanted, rel=1e-8, abs=1e-8)


def test_groups_and_the_family_that_none_names():
    table = table_of("weibull", between=0.4)
    found = svrhmc.fit("Surv(time, event) ~ x + (1 | site)", table, seed=1, draws=400)
    assert found.family == "weibull"
    assert "no family was named" in found.design.guessed
    assert found.names[-1] == "sd(1 | site)"
    assert abs(found.mean[1] - 0.5) < 5 * found.sd[1]
    new = table[:3].assign(site=["0", "1", "somewhere else"])
    assert found.survival(new, [10.0, 20.0]).mean.shape == (3, 2)


def test_the_unit_of_time_does_not_matter():
    table = table_of("weibull", 200)
    one = svrhmc.fit("Surv(time, event) ~ x", table, "weibull", seed=1)
    other = svrhmc.fit("Surv(365.25 * time, status == 2) ~ x", table, "weibull", seed=1)
    assert other.mean[1] == pytest.approx(one.mean[1], rel=1e-6)
    assert other.mean[0] - one.mean[0] == pytest.approx(np.log(365.25), rel=1e-6)
    texts = svrhmc.fit("Surv(time, state == 'died') ~ x", table, "weibull", seed=1)
    assert np.array_equal(texts.mean, one.mean)


def test_rows_in_partitions_have_the_posterior_of_the_table(tmp_path):
    table = table_of("weibull", 300)
    for part in range(3):
        table[100 * part : 100 * part + 100].to_parquet(tmp_path / f"{part}.parquet")
    for name in ("weibull", "log-normal", "exponential"):
        one = svrhmc.fit("Surv(time, event) ~ x + arm", table, name, seed=1)
        other = svrhmc.fit("Surv(time, event) ~ x + arm", svrhmc.data.from_parquet(tmp_path), name, seed=1)
        assert other.mean == pytest.approx(one.mean, abs=0.05 * one.sd.min())
        assert other.sd == pytest.approx(one.sd, rel=0.05)
    with pytest.raises(DataError, match="every time is censored"):
        svrhmc.fit("Surv(time, status == 7) ~ x", svrhmc.data.from_parquet(tmp_path))


def test_fit_in_the_shell(tmp_path):
    from typer.testing import CliRunner

    from svrhmc.shell.app import app

    table_of("weibull").assign(event=lambda d: d["event"].astype(int)).to_csv(tmp_path / "times.csv", index=False)
    call = [
        "fit",
        str(tmp_path / "times.csv"),
        "--formula",
        "Surv(time, event) ~ x + arm",
        "--out",
        str(tmp_path / "out"),
    ]
    result = CliRunner().invoke(app, [*call, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.strip().splitlines()[-1])["family"] == "weibull"


def test_residuals_of_censored_rows_are_no_misfits():
    """Under the law that drew the times, mean residuals are 0 with most rows censored; they are not if a censored time
    is taken as an event.
    """
    from scipy.special import ndtri

    rng = np.random.default_rng(3)
    loss, n = families.weibull(), 20_000
    t = at("weibull", np.zeros(n), -0.4)
    time, end = loss.draw(t, rng.random(n)), rng.exponential(0.3, n)
    y = families.censored(np.minimum(time, end), time <= end)
    below, at_most = loss.cumulative(t, y)
    tail = np.exp(-0.5 * ndtri(below) ** 2) / np.sqrt(2 * np.pi)
    residual = np.where(y < 0, tail / np.maximum(at_most - below, 1e-300), ndtri(below))
    assert (y < 0).mean() > 0.5
    assert abs(residual.mean()) / (residual.std() / np.sqrt(n)) < LIMIT
    ignoring = ndtri(loss.cumulative(t, np.abs(y))[0])
    assert abs(ignoring.mean()) / (ignoring.std() / np.sqrt(n)) > LIMIT
    found = [svrhmc.fit("Surv(time, event) ~ x", table_of("weibull", seed=s), "weibull", seed=1) for s in range(5)]
    assert [one.misfits for one in found] == [()] * 5
    assert svrhmc.fit("Surv(time, event) ~ arm", table_of("weibull", 2000), "weibull", seed=1).misfits == ()
    table = table_of("weibull", 2000).assign(x=lambda d: d["x"] ** 2)
    wrong = svrhmc.fit(
        "Surv(time, event) ~ x", table.assign(time=np.exp(np.log(table["time"]) ** 2 / 4)), "exponential"
    )
    assert wrong.misfits


def test_kaplan_meier():
    curve = kaplan_meier([6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16], [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1])
    assert curve.times.tolist() == [6, 7, 10, 13, 16]
    by_hand = np.cumprod([1 - 3 / 11, 1 - 1 / 7, 1 - 1 / 5, 1 - 1 / 2, 0])
    assert curve.survival == pytest.approx(by_hand)
    assert curve.error[0] == pytest.approx(np.sqrt(3 / 11 * 8 / 11 / 11))
    assert curve.at([0.0, 6.0, 12.0]) == pytest.approx([1.0, by_hand[0], by_hand[2]])
    assert float(curve.at(6.0, before=True)) == 1.0
    twice = kaplan_meier([6, 7, 9], [1, 1, 0], [3, 1, 2])
    assert twice.survival == pytest.approx(kaplan_meier([6, 6, 6, 7, 9, 9], [1, 1, 1, 1, 0, 0]).survival)


@pytest.mark.parametrize(
    ("formula", "family", "message"),
    [
        ("Surv(time, state) ~ x", None, "it holds texts: compare it with the one that stands for the event"),
        ("Surv(time, status) ~ x", None, "compare it with what stands for the event, such as status == 2"),
        ("Surv(time, time, event) ~ x", None, "start must be below stop in every row"),
        ("Surv(time, event, type='middle') ~ x", None, "its types are 'right', 'left'"),
        ("Surv(time, event) ~ x", "gaussian", "takes none: take one of 'exponential', 'weibull'"),
        ("Surv(time, event) ~ x", "gamma", "take one of 'exponential', 'weibull'"),
        ("Surv(x, event) ~ arm", None, "time must be numbers above 0"),
        ("Surv(time - time, event) ~ x", None, "got 0 at row 0: give rows that end at once half"),
        ("Surv(arm, event) ~ x", None, "must be a column of numbers"),
        ("Surv() ~ x", None, "Surv cannot be used so"),
        ("Surv(time, nothing=event) ~ x", None, "Surv cannot be used so"),
        ("Surv(time, status == 9) ~ x", None, "every time is censored"),
        ("x ~ Surv(time, event)", None, "stand before '~'"),
        ("np.log(Surv(time, event)) ~ x", None, "is the whole response"),
        ("x ~ arm", "weibull", "must hold times above 0"),
        ("Surv(time, ever) ~ x", None, "no column 'ever'"),
    ],
)
def test_responses_that_cannot_be_used(formula, family, message):
    with pytest.raises(DataError, match=message.replace("(", r"\(").replace(")", r"\)")):
        svrhmc.fit(formula, table_of("weibull", 50), family)


def test_missing_times_and_labels_of_arrays():
    table = table_of("weibull", 60)
    table.loc[3, "time"] = np.nan
    with pytest.raises(DataError, match="missing values in"):
        svrhmc.fit("Surv(time, event) ~ x", table)
    assert svrhmc.fit("Surv(time, event) ~ x", table, missing="drop", seed=1).design.dropped == 1
    told = svrhmc.fit("time ~ x", table.dropna(), "weibull", seed=1).design.guessed
    assert "Surv(time, event) says which were censored" in told
    X = np.ones((3, 1))
    for make, message in [
        (lambda: families.censored([1.0, 0.0], [1, 1]), "numbers above 0; got 0 at row 1"),
        (lambda: families.censored([1.0, 2.0], [1, 2]), "0 or 1, or false or true"),
        (lambda: families.censored([1.0, 2.0], [1]), "event must"),
        (lambda: glm(X, [1.0, 0.0, 2.0], "weibull"), "times above 0"),
        (lambda: glm(X, [-1.0, -3.0, -2.0], "weibull"), "3 censored times alone"),
        (lambda: glm(X, [1.0, -3.0, 2.0], "log-normal"), "positive numbers for the log-normal family"),
        (lambda: glm(X, [2.0, 2.0, 2.0], "weibull", shared_prior=Flat()), "the same label in every row"),
        (lambda: glm(X, [2.0, -3.0, -2.0], "weibull", prior=Flat(), shared_prior=Flat()), "leave nothing over"),
        (lambda: svrhmc.fit("x ~ arm", table.dropna(), seed=1).survival(table[:1]), "of a family for times"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
    found = svrhmc.fit("Surv(time, event) ~ x", table, missing="drop", prior=Normal(1.0), seed=1)
    for times, horizon, message in (
        ([-1.0], None, "0 or more"),
        ([2.0, 1.0], None, "in order"),
        ([1.0], -1.0, "positive"),
    ):
        with pytest.raises(ValueError, match=message):
            found.survival(table[:1], times, horizon=horizon)
