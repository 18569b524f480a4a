"""Calls that have failed and wait to be tried again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from ...workspace.base import time_text
from ...workspace.journal import records


class Retrying(NamedTuple):
    """A call that has failed and waits to be tried again."""

    agent: str
    scope: str
    step: str
    call: str
    attempt: int  # that has failed
    error: str
    again_at: str  # UTC, ISO 8601


def of(line: records.Line) -> Retrying:
    found = line.record
    assert isinstance(found, records.StepRetry)
    again = time_text(datetime.fromisoformat(line.at) + timedelta(seconds=found.wait))
    error = f"{found.error.kind}: {found.error.message}"
    return Retrying(found.agent, found.scope, found.step, found.call, found.attempt, error, again)
