"""The two ways to a client: this process's stdin and stdout, and HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable

import anyio
import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp

from ...workspace.base import UsageError
from .address import PATH, Address
from .guard import Guard
from .runs import Runs
from .server import RunServer

_WAITING = 128  # connections that are not accepted yet


def over_stdio(runs: Runs, allowed: frozenset[str]) -> None:
    """Until the client closes stdin."""

    async def serve() -> None:
        server = RunServer(runs, allowed)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(serve)


def app_of(runs: Runs, allowed: frozenset[str], host: str, token: str | None) -> ASGIApp:
    """The application. The guard checks what the settings of the package would check, and knows the token."""
    settings = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = RunServer(runs, allowed).streamable_http_app(streamable_http_path=PATH, transport_security=settings)
    return Guard(app, host, token)


def over_http(
    runs: Runs, allowed: frozenset[str], place: Address, token: str | None, tell: Callable[[str], None]
) -> None:
    """Until a signal comes."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((place.host, place.port))
            listener.listen(_WAITING)
        except OSError as error:
            raise UsageError(f"can't listen at {place.host}:{place.port}", why=error.strerror or str(error)) from error
        tell(f"serving MCP at {place._replace(port=listener.getsockname()[1]).url}")
        config = uvicorn.Config(
            app_of(runs, allowed, place.host, token), log_level="warning", timeout_graceful_shutdown=1
        )
        uvicorn.Server(config).run(sockets=[listener])
