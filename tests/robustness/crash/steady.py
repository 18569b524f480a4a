"""Makes a recording depend on nothing but its seed: not on the time, the process, how fast the machine is, or what it
has installed and is called. (A longer host name makes longer records, so that other calls begin a segment.)

Also makes the journal's promise visible: each time it says that records are durable, that is acknowledged in the log.
"""

from __future__ import annotations

import asyncio
import getpass
import itertools
import os
import platform
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from types import SimpleNamespace
from unittest import mock

from waits import NOBODY_SAVES

from satchel.runtime.agent import attempts, code
from satchel.runtime.engine import context, effects, performing
from satchel.runtime.execution import preflight
from satchel.workspace.formats import definition
from satchel.workspace.inspect import lease
from satchel.workspace.journal import Journal, line, segment_log
from satchel.workspace.lifecycle import acquire, opening, recovery, retention, workspace
from satchel.workspace.lifecycle import workspace as opened_workspace
from satchel.workspace.state import checkpoint
from satchel.workspace.store import disk_store
from satchel.workspace.views import guarded_files
from satchel.workspace.views.projector import Projector

from .memory import Memory
from .witness import Durable

SEGMENT_BYTES = 3000
"""Small, so that segments rotate and checkpoints fall due within a few items."""


class _Clock:
    """The module `time` for the times of records: each is a millisecond after the one before."""

    ticks = itertools.count()
    gmtime, strftime = staticmethod(time.gmtime), staticmethod(time.strftime)

    @classmethod
    def time_ns(cls) -> int:
        return (1_767_225_600_000 + next(cls.ticks)) * 1_000_000  # from the first of January 2026


class _Impatient(selectors.DefaultSelector):
    """Waits for nothing that a timer would end: the time of the timer comes at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout if timeout is None else 0)
        if not ready and timeout:
            _Impatient.now += timeout
        return ready

    @classmethod
    def time(cls) -> float:
        return cls.now


@cache
def _code_of(file: str) -> code.Code:
    """Without the versions of what is installed."""
    return code.Code(_dependencies_of(file).modules)


_dependencies_of = code.of


@contextmanager
def steady() -> Iterator[None]:
    """The body runs in a world of its own."""
    flush = Journal.flush

    def flush_and_tell(self: Journal) -> None:
        flush(self)
        system = getattr(self._segments._store, "_os", None)
        if isinstance(system, Memory):
            system.acknowledge(Durable(self._next_seq - 1))

    stopped = SimpleNamespace(monotonic=lambda: 0.0)
    looks = map(float, itertools.count()).__next__
    pid = os.getpid  # s3fs refuses to work in a process that is not its own
    others = {each.ident for each in threading.enumerate()} - {threading.get_ident()}  # what earlier tests have left
    with ExitStack() as patches:
        for target, name, value in (
            (asyncio.BaseEventLoop, "time", lambda loop: _Impatient.now),
            (selectors, "DefaultSelector", _Impatient),
            (line, "time", _Clock),
            (opened_workspace, "Projector", partial(Projector, clock=_Impatient.time)),
            (workspace, "REREAD_BYTES", SEGMENT_BYTES),
            (segment_log, "SEGMENT_BYTES", SEGMENT_BYTES),
            (segment_log, "MANY", 2),
            (retention, "ENOUGH", 500),
            (checkpoint, "_APART", 1),
            (Journal, "flush", flush_and_tell),
            (context, "ALONE_AFTER", 1e9),  # a commit travels until there is company
            (context, "time", SimpleNamespace(monotonic=looks)),  # at every 20th look there is a flush
            (context, "_LONGEST_UNFLUSHED", 1e9),
            (attempts, "time", stopped),  # so no partial is synced; play.py syncs some
            (performing, "time", stopped),
            (effects, "time", stopped),
            (disk_store.os, "getpid", lambda: pid() if threading.get_ident() in others else 4242),
            (guarded_files, "WAITS", NOBODY_SAVES),  # nobody is in the middle of saving
            (definition, "parse", cache(definition.parse)),  # none of the workloads changes it
            (code, "of", _code_of),
            (socket, "gethostname", lambda: "machine"),
            (getpass, "getuser", lambda: "somebody"),
            (disk_store, "user_here", lambda number: "somebody@machine"),
            (platform, "python_version", lambda: "3.11.0"),
            (opening, "version", lambda: "0.1.0"),
            (preflight, "version", lambda: "0.1.0"),
            (lease, "process_started", lambda pid: "12345"),
            (opening, "secrets", SimpleNamespace(token_hex=lambda size: "5a" * size)),
            (acquire, "new_opening", lambda: f"{next(_openings):016x}"),
            (
                recovery,
                "boot_id",
                lambda: f"boot {_boot:012}",
            ),  # no crash is an item's fault, so none makes the run stuck
        ):
            patches.enter_context(mock.patch.object(target, name, value))
        count_openings_from(1)
        new_process()
        yield


def count_openings_from(number: int) -> None:
    """Let openings have the numbers that they have in any other recording of the same history."""
    global _openings, _boot
    _openings, _boot = itertools.count(number), number


_openings, _boot = itertools.count(1), 0


def new_process() -> None:
    """A process counts its temporary files from 0, and in a container it has the pid of the one before it. It begins
    with its machine."""
    global _boot
    _boot += 1
    disk_store._numbers = itertools.count()
    _Clock.ticks = itertools.count(0)
    _Impatient.now = 0.0
