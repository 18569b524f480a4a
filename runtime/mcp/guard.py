"""Who may talk to the server over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ..web import Guesses, Names, is_bearer


class Guard:
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
