"""Files that a person may be saving at this moment: whether one is completely saved, so that it may be taken, and how
to replace one so that no save is overwritten unseen.

A file has settled when two looks at it were equal and no program has it open for writing. One look is enough for a file
that was saved long before, such as those of a copied workspace. Where the system does not tell who has it open, it must
have been the same for longer. A program that never closes a file delays it, but not for ever.

A readable file that was saved since it was last written stays as it is until it has been merged. A displaced file is
kept for a minute, because an editor may have it open: what is then saved into it is put back.

A readable file is written by a job of a queue: at once on a disk; in threads on remote stores, and where the loop has
other work. Jobs for one path run in the order they were added; jobs for different paths run several at a time. A job
waits until the group of records that was being written when it was added is durable, because it may show these records.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol
from uuid import uuid4

from msgspec import Struct

from ..base import InvalidFile, Refused, SatchelError
from ..formats import pause_file
from ..store import LARGE_LIMIT, READ_LIMIT, FileChanged, FileContent, Store, Version
from .projection import steps_shown

if TYPE_CHECKING:
    from concurrent.futures import Future


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


# The queue of writes, and the guard of the files that it writes

_THREADS = 8
_KEPT_SECONDS = 60.0
_KEPT_FILES = 4096
_KEPT_BYTES = 64 << 20

Job = Callable[[], object]


class Behind(Protocol):
    """For one opened workspace. Used from its thread."""

    @property
    def is_idle(self) -> bool:
        """Whether the queue is empty."""

    on_idle: Callable[[], None] | None
    """Called, in any thread, when the queue becomes empty."""

    group: Callable[[], Future[None] | None]
    """The group of records that is being written, if there is one."""

    def do(self, path: str, job: Job) -> None:
        """Run `job`, which writes `path`, now or soon. Raises the error of an earlier job."""

    def wait(self) -> None:
        """Return when all jobs are done. Raises the error of a job."""

    def close(self) -> None: ...


class AtOnce:
    """Runs every job at once."""

    is_idle = True
    on_idle: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.group: Callable[[], Future[None] | None] = lambda: None  # there it is written at once

    def do(self, path: str, job: Job) -> None:
        job()

    def wait(self) -> None: ...

    def close(self) -> None: ...


class InThreads:
    def __init__(self, threads: int) -> None:
        from concurrent.futures import ThreadPoolExecutor  # most runs on a disk need none

        self.on_idle: Callable[[], None] | None = None
        self.group: Callable[[], Future[None] | None] = lambda: None
        self._threads = ThreadPoolExecutor(threads, "satchel-behind")
        self._last: dict[str, Future[None]] = {}  # by path
        self._lock = threading.Lock()  # of what follows
        self._under_way = 0
        self._failed: BaseException | None = None

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    def do(self, path: str, job: Job) -> None:
        self._check()
        if self.is_idle:
            self._last.clear()
        before = self._last.get(path)
        with self._lock:
            self._under_way += 1
        try:
            self._last[path] = self._threads.submit(self._do, job, before, self.group())
        except RuntimeError:  # after the end
            with self._lock:
                self._under_way -= 1
            raise

    def wait(self) -> None:
        from concurrent.futures import wait

        while not self.is_idle:
            wait(list(self._last.values()))
        self._last.clear()
        self._check()

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _do(self, job: Job, before: Future[None] | None, group: Future[None] | None) -> None:
        from concurrent.futures import wait

        if before is not None:
            wait([before])  # begun already: threads take jobs in the order they came
        try:
            if group is not None:
                group.result()  # if that has failed, its results must not be shown
            job()
        except BaseException as error:
            self._failed = self._failed or error
        finally:
            with self._lock:
                self._under_way -= 1
                is_idle = not self._under_way
        if is_idle and (tell := self.on_idle) is not None:
            tell()


def behind(store: Store, *, in_thread: bool = False) -> Behind:
    """`in_thread`: the loop of the caller has other work, so it does not write to a disk either. One thread does, since
    folders come and go with their files."""
    return InThreads(_THREADS) if store.abilities.remote else InThreads(1) if in_thread else AtOnce()


class _Displaced(Struct, eq=False):
    path: str
    file: str  # where it is now
    version: Version | None  # its version when the run wrote it, or took what was put back
    at: float
    size: int  # about, in bytes
    back: tuple[Version, Version] | None = None  # put back, and not taken yet: its version at `file`, and at `path`


class ViewGuard:
    """For one opened workspace."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic, behind: Behind | None = None):
        self._store, self._clock, self._behind = store, clock, behind or AtOnce()
        self._writing: Counter[str] = Counter()  # files that are about to be written in another thread, and how often
        self._counting = threading.Lock()  # of these, and of the displaced files
        self.steps_shown = steps_shown(store)
        self.versions: dict[str, Version | None] = {}
        """What was last written to each path, or merged from it. None: it is not there, and is looked for."""
        self._theirs: dict[str, None] = {}
        self._displaced: deque[_Displaced] = deque()
        self._kept_bytes = 0
        self.has_left = False
        """Something was saved into a displaced file, and Satchel does not look at it before the next opening."""
        self._settling = Settling(store, clock)

    def replace(self, path: str, data: bytes, done: Callable[[], None] = lambda: None) -> None:
        """Write the file, now or soon, unless a person has saved it since; then call `done`. A deleted file is
        restored."""
        self._later(path, lambda: self._replace(path, data, done))

    def _later(self, path: str, write: Callable[[], None]) -> None:
        def counted() -> None:
            try:
                write()
            finally:
                with self._counting:
                    self._writing[path] -= 1
                    if not self._writing[path]:
                        del self._writing[path]

        with self._counting:
            self._writing[path] += 1
        self._behind.do(path, counted)

    def _replace(self, path: str, data: bytes, done: Callable[[], None]) -> None:
        if path in self._theirs:
            return
        there = self._store.version(path)
        known = self.versions.get(path)
        if there not in (None, known):
            self._leave(path)
            return
        exchanged = self._exchange(path, data, there)
        if exchanged is not None:
            self.versions[path] = exchanged
            done()

    def _exchange(self, path: str, data: bytes, there: Version | None) -> Version | None:
        """Replace the version `there` and keep it. None if a person was faster."""
        try:
            exchanged = self._store.exchange(path, data, if_version=there)
        except (FileChanged, FileExistsError):
            self._leave(path)
            return None
        if exchanged.displaced is not None:
            with self._counting:
                self._displaced.append(_Displaced(path, exchanged.displaced, there, self._clock(), len(data)))
                self._kept_bytes += len(data)
        while self._forget_oldest(lambda oldest: len(self._displaced) > _KEPT_FILES or self._kept_bytes > _KEPT_BYTES):
            pass
        return exchanged.version

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file, now or soon, unless a person has saved or removed it since it was last written."""
        self._later(path, lambda: self._unless_other(path, lambda known: self._append(path, data, known)))

    def rewrite(self, path: str, data: bytes) -> None:
        """Write such a file as a whole. A program that has it open keeps what it then saves to itself."""
        self._later(path, lambda: self._unless_other(path, lambda known: self._write(path, data, known)))

    def _unless_other(self, path: str, write: Callable[[Version | None], None]) -> None:
        try:
            if self._is_other(path):
                raise FileChanged(path)
            write(self.versions.get(path))
        except (FileChanged, FileExistsError, FileNotFoundError):
            if self._store.version(path) is not None:
                self._leave(path)

    def _append(self, path: str, data: bytes, known: Version | None) -> None:
        if known is None:
            self._write(path, data, None)
        elif self._store.abilities.remote:  # there an append would add to whatever it finds
            self._write(path, self._store.read(path, limit=LARGE_LIMIT).data + data, known)
        else:
            self.versions[path] = self._store.append(path, data, if_version=known)

    def _write(self, path: str, data: bytes, known: Version | None) -> None:
        if known is None:
            self.versions[path] = self._store.create(path, data)
        else:
            self.versions[path] = self._store.replace(path, data, sync="data", if_version=known)

    def is_left(self, path: str) -> bool:
        """Whether a person has saved or removed the file since it was last written, as far as is known."""
        return not self._writing[path] and self._is_other(path)

    def _is_other(self, path: str) -> bool:
        return path in self._theirs or self._store.version(path) != self.versions.get(path)

    def is_put_back(self, path: str) -> bool:
        """Whether what a person has saved there was saved into an older version of the file."""
        there = self._store.version(path)
        return any(each.path == path and each.back and each.back[1] == there for each in self._displaced)

    def wait(self) -> None:
        """Return when nothing is left to write."""
        self._behind.wait()

    def remove(self, path: str) -> None:
        """Remove the file, now or soon, unless a person has saved it since."""
        self._later(path, lambda: self._remove(path))

    def _remove(self, path: str) -> None:
        known = self.versions.get(path)
        if known is not None:
            look_again(self._store, path)
        if self._store.version(path) not in (None, known):
            self._leave(path)
        elif not self._store.has_writer(path):  # else later saves there are still seen; the next opening removes it
            if known is not None:
                try:
                    self._store.remove(path, if_version=known)
                except FileChanged:
                    self._leave(path)
                    return
            self.versions.pop(path, None)

    def take(self, path: str, version: Version) -> None:
        """The version that a person has saved is merged: from here on the run may write the file again."""
        self.versions[path] = version
        self._theirs.pop(path, None)
        for displaced in list(self._displaced):
            if displaced.path == path and displaced.back and displaced.back[1] == version:
                displaced.version, displaced.back = displaced.back[0], None

    def lose(self, path: str) -> None:
        """A person has removed the file, so it may be written. A save before that is still seen."""
        self.versions[path] = None
        self._theirs.pop(path, None)

    @property
    def theirs(self) -> tuple[str, ...]:
        """Files that a person has saved since they were last written, as far as is known."""
        return tuple(self._theirs)

    def look(self) -> Iterator[str]:
        """The files that a person has saved or removed since. Costs a system call per file."""
        self._look_at_displaced()
        for path in list(self.versions | self._theirs):
            if self._writing[path]:
                continue
            there = self._store.version(path)
            if there != self.versions.get(path) or (there is None and path in self._theirs):
                if there is not None:
                    self._theirs[path] = None
                yield path

    def clear(self) -> None:
        """The last call: remove displaced files without later saves. The next opening finds the others."""
        while self._forget_oldest(lambda oldest: True):
            pass

    def _leave(self, path: str) -> None:
        self._theirs[path] = None

    def _look_at_displaced(self) -> None:
        """Put back what was saved into a file after, or just before, it was displaced."""
        now = self._clock()
        for displaced in list(self._displaced):
            there = self._store.version(displaced.file)
            if there in (None, displaced.version):
                continue
            if displaced.back and displaced.back[1] == self._store.version(displaced.path):
                continue  # else another save has replaced it before it was taken
            if self._settling.stage(displaced.file, there) == "settled":
                self._put_back(displaced)
        while self._forget_oldest(lambda oldest: now - oldest.at > _KEPT_SECONDS):
            pass

    def _put_back(self, displaced: _Displaced) -> None:
        """If possible. If the file was saved once more, that save is merged first."""
        path, known = displaced.path, self.versions.get(displaced.path)
        if self._writing[path] or self._store.version(path) != known:
            return
        try:
            data, version = self._store.read(displaced.file)
        except (FileNotFoundError, InvalidFile):
            return  # a folder was saved in its place; the next opening leaves it there, too
        if data and (put := self._exchange(path, data, known)) is not None:
            displaced.back = version, put
            self._theirs[path] = None

    def _forget_oldest(self, is_due: Callable[[_Displaced], bool]) -> bool:
        """False if it is not due yet. One that has changed, or may change, stays for the next opening."""
        with self._counting:
            if not self._displaced or not is_due(self._displaced[0]):
                return False
            oldest = self._displaced.popleft()
            self._kept_bytes -= oldest.size
        if self._store.version(oldest.file) != oldest.version:
            self.has_left = True
        elif not self._store.has_writer(oldest.file):
            self._store.remove(oldest.file)
        return True
