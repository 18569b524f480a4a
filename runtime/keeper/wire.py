"""What the answer of a provider says, in the wire formats of OpenAI (Chat Completions and Responses) and Anthropic: its
text, its model, its tokens. Pure, and lenient: of an answer in another format, or of a torn one, it tells what it can.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

_WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


class AnswerFacts(Struct):
    """An answer in brief. `tokens` are all of it, those of the prompt included; `output` those that the model has
    written. `failed`: the provider has sent an error where the answer should be, or in the middle of it."""

    text: str = ""
    id: str = ""  # of an answer in background mode
    model: str = ""
    tokens: int = 0
    output: int = 0
    cached: int = 0  # tokens of the prompt that the provider had read before
    failed: bool = False


class InBackground(Struct):
    """An answer, perhaps torn, that its provider writes to its end, read or not: OpenAI's Responses with `background`
    and `stream`. It is fetched by its `id`, from the event after the one with the number `after`. `end` is the place
    behind that. `is_over`: it was the last."""

    id: str
    after: int
    end: int
    is_over: bool


def in_background(kind: str, body: bytes) -> InBackground | None:
    """None if its provider does not write it to its end."""
    if not is_streamed(kind):
        return None
    id, after, is_over = "", -1, False
    for value in _events(body):
        response = _map(value.get("response"))
        id = _text(response.get("id")) if response.get("background") is True else id
        number = _count(value, "sequence_number")
        after = after if number is None else max(after, number)
        has_ended = _text(response.get("status")) not in ("", "queued", "in_progress")
        is_over = is_over or has_ended or value.get("type") == "error"
    return InBackground(id, after, end_of_events(body), is_over) if id and after >= 0 else None


def wanted(request: bytes) -> list[str]:
    """What a request in background mode has asked its events to contain, in the form in which their rest is asked for:
    parameters of a query."""
    value = _json(request) or {}
    names = value.get("include")
    found = [f"include[]={quote(each)}" for each in names if isinstance(each, str)] if isinstance(names, list) else []
    padded = _map(value.get("stream_options")).get("include_obfuscation")
    return [*found, f"include_obfuscation={str(padded).lower()}"] if isinstance(padded, bool) else found


def end_of_events(body: bytes) -> int:
    """The place behind the last event that is whole."""
    return max((body.rfind(each) + len(each) for each in (b"\n\n", b"\r\n\r\n") if each in body), default=0)


def plain(body: bytes, encoding: str) -> bytes | None:
    """A body without its `content-encoding`, of a torn one what there is. None for an encoding that is not known
    here."""
    for name in reversed([each.strip().lower() for each in encoding.split(",") if each.strip()]):
        if name == "identity":
            continue
        if name not in _WINDOWS:
            return None
        try:
            body = zlib.decompressobj(_WINDOWS[name]).decompress(body)
        except zlib.error:
            return None
    return body


def said(kind: str, body: bytes) -> AnswerFacts:
    """What a body without encoding says. `kind` is its content type."""
    found = AnswerFacts()
    for value in _events(body) if is_streamed(kind) else _whole(body):
        _hear(found, value)
    return found


def is_streamed(kind: str) -> bool:
    return kind.partition(";")[0].strip().lower() == "text/event-stream"


def _whole(body: bytes) -> Iterator[Mapping[str, Any]]:
    value = _json(body)
    if value is not None:
        yield value


def _events(body: bytes) -> Iterator[Mapping[str, Any]]:
    """The data of server-sent events. A torn event at the end is left out."""
    whole, _, _ = body.replace(b"\r\n", b"\n").rpartition(b"\n\n")
    for event in whole.split(b"\n\n"):
        lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
        value = _json(b"\n".join(lines))
        if value is not None:
            yield value


def _json(data: bytes) -> Mapping[str, Any] | None:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _hear(found: AnswerFacts, value: Mapping[str, Any]) -> None:
    """Take in an event of a stream, or a whole answer."""
    kind = value.get("type")
    found.failed = found.failed or kind in ("error", "response.failed") or bool(value.get("error"))
    match kind:
        case "content_block_delta":  # Anthropic
            found.text += _text(_map(value.get("delta")).get("text"))
        case "message_start":
            _facts(found, _map(value.get("message")))
        case "response.output_text.delta":  # OpenAI's Responses
            found.text += _text(value.get("delta"))
        case "response.created" | "response.completed" | "response.incomplete" | "response.failed":
            _facts(found, _map(value.get("response")))
        case _:
            _facts(found, value)
            found.text += _written(value)


def _written(value: Mapping[str, Any]) -> str:
    """The text of a whole answer, or of a chunk of Chat Completions."""
    parts = []
    for choice in _maps(value.get("choices"))[:1]:
        parts.append(_text(_map(choice.get("delta") or choice.get("message")).get("content")))
    for item in _maps(value.get("output")):
        parts += [_text(part.get("text")) for part in _maps(item.get("content")) if part.get("type") == "output_text"]
    if value.get("type") == "message":
        parts += [_text(block.get("text")) for block in _maps(value.get("content"))]
    return "".join(parts)


def _facts(found: AnswerFacts, value: Mapping[str, Any]) -> None:
    found.model = _text(value.get("model")) or found.model
    found.id = _text(value.get("id")) if value.get("background") is True else found.id
    usage = _map(value.get("usage"))
    if not usage:
        return
    fresh = _count(usage, "prompt_tokens", "input_tokens")
    read, made = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")  # Anthropic
    details = _map(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    prompt = (fresh or 0) + (read or 0) + (made or 0) if fresh is not None else found.tokens - found.output
    output = _count(usage, "completion_tokens", "output_tokens")
    found.output = output if output is not None else found.output
    found.tokens = prompt + found.output
    found.cached = read or _count(details, "cached_tokens") or found.cached


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _maps(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
