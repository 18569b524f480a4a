"""What two moments differ in, of one run or of two, and what the items of a run have done."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...workspace.base import SatchelError
from ...workspace.history import (
    LATEST,
    CallChange,
    DataChange,
    MessageChange,
    PlanChange,
    Worked,
    compared,
    conversations,
    message_changes,
    no_such_item,
    seq_of,
    story,
    worked,
)
from ...workspace.state import Status
from .history import value_of
from .place import Place


class Side(Struct, frozen=True):
    """One of two compared moments: a run right after record `seq`. `result` is what its agent has returned, as a JSON
    value. Retention has removed the records before `since`: the calls of items that had ended by then are missing."""

    url: str
    run_id: str
    seq: int
    at: str
    status: Status
    result: Any
    since: int


class Difference(Struct, frozen=True):
    """What differs from `old` to `new`: values of state.json, plans, outcomes of steps and effects, messages."""

    old: Side
    new: Side
    data: list[DataChange]
    plans: list[PlanChange]
    calls: list[CallChange]
    messages: list[MessageChange] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs. Numbers of records and times don't count."""
        sides = [(side.status, side.result) for side in (self.old, self.new)]
        return not (self.data or self.plans or self.calls or self.messages) and sides[0] == sides[1]


def diff(place: Place, old: int | str | Place, new: int | str) -> Difference:
    """From the position `old` of this run to `new`, or from this run, as it is now, to the run `old`."""
    if isinstance(old, Place):
        return _difference((place, LATEST), (old, new))
    return _difference((place, old), (place, new))


def _difference(old: tuple[Place, int | str], new: tuple[Place, int | str]) -> Difference:
    stories = {place: story(place.store) for place in dict.fromkeys((old[0], new[0]))}
    was, now = (
        worked(place.store, seq_of(place.store, at, stories[place].records), stories[place]) for place, at in (old, new)
    )
    changes = compared(was, now)
    said = [conversations(place.store, found.moment) for place, found in ((old[0], was), (new[0], now))]
    sides = _side(old[0], was), _side(new[0], now)
    return Difference(*sides, changes.data, changes.plans, changes.calls, [*message_changes(*said)])


def _side(place: Place, found: Worked) -> Side:
    moment = found.moment
    try:
        result = value_of(place.store, moment.root.result)
    except SatchelError:
        result = None  # its blob is gone
    return Side(place.url, moment.run_id, moment.seq, moment.last_at, moment.status, result, found.since)


def steps(place: Place, item: str | None, at: int | str | None) -> Worked:
    """The work of all items up to a position, or of one item."""
    told = story(place.store)
    seq = None if at is None else seq_of(place.store, at, told.records)
    found = worked(place.store, seq, told)
    if item is None:
        return found
    wanted = f"^{item}" if item.isdecimal() else item.rstrip("/")
    work = [each for each in found.work if wanted in each.names]
    if not work:
        if found.problem:
            raise found.problem
        raise no_such_item(wanted, (name for each in found.work for name in each.names), found.since)
    return Worked(found.moment, work, found.since, found.problem)
