"""What of a run's past may go now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial

from msgspec import Struct

from .. import journal
from ..base import InvalidFile, NewerFormat
from ..formats import Keep
from ..journal import OldSegments, Own
from ..state import Moment, blobs, checkpoint, prompts
from ..store import Entry, Store
from .old_files import old_files, old_refused

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


class Plan(Struct, frozen=True):
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


def plan(store: Store, facts: Facts, keep: Keep, own: Own | None, unused: int, *, all: bool = False) -> Plan | None:
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
    found = Plan(base if old else "", old, left, files)
    if all or old is not None:
        sizes = {entry.path: entry.size for entry in store.list(blobs.FOLDER)}
        read = {*found.paths, *(each.segment.path for each in old.segments)} if old else {*found.paths}
        last = [Entry(name, sizes[name]) for name in blobs.unused(store, unused, read, partial(_kept, old))]
        if all and store.abilities.lock:  # else another process may use one again, under the same name
            names = {*prompts.unused(store, read, partial(_kept, old))}
            last += [entry for entry in store.list(prompts.KEPT) if entry.path in names]
        found = Plan(found.base, old, left, files, last)
    return found if found.paths or old else None


def _kept(old: OldSegments | None) -> bytes:
    return journal.kept_of(old) if old else b""


def replaced(store: Store, keep: Keep, found: Plan, moment: Moment) -> list[Entry]:
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
