"""What the storage of a workspace can do, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....workspace.store import Abilities


def as_json(can: Abilities, *, locks_fail: bool = False) -> dict[str, Any]:
    stated = can._replace(lock=False) if locks_fail else can
    return {**stated._asdict(), "in_words": list(in_words(can, locks_fail=locks_fail))}


def in_words(can: Abilities, *, locks_fail: bool = False) -> Iterator[str]:
    """One line each. `locks_fail`: the storage refused a lock."""
    if locks_fail:
        yield "one writer: not guaranteed, because files can't be locked there; no run starts"
    elif can.lock:
        yield "one writer: guaranteed by a lock of the file system"
    elif can.exclusive_create and can.conditional_replace:
        yield "one writer: guaranteed by conditional writes"
    elif can.exclusive_create:
        yield "one writer: guaranteed by files that only one can create; the heartbeat is advisory"
    else:
        yield "one writer: advisory: if two processes create a file at once, neither notices; let only one run it"
    if can.conditional_replace:
        yield "edits: a file that you save is never overwritten"
    else:
        yield "edits: if you save a file at the moment when the run writes it, your edit may be lost"
    yield "journal: one file grows" if can.append else "journal: one object for each group of records"
    yield "changes: noticed at once" if can.notice else "changes: noticed every few seconds"
