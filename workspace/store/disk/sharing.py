"""Have a file of one workspace in another one without a copy."""

from __future__ import annotations

import os

from .store import DiskStore


def link(source: DiskStore, to: DiskStore, path: str) -> bool:
    """Give a file that never changes the same name in another store. False if the file system can't do it. The name is
    durable once its folder is settled."""
    existing, new = source._inside(path), to._inside(path)
    to._make_folder(os.path.dirname(path), durable=False)
    try:
        to._os.link(existing, new)
    except FileExistsError:
        return True
    except OSError:  # another file system, or one without links
        return False
    return True
