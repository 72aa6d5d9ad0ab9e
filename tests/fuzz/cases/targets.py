"""Targets: doors, potentials, gradients, Hessians, modes, closed forms."""

import dataclasses

import numpy as np
from hypothesis import strategies as st

import svrhmc
from svrhmc import targets
from svrhmc.targets import families, priors

from .. import inputs, oracles
from ..judge import RefusedError, agree, ask, holds, refuses
from ..registry import case

FAMILIES = (
    "bernoulli",
    "probit",
    "binomial",
    "poisson",
    "linear",
    "gaussian",
    "student-t",
    "negative-binomial",
    "gamma",
    "categorical",
)
SHARED = {"gaussian": (0.04, 0.0), "student-t": (0.04, 0.0), "negative-binomial": (0.25, 0.0), "gamma": (0.25, 0.0)}

LEAST = float(np.finfo(np.float64).smallest_subnormal)


def labels(family):
    """Of one row, as the family takes them."""
    return {
        "bernoulli": st.integers(0, 1), "probit": st.integers(0, 1), "binomial": st.integers(0, 3),
        "poisson": st.integers(0, 30), "negative-binomial": st.integers(0, 30), "categorical": st.integers(0, 2),
        "gamma": inputs.tame_positive,
    }.get(family, inputs.plain)  # fmt: skip


PRIOR = st.one_of(
    st.tuples(st.just("normal"), inputs.tame_positive, inputs.plain),
    st.tuples(
        st.just("normal"),
        st.sampled_from([0.0, 1e-12, 1e-3, 1e6, 1e-300, 1e300]),
        st.sampled_from([0.0, 1.0, -1e9, 1e50]),
    ),
    st.tuples(st.just("student"), inputs.tame_positive, inputs.tame_positive, inputs.plain),
    st.tuples(st.just("laplace"), inputs.tame_positive, inputs.plain, st.sampled_from([0.1, 1e-3, 1.0])),
    st.just(("flat",)),
)


@st.composite
def models(draw, odd=True):
    """A family with rows, labels and a prior."""
    family = draw(st.sampled_from(FAMILIES))
    X = draw(inputs.tables(odd=odd, least=0 if odd else 1))
    y = tuple(draw(labels(family)) for _ in range(X.shape[0]))
    if odd and draw(st.integers(0, 8)) == 0:
        y = tuple(draw(st.one_of(inputs.anything, st.sampled_from(["a", "b", "c", 2, 3.5, -1]))) for _ in y)
    maybe = st.booleans() if odd else st.just(False)
    offset = tuple(draw(inputs.plain) for _ in y) if draw(maybe) else None
    weights = tuple(draw(st.sampled_from([0.0, 1.0, 2.5, 1e-9, 1e9])) for _ in y) if draw(maybe) else None
    prior = draw(PRIOR) if odd else ("normal", draw(inputs.tame_positive), draw(inputs.plain))
    x = tuple(draw(inputs.plain if not odd else inputs.mostly_plain) for _ in range(8))
    return family, X, y, offset, weights, prior, x


def made_prior(prior):
    kinds = {"normal": priors.Normal, "student": priors.StudentT, "laplace": priors.Laplace, "flat": priors.Flat}
    return ask(kinds[prior[0]], **by_field(kinds[prior[0]], prior[1:]))


def by_field(kind, values):
    """The values by the names of the first fields of a dataclass."""
    return dict(zip((field.name for field in dataclasses.fields(kind)), values, strict=False))


def build(given, tame=False):
    family, X, y, offset, weights, prior, _ = given
    named = {"probit": lambda: families.bernoulli("probit"), "linear": lambda: "gaussian"}.get(family, lambda: family)()
    more = {"trials": 3} if family == "binomial" else {"noise_variance": 0.5} if family == "linear" else {}
    return ask(
        targets.glm,
        X.make(),
        list(y),
        named,
        offset=offset,
        weights=weights,
        prior=made_prior(prior),
        tame=tame,
        **more,
    )


def oracle(given, target):
    family, X, y, offset, weights, prior, _ = given
    dense, n = X.dense, X.shape[0]
    known = np.unique(np.asarray(list(y)))
    blocks = len(known) - 1 if family == "categorical" else 1
    if family == "categorical":
        coded = np.searchsorted(known, np.asarray(list(y))).tolist()
    elif family in ("bernoulli", "probit"):
        coded = (
            (np.asarray(list(y)) == known[-1]).astype(int).tolist()
            if known.dtype.kind == "U"
            else [float(each) > 0 for each in y]
        )
    else:
        coded = [float(each) for each in y]
    shared = ("normal", *SHARED[family]) if family in SHARED else None
    extra = {"binomial": 3, "linear": 0.5}.get(family)
    zero = np.zeros(n) if offset is None else np.array(offset)
    one = np.ones(n) if weights is None else np.array(weights)
    each = [prior] * (X.shape[1] * blocks) + ([shared] if shared else [])
    holds(target.dim == len(each), f"dim is {target.dim}, not {len(each)}")
    return oracles.Model(family, dense, coded, [extra] * n, zero, one, each, blocks, 1 if shared else 0)


def is_plain(values, most=1e8):
    try:
        values = np.abs(np.asarray(values, float))
    except (TypeError, ValueError):  # a text, or nothing
        return False
    return bool(np.isfinite(values).all() and (values <= most).all())


@case(models(), "svrhmc.targets.glm", "svrhmc.targets.GeneralisedLinear.*", "svrhmc.targets.FiniteSum.*",
      "svrhmc.targets.families.*", "svrhmc.targets.priors.*", cost=0.03)  # fmt: skip
def derivatives(given):
    """f, ∇f and ∇²f against fifty digits; components against their mean."""
    target = build(given)
    x = np.array(given[-1][: target.dim]) if target.dim <= 8 else np.zeros(target.dim)
    where = np.zeros(target.dim)
    ask(repr, target)
    one, other = (ask(target.potential, at) for at in (x, where))
    gradient, H = ask(target.gradient, x), ask(target.hessian, x)
    rows = np.arange(target.n)
    each = ask(target.component_gradients, x, rows)
    direction = np.cos(np.arange(target.dim))
    product = ask(target.hessian_product, x, direction)
    ask(target.identity)
    dense = given[1].dense
    if not (
        is_plain(dense, 1e6)
        and is_plain(x, 1e3)
        and is_plain(np.abs(dense) @ np.ones(dense.shape[1]) * np.abs(x).max(), 300)
    ):
        return
    if given[5][0] == "normal" and not is_plain(given[5][1:], 1e12):
        return
    model = oracle(given, target)
    f, g, hessian, af, ag, aH = model.all(x)
    f0, *_, af0, _, _ = model.all(where)
    if not max(af, af0, ag.max(), aH.max()) < 1e100:
        return
    digits = given[1].digits
    if given[5][0] == "student":  # two terms that cancel where its curvature changes sign
        df, scale = given[5][1:3]
        aH = aH + np.eye(target.dim) * (df + 1) / (df * scale**2)
    aH = aH + 1e-290  # below which there are no digits
    agree("f(x) - f(0)", one - other, f - f0, digits * (af + af0))
    agree("the gradient", gradient, g, digits * ag)
    agree("the Hessian", H, hessian, digits * aH)
    agree("the mean of component gradients", each.mean(axis=0), g, digits * ag * target.n)
    agree("a product with the Hessian", product, hessian @ direction, digits * aH.sum(axis=1))


@case(models(), "svrhmc.targets.GeneralisedLinear.mode", cost=0.05)
def modes(given):
    """At a mode the gradient is nought, by the step that Newton's method would still make, in sd; f is not below it nearby."""
    target = build(given)
    x = ask(target.mode)
    again = ask(target.mode)
    holds((x == again).all(), "the mode is another one the second time")
    g, H = ask(target.gradient, x), ask(target.hessian, x)
    spectrum = np.linalg.eigvalsh(H)
    if not np.isfinite(spectrum).all() or spectrum[0] <= 1e-10 * abs(spectrum[-1]):
        return
    step = np.linalg.solve(H, g)
    left = float(np.sqrt(max(g @ step, 0.0)))
    away = np.sqrt(np.diag(np.linalg.inv(H))) + 1e-9 * np.abs(x)
    holds(left < 1e-2 or (np.abs(step) <= 1e-3 * away).all(), f"{left} sd from the mode at {x}")


@st.composite
def regressions(draw):
    X = draw(inputs.tables())
    y = draw(inputs.numbers(X.shape[0], inputs.mostly_plain))
    noise = draw(inputs.setting)
    precision, mean = (
        draw(inputs.often(inputs.tame_positive, inputs.anything)),
        draw(inputs.often(inputs.plain, inputs.anything)),
    )
    if draw(st.booleans()):
        precision = draw(inputs.numbers(X.shape[1], inputs.tame_positive))
    return X, y, noise, precision, mean


@case(regressions(), "svrhmc.targets.linear", "svrhmc.targets.Moments", "svrhmc.targets.conjugate", cost=0.02)
def linear(given):
    """The posterior of a conjugate regression, against a solution in fifty digits."""
    X, y, noise, precision, mean = given
    tame = X.sound and is_plain(X.dense, 1e3) and is_plain(y, 1e3) and all(
        isinstance(each, float) and 1e-3 <= abs(each) <= 1e3 for each in np.ravel(np.array([noise, mean], object))) and is_plain(precision)  # fmt: skip
    tame = tame and noise > 0 and np.all(np.asarray(precision) > 1e-3)
    target = ask(targets.linear, X.make(), y, noise, precision, mean, tame=tame)
    found = ask(lambda: target.closed_form, tame=tame)
    constants = [
        ask(lambda name=name: getattr(target, name))
        for name in ("smoothness", "convexity", "component_smoothness", "condition_number")
    ]
    holds(constants[0] >= constants[1] * (1 - 1e-6) >= 0, f"smoothness {constants[0]} below convexity {constants[1]}")
    ask(target.curvature_range, True)
    mode = ask(target.mode)
    fourth = (
        ask(found.fourth_about, np.zeros(target.dim))
        if is_plain(found.mean, 1e50) and is_plain(found.covariance, 1e50)
        else 0
    )
    holds(fourth >= 0, "a fourth moment below 0")
    dense = X.dense
    wild = [np.abs(np.asarray(each, float)).max() for each in (dense, y, noise, precision, mean)]
    if max(wild) > 1e50 or noise < 1e-50:
        return
    p, m = (
        np.broadcast_to(np.asarray(precision, float), target.dim),
        np.broadcast_to(np.asarray(mean, float), target.dim),
    )
    exact, covariance, condition = oracles.linear_posterior(dense, np.array(y, float), noise, p, m)
    scale = np.sqrt(np.diag(covariance))
    blur = 1e-13 * (condition + 1) * (1e6 if X.dtype in ("float32", "float16") else 1)
    if blur > 1e-2:
        return
    pulls = np.abs(covariance) @ (np.abs(dense.T) @ np.abs(np.array(y, float)) / noise + p * np.abs(m))
    agree("the posterior's covariance", found.covariance, covariance, blur * np.outer(scale, scale) * 10)
    agree("the posterior's mean", found.mean, exact, 10 * blur * (pulls + np.abs(exact).max() + scale))
    agree("the mode", mode, exact, 10 * blur * (pulls + np.abs(exact).max() + scale))


@case(
    regressions().flatmap(lambda g: st.tuples(st.just(g), inputs.setting, inputs.setting)),
    "svrhmc.targets.conjugate",
    cost=0.05,
)
def conjugate(given):
    """x has a Student-t law with the mean of the conjugate regression, whatever the noise."""
    (X, y, _, precision, mean), shape, rate = given
    target = ask(targets.conjugate, X.make(), y, precision, mean, shape, rate)
    law = ask(lambda: target.exact_law)
    dense = X.dense
    wild = [
        np.abs(np.asarray(each, float)).max()
        for each in (dense, y, precision, mean, shape, rate, 1 / np.asarray(precision, float))
    ]
    if max(wild) > 1e6:
        return
    p, m = (
        np.broadcast_to(np.asarray(precision, float), X.shape[1]),
        np.broadcast_to(np.asarray(mean, float), X.shape[1]),
    )
    exact, covariance, condition = oracles.linear_posterior(dense, np.array(y, float), 1.0, p, m)
    if condition > 1e8:
        return
    blur = 1e-3 if X.dtype in ("float32", "float16") else 1e-7
    agree(
        "the mean",
        law.mean[:-1],
        exact,
        blur
        * (1 + np.abs(exact).max() + np.sqrt(np.diag(covariance)) * np.abs(np.array(y, float)).max() * X.shape[0])
        * (1 + condition / 1e4),
    )


@st.composite
def quadratics(draw, tame=False):
    n, dim = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    each = inputs.plain if tame else inputs.mostly_plain
    centers = tuple(draw(inputs.numbers(dim, each)) for _ in range(n))
    if draw(st.booleans()):
        return centers, draw(inputs.symmetric(dim, tame))
    return centers, tuple(draw(inputs.symmetric(dim, tame)) for _ in range(n))


@case(quadratics(), "svrhmc.targets.gaussian", "svrhmc.targets.Gaussian.*", cost=0.01)
def gaussian(given):
    """N(x*, S̄⁻¹) in fifty digits; potential and gradient by their definition."""
    centers, precision = given
    a, S = np.array(centers), np.array(precision)
    target = ask(targets.gaussian, centers, precision)
    found = ask(lambda: target.closed_form)
    x = np.cos(np.arange(target.dim))
    f, g = ask(target.potential, x), ask(target.gradient, x)
    each = ask(target.component_gradients, x, np.arange(target.n))
    for name in ("smoothness", "convexity", "component_smoothness", "condition_number", "convex_components"):
        ask(lambda name=name: getattr(target, name))
    ask(target.mode)
    if S.ndim == 2:
        S = np.broadcast_to(S, (len(a), *S.shape))
    if max(np.abs(a).max(), np.abs(S).max()) > 1e60:
        return
    mean = S.mean(axis=0)
    exact, covariance, condition = oracles.gaussian_posterior(mean.tolist(), np.einsum("nde,ne->d", S, a).tolist())
    exact = exact / len(a)
    if condition > 1e12:
        return
    pull = np.abs(covariance) @ np.einsum("nde,ne->nd", np.abs(S), np.abs(a)).mean(axis=0)
    lost = np.abs(covariance).sum(axis=1) * LEAST  # of forces that are too small for float64
    agree("the mean", found.mean, exact, 1e-13 * (1 + condition) * (pull + np.abs(exact).max()) + 10 * lost)
    agree("the covariance", found.covariance, covariance, 1e-13 * (1 + condition) * np.abs(covariance).max())
    away = x - a
    size = np.einsum("nde,ne->nd", np.abs(S), np.abs(away) + np.abs(a) + 1)
    agree("component gradients", each, np.einsum("nde,ne->nd", S, away), 1e-11 * size)
    agree("the gradient", g, np.einsum("nde,ne->nd", S, away).mean(axis=0), 1e-11 * size.max(axis=0))
    terms = 0.5 * np.einsum("nd,nde,ne->n", away, S, away)
    largest = 0.5 * np.einsum("nd,nde,ne->n", np.abs(away) + np.abs(a), np.abs(S), np.abs(away) + np.abs(a))
    agree("the potential", f, terms.mean(), 1e-11 * (1 + condition * 1e-2) * largest.max())


@case(st.tuples(inputs.count, st.one_of(st.integers(1, 4), inputs.count), inputs.seeds, st.tuples(inputs.setting, inputs.setting), st.one_of(st.just(0.0), inputs.anything)),
      "svrhmc.targets.synthetic", cost=0.01)  # fmt: skip
def synthetic(given):
    """The spectrum is as asked for."""
    n, dim, seed, eigenvalues, spread = given
    if isinstance(n, int) and isinstance(dim, int) and n * dim > 10**6:
        return  # a large array is a large array
    target = ask(targets.synthetic, n, dim, seed, eigenvalues, spread)
    low, high = sorted(eigenvalues)
    agree("smoothness", target.smoothness, high if dim > 1 else eigenvalues[0], 1e-9 * high + 1e-290)
    agree("convexity", target.convexity, low if dim > 1 else eigenvalues[0], 1e-9 * high + 1e-290)


@case(st.tuples(inputs.whole, st.integers(1, 3), st.sampled_from(["quadratic", "nan", "shape", "complex", "inf", "raise", "text", "list", "view", "none"]),
                st.tuples(*[st.one_of(st.none(), inputs.setting)] * 3), inputs.numbers(3, inputs.finite), st.booleans()),
      "svrhmc.targets.custom", "svrhmc.targets.Custom.*", cost=0.01)  # fmt: skip
def custom(given):
    """A user's function, right or wrong: ∇fᵢ = x − aᵢ."""
    n, dim, kind, constants, x, known = given
    x = np.array(x[:dim])
    if n > 10**6:
        n = 10**6
    a = np.cos(np.arange(max(n, 0) * dim)).reshape(-1, dim)
    buffer = np.zeros((10**4, dim))

    def gradients(at, rows):
        right = at - a[rows]
        if kind == "nan":
            return right * np.nan
        if kind == "inf":
            return right + np.inf
        if kind == "shape":
            return right[:, :1].T
        if kind == "complex":
            return right + 1j
        if kind == "text":
            return "no"
        if kind == "none":
            return None
        if kind == "list":
            return right.tolist()
        if kind == "view" and len(right) <= len(buffer):
            buffer[: len(right)] = right
            return buffer[: len(right)]
        if kind == "raise":
            raise KeyError("the user's own")
        return right

    def potential(at):
        return 0.5 * float(((at - a) ** 2).sum(axis=1).mean())

    try:
        target = ask(targets.custom, n, dim, gradients, potential if known and is_plain(x) else None, *constants)
    except AssertionError as error:
        if kind == "raise" and "the user's own" in str(error):
            return  # what a user raises is for the user to see
        raise
    g = ask(target.gradient, x)
    each = ask(target.component_gradients, x, np.arange(min(n, 5)))
    agree("the gradient", g, x - a.mean(axis=0), (1e-12 + 2e-16 * n) * (np.abs(x) + 1))  # a sum of n
    agree("component gradients", each, x - a[:5], 1e-12 * (np.abs(x) + 1))
    mode = ask(target.mode)
    agree("the mode", mode, a.mean(axis=0), 1e-4)


@case(st.tuples(models(odd=False), st.one_of(st.none(), inputs.setting), st.one_of(st.none(), inputs.setting),
                st.one_of(st.none(), st.just("laplace"), inputs.setting), st.one_of(st.none(), st.just("mode"), inputs.words, inputs.numbers(3))),
      "svrhmc.targets.FiniteSum.regularised", "svrhmc.targets.FiniteSum.laplace", cost=0.03)  # fmt: skip
def regularised(given):
    """f + (λ/2)|x − c|² by its own formula."""
    model, strength, accuracy, moment, centre = given
    target = build(model)
    if isinstance(centre, tuple):
        centre = centre[: target.dim] + (0.0,) * (target.dim - 3)
    c = (
        ask(target.mode)
        if centre == "mode"
        else np.zeros(target.dim)
        if centre is None or isinstance(centre, str)
        else np.array(centre)
    )
    other = ask(target.regularised, strength, accuracy=accuracy, fourth_moment=moment, centre=centre)
    x = np.cos(np.arange(target.dim))
    zero = np.zeros(target.dim)
    values = [ask(one.potential, at) for one in (target, other) for at in (x, zero)]
    if strength is None or not is_plain(c, 1e6) or not 1e-6 <= strength <= 1e9:
        return
    more = 0.5 * strength * (((x - c) ** 2).sum() - (c**2).sum())
    size = sum(map(abs, values)) + strength * ((np.abs(x) + np.abs(c) + 1) ** 2).sum()
    agree("what is added", values[2] - values[3] - (values[0] - values[1]), more, model[1].digits * 1e-3 * size)


BAD_DOORS = (
    ([[1.0], [float("nan")]], [0, 1], {}, "X must be finite"),
    ([[1.0], [float("inf")]], [0, 1], {}, "X must be finite"),
    ([[1.0], [2.0]], [0, 2], {}, "y must be"),
    ([[1.0], [2.0]], [0], {}, "y must be"),
    ([[1.0], [2.0]], [0, 1], {"prior_precision": -1.0}, "prior_precision must be"),
    ([[1.0], [2.0]], [0, 1], {"prior_precision": [1.0, 2.0, 3.0]}, "prior_precision must be"),
    ([[1.0], [2.0]], [0, 1], {"prior_mean": float("nan")}, "prior_mean must be"),
    ([1.0, 2.0], [0, 1], {}, "X must be"),
    ([[]], [0], {}, "X must be"),
    ([["a"], ["b"]], [0, 1], {}, "X must be"),
    ([[1.0], [2.0, 3.0]], [0, 1], {}, "X must be"),
)


@case(st.sampled_from(range(len(BAD_DOORS))), "svrhmc.targets.logistic")
def known_errors(k):
    """Inputs whose error is known."""
    X, y, more, words = BAD_DOORS[k]
    refuses(targets.logistic, X, y, match=words, **more)


@case(
    st.tuples(
        inputs.tables(),
        st.integers(0, 255),
        inputs.often(inputs.tame_positive, inputs.anything),
        inputs.often(inputs.plain, inputs.anything),
    ),
    "svrhmc.targets.logistic",
    cost=0.02,
)
def logistic(given):
    """The same as `glm`, and the same for every way to write the rows and labels down."""
    X, bits, precision, mean = given
    y = [bits >> (k % 8) & 1 for k in range(X.shape[0])]
    target = ask(targets.logistic, X.make(), y, precision, mean)
    holds(not X.damage or X.stands, f"a damaged matrix ({X.damage}) was taken")
    signs = ask(
        targets.logistic,
        X.dense if X.dtype != "float32" else X.dense.astype(np.float32),
        [2 * each - 1 for each in y],
        precision,
        mean,
    )
    x = np.cos(np.arange(target.dim))
    here, there = ask(target.potential, x), ask(signs.potential, x)
    agree("f of CSR rows", here, there, X.digits * (abs(there) + 1) if np.isfinite(there) else 0)
    with np.errstate(all="ignore"):
        span = np.abs(X.dense).sum()
    if not np.isfinite(span) or span > 1e3 or not is_plain([precision, mean], 1e6):
        return
    own = (
        np.logaddexp(0, -np.where(np.array(y), 1, -1) * (X.dense @ x)).sum()
        + 0.5 * (np.asarray(precision) * (x - np.asarray(mean)) ** 2).sum()
    )
    agree("f", here, own, X.digits * (abs(own) + span))


@case(
    st.tuples(st.sampled_from(["bernoulli", "gaussian", "student_t", "categorical", "family_of"]), inputs.anything),
    "svrhmc.targets.families.*",
)
def family_settings(given):
    """Settings of families."""
    name, value = given
    made = ask(getattr(families, name), value)
    holds(isinstance(made, svrhmc.targets.losses.Loss), f"{name}({value!r}) is {made!r}")


@case(
    st.tuples(inputs.anything, inputs.anything, inputs.anything, inputs.anything),
    "svrhmc.targets.families.bounded",
)
def bounds_of_labels(given):
    """Odd bounds: labels in order, or one sentence."""
    low, high, lb, ub = np.asarray(ask(families.bounded, *given), float).T
    holds(bool(((low <= high) & (lb < ub)).all()), "bounds in order")


@case(
    st.tuples(
        st.sampled_from(["Normal", "StudentT", "Laplace", "Horseshoe", "R2D2", "SpikeAndSlab", "LearntScale"]),
        st.lists(inputs.anything, max_size=3),
        st.integers(1, 3),
        inputs.setting,
    ),
    "svrhmc.targets.priors.*",
)
def prior_settings(given):
    """Priors with odd numbers, settled for some columns; scaled, they are those of a coordinate times a factor."""
    name, numbers, dim, factor = given
    kind = getattr(priors, name)
    made = ask(kind, **by_field(kind, numbers))
    settled = ask(priors.settle, made, dim, joint=made.joint)
    ask(lambda: made.spread, nan=())
    x = np.cos(np.arange(dim))
    if settled.heavy is not None:
        for method in ("value", "values", "slope", "curvature"):
            ask(getattr(settled.heavy, method), x)
        ask(settled.heavy.bounds, dim)
        ask(settled.heavy.strength, dim)
        ask(settled.heavy.digest)
    if isinstance(factor, float) and 1e-3 <= factor <= 1e3:
        ask(made.scaled, factor)


@case(
    st.tuples(st.sampled_from(["with_sd", "per_column", "settle"]), inputs.anything),
    "svrhmc.targets.priors.*",
)
def prior_doors(given):
    """Helpers of priors."""
    name, one = given
    if name == "with_sd":
        ask(priors.Normal.with_sd, one)
    elif name == "per_column":
        ask(priors.per_column, "prior_mean", one, 3)
    else:
        ask(priors.settle, one, 2)


@case(
    st.tuples(
        models(odd=False),
        inputs.anything,
        st.one_of(st.lists(inputs.whole, max_size=3), st.just([0.5]), st.just([]), st.just("x")),
    ),
    "svrhmc.targets.FiniteSum.component_gradients",
    cost=0.03,
)
def odd_points(given):
    """Points and row numbers that are none."""
    model, x, rows = given
    target = build(model)
    for call, args in (
        (target.gradient, (x,)),
        (target.potential, (x,)),
        (target.component_gradients, (np.zeros(target.dim), rows)),
    ):
        try:
            ask(call, *args)
        except RefusedError:
            continue
