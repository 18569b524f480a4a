"""The number of cores that this process may use: of the machine, or of its container."""

from __future__ import annotations

import math
import os
from contextlib import suppress

_CGROUPS = "/sys/fs/cgroup"


def usable() -> int:
    """At least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _quota(groups: str = _CGROUPS, own: str = "/proc/self/cgroup") -> float | None:
    """The smallest limit of this process's control group (version 2) and the groups around it, in cores; None: no
    limit."""
    found: list[float] = []
    try:
        with open(own) as file:
            path = next((line[3:].strip() for line in file if line.startswith("0::")), "")
    except (OSError, ValueError):
        return None
    while path:
        with suppress(OSError, ValueError), open(f"{groups}{path.rstrip('/')}/cpu.max") as file:
            limit, period = file.read().split()
            found.append(int(limit) / int(period))  # a ValueError: `max`
        path = os.path.dirname(path) if path != "/" else ""
    return min(found, default=None)
