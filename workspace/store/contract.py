"""The contract of every storage: whole files replaced atomically, logs appended durably, no way out of the root.

Paths are relative to the workspace, with '/' on every system. Calls block. An event loop that has other work calls them
in threads, so a store may be used from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol, TypeVar

from msgspec.json import Decoder

from ..base import InvalidFile, check_path
from ..formats import jsontext

T = TypeVar("T")

READ_LIMIT = 64 << 20
"""Bytes of a file that is read, if the caller names no other limit."""

LARGE_LIMIT = 1 << 30
"""Those of a file that may be large: of what the run records, and of what people put in."""

Version = str
"""Opaque. Equal only while the file is unchanged; in a bucket, while its bytes are the same."""

Sync = Literal["no", "data", "all"]
"""How much of a write is durable when it returns. `no`: nothing; after a power failure the file may be torn. `data`:
the content before the name, so the file is old or new but never torn. `all`: the name too; the write is durable."""


class FileContent(NamedTuple):
    data: bytes
    version: Version


class Entry(NamedTuple):
    path: str
    size: int  # bytes


class Trace(NamedTuple):
    """Who has written a file and when (UTC, ISO 8601), as far as the storage tells; else empty."""

    by: str
    at: str


class Exchanged(NamedTuple):
    version: Version  # of the new file
    displaced: str | None  # the path under which the old one is kept; None if there was none


class Exposure(NamedTuple):
    """Who can read what is stored, and whether it stays there. Only for people: no decision depends on it. None: the
    storage does not tell, or does not have it."""

    encrypted: str | None = None  # at rest: the algorithm; empty if it is not
    public: bool | None = None  # strangers can read it; on a disk, other users of the machine can look into the folder
    group: bool | None = None  # on a disk: so can the group of the folder
    versioned: bool | None = None
    removing: list[str] | None = None  # the rules of a lifecycle that remove or archive objects of this place


class Abilities(NamedTuple):
    """What a kind of storage can do, where kinds differ. `satchel check URL` prints it."""

    lock: bool  # `lock` keeps other processes out; otherwise the journal fences them (journal/segment_log.py)
    exclusive_create: bool  # if several `create` one name at once, exactly one succeeds
    conditional_replace: bool  # `replace(if_version=)` and `exchange` can't lose what is written at the same moment
    append: bool  # files can grow, as the journal's segments do; else each group of records is a file of its own
    notice: bool  # `watch` reports changes; otherwise the waiting code has to look
    remote: bool  # every call is a request over a network


AT_ONCE = 32
"""The maximum number of requests over a network at the same time."""

DISK = Abilities(lock=True, exclusive_create=True, conditional_replace=True, append=True, notice=True, remote=False)
BUCKET = Abilities(lock=False, exclusive_create=True, conditional_replace=True, append=False, notice=False, remote=True)


class AppendFile(Protocol):
    """An open file that only grows."""

    def append(self, data: bytes) -> None:
        """Write `data` at the end and make it durable. After an error it is unknown how much is there."""

    def close(self) -> None: ...


class Store(Protocol):
    """The files of one workspace. Errors: FileNotFoundError for a missing file, UsageError for a path that leads out of
    the workspace, or is too long to write, StorageFailed for a write or a sync that failed."""

    @property
    def url(self) -> str:
        """The place of the workspace as a person would type it: an absolute path, or a URL without credentials."""

    @property
    def abilities(self) -> Abilities: ...

    def exposure(self) -> Exposure:
        """Who can read the place, and whether what is in it stays, as far as the storage tells."""

    @property
    def pages(self) -> int:
        """How many requests a listing of everything takes, according to the last one; 0 where reading is not a
        request."""

    def refresh(self, folder: str = "") -> None:
        """Where reading is a request, `version`, `trace`, `list` and `folders` use one listing of the whole workspace,
        and `read` need not fetch the same version again. This makes a new listing, or one of `folder` only. A new store
        makes one at its first use. The store's own writes show at once."""

    def fetch(self, paths: Iterable[str]) -> None:
        """Where reading is a request: fetch these files for `read`, all at once. Skips missing, large and already
        fetched ones. Only saves time; `read` reports errors."""

    def expect(self, path: str, data: bytes) -> None:
        """The next `read` of the file may return `data` without fetching it, if the listing shows that these are its
        bytes. Otherwise it fetches the file, whatever was read or written before."""

    def read(self, path: str, *, limit: int = ...) -> FileContent:
        """The whole file. InvalidFile for more than `limit` bytes, because files here are untrusted."""

    def tail(self, path: str, size: int) -> bytes:
        """The last `size` bytes of a file, or all of it if it has fewer. The cost depends on the bytes returned, not on
        the file. A file that is being written may have grown since."""

    def part(self, path: str, begin: int, size: int) -> bytes:
        """`size` bytes of a file from `begin` on; fewer where it ends. The cost depends on them, not on the file."""

    def version(self, path: str) -> Version | None:
        """The file's version, or None if there is no such file."""

    def has_writer(self, path: str) -> bool | None:
        """Whether a program has the file open for writing. None if the system does not tell."""

    def trace(self, path: str) -> Trace:
        """Who has written a file last. Only for people: no decision may depend on it."""

    def replace(self, path: str, data: bytes, *, sync: Sync = "all", if_version: Version | None = None) -> Version:
        """Make `data` the whole content of the file, atomically; folders are made as needed.

        With `if_version`, FileChanged unless the file is still that version. On a disk the look and the replacement are
        two calls, so a save in the microseconds between them is not seen.

        Without it, any version is replaced. In a bucket the request is still conditional on the version that this store
        saw last, and is sent again if that is gone. So a request that arrives late replaces nothing newer.
        """

    def exchange(self, path: str, data: bytes, *, if_version: Version | None) -> Exchanged:
        """Like `replace` with `sync="data"`, for a file that a person may be saving at this moment.

        FileChanged unless it is that version, or is missing if that is None. The replaced file is kept in
        `.satchel/displaced/`; the caller looks at it again and removes it. So a save between the look and the exchange
        is there, and so is one by an editor that had the file open. Its name contains the expected version.
        """

    def watch(self, folders: Sequence[str], hint: Callable[[], None]) -> AbstractContextManager[object]:
        """While the body runs, call `hint` (in any thread) when a file directly in one of `folders` may have changed.
        Only a hint: the receiver must also look at intervals. It may be called shortly after the body has ended."""

    def create(self, path: str, data: bytes) -> Version:
        """Like `replace` with `sync="all"`, but FileExistsError if the name is taken."""

    def create_log(self, path: str, data: bytes) -> AppendFile:
        """A new log that begins with `data`, durable with its name. FileExistsError if the name is taken."""

    def append(self, path: str, data: bytes, *, durable: bool = False, if_version: Version | None = None) -> Version:
        """Append `data` to a file, which is created if it is missing. A crash may tear it; with `durable`, the whole
        file is durable when this returns. FileChanged if it has not `if_version`, or another program has changed its
        length meanwhile. Returns the version of what it has written to: a file that has just taken its name has
        another."""

    def list(self, folder: str) -> Iterator[Entry]:
        """The files directly in `folder`, by name; none if there is no such folder."""

    def folders(self, folder: str) -> Iterator[str]:
        """The paths of the folders directly in `folder`, by name."""

    def unusable(self, folder: str) -> Iterator[str]:
        """The names in `folder` that `list` and `folders` omit because they are not valid on every system, each in one
        line that is safe to print. Away from the disk, also names of what is neither file nor folder."""

    def rename(self, path: str, to: str) -> None:
        """Rename a file, durably, and replace the target. After a crash it has one of the two names, or both.
        FileNotFoundError if there is no such file."""

    def settle(self, folder: str) -> None:
        """Make the names in a folder durable, and the absence of others: a process that was killed may have changed
        them a moment ago."""

    def remove(self, path: str, *, if_version: Version | None = None) -> None:
        """Remove a file if it exists. Not durable by itself. Also removes folders that become empty.

        With `if_version`, FileChanged if it exists in another version. Except in a bucket that has conditional DELETEs,
        the look and the removal are two calls. Without it, any version is removed; a bucket that has conditional
        DELETEs removes no version that is newer than what this store saw last, until it has looked again.
        """

    def remove_many(self, paths: Sequence[str]) -> None:
        """Remove several files, with as few requests as possible."""

    def tidy(self, folder: str) -> None:
        """Remove empty folders directly in `folder`, and `folder` itself if it becomes empty."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold the workspace against other processes. LeaseHeld at once if another one has it."""

    def try_lock(self, path: str) -> None:
        """Where `abilities.lock`: StorageFailed if this file can't be locked although no process has locked it. The
        lock is shared and released at once."""


class FileChanged(Exception):
    """The file is no longer the version to replace."""


def read_if_there(store: Store, path: str, *, limit: int | None = None) -> FileContent | None:
    """Like `Store.read`, but None for a missing file."""
    try:
        return store.read(path) if limit is None else store.read(path, limit=limit)
    except FileNotFoundError:
        return None


def read_own(store: Store, path: str, decoder: Decoder[T], *, limit: int | None = None) -> T | None:
    """A small JSON file of Satchel's own. None if it is missing or not valid. In a bucket one request, if the listing
    shows the file."""
    if store.version(path) is None:
        return None
    try:
        found = read_if_there(store, path, limit=limit)
    except InvalidFile:
        return None
    return None if found is None else jsontext.decode(found.data, decoder)


def walk(store: Store, folder: str = "") -> Iterator[Entry]:
    """Every file in a folder and below, folder by folder."""
    yield from store.list(folder)
    for below in store.folders(folder):
        yield from walk(store, below)


class SubStore:
    """The files in `folder` of `whole`, as a store of its own: many workspaces below one URL share one listing and one
    client."""

    def __init__(self, whole: Store, folder: str):
        self._whole, self._prefix = whole, f"{check_path(folder)}/" if folder else ""

    @property
    def url(self) -> str:
        return f"{self._whole.url}/{self._prefix}".rstrip("/")

    @property
    def abilities(self) -> Abilities:
        return self._whole.abilities

    def exposure(self) -> Exposure:
        return self._whole.exposure()

    @property
    def pages(self) -> int:
        return self._whole.pages

    def refresh(self, folder: str = "") -> None:
        self._whole.refresh(self._folder(folder))

    def fetch(self, paths: Iterable[str]) -> None:
        self._whole.fetch(map(self._in, paths))

    def expect(self, path: str, data: bytes) -> None:
        self._whole.expect(self._in(path), data)

    # Reading

    def read(self, path: str, *, limit: int | None = None) -> FileContent:
        inside = self._in(path)
        return self._whole.read(inside) if limit is None else self._whole.read(inside, limit=limit)

    def tail(self, path: str, size: int) -> bytes:
        return self._whole.tail(self._in(path), size)

    def part(self, path: str, begin: int, size: int) -> bytes:
        return self._whole.part(self._in(path), begin, size)

    def version(self, path: str) -> Version | None:
        return self._whole.version(self._in(path))

    def has_writer(self, path: str) -> bool | None:
        return self._whole.has_writer(self._in(path))

    def trace(self, path: str) -> Trace:
        return self._whole.trace(self._in(path))

    def list(self, folder: str) -> Iterator[Entry]:
        return (Entry(self._out(path), size) for path, size in self._whole.list(self._folder(folder)))

    def folders(self, folder: str) -> Iterator[str]:
        return map(self._out, self._whole.folders(self._folder(folder)))

    def unusable(self, folder: str) -> Iterator[str]:
        return self._whole.unusable(self._folder(folder))

    # Writing

    def replace(self, path: str, data: bytes, *, sync: Sync = "all", if_version: Version | None = None) -> Version:
        return self._whole.replace(self._in(path), data, sync=sync, if_version=if_version)

    def exchange(self, path: str, data: bytes, *, if_version: Version | None) -> Exchanged:
        """The whole keeps displaced files, so this is not for parts of a disk."""
        return self._whole.exchange(self._in(path), data, if_version=if_version)

    def create(self, path: str, data: bytes) -> Version:
        return self._whole.create(self._in(path), data)

    def create_log(self, path: str, data: bytes) -> AppendFile:
        return self._whole.create_log(self._in(path), data)

    def append(self, path: str, data: bytes, *, durable: bool = False, if_version: Version | None = None) -> Version:
        return self._whole.append(self._in(path), data, durable=durable, if_version=if_version)

    def rename(self, path: str, to: str) -> None:
        self._whole.rename(self._in(path), self._in(to))

    def settle(self, folder: str) -> None:
        self._whole.settle(self._folder(folder))

    def remove(self, path: str, *, if_version: Version | None = None) -> None:
        self._whole.remove(self._in(path), if_version=if_version)

    def remove_many(self, paths: Sequence[str]) -> None:
        self._whole.remove_many([self._in(path) for path in paths])

    def tidy(self, folder: str) -> None:
        self._whole.tidy(self._folder(folder))

    def watch(self, folders: Sequence[str], hint: Callable[[], None]) -> AbstractContextManager[object]:
        return self._whole.watch([self._folder(folder) for folder in folders], hint)

    def lock(self) -> AbstractContextManager[None]:
        return self._whole.lock()

    def try_lock(self, path: str) -> None:
        self._whole.try_lock(self._in(path))

    def _in(self, path: str) -> str:
        return self._prefix + check_path(path)

    def _out(self, path: str) -> str:
        return path.removeprefix(self._prefix)

    def _folder(self, folder: str) -> str:
        return self._in(folder) if folder else self._prefix.rstrip("/")
