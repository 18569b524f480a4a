"""Whether the process that left a run open has crashed, so that it counts for the items it ran (state/agent_state.py).

These do not: the end of its machine, a kill while the run was to stop, and an error of Satchel's own for which it let
go of the workspace, such as a failing disk. A stop that Satchel has forced is none either: the opening that follows it
is one of its own.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress

from ..inspect import lease
from ..state import Moment
from ..store import Store
from .acquire import Owned


def is_one(store: Store, mine: Owned, moment: Moment) -> bool:
    """Call it before the lease is written. Compares with the process of the last opening."""
    if not moment.boot or moment.boot != boot() or moment.status != "running":
        return False
    return not _has_failed(store, mine) and not _is_to_stop(store, moment)


def boot() -> str:
    """The current boot of this machine, which all its containers share; `unknown` where the system does not tell."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    with suppress(OSError):
        told = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False)
        return told.stdout.strip() or "unknown"
    return "unknown"


def _has_failed(store: Store, mine: Owned) -> bool:
    """On a disk. In a bucket its lease has another content by now, and one that can't reach the bucket could not tell
    anyway."""
    before = lease.read(store) if mine.heartbeat is None else None
    return before is not None and before.has_failed


def _is_to_stop(store: Store, moment: Moment) -> bool:
    """Whether a person wants it stopped, and the journal does not say so yet."""
    file = lease.read_pause(store)
    return file is not None and not file.lets_go_on and not file.is_of(moment.lifted)
