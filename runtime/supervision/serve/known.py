"""A workspace that `serve` has found, and what is to be said about its last child."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import datetime
from typing import Protocol

from msgspec import Struct, field

from ....workspace.base import SatchelError
from ....workspace.inspect import glance, lease
from ....workspace.people.edits import not_settled
from ....workspace.store import Store
from ..child.supervisor import STORAGE
from .judging import NEVER, Verdict, is_of_serve, questions
from .roots import RootSignature
from .schedule import Schedule


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
    verdict: Verdict = NEVER
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


def due_since(verdict: Verdict, afresh: bool) -> float:
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
