"""The two ways to a client: this process's stdin and stdout, and HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp

from ..web import Address, Names, bound
from .guard import Guard
from .runs import Runs
from .server import RunServer

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
    return Guard(app, names, tokens)


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
