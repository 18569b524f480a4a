"""A server between a store and a real one, that counts requests and spoils those it is told to."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from waits import PATIENCE


class Request(NamedTuple):
    method: str
    path: str  # with the query
    headers: dict[str, str]  # names in lower case; may be changed before it is passed on
    number: int  # from 0

    @property
    def key(self) -> str:
        return urlsplit(self.path).path


class Answer(NamedTuple):
    """Given instead of the server's. `after`: the request is passed on nevertheless."""

    status: int
    code: str = ""
    message: str = ""
    headers: dict[str, str] = {}  # noqa: RUF012
    after: bool = False
    body: str | None = None


class Drop(NamedTuple):
    """The connection is closed without an answer."""

    after: bool


class Cut(NamedTuple):
    """The body ends early, and the length in the header says nothing of that unless `honest`."""

    at: int
    honest: bool = False


Meddling = Callable[[Request], Answer | Drop | Cut | str | None]
"""None passes a request on, a text passes it on with that for its path."""


class Between:
    def __init__(self, port: int, seen: list[Request]):
        self.endpoint, self.seen = f"http://127.0.0.1:{port}", seen

    def count(self, method: str = "") -> int:
        return sum(each.method == method or not method for each in self.seen)

    @contextmanager
    def costs(self, *methods: str) -> Iterator[None]:
        """The body makes exactly these requests."""
        before = len(self.seen)
        yield
        assert [each.method for each in self.seen[before:]] == list(methods), self.seen[before:]


@contextmanager
def between(endpoint: str, meddle: Meddling = lambda request: None) -> Iterator[Between]:
    seen: list[Request] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None: ...

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with lock:
                request = Request(self.command, self.path, headers, len(seen))
                seen.append(request)
            told = meddle(request)
            if isinstance(told, Answer | Drop) and not told.after:
                self._spoil(told)
                return
            status, answered, data = _ask(endpoint, request, told if isinstance(told, str) else self.path, body)
            if isinstance(told, Answer | Drop):
                self._spoil(told)
                return
            self.send_response(status)
            length = len(data) if request.method != "HEAD" else int(answered.pop("content-length", "0"))
            if isinstance(told, Cut):
                data = data[: told.at]
                length = len(data) if told.honest else length
            for name, value in answered.items():
                self.send_header(name, value)
            self.send_header("content-length", str(length))
            self.end_headers()
            self.wfile.write(data)
            if len(data) < length and request.method != "HEAD":
                self._close()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

        def _spoil(self, told: Answer | Drop) -> None:
            if isinstance(told, Drop):
                self._close()
                return
            xml = told.body or f"<Error><Code>{told.code}</Code><Message>{told.message}</Message></Error>"
            self.send_response(told.status)
            for name, value in {**told.headers, "content-type": "application/xml"}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(xml)))
            self.end_headers()
            self.wfile.write(xml.encode())

        def _close(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Between(server.server_port, seen)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _ask(endpoint: str, request: Request, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=PATIENCE)
    try:
        connection.putrequest(request.method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers.items():  # the host too, as it is part of what was signed
            if name not in ("connection", "expect"):
                connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        data = answer.read()
        kept = {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()
    for name in ("transfer-encoding", "connection") + (() if request.method == "HEAD" else ("content-length",)):
        kept.pop(name, None)
    return answer.status, kept, data
