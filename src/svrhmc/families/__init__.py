"""Families: the law of y given its linear predictors, one file each.

A user gives the name of a family ("poisson") or makes one here (`bernoulli("probit")`); the line below is all that the
rest of the library knows of it. Formulas keep their digits far out: nothing overflows for |t| up to 700, and
differences of nearly equal numbers are avoided.
"""
# ruff: noqa: I001  (in the order in which users see them)

from difflib import get_close_matches

from svrhmc.core.errors import requirement
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
from svrhmc.families.names import family_advice, link_advice

__all__ = ["FAMILIES", "bounded", "censored", "family_of", *(family.__name__ for family in FAMILIES.values())]


def family_of(family: object) -> Loss:
    """The loss that a name stands for, or the one given; other names are refused with what to take instead."""
    if isinstance(family, str):
        for name, make in FAMILIES.items():
            if _normalise_name(family) in (name, *make().aliases):
                return make()
    if hasattr(family, "curvature") and hasattr(family, "observed") and not isinstance(family, type):
        return family  # type: ignore[return-value]
    name = _normalise_name(family) if isinstance(family, str) else ""
    allowed = "one of " + ", ".join(map(repr, FAMILIES)) + ", or a family of svrhmc.targets.families"
    raise requirement("family", allowed, repr(family), _advice_for_link(name) or _advice_for_family(name))


def _normalise_name(name: str) -> str:
    """The name in small letters, with one hyphen for each blank, underscore or dot."""
    return "-".join(name.lower().replace("_", " ").replace("-", " ").replace(".", " ").split())


def _advice_for_link(name: str) -> str:
    """Advice for a name with a link in brackets, as R writes it; "" where there is no such link."""
    family, _, rest = name.rstrip(") ").partition("(")
    link = rest.replace("link", "").strip(" =\"'")
    for known, make in FAMILIES.items():
        if link and family in (known, *make().aliases):
            why = link_advice(known, link) or "a link is given to the family: svrhmc.families.bernoulli('probit')"
            return f"the link {link!r} of {known!r}: {why}"
    return ""


def _advice_for_family(name: str) -> str:
    """What to use in place of a family that does not exist, or which family was probably meant."""
    for family, make in FAMILIES.items():
        if name in make().mistaken:
            return f"did you mean {family!r}?"
    return family_advice(name) or _nearest(name)


def _nearest(name: str) -> str:
    """The question whether the family of the most similar name was meant, of all by which people ask for one."""
    by_name = {family: family for family in FAMILIES}
    for family, make in FAMILIES.items():
        by_name |= dict.fromkeys((*make().aliases, *make().mistaken), family)
    found = get_close_matches(name, by_name, 1, 0.5)
    if not found:
        return ""
    family = by_name[found[0]]
    return f"did you mean {family!r}{'' if found[0] == family else f' ({found[0]})'}?"
