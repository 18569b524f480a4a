"""Values of Pydantic AI as JSON: what identifies a call, and what a record keeps of its result."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import is_dataclass, replace
from hashlib import blake2b
from typing import Any

import msgspec
import pydantic_ai as ai
from pydantic_ai import durable_exec as durable
from pydantic_core import ValidationError

from satchel import clean
from satchel.adapters import identity

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
