"""Tasks that are sent with an idempotency key: however often a sender repeats one, it is done once.

The name of such a file has the hash of its key and the hash of its content. So the files themselves remember the key,
wherever they are by now: in `inbox/`, or in one of its folders until `keep: inbox:` removes them.

Two processes may still write a file each, if both send the key at the same moment. Then the first file is the task, and
the other one is a double: no agent gets it, and the next opening removes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from ...state import Moment
from ...store import Store
from .archive import CANCELLED, FOLDER, sha_of

_ENDED = (f"{FOLDER}/done", f"{FOLDER}/moved")
_NAME = re.compile(r"([0-9]{8}T[0-9]{6}\.[0-9]{6}Z-([0-9a-f]{32})-([0-9a-f]{16}))\.(?:.*\.)?([a-z]+)")


class Mark(NamedTuple):
    """A key and the content that was sent with it, as hashes."""

    key: str
    content: str

    def __str__(self) -> str:
        return f"{self.key}-{self.content}"


class Keyed(NamedTuple):
    mark: Mark
    path: str  # the path in `inbox/` that it had first
    folder: str  # the folder that it is in now


def mark(key: str, data: bytes) -> Mark:
    return Mark(sha256(key.encode()).hexdigest()[:32], sha256(data).hexdigest()[:16])


def of_file(path: str) -> Keyed | None:
    folder, _, name = path.rpartition("/")
    match = _NAME.fullmatch(name)
    return Keyed(Mark(match[2], match[3]), f"{FOLDER}/{match[1]}.{match[4]}", folder) if match else None


def find(store: Store, key: str) -> Keyed | None:
    """The file that was sent with a key. It may be waiting, taken, done, handed on or cancelled."""
    wanted = mark(key, b"").key
    # In this order: a file that is moved meanwhile is in one of them.
    for folder in (FOLDER, *store.folders(f"{FOLDER}/open"), CANCELLED, *_ENDED):
        for entry in store.list(folder):
            if wanted in entry.path and (found := of_file(entry.path)) and found.mark.key == wanted:
                return found
    return None


def doubles(store: Store, moment: Moment, paths: Sequence[str]) -> set[str]:
    """The files among `paths`, sorted by name, that repeat another task: an earlier one of them, or one that is taken
    or done. Two kinds are no doubles, because a person may want them to be done: a file that comes back under its own
    name, and one that was edited."""
    marked = {path: keyed for path in paths if (keyed := of_file(path))}
    if not marked:
        return set()
    others = [task.file for tasks in (moment.tasks, moment.tasks_done) for task in tasks.values()]
    others += [entry.path for folder in (*store.folders(f"{FOLDER}/open"), *_ENDED) for entry in store.list(folder)]
    first = {each.mark: each.path for path in others if (each := of_file(path))}
    return {
        path
        for path, keyed in marked.items()
        if first.setdefault(keyed.mark, keyed.path) != keyed.path and sha_of(store, path)[:16] == keyed.mark.content
    }
