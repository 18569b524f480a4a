"""Whether a workspace may be started, as its files stand. Runs nothing of it."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ...workspace import lease, pausing
from ...workspace.errors import SatchelError
from ...workspace.looking import Look, look
from ...workspace.pausefile import SIGNAL
from ...workspace.pausing import Wish
from ...workspace.store import Store
from .. import windows

APPROVALS = "approvals"
_ANSWER = re.compile(r"(?m)^decision:[ \t]*(?!(?:null|~)?[ \t]*(?:#.*)?\r?$)\S")
_EXPIRES = re.compile(r"""(?m)^expires:[ \t]*["']?([0-9][^"'#\s]*)""")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether it may be started, at once or from `at` on; if not, only what is changed in its files could."""

    starts: bool
    at: datetime | None = None
    why: str = ""  # for people
    passing: bool = False  # it may be otherwise in a moment, though no file has changed
    by_clock: bool = False  # its schedule says so, whatever came of the last start


NEVER = Verdict(False)


def judge(
    store: Store, now: datetime, *, since: datetime, tried: datetime | None = None, afresh: bool = False
) -> Verdict:
    """Whether the workspace may be started. SatchelError if it is damaged, or if its pause.yaml can't be read.

    `since` is when it was first seen, `tried` when the last process that was started for it has ended: for each time of
    its schedule there is one start.
    `afresh`: a pause that a signal asked for is over, as it is with every start that a person makes: a deploy must go
    on by itself. Later it is not, since who stops a run with a signal must not see it come back.
    """
    held = lease.holder(store)
    if held is not None and held.host == socket.gethostname():
        return Verdict(False, passing=True)  # of one elsewhere the lease may be left over: the lock decides
    seen = look(store)
    status = seen.moment.status if seen.moment.clean else "running"
    if status == "cancelled":
        return NEVER
    wanted = pausing.wish(store, seen.moment)
    if wanted is not None and not (afresh and wanted.is_lifted and _asked_by_signal(wanted)):
        return _paused(wanted, now)
    if seen.moment.seq == 0 and not seen.definition.schedule:
        return Verdict(True, why="new")
    match status:
        case "new" | "completed" | "failed":  # a failed one without a schedule: a person has to look, and to say so
            return _scheduled(seen, now, since, tried)
        case "sleeping":
            return _after(datetime.fromisoformat(seen.moment.until), now, Verdict(True, why="its sleep is over"))
        case "waiting":
            return _waiting(store, seen, now)
        case "paused" if afresh:
            return Verdict(True, why="it was stopped by a signal")
        case "paused":
            return NEVER  # as with one that has failed
        case _:
            return Verdict(True, why="interrupted")


def _scheduled(seen: Look, now: datetime, since: datetime, tried: datetime | None) -> Verdict:
    """At once if a time of its schedule has come, or at the next."""
    schedule, verdict = seen.definition.schedule, Verdict(True, why="its schedule", by_clock=True)
    if windows.is_due(seen.definition, seen.moment, now, since):
        following = windows.next_start(schedule, tried or since)
        if tried is None or (following is not None and following <= now):
            return verdict
    return _after(windows.next_start(schedule, now), now, verdict)


def _after(at: datetime | None, now: datetime, verdict: Verdict) -> Verdict:
    """`verdict` from `at` on; never if that is None."""
    return NEVER if at is None else verdict if at <= now else replace(verdict, at=at)


def _asked_by_signal(wanted: Wish) -> bool:
    return wanted.recorded is not None and wanted.recorded.reason == SIGNAL


def _paused(wanted: Wish, now: datetime) -> Verdict:
    if wanted.file is not None and wanted.file.status == "resume":
        return Verdict(True, why="pause.yaml says resume")
    until = (wanted.file.until if wanted.file else "") or (wanted.recorded.until if wanted.recorded else "")
    if wanted.is_missing or wanted.mode != "drain" or not until:
        return NEVER
    return _after(datetime.fromisoformat(until), now, Verdict(True, why="its pause is over"))


def _waiting(store: Store, seen: Look, now: datetime) -> Verdict:
    """Answers are read by the run itself; here it is only looked whether there is one."""
    expiring: list[datetime] = []
    for id in (*seen.moment.doubts, *seen.moment.approvals):
        try:
            text = store.read(f"{APPROVALS}/{id}.yaml").data.decode("utf-8", "replace")
        except (FileNotFoundError, SatchelError):
            continue
        if _ANSWER.search(text):
            return Verdict(True, why=f"{id} was answered")
        if expires := _EXPIRES.search(text):
            expiring += _time(expires[1])
    if not seen.moment.doubts and not seen.moment.approvals:
        return Verdict(True, why="nothing is asked any more")
    return _after(min(expiring, default=None), now, Verdict(True, why="a question has expired"))


def _time(text: str) -> list[datetime]:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return []
    return [at if at.tzinfo else at.replace(tzinfo=UTC)]


def questions(store: Store) -> list[str]:
    """What a waiting run asks, by id and in the agent's words where there are some."""
    moment = look(store).moment
    return [f"{id}: {asked.question}" for id, asked in moment.approvals.items()] + [
        f"{id}: has {doubt.step} happened?" for id, doubt in moment.doubts.items()
    ]
