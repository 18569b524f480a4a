"""Makes a recording depend on nothing but its seed: not on the time, the process, or how fast the machine is.

Also makes the journal's promise visible: each time it says that records are durable, that is acknowledged in the log.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from waits import NOBODY_SAVES

from satchel.runtime.agent import dependencies
from satchel.runtime.engine import effects, pace, performing, scope
from satchel.runtime.steps import partial as streaming
from satchel.workspace.formats import definition
from satchel.workspace.journal import Journal, append_log, merging
from satchel.workspace.journal.records import line
from satchel.workspace.lifecycle import acquire, checkpoint_due, opening
from satchel.workspace.store.disk import store
from satchel.workspace.views import stable_read
from satchel.workspace.views.projector import Projector

from .memory import Memory
from .witness import Durable

SEGMENT_BYTES = 3000
"""Small, so that segments rotate and checkpoints fall due within a few items."""


class _Clock(datetime):
    ticks = itertools.count()

    @classmethod
    def now(cls, tz: Any = None) -> _Clock:
        return cls(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=next(cls.ticks))


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
    with ExitStack() as patches:
        for target, name, value in (
            (line, "datetime", _Clock),
            (opening, "Projector", partial(Projector, clock=lambda: 0.0)),
            (checkpoint_due, "REREAD_BYTES", SEGMENT_BYTES),
            (append_log, "SEGMENT_BYTES", SEGMENT_BYTES),
            (merging, "MANY", 2),
            (Journal, "flush", flush_and_tell),
            (pace, "ALONE_AFTER", 1e9),  # a commit travels until there is company
            (streaming, "time", stopped),  # so no partial is synced; play.py syncs some
            (scope, "time", stopped),
            (performing, "time", stopped),
            (effects, "time", stopped),
            (store.os, "getpid", lambda: 4242),
            (stable_read, "WAITS", NOBODY_SAVES),  # nobody is in the middle of saving
            (definition, "parse", cache(definition.parse)),  # none of the workloads changes it
            (dependencies, "of", cache(dependencies.of)),
            (opening, "secrets", SimpleNamespace(token_hex=lambda size: "5a" * size)),
            (acquire, "new_opening", map("{:016x}".format, itertools.count(1)).__next__),
        ):
            patches.enter_context(mock.patch.object(target, name, value))
        new_process()
        yield


def new_process() -> None:
    """A process counts its temporary files from 0, and in a container it has the pid of the one before it."""
    store._numbers = itertools.count()
    _Clock.ticks = itertools.count(0)
