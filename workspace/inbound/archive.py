"""The files of tasks after they are taken, and those that were sent with an idempotency key.

The files of finished tasks go into `inbox/done/`, or `inbox/moved/` if they were handed on. A program may still have
such a file open for writing. Then it first goes into `inbox/open/`, in a folder that is named after its target and its
hash as a task. So later writes to it are not lost. The same happens to a file that could not be taken and is kept as
rejected.

However often a sender repeats a task with a key, it is done once. The name of its file has the hash of the key and the
hash of the content. So the files themselves remember the key, wherever they are by now: in `inbox/`, or in one of its
folders until `keep: inbox:` removes them. Two processes may still write a file each, if both send the key at the same
moment. Then the first file is the task, and the other one is a double: no agent gets it, and the next opening removes
it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ..base import InvalidFile, fitting
from ..state import Moment, TaskFile
from ..store import LARGE_LIMIT, FileChanged, Store, Version
from ..views import is_left_open
from .findings import sha

INBOX = "inbox"
_DONE = f"{INBOX}/done"
_OPEN = f"{INBOX}/open"
_REJECTED = "rejected"
_ENDED = (_DONE, f"{INBOX}/moved")
_KEYED = re.compile(r"([0-9]{8}T[0-9]{6}\.[0-9]{6}Z-([0-9a-f]{32})-([0-9a-f]{16}))\.(?:.*\.)?([a-z]+)")
_UNCUT = 160
"""Bytes of a name's beginning that `_place` never cuts."""

CANCELLED = f"{INBOX}/cancelled"
"""A person puts a file with a task's name here, so that the task is not done. It is used up with that task."""


def put_away(store: Store, moment: Moment) -> None:
    """Move the files of all finished tasks into `inbox/done/`, durably, and those handed on into `inbox/moved/`. Called
    before the next is taken, and before the workspace is opened: see `Moment`.

    A file that a program has open for writing first goes into `inbox/open/`: later writes to it are another task, see
    `bring_back`.
    """
    bring_back(store)
    for id, task in moment.tasks_done.items():
        _use_up(store, task.file, id)
        if store.version(task.file) is None:
            for folder in (_aside(task), f"{INBOX}/{task.to}", INBOX):  # in this order: a file is always in one
                store.settle(folder)
            continue
        if sha_of(store, task.file) != task.sha256:
            continue  # another task by now
        with suppress(FileNotFoundError):
            _move(store, task, id)


def is_cancelled(store: Store, file: str) -> bool:
    """Whether a person wants the task from this file not to be done. A missing file means nothing."""
    return store.version(_wish_of(file)) is not None


def _use_up(store: Store, file: str, id: str) -> None:
    if is_cancelled(store, file):
        with suppress(FileNotFoundError):
            store.rename(_wish_of(file), _place(store, file, _DONE, sha_of(store, _wish_of(file)), id))


def _wish_of(file: str) -> str:
    return f"{CANCELLED}/{file.rpartition('/')[2]}"


def _move(store: Store, task: TaskFile, id: str) -> None:
    if store.has_writer(task.file):
        _put_aside(store, task.file, _aside(task))
        return
    to = _place(store, task.file, f"{INBOX}/{task.to}", task.sha256, id)
    store.rename(task.file, to)
    if store.has_writer(to) or sha_of(store, to) != task.sha256:
        _put_aside(store, to, _aside(task))  # a program has opened it, or saved into it, while it was moved


def take_back(store: Store, file: str, sha256: str) -> None:
    """Move the file of a finished task into the inbox again: its end will be forgotten."""
    stem = file.rpartition("/")[2].rpartition(".")[0]
    for entry in store.list(_DONE):
        if _begins(entry.path, stem) and sha_of(store, entry.path) == sha256:
            store.rename(entry.path, _place(store, file, INBOX))
            return


def has(store: Store, file: str, sha256: str) -> bool:
    """Whether the file of a task is still there: in the inbox, or as that of a finished one."""
    stem = file.rpartition("/")[2].rpartition(".")[0]
    entries = (entry for folder in (INBOX, _DONE, f"{_OPEN}/done-{sha256}") for entry in store.list(folder))
    return any(_begins(entry.path, stem) and sha_of(store, entry.path) == sha256 for entry in entries)


def _begins(path: str, stem: str) -> bool:
    """Whether the name of a file begins with `stem`, or with what `_place` has left of a long one."""
    name, whole = path.rpartition("/")[2], stem.encode()
    return name.startswith(f"{stem}.") or (len(whole) > _UNCUT and name.encode().startswith(whole[:_UNCUT]))


def discard(store: Store, path: str, sha256: str, version: Version) -> None:
    """Remove a file of the inbox that is kept as rejected. What a program that still has it open writes into it later
    is a task, and so is a file that was saved since."""
    if store.has_writer(path):
        _put_aside(store, path, f"{_OPEN}/{_REJECTED}-{sha256}")
        return
    with suppress(FileChanged):
        store.remove(path, if_version=version)


def _aside(task: TaskFile) -> str:
    return f"{_OPEN}/{task.to}-{task.sha256}"


def _put_aside(store: Store, path: str, folder: str) -> None:
    store.rename(path, _place(store, path, folder))


def _place(store: Store, path: str, folder: str, sha256: str = "", mark: str = "") -> str:
    """A file's place in a folder. It replaces no other file, except one with the same bytes. Of several with one name
    the later ones have a `mark` in theirs."""
    name = path.rpartition("/")[2]
    while store.version(to := f"{folder}/{name}") is not None and not (sha256 and sha_of(store, to) == sha256):
        stem, _, extension = name.rpartition(".")
        end = f".{mark or os.urandom(3).hex()}.{extension}"
        name, mark = fitting(stem, end) + end, ""
    return to


def bring_back(store: Store) -> None:
    """Process the files in `inbox/open/` that no program has open any more, or that were not written for long. A
    changed one comes back into the inbox, as another task; others go to their target."""
    if not has_open(store):
        return
    for path in changed(store):
        store.rename(path, _place(store, path, INBOX))
    for path, to, sha256 in _opened(store):
        if store.has_writer(path) or sha_of(store, path) != sha256:
            continue
        if to == _REJECTED:
            store.remove(path)
        else:
            store.rename(path, _place(store, path, f"{INBOX}/{to}", sha256))
    store.tidy(_OPEN)


def has_open(store: Store) -> bool:
    """Whether a file of a finished task may come back into the inbox."""
    return any(store.folders(_OPEN))


def changed(store: Store) -> list[str]:
    """The files in `inbox/open/` that will come back into the inbox."""
    return [
        path
        for path, _, sha256 in _opened(store)
        if (not store.has_writer(path) or is_left_open(store, path)) and sha_of(store, path) != sha256
    ]


def _opened(store: Store) -> list[tuple[str, str, str]]:
    """Each file in `inbox/open/`, its target folder, and its SHA-256 as a task."""
    found = []
    for folder in store.folders(_OPEN):
        to, _, sha256 = folder.rpartition("/")[2].partition("-")
        found += [(entry.path, to, sha256) for entry in store.list(folder)]
    return found


def sha_of(store: Store, path: str) -> str:
    """The SHA-256 of a file; empty if it can't be read."""
    with suppress(FileNotFoundError, InvalidFile):
        return sha(store.read(path, limit=LARGE_LIMIT).data)
    return ""


# Tasks that are sent with a key


class KeyMark(NamedTuple):
    """A key and the content that was sent with it, as hashes."""

    key: str
    content: str

    def __str__(self) -> str:
        return f"{self.key}-{self.content}"


class Keyed(NamedTuple):
    """A file that was sent with a key."""

    mark: KeyMark
    path: str  # the path in `inbox/` that it had first
    folder: str  # the folder that it is in now


def mark_of_key(key: str, data: bytes) -> KeyMark:
    return KeyMark(hashlib.sha256(key.encode()).hexdigest()[:32], hashlib.sha256(data).hexdigest()[:16])


def keyed_file(path: str) -> Keyed | None:
    folder, _, name = path.rpartition("/")
    match = _KEYED.fullmatch(name)
    return Keyed(KeyMark(match[2], match[3]), f"{INBOX}/{match[1]}.{match[4]}", folder) if match else None


def find_keyed(store: Store, key: str) -> Keyed | None:
    """The file that was sent with a key. It may be waiting, taken, done, handed on or cancelled."""
    wanted = mark_of_key(key, b"").key
    # In this order: a file that is moved meanwhile is in one of them.
    for folder in (INBOX, *store.folders(f"{INBOX}/open"), CANCELLED, *_ENDED):
        for entry in store.list(folder):
            if wanted in entry.path and (found := keyed_file(entry.path)) and found.mark.key == wanted:
                return found
    return None


def doubles(store: Store, moment: Moment, paths: Sequence[str]) -> set[str]:
    """The files among `paths`, sorted by name, that repeat another task: an earlier one of them, or one that is taken
    or done. Two kinds are no doubles, because a person may want them to be done: a file that comes back under its own
    name, and one that was edited."""
    marked = {path: keyed for path in paths if (keyed := keyed_file(path))}
    if not marked:
        return set()
    others = [task.file for tasks in (moment.tasks, moment.tasks_done) for task in tasks.values()]
    others += [entry.path for folder in (*store.folders(f"{INBOX}/open"), *_ENDED) for entry in store.list(folder)]
    first = {each.mark: each.path for path in others if (each := keyed_file(path))}
    return {
        path
        for path, keyed in marked.items()
        if first.setdefault(keyed.mark, keyed.path) != keyed.path and sha_of(store, path)[:16] == keyed.mark.content
    }
