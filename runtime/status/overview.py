"""All runs below a folder or URL with their status: once, and kept current for screens that stay open."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct

from ...workspace.base import SatchelError, StorageFailed, arguments, time_text, urls
from ...workspace.inspect import below, below_store, discovery, lease
from ...workspace.store import AT_ONCE, Store, open_store
from ..supervision.serve import FolderRoot, Root, RootSignature, UrlRoot
from . import run_status
from .place import Place, root_of
from .run_status import RunStatus, Signs, look_once, signs

_SHARE = 4
"""A look is followed by a rest that is at least so many times as long."""

_ACTIVE = 15.0
"""Seconds between two looks into an active run in a bucket: each fetches all records since the last one."""

_URGENT = re.compile(r"(.*/)?(approvals|inbox)/|/?(pause|workspace)\.yaml\Z")
"""Paths that tell of people. The others change all the time while a run is active."""


def ls(
    root: str | os.PathLike[str] = ".",
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[RunStatus]:
    """The status of each workspace below `root`, a folder or URL, by name. Includes places that a run has moved away
    from.

    The status is brief, as from `Handle.status(brief=True)`. If a workspace can't be read, `problem` says why. `folder`
    is where it was found, and `same_run_id` names the others with its run_id. `progress` is called with the number of
    workspaces read, and the total. UsageError if `root` is no folder. Not guaranteed: that all are of the same moment.
    """
    arguments.function("progress", progress)
    typed = arguments.place("root", root)
    store = root_of(typed, storage_options)
    there: list[Store | str] = (
        [*below(typed, with_moved=True)] if store is None else [*below_store(store, with_moved=True)]
    )
    found: list[RunStatus] = []
    if store is not None and store.abilities.remote:
        found = look_at_all(store, there, progress)
    else:
        for each in there:
            found.append(look_at(each))
            if progress:
                progress(len(found), len(there))
    compare_ids(found)
    return found


def look_at_all(
    root: Store, there: Sequence[Store | str], progress: Callable[[int, int], None] | None
) -> list[RunStatus]:
    """Like `look_at` for runs below `root`, where reading is a request. Requests run at the same time, and one new
    listing is for all doubtful looks: after an outage many runs are interrupted."""
    found, doubts = list[RunStatus](), dict[int, Signs]()
    threads = ThreadPoolExecutor(AT_ONCE, "satchel-ls")
    try:
        for number, (status, doubted) in enumerate(threads.map(_look_once, there)):
            found.append(status)
            if doubted is not None:
                doubts[number] = doubted
            if progress:
                progress(len(found), len(there))
        again = [*doubts]
        if len(doubts) >= root.pages:  # else a listing of each is cheaper
            with suppress(SatchelError, OSError):
                root.refresh()
            again = [number for number, doubted in doubts.items() if signs(_opened(there[number])) != doubted]
        for number, status in zip(again, threads.map(look_at, [there[number] for number in again]), strict=True):
            found[number] = status
    finally:
        threads.shutdown(cancel_futures=True)
    return found


def compare_ids(found: Sequence[RunStatus]) -> None:
    """Note at each run which others have its run_id."""
    known = ((each.folder, each.definition.run_id) for each in found if each.definition)
    same = discovery.duplicate_groups(known)
    for each in found:
        folders = same.get(each.definition.run_id, []) if each.definition else []
        each.same_run_id = [folder for folder in folders if folder != each.folder]


def look_at(found: Store | str) -> RunStatus:
    """The brief status of a workspace that a search has found. If it can't be read, `problem` says why."""
    return _guarded(found, lambda place: (run_status.status(place, brief=True), None))[0]


def _look_once(found: Store | str) -> tuple[RunStatus, Signs | None]:
    return _guarded(found, lambda place: look_once(place, brief=True))


def _guarded(
    found: Store | str, look: Callable[[Place], tuple[RunStatus, Signs | None]]
) -> tuple[RunStatus, Signs | None]:
    folder, doubted = found if isinstance(found, str) else found.url, None
    try:
        status, doubted = look(Place(_opened(found), folder))
    except SatchelError as error:
        status = RunStatus(_url(folder), problem=error)
    except Exception as error:  # an error in one must not hide the others
        what = f"can't be read ({type(error).__name__}: {error})"
        status = RunStatus(_url(folder), problem=SatchelError(what, path=folder))
    status.folder = folder
    return status, doubted


def _opened(found: Store | str) -> Store:
    return open_store(found) if isinstance(found, str) else found


def _url(folder: str) -> str:
    return folder if urls.is_remote(folder) else os.path.realpath(folder)


class SeenRun(Struct, frozen=True):
    """One run of an overview. `name` is its path below the root with `/`, and empty if the root is the run itself.
    `status` is brief, as `ls` shows it."""

    name: str
    status: RunStatus

    @property
    def url(self) -> str:
        """What `satchel.open` takes."""
        return self.status.folder


class Seen(Struct, frozen=True):
    """All runs at one look. `number` is another one if anything has changed since an earlier look. `at` is the time of
    the look (UTC, ISO 8601). If the last look has failed, `problem` says why, and the rest is that of the look
    before."""

    runs: list[SeenRun]
    number: int
    at: str
    problem: SatchelError | None = None


class Overview:
    """The runs below `root`, a folder or URL, as `ls` lists them, for a server or a screen that stays open.

    `look` returns what is known, and looks again if that is older than `every` seconds: a second on a disk, 4 seconds
    for each request of a listing in a bucket. It reads only runs that have changed. So the cost does not depend on the
    number of callers, and without a call nothing is read. Safe to call from several threads; they share one look.
    UsageError if `root` is no folder, StorageFailed if a bucket does not answer. Not guaranteed: that all runs are of
    the same moment, and that an active run in a bucket is newer than 15 s, apart from its questions and its end.
    """

    def __init__(self, root: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None):
        typed = arguments.place("root", root)
        self._store = store = root_of(typed, storage_options)
        self.url = os.path.realpath(typed) if store is None else store.url
        self.is_remote = store is not None and store.abilities.remote
        self._root: Root = FolderRoot(self.url, with_moved=True) if store is None else UrlRoot(store, with_moved=True)
        self._runs: dict[str, _Run] = {}
        self._seen: Seen | None = None
        self._due = 0.0  # by time.monotonic
        self._lock = threading.Lock()  # protects all of these: one look at a time

    @property
    def every(self) -> float:
        """Seconds for which a look is current."""
        return self._root.every

    @property
    def seen(self) -> Seen | None:
        """The last look, without looking again. None before the first one."""
        return self._seen

    def look(self, *, now: bool = False, progress: Callable[[int, int], None] | None = None) -> Seen:
        """The runs by name, at most `every` seconds old; with `now` as they are now. `progress` is called with the
        number of changed runs that were read, and their total."""
        with self._lock:
            if self._seen is None or now or time.monotonic() >= self._due:
                began = time.monotonic()
                try:
                    self._seen = self._look(progress)
                except (SatchelError, OSError) as error:
                    if self._seen is None:
                        raise _as_ours(error, self.url) from error
                    self._seen = Seen(self._seen.runs, self._seen.number, self._seen.at, _as_ours(error, self.url))
                took = time.monotonic() - began
                self._due = time.monotonic() + max(self._root.every, _SHARE * took)
            return self._seen

    def _look(self, progress: Callable[[int, int], None] | None) -> Seen:
        at = time_text(datetime.now(UTC))
        places = dict(self._root.folders())
        runs = {place: self._runs.get(place) or _Run(folder) for place, folder in places.items()}
        changed = [(place, run) for place, run in runs.items() if self._has_changed(place, run)]
        for (_, run), status in zip(changed, self._statuses(changed, progress), strict=True):
            run.status, run.read = status, time.monotonic()
            if status.plan:
                status.plan.next_to_do()  # parsed now: not each of several readers may do that
        before = self._seen
        is_same = before is not None and not before.problem and not changed and runs.keys() == self._runs.keys()
        number = (before.number if before else 0) + (not is_same)
        self._runs = runs
        found = [SeenRun(self._name(place), run.status) for place, run in runs.items() if run.status]
        compare_ids([run.status for run in found])
        return Seen(sorted(found, key=lambda run: run.name), number, at)

    def _has_changed(self, place: str, run: _Run) -> bool:
        """Whether to read it now. Then its signs are those of this look."""
        signs = self._signs(place, run)
        if run.status is not None:
            if self.is_remote and signs.urgent == run.signs.urgent and run.is_active:
                has_changed = time.monotonic() >= run.read + _ACTIVE
            else:
                has_changed = signs != run.signs
            if not has_changed:
                return False
        run.signs = signs
        return True

    def _signs(self, place: str, run: _Run) -> _Signs:
        found = self._root.signature(place)
        store = run.store = self._root.store(place) if self.is_remote or run.store is None else run.store
        if self.is_remote:  # whether the lease is there; its heartbeats change it all the time
            urgent = (store.version(lease.PATH) is not None, *(each for each in found if _is_urgent(str(each[0]))))
            return _Signs(urgent, found)
        return _Signs((lease.holder(store),), found)  # the end of a process that was killed changes no file

    def _statuses(
        self, changed: list[tuple[str, _Run]], progress: Callable[[int, int], None] | None
    ) -> Iterator[RunStatus]:
        if self._store is not None and self.is_remote:
            yield from look_at_all(self._store, [self._root.store(place) for place, _ in changed], progress)
            return
        for number, (_, run) in enumerate(changed, 1):
            yield look_at(run.folder)
            if progress:
                progress(number, len(changed))

    def _name(self, place: str) -> str:
        if self.is_remote:
            return place.removeprefix(self.url).strip("/")
        return "" if place == self.url else os.path.relpath(place, self.url)


class _Signs(NamedTuple):
    """Equal as long as nothing has changed. `urgent` is what of it is worth a look at once."""

    urgent: tuple[object, ...]
    all: RootSignature


class _Run(Struct):
    """What is known of a run."""

    folder: str
    store: Store | None = None  # kept on a disk, where opening one resolves its path
    status: RunStatus | None = None
    signs: _Signs = _Signs((), ())  # when it was read
    read: float = 0.0  # when, by time.monotonic

    @property
    def is_active(self) -> bool:
        return self.status is not None and self.status.holder is not None


def _is_urgent(path: str) -> bool:
    return _URGENT.match(path) is not None


def _as_ours(error: SatchelError | OSError, root: str) -> SatchelError:
    if isinstance(error, SatchelError):
        return error
    if isinstance(error, FileNotFoundError):
        return StorageFailed("is gone", path=root, why="the folder was removed, or its disk is not mounted")
    return StorageFailed("can't be listed", path=root, why=error.strerror)
