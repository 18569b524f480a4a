"""Who is told what a run does. A watch gets its events in their order, the end of an item only when its commit is
durable. The logger `satchel` gets what is durable. A test observes calls besides their records, for example to crash
the run there. News of the backup reach the watch, the notices and the log (`BackupNews`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ...workspace.base import NotDone, SatchelError, visible
from ...workspace.inspect import Report
from ...workspace.journal import (
    AgentBegun,
    AgentEnded,
    AnyRecord,
    ApprovalAnswered,
    ApprovalAsked,
    Closed,
    Doubt,
    Edited,
    Failure,
    Line,
    Paused,
    PauseRequested,
    Resolved,
    ResourceChanged,
    Resumed,
    Saved,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    StepCompleted,
    StepFailed,
    StepRetry,
    StepStarted,
)
from ...workspace.lifecycle import Workspace
from ...workspace.state import ROOT, Moment
from ...workspace.views import PartialHead

if TYPE_CHECKING:
    from ..agent import Partial


class Watch(Protocol):
    """Gets the events of a run, to show them to a person. Called on the loop; must be quick and must not raise.

    `agent` is the path of a sub-agent, empty for the root.
    """

    def opened(self, report: Report) -> None: ...
    def agent_begun(self, agent: str) -> None: ...
    def agent_ended(self, agent: str) -> None: ...
    def item_begun(self, agent: str, text: str, finished: int, of: int) -> None: ...
    def item_ended(self, agent: str, text: str, finished: int, of: int) -> None: ...
    def step_begun(self, agent: str, name: str) -> None: ...
    def streamed(self, agent: str, name: str, characters: int) -> None: ...
    def noticed(self, kind: str, text: str) -> None: ...


class Tap(Protocol):
    """Gets the durable records of a run, and text as it is streamed. Called on the loop; must be quick and must not
    raise."""

    def recorded(self, lines: Sequence[Line]) -> None: ...
    def streamed(self, head: PartialHead, text: str, offset: int) -> None: ...


class LoopWatch:
    """A watch for code on the loop. Events after an end that is not durable yet wait with it."""

    def __init__(self, watch: Watch, workspace: Workspace):
        self._watch, self._workspace, self._journal = watch, workspace, workspace.journal
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()  # with the record that is to be durable

    def opened(self, report: Report) -> None:
        self._tell(0, self._watch.opened, report)

    def agent_begun(self, agent: str) -> None:
        self._tell(0, self._watch.agent_begun, agent)

    def agent_ended(self, agent: str) -> None:
        self._tell(0, self._watch.agent_ended, agent)

    def item_begun(self, agent: str, text: str, finished: int, of: int) -> None:
        self._tell(0, self._watch.item_begun, agent, text, finished, of)

    def item_ended(self, agent: str, text: str, finished: int, of: int) -> None:
        self._tell(self._journal.next_seq - 1, self._watch.item_ended, agent, text, finished, of)

    def step_begun(self, agent: str, name: str) -> None:
        self._tell(0, self._watch.step_begun, agent, name)

    def streamed(self, agent: str, name: str, characters: int) -> None:
        self._tell(0, self._watch.streamed, agent, name, characters)

    def noticed(self, kind: str, text: str) -> None:
        text = self._workspace.redactor.text(text)
        self._watch.noticed(kind, text)  # at once: it may be that the storage has failed

    def _tell(self, seq: int, event: Callable[..., None], *facts: object) -> None:
        if self._waiting or seq > self._journal.durable_seq:
            self._waiting.append((seq, partial(event, *facts)))
        else:
            event(*facts)

    def durable(self, lines: Sequence[Line]) -> None:
        while self._waiting and self._waiting[0][0] <= lines[-1].seq:
            self._waiting.popleft()[1]()


LOG = logging.getLogger("satchel")
"""INFO has what a person wants to know, DEBUG each call. Satchel adds no handler, and logs nothing here above INFO:
without a program that wants these lines, nothing is printed."""


def log_start(moment: Moment, url: str) -> None:
    """The agent of an opened run is about to be called."""
    LOG.info("%s: start %d, in %s", moment.run_id, moment.attempt, visible(url))


def log_records(run_id: str, lines: Sequence[Line]) -> None:
    """These records are durable."""
    if not LOG.isEnabledFor(logging.INFO):
        return
    for line in lines:
        if (text := _info(line.record)) is not None:
            LOG.info("%s: %s%s", run_id, _of(line.record), _line(text))
        elif LOG.isEnabledFor(logging.DEBUG) and (text := _debug(line.record)) is not None:
            LOG.debug("%s: %s%s", run_id, _of(line.record), _line(text))


def _line(text: str) -> str:
    """On one line, and safe for a terminal: it may quote a stranger."""
    return visible(" ".join(text.split()))


def _of(record: AnyRecord) -> str:
    return f"{record.agent}: " if record.agent else ""


def _info(record: AnyRecord) -> str | None:
    match record:
        case Closed(status=str(status)):
            why = _failure(record.error) or record.reason
            return f"{status}{f': {why}' if why else ''}"
        case ScopeBegun(scope=scope) if scope != ROOT:
            return f"{_scope(scope)} begun: {record.title}"
        case ScopeCommitted(scope=scope) if scope != ROOT:
            return f"{_scope(scope)} committed"
        case ScopeFailed():
            return f"{_scope(record.scope)} failed: {_failure(record.error)}"
        case StepRetry():
            again = f"asking again in {record.wait:.3g} s: {_failure(record.error)}"
            return f"{_scope(record.scope)} {record.step}{record.call}: {again}"
        case ApprovalAsked():
            return f"asked {record.id}: {record.question}"
        case Doubt():
            return f"asked {record.id} about the effect {record.step}{record.call}"
        case ApprovalAnswered() | Resolved():
            return f"{record.id} answered by {record.by}"
        case PauseRequested():
            return f"{record.mode} requested by {record.by}: {record.reason}"
        case Paused():
            return f"paused{' by force' if record.forced else ''}"
        case Resumed():
            return f"resumed by {record.by}"
        case AgentBegun():
            return f"begun{record.call}"
        case AgentEnded():
            return f"failed: {_failure(record.error)}" if record.error else "ended"
        case Edited():
            return f"{record.file} edited by {record.by}: {'; '.join(record.says)}"
    return None


def _debug(record: AnyRecord) -> str | None:
    match record:
        case StepStarted():
            return f"{_scope(record.scope)} {record.step}{record.call} begins"
        case StepCompleted():
            return f"{_scope(record.scope)} {record.step}{record.call} {record.how} after {record.ms} ms"
        case StepFailed():
            return f"{_scope(record.scope)} {record.step}{record.call} failed: {_failure(record.error)}"
        case Saved():
            return f"checkpoint {record.file} ({record.why})"
    return None


def _failure(error: Failure | None) -> str:
    return f"{error.kind}: {error.message}" if error else ""


def _scope(key: str) -> str:
    return key if key.startswith("_") else f"^{key}" if key else "agent"


class Observer(Protocol):
    """Called on the loop, at the moment itself. `call` is an `OpenCall` (open_scope.py, which needs the context and so
    this module)."""

    def wrote(self, call: Any, out: Partial) -> None:
        """A streamed step has written to `out`."""

    def returned(self, call: Any) -> None:
        """The function of an effect has returned, and that is not recorded yet."""

    def denied(self, call: Any) -> None:
        """The `verify` of an effect has raised NotDone."""

    def waits(self, call: Any) -> None:
        """A sleep has begun, or a question is asked, and that is on record."""


_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """The runs that the body starts are observed."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def observer_here() -> Observer | None:
    return _observer.get()


@contextmanager
def verification(call: Any) -> Iterator[None]:
    try:
        yield
    except NotDone:
        if observer := call.scope.context.observer:
            observer.denied(call)
        raise


class BackupNews:
    """For one opening, made on the loop of its agent. `tell` gets lines for people."""

    def __init__(self, workspace: Workspace, tell: Callable[[str], None]):
        self._workspace, self._tell = workspace, tell
        self._loop = asyncio.get_running_loop()
        self._is_away = False
        if workspace.follower is not None:
            workspace.follower.on_state = self._hear
            if workspace.follower.told:
                self._loop.call_soon(self._say)

    def end(self) -> None:
        """The run has ended, and nothing can be recorded any more."""
        if self._workspace.follower is not None:
            self._workspace.follower.on_state = lambda: None

    def _hear(self) -> None:
        """In the thread that follows."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._say)

    def _say(self) -> None:
        """The newest state: what was heard first may come last."""
        assert self._workspace.follower is not None
        note = self._workspace.follower.note
        if self._is_away == (note.state in ("away", "refused")):
            return
        self._is_away = not self._is_away
        if self._is_away:
            record = ResourceChanged(
                name=f"backup {note.to}", tier="infrastructure", event="released", outcome="failed", why=note.why
            )
            self._tell(f"the backup at {note.to} does not follow: {note.why}. The run goes on")
        else:
            record = ResourceChanged(name=f"backup {note.to}", tier="infrastructure", event="opened")
            self._tell(f"the backup at {note.to} follows again")
        if not self._workspace.moment.clean:  # else the run has just been closed
            with suppress(SatchelError):  # it is only for people
                self._workspace.journal.add(record)
