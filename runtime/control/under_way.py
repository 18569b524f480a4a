"""The calls that an active run performs now, as far as `.satchel/running.json` and the journal tell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from ...workspace.base import SatchelError, duration, moment_of, one_line
from ...workspace.inspect import Lease
from ...workspace.journal.records import Key
from ...workspace.state import ROOT, Moment
from ...workspace.store import Store
from ...workspace.views import running_file
from . import retrying

_SHOWN = 100
"""Characters of a call that are shown."""


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
    waiting = retrying.waiting(moment)
    for each in found.calls:
        agent = moment.agents.get(each.agent)
        scope = agent.scopes.get(each.scope) if agent and not agent.has_ended else None
        if scope is None or each.key in scope.done or each.key in scope.failed or scope.failures > each.failures:
            continue
        if moment_of(each.since) is not None and (each.agent, each.scope, each.key) not in waiting:
            yield RunningCall(each.agent, each.scope, each.no, each.step, each.call, each.since, each.key)
