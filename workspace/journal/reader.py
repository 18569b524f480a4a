"""Read the records after a position, and find out whether a crash explains a bad end.

segment.py reads one segment. chain.py finds the segments with the needed records, and checks that they follow from one
another. histories.py explains what is there if they don't.

In a bucket not every object is what its name says. Names of rolled-up segments are free again, and a process that was
too late may have put its fence there. It is never the last by its name, because a roll-up keeps the last segment. Among
older ones it is recognised because nothing follows from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..base import Damaged
from ..store import Store
from .blobs import filled
from .chain import Chain
from .naming import FOLDER, first_kept, segment_path, segments, sizes
from .pruning import gone
from .records.line import FIRST, NO_CRC, Before, Line
from .segment import Misfit

_TRIES = 8


class Tail(Struct, frozen=True):
    """The records of the journal after some position."""

    lines: Sequence[Line]
    next_seq: int
    crc: str = NO_CRC  # of the record before `next_seq`
    last_segment: str | None = None
    good: bytes = b""  # the part of the last segment that was written whole
    torn: str | None = None  # what was cut off from it, for the report
    spoilt: int = 0  # a broken record up to that position, if one was found: nothing depends on it


def read(store: Store, *, after: int, before: Before = FIRST) -> Tail:
    """The records after position `after` (0: all). `before` is the content of record `after`, if it is known: a record
    with another crc belongs to another history. Changes nothing.

    Damaged if a record is missing, broken where a crash can't have broken it, or from another history.
    """
    for _ in range(_TRIES):
        try:
            return _read(store, after, before)
        except FileNotFoundError:  # its owner has rolled segments up meanwhile
            store.refresh()
            store.fetch(expected(store, after=after))  # at once, before the owner does it again
        except Damaged as error:
            if not store.abilities.remote or not _has_changed(store):
                from .histories import explained  # an undamaged journal needs no explanation

                raise (explained(store, error) if isinstance(error, Misfit) else error) from None
    return _read(store, after, before)


def expected(store: Store, *, after: int) -> list[str]:
    """The segments that reading will probably need, according to names and sizes: a segment followed by a larger one is
    probably repeated there."""
    found: list[str] = []
    newer = 0
    for first, size in reversed(sizes(store).items()):
        if size >= newer:
            found.append(segment_path(first))
        if first <= after + 1:
            break
        newer = size
    return found


def _has_changed(store: Store) -> bool:
    """Whether a new listing differs: one that was made during a roll-up may show neither the segments nor the object
    with their records."""
    before = [*store.list(FOLDER)]
    store.refresh()
    return [*store.list(FOLDER)] != before


def _read(store: Store, after: int, before: Before) -> Tail:
    firsts = segments(store)
    if after + 1 < (kept := first_kept(store)):
        raise gone(after + 1, kept)
    if not firsts:
        if after:
            raise Damaged(
                "the journal is missing",
                path=FOLDER,
                why=f"the newest checkpoint is at record {after}",
                remedy="copy the folder journal/ from the place where this workspace came from",
            )
        return Tail([], 1)
    chain = Chain(store, after, before)
    last = chain.read(firsts)
    lines = [filled(store, line) for line in chain.lines]
    return Tail(lines, chain.due, chain.crc, last.path, last.good, last.torn, chain.spoilt)


def mend(store: Store, tail: Tail) -> None:
    """Make the result of `read` durable, so that it can be trusted.

    What was read may have been only in the page cache, even after a failed fsync. So the last segment is not synced but
    written again. Where files are written whole or not at all, it can only be torn if it was copied torn.
    """
    if tail.last_segment is None or (tail.good and not tail.lines and not tail.torn):
        return  # a checkpoint that covers all of it is only written when it is durable
    if not store.abilities.append and not tail.torn:
        return
    if tail.good:
        store.replace(tail.last_segment, tail.good)
    else:
        store.remove(tail.last_segment)
