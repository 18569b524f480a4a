"""Storage: one contract, one module per kind."""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from .contract import (
        AT_ONCE,
        LARGE_LIMIT,
        READ_LIMIT,
        Abilities,
        AppendFile,
        Entry,
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
    from .disk_store import DISPLACED, LOCK, TEMPORARY, DiskStore, displaced_name, link, make_place, settle_place
    from .registry import PROBE, ListedDisk, check_conditional_puts, check_lock, check_writes, listed, open_store
    from .remote_store import RemoteStore
    from .syscalls import Syscalls, apart, open_standard
