"""Record people's edits: from then on they count."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec

from ...inspect import Report
from ...journal import Journal
from ...journal.records import ApprovalAsked, PlanChanged
from ...state import Moment, blobs, folder_of_agent
from ...store import Store
from ...todo import Plan, Splice
from ...views import TODO
from .findings import Edit, Noticed

FreeId = Callable[[Literal["a", "d"]], str]


def record(store: Store, moment: Moment, journal: Journal, report: Report, noticed: Noticed, free_id: FreeId) -> None:
    """Add the edits, plans and copies that were found to the next group, and report each. `free_id` names new
    questions."""
    for edit in noticed.edits:
        record_edit(store, moment, journal, report, edit, partial(free_id, "d"))
    if noticed.back is not None:
        _ask_whether_back(store, journal, report, noticed.back, free_id("a"))
    for path, text in noticed.plans.items():
        adopted, file = Plan(text), folder_of_agent(path) + TODO
        splices = (Splice(0, 0, text), *adopted.identify(moment.agents[path].highest_id))
        journal.add(
            PlanChanged(
                agent=path,
                plan=splices,
                outline=adopted.outline(),
                by="person",
                person=store.trace(file).by,
                why="written before the run began",
            )
        )
        report.add("found", f"a plan of {len(adopted.tasks)} items in {file}")


def _ask_whether_back(store: Store, journal: Journal, report: Report, asked: ApprovalAsked, id: str) -> None:
    assert asked.back is not None
    kept = blobs.keep(store, bytes(asked.back.data), journal.generation)
    back = msgspec.structs.replace(asked.back, data=kept.result, blob=kept.blob)
    journal.add(msgspec.structs.replace(asked, id=id, back=back))
    report.add("wanted", f"{id}: {asked.question}")


def record_edit(
    store: Store, moment: Moment, journal: Journal, report: Report, edit: Edit, free_id: Callable[[], str]
) -> None:
    """One of them. `free_id` names a question that it leads to."""
    made = edit.record
    if made.step is not None and len(made.step.result):
        kept = blobs.keep(store, bytes(made.step.result), journal.generation)  # an edit with a secret was refused
        made = msgspec.structs.replace(
            made, step=msgspec.structs.replace(made.step, result=kept.result, blob=kept.blob)
        )
    journal.add(made)
    for say in made.says:
        report.add("edited", f"{made.file}: {say}")
    for doubt in edit.doubts:
        known = moment.doubts.values()
        if not any((each.agent, each.scope, each.key) == (doubt.agent, doubt.scope, doubt.key) for each in known):
            journal.add(msgspec.structs.replace(doubt, id=free_id()))
