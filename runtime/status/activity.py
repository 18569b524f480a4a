"""What a run does now, and what lies ahead of it: the calls that it performs, as far as `.satchel/running.json` and the
journal tell; those that have failed and wait to be tried again; how fast it does the items of its plan, an estimate
from those that ended last; and the times of its schedule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ...workspace.base import SatchelError, duration, moment_of, one_line, time_text
from ...workspace.formats import Definition
from ...workspace.inbound import inbox
from ...workspace.inspect import Lease
from ...workspace.journal import Key, Line, StepRetry
from ...workspace.state import ENDS_KEPT, ROOT, Fired, Moment
from ...workspace.store import Store
from ...workspace.views import running_file

_SHOWN = 100
"""Characters of a call that are shown."""

_UNITS = (("a second", 1.0), ("a minute", 60.0), ("an hour", 3600.0), ("a day", 86400.0))


class Retrying(NamedTuple):
    """A call that has failed and waits to be tried again."""

    agent: str
    scope: str
    step: str
    call: str
    attempt: int  # that has failed
    error: str
    again_at: str  # UTC, ISO 8601


def calls_to_retry(moment: Moment) -> list[Retrying]:
    """All of a run."""
    return [_retry_of(line) for line in _lines(moment)]


def _later(moment: Moment) -> set[tuple[str, str, Key]]:
    """The calls that are not tried again yet: agent, scope and key of each."""
    now = time_text(datetime.now(UTC))
    found = [line.record for line in _lines(moment) if _retry_of(line).again_at > now]
    return {(each.agent, each.scope, each.key) for each in found if isinstance(each, StepRetry)}


def _retry_of(line: Line) -> Retrying:
    found = line.record
    assert isinstance(found, StepRetry)
    again = time_text(datetime.fromisoformat(line.at) + timedelta(seconds=found.wait))
    error = f"{found.error.kind}: {found.error.message}"
    return Retrying(found.agent, found.scope, found.step, found.call, found.attempt, error, again)


def _lines(moment: Moment) -> Iterator[Line]:
    for agent in moment.agents.values():
        for scope in agent.scopes.values():
            yield from scope.retries.values()


class RunningCall(NamedTuple):
    """A call that has run for a second or more, in a bucket for five. Its text may come from a stranger."""

    agent: str
    scope: str
    no: int  # of the call in its scope
    step: str
    call: str  # its arguments, shortened
    since: str  # UTC, ISO 8601; of a call that was tried again, its first attempt
    key: Key

    @property
    def seconds(self) -> float:
        """How long it has run, by the clock of this machine."""
        began = moment_of(self.since)
        return max(0.0, (datetime.now(UTC) - began).total_seconds()) if began else 0.0

    @property
    def words(self) -> str:
        """`summarise("a.txt") for 42 s, item ^3`."""
        where = [self.place] if self.place else []
        agent = [f"agent {self.agent}"] if self.agent else []
        what = one_line(f"{self.step}{self.call}", _SHOWN)
        return ", ".join([f"{what} for {duration(self.seconds)}", *where, *agent])

    @property
    def place(self) -> str:
        """Its item or named scope, in words; empty for a call of the agent itself."""
        if self.scope == ROOT:
            return ""
        return f"scope {self.scope[1:]}" if self.scope.startswith("_") else f"item ^{self.scope}"


def running(store: Store, moment: Moment, holder: Lease | None) -> list[RunningCall]:
    """Those of `holder`, the process that has the run; the one that has run longest first. Not those that have ended by
    now, nor those that wait to be tried again. In a bucket one request, if the run is active and has the file."""
    if holder is None:
        return []
    try:
        found = running_file.read(store)
    except (SatchelError, OSError):
        return []
    if found is None or found.epoch != holder.epoch or found.run_id != moment.run_id:
        return []
    return sorted(_left(found, moment), key=lambda each: each.since)


def _left(found: running_file.RunningCalls, moment: Moment) -> Iterator[RunningCall]:
    later = _later(moment)
    for each in found.calls:
        agent = moment.agents.get(each.agent)
        scope = agent.scopes.get(each.scope) if agent and not agent.has_ended else None
        if scope is None or each.key in scope.done or each.key in scope.failed or scope.failures > each.failures:
            continue
        if moment_of(each.since) is not None and (each.agent, each.scope, each.key) not in later:
            yield RunningCall(each.agent, each.scope, each.no, each.step, each.call, each.since, each.key)


class Forecast(NamedTuple):
    """An estimate, from the time that the last items took together. Items that run in parallel are counted so."""

    each: float  # seconds an item
    left: float  # seconds until the plan is finished

    @property
    def words(self) -> str:
        """`2.5 items a minute, about 3 min left`."""
        return f"{self.rate}, {self.time_left}"

    @property
    def rate(self) -> str:
        unit, seconds = next((each for each in _UNITS if each[1] >= self.each), _UNITS[-1])
        many = seconds / self.each
        said = f"{many:,.0f}" if many >= 9.95 else f"{many:.1f}".removesuffix(".0")
        return f"{said} item{'' if said == '1' else 's'} {unit}"

    @property
    def time_left(self) -> str:
        if self.left < 60:
            return f"about {math.ceil(self.left)} s left"
        if self.left < 3600:
            return f"about {math.ceil(self.left / 60)} min left"
        return f"about {duration(self.left)} left"


def forecast(began: float, ends: Sequence[float], to_do: int, now: float) -> Forecast | None:
    """The times are seconds of one clock: when the process `began`, when the newest items ended, and now. None as long
    as none has ended, and when nothing is left to do."""
    first, *rest = (began, *ends) if len(ends) < ENDS_KEPT else ends
    if not rest or to_do < 1:
        return None
    # What runs now counts as soon as it takes longer than the others. Then its end is not known.
    each = max((rest[-1] - first) / len(rest), (now - first) / (len(rest) + 1), 1e-6)
    running = min(max(0.0, now - rest[-1]), each / 2)
    return Forecast(each, each * to_do - running)


def forecast_of(moment: Moment, now: float) -> Forecast | None:
    """The same of the agent of a run that is running; `now` in seconds since the epoch."""
    if moment.clean or not moment.root.ended_at:
        return None  # the process that has it has not recorded that yet
    began, *ends = [datetime.fromisoformat(each).timestamp() for each in (moment.opened_at, *moment.root.ended_at)]
    settled, leaves = moment.root.plan.progress
    return forecast(began, ends, leaves - settled, now)


class Scheduled(NamedTuple):
    """A time of `schedule:`: the last one that was taken, and the next one (UTC, ISO 8601; empty: never)."""

    name: str
    last: Fired | None
    next: str


def schedule_of(store: Store, definition: Definition, moment: Moment, now: datetime) -> list[Scheduled]:
    """The times of its schedule. Empty for a cancelled run, and if `check` and the next start report a mistake."""
    from ..limits import windows  # most runs have no schedule

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
