"""`satchel watch`, and `watch` for programs: runs in a terminal, live, until the person leaves. Reads and acts through
`api`, and never runs an agent in this process. Textual is imported only then.

list_screen  the application, and its screen with all runs below a root
run_screen   the screen of one run, in panes
actions      what a person does to a run
dialogs      what a person is asked: the form for an answer, a confirmation, work to send
feed         what is known of one run: it reads in the background
lines        the widgets: a list of any length, and a bar; and lines in styles. All text is drawn by them, escaped
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import click

from ....workspace.base import Refused, SatchelError, UsageError
from ...cli import complete_folders, given, storage_option

_THREADS = 8

_LEAVE = 1.0
"""Seconds to wait for requests that are under way when a person quits."""

_EXAMPLES = """\b
Examples:
  satchel watch my-digest          one run
  satchel watch ~/runs             all runs under a folder
  satchel watch s3://bucket/runs
  NO_COLOR=1 satchel watch ~/runs  without colours
"""


@click.command("watch", epilog=_EXAMPLES, short_help="Show a run, or all runs under a folder, live in the terminal.")
@click.argument("root", default=".", shell_complete=complete_folders, metavar="[WS|ROOT]")
@storage_option
def command(root: str) -> None:
    """Show a run in the terminal as it works, or all runs under a folder or URL. Keys answer, pause, resume, stop and
    send work; `?` lists them.

    Leaving with `q` stops no run. Needs a terminal: elsewhere use `satchel log -f` and `satchel status --json`.
    """
    if importlib.util.find_spec("textual") is None:
        raise Refused("`satchel watch` needs textual", remedy="install it with `pip install 'satchel[watch]'`")
    watch(root, storage_options=given())


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
    import asyncio  # slow, as all that is imported here, and `--help` imports this module
    from concurrent.futures import ThreadPoolExecutor

    from ...api import Overview
    from .list_screen import WatchApp

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
