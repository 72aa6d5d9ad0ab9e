"""Posteriors with several modes on purpose: are all of them found, and are verdicts and weights right?

Each model is a mixture of Gaussian laws in plain JAX, whose weights, means and covariances are known:

    π = Σₖ wₖ N(μₖ, sₖ²CₖCₖᵀ),       2 to 4 components, d = 1 to 20, 2 to 40 sd from one to the next,

with unequal weights (0.05 and more), widths (sₖ from ½ to 2) and shapes. `hard` ones are: a spike of a tenth of the
width, components along one coordinate alone, and a component inside another. The distance between two is in standard
deviations along the line between them, the larger of both. Components that are no modes of their own, as they stand on
the shoulder of another, are not counted: modes are counted where the exact density has them.

For each model the table has whether all modes of weight 5% and more were found, the verdict, the largest |z| of the
means, and the weights: the share of draws nearest to each component (by its own density) beside the truth. A row is
WRONG where a verdict of "exact" or "certified" stands beside mass that is missing. The |z| of the weights is that of
`Posterior.modes` beside the mean of the same memberships over exact draws of the mixture; none where the posterior says
that its weights are not known, and one weight where it has one mode.

    python benchmarks/modes.py --models 300 --workers 2
    python benchmarks/modes.py --seeds 17 203          # these models again
"""

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

DIMS = (1, 2, 3, 5, 10, 20)
SHARE, NEAR, LOW = 0.05, 10.0, 5  # the least weight, the distance in sd, and the coordinates of the goal
LIMIT = 4.5
EXACT = 200_000  # draws of the mixture itself


@dataclass(frozen=True)
class Mixture:
    """Weights (k,), means (k, d), roots (k, d, d) with RRᵀ the covariance, and the kind of model."""

    seed: int
    kind: str
    weights: np.ndarray
    means: np.ndarray
    roots: np.ndarray

    @property
    def dim(self):
        """Coordinates."""
        return self.means.shape[1]

    def mean(self):
        """Of the law."""
        return self.weights @ self.means

    def sd(self):
        """Of every coordinate."""
        own = (self.roots**2).sum(axis=2) + (self.means - self.mean()) ** 2
        return np.sqrt(self.weights @ own)

    def log_parts(self, x):
        """log wₖN(x; μₖ, RₖRₖᵀ): (points, k), without (2π)^{−d/2}."""
        found = []
        for w, m, R in zip(self.weights, self.means, self.roots, strict=True):
            z = np.linalg.solve(R, (x - m).T)
            found.append(np.log(w) - 0.5 * (z * z).sum(axis=0) - np.linalg.slogdet(R)[1])
        return np.stack(found, axis=1)

    def farthest(self):
        """The largest distance from a component to the one nearest to it, in sd."""
        apart = np.full((len(self.weights),) * 2, np.inf)
        for a in range(len(self.weights)):
            for b in range(len(self.weights)):
                if a != b:
                    way = self.means[b] - self.means[a]
                    unit = way / np.linalg.norm(way)
                    sd = max(np.linalg.norm(unit @ self.roots[k]) for k in (a, b))
                    apart[a, b] = np.linalg.norm(way) / sd
        return float(apart.min(axis=1).max())

    def modes(self):
        """The modes near the components, by climbing the exact density from each: (count, d), and the component."""
        found, which = [], []
        for k in range(len(self.weights)):
            x = self.means[k].copy()
            for _ in range(500):  # mean shift: each step is to the precision-weighted mean of the components
                log = self.log_parts(x[None])[0]
                p = np.exp(log - log.max())
                precisions = [np.linalg.inv(R @ R.T) * share for R, share in zip(self.roots, p, strict=True)]
                pull = sum(P @ m for P, m in zip(precisions, self.means, strict=True))
                new = np.linalg.solve(sum(precisions), pull)
                moved, x = np.abs(new - x).max(), new
                if moved < 1e-12:
                    break
            if np.argmax(self.log_parts(x[None])[0]) == k:
                found.append(x)
                which.append(k)
        return np.array(found), which

    def target(self):
        """In plain JAX, under a flat prior."""
        import jax.numpy as jnp
        from jax.scipy.special import logsumexp

        from svrhmc import targets

        inverses = np.linalg.inv(self.roots)
        logs = np.log(self.weights) - np.linalg.slogdet(self.roots)[1]
        means = self.means

        def log_likelihood(x, row):
            z = jnp.einsum("kde,ke->kd", inverses, x - means)
            return logsumexp(logs - 0.5 * (z * z).sum(axis=1)) + 0.0 * row

        start = np.random.default_rng(self.seed).normal(size=self.dim)
        return targets.model(log_likelihood, lambda x: 0.0, np.zeros(1), start + self.means[0])


def mixture(seed):
    """A model by its seed."""
    rng = np.random.default_rng(seed)
    d, k = int(DIMS[seed % len(DIMS)]), int(rng.integers(2, 5))
    kind = ("plain", "plain", "plain", "spike", "line", "inside")[int(rng.integers(6))]
    k = 2 if kind == "inside" else k
    weights = 0.05 + (1 - 0.05 * k) * rng.dirichlet(np.full(k, 1.5))
    widths = np.exp(rng.uniform(np.log(0.5), np.log(2.0), k))
    roots = np.zeros((k, d, d))
    for c in range(k):
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        roots[c] = widths[c] * turn * np.exp(rng.uniform(-0.35, 0.35, d))
    if kind == "spike":
        roots[-1] *= 0.1 / widths[-1]
    means = np.zeros((k, d))
    for c in range(1, k):
        way = rng.normal(size=d)
        if kind == "line":
            way = np.eye(d)[int(rng.integers(d))] * rng.choice([-1.0, 1.0])
        way /= np.linalg.norm(way)
        sd = max(np.linalg.norm(way @ roots[j]) for j in (c - 1, c))
        apart = np.exp(rng.uniform(np.log(2.0), np.log(40.0)))
        means[c] = means[c - 1] + (1.5 if kind == "inside" else apart) * sd * way
    if kind == "inside":
        roots[1] *= 0.2
    scale = np.exp(rng.normal(size=d))  # units of the coordinates
    return Mixture(seed, kind, weights, means * scale, roots * scale[:, None])


def measured(seed, draws=1000):
    """A row of the table."""
    import svrhmc

    model = mixture(seed)
    modes, which = model.modes()
    target = model.target()
    began = time.perf_counter()
    found = target.modes()
    looked = time.perf_counter() - began
    heavy = [mode for mode, k in zip(modes, which, strict=True) if model.weights[k] >= SHARE]
    missed = sum(not _has(model, found, mode) for mode in heavy)
    row = {
        "seed": seed, "kind": model.kind, "dim": model.dim, "sd": model.farthest(), "modes": len(heavy),
        "found": len(heavy) - missed, "search": looked,
    }  # fmt: skip
    if draws:
        began = time.perf_counter()
        posterior = svrhmc.sample(target, draws=draws, seed=1)
        parts = model.log_parts(posterior.trace.draws.reshape(-1, model.dim))
        share = np.bincount(parts.argmax(axis=1), minlength=len(model.weights)) / len(parts)
        exact = np.random.default_rng(seed + 10**6)
        label = exact.choice(len(model.weights), EXACT, p=model.weights)
        normal = exact.normal(size=(EXACT, model.dim))
        x = model.means[label] + np.einsum("nde,ne->nd", model.roots[label], normal)
        truth = np.bincount(model.log_parts(x).argmax(axis=1), minlength=len(model.weights)) / len(x)
        z = np.abs(posterior.mean - model.mean()) / np.maximum(posterior.errors[0], 1e-12)
        row |= {
            "verdict": posterior.certificate.verdict, "z": float(z.max()), "off": float(np.abs(share - truth).max()),
            "z_weights": _z_of_weights(target, posterior.modes, x), "seconds": time.perf_counter() - began,
        }  # fmt: skip
    return row


def _z_of_weights(target, modes, exact):
    """Standard errors between the weights of modes and their means over exact draws; None where they are not known."""
    if modes is None or not modes.known:
        return None
    shares = _regions(target).memberships(exact)
    error = np.hypot(modes.error, shares.std(axis=0) / np.sqrt(len(exact)))
    return (np.abs(modes.weight - shares.mean(axis=0)) / np.maximum(error, 1e-12)).tolist()


def _regions(target):
    """What weights of modes are of: the laws at the modes, in the user's variables."""
    from types import SimpleNamespace

    from svrhmc.exact.jumps import find_regions

    identity = SimpleNamespace(centre=np.zeros(target.dim), pull=lambda array: array)
    space = SimpleNamespace(
        dim=target.dim, whitening=identity, into=lambda x: x, target=target, potentials=target.potentials
    )
    return find_regions(space, target.modes())


def _has(model, found, mode):
    """Whether a mode is among those found: within half an sd of the component that is heaviest there."""
    R = model.roots[int(np.argmax(model.log_parts(mode[None])[0]))]
    away = np.linalg.solve(R, (found - mode).T)
    return bool((np.sqrt((away**2).sum(axis=0)) < 0.5).any())


def _measured(task):
    seed, draws = task
    try:
        return measured(seed, draws)
    except Exception as error:  # a failure is a row, with its seed
        return {"seed": seed, "failed": f"{type(error).__name__}: {error}"}


def printed(rows, out=sys.stdout):
    """The rows that failed, and the table."""
    failed = [row for row in rows if "failed" in row]
    rows = [row for row in rows if "failed" not in row]
    for row in failed:
        print(f"seed {row['seed']}: {row['failed']}", file=out)
    wrong = [row for row in rows if row.get("verdict") in ("exact", "certified") and row["off"] > 0.02]
    for row in wrong:
        print(f"WRONG {json.dumps(row)}", file=out)
    goal = [row for row in rows if row["sd"] <= NEAR and row["dim"] <= LOW]
    for row in goal:
        if row["found"] < row["modes"]:
            print(f"missed, within the goal: {json.dumps(row)}", file=out)
    print(
        "| models | all modes found | verdicts | means off (local, certified, exact) | weights known | off by "
        "more than 3 standard errors | rms z | seconds of the search |",
        file=out,
    )
    print("|---|---|---|---|---|---|---|---|", file=out)
    groups = {"all": rows, f"≤ {NEAR:g} sd, d ≤ {LOW}": goal}
    groups |= {kind: [row for row in rows if row["kind"] == kind] for kind in ("plain", "spike", "line", "inside")}
    groups |= {f"d = {d}": [row for row in rows if row["dim"] == d] for d in DIMS}
    for name, some in groups.items():
        if some:
            whole = sum(row["found"] == row["modes"] for row in some)
            said = [row.get("verdict", "") for row in some]
            counted = ", ".join(f"{said.count(word)} {word}" for word in sorted(set(said)) if word)
            sound = [row for row in some if row.get("verdict") in ("exact", "certified", "local")]
            complete = [row for row in sound if row["found"] == row["modes"]]
            off = f"{sum(row['z'] > LIMIT for row in complete)} of {len(complete)}"
            several = [row for row in some if row["found"] == row["modes"] > 1 and "verdict" in row]
            known = [row["z_weights"] for row in several if row["z_weights"]]
            beyond = sum(max(z) > 3 for z in known)
            rms = np.sqrt(np.mean(np.square(np.concatenate(known)))) if known else np.nan
            search = np.median([row["search"] for row in some])
            print(
                f"| {name} ({len(some)}) | {whole} ({whole / len(some):.0%}) | {counted} | {off} | "
                f"{len(known)} of {len(several)} | {beyond} | {rms:.2f} | {search:.2f} |",
                file=out,
            )
    print(f"wrong: {len(wrong)}; failed: {len(failed)}", file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, nargs="*", help="these models instead")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--draws", type=int, default=1000, help="0 for the search alone")
    parser.add_argument("--json", help="write the rows to this file too")
    given = parser.parse_args()
    seeds = given.seeds or range(given.first, given.first + given.models)
    tasks = [(seed, given.draws) for seed in seeds]
    rows = []
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        for row in pool.map(_measured, tasks):
            rows.append(row)
            if given.json:
                with open(given.json, "w") as file:
                    json.dump(rows, file, indent=1)
    printed(rows)


if __name__ == "__main__":
    main()
