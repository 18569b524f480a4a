"""The capability that makes an agent of Pydantic AI durable: its operations, its answers while they stream, its output
functions, and its approvals."""

from __future__ import annotations

import asyncio
import json
import typing
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial as bind
from inspect import isclass
from typing import Any

import pydantic_ai as ai
from pydantic_ai import durable_exec as durable
from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.capabilities import WrapOutputProcessHandler, WrapRunHandler
from pydantic_ai.exceptions import ToolRetryError
from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.output import OutputContext
from pydantic_ai.tools import AgentDepsT
from pydantic_core import ValidationError, to_jsonable_python

from satchel import Retry, Run, Step, clean, step
from satchel.adapters import ask_about
from satchel.errors import AgentError

from .operations import Backend, MessageCodec, Operation, content, current_call, kept, perform_body, step_name


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
        codec=MessageCodec(),
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
        return Backend(self.name, self._retry)

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

    async def wrap_output_process(
        self,
        ctx: ai.RunContext[AgentDepsT],
        *,
        output_context: OutputContext,
        output: Any,
        handler: WrapOutputProcessHandler,
    ) -> Any:
        """An output function is a step, if it is not one already or an effect. Its validators belong to it."""
        if not output_context.has_function or ctx.partial_output or not self.in_durable_context:
            return await handler(output)
        name, known = output_context.function_name, [*_functions(getattr(ctx.agent, "output_type", None))]
        functions = [each for each in known if name in (None, getattr(each, "__name__", None))]
        if functions and all(isinstance(each, Step) for each in functions):
            return await handler(output)

        async def perform(**arguments: Any) -> Any:
            try:
                result = await perform_body()
            except ToolRetryError as error:  # no record can hold it
                raise ai.ModelRetry(str(error.tool_retry.content)) from error
            if kind is Any and content(result) != result:
                what = f"the output function {name or ''} has returned a {type(result).__name__}".replace("  ", " ")
                why = "it would not come back as that from its record"
                remedy = "annotate what it returns, and give the function to Agent(...) and not to one run"
                raise AgentError(what, why=why, remedy=remedy)
            return result

        perform.__annotations__["return"] = kind = _returned(functions[0]) if len(functions) == 1 else Any
        token = current_call.set(Operation(bind(handler, output), deps=ctx.deps))
        try:
            unit: Any = step(name=f"{self.name}.output.{name or 'function'}")(perform)
            return await unit(**clean({"output": content(output)}))
        finally:
            current_call.reset(token)

    def get_wrapper_model(self, model: Model) -> Model | None:
        out = current_call.get(Operation()).out
        return _Continuing(model) if out and out.recovered else None

    async def handle_deferred_tool_calls(
        self, ctx: ai.RunContext[AgentDepsT], *, requests: ai.DeferredToolRequests
    ) -> ai.DeferredToolResults | None:
        """Ask people about the calls that need approval. Calls that are executed elsewhere are left to the caller."""
        if not self.in_durable_context or not requests.approvals:
            return None
        calls = {call.tool_call_id: call for call in requests.approvals}
        asked = [self._ask(ctx, call, requests.metadata.get(id)) for id, call in calls.items()]
        said = dict(zip(calls, await asyncio.gather(*asked), strict=True))
        return requests.build_results(
            approvals={id: approval for id, (approval, _, _) in said.items()},
            answered_by={id: by for id, (_, by, _) in said.items()},
            metadata={id: {"satchel": told} for id, (_, _, told) in said.items() if told},
        )

    async def _ask(
        self, ctx: ai.RunContext[AgentDepsT], call: ai.ToolCallPart, metadata: Any
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
                given = to_jsonable_python(checked.validated_args, bytes_mode="base64", fallback=str)
                shown = {name: kept(value) for name, value in given.items()}
            except (ValidationError, ai.ModelRetry) as error:
                if approved is None:
                    raise
                changed, approved, context = {}, None, {**(metadata or {}), "refused": str(error)}
                continue
            if shown != approved:
                said = await ask_about(
                    f"May {self.name} call {call.tool_name}?",
                    shown,
                    tool=step_name(self.name, checked.tool.toolset.id if checked.tool else None, call.tool_name),
                    schema=schema,
                    context=context,
                    wait_for=self._wait_for,
                )
                approved = said.arguments
                if said.refusal:
                    return ai.ToolDenied(said.refusal), said.by, ""
                changed |= said.changed
                if said.changed:
                    continue
            if not changed:
                return ai.ToolApproved(), said.by, ""
            told = f"A person has approved other arguments for {call.tool_name}: {json.dumps(changed)}. {said.note}"
            return ai.ToolApproved(override_args=changing.args_as_dict()), said.by, told.strip()

    async def after_tool_execute(self, ctx: ai.RunContext[AgentDepsT], *, result: Any, **call: Any) -> Any:
        result = await super().after_tool_execute(ctx, result=result, **call)
        if not (told := (ctx.tool_call_metadata or {}).get("satchel")):
            return result
        result = result if isinstance(result, ai.ToolReturn) else ai.ToolReturn(result)
        more = [result.content] if isinstance(result.content, str) else result.content or ()
        return replace(result, content=[*more, told])


def _functions(output: Any) -> Iterator[Callable[..., Any]]:
    """The functions in the output type of an agent."""
    if isinstance(output, list | tuple):
        for each in output:
            yield from _functions(each)
    elif isinstance(output, ai.ToolOutput | ai.NativeOutput | ai.PromptedOutput):
        yield from _functions(output.output if isinstance(output, ai.ToolOutput) else output.outputs)
    elif isinstance(output, ai.TextOutput):
        yield output.output_function
    elif callable(output) and not isclass(output):
        yield output


def _returned(function: Callable[..., Any]) -> Any:
    with suppress(NameError, TypeError):
        return typing.get_type_hints(function).get("return", Any)
    return Any


class _Continuing(WrapperModel):
    """Asks the model to continue an answer of which it gets the beginning."""

    @asynccontextmanager
    async def request_stream(self, messages: list[ai.ModelMessage], *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        out: Any = current_call.get().out
        text, prompt = (each["content"] for each in out.continuation)
        said, asked = ai.ModelResponse([ai.TextPart(text)]), ai.ModelRequest([ai.UserPromptPart(prompt)])
        async with super().request_stream([*messages, said, asked], *args, **kwargs) as response:
            yield response


def _writing(handler: EventStreamHandler[AgentDepsT] | None) -> EventStreamHandler[AgentDepsT]:
    """`handler`, with the text of the answer written to the partial of its step first."""

    async def write(ctx: ai.RunContext[AgentDepsT], stream: AsyncIterable[ai.AgentStreamEvent]) -> None:
        async def written() -> AsyncIterator[ai.AgentStreamEvent]:
            out = current_call.get(Operation()).out
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
