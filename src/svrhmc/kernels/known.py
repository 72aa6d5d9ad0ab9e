"""The losses that are compiled, by name: every file that adds some is named here."""

from __future__ import annotations

from svrhmc.kernels import counts, losses, wide

FILES = (losses, counts, wide)
KERNELS = losses.KERNELS
