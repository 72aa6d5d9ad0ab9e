"""Where the scales of a Gaussian mixed model are: the mode of their density, and variables in which they are nearly
independent normals.

The proposals do not affect correctness: `svrhmc.exact.marginal.MarginalMH` is exact whatever they are. First proposals
come from the mode and the curvature there. Draws of these, resampled in proportion to their weights, give the quantiles
for the nonlinear map g, φ = g(t), and show where the density is in t. As log p is known there without noise, a
quadratic fitted to it by least squares gives the mean and the covariance of t better than moments of the draws; of the
two, the one is taken for which log ω, the logarithm of the weights, varies less. If hardly any proposal has weight, as
when several scales may be 0 and their correlations are then undetermined, walkers continue from those that have.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.machine import one_blas_thread
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.density.gaussian_scales import GaussianScales, refusal
from svrhmc.density.mixed import MixedModel
from svrhmc.exact.marginal import MarginalMH, ScaleVariables, log_weights, student_draws
from svrhmc.sampling.approach import PILOT_SEED, Approach, Forecast, UnsuitedError, Variables, multiplication_seconds
from svrhmc.whitening.groups import Bend

_ROUNDS = (64, 192)  # proposals by which variables are found, one after another
_FIRST_FREEDOM = 4.0  # of the t law of the first ones, whose tails are to be long
_WORTH = 0.3  # of the proposals of a round: effective ones, for which weights are flattened where need be
_SEARCHED = 60  # evaluations by which the mode and the curvature there are found, for each scale
_CHOSEN = 512  # of them that are chosen by their weights
_LOST = 0.1  # of the proposals of a round: effective ones, below which weights tell too little of where p is
_HOPELESS = 0.15  # of the proposals of the last round: effective ones, below which chains would stand still
_WALKERS, _WALKS, _APART = 24, 60, 7  # in each half; moves of each half; between two looks at where they are
_STEP = 1e-3  # of differences, in log τ
_WIDE = 0.02  # the same, for curvatures; a standard deviation is at most 1
_FAR, _BOXES = 6.0, 5  # from the start that a mode is looked for, beyond which digits may be lost; and from there again
_FAR_BELOW = 3.0  # log σ of the residuals of least squares, below a guess by the response, from which it is the start
_NEAR = 1e-3  # of a log density, by which the last step of the search may raise it
_SPREAD = 1.0
_LEAST_PRECISION = 0.05  # of a quadratic fitted in variables of a spread of about 1


class DensityOfScales(Approach):
    """The scales by their own density, in which all else is integrated out, and all else by its Gaussian law."""

    method, sampler = MarginalMH.method, MarginalMH
    why = (
        "exact: the scales by their own density, in which effects and coefficients are integrated out, and these by "
        "their Gaussian law given the scales."
    )
    scanned = "the density of the scales"
    burn_in, expected, fewest_expected = 10, 0.7, 0.5

    @staticmethod
    def refusal(model: MixedModel) -> str | None:
        return refusal(model)

    @property
    def first_proposed(self) -> int:
        """The first of the scales, as effects are drawn anew whether or not a proposal is accepted."""
        return self.model.reported_dim - self.model.theta_dim

    def threads(self) -> AbstractContextManager[Any]:
        """One thread for linear algebra, as chains have threads of their own."""
        return one_blas_thread()

    def theta(self, space: ScaleVariables, z: Array) -> Array:
        return space.out_joint(z)[1]

    def log_density_along(self, space: ScaleVariables, centre: Array, coordinate: int, steps: Array) -> Array:
        return np.asarray(space.along(centre, coordinate, steps), np.float64)

    def variables(self) -> Variables:
        """The variables of the scales, from the journal or anew; states of chains are (w, θ)."""
        model, request, density = self.model, self.request, self._density
        record, dim = self.journal.get("scales"), density.dim
        if record is None:
            self.announce_forecast()
            first, seed = self.first_theta(), request.seed + PILOT_SEED
            space, start, mode, sds, efficiency = find_scales(model, density, first, seed, len(request.chains))
            if self.replaceable and efficiency < _HOPELESS:
                raise UnsuitedError
            arrays = {field.name: getattr(space.bend, field.name) for field in fields(Bend)}
            arrays |= {"mixing": space.mixing, "start": start, "mode": mode, "sds": sds}
            self.journal.put("scales", {"ledger": self.budget.ledger()}, arrays)
        else:
            self.budget.restore(record)
            bend = Bend(*(record.array(field.name, (dim,)) for field in fields(Bend)))
            space = ScaleVariables(model, density, bend, record.array("mixing", (dim, dim)))
            start, mode = record.array("start", (len(request.chains), model.dim)), record.array("mode", (dim,))
            sds = record.array("sds", (dim,))
        w, displace = displacement(density, mode, sds)
        return Variables(space, start, mode[: model.theta_dim], w, sds[: model.theta_dim], MarginalMH(), displace)

    @cached_property
    def _density(self) -> GaussianScales:
        return GaussianScales(self.model)

    def forecast(self) -> Forecast:
        """By the time of one evaluation, for each proposal and those of the pilot rounds and the search for the mode,
        and of a draw of all else for each; threads share the chains.
        """
        density, request = self._density, self.request
        phi = _with_noise_scale(self.model, density, self.first_theta())[None]
        density.conditional_law(phi)  # compiles
        began = time.perf_counter()
        density.conditional_law(phi)
        evaluation, chains = time.perf_counter() - began, len(request.chains)
        pilot, drawn = sum(_ROUNDS) + _SEARCHED * density.dim, self.burn_in + self.expected_draws
        seconds = evaluation * (pilot + drawn * chains) + self.drawing_seconds(multiplication_seconds())
        return Forecast(seconds / min(chains, request.threads), self.memory_bytes)


class Scales(NamedTuple):
    """Variables of φ, states from which chains start, the mode φ̂, standard deviations there, and the share of the last
    round's proposals that are effective.
    """

    space: ScaleVariables
    start: Array
    mode: Array
    sds: Array
    efficiency: float


def find_scales(model: MixedModel, density: GaussianScales, start: Array, seed: int, chains: int) -> Scales:
    """Find the variables for proposals; `start` is the θ from which the mode is searched for."""
    mode = _find_mode(density, _with_noise_scale(model, density, start))
    root = _curvature_root(density, mode)
    sds = np.sqrt((root * root).sum(axis=1))
    space = ScaleVariables(model, density, Bend.straight(mode, sds), root / sds[:, None])
    scales = [term.theta.start + a for term in model.terms for a in range(term.width)]
    chosen, efficiency = mode[None], 0.0
    for number, count in enumerate(_ROUNDS):
        stream = Stream(seed + number, np.zeros(1, np.int64))
        freedom = MarginalMH().freedom if number else _FIRST_FREEDOM
        s = student_draws(stream, np.arange(count), density.dim, freedom)[0]
        phi = space.phi(s)[0]
        log_density = density.log_density(phi)
        weights = log_weights(space, s, freedom, log_density)
        places = _weighted_places(weights, _CHOSEN)
        chosen, at_chosen = phi[places], log_density[places]
        efficiency = _effective_count(weights) / count
        if efficiency < _LOST:
            chosen, at_chosen = _walk(density, chosen, at_chosen, Stream(seed + number, np.ones(1, np.int64)))
        space = _next_variables(model, density, Bend.of_draws(chosen, scales), chosen, at_chosen)
    starts = chosen[(np.arange(chains) * 131) % len(chosen)]
    normals = Stream(seed + len(_ROUNDS), np.arange(chains)).normals(
        0, model.inner_dim, Purpose.START, Purpose.START_FINE
    )
    states = [
        space.state(density.draw(density.conditional_law(phi[None]), 0, noise), phi)
        for phi, noise in zip(starts, normals, strict=True)
    ]
    return Scales(space, np.array(states), mode, sds, efficiency)


def _effective_count(log_weights: Array) -> float:
    """(Σω)²/Σω²: how many independent draws weighted proposals are worth."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights**2).sum())


def _walk(density: GaussianScales, phi: Array, log_density: Array, stream: Stream) -> tuple[Array, Array]:
    """States of an ensemble of walkers that starts at some φ, and log p there.

    φ′ = φⱼ + z (φ − φⱼ), with φⱼ in the other half of the walkers and z ~ z^{−½} on [½, 2], is accepted with
    probability min(1, z^{d−1} p(φ′)/p(φ)) (Goodman & Weare, Communications in Applied Mathematics and Computational
    Science 5, 2010): the steps are as wide as the walkers lie, however that is.
    """
    first = np.linspace(0, len(phi) - 1, 2 * _WALKERS).astype(np.int64)
    x, f, places, values = phi[first].copy(), log_density[first].copy(), [], []
    uniforms = stream.uniforms(np.arange(2 * _WALKS), 3 * _WALKERS, Purpose.JUMP)[0].reshape(-1, 3, _WALKERS)
    for step, (u, v, accept) in enumerate(uniforms):
        half = slice(0, _WALKERS) if step % 2 else slice(_WALKERS, None)
        other_half = x[_WALKERS:] if step % 2 else x[:_WALKERS]
        z = (1 + u) ** 2 / 2
        partners = other_half[np.minimum((v * _WALKERS).astype(np.int64), _WALKERS - 1)]
        proposed = partners + z[:, None] * (x[half] - partners)
        at_proposed = density.log_density(proposed)
        with np.errstate(invalid="ignore"):
            accepted = np.log(accept) < (density.dim - 1) * np.log(z) + at_proposed - f[half]
        x[half], f[half] = np.where(accepted[:, None], proposed, x[half]), np.where(accepted, at_proposed, f[half])
        if step >= _WALKS and step % _APART == 0:
            places.append(x.copy())
            values.append(f.copy())
    return np.concatenate(places), np.concatenate(values)


def _next_variables(
    model: MixedModel, density: GaussianScales, bend: Bend, draws: Array, log_density: Array
) -> ScaleVariables:
    """Variables by the moments of some draws, or by a quadratic fitted to log p: those for which log ω varies less."""
    freedom, t = MarginalMH().freedom, bend.into(draws)
    candidates = [ScaleVariables(model, density, bend, _covariance_root(t))]
    law = _quadratic_law(t, log_density + np.log(bend(t)[1]).sum(axis=1))
    if law is not None:
        candidates.append(ScaleVariables(model, density, bend.shifted(law.mean), law.root))
    spreads = [float(np.std(log_weights(space, space.s(draws), freedom, log_density))) for space in candidates]
    return candidates[int(np.argmin(spreads))]


class _Law(NamedTuple):
    """N(mean, root rootᵀ)."""

    mean: Array
    root: Array


def _quadratic_law(t: Array, log_density: Array) -> _Law | None:
    """The Gaussian law whose log density is nearest to a log density at some places; None if these are too few, or the
    quadratic has no maximum.
    """
    d = t.shape[1]
    lower = np.tril_indices(d)
    features = np.concatenate([np.ones((len(t), 1)), t, t[:, lower[0]] * t[:, lower[1]]], axis=1)
    if len(np.unique(t[:, 0])) < 2 * features.shape[1]:
        return None
    fitted = np.linalg.lstsq(features, log_density - log_density.max(), rcond=None)[0]
    half = np.zeros((d, d))
    half[lower] = fitted[1 + d :]
    precision = -(half + half.T)
    values, vectors = np.linalg.eigh(precision)
    if values[0] <= _LEAST_PRECISION:
        return None
    covariance = (vectors / values) @ vectors.T
    return _Law(covariance @ fitted[1 : 1 + d], np.asarray(np.linalg.cholesky(covariance), np.float64))


def displacement(density: GaussianScales, mode: Array, sds: Array) -> tuple[Array, Callable[[Array], Array]]:
    """The mean of w given φ̂, and w less that from standard normal numbers (states, dim of w), log σ with its sd."""
    law = density.conditional_law(mode[None])
    centre = density.draw(law, 0, np.zeros(density.model.inner_dim))

    def displace(normals: Array) -> Array:
        w = np.array([density.draw(law, 0, noise) - centre for noise in normals])
        if density.known_noise is None:
            w[:, -1] = sds[-1] * normals[:, -1]
        return w

    return centre, displace


def _with_noise_scale(model: MixedModel, density: GaussianScales, theta: Array) -> Array:
    if density.known_noise is not None:
        return theta
    by_response = float(model.conditional.loss.shared_start(model.conditional.y)[0])
    by_residuals = density.noise_of_residuals
    return np.append(theta, by_residuals if by_residuals < by_response - _FAR_BELOW else by_response)


def _find_mode(density: GaussianScales, start: Array) -> Array:
    """The mode, by quasi-Newton steps with gradients from differences."""
    from scipy.optimize import minimize

    steps = _STEP * np.eye(density.dim)

    def falling(phi: Array) -> tuple[float, Array]:
        values = density.log_density(np.concatenate([phi[None], phi + steps, phi - steps]))
        up, down = values[1 : 1 + density.dim], values[1 + density.dim :]
        if not np.isfinite(values).all():
            return 1e300, np.zeros(density.dim)
        return -float(values[0]), -(up - down) / (2 * _STEP)

    first = max(abs(falling(start)[0]), 1.0)
    options = {"ftol": _NEAR / first, "gtol": 1e-2, "maxiter": 60}
    x = start
    for _ in range(_BOXES):
        bounds = [(coordinate - _FAR, coordinate + _FAR) for coordinate in x]
        previous, x = x, np.asarray(minimize(falling, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)
        if np.abs(x - previous).max() < _FAR:
            break
    return x


def _curvature_root(density: GaussianScales, mode: Array) -> Array:
    """A lower triangle L with LLᵀ near the covariance of φ, from differences; no direction has an sd above 1."""
    d = density.dim
    h = np.full(d, _WIDE)
    for _ in range(2):  # steps first, then as wide as the density
        E = np.diag(h)
        pairs = [(i, j) for i in range(d) for j in range(i)]
        ends = [E[i] * a + E[j] * b for i, j in pairs for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
        values = density.log_density(mode + np.concatenate([np.zeros((1, d)), E, -E, *([ends] if ends else [])]))
        centre, up, down, cross = values[0], values[1 : 1 + d], values[1 + d : 1 + 2 * d], values[1 + 2 * d :]
        H = np.diag(-(up - 2 * centre + down) / h**2)
        for k, (i, j) in enumerate(pairs):
            a, b, c, e = cross[4 * k : 4 * k + 4]
            H[i, j] = H[j, i] = -(a - b - c + e) / (4 * h[i] * h[j])
        H = np.where(np.isfinite(H), H, 0.0)
        h = np.clip(0.5 * np.maximum(np.diag(H), 1.0) ** -0.5, 1e-6, 0.5)
    values, vectors = np.linalg.eigh(H)
    covariance = (vectors / np.maximum(values, _SPREAD**-2)) @ vectors.T
    return np.asarray(np.linalg.cholesky(covariance), np.float64)


def _weighted_places(log_weights: Array, count: int) -> Array:
    """Indices in proportion to weights, evenly spaced in their cumulative sum; the weights are flattened until enough
    of them matter.
    """
    power, relative = 1.0, log_weights - log_weights.max()
    while True:
        weights = np.exp(power * relative)
        if weights.sum() ** 2 / (weights**2).sum() >= _WORTH * len(weights) or power < 0.05:
            break
        power *= 0.8
    places = np.searchsorted(np.cumsum(weights) / weights.sum(), (np.arange(count) + 0.5) / count)
    return np.minimum(places, len(weights) - 1)


def _covariance_root(t: Array) -> Array:
    """A lower triangle A with AAᵀ the covariance of some draws of t, shrunk a little towards I."""
    covariance = 0.95 * np.atleast_2d(np.cov(t.T)) + 0.05 * np.eye(t.shape[1])
    return np.asarray(np.linalg.cholesky(covariance), np.float64)
