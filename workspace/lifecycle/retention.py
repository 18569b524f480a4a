"""What may be removed of a run's past, and removing it: `keep:` in workspace.yaml.

Effects, questions, answers and edits stay for ever (journal/segment.py), and whatever the run may still need. `plan`
finds what may go now. The record of that comes first. So a process that has lost the workspace meanwhile removes only
what the journal has given up already: the process that took it over has read that record. Then `carry_out` removes,
each step durable before the next: the old records, by `journal/kept-SEQ`, from which on every reader begins;
checkpoints and files that refer to what goes; segments, in a bucket each only if it is as it was read, and never a
fence; last the blobs and kept prompts to which nothing refers any more. A crash in between leaves files that no reader
needs; the next time removes them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from .. import journal
from ..base import InvalidFile, NewerFormat, SatchelError
from ..formats import Keep, Rule
from ..journal import Journal, OldSegments, Own, Pruned, blobs
from ..state import Moment, checkpoint, prompts
from ..store import Entry, FileChanged, Store
from ..views import Behind

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


ENOUGH, ENOUGH_FETCHED = 1 << 20, 256 << 10
"""So much of the journal must be old before a run prunes by itself: on a disk, and elsewhere."""

_MOST, _MOST_AT_ONCE = 8 << 20, 256 << 20
"""About so many bytes of the journal go at once, since they are read first: of a running run, and else."""


class Facts(Struct, frozen=True):
    """What a plan has to know of the run."""

    seq: int
    folders: Sequence[str]  # of the agents
    needed: Collection[str]  # files there that the next attempts of open calls will see

    @classmethod
    def of(cls, moment: Moment) -> Facts:
        scopes = (scope for agent in moment.agents.values() for scope in agent.scopes.values())
        needed = {each.file for scope in scopes for promoted in scope.promoted.values() for each in promoted}
        return cls(moment.seq, [agent.folder for agent in moment.agents.values()], needed)

    @property
    def recovered(self) -> list[str]:
        """The folders with rescued output."""
        return [f"{folder}recovered" for folder in self.folders]


class PrunePlan(Struct, frozen=True):
    """What may go. `up_to`: the journal up to this record; 0: nothing of it."""

    base: str = ""  # the checkpoint with which the kept journal begins
    old: OldSegments | None = None
    left: OldSegments | None = None  # of an earlier time that was interrupted
    files: Sequence[Entry] = ()
    last: Sequence[Entry] = ()  # blobs and prompts, to which nothing refers any more

    @property
    def up_to(self) -> int:
        return self.old.up_to if self.old else 0

    @property
    def paths(self) -> list[str]:
        """The files that go, in this order."""
        segments = [path for each in (self.old, self.left) if each for path in each.paths]
        return [*(entry.path for entry in self.files), *segments, *(entry.path for entry in self.last)]

    @property
    def counts(self) -> dict[str, int]:
        """How many files go, by folder."""
        return dict(sorted(Counter(_folder(path) for path in self.paths).items()))

    @property
    def bytes(self) -> int:
        segments = sum(each.size for each in (self.old, self.left) if each)
        return segments + sum(entry.size for entry in (*self.files, *self.last))


def _folder(path: str) -> str:
    """The folder for people: without those of single items; `.` is the workspace itself."""
    above, recovered, _ = path.rpartition("recovered/")
    return above + recovered.rstrip("/") if recovered else path.rpartition("/")[0] or "."


def plan(
    store: Store, facts: Facts, keep: Keep, own: Own | None, unused: int, *, all: bool = False
) -> PrunePlan | None:
    """What `keep` lets go; None if there is nothing. Reads the old part of the journal. Without `all`, only what is
    worth it. `own`: see `journal.old_segments`. `unused`: blobs with a lower mark may go."""
    old, base = _of_journal(store, facts.seq, keep, own, all=all)
    files = old_files(store, keep, facts.recovered, facts.needed, all=all)
    files += old_refused(store, keep.rejected, facts.folders, all=all)
    gone = {path for path in checkpoint.paths(store) if old is not None and path < base}
    if all:  # else the next checkpoint removes them
        gone.update(checkpoint.superfluous(store, keep, gone=gone, first=old.up_to + 1 if old else 0))
    files = [*_entries(store, gone), *files]
    left = journal.left_behind(store) if all or old else None
    found = PrunePlan(base if old else "", old, left, files)
    if all or old is not None:
        sizes = {entry.path: entry.size for entry in store.list(blobs.BLOBS)}
        read = {*found.paths, *(each.segment.path for each in old.segments)} if old else {*found.paths}
        last = [Entry(name, sizes[name]) for name in blobs.unused(store, unused, read, partial(_kept, old))]
        if all and store.abilities.lock:  # else another process may use one again, under the same name
            names = {*prompts.unused(store, read, partial(_kept, old))}
            last += [entry for entry in store.list(prompts.KEPT) if entry.path in names]
        found = PrunePlan(found.base, old, left, files, last)
    return found if found.paths or old else None


def _kept(old: OldSegments | None) -> bytes:
    return journal.kept_of(old) if old else b""


def replaced(store: Store, keep: Keep, found: PrunePlan, moment: Moment) -> list[Entry]:
    """The checkpoints that go when the plan was carried out and the run is closed: it then writes another one."""
    if moment.pause is not None and moment.pause.paused_at:
        return []  # the pause has written it
    gone, coming = {entry.path for entry in found.files}, checkpoint.path_of(moment, "stop", moment.seq + 1)
    first = found.up_to + 1 if found.old else 0
    return _entries(store, checkpoint.superfluous(store, keep, gone=gone, coming=[coming], first=first))


def _entries(store: Store, paths: Collection[str]) -> list[Entry]:
    return [entry for entry in store.list(journal.CHECKPOINTS) if entry.path in paths]


def _of_journal(store: Store, seq: int, keep: Keep, own: Own | None, *, all: bool) -> tuple[OldSegments | None, str]:
    """The segments that may go, and the checkpoint with which the journal then begins."""
    least = 1 if all else ENOUGH_FETCHED if store.abilities.remote else ENOUGH
    for path in _beginnings(store, seq, keep):
        if journal.old_bytes(store, checkpoint.position_of(path)) < least:
            break
        try:
            checkpoint.load(store, path)
        except (FileNotFoundError, ValueError, InvalidFile, NewerFormat):
            continue  # the journal can't begin with a damaged one
        most = _MOST_AT_ONCE if all else _MOST
        return journal.old_segments(store, min(checkpoint.position_of(path), seq - 1), own, most), path
    return None, ""


def _beginnings(store: Store, seq: int, keep: Keep) -> list[str]:
    """The checkpoints after which as much comes as is kept, newest first. None is newer than one that is kept for
    another reason."""
    known = checkpoint.paths(store)
    rule, ruled = keep.history, checkpoint.ruled(store, keep, known)
    if rule.keeps_all or not ruled:
        return []
    return [
        path
        for path in reversed(known)
        if path <= ruled[0]
        and checkpoint.is_good(path)
        and seq - checkpoint.position_of(path) >= rule.number
        and (not rule.age or checkpoint.age_of(store, path) >= rule.age)
    ]


RULE = "keep:"
"""Who prunes if no person does: the rules of workspace.yaml."""


def by_rule(found: PrunePlan, by: str = RULE) -> Pruned:
    """The record."""
    return Pruned(by=by, up_to=found.up_to, base=found.base, files=found.counts, bytes=found.bytes)


def carry_out(store: Store, found: PrunePlan) -> None:
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
        self._found: PrunePlan | None = None
        self._recorded: tuple[int, PrunePlan] | None = None  # the seq of its record
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


class Size(NamedTuple):
    """Of the files that `keep:` is about, and the first record that is kept."""

    files: int
    bytes: int
    kept_from: int


def size_of(store: Store, moment: Moment) -> Size:
    """By the listing that the store has. Without outputs, the conversation and what people have written."""
    found: list[Entry] = []
    for folder in (journal.FOLDER, journal.CHECKPOINTS, blobs.BLOBS, *DONE, *Facts.of(moment).recovered):
        found += files_below(store, folder)
    return Size(len(found), sum(entry.size for entry in found), journal.first_kept(store))
