"""A workspace that `serve` has found: whether it may be started, according to its files; the tasks of its schedule; the
claim of this process to start it; and what is to be said about its last child. Runs nothing of it.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from ...workspace.base import DEFINITION, SIGNAL, InvalidFile, SatchelError
from ...workspace.formats import Definition, ScheduledTask
from ...workspace.inbound import archive, filled_in, inbox, not_settled, notice_saved, open_questions
from ...workspace.inspect import Lease, Look, define, glance, lease, transfer_file
from ...workspace.lifecycle import PauseWish, pausing
from ...workspace.state import Fired, Moment
from ...workspace.store import FileChanged, Store, Version, listed
from ...workspace.views import BRIEF, TODO, Unsettled
from ..live import limits
from .census import RunFigures, SightedRun, figures_of
from .roots import RestingRow, RootSignature
from .supervisor import STORAGE


class StartVerdict(Struct, frozen=True):
    """Whether it may be started, at once or from `at` on; if not, only a change of its files can allow it."""

    starts: bool
    at: datetime | None = None
    why: str = ""  # for people
    passing: bool = False  # this may change soon without a change of a file
    is_open: bool = False  # likewise, and until then it is unknown what it was when `serve` began
    by_clock: bool = False  # its schedule says so, whatever came of the last start
    is_held: bool = False  # a process of this machine has it
    run_id: str = ""  # unless a process has it
    definition: Definition | None = None  # likewise
    group: str = ""  # likewise
    priority: int = 0  # likewise
    opening: str = ""  # likewise, the nonce of its last opening
    rested: datetime | None = None  # since when no process has had it
    figures: RunFigures | None = None  # as of this look
    of_signal: bool = False  # it rests only since a signal has paused it, which a later `serve` undoes
    row: RestingRow | None = None  # what lists show of it, if it rests and they are wanted


NEVER = StartVerdict(False)


RowOf = Callable[[Store, Look], RestingRow | None]
"""Makes what lists show of a run that rests, from a look at it. Its rules are those of a status, in a room below."""


def judge(
    store: Store, now: datetime, *, tried: datetime | None = None, afresh: bool = False, row_of: RowOf | None = None
) -> StartVerdict:
    """Whether the workspace may be started. SatchelError if it is damaged, or if its pause.yaml can't be read.

    `tried` is when its last process has ended: a failed run is started once for each time of its schedule. `afresh`: a
    pause by a signal is over, as with every start by a person, so that a deployment resumes by itself. Later it is not
    over, since a person who stops a run with a signal must not see it come back.
    """
    store = listed(store)
    held = lease.holder(store)
    if held is not None and held.host == socket.gethostname():  # without a lock it may be left over
        figures = RunFigures(state="running", opened_at=held.since)
        return StartVerdict(False, passing=True, is_open=is_of_serve(held), is_held=True, figures=figures)
    note = transfer_file.read_note(store)
    if transfer_file.read_mark(store) is not None:
        return replace(NEVER, figures=RunFigures(state="backup"))
    if note is not None and note.state == "overtaken":
        return replace(NEVER, figures=RunFigures(state="moved"))  # it goes on elsewhere
    seen = glance(store)
    rested = seen.moment.last_at or store.trace(DEFINITION).at
    verdict = _judge(store, seen, now, tried, afresh)
    rests = held is None and (not verdict.starts or verdict.at is not None)
    return replace(
        verdict,
        run_id=seen.definition.run_id,
        definition=seen.definition,
        group=seen.definition.group,
        priority=seen.definition.priority,
        opening=seen.moment.opening,
        rested=datetime.fromisoformat(rested) if rested else None,
        figures=figures_of(seen.moment, "running" if held is not None else None),
        row=row_of(store, seen) if row_of is not None and rests else None,
    )


def is_of_serve(held: Lease) -> bool:
    """Whether that process has no supervisor of its own. If it belongs to a `serve` that has ended, that has told it to
    stop, which is no person's request."""
    return held.supervisor is None


def _judge(store: Store, seen: Look, now: datetime, tried: datetime | None, afresh: bool) -> StartVerdict:
    status = seen.moment.status
    if seen.definition.kind:
        return NEVER  # programs hold it; it has no agent
    if not seen.moment.clean and status not in ("paused", "failed"):  # else a run in which nothing ran was interrupted
        status = "running"
    if status == "cancelled":
        return NEVER
    try:
        wanted = pausing.wish(store, seen.moment, BRIEF)
    except Unsettled:
        return StartVerdict(False, passing=True, is_open=True)
    if seen.moment.is_replay and not (wanted is not None and wanted.is_overruling):
        return NEVER  # it would be a run with effects, whatever it has stopped for
    if wanted is not None and not (afresh and wanted.is_lifted and _asked_by_signal(wanted)):
        return replace(_paused(wanted, now), of_signal=_asked_by_signal(wanted))
    if seen.moment.is_new and not seen.definition.schedule:
        return StartVerdict(True, why="new")
    match status:
        case "new" | "completed":
            verdict = _with_tasks(inbox.new_tasks(store, seen.moment))
            if not verdict.starts and status == "completed":
                verdict = _edited(store, seen)
            return replace(verdict, passing=archive.has_open(store))
        case "failed":  # without a schedule a person has to look, and to say so
            return _scheduled(seen, now, tried)
        case "sleeping":
            return _after(datetime.fromisoformat(seen.moment.until), now, StartVerdict(True, why="its sleep is over"))
        case "waiting":
            return _waiting(store, seen, now)
        case "paused" if afresh and wanted is not None:
            return StartVerdict(True, why="it was stopped by a signal")
        case "paused":
            return NEVER  # as with one that has failed: it is a fork, or has gone back
        case _:
            return StartVerdict(True, why="interrupted")


def _with_tasks(paths: list[str]) -> StartVerdict:
    fired = [found.schedule for path in paths if (found := inbox.firing_of_file(path))]
    why = f"its schedule {fired[0]}" if fired else "a task in its inbox"
    return StartVerdict(True, why=why) if paths else NEVER


def _edited(store: Store, seen: Look) -> StartVerdict:
    """Edits since it completed, if they give it work. Questions and refused edits are left to people."""
    try:
        noticed = notice_saved(store, seen.moment, seen.definition)
    except InvalidFile:
        return NEVER
    is_plain = noticed.reopens and not noticed.questions and not noticed.refusals
    file = noticed.edits[0].record.file if noticed.edits else TODO
    return StartVerdict(True, why=f"{file} was edited") if is_plain else NEVER


def _scheduled(seen: Look, now: datetime, tried: datetime | None) -> StartVerdict:
    """At once if a time of its schedule has come since it has failed, or at the next time. If the journal is lost and
    the time of the failure is unknown, at the next time."""
    schedule, verdict = seen.definition.schedule, StartVerdict(True, why="its schedule", by_clock=True)
    last = seen.moment.last_at
    failed = None if limits.lies_ahead(last, now) else datetime.fromisoformat(last) if last else now
    ends = [min(end, now) for end in (failed, tried) if end is not None]
    at = limits.next_start(schedule, max(ends)) if ends else now
    return _after(at if schedule else None, now, verdict)


def _after(at: datetime | None, now: datetime, verdict: StartVerdict) -> StartVerdict:
    """`verdict` from `at` on; never if that is None."""
    return NEVER if at is None else verdict if at <= now else replace(verdict, at=at)


def _asked_by_signal(wanted: PauseWish) -> bool:
    return wanted.recorded is not None and wanted.recorded.reason == SIGNAL


def _paused(wanted: PauseWish, now: datetime) -> StartVerdict:
    if wanted.file is not None and wanted.file.status == "resume":
        return StartVerdict(True, why="pause.yaml says resume")
    if wanted.is_missing or wanted.mode != "drain" or not wanted.until:
        return NEVER
    return _after(datetime.fromisoformat(wanted.until), now, StartVerdict(True, why="its pause is over"))


def _waiting(store: Store, seen: Look, now: datetime) -> StartVerdict:
    """The run itself takes answers; this only looks whether there is one."""
    asked = open_questions(seen.moment)
    if not asked:
        return StartVerdict(True, why="no question is open any more")
    if answered := seen.moment.new_answers or filled_in(store, seen.moment):
        return StartVerdict(True, why=f"{answered[0]} was answered")
    expiring = (end for question in asked if (end := question.expires_at))
    return _after(min(expiring, default=None), now, StartVerdict(True, why="a question has expired"))


def questions(moment: Moment) -> list[str]:
    """The questions of a waiting run, by id, in the agent's words if there are any."""
    return [f"{id}: {asked.question}" for id, asked in moment.approvals.items()] + [
        f"{id}: has {doubt.step} happened?" for id, doubt in moment.doubts.items()
    ]


# The tasks of its schedule

_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_AGAIN = timedelta(seconds=10)
_MOST = 100
"""How many missed times of a schedule with `keep` are made up for."""


class Schedule:
    """Puts a task into the inbox of a workspace, first seen at `since`, for each time of its `schedule:`. Each time
    counts once, however many processes serve the workspace."""

    def __init__(self, store: Store, since: datetime):
        self._store, self._since = store, since
        self._definition: Version | None = None  # of workspace.yaml at the last look
        self._handled: datetime | None = None  # all times up to this one are dealt with
        self.looks_at = _EARLIEST  # when to look again
        self._told = ""  # the time in the future that people were told of
        self.due: datetime | None = None
        """The next of its times, as of the last look."""

    def look(self, now: datetime) -> list[str]:
        """Create the due tasks. Returns messages for people. SatchelError if the schedule is not valid, or if a task
        can't be written, which is tried again. A workspace that can't be read is reported elsewhere."""
        version = self._store.version(DEFINITION)
        is_set_back = self._handled is not None and now < self._handled
        if version is None or (version == self._definition and now < self.looks_at and not is_set_back):
            return []
        self._definition, self.looks_at = version, now + _AGAIN
        try:
            # Most have no schedule, and on a disk a glance reads the journal
            seen = glance(self._store) if self._store.abilities.remote else None
            if not (seen.definition.schedule if seen else self._may_have_one() and define(self._store).schedule):
                self._handled, self.looks_at, self.due = now, _LATEST, None
                return []
            seen = seen or glance(self._store)
        except (SatchelError, FileNotFoundError):
            return []
        return self._follow(seen, now)

    def _may_have_one(self) -> bool:
        """By the bytes of workspace.yaml: to parse it costs a hundred times as much as to read it. A backslash may be
        an escape in a key."""
        data = self._store.read(DEFINITION).data
        return b"schedule" in data or b"\\" in data

    def _follow(self, seen: Look, now: datetime) -> list[str]:
        limits.check_times(self._store, seen.definition)
        starts = () if seen.moment.status == "cancelled" else seen.definition.schedule
        said = [text for start in starts for text in self._fire(start, seen, now)]
        ahead = limits.ahead(seen.moment, now) if starts else ""
        if ahead and ahead != self._told:
            said.append(limits.said_ahead(ahead))
        self._told, self._handled = ahead, now
        self.due = limits.next_start(starts, now)
        self.looks_at = self.due or _LATEST
        return said

    def _fire(self, start: ScheduledTask, seen: Look, now: datetime) -> list[str]:
        after = self._dealt_with(start, seen, now)
        times = limits.starts(start, after or _EARLIEST, now, _MOST if start.keep and after else 1)
        if not times and after and self._handled is None and seen.moment.is_new and not start.wait:
            times = [after]  # since workspace.yaml was saved: all who serve it make the same task
        if times and (start.keep or not self._waits(start, seen)):
            for due in times:
                made = inbox.firing_at(start.name, due)
                if not inbox.was_taken(seen.moment, made):
                    with suppress(FileExistsError):  # another process that serves this workspace was faster
                        self._store.create(made.path, made.data)
        if len(times) == _MOST and after and (limits.next_start([start], after) or now) < times[0]:
            return [f"the schedule {start.name}: only the last {_MOST} missed times are started"]
        return []

    def _waits(self, start: ScheduledTask, seen: Look) -> bool:
        """Whether a task of this schedule waits in the inbox. It counts for later times, too."""
        files = map(inbox.firing_of_file, inbox.waiting(self._store, seen.moment))
        return any(each is not None and each.schedule == start.name for each in files)

    def _dealt_with(self, start: ScheduledTask, seen: Look, now: datetime) -> datetime | None:
        """All times up to this one are done. None if the records come from a clock that was ahead, and so do not tell:
        then the last time has come, unless it is on record itself."""
        if self._handled is not None:
            return min(self._handled, now)
        moment = seen.moment
        if fired := moment.fired.get(start.name):
            past = [each for each in fired if not limits.lies_ahead(each.due, now)]
            return (
                _stood_for(max(past, key=lambda each: datetime.fromisoformat(each.due)), start, now) if past else None
            )
        if moment.is_new:
            saved = self._store.trace(DEFINITION).at
            return min(datetime.fromisoformat(saved) if saved else self._since, self._since, now)
        rested = moment.last_at if moment.clean else moment.opened_at  # a running or killed run was stopped until then
        if not rested:  # its journal is gone
            return min(self._since, now)
        return None if limits.lies_ahead(rested, now) else min(datetime.fromisoformat(rested), now)


def _stood_for(fired: Fired, start: ScheduledTask, now: datetime) -> datetime:
    """Up to when a task stood for the times of its schedule: until it was taken, if that time can be believed."""
    due, taken = datetime.fromisoformat(fired.due), datetime.fromisoformat(fired.at)
    return taken if due <= taken <= now and not start.keep else due


# The claim to start it

_SILENCE = 30.0
"""Seconds after which a claim that is the same as before counts no longer, even if its process lives."""


class Claim:
    """The claim of this process to start one run, in `.satchel/starting.json`: of several that serve one root, one
    starts it. It only saves starts that would come to nothing: who runs the workspace is decided by its lock, or by the
    fences of its journal. In a bucket it is looked for in the listing that `store` has."""

    def __init__(self, store: Store):
        self._store = store
        self._mine: Version | None = None
        self._other: Version | None = None
        self._since = 0.0  # when that one was first seen, by time.monotonic

    def take(self, run_id: str) -> bool:
        """Whether this process may start it now. StorageFailed if no file can be written."""
        data = lease.encode(lease.mine(self._store, run_id, 0, is_brief=True))
        found = self._store.version(lease.CLAIM)
        try:
            if found is None:
                self._mine = self._store.create(lease.CLAIM, data)
            elif found == self._mine or self._is_void(found):
                self._mine = self._store.replace(lease.CLAIM, data, if_version=found)
            else:
                return False
        except (FileExistsError, FileNotFoundError, FileChanged):
            return False  # another process was faster, or the workspace was just removed
        return True

    def release(self) -> None:
        """It has ended, or was not started after all. Where this fails, this process takes the claim again at once, and
        others soon take it for void."""
        if self._mine is not None:
            with suppress(SatchelError, OSError, FileChanged):
                self._store.remove(lease.CLAIM, if_version=self._mine)
                self._mine = None

    def _is_void(self, found: Version) -> bool:
        if found != self._other:
            self._other, self._since = found, time.monotonic()
        with suppress(SatchelError, OSError):
            other = lease.parse(self._store.read(lease.CLAIM).data)
            if other is None or lease.has_died(other):
                return True
        return time.monotonic() >= self._since + _SILENCE


# All that is known of it


class Going(Protocol):
    """A start of a workspace: a process with its supervisor, or a task of a loop. Once `code`, an exit code, is not
    None it is over; `why`, or else `error`, says what the files can't say."""

    code: int | None
    why: str
    error: str

    @property
    def rests(self) -> bool:
        """The run has stopped, and only its notices are still being sent: it needs no place."""

    @property
    def wake_at(self) -> float:
        """When to poll it, by time.monotonic."""

    def start(self) -> None: ...

    def poll(self) -> None: ...

    def ask(self, number: signal.Signals) -> None:
        """Stop at a safe point; at once if it is asked again."""


class Known(Struct, eq=False):
    """A workspace that was found."""

    folder: str
    store: Store
    afresh: bool  # it was due when `serve` began, or that is not known yet; and it has not been started since
    schedule: Schedule
    run_id: str = ""
    group: str = ""
    priority: int = 0
    defined: Version | None = None  # the workspace.yaml that `group` and `priority` were read from while it was held
    is_held: bool = False  # by another process
    told: dict[str, str] = field(default_factory=dict)  # its errors, by the code that has found them
    seen: datetime | None = None  # when it was last looked at
    tried: datetime | None = None  # when its last child has ended
    signature: RootSignature | None = None  # of what `verdict` was made of
    is_sure: bool = True  # no later change can have left `signature` as it is; else it is judged once more
    is_unproven: bool = False  # the index says so, and its files were not judged yet
    rests_until: datetime | None = None  # no need to look at it before, unless it changes
    verdict: StartVerdict = NEVER
    due_since: float = 0.0  # by time.time; 0: it is not due
    not_before: float = 0.0  # by time.monotonic
    in_vain: int = 0  # starts in a row after which it was due again as before
    taken: int = 0  # tasks that it had ever taken when its last child had ended
    settled: RootSignature | None = None  # not started again while it is as its last child has left it
    may_be_held: bool = False  # it would be due, but it is not known yet whether its lease is left over
    supervisor: Going | None = None
    claim: Claim | None = None  # of this process to start it
    wanted_since: float = 0.0  # a program has asked for a start, whatever the files say; by time.time; 0: it has not
    is_apart: bool = False  # no look has found it yet, so `store` has listings of its own
    is_starting: bool = False  # `thread` makes its supervisor
    thread: threading.Thread | None = None  # starts or polls it, where that may wait for a network
    asked: deque[signal.Signals] = field(default_factory=deque)  # what its supervisor has not been told yet

    @property
    def since(self) -> float:
        """Since when it has waited for a start, by time.time; 0: it does not wait."""
        return self.wanted_since or self.due_since

    @property
    def is_taken(self) -> bool:
        """A child of this process has it, or is about to."""
        return self.is_starting or self.supervisor is not None

    def rests(self, now: datetime) -> bool:
        """Whether there is nothing to see at it, unless it has changed."""
        return self.rests_until is not None and now < self.rests_until and self.signature is not None

    def rest(self) -> None:
        """After a look: set from when on there is something to see."""
        is_restless = self.is_taken or self.since or self.may_be_held or self.is_held or self.told
        times = (self.verdict.at, self.schedule.looks_at)
        self.rests_until = None if is_restless or self.verdict.passing else min(at for at in times if at)

    @property
    def is_busy(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    @property
    def next_at(self) -> datetime | None:
        """The next time at which it becomes due, or gets a task, although none of its files has changed."""
        times = (None if self.due_since else self.verdict.at, self.schedule.due)
        return min((at for at in times if at), default=None)

    @property
    def sighted(self) -> SightedRun:
        """The run as the last look at it has found it."""
        due_since = 0.0 if self.is_taken else self.wanted_since or self.due_since
        return SightedRun(self.folder, self.verdict.figures, due_since, self.is_taken)

    def has_come(self, now: datetime) -> bool:
        """Whether a time has come since the last look, at which it must be started or get a task."""
        starts_at = None if self.is_taken else self.verdict.at
        return any(at and self.seen and self.seen < at <= now for at in (starts_at, self.schedule.due))


def due_since(verdict: StartVerdict, afresh: bool) -> float:
    """For the order of the starts. Runs that are found at the beginning have waited since their last process ended."""
    now = time.time()
    if verdict.at is not None:
        return verdict.at.timestamp()
    return min(now, verdict.rested.timestamp()) if afresh and verdict.rested else now


def has_taken(known: Known) -> bool:
    """Whether tasks were taken since the last child has ended."""
    before = known.taken
    with suppress(SatchelError, OSError):
        known.taken = glance(known.store).moment.tasks_taken
    return known.taken != before


def wants_merge(known: Known) -> bool:
    """Whether a file and the run conflict: a start changes nothing until a person has resolved that."""
    return bool(not_settled(known.store, glance(known.store).moment))


def has_not_gone_on(known: Known, code: int) -> bool:
    """Whether a start did nothing: it was refused, the storage failed, or a process of another `serve` has it."""
    with suppress(SatchelError, OSError):
        return code in (2, STORAGE) or (code == 6 and ((held := lease.read(known.store)) is None or is_of_serve(held)))
    return True


def told(known: Known, code: int) -> str:
    try:
        moment = glance(known.store).moment
        if code == 4:
            return "; ".join(questions(moment))
    except (SatchelError, OSError):
        return ""
    if code == 5:
        return f"until {moment.until}"
    if code == 1 and moment.error:
        return f"{moment.error.kind}: {moment.error.message}"
    if code == 3:
        return moment.reason
    settled, leaves = moment.root.plan.progress
    return f"{settled} of {leaves} items done" if code == 0 and leaves else ""
