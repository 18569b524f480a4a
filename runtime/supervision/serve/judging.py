"""Whether a workspace that `serve` has found may be started, according to its files, and what is to be said about its
last child. Runs nothing of it.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import datetime
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from ....workspace.base import DEFINITION, SIGNAL, InvalidFile, SatchelError
from ....workspace.inbound.approvals import filled_in, open_questions
from ....workspace.inbound.edits import Noticed, not_settled, notice, untaken
from ....workspace.inbound.inbox import archive, inbox
from ....workspace.inspect import Lease, Look, glance, lease
from ....workspace.lifecycle import PauseWish, pausing
from ....workspace.store import Store
from ....workspace.views import BRIEF, Unsettled
from ...limits import windows
from ..child.supervisor import STORAGE
from .roots import RootSignature
from .schedule import Schedule


class StartVerdict(Struct, frozen=True):
    """Whether it may be started, at once or from `at` on; if not, only a change of its files can allow it."""

    starts: bool
    at: datetime | None = None
    why: str = ""  # for people
    passing: bool = False  # this may change soon without a change of a file
    is_open: bool = False  # likewise, and until then it is unknown what it was when `serve` began
    by_clock: bool = False  # its schedule says so, whatever came of the last start
    run_id: str = ""  # unless a process has it
    rested: datetime | None = None  # since when no process has had it


NEVER = StartVerdict(False)


def judge(store: Store, now: datetime, *, tried: datetime | None = None, afresh: bool = False) -> StartVerdict:
    """Whether the workspace may be started. SatchelError if it is damaged, or if its pause.yaml can't be read.

    `tried` is when its last process has ended: a failed run is started once for each time of its schedule. `afresh`: a
    pause by a signal is over, as with every start by a person, so that a deployment resumes by itself. Later it is not
    over, since a person who stops a run with a signal must not see it come back.
    """
    held = lease.holder(store)
    if held is not None and held.host == socket.gethostname():  # without a lock it may be left over
        return StartVerdict(False, passing=True, is_open=is_of_serve(held))
    seen = glance(store)
    rested = seen.moment.last_at or store.trace(DEFINITION).at
    verdict = _judge(store, seen, now, tried, afresh)
    return replace(verdict, run_id=seen.definition.run_id, rested=datetime.fromisoformat(rested) if rested else None)


def is_of_serve(held: Lease) -> bool:
    """Whether that process has no supervisor of its own. If it belongs to a `serve` that has ended, that has told it to
    stop, which is no person's request."""
    return held.supervisor is None


def _judge(store: Store, seen: Look, now: datetime, tried: datetime | None, afresh: bool) -> StartVerdict:
    status = seen.moment.status
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
        return _paused(wanted, now)
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
        held = {path: store.read(path) for path in untaken(store, seen.moment)}
    except (FileNotFoundError, InvalidFile):
        return NEVER
    noticed = notice(store, seen.moment, seen.definition, held=held) if held else Noticed()
    is_plain = noticed.reopens and not noticed.questions and not noticed.refusals
    return StartVerdict(True, why=f"{next(iter(held))} was edited") if is_plain else NEVER


def _scheduled(seen: Look, now: datetime, tried: datetime | None) -> StartVerdict:
    """At once if a time of its schedule has come since it has failed, or at the next time. If the journal is lost and
    the time of the failure is unknown, at the next time."""
    schedule, verdict = seen.definition.schedule, StartVerdict(True, why="its schedule", by_clock=True)
    last = seen.moment.last_at
    failed = None if windows.lies_ahead(last, now) else datetime.fromisoformat(last) if last else now
    ends = [min(end, now) for end in (failed, tried) if end is not None]
    at = windows.next_start(schedule, max(ends)) if ends else now
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


def questions(store: Store) -> list[str]:
    """The questions of a waiting run, by id, in the agent's words if there are any."""
    moment = glance(store).moment
    return [f"{id}: {asked.question}" for id, asked in moment.approvals.items()] + [
        f"{id}: has {doubt.step} happened?" for id, doubt in moment.doubts.items()
    ]


class Going(Protocol):
    """A start of a workspace: a process with its supervisor, or a task of a loop. Once `code`, an exit code, is not
    None it is over; `why`, or else `error`, says what the files can't say."""

    code: int | None
    why: str
    error: str

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
    told: dict[str, str] = field(default_factory=dict)  # its errors, by the code that has found them
    seen: datetime | None = None  # when it was last looked at
    tried: datetime | None = None  # when its last child has ended
    signature: RootSignature | None = None  # of what `verdict` was made of
    verdict: StartVerdict = NEVER
    due_since: float = 0.0  # by time.time; 0: it is not due
    not_before: float = 0.0  # by time.monotonic
    in_vain: int = 0  # starts in a row after which it was due again as before
    taken: int = 0  # tasks that it had ever taken when its last child had ended
    settled: RootSignature | None = None  # not started again while it is as its last child has left it
    may_be_held: bool = False  # it would be due, but it is not known yet whether its lease is left over
    supervisor: Going | None = None
    wanted_since: float = 0.0  # a program has asked for a start, whatever the files say; by time.time; 0: it has not
    is_apart: bool = False  # no look has found it yet, so `store` has listings of its own
    is_starting: bool = False  # `thread` makes its supervisor
    thread: threading.Thread | None = None  # starts or polls it, where that may wait for a network
    asked: deque[signal.Signals] = field(default_factory=deque)  # what its supervisor has not been told yet

    @property
    def is_taken(self) -> bool:
        """A child of this process has it, or is about to."""
        return self.is_starting or self.supervisor is not None

    @property
    def is_busy(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

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
        if code == 4:
            return "; ".join(questions(known.store))
        moment = glance(known.store).moment
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
