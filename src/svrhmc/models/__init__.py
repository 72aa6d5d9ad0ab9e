"""Models from functions in JAX, and from NumPyro, PyMC and Bambi."""
