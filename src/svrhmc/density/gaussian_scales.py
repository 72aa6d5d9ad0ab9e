"""Gaussian mixed models: the exact density of the scales, and the exact law of everything else given them.

With Gaussian rows and normal or flat priors of β, w = (β, u) given φ = (θ, log σ) is Gaussian. So with ρ = 1/σ²,
u = M v (Σ = MMᵀ, v ~ N(0, I)), H the precision of (β, v), and Q the least value over (β, v) of

    ρ Σ wᵢ(yᵢ − oᵢ − aᵢᵀβ − zᵢᵀMv)² + (β − m)ᵀP(β − m) + |v|²,

the density of the scales is, up to a constant, without an approximation

    log p(φ | y) = log p(φ) − Σwᵢ log σ − ½ Q(φ) − ½ log |H(φ)|.

**One term is eliminated exactly.** The rows of a level of the term with the most effects enter by D = Σ wᵢzᵢzᵢᵀ = FFᵀ
(r × r) and by ã = F⁺ Σ wᵢzᵢaᵢᵀ, a being the columns of β and of the effects of all other terms. With
N = I + ρ FᵀΣF for each level, those levels leave for x = (β, other effects)

    |H| = |K| ∏|N|,        K = diag(P, I) + ρ Tᵀ(G + Σ ãᵀN⁻¹ã) T,        T = diag(I, M),

where G = Σ wᵢãᵢãᵢᵀ is of columns less what the levels explain of them, ãᵢ = aᵢ − ãᵀF⁺zᵢ. Everything that is added is
positive: no digits cancel as τ → ∞, and M stands beside I, so that none are lost as τ → 0. Sums over rows are made
once. With x₀ a fit of least squares, d = x − x₀ at the solution x, and e the residuals at x₀,

    Q = ρ [S + dᵀGd − 2gᵀd + Σ (ẽ − ãd)ᵀN⁻¹(ẽ − ãd)] + (β − m)ᵀP(β − m) + |v|²,

S, g and ẽ being those of e: squares again, in which an error of x counts to second order only.

**Draws.** x is N(K⁻¹…, K⁻¹) in the coordinates (β, v), by the factor of K; given x the levels are independent, with
Y = √ρ FᵀM and v ~ N((I + YᵀY)⁻¹Yᵀ√ρ(ẽ − ãd), (I + YᵀY)⁻¹).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from svrhmc.core.arrays import Array, Indices, cores
from svrhmc.core.deadline import check_budget
from svrhmc.core.errors import NoResidualsError, requirement
from svrhmc.core.machine import one_blas_thread
from svrhmc.density.cholesky import Factor, Pattern
from svrhmc.density.mixed import MixedModel, Term, least_squares
from svrhmc.rows.csr import MatrixLike

MOST_CORE = 2500  # coordinates of the dense part of the factor that each φ takes
MOST_PAIRS = 2e7  # products of two entries of ã, of all levels: 0.3 GB
_NULL = 1e-13  # of the largest eigenvalue of a level's D of columns of one length, below which it is 0
_NUMBERS = 1 << 22  # of the factors that are held at once
_EXACT = 1e-20  # of the squares of the response, below which residuals are rounding
_ROUNDING = 1e-15  # of each of the squares that Q is made of


@dataclass(frozen=True, eq=False)
class Given:
    """The law of w given some φ, a row each.

    log_density: log p(φ | y) up to a constant, −∞ where K has no factor. solution: x. root: L, K = LLᵀ. Y: √ρ FᵀM.
    within: the inverse factor of I + YᵀY. Both (r, r, states, levels).
    """

    phi: Array
    log_density: Array
    solution: Array
    root: list[Factor]
    Y: Array
    within: Array


class GaussianScales:
    """log p(φ | y) of a `MixedModel` for which `applies`, φ = (θ, log σ), or θ where σ is known."""

    def __init__(self, model: MixedModel) -> None:
        conditional = model.conditional
        self.model, self.known_noise = model, conditional.loss.known_noise
        self.dim = model.theta_dim + model.shared
        self.eliminated = eliminated_term(model)
        self.core_terms = [term for term in model.terms if term is not self.eliminated]
        first, p = self.eliminated, model.columns
        weights = np.ones(model.n) if conditional.weights is None else conditional.weights
        self._weight = float(weights.sum())
        self._precision = conditional.prior_precision[:p]
        self._mean = conditional.prior_mean[:p]
        X, Z = model.design
        places = [np.arange(term.effects.start, term.effects.stop) - p for term in self.core_terms]
        others = np.concatenate([np.zeros(0, np.int64), *places])
        Ze, Zo = _sparse(Z[:, first.effects.start - p : first.effects.stop - p]), _sparse(Z[:, others])
        self.places = np.concatenate([np.arange(p), others + p])  # of x in w
        self.columns, self.core = p, p + len(others)
        self._root, pseudo = _level_roots(first.group.blocks(weights))
        scaled = Ze @ _block_diagonal(pseudo).T  # F⁺z of every row
        scaled_weighted = scaled.multiply(weights[:, None]).tocsr()
        self._by_beta = np.asarray(scaled_weighted.T @ X)
        by_other = (scaled_weighted.T @ Zo).tocsr()
        y = conditional.y if conditional.offset is None else conditional.y - conditional.offset
        within_X = X - scaled @ self._by_beta

        def within(e: Array) -> tuple[Array, Array]:
            """ẽ of every level, and e less what the levels explain."""
            own = scaled_weighted.T @ e
            return own, e - scaled @ own

        def combined(e: Array) -> Array:
            return np.concatenate([X.T @ (weights * e), Zo.T @ (weights * e)])

        ZZ = (Zo.T @ Zo.multiply(weights[:, None]).tocsr() - by_other.T @ by_other).tocsr()
        ZX = Zo.T @ (weights[:, None] * within_X)
        self._border = np.concatenate([within_X.T @ (weights[:, None] * within_X), ZX])
        rough = np.linalg.lstsq(X.T @ (weights[:, None] * X), X.T @ (weights * y), rcond=None)[0] if p else np.zeros(0)
        e = y - X @ rough
        self._by_both = _joined(self._by_beta, by_other)
        more, force = np.zeros(self.core), combined(within(e)[1])
        own = np.concatenate([np.diag(self._border[:p]), ZZ.diagonal()])
        explained = np.asarray(_sparse(self._by_both).power(2).sum(axis=0)).ravel()
        seen = np.flatnonzero(own > _NULL * explained)  # columns that vary within levels
        if len(seen):
            more[seen] = least_squares(_bordered(self._border, ZZ)[seen][:, seen], force[seen])
        self._fit = more + np.concatenate([rough, np.zeros(len(others))])
        e = e - X @ more[:p] - Zo @ more[p:]
        self._levels, rest = within(e)
        self._square, self._force = float(weights @ (rest * rest)), combined(rest)
        self._require_residuals(float(weights @ (y - np.average(y, weights=weights)) ** 2))
        self._between = ZZ
        self._entries = LevelPairs(self.core_terms, by_other, first.width, ZZ)
        self._within_levels = self._entries.values_of(ZZ)
        self._ahead = self._product(self._fit[None])[0] + self._force
        self._unexplained = self._levels + self._by_both @ self._fit
        rows, columns = self._entries.rows + p, self._entries.columns + p
        self.pattern = Pattern.of(self.core, np.arange(p), rows, columns, MOST_CORE)
        own = np.arange(self.core)
        of_beta = np.repeat(np.arange(p), self.core), np.tile(own, p)
        self._of_beta = np.flatnonzero(of_beta[1] >= of_beta[0])
        beta = of_beta[1][self._of_beta], of_beta[0][self._of_beta]
        self._places = [self.pattern.places(*at) for at in (beta, (rows, columns), (own, own))]
        heavy = conditional.heavy
        self._noise_heavy = None if heavy is None else replace(heavy, columns=heavy.columns - (model.inner_dim - 1))

    @property
    def noise_of_residuals(self) -> float:
        """log σ by the residuals of least squares, where effects and coefficients leave some; else ∞."""
        left = self._weight * (1 - (self.model.columns + self.model.effect_count) / self.model.n)
        return 0.5 * float(np.log(self._square / left)) if left > 0 and self._square > 0 else np.inf

    def _require_residuals(self, total: float) -> None:
        """Refuse a response that coefficients and effects, fewer than the rows, fit exactly: p(φ) grows as σ → 0.

        total: the sum of its squares, less its mean.
        """
        model = self.model
        few = model.columns + model.effect_count < model.n
        if few and self.known_noise is None and self._square <= _EXACT * total:
            why = (
                "no residual tells how large the noise is; look whether a factor or a column repeats the response, and "
                "leave it out"
            )
            allowed = f"labels that leave residuals for the family {model.loss.name!r}"
            raise requirement("y", allowed, "labels that the groups and columns fit exactly", why, NoResidualsError)

    @property
    def together(self) -> int:
        """How many φ are best evaluated in one call."""
        first = self.eliminated
        size = self.pattern.numbers + first.count * first.width * (first.width * 3 + self.columns + 2)
        return int(np.clip(_NUMBERS // max(size, 1), 1, 64))

    def split(self, phi: Array) -> tuple[Array, Array]:
        """θ and log σ of states."""
        theta = phi[:, : self.model.theta_dim]
        if self.known_noise is None:
            return theta, phi[:, -1]
        return theta, np.full(len(phi), np.log(self.known_noise))

    def log_density(self, phi: Array) -> Array:
        """log p(φ | y) of many states, up to a constant."""
        parts = [phi[begin : begin + self.together] for begin in range(0, len(phi), self.together)]
        if len(parts) == 1:
            return self.given(phi).log_density
        out = []
        with ThreadPoolExecutor(cores()) as pool, one_blas_thread():
            for part in pool.map(self.given, parts):
                check_budget()
                out.append(part.log_density)
        return np.concatenate(out)

    @np.errstate(all="ignore")
    def given(self, phi: Array) -> Given:
        """The law of w given each φ, (states, dim)."""
        first, (theta, log_sigma) = self.eliminated, self.split(phi)
        r, q, S = first.width, first.count, len(phi)
        rho = np.exp(-2 * log_sigma)
        M = np.exp(-log_sigma)[:, None, None] * first.covariance.factor(theta[:, first.theta])
        Y = np.zeros((r, r, S, q))  # √ρ FᵀM
        for i in range(r):
            for j in range(r):
                Y[i, j] = sum(M[:, k, j, None] * self._root[k, i] for k in range(j, r))
        inverse, within = _inverse_factor(Y, False), _inverse_factor(Y, True)
        scale = self._core_factors(theta)
        K, ahead = self._core_matrices(inverse, rho, scale)
        solution, root, log_root = self._solve(K, ahead, scale)
        d = solution - self._fit
        e = self._residuals(d)
        scaled = np.array([sum(inverse[i, j] * e[j] for j in range(i + 1)) for i in range(r)])
        product = self._product(d)
        inner = self._square + np.einsum("sj,sj->s", d, product - 2 * self._force)
        rounding = _ROUNDING * rho * (self._square + np.einsum("sj,sj->s", abs(d), abs(product) + 2 * abs(self._force)))
        v = self._unscaled(solution, scale)
        Q = rho * (inner + np.einsum("isl,isl->s", scaled, scaled))
        Q = Q + ((solution[:, : self.columns] - self._mean) ** 2) @ self._precision + (v * v).sum(axis=1)
        volume = log_root - sum(np.log(inverse[i, i]).sum(axis=1) for i in range(r))
        log_density = -self._weight * log_sigma - 0.5 * Q - volume - self._prior(theta, log_sigma)
        lost = np.isnan(log_density) | (rounding > 1)  # as where σ is far too small, and Q of digits that are left
        return Given(phi, np.where(lost, -np.inf, log_density), solution, root, Y, within)

    def _prior(self, theta: Array, log_sigma: Array) -> Array:
        """−log p(φ)."""
        total = sum(term.covariance.prior(theta[:, term.theta])[0] for term in self.model.terms)
        if self.known_noise is not None:
            return np.asarray(total)
        conditional = self.model.conditional
        total = total + 0.5 * conditional.prior_precision[-1] * (log_sigma - conditional.prior_mean[-1]) ** 2
        heavy = self._noise_heavy
        return np.asarray(total if heavy is None else total + heavy.value(log_sigma[:, None]))

    # K, and its factor

    def _core_factors(self, theta: Array) -> list[Array]:
        """M of every term that is not eliminated, (states, r, r)."""
        return [term.covariance.factor(theta[:, term.theta]) for term in self.core_terms]

    def _core_matrices(self, inverse: Array, rho: Array, scale: list[Array]) -> tuple[list[Array], Array]:
        """The numbers of K of each state, in the places of its pattern, and K (β, v) at the solution."""
        r, _, S, q = inverse.shape
        p, n = self.columns, self.core
        products = {}  # N⁻¹ = N^−½ᵀN^−½, its entries i ≥ j
        for i in range(r):
            for j in range(i + 1):
                products[i, j] = sum(inverse[k, i] * inverse[k, j] for k in range(i, r))
        whole = np.empty((r, r, S, q))
        for (i, j), value in products.items():
            whole[i, j] = whole[j, i] = value
        explained = np.concatenate([self._by_beta, self._unexplained[:, None]], axis=1).reshape(q, r, p + 1)
        coefficients = np.concatenate([products[i, j] * (1 + (i != j)) for i, j in products], axis=1)
        values = self._within_levels[:, None] + self._entries.sums @ np.ascontiguousarray(coefficients.T)
        ahead, K = np.empty((S, n)), []
        of_beta, of_others, diagonal = self._places
        for s in range(S):
            by_level = np.einsum("ijl,ljp->lip", whole[:, :, s], explained).reshape(q * r, p + 1)
            added = np.asarray(self._by_both.T @ by_level)
            ahead[s] = rho[s] * (self._ahead + added[:, p])
            own = [M[s : s + 1] for M in scale]
            numbers = np.zeros(self.pattern.numbers)
            border = rho[s] * self._pulled((self._border + added[:, :p]).T, own)
            numbers[of_beta] = border.ravel()[self._of_beta]
            numbers[of_others] = self._entries.scaled(rho[s] * values[:, s], own)
            numbers[diagonal] += np.concatenate([self._precision, np.ones(n - p)])
            K.append(numbers)
        ahead = self._pulled(ahead, scale)
        ahead[:, :p] += self._precision * self._mean
        return K, ahead

    def _product(self, x: Array) -> Array:
        """Gx of states, G in columns of β and the sparse rest."""
        p = self.columns
        out: Array = x[:, :p] @ self._border.T
        out[:, :p] += x[:, p:] @ self._border[p:]
        out[:, p:] += (self._between @ x[:, p:].T).T
        return out

    def _pulled(self, x: Array, scale: list[Array], inverse: bool = False, forward: bool = False) -> Array:
        """Tᵀx of states; T x where `forward`, T⁻¹x where `inverse`."""
        out, begin = x.copy(), self.columns
        for term, M in zip(self.core_terms, scale, strict=True):
            part = slice(begin, begin + term.count * term.width)
            how = np.linalg.inv(M) if inverse else (M if forward else M.transpose(0, 2, 1))
            blocks = x[:, part].reshape(len(x), term.count, term.width)
            out[:, part] = np.einsum("sab,slb->sla", how, blocks).reshape(len(x), term.count * term.width)
            begin = part.stop
        return out

    def _unscaled(self, x: Array, scale: list[Array]) -> Array:
        """v of the terms that are not eliminated."""
        return self._pulled(x, scale, inverse=True)[:, self.columns :]

    def _solve(self, K: list[Array], ahead: Array, scale: list[Array]) -> tuple[Array, list[Factor], Array]:
        """x, the factors L and log |L|, which is nan where there is none."""
        roots = [self.pattern.factor(numbers) for numbers in K]
        logs = np.array([root.log_root for root in roots])
        solutions = np.zeros(ahead.shape)
        for s in np.flatnonzero(np.isfinite(logs)):
            solutions[s] = roots[s].solve(ahead[s])
        return self._pulled(solutions, scale, forward=True), roots, logs

    def _residuals(self, d: Array) -> Array:
        """ẽ − ãd of every level: (states, core) → (r, states, levels)."""
        first = self.eliminated
        e = self._levels - (self._by_both @ d.T).T
        return np.ascontiguousarray(np.moveaxis(e.reshape(len(d), first.count, first.width), -1, 0))

    # Draws

    def draw(self, given: Given, state: int, normals: Array) -> Array:
        """w given one φ, from as many standard normal numbers as w has coordinates."""
        model, first, one = self.model, self.eliminated, slice(state, state + 1)
        theta, log_sigma = self.split(given.phi[one])
        scale, n, r = self._core_factors(theta), self.core, first.width
        w = np.empty(model.inner_dim)
        if self.known_noise is None:
            w[-1] = log_sigma[0]
        more = given.root[state].displace(normals[:n])
        x = given.solution[state] + self._pulled(more[None], scale, forward=True)[0]
        w[self.places] = x
        e = np.exp(-log_sigma[0]) * self._residuals(x[None] - self._fit)[:, 0]
        Y, root = given.Y[:, :, state], given.within[:, :, state]
        ahead = [sum(Y[j, i] * e[j] for j in range(r)) for i in range(r)]
        inner = [sum(root[i, j] * ahead[j] for j in range(i + 1)) for i in range(r)]
        noise = normals[n : n + first.count * r].reshape(first.count, r)
        total = [inner[i] + noise[:, i] for i in range(r)]
        v = [sum(root[j, i] * total[j] for j in range(i, r)) for i in range(r)]
        M = first.covariance.factor(theta[:, first.theta])[0]
        term_blocks = np.array([sum(M[i, j] * v[j] for j in range(i + 1)) for i in range(r)])
        first.put(term_blocks, w)
        return w


class LevelPairs:
    """Entries of symmetric matrices of the effects of some terms: those of two levels that meet in rows, or in a level
    of the eliminated term, in blocks of (r, r′); of (l, l′) and (l′, l) one.

    by_other: ã of these effects. gram: what is added to its squares. rows, columns: where the entries are, for each
    pair of terms block by block. sums: the sparse matrix that makes Σ ãᵀN⁻¹ã of the entries (i, j), i ≥ j, of N⁻¹ of
    every level.
    """

    def __init__(self, terms: list[Term], by_other: MatrixLike, width: int, gram: MatrixLike) -> None:
        self._size = size = by_other.shape[1]
        widths = np.concatenate([np.zeros(0, np.int64), *(np.full(term.count, term.width) for term in terms)])
        begins = np.cumsum(np.append(0, widths))[:-1]
        level_of = np.repeat(np.arange(len(widths)), widths)
        term_of = np.repeat(np.arange(len(terms)), [term.count for term in terms])
        high, low = _meeting(by_other, width, gram, level_of)
        self._parts: list[tuple[int, int, slice, tuple[int, int]]] = []
        rows, columns, begin = [], [], 0
        for k, other in sorted(set(zip(term_of[high].tolist(), term_of[low].tolist(), strict=True))):
            own = (term_of[high] == k) & (term_of[low] == other)
            shape = terms[k].width, terms[other].width
            grid = np.ones((int(own.sum()), *shape), np.int64)
            rows.append((grid * (begins[high[own]][:, None, None] + np.arange(shape[0])[:, None])).ravel())
            columns.append((grid * (begins[low[own]][:, None, None] + np.arange(shape[1]))).ravel())
            self._parts.append((k, other, slice(begin, begin + grid.size), shape))
            begin += grid.size
        none = np.zeros(0, np.int64)
        self.rows, self.columns = np.concatenate([none, *rows]), np.concatenate([none, *columns])
        self._order = np.argsort(self.rows * size + self.columns)
        self._sorted = (self.rows * size + self.columns)[self._order]
        self.sums = self._sums_of(by_other, width)

    def __len__(self) -> int:
        return len(self.rows)

    def _places(self, at: Indices) -> tuple[Indices, Indices]:
        """Which of some entries, numbered row by row, are here, and where."""
        near = np.minimum(np.searchsorted(self._sorted, at), max(len(self) - 1, 0))
        here = np.flatnonzero(self._sorted[near] == at) if len(self) else np.zeros(0, np.int64)
        return here, self._order[near[here]]

    def values_of(self, matrix: MatrixLike) -> Array:
        """Those of a sparse matrix."""
        given, out = matrix.tocoo(), np.zeros(len(self))
        here, places = self._places(given.row.astype(np.int64) * self._size + given.col)
        out[places] = given.data[here]
        return out

    def scaled(self, values: Array, scale: list[Array]) -> Array:
        """The entries of TᵀQT of one state, in the place of those of Q."""
        for k, other, part, shape in self._parts:
            if shape == (1, 1):
                values[part] *= scale[k][0, 0, 0] * scale[other][0, 0, 0]
            else:
                values[part] = (scale[k][0].T @ values[part].reshape(-1, *shape) @ scale[other][0]).ravel()
        return values

    def _sums_of(self, by_other: MatrixLike, r: int) -> MatrixLike:
        from scipy.sparse import coo_matrix, csr_matrix, hstack

        q, n = by_other.shape[0] // r, by_other.shape[1]
        lines = [by_other[a::r].tocsr() for a in range(r)]
        parts = []
        for i in range(r):
            for j in range(i + 1):
                at, level, value = _products(lines[i], lines[j], n)
                if i != j:  # half of both orders, as coefficients count twice
                    back = _products(lines[j], lines[i], n)
                    at, level = np.concatenate([at, back[0]]), np.concatenate([level, back[1]])
                    value = 0.5 * np.concatenate([value, back[2]])
                here, places = self._places(at)
                parts.append(csr_matrix(coo_matrix((value[here], (places, level[here])), shape=(len(self), q))))
        return csr_matrix(hstack(parts, format="csr"))


def _meeting(by_other: MatrixLike, r: int, gram: MatrixLike, level_of: Indices) -> tuple[Indices, Indices]:
    """Levels l ≥ l′ of other terms that meet, each with itself among them."""
    from scipy.sparse import csr_matrix, identity, tril

    levels = int(level_of.max(initial=-1)) + 1

    def by_levels(given: MatrixLike, rows: Indices, count: int) -> MatrixLike:
        return csr_matrix((np.ones(given.nnz), (rows, level_of[given.col])), shape=(count, levels))

    met, together = by_other.tocoo(), gram.tocoo()
    where = by_levels(met, met.row // r, by_other.shape[0] // r)
    rows = by_levels(together, level_of[together.row], levels)
    both = tril(where.T @ where + rows + identity(levels), format="coo")
    return both.row.astype(np.int64), both.col.astype(np.int64)


def eliminated_term(model: MixedModel) -> Term:
    """The term of the most effects among those of levels, of which a row has one."""
    return max((term for term in model.terms if term.group.by_level), key=lambda term: term.count * term.width)


def refusal(model: MixedModel) -> str | None:
    """Why the scales of a model are not sampled by their own density; None where they are.

    Sizes decide: the dense part of K takes core³/3 operations for each φ, and ã as many products as levels have pairs
    of entries.
    """
    loss, heavy = model.loss, model.conditional.heavy
    if not (loss.quadratic or loss.mixture):
        return f"{loss} is not Gaussian given the scales"
    if heavy is not None and heavy.columns.min() < model.effects.stop:
        return "a prior of coefficients is not normal"
    if not any(term.group.by_level for term in model.terms):
        return "no term has levels"
    first = eliminated_term(model)
    core = model.columns + model.effect_count - first.count * first.width
    widths = sum(term.width if term.group.by_level else term.count for term in model.terms if term is not first)
    if core <= MOST_CORE and float(first.group.row_counts().max() * widths) ** 2 * first.count <= MOST_PAIRS:
        return None
    met = _met(model, first)
    pairs = float((np.diff(met.indptr).astype(np.float64) ** 2).sum()) * first.width**2
    if pairs > MOST_PAIRS:
        return f"{pairs:,.0f} pairs of effects meet in the levels of {first.group.label}, beyond {MOST_PAIRS:,.0f}"
    together = (met.T @ met).tocoo()
    places = model.columns + together.row.astype(np.int64), model.columns + together.col.astype(np.int64)
    if core > MOST_CORE and Pattern.of(core, np.arange(model.columns), *places, MOST_CORE).core > MOST_CORE:
        return (
            f"{core:,} coefficients and effects are left beside those of {first.group.label}, of which more than "
            f"{MOST_CORE:,} nearly all depend on each other"
        )
    return None


def _met(model: MixedModel, first: Term) -> MatrixLike:
    """Which effects of other terms are met in each level of a term, in CSR."""
    from scipy.sparse import csr_matrix

    p, seen = model.columns, _sparse(model.design[1]) != 0
    own = slice(first.effects.start - p, first.effects.stop - p)
    others = np.setdiff1d(np.arange(model.effect_count), np.arange(own.start, own.stop))
    lines = (seen[:, own].T.astype(np.float64) @ seen[:, others].astype(np.float64)).tocoo()
    shape = first.count, len(others)
    met = csr_matrix((np.ones(lines.nnz), (lines.row // first.width, lines.col)), shape=shape)
    met.sum_duplicates()
    return met


def _sparse(Z: MatrixLike) -> MatrixLike:
    from scipy.sparse import csr_matrix

    return csr_matrix(Z)


def _bordered(border: Array, inner: MatrixLike) -> MatrixLike:
    """A symmetric matrix of which some first columns are dense."""
    from scipy.sparse import bmat, csr_matrix

    p = border.shape[1]
    total = csr_matrix(bmat([[csr_matrix(border[:p]), csr_matrix(border[p:].T)], [csr_matrix(border[p:]), inner]]))
    total.sort_indices()
    return total


def _joined(by_beta: Array, by_other: MatrixLike) -> MatrixLike:
    """ã of all columns; dense where there are those of β alone."""
    from scipy.sparse import csr_matrix, hstack

    return by_beta if not by_other.shape[1] else hstack([csr_matrix(by_beta), by_other], format="csr")


def _level_roots(D: Array) -> tuple[Array, Array]:
    """F with FFᵀ = D, and F⁺: (r, r, levels). Directions that the rows of a level do not see have columns of 0."""
    r, q = D.shape[0], D.shape[2]
    length = np.sqrt(np.maximum(np.einsum("aal->al", D), 0.0))
    by = np.where(length > 0, length, 1.0)
    if r == 1:
        return length[:, None, :], np.where(length > 0, 1 / by, 0.0)[:, None, :]
    values, vectors = np.linalg.eigh(np.moveaxis(D / (by[:, None] * by[None]), -1, 0))
    seen = values > _NULL * r
    root = np.sqrt(np.where(seen, values, 0.0))
    inverse = np.where(seen, 1 / np.where(seen, root, 1.0), 0.0)
    F = by.T[:, :, None] * vectors * root[:, None, :]
    plus = inverse[:, :, None] * np.swapaxes(vectors, 1, 2) / by.T[:, None, :]
    assert F.shape == (q, r, r)
    return np.ascontiguousarray(np.moveaxis(F, 0, -1)), np.ascontiguousarray(np.moveaxis(plus, 0, -1))


def _block_diagonal(blocks: Array) -> MatrixLike:
    """(r, r, levels) as one sparse matrix."""
    from scipy.sparse import bsr_matrix

    r, _, q = blocks.shape
    data = np.ascontiguousarray(np.moveaxis(blocks, -1, 0))
    return bsr_matrix((data, np.arange(q), np.arange(q + 1)), shape=(q * r, q * r)).tocsr()


def _inverse_factor(Y: Array, transposed: bool) -> Array:
    """L⁻¹ with LLᵀ = I + YYᵀ, or I + YᵀY: lower triangles (r, r, …)."""
    r = len(Y)
    if r == 1:
        return 1 / np.sqrt(1 + Y * Y)
    A = np.swapaxes(Y, 0, 1) if transposed else Y
    L, out = np.zeros_like(Y), np.zeros_like(Y)
    for j in range(r):
        for i in range(j, r):
            total = sum(A[i, k] * A[j, k] for k in range(r)) + (i == j) - sum(L[i, k] * L[j, k] for k in range(j))
            L[i, j] = np.sqrt(total) if i == j else total / L[j, j]
    for i in range(r):
        out[i, i] = 1 / L[i, i]
        for j in range(i):
            out[i, j] = -sum(L[i, k] * out[k, j] for k in range(j, i)) * out[i, i]
    return out


def _products(left: MatrixLike, right: MatrixLike, n: int) -> tuple[Indices, Indices, Array]:
    """Of every level all products of an entry of one row and an entry of the other: place, level and value."""
    a, b = np.diff(left.indptr), np.diff(right.indptr)
    level = np.repeat(np.arange(len(a)), a * b)
    inside = np.arange(len(level)) - np.repeat(np.cumsum(a * b) - a * b, a * b)
    width = np.repeat(b, a * b)
    first, second = left.indptr[level] + inside // width, right.indptr[level] + inside % width
    at = left.indices[first].astype(np.int64) * n + right.indices[second]
    return at, level, left.data[first] * right.data[second]
