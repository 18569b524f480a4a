"""What could go wrong with a person's edits when an opening is crashed: each is planted, and must be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from properties import ROUNDS

from satchel.workspace import journal
from satchel.workspace.inbound import Noticed, detection, rejection
from satchel.workspace.inbound import findings as found
from satchel.workspace.inbound.findings import Edit
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Journal
from satchel.workspace.lifecycle import opening
from satchel.workspace.lifecycle.workspace import Workspace
from satchel.workspace.state.checkpoint import WrittenCheckpoint
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store import DiskStore, Store, Sync, Version

from .explorer import Explorer
from .planted import Fault, found_and_told
from .steady import steady
from .test_explorer import SEED
from .workloads import WORKLOADS


def _file_rewritten_before_the_record_is_durable() -> Fault:
    record_edit = detection.record_edit

    def hasty(store: Store, moment: Moment, log: Journal, report: Report, edit: Edit, free: Any) -> None:
        if edit.record.sha:
            rejection._restore(store, moment, edit.record.file, found.Noticed())
        record_edit(store, moment, log, report, edit, free)

    return mock.patch.object(detection, "record_edit", hasty)


def _rejected_copy_not_durable_before_the_file_is_restored() -> Fault:
    reject = rejection.reject

    def careless(store: Store, refusal: found.RejectedFile) -> str:
        with mock.patch.object(store, "create", lambda path, data: store.replace(path, data, sync="no")):
            return reject(store, refusal)

    return mock.patch.object(rejection, "reject", careless)


def _file_removed_before_the_rejected_copy_is_there() -> Fault:
    reject = rejection.reject

    def late(store: Store, refusal: found.RejectedFile) -> str:
        store.remove(refusal.path)
        return reject(store, refusal)

    return mock.patch.object(rejection, "reject", late)


def _reasons_come_after_the_rejected_copy() -> Fault:
    """A crash between the two, and nobody says why: a copy that is there is not made again."""
    reject = rejection.reject

    def reversed_(store: Store, refusal: found.RejectedFile) -> str:
        replace, waiting = store.replace, []

        def keep_back(path: str, data: bytes) -> None:
            if path.endswith(".txt"):
                waiting.append((path, data))
            else:
                replace(path, data)

        with mock.patch.object(store, "replace", keep_back):
            path = reject(store, refusal)
        for each in waiting:
            replace(*each)
        return path

    return mock.patch.object(rejection, "reject", reversed_)


def _rebuilt_checkpoint_not_written_first() -> Fault:
    write = opening.checkpoint.write

    def skipping(store: Store, moment: Moment, at: Any, *more: Any) -> WrittenCheckpoint:
        return write(store, moment, at, *more) if journal.segments(store) else WrittenCheckpoint("", 0, "")

    return mock.patch.object(opening.checkpoint, "write", skipping)


def _merged_edit_not_known_again() -> Fault:
    return mock.patch.object(found.Looking, "is_merged", lambda self, agent, path, sha: False)


def _way_to_a_sub_agent_recorded_after_its_work() -> Fault:
    """A fault this explorer has found: of a group that was cut short, only the sub-agent's edit was left."""
    record = opening._record_opening

    def upside_down(workspace: Workspace, why: Any, seen: Any, noticed: Noticed, add_more: Any) -> None:
        noticed.edits.reverse()
        record(workspace, why, seen, noticed, add_more)

    return mock.patch.object(opening, "_record_opening", upside_down)


def _restored_file_not_synced_before_its_rename() -> Fault:
    replace = DiskStore.replace

    def careless(
        self: DiskStore, path: str, data: bytes, *, sync: Sync = "all", if_version: Version | None = None
    ) -> Version:
        return replace(self, path, data, sync="no" if sync == "data" else sync, if_version=if_version)

    return mock.patch.object(DiskStore, "replace", careless)


_PLANTED: list[tuple[Callable[[], Fault], str, str]] = [
    (_file_rewritten_before_the_record_is_durable, "merges-root", r"has written into \S+ is lost|state.json shows"),
    (_file_rewritten_before_the_record_is_durable, "merges-child", r"has written into \S+ is lost|state.json shows"),
    (
        _rejected_copy_not_durable_before_the_file_is_restored,
        "rejects",
        r"has written into \S+ is lost|does not say why|is not what a person has written",
    ),
    (_file_removed_before_the_rejected_copy_is_there, "rejects", r"has written into \S+ is lost|is not restored"),
    (_reasons_come_after_the_rejected_copy, "rejects", r"does not say why"),
    (_rebuilt_checkpoint_not_written_first, "rebuilds", r"records 1 to \d+ are missing"),
    (_merged_edit_not_known_again, "merges-steps", r"is recorded 2 times|was refused and is not restored"),
    (_way_to_a_sub_agent_recorded_after_its_work, "merges-upwards", r"has not done \['(Deep|Extra)'"),
    (
        _restored_file_not_synced_before_its_rename,
        "restores",
        r"is not what a person has written|is torn|conflicts with",
    ),
]


_QUICK = (_rejected_copy_not_durable_before_the_file_is_restored, _rebuilt_checkpoint_not_written_first)
"""The explorer finds these in no time. They show that it finds anything; the others are slow tests."""


_LONG = (_restored_file_not_synced_before_its_rename,)
"""The explorer takes eight minutes for it, so only `make soak` looks for it."""


def _marks(plant: Callable[[], Fault]) -> list[pytest.MarkDecorator]:
    soak = pytest.mark.skipif(plant in _LONG and ROUNDS == 1, reason="takes minutes; `make soak` does it")
    return [] if plant in _QUICK else [pytest.mark.slow, soak]


def test_every_fault_can_be_planted() -> None:
    """The slow tests look for it: here its workload only runs."""
    for plant, workload, _ in _PLANTED:
        with plant(), steady():
            Explorer(WORKLOADS[workload], SEED, per_call=1).record()


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "workload", "told"),
    [
        pytest.param(*planted, id=f"{planted[0].__name__[1:]}-{planted[1]}", marks=_marks(planted[0]))
        for planted in _PLANTED
    ],
)
def test_a_planted_fault_of_an_edit_is_found_and_told(plant: Callable[[], Fault], workload: str, told: str) -> None:
    found_and_told(plant, workload, told)
