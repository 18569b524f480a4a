"""Storage: one contract, one module per kind."""

from typing import TYPE_CHECKING

from ..base.lazy import lazily

if TYPE_CHECKING:
    from .contract import (
        AT_ONCE,
        Abilities,
        Content,
        Entry,
        Exchanged,
        FileChanged,
        Log,
        Store,
        Sync,
        Trace,
        Version,
        read_if_there,
    )
    from .disk.store import DISPLACED, LOCK, READ_LIMIT, TEMPORARY, DiskStore, displaced_name
    from .disk.syscalls import Syscalls
    from .prefix import Part
    from .probe import PROBE, check_conditional_puts, check_lock
    from .registry import open_store
    from .remote.base import RemoteStore
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "contract": (
                "AT_ONCE",
                "Abilities",
                "Content",
                "Entry",
                "Exchanged",
                "FileChanged",
                "Log",
                "Store",
                "Sync",
                "Trace",
                "Version",
                "read_if_there",
            ),
            "disk.store": ("DISPLACED", "DiskStore", "LOCK", "READ_LIMIT", "TEMPORARY", "displaced_name"),
            "disk.syscalls": ("Syscalls",),
            "prefix": ("Part",),
            "probe": ("PROBE", "check_conditional_puts", "check_lock"),
            "registry": ("open_store",),
            "remote.base": ("RemoteStore",),
        },
    )

__all__ = [
    "AT_ONCE",
    "DISPLACED",
    "LOCK",
    "PROBE",
    "READ_LIMIT",
    "TEMPORARY",
    "Abilities",
    "Content",
    "DiskStore",
    "Entry",
    "Exchanged",
    "FileChanged",
    "Log",
    "Part",
    "RemoteStore",
    "Store",
    "Sync",
    "Syscalls",
    "Trace",
    "Version",
    "check_conditional_puts",
    "check_lock",
    "displaced_name",
    "open_store",
    "read_if_there",
]
