"""Who may talk to the server over HTTP."""

from __future__ import annotations

import hmac
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from .address import is_number

_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))


class Guard:
    """Refuses requests without the token, and those that a browser sends for a strange page.

    A page can make its own name lead to this machine (DNS rebinding). Its requests then have that name as `Host`, so
    only the name of this server is accepted, and addresses, which no DNS has given. Browsers send an `Origin`, too.
    """

    def __init__(self, app: ASGIApp, host: str, token: str | None):
        self._app, self._token = app, token.encode() if token else None
        self._hosts = _LOCAL | {host.lower(), socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        app = self._app
        if not self._is_mine(f"//{headers.get('host', '')}"):
            app = PlainTextResponse("Invalid Host header", 421)
        elif (origin := headers.get("origin")) is not None and not self._is_mine(origin):
            app = PlainTextResponse("Invalid Origin header", 403)
        elif self._token is not None and not self._has_token(headers):
            app = PlainTextResponse("Unauthorized", 401, {"WWW-Authenticate": "Bearer"})
        await app(scope, receive, send)

    def _is_mine(self, url: str) -> bool:
        try:
            host = urlsplit(url).hostname or ""
        except ValueError:
            return False
        return host in self._hosts or (self._token is not None and is_number(host))

    def _has_token(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        assert self._token is not None
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token)
