"""Repair what a dead process has left: whether it has crashed, what is saved of its work, and whether all is repaired.

A crash counts for the items that the process ran (state/agent_state.py). These do not: the end of its machine, a kill
while the run was to stop, and an error of Satchel's own for which it let go of the workspace, such as a failing disk. A
stop that Satchel has forced is none either: the opening that follows it is one of its own.

What is left in partials/ is promoted to recovered/, where the next attempt can see it. The recovered file is durable
before the record that points to it, and the record before the partial is removed. A partial that comes back after a
power failure is recognised by its attempt.

A stopped run is whole if every file shows its newest moment, and its last owner has finished closing it. A process may
be killed after its `closed` record is durable and before the readable files are. Such a run needs no resume, but it
needs an opening, or its files stay as they are.

For a person without a backup `cut_off` cuts the end off a journal that can't be opened, and keeps the removed part.
Everything after the last good record is forgotten: items and tasks of the inbox are done again, and so are effects,
which are named first.
"""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import Struct

from .. import journal
from ..base import Damaged, InvalidFile, Refused, UsageError, fitting, read_json, read_markdown
from ..formats import pause_file
from ..inbound import Noticed, archive, inbox, notice
from ..inspect import Look, define, lease
from ..journal import Line, PartialPromoted, StepCompleted, StepStarted, TaskTaken, as_it_says, parse_each
from ..state import Moment, checkpoint
from ..store import LARGE_LIMIT, Store, read_if_there
from ..views import BRIEF, PartialHead, checkpoint_folder, conversation, partial_files, projection
from .acquire import Owned, judge


def is_crash(store: Store, mine: Owned, moment: Moment) -> bool:
    """Call it before the lease is written. Compares with the process of the last opening."""
    if not moment.boot or moment.boot != boot_id() or moment.status != "running":
        return False
    return not _has_failed(store, mine) and not _is_to_stop(store, moment)


def boot_id() -> str:
    """The current boot of this machine, which all its containers share; `unknown` where the system does not tell."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    with suppress(OSError):
        told = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False)
        return told.stdout.strip() or "unknown"
    return "unknown"


def _has_failed(store: Store, mine: Owned) -> bool:
    """On a disk. In a bucket its lease has another content by now, and one that can't reach the bucket could not tell
    anyway."""
    before = lease.read(store) if mine.heartbeat is None else None
    return before is not None and before.has_failed


def _is_to_stop(store: Store, moment: Moment) -> bool:
    """Whether a person wants it stopped, and the journal does not say so yet."""
    file = lease.read_pause(store)
    return file is not None and not file.lets_go_on and not file.is_of(moment.lifted)


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
                found = read_if_there(store, entry.path)
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


def is_whole(store: Store, seen: Look, noticed: Noticed | None = None) -> bool:
    """Whether an opening would find nothing to repair. Reads every readable file, unless what there is to notice is
    `noticed` already, and changes nothing.

    Later edits of people are no damage: the next resume takes them.
    """
    moment = seen.moment
    if not moment.clean or seen.complaints or seen.is_rebuilt:
        return False
    if store.version(lease.PATH) is not None:  # its owner removes the lease last
        return False
    if _is_behind(noticed or notice(store, moment, seen.definition, patience=BRIEF)):
        return False
    if next(leftovers(store, moment), None) is not None or inbox.settled(moment):
        return False
    return _has_messages(store, seen) and not _says_less(store, seen)


def _has_messages(store: Store, seen: Look) -> bool:
    return all(conversation.is_whole(store, place) for place in seen.moment.row_logs)


def _is_behind(noticed: Noticed) -> bool:
    return bool(noticed.findings or noticed.leftovers) and not (noticed.refusals or noticed.questions)


def _says_less(store: Store, seen: Look) -> bool:
    """Whether pause.yaml lacks what the journal says: it announces a pause that is in force, or over."""
    moment, pause = seen.moment, seen.moment.pause
    if store.version(pause_file.PATH) in (None, pause.file if pause else None):
        return False
    try:
        file = pause_file.parse(store.read(pause_file.PATH, limit=pause_file.LIMIT).data)
    except (FileNotFoundError, InvalidFile):
        return False
    if pause is None:
        return file.is_of(moment.lifted)
    is_in_force = bool(pause.paused_at) and file.requested_at == pause.requested_at
    return is_in_force and file.status in ("requested", "draining")


# The end of a journal that can't be opened


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


def plan_cut(store: Store, seq: int) -> Truncation:
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


def cut_off(store: Store, cut: Truncation, *, adopt: bool = False) -> str:
    """Cut it. Returns the folder that keeps all files as they were. Repeat it after a crash. UsageError, with nothing
    done, if this may be a copy of a run that lives elsewhere, unless a person has confirmed it by `adopt`."""
    with lease.held(store):
        moment = _moment_at(store, cut.seq, _divided(store, cut.seq).kept)
        judge(store, moment, moment.url, moment.host, adopt=adopt, reaches_out=False)
        folder = f"cut-off/{datetime.now(UTC):%Y%m%dT%H%M%SZ}-after-{cut.seq}"
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
