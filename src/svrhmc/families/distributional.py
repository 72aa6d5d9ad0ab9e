"""A family some of whose shared parameters have predictors of their own: σ that depends on a column, say.

    t = (t₁, …, t_k, t_{k+1}, …, t_m),     t_{k+j} = zᵢⱼᵀθⱼ     where a parameter has columns zᵢⱼ, else θⱼ,

in the coordinates x = (β, θ₁, θ₂, …): a parameter that all rows share is the case zᵢⱼ = 1. The family is the same, as
ℓ(t, y), its labels, its mean and its draws know t alone. With Jᵢ = ∂tᵢ/∂x, which is block diagonal,

    ∇f = Σ Jᵢᵀℓ′(tᵢ) + …,       ∇²f = Σ Jᵢᵀℓ″(tᵢ)Jᵢ + …,

so that f is convex wherever ℓ is convex in t: in hurdle models of counts by a Poisson law, whose posterior has one
mode. Where ℓ is convex in t₁ only at given values of the others it is not: ℓ = τ + ½(y − μ)²e^{−2τ} has

    ∇²ℓ = e^{−2τ} (1  2r; 2r  2r²),  r = y − μ,     det ∇²ℓ = −2r²e^{−4τ} < 0,

and there may be several modes. A profile along one parameter, which shows that a shared σ has one mode, would have to
go through all of θ. So other modes are looked for, and the verdict is "local" at best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.serialise import part
from svrhmc.families.base import Classes, Coded, Family, Loss, Parameter, SharedFamily
from svrhmc.families.primitives import Value


@part
@dataclass(frozen=True, repr=False)
class Distributional(SharedFamily):
    """family: whose parameters they are. widths: how many columns each has, 0 where all rows share it. ones: whether
    the first of these is 1 in every row, an intercept. names: of all coefficients θ.
    """

    family: Any
    widths: tuple[int, ...] = ()
    ones: tuple[bool, ...] = ()
    names: tuple[str, ...] = ()
    mixture = False
    convex_given_shared = False
    gaussian_given = ""
    proportional_hazards = False

    def __repr__(self) -> str:
        return f"{self.family!r} with the coefficients {', '.join(self.names)}"

    @property
    def shared(self) -> int:
        return len(self.names)

    @property
    def predictor_shape(self) -> tuple[int, ...]:
        """That of the family."""
        shape: tuple[int, ...] = self.family.predictor_shape
        return shape

    def parameter_names(self, classes: Classes | None = None) -> tuple[str, ...]:
        return self.names

    def coded(self, y: npt.ArrayLike) -> Coded:
        """With the family for these labels."""
        coded: Coded = self.family.coded(y)
        return coded._replace(loss=replace(self, family=coded.loss))

    @property
    def shared_prior(self) -> tuple[Value, Value]:  # type: ignore[override]
        """That of the parameter for each of its coefficients."""
        return self.spread_out(*self.family.shared_prior)

    def spread_out(self, *of_parameters: Value) -> tuple[Value, Value]:
        """A precision and a mean of each parameter for each of its coefficients."""
        repeats = np.maximum(self.widths, 1)
        precision, mean = (np.repeat(np.broadcast_to(part, len(repeats)), repeats) for part in of_parameters)
        return precision.astype(np.float64), mean.astype(np.float64)

    def weak_shared_words(self, names: Sequence[str]) -> list[str]:
        """As the family has them, and those of coefficients for all columns of a predictor together."""
        family, words = self.family, list[str]()
        by_family = family.weak_shared_words(
            [f"{one.name}: Intercept" if width else name
             for one, width, name in zip(family.parameters, self.widths, family.shared_names, strict=True)]
        )  # fmt: skip
        for one, width, first, word in zip(family.parameters, self.widths, self.ones, by_family, strict=True):
            if first or not width:
                words.append(word.replace(" ~", ", at the means of the columns, ~", 1) if width else word)
            if width and not first:
                words.append(f"coefficients of {one.name}, which has no intercept, as wide as its own prior")
            elif width > 1:
                sd = f"{one.effect:g}"
                words.append(f"coefficients of {one.name} ~ N(0, ({sd}/sd(x))²), those of categories N(0, {sd}²)")
        return words

    def shared_start(self, y: Array) -> Array:
        """Where the family starts, by the coefficients of columns of 1; else 0."""
        start, place = np.zeros(self.shared), 0
        for value, width, one in zip(self.family.shared_start(y), self.widths, self.ones, strict=True):
            start[place] = value if one or not width else 0.0
            place += max(1, width)
        return start

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """Flat priors of θ are refused: nothing here shows that rows hold all of it."""
        if exact:
            why: str | None = self.family.improper_reason(weight, free, exact, flat, y)
            return why
        return "nothing shows that coefficients of other predictors than the first have a posterior without a prior"

    def link_variance(self, mean: Array, shared: Array) -> Array | None:
        """It differs from row to row."""
        return None

    def start(self, y: Array) -> Array | None:
        """The search starts at 0, and where the family's shared parameters start."""
        return None

    def mean(self, t: Array) -> Array:
        """That of the family."""
        mean: Array = self.family.mean(t)
        return mean


def _of_family(name: str) -> property:
    return property(lambda self: getattr(self.family, name))


for _name in dir(Loss):  # whatever else the family says holds, as it knows t alone
    _own = any(_name in vars(kind) for kind in (Distributional, SharedFamily, Family))
    if not (_own or _name.startswith("_") or _name in ("record", "windows", "predictor", "unit")):
        setattr(Distributional, _name, _of_family(_name))


def with_predictors(loss: Loss, widths: Sequence[int], ones: Sequence[bool], columns: Sequence[Sequence[str]]) -> Loss:
    """The family with so many columns for each of its shared parameters, of these names; itself where there are none.

    ones: whether the first of the columns of each is 1 in every row.
    """
    if not any(widths):
        return loss
    names: list[str] = []
    for parameter, shared_name, own in zip(loss.parameters, loss.shared_names, columns, strict=True):
        names += [f"{parameter.name}: {name}" for name in own] or [shared_name]
    return Distributional(loss, tuple(widths), tuple(ones), tuple(names))


def parameter_called(loss: Loss, name: str) -> Parameter | None:
    """The parameter of a family that may have a formula, by its name or by one that others have for it."""
    return next((one for one in loss.parameters if name in (one.name, *one.other_names)), None)
