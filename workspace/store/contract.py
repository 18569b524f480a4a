"""What every kind of storage promises: whole files replaced atomically, logs appended durably, no way out of the root.

Paths are relative to the workspace, with '/' on every system. Calls block; what `abilities.remote` is called from a
thread where an event loop must not wait, so such a store may be used from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

Version = str
"""Opaque; equal only as long as nobody has written the file, or, in a bucket, has written anything else."""

Sync = Literal["no", "data", "all"]
"""How much of a write is durable when it returns.

`no`: nothing; after a power failure the file may be torn. `data`: the content came before the name, so the file is
old or new but never torn. `all`: the name too; the write is durable.
"""


class Content(NamedTuple):
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


class Abilities(NamedTuple):
    """What a kind of storage can do, where kinds differ. `satchel check URL` prints it."""

    lock: bool  # `lock` keeps other processes out; otherwise the journal fences them (journal/fencing.py)
    exclusive_create: bool  # of several that `create` one name at once, one wins and the others know
    conditional_replace: bool  # `replace(if_version=)` and `exchange` can't lose what is written at the same moment
    append: bool  # a file can grow: the journal's segments do, and else each group of records is a file of its own
    notice: bool  # `watch` is told of changes; otherwise whoever waits for them has to look
    remote: bool  # every call is a request over a network


AT_ONCE = 32
"""Requests over a network that are under way at the same time, at most."""

DISK = Abilities(lock=True, exclusive_create=True, conditional_replace=True, append=True, notice=True, remote=False)
BUCKET = Abilities(lock=False, exclusive_create=True, conditional_replace=True, append=False, notice=False, remote=True)


class Log(Protocol):
    """An open file that only grows."""

    def append(self, data: bytes) -> None:
        """Write `data` at the end and make it durable. If it raises, how much of it is there is unknown."""

    def close(self) -> None: ...


class Store(Protocol):
    """One workspace's files. Errors: FileNotFoundError for what is not there, UsageError for a path that leads
    out of the workspace, StorageFailed for a write or a sync that failed."""

    @property
    def url(self) -> str:
        """Where this is, as a person would type it: an absolute path, or a URL without any credentials."""

    @property
    def abilities(self) -> Abilities: ...

    @property
    def pages(self) -> int:
        """How many requests a listing of everything takes, as far as the last one tells; 0 where looking costs none."""

    def refresh(self, folder: str = "") -> None:
        """Where looking costs requests, `version`, `trace`, `list` and `folders` answer from one listing of the whole
        workspace, and `read` need not fetch again what it has read of the same version. This takes a new listing, or
        one of `folder` only. A new store has none and takes one when it is first asked. What this store writes itself
        shows at once."""

    def fetch(self, paths: Iterable[str]) -> None:
        """Where reading is a request: have these files at hand for `read`, all of them at once. Those that are not
        there, large, or at hand already are left out. Only to save time; errors are for `read` to tell."""

    def expect(self, path: str, data: bytes) -> None:
        """The next `read` of the file may answer with `data` without fetching it, if the listing tells that these are
        its bytes. Otherwise it fetches the file, whatever was read or written before."""

    def read(self, path: str, *, limit: int = ...) -> Content:
        """The whole file. More than `limit` bytes is InvalidFile: what lies here is untrusted."""

    def tail(self, path: str, size: int) -> bytes:
        """The last `size` bytes of a file, or all of it if it has fewer: costs what it returns, however long the file
        is. Of a file that is being written, where it ended a moment ago."""

    def version(self, path: str) -> Version | None:
        """The file's version, or None if there is no such file."""

    def has_writer(self, path: str) -> bool | None:
        """Whether a program has the file open for writing. None if that can't be told here."""

    def trace(self, path: str) -> Trace:
        """Who has written a file last, for people; nothing may depend on it."""

    def replace(self, path: str, data: bytes, *, sync: Sync = "all", if_version: Version | None = None) -> Version:
        """Make `data` the file's whole content, atomically; folders are made as needed.

        With `if_version`, FileChanged unless the file is still that version. On a disk the look and the replacement
        are two calls, so a save in the microseconds between them is not seen.

        Without it, whatever is there is replaced. In a bucket the request is conditional all the same, on the version
        that this store saw last, and sent again if that is gone: so one that arrives late replaces nothing newer.
        """

    def exchange(self, path: str, data: bytes, *, if_version: Version | None) -> Exchanged:
        """As `replace` with `sync="data"`, for a file that a person may be saving at this very moment.

        FileChanged unless it is that version, or is not there if that is None. What was displaced is kept in
        `.satchel/displaced/` for the caller to look at again, and to remove: a save that came between the look and the
        exchange is there, and so is one by an editor that had the file open. Its name says what version was expected.
        """

    def watch(self, folders: Sequence[str], hint: Callable[[], None]) -> AbstractContextManager[object]:
        """While the body runs, call `hint` (in any thread) when something directly in one of `folders` may have
        changed. Only a hint: its receiver looks for changes now and then without it. It may still be called for a
        moment after the body has ended."""

    def create(self, path: str, data: bytes) -> None:
        """Like `replace` with `sync="all"`, but FileExistsError if the name is taken, by whoever was first."""

    def create_log(self, path: str, data: bytes) -> Log:
        """A new log that begins with `data`, durable with its name. FileExistsError if the name is taken."""

    def append(self, path: str, data: bytes, *, durable: bool = False) -> None:
        """Put `data` at the end of a file, which is made if it is not there. May be torn by a crash; with `durable`,
        all of the file is durable when it returns."""

    def list(self, folder: str) -> Iterator[Entry]:
        """The files directly in `folder`, by name; none if there is no such folder."""

    def folders(self, folder: str) -> Iterator[str]:
        """The paths of the folders directly in `folder`, by name."""

    def unusable(self, folder: str) -> Iterator[str]:
        """The names in `folder` that `list` and `folders` leave out since not every system could have them, each in one
        line that is safe to print. Away from the disk, also those of what is neither file nor folder."""

    def rename(self, path: str, to: str) -> None:
        """Give a file another name, durably, in place of what has that name. After a crash it has one of the two, or
        both. FileNotFoundError if there is no such file."""

    def settle(self, folder: str) -> None:
        """Make the names in a folder durable, and the absence of others: a process that was killed may have changed
        them a moment ago."""

    def remove(self, path: str) -> None:
        """Remove a file if it is there. Not durable by itself. Folders left empty are removed too."""

    def remove_many(self, paths: Sequence[str]) -> None:
        """The same for several, with as few requests as the storage allows."""

    def tidy(self, folder: str) -> None:
        """Remove what is empty among the folders directly in `folder`, and `folder` itself if nothing is left."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold the workspace against other processes. LeaseHeld at once if another one has it."""

    def try_lock(self, path: str) -> None:
        """Where `abilities.lock`: StorageFailed if this file can't be locked, though no process has locked it. The lock
        is shared and released at once."""


class FileChanged(Exception):
    """The file is no longer the version that was to be replaced."""


def read_if_there(store: Store, path: str, *, limit: int | None = None) -> Content | None:
    """As `Store.read`, but None for what is not there, or is gone meanwhile."""
    try:
        return store.read(path) if limit is None else store.read(path, limit=limit)
    except FileNotFoundError:
        return None
