"""What is below a root, which of it is due, and which of those that are due start next. Reads files, creates the due
tasks of schedules, and starts nothing.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import DEFINITION, SatchelError, StorageFailed, UsageError, arguments
from ...workspace.inspect import define, discovery, lease
from ...workspace.store import Store
from ..live import utc_now
from .census import Census
from .known_run import NEVER, Known, RowOf, Schedule, StartVerdict, due_since, judge
from .roots import DueIndex, FolderRoot, RestingRun, Root, RootSignature, UrlRoot, uncollected

_PROOFS = 1000
"""How many runs a look judges at most although the index says that they rest: of up to 40,000, all within the first
minute."""

_LOOKS = 40  # in which they all are judged, if they are fewer

STORAGE_ERRORS = (StorageFailed, OSError)

Kind = Literal[
    "started",
    "completed",
    "failed",
    "refused",
    "paused",
    "waiting",
    "sleeping",
    "busy",
    "cancelled",
    "crashed",
    "alone",
    "interrupted",
    "damaged",
    "warned",
    "storage",
    "late",
    "listening",
    "outdated",
]


class ServeEvent(Struct, frozen=True):
    """An event of a workspace. Its folder is as it was found below the root."""

    kind: Kind
    folder: str
    text: str = ""


class Lookout:
    """The workspaces below `typed`, a folder, or the URL of `store`. One look at a time, in any thread.

    `after_signals`: at every look a pause by a signal is over, and not only at the first one: see `judge`. `tell` is
    called with what is wrong with a workspace or with the root, once as long as it is the same. `census` is told what
    each look has found. `row_of` makes what the index keeps for lists of runs.
    """

    def __init__(
        self,
        typed: str,
        store: Store | None,
        tell: Callable[[ServeEvent], None],
        clock: Callable[[], datetime] = utc_now,
        *,
        after_signals: bool = False,
        census: Census | None = None,
        row_of: RowOf | None = None,
    ):
        self.root: Root = FolderRoot(typed) if store is None else UrlRoot(store)
        self._typed, self._tell, self._clock, self._after_signals = typed, tell, clock, after_signals
        self._census, self._row_of = census, row_of if store is None else None
        self.known: dict[str, Known] = {}
        self._due: dict[str, Known] = {}  # by folder; also some that are due no longer
        self._lock = threading.Lock()  # protects both: programs want runs while a thread looks
        self.looked_at = float("-inf")  # at everything, by time.monotonic
        self.has_looked = False
        self.index = DueIndex(typed) if store is None else None  # None: the first look judges each run by its files
        self._resting: dict[str, RestingRun] = {}  # by place, what the index says of what was not seen yet
        self._proofs = 0  # how many more runs of the index this look may judge
        self._last_at = datetime.min.replace(tzinfo=UTC)  # by the clock, which may be set back
        self._trouble = ""
        self._same: dict[str, list[str]] = {}  # folders by the run_id that they have in common

    @property
    def looks_at(self) -> float:
        """When to look at everything again, by time.monotonic."""
        return self.looked_at + self.root.every

    @property
    def has_failed(self) -> bool:
        """Whether the last look at everything could not be made, so that what is known is older."""
        return bool(self._trouble)

    def next_look(self) -> Callable[[], None] | None:
        """Look at everything, or in between at those whose time has come since."""
        if time.monotonic() >= self.looks_at:
            self.looked_at = time.monotonic()
            return self.look
        now = self._clock()
        due = [known for known in [*self.known.values()] if self.root.aside and known.has_come(now)]
        return partial(self._look_at, due) if due else None

    def _look_at(self, due: list[Known]) -> None:
        for known in due:
            known.seen = self._clock()
        try:
            self.root.refresh([known.folder for known in due])
        except (SatchelError, OSError):
            return  # the next look at everything reports it and corrects it
        for known in due:
            try:
                is_gone = known.store.version(DEFINITION) is None
            except (SatchelError, OSError):
                is_gone = False  # a write has failed, and so did the next listing: judging it reports that
            if is_gone:
                self.looked_at = float("-inf")  # only a look at everything drops it
                continue
            self._fire(known)
            if not known.is_taken:
                self.judge(known)

    def look(self) -> None:
        """At everything."""
        with nullcontext() if self.has_looked else uncollected():
            self._look()

    def _look(self) -> None:
        began = time.monotonic()
        try:
            folders = dict(self.root.folders())
        except (SatchelError, OSError) as error:
            self._tell_of_root(str(error))
            self.looked_at = time.monotonic()
            return
        self._tell_of_root("")
        now, before = self._clock(), self._last_at
        self._last_at, has_changed = now, False
        self._proofs = min(_PROOFS, math.ceil(len(self.known) / _LOOKS))
        if self.index is not None and not self.has_looked:
            self._resting = self.index.read()
        for place, folder in folders.items():
            known = self.known.get(place)
            if known is None or (known.is_apart and not known.is_taken and not known.wanted_since):
                with suppress(SatchelError):  # it has just been removed
                    store = self.root.store(folder)
                    self._meet(place, Known(folder, store, not self.has_looked, Schedule(store, now)))
            elif known.rests(now) and self.root.is_unchanged(place) and before <= now:
                continue
            if (known := self.known.get(place)) is None:
                continue
            has_changed = True
            known.seen = now
            self._fire(known)
            if not known.is_taken:
                self.judge(known)
            known.rest()
        for place, known in [*self.known.items()]:
            if place in folders or known.is_taken:
                continue
            has_changed = True
            if self._drop(place, known):
                self.root.forget(place)
            else:
                self.judge(known)
        if has_changed:
            self._warn_of_duplicates()
        self._resting = {}
        if self.index is not None and self.index.is_worth_writing(len(self.known)):
            self.index.write({place: run for place, known in [*self.known.items()] if (run := _resting(known, now))})
        self.looked_at, self.has_looked = time.monotonic(), True
        if self._census is not None:
            runs = (known.sighted for known in list(self.known.values()))
            self._census.looked(self._typed, self.looked_at - began, self.root.every, runs)

    def want(self, place: str, made: Known) -> None:
        """A program wants this workspace to be started. `made` is for one that no look has found yet."""
        with self._lock:
            known = self.known.setdefault(place, made)
            known.wanted_since = known.wanted_since or time.time()
            self._due[known.folder] = known

    def left(self) -> list[Known]:
        """What is due or wanted."""
        with self._lock:
            self._due = {folder: known for folder, known in self._due.items() if known.since}
            return [*self._due.values()]

    def _meet(self, place: str, found: Known) -> None:
        with self._lock:
            known = self.known.get(place)
            if known is None or not (known.is_taken or known.wanted_since):
                self.known[place] = found

    def _drop(self, place: str, known: Known) -> bool:
        """Whether it is not known any more. What a program wants stays."""
        with self._lock:
            if known.wanted_since:
                return False
            self.known.pop(place, None)
            self._due.pop(known.folder, None)
            return True

    def _warn_of_duplicates(self) -> None:
        """Once, as long as they are the same."""
        met = [*self.known.values()]
        same = discovery.duplicate_groups((known.folder, known.run_id) for known in met if known.run_id)
        for run_id, folders in same.items():
            if self._same.get(run_id) != folders:
                self._tell(ServeEvent("warned", folders[0], discovery.describe_duplicates(run_id, folders)))
        self._same = same

    def _tell_of_root(self, trouble: str) -> None:
        """Once, as long as it is the same."""
        if trouble and trouble != self._trouble:
            self._tell(ServeEvent("damaged", self._typed, trouble))
        self._trouble = trouble

    def _fire(self, known: Known) -> None:
        """Put the due tasks of its schedule into its inbox, whether it runs or not."""
        try:
            for text in known.schedule.look(self._clock()):
                self._tell(ServeEvent("warned", known.folder, text))
            known.told.pop("schedule", None)
        except Exception as error:  # whatever is wrong with this one, the others go on
            self.complain(known, "schedule", error)

    def complain(self, known: Known, of: str, error: Exception) -> None:
        """Once, as long as it is the same, whichever code has found it."""
        is_ours = isinstance(error, SatchelError)
        text = str(error) if is_ours else f"can't be read ({type(error).__name__}: {error})"
        if text not in known.told.values():
            self._tell(ServeEvent("storage" if isinstance(error, STORAGE_ERRORS) else "damaged", known.folder, text))
        known.told[of] = text

    def judge(self, known: Known) -> None:
        now = self._clock()
        is_held: bool | None = False
        try:
            signature = self.root.signature(known.store.url)
            is_sure = self.root.is_settled(known.store.url)
            if self._rests_by_index(known, signature, now):
                pass
            elif signature != known.signature or known.verdict.passing or known.is_unproven or is_sure > known.is_sure:
                self._proofs -= known.is_unproven
                known.signature, known.is_sure, known.is_unproven = signature, is_sure, False
                store = self.root.look_store(known.store)
                known.verdict = judge(
                    store, now, tried=known.tried, afresh=known.afresh or self._after_signals, row_of=self._row_of
                )
                known.run_id = known.verdict.run_id or known.run_id
                self._see_group(known)
                known.told.pop("files", None)
            verdict = known.verdict
            is_settled = signature == known.settled and not verdict.by_clock
            is_due = verdict.starts and not is_settled and (verdict.at is None or verdict.at <= now)
            is_held = self._is_held(known) if is_due else False
        except Exception as error:  # whatever is wrong with this one, the others go on
            passing, is_due = isinstance(error, STORAGE_ERRORS), False
            verdict = known.verdict = replace(NEVER, passing=passing, is_open=passing)
            self.complain(known, "files", error)
        known.may_be_held, known.is_held = is_held is None, verdict.is_held or is_held is True
        known.afresh = known.afresh and (is_due or verdict.is_open or known.is_unproven)
        if is_due and is_held is not False:
            known.due_since = 0.0  # its holder may run elsewhere; a run with a left-over lease is due again
        elif is_due and not known.due_since:
            known.due_since = due_since(verdict, known.afresh)
        elif not is_due:
            known.due_since, known.in_vain, known.not_before = 0.0, 0, 0.0
        if known.due_since:
            with self._lock:
                self._due[known.folder] = known

    def _rests_by_index(self, known: Known, signature: RootSignature, now: datetime) -> bool:
        """Whether there is no need to judge it yet, since the index says that it rests. A run that its words would make
        due is judged."""
        if (found := self._resting.get(known.store.url)) is not None and known.signature is None:
            known.is_unproven = ((found.signature,),) == signature
            if known.is_unproven:
                known.signature, known.run_id = signature, found.run_id
                known.verdict = StartVerdict(found.at is not None, found.at, run_id=found.run_id, figures=found.figures)
        elif self._proofs > 0:
            return False
        is_resting = known.verdict.at is None or known.verdict.at > now
        return known.is_unproven and is_resting and signature == known.signature

    def _see_group(self, known: Known) -> None:
        """Take its group and priority from the verdict. One that is held was not read for that, and counts in its group
        all the same."""
        if not known.verdict.is_held:
            known.group, known.priority = known.verdict.group, known.verdict.priority
        elif (version := known.store.version(DEFINITION)) != known.defined:
            definition = define(known.store)
            known.group, known.priority, known.defined = definition.group, definition.priority, version

    def _is_held(self, known: Known) -> bool | None:
        """Whether a process elsewhere has it, as far as can be told without a lock. None: not known yet."""
        is_renewed = self.root.is_renewed(known.folder)
        if is_renewed is False or lease.holder(known.store) is not None:
            return is_renewed
        is_gone = known.store.version(lease.PATH) is None  # since it was listed, and so the rest of the listing is old
        return None if is_gone else False


def _resting(known: Known, now: datetime) -> RestingRun | None:
    """What the index may say of it: nothing, unless its files alone have decided that it rests."""
    verdict, signature = known.verdict, known.signature
    is_due = verdict.starts and (verdict.at is None or verdict.at <= now)
    if is_due or signature is None or known.is_unproven or known.rests_until is None or verdict.of_signal:
        return None
    ((digest,),) = signature
    row = verdict.row if known.is_sure else None
    return RestingRun(str(digest), known.run_id, verdict.at, verdict.figures, row)


# Which start next. Pure: `FairOrder` is given who waits and what runs, and reads no file and no clock

EACH = "*"
"""In limits: each group that has none of its own."""

SHARE = 4
"""One of so many starts is of the run that has waited longest, whatever its priority."""


class Startable(Protocol):
    """A run that is due. A run without a group is in no limit."""

    @property
    def folder(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def priority(self) -> int: ...

    @property
    def since(self) -> Any:
        """Since when it has waited: any kind of time that is the same for all."""


S = TypeVar("S", bound=Startable)


class FairOrder:
    """The order of the starts of one `serve` or `fleet`. `limits`: how many runs of a group may run at a time.

    The highest priority is first, and within it the run that has waited longest. But one of `SHARE` starts, and one of
    `SHARE` starts in each group that has a limit, is of the run that has waited longest of those that may start. So a
    run can't starve: a start of its group, or of all if the group has a free place, comes to it once those that have
    waited longer have started. A share of the starts, and not a priority that grows with time, because after an hour
    of overload all would have grown, and what is urgent would wait behind them.
    """

    def __init__(self, limits: Mapping[str, int] | None = None):
        """UsageError for limits that are none."""
        self._limits = dict(limits or {})
        for group, limit in self._limits.items():
            if arguments.count(f"the limit of the group {group!r}", limit, least=1) is None:
                raise UsageError(f"the group {group!r} has no limit", remedy="give a whole number, or leave it out")
        self._passed = 0  # starts since the oldest of all was one
        self._passed_in: Counter[str] = Counter()  # the same by group

    @staticmethod
    def limits_of(words: Iterable[str]) -> dict[str, int]:
        """The limits that options tell: `customer-a=2`, or `3` for each other group. UsageError for other words."""
        found = {}
        for word in words:
            group, equals, number = word.rpartition("=")
            if not number.isdecimal() or int(number) < 1 or (equals and not group):
                raise UsageError(
                    f"a group limit can't be {word!r}",
                    remedy="write GROUP=N, as in customer-a=2, or N for each group that has no limit of its own",
                )
            found[group or EACH] = int(number)
        return found

    def choose(self, waiting: Iterable[S], running: Iterable[str], places: int) -> list[S]:
        """Those that start now in so many free `places`, first to last. `running`: the group of each run that runs."""
        at_work, queues = Counter(running), dict[str, _GroupQueue[S]]()
        for each in waiting:
            if self._has_room(each.group, at_work):
                queues.setdefault(each.group, _GroupQueue()).add(each)
        chosen: list[S] = []
        while queues and len(chosen) < places:
            each = self._take(queues)
            chosen.append(each)
            at_work[each.group] += 1
            if not queues[each.group] or not self._has_room(each.group, at_work):
                del queues[each.group]
        return chosen

    def _take(self, queues: dict[str, _GroupQueue[S]]) -> S:
        """Take the next one from the queue of its group."""
        group, oldest = min(((group, queue.oldest) for group, queue in queues.items()), key=lambda each: each[1].age)
        chosen = oldest
        if self._passed < SHARE - 1:
            firsts = ((group, queue.first) for group, queue in queues.items())
            group, chosen = min(firsts, key=lambda each: each[1].rank)
            if self._limit(group) is not None and self._passed_in[group] >= SHARE - 1:
                chosen = queues[group].oldest
        self._passed = 0 if chosen is oldest else self._passed + 1
        self._passed_in[group] = 0 if chosen is queues[group].oldest else self._passed_in[group] + 1
        queues[group].take(chosen)
        return chosen.run

    def _has_room(self, group: str, at_work: Counter[str]) -> bool:
        limit = self._limit(group)
        return limit is None or at_work[group] < limit

    def _limit(self, group: str) -> int | None:
        return self._limits.get(group, self._limits.get(EACH)) if group else None


class _Entry(NamedTuple, Generic[S]):
    run: S
    age: tuple[Any, ...]  # the least one has waited longest
    rank: tuple[Any, ...]  # the least one has the highest priority, and has waited longest


class _GroupQueue(Generic[S]):
    """The runs of a group that wait, in two orders."""

    def __init__(self) -> None:
        self._by_age: list[tuple[tuple[Any, ...], _Entry[S]]] = []
        self._by_rank: list[tuple[tuple[Any, ...], _Entry[S]]] = []
        self._taken: set[tuple[Any, ...]] = set()  # their ages
        self._added = 0

    def __bool__(self) -> bool:
        return len(self._taken) < self._added

    def add(self, run: S) -> None:
        age = (run.since, run.folder, self._added)
        entry = _Entry(run, age, (-run.priority, *age))
        self._added += 1
        heapq.heappush(self._by_age, (entry.age, entry))
        heapq.heappush(self._by_rank, (entry.rank, entry))

    def take(self, entry: _Entry[S]) -> None:
        self._taken.add(entry.age)

    @property
    def oldest(self) -> _Entry[S]:
        """The one that has waited longest."""
        return self._head(self._by_age)

    @property
    def first(self) -> _Entry[S]:
        """The one with the highest priority that has waited longest."""
        return self._head(self._by_rank)

    def _head(self, heap: list[tuple[tuple[Any, ...], _Entry[S]]]) -> _Entry[S]:
        while heap[0][1].age in self._taken:
            heapq.heappop(heap)
        return heap[0][1]
