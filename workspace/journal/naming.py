"""Names of segments, of checkpoints and of openings.

`journal/000000000017.jsonl` is the segment whose own first record is 17. `checkpoints/000000000017-NAME.json` is a
checkpoint of the state after record 17. `journal/kept-000000000016.jsonl` says that the records up to 16 are pruned
(kept.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from ..store import Entry, Store

FOLDER = "journal"
CHECKPOINTS = "checkpoints"
_NAME = re.compile(r"journal/([0-9]{12})\.jsonl")
_KEPT = re.compile(r"journal/kept-([0-9]{12})\.jsonl")
_CHECKPOINT = re.compile(r"checkpoints/([0-9]{12})(-[a-z0-9_-]+)?\.json")


def new_opening() -> str:
    """A unique nonce for an opening."""
    return os.urandom(8).hex()


def segment_path(first_seq: int) -> str:
    return f"{FOLDER}/{first_seq:012d}.jsonl"


def first_of(path: str) -> int:
    """The record in the name of a segment; 0 if the name is none."""
    match = _NAME.fullmatch(path)
    return int(match[1]) if match else 0


def segments(store: Store) -> list[int]:
    """The segments by the seq of their first record, in order."""
    return [*sizes(store)]


def sizes(store: Store, *, pruned: bool = False) -> dict[int, int]:
    """The same with their sizes in bytes, from one listing. With `pruned`, also those whose records are pruned, as
    far as they are still there."""
    entries = [*store.list(FOLDER)]
    least = 1 if pruned else _first_kept(entries)
    found = ((first_of(entry.path), entry.size) for entry in entries)
    return dict(sorted((first, size) for first, size in found if first >= least))


def first_kept(store: Store) -> int:
    """The first record that is not pruned. 1 if none is."""
    return _first_kept(store.list(FOLDER))


def _first_kept(entries: Iterable[Entry]) -> int:
    return max((int(match[1]) for entry in entries if (match := _KEPT.fullmatch(entry.path))), default=0) + 1


def kept_files(store: Store) -> list[int]:
    """The last pruned record of each file of kept records, in order."""
    return sorted(int(match[1]) for entry in store.list(FOLDER) if (match := _KEPT.fullmatch(entry.path)))


def checkpoint_position(path: str) -> int | None:
    """The record of a checkpoint, by its name; None if it is no checkpoint."""
    match = _CHECKPOINT.fullmatch(path)
    return int(match[1]) if match else None
