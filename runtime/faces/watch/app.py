"""The application."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from ....workspace.base import SatchelError, UsageError
from ... import api
from ...api import Handle, Overview
from .dialogs import Help
from .list_screen import RunsScreen
from .run_screen import RunScreen

_PATIENCE = 5.0
"""Seconds during which a request to a bucket is repeated. The screen says that it failed, and tries again."""

_THREADS = 8

_LEAVE = 1.0
"""Seconds to wait for requests that are under way when a person quits."""


class WatchApp(App[None]):
    """Shows all runs below a root, or one run if the root is a run itself."""

    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    ModalScreen { background: transparent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", show=False),
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False),
        Binding("question_mark", "keys", show=False),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, overview: Overview) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"  # the colours of the terminal, which may be light
        self._overview = overview

    def on_mount(self) -> None:
        self.push_screen(RunsScreen(self._overview, _open))

    def action_leave(self) -> None:
        """An action that is under way ends first. The second time it is left to itself."""
        for screen in self.screen_stack:
            if isinstance(screen, RunScreen) and screen.acting.doing and not screen.acting.is_last:
                screen.acting.is_last = True
                screen.say(f"leaving after this: {screen.acting.doing}; q again leaves at once")
                return
        self.exit()

    def action_suspend_process(self) -> None:
        """Go to the background, if there is a shell that can bring it back: one that gave it a process group."""
        if os.getpgrp() != os.getsid(0):
            super().action_suspend_process()

    def action_keys(self) -> None:
        self.push_screen(Help())


def _open(url: str) -> Handle:
    return api.open(url, patience=_PATIENCE)


def watch(root: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Show the run at `root`, a folder or URL, or all runs below it, until the person leaves.

    UsageError if this process has no terminal that can be drawn on, or if `root` is no folder; StorageFailed if a
    bucket does not answer. Runs are not stopped when it ends.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        raise UsageError(
            "there is no terminal to draw on",
            why="a program reads or writes here, or TERM is dumb",
            remedy="`satchel log -f WS` prints what happens line by line, `satchel status --json WS` the status",
        )
    for name in ("COLUMNS", "LINES"):  # Textual would believe them, and a window may be resized
        os.environ.pop(name, None)
    app = WatchApp(Overview(root, storage_options=storage_options))
    threads = ThreadPoolExecutor(_THREADS, "satchel-watch")
    loop = asyncio.new_event_loop()
    loop.set_default_executor(threads)
    signals: list[int] = []

    def end(number: int, _: object) -> None:
        signals.append(number)
        loop.call_soon_threadsafe(app.exit)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        loop.run_until_complete(app.run_async(mouse=False))  # so that a person can select text
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if signals:  # now that the terminal is as it was
            os.kill(os.getpid(), signals[0])
        threads.shutdown(wait=False, cancel_futures=True)
        _leave_threads_behind()
    if app.return_code:
        raise SatchelError("the screen has failed", remedy="please report the error above")


def _leave_threads_behind() -> None:
    """A request to a storage that does not answer may take minutes, and Python would wait for its thread. Nothing here
    has to be saved."""
    until = time.monotonic() + _LEAVE
    while any(thread.name.startswith("satchel-watch") for thread in threading.enumerate()):
        if time.monotonic() > until:
            sys.stdout.flush()
            os._exit(0)
        time.sleep(0.01)
