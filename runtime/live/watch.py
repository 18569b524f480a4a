"""Who watches the calls of a run: a watch gets its events in their order, the end of an item only when its commit is
durable; a test observes calls besides their records, for example to crash the run there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ...workspace.base import NotDone
from ...workspace.inspect import Report
from ...workspace.journal.records import Line
from ...workspace.lifecycle import Workspace
from ...workspace.views import PartialHead

if TYPE_CHECKING:
    from ..steps import Partial


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
