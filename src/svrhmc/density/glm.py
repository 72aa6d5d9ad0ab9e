"""Regressions by name: the doors to `GeneralisedLinear`, where data are checked once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import positive, real_array, requirement
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.density.learnt import LearntScaleModel
from svrhmc.density.mixed import mixed_model
from svrhmc.density.propriety import require_proper
from svrhmc.density.shrunk import ShrunkModel
from svrhmc.families import family_of, gaussian
from svrhmc.families.base import Loss, Parameter
from svrhmc.families.distributional import parameter_called, with_predictors
from svrhmc.priors.groups import EffectTerm
from svrhmc.priors.shrinkage import LearntScale, joint_prior
from svrhmc.priors.terms import Flat, Normal, Prior, Settled, Term, per_column, require_terms, settle
from svrhmc.rows.base import Labels
from svrhmc.rows.coding import make_coding
from svrhmc.rows.csr import CsrMatrix, Matrix
from svrhmc.rows.partitions import PartitionRows
from svrhmc.rows.predictors import rows_for_loss
from svrhmc.rows.reading import Partitions
from svrhmc.rows.sparse import make_rows, side_by_side

_LEAST = 1e-30  # weight of a row: below it e^t may overflow in float32 where w·e^t is no large number


Priors = Prior | Sequence[Prior]  # of all columns, or one for each


def glm(
    X: npt.ArrayLike | CsrMatrix | Partitions,
    y: npt.ArrayLike | None = None,
    family: str | Loss = "bernoulli",
    *,
    trials: npt.ArrayLike | None = None,
    noise_variance: float | None = None,
    offset: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    prior: Prior | Sequence[Prior] | None = None,
    shared_prior: Prior | Sequence[Prior] | None = None,
    prior_precision: float | npt.ArrayLike = 1.0,
    prior_mean: float | npt.ArrayLike = 0.0,
    terms: Sequence[Term] = (),
    groups: Sequence[EffectTerm] = (),
    predictors: Mapping[str, npt.ArrayLike | CsrMatrix] | None = None,
) -> Any:
    """A generalised linear model: y has the distribution `family` at the predictor t = offset + aᵀx, and x the prior.

    X: an array (n, columns), dense or scipy CSR, float32 or float64. No intercept is added.
    family: "bernoulli", "binomial", "beta-binomial", "poisson", "negative-binomial", "geometric", "hurdle-poisson",
        "hurdle-negative-binomial", "zero-inflated-poisson", "zero-inflated-negative-binomial", "gaussian",
        "student-t", "gamma", "log-normal", "inverse-gaussian", "beta", "categorical" or "ordinal"; for times, with
        −time where they are right-censored (`families.censored`), "exponential", "weibull", "log-logistic"; or one of
        `svrhmc.targets.families`, such as `families.bernoulli("probit")`; or a `Loss` of your own.
    y: n labels; for "binomial" the number of successes. "bernoulli" takes 0 and 1, −1 and 1, truth values, or two
        texts, of which the one that comes last in their order is 1. Classes of "categorical" may be any labels (texts,
        whole numbers, truth values): in their order the first is the baseline, and `target.classes` has them. Those of
        "ordinal" have an order: numbers, or an ordered category of a data frame.
    trials: for "binomial" and "beta-binomial" the number of trials, one for all rows or one for each.
    noise_variance: the variance of the noise of "gaussian", if it is known; None: log σ is the last coordinate of x.
    offset: n numbers to add to the predictors, such as log exposures.
    weights: n numbers, 0 or more. A row of weight w counts as w such rows, so that an aggregated table has the same
        posterior as the rows it was made from. (The n of the finite sum is the number of rows in the table, less those
        of weight 0, or of no trials, which are left out; `target.left_out` says how many.)
    prior: a prior of `svrhmc.targets.priors` for all columns, or a list with one for each: `Normal`, `StudentT`,
        `Laplace` (smoothed), `Flat`; or `Horseshoe`, `R2D2`, `SpikeAndSlab` or `LearntScale`, which the columns that
        have it share. None stands for Normal(prior_precision, mean=prior_mean).
    prior_precision, prior_mean: one number, or one for each column; a precision of 0 is a flat prior. (Each class of
        "categorical" except the first has its own coefficients, each with this prior.)
    predictors: designs for parameters that would be shared, by their names, such as {"sigma": Z}: log σ is then zᵢᵀθ
        in row i (logarithms of scales and shapes, log odds of zeros). Coefficients of each stand in its place in x;
        of rows to predict, the columns of all designs stand one behind the other. No intercept is added.
    shared_prior: the prior of parameters that all rows share (log σ, or a log shape), which are last in x; or one of σ
        or the shape itself (`HalfNormal`, `HalfStudentT`, `HalfCauchy`, `Exponential`). None stands for the default of
        the family, which is wide.
    terms: terms of the prior that couple coordinates (`svrhmc.targets.priors.Term`), beside those of single ones; the
        parameters that they bring are last in x.
    groups: effects of groups (`svrhmc.targets.Group`), whose standard deviations and correlations are unknown:
        `svrhmc.sample` draws all of them together.

    >>> target = glm([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [1, 2, 6], "poisson", offset=np.log([1.0, 1.0, 2.0]))
    >>> target.mode().round(3)
    array([0.149, 0.462])
    >>> table = glm([[1.0], [1.0]], [0, 1], weights=[30, 10])  # 40 rows
    >>> table.mode().round(3), glm([[1.0]], [10], "binomial", trials=40).mode().round(3)
    (array([-0.973]), array([-0.973]))
    >>> glm([[1.0], [1.0], [1.0]], ["red", "blue", "red"], "categorical").classes
    array(['blue', 'red'], dtype='<U4')
    >>> glm([[1.0]] * 4, [1, 2, 5, -4], "gaussian", predictors={"sigma": [[1, 0], [1, 0], [1, 1], [1, 1]]}).dim
    3
    """
    if isinstance(X, Partitions):
        separate_arguments = {"y": y, "trials": trials, "offset": offset, "weights": weights, "predictors": predictors}
        return _glm_of_partitions(
            X, family_of(family), noise_variance, separate_arguments,
            _column_prior(prior, prior_precision, prior_mean), shared_prior, terms,
        )  # fmt: skip
    if y is None:
        raise requirement("y", "the labels of the rows", "None", "only partitions of svrhmc.data have them in X")
    loss = family_of(family)
    loss, label, classes = (loss if noise_variance is None else loss.with_noise(noise_variance)).coded(y)
    if predictors:
        X, loss = with_designs(X, loss, predictors)
    rows = make_rows(X, empty=bool(groups))
    columns = rows.dim - sum(loss.widths)
    if loss.blocks > 1 and offset is not None:
        why = "classes have no offsets here, as a row has several predictors; leave it out"
        raise requirement("offset", f"None for {loss}", f"an array of shape {np.shape(offset)}", why)
    observed = loss.observed(label, rows.n, trials)
    shift = None if offset is None else _offset(offset, rows.n)
    count = row_weights(weights, observed.counts, rows.n)
    labels, row_count = Labels(observed.y, shift, count), rows.n
    groups = require_groups(groups, rows.n, loss)
    require_identified_spreads(groups, loss, weights is not None, observed.counts)
    if count is not None and not count.all():
        kept_rows = np.flatnonzero(count)
        rows, labels = rows.choose(kept_rows), labels.choose(kept_rows)
        groups = [group.chosen(kept_rows) for group in groups]
    if groups:
        if terms:
            raise requirement("terms", "none where there are groups", list(terms))
        single = settle(_column_prior(prior, prior_precision, prior_mean), columns)
        shared = _usual_shared_prior(loss) if shared_prior is None else shared_prior
        mixed = mixed_model(rows, labels, loss, single, settle(shared, loss.shared, positive=True), groups)
        mixed.left_out, mixed.classes = row_count - rows.n, classes
        return mixed
    column_priors = _column_prior(prior, prior_precision, prior_mean)
    joint = any(
        getattr(single_prior, "joint", False)
        for single_prior in (column_priors if isinstance(column_priors, Sequence) else (column_priors,))
    )
    if joint and any(loss.widths):
        raise requirement("prior", "one of single coefficients where parameters have predictors", repr(prior))
    shrinkage = joint_prior(column_priors, columns) if joint and not terms else None
    settled = _settled_prior(column_priors, shared_prior, loss, columns, terms, joint=shrinkage is not None)
    target = GeneralisedLinear(
        rows_for_loss(rows, loss), labels.y, loss, settled.precision, settled.mean, labels.offset, labels.weights,
        settled.heavy, settled.terms,
    )  # fmt: skip
    target.left_out = row_count - rows.n
    if settled.terms is not None:
        target.names = (*(f"x[{j}]" for j in range(settled.terms.inner)), *settled.terms.names)
    target.classes = classes
    if shrinkage is not None:
        prior_together, places = shrinkage
        of_prior: Any = LearntScaleModel if isinstance(prior_together, LearntScale) else ShrunkModel
        shrunk = of_prior(target, prior_together, places)
        shrunk.classes = classes
        return shrunk
    target.determined = require_proper(target)
    return target


def require_groups(groups: object, n: int, loss: Loss) -> list[EffectTerm]:
    """The groups as a list; refused if they do not fit the rows or the family, or two have parameters of one name."""
    if not isinstance(groups, Sequence) or not all(isinstance(group, EffectTerm) for group in groups):
        raise requirement("groups", "a list of svrhmc.targets.Group or Smooth", repr(groups)[:60])
    names = Counter(name for group in groups for name in group.parameter_names())
    if twice := [name for name, count in names.items() if count > 1]:
        why = "give groups names of their own (name=…), or put their columns into one"
        raise requirement("groups", "terms whose parameters have different names", f"{twice[0]!r} twice", why)
    for group in groups:
        if group.n != n:
            raise requirement(f"index of ({group.label})", f"{n} levels, one for each row", group.n)
        group.require_columns()
        if group.count < 2:
            why = "the standard deviation of a single effect cannot be learnt; leave the term out"
            raise requirement(f"levels of ({group.label})", "at least 2", group.count, why)
    if groups and loss.blocks > 1:
        why = 'a row has several linear predictors; take "ordinal", or one "bernoulli" model for each class'
        raise requirement("groups", f"none for {loss.name!r}", [group.label for group in groups], why)
    return list(groups)


def require_identified_spreads(groups: Sequence[EffectTerm], loss: Loss, weighted: bool, trials: Array | None) -> None:
    """Refuse effects of single rows whose standard deviation τ the data cannot tell from the variation of a row.

    Under Gaussian noise the rows only determine σ² + τ², and under other laws (Student's t, gamma) little but their
    sum. One yes or no has the probability E g(t + τv), v ~ N(0, 1), which for a probit link is Φ(t/√(1 + τ²)): τ
    changes the unit of the coefficients and nothing else, and for other links next to nothing else. Rows with weights,
    and some with more than one trial, do determine τ.
    """
    single = trials is None or bool((trials <= 1).all())
    if weighted or not (loss.spread or ((loss.most_classes or loss.in_trials) and single)):
        return
    if loss.spread:
        reason, variation = f"{loss.shared_names[0]} is unknown", "that of the noise"
        instead = "or take a family without it"
        if loss.name == "gaussian":
            instead = "give noise_variance=…, or take another family"
    else:
        reason, variation = "a row is a single answer", "the spread that the link has already"
        instead = "or put the trials of one unit into one row (family 'binomial', trials=…)"
    for group in groups:
        if group.of_single_rows:
            indistinct = f"the standard deviation of their effects cannot be told from {variation}"
            why = f"{indistinct}; leave the term out, {instead}"
            count = f"one for each of {group.n:,} rows"
            raise requirement(f"levels of ({group.label})", f"fewer than the rows, where {reason}", count, why)


def with_designs(
    X: Any, loss: Loss, designs: Mapping[str, Any], columns: Mapping[str, Sequence[str]] | None = None
) -> tuple[Matrix, Loss]:
    """The columns of X and then those of each design, and the loss whose parameters they are for.

    columns: names of theirs.
    """
    names_of_designs = {require_parameter(loss, name).name: name for name in designs}
    if len(names_of_designs) < len(designs):
        raise requirement("predictors", "one design for each parameter", " and ".join(map(repr, designs)))
    parts, widths, ones, names = [X], [], [], []
    for parameter in loss.parameters:
        own_name = names_of_designs.get(parameter.name)
        if own_name is not None and np.ndim(designs[own_name]) != 2 and not hasattr(designs[own_name], "format"):
            raise requirement(
                f"predictors[{own_name!r}]", "a matrix (n, columns)", f"shape {np.shape(designs[own_name])}"
            )
        design: Any = None if own_name is None else make_rows(designs[own_name])
        width = 0 if design is None else design.dim
        if design is not None and design.n != np.shape(X)[0]:
            raise requirement(f"predictors[{own_name!r}]", f"{np.shape(X)[0]} rows, as X has", design.n)
        if design is not None:
            parts.append(design.X)
        widths.append(width)
        ones.append(design is not None and bool((design.dense_matrix(np.arange(design.n))[:, 0] == 1).all()))
        names.append([f"[{j}]" for j in range(width)] if columns is None else list(columns.get(parameter.name, ())))
    return side_by_side(parts), with_predictors(loss, widths, ones, names)


def require_parameter(loss: Loss, name: str) -> Parameter:
    """The parameter of a family that may have a predictor, by its name; refuses others."""
    parameter = parameter_called(loss, name)
    if parameter is None:
        if not loss.parameters:
            allowed = f"that of the response alone: {loss.name!r} has no other parameter with a formula"
            raise requirement("formula", allowed, f"one of {name!r} too")
        allowed = " or ".join(repr(parameter.name) for parameter in loss.parameters)
        raise requirement("a formula beside that of the response", f"of {allowed}, as {loss.name!r} has it", repr(name))
    return parameter


def _column_prior(prior: Priors | None, prior_precision: npt.ArrayLike, prior_mean: npt.ArrayLike) -> Priors:
    """The prior of the columns, given in one way or in the other."""
    usual = np.ndim(prior_precision) == np.ndim(prior_mean) == 0 and (prior_precision, prior_mean) == (1, 0)
    if prior is not None and not usual:
        raise requirement("prior", "None where prior_precision or prior_mean is given", repr(prior))
    if prior is not None:
        return prior
    flat = np.ndim(prior_precision) == 0 and not prior_precision  # and without a mean
    return Normal(prior_precision, mean=0.0 if flat else prior_mean)


def _usual_shared_prior(loss: Loss) -> Normal:
    precision, mean = loss.shared_prior
    return Normal(precision, mean=mean)


def _settled_prior(
    prior: Priors, shared_prior: Priors | None, loss: Loss, columns: int, terms: Sequence[Term], joint: bool = False
) -> Settled:
    """The prior of every coordinate of x: coefficients, then parameters that all rows share, then those of terms."""
    if shared_prior is not None and not loss.shared:
        raise requirement("shared_prior", f"None for {loss}", repr(shared_prior), "its rows share no parameter")
    shared = _usual_shared_prior(loss) if shared_prior is None else shared_prior
    single = (
        settle(prior, columns, joint=joint).repeated(loss.blocks).followed(settle(shared, loss.shared, positive=True))
    )
    if (coupled := require_terms(terms, len(single.mean))) is None:
        return single
    return single.followed(settle(Flat(), coupled.parameters))._replace(terms=coupled)


def _glm_of_partitions(
    data: Partitions,
    loss: Loss,
    noise_variance: float | None,
    separate_arguments: Mapping[str, object],
    prior: Priors,
    shared_prior: Priors | None,
    terms: Sequence[Term],
) -> GeneralisedLinear:
    """Labels, offsets and weights are columns of the partitions, so that none is given here."""
    for name, value in separate_arguments.items():
        if value is not None:
            why = "the partitions have a column for it: say which when you open them, as in target='y'"
            raise requirement(name, "None where X is in partitions", f"{type(value).__name__}", why)
    coding, classes = make_coding(data, loss if noise_variance is None else loss.with_noise(noise_variance))
    settled = _settled_prior(prior, shared_prior, coding.loss, len(data.reader.names), terms)
    target = GeneralisedLinear(
        PartitionRows(data, coding), np.zeros(0), coding.loss, settled.precision, settled.mean, heavy=settled.heavy,
        terms=settled.terms,
    )  # fmt: skip
    target.classes = classes
    return target


def logistic(
    X: npt.ArrayLike | CsrMatrix | Partitions,
    y: npt.ArrayLike | None = None,
    prior_precision: float | npt.ArrayLike = 1.0,
    prior_mean: float | npt.ArrayLike = 0.0,
) -> Any:
    """Bayesian logistic regression: p(y = 1 | a, x) = 1/(1 + e^{−aᵀx}), x ~ N(prior_mean, 1/prior_precision).

    X: an array (n, columns), dense or scipy CSR, float32 or float64. No intercept is added.
    y: n labels, in {0, 1} or in {−1, 1}.
    prior_precision, prior_mean: one number, or one for each column; a precision of 0 is a flat prior.

    This is `glm` with the family "bernoulli".

    >>> target = logistic([[1.0, 0.5], [1.0, -2.0], [1.0, 1.5]], [1, 0, 1])
    >>> target.n, target.dim
    (3, 2)
    >>> target.mode().round(3)
    array([0.3  , 0.833])
    """
    return glm(X, y, "bernoulli", prior_precision=prior_precision, prior_mean=prior_mean)


def linear(
    X: npt.ArrayLike | CsrMatrix | Partitions,
    y: npt.ArrayLike | None = None,
    noise_variance: float = 1.0,
    prior_precision: float | npt.ArrayLike = 1.0,
    prior_mean: float | npt.ArrayLike = 0.0,
) -> Any:
    """Bayesian linear regression with known noise: y ~ N(aᵀx, noise_variance), x ~ N(prior_mean, 1/prior_precision).

    The posterior is Gaussian; `closed_form` has its mean and covariance. This is `glm` with the family
    "gaussian" and this noise_variance.

    >>> target = linear([[1.0], [2.0]], [1.0, 3.0])
    >>> target.closed_form.mean.round(6), target.closed_form.covariance.round(6)
    (array([1.166667]), array([[0.166667]]))
    """
    positive("noise_variance", noise_variance)
    return glm(X, y, "gaussian", noise_variance=noise_variance, prior_precision=prior_precision, prior_mean=prior_mean)


def conjugate(
    X: npt.ArrayLike | CsrMatrix,
    y: npt.ArrayLike,
    prior_precision: float | npt.ArrayLike = 1.0,
    prior_mean: float | npt.ArrayLike = 0.0,
    shape: float = 0.5,
    rate: float = 0.5,
    *,
    offset: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
) -> GeneralisedLinear:
    """Linear regression with unknown noise under its conjugate prior: x | σ ~ N(prior_mean, σ²/prior_precision) and
    σ² ~ inverse gamma(shape, rate); x has log σ last.

    Each coefficient has a Student-t distribution with 2·shape + n degrees of freedom; `exact_law` has the posterior.
    This prior acts like additional rows under a flat prior: one of length √prior_precision for each column, and one of
    zeros with weight 2·shape. The target contains these rows. (The family "gaussian" of `glm` has independent priors
    instead; its posterior is known exactly too.)

    >>> target = conjugate([[1.0], [2.0]], [1.0, 3.0])
    >>> target.exact_law.mean.round(4)
    array([1.1667, 0.1559])
    """
    rows = make_rows(X)
    precision, mean = (per_column(name, value, rows.dim) for name, value in (
        ("prior_precision", prior_precision), ("prior_mean", prior_mean)))  # fmt: skip
    positive("shape", shape)
    positive("rate", rate)
    if precision.min() <= 0:
        raise requirement("prior_precision", "positive for every column", f"{precision.min():g}")
    label = np.asarray(real_array("y", y, (rows.n,)), np.float64)
    shift = np.zeros(rows.n) if offset is None else _offset(offset, rows.n)
    count = np.ones(rows.n) if weights is None else row_weights(weights, None, rows.n)
    assert count is not None
    root = np.sqrt(precision)
    with np.errstate(over="ignore"):
        prior_labels = np.append(root * mean, np.sqrt(rate / shape))
    if not np.isfinite(prior_labels).all():
        why = "√prior_precision·prior_mean and rate/shape stand beside the labels"
        raise requirement("the prior", "made of numbers whose products float64 holds", "larger ones", why)
    target: GeneralisedLinear = glm(
        _with_prior_rows(X, root),
        np.concatenate([label - shift, prior_labels]),
        gaussian(),
        weights=np.concatenate([count, np.ones(rows.dim), [2 * shape]]),
        prior=Flat(),
        shared_prior=Flat(),
    )
    return target


def _with_prior_rows(X: npt.ArrayLike | CsrMatrix, root: Array) -> Matrix:
    """The rows, then a row for each column with this entry in it, then a row of zeros."""
    if hasattr(X, "format"):  # SciPy's
        from scipy.sparse import csr_matrix, diags, vstack

        stacked: CsrMatrix = csr_matrix(vstack([X, diags(root), csr_matrix((1, len(root)))]))
        return stacked
    dense, single = np.asarray(X), np.finfo(np.float32)
    fits_float32 = dense.dtype == np.float32 and single.tiny <= root.min() and root.max() <= single.max
    kind = np.float32 if fits_float32 else np.float64
    return np.concatenate([dense, np.diag(root), np.zeros((1, len(root)))]).astype(kind, copy=False)


def _offset(offset: npt.ArrayLike, n: int) -> Array:
    """One finite number for each row."""
    values = np.asarray(offset)
    if values.dtype.kind == "f" and np.isneginf(values).any():
        row = int(np.argmax(np.isneginf(values).ravel()))
        why = "the log of an exposure of 0; leave such rows out, as they say nothing"
        raise requirement("offset", "finite everywhere", f"-inf at row {row}", why)
    return np.asarray(real_array("offset", offset, (n,)), np.float64)


def row_weights(weights: npt.ArrayLike | None, counts: Array | None, n: int) -> Array | None:
    """How often each row counts: its weight times the observations that its label stands for; None where that is 1."""
    if counts is not None and not counts.any():
        raise requirement("trials", "above 0 for some row", "0 for all of them", "such rows say nothing")
    if weights is None:
        return counts
    checked = checked_weights(weights, n)
    product = checked if counts is None else checked * counts
    if not product.any():
        raise requirement("weights", "above 0 for some row that has trials", "0 for all of those")
    return product


def checked_weights(weights: npt.ArrayLike, n: int) -> Array:
    """Numbers not below 0, and above it for some row."""
    values = np.asarray(real_array("weights", weights, (n,)), np.float64)
    if (values < 0).any():
        row = int(np.argmax(values < 0))
        why = "a row of weight w counts as w rows; leave out what shall not count, or give it 0"
        raise requirement("weights", "numbers not below 0", f"{values[row]:g} at row {row}", why)
    if ((values > 0) & (values < _LEAST)).any():
        row = int(np.argmax((values > 0) & (values < _LEAST)))
        why = "what such a row says is lost in rounding; give it 0"
        raise requirement("weights", f"0, or at least {_LEAST:g}", f"{values[row]:g} at row {row}", why)
    if not values.any():
        raise requirement(
            "weights", "above 0 for some row", "0 for all of them", "without weights each row counts once"
        )
    return values
