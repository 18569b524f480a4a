"""Remove what a plan names, once the journal says so.

The record comes first. So a process that has lost the workspace meanwhile removes only what the journal has given up
already: the process that took it over has read that record. Then, each step durable before the next:

1. `journal/kept-SEQ`: from here on every reader begins after that record
2. checkpoints and files that refer to what goes
3. segments: in a bucket each only if it is as it was read, and never a fence
4. blobs and kept prompts, to which nothing refers any more

A crash in between leaves files that no reader needs; the next time removes them.
"""

from __future__ import annotations

from contextlib import suppress

from .. import journal
from ..base import SatchelError
from ..formats import Keep
from ..journal import Journal, Own
from ..journal.records import Pruned
from ..state import Moment
from ..store import FileChanged, Store
from ..views import Behind
from .planning import Facts, Plan, plan

RULE = "keep:"
"""Who prunes if no person does: the rules of workspace.yaml."""


def by_rule(found: Plan, by: str = RULE) -> Pruned:
    """The record."""
    return Pruned(by=by, up_to=found.up_to, base=found.base, files=found.counts, bytes=found.bytes)


def carry_out(store: Store, found: Plan) -> None:
    """Remove what the plan names. Its record is durable."""
    if found.old:
        journal.roll_kept(store, found.old)
    store.remove_many([entry.path for entry in found.files])
    store.settle(journal.CHECKPOINTS)  # one that a power failure brings back would refer to blobs that are gone
    for old in (found.old, found.left):
        if old:
            journal.remove_old(store, old)
    store.remove_many([entry.path for entry in found.last])


class Pruner:
    """Prunes an opened workspace in three steps, so that a step of the agent never waits for a request: look what may
    go, record that, and remove it once the record is durable. After an error everything stays as it is."""

    def __init__(self, store: Store, behind: Behind):
        self._store, self._behind = store, behind
        self._found: Plan | None = None
        self._recorded: tuple[int, Plan] | None = None  # the seq of its record
        self._rests = False

    def rest(self) -> None:
        """Look for nothing more: a person has just said what may go."""
        self._rests = True

    def look(self, moment: Moment, keep: Keep, own: Own | None, unused: int) -> None:
        if self._found or self._recorded or self._rests:
            return
        facts = Facts.of(moment)

        def look() -> None:
            with suppress(SatchelError, FileNotFoundError):
                self._found = plan(self._store, facts, keep, own, unused)

        self._behind.do(journal.FOLDER, look)

    def record(self, writer: Journal) -> None:
        if self._found:
            found, self._found = self._found, None
            self._recorded = writer.add(by_rule(found)), found
            writer.begin_generation()

    def remove(self, writer: Journal) -> None:
        """Call it when the journal was flushed."""
        if self._recorded is None or writer.durable_seq < self._recorded[0]:
            return
        found, self._recorded = self._recorded[1], None

        def remove() -> None:
            with suppress(SatchelError, FileNotFoundError, FileExistsError, FileChanged):
                carry_out(self._store, found)

        self._behind.do(journal.FOLDER, remove)
