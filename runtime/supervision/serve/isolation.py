"""How runs are kept apart: each in a process of its own, or several in a shared one, of which there are as many as the
machine, or the container that this process runs in, has room for.

`--isolate` of `serve` or `fleet` and `isolate:` of workspace.yaml can each ask for a process of its own (`process`),
and one of them has to allow sharing (`none`). A run with `restart_every` wants a new process from time to time, so it
has one of its own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Literal, NamedTuple

from ....workspace.formats import Definition
from ....workspace.store import Store
from ..child.background import open_log
from ..child.keeper_process import KeeperProcess
from ..child.sharing import SharedProcesses, ShareLimits
from ..child.supervisor import Order, Policy, Supervisor
from .known_run import Known

Isolate = Literal["process", "none"]

Say = Callable[[Literal["crashed", "late", "alone", "warned"], str], None]
"""Called with the kind and the text of an event of a run."""


def may_share(isolate: Isolate | None, definition: Definition) -> bool:
    """Whether a run may share a process where its starter says `isolate`. None: it does not say."""
    said = {isolate, definition.isolate}
    return "process" not in said and "none" in said and not definition.restarts


def shared_processes(root: str, say: Callable[[str], None], limits: ShareLimits | None = None) -> SharedProcesses:
    """As many as this machine has room for; none is started yet. `root` is shown as the argument of each. `say` is
    called with what becomes of one."""
    share = shared_by_processes(usable_cores(), usable_memory())
    limits = limits or (ShareLimits(memory=share.memory) if share.memory else ShareLimits())
    return SharedProcesses(root, share.processes, limits, say)


class Isolation:
    """Makes the supervisor of each run of a `serve`, and watches over the shared processes."""

    def __init__(
        self,
        isolate: Isolate | None,
        processes: SharedProcesses,
        drain_timeout: float | None,
        policy: Policy | None,
        keeper: KeeperProcess,
        is_kept: bool,
    ):
        """`processes` are there for the runs that share, `keeper` for those with a process of their own that want one,
        which with `is_kept` all do; none is started before the first of these."""
        self._keeper, self._is_kept = keeper, is_kept
        self._isolate, self._processes, self._drain_timeout, self._policy = isolate, processes, drain_timeout, policy

    def supervisor(self, known: Known, store: Store, say: Say) -> Supervisor:
        """For a run that is to be started. `store` is for its looks."""
        patience = [] if self._drain_timeout is None else ["--drain-timeout", str(self._drain_timeout)]
        words = ["run", "--quiet", *patience, "--", known.folder]
        definition, sharing = known.verdict.definition, None
        if definition is not None and may_share(self._isolate, definition):
            sharing = self._processes.sharing(
                known.store.url,  # which is not a path from where an agent may go
                self._drain_timeout,
                partial(say, "alone"),
                partial(say, "warned") if self._is_kept or definition.keeper else None,
            )
        order = Order(
            words,
            words,
            self._drain_timeout,
            is_only=False,
            output=lambda: open_log(known.store),
            sharing=sharing,
            keeper=self._keeper,
            is_kept=self._is_kept,
        )
        return Supervisor(store, order, lambda text: say("crashed", text), self._policy, lambda text: say("late", text))

    def look(self) -> None:
        """At the shared processes."""
        self._processes.look()

    def end(self) -> None:
        """No run is left."""
        self._processes.end()
        self._keeper.close()


# How many there may be: what the machine has

_LEAST = 512 << 20  # bytes: an interpreter with large libraries, and some runs


class MachineShare(NamedTuple):
    """How many processes with many runs may use the machine, and the bytes of memory that each may take; 0: any."""

    processes: int
    memory: int


def shared_by_processes(cores: int, memory: int) -> MachineShare:
    """One process for each core, and half of the memory for all of them. Where that is too little for so many, there
    are fewer: a process that has no room for an interpreter would be killed with its runs again and again."""
    processes = max(1, min(cores, memory // 2 // _LEAST)) if memory else cores
    return MachineShare(processes, memory // 2 // processes)


def usable_cores() -> int:
    """The number of cores that this process may use, of the machine or of its container. At least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def usable_memory() -> int:
    """The bytes of memory of the machine, or of its container. 0 where the system does not tell."""
    found = [int(limit) for (limit,) in _limits("memory.max") if limit.isdecimal()]
    with suppress(OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found, default=0)


def _quota(groups: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> float | None:
    """The smallest limit of this process's control group (version 2) and the groups around it, in cores; None: no
    limit."""
    limits = [words for words in _limits("cpu.max", groups, own) if words[0] != "max"]
    return min((int(limit) / int(period) for limit, period in limits), default=None)


def _limits(name: str, groups: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> Iterator[list[str]]:
    """What this file says, in words, for the control group of this process and each group around it."""
    try:
        with open(own) as file:
            path = next((line[3:].strip() for line in file if line.startswith("0::")), "")
    except (OSError, ValueError):
        return
    while path:
        with suppress(OSError, ValueError), open(f"{groups}{path.rstrip('/')}/{name}") as file:
            yield file.read().split()
        path = os.path.dirname(path) if path != "/" else ""
