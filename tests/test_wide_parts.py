"""Wide parts of a posterior around a narrow one, which rays from the mode show."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chi2

from svrhmc import sample, targets
from svrhmc.sampling import preparation
from svrhmc.sampling.rays import Rays, missed_part_doubt

DIM, WIDTH, SHARE = 4, 7.0, 0.3  # the wide part, beside one of width 1
FARTHEST = 4.5  # where draws of the narrow part alone end


def rays_of_density(log_density, dim=DIM, count=64):
    directions = np.random.default_rng(0).normal(size=(count // 2, dim))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    directions, radii = np.concatenate([directions, -directions]), np.geomspace(1e-2, 1e4, 64) * np.sqrt(dim)
    with np.errstate(over="ignore"):
        return Rays(directions, radii, -log_density(radii[:, None] * directions[:, None]))


def two_widths(x, centre=0.0):
    squares, far = (x**2).sum(axis=-1), ((x - centre) ** 2).sum(axis=-1)
    logs = [np.log(1 - SHARE) - squares / 2, np.log(SHARE) - DIM * np.log(WIDTH) - far / (2 * WIDTH**2)]
    return logsumexp(logs, axis=0)


ONE_PART = {
    "normal": lambda x: -(x**2).sum(axis=-1) / 2,
    "student": lambda x: -3.5 * np.log1p((x**2) / 6).sum(axis=-1),
    "skewed": lambda x: (0.3 * x - np.exp(np.minimum(x, 700.0))).sum(axis=-1),
    "improper": lambda x: logsumexp([-(x**2).sum(axis=-1) / 2, np.full(x.shape[:-1], -20.0)], axis=0),
}


def test_the_share_beyond_a_radius_is_that_of_the_law():
    rays = rays_of_density(two_widths)
    radius = float(rays.radii[30])  # a sum over even steps is an integral from the middle between two of them
    step = np.log(rays.radii[1] / rays.radii[0])
    middle = radius * np.exp(step / 2)
    exact = (1 - SHARE) * chi2.sf(middle**2, DIM) + SHARE * chi2.sf((middle / WIDTH) ** 2, DIM)
    assert rays.share_beyond(radius)[0] == pytest.approx(exact, rel=0.01)


def test_the_wide_part_has_its_width_and_its_mass():
    part = rays_of_density(two_widths, count=256).wide_part()
    np.testing.assert_allclose(part.centre, 0, atol=1e-9)
    assert np.sqrt((part.root**2).sum() / DIM) == pytest.approx(WIDTH, rel=0.03)
    np.testing.assert_allclose(np.linalg.eigvalsh(part.root), WIDTH, rtol=0.25)  # of 128 directions and their opposites
    assert part.log_mass == pytest.approx(np.log(SHARE), abs=0.05)


def test_a_wide_part_elsewhere_is_seen_there():
    part = rays_of_density(lambda x: two_widths(x, centre=4.0), count=256).wide_part()
    np.testing.assert_allclose(part.centre, 4.0, atol=1.5)


@pytest.mark.parametrize("law", ONE_PART)
def test_of_one_part_there_is_no_other(law):
    assert rays_of_density(ONE_PART[law]).wide_part() is None


def test_what_lies_in_one_direction_is_no_part():
    def spike(x):
        return logsumexp([-(x**2).sum(axis=-1) / 2, 60 - 50 * ((x - 20 * direction) ** 2).sum(axis=-1)], axis=0)

    direction = rays_of_density(two_widths).directions[0]
    assert rays_of_density(spike).wide_part() is None


def test_a_doubt_is_raised_only_where_draws_are_missing():
    doubt = missed_part_doubt(rays_of_density(two_widths), FARTHEST, 1000)
    assert doubt.startswith("about 30% of the posterior lies farther from its mode than any draw (beyond 4.5 times")
    assert not missed_part_doubt(rays_of_density(two_widths), 30.0, 1000)  # the farthest of a thousand draws of it
    assert not missed_part_doubt(rays_of_density(ONE_PART["normal"]), FARTHEST, 1000)
    assert not missed_part_doubt(rays_of_density(two_widths), FARTHEST, 40)  # chance leaves out as much


def test_mass_along_one_ray_alone_raises_no_doubt():
    """Of 16 rays one that meets a far, thin tail made 11% of a posterior of which a thousandth is there; two are seen."""
    rays = rays_of_density(ONE_PART["normal"], count=16)
    for seeing, doubted in ((1, False), (2, True)):
        energies = rays.energies.copy()
        energies[:seeing, rays.radii > FARTHEST] = rays.energies.min() + DIM * np.log(2 * FARTHEST)
        assert bool(missed_part_doubt(Rays(rays.directions, rays.radii, energies), FARTHEST, 1000)) == doubted


@pytest.fixture
def target():
    """0.7 N(0, 0.3²) + 0.3 N(0, 2²), in each of three dimensions together."""
    jnp, js = pytest.importorskip("jax.numpy"), pytest.importorskip("jax.scipy.stats")
    from jax.scipy.special import logsumexp as log_sum

    def log_prior(p):
        narrow, wide = (js.norm.logpdf(p["x"], 0, width).sum() for width in (0.15, 2.0))
        return log_sum(jnp.array([jnp.log(0.7) + narrow, jnp.log(0.3) + wide]))

    return targets.model(lambda p, row: 0.0 * p["x"].sum(), log_prior, {"y": np.zeros(1)}, {"x": np.zeros(3)})


SD = np.sqrt(0.7 * 0.15**2 + 0.3 * 2**2)


def test_a_wide_part_is_sampled(target):
    posterior = sample(target, seed=0)
    z = (posterior.sd - SD) / posterior.corrected.sd_error
    assert posterior.certificate.verdict == "local"
    assert np.abs(z).max() < 4.5
    assert np.abs((posterior.modes.weight - [0.7, 0.3]) / posterior.modes.error).max() < 4.5
    assert "a wide part around it along rays" in str(posterior.certificate)


def test_draws_without_the_wide_part_are_undecided(target, monkeypatch):
    monkeypatch.setattr(Rays, "wide_part", lambda self: None)
    posterior = sample(target, seed=0)
    assert posterior.certificate.verdict == "undecided"
    assert (posterior.sd < 0.3 * SD).all()
    assert "of the posterior lies farther from its mode than any draw" in posterior.certificate.reason


def test_without_rays_the_wide_part_is_missed(target, monkeypatch):
    monkeypatch.setattr(preparation, "find_rays", lambda *arguments: None)
    posterior = sample(target, seed=0)
    assert posterior.certificate.verdict == "local"
    assert (posterior.sd < 0.3 * SD).all()
