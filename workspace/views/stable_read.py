"""Decide whether a person's file is completely saved. Only then may it be taken.

A file has settled when two looks at it were equal and no program has it open for writing. One look is enough for a file
that was saved long before, such as those of a copied workspace. Where the system does not tell who has it open, it must
have been the same for longer. A program that never closes a file delays it, but not for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import uuid4

from ..base import InvalidFile, Refused, SatchelError
from ..formats import pause_file
from ..store import READ_LIMIT, FileChanged, FileContent, Store, Version


class Waits(NamedTuple):
    """How many seconds a file must have been the same."""

    look: float = 0.05  # in any case
    closed: float = 0.35  # no program has it open; one that saves in several parts may open it again
    unknown: float = 3.0  # whether a program has it open can't be told
    unended: float = 6.0  # likewise, and its last line has no end: more may be to come
    remote: float = 5.0  # likewise over a network, where a listing is some seconds old
    open: float = 30.0  # a program has it open
    open_pause: float = 10.0  # likewise pause.yaml


WAITS = Waits()

PATIENCE = 8.0
"""Seconds that an opening waits for a file."""

BRIEF = 0.5
"""Seconds that `status`, `check` and `serve` wait for one."""

Stage = Literal["settled", "changing", "open"]


class Unsettled(Refused):
    """A file has not settled in time. `is_open`: a program has it open for writing."""

    def __init__(self, path: str, *, is_open: bool):
        why = "a program has it open for writing" if is_open else "it keeps changing"
        super().__init__("is being saved", path=path, why=why, remedy="try again when it is saved and closed")
        self.is_open = is_open


class Settling:
    """Follows files of one store from look to look. For one thread."""

    def __init__(self, store: Store, clock: Callable[[], float] | None = None):
        """`clock` gives seconds and never goes back."""
        self._store, self._clock = store, clock or time.monotonic
        self._seen: dict[str, tuple[Version, float]] = {}  # by path; since when it has that version

    def stage(self, path: str, version: Version) -> Stage:
        """How far the saving of a file has come whose current version is `version`."""
        if appears_whole(self._store):
            return "settled"
        now = self._clock()
        known, since = self._seen.get(path, ("", now))
        if known != version:
            since = now
            self._seen[path] = version, since
        has_writer = self._store.has_writer(path)
        needed = _needed(self._store, path, has_writer)
        is_known = now - since >= WAITS.look or has_writer is False  # a second look would not tell more
        if now - since >= needed or (is_known and _is_older(self._store, path, needed)):
            return "settled"
        return "open" if has_writer and now - since >= WAITS.look else "changing"

    def read(self, path: str, *, limit: int = READ_LIMIT) -> FileContent | None:
        """Look once more: the file if it has settled, None if not yet. Raises what `Store.read` raises."""
        version = self._store.version(path)
        if version is None:
            self._seen.pop(path, None)
            raise FileNotFoundError(path)
        if self.stage(path, version) != "settled":
            return None
        content = self._store.read(path, limit=limit)
        return content if content.version == version == self._store.version(path) else None

    def keep_only(self, paths: Iterable[str]) -> None:
        """Forget all other files."""
        self._seen = {path: self._seen[path] for path in paths if path in self._seen}


def until_settled(
    store: Store, path: str, patience: float = PATIENCE, *, limit: int = READ_LIMIT
) -> FileContent | None:
    """The file once it has settled; None if there is none. Unsettled after `patience` seconds. Blocks."""
    settling, until = Settling(store), time.monotonic() + patience
    was_missing = False
    while True:
        try:
            if (found := settling.read(path, limit=limit)) is not None:
                return found
            was_missing = False
        except FileNotFoundError:
            if was_missing or appears_whole(store):
                return None
            was_missing = True  # some editors move a file away for a moment
        if time.monotonic() >= until:
            raise Unsettled(path, is_open=bool(store.has_writer(path)))
        time.sleep(WAITS.look)
        if store.abilities.remote:
            store.refresh(path.rpartition("/")[0])


def replace(store: Store, path: str, data: bytes, version: Version | None) -> None:
    """Write `data` in place of that version, durably; FileChanged if it is another one. If a program has the file open
    for writing, or saved it at that moment, its version is kept in `.satchel/displaced/` for the next opening."""
    if store.abilities.remote or version is None:
        store.replace(path, data, if_version=version)
        return
    displaced = store.exchange(path, data, if_version=version).displaced
    store.settle(path.rpartition("/")[0])
    if displaced is not None:
        remove(store, displaced, version)


def remove(store: Store, path: str, version: Version | None) -> None:
    """Remove that version of a file; None removes nothing. A file that was saved since, or that a program has open for
    writing, stays. Except in a bucket that has conditional DELETEs, a save between the look and the removal is not
    seen: microseconds on a disk, one request over a network."""
    if version is None or store.version(path) != version:
        return
    look_again(store, path)
    _remove_if_still(store, path, version)


def remove_all(store: Store, versions: Mapping[str, Version]) -> None:
    """Remove these versions of several files, as `remove` does, with one listing for each folder."""
    if store.abilities.remote:
        for folder in dict.fromkeys(path.rpartition("/")[0] for path in versions):
            store.refresh(folder)
    for path, version in versions.items():
        _remove_if_still(store, path, version)


def _remove_if_still(store: Store, path: str, version: Version) -> None:
    if store.version(path) == version and not store.has_writer(path):
        with suppress(FileChanged):
            store.remove(path, if_version=version)


def look_again(store: Store, path: str) -> None:
    """Let `Store.version` return the current version of one file. Over a network it comes from a listing that may be
    older than a save, so the file is fetched."""
    if store.abilities.remote:
        with suppress(FileNotFoundError, InvalidFile):
            read_back(store, path)


def read_back(store: Store, path: str, *, limit: int = READ_LIMIT) -> FileContent:
    """The file as its storage has it now, whatever was written, read or listed before. Raises what `Store.read`
    raises."""
    store.expect(path, uuid4().bytes)  # no file has these bytes, so it is fetched
    return store.read(path, limit=limit)


def is_left_open(store: Store, path: str) -> bool:
    """Whether a program has a file open for writing, but has not written for so long that the file is taken."""
    return _is_older(store, path, _needed(store, path, has_writer=True))


def appears_whole(store: Store) -> bool:
    """An object in a bucket appears whole, whatever program saves it."""
    return store.abilities.remote and store.abilities.conditional_replace


def _needed(store: Store, path: str, has_writer: bool | None) -> float:
    if has_writer is None:
        return WAITS.remote if store.abilities.remote else WAITS.unknown if _is_ended(store, path) else WAITS.unended
    if has_writer:
        return WAITS.open_pause if path == pause_file.PATH else WAITS.open
    return WAITS.look if path == pause_file.PATH else WAITS.closed  # a pause should begin soon


def _is_ended(store: Store, path: str) -> bool:
    try:
        return store.tail(path, 1) == b"\n"
    except (FileNotFoundError, SatchelError):
        return False


def _is_older(store: Store, path: str, seconds: float) -> bool:
    """Whether a file was saved longer ago, by the clock of its storage, which has whole seconds."""
    saved = store.trace(path).at
    return bool(saved) and time.time() - datetime.fromisoformat(saved).timestamp() >= seconds + 1.0
