"""Keeps the workspaces below a folder or URL running."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ...workspace.base import urls
from ..supervision.serve import Event, Server, cores
from ..supervision.serve import serve as turn
from .opening import root_of


def serve(
    root: str | os.PathLike[str], *, at_most: int | None = None, once: bool = False, drain_timeout: float | None = None,
    tell: Callable[[Event], None] | None = None, storage_options: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Start what is new or was interrupted below `root`, and continue what was answered, is let go, or has slept, each
    in a process of its own, until SIGINT or SIGTERM comes and all have stopped. In the main thread.

    `at_most` runs at a time; None: one for each core, and at least 2. `once`: until nothing runs and nothing is due.
    `drain_timeout`: seconds that a stop waits for what is under way. `tell` is called with what becomes of each run.
    UsageError if `root` is no folder.
    """
    typed = os.fspath(root)
    store = root_of(typed, storage_options or {})
    place = urls.local(typed) if store is None else store.url
    say = tell or (lambda event: None)
    turn(Server(place, at_most or max(2, cores.usable()), say, drain_timeout, store=store), once=once)
