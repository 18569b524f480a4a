"""Pydantic AI over a workspace: `Agent(..., capabilities=[SatchelDurability()])`.

Inside a run each model request and each tool call of the agent is a step. It is identified by its content and not by
its place in an order, so tool calls may run in parallel, and a changed prompt is asked again. Outside a run the agent
is an ordinary one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from jsonschema import Draft202012Validator

from satchel import Key, Partial, Retry, Run, clean, effect, step
from satchel.errors import NotSerializable

try:
    import pydantic_ai as ai
    from pydantic_ai import durable_exec as durable
    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.capabilities import WrapRunHandler
    from pydantic_ai.models import Model
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.tools import AgentDepsT
    from pydantic_core import ValidationError, to_jsonable_python
except ImportError as error:
    raise ImportError(f"{__name__} needs pydantic-ai 2.68 or newer: pip install 'satchel[pydantic-ai]'") from error

__all__ = ["SatchelDurability", "as_effect", "idempotency_key"]

_UNSEEN = {"timestamp", "run_id", "conversation_id", "metadata"}
"""Fields of Pydantic AI's messages and tools that no model sees."""


def as_effect(
    *,
    verify: Callable[..., Any] | None = None,
    not_done: tuple[type[BaseException], ...] = (),
    idempotent: bool = False,
    retry: Retry | None = None,
) -> dict[str, Any]:
    """Metadata of a tool that changes the outside world: `@agent.tool(metadata=as_effect(...))`. Takes what
    `satchel.effect` takes. `verify` gets the arguments of the tool, without the `RunContext`, and returns its result.
    """
    return {"satchel": effect(verify=verify, not_done=not_done, idempotent=idempotent, retry=retry)}


def idempotency_key() -> str:
    """The idempotency key of the effect whose tool calls this, the same at every attempt."""
    if (key := _call.get(_Call()).key) is None:
        raise RuntimeError("idempotency_key() was called outside a tool with `metadata=as_effect(...)` of a run")
    return key


class _Codec:
    """JSON without what no record can hold. Arguments for a tool are kept as text then, so that the call can fail."""

    load = durable.JSON_CODEC.load

    def dump(self, tp: Any, value: Any) -> Any:
        for part in value.tool_calls if isinstance(value, ai.ModelResponse) else ():
            if not isinstance(part.args, str) and clean(part.args) is not part.args:
                part.args = json.dumps(part.args)
        return clean(durable.JSON_CODEC.dump(tp, value))


class SatchelDurability(durable.BaseDurabilityCapability[AgentDepsT]):
    """Makes an agent of Pydantic AI a durable part of a run.

    `models`, `event_stream_handler` and `name` are those of every durability capability of Pydantic AI. `retry` is for
    requests to a model. With `stream=True` every answer is streamed, so that it is in partials/ while it arrives.
    `wait_for` is how many seconds the process stays for an approval.
    """

    engine_spec = durable.DurabilityEngineSpec(
        engine_name="Satchel",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=_Codec(),
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_config_key="satchel",
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        retry: Retry | None = Retry(attempts=6, first=1.0, longest=60.0, on=(ai.ModelAPIError,)),  # noqa: B008
        stream: bool = False,
        wait_for: float = 10.0,
    ) -> None:
        super().__init__(models=models, event_stream_handler=_writing(event_stream_handler), name=name)
        self._has_handler, self._stream = event_stream_handler is not None, stream
        self._retry, self._wait_for = retry, wait_for

    @property
    def in_durable_context(self) -> bool:
        return Run.current() is not None

    def get_durable_operation_backend(self) -> durable.DurableOperationBackend[Any]:
        return _Backend(self.name, self._retry)

    async def wrap_run(self, ctx: ai.RunContext[AgentDepsT], *, handler: WrapRunHandler) -> ai.AgentRunResult[Any]:
        with durable.replay_scope():  # no second span for what is answered from the record
            return await super().wrap_run(ctx, handler=handler)

    @property
    def has_wrap_run_event_stream(self) -> bool:
        return self._has_handler or (self._stream and self.in_durable_context)

    def wrap_run_event_stream(
        self, ctx: ai.RunContext[AgentDepsT], *, stream: AsyncIterable[ai.AgentStreamEvent]
    ) -> AsyncIterable[ai.AgentStreamEvent]:
        return super().wrap_run_event_stream(ctx, stream=stream) if self._has_handler else stream

    def get_wrapper_model(self, model: Model) -> Model | None:
        out = _call.get(_Call()).out
        return _Continuing(model) if out and out.recovered else None

    async def handle_deferred_tool_calls(
        self, ctx: ai.RunContext[AgentDepsT], *, requests: ai.DeferredToolRequests
    ) -> ai.DeferredToolResults | None:
        """Ask people about the calls that need approval. Calls that are executed elsewhere are left to the caller."""
        if (run := Run.current()) is None or not requests.approvals:
            return None
        calls = {call.tool_call_id: call for call in requests.approvals}
        asked = [self._ask(run, ctx, call, requests.metadata.get(id)) for id, call in calls.items()]
        said = dict(zip(calls, await asyncio.gather(*asked), strict=True))
        return requests.build_results(
            approvals={id: approval for id, (approval, _, _) in said.items()},
            answered_by={id: by for id, (_, by, _) in said.items()},
            metadata={id: {"satchel": told} for id, (_, _, told) in said.items() if told},
        )

    async def _ask(
        self, run: Run[Any], ctx: ai.RunContext[AgentDepsT], call: ai.ToolCallPart, metadata: Any
    ) -> tuple[ai.ToolApproved | ai.ToolDenied, str, str]:
        """What a person says, who that is, and what the model is told of it. Asks again if the validators of the tool
        make something else of changed arguments, or refuse them, so that what a person has approved is what runs."""
        context, changed, approved, shown = metadata, dict[str, Any](), None, None
        manager: Any = ctx.tool_manager
        schema: Any = getattr(manager.get_tool_def(call.tool_name), "parameters_json_schema", True)
        while True:
            changing = replace(call, args={**call.args_as_dict(), **changed}) if changed else call
            try:
                checked = await manager.validate_tool_call(changing, approved=True, wrap_validation_errors=False)
                shown = clean(to_jsonable_python(checked.validated_args, bytes_mode="base64", fallback=str))
            except (ValidationError, ai.ModelRetry) as error:
                if approved is None:
                    raise
                changed, approved, context = {}, None, {**(metadata or {}), "refused": str(error)}
                continue
            if shown != approved:
                kind = schema if Draft202012Validator(schema).is_valid(shown) else None
                tool = _step_name(self.name, checked.tool.toolset.id if checked.tool else None, call.tool_name)
                asked: dict[str, Any] = {"arguments": shown, "schema": kind, "tool": tool, "context": context}
                answer = await run.ask(f"May {self.name} call {call.tool_name}?", **asked, wait_for=self._wait_for)
                approved = answer.arguments
                if answer == "deny":
                    return ai.ToolDenied(f"A person has denied this call. {answer.note}".strip()), answer.by, ""
                changed |= answer.changed
                if answer.changed:
                    continue
            if not changed:
                return ai.ToolApproved(), answer.by, ""
            told = f"A person has approved other arguments for {call.tool_name}: {json.dumps(changed)}. {answer.note}"
            return ai.ToolApproved(override_args=changing.args_as_dict()), answer.by, told.strip()

    async def after_tool_execute(self, ctx: ai.RunContext[AgentDepsT], *, result: Any, **call: Any) -> Any:
        result = await super().after_tool_execute(ctx, result=result, **call)
        if not (told := (ctx.tool_call_metadata or {}).get("satchel")):
            return result
        result = result if isinstance(result, ai.ToolReturn) else ai.ToolReturn(result)
        more = [result.content] if isinstance(result.content, str) else result.content or ()
        return replace(result, content=[*more, told])


class _Backend(durable.JournalCallableOperationBackend[Any]):
    """Performs each operation as a step or effect of the current run: `config` is `step` or `effect` with arguments."""

    def __init__(self, agent: str, retry: Retry | None):
        config = durable.RoleBasedOperationConfig(
            model=step(retry=retry), event=step, capability=step, tool=step, resolve_tool=_declared
        )
        super().__init__(agent_name=agent, config=config)
        self._agent = agent

    async def execute(
        self,
        *,
        operation_id: durable.DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[Any, ...],
        config: Any,
    ) -> object:
        if isinstance(operation_id, durable.ToolsetValidateToolArgumentsId):
            config = step  # a validator changes nothing outside, also that of an effect
        call, is_effect = _Call(body), isinstance(config, type(effect))
        function: Callable[..., Awaitable[Any]] = call.effect if is_effect else call.plain
        match operation_id:
            case durable.ModelRequestId(model_name=model_name, streaming=streaming):
                model, *request, _ = map(_content, cache_key)
                arguments = clean({"model": [model, model_name], "request": request})
                function = call.stream if streaming else call.request
            case durable.ToolsetCallToolId(toolset_id=toolset):
                tool, arguments = cache_key[:2]
                name = _step_name(self._agent, toolset, tool)
            case durable.CapabilityOperationId("workspace", operation="call"):
                arguments = clean({"call": _content(cache_key[:-1])})  # the last is the id of this attempt
            case _:
                arguments = clean({"of": _content(cache_key)})
        try:
            result = await config(name=name)(function)(**arguments)
        except NotSerializable as error:
            if call.has_run or clean(given := _content(arguments)) == given:
                raise
            raise ai.ModelRetry(f"{error.what}: {error.why}. Call it with other arguments.") from error
        durable.record_durable_unit(executed=call.has_run)
        return _as_returned(result) if is_effect else result


@dataclass
class _Call:
    """The functions of one operation. The arguments identify it; its body knows them already."""

    body: Any = None
    key: Key | None = None
    out: Partial | None = None
    has_run: bool = False

    async def plain(self, **arguments: Any) -> Any:
        self.has_run, token = True, _call.set(self)
        try:
            return await self.body()
        finally:
            _call.reset(token)

    async def effect(self, key: Key, /, **arguments: Any) -> Any:
        self.key = key
        return await self.plain()

    async def request(self, **arguments: Any) -> Any:
        answer, run, usd = await self.plain(), Run.current(), 0.0
        response = durable.JSON_CODEC.load(ai.ModelResponse, answer)
        with suppress(LookupError, AssertionError):  # the price is not known
            usd = float(response.cost().total_price)
        if run and (response.usage.total_tokens or usd):
            run.spend(tokens=response.usage.total_tokens, usd=usd)
        return answer

    async def stream(self, out: Partial, /, **arguments: Any) -> Any:
        self.out = out
        answer = await self.request()
        if out.recovered:
            texts = [part for part in answer["parts"] if part["part_kind"] == "text"]
            if not texts:
                texts = answer["parts"][:0] = [{"content": "", "part_kind": "text"}]
            texts[0]["content"] = out.recovered + texts[0]["content"]
        return answer


_call: ContextVar[_Call] = ContextVar("_call")


def _declared(_: object, tool: object, name: str) -> Any:
    """The `satchel` metadata of a tool: from `as_effect`, or False for one that runs outside a step."""
    metadata = tool.tool_def.metadata if isinstance(tool, ai.ToolsetTool) else None
    unit = (metadata or {}).get("satchel", step)
    if unit is not False and not isinstance(unit, type(step) | type(effect)):
        raise TypeError(f"the metadata `satchel` of the tool {name} comes from `as_effect`, or is False: {unit!r}")
    return unit


def _step_name(agent: str | None, toolset: str | None, tool: str) -> str:
    return f"{agent}.{tool}" if toolset == "<agent>" else f"{agent}.{toolset}.{tool}"


def _as_returned(result: Any) -> Any:
    """The result of a tool as Pydantic AI records it. `verify` and people give what the tool itself returns."""
    with suppress(ValidationError):
        durable.JSON_CODEC.load(durable.CallToolResult, result)
        return result
    return {"result": result, "kind": "tool_return"}


def _content(value: Any) -> Any:
    """What identifies a call: what a model sees, without times, ids of this attempt and live objects. As JSON."""
    if isinstance(value, ai.RunContext | ai.ToolsetTool):
        return _content(value.messages if isinstance(value, ai.RunContext) else value.tool_def)
    if is_dataclass(value) and not isinstance(value, type):
        unseen = _UNSEEN if type(value).__module__.startswith("pydantic_ai") else ()
        found = {each.name: _content(getattr(value, each.name)) for each in fields(value) if each.name not in unseen}
        return {name: each for name, each in found.items() if each is not None}  # a later version may have more fields
    if isinstance(value, Mapping):
        return {str(key): _content(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [_content(each) for each in value]
        return items if isinstance(value, list | tuple) else sorted(items, key=repr)
    return to_jsonable_python(value, bytes_mode="base64", fallback=lambda other: type(other).__qualname__)


class _Continuing(WrapperModel):
    """Asks the model to continue an answer of which it gets the beginning."""

    @asynccontextmanager
    async def request_stream(self, messages: list[ai.ModelMessage], *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        out: Any = _call.get().out
        text = f"Your answer was cut off ({out.marker}). Continue with its next character. Repeat and explain nothing."
        said, asked = ai.ModelResponse([ai.TextPart(out.recovered)]), ai.ModelRequest([ai.UserPromptPart(text)])
        async with super().request_stream([*messages, said, asked], *args, **kwargs) as response:
            yield response


def _writing(handler: EventStreamHandler[AgentDepsT] | None) -> EventStreamHandler[AgentDepsT]:
    """`handler`, with the text of the answer written to the partial of its step first."""

    async def write(ctx: ai.RunContext[AgentDepsT], stream: AsyncIterable[ai.AgentStreamEvent]) -> None:
        async def written() -> AsyncIterator[ai.AgentStreamEvent]:
            out = _call.get(_Call()).out
            async for event in stream:
                match event:
                    case ai.PartStartEvent(part=ai.TextPart(content=text)) if out:
                        await out.write(clean(text))
                    case ai.PartDeltaEvent(delta=ai.TextPartDelta(content_delta=text)) if out:
                        await out.write(clean(text))
                yield event

        events = written()
        if handler is not None:
            await handler(ctx, events)
        async for _ in events:  # what the handler has left
            pass

    return write
