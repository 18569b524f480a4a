"""`SatchelRunner` and `SatchelModel`: an agent of the SDK as a durable part of a run. Each request to a model is a
step, and people are asked about the calls that need approval."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MethodType
from typing import Any

import agents
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.models.interface import Model, ModelProvider
from agents.usage import deserialize_usage
from openai import APIError
from openai.types.responses import Response, ResponseCompletedEvent, ResponseUsage
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from satchel import Partial, Retry, Run, clean, step
from satchel.adapters import ask_about, identity
from satchel.errors import UsageError

RETRY = Retry(attempts=6, first=1.0, longest=60.0, on=(APIError,))
_UNSEEN = frozenset({"authorization", "extra_headers", "headers", "metadata", "preserve_raw_usage", "retry", "timeout"})
"""Fields of settings and tools that no model sees."""

_USAGE = ("input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details")
_answers: TypeAdapter[agents.ModelResponse] = TypeAdapter(agents.ModelResponse)
_asked = inspect.signature(MethodType(Model.get_response, Model)).bind  # the SDK gives them by place or by name


class SatchelRunner:
    """`Runner` of the SDK, for agents that are a durable part of a run."""

    @staticmethod
    async def run(
        starting_agent: agents.Agent[Any],
        input: Any,
        *,
        run_config: agents.RunConfig | dict[str, Any] | None = None,
        on_event: Callable[[agents.StreamEvent], Any] | None = None,
        retry: Retry | None = RETRY,
        stream: bool = False,
        wait_for: float = 10.0,
        **options: Any,
    ) -> Any:
        """As `Runner.run`, and with `on_event` as `Runner.run_streamed`: it gets each event of the stream.

        In a run, people are asked about the tools that need approval, and the result has no interruptions. `retry` is
        for requests to a model. With `stream=True` every answer is streamed, so that it is in partials/ while it
        arrives. `wait_for` is how many seconds the process stays for an approval.
        """
        approved: set[str] = set()
        if run := Run.current():
            config = agents.RunConfig(**run_config) if isinstance(run_config, dict) else run_config
            run_config = _durable(config or agents.RunConfig(), partial(SatchelModel, retry=retry, stream=stream))
        while True:
            if on_event is None:
                result: Any = await agents.Runner.run(starting_agent, input, run_config=run_config, **options)
            else:
                result = agents.Runner.run_streamed(starting_agent, input, run_config=run_config, **options)
                await _shown(result, on_event)
            if run is None or not result.interruptions:
                return result
            input = result.to_state()
            asked = (_ask(each, approved, wait_for) for each in result.interruptions)
            for item, refused in zip(result.interruptions, await asyncio.gather(*asked), strict=True):
                input.reject(item, rejection_message=refused) if refused else input.approve(item)


async def _shown(result: agents.RunResultStreaming, on_event: Callable[[agents.StreamEvent], Any]) -> None:
    """Give each event to `on_event`, until the agent has ended. If that raises, the agent is cancelled."""
    try:
        async for event in result.stream_events():
            if inspect.isawaitable(handled := on_event(event)):
                await handled
    except BaseException:
        result.cancel()
        if result.run_loop_task:
            await asyncio.wait({result.run_loop_task})
        raise
    if result.run_loop_task and result.run_loop_task.cancelled():
        raise asyncio.CancelledError  # the SDK has ended the stream without an error


def _durable(config: agents.RunConfig, wrap: Callable[[Model], Model]) -> agents.RunConfig:
    """`config` with durable models. A model that an agent holds as an object can't be replaced, so it is refused."""
    model, before = config.model, config.call_model_input_filter

    async def check(data: Any) -> Any:
        if model is None and isinstance(data.agent.model, Model) and not isinstance(data.agent.model, SatchelModel):
            what = f"the model of the agent {data.agent.name} is an object, whose requests are no steps"
            raise UsageError(what, remedy="write `Agent(model=SatchelModel(...))`")
        filtered = before(data) if before else data.model_data
        return await filtered if inspect.isawaitable(filtered) else filtered

    if isinstance(model, Model) and not isinstance(model, SatchelModel):
        model = wrap(model)
    provider = _Provider(config.model_provider, wrap)
    return replace(config, model=model, model_provider=provider, call_model_input_filter=check)


@dataclass
class _Provider(ModelProvider):
    provider: ModelProvider
    wrap: Callable[[Model], Model]

    def get_model(self, model_name: str | None) -> Model:
        return self.wrap(self.provider.get_model(model_name))


async def _ask(item: agents.ToolApprovalItem, approved: set[str], wait_for: float) -> str:
    """Why a call may not be made, for the model. Empty if it may.

    The SDK calls a tool with what the model has written. So if a person approves other arguments, the model is told to
    make that call, which is not asked about again.
    """
    name, given = item.qualified_name or "a tool", item.arguments or "{}"
    with suppress(ValueError):
        given = json.loads(given)
    if (call := json.dumps([name, given], sort_keys=True)) in approved:
        approved.remove(call)
        return ""
    tools = {each.name: each for each in item.agent.tools if isinstance(each, agents.FunctionTool)}
    said = await ask_about(
        f"May {item.agent.name} call {name}?",
        given,
        tool=f"{item.agent.name}.{name}",
        schema=tools[name].params_json_schema if name in tools else True,
        can_change=isinstance(given, dict) and clean(given) is given,
        wait_for=wait_for,
    )
    if said.refusal or not said.changed:
        return said.refusal
    approved.add(json.dumps([name, said.arguments], sort_keys=True))
    told = f"A person has approved this call only with other arguments: {json.dumps(said.arguments)}. {said.note}"
    return told.strip()


# Requests to a model


class SatchelModel(Model):
    """A model whose requests are steps of a run: `Agent(model=SatchelModel(model))`. Outside a run it is `model`.

    `SatchelRunner` does this for the models that an agent or a run names. `retry` and `stream` are its.
    """

    def __init__(self, model: Model, *, retry: Retry | None = RETRY, stream: bool = False):
        self.model, self._retry, self._stream = model, retry, stream
        for name in vars(Model).keys() - vars(SatchelModel).keys():  # whatever else a model can
            if inspect.isfunction(getattr(Model, name)):
                setattr(self, name, getattr(model, name))

    async def get_response(self, *asked: Any, **more: Any) -> agents.ModelResponse:
        if Run.current() is None:
            return await self.model.get_response(*asked, **more)
        return await _Request(self.model, _asked(*asked, **more).arguments).made(self._retry, streams=self._stream)

    async def stream_response(self, *asked: Any, **more: Any) -> AsyncIterator[Any]:
        if Run.current() is None:
            async for event in self.model.stream_response(*asked, **more):
                yield event
            return
        events = asyncio.Queue[Any]()
        request = _Request(self.model, _asked(*asked, **more).arguments, events.put_nowait)
        task = asyncio.create_task(request.made(self._retry, streams=True))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            answer = await task
        finally:
            if task.cancel():  # the stream was closed
                await asyncio.wait({task})
        usage = ResponseUsage.model_construct(**vars(answer.usage)) if answer.usage.requests else None
        told: Any = {"id": answer.response_id, "object": "response", "output": answer.output, "usage": usage}
        response = Response.model_construct(**told, created_at=0, model="", tools=[])
        last: Any = {"response": response, "sequence_number": 0, "type": "response.completed"}
        yield ResponseCompletedEvent.model_construct(**last)


@dataclass
class _Request:
    """One request to a model. `show` gets the events of its stream, but not the last one, which has the answer."""

    model: Model
    asked: dict[str, Any]
    show: Callable[[Any], None] = lambda event: None

    async def made(self, retry: Retry | None, *, streams: bool) -> agents.ModelResponse:
        known = {name: each for name, each in self.asked.items() if each is not None and name != "tracing"}
        schema, settings = known.pop("output_schema", None), known.pop("model_settings")
        is_text = schema is None or schema.is_plain_text()
        request = {
            **identity(known),
            "settings": identity(settings, "agents", _UNSEEN),
            "tools": [_seen(each) for each in known["tools"]],
            "handoffs": [[each.tool_name, each.tool_description, each.input_json_schema] for each in known["handoffs"]],
            "output": None if is_text else schema.json_schema(),
        }
        made: Any = step(name="model.request", retry=retry)(self.plain)
        if streams:  # only text can be continued
            kept: Any = "continue" if is_text else "restart"
            made = step(name="model.streamed_request", retry=retry, on_partial=kept)(self.streamed)
        name = str(getattr(self.model, "model", type(self.model).__qualname__))
        answer = await made(**clean({"model": name, "request": request}))
        return _answers.validate_python({**answer, "usage": deserialize_usage(answer["usage"])})

    async def plain(self, **arguments: Any) -> Any:
        return self._kept(await self.model.get_response(**self.asked))

    async def streamed(self, out: Partial, /, **arguments: Any) -> Any:
        asked, done, response = self.asked, list[Any](), None
        if begun := out.recovered:
            asked_for = agents.ItemHelpers.input_to_new_input_list(asked["input"])
            asked = {**asked, "input": [*asked_for, *out.continuation]}
        async for event in self.model.stream_response(**asked):
            if event.type == "response.completed":
                response = event.response
                continue
            if event.type in ("response.failed", "response.incomplete", "response.error", "error"):
                told = to_jsonable_python(event, exclude_none=True, fallback=str)
                raise agents.ModelBehaviorError(f"the answer of the model has ended early: {told}")
            if event.type == "response.output_text.delta":
                await out.write(clean(event.delta))
            elif event.type == "response.output_item.done":
                done.append(event.item)
            self.show(event)
        if response is None:
            raise agents.ModelBehaviorError("the stream of the model has ended without an answer")
        counts = {name: getattr(response.usage, name) for name in _USAGE} if response.usage else {"requests": 0}
        usage, id = agents.Usage(**{"requests": 1, **counts}), getattr(response, "_request_id", None)
        answer = self._kept(agents.ModelResponse(response.output or done, usage, response.id, id))
        if begun:
            parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
            if not (texts := [part for part in parts if part["type"] == "output_text"]):
                texts = [{"type": "output_text", "text": "", "annotations": []}]
                item = {"type": "message", "id": FAKE_RESPONSES_ID, "role": "assistant", "status": "completed"}
                answer["output"].insert(0, {**item, "content": texts})
            texts[0]["text"] = begun + texts[0]["text"]
        return answer

    def _kept(self, answer: agents.ModelResponse) -> Any:
        if (run := Run.current()) and answer.usage.total_tokens:
            used = answer.usage
            run.spend(tokens=used.total_tokens, output_tokens=min(used.output_tokens, used.total_tokens))
        return clean(_answers.dump_python(answer, mode="json", exclude_unset=True))


def _seen(tool: Any) -> Any:
    """What a model sees of a tool."""
    if isinstance(tool, agents.FunctionTool):
        return [tool.name, tool.description, tool.params_json_schema]
    if isinstance(tool, agents.HostedMCPTool):
        return [tool.name, {name: each for name, each in tool.tool_config.items() if name not in _UNSEEN}]
    return [type(tool).__name__, identity(tool)]
