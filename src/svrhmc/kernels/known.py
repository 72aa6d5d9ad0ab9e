"""The losses that are compiled, by name: every file that adds some is named here."""

from __future__ import annotations

from svrhmc.kernels import counts, losses, shared

FILES = (losses, counts, shared)
KERNELS = losses.KERNELS
