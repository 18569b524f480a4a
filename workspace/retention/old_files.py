"""Files that a rule does not keep: rescued output, the files of finished tasks, and refused edits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from ..formats import Keep, Rule
from ..state import checkpoint
from ..store import Entry, Store

DONE = ("inbox/done", "inbox/moved")
_SHARE = 10
_REFUSED = re.compile(r"(.*\.rejected(?:-[0-9]+)?)(?:\.[^/]*)?\Z", re.DOTALL)


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


def old_refused(store: Store, rule: Rule, folders: Sequence[str], *, all: bool) -> list[Entry]:
    """The refused edits beyond the rule, with their reasons. `folders`: those of the agents; `all` as above."""
    if rule.keeps_all:
        return []
    steps = (below for folder in folders for below in store.folders(f"{folder}steps"))
    found: dict[str, list[Entry]] = {}
    for place in ("approvals", "inbox", *(folder.rstrip("/") for folder in folders), *steps):
        for entry in store.list(place):
            if match := _REFUSED.match(entry.path):
                found.setdefault(match[1], []).append(entry)
    edits = {name: entries for name, entries in found.items() if len(entries) > 1}  # a version and its reasons
    newest = [min(entries, key=lambda entry: checkpoint.age_of(store, entry.path)) for entries in edits.values()]
    surplus = {_name_of(entry) for entry in _beyond(store, newest, rule)}
    if not all and len(surplus) <= rule.number // _SHARE:
        return []
    # The reasons first: without them a version that a crash leaves is no open matter for `status`.
    return [
        entry
        for name in sorted(surplus)
        for entry in sorted(edits[name], key=lambda entry: not entry.path.endswith(".txt"))
    ]


def _name_of(entry: Entry) -> str:
    match = _REFUSED.match(entry.path)
    assert match is not None
    return match[1]


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
