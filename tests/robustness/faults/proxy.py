"""A proxy between a client and a bucket, on loopback: counts what goes through, and breaks it as it is told.

    with proxying(server.url) as proxy:
        with proxy.plant(drop_after, method="PUT", kind="journal"):
            ...

Requests are forwarded byte for byte, the Host header too, since clients sign it. Each client that is to be cut off on
its own gets a proxy of its own.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO
from urllib.parse import urlsplit

from waits import PATIENCE

from .traffic import Message, Seen, Tally, describe, read_body, read_head

Fault = Callable[["Exchange"], None]
"""A function with a name: `faults` has them."""


@dataclass(eq=False)
class Planted:
    """A fault that waits for its requests."""

    proxy: Proxy
    fault: Fault
    matches: Callable[[Seen], bool]
    times: int | None  # how often it strikes; None: until it is lifted
    skip: int  # how many requests that match are let through first
    chance: float
    generator: random.Random
    struck: int = 0
    lifted: bool = False

    def lift(self) -> None:
        """Let everything through again, what hangs too."""
        with self.proxy.changed:
            self.lifted = True
            self.proxy.changed.notify_all()

    def await_strike(self, times: int = 1, *, timeout: float = PATIENCE) -> None:
        """Until it has struck so often."""
        with self.proxy.changed:
            assert self.proxy.changed.wait_for(lambda: self.struck >= times, timeout), "the fault has not struck"

    def __enter__(self) -> Planted:
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()

    def strikes(self, seen: Seen) -> bool:
        """Called once for each request, by a thread that holds the proxy's lock."""
        if self.lifted or not self.matches(seen) or self.struck == self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.generator.random() >= self.chance:
            return False
        self.struck += 1
        self.proxy.changed.notify_all()
        return True


class Broken(Exception):
    """The connection to the client, or the one to the server, is gone."""


class Exchange:
    """One request, and what a fault may do with it. Without an answer the connection is reset."""

    def __init__(self, connection: _Connection, request: Message, seen: Seen, planted: Planted | None):
        self._connection = connection
        self.request, self.seen, self.planted = request, seen, planted

    def forward(self) -> Message:
        """Let the server do it, and have its answer."""
        return self._connection.ask(self.request)

    def forward_head(self) -> None:
        """The server gets no more of it, and has noticed that."""
        self._connection.ask_in_vain(self.request)

    def note(self, status: int) -> None:
        with self._connection.proxy.changed:
            self.seen.status = status
            self._connection.proxy.changed.notify_all()

    def answer(self, message: Message) -> None:
        self.note(message.status)
        self.send(message.head + message.body)
        if message.get("Connection").lower() == "close":
            raise Broken

    def send(self, data: bytes) -> None:
        self.seen.down += len(data)
        self._connection.send(data)

    def drop(self) -> None:
        """Reset the connection to the client; the server does not notice."""
        self._connection.reset()

    def end(self) -> None:
        """Close the connection to the client; what was sent before arrives."""
        raise Broken

    def wait(self, seconds: float | None) -> None:
        """Until the fault is lifted, at most so long. Broken if the proxy stops."""
        proxy, planted = self._connection.proxy, self.planted
        with proxy.changed:
            proxy.changed.wait_for(lambda: proxy.stopped or (planted and planted.lifted), seconds)
            if proxy.stopped:
                raise Broken


@dataclass(eq=False)
class Proxy:
    server: tuple[str, int]
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)  # holds all fields, and `Planted`s
    stopped: bool = False
    _planted: list[Planted] = field(default_factory=list)
    _connections: set[_Connection] = field(default_factory=set)

    def plant(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        kind: str | None = None,
        key: str | None = None,
        matching: Callable[[Seen], bool] | None = None,
        times: int | None = 1,
        skip: int = 0,
        chance: float = 1,
        seed: int = 0,
    ) -> Planted:
        """Do this to the next request of that method and kind, and whose key contains `key`."""

        def matches(seen: Seen) -> bool:
            fits = method in (None, seen.method) and kind in (None, seen.kind) and (key is None or key in seen.key)
            return fits and (matching is None or matching(seen))

        planted = Planted(self, fault, matches, times, skip, chance, random.Random(seed))
        with self.changed:
            self._planted = [each for each in self._planted if not each.lifted] + [planted]
        return planted

    def cut(self) -> None:
        """Reset all connections that are open."""
        with self.changed:
            connections = list(self._connections)
        for each in connections:
            each.reset()

    def await_answer(self, seen: Seen, *, timeout: float = PATIENCE) -> None:
        """Until the server has answered a request that was seen; what was dropped may be forwarded later."""
        with self.changed:
            assert self.changed.wait_for(lambda: seen.status is not None, timeout), "the server has not answered"

    def tally(self, since: int = 0) -> Tally:
        """What has gone through since `len(proxy.seen)` was that."""
        with self.changed:
            return Tally.of(self.seen[since:])

    @contextmanager
    def tallying(self) -> Iterator[list[Tally]]:
        """What goes through while the body runs is in the list afterwards."""
        since, found = len(self.seen), list[Tally]()
        yield found
        found.append(self.tally(since))

    def begin(self, connection: _Connection, request: Message) -> Exchange:
        """Count a request, and choose what is done to it: the fault that was planted first."""
        seen = describe(request)
        with self.changed:
            self.seen.append(seen)
            planted = next((each for each in self._planted if each.strikes(seen)), None)
        if planted:
            seen.fault = planted.fault.__name__
        return Exchange(connection, request, seen, planted)

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            connection = _Connection(self, client)
            with self.changed:
                self._connections.add(connection)
            connection.thread.start()

    def forget(self, connection: _Connection) -> None:
        with self.changed:
            self._connections.discard(connection)

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
            connections = list(self._connections)
        self.cut()
        for each in connections:
            each.thread.join(PATIENCE)


class _Connection:
    """A client's connection and the one to the server that belongs to it, in a thread of their own."""

    def __init__(self, proxy: Proxy, client: socket.socket):
        self.proxy = proxy
        self._client, self._from_client = client, client.makefile("rb")
        self._server: socket.socket | None = None
        self._from_server: BinaryIO | None = None
        self._reset = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with contextlib.suppress(OSError, Broken):
            client = self._client
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self._reset and (head := read_head(self._from_client)):
                if head.get("Expect"):  # boto3 would wait a second, and send the body then
                    client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                request = read_body(self._from_client, head)
                if request is None:
                    break
                exchange = self.proxy.begin(self, request)
                if exchange.planted:
                    exchange.planted.fault(exchange)
                else:
                    exchange.answer(exchange.forward())
        self._close()
        self._leave_server()
        self.proxy.forget(self)

    def ask(self, request: Message) -> Message:
        if self._server is None or _is_over(self._server):
            self._leave_server()
            self._server = socket.create_connection(self.proxy.server, timeout=60)
            self._server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._from_server = self._server.makefile("rb")
        assert self._from_server
        self._server.sendall(request.head + request.body)
        while (head := read_head(self._from_server)) and head.status == 100:
            pass
        answer = head and read_body(self._from_server, head, of_answer_to=request.first.partition(" ")[0])
        if answer is None:
            raise Broken
        keep = answer.get("Content-Length") or "chunked" in answer.get("Transfer-Encoding") or answer.status == 204
        if answer.get("Connection").lower() == "close" or not keep or answer.first.startswith("HTTP/1.0"):
            self._leave_server()
            answer = answer.having("Connection", "close")
        return answer

    def ask_in_vain(self, request: Message) -> None:
        self._leave_server()
        with socket.create_connection(self.proxy.server, timeout=60) as server:
            server.sendall(request.head)
            server.shutdown(socket.SHUT_WR)
            while server.recv(65536):  # it may answer, and closes then
                pass

    def send(self, data: bytes) -> None:
        if self._reset:
            raise Broken
        self._client.sendall(data)

    def reset(self) -> None:
        """End the client's connection, as when a server or a cable goes: without a word in what is half said."""
        self._reset = True
        with contextlib.suppress(OSError):
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if threading.current_thread() is self.thread:
            self._close()
        else:
            with contextlib.suppress(OSError):
                self._client.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._from_client.close()
        self._client.close()

    def _leave_server(self) -> None:
        if self._server and self._from_server:
            self._from_server.close()
            self._server.close()
        self._server = self._from_server = None


def _is_over(connection: socket.socket) -> bool:
    """Whether the server has ended an idle connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(60)


@contextmanager
def proxying(server: str) -> Iterator[Proxy]:
    """A proxy before the server at that URL (http only), on a free port."""
    target = urlsplit(server)
    assert target.scheme == "http" and target.hostname and target.port, server
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    proxy = Proxy((target.hostname, target.port), f"http://127.0.0.1:{listener.getsockname()[1]}")
    thread = threading.Thread(target=proxy.serve, args=(listener,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        listener.close()
        thread.join(PATIENCE)
        proxy.stop()
