"""Where the files of tasks that are done go: into `inbox/done/`, or `inbox/moved/` if they were handed on.

A program may still have such a file open for writing. Then it goes into `inbox/open/` first, in a folder that is called
after where it belongs and what it was as a task. So nothing that is written into it later is lost.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from .edits.look import sha
from .errors import InvalidFile
from .moment import Moment, TaskFile
from .settling import appears_whole, is_left_open
from .store import Store

FOLDER = "inbox"
READ_LIMIT = 1 << 30
_OPEN = f"{FOLDER}/open"


def put_away(store: Store, moment: Moment) -> None:
    """Move the files of all tasks that are done into `inbox/done/`, durably, and those handed on into `inbox/moved/`.
    Called before the next is taken, and before anybody opens the workspace: see `Moment`.

    A file that a program has open for writing goes into `inbox/open/` first: what is written into it yet is another
    task, see `bring_back`.
    """
    bring_back(store)
    for id, task in moment.tasks_done.items():
        if store.version(task.file) is None:
            for folder in (_aside(task), f"{FOLDER}/{task.to}", FOLDER):  # in this order: it must not be in none
                store.settle(folder)
            continue
        if sha_of(store, task.file) != task.sha256:
            continue  # another task by now
        name = task.file.rpartition("/")[2]
        to = f"{FOLDER}/{task.to}/{name}"
        if store.version(to) is not None and sha_of(store, to) != task.sha256:
            stem, _, extension = name.rpartition(".")
            to = f"{FOLDER}/{task.to}/{stem}.{id}.{extension}"
        with suppress(FileNotFoundError):
            _move(store, task, to)


def _move(store: Store, task: TaskFile, to: str) -> None:
    aside = f"{_aside(task)}/{to.rpartition('/')[2]}"
    if store.has_writer(task.file):
        store.rename(task.file, aside)
        return
    store.rename(task.file, to)
    if not appears_whole(store) and (store.has_writer(to) or sha_of(store, to) != task.sha256):
        store.rename(to, aside)  # a program has opened it, or saved into it, while it was moved


def _aside(task: TaskFile) -> str:
    return f"{_OPEN}/{task.to}-{task.sha256}"


def bring_back(store: Store) -> None:
    """Move the files in `inbox/open/` on that no program has open any more, or none has written for long: what has
    changed comes back into the inbox, as another task; the rest goes where it belongs."""
    if not has_open(store):
        return
    for path in changed(store):
        name = path.rpartition("/")[2]
        while store.version(f"{FOLDER}/{name}") is not None:
            stem, _, extension = name.rpartition(".")
            name = f"{stem}.{secrets.token_hex(3)}.{extension}"
        store.rename(path, f"{FOLDER}/{name}")
    for path, to, sha256 in _opened(store):
        if not store.has_writer(path) and sha_of(store, path) == sha256:
            store.rename(path, f"{FOLDER}/{to}/{path.rpartition('/')[2]}")
    store.tidy(_OPEN)


def has_open(store: Store) -> bool:
    """Whether a file of a task that is done may come back into the inbox."""
    return any(store.folders(_OPEN))


def changed(store: Store) -> list[str]:
    """The files in `inbox/open/` that are to come back into the inbox."""
    return [
        path for path, _, sha256 in _opened(store)
        if (not store.has_writer(path) or is_left_open(store, path)) and sha_of(store, path) != sha256
    ]  # fmt: skip


def _opened(store: Store) -> list[tuple[str, str, str]]:
    """Each file in `inbox/open/`, the folder that it belongs into, and the SHA-256 that it had as a task."""
    found = []
    for folder in store.folders(_OPEN):
        to, _, sha256 = folder.rpartition("/")[2].partition("-")
        found += [(entry.path, to, sha256) for entry in store.list(folder)]
    return found


def sha_of(store: Store, path: str) -> str:
    """The SHA-256 of a file; empty if it can't be read."""
    with suppress(FileNotFoundError, InvalidFile):
        return sha(store.read(path, limit=READ_LIMIT).data)
    return ""
