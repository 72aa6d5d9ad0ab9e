"""How much memory this process may still take: of the machine, of its control group, and of its own limits."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def free_memory() -> float:
    """Bytes; infinity where the system does not say."""
    return min([*_of_machine(), *_of_group(), *_of_limits(), float("inf")])


def _of_machine() -> list[float]:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return [1024.0 * int(line.split()[1])]
    with suppress(AttributeError, ValueError, OSError):
        return [float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))]
    return []


def _of_group() -> list[float]:
    """Linux, version 2 of control groups: a container's own limit."""
    with suppress(OSError, ValueError):
        most = (_GROUP / "memory.max").read_text().strip()
        if most != "max":
            return [float(int(most) - int((_GROUP / "memory.current").read_text()))]
    return []


def _of_limits() -> list[float]:
    """RLIMIT_AS, less the addresses that are taken."""
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            return [float(most - taken)]
    return []
