"""Read a workspace without changing it, and without running anything of it.

Used by `status`, `log`, `check` and the first and third step of every opening.

The checkpoint of a stop names the files that it fully covers, with their versions in the bucket. While a listing shows
these, code that only shows the status need not fetch the files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from .. import journal
from ..base import DEFINITION, Damaged, InvalidFile, NewerFormat, SatchelError
from ..formats import Definition, definition
from ..journal import Tail, segment_path
from ..journal.records import Closed, Saved
from ..state import Listed, Moment, Newest, checkpoint
from ..store import Entry, Store, Version
from ..views import is_step_file
from . import lease, rebuild, transfer_file
from .transfer_file import define

if TYPE_CHECKING:
    from concurrent.futures import Future


_LOOKS = 8


class Signature(NamedTuple):
    """What a moment was made from. While it is the same, so is the moment, because these files only grow, or are
    created."""

    definition: Version | None
    files: tuple[Entry, ...]


class Look(Struct):
    """A workspace as it is now."""

    definition: Definition
    moment: Moment  # the newest: checkpoint plus tail
    tail: Tail
    checkpoint: str  # its file; empty: none
    complaints: list[str]  # problems that do not stop an opening
    signature: Signature
    is_rebuilt: bool = False  # the journal is missing, and the readable files had to do
    mistake: SatchelError | None = None  # a mistake in workspace.yaml, while a process runs with the earlier values
    definition_version: Version | None = None  # the version of workspace.yaml that was read, if it is known
    listed: Listed = field(default_factory=dict)  # files that show the moment as long as they have these versions


def signature(store: Store) -> Signature:
    files = (entry for folder in (journal.FOLDER, journal.CHECKPOINTS) for entry in store.list(folder))
    return Signature(store.version(DEFINITION), tuple(files))


def look(store: Store, *, described: Definition | None = None) -> Look:
    """The newest moment. InvalidFile, NewerFormat or Damaged if the workspace can't be opened. `described` replaces the
    content of workspace.yaml."""
    if store.abilities.remote:
        listing = _begin(store.refresh)  # takes longest, so its request comes first
        _have_definition(store)
        checkpoint.prepare()
        listing.result()  # it has shown the names of the others
        having = _begin(partial(checkpoint.have_end, store)) if checkpoint.is_large(store) else None
        store.fetch(_needed(store))
        if having is not None:
            having.result()
    else:
        store.refresh()
    for _ in range(_LOOKS):
        before = signature(store)
        try:
            seen = _look(store, before, described)
        except (Damaged, FileNotFoundError):
            store.refresh()
            if signature(store) == before:
                raise
            continue  # its owner has continued meanwhile: the checkpoint and its journal were not from the same moment
        if not seen.is_rebuilt:
            return seen
        store.refresh()  # a listing that was made while another process began the run may lack its first files
        if signature(store) == before:
            return seen
    return _look(store, signature(store), described)


def look_beside(store: Store) -> Look:
    """Like `look`, for a command that may run while a process runs the workspace. That process does not stop for a
    mistake in workspace.yaml, so the command does not either: the earlier content counts, and `mistake` says what is
    wrong now."""
    try:
        return look(store)
    except (InvalidFile, NewerFormat, Damaged) as error:
        return _in_spite(store, error, look)


def glance(store: Store, besides: Iterable[str] = ()) -> Look:
    """Like `look_beside`, for code that only shows the status: by the listing that the store has. In a bucket, files
    that are unchanged since the last stop are not read, so `tail` has none of their lines. `besides` are other files
    that will be read; they are fetched together."""
    try:
        return _glance(store, besides=besides)
    except (InvalidFile, NewerFormat, Damaged) as error:
        return _in_spite(store, error, _glance)


def _in_spite(store: Store, error: SatchelError, look: Callable[..., Look]) -> Look:
    """The look in spite of a mistake in workspace.yaml, if a process runs the workspace."""
    if (holder := lease.holder(store)) is None:
        raise error
    seen = look(store, described=Definition(holder.run_id, ""))
    if seen.moment.definition is None:
        raise error
    seen.definition, seen.mistake = definition.restore(holder.run_id, seen.moment.definition), error
    return seen


def _glance(store: Store, *, described: Definition | None = None, besides: Iterable[str] = ()) -> Look:
    if not store.abilities.remote:
        return look(store, described=described)
    store.fetch([*read_by_glance(store), *besides])
    with suppress(Damaged, FileNotFoundError):
        seen = _look(store, signature(store), described, knows_enough=True)
        if not seen.is_rebuilt:
            return seen
    return look(store, described=described)  # the listing may be older than what was read, or lack the first files


def _begin(job: Callable[[], None]) -> Future[None]:
    """In a daemon thread."""
    from concurrent.futures import Future  # slow, and a look at a disk needs none

    future: Future[None] = Future()

    def work() -> None:
        try:
            job()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=work, name="satchel-look", daemon=True).start()
    return future


def _have_definition(store: Store) -> None:
    """Fetch it, if it exists. Its reader reports errors."""
    with suppress(SatchelError, OSError):
        store.read(DEFINITION, limit=definition.LIMIT)


def _needed(store: Store) -> list[str]:
    """The files that every look reads, according to the names."""
    newest = checkpoint.paths(store)[-1:]
    covered = checkpoint.position_of(newest[0]) if newest else 0
    return [*checkpoint.worth_fetching(store), *journal.expected(store, after=covered), DEFINITION, lease.PATH]


def read_by_glance(store: Store) -> list[str]:
    """The files that `glance` will read, according to the names. If the checkpoint covers a segment's own first record,
    it probably covers the whole segment, and workspace.yaml too."""
    newest = checkpoint.paths(store)[-1:]
    covered = checkpoint.position_of(newest[0]) if newest else 0
    behind = [path for path in journal.expected(store, after=covered) if journal.first_of(path) > covered]
    return [*checkpoint.worth_fetching(store), *behind, *([] if newest else [DEFINITION]), lease.PATH]


def _look(store: Store, before: Signature, described: Definition | None, *, knows_enough: bool = False) -> Look:
    """`knows_enough`: the checkpoint's word about unchanged files is enough."""
    described = described or (None if knows_enough else define(store))
    newest = checkpoint.newest(store)
    found, _, complaints, loaded, listed = newest
    described = described or unchanged_definition(store, newest) or define(store)
    defined_at = before.definition if store.version(DEFINITION) == before.definition else None
    moment = found or Moment(run_id=described.run_id)
    if moment.run_id != described.run_id:
        raise another_run(moment.run_id, described.run_id)
    has_journal = bool(journal.segments(store))
    is_fork = not has_journal and _is_new_fork(found)
    if not has_journal and not is_fork and (rebuilt := rebuild.rebuild(store, moment.run_id, found)) is not None:
        complaints.append(f"the journal is missing; the run continues from the files as of record {rebuilt.seq}")
        tail = Tail([], rebuilt.seq + 1)
        return Look(described, rebuilt, tail, "", complaints, before, is_rebuilt=True)
    if found is None and journal.first_kept(store) > 1:
        raise Damaged(
            "no checkpoint can be used",
            path=journal.CHECKPOINTS,
            why="; ".join(complaints) or "there is none",
            remedy="restore checkpoints/ from a backup: the records before it are pruned",
        )
    known = unchanged_tail(store, newest) if knows_enough else None
    if is_fork:
        known = Tail([], moment.seq + 1, moment.crc)
    tail = known or journal.read(store, after=moment.seq, before=moment.before)
    moment.apply(tail.lines)
    if not all(isinstance(line.record, Closed | Saved) for line in tail.lines):
        listed = {}  # these files may or may not show what the run has done since
    if tail.torn:
        complaints.append(f"the journal had a torn tail, as a crash leaves it: {tail.torn}; Satchel cuts it off")
    if tail.spoilt:
        complaints.append(
            f"record {tail.spoilt} of the journal is damaged; the checkpoint {loaded} covers it, so the run continues. "
            "To get the full history back, restore journal/ from a backup"
        )
    return Look(described, moment, tail, loaded, complaints, before, definition_version=defined_at, listed=listed)


def _is_new_fork(found: Moment | None) -> bool:
    """A fork begins with a checkpoint. Its first opening begins its journal."""
    return found is not None and found.forked is not None and found.forked.seq == found.seq


def another_run(found: str, expected: str) -> Damaged:
    """The error of a folder whose files belong to the run `found`, and whose workspace.yaml says `expected`."""
    return Damaged(
        f"the files belong to the run {found!r}",
        path=DEFINITION,
        why=f"run_id is {expected!r}",
        remedy=f"put `run_id: {found}` back, or start from a folder without journal/ and checkpoints/",
    )


def listed_at_stop(
    store: Store, moment: Moment, described: Definition, version: Version | None, written: Mapping[str, Version | None]
) -> Listed:
    """Call it when all records of the `moment` are in the journal. `described` is the content of workspace.yaml in
    `version`; `written` are the readable files that show the moment."""
    if not (store.abilities.remote and store.abilities.conditional_replace):
        return {}  # on a disk reading costs nothing, and elsewhere two saves in one tick of a clock may look the same
    found = {path: known for path, known in written.items() if known and is_step_file(f"/{path}")}
    if segments := journal.segments(store):
        newest = segment_path(segments[-1])
        found |= {newest: store.version(newest) or ""}
    if version and moment.definition == described.recorded:
        found |= {DEFINITION: version}
    return {path: known for path, known in found.items() if known and store.version(path) == known}


def is_unchanged(store: Store, listed: Listed, path: str) -> bool:
    """Whether a file still has the version that a checkpoint names."""
    known = listed.get(path)
    return known is not None and store.version(path) == known


def unchanged_tail(store: Store, newest: Newest) -> Tail | None:
    """The tail of a journal without records after the checkpoint; None if there may be some."""
    segments = journal.segments(store)
    if newest.moment is None or not segments or not is_unchanged(store, newest.listed, segment_path(segments[-1])):
        return None
    return Tail([], newest.moment.seq + 1, newest.moment.crc, segment_path(segments[-1]))


def unchanged_definition(store: Store, newest: Newest) -> Definition | None:
    """The content of workspace.yaml, if it is what the checkpoint says. UsageError if the run has moved away."""
    moment = newest.moment
    if moment is None or moment.definition is None or not is_unchanged(store, newest.listed, DEFINITION):
        return None
    transfer_file.refuse_moved(store, moment.run_id)
    return definition.restore(moment.run_id, moment.definition)
