"""`satchel.due`: what should run now below a root, for programs that start runs by an engine of their own."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from msgspec import Struct

from ...workspace.base import arguments
from ..status import resting_row, root_of
from ..supervision import Census, Known, Lookout, ServeEvent

_TURN = 1.0  # seconds after which it sees whether the time of a run has come
_DIGITS = 32


class DueRun(Struct, frozen=True):
    """A run that should be started now: `satchel.run(url)` does it, in any process that reaches the storage."""

    url: str
    folder: str  # as it was found below the root
    run_id: str
    group: str  # of workspace.yaml; empty: none
    priority: int
    why: str  # for people
    since: datetime  # when it became due
    signature: str  # a hash of the files that people and programs write; another one as soon as one of them changes
    opening: str  # the nonce of its last opening; empty for a new run

    @property
    def key(self) -> str:
        """A name for the task that starts it, of 32 hexadecimal digits: equal at each look and in each process until
        the run was opened or one of its files has changed."""
        return _hash([self.url, self.signature, self.opening])


class DueLook(Struct, frozen=True):
    """One look at a root: the `runs` that are due, those that have waited longest first, also those that an earlier
    look has told of and no process has started since. `next_at`: the earliest time at which another run becomes due,
    although no file changes until then; None if no run waits for a time."""

    runs: tuple[DueRun, ...]
    next_at: datetime | None


def due(
    root: str | os.PathLike[str],
    *,
    once: bool = False,
    tell: Callable[[ServeEvent], None] | None = None,
    census: Census | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AsyncGenerator[DueLook, None]:
    """Look at the runs below `root`, a folder or URL, again and again, and yield at each look those that should run
    now: `async for look in satchel.due(root)`.

    A run is due if `satchel serve` would start it: if it is new, was interrupted, or was answered or released, if its
    sleep or pause is over, or if it has a task. A run that a signal has paused is due, too, since it was the end of
    its worker. As `serve` does, this creates the due tasks of schedules. It takes no lock, runs no code of a run, and
    starts nothing.

    It looks each second on a disk, and every 4 seconds for each request of a listing in a bucket, and when a run's
    time has come. With `once` it ends as soon as a look leaves nothing in doubt: in a bucket it takes half a minute to
    see whether the process that a lease names is alive. A look that fails is made again, and until one succeeds `runs`
    are those of the last one that did. `tell` is called on the loop with what is wrong with a run or with the root, a
    `ServeEvent`. `census` is kept current with the numbers of all runs.

    Not guaranteed: that a run is due still when it is started. `satchel.run` and `run_async` look again: they refuse a
    run that another process has (`LeaseHeld`), and leave alone one that is completed, paused, waits or sleeps.

    UsageError if `root` is no folder, StorageFailed if a bucket does not answer at the beginning.
    """
    arguments.function("tell", tell)
    return _looks(arguments.place("root", root), once, tell or (lambda event: None), census, storage_options)


async def _looks(
    typed: str,
    once: bool,
    tell: Callable[[ServeEvent], None],
    census: Census | None,
    storage_options: Mapping[str, Any] | None,
) -> AsyncGenerator[DueLook, None]:
    events: list[ServeEvent] = []  # of a look, which another thread makes
    store = await asyncio.to_thread(root_of, typed, storage_options)
    where = typed if store is None else store.url
    lookout = Lookout(where, store, events.append, after_signals=True, census=census, row_of=resting_row)
    if once:
        lookout.index = None
    while True:
        if (look := lookout.next_look()) is not None:
            await asyncio.to_thread(look)
            for event in events:
                tell(event)
            events.clear()
            found = [*lookout.known.values()]
            waiting = sorted((each for each in found if each.due_since), key=lambda each: (each.due_since, each.folder))
            yield DueLook(
                (*map(_due_run, waiting),), min((at for known in found if (at := known.next_at)), default=None)
            )
            if once and not lookout.has_failed and not any(known.may_be_held for known in found):
                return
        await asyncio.sleep(max(0.0, min(lookout.looks_at - time.monotonic(), _TURN)))


def _due_run(known: Known) -> DueRun:
    return DueRun(
        url=known.store.url,
        folder=known.folder,
        run_id=known.run_id,
        group=known.group,
        priority=known.priority,
        why=known.verdict.why,
        since=datetime.fromtimestamp(known.due_since, UTC),
        signature=_hash(known.signature),
        opening=known.verdict.opening,
    )


def _hash(value: object) -> str:
    return sha256(json.dumps(value).encode()).hexdigest()[:_DIGITS]
