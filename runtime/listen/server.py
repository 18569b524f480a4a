"""A thread that answers requests while `serve` turns in the main thread."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...workspace.base import SatchelError, UsageError
from ..control import Below
from ..web import Address, Names, address_of, bound, tokens_of

_AT_ONCE = 500
"""Connections. One more gets 503."""

_GRACE = 10
"""Seconds that requests get at the end."""


def _names(place: Address, more: Sequence[str], *, any_address: bool) -> Names:
    """Also this machine's; with a token each address, since no site can lead one anywhere."""
    ours = place.names
    return Names((*ours.known, socket.gethostname(), *more), ours.any_address or any_address)


@contextmanager
def listening(
    root: str,
    written: str,
    *,
    token: str | None = None,
    names: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Take tasks for the runs below `root` while the body runs. Gives the URL. If it fails meanwhile, this process gets
    SIGTERM, so that the body ends, and the error is raised then. `token` is what requests must show; None: nothing.
    `names`: other names that it is served at, as behind a proxy.

    UsageError for an address that is wrong or taken, a missing token, and an address that others can reach without one.
    """
    wanted = address_of(written)
    if token is None and not wanted.is_local:
        raise UsageError("--no-token is for addresses of this machine", path=written, remedy="set a token")
    tokens = tokens_of(token or "")
    if token is not None and not tokens:
        raise UsageError(
            "listening needs a token",
            remedy="set SATCHEL_LISTEN_TOKEN or --token-file (`openssl rand -hex 32` makes one), or use --no-token for "
            "an address of this machine",
        )
    try:
        import uvicorn

        from .app import app
    except ImportError as error:
        raise UsageError(
            "--listen needs Starlette and uvicorn", why=str(error), remedy="`pip install 'satchel[listen]'`"
        ) from error
    below = Below(root, storage_options)
    with bound(wanted) as (found, place):
        config = uvicorn.Config(
            app(below, tokens, _names(place, names, any_address=bool(tokens))),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_AT_ONCE,
            timeout_graceful_shutdown=_GRACE,
        )
        server = uvicorn.Server(config)
        failed: list[BaseException] = []

        def work() -> None:
            try:
                server.run([found])
            except BaseException as error:
                failed.append(error)
            if not server.should_exit:
                os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=work, name="satchel-listen", daemon=True)
        thread.start()
        try:
            yield place.url
        finally:
            server.should_exit = True
            thread.join()
    if failed:
        raise SatchelError("the listener failed", path=written, why=repr(failed[0])) from failed[0]
