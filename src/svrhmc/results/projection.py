"""Projections of a posterior onto few columns: what a smaller model would predict most like the whole one.

Each draw of the coefficients x gives predictors t = o + Xx of the rows. Onto the columns C it is projected by the b
that minimises the Kullback–Leibler divergence of the predictions of the smaller model from its own (Goutis & Robert,
Biometrika 85, 1998; Piironen, Paasiniemi & Vehtari, Electronic Journal of Statistics 14, 2020):

    Gaussian rows:  b = argmin Σᵢ wᵢ(tᵢ − oᵢ − cᵢᵀb)²,   σ_C² = σ² + Σᵢ wᵢ(tᵢ − oᵢ − cᵢᵀb)²/Σᵢ wᵢ,
                    KL = ½ Σᵢ wᵢ log(σ_C²/σ²),
    events (logit): b = argmin Σᵢ wᵢ(log(1 + e^{sᵢ}) − p(tᵢ)sᵢ),  sᵢ = oᵢ + cᵢᵀb,  by Newton's steps,

so that y is not fitted again: what the smaller model says is what the whole one knows. Columns are taken one after
another, each that which lowers the weighted squares of what is left of the mean of t the most (weights wᵢ, for events
times p(1 − p)): KL to second order.

The score of a model is the log density of each row under the draws of the posterior without that row, which have the
weights 1/p(yᵢ | x), those above √S times their mean cut off (Ionides, Journal of Computational and Graphical Statistics
17, 2008); a smaller model has the weights of the whole one, as it is projected from its draws. Without them it would
seem better the more columns it has. The choice of columns is made with all rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement, whole_number
from svrhmc.core.summaries import Summary, interval_end_names, interval_ends
from svrhmc.results.base import PosteriorData
from svrhmc.rows.forms import RowsForm

_NEWTON, _CLOSE = 50, 1e-10
_LEAST = 1e-10  # of a column's squares that must be left of it beside others, to be taken
_RIDGE = 1e-9  # of the curvature, so that events that few columns separate have a projection


@dataclass(frozen=True)
class Projected:
    """Draws b (draws, columns) and log σ_C, the mean KL, and log p of each row under each draw."""

    b: Array
    log_sigma: Array
    kl: float
    log_likelihood: Array


class Reference:
    """What is projected: rows and draws of a posterior."""

    def __init__(self, form: RowsForm, draws: Array) -> None:
        self.loss = form.loss
        if not self.loss.gaussian_given:
            allowed = "'gaussian', 'bernoulli' or 'binomial' with its usual link, to be projected"
            raise requirement("the family", allowed, str(self.loss))
        places = np.arange(form.rows.n)
        self.X = np.asarray(form.rows.dense_matrix(places), np.float64)
        n, self.width = self.X.shape
        self.offset = np.zeros(n) if form.offset is None else np.asarray(form.offset, np.float64)
        self.weights = np.ones(n) if form.weights is None else np.asarray(form.weights, np.float64)
        self.normal = self.loss.gaussian_given == "noise"
        self.y = form.y if self.normal else 0.5 - self.loss.slope(np.zeros(n), form.y)
        self.t = draws[:, : self.width] @ self.X.T + self.offset
        known = self.loss.known_noise if self.normal else 1.0
        self.log_sigma = draws[:, self.width] if known is None else np.full(len(draws), math.log(known))

    def path(self, kept: list[int], most: int) -> list[int]:
        """The columns that are added to those kept, in their order."""
        t, weights = self.t.mean(axis=0), self.weights
        if not self.normal:
            share = 1 / (1 + np.exp(-t))
            weights = weights * share * (1 - share)
        root = np.sqrt(weights)
        rest, left = root * (t - self.offset), root[:, None] * self.X
        whole_squares = (left**2).sum(axis=0)
        basis = np.linalg.qr(left[:, kept])[0]
        rest, left = rest - basis @ (basis.T @ rest), left - basis @ (basis.T @ left)
        order: list[int] = []
        while len(order) < most:
            squares = (left**2).sum(axis=0)
            usable = squares > _LEAST * whole_squares
            usable[[*kept, *order]] = False
            if not usable.any():
                break
            gains = np.where(usable, (left.T @ rest) ** 2 / np.where(usable, squares, 1.0), -1.0)
            j = int(np.argmax(gains))
            direction = left[:, j] / math.sqrt(squares[j])
            rest, left = rest - direction * (direction @ rest), left - np.outer(direction, direction @ left)
            order.append(j)
        return order

    def onto(self, columns: Sequence[int]) -> Projected:
        """The projection onto some columns."""
        C = self.X[:, list(columns)]
        return self._normal(C) if self.normal else self._logistic(C)

    @cached_property
    def log_likelihood(self) -> Array:
        """log p of each row under each draw."""
        return self._log_likelihood(self.t, self.log_sigma)

    def score(self, log_likelihood: Array) -> Array:
        """log p of each row given the others, from that under each draw."""
        log_weights, count = -self.log_likelihood, len(log_likelihood)
        mean = np.logaddexp.reduce(log_weights, axis=0) - math.log(count)
        log_weights = np.minimum(log_weights - mean, 0.5 * math.log(count))
        total = np.logaddexp.reduce(log_weights, axis=0)
        return np.asarray(np.logaddexp.reduce(log_weights + log_likelihood, axis=0) - total)

    def _log_likelihood(self, t: Array, log_sigma: Array) -> Array:
        if self.normal:
            away = (self.y - t) * np.exp(-log_sigma)[:, None]
            return np.asarray(self.weights * (-0.5 * away**2 - log_sigma[:, None] - 0.5 * math.log(2 * math.pi)))
        return np.asarray(self.weights * (self.y * t - np.logaddexp(0.0, t)))

    def _normal(self, C: Array) -> Projected:
        root = np.sqrt(self.weights)
        target = (root * (self.t - self.offset)).T
        b = np.asarray(np.linalg.lstsq(root[:, None] * C, target, rcond=None)[0].T, np.float64)
        t = b @ C.T + self.offset
        lost = (self.t - t) ** 2 @ self.weights / self.weights.sum()
        log_sigma = 0.5 * np.log(np.exp(2 * self.log_sigma) + lost)
        kl = float(self.weights.sum() * (log_sigma - self.log_sigma).mean())
        return Projected(b, log_sigma, kl, self._log_likelihood(t, log_sigma))

    def _logistic(self, C: Array) -> Projected:
        share = 1 / (1 + np.exp(-self.t))
        b = np.stack([self._newton(C, p) for p in share])
        t = b @ C.T + self.offset
        kl = (share * (self.t - t) - np.logaddexp(0.0, self.t) + np.logaddexp(0.0, t)) @ self.weights
        return Projected(b, self.log_sigma, float(kl.mean()), self._log_likelihood(t, self.log_sigma))

    def _newton(self, C: Array, share: Array) -> Array:
        b = np.zeros(C.shape[1])

        def divergence(b: Array) -> float:
            s = self.offset + C @ b
            return float(self.weights @ (np.logaddexp(0.0, s) - share * s))

        value = divergence(b)
        for _ in range(_NEWTON):
            own = 1 / (1 + np.exp(-(self.offset + C @ b)))
            curvature = (C * (self.weights * own * (1 - own))[:, None]).T @ C
            curvature.flat[:: len(b) + 1] += _RIDGE * (1 + curvature.diagonal().max(initial=0.0))
            step = np.linalg.solve(curvature, C.T @ (self.weights * (share - own)))
            size = 1.0
            while (at := divergence(b + size * step)) > value and size > _CLOSE:
                size /= 2
            b, gained, value = b + size * step, value - at, at
            if gained <= _CLOSE * (1 + abs(value)):
                break
        return b


def project(posterior: PosteriorData, columns: Sequence[str] | None, most: int, draws: int, level: float) -> Summary:
    """The result of `Posterior.project`, whose arguments these are."""
    most, draws, ends = whole_number("most", most, 1), whole_number("draws", draws, 2), interval_ends(level)
    if posterior.group_effects is not None:
        raise requirement("the posterior", "one without groups and smooths, to be projected", repr(posterior.family))
    x = posterior.inner(draws)
    reference = Reference(posterior.fitted(), x)
    labels = list(posterior.labels[: reference.width])
    shrunk = posterior.shrinkage
    free = [label != "Intercept" for label in labels] if shrunk is None else np.isin(range(len(labels)), shrunk.columns)
    kept = [j for j in range(len(labels)) if not free[j]]
    if columns is None:
        return _path(reference, kept, labels, most)
    unknown = [name for name in columns if name not in labels]
    if unknown or isinstance(columns, str):
        raise requirement("columns", f"a list of names of coefficients ({_some(labels)})", repr(columns))
    chosen = [*kept, *(labels.index(name) for name in columns if labels.index(name) not in kept)]
    got = reference.onto(chosen)
    whole_draws = np.zeros_like(x)
    whole_draws[:, chosen] = got.b
    whole_draws[:, reference.width :] = got.log_sigma[:, None] if x.shape[1] > reference.width else 0.0
    outward = whole_draws if posterior.units is None else posterior.units.outward(whole_draws)
    places = [*chosen, *range(reference.width, x.shape[1])]
    values = outward[:, places]
    low, high = np.quantile(values, ends, axis=0)
    names = interval_end_names(level)
    table = {"mean": values.mean(axis=0), "sd": values.std(axis=0, ddof=1), names[0]: low, names[1]: high}
    explained, difference, error = _compared(reference, got, reference.onto(kept).kl)
    note = (
        f"These columns explain {explained:.1%} of what the whole model predicts; their log score of the rows differs "
        f"from its own by {difference:.3g} (standard error {error:.2g})."
    )
    title = f"The posterior projected onto {len(chosen) - len(kept):,} of {len(labels) - len(kept):,} columns."
    return Summary(tuple(posterior.labels[j] for j in places), table, title, (note,))


def _path(reference: Reference, kept: list[int], labels: Sequence[str], most: int) -> Summary:
    order = reference.path(kept, most)
    fewest = reference.onto(kept)
    rows = [_compared(reference, fewest, fewest.kl)]
    for count in range(1, len(order) + 1):
        rows.append(_compared(reference, reference.onto([*kept, *order[:count]]), fewest.kl))
    explained, difference, error = np.array(rows).T
    near = np.flatnonzero(difference + error >= 0)
    enough = f"{near[0]:,} suffice" if len(near) else f"more than {len(order):,} are needed"
    columns = {"columns": np.arange(len(rows)) * 1.0, "explained": explained, "score": difference, "error": error}
    note = (
        f"Of {len(labels) - len(kept):,} columns {enough} for a log score within one standard error of the whole "
        "model's. score: the log density of each row given the others, less that under the whole model, summed."
    )
    names = ("none", *(f"+ {labels[j]}" for j in order))
    return Summary(names, columns, "Projections onto few columns, one more in each line.", (note,))


def _compared(reference: Reference, got: Projected, fewest: float) -> tuple[float, float, float]:
    """1 − KL/KL of the fewest columns; the difference of log scores, and its standard error."""
    difference = reference.score(got.log_likelihood) - reference.score(reference.log_likelihood)
    explained = 1 - got.kl / fewest if fewest > 0 else 1.0
    return explained, float(difference.sum()), math.sqrt(len(difference) * float(difference.var()))


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:5]))
    return shown if len(names) <= 5 else f"{shown}, …"
