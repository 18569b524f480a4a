"""Do what a person has answered about files of a checkpoint that they had copied over those of the run."""

from __future__ import annotations

from typing import Any

import msgspec

from ..base import UsageError
from ..inspect import Report
from ..journal import Journal
from ..journal.records import Back, Edited
from ..state import DATA, GO_BACK, History, Kept, Moment, blobs, json_patch
from ..store import Store
from ..views import STATE
from . import rewind


def obey(store: Store, moment: Moment, report: Report, journal: Journal, back: Back, decision: str, by: str) -> None:
    """Add the records of it. They come before that of the answer: if a crash keeps only them, the question is asked
    once more, and the same answer changes nothing. UsageError if that moment can't be made any more."""
    if decision == GO_BACK:
        _go_back(store, moment, report, journal, back, by)
    elif decision == DATA:
        _take_data(store, moment, report, journal, back, by)


def _go_back(store: Store, moment: Moment, report: Report, journal: Journal, back: Back, by: str) -> None:
    journal.flush()
    was, then = moment.seq, History(store, moment).at(back.to)
    if then is None:
        raise UsageError(
            f"the run can't go back to the checkpoint {back.checkpoint} any more",
            why="the records before it are pruned",
            remedy="answer `data` or `keep`",
        )
    returned = rewind.plan(moment, then, by, file=f"checkpoints/{back.checkpoint}.json")
    returned.add(store, journal)
    for say in returned.record.says:
        report.add("edited", say)
    done = f"went back to the checkpoint {back.checkpoint}; effects and answers since then are kept"
    report.add("done", f"{done}. `satchel rewind WS --to {was}` undoes it")


def _take_data(store: Store, moment: Moment, report: Report, journal: Journal, back: Back, by: str) -> None:
    data: dict[str, Any] = msgspec.json.decode(blobs.fetch(store, Kept(back.data, back.blob)))
    for path, value in data.items():
        agent = moment.agents.get(path)
        if agent is None or not (patch := json_patch.diff(agent.data, value)):
            continue
        says = (f"the data is that of the checkpoint {back.checkpoint}",)
        file = f"{agent.folder}{STATE}"
        journal.add(Edited(agent=path, file=file, by=by, sha="", base=back.to, patch=patch, says=says))
        report.add("edited", f"{file}: {says[0]}")
