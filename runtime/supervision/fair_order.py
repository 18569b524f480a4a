"""Which of the runs that are due start next: never too many of a group, the highest priority first, and none starves.

Pure: it is given who waits and what runs, reads no file and no clock, and remembers only how often the oldest run was
passed over.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ...workspace.base import UsageError, arguments

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
