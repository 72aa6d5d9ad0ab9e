"""Generalised linear mixed models: rows, coefficients, effects of groups, and the unknown covariances of the effects.

    f(w, θ) = Σᵢ ℓ(tᵢ, yᵢ) + prior(β) + Σₖ Σ_ℓ (½ uₖ,ℓᵀ Σₖ⁻¹ uₖ,ℓ + ½ log |Σₖ|) + prior(θ),        w = (β, u, shared),

with tᵢ = oᵢ + aᵢᵀβ + Σₖ zᵢₖᵀuₖ,ℓₖ₍ᵢ₎ (`svrhmc.priors.groups`). θ holds the log standard deviations and the correlations
of every term (`svrhmc.priors.covariance`). Given θ this is a `GeneralisedLinear` whose effects have a Gaussian prior:
`conditional` is that model with a flat prior of the effects, and everything about the rows is computed by it.

The joint mode of (w, log τ) is useless, as the density is unbounded as τ → 0, or largest far away from the mass there:
`svrhmc.whitening.groups` has the variables in which such a model is sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import requirement
from svrhmc.core.randomness import Stream
from svrhmc.density.base import FiniteSum
from svrhmc.density.cholesky import Factors
from svrhmc.density.elimination import MOST_CORE
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.families.base import Loss
from svrhmc.priors.covariance import Covariance
from svrhmc.priors.groups import EffectTerm
from svrhmc.priors.terms import Flat, HalfNormal, Heavy, Settled, settle
from svrhmc.rows.base import Labels, Rows
from svrhmc.rows.csr import MatrixLike
from svrhmc.rows.forms import RowsForm
from svrhmc.rows.predictors import rows_for_loss
from svrhmc.rows.sparse import make_rows

_FULL = 0.75  # share of entries that are not 0 above which a matrix is dense
_SHARED = (
    1 << 18
)  # numbers in the rows from which on threads share a pass: a shorter pass takes less than starting them
MANY = 1 << 12  # effects, or levels of a term, from which on compiled code transforms them
DENSE = 600  # coordinates of w up to which its Hessian is dense


@dataclass(frozen=True, eq=False)
class Term:
    """One term of groups: where its effects are in w, level by level, and where its covariance is in θ."""

    group: EffectTerm
    covariance: Covariance
    effects: slice
    theta: slice

    @property
    def count(self) -> int:
        """The number of levels."""
        return self.group.count

    @property
    def width(self) -> int:
        """The number of effects of a level."""
        return self.group.width

    def blocks(self, w: Array) -> Array:
        """The effects of this term: (…, dim of w) → (r, …, levels)."""
        own = w[..., self.effects]
        if self.width == 1:  # quicker than moving axes
            return own[None]
        return np.moveaxis(own.reshape(*own.shape[:-1], self.count, self.width), -1, 0)

    def put_blocks(self, blocks: Array, into: Array) -> None:
        """The reverse of `blocks`."""
        if self.width == 1:
            into[..., self.effects] = blocks[0]
            return
        flat = np.moveaxis(blocks, 0, -1)
        into[..., self.effects] = flat.reshape(*flat.shape[:-2], self.count * self.width)


class Curvature(NamedTuple):
    """The Hessian of the conditional model at one w, dense or CSR, and for each term the positive part of the rows'
    diagonal blocks D, (r, r, levels).
    """

    hessian: MatrixLike
    blocks: list[Array]


class MixedModel(FiniteSum):
    """Made by `svrhmc.targets.glm(…, groups=[…])`."""

    scalar_parts = True
    searched_by = "groups"
    classes: Values | None = None  # what the labels 0, 1, … stand for, where they were not numbers

    def __init__(
        self,
        conditional: GeneralisedLinear,
        columns: int,
        groups: Sequence[EffectTerm],
        covariances: Sequence[Covariance],
    ) -> None:
        """columns: number of columns of X, which come before those of the groups."""
        self.conditional, self.columns = conditional, columns
        self.loss, self.n, self.left_out = conditional.loss, conditional.n, conditional.left_out
        self.row_size = int(conditional.rows.entries) + 1
        next_effect, next_theta, terms = columns, 0, []
        for group, covariance in zip(groups, covariances, strict=True):
            size = group.count * group.width
            terms.append(
                Term(
                    group,
                    covariance,
                    slice(next_effect, next_effect + size),
                    slice(next_theta, next_theta + covariance.dim),
                )
            )
            next_effect, next_theta = next_effect + size, next_theta + covariance.dim
        self.terms, self.effects, self.theta_dim = tuple(terms), slice(columns, next_effect), next_theta
        self.inner_dim, self.effect_count = conditional.dim, next_effect - columns
        self.dim = conditional.dim + next_theta
        self.names = (*(f"x[{j}]" for j in range(columns + self.shared)), *self.covariance_names)

    @property
    def group_terms(self) -> tuple[Term, ...]:  # type: ignore[override]
        """The terms of groups."""
        return self.terms

    @property
    def covariance_names(self) -> tuple[str, ...]:
        """Names of the standard deviations and correlations of the effects."""
        return tuple(name for term in self.terms for name in term.group.parameter_names())

    def coordinates_of(self, stated: Array) -> Array:
        """θ of standard deviations and correlations: (states, dim of θ) → (states, dim of θ)."""
        return np.concatenate(
            [term.covariance.from_sds_and_correlations(stated[:, term.theta]) for term in self.terms], axis=1
        )

    def outward(self, effects: Array) -> Array:
        """Effects (…, effects) of the columns in the units of the table, from those in w (`EffectTerm.outward`)."""
        return self._by_terms(EffectTerm.outward, effects)

    def inward(self, effects: Array) -> Array:
        """The reverse of `outward`."""
        return self._by_terms(EffectTerm.inward, effects)

    def _by_terms(self, move: Callable[[EffectTerm, Array], Array], effects: Array) -> Array:
        if all(term.group.centre is None for term in self.terms):
            return effects
        ends = np.cumsum([term.count * term.width for term in self.terms])[:-1]
        parts = np.split(effects, ends, axis=-1)
        return np.concatenate(
            [move(term.group, effects_of_term) for term, effects_of_term in zip(self.terms, parts, strict=True)],
            axis=-1,
        )

    @property
    def shared(self) -> int:
        """Parameters of the family that all rows share, which are last in w."""
        return self.inner_dim - self.effects.stop

    @property
    def heavy(self) -> Heavy | None:
        """The ψⱼ of coefficients and shared parameters, by their indices when the effects are left out."""
        heavy = self.conditional.heavy
        if heavy is None:
            return None
        places = np.where(heavy.columns >= self.effects.stop, heavy.columns - self.effect_count, heavy.columns)
        return replace(heavy, columns=places)

    @property
    def reported_dim(self) -> int:
        """The number of coefficients, shared parameters, standard deviations and correlations, without the effects."""
        return self.columns + self.shared + self.theta_dim

    def __repr__(self) -> str:
        terms = " + ".join(f"({term.group.label})" for term in self.terms)
        return f"MixedModel({self.loss}, n={self.n}, coefficients={self.columns + self.shared}, {terms})"

    def identity(self) -> dict[str, object]:
        """The data and the model."""
        return {**self.conditional.identity(), **self._kind(), "groups": [t.group.identity() for t in self.terms]}

    def shown(self) -> GeneralisedLinear:
        """The model given the covariances, with a flat prior of the effects, whose rows can be examined."""
        return self.conditional

    def mode(self) -> Array:
        """Refused: the joint density of effects and their scales is unbounded, or has its mode far from its mass."""
        why = "its density grows without bound as a scale goes to 0; svrhmc.sample finds its posterior"
        raise requirement("target", "one with a mode", repr(self), why)

    # The joint density, in its own coordinates (w, θ).

    def split(self, x: Array) -> tuple[Array, Array]:
        """w and θ of states (…, dim)."""
        return np.ascontiguousarray(x[..., : self.inner_dim]), x[..., self.inner_dim :]

    def potentials(self, x: Array) -> Array:
        """f(w, θ)."""
        w, _ = self.split(x)
        return self.conditional.potentials(w) + self._prior(x)[0]

    def gradients(self, x: Array) -> Array:
        """∇f by w and θ."""
        w, _ = self.split(x)
        return self._padded(self.conditional.gradients(w)) + self._prior(x)[1]

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """Those of the rows."""
        return self.conditional.parts(self.split(x)[0], indices)

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """With zeros for θ."""
        return self._padded(self.conditional.assemble(parts, indices))

    def prior_gradient(self, x: Array) -> Array:
        """Of coefficients, effects and covariances."""
        return self._padded(self.conditional.prior_gradient(self.split(x)[0])) + self._prior(x)[1]

    def _with_quadratic(self, strength: float, centre: Array) -> FiniteSum:
        raise requirement("target", "one whose prior is a sum over coordinates, to be regularised", repr(self))

    def _padded(self, gradient: Array) -> Array:
        return np.pad(gradient, [(0, 0), (0, self.theta_dim)])

    def _prior(self, x: Array) -> tuple[Array, Array]:
        """½ Σ uᵀΣ⁻¹u + q log |M| + prior(θ), and its gradient: with v = M⁻¹u, the derivative of ½|v|² by θ is −vᵀEv."""
        w, theta = self.split(x)
        total, slope = np.zeros(len(x)), np.zeros(x.shape)
        for term in self.terms:
            own = theta[:, term.theta]
            value, by_prior = term.covariance.prior(own)
            inverse = np.asarray(np.linalg.inv(term.covariance.factor(own)), np.float64)
            u = term.blocks(w)
            v = np.einsum("sab,bsl->asl", inverse, u)
            E = term.covariance.derivatives(own)
            traces = np.einsum("ksaa->sk", E)
            total += value + 0.5 * (v * v).sum(axis=(0, 2)) + term.count * _log_determinant(inverse)
            term.put_blocks(np.einsum("sba,bsl->asl", inverse, v), slope)
            by_theta = term.count * traces - np.einsum("asl,ksab,bsl->sk", v, E, v) + by_prior
            slope[:, self.inner_dim :][:, term.theta] = by_theta
        return total, slope

    def conditional_energies(self, w: Array, with_values: bool = True) -> tuple[Array, Array]:
        """f of the conditional model and its gradient, without the prior of the effects. Unless `with_values`, f may
        lack the sum over rows, if that is less work.
        """
        return self._row_sums.energies(w, with_values)

    @property
    def gradient_is_cheaper(self) -> bool:
        """Whether the gradient takes less time than f and the gradient."""
        return self._row_sums.gradient_is_cheaper

    @cached_property
    def _row_sums(self) -> SquaredRows | LossRows:
        """Sums over the rows: for squared losses from precomputed matrices, for other losses row by row."""
        loss = self.conditional.loss
        return SquaredRows(self) if loss.mixture or loss.quadratic else LossRows(self)

    def __getstate__(self) -> dict[str, object]:
        """The state for a pickle, without compiled functions."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_row_sums", "factors")}

    @property
    def randomness(self) -> Callable[[int, Indices], Stream]:
        """The random stream of chains; a compiled one if there are many effects."""
        if self.effect_count < MANY:
            return Stream
        from svrhmc.kernels.stream import CompiledStream

        return CompiledStream

    # Curvature given θ.

    @cached_property
    def factors(self) -> Factors:
        """Factors of sparse Hessians of w, whose rows of coefficients and shared parameters are dense."""
        return Factors(np.setdiff1d(np.arange(self.inner_dim), np.r_[self.effects]), MOST_CORE)

    @cached_property
    def matrix(self) -> MatrixLike:
        """Columns of X and of all groups, dense or in CSR."""
        rows: Any = self.conditional.rows.design_matrix
        return rows.X[:, : self.effects.stop] if any(self.loss.widths) else rows.X

    @cached_property
    def designs(self) -> list[Array]:
        """The columns of each further predictor of the family; a column of ones for a parameter that rows share."""
        rows: Any = self.conditional.rows.design_matrix
        parts = [
            np.ones((self.n, 1)) if window.shared else rows.X[:, window.columns]
            for window in self.loss.windows(rows.dim)[self.loss.blocks :]
        ]
        return [part if isinstance(part, np.ndarray) else part.toarray() for part in parts]

    @cached_property
    def design(self) -> tuple[Array, MatrixLike]:
        """X, and Z, dense or in CSR."""
        A = self.matrix
        X, Z = A[:, : self.columns], A[:, self.columns :]
        if isinstance(A, np.ndarray):
            return np.ascontiguousarray(X, np.float64), np.ascontiguousarray(Z, np.float64)
        return np.ascontiguousarray(X.toarray()), Z.tocsr()

    def curvature(self, w: Array, convex: bool = False) -> Curvature:
        """∇²_w of the conditional model, with a flat prior of the effects.

        convex: whether negative curvatures of a loss are replaced by 0.
        """
        return self._row_sums.curvature(w, self.conditional.form().prior_curvature(w), convex)

    def grams(self, weights: Array) -> tuple[Array, Array, MatrixLike]:
        """XᵀWX, ZᵀWX and ZᵀWZ."""
        X, Z = self.design
        weighted = X * weights[:, None]
        return X.T @ weighted, Z.T @ weighted, Z.T @ _weighted(Z, weights)

    def joined(self, XX: Array, ZX: Array, ZZ: MatrixLike) -> MatrixLike:
        """The same as one matrix, dense or CSR."""
        from scipy.sparse import bmat

        if self.inner_dim <= DENSE:
            return np.block([[XX, ZX.T], [ZX, ZZ if isinstance(ZZ, np.ndarray) else ZZ.toarray()]])
        return bmat([[XX, ZX.T], [ZX, ZZ]], format="csr")

    def gram(self, weights: Array) -> MatrixLike:
        """AᵀWA of all columns, dense or CSR."""
        return self.joined(*self.grams(weights))

    def smooth_information(self, w: Array) -> Array | None:
        """BᵀWB − BᵀWX(XᵀWX)⁺XᵀWB of the functions B of all smooths, with the curvatures W of the rows at w; those for
        σ = 1 if Gaussian noise has an unknown σ. None if there is no smooth.
        """
        places = [np.arange(t.effects.start, t.effects.stop) for t in self.terms if not t.group.by_level]
        if not places:
            return None
        form: RowsForm = self.conditional.form()
        if form.loss.mixture:
            weights = np.ones(self.n) if self.conditional.weights is None else self.conditional.weights
        else:
            C = form.curvatures(form.predictors(w[None, :])[0])
            weights = np.maximum(C[:, 0, 0] if form.loss.predictor_shape else C, 0.0)
        X, Z = self.design
        B = Z[:, np.concatenate(places) - self.columns]
        weighted = _weighted(B, weights)
        cross = np.asarray(weighted.T @ X)
        inverse = np.linalg.pinv(X.T @ (X * weights[:, None]), hermitian=True)
        gram = B.T @ weighted
        return np.asarray((gram if isinstance(gram, np.ndarray) else gram.toarray()) - cross @ inverse @ cross.T)

    def with_prior(self, hessian: MatrixLike, theta: Array) -> MatrixLike:
        """The Hessian of w given θ: with Σ⁻¹ added to the block of every level."""
        from scipy.sparse import block_diag, csr_matrix, eye, kron

        precisions = [self.precision(term, theta) for term in self.terms]
        if isinstance(hessian, np.ndarray):
            H = hessian.copy()
            for term, P in zip(self.terms, precisions, strict=True):
                H[term.effects, term.effects] += np.kron(np.eye(term.count), P)
            return H
        blocks = [kron(eye(term.count), P) for term, P in zip(self.terms, precisions, strict=True)]
        columns_block, shared_block = (csr_matrix((size, size)) for size in (self.columns, self.shared))
        total = csr_matrix(hessian + block_diag([columns_block, *blocks, shared_block], format="csr"))
        total.sort_indices()
        return total

    @staticmethod
    def precision(term: Term, theta: Array) -> Array:
        """Σ⁻¹ of a term."""
        inverse = np.linalg.inv(term.covariance.factor(theta[None, term.theta])[0])
        return np.asarray(inverse.T @ inverse)

    def conditional_energy(self, w: Array, theta: Array) -> tuple[float, Array]:
        """f of w given θ, up to a constant, and its gradient."""
        value, slope = self.conditional_energies(w[None, :])
        total, gradient = float(value[0]), slope[0].copy()
        for term in self.terms:
            u, P = term.blocks(w), self.precision(term, theta)
            pulled = P @ u
            total += 0.5 * float((u * pulled).sum())
            by_rows = term.blocks(gradient)
            term.put_blocks(by_rows + pulled, gradient)
        return total, gradient


class LossRows:
    """Σ wᵢℓ(tᵢ, yᵢ) and its derivatives, by a compiled pass if rows are many and the loss has a compiled form."""

    def __init__(self, model: MixedModel) -> None:
        self._model, self._pass = model, None
        conditional = model.conditional
        if not (conditional.form().is_small or conditional.loss.kernel is None):
            from svrhmc.rows.passes import RowsPass

            labels = Labels(conditional.y, conditional.offset, conditional.weights)
            self._pass = RowsPass(conditional.rows.design_matrix, conditional.loss, labels)

    @property
    def gradient_is_cheaper(self) -> bool:
        """A compiled pass need not make values."""
        return self._pass is not None

    def energies(self, w: Array, with_values: bool) -> tuple[Array, Array]:
        """With the prior of the coefficients."""
        conditional = self._model.conditional
        if self._pass is None:
            return conditional.energies(w)
        threads = 1 if self._model.n * self._model.row_size < _SHARED else None
        values, slopes = self._pass(w, with_values, threads)
        return values + conditional.prior_potential(w), slopes + conditional.prior_gradient(w)

    def curvature(self, w: Array, prior: Array, convex: bool) -> Curvature:
        """From the curvatures of the rows."""
        model = self._model
        form: RowsForm = model.conditional.form()
        C = form.curvatures(form.predictors(w[None, :])[0])
        if convex and form.loss.predictor_shape:
            values, vectors = np.linalg.eigh(C)
            C = (vectors * np.maximum(values, 0.0)[..., None, :]) @ vectors.swapaxes(-1, -2)
        first = C[:, 0, 0] if form.loss.predictor_shape else C
        first = np.maximum(first, 0.0) if convex else first
        X, Z = model.design
        XX, ZX, ZZ = model.grams(first)
        blocks = [term.group.blocks(np.maximum(first, 0.0)) for term in model.terms]
        if any(form.loss.widths):
            designs = model.designs
            by_shared = np.hstack([C[:, 0, [1 + c]] * S for c, S in enumerate(designs)])
            shared_block = np.block(
                [[S.T @ (C[:, [1 + c], 1 + e] * T) for e, T in enumerate(designs)] for c, S in enumerate(designs)]
            )
            XS, ZS = X.T @ by_shared, Z.T @ by_shared
        elif form.loss.predictor_shape:
            by_shared, shared_block = C[:, 0, 1:], C[:, 1:, 1:].sum(axis=0)
            XS, ZS = X.T @ by_shared, Z.T @ by_shared
        else:
            shared_block, XS, ZS = np.zeros((0, 0)), np.zeros((X.shape[1], 0)), np.zeros((Z.shape[1], 0))
        return Curvature(_with_border(model.joined(XX, ZX, ZZ), np.concatenate([XS, ZS]), shared_block, prior), blocks)


class SquaredRows:
    """Σ wᵢ(log σ + (yᵢ − oᵢ − aᵢᵀx)²/2σ²) and its gradient, from sums over the rows that are computed once:

        Σ wᵢ(yᵢ − oᵢ − aᵢᵀx)² = S + dᵀGd − 2gᵀd,     d = x − x₀,   G = AᵀWA,   e = y − o − Ax₀,   S = eᵀWe,   g = AᵀWe,

    with x₀ near the least squares fit, so that no digits cancel.
    """

    def __init__(self, model: MixedModel) -> None:
        self._conditional = conditional = model.conditional
        loss, A = conditional.loss, model.matrix
        weights = np.ones(model.n) if conditional.weights is None else conditional.weights
        y = conditional.y if conditional.offset is None else conditional.y - conditional.offset
        self._known_noise = loss.known_noise  # σ, or None where log σ is the last coordinate
        self._gram = model.gram(weights)
        self._centre = least_squares(self._gram, A.T @ (weights * y))
        e = y - A @ self._centre
        self._square, self._slope = float((weights * e * e).sum()), A.T @ (weights * e)
        self._weight, self._dim = float(weights.sum()), A.shape[1]
        self._blocks = [term.group.blocks(weights) for term in model.terms]

    def curvature(self, x: Array, prior: Array, convex: bool) -> Curvature:
        """With b = Gd − g: G/σ², its border by log σ −2b/σ², and 2 Σ wᵢ(…)²/σ² for log σ itself."""
        d = x[: self._dim] - self._centre
        product = self._gram @ d
        precision = float(np.exp(-2 * x[-1]) if self._known_noise is None else self._known_noise**-2)
        squares = self._square + float((product - 2 * self._slope) @ d)
        shared = len(x) - self._dim
        slope = np.zeros(self._dim) if convex else -2 * precision * (product - self._slope)
        border = np.tile(slope, (shared, 1)).T
        shared_block = np.full((shared, shared), 2 * precision * squares)
        return Curvature(
            _with_border(precision * self._gram, border, shared_block, prior), [precision * D for D in self._blocks]
        )

    gradient_is_cheaper = False

    def energies(self, x: Array, with_values: bool) -> tuple[Array, Array]:
        """With the prior of the coefficients: (states, dim) → (states,), (states, dim)."""
        log_sigma = np.full(len(x), np.log(self._known_noise)) if self._known_noise is not None else x[:, -1]
        d = x[:, : self._dim] - self._centre
        product = np.asarray((self._gram @ d.T).T)
        with np.errstate(over="ignore", invalid="ignore"):
            precision = np.exp(-2 * log_sigma)
            squares = self._square + ((product - 2 * self._slope) * d).sum(axis=1)
            value = self._weight * log_sigma + 0.5 * precision * squares
            gradient = np.zeros(x.shape)
            gradient[:, : self._dim] = precision[:, None] * (product - self._slope)
            if self._known_noise is None:
                gradient[:, -1] = self._weight - precision * squares
        return value + self._conditional.prior_potential(x), gradient + self._conditional.prior_gradient(x)


def _weighted(Z: MatrixLike, weights: Array) -> MatrixLike:
    """WZ, dense or CSR as Z is."""
    return Z * weights[:, None] if isinstance(Z, np.ndarray) else Z.multiply(weights[:, None]).tocsr()


def _with_border(H: MatrixLike, border: Array, shared_block: Array, prior: Array) -> MatrixLike:
    """H with the rows and columns of shared parameters appended, and a prior added to the diagonal; dense or CSR."""
    if isinstance(H, np.ndarray):
        return np.block([[H, border], [border.T, shared_block]]) + np.diag(prior)
    from scipy.sparse import bmat, csr_matrix, diags

    return csr_matrix(bmat([[H, border], [border.T, shared_block]]) + diags(prior))


def least_squares(gram: MatrixLike, force: Array) -> Array:
    """x₀ with G x₀ ≈ Aᵀy, by conjugate gradients; it need not be exact, nor G invertible."""
    from scipy.sparse.linalg import LinearOperator, cg

    diagonal = np.maximum(gram.diagonal(), 1e-300)
    scaled = LinearOperator(gram.shape, matvec=lambda v: v / diagonal, dtype=np.float64)
    solution, _ = cg(gram, force, rtol=1e-8, maxiter=200, M=scaled)
    return np.asarray(solution, np.float64)


def mixed_model(
    rows: Rows, labels: Labels, loss: Loss, prior: Settled, shared: Settled, groups: Sequence[EffectTerm]
) -> MixedModel:
    """The model of these rows, with a prior of the coefficients and one of the parameters that rows share.

    Standard deviations for which no prior was given have a half-normal one, of 2.5 s/sⱼ: s is what is typical of the
    response (`Loss.typical_predictor_and_effect`), sⱼ the standard deviation of the column, or 1 for an intercept.
    """
    from scipy.sparse import csr_matrix, hstack

    stored: Any = rows
    X = stored.X if rows.storage == "sparse" else csr_matrix(np.asarray(stored.X, np.float64))
    columns = X.shape[1] - sum(loss.widths)
    parts = [X[:, :columns], *(group.design() for group in groups), X[:, columns:]]
    A = csr_matrix(hstack(parts, format="csr"), dtype=np.float64)
    effects = A.shape[1] - X.shape[1]
    if rows.storage == "dense" and A.nnz > _FULL * A.shape[0] * A.shape[1]:
        A = A.toarray()
    settled = prior.followed(settle(Flat(), effects)).followed(shared)
    conditional = GeneralisedLinear(
        rows_for_loss(make_rows(A), loss), labels.y, loss, settled.precision, settled.mean, labels.offset,
        labels.weights, settled.heavy,
    )  # fmt: skip
    weights = np.ones(rows.n) if labels.weights is None else labels.weights
    _, typical = loss.typical_predictor_and_effect(
        labels.y, weights, np.zeros(rows.n) if labels.offset is None else labels.offset
    )
    covariances, settled_groups = [], []
    for group in groups:
        usual = [HalfNormal(float(2.5 * typical / spread)) for spread in group.spreads()]
        covariances.append(Covariance.of(group.priors(usual), group.lkj, group.centre))
        settled_groups.append(group.settled(usual))
    return MixedModel(conditional, columns, settled_groups, covariances)


def _log_determinant(inverse: Array) -> Array:
    """log |M| from M⁻¹, a lower triangle: (states, r, r) → (states,)."""
    total: Array = -np.log(np.einsum("saa->sa", inverse)).sum(axis=1)
    return total
