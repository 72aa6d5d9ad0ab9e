import math

import mpmath
import numpy as np
import pytest

import svrhmc
from hand_written_laws import exact_covariances
from svrhmc.dynamics import EulerMaruyama, Overdamped, Underdamped, exact_noise
from svrhmc.targets import synthetic

GRID = [float(a) for a in np.geomspace(1e-8, 20, 200)]


def worst_error(cast):
    worst = 0.0
    for a in GRID:
        noise = [cast(value) for value in exact_noise(a, 1.0, 1.0)]
        vv, xv, xx = (mpmath.mpf(float(value)) for value in noise)
        with mpmath.workdps(50):
            var_x, cov, var_v = exact_covariances(a)
            chol_xv = cov / mpmath.sqrt(var_v)
            pairs = [
                (vv**2, var_v),
                (vv * xv, cov),
                (xv**2 + xx**2, var_x),
                (vv, mpmath.sqrt(var_v)),
                (xv, chol_xv),
                (xx, mpmath.sqrt(var_x - chol_xv**2)),
            ]
            worst = max(worst, *(float(abs(got / true - 1)) for got, true in pairs))
    return worst


def test_noise_agrees_with_50_digits_in_float64_and_cast_to_float32():
    assert worst_error(float) < 1e-14
    assert worst_error(np.float32) < 3e-7


def test_the_printed_formula_would_fail_that_test():
    e = math.exp(-1e-4)
    printed = 2e-4 + 4 * e - e * e - 3
    assert abs(printed / 6.6661666899991667e-13 - 1) > 1e-5


@pytest.mark.parametrize(
    ("a", "var_x", "cov", "var_v", "two_r"),
    [
        (1e-8, 6.6666666166666668e-25, 9.9999999000000006e-17, 1.9999999800000001e-8, 1.6666666666666666e-25),
        (1e-4, 6.6661666899991667e-13, 9.9990000583308334e-9, 1.9998000133326667e-4, 1.666666665e-13),
        (0.01, 6.6168991691207481e-7, 9.9005808419195073e-5, 0.019801326693244698, 1.6666500001686491e-7),
        (0.1, 6.1891906585643399e-4, 9.0559170060627123e-3, 0.18126924692201814, 1.6650016848011121e-4),
        (1.0, 0.33618248144915659, 0.39957640089372805, 0.86466471676338731, 0.15153137095996097),
    ],
)
def test_noise_reference_values(a, var_x, cov, var_v, two_r):
    noise = exact_noise(a, 1.0, 1.0)
    got = (noise.xv**2 + noise.xx**2, noise.vv * noise.xv, noise.vv**2, noise.xx**2)
    assert got == pytest.approx((var_x, cov, var_v, two_r), rel=1e-14)


def test_noise_scales_with_friction_and_mass():
    scaled, unit = exact_noise(0.25, 4.0, 9.0), exact_noise(1.0, 1.0, 1.0)
    assert scaled == pytest.approx((3 * unit.vv, 3 / 4 * unit.xv, 3 / 4 * unit.xx), rel=1e-15)


def stationary(scheme, s):
    """Solve P = A P Aᵀ + Q for one curvature, by the scheme's own numbers."""
    from scipy.linalg import solve_discrete_lyapunov

    after, kick, noise = scheme.after, scheme.kick, scheme.after_noise
    A = np.array([[after.xx - kick.x * s, after.xv], [after.vx - kick.v * s, after.vv]])
    L = np.array([[noise.xv, noise.xx], [noise.vv, 0.0]])
    P = solve_discrete_lyapunov(A, L @ L.T)
    return P[0, 0], P[0, 1], P[1, 1]


@pytest.mark.parametrize(
    ("dynamics", "expected"),
    [
        (Underdamped, (0.8685899895703873, -0.03576971289129239, 0.6386781532210455)),
        (EulerMaruyama, (0.869980290711998, -0.03849470312884947, 0.7698940625769894)),
    ],
)
def test_stationary_covariance_reference_values(dynamics, expected):
    scheme = dynamics(0.1, friction=2.0, inverse_mass=2 / 3).scheme(synthetic(4, 2))
    assert stationary(scheme, 1.2) == pytest.approx(expected, rel=1e-12)


def test_stationary_variance_of_overdamped():
    scheme = Overdamped(0.3).scheme(synthetic(4, 2))
    after, noise = scheme.after.xx - scheme.kick.x * 1.7, scheme.after_noise.xx
    assert noise**2 / (1 - after**2) == pytest.approx(1 / (1.7 * (1 - 0.3 * 1.7 / 2)), rel=1e-14)


@pytest.mark.parametrize(("dynamics", "order"), [(Underdamped, 1), (EulerMaruyama, 1)])
def test_variance_bias_has_the_leading_term_and_order_it_should(dynamics, order):
    s, u, gamma = 1.3, 0.7, 1.6
    bias = []
    for eta in (0.02, 0.01):
        variance = stationary(dynamics(eta, gamma, u).scheme(synthetic(4, 2)), s)[0]
        bias.append(s * variance - 1)
    assert math.log2(bias[0] / bias[1]) == pytest.approx(order, abs=0.05)
    assert bias[1] == pytest.approx(0.01 * u * s / gamma, rel=0.03)


def test_inverse_mass_defaults_to_one_over_smoothness():
    target = synthetic(10, 3)
    assert Underdamped(0.1).scheme(target) == Underdamped(0.1, inverse_mass=1 / target.smoothness).scheme(target)


def test_growth_says_when_a_scheme_diverges():
    target = synthetic(4, 2)
    assert Overdamped(0.5).scheme(target).growth(3.99) < 1 < Overdamped(0.5).scheme(target).growth(4.01)
    scheme = Underdamped(0.99, 2.0, 1.0).scheme(target)
    assert scheme.growth(0.01) < 1 < scheme.growth(2.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Underdamped(3.0),
            "step_size must be a positive number below 1.0 for Underdamped with friction 2.0; got 3.0: "
            "the chain would diverge.",
        ),
        (lambda: EulerMaruyama(0.5, friction=4.0), "below 0.5 for EulerMaruyama with friction 4.0; got 0.5"),
        (lambda: Underdamped(0.0), "step_size must be a positive number; got 0.0."),
        (lambda: Overdamped(-1), "step_size must be a positive number; got -1."),
        (lambda: Overdamped(float("nan")), "step_size must be a positive number; got nan."),
        (lambda: Overdamped("0.1"), "step_size must be a positive number; got '0.1'."),
        (lambda: Underdamped(0.1, friction=0.0), "friction must be a positive number; got 0.0."),
        (lambda: Underdamped(0.1, inverse_mass=-2.0), "inverse_mass must be a positive number; got -2.0."),
    ],
)
def test_bad_settings_are_refused_at_the_door(make, message):
    with pytest.raises(ValueError, match="must be") as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "sampler", [svrhmc.lmc(1.4), svrhmc.hmc(0.9, inverse_mass=20.0), svrhmc.vr_sgld(2.0, snapshot_size=3)]
)
def test_a_step_that_diverges_on_this_quadratic_is_refused_with_the_largest_that_does_not(sampler):
    target = synthetic(10, 2)
    with pytest.raises(svrhmc.UnstableStepError, match="the chain would diverge") as caught:
        sampler.run(target, 10)
    limit = float(str(caught.value).split("below ")[1].split()[0])
    again = type(sampler.dynamics)(**{**vars(sampler.dynamics), "step_size": limit * 0.998})
    svrhmc.Sampler(again, sampler.gradient).run(target, 10)
    assert again.scheme(target).growth(target.smoothness) > 0.99


def test_a_step_too_large_for_the_curvature_at_the_mode_is_refused_and_one_beyond_the_bound_is_not():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    rare = svrhmc.targets.logistic(np.column_stack([np.ones(2000), X]), rng.random(2000) < 0.02)
    bound, modal = rare.smoothness, rare.curvature_range(bound=False)[1]
    assert modal < bound / 5  # rare events: the bound of 1/4 is far from met
    svrhmc.lmc(1.5 / modal).run(rare, 5)
    with pytest.raises(svrhmc.UnstableStepError, match="the chain would diverge"):
        svrhmc.lmc(2.5 / modal).run(rare, 5)


def test_growth_includes_both_halves_of_a_step():
    from svrhmc.dynamics import Kick, Map, NoiseFactor, Scheme

    P, Q, k, s = Map(0.9, 0.2, 0.1, 0.8), Map(1.0, 0.3, -0.1, 0.7), Kick(0.05, 0.4), 0.3

    def step(x, v):  # the definition, with ∇f(x) = s x
        x, v = P.xx * x + P.xv * v, P.vx * x + P.vv * v
        return Q.xx * x + Q.xv * v - k.x * s * x, Q.vx * x + Q.vv * v - k.v * s * x

    matrix = np.array([step(1.0, 0.0), step(0.0, 1.0)]).T
    largest = np.abs(np.linalg.eigvals(matrix)).max()
    assert Scheme(P, NoiseFactor(0, 0, 0), k, Q, NoiseFactor(0, 0, 0)).growth(s) == pytest.approx(largest, rel=1e-13)


def test_a_noise_factor_says_how_many_normals_it_takes():
    from svrhmc.dynamics import PLAIN, SILENT, NoiseFactor, normals_of

    assert [normals_of(factor) for factor in (SILENT, NoiseFactor(1.0, 0.5, 0.0), PLAIN)] == [0, 1, 2]
