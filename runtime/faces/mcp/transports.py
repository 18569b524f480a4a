"""The two ways to a client: this process's stdin and stdout, and HTTP with a guard that says who may talk."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import anyio
import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ..web import Address, Guesses, Names, bound, is_bearer
from .protocol_server import RunServer
from .run_names import Runs


class TransportGuard:
    """Refuses requests without the token, and those that a browser sends for a strange page.

    A page can make its own name lead to this machine (DNS rebinding). Its requests then have that name as `Host`, so
    only the name of this server is accepted, and addresses, which no DNS has given. Browsers send an `Origin`, too.
    """

    def __init__(self, app: ASGIApp, names: Names, tokens: Sequence[str]):
        self._app, self._tokens = app, tokens
        self._guesses = Guesses()
        self._names = Names((*names.known, socket.gethostname()), any_address=bool(tokens))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        app = self._app
        shown = headers.getlist("authorization")
        if not self._names.are_named(headers.getlist("host")):
            app = PlainTextResponse("Invalid Host header", 421)
        elif not all(self._names.have(_host(origin)) for origin in headers.getlist("origin")):
            app = PlainTextResponse("Invalid Origin header", 403)
        elif self._tokens and self._guesses.are_too_many(scope):
            app = PlainTextResponse("Too many wrong tokens", 429, {"Retry-After": "10"})
        elif self._tokens and not is_bearer(shown, self._tokens):
            await self._guesses.slow_down(scope, "\n".join(shown))
            app = PlainTextResponse("Unauthorized", 401, {"WWW-Authenticate": "Bearer"})
        await app(scope, receive, send)


def _host(origin: str) -> str:
    """Empty if the browser does not name a site."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


PATH = "/mcp"

_AT_ONCE = 500
"""Connections. One more gets 503."""


def over_stdio(runs: Runs, allowed: frozenset[str]) -> None:
    """Until the client closes stdin."""

    async def serve() -> None:
        server = RunServer(runs, allowed)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(serve)


def app_of(runs: Runs, allowed: frozenset[str], names: Names, tokens: Sequence[str]) -> ASGIApp:
    """The application. The guard checks what the settings of the package would check, and knows the token."""
    settings = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = RunServer(runs, allowed).streamable_http_app(streamable_http_path=PATH, transport_security=settings)
    return TransportGuard(app, names, tokens)


def where(place: Address) -> str:
    """What a client has to be told."""
    return f"{place.url}, with the path {PATH} of HTTP" if place.path else f"{place.url}{PATH}"


def over_http(
    runs: Runs, allowed: frozenset[str], wanted: Address, tokens: Sequence[str], tell: Callable[[str], None]
) -> None:
    """Until a signal comes."""
    with bound(wanted) as (listener, place):
        tell(f"serving MCP at {where(place)}")
        config = uvicorn.Config(
            app_of(runs, allowed, place.names, tokens),
            log_level="warning",
            limit_concurrency=_AT_ONCE,
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listener])
