"""Storage: one contract, one module per kind."""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from .contract import (
        AT_ONCE,
        Abilities,
        AppendFile,
        Entry,
        Exchanged,
        Exposure,
        FileChanged,
        FileContent,
        Store,
        SubStore,
        Sync,
        Trace,
        Version,
        read_if_there,
    )
    from .disk.store import DISPLACED, LOCK, READ_LIMIT, TEMPORARY, DiskStore, displaced_name, link, settle_place
    from .disk.syscalls import Syscalls
    from .probe import PROBE, check_conditional_puts, check_lock, check_writes
    from .registry import open_store
    from .remote.remote_store import RemoteStore
