"""Keep the workspaces below a folder or URL running."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ...workspace.base import arguments
from ..supervision.serve import ServeEvent, Server, cores
from ..supervision.serve import serve as turn
from .place import check_main_thread, root_of


def serve(
    root: str | os.PathLike[str],
    *,
    at_most: int | None = None,
    once: bool = False,
    drain_timeout: float | None = None,
    tell: Callable[[ServeEvent], None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Start all new and interrupted runs below `root`, and resume those that were answered, released or have slept,
    each in its own process. Ends when SIGINT or SIGTERM comes and all have stopped. Call it in the main thread.

    `at_most` runs at a time; None: one for each core, and at least 2. `once`: until nothing runs and nothing is due.
    `drain_timeout`: seconds that a stop waits for running work. `tell` is called with events of each run. UsageError if
    `root` is no folder.
    """
    at_most = arguments.count("at_most", at_most, least=1) or max(2, cores.usable())
    drain_timeout = arguments.seconds("drain_timeout", drain_timeout)
    arguments.function("tell", tell)
    typed = arguments.place("root", root)
    arguments.no_loop("serve", "start `satchel serve` as a process of its own")
    check_main_thread("serve()", "start `satchel serve` as a process of its own")
    store = root_of(typed, storage_options)
    server = Server(
        typed if store is None else store.url, at_most, tell or (lambda event: None), drain_timeout, store=store
    )
    turn(server, once=once)
