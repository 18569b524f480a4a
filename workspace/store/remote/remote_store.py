"""The common part of stores over a network: one listing, and a cache of what was read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime

from ....schemas import Problem
from ...base import AgentError, InvalidFile, SatchelError, check_path, shown
from ..contract import AppendFile, Entry, Exposure, FileContent, Trace, Version
from .listing_cache import LARGEST_BODY, Bodies, ListedFile, Take, View

READ_LIMIT = 64 << 20
_FETCHED_AT_ONCE = 8  # requests

PAGE = 1000
"""How many files one request of a listing returns."""


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
