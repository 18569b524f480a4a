"""What looks at many runs have found, in numbers, for metrics: who asks for them causes no look.

A counter says what was recorded since this process saw the run first, whichever process has recorded it. It is 0 when
this process begins, and only grows. Each run counts by its own number of records, so a look that shows what an earlier
one has shown counts nothing, and neither does a run that was moved, or removed and put back.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct, field

from ...workspace.base import SatchelError
from ...workspace.inspect import glance
from ...workspace.journal import now
from ...workspace.state import ACTIVE, STATES, Moment, State
from ...workspace.store import open_store

COUNTED = ("starts", "crashes", "takeovers", "steps", "retries", "tokens", "usd")

_FRESH, _FRESH_REMOTELY = 5.0, 15.0
"""Seconds for which the numbers of a run that a process has are good enough."""

_PATIENCE = 0.5
"""Seconds that are spent on reading such runs at a time."""

_GONE = 10_000
"""Runs that are not there any more and are remembered, so that they don't count again if they come back."""


class RunFigures(Struct, frozen=True, kw_only=True):
    """One run in numbers, up to its record `seq`."""

    state: State
    run: str = ""  # tells it from all others, once it has begun
    run_id: str = ""
    seq: int = 0
    is_fork: bool = False  # its counts have begun with those of another run
    opened_at: str = ""  # by the process that had it last: UTC, ISO 8601
    questions: int = 0  # that are open
    asked_at: str = ""  # the oldest of these: UTC, ISO 8601
    starts: int = 0
    crashes: int = 0
    takeovers: int = 0
    steps: int = 0
    retries: int = 0
    tokens: int = 0
    usd: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether its records were read. Of a run that another process has, only that may be known."""
        return bool(self.seq) or self.state not in ACTIVE


def figures_of(moment: Moment, state: State | None = None) -> RunFigures:
    """The numbers of a run. Without `state`: as its records say, for one that a process does not have."""
    usage = moment.usage
    at_rest = "interrupted" if moment.is_interrupted else "paused" if moment.status == "draining" else moment.status
    return RunFigures(
        state=state or ("held" if moment.kind else at_rest),
        run=moment.run_nonce or moment.run_id,
        run_id=moment.run_id,
        seq=moment.seq,
        is_fork=moment.forked is not None,
        opened_at=moment.opened_at,
        questions=len(moment.approvals) + len(moment.doubts),
        asked_at=min(moment.asked_at.values(), default=""),
        starts=moment.attempt,
        crashes=moment.crashes,
        takeovers=moment.takeovers,
        steps=usage.steps,
        retries=moment.retries,
        tokens=usage.tokens,
        usd=usage.usd,
    )


class SightedRun(NamedTuple):
    """A run as a look has found it. `figures` are None if they could not be read. `is_taken`: a process has it, and
    they may be older."""

    folder: str
    figures: RunFigures | None
    due_since: float = 0.0  # by time.time; 0: it is not due
    is_taken: bool = False
    unread: State = "damaged"  # its state without figures


class CensusNumbers(NamedTuple):
    """All runs together. Ages are in seconds, and 0 if there is nothing of that kind."""

    states: Counter[State]
    counts: dict[str, float]  # by the names in COUNTED
    due: int | None  # None: this process does not know
    due_age: float
    lease_age: float
    questions: int
    question_age: float
    looks: int
    look_seconds: float  # of all looks together
    look_age: float | None  # since the end of the last one that has succeeded; None: there was none


class _Look(Struct, frozen=True):
    """What the last look has found. Times are by time.time; 0: there is none."""

    states: Counter[State] = field(default_factory=Counter)
    due: int = 0
    due_since: float = 0.0
    leased_since: float = 0.0
    questions: int = 0
    asked_since: float = 0.0
    active: tuple[str, ...] = ()  # the folders of runs that a process has
    runs: frozenset[str] = frozenset()  # what tells them from all others
    period: float = 0.0  # seconds
    at: float = 0.0  # by time.monotonic


class Census:
    """The numbers of all runs below one or several `roots`. What looks at the runs below a root calls `looked` after
    each look. Safe to call from several threads."""

    def __init__(self, roots: int = 1, *, knows_due: bool = True, clock: Callable[[], float] = time.time):
        self._roots, self._knows_due, self._clock = roots, knows_due, clock
        self._began = now()
        self._last: dict[str, _Look] = {}  # by root
        self._looks, self._seconds = 0, 0.0
        self._counts = dict.fromkeys(COUNTED, 0.0)
        self._counted: dict[str, RunFigures] = {}  # by `run`, those up to which it was counted
        self._fresh: dict[str, tuple[float, RunFigures | None]] = {}  # of active runs: when they were read
        self._lock = threading.Lock()  # protects all of these
        self._reading: threading.Thread | None = None

    def looked(self, root: str, seconds: float, period: float, runs: Iterable[SightedRun]) -> None:
        """A look below `root` has succeeded. It has taken so many `seconds`, and the next one begins after `period`
        seconds."""
        with self._lock:
            states: Counter[State] = Counter()
            due, leased, asked = list[float](), list[str](), list[str]()
            questions, active, there = 0, list[str](), set[str]()
            for run in runs:
                figures = self._newest(run)
                state = figures.state if figures else run.unread
                if run.is_taken and state not in ACTIVE:
                    state = "running"
                states[state] += 1
                if run.due_since:
                    due.append(run.due_since)
                if state in ACTIVE:
                    active.append(run.folder)
                if figures is None or STATES[state].phase == "unknown":
                    continue  # a backup asks nothing, for example
                self._count(figures, is_first=root not in self._last)
                there |= {figures.run, figures.run_id}
                questions += figures.questions
                asked += [figures.asked_at] * bool(figures.asked_at)
                leased += [figures.opened_at] * bool(figures.opened_at and state in ACTIVE)
            self._last[root] = _Look(
                states,
                len(due),
                min(due, default=0.0),
                _seconds_of(leased),
                questions,
                _seconds_of(asked),
                tuple(active),
                frozenset(there),
                max(seconds, period),
                time.monotonic(),
            )
            self._looks, self._seconds = self._looks + 1, self._seconds + seconds
            self._forget()

    def _newest(self, run: SightedRun) -> RunFigures | None:
        """While a process has it, those that were read since are newer."""
        _, fresh = self._fresh.get(run.folder, (0.0, None))
        if fresh is None or (run.figures is not None and run.figures.is_known and run.figures.seq > fresh.seq):
            return run.figures
        is_active = run.is_taken or (run.figures is not None and run.figures.state in ACTIVE)
        return fresh if is_active else run.figures

    def _count(self, figures: RunFigures, *, is_first: bool = False) -> None:
        """`is_first`: no look at its root was made before, so it may have been there for long."""
        if not figures.is_known:
            return
        before = self._counted.get(figures.run)
        if before is None:
            was_new = figures.run_id in self._counted
            is_born = not is_first and figures.starts <= 1 and not figures.is_fork and figures.opened_at > self._began
            before = RunFigures(state="new") if was_new or is_born else figures
        elif figures.seq <= before.seq:
            return
        self._counted[figures.run] = figures
        for name in COUNTED:
            self._counts[name] += max(0, getattr(figures, name) - getattr(before, name))

    def _forget(self) -> None:
        self._fresh = {folder: self._fresh[folder] for folder in self._active if folder in self._fresh}
        if len(self._counted) > sum(len(look.runs) for look in self._last.values()) + _GONE:
            there = frozenset[str]().union(*(look.runs for look in self._last.values()))
            for run in [run for run in self._counted if run not in there][:-_GONE]:
                del self._counted[run]

    @property
    def _active(self) -> list[str]:
        return [folder for look in self._last.values() for folder in look.active]

    def refresh(self) -> None:
        """Read the runs that processes have, since a look does not. For the time of a request: the rest is read
        meanwhile."""
        with self._lock:
            if self._reading is None or not self._reading.is_alive():
                self._reading = threading.Thread(target=self._read, name="satchel-census", daemon=True)
                self._reading.start()
            reading = self._reading
        reading.join(_PATIENCE)

    def _read(self) -> None:
        """In a thread, since a storage may hang. The oldest first."""
        end = time.monotonic() + _PATIENCE
        with self._lock:
            folders = sorted(self._active, key=lambda folder: self._fresh.get(folder, (0.0, None))[0])
            ages = {folder: self._fresh.get(folder, (float("-inf"), None))[0] for folder in folders}
        for folder in folders:
            if time.monotonic() >= end:
                return
            figures = None
            try:
                store = open_store(folder)
                if time.monotonic() < ages[folder] + (_FRESH_REMOTELY if store.abilities.remote else _FRESH):
                    continue
                figures = figures_of(glance(store).moment, "running")
            except (SatchelError, OSError):
                pass  # the next look says what is wrong with it
            with self._lock:
                self._fresh[folder] = (time.monotonic(), figures)
                if figures is not None:
                    self._count(figures)

    def numbers(self) -> CensusNumbers:
        """What is known by now."""
        with self._lock:
            looks, clock = self._last.values(), self._clock()
            return CensusNumbers(
                states=sum((look.states for look in looks), Counter()),
                counts={**self._counts},
                due=sum(look.due for look in looks) if self._knows_due else None,
                due_age=_age((look.due_since for look in looks), clock),
                lease_age=_age((look.leased_since for look in looks), clock),
                questions=sum(look.questions for look in looks),
                question_age=_age((look.asked_since for look in looks), clock),
                looks=self._looks,
                look_seconds=self._seconds,
                look_age=time.monotonic() - min(look.at for look in looks) if looks else None,
            )

    @property
    def is_ready(self) -> bool:
        """Whether the last look at each root is younger than three periods."""
        with self._lock:
            moment, looks = time.monotonic(), [*self._last.values()]
        return len(looks) >= self._roots and all(moment - look.at < 3 * look.period for look in looks)


def _seconds_of(times: Collection[str]) -> float:
    """The oldest of these times (UTC, ISO 8601), by time.time. They have one form, so the texts are in order."""
    return datetime.fromisoformat(min(times)).timestamp() if times else 0.0


def _age(times: Iterable[float], clock: float) -> float:
    """Of the oldest of these times."""
    return max((max(0.0, clock - each) for each in times if each), default=0.0)
