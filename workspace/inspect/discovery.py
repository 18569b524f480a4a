"""Find workspaces below a folder, and copies: workspaces with the same run_id, and conflict copies of sync tools.

A conflict copy is there because two machines have changed one file. It may contain an edit, and no run reads it.
Dropbox, Nextcloud and Seafile write `todo (conflicted copy 2026-11-23).md`, Syncthing `todo.sync-conflict-DATE-ID.md`,
rclone `todo.conflict1.md`, Google Drive and OneDrive `todo (1).md`, OneDrive also `todo-DESKTOP-1A2B3C.md`, and iCloud
`todo 2.md`.
"""

from __future__ import annotations

import os
import random
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import NamedTuple

from ..base import DEFINITION, SatchelError
from ..store import DiskStore, Store, SubStore
from . import transfer_file
from .transfer_file import define

_NAMED = 3
_AGAIN = 45.0  # seconds after which a folder is listed again in any case
_TICK = 2_000_000_000  # nanoseconds: names that change twice within them may leave one time

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
_HINT = re.compile(r" |conflict|clash|TOP-", re.IGNORECASE)
"""Of one of these there is a part in each such name."""
_TOP = (DEFINITION, "todo.md", "state.json", "pause.yaml", "messages.jsonl")


def below(root: str, *, with_moved: bool = False) -> Iterator[str]:
    """Folders with a workspace.yaml, by name. Folders inside a workspace and hidden folders are skipped, and links are
    not followed. `with_moved`: also places that a run has left.

    A folder that can't be read may hold a run, so it is included: the error of the first look says why.
    """
    return FolderTree(root, with_moved=with_moved).walk()


Stamp = tuple[int, int, int]


def stamp_of(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, status.st_ino, status.st_dev


class FolderTree:
    """The folders below `root`, for those who look for workspaces there again and again. `walk` yields what `below`
    does. It lists again only folders whose names may have changed, and each folder once in a while: not every file
    system notes the time of such a change."""

    def __init__(self, root: str, *, with_moved: bool = False):
        self._root, self._with_moved = os.path.normpath(root), with_moved
        self._known: dict[str, _Folder] = {}

    def stamp(self, folder: str) -> Stamp | None:
        """The stamp of a folder of the last walk: another one if the names in it have changed."""
        found = self._known.get(folder)
        return found.stamp if found else None

    def walk(self) -> Iterator[str]:
        known, self._known = self._known, {}
        refused, left, now = list[str](), [self._root], time.monotonic()
        while left:
            folder = left.pop()
            try:
                status = os.stat(folder, follow_symlinks=folder == self._root)
                stamp = stamp_of(status)
                found = known.get(folder)
                if found is None or found.stamp != stamp or now >= found.until:
                    found = self._listed(folder, stamp)
            except PermissionError:
                refused.append(folder)
                continue
            except OSError:
                continue  # it has just been removed
            self._known[folder] = found
            if found.is_workspace:
                yield folder
            else:
                left += found.inner
        yield from refused

    def _listed(self, folder: str, stamp: Stamp) -> _Folder:
        inner, names = list[str](), set[str]()
        above = "" if folder == "." else os.path.join(folder, "")
        is_workspace = _is_file(above + DEFINITION)
        with nullcontext(()) if is_workspace else os.scandir(folder) as entries:
            for entry in entries:
                try:
                    is_folder = entry.is_dir()
                    is_link = entry.is_symlink()
                except OSError:
                    is_folder, is_link = False, True
                if not is_folder:
                    names.add(entry.name)
                elif not is_link and not entry.name.startswith("."):
                    inner.append(above + entry.name)
        is_moved = self._with_moved and transfer_file.MOVED in names and _has_moved(DiskStore(folder))
        is_settled = not is_moved and stamp[0] < time.time_ns() - _TICK
        until = time.monotonic() + random.uniform(_AGAIN / 2, _AGAIN) if is_settled else 0.0
        inner.sort(reverse=True)
        return _Folder(stamp, until, is_workspace or is_moved, inner)


def _is_file(path: str) -> bool:
    """Whether there is anything but a folder, also a link that leads nowhere."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISDIR(mode) or (stat.S_ISLNK(mode) and os.path.isdir(path)))


class _Folder(NamedTuple):
    stamp: Stamp
    until: float  # by time.monotonic, from then on it is listed again, whatever its stamp
    is_workspace: bool
    inner: list[str]  # the last one first


def below_store(root: Store, *, with_moved: bool = False) -> Iterator[Store]:
    """The workspaces in a store that holds some, or is one. All use one listing, that of `root`, until one of them
    makes a new listing of its own files."""
    for folder in _inside(root, "", with_moved):
        yield SubStore(root, folder)


def _inside(root: Store, folder: str, with_moved: bool) -> Iterator[str]:
    above = f"{folder}/" if folder else ""
    is_workspace = root.version(above + DEFINITION) is not None
    if not is_workspace and with_moved and root.version(above + transfer_file.MOVED) is not None:
        is_workspace = _has_moved(SubStore(root, folder))
    if is_workspace:
        yield folder
        return
    for inner in root.folders(folder):
        if not inner.rpartition("/")[2].startswith("."):
            yield from _inside(root, inner, with_moved)


def _has_moved(store: Store) -> bool:
    try:
        return transfer_file.read_tombstone(store) is not None
    except SatchelError:
        return True  # part of a run is here, and a look at it reports the error


def duplicate_groups(run_ids: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The folders of each run_id that occurs several times, from pairs of folder and run_id."""
    found: dict[str, list[str]] = {}
    for folder, run_id in run_ids:
        found.setdefault(run_id, []).append(folder)
    return {run_id: folders for run_id, folders in found.items() if len(folders) > 1}


def duplicates_beside(folder: str, run_id: str) -> list[str]:
    """The folders next to this one on a disk that have the same run_id, if the parent can be listed."""
    found: list[str] = []
    with suppress(OSError), os.scandir(os.path.dirname(folder)) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            is_other = entry.path != folder and not entry.name.startswith(".")
            if is_other and entry.is_dir(follow_symlinks=False) and _has_run_id(entry.path, run_id):
                found.append(entry.path)
    return found


def _has_run_id(folder: str, run_id: str) -> bool:
    store = DiskStore(folder)
    try:
        # Parsing a file costs a hundred times as much as reading it, and there may be thousands.
        return run_id.encode() in store.read(DEFINITION).data and define(store).run_id == run_id
    except (FileNotFoundError, SatchelError):
        return False


def describe_duplicates(run_id: str, folders: Sequence[str]) -> str:
    """The message about it, and what to do."""
    more = f" and {len(folders) - _NAMED} more" if len(folders) > _NAMED else ""
    return (
        f"several workspaces have the run_id {run_id}: {', '.join(folders[:_NAMED])}{more}. Give each that was never "
        "started a run_id of its own; of copies of a started run, let only one go on, since each would do what is left"
    )


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
    if not _HINT.search("/".join(names)):  # as in nearly all: to search each name takes ten times as long
        return
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
