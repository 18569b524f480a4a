"""A provider on a free loopback port that speaks the wire formats of OpenAI and Anthropic, streamed or not, and counts
what it is asked for. Its answers are made of the prompt, so that two answers to one prompt can be told apart."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

PROMPT_TOKENS = 100


class Provider:
    """`tokens` of each answer, `pause` seconds between two. An answer waits at token `holds_at` until `go` is set."""

    def __init__(self, tokens: int = 50, pause: float = 0.0, holds_at: int | None = None):
        self.tokens, self.pause, self.holds_at = tokens, pause, holds_at
        self.asked: list[str] = []  # the prompts, in the order in which they came
        self.written = 0  # tokens
        self.cut = 0  # answers that their client has not waited for
        self.headers: list[dict[str, str]] = []
        self.fails: list[int] = []  # the statuses of the next answers, before there are good ones
        self.held = threading.Event()  # an answer waits
        self.stopped = 0  # so many have waited
        self.go = threading.Event()
        self.gzips = False
        self.breaks_at: int | None = None  # the token at which the next answer breaks off
        self.padding = 0  # bytes that each token of a stream has more
        self.fetched: list[str] = []  # answers in background mode, by id
        self.fetched_with: list[str] = []  # the query of each
        self.forgets = False  # these
        self.tears: list[int] = []  # the events in whose middle the next connections of these break
        self.ends_early: list[int] = []  # the events before which they end as if that were all
        self.refuses: list[int] = []  # the statuses of the next of these, before there are good ones
        self.wait_ms = 10  # that these ask for
        self.cancelled: list[str] = []  # these, by id
        self._background: dict[str, _Background] = {}
        self.port = 0

    @property
    def is_idle(self) -> bool:
        """No answer in background mode is being written."""
        return all(each.task is not None and each.task.done() for each in self._background.values())

    @property
    def repeated(self) -> int:
        """Requests that were made again."""
        return sum(count - 1 for count in Counter(self.asked).values())

    def words(self, prompt: str, number: int) -> list[str]:
        """The answer to the `number`th request with this prompt, token by token."""
        return [f"{prompt[:20]}/{number}/{at} " for at in range(self.tokens)]

    def answer(self, prompt: str, number: int = 1) -> str:
        return "".join(self.words(prompt, number))

    @contextmanager
    def running(self) -> Iterator[Provider]:
        loop = asyncio.new_event_loop()
        ready, stop = threading.Event(), asyncio.Event()

        async def serve() -> None:
            app = web.Application(client_max_size=64 << 20)
            app.router.add_post("/v1/chat/completions", self._openai)
            app.router.add_post("/v1/responses", self._responses)
            app.router.add_get("/v1/responses/{id}", self._fetched)
            app.router.add_post("/v1/responses/{id}/cancel", self._cancelled)
            app.router.add_post("/v1/messages", self._anthropic)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            ready.set()
            await stop.wait()
            self.go.set()
            await runner.cleanup()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            self.go.set()
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead SDKs to it."""
        return {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.port}/v1",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.port}",
            "OPENAI_API_KEY": "sk-test-key",
            "ANTHROPIC_API_KEY": "sk-ant-test-key",
        }

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": self.tokens}
        usage["total_tokens"] = PROMPT_TOKENS + self.tokens
        base = {"id": "c1", "created": 1, "model": body["model"]}

        def chunk(text: str) -> str:
            choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
            return _event({**base, "object": "chat.completion.chunk", "choices": [choice]})

        last = _event({**base, "object": "chat.completion.chunk", "choices": [], "usage": usage}) + "data: [DONE]\n\n"

        def whole(text: str) -> dict[str, Any]:
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return {**base, "object": "chat.completion", "choices": [choice], "usage": usage}

        return await self._say(request, body, body["messages"], "", chunk, last, whole)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body.get("background"):
            return await self._in_background(request, body)
        usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": self.tokens}
        usage["total_tokens"] = PROMPT_TOKENS + self.tokens

        def whole(text: str) -> dict[str, Any]:
            content = [{"type": "output_text", "text": text, "annotations": []}]
            item = {"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": content}
            facts = {"id": "r1", "object": "response", "created_at": 1, "status": "completed", "model": body["model"]}
            more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
            return {**facts, **more, "output": [item], "usage": usage}

        def chunk(text: str) -> str:
            return _event({"type": "response.output_text.delta", "delta": text, "item_id": "m1"})

        last = _event({"type": "response.completed", "response": whole("")})
        prompt = [{"content": body["input"]}]
        return await self._say(request, body, prompt, "", chunk, last, whole)

    async def _in_background(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """It goes on without its client."""
        self.asked.append(body["input"])
        made = _Background(f"resp_{len(self.asked)}", body["model"])
        self._background[made.id] = made
        made.task = asyncio.create_task(self._write(made, self.words(body["input"], self.asked.count(body["input"]))))
        if body.get("stream"):
            return await self._told(request, made, -1)
        return web.json_response(made.response())

    async def _write(self, made: _Background, words: list[str]) -> None:
        for at, word in enumerate(words):
            await self._wait(at)
            self.written += 1
            made.text += word
            made.add({"type": "response.output_text.delta", "delta": word, "item_id": "m1"})
        usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": self.tokens}
        made.usage = {**usage, "total_tokens": PROMPT_TOKENS + self.tokens}
        made.add({"type": "response.completed", "response": made.response()})

    async def _fetched(self, request: web.Request) -> web.StreamResponse:
        id = request.match_info["id"]
        self.fetched.append(id)
        self.fetched_with.append(request.query_string)
        if self.refuses:
            error = {"error": {"message": "not now", "type": "overloaded"}}
            headers = {"retry-after-ms": f"{self.wait_ms}"}
            return web.json_response(error, status=self.refuses.pop(0), headers=headers)
        if self.forgets or id not in self._background:
            return web.json_response({"error": {"message": "there is none", "type": "not_found"}}, status=404)
        made = self._background[id]
        if request.query.get("stream") != "true":
            return web.json_response(made.response())
        return await self._told(request, made, int(request.query["starting_after"]))

    async def _cancelled(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("authorization") != "Bearer sk-test-key":
            return web.json_response({"error": {"message": "who are you?", "type": "auth"}}, status=401)
        made = self._background[request.match_info["id"]]
        self.cancelled.append(made.id)
        if made.task is not None:
            made.task.cancel()
        return web.json_response(made.response())

    async def _told(self, request: web.Request, made: _Background, after: int) -> web.StreamResponse:
        """Its events behind one number, as they come."""
        response, at = web.StreamResponse(headers={"content-type": "text/event-stream"}), after + 1
        await response.prepare(request)
        while at < len(made.events) or made.usage is None:
            if at < len(made.events) and [at] == self.ends_early[:1]:
                self.ends_early.pop(0)
                break
            if at < len(made.events):
                event = made.events[at].encode()
                if [at] == self.tears[:1] and request.transport is not None:
                    self.tears.pop(0)
                    await response.write(event[: len(event) // 2])
                    request.transport.abort()
                    raise ConnectionAbortedError
                await response.write(event)
                at += 1
            else:
                await asyncio.sleep(0.005)
        await response.write_eof()
        return response

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        base = {"id": "m1", "type": "message", "role": "assistant", "model": body["model"], "stop_reason": None}
        first = {"input_tokens": PROMPT_TOKENS, "output_tokens": 1}
        usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": self.tokens}
        start = {"type": "message_start", "message": {**base, "stop_sequence": None, "content": [], "usage": first}}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}}
        ends = [{"type": "content_block_stop", "index": 0}, {**delta, "usage": {"output_tokens": self.tokens}}]
        last = "".join(_event(each, str(each["type"])) for each in [*ends, {"type": "message_stop"}])

        def chunk(text: str) -> str:
            words = {"type": "text_delta", "text": text}
            return _event({"type": "content_block_delta", "index": 0, "delta": words}, "content_block_delta")

        def whole(text: str) -> dict[str, Any]:
            content = [{"type": "text", "text": text}]
            return {**base, "stop_reason": "end_turn", "stop_sequence": None, "content": content, "usage": usage}

        begin = _event(start, "message_start") + _event(block, "content_block_start")
        return await self._say(request, body, body["messages"], begin, chunk, last, whole)

    async def _say(
        self,
        request: web.Request,
        body: dict[str, Any],
        messages: list[dict[str, Any]],
        begin: str,
        chunk: Callable[[str], str],
        last: str,
        whole: Callable[[str], dict[str, Any]],
    ) -> web.StreamResponse:
        prompt = str(messages[-1]["content"])
        self.headers.append(dict(request.headers))
        if self.fails:
            error = {"error": {"message": "not now", "type": "overloaded"}}
            return web.json_response(error, status=self.fails.pop(0), headers={"retry-after-ms": "10"})
        self.asked.append(prompt)
        words = self.words(prompt, self.asked.count(prompt))
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-request-id": "r1"})
        if not body.get("stream"):
            response = web.StreamResponse(headers={"content-type": "application/json", "x-request-id": "r1"})
        if self.gzips:
            response.enable_compression(web.ContentCoding.gzip)
        try:
            if body.get("stream"):
                await response.prepare(request)
                await response.write(begin.encode())
            for at, word in enumerate(words):
                await self._wait(at)
                if at == self.breaks_at and request.transport is not None:
                    self.breaks_at = None
                    request.transport.abort()
                    raise ConnectionAbortedError
                self.written += 1
                if body.get("stream"):
                    await response.write(chunk(word).encode() + self._comment)
            if body.get("stream"):
                await response.write(last.encode())
            else:
                await response.prepare(request)
                await response.write(json.dumps(whole("".join(words))).encode())
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            self.cut += 1
            raise
        return response

    @property
    def _comment(self) -> bytes:
        return b": " + b"x" * self.padding + b"\n\n" if self.padding else b""

    async def _wait(self, at: int) -> None:
        if at == self.holds_at and not self.go.is_set():
            self.stopped += 1
            self.held.set()
            while not self.go.is_set():  # noqa: ASYNC110  # another thread sets it
                await asyncio.sleep(0.005)
        if self.pause:
            await asyncio.sleep(self.pause)


def _event(value: dict[str, Any], name: str = "") -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(value)}\n\n"


class _Background:
    """An answer in background mode."""

    def __init__(self, id: str, model: str):
        self.id, self.model, self.text = id, model, ""
        self.usage: dict[str, int] | None = None  # once it is whole
        self.events: list[str] = []
        self.task: asyncio.Task[None] | None = None
        self.add({"type": "response.created", "response": self.response()})

    def add(self, event: dict[str, Any]) -> None:
        self.events.append(_event({**event, "sequence_number": len(self.events)}, str(event["type"])))

    def response(self) -> dict[str, Any]:
        content = [{"type": "output_text", "text": self.text, "annotations": []}]
        item = {"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": content}
        facts = {"id": self.id, "object": "response", "created_at": 1, "model": self.model, "background": True}
        more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": self.usage}
        status = "in_progress" if self.usage is None else "completed"
        return {**facts, **more, "status": status, "output": [item] if self.usage else []}
