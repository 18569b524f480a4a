"""Files of finished work that a rule does not keep: rescued output, and the files of finished tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..formats import Keep, Rule
from ..state import checkpoint
from ..store import Entry, Store

DONE = ("inbox/done", "inbox/moved")
_SHARE = 10


def old_files(
    store: Store, keep: Keep, recovered: Collection[str], needed: Collection[str], *, all: bool
) -> list[Entry]:
    """What may go of `inbox/` and of the folders `recovered`, apart from the files that are `needed`. Without `all`
    only if it is more than a tenth of what is kept, so that not every file is a record."""
    found: list[Entry] = []
    for folder, rule in (*((each, keep.inbox) for each in DONE), *((each, keep.recovered) for each in recovered)):
        surplus = [entry for entry in _beyond(store, [*files_below(store, folder)], rule) if entry.path not in needed]
        if all or len(surplus) > rule.number // _SHARE:
            found += surplus
    return found


def files_below(store: Store, folder: str) -> Iterator[Entry]:
    """The files in a folder and in the folders directly in it."""
    yield from store.list(folder)
    for below in store.folders(folder):
        yield from store.list(below)


def _beyond(store: Store, entries: list[Entry], rule: Rule) -> list[Entry]:
    """The files that the rule does not keep."""
    if rule.keeps_all or len(entries) <= rule.number:
        return []
    newest_first = sorted((checkpoint.age_of(store, entry.path), entry) for entry in entries)
    return [entry for age, entry in newest_first[rule.number :] if age > rule.age]
