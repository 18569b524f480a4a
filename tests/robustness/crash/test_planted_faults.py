"""An explorer that finds nothing proves nothing: each of these faults is planted, and must be found and explained."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace
from properties import ROUNDS

from satchel.runtime.api.hold_opening import HoldOpening
from satchel.runtime.engine.open_scope import OpenScope
from satchel.runtime.live import data
from satchel.workspace import journal
from satchel.workspace.inbound import Noticed, plan_edits
from satchel.workspace.journal import Kept, Message, PartialPromoted, SavedFile, StepStarted, Tail, blobs, segment
from satchel.workspace.lifecycle import opening, recovery
from satchel.workspace.lifecycle.recovery import Leftover
from satchel.workspace.lifecycle.retention import Pruner, carry_out
from satchel.workspace.state import earlier_moment
from satchel.workspace.state.scope_state import Past, Scope
from satchel.workspace.store import DiskStore, Store, Sync, disk_store
from satchel.workspace.store.disk_store import DiskLog

from .explorer import Explorer
from .memory import Memory
from .planted import Fault, found_and_told
from .steady import steady
from .test_explorer import SEED
from .workloads import WORKLOADS


def _no_sync_of_a_file() -> Fault:
    return mock.patch.object(Memory, "_sync", lambda self, fd, call: None)


def _no_sync_of_a_replaced_file() -> Fault:
    return mock.patch.object(Memory, "sync", lambda self, fd: None)


def _no_sync_of_the_journal() -> Fault:
    return mock.patch.object(Memory, "sync_data", lambda self, fd: None)


def _no_sync_of_a_folder() -> Fault:
    return mock.patch.object(Memory, "sync_folder", lambda self, path: None)


def _name_of_the_workspace_not_synced() -> Fault:
    return mock.patch.object(disk_store, "settle_place", lambda folder, calls, levels: None)


def _rename_before_the_data() -> Fault:
    """Everything is durable when `replace` returns, but the name comes first."""

    @contextmanager
    def temporary(self: DiskStore, data: bytes, *_: Any) -> Iterator[str]:
        self._make_folder(".satchel/tmp", durable=False)
        path = f"{self._root}/.satchel/tmp/{os.getpid()}-{next(_numbers)}"
        fd = self._os.open_new(path)
        self._os.write(fd, data)
        yield path
        self._os.sync(fd)
        self._os.close(fd)

    from itertools import count

    _numbers = count()
    return mock.patch.object(DiskStore, "_temporary", temporary)


def _acknowledged_before_the_sync() -> Fault:
    """A write is synced just before the next one."""

    def append(self: DiskLog, data: bytes) -> None:
        self._os.sync_data(self._fd)
        self._os.write(self._fd, data)

    return mock.patch.object(DiskLog, "append", append)


def _unclosed_segment_is_trusted() -> Fault:
    """What was read whole is built on as it is."""
    mend = journal.mend

    def trusting(store: Store, tail: Tail) -> None:
        if tail.torn or not tail.good:
            mend(store, tail)

    return mock.patch.object(journal, "mend", trusting)


def _projection_not_synced_before_its_rename() -> Fault:
    temporary = DiskStore._temporary

    def careless(self: DiskStore, data: bytes, sync: Sync, *more: Any) -> AbstractContextManager[str]:
        return temporary(self, data, "no" if sync == "data" else sync, *more)

    return mock.patch.object(DiskStore, "_temporary", careless)


def _partial_removed_before_its_promotion_is_durable() -> Fault:
    promote = recovery.promote

    def hasty(store: Store, leftover: Leftover, *more: Any) -> PartialPromoted | None:
        store.remove(leftover.path)
        return promote(store, leftover, *more)

    return mock.patch.object(recovery, "promote", hasty)


def _recovered_text_not_durable_before_its_record() -> Fault:
    promote = recovery.promote

    def careless(store: Store, *more: Any) -> PartialPromoted | None:
        replace = store.replace
        with mock.patch.object(store, "replace", lambda path, data: replace(path, data, sync="data")):
            return promote(store, *more)

    return mock.patch.object(recovery, "promote", careless)


def _blob_not_durable_before_its_record() -> Fault:
    keep = blobs.keep

    def careless(store: Store, result: bytes, epoch: int) -> Kept:
        replace = store.replace
        with mock.patch.object(store, "replace", lambda path, data: replace(path, data, sync="data")):
            return keep(store, result, epoch)

    return mock.patch.object(blobs, "keep", careless)


def _folders_made_by_others_are_trusted() -> Fault:
    """A folder that is there already is taken to be durable, though the process that made it may have died."""
    make = DiskStore._make_folder

    def trusting(self: DiskStore, folder: str, *, durable: bool) -> None:
        if folder and folder not in self._folders:
            with suppress(OSError):
                self._os.stat(f"{self._root}/{folder}")
                self._folders[folder] = True
        make(self, folder, durable=durable)

    return mock.patch.object(DiskStore, "_make_folder", trusting)


def _checkpoint_ahead_of_the_journal() -> Fault:
    """A checkpoint is written of what is about to be durable."""
    flush = journal.Journal.flush

    def early(self: journal.Journal) -> None:
        lines, moment = self._waiting, self._apply.__self__  # type: ignore[attr-defined]
        if lines and not moment.root.messages and not any(isinstance(line.record, Message) for line in lines):
            opening.checkpoint.write(self._segments._store, moment, {})
        flush(self)

    return mock.patch.object(journal.Journal, "flush", early)


def _files_ahead_of_the_journal() -> Fault:
    """The readable files show what may still be lost."""

    def ahead(self: opening.Workspace, writer: journal.Journal) -> None:
        self.journal = writer

    return mock.patch.object(opening.Workspace, "write_to", ahead)


def _effect_begun_before_its_intent_is_durable() -> Fault:
    durable = OpenScope.durable

    async def hasty(self: OpenScope) -> None:
        waiting = self.context.journal._waiting
        if not (waiting and isinstance(waiting[-1].record, StepStarted)):
            await durable(self)

    return mock.patch.object(OpenScope, "durable", hasty)


def _group_lost_in_part_is_taken_for_damage() -> Fault:
    return mock.patch.object(
        segment, "_groups", lambda rows, first: [1 << 60] if any(map(_is_whole, rows[first:])) else []
    )


def _is_whole(row: bytes) -> bool:
    return row.startswith(b'{"seq"') and row.endswith(b'"}')


def _plan_forgets_what_a_person_had_written() -> Fault:
    """A fault this explorer has found: a crash before todo.md first had its stamp was taken for an edit."""
    return mock.patch.object(plan_edits, "hashlib", mock.Mock())


def _commits_are_not_compared() -> Fault:
    """Items in parallel overwrite each other's values."""
    return mock.patch.object(data, "contradiction", lambda patch, base, now: None)


def _segments_removed_before_their_effects_are_kept() -> Fault:
    def hasty(store: Store, old: journal.OldSegments) -> None:
        store.remove_many(old.paths)
        roll_kept(store, old)

    roll_kept = journal.roll_kept
    return mock.patch.object(journal, "roll_kept", hasty)


def _pruned_before_the_record_is_durable() -> Fault:
    record = Pruner.record

    def hasty(self: Pruner, writer: journal.Journal) -> None:
        found = self._found
        record(self, writer)
        if found is not None:
            self._recorded = None
            carry_out(self._store, found)

    return mock.patch.object(Pruner, "record", hasty)


def _blobs_removed_that_a_checkpoint_refers_to() -> Fault:
    return mock.patch.object(blobs, "_named_in", lambda data: set())


def _doubts_are_forgotten_by_a_return() -> Fault:
    join = earlier_moment._scope

    def forgetful(latest: Scope | Past, *more: Any) -> Scope | Past:
        return join(replace(latest, started={}) if isinstance(latest, Scope) else latest, *more)

    return mock.patch.object(earlier_moment, "_scope", forgetful)


def _append_returns_before_it_is_durable() -> Fault:
    append = HoldOpening.append

    def hasty(self: HoldOpening, *call: Any) -> int:
        with mock.patch.object(self.workspace.journal, "flush", lambda: None):
            return append(self, *call)

    return mock.patch.object(HoldOpening, "append", hasty)


def _rows_of_an_append_count_one_by_one() -> Fault:
    append = HoldOpening.append

    def piecemeal(self: HoldOpening, log: str, rows: Sequence[Message], key: str) -> int:
        known = self.moment.root.logs.get(log) if log else self.moment.root
        if known is not None and key in known.appended:
            return append(self, log, rows, key)
        return [append(self, log, [row], key if row is rows[-1] else "") for row in rows][-1]

    return mock.patch.object(HoldOpening, "append", piecemeal)


def _blob_of_a_file_not_durable_before_its_record() -> Fault:
    keep = blobs.keep_file

    def careless(store: Store, data: bytes, mark: int) -> SavedFile:
        replace = store.replace
        with mock.patch.object(store, "replace", lambda path, data: replace(path, data, sync="data")):
            return keep(store, data, mark)

    return mock.patch.object(blobs, "keep_file", careless)


def _files_are_taken_to_show_the_record() -> Fault:
    join = opening.Workspace.join_files

    def trusting(self: opening.Workspace, noticed: Noticed) -> None:
        join(self, noticed)
        held = self.files[""].held
        assert held is not None
        held.are_shown({path: file.version for path, file in self.moment.root.files.items()})

    return mock.patch.object(opening.Workspace, "join_files", trusting)


_LOST = r"acknowledged and is gone|another one stands in its place|refused|was edited|forgotten"
_TORN = r"(state.json|todo.md|why.md) is torn|has another hash|the hash of \S+ is not its own"
_PLANTED: list[tuple[Callable[[], Fault], str, str]] = [
    (_no_sync_of_a_file, "commits", _LOST),
    (_no_sync_of_a_replaced_file, "commits", rf"{_LOST}|{_TORN}"),
    (_no_sync_of_the_journal, "commits", _LOST),
    (_no_sync_of_a_folder, "commits", rf"{_LOST}|was not mended"),
    (_name_of_the_workspace_not_synced, "just-made", r"the workspace itself is gone"),
    (_rename_before_the_data, "commits", rf"{_LOST}|{_TORN}"),
    (_acknowledged_before_the_sync, "effects", _LOST),
    (
        _unclosed_segment_is_trusted,
        "commits",
        r"was not mended|missing before it|ends before the newest checkpoint|is newer \(record",
    ),
    (
        _projection_not_synced_before_its_rename,
        "commits",
        r"(state.json|todo.md|why.md|steps/\S*)"
        r"(:? (was edited|is torn|is not its own|can't be|has another hash|the file conflicts)|, line)",
    ),
    (_partial_removed_before_its_promotion_is_durable, "streams", r"lost streamed text"),
    (_recovered_text_not_durable_before_its_record, "streams", r"was promoted and is gone"),
    (_blob_not_durable_before_its_record, "outputs", r"blob of record \d+ is gone|forgotten"),
    (_folders_made_by_others_are_trusted, "commits", rf"{_LOST}|not mended: journal/\d+.jsonl: record 1 is b'\{{"),
    (
        _checkpoint_ahead_of_the_journal,
        "commits",
        r"ends before the newest checkpoint|the journal is missing|not mended",
    ),
    (_files_ahead_of_the_journal, "travelling", r"is newer \(record|which the journal does not have"),
    (_effect_begun_before_its_intent_is_durable, "inbox", r"kind='outside'|every task is due once"),
    (_group_lost_in_part_is_taken_for_damage, "commits", r"is damaged"),
    (_commits_are_not_compared, "parallel", r"every item counts once, and the count is"),
    (_segments_removed_before_their_effects_are_kept, "prunes", rf"{_LOST}|not mended|missing|pruned and not kept"),
    (_pruned_before_the_record_is_durable, "prunes", r"are pruned, and the journal says so up to"),
    (_blobs_removed_that_a_checkpoint_refers_to, "prunes", r"blob of record \d+ is gone|forgotten"),
    (_blob_not_durable_before_its_record, "returns", r"blob of record \d+, a return, is gone or torn"),
    (_doubts_are_forgotten_by_a_return, "returns", r"every effect is due once"),
    (_append_returns_before_it_is_durable, "holds", r"calls that have returned don't count"),
    (_rows_of_an_append_count_one_by_one, "holds", r"don't count, or one in part|the next program reads"),
    (
        _blob_of_a_file_not_durable_before_its_record,
        "holds",
        r"blob of files/\S+ is gone or torn|is missing|was refused",
    ),
    (_files_are_taken_to_show_the_record, "holds", r"files/ shows"),
    (
        _plan_forgets_what_a_person_had_written,
        "persons-plan",
        r"todo.md: the file conflicts with the run|a crash for a person's edit",
    ),
]


_FIRST_CALLS = (_folders_made_by_others_are_trusted,)
"""These show only at the first few calls of a workload, so the calls are crashed at in order."""

_QUICK = (_no_sync_of_the_journal, _name_of_the_workspace_not_synced, _files_ahead_of_the_journal)
"""The explorer finds these in no time. They show that it finds anything; the others are slow tests."""


_LONG = (_blobs_removed_that_a_checkpoint_refers_to,)
"""The explorer may take minutes for it, so only `make soak` looks for it."""


def test_every_fault_can_be_planted() -> None:
    """The slow tests look for it: here its workload only runs."""
    for plant, workload, _ in _PLANTED:
        with plant(), steady():
            Explorer(WORKLOADS[workload], SEED, per_call=1).record()


def _marks(plant: Callable[[], Fault]) -> list[pytest.MarkDecorator]:
    soak = pytest.mark.skipif(plant in _LONG and ROUNDS == 1, reason="takes minutes; `make soak` does it")
    return [] if plant in _QUICK else [pytest.mark.slow, soak]


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "workload", "told"),
    [
        pytest.param(*planted, id="-".join((planted[0].__name__[1:], planted[1])), marks=_marks(planted[0]))
        for planted in _PLANTED
    ],
)
def test_a_planted_fault_is_found_and_told(plant: Callable[[], Fault], workload: str, told: str) -> None:
    text = found_and_told(plant, workload, told, shuffled=plant not in _FIRST_CALLS)
    assert "1. a " in text, "the crash is told"
    assert len(text.splitlines()) <= 90, "the calls are shrunk to those that matter"
