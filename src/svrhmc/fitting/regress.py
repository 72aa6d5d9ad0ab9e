"""A regression in the units of its data, with priors that follow the data's scale.

With sⱼ the standard deviation of column j (where it has two values only, as the columns of a category have, their
difference), and (m, s) what is typical of the response on the scale of the predictor
(`Loss.overall`: the mean and standard deviation of y where the mean of y is the predictor itself; else the link of the
mean, and 1):

    coefficient βⱼ ~ N(0, (2.5 s/sⱼ)²),          intercept at the centre of the columns ~ N(m, (5 s)²),
    log σ, log scale ~ N(log s, 5²),             log shapes as the family has them.

Sparse columns are not centred, and their intercept is that at 0: with mⱼ their means its variance has Σ(2.5 s mⱼ/sⱼ)²
more, which is what the coefficients' own priors say of the way from the centre to 0.

These are the weakly informative defaults of rstanarm (2.5 s/sⱼ; Gabry & Goodrich, "Prior Distributions for rstanarm
Models") and of Bambi (Capretto et al., Journal of Statistical Software 103, 2022), but for the intercept, which is
centred on the data and twice as wide, so that rare events and large counts are not pulled, and for columns of two
values, where the step from one to the other counts (Gelman, Jakulin, Pittau & Su, Annals of Applied Statistics 2,
2008): the standard deviation of a rare level is small, and 2.5 over it would be no information at all. They have the
units of the data: a column in metres and one in millimetres give the same posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError, VerdictWarning, one_of, real_array, requirement
from svrhmc.core.saving import is_text
from svrhmc.families import family_of
from svrhmc.families.base import Loss
from svrhmc.fitting.scales import Scales, no_column, require_size, scales_of
from svrhmc.fitting.tall import StandardReader, known_of, require_dense
from svrhmc.posterior import Posterior, usual_settings
from svrhmc.results.advice import ARRAYS, Advice, warn_of_verdict
from svrhmc.results.effects import FittedRows
from svrhmc.results.posterior import build_posterior
from svrhmc.results.prior import Influence
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.run import find_answer, require_draws
from svrhmc.tables.design import Design
from svrhmc.targets.coding import coding_of
from svrhmc.targets.generalised import GeneralisedLinear
from svrhmc.targets.priors import Flat, Normal, Prior
from svrhmc.targets.reading import Partitions
from svrhmc.targets.regression import checked_weights, glm
from svrhmc.targets.sparse import checked_csr
from svrhmc.targets.stored import is_sparse

INTERCEPT = "Intercept"
_EFFECT, _INTERCEPT_SD = 2.5, 5.0


class Regression(NamedTuple):
    """A target in standardised variables, the units of its coefficients, their names, and the priors as stated."""

    target: GeneralisedLinear
    units: Units
    names: tuple[str, ...]
    location: Array
    precision: Array
    said: str
    given: bool  # whether the prior was


def regress(
    X: Any,
    y: npt.ArrayLike | None = None,
    family: str | Loss = "gaussian",
    *,
    names: Sequence[str] | None = None,
    intercept: bool = True,
    trials: npt.ArrayLike | None = None,
    offset: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    prior: Prior | Mapping[str, Prior] | None = None,
    noise_variance: float | None = None,
    **settings: Any,
) -> Posterior:
    """The posterior of a regression on arrays, in the units of X and y.

    X: (n, columns), dense or CSR, without a column for the intercept; or rows in partitions (`svrhmc.data`), which have
        y, offset and weights among their columns.
    y: n labels of the family.
    family: its name, or one of `svrhmc.targets.families`.
    names: the names of the columns; x0, x1, … if None.
    intercept: whether there is one.
    trials, offset, weights: as `svrhmc.targets.glm` takes them.
    prior: the prior of the coefficients, in the units of the data: one of `svrhmc.targets.priors` for all of them but
        the intercept, or a dictionary by name, with "Intercept" for the intercept at the centre of the columns, and
        "sigma", "scale" or "shape" ("log sigma", … for the logarithm) for what all rows share. None, and whatever the
        dictionary does not name, stands for weakly informative priors that follow the scale of the data.
    noise_variance: the variance of the noise of "gaussian", if it is known.
    settings: those of `svrhmc.sample`.

    >>> posterior = regress([[1.0], [2.0], [3.0], [4.0]], [301.0, 302.0, 303.5, 303.9], names=["dose"])
    >>> posterior.names
    ('Intercept', 'dose', 'log sigma')
    """
    require_settings(regress, settings)
    with ARRAYS.speaking(_columns(X, names, intercept and family_of(family).has_intercept)):
        made = regression(
            X,
            y,
            family,
            names=names,
            intercept=intercept,
            trials=trials,
            offset=offset,
            weights=weights,
            prior=prior,
            noise_variance=noise_variance,
        )
        return posterior_of(made, **settings)


def _columns(X: Any, names: Sequence[str] | None, intercept: bool) -> list[str]:
    """Those of the target, by name."""
    given = X.reader.names if isinstance(X, Partitions) else names
    known = [f"x{j}" for j in range(np.shape(X)[-1])] if given is None and np.ndim(X) == 2 else list(given or ())
    return [INTERCEPT] * bool(intercept) + [str(name) for name in known]


def require_settings(door: Callable[..., Posterior], settings: Mapping[str, Any]) -> None:
    """Refuse keywords that neither a door nor `sample` has, and more draws than can be kept of a single coefficient;
    the first two parameters of a door are the data.
    """
    own, usual = tuple(signature(door).parameters)[2:-1], usual_settings()
    for word in settings:
        one_of(f"a keyword of {door.__name__}", word, (*own, *usual))
    require_draws(**{word: settings.get(word, usual[word]) for word in ("draws", "chains", "checkpoint")})


def posterior_of(
    made: Regression,
    warning: type[Warning] = VerdictWarning,
    advice: Advice = ARRAYS,
    design: Design | None = None,
    table_rows: FittedRows | None = None,
    **settings: Any,
) -> Posterior:
    """Sample it, with the settings of `svrhmc.sample` (`require_settings`); warning: of a verdict that is open; advice:
    in the words of the door. design, table_rows: of a table.
    """
    answer, cost = find_answer(made.target, made.units, **{**usual_settings(), **settings})
    heavy, mean = made.target.heavy, made.units.inward(answer.mean)
    precision = made.precision if heavy is None else heavy.equivalent(mean, made.precision)
    posterior = build_posterior(
        answer,
        cost,
        made.target,
        made.units,
        made.names,
        family=made.target.loss.name,
        prior=Influence.of(made.location, precision, made.units.inward(answer.trace.draws), made.said),
        given=made.given,
        design=design,
        table_rows=table_rows,
        advice=advice,
    )
    warn_of_verdict(posterior, warning)
    return posterior


def regression(
    X: Any,
    y: npt.ArrayLike | None,
    family: str | Loss,
    *,
    names: Sequence[str] | None = None,
    intercept: bool = True,
    trials: npt.ArrayLike | None = None,
    offset: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    prior: Prior | Mapping[str, Prior] | None = None,
    classes: Sequence[Any] | None = None,
    noise_variance: float | None = None,
    varied: bool = False,
) -> Regression:
    """The target of `regress`, with all that leads back to the units of the data.

    varied: whether columns that say nothing are refused.
    """
    if isinstance(X, Partitions):
        given = {"y": y, "names": names, "trials": trials, "offset": offset, "weights": weights}
        return _of_partitions(X, family, given, intercept, prior, noise_variance)
    if y is None:
        raise requirement("y", "the labels of the rows", "None", "only partitions of svrhmc.data have them in X")
    if is_sparse(X):
        X = checked_csr(X)
    else:
        X = real_array("X", X, ("n", "columns")) if np.shape(X)[1:] != (0,) else np.empty(np.shape(X))
    n, columns = X.shape
    known_family = family_of(family)
    intercept = intercept and known_family.has_intercept
    if n and not columns and not known_family.has_intercept:
        raise DataError(f"the family {known_family.name!r} needs a column that may explain the response.")
    if not (n and columns + intercept):
        raise requirement("X", "an array with rows, and with columns where there is no intercept", f"shape {X.shape}")
    if noise_variance is not None:
        known_family = known_family.with_noise(noise_variance)
    loss, label, found = known_family.coded(y)
    labels = found if classes is None else classes
    observed = loss.observed(label, n, trials)
    plain = weights is None and observed.counts is None
    count = _counted(weights, n) * (1.0 if observed.counts is None else observed.counts)
    shift = np.zeros(n) if offset is None else np.asarray(real_array("offset", offset, (n,)), np.float64)
    known = tuple(f"x{j}" for j in range(columns)) if names is None else tuple(map(str, names))
    if len(known) != columns or len(set(known)) < columns:
        raise requirement("names", f"{columns} different ones, one for each column", f"{len(known)}: {known[:8]}")
    parameters = loss.parameter_names(labels)
    for name in known:
        if name == INTERCEPT or name in parameters:
            raise DataError(f"column {name!r} has the name of another parameter of the model: rename the column.")
    for name in known:
        if not is_text(name):
            raise DataError(f"{name!r} has a control sign in it, which no file of results can hold: rename it.")
    require_size(X, known)
    require_size(observed.y[:, None], ["y"], "the response")
    require_size(shift[:, None], (), "the offset")
    typical, size = loss.overall(observed.y, count, shift)
    centred = intercept or not loss.has_intercept
    scales = scales_of(X, None if plain else count, centred)
    if varied:
        _require_varied(X, known, centred, scales if plain else scales_of(X, None, centred))
    units, each, shared = _laid(loss, scales, known, parameters, typical, size, intercept, prior)
    by_offset = loss.identity_link and intercept
    target = glm(
        units.rows(X),
        label,
        loss,
        trials=trials,
        offset=shift + units.response if by_offset or offset is not None else None,
        weights=weights,
        prior=each,
        shared_prior=shared,
    )
    return _regression(target, units, known, labels, each, shared, prior)


def _laid(
    loss: Loss,
    scales: Scales,
    names: tuple[str, ...],
    parameters: tuple[str, ...],
    typical: float,
    size: float,
    intercept: bool,
    prior: Any,
) -> tuple[Units, list[Prior], list[Prior] | None]:
    """Units, priors of the standardised coefficients, and those of shared parameters.

    names, parameters: of the columns, and of what all rows share.
    """
    by_offset = loss.identity_link and intercept
    response, lifted = typical if by_offset else 0.0, not loss.has_intercept
    units = Units(scales.centre, scales.scale, intercept, loss.blocks, loss.shared, response, scales.step, lifted)
    slopes = _slopes(prior, names, scales, size, (INTERCEPT, *parameters) if intercept else parameters)
    away = scales.left * scales.scale / scales.step
    far = float(np.sqrt(1 + (_EFFECT / _INTERCEPT_SD) ** 2 * (away @ away)))
    middle = _intercept(prior, 0.0 if by_offset or loss.blocks > 1 else typical, size * far, units.response)
    precision, mean = loss.weak_shared_prior(size)
    weak = Normal(precision / far**2 if lifted else precision, mean)
    return units, ([middle] if intercept else []) + slopes, _shared(prior, weak, parameters, names)


def _regression(
    target: Any, units: Units, names: tuple[str, ...], labels: Any, each: list[Prior], shared: Any, prior: Any
) -> Regression:
    location, precision = _stated(each, target.loss, shared)
    named, parameters = _names(names, units.intercept, target.loss, labels), target.loss.parameter_names(labels)
    said = _said(prior, target.loss, each[0] if units.intercept else None, units.response, parameters, shared)
    return Regression(target, units, named, location, precision, said, prior is not None)


def _of_partitions(
    data: Partitions, family: str | Loss, given: Mapping[str, Any], intercept: bool, prior: Any, noise: float | None
) -> Regression:
    """The same for rows in partitions, which have labels, offsets and weights themselves."""
    for name, value in given.items():
        if value is not None:
            why = "the partitions have it themselves: say which column it is when you open them"
            raise requirement(name, "None where X is in partitions", type(value).__name__, why)
    require_dense(data.reader)
    known = family_of(family)
    coding, classes = coding_of(data, known if noise is None else known.with_noise(noise))
    intercept = intercept and known.has_intercept
    centred, parameters = intercept or not known.has_intercept, coding.loss.parameter_names(classes)
    scales, typical, size, least, most = known_of(data, coding, centred)
    if centred and scales.constant.any():
        j = int(np.argmax(scales.constant))
        raise no_column(data.reader.names[j], float(least[j]), float(most[j]))
    units, each, shared = _laid(coding.loss, scales, data.reader.names, parameters, typical, size, intercept, prior)
    target = glm(data.read_by(StandardReader(data.reader, units)), None, coding.loss, prior=each, shared_prior=shared)
    return _regression(target, units, data.reader.names, classes, each, shared, prior)


def _require_varied(X: Any, names: Sequence[str], intercept: bool, scales: Scales) -> None:
    """Refuse columns that say nothing: constant ones beside an intercept, and those that repeat another."""
    if intercept and scales.constant.any():
        j = int(np.argmax(scales.constant))
        column = X[:, j].toarray() if hasattr(X, "format") else X[:, j]
        raise no_column(names[j], float(column.min()), float(column.max()))
    if hasattr(X, "format") or X.shape[1] > _LOOKED:
        return
    few = X[:: max(1, len(X) // _ROWS)]
    away = few - few.mean(axis=0) * intercept
    standard = away / np.maximum(np.sqrt((away**2).mean(axis=0)), 1e-300)
    alike = np.abs(standard.T @ standard / len(few))
    np.fill_diagonal(alike, 0.0)
    for i, j in zip(*np.nonzero(np.triu(alike > 1 - 1e-12)), strict=True):
        a, b = np.asarray(X[:, i], np.float64), np.asarray(X[:, j], np.float64)
        a, b = (a - a[0], b - b[0]) if intercept else (a, b)
        ratio = scales.scale[j] / scales.scale[i] * np.sign((standard[:, i] * standard[:, j]).sum())
        if np.allclose(a * ratio, b, rtol=1e-9, atol=1e-9 * scales.scale[j]):
            raise DataError(f"column {names[j]!r} repeats column {names[i]!r}: leave one of them out.")


_MOST_WEIGHT = 1e18  # of all rows together
_LOOKED, _ROWS = 2000, 2000  # columns up to which, and rows by which, columns are compared with each other


def _counted(weights: npt.ArrayLike | None, n: int) -> Array:
    """How many rows each row counts as."""
    if weights is None:
        return np.ones(n)
    count = checked_weights(weights, n)
    with np.errstate(over="ignore"):
        total = float(count.sum())
    if not total < _MOST_WEIGHT:
        allowed, why = f"numbers with a sum below {_MOST_WEIGHT:g}", "a row of weight w counts as w rows"
        raise requirement("weights", allowed, f"a sum of {total:g}", why)
    return count


def _slopes(prior: Any, names: tuple[str, ...], scales: Scales, size: float, others: tuple[str, ...]) -> list[Prior]:
    """Priors of the standardised slopes; others: what else of the model may be given one."""
    usual: list[Prior] = [Normal(float((_EFFECT * size * s) ** -2)) for s in scales.scale / scales.step]
    if prior is None:
        return usual
    if isinstance(prior, Prior):
        return [prior.scaled(float(s)) for s in scales.scale]
    if not isinstance(prior, Mapping):
        raise requirement("prior", "one of svrhmc.targets.priors, or a dictionary of them by column", repr(prior))
    odd = [each for each in prior.values() if not isinstance(each, Prior)]
    if odd:
        raise requirement("prior", "a dictionary of svrhmc.targets.priors by column", repr(odd[0]))
    more = (*others, *(_positive(name) for name in others if name != _positive(name)))
    known = {*names, *more}
    unknown = [name for name in prior if name not in known]
    if unknown:
        shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        allowed = f"by the names of the columns ({shown})" + (f" or {', '.join(more)}" if more else "")
        why = "this model has no intercept" if unknown[0] == INTERCEPT else ""
        raise requirement("prior", allowed, repr(unknown[0]), why)
    return [
        prior[name].scaled(float(s)) if name in prior else one
        for name, s, one in zip(names, scales.scale, usual, strict=True)
    ]


def _intercept(prior: Any, location: float, size: float, taken_off: float) -> Prior:
    """Of the intercept at the centre of the columns, less what was taken off the response."""
    if isinstance(prior, Mapping) and INTERCEPT in prior:
        given: Prior = prior[INTERCEPT].shifted(-taken_off)
        return given
    return Flat() if isinstance(prior, Flat) else Normal((_INTERCEPT_SD * size) ** -2, location)


def _positive(name: str) -> str:
    """The parameter whose logarithm is the coordinate of this name: sigma of log sigma."""
    return name.removeprefix("log ")


def _shared(prior: Any, weak: Prior, parameters: tuple[str, ...], names: tuple[str, ...]) -> list[Prior] | None:
    """Of the parameters that all rows share: as given for the parameter or for its logarithm, or else weak ones; None
    where there are none. A column of the parameter's own name comes first, and leaves it that of its logarithm.
    """
    found: list[Prior] = []
    for name in parameters:
        bare = _positive(name)
        by_name = prior if isinstance(prior, Mapping) else {}
        given = {key: by_name[key] for key in {name: 0, bare: 0} if key in by_name and key not in names}
        if len(given) > 1:
            raise requirement("prior", f"of {bare!r} or of {name!r}", "both", "one follows from the other")
        for key, each in given.items():
            if each.positive and key == name:
                why = f"it is one of {bare!r}, whose logarithm this is"
                raise requirement(f"the prior of {name!r}", "one of numbers of either sign", repr(each), why)
            if not each.positive and key == bare != name:
                allowed, why = "HalfNormal, HalfStudentT, HalfCauchy or Exponential", f"it may be one of {name!r}"
                raise requirement(f"the prior of {bare!r}", allowed, repr(each), why)
        found.append(next(iter(given.values()), weak))
    return found or None


def _stated(each: list[Prior], loss: Loss, shared: list[Prior] | None) -> tuple[Array, Array]:
    """Location and precision of every standardised coordinate."""
    told = [one.spread for one in each] * loss.blocks
    last = [one.spread for one in shared or ()]
    location, sd = (np.array(column) for column in zip(*(told + last), strict=True))
    return location, np.where(np.isfinite(sd), sd, np.inf) ** -2.0


def _names(columns: tuple[str, ...], intercept: bool, loss: Loss, classes: Any) -> tuple[str, ...]:
    block = ([INTERCEPT] if intercept else []) + list(columns)
    if loss.blocks == 1:
        return (*block, *loss.parameter_names(classes))
    labels = tuple(map(str, range(loss.blocks + 1))) if classes is None else tuple(map(str, classes))
    return tuple(f"{label}: {name}" for label in labels[1:] for name in block)


def _said(
    prior: Any,
    loss: Loss,
    middle: Prior | None,
    response: float,
    parameters: tuple[str, ...],
    shared: list[Prior] | None,
) -> str:
    """The prior of everything in words: of coefficients, of the intercept (`middle`, after what was taken off the
    response) and of what rows share. Where some are given, the others are said in numbers.
    """
    if prior is None:
        return "; ".join(
            filter(None, ("weak, on the scale of the data: " + _weak(loss), *loss.weak_shared_words(parameters)))
        )
    if isinstance(prior, Mapping):
        said = [f"given: {dict(prior)!r}", "other coefficients have weak ones, on the scale of the data"]
    else:
        said = [f"given: every coefficient ~ {prior!r}"]
    by_name = prior if isinstance(prior, Mapping) else {}
    if middle is not None and INTERCEPT not in by_name:
        law = "flat" if isinstance(middle, Flat) else f"~ {_normal(*middle.shifted(response).spread)}"
        said.append(f"the intercept, at the means of the columns, {law} unless prior={{'{INTERCEPT}': …}} gives it")
    weak = {
        name: f"~ {_normal(*each.spread)} unless prior={{{_positive(name)!r}: …}} gives it"
        for name, each in zip(parameters, shared or (), strict=True)
        if not {name, _positive(name)} & set(by_name)
    }
    if weak and not loss.has_intercept:  # all of them have one law
        many = "thresholds" if len(weak) == len(parameters) else "other thresholds"
        said.append(f"{many}, at the means of the columns, {next(iter(weak.values()))}")
    else:
        said.extend(f"{name} {law}" for name, law in weak.items())
    return "; ".join(said)


def _normal(mean: float, sd: float) -> str:
    return f"N({mean:.4g}, {sd:.4g}²)"


def _weak(loss: Loss) -> str:
    if loss.identity_link:
        return (
            "coefficients ~ N(0, (2.5·sd(y)/sd(x))²), those of categories N(0, (2.5·sd(y))²); the intercept, at the "
            "means of the columns, ~ N(mean of y, (5·sd(y))²)"
        )
    slopes = "coefficients ~ N(0, (2.5/sd(x))²), those of categories N(0, 2.5²)"
    if not loss.has_intercept:
        return slopes
    centre = "N(0, 5²)" if loss.blocks > 1 else "N(m, 5²), where m is what an intercept alone would be"
    return f"{slopes}; the intercept, at the means of the columns, ~ {centre}"
