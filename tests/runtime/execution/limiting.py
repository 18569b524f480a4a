"""A server on loopback that answers `GET /NAME?model=M` with `NAME by M`, unless it is told to refuse; and its client.

What is refused is said in `faults`: for a name, one fault for each request of it. All requests are counted.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Fault = tuple[int, dict[str, str]]
"""A status and headers; status 0 drops the connection."""

DROP: Fault = (0, {})


def limited(seconds: object) -> Fault:
    return 429, {"Retry-After": str(seconds)}


class Refused(Exception):
    """As aiohttp's and urllib's errors tell it."""

    def __init__(self, status: int, headers: Any):
        super().__init__(f"HTTP {status}")
        self.status, self.headers = status, headers


def ask(address: tuple[str, int], name: str, model: str = "") -> str:
    connection = http.client.HTTPConnection(*address, timeout=120)
    try:
        connection.request("GET", f"/{name}?model={model}")
        response = connection.getresponse()
        text = response.read().decode()
        if response.status != 200:
            raise Refused(response.status, response.headers)
        return text
    finally:
        connection.close()


@dataclass
class Limits:
    address: tuple[str, int] = ("", 0)
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    asked: Counter[str] = field(default_factory=Counter)  # requests, by name
    answered: Counter[str] = field(default_factory=Counter)  # those that were paid for
    begun: threading.Event = field(default_factory=threading.Event)  # set by a request
    held: dict[str, threading.Event] = field(default_factory=dict)  # names whose answers wait for an event
    hook: Callable[[str], None] = lambda name: None
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        limits, url = self.server.limits, urlsplit(self.path)
        name, model = url.path[1:], parse_qs(url.query).get("model", [""])[0]
        with limits.lock:
            limits.asked[name] += 1
            key = f"{name}@{model}" if f"{name}@{model}" in limits.faults else name
            fault = limits.faults[key].popleft() if limits.faults.get(key) else None
        limits.begun.set()
        if fault is None:
            if name in limits.held:
                limits.held[name].wait(120)
            with limits.lock:
                limits.answered[name] += 1
            self._answer(200, {}, f"{name} by {model}")
            limits.hook(name)
        elif fault[0]:
            self._answer(*fault, "not now")
        else:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _answer(self, status: int, headers: dict[str, str], text: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    limits: Limits
    daemon_threads = True
    request_queue_size = 64  # ten calls at once must not wait for one another to be let in

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no fault of the server."""


@contextmanager
def serving() -> Iterator[Limits]:
    server = _Server(("127.0.0.1", 0), _Handler)
    limits = server.limits = Limits(("127.0.0.1", server.server_address[1]))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield limits
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
