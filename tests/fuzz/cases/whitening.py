"""Whitening: maps there and back, and what a target is in new variables."""

import numpy as np
from hypothesis import strategies as st

from svrhmc import targets, whitening

from .. import inputs
from ..judge import agree, ask, holds
from ..registry import case
from .targets import build, models, quadratics


@case(st.tuples(models(), st.sampled_from([None, "dense", "diagonal", "low rank", "sparse", "x"]), st.one_of(st.none(), inputs.count)),
      "svrhmc.whitening.*", "svrhmc.whitening.Whitening.*", cost=0.05)  # fmt: skip
def maps(given):
    """WᵀHW = I for a dense one; there and back is where it was; a file's arrays make it again."""
    model, kind, rank = given
    target = build(model)
    made = ask(whitening.whitening, target, kind, rank)
    z = np.cos(np.arange(3 * target.dim)).reshape(3, target.dim)
    x = ask(made.out, z)
    back = ask(made.into, x)
    W = ask(made.displace, np.eye(target.dim)).T
    sizes = np.linalg.svd(W, compute_uv=False)
    condition = sizes[0] / max(sizes[-1], 1e-300)
    reach = np.abs(made.centre).max() / max(sizes[-1], 1e-300)
    if condition < 1e6 and reach < 1e6:
        agree("there and back", back, z, 1e-6)
    agree("Wᵀg", ask(made.pull, np.ones(target.dim)), W.T @ np.ones(target.dim), 1e-9 * np.abs(W).sum())
    agree("variances", ask(made.variances), np.diag(W @ W.T), 1e-9 * np.diag(W @ W.T))
    ask(made.norms, np.ones((2, target.dim)))
    ask(made.images, np.ones((2, target.dim)))
    H = target.modal_hessian
    if kind in ("dense", "sparse") and condition < 1e6 and model[1].digits < 1e-6:
        agree("WᵀHW", W.T @ H @ W, np.eye(target.dim), 1e-6 * max(1, condition * 1e-3))
    again = ask(whitening.whitening_of, made.kind, made.arrays(), made.said())
    holds((ask(again.out, z) == x).all(), "another map from its arrays")
    for name in ("operations", "leftover", "for_sparse_rows"):
        ask(lambda name=name: getattr(made, name))


@case(st.tuples(st.one_of(models(odd=False), quadratics(tame=True)), st.sampled_from([None, "dense", "diagonal"])),
      "svrhmc.whitening.whitened", "svrhmc.whitening.Whitened", "svrhmc.whitening.WhitenedRows", "svrhmc.whitening.WhitenedComponents", "svrhmc.whitening.is_whitened", cost=0.05)  # fmt: skip
def spaces(given):
    """f and its gradient in z, from those in x."""
    model, how = given
    target = build(model) if len(model) > 2 else ask(targets.gaussian, *model)
    space = ask(whitening.whitened, target, how if len(model) > 2 else None)
    holds(ask(whitening.is_whitened, space) and not whitening.is_whitened(target), "whitened or not")
    z = np.cos(np.arange(target.dim))
    x = ask(space.out, z[None, :])[0]
    f, g = ask(space.potential, z), ask(space.gradient, z)
    f0, g0 = ask(space.potential, 0 * z), ask(target.gradient, x)
    x0 = ask(space.out, 0 * z[None, :])[0]
    W = np.stack([ask(space.out, row[None, :])[0] - x0 for row in np.eye(target.dim)]).T
    there = ask(target.potential, x) - ask(target.potential, x0)
    digits = model[1].digits if len(model) > 2 else 1e-9
    size = abs(f) + abs(f0) + abs(ask(target.potential, x)) + abs(ask(target.potential, x0)) + 1
    agree("f in z", f - f0, there, 100 * digits * size)
    agree("∇f in z", g, W.T @ g0, 100 * digits * (np.abs(W.T) @ np.abs(g0) + size))


@case(
    st.tuples(
        st.integers(1, 3).flatmap(lambda d: st.tuples(inputs.numbers(d), inputs.symmetric(d))),
        st.sampled_from([None, "dense", 3]),
    ),
    "svrhmc.whitening.dense_whitening",
    "svrhmc.whitening.require_whitening",
)
def doors(given):
    """A Hessian that is one, or none."""
    (centre, H), other = given
    holds(len(whitening.KINDS) == 4, "kinds")
    try:
        ask(whitening.require_whitening, other, 2)
        raise AssertionError(f"{other!r} was taken for a whitening")
    except Exception as error:
        if isinstance(error, AssertionError):
            raise
    made = ask(whitening.dense_whitening, np.array(centre), np.array(H))
    W = made.displace(np.eye(len(centre))).T
    A = np.array(H)
    if np.abs(A).max() < 1e100 and np.linalg.cond(A) < 1e8:
        agree("WᵀHW", W.T @ A @ W, np.eye(len(centre)), 1e-5)
