"""Gaussian mixed models: the exact density of the scales, and the exact law of everything else given them.

With Gaussian rows and normal or flat priors of β, w = (β, u) given φ = (θ, log σ) is Gaussian. So with ρ = 1/σ²,
u = M v (Σ = MMᵀ, v ~ N(0, I)), H the precision of (β, v), and Q the least value over (β, v) of

    ρ Σ wᵢ(yᵢ − oᵢ − aᵢᵀβ − zᵢᵀMv)² + (β − m)ᵀP(β − m) + |v|²,

the density of the scales is, up to a constant, without an approximation

    log p(φ | y) = log p(φ) − Σwᵢ log σ − ½ Q(φ) − ½ log |H(φ)|.

**One term is eliminated exactly**, that with the most effects. The rows of each of its levels enter by
D = Σ wᵢzᵢzᵢᵀ = FFᵀ (r × r) and by ã = F⁺ Σ wᵢzᵢaᵢᵀ, where a holds the columns of β and of the effects of all other
terms. With N = I + ρ FᵀΣF for each level, there is left for x = (β, other effects)

    |H| = |K| ∏|N|,        K = diag(P, I) + ρ Tᵀ(G + Σ ãᵀN⁻¹ã) T,        T = diag(I, M),

where G = Σ wᵢãᵢãᵢᵀ is made of columns less what the levels explain of them, ãᵢ = aᵢ − ãᵀF⁺zᵢ. All terms of the sums
are positive, so that no digits cancel as τ → ∞, and M is added to I, so that none are lost as τ → 0. Sums over rows are
computed once. With x₀ a fit of least squares, d = x − x₀ at the solution x, and e the residuals at x₀,

    Q = ρ [S + dᵀGd − 2gᵀd + Σ (ẽ − ãd)ᵀN⁻¹(ẽ − ãd)] + (β − m)ᵀP(β − m) + |v|²,

with S, g and ẽ made of e: squares again, in which an error of x counts to second order only.

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
class ConditionalLaw:
    """The Gaussian law of w given each of some φ (rows of `phi`).

    log_density: log p(φ | y) up to a constant, −∞ if K has no factor. solution: x. root: L with K = LLᵀ. Y: √ρ FᵀM.
    within: the inverse factor of I + YᵀY. The last two are (r, r, states, levels).
    """

    phi: Array
    log_density: Array
    solution: Array
    root: list[Factor]
    Y: Array
    within: Array


class GaussianScales:
    """log p(φ | y) of a `MixedModel` that `refusal` does not refuse; φ = (θ, log σ), or θ if σ is known."""

    def __init__(self, model: MixedModel) -> None:
        conditional = model.conditional
        self.model, self.known_noise = model, conditional.loss.known_noise
        self.dim = model.theta_dim + model.shared
        self.eliminated = eliminated_term(model)
        self.core_terms = [term for term in model.terms if term is not self.eliminated]
        eliminated, p = self.eliminated, model.columns
        weights = np.ones(model.n) if conditional.weights is None else conditional.weights
        self._weight = float(weights.sum())
        self._precision = conditional.prior_precision[:p]
        self._mean = conditional.prior_mean[:p]
        X, Z = model.design
        places = [np.arange(term.effects.start, term.effects.stop) - p for term in self.core_terms]
        other_columns = np.concatenate([np.zeros(0, np.int64), *places])
        own_columns = slice(eliminated.effects.start - p, eliminated.effects.stop - p)
        Z_own, Z_other = _as_csr(Z[:, own_columns]), _as_csr(Z[:, other_columns])
        self.places = np.concatenate([np.arange(p), other_columns + p])  # of x in w
        self.columns, self.core = p, p + len(other_columns)
        self._root, pseudo = _level_roots(eliminated.group.blocks(weights))
        scaled = Z_own @ _block_diagonal(pseudo).T  # F⁺z of every row
        scaled_weighted = scaled.multiply(weights[:, None]).tocsr()
        self._by_beta = np.asarray(scaled_weighted.T @ X)
        by_other = (scaled_weighted.T @ Z_other).tocsr()
        y = conditional.y if conditional.offset is None else conditional.y - conditional.offset
        within_X = X - scaled @ self._by_beta

        def split_by_levels(e: Array) -> tuple[Array, Array]:
            """ẽ of every level, and e less what the levels explain."""
            of_levels = scaled_weighted.T @ e
            return of_levels, e - scaled @ of_levels

        def combine_rows(e: Array) -> Array:
            return np.concatenate([X.T @ (weights * e), Z_other.T @ (weights * e)])

        ZZ = (Z_other.T @ Z_other.multiply(weights[:, None]).tocsr() - by_other.T @ by_other).tocsr()
        ZX = Z_other.T @ (weights[:, None] * within_X)
        self._border = np.concatenate([within_X.T @ (weights[:, None] * within_X), ZX])
        rough = np.linalg.lstsq(X.T @ (weights[:, None] * X), X.T @ (weights * y), rcond=None)[0] if p else np.zeros(0)
        e = y - X @ rough
        self._by_both = _join_columns(self._by_beta, by_other)
        correction, force = np.zeros(self.core), combine_rows(split_by_levels(e)[1])
        diagonal = np.concatenate([np.diag(self._border[:p]), ZZ.diagonal()])
        explained = np.asarray(_as_csr(self._by_both).power(2).sum(axis=0)).ravel()
        varying = np.flatnonzero(diagonal > _NULL * explained)  # columns that vary within levels
        if len(varying):
            correction[varying] = least_squares(
                _with_dense_border(self._border, ZZ)[varying][:, varying], force[varying]
            )
        self._fit = correction + np.concatenate([rough, np.zeros(len(other_columns))])
        e = e - X @ correction[:p] - Z_other @ correction[p:]
        self._level_residuals, unexplained = split_by_levels(e)
        self._residual_square = float(weights @ (unexplained * unexplained))
        self._residual_force = combine_rows(unexplained)
        self._require_residuals(float(weights @ (y - np.average(y, weights=weights)) ** 2))
        self._other_gram = ZZ
        self._entries = LevelPairs(self.core_terms, by_other, eliminated.width, ZZ)
        self._within_levels = self._entries.values_of(ZZ)
        self._right_hand_side = self._product(self._fit[None])[0] + self._residual_force
        self._unexplained = self._level_residuals + self._by_both @ self._fit
        rows, columns = self._entries.rows + p, self._entries.columns + p
        self.pattern = Pattern.of(self.core, np.arange(p), rows, columns, MOST_CORE)
        every = np.arange(self.core)
        border_columns, border_rows = np.repeat(np.arange(p), self.core), np.tile(every, p)
        self._lower_border = np.flatnonzero(border_rows >= border_columns)
        border = border_rows[self._lower_border], border_columns[self._lower_border]
        self._places = [self.pattern.places(*entries) for entries in (border, (rows, columns), (every, every))]
        heavy = conditional.heavy
        self._noise_heavy = None if heavy is None else replace(heavy, columns=heavy.columns - (model.inner_dim - 1))

    @property
    def noise_of_residuals(self) -> float:
        """log σ by the residuals of least squares; ∞ if effects and coefficients leave none."""
        freedom = self._weight * (1 - (self.model.columns + self.model.effect_count) / self.model.n)
        if not (freedom > 0 and self._residual_square > 0):
            return np.inf
        return 0.5 * float(np.log(self._residual_square / freedom))

    def _require_residuals(self, total: float) -> None:
        """Refuse a response that coefficients and effects, fewer than the rows, fit exactly: p(φ) grows as σ → 0.

        total: the sum of its squares, less its mean.
        """
        model = self.model
        determined = model.columns + model.effect_count < model.n
        if determined and self.known_noise is None and self._residual_square <= _EXACT * total:
            why = (
                "no residual tells how large the noise is; look whether a factor or a column repeats the response, and "
                "leave it out"
            )
            allowed = f"labels that leave residuals for the family {model.loss.name!r}"
            raise requirement("y", allowed, "labels that the groups and columns fit exactly", why, NoResidualsError)

    @property
    def batch_size(self) -> int:
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
        parts = [phi[begin : begin + self.batch_size] for begin in range(0, len(phi), self.batch_size)]
        if len(parts) == 1:
            return self.conditional_law(phi).log_density
        out = []
        with ThreadPoolExecutor(cores()) as pool, one_blas_thread():
            for part in pool.map(self.conditional_law, parts):
                check_budget()
                out.append(part.log_density)
        return np.concatenate(out)

    @np.errstate(all="ignore")
    def conditional_law(self, phi: Array) -> ConditionalLaw:
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
        K, right_hand_side = self._core_matrices(inverse, rho, scale)
        solution, root, log_root = self._solve(K, right_hand_side, scale)
        d = solution - self._fit
        e = self._residuals(d)
        scaled = np.array([sum(inverse[i, j] * e[j] for j in range(i + 1)) for i in range(r)])
        product = self._product(d)
        inner = self._residual_square + np.einsum("sj,sj->s", d, product - 2 * self._residual_force)
        sizes = np.einsum("sj,sj->s", abs(d), abs(product) + 2 * abs(self._residual_force))
        rounding = _ROUNDING * rho * (self._residual_square + sizes)
        v = self._unscaled(solution, scale)
        Q = rho * (inner + np.einsum("isl,isl->s", scaled, scaled))
        Q = Q + ((solution[:, : self.columns] - self._mean) ** 2) @ self._precision + (v * v).sum(axis=1)
        volume = log_root - sum(np.log(inverse[i, i]).sum(axis=1) for i in range(r))
        log_density = -self._weight * log_sigma - 0.5 * Q - volume - self._prior(theta, log_sigma)
        lost = np.isnan(log_density) | (rounding > 1)  # if σ is far too small, Q has no correct digits
        return ConditionalLaw(phi, np.where(lost, -np.inf, log_density), solution, root, Y, within)

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
        """The entries of K for each state, as its pattern orders them, and K (β, v) at the solution."""
        r, _, S, q = inverse.shape
        p, n = self.columns, self.core
        products = {}  # N⁻¹ = N^−½ᵀN^−½, its entries i ≥ j
        for i in range(r):
            for j in range(i + 1):
                products[i, j] = sum(inverse[k, i] * inverse[k, j] for k in range(i, r))
        N_inverse = np.empty((r, r, S, q))
        for (i, j), value in products.items():
            N_inverse[i, j] = N_inverse[j, i] = value
        explained = np.concatenate([self._by_beta, self._unexplained[:, None]], axis=1).reshape(q, r, p + 1)
        coefficients = np.concatenate([products[i, j] * (1 + (i != j)) for i, j in products], axis=1)
        values = self._within_levels[:, None] + self._entries.sums @ np.ascontiguousarray(coefficients.T)
        right_hand_side, K = np.empty((S, n)), []
        of_beta, of_others, diagonal = self._places
        for s in range(S):
            by_level = np.einsum("ijl,ljp->lip", N_inverse[:, :, s], explained).reshape(q * r, p + 1)
            added = np.asarray(self._by_both.T @ by_level)
            right_hand_side[s] = rho[s] * (self._right_hand_side + added[:, p])
            scale_of_state = [M[s : s + 1] for M in scale]
            entries = np.zeros(self.pattern.numbers)
            border = rho[s] * self._apply_factors((self._border + added[:, :p]).T, scale_of_state)
            entries[of_beta] = border.ravel()[self._lower_border]
            entries[of_others] = self._entries.scale_entries(rho[s] * values[:, s], scale_of_state)
            entries[diagonal] += np.concatenate([self._precision, np.ones(n - p)])
            K.append(entries)
        right_hand_side = self._apply_factors(right_hand_side, scale)
        right_hand_side[:, :p] += self._precision * self._mean
        return K, right_hand_side

    def _product(self, x: Array) -> Array:
        """Gx of states; G consists of dense columns of β and a sparse rest."""
        p = self.columns
        out: Array = x[:, :p] @ self._border.T
        out[:, :p] += x[:, p:] @ self._border[p:]
        out[:, p:] += (self._other_gram @ x[:, p:].T).T
        return out

    def _apply_factors(self, x: Array, scale: list[Array], inverse: bool = False, forward: bool = False) -> Array:
        """Tᵀx of states; Tx if `forward`, T⁻¹x if `inverse`."""
        out, begin = x.copy(), self.columns
        for term, M in zip(self.core_terms, scale, strict=True):
            part = slice(begin, begin + term.count * term.width)
            factors = np.linalg.inv(M) if inverse else (M if forward else M.transpose(0, 2, 1))
            blocks = x[:, part].reshape(len(x), term.count, term.width)
            out[:, part] = np.einsum("sab,slb->sla", factors, blocks).reshape(len(x), term.count * term.width)
            begin = part.stop
        return out

    def _unscaled(self, x: Array, scale: list[Array]) -> Array:
        """v of the terms that are not eliminated."""
        return self._apply_factors(x, scale, inverse=True)[:, self.columns :]

    def _solve(self, K: list[Array], right_hand_side: Array, scale: list[Array]) -> tuple[Array, list[Factor], Array]:
        """x, the factors L and log |L|, which is nan if there is no factor."""
        roots = [self.pattern.factor(numbers) for numbers in K]
        logs = np.array([root.log_root for root in roots])
        solutions = np.zeros(right_hand_side.shape)
        for s in np.flatnonzero(np.isfinite(logs)):
            solutions[s] = roots[s].solve(right_hand_side[s])
        return self._apply_factors(solutions, scale, forward=True), roots, logs

    def _residuals(self, d: Array) -> Array:
        """ẽ − ãd of every level: (states, core) → (r, states, levels)."""
        first = self.eliminated
        e = self._level_residuals - (self._by_both @ d.T).T
        return np.ascontiguousarray(np.moveaxis(e.reshape(len(d), first.count, first.width), -1, 0))

    # Draws

    def draw(self, law: ConditionalLaw, state: int, normals: Array) -> Array:
        """A draw of w given φ number `state`, from as many standard normal numbers as w has coordinates."""
        model, first, single = self.model, self.eliminated, slice(state, state + 1)
        theta, log_sigma = self.split(law.phi[single])
        scale, n, r = self._core_factors(theta), self.core, first.width
        w = np.empty(model.inner_dim)
        if self.known_noise is None:
            w[-1] = log_sigma[0]
        displacement = law.root[state].displace(normals[:n])
        x = law.solution[state] + self._apply_factors(displacement[None], scale, forward=True)[0]
        w[self.places] = x
        e = np.exp(-log_sigma[0]) * self._residuals(x[None] - self._fit)[:, 0]
        Y, root = law.Y[:, :, state], law.within[:, :, state]
        right_hand_side = [sum(Y[j, i] * e[j] for j in range(r)) for i in range(r)]
        inner = [sum(root[i, j] * right_hand_side[j] for j in range(i + 1)) for i in range(r)]
        noise = normals[n : n + first.count * r].reshape(first.count, r)
        total = [inner[i] + noise[:, i] for i in range(r)]
        v = [sum(root[j, i] * total[j] for j in range(i, r)) for i in range(r)]
        M = first.covariance.factor(theta[:, first.theta])[0]
        term_blocks = np.array([sum(M[i, j] * v[j] for j in range(i + 1)) for i in range(r)])
        first.put_blocks(term_blocks, w)
        return w


class LevelPairs:
    """Where symmetric matrices of the effects of some terms have entries: for two levels that occur together in a row,
    or in a level of the eliminated term, in blocks of (r, r′); only one of (l, l′) and (l′, l) is stored.

    by_other: ã of these effects. gram: what is added to its squares. rows, columns: where the entries are, block by
    block for each pair of terms. sums: the sparse matrix that maps the entries (i, j), i ≥ j, of N⁻¹ of every level to
    the entries of Σ ãᵀN⁻¹ã.
    """

    def __init__(self, terms: list[Term], by_other: MatrixLike, width: int, gram: MatrixLike) -> None:
        self._size = size = by_other.shape[1]
        widths = np.concatenate([np.zeros(0, np.int64), *(np.full(term.count, term.width) for term in terms)])
        begins = np.cumsum(np.append(0, widths))[:-1]
        level_of = np.repeat(np.arange(len(widths)), widths)
        term_of = np.repeat(np.arange(len(terms)), [term.count for term in terms])
        first, second = _meeting_levels(by_other, width, gram, level_of)
        self._parts: list[tuple[int, int, slice, tuple[int, int]]] = []
        rows, columns, begin = [], [], 0
        for first_term, second_term in sorted(set(zip(term_of[first].tolist(), term_of[second].tolist(), strict=True))):
            mask = (term_of[first] == first_term) & (term_of[second] == second_term)
            shape = terms[first_term].width, terms[second_term].width
            grid = np.ones((int(mask.sum()), *shape), np.int64)
            rows.append((grid * (begins[first[mask]][:, None, None] + np.arange(shape[0])[:, None])).ravel())
            columns.append((grid * (begins[second[mask]][:, None, None] + np.arange(shape[1]))).ravel())
            self._parts.append((first_term, second_term, slice(begin, begin + grid.size), shape))
            begin += grid.size
        none = np.zeros(0, np.int64)
        self.rows, self.columns = np.concatenate([none, *rows]), np.concatenate([none, *columns])
        self._order = np.argsort(self.rows * size + self.columns)
        self._sorted = (self.rows * size + self.columns)[self._order]
        self.sums = self._sums_matrix(by_other, width)

    def __len__(self) -> int:
        return len(self.rows)

    def _places(self, numbers: Indices) -> tuple[Indices, Indices]:
        """Which of some entries, numbered row by row, are stored, and where."""
        nearest = np.minimum(np.searchsorted(self._sorted, numbers), max(len(self) - 1, 0))
        present = np.flatnonzero(self._sorted[nearest] == numbers) if len(self) else np.zeros(0, np.int64)
        return present, self._order[nearest[present]]

    def values_of(self, matrix: MatrixLike) -> Array:
        """The stored entries of a sparse matrix."""
        entries, out = matrix.tocoo(), np.zeros(len(self))
        present, places = self._places(entries.row.astype(np.int64) * self._size + entries.col)
        out[places] = entries.data[present]
        return out

    def scale_entries(self, values: Array, scale: list[Array]) -> Array:
        """Replace the entries of Q by those of TᵀQT of one state."""
        for first, second, part, shape in self._parts:
            if shape == (1, 1):
                values[part] *= scale[first][0, 0, 0] * scale[second][0, 0, 0]
            else:
                values[part] = (scale[first][0].T @ values[part].reshape(-1, *shape) @ scale[second][0]).ravel()
        return values

    def _sums_matrix(self, by_other: MatrixLike, r: int) -> MatrixLike:
        from scipy.sparse import coo_matrix, csr_matrix, hstack

        q, n = by_other.shape[0] // r, by_other.shape[1]
        lines = [by_other[a::r].tocsr() for a in range(r)]
        parts = []
        for i in range(r):
            for j in range(i + 1):
                entry, level, value = _pair_products(lines[i], lines[j], n)
                if i != j:  # half of both orders, as coefficients count twice
                    reverse = _pair_products(lines[j], lines[i], n)
                    entry, level = np.concatenate([entry, reverse[0]]), np.concatenate([level, reverse[1]])
                    value = 0.5 * np.concatenate([value, reverse[2]])
                present, places = self._places(entry)
                parts.append(csr_matrix(coo_matrix((value[present], (places, level[present])), shape=(len(self), q))))
        return csr_matrix(hstack(parts, format="csr"))


def _meeting_levels(by_other: MatrixLike, r: int, gram: MatrixLike, level_of: Indices) -> tuple[Indices, Indices]:
    """Pairs of levels l ≥ l′ of other terms that occur together, including each with itself."""
    from scipy.sparse import csr_matrix, identity, tril

    levels = int(level_of.max(initial=-1)) + 1

    def by_levels(matrix: MatrixLike, rows: Indices, count: int) -> MatrixLike:
        return csr_matrix((np.ones(matrix.nnz), (rows, level_of[matrix.col])), shape=(count, levels))

    in_levels, in_rows = by_other.tocoo(), gram.tocoo()
    met_in_level = by_levels(in_levels, in_levels.row // r, by_other.shape[0] // r)
    rows = by_levels(in_rows, level_of[in_rows.row], levels)
    pairs = tril(met_in_level.T @ met_in_level + rows + identity(levels), format="coo")
    return pairs.row.astype(np.int64), pairs.col.astype(np.int64)


def eliminated_term(model: MixedModel) -> Term:
    """The term with the most effects among those in which each row has one level."""
    return max((term for term in model.terms if term.group.by_level), key=lambda term: term.count * term.width)


def refusal(model: MixedModel) -> str | None:
    """Why the scales of a model cannot be sampled by their own density; None if they can.

    Sizes decide: the dense part of K takes core³/3 operations for each φ, and ã as many products as there are pairs of
    entries in a level.
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
    met = _effects_by_level(model, first)
    pairs = float((np.diff(met.indptr).astype(np.float64) ** 2).sum()) * first.width**2
    if pairs > MOST_PAIRS:
        return f"{pairs:,.0f} pairs of effects meet in the levels of {first.group.label}, beyond {MOST_PAIRS:,.0f}"
    meeting = (met.T @ met).tocoo()
    places = model.columns + meeting.row.astype(np.int64), model.columns + meeting.col.astype(np.int64)
    if core > MOST_CORE and Pattern.of(core, np.arange(model.columns), *places, MOST_CORE).core > MOST_CORE:
        return (
            f"{core:,} coefficients and effects are left beside those of {first.group.label}, of which more than "
            f"{MOST_CORE:,} nearly all depend on each other"
        )
    return None


def _effects_by_level(model: MixedModel, first: Term) -> MatrixLike:
    """Which effects of other terms occur in each level of a term, as a CSR matrix (level, effect)."""
    from scipy.sparse import csr_matrix

    p, nonzero = model.columns, _as_csr(model.design[1]) != 0
    eliminated = slice(first.effects.start - p, first.effects.stop - p)
    other_effects = np.setdiff1d(np.arange(model.effect_count), np.arange(eliminated.start, eliminated.stop))
    lines = (nonzero[:, eliminated].T.astype(np.float64) @ nonzero[:, other_effects].astype(np.float64)).tocoo()
    shape = first.count, len(other_effects)
    met = csr_matrix((np.ones(lines.nnz), (lines.row // first.width, lines.col)), shape=shape)
    met.sum_duplicates()
    return met


def _as_csr(Z: MatrixLike) -> MatrixLike:
    from scipy.sparse import csr_matrix

    return csr_matrix(Z)


def _with_dense_border(border: Array, inner: MatrixLike) -> MatrixLike:
    """A symmetric matrix whose first columns, the border, are dense."""
    from scipy.sparse import bmat, csr_matrix

    p = border.shape[1]
    total = csr_matrix(bmat([[csr_matrix(border[:p]), csr_matrix(border[p:].T)], [csr_matrix(border[p:]), inner]]))
    total.sort_indices()
    return total


def _join_columns(by_beta: Array, by_other: MatrixLike) -> MatrixLike:
    """ã of all columns; dense if they are those of β alone."""
    from scipy.sparse import csr_matrix, hstack

    return by_beta if not by_other.shape[1] else hstack([csr_matrix(by_beta), by_other], format="csr")


def _level_roots(D: Array) -> tuple[Array, Array]:
    """F with FFᵀ = D, and F⁺: (r, r, levels). Directions in which the rows of a level do not vary give columns of 0."""
    r, q = D.shape[0], D.shape[2]
    length = np.sqrt(np.maximum(np.einsum("aal->al", D), 0.0))
    safe_length = np.where(length > 0, length, 1.0)
    if r == 1:
        return length[:, None, :], np.where(length > 0, 1 / safe_length, 0.0)[:, None, :]
    values, vectors = np.linalg.eigh(np.moveaxis(D / (safe_length[:, None] * safe_length[None]), -1, 0))
    positive = values > _NULL * r
    root = np.sqrt(np.where(positive, values, 0.0))
    inverse = np.where(positive, 1 / np.where(positive, root, 1.0), 0.0)
    F = safe_length.T[:, :, None] * vectors * root[:, None, :]
    plus = inverse[:, :, None] * np.swapaxes(vectors, 1, 2) / safe_length.T[:, None, :]
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


def _pair_products(left: MatrixLike, right: MatrixLike, n: int) -> tuple[Indices, Indices, Array]:
    """All products of an entry of one row and an entry of the other, for every level: entry, level and value."""
    a, b = np.diff(left.indptr), np.diff(right.indptr)
    level = np.repeat(np.arange(len(a)), a * b)
    inside = np.arange(len(level)) - np.repeat(np.cumsum(a * b) - a * b, a * b)
    width = np.repeat(b, a * b)
    first, second = left.indptr[level] + inside // width, right.indptr[level] + inside % width
    entry = left.indices[first].astype(np.int64) * n + right.indices[second]
    return entry, level, left.data[first] * right.data[second]
