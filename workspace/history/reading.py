"""The records of a run, as far as they can be read, also while a process runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from .. import journal
from ..base import DEFINITION, Damaged, InvalidFile, NewerFormat, SatchelError
from ..inspect import define, signature
from ..journal import gone as gone
from ..journal.records import NO_CRC, Before, Line, parse_each
from ..state import Moment, checkpoint
from ..store import Store

T = TypeVar("T")
_LOOKS = 8
_READ_LIMIT = 1 << 30


class Records(Struct, frozen=True):
    """Records of a run, oldest first. Each follows from the one before it."""

    lines: Sequence[Line]
    problem: SatchelError | None = None  # why later ones can't be read; a torn end is no problem

    @property
    def first(self) -> int:
        """The oldest record; 1 if there are none."""
        return self.lines[0].seq if self.lines else 1

    @property
    def last(self) -> int:
        """The newest record; 0 if there are none."""
        return self.lines[-1].seq if self.lines else 0

    def after(self, moment: Moment | None) -> Records | None:
        """Those after a moment, or all of a run that begins with the first; None if some are missing."""
        at = moment.seq + 1 - self.first if moment is not None else 0
        if at < 0 or (moment is None and self.first > 1):
            return None
        if moment is not None and (at >= len(self.lines) or self.lines[at].prev != moment.crc):
            return None  # they may be of another history
        return Records(self.lines[at:], self.problem)


def records_of(store: Store) -> Records:
    """All records that the journal still has: from the first that retention has kept to the newest, or to the one
    before the first that is damaged. UsageError if there is no workspace, or if the run has moved away."""
    return steadily(store, lambda: read(store))


def steadily(store: Store, make: Callable[[], T]) -> T:
    """What `make` returns, from files that belong together. A process that runs the workspace may remove a checkpoint,
    or segments that it has rolled up, between two reads; then `make` is called again."""
    store.refresh()
    with suppress(InvalidFile, NewerFormat):  # a mistake in it is no reason not to look back
        define(store)
    for _ in range(_LOOKS):
        before = signature(store)
        try:
            return make()
        except (Damaged, FileNotFoundError):
            store.refresh()
            if signature(store) == before:
                raise
    return make()


def read(store: Store, after: int | None = None, before: Before | None = None) -> Records:
    """The records after record `after`, which has the content `before`; None: all that the journal still has."""
    due = _first(store) if after is None else after + 1
    if is_unopened_fork(store):
        return Records(())
    store.fetch([DEFINITION, *journal.expected(store, after=due - 1)])
    try:
        known = before or Before()
        return Records(journal.read(store, after=due - 1, before=known).lines)
    except Damaged as error:
        return Records(_readable(store, due, before.crc if before else NO_CRC if due == 1 else ""), error)


def is_unopened_fork(store: Store) -> bool:
    """Whether this is a fork without a record of its own: its first opening begins its journal."""
    newest = [*map(checkpoint.position_of, checkpoint.paths(store))][-1:]
    return not journal.segments(store) and newest == [journal.first_kept(store) - 1]


def _readable(store: Store, due: int, crc: str) -> list[Line]:
    """The records from `due` on, up to the first that is damaged or missing. `crc`: of the one before, if known."""
    lines: list[Line] = []
    for path in map(journal.segment_path, journal.segments(store)):
        with suppress(InvalidFile, NewerFormat, Damaged):
            for line in parse_each(store.read(path, limit=_READ_LIMIT).data.split(b"\n")[:-1]):
                if line is not None and line.seq == due and (not crc or line.prev == crc):
                    lines.append(journal.filled(store, line))
                    due, crc = line.seq + 1, line.crc
    return lines


def kept_from(store: Store) -> int:
    """The first record from which on the state at every record can be made. Of earlier ones only those of checkpoints
    can still be."""
    first = _first(store)
    if first == 1:
        return 1
    return min((seq for seq in map(checkpoint.position_of, checkpoint.paths(store)) if seq >= first - 1), default=first)


def is_whole(store: Store) -> bool:
    """Whether the journal begins with record 1. It does not after a pruning, nor of a fork, which may begin right after
    record 1: then the state there is that of a checkpoint, and `kept_from` is 1, too."""
    return _first(store) == 1


def _first(store: Store) -> int:
    """The first record of the journal. One without any segment begins where the kept records end."""
    return next(iter(journal.segments(store)), journal.first_kept(store))
