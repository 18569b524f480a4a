"""The folder of a workspace, seen from above: its name, and those of the folders that were made for it, are durable
before anything in it is told. Otherwise a power failure may take the whole run."""

from __future__ import annotations

import os
from contextlib import suppress

from .syscalls import Syscalls


def settle_place(folder: str, calls: Syscalls | None = None, *, levels: int = 100) -> None:
    """Make the name of a folder durable in the folder above it, and so on for so many `levels`: a process that was
    killed may have made them a moment ago. Ends where the file system does. A folder that this user may not read is
    another user's."""
    calls = calls or Syscalls()
    device = calls.stat(folder).st_dev
    for _ in range(levels):
        above = os.path.dirname(folder)
        if above == folder or calls.stat(above).st_dev != device:
            return
        with suppress(PermissionError):
            calls.sync_folder(above)
        folder = above
