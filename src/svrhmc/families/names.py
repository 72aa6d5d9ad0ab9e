"""Advice for names of families and links that do not exist here, but do in R, Bambi, brms, statsmodels, glmmTMB, mgcv or
PyMC.

A family itself declares other names that it accepts (`aliases`), and those that it answers with its own (`mistaken`).
"""

# ruff: noqa: E501  (a table of sentences)
from __future__ import annotations

from svrhmc.core.errors import requirement

# By parts of names in small letters, with hyphens; the first entry that matches counts.
INSTEAD = {
    "zero-one|zero-and-one|zoib|one-inflated|ordbeta|ordered-beta": "fit whether y is 0 or 1 by 'bernoulli' (which of "
    "them by another), and the rows between by 'beta'",
    "hurdle-gamma|hurdle-lognormal|hurdle-log-normal|zero-inflated-gamma|ziln|zigamma|zaga|ziga": "fit y > 0 by "
    "'bernoulli', and the rows with y > 0 by 'gamma' or 'log-normal'",
    "hurdle-cumulative|hurdle-ordinal": "give the class that is set apart as the lowest level of 'ordinal'",
    "ordered-probit|ordinal-probit|cumulative-probit|oprobit": "take svrhmc.families.ordinal('probit')",
    "ordered-cloglog|ordinal-cloglog|cumulative-cloglog|ocloglog|grouped-survival|discrete-time": "take "
    "svrhmc.families.ordinal('cloglog')",
    "sratio|cratio|acat|stopping-ratio|continuation-ratio|adjacent": "take 'ordinal' for cumulative odds, or 'bernoulli' "
    "on a row for each step that was reached",
    "zero-inflated-binomial|zero-inflated-beta|zero-altered|zib": "fit y > 0 by 'bernoulli', and the rows with y > 0 by "
    "'beta' for shares; 'beta-binomial' has more zeros than 'binomial'",
    "inflated|hurdle|zip|zap": "there are 'hurdle-poisson', 'hurdle-negative-binomial', 'zero-inflated-poisson' and "
    "'zero-inflated-negative-binomial'",
    "tweedie|compound-poisson|cpglm": "its density is a series, whose length grows without bound as the dispersion "
    "falls: fit y > 0 by 'bernoulli', and the rows with y > 0 by 'gamma' or 'log-normal'; the product of "
    "both means is that of y",
    "cox|coxph|phreg|hazard|piecewise|pwexp|pem|pamm": "take 'weibull' with Surv(time, event) as the response, whose "
    "ratios() has hazard ratios; or cut the rows by svrhmc.tables.split_times, and count the events of each stretch of "
    "time by 'poisson' with exposure=…, which has the likelihood of a piecewise constant hazard",
    "gompertz|generalized-gamma|generalised-gamma|gengamma|gen-gamma|flexsurv|royston|survspline": "take 'weibull', "
    "'log-normal' or 'log-logistic' with Surv(time, event) as the response",
    "competing|fine-gray|multi-state|multistate|cure": "take 'weibull' for each kind of event, in which the others are "
    "censored times: Surv(time, kind == 1)",
    "frailty": "take 'weibull' with Surv(time, event) ~ … + (1 | group)",
    "quantile|asymmetric-laplace|asymlaplace|quantreg|median": "take 'student-t' for the centre of y where rows are far "
    "off; posterior.predict(…).new_quantiles are quantiles of y under any family",
    "gp|gaussian-process|spline|gam|smooth": "it is no family: write s(x) in the formula for a smooth function of x",
    "mixed|lmer|lmm|glmer|multilevel|hierarchical|random-effect": "it is no family: write (1 | group) in the formula",
    "von-mises|vonmises|circular|wrapped": "there is none for angles: 'gaussian' takes those that lie far from the cut",
    "dirichlet|logistic-normal|simplex|compositional": "there is none for several shares: take 'beta' for one of them, "
    "or 'gaussian' for logs of their ratios",
    "multinomial|mnlogit|conditional-logit|clogit|nested-logit": "take 'categorical', with a row for each class and its "
    "count as weights=…",
    "wishart|multivariate|mvn|sur": "there is none for several responses: fit each by itself",
    "skew|exgaussian|ex-gaussian|shifted|gen-extreme|gev|frechet|gumbel|johnson|shash|generalized-normal|exponpow": "take "
    "'log-normal' or 'gamma' for positive y, 'student-t' for heavy tails",
    "wiener|ddm|diffusion|lba|rdm": "there is none for choices with their times: 'log-normal' takes the times",
    "pareto|lomax|burr": "take 'log-normal', or 'log-logistic', whose tail is a power of y",
    "mixture": "there is none: svrhmc.targets.Model takes a density of your own, written in JAX",
    "poisson-lognormal|poisson-normal|poisson-log-normal|com-poisson|compois|conway|genpois|generalized-poisson|poisson-"
    "inverse|sichel": "take 'negative-binomial', or 'poisson' with (1 | row) in the formula, where row is a column with "
    "a value for each row",
    "nbinom1|nb1|quasi": "take 'negative-binomial' for counts that vary more than 'poisson' has it, and "
    "'beta-binomial' for successes",
    "truncated-poisson|zero-truncated|ztpoisson|ztnb|positive-poisson|pospoisson|posnegbinomial": "take "
    "'hurdle-poisson' or 'hurdle-negative-binomial', whose counts above 0 have the law of counts known to be above 0",
    "truncated|censored|tobit|interval|bounded": "take 'gaussian' or 'student-t', with cens(y, lower=…, upper=…) or "
    "trunc(y, lb=…, ub=…) as the response; times have Surv(lower, upper, type='interval2') and Surv(start, stop, event)",
    "log-binomial|logbin|relative-risk|risk-ratio|lbinomial": "take 'bernoulli' and posterior.effects() for "
    "differences of probabilities, or 'poisson' for ratios of rare ones: a log link is 1 and more for some rows",
    "ordered-log|ordinal-log|cumulative-log|clm|clmm|proportional-odds|propodds|po|ocat": "take 'ordinal'",
    "ols|lm|regression|identity": "take 'gaussian'",
    "aft|accelerated": "take 'weibull', 'log-normal' or 'log-logistic' with Surv(time, event) as the response",
    "sqrt|inverse-link": "it is a link: take 'gaussian' for np.sqrt(y), or 'gamma', whose link is the logarithm",
    "nb2|polya": "take 'negative-binomial'",
    "inverse-gamma|invgamma|weibull-gamma": "take 'inverse-gaussian' or 'log-normal', whose tails are heavier than those "
    "of 'gamma'",
    "probit|cloglog|logit": "it is a link: take svrhmc.families.bernoulli('probit'), or "
    "svrhmc.families.ordinal('probit') for ordered classes",
    "cauchit|loglog": "take svrhmc.families.bernoulli('probit'), or 'bernoulli'",
    "laplace|cauchy|robust|huber|rlm|bisquare|logistic-noise": "take 'student-t', which rows that are far off pull less",
    "lasso|ridge|elastic|horseshoe|spike": "it is a prior: prior=Laplace(…), Normal(…), Horseshoe(…) or SpikeAndSlab(…) of "
    "svrhmc.targets.priors",
    "uniform|chi-square|chisq|rayleigh|maxwell|half-normal|folded": "take 'gamma' for positive y",
    "arima|autoregressive|garch|time-series": "there is none for series: rows are independent given their columns; "
    "s(time) has a smooth course, and a column of the value before may be a predictor",
    "poisson-process|hawkes|point-process": "count the events of each cell by 'poisson', with exposure=… for its size",
    "rank|plackett|bradley": "take 'bernoulli' for the winner of each pair, with a column of differences for each "
    "player",
}

LINKS = {
    (
        "poisson",
        "identity",
    ): "a mean has to be above 0 in every row, those that are predicted among them, and a line is "
    "not: take the log link with np.log(x) for effects that add, or 'gaussian' where counts are far from 0",
    ("poisson", "sqrt"): "t and −t have the same mean, so that each posterior has two halves: take 'gaussian' for "
    "np.sqrt(y), whose variance is near ¼, or the log link",
    (
        "binomial",
        "log",
    ): "a probability has to be below 1 in every row, those that are predicted among them, and e^t is "
    "not: take the logit with posterior.effects() for probabilities, or 'poisson' with exposure= where they are small",
    ("binomial", "identity"): "a probability has to be between 0 and 1 in every row, and a line is not: take the logit "
    "with posterior.effects(), which has differences of probabilities",
    (
        "gamma",
        "inverse",
    ): "a mean has to be above 0 in every row, and 1/t is not where t is below 0: take the log link, "
    "under which e^β multiplies the mean",
    ("gamma", "identity"): "a mean has to be above 0 in every row, and a line is not: take the log link with np.log(x) "
    "for effects that add, or 'gaussian' where y is far from 0",
}


def family_advice(name: str) -> str:
    """What to use in place of a family that does not exist; "" for names that are not known as families."""
    words = f"-{name}-"
    for parts, advice in INSTEAD.items():
        if any((f"-{part}-" if len(part) < 4 else part) in words for part in parts.split("|")):
            return advice
    return ""


def require_link(family: str, link: object, *own: str) -> None:
    """Refuse a link that a family does not have, with the reason.

    >>> require_link("poisson", "log", "log")
    """
    if link in own:
        return
    why = link_advice(family, link) or "no other is here" if isinstance(link, str) else "a link goes by its name"
    allowed = ("one of " if len(own) > 1 else "") + ", ".join(map(repr, own))
    raise requirement("link", f"{allowed} for {family!r}", repr(link), why)


def link_advice(family: str, link: str) -> str:
    """Why a family does not have a link that people use, and what to do instead; "" of any other.

    >>> link_advice("poisson", "sqrt")[:31]
    't and −t have the same mean, so'
    """
    return LINKS.get(("binomial" if family == "bernoulli" else family, link), "")
