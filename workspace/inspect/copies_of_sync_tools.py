"""Conflict copies of sync tools: two machines have changed one file. They may contain an edit, and no run reads them.

Dropbox, Nextcloud and Seafile write `todo (conflicted copy 2026-11-23).md`, Syncthing `todo.sync-conflict-DATE-ID.md`,
rclone `todo.conflict1.md`, Google Drive and OneDrive `todo (1).md`, OneDrive also `todo-DESKTOP-1A2B3C.md`, and iCloud
`todo 2.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..base import DEFINITION
from ..store import Store

_SURE = re.compile(
    r"\.sync-conflict-[0-9]{8}-[0-9]{6}(-[A-Z0-9]{7})?|_conflict-[0-9]{8}-[0-9]{6}|\.conflict[0-9]+(?=\.|\Z)"
    r"|[ _-]*\(([^()]* )?(conflicted copy|case conflict|case clash|edit conflict|sfconflict"
    r"|unicode encoding conflict|selective sync conflict)\b[^()]*\)",
    re.IGNORECASE,
)
"""What no person writes into a name."""

_TOLD = re.compile(
    rf"{_SURE.pattern}|\.sync-conflict-[^.]+|[ _-]*\([^()]*conflict[^()]*\)|[_-]conflict-[0-9][^.]*", re.IGNORECASE
)
_MACHINE = r"-(DESKTOP|LAPTOP)-[0-9A-Z]+(-[0-9]+)?"
_LIKELY = re.compile(rf"(.+?)( \([0-9]{{1,3}}\)|{_MACHINE}| [0-9]{{1,2}})")
_LIKELY_IN_INBOX = re.compile(rf"(.+?)({_MACHINE})")
_TOP = (DEFINITION, "todo.md", "state.json", "pause.yaml", "messages.jsonl")


class SyncCopy(NamedTuple):
    path: str
    of: str  # the file that it is a copy of

    def __str__(self) -> str:
        looks = f"{self.path} looks like a sync tool's copy of {self.of}"
        match self.path.partition("/")[0]:
            case "inbox":
                if is_sync_copy(self.path):
                    return f"{looks}. The run does not take it. Remove it, or give it another name if it is a task"
                return f"{looks}. The run would do it as a separate task. Compare the two files and remove one"
            case "journal" | "checkpoints":
                return f"{looks}: another machine may have continued this run. Move the copy out of the folder"
        return (
            f"{looks}. The run does not read the copy, and an edit may be in it. Compare the two, save what is "
            f"right in {self.of}, and remove the copy"
        )


def is_sync_copy(path: str) -> bool:
    """Whether the name of a file tells that it is such a copy for sure. In the inbox it is no task then."""
    return _SURE.search(path.rpartition("/")[2]) is not None


def sync_copies(store: Store, agents: Iterable[str]) -> Iterator[SyncCopy]:
    """The copies of files that people and Satchel write. `agents` are the folders of the agents, `""` or
    `agents/NAME/`."""
    for folder in ("journal", "checkpoints", "approvals", "inbox"):
        yield from _of_folder(store, folder)
    for agent in agents:
        yield from _of_folder(store, agent.rstrip("/"), _TOP)
        for steps in store.folders(f"{agent}steps"):
            yield from _of_folder(store, steps)


def _of_folder(store: Store, folder: str, own: Iterable[str] = ()) -> Iterator[SyncCopy]:
    """`own`: these files of the run are in a folder of people. People name the files of the inbox, too: there a number
    at the end means nothing."""
    top = f"{folder}/" if folder else ""
    names = [entry.path.removeprefix(top) for entry in store.list(folder)]
    for name in names:
        stem, dot, ending = name.rpartition(".")
        if (told := (_SURE if folder == "inbox" else _TOLD).search(name)) is not None:
            of = name[: told.start()] + name[told.end() :]
        elif (likely := (_LIKELY_IN_INBOX if folder == "inbox" else _LIKELY).fullmatch(stem)) is not None:
            of = f"{likely[1]}{dot}{ending}"
        else:
            continue
        if of in own or (not own and (told or of in names)):
            yield SyncCopy(top + name, top + of)
