"""One run kept current for screens that stay open: its status, its latest records, and the text that is streamed."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from ...workspace import journal
from ...workspace.base import SatchelError, StorageFailed
from ...workspace.history import read
from ...workspace.inbound import APPROVALS, INBOX
from ...workspace.inspect import lease, signature
from ...workspace.journal import Line, first_kept, segments
from ...workspace.lifecycle import recovery
from ...workspace.views import PARTIALS, running_file
from ..status import REMOTE_LOOK, LogRow, RunStatus
from .handle import Handle

ROWS = 200
"""Records that are kept of a run, from its end."""

_LOOK = 0.2
"""Seconds between two looks on a disk."""

_SHARE = 4
"""A look is followed by a rest that is so many times as long."""


class Shot(Struct, frozen=True):
    """A run at one look.

    `rows` are its last records, oldest first, as many as were asked for. `number` is another one if the status or the
    records have changed since an earlier look, and `text` if the streamed text (`status.streams`) has. If the storage
    does not answer, `problem` says why, and the rest is that of the look before.
    """

    status: RunStatus
    rows: tuple[LogRow, ...]
    number: int
    text: int
    problem: SatchelError | None = None


class Latest:
    """The newest state of a run. `look` reads only what has changed; `rest` says how long to wait before the next look.

    For one thread at a time. `look` raises only for a run that can't be found or reached at the first look.
    `rows`: how many of its last records are kept. Not noticed as a change: edits of the files of sub-agents and in
    `steps/`.
    """

    def __init__(self, handle: Handle, *, rows: int = ROWS):
        self._handle, self._store = handle, handle.store
        self._rows: deque[LogRow] = deque(maxlen=rows)
        self._last: Line | None = None
        self._signs: object = None
        self._partials: object = None
        self._shot: Shot | None = None
        self._took = 0.0

    @property
    def rest(self) -> float:
        """Seconds to wait before the next look: longer if a look takes long or costs requests."""
        return max(REMOTE_LOOK if self._store.abilities.remote else _LOOK, _SHARE * self._took)

    def look(self, *, whole: bool = False) -> Shot:
        """The run as it is now. `whole`: read its status although nothing seems to have changed."""
        began = time.monotonic()
        if whole:
            self._signs = None
        try:
            self._shot = self._look()
        except (SatchelError, OSError) as error:
            if self._shot is None:
                raise
            ours = error if isinstance(error, SatchelError) else StorageFailed("can't be read", why=str(error))
            self._shot, self._signs = replace(self._shot, problem=ours), None
        self._took = time.monotonic() - began
        return self._shot

    def _look(self) -> Shot:
        before = self._shot
        self._store.refresh()
        signs, partials = self._signs_of_all(), self._signs_of_text()
        if before is None or signs != self._signs:
            status = self._handle.status()
            if before is not None and status.moment is None and isinstance(status.problem, StorageFailed):
                raise status.problem  # nothing of the run could be read
            if status.plan:
                status.plan.next_to_do()  # parsed now: not each of several readers may do that
            self._read_rows(status)
            if isinstance(status.problem, StorageFailed):
                signs = None  # it may answer the next time, though nothing has changed
            shot = Shot(status, tuple(self._rows), before.number + 1 if before else 1, before.text + 1 if before else 1)
        elif partials != self._partials and before.status.moment is not None:
            found = recovery.leftovers(self._store, before.status.moment)
            before.status.streams = [each for each in found if not each.stale]
            shot = replace(before, text=before.text + 1, problem=None)
        else:
            shot = replace(before, problem=None) if before.problem else before
        self._signs, self._partials = signs, partials
        return shot

    def _signs_of_all(self) -> object:
        """Equal as long as the status is the same."""
        store = self._store
        files = [(each.path, store.version(each.path)) for part in ("", APPROVALS, INBOX) for each in store.list(part)]
        return signature(store), lease.holder(store), store.version(running_file.PATH), files

    def _signs_of_text(self) -> object:
        agents = self._shot.status.moment.agents.values() if self._shot and self._shot.status.moment else ()
        folders = [each for agent in agents for each in self._store.folders(f"{agent.folder}{PARTIALS}")]
        return [each for folder in folders for each in self._store.list(folder)]

    def _read_rows(self, status: RunStatus) -> None:
        """The records since the last look; the last ones, if this is the first, or if the run was replaced."""
        newest = status.moment.seq if status.moment else 0
        if self._last is None or newest < self._last.seq:
            self._rows.clear()
            after, before = max(first_kept(self._store) - 1, newest - (self._rows.maxlen or 0), 0), None
        else:
            after, before = self._last.seq, self._last.before
        with suppress(SatchelError, OSError):  # the status says what is wrong with it
            for line in read(self._store, after, before).lines:
                self._rows.append(LogRow(journal.full(line), line))
                self._last = line


def records_before(handle: Handle, before: int | None, most: int) -> tuple[list[LogRow], SatchelError | None]:
    """The last records before record `before` (None: the newest), oldest first, at most `most`; and why later ones
    can't be read. Reads only the segments from there on."""
    store = handle.store
    store.refresh()
    begin = before if before is not None else (segments(store) or [1])[-1]
    after = max(begin - 1 - most, first_kept(store) - 1, 0)
    found = read(store, after)
    lines = [line for line in found.lines if before is None or line.seq < before][-most:]
    return [LogRow(journal.full(line), line) for line in lines], found.problem
