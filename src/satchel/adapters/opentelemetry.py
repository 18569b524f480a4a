"""The events of a run as OpenTelemetry spans: `async for event in traced(satchel.stream(folder))`.

A process that works on the run has a span, and below it sub-agents, items, steps and effects have theirs, with the
times of the record. No span has arguments, results, titles or state, since these may hold secrets. The messages of
errors are recorded.

All spans of a run are in one trace. Its id is derived from the run, and the id of a span from the records of its
start. So the same events give the same spans, in any process and however often they are read.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from satchel import events

try:
    from opentelemetry import context, trace
    from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanContext, Status, StatusCode, TracerProvider
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

    `tracer_provider`: the global one if None. The span of a start has links to that of the start before it, and to the
    span that is current when the first event is asked for. Spans begin with the first `RunStarted`. Spans that are open
    at a crash end with the outcome `crashed`, those that are open after the last event with `unfinished`. Closing this
    generator closes `told`. Not guaranteed: these ids, with a provider that is not of the SDK.
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
    model: str = ""
    errors: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Agent:
    """What is open of an agent: its span, those of its items by scope, and its calls by scope and number."""

    span: Span
    items: dict[str, Span] = field(default_factory=dict)
    calls: dict[tuple[str, int], _Call] = field(default_factory=dict)
    spent: dict[tuple[str, int], list[events.Spent]] = field(default_factory=dict)  # in these calls


class _DerivedIds:
    """The ids of the next span, for a tracer of the SDK, which asks when it begins one."""

    def __init__(self) -> None:
        self.trace = self.span = 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span

    def is_trace_id_random(self) -> bool:
        return False


class _Spans:
    """The open spans of one run. Times are nanoseconds since 1970."""

    def __init__(self, tracer_provider: TracerProvider | None):
        self._tracer = trace.get_tracer("satchel", tracer_provider=tracer_provider)
        self._ids = _DerivedIds()
        if hasattr(self._tracer, "id_generator"):  # this tracer is made for these spans only
            self._tracer.id_generator = self._ids
        current = trace.get_current_span().get_span_context()
        self._asked_by = [Link(current)] if current.is_valid else []
        self._outside = trace.set_span_in_context(INVALID_SPAN, context.get_current())
        self._run_id = self._opening = ""
        self._agents: dict[str, _Agent] = {}  # by path; the span of the root, "", is that of the run
        self._at = 0  # of the last event
        self._begun: Counter[str] = Counter()  # spans by place, since the last start

    def tell(self, event: events.Event) -> None:
        if isinstance(event, events.RunStarted):
            self.end("crashed")
            self._at, self._run_id, self._opening = _time(event.at), event.run_id, event.opening
            self._ids.trace = int(event.trace, 16)
            self._begun.clear()
            links = [*self._asked_by]
            if event.before:
                links.append(Link(SpanContext(self._ids.trace, _id(event.before), is_remote=True)))
            more = {"host.name": event.host, "process.pid": event.pid}
            self._agents[""] = _Agent(self._begin("run", _id(event.opening), None, self._at, more, links))
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
            case events.Spent(agent=path, scope=scope, no=int(no)):
                self._agent(path).spent.setdefault((scope, no), []).append(event)
            case events.StepFailed(error=error, final=final):
                self._call(event).errors.append((self._at, error))
                if final:
                    self._end_call(event.agent, (event.scope, event.no), "failed")
            case events.StepCompleted(how=how, ms=ms, effect=effect):
                call = self._call(event)
                call.model = event.model
                call.effect, call.began = effect, call.began or self._at - ms * 1_000_000
                self._end_call(event.agent, (event.scope, event.no), how, has_returned=True)

    def end(self, outcome: str, error: str = "") -> None:
        """End the span of the run, if one is open, and all below it."""
        if self._agents:
            self._end_agent("", outcome, error)

    def _begin(
        self, name: str, id: int, parent: Span | None, at: int, facts: dict[str, Any], links: Sequence[Link] = ()
    ) -> Span:
        within = self._outside if parent is None else trace.set_span_in_context(parent, self._outside)
        self._ids.span = id
        return self._tracer.start_span(
            name, within, attributes={"satchel.run_id": self._run_id, **facts}, links=links, start_time=at
        )

    def _id_of(self, kind: str, *place: object) -> int:
        """The id of the next span of this place. An item that has failed may begin again in the same process."""
        named = "\0".join((kind, *map(str, place)))
        self._begun[named] += 1
        return _id(self._opening, named, self._begun[named])

    def _agent(self, path: str, parent: Span | None = None) -> _Agent:
        """With a new span if it has none: after a restart it continues without a new beginning."""
        if path not in self._agents:
            parent = parent or self._agent(_parent(path)).span
            facts = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": path.rpartition("/")[2]}
            span = self._begin("agent", self._id_of("agent", path), parent, self._at, {**_where(path), **facts})
            self._agents[path] = _Agent(span)
        return self._agents[path]

    def _item(self, path: str, scope: str, at: int) -> Span:
        """The span of an item or a named scope, new at `at` if it has none; outside of them that of the agent."""
        agent = self._agent(path)
        if not scope:
            return agent.span
        if scope not in agent.items:
            name = scope[1:] if scope.startswith("_") else "item"
            id = self._id_of("item", path, scope)
            agent.items[scope] = self._begin(name, id, agent.span, at, _where(path, scope))
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
        facts |= _of_model(call.model, self._agent(path).spent.pop(place, []))
        id = self._id_of("call", path, *place)
        span = self._begin(call.step, id, parent, began, facts)
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


def _of_model(fallback: str, spent: Sequence[events.Spent]) -> dict[str, str | int | float]:
    """What a call has used, by the semantic conventions for generative AI if it says its model."""
    model = next((each.model for each in reversed(spent) if each.model), fallback)
    usd = sum(each.usd for each in spent)
    found: dict[str, str | int | float] = {"satchel.cost_usd": usd} if usd else {}
    if not model:
        return found
    output = sum(each.output_tokens for each in spent)
    found |= {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
    if tokens := sum(each.tokens for each in spent):
        found |= {"gen_ai.usage.input_tokens": tokens - output, "gen_ai.usage.output_tokens": output}
    return found


def _id(*of: object) -> int:
    """64 bits, never 0."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, of)).encode()).digest()[:8]) or 1


def _time(at: str) -> int:
    return (datetime.fromisoformat(at) - _START) // timedelta(microseconds=1) * 1000
