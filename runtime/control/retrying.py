"""Calls that have failed and wait to be tried again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ...workspace.base import time_text
from ...workspace.journal import records
from ...workspace.state import Moment


class Retrying(NamedTuple):
    """A call that has failed and waits to be tried again."""

    agent: str
    scope: str
    step: str
    call: str
    attempt: int  # that has failed
    error: str
    again_at: str  # UTC, ISO 8601


def all_of(moment: Moment) -> list[Retrying]:
    """All of a run."""
    return [of(line) for line in _lines(moment)]


def waiting(moment: Moment) -> set[tuple[str, str, records.Key]]:
    """The calls that are not tried again yet: agent, scope and key of each."""
    now = time_text(datetime.now(UTC))
    found = [line.record for line in _lines(moment) if of(line).again_at > now]
    return {(each.agent, each.scope, each.key) for each in found if isinstance(each, records.StepRetry)}


def of(line: records.Line) -> Retrying:
    found = line.record
    assert isinstance(found, records.StepRetry)
    again = time_text(datetime.fromisoformat(line.at) + timedelta(seconds=found.wait))
    error = f"{found.error.kind}: {found.error.message}"
    return Retrying(found.agent, found.scope, found.step, found.call, found.attempt, error, again)


def _lines(moment: Moment) -> Iterator[records.Line]:
    for agent in moment.agents.values():
        for scope in agent.scopes.values():
            yield from scope.retries.values()
