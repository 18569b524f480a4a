"""Replace readable files that a person may be saving at the same moment: no save is overwritten unseen.

A file that was saved since it was last written stays as it is until it has been merged. A displaced file is kept for a
minute, because an editor may have it open: what is then saved into it is put back.

A file is written by a job of a queue: at once on a disk; in threads on remote stores, and where the loop has other
work. Jobs for one path run in the order they were added; jobs for different paths run several at a time. A job waits
until the group of records that was being written when it was added is durable, because it may show these records.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ..base import InvalidFile
from ..store import LARGE_LIMIT, FileChanged, Store, Version
from .projection import steps_shown
from .stable_read import Settling, look_again

if TYPE_CHECKING:
    from concurrent.futures import Future

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
