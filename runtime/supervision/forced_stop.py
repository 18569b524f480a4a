"""A stop by force: when a child must have stopped, whatever has requested it (pause.yaml, a window, the time of the
budget), and how its workspace is put right after it was killed or has died.

A child whose loop runs stops by itself in time. A blocked or frozen child does not notice the request. So its
supervisor looks at two versions and the clock, and reads the journal only when the time for a stop is up.

On a disk each look at pause.yaml is made at once. Elsewhere it is a listing, made every few seconds in a thread of its
own, so one that hangs blocks nothing.

What opens a workspace is imported when it is used: a short run needs none of it, and an emergency stop kills first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from ...workspace import inspect, journal, lifecycle, state, views
from ...workspace.base import DEFINITION, InvalidFile, LeaseHeld, SatchelError, StorageFailed
from ...workspace.formats import Definition, PauseFile, pause_file
from ...workspace.inspect import define, lease
from ...workspace.store import Store, Version
from .. import live

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ...workspace.journal import PauseRequested
    from ...workspace.lifecycle import PauseWish, Workspace
    from ...workspace.state import Moment, Status


EVERY = 4.0
"""Seconds between two looks over a network: an emergency stop is obeyed within 5."""

_AGAIN = 5.0
"""Seconds until the next look, if the workspace could not be read."""

_PATIENCE = 2.0  # seconds until the lock of a process that was killed must be free

T = TypeVar("T")


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
        seen = inspect.look(self._store, described=self._definition)  # the last one that could be understood
        moment, file, at = seen.moment, self._pause.file, self._clock()
        is_file_wish = file is not None and not file.lets_go_on and not file.is_of(moment.lifted)
        if (pause := moment.pause) is not None:
            is_short = lifecycle.PauseWish(pause, file).is_short(seen.definition.idle_below)
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
        try:
            live.limits.check_times(self._store, definition)
        except SatchelError:
            return replace(definition, windows=())
        return definition

    def _look_at_limits(self, moment: Moment, definition: Definition, at: datetime) -> _Seen:
        """What the clock requests of a child that has not requested a pause itself. A person has overruled a window
        that was open when it started."""
        times = []
        # One by one, as the child does: one that was overruled may last longer than one that opens in it.
        for window in definition.windows:
            opened = live.limits.current_window([window], at)
            if opened is not None and opened.begin > self.began and not live.limits.is_overruled(opened, moment):
                return _Seen(Late(live.limits.pause_for(opened), (at - opened.begin).total_seconds()))
        if (following := live.limits.next_opening(definition.windows, at)) is not None:
            times.append(following.begin)
        if definition.budget.time is not None:
            spent = live.Share("time", live.limits.at_work(moment, at), definition.budget.time)
            if spent.is_used_up:
                request = journal.PauseRequested(reason=spent.reason, by=live.limits.BUDGET)
                return _Seen(Late(request, spent.used - spent.limit))
            times.append(at + timedelta(seconds=spent.limit - spent.used))
        return _Seen(None, min(times, default=None))


class Left(NamedTuple):
    """The state of the workspace afterwards. `was_closed`: the process itself, or a later one, had closed it.
    `is_between`: it had closed it for another process to continue the run, because of `restart_every`."""

    status: Status = "paused"
    was_closed: bool = False
    is_between: bool = False
    error: SatchelError | OSError | None = None  # what prevented the repair


def stop_wanted(store: Store, since: datetime) -> PauseRequested | None:
    """The requested stop of a run whose process, started at `since`, has just died; None if it may be started again. A
    pause.yaml that can't be understood is a plain pause, and so is one of a workspace that can't be read. A pause that
    was over when the process was started does not come back because the process died before it could record that."""
    file = lease.read_pause(store)
    try:
        wanted = lifecycle.pausing.wish(store, inspect.look(store).moment)
    except SatchelError:
        return None if file is None else lease.pause_request(file, "")
    if wanted is None or wanted.is_overruling:
        return None
    pause = wanted.recorded
    if pause is not None and pause.paused_at and wanted.is_lifted and datetime.fromisoformat(pause.paused_at) < since:
        return None
    if wanted.file is not None:
        return lease.pause_request(wanted.file, wanted.by)
    return wanted.recorded.request if wanted.recorded else None


def after_kill(store: Store, request: PauseRequested, waited: float, since: datetime) -> Left:
    """Bring the files to one moment after a forced stop, and record what it was. A run that was closed for another
    process is paused, as `request` or pause.yaml says. `request` is the pause that the process may not have recorded,
    `waited` how many seconds it had for it, `since` when it was started."""
    is_between = False

    def put_right() -> Left:
        nonlocal is_between
        moment = inspect.look(store).moment
        is_between = moment.clean and moment.status == "sleeping" and moment.until == moment.opened_at
        if is_between:
            return Left(_pause(store, request), is_between=True)
        if moment.clean:
            was_closed = bool(moment.opened_at) and datetime.fromisoformat(moment.opened_at) >= since
            return Left(moment.status, was_closed) if was_closed else Left()
        with lifecycle.opened(store, "forced", inspect.Report(), backs_up=True) as workspace:
            _describe(workspace, request, waited)
        return Left(workspace.moment.status)

    try:
        return _once_it_is_free(store, put_right)
    except (SatchelError, OSError) as error:
        return Left(is_between=is_between, error=error)


def after_crashes(store: Store, why: str) -> SatchelError | OSError | None:
    """Record that the run is not started again, and why. Returns what prevented that. A run that was paused, and died
    before it had opened the workspace, stays paused."""

    def put_right() -> None:
        moment = inspect.look(store).moment
        if moment.clean and moment.pause is not None:
            return
        with lifecycle.opened(store, "recover", inspect.Report(), backs_up=True) as workspace:
            if workspace.was_finished:
                workspace.close()
            else:
                workspace.close("failed", why, journal.Failure("Crashed", why))

    try:
        _once_it_is_free(store, put_right)
    except (SatchelError, OSError) as error:
        return error
    return None


def after_stop(store: Store) -> str:
    """Record the emergency stop in the files of a run that no process runs any more. If that is not possible, the next
    start does it; the stop itself is already durable. Returns why there was nothing to stop, in words, or nothing."""
    with suppress(SatchelError, OSError):
        seen = inspect.look(store)
        if seen.moment.is_new:
            return ""  # it has never run, so the request in the file is enough
        with lifecycle.opened(store, "forced", inspect.Report(), seen=seen, backs_up=True) as workspace:
            wanted = lifecycle.pausing.wish(store, workspace.moment)
            if workspace.was_finished or wanted is None:
                workspace.close()
                if not workspace.was_finished:
                    return ""
                views.guarded_files.remove(store, pause_file.PATH, wanted.version if wanted else None)
                return "it was cancelled" if workspace.moment.status == "cancelled" else "it has completed"
            if not wanted.in_force or lifecycle.pausing.requested(wanted) is not None:
                lifecycle.pausing.stop(workspace, wanted)
            if wanted.mode == "cancel" and not lifecycle.pausing.may_have_to_undo(workspace.moment):
                workspace.close("cancelled", workspace.moment.reason)
                views.guarded_files.remove(store, pause_file.PATH, store.version(pause_file.PATH))
                return "it is cancelled, as was requested before"
            workspace.close("paused", workspace.moment.reason)
    return ""


def _once_it_is_free(store: Store, put_right: Callable[[], T]) -> T:
    """The result of this function, tried again while the lock of the dead process is still held."""
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            store.refresh()
            return put_right()
        except LeaseHeld:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def _pause(store: Store, request: PauseRequested) -> Status:
    with lifecycle.opened(store, "pause", inspect.Report(), backs_up=True) as workspace:
        wanted: PauseWish | None = None
        with suppress(InvalidFile, views.Unsettled):
            wanted = lifecycle.pausing.wish(store, workspace.moment, views.BRIEF)
        is_asked = wanted is not None and lifecycle.pausing.requested(wanted) is not None
        lifecycle.pausing.stop(workspace, wanted or lifecycle.PauseWish(), None if is_asked else request)
        workspace.close("paused", workspace.moment.reason)
    return workspace.moment.status


def _describe(workspace: Workspace, request: PauseRequested, waited: float) -> None:
    store, moment = workspace.store, workspace.moment
    if workspace.was_finished:
        workspace.close()
        return
    wanted: PauseWish | None = None
    with suppress(InvalidFile, views.Unsettled):  # it is kept aside when pause.yaml is filled in
        wanted = lifecycle.pausing.wish(store, moment, views.BRIEF)
        if wanted is not None and wanted.file is not None and not wanted.is_overruling:
            request = lease.pause_request(wanted.file, wanted.by)
    pause = moment.pause
    if pause is None or (request.mode != pause.mode and request.mode != "drain"):
        workspace.journal.add(request)
    workspace.journal.add(journal.Forced(under_way=_under_way(moment), waited=waited))
    workspace.journal.flush()
    if request.mode == "cancel" and not lifecycle.pausing.may_have_to_undo(moment):
        lifecycle.pausing.close_cancelled(workspace, wanted, request.reason)
        return
    lifecycle.pausing.settle(workspace, forced=True)
    workspace.close("paused", moment.reason)


def _under_way(moment: Moment) -> tuple[str, ...]:
    """What was running according to the record, in words: effects that may have happened, and cut-off scopes."""
    found = []
    for path, agent in moment.agents.items():
        of = f" of {path}" if path else ""
        for key, scope in agent.scopes.items():
            found += [f"{started.step}{started.call}{of}" for started in scope.started.values()]
            found += [f"{scope.title!r}{of}"] if key != state.ROOT else []
    return tuple(found)
