"""Learning from new rows with an old posterior as the prior, `fit(…, prior=posterior)`.

The old posterior is taken for the normal law with its mean and covariance, over the coefficients and what all rows
share (log σ) together:

    p(x | old rows, new rows) ∝ p(new rows | x) p(x | old rows) ≈ p(new rows | x) N(x; m, S).

Where the old posterior is Gaussian and known (known noise), so is the new one, and it is that of all rows to rounding.
Elsewhere what is left out is how the old posterior differs from a normal law: its skewness and its tails, of the order
of 1/√(old rows) posterior standard deviations. S is exact where the law of the old posterior was known; else it is that
of its draws, with the reported standard deviations.

New rows are made by the old design: levels, knots and means are those of the first table, and coefficients mean what
they meant. They are standardised as the old rows were.
"""

from __future__ import annotations

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError, requirement
from svrhmc.families import family_of
from svrhmc.families.base import Loss
from svrhmc.fitting.labels import Response, plain_label
from svrhmc.posterior import Posterior
from svrhmc.priors.joint import JointNormal, joint_normal
from svrhmc.priors.terms import Normal
from svrhmc.sampling.coordinates import Units
from svrhmc.tables.columns import Column
from svrhmc.tables.design import Design

_DRAWS = 10  # effective draws for each coordinate, below which their covariance is too rough to invert
ALL_ROWS = "fit the old and the new rows together"


class EarlierPosterior:
    """A posterior as the prior of a fit of new rows: its family, its units, and the joint law of its coordinates."""

    def __init__(self, posterior: Posterior) -> None:
        _require_usable_posterior(posterior)
        units: Units = posterior.units  # type: ignore[assignment]
        mean, covariance = posterior.mean, _covariance(posterior)
        inward = units.inward(np.zeros(units.dim))  # x̃ = inward(x) is linear but for a constant
        to_rows = np.stack([units.inward(row) - inward for row in np.eye(units.dim)], axis=1)
        self.units, self.loss, self.posterior = units, posterior.model.loss, posterior
        self.mean: Array = units.inward(mean)
        self.covariance: Array = to_rows @ covariance @ to_rows.T
        exact = "exactly known" if posterior.covariance is not None else f"from {posterior.ess.min():,.0f} draws"
        when = f", fitted {posterior.fitted_at}" if posterior.fitted_at else ""
        left_out = "" if posterior.gaussian else "; its skewness and tails are left out"
        self.prior_words = (
            f"given: the posterior of {posterior.fitted_rows:,} earlier rows{when}, verdict "
            f"{posterior.certificate.verdict}, taken for the normal law with its means and its covariance ({exact}) of "
            f"all {units.dim} coordinates together{left_out}"
        )

    def priors(self) -> tuple[list[Normal], JointNormal]:
        """The priors of single standardised coordinates, and the term that couples them."""
        return joint_normal(self.mean, self.covariance)

    def require_columns(self, names: tuple[str, ...], intercept: bool) -> None:
        """Refuse columns that are not those of the posterior."""
        first = int(self.units.intercept)
        old = self.posterior.labels[first : first + len(self.units.centre)]
        if intercept != self.units.intercept or tuple(names) != tuple(old):
            new, gone = [name for name in names if name not in old], [name for name in old if name not in names]
            unlike = [f"{', '.join(map(repr, part[:5]))} {what}" for part, what in
                      ((new, "are not in it"), (gone, "are missing here")) if part]  # fmt: skip
            given = "; ".join(unlike) or ("the same in another order" if names else "none")
            given = given if intercept == self.units.intercept else "another choice of the intercept"
            allowed = "a posterior of the same columns in the same order"
            raise requirement("prior", allowed, given, f"rename or reorder columns, or {ALL_ROWS}")

    def require_family(self, family: str | Loss | None, noise_variance: float | None) -> Loss:
        """The family of the posterior; another one is refused."""
        own: Loss = self.loss
        if family is not None and family_of(family).name != own.name:
            raise requirement("family", f"{own.name!r}, that of the posterior, or None", repr(family), ALL_ROWS)
        known = own.known_noise
        if noise_variance is not None and (known is None or not np.isclose(known**2, noise_variance, rtol=1e-12)):
            why = "the earlier rows were fitted so; leave it out"
            noise = "None, as sigma is a coordinate of the posterior" if known is None else f"{known**2:g}"
            raise requirement("noise_variance", noise, noise_variance, why)
        return own

    def design_for(self, formula: str) -> Design:
        """The design of the posterior, for the same formula."""
        design = self.posterior.design
        if design is None:
            why = "use svrhmc.fitting.regress(X, y, prior=posterior)"
            raise requirement("prior", "a posterior that `fit` gave", "one of arrays", why)
        if "".join(formula.split()) != "".join(design.formula.split()):
            why = f"coefficients would mean something else; {ALL_ROWS}"
            raise requirement("formula", f"{design.formula!r}, that of the posterior", repr(formula), why)
        return design

    def response(
        self, name: str, column: Column, family: str | Loss | None, noise: float | None
    ) -> tuple[Response, Array]:
        """How labels were coded in the earlier fit, and the coded labels of the new rows. A new class is refused."""
        loss, classes = self.require_family(family, noise), self.posterior.design.classes  # type: ignore[union-attr]
        if not classes:
            response = Response(loss, None, (), "")
            return response, response.codes(column)
        labels = column.distinct()
        place = {label: number for number, label in enumerate(classes)}
        shown = [str(plain_label(label, column.kind)) for label in labels]
        unknown = [label for label in shown if label not in place]
        if unknown:
            raise DataError(
                f"the response {name!r} has the class {unknown[0]!r}, which the posterior given as prior has not "
                f"({', '.join(classes)}): {ALL_ROWS}."
            )
        numbers = np.array([place[label] for label in shown], np.float64)
        return Response(loss, None, classes, ""), numbers[column.codes(tuple(labels))]


def _require_usable_posterior(posterior: Posterior) -> None:
    """Refuse posteriors that cannot be replaced by a normal law of their coordinates."""
    loss = None if posterior.model is None else posterior.model.loss
    reasons = {
        "one of a regression": posterior.units is None or loss is None,
        "one without groups and smooths, whose effects have no place in it": posterior.group_effects is not None,
        "one without a horseshoe, which is no normal law": posterior.shrinkage is not None,
        "one with a single mode": posterior.modes is not None,
        "one of a response with one linear predictor": loss is not None and (loss.blocks > 1 or any(loss.widths)),
        "one whose verdict is not 'refuted'": posterior.certificate.verdict == "refuted",
    }
    for allowed, broken in reasons.items():
        if broken:
            raise requirement("a posterior as prior", allowed, repr(posterior), ALL_ROWS)


def _covariance(posterior: Posterior) -> Array:
    """The covariance of all coordinates, in the units of the data."""
    if posterior.covariance is not None:
        return posterior.covariance
    dim, fewest = len(posterior.mean), float(posterior.ess.min())
    if fewest < _DRAWS * dim:
        allowed = f"one with {_DRAWS * dim:,} effective draws or more, {_DRAWS} for each of its {dim} coordinates"
        raise requirement("a posterior as prior", allowed, f"{fewest:,.0f}", f"sample it again with draws={20 * dim:,}")
    flat = posterior.trace._flat()
    correlation = np.atleast_2d(np.corrcoef(flat, rowvar=False))
    return np.asarray(correlation * np.outer(posterior.sd, posterior.sd))
