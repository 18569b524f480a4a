"""Storage: one contract, one module per kind."""

from .contract import Abilities, Content, Entry, Exchanged, FileChanged, Log, Store, Sync, Trace, Version
from .disk import DiskStore
from .registry import open_store
from .syscalls import Syscalls

__all__ = [
    "Abilities",
    "Content",
    "DiskStore",
    "Entry",
    "Exchanged",
    "FileChanged",
    "Log",
    "Store",
    "Sync",
    "Syscalls",
    "Trace",
    "Version",
    "open_store",
]
