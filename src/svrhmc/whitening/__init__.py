"""Whitening: a change of variables in which a posterior looks like N(0, I)."""

from svrhmc.whitening.at_mode import KINDS, whitened, whitening, whitening_of
from svrhmc.whitening.maps import DenseWhitening, LowRankWhitening, Map, Whitening, dense_whitening, require_whitening
from svrhmc.whitening.sparse import SparseWhitening
from svrhmc.whitening.targets import Whitened, WhitenedComponents, WhitenedRows, is_whitened

__all__ = [
    "KINDS",
    "DenseWhitening",
    "LowRankWhitening",
    "Map",
    "SparseWhitening",
    "Whitened",
    "WhitenedComponents",
    "WhitenedRows",
    "Whitening",
    "dense_whitening",
    "is_whitened",
    "require_whitening",
    "whitened",
    "whitening",
    "whitening_of",
]
