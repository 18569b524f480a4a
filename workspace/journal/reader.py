"""Reads the journal: what it holds after some position, and whether a crash explains what is wrong with its end.

    segment.py    what one segment holds
    chain.py      which segments hold the records that are needed, and whether they follow from one another
    histories.py  what lies there if they don't

In a bucket not every object is what its name promises. Where segments were rolled up their names are free again, and a
fence may lie there of a process that looked before and was too late. It is never the last by its name, because a
roll-up leaves the last segment where it is; among older ones it is known by this: nothing follows from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..base import Damaged
from ..store import Store
from .chain import Chain
from .histories import explained
from .naming import FOLDER, segment_path, segments, sizes
from .records.line import NO_CRC, Line
from .segment import Misfit

_TRIES = 8


class Tail(Struct, frozen=True):
    """What the journal holds after some position."""

    lines: Sequence[Line]
    next_seq: int
    crc: str = NO_CRC  # of the record before `next_seq`
    last_segment: str | None = None
    good: bytes = b""  # the part of the last segment that was written whole
    torn: str | None = None  # what was cut off from it, for the report
    spoilt: int = 0  # a broken record up to that position, if one was met: nothing depends on it


def read(store: Store, *, after: int, crc: str = "") -> Tail:
    """The records behind position `after` (0: all). `crc` is what record `after` must have, if that is known. Changes
    nothing.

    Damaged if a record is missing, or broken where a crash can't have broken it, or of another history.
    """
    for _ in range(_TRIES):
        try:
            return _read(store, after, crc)
        except FileNotFoundError:  # its owner has rolled segments up meanwhile
            store.refresh()
        except Damaged as error:
            if not store.abilities.remote or not _has_changed(store):
                raise (explained(store, error) if isinstance(error, Misfit) else error) from None
    return _read(store, after, crc)


def expected(store: Store, *, after: int) -> list[str]:
    """The segments that reading will probably ask for, as far as names and sizes tell: one that is followed by a larger
    one is likely to be repeated there."""
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
    """Whether a new listing tells something else: one that was taken while segments were rolled up may show neither
    them nor what they were rolled up into."""
    before = [*store.list(FOLDER)]
    store.refresh()
    return [*store.list(FOLDER)] != before


def _read(store: Store, after: int, crc: str) -> Tail:
    firsts = segments(store)
    if not firsts:
        if after:
            raise Damaged(
                "the journal is gone", path=FOLDER, why=f"the newest checkpoint stands at record {after}",
                remedy="copy the folder journal/ back from where this workspace came from",
            )  # fmt: skip
        return Tail([], 1)
    chain = Chain(store, after, crc)
    last = chain.read(firsts)
    return Tail(chain.lines, chain.due, chain.crc, last.path, last.good, last.torn, chain.spoilt)


def mend(store: Store, tail: Tail) -> None:
    """Make what `read` has found durable, so that it can be trusted.

    What was read may only have been in the page cache, even after an fsync that failed; so the last segment is not
    synced but written anew. Where files are written whole or not at all, it is only torn if it was copied torn.
    """
    if tail.last_segment is None or (tail.good and not tail.lines and not tail.torn):
        return  # a checkpoint that covers all of it was written only when it was durable
    if not store.abilities.append and not tail.torn:
        return
    if tail.good:
        store.replace(tail.last_segment, tail.good)
    else:
        store.remove(tail.last_segment)
