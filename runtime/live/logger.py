"""The logger `satchel`: what is durable, for programs that log. INFO has what a person wants to know, DEBUG each call.

Satchel adds no handler, and logs nothing here above INFO: without a program that wants these lines, nothing is printed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...workspace.base import visible
from ...workspace.journal import records
from ...workspace.journal.records import AnyRecord, Failure, Line
from ...workspace.state import ROOT, Moment

LOG = logging.getLogger("satchel")


def started(moment: Moment, url: str) -> None:
    """The agent of an opened run is about to be called."""
    LOG.info("%s: start %d, in %s", moment.run_id, moment.attempt, visible(url))


def recorded(run_id: str, lines: Sequence[Line]) -> None:
    """These records are durable."""
    if not LOG.isEnabledFor(logging.INFO):
        return
    for line in lines:
        if (text := _notable(line.record)) is not None:
            LOG.info("%s: %s%s", run_id, _of(line.record), _line(text))
        elif LOG.isEnabledFor(logging.DEBUG) and (text := _detail(line.record)) is not None:
            LOG.debug("%s: %s%s", run_id, _of(line.record), _line(text))


def _line(text: str) -> str:
    """On one line, and safe for a terminal: it may quote a stranger."""
    return visible(" ".join(text.split()))


def _of(record: AnyRecord) -> str:
    return f"{record.agent}: " if record.agent else ""


def _notable(record: AnyRecord) -> str | None:
    match record:
        case records.Closed(status=str(status)):
            why = _failure(record.error) or record.reason
            return f"{status}{f': {why}' if why else ''}"
        case records.ScopeBegun(scope=scope) if scope != ROOT:
            return f"{_scope(scope)} begun: {record.title}"
        case records.ScopeCommitted(scope=scope) if scope != ROOT:
            return f"{_scope(scope)} committed"
        case records.ScopeFailed():
            return f"{_scope(record.scope)} failed: {_failure(record.error)}"
        case records.StepRetry():
            again = f"asking again in {record.wait:.3g} s: {_failure(record.error)}"
            return f"{_scope(record.scope)} {record.step}{record.call}: {again}"
        case records.ApprovalAsked():
            return f"asked {record.id}: {record.question}"
        case records.Doubt():
            return f"asked {record.id} about the effect {record.step}{record.call}"
        case records.ApprovalAnswered() | records.Resolved():
            return f"{record.id} answered by {record.by}"
        case records.PauseRequested():
            return f"{record.mode} requested by {record.by}: {record.reason}"
        case records.Paused():
            return f"paused{' by force' if record.forced else ''}"
        case records.Resumed():
            return f"resumed by {record.by}"
        case records.AgentBegun():
            return f"begun{record.call}"
        case records.AgentEnded():
            return f"failed: {_failure(record.error)}" if record.error else "ended"
        case records.Edited():
            return f"{record.file} edited by {record.by}: {'; '.join(record.says)}"
    return None


def _detail(record: AnyRecord) -> str | None:
    match record:
        case records.StepStarted():
            return f"{_scope(record.scope)} {record.step}{record.call} begins"
        case records.StepCompleted():
            return f"{_scope(record.scope)} {record.step}{record.call} {record.how} after {record.ms} ms"
        case records.StepFailed():
            return f"{_scope(record.scope)} {record.step}{record.call} failed: {_failure(record.error)}"
        case records.Saved():
            return f"checkpoint {record.file} ({record.why})"
    return None


def _failure(error: Failure | None) -> str:
    return f"{error.kind}: {error.message}" if error else ""


def _scope(key: str) -> str:
    return key if key.startswith("_") else f"^{key}" if key else "agent"
