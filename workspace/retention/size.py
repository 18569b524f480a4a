"""How large a run's past is."""

from __future__ import annotations

from typing import NamedTuple

from .. import journal
from ..state import Moment, blobs
from ..store import Entry, Store
from .old_files import DONE, files_below
from .planning import Facts


class Size(NamedTuple):
    """Of the files that `keep:` is about, and the first record that is kept."""

    files: int
    bytes: int
    kept_from: int


def size_of(store: Store, moment: Moment) -> Size:
    """By the listing that the store has. Without outputs, the conversation and what people have written."""
    found: list[Entry] = []
    for folder in (journal.FOLDER, journal.CHECKPOINTS, blobs.FOLDER, *DONE, *Facts.of(moment).recovered):
        found += files_below(store, folder)
    return Size(len(found), sum(entry.size for entry in found), journal.first_kept(store))
