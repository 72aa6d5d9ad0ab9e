"""Families: what y is, given its linear predictors. One file each, which holds all there is to a family.

A user names one ("poisson"), or makes it here (`bernoulli("probit")`); a line below is all that the rest of the library
knows of it. Every formula keeps its digits far out: nothing overflows for |t| up to 700, and no difference of nearly
equal numbers stands where another form has none.
"""
# ruff: noqa: I001  (in the order in which users are told of them)

from svrhmc.core.errors import did_you_mean, requirement
from svrhmc.families.base import FAMILIES, Loss
from svrhmc.families.bernoulli import bernoulli as bernoulli
from svrhmc.families.binomial import binomial as binomial
from svrhmc.families.beta_binomial import beta_binomial as beta_binomial
from svrhmc.families.beta import beta as beta
from svrhmc.families.poisson import poisson as poisson
from svrhmc.families.gaussian import gaussian as gaussian
from svrhmc.families.student_t import student_t as student_t
from svrhmc.families.negative_binomial import negative_binomial as negative_binomial
from svrhmc.families.hurdle_poisson import hurdle_poisson as hurdle_poisson
from svrhmc.families.hurdle_negative_binomial import hurdle_negative_binomial as hurdle_negative_binomial
from svrhmc.families.zero_inflated_poisson import zero_inflated_poisson as zero_inflated_poisson
from svrhmc.families.zero_inflated_negative_binomial import (
    zero_inflated_negative_binomial as zero_inflated_negative_binomial,
)
from svrhmc.families.geometric import geometric as geometric
from svrhmc.families.gamma import gamma as gamma
from svrhmc.families.times import exponential as exponential
from svrhmc.families.times import weibull as weibull
from svrhmc.families.log_normal import log_normal as log_normal
from svrhmc.families.times import log_logistic as log_logistic
from svrhmc.families.bounds import bounded as bounded
from svrhmc.families.bounds import censored as censored
from svrhmc.families.inverse_gaussian import inverse_gaussian as inverse_gaussian
from svrhmc.families.categorical import categorical as categorical
from svrhmc.families.ordinal import ordinal as ordinal
from svrhmc.families.names import instead, without_link

__all__ = ["FAMILIES", "bounded", "censored", "family_of", *(family.__name__ for family in FAMILIES.values())]


def family_of(family: object) -> Loss:
    """The loss that a name stands for, or the one given; other names are refused with what to take instead."""
    if isinstance(family, str):
        for name, make in FAMILIES.items():
            if _plain(family) in (name, *make().aliases):
                return make()
    if hasattr(family, "curvature") and hasattr(family, "observed") and not isinstance(family, type):
        return family  # type: ignore[return-value]
    name = _plain(family) if isinstance(family, str) else ""
    allowed = "one of " + ", ".join(map(repr, FAMILIES)) + ", or a family of svrhmc.targets.families"
    raise requirement("family", allowed, repr(family), _with_link(name) or _instead(name))


def _plain(name: str) -> str:
    """In small letters, with one hyphen where others write a blank, an underscore or a dot."""
    return "-".join(name.lower().replace("_", " ").replace("-", " ").replace(".", " ").split())


def _with_link(name: str) -> str:
    """Of a name with a link in brackets, as R writes it: what is to be said of the link."""
    family, _, rest = name.rstrip(") ").partition("(")
    link = rest.replace("link", "").strip(" =\"'")
    for known, make in FAMILIES.items():
        if link and family in (known, *make().aliases):
            why = without_link(known, link) or "a link is given to the family: svrhmc.families.bernoulli('probit')"
            return f"the link {link!r} of {known!r}: {why}"
    return ""


def _instead(name: str) -> str:
    """What to do without a family that there is not, or which one was probably meant."""
    for family, make in FAMILIES.items():
        if name in make().mistaken:
            return f"did you mean {family!r}?"
    return instead(name) or did_you_mean(name, FAMILIES)
