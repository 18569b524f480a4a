"""The events of a run as OpenTelemetry spans: `async for event in traced(satchel.stream(folder))`.

A process that works on the run has a span, and below it sub-agents, items, steps and effects have theirs, with the
times of the record. No span has arguments, results, titles or state, since these may hold secrets. The messages of
errors are recorded.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from satchel import events

try:
    from opentelemetry import context, trace
    from opentelemetry.trace import Span, Status, StatusCode, TracerProvider
except ImportError as error:
    raise ImportError("satchel.adapters.opentelemetry needs opentelemetry-api: pip install 'satchel[otel]'") from error

__all__ = ["traced"]

_START = datetime(1970, 1, 1, tzinfo=UTC)
_BY_OTHERS = (events.Answered, events.Edited, events.PauseRequested, events.Paused, events.Resumed)
"""Other processes record these, also after a crash: they don't show how long the run worked."""


async def traced(
    told: AsyncGenerator[events.Event, None], tracer_provider: TracerProvider | None = None
) -> AsyncGenerator[events.Event, None]:
    """Yield the events of `satchel.stream` or `Handle.events`, and make spans of them.

    `tracer_provider`: the global one if None. The span of a run is a child of the span that is current when the first
    event is asked for. Spans begin with the first `RunStarted`. Spans that are open at a crash end with the outcome
    `crashed`, those that are open after the last event with `unfinished`. Closing this generator closes `told`.
    """
    spans = _Spans(tracer_provider)
    try:
        async with aclosing(told):
            async for event in told:
                spans.tell(event)
                yield event
    finally:
        spans.end("unfinished")


_Errors = Sequence[tuple[int, str]]
"""Each with its time."""


@dataclass(slots=True)
class _Call:
    """A call that has not ended. Its span is made at its end, since only effects record their beginning."""

    step: str
    effect: bool = False
    began: int | None = None
    errors: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Agent:
    """What is open of an agent: its span, those of its items by scope, and its calls by scope and number."""

    span: Span
    items: dict[str, Span] = field(default_factory=dict)
    calls: dict[tuple[str, int], _Call] = field(default_factory=dict)


class _Spans:
    """The open spans of one run. Times are nanoseconds since 1970."""

    def __init__(self, tracer_provider: TracerProvider | None):
        self._tracer = trace.get_tracer("satchel", tracer_provider=tracer_provider)
        self._outside = context.get_current()
        self._run_id = ""
        self._agents: dict[str, _Agent] = {}  # by path; the span of the root, "", is that of the run
        self._at = 0  # of the last event

    def tell(self, event: events.Event) -> None:
        if isinstance(event, events.RunStarted):
            self.end("crashed")
            self._at, self._run_id = _time(event.at), event.run_id
            more = {"host.name": event.host, "process.pid": event.pid}
            self._agents[""] = _Agent(self._begin("run", None, self._at, more))
        if not self._agents or isinstance(event, _BY_OTHERS):
            return
        self._at = _time(event.at)
        match event:
            case events.RunStopped(status=status, error=error):
                self.end(status, error)
            case events.AgentBegun(agent=path, scope=scope):
                self._agent(path, self._item(_parent(path), scope, self._at))
            case events.AgentEnded(agent=path, error=error):
                self._end_agent(path, "failed" if error else "returned", error)
            case events.ItemBegun(agent=path, scope=scope):
                self._item(path, scope, self._at)
            case events.ItemFailed(agent=path, scope=scope, error=error):
                self._end_item(path, scope, "failed", error)
            case events.ItemCommitted(agent=path, scope=scope, skipped=skipped):
                self._end_item(path, scope, "committed" if skipped is None else "skipped")
            case events.EffectBegun():
                call = self._call(event)
                call.effect, call.began = True, call.began or self._at
            case events.StepFailed(error=error, final=final):
                self._call(event).errors.append((self._at, error))
                if final:
                    self._end_call(event.agent, (event.scope, event.no), "failed")
            case events.StepCompleted(how=how, ms=ms, effect=effect):
                call = self._call(event)
                call.effect, call.began = effect, call.began or self._at - ms * 1_000_000
                self._end_call(event.agent, (event.scope, event.no), how, has_returned=True)

    def end(self, outcome: str, error: str = "") -> None:
        """End the span of the run, if one is open, and all below it."""
        if self._agents:
            self._end_agent("", outcome, error)

    def _begin(self, name: str, parent: Span | None, at: int, facts: dict[str, Any]) -> Span:
        within = self._outside if parent is None else trace.set_span_in_context(parent, self._outside)
        return self._tracer.start_span(
            name, within, attributes={"satchel.run_id": self._run_id, **facts}, start_time=at
        )

    def _agent(self, path: str, parent: Span | None = None) -> _Agent:
        """With a new span if it has none: after a restart it continues without a new beginning."""
        if path not in self._agents:
            parent = parent or self._agent(_parent(path)).span
            self._agents[path] = _Agent(self._begin("agent", parent, self._at, _where(path)))
        return self._agents[path]

    def _item(self, path: str, scope: str, at: int) -> Span:
        """The span of an item or a named scope, new at `at` if it has none; outside of them that of the agent."""
        agent = self._agent(path)
        if not scope:
            return agent.span
        if scope not in agent.items:
            name = scope[1:] if scope.startswith("_") else "item"
            agent.items[scope] = self._begin(name, agent.span, at, _where(path, scope))
        return agent.items[scope]

    def _call(self, event: events.StepEvent) -> _Call:
        return self._agent(event.agent).calls.setdefault((event.scope, event.no), _Call(event.step))

    def _end_agent(self, path: str, outcome: str, error: str = "") -> None:
        agent = self._agent(path)
        for inner in [each for each in self._agents if each and _parent(each) == path]:
            self._end_agent(inner, outcome)
        for scope in {*agent.items, *(scope for scope, _ in agent.calls)}:
            self._end_item(path, scope, outcome)
        del self._agents[path]
        self._end(agent.span, outcome, self._at, [(self._at, error)] if error else [])

    def _end_item(self, path: str, scope: str, outcome: str, error: str = "") -> None:
        """With its open calls; outside of items these only."""
        for place in [each for each in self._agent(path).calls if each[0] == scope]:
            self._end_call(path, place, outcome)
        if scope:
            span = self._item(path, scope, self._at)
            del self._agent(path).items[scope]
            self._end(span, outcome, self._at, [(self._at, error)] if error else [])

    def _end_call(self, path: str, place: tuple[str, int], outcome: str, *, has_returned: bool = False) -> None:
        """Make the span of a call. The span of a step that has failed begins with its first failure."""
        call, ended = self._agent(path).calls.pop(place), self._at
        if call.errors and not has_returned:
            outcome, ended = "failed", call.errors[-1][0]
        began = call.began or (call.errors[0][0] if call.errors else ended)
        parent = self._item(path, place[0], began)
        attempts = max(1, len(call.errors) + has_returned)
        facts = {"satchel.effect": call.effect, "satchel.attempts": attempts, **_where(path, place[0])}
        span = self._begin(call.step, parent, began, facts)
        self._end(span, outcome, ended, call.errors)

    def _end(self, span: Span, outcome: str, at: int, errors: _Errors) -> None:
        span.set_attribute("satchel.outcome", outcome)
        for when, error in errors:
            kind, _, message = error.partition(": ")
            span.add_event("exception", {"exception.type": kind, "exception.message": message}, when)
        if outcome in ("failed", "crashed"):
            span.set_status(Status(StatusCode.ERROR, errors[-1][1] if errors else outcome))
        span.end(at)


def _parent(path: str) -> str:
    """The agent that has spawned an agent."""
    return path.rpartition("/")[0]


def _where(path: str, scope: str = "") -> dict[str, str]:
    item = scope if scope.startswith("_") else f"^{scope}"
    return {**({"satchel.agent": path} if path else {}), **({"satchel.item": item} if scope else {})}


def _time(at: str) -> int:
    return (datetime.fromisoformat(at) - _START) // timedelta(microseconds=1) * 1000
