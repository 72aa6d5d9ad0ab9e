"""Samplers executed by JAX: any differentiable model, rows and quadratics, on CPU, GPU and several devices.

Nothing here is loaded before it is used; `engine.py` alone is without JAX itself.
"""

from svrhmc.engines.jax.engine import OnJax

__all__ = ["OnJax"]
