"""The events of a run, read from its storage, by any process on any machine that can read it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator

from ...workspace import journal
from ...workspace.inspect import define
from ...workspace.journal.records import Before
from ...workspace.state import OVER, checkpoint, folder_of_agent
from ...workspace.store import Entry, Store
from ...workspace.views import PARTIALS, partial_files
from .events import Event, Teller
from .place import REMOTE_LOOK, Place

_LOOK = 0.1
"""Seconds between two looks on a disk."""

_SHARE = 4
"""A look is followed by a rest that is so many times as long, whatever it has cost."""

_READ_LIMIT = 64 << 20


async def follow(place: Place, after: int, *, follows: bool) -> AsyncGenerator[Event, None]:
    """The events after record `after`. With `follows` also those to come, until the run is over for good."""
    store = place.store_of_a_run()  # its own where it has a listing: it is used in other threads
    follower = _Follower(store, after)
    await asyncio.to_thread(define, store)  # UsageError if there is no workspace
    shortest = REMOTE_LOOK if store.abilities.remote else _LOOK
    while True:
        began = time.monotonic()
        found = await asyncio.to_thread(follower.look, follows)
        took = time.monotonic() - began
        for event in found:
            yield event
        if not follows or follower.is_over:
            return
        await asyncio.sleep(max(shortest, _SHARE * took))


class _Follower:
    """What was read so far."""

    def __init__(self, store: Store, after: int):
        self._store, self._after = store, after
        self._teller = Teller()
        self._before = Before()
        self._sizes: dict[int, int] | None = None
        self._partials: dict[str, tuple[Entry, int, str]] = {}  # with the attempt and the text that was told

    @property
    def is_over(self) -> bool:
        """Whether the run is completed or cancelled."""
        return self._teller.status in OVER

    def look(self, streams: bool) -> list[Event]:
        """The events since the last look. In a thread."""
        self._store.refresh()
        # First the text: what has returned meanwhile is told after it.
        found: list[Event] = [*self._tokens()] if streams else []
        sizes = journal.sizes(self._store)
        if sizes == self._sizes:
            return found
        if not self._teller.seq:
            self._begin()
        for line in journal.read(self._store, after=self._teller.seq, before=self._before).lines:
            found += [event for event in self._teller.of(line) if event.seq > self._after]
            self._before = line.before
        self._sizes = sizes
        return found

    def _begin(self) -> None:
        """Where the journal does: with a checkpoint, if older records are pruned."""
        kept = journal.first_kept(self._store)
        paths = [path for path in checkpoint.paths(self._store) if checkpoint.position_of(path) >= kept - 1]
        if kept == 1 or not paths:
            return
        moment, _ = checkpoint.load(self._store, paths[0])
        if self._after and self._after < moment.seq:
            raise journal.gone(self._after + 1, moment.seq + 1)
        self._teller, self._before = Teller(moment), moment.before

    def _tokens(self) -> Iterator[Event]:
        there = set()
        for agent in self._teller.agents:
            for folder in self._store.folders(f"{folder_of_agent(agent)}{PARTIALS}"):
                for entry in self._store.list(folder):
                    there.add(entry.path)
                    yield from self._tokens_of(entry)
        for path in self._partials.keys() - there:
            del self._partials[path]

    def _tokens_of(self, entry: Entry) -> Iterator[Event]:
        known, attempt, told = self._partials.get(entry.path, (None, 0, ""))
        if entry == known:
            return
        try:
            parsed = partial_files.parse_partial(self._store.read(entry.path, limit=_READ_LIMIT).data)
        except FileNotFoundError:
            return  # its step has returned meanwhile
        if parsed is None or parsed.damaged or parsed.edited:
            return  # a crash has left it, or a person has saved it: the next opening says what of it counts
        head, text = parsed.head, parsed.text
        begins = len(told) if head.attempt == attempt and text.startswith(told) else 0
        self._partials[entry.path] = entry, head.attempt, text
        yield from self._teller.tokens(head, text[begins:], begins)
