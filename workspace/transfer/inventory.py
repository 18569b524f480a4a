"""Which files of a workspace are transferred, in which order, and which can't be.

Everything except what belongs to a process or a machine: lock, lease, temporary files, logs, compiled code.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .. import journal
from ..base import DEFINITION, KEY_BYTES, NAME_BYTES, UsageError, is_name, shown
from ..inspect import lease, transfer_file
from ..store import DISPLACED, LOCK, PROBE, TEMPORARY, DiskStore, Entry, Store
from ..views import running_file, schema_copies

_SHOWN = 5
_ODD_NAME = "its name is not valid on every system"
_STAYING = frozenset((LOCK, lease.PATH, transfer_file.PATH, transfer_file.LEAVING))


class Fault(NamedTuple):
    """A file that can't be transferred."""

    path: str
    why: str


def walk(store: Store, folder: str = "") -> Iterator[Entry]:
    """Every file of a place, folder by folder."""
    yield from store.list(folder)
    for inner in store.folders(folder):
        yield from walk(store, inner)


def goes_along(path: str) -> bool:
    return not (path in _STAYING or path.startswith(f"{DISPLACED}/") or is_passing(path))


def is_of_a_process(path: str) -> bool:
    """A log of the processes that ran here, or compiled Python: not needed."""
    folder, _, name = path.rpartition("/")
    return (folder == ".satchel" and name.endswith(".log")) or "__pycache__" in folder.split("/")


def is_passing(path: str) -> bool:
    """Useless once the process that has made it has ended."""
    return path == running_file.PATH or path.startswith((f"{TEMPORARY}/", PROBE)) or is_of_a_process(path)


def may_be_stub(store: Store, path: str) -> bool:
    """Where there is no lock, names of the journal stay taken by empty objects: a process that was frozen before the
    move, and continues here, finds its next name taken and stops."""
    return not store.abilities.lock and path.startswith(f"{journal.FOLDER}/")


def carried(store: Store, to: Store | None = None) -> list[Entry]:
    """The transferred files in their order: the journal after the other files, workspace.yaml last, so that a half copy
    is not a workspace. A tombstone stays where it is, and so do the copies of schemas if `to` is no disk."""
    staying = transfer_file.MOVED if transfer_file.read_tombstone(store) else None
    going = (entry for entry in walk(store) if goes_along(entry.path) and entry.path != staying)
    if to is not None and to.abilities.remote:
        going = (entry for entry in going if not schema_copies.is_copy(entry.path))
    return sorted(going, key=lambda entry: _rank(entry.path))


def _rank(path: str) -> tuple[int, str]:
    return (2 if path == DEFINITION else 1 if path.startswith(f"{journal.FOLDER}/") else 0), path


def digest(hashes: Iterable[tuple[str, str]]) -> str:
    """The SHA-256 of the list of files, in the form of `sha256sum`: one number to compare two places by."""
    lines = "".join(f"{sha}  {path}\n" for path, sha in sorted(hashes))
    return hashlib.sha256(lines.encode()).hexdigest()


def refuse_faults(store: Store, to: Store, *, stays: Callable[[str], bool] = lambda path: False) -> None:
    """UsageError if the other place can't hold a file of the workspace that does not stay. Checked before anything is
    copied."""
    going = [entry.path for entry in carried(store, to) if not stays(entry.path)]
    faults = [*(fault for fault in unlisted(store) if not stays(fault.path)), *_unfit(going, to)]
    if not faults:
        return
    first, *others = faults
    more = f"; {len(others)} more: {', '.join(shown(fault.path) for fault in others[:_SHOWN])}" if others else ""
    raise UsageError(
        "can't be transferred",
        path=shown(first.path),
        why=f"{first.why}{more}",
        remedy="put the file itself there under a plain name, or move it out of the workspace",
    )


def unlisted(store: Store) -> Iterator[Fault]:
    """Everything of a place that `walk` doesn't show: not a file or folder, or with a name that is not valid
    everywhere."""
    return _of_disk(store) if isinstance(store, DiskStore) else _of_other(store, "")


def _of_other(store: Store, folder: str) -> Iterator[Fault]:
    for name in store.unusable(folder):
        if goes_along(path := f"{folder}/{name}" if folder else name):
            yield Fault(path, "neither file nor folder" if is_name(name) else _ODD_NAME)
    for inner in store.folders(folder):
        yield from _of_other(store, inner)


def _of_disk(store: Store) -> Iterator[Fault]:
    for above, folders, files in os.walk(store.url):
        inside = os.path.relpath(above, store.url).replace(os.sep, "/")
        for name in sorted([*folders, *files]):
            path = name if inside == "." else f"{inside}/{name}"
            try:
                mode = os.lstat(os.path.join(above, name)).st_mode
            except (FileNotFoundError, NotADirectoryError):
                continue  # a process that runs it has removed it meanwhile
            if not goes_along(f"{path}/x" if stat.S_ISDIR(mode) else path):
                continue
            if stat.S_ISLNK(mode):
                yield Fault(path, "a symbolic link, and its target is not part of the workspace")
            elif not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                yield Fault(path, "a device, a pipe or a socket")
            elif not is_name(name) or not _is_utf8(name):
                yield Fault(path, _ODD_NAME)
        folders[:] = [name for name in folders if not os.path.islink(os.path.join(above, name))]


def _unfit(paths: list[str], to: Store) -> Iterator[Fault]:
    """The visible files that the other place can't hold."""
    if isinstance(to, DiskStore):
        folders = {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
        for path in paths:
            if path in folders:
                yield Fault(path, "a file and a folder have this name, and a disk can't hold both")
            elif any(len(os.fsencode(name)) > NAME_BYTES for name in path.split("/")):
                yield Fault(path, f"a name of more than {NAME_BYTES} bytes, which a disk can't have")
    elif to.abilities.remote:
        room = KEY_BYTES - len(to.url.encode())
        for path in paths:
            if len(os.fsencode(path)) > room:
                yield Fault(path, f"a path of more than {room} bytes, which is too long there")


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
