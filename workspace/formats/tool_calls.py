"""Calls of tools and their results in a conversation: which belong together, whatever package has made the messages.

Known are the shapes of OpenAI (chat completions and responses), Anthropic and Pydantic AI. A message may be one of
them, the list of blocks in it, or several.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

_INSIDE = ("content", "parts")
"""Where a message keeps its blocks."""


class Mention(NamedTuple):
    """A message mentions a call: it makes it, or has its result."""

    what: Literal["call", "result"]
    id: str


def mentions(content: Any) -> Iterator[Mention]:
    """What a message says of calls, in order. What is inside a result is a tool's, and means nothing."""
    if isinstance(content, list):
        for each in content:
            yield from mentions(each)
    elif isinstance(content, dict):
        found = [Mention(what, id) for what, id in _of_block(content) if isinstance(id, str)]
        yield from found
        for name in () if found else _INSIDE:
            yield from mentions(content.get(name))


def _of_block(block: dict[str, Any]) -> list[tuple[Literal["call", "result"], Any]]:
    kind, part = str(block.get("type", "")), block.get("part_kind")
    if part is not None:  # Pydantic AI
        is_result = part == "tool-return" or (part == "retry-prompt" and block.get("tool_name"))
        id = block.get("tool_call_id")
        return [("call", id)] if part == "tool-call" else [("result", id)] if is_result else []
    if isinstance(calls := block.get("tool_calls"), list):  # chat completions
        return [("call", call.get("id")) for call in calls if isinstance(call, dict)]
    if "tool_call_id" in block:
        return [("result", block["tool_call_id"])]
    if kind.endswith("_call"):  # responses
        return [("call", block.get("call_id", block.get("id")))]
    if kind.endswith("_call_output"):
        return [("result", block.get("call_id", block.get("id")))]
    if kind.endswith("tool_use"):  # Anthropic
        return [("call", block.get("id"))]
    return [("result", block["tool_use_id"])] if "tool_use_id" in block else []


def is_only_results(content: Any) -> bool:
    """Whether a message says nothing but results of calls."""
    if isinstance(content, list):
        return bool(content) and all(map(is_only_results, content))
    if not isinstance(content, dict):
        return False
    found = [what for what, id in _of_block(content) if isinstance(id, str)]
    return "call" not in found if found else any(is_only_results(content.get(name)) for name in _INSIDE)
