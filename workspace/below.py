"""The workspaces below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .names import DEFINITION


def below(root: str) -> Iterator[str]:
    """Folders with a workspace.yaml, by name. What lies inside a workspace is its own and not looked at; hidden folders
    are skipped, and links are not followed."""
    for folder, inside, files in os.walk(root):
        if DEFINITION in files:
            inside.clear()
            yield os.path.normpath(folder)
        inside[:] = sorted(name for name in inside if not name.startswith("."))
