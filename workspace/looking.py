"""Looks at a workspace without changing it, and without running anything of it.

What `status`, `log`, `check` and the first and third step of every opening share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from . import checkpoint, definition, journal, lease, movingfile, rebuilding, tombstone, yamltext
from .checkpoint import MessagesAt
from .definition import Definition
from .errors import Damaged, InvalidFile, NewerFormat, SatchelError, UsageError
from .journal import Tail
from .moment import Moment
from .names import DEFINITION
from .projection import STEPS
from .store import Entry, Store, Version
from .textfile import decode

_LOOKS = 8
_SHOWN = 8  # step files of several scopes


class Signature(NamedTuple):
    """What a moment was made of. While it is the same, so is the moment: these files only grow, or are made."""

    definition: Version | None
    files: tuple[Entry, ...]


@dataclass(slots=True)
class Look:
    """A workspace as it lies there."""

    definition: Definition
    moment: Moment  # the newest: checkpoint plus tail
    tail: Tail
    checkpoint: str  # its file; empty: none
    messages_at: dict[str, MessagesAt]  # by agent
    complaints: list[str]  # what was not as it should be, and does not stop an opening
    signature: Signature
    is_rebuilt: bool = False  # the journal is gone, and the readable files had to do
    mistake: SatchelError | None = None  # in workspace.yaml, while a process runs by what it said before


def define(store: Store) -> Definition:
    """What workspace.yaml says. UsageError if there is none, or if the run has moved away."""
    if store.version(DEFINITION) is None:
        movingfile.refuse(store)
        tombstone.refuse(store, None)
    described = read_definition(store)
    tombstone.refuse(store, described.run_id)
    return described


def read_definition(store: Store) -> Definition:
    """What workspace.yaml says, whether or not the run lives here."""
    try:
        data = store.read(DEFINITION, limit=definition.LIMIT).data
    except FileNotFoundError:
        raise UsageError(
            "is not a workspace", path=store.url, why=f"there is no {DEFINITION} in it",
            remedy="`satchel new` makes one; `satchel ls` finds those under a folder",
        ) from None  # fmt: skip
    return definition.parse(decode(data, DEFINITION))


def signature(store: Store) -> Signature:
    files = (entry for folder in (journal.FOLDER, checkpoint.FOLDER) for entry in store.list(folder))
    return Signature(store.version(DEFINITION), tuple(files))


def look(store: Store, *, to_open: bool = False, described: Definition | None = None) -> Look:
    """The newest moment. InvalidFile, NewerFormat or Damaged if the workspace can't be opened as it is. `to_open`: what
    an opening reads besides is fetched, too. `described` counts in place of what workspace.yaml says now."""
    having = _begin(partial(_have_definition, store)) if store.abilities.remote else None
    store.refresh()
    if having is not None:  # of the others the listing has told the names
        having.join()
        store.fetch([*_needed(store), *(_shown(store) if to_open else ())])
    for _ in range(_LOOKS):
        before = signature(store)
        try:
            return _look(store, before, described)
        except Damaged:
            store.refresh()
            if signature(store) == before:
                raise
        # else its owner has gone on meanwhile: a checkpoint and what of the journal it needs were not of one moment
    return _look(store, signature(store), described)


def look_beside(store: Store, described: Definition | None = None) -> Look:
    """As `look`, for a command that may come while a process runs the workspace. That process does not stop for a
    mistake in workspace.yaml, so the command does not either: what the file said before counts, and `mistake` tells
    what is wrong with it now."""
    try:
        return look(store, described=described)
    except (InvalidFile, NewerFormat, Damaged) as error:
        if (holder := lease.holder(store)) is None:
            raise
        seen = look(store, described=Definition(holder.run_id, ""))
        if seen.moment.definition is None:
            raise
        before = {"format": definition.FORMAT, "run_id": holder.run_id} | seen.moment.definition
        seen.definition, seen.mistake = definition.parse(yamltext.dump(before)), error
        return seen


def _begin(job: Callable[[], None]) -> threading.Thread:
    """In a thread that nobody has to wait for."""
    thread = threading.Thread(target=job, name="satchel-look", daemon=True)
    thread.start()
    return thread


def _have_definition(store: Store) -> None:
    """At hand, if it is there. Errors are for whoever reads it to tell."""
    with suppress(SatchelError, OSError):
        store.read(DEFINITION, limit=definition.LIMIT)


def _needed(store: Store) -> list[str]:
    """What every look reads, as far as the names tell."""
    newest = checkpoint.paths(store)[-1:]
    covered = checkpoint.position_of(newest[0]) if newest else 0
    return [*newest, *journal.expected(store, after=covered), DEFINITION, lease.PATH]


def _shown(store: Store) -> list[str]:
    files = (entry.path for folder in store.folders(STEPS) for entry in store.list(folder))
    return [*islice(files, _SHOWN)]


def _look(store: Store, before: Signature, described: Definition | None) -> Look:
    described = described or define(store)
    found, messages_at, complaints, loaded = checkpoint.newest(store)
    moment = found or Moment(run_id=described.run_id)
    if moment.run_id != described.run_id:
        raise _other_run(moment.run_id, described.run_id)
    if not journal.segments(store) and (rebuilt := rebuilding.rebuild(store, described.run_id, found)) is not None:
        complaints.append(f"the journal is gone; the run goes on from the files as of record {rebuilt.moment.seq}")
        tail = Tail([], rebuilt.moment.seq + 1)
        at = rebuilt.messages_at or messages_at
        return Look(described, rebuilt.moment, tail, "", at, complaints, before, is_rebuilt=True)
    tail = journal.read(store, after=moment.seq, crc=moment.crc)
    moment.apply(tail.lines)
    if tail.torn:
        complaints.append(f"the journal had a torn tail, as a crash leaves it: {tail.torn}; it is cut off")
    if tail.spoilt:
        complaints.append(
            f"record {tail.spoilt} of the journal is broken; the checkpoint {loaded} covers it, so the run goes on. "
            "Take journal/ from a backup to have all of the history again"
        )
    return Look(described, moment, tail, loaded, messages_at, complaints, before)


def _other_run(found: str, expected: str) -> Damaged:
    return Damaged(
        f"the files are of the run {found!r}", path=DEFINITION, why=f"run_id says {expected!r}",
        remedy=f"put `run_id: {found}` back, or start from a folder without journal/ and checkpoints/",
    )  # fmt: skip
