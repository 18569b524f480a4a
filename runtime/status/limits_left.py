"""What is left of the limits of a run, and the times of its schedule."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ...workspace.base import SatchelError
from ...workspace.formats import Definition
from ...workspace.inbound import inbox
from ...workspace.state import Fired, Moment
from ...workspace.store import Store

if TYPE_CHECKING:
    from ..limits import Share


class Scheduled(NamedTuple):
    """A time of `schedule:`: the last one that was taken, and the next one (UTC, ISO 8601; empty: never)."""

    name: str
    last: Fired | None
    next: str


def limits_of(definition: Definition, moment: Moment, now: datetime, until: datetime) -> tuple[list[Share], str]:
    """What is used of each limit at the time `until`: now, or when the process has ended. And in words, that a record
    lies in the future."""
    from ..limits import budget, windows

    ahead = windows.ahead(moment, now) if definition.schedule else ""
    return budget.shares_of(definition.budget, moment, until), windows.said_ahead(ahead) if ahead else ""


def schedule_of(store: Store, definition: Definition, moment: Moment, now: datetime) -> list[Scheduled]:
    """The times of its schedule. Empty for a cancelled run, and if `check` and the next start report a mistake."""
    from ..limits import windows

    if moment.status == "cancelled":
        return []
    try:
        windows.check(store, definition)
    except SatchelError:
        return []
    found = []
    for start in definition.schedule:
        following = windows.next_start([start], now)
        last = moment.fired.get(start.name, [])[-1:]
        due = inbox.firing_at("", following).due if following else ""
        found.append(Scheduled(start.name, last[0] if last else None, due))
    return found
