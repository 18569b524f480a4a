"""Cut the end off a journal that can't be opened, and keep the removed part.

For a person without a backup. Everything after the last good record is forgotten: items and tasks of the inbox are done
again, and so are effects, which are named first.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import Struct

from .. import journal
from ..base import Damaged, Refused, UsageError, read_json, read_markdown
from ..inbound import archive
from ..inspect import define, lease
from ..journal import Line, StepCompleted, StepStarted, TaskTaken, as_it_says, parse_each
from ..state import Moment, checkpoint
from ..store import LARGE_LIMIT, Store, read_if_there
from ..views import checkpoint_folder, projection
from .adopt import judge

KEPT = "cut-off"
"""The folder for removed parts, with one folder for each time."""


class Truncation(Struct, frozen=True):
    """The plan of a cut. `segments` are those that change, with the part that stays."""

    seq: int
    records: int  # readable records that are cut off
    effects: tuple[str, ...]  # effects that were done, or begun, in the removed part
    tasks: tuple[TaskTaken, ...]  # tasks of the inbox that were taken in the removed part
    lost: tuple[str, ...]  # the files of others, which are gone
    segments: dict[str, bytes]
    others: tuple[str, ...]  # checkpoints and readable files of a later moment

    @property
    def says(self) -> str:
        return f"the journal was cut off after record {self.seq}"


def plan(store: Store, seq: int) -> Truncation:
    """What cutting everything after record `seq` takes. Changes nothing. Damaged if the part before is not sound."""
    if type(seq) is not int:  # True would be record 1
        raise UsageError(
            f"the journal can't be cut off at {seq!r}",
            path=store.url,
            remedy="give the number of the last good record, or what `plan_cut` has returned",
        )
    if store.abilities.remote:
        raise Refused(
            "the journal can't be cut off in a bucket",
            path=store.url,
            why="its objects keep other writers out, and must stay",
            remedy="download the folder, cut the journal off there, and upload it to a new place",
        )
    if 0 < seq < (kept_from := journal.first_kept(store)):
        raise journal.gone(seq, kept_from)
    parts = _divided(store, seq)
    moment = _moment_at(store, seq, parts.kept)
    later = [path for path in checkpoint.paths(store) if checkpoint.position_of(path) > seq]
    others = (*later, *_ahead(store, seq))
    if not parts.segments and not others:  # a power failure may have undone the removal of these only
        raise UsageError(f"there is nothing after record {seq} of the journal", path=store.url)
    effects = [line.record for line in parts.cut.values() if isinstance(line.record, StepStarted | StepCompleted)]
    effects += parts.doubtful
    names = dict.fromkeys(f"{each.step}{each.call}" for each in effects if isinstance(each, StepStarted) or each.effect)
    taken = (line.record for line in parts.cut.values() if isinstance(line.record, TaskTaken))
    tasks = {task.id: task for task in taken if task.id not in moment.tasks and not task.handed_to}
    lost = {id: task.file for id, task in tasks.items() if not archive.has(store, task.file, task.sha256)}
    back = (task for id, task in tasks.items() if id not in lost)
    return Truncation(seq, len(parts.cut), tuple(names), (*back,), (*lost.values(),), parts.segments, others)


class _Parts(NamedTuple):
    """The readable records by number, the ones before a cut (`kept`) and the others."""

    kept: dict[int, Line]
    cut: dict[int, Line]
    doubtful: list[StepStarted | StepCompleted]  # in lines that can't be verified
    segments: dict[str, bytes]  # those that change, with the part that stays


def _divided(store: Store, seq: int) -> _Parts:
    kept: dict[int, Line] = {}
    cut: dict[int, Line] = {}
    doubtful: list[StepStarted | StepCompleted] = []
    segments: dict[str, bytes] = {}
    for first in journal.segments(store):
        path = journal.segment_path(first)
        rows = store.read(path, limit=LARGE_LIMIT).data.split(b"\n")
        lines = [*parse_each(rows)]
        last = max((at for at, line in enumerate(lines) if line and line.seq <= seq), default=-1)
        for at, line in enumerate(lines):
            if line is not None:
                (kept if at <= last else cut)[line.seq] = line
            elif at > last and isinstance(said := as_it_says(rows[at]), StepStarted | StepCompleted):
                doubtful.append(said)
        if last + 1 < len(rows) - 1 or rows[-1]:
            segments[path] = b"".join(row + b"\n" for row in rows[: last + 1])
    return _Parts(kept, cut, doubtful, segments)


def carry_out(store: Store, cut: Truncation, *, adopt: bool = False) -> str:
    """Cut it. Returns the folder that keeps all files as they were. Repeat it after a crash. UsageError, with nothing
    done, if this may be a copy of a run that lives elsewhere, unless a person has confirmed it by `adopt`."""
    with lease.held(store):
        moment = _moment_at(store, cut.seq, _divided(store, cut.seq).kept)
        judge(store, moment, moment.url, moment.host, adopt=adopt, reaches_out=False)
        folder = f"{KEPT}/{datetime.now(UTC):%Y%m%dT%H%M%SZ}-after-{cut.seq}"
        for path in (*cut.segments, *cut.others):
            store.replace(f"{folder}/{path}", store.read(path, limit=LARGE_LIMIT).data)
        for task in cut.tasks:
            archive.take_back(store, task.file, task.sha256)
        for path in cut.others:
            store.remove(path)
        for path, data in sorted(cut.segments.items(), reverse=True):
            if data:
                store.replace(path, data)
            else:
                store.remove(path)
        checkpoint_folder.sweep(store)
    return folder


def _moment_at(store: Store, seq: int, kept: dict[int, Line]) -> Moment:
    """The run at record `seq`. Damaged if the run can't be read up to there, naming how far it can."""
    found = checkpoint.newest(store, up_to=seq).moment
    moment = found or Moment(run_id=define(store).run_id)
    why = ""
    while moment.seq < seq and (line := kept.get(moment.seq + 1)) is not None:
        try:
            moment.apply([journal.filled(store, line)])
        except Damaged as error:
            why = f"{error.what}: {error.why}"
            break
    if moment.seq == seq >= 1:
        return moment
    if why or seq in kept:
        raise Damaged(
            f"the journal can't end after record {seq}",
            path=journal.FOLDER,
            why=why or f"record {moment.seq + 1} is damaged or missing",
            remedy=f"the last valid record is {moment.seq}",
        )
    there = f"the last is {moment.seq}" if seq > 0 else "the first is 1"
    raise UsageError(f"the journal has no record {seq}", path=journal.FOLDER, remedy=there)


def _ahead(store: Store, seq: int) -> Iterator[str]:
    """Readable files that show removed records. They are made again, and people's edits in them are kept."""
    for path in projection.files_there(store):
        if (found := read_if_there(store, path, limit=LARGE_LIMIT)) is None:
            continue
        stamp = (read_markdown(found.data) if path.endswith(".md") else read_json(found.data)).stamp
        if stamp is not None and stamp.seq > seq:
            yield path
