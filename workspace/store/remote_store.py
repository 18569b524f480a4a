"""The common part of stores over a network: one listing of everything, its own reads and writes since, and a cache of
what was read.

Threads share one view of the listing. The answer to a request that began before one of our own writes ended may be
older than that write, so it never replaces what the view knows about that path.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import NamedTuple

from ...schemas import Problem
from ..base import AgentError, InvalidFile, SatchelError, check_path, is_name, shown
from .contract import READ_LIMIT, AppendFile, Entry, Exposure, FileContent, Trace, Version

_FETCHED_AT_ONCE = 8  # requests

PAGE = 1000
"""How many files one request of a listing returns."""

LARGEST_BODY = 8 << 20
"""Contents up to this size are kept in memory: a checkpoint that was fetched before it is read, a file that is appended
to again."""

_BODIES = 32 << 20


class RemoteStore:
    """The methods of a `Store` that need no request except the listing."""

    def __init__(self, url: str, take: Take):
        self._url = url
        self._view = View(take)
        self._bodies = Bodies()
        self.check_owner: Callable[[], None] = lambda: None
        """Called before a write without `if_version` replaces what another process has written meanwhile. It raises if
        this process must not do that."""

    @property
    def url(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    def exposure(self) -> Exposure:
        return Exposure()

    @property
    def pages(self) -> int:
        return -(-self._view.size // PAGE) or 1

    def refresh(self, folder: str = "") -> None:
        self._view.refresh(folder)

    def read(self, path: str, *, limit: int = READ_LIMIT) -> FileContent:
        raise NotImplementedError

    def fetch(self, paths: Iterable[str]) -> None:
        wanted = [path for path in dict.fromkeys(paths) if self._is_worth_fetching(path)]
        if not wanted:
            return

        def fetch(path: str) -> None:
            with suppress(SatchelError, OSError):
                self.read(path)

        first, *others = wanted
        with ThreadPoolExecutor(max(1, min(len(others), _FETCHED_AT_ONCE - 1)), "satchel-fetch") as threads:
            fetched = threads.map(fetch, others)
            fetch(first)
            for _ in fetched:
                pass

    def _is_worth_fetching(self, path: str) -> bool:
        known = self._view.get(path)
        return known is not None and known.size <= LARGEST_BODY and self._bodies.find(path, known.version) is None

    def version(self, path: str) -> Version | None:
        known = self._view.get(path)
        return known.version if known else None

    def has_writer(self, path: str) -> bool | None:
        check_path(path)
        return None

    def trace(self, path: str) -> Trace:
        """Only the time is known, not the name."""
        known = self._view.get(path)
        return Trace("", known.at if known else "")

    def list(self, folder: str) -> Iterator[Entry]:
        return iter(self._view.files(folder))

    def folders(self, folder: str) -> Iterator[str]:
        return iter(self._view.folders(folder))

    def unusable(self, folder: str) -> Iterator[str]:
        return map(shown, self._view.unusable(folder))

    def bring(self, source: RemoteStore, path: str) -> bool:
        """Have a file of another store under the same path, without its bytes passing through this process: only for
        a file that never changes. False if the server can't do it, or does not prove that the bytes are equal."""
        return False

    def settle(self, folder: str) -> None:
        """An acknowledged write is already durable."""
        if folder:
            check_path(folder)

    def tidy(self, folder: str) -> None:
        """A folder exists only while it contains something."""

    def watch(self, folders: Sequence[str], hint: Callable[[], None]) -> AbstractContextManager[object]:
        for folder in folders:
            if folder:
                check_path(folder)
        return nullcontext()

    def create_log(self, path: str, data: bytes) -> AppendFile:
        check_path(path)
        raise AgentError("files can't grow there", path=path, remedy="create one for each group of records")

    def lock(self) -> AbstractContextManager[None]:
        raise AgentError("can't be locked", path=self._url, remedy="the journal fences other writers instead")

    def try_lock(self, path: str) -> None:
        raise AgentError("can't be locked", path=path, remedy="the journal fences other writers instead")

    def _kept(self, path: str, limit: int) -> FileContent | None:
        """The cached file, if the listing has no newer version. InvalidFile if it is known to be larger than
        `limit`."""
        known = self._view.peek(path)
        if known is None:
            return None
        if known.size > limit:
            raise too_large(path, limit)
        data = self._bodies.find(path, known.version)
        return None if data is None else FileContent(data, known.version)

    def _wrote(self, path: str, data: bytes, version: Version) -> Version:
        self._view.wrote(path, ListedFile(version, len(data), moment(datetime.now(UTC))))
        self._bodies.keep(path, data, version)
        return version


def moment(at: datetime | None) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if at else ""


def missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def taken(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def too_large(path: str, limit: int) -> InvalidFile:
    problem = Problem("as a whole", f"more than {limit:,} bytes", f"at most {limit:,}", "Move it away and look inside")
    return InvalidFile(path, [problem])


class ListedFile(NamedTuple):
    """A file as a listing shows it."""

    version: Version
    size: int  # bytes
    at: str  # when it was written, if the storage tells


Take = Callable[[str], Iterable[tuple[str, ListedFile | None]]]
"""Fetches a listing of a folder with everything below it (empty: everything): (path, facts) of each file; None for what
is neither file nor folder."""


class View:
    """The listing, as a tree of folders."""

    def __init__(self, take: Take):
        self._take = take
        self._taking = threading.Lock()  # one listing at a time: an older one must not come after a newer one
        self._begun = 0  # listings of everything
        self.size = 0
        """Files that the last listing of everything told of."""
        self._lock = threading.Lock()  # protects all below, and is never held while waiting for the network
        self._root: _Folder | None = None
        self._early: dict[str, ListedFile | None] = {}  # what was written before the first listing
        self._tick = 0
        self._forgot = 0  # the tick of the last write with an unknown result
        self._written: dict[str, int] = {}  # the tick at which an own write of a path ended
        self._looking: list[int] = []  # the start ticks of looks without an answer yet

    def refresh(self, folder: str = "") -> None:
        asked = self._begun
        with self._taking:
            if self._begun > asked:
                return  # another thread has taken one that began after this call
            self._begun += not folder
            while not self._taken(folder):
                pass

    def _taken(self, folder: str) -> bool:
        """False if meanwhile a write with an unknown result ended: the listing may be older than that."""
        with self.look() as since:
            found = _Folder()
            folder = folder if self._root is not None else ""
            size = 0
            for path, known in self._take(folder):
                size += 1
                if known is None:
                    found.put_unusable(path)
                elif all(map(is_name, path.split("/"))):
                    found.put(path, known)
                elif known.size or path.rpartition("/")[2]:  # else it only marks a folder, as consoles do
                    found.put_unusable(path)
            with self._lock:
                if self._forgot > since:
                    return False
                for path, tick in self._written.items():
                    if tick > since:
                        found.put(path, self._root.get(path) if self._root else self._early.get(path))
                if folder and self._root is not None:
                    self._root.replace(folder, found)
                    return True
                self._root, self.size = found, size
                self._early.clear()
                oldest = min(self._looking)
                self._written = {path: tick for path, tick in self._written.items() if tick > oldest}
        return True

    @contextmanager
    def look(self) -> Iterator[int]:
        """The body makes a request whose answer it gives to `seen`; yields what to pass on."""
        with self._lock:
            since = self._tick
            self._looking.append(since)
        try:
            yield since
        finally:
            with self._lock:
                self._looking.remove(since)

    def seen(self, path: str, known: ListedFile | None, since: int) -> None:
        """The result of a look at one file; None if it does not exist."""
        with self._lock:
            if self._written.get(path, -1) > since:
                return
            if self._root is not None:
                self._root.put(path, known)
            elif path in self._early:
                self._early[path] = known

    def wrote(self, path: str, known: ListedFile | None) -> None:
        """An own write of a file has ended; None if it was removed."""
        with self._lock:
            self._tick += 1
            self._written[path] = self._tick
            if self._root is None:
                self._early[path] = known
            else:
                self._root.put(path, known)

    def forget(self, path: str) -> None:
        """The result of a write is unknown, so the next look makes a new listing."""
        with self._lock:
            self._tick += 1
            self._forgot = self._tick
            self._written.pop(path, None)
            if self._root is not None:
                self._early = {each: self._root.get(each) for each in self._written}
                self._root = None
            self._early.pop(path, None)

    def knows(self, path: str) -> bool:
        """Whether `peek` knows a file, or knows that it does not exist."""
        with self._lock:
            return self._root is not None or path in self._early

    def peek(self, path: str) -> ListedFile | None:
        """The known facts of a file without a new listing."""
        with self._lock:
            return self._root.get(path) if self._root else self._early.get(path)

    def get(self, path: str) -> ListedFile | None:
        check_path(path)
        root = self._any()
        with self._lock:
            return root.get(path)

    def files(self, folder: str) -> list[Entry]:
        found = self._folder(folder)
        with self._lock:
            files = sorted(found.files.items()) if found else []
        return [Entry(f"{folder}/{name}" if folder else name, known.size) for name, known in files]

    def folders(self, folder: str) -> list[str]:
        found = self._folder(folder)
        with self._lock:
            names = sorted(found.folders) if found else []
        return [f"{folder}/{name}" if folder else name for name in names]

    def unusable(self, folder: str) -> list[str]:
        found = self._folder(folder)
        with self._lock:
            return sorted(found.unusable) if found else []

    def _folder(self, path: str) -> _Folder | None:
        if path:
            check_path(path)
        folder: _Folder | None = self._any()
        with self._lock:
            for name in path.split("/") if path else []:
                folder = folder.folders.get(name) if folder else None
        return folder

    def _any(self) -> _Folder:
        while (root := self._root) is None:
            self.refresh()
        return root


class _Folder:
    __slots__ = ("files", "folders", "unusable")

    def __init__(self) -> None:
        self.files: dict[str, ListedFile] = {}
        self.folders: dict[str, _Folder] = {}
        self.unusable: set[str] = set()  # names that are not valid on every system, or not of files

    def is_empty(self) -> bool:
        return not (self.files or self.folders or self.unusable)

    def get(self, path: str) -> ListedFile | None:
        name, _, rest = path.partition("/")
        if not rest:
            return self.files.get(name)
        folder = self.folders.get(name)
        return folder.get(rest) if folder else None

    def replace(self, path: str, whole: _Folder) -> None:
        """Let what is below `path` be as it is in `whole`."""
        name, _, rest = path.partition("/")
        theirs = whole.folders.get(name, _Folder())
        if rest:
            ours = self.folders.setdefault(name, _Folder())
            ours.replace(rest, theirs)
        else:
            ours = self.folders[name] = theirs
        if ours.is_empty():
            del self.folders[name]

    def put(self, path: str, known: ListedFile | None) -> None:
        """Folders are there as long as something is in them."""
        name, _, rest = path.partition("/")
        if rest:
            folder = self.folders.get(name)
            if folder is None:
                if known is None:
                    return
                folder = self.folders[name] = _Folder()
            folder.put(rest, known)
            if folder.is_empty():
                del self.folders[name]
        elif known is None:
            self.files.pop(name, None)
        else:
            self.files[name] = known

    def put_unusable(self, path: str) -> None:
        """The first part of `path` that is no valid name, else the last, in its folder; an empty one with all that
        follows."""
        name, slash, rest = path.partition("/")
        if slash and is_name(name):
            self.folders.setdefault(name, _Folder()).put_unusable(rest)
        else:
            self.unusable.add(name or f"/{rest}")


class Bodies:
    """Contents that were read or written last, so that the same version need not be fetched again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, FileContent] = OrderedDict()
        self._bytes = 0

    def keep(self, path: str, data: bytes, version: Version) -> None:
        with self._lock:
            self._drop(path)
            if len(data) > LARGEST_BODY:
                return
            self._kept[path] = FileContent(data, version)
            self._bytes += len(data)
            while self._bytes > _BODIES:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= len(oldest.data)

    def drop(self, path: str) -> None:
        with self._lock:
            self._drop(path)

    def _drop(self, path: str) -> None:
        if (old := self._kept.pop(path, None)) is not None:
            self._bytes -= len(old.data)

    def find(self, path: str, version: Version) -> bytes | None:
        with self._lock:
            kept = self._kept.get(path)
            if kept is None or kept.version != version:
                return None
            self._kept.move_to_end(path)
            return kept.data


def md5_tag(data: bytes) -> Version:
    """The ETag that S3 gives to these bytes, unless it encrypts them with a key of KMS or they came in parts."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
