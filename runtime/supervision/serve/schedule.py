"""Put a task into the inbox of a workspace for each time of its `schedule:`. Runs nothing of it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from ....workspace.base import DEFINITION, SatchelError
from ....workspace.formats import ScheduledTask
from ....workspace.inbound.inbox import inbox
from ....workspace.inspect import Look, define, glance
from ....workspace.state import Fired
from ....workspace.store import Store, Version
from ...limits import windows

_EVER, _NEVER = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_AGAIN = timedelta(seconds=10)
_MOST = 100
"""How many missed times of a schedule with `keep` are made up for."""


class Schedule:
    """For one workspace, first seen at `since`. Each time counts once, however many processes serve the workspace."""

    def __init__(self, store: Store, since: datetime):
        self._store, self._since = store, since
        self._definition: Version | None = None  # of workspace.yaml at the last look
        self._handled: datetime | None = None  # all times up to this one are dealt with
        self._next = _EVER  # when to look again
        self._told = ""  # the time in the future that people were told of
        self.due: datetime | None = None
        """The next of its times, as of the last look."""

    def look(self, now: datetime) -> list[str]:
        """Create the due tasks. Returns messages for people. SatchelError if the schedule is not valid, or if a task
        can't be written, which is tried again. A workspace that can't be read is reported elsewhere."""
        version = self._store.version(DEFINITION)
        is_set_back = self._handled is not None and now < self._handled
        if version is None or (version == self._definition and now < self._next and not is_set_back):
            return []
        self._definition, self._next = version, now + _AGAIN
        try:
            # Most have no schedule, and on a disk a glance reads the journal
            seen = glance(self._store) if self._store.abilities.remote else None
            if not (seen.definition if seen else define(self._store)).schedule:
                self._handled, self._next, self.due = now, _NEVER, None
                return []
            seen = seen or glance(self._store)
        except SatchelError:
            return []
        return self._follow(seen, now)

    def _follow(self, seen: Look, now: datetime) -> list[str]:
        windows.check(self._store, seen.definition)
        starts = () if seen.moment.status == "cancelled" else seen.definition.schedule
        said = [text for start in starts for text in self._fire(start, seen, now)]
        ahead = windows.ahead(seen.moment, now) if starts else ""
        if ahead and ahead != self._told:
            said.append(windows.said_ahead(ahead))
        self._told, self._handled = ahead, now
        self.due = windows.next_start(starts, now)
        self._next = self.due or _NEVER
        return said

    def _fire(self, start: ScheduledTask, seen: Look, now: datetime) -> list[str]:
        after = self._dealt_with(start, seen, now)
        times = windows.starts(start, after or _EVER, now, _MOST if start.keep and after else 1)
        if not times and after and self._handled is None and seen.moment.is_new and not start.wait:
            times = [after]  # since workspace.yaml was saved: all who serve it make the same task
        if times and (start.keep or not self._waits(start, seen)):
            for due in times:
                self._create(inbox.firing_at(start.name, due), seen)
        if len(times) == _MOST and after and (windows.next_start([start], after) or now) < times[0]:
            return [f"the schedule {start.name}: only the last {_MOST} missed times are started"]
        return []

    def _waits(self, start: ScheduledTask, seen: Look) -> bool:
        """Whether a task of this schedule waits in the inbox. It counts for later times, too."""
        files = map(inbox.firing_of_file, inbox.waiting(self._store, seen.moment))
        return any(each is not None and each.schedule == start.name for each in files)

    def _create(self, made: inbox.Firing, seen: Look) -> None:
        if not inbox.was_taken(seen.moment, made):
            with suppress(FileExistsError):  # another process that serves this workspace was faster
                self._store.create(made.path, made.data)

    def _dealt_with(self, start: ScheduledTask, seen: Look, now: datetime) -> datetime | None:
        """All times up to this one are done. None if the records come from a clock that was ahead, and so do not tell:
        then the last time has come, unless it is on record itself."""
        if self._handled is not None:
            return min(self._handled, now)
        moment = seen.moment
        if fired := moment.fired.get(start.name):
            past = [each for each in fired if not windows.lies_ahead(each.due, now)]
            return _stood_for(max(past, key=lambda each: _time(each.due)), start, now) if past else None
        if moment.is_new:
            saved = self._store.trace(DEFINITION).at
            return min(_time(saved) if saved else self._since, self._since, now)
        rested = moment.last_at if moment.clean else moment.opened_at  # a running or killed run was stopped until then
        if not rested:  # its journal is gone
            return min(self._since, now)
        return None if windows.lies_ahead(rested, now) else min(_time(rested), now)


def _stood_for(fired: Fired, start: ScheduledTask, now: datetime) -> datetime:
    """Up to when a task stood for the times of its schedule: until it was taken, if that time can be believed."""
    due, taken = _time(fired.due), _time(fired.at)
    return taken if due <= taken <= now and not start.keep else due


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
