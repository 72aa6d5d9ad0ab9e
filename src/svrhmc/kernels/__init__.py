"""All compiled code, and nothing else; it stands on NumPy, numba and `svrhmc.core` alone, for targets and engines."""
