"""Listens on an address or a unix socket, and serves the app until it is stopped."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import socket
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import uvicorn
from msgspec import Struct

from ...workspace.base import UsageError
from ..control import Overview
from .app import make_app
from .guard import Rules
from .site import Site

_GRACE = 1
"""Seconds that requests get at the end. Streams of events never end by themselves."""
_TOKEN = 16
"""Characters that a token has at least."""
_ANY = ("0.0.0.0", "::", "")


class Access(Struct, frozen=True):
    """Where the page listens: on `port` of `host` (0: a free one), or on the unix socket `socket`; and who may use it:
    who knows the `token`, if there is one. `names`: other names that the page is served at, as behind a proxy.

    UsageError if other machines could use it without a token.
    """

    port: int = 8420
    socket: str = ""
    host: str = "127.0.0.1"
    token: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.token and len(self.token) < _TOKEN:
            raise UsageError(
                f"the token has fewer than {_TOKEN} characters", remedy="take one of `openssl rand -hex 32`"
            )
        if not self.token and not self.socket and not _is_loopback(self.host):
            raise UsageError(
                f"on {self.host} the page needs a token", why="other machines reach it there, and it can stop runs",
                remedy="give it with --token-file or SATCHEL_PAGE_TOKEN, or listen on a unix socket",
            )  # fmt: skip

    @property
    def rules(self) -> Rules:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return Rules((host, *self.names), self.token, any_address=self.host in _ANY)


def serve_page(
    root: str, access: Access, *, tell: Callable[[str], None], opens: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Serve the page of the runs below `root` until SIGINT or SIGTERM. Call it in the main thread.

    `tell` is called with the URL once it listens. `opens`: show it in the browser of this machine. UsageError if `root`
    is no folder, or the port or socket is taken.
    """
    overview = Overview(root, storage_options=storage_options)
    with listening(access) as listener:
        site = Site(overview, root=root)
        config = uvicorn.Config(
            make_app(site, access.rules), lifespan="off", access_log=False, log_config=None, server_header=False,
            timeout_graceful_shutdown=_GRACE,
        )  # fmt: skip
        url = url_of(access, listener)
        tell(url)
        if opens and not access.socket:
            import webbrowser

            webbrowser.open(url)
        # uvicorn raises the signal again after it has stopped: this process is to end normally
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: None)
        try:
            asyncio.run(uvicorn.Server(config).serve([listener]))
        finally:
            if access.socket:
                os.unlink(access.socket)


def listening(access: Access) -> socket.socket:
    """A socket that listens. Only this user may connect to one with a path."""
    if access.socket:
        found = socket.socket(socket.AF_UNIX)
        _remove_left(access.socket)
        before = os.umask(0o177)
        try:
            found.bind(access.socket)
        except OSError as error:
            found.close()
            raise UsageError("can't listen", path=access.socket, why=error.strerror or str(error),
                             remedy="remove it if no other page listens there") from None  # fmt: skip
        finally:
            os.umask(before)
    else:
        found = socket.socket(socket.AF_INET6 if ":" in access.host else socket.AF_INET)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((access.host, access.port))
        except OSError as error:
            found.close()
            raise UsageError(f"can't listen on {access.host}, port {access.port}", why=error.strerror or str(error),
                             remedy="choose another one with --port; 0 takes a free one") from None  # fmt: skip
    found.listen(128)
    return found


def _remove_left(path: str) -> None:
    """Remove a socket that a killed page has left."""
    with socket.socket(socket.AF_UNIX) as other, suppress(OSError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            try:
                other.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(access: Access, listener: socket.socket) -> str:
    """What a person opens."""
    if access.socket:
        return f"unix:{access.socket}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
