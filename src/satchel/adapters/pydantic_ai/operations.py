"""Each operation of an agent of Pydantic AI as a step or effect of the current run: what identifies the call, and what
its record keeps of the result, as JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass, replace
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, cast

import msgspec
import pydantic_ai as ai
from pydantic_ai import durable_exec as durable
from pydantic_core import ValidationError

from satchel import Key, Partial, Retry, Run, clean, effect, step
from satchel.adapters import identity
from satchel.errors import AgentError, NotSerializable


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
    if type(verify).__hash__ is None:  # an object with `__call__`, which `_unit` could not find again
        verify = partial(cast(Any, verify))
    return {"satchel": effect(verify=verify, not_done=not_done, idempotent=idempotent, retry=retry)}


def idempotency_key() -> str:
    """The idempotency key of the effect whose tool calls this, the same at every attempt."""
    if (key := current_call.get(Operation()).key) is None:
        raise RuntimeError("idempotency_key() was called outside a tool with `metadata=as_effect(...)` of a run")
    return key


class Backend(durable.JournalCallableOperationBackend[Any]):
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
        call = Operation(body)
        if isinstance(operation_id, durable.ToolsetValidateToolArgumentsId):
            config, call.deps = step, cache_key[2].deps  # a validator changes nothing outside, also that of an effect
        is_effect = isinstance(config, type(effect))
        function: Callable[..., Awaitable[Any]] = _effect if is_effect else perform_body
        match operation_id:
            case durable.ModelRequestId(model_name=model_name, streaming=streaming):
                model, messages, *options = cache_key[:-1]  # the last is the run context, which has the messages again
                of = digest([messages, *options])
                arguments = clean({"model": [model, model_name], "messages": len(messages), "of": of})
                function = _stream if streaming else _request
            case durable.ToolsetCallToolId(toolset_id=toolset):
                tool, arguments, ctx = cache_key[:3]
                name, call.deps = step_name(self._agent, toolset, tool), ctx.deps
            case durable.CapabilityOperationId("workspace", operation="call"):
                arguments = clean({"call": content(cache_key[:-1])})  # the last is the id of this attempt
            case _:
                arguments = clean({"of": content(cache_key)})
        perform = _unit(config, name, function)
        token = current_call.set(call)
        try:
            result = await perform(**arguments)
        except NotSerializable as error:
            given = {name: content(value) for name, value in arguments.items()}
            unfit = {name: fit for name, value in given.items() if (fit := kept(value)) is not value}
            if call.has_run or not unfit:
                raise
            if is_effect:
                raise ai.ModelRetry(f"{error.what}: {error.why}. Call it with other arguments.") from error
            result = await perform(**{**arguments, **unfit})
        finally:
            current_call.reset(token)
        if call.fault:
            raise call.fault
        durable.record_durable_unit(executed=call.has_run)
        return as_returned(result) if is_effect else result


@dataclass
class Operation:
    """One operation. The arguments of its step identify it; its body knows them already."""

    body: Any = None
    key: Key | None = None
    out: Partial | None = None
    deps: Any = None
    has_run: bool = False
    fault: AgentError | None = None  # of an effect that is on record


current_call: ContextVar[Operation] = ContextVar("current_call")


@lru_cache(maxsize=4096)
def _unit(config: Any, name: str, function: Callable[..., Awaitable[Any]]) -> Any:
    """The step or effect of one name. Its function performs the operation that is under way here."""
    return config(name=name)(function)


async def perform_body(**arguments: Any) -> Any:
    call = current_call.get()
    call.has_run, before = True, data_of(call.deps)
    result = await call.body()
    if data_of(call.deps) != before:
        why = "after a crash its result comes from the record, so that this change would be missing"
        remedy = 'return what the agent needs, or give the tool metadata={"satchel": False}'
        fault = AgentError("ctx.deps has changed while a tool ran", why=why, remedy=remedy)
        if call.key is None:
            raise fault
        call.fault = fault  # it has happened, which is more important
    return result


async def _effect(key: Key, /, **arguments: Any) -> Any:
    current_call.get().key = key
    return await perform_body()


async def _request(**arguments: Any) -> Any:
    answer, run, usd = await perform_body(), Run.current(), 0.0
    response = durable.JSON_CODEC.load(ai.ModelResponse, answer)
    with suppress(LookupError, AssertionError, ValueError):  # the price is not known
        usd = float(response.cost().total_price)
    if run and (response.usage.total_tokens or usd):
        used = response.usage
        run.spend(
            tokens=used.total_tokens,
            usd=usd,
            output_tokens=min(used.output_tokens, used.total_tokens),
            model=response.model_name or "",
        )
    return answer


async def _stream(out: Partial, /, **arguments: Any) -> Any:
    current_call.get().out = out
    answer = await _request()
    if out.recovered:
        texts = [part for part in answer["parts"] if part["part_kind"] == "text"]
        if not texts:
            texts = answer["parts"][:0] = [{"content": "", "part_kind": "text"}]
        texts[0]["content"] = out.recovered + texts[0]["content"]
    return answer


def _declared(_: object, tool: object, name: str) -> Any:
    """The `satchel` metadata of a tool: from `as_effect`, or False for one that runs outside a step."""
    metadata = tool.tool_def.metadata if isinstance(tool, ai.ToolsetTool) else None
    unit = (metadata or {}).get("satchel", step)
    if unit is not False and not isinstance(unit, type(step) | type(effect)):
        raise TypeError(f"the metadata `satchel` of the tool {name} comes from `as_effect`, or is False: {unit!r}")
    return unit


def step_name(agent: str | None, toolset: str | None, tool: str) -> str:
    return f"{agent}.{tool}" if toolset == "<agent>" else f"{agent}.{toolset}.{tool}"


_UNSEEN = frozenset({"timestamp", "run_id", "conversation_id", "metadata"})
"""Fields of Pydantic AI's messages and tools that no model sees."""

_JSON = "satchel:json"
"""The only key of an object that stands for a value which no record can hold. It has the JSON of the value, as text."""


def content(value: Any) -> Any:
    """What identifies a call, or a part of it. As JSON."""
    kind = type(value)
    if kind is list or kind is tuple:
        return [content(each) for each in value]
    if issubclass(kind, ai.RunContext | ai.ToolsetTool):
        value = value.messages if isinstance(value, ai.RunContext) else value.tool_def
    return identity(value, "pydantic_ai", _UNSEEN)


def digest(value: Any) -> str:
    """The same for a long value, in few characters."""
    found = content(value)
    try:
        data = msgspec.json.encode(found, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):  # what no record can hold
        data = json.dumps(found, sort_keys=True).encode()
    return blake2b(data, digest_size=16).hexdigest()


def data_of(deps: Any) -> Any:
    """The data in the dependencies of an agent, to compare. An object of another class counts by its class, and what
    contains itself is not compared."""
    with suppress(RecursionError, ValueError, TypeError):
        is_plain = hasattr(deps, "__dict__") and not is_dataclass(deps) and not hasattr(deps, "model_dump")
        return content(vars(deps) if is_plain else deps)
    return None


def kept(value: Any, *, mends: bool = False) -> Any:
    """JSON for a record, of which `opened` makes `value`: itself, or its text if it contains `NaN`, half of a character
    or too many levels. `mends`: half a character is replaced, because no request to a model could hold it."""
    is_like_one = _stands_for_another(value)  # a model or a tool has written it
    if clean(value) is value and not is_like_one:
        return value
    try:
        text = json.dumps(value, ensure_ascii=not mends)
    except (TypeError, ValueError, RecursionError):  # is no JSON, which is for others to say
        return value
    mended = json.loads(text := clean(text))
    return mended if clean(mended) is mended and not is_like_one else {_JSON: text}


def opened(value: Any) -> Any:
    return json.loads(value[_JSON]) if _stands_for_another(value) else value


def _stands_for_another(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {_JSON}


class MessageCodec:
    """JSON that a record can hold, for answers of models and results of tools, and back."""

    def dump(self, tp: Any, value: Any) -> Any:
        if isinstance(value, ai.ModelResponse):
            args = ((part, getattr(part, "args", None)) for part in value.parts)
            parts = [replace(part, args=kept(each)) if isinstance(each, dict) else part for part, each in args]
            value = replace(value, parts=parts)
        elif isinstance(result := getattr(value, "result", None), ai.ToolReturn):
            value = replace(value, result=replace(result, return_value=kept(result.return_value, mends=True)))
        elif (fit := kept(result, mends=True)) is not result:
            value = replace(value, result=fit)
        return clean(durable.JSON_CODEC.dump(tp, value))

    def load(self, tp: Any, payload: Any) -> Any:
        value = durable.JSON_CODEC.load(tp, payload)
        if isinstance(value, ai.ModelResponse):
            parts: list[Any] = [part for part in value.parts if isinstance(getattr(part, "args", None), dict)]
            for part in parts:
                part.args = opened(part.args)
        elif isinstance(result := getattr(value, "result", None), ai.ToolReturn):
            result.return_value = opened(result.return_value)
        elif _stands_for_another(result):
            value.result = opened(result)
        return value


def as_returned(result: Any) -> Any:
    """The result of a tool as Pydantic AI records it. `verify` and people give what the tool itself returns."""
    with suppress(ValidationError):
        durable.JSON_CODEC.load(durable.CallToolResult, result)
        return result
    return {"result": result, "kind": "tool_return"}
