"""Names of segments: `journal/000000000017.jsonl` is the one whose own first record is 17."""

from __future__ import annotations

import re

from ..store import Store

FOLDER = "journal"
_NAME = re.compile(r"journal/([0-9]{12})\.jsonl")


def segment_path(first_seq: int) -> str:
    return f"{FOLDER}/{first_seq:012d}.jsonl"


def segments(store: Store) -> list[int]:
    """The segments there are, by the seq of their first record, in order."""
    return [*sizes(store)]


def sizes(store: Store) -> dict[int, int]:
    """The same with their sizes in bytes, of one listing."""
    found = ((_NAME.fullmatch(entry.path), entry.size) for entry in store.list(FOLDER))
    return dict(sorted((int(match[1]), size) for match, size in found if match))
