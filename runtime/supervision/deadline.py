"""When a child must have stopped, whatever has requested it: pause.yaml, a window, the time of the budget.

A child whose loop runs stops by itself in time. A blocked or frozen child does not notice the request. So its
supervisor looks at two versions and the clock, and reads the journal only when the time for a stop is up.

On a disk each look at pause.yaml is made at once. Elsewhere it is a listing, made every few seconds in a thread of its
own, so one that hangs blocks nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from ...workspace.base import DEFINITION, SatchelError, StorageFailed
from ...workspace.formats import Definition, PauseFile, pause_file
from ...workspace.inspect import define, lease
from ...workspace.store import Store, Version

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ...workspace.journal import PauseRequested
    from ...workspace.state import Moment

EVERY = 4.0
"""Seconds between two looks over a network: an emergency stop is obeyed within 5."""


class Glance:
    """Watches the pause.yaml of one workspace, from now on. Parses it again only when its version has changed."""

    def __init__(self, store: Store):
        self._store = store
        self._version: Version | None = None  # of `file`
        self.file: PauseFile | None = None
        """What it says, as of the last look."""
        self._look_now()
        self._told: Version | None = self._version  # what was there before is for the child's start to judge
        self._looks_at = time.monotonic() + EVERY
        self._thread: threading.Thread | None = None

    def has_changed(self) -> bool:
        """Whether the file was changed, created or removed since the last call."""
        self._look()
        if self._version == self._told:
            return False
        self._told = self._version
        return True

    def is_stopped(self) -> bool:
        """Any pause.yaml forbids a start, unless it says `status: resume`. Over a network this is some seconds old, but
        each start looks again."""
        self._look()
        return self.file is not None and not self.file.lets_go_on

    def _look(self) -> None:
        if not self._store.abilities.remote:
            self._look_now()
            return
        is_looking = self._thread is not None and self._thread.is_alive()
        if is_looking or time.monotonic() < self._looks_at:
            return
        self._looks_at = time.monotonic() + EVERY
        self._thread = threading.Thread(target=self._look_aside, name="satchel-glance", daemon=True)
        self._thread.start()

    def _look_aside(self) -> None:
        try:
            self._store.refresh()
            self._look_now()
        except (SatchelError, OSError):
            return  # not to be reached now: nothing is known, and the child stops by itself if that lasts

    def _look_now(self) -> None:
        version = self._store.version(pause_file.PATH)
        if version != self._version:
            self.file = lease.read_pause(self._store) if version is not None else None
            self._version = version


T = TypeVar("T")

_AGAIN = 5.0
"""Seconds until the next look, if the workspace could not be read."""


class Late(NamedTuple):
    """A stop that should be over by now, and how many seconds ago it was requested."""

    request: PauseRequested
    waited: float


class _Seen(NamedTuple):
    """The result of a look: the requested stop, and when the clock may request the next one."""

    wanted: Late | None
    next_limit: datetime | None = None


class Deadline:
    """For one child, from its start on. `now` is always time.monotonic; `clock` is the time of day, in UTC."""

    def __init__(
        self,
        store: Store,
        pause: Glance,
        drain_timeout: float | None,
        grace: float,
        now: float,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ):
        """`drain_timeout` replaces the one of workspace.yaml, unless it is None. `grace` is how much longer a child has
        to force its stop itself. Both in seconds. A pause.yaml that exists already is for the child's start to
        judge. On a disk workspace.yaml is read at the first look: a short run ends before that."""
        self._store, self._pause, self._clock = store, pause, clock
        self._drain_timeout, self._grace = drain_timeout, grace
        self.began, self._began = clock(), now
        self._asked_at: float | None = None  # since when pause.yaml asks for a stop
        self._asked_for = ""  # `requested_at` of that stop, once it is recorded
        self._looks_at = float("inf")
        self._looking: Future[_Seen] | None = None
        self._next_limit: datetime | None = None
        self._version: Version | None = None  # of workspace.yaml
        self._definition: Definition | None = None
        self._defining: Future[Definition] | None = None
        self._has_begun = False
        if store.abilities.remote:  # before a signal may come
            self._begin()

    def _begin(self) -> None:
        """Read workspace.yaml for the first time. While the storage fails, the defaults count: a signal may wait."""
        if self._has_begun:
            return
        try:
            self._version = self._store.version(DEFINITION)
            self._definition = define(self._store)
        except (StorageFailed, OSError):
            return  # it is tried again
        except SatchelError:
            pass  # the child refuses it
        self._has_begun = True
        if self._has_limits:
            self._look_in_time(self._began)

    @property
    def patience(self) -> float | None:
        """Seconds from the request for a stop to the kill. None: never, because stops are extended."""
        self._begin()
        return self.patience_so_far

    @property
    def patience_so_far(self) -> float | None:
        """`patience`, as far as it is known: the default until workspace.yaml has been read."""
        if self._drain_timeout is not None:
            return self._drain_timeout + self._grace
        definition = self._definition or Definition("", "")
        return None if definition.drain_then == "extend" else definition.drain_timeout + self._grace

    @property
    def extended(self) -> float | None:
        """Seconds after which an extended stop is late. None: stops are not extended but enforced."""
        return None if self.patience is not None else (self._definition or Definition("", "")).drain_timeout

    def waited(self, now: float) -> float:
        """Seconds since pause.yaml requests a stop; 0 if it does not."""
        return 0.0 if self._asked_at is None else now - self._asked_at

    def prolong(self, seconds: float) -> None:
        """Child and supervisor were frozen for so many seconds."""
        self._looks_at += seconds
        if self._asked_at is not None:
            self._asked_at += seconds

    def pause_has_changed(self, now: float) -> None:
        """The `Glance` has seen another version of pause.yaml."""
        file = self._pause.file
        self._look_in_time(now)  # also if it is gone: the request may be on record, and the clock counts again
        if file is None or file.lets_go_on:
            self._asked_at, self._asked_for = None, ""
            return
        is_another = self._asked_for and file.requested_at and file.requested_at != self._asked_for
        if self._asked_at is None or is_another:
            self._asked_at = now
        self._asked_for = file.requested_at

    def overdue(self, now: float) -> Late | None:
        """The stop that should be over by now, if there is one. If a look takes time, a later call has its result."""
        self._begin()
        self._look_at_definition(now)
        if self._next_limit is not None and self._clock() >= self._next_limit:
            self._next_limit = None
            self._look_in_time(now)
        if self._looking is None:
            if now < self._looks_at:
                return None
            self._looks_at = float("inf")
            self._looking = self._aside(lambda: self._look(now))
        if not self._looking.done():
            return None
        looking, self._looking = self._looking, None
        try:
            wanted, self._next_limit = looking.result()
        except (SatchelError, OSError):  # the storage does not answer; a child that needs it stops by itself
            self._looks_at = now + _AGAIN
            return None
        if wanted is None or self.patience is None:
            return None
        if (left := self.patience - wanted.waited) > 0:
            self._looks_at = min(self._looks_at, now + left)
            return None
        return wanted

    def _look_in_time(self, asked_at: float) -> None:
        """Look when a stop that was requested then should be over."""
        if self.patience is not None:
            self._looks_at = min(self._looks_at, asked_at + self.patience)

    @property
    def _has_limits(self) -> bool:
        known = self._definition
        return known is not None and (bool(known.windows) or known.budget.time is not None)

    def _look_at_definition(self, now: float) -> None:
        """Read it again if it has changed. If that takes time, a later call has the result."""
        if self._defining is None:
            version = self._store.version(DEFINITION)
            if version == self._version:
                return
            self._version = version
            self._defining = self._aside(lambda: define(self._store))
        if not self._defining.done():
            return
        defining, self._defining = self._defining, None
        try:
            self._definition = defining.result()
        except (SatchelError, OSError):
            return  # the child reports the mistake, and continues with the earlier values
        self._look_in_time(now if self._asked_at is None else self._asked_at)  # it may be less patient than before

    def _aside(self, ask: Callable[[], T]) -> Future[T]:
        """Over a network in a thread of its own, so that signals are still handled."""
        from concurrent.futures import Future

        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(ask())
            except Exception as error:
                future.set_exception(error)

        if self._store.abilities.remote:
            threading.Thread(target=work, name="satchel-deadline", daemon=True).start()
        else:
            work()
        return future

    def _look(self, now: float) -> _Seen:
        from ...workspace.inspect import look
        from ...workspace.lifecycle import PauseWish

        seen = look(self._store, described=self._definition)  # the last one that could be understood
        moment, file, at = seen.moment, self._pause.file, self._clock()
        is_file_wish = file is not None and not file.lets_go_on and not file.is_of(moment.lifted)
        if (pause := moment.pause) is not None:
            is_short = PauseWish(pause, file).is_short(seen.definition.idle_below)
            stays = bool(pause.paused_at) and moment.clean and is_short
            if stays or (file is not None and file.lets_go_on):
                return _Seen(None)
            since_recorded = (at - datetime.fromisoformat(pause.requested_at)).total_seconds()
            return _Seen(Late(pause.request, self.waited(now) if is_file_wish else since_recorded))
        if file is not None and is_file_wish:
            by = self._store.trace(pause_file.PATH).by
            return _Seen(Late(lease.pause_request(file, by), self.waited(now)))
        return self._look_at_limits(moment, self._checked(seen.definition), at)

    def _checked(self, definition: Definition) -> Definition:
        """Without invalid windows: the child has refused them, and continues with the earlier ones."""
        from ..live import limits

        try:
            limits.check_times(self._store, definition)
        except SatchelError:
            return replace(definition, windows=())
        return definition

    def _look_at_limits(self, moment: Moment, definition: Definition, at: datetime) -> _Seen:
        """What the clock requests of a child that has not requested a pause itself. A person has overruled a window
        that was open when it started."""
        from ...workspace.journal import PauseRequested
        from ..live import Share, limits

        times = []
        # One by one, as the child does: one that was overruled may last longer than one that opens in it.
        for window in definition.windows:
            opened = limits.current_window([window], at)
            if opened is not None and opened.begin > self.began and not limits.is_overruled(opened, moment):
                return _Seen(Late(limits.pause_for(opened), (at - opened.begin).total_seconds()))
        if (following := limits.next_opening(definition.windows, at)) is not None:
            times.append(following.begin)
        if definition.budget.time is not None:
            spent = Share("time", limits.at_work(moment, at), definition.budget.time)
            if spent.is_used_up:
                return _Seen(Late(PauseRequested(reason=spent.reason, by=limits.BUDGET), spent.used - spent.limit))
            times.append(at + timedelta(seconds=spent.limit - spent.used))
        return _Seen(None, min(times, default=None))
