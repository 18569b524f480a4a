"""Where workspaces are searched: below a folder, or below a URL, which one listing covers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from ....workspace.inbound.approvals import FOLDER as APPROVALS
from ....workspace.inbound.inbox import FOLDER as INBOX
from ....workspace.inspect import below, below_store, lease, read_by_glance
from ....workspace.store import Store, Version, open_store

_SILENCE = 30.0
"""Seconds after which a lease without a heartbeat is left over."""

_A_PAGE = 4.0
"""Seconds for each request that a listing takes: 648,000 requests in a month, for 3.24 dollars."""

_LOOKED_AT = ("", APPROVALS, INBOX, "journal")

RootSignature = tuple[tuple[str | int | None, ...], ...]
"""What a person or a program may have changed: equal as long as nothing has changed."""


class Root(Protocol):
    @property
    def every(self) -> float:
        """Seconds between two looks at everything."""

    aside: bool
    """A look takes time, and its caller makes it in a thread."""

    def folders(self) -> Iterator[tuple[str, str]]:
        """A new look: the place of each workspace, and its shown name."""

    def refresh(self, folders: Sequence[str]) -> None:
        """From now on signatures and stores of these show the current state."""

    def store(self, folder: str) -> Store:
        """The store of one of them. UsageError if it has just been removed."""

    def signature(self, folder: str) -> RootSignature: ...

    def is_renewed(self, folder: str) -> bool | None:
        """Whether its lease is renewed, where there is no lock to test. None: not known yet."""


class FolderRoot:
    """A folder of a disk."""

    every: float = 1.0
    aside = False

    def __init__(self, root: str, *, with_moved: bool = False):
        """`with_moved`: also places that a run has left."""
        self._root, self._with_moved = root, with_moved

    def folders(self) -> Iterator[tuple[str, str]]:
        """OSError if the root is gone or its disk fails: that is no folder without runs. One that this user may not
        read is listed, and a look at it says why."""
        with suppress(PermissionError), os.scandir(self._root):
            pass
        found = below(self._root, with_moved=self._with_moved)
        return ((os.path.realpath(folder), folder) for folder in found)

    def refresh(self, folders: Sequence[str]) -> None: ...

    def store(self, folder: str) -> Store:
        return open_store(folder)

    def signature(self, folder: str) -> RootSignature:
        found = []
        place = os.path.realpath(folder)
        for part in _parts(lambda part: _folders(place, part)):
            with suppress(OSError), os.scandir(os.path.join(place, part)) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if entry.is_file(follow_symlinks=False):
                        found.append((f"{part}/{entry.name}", status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(sorted(found))

    def is_renewed(self, folder: str) -> bool | None:
        return False


class UrlRoot:
    """A store that holds workspaces. `folders` makes a new listing, and the other methods use it.

    One request lists 1,000 objects, which are some 100 runs, whatever they do. So everything is listed, instead of one
    folder of each waiting run. The more requests a listing takes, the later the next one comes, so that the cost does
    not depend on the number of waiting runs. Times of the clock are handled when they come.
    """

    aside = True

    def __init__(self, store: Store, *, with_moved: bool = False):
        """`with_moved`: also places that a run has left."""
        self._root, self._with_moved = store, with_moved
        self._found: dict[str, Store] = {}
        self._leases: dict[str, _Watched] = {}
        self._at_hand: dict[str, RootSignature] = {}

    @property
    def every(self) -> float:
        return _A_PAGE * max(1, self._root.pages)

    def folders(self) -> Iterator[tuple[str, str]]:
        self._root.refresh()
        self._found = {store.url: store for store in below_store(self._root, with_moved=self._with_moved)}
        signatures = {url: self.signature(url) for url in self._found}
        changed = {url: self._found[url] for url, each in signatures.items() if each != self._at_hand.get(url)}
        at_rest = {url: store for url, store in changed.items() if store.version(lease.PATH) is None}
        self._root.fetch(
            f"{self._inside(url)}{path}" for url, store in at_rest.items() for path in read_by_glance(store)
        )
        self._at_hand = signatures
        for url in self._found:
            self._watch(url)
            yield url, url

    def refresh(self, folders: Sequence[str]) -> None:
        if len(folders) >= self._root.pages:
            self._root.refresh()
        else:
            for folder in folders:
                self._root.refresh(self._inside(folder).rstrip("/"))
        for folder in folders:
            if folder in self._found:  # else it was gone already when everything was listed
                self._watch(folder)

    def store(self, folder: str) -> Store:
        return self._found[folder]

    def signature(self, folder: str) -> RootSignature:
        """Empty once it is gone."""
        store = self._found.get(folder)
        parts = _parts(store.folders) if store else ()
        return tuple((entry.path, store.version(entry.path)) for part in parts if store for entry in store.list(part))

    def is_renewed(self, folder: str) -> bool | None:
        watched = self._leases.get(folder)
        if watched is None or watched.version is None or watched.seen >= watched.since + _SILENCE:
            return False
        return True if watched.has_changed else None

    def _watch(self, url: str) -> None:
        now, version, before = time.monotonic(), self._found[url].version(lease.PATH), self._leases.get(url)
        if before is None or version != before.version:
            self._leases[url] = _Watched(version, now, now, before is not None)
        else:
            before.seen = now

    def _inside(self, url: str) -> str:
        """The path from the root to a workspace; empty, or with a slash at its end."""
        path = url.removeprefix(self._root.url).strip("/")
        return f"{path}/" if path else ""


def _parts(folders_in: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """The folders of a workspace whose files show what people have done, including those of its sub-agents."""
    yield from _LOOKED_AT
    left = ["agents"]
    while left:
        for agent in folders_in(left.pop()):
            yield agent
            left.append(f"{agent}/agents")


def _folders(place: str, part: str) -> list[str]:
    with suppress(OSError), os.scandir(os.path.join(place, part)) as entries:
        return [f"{part}/{entry.name}" for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


class _Watched(Struct):
    """A lease. Times are of time.monotonic."""

    version: Version | None
    since: float  # when it was first seen
    seen: float  # when it was last seen: later it may have changed
    has_changed: bool  # it was another one before
