"""Means and deviations of the posteriors of holdout.py by other methods than this library's, with standard errors.

Quadrature, a closed form in long double, NumPyro's NUTS, and importance sampling about the mode with control variates
of known expectation.
"""

import itertools
import time
from collections import Counter
from functools import partial

import numpy as np
import scipy.sparse


class Whitened:
    """The density about its mode, and the scale of x = mode + scale·z by the Hessian there; equal rows are merged."""

    def __init__(self, problem):
        X = problem.X.toarray() if scipy.sparse.issparse(problem.X) else np.asarray(problem.X, dtype=float)
        self.count, self.total = np.ones(len(X)), problem.y.astype(float)
        if np.array_equal(X, np.rint(X)):  # the keys of whole numbers are exact
            key = X @ np.random.default_rng(0).integers(2**31, size=X.shape[1])
            _, first, group = np.unique(key, return_index=True, return_inverse=True)
            self.count, self.total, X = np.bincount(group).astype(float), np.bincount(group, self.total), X[first]
        self.X, self.family, self.precision, self.dim = X, problem.family, problem.prior_precision, X.shape[1]
        self.mode = self.find_mode()
        unit = 1 / np.sqrt(np.diag(self.hessian(self.mode)))  # so that columns of any size can be inverted
        self.covariance = np.linalg.inv(self.hessian(self.mode) * np.outer(unit, unit)) * np.outer(unit, unit)
        self.scale = unit[:, None] * np.linalg.cholesky(self.covariance / np.outer(unit, unit))

    def mean_response(self, predictor):
        """E[y] of a row."""
        return np.exp(predictor) if self.family == "poisson" else 1 / (1 + np.exp(-predictor))

    def hessian(self, x):
        """Of −log density."""
        mean = self.mean_response(self.X @ x)
        weight = self.count * (mean if self.family == "poisson" else mean * (1 - mean))
        return self.X.T @ (weight[:, None] * self.X) + self.precision * np.eye(self.dim)

    def find_mode(self):
        """Newton's method, a step halved until the density grows."""
        x = np.zeros(self.dim)
        for _ in range(100):
            gradient = self.X.T @ (self.count * self.mean_response(self.X @ x) - self.total) + self.precision * x
            hessian = self.hessian(x)
            unit = 1 / np.sqrt(np.diag(hessian))
            step = -unit * np.linalg.solve(hessian * np.outer(unit, unit), unit * gradient)
            if -gradient @ step < 1e-18:
                return x
            while -gradient @ step > 1e-12 and self.log_density((x + step)[None])[0] < self.log_density(x[None])[0]:
                step /= 2
            x = x + step
        raise RuntimeError("Newton's method did not end")

    def log_likelihood(self, x, chosen=slice(None)):
        """Of many points, (points, dim) -> (points,), with the rows chosen; in pieces that stay in the cache."""
        X, count, total = self.X[chosen], self.count[chosen], self.total[chosen]
        result = np.empty(len(x))
        for many in (slice(begin, begin + 400) for begin in range(0, len(x), 400)):
            points = np.ascontiguousarray(x[many].T)
            result[many] = (total @ X) @ points
            for rows in (slice(begin, begin + 50) for begin in range(0, len(X), 50)):
                predictor = X[rows] @ points
                if self.family == "poisson":
                    result[many] -= count[rows] @ np.exp(predictor)
                else:
                    result[many] -= count[rows] @ (np.maximum(predictor, 0) + np.log1p(np.exp(-np.abs(predictor))))
        return result

    def log_density(self, x):
        """Of many points, up to a constant."""
        return self.log_likelihood(x) - self.precision * np.square(x).sum(1) / 2


def long_double(problem):
    """Closed form of a linear regression, by Gauss–Jordan elimination in long double."""
    X, y, dim = problem.X.astype(np.longdouble), problem.y.astype(np.longdouble), problem.X.shape[1]
    table = np.hstack([X.T @ X + problem.prior_precision * np.eye(dim), np.eye(dim)])
    for pivot in range(dim):
        table[pivot] /= table[pivot, pivot]
        others = np.arange(dim) != pivot
        table[others] -= table[others, pivot][:, None] * table[pivot]
    mean, sd = table[:, dim:] @ (X.T @ y), np.sqrt(np.diag(table[:, dim:]))
    return mean, sd, 0 * sd, 0 * sd, "closed form in long double"


def quadrature(problem):
    """The trapezoid rule in one dimension; the error is the difference from the rule with half of the points."""
    white = Whitened(problem)
    at = lambda z: white.log_density(white.mode + np.reshape(z, (-1, 1)) * white.scale)  # noqa: E731
    top, ends = at([0.0])[0], [-1.0, 1.0]
    for side in (0, 1):
        while at(ends[side : side + 1])[0] > top - 45:
            ends[side] *= 1.25
    z = np.linspace(*ends, 401 if len(white.X) > 10_000 else 20_001)
    density = np.exp(at(z) - top)

    def moments(z, density):
        mean = (z @ density) / density.sum()
        return mean, np.sqrt(np.square(z - mean) @ density / density.sum())

    (mean, sd), (coarse_mean, coarse_sd) = moments(z, density), moments(z[::2], density[::2])
    unit = white.scale[0]
    errors = unit * abs(mean - coarse_mean), unit * abs(sd - coarse_sd)
    return white.mode + unit * mean, unit * sd, *errors, f"trapezoid rule, {len(z)} points"


def nuts(problem, draws=15_000, chains=8):
    """NumPyro's NUTS in whitened variables; errors by batch means."""
    import jax
    import numpyro

    jax.config.update("jax_enable_x64", True)
    white = Whitened(problem)
    offset, rows, start = (jax.numpy.asarray(a) for a in (white.X @ white.mode, white.X @ white.scale, white.mode))

    def potential(z):
        predictor, x = offset + rows @ z, start + white.scale @ z
        loss = white.count @ jax.nn.softplus(predictor) - white.total @ predictor
        return loss + white.precision * (x @ x) / 2

    kernel = numpyro.infer.NUTS(potential_fn=potential, dense_mass=True, adapt_mass_matrix=white.dim <= 20)
    run = numpyro.infer.MCMC(kernel, num_warmup=2_000, num_samples=draws, num_chains=chains, progress_bar=False,
                             chain_method="vectorized")  # fmt: skip
    begin = 0.5 * np.random.default_rng(1).standard_normal((chains, white.dim))
    run.run(jax.random.PRNGKey(2026), init_params=jax.numpy.asarray(begin))
    x = np.asarray(run.get_samples(group_by_chain=True)) @ white.scale.T
    mean, batches = x.mean((0, 1)), 50 * chains
    sd = x.std((0, 1))

    def error(values):
        return values.reshape(batches, -1, white.dim).mean(1).std(0, ddof=1) / np.sqrt(batches)

    errors = error(x), error(np.square(x - mean)) / (2 * sd)
    return white.mode + mean, sd, *errors, f"NUTS, {chains} chains of {draws} draws"


def proposals(rng, draws, root, freedom):
    """Points u = root·z with z from Student's t, log densities of z, and functions of expectation 0.

    These are normal/t times products of Hermite polynomials of z; of each u alone where the columns are many.
    """
    from scipy.special import gammaln

    dim = len(root)
    z = rng.standard_normal((draws, dim)) / np.sqrt(rng.chisquare(freedom, (draws, 1)) / freedom)
    norm = gammaln((freedom + dim) / 2) - gammaln(freedom / 2) - dim / 2 * np.log(freedom * np.pi)
    square = np.square(z).sum(1)
    log_q = norm - (freedom + dim) / 2 * np.log1p(square / freedom)
    ratio = np.exp(-square / 2 - dim / 2 * np.log(2 * np.pi) - log_q)
    u = z @ root.T
    if dim > 50:
        return u, log_q, np.column_stack([ratio - 1, *(ratio[:, None] * part for part in (u, u**2 - 1, u**3 - 3 * u))])
    hermite = [np.ones_like(z), z, z**2 - 1, z**3 - 3 * z, z**4 - 6 * z**2 + 3]
    degree = 4 if dim <= 4 else 3 if dim <= 12 else 2
    controls = [ratio - 1]
    for total in range(1, degree + 1):
        for chosen in itertools.combinations_with_replacement(range(dim), total):
            parts = [hermite[power][:, k] for k, power in Counter(chosen).items()]
            controls.append(ratio * np.prod(parts, axis=0))
    return u, log_q, np.stack(controls, 1)


def ratio_moments(log_weight, first, second, controls):
    """Self-normalised mean and deviation from weighted E[u | draw] and E[u² | draw], regressed on the controls."""
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.mean()
    values = np.hstack([weight[:, None], weight[:, None] * first, weight[:, None] * second])
    design = np.hstack([np.ones((len(weight), 1)), controls / controls.std(0)])
    fit = np.linalg.lstsq(design, values, rcond=None)[0]
    dim, rest = first.shape[1], values - design @ fit
    mass, mean, square = fit[0, 0], fit[0, 1 : 1 + dim] / fit[0, 0], fit[0, 1 + dim :] / fit[0, 0]
    sd, unit = np.sqrt(square - mean**2), mass * np.sqrt(len(weight) - design.shape[1])
    of_mean, of_square = rest[:, 1 : 1 + dim] - mean * rest[:, :1], rest[:, 1 + dim :] - square * rest[:, :1]
    errors = of_mean.std(0) / unit, (of_square - 2 * mean * of_mean).std(0) / (2 * sd) / unit
    share = 1 / np.square(weight).mean()
    return (
        mean,
        sd,
        *errors,
        f"importance sampling, {len(weight)} draws, effective {share:.0%}, {len(fit) - 1} controls",
    )


def importance(problem, draws, freedom=8, rare=False):
    """Draws from Student's t at the mode. rare: the last column is 0 but in few rows; it is integrated on a grid."""
    white = Whitened(problem)
    dim = white.dim - rare
    unit = np.sqrt(np.diag(white.covariance))
    root = np.linalg.cholesky(white.covariance[:dim, :dim] / np.outer(unit[:dim], unit[:dim]))
    shift, log_q, controls = proposals(np.random.default_rng(2026), draws, root, freedom)
    x = white.mode[:dim] + shift * unit[:dim]
    if not rare:
        moments = ratio_moments(white.log_density(x) - log_q, shift, shift**2, controls)
    else:
        few = white.X[:, -1] != 0
        log_weight = white.log_likelihood(np.column_stack([x, np.zeros(draws)]), ~few)
        log_weight -= white.precision * np.square(x).sum(1) / 2 + log_q
        grid, predictor = np.linspace(-9, 16, 1_001), x @ white.X[few, :dim].T
        values = white.mode[-1] + unit[-1] * grid
        inner = np.tile(-white.precision * values**2 / 2, (draws, 1))
        for k, total in enumerate(white.total[few]):  # the column is 1 in these rows
            each = predictor[:, [k]] + values
            inner += total * each - np.logaddexp(0, each)
        top = inner.max(1, keepdims=True)
        density = np.exp(inner - top)
        mass = density.sum(1)
        log_weight += np.log(mass) + top[:, 0]
        first, second = (np.column_stack([shift**k, density @ grid**k / mass]) for k in (1, 2))
        moments = ratio_moments(log_weight, first, second, controls)
    mean, sd, mean_error, sd_error, how = moments
    return white.mode + unit * mean, unit * sd, unit * mean_error, unit * sd_error, how


HOW = {
    **dict.fromkeys(("one_column", "intercept_only", "skewed"), quadrature),
    "linear_known": long_double,
    "rare_column": partial(importance, draws=6_000, rare=True),
    "rare_dummy": partial(importance, draws=10_000, rare=True),
    "five_events": partial(importance, draws=30_000),
    "imbalanced": partial(importance, draws=12_000, freedom=30),
    **dict.fromkeys(("heavy_tails", "sorted_rows", "poisson"), partial(importance, draws=20_000)),
    "single_precision": partial(importance, draws=20_000, freedom=20),
    "two_factors": partial(importance, draws=60_000, freedom=400),
    "unscaled": partial(importance, draws=40_000),
    **dict.fromkeys(("iris_flat", "nearly_separable"), partial(nuts, draws=40_000)),
}


def make_references(problems, file):
    """Of each problem, saved at once; problems: name -> function that makes it."""
    from threadpoolctl import threadpool_limits

    kept = dict(np.load(file)) if file.exists() else {}
    for name, make in problems.items():
        problem, begin = make(), time.perf_counter()
        with threadpool_limits(1):
            mean, sd, mean_se, sd_se, how = HOW.get(name, nuts)(problem)
        least = 1e-7 * sd  # rounding, here and there
        found = {"mean": mean, "sd": sd, "mean_se": np.maximum(mean_se, least), "sd_se": np.maximum(sd_se, least)}
        kept |= {f"{name}/{key}": np.asarray(value, dtype=float) for key, value in found.items()}
        kept |= {f"{name}/how": np.array(how), f"{name}/data": problem.print_of_data()}
        np.savez_compressed(file, **kept)
        worst = ", ".join(f"{np.max(found[key] / sd):.1e}" for key in ("mean_se", "sd_se"))
        print(f"{name}: {how}; errors {worst} sd; {time.perf_counter() - begin:.0f} s", flush=True)
