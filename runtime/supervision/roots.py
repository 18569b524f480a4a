"""Where workspaces are searched: below a folder, or below a URL, which one listing covers. And the index that `serve`
keeps next to the runs of a root: what rests, for the next `serve`, and for lists of runs."""

from __future__ import annotations

import gc
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import blake2b, sha256
from itertools import islice
from typing import Annotated, NamedTuple, Protocol

import msgspec
from msgspec import Meta, Struct

from ...workspace.base import SatchelError, version
from ...workspace.formats import decoder
from ...workspace.inbound import APPROVALS, INBOX
from ...workspace.inspect import FolderTree, Stamp, below_store, lease, read_by_glance, stamp_of, transfer_file
from ...workspace.journal import CHECKPOINTS, checkpoint_position
from ...workspace.journal import FOLDER as JOURNAL
from ...workspace.store import DiskStore, ListedDisk, Store, Syscalls, Version, open_store
from .census import RunFigures

_SILENCE = 30.0
"""Seconds after which a lease without a heartbeat is left over."""

_A_PAGE = 4.0
"""Seconds for each request that a listing takes: 648,000 requests in a month, for 3.24 dollars."""

_LOOKED_AT = ("", APPROVALS, INBOX, JOURNAL)

_GLANCED_AT = re.compile(rf"(/({APPROVALS}|{INBOX}))?/[^/]+\.(yaml|md|json)")
"""Files that people save, also in place. A change of the names in their folders shows at the folder."""

_MOST = 12  # of these files
_FEW = 300  # signatures that each look reads anyway
_ROUND = 40.0  # seconds in which every signature is read once
_TICK = 2_000_000_000  # nanoseconds: files that change twice within them may have one time

RootSignature = tuple[tuple[str | int | None, ...], ...]
"""What a person or a program may have changed: equal as long as nothing has changed."""


@contextmanager
def uncollected() -> Iterator[None]:
    """The body, a first look at many runs, keeps nearly all that it makes. The collector of cycles, which would go
    through that again and again, rests until it ends: this is a sixth of the CPU of 10,000 runs."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Root(Protocol):
    @property
    def every(self) -> float:
        """Seconds between two looks at everything."""

    aside: bool
    """Each look at a workspace takes time, and its caller makes it in a thread."""

    def folders(self) -> Iterator[tuple[str, str]]:
        """A new look: the place of each workspace, and its shown name."""

    def refresh(self, folders: Sequence[str]) -> None:
        """From now on signatures and stores of these show the current state."""

    def store(self, folder: str) -> Store:
        """The store of one of them. UsageError if it has just been removed."""

    def signature(self, folder: str) -> RootSignature: ...

    def look_store(self, store: Store) -> Store:
        """For the look at a workspace that follows its signature: it sees the same lists of files."""

    def is_settled(self, folder: str) -> bool:
        """Whether the next change gives another signature than the last one that was read, for sure."""

    def is_unchanged(self, folder: str) -> bool:
        """Whether the signature is as it was read, by a look that costs less. False once a minute in any case."""

    def forget(self, folder: str) -> None:
        """It is gone."""

    def is_renewed(self, folder: str) -> bool | None:
        """Whether its lease is renewed, where there is no lock to test. None: not known yet."""


class FolderRoot:
    """A folder of a disk.

    `folders` lists only folders whose names may have changed. `is_unchanged` looks at the times of a few files and
    folders of a workspace, which costs a tenth of its signature. Where there are many workspaces, the signature of each
    is read in turn, within a minute: an edit of a file of a sub-agent is seen no sooner.
    """

    every: float = 1.0
    aside = False

    def __init__(self, root: str, *, with_moved: bool = False):
        """`with_moved`: also places that a run has left."""
        self._root, self._tree = root, FolderTree(root, with_moved=with_moved)
        self._glimpses: dict[str, _Glimpse] = {}  # by place, that of the oldest signature first
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}  # each once, since they are few
        self._tops: dict[str, Stamp | None] = {}  # as of the last walk
        self._in_turn: frozenset[str] = frozenset()
        self._looked = time.monotonic()
        self._listed: ListedDisk | None = None  # as the last signature has seen it

    def folders(self) -> Iterator[tuple[str, str]]:
        """OSError if the root is gone or its disk fails: that is no folder without runs. One that this user may not
        read is listed, and a look at it says why."""
        with suppress(PermissionError), os.scandir(self._root):
            pass
        now = time.monotonic()
        many = math.ceil(len(self._glimpses) * (now - self._looked) / _ROUND)
        self._in_turn, self._looked = frozenset(islice(self._glimpses, max(_FEW, many))), now
        above = "" if (root := os.path.normpath(self._root)) == "." else os.path.join(root, "")
        real = os.path.realpath(self._root)
        below = os.path.join(real, "")
        self._tops = {}
        for folder in self._tree.walk():
            place = real if folder == root else below + folder.removeprefix(above)
            self._tops[place] = self._tree.stamp(folder)
            yield place, folder

    def refresh(self, folders: Sequence[str]) -> None: ...

    def store(self, folder: str) -> Store:
        return open_store(folder)

    def signature(self, place: str) -> RootSignature:
        found, seen, top = list[_Times](), list[_Times](), None
        self._listed = disk = ListedDisk(place)
        with suppress(OSError):
            top = stamp_of(os.lstat(place))
        for part in _parts(disk.folders):
            with suppress(SatchelError):
                above, _, name = part.rpartition("/")
                if part and part != JOURNAL and (status := disk.facts(above).get(name)):
                    seen.append((f"/{part}", *_times(status)))
                folder = f"/{part}" if part else ""
                facts = disk.facts(part).items()
                found += ((f"{folder}/{name}", *_times(each)) for name, each in facts if stat.S_ISREG(each.st_mode))
        found.sort()
        seen += [each for each in found if _GLANCED_AT.fullmatch(each[0])][:_MOST]
        names = tuple(each[0] for each in seen)
        newest = max([top[0] if top else 0, *(each[1] for each in (*seen, *found))])
        self._glimpses.pop(place, None)
        self._glimpses[place] = _Glimpse(
            top, self._names.setdefault(names, names), _hash(seen), newest < time.time_ns() - _TICK
        )
        return ((blake2b(repr(found).encode(), digest_size=16).hexdigest(),),)

    def look_store(self, store: Store) -> Store:
        return self._listed if self._listed is not None and self._listed.url == store.url else store

    def is_settled(self, place: str) -> bool:
        glimpse = self._glimpses.get(place)
        return glimpse is not None and glimpse.is_settled

    def is_unchanged(self, place: str) -> bool:
        glimpse = self._glimpses.get(place)
        if glimpse is None or not glimpse.is_settled or place in self._in_turn or self._tops.get(place) != glimpse.top:
            return False
        try:
            return _hash([(name, *_times(os.lstat(place + name))) for name in glimpse.names]) == glimpse.hash
        except OSError:
            return False

    def forget(self, place: str) -> None:
        self._glimpses.pop(place, None)

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

    def look_store(self, store: Store) -> Store:
        return store

    def is_settled(self, folder: str) -> bool:
        return True

    def is_unchanged(self, folder: str) -> bool:
        return False  # its signature needs no request

    def forget(self, folder: str) -> None: ...

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


_Times = tuple[str, int, int, int]


def _times(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _hash(times: list[_Times]) -> int:
    return hash(tuple(times))


class _Glimpse(NamedTuple):
    """What `is_unchanged` compares: the times of these folders and files when the signature was read."""

    top: Stamp | None  # of the workspace itself
    names: tuple[str, ...]
    hash: int
    is_settled: bool  # the next change will have another time for sure


def _parts(folders_in: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """The folders of a workspace whose files show what people have done, including those of its sub-agents."""
    yield from _LOOKED_AT
    left = ["agents"]
    while left:
        for agent in folders_in(left.pop()):
            yield agent
            left.append(f"{agent}/agents")


class _Watched(Struct):
    """A lease. Times are of time.monotonic."""

    version: Version | None
    since: float  # when it was first seen
    seen: float  # when it was last seen: later it may have changed
    has_changed: bool  # it was another one before


# The index of what rests

DUE_INDEX = ".satchel/due.json"

_MANY = 500  # runs, below which reading them takes no time
_EVERY = 30.0  # seconds between two writes, of all processes together
_FRESH = 60.0  # seconds for which lists believe it
_LIMIT = 256 << 20

_ABSENT = (lease.PATH, transfer_file.BACKUP_NOTE, transfer_file.PATH)
"""Files that change what a run is, and are in no signature. A run that rests at its place has none of them."""


class RestingRow(Struct, frozen=True, omit_defaults=True):
    """What lists show of a run that rests, besides its figures and its workspace.yaml. It has no text of the run, so
    not the name of the checkpoint either: the title of an item may be in it."""

    at: str  # of the last record
    checkpoint: int  # the record of the one that has been read
    proof: str
    plan: tuple[int, int] | None = None  # items that are settled, and all; None: it has no plan
    asked: tuple[str, ...] = ()  # the ids of its open questions
    is_timed: bool = False  # it is paused until a time

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.at)
        if not all(each.isascii() and each.isalnum() for each in self.asked):
            raise ValueError("no id of a question")


def proof_of(place: str, checkpoint: int) -> str:
    """Stands for the files that a row is made of, and that are in no signature. Empty: no row counts."""
    folder = f"{place}/{CHECKPOINTS}"
    try:
        names = [name for name in os.listdir(folder) if checkpoint_position(f"{CHECKPOINTS}/{name}") == checkpoint]
        status = [os.lstat(f"{folder}/{name}") for name in ("", *sorted(names))]
    except OSError:
        return ""
    if not names or any(os.path.lexists(f"{place}/{path}") for path in _ABSENT):
        return ""
    times = [(each.st_mtime_ns, each.st_size, each.st_ino) for each in status]
    is_settled = max(times)[0] < time.time_ns() - _TICK
    return blake2b(repr(times).encode(), digest_size=8).hexdigest() if is_settled else ""


class _PrivateCalls(Syscalls):
    """Make only files that no other user can read: one who may read the root may not read all its runs."""

    def give(self, fd: int, mode: int, owner: tuple[int, int] | None) -> None:
        super().give(fd, 0o600, owner)


class RestingRun(Struct, frozen=True, omit_defaults=True):
    """A run that was not due. `at`: when it becomes due by itself."""

    signature: str
    run_id: str
    at: Annotated[datetime, Meta(tz=True)] | None = None
    figures: RunFigures | None = None
    row: RestingRow | None = None

    def __post_init__(self) -> None:
        for text in (self.figures.opened_at, self.figures.asked_at) if self.figures else ():
            if text:
                datetime.fromisoformat(text)  # ValueError makes the whole index count for nothing


class _Content(Struct, frozen=True):
    satchel: str  # another version may judge otherwise
    runs: dict[str, RestingRun]  # by place, absolute


_content = decoder(_Content)


class DueIndex:
    """What is due when, as the last process that looked has found it, in a root with many runs, so that the next
    `serve` need not read all their records before it starts the first one, and lists need not read those that rest.

    Never the truth. It only says of a run that rests that it still does, as long as its files have the times and sizes
    that it was judged by; and each run is judged again by its files within the first minute, of over 40,000 runs within
    some minutes. So it starts nothing, and what is damaged, old, or made up delays a start by that time at most. Any
    other entry is as good as none.
    """

    def __init__(self, root: str):
        self._store = DiskStore(root, _PrivateCalls())
        self._written = float("-inf")  # by time.monotonic

    def read(self) -> dict[str, RestingRun]:
        """Empty if there is none that counts."""
        with suppress(SatchelError, OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            told, _, data = self._store.read(DUE_INDEX, limit=_LIMIT).data.partition(b"\n")
            if told.decode() == sha256(data).hexdigest():
                content: _Content = _content.decode(data)
                if content.satchel == version():
                    self._written = time.monotonic()
                    return content.runs
        return {}

    def rows(self) -> dict[str, RestingRun]:
        """The runs with a row. Empty if no process has written it within a minute: then none looks at their files."""
        with suppress(SatchelError, OSError):
            if 0 <= self._age < _FRESH:
                return {place: run for place, run in self.read().items() if run.row and run.figures}
        return {}

    @property
    def _age(self) -> float:
        """Seconds since it was written."""
        at = self._store.trace(DUE_INDEX).at
        return (datetime.now().astimezone() - datetime.fromisoformat(at)).total_seconds() if at else float("inf")

    def is_worth_writing(self, runs: int) -> bool:
        return runs >= _MANY and time.monotonic() >= self._written + _EVERY

    def write(self, runs: dict[str, RestingRun]) -> None:
        """Does nothing if another process has written it a moment ago, or if it can't be written."""
        self._written = time.monotonic()
        with suppress(SatchelError, OSError):
            if not 0 <= self._age < _EVERY / 2:
                data = msgspec.json.encode(_Content(version(), runs))
                self._store.replace(DUE_INDEX, sha256(data).hexdigest().encode() + b"\n" + data, sync="no")
