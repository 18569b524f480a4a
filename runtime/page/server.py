"""Listens on an address or a unix socket, and serves the app until it is stopped."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from msgspec import Struct

from ...workspace.base import UsageError
from ..control import Overview
from ..web import Address, bound, tokens_of
from .app import make_app
from .guard import Rules
from .site import Site

_GRACE = 1
"""Seconds that requests get at the end."""


class Access(Struct, frozen=True):
    """Where the page listens, and who may use it: who knows the `token`, if there is one. `names`: other names that the
    page is served at, as behind a proxy.

    UsageError if the token is too short, or if other machines could use the page without one.
    """

    address: Address
    token: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(tokens_of(self.token)) > 1:
            raise UsageError("the token of the page has white space", remedy="write one token")
        if not self.token and not self.address.is_local:
            raise UsageError(
                f"on {self.address.host} the page needs a token",
                why="other machines reach it there, and it can stop runs",
                remedy="give it with --token-file or SATCHEL_PAGE_TOKEN, or listen on a unix socket",
            )

    @property
    def rules(self) -> Rules:
        ours = self.address.names
        return Rules((*ours.known, *self.names), self.token, ours.any_address)


_THREADS = 16
"""For what all live pages share. Each run that is looked at has one of its own, so a storage that hangs takes none."""


class Server(uvicorn.Server):
    """Ends the streams of events when it stops: they never end by themselves."""

    def __init__(self, config: uvicorn.Config, site: Site):
        super().__init__(config)
        self._site = site

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "satchel-page-live"))
        await super().serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.stopping.set()
        await super().shutdown(sockets)


def serve_page(
    root: str,
    access: Access,
    *,
    tell: Callable[[str], None],
    opens: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Serve the page of the runs below `root` until SIGINT or SIGTERM. Call it in the main thread.

    `tell` is called with the URL once it listens. `opens`: show it in the browser of this machine. UsageError if `root`
    is no folder, or the address is taken.
    """
    overview = Overview(root, storage_options=storage_options)
    with bound(access.address) as (listener, address):
        site = Site(overview, root=root)
        site.runs(patience=0)  # so that the first page need not wait for it
        config = uvicorn.Config(
            make_app(site, access.rules),
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
        )
        url = address.url if address.path else f"{address.url}/"
        tell(url)
        if opens and not address.path:
            import webbrowser

            webbrowser.open(url)
        # uvicorn raises the signal again after it has stopped: this process is to end normally
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: None)
        asyncio.run(Server(config, site).serve([listener]))
