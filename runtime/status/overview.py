"""All runs below a folder or URL with their status: once, and kept current for screens that stay open; and which of
them a person asks for, in which order, for the list of the page and for `satchel ls`.

The status of a run that rests comes from its row in the index that `serve` keeps, without reading its records. `serve`
makes a row with the rules of a status, so both are the same.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from ...schemas import nearest
from ...workspace.base import SatchelError, StorageFailed, UsageError, arguments, moment_before, time_text, urls
from ...workspace.inspect import Look, below_store, define, discovery, lease
from ...workspace.journal import checkpoint_position
from ...workspace.plan import Progress
from ...workspace.state import STATES, Usage
from ...workspace.store import AT_ONCE, ListedDisk, Store, listed, open_store
from ..supervision import (
    Census,
    DueIndex,
    FolderRoot,
    RestingRow,
    Root,
    RootSignature,
    RunFigures,
    SightedRun,
    UrlRoot,
    figures_of,
    proof_of,
    uncollected,
)
from . import run_status
from .place import Place, root_of
from .run_status import RestingStatus, RunStatus, Signs, asked, by_need, ends_by_itself, look_once, signs, stand

_SHARE = 4
"""A look is followed by a rest that is at least so many times as long."""

_SHOWN_EVERY = 0.2
"""Seconds between two states of the first look that are shown."""

_ACTIVE = 15.0
"""Seconds between two looks into an active run in a bucket: each fetches all records since the last one."""

_ROUND = 40.0
"""Seconds after which each run was read that the first look has taken from the index of `serve`."""

_IN_ROW = frozenset(("url", "state", "definition", "moment", "at", "plan"))
_OTHERS = tuple(name for name in RunStatus.__struct_fields__ if name not in _IN_ROW)
"""What a run has only if something waits for it or is wrong with it. Such a run gets no row."""

_ID = re.compile(r"[a-z0-9]{1,20}")

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

    Of an unchanged run that rests below a folder that `satchel serve` looks at, `moment`, `plan`, `questions` and
    `next` are read when they are first asked for.
    """
    return _ls(root, storage_options, progress, RestingRows)


def ls_whole(
    root: str, *, storage_options: Mapping[str, Any] | None, progress: Callable[[int, int], None] | None
) -> list[RunStatus]:
    """Like `ls`, with all of each status read now, which costs less if most of it is asked for."""
    return _ls(root, storage_options, progress, lambda typed: None)


def _ls(
    root: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    progress: Callable[[int, int], None] | None,
    rows_of: Callable[[str], RestingRows | None],
) -> list[RunStatus]:
    arguments.function("progress", progress)
    typed = arguments.place("root", root)
    store = root_of(typed, storage_options)
    stores = [*below_store(store, with_moved=True)] if store is not None else []
    if store is not None and store.abilities.remote:
        found = [*dict(look_at_all(store, stores, progress)).values()]
    else:
        found = []
        with uncollected():
            looks = [partial(look_at, each) for each in stores] if store is not None else _looks(typed, rows_of(typed))
            for look in looks:
                found.append(look())
                if progress:
                    progress(len(found), len(looks))
    compare_ids(found)
    return found


def _looks(typed: str, rows: RestingRows | None) -> list[Callable[[], RunStatus]]:
    """A look at each run below a folder."""
    root = FolderRoot(typed, with_moved=True)

    def look(place: str, folder: str) -> RunStatus:
        read = partial(look_at, place, folder)
        if rows is None or place not in rows:
            return read()
        return rows.status(place, folder, root.signature(place), read) or read()

    return [partial(look, *each) for each in root.folders()]


def look_at_all(
    root: Store, there: Sequence[Store | str], progress: Callable[[int, int], None] | None
) -> Iterator[tuple[int, RunStatus]]:
    """Like `look_at` for runs below `root`, where reading is a request: the number of each and its status. Requests run
    at the same time, and one new listing is for all doubtful looks: after an outage many runs are interrupted. So a
    doubtful one comes twice, and the second status counts."""
    doubts = dict[int, Signs]()
    threads = ThreadPoolExecutor(AT_ONCE, "satchel-ls")
    try:
        for number, (status, doubted) in enumerate(threads.map(_look_once, there)):
            yield number, status
            if doubted is not None:
                doubts[number] = doubted
            if progress:
                progress(number + 1, len(there))
        again = [*doubts]
        if len(doubts) >= root.pages:  # else a listing of each is cheaper
            with suppress(SatchelError, OSError):
                root.refresh()
            again = [number for number, doubted in doubts.items() if signs(_opened(there[number])) != doubted]
        yield from zip(again, threads.map(look_at, [there[number] for number in again]), strict=True)
    finally:
        threads.shutdown(cancel_futures=True)


def compare_ids(found: Sequence[RunStatus]) -> None:
    """Note at each run which others have its run_id."""
    known = ((each.folder, each.definition.run_id) for each in found if each.definition and not each.backup_of)
    same = discovery.duplicate_groups(known)
    for each in found:
        folders = same.get(each.definition.run_id, []) if each.definition else []
        each.same_run_id = [folder for folder in folders if folder != each.folder]


def look_at(found: Store | str, folder: str = "") -> RunStatus:
    """The brief status of a workspace that a search has found, as `folder` if it has two names. If it can't be read,
    `problem` says why."""
    return _guarded(found, lambda place: (run_status.status(place, brief=True), None), folder)[0]


def _look_once(found: Store | str) -> tuple[RunStatus, Signs | None]:
    return _guarded(found, lambda place: look_once(place, brief=True))


def _guarded(
    found: Store | str, look: Callable[[Place], tuple[RunStatus, Signs | None]], folder: str = ""
) -> tuple[RunStatus, Signs | None]:
    folder, doubted = folder or (found if isinstance(found, str) else found.url), None
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
    """For one look."""
    return listed(open_store(found) if isinstance(found, str) else found)


def _url(folder: str) -> str:
    return folder if urls.is_remote(folder) else os.path.realpath(folder)


def resting_row(store: Store, seen: Look) -> RestingRow | None:
    """What lists show of a run, if it rests and nothing has to be said of it that is not in a row."""
    status, moment = stand(store, seen=seen), seen.moment
    phase = STATES[status.state].phase
    is_plain = phase in ("stopped", "over") and status.state == moment.status and not moment.is_new
    if not is_plain or moment.url != store.url or any(getattr(status, name) for name in _OTHERS):
        return None
    checkpoint = checkpoint_position(seen.checkpoint) or 0
    ids, proof = asked(status), proof_of(store.url, checkpoint)
    if not proof or not all(map(_ID.fullmatch, ids)):
        return None
    plan = progress_of(status)
    return RestingRow(status.at, checkpoint, proof, plan, (*ids,), ends_by_itself(status))


class RestingRows:
    """The rows of a root, for one look at all its runs."""

    def __init__(self, root: str):
        self._runs = DueIndex(root).rows()

    def __contains__(self, place: str) -> bool:
        return place in self._runs

    def status(
        self, place: str, folder: str, signature: RootSignature, read: Callable[[], RunStatus]
    ) -> RestingStatus | None:
        """The status of a run with this signature. None: only its files tell it. `read` reads them."""
        run = self._runs.get(place)
        if run is None or ((run.signature,),) != signature or run.row is None or run.figures is None:
            return None
        if proof_of(place, run.row.checkpoint) != run.row.proof:
            return None
        try:
            definition = define(ListedDisk(place))
        except (SatchelError, OSError):
            return None
        if definition.kind or definition.run_id != run.run_id:
            return None
        status = RestingStatus(place, run.figures.state, definition, at=run.row.at, folder=folder)
        status.row, status.figures, status.read = run.row, run.figures, read
        return status


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
    before. `unread`: how many the first look has not read yet."""

    runs: list[SeenRun]
    number: int
    at: str
    problem: SatchelError | None = None
    unread: int = 0


class Overview:
    """The runs below `root`, a folder or URL, as `ls` lists them, for a server or a screen that stays open.

    `look` returns what is known, and looks again if that is older than `every` seconds: a second on a disk, 4 seconds
    for each request of a listing in a bucket. It reads only runs that have changed. So the cost does not depend on the
    number of callers, and without a call nothing is read. Safe to call from several threads; they share one look.
    UsageError if `root` is no folder, StorageFailed if a bucket does not answer. Not guaranteed: that all runs are of
    the same moment, and that an active run in a bucket is newer than 15 s, apart from its questions and its end.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        census: Census | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """`census` is told what each look has found."""
        typed = arguments.place("root", root)
        self._store = store = root_of(typed, storage_options)
        self.url = os.path.realpath(typed) if store is None else store.url
        self.is_remote = store is not None and store.abilities.remote
        self._census = census
        self._root: Root = FolderRoot(self.url, with_moved=True) if store is None else UrlRoot(store, with_moved=True)
        self._runs: dict[str, _Run] = {}
        self._seen: Seen | None = None
        self._begun: Seen | None = None  # what the first look has read so far
        self._due = 0.0  # by time.monotonic
        self._rows: RestingRows | None = None  # for the first look
        self._looked = time.monotonic()
        self._lock = threading.Lock()  # protects all of these: one look at a time

    @property
    def every(self) -> float:
        """Seconds for which a look is current."""
        return self._root.every

    @property
    def seen(self) -> Seen | None:
        """The last look, without looking again. While the first one goes on, what it has read so far. None before
        that."""
        return self._seen or self._begun

    def look(self, *, now: bool = False, progress: Callable[[int, int], None] | None = None) -> Seen:
        """The runs by name, at most `every` seconds old; with `now` as they are now. `progress` is called with the
        number of changed runs that were read, and their total."""
        with self._lock:
            if self._seen is None or now or time.monotonic() >= self._due:
                began = time.monotonic()
                try:
                    with uncollected() if self._seen is None else nullcontext():
                        self._seen = self._look(progress)
                except (SatchelError, OSError) as error:
                    if self._seen is None:
                        raise _as_ours(error, self.url) from error
                    self._seen = Seen(self._seen.runs, self._seen.number, self._seen.at, _as_ours(error, self.url))
                took = time.monotonic() - began
                rest = max(self._root.every, _SHARE * took)
                self._due = time.monotonic() + rest
                if self._census is not None and not self._seen.problem:
                    self._census.looked(self.url, took, rest, (run.sighted for run in self._runs.values()))
            return self._seen

    def _look(self, progress: Callable[[int, int], None] | None) -> Seen:
        at = time_text(datetime.now(UTC))
        places = dict(self._root.folders())
        runs = {place: self._runs.get(place) or _Run(folder) for place, folder in places.items()}
        before, seconds, self._looked = self._seen, time.monotonic() - self._looked, time.monotonic()
        self._rows = RestingRows(self.url) if before is None and self._store is None else None
        unread = [run for run in runs.values() if isinstance(run.status, RestingStatus)]
        for run in unread[: math.ceil(len(runs) * seconds / _ROUND)]:
            run.status = None
        if before is not None or self.is_remote:
            changed = [(place, run) for place, run in runs.items() if self._has_changed(place, run)]
        else:  # all of them, and the first rows need not wait for the signs of the others
            changed = sorted(runs.items(), key=_changed_at, reverse=True)
        shown, told = dict[str, SeenRun](), 0.0
        for place, run, status in self._statuses(changed, progress):
            run.take(status)
            shown[place] = SeenRun(self._name(place), status)
            if before is None and time.monotonic() >= told + _SHOWN_EVERY:
                found = sorted(shown.values(), key=lambda run: run.name)
                self._begun = Seen(found, -len(found), at, unread=len(runs) - len(found))
                told = time.monotonic()
        is_same = before is not None and not before.problem and not changed and runs.keys() == self._runs.keys()
        number = (before.number if before else 0) + (not is_same)
        for place in self._runs.keys() - runs.keys():
            self._root.forget(place)
        self._runs = runs
        found = [SeenRun(self._name(place), run.status) for place, run in runs.items() if run.status]
        compare_ids([run.status for run in found])
        return Seen(sorted(found, key=lambda run: run.name), number, at)

    def _has_changed(self, place: str, run: _Run) -> bool:
        """Whether to read it now. Then its signs are those of this look."""
        if run.status is not None and not run.is_active and self._root.is_unchanged(place):
            return False
        signs, is_sure = self._signs(place, run), self._root.is_settled(place)
        if run.status is not None:
            if self.is_remote and signs.urgent == run.signs.urgent and run.is_active:
                has_changed = time.monotonic() >= run.read + _ACTIVE
            else:
                has_changed = signs != run.signs or is_sure > run.is_sure
            if not has_changed:
                return False
        run.signs, run.is_sure = signs, is_sure
        return True

    def _signs(self, place: str, run: _Run) -> _Signs:
        found = self._root.signature(place)
        store = run.store = self._root.store(place) if self.is_remote or run.store is None else run.store
        if self.is_remote:  # whether the lease is there; its heartbeats change it all the time
            urgent = (store.version(lease.PATH) is not None, *(each for each in found if _URGENT.match(str(each[0]))))
            return _Signs(urgent, found)
        return _Signs((lease.holder(store),), found)  # the end of a process that was killed changes no file

    def _statuses(
        self, changed: list[tuple[str, _Run]], progress: Callable[[int, int], None] | None
    ) -> Iterator[tuple[str, _Run, RunStatus]]:
        """Each as soon as it is read; a doubtful one in a bucket once more at the end."""
        if self._store is not None and self.is_remote:
            stores = [self._root.store(place) for place, _ in changed]
            for number, status in look_at_all(self._store, stores, progress):
                yield *changed[number], status
            return
        for number, (place, run) in enumerate(changed, 1):
            if self._seen is None:
                self._has_changed(place, run)  # takes its signs
            read = partial(look_at, place, run.folder)
            resting = self._rows.status(place, run.folder, run.signs.all, read) if self._rows else None
            yield place, run, resting or look_at(self._root.look_store(run.store) if run.store else run.folder)
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
    figures: RunFigures | None = None  # if `status` has a moment
    signs: _Signs = _Signs((), ())  # when it was read
    is_sure: bool = True  # no later change can have left these as they are; else it is read once more
    read: float = 0.0  # when, by time.monotonic

    def take(self, status: RunStatus) -> None:
        """Its status was read now."""
        self.status, self.read = status, time.monotonic()
        if isinstance(status, RestingStatus):
            self.figures = status.figures
            return
        self.figures = figures_of(status.moment, status.state) if status.moment else None
        if status.plan:
            status.plan.next_to_do()  # parsed now: not each of several readers may do that

    @property
    def is_active(self) -> bool:
        return self.status is not None and self.status.holder is not None

    @property
    def sighted(self) -> SightedRun:
        return SightedRun(self.folder, self.figures, unread=self.status.state if self.status else "damaged")


def _changed_at(found: tuple[str, _Run]) -> int:
    """When names at the top of a workspace have changed last: each state and plan that is written changes them."""
    try:
        return os.stat(found[0]).st_mtime_ns
    except OSError:
        return 0


def _as_ours(error: SatchelError | OSError, root: str) -> SatchelError:
    if isinstance(error, SatchelError):
        return error
    if isinstance(error, FileNotFoundError):
        return StorageFailed("is gone", path=root, why="the folder was removed, or its disk is not mounted")
    return StorageFailed("can't be listed", path=root, why=error.strerror)


def usage_of(status: RunStatus) -> Usage:
    """What the run has used. Of one from the index: steps, tokens and dollars."""
    if isinstance(status, RestingStatus):
        figures = status.figures
        return Usage(steps=figures.steps, tokens=figures.tokens, usd=figures.usd)
    return status.moment.usage if status.moment else Usage()


def progress_of(status: RunStatus) -> Progress | None:
    """How far its plan is. None without items."""
    if isinstance(status, RestingStatus):
        return Progress(*status.row.plan) if status.row.plan else None
    return status.plan.progress if status.plan and len(status.plan) else None


BY_NEED = "need"
"""The order of the page without `sort`."""

_CENT = 0.000_000_5
"""Sums of costs are not exact: so much less is as much."""


class SortOrder(NamedTuple):
    """What runs are sorted by, and how that begins: `descending` with the most. A run whose key is None comes last,
    whichever way round."""

    key: Callable[[SeenRun], Any]
    descending: bool
    words: str


def _by_cost(run: SeenRun) -> tuple[float, int, int] | None:
    usage = usage_of(run.status)
    return (usage.usd, usage.tokens, usage.steps) if usage.usd or usage.tokens or usage.steps else None


def _by_plan(run: SeenRun) -> float | None:
    settled, leaves = progress_of(run.status) or (0, 0)
    return settled / leaves if leaves else None


ORDERS: dict[str, SortOrder] = {
    BY_NEED: SortOrder(lambda run: by_need(run.status), False, "what needs you first"),
    "run": SortOrder(lambda run: run.name.casefold(), False, "by name"),
    "agent": SortOrder(lambda run: agent_of(run.status) or None, False, "by agent"),
    "state": SortOrder(lambda run: [*STATES].index(run.status.state), False, "by state"),
    "plan": SortOrder(_by_plan, False, "least done first"),
    "spent": SortOrder(_by_cost, True, "dearest first"),
    "activity": SortOrder(lambda run: run.status.at or None, True, "latest first"),
}
"""The orders by name. `-NAME` is the other way round. Equal ones: the latest first."""


def agent_of(status: RunStatus) -> str:
    """The agent of a run as workspace.yaml names it. Empty if that can't be read."""
    return status.definition.agent if status.definition else ""


class RunQuery(Struct, frozen=True):
    """What a person asks for: runs that are all of these.

    `text`: each word is in the name, the id, the agent, the group, the state, or in the item that it is at. `states`:
    it is in one of them. `wanted`: it needs a person. `agent`: a name or a pattern (`support*`). `usd`: it has spent so
    much or more. `since` and `before`: its last activity was later, or earlier, than a time (22:30, 2026-11-22 22:30)
    or a length ago (2h). `sort`: one of `ORDERS`; empty: as they come. UsageError for a state, an order or a time that
    is none.
    """

    text: str = ""
    states: tuple[str, ...] = ()
    wanted: bool = False
    agent: str = ""
    usd: float = 0.0
    since: str = ""
    before: str = ""
    sort: str = ""

    def __post_init__(self) -> None:
        for each in self.states:
            if each not in STATES:
                raise _no_such("state", each, STATES)
        if self.sort and self.sort.removeprefix("-") not in ORDERS:
            raise _no_such("order", self.sort.removeprefix("-"), ORDERS)
        _ago(self.since)
        _ago(self.before)

    def of(self, runs: Iterable[SeenRun]) -> list[SeenRun]:
        """The runs that it asks for, in its order."""
        since, before = _ago(self.since), _ago(self.before)
        found = [run for run in runs if self._has(run.status, since, before) and self._is_named(run)]
        name = self.sort.removeprefix("-")
        if not name:
            return found
        order, known, others = ORDERS[name], list[tuple[Any, SeenRun]](), list[SeenRun]()
        for run in sorted(found, key=lambda run: run.status.at, reverse=True):
            key = order.key(run)
            known.append((key, run)) if key is not None else others.append(run)
        known.sort(key=lambda each: each[0], reverse=order.descending != (self.sort != name))
        return [*(run for _, run in known), *others]

    def _has(self, status: RunStatus, since: str, before: str) -> bool:
        return (
            (not self.states or status.state in self.states)
            and (not since or status.at >= since)
            and (not before or "" < status.at < before)
            and (not self.usd or usage_of(status).usd >= self.usd - _CENT)
            and (not self.agent or fnmatchcase(agent_of(status), self.agent))
            and (not self.wanted or status.needs_person)
        )

    def _is_named(self, run: SeenRun) -> bool:
        if not self.text:
            return True
        status = run.status
        parts = [run.name or run.url.rpartition("/")[2], status.state]
        if status.definition:
            parts += [status.definition.run_id, status.definition.agent, status.definition.group]
        if status.at_work:
            parts.append(status.at_work.text)
        there = " ".join(parts).casefold()
        return all(word in there for word in self.text.casefold().split())


def _ago(written: str) -> str:
    """The time that a text means, in the form of a record's time. Empty if there is none."""
    return time_text(moment_before(written, datetime.now(UTC))) if written else ""


def _no_such(what: str, given: str, known: Iterable[str]) -> UsageError:
    names = [*known]
    close = nearest(given, names)
    remedy = f"did you mean {close!r}?" if close else f"there are {', '.join(names)}"
    return UsageError(f"there is no {what} {given[:40]!r}", remedy=remedy)
