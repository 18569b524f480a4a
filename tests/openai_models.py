"""Models for agents of the OpenAI Agents SDK that answer by a function of what they are asked, and the same as a server
that speaks the Responses and the Chat Completions API on a free loopback port."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agents import ModelResponse, Usage
from agents.items import ItemHelpers
from agents.models.interface import Model
from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent
from pydantic import TypeAdapter

Items = list[dict[str, Any]]
Answer = list[tuple[str, dict[str, Any]]] | str
"""The calls of tools that a model wants, or a text."""

_outputs: TypeAdapter[list[Any]] = TypeAdapter(list[ResponseOutputItem])
_event: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def outputs(items: Items) -> list[str]:
    """What the tools have returned."""
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


def called(items: Items) -> int:
    return sum(item.get("type") == "function_call" for item in items)


def begun(items: Items) -> str:
    """The beginning of an answer that was cut off, if this asks to continue it."""
    is_cut = len(items) > 1 and str(items[-1].get("content")).startswith("Your answer was cut off")
    return str(items[-2]["content"]) if is_cut else ""


def rounds(*turns: Answer) -> Callable[[Items], Answer]:
    """These answers one after the other, and then a text of what the tools have returned."""

    def answer(items: Items) -> Answer:
        made = called(items)
        for turn in turns:
            if made <= 0:
                return turn
            made -= len(turn)
        return json.dumps(outputs(items))

    return answer


def output_of(answer: Answer, items: Items) -> list[dict[str, Any]]:
    if isinstance(answer, str):
        text = {"type": "output_text", "text": answer.removeprefix(begun(items)), "annotations": []}
        return [{"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [text]}]
    at = called(items)
    return [
        {
            "type": "function_call",
            "id": f"f{at + n}",
            "call_id": f"c{at + n}",
            "name": name,
            "arguments": json.dumps(of),
        }
        for n, (name, of) in enumerate(answer)
    ]


def response_of(output: list[dict[str, Any]]) -> dict[str, Any]:
    counts = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    details = {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    told = {"id": "r1", "object": "response", "created_at": 0, "model": "m", "output": output, "tools": []}
    return {**told, "parallel_tool_calls": True, "tool_choice": "auto", "usage": {**counts, **details}}


def events_of(output: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The events of a stream: a text word by word, and calls of tools whole."""
    for place, item in enumerate(output):
        at = {"output_index": place, "sequence_number": 0, "item_id": item["id"]}
        for part in item.get("content", ()):
            for word in re.findall(r"\S+\s*", part["text"]):
                delta = {"type": "response.output_text.delta", "delta": word, "content_index": 0, "logprobs": []}
                yield {**at, **delta}
        yield {"type": "response.output_item.done", "item": item, "output_index": place, "sequence_number": 0}
    yield {"type": "response.completed", "response": response_of(output), "sequence_number": 0}


class Answering(Model):
    """A model that answers by a function. `tick` is called before each request and each event."""

    def __init__(self, answer: Callable[[Items], Answer], log: list[str] | None = None, tick: Any = lambda: None):
        self.answer, self.log, self.tick = answer, [] if log is None else log, tick
        self.asked: list[Items] = []

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        output = self._output(input)
        usage = Usage(requests=1, input_tokens=7, output_tokens=3, total_tokens=10)
        return ModelResponse(_outputs.validate_python(output), usage, "r1")

    async def stream_response(
        self, system_instructions: Any, input: Any, *rest: Any, **more: Any
    ) -> AsyncIterator[Any]:
        for event in events_of(self._output(input)):
            self.tick()
            await asyncio.sleep(0)
            yield _event.validate_python(event)

    def _output(self, input: Any) -> list[dict[str, Any]]:
        items: Any = ItemHelpers.input_to_new_input_list(input)
        self.log.append(f"model {called(items)}")
        self.asked.append(items)
        self.tick()
        return output_of(self.answer(items), items)


def items_of(messages: Items) -> Items:
    """Messages of the Chat Completions API, as items of the Responses API."""
    items: Items = []
    for message in messages:
        for call in message.get("tool_calls") or ():
            items.append({"type": "function_call", "call_id": call["id"], **call["function"]})
        if message["role"] == "tool":
            output = {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
            items.append(output)
        elif message.get("content"):
            items.append({"role": message["role"], "content": message["content"]})
    return items


def message_of(output: list[dict[str, Any]]) -> dict[str, Any]:
    text = "".join(part["text"] for item in output for part in item.get("content", ()))
    calls = [
        {
            "index": number,
            "id": item["call_id"],
            "type": "function",
            "function": {"name": item["name"], "arguments": item["arguments"]},
        }
        for number, item in enumerate(output)
        if item["type"] == "function_call"
    ]
    return {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}


COUNTS = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def completion_of(output: list[dict[str, Any]]) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": message_of(output)}
    told = {"id": "chat1", "object": "chat.completion", "created": 0, "model": "m"}
    return {**told, "choices": [choice], "usage": COUNTS}


def chunks_of(output: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    message = message_of(output)
    words = re.findall(r"\S+\s*", message["content"] or "")
    deltas = [{"role": "assistant", "content": word} for word in words] or [message]
    told = {"id": "chat1", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    for delta in deltas:
        yield {**told, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**told, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": COUNTS}


@contextmanager
def serving(answer: Callable[[Items], Answer], heard: Callable[[dict[str, Any]], Any]) -> Iterator[str]:
    """The base URL of a server that answers by `answer`. `heard` gets the body of each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            heard(body)
            if self.path.endswith("/chat/completions"):
                self.chat(body)
                return
            items: Any = ItemHelpers.input_to_new_input_list(body["input"])
            output = output_of(answer(items), items)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if body.get("stream") else "application/json")
            self.end_headers()
            if not body.get("stream"):
                self.wfile.write(json.dumps(Response.model_validate(response_of(output)).to_dict()).encode())
                return
            for event in events_of(output):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()

        def chat(self, body: dict[str, Any]) -> None:
            output = output_of(answer(items := items_of(body["messages"])), items)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if body.get("stream") else "application/json")
            self.end_headers()
            if not body.get("stream"):
                self.wfile.write(json.dumps(completion_of(output)).encode())
                return
            for chunk in chunks_of(output):
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
