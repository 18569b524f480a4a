"""Storage: one contract, one module per kind."""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from .contract import (
        AT_ONCE,
        LARGE_LIMIT,
        READ_LIMIT,
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
        read_own,
        walk,
    )
    from .disk.one_look import ListedDisk, listed
    from .disk.store import DISPLACED, LOCK, TEMPORARY, DiskStore, displaced_name, link, make_place, settle_place
    from .disk.syscalls import Syscalls
    from .registry import PROBE, check_conditional_puts, check_lock, check_writes, open_store
    from .remote.remote_store import RemoteStore
