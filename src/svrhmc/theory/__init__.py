"""Exact laws of the samplers on quadratics."""

from svrhmc.theory.exact import Law, laws

__all__ = ["Law", "laws"]
