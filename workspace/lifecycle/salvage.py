"""Promote what a crash left in partials/ to recovered/, where the next attempt can see it.

The recovered file is durable before the record that points to it, and the record before the partial is removed. A
partial that comes back after a power failure is recognised by its attempt.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from ..base import fitting
from ..journal.records import PartialPromoted
from ..state import Moment
from ..store import Store, read_if_there
from ..views import PartialHead, partial_files

_READ_LIMIT = 64 << 20


class Leftover(NamedTuple):
    """A file in partials/, and what to do with it."""

    path: str
    head: PartialHead | None  # None: not even its head can be read
    text: str
    damaged: bool
    stale: bool  # its step has an outcome, or it was promoted before
    edited: bool = False  # a person has changed the text


def leftovers(store: Store, moment: Moment) -> Iterator[Leftover]:
    """The files in partials/. Changes nothing. A process that works may remove one between the listing and the reading:
    its step has returned, and it is passed over."""
    for agent in moment.agents.values():
        for folder in store.folders(f"{agent.folder}{partial_files.PARTIALS}"):
            for entry in store.list(folder):
                found = read_if_there(store, entry.path, limit=_READ_LIMIT)
                if found is None:
                    continue
                data = found.data
                parsed = partial_files.parse_partial(data)
                if parsed is None:
                    text = data.decode(errors="ignore").strip("\0")
                    yield Leftover(entry.path, None, text, True, stale=not text.strip())
                else:
                    head, text, damaged, edited = parsed
                    yield Leftover(entry.path, head, text, damaged, _is_stale(head, moment), edited)


def promote(store: Store, leftover: Leftover, moment: Moment, by: str) -> PartialPromoted | None:
    """Write the recovered file, durably, and return the record to commit before `store.remove(leftover.path)`.

    None if nothing points to it: the file is stale, or so damaged that its call is unknown (then it is kept in
    recovered/ for people).
    """
    head = leftover.head
    if leftover.stale:
        return None
    if head is None:
        folder, _, name = leftover.path.rpartition("/")
        above, _, scope = folder.rpartition("/")
        text = leftover.text.encode()
        end = f"-{zlib.crc32(text):08x}-damaged.md"  # next to those of earlier crashes
        kept = fitting(name.removesuffix(".md"), end) + end
        store.replace(f"{above.removesuffix(partial_files.PARTIALS)}{partial_files.RECOVERED}/{scope}/{kept}", text)
        return None
    agent = moment.agents[head.agent]
    title = agent.scopes[head.scope].title
    path = partial_files.recovered_path(agent.folder, head.scope, title, head.no, head.step, head.attempt)
    data, record = partial_files.promotion(head, leftover.text, leftover.damaged, by, path, edited=leftover.edited)
    store.replace(path, data)
    return record


def describe(leftover: Leftover) -> str:
    if leftover.head is None:
        return f"{leftover.path} is too damaged to tell which step wrote it"
    how = ""
    if leftover.edited:
        how = ", as a person has edited it"
    elif leftover.damaged and len(leftover.text) < leftover.head.characters:
        how = f", damaged: it had {leftover.head.characters}"
    elif leftover.damaged:
        how = ", damaged"
    return f"{leftover.path}: {len(leftover.text)} characters of an unfinished answer{how}"


def _is_stale(head: PartialHead, moment: Moment) -> bool:
    agent = moment.agents.get(head.agent)
    scope = agent.scopes.get(head.scope) if agent else None
    if scope is None or head.run_id != moment.run_id or head.key in scope.done:
        return True
    promoted = scope.promoted.get(head.key, ())
    return any(record.attempt >= head.attempt for record in promoted)
