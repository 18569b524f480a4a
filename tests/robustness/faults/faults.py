"""What a network, a server or somebody in between does to a request. Each is planted in a `Proxy`.

Those that take something are called first: `proxy.plant(slow_down(retry_after=1))`.
"""

from __future__ import annotations

import time

from .proxy import Exchange, Fault, Planted, Proxy
from .traffic import Message


def drop_before(exchange: Exchange) -> None:
    """The connection breaks before the request has arrived."""
    exchange.drop()


def cut_off(exchange: Exchange) -> None:
    """The sender dies when the head of its request has arrived, and nothing of the body."""
    exchange.forward_head()
    exchange.drop()


def drop_after(exchange: Exchange) -> None:
    """The server has done it, and the connection breaks before its answer."""
    exchange.forward()
    exchange.drop()


def hang(seconds: float | None = None, *, arrives: bool = False) -> Fault:
    """Nothing for so long, or until it is lifted; then the connection breaks. With `arrives` the server has done it."""

    def hang(exchange: Exchange) -> None:
        if arrives:
            exchange.note(exchange.forward().status)
        exchange.wait(seconds)
        exchange.drop()

    return hang


def delayed(seconds: float | None = None) -> Fault:
    """It takes that long, or until it is lifted, and is done then."""

    def delayed(exchange: Exchange) -> None:
        exchange.wait(seconds)
        exchange.answer(exchange.forward())

    return delayed


def late(exchange: Exchange) -> None:
    """The connection breaks, and the request arrives all the same when the fault is lifted."""
    exchange.drop()
    exchange.wait(None)
    exchange.note(exchange.forward().status)


def refused(status: int, code: str, *, done: bool = False, **headers: str) -> Fault:
    """The server answers with an error. With `done` it has done it all the same."""

    def refused(exchange: Exchange) -> None:
        if done:
            exchange.forward()
        exchange.answer(_error(status, code, headers, to_head=exchange.request.first.startswith("HEAD ")))

    refused.__name__ = code
    return refused


def internal_error(*, done: bool = False) -> Fault:
    return refused(500, "InternalError", done=done)


def slow_down(*, retry_after: int | None = None) -> Fault:
    """Throttled: 503."""
    return refused(503, "SlowDown", **({} if retry_after is None else {"Retry-After": str(retry_after)}))


def expired_token() -> Fault:
    """The credentials are no longer valid."""
    return refused(403, "ExpiredToken")


def truncated(share: float = 0.5) -> Fault:
    """The connection breaks in the middle of the answer's body."""

    def truncated(exchange: Exchange) -> None:
        answer = exchange.forward()
        exchange.send(answer.head + answer.body[: int(len(answer.body) * share)])
        exchange.end()

    return truncated


def shortened(share: float = 0.5) -> Fault:
    """Only a part of the answer's body comes, and the answer says that this is all: what a bad gateway makes of it."""

    def shortened(exchange: Exchange) -> None:
        answer = exchange.forward()
        part = answer.body[: int(len(answer.body) * share)]
        exchange.answer(answer._replace(body=part).having("Content-Length", str(len(part))))

    return shortened


def drip(size: int = 64, seconds: float = 0.01) -> Fault:
    """The answer comes a few bytes at a time."""

    def drip(exchange: Exchange) -> None:
        answer = exchange.forward()
        exchange.note(answer.status)
        data = answer.head + answer.body
        for at in range(0, len(data), size):
            exchange.send(data[at : at + size])
            time.sleep(seconds)

    return drip


def without(*headers: str) -> Fault:
    """The server does not know these headers. Where it checks signatures, it will refuse the request."""

    def without(exchange: Exchange) -> None:
        exchange.request = exchange.request.without(*headers)
        exchange.answer(exchange.forward())

    return without


def unconditional() -> Fault:
    """A bucket that knows no conditions: it answers 200 twice."""
    return without("If-None-Match", "If-Match")


def partition(proxy: Proxy, *, silent: bool = True) -> Planted:
    """Cut a client off. Silent: nothing is answered, as when a cable is out; else every connection is reset. What comes
    in the meantime never arrives."""
    planted = proxy.plant(hang() if silent else drop_before, times=None)
    if not silent:
        proxy.cut()
    return planted


def _error(status: int, code: str, headers: dict[str, str], *, to_head: bool) -> Message:
    said = f"<Error><Code>{code}</Code><Message>told to</Message><RequestId>0</RequestId></Error>"
    body = b"" if to_head else f'<?xml version="1.0" encoding="UTF-8"?>\n{said}'.encode()
    fixed = (("Content-Type", "application/xml"), ("Content-Length", str(len(body))))
    return Message(f"HTTP/1.1 {status} {code}", (*fixed, *headers.items()), body)


FAULTS: dict[str, Fault] = {
    "dropped before": drop_before,
    "cut off": cut_off,
    "dropped after": drop_after,
    "hangs before": hang(),
    "hangs after": hang(arrives=True),
    "500": internal_error(),
    "500, but done": internal_error(done=True),
    "503": slow_down(),
    "503, after 1 s": slow_down(retry_after=1),
    "403": expired_token(),
    "truncated": truncated(),
    "slow": drip(size=400, seconds=0.002),
}
"""One of each kind, by what it is called in a test."""
