"""What a message of a conversation says, whatever package has made it: texts, thoughts, calls of tools and their
results, images. Known are the shapes of OpenAI (chat completions and responses), Anthropic, the Claude Agent SDK,
Pydantic AI and LangChain. What is none of them stays JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

PartKind = Literal["text", "thought", "call", "result", "image", "json"]

_MOST = 10_000
"""Parts of one message."""

_DEPTH = 8


class MessagePart(Struct, frozen=True):
    """A part of a message.

    text, thought   `text`
    call            a tool is called: its `name`, the `id` of the call, and `value`, its arguments
    result          `value` is what a tool has returned; `is_error`: it has failed
    image           `text` is its URL, also a `data:` one, or its bytes in base64
    json            `value`, of no known shape
    """

    kind: PartKind
    text: str = ""
    name: str = ""
    id: str = ""
    value: Any = None
    is_error: bool = False


def message_parts(content: Any) -> list[MessagePart]:
    """The parts of a message, in their order, as far as a page can show them."""
    found = list[MessagePart]()
    for part in _parts(content, 0):
        found.append(part)
        if len(found) == _MOST:
            break
    return found


def message_role(role: str, content: Any) -> str:
    """Who speaks. A message with a role says more than its row, whose role may be its type."""
    inner = [content.get(name) for name in ("message", "kwargs")] if isinstance(content, dict) else []
    for each in (content, *inner):
        if isinstance(each, dict) and isinstance(said := each.get("role") or _ROLES.get(str(each.get("type"))), str):
            return said
    return role or "row"


_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
"""By the type of a message of LangChain."""


def _parts(value: Any, depth: int) -> Iterator[MessagePart]:
    if isinstance(value, str):
        if value.strip():
            yield MessagePart("text", value)
    elif isinstance(value, list) and value and depth < _DEPTH and all(isinstance(each, str | dict) for each in value):
        for each in value:
            yield from _parts(each, depth + 1)
    elif isinstance(value, dict) and depth < _DEPTH:
        yield from _of_dict(value, depth)
    elif value is not None and value != []:
        yield MessagePart("json", value=value)


def _of_dict(value: dict[str, Any], depth: int) -> Iterator[MessagePart]:
    kind = str(value.get("part_kind") or value.get("type") or value.get("kind") or "")
    if (known := _BLOCKS.get(kind)) is not None and (part := known(value)) is not None:
        yield from _with_images(part)
    elif "tool_call_id" in value or "tool_use_id" in value or kind.endswith("_call_output"):
        yield from _with_images(_result(value))
    elif kind.endswith("_call") or kind in ("tool_use", "server_tool_use", "tool_call"):
        yield _call(value)
    elif (inner := next((name for name in _INSIDE if _holds(value, name, kind)), None)) is not None:
        yield from _parts(value[inner], depth + 1)
    elif "content" in value and ("role" in value or kind in _ROLES or kind == "user-prompt" or "tool_calls" in value):
        yield from _of_message(value, depth)
    elif isinstance(text := value.get("text"), str) and (not kind or "text" in kind):
        yield from _parts(text, depth)
    else:
        yield MessagePart("json", value=value)


_INSIDE = ("parts", "message", "data", "kwargs")
"""Where a message lies in what surrounds it: in Pydantic AI, in a transcript of the Claude Agent SDK, and in LangChain
as `message_to_dict` and as `dumpd` write it."""


def _holds(value: dict[str, Any], name: str, kind: str) -> bool:
    inner = value.get(name)
    if name == "parts":
        return isinstance(inner, list)
    return isinstance(inner, dict) and "content" in inner and (name == "message" or kind in (*_ROLES, "constructor"))


def _of_message(value: dict[str, Any], depth: int) -> Iterator[MessagePart]:
    """A message of OpenAI, Anthropic or LangChain."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(thought := value.get(name), str) and thought.strip():
            yield MessagePart("thought", thought)
    yield from _parts(value["content"], depth + 1)
    if isinstance(refusal := value.get("refusal"), str) and refusal:
        yield MessagePart("text", refusal)
    content = value["content"] if isinstance(value["content"], list) else []
    told = {each.get("id") for each in content if isinstance(each, dict)}  # LangChain has calls of Anthropic twice
    calls = value.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and (call.get("id") is None or call["id"] not in told):
            yield _call(call)


def _call(value: dict[str, Any]) -> MessagePart:
    function = value.get("function")
    of = function if isinstance(function, dict) else value
    name = of.get("name") or of.get("tool_name") or str(value.get("type", "")).removesuffix("_call") or "tool"
    names = ("arguments", "args", "input", "action", "queries", "code")
    given = next((of[each] for each in names if of.get(each) is not None), None)
    if given is None:
        rest = {key: each for key, each in value.items() if key not in ("type", "id", "call_id", "name", "status")}
        given = rest or {}
    id = value.get("call_id") or value.get("tool_call_id") or value.get("id")
    return MessagePart("call", name=str(name), id=_text(id), value=as_json(given))


def _result(value: dict[str, Any]) -> MessagePart:
    kind = str(value.get("part_kind") or value.get("type") or "")
    name = value.get("tool_name") or value.get("name") or ""
    given = next((value[each] for each in ("content", "output", "return_value") if each in value), None)
    is_error = bool(value.get("is_error")) or value.get("status") == "error" or kind == "retry-prompt"
    is_error = is_error or value.get("outcome") in ("failed", "retried")
    id = value.get("tool_call_id") or value.get("tool_use_id") or value.get("call_id") or value.get("id")
    return MessagePart("result", name=_text(name), id=_text(id), value=as_json(_plain(given)), is_error=is_error)


def _with_images(part: MessagePart) -> Iterator[MessagePart]:
    """A result of a tool, and then the images in it."""
    blocks = part.value if part.kind == "result" and isinstance(part.value, list) else []
    images = {id(each): found for each in blocks if isinstance(each, dict) and (found := _image_in(each))}
    if not images:
        yield part
        return
    rest = [each for each in blocks if id(each) not in images]
    yield replace(part, value=_plain(rest) if rest else "")
    yield from images.values()


def _image_in(block: dict[str, Any]) -> MessagePart | None:
    kind = str(block.get("type") or block.get("kind") or "")
    found = _BLOCKS[kind](block) if kind in _BLOCKS else None
    return found if found and found.kind == "image" else None


def _plain(given: Any) -> Any:
    """The text of a result that is a list of one text."""
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], dict):
        only = given[0]
        if only.get("type") in ("text", "output_text") and isinstance(only.get("text"), str):
            return only["text"]
    return given


def as_json(given: Any) -> Any:
    """The value that a text has as JSON, if it is an object or a list; else the text."""
    if isinstance(given, str) and given.lstrip()[:1] in ("{", "["):
        try:
            found = json.loads(given)
        except (ValueError, RecursionError):
            return given
        return found if isinstance(found, dict | list) else given
    return given


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# Blocks


def _texted(name: str, kind: PartKind = "text") -> Callable[[dict[str, Any]], MessagePart | None]:
    def part(value: dict[str, Any]) -> MessagePart | None:
        text = value.get(name)
        return MessagePart(kind, text) if isinstance(text, str) else None

    return part


def _reasoning(value: dict[str, Any]) -> MessagePart | None:
    """Of OpenAI: a list of texts, or nothing that can be read."""
    summary = value.get("summary") or value.get("content")
    texts = [each.get("text") for each in summary if isinstance(each, dict)] if isinstance(summary, list) else []
    texts = texts or [value.get("reasoning") or value.get("text")]
    return MessagePart("thought", "\n\n".join(each for each in texts if isinstance(each, str)))


def _pydantic(value: dict[str, Any]) -> MessagePart | None:
    """A part of Pydantic AI whose content is a text."""
    text, part = value.get("content"), value.get("part_kind")
    kind: PartKind = "thought" if part == "thinking" else "text"
    return MessagePart(kind, text) if isinstance(text, str) else None


def _retry(value: dict[str, Any]) -> MessagePart | None:
    return _result(value) if value.get("tool_name") else _pydantic(value)


def _image(value: dict[str, Any]) -> MessagePart | None:
    """An image, wherever its URL or its bytes are."""
    for names in _IMAGES:
        inner: Any = value
        for name in names:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, str) and inner:
            return MessagePart("image", inner)
    return None


_IMAGES = (
    ("image_url", "url"),  # OpenAI, chat
    ("image_url",),  # responses
    ("source", "data"),  # Anthropic
    ("source", "url"),
    ("base64",),  # LangChain
    ("data",),
    ("url",),
)


def _binary(value: dict[str, Any]) -> MessagePart | None:
    """Bytes of Pydantic AI, also in a file that a model has made."""
    of = value["content"] if isinstance(value.get("content"), dict) else value
    is_image = str(of.get("media_type", "")).startswith("image/")
    return _image(of) if is_image and isinstance(of.get("data"), str) else None


_BLOCKS: dict[str, Callable[[dict[str, Any]], MessagePart | None]] = {
    **dict.fromkeys(("input_text", "output_text"), _texted("text")),
    "text": lambda value: _texted("text")(value) or _pydantic(value),
    "refusal": _texted("refusal"),
    "thinking": lambda value: _texted("thinking", "thought")(value) or _pydantic(value),
    "reasoning": _reasoning,
    "image": _image,
    "image_url": _image,
    "image-url": _image,
    "input_image": _image,
    "binary": _binary,
    "file": _binary,
    **dict.fromkeys(("system-prompt", "user-prompt", "retry-feedback"), _pydantic),
    "retry-prompt": _retry,
    **dict.fromkeys(("tool-call", "builtin-tool-call"), _call),
    **dict.fromkeys(("tool-return", "builtin-tool-return"), _result),
}
"""By the type of a block."""
