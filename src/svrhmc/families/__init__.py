"""Families: what y is, given its linear predictors. One file each, which holds all there is to a family.

A user names one ("poisson"), or makes it here (`bernoulli("probit")`); a line below is all that the rest of the library
knows of it. Every formula keeps its digits far out: nothing overflows for |t| up to 700, and no difference of nearly
equal numbers stands where another form has none.
"""
# ruff: noqa: I001  (in the order in which users are told of them)

from svrhmc.core.errors import nearest, requirement
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

__all__ = ["FAMILIES", "bounded", "censored", "family_of", *(family.__name__ for family in FAMILIES.values())]

_INSTEAD = {
    "zero-one|zero-and-one|zoib|one-inflated|ordbeta|ordered-beta": "fit whether y is 0 or 1 by 'bernoulli' (which of "
    "them by another), and the rows between by 'beta'",
    "hurdle-gamma|hurdle-lognormal|zero-inflated-gamma|ziln": "fit y > 0 by 'bernoulli', and the rows with y > 0 by "
    "'gamma' or 'log-normal'",
    "hurdle-cumulative|hurdle-ordinal": "give the class that is set apart as the lowest level of 'ordinal'",
    "ordered-probit|ordinal-probit|cumulative-probit|oprobit": "take svrhmc.families.ordinal('probit')",
    "ordered-cloglog|ordinal-cloglog|cumulative-cloglog|proportional-hazards|ocloglog": "take "
    "svrhmc.families.ordinal('cloglog')",
    "zero-inflated-binomial|zero-inflated-beta|zero-altered": "fit y > 0 by 'bernoulli', and the rows with y > 0 by "
    "'beta' for shares; 'beta-binomial' has more zeros than 'binomial'",
    "inflated|hurdle": "there are 'hurdle-poisson', 'hurdle-negative-binomial', 'zero-inflated-poisson' and "
    "'zero-inflated-negative-binomial'",
    "tweedie|compound-poisson": "fit y > 0 by 'bernoulli', and the rows with y > 0 by 'gamma' or 'log-normal'; the "
    "product of both means is that of y",
    "cox|hazard": "take 'weibull' with Surv(time, event) as the response, whose ratios() has hazard ratios; or count "
    "the events of each stretch of time by 'poisson', with exposure=… for its length, which has the likelihood of a "
    "piecewise constant hazard",
    "gompertz|generalized-gamma|gengamma": "take 'weibull', 'log-normal' or 'log-logistic' with Surv(time, event) as "
    "the response",
    "quantile|asymmetric-laplace|asymlaplace": "take 'student-t' for the centre of y where rows are far off; "
    "posterior.predict(…).new_quantiles are quantiles of y under any family",
    "gp|gaussian-process|spline": "it is no family: write s(x) in the formula for a smooth function of x",
    "von-mises|vonmises|circular": "there is none for angles: 'gaussian' takes those that lie far from the cut",
    "dirichlet|logistic-normal": "there is none for several shares: take 'beta' for one of them, or 'gaussian' for "
    "logs of their ratios",
    "multinomial": "take 'categorical', with a row for each class and its count as weights=…",
    "skew|exgaussian|shifted|gen-extreme|frechet|gumbel": "take 'log-normal' or 'gamma' for positive y, 'student-t' "
    "for heavy tails",
    "mixture": "there is none: svrhmc.targets.Model takes a density of your own, written in JAX",
    "poisson-lognormal|poisson-normal|poisson-log-normal|com-poisson|compois|conway|genpois": "take "
    "'negative-binomial', or 'poisson' with (1 | row) in the formula, where row is a column with a value for each row",
    "nbinom1|nb1|quasi": "take 'negative-binomial' for counts that vary more than 'poisson' has it, and "
    "'beta-binomial' for successes",
    "truncated|censored|tobit": "there is none for numbers that are cut off; right-censored times are the response "
    "Surv(time, event)",
    "probit|cloglog|logit": "it is a link: take svrhmc.families.bernoulli('probit'), or "
    "svrhmc.families.ordinal('probit') for ordered classes",
    "laplace|cauchy|robust|huber": "take 'student-t', which rows that are far off pull less",
}  # by parts of names that other programs have


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
    raise requirement("family", allowed, repr(family), _instead(name))


def _plain(name: str) -> str:
    """In small letters, with one hyphen where others write a blank, an underscore or a dot."""
    return "-".join(name.lower().replace("_", " ").replace("-", " ").replace(".", " ").split())


def _instead(name: str) -> str:
    """What to do without a family that there is not, or which one was probably meant."""
    for family, make in FAMILIES.items():
        if name in make().mistaken:
            return f"did you mean {family!r}?"
    for parts, advice in _INSTEAD.items():
        if any(part in name for part in parts.split("|")):
            return advice
    return nearest(name, FAMILIES)
