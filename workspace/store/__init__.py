"""Storage: one contract, one module per kind."""

from .contract import Content, Entry, Exchanged, FileChanged, Log, Store, Sync, Trace, Version
from .disk import DiskStore
from .syscalls import Syscalls

__all__ = [
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


def open_store(url: str) -> Store:
    """The store of a workspace, by where it lies. FileNotFoundError-free: UsageError if there is no such folder."""
    import os

    from ..errors import UsageError

    if "://" in url and not url.startswith("file://"):
        raise UsageError("only workspaces on a local disk can be opened", path=url)
    folder = os.path.expanduser(url.removeprefix("file://"))
    if not os.path.isdir(folder):
        raise UsageError("no such folder", path=url, remedy="`satchel new` makes a workspace")
    return DiskStore(folder)
