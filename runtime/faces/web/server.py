"""Serves the page: the app of all routes, static files and errors, and the server that listens until it is stopped."""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from ....workspace.base import LeaseHeld, SatchelError, StorageFailed, UsageError
from ...api import Overview
from ...supervision import Census
from ..http import Address, Guard, Names, Rules, bound, metric_routes, tokens_of
from . import contents, forms, listing, live, reading, starting
from .site import FOLDER, NoSuchRun, Site

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp


_PATIENCE = 0.5
"""Seconds that a request for metrics waits for a look. Then it gets the numbers of the one before."""


def make_app(site: Site, rules: Rules | None = None) -> ASGIApp:
    """The whole page as an ASGI app. `rules` say who may use it; by default, every program of this machine."""
    # The paths of the last one match the others, too
    rooms = (contents, forms, listing, live, starting, reading)
    routes: list[BaseRoute] = [Mount("/static", StaticFiles(directory=FOLDER / "static"))]
    routes += metric_routes(site.census, functools.partial(site.runs, patience=_PATIENCE))
    routes += [route for module in rooms for route in module.routes(site)]

    def error(request: Request, error: Exception) -> HTMLResponse:
        said = error if isinstance(error, SatchelError) else None
        detail = "" if said else _said(error)
        # What can't be shown may be running all the same, so its page can stop it
        run = site.known(request.path_params.get("name", ""))
        name = site.name_of(run) if run else ""
        return site.page(
            request, "error.html", status_of(error), title=_title(error), error=said, detail=detail, name=name
        )

    handlers: dict[Any, Any] = dict.fromkeys((SatchelError, HTTPException, Exception), error)
    return Guard(Starlette(routes=routes, exception_handlers=handlers), rules or Rules(), site.render)


def status_of(error: Exception) -> int:
    """The HTTP status of an error."""
    match error:
        case HTTPException():
            return error.status_code
        case NoSuchRun():
            return 404
        case UsageError():
            return 400
        case LeaseHeld():
            return 409
        case StorageFailed():
            return 503
        case SatchelError():
            return 422
        case _:
            return 500


def _title(error: Exception) -> str:
    match status_of(error):
        case 404:
            return "Not found"
        case 503:
            return "The storage does not answer"
        case 500:
            return "An internal error"
        case _:
            return "That does not work"


def _said(error: Exception) -> str:
    if isinstance(error, HTTPException):
        return error.detail
    return f"{type(error).__name__}: {error}. Nothing that was recorded is lost. The terminal of the server says more"


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
        return Rules(Names((*ours.known, *self.names), ours.any_address), self.token)


_THREADS = 16
"""For what all live pages share. Each run that is looked at has one of its own, so a storage that hangs takes none."""


class PageServer(uvicorn.Server):
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
    census = Census(knows_due=False)
    overview = Overview(root, census=census, storage_options=storage_options)
    with bound(access.address) as (listener, address):
        site = Site(overview, census, root=root)
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
        asyncio.run(PageServer(config, site).serve([listener]))
