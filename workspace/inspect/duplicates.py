"""Workspaces with the same run_id, as copies of a folder have."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ..base import DEFINITION, SatchelError
from ..store import DiskStore
from .defining import define

_NAMED = 3


def groups(run_ids: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The folders of each run_id that occurs several times, from pairs of folder and run_id."""
    found: dict[str, list[str]] = {}
    for folder, run_id in run_ids:
        found.setdefault(run_id, []).append(folder)
    return {run_id: folders for run_id, folders in found.items() if len(folders) > 1}


def beside(folder: str, run_id: str) -> list[str]:
    """The folders next to this one on a disk that have the same run_id, if the parent can be listed."""
    found: list[str] = []
    with suppress(OSError), os.scandir(os.path.dirname(folder)) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            is_other = entry.path != folder and not entry.name.startswith(".")
            if is_other and entry.is_dir(follow_symlinks=False) and _says(entry.path, run_id):
                found.append(entry.path)
    return found


def _says(folder: str, run_id: str) -> bool:
    store = DiskStore(folder)
    try:
        # Parsing a file costs a hundred times as much as reading it, and there may be thousands.
        return run_id.encode() in store.read(DEFINITION).data and define(store).run_id == run_id
    except (FileNotFoundError, SatchelError):
        return False


def said(run_id: str, folders: Sequence[str]) -> str:
    """The message about it, and what to do."""
    more = f" and {len(folders) - _NAMED} more" if len(folders) > _NAMED else ""
    return (
        f"several workspaces have the run_id {run_id}: {', '.join(folders[:_NAMED])}{more}. Give each that was never "
        "started a run_id of its own; of copies of a started run, let only one go on, since each would do what is left"
    )
