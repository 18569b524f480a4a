"""A server on loopback that speaks OpenAI's chat completions over real HTTP, as a model that never misspells.

It answers each document with `ANSWER`, and goes on exactly where an answer was cut off. What it is to do wrong is told
in `faults`: one for each request, `None` for none.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "The document {name} says what it says; it goes on for a while, gives its reasons, and comes to an end."


def answer_for(name: str) -> str:
    return ANSWER.format(name=name)


@dataclass
class Request:
    at: float
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        return [message["content"] for message in self.body["messages"]]

    @property
    def name(self) -> str:
        """Which document is asked about."""
        found = re.search(r"<document name='(.*?)'>", self.texts[0])
        assert found
        return found[1]

    @property
    def so_far(self) -> str:
        return "".join(m["content"] for m in self.body["messages"] if m["role"] == "assistant")


Fault = Callable[["_Handler", Request], None]


@dataclass
class Endpoint:
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    faults: deque[Fault | None] = field(default_factory=deque)

    @property
    def environment(self) -> dict[str, str]:
        # A proxy of the machine must not be asked for what is on it.
        return {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": "a-key", "NO_PROXY": "127.0.0.1"}

    def asked(self) -> list[str]:
        return [request.name for request in self.requests]


@contextmanager
def serving() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.endpoint = endpoint
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    endpoint: Endpoint
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no fault of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        endpoint = self.server.endpoint
        request = Request(time.monotonic(), {name.lower(): value for name, value in self.headers.items()}, body)
        endpoint.requests.append(request)
        fault = endpoint.faults.popleft() if endpoint.faults else None
        if fault is None:
            self.begin()
            self.say(rest_of(request))
            self.end("stop")
        else:
            fault(self, request)

    def refuse(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        data = json.dumps({"error": {"message": message, "type": "error"}}).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def say(self, text: str) -> None:
        """A few letters at a time, so that words are cut in the middle."""
        for at in range(0, len(text), 7):
            self._event({"content": text[at : at + 7]}, None)

    def end(self, finish_reason: str | None) -> None:
        if finish_reason:
            self._event({}, finish_reason)
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def drop(self) -> None:
        """Reset the connection, as a server that dies does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _event(self, delta: dict[str, str], finish_reason: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        event = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
        self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def rest_of(request: Request) -> str:
    answer = answer_for(request.name)
    assert answer.startswith(request.so_far)
    return answer[len(request.so_far) :]


def half(request: Request) -> str:
    rest = rest_of(request)
    return rest[: len(rest) // 2]
